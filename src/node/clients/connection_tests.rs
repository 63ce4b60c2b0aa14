//! What a connection holds, however its requests are answered. It stands beside a shard of its own
//! and a sibling that answers when the test says so.

use crate::base::ids::{ShardCount, ShardIndex, TimerId};
use crate::base::limits::Limits;
use crate::base::slots::SlotKey;
use crate::base::time::{MonoNs, Now, TICK_NS, WallMs};
use crate::cluster::view::View;
use crate::core::Core;
use crate::core::mesh::{MeshPort, Message, mesh};
use crate::node::clients::answers::Persistence;
use crate::node::clients::bulk::{LINES_OF_ONE_PER_TURN_MAX, LINES_PER_TURN_MAX, OpenChunk};
use crate::node::clients::connection::{Appetite, ClientConnection, Home};
use crate::node::clients::service::{Api, Service};
use crate::node::deadlines::Deadlines;
use crate::ring::{Ring, RingConfig, SocketId};
use crate::shard::ShardConfig;
use crate::shard::effects::{Answer, Reply};
use crate::shard::harness_tests::config;
use std::sync::Arc;

pub(super) const NOW: Now = Now { mono: MonoNs(50_000 * TICK_NS), wall: WallMs(1_700_000_000_000) };
const OPAQUE_BYTES: usize = 20_000;

