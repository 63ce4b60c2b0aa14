//! A callback server that records what comes and answers as it is told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::{Node, PATIENCE, document};

/// Path of the callbacks that only show that time has passed.
const MARKER: &str = "/marker";

/// One callback as it came.
#[derive(Clone, Debug)]
pub struct Callback {
    /// When its last byte was read.
    pub at: Instant,
    /// The connection it came on, counted from 0.
    pub connection: usize,
    /// Request line and headers with the empty line.
    pub head: String,
    /// From the request line.
    pub path: String,
    /// As long as `Content-Length` said.
    pub body: Vec<u8>,
}

impl Callback {
    /// The value of a header that must come once.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        let values: Vec<_> = lines.filter(|line| line.0.eq_ignore_ascii_case(name)).collect();
        assert_eq!(values.len(), 1, "{name} in {}", self.head);
        values[0].1
    }

    /// `X-Sequence-Number`.
    pub fn sequence(&self) -> u64 {
        self.header("X-Sequence-Number").parse().expect("a number")
    }
}

/// What the server does with one callback.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// Answers with a status, no body, and keeps the connection.
    Status(u16),
    /// Sends these bytes and keeps the connection.
    Bytes(Vec<u8>),
    /// Sends these bytes one by one and keeps the connection.
    ByteByByte(Vec<u8>),
    /// Sends these bytes and closes.
    BytesThenClose(Vec<u8>),
    /// Sends these bytes and then nothing, until the node closes.
    BytesThenNothing(Vec<u8>),
    /// Answers 200 so much later.
    Late(Duration),
    /// Answers 200 with a body of 1 GiB, sent as long as the node takes it.
    Gigabyte,
    /// Breaks the connection at once (RST where the kernel sends one).
    Break,
}

impl Reaction {
    /// 200.
    pub const OK: Reaction = Reaction::Status(200);

    /// Nothing at all, until the node closes.
    pub fn never() -> Reaction {
        Reaction::BytesThenNothing(Vec::new())
    }
}

#[derive(Default)]
struct Seen {
    callbacks: Mutex<Vec<Callback>>,
    changed: Condvar,
    connections: AtomicUsize,
    open: AtomicUsize,
    open_max: AtomicUsize,
}

/// A callback server on a free port, with a thread per connection.
pub struct Sink {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

impl Sink {
    /// A server on IPv4 that answers 200.
    pub fn ok() -> Sink {
        Sink::start(|_, _| Reaction::OK)
    }

    /// A server on IPv4; `react` gets the callback and how many came before it.
    pub fn start(react: impl Fn(&Callback, usize) -> Reaction + Send + Sync + 'static) -> Sink {
        Sink::on("127.0.0.1:0", react)
    }

