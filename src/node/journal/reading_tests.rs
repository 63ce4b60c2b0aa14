//! What is read of a shard's directory, whatever became of its files.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::base::time::{MonoNs, WallMs};
use crate::journal::entry::State;
use crate::journal::entry::tests::{content, timer};
use crate::journal::page;
use crate::journal::writer::{Owner, Sizes, Writer};

/// The head of a segment takes a block. So the first segment has three writes, and each one after.
pub(crate) const SIZES: Sizes = Sizes { segment_blocks: 4, batch_bytes: BLOCK_BYTES };
pub(crate) const JOURNAL: JournalId = JournalId(77);
const NODE: &str = "10.0.0.1:7253";

pub(crate) fn number(number: u64) -> SegmentNumber {
    SegmentNumber(number)
}

pub(crate) fn stamp(boot: u64, mono: u64, wall: u64) -> Stamp {
    Stamp { boot, mono: MonoNs(mono), wall: WallMs(wall) }
}

/// A file: what the disk gives of it, and the error behind that.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub bytes: Vec<u8>,
    pub errno: Option<i32>,
}

/// The files of a shard.
#[derive(Clone)]
pub(crate) struct Drawer {
    pub files: BTreeMap<u64, Kept>,
    pub no_files: Vec<(SegmentNumber, &'static str)>,
    pub is_absent: bool,
    /// The shard, and the number of shards.
    pub shard: (u16, u16),
}

/// A journal as it grows, and its files.
pub(crate) struct Shelf {
    pub writer: Writer,
    pub drawer: Drawer,
}

impl std::ops::Deref for Shelf {
    type Target = Drawer;

    fn deref(&self) -> &Drawer {
        &self.drawer
    }
}

impl std::ops::DerefMut for Shelf {
    fn deref_mut(&mut self) -> &mut Drawer {
        &mut self.drawer
    }
}

fn writer((shard, shards): (u16, u16), state: State, found: Continuation) -> Writer {
    let owner = Owner { journal: JOURNAL, name: NODE.to_owned(), shard, shards };
    Writer::new(owner, SIZES, state, found)
}

impl Shelf {
    pub fn new(shard: (u16, u16)) -> Self {
        let state = State { oldest: number(1), complete_since: WallMs(3), ..State::default() };
        let writer = writer(shard, state, Continuation::default());
        let (files, no_files) = (BTreeMap::new(), Vec::new());
        Self { writer, drawer: Drawer { files, no_files, is_absent: false, shard } }
    }

    /// A journal of so many writes, each with a timer whose id is the number of the write.
    pub fn of_writes(count: u64) -> Self {
        let mut shelf = Self::new((0, 2));
        (1..=count).for_each(|write| shelf.write(write));
        shelf
    }

    pub fn write(&mut self, id: u64) {
        let content = content(b"opaque");
        self.write_entries(&[Entry::Timer(timer(id, 0, Some(&content)))], stamp(1, id, id));
    }

    pub fn write_entries(&mut self, entries: &[Entry<'_>], stamp: Stamp) {
        while let Some(segment) = self.writer.wants_segment() {
            let bytes = vec![0; SIZES.segment_bytes() as usize];
            self.drawer.files.insert(segment.0, Kept { bytes, errno: None });
            self.writer.prepared(segment);
        }
        entries.iter().for_each(|entry| self.writer.append(entry));
        self.writer.begin_write(stamp);
        while let Some(piece) = self.writer.next_piece() {
            let file = self.drawer.files.get_mut(&piece.segment.0).expect("it was prepared");
            let at = piece.offset as usize;
            file.bytes[at..at + piece.bytes.len()].copy_from_slice(piece.bytes);
            self.writer.piece_written();
        }
    }

    /// A process that ended, and the next one, which goes on behind what was found.
    fn restart(&mut self) {
        let report = self.read().0;
        let state = report.newest.state.unwrap_or_default();
        self.writer = writer(self.shard, state, report.continuation);
    }
}

impl Drawer {
    fn file(&mut self, number: u64) -> &mut Kept {
        self.files.get_mut(&number).expect("it is there")
    }

