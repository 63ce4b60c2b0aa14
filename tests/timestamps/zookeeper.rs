//! A real `ZooKeeper`, started with java from the jars of the distribution, on a port and in a
//! folder of its own. Nothing of the system is touched.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use kit::children::command;
use tempfile::TempDir;
use zookeeper_client::{Acls, Client, CreateMode};

use super::processes::{Process, free_port, until};

/// The jar of Debian's package `zookeeper`. Its manifest names the other jars.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// How long a server may take to start. A Java virtual machine starts slowly where many processes
/// share two cores.
const START: Duration = Duration::from_secs(120);
/// How long a session that writes may take. Where an ensemble serves it takes milliseconds.
const PROBE_MAX: Duration = Duration::from_secs(20);

/// One server of `ZooKeeper`. Dropping the value ends it.
#[derive(Debug)]
pub struct ZooKeeper {
    folder: TempDir,
    port: u16,
    jaas: Option<PathBuf>,
    process: Option<Process>,
}

impl ZooKeeper {
    /// Starts a server with this tick. Sessions last at least 2 ticks.
    pub fn start(tick_ms: u64) -> ZooKeeper {
        let mut zookeeper = ZooKeeper::prepared(tick_ms, "");
        zookeeper.run();
        zookeeper
    }

    /// Starts a server that accepts `user` with `password` by SASL.
    pub fn start_with_sasl(tick_ms: u64, user: &str, password: &str) -> ZooKeeper {
        let mut zookeeper = ZooKeeper::prepared(tick_ms, "");
        let jaas = zookeeper.folder.path().join("jaas.conf");
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        let text = format!("Server {{ {module} required user_{user}=\"{password}\"; }};\n");
        std::fs::write(&jaas, text).expect("a file");
        zookeeper.jaas = Some(jaas);
        zookeeper.run();
        zookeeper
    }

    fn prepared(tick_ms: u64, more: &str) -> ZooKeeper {
        assert!(
            Path::new(JAR).exists(),
            "there is no {JAR}. Install ZooKeeper, then run this again:\n    apt-get install -y \
             zookeeper"
        );
        let folder = tempfile::Builder::new().prefix("chronos-zk-").tempdir().expect("room");
        let port = free_port();
        let mut text = format!("tickTime={tick_ms}\nclientPort={port}\n");
        let data = folder.path().join("data");
        writeln!(text, "dataDir={}", data.display()).expect("memory");
        text.push_str("clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n");
        // The limit is not the usual 20 ticks, because stories in which no session should end have
        // long sessions.
        text.push_str("maxSessionTimeout=120000\n");
        // A disk that other processes use must not decide how long a story takes.
        text.push_str("forceSync=no\n");
        text.push_str(
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n",
        );
        text.push_str(more);
        std::fs::create_dir(&data).expect("a folder");
        std::fs::write(folder.path().join("zoo.cfg"), text).expect("a file");
        ZooKeeper { folder, port, jaas: None, process: None }
    }

    /// Starts the server, again or for the first time, and waits until it answers.
    pub fn run(&mut self) {
        self.spawn();
        self.await_answer();
    }

    fn spawn(&mut self) {
        let mut java = command("java");
        java.args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
        if let Some(jaas) = &self.jaas {
            java.arg(format!("-Djava.security.auth.login.config={}", jaas.display()));
        }
        java.args(["-cp", JAR, MAIN]).arg(self.folder.path().join("zoo.cfg"));
        self.process = Some(Process::start(&mut java, &self.folder.path().join("log")));
    }

    fn await_answer(&mut self) {
        let quorum = self.quorum();
        let process = self.process.as_mut().expect("it runs");
        until("ZooKeeper to answer", START, || {
            if let Some(status) = process.ended() {
                panic!("ZooKeeper ended with {status}:\n{}", process.logged());
            }
            block_on(async { Client::connector().with_fail_eagerly().connect(&quorum).await.ok() })
        });
    }

