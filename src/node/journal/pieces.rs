//! The bytes of files, one file after the other, in pieces that a thread fetches ahead.

// May panic: indices 5, cuts 2.
// Why it does not: found 6, fixed 1.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::journal::reader::READ_BYTES;

/// Buffers in use: one is read, one waits, one is filled.
const BUFFERS: usize = 3;

/// Bytes of a file.
struct Piece {
    buffer: Vec<u8>,
    /// How many bytes of the buffer are the file's.
    length: usize,
    /// Whether the file ends here.
    is_end: bool,
}

/// The bytes of one file after the other.
pub trait Bytes {
    /// The bytes that are there and were not skipped.
    fn bytes(&self) -> &[u8];

    /// Whether the file ends with these bytes.
    fn is_end(&self) -> bool;

    /// Leaves out so many bytes, at most those that are there.
    fn skip(&mut self, bytes: usize);

    /// Gets the next piece of the file, or with `is_new` the first of the next file. The last file
    /// must have been read to its end, or to an error.
    fn fetch(&mut self, is_new: bool) -> io::Result<()>;
}

/// Bytes that a thread fetches.
pub(super) struct Source {
    pieces: Receiver<io::Result<Piece>>,
    empty: Sender<Vec<u8>>,
    /// What is read; all behind `end` is old.
    window: Vec<u8>,
    begin: usize,
    end: usize,
    is_end: bool,
}

/// Runs `work` with a source of the files given, each with the number of bytes to read at most.
pub(super) fn with_source<T, E>(
    files: Vec<(&Path, u64)>,
    work: impl FnOnce(&mut Source) -> Result<T, E>,
) -> Result<T, E> {
    thread::scope(|scope| {
        // One piece waits here; the thread waits with the next.
        let (full, pieces) = sync_channel(1);
        let (empty, buffers) = channel();
        for _ in 0..BUFFERS {
            // The receiver is still here.
            let _ = empty.send(vec![0; READ_BYTES]);
        }
        let fetch = move || fetch_all(&files, &full, &buffers);
        // If there is no thread for it, the channel is closed and the first piece is an error.
        let _ = thread::Builder::new().name("journal-fetch".into()).spawn_scoped(scope, fetch);
        let window = Vec::new();
        let mut source = Source { pieces, empty, window, begin: 0, end: 0, is_end: true };
        // The source is dropped before the scope waits for the thread, which ends with it.
        let result = work(&mut source);
        drop(source);
        result
    })
}

impl Bytes for Source {
    fn bytes(&self) -> &[u8] {
        &self.window[self.begin..self.end]
    }

    fn is_end(&self) -> bool {
        self.is_end
    }

    fn skip(&mut self, bytes: usize) {
        self.begin = self.end.min(self.begin + bytes);
    }

    fn fetch(&mut self, is_new: bool) -> io::Result<()> {
        let gone =
            |_| io::Error::other("there is no thread to read it: raise the limit of threads");
        let Piece { mut buffer, length, is_end } = self.pieces.recv().map_err(gone)??;
        self.is_end = is_end;
        if is_new || self.begin == self.end {
            std::mem::swap(&mut self.window, &mut buffer);
            (self.begin, self.end) = (0, length);
        } else {
            self.window.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            let end = self.end + length;
            self.window.resize(self.window.len().max(end), 0);
            self.window[self.end..end].copy_from_slice(&buffer[..length]);
            self.end = end;
        }
        if buffer.len() >= READ_BYTES {
            // A thread that has nothing left to fetch wants no buffer.
            let _ = self.empty.send(buffer);
        }
        Ok(())
    }
}

/// Fetches all files until they end, or nobody wants the pieces any more. A file that cannot be
/// read ends with the error.
fn fetch_all(
    files: &[(&Path, u64)],
    full: &SyncSender<io::Result<Piece>>,
    buffers: &Receiver<Vec<u8>>,
) {
    for (path, bytes) in files {
        let fetched = match File::open(path) {
            Ok(file) => fetch_file(&mut file.take(*bytes), full, buffers),
            Err(error) => full.send(Err(error)).is_ok(),
        };
        if !fetched {
            return;
        }
    }
}

