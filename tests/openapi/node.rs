//! A node as a process, and tokens for it.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use kit::children::{self, Tied, signal};
use tempfile::{NamedTempFile, TempDir};

/// Deadlines that no slow machine meets, for nodes that are not given others.
const PATIENT: [(&str, &str); 2] =
    [("CHRONOS_LIMITS_IDLE_TIMEOUT_MS", "600000"), ("CHRONOS_CALLBACKS_TIMEOUT_MS", "60000")];

/// A node of one shard. The process ends when the value is dropped.
pub struct Node {
    process: Child,
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of the admin API.
    pub admin: SocketAddr,
    /// The address of the admin API over TLS, if there is one.
    pub admin_tls: Option<SocketAddr>,
    config: NamedTempFile,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    /// Starts a node with this configuration.
    pub fn start(config: &str) -> Node {
        Node::start_at("127.0.0.1:0", config)
    }

    /// Starts a node at this address.
    pub fn start_at(address: &str, config: &str) -> Node {
        Node::start_in(&[], address, config)
    }

    /// Starts a node with these variables besides.
    pub fn start_in(variables: &[(&str, &str)], address: &str, config: &str) -> Node {
        let mut file = NamedTempFile::new().expect("a temporary file");
        file.write_all(config.as_bytes()).expect("written");
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.env_clear();
        command.envs(PATIENT.into_iter().filter(|(_, value)| {
            let is_given = config.contains("idle_timeout_ms") && *value == PATIENT[0].1;
            !is_given
        }));
        command.envs(variables.iter().copied());
        let mut process = command
            .args(["--listen", address, "--admin", "127.0.0.1:0", "--no-pin", "--shards", "1"])
            .args(["--log-format", "json", "--config"])
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn_tied()
            .expect("the binary runs");
        let mut errors = BufReader::new(process.stderr.take().expect("piped"));
        let (mut clients, mut admin, mut admin_tls) = (None, None, None);
        let wants_tls = config.contains("[admin]\nlisten_tls");
        let mut seen = String::new();
        while clients.is_none() || admin.is_none() || (wants_tls && admin_tls.is_none()) {
            let mut line = String::new();
            let count = errors.read_line(&mut line).expect("text");
            assert!(count > 0, "the node ended before it said where it listens:\n{seen}");
            clients = clients.or(address_after("clients connect to http://", &line));
            admin = admin.or(address_after("admin API on http://", &line));
            admin_tls = admin_tls.or(address_after("admin API is on https://", &line));
            seen.push_str(&line);
        }
        // Somebody has to read what is logged.
        thread::spawn(move || errors.lines().map_while(Result::ok).for_each(drop));
        let (address, admin) = (clients.expect("told"), admin.expect("told"));
        Node { process, address, admin, admin_tls, config: file }
    }

    /// Writes another configuration, which the node does not read by itself.
    pub fn write_config(&self, config: &str) {
        std::fs::write(self.config.path(), config).expect("written");
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        assert!(signal(self.process.id(), name).success());
    }
}

fn address_after(phrase: &str, line: &str) -> Option<SocketAddr> {
    let rest = line.split_once(phrase)?.1;
    let end = rest.find(|c: char| !"0123456789.:".contains(c)).unwrap_or(rest.len());
    rest[..end].trim_end_matches(':').parse().ok()
}

/// Lines of `Authorization` for a token of each role, and of one with limits.
pub struct Tokens {
    folder: TempDir,
    pub reader: String,
    pub client: String,
    pub operator: String,
    /// A client that may have one connection.
    pub narrow: String,
    /// A client that may create one timer a second.
    pub slow: String,
}

impl Tokens {
    pub fn make() -> Tokens {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let token = |name: &str, role: &str, more: &[&str]| new_token(&file, name, role, more);
        let (reader, client) = (token("reader", "reader", &[]), token("client", "client", &[]));
        let operator = token("operator", "operator", &[]);
        let narrow = token("narrow", "client", &["--connections", "1"]);
        let slow = token("slow", "client", &["--creates-per-second", "1"]);
        Tokens { folder, reader, client, operator, narrow, slow }
    }

    /// Lines of the configuration that name the file.
    pub fn config(&self) -> String {
        format!("[auth]\ntokens_file = {:?}\n", self.folder.path().join("tokens"))
    }
}

/// Lines of the configuration with which a node serves timestamps. The bound is kept in `folder`.
pub fn timestamps(folder: &Path) -> String {
    let file = folder.join("bound");
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(["timestamp", "init", "--file"]).arg(&file);
    let made = command.output_tied().expect("the binary runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let port = kit::ports::free_port(&["127.0.0.1".parse().expect("an address")]);
    format!("[timestamp]\nenabled = true\nlisten = '127.0.0.1:{port}'\nfile = {file:?}\n")
}

fn new_token(file: &Path, name: &str, role: &str, more: &[&str]) -> String {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(["token", "new", "--name", name, "--role", role]).args(more);
    let made = command.arg("--file").arg(file).output_tied().expect("the binary runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(made.stdout).expect("text");
    format!("Authorization: Bearer {}", token.trim_end())
}
