//! Nodes with a journal: real processes with files of their own.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::rc::Rc;
use std::thread;

use kit::children::{Tied, command, signal};
use kit::client::{Answer, request};
use kit::ports::free_port;
use kit::until::{PATIENCE, until};
use tempfile::TempDir;

/// How many places a cluster has: 127.0.0.71 to 127.0.0.73.
const PLACES: usize = 3;

/// Lines of a configuration: a machine that is busy makes no disk one that does not answer.
pub const PATIENT: &str = "[journal]\nstall_ms = 60000\n";

/// A node. Dropping the value ends its process.
pub struct Node {
    place: usize,
    folder: Rc<TempDir>,
    /// The address for clients, which is the node's name, too.
    pub address: SocketAddr,
    admin: SocketAddr,
    members: Vec<SocketAddr>,
    /// The number of shards.
    pub shards: usize,
    /// The data directory.
    pub data: PathBuf,
    /// Further words of the command line.
    pub words: Vec<String>,
    /// Words before the name of the program.
    pub starter: Vec<String>,
    /// Further lines of the configuration.
    pub lines: String,
    process: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error means that the process has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        let log = self.log();
        if thread::panicking() {
            let story = thread::current().name().unwrap_or("?").to_owned();
            eprintln!("-- {story}: {} said:\n{log}", self.address);
        } else {
            assert!(!log.contains("panicked"), "{log}");
        }
    }
}

impl Node {
    /// Makes a node of its own with one shard. It does not run.
    pub fn alone() -> Node {
        Node::cluster(1).remove(0)
    }

    /// Makes the nodes of a cluster. None of them runs.
    pub fn cluster(count: usize) -> Vec<Node> {
        let hosts: Vec<IpAddr> =
            (0..PLACES as u8).map(|place| IpAddr::from([127, 0, 0, 71 + place])).collect();
        let (port, admin_port) = (free_port(&hosts), free_port(&hosts));
        let folder = tempfile::Builder::new().prefix("chronos-journal-").tempdir().expect("room");
        let folder = Rc::new(folder);
        let address = |place: usize| SocketAddr::new(hosts[place], port);
        let members: Vec<_> = (0..count).map(address).collect();
        let node = |place| Node {
            place,
            folder: folder.clone(),
            address: address(place),
            admin: SocketAddr::new(hosts[place], admin_port),
            members: if count > 1 { members.clone() } else { Vec::new() },
            shards: 1,
            data: folder.path().join(format!("data{place}")),
            words: Vec::new(),
            starter: Vec::new(),
            lines: String::new(),
            process: None,
        };
        (0..count).map(node).collect()
    }

