//! Two sites of two nodes each that tell each other everything at once: what a site is told, by
//! which node, and what stays while it cannot be told. Links and their faults are left to the
//! simulator.

use std::sync::Arc;

use super::Shard;
use super::effects::{
    Answer, CallbackOutcome, Condition, Conditional, Dialect, Event, Internal, Outbox, Purpose,
    Refusal, Request, Target, Ticket, ToPeer,
};
use super::harness_tests::{FROM, START_MS, config, tell};
use super::records::Record;
use crate::base::ids::{PeerIndex, TimerId};
use crate::base::ranked::Replicas;
use crate::base::time::{MonoNs, Now, TICK_NS, Tick, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, PeerKind, View};
use crate::timer::calendar::Calendar;
use crate::timer::definition::{Definition, encode_content, encode_with_attributes};
use crate::timer::version::Version;
use crate::wire::attributes::{Attributes, CronTiming};
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy,
};
use crate::wire::peer_message::{decode_message, decode_result};
use crate::wire::site_question::{SiteAnswer, SiteQuestion};
use crate::wire::timer_action::TimerAction;

/// Nodes 0 and 1 are the first site, 2 and 3 the second.
const NODES: usize = 4;

struct Sites {
    shards: Vec<Shard>,
    views: Vec<Arc<View>>,
    /// Which node of a site each node is connected with; `None`: the connection is cut.
    lines: [[Option<usize>; 2]; NODES],
    /// Whether the nodes of the first site do not hear each other.
    is_apart: bool,
    /// Nodes that get no time.
    frozen: &'static [usize],
    now_ms: u64,
    /// How far the wall clocks of the second site are behind, and those of the first one ahead.
    behind_ms: u64,
    ahead_ms: u64,
    /// Each pop: milliseconds after the start, node, sequence number.
    pops: Vec<(u64, usize, u64)>,
    answers: Vec<Answer>,
    /// What is on its way, where it does not arrive at once.
    under_way: Option<Vec<Sent>>,
    outcome: fn(usize, u64) -> CallbackOutcome,
    /// Whether callbacks do not end, and those that have not.
    hung: bool,
    hanging: Vec<(usize, Ticket)>,
}

/// A message of a node, or the result of one for the node.
struct Sent {
    node: usize,
    peer: PeerIndex,
    purpose: Purpose,
    is_result: bool,
    bytes: Vec<u8>,
}

fn name(node: usize) -> String {
    format!("10.{}.0.{}:7253", node / 2 + 1, node % 2 + 1)
}

fn view(node: usize, are_sites: bool) -> Arc<View> {
    let site = node / 2;
    let membership = Membership {
        localhost: name(node),
        nodes: vec![name(2 * site), name(2 * site + 1)],
        local_site: format!("site{}", site + 1),
        remote_sites: vec![(format!("site{}", 2 - site), name(2 * (1 - site)))],
        replicate_across_sites: are_sites,
        ..Membership::default()
    };
    Arc::new(View::build(None, &membership).expect("a good configuration"))
}

impl Sites {
    fn new() -> Self {
        Self::with(true)
    }

    fn with(are_sites: bool) -> Self {
        let views: Vec<_> = (0..NODES).map(|node| view(node, are_sites)).collect();
        let now = Now { mono: MonoNs(START_MS * TICK_NS), wall: WallMs(START_MS) };
        let shard = |node: usize| Shard::new(config(views[node].clone(), node as u8), now);
        let mut sites = Self {
            shards: (0..NODES).map(shard).collect(),
            views: views.clone(),
            lines: [[Some(0), Some(2)]; NODES],
            is_apart: false,
            frozen: &[],
            now_ms: START_MS,
            behind_ms: 0,
            ahead_ms: 0,
            pops: Vec::new(),
            answers: Vec::new(),
            under_way: None,
            outcome: |_, _| CallbackOutcome::Delivered,
            hung: false,
            hanging: Vec::new(),
        };
        for (at, view) in views.iter().enumerate() {
            for peer in view.connected_nodes().union(view.connected_sites()).iter() {
                sites.believe(at, peer, Liveness::Alive);
            }
        }
        sites
    }

