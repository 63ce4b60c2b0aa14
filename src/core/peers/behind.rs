//! The shard as the peers' side of a core sees it: it takes events, and its effects are collected.

// May panic: assertions 1.
// Why it does not: ordered 1.

use crate::base::time::Now;
use crate::shard::Shard;
use crate::shard::effects::{Event, Outbox};

/// The shard of a core, with the outbox for its effects.
pub(crate) struct Behind<'a> {
    /// Both clocks at the beginning of the turn, or later.
    pub now: Now,
    /// The shard that takes the events.
    pub shard: &'a mut Shard,
    /// Where the shard writes its effects.
    pub outbox: &'a mut Outbox,
}

impl Behind<'_> {
    /// Tells the shard an event. Panics when attempts are left in the outbox.
    pub fn tell(&mut self, event: Event<'_>) {
        assert!(self.outbox.attempts.is_empty(), "attempts are taken before the shard changes");
        self.shard.handle(self.now, event, self.outbox);
    }
}
