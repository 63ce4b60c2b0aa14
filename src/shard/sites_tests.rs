//! What a node answers another site's question, by what it holds or was told, at the moment at
//! which the answer changes.

use std::sync::Arc;

use super::super::effects::{Event, Request};
use super::super::harness_tests::{FROM, START_MS, config, content, definition};
use super::*;
use crate::base::ids::TimerId;
use crate::base::ranked::Sites;
use crate::base::time::{MonoNs, TICK_NS, WallMs};
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, View};
use crate::shard::effects::Dialect;
use crate::shard::parts::questions::Question;
use crate::timer::definition::{encode_with_attributes, spread_ms};
use crate::timer::version::Version;
use crate::wire::attributes::Attributes;
use crate::wire::peer_message::CopyBody;
use crate::wire::peer_message::decode_message;

/// The first node of the first of two sites, which have two nodes each, and a timer of both nodes
/// that is due after 10 s.
struct Here {
    shard: Shard,
    view: Arc<View>,
    id: TimerId,
}

fn now(ms: u64) -> Now {
    Now { mono: MonoNs((START_MS + ms) * TICK_NS), wall: WallMs(START_MS + ms) }
}

/// When this site makes a pop by itself if it is asked.
const NEAR_MS: u64 = 10_000 - TURN_NEAR_MS;

impl Here {
    fn new() -> Self {
        Self::of((2, 2), &[("site2", "10.2.0.1:7253")])
    }

    /// The same of a site of so many nodes, and a timer of so many of them, beside these sites.
    fn of((nodes, factor): (usize, u8), sites: &[(&str, &str)]) -> Self {
        let named = |(name, at): &(&str, &str)| ((*name).to_owned(), (*at).to_owned());
        let membership = Membership {
            localhost: "10.1.0.1:7253".to_owned(),
            nodes: (1..=nodes).map(|node| format!("10.1.0.{node}:7253")).collect(),
            local_site: "site1".to_owned(),
            remote_sites: sites.iter().map(named).collect(),
            replicate_across_sites: true,
            ..Membership::default()
        };
        let view = Arc::new(View::build(None, &membership).expect("a good configuration"));
        let shard = Shard::new(config(view.clone(), 1), now(0));
        let mut here = Self { shard, view, id: TimerId(0) };
        let siblings = here.view.connected_nodes().without(here.shard.peers.own());
        let peers = here.view.connected_sites().union(siblings);
        peers.iter().for_each(|peer| here.believe(peer, Liveness::Alive));
        let content = content();
        // Not every timer is on this node.
        for _ in 0..100 {
            here.request(Request::Create(definition((10, 100), factor, &content)));
            let slot = here.shard.records.occupied_from(Slot(0)).next();
            if let Some(slot) = slot {
                here.id = here.shard.records.get(slot).id;
                return here;
            }
        }
        panic!("one of a hundred timers is on this node");
    }

    fn request(&mut self, request: Request<'_>) {
        let mut outbox = Outbox::default();
        self.shard.handle(now(0), Event::Request { from: FROM, request }, &mut outbox);
    }

    fn believe(&mut self, peer: PeerIndex, liveness: Liveness) {
        let (dialect, mut outbox) = (Dialect::Frames, Outbox::default());
        let event = Event::Peer { peer, liveness, dialect, has_gaps: false };
        self.shard.handle(now(0), event, &mut outbox);
    }

    fn sibling(&self) -> PeerIndex {
        self.view.node_named("10.1.0.2:7253").expect("a member")
    }

    fn site(&self) -> PeerIndex {
        self.view.connected_sites().iter().next().expect("one other site")
    }

    fn slot(&self) -> Slot {
        self.shard.find(self.id).expect("it is held")
    }

    /// The question of the other site, which holds a state so many pops behind or ahead.
    fn question(&self, pops: i64) -> SiteQuestion {
        let key = self.shard.records.get(self.slot()).key();
        let site = self.view.next_sites(&Sites::new());
        let site = *site.as_slice().iter().find(|it| **it != self.view.local_site()).expect("two");
        let sequence = key.sequence.wrapping_add_signed(pops);
        SiteQuestion { id: self.id, version: key.version.0, sequence, site }
    }