    fn now(&self, node: usize) -> Now {
        let wall_ms = match node {
            0..2 => self.now_ms + self.ahead_ms,
            _ => self.now_ms - self.behind_ms,
        };
        Now { mono: MonoNs(self.now_ms * TICK_NS), wall: WallMs(wall_ms) }
    }

    fn believe(&mut self, at: usize, peer: PeerIndex, liveness: Liveness) {
        let is_site = matches!(self.views[at].peers()[peer.index()].kind, PeerKind::Site(_));
        let dialect = if is_site { Dialect::Http } else { Dialect::Frames };
        let has_gaps = liveness == Liveness::Alive;
        self.handle(at, Event::Peer { peer, liveness, dialect, has_gaps });
    }

    /// A node's connection to the other site ends or stands again.
    fn cut(&mut self, node: usize, is_cut: bool) {
        let other = 1 - node / 2;
        self.lines[node][other] = if is_cut { None } else { Some(2 * other) };
        let peer = self.views[node].connected_sites().iter().next().expect("one other site");
        self.believe(node, peer, if is_cut { Liveness::Dead } else { Liveness::Alive });
    }

    /// The nodes of the first site lose each other or meet again.
    fn part(&mut self, is_apart: bool) {
        self.is_apart = is_apart;
        for (at, about) in [(0, 1), (1, 0)] {
            let peer = self.views[at].node_named(&name(about)).expect("a member");
            self.believe(at, peer, if is_apart { Liveness::Dead } else { Liveness::Alive });
        }
    }

    fn handle(&mut self, node: usize, event: Event<'_>) {
        let (now, mut outbox) = (self.now(node), Outbox::default());
        self.shards[node].handle(now, event, &mut outbox);
        self.deliver(node, outbox);
    }

    fn deliver(&mut self, node: usize, outbox: Outbox) {
        self.answers.extend(outbox.replies.into_iter().map(|reply| reply.answer));
        let mut unheard = Vec::new();
        for ToPeer { peer, purpose, bytes } in outbox.to_peers {
            let bytes = &outbox.peer_bytes[bytes];
            if let Some(under_way) = &mut self.under_way {
                let bytes = bytes.to_vec();
                under_way.push(Sent { node, peer, purpose, is_result: false, bytes });
                continue;
            }
            match (self.views[node].peers()[peer.index()].kind, self.lines[node][1 - node / 2]) {
                (PeerKind::Site(_), Some(to)) => self.tell_site(node, to, (peer, purpose), bytes),
                (PeerKind::Site(_), None) => unheard.push((peer, purpose)),
                (PeerKind::Node(_), _) if self.is_apart && node < 2 => {
                    unheard.push((peer, purpose))
                }
                (PeerKind::Node(_), _) => self.tell_node(node, peer, purpose, bytes),
            }
        }
        // A link tells what cannot be sent when it has been given all else.
        for (peer, purpose) in unheard {
            self.handle(node, Event::PeerUnheard { peer, purpose });
        }
        for attempt in outbox.attempts {
            let sequence = attempt.ticket.sequence;
            self.pops.push((self.now_ms - START_MS, node, sequence));
            if self.hung {
                self.hanging.push((node, attempt.ticket));
                continue;
            }
            let outcome = (self.outcome)(node, sequence);
            self.handle(node, Event::CallbackFinished { ticket: attempt.ticket, outcome });
        }
    }

    fn tell_node(&mut self, node: usize, peer: PeerIndex, purpose: Purpose, bytes: &[u8]) {
        let to = node ^ 1;
        assert_eq!(self.views[node].name_of(peer), name(to), "there is one other");
        let (now, from) = (self.now(to), self.views[to].node_named(&name(node)));
        let (result, replies) = tell(&mut self.shards[to], now, from, bytes);
        self.deliver(to, replies);
        self.answer(Sent { node, peer, purpose, is_result: true, bytes: result });
    }

    fn answer(&mut self, result: Sent) {
        match &mut self.under_way {
            Some(under_way) => under_way.push(result),
            None => self.arrive(result),
        }
    }

