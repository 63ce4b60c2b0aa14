//! A copy of a data directory while its node runs. The files that are copied do not change any more
//! ([`Order::BackUp`](crate::core::journal::Order::BackUp)), so a hard link is a copy; on another
//! file system the bytes are copied. The copy appears under its name when it is whole.
//!
//! The disk that a backup goes to may be slow, or not answer at all. So the thread that makes
//! segments only makes a [`Snapshot`], links in the data directory. Whoever asked for the backup
//! writes it from there to its [`Target`].

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use crate::journal::SegmentNumber;
use crate::node::journal::directory::{
    DESTINATIONS, DataDirectory, GOAL, Generation, INCOMPLETE, NODE, SNAPSHOT, ShardDirectory,
};
use crate::ring::sync_directory;

/// Why there is no backup. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Another one is being made.
    #[error("another backup is being made; try again when it is done")]
    Busy,
    /// Another one was asked for before, and has not ended.
    #[error(
        "another backup, to {directory}, is being made for {seconds} s; try again when it is done. \
         GET /backup tells how far it is. If its disk does not answer, it ends when the disk does, \
         or when the node is restarted"
    )]
    Running {
        /// Where it goes to.
        directory: String,
        /// How long it has taken so far.
        seconds: u64,
    },
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

/// How much of a backup is written.
#[derive(Debug, Default)]
pub struct Written {
    /// Bytes of segments that are there.
    pub bytes: AtomicU64,
    /// Bytes that are to be there; 0: not known yet.
    pub all: AtomicU64,
}

/// Where a backup is to be.
#[derive(Debug)]
pub struct Target {
    directory: PathBuf,
    unfinished: PathBuf,
}

