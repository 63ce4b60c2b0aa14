//! Pages over more timers than a window holds, and of timers that are large; large timers that a
//! peer fetches.

use std::sync::Arc;

use crate::base::ids::{NodeHash, ShardIndex, TimerId};
use crate::base::ranked::Sites;
use crate::base::time::{MonoNs, Now, TICK_NS, Tick, WallMs};
use crate::cluster::view::{Membership, PeerKind, View};
use crate::shard::Shard;
use crate::shard::collect::PART_BYTES_MAX;
use crate::shard::effects::{
    Answer, Event, Internal, Outbox, PageAsk, PagePart, PagePlace, PeerTicket, Request,
};
use crate::shard::harness_tests::{FROM, config};
use crate::shard::parts::collect::WINDOW_MAX;
use crate::shard::records::Next;
use crate::timer::definition::encode_content;
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerResult, Standing, TimerCopy, decode_message, decode_result,
};
use crate::wire::resync_json::Reference;

const NOW_MS: u64 = 1_000_000;
const NOW: Now = Now { mono: MonoNs(NOW_MS * TICK_NS), wall: WallMs(NOW_MS) };
/// Somewhat more than a window, with a row of equal dues across its end.
const TIMERS: u64 = 110_000;

struct Fixture {
    shard: Shard,
    view: Arc<View>,
}

impl Fixture {
    fn new() -> Self {
        let membership = Membership {
            localhost: "a".into(),
            nodes: vec!["a".into(), "b".into(), "c".into()],
            ..Membership::default()
        };
        let view = Arc::new(View::build(None, &membership).expect("a good configuration"));
        Self { shard: Shard::new(config(view.clone(), 1), NOW), view }
    }

    fn node(&self, name: &str) -> NodeHash {
        let peer = self.view.node_named(name).expect("a member");
        match self.view.peers()[peer.index()].kind {
            PeerKind::Node(node) => node,
            PeerKind::Site(_) => unreachable!("it is a node"),
        }
    }

    fn handle(&mut self, request: Request<'_>) -> Option<Answer> {
        let mut outbox = Outbox::default();
        self.shard.handle(NOW, Event::Request { from: FROM, request }, &mut outbox);
        outbox.replies.pop().map(|reply| reply.answer)
    }

    fn merge(&mut self, id: u64, due_ms: u64) {
        self.merge_with(id, due_ms, b"");
    }

    fn merge_with(&mut self, id: u64, due_ms: u64, opaque: &[u8]) {
        let mut content = Vec::new();
        encode_content("/pop", &[], opaque, &mut content);
        let id = TimerId(id);
        // The nodes that hold the timers are not those that are to hold them.
        let replicas = [self.node("a")].into_iter().collect();
        let standing = Standing { id, version: 1 << 22, sequence: 0, actives: 1, list_digest: 0 };
        let copy = TimerCopy {
            standing,
            is_write: false,
            replicas,
            factor: 2,
            sites: Sites::new(),
            start_ms: NOW_MS,
            interval_ms: due_ms - NOW_MS,
            repeat_for_ms: due_ms - NOW_MS,
            body: Some(CopyBody { authority: "host:80", content: &content }),
        };
        assert!(matches!(self.handle(Request::Merge(copy)), Some(Answer::Done { .. })));
    }

