//! A peer that speaks the protocol between nodes, and breaks its rules where a story wants that.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use chronos::base::ids::{NodeHash, TimerId};
use chronos::base::ranked::{Replicas, Sites};
use chronos::base::time::{MonoNs, Now};
use chronos::cluster::murmur3::x86_32;
use chronos::timer::definition::encode_content;
use chronos::wire::leb128::write_leb128;
use chronos::wire::peer_frame::{FrameKind, begin_frame, end_frame, parse_frame};
use chronos::wire::peer_message::{CopyBody, PeerMessage, Standing, TimerCopy};
use kit::client::{Answer, PATIENCE, read_answer};
use socket2::{Domain, Socket, Type};

/// How long a node may take to close a connection that is of no more use.
const CLOSE: Duration = Duration::from_secs(60);

/// What the peer says of itself.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The header `X-Chronos-Name`.
    pub name: String,
    /// The header `X-Chronos-Instance`.
    pub instance: u16,
    /// The header `X-Chronos-Incarnation`.
    pub incarnation: u64,
}

impl Claim {
    /// Makes the claim of the member at this place of a cluster.
    pub fn member(name: &str, place: usize) -> Claim {
        Claim { name: name.to_owned(), instance: place as u16 + 1, incarnation: 0xbad }
    }

    /// The header lines of an Upgrade.
    pub fn headers(&self) -> String {
        format!(
            "Connection: Upgrade\r\nUpgrade: chronos-peer/1\r\nX-Chronos-Name: {}\r\n\
             X-Chronos-Instance: {}\r\nX-Chronos-Incarnation: {:016x}\r\nX-Chronos-View: 1\r\n\
             X-Chronos-Shard: 0\r\nX-Chronos-Shards: 1\r\n",
            self.name, self.instance, self.incarnation
        )
    }
}

/// Asks for an Upgrade from this address with these headers. Returns the connection and the answer.
pub fn upgrade(from: SocketAddr, to: SocketAddr, headers: &str) -> Result<(TcpStream, Answer)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.ip(), 0).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    let mut stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    write!(stream, "GET /peer HTTP/1.1\r\nHost: {to}\r\n{headers}\r\n")?;
    let answer = read_answer(&mut stream)?;
    Ok((stream, answer))
}

/// Asks for an Upgrade with the headers of a claim.
pub fn upgrade_as(claim: &Claim, from: SocketAddr, to: SocketAddr) -> Result<(TcpStream, Answer)> {
    upgrade(from, to, &claim.headers())
}

/// A connection that carries frames.
pub struct Line {
    stream: TcpStream,
    number: u32,
}

impl Line {
    /// Dials as this member. Panics unless the node accepts.
    pub fn open(claim: &Claim, from: SocketAddr, to: SocketAddr) -> Line {
        let (stream, answer) = upgrade_as(claim, from, to).expect("the node answers");
        assert_eq!(answer.status, 101, "{answer:?}");
        Line { stream, number: 0 }
    }

    /// Sends any bytes. The node may close meanwhile.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends messages in a frame and returns the body of the frame that answers all of them.
    pub fn ask(&mut self, messages: &[PeerMessage<'_>]) -> Vec<u8> {
        let frame = frame(messages, self.number);
        self.number += messages.len() as u32;
        self.stream.write_all(&frame).expect("the node reads");
        let mut bytes = Vec::new();
        let (mut body, mut answered) = (Vec::new(), 0);
        while answered < messages.len() {
            let mut piece = [0; 4096];
            let count = self.stream.read(&mut piece).expect("an answer");
            assert!(count > 0, "closed before the answer");
            bytes.extend_from_slice(&piece[..count]);
            while let Some((frame, length)) = parse_frame(&bytes).expect("frames") {
                assert_eq!(frame.kind, FrameKind::Results);
                answered += usize::from(frame.count);
                body.extend_from_slice(frame.body);
                bytes.drain(..length);
            }
        }
        body
    }

    /// Reports whether the node closes this connection within [`CLOSE`].
    pub fn is_closed_soon(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let deadline = Instant::now() + CLOSE;
        let mut bytes = [0; 4096];
        while Instant::now() < deadline {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return true,
            }
        }
        false
    }
}

/// Returns a frame of messages. The first message has the number `first`.
pub fn frame(messages: &[PeerMessage<'_>], first: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let begins = begin_frame(&mut out);
    for message in messages {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        write_leb128(encoded.len() as u64, &mut out);
        out.extend_from_slice(&encoded);
    }
    let count = messages.len() as u16;
    let now = Now { mono: monotonic(), wall: chronos::ring::now().wall };
    end_frame(&mut out, begins, FrameKind::Messages, count, first, now, 0);
    out
}

/// Returns a node's hash as placement computes it.
pub fn hash(name: &str) -> NodeHash {
    NodeHash(x86_32(name.as_bytes(), 0))
}

/// Returns the time of this machine's monotonic clock. The nodes of the story have the same clock.
pub fn monotonic() -> MonoNs {
    chronos::ring::now().mono
}

/// Returns a version that is this far ahead of the wall clock.
pub fn version_ahead(by: Duration) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    ((now + by).as_millis() as u64) << 22
}

/// A timer of 2 s to one host and path, held by these nodes.
pub struct Forged {
    pub id: u64,
    pub version: u64,
    pub replicas: Vec<NodeHash>,
    authority: String,
    content: Vec<u8>,
}

impl Forged {
    /// Makes a timer with a version of now.
    pub fn new(id: u64, replicas: &[NodeHash], host: SocketAddr, path: &str) -> Forged {
        let mut content = Vec::new();
        encode_content(path, &[], b"forged", &mut content);
        Forged {
            id,
            version: version_ahead(Duration::ZERO),
            replicas: replicas.to_vec(),
            authority: host.to_string(),
            content,
        }
    }

    /// Returns the copy of the timer. The timer starts now.
    pub fn message(&self) -> PeerMessage<'_> {
        let replicas: Replicas = self.replicas.iter().copied().collect();
        PeerMessage::Copy(TimerCopy {
            standing: Standing {
                id: TimerId(self.id),
                version: self.version,
                sequence: 0,
                actives: replicas.all_ranks(),
                list_digest: replicas.digest(),
            },
            is_write: true,
            replicas,
            factor: replicas.len(),
            sites: Sites::new(),
            start_ms: monotonic().0 / 1_000_000,
            interval_ms: 2_000,
            repeat_for_ms: 2_000,
            body: Some(CopyBody { authority: &self.authority, content: &self.content }),
        })
    }
}

/// Starts a member that accepts connections of its peers, reads, and never says anything more.
/// Returns the count of connections that it has accepted.
pub fn silent_member(claim: Claim, address: SocketAddr) -> Arc<AtomicUsize> {
    let listener = kit::ports::listen(address);
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (claim, count) = (claim.clone(), count.clone());
            thread::spawn(move || {
                let mut head = [0; 4096];
                if !matches!(stream.read(&mut head), Ok(1..)) {
                    return;
                }
                count.fetch_add(1, SeqCst);
                let answer = format!("HTTP/1.1 101 Switching Protocols\r\n{}\r\n", claim.headers());
                let _ = stream.write_all(answer.as_bytes());
                while matches!(stream.read(&mut head), Ok(1..)) {}
            });
        }
    });
    accepted
}
