//! Which list each state has its slot in, and what begins and ends a record.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::base::ranked::Sites;
use crate::cluster::view::View;
use crate::shard::effects::Refusal;
use crate::shard::harness_tests::{START_MS, config, content};
use crate::shard::parts::peers::Peers;
use crate::timer::version::{StateKey, Version};

const ID: TimerId = TimerId(7);
const AT: Tick = Tick(START_MS);
/// Filed slots come due so much later.
const LATER: Tick = Tick(START_MS + 5_000);
const CONTENT: usize = 64;

/// The records of a node alone, and what it believes of its peers.
struct Fixture {
    records: Records,
    peers: Peers,
}

impl Fixture {
    fn new() -> Self {
        let view = Arc::new(View::alone("node-0:7253"));
        let records = Records::new(&config(view.clone(), 0), AT);
        Self { records, peers: Peers::new(view) }
    }

    fn outline(&self, id: TimerId, sequence: u64, factor: u8) -> Outline {
        let view = &self.peers.view;
        Outline {
            id,
            key: StateKey { version: Version(1 << 22), sequence },
            start: AT,
            interval_ms: 10_000,
            repeat_for_ms: 100_000,
            placement: Placement {
                replicas: view.place(id, factor, view.new_nodes()),
                sites: Sites::new(),
                factor,
                actives: 1,
                confirmed: 0,
                own: Some(0),
                sites_ahead: 0,
            },
        }
    }

    fn hold(&mut self, id: TimerId) -> Slot {
        let outline = self.outline(id, 0, 1);
        let authority = self.records.enter_authority("host:80");
        let slot = self.records.find(outline.id);
        self.records.hold(&self.peers, AT, (&outline, slot), authority, &content())
    }

    fn bury(&mut self, outline: &Outline) -> Slot {
        self.records.bury(AT, outline, self.records.find(outline.id))
    }

    fn host(&mut self, slot: Slot) -> HostId {
        let authority = self.records.get(slot).authority;
        let host = self.records.hosts_mut().admit(authority, AT, &mut Vec::new());
        host.expect("there are lanes")
    }

    /// Every next state of a timer.
    fn nexts(&mut self, slot: Slot) -> [Next; 5] {
        let host = self.host(slot);
        [
            Next::Armed(LATER),
            Next::Ready(host),
            Next::InFlight,
            Next::BackingOff(LATER),
            Next::HandedOver(LATER),
        ]
    }

    /// Whether the slot is where its state says, and nothing else has changed.
    fn is_in_its_list(&self, slot: Slot) -> bool {
        let Records { links, counts, .. } = &self.records;
        let found = (links.is_in_wheel(slot), links.is_in_fifo(slot), counts.waiting);
        let expected = match self.records.get(slot).state {
            State::Ready => (false, true, 1),
            State::InFlight => (false, false, 0),
            _ => (true, false, 0),
        };
        found == expected && self.records.audit(&self.peers, 0) == Ok(())
    }
}

#[test]
fn every_transition_takes_a_slot_out_of_its_list_and_into_that_of_the_next_state() {
    let mut fixture = Fixture::new();
    let slot = fixture.hold(ID);
    assert!(fixture.is_in_its_list(slot), "it begins in the wheel");
    let nexts = fixture.nexts(slot);
    for first in nexts {
        for second in nexts {
            for comes_out_before in [false, true] {
                fixture.records.transition(slot, first);
                assert!(fixture.is_in_its_list(slot), "{first:?}");
                if comes_out_before {
                    fixture.records.take_out(slot);
                    assert!(!fixture.records.links.is_linked(slot));
                }
                fixture.records.transition(slot, second);
                assert!(fixture.is_in_its_list(slot), "{first:?} {second:?} {comes_out_before}");
            }
        }
    }
}

#[test]
fn a_slot_that_is_filed_comes_due_when_its_transition_says() {
    let mut fixture = Fixture::new();
    let slot = fixture.hold(ID);
    for (next, due) in [
        (Next::Armed(LATER), LATER),
        (Next::BackingOff(LATER + 7), LATER + 7),
        (Next::HandedOver(LATER + 9), LATER + 9),
    ] {
        fixture.records.transition(slot, next);
        assert_eq!(fixture.records.filed_at(slot), due);
        let mut came_due = Vec::new();
        fixture.records.come_due(Tick(due.0 - 1), 10, &mut came_due);
        assert_eq!(came_due, [], "{next:?} is not early");
    }
    fixture.records.rearm(slot, LATER + 12);
    let mut came_due = Vec::new();
    fixture.records.come_due(LATER + 12, 10, &mut came_due);
    assert_eq!(came_due, [slot]);
    assert_eq!(fixture.records.get(slot).state, State::HandedOver, "its state stays");
    assert!(!fixture.records.links.is_linked(slot));
}