    /// Makes a block unreadable, as a disk does that turns bits.
    pub fn damage(&mut self, number: u64, block: usize) {
        self.file(number).bytes[block * BLOCK_BYTES + 100] ^= 1;
    }

    fn read(&self) -> (ShardReport, Seen) {
        let mut seen = Seen { pages_max: usize::MAX, ..Seen::default() };
        let report = read_shard(self, &mut seen).expect("the disk gives it");
        (report, seen)
    }

    /// What is wrong with the set of files, and the ids that are read all the same.
    fn flaws(&self) -> (Vec<Flaw>, Vec<u64>) {
        let (report, seen) = self.read();
        assert_eq!(report.segments.iter().filter(|read| read.is_damaged()).count(), 0);
        (report.flaws, seen.ids)
    }
}

impl Files for Drawer {
    fn owner(&self) -> (JournalId, &str) {
        (JOURNAL, NODE)
    }

    fn shard(&self) -> (u16, u16) {
        self.shard
    }

    fn directory(&self) -> PathBuf {
        "/data/0001-2/0".into()
    }

    fn path_of(&self, number: SegmentNumber) -> PathBuf {
        self.directory().join(number.0.to_string())
    }

    fn list(&self) -> Result<Option<Vec<SegmentFile>>, ReadError> {
        let file = |(segment, kept): (&u64, &Kept)| SegmentFile {
            number: number(*segment),
            path: self.path_of(number(*segment)),
            bytes: kept.bytes.len() as u64,
        };
        Ok((!self.is_absent).then(|| self.files.iter().map(file).collect()))
    }

    fn no_files(&self) -> Result<Vec<(SegmentNumber, &'static str)>, ReadError> {
        Ok(self.no_files.clone())
    }

    fn beginning(&self, file: &SegmentFile) -> Result<Vec<u8>, ReadError> {
        let Kept { bytes, errno } = &self.files[&file.number.0];
        match errno {
            Some(errno) if bytes.len() < OPENING_BYTES => {
                Err(unreadable(file, io::Error::from_raw_os_error(*errno)))
            }
            _ => Ok(bytes[..OPENING_BYTES.min(bytes.len())].to_vec()),
        }
    }

