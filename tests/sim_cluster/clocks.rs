//! The clocks of one node: a monotonic clock, and a wall clock that is off and steps.

use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::node::journal::disk::WallFloor;
use kit::simulator::mono_clock::MonoClock;
use kit::simulator::random::Stream;

/// The wall clock at which runs begin.
pub const WALL_MS: i64 = 1_800_000_000_000;
/// A process that starts finds its wall clock at least this far ahead of its predecessor's.
/// Otherwise ids would be given out again, which nothing without a disk can prevent.
const RESTART_MS: i64 = 2;

/// The clocks of a node.
pub struct Clocks {
    pub mono: MonoClock,
    ahead_ms: i64,
    /// How far a wrong clock is off besides `ahead_ms`.
    wrong_ms: i64,
    /// Since when the clock is right.
    right_since_ns: u64,
    highest_ms: i64,
    /// How far ahead of the world's the node has shown its wall clock, and since when.
    shown: Vec<(u64, i64)>,
    /// What the wall clock shows at least, by the journal.
    pub floor: Option<WallFloor>,
}

/// What a node shows is noted when it differs by more than this from what it has shown.
const SHOWN_MS: u64 = 100;

/// A step of more than this makes a clock wrong, or right again.
const WRONG_MS: i64 = 20_000;

impl Clocks {
    pub fn new(draw: &mut Stream, drift_ppm_max: i64, skew_ms_max: i64) -> Self {
        let mut between = |most: i64| draw.range(0, 2 * most as u64) as i64 - most;
        let (ppm, ahead_ms) = (between(drift_ppm_max), between(skew_ms_max));
        Self {
            mono: MonoClock::draw(draw, ppm),
            ahead_ms,
            wrong_ms: 0,
            right_since_ns: 0,
            highest_ms: 0,
            shown: Vec::new(),
            floor: None,
        }
    }

    /// Returns both clocks at a time of the world.
    pub fn now(&mut self, world_ns: u64) -> Now {
        let wall_ms = WALL_MS + (world_ns / 1_000_000) as i64 + self.ahead_ms;
        self.highest_ms = self.highest_ms.max(wall_ms);
        let wall = WallMs((wall_ms + self.wrong_ms) as u64);
        let now = Now { mono: MonoNs(self.mono.at(world_ns)), wall };
        let now = self.floor.as_ref().map_or(now, |floor| floor.raise(now));
        let ahead_ms = now.wall.0 as i64 - WALL_MS - (world_ns / 1_000_000) as i64;
        let is_other = |last: &(u64, i64)| last.1.abs_diff(ahead_ms) > SHOWN_MS;
        if self.shown.last().is_none_or(is_other) {
            self.shown.push((world_ns, ahead_ms));
        }
        now
    }

    /// How far ahead of the world's the node has shown its wall clock at most since `world_ns`.
    pub fn most_ahead_ms(&self, world_ns: u64) -> i64 {
        let before = self.shown.iter().rposition(|(at_ns, _)| *at_ns <= world_ns).unwrap_or(0);
        let most_ms = self.shown[before..].iter().map(|(_, ahead_ms)| ahead_ms + SHOWN_MS as i64);
        most_ms.max().unwrap_or(0)
    }

    /// Steps the wall clock. All small steps together are at most 20 s, far below
    /// `cluster.clock_skew_max_ms`.
    pub fn step(&mut self, world_ns: u64, ms: i64) {
        if ms.abs() > WRONG_MS {
            self.wrong_ms += ms;
            self.right_since_ns = world_ns;
            return;
        }
        self.ahead_ms = (self.ahead_ms + ms).clamp(-20_000, 20_000);
    }

    /// Returns how far the wall clock is ahead of the world's.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms + self.wrong_ms
    }

    /// Sets a wrong clock right.
    pub fn repair(&mut self, world_ns: u64) {
        if std::mem::take(&mut self.wrong_ms) != 0 {
            self.right_since_ns = world_ns;
        }
    }

    /// Reports whether the clock has been right since `world_ns`, and the journal has no page of
    /// before that is ahead of it.
    pub fn is_right_since(&self, world_ns: u64) -> bool {
        let is_raised = self.floor.as_ref().is_some_and(|floor| {
            let now = Now { mono: MonoNs(self.mono.at(world_ns)), wall: WallMs(0) };
            let least_ms = floor.raise(now).wall.0 as i64;
            least_ms > WALL_MS + (world_ns / 1_000_000) as i64 + self.ahead_ms + WRONG_MS
        });
        self.wrong_ms == 0 && self.right_since_ns <= world_ns && !is_raised
    }

    /// Begins a boot of the machine: its monotonic clock starts elsewhere.
    pub fn reboot(&mut self, draw: &mut Stream) {
        self.mono.reboot(draw);
        self.floor = None;
    }

    /// Begins a process, which knows nothing of the last one.
    pub fn restarted(&mut self, world_ns: u64) {
        self.floor = None;
        let wall_ms = WALL_MS + (world_ns / 1_000_000) as i64 + self.ahead_ms;
        self.ahead_ms += (self.highest_ms + RESTART_MS - wall_ms).max(0);
    }
}
