//! What was done and seen, with times. This file judges nothing.

use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::network::Layout;

/// Nanoseconds since the run began.
pub type Ns = u64;

pub const MS: Ns = 1_000_000;
pub const SECOND: Ns = 1_000 * MS;

/// The number of a timer of this checker.
pub type TimerNumber = usize;

/// The clock of a run, and what the wall clock showed as the run began.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    wall_ns: i128,
}

impl Clock {
    pub fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Clock { began: Instant::now(), wall_ns: wall.as_nanos() as i128 }
    }

    pub fn now(&self) -> Ns {
        self.began.elapsed().as_nanos() as Ns
    }
}

/// What a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// `is_ruled`: its callbacks go to the server that operators pause.
    Timer {
        interval_ms: u64,
        pops: u64,
        factor: u8,
        is_ruled: bool,
    },
    /// A pop at every second that is a multiple of `every_s`, without end.
    Cron {
        every_s: u64,
        factor: u8,
    },
    /// One pop, of which the server takes no attempt: it becomes a dead letter.
    Letter {
        interval_ms: u64,
        factor: u8,
    },
    Delete,
}

impl Wish {
    /// Returns how many replicas it asks for.
    pub fn factor(self) -> Option<u8> {
        match self {
            Wish::Timer { factor, .. } | Wish::Cron { factor, .. } => Some(factor),
            Wish::Letter { factor, .. } => Some(factor),
            Wish::Delete => None,
        }
    }

    /// Reports whether its timer is there, unless somebody ends it, for longer than a run takes.
    pub fn outlasts_the_run(self) -> bool {
        match self {
            Wish::Timer { interval_ms, .. } => interval_ms == LONG_MS,
            Wish::Cron { .. } => true,
            Wish::Letter { .. } | Wish::Delete => false,
        }
    }
}

/// The interval of timers that do not pop within a run.
pub const LONG_MS: u64 = 3_600_000;

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

    /// Returns the earliest and the latest moment at which a pop is due. The number of a pop of the
    /// calendar is its moment, in seconds of the wall clock.
    pub fn due(&self, sequence: u64, clock: &Clock) -> Option<(Ns, Ns)> {
        match self.wish {
            Wish::Timer { interval_ms, .. } => {
                let after = interval_ms * sequence * MS;
                Some((self.sent + after, self.ended + after))
            }
            Wish::Letter { interval_ms, .. } => {
                Some((self.sent + interval_ms * MS, self.ended + interval_ms * MS))
            }
            Wish::Cron { .. } => {
                let at = i128::from(sequence) * i128::from(SECOND) - clock.wall_ns;
                Some((at.max(0) as Ns, at.max(0) as Ns))
            }
            Wish::Delete => None,
        }
    }

    /// Returns the pops of the calendar that are due after `from` and before `until`.
    pub fn moments(&self, from: Ns, until: Ns, clock: &Clock) -> Vec<u64> {
        let Wish::Cron { every_s, .. } = self.wish else { return Vec::new() };
        let second = |at: Ns| (i128::from(at) + clock.wall_ns) / i128::from(SECOND);
        let (first, last) = (second(from) as u64 + 1, second(until) as u64);
        (first..=last).filter(|moment| moment.is_multiple_of(every_s)).collect()
    }
}

/// What a client does with a timer that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Pause,
    Resume,
    RunNow,
}

/// A pause, a resume or a run of the timer that a write made.
#[derive(Clone, Debug)]
pub struct Action {
    pub act: Act,
    /// The write that was in force.
    pub write: usize,
    pub via: usize,
    pub sent: Ns,
    pub ended: Ns,
    pub outcome: Outcome,
}

impl Action {
    /// Reports whether it may have been done. 404, 409 and 412 say that it was not.
    pub fn may_be_done(&self) -> bool {
        !matches!(self.outcome, Outcome::NotSent | Outcome::Refused(404 | 409 | 412, _))
    }
}

/// What a client does with a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    Look,
    Delete,
    Replay,
}

/// One request about the dead letter of a write.
#[derive(Clone, Debug)]
pub struct LetterUse {
    pub handling: Handling,
    pub write: usize,
    pub via: usize,
    pub sent: Ns,
    pub ended: Ns,
    pub outcome: Outcome,
}

/// A time in which an operator's rule let no callback of a site begin at the ruled server.
#[derive(Clone, Copy, Debug)]
pub struct RulePause {
    pub site: usize,
    /// When the order to pause was sent, and when it was answered.
    pub from: Ns,
    pub acknowledged: Ns,
    /// When the order to go on was sent, and when it was answered.
    pub released: Ns,
    pub until: Ns,
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
    pub actions: Vec<Action>,
    pub letters: Vec<LetterUse>,
}

impl Timer {
    /// Returns the last write that may have been done. Call it for a timer that has one.
    pub fn last_write(&self) -> usize {
        let is_possible = |write: &Write| write.outcome != Outcome::NotSent;
        self.writes.iter().rposition(is_possible).expect("a write that was sent")
    }

    /// Returns the actions on what a write made that may have been done.
    pub fn actions_on(&self, write: usize) -> impl Iterator<Item = &Action> {
        self.actions.iter().filter(move |action| action.write == write && action.may_be_done())
    }

    /// Returns when the first write after this one was sent that may have been done.
    pub fn replaced_from(&self, write: usize) -> Option<Ns> {
        let mut later = self.writes.iter().skip(write + 1);
        later.find(|later| later.outcome != Outcome::NotSent).map(|later| later.sent)
    }
}

/// One callback.
#[derive(Clone, Debug)]
pub struct Pop {
    pub timer: TimerNumber,
    pub write: usize,
    /// The site whose node made it.
    pub site: usize,
    /// `X-Sequence-Number`; of a pop of the calendar its moment, in seconds of the wall clock.
    pub sequence: u64,
    /// How often the pop was tried again as a dead letter.
    pub replay: u64,
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
    /// All members at one moment.
    KillAll,
    /// The disk of a node is full.
    Full,
    /// The wall clock of a node is wrong.
    Clock,
    /// All nodes of a site, at one moment. They come back with their journals.
    KillSite,
    /// The same. They come back with nothing.
    EmptySite,
    /// All nodes of a site get no time.
    FreezeSite,
    /// Packets between two sites are lost, in one direction or both.
    Cut,
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
pub struct History {
    pub clock: Clock,
    pub layout: Layout,
    pub timers: Vec<Timer>,
    pub pops: Vec<Pop>,
    pub faults: Vec<Fault>,
    pub rule_pauses: Vec<RulePause>,
    /// When the machine did not run this process, and for how long.
    pub stalls: Vec<(Ns, Ns)>,
    /// The copies at the end; `None` if they were not counted.
    pub copies: Option<Counted>,
    /// Orders that did not end well.
    pub troubles: Vec<(Ns, String)>,
    pub ended: Ns,
}

impl History {
    pub fn new(clock: Clock, layout: Layout) -> History {
        History {
            clock,
            layout,
            timers: Vec::new(),
            pops: Vec::new(),
            faults: Vec::new(),
            rule_pauses: Vec::new(),
            stalls: Vec::new(),
            copies: None,
            troubles: Vec::new(),
            ended: 0,
        }
    }
}

/// A history that several threads write.
pub struct Recorder {
    pub clock: Clock,
    history: Mutex<History>,
}

impl Recorder {
    pub fn new(clock: Clock, layout: Layout) -> Recorder {
        Recorder { clock, history: Mutex::new(History::new(clock, layout)) }
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
        self.with(|history| {
            let none = History::new(self.clock, history.layout);
            std::mem::replace(history, none)
        })
    }
}
