//! A node as a process, and a client that reads answers strictly.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use kit::children::{self, Tied, signal};
use tempfile::NamedTempFile;

/// Longest wait for anything that must happen; nothing waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// Deadlines of every node that a test does not give its own: beyond [`PATIENCE`], so that a slow
/// machine meets none of them. The line that gives another begins with the second word.
const PATIENT: [(&str, &str, &str); 2] = [
    ("CHRONOS_LIMITS_IDLE_TIMEOUT_MS", "idle_timeout_ms", "600000"),
    ("CHRONOS_CALLBACKS_TIMEOUT_MS", "timeout_ms", "60000"),
];

/// A node in a process of its own. The process ends when the value is dropped.
pub struct Node {
    process: Mutex<Child>,
    pid: u32,
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of the admin API.
    pub admin: SocketAddr,
    logged: Arc<Mutex<String>>,
    config: NamedTempFile,
}

impl Drop for Node {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let ended = process.try_wait().expect("a child can be asked");
        // An error means that the process has ended already.
        let _ = process.kill();
        let _ = process.wait();
        if !thread::panicking() {
            let by_itself = ended.filter(|status| !status.success());
            assert!(by_itself.is_none(), "the node died: {by_itself:?}\n{}", self.logged());
            let logged = self.logged();
            assert!(!logged.contains("panicked"), "{logged}");
            // Start and stop log a few lines. Requests and pops log none.
            assert!(logged.lines().count() < 30, "{logged}");
        }
    }
}

impl Node {
    /// Starts a node with `shards` unpinned shards and this configuration (TOML, may be empty).
    pub fn start(shards: u16, config: &str) -> Node {
        Node::launch(children::command(env!("CARGO_BIN_EXE_chronos")), shards, Some(config))
    }

    /// A node with the deadlines of the defaults: 2 s for a callback.
    pub fn start_as_installed(shards: u16) -> Node {
        Node::launch(children::command(env!("CARGO_BIN_EXE_chronos")), shards, None)
    }

    /// Starts a node whose process may open at most `files_max` files.
    pub fn start_with_open_files(shards: u16, config: &str, files_max: u32) -> Node {
        let mut shell = children::command("sh");
        let script = format!("ulimit -n {files_max}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_chronos")]);
        Node::launch(shell, shards, Some(config))
    }

    fn launch(mut command: Command, shards: u16, config: Option<&str>) -> Node {
        let mut file = NamedTempFile::new().expect("a temporary file");
        file.write_all(config.unwrap_or_default().as_bytes()).expect("written");
        let shards = shards.to_string();
        command.env_clear();
        if let Some(config) = config {
            let is_given = |key: &str| config.lines().any(|line| line.starts_with(key));
            let patient = PATIENT.iter().filter(|one| !is_given(one.1));
            command.envs(patient.map(|(variable, _, value)| (variable, value)));
        }
        let mut process = command
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--no-pin"])
            .args(["--shards", &shards, "--log-format", "json", "--config"])
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn_tied()
            .expect("the binary runs");
        let mut errors = BufReader::new(process.stderr.take().expect("piped"));
        let (mut address, mut admin) = (None, None);
        let mut seen = String::new();
        while admin.is_none() {
            let mut line = String::new();
            let count = errors.read_line(&mut line).expect("text");
            assert!(count > 0, "the node ended before it said where it listens:\n{seen}");
            address = address.or(address_after("clients connect to http://", &line));
            admin = address_after("admin API on http://", &line);
            seen.push_str(&line);
        }
        let logged = Arc::new(Mutex::new(seen));
        let log = logged.clone();
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                writeln!(log.lock().expect("no writer panics"), "{line}").expect("memory");
            }
        });
        let (address, admin) = (address.expect("told first"), admin.expect("the loop's end"));
        let pid = process.id();
        Node { process: Mutex::new(process), pid, address, admin, logged, config: file }
    }

    /// Returns a node of two shards and default limits. Tests share it when its state does not
    /// matter. It ends with the last test that holds it.
    pub fn shared() -> Arc<Node> {
        static SHARED: Mutex<Weak<Node>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let node = Arc::new(Node::start(2, ""));
            *shared = Arc::downgrade(&node);
            node
        })
    }

    /// Writes another configuration, and has the node read it.
    pub fn reconfigure(&self, config: &str) {
        std::fs::write(self.config.path(), config).expect("written");
        self.signal("HUP");
    }

    /// Opens a connection to the node.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends one request on a connection of its own and returns the answer.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        self.client().request(method, path, body)
    }

    /// Creates a timer and returns its path.
    pub fn create(&self, document: &str) -> String {
        self.client().create(document)
    }

    /// Asserts that the node answers.
    pub fn assert_alive(&self, after: &str) {
        let answer = self.request("GET", "/ping", "");
        assert_eq!((answer.status, answer.text()), (200, "OK"), "after {after}");
    }

    /// Returns everything that the node has logged so far.
    pub fn logged(&self) -> String {
        self.logged.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Returns a counter or gauge of the admin API, summed over the cores.
    pub fn metric(&self, name: &str) -> f64 {
        let answer = Client::connect(self.admin).request("GET", "/metrics", "");
        let text = answer.text().to_owned();
        let samples = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_sample = rest.starts_with('{') || rest.starts_with(' ');
            let value = rest.rsplit(' ').next().filter(|_| is_sample)?;
            Some(value.parse::<f64>().expect("a number"))
        });
        let samples: Vec<_> = samples.collect();
        assert!(!samples.is_empty(), "no {name} in\n{text}");
        samples.iter().sum()
    }

    /// Waits until a counter or gauge has this value. A core counts when it has answered, so a
    /// counter that is read right after an answer may lack it.
    pub fn await_metric(&self, name: &str, value: f64) {
        let mut last = f64::NAN;
        let deadline = Instant::now() + PATIENCE;
        while last != value {
            assert!(Instant::now() < deadline, "{name} is {last}, not {value}");
            last = self.metric(name);
        }
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let status = status.expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("told");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let pid = self.pid;
        let sent = signal(pid, name);
        assert!(sent.success());
    }

    /// Waits until the process has ended. Returns its exit status.
    pub fn wait(&self) -> ExitStatus {
        let what = "the node to end";
        until(what, || self.process.lock().expect("one waits").try_wait().expect("a child"))
    }
}

