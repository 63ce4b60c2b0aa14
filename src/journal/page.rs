//! Pages: entries in whole blocks, with a header that says where they belong and a checksum.
//!
//! ```text
//!  0  mark "Cjpg"
//!  4  format u16
//!  6  blocks u16: blocks of 4 KiB of the page
//!  8  used u32: bytes of entries behind the header; zeros fill the last block
//! 12  begins u32: the block of the segment at which the page's write begins
//! 16  journal u64
//! 24  segment u64
//! 32  write u64: counts the writes of the journal, from 1
//! 40  boot u64: which boot of the machine the monotonic time belongs to
//! 48  monotonic time u64, ns
//! 56  wall time u64, ms
//! 64  checksum u32: CRC-32 of the 64 bytes before and of the entries
//! 68  zeros
//! 72  entries
//! ```
//!
//! Numbers are little-endian. The number of the segment is part of what the checksum covers: a page
//! that stands in a segment from that file's former life is none.

// May panic: assertions 1, expectations 2, indices 16, cuts 3.
// Why it does not: found 7, fixed 14, ordered 1.
// Reads the wall clock: reboot 1.

use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, WallMs};

use super::{BLOCK_BYTES, FORMAT, JournalId, SegmentNumber};

const MARK: [u8; 4] = *b"Cjpg";
const CHECKSUM_AT: usize = 64;
/// Bytes of a page's header.
pub const HEADER_BYTES: usize = 72;
/// Most blocks of a page: one entry of 4 MiB with room to spare.
pub const BLOCKS_MAX: usize = 2_048;

/// Both clocks at the moment of a write, and the boot of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// A number that another boot of the machine does not have.
    pub boot: u64,
    /// The monotonic clock.
    pub mono: MonoNs,
    /// The wall clock.
    pub wall: WallMs,
}

/// Where a page belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The journal.
    pub journal: JournalId,
    /// The segment.
    pub segment: SegmentNumber,
    /// The number of its write, from 1.
    pub write: u64,
    /// The block of the segment at which the write begins.
    pub begins: u32,
}

/// A page that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page<'a> {
    /// The format in which the page is written.
    pub format: u16,
    /// Where the page belongs.
    pub place: Place,
    /// When it was written.
    pub stamp: Stamp,
    /// Blocks of the page.
    pub blocks: u32,
    /// The entries, one after the other.
    pub entries: &'a [u8],
}

/// Why bytes are no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// All of the block is zero: it was never written.
    Blank,
    /// The page goes on behind the bytes given. So many bytes are needed.
    Longer(usize),
    /// The page is written in a format that this release does not know.
    Newer(u16),
    /// The bytes are damaged, of another journal, or of the file's former life.
    Foreign,
}

/// Appends the header of a page, to be filled by [`seal`].
pub fn begin(out: &mut Vec<u8>) {
    out.resize(out.len() + HEADER_BYTES, 0);
}

/// Fills the last block of a page that began at `begins` with zeros.
pub fn pad(out: &mut Vec<u8>, begins: usize) {
    let used = out.len() - begins;
    out.resize(begins + used.next_multiple_of(BLOCK_BYTES), 0);
}

/// Writes the header of a page: `bytes` are its blocks, of which `used` bytes are header and
/// entries. Cost: a CRC-32 of the used bytes.
pub fn seal(bytes: &mut [u8], used: usize, place: &Place, stamp: &Stamp) {
    assert!(bytes.len().is_multiple_of(BLOCK_BYTES) && used <= bytes.len());
    let blocks = (bytes.len() / BLOCK_BYTES) as u16;
    let mut header = [0; HEADER_BYTES];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        header[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&MARK);
    put(&FORMAT.to_le_bytes());
    put(&blocks.to_le_bytes());
    put(&((used - HEADER_BYTES) as u32).to_le_bytes());
    put(&place.begins.to_le_bytes());
    put(&place.journal.0.to_le_bytes());
    put(&place.segment.0.to_le_bytes());
    put(&place.write.to_le_bytes());
    put(&stamp.boot.to_le_bytes());
    put(&stamp.mono.0.to_le_bytes());
    put(&stamp.wall.0.to_le_bytes());
    let checksum = checksum(&header[..CHECKSUM_AT], &bytes[HEADER_BYTES..used]);
    header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    bytes[..HEADER_BYTES].copy_from_slice(&header);
}

