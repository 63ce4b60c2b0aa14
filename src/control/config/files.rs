//! The files that the configuration is read from: once at the start, and once for each SIGHUP. Only
//! this file reads configuration files. It does not check what they say.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::callback_tls::CallbackTlsConfig;
use super::error::{CONFIG_BYTES_MAX, ConfigError, Problem};
use super::ini::parse_ini;
use super::load::{Loaded, Sources, load};
use super::named_files::GROUPS;
use super::peer_tls::PeerTlsConfig;
use super::regular_file;
use super::static_names::StaticNamesFile;
use super::tls::TlsConfig;
use crate::control::cluster::membership_file::MembershipFile;

/// Files of an existing deployment (docs/compat/timer-service.md §2), used where no flag names
/// others.
pub(crate) const LOCAL_FILE: &str = "/etc/chronos/chronos.conf";
const CLUSTER_FILE: &str = "/etc/chronos/chronos_cluster.conf";
const SHARED_FILE: &str = "/etc/chronos/chronos_shared.conf";
const NAMES_FILE: &str = "/etc/clearwater/dns.json";
/// Variables that name members.
const MEMBERS: [&str; 3] =
    ["CHRONOS_CLUSTER_NODES", "CHRONOS_CLUSTER_JOINING", "CHRONOS_CLUSTER_LEAVING"];

/// The INI files of an existing deployment. `None` means the default under `/etc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IniFiles {
    /// What holds for this node alone: addresses, identity, log.
    pub local: Option<PathBuf>,
    /// The members of the site.
    pub cluster: Option<PathBuf>,
    /// What is the same on all nodes: the sites.
    pub shared: Option<PathBuf>,
    /// Names that lead elsewhere (JSON).
    pub names: Option<PathBuf>,
}

/// Everything that the configuration comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFiles {
    toml: Option<PathBuf>,
    /// The INI files in the order in which they are read. The flag is true where the operator named
    /// the file.
    ini: Option<Vec<(PathBuf, bool)>>,
    /// The file of names of an existing deployment.
    names: StaticNamesFile,
    environment: Vec<(String, String)>,
    flags: Vec<((&'static str, &'static str), String)>,
    timestamps_alone: bool,
    /// Where the process was started: a daemon works in another folder later.
    folder: PathBuf,
    /// Files that were there once. At the start a missing file means defaults; later a file of this
    /// set that is missing is an error.
    seen: BTreeSet<PathBuf>,
}

impl ConfigFiles {
    /// Remembers the files and reads nothing. Paths are made absolute, because a daemon works in
    /// another folder.
    pub(crate) fn new(
        toml: Option<&Path>,
        ini: Option<&IniFiles>,
        environment: Vec<(String, String)>,
        flags: Vec<((&'static str, &'static str), String)>,
    ) -> Self {
        // An error means an empty path. Opening the path reports it.
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let names = ini.map_or_else(StaticNamesFile::default, |files| StaticNamesFile {
            path: files
                .names
                .as_ref()
                .map_or(NAMES_FILE.into(), |path| whole(path).display().to_string()),
            is_named: files.names.is_some(),
        });
        let ini = ini.map(|IniFiles { local, cluster, shared, .. }| {
            // The order of the original: the first file that has a key decides it.
            let files = [(cluster, CLUSTER_FILE), (local, LOCAL_FILE), (shared, SHARED_FILE)];
            let one = |(named, default): (&Option<PathBuf>, &str)| match named {
                Some(path) => (whole(path), true),
                None => (PathBuf::from(default), false),
            };
            files.map(one).to_vec()
        });
        let folder = std::env::current_dir().unwrap_or_default();
        let (timestamps_alone, seen) = (false, BTreeSet::new());
        let toml = toml.map(whole);
        Self { toml, ini, names, environment, flags, timestamps_alone, folder, seen }
    }

    /// Makes the files those of a process that serves timestamps and no timers.
    pub(crate) fn timestamps_alone(self) -> Self {
        Self { timestamps_alone: true, ..self }
    }

