//! What the tests of the ring share: a ring with a listener, clients that block, an echo server,
//! patience.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use chronos::ring::{Completion, Listener, Ring, RingConfig, SocketId, Wait, now};
use kit::children::{Tied, command};

/// The end of every wait in these tests. It is far more than a busy machine needs, so a test that
/// reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The environment variable that names the one test that a child process runs.
const CHILD: &str = "RING_TEST_CHILD";

pub const SMALL: RingConfig = RingConfig {
    entries: 64,
    buffers: 64,
    buffer_bytes: 4096,
    shares_waits: true,
    registers_disk: true,
};

pub fn make_ring(config: &RingConfig) -> Ring {
    Ring::new(config).expect("these tests need Linux 6.1 or later with io_uring enabled")
}

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Returns a ring that listens, and its address.
pub fn listening(config: &RingConfig) -> (Ring, SocketAddr) {
    let mut ring = make_ring(config);
    let listener = Listener::bind(loopback(), 1024).expect("a free port exists");
    let address = listener.local_address();
    ring.listen(listener);
    (ring, address)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the listener has room in its backlog");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_nodelay(true).expect("TCP has NODELAY");
    stream
}

pub fn soon(milliseconds: u64) -> Wait {
    Wait::Until(now().mono.plus_ms(milliseconds))
}

/// Takes turns until `step` returns `true`.
pub fn drive(ring: &mut Ring, mut step: impl FnMut(&mut Ring, &mut Vec<Completion>) -> bool) {
    let begun = Instant::now();
    let mut completions = Vec::new();
    while begun.elapsed() < PATIENCE {
        ring.turn(soon(20), &mut completions).expect("a turn does not fail");
        if step(ring, &mut completions) {
            return;
        }
    }
    panic!("what was waited for did not happen");
}

/// Hands the kernel what was begun since the last turn, for example the closing of sockets.
pub fn submit(ring: &mut Ring) {
    let mut completions = Vec::new();
    ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
    assert!(completions.is_empty(), "{completions:?}");
}

pub fn accept_one(ring: &mut Ring) -> SocketId {
    let mut accepted = None;
    drive(ring, |_, completions| {
        for completion in completions.drain(..) {
            match completion {
                Completion::Accepted { socket, .. } => accepted = Some(socket),
                other => panic!("only a client was expected: {other:?}"),
            }
        }
        accepted.is_some()
    });
    accepted.expect("drive ends when it is there")
}

/// A server that sends back what it receives.
#[derive(Default)]
pub struct Echo {
    pub peers: HashMap<SocketId, Peer>,
    pub served: usize,
}

#[derive(Default)]
pub struct Peer {
    waiting: Vec<u8>,
    is_sending: bool,
    has_ended: bool,
}

impl Echo {
    pub fn step(&mut self, ring: &mut Ring, completions: &mut Vec<Completion>) {
        for completion in completions.drain(..) {
            let socket = match completion {
                Completion::Accepted { socket, .. } => {
                    self.peers.insert(socket, Peer::default());
                    ring.set_owner(socket, u64::from(socket.index) << 32);
                    ring.receive(socket);
                    continue;
                }
                Completion::Received { socket, owner, bytes } => {
                    assert_eq!(owner, u64::from(socket.index) << 32);
                    let peer = self.peers.get_mut(&socket).expect("it was accepted");
                    assert!(!peer.has_ended, "bytes after the end");
                    peer.waiting.extend_from_slice(ring.bytes_mut(&bytes));
                    socket
                }
                Completion::Sent { socket, buffer, .. } => {
                    assert!(buffer.is_empty());
                    self.peers.get_mut(&socket).expect("it was accepted").is_sending = false;
                    socket
                }
                Completion::Ended { socket, .. } => {
                    self.peers.get_mut(&socket).expect("it was accepted").has_ended = true;
                    socket
                }
                Completion::Woken => continue,
                other => panic!("not expected here: {other:?}"),
            };
            self.advance(ring, socket);
        }
    }

    pub fn advance(&mut self, ring: &mut Ring, socket: SocketId) {
        let peer = self.peers.get_mut(&socket).expect("it was accepted");
        if peer.is_sending {
            return;
        }
        if !peer.waiting.is_empty() {
            peer.is_sending = true;
            ring.send(socket, std::mem::take(&mut peer.waiting));
        } else if peer.has_ended {
            ring.close(socket);
            self.peers.remove(&socket);
            self.served += 1;
        }
    }
}

/// Serves `clients` connections made by `client`, which runs on a thread of its own.
pub fn serve_echo(
    config: &RingConfig,
    clients: usize,
    client: impl FnOnce(SocketAddr) + Send,
) -> Ring {
    let (mut ring, address) = listening(config);
    let mut echo = Echo::default();
    thread::scope(|scope| {
        let client = scope.spawn(move || client(address));
        drive(&mut ring, |ring, completions| {
            echo.step(ring, completions);
            echo.served == clients && ring.sockets() == 0
        });
        submit(&mut ring);
        client.join().expect("the client is content");
    });
    ring
}

/// Returns bytes that tell connections and positions apart.
pub fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

/// Opens `count` connections at once. Each sends its own pattern, ends, and must get the pattern
/// back.
pub fn exchange(address: SocketAddr, count: usize, length: impl Fn(usize) -> usize) {
    let mut streams: Vec<_> = (0..count).map(|_| connect(address)).collect();
    for (seed, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&pattern(seed, length(seed))).expect("the server reads");
        stream.shutdown(Shutdown::Write).expect("the stream is open");
    }
    for (seed, stream) in streams.iter_mut().enumerate() {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server answers");
        assert!(answer == pattern(seed, length(seed)), "connection {seed} got other bytes");
    }
}

/// Runs the named test alone in a process of its own, where the test counts or limits what belongs
/// to the whole process. A shell prepares the process by `limits`.
pub fn run_child(test: &str, limits: &str) {
    let output = child_of("sh", &[], test, limits);
    assert!(output.status.success(), "{test} alone: {}", told_by(&output));
}

/// Like [`run_child`], in a user and mount namespace of its own. `false`: this machine does not let
/// this user have one, which is said.
pub fn run_child_apart(test: &str, limits: &str) -> bool {
    let apart = ["--user", "--map-root-user", "--mount"];
    let first = command("unshare").args(apart).arg("true").output_tied();
    if !first.is_ok_and(|output| output.status.success()) {
        eprintln!("not tested, as this user may not have namespaces: {test}");
        return false;
    }
    let shell = ["--user", "--map-root-user", "--mount", "sh"];
    let output = child_of("unshare", &shell, test, limits);
    assert!(output.status.success(), "{test} apart: {}", told_by(&output));
    true
}

fn child_of(program: &str, arguments: &[&str], test: &str, limits: &str) -> Output {
    let tests = std::env::current_exe().expect("a test knows its program");
    let script = format!("{limits} && exec \"$1\" --exact \"$2\" --test-threads 1 --nocapture");
    let output = command(program)
        .args(arguments)
        .args(["-c", &script, "sh"])
        .arg(tests)
        .arg(test)
        .env(CHILD, test)
        .output_tied()
        .expect("there is a shell");
    assert!(told_by(&output).contains("1 passed"), "{test} alone: {}", told_by(&output));
    output
}

fn told_by(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(error)
}

pub fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|name| name == test)
}
