//! What a writer wrote is read back, whatever the disk made of the last write; and what the disk
//! lost of an earlier one is told.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::time::{MonoNs, WallMs};
use crate::journal::Position;
use crate::journal::entry::tests::{content, timer};
use crate::journal::entry::{Entry, State, decode_entry};
use crate::journal::page::Stamp;
use crate::journal::recovery::{Candidate, OPENING_BYTES, opening, plan};
use crate::journal::writer::{Continuation, Owner, Sizes, Writer};

const SIZES: Sizes = Sizes { segment_blocks: 32, batch_bytes: 12 * BLOCK_BYTES };
const JOURNAL: JournalId = JournalId(77);

fn owner() -> Owner {
    Owner { journal: JOURNAL, name: "a".to_owned(), shard: 0, shards: 1 }
}

fn stamp(at: u64) -> Stamp {
    Stamp { boot: 1, mono: MonoNs(at), wall: WallMs(at) }
}

/// Files in memory.
#[derive(Clone, Default)]
struct Disk(BTreeMap<u64, Vec<u8>>);

impl Disk {
    fn prepare(&mut self, writer: &mut Writer) {
        while let Some(segment) = writer.wants_segment() {
            self.0.insert(segment.0, vec![0; SIZES.segment_bytes() as usize]);
            writer.prepared(segment);
        }
    }