    /// Reports whether there is no file at all. Then a reload cannot change anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.toml.is_none() && self.ini.is_none()
    }

    /// Returns the file that names the members, to be written when the members change. In a
    /// deployment of the original service this is its cluster file. A variable of the environment
    /// overrides every file, so members that come from one cannot be written anywhere.
    pub(crate) fn members(&self) -> MembershipFile {
        let overridden = |name: &str| {
            format!(
                "the members of this node come from the variable {name}, which no command can \
                 change: put them into [cluster] of a file, and start the node with --config FILE \
                 and without the variable"
            )
        };
        let missing =
            "this node has no file that members could be written into; start it with --config";
        let cluster = self.ini.iter().flatten().next().map(|(path, _)| path);
        self.written(cluster, &MEMBERS, &overridden, missing)
    }

    /// Returns the file that names the other sites, to be written when the sites change. In a
    /// deployment of the original service this is the first file that names any; if none does, the
    /// one that is the same on all nodes.
    pub(crate) fn sites(&self) -> MembershipFile {
        let paths = || self.ini.iter().flatten().map(|(path, _)| path);
        let named = paths().find(|path| names_sites(path));
        let shared = paths().next_back().filter(|_| self.toml.is_none());
        let overridden = |name: &str| {
            format!(
                "the other sites of this node come from the variable {name}, which no command can \
                 change: put them into [sites] of a file, and start the node with --config FILE \
                 and without the variable"
            )
        };
        let missing =
            "this node has no file that sites could be written into; start it with --config";
        self.written(named.or(shared), &["CHRONOS_SITES_REMOTE"], &overridden, missing)
    }

    /// Returns the file that is written into: `ini` if there is one, else the TOML file. A variable
    /// of the environment overrides every file.
    fn written(
        &self,
        ini: Option<&PathBuf>,
        variables: &[&str],
        overridden: &dyn Fn(&str) -> String,
        missing: &str,
    ) -> MembershipFile {
        let variable = self.environment.iter().find(|(name, _)| variables.contains(&&**name));
        if let Some((name, _)) = variable {
            return MembershipFile::None(overridden(name));
        }
        match (ini, &self.toml) {
            (Some(path), _) => MembershipFile::Ini(path.clone()),
            (None, Some(path)) => MembershipFile::Toml(path.clone()),
            (None, None) => MembershipFile::None(missing.into()),
        }
    }

    /// Returns the names of the files, for messages.
    pub(crate) fn names(&self) -> String {
        let ini = self.ini.iter().flatten().map(|(path, _)| path);
        let names: Vec<_> = self.toml.iter().chain(ini).map(|p| p.display().to_string()).collect();
        if names.is_empty() { "no file".into() } else { names.join(", ") }
    }

    /// Reads all files and puts the configuration together.
    pub(crate) fn load(&mut self) -> Result<Loaded, ConfigError> {
        let mut missing = Vec::new();
        let file = match &self.toml {
            Some(path) => Some((path.display().to_string(), read_file(path)?)),
            None => None,
        };
        let mut ini = self.ini.as_ref().map(|_| Vec::new());
        let mut seen = BTreeSet::new();
        for (path, is_named) in self.ini.iter().flatten() {
            let name = path.display().to_string();
            match std::fs::metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if self.seen.contains(path) {
                        let reason = "it was there at the start and is gone".into();
                        return Err(Problem::Unreadable { file: name, reason }.into());
                    }
                    if *is_named {
                        missing.push(format!("{name}: no such file; its defaults hold"));
                    }
                }
                _ => {
                    let text = text_of(path, without_comments(read_bytes(path)?))?;
                    ini.get_or_insert_default().push((name, text));
                    seen.insert(path.clone());
                }
            }
        }
        let sources = Sources {
            file,
            ini,
            environment: self.environment.clone(),
            flags: self.flags.clone(),
            timestamps_alone: self.timestamps_alone,
        };
        let mut loaded = load(&sources)?;
        let config = &mut loaded.config;
        config.static_names_file = self.names.clone();
        let timestamp = &mut config.timestamp;
        let passwords = &mut timestamp.zookeeper_password_file;
        let TlsConfig { cert, key, client_ca, .. } = &mut config.tls;
        let (secret, tokens) = (&mut config.secret_file, &mut config.tokens_file);
        let (file, signing) = (&mut timestamp.file, &mut config.signing_secrets_file);
        let clients = [cert, key, client_ca];
        let CallbackTlsConfig { ca, client_cert, client_key } = &mut config.callback_tls;
        let of_callbacks = [ca, client_cert, client_key];
        let PeerTlsConfig { cert, key, ca, .. } = &mut config.peer_tls;
        let secrets = [file, passwords, secret, tokens, signing];
        let of_tls = clients.into_iter().chain(of_callbacks).chain([cert, key, ca]);
        for path in secrets.into_iter().chain(of_tls) {
            if !path.is_empty() {
                *path = self.folder.join(&*path).display().to_string();
            }
        }
        for group in &GROUPS {
            (group.read)(config, &mut loaded.warnings)?;
        }
        self.seen.append(&mut seen);
        loaded.warnings.splice(0..0, missing);
        Ok(loaded)
    }
}

