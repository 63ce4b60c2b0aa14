//! A disk: directories, names and files, in what is durable and in what only memory knows.
//!
//! - A name that was made, changed or removed is durable only after its directory was synced. At a
//!   loss of power the changes since then are kept in their order up to any of them.
//! - A write is durable as a whole when it has ended. A write that was under way when the process
//!   died has reached the disk in any of its blocks of 4 KiB.

use std::collections::BTreeMap;

use super::random::Stream;

/// Bytes that the disk writes as one.
pub const BLOCK_BYTES: usize = 4_096;

/// A file, whatever its name is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileId(usize);

/// A write under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WriteId(u64);

type Names = BTreeMap<String, FileId>;

/// A name that changes.
#[derive(Clone, Debug)]
enum Change {
    Create(String, FileId),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
struct Directory {
    names: Names,
    durable: Names,
    /// What was changed since the directory was synced.
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    file: FileId,
    offset: usize,
    bytes: Vec<u8>,
}

/// The disk of one machine.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: Vec<Vec<u8>>,
    directories: BTreeMap<String, Directory>,
    under_way: BTreeMap<WriteId, UnderWay>,
    begun: u64,
}

impl Disk {
    /// Makes a directory, which is durable at once.
    pub fn make_directory(&mut self, path: String) {
        self.directories.entry(path).or_default();
    }

    /// Removes a directory with all that is in it, for good.
    pub fn remove_directory(&mut self, path: &str) {
        self.directories.remove(path);
    }

    /// Returns the paths of all directories.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.directories.keys().map(String::as_str)
    }

    /// Returns the names in a directory, and their files.
    pub fn names(&self, directory: &str) -> impl Iterator<Item = (&str, FileId)> {
        let names = self.directories.get(directory).into_iter().flat_map(|held| &held.names);
        names.map(|(name, file)| (name.as_str(), *file))
    }

    /// Makes a file of so many zeros. Its bytes are durable, its name is not.
    pub fn create(&mut self, directory: &str, name: String, bytes: usize) {
        let file = FileId(self.files.len());
        self.files.push(vec![0; bytes]);
        self.change(directory, Change::Create(name, file));
    }

    /// Gives a file another name. A file that had the name is gone.
    pub fn rename(&mut self, directory: &str, from: &str, to: String) {
        self.change(directory, Change::Rename(from.to_owned(), to));
    }

    /// Removes a name.
    pub fn remove(&mut self, directory: &str, name: &str) {
        self.change(directory, Change::Remove(name.to_owned()));
    }

    fn change(&mut self, directory: &str, change: Change) {
        let held = self.directories.get_mut(directory).expect("the directory is there");
        apply(&mut held.names, &change);
        held.changes.push(change);
    }

    /// Makes all names of a directory durable.
    pub fn sync(&mut self, directory: &str) {
        let held = self.directories.get_mut(directory).expect("the directory is there");
        held.changes.clear();
        held.durable = held.names.clone();
    }

    /// Returns a file by its name.
    pub fn file(&self, directory: &str, name: &str) -> Option<FileId> {
        self.directories.get(directory)?.names.get(name).copied()
    }

    /// Returns what stands in a file.
    pub fn bytes(&self, file: FileId) -> &[u8] {
        &self.files[file.0]
    }

    /// Begins a write of whole blocks.
    pub fn begin_write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> WriteId {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES));
        assert!(offset + bytes.len() <= self.files[file.0].len(), "a write within its file");
        self.begun += 1;
        let id = WriteId(self.begun);
        self.under_way.insert(id, UnderWay { file, offset, bytes: bytes.to_vec() });
        id
    }

    /// Ends a write: its bytes are durable.
    pub fn end_write(&mut self, id: WriteId) {
        let UnderWay { file, offset, bytes } = self.under_way.remove(&id).expect("it was begun");
        self.files[file.0][offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    /// Returns whether any write is under way.
    pub fn is_writing(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Ends the process, or all writes with an error: each write under way has reached the disk in
    /// any of its blocks.
    pub fn kill(&mut self, draw: &mut Stream) {
        for UnderWay { file, offset, bytes } in std::mem::take(&mut self.under_way).into_values() {
            let blocks = bytes.len() / BLOCK_BYTES;
            let way = draw.range(0, 3);
            let until = draw.range(0, blocks as u64) as usize;
            for block in 0..blocks {
                let is_there = match way {
                    0 => false,
                    1 => true,
                    2 => block < until,
                    _ => draw.chance(50),
                };
                if is_there {
                    let at = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                    let into = offset + at.start..offset + at.end;
                    self.files[file.0][into].copy_from_slice(&bytes[at]);
                }
            }
        }
    }

    /// Ends the machine: as [`Disk::kill`], and names that were not synced are kept up to any
    /// change.
    pub fn lose_power(&mut self, draw: &mut Stream) {
        self.kill(draw);
        for held in self.directories.values_mut() {
            let kept = draw.range(0, held.changes.len() as u64) as usize;
            for change in &held.changes[..kept] {
                apply(&mut held.durable, change);
            }
            held.changes.clear();
            held.names = held.durable.clone();
        }
    }

    /// Turns a bit of a file over.
    pub fn flip(&mut self, file: FileId, bit: usize) {
        self.files[file.0][bit / 8] ^= 1 << (bit % 8);
    }
}

fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Create(name, file) => {
            names.insert(name.clone(), *file);
        }
        Change::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Change::Remove(name) => {
            names.remove(name);
        }
    }
}
