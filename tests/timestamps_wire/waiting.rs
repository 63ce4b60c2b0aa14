//! Requests that must wait: for the next millisecond, or for a bound to be stored.

use std::time::{Duration, Instant};

use chronos::ring::now;
use chronos::timestamp::oracle::Terms;
use chronos::timestamp::{RANGE_MAX, Timestamp};
use chronos::wire::thrift::write_get_timestamps;

use super::harness::*;

#[test]
fn a_full_range_takes_a_millisecond_of_its_own() {
    let node = Node::master();
    let mut clients: Vec<_> = (0..4).map(|_| node.client()).collect();
    let began = Instant::now();
    for client in &mut clients {
        let mut calls = Vec::new();
        for seqid in 0..25 {
            write_get_timestamps(&mut calls, seqid, RANGE_MAX as i32);
        }
        client.send(&calls);
    }
    let mut values = Vec::new();
    for client in &mut clients {
        let mut last = 0;
        for seqid in 0..25 {
            let (found, said) = client.reply();
            assert_eq!(found, seqid, "a connection's answers stay in order");
            let value = said.value();
            assert!(value > last);
            last = value;
            values.push(value);
        }
    }
    // A hundred milliseconds, of which the first had begun before, and the last need only begin.
    assert!(began.elapsed().as_micros() > 98_000, "{:?}", began.elapsed());
    values.sort_unstable();
    let first_of_ms = |value: &u64| value.is_multiple_of(u64::from(RANGE_MAX));
    assert!(values.iter().all(first_of_ms), "each is the first of its millisecond");
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "each has its own");
    let ahead_ms = (values[99] >> 18).saturating_sub(now().wall.0);
    assert_eq!(ahead_ms, 0, "they are not ahead of the clock");
    node.await_sum("timestamp_waiting", 0);
}

/// What a request waits at most.
const WAIT: Duration = Duration::from_secs(1);

/// Waits until a connection waits; nothing if that was over before anybody looked.
fn await_waiting(node: &Node) -> Option<()> {
    until("a request that waits, or has waited", || {
        let (waiting, waited) = (node.sum("timestamp_waiting"), node.sum("timestamp_waits"));
        let refused = node.sum("timestamp_refusals_waited");
        (waiting > 0 || waited > 0 && refused > 0).then_some((waiting > 0).then_some(()))
    })
}

/// Terms that end at a bound so many milliseconds from now.
fn bounded(ms: u64) -> Terms {
    Terms { bound: Timestamp::of_unix_ms(now().wall.0 + ms), ..terms() }
}

#[test]
fn what_is_beyond_the_bound_waits_until_more_is_stored() {
    until("a bound that is stored within a second", || {
        let node = Node::start(|_| ());
        node.oracle.begin(Timestamp(0), &bounded(0));
        let mut client = node.client();
        let mut calls = Vec::new();
        (0..10).for_each(|seqid| write_get_timestamps(&mut calls, seqid, 1));
        let began = Instant::now();
        client.send(&calls);
        await_waiting(&node)?;
        assert_eq!(node.sum("timestamp_calls"), 0);
        node.oracle.publish(&terms());
        let is_in_time = began.elapsed() < WAIT;
        for seqid in 0..10 {
            let (found, said) = client.reply();
            assert_eq!(found, seqid);
            if !is_in_time {
                return None;
            }
            said.value();
        }
        assert_eq!(node.sum("timestamp_refusals_waited"), 0);
        Some(())
    });
}

#[test]
fn what_waits_in_vain_is_refused_after_a_second() {
    let node = Node::start(|_| ());
    node.oracle.begin(Timestamp(0), &bounded(0));
    let mut client = node.client();
    let began = Instant::now();
    let said = client.call(1);
    let Said::Exception(6, reason) = &said else { panic!("{said:?}") };
    assert!(reason.ends_with("try again"), "{reason}");
    assert!(began.elapsed().as_millis() >= 999, "{:?}", began.elapsed());
    node.await_sum("timestamp_refusals_waited", 1);
    assert_eq!(node.oracle.last(), Timestamp(0));
}

#[test]
fn what_waits_when_the_mastership_ends_is_refused_at_once() {
    until("a mastership that ends within a second", || {
        let node = Node::start(|_| ());
        node.oracle.begin(Timestamp(0), &bounded(0));
        let mut client = node.client();
        let mut call = Vec::new();
        write_get_timestamps(&mut call, 1, 1);
        let began = Instant::now();
        client.send(&call);
        await_waiting(&node)?;
        node.oracle.revoke();
        if began.elapsed() >= WAIT {
            return None;
        }
        let said = client.reply().1;
        assert!(matches!(said, Said::Exception(6, reason) if reason.contains("master")));
        assert_eq!(node.sum("timestamp_refusals_waited"), 0);
        Some(())
    });
}

#[test]
fn who_leaves_while_waiting_is_forgotten() {
    let node = Node::start(|_| ());
    node.oracle.begin(Timestamp(0), &bounded(0));
    let mut calls = Vec::new();
    // More than is held of a connection that waits.
    (0..2_000).for_each(|seqid| write_get_timestamps(&mut calls, seqid, 1));
    for _ in 0..20 {
        let mut client = node.client();
        client.send(&calls);
    }
    node.await_sum("timestamp_connections", 0);
    node.oracle.publish(&terms());
    node.client().call(1).value();
    node.await_sum("timestamp_waiting", 0);
}