    /// The answers by what is held, and by the same told by another node.
    fn answers(&self, ms: u64, asked: SiteQuestion) -> [(SiteAnswer, PeerSet); 2] {
        let held = self.shard.compared_with_held(now(ms), asked, self.slot());
        let mut room = Vec::new();
        let mut copy = self.shard.copy_of(self.shard.records.get(self.slot()), &mut room);
        copy.start_ms = age_of(now(ms).mono.tick_floor(), &copy);
        [held, self.shard.compared_with_told(now(ms), asked, &copy)]
    }

    fn only_sibling(&self) -> PeerSet {
        PeerSet::EMPTY.with(self.sibling())
    }
}

#[test]
fn the_other_ranks_are_asked_when_the_turn_of_their_site_is_near() {
    let here = Here::new();
    let same = here.question(0);
    for (ms, held, ranks) in [
        (0, SiteAnswer::Held, PeerSet::EMPTY),
        (NEAR_MS - 1, SiteAnswer::Held, PeerSet::EMPTY),
        // This node is about to make the pop, before the site that asks.
        (NEAR_MS, SiteAnswer::Ahead, here.only_sibling()),
        (10_000, SiteAnswer::Ahead, here.only_sibling()),
    ] {
        let [by_held, by_told] = here.answers(ms, same);
        assert_eq!(by_held, (held, PeerSet::EMPTY), "{ms}");
        assert_eq!(by_told, (SiteAnswer::Held, ranks), "{ms}");
    }
}

#[test]
fn a_site_that_is_behind_or_ahead_hears_so() {
    let mut here = Here::new();
    let slot = here.slot();
    let placement = *here.shard.records.placement_of(here.shard.records.get(slot));
    here.shard.records.catch_up(&here.shard.peers, now(0).mono.tick_floor(), slot, 3, &placement);
    for (pops, is_later, is_wanted) in [(-1, true, false), (0, false, false), (1, false, true)] {
        for (answer, ranks) in here.answers(0, here.question(pops)) {
            assert_eq!(matches!(answer, SiteAnswer::Later(_)), is_later, "{pops}: {answer:?}");
            assert_eq!(answer == SiteAnswer::Wanted, is_wanted, "{pops}: {answer:?}");
            assert!(ranks.is_empty());
        }
    }
    // A site that this node does not reach would not hear of what is written from now on.
    here.believe(here.site(), Liveness::Dead);
    for (pops, is_later) in [(-1, true), (0, false), (1, false)] {
        for (answer, _) in here.answers(0, here.question(pops)) {
            let is_ahead = answer == SiteAnswer::Ahead;
            assert_eq!((matches!(answer, SiteAnswer::Later(_)), is_ahead), (is_later, !is_later));
        }
    }
}

#[test]
fn nobody_is_asked_about_a_timer_that_waits_for_a_client_or_has_ended() {
    let here = Here::new();
    let record = *here.shard.records.get(here.slot());
    let mut room = Vec::new();
    let whole = here.shard.copy_of(&record, &mut room);
    let start_ms = 10_000;
    let paused = Attributes { is_paused: true, ..Attributes::default() };
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    paused.write(&mut encoded);
    encode_with_attributes("/pop", &[], (&encoded, b""), &mut content);
    let body = |content| Some(CopyBody { authority: "host:80", content });
    for (body, ranks) in [
        (whole.body, here.only_sibling()),
        (body(&content), PeerSet::EMPTY),
        (None, PeerSet::EMPTY),
    ] {
        let copy = TimerCopy { start_ms, body, ..whole };
        let told = here.shard.compared_with_told(now(10_000), here.question(0), &copy);
        assert_eq!(told, (SiteAnswer::Held, ranks), "{body:?}");
    }
}

