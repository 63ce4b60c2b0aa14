//! Servers of timestamps: the binary, started as operators start it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kit::children;
use kit::client::request;
use serde_json::Value;
use tempfile::TempDir;

use super::processes::{Process, free_port, until};

/// Longest wait for something that must happen: a start, another master, a value.
pub const START: Duration = Duration::from_secs(60);

/// One server: its addresses, and its process if it runs.
#[derive(Debug)]
pub struct Server {
    /// The address of the Thrift listener.
    pub address: SocketAddr,
    /// The address of the admin API.
    pub admin: SocketAddr,
    /// Words before the binary's name.
    starter: Vec<String>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

impl Server {
    /// Makes a server that does not run yet. `arguments` follow `chronos timestamp serve`.
    pub fn new(folder: &Path, name: &str, arguments: &[&str]) -> Server {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (address, admin) = (at(free_port()), at(free_port()));
        let fixed = format!(
            "timestamp serve --no-pin --shards 1 --listen {address} --admin {admin} --log-format \
             text"
        );
        let arguments = fixed.split(' ').chain(arguments.iter().copied()).map(str::to_owned);
        let arguments = arguments.collect();
        let starter = vec![env!("CARGO_BIN_EXE_chronos").to_owned()];
        let log = folder.join(name);
        Server { address, admin, starter, environment: Vec::new(), arguments, log, process: None }
    }

    /// Sets a variable of the environment, from the server's next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the same server with `starter` in place of the binary's name.
    pub fn started_by(self, starter: &[&str]) -> Server {
        Server { starter: starter.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }

    /// Starts the process.
    pub fn spawn(&mut self) {
        let mut command = children::command(&self.starter[0]);
        command.args(&self.starter[1..]).args(&self.arguments);
        command.env_remove("CHRONOS_CONFIG").env_remove("CHRONOS_TIMESTAMPS_LONG_S");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.process = Some(Process::start(&mut command, &self.log));
    }

    /// Starts the process and waits until the server is master or backup.
    pub fn start(&mut self) {
        self.spawn();
        self.await_role(&["master", "backup"], START);
    }

    /// Returns the process. Panics if it was not started.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    /// Reports whether the story has started the server and not ended it.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Returns the section of `/status`; `None` if the server does not answer.
    pub fn status(&self) -> Option<Value> {
        let answer = request(self.admin, "GET", "/status", "").ok()?;
        let status: Value = serde_json::from_str(&answer.body).ok()?;
        Some(status["timestamp"].clone())
    }

    /// Returns the role; `None` if the server does not answer.
    pub fn role(&self) -> Option<String> {
        self.status()?["role"].as_str().map(str::to_owned)
    }

    /// Returns a count of `/status`.
    pub fn count(&self, name: &str) -> u64 {
        let status = self.status().expect("it answers");
        status["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} in {status}"))
    }

    /// Waits until the server has one of these roles.
    pub fn await_role(&mut self, roles: &[&str], patience: Duration) {
        until(&format!("a server to be one of {roles:?}"), patience, || {
            self.supervise();
            self.role().filter(|role| roles.contains(&role.as_str()))
        });
    }

    /// Starts the server again if its predecessor still had the port. The kernel tears down the
    /// ring of a killed process, and the sockets in it, after the process has ended. Panics at any
    /// other end.
    pub fn supervise(&mut self) {
        if let Some(status) = self.process().ended() {
            let said = self.process().logged();
            let why = said.lines().last().unwrap_or_default();
            assert!(why.contains("Address already in use"), "it ended with {status}:\n{said}");
            self.spawn();
        }
    }

    /// Ends the server at once: sends SIGKILL.
    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Stops the server in order: sends SIGTERM, and fails unless it ends well.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal("TERM");
        let status = process.await_end(START);
        assert!(status.success(), "{status}\n{}", process.logged());
        assert!(!process.logged().contains("panicked"), "{}", process.logged());
    }
}

/// Servers that are backups of each other.
#[derive(Debug)]
pub struct Servers {
    pub all: Vec<Server>,
    /// The folder of the logs.
    _folder: TempDir,
    /// The name of the cluster.
    pub cluster: String,
}

impl Servers {
    /// Starts servers on this `ZooKeeper`, with sessions of this length. The first server is
    /// master.
    pub fn start(count: usize, quorum: &str, session_ms: u64) -> Servers {
        Servers::start_with(count, quorum, session_ms, &[])
    }

    /// Starts servers with more arguments.
    pub fn start_with(count: usize, quorum: &str, session_ms: u64, more: &[&str]) -> Servers {
        Servers::start_in(&format!("story-{}", free_port()), count, quorum, session_ms, more)
    }

    /// Makes servers, none of them running.
    pub fn stopped(count: usize, quorum: &str, session_ms: u64) -> Servers {
        Servers::prepared(&format!("story-{}", free_port()), count, quorum, session_ms, &[])
    }

    /// Starts servers in a cluster of this name.
    pub fn start_in(
        cluster: &str,
        count: usize,
        quorum: &str,
        session_ms: u64,
        more: &[&str],
    ) -> Servers {
        let mut servers = Servers::prepared(cluster, count, quorum, session_ms, more);
        servers.all.iter_mut().for_each(Server::start);
        servers
    }

    fn prepared(
        cluster: &str,
        count: usize,
        quorum: &str,
        session_ms: u64,
        more: &[&str],
    ) -> Servers {
        let folder = tempfile::Builder::new().prefix("chronos-ts-").tempdir().expect("room");
        let session = session_ms.to_string();
        let mut arguments = vec!["--coordination", "zookeeper", "--zookeeper-quorum", quorum];
        arguments.extend(["--zookeeper-cluster", cluster, "--session-timeout-ms", &session]);
        arguments.extend(more);
        let named = |place: usize| format!("server{place}.log");
        let all = (0..count).map(|place| Server::new(folder.path(), &named(place), &arguments));
        Servers { all: all.collect(), _folder: folder, cluster: cluster.to_owned() }
    }

    /// Returns the addresses that clients connect to.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.all.iter().map(|server| server.address).collect()
    }

    /// Returns the master's place. Frozen servers must not be asked.
    pub fn master(&self) -> usize {
        until("a master", START, || self.find_master())
    }

    /// Returns the place of the running server that says that it is master.
    pub fn find_master(&self) -> Option<usize> {
        let running = self.all.iter().enumerate().filter(|(_, server)| server.runs());
        let mut roles = running.map(|(place, server)| (place, server.role()));
        roles.find(|(_, role)| role.as_deref() == Some("master")).map(|(place, _)| place)
    }
}
