//! Notices that a file which the configuration names has changed: certificates are renewed by
//! programs, and orchestrators swap whole folders of files.
//!
//! A file is another one if its inode, length or time of change is. A link is followed, so a link
//! that is swapped is noticed as well. Files that belong together, such as a certificate and its
//! key, may be caught between the first and the second: then they do not fit, the old ones stay in
//! force, and they are read again until they do.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::named_files::{FileGroup, GROUPS};
use super::settings::Config;

/// What tells one state of a file from another: device, inode, length, times of change in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp([i128; 5]);

impl Stamp {
    /// The stamp of a file; `None`: there is none.
    fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        Some(Stamp([
            found.dev().into(),
            found.ino().into(),
            found.size().into(),
            ns(found.mtime(), found.mtime_nsec()),
            ns(found.ctime(), found.ctime_nsec()),
        ]))
    }
}

/// What is known of a group of files.
#[derive(Debug, Default)]
struct Watched {
    /// The files' names, with their stamps when they were last looked at.
    stamps: Vec<(String, Option<Stamp>)>,
    /// Whether the files have changed and were not read since.
    is_pending: bool,
    /// Why the files could not be read the last time.
    failure: Option<String>,
}

/// The stamps of all files.
#[derive(Debug)]
pub(super) struct Watch {
    groups: [Watched; GROUPS.len()],
}

impl Watch {
    /// The files of a configuration as they are now.
    pub(super) fn new(config: &Config) -> Self {
        let mut watch = Self { groups: Default::default() };
        for (watched, group) in watch.groups.iter_mut().zip(&GROUPS) {
            watched.stamps = stamps(config, group);
            // They may have changed since the start has read them.
            watched.is_pending = true;
        }
        watch
    }

    /// Looks at all files. Reads those groups that have changed, and not since the last look, each
    /// into a copy of the configuration. Returns the copies, and what is to be warned of.
    pub(super) fn look(&mut self, config: &Config) -> (Vec<Config>, Vec<String>) {
        let (mut all, mut told) = (Vec::new(), Vec::new());
        for (watched, group) in self.groups.iter_mut().zip(&GROUPS) {
            let stamps = stamps(config, group);
            let has_changed = watched.stamps != stamps;
            watched.stamps = stamps;
            if has_changed {
                // It may be half a file. It is read when it stays as it is until the next look.
                watched.is_pending = true;
                continue;
            }
            if !std::mem::take(&mut watched.is_pending) && watched.failure.is_none() {
                continue;
            }
            let (mut read, mut warnings) = (config.clone(), Vec::new());
            match (group.read)(&mut read, &mut warnings) {
                Ok(()) => {
                    watched.failure = None;
                    all.push(read);
                    told.append(&mut warnings);
                }
                Err(problem) => {
                    let reason = problem.to_string();
                    if watched.failure.as_ref() != Some(&reason) {
                        told.push(format!(
                            "{} have changed and cannot be taken; the former stay in force, and \
                             the files are tried again: {reason}",
                            group.what
                        ));
                    }
                    watched.failure = Some(reason);
                }
            }
        }
        (all, told)
    }
}

fn stamps(config: &Config, group: &FileGroup) -> Vec<(String, Option<Stamp>)> {
    let names = (group.names)(config).into_iter().filter(|name| !name.is_empty());
    names.map(|name| (name.to_owned(), Stamp::of(Path::new(name)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const FIRST: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    const SECOND: &str = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY=";

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("its own file");
    }

    /// How many groups were read, and the warnings.
    fn look(watch: &mut Watch, config: &Config) -> (usize, Vec<String>) {
        let (read, told) = watch.look(config);
        (read.len(), told)
    }

    #[test]
    fn what_has_changed_is_read_and_what_is_wrong_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secrets");
        write(&path, FIRST);
        let signing_secrets_file = path.display().to_string();
        let mut config = Config::default();
        config.signing_secrets_file = signing_secrets_file;
        let mut watch = Watch::new(&config);
        // All groups are read once more after the start; those without files cost nothing.
        assert_eq!(look(&mut watch, &config), (GROUPS.len(), vec![]));
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        write(&path, &format!("{FIRST}\n{SECOND}"));
        assert_eq!(look(&mut watch, &config), (0, vec![]), "it may be written on");
        let (read, told) = watch.look(&config);
        assert_eq!((read.len(), told.len()), (1, 0));
        let count = |config: &Config| config.node.signer.as_ref().map(|signer| signer.count());
        assert_eq!(count(&read[0]), Some(2));
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        write(&path, "whsec_half");
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        let (count, told) = look(&mut watch, &config);
        assert!(count == 0 && told.len() == 1, "{told:?}");
        assert!(told[0].contains("the former stay in force") && !told[0].contains("half"));
        assert_eq!(look(&mut watch, &config), (0, vec![]), "told once");
        std::fs::remove_file(&path).expect("there");
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        assert_eq!(look(&mut watch, &config).1.len(), 1, "another reason");
        write(&path, SECOND);
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        assert_eq!(look(&mut watch, &config), (1, vec![]));
    }

    #[test]
    fn a_link_that_is_swapped_is_another_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("one", FIRST), ("two", SECOND)] {
            std::fs::create_dir(path(name)).expect("a folder");
            write(&path(name).join("secrets"), text);
        }
        symlink("one", path("data")).expect("a link");
        symlink("data/secrets", path("secrets")).expect("a link");
        let signing_secrets_file = path("secrets").display().to_string();
        let mut config = Config::default();
        config.signing_secrets_file = signing_secrets_file;
        let mut watch = Watch::new(&config);
        let _ = watch.look(&config);
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        symlink("two", path("swapped")).expect("a link");
        std::fs::rename(path("swapped"), path("data")).expect("swapped");
        assert_eq!(look(&mut watch, &config), (0, vec![]));
        assert_eq!(look(&mut watch, &config), (1, vec![]));
    }
}
