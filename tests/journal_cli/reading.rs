//! `read_shard` and `stamps`: what a restart learns of a shard's directory.

use std::fs;

use chronos::journal::entry::Entry;
use chronos::journal::recovery::Flaw;
use chronos::journal::{BLOCK_BYTES, SegmentNumber};
use chronos::node::journal::reading::{
    EntryCounts, PagePlace, ReadError, ShardReport, Visitor, read_shard, stamps,
};

use crate::disk::{Data, Shard, content, cut, flip, stamp, timer};

/// Keeps the ids of whole timers in their order.
#[derive(Default)]
struct Ids {
    ids: Vec<u64>,
    pages: u64,
    bytes: u64,
    /// Pages after which it has enough; 0: never.
    pages_max: u64,
}

impl Visitor for Ids {
    fn page(&mut self, place: &PagePlace, bytes: &[u8]) {
        assert!(place.write > 0 && place.blocks > 0);
        self.pages += 1;
        self.bytes += bytes.len() as u64;
    }

    fn entry(&mut self, _: &PagePlace, entry: &Entry<'_>) {
        if let Entry::Timer(copy) = entry {
            self.ids.push(copy.standing.id.0);
        }
    }

    fn is_over(&self) -> bool {
        self.pages == self.pages_max
    }
}

fn read(shard: &Shard) -> (Ids, ShardReport) {
    let mut ids = Ids::default();
    let report = read_shard(&shard.directory, &mut ids).expect("it can be read");
    (ids, report)
}

fn torn(report: &ShardReport) -> usize {
    report.segments.iter().map(|read| read.report.torn.len()).sum()
}

#[test]
fn all_that_was_written_is_read_in_its_order() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    let next = shard.fill(4, 1);
    shard.append(&Entry::Progress(timer(5, 1, None).standing));
    shard.append(&Entry::Timer(timer(6, 1, None)));
    shard.append(&Entry::Forgotten(timer(7, 1, None).standing.id));
    shard.append_state(1);
    shard.write(stamp(1, next));
    let (ids, report) = read(&shard);
    assert_eq!(ids.ids[..next as usize - 1], (1..next).collect::<Vec<_>>());
    let counts = EntryCounts {
        timers: next - 1,
        tombstones: 1,
        progress: 1,
        forgotten: 1,
        heads: 4,
        states: 5,
    };
    assert_eq!((report.counts, report.counts.sum()), (counts, next + 11));
    assert!(!report.is_damaged() && torn(&report) == 0, "{report:?}");
    assert_eq!(report.segments.len(), 4);
    assert_eq!(report.continuation.last, SegmentNumber(6), "two are made ahead");
    assert_eq!(report.continuation.writes, (next - 1) / 20 + 1);
    assert_eq!(report.segments.iter().map(|read| read.report.pages).sum::<u64>(), ids.pages);
    assert_eq!(report.segments.iter().map(|read| read.entry_bytes).sum::<u64>(), ids.bytes);
    assert_eq!(report.stamps, [stamp(1, next)]);
}

#[test]
fn entries_longer_than_a_piece_are_read() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    // Writes of 26 blocks: pages that lie across the pieces in which files are read.
    for id in 1..60 {
        let content = content(&"y".repeat(26 * BLOCK_BYTES - 200));
        shard.append(&Entry::Timer(timer(id, 0, Some(&content))));
        shard.write(stamp(1, id));
    }
    let (ids, report) = read(&shard);
    assert_eq!(ids.ids, (1..60).collect::<Vec<_>>());
    assert!(!report.is_damaged());
}

#[test]
fn an_absent_or_empty_directory_is_told_apart() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    assert_eq!(read(&shard).1, ShardReport::default());
    shard.append_timers(1..2);
    // Segments are made, and nothing is written to them.
    shard.write_blocks(stamp(1, 1), |_| false);
    let (_, report) = read(&shard);
    assert_eq!((report.segments.len(), report.continuation.last.0), (0, 2));
    fs::remove_dir_all(&shard.directory.path).expect("removed");
    let (_, report) = read(&shard);
    assert!(report.is_absent && report.is_damaged());
    assert_eq!(stamps(&shard.directory).expect("nothing to read"), []);
}