    /// A part, and the ticks that the shard took for it.
    fn part(&mut self, node: NodeHash, from: PagePlace, count: u32) -> (PagePart, u64) {
        let is_fresh = from == (Tick(0), TimerId(0));
        let mut answer = self.handle(Request::Collect(PageAsk { node, from, count, is_fresh }));
        let mut ticks = 0;
        loop {
            match answer {
                Some(Answer::Internal(part)) => match *part {
                    Internal::Part(part) => return (part, ticks),
                    other => panic!("{other:?}"),
                },
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            assert_eq!(self.shard.next_wake(), Some(Tick(0)), "there is work");
            let mut outbox = Outbox::default();
            self.shard.collect(NOW, &mut outbox);
            answer = outbox.replies.pop().map(|reply| reply.answer);
            ticks += 1;
            assert!(ticks < 1_000, "it does not end");
        }
    }
}

#[test]
fn pages_bring_all_in_order_over_several_windows() {
    let mut fixture = Fixture::new();
    let node = fixture.node("b");
    let mut wanted = Vec::new();
    for id in 1..=TIMERS {
        // A quarter is due in one millisecond.
        let due_ms = NOW_MS + 3_600_000 + if id % 4 == 0 { 50_000 } else { id * 7 % 100_000 };
        fixture.merge(id, due_ms);
        let list = fixture.view.place(TimerId(id), 2, fixture.view.new_nodes());
        if list.contains(node) {
            wanted.push((Tick(due_ms), TimerId(id)));
        }
    }
    wanted.sort_unstable();
    assert!(wanted.len() > WINDOW_MAX, "two of three nodes hold each timer");
    let (mut from, mut seen, mut longest) = ((Tick(0), TimerId(0)), Vec::new(), 0);
    loop {
        let (part, ticks) = fixture.part(node, from, 1_000);
        longest = longest.max(ticks);
        for timer in &part.timers {
            let Ok(PeerMessage::Copy(copy)) = decode_message(&mut &timer.copy[..]) else {
                panic!("no copy")
            };
            assert_eq!(copy.standing.id, timer.place.1);
            assert!(copy.replicas.contains(node) && copy.replicas.len() == 2);
            assert_eq!(copy.standing.actives, 0b11, "all act");
            assert_eq!(timer.former.as_slice(), [fixture.node("a")]);
            seen.push(timer.place);
        }
        let Some(&(due, id)) = seen.last() else { panic!("no timers") };
        if !part.has_more {
            break;
        }
        assert_eq!(part.timers.len(), 1_000);
        from = (due, TimerId(id.0 + 1));
    }
    assert_eq!(seen, wanted);
    // All records are looked at for a window, in portions.
    assert!(longest >= TIMERS / 1_024, "{longest} ticks");
    assert_ne!(fixture.shard.next_wake(), Some(Tick(0)), "no work is left");
}

#[test]
fn what_changes_after_a_window_was_made_is_told_as_it_is_or_left_out() {
    let mut fixture = Fixture::new();
    let node = fixture.node("b");
    let is_for = |fixture: &Fixture, id: &u64| {
        fixture.view.place(TimerId(*id), 2, fixture.view.new_nodes()).contains(node)
    };
    let ids: Vec<u64> = (1..).filter(|id| is_for(&fixture, id)).take(4).collect();
    for (place, id) in ids.iter().enumerate() {
        fixture.merge(*id, NOW_MS + 5_000_000 + place as u64);
    }
    let (part, _) = fixture.part(node, (Tick(0), TimerId(0)), 1);
    assert_eq!((part.timers.len(), part.has_more), (1, true));
    // One timer ends meanwhile.
    let ended = TimerCopy {
        standing: Standing {
            id: TimerId(ids[2]),
            version: 2 << 22,
            sequence: 0,
            actives: 1,
            list_digest: 0,
        },
        is_write: false,
        replicas: [fixture.node("a")].into_iter().collect(),
        factor: 2,
        sites: Sites::new(),
        start_ms: NOW_MS,
        interval_ms: 10_000,
        repeat_for_ms: 10_000,
        body: None,
    };
    fixture.handle(Request::Merge(ended));
    let (part, _) = fixture.part(node, (Tick(NOW_MS + 5_000_001), TimerId(0)), 10);
    let left: Vec<_> = part.timers.iter().map(|timer| timer.place.1.0).collect();
    assert_eq!((left, part.has_more), (vec![ids[1], ids[3]], false));
    // Other members: the list from before tells nothing any more.
    let membership =
        Membership { localhost: "a".into(), nodes: vec!["a".into()], ..Membership::default() };
    let view = View::build(Some(&fixture.view), &membership).expect("a good configuration");
    let mut outbox = Outbox::default();
    fixture.shard.handle(NOW, Event::View(Arc::new(view)), &mut outbox);
    let (part, _) = fixture.part(node, (Tick(1), TimerId(0)), 10);
    assert_eq!(part, PagePart::default());
}

#[test]
fn a_part_of_large_timers_ends_early_and_goes_on() {
    let mut fixture = Fixture::new();
    let node = fixture.node("b");
    let opaque = vec![b'x'; 200_000];
    for id in 1..=30 {
        fixture.merge_with(id, NOW_MS + 5_000_000 + id, &opaque);
    }
    let of_node =
        |id: &u64| fixture.view.place(TimerId(*id), 2, fixture.view.new_nodes()).contains(node);
    let wanted: Vec<u64> = (1..=30).filter(of_node).collect();
    let (mut from, mut seen) = ((Tick(0), TimerId(0)), Vec::new());
    loop {
        let (part, _) = fixture.part(node, from, 1_000);
        let bytes: usize = part.timers.iter().map(|timer| timer.copy.len()).sum();
        assert!(bytes < PART_BYTES_MAX + 201_000, "{bytes} bytes");
        seen.extend(part.timers.iter().map(|timer| timer.place.1.0));
        if !part.has_more {
            break;
        }
        let (due, id) = part.timers.last().expect("one at least").place;
        from = (due, TimerId(id.0 + 1));
    }
    assert_eq!(seen, wanted);
}

#[test]
fn a_peer_that_fetches_many_large_timers_in_one_turn_is_to_come_again() {
    let mut fixture = Fixture::new();
    fixture.merge_with(7, NOW_MS + 5_000_000, &vec![b'x'; 200_000]);
    let mut fetched = || {
        let mut outbox = Outbox::default();
        for number in 0..100 {
            let ticket = PeerTicket { shard: ShardIndex(0), connection: 0, generation: 0, number };
            let message = PeerMessage::Fetch(TimerId(7));
            let event = Event::PeerMessage { ticket, from: None, clock_offset_ns: 0, message };
            fixture.shard.handle(NOW, event, &mut outbox);
        }
        let results = outbox.peer_replies.iter().map(|reply| {
            let bytes = &outbox.peer_bytes[reply.bytes.clone()];
            decode_result(&mut &bytes[..]).expect("a result")
        });
        let found = |result: &PeerResult<'_>| matches!(result, PeerResult::Found(_));
        let (found, other): (Vec<_>, Vec<_>) = results.partition(found);
        assert!(other.iter().all(|result| *result == PeerResult::Busy));
        (found.len(), other.len())
    };
    let (found, busy) = fetched();
    assert!(found > 1 && found * 200_000 < 4 << 20, "{found} found");
    assert_eq!(found + busy, 100);
    assert_eq!(fetched().0, found, "in every turn");
}

#[test]
fn a_timer_that_is_to_be_elsewhere_is_forgotten_when_all_who_are_to_hold_it_have_it() {
    let mut fixture = Fixture::new();
    let own = fixture.node("a");
    let view = fixture.view.clone();
    let list = |id: &u64| view.place(TimerId(*id), 2, view.new_nodes());
    let elsewhere = (1..).find(|id| !list(id).contains(own)).expect("every third");
    let here = (1..).find(|id| list(id).contains(own)).expect("two of three");
    for id in [elsewhere, here] {
        fixture.merge(id, NOW_MS + 60_000);
    }
    let is_held_after = |fixture: &mut Fixture, id: u64, rank: u8| {
        let references = [Reference { id: TimerId(id), rank }];
        let answer = fixture.handle(Request::Forget(&references));
        assert!(matches!(answer, Some(Answer::Internal(_))), "{answer:?}");
        fixture.shard.find(TimerId(id)).is_some()
    };
    assert!(is_held_after(&mut fixture, elsewhere, 1), "the first rank may lack it");
    assert!(is_held_after(&mut fixture, here, 0), "it is to be here");
    assert_eq!(fixture.shard.counters().released, 0);
    assert!(!is_held_after(&mut fixture, elsewhere, 0));
    assert!(!is_held_after(&mut fixture, elsewhere, 0), "who is unknown does no harm");
    assert_eq!((fixture.shard.counters().released, fixture.shard.counters().timers), (1, 1));
    fixture.shard.audit().expect("all parts agree");
}

#[test]
fn a_timer_whose_callback_runs_is_forgotten_when_it_is_told_again() {
    let mut fixture = Fixture::new();
    let (own, view) = (fixture.node("a"), fixture.view.clone());
    let list = |id: &u64| view.place(TimerId(*id), 2, view.new_nodes());
    let id = (1..).find(|id| !list(id).contains(own)).expect("every third");
    fixture.merge(id, NOW_MS + 60_000);
    let slot = fixture.shard.find(TimerId(id)).expect("merged");
    let forget = |fixture: &mut Fixture, rank| {
        fixture.handle(Request::Forget(&[Reference { id: TimerId(id), rank }]));
        fixture.shard.find(TimerId(id)).is_none()
    };
    fixture.shard.records.transition(slot, Next::InFlight);
    assert!(!forget(&mut fixture, 0));
    fixture.shard.records.transition(slot, Next::Armed(Tick(NOW_MS + 60_000)));
    assert!(forget(&mut fixture, 1), "all have had it before");
}

/// A window ends a minute after it was used last.
#[test]
fn a_window_that_nobody_asks_for_is_given_up() {
    let mut fixture = Fixture::new();
    let node = fixture.node("b");
    fixture.merge(1, NOW_MS + 3_600_000);
    fixture.part(node, (Tick(0), TimerId(0)), 10);
    let end = Tick(NOW_MS + 60_000);
    for (at, is_kept) in [(NOW_MS, true), (NOW_MS + 59_999, true), (NOW_MS + 60_000, false)] {
        let now = Now { mono: MonoNs(at * TICK_NS), ..NOW };
        fixture.shard.collect(now, &mut Outbox::default());
        assert_eq!(fixture.shard.collect.next_wake(), is_kept.then_some(end), "{at}");
    }
}

#[test]
fn timers_on_pages_are_counted() {
    let mut fixture = Fixture::new();
    let node = fixture.node("b");
    (1..=20).for_each(|id| fixture.merge(id, NOW_MS + 3_600_000));
    for asked in 1..=2 {
        let (part, _) = fixture.part(node, (Tick(0), TimerId(0)), 5);
        assert_eq!(part.timers.len(), 5);
        assert_eq!(fixture.shard.counters().collected, asked * 5);
    }
}
