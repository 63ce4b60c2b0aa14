//! The bytes of files, one file after the other, in pieces that a thread fetches ahead.

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
    /// must have been read to its end.
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

/// Fetches all files until they end, one cannot be read, or nobody wants the pieces any more.
fn fetch_all(
    files: &[(&Path, u64)],
    full: &SyncSender<io::Result<Piece>>,
    buffers: &Receiver<Vec<u8>>,
) {
    for (path, bytes) in files {
        let mut file = match File::open(path) {
            Ok(file) => file.take(*bytes),
            Err(error) => return drop(full.send(Err(error))),
        };
        loop {
            let Ok(mut buffer) = buffers.recv() else { return };
            let piece = fill(&mut file, &mut buffer[..READ_BYTES]);
            let piece = piece.map(|length| Piece { buffer, length, is_end: length < READ_BYTES });
            let is_last = piece.as_ref().map_or(true, |piece| piece.is_end);
            let is_error = piece.is_err();
            if full.send(piece).is_err() || is_error {
                return;
            }
            if is_last {
                break;
            }
        }
    }
}

/// Fills the buffer, or less if the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
