//! A callback server with a thread for every connection. The suite decides what the server does
//! with each callback.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use super::http::{Message, read_message};
use super::ports::listen;

/// A connection that brings no request for this long is closed. A node that was killed or frozen
/// leaves connections without an end.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// One callback as it came.
#[derive(Clone, Debug)]
pub struct Callback {
    /// When its last byte was read.
    pub at: Instant,
    /// The number of the connection that brought the callback, from 0.
    pub connection: usize,
    /// The address that the connection comes from.
    pub from: IpAddr,
    /// Request line and headers with the empty line.
    pub head: String,
    /// The path of the request line.
    pub path: String,
    /// The body, as long as `Content-Length` says.
    pub body: Vec<u8>,
}

impl Callback {
    /// Returns the value of a header. Panics unless the header comes exactly once.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        let values: Vec<_> = lines.filter(|line| line.0.eq_ignore_ascii_case(name)).collect();
        assert_eq!(values.len(), 1, "{name} in {}", self.head);
        values[0].1
    }

    /// Returns `X-Sequence-Number`. Panics if it is no number.
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
    /// Answers 200 after this time.
    Late(Duration),
    /// Answers 200 with a body of 1 GiB, sent as long as the node takes it.
    Gigabyte,
    /// Breaks the connection at once (RST where the kernel sends one).
    Break,
}

impl Reaction {
    /// Answers 200 and keeps the connection.
    pub const OK: Reaction = Reaction::Status(200);

    /// Returns a reaction that sends nothing, until the node closes.
    pub fn never() -> Reaction {
        Reaction::BytesThenNothing(Vec::new())
    }
}

/// Counts of the connections that nodes have made.
#[derive(Debug, Default)]
pub struct Connections {
    /// Connections since the start of the server.
    pub made: AtomicUsize,
    /// Connections that are open at present.
    pub open: AtomicUsize,
    /// The most connections that were open at one time.
    pub open_max: AtomicUsize,
}

/// Listens at `address` until the process ends. `react` decides on every callback, on the thread of
/// the connection. Returns the address, with the port that was taken, and the counts.
pub fn serve(
    address: SocketAddr,
    react: impl Fn(&Callback) -> Reaction + Send + Sync + 'static,
) -> (SocketAddr, Arc<Connections>) {
    let listener = listen(address);
    let address = listener.local_addr().expect("bound");
    let connections = Arc::new(Connections::default());
    let (all, react) = (connections.clone(), Arc::new(react));
    // The threads end with the process. No code waits for them.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (connections, react) = (all.clone(), react.clone());
            thread::spawn(move || serve_one(stream, &connections, &*react));
        }
    });
    (address, connections)
}

fn serve_one(
    mut stream: TcpStream,
    connections: &Connections,
    react: &dyn Fn(&Callback) -> Reaction,
) {
    // A connection may be broken before it is looked at. It brings nothing then.
    let from = stream.peer_addr().map_or(IpAddr::from([0; 4]), |peer| peer.ip());
    let connection = connections.made.fetch_add(1, SeqCst);
    let open = connections.open.fetch_add(1, SeqCst) + 1;
    connections.open_max.fetch_max(open, SeqCst);
    // Errors mean that the node has closed already.
    let _ = stream.set_read_timeout(Some(SILENCE_MAX));
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Ok(message) = read_message(&mut stream, &mut buffer) {
        let reaction = react(&callback_of(message, connection, from));
        if !carry_out(&mut stream, reaction) {
            break;
        }
    }
    drop(stream);
    connections.open.fetch_sub(1, SeqCst);
}

fn callback_of(message: Message, connection: usize, from: IpAddr) -> Callback {
    assert!(message.header("Content-Length").is_some(), "callbacks have a length");
    let path = message.head.split(' ').nth(1).expect("a request line").to_owned();
    let Message { head, body } = message;
    Callback { at: Instant::now(), connection, from, head, path, body }
}

/// Carries out a reaction. Returns whether the connection goes on. An error means that the node
/// closed, which it may.
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