#[test]
fn what_is_not_known_for_certain_is_answered_by_what_is_held_if_nobody_may_come_back() {
    let mut here = Here::new();
    let other = SiteQuestion { id: TimerId(99), ..here.question(0) };
    let sibling = here.sibling();
    let mut compared = |liveness, asked, refusal| {
        here.believe(sibling, liveness);
        let mut outbox = Outbox::default();
        let latest = Latest::Unsure(refusal);
        here.shard.compared(now(0), (FROM, asked), latest, &mut outbox).expect("an answer")
    };
    let none = Refusal::NoReplica;
    let refused = |refusal| Answer::Refused(refusal);
    assert_eq!(compared(Liveness::Suspect, other, none), refused(none), "it may be back");
    let late = Refusal::Unanswered;
    assert_eq!(compared(Liveness::Dead, other, late), refused(late));
    let wanted = compared(Liveness::Dead, other, none);
    let Answer::Internal(internal) = wanted else { panic!("{wanted:?}") };
    assert_eq!(*internal, Internal::Compared(SiteAnswer::Wanted));
}

#[test]
fn a_rank_that_says_nothing_may_be_at_a_pop_unless_it_lives_or_is_dead() {
    for (liveness, result, answer) in [
        (Liveness::Alive, None, SiteAnswer::Held),
        (Liveness::Suspect, None, SiteAnswer::Ahead),
        (Liveness::Dead, None, SiteAnswer::Held),
        (Liveness::Suspect, Some(PeerResult::Held), SiteAnswer::Held),
        (Liveness::Suspect, Some(PeerResult::Ahead), SiteAnswer::Ahead),
        (Liveness::Alive, Some(PeerResult::Held), SiteAnswer::Held),
    ] {
        let mut here = Here::new();
        let (asked, sibling) = (here.question(0), here.sibling());
        here.believe(sibling, liveness);
        let waiting = Waiting {
            from: Reader::Ranks(FROM, asked),
            id: here.id,
            asked: sibling,
            asked_at: Tick(0),
            since: Tick(0),
            left: PeerSet::EMPTY,
            listed: PeerSet::EMPTY.with(sibling),
            is_unsure: false,
            doubtful: None,
            ended: None,
            is_again: false,
            takes_doubtful: false,
        };
        let mut outbox = Outbox::default();
        let (of, told) = ((FROM, asked), (waiting, result));
        here.shard.rank_answered(now(0), of, told, &mut outbox);
        let replies: Vec<_> = outbox.replies.into_iter().map(|reply| reply.answer).collect();
        assert_eq!(replies, [says(answer)], "{liveness:?} {result:?}");
        assert!(outbox.to_peers.is_empty(), "nobody is asked again");
    }
}

#[test]
fn what_another_site_may_lack_is_left_to_offer_until_it_was_told() {
    let mut here = Here::new();
    let content = content();
    here.request(Request::Create(definition((10, 100), 2, &content)));
    here.request(Request::Delete(Target { id: here.id, factor: Some(2), filter: None }));
    assert_eq!(here.shard.records_held(), 2, "a timer and a tombstone");
    let site = here.site();
    here.shard.reconcile = Default::default();
    let mut left = |is_alive, is_owed, may_lack| {
        here.believe(site, if is_alive { Liveness::Alive } else { Liveness::Dead });
        here.shard.reconcile = Default::default();
        let peers = &mut here.shard.peers;
        peers.owed = if is_owed { PeerSet::EMPTY.with(site) } else { PeerSet::EMPTY };
        match may_lack {
            true => peers.may_lack(site),
            false => peers.all_were_told(),
        }
        here.shard.left_to_offer(site)
    };
    assert_eq!(left(true, false, false), 0);
    assert_eq!(left(true, false, true), 0, "it was shown all");
    assert_eq!(left(true, true, true), 2);
    assert_eq!(left(false, false, true), 2);
    here.shard.reconcile.start_walk(PeerSet::EMPTY.with(site));
    assert!(here.shard.left_to_offer(site) >= 2, "a walk is before it");
}