    /// A server at this address.
    pub fn on(
        address: &str,
        react: impl Fn(&Callback, usize) -> Reaction + Send + Sync + 'static,
    ) -> Sink {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Seen::default());
        let (all, react) = (seen.clone(), Arc::new(react));
        // The threads end with the test's process: nothing waits for them.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, react) = (all.clone(), react.clone());
                thread::spawn(move || serve(stream, &seen, &*react));
            }
        });
        Sink { address, seen }
    }

    /// The URI of a path here.
    pub fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What has come so far.
    pub fn callbacks(&self) -> Vec<Callback> {
        self.lock().clone()
    }

    /// How many have come so far.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// What has come once there are `count` of them.
    pub fn wait_for(&self, count: usize) -> Vec<Callback> {
        self.wait_until(&format!("{count} callbacks"), |seen| seen.len() >= count)
    }

    /// What has come once it is enough.
    pub fn wait_until(&self, what: &str, is_enough: impl Fn(&[Callback]) -> bool) -> Vec<Callback> {
        let deadline = Instant::now() + PATIENCE;
        let mut callbacks = self.lock();
        while !is_enough(&callbacks) {
            let left = deadline.saturating_duration_since(Instant::now());
            let got = callbacks.len();
            assert!(!left.is_zero(), "waited in vain for {what}, got {got} callbacks");
            callbacks = self.seen.changed.wait_timeout(callbacks, left).expect("no panic").0;
        }
        callbacks.clone()
    }

    /// Asserts that no callback comes beyond `count` until a timer created now has popped after `seconds`.
    pub fn assert_no_more(&self, node: &Node, count: usize, seconds: &str) {
        node.create(&document(seconds, None, &self.uri(MARKER), ""));
        let is_marked = |seen: &[Callback]| seen.iter().any(|one| one.path == MARKER);
        let seen = self.wait_until("the marker", is_marked);
        let others: Vec<_> = seen.iter().filter(|one| one.path != MARKER).collect();
        assert_eq!(others.len(), count, "{others:?}");
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(SeqCst)
    }

    /// Most connections that were open at one time.
    pub fn open_max(&self) -> usize {
        self.seen.open_max.load(SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.seen.open.load(SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Callback>> {
        self.seen.callbacks.lock().expect("nobody panics with it")
    }
}

fn serve(mut stream: TcpStream, seen: &Seen, react: &dyn Fn(&Callback, usize) -> Reaction) {
    let connection = seen.connections.fetch_add(1, SeqCst);
    let open = seen.open.fetch_add(1, SeqCst) + 1;
    seen.open_max.fetch_max(open, SeqCst);
    stream.set_nodelay(true).expect("a TCP socket");
    let mut buffer = Vec::new();
    while let Some(callback) = read_callback(&mut stream, &mut buffer, connection) {
        let mut callbacks = seen.callbacks.lock().expect("nobody panics with it");
        let before = callbacks.len();
        callbacks.push(callback.clone());
        seen.changed.notify_all();
        drop(callbacks);
        if !carry_out(&mut stream, react(&callback, before)) {
            break;
        }
    }
    drop(stream);
    seen.open.fetch_sub(1, SeqCst);
}

/// Whether the connection goes on. An error means that the node closed, which it may.
fn carry_out(stream: &mut TcpStream, reaction: Reaction) -> bool {
    let plain = |status| format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes();
    match reaction {
        Reaction::Status(204) => stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_ok(),
        Reaction::Status(status) => stream.write_all(&plain(status)).is_ok(),
        Reaction::Bytes(bytes) => stream.write_all(&bytes).is_ok(),
        Reaction::ByteByByte(bytes) => bytes.iter().all(|byte| stream.write_all(&[*byte]).is_ok()),
        Reaction::BytesThenClose(bytes) => {
            let _ = stream.write_all(&bytes);
            false
        }
        Reaction::BytesThenNothing(bytes) => {
            let _ = stream.write_all(&bytes);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            false
        }
        Reaction::Late(pause) => {
            thread::sleep(pause);
            stream.write_all(&plain(200)).is_ok()
        }
        Reaction::Gigabyte => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30);
            let piece = vec![b'x'; 1 << 16];
            stream.write_all(head.as_bytes()).is_ok()
                && (0..1 << 14).all(|_| stream.write_all(&piece).is_ok())
        }
        Reaction::Break => {
            let socket = socket2::SockRef::from(&*stream);
            let _ = socket.set_linger(Some(Duration::ZERO));
            false
        }
    }
}

/// The next request, `None` at the connection's end.
fn read_callback(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Callback> {
    let head_bytes = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        fill(stream, buffer)?;
    };
    let head: Vec<u8> = buffer.drain(..head_bytes).collect();
    let head = String::from_utf8(head).expect("heads are ASCII");
    let path = head.split(' ').nth(1).expect("a request line").to_owned();
    let length = head.split("\r\n").find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.expect("callbacks have a length").parse().expect("a number");
    while buffer.len() < length {
        fill(stream, buffer)?;
    }
    let body = buffer.drain(..length).collect();
    Some(Callback { at: Instant::now(), connection, head, path, body })
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 << 10];
    let count = stream.read(&mut bytes).ok().filter(|&count| count > 0)?;
    buffer.extend_from_slice(&bytes[..count]);
    Some(())
}
