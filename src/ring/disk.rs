//! What a ring has for durable writes: files, one buffer, and the one write in flight
//! (docs/design/ring.md).

// May panic: assertions 4, expectations 4, indices 2, cuts 1.
// Why it does not: found 2, ordered 8, kernel 1.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::completion::Errno;
use super::kernel::{WriteFile, WriteTarget};
use super::mapping::PageBytes;
use super::token::{Kind, Token};

/// Unit of durable writes, in bytes. O_DIRECT needs offsets, lengths and memory that are multiples
/// of the disk's block, and no supported disk has a larger block.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Most bytes of the buffer, 1 GiB: the kernel registers no larger one.
pub(super) const BUFFER_BYTES_MAX: usize = 1 << 30;

/// A file whose writes return when the disk has the bytes (O_DSYNC). Any thread opens it; a ring
/// takes it with [`Ring::keep_file`](super::Ring::keep_file).
#[derive(Debug)]
pub struct DurableFile {
    file: File,
    is_direct: bool,
}

impl DurableFile {
    /// Opens an existing file for writing, past the kernel's cache (O_DIRECT) if its file system
    /// can. The contents stay. Error: as open(2) tells. Cost: it may wait for the disk.
    pub fn open(path: &Path) -> io::Result<DurableFile> {
        let open =
            |flags| File::options().write(true).custom_flags(libc::O_DSYNC | flags).open(path);
        match open(libc::O_DIRECT) {
            Ok(file) => Ok(DurableFile { file, is_direct: true }),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Ok(DurableFile { file: open(0)?, is_direct: false })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether writes go past the kernel's cache. If not, each write is handed to a thread of the
    /// kernel and costs more.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The descriptor, to be closed.
    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.file.into()
    }

    /// The file, for writes that block.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

/// What the kernel has registered for the durable writes of a ring. What is not registered is
/// looked up, or pinned, for each write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRegistrations {
    /// Whether there is a table of files; if not, RLIMIT_NOFILE was too low.
    pub files: bool,
    /// Whether the buffer is pinned; if not, RLIMIT_MEMLOCK was too low.
    pub buffer: bool,
}

/// A file at its place.
pub(super) struct Kept {
    pub(super) file: DurableFile,
    /// Whether the table of the kernel has the file at the same place.
    pub(super) is_registered: bool,
}

/// The write in flight. The kernel reads the buffer from `written` to `length`.
#[derive(Debug)]
struct Writing {
    place: u32,
    /// Where in the file the first byte of the buffer goes.
    offset: u64,
    length: usize,
    /// How many bytes the kernel has written.
    written: usize,
}

impl Writing {
    /// Takes the kernel's word for what became of the unwritten rest: how many bytes of it were
    /// written, or a negative error number. `None`: the new rest is to be written.
    fn advance(&mut self, result: i32) -> Option<Result<(), Errno>> {
        match result {
            // Nothing written and no reason told: to try again could go on for ever.
            0 => Some(Err(Errno(libc::EIO))),
            count @ 1.. => {
                self.written += count as usize;
                (self.written >= self.length).then_some(Ok(()))
            }
            error => match -error {
                libc::EINTR | libc::EAGAIN => None,
                errno => Some(Err(Errno(errno))),
            },
        }
    }
}

/// Files and the buffer of a ring that writes.
pub(super) struct Disk {
    places: Vec<Option<Kept>>,
    registrations: DiskRegistrations,
    /// Nobody writes to it while a write is in flight.
    buffer: PageBytes,
    writing: Option<Writing>,
}

impl Disk {
    pub(super) fn new(files: u32, buffer: PageBytes, registrations: DiskRegistrations) -> Disk {
        let places = (0..files).map(|_| None).collect();
        Disk { places, registrations, buffer, writing: None }
    }

    pub(super) fn registrations(&self) -> DiskRegistrations {
        self.registrations
    }

    /// Puts a file at a place, or none, and returns the former one. Panics if a write to the place
    /// is in flight.
    pub(super) fn replace(&mut self, place: u32, kept: Option<Kept>) -> Option<Kept> {
        let is_writing_there = self.writing.as_ref().is_some_and(|writing| writing.place == place);
        assert!(!is_writing_there, "a file stays at its place until its write has completed");
        let found = self.places.get_mut(place as usize);
        std::mem::replace(found.expect("a place is below the number of `prepare_disk`"), kept)
    }

    /// Copies `bytes` to the buffer and notes their write.
    pub(super) fn begin(&mut self, place: u32, offset: u64, bytes: &[u8]) {
        assert!(self.writing.is_none(), "one durable write at a time per ring");
        assert!(self.kept(place).is_some(), "no file is at place {place}");
        let (length, room) = (bytes.len(), self.buffer.bytes().len());
        assert!(
            (1..=room).contains(&length)
                && length.is_multiple_of(BLOCK_BYTES)
                && offset.is_multiple_of(BLOCK_BYTES as u64),
            "a durable write is of whole blocks of {BLOCK_BYTES} bytes, at most {room}: not of \
             {length} at {offset}"
        );
        // No write is in flight, so the kernel does not read the memory.
        self.buffer.bytes_mut()[..length].copy_from_slice(bytes);
        self.writing = Some(Writing { place, offset, length, written: 0 });
    }

    /// The token and the target of the unwritten rest, and the rest itself.
    pub(super) fn rest(&self) -> (Token, WriteTarget, &[u8]) {
        let writing = self.writing.as_ref().expect("the caller has begun it");
        let kept = self.kept(writing.place).expect("a file stays until its write has completed");
        let file = if kept.is_registered {
            WriteFile::Place(writing.place)
        } else {
            WriteFile::Descriptor(kept.file.file().as_raw_fd())
        };
        let offset = writing.offset + writing.written as u64;
        let target = WriteTarget { file, offset, is_buffer_registered: self.registrations.buffer };
        let token = Token::of_slot(Kind::Write, writing.place, 0);
        (token, target, &self.buffer.bytes()[writing.written..writing.length])
    }

    /// Takes the kernel's word ([`Writing::advance`]). `Some`: the write ended; its place and its
    /// result.
    pub(super) fn advance(&mut self, result: i32) -> Option<(u32, Result<(), Errno>)> {
        let writing = self.writing.as_mut().expect("it stays until its completion");
        let ended = writing.advance(result)?;
        self.writing.take().map(|writing| (writing.place, ended))
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Gives the buffer up if the kernel may still read it.
    pub(super) fn leak_write(&mut self) {
        if self.is_writing() {
            self.buffer.leak();
        }
    }

    fn kept(&self, place: u32) -> Option<&Kept> {
        self.places.get(place as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writing() -> Writing {
        Writing { place: 0, offset: 4096, length: 8192, written: 0 }
    }

    #[test]
    fn a_short_write_goes_on_where_it_ended() {
        let mut writing = writing();
        assert_eq!(writing.advance(4096), None);
        assert_eq!(writing.written, 4096);
        assert_eq!(writing.advance(4095), None);
        assert_eq!(writing.advance(1), Some(Ok(())));
    }

    #[test]
    fn an_interrupted_write_is_tried_again() {
        for error in [libc::EINTR, libc::EAGAIN] {
            let mut writing = writing();
            assert_eq!(writing.advance(-error), None);
            assert_eq!(writing.written, 0);
        }
    }

    #[test]
    fn a_write_of_nothing_is_an_error() {
        assert_eq!(writing().advance(0), Some(Err(Errno(libc::EIO))));
        assert_eq!(writing().advance(-libc::ENOSPC), Some(Err(Errno(libc::ENOSPC))));
    }
}