    fn with_bytes<T>(
        &self,
        files: &[(&SegmentFile, u64)],
        work: impl FnOnce(&mut dyn Bytes) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let part = |(file, most): &(&SegmentFile, u64)| {
            let Kept { bytes, errno } = &self.files[&file.number.0];
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            let errno = errno.filter(|_| bytes.len() < most);
            (&bytes[..bytes.len().min(most)], errno)
        };
        let files = files.iter().map(part).collect();
        work(&mut Pieces { files, file: (&[], None), begin: 0, end: 0 })
    }
}

/// The bytes of files, in pieces of a block.
struct Pieces<'a> {
    files: VecDeque<(&'a [u8], Option<i32>)>,
    file: (&'a [u8], Option<i32>),
    begin: usize,
    end: usize,
}

impl Bytes for Pieces<'_> {
    fn bytes(&self) -> &[u8] {
        &self.file.0[self.begin..self.end]
    }

    fn is_end(&self) -> bool {
        self.end == self.file.0.len() && self.file.1.is_none()
    }

    fn skip(&mut self, bytes: usize) {
        self.begin = self.end.min(self.begin + bytes);
    }

    fn fetch(&mut self, is_new: bool) -> io::Result<()> {
        if is_new {
            let is_over = self.end == self.file.0.len();
            assert!(is_over, "a file is read to its end before the next one");
            self.file = self.files.pop_front().expect("there is one more");
            (self.begin, self.end) = (0, 0);
        } else if self.end == self.file.0.len() {
            let errno = self.file.1.expect("nothing is fetched behind the end");
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.end = self.file.0.len().min(self.end + BLOCK_BYTES);
        Ok(())
    }
}

/// One range of blocks.
fn only(blocks: Range<u32>) -> Vec<Range<u32>> {
    std::iter::once(blocks).collect()
}

/// What was read.
#[derive(Default)]
struct Seen {
    ids: Vec<u64>,
    places: Vec<PagePlace>,
    pages_max: usize,
}

impl Visitor for Seen {
    fn page(&mut self, place: &PagePlace, _bytes: &[u8]) {
        self.places.push(*place);
    }

    fn entry(&mut self, _place: &PagePlace, entry: &Entry<'_>) {
        self.ids.extend(entry.id().map(|id| id.0));
    }

    fn is_over(&self) -> bool {
        self.places.len() >= self.pages_max
    }
}

#[test]
fn what_was_written_is_read_in_its_order_and_counted() {
    let mut shelf = Shelf::new((0, 2));
    let bytes = content(b"opaque");
    let of = |id, sequence, content| Entry::Timer(timer(id, sequence, content));
    let progress = Entry::Progress(timer(1, 4, None).standing);
    let forgotten = Entry::Forgotten(crate::base::ids::TimerId(2));
    shelf.write_entries(&[of(1, 0, Some(&bytes)), of(2, 0, Some(&bytes))], stamp(1, 10, 900));
    shelf.write_entries(&[progress.clone(), forgotten, progress], stamp(1, 20, 950));
    for write in 3..=6 {
        shelf.write_entries(&[of(write, 1, None)], stamp(1, 10 * write, 1_000 - write));
    }
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 2, 1, 2, 1, 3, 4, 5, 6]);
    let place =
        |at: usize| (seen.places[at].segment.0, seen.places[at].block, seen.places[at].write);
    assert_eq!([0, 1, 2, 4, 5].map(place), [(1, 0, 1), (1, 1, 1), (1, 2, 2), (2, 0, 4), (2, 1, 4)]);
    assert!(seen.places.iter().all(|place| place.blocks == 1));
    assert_eq!(seen.places[2].stamp, stamp(1, 20, 950));
    let wanted =
        EntryCounts { timers: 2, tombstones: 4, progress: 2, forgotten: 1, heads: 2, states: 2 };
    assert_eq!((report.counts, report.counts.sum()), (wanted, 13));
    let mut thrice = report.counts;
    (0..2).for_each(|_| thrice.add(&report.counts));
    let wanted =
        EntryCounts { timers: 6, tombstones: 12, progress: 6, forgotten: 3, heads: 6, states: 6 };
    assert_eq!(thrice, wanted);
    assert_eq!(report.continuation, Continuation { last: number(4), writes: 6 });
    assert_eq!(report.oldest, number(1));
    assert_eq!(report.stamps, [stamp(1, 60, 994), stamp(1, 30, 997)]);
    assert!(!report.is_damaged() && !report.is_cut, "{report:?}");
    let read = &report.segments[..];
    assert_eq!(read.iter().map(|read| read.file.number.0).collect::<Vec<_>>(), [1, 2]);
    let entries: u64 = seen.places.iter().map(|_| 0).sum::<u64>() + read[0].entry_bytes;
    assert!(entries > read[1].entry_bytes, "timers are longer than tombstones");
}

#[test]
fn of_each_boot_the_latest_stamps_are_told() {
    let mut shelf = Shelf::new((0, 2));
    let one = [Entry::Progress(timer(1, 4, None).standing)];
    // The wall clock of the first boot was ahead for the second of four segments.
    for (write, wall) in [(1, 5), (2, 6), (3, 7), (4, 80), (5, 90), (6, 8), (7, 9), (8, 10)] {
        shelf.write_entries(&one, stamp(1, write, wall));
    }
    shelf.restart();
    shelf.write_entries(&one, stamp(2, 3, 70));
    shelf.write_entries(&one, stamp(2, 4, 60));
    let all = [stamp(1, 8, 10), stamp(1, 5, 90), stamp(2, 4, 60), stamp(2, 3, 70)];
    assert_eq!(shelf.read().0.stamps, all);
    // Only the beginnings and the last segment of each boot are looked at.
    let looked = stamps(&shelf.drawer).expect("read");
    assert_eq!(looked, [stamp(1, 8, 10), stamp(1, 4, 80), stamp(2, 4, 60), stamp(2, 3, 70)]);
    shelf.is_absent = true;
    assert_eq!(stamps(&shelf.drawer).expect("nothing is there"), []);
    assert!(shelf.read().0.is_absent && shelf.read().0.is_damaged());
}

#[test]
fn a_segment_that_is_missing_is_told_unless_nothing_was_in_it() {
    let mut shelf = Shelf::of_writes(9);
    shelf.files.remove(&2);
    assert_eq!(shelf.flaws(), (vec![Flaw::Missing(number(2))], vec![1, 2, 3, 7, 8, 9]));
    // What is in the segment's place says more.
    shelf.no_files = vec![(number(2), "a directory")];
    assert_eq!(shelf.flaws().0, [Flaw::NoFile(number(2), "a directory")]);
    // Files that were made ahead were never written when the process ended. The next process begins
    // behind them.
    let mut shelf = Shelf::of_writes(3);
    shelf.restart();
    shelf.write(4);
    assert_eq!(*shelf.files.keys().max().expect("files"), 5);
    for unwritten in [2, 3] {
        shelf.files.remove(&unwritten);
    }
    assert_eq!(shelf.flaws(), (vec![], vec![1, 2, 3, 4]));
    shelf.files.remove(&1);
    let (flaws, ids) = shelf.flaws();
    assert_eq!(ids, [4]);
    assert!(flaws.contains(&Flaw::Missing(number(1))), "{flaws:?}");
}

#[test]
fn what_was_emptied_is_not_missed() {
    let mut shelf = Shelf::of_writes(6);
    let state = State { oldest: number(2), ..shelf.writer.state().clone() };
    shelf.writer.append_state(state);
    shelf.write(7);
    shelf.files.remove(&1);
    assert_eq!(shelf.flaws(), (vec![], vec![4, 5, 6, 7]));
    assert_eq!(shelf.read().0.oldest, number(2), "the third segment tells");
}

#[test]
fn a_segment_without_a_beginning_is_told_and_the_rest_of_it_is_read() {
    let mut shelf = Shelf::of_writes(7);
    shelf.damage(2, 0);
    let (report, seen) = shelf.read();
    assert_eq!(report.flaws, [Flaw::Beheaded(number(2))]);
    assert_eq!(seen.ids, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(report.segments[1].report.damaged, only(0..1));
    assert!(report.is_damaged());
}

#[test]
fn the_last_write_may_be_torn_and_no_other() {
    let mut shelf = Shelf::of_writes(6);
    shelf.damage(2, 3);
    let (report, seen) = shelf.read();
    assert!(!report.is_damaged(), "nobody was told that write 6 was done: {report:?}");
    assert_eq!((seen.ids.len(), &report.segments[1].report.torn[..]), (5, &only(3..4)[..]));
    // One that a later write follows was done.
    shelf.damage(1, 2);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 3, 4, 5]);
    assert_eq!(report.segments[0].report.damaged, only(2..3));
    assert!(report.is_damaged() && report.segments[0].is_damaged());
    // The last one before the end of a segment was done, too, as the next segment tells.
    let mut shelf = Shelf::of_writes(6);
    shelf.damage(1, 3);
    assert_eq!(shelf.read().0.segments[0].report.damaged, only(3..4));
}