    /// Ends the server at once. Its data stay.
    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Returns the process. Panics if it does not run.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    /// Returns `host:port` of the server.
    pub fn quorum(&self) -> String {
        SocketAddr::from(([127, 0, 0, 1], self.port)).to_string()
    }

    /// Reports whether the server says that it leads an ensemble. A frozen server must not be
    /// asked.
    fn leads(&self) -> bool {
        self.told().is_ok_and(|told| told.contains("Mode: leader"))
    }

    /// Returns the server's answer to `srvr`.
    fn told(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.quorum())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"srvr")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    }
}

/// Three servers of `ZooKeeper` that elect a leader.
#[derive(Debug)]
pub struct Ensemble {
    pub all: Vec<ZooKeeper>,
}

impl Ensemble {
    /// Starts an ensemble with this tick.
    pub fn start(tick_ms: u64) -> Ensemble {
        let mut more = "initLimit=100\nsyncLimit=20\n".to_owned();
        for id in 1..=3 {
            let (peers, election) = (free_port(), free_port());
            writeln!(more, "server.{id}=127.0.0.1:{peers}:{election}").expect("memory");
        }
        let prepared = (1..=3).map(|id| {
            let server = ZooKeeper::prepared(tick_ms, &more);
            let file = server.folder.path().join("data/myid");
            std::fs::write(file, format!("{id}\n")).expect("a file");
            server
        });
        let mut ensemble = Ensemble { all: prepared.collect() };
        ensemble.all.iter_mut().for_each(ZooKeeper::spawn);
        ensemble.all.iter_mut().for_each(ZooKeeper::await_answer);
        ensemble
    }

    /// Reports whether a new session can write.
    pub fn serves(&self) -> bool {
        let quorum = self.quorum();
        let write = async {
            let client = Client::connector().with_fail_eagerly().connect(&quorum).await?;
            let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            client.create("/probe-", b"", &options).await.map(drop)
        };
        block_on(async { tokio::time::timeout(PROBE_MAX, write).await.is_ok_and(|it| it.is_ok()) })
    }

    /// Returns the servers' answers to `srvr`. The package has nothing that writes their logs.
    pub fn told(&self) -> String {
        let told = |server: &ZooKeeper| format!("{}: {:?}", server.quorum(), server.told());
        self.all.iter().map(told).collect::<Vec<_>>().join("; ")
    }

    /// Ends and starts all servers but `away`, which do not run.
    pub fn start_anew(&mut self, away: &[usize]) {
        let here = (0..self.all.len()).filter(|place| !away.contains(place));
        let here: Vec<usize> = here.collect();
        here.iter().for_each(|place| self.all[*place].kill());
        here.iter().for_each(|place| self.all[*place].spawn());
        here.iter().for_each(|place| self.all[*place].await_answer());
    }

    /// Returns `host:port` of each server, with commas.
    pub fn quorum(&self) -> String {
        self.all.iter().map(ZooKeeper::quorum).collect::<Vec<_>>().join(",")
    }

    /// Returns the leader's place. All servers must run.
    pub fn leader(&self) -> usize {
        until("a leader", START, || self.all.iter().position(ZooKeeper::leads))
    }
}

/// The tick of the shared server: 100 ms, so sessions of at least 200 ms.
pub const SHORT_TICK_MS: u64 = 100;
static SHARED: Mutex<Option<ZooKeeper>> = Mutex::new(None);

/// Returns `host:port` of the server that many stories share, each in a cluster of its own. Its
/// ticks are short.
pub fn shared() -> String {
    let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    shared.get_or_insert_with(|| ZooKeeper::start(SHORT_TICK_MS)).quorum()
}

/// Ends the shared server. Called when all stories are over.
pub fn end_shared() {
    drop(SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
}

/// Runs a conversation with `ZooKeeper` to its end.
pub fn block_on<T>(conversation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(conversation)
}
