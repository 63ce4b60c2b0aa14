//! The servers that are measured, each started by itself with an empty folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::against::peers::{self, Peer, await_listening};
use crate::child::{Child, free_address};
use crate::flags::JournalFlags;
use crate::report::median;

/// Durable writes that time the disk before each round.
const TIMED_WRITES: u32 = 200;

/// How long a node may take to make its files.
const FILES: Duration = Duration::from_secs(20);
/// Pause between two looks at its files. When nothing changed in between, they are made.
const LOOK: Duration = Duration::from_millis(300);

/// A server, and how it keeps what it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// This service, with a mode of its journal; `off`: in memory.
    Chronos(&'static str),
    /// beanstalkd with its log, synced every 50 ms.
    BeanstalkdLog,
    /// beanstalkd with its log, synced after every write.
    BeanstalkdSync,
    /// Redis with its log, synced every second.
    RedisEverySecond,
    /// Redis with its log, synced before it answers.
    RedisAlways,
}

/// The servers to measure: this one in all modes, and those asked for that are installed.
pub fn servers(against: &[Peer]) -> Vec<Server> {
    let mut servers: Vec<Server> = ["off", "interval", "sync"].map(Server::Chronos).to_vec();
    for peer in against {
        let others: &[Server] = match peer {
            Peer::Beanstalkd => &[Server::BeanstalkdLog, Server::BeanstalkdSync],
            Peer::Redis => &[Server::RedisEverySecond, Server::RedisAlways],
            _ => &[],
        };
        if others.is_empty() {
            eprintln!("{} keeps nothing on a disk and is left out", peer.name());
        } else if !peer.is_there() {
            eprintln!("{} is not installed and left out", peer.name());
        } else {
            servers.extend(others);
        }
    }
    servers
}

impl Server {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Server::Chronos("off") => "chronos off",
            Server::Chronos("interval") => "chronos interval",
            Server::Chronos(_) => "chronos sync",
            Server::BeanstalkdLog => "beanstalkd -b",
            Server::BeanstalkdSync => "beanstalkd -b -f0",
            Server::RedisEverySecond => "redis everysec",
            Server::RedisAlways => "redis always",
        }
    }

    /// What kind of server it is.
    pub fn peer(self) -> Peer {
        match self {
            Server::Chronos(_) => Peer::Chronos,
            Server::BeanstalkdLog | Server::BeanstalkdSync => Peer::Beanstalkd,
            Server::RedisEverySecond | Server::RedisAlways => Peer::Redis,
        }
    }
}

/// How servers are started.
pub struct Seat<'a> {
    /// What was asked for.
    pub flags: &'a JournalFlags,
    /// The node's binary.
    pub node_binary: &'a Path,
    /// A folder on the disk that is measured.
    pub folder: &'a Path,
    /// The core of the client.
    pub core: usize,
}

impl Seat<'_> {
    /// The folder for the files of the server that runs.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Removes the files of the server that ran.
    pub fn clear(&self) {
        // They do no harm but take room.
        let _ = std::fs::remove_dir_all(self.data());
    }

    /// Starts a server with an empty folder and waits until it takes requests.
    pub fn start(&self, server: Server) -> Result<(Child, SocketAddr)> {
        self.clear();
        let data = self.data();
        std::fs::create_dir(&data).with_context(|| format!("cannot make {}", data.display()))?;
        let address = free_address()?;
        if let Server::Chronos(mode) = server {
            let mut child = Child::start(self.node(mode, address, "off"))?;
            child.await_ready(address)?;
            if mode != "off" {
                await_files(&data)?;
            }
            return Ok((child, address));
        }
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let folder = data.to_string_lossy();
        let peer = server.peer();
        let words = match server {
            Server::BeanstalkdLog => vec!["-l", &ip, "-p", &port, "-b", &folder],
            Server::BeanstalkdSync => vec!["-l", &ip, "-p", &port, "-b", &folder, "-f", "0"],
            _ => {
                let when = if server == Server::RedisAlways { "always" } else { "everysec" };
                let log = ["--appendonly", "yes", "--appendfsync", when, "--dir", &folder];
                let rest = ["--bind", &ip, "--port", &port, "--save", "", "--daemonize", "no"];
                [&rest[..], &log[..]].concat()
            }
        };
        let mut child = Child::start(self.foreign(peer, &words)?)?;
        await_listening(&mut child, peer, address)?;
        Ok((child, address))
    }

    /// The command of a node with a mode of its journal.
    pub fn node(&self, mode: &str, address: SocketAddr, admin: &str) -> Command {
        let mut command = Command::new(self.node_binary);
        command.args(["--listen", &address.to_string(), "--cores", &self.flags.server_cores]);
        command.args(["--admin", admin]);
        command.env("CHRONOS_NODE_PREFAULT_BYTES", self.flags.prefault_bytes.to_string());
        if mode != "off" {
            command.arg("--data-dir").arg(self.data()).args(["--journal", mode]);
        }
        command
    }

    fn foreign(&self, peer: Peer, words: &[&str]) -> Result<Command> {
        let core = self.flags.server_cores.parse();
        let core = core.context("creates are measured on one core: --server-cores N")?;
        let seat = peers::Seat {
            core,
            node_binary: self.node_binary,
            prefault_bytes: 0,
            folder: self.folder,
        };
        seat.pinned(peer, words)
    }
}

/// Waits until a node has made its first files, which are zeroed and no part of what a create
/// costs.
fn await_files(data: &Path) -> Result<()> {
    let began = Instant::now();
    let mut before = Vec::new();
    loop {
        let found = files_below(data);
        if found == before && !found.is_empty() {
            return Ok(());
        }
        ensure!(began.elapsed() < FILES, "the node makes files for more than {FILES:?}");
        before = found;
        std::thread::sleep(LOOK);
    }
}

/// Name and length of each file that is large.
fn files_below(folder: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => files.extend(files_below(&path)),
            Ok(found) if found.len() > 1 << 20 => files.push((path, found.len())),
            _ => {}
        }
    }
    files.sort();
    files
}

/// Bytes of all large files in a folder.
pub fn bytes_below(folder: &Path) -> u64 {
    files_below(folder).iter().map(|(_, bytes)| bytes).sum()
}

/// Microseconds of a durable write of 16 KiB in this folder; half of them took less.
pub fn time_disk(folder: &Path) -> Result<f64> {
    let times = chronos::ring::measure_sync(folder, TIMED_WRITES)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(median(&times.iter().map(|time| time.as_secs_f64() * 1e6).collect::<Vec<f64>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_name_of_its_own() {
        let mut names: Vec<_> = servers(&[Peer::Beanstalkd, Peer::Redis, Peer::Ring])
            .iter()
            .map(|s| s.name())
            .collect();
        assert_eq!(names[..3], ["chronos off", "chronos interval", "chronos sync"]);
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
