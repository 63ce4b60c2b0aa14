//! What was done and seen, with times. Nothing here judges.

use std::sync::Mutex;
use std::time::Instant;

/// Nanoseconds since the run began.
pub type Ns = u64;

pub const MS: Ns = 1_000_000;
pub const SECOND: Ns = 1_000 * MS;

/// A timer of this checker: its number.
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
    /// 200.
    Acknowledged,
    /// Another status, and its reason.
    Refused(u16, String),
    /// The request was sent and its answer did not come: it may have happened.
    Unknown(String),
    /// No connection: it certainly did not happen.
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
    /// `None`: no answer.
    pub status: Option<u16>,
    /// The write whose opaque text was answered.
    pub write: Option<usize>,
}

/// Everything about one timer. Its writes are made one after the other, by one client.
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

/// What was done to a node.
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

/// What a node counted at the end.
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
    /// Copies at the end; `None`: not counted.
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
