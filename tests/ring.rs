//! The ring against real sockets on the loopback interface: what its callers may rely on, edge by edge.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use chronos::base::time::MonoNs;
use chronos::ring::{
    Completion, Errno, Listener, Ring, RingConfig, SocketId, Wait, now, set_timer_slack_ns,
};

/// End of every wait in this file: far more than a busy machine needs, so reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names the one test that a child process runs.
const CHILD: &str = "RING_TEST_CHILD";

const SMALL: RingConfig = RingConfig { entries: 64, buffers: 64, buffer_bytes: 4096 };

fn make_ring(config: &RingConfig) -> Ring {
    Ring::new(config).expect("these tests need Linux 6.1 or later with io_uring enabled")
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A ring that listens, and where.
fn listening(config: &RingConfig) -> (Ring, SocketAddr) {
    let mut ring = make_ring(config);
    let listener = Listener::bind(loopback(), 1024).expect("a free port exists");
    let address = listener.local_address();
    ring.listen(listener);
    (ring, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the listener has room in its backlog");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_nodelay(true).expect("TCP has NODELAY");
    stream
}

fn soon(milliseconds: u64) -> Wait {
    Wait::Until(now().mono.plus_ms(milliseconds))
}

/// Takes turns until `step` says that it has seen enough.
fn drive(ring: &mut Ring, mut step: impl FnMut(&mut Ring, &mut Vec<Completion>) -> bool) {
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

fn accept_one(ring: &mut Ring) -> SocketId {
    let mut accepted = None;
    drive(ring, |_, completions| {
        for completion in completions.drain(..) {
            match completion {
                Completion::Accepted { socket } => accepted = Some(socket),
                other => panic!("only a client was expected: {other:?}"),
            }
        }
        accepted.is_some()
    });
    accepted.expect("drive ends when it is there")
}

/// Sends back whatever it receives.
#[derive(Default)]
struct Echo {
    peers: HashMap<SocketId, Peer>,
    served: usize,
}

#[derive(Default)]
struct Peer {
    waiting: Vec<u8>,
    is_sending: bool,
    has_ended: bool,
}

impl Echo {
    fn step(&mut self, ring: &mut Ring, completions: &mut Vec<Completion>) {
        for completion in completions.drain(..) {
            let socket = match completion {
                Completion::Accepted { socket } => {
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

    fn advance(&mut self, ring: &mut Ring, socket: SocketId) {
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
fn serve_echo(config: &RingConfig, clients: usize, client: impl FnOnce(SocketAddr) + Send) -> Ring {
    let (mut ring, address) = listening(config);
    let mut echo = Echo::default();
    thread::scope(|scope| {
        let client = scope.spawn(move || client(address));
        drive(&mut ring, |ring, completions| {
            echo.step(ring, completions);
            echo.served == clients && ring.sockets() == 0
        });
        client.join().expect("the client is content");
    });
    ring
}

/// Bytes that tell connections and positions apart.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

/// Opens `count` connections at once; each sends its own pattern, ends, and must get it back.
fn exchange(address: SocketAddr, count: usize, length: impl Fn(usize) -> usize) {
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

#[test]
fn many_connections_get_their_own_bytes_back() {
    serve_echo(&RingConfig::default(), 300, |address| {
        exchange(address, 300, |seed| 1 + seed * 173 % 60_000);
    });
}

#[test]
fn byte_by_byte_arrives_whole() {
    serve_echo(&SMALL, 1, |address| {
        let mut stream = connect(address);
        for (at, byte) in pattern(7, 500).into_iter().enumerate() {
            stream.write_all(&[byte]).expect("the server reads");
            let mut echoed = [0];
            stream.read_exact(&mut echoed).expect("the server answers");
            assert_eq!(echoed[0], byte, "byte {at}");
        }
    });
}

#[test]
fn two_tiny_buffers_lose_nothing() {
    let config = RingConfig { entries: 64, buffers: 2, buffer_bytes: 16 };
    serve_echo(&config, 40, |address| exchange(address, 40, |seed| 3_000 + seed));
}

#[test]
fn queues_that_are_too_small_only_cost_enters() {
    let config = RingConfig { entries: 2, buffers: 64, buffer_bytes: 256 };
    let ring = serve_echo(&config, 100, |address| exchange(address, 100, |seed| 2_000 + seed));
    assert!(ring.early_submits() > 0, "a queue of 2 entries was never full");
}

#[test]
fn an_ipv6_listener_takes_ipv4_too() {
    let Ok(listener) = Listener::bind(SocketAddr::from(([0_u16; 8], 0)), 16) else {
        eprintln!("this machine has no IPv6");
        return;
    };
    let port = listener.local_address().port();
    let mut ring = make_ring(&SMALL);
    ring.listen(listener);
    let _client = connect(SocketAddr::from(([127, 0, 0, 1], port)));
    accept_one(&mut ring);
}

#[test]
fn a_slow_reader_gets_ten_megabytes_by_one_send() {
    const BYTES: usize = 10 << 20;
    let (mut ring, address) = listening(&SMALL);
    let client = thread::spawn(move || {
        let mut stream = connect(address);
        let mut got = Vec::new();
        let mut part = vec![0; 64 << 10];
        loop {
            // Small reads with room for the sender to run into a full window between them.
            thread::yield_now();
            match stream.read(&mut part).expect("the server sends") {
                0 => return got,
                count => got.extend_from_slice(&part[..count]),
            }
        }
    });
    let socket = accept_one(&mut ring);
    ring.set_owner(socket, 9);
    let buffer = pattern(1, BYTES);
    let capacity = buffer.capacity();
    ring.send(socket, buffer);
    drive(&mut ring, |_, completions| match completions.pop() {
        None => false,
        Some(Completion::Sent { owner: 9, buffer, result: Ok(()), .. }) => {
            assert_eq!((buffer.len(), buffer.capacity()), (0, capacity));
            true
        }
        Some(other) => panic!("not expected here: {other:?}"),
    });
    ring.close(socket);
    drive(&mut ring, |ring, _| ring.sockets() == 0);
    assert!(client.join().expect("the client is content") == pattern(1, BYTES));
}

#[test]
fn a_paused_socket_pushes_back_and_loses_nothing() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    client.write_all(b"first").expect("there is room");
    let mut received = 0;
    let count = |ring: &mut Ring, completions: &mut Vec<Completion>| -> usize {
        let of = |completion: Completion| match completion {
            Completion::Received { bytes, .. } => ring.bytes_mut(&bytes).len(),
            other => panic!("not expected here: {other:?}"),
        };
        completions.drain(..).map(of).sum()
    };
    drive(&mut ring, |ring, completions| {
        received += count(ring, completions);
        received == 5
    });
    ring.pause(socket);
    let mut completions = Vec::new();
    // The cancel is submitted with the first of these turns and its completion silent.
    for _ in 0..2 {
        ring.turn(soon(20), &mut completions).expect("a turn does not fail");
        assert!(completions.is_empty());
    }
    client.set_nonblocking(true).expect("it is a socket");
    let mut written = 5;
    let mut full = 0;
    while full < 20 {
        match client.write(&[b'x'; 4096]) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                full += 1;
                ring.turn(soon(5), &mut completions).expect("a turn does not fail");
                assert!(completions.is_empty(), "a paused socket received");
            }
        }
        assert!(written < 256 << 20, "TCP does not push back");
    }
    ring.receive(socket);
    drive(&mut ring, |ring, completions| {
        received += count(ring, completions);
        received == written
    });
}

#[test]
fn pause_and_receive_in_one_turn_still_receives() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    let socket = accept_one(&mut ring);
    for round in 0..20_u8 {
        for _ in 0..=round % 3 {
            ring.receive(socket);
            ring.pause(socket);
        }
        ring.receive(socket);
        client.write_all(&[round]).expect("there is room");
        drive(&mut ring, |ring, completions| match completions.pop() {
            Some(Completion::Received { bytes, .. }) => {
                assert_eq!(ring.bytes_mut(&bytes), [round]);
                true
            }
            None => false,
            other => panic!("not expected here: {other:?}"),
        });
    }
}

#[test]
fn a_closed_socket_is_silent_and_its_place_never_misattributed() {
    let (mut ring, address) = listening(&SMALL);
    let mut places = std::collections::HashSet::new();
    for round in 1..=100_u64 {
        let mut client = connect(address);
        let socket = accept_one(&mut ring);
        places.insert(socket.index);
        ring.set_owner(socket, round);
        ring.receive(socket);
        // More than all socket buffers together, to a client that does not read: the send stays in flight.
        ring.send(socket, vec![b'z'; 16 << 20]);
        client.write_all(b"unread").expect("there is room");
        let mut completions = Vec::new();
        if round % 2 == 0 {
            ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
        }
        ring.close(socket);
        ring.close(socket);
        let mut next = connect(address);
        next.write_all(&round.to_be_bytes()).expect("there is room");
        let mut heard = Vec::new();
        drive(&mut ring, |ring, completions| {
            for completion in completions.drain(..) {
                match completion {
                    Completion::Accepted { socket } => {
                        ring.set_owner(socket, round + 1000);
                        ring.receive(socket);
                        heard.push(socket);
                    }
                    Completion::Received { owner, bytes, socket } => {
                        assert_eq!(owner, round + 1000);
                        assert_eq!(ring.bytes_mut(&bytes), round.to_be_bytes());
                        ring.close(socket);
                    }
                    other => panic!("a closed socket spoke: {other:?}"),
                }
            }
            !heard.is_empty() && ring.sockets() == 0
        });
        assert_eq!(heard.len(), 1);
        let mut left = Vec::new();
        let _ = client.read_to_end(&mut left);
        assert!(left.len() < 16 << 20, "the send was not in flight");
    }
    assert!(places.len() < 4, "places are not reused: {places:?}");
}

#[test]
fn stale_ids_are_ignored() {
    let (mut ring, address) = listening(&SMALL);
    let first_client = connect(address);
    let first = accept_one(&mut ring);
    ring.close(first);
    drive(&mut ring, |ring, _| ring.sockets() == 0);
    drop(first_client);
    let mut client = connect(address);
    let second = accept_one(&mut ring);
    assert_eq!(first.index, second.index);
    for stale in [first, SocketId { index: 77, generation: 0 }] {
        ring.set_owner(stale, 666);
        ring.receive(stale);
        ring.send(stale, b"for nobody".to_vec());
        ring.pause(stale);
        ring.close(stale);
    }
    client.write_all(b"?").expect("there is room");
    let mut completions = Vec::new();
    ring.turn(soon(20), &mut completions).expect("a turn does not fail");
    assert!(completions.is_empty(), "{completions:?}");
    ring.receive(second);
    ring.send(second, b"!".to_vec());
    drive(&mut ring, |_, completions| {
        completions.iter().any(|completion| match completion {
            Completion::Received { socket, owner, .. } => (*socket, *owner) == (second, 0),
            _ => false,
        })
    });
    let mut answer = [0];
    client.read_exact(&mut answer).expect("the ring sends");
    assert_eq!(&answer, b"!");
}

#[test]
fn after_the_clients_last_byte_an_answer_still_goes_out() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    client.write_all(b"question").expect("there is room");
    client.shutdown(Shutdown::Write).expect("it is open");
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    let (mut bytes_seen, mut ends_seen) = (0, 0);
    drive(&mut ring, |_, completions| {
        for completion in completions.drain(..) {
            match completion {
                Completion::Received { bytes, .. } => bytes_seen += bytes.len(),
                Completion::Ended { error: None, .. } => ends_seen += 1,
                other => panic!("not expected here: {other:?}"),
            }
        }
        ends_seen == 1
    });
    assert_eq!(bytes_seen, 8);
    // Receiving again must not tell the end again.
    ring.receive(socket);
    ring.send(socket, b"answer".to_vec());
    drive(&mut ring, |_, completions| match completions.pop() {
        Some(Completion::Sent { result: Ok(()), .. }) => true,
        None => false,
        other => panic!("not expected here: {other:?}"),
    });
    ring.close(socket);
    drive(&mut ring, |ring, completions| {
        assert!(completions.is_empty());
        ring.sockets() == 0
    });
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the ring sends");
    assert_eq!(answer, "answer");
}

#[test]
fn a_reset_tells_an_error_to_receiver_and_sender() {
    let (mut ring, address) = listening(&SMALL);
    let client = connect(address);
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    ring.send(socket, vec![b'z'; 16 << 20]);
    ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
    // Closed with unread bytes: the kernel resets the connection.
    drop(client);
    let (mut ended, mut sent) = (None, None);
    drive(&mut ring, |_, completions| {
        for completion in completions.drain(..) {
            match completion {
                Completion::Ended { error, .. } => ended = Some(error),
                Completion::Sent { result, buffer, .. } => {
                    assert!(buffer.is_empty());
                    sent = Some(result);
                }
                other => panic!("not expected here: {other:?}"),
            }
        }
        ended.is_some() && sent.is_some()
    });
    assert!(matches!(sent, Some(Err(_))), "{sent:?}");
    assert_eq!(ring.sockets(), 1, "it is still to be closed");
}

#[test]
fn a_ring_talks_to_itself_by_connect() {
    let (mut ring, address) = listening(&SMALL);
    let ours = ring.connect(address, 5).expect("a socket can be made");
    let mut echo = Echo::default();
    let mut answer = Vec::new();
    drive(&mut ring, |ring, completions| {
        let (mine, mut others): (Vec<_>, Vec<_>) =
            completions.drain(..).partition(|completion| match completion {
                Completion::Connected { socket, .. }
                | Completion::Received { socket, .. }
                | Completion::Sent { socket, .. }
                | Completion::Ended { socket, .. } => *socket == ours,
                _ => false,
            });
        echo.step(ring, &mut others);
        for completion in mine {
            match completion {
                Completion::Connected { owner: 5, result: Ok(()), .. } => {
                    ring.receive(ours);
                    ring.send(ours, b"to myself".to_vec());
                }
                Completion::Received { owner: 5, bytes, .. } => {
                    answer.extend_from_slice(ring.bytes_mut(&bytes));
                }
                Completion::Sent { owner: 5, result: Ok(()), .. } => {}
                other => panic!("not expected here: {other:?}"),
            }
        }
        answer == b"to myself"
    });
}

#[test]
fn a_refused_connect_frees_its_socket() {
    let address = {
        let listener = Listener::bind(loopback(), 1).expect("a free port exists");
        listener.local_address()
    };
    let mut ring = make_ring(&SMALL);
    let socket = ring.connect(address, 3).expect("a socket can be made");
    drive(&mut ring, |_, completions| match completions.pop() {
        Some(Completion::Connected { socket: failed, owner: 3, result }) => {
            assert_eq!((failed, result), (socket, Err(Errno(111))));
            true
        }
        None => false,
        other => panic!("not expected here: {other:?}"),
    });
    assert_eq!(ring.sockets(), 0);
    ring.close(socket);
}

#[test]
fn a_connect_that_gets_no_answer_can_be_closed() {
    // A full backlog on loopback leaves further connects without an answer.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
        .expect("a socket can be made");
    full.bind(&loopback().into()).expect("a free port exists");
    full.listen(0).expect("it is bound");
    let address = full.local_addr().ok().and_then(|a| a.as_socket()).expect("it is bound");
    let mut ring = make_ring(&SMALL);
    let sockets: Vec<_> =
        (0..20).map(|owner| ring.connect(address, owner).expect("a socket can be made")).collect();
    let mut completions = Vec::new();
    ring.turn(soon(50), &mut completions).expect("a turn does not fail");
    ring.turn(soon(50), &mut completions).expect("a turn does not fail");
    for socket in sockets {
        ring.close(socket);
    }
    drive(&mut ring, |ring, completions| {
        assert!(completions.is_empty(), "{completions:?}");
        ring.sockets() == 0
    });
}

#[test]
fn siblings_and_wakers_end_a_sleep() {
    let (addresses, receiver) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        let mut ring = make_ring(&SMALL);
        addresses.send((ring.mailbox(), ring.waker())).expect("the test waits for it");
        let mut completions = Vec::new();
        let mut wakes = 0;
        while wakes < 200 {
            ring.turn(Wait::Event, &mut completions).expect("a turn does not fail");
            for completion in &completions {
                assert!(matches!(completion, Completion::Woken), "{completion:?}");
                wakes += 1;
            }
        }
    });
    let (mailbox, waker) = receiver.recv().expect("the sleeper tells its address");
    let mut ring = make_ring(&SMALL);
    let begun = Instant::now();
    // Wakes coalesce, so more than 200 may be needed; without them the sleeper would never end.
    for number in 0.. {
        if sleeper.is_finished() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the sleeper sleeps on");
        if number % 2 == 0 {
            ring.wake(mailbox);
        } else {
            waker.wake();
        }
        ring.turn(soon(1), &mut Vec::new()).expect("a turn does not fail");
    }
    sleeper.join().expect("the sleeper is content");
    // The sleeper's ring is gone: neither may hurt.
    ring.wake(mailbox);
    waker.wake();
    let mut completions = Vec::new();
    ring.turn(soon(1), &mut completions).expect("a turn does not fail");
    assert!(completions.iter().all(|completion| matches!(completion, Completion::Woken)));
}

#[test]
fn a_single_wake_from_each_side_suffices() {
    for from_sibling in [true, false] {
        let (addresses, receiver) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            let mut ring = make_ring(&SMALL);
            addresses.send((ring.mailbox(), ring.waker())).expect("the test waits for it");
            let mut completions = Vec::new();
            while completions.is_empty() {
                ring.turn(Wait::Event, &mut completions).expect("a turn does not fail");
            }
            assert!(matches!(completions[..], [Completion::Woken]), "{completions:?}");
        });
        let (mailbox, waker) = receiver.recv().expect("the sleeper tells its address");
        if from_sibling {
            let mut ring = make_ring(&SMALL);
            ring.wake(mailbox);
            ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
            sleeper.join().expect("the sleeper is content");
        } else {
            waker.wake();
            sleeper.join().expect("the sleeper is content");
        }
    }
}

#[test]
fn a_wait_is_never_early_and_not_much_late() {
    set_timer_slack_ns(1).expect("one's own slack can be set");
    let mut ring = make_ring(&SMALL);
    let mut completions = Vec::new();
    ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
    let mut lateness_ns = Vec::new();
    for _ in 0..100 {
        let due = MonoNs(now().mono.0 + 1_500_000);
        ring.turn(Wait::Until(due), &mut completions).expect("a turn does not fail");
        let woken = now().mono;
        assert!(woken >= due, "{} ns early", due.since_ns(woken));
        assert!(completions.is_empty());
        lateness_ns.push(woken.since_ns(due));
    }
    lateness_ns.sort_unstable();
    // The quickest tenth: what the ring adds, not what a busy machine does.
    assert!(lateness_ns[10] < 2_000_000, "{lateness_ns:?}");
}

#[test]
fn idle_polls_do_not_enter_the_kernel() {
    let mut ring = make_ring(&SMALL);
    let mut completions = Vec::new();
    ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
    let enters = ring.enters();
    for _ in 0..1000 {
        ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
        ring.turn(Wait::Until(MonoNs(1)), &mut completions).expect("a turn does not fail");
    }
    assert_eq!(ring.enters(), enters);
    ring.turn(soon(1), &mut completions).expect("a turn does not fail");
    assert_eq!(ring.enters(), enters + 1);
}

#[test]
fn a_poll_sees_what_arrived_meanwhile() {
    let (mut ring, address) = listening(&SMALL);
    let waker = ring.waker();
    let mut completions = Vec::new();
    ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
    let _client = connect(address);
    waker.wake();
    let (mut accepted, mut woken) = (false, false);
    let begun = Instant::now();
    while !(accepted && woken) {
        assert!(begun.elapsed() < PATIENCE, "polls see nothing");
        ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
        for completion in &completions {
            accepted |= matches!(completion, Completion::Accepted { .. });
            woken |= matches!(completion, Completion::Woken);
        }
    }
}

#[test]
fn after_stop_listening_the_port_is_refused_and_connections_go_on() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    let socket = accept_one(&mut ring);
    ring.stop_listening();
    let mut completions = Vec::new();
    drive(&mut ring, |_, _| TcpStream::connect(address).is_err());
    ring.send(socket, b"still here".to_vec());
    ring.turn(soon(20), &mut completions).expect("a turn does not fail");
    let mut answer = [0; 10];
    client.read_exact(&mut answer).expect("the ring sends");
    assert_eq!(&answer, b"still here");
    // And again, on the same port.
    ring.listen(Listener::bind(address, 16).expect("the port is free"));
    let _client = connect(address);
    accept_one(&mut ring);
}

