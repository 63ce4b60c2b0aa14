//! Nodes as processes, and commands that run to their end.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use kit::children::{self, Tied, signal};
use kit::client::request;
use kit::ports;
use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody listens there, and nobody may.
pub const NOWHERE: &str = "http://127.0.0.1:9/never";

/// A node of two unpinned shards, ended with the value.
pub struct Node {
    process: Child,
    pub folder: TempDir,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log"));
            eprintln!("-- the node said:\n{}", log.unwrap_or_default());
        }
    }
}

impl Node {
    /// Starts a node with this configuration (TOML, may be empty), and waits until it serves.
    pub fn start(config: &str) -> Node {
        let folder = tempfile::Builder::new().prefix("chronos-cli-").tempdir().expect("room");
        Node::start_in(folder, config)
    }

    /// The same with files that the configuration names.
    pub fn start_in(folder: TempDir, config: &str) -> Node {
        let host = IpAddr::from([127, 0, 0, 1]);
        let [port, admin_port] = [0, 0].map(|_| ports::free_port(&[host]));
        Node::start_at(folder, config, host, (port, admin_port))
    }

    /// The same at an address.
    pub fn start_at(folder: TempDir, config: &str, host: IpAddr, at: (u16, u16)) -> Node {
        let (address, admin) = (SocketAddr::new(host, at.0), SocketAddr::new(host, at.1));
        let file = folder.path().join("chronos.toml");
        std::fs::write(&file, config).expect("written");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.env_clear().args(["--no-pin", "--shards", "2", "--log-format", "json"]);
        command.args(["--listen", &address.to_string(), "--admin", &admin.to_string()]);
        command.arg("--config").arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn_tied().expect("the binary runs");
        let node = Node { process, folder, address, admin };
        until("the node to serve", || {
            let answer = request(node.admin, "GET", "/readyz", "").ok()?;
            (answer.status == 200).then_some(())
        });
        node
    }

    /// Stops the process where it is: it answers nothing, and its connections stay.
    pub fn freeze(&self) {
        signal(self.process.id(), "STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        signal(self.process.id(), "CONT");
    }

    /// Runs a command of clients.
    pub fn timer(&self, words: &[&str]) -> Ended {
        let (server, admin) = (self.address.to_string(), self.admin.to_string());
        run(&[&["timer"], words, &["--server", &server, "--admin", &admin]].concat())
    }

    /// Runs a command of operators.
    pub fn operate(&self, words: &[&str]) -> Ended {
        run(&[words, &["--admin", &self.admin.to_string()]].concat())
    }

    /// Creates a timer, and returns its id.
    pub fn create(&self, words: &[&str]) -> String {
        let made = self.timer(&[&["create"], words].concat());
        made.expect(0, "");
        made.out.trim_end().to_owned()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub errors: String,
}

impl Ended {
    #[track_caller]
    pub fn expect(&self, code: i32, told: &str) -> &Ended {
        assert_eq!(self.code, Some(code), "{self:?}");
        let is_told = self.out.contains(told) || self.errors.contains(told);
        assert!(is_told, "{told:?} is not in {self:?}");
        assert!(!self.errors.contains("panicked"), "{self:?}");
        self
    }

    /// The document on standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs the binary without variables.
pub fn run(words: &[&str]) -> Ended {
    run_with(words, &[])
}

/// Runs the binary with these variables alone.
pub fn run_with(words: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.env_clear().envs(variables.iter().copied()).args(words);
    let output = command.output_tied().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), errors: text(output.stderr) }
}

/// Looks until there is something to see.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    kit::until::until(what, PATIENCE, look)
}

/// A path as an argument.
pub fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}
