//! Whether a directory that is in use is still where it was. A directory that was moved or
//! unmounted still takes what is written to its open files, and a start finds none of it at the
//! path.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory that is held open, and where it is to be.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    held: File,
}

impl Place {
    /// The directory that is at `path` now.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), held: File::open(path)? })
    }

    /// Where the directory is to be.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the directory. Costs two calls of the kernel.
    pub(super) fn is_there(&self) -> bool {
        let (Ok(named), Ok(held)) = (fs::metadata(&self.path), self.held.metadata()) else {
            return false;
        };
        (named.dev(), named.ino()) == (held.dev(), held.ino())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_missed_when_it_is_moved_or_replaced_and_found_when_it_is_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, other] = ["data", "moved"].map(|name| folder.path().join(name));
        fs::create_dir(&path).expect("made");
        let place = Place::take(&path).expect("there");
        assert!(place.is_there());
        fs::rename(&path, &other).expect("moved");
        assert!(!place.is_there());
        fs::create_dir(&path).expect("made");
        assert!(!place.is_there(), "another one, as the one below a mount");
        fs::remove_dir(&path).expect("removed");
        fs::rename(&other, &path).expect("moved back");
        assert!(place.is_there());
    }
}
