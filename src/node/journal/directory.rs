//! The data directory of a node.
//!
//! ```text
//! DATA/lock                          locked while a node or a tool uses the directory
//! DATA/node.toml                     whose directory it is (`identity`)
//! DATA/destinations                  what operators ordered (`control::destinations`)
//! DATA/incomplete                    it is a backup: it lacks what was acknowledged since
//! DATA/snapshot/                     links to all files, while a backup is written
//! DATA/0001-2/                       generation 1: the journals of 2 shards
//! DATA/0001-2/0/0000000000000001.segment    shard 0, segment 1, in hex digits
//! DATA/0001-2/0/spare-*.tmp          files made ahead, no segments yet
//! ```
//!
//! A restart with another number of shards begins another generation. All generations are read, in
//! their order; older ones are removed when the newest holds everything. A generation appears and
//! disappears as a whole, by a rename: half a generation could bring back a timer whose end stood
//! in the other half. Names that this file does not make are ignored.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use super::aside::DAMAGED;
use super::identity::{FORMAT, NoIdentity, identity_of, text_of};
use super::modes::{Distrust, close_to_others, distrust, make_for_owner};
use crate::base::limits::SHARDS_MAX;
use crate::journal::recovery::{OPENING_BYTES, opening};
use crate::journal::{JournalId, SegmentNumber};
use crate::ring::{DirectoryLock, create_anew, open_at_once, sync_directory, unpredictable};

pub use super::identity::Identity;

/// Whose directory it is.
pub const NODE: &str = "node.toml";
/// The file of what operators ordered for destinations. The journal only takes it into backups.
pub const DESTINATIONS: &str = "destinations";
/// A file that says that the journal may lack what the node acknowledged: it is a backup.
pub const INCOMPLETE: &str = "incomplete";
/// The directory that a backup is made from while it is under way.
pub const SNAPSHOT: &str = "snapshot";
/// A file in it that names what there is of the backup until it is whole.
pub const GOAL: &str = "goal";
const NODE_ASIDE: &str = "node.toml.tmp";
const LOCK: &str = "lock";
const SEGMENT: &str = ".segment";
/// What the names of files begin with that are made ahead.
pub(super) const SPARE: &str = "spare-";
/// Behind the name of a generation that is being made.
const BEGUN: &str = ".tmp";
/// Behind the name of a generation that is being removed.
const ENDED: &str = ".removed";
/// Longest `node.toml` that is read. Its lines take less than 1 KiB.
const NODE_BYTES_MAX: u64 = 4_096;
/// Longest name of a path.
const PATH_BYTES_MAX: u64 = 4_096;
/// Highest number of a segment. A segment each microsecond takes 8 years to get there, and sums of
/// a few numbers do not overflow.
const SEGMENT_NUMBER_MAX: u64 = 1 << 48;
/// How long a start waits for the process that has the lock: the kernel closes the files of a
/// killed process a moment after the process is gone.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a tool waits for it.
const TOOL_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two tries to get the lock.
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// Why a data directory cannot be used. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// The path names nothing.
    #[error("there is no {path}. Name the directory that the node got with --data-dir")]
    Missing {
        /// The directory as the operator named it.
        path: String,
    },
    /// The path names something else.
    #[error("{path} is not a directory. Name a directory with --data-dir")]
    NotADirectory {
        /// The path as the operator named it.
        path: String,
    },
    /// No node has made this directory its own.
    #[error(
        "{path} is no data directory: it has no {NODE}. Name the directory that the node got with \
         --data-dir"
    )]
    NoJournal {
        /// The directory as the operator named it.
        path: String,
    },
    /// This user may not.
    #[error(
        "cannot {what} {path}: {source}. Give the directory to the user of this process, or run \
         this as its owner"
    )]
    Permission {
        /// The operation, e.g. `write`.
        what: &'static str,
        /// The file or directory.
        path: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// The file system is mounted read-only.
    #[error(
        "cannot {what} {path}: its file system is mounted read-only. Mount it read-write (after a \
         disk error the kernel mounts it so: see dmesg), or name a directory on another one with \
         --data-dir"
    )]
    ReadOnly {
        /// The operation, e.g. `write`.
        what: &'static str,
        /// The file or directory.
        path: String,
    },
    /// The kernel refused an operation.
    #[error(
        "cannot {what} {path}: {source}. Mend the disk or give it room, or name a directory on \
         another disk with --data-dir"
    )]
    Unusable {
        /// The operation, e.g. `write`.
        what: &'static str,
        /// The file or directory.
        path: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// Another node has made this directory its own.
    #[error(
        "{path} is the data directory of node {theirs}, and this node is {ours}. Give this node a \
         directory of its own with --data-dir, or name it {theirs} again"
    )]
    OtherNode {
        /// The directory as the operator named it.
        path: String,
        /// The name in the directory.
        theirs: String,
        /// The name of this node.
        ours: String,
    },
    /// A later release has written the directory.
    #[error(
        "{path} has format {format}, and this release reads {FORMAT}: start the release that wrote \
         it, or a later one"
    )]
    Newer {
        /// The file that tells the format.
        path: String,
        /// The format that it tells.
        format: i64,
    },
    /// The identity cannot be read.
    #[error("{path} is damaged: {why}. {remedy}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// Somebody else may put other files in the place of ours.
    #[error(
        "{path} {why}, so that others may put their own files in the place of the node's. {remedy}"
    )]
    NotOurs {
        /// The directory as the operator named it.
        path: String,
        /// Who else may.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// Something else is in it.
    #[error(
        "{path} is no data directory and has {found} in it. Name an empty directory with \
         --data-dir, or one that is not there yet: the node makes it"
    )]
    Strange {
        /// The directory as the operator named it.
        path: String,
        /// The first name that is not ours.
        found: String,
    },
    /// Another process has the lock.
    #[error(
        "{path} is in use by {holder}. Stop that one first, or give this one another directory \
         with --data-dir"
    )]
    InUse {
        /// The directory as the operator named it.
        path: String,
        /// The process, as far as the lock names it.
        holder: String,
    },
}

