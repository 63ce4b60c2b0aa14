//! What is asked and answered on one connection that behaves.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use chronos::ring::now;
use chronos::timestamp::RANGE_MAX;
use chronos::wire::thrift::{parse_request, write_get_timestamp, write_get_timestamps};
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol,
    TMessageIdentifier, TMessageType, TOutputProtocol, TStructIdentifier, TType,
};

use super::harness::*;

const PLAIN: &str = "800100010000000c67657454696d657374616d700000000700";
const RANGE_100: &str = "800100010000000d67657454696d657374616d7073000000080800010000006400";
const MISSING: &str = "800100010000000d67657454696d657374616d70730000000900";
const ZERO: &str = "800100010000000d67657454696d657374616d7073000000090800010000000000";
const UNKNOWN: &str = "8001000100000003666f6f0000000a00";
const ONEWAY: &str = "800100040000000c67657454696d657374616d700000000b00";

fn old(node_settings: &mut chronos::node::settings::NodeSettings) {
    node_settings.timestamp.as_mut().expect("on").strict_replies = false;
}

#[test]
fn the_originals_bytes_are_answered_as_the_original_does() {
    let node = Node::start(old);
    node.begin();
    let mut client = node.client();
    let mut last = 0;
    // Request, the reply before its value, and whether the value is the first of a hundred.
    let head = "0000000c67657454696d657374616d7002";
    let heads = "0000000d67657454696d657374616d707302000000080a0000";
    for (request, before, count) in [
        (PLAIN, format!("{head}000000070a0000"), 1),
        (RANGE_100, heads.to_owned(), 100),
        (ONEWAY, format!("{head}0000000b0a0000"), 1),
    ] {
        client.send(&unhex(request));
        let before = unhex(&before);
        let reply = client.bytes(before.len() + 9);
        assert_eq!(reply[..before.len()], before, "{request}");
        assert_eq!(reply[reply.len() - 1], 0, "{request}");
        let value: [u8; 8] = reply[before.len()..][..8].try_into().expect("8 bytes");
        let value = u64::from_be_bytes(value);
        assert!(value > last, "{value} after {last}");
        let unix_ms = value >> 18;
        assert!(now().wall.0.abs_diff(unix_ms) < 10_000, "{unix_ms}");
        last = value + count - 1;
    }
    client.send(&unhex(UNKNOWN));
    let expected = unhex(
        "00000003666f6f030000000a0b00010000001a496e76616c6964206d6574686f64206e616d653a2027666f\
         6f270800020000000100",
    );
    assert_eq!(client.bytes(expected.len()), expected);
    assert!(client.call(1).value() > last, "the connection has stayed open");
    node.await_sum("timestamp_unknown_methods", 1);
    node.await_sum("timestamps", 103);
    node.await_sum("timestamp_calls", 4);
    node.await_sum("timestamp_ranges", 1);
}

#[test]
fn a_strict_reply_has_a_version() {
    let node = Node::master();
    let mut client = node.client();
    client.send(&unhex(PLAIN));
    let expected = unhex("800100020000000c67657454696d657374616d70000000070a0000");
    assert_eq!(client.bytes(expected.len()), expected);
    assert_eq!(client.bytes(9)[8], 0);
}

#[test]
fn ranges_that_are_none_are_refused_and_give_nothing_away() {
    let node = Node::master();
    let mut client = node.client();
    let before = client.call(1).value();
    let last = node.oracle.last();
    let expected = Said::Exception(7, "range: expected 1 to 262144".into());
    for request in [MISSING, ZERO] {
        client.send(&unhex(request));
        assert_eq!(client.reply(), (9, expected.clone()));
    }
    for range in [-1, -5, i32::MIN, i32::MAX, RANGE_MAX as i32 + 1] {
        assert_eq!(client.call(range), expected, "{range}");
    }
    assert_eq!(node.oracle.last(), last, "nothing was handed out");
    let first = client.call(RANGE_MAX as i32).value();
    assert!(first > before);
    assert!(client.call(1).value() >= first + u64::from(RANGE_MAX), "the range was the caller's");
    node.await_sum("timestamp_refusals_range", 7);
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let node = Node::master();
    let mut calls = Vec::new();
    for seqid in 0..3_000 {
        match seqid % 3 {
            0 => write_get_timestamp(&mut calls, seqid),
            1 => write_get_timestamps(&mut calls, seqid, 5),
            _ => write_get_timestamps(&mut calls, seqid, 0),
        }
    }
    for piece_bytes in [1, 7, 1_000, calls.len()] {
        let mut client = node.client();
        let mut writer = client.stream().try_clone().expect("a socket");
        let bytes = calls[..calls.len().min(piece_bytes * 3_000)].to_vec();
        let mut whole = 0;
        let mut rest = &bytes[..];
        while let Some((_, used)) = parse_request(rest).expect("calls") {
            rest = &rest[used..];
            whole += 1;
        }
        let writing = std::thread::spawn(move || {
            for piece in bytes.chunks(piece_bytes) {
                std::io::Write::write_all(&mut writer, piece).expect("the node takes them");
            }
        });
        let mut last = 0;
        assert!(whole > 90);
        for seqid in 0..whole {
            let (found, said) = client.reply();
            assert_eq!(found, seqid);
            if seqid % 3 == 2 {
                assert!(matches!(said, Said::Exception(7, _)), "{said:?}");
            } else {
                let value = said.value();
                assert!(value > last);
                last = value + if seqid % 3 == 1 { 4 } else { 0 };
            }
        }
        writing.join().expect("written");
    }
}