/// Returns the text of a file. Reads at most one byte more than a configuration may have.
fn read_file(path: &Path) -> Result<String, Problem> {
    text_of(path, read_bytes(path)?)
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Problem> {
    let file = path.display().to_string();
    let read = regular_file::open(path)
        .and_then(|opened| regular_file::read_beyond(&opened, CONFIG_BYTES_MAX));
    match read {
        Err(error) => Err(Problem::Unreadable { file, reason: error.to_string() }),
        Ok(bytes) if bytes.len() > CONFIG_BYTES_MAX => Err(Problem::TooLarge { file }),
        Ok(bytes) => Ok(bytes),
    }
}

/// Whether an INI file names other sites.
fn names_sites(path: &Path) -> bool {
    let bytes = read_bytes(path).map(without_comments).unwrap_or_default();
    let text = String::from_utf8(bytes).unwrap_or_default();
    let mut entries = parse_ini(&text).unwrap_or_default().into_iter();
    entries.any(|entry| (entry.section, entry.name) == ("sites", "remote_site"))
}

/// Takes the comments out of an INI file: people write them in any encoding, and the original does
/// not look at them.
fn without_comments(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut is_comment = false;
    bytes.retain(|byte| {
        is_comment = *byte != b'\n' && (is_comment || *byte == b'#');
        !is_comment
    });
    bytes
}

fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|error| Problem::Unreadable {
        file: path.display().to_string(),
        reason: format!("byte {} is not UTF-8", error.utf8_error().valid_up_to()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> ConfigFiles {
        let named = |name: &str| Some(folder.join(name));
        let ini =
            IniFiles { local: named("l"), cluster: named("c"), shared: named("s"), names: None };
        ConfigFiles::new(None, Some(&ini), Vec::new(), Vec::new())
    }

    #[test]
    fn comments_may_be_in_any_encoding() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = files(folder.path());
        let write = |bytes: &[u8]| std::fs::write(folder.path().join("c"), bytes).expect("written");
        write(b"# Jos\xe9's\n[cluster] # \xff\nlocalhost = a\n");
        assert_eq!(files.load().expect("read").config.node.name, "a");
        write(b"[cluster]\nlocalhost = a\xe9\n");
        assert!(files.load().expect_err("no text").to_string().contains("is not UTF-8"));
    }

    #[test]
    fn a_missing_file_means_defaults_until_it_has_been_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = files(folder.path());
        let open = 1;
        assert_eq!(files.load().expect("defaults").warnings.len(), 3 + open);
        let cluster = folder.path().join("c");
        std::fs::write(&cluster, "[cluster]\nlocalhost = a\n").expect("written");
        let loaded = files.load().expect("read");
        assert_eq!((loaded.config.node.name.as_str(), loaded.warnings.len()), ("a", 2 + open));
        std::fs::remove_file(&cluster).expect("there");
        let error = files.load().expect_err("a cluster does not vanish with its file");
        assert!(error.to_string().contains("is gone"), "{error}");
    }
}
