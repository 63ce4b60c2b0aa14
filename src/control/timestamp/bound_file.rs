//! The file that keeps the bound of a standalone server: three lines of text, of which every byte
//! matters.
//!
//! ```text
//! chronos-timestamp 1
//! 470602296525709312
//! crc32 1c291ca3
//! ```
//!
//! The bound is above every timestamp that was handed out. A new one is written beside the file,
//! forced to the disk, renamed over it, and the folder is forced as well: after a loss of power the
//! file holds the last bound stored, or one that was being stored, whole. A server never makes the
//! file: one that is lost, replaced by an empty one, would repeat timestamps.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::control::config::regular_file;
use crate::ring::{create_anew, lock_file};
use crate::timestamp::Timestamp;

/// The first line: what the file is, and the version of its format.
const TAG: &str = "chronos-timestamp";
const VERSION: &str = "1";
/// Longest file that is read, in bytes. The three lines take 65 bytes at most.
const BYTES_MAX: usize = 128;

/// Why there is no bound. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimestampFileError {
    /// The file is missing.
    #[error(
        "there is no {file}, which keeps the bound above all timestamps handed out. For a new \
         service type: chronos timestamp init --file {file}. If it was lost, add --above with a \
         timestamp that is above all that were handed out"
    )]
    Missing {
        /// The file as the operator named it.
        file: String,
    },
    /// The file's text is no bound.
    #[error(
        "{file} is damaged: {reason}. Restore it, or move it away and type: chronos timestamp init \
         --file {file} --above TS, with a timestamp TS that is above all that were handed out"
    )]
    Damaged {
        /// The file as the operator named it.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The file has another version of the format.
    #[error(
        "{file} has format version {found}, and this program reads {VERSION}: start the program \
         that wrote it"
    )]
    Version {
        /// The file as the operator named it.
        file: String,
        /// The version that the file names.
        found: String,
    },
    /// Another process has the file.
    #[error(
        "{file} is in use: another server hands out timestamps from it. Stop that one first, or \
         give this one another file with [timestamp] file"
    )]
    Held {
        /// The file as the operator named it.
        file: String,
    },
    /// The file is there already.
    #[error(
        "{file} is there already and keeps the bound {bound}. It is never overwritten: a lower \
         bound would repeat timestamps. Move it away first if that is what you want"
    )]
    Exists {
        /// The file as the operator named it.
        file: String,
        /// The bound that the file keeps.
        bound: u64,
    },
    /// The kernel refused an operation.
    #[error(
        "cannot {what} {file}: {source}. Give this user the rights to it and its folder, or name \
         another file with [timestamp] file"
    )]
    Unusable {
        /// The operation, e.g. `read`.
        what: &'static str,
        /// The file as the operator named it.
        file: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
}

/// The file that keeps this process's bound. The file is locked as long as the value lives.
#[derive(Debug)]
pub(crate) struct TimestampFile {
    path: PathBuf,
    /// The lock is on a separate file beside the file, because the file itself is replaced again
    /// and again.
    _lock: File,
}

impl TimestampFile {
    /// Locks the file for this process and returns the bound that the file keeps.
    pub(crate) fn open(path: &Path) -> Result<(TimestampFile, Timestamp), TimestampFileError> {
        if let Err(error) = std::fs::metadata(path) {
            return Err(match error.kind() {
                ErrorKind::NotFound => TimestampFileError::Missing { file: name(path) },
                _ => unusable("read", path)(error),
            });
        }
        let file = lock(path)?;
        let bound = read(path)?;
        Ok((file, bound))
    }