#[test]
fn the_last_write_before_a_restart_may_be_torn() {
    let mut shelf = Shelf::of_writes(2);
    shelf.damage(1, 2);
    shelf.restart();
    (3..=6).for_each(|write| shelf.write(write));
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 3, 4, 5, 6]);
    assert!(!report.is_damaged(), "{report:?}");
    // Not those after it.
    shelf.damage(4, 2);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 3, 5, 6]);
    let damaged = report.segments.iter().find(|read| read.is_damaged()).expect("one is damaged");
    assert_eq!((damaged.file.number, &damaged.report.damaged[..]), (number(4), &only(2..3)[..]));
}

#[test]
fn a_file_that_was_cut_is_told() {
    let mut shelf = Shelf::of_writes(5);
    let whole = SIZES.segment_bytes();
    shelf.file(2).bytes.truncate(3 * BLOCK_BYTES);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 2, 3, 4, 5]);
    let read = &report.segments[1];
    assert_eq!((read.file.number, read.lacks_bytes), (number(2), whole - 3 * BLOCK_BYTES as u64));
    assert!(read.is_damaged() && report.is_damaged());
    // One without a page, behind the last write: something may have stood in it.
    let mut shelf = Shelf::of_writes(5);
    shelf.file(3).bytes.clear();
    let report = shelf.read().0;
    let lacks = |report: &ShardReport| {
        report
            .segments
            .iter()
            .map(|read| (read.file.number.0, read.lacks_bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(lacks(&report), [(1, 0), (2, 0), (3, whole)]);
    // Nothing stood in it, if the writes before it and behind it follow each other.
    let mut shelf = Shelf::of_writes(3);
    shelf.restart();
    shelf.write(4);
    shelf.file(2).bytes.truncate(BLOCK_BYTES);
    let report = shelf.read().0;
    assert_eq!((lacks(&report), &report.flaws[..]), (vec![(1, 0), (4, 0)], &[][..]));
}

#[test]
fn the_disk_may_not_give_a_file_to_its_end() {
    let mut shelf = Shelf::of_writes(9);
    shelf.file(2).bytes.truncate(2 * BLOCK_BYTES);
    shelf.file(2).errno = Some(libc::EIO);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 2, 3, 4, 7, 8, 9], "the other files are read");
    let read = &report.segments[1];
    let unreadable = read.unreadable.as_ref().expect("it is told");
    assert_eq!((unreadable.block, read.lacks_bytes, &read.report.damaged[..]), (2, 0, &[][..]));
    assert!(unreadable.why.contains("os error 5"), "{}", unreadable.why);
    assert!(report.is_damaged() && report.flaws.is_empty(), "{report:?}");
    // Not even its beginning: it is told once.
    shelf.file(2).bytes.clear();
    let (report, seen) = shelf.read();
    assert_eq!((seen.ids.len(), &report.flaws[..], &report.strange[..]), (6, &[][..], &[][..]));
    assert_eq!(report.segments[1].unreadable.as_ref().map(|it| it.block), Some(0));
    // The last one, too, which no later one tells of.
    let mut shelf = Shelf::of_writes(5);
    shelf.file(3).bytes.clear();
    shelf.file(3).errno = Some(libc::EIO);
    let report = shelf.read().0;
    assert_eq!(report.segments.len(), 3);
    assert!(report.segments[2].unreadable.is_some() && report.is_damaged());
    // A right that is lacking says nothing of the disk. The start ends.
    shelf.file(3).errno = Some(libc::EACCES);
    assert!(matches!(read_shard(&shelf.drawer, &mut ()), Err(ReadError::File { .. })));
    shelf.file(3).errno = None;
    shelf.file(2).bytes.truncate(2 * BLOCK_BYTES);
    shelf.file(2).errno = Some(libc::EACCES);
    assert!(matches!(read_shard(&shelf.drawer, &mut ()), Err(ReadError::File { .. })));
}

