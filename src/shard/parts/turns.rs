//! When this core was given time, and for how long it was away.

use crate::base::time::Tick;

/// For how long a client's write waits for peers that this core cannot talk to yet. It does so
/// after the start of the core, and after the core got no time for longer than it takes to be
/// suspected (its process was stopped, its machine froze). Then missing connections say that this
/// core was away, not that the peers are. Peers are dialled anew at most every 500 ms.
///
/// Pops of timers that an original node holds, too, wait as long: an original cannot be asked about
/// them.
pub const HOLD_MS: u64 = 1_000;

/// For so long after an absence what others sent meanwhile may still arrive: an original has a
/// queue of what it could not send.
const LATELY_MS: u64 = 10_000;

/// The turns of a core.
#[derive(Debug)]
pub struct Turns {
    /// The present turn.
    pub at: Tick,
    /// When the shard ticked last.
    pub ticked_at: Tick,
    /// When the shard was swept last.
    pub swept_at: Tick,
    /// Until when writes wait for all peers that are not declared dead, see [`HOLD_MS`].
    pub held_until: Tick,
    /// When the last absence began; 0: there was none.
    away_since: Tick,
    /// When the last absence ended.
    back_at: Tick,
}

impl Turns {
    /// A core that starts.
    pub fn new(tick: Tick) -> Self {
        Self {
            at: tick,
            ticked_at: tick,
            swept_at: tick,
            held_until: tick + HOLD_MS,
            away_since: Tick(0),
            back_at: Tick(0),
        }
    }

    /// How long this core has not ticked.
    pub fn away_ms(&self) -> u64 {
        self.at - self.ticked_at
    }

    /// Notes that this core was away since it ticked last. Returns whether the absence is a new
    /// one.
    pub fn note_absence(&mut self) -> bool {
        let is_new = self.away_since != self.ticked_at;
        self.away_since = self.ticked_at;
        self.back_at = self.at;
        is_new
    }

    /// Whether this core was away in the last [`LATELY_MS`].
    pub fn was_away_lately(&self) -> bool {
        self.away_since > Tick(0) && self.at - self.back_at < LATELY_MS
    }

    /// Whether this core was away since a moment.
    pub fn was_away_since(&self, moment: Tick) -> bool {
        self.away_since > Tick(0) && moment <= self.away_since
    }

    /// Whether this core was away lately, so that its links have dropped messages that were
    /// waiting.
    pub fn is_back_lately(&self) -> bool {
        self.away_since > Tick(0) && self.is_held()
    }

    /// Whether this core has started or come back so lately that writes wait for all peers that are
    /// not declared dead.
    pub fn is_held(&self) -> bool {
        self.at < self.held_until
    }

    /// Whether `every_ms` have passed since the last sweep. If so, the sweep counts as done.
    pub fn may_sweep(&mut self, every_ms: u64) -> bool {
        let may_sweep = self.at - self.swept_at >= every_ms;
        if may_sweep {
            self.swept_at = self.at;
        }
        may_sweep
    }
}