#[test]
fn who_ends_its_side_gets_all_answers_first() {
    let node = Node::master();
    let mut client = node.client();
    let mut calls = Vec::new();
    for seqid in 0..5_000 {
        write_get_timestamps(&mut calls, seqid, 1);
    }
    // Half a request behind them is dropped.
    calls.extend_from_slice(&unhex("80010001"));
    let mut writer = client.stream().try_clone().expect("a socket");
    let writing = std::thread::spawn(move || {
        std::io::Write::write_all(&mut writer, &calls).expect("the node takes them");
        writer.shutdown(std::net::Shutdown::Write).expect("open");
    });
    for seqid in 0..5_000 {
        assert_eq!(client.reply().0, seqid);
    }
    client.assert_closed("after its last answer");
    writing.join().expect("written");
    node.await_sum("timestamp_connections", 0);
    assert_eq!(node.sum("timestamp_protocol_errors"), 0);
}

/// As code that Thrift generates calls and reads.
fn call_as_generated(stream: &TcpStream, is_strict: bool, range: i32) -> thrift::Result<i64> {
    let mut output = TBinaryOutputProtocol::new(stream, true);
    let call = TMessageIdentifier::new("getTimestamps", TMessageType::Call, 42);
    output.write_message_begin(&call)?;
    output.write_struct_begin(&TStructIdentifier::new("getTimestamps_args"))?;
    output.write_field_begin(&TFieldIdentifier::new("range", TType::I32, 1))?;
    output.write_i32(range)?;
    output.write_field_end()?;
    output.write_field_stop()?;
    output.write_struct_end()?;
    output.write_message_end()?;
    output.flush()?;
    let mut input = TBinaryInputProtocol::new(stream, is_strict);
    let message = input.read_message_begin()?;
    assert_eq!((message.name.as_str(), message.sequence_number), ("getTimestamps", 42));
    if message.message_type == TMessageType::Exception {
        let error = thrift::Error::read_application_error_from_in_protocol(&mut input)?;
        input.read_message_end()?;
        return Err(thrift::Error::Application(error));
    }
    assert_eq!(message.message_type, TMessageType::Reply);
    input.read_struct_begin()?;
    let field = input.read_field_begin()?;
    assert_eq!((field.field_type, field.id), (TType::I64, Some(0)));
    let value = input.read_i64()?;
    input.read_field_end()?;
    assert_eq!(input.read_field_begin()?.field_type, TType::Stop);
    input.read_struct_end()?;
    input.read_message_end()?;
    Ok(value)
}

#[test]
fn another_implementation_of_thrift_reads_both_forms() {
    for (is_strict_node, is_strict_client) in [(true, true), (true, false), (false, false)] {
        let node = Node::start(|settings| {
            settings.timestamp.as_mut().expect("on").strict_replies = is_strict_node;
        });
        node.begin();
        let stream = TcpStream::connect(node.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let first = call_as_generated(&stream, is_strict_client, 10).expect("a value");
        let next = call_as_generated(&stream, is_strict_client, 1).expect("a value");
        assert!(next >= first + 10);
        let refused = call_as_generated(&stream, is_strict_client, 0).expect_err("no range");
        let thrift::Error::Application(error) = refused else { panic!("{refused}") };
        assert_eq!(error.message, "range: expected 1 to 262144");
    }
}

#[test]
fn a_strict_client_does_not_read_the_old_form() {
    let node = Node::start(old);
    node.begin();
    let stream = TcpStream::connect(node.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert!(matches!(call_as_generated(&stream, true, 1), Err(thrift::Error::Protocol(_))));
}

#[test]
fn who_is_not_master_says_who_is() {
    let node = Node::start(|_| ());
    let mut client = node.client();
    let unknown = "not the master, and no master is known; try again";
    assert_eq!(client.call(1), Said::Exception(6, unknown.into()));
    node.tell_master(Some("10.0.0.7:7911"));
    let known = Said::Exception(6, "not the master; the master is 10.0.0.7:7911".into());
    assert_eq!(client.call(1), known);
    assert_eq!(client.call(0), Said::Exception(7, "range: expected 1 to 262144".into()));
    node.begin();
    client.call(1).value();
    node.oracle.revoke();
    assert_eq!(client.call(1), known);
    node.await_sum("timestamp_refusals_not_serving", 3);
}

#[test]
fn without_timers_the_other_port_is_not_opened() {
    let host = IpAddr::from([127, 0, 0, 1]);
    let listen = SocketAddr::new(host, kit::ports::free_port(&[host]));
    let node = Node::start(|settings| {
        settings.listen = listen;
        settings.serves_timers = false;
    });
    node.begin();
    node.client().call(1).value();
    let refused = TcpStream::connect(listen).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let node = Node::start(|settings| {
        settings.timestamp.as_mut().expect("on").idle_timeout_ms = 300;
    });
    node.begin();
    let deadline = Duration::from_millis(300);
    // A machine that is away for the deadline lets the node close the busy one rightly.
    until("a run without a stall", || {
        let (mut idle, mut busy) = (node.client(), node.client());
        let (mut began, mut asked) = (Instant::now(), Instant::now());
        let call = |client: &mut Client, since: &mut Instant| {
            let sent = Instant::now();
            let said = client.try_call(1);
            if since.elapsed() >= deadline {
                return None;
            }
            *since = sent;
            Some(said.expect("it stays open").value())
        };
        let mut last = call(&mut idle, &mut began)?;
        idle.stream().set_nonblocking(true).expect("a socket");
        loop {
            let value = call(&mut busy, &mut asked)?;
            assert!(value > last);
            last = value;
            match idle.stream().read(&mut [0]) {
                Ok(count) => break assert_eq!(count, 0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(began.elapsed() < PATIENCE, "the idle connection stays");
        }
        assert!(began.elapsed() >= deadline, "{:?}", began.elapsed());
        call(&mut busy, &mut asked).map(|_| ())
    });
}