#[test]
fn a_torn_tail_is_no_damage_and_stays_none_after_restarts() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.append_timers(1..50);
    shard.write(stamp(1, 10));
    shard.append_timers(50..100);
    // The second block of the write is lost, later ones are not.
    shard.write_blocks(stamp(1, 20), |block| block != 1);
    let (ids, report) = read(&shard);
    assert!(ids.ids.starts_with(&(1..50).collect::<Vec<_>>()) && ids.ids.ends_with(&[99]));
    assert_eq!((torn(&report), report.is_damaged()), (1, false));

    let mut later = Shard::begin(shard.directory.clone(), report.continuation);
    later.append_timers(100..120);
    later.write(stamp(1, 30));
    later.append_timers(120..140);
    later.write(stamp(1, 40));
    let (ids, report) = read(&later);
    assert!(ids.ids.ends_with(&(99..140).collect::<Vec<_>>()));
    assert_eq!((torn(&report), report.is_damaged()), (1, false), "{report:?}");

    // All of them once more, with files that were made ahead between the segments. The first write
    // of the last segment is torn at its head.
    let mut last = Shard::begin(shard.directory.clone(), report.continuation);
    last.append_timers(140..160);
    last.write_blocks(stamp(2, 1), |block| block > 0);
    let (ids, report) = read(&last);
    assert!(ids.ids.ends_with(&(140..160).collect::<Vec<_>>()));
    assert_eq!((torn(&report), report.is_damaged()), (2, false), "{report:?}");
    assert_eq!(stamps(&shard.directory).expect("read"), report.stamps);
    // A whole segment that is gone is told by the numbers of the writes.
    let mut last = Shard::begin(shard.directory.clone(), report.continuation);
    last.append_timers(160..180);
    last.write(stamp(2, 2));
    let segments: Vec<u64> = read(&last).1.segments.iter().map(|s| s.file.number.0).collect();
    let all = fs::read(last.path(segments[1])).expect("there");
    fs::write(last.path(segments[1]), vec![0; all.len()]).expect("written");
    let (_, report) = read(&last);
    assert!(report.flaws.contains(&Flaw::Beheaded(SegmentNumber(segments[1]))), "{report:?}");
}

#[test]
fn what_a_later_write_proves_is_damage() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.fill(3, 1);
    let (all, whole) = read(&shard);
    let good = fs::read(shard.path(2)).expect("there");
    let last_block = whole.segments[1].report.end as usize - 1;
    for block in [1, last_block / 2, last_block] {
        flip(&shard.path(2), block * BLOCK_BYTES + 100);
        let (some, report) = read(&shard);
        let damaged = &report.segments[1].report.damaged;
        assert_eq!(damaged.first(), Some(&(block as u32..block as u32 + 1)));
        assert!(report.is_damaged() && torn(&report) == 0 && some.ids.len() < all.ids.len());
        fs::write(shard.path(2), &good).expect("written");
    }
    // The first page.
    flip(&shard.path(2), 80);
    assert_eq!(read(&shard).1.flaws, [Flaw::Beheaded(SegmentNumber(2))]);
    fs::write(shard.path(2), &good).expect("written");
    // The first page of the last segment: the rest of the segment is read all the same.
    let last = fs::read(shard.path(3)).expect("there");
    shard.append_timers(900..910);
    shard.write(stamp(1, 10_000));
    flip(&shard.path(3), 80);
    let (some, report) = read(&shard);
    assert!(some.ids.ends_with(&(900..910).collect::<Vec<_>>()));
    assert_eq!(report.segments[2].report.damaged.first(), Some(&(0..1)));
    fs::write(shard.path(3), &last).expect("written");
    // A file that is cut, within a block and at its end; in the last segment, too.
    for bytes in [5_000, 3 * BLOCK_BYTES as u64, 0] {
        fs::write(shard.path(2), &good).expect("written");
        cut(&shard.path(2), bytes);
        assert!(read(&shard).1.is_damaged(), "{bytes}");
    }
    fs::write(shard.path(2), &good).expect("written");
    cut(&shard.path(3), 2 * BLOCK_BYTES as u64);
    let (_, report) = read(&shard);
    assert_eq!((report.segments[2].lacks_bytes, report.is_damaged()), (30 * 4_096, true));
}