#[test]
fn a_ring_dies_at_once_whatever_it_was_doing() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    ring.send(socket, vec![b'z'; 16 << 20]);
    ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
    let _waiting = connect(address);
    client.write_all(b"unread").expect("there is room");
    let begun = Instant::now();
    drop(ring);
    // One second is when a dying ring gives up and leaks.
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    let mut left = Vec::new();
    let _ = client.read_to_end(&mut left);
    assert!(left.len() < 16 << 20, "the send was not in flight");
    assert!(TcpStream::connect(address).is_err(), "somebody listens still");
}

#[test]
#[should_panic(expected = "readable only until the next turn")]
fn bytes_of_an_earlier_turn_cannot_be_read() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    client.write_all(b"!").expect("there is room");
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    let mut kept = None;
    drive(&mut ring, |_, completions| {
        kept = completions.pop();
        kept.is_some()
    });
    ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
    if let Some(Completion::Received { bytes, .. }) = kept {
        ring.bytes_mut(&bytes);
    }
}

#[test]
#[should_panic(expected = "one send at a time")]
fn a_second_send_is_a_bug_of_the_caller() {
    let (mut ring, address) = listening(&SMALL);
    let _client = connect(address);
    let socket = accept_one(&mut ring);
    ring.send(socket, b"one".to_vec());
    ring.send(socket, b"two".to_vec());
}