/// Reads the page at the front of `bytes`. Whether it belongs where it stands the caller compares.
/// Cost: a CRC-32 of the used bytes.
pub fn open(bytes: &[u8]) -> Result<Page<'_>, NoPage> {
    let block = &bytes[..BLOCK_BYTES.min(bytes.len())];
    if block.len() < BLOCK_BYTES {
        return Err(NoPage::Longer(BLOCK_BYTES));
    }
    if block[..4] != MARK {
        let is_blank = block.iter().all(|&byte| byte == 0);
        return Err(if is_blank { NoPage::Blank } else { NoPage::Foreign });
    }
    let u16_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().expect("in the block"));
    let u64_at = |at: usize| u64::from_le_bytes(*block[at..].first_chunk().expect("in the block"));
    let (format, blocks) = (u16_at(4), usize::from(u16_at(6)));
    let used = HEADER_BYTES + u32_at(8) as usize;
    let length = blocks * BLOCK_BYTES;
    if blocks == 0 || blocks > BLOCKS_MAX || used > length || used + BLOCK_BYTES <= length {
        return Err(NoPage::Foreign);
    }
    let Some(page) = bytes.get(..length) else { return Err(NoPage::Longer(length)) };
    let found = checksum(&page[..CHECKSUM_AT], &page[HEADER_BYTES..used]);
    if found != u32_at(CHECKSUM_AT) && !is_planted(Bug::JournalWithoutChecksum) {
        return Err(NoPage::Foreign);
    }
    let rest = &page[used..];
    let is_clean = page[CHECKSUM_AT + 4..HEADER_BYTES].iter().chain(rest).all(|&byte| byte == 0);
    if !is_clean && !is_planted(Bug::JournalWithoutChecksum) {
        return Err(NoPage::Foreign);
    }
    if format == 0 || format > FORMAT {
        return Err(NoPage::Newer(format));
    }
    Ok(Page {
        format,
        place: Place {
            journal: JournalId(u64_at(16)),
            segment: SegmentNumber(u64_at(24)),
            write: u64_at(32),
            begins: u32_at(12),
        },
        stamp: Stamp { boot: u64_at(40), mono: MonoNs(u64_at(48)), wall: WallMs(u64_at(56)) },
        blocks: blocks as u32,
        entries: &page[HEADER_BYTES..used],
    })
}

fn checksum(header: &[u8], entries: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(entries);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(entries: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes);
        bytes.extend_from_slice(entries);
        let used = bytes.len();
        pad(&mut bytes, 0);
        seal(&mut bytes, used, &PLACE, &STAMP);
        bytes
    }

    const PLACE: Place =
        Place { journal: JournalId(5), segment: SegmentNumber(6), write: 7, begins: 8 };
    const STAMP: Stamp = Stamp { boot: 1, mono: MonoNs(2), wall: WallMs(3) };

    #[test]
    fn a_page_is_read_as_it_was_written() {
        for length in [0, 1, 4_023, 4_024, 4_025, 100_000] {
            let entries: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let bytes = page(&entries);
            let page = open(&bytes).expect("it is a page");
            assert_eq!((page.place, page.stamp, page.format), (PLACE, STAMP, FORMAT));
            assert_eq!(page.entries, entries);
            assert_eq!(page.blocks as usize * BLOCK_BYTES, bytes.len());
            assert_eq!(bytes.len(), (length + HEADER_BYTES).next_multiple_of(BLOCK_BYTES));
        }
    }

    #[test]
    fn no_flipped_bit_goes_unseen() {
        let bytes = page(&[0x5a; 300]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_missing_blank_or_newer_is_told_apart() {
        let long = page(&[1; 9_000]);
        assert_eq!(open(&long[..100]), Err(NoPage::Longer(BLOCK_BYTES)));
        assert_eq!(open(&long[..BLOCK_BYTES]), Err(NoPage::Longer(3 * BLOCK_BYTES)));
        assert_eq!(open(&[0; BLOCK_BYTES]), Err(NoPage::Blank));
        assert_eq!(open(&[1; BLOCK_BYTES]), Err(NoPage::Foreign));
        let mut newer = page(&[1; 10]);
        newer[4..6].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        assert_eq!(open(&newer), Err(NoPage::Foreign), "its checksum does not fit");
        let sum = checksum(&newer[..CHECKSUM_AT], &newer[HEADER_BYTES..HEADER_BYTES + 10]);
        newer[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(open(&newer), Err(NoPage::Newer(FORMAT + 1)));
    }
}