#[test]
fn a_page_that_does_not_come_apart_is_told() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    // A start that no release writes: the checksum is right, the entry is not.
    let wrong = chronos::wire::peer_message::TimerCopy { start_ms: u64::MAX, ..timer(1, 0, None) };
    shard.append(&Entry::Timer(timer(2, 0, None)));
    shard.append(&Entry::Timer(wrong));
    shard.write(stamp(1, 1));
    let (ids, report) = read(&shard);
    assert_eq!(ids.ids, [2]);
    assert!(report.is_damaged());
    assert_eq!((report.undecodable_pages, report.undecodable[0].blocks.clone()), (1, 1..2));
}

#[test]
fn a_missing_file_and_one_of_another_shard_are_told() {
    let data = Data::new(2);
    let (mut shard, mut other) = (data.shard(0), data.shard(1));
    shard.fill(4, 1);
    other.fill(3, 1);
    fs::remove_file(shard.path(2)).expect("removed");
    let (_, report) = read(&shard);
    assert_eq!(report.flaws, [Flaw::Missing(SegmentNumber(2))]);
    fs::copy(other.path(2), shard.path(2)).expect("copied");
    let (_, report) = read(&shard);
    assert!(matches!(&report.flaws[0], Flaw::Foreign(_, why) if why.contains("shard 1 of 2")));
}

#[test]
fn a_visitor_that_has_enough_ends_the_reading() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.fill(4, 1);
    let mut ids = Ids { pages_max: 3, ..Ids::default() };
    let report = read_shard(&shard.directory, &mut ids).expect("read");
    assert!(report.is_cut && ids.pages == 3);
}

#[test]
fn a_newer_format_is_an_error_that_names_the_file() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.append_timers(1..5);
    shard.write(stamp(1, 1));
    make_newer(&shard.path(1), 0);
    let error = read_shard(&shard.directory, &mut ()).expect_err("it is newer");
    assert!(matches!(error, ReadError::Newer { .. }));
    let told = error.to_string();
    assert!(told.contains("0000000000000001.segment") && told.contains("format 2"), "{told}");
}

/// Makes a page one of the next format, with a checksum that fits.
pub fn make_newer(path: &std::path::Path, block: usize) {
    let mut bytes = fs::read(path).expect("there");
    let page = &mut bytes[block * BLOCK_BYTES..];
    page[4..6].copy_from_slice(&2_u16.to_le_bytes());
    let used = u32::from_le_bytes(page[8..12].try_into().expect("four")) as usize;
    let sum = crc32(&[&page[..64], &page[72..72 + used]].concat());
    page[64..68].copy_from_slice(&sum.to_le_bytes());
    fs::write(path, bytes).expect("written");
}

/// CRC-32 as in IEEE 802.3, by its definition.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[test]
fn the_cheap_pass_finds_the_stamps_that_all_pages_have() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.fill(3, 1);
    let found = read(&shard).1.continuation;
    let mut second = Shard::begin(shard.directory.clone(), found);
    second.append_timers(1..20);
    second.write(stamp(2, 7));
    second.append_timers(1..20);
    second.write(stamp(2, 8));
    let (_, report) = read(&second);
    assert_eq!(report.stamps.len(), 2);
    assert_eq!(stamps(&shard.directory).expect("read"), report.stamps);
    // The wall clock was set back within a boot: both stamps are told.
    let back = chronos::journal::page::Stamp { mono: stamp(2, 9).mono, ..stamp(2, 1) };
    second.append_timers(1..20);
    second.write(back);
    let (_, report) = read(&second);
    assert_eq!(report.stamps[report.stamps.len() - 2..], [back, stamp(2, 8)]);
    assert_eq!(stamps(&shard.directory).expect("read"), report.stamps);
}

#[test]
fn a_segment_that_was_emptied_since_the_last_one_began_is_not_missing() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    let next = shard.fill(4, 1);
    shard.append_state(3);
    shard.write(stamp(1, next));
    fs::remove_file(shard.path(1)).expect("it was emptied");
    fs::remove_file(shard.path(2)).expect("it was emptied");
    let (_, report) = read(&shard);
    assert!(!report.is_damaged(), "{:?}", report.flaws);
    fs::remove_file(shard.path(3)).expect("it is needed");
    let (_, report) = read(&shard);
    assert_eq!(report.flaws, [Flaw::Missing(SegmentNumber(3))]);
}