/// Runs the named test alone in a process of its own, where it counts or limits the whole process's descriptors.
fn run_child(test: &str, open_files_max: u32) {
    let program = std::env::current_exe().expect("a test knows its program");
    let status = Command::new("sh")
        .args(["-c", "ulimit -n \"$1\" && exec \"$2\" --exact \"$3\" --test-threads 1", "sh"])
        .arg(open_files_max.to_string())
        .arg(program)
        .arg(test)
        .env(CHILD, test)
        .status()
        .expect("there is a shell");
    assert!(status.success(), "{test} failed in its own process");
}

fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|name| name == test)
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}

#[test]
fn ten_thousand_short_connections_leave_no_descriptor_open() {
    const NAME: &str = "ten_thousand_short_connections_leave_no_descriptor_open";
    if !is_child(NAME) {
        return run_child(NAME, 256);
    }
    let before = open_files();
    let ring = serve_echo(&SMALL, 10_000, |address| {
        for number in 0..10_000_u32 {
            let mut stream = connect(address);
            stream.write_all(&number.to_be_bytes()).expect("there is room");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).expect("the server answers");
            assert_eq!(answer, number.to_be_bytes());
            if number % 2 == 0 {
                // Reset instead of an orderly end; it also leaves no port in TIME_WAIT.
                let linger = Some(Duration::ZERO);
                socket2::SockRef::from(&stream).set_linger(linger).expect("TCP has it");
            }
        }
    });
    drop(ring);
    assert_eq!(open_files(), before);
}

