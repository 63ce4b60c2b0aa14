//! Writes the members of the cluster, and the other sites, into the file that named them. Comments,
//! other keys and their order stay. This file checks nothing: the caller has checked the lists.

// May panic: indices 1.
// Why it does not: configured 1.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::list_edits::{IniList, edit_ini_list, edit_ini_section, edit_section, set_list};
use super::sites_file::{edit_ini_sites, edit_toml_sites};
use crate::control::config::error::CONFIG_BYTES_MAX;
use crate::control::config::regular_file;
use crate::ring::create_anew;

/// The keys of the three lists in `[cluster]` of a TOML file.
const TOML_KEYS: [&str; 3] = ["nodes", "joining", "leaving"];
/// The keys of the three lists in the cluster file of an original node
/// (docs/compat/timer-service.md §2).
const INI_KEYS: [&str; 3] = ["node", "joining", "leaving"];
const SECTION: &str = "cluster";

/// The three lists, in this order: nodes that stay, that join, that leave.
pub(crate) type Lists = [Vec<String>; 3];

/// The file that names this node's members, or the other sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipFile {
    /// The TOML configuration file.
    Toml(PathBuf),
    /// The cluster file of an original node. A file that is missing is made.
    Ini(PathBuf),
    /// There is no file that could be written. The text says why, and what to do.
    None(String),
}

/// Why the members cannot be written. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembershipFileError {
    /// [`MembershipFile::None`]: there is no file to write to.
    #[error("{0}")]
    NoFile(String),
    /// The file cannot be read or replaced.
    #[error(
        "{file}: {source}. The node's user must be able to write the file and its folder; or edit \
         [cluster] or [sites] there by hand and send SIGHUP"
    )]
    Io {
        /// The path of the file.
        file: String,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// The file is not valid, although the node has read a valid one at its start.
    #[error("{file}: {reason}. Repair the file by hand, then send SIGHUP")]
    Content {
        /// The path of the file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

impl MembershipFile {
    /// Returns why nothing can be written, if there is no file to write into.
    pub(crate) fn why_none(&self) -> Option<&str> {
        match self {
            MembershipFile::None(reason) => Some(reason),
            MembershipFile::Toml(_) | MembershipFile::Ini(_) => None,
        }
    }

    /// Writes the lists into the file. Returns the file's former text, for
    /// [`MembershipFile::restore`].
    pub(crate) fn write(&self, lists: &Lists) -> Result<String, MembershipFileError> {
        self.edit(|former| edit_toml(former, lists), |former| edit_ini(former, lists))
    }

    /// Writes the other sites into the file, each as `name=address`, and returns the file's former
    /// text. `own` is the name of this site, which files of the original name among the others.
    pub(crate) fn write_sites(
        &self,
        own: &str,
        sites: &[String],
    ) -> Result<String, MembershipFileError> {
        self.edit(
            |former| edit_toml_sites(former, sites),
            |former| edit_ini_sites(former, own, sites),
        )
    }

    fn edit(
        &self,
        toml: impl Fn(&str) -> Result<String, String>,
        ini: impl Fn(&str) -> String,
    ) -> Result<String, MembershipFileError> {
        let path = self.path()?;
        let former = self.read(path)?;
        let edited = match self {
            MembershipFile::Toml(_) => toml(&former),
            _ => Ok(ini(&former)),
        };
        let text = edited.map_err(|reason| MembershipFileError::Content {
            file: path.display().to_string(),
            reason,
        })?;
        replace(path, &text).map_err(|source| failed(path, source))?;
        Ok(former)
    }

    /// Replaces the file's text by a former one.
    pub(crate) fn restore(&self, text: &str) -> Result<(), MembershipFileError> {
        let path = self.path()?;
        replace(path, text).map_err(|source| failed(path, source))
    }

    fn path(&self) -> Result<&Path, MembershipFileError> {
        match self {
            MembershipFile::Toml(path) | MembershipFile::Ini(path) => Ok(path),
            MembershipFile::None(reason) => Err(MembershipFileError::NoFile(reason.clone())),
        }
    }

    fn read(&self, path: &Path) -> Result<String, MembershipFileError> {
        let bytes = match regular_file::read(path, CONFIG_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && matches!(self, MembershipFile::Ini(_)) =>
            {
                return Ok(String::new());
            }
            Err(error) => return Err(failed(path, error)),
        };
        String::from_utf8(bytes).map_err(|_| MembershipFileError::Content {
            file: path.display().to_string(),
            reason: "it is not UTF-8".into(),
        })
    }
}

fn failed(path: &Path, source: io::Error) -> MembershipFileError {
    MembershipFileError::Io { file: path.display().to_string(), source }
}

/// Replaces a file as a whole: a reader finds the old text or the new text, also after a loss of
/// power. A symbolic link stays a link, and permissions stay. The new text is first written into
/// `<path>.new`.
///
/// - A file of that name is removed first.
/// - If another process makes a file of that name in between, nothing is written.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let written = (|| {
        let mut file = create_anew(Path::new(&aside), 0o666)?;
        if let Ok(former) = fs::metadata(&path) {
            file.set_permissions(former.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, &path)
    })();
    if written.is_err() {
        // The caller gets the first error. A file that stays aside is removed at the next write.
        let _ = fs::remove_file(&aside);
        return written;
    }
    fs::File::open(folder)?.sync_all()
}