fn address_after(phrase: &str, line: &str) -> Option<SocketAddr> {
    let rest = line.split_once(phrase)?.1;
    let end = rest.find(|c: char| !"0123456789.:".contains(c)).unwrap_or(rest.len());
    rest[..end].trim_end_matches(':').parse().ok()
}

/// Looks until there is something to see, for at most [`PATIENCE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    kit::until::until(what, PATIENCE, look)
}

/// Returns the document of a one-shot or repeating timer.
pub fn document(interval: &str, repeat_for: Option<&str>, uri: &str, opaque: &str) -> String {
    let repeat_for =
        repeat_for.map_or(String::new(), |seconds| format!(",\"repeat-for\":{seconds}"));
    let opaque = serde_json::Value::from(opaque);
    format!(
        "{{\"timing\":{{\"interval\":{interval}{repeat_for}}},\
         \"callback\":{{\"http\":{{\"uri\":\"{uri}\",\"opaque\":{opaque}}}}}}}"
    )
}

/// Returns a timer that does not pop while tests run, at a host that nobody calls.
pub fn far_document() -> String {
    document("3600", None, "http://127.0.0.1:9/never", "x")
}

/// Returns a request with a body of known length, as a usual client writes it.
pub fn request_text(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The number in the status line.
    pub status: u16,
    /// The headers in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body, as long as `Content-Length` says.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header. Panics when the header comes twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|header| header.0.eq_ignore_ascii_case(name));
        let first = values.next();
        assert!(values.next().is_none(), "{name} comes twice in {self:?}");
        first.map(|header| header.1.as_str())
    }

    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("bodies are text")
    }

    /// Returns whether the answer says that the connection closes.
    pub fn says_close(&self) -> bool {
        self.header("Connection") == Some("close")
    }

    /// Asserts the form of every error: a reason in header and body, and `Retry-After` with 503
    /// only.
    pub fn assert_refusal(&self, status: u16, names: &str, what: &str) {
        assert_eq!(self.status, status, "{what}: {self:?}");
        let reason = self.header("Reason").unwrap_or_else(|| panic!("{what}: no reason: {self:?}"));
        assert_eq!(reason, self.text(), "{what}");
        assert!(reason.contains(names), "{what}: expected `{names}` in `{reason}`");
        assert_eq!(self.header("Retry-After").is_some(), status == 503, "{what}: {self:?}");
        assert_eq!(self.header("Content-Type"), Some("text/plain"), "{what}");
    }
}