    /// What was on its way arrives.
    fn arrive(&mut self, sent: Sent) {
        let Sent { node, peer, purpose, is_result, bytes } = sent;
        if is_result {
            let result = decode_result(&mut &bytes[..]).expect("encoded by a shard");
            return self.handle(node, Event::PeerResult { peer, purpose, result });
        }
        match self.views[node].peers()[peer.index()].kind {
            PeerKind::Site(_) => {
                let to = self.lines[node][1 - node / 2].expect("no line is cut");
                self.tell_site(node, to, (peer, purpose), &bytes);
            }
            PeerKind::Node(_) => self.tell_node(node, peer, purpose, &bytes),
        }
    }

    /// Tells a site over the internal HTTP API: whole copies, without the nodes of the site.
    fn tell_site(
        &mut self,
        node: usize,
        to: usize,
        (peer, purpose): (PeerIndex, Purpose),
        bytes: &[u8],
    ) {
        let request = match decode_message(&mut &bytes[..]).expect("encoded by a shard") {
            PeerMessage::Copy(copy) => {
                let replicas = Replicas::new();
                Request::Merge(TimerCopy { replicas, is_write: false, ..copy })
            }
            PeerMessage::Standing(standing) | PeerMessage::Trying(standing) => {
                let Standing { id, version, sequence, .. } = standing;
                let site = self.views[node].local_site();
                Request::Compare(SiteQuestion { id, version, sequence, site })
            }
            other => panic!("a site is told copies, and asked: {other:?}"),
        };
        self.handle(to, Event::Request { from: FROM, request });
        let answer = self.answers.pop();
        let result = match &answer {
            Some(Answer::Done { .. }) => PeerResult::Held,
            Some(Answer::Internal(internal)) => match &**internal {
                Internal::Compared(SiteAnswer::Held) => PeerResult::Held,
                Internal::Compared(SiteAnswer::Wanted) => PeerResult::Wanted,
                Internal::Compared(SiteAnswer::Ahead) => PeerResult::Ahead,
                Internal::Compared(SiteAnswer::Later(copy)) => PeerResult::Found(copy),
                other => panic!("{other:?}"),
            },
            Some(Answer::Refused(Refusal::NoReplica)) => return self.unheard(node, peer, purpose),
            other => {
                assert!(matches!(other, Some(Answer::Refused(_))), "{other:?}");
                PeerResult::Refused(PeerRefusal::Full)
            }
        };
        let mut bytes = Vec::new();
        result.encode(&mut bytes);
        self.answer(Sent { node, peer, purpose, is_result: true, bytes });
    }

    /// A link would ask again.
    fn unheard(&mut self, node: usize, peer: PeerIndex, purpose: Purpose) {
        self.handle(node, Event::PeerUnheard { peer, purpose });
    }

    fn run_until(&mut self, second: u64) {
        self.run_for((START_MS + second * 1_000).saturating_sub(self.now_ms));
    }