#[test]
fn what_nobody_understands_is_kept() {
    let mut shelf = Shelf::of_writes(5);
    let state = State { oldest: number(2), ..shelf.writer.state().clone() };
    shelf.writer.append_state(state);
    (6..=7).for_each(|write| shelf.write(write));
    // An emptied segment is not strange, and one of another file's bytes is.
    assert_eq!(shelf.read().0.strange, []);
    shelf.file(1).bytes.fill(7);
    assert_eq!(shelf.read().0.strange, [number(1)]);
    // So is one behind the last that has no page.
    shelf.file(4).bytes[BLOCK_BYTES..2 * BLOCK_BYTES].fill(7);
    assert_eq!(shelf.read().0.strange, [number(1), number(4)]);
    assert!(!shelf.read().0.is_damaged(), "nothing says that they were needed");
}

#[test]
fn a_later_segment_without_a_beginning_is_read_if_it_has_pages() {
    let mut shelf = Shelf::of_writes(5);
    shelf.damage(2, 0);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 2, 3, 4, 5]);
    assert_eq!(report.segments.len(), 2);
    assert_eq!(report.segments[1].report.damaged, only(0..1), "write 5 follows");
    // Its only write is torn, and with it what says whether a restart lies before.
    let mut shelf = Shelf::of_writes(4);
    shelf.damage(2, 0);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 2, 3, 4]);
    assert!(!report.is_damaged(), "{report:?}");
}