/// How a connection ended when no answer was expected on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The node said that it sends nothing more.
    Closed,
    /// The node broke the connection.
    Reset,
}

/// One connection to a node.
pub struct Client {
    stream: TcpStream,
    /// Bytes received and not yet taken.
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to an address.
    pub fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).expect("the node accepts"))
    }

    /// Makes a client of a connection that was opened elsewhere.
    pub fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Client { stream, buffer: Vec::new() }
    }

    /// The socket of the connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends all bytes. Panics when the node does not take them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the node takes them");
    }

    /// Sends bytes to a node that may close meanwhile.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Says that nothing more will be sent.
    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("open until now");
    }

    /// Sends one request and returns its answer.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.send(request_text(method, path, body));
        self.answer()
    }

    /// Creates a timer and returns its path.
    pub fn create(&mut self, document: &str) -> String {
        let answer = self.request("POST", "/timers", document);
        assert_eq!(answer.status, 200, "{document}: {answer:?}");
        answer.header("Location").expect("created").to_owned()
    }

    /// Returns the next answer, whole.
    pub fn answer(&mut self) -> Answer {
        self.read_answer(true)
    }

    /// The next answer; nothing if the node closed the connection instead.
    pub fn answer_or_end(&mut self) -> Option<Answer> {
        if self.buffer.is_empty() {
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("neither an answer nor the end: {error}"),
            }
        }
        Some(self.answer())
    }

    /// The next answer, to a HEAD request: it has no body whatever its headers say.
    pub fn answer_to_head(&mut self) -> Answer {
        self.read_answer(false)
    }

    /// All that comes until the node closes.
    pub fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.buffer);
        self.stream.read_to_end(&mut rest).expect("the node closes");
        String::from_utf8(rest).expect("answers are text")
    }

    fn read_answer(&mut self, has_body: bool) -> Answer {
        let head_bytes = loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            self.fill();
        };
        let head: Vec<u8> = self.buffer.drain(..head_bytes).collect();
        let head = String::from_utf8(head).expect("heads are ASCII");
        let mut lines = head.split("\r\n");
        let status_line = lines.next().expect("a first line");
        let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_once(' '));
        let (status, phrase) = status.unwrap_or_else(|| panic!("status line {status_line:?}"));
        assert!(!phrase.is_empty(), "{status_line:?}");
        let status = status.parse().expect("three digits");
        let headers = lines.filter(|line| !line.is_empty()).map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("header {line:?}"));
            (name.to_owned(), value.to_owned())
        });
        let mut answer = Answer { status, headers: headers.collect(), body: Vec::new() };
        if has_body && status >= 200 {
            let length = answer.header("Content-Length").expect("every answer has a length");
            let length: usize = length.parse().expect("a length");
            while self.buffer.len() < length {
                self.fill();
            }
            answer.body = self.buffer.drain(..length).collect();
        }
        answer
    }

    /// Returns whether bytes of an answer, or the end, have come and were not taken yet.
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket");
        !self.buffer.is_empty() || !peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Waits for the end of the connection, on which no answer may come. Returns how it ends.
    pub fn end(&mut self) -> End {
        let mut rest = std::mem::take(&mut self.buffer);
        let end = match self.stream.read_to_end(&mut rest) {
            Ok(_) => End::Closed,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
            Err(error) => panic!("the connection stays open: {error}"),
        };
        assert_eq!(rest.escape_ascii().to_string(), "", "more than was expected");
        end
    }

    /// Asserts that nothing has been answered until now and that the connection stands.
    pub fn assert_silent(&mut self, what: &str) {
        assert!(!self.has_answer(), "{what}");
    }

    fn fill(&mut self) {
        let mut bytes = [0; 16 << 10];
        let count = self.stream.read(&mut bytes).unwrap_or_else(|error| {
            panic!("no answer: {error}; so far: {}", self.buffer.escape_ascii())
        });
        assert!(count > 0, "closed before the answer; so far: {}", self.buffer.escape_ascii());
        self.buffer.extend_from_slice(&bytes[..count]);
    }
}