    fn write(&mut self, segment: u64, offset: u64, bytes: &[u8]) {
        let file = self.0.get_mut(&segment).expect("it was prepared");
        file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    /// Reads all segments as a restart does. Returns the ids in their order, and the reports.
    fn read(&self) -> (Vec<u64>, Vec<Report>) {
        let candidate = |(number, bytes): (&u64, &Vec<u8>)| {
            let number = SegmentNumber(*number);
            let opening = opening(&bytes[..OPENING_BYTES], number).expect("a known format");
            Candidate { number, opening }
        };
        let files = self.0.iter().map(candidate).collect();
        let plan = plan(files, JOURNAL, (0, 1), "a");
        assert_eq!(plan.flaws, []);
        let (mut ids, mut ended, mut last_write) = (Vec::new(), Vec::new(), 0);
        for (segment, blocks) in plan.segments {
            let bytes = &self.0[&segment.0];
            let mut reader = SegmentReader::new(JOURNAL, segment);
            while (reader.block() as usize) < bytes.len() / BLOCK_BYTES {
                let at = reader.block() as usize * BLOCK_BYTES;
                if let Found::Page(page) = reader.read(&bytes[at..], true).expect("a known format")
                {
                    last_write = last_write.max(page.place.write);
                    let mut entries = page.entries;
                    while !entries.is_empty() {
                        ids.extend(
                            decode_entry(&mut entries).expect("an entry").id().map(|id| id.0),
                        );
                    }
                }
            }
            ended.push((reader, blocks));
        }
        let finish = |(reader, blocks): (SegmentReader, _)| reader.finish(blocks, last_write);
        (ids, ended.into_iter().map(finish).collect())
    }
}

/// Appends timers with the lengths given, and writes after each group; the last write reaches the
/// disk in the blocks that `kept` says. Returns the disk, and how many timers were acknowledged.
fn written(groups: &[Vec<usize>], kept: Option<&[bool]>) -> (Disk, usize) {
    let mut disk = Disk::default();
    let mut writer = Writer::new(owner(), SIZES, State::default(), Continuation::default());
    let mut id = 0;
    for (at, group) in groups.iter().enumerate() {
        for &length in group {
            id += 1;
            let content = content(&vec![b'x'; length]);
            writer.append(&Entry::Timer(timer(id, 0, Some(&content))));
            writer.cover(Position(id));
        }
        disk.prepare(&mut writer);
        writer.begin_write(stamp(at as u64));
        let is_torn = at + 1 == groups.len();
        while let Some(piece) = writer.next_piece() {
            let (segment, offset) = (piece.segment.0, piece.offset);
            let kept = kept.filter(|_| is_torn);
            for (block, bytes) in piece.bytes.chunks(BLOCK_BYTES).enumerate() {
                if kept.is_none_or(|kept| kept[block % kept.len()]) {
                    disk.write(segment, offset + (block * BLOCK_BYTES) as u64, bytes);
                }
            }
            if kept.is_some() {
                return (disk, writer.durable().0 as usize);
            }
            writer.piece_written();
        }
        assert_eq!(writer.durable(), Position(id), "all of it is on the disk");
    }
    (disk, writer.durable().0 as usize)
}

fn groups() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let length = prop_oneof![8 => 0_usize..200, 1 => 3_900_usize..4_100, 1 => 4_000_usize..20_000];
    prop::collection::vec(prop::collection::vec(length, 1..8), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_that_was_written_is_read_in_its_order(groups in groups()) {
        let (disk, acknowledged) = written(&groups, None);
        let (ids, reports) = disk.read();
        prop_assert_eq!(ids, (1..=acknowledged as u64).collect::<Vec<_>>());
        prop_assert!(reports.iter().all(|r| r.torn.is_empty() && r.damaged.is_empty()));
    }

    #[test]
    fn a_torn_write_loses_nothing_that_was_acknowledged_and_is_no_damage(
        groups in groups(),
        kept in prop::collection::vec(any::<bool>(), 1..9),
    ) {
        let (disk, acknowledged) = written(&groups, Some(&kept));
        let (ids, reports) = disk.read();
        let found: Vec<u64> = ids.iter().copied().filter(|&id| id <= acknowledged as u64).collect();
        prop_assert_eq!(found, (1..=acknowledged as u64).collect::<Vec<_>>());
        prop_assert!(reports.iter().all(|report| report.damaged.is_empty()), "{:?}", reports);
    }

    #[test]
    fn a_flipped_bit_before_the_last_write_is_told_as_damage(
        groups in groups(),
        at in any::<prop::sample::Index>(),
        bit in 0_u32..8,
    ) {
        let (mut disk, _) = written(&groups, None);
        let (all, reports) = disk.read();
        let last = *disk.0.keys().nth(reports.len() - 1).expect("a segment was written");
        let ends = reports.last().expect("a segment was written").end as usize * BLOCK_BYTES;
        // A byte of a write before the last one.
        let tail = last_write_begins(&disk.0[&last]);
        prop_assume!(reports.len() > 1 || tail > 0);
        let (segment, byte) = match reports.len() {
            1 => (last, at.index(tail)),
            _ => (1, at.index(reports[0].end as usize * BLOCK_BYTES)),
        };
        prop_assert!(byte < ends || segment != last);
        disk.0.get_mut(&segment).expect("it is there")[byte] ^= 1 << bit;
        if byte < BLOCK_BYTES && segment == 1 {
            // The first page of a segment has a test of its own.
            return Ok(());
        }
        let (ids, reports) = disk.read();
        prop_assert!(ids.len() < all.len());
        prop_assert!(reports.iter().any(|report| !report.damaged.is_empty()), "{:?}", reports);
    }
}

/// Where the last write of a segment begins, in bytes.
fn last_write_begins(bytes: &[u8]) -> usize {
    let mut reader = SegmentReader::new(JOURNAL, SegmentNumber(1));
    let mut begins = 0;
    while (reader.block() as usize) < bytes.len() / BLOCK_BYTES {
        let at = reader.block() as usize * BLOCK_BYTES;
        if let Ok(Found::Page(page)) = reader.read(&bytes[at..], true) {
            begins = page.place.begins as usize * BLOCK_BYTES;
        }
    }
    begins
}

#[test]
fn a_page_from_the_files_former_life_is_none() {
    let (disk, _) = written(&[vec![10; 6]], None);
    let mut reused = Disk::default();
    reused.0.insert(9, disk.0[&1].clone());
    let mut reader = SegmentReader::new(JOURNAL, SegmentNumber(9));
    assert_eq!(reader.read(&reused.0[&9], true), Ok(Found::Nothing));
    assert_eq!(reader.finish(None, 1), Report::default(), "neither torn nor damaged");
}

#[test]
fn a_page_that_is_longer_than_what_was_read_is_asked_for_unless_the_file_ends_there() {
    let (disk, _) = written(&[vec![20_000]], None);
    let bytes = &disk.0[&1];
    for is_end in [false, true] {
        let mut reader = SegmentReader::new(JOURNAL, SegmentNumber(1));
        let found = loop {
            let at = reader.block() as usize * BLOCK_BYTES;
            match reader.read(&bytes[at..at + BLOCK_BYTES], is_end).expect("a known format") {
                Found::Page(_) => {}
                found => break found,
            }
        };
        let at = reader.block() as usize * BLOCK_BYTES;
        if is_end {
            assert_eq!(found, Found::Nothing);
            let last = reader.block() - 1;
            let torn = reader.finish(None, 1).torn;
            assert_eq!(torn.first(), Some(&(last..last + 1)), "a write that was cut off");
            continue;
        }
        let Found::More(length) = found else { panic!("{found:?}") };
        assert!(length > BLOCK_BYTES, "{length}");
        let page = reader.read(&bytes[at..at + length], false);
        assert!(matches!(page, Ok(Found::Page(_))), "{page:?}");
    }
}

/// What is left of a write that nobody was told of, among blocks that nobody wrote.
#[test]
fn a_gap_is_torn_if_any_block_of_it_was_written() {
    let (blank, rest) = (vec![0; BLOCK_BYTES], vec![7; BLOCK_BYTES]);
    for (blocks, is_torn) in [
        ([&blank, &blank, &blank], false),
        ([&rest, &blank, &blank], true),
        ([&blank, &rest, &blank], true),
        ([&blank, &blank, &rest], true),
    ] {
        let mut reader = SegmentReader::new(JOURNAL, SegmentNumber(1));
        for block in blocks {
            assert_eq!(reader.read(block, true), Ok(Found::Nothing));
        }
        let torn = reader.finish(None, 1).torn;
        assert_eq!(torn.first(), is_torn.then_some(&(0..3)));
    }
}