    /// Makes the file with this bound, and its folder if the folder is missing. A file that is
    /// there already is an error and stays as it is.
    pub(crate) fn create(path: &Path, bound: Timestamp) -> Result<(), TimestampFileError> {
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            std::fs::create_dir_all(folder).map_err(unusable("make the folder of", path))?;
        }
        let file = lock(path)?;
        match read(path) {
            Err(TimestampFileError::Missing { .. }) => {}
            Ok(bound) => {
                return Err(TimestampFileError::Exists { file: name(path), bound: bound.0 });
            }
            Err(error) => return Err(error),
        }
        file.store(bound).map_err(unusable("write", path))
    }

    /// Replaces the bound. After `Ok` the new bound survives a loss of power. After an error the
    /// file may hold the former bound or the new bound.
    pub(crate) fn store(&self, bound: Timestamp) -> io::Result<()> {
        let aside = beside(&self.path, ".new");
        let stored = self.replace(&aside, bound);
        if stored.is_err() {
            // A full disk gets its bytes back. If the removal fails, too, nothing more can be done.
            let _ = std::fs::remove_file(&aside);
        }
        stored
    }

    fn replace(&self, aside: &Path, bound: Timestamp) -> io::Result<()> {
        // A file that could not be forced to the disk once may succeed falsely ever after. So each
        // try makes a new file.
        let mut file = create_anew(aside, 0o666)?;
        file.write_all(text_of(bound).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(aside, &self.path)?;
        let folder = self.path.parent().filter(|folder| *folder != Path::new(""));
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The file as the operator named it.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }
}

fn lock(path: &Path) -> Result<TimestampFile, TimestampFileError> {
    let lock = lock_file(&beside(path, ".lock")).map_err(unusable("lock", path))?;
    let lock = lock.ok_or_else(|| TimestampFileError::Held { file: name(path) })?;
    Ok(TimestampFile { path: path.to_owned(), _lock: lock })
}

fn read(path: &Path) -> Result<Timestamp, TimestampFileError> {
    let read = regular_file::open(path);
    match read.and_then(|file| regular_file::read_beyond(&file, BYTES_MAX)) {
        Ok(bytes) => parse(&bytes).map_err(|error| match error {
            Unreadable::Damaged(reason) => {
                TimestampFileError::Damaged { file: name(path), reason: reason.into() }
            }
            Unreadable::Version(found) => TimestampFileError::Version { file: name(path), found },
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(TimestampFileError::Missing { file: name(path) })
        }
        Err(error) => Err(unusable("read", path)(error)),
    }
}

/// Why a text is no bound.
#[derive(Debug, PartialEq, Eq)]
enum Unreadable {
    Damaged(&'static str),
    Version(String),
}

fn parse(bytes: &[u8]) -> Result<Timestamp, Unreadable> {
    use Unreadable::Damaged;
    let text = std::str::from_utf8(bytes).map_err(|_| Damaged("it is no text"))?;
    if text.is_empty() {
        return Err(Damaged("it is empty"));
    }
    let mut lines = text.lines();
    let tag = lines.next().and_then(|line| line.strip_prefix(TAG)?.strip_prefix(' '));
    let version = tag.ok_or(Damaged("it does not begin with \"chronos-timestamp\""))?;
    if version != VERSION && !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Unreadable::Version(version.to_owned()));
    }
    let bound = lines.next().and_then(|line| line.parse().ok());
    let bound: u64 = bound.ok_or(Damaged("its second line is no number"))?;
    if i64::try_from(bound).is_err() {
        return Err(Damaged("its number is too large for a timestamp"));
    }
    // A text that differs in any byte from the text that is written for this bound is damaged,
    // sign, zeros and line ends included.
    if text != text_of(Timestamp(bound)) {
        return Err(Damaged("its checksum does not fit"));
    }
    Ok(Timestamp(bound))
}

fn text_of(bound: Timestamp) -> String {
    let lines = format!("{TAG} {VERSION}\n{}\n", bound.0);
    let checksum = crc32fast::hash(lines.as_bytes());
    format!("{lines}crc32 {checksum:08x}\n")
}

