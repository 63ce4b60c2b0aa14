//! Who may read the files of a data directory: its owner alone, as clients' data is in them. The
//! node makes its files so. Files of former versions, and those that somebody copied there, may be
//! open to others, and are closed at the start.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tracing::{info, warn};

/// What others than the owner may.
const OF_OTHERS: u32 = 0o077;
/// How deep files lie below the data directory: `damaged-<time>/0001-2/0/x.segment`.
const DEPTH_MAX: usize = 4;

/// Takes from others than the owner what they may do with the files for which `is_ours` is true:
/// those in `path` itself, in the directories below it for which it is true, and so on. What cannot
/// be closed is told, and no reason not to start: a file system may have no such permissions.
/// Returns how many files were closed. Cost: a look at each file.
pub(super) fn close_to_others(path: &Path, is_ours: impl Fn(&str, bool) -> bool) -> usize {
    let (mut closed, mut failed) = (0, None);
    let mut directories = vec![(path.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        // What cannot be listed is told where it is read.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(found) = fs::metadata(&path) else { continue };
            let is_named = entry.file_name().to_str().is_some_and(|n| is_ours(n, found.is_dir()));
            match () {
                () if !is_named => {}
                () if found.is_dir() && depth < DEPTH_MAX => directories.push((path, depth + 1)),
                () if found.is_file() => match close(&path, found.permissions().mode()) {
                    Ok(is_changed) => closed += usize::from(is_changed),
                    Err(error) => failed = Some((path, error)),
                },
                () => {}
            }
        }
    }
    tell(path, closed, failed);
    closed
}

/// Returns whether the file was open to others.
fn close(path: &Path, mode: u32) -> io::Result<bool> {
    if mode & OF_OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OF_OTHERS))?;
    Ok(true)
}

fn tell(path: &Path, closed: usize, failed: Option<(PathBuf, io::Error)>) {
    if closed > 0 {
        let path = path.display();
        info!(
            closed,
            "{path}: others could read or write {closed} files; now only their owner can"
        );
    }
    if let Some((path, error)) = failed {
        let path = path.display();
        warn!(
            "others may read or write {path}, which has clients' data in it, and this could not be \
             changed: {error}. Give the files to the user of this process, or chmod 600 them"
        );
    }
}