#[test]
fn pops_leave_the_list_of_their_host_in_the_order_in_which_they_came() {
    let mut fixture = Fixture::new();
    let slots = [1, 2, 3].map(|id| fixture.hold(TimerId(id)));
    let host = fixture.host(slots[0]);
    slots.into_iter().for_each(|slot| fixture.records.transition(slot, Next::Ready(host)));
    assert_eq!(fixture.records.oldest_waiting(), Some(AT + 10_000));
    fixture.records.transition(slots[1], Next::Armed(LATER));
    for expected in [Some(slots[0]), Some(slots[2]), None] {
        let found = fixture.records.next_waiting(host);
        assert_eq!(found, expected);
        found.into_iter().for_each(|slot| fixture.records.transition(slot, Next::InFlight));
    }
    assert_eq!(fixture.records.counts(), Counts { timers: 3, tombstones: 0, waiting: 0 });
}

#[test]
#[should_panic(expected = "a tombstone has given back what a timer holds")]
fn no_transition_makes_a_tombstone_of_a_timer() {
    let mut fixture = Fixture::new();
    let slot = fixture.hold(ID);
    fixture.records.transition(slot, Next::Tombstone(LATER));
}

#[test]
#[should_panic(expected = "a tombstone has given back what a timer holds")]
fn no_transition_makes_a_timer_of_a_tombstone() {
    let mut fixture = Fixture::new();
    let outline = fixture.outline(ID, 0, 1);
    let slot = fixture.bury(&outline);
    fixture.records.transition(slot, Next::Armed(LATER));
}

#[test]
fn a_record_is_replaced_buried_and_forgotten_from_whichever_list_it_is_in() {
    for state in 0..5 {
        for end in 0..4 {
            let mut fixture = Fixture::new();
            let slot = fixture.hold(ID);
            let next = fixture.nexts(slot)[state];
            fixture.records.transition(slot, next);
            let outline = fixture.outline(ID, 0, 1);
            match end {
                0 => assert_eq!(fixture.hold(ID), slot),
                1 => assert_eq!(fixture.bury(&outline), slot),
                2 => fixture.records.entomb(AT, slot),
                _ => fixture.records.forget(AT, slot),
            }
            assert_eq!(fixture.records.audit(&fixture.peers, 0), Ok(()), "{next:?} {end}");
            let [timers, tombstones] = [[1, 0], [0, 1], [0, 1], [0, 0]][end];
            let counts = Counts { timers, tombstones, waiting: 0 };
            assert_eq!(fixture.records.counts(), counts, "{next:?} {end}");
            assert_eq!(fixture.records.find(ID).is_some(), end < 3, "{next:?} {end}");
            let is_filed = fixture.records.wheel.len() == timers + tombstones;
            assert!(is_filed, "what is held is in the wheel: {next:?} {end}");
        }
    }
}

#[test]
fn a_record_gives_back_with_its_end_all_that_it_named() {
    let mut fixture = Fixture::new();
    let slot = fixture.hold(ID);
    let used_bytes = fixture.records.payloads.used_bytes();
    assert_eq!((fixture.records.hosts().known(), fixture.records.tags().present("CALL")), (1, 3));
    let record = fixture.records.get(slot);
    assert_eq!(fixture.records.whole_content_of(record, &mut Vec::new()), content());
    assert_eq!(fixture.records.authority_of(fixture.records.get(slot)), "host:80");
    fixture.records.entomb(AT, slot);
    assert!(fixture.records.payloads.used_bytes() < used_bytes);
    assert_eq!((fixture.records.hosts().known(), fixture.records.tags().present("CALL")), (0, 0));
    assert_eq!(fixture.records.placements.timers(), 1, "a tombstone has its holders");
    fixture.records.forget(AT, slot);
    assert_eq!((fixture.records.placements.timers(), fixture.records.slab.len()), (0, 0));
    assert_eq!((fixture.records.find(ID), fixture.records.contains(slot)), (None, false));
}

#[test]
fn a_tombstone_stays_for_the_longer_of_two_intervals() {
    for (held_ms, told_ms) in [(20_000, 70_000), (70_000, 20_000)] {
        let mut fixture = Fixture::new();
        let authority = fixture.records.enter_authority("host:80");
        let held = Outline { interval_ms: held_ms, ..fixture.outline(ID, 0, 1) };
        fixture.records.hold(&fixture.peers, AT, (&held, None), authority, &content());
        let told = Outline { interval_ms: told_ms, ..held };
        let slot = fixture.bury(&told);
        assert_eq!(fixture.records.get(slot).interval_ms, 70_000);
        let until = AT + fixture.records.tombstone_ms(70_000);
        assert_eq!(fixture.records.filed_at(slot), until);
    }
}

