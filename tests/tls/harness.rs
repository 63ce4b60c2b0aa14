//! A node as a process that serves TLS, and a client.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kit::children::{self, Tied, signal};
use kit::http::{Message, read_message};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tempfile::NamedTempFile;

/// Longest wait for anything that must happen; nothing waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A timer that does not pop while tests run.
pub const TIMER: &str = "{\"timing\":{\"interval\":3600},\"callback\":{\"http\":{\"uri\":\
                         \"http://127.0.0.1:9/never\",\"opaque\":\"x\"}}}";

/// A node in a process of its own. The process ends when the value is dropped.
pub struct Node {
    process: Child,
    /// Where plain clients connect.
    pub plain: SocketAddr,
    /// Where clients connect that speak TLS.
    pub secure: SocketAddr,
    /// The admin API; that over TLS where there is no plain one.
    pub admin: SocketAddr,
    /// The admin API over TLS.
    pub admin_tls: Option<SocketAddr>,
    logged: Arc<Mutex<String>>,
    config: NamedTempFile,
}

impl Drop for Node {
    fn drop(&mut self) {
        let ended = self.process.try_wait().expect("a child can be asked");
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if !thread::panicking() {
            let by_itself = ended.filter(|status| !status.success());
            assert!(by_itself.is_none(), "the node died: {by_itself:?}\n{}", self.logged());
            let logged = self.logged();
            assert!(!logged.contains("panicked") && !logged.contains("PRIVATE"), "{logged}");
        }
    }
}

