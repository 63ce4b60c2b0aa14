//! Clients that create, update and delete timers while nodes die and come back. Each remembers what
//! it asked for and what was acknowledged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kit::random::Random;

use super::client::Client;
use super::harness::body;
use super::sink::Sink;

/// Pause of a client whose node does not answer.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause between two requests of a client. The load is for answers under way when a node is killed,
/// and two slow cores bear all of it.
const BREATH: Duration = Duration::from_millis(2);
/// A client changes and deletes timers among so many that it made last.
const RECENT: usize = 60;

/// What a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// The timer is to pop so often.
    Defined {
        /// Milliseconds from the request to the first pop, and from pop to pop.
        interval_ms: u64,
        /// How many pops.
        pops: u64,
    },
    /// The timer is to be gone.
    Deleted,
}

/// One request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// What for.
    pub wish: Wish,
    /// When it was sent.
    pub sent: Instant,
    /// When it was answered with 200; `None`: nobody knows what became of it.
    pub acknowledged: Option<Instant>,
}

/// One timer with all that was asked for, in its order. Definition `n` calls back at `/key/n`.
#[derive(Clone, Debug)]
pub struct Timer {
    /// Its number among all.
    pub key: String,
    location: String,
    /// The requests.
    pub asked: Vec<Asked>,
}

/// Clients at work.
pub struct Load {
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<Timer>>>,
}

impl Load {
    /// Starts `count` clients, each at one of the nodes. `factor`: of all timers.
    pub fn start(nodes: &[SocketAddr], sink: &Sink, count: usize, factor: usize) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let client = |number: usize| {
            let mut worker = Worker {
                client: Client::new(nodes[number % nodes.len()]),
                uri: sink.uri(""),
                number,
                factor,
                draw: Random::of_this_moment(),
                timers: Vec::new(),
                acknowledged: acknowledged.clone(),
            };
            worker.draw.turn_to(number as u64);
            let is_over = is_over.clone();
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    worker.step();
                }
                worker.timers
            })
        };
        let clients = (0..count).map(client).collect();
        Load { is_over, acknowledged, clients }
    }

    /// How many requests were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Ends the clients and returns the timers that they made.
    pub fn end(self) -> Vec<Timer> {
        self.is_over.store(true, Ordering::SeqCst);
        let joined = self.clients.into_iter().map(|client| client.join().expect("no panic"));
        joined.flatten().collect()
    }
}

struct Worker {
    client: Client,
    uri: String,
    number: usize,
    factor: usize,
    draw: Random,
    timers: Vec<Timer>,
    acknowledged: Arc<AtomicU64>,
}

impl Worker {
    /// Makes one request.
    fn step(&mut self) {
        match self.draw.below(100) {
            0..55 => self.create(),
            55..80 => self.change(false),
            _ => self.change(true),
        }
        thread::sleep(BREATH);
    }

    fn definition(&mut self) -> Wish {
        if self.draw.one_in(3) {
            let interval_ms = 300 + self.draw.below(700) as u64;
            Wish::Defined { interval_ms, pops: 4 + self.draw.below(4) as u64 }
        } else {
            Wish::Defined { interval_ms: 1_000 + self.draw.below(5_000) as u64, pops: 1 }
        }
    }

    fn create(&mut self) {
        let key = format!("{}-{}", self.number, self.timers.len());
        self.timers.push(Timer { key, location: String::new(), asked: Vec::new() });
        let wish = self.definition();
        self.ask(self.timers.len() - 1, "POST", wish);
    }

    /// Changes or deletes one of the timers that were made last.
    fn change(&mut self, deletes: bool) {
        let recent = self.timers.len().min(RECENT);
        let Some(at) = self.timers.len().checked_sub(1 + self.draw.below(recent)) else { return };
        if self.timers[at].location.is_empty() {
            return;
        }
        let wish = if deletes { Wish::Deleted } else { self.definition() };
        self.ask(at, if deletes { "DELETE" } else { "PUT" }, wish);
    }

    fn ask(&mut self, at: usize, method: &str, wish: Wish) {
        let timer = &mut self.timers[at];
        let text = match wish {
            Wish::Defined { interval_ms, pops } => {
                let uri = format!("{}/{}/{}", self.uri, timer.key, timer.asked.len());
                body(&uri, interval_ms, pops, &timer.key, self.factor)
            }
            Wish::Deleted => String::new(),
        };
        let path = if method == "POST" { "/timers" } else { &timer.location };
        let sent = Instant::now();
        let answer = self.client.request(method, path, &text);
        let location = match &answer {
            Ok(answer) if answer.status == 200 => answer.header("Location").map(str::to_owned),
            _ => None,
        };
        let acknowledged = location.is_some().then(Instant::now);
        timer.asked.push(Asked { wish, sent, acknowledged });
        match location {
            Some(location) => {
                timer.location = location;
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            None => thread::sleep(PAUSE),
        }
    }
}
