//! Keeps what operators ordered for destinations in the node's data directory, in the file
//! `destinations`: lines of `wire::destination`. It is replaced as a whole.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::control::config::regular_file;
use crate::node::journal::directory::DESTINATIONS;
use crate::ring::{create_anew, sync_directory};

const ASIDE: &str = "destinations.tmp";
/// Longest file that is read: 2 000 orders of at most 400 bytes.
const BYTES_MAX: usize = 1 << 20;

/// The file.
#[derive(Clone, Debug)]
pub(super) struct OrdersFile {
    folder: PathBuf,
}

impl OrdersFile {
    /// The file in a data directory.
    pub(super) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Its path.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(DESTINATIONS)
    }

    /// Reads it. A file that is missing is empty.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        match regular_file::read(&self.path(), BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        }
    }

    /// Replaces it. When this returns, the disk has it.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        let aside = self.folder.join(ASIDE);
        let mut file = create_anew(&aside, 0o600)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, self.path())?;
        sync_directory(&self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = OrdersFile::of(folder.path());
        assert_eq!(file.read().expect("missing"), b"");
        file.write("one\n").expect("written");
        file.write("two\n").expect("written again");
        assert_eq!(file.read().expect("there"), b"two\n");
        fs::remove_file(file.path()).expect("there");
        fs::create_dir(file.path()).expect("made");
        assert!(file.read().is_err(), "a folder is no file");
    }
}
