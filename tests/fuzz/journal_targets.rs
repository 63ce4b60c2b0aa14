//! What must hold for the readers of a journal, on every input; as `targets.rs` for the others. A
//! disk may hold anything: nothing of it may end a node that starts.

use chronos::base::time::{MonoNs, WallMs};
use chronos::journal::entry::{Entry, decode_entry};
use chronos::journal::page::{self, HEADER_BYTES, Place, Stamp};
use chronos::journal::reader::{Found, Report, SegmentReader};
use chronos::journal::recovery::{Candidate, OPENING_BYTES, opening, plan};
use chronos::journal::{BLOCK_BYTES, FORMAT, JournalId, SegmentNumber};

/// The journal and the segment that pages should be of.
pub const JOURNAL: JournalId = JournalId(0x7700);
pub const SEGMENT: SegmentNumber = SegmentNumber(3);
/// Most pages of an input.
const PAGES_MAX: usize = 12;
/// Most bytes of entries of one page, so that a page has up to four blocks.
const ENTRIES_BYTES_MAX: usize = 3 * BLOCK_BYTES;

/// How the next bytes of an input become blocks.
const SEALED: u8 = 0;
const RAW: u8 = 1;
const NEWER: u8 = 2;

/// Entries, one behind the other: none panics, and one that is accepted is written as the same
/// bytes.
pub fn journal_entries(data: &[u8]) -> bool {
    let (mut rest, mut again) = (data, Vec::new());
    let mut count = 0;
    while !rest.is_empty() {
        let before = rest;
        match decode_entry(&mut rest) {
            Ok(entry) => {
                assert!(rest.len() < before.len(), "an entry has bytes");
                again.clear();
                entry.encode(&mut again);
                assert_eq!(again, before[..before.len() - rest.len()], "{entry:?}");
                count += 1;
            }
            Err(error) => {
                assert!(!error.0.is_empty());
                break;
            }
        }
    }
    count > 0
}

/// A segment of pages, true and false ones, which the input tells (`segment_of`): all readers take
/// it, in pieces as in one, and what they tell of it lies within it.
pub fn journal_segment(data: &[u8]) -> bool {
    let bytes = segment_of(data);
    let numbers = (data.first().copied().unwrap_or(0), data.last().copied().unwrap_or(0));
    plans(&bytes, numbers);
    let (whole, pieces) = (read(&bytes, bytes.len(), numbers), read(&bytes, BLOCK_BYTES, numbers));
    assert_eq!(whole, pieces, "in pieces as in one");
    let Some((pages, report)) = whole else { return false };
    let blocks = bytes.len().div_ceil(BLOCK_BYTES) as u32;
    assert_eq!(report.pages, pages.len() as u64);
    assert_eq!(report.end, pages.last().map_or(0, |page| page.1));
    assert!(pages.windows(2).all(|two| two[0].1 <= two[1].0 && two[0].2 <= two[1].2));
    let last = numbers.0.into();
    for lost in report.torn.iter().chain(&report.damaged) {
        assert!(lost.start < lost.end && lost.end <= blocks.max(last), "{report:?}");
        let is_free = |page: &&(u32, u32, u64)| page.1 <= lost.start || lost.end <= page.0;
        assert!(pages.iter().all(|page| is_free(&page)), "{report:?} {pages:?}");
    }
    !pages.is_empty()
}

/// A page that was read: its first block, the block behind it, its write.
type Seen = (u32, u32, u64);

/// Reads a segment, at first with `window` bytes, and then with as many as the reader wants.
/// `None`: it is of a newer format.
fn read(bytes: &[u8], window: usize, numbers: (u8, u8)) -> Option<(Vec<Seen>, Report)> {
    let mut reader = SegmentReader::new(JOURNAL, SEGMENT);
    let mut pages = Vec::new();
    let mut wanted = window;
    while (reader.block() as usize) * BLOCK_BYTES < bytes.len() {
        let block = reader.block();
        let rest = &bytes[block as usize * BLOCK_BYTES..];
        let given = &rest[..wanted.min(rest.len())];
        match reader.read(given, given.len() == rest.len()).ok()? {
            Found::Page(page) => {
                assert_eq!(page.place.journal, JOURNAL);
                assert_eq!(page.place.segment, SEGMENT);
                assert_eq!(reader.block(), block + page.blocks);
                journal_entries(page.entries);
                pages.push((block, reader.block(), page.place.write));
                wanted = window;
            }
            Found::More(length) => {
                assert!(length > given.len(), "more is wanted");
                assert_eq!(reader.block(), block);
                wanted = length;
            }
            Found::Nothing => {
                assert_eq!(reader.block(), block + 1);
                wanted = window;
            }
        }
    }
    let last_write = pages.last().map_or(0, |page| page.2) + u64::from(numbers.1 & 1);
    let goes_on_to = (numbers.1 & 2 > 0).then_some(u32::from(numbers.0));
    Some((pages, reader.finish(goes_on_to, last_write)))
}

