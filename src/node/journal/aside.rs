//! Files that nobody understands are moved out of the way and not deleted: somebody may.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::base::time::WallMs;
use crate::ring::sync_directory;

/// What the names of such directories begin with.
pub(super) const DAMAGED: &str = "damaged-";

/// A directory in the data directory for what is moved out of the way, `damaged-<time>`. It is made
/// with the first file.
pub struct Aside {
    data: PathBuf,
    began: WallMs,
    made: Option<PathBuf>,
}

/// A path for such a directory at which nothing stands yet.
pub fn new_place(data: &Path, now: WallMs) -> PathBuf {
    let time = Timestamp::from_millisecond(i64::try_from(now.0).unwrap_or(i64::MAX));
    let time = time.unwrap_or(Timestamp::MAX).strftime("%Y%m%dT%H%M%SZ").to_string();
    unused(data.join(format!("{DAMAGED}{time}")))
}

/// The path, with a number behind it if something stands there.
fn unused(path: PathBuf) -> PathBuf {
    let mut free = path.clone();
    let mut again = 2;
    while fs::symlink_metadata(&free).is_ok() {
        let mut name = path.clone().into_os_string();
        name.push(format!("-{again}"));
        free = name.into();
        again += 1;
    }
    free
}

impl Aside {
    /// A place in this data directory, for a process that began at this time.
    pub fn new(data: &Path, began: WallMs) -> Self {
        Self { data: data.to_owned(), began, made: None }
    }

    /// Moves what stands at `path` below the data directory out of the way, whatever it is. Returns
    /// where it is now.
    pub fn take(&mut self, path: &Path) -> io::Result<PathBuf> {
        let place = match &self.made {
            Some(place) => place.clone(),
            None => new_place(&self.data, self.began),
        };
        let within = path.strip_prefix(&self.data).unwrap_or(path);
        let to = unused(place.join(within.strip_prefix("/").unwrap_or(within)));
        let (from, folder) = (path.parent(), to.parent());
        if let Some(folder) = folder {
            fs::create_dir_all(folder)?;
        }
        self.made = Some(place);
        fs::rename(path, &to)?;
        for folder in [folder, from].into_iter().flatten() {
            sync_directory(folder)?;
        }
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_taken_stands_under_its_own_name_in_one_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("0001-1/0/a/within")).expect("made");
        let mut aside = Aside::new(folder.path(), WallMs(1_795_201_463_762));
        assert!(aside.take(&path("0001-1/0/absent")).is_err());
        let place = path("damaged-20261120T190423Z/0001-1/0");
        assert_eq!(aside.take(&path("0001-1/0/a")).expect("moved"), place.join("a"));
        assert!(place.join("a/within").is_dir() && !path("0001-1/0/a").exists());
        fs::write(path("0001-1/0/a"), "once more").expect("written");
        assert_eq!(aside.take(&path("0001-1/0/a")).expect("moved"), place.join("a-2"));
        fs::write(path("0001-1/0/a"), "and again").expect("written");
        assert_eq!(aside.take(&path("0001-1/0/a")).expect("moved"), place.join("a-3"));
        let next = new_place(folder.path(), WallMs(1_795_201_463_762));
        assert_eq!(next, path("damaged-20261120T190423Z-2"));
    }
}