    fn run_for(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.now_ms += 100;
            for node in (0..NODES).filter(|node| !self.frozen.contains(node)) {
                let (now, mut outbox) = (self.now(node), Outbox::default());
                self.shards[node].tick(now, &mut outbox);
                self.deliver(node, outbox);
            }
        }
    }

    fn ask(&mut self, node: usize, request: Request<'_>) -> TimerId {
        self.handle(node, Event::Request { from: FROM, request });
        match self.answers.pop() {
            Some(Answer::Done { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, node: usize, seconds: (u64, u64), factor: u8) -> TimerId {
        let mut content = Vec::new();
        encode_content("/pop", &[], b"opaque", &mut content);
        self.create_with(node, seconds, factor, &content)
    }

    fn create_with(
        &mut self,
        node: usize,
        seconds: (u64, u64),
        factor: u8,
        content: &[u8],
    ) -> TimerId {
        self.ask(
            node,
            Request::Create(Definition {
                interval_ms: seconds.0 * 1_000,
                repeat_for_ms: seconds.1 * 1_000,
                factor: Some(factor),
                authority: "host:80",
                content,
            }),
        )
    }

    /// Does something with a timer of one replica.
    fn act(&mut self, node: usize, id: TimerId, action: TimerAction) {
        let target = Target { id, factor: Some(1), filter: None };
        let (condition, definition, action) = (Condition::Present, None, Some(action));
        let asked = Conditional { target, condition, definition, action };
        self.handle(node, Event::Request { from: FROM, request: Request::Conditional(asked) });
        assert!(matches!(self.answers.pop(), Some(Answer::Identified(_))));
    }

    fn delete(&mut self, node: usize, id: TimerId, factor: u8) {
        self.ask(node, Request::Delete(Target { id, factor: Some(factor), filter: None }));
    }

    /// The live nodes that hold the timer.
    fn holders(&self, id: TimerId) -> Vec<usize> {
        let holds = |node: &usize| {
            let shard = &self.shards[*node];
            shard.find(id).is_some_and(|slot| shard.records.get(slot).is_live())
        };
        (0..NODES).filter(holds).collect()
    }

    /// The node of a site that a timer with one replica is on.
    fn holder(&self, id: TimerId, site: usize) -> usize {
        let view = &self.views[2 * site];
        let list = view.place(id, 1, view.new_nodes());
        let peer = view.peer_of(list.as_slice()[0]).expect("a member");
        (0..NODES).find(|node| name(*node) == view.name_of(peer)).expect("known")
    }

    fn audit(&self) {
        self.shards.iter().for_each(|shard| shard.audit().expect("all parts agree"));
    }
}

#[test]
fn a_site_is_told_of_every_write_and_waits_behind_the_one_that_took_it() {
    let mut sites = Sites::new();
    let id = sites.create(1, (20, 40), 2);
    assert_eq!(sites.holders(id), [0, 1, 2, 3]);
    sites.run_until(50);
    let [first, second] = sites.pops[..] else { panic!("{:?}", sites.pops) };
    assert!(first.1 < 2 && second.1 < 2, "the site that took it: {:?}", sites.pops);
    assert_eq!((first.0, second.0), (20_000, 40_000));
    assert!(sites.holders(id).is_empty());
    sites.audit();
}

#[test]
fn an_update_through_another_site_leaves_the_order_of_sites() {
    let mut sites = Sites::new();
    let id = sites.create(0, (20, 20), 2);
    let mut content = Vec::new();
    encode_content("/pop", &[], b"other", &mut content);
    sites.run_until(5);
    let definition = Definition {
        interval_ms: 10_000,
        repeat_for_ms: 20_000,
        factor: Some(2),
        authority: "host:80",
        content: &content,
    };
    let target = Target { id, factor: Some(2), filter: None };
    sites.ask(3, Request::Update(target, definition));
    sites.run_until(40);
    let [first, second] = sites.pops[..] else { panic!("{:?}", sites.pops) };
    assert_eq!((first.0, second.0), (15_000, 25_000), "nobody waited");
    assert!(first.1 < 2 && second.1 < 2, "the first site: {:?}", sites.pops);
}

/// It tells of a write before it knows which site took the timer first.
#[test]
fn an_original_that_names_its_own_site_first_leaves_the_order_of_sites() {
    let mut sites = Sites::new();
    let id = sites.create(0, (20, 20), 2);
    sites.run_until(5);
    let mut content = Vec::new();
    encode_content("/pop", &[], b"other", &mut content);
    for node in [2, 3] {
        let now = sites.now(node);
        let standing = Standing {
            id,
            version: Version::of_start(now.wall).0,
            sequence: 0,
            actives: 0,
            list_digest: 0,
        };
        let copy = TimerCopy {
            standing,
            is_write: false,
            replicas: Replicas::new(),
            factor: 2,
            sites: sites.views[2].sites(),
            start_ms: now.mono.tick_floor().0,
            interval_ms: 10_000,
            repeat_for_ms: 10_000,
            body: Some(CopyBody { authority: "host:80", content: &content }),
        };
        sites.handle(node, Event::Request { from: FROM, request: Request::Merge(copy) });
        let shard = &sites.shards[node];
        let record = shard.records.get(shard.find(id).expect("held"));
        assert_eq!(record.interval_ms, 10_000, "the write is taken");
        let known = shard.records.placement_of(record).sites;
        assert_eq!(known.as_slice(), sites.views[0].sites().as_slice());
    }
}

#[test]
fn a_delete_outlives_a_cut_between_sites() {
    for deleted_at in [0, 2] {
        let mut sites = Sites::new();
        let id = sites.create(0, (2, 600), 2);
        sites.run_until(5);
        (0..NODES).for_each(|node| sites.cut(node, true));
        sites.run_until(7);
        sites.delete(deleted_at, id, 2);
        sites.run_until(40);
        let rest: Vec<usize> = (0..NODES).filter(|node| node / 2 != deleted_at / 2).collect();
        assert_eq!(sites.holders(id), rest, "the other site does not know");
        // Nodes with the old copy offer it before they are told.
        (0..NODES).rev().for_each(|node| {
            sites.cut(node, false);
            sites.run_until(41 + (NODES - node) as u64);
        });
        let done = sites.pops.len();
        sites.run_until(200);
        assert!(sites.holders(id).is_empty(), "deleted through node {deleted_at}");
        assert!(sites.pops.len() <= done, "it pops on");
        sites.run_until(400);
        let is_gone = sites.shards.iter().all(|shard| shard.find(id).is_none());
        assert!(is_gone, "tombstones end");
        sites.audit();
    }
}

/// The client has its answer, and the copy for the other site is still on its way.
#[test]
fn a_delete_that_overtakes_the_create_on_its_way_to_a_site_ends_the_timer() {
    for behind_ms in [0, 1, 500, 2_000] {
        let mut sites = Sites::new();
        sites.behind_ms = behind_ms;
        // Ids run ahead of the clock at the start of a process.
        sites.run_until(3);
        [0, 1].iter().for_each(|node| sites.cut(*node, true));
        let id = sites.create(0, (20, 20), 2);
        sites.delete(2, id, 2);
        (0..NODES).for_each(|node| sites.cut(node, false));
        sites.run_until(5);
        assert_eq!(sites.holders(id), [0_usize; 0], "{behind_ms} ms behind");
        sites.run_until(60);
        assert_eq!(sites.pops, []);
        sites.audit();
    }
}

#[test]
fn whoever_reaches_a_site_tells_what_another_node_could_not() {
    let mut sites = Sites::new();
    for node in [0, 1] {
        // This node holds the timers with two replicas, and some of the others.
        let ids: Vec<TimerId> = (0..16).map(|n| sites.create(node, (30, 300), 1 + n % 2)).collect();
        let is_told = |id: &TimerId| sites.holders(*id).contains(&(node ^ 1));
        let ids: Vec<TimerId> = ids.into_iter().filter(is_told).collect();
        assert!(ids.len() > 8, "some of the others are elsewhere: {ids:?}");
        sites.cut(node, true);
        for &id in &ids {
            sites.delete(node, id, 1);
            assert!(
                sites.holders(id).is_empty(),
                "the site is told over the other node's connection"
            );
        }
        sites.cut(node, false);
    }
}

#[test]
fn what_no_node_could_tell_a_site_is_told_when_it_is_back() {
    let mut sites = Sites::new();
    let ids: Vec<TimerId> = (0..20).map(|_| sites.create(0, (30, 300), 1)).collect();
    [0, 1].iter().for_each(|node| sites.cut(*node, true));
    ids.iter().for_each(|id| sites.delete(1, *id, 1));
    sites.run_until(2);
    // Only one node of the site comes back, whichever node holds the timer.
    sites.cut(1, false);
    sites.run_until(4);
    for &id in &ids {
        let is_told = sites.holder(id, 0) == 1;
        assert_eq!(sites.holders(id).is_empty(), is_told, "{id:?}");
    }
    sites.cut(0, false);
    sites.run_until(6);
    assert!(ids.iter().all(|id| sites.holders(*id).is_empty()));
}

/// A site that was stopped hears at once that much has been done and that much is overdue.
#[test]
fn ranks_that_hear_of_overdue_pops_do_not_do_them_at_once() {
    let mut sites = Sites::new();
    for _ in 0..10 {
        sites.create(0, (1, 60), 2);
    }
    sites.run_until(5);
    (0..NODES).for_each(|node| sites.cut(node, true));
    sites.frozen = &[0, 1];
    sites.run_until(25);
    sites.frozen = &[];
    (0..NODES).for_each(|node| sites.cut(node, false));
    let begun = sites.pops.len();
    sites.run_until(40);
    let mut by_both: Vec<_> = sites.pops[begun..].iter().filter(|pop| pop.1 < 2).collect();
    assert!(by_both.len() > 100, "the first site does them");
    by_both.sort_by_key(|pop| pop.2);
    let of = |sequence: u64, node: usize| {
        by_both.iter().filter(|pop| (pop.2, pop.1) == (sequence, node)).count()
    };
    for sequence in 1..=60 {
        let both = (of(sequence, 0), of(sequence, 1));
        assert!(both.0 + both.1 <= 10, "pop {sequence} of 10 timers was done {both:?} times");
    }
}

#[test]
fn a_node_that_was_cut_off_acts_again_when_it_has_delivered_something() {
    const REACHES_FROM: u64 = 30;
    let mut sites = Sites::with(false);
    sites.outcome = |node, sequence| match (node, sequence) {
        (0, 10..REACHES_FROM) => CallbackOutcome::Unreachable,
        _ => CallbackOutcome::Delivered,
    };
    let mut ids = Vec::new();
    while ids.len() < 20 {
        let id = sites.create(0, (1, 60), 2);
        match sites.holder(id, 0) {
            0 => ids.push(id),
            _ => sites.delete(0, id, 2),
        }
    }
    sites.run_until(10);
    sites.part(true);
    sites.run_until(20);
    let given_up = |sites: &Sites| sites.shards[0].counters().given_up;
    let alone = given_up(&sites);
    assert!(alone > 0, "it reaches no callback host");
    sites.part(false);
    sites.run_until(29);
    let trials = given_up(&sites) - alone;
    assert!((1..=20).contains(&trials), "two a second at most: {trials}");
    sites.run_until(40);
    let begun = sites.pops.len();
    sites.run_until(50);
    let by_it = |pop: &&(u64, usize, u64)| pop.1 == 0;
    let count = sites.pops[begun..].iter().filter(by_it).count();
    assert_eq!(count, sites.pops.len() - begun, "it acts again");
    sites.audit();
}

/// Whichever node of a site is told, the other one has the timer.
#[test]
fn what_a_site_is_told_goes_to_those_of_it_that_have_room() {
    for factor in [1, 2] {
        let mut sites = Sites::new();
        sites.shards[2].records.set_records_max(0);
        let ids: Vec<_> = (0..20).map(|_| sites.create(0, (100, 100), factor)).collect();
        sites.run_until(3);
        let is_held = |id: &TimerId| sites.holders(*id).contains(&3);
        assert_eq!(ids.iter().filter(|id| is_held(id)).count(), 20, "factor {factor}");
    }
}

/// The node that holds the timer at the other site may die before it is told, and come back with a
/// journal.
#[test]
fn a_node_that_passes_the_end_of_a_timer_on_keeps_it() {
    let mut sites = Sites::new();
    let ids: Vec<TimerId> = (0..20).map(|_| sites.create(0, (600, 600), 1)).collect();
    for id in ids {
        let [holder, told] = [sites.holder(id, 1), 2];
        sites.delete(0, id, 1);
        assert!(sites.holders(id).is_empty());
        for node in [holder, told] {
            assert!(sites.shards[node].find(id).is_some(), "{node} of {holder} {told}");
        }
    }
    sites.audit();
}

/// A node of a site that is told of a write keeps it until the holder has it, and no longer.
#[test]
fn a_node_that_passes_a_timer_on_keeps_it_until_the_holder_has_it() {
    let mut sites = Sites::new();
    let ids: Vec<TimerId> = (0..20).map(|_| sites.create(2, (600, 600), 1)).collect();
    let of_other = |sites: &Sites, id: &TimerId| sites.holder(*id, 0) == 1;
    let ids: Vec<TimerId> = ids.into_iter().filter(|id| of_other(&sites, id)).collect();
    assert!(ids.len() > 4, "node 0 is told of them, and node 1 holds them");
    assert!(ids.iter().all(|id| sites.shards[0].find(*id).is_none()), "it has them already");
    // Node 1 gets no time, and nobody has noticed yet.
    sites.is_apart = true;
    let mut content = Vec::new();
    encode_content("/pop", &[], b"other", &mut content);
    let definition = Definition {
        interval_ms: 300_000,
        repeat_for_ms: 300_000,
        factor: Some(1),
        authority: "host:80",
        content: &content,
    };
    let made: Vec<TimerId> = (0..20).map(|_| sites.create(2, (600, 600), 1)).collect();
    let made: Vec<TimerId> = made.into_iter().filter(|id| of_other(&sites, id)).collect();
    for &id in &ids {
        sites.ask(2, Request::Update(Target { id, factor: Some(1), filter: None }, definition));
    }
    sites.run_until(3);
    sites.is_apart = false;
    sites.run_until(8);
    for id in ids.iter().chain(&made) {
        let interval_ms = if made.contains(id) { 600_000 } else { 300_000 };
        let slot = sites.shards[1].find(*id).expect("the holder hears of it when it lives");
        assert_eq!(sites.shards[1].records.get(slot).interval_ms, interval_ms);
        assert!(sites.shards[0].find(*id).is_none(), "then the other node forgets it");
    }
    assert!(!made.is_empty());
    sites.audit();
}

/// Long after its sites were last away, they have heard of the tombstone.
#[test]
fn a_tombstone_ends_in_its_time_when_no_site_was_away() {
    let mut sites = Sites::new();
    sites.run_until(130);
    let id = sites.create(0, (10, 10), 2);
    sites.delete(0, id, 2);
    let stays_s = sites.shards[0].records.tombstone_ms(10_000) / 1_000;
    sites.run_until(129 + stays_s);
    assert!(sites.shards.iter().all(|shard| shard.find(id).is_some()));
    sites.run_until(132 + stays_s);
    assert!(sites.shards.iter().all(|shard| shard.find(id).is_none()), "{stays_s}");
}

/// Whichever site is told first of what the other one did meanwhile.
#[test]
fn a_pop_that_another_site_made_before_it_heard_of_a_pause_stays_made() {
    for order in [[0, 1, 2, 3], [2, 3, 0, 1]] {
        let mut sites = Sites::new();
        let id = sites.create(0, (10, 40), 1);
        let holder = sites.holder(id, 0);
        sites.run_until(12);
        (0..NODES).for_each(|node| sites.cut(node, true));
        sites.act(holder, id, TimerAction::Pause);
        sites.run_until(24);
        order.iter().for_each(|node| sites.cut(*node, false));
        sites.run_until(26);
        sites.act(holder, id, TimerAction::Resume);
        sites.run_until(45);
        let seen: Vec<(u64, u64)> = sites.pops.iter().map(|pop| (pop.0, pop.2)).collect();
        assert_eq!(seen, [(10_000, 1), (22_000, 2), (30_000, 3), (40_000, 4)]);
        sites.audit();
    }
}

/// A node of the second site is told of a delete, and dies before its disk has that.
/// Lists by state are answered by the first holder of each site: it knows best what the timer does.
#[test]
fn every_site_lists_a_timer_by_its_state_once() {
    let mut sites = Sites::new();
    sites.run_until(1);
    let id = sites.create(0, (30, 30), 2);
    sites.run_until(2);
    let firsts = |sites: &Sites, is_first: fn(&Shard, &Record) -> bool| -> Vec<usize> {
        let holders = sites.holders(id).into_iter();
        let is_it = |node: &usize| {
            let shard = &sites.shards[*node];
            is_first(shard, shard.records.get(shard.find(id).expect("held")))
        };
        holders.filter(is_it).map(|node| node / 2).collect()
    };
    let lists =
        firsts(&sites, |shard, record| shard.records.is_first_of_site(&shard.peers, record));
    assert_eq!(lists, [0, 1]);
    let pops = firsts(&sites, |shard, record| shard.records.is_first(&shard.peers, record));
    assert_eq!(pops, [0], "and one counts it");
}

#[test]
fn a_site_that_tells_of_a_timer_that_has_ended_is_told_the_end() {
    let mut sites = Sites::new();
    let id = sites.create(0, (20, 200), 1);
    sites.run_until(5);
    let holder = sites.holder(id, 1);
    let mut written = Vec::new();
    let shard = &sites.shards[holder];
    let record = *shard.records.get(shard.find(id).expect("it is held"));
    PeerMessage::Copy(shard.copy_of(&record, &mut Vec::new())).encode(&mut written);
    sites.delete(0, id, 1);
    assert!(sites.holders(id).is_empty());
    for node in [2, 3] {
        let (shard, tick) = (&mut sites.shards[node], Tick(sites.now_ms));
        shard.find(id).into_iter().for_each(|slot| shard.records.forget(tick, slot));
    }
    let now = sites.now(holder);
    let (_, outbox) = tell(&mut sites.shards[holder], now, None, &written);
    sites.deliver(holder, outbox);
    assert_eq!(sites.holders(id), [holder], "it has its disk");
    sites.run_until(200);
    assert!(sites.pops.len() <= 1, "at most until the first pop: {:?}", sites.pops);
    assert!(sites.holders(id).is_empty());
    sites.audit();
}

#[path = "site_order_tests.rs"]
mod orders;
#[path = "site_return_tests.rs"]
mod returns;

#[path = "site_rules_tests.rs"]
mod rules;

/// A copy of a timer as another site tells it. Returns how many messages for sites answer it.
fn answers_to_site(sites: &mut Sites, node: usize, written: &[u8]) -> usize {
    let Ok(PeerMessage::Copy(copy)) = decode_message(&mut &written[..]) else { panic!("a copy") };
    let request = Request::Merge(TimerCopy { replicas: Replicas::new(), ..copy });
    let (now, mut outbox) = (sites.now(node), Outbox::default());
    sites.shards[node].handle(now, Event::Request { from: FROM, request }, &mut outbox);
    let view = &sites.views[node];
    outbox.to_peers.iter().filter(|sent| view.connected_sites().contains(sent.peer)).count()
}

/// Each pop of a calendar is a version of its own. Where a line takes longer than a period, all
/// that comes is of the past. Were it answered, the answers would be answered, too, without an end.
#[test]
fn a_pop_of_a_calendar_that_is_told_late_is_not_answered() {
    let mut sites = Sites::new();
    let (expression, zone, catch_up_ms) = ("* * * * * *", "UTC", 60_000);
    let calendar = Calendar::parse(expression, zone).expect("a calendar");
    let due_ms = calendar.next_after(START_MS).expect("a moment");
    let cron = Some(CronTiming { expression, zone, due_ms, done: 0, catch_up_ms, end_ms: None });
    let mut encoded = Vec::new();
    Attributes { cron, ..Attributes::default() }.write(&mut encoded);
    let content = |opaque: &[u8]| {
        let mut content = Vec::new();
        encode_with_attributes("/pop", &[], (&encoded, opaque), &mut content);
        content
    };
    let (first, other) = (content(b"first"), content(b"other"));
    let (interval_ms, authority) = (due_ms - START_MS, "host:80");
    let definition = |content| {
        let (repeat_for_ms, factor) = (interval_ms, Some(1));
        Definition { interval_ms, repeat_for_ms, factor, authority, content }
    };
    let id = sites.ask(0, Request::Create(definition(&first)));
    let holder = sites.holder(id, 1);
    let held = |sites: &Sites| {
        let shard = &sites.shards[holder];
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        let mut written = Vec::new();
        PeerMessage::Copy(shard.copy_of(&record, &mut Vec::new())).encode(&mut written);
        (record.version, written)
    };
    let (version, written) = held(&sites);
    sites.run_until(5);
    assert!(held(&sites).0 > version && sites.pops.len() > 3, "{:?}", sites.pops);
    assert_eq!(answers_to_site(&mut sites, holder, &written), 0);
    // Who tells of a definition that was replaced is told.
    let target = Target { id, factor: Some(1), filter: None };
    sites.ask(holder, Request::Update(target, definition(&other)));
    assert_eq!(answers_to_site(&mut sites, holder, &written), 1);
    sites.audit();
}
