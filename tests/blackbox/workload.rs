//! Clients. Each client owns timers, writes them through random nodes one after the other, and
//! reads them through every node.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kit::simulator::random::Stream;
use serde_json::{Value, json};

use super::client::{Client, Failure};
use super::history::{Outcome, Read, Recorder, TimerNumber, Wish, Write};
use super::nodes::{Nodes, PLACES};
use super::sink;

/// Most timers of one client that are not deleted.
const OWNED_MAX: usize = 150;
/// The interval of timers that do not pop within a run.
pub const LONG_MS: u64 = 3_600_000;
/// The longest interval of timers that pop within a run.
pub const INTERVAL_MS_MAX: u64 = 12_000;

/// A timer as its client knows it.
struct Owned {
    number: TimerNumber,
    /// The path of the last answer, or a path that this client chose.
    path: String,
    factor: u8,
    is_deleted: bool,
}

/// One client and its timers.
pub struct Worker<'a> {
    nodes: &'a Nodes,
    recorder: &'a Recorder,
    sink: SocketAddr,
    client: Client,
    draw: Stream,
    factor: Option<u8>,
    /// Whether the client also sends to nodes that are frozen or dead.
    is_bold: bool,
    owned: Vec<Owned>,
}

impl<'a> Worker<'a> {
    pub fn new(
        nodes: &'a Nodes,
        recorder: &'a Recorder,
        sink: SocketAddr,
        draw: Stream,
        factor: Option<u8>,
        is_bold: bool,
    ) -> Worker<'a> {
        let client = Client::new(nodes.addresses());
        Worker { nodes, recorder, sink, client, draw, factor, is_bold, owned: Vec::new() }
    }

    /// Writes and reads until the load is over.
    pub fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.act();
            thread::sleep(Duration::from_millis(self.draw.range(10, 60)));
        }
    }

    fn act(&mut self) {
        let is_full = self.owned.len() >= OWNED_MAX;
        match self.draw.range(0, 99) {
            0..40 if !is_full => self.create(),
            40..50 if !is_full => self.put_own_id(),
            50..65 => self.change(false),
            65..85 => self.change(true),
            _ => {
                if let Some(place) = self.choose() {
                    self.read_everywhere(place);
                }
            }
        }
        if is_full {
            // Timers that were deleted long ago are not looked at any more.
            let place = self.owned.iter().position(|owned| owned.is_deleted).unwrap_or(0);
            self.owned.remove(place);
        }
    }

    fn choose(&mut self) -> Option<usize> {
        let count = self.owned.len() as u64;
        (count > 0).then(|| self.draw.range(0, count - 1) as usize)
    }

    fn node(&mut self) -> usize {
        let serving = self.nodes.serving();
        if self.is_bold || serving.is_empty() {
            let place = self.draw.range(0, PLACES as u64 - 2) as usize;
            if !self.nodes.is_stranger(place) || serving.is_empty() {
                return place;
            }
        }
        self.draw.pick(&serving)
    }

    fn wish(&mut self, factor: u8) -> Wish {
        let interval_ms = match self.draw.range(0, 99) {
            0..15 => self.draw.range(200, 1_000),
            15..55 => self.draw.range(1_000, 5_000),
            55..85 => self.draw.range(5_000, INTERVAL_MS_MAX),
            _ => LONG_MS,
        };
        let many = (INTERVAL_MS_MAX / interval_ms).clamp(1, 8);
        let pops = if self.draw.chance(60) { 1 } else { self.draw.range(1, many) };
        Wish::Timer { interval_ms, pops, factor }
    }

    fn create(&mut self) {
        let factor = self.factor.unwrap_or_else(|| self.draw.pick(&[2, 3]));
        let number = self.recorder.new_timer();
        let owned = Owned { number, path: String::new(), factor, is_deleted: false };
        let wish = self.wish(factor);
        self.owned.push(owned);
        let place = self.owned.len() - 1;
        self.write(place, wish);
        if self.owned[place].path.is_empty() {
            self.owned.remove(place);
        }
    }

    /// Creates a timer under an id that this client chose.
    fn put_own_id(&mut self) {
        let factor = self.factor.unwrap_or_else(|| self.draw.pick(&[2, 3]));
        let number = self.recorder.new_timer();
        let path = format!("/timers/{:016x}-{factor}", self.draw.next());
        let wish = self.wish(factor);
        self.owned.push(Owned { number, path, factor, is_deleted: false });
        let place = self.owned.len() - 1;
        self.write(place, wish);
    }

    /// Deletes a timer or replaces it, even if it was deleted or has ended.
    fn change(&mut self, deletes: bool) {
        let Some(place) = self.choose() else { return };
        let factor = self.owned[place].factor;
        let wish = if deletes { Wish::Delete } else { self.wish(factor) };
        self.write(place, wish);
    }

    /// Makes one write, then often reads the timer through every node.
    fn write(&mut self, place: usize, wish: Wish) {
        let number = self.owned[place].number;
        let index = self.recorder.with(|history| history.timers[number].writes.len());
        let body = self.body(number, index, wish);
        let path = self.owned[place].path.clone();
        let method = match wish {
            Wish::Delete => "DELETE",
            Wish::Timer { .. } if path.is_empty() => "POST",
            Wish::Timer { .. } => "PUT",
        };
        let target = if path.is_empty() { "/timers" } else { &path };
        let via = self.node();
        let sent = self.recorder.clock.now();
        let answered = self.client.request(via, method, target, &body);
        let ended = self.recorder.clock.now();
        let outcome = match answered {
            Ok(answer) if answer.status == 200 => {
                if let Some(location) = answer.header("Location") {
                    self.owned[place].path = location.to_owned();
                }
                Outcome::Acknowledged
            }
            Ok(answer) => {
                let reason = answer.header("Reason").unwrap_or_default().to_owned();
                Outcome::Refused(answer.status, reason)
            }
            Err(Failure::NotSent) => Outcome::NotSent,
            Err(Failure::Unknown(why)) => Outcome::Unknown(why),
        };
        self.owned[place].is_deleted = wish == Wish::Delete;
        let write = Write { wish, via, sent, ended, outcome };
        self.recorder.with(|history| history.timers[number].writes.push(write));
        if !self.owned[place].path.is_empty() && self.draw.chance(35) {
            self.read_everywhere(place);
        }
    }

    /// Returns the document of a write. Some timers that pop once have their first attempt refused.
    fn body(&self, number: TimerNumber, index: usize, wish: Wish) -> String {
        let Wish::Timer { interval_ms, pops, factor } = wish else { return String::new() };
        let fails_first = pops == 1 && number % 16 == 7;
        let uri = format!("http://{}{}", self.sink, sink::path(number, index, fails_first));
        let opaque = sink::opaque(number, index);
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        json!({
            "timing": {
                "interval": seconds(interval_ms), "repeat-for": seconds(interval_ms * pops),
            },
            "callback": { "http": { "uri": uri, "opaque": opaque } },
            "reliability": { "replication-factor": factor },
        })
        .to_string()
    }

    /// Sends a GET through every member.
    fn read_everywhere(&mut self, place: usize) {
        let serving = self.nodes.serving();
        for via in serving {
            self.read(place, via);
        }
    }

    fn read(&mut self, place: usize, via: usize) {
        let (number, path) = (self.owned[place].number, self.owned[place].path.clone());
        let sent = self.recorder.clock.now();
        let answered = self.client.request(via, "GET", &path, "");
        let ended = self.recorder.clock.now();
        let (status, write) = match answered {
            Ok(answer) => (Some(answer.status), write_of(number, &answer.body)),
            Err(_) => (None, None),
        };
        let read = Read { via, sent, ended, status, write };
        self.recorder.with(|history| history.timers[number].reads.push(read));
    }

    /// Deletes every timer of which this client is unsure whether it lives, until the delete is
    /// acknowledged. After that the timers that are left can be counted.
    pub fn make_sure(&mut self) {
        for place in 0..self.owned.len() {
            for _ in 0..20 {
                let number = self.owned[place].number;
                let is_sure = self.recorder.with(|history| {
                    let writes = &history.timers[number].writes;
                    let last = writes.iter().rev().find(|write| write.outcome != Outcome::NotSent);
                    last.is_none_or(|write| write.outcome == Outcome::Acknowledged)
                });
                if is_sure {
                    break;
                }
                self.write(place, Wish::Delete);
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Reads all timers of this client once more.
    pub fn look_at_all(&mut self) {
        for place in 0..self.owned.len() {
            self.read_everywhere(place);
        }
    }
}

/// Returns the number of the write whose opaque text a GET answered.
fn write_of(number: TimerNumber, body: &[u8]) -> Option<usize> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let opaque = document["callback"]["http"]["opaque"].as_str()?;
    opaque.strip_prefix(&format!("timer {number} write "))?.parse().ok()
}
