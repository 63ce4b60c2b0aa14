//! That nobody sees which part of a content lies elsewhere.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::base::ids::{Slot, TimerId};
use crate::base::ranked::Sites;
use crate::base::time::Tick;
use crate::cluster::view::View;
use crate::shard::harness_tests::{START_MS, config};
use crate::shard::parts::peers::Peers;
use crate::shard::records::commons::tests::{content, headers};
use crate::shard::records::{Outline, Placement};
use crate::timer::version::{StateKey, Version};

const AT: Tick = Tick(START_MS);

/// The records of a node alone.
struct Fixture {
    records: Records,
    peers: Peers,
}

impl Fixture {
    fn new() -> Self {
        let view = Arc::new(View::alone("node-0:7253"));
        Self { records: Records::new(&config(view.clone(), 0), AT), peers: Peers::new(view) }
    }

    fn outline(&self, id: TimerId) -> Outline {
        let view = &self.peers.view;
        let placement = Placement {
            replicas: view.place(id, 1, view.new_nodes()),
            sites: Sites::new(),
            factor: 1,
            actives: 1,
            confirmed: 0,
            own: Some(0),
            sites_ahead: 0,
        };
        let key = StateKey { version: Version(1 << 22), sequence: 0 };
        Outline { id, key, start: AT, interval_ms: 10, repeat_for_ms: 100, placement }
    }

    fn hold(&mut self, id: TimerId, content: &[u8]) -> Slot {
        let (outline, slot) = (self.outline(id), self.records.find(id));
        let authority = self.records.enter_authority("host:80");
        self.records.hold(&self.peers, AT, (&outline, slot), authority, content)
    }

    fn whole(&self, slot: Slot) -> Vec<u8> {
        self.records.whole_content_of(self.records.get(slot), &mut Vec::new()).to_vec()
    }
}

#[test]
fn a_timer_that_is_written_again_with_the_same_keeps_it_though_nobody_else_has_it() {
    let mut fixture = Fixture::new();
    let same = content(&headers(1), None, "x");
    fixture.hold(TimerId(1), &same);
    let slot = fixture.hold(TimerId(1), &same);
    assert!(fixture.records.get(slot).repeat_for.is_common());
    // Its hash is forgotten meanwhile.
    fixture.records.commons.forget_met();
    let slot = fixture.hold(TimerId(1), &same);
    assert!(fixture.records.get(slot).repeat_for.is_common());
    assert_eq!(fixture.whole(slot), same);
    assert_eq!(fixture.records.audit(&fixture.peers, 0), Ok(()));
}

#[test]
fn content_that_is_held_fits_again_where_no_byte_is_free() {
    let mut fixture = Fixture::new();
    let same = content(&headers(1), None, "x");
    fixture.hold(TimerId(1), &same);
    let slot = fixture.hold(TimerId(2), &same);
    let held = *fixture.records.get(slot);
    assert!(held.repeat_for.is_common() && (held.payload.len() as usize) < same.len());
    fixture.records.set_bytes_max(0);
    assert_eq!(fixture.records.room_for_change(&held, same.len()), Ok(()));
    assert!(fixture.records.room_for_change(&held, same.len() + 16).is_err());
}

#[test]
fn a_content_is_as_long_for_journals_as_it_was_written() {
    let mut fixture = Fixture::new();
    let mut bytes = 0;
    for id in 0..10 {
        let content = content(&headers(1), None, &"x".repeat(id as usize));
        bytes += content.len() as u64;
        fixture.hold(TimerId(id), &content);
    }
    let told = fixture.records.payload_bytes();
    assert!((bytes..bytes + 10 * 16).contains(&told), "{told} of {bytes}");
    assert!(fixture.records.payloads.used_bytes() < told as usize / 2);
}

proptest! {
    #[test]
    fn each_timer_has_the_content_that_was_written_last(
        steps in prop::collection::vec((0_u64..12, 0_u32..5, 0_u32..4), 1..200),
    ) {
        let mut fixture = Fixture::new();
        let mut model = std::collections::BTreeMap::new();
        for (id, what, set) in steps {
            let id = TimerId(id);
            match (what, fixture.records.find(id)) {
                (0, Some(slot)) if model.contains_key(&id) => {
                    fixture.records.entomb(AT, slot);
                    model.remove(&id);
                }
                (1, Some(slot)) => {
                    fixture.records.forget(AT, slot);
                    model.remove(&id);
                }
                _ => {
                    let name = format!("timer {}", id.0);
                    let lines = if set == 0 { String::new() } else { headers(set) };
                    let content = content(&lines, (what > 2).then_some(&name), &name);
                    fixture.hold(id, &content);
                    model.insert(id, content);
                }
            }
            prop_assert_eq!(fixture.records.audit(&fixture.peers, 0), Ok(()));
            for (id, content) in &model {
                let slot = fixture.records.find(*id).expect("it is held");
                prop_assert_eq!(&fixture.whole(slot), content);
                let parts = fixture.records.content_of(fixture.records.get(slot));
                let written = Content::decode(content);
                prop_assert_eq!(parts.attributes(), written.attributes());
                prop_assert_eq!(parts.opaque, written.opaque);
            }
        }
    }
}