/// Returns the path with `suffix` behind it.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn unusable(what: &'static str, path: &Path) -> impl Fn(io::Error) -> TimestampFileError + use<> {
    let file = name(path);
    move |source| TimestampFileError::Unusable { what, file: file.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Timestamp = Timestamp(470_602_296_525_709_312);

    fn made() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new").join("timestamp");
        TimestampFile::create(&path, BOUND).expect("made");
        (folder, path)
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let (_folder, path) = made();
        for bound in [0, 1, BOUND.0, i64::MAX as u64] {
            let (file, _) = TimestampFile::open(&path).expect("readable");
            file.store(Timestamp(bound)).expect("stored");
            drop(file);
            assert_eq!(TimestampFile::open(&path).expect("readable").1, Timestamp(bound));
        }
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(text.starts_with("chronos-timestamp 1\n9223372036854775807\ncrc32 "), "{text}");
        assert!(text.len() <= BYTES_MAX);
        assert!(!beside(&path, ".new").exists());
    }

    #[test]
    fn no_byte_can_be_changed_lost_or_added_unseen() {
        let whole = text_of(BOUND).into_bytes();
        assert_eq!(parse(&whole), Ok(BOUND));
        for place in 0..whole.len() {
            assert!(parse(&whole[..place]).is_err(), "cut at {place}");
            for other in (0..=255).filter(|other| *other != whole[place]) {
                let mut changed = whole.clone();
                changed[place] = other;
                assert!(parse(&changed).is_err(), "{other} at {place}");
            }
        }
        for more in [&b"\n"[..], b"0", b" ", b"\0"] {
            assert!(parse(&[&whole, more].concat()).is_err());
        }
        assert!(parse(&[&whole[..], &whole].concat()).is_err());
    }

    #[test]
    fn other_versions_and_numbers_that_are_none_are_told_apart() {
        let other = text_of(BOUND).replace("timestamp 1\n", "timestamp 2\n");
        assert_eq!(parse(other.as_bytes()), Err(Unreadable::Version("2".into())));
        let with = |bound: &str| {
            let lines = format!("{TAG} {VERSION}\n{bound}\n");
            format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()))
        };
        assert_eq!(parse(with("7").as_bytes()), Ok(Timestamp(7)));
        for bad in ["", "-1", "+7", "07", "7 ", "9223372036854775808", "99999999999999999999", "x"]
        {
            assert!(matches!(parse(with(bad).as_bytes()), Err(Unreadable::Damaged(_))), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_never_made_or_replaced_by_mistake() {
        let (folder, path) = made();
        let again = TimestampFile::create(&path, Timestamp(0)).expect_err("it is there");
        assert!(again.to_string().contains("keeps the bound 470602296525709312"), "{again}");
        std::fs::write(&path, "x").expect("written");
        let damaged = TimestampFile::create(&path, Timestamp(0)).expect_err("it is there");
        assert!(damaged.to_string().contains("is damaged"), "{damaged}");
        let missing = folder.path().join("nowhere").join("timestamp");
        let error = TimestampFile::open(&missing).expect_err("nothing there");
        assert!(error.to_string().contains("chronos timestamp init --file"), "{error}");
        assert!(!missing.exists() && !beside(&missing, ".lock").exists());
    }

    #[test]
    fn one_process_has_it() {
        let (_folder, path) = made();
        let first = TimestampFile::open(&path).expect("free");
        let second = TimestampFile::open(&path).expect_err("taken");
        assert!(matches!(second, TimestampFileError::Held { .. }), "{second}");
        drop(first);
        TimestampFile::open(&path).expect("free again");
    }

    #[test]
    fn a_crash_between_any_two_steps_leaves_a_whole_file() {
        let (_folder, path) = made();
        let aside = beside(&path, ".new");
        let next = text_of(Timestamp(BOUND.0 + 1));
        // The server died while it wrote beside the file, at every byte, and before it renamed.
        for length in 0..=next.len() {
            std::fs::write(&aside, &next.as_bytes()[..length]).expect("written");
            let (file, bound) = TimestampFile::open(&path).expect("the former one");
            assert_eq!(bound, BOUND);
            // The leftover does not prevent the next store.
            file.store(BOUND).expect("stored");
        }
        std::fs::write(&aside, &next).expect("written");
        std::fs::rename(&aside, &path).expect("renamed");
        assert_eq!(TimestampFile::open(&path).expect("the next").1, Timestamp(BOUND.0 + 1));
    }

    #[test]
    fn a_store_that_fails_leaves_the_former_bound() {
        let (_folder, path) = made();
        let (file, _) = TimestampFile::open(&path).expect("readable");
        // No file can replace a folder.
        let aside = beside(&path, ".new");
        std::fs::create_dir(&aside).expect("a folder");
        file.store(Timestamp(BOUND.0 + 1)).expect_err("no room");
        assert_eq!(read(&path).expect("whole"), BOUND);
        std::fs::remove_dir(&aside).expect("empty");
        file.store(Timestamp(BOUND.0 + 2)).expect("room again");
        assert_eq!(read(&path).expect("whole"), Timestamp(BOUND.0 + 2));
    }
}
