//! Wall clocks that lie and recover, and the time by which calendars go meanwhile (T14).

use chronos::base::time::{Now, WallMs};
use kit::simulator::random::{Purpose, Stream};

use super::clients::Fault;
use super::model::{Checked, broken};
use super::options::{LIES, Options};

/// A lie is shorter than a node alone needs to believe it, and its cores look at their clocks
/// between two.
const LIE_MS_MAX: u64 = 25_000;
const BETWEEN_MS: u64 = 8_000;
/// A change of the time by which calendars go that is none of a lie.
const MOVED_MS: i64 = 300;

/// Lies of the wall clock in a run.
pub fn lies(options: &Options, end_ns: u64) -> Vec<(u64, Fault)> {
    let draw = &mut Stream::keyed(options.seed, Purpose::Calendars, LIES - 1);
    let mut made = Vec::new();
    let mut at_ms = draw.range(0, 10_000);
    while options.has_lies && at_ms * 1_000_000 < end_ns && made.len() < 8 {
        let day_ms = 24 * 3_600_000;
        let step_ms = draw.pick(&[3_600_000, -3_600_000, 400 * day_ms, 20_000, -2_000]);
        let lasts_ms = draw.range(1, LIE_MS_MAX);
        made.push((at_ms * 1_000_000, Fault::WallClock(step_ms)));
        made.push(((at_ms + lasts_ms) * 1_000_000, Fault::WallClock(-step_ms)));
        at_ms += lasts_ms + BETWEEN_MS + draw.range(0, 10_000);
    }
    made
}

/// The time by which the calendars of each core go.
#[derive(Debug)]
pub struct Clocks(Vec<Clock>);

#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// How far it is ahead of the monotonic clock.
    ahead_ms: Option<i64>,
    has_moved: bool,
    /// From which time to which it was last set forward, and not back since.
    jumped: Option<(u64, u64)>,
}

impl Clocks {
    pub fn new(shards: u16) -> Self {
        Self(vec![Clock::default(); usize::from(shards)])
    }

    /// Notes the time by which a core's calendars go. Checks that no lie has moved it: `right` is
    /// the time that it must be.
    pub fn see(&mut self, core: u16, now: Now, shown: WallMs, right: Option<WallMs>) -> Checked {
        let mono_ms = now.mono.tick_floor().0;
        let ahead_ms = shown.0 as i64 - mono_ms as i64;
        let clock = &mut self.0[usize::from(core)];
        let former_ms = clock.ahead_ms.replace(ahead_ms).unwrap_or(ahead_ms);
        let moved_ms = ahead_ms - former_ms;
        if moved_ms.abs() >= MOVED_MS {
            let from_ms = mono_ms.saturating_add_signed(former_ms);
            clock.has_moved = true;
            clock.jumped = (moved_ms > 0).then_some((from_ms, shown.0));
        }
        // A core looks at its clocks when it takes a turn, and the world goes on meanwhile.
        match right.filter(|_| clock.has_moved) {
            Some(right) => broken("T14", format!("calendars go by {shown:?}, not {right:?}")),
            None => Ok(()),
        }
    }

    /// Whether the time was set, other than by a lie.
    pub fn has_moved(&self, core: usize) -> bool {
        self.0[core].has_moved
    }

    /// Whether the time was last set forward to after a moment.
    pub fn is_before_jump(&self, core: u16, moment_ms: u64) -> bool {
        self.0[usize::from(core)].jumped.is_some_and(|(_, to_ms)| moment_ms < to_ms)
    }

    /// Whether the time jumped over a moment, and over the next one as well. `pop_ms`: the moment,
    /// and when the pop after it comes.
    pub fn jumped_over(&self, core: u16, (moment_ms, next_ms): (u64, u64)) -> bool {
        let jumped = self.0[usize::from(core)].jumped;
        jumped.is_some_and(|(from_ms, to_ms)| moment_ms > from_ms && next_ms < to_ms)
    }
}
