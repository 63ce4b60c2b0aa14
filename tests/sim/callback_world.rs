//! Callback hosts: what each does with the attempts that reach it, and when. A host's behaviour
//! changes over time.

use chronos::base::limits::CallbackLimits;
use chronos::shard::effects::CallbackOutcome;

use super::random::{Purpose, Stream};

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers 200 within so many milliseconds.
    Well(u64),
    /// Answers 4xx.
    NotFound,
    /// Answers 5xx.
    Broken,
    /// Accepts and never answers.
    Hangs,
    /// Answers after the deadline: it has seen the callback, the node has not seen the answer.
    AnswersLate,
    /// No connection.
    Refuses,
    /// Closes half-way through its answer.
    Closes,
    /// Closes kept-alive connections as they are used, at most twice in a row.
    ClosesIdle,
    /// Each attempt something else.
    Mixed,
}

impl Behaviour {
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

/// How and after how long an attempt ends, as the driver sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    pub after_ns: u64,
    pub outcome: CallbackOutcome,
}

/// All callback hosts.
pub struct CallbackWorld {
    seed: u64,
    timeout_ms: u64,
    behaviours: Vec<Behaviour>,
}

impl CallbackWorld {
    pub fn new(seed: u64, hosts: u32, limits: &CallbackLimits) -> Self {
        let behaviours = vec![Behaviour::Well(3); hosts as usize];
        Self { seed, timeout_ms: limits.timeout_ms, behaviours }
    }

    pub fn change(&mut self, host: u32, behaviour: Behaviour) {
        let host = host as usize % self.behaviours.len();
        self.behaviours[host] = behaviour;
    }

    pub fn heal(&mut self) {
        self.behaviours.fill(Behaviour::Well(3));
    }

    /// Decides over one attempt. `key` names timer, pop and attempt, so that each has its own fate
    /// in every story.
    pub fn attempt(&self, host: u32, key: u64, stale_in_a_row: u32) -> Ending {
        let draw = &mut Stream::keyed(self.seed, Purpose::Callbacks, key);
        let mut behaviour = self.behaviours[host as usize];
        if behaviour == Behaviour::Mixed {
            behaviour = draw.pick(&Behaviour::ALL[..Behaviour::ALL.len() - 1]);
        }
        let short_ns = draw.range(20_000, 3_000_000);
        let (outcome, after_ns) = match behaviour {
            Behaviour::Well(ms) => (CallbackOutcome::Delivered, draw.range(50_000, ms * 1_000_000)),
            Behaviour::NotFound | Behaviour::Broken => (CallbackOutcome::Rejected, short_ns),
            Behaviour::Hangs | Behaviour::AnswersLate => {
                (CallbackOutcome::TimedOut, self.timeout_ms * 1_000_000)
            }
            Behaviour::Refuses | Behaviour::Closes => (CallbackOutcome::Unreachable, short_ns),
            Behaviour::ClosesIdle if stale_in_a_row < 2 => (CallbackOutcome::Stale, short_ns),
            Behaviour::ClosesIdle | Behaviour::Mixed => (CallbackOutcome::Delivered, short_ns),
        };
        Ending { after_ns, outcome }
    }
}