    /// The folder of the story.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of the admin API.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    fn file(&self, what: &str) -> PathBuf {
        self.folder().join(format!("node{}.{what}", self.place))
    }

    /// Starts the process. Does not wait until it serves.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "{} runs", self.address);
        let names: Vec<_> = self.members.iter().map(|name| format!("\"{name}\"")).collect();
        let text = format!(
            "[node]\nlisten = \"{}\"\nshards = {}\npin = false\ninstance_id = {}\n\n\
             [admin]\nlisten = \"{}\"\n\n[cluster]\nnodes = [{}]\n\n{}",
            self.address,
            self.shards,
            self.place + 1,
            self.admin,
            names.join(", "),
            self.lines
        );
        fs::write(self.file("toml"), text).expect("a file in the story's folder");
        let log = File::options().create(true).append(true).open(self.file("log"));
        let log = log.expect("a file in the story's folder");
        let mut words = self.starter.clone();
        words.push(env!("CARGO_BIN_EXE_chronos").to_owned());
        let process = command(&words[0])
            .args(&words[1..])
            .args(["--log-format", "text", "--config"])
            .arg(self.file("toml"))
            .arg("--data-dir")
            .arg(&self.data)
            .args(&self.words)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn_tied()
            .expect("the binary runs");
        self.process = Some(process);
    }

    /// Waits until `/readyz` says that the node serves.
    pub fn await_ready(&mut self) {
        until(&format!("{} to serve", self.address), PATIENCE, || {
            if let Some(status) = self.ended() {
                panic!("{} ended with {status}:\n{}", self.address, self.log());
            }
            let answer = request(self.admin, "GET", "/readyz", "").ok()?;
            (answer.status == 200).then_some(())
        });
    }

    /// Starts the process and waits until it serves.
    pub fn start(&mut self) {
        self.spawn();
        self.await_ready();
    }

    /// Waits until the log has these words: a thread of its own writes it.
    pub fn await_log(&self, words: &str) {
        until(words, PATIENCE, || self.log().contains(words).then_some(()));
    }

    /// Starts the process, waits until it ends by itself, and returns how, and what it said.
    pub fn start_in_vain(&mut self) -> (ExitStatus, String) {
        let before = self.log().len();
        self.spawn();
        let status = self.await_end();
        (status, self.log().split_off(before))
    }

    /// Waits until the process ends by itself.
    pub fn await_end(&mut self) -> ExitStatus {
        let status = until("the node to end", PATIENCE, || self.ended());
        self.process = None;
        status
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().expect("started").try_wait().expect("a child can be asked")
    }

    /// Ends the process at once: SIGKILL. Panics if it has ended before.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        assert!(process.try_wait().expect("a child").is_none(), "{}", self.log());
        process.kill().expect("a child can be killed");
        process.wait().expect("it ends");
    }

    /// Stops the node in order: SIGTERM. Panics unless it ends well.
    pub fn stop(&mut self) {
        let sent = signal(self.pid(), "TERM");
        assert!(sent.success());
        let status = self.await_end();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// The process id of the running node.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// Sends one request. Panics if the node does not answer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        request(self.address, method, path, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()))
    }

    /// Creates a timer and returns its path.
    pub fn create(&self, body: &str) -> String {
        self.request("POST", "/timers", body).location().to_owned()
    }

    /// Has a backup made, and returns how the command ended and what it said.
    pub fn back_up(&self, to: &Path) -> (ExitStatus, String) {
        back_up(self.admin, to)
    }

    /// Returns the sum of a metric over the cores; `None` if the node does not answer.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let answer = request(self.admin, "GET", "/metrics", "").ok()?;
        let values = answer.body.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_it = rest.starts_with('{') || rest.starts_with(' ');
            is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
        });
        let values: Vec<f64> = values.collect();
        assert!(!values.is_empty() || answer.status != 200, "no metric {name}");
        Some(values.iter().sum::<f64>() as u64)
    }

    /// Waits until a metric has a value.
    pub fn await_metric(&self, name: &str, is_it: impl Fn(u64) -> bool) {
        let what = format!("{name} (at last {:?})", self.metric(name));
        until(&what, PATIENCE, || self.metric(name).filter(|value| is_it(*value)).map(drop));
    }

    /// The segments of a shard in the newest generation, in their order.
    pub fn segments(&self, shard: usize) -> Vec<PathBuf> {
        let listed = |path: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(path).expect("a directory of the node");
            let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
            paths.sort();
            paths
        };
        // A snapshot for a backup stands beside them.
        let is_generation = |path: &PathBuf| path.is_dir() && !path.ends_with("snapshot");
        let newest = listed(&self.data).into_iter().rfind(is_generation).expect("a generation");
        let is_segment =
            |path: &PathBuf| path.extension().is_some_and(|extension| extension == "segment");
        listed(&newest.join(shard.to_string())).into_iter().filter(is_segment).collect()
    }
}

/// The body of a request that defines a timer. `repeats`: how often it pops.
pub fn body(uri: &str, interval_ms: u64, repeats: u64, opaque: &str, factor: usize) -> String {
    let (interval, whole) = (interval_ms as f64 / 1e3, (interval_ms * repeats) as f64 / 1e3);
    format!(
        "{{\"timing\":{{\"interval\":{interval},\"repeat-for\":{whole}}},\
         \"callback\":{{\"http\":{{\"uri\":\"{uri}\",\"opaque\":\"{opaque}\"}}}},\
         \"reliability\":{{\"replication-factor\":{factor}}}}}"
    )
}

/// How many turns the command line asks for, or this many.
pub fn turns(usual: usize) -> usize {
    let mut words = std::env::args().skip_while(|word| word != "--turns").skip(1);
    words.next().map_or(usual, |word| word.parse().expect("--turns takes a number"))
}

/// Makes a backup of the node with this admin API. Returns how the command ended, and what it said.
pub fn back_up(admin: SocketAddr, to: &Path) -> (ExitStatus, String) {
    let binary = env!("CARGO_BIN_EXE_chronos");
    let admin = admin.to_string();
    let done = command(binary).args(["backup", "--admin", &admin]).arg(to).output_tied();
    let done = done.expect("the binary runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status, String::from_utf8_lossy(&said).into_owned())
}