#[test]
fn a_segment_of_somebody_else_is_told_and_not_read() {
    let mut shelf = Shelf::of_writes(9);
    assert_eq!(foreign_segment(&shelf.drawer).expect("read"), None);
    let first = shelf.files[&1].bytes.clone();
    shelf.file(2).bytes = first;
    assert_eq!(foreign_segment(&shelf.drawer).expect("read"), None, "a file in its former life");
    let third = shelf.files[&3].bytes.clone();
    shelf.file(2).bytes = third;
    let (path, why) = foreign_segment(&shelf.drawer).expect("read").expect("it is foreign");
    assert_eq!(path, shelf.path_of(number(2)));
    assert!(why.contains("number 3, and number 2 was expected"), "{why}");
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 2, 3, 7, 8, 9]);
    assert!(
        matches!(
            &report.flaws[..],
            [Flaw::Foreign(SegmentNumber(2), _), Flaw::Missing(_)]
                | [Flaw::Missing(_), Flaw::Foreign(SegmentNumber(2), _)]
        ),
        "{:?}",
        report.flaws
    );
}

#[test]
fn a_reader_that_has_enough_gets_no_more() {
    let shelf = Shelf::of_writes(9);
    let mut seen = Seen { pages_max: 2, ..Seen::default() };
    let report = read_shard(&shelf.drawer, &mut seen).expect("read");
    assert!(report.is_cut);
    assert_eq!((seen.places.len(), &seen.ids[..]), (2, &[1][..]));
}

#[test]
fn a_page_that_cannot_be_decoded_is_told_and_what_follows_is_read() {
    let mut shelf = Shelf::of_writes(3);
    // A release that forgot an entry's format sealed it all the same.
    let bytes = &mut shelf.file(1).bytes[2 * BLOCK_BYTES..3 * BLOCK_BYTES];
    let page = page::open(bytes).expect("a page");
    let (place, stamp, used) = (page.place, page.stamp, page::HEADER_BYTES + page.entries.len());
    bytes[page::HEADER_BYTES] = 200;
    page::seal(bytes, used, &place, &stamp);
    let (report, seen) = shelf.read();
    assert_eq!(seen.ids, [1, 3]);
    let [undecodable] = &report.undecodable[..] else { panic!("{:?}", report.undecodable) };
    assert_eq!((undecodable.segment, &undecodable.blocks), (number(1), &(2..3)));
    assert_eq!(report.undecodable_pages, 1);
    assert!(report.is_damaged());
}
