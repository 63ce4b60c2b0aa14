//! When a writer takes more, where what it takes goes, and what it tells of its writes.

use super::*;
use crate::base::time::{MonoNs, WallMs};
use crate::journal::entry::tests::{content, timer};

const SIZES: Sizes = Sizes { segment_blocks: 8, batch_bytes: 2 * BLOCK_BYTES };

fn writer() -> Writer {
    let owner = Owner { journal: JournalId(7), name: "a".to_owned(), shard: 0, shards: 1 };
    let found = Continuation { last: SegmentNumber(4), writes: 9 };
    Writer::new(owner, SIZES, State::default(), found)
}

fn prepare(writer: &mut Writer) {
    let segment = writer.wants_segment().expect("it wants one");
    writer.prepared(segment);
}

fn append(writer: &mut Writer, bytes: usize) {
    let content = content(&vec![b'o'; bytes]);
    writer.append(&Entry::Timer(timer(1, 0, Some(&content))));
}

fn stamp(at: u64) -> Stamp {
    Stamp { boot: 1, mono: MonoNs(at), wall: WallMs(at) }
}

/// Writes all that waits. Returns where it goes: segment, first block, blocks.
fn write(writer: &mut Writer) -> (u64, usize, usize) {
    writer.begin_write(stamp(1));
    let piece = writer.next_piece().expect("a write has begun");
    let (at, blocks) = (piece.offset as usize / BLOCK_BYTES, piece.bytes.len() / BLOCK_BYTES);
    let segment = piece.segment.0;
    assert!(writer.next_piece().is_none(), "one piece is with the disk at a time");
    assert!(writer.piece_written(), "it was short");
    (segment, at, blocks)
}

#[test]
fn two_segments_are_made_ahead_one_at_a_time() {
    let mut writer = writer();
    assert_eq!(writer.wants_segment(), Some(SegmentNumber(5)));
    assert_eq!(writer.wants_segment(), None, "it is being made");
    writer.not_prepared();
    assert_eq!(writer.wants_segment(), Some(SegmentNumber(5)), "it could not be made before");
    writer.prepared(SegmentNumber(5));
    assert_eq!(writer.spares(), 1);
    prepare(&mut writer);
    assert_eq!((writer.spares(), writer.wants_segment()), (2, None));
}

#[test]
fn nothing_is_taken_for_which_there_is_no_segment() {
    let mut writer = writer();
    assert!(!writer.takes(0) && !writer.takes_state() && !writer.takes_much());
    assert!(!writer.has_work() && !writer.has_segment() && !writer.lacks_segment());
    append(&mut writer, 10);
    assert!(writer.has_work() && writer.lacks_segment());
    writer.begin_write(stamp(1));
    assert!(!writer.is_writing(), "there is no segment to write to");
    prepare(&mut writer);
    assert!(writer.takes_much() && writer.takes_state() && writer.has_segment());
    assert!(!writer.lacks_segment());
    assert_eq!(write(&mut writer), (5, 0, 2), "a head, and what waited");
    assert!(!writer.lacks_segment() && writer.has_segment());
}

#[test]
fn the_last_blocks_of_the_last_segment_are_for_states() {
    let mut writer = writer();
    prepare(&mut writer);
    append(&mut writer, 10);
    assert_eq!(write(&mut writer), (5, 0, 2));
    // Six blocks are left, two of them for states.
    assert!(writer.takes(4 * BLOCK_BYTES) && !writer.takes(4 * BLOCK_BYTES + 1));
    append(&mut writer, 10);
    assert!(writer.takes(3 * BLOCK_BYTES) && !writer.takes(3 * BLOCK_BYTES + 1));
    for block in 2..7 {
        assert_eq!(write(&mut writer), (5, block, 1));
        append(&mut writer, 10);
    }
    // What waits takes the last one.
    assert!(!writer.takes(1) && !writer.takes_state() && writer.has_segment());
    assert_eq!(write(&mut writer), (5, 7, 1));
    append(&mut writer, 10);
    assert!(writer.lacks_segment() && !writer.takes_state());
    prepare(&mut writer);
    assert!(writer.takes_state() && writer.takes_much());
    assert_eq!(write(&mut writer), (6, 0, 2));
}

#[test]
fn a_state_has_its_place_in_the_last_block() {
    let mut writer = writer();
    prepare(&mut writer);
    append(&mut writer, 10);
    write(&mut writer);
    for _ in 2..7 {
        append(&mut writer, 10);
        write(&mut writer);
    }
    assert!(writer.takes_state() && !writer.takes(1));
}

#[test]
fn a_batch_that_is_full_takes_no_more() {
    let mut writer = writer();
    assert!(writer.has_room());
    append(&mut writer, 10);
    assert!(writer.has_room(), "there is room for more of them");
    write_to_new(&mut writer);
    // An entry longer than a block has its own page, of whole blocks.
    append(&mut writer, BLOCK_BYTES);
    assert!(!writer.has_room(), "two blocks are a batch");
    append(&mut writer, BLOCK_BYTES);
    assert!(!writer.has_room());
}

fn write_to_new(writer: &mut Writer) {
    prepare(writer);
    write(writer);
}

#[test]
fn short_entries_share_a_block() {
    let mut writer = writer();
    prepare(&mut writer);
    append(&mut writer, 10);
    write(&mut writer);
    (0..4).for_each(|_| append(&mut writer, 1_500));
    assert_eq!(write(&mut writer), (5, 2, 2), "two in each");
    append(&mut writer, 10);
    append(&mut writer, BLOCK_BYTES);
    append(&mut writer, 10);
    assert_eq!(write(&mut writer), (5, 4, 4), "one, two, and one");
}

#[test]
fn writes_are_numbered_counted_and_told_while_they_last() {
    let mut writer = writer();
    prepare(&mut writer);
    assert_eq!((writer.durable_write(), writer.segment()), (9, SegmentNumber(4)));
    append(&mut writer, 10);
    let state = State { oldest: SegmentNumber(3), ..State::default() };
    assert_eq!(writer.append_state(state.clone()), 10, "the write that is to come");
    assert_eq!(writer.state(), &state);
    writer.cover(Position(2));
    assert_eq!((writer.is_writing(), writer.writing_since()), (false, None));
    writer.begin_write(stamp(5));
    assert_eq!((writer.is_writing(), writer.writing_since()), (true, Some(stamp(5))));
    assert_eq!((writer.durable_write(), writer.durable()), (9, Position(0)));
    assert_eq!(writer.append_state(state), 11, "the next one");
    writer.cover(Position(3));
    assert!(writer.next_piece().is_some() && writer.piece_written());
    assert_eq!((writer.is_writing(), writer.writing_since()), (false, None));
    assert_eq!((writer.durable_write(), writer.durable()), (10, Position(2)));
    let bytes = 2 * BLOCK_BYTES as u64;
    // The head and its state, the timer and its state.
    assert_eq!(writer.written(), Written { writes: 1, bytes, entries: 4 });
    assert_eq!(writer.segment(), SegmentNumber(5));
}

#[test]
fn nothing_more_goes_into_a_segment_that_is_closed() {
    let mut writer = writer();
    prepare(&mut writer);
    append(&mut writer, 10);
    assert_eq!(write(&mut writer), (5, 0, 2));
    writer.close_segment();
    assert!(!writer.takes(1) && !writer.takes_state() && !writer.has_segment());
    prepare(&mut writer);
    append(&mut writer, 10);
    assert_eq!(write(&mut writer), (6, 0, 2));
}