/// The journals of one number of shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Generation {
    /// Its number, from 1.
    pub number: u32,
    /// How many shards the node had.
    pub shards: u16,
}

/// A file of a shard's directory that may be a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentFile {
    /// The number that the name tells.
    pub number: SegmentNumber,
    /// Where the file is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The directory of one shard, and what its segments must say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// The node and its journal.
    pub identity: Identity,
    /// The shard.
    pub shard: u16,
    /// How many shards the generation has.
    pub shards: u16,
}

/// A node's data directory, which nobody else uses while the value lives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: Identity,
    /// `None`: the file system is read-only, so no node can use the directory.
    _lock: Option<DirectoryLock>,
}

impl DataDirectory {
    /// Opens the directory for the node with this name. An absent or an empty one becomes the
    /// node's, and gets a journal's number. Waits a few seconds for a process that just ended.
    pub fn create_or_open(path: &Path, node: &str) -> Result<Self, DataDirectoryError> {
        match fs::metadata(path) {
            Ok(found) if !found.is_dir() => {
                return Err(DataDirectoryError::NotADirectory { path: name(path) });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_for_owner(path).map_err(unusable("make", path))?;
                if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
                    sync(parent)?;
                }
            }
            Err(error) => return Err(unusable("open", path)(error)),
        }
        refuse_others(path)?;
        let lock = lock_directory(path, LOCK_PATIENCE)?;
        let identity = match identity_at(path) {
            Err(DataDirectoryError::NoJournal { .. }) => {
                let journal = JournalId(u64::from_le_bytes(unpredictable()).max(1));
                let identity = Identity { node: node.to_owned(), journal };
                store(path, &identity)?;
                identity
            }
            other => other?,
        };
        if identity.node != node {
            let (theirs, ours) = (identity.node, node.to_owned());
            return Err(DataDirectoryError::OtherNode { path: name(path), theirs, ours });
        }
        let directory = Self { path: path.to_owned(), identity, _lock: Some(lock) };
        directory.clear_leftovers()?;
        close_to_others(path, is_ours);
        Ok(directory)
    }

    /// Opens the directory for a tool. Nothing in it is changed but the lock.
    pub fn open_existing(path: &Path) -> Result<Self, DataDirectoryError> {
        match fs::metadata(path) {
            Ok(found) if !found.is_dir() => {
                return Err(DataDirectoryError::NotADirectory { path: name(path) });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(DataDirectoryError::Missing { path: name(path) });
            }
            Err(error) => return Err(unusable("open", path)(error)),
        }
        let identity = identity_at(path)?;
        let lock = match lock_directory(path, TOOL_PATIENCE) {
            Ok(lock) => Some(lock),
            Err(DataDirectoryError::ReadOnly { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), identity, _lock: lock })
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that tells whose it is.
    pub fn identity_path(&self) -> PathBuf {
        self.path.join(NODE)
    }

    /// Whether it may lack what the node acknowledged.
    pub fn is_incomplete(&self) -> bool {
        self.path.join(INCOMPLETE).exists()
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All generations, the oldest first.
    pub fn generations(&self) -> Result<Vec<Generation>, DataDirectoryError> {
        generations_in(&self.path)
    }

    /// Begins a generation behind all that are there, with an empty directory for each shard.
    pub fn begin_generation(&self, shards: u16) -> Result<Generation, DataDirectoryError> {
        self.make_generation(shards, |_| Ok(()))
    }

    /// Makes a generation behind all that are there. `fill` writes to the directories of its shards
    /// and syncs what it writes. If it fails, no generation is there.
    pub fn make_generation<E: From<DataDirectoryError>>(
        &self,
        shards: u16,
        fill: impl FnOnce(&[ShardDirectory]) -> Result<(), E>,
    ) -> Result<Generation, E> {
        let last = self.generations()?.last().map_or(0, |generation| generation.number);
        let generation = Generation { number: last.saturating_add(1), shards };
        let begun = self.path.join(generation.name() + BEGUN);
        remove(&begun)?;
        let path = |shard: u16| begun.join(shard.to_string());
        let directory =
            |shard| ShardDirectory { path: path(shard), ..self.shard(generation, shard) };
        let directories: Vec<ShardDirectory> = (0..shards).map(directory).collect();
        for ShardDirectory { path, .. } in &directories {
            fs::create_dir_all(path).map_err(unusable("make", path))?;
        }
        if let Err(error) = fill(&directories) {
            // A full disk gets its bytes back. The first error says more than one of this.
            let _ = remove(&begun);
            return Err(error);
        }
        for ShardDirectory { path, .. } in &directories {
            sync(path)?;
        }
        sync(&begun)?;
        rename(&begun, &self.path.join(generation.name()))?;
        sync(&self.path)?;
        Ok(generation)
    }

    /// Moves generations, the newest first, into a new directory `aside` in this one, out of the
    /// way of every reader. Returns its path.
    pub fn move_aside(
        &self,
        generations: &[Generation],
        aside: PathBuf,
    ) -> Result<PathBuf, DataDirectoryError> {
        fs::create_dir(&aside).map_err(unusable("make", &aside))?;
        for generation in generations.iter().rev().map(Generation::name) {
            rename(&self.path.join(&generation), &aside.join(&generation))?;
        }
        sync(&aside)?;
        sync(&self.path)?;
        Ok(aside)
    }

    /// Removes a generation with all that is in it.
    pub fn remove_generation(&self, generation: Generation) -> Result<(), DataDirectoryError> {
        let ended = self.path.join(generation.name() + ENDED);
        remove(&ended)?;
        rename(&self.path.join(generation.name()), &ended)?;
        sync(&self.path)?;
        remove(&ended)
    }

    /// The directory of a shard. It may be absent.
    pub fn shard(&self, generation: Generation, shard: u16) -> ShardDirectory {
        ShardDirectory {
            path: self.path.join(generation.name()).join(shard.to_string()),
            identity: self.identity.clone(),
            shard,
            shards: generation.shards,
        }
    }

    /// The directories of all shards of a generation, in their order.
    pub fn shards(&self, generation: Generation) -> impl Iterator<Item = ShardDirectory> + '_ {
        (0..generation.shards).map(move |shard| self.shard(generation, shard))
    }

    /// What there is of a backup that was being written as the process ended.
    fn cut_off(&self) -> Option<PathBuf> {
        let goal = open_at_once(&self.path.join(SNAPSHOT).join(GOAL)).ok()?;
        let mut name = Vec::new();
        goal.take(PATH_BYTES_MAX).read_to_end(&mut name).ok()?;
        Some(OsString::from_vec(name).into())
    }

    /// Removes what a start, an end of a generation, or a backup left behind when it was cut off.
    fn clear_leftovers(&self) -> Result<(), DataDirectoryError> {
        for found in names_in(&self.path)? {
            let stem = found.strip_suffix(BEGUN).or_else(|| found.strip_suffix(ENDED));
            if found == SNAPSHOT
                && let Some(unfinished) = self.cut_off()
            {
                // It may be on a disk that does not answer, which holds up no start.
                let name = unfinished.display();
                warn!(
                    "a backup was cut off as the node ended. {name} is what there is of it: remove \
                     it, or make the backup again under its name"
                );
            }
            if found == SNAPSHOT || stem.and_then(Generation::of_name).is_some() {
                remove(&self.path.join(found))?;
            }
        }
        Ok(())
    }
}