pub(super) struct Fixture {
    ring: Ring,
    core: Core,
    service: Service,
    connection: ClientConnection,
    limits: Limits,
    /// The sibling's end of the mesh.
    sibling: MeshPort,
    shards: ShardCount,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let (shards, own) = (ShardCount::new(2), ShardIndex(0));
        let limits = Limits::default();
        let view = Arc::new(View::alone("10.0.0.1:7253"));
        let config = ShardConfig { own, shards, ..config(view, 1) };
        let mut ports = mesh(shards, 1_024);
        let sibling = ports.pop().expect("two ports");
        let core = Core::new(config, ports.pop().expect("two ports"), NOW);
        let socket = SocketId { index: 0, generation: 0 };
        let home = Home { socket, shard: own, key: SlotKey { index: 0, generation: 1 } };
        let deadline = Deadlines::new(NOW.mono).begin(0, NOW.mono);
        Self {
            ring: Ring::new(&RingConfig {
                entries: 8,
                buffers: 1,
                buffer_bytes: 64,
                ..RingConfig::default()
            })
            .expect("io_uring"),
            core,
            service: Service::new(&limits, false),
            connection: ClientConnection::new(home, deadline),
            limits,
            sibling,
            shards,
        }
    }

    pub(super) fn feed(&mut self, text: &str) -> Appetite {
        self.feed_at(NOW, text)
    }

    /// Feeds the connection in the turn that begins at `now`.
    pub(super) fn feed_at(&mut self, now: Now, text: &str) -> Appetite {
        let mut bytes = text.as_bytes().to_vec();
        let input = (&mut bytes[..], self.ring.far_ends());
        let (core, service, limits) = (&mut self.core, &mut self.service, &self.limits);
        self.connection.feed(&mut Api { now, core, service, limits }, input)
    }

    /// Begins a turn of requests.
    pub(super) fn begin_turn(&mut self, at: MonoNs) {
        self.service.time.begin_turn(at);
    }

    /// Takes the answers that are written, and returns the status of the first one, or nothing.
    pub(super) fn status(&mut self) -> String {
        let answers = std::mem::take(&mut self.connection.out);
        String::from_utf8_lossy(answers.get(9..12).unwrap_or_default()).into_owned()
    }

    /// How many answers are written, or awaited.
    pub(super) fn answered(&self) -> usize {
        let out = String::from_utf8_lossy(&self.connection.out);
        out.matches("HTTP/1.1 200").count() + self.connection.pending.len()
    }

    /// How many lines of a bulk request are refused.
    pub(super) fn lines_answered(&self) -> usize {
        String::from_utf8_lossy(&self.connection.out).matches("\"status\":400").count()
    }

    /// Creates a timer here and returns the request that reads it.
    fn created(&mut self) -> String {
        let body = format!(
            "{{\"timing\":{{\"interval\":60}},\"callback\":{{\"http\":{{\"uri\":\"http://h/\",\
             \"opaque\":\"{}\"}}}}}}",
            "\\u0000".repeat(OPAQUE_BYTES)
        );
        let length = body.len();
        self.feed(&format!(
            "POST /timers HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        let answer = String::from_utf8(std::mem::take(&mut self.connection.out)).expect("text");
        let location = answer.split("Location: ").nth(1).expect("it was created at once");
        let path = location.split("\r\n").next().expect("a line");
        format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
    }

    /// Returns the request that reads a timer of the sibling.
    fn elsewhere(&self) -> String {
        let is_there = |id: &u64| self.shards.owner(TimerId(*id)) == ShardIndex(1);
        let id = (1..).find(is_there).expect("half of them");
        format!("GET /timers/{id:016x}-1 HTTP/1.1\r\nHost: h\r\n\r\n")
    }

    /// Answers the reads that have reached the sibling. Returns how many there were.
    fn answer_as_sibling(&mut self) -> usize {
        let mut count = 0;
        while let Some(Message::Request(from, ..)) = self.sibling.receive() {
            self.sibling.send_reply(Reply::at_once(from, Answer::NotFound));
            count += 1;
        }
        self.core.inbox(NOW);
        let mut replies = Vec::new();
        self.core.replies(&mut replies);
        for reply in replies {
            let service = &mut self.service;
            self.connection.answer(reply.to.request, &reply.answer, service);
        }
        count
    }
}

#[test]
fn answers_behind_one_that_is_awaited_are_counted() {
    let mut fixture = Fixture::new();
    let (here, there) = (fixture.created(), fixture.elsewhere());
    fixture.feed(&there);
    fixture.answer_as_sibling();
    fixture.connection.out.clear();
    fixture.feed(&(there + &here.repeat(100)));
    assert!(fixture.connection.out.is_empty(), "the first is awaited");
    let limit = fixture.limits.unsent_bytes_per_connection_max as usize;
    let answer_bytes = OPAQUE_BYTES * 6 + 1_000;
    let held = fixture.connection.unsent_bytes();
    assert!((limit..limit + answer_bytes).contains(&held), "{held} bytes held");
    assert_eq!(fixture.answer_as_sibling(), 1);
    assert_eq!(fixture.connection.out.len(), fixture.connection.unsent_bytes(), "nothing waits");
    assert!(fixture.connection.is_backed_up(&fixture.limits));
}

#[test]
fn reads_from_elsewhere_are_expected_to_be_as_long_as_those_before() {
    let mut fixture = Fixture::new();
    let (here, there) = (fixture.created(), fixture.elsewhere());
    assert_eq!(fixture.feed(&there.repeat(100)), Appetite::Full);
    assert_eq!(fixture.answer_as_sibling(), 1, "nothing is known of them: one at a time");
    fixture.connection.out.clear();
    assert_eq!(fixture.feed(""), Appetite::Full);
    let in_flight = fixture.answer_as_sibling();
    assert!((20..=64).contains(&in_flight), "they were short: {in_flight} at a time");
    fixture.connection.out.clear();
    while fixture.connection.is_awaiting() || fixture.feed("") == Appetite::Full {
        fixture.answer_as_sibling();
        fixture.connection.out.clear();
    }
    assert_eq!(fixture.feed(&here), Appetite::Full, "a long one");
    fixture.connection.out.clear();
    fixture.feed(&there.repeat(100));
    assert_eq!(fixture.answer_as_sibling(), 1, "the next may be as long");
}

#[test]
fn a_core_that_has_read_enough_defers_reads_to_its_next_turn_and_nothing_else() {
    let mut fixture = Fixture::new();
    let here = fixture.created();
    let answer = Answer::NotFound;
    let keep = Persistence { keep_alive: true, ..Persistence::CLOSE };
    while fixture.service.room.may_read() {
        fixture.service.room.write(&mut Vec::new(), &answer, keep, 0);
    }
    let ping = "GET /ping HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(fixture.feed(&format!("{ping}{here}{ping}")), Appetite::Full);
    let pong_bytes = fixture.connection.out.len();
    assert!((1..1_000).contains(&pong_bytes), "the first ping alone is answered");
    assert_eq!(fixture.feed(""), Appetite::Deferred, "first in the next turn");
    fixture.service.room.begin_portion();
    fixture.feed("");
    assert!(fixture.connection.out.len() > OPAQUE_BYTES);
    fixture.connection.out.clear();
    assert_eq!(fixture.feed(""), Appetite::Hungry);
    assert_eq!(fixture.connection.out.len(), pong_bytes);
}

/// The turn so many after the first.
fn turn(number: u64) -> Now {
    Now { mono: MonoNs(NOW.mono.0 + number), ..NOW }
}

const BULK: &str = "POST /timers/bulk HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n";

impl Fixture {
    /// How many lines have got a result since the last call.
    fn results(&mut self) -> usize {
        let out = std::mem::take(&mut self.connection.out);
        self.connection.chunk = OpenChunk::default();
        String::from_utf8_lossy(&out).matches("\"status\":400").count()
    }
}

#[test]
fn a_turn_takes_so_many_lines_however_many_pieces_it_brings() {
    let mut fixture = Fixture::new();
    fixture.limits.unsent_bytes_per_connection_max = 1 << 20;
    fixture.feed_at(turn(0), BULK);
    let of_one = LINES_OF_ONE_PER_TURN_MAX as usize;
    let pieces = 10;
    for _ in 0..pieces {
        fixture.feed_at(turn(0), &"x\n".repeat(of_one / 4));
    }
    assert_eq!(fixture.results(), of_one);
    assert_eq!(fixture.feed_at(turn(0), ""), Appetite::Full);
    assert_eq!(fixture.results(), 0, "no more in this turn");
    fixture.feed_at(turn(1), "");
    assert_eq!(fixture.results(), of_one);
    assert_eq!(fixture.feed_at(turn(2), ""), Appetite::Hungry);
    assert_eq!(fixture.results(), pieces * (of_one / 4) - 2 * of_one);
}

#[test]
fn blank_lines_use_up_a_turn_as_well() {
    let mut fixture = Fixture::new();
    fixture.feed_at(turn(0), BULK);
    assert_eq!(fixture.feed_at(turn(0), &("\n".repeat(100_000) + "x\n")), Appetite::Full);
    let turns = (1..100).find(|number| fixture.feed_at(turn(*number), "") == Appetite::Hungry);
    assert_eq!((turns, fixture.results()), (Some(3), 1));
}

#[test]
fn a_connection_that_finds_the_turn_used_up_comes_first_in_the_next() {
    let mut fixture = Fixture::new();
    fixture.feed_at(turn(0), BULK);
    *fixture.service.bulk_budget.of(turn(1).mono, LINES_PER_TURN_MAX) = 0;
    assert_eq!(fixture.feed_at(turn(1), "x\nx\nx\n"), Appetite::Deferred);
    assert_eq!(fixture.results(), 0);
    *fixture.service.bulk_budget.of(turn(2).mono, LINES_PER_TURN_MAX) = 2;
    assert_eq!(fixture.feed_at(turn(2), ""), Appetite::Full);
    assert_eq!(fixture.results(), 2);
    assert_eq!(fixture.feed_at(turn(3), ""), Appetite::Hungry);
    assert_eq!(fixture.results(), 1);
}

#[test]
fn results_wait_for_an_earlier_answer_and_keep_their_order() {
    let mut fixture = Fixture::new();
    let there = fixture.elsewhere();
    fixture.feed(&there);
    fixture.answer_as_sibling();
    fixture.connection.out.clear();
    let body = "x\n\ny";
    let bulk = format!("POST /timers/bulk HTTP/1.1\r\nHost: h\r\nContent-Length: {}", body.len());
    let ping = "GET /ping HTTP/1.1\r\nHost: h\r\n\r\n";
    fixture.feed_at(turn(0), &format!("{there}{bulk}\r\n\r\n{body}{ping}"));
    assert!(fixture.connection.out.is_empty(), "the read is awaited");
    assert!(fixture.connection.unsent_bytes() > 200, "what waits counts");
    assert_eq!(fixture.answer_as_sibling(), 1);
    let out = String::from_utf8(std::mem::take(&mut fixture.connection.out)).expect("text");
    let (first, rest) = out.split_once("HTTP/1.1 200 OK\r\n").expect("the bulk request's head");
    assert!(first.starts_with("HTTP/1.1 404"), "{out}");
    let (head, rest) = rest.split_once("\r\n\r\n").expect("the end of the head");
    assert!(head.ends_with("Transfer-Encoding: chunked"), "{out}");
    let (size, rest) = rest.split_once("\r\n").expect("a size");
    let bytes = usize::from_str_radix(size, 16).expect("hex");
    let lines: Vec<&str> = rest[..bytes].lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with(",\"line\":1}"), "{out}");
    assert!(lines[1].ends_with(",\"line\":3}"), "{out}");
    assert!(rest[bytes..].starts_with("\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"), "{out}");
    assert!(rest.ends_with("OK"), "the ping comes last: {out}");
}

/// The answer of such a connection may be under way while the core is asked to take it as a peer.
#[test]
fn a_connection_that_was_refused_becomes_no_peer() {
    let mut fixture = Fixture::new();
    fixture.feed(
        "GET /peer HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: chronos-peer/1\r\n\
         X-Chronos-Name: 10.0.0.2:7253\r\nX-Chronos-Instance: 2\r\nX-Chronos-Incarnation: 1\r\n\
         X-Chronos-View: 1\r\nX-Chronos-Shard: 0\r\nX-Chronos-Shards: 1\r\n\r\nframes",
    );
    assert!(fixture.connection.upgrade.is_some());
    fixture.connection.fail(&mut fixture.service, 408, "too late");
    assert!(fixture.connection.upgrade.is_none() && fixture.connection.is_closing);
}
