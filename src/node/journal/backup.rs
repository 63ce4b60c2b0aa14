//! A copy of a data directory while its node runs. The files that are copied do not change any more
//! ([`Order::BackUp`](crate::core::journal::Order::BackUp)), so a hard link is a copy; on another
//! file system the bytes are copied. The copy appears under its name when it is whole.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::journal::SegmentNumber;
use crate::node::journal::directory::{
    DESTINATIONS, DataDirectory, Generation, INCOMPLETE, ShardDirectory,
};
use crate::ring::sync_directory;

/// Why there is no backup. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Another one is being made.
    #[error("another backup is being made; try again when it is done")]
    Busy,
    /// The journal moves to another number of cores.
    #[error(
        "the journal is being written for another number of cores since the start; try again in a \
         minute"
    )]
    Moving,
    /// The target cannot be taken.
    #[error("{0} exists and is not empty; name a directory that does not exist")]
    Exists(String),
    /// The target is not an absolute path.
    #[error("{0} is not an absolute path; the node runs in another directory than you")]
    NotAbsolute(String),
    /// The target lies in the data directory, or nothing is there that it could lie in.
    #[error("{0} cannot hold a backup: {1}; name a new directory in one that exists")]
    Misplaced(String, &'static str),
    /// The node has no journal.
    #[error("this node has no journal; start it with --data-dir")]
    NoJournal,
    /// The node stops.
    #[error("the node stops; the backup was not made")]
    Stopped,
    /// A file operation failed.
    #[error("cannot {what} {path}: {source}. The unfinished backup is removed")]
    Failed {
        /// The operation.
        what: &'static str,
        /// The file or directory.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A backup that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackedUp {
    /// Where it is.
    pub directory: PathBuf,
    /// Files of segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the files share their blocks with the journal.
    pub is_linked: bool,
}

/// A backup that is being made.
#[derive(Debug)]
pub struct Backup {
    directory: PathBuf,
    unfinished: PathBuf,
    generation: Generation,
    shards: usize,
    segments: u64,
    bytes: u64,
    is_linked: bool,
}

impl Backup {
    /// Begins a backup in `directory`, which must not exist, or be empty.
    pub fn begin(
        directory: &Path,
        data: &DataDirectory,
        generation: Generation,
    ) -> Result<Self, BackupError> {
        // Without a slash at its end.
        let directory: &Path = &directory.components().collect::<PathBuf>();
        let name = || directory.display().to_string();
        if !directory.is_absolute() {
            return Err(BackupError::NotAbsolute(name()));
        }
        let real = |path: &Path| fs::canonicalize(path).ok();
        match directory.parent().and_then(real) {
            None => return Err(BackupError::Misplaced(name(), "no such directory is there")),
            Some(parent) if real(data.path()).is_some_and(|data| parent.starts_with(data)) => {
                let why = "it would lie in what it backs up";
                return Err(BackupError::Misplaced(name(), why));
            }
            Some(_) => {}
        }
        let is_empty = match fs::read_dir(directory) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if !is_empty {
            return Err(BackupError::Exists(name()));
        }
        let mut unfinished = directory.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(failed("remove", &unfinished))?;
        }
        let made = unfinished.join(generation.name());
        fs::create_dir_all(&made).map_err(failed("make", &made))?;
        let backup = Self {
            directory: directory.to_owned(),
            unfinished,
            generation,
            shards: 0,
            segments: 0,
            bytes: 0,
            is_linked: true,
        };
        let (from, to) = (data.identity_path(), backup.unfinished.join("node.toml"));
        fs::copy(&from, &to).map_err(failed("copy", &from))?;
        sync_file(&to)?;
        let (from, to) = (data.path().join(DESTINATIONS), backup.unfinished.join(DESTINATIONS));
        match fs::copy(&from, &to) {
            Ok(_) => sync_file(&to)?,
            // Nobody ordered anything.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("copy", &from)(error)),
        }
        let marker = backup.unfinished.join(INCOMPLETE);
        fs::write(&marker, "").map_err(failed("make", &marker))?;
        sync_file(&marker)?;
        Ok(backup)
    }

    /// How many shards it has.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// Adds the segments of a shard from `oldest` to `last`.
    pub fn add(
        &mut self,
        shard: &ShardDirectory,
        oldest: SegmentNumber,
        last: SegmentNumber,
    ) -> Result<(), BackupError> {
        let to = self.unfinished.join(self.generation.name()).join(shard.shard.to_string());
        fs::create_dir_all(&to).map_err(failed("make", &to))?;
        for number in (oldest.0..=last.0).map(SegmentNumber) {
            let from = shard.segment_path(number);
            let Some(name) = from.file_name() else { continue };
            let copy = to.join(name);
            self.bytes += match fs::hard_link(&from, &copy) {
                Ok(()) => fs::metadata(&copy).map_err(failed("look at", &copy))?.len(),
                // It was missing at the start, which was told as damage then. A start on the backup
                // tells it again, until memory has been written anew.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    self.is_linked = false;
                    let bytes = fs::copy(&from, &copy).map_err(failed("copy", &from))?;
                    sync_file(&copy)?;
                    bytes
                }
            };
            self.segments += 1;
        }
        self.shards += 1;
        sync_directory(&to).map_err(failed("sync", &to))
    }

    /// Gives the backup its name.
    pub fn end(self) -> Result<BackedUp, BackupError> {
        let generation = self.unfinished.join(self.generation.name());
        for path in [&generation, &self.unfinished] {
            sync_directory(path).map_err(failed("sync", path))?;
        }
        fs::rename(&self.unfinished, &self.directory)
            .map_err(failed("rename", &self.unfinished))?;
        if let Some(parent) = self.directory.parent() {
            sync_directory(parent).map_err(failed("sync", parent))?;
        }
        let (segments, bytes, is_linked) = (self.segments, self.bytes, self.is_linked);
        Ok(BackedUp { directory: self.directory.clone(), segments, bytes, is_linked })
    }
}

impl Drop for Backup {
    /// Removes what is there of a backup that failed.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

fn sync_file(path: &Path) -> Result<(), BackupError> {
    fs::File::open(path).and_then(|file| file.sync_all()).map_err(failed("sync", path))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.display().to_string();
    move |source| BackupError::Failed { what, path, source }
}
