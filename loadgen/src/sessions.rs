//! The workload of sessions: create, refresh some times, delete. `churn` and `ralf` use it with
//! different [`Manners`].
//!
//! Live sessions stand in a queue. Below the wished number a new session is created. At that
//! number, the session at the front takes its next step. So each live session takes a step every
//! (live sessions / rate) seconds, at any rate, in an open or a closed loop.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::frames::Head;
use crate::random::Random;
use crate::recorder::Operation;
use crate::request::{Template, TimerShape, append_delete};
use crate::workload::{Next, Workload};

/// Longest Location that is kept. A node's Location has 43 characters, `/timers/` and 35.
const LOCATION_BYTES_MAX: usize = 63;

/// A Location, stored inline. A million live sessions take 64 MB and no allocation.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    bytes: [u8; LOCATION_BYTES_MAX],
    length: u8,
}

impl Location {
    /// `None`: the text is empty, or too long.
    pub fn new(text: &[u8]) -> Option<Location> {
        let mut bytes = [0; LOCATION_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let length = text.len() as u8;
        (length > 0).then_some(Location { bytes, length })
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A session between its steps, or with a request in flight.
#[derive(Clone, Copy, Debug)]
struct Session {
    location: Option<Location>,
    number: u64,
    refreshes_left: u32,
}

/// How sessions behave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Manners {
    /// How many sessions are alive at a time, at least 1.
    pub live: usize,
    /// How often a session is refreshed, exactly or on average.
    pub refreshes: u32,
    /// Whether the number of refreshes is drawn for each session (geometric) instead of the same
    /// for all.
    pub random: bool,
    /// One session in so many is never deleted, on purpose; 0: every session is deleted.
    pub missed_one_in: u64,
    /// Whether to create sessions only, and to finish when `live` sessions live. This is the ramp
    /// before a measured run.
    pub ramp: bool,
}

/// The sessions of a run, and their requests.
pub struct Sessions {
    target: SocketAddr,
    post: Template,
    put: Template,
    manners: Manners,
    random: Random,
    /// Sessions between steps. The session that was untouched longest stands first.
    waiting: VecDeque<Session>,
    /// Sessions with a request in flight, by tag.
    flying: Vec<Session>,
    free_tags: Vec<u32>,
    next_number: u64,
    /// How many answers had no Location, or a Location that is too long.
    pub bad_locations: u64,
    /// How many sessions ended without a DELETE, on purpose.
    pub missed: u64,
}

impl Sessions {
    /// A workload without any session yet.
    pub fn new(shape: &TimerShape, manners: Manners, seed: u64) -> Sessions {
        Sessions {
            target: shape.target,
            post: Template::post(shape),
            put: Template::put(shape),
            manners,
            random: Random::new(seed),
            waiting: VecDeque::new(),
            flying: Vec::new(),
            free_tags: Vec::new(),
            next_number: 0,
            bad_locations: 0,
            missed: 0,
        }
    }

    /// Turns the workload of a ramp into the workload of the measured run.
    pub fn ramped(mut self) -> Sessions {
        self.manners.ramp = false;
        self
    }

    /// How many sessions are alive: between steps, or with a request in flight.
    pub fn live(&self) -> usize {
        self.waiting.len() + self.flying.len() - self.free_tags.len()
    }

    fn draw_refreshes(&mut self) -> u32 {
        if !self.manners.random {
            return self.manners.refreshes;
        }
        // A geometric number with the wished mean is the floor of an exponential number with mean 1
        // / ln(1 + 1 / mean).
        let mean = f64::from(self.manners.refreshes.max(1));
        self.random.exponential(1.0 / (1.0 + 1.0 / mean).ln()) as u32
    }

    fn fly(&mut self, session: Session) -> u64 {
        match self.free_tags.pop() {
            Some(tag) => {
                self.flying[tag as usize] = session;
                u64::from(tag)
            }
            None => {
                self.flying.push(session);
                self.flying.len() as u64 - 1
            }
        }
    }

    fn land(&mut self, tag: u64) -> Session {
        self.free_tags.push(tag as u32);
        self.flying[tag as usize]
    }

    fn create(&mut self, out: &mut Vec<u8>) -> Next {
        let number = self.next_number;
        // The path has ten digits; no run creates so many sessions.
        self.next_number += 1;
        let refreshes_left = self.draw_refreshes();
        self.post.append(number, None, out);
        let tag = self.fly(Session { location: None, number, refreshes_left });
        Next::Sent(Operation::Create, tag)
    }
}

impl Workload for Sessions {
    fn next(&mut self, _now_ns: u64, out: &mut Vec<u8>) -> Next {
        if self.live() < self.manners.live {
            return self.create(out);
        }
        if self.manners.ramp {
            return if self.flying.len() == self.free_tags.len() {
                Next::Finished
            } else {
                Next::Later
            };
        }
        let Some(mut session) = self.waiting.pop_front() else { return Next::Later };
        let Some(location) = session.location else { return Next::Later };
        if session.refreshes_left > 0 {
            session.refreshes_left -= 1;
            self.put.append_on(location.as_bytes(), session.number, out);
            return Next::Sent(Operation::Update, self.fly(session));
        }
        let one_in = self.manners.missed_one_in;
        if one_in > 0 && self.random.next().is_multiple_of(one_in) {
            self.missed += 1;
            return self.create(out);
        }
        append_delete(self.target, location.as_bytes(), out);
        Next::Sent(Operation::Delete, self.fly(session))
    }

    fn answered(&mut self, operation: Operation, tag: u64, head: &Head<'_>) {
        let mut session = self.land(tag);
        if operation == Operation::Delete {
            return;
        }
        // An answer may bring a new Location. Without one, the session keeps its Location.
        session.location = Location::new(head.location).or(session.location);
        if session.location.is_some() {
            self.waiting.push_back(session);
        } else {
            self.bad_locations += 1;
        }
    }

    fn failed(&mut self, _operation: Operation, tag: u64) {
        self.land(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::parse_head;

    const TIMER: &str = "/timers/00112233445566aa-1-0000000000000001";

    fn sessions(manners: Manners) -> Sessions {
        let shape = TimerShape {
            target: "127.0.0.1:7253".parse().unwrap(),
            callback: "127.0.0.1:9999".parse().unwrap(),
            interval_ms: Some(300_000),
            pops_each: 2,
            opaque_bytes: 4,
            headers: 0,
            replication_factor: 1,
            ralf: true,
            token: None,
        };
        Sessions::new(&shape, manners, 1)
    }

    fn step(sessions: &mut Sessions) -> (Operation, Vec<u8>) {
        let mut out = Vec::new();
        let Next::Sent(operation, tag) = sessions.next(0, &mut out) else {
            panic!("a request was expected")
        };
        let head = Head { location: TIMER.as_bytes(), ..Head::default() };
        sessions.answered(operation, tag, &head);
        (operation, out)
    }

    const CHURN: Manners =
        Manners { live: 2, refreshes: 1, random: false, missed_one_in: 0, ramp: false };

    #[test]
    fn churn_creates_updates_and_deletes_in_equal_parts() {
        let mut sessions = sessions(CHURN);
        let operations: Vec<Operation> = (0..302).map(|_| step(&mut sessions).0).collect();
        use Operation::{Create, Delete, Update};
        assert_eq!(operations[..6], [Create, Create, Update, Update, Delete, Create]);
        for operation in Operation::ALL {
            let count = operations.iter().filter(|&&each| each == operation).count();
            assert!((99..=103).contains(&count), "{operation:?} {count}");
        }
        assert_eq!(sessions.live(), 2);
        assert_eq!(sessions.flying.len(), 1, "tags are used again");
    }

    #[test]
    fn requests_go_to_the_location_last_received() {
        let mut sessions = sessions(Manners { live: 1, ..CHURN });
        step(&mut sessions);
        let (_, put) = step(&mut sessions);
        assert!(put.starts_with(format!("PUT {TIMER} HTTP/1.1\r\n").as_bytes()));
        let head = parse_head(&put).unwrap().unwrap();
        assert_eq!(head.head_bytes + head.body_bytes, put.len());
        let (_, delete) = step(&mut sessions);
        assert!(delete.starts_with(format!("DELETE {TIMER} HTTP/1.1\r\n").as_bytes()));
    }

    #[test]
    fn failed_and_nameless_sessions_are_forgotten() {
        let mut sessions = sessions(Manners { live: 1, ..CHURN });
        let mut out = Vec::new();
        assert_eq!(sessions.next(0, &mut out), Next::Sent(Operation::Create, 0));
        assert_eq!(sessions.next(0, &mut out), Next::Later);
        sessions.failed(Operation::Create, 0);
        assert_eq!(sessions.live(), 0);
        assert_eq!(sessions.next(0, &mut out), Next::Sent(Operation::Create, 0));
        sessions.answered(Operation::Create, 0, &Head::default());
        assert_eq!((sessions.live(), sessions.bad_locations), (0, 1));
        assert!(Location::new(&[b'a'; LOCATION_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn a_ramp_ends_when_all_live_and_draws_have_the_mean() {
        let mut sessions = sessions(Manners { ramp: true, random: true, refreshes: 4, ..CHURN });
        step(&mut sessions);
        step(&mut sessions);
        assert_eq!(sessions.next(0, &mut Vec::new()), Next::Finished);
        let mut sessions = sessions.ramped();
        assert_ne!(step(&mut sessions).0, Operation::Create);
        let sum: u32 = (0..50_000).map(|_| sessions.draw_refreshes()).sum();
        assert!((3.9..4.1).contains(&(f64::from(sum) / 50_000.0)), "{sum}");
    }
}