#[test]
fn without_descriptors_accepting_pauses_and_goes_on() {
    const NAME: &str = "without_descriptors_accepting_pauses_and_goes_on";
    if !is_child(NAME) {
        return run_child(NAME, 64);
    }
    let (mut ring, address) = listening(&SMALL);
    let _clients: Vec<_> = (0..10).map(|_| connect(address)).collect();
    let mut fill: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    assert!(fill.len() < 64);
    let begun = Instant::now();
    let (mut failures, mut accepted) = (0, 0);
    let enters = ring.enters();
    drive(&mut ring, |_, completions| {
        for completion in completions.drain(..) {
            match completion {
                Completion::AcceptFailed(errno) => {
                    assert_eq!(errno, Errno(24));
                    failures += 1;
                }
                Completion::Accepted { .. } => accepted += 1,
                other => panic!("not expected here: {other:?}"),
            }
        }
        if failures == 3 {
            fill.clear();
        }
        accepted == 10
    });
    assert!(begun.elapsed() >= Duration::from_millis(300), "three pauses take 300 ms");
    assert!((3..=4).contains(&failures), "{failures}");
    // 50 turns a second by `drive`, and two for each pause.
    let enters = ring.enters() - enters;
    assert!(enters < 20 + 60 * begun.elapsed().as_secs_f64() as u64, "{enters} enters: it spins");
}
