//! The hosts file: names that never wait for a name server.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::SystemTime;

use crate::base::time::MonoNs;

/// Pause in ms between two looks whether the file was changed.
const LOOK_EVERY_MS: u64 = 1_000;

/// The names of a hosts file, which is read again after a change.
pub struct HostsFile {
    path: PathBuf,
    names: HashMap<String, Vec<IpAddr>>,
    looked: Option<MonoNs>,
    /// Time and length of the file that was read.
    stamp: Option<(SystemTime, u64)>,
}

impl HostsFile {
    /// The file at `path`, which need not exist. It is read when the first name is asked for.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), names: HashMap::new(), looked: None, stamp: None }
    }

    /// Returns the addresses of a name in lower case. `None` when the file does not have the name.
    /// Cost at most once a second: a look at the file, and reading it if it changed.
    pub fn find(&mut self, now: MonoNs, name: &str) -> Option<&[IpAddr]> {
        if self.looked.is_none_or(|looked| now >= looked.plus_ms(LOOK_EVERY_MS)) {
            self.looked = Some(now);
            self.look();
        }
        self.names.get(name.trim_end_matches('.')).map(Vec::as_slice)
    }

    fn look(&mut self) {
        let metadata = fs::metadata(&self.path);
        let stamp = metadata.and_then(|metadata| Ok((metadata.modified()?, metadata.len()))).ok();
        if stamp.is_none() || stamp != self.stamp {
            self.stamp = stamp;
            let bytes = fs::read(&self.path).unwrap_or_default();
            self.names = names_of(&String::from_utf8_lossy(&bytes));
        }
    }
}

/// Returns the names in the text of a hosts file, in lower case. `localhost` is always known (RFC
/// 6761).
fn names_of(text: &str) -> HashMap<String, Vec<IpAddr>> {
    let mut names: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        // A line that begins with no address, or with the address of a zone, names nothing.
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        for name in words {
            let addresses = names.entry(name.to_ascii_lowercase()).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    let localhost = || vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    names.entry("localhost".to_owned()).or_insert_with(localhost);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn names_and_addresses_of_a_file() {
        let names = names_of(
            "# made by hand\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost # loopback\n\
             10.0.0.1 Ralf.Example ralf\r\n10.0.0.1 ralf\n fe80::1%eth0 zone\n\
             10.0.0.300 bad\n\n10.0.0.2",
        );
        assert_eq!(names["localhost"], [ip("127.0.0.1"), ip("::1")]);
        assert_eq!(names["ralf.example"], [ip("10.0.0.1")]);
        assert_eq!(names["ralf"], [ip("10.0.0.1")]);
        assert_eq!(names.len(), 4, "{names:?}");
    }

    #[test]
    fn localhost_is_known_without_a_file() {
        let mut file = HostsFile::new("/no/such/file");
        let found = file.find(MonoNs(0), "localhost").expect("always known");
        assert_eq!(found, [ip("127.0.0.1"), ip("::1")]);
        assert_eq!(file.find(MonoNs(0), "other"), None);
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hosts");
        let mut file = HostsFile::new(&path);
        let at = |ms: u64| MonoNs(0).plus_ms(ms);
        assert_eq!(file.find(at(0), "a.example"), None);
        fs::write(&path, "10.0.0.1 a.example\n").expect("written");
        assert_eq!(file.find(at(LOOK_EVERY_MS - 1), "a.example"), None, "not looked at yet");
        assert_eq!(file.find(at(LOOK_EVERY_MS), "a.example."), Some(&[ip("10.0.0.1")][..]));
        fs::write(&path, "10.0.0.1 a.example\n10.0.0.2 a.example\n").expect("written");
        let both = [ip("10.0.0.1"), ip("10.0.0.2")];
        assert_eq!(file.find(at(2 * LOOK_EVERY_MS), "a.example"), Some(&both[..]));
        fs::remove_file(&path).expect("it was there");
        assert_eq!(file.find(at(3 * LOOK_EVERY_MS), "a.example"), None);
    }
}