/// Fetches a file until it ends or cannot be read; what stands before the error comes first.
/// Returns whether anybody wants more.
fn fetch_file(
    file: &mut impl Read,
    full: &SyncSender<io::Result<Piece>>,
    buffers: &Receiver<Vec<u8>>,
) -> bool {
    loop {
        let Ok(mut buffer) = buffers.recv() else { return false };
        let (length, error) = fill(file, &mut buffer[..READ_BYTES]);
        let is_end = length < READ_BYTES && error.is_none();
        if full.send(Ok(Piece { buffer, length, is_end })).is_err() {
            return false;
        }
        match error {
            Some(error) => return full.send(Err(error)).is_ok(),
            None if is_end => return true,
            None => {}
        }
    }
}

/// Fills the buffer, or less if the file ends or cannot be read.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (length, Some(error)),
        }
    }
    (length, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes and then an error.
    struct Faulty(usize);

    impl Read for Faulty {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(self.0);
            self.0 -= length;
            match length {
                0 => Err(io::Error::from_raw_os_error(libc::EIO)),
                _ => Ok(length),
            }
        }
    }

    /// Is interrupted before each of its bytes, as by a signal.
    struct Interrupted(std::vec::IntoIter<io::Result<u8>>);

    impl Read for Interrupted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(next) = self.0.next() else { return Ok(0) };
            buffer[0] = next?;
            Ok(1)
        }
    }

    #[test]
    fn a_read_that_a_signal_interrupts_goes_on() {
        let signal = || Err(io::Error::from(io::ErrorKind::Interrupted));
        let mut file = Interrupted(vec![signal(), Ok(b'a'), signal(), Ok(b'b')].into_iter());
        let mut buffer = [0; 4];
        let (length, error) = fill(&mut file, &mut buffer);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(&buffer[..length], b"ab");
    }

    #[test]
    fn what_is_left_of_a_piece_stands_before_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..2 * READ_BYTES + 5).map(|at| (at / 1_000) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        // The second time the file is read from its beginning, as far as is asked for.
        let files = vec![(&*path, u64::MAX), (&*path, 7)];
        with_source(files, |source| {
            source.fetch(true).expect("the first piece");
            source.skip(READ_BYTES - 3);
            assert!(source.bytes() == &bytes[READ_BYTES - 3..READ_BYTES]);
            source.fetch(false).expect("the second");
            assert!(source.bytes() == &bytes[READ_BYTES - 3..2 * READ_BYTES]);
            assert!(!source.is_end());
            source.skip(READ_BYTES);
            source.fetch(false).expect("the last");
            assert_eq!((source.bytes(), source.is_end()), (&bytes[2 * READ_BYTES - 3..], true));
            source.skip(READ_BYTES);
            assert!(source.bytes().is_empty());
            source.fetch(true).expect("the next file");
            assert_eq!((source.bytes(), source.is_end()), (&bytes[..7], true));
            Ok::<_, io::Error>(())
        })
        .expect("it is read");
    }

    #[test]
    fn a_file_that_cannot_be_read_gives_what_stands_before_and_the_next_one_follows() {
        let (full, pieces) = sync_channel(8);
        let (empty, buffers) = channel();
        // More faults than there are buffers.
        for bytes in [0, 5_000, READ_BYTES, READ_BYTES + 1, 0] {
            let mut lengths = Vec::new();
            for _ in 0..BUFFERS {
                empty.send(vec![0; READ_BYTES]).expect("it is received here");
            }
            assert!(fetch_file(&mut Faulty(bytes), &full, &buffers));
            while let Ok(piece) = pieces.try_recv() {
                match piece {
                    Ok(piece) => lengths.push((piece.length, piece.is_end)),
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
                }
            }
            assert_eq!(lengths.iter().map(|(length, _)| length).sum::<usize>(), bytes);
            assert!(lengths.iter().all(|(_, is_end)| !is_end), "an error is no end");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let good = folder.path().join("good");
        std::fs::write(&good, b"good").expect("written");
        // To read a folder is an error of the kernel.
        let bad = folder.path();
        let files = [bad, bad, bad, bad, &folder.path().join("absent"), &good];
        let files = files.into_iter().map(|path| (path, 9)).collect();
        with_source(files, |source| {
            for _ in 0..4 {
                source.fetch(true).expect("nothing stands before the error");
                assert!(source.bytes().is_empty() && !source.is_end());
                source.fetch(false).expect_err("a folder has no bytes");
            }
            source.fetch(true).expect_err("it is absent");
            source.fetch(true).expect("it is good");
            assert_eq!((source.bytes(), source.is_end()), (&b"good"[..], true));
            Ok::<_, io::Error>(())
        })
        .expect("it ends");
    }
}
