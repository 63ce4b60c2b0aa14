//! What was done and seen, with times. This file judges nothing.

use std::sync::Mutex;
use std::time::Instant;

/// Nanoseconds since the run began.
pub type Ns = u64;

pub const MS: Ns = 1_000_000;
pub const SECOND: Ns = 1_000 * MS;

/// The number of a timer of this checker.
pub type TimerNumber = usize;

/// The clock of a run.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(&self) -> Ns {
        self.0.elapsed().as_nanos() as Ns
    }
}

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Timer { interval_ms: u64, pops: u64, factor: u8 },
    Delete,
}

/// How a write ended for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer was 200.
    Acknowledged,
    /// The answer had another status, with this reason.
    Refused(u16, String),
    /// The request was sent and no answer came. The write may have been done.
    Unknown(String),
    /// There was no connection. The write was certainly not done.
    NotSent,
}

/// One POST, PUT or DELETE.
#[derive(Clone, Debug)]
pub struct Write {
    pub wish: Wish,
    pub via: usize,
    pub sent: Ns,
    pub ended: Ns,
    pub outcome: Outcome,
}

impl Write {
    pub fn acknowledged(&self) -> Option<Ns> {
        (self.outcome == Outcome::Acknowledged).then_some(self.ended)
    }
}

/// One GET.
#[derive(Clone, Debug)]
pub struct Read {
    pub via: usize,
    pub sent: Ns,
    pub ended: Ns,
    /// The status of the answer; `None` if there was no answer.
    pub status: Option<u16>,
    /// The write whose opaque text was answered.
    pub write: Option<usize>,
}

/// Everything about one timer. One client makes its writes, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Timer {
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
}

/// One callback.
#[derive(Clone, Debug)]
pub struct Pop {
    pub timer: TimerNumber,
    pub write: usize,
    pub sequence: u64,
    pub at: Ns,
    /// The status that the callback server answered.
    pub status: u16,
    /// Whether the body was the opaque text of the write in the path.
    pub is_whole: bool,
}

/// The kind of a fault or an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Kill,
    Freeze,
    Stop,
    Leave,
    Join,
    Resync,
}

/// A fault or an order, from its first effect until all was well again.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub node: usize,
    pub from: Ns,
    /// When the node ran again.
    pub until: Ns,
    /// When the cluster said that all copies were where they belong.
    pub settled: Ns,
}

/// The copies that all nodes counted at the end.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub held: u64,
    pub expected: u64,
}

/// A whole run.
#[derive(Default)]
pub struct History {
    pub timers: Vec<Timer>,
    pub pops: Vec<Pop>,
    pub faults: Vec<Fault>,
    /// When the machine did not run this process, and for how long.
    pub stalls: Vec<(Ns, Ns)>,
    /// The copies at the end; `None` if they were not counted.
    pub copies: Option<Counted>,
    /// Orders that did not end well.
    pub troubles: Vec<(Ns, String)>,
    pub ended: Ns,
}

/// A history that several threads write.
pub struct Recorder {
    pub clock: Clock,
    history: Mutex<History>,
}

impl Recorder {
    pub fn new(clock: Clock) -> Recorder {
        Recorder { clock, history: Mutex::new(History::default()) }
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut self.history.lock().expect("no thread panics with the history"))
    }

    pub fn new_timer(&self) -> TimerNumber {
        self.with(|history| {
            history.timers.push(Timer::default());
            history.timers.len() - 1
        })
    }

    pub fn take(&self) -> History {
        self.with(std::mem::take)
    }
}