impl Generation {
    /// The name of its directory, e.g. `0001-2`.
    pub fn name(&self) -> String {
        format!("{:04}-{}", self.number, self.shards)
    }

    /// The generation of a directory with this name; `None`: it is none.
    fn of_name(name: &str) -> Option<Self> {
        let (number, shards) = name.split_once('-')?;
        let generation = Self { number: number.parse().ok()?, shards: shards.parse().ok()? };
        let is_one = generation.number > 0 && (1..=SHARDS_MAX).contains(&generation.shards);
        (is_one && generation.name() == name).then_some(generation)
    }
}

impl ShardDirectory {
    /// The path of a segment.
    pub fn segment_path(&self, number: SegmentNumber) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// The files that may be segments, by their numbers. `None`: there is no such directory.
    pub fn segments(&self) -> Result<Option<Vec<SegmentFile>>, DataDirectoryError> {
        let Some(numbers) = self.numbers()? else { return Ok(None) };
        let mut files = Vec::new();
        for number in numbers {
            let path = self.segment_path(number);
            match fs::metadata(&path) {
                Ok(found) if found.is_file() => {
                    files.push(SegmentFile { number, path, bytes: found.len() });
                }
                Ok(_) => {}
                // To read it fails, too, and that is told as damage.
                Err(error) if is_disk_fault(&error) => {
                    files.push(SegmentFile { number, path, bytes: 0 });
                }
                Err(error) if is_dead_end(&error) => {}
                Err(error) => return Err(unusable("look at", &path)(error)),
            }
        }
        Ok(Some(files))
    }