#[test]
fn attempts_are_counted_up_to_the_next_pop() {
    let mut fixture = Fixture::new();
    let slot = fixture.hold(ID);
    let failed = (0..300).map(|_| fixture.records.fail(slot).attempts).max();
    assert_eq!(failed, Some(u8::MAX), "the count stops at its largest");
    let record = fixture.records.reach(slot, 4);
    assert_eq!((record.sequence, record.attempts, record.due()), (4, 0, AT + 50_000));
}

#[test]
fn a_timer_catches_up_with_pops_of_other_ranks_and_ends_with_the_last() {
    for (sequence, is_live) in [(4, true), (9, true), (10, false)] {
        for state in 0..5 {
            let mut fixture = Fixture::new();
            let slot = fixture.hold(ID);
            let next = fixture.nexts(slot)[state];
            fixture.records.transition(slot, next);
            fixture.records.fail(slot);
            let placement = fixture.outline(ID, 0, 2).placement;
            let Fixture { records, peers } = &mut fixture;
            records.catch_up(peers, AT, slot, sequence, &placement);
            let record = *records.get(slot);
            assert_eq!((record.is_live(), record.sequence), (is_live, sequence), "{next:?}");
            assert_eq!(*records.placement_of(&record), placement);
            if is_live {
                assert_eq!((record.state, record.attempts), (State::Armed, 0), "{next:?}");
                assert_eq!(records.filed_at(slot), record.due(), "{next:?}");
            }
            assert!(fixture.is_in_its_list(slot), "{next:?}");
        }
    }
}

#[test]
fn bytes_are_those_of_all_parts() {
    let mut fixture = Fixture::new();
    (0..10).for_each(|id| _ = fixture.hold(TimerId(id)));
    let records = &fixture.records;
    let parts = [
        records.slab.bytes(),
        records.links.bytes(),
        records.wheel.bytes(),
        records.index.bytes(),
        records.hosts.bytes(),
        records.placements.bytes(),
        records.payloads.used_bytes(),
    ];
    assert!(parts.iter().all(|bytes| *bytes > 16), "{parts:?}");
    assert_eq!(records.bytes(), parts.iter().sum::<usize>() as u64);
    assert_eq!(records.hosts.len(), 0, "no host has a lane before a pop is due");
}

#[test]
fn there_is_room_up_to_the_bound_and_for_what_takes_no_more() {
    let mut fixture = Fixture::new();
    let slot = fixture.hold(ID);
    let held = *fixture.records.get(slot);
    let length = content().len();
    assert_eq!(fixture.records.room(length), Ok(()));
    fixture.records.set_records_max(1);
    assert_eq!(fixture.records.room(0), Err(Refusal::TimersFull));
    fixture.records.set_records_max(2);
    fixture.records.set_bytes_max(fixture.records.bytes());
    assert_eq!(fixture.records.room(length), Err(Refusal::BytesFull));
    assert_eq!(fixture.records.room_for_change(&held, length), Ok(()));
    let more = fixture.records.room_for_change(&held, length + CONTENT);
    assert_eq!(more, Err(Refusal::BytesFull));
}

proptest! {
    /// Timers are written, moved, buried and forgotten in any order; after each step all parts
    /// agree.
    #[test]
    fn all_parts_agree_after_any_steps(
        steps in prop::collection::vec((0_u8..9, 0_u64..6, 0_usize..5, 0_u64..12), 1..80)
    ) {
        let mut fixture = Fixture::new();
        for (step, id, state, sequence) in steps {
            let id = TimerId(id);
            let outline = fixture.outline(id, sequence, 1 + sequence as u8 % 2);
            let found = fixture.records.find(id);
            let live = found.filter(|slot| fixture.records.get(*slot).is_live());
            match (step, found, live) {
                (0, ..) => _ = fixture.hold(id),
                (1, ..) => _ = fixture.bury(&outline),
                (2, Some(slot), _) => fixture.records.forget(AT, slot),
                (3, _, Some(slot)) => fixture.records.entomb(AT, slot),
                (4, Some(slot), _) => {
                    let Fixture { records, peers } = &mut fixture;
                    records.place(peers, AT, slot, &outline.placement);
                }
                (5, _, Some(slot)) => {
                    let Fixture { records, peers } = &mut fixture;
                    records.catch_up(peers, AT, slot, sequence, &outline.placement);
                }
                (6, _, Some(slot)) => _ = fixture.records.fail(slot),
                (_, _, Some(slot)) => {
                    let next = fixture.nexts(slot)[state];
                    if step == 7 {
                        fixture.records.take_out(slot);
                    }
                    fixture.records.transition(slot, next);
                }
                _ => {}
            }
            prop_assert_eq!(fixture.records.audit(&fixture.peers, 0), Ok(()));
        }
    }
}
