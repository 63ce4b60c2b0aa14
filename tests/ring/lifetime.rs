//! Sockets, listeners and rings end without a trace: nothing leaks, and no completion goes to the
//! wrong owner.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use chronos::ring::{Completion, Errno, Listener, SocketId, Wait};

use super::harness::*;

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
fn a_closed_socket_is_silent_and_its_place_never_misattributed() {
    let (mut ring, address) = listening(&SMALL);
    let mut places = HashSet::new();
    for round in 1..=100_u64 {
        let mut client = connect(address);
        let socket = accept_one(&mut ring);
        places.insert(socket.index);
        ring.set_owner(socket, round);
        ring.receive(socket);
        // More bytes than all socket buffers hold together, to a client that does not read: the
        // send stays in flight.
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
                    Completion::Accepted { socket, .. } => {
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
fn a_reset_tells_an_error_to_receiver_and_sender() {
    let (mut ring, address) = listening(&SMALL);
    let client = connect(address);
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    ring.send(socket, vec![b'z'; 16 << 20]);
    ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
    // The client closes with unread bytes, so the kernel resets the connection.
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
    // While the backlog is full, further connects on loopback get no answer.
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
    // The ring listens again on the same port.
    ring.listen(Listener::bind(address, 16).expect("the port is free"));
    let _client = connect(address);
    accept_one(&mut ring);
}

#[test]
fn a_ring_dies_whatever_it_was_doing() {
    let (mut ring, address) = listening(&SMALL);
    let mut client = connect(address);
    let socket = accept_one(&mut ring);
    ring.receive(socket);
    ring.send(socket, vec![b'z'; 16 << 20]);
    ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
    let _waiting = connect(address);
    client.write_all(b"unread").expect("there is room");
    drop(ring);
    // A dying ring that gives up leaks its listener and its sends.
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

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}

#[test]
fn ten_thousand_short_connections_leave_no_descriptor_open() {
    const NAME: &str = "lifetime::ten_thousand_short_connections_leave_no_descriptor_open";
    if !is_child(NAME) {
        return run_child(NAME, "ulimit -n 256");
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
                // A reset instead of an orderly end also leaves no port in TIME_WAIT.
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
    const NAME: &str = "lifetime::without_descriptors_accepting_pauses_and_goes_on";
    if !is_child(NAME) {
        return run_child(NAME, "ulimit -n 64");
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
    // `drive` takes 50 turns a second, and each pause takes two.
    let enters = ring.enters() - enters;
    assert!(enters < 20 + 60 * begun.elapsed().as_secs_f64() as u64, "{enters} enters: it spins");
}
