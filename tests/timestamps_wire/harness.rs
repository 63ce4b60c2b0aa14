//! A node that serves timestamps, and a client that reads replies strictly.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use chronos::base::time::MonoNs;
use chronos::node::commands::Command;
use chronos::node::settings::{NodeSettings, TimestampSettings};
use chronos::node::{NodeHandle, start};
use chronos::ring::now;
use chronos::timestamp::Timestamp;
use chronos::timestamp::clock::ClockLine;
use chronos::timestamp::oracle::{Oracle, Terms};
use chronos::wire::thrift::{Outcome, Reply, parse_reply, write_get_timestamps};

/// Longest wait for anything that must happen; nothing waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node with timestamps; stopped with the value.
pub struct Node {
    handle: Option<NodeHandle>,
    /// What its cores take from.
    pub oracle: Arc<Oracle>,
    /// Where Thrift clients connect.
    pub address: SocketAddr,
}

impl Node {
    /// A node of two cores, master already.
    pub fn master() -> Node {
        let node = Node::start(|_| ());
        node.begin();
        node
    }

    /// A node of two cores that nobody has made master.
    pub fn start(change: impl FnOnce(&mut NodeSettings)) -> Node {
        let mut settings = NodeSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            shards: Some(2),
            pin: false,
            timestamp: Some(TimestampSettings {
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
                ..TimestampSettings::default()
            }),
            ..NodeSettings::default()
        };
        change(&mut settings);
        let handle = start(&settings).unwrap_or_else(|error| panic!("{error}"));
        let oracle = handle.oracle.clone().expect("timestamps are on");
        let address = handle.timestamp_address.expect("timestamps are on");
        Node { handle: Some(handle), oracle, address }
    }

    /// Makes it master, with the wall clock, for an hour.
    pub fn begin(&self) {
        self.oracle.begin(self.oracle.last(), &terms());
    }

    /// The node.
    pub fn handle(&self) -> &NodeHandle {
        self.handle.as_ref().expect("taken by drop alone")
    }

    /// A client with a connection of its own.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Tells the cores who is master, and waits until they know.
    pub fn tell_master(&self, master: Option<&str>) {
        let commander = self.handle().commander();
        commander.command(&Command::TimestampMaster(master.map(Arc::from)));
        until("the cores to know the master", || {
            commander.is_obeyed(&self.handle().meters).then_some(())
        });
    }

    /// A meter at present, summed over the cores.
    pub fn sum(&self, meter: &str) -> u64 {
        let commander = self.handle().commander();
        let asked = commander.ask();
        until("the cores to tell their figures", || commander.have_told(&asked).then_some(()));
        let of_core = |list: Vec<(&str, bool, &str, u64)>| {
            list.iter().find(|entry| entry.0 == meter).expect("a meter").3
        };
        self.handle().meters.iter().map(|core| of_core(core.list())).sum()
    }

    /// Waits until a meter has this sum.
    pub fn await_sum(&self, meter: &str, expected: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.sum(meter) != expected {
            let seen = self.sum(meter);
            assert!(Instant::now() < deadline, "{meter} is {seen}, expected {expected}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        handle.stop();
        let ended = handle.join();
        if !thread::panicking() {
            ended.expect("no core has failed");
        }
    }
}

/// Terms of an hour with the wall clock.
pub fn terms() -> Terms {
    let at = now();
    let clock = ClockLine {
        wall_offset_ns: at.wall.0 * 1_000_000 - at.mono.0,
        ahead_ns: 0,
        ahead_at: MonoNs(0),
    };
    Terms {
        until: at.mono.plus_ms(3_600_000),
        bound: Timestamp::of_unix_ms(at.wall.0 + 3_600_000),
        clock,
    }
}

/// Looks until there is something to see, at most for [`PATIENCE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    kit::until::until(what, PATIENCE, look)
}

/// Bytes as the examples write them.
pub fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// What a reply said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// A number.
    Value(u64),
    /// An exception: kind and text.
    Exception(i32, String),
}

impl Said {
    /// The number, of a reply that must have one.
    pub fn value(self) -> u64 {
        match self {
            Said::Value(value) => value,
            Said::Exception(kind, text) => panic!("exception {kind}: {text}"),
        }
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    seqid: i32,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the node accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Client { stream, received: Vec::new(), seqid: 0 }
    }

    /// The socket itself.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends bytes, all of them.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the node takes them");
    }

    /// One call; the reply must fit it.
    pub fn call(&mut self, range: i32) -> Said {
        self.try_call(range).expect("the node answers")
    }

    /// One call to a node that may close the connection.
    pub fn try_call(&mut self, range: i32) -> std::io::Result<Said> {
        let mut call = Vec::new();
        self.seqid = self.seqid.wrapping_add(1);
        write_get_timestamps(&mut call, self.seqid, range);
        self.stream.write_all(&call)?;
        let seqid = self.seqid;
        let (found, said) = self.try_reply()?;
        assert_eq!(found, seqid, "the reply names another request");
        Ok(said)
    }

    /// The next reply: sequence number and content.
    pub fn reply(&mut self) -> (i32, Said) {
        self.try_reply().expect("the node answers")
    }

    /// The next reply of a node that may close the connection.
    pub fn try_reply(&mut self) -> std::io::Result<(i32, Said)> {
        loop {
            let parsed = parse_reply(&self.received).expect("a reply");
            if let Some((reply, used)) = parsed {
                let told = (reply.seqid, said(&reply));
                self.received.drain(..used);
                return Ok(told);
            }
            let mut bytes = [0; 64 << 10];
            let count = match self.stream.read(&mut bytes) {
                // Rings in this process interrupt its threads.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&bytes[..count]);
        }
    }

    /// Exactly so many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("the node answers");
        bytes
    }

    /// Asserts that the node closes the connection and sends nothing more.
    pub fn assert_closed(&mut self, what: &str) {
        let mut rest = std::mem::take(&mut self.received);
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{what}: the connection stays open: {error}"),
        }
        assert_eq!(rest.escape_ascii().to_string(), "", "{what}");
    }
}

fn said(reply: &Reply<'_>) -> Said {
    assert!(reply.name.starts_with(b"getTimestamp"), "{reply:?}");
    match reply.outcome {
        Outcome::Value(value) => Said::Value(value as u64),
        Outcome::NoValue => panic!("no value in {reply:?}"),
        Outcome::Exception { kind, message } => {
            Said::Exception(kind, String::from_utf8(message.to_vec()).expect("text"))
        }
    }
}