    /// What has the name of a segment and is no file, and what it is instead.
    pub fn no_files(&self) -> Result<Vec<(SegmentNumber, &'static str)>, DataDirectoryError> {
        let mut found = Vec::new();
        for number in self.numbers()?.unwrap_or_default() {
            let path = self.segment_path(number);
            let kind = match fs::metadata(&path) {
                Ok(found) if found.is_file() => continue,
                Ok(found) if found.is_dir() => "a directory",
                Ok(_) => "a pipe, a socket or a device",
                Err(error) if is_dead_end(&error) => match fs::symlink_metadata(&path) {
                    Ok(_) => "a link that leads nowhere",
                    Err(_) => continue,
                },
                // [`ShardDirectory::segments`] tells it.
                Err(_) => continue,
            };
            found.push((number, kind));
        }
        Ok(found)
    }

    /// The numbers of all names of segments, in their order. `None`: there is no such directory.
    fn numbers(&self) -> Result<Option<Vec<SegmentNumber>>, DataDirectoryError> {
        let names = match names_in(&self.path) {
            Ok(names) => names,
            Err(DataDirectoryError::Unusable { source, .. })
                if source.kind() == ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut numbers: Vec<_> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        Ok(Some(numbers))
    }
}

/// Whether the disk or the file system on it has a fault. Other errors, such as a right or memory
/// that is lacking, say nothing about what is on the disk, and go away by themselves or by an
/// operator's hand.
pub(super) fn is_disk_fault(error: &io::Error) -> bool {
    let faults = [
        libc::EIO,
        libc::ENXIO,
        libc::EREMOTEIO,
        // What file systems say whose own blocks do not fit their checksums.
        libc::EUCLEAN,
        libc::EBADMSG,
        libc::EILSEQ,
        // XFS and the block layer: the medium has no data there.
        libc::ENODATA,
    ];
    error.raw_os_error().is_some_and(|errno| faults.contains(&errno))
}

/// Whether a path leads nowhere: to no file, or round in circles.
fn is_dead_end(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ELOOP)
}