/// The command that starts a node with this file. Deadlines are longer than tests wait, where the
/// file does not give its own.
pub fn command(file: &NamedTempFile, config: &str) -> Command {
    command_at(file, config, SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn command_at(file: &NamedTempFile, config: &str, listen: SocketAddr) -> Command {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.env_clear().env("CHRONOS_LIMITS_IDLE_TIMEOUT_MS", "600000");
    if !config.contains("handshake_timeout_ms") {
        command.env("CHRONOS_TLS_HANDSHAKE_TIMEOUT_MS", "600000");
    }
    if !config.contains("\nlisten = ") {
        command.args(["--listen", &listen.to_string()]);
    }
    let admin = if has_plain_admin(config) { "127.0.0.1:0" } else { "off" };
    command
        .args(["--admin", admin, "--no-pin"])
        .args(["--shards", "2", "--log-format", "json", "--config"])
        .arg(file.path());
    command
}

fn has_plain_admin(config: &str) -> bool {
    !config.contains("enabled = false")
}

/// A file with this configuration.
pub fn config_file(config: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(config.as_bytes()).expect("written");
    file
}

impl Node {
    /// Starts a node of two shards.
    pub fn start(config: &str) -> Node {
        Node::start_with(config, &[])
    }

    /// The same with these variables in its environment.
    pub fn start_with(config: &str, variables: &[(&str, String)]) -> Node {
        let file = config_file(config);
        let mut command = command(&file, config);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let node = Node::run(command, file, config);
        assert!(node.plain.port() != 0 && node.secure.port() != 0, "{}", node.logged());
        node
    }

    /// Starts a node for which names lead where this file says.
    pub fn start_by_names(config: &str, names: &Path) -> Node {
        let file = config_file(config);
        let mut command = command(&file, config);
        command.arg("--dns-config-file").arg(names);
        Node::run(command, file, config)
    }

    /// Starts a node with this address, which may be open to nobody or to nodes alone.
    pub fn start_at(config: &str, listen: SocketAddr) -> Node {
        let file = config_file(config);
        let command = command_at(&file, config, listen);
        Node::run(command, file, config)
    }

    /// Starts a process of two shards that serves timestamps and no timers.
    pub fn start_timestamps(config: &str) -> Node {
        let file = config_file(config);
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.env_clear().args(["timestamp", "serve", "--admin", "127.0.0.1:0", "--no-pin"]);
        command.args(["--shards", "2", "--log-format", "json", "--config"]).arg(file.path());
        Node::run(command, file, config)
    }

    /// Starts a process. Where it does not listen, the address has port 0.
    fn run(mut command: Command, file: NamedTempFile, config: &str) -> Node {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn_tied().expect("the binary runs");
        let mut errors = BufReader::new(process.stderr.take().expect("piped"));
        let (mut plain, mut secure, mut admin, mut admin_tls) = (None, None, None, None);
        let mut seen = String::new();
        while admin.is_none() {
            let mut line = String::new();
            let count = errors.read_line(&mut line).expect("text");
            assert!(count > 0, "the node ended before it said where it listens:\n{seen}");
            plain = plain.or(address_after("clients connect to http://", &line));
            secure = secure.or(address_after("clients connect to https://", &line));
            admin_tls = admin_tls.or(address_after("the admin API is on https://", &line));
            admin = match has_plain_admin(config) {
                true => address_after("admin API on http://", &line),
                false => admin_tls,
            };
            seen.push_str(&line);
        }
        let logged = Arc::new(Mutex::new(seen));
        let log = logged.clone();
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                writeln!(log.lock().expect("no writer panics"), "{line}").expect("memory");
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = |found: Option<SocketAddr>| found.unwrap_or(nowhere);
        let (plain, secure, admin) = (address(plain), address(secure), address(admin));
        Node { process, plain, secure, admin, admin_tls, logged, config: file }
    }

    /// Everything that the node has logged so far.
    pub fn logged(&self) -> String {
        self.logged.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Sends SIGHUP and waits until the node has logged `told` once more.
    pub fn reload(&self, told: &str) {
        self.change(told, || {});
    }

    /// Changes where names lead.
    pub fn change_names(&self, change: impl FnOnce()) {
        self.signalled("USR2", "names that lead elsewhere are read", change);
    }

    /// Changes files, sends SIGHUP and waits until the node has logged `told` once more: it may
    /// have noticed by itself.
    pub fn change(&self, told: &str, change: impl FnOnce()) {
        self.signalled("HUP", told, change);
    }

    fn signalled(&self, name: &str, told: &str, change: impl FnOnce()) {
        let count = |logged: String| logged.matches(told).count();
        let before = count(self.logged());
        change();
        assert!(signal(self.process.id(), name).success());
        let what = format!("`{told}` in the log");
        kit::until::until(&what, PATIENCE, || (count(self.logged()) > before).then_some(()));
    }

    /// Asks the node to stop in order.
    pub fn stop(&self) {
        assert!(signal(self.process.id(), "TERM").success());
    }

    /// Puts a pipe in place of the configuration file.
    pub fn become_pipe(&self) {
        std::fs::remove_file(self.config.path()).expect("there");
        let made = children::command("mkfifo").arg(self.config.path()).status();
        assert!(made.expect("it runs").success());
    }

    /// Waits until the node says that it has stopped.
    pub fn ended(&self) {
        let stopped = || self.logged().contains("\"stopped\"").then_some(());
        kit::until::until("the end of the node", PATIENCE, stopped);
    }

    /// A counter of the admin API, summed over the cores.
    pub fn metric(&self, name: &str) -> u64 {
        let answer = kit::client::request(self.admin, "GET", "/metrics", "").expect("an answer");
        let samples = answer.body.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let value = |line: &str| -> f64 {
            line.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number")
        };
        samples.map(value).sum::<f64>() as u64
    }

    /// Waits until a counter has this value: a core publishes what it counts a little later.
    pub fn await_metric(&self, name: &str, value: u64) {
        let what = format!("{name} to be {value}");
        kit::until::until(&what, PATIENCE, || (self.metric(name) == value).then_some(()));
    }
}

fn address_after(phrase: &str, line: &str) -> Option<SocketAddr> {
    let rest = line.split_once(phrase)?.1;
    let end = rest.find(|c: char| !"0123456789.:".contains(c)).unwrap_or(rest.len());
    rest[..end].trim_end_matches(':').parse().ok()
}

/// Opens a connection with the suite's patience.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the node accepts");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// The client's side of a connection to localhost.
pub fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(config.clone(), name).expect("a client")
}

/// A client that speaks TLS.
pub struct Client {
    /// The connection.
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(node: &Node, config: &Arc<ClientConfig>) -> Client {
        let stream = StreamOwned::new(session(config), connect(node.secure));
        Client { stream, buffer: Vec::new() }
    }

    /// Sends one request. Error: the connection did not take it.
    pub fn send(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<()> {
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(text.as_bytes())
    }

    /// The next answer, whole. Error: the connection ended or broke.
    pub fn answer(&mut self) -> std::io::Result<Message> {
        read_message(&mut self.stream, &mut self.buffer)
    }

    /// Sends one request and returns its answer.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> Message {
        self.send(method, path, body).expect("the node takes it");
        self.answer().expect("an answer")
    }

    /// Creates a timer and returns its path.
    pub fn create(&mut self) -> String {
        let answer = self.request("POST", "/timers", TIMER);
        assert!(answer.head.starts_with("HTTP/1.1 200 "), "{}", answer.head);
        answer.header("Location").expect("created").to_owned()
    }

    /// Waits for the end. Returns whether the node said so (close_notify) before it closed.
    pub fn end_is_told(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest, b"", "more than was expected"),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return false,
            Err(error) => panic!("neither an answer nor the end: {error}"),
        }
        true
    }
}
