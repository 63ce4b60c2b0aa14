//! Bytes arrive whole, in order, at the right socket, and a slow reader pushes back.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;

use chronos::ring::{Completion, Ring, RingConfig};

use super::harness::*;

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
    let config = RingConfig { entries: 64, buffers: 2, buffer_bytes: 16, ..SMALL };
    serve_echo(&config, 40, |address| exchange(address, 40, |seed| 3_000 + seed));
}

#[test]
fn queues_that_are_too_small_only_cost_enters() {
    let config = RingConfig { entries: 2, buffers: 64, buffer_bytes: 256, ..SMALL };
    let ring = serve_echo(&config, 100, |address| exchange(address, 100, |seed| 2_000 + seed));
    assert!(ring.early_submits() > 0, "a queue of 2 entries was never full");
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
            // Small reads, between which the sender can run into a full window.
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
    submit(&mut ring);
    assert_eq!(ring.sockets(), 0);
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
    // The first of these turns submits the cancel. The cancel's completion is silent.
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
    // The ring must not tell the end a second time when it receives again.
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