fn edit_toml(text: &str, lists: &Lists) -> Result<String, String> {
    edit_section(text, SECTION, |cluster| {
        TOML_KEYS.into_iter().zip(lists).for_each(|(key, wanted)| set_list(cluster, key, wanted));
    })
}

fn edit_ini(text: &str, lists: &Lists) -> String {
    edit_ini_section(text, SECTION, |lines| {
        for (at, (key, wanted)) in INI_KEYS.into_iter().zip(lists).enumerate() {
            let behind = [&["localhost"][..], &INI_KEYS[..at]].concat();
            edit_ini_list(lines, &IniList { section: SECTION, key, behind: &behind }, wanted);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn lists(nodes: &str, joining: &str, leaving: &str) -> Lists {
        [names(nodes), names(joining), names(leaving)]
    }

    #[test]
    fn only_the_lists_of_a_toml_file_change() {
        let text = "# ours\n[node]\nlisten = \"a:1\" # here\n\n[cluster]\nnodes = [\n    \"a:1\", \
                    # first\n    \"b:1\",\n]\nacknowledge = \"first\" # fast\n\n[log]\nlevel = \
                    \"warn\"\n";
        let during = edit_toml(text, &lists("a:1 b:1", "c:1", "")).expect("TOML");
        let expected = text.replace("fast\n", "fast\njoining = [\"c:1\"]\n");
        assert_eq!(during, expected);
        let after = edit_toml(&during, &lists("a:1 b:1 c:1", "", "")).expect("TOML");
        assert!(after.contains("\"a:1\", # first\n    \"b:1\",\n    \"c:1\",\n]"), "{after}");
        assert!(after.contains("joining = []"), "{after}");
        let back = edit_toml(&after, &lists("a:1", "", "b:1 c:1")).expect("TOML");
        assert!(back.contains("nodes = [\n    \"a:1\", # first"), "{back}");
        assert!(back.contains("leaving = [\"b:1\", \"c:1\"]"), "{back}");
        for kept in ["# ours", "# here", "# fast", "level = \"warn\""] {
            assert!(back.contains(kept), "{kept} is gone:\n{back}");
        }
        let turned = edit_toml(text, &lists("b:1 a:1", "", "")).expect("TOML");
        assert!(turned.contains("\n    \"b:1\",\n    \"a:1\", # first\n]"), "{turned}");
    }

    #[test]
    fn a_toml_file_without_the_section_gets_it() {
        let text = "[node]\npin = false\n";
        let edited = edit_toml(text, &lists("a:1", "b:1", "")).expect("TOML");
        let cluster = "\n[cluster]\nnodes = [\"a:1\"]\njoining = [\"b:1\"]\n";
        assert_eq!(edited, format!("{text}{cluster}"));
        assert!(edit_toml("[node", &lists("a:1", "", "")).is_err());
        assert!(edit_toml("cluster = 1", &lists("a:1", "", "")).is_err());
    }

    #[test]
    fn only_the_lists_of_an_ini_file_change() {
        let text = "# ours\n[cluster]\nlocalhost = a\nnode = a # first\nnode = b\n\n[sites]\n\
                    node = no member\n";
        let during = edit_ini(text, &lists("a b", "c d", ""));
        assert_eq!(during, text.replace("node = b\n", "node = b\njoining = c\njoining = d\n"));
        assert_eq!(edit_ini(&during, &lists("a b", "", "")), text);
        let leaving = edit_ini(text, &lists("b", "", "a"));
        let expected = text.replace("node = a # first\nnode = b", "node = b\nleaving = a");
        assert_eq!(leaving, expected);
        let turned = edit_ini(text, &lists("b a", "", ""));
        assert_eq!(turned, text.replace("node = a # first\nnode = b", "node = b\nnode = a"));
        let none = edit_ini(text, &lists("", "", ""));
        assert_eq!(none, text.replace("node = a # first\nnode = b\n", ""));
        assert_eq!(edit_ini("", &lists("a", "b", "")), "[cluster]\nnode = a\njoining = b\n");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_can_be_put_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chronos.toml");
        let text = "[cluster]\nnodes = [\"a:1\"]\n";
        fs::write(&path, text).expect("written");
        let file = MembershipFile::Toml(path.clone());
        let former = file.write(&lists("a:1 b:1", "", "")).expect("writable");
        assert_eq!(former, text);
        assert_eq!(fs::read_to_string(&path).expect("there").matches("b:1").count(), 1);
        file.restore(&former).expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), text);
        let entries = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(entries, 1, "nothing is left beside it");
        // A symbolic link with the name of the aside file is not followed, and permissions stay.
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").expect("written");
        let aside = folder.path().join("chronos.toml.new");
        std::os::unix::fs::symlink(&precious, &aside).expect("a link");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        file.write(&lists("a:1 c:1", "", "")).expect("writable");
        assert_eq!(fs::read_to_string(&precious).expect("there"), "precious");
        let written = fs::symlink_metadata(&path).expect("there");
        assert!(written.is_file() && written.permissions().mode() & 0o777 == 0o640);
        assert!(!aside.exists() && fs::read_to_string(&path).expect("there").contains("c:1"));
        fs::remove_file(&precious).expect("there");
        let gone = MembershipFile::Toml(folder.path().join("none.toml"));
        let error = gone.write(&lists("a", "", "")).expect_err("no file").to_string();
        assert!(error.contains("none.toml") && error.contains("SIGHUP"), "{error}");
        let nowhere = MembershipFile::None("give a file with --config".into());
        assert!(nowhere.write(&lists("a", "", "")).is_err());
    }
}
