//! Sets of files that a restart may find.

use super::*;
use crate::base::time::WallMs;
use crate::journal::page::Stamp;

const JOURNAL: JournalId = JournalId(5);

fn opening_of(number: u64, oldest: u64, previous_blocks: u32) -> Opening {
    Opening {
        segment: SegmentNumber(number),
        journal: JOURNAL,
        stamp: Stamp::default(),
        shard: (1, 2),
        name: "here".to_owned(),
        oldest: SegmentNumber(oldest),
        blocks: 16_384,
        previous_blocks,
    }
}

fn file(number: u64, oldest: u64, previous_blocks: u32) -> Candidate {
    let opening = Some(opening_of(number, oldest, previous_blocks));
    Candidate { number: SegmentNumber(number), opening }
}

fn blank(number: u64) -> Candidate {
    Candidate { number: SegmentNumber(number), opening: None }
}

fn planned(files: Vec<Candidate>) -> Plan {
    plan(files, JOURNAL, (1, 2), "here")
}

#[test]
fn segments_are_read_in_their_order_each_with_the_length_that_the_next_one_tells() {
    let found = planned(vec![file(4, 3, 0), file(3, 1, 90), file(5, 3, 16_000), blank(6)]);
    let numbers = [3, 4, 5].map(SegmentNumber);
    let lengths = [None, Some(16_000), None];
    assert_eq!(found.segments, numbers.into_iter().zip(lengths).collect::<Vec<_>>());
    assert_eq!((found.last, found.oldest), (SegmentNumber(6), SegmentNumber(3)));
    assert_eq!(found.flaws, []);
}

#[test]
fn what_was_emptied_is_not_read() {
    let found = planned(vec![file(2, 1, 0), file(3, 1, 9), file(4, 3, 9)]);
    assert_eq!(found.segments.len(), 2);
    assert_eq!(found.flaws, []);
}

#[test]
fn a_missing_segment_is_told() {
    let found = planned(vec![file(3, 3, 9), file(5, 3, 9)]);
    assert_eq!(found.flaws, [Flaw::Missing(SegmentNumber(4))]);
    let found = planned(vec![file(5, 3, 9)]);
    let missing = [3, 4].map(|number| Flaw::Missing(SegmentNumber(number)));
    assert_eq!(found.flaws, missing);
}

#[test]
fn a_segment_without_its_first_page_is_read_as_far_as_it_can_be() {
    let found = planned(vec![file(3, 3, 0), blank(4), file(5, 3, 70)]);
    assert_eq!(found.flaws, [Flaw::Beheaded(SegmentNumber(4))]);
    assert_eq!(found.segments[1], (SegmentNumber(4), Some(70)));
}

#[test]
fn files_of_others_are_told_and_not_read() {
    let of = |change: fn(&mut Opening)| {
        let mut other = opening_of(4, 3, 0);
        change(&mut other);
        let other = Candidate { number: SegmentNumber(4), opening: Some(other) };
        let found = planned(vec![file(3, 3, 0), other, file(5, 4, 0)]);
        let Some(Flaw::Foreign(SegmentNumber(4), why)) = found.flaws.first().cloned() else {
            panic!("{:?}", found.flaws);
        };
        why
    };
    assert!(of(|opening| opening.journal = JournalId(6)).contains("journal 0000000000000006"));
    assert!(of(|opening| opening.name = "there".to_owned()).contains("node there"));
    assert!(of(|opening| opening.shard = (0, 2)).contains("shard 0 of 2"));
    assert!(of(|opening| opening.segment = SegmentNumber(8)).contains("number 8"));
}

#[test]
fn a_file_that_was_renamed_for_later_use_is_no_segment_yet() {
    let reused = Candidate { number: SegmentNumber(6), ..file(2, 1, 0) };
    let found = planned(vec![file(4, 4, 0), file(5, 4, 3), reused]);
    assert_eq!(found.segments.len(), 2);
    assert_eq!((found.flaws.len(), found.last), (0, SegmentNumber(6)));
}

#[test]
fn an_empty_directory_has_nothing() {
    assert_eq!(planned(Vec::new()), Plan::default());
    assert_eq!(planned(vec![blank(1), blank(2)]).last, SegmentNumber(2));
}

#[test]
fn the_newest_state_counts_and_its_oldest_segment_never_falls() {
    let state = |oldest, since| State {
        oldest: SegmentNumber(oldest),
        complete_since: WallMs(since),
        owed: Vec::new(),
    };
    let mut newest = Newest::default();
    for (noted, kept) in [(state(3, 9), state(3, 9)), (state(2, 7), state(3, 7))] {
        newest.note(noted);
        assert_eq!(newest.state, Some(kept));
    }
    newest.note(state(5, 8));
    assert_eq!(newest.state, Some(state(5, 8)));
}