#[test]
fn ages_are_told_and_taken_with_the_spread_of_a_timer() {
    let here = Here::new();
    let windowed = Attributes { window_ms: Some(60_000), ..Attributes::default() };
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    windowed.write(&mut encoded);
    encode_with_attributes("/pop", &[], (&encoded, b""), &mut content);
    let id = (1..).map(TimerId).find(|id| spread_ms(*id, &content) > 100).expect("most of them");
    let mut room = Vec::new();
    let mut copy = here.shard.copy_of(here.shard.records.get(here.slot()), &mut room);
    copy.standing.id = id;
    copy.body = Some(CopyBody { authority: "host:80", content: &content });
    let start = START_MS + spread_ms(id, &content);
    copy.start_ms = start;
    copy.start_ms = age_of(now(7_000).mono.tick_floor(), &copy);
    assert_eq!((copy.start_ms, start_of(now(7_000).mono.tick_ceil(), &copy)), (7_000, Tick(start)));
}

#[test]
fn what_a_site_tells_in_answer_is_no_write_of_a_client() {
    let here = Here::new();
    let mut room = Vec::new();
    let copy = here.shard.copy_of(here.shard.records.get(here.slot()), &mut room);
    let write = TimerCopy { is_write: true, start_ms: 0, ..copy };
    let SiteAnswer::Later(bytes) = later(&write) else { panic!("a state") };
    let Ok(PeerMessage::Copy(told)) = decode_message(&mut &bytes[..]) else { panic!("a copy") };
    assert!(!told.is_write);
    // A disk that is full keeps clients' writes out, and not what another site has taken.
    let mut standing = write.standing;
    standing.version += 1;
    let mut bytes = Vec::new();
    PeerMessage::Copy(TimerCopy { standing, ..write }).encode(&mut bytes);
    let mut other = Here::new();
    assert_eq!(other.id, here.id);
    other.shard.write_refusal = Some(Refusal::JournalFull);
    other.shard.take_later(now(0), &bytes, &mut Outbox::default());
    let held = other.shard.records.get(other.slot());
    assert_eq!((held.version, other.shard.full_at), (Version(standing.version), None));
}

#[test]
fn a_site_comes_before_another_by_its_place_among_those_of_the_timer() {
    let here = Here::new();
    let placement = *here.shard.records.placement_of(here.shard.records.get(here.slot()));
    let (own, other) = (here.view.local_site(), here.question(0).site);
    assert!(is_before(&placement, other, own) && !is_before(&placement, own, other));
    let of_none = Placement { sites: Sites::new(), ..placement };
    assert!(!is_before(&of_none, other, own), "neither is one of the timer");
}

/// It may have told this site alone, if the two others were cut from each other.
#[test]
fn when_a_site_dies_the_others_are_offered_what_this_one_holds() {
    let mut here = Here::of((2, 2), &[("site2", "10.2.0.1:7253"), ("site3", "10.3.0.1:7253")]);
    let [dead, other] = here.view.connected_sites().iter().collect::<Vec<_>>()[..] else {
        panic!("two other sites")
    };
    let offered = |here: &mut Here, ms: u64| {
        let (ms, mut outbox) = (10 * ms, Outbox::default());
        (0..10).for_each(|tick| here.shard.tick(now(ms + tick), &mut outbox));
        let offers = outbox.to_peers.iter();
        let offers = offers.filter(|sent| matches!(sent.purpose, Purpose::Offer { .. }));
        offers.map(|sent| sent.peer).collect::<Vec<_>>()
    };
    assert!(offered(&mut here, 1).is_empty());
    here.believe(dead, Liveness::Suspect);
    assert!(offered(&mut here, 2).is_empty());
    here.believe(dead, Liveness::Dead);
    assert_eq!(offered(&mut here, 3), [other]);
    here.believe(dead, Liveness::Dead);
    assert!(offered(&mut here, 4).is_empty());
}

