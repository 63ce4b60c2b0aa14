//! The places of a core for callbacks that run, and who waits for one. `sharing` gives them out.

use std::collections::VecDeque;

use crate::base::ids::HostId;
use crate::base::time::Tick;

/// Most hosts without a place that have not answered and begin in a millisecond. A callback to a
/// dead host costs some 20 us, so this is a sixth of the core's time.
pub(super) const STRANGERS_PER_TICK_MAX: u32 = 8;

/// The places of a core and who waits for one.
#[derive(Debug)]
pub(super) struct Places {
    /// Places of the core.
    pub all: u32,
    /// Places taken, and those of them that hosts have which have not answered.
    pub taken: u32,
    pub unproven: u32,
    /// Hosts without a place that have pops waiting for one: those that have not answered, those
    /// that have.
    pub short: [VecDeque<HostId>; 2],
    /// Which of the lists has its turn first.
    pub is_proven_next: bool,
    /// The host whose turn has come.
    pub turn: Option<HostId>,
    /// How many hosts that have not answered have begun in this tick.
    pub strangers: u32,
    pub tick: Tick,
}

impl Places {
    pub fn new(all: u32) -> Self {
        let short = [VecDeque::new(), VecDeque::new()];
        Self {
            all: all.max(1),
            taken: 0,
            unproven: 0,
            short,
            is_proven_next: true,
            turn: None,
            strangers: 0,
            tick: Tick(0),
        }
    }

    #[inline]
    pub fn take(&mut self, is_proven: bool, is_first: bool) {
        self.taken += 1;
        self.unproven += u32::from(!is_proven);
        self.strangers += u32::from(!is_proven && is_first);
    }

    #[inline]
    pub fn give_back(&mut self, is_proven: bool) {
        self.taken -= 1;
        self.unproven -= u32::from(!is_proven);
    }

    /// A host with so many places has answered, or has not.
    pub fn prove(&mut self, in_flight: u32, is_proven: bool) {
        match is_proven {
            true => self.unproven -= in_flight,
            false => self.unproven += in_flight,
        }
    }

    /// Whether a host without a place may have one, whoever waits.
    pub fn has_first(&self, is_proven: bool) -> bool {
        let unproven_max = self.all - self.all / 8;
        let is_let_in = self.unproven < unproven_max && self.strangers < STRANGERS_PER_TICK_MAX;
        self.taken < self.all && (is_proven || is_let_in)
    }
}
