//! Callback hosts: what each does with the attempts that reach it, and when. The behaviour of a
//! host changes over time.

use super::random::{Purpose, Stream};

/// How a host behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers 200 within this many milliseconds.
    Well(u64),
    /// Answers 4xx.
    NotFound,
    /// Answers 5xx.
    Broken,
    /// Accepts and never answers.
    Hangs,
    /// Answers after the deadline: the host has seen the callback, the node has not seen the
    /// answer.
    AnswersLate,
    /// Refuses connections.
    Refuses,
    /// Closes half-way through the answer.
    Closes,
    /// Closes kept-alive connections as they are used, at most twice in a row.
    ClosesIdle,
    /// Behaves differently for each attempt.
    Mixed,
}

impl Behaviour {
    /// All behaviours.
    pub const ALL: [Behaviour; 10] = [
        Behaviour::Well(1),
        Behaviour::Well(60),
        Behaviour::NotFound,
        Behaviour::Broken,
        Behaviour::Hangs,
        Behaviour::AnswersLate,
        Behaviour::Refuses,
        Behaviour::Closes,
        Behaviour::ClosesIdle,
        Behaviour::Mixed,
    ];
}

/// How an attempt ends, as the node under test sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with a status from 200 to 299.
    Delivered,
    /// Answered with another status.
    Rejected,
    /// No answer in time.
    TimedOut,
    /// There was no connection, or it broke before the answer was whole.
    Unreachable,
    /// A kept-alive connection that the host closed as it was used.
    Stale,
}

/// How and after how long an attempt ends, as the driver sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// Nanoseconds from the beginning of the attempt.
    pub after_ns: u64,
    /// How the attempt ends.
    pub outcome: Outcome,
}

/// All callback hosts of a run.
#[derive(Clone, Debug)]
pub struct CallbackWorld {
    seed: u64,
    timeout_ms: u64,
    behaviours: Vec<Behaviour>,
}

impl CallbackWorld {
    /// Makes this many hosts, which answer well. A node waits `timeout_ms` for an answer.
    pub fn new(seed: u64, hosts: u32, timeout_ms: u64) -> Self {
        let behaviours = vec![Behaviour::Well(3); hosts as usize];
        Self { seed, timeout_ms, behaviours }
    }

    /// Changes the behaviour of a host from here on.
    pub fn change(&mut self, host: u32, behaviour: Behaviour) {
        let host = host as usize % self.behaviours.len();
        self.behaviours[host] = behaviour;
    }

    /// Makes all hosts answer well from here on.
    pub fn heal(&mut self) {
        self.behaviours.fill(Behaviour::Well(3));
    }

    /// Decides how one attempt ends. `key` names timer, pop and attempt, so an attempt ends the
    /// same way in every story.
    pub fn attempt(&self, host: u32, key: u64, stale_in_a_row: u32) -> Ending {
        let draw = &mut Stream::keyed(self.seed, Purpose::Callbacks, key);
        let mut behaviour = self.behaviours[host as usize];
        if behaviour == Behaviour::Mixed {
            behaviour = draw.pick(&Behaviour::ALL[..Behaviour::ALL.len() - 1]);
        }
        let short_ns = draw.range(20_000, 3_000_000);
        let (outcome, after_ns) = match behaviour {
            Behaviour::Well(ms) => (Outcome::Delivered, draw.range(50_000, ms * 1_000_000)),
            Behaviour::NotFound | Behaviour::Broken => (Outcome::Rejected, short_ns),
            Behaviour::Hangs | Behaviour::AnswersLate => {
                (Outcome::TimedOut, self.timeout_ms * 1_000_000)
            }
            Behaviour::Refuses | Behaviour::Closes => (Outcome::Unreachable, short_ns),
            Behaviour::ClosesIdle if stale_in_a_row < 2 => (Outcome::Stale, short_ns),
            Behaviour::ClosesIdle | Behaviour::Mixed => (Outcome::Delivered, short_ns),
        };
        Ending { after_ns, outcome }
    }
}
