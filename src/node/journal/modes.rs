//! Who may read the files of a data directory: its owner alone, as clients' data is in them. The
//! node makes its files so. Files of former versions, and those that somebody copied there, may be
//! open to others, and are closed at the start.
//!
//! Who may change what is in the directory can make timers of his own, so that a directory of
//! others is not used.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tracing::{info, warn};

use crate::ring::user_id;

/// The right of everybody to make and to rename files in a directory.
const WRITE_OF_ALL: u32 = 0o002;

/// Who else may change what is in a directory, and what an operator can do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Distrust {
    /// What is wrong, behind the name of the directory.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

/// Looks who may change what is in the directory at `path`, or where a link at `path` leads: it may
/// be this user, root, and a group that they chose. What everybody may write to and belongs to this
/// user is closed, and told.
pub(super) fn distrust(path: &Path) -> io::Result<Option<Distrust>> {
    let found = fs::metadata(path)?;
    Ok(distrust_of((found.uid(), found.mode()), user_id(), path).filter(|distrust| {
        // What this user owns needs nobody's order. A file system may have no such permissions.
        let is_own = found.uid() == user_id();
        let mode = found.mode() & 0o7777 & !WRITE_OF_ALL;
        let is_told = is_own.then(|| fs::set_permissions(path, Permissions::from_mode(mode)));
        let path = path.display();
        match is_told {
            None => {}
            Some(Ok(())) => warn!("{path} {}. It has mode {mode:04o} now", distrust.why),
            Some(Err(error)) => warn!("{path} {}, and stays so: {error}", distrust.why),
        }
        !is_own
    }))
}

fn distrust_of((owner, mode): (u32, u32), user: u32, path: &Path) -> Option<Distrust> {
    let path = path.display();
    if owner != user && owner != 0 {
        let why = format!("belongs to user {owner}, and this process is user {user}");
        let remedy = format!(
            "Type: chown -R {user} {path}. Or run the node as user {owner}, or name another \
             directory with --data-dir"
        );
        return Some(Distrust { why, remedy });
    }
    (mode & WRITE_OF_ALL != 0).then(|| Distrust {
        why: format!("may be written to by everybody (mode {:04o})", mode & 0o7777),
        remedy: format!(
            "Type: chmod o-w {path}. Or name a directory in it that is not there yet with \
             --data-dir: the node makes it for itself alone"
        ),
    })
}

/// Makes a directory for its owner alone, and those above it that are missing.
pub(super) fn make_for_owner(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        fs::create_dir_all(parent)?;
    }
    DirBuilder::new().mode(0o700).create(path)
}

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
            // What a link leads to is not the node's to change.
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_may_not_change_what_a_node_trusts() {
        let path = Path::new("/data");
        let of = |owner, mode| distrust_of((owner, mode), 100, path).map(|it| it.why + &it.remedy);
        assert_eq!((of(100, 0o040_750), of(0, 0o042_775), of(100, 0o040_775)), (None, None, None));
        let foreign = of(101, 0o040_700).expect("of another user");
        assert!(
            foreign.contains("user 101") && foreign.contains("chown -R 100 /data"),
            "{foreign}"
        );
        let open = of(0, 0o041_777).expect("open to all");
        assert!(open.contains("mode 1777") && open.contains("chmod o-w /data"), "{open}");
    }
}
