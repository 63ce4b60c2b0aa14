use proptest::prelude::*;

use super::*;
use crate::base::ids::NodeHash;
use crate::base::ranked::Sites;
use crate::wire::peer_message::{CopyBody, Standing};

#[test]
fn every_id_has_its_own_place() {
    for id in [0, 1, u64::MAX, 0x687e_bc01_f940_0001, PLACES] {
        assert_eq!(Place::of(TimerId(id)).id(), TimerId(id));
    }
    assert_eq!(Place(u64::MAX).next(), None);
    assert_eq!(Place(7).next(), Some(Place(8)));
}

fn ask<'a>(tag: Option<&'a str>, host: Option<&'a str>, due: [Option<u64>; 2]) -> ListAsk<'a> {
    let [due_after, due_before] = due.map(|at| at.map(WallMs));
    let filter = Filter { states: 0b101, tag, host, due_after, due_before };
    ListAsk { walk: 3, from: Place(9), limit: 1_000, filter }
}

fn encoded(ask: &ListAsk<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ask.encode(&mut bytes);
    bytes
}

#[test]
fn questions_come_back_as_they_were() {
    for tag in [None, Some("CALL")] {
        for host in [None, Some("10.0.0.1:80")] {
            for due in [[None, None], [Some(0), None], [None, Some(u64::MAX)], [Some(1), Some(2)]] {
                let ask = ask(tag, host, due);
                let bytes = encoded(&ask);
                assert_eq!(ListAsk::decode(&bytes), Ok(ask));
                for end in 0..bytes.len() {
                    assert!(ListAsk::decode(&bytes[..end]).is_err(), "cut off at {end}");
                }
                assert!(ListAsk::decode(&[&bytes[..], &[0]].concat()).is_err());
            }
        }
    }
}

#[test]
fn questions_beyond_their_limits_are_refused() {
    let good = ask(None, None, [None, None]);
    let long = "t".repeat(TAG_BYTES_MAX + 1);
    for bad in [
        ListAsk { limit: 0, ..good },
        ListAsk { limit: 1_001, ..good },
        ListAsk { filter: Filter { states: 0, ..good.filter }, ..good },
        ListAsk { filter: Filter { states: 0x40, ..good.filter }, ..good },
        ListAsk { filter: Filter { tag: Some(&long), ..good.filter }, ..good },
    ] {
        assert!(ListAsk::decode(&encoded(&bad)).is_err(), "{bad:?}");
    }
}

fn content() -> Vec<u8> {
    let mut content = Vec::new();
    // Lengths of target and tags, target, count and length of the tag, tag, opaque.
    for piece in [&[2, 0, 9, 0][..], b"/a", &[2, 0, 0, 0, 4], b"CALL", b"opaque"] {
        content.extend_from_slice(piece);
    }
    content
}

fn copy(content: &[u8]) -> TimerCopy<'_> {
    let replicas: crate::base::ranked::Replicas = [NodeHash(1), NodeHash(2)].into_iter().collect();
    TimerCopy {
        standing: Standing {
            id: TimerId(5),
            version: 6,
            sequence: 7,
            actives: 3,
            list_digest: replicas.digest(),
        },
        is_write: false,
        replicas,
        factor: 2,
        sites: Sites::new(),
        start_ms: 100,
        interval_ms: 10,
        repeat_for_ms: 1_000,
        body: Some(CopyBody { authority: "h:1", content }),
    }
}

#[test]
fn a_part_comes_back_as_it_was() {
    let content = content();
    let mut bytes = Vec::new();
    begin_part(&mut bytes);
    let listed = |state, is_first, due_in_ms| {
        let copy = copy(&content);
        ListedCopy { state, is_first, due_in_ms, copy }
    };
    let all = [
        listed(ListedState::Armed, true, 0),
        listed(ListedState::HandedOver, false, -5),
        listed(ListedState::InFlight, true, i64::MAX),
        listed(ListedState::Ready, true, i64::MIN),
    ];
    all.iter().for_each(|listed| write_listed(listed, &mut bytes));
    let (shards, departures, until) = (3, u32::MAX, Place(u64::MAX));
    let head = PartHead { is_done: true, is_starved: false, shards, departures, until };
    end_part(&mut bytes, &head);
    let mut input = &bytes[..];
    assert_eq!(read_part(&mut input), Ok(head));
    for listed in all {
        assert_eq!(read_listed(&mut input), Ok(listed));
    }
    assert!(input.is_empty());
}

#[test]
fn a_tombstone_is_no_timer_of_a_list() {
    let mut bytes = Vec::new();
    let copy = TimerCopy { body: None, ..copy(&[]) };
    let listed = ListedCopy { state: ListedState::Armed, is_first: true, due_in_ms: 1, copy };
    write_listed(&listed, &mut bytes);
    assert!(read_listed(&mut &bytes[..]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = ListAsk::decode(&bytes);
        let mut input = &bytes[..];
        if read_part(&mut input).is_ok() {
            while !input.is_empty() && read_listed(&mut input).is_ok() {}
        }
    }

    #[test]
    fn places_lead_back_to_ids(id in any::<u64>()) {
        prop_assert_eq!(Place::of(TimerId(id)).id(), TimerId(id));
    }
}