/// A node of this site that was not to hold the timer may keep an end for those that are away.
#[test]
fn any_node_of_a_site_is_asked_about_a_timer_that_another_site_holds_too() {
    let here = Here::of((4, 1), &[("site2", "10.2.0.1:7253")]);
    let record = *here.shard.records.get(here.slot());
    let asked = here.shard.whom_to_ask(now(0).mono.tick_floor(), &record, true);
    let others = here.view.connected_nodes().without(here.shard.peers.own());
    assert_eq!(others.len(), 3);
    assert!(others.minus(asked).is_empty(), "{asked:?}");
}

/// The timer as if the other site came before this one.
fn behind() -> (Here, Record, u64) {
    let mut here = Here::new();
    let slot = here.slot();
    let placement = *here.shard.records.placement_of(here.shard.records.get(slot));
    let sites: Sites = [here.question(0).site, here.view.local_site()].into_iter().collect();
    here.shard.place(slot, &Placement { sites, sites_ahead: 1, ..placement });
    let record = *here.shard.records.get(slot);
    let delay_ms = here.shard.records.placement_of(&record).delay_of_sites_ms();
    (here, record, 10_000 + delay_ms)
}

#[test]
fn a_site_comes_before_this_one_when_the_turn_of_this_one_has_come() {
    let (mut here, record, turn_ms) = behind();
    let site = PeerSet::EMPTY.with(here.site());
    let before = |here: &Here, ms| here.shard.sites_before(now(ms).mono.tick_floor(), &record);
    assert_eq!(before(&here, turn_ms - 1), PeerSet::EMPTY);
    assert_eq!(before(&here, turn_ms), site);
    here.believe(here.site(), Liveness::Dead);
    assert_eq!(before(&here, turn_ms), PeerSet::EMPTY);
}

/// Another rank has told of the pop before the turn of this site.
#[test]
fn the_sites_before_are_asked_once_when_the_turn_of_this_one_has_come() {
    let (mut here, record, _) = behind();
    let turn_ms = here.shard.records.pops_at(&record).0 - START_MS;
    let (sibling, site) = (here.only_sibling(), here.site());
    let tick = |here: &mut Here, ms| {
        let mut outbox = Outbox::default();
        here.shard.tick(now(ms), &mut outbox);
        let mut asked = outbox.to_peers.iter().filter(|message| message.peer == site);
        asked.any(|message| matches!(message.purpose, Purpose::Question { .. }))
    };
    for ms in (0..turn_ms).step_by(100) {
        tick(&mut here, ms);
    }
    let told_at = now(turn_ms - 1).mono.tick_floor();
    let told = Question { told: sibling, ..Question::new(record.key(), sibling, told_at) };
    here.shard.questions.open.insert(here.id.0, told);
    assert!(tick(&mut here, turn_ms));
    let waiting = |here: &Here| here.shard.questions.open[&here.id.0].waiting;
    assert_eq!(waiting(&here), sibling.with(site));
    let asked = (here.id, here.shard.questions.life);
    let says = Some(PeerResult::Held);
    here.shard.question_result(now(turn_ms), site, asked, says, &mut Outbox::default());
    for ms in (turn_ms..turn_ms + 3_000).step_by(100) {
        assert!(!tick(&mut here, ms), "{ms}");
        assert_eq!(waiting(&here), sibling, "{ms}");
    }
}

#[test]
fn who_holds_a_later_state_tells_it_without_a_look_at_other_nodes() {
    let mut here = Here::new();
    let slot = here.slot();
    let placement = *here.shard.records.placement_of(here.shard.records.get(slot));
    here.shard.records.catch_up(&here.shard.peers, now(0).mono.tick_floor(), slot, 3, &placement);
    for (pops, is_told) in [(-1, true), (0, false)] {
        let (asked, mut outbox) = (here.question(pops), Outbox::default());
        let answer = here.shard.compare(now(0), FROM, asked, &mut outbox);
        assert_eq!((answer.is_some(), outbox.to_peers.is_empty()), (is_told, is_told), "{pops}");
    }
}