/// The name of a segment's file.
fn segment_name(number: SegmentNumber) -> String {
    format!("{:016x}{SEGMENT}", number.0)
}

/// The number of a segment's file with this name; `None`: it is none.
fn segment_number(name: &str) -> Option<SegmentNumber> {
    let number = u64::from_str_radix(name.strip_suffix(SEGMENT)?, 16).ok()?;
    let is_one = (1..=SEGMENT_NUMBER_MAX).contains(&number);
    (is_one && segment_name(SegmentNumber(number)) == name).then_some(SegmentNumber(number))
}

/// Locks the directory for this process. Waits at most `patience` for another process.
fn lock_directory(path: &Path, patience: Duration) -> Result<DirectoryLock, DataDirectoryError> {
    let began = Instant::now();
    loop {
        if let Some(lock) = DirectoryLock::take(path).map_err(unusable("lock", path))? {
            return Ok(lock);
        }
        if began.elapsed() >= patience {
            let holder = match DirectoryLock::holder(path) {
                Some(process) => format!("process {process}"),
                None => "another process".to_owned(),
            };
            return Err(DataDirectoryError::InUse { path: name(path), holder });
        }
        thread::sleep(LOCK_LOOK);
    }
}

/// Reads whose directory it is.
fn identity_at(path: &Path) -> Result<Identity, DataDirectoryError> {
    let file = path.join(NODE);
    let mut text = Vec::new();
    if fs::metadata(&file).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        // To open a pipe would wait for ever.
        return Err(damaged(path, "it is a pipe, a socket or a device".to_owned()));
    }
    let read = open_at_once(&file).and_then(|f| f.take(NODE_BYTES_MAX).read_to_end(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if generations_in(path)?.is_empty() {
                return Err(DataDirectoryError::NoJournal { path: name(path) });
            }
            return Err(damaged(path, "it is missing, and segments are there".to_owned()));
        }
        Err(error) => return Err(unusable("read", &file)(error)),
    }
    identity_of(&text).map_err(|error| match error {
        NoIdentity::Newer(format) => DataDirectoryError::Newer { path: name(&file), format },
        NoIdentity::Damaged(why) => damaged(path, why),
    })
}

/// The error of a `node.toml` that cannot be read. Every segment repeats what it said.
fn damaged(path: &Path, why: String) -> DataDirectoryError {
    let remedy = match identity_in_segments(path) {
        Some(identity) => format!(
            "The segments beside it are of node {}. If that is right, make this its text:\n{}",
            identity.node,
            text_of(&identity).trim_end()
        ),
        None => "Restore it from a backup, or begin with an empty directory".to_owned(),
    };
    DataDirectoryError::Damaged { path: name(&path.join(NODE)), why, remedy }
}

/// What the first segment that can be read says of node and journal.
fn identity_in_segments(path: &Path) -> Option<Identity> {
    for generation in generations_in(path).ok()?.into_iter().rev() {
        for shard in 0..generation.shards {
            let identity = Identity { node: String::new(), journal: JournalId(0) };
            let path = path.join(generation.name()).join(shard.to_string());
            let shards = generation.shards;
            let directory = ShardDirectory { path, identity, shard, shards };
            for file in directory.segments().ok().flatten().unwrap_or_default() {
                let mut bytes = Vec::new();
                let read = File::open(&file.path)
                    .and_then(|f| f.take(OPENING_BYTES as u64).read_to_end(&mut bytes));
                if let (Ok(_), Ok(Some(found))) = (read, opening(&bytes, file.number)) {
                    return Some(Identity { node: found.name, journal: found.journal });
                }
            }
        }
    }
    None
}

