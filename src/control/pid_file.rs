//! The pid file. It is locked while the process lives, so that no second process is started by
//! mistake. It is written before the port opens and removed at an orderly end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::ring::lock_file;

/// Most bytes that are read of a pid file: a number and what may stand around it.
const CONTENTS_BYTES_MAX: u64 = 32;
/// How long a start waits for the process that has the lock. The kernel closes the files of a
/// killed process a moment after the process is gone, so a process that is started at once finds
/// the lock held.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries to get the lock.
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// Why there is no pid file; the text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PidFileError {
    /// Another process has the lock.
    #[error(
        "{file} is locked: {holder} runs already, and did not end within {waited:?}. Stop it \
         first, or give this one another file with --pidfile"
    )]
    Held {
        /// The file as the operator named it.
        file: String,
        /// The process that has the lock, as the file names it.
        holder: String,
        /// How long this process waited.
        waited: Duration,
    },
    /// The file cannot be written.
    #[error(
        "cannot write the pid file {file}: {source}. Make its folder writable for this user, or \
         name another file with --pidfile"
    )]
    Unwritable {
        /// The file as the operator named it.
        file: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
}

/// The locked pid file of this process. Dropping the value removes the file.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    /// How long the start waited for the lock.
    pub waited: Duration,
    /// Holds the lock.
    file: File,
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // The lock is still held, so the name belongs to this process. A file that cannot be
        // removed does no harm: without its lock it means nothing.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl PidFile {
    /// Takes the lock. Waits at most `patience` for another process to give up the lock.
    pub(super) fn lock(path: &Path, patience: Duration) -> Result<PidFile, PidFileError> {
        let name = path.display().to_string();
        let unwritable = |source| PidFileError::Unwritable { file: name.clone(), source };
        let began = Instant::now();
        let file = loop {
            if let Some(file) = lock_file(path).map_err(unwritable)? {
                break file;
            }
            if began.elapsed() >= patience {
                let holder = holder(path);
                return Err(PidFileError::Held { file: name, holder, waited: patience });
            }
            thread::sleep(LOCK_LOOK);
        };
        let waited = began.elapsed();
        Ok(PidFile { path: path.to_owned(), waited, file })
    }

    /// Writes the number of this process. Whoever reads it may send signals.
    pub(super) fn write(&mut self) -> Result<(), PidFileError> {
        let number = format!("{}\n", std::process::id());
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(number.as_bytes()));
        let file = self.path.display().to_string();
        written.map_err(|source| PidFileError::Unwritable { file, source })
    }
}

fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(CONTENTS_BYTES_MAX).read_to_string(&mut text))
        .map(|_| text.trim());
    match read.ok().and_then(|text| text.parse::<u32>().ok()) {
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path, patience: Duration) -> Result<PidFile, PidFileError> {
        let mut locked = PidFile::lock(path, patience)?;
        locked.write()?;
        Ok(locked)
    }

    #[test]
    fn it_has_one_holder_and_goes_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        // The text is longer than the number of any process. Nothing of it may be left.
        std::fs::write(&path, "123456789012345\n").expect("written");
        let held = take(&path, Duration::ZERO).expect("a lock that nobody has");
        let own = std::process::id();
        assert_eq!(std::fs::read_to_string(&path).expect("there"), format!("{own}\n"));
        let refused = take(&path, Duration::ZERO).expect_err("held").to_string();
        assert!(refused.contains(&format!("process {own} runs already")), "{refused}");
        drop(held);
        assert!(!path.exists());
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "precious").expect("written");
        std::os::unix::fs::symlink(&precious, &path).expect("a link");
        assert!(take(&path, Duration::ZERO).is_err(), "a link");
        assert_eq!(std::fs::read_to_string(&precious).expect("there"), "precious");
        let absent = take(&folder.path().join("x/pid"), Duration::ZERO);
        let absent = absent.expect_err("no folder");
        assert!(absent.to_string().contains("--pidfile"), "{absent}");
    }

    #[test]
    fn a_holder_that_ends_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid");
        let held = take(&path, Duration::ZERO).expect("a lock that nobody has");
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        let taken = take(&path, Duration::from_secs(60)).expect("it ended");
        ends.join().expect("no panic");
        assert!(taken.waited >= LOCK_LOOK, "{:?}", taken.waited);
        assert!(path.exists(), "the file is that of the second");
    }
}