/// Plans the reading of files that all begin as this segment does.
fn plans(bytes: &[u8], numbers: (u8, u8)) {
    let block = &bytes[..bytes.len().min(OPENING_BYTES)];
    let Ok(opening) = opening(block, SEGMENT) else { return };
    if let Some(opening) = &opening {
        let page = page::open(block).expect("it has an opening");
        assert_eq!(page.place.segment, opening.segment);
        let Ok(Entry::Head(head)) = decode_entry(&mut &page.entries[..]) else {
            panic!("an opening is a head")
        };
        assert_eq!((head.name, head.oldest), (&*opening.name, opening.oldest));
    }
    let candidate =
        |number: u64| Candidate { number: SegmentNumber(number), opening: opening.clone() };
    let own = opening.as_ref().map_or(0, |opening| opening.segment.0);
    let others = [1, SEGMENT.0, own, own.saturating_add(1), 1 << 40, numbers.0.into()];
    let files: Vec<Candidate> = others.iter().map(|number| candidate(*number)).collect();
    let shard = opening.as_ref().map_or((0, 1), |opening| opening.shard);
    let name = opening.as_ref().map_or("a", |opening| &opening.name);
    let count = files.len();
    let plan = plan(files, JOURNAL, shard, name);
    assert!(plan.segments.len() <= count);
    assert!(plan.segments.windows(2).all(|two| two[0].0 <= two[1].0));
}

/// The blocks that an input describes: a kind, a length, and so many bytes of it; again and again.
///
/// - Sealed: 5 bytes tell journal, segment, write and block of its beginning, relative to those
///   that would be right; the others are entries. Checksum and lengths are right.
/// - Newer: the same, in a format that no release knows.
/// - Raw: the bytes, and zeros.
/// - Blank: zeros.
pub fn segment_of(data: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), data);
    let mut write = 1;
    for _ in 0..PAGES_MAX {
        let [kind, low, high, after @ ..] = rest else { break };
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (body, after) = after.split_at(length);
        rest = after;
        let begins = out.len();
        match kind % 4 {
            kind @ (SEALED | NEWER) => {
                let [journal, segment, writes, blocks, shape, entries @ ..] = body else {
                    continue;
                };
                write += u64::from(*writes);
                let block = (begins / BLOCK_BYTES) as u32;
                let place = Place {
                    journal: JournalId(JOURNAL.0 ^ u64::from(*journal)),
                    segment: SegmentNumber(SEGMENT.0 ^ u64::from(*segment)),
                    write,
                    begins: block.saturating_sub(u32::from(*blocks)),
                };
                let time = u64::from(*shape);
                let stamp = Stamp { boot: time % 3, mono: MonoNs(time), wall: WallMs(time) };
                page::begin(&mut out);
                let entries = &entries[..entries.len().min(ENTRIES_BYTES_MAX)];
                // Long pages of short inputs.
                let times = 1 + usize::from(*shape >> 6) * BLOCK_BYTES / (entries.len() + 1);
                let times = times.min(ENTRIES_BYTES_MAX / entries.len().max(1)).max(1);
                out.extend(entries.repeat(times));
                let used = out.len() - begins;
                page::pad(&mut out, begins);
                page::seal(&mut out[begins..], used, &place, &stamp);
                if kind == NEWER {
                    make_newer(&mut out[begins..], used);
                }
            }
            RAW => {
                out.extend_from_slice(&body[..body.len().min(ENTRIES_BYTES_MAX)]);
                page::pad(&mut out, begins);
            }
            // A blank block.
            _ => out.resize(begins + BLOCK_BYTES, 0),
        }
    }
    if data.len() % 7 == 1 {
        // The file ends within a block.
        out.truncate(out.len().saturating_sub(1_000));
    }
    out
}

/// Makes a page one of the next format, with a checksum that fits.
fn make_newer(page: &mut [u8], used: usize) {
    page[4..6].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    let sum = crc32(page[..64].iter().chain(&page[HEADER_BYTES..used]));
    page[64..68].copy_from_slice(&sum.to_le_bytes());
}

/// CRC-32 as in IEEE 802.3, by its definition.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