/// Writes `node.toml`, so that a loss of power leaves all of it or nothing.
fn store(path: &Path, identity: &Identity) -> Result<(), DataDirectoryError> {
    let aside = path.join(NODE_ASIDE);
    let written = create_anew(&aside, 0o600).and_then(|mut file| {
        file.write_all(text_of(identity).as_bytes())?;
        file.sync_all()
    });
    written.map_err(unusable("write", &aside))?;
    rename(&aside, &path.join(NODE))?;
    sync(path)
}

fn generations_in(path: &Path) -> Result<Vec<Generation>, DataDirectoryError> {
    let names = names_in(path)?;
    let is_directory = |name: &&String| path.join(name).is_dir();
    let mut generations: Vec<Generation> =
        names.iter().filter(is_directory).filter_map(|name| Generation::of_name(name)).collect();
    generations.sort_unstable();
    Ok(generations)
}

/// The names in a directory that are text. Others are not ours.
fn names_in(path: &Path) -> Result<Vec<String>, DataDirectoryError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    };
    list().map_err(unusable("list", path))
}

fn rename(from: &Path, to: &Path) -> Result<(), DataDirectoryError> {
    fs::rename(from, to).map_err(unusable("rename", from))
}

/// Removes a directory with all that is in it, if it is there.
fn remove(path: &Path) -> Result<(), DataDirectoryError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(unusable("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes the names in a directory survive a loss of power.
fn sync(path: &Path) -> Result<(), DataDirectoryError> {
    sync_directory(path).map_err(unusable("sync", path))
}

/// Refuses a directory in which others may change what the node trusts, and one that was made for
/// something else: a link may lead to it. Nothing is changed in it.
fn refuse_others(path: &Path) -> Result<(), DataDirectoryError> {
    if let Some(Distrust { why, remedy }) = distrust(path).map_err(unusable("look at", path))? {
        return Err(DataDirectoryError::NotOurs { path: name(path), why, remedy });
    }
    if fs::symlink_metadata(path.join(NODE)).is_ok() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(unusable("list", path))? {
        let entry = entry.map_err(unusable("list", path))?;
        let found = entry.file_name().to_string_lossy().into_owned();
        let is_directory = entry.file_type().is_ok_and(|kind| !kind.is_file());
        if !may_be_in_a_new_one(&found, is_directory) {
            return Err(DataDirectoryError::Strange { path: name(path), found });
        }
    }
    Ok(())
}

/// Whether a directory that is to become a node's may have this in it: what a start has left that
/// was cut off, what was kept of a node, and what file systems and operators put into empty ones.
fn may_be_in_a_new_one(name: &str, is_directory: bool) -> bool {
    let stem = name.strip_suffix(BEGUN).or_else(|| name.strip_suffix(ENDED)).unwrap_or(name);
    let is_of_system = name == "lost+found" || name.starts_with('.');
    is_of_system
        || [LOCK, NODE_ASIDE, DESTINATIONS, INCOMPLETE].contains(&name)
        || stem == DESTINATIONS
        || is_ours(stem, is_directory)
}

/// Whether a node makes files, or directories, of this name somewhere in its data directory.
fn is_ours(name: &str, is_directory: bool) -> bool {
    match is_directory {
        true => {
            let is_shard = name.parse::<u16>().is_ok();
            is_shard || name.starts_with(DAMAGED) || Generation::of_name(name).is_some()
        }
        false => name == NODE || name.ends_with(SEGMENT) || name.starts_with(SPARE),
    }
}

/// The error of an operation, with a remedy that fits the kernel's reason.
pub(super) fn unusable(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> DataDirectoryError {
    let path = name(path);
    move |source| match source.kind() {
        ErrorKind::PermissionDenied => DataDirectoryError::Permission { what, path, source },
        ErrorKind::ReadOnlyFilesystem => DataDirectoryError::ReadOnly { what, path },
        ErrorKind::NotADirectory => DataDirectoryError::NotADirectory { path },
        _ => DataDirectoryError::Unusable { what, path, source },
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