impl Target {
    /// Takes a directory that does not exist, or is empty, for a backup of this data directory.
    pub fn take(directory: &Path, data: &Path) -> Result<Self, BackupError> {
        // Without a slash at its end.
        let directory: &Path = &directory.components().collect::<PathBuf>();
        let name = || directory.display().to_string();
        if !directory.is_absolute() {
            return Err(BackupError::NotAbsolute(name()));
        }
        let real = |path: &Path| fs::canonicalize(path).ok();
        match directory.parent().and_then(real) {
            None => return Err(BackupError::Misplaced(name(), "no such directory is there")),
            Some(parent) if real(data).is_some_and(|data| parent.starts_with(data)) => {
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
        Ok(Self { directory: directory.to_owned(), unfinished: unfinished.into() })
    }

    /// Gives the backup its name.
    fn finish(&self) -> Result<(), BackupError> {
        sync_names(&self.unfinished)?;
        fs::rename(&self.unfinished, &self.directory)
            .map_err(failed("rename", &self.unfinished))?;
        self.directory.parent().map_or(Ok(()), sync_names)
    }
}

impl Drop for Target {
    /// Removes what is there of a backup that failed.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

/// What a backup is made of: a directory in the data directory with links to all files. It is gone
/// when the value is dropped, or at the next start.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    generation: Generation,
    shards: usize,
    bytes: u64,
    is_linked: bool,
    /// Dropped after the directory is gone.
    _in_use: Arc<()>,
}

impl Snapshot {
    /// Begins one, with the files beside the segments.
    pub fn begin(data: &DataDirectory, generation: Generation) -> Result<Self, BackupError> {
        let path = data.path().join(SNAPSHOT);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
        }
        let made = path.join(generation.name());
        fs::create_dir_all(&made).map_err(failed("make", &made))?;
        let (shards, bytes, is_linked, _in_use) = (0, 0, true, Arc::default());
        let snapshot = Self { path, generation, shards, bytes, is_linked, _in_use };
        let from = data.identity_path();
        fs::copy(&from, snapshot.path.join(NODE)).map_err(failed("copy", &from))?;
        let from = data.path().join(DESTINATIONS);
        match fs::copy(&from, snapshot.path.join(DESTINATIONS)) {
            Ok(_) => {}
            // Nobody ordered anything.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("copy", &from)(error)),
        }
        let marker = snapshot.path.join(INCOMPLETE);
        fs::write(&marker, "").map_err(failed("make", &marker))?;
        Ok(snapshot)
    }

    /// Tells whether the snapshot is still there.
    pub fn watch(&self) -> Weak<()> {
        Arc::downgrade(&self._in_use)
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
        let to = self.path.join(self.generation.name()).join(shard.shard.to_string());
        fs::create_dir_all(&to).map_err(failed("make", &to))?;
        for from in (oldest.0..=last.0).map(|number| shard.segment_path(SegmentNumber(number))) {
            // Missing: it was so at the start, which was told as damage then. A start on the backup
            // tells it again, until memory has been written anew.
            if let Some(name) = from.file_name()
                && let Some((bytes, is_linked)) = link_or_copy(&from, &to.join(name))?
            {
                self.bytes += bytes;
                self.is_linked &= is_linked;
            }
        }
        self.shards += 1;
        Ok(())
    }

    /// Notes what is to be removed if the process ends before the backup does. A data directory
    /// without room for this note may have a backup all the same.
    pub fn note_goal(&self, target: &Target) {
        let _ = fs::write(self.path.join(GOAL), target.unfinished.as_os_str().as_bytes());
    }

    /// Writes the backup. Takes as long as the disk of the target takes.
    pub fn write_to(self, target: &Target, written: &Written) -> Result<BackedUp, BackupError> {
        written.all.store(self.bytes, Relaxed);
        self.note_goal(target);
        let to = &target.unfinished;
        if to.exists() {
            fs::remove_dir_all(to).map_err(failed("remove", to))?;
        }
        let mut made = BackedUp {
            directory: target.directory.clone(),
            segments: 0,
            bytes: 0,
            is_linked: self.is_linked,
        };
        for shard in 0..self.shards {
            let within = PathBuf::from(self.generation.name()).join(shard.to_string());
            let (from, to) = (self.path.join(&within), to.join(&within));
            fs::create_dir_all(&to).map_err(failed("make", &to))?;
            for name in names_in(&from)? {
                if let Some((bytes, is_linked)) = link_or_copy(&from.join(&name), &to.join(&name))?
                {
                    made.bytes += bytes;
                    made.segments += 1;
                    written.bytes.store(made.bytes, Relaxed);
                    made.is_linked &= is_linked;
                }
            }
            sync_names(&to)?;
        }
        sync_names(&to.join(self.generation.name()))?;
        for name in [NODE, DESTINATIONS, INCOMPLETE] {
            let (from, to) = (self.path.join(name), to.join(name));
            if from.exists() {
                fs::copy(&from, &to).map_err(failed("copy", &from))?;
                sync_file(&to)?;
            }
        }
        target.finish()?;
        Ok(made)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes another name for a file, or copies it where that cannot be. Returns its bytes, and whether
/// it was linked; `None`: there is no such file.
fn link_or_copy(from: &Path, to: &Path) -> Result<Option<(u64, bool)>, BackupError> {
    match fs::hard_link(from, to) {
        Ok(()) => {
            let found = fs::metadata(to).map_err(failed("look at", to))?;
            Ok(Some((found.len(), true)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) => {
            let bytes = fs::copy(from, to).map_err(failed("copy", from))?;
            sync_file(to)?;
            Ok(Some((bytes, false)))
        }
    }
}

fn names_in(path: &Path) -> Result<Vec<OsString>, BackupError> {
    let entries = fs::read_dir(path).map_err(failed("list", path))?;
    entries.map(|entry| Ok(entry.map_err(failed("list", path))?.file_name())).collect()
}

fn sync_names(directory: &Path) -> Result<(), BackupError> {
    sync_directory(directory).map_err(failed("sync", directory))
}

fn sync_file(path: &Path) -> Result<(), BackupError> {
    fs::File::open(path).and_then(|file| file.sync_all()).map_err(failed("sync", path))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.display().to_string();
    move |source| BackupError::Failed { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn a_backup_goes_to_a_new_directory_outside_of_what_it_backs_up() {
        let (data, elsewhere) = (folder(), folder());
        let take = |path: &Path| Target::take(path, data.path());
        let path = |name: &str| elsewhere.path().join(name);
        assert!(matches!(take(Path::new("backup")), Err(BackupError::NotAbsolute(_))));
        let absent = take(&path("absent/backup"));
        assert!(matches!(absent, Err(BackupError::Misplaced(_, why)) if why.contains("no such")));
        let within = take(&data.path().join("backup"));
        assert!(matches!(within, Err(BackupError::Misplaced(_, why)) if why.contains("in what")));
        fs::create_dir(path("full")).expect("made");
        fs::write(path("full/file"), "").expect("written");
        assert!(matches!(take(&path("full")), Err(BackupError::Exists(_))));
        fs::write(path("file"), "").expect("written");
        assert!(matches!(take(&path("file")), Err(BackupError::Exists(_))));
        fs::create_dir(path("empty")).expect("made");
        assert!(take(&path("empty")).is_ok() && take(&path("new/")).is_ok());
    }

    #[test]
    fn nothing_is_left_of_a_backup_that_failed() {
        let (data, elsewhere) = (folder(), folder());
        let path = elsewhere.path().join("backup");
        let target = Target::take(&path, data.path()).expect("new");
        let unfinished = elsewhere.path().join("backup.unfinished");
        fs::create_dir(&unfinished).expect("made");
        fs::write(unfinished.join("file"), "").expect("written");
        drop(target);
        assert!(!unfinished.exists());
        let target = Target::take(&path, data.path()).expect("new");
        fs::create_dir(&unfinished).expect("made");
        target.finish().expect("it gets its name");
        drop(target);
        assert!(path.is_dir() && !unfinished.exists());
    }

    #[test]
    fn what_cannot_be_linked_is_copied_and_told() {
        let (folder, elsewhere) = (folder(), folder());
        let data = DataDirectory::create_or_open(folder.path(), "10.0.0.1:7253").expect("new");
        let generation = data.begin_generation(2).expect("begun");
        let first = SegmentNumber(1);
        for shard in data.shards(generation) {
            fs::write(shard.segment_path(first), "bytes").expect("written");
        }
        let mut snapshot = Snapshot::begin(&data, generation).expect("begun");
        // A name that is taken cannot become a link.
        let [one, other] = [0, 1].map(|shard| data.shard(generation, shard));
        let within = snapshot.path.join(generation.name()).join("0");
        fs::create_dir_all(&within).expect("made");
        let copy = within.join(one.segment_path(first).file_name().expect("a name"));
        fs::write(&copy, "").expect("written");
        snapshot.add(&one, first, first).expect("copied");
        assert_eq!(fs::read_to_string(copy).expect("read"), "bytes");
        assert!(!snapshot.is_linked);
        // Segment 2 was missing at the start.
        snapshot.add(&other, first, SegmentNumber(2)).expect("linked");
        assert_eq!((snapshot.shards(), snapshot.bytes, snapshot.is_linked), (2, 10, false));
        let target = Target::take(&elsewhere.path().join("backup"), folder.path()).expect("new");
        let made = snapshot.write_to(&target, &Written::default()).expect("written");
        assert_eq!((made.segments, made.bytes, made.is_linked), (2, 10, false));
        let missing = link_or_copy(&folder.path().join("absent"), &folder.path().join("to"));
        assert!(matches!(missing, Ok(None)), "{missing:?}");
    }
}
