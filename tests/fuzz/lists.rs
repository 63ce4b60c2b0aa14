//! Fuzzing of lists of timers.

use chronos::base::ids::TimerId;
use chronos::base::time::WallMs;
use chronos::wire::list_query::{Cursor, ListQuery};
use chronos::wire::peer_message::{PeerMessage, decode_message};
use chronos::wire::timer_count::{CountAsk, CountPart, Numbers};
use chronos::wire::timer_list::{
    Filter, ListAsk, ListedCopy, ListedState, PartHead, Place, begin_part, end_part, write_listed,
};

use super::peers::copies;
use super::{fuzz, list_targets};

#[test]
fn list_query() {
    let first = ListQuery::read("tag=a", WallMs(0)).expect("good");
    let cursor = Cursor { from: Place(7), walk: 9, began: WallMs(1 << 40) };
    let next = format!("tag=a&limit=3&cursor={}", first.write_cursor(&cursor));
    let inputs: [&[u8]; 4] = [
        b"",
        b"tag=CALL%20me&host=%5B::1%5d:80&state=in-flight&limit=1000",
        b"due-after=1.5&due-before=9999-12-31T23:59:59Z",
        next.as_bytes(),
    ];
    let tokens: &[&[u8]] = &[
        b"&",
        b"=",
        b"%",
        b"%c3%a9",
        b"%00",
        b"tag=",
        b"host=",
        b"due-after=",
        b"due-before=",
        b"state=armed",
        b"limit=",
        b"cursor=",
        b"1000",
        b"18446744073709551616",
        b"0.001",
        b"2024-02-29T23:59:60Z",
        b"+23:59",
        b"\xff",
    ];
    fuzz(list_targets::list_query, &inputs, tokens);
}

fn asks() -> Vec<Vec<u8>> {
    let all = ListAsk { walk: 1, from: Place(0), limit: 1, filter: Filter::ALL };
    let filter = Filter {
        states: 1,
        tag: Some("CALL"),
        host: Some("10.0.0.1:80"),
        due_after: Some(WallMs(0)),
        due_before: Some(WallMs(u64::MAX)),
    };
    let some = ListAsk { walk: u64::MAX, from: Place(u64::MAX), limit: 1_000, filter };
    let encoded = |ask: ListAsk<'_>| {
        let mut bytes = Vec::new();
        ask.encode(&mut bytes);
        bytes
    };
    vec![encoded(all), encoded(some)]
}

#[test]
fn list_ask() {
    let asks = asks();
    let inputs: Vec<&[u8]> = asks.iter().map(Vec::as_slice).collect();
    fuzz(list_targets::list_ask, &inputs, &[b"\x00", b"\xff\xff", b"\x1f\x0f", b"\x04CALL"]);
}

#[test]
fn count_ask() {
    let ask = |has_spans| {
        let mut bytes = Vec::new();
        CountAsk { walk: 7, has_spans }.encode(&mut bytes);
        bytes
    };
    fuzz(list_targets::count_ask, &[&ask(false), &ask(true)], &[b"\x00", b"\x01", b"\x02"]);
}

#[test]
fn count_part() {
    let named = |names: &[&str]| names.iter().map(|name| (name.to_string(), 300)).collect();
    let numbers = Numbers {
        states: [1, 2, 3, 4, 1 << 40, 6],
        spans: [0, 1, 2, 3, 4, u64::MAX],
        tags: named(&["CALL", "REG"]),
        hosts: named(&["", "10.0.0.1:80"]),
        ..Numbers::default()
    };
    let part = |numbers| {
        let mut bytes = Vec::new();
        CountPart { shards: 3, is_starved: false, numbers }.encode(&mut bytes);
        bytes
    };
    let seeds = [part(None), part(Some(Numbers::default())), part(Some(numbers))];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    fuzz(list_targets::count_part, &seeds, &[b"\x00", b"\x01", b"\xff\x01", b"\x04CALL"]);
}

#[test]
fn list_part() {
    let mut part = Vec::new();
    begin_part(&mut part);
    for (number, bytes) in copies().iter().enumerate() {
        let Ok(PeerMessage::Copy(copy)) = decode_message(&mut &bytes[..]) else { continue };
        if copy.body.is_some() {
            assert!(copy.standing.id != TimerId(0));
            let state = ListedState::ALL[number % ListedState::ALL.len()];
            let due_in_ms = [0, -1, i64::MIN, i64::MAX][number % 4];
            write_listed(&ListedCopy { state, is_first: number == 0, due_in_ms, copy }, &mut part);
        }
    }
    let (shards, departures, until) = (256, 1 << 20, Place(1 << 60));
    let head = PartHead { is_done: false, is_starved: true, shards, departures, until };
    end_part(&mut part, &head);
    let mut empty = Vec::new();
    begin_part(&mut empty);
    end_part(&mut empty, &PartHead { is_done: true, is_starved: false, ..head });
    let tokens: &[&[u8]] =
        &[b"\x80", b"\x00", b"\x05", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"];
    fuzz(list_targets::list_part, &[&part, &empty], tokens);
}
