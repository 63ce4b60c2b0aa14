//! A node that behaves on the wire as an original does (docs/compat/timer-service.md §3 to §5). It
//! takes PUTs, serves pages of timers, and knows no Upgrade and no DELETE of references. It keeps
//! every request, to be compared with what an original would understand. What it sends is, member
//! by member and header by header, what a real original sent to a listener in its place (commit
//! 507bf4c).

use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kit::client::{Answer, PATIENCE, read_answer};
use kit::http::find;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

/// Most timers in one page.
const PAGE: usize = 100;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Message {
    /// When its last byte was read.
    pub at: Instant,
    /// The method of the request line.
    pub method: String,
    /// The target of the request line, with its query.
    pub target: String,
    /// Request line and headers.
    pub head: String,
    /// The body, `Null` if there is none.
    pub body: Value,
}

impl Message {
    /// Returns a parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query
            .split(['&', ';'])
            .filter_map(|pair| pair.split_once('='))
            .find(|one| one.0 == name)
            .map(|one| one.1)
    }

    /// Returns a header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").filter_map(|line| line.split_once(": "));
        lines.filter(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1).next()
    }
}

#[derive(Default)]
struct Kept {
    messages: Vec<Message>,
    /// The timers that GET serves, in the order of their pops.
    timers: VecDeque<Value>,
}

/// The stand-in for an original, which records what it is asked.
pub struct Original {
    /// Where the node listens, which is its name in the cluster.
    pub address: SocketAddr,
    kept: Arc<(Mutex<Kept>, Condvar)>,
}

impl Original {
    /// Starts a node that listens at `address`.
    pub fn start(address: SocketAddr) -> Original {
        let listener = kit::ports::listen(address);
        let kept = Arc::new((Mutex::new(Kept::default()), Condvar::new()));
        let all = kept.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = all.clone();
                thread::spawn(move || serve(stream, &kept));
            }
        });
        Original { address, kept }
    }

    /// Sets the answer to a GET of timers: entries as in docs/compat/timer-service.md §5.2.
    pub fn serve_timers(&self, timers: Vec<Value>) {
        self.kept.0.lock().expect("nobody panics with it").timers = timers.into();
    }

    /// Returns the requests with this method so far.
    pub fn messages(&self, method: &str) -> Vec<Message> {
        let kept = self.kept.0.lock().expect("nobody panics with it");
        kept.messages.iter().filter(|message| message.method == method).cloned().collect()
    }

    /// Returns the requests with this method as soon as there are `count`, or when `patience` is
    /// over.
    pub fn wait_for(&self, method: &str, count: usize, patience: Duration) -> Vec<Message> {
        let deadline = Instant::now() + patience;
        let mut kept = self.kept.0.lock().expect("nobody panics with it");
        loop {
            let found: Vec<_> =
                kept.messages.iter().filter(|message| message.method == method).cloned().collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if found.len() >= count || left.is_zero() {
                return found;
            }
            kept = self.kept.1.wait_timeout(kept, left).expect("no panic").0;
        }
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.kept.0.lock().expect("nobody panics with it").messages.clear();
    }

    /// Sends a request from this node's address, as an original does.
    pub fn ask(&self, to: SocketAddr, method: &str, target: &str, body: &str) -> Answer {
        ask_from(self.address, to, method, target, body)
    }
}

/// Returns the target of a request for timers, as an original writes it.
pub fn page_target(node: &str, view: &str, from_ms: Option<i64>) -> String {
    let from = from_ms.map_or(String::new(), |from_ms| format!(";time-from={from_ms}"));
    format!("/timers?node-for-replicas={node};cluster-view-id={view}{from}")
}

/// Sends a request from an address of this machine, with the headers of an original.
pub fn ask_from(
    from: SocketAddr,
    to: SocketAddr,
    method: &str,
    target: &str,
    body: &str,
) -> Answer {
    let more = match body.len() {
        0 if method == "GET" => "\r\nRange:100".to_owned(),
        0 => String::new(),
        length => format!("\r\nContent-Length: {length}"),
    };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let asked = || -> Result<Answer> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from.ip(), 0).into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        let mut stream: TcpStream = socket.into();
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: {to}\r\nAccept: */*\r\n{kind}\
             X-SAS-HTTP-Branch-ID: 785478df-260d-485c-b2da-3cfe1aa86b70{more}\r\n\r\n{body}"
        )?;
        read_answer(&mut stream)
    };
    asked().unwrap_or_else(|error| panic!("{method} {target}: {error}"))
}

fn serve(mut stream: TcpStream, kept: &(Mutex<Kept>, Condvar)) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let mut buffer = Vec::new();
    while let Some(message) = read_message(&mut stream, &mut buffer) {
        let mut locked = kept.0.lock().expect("nobody panics with it");
        let answer = answer_to(&message, &mut locked);
        locked.messages.push(message);
        drop(locked);
        kept.1.notify_all();
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer_to(message: &Message, kept: &mut Kept) -> String {
    let path = message.target.split('?').next().expect("a target");
    let plain = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    match (message.method.as_str(), path) {
        ("GET", "/ping") => plain("200 OK", "OK"),
        ("GET", "/timers") if message.parameter("node-for-replicas").is_some() => {
            // The next page has the timers that are due later. Timers that were served are no
            // longer here.
            let is_whole = kept.timers.len() <= PAGE;
            let count = kept.timers.len().min(PAGE);
            let page: Vec<Value> = kept.timers.drain(..count).collect();
            let body = json!({ "Timers": page }).to_string();
            if is_whole {
                plain("200 OK", &body)
            } else {
                format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: {count}\r\n\
                     Content-Length: {}\r\nContent-Type: text/plain\r\n\r\n{body}",
                    body.len()
                )
            }
        }
        ("PUT", path) if path.starts_with("/timers/") => plain("200 OK", ""),
        // There is no Upgrade, and no handler for references either.
        _ => plain("404 Not Found", ""),
    }
}

fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Message> {
    let head_bytes = loop {
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            break end + 4;
        }
        fill(stream, buffer)?;
    };
    let head = String::from_utf8(buffer.drain(..head_bytes).collect()).expect("heads are ASCII");
    let mut words = head.split(' ');
    let method = words.next().expect("a method").to_owned();
    let target = words.next().expect("a target").to_owned();
    let mut message = Message { at: Instant::now(), method, target, head, body: Value::Null };
    let length = message.header("Content-Length").map_or(0, |text| text.parse().expect("a number"));
    while buffer.len() < length {
        fill(stream, buffer)?;
    }
    let body: Vec<u8> = buffer.drain(..length).collect();
    if !body.is_empty() {
        message.body = serde_json::from_slice(&body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&body)));
    }
    message.at = Instant::now();
    Some(message)
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 << 10];
    let count = stream.read(&mut bytes).ok().filter(|&count| count > 0)?;
    buffer.extend_from_slice(&bytes[..count]);
    Some(())
}
