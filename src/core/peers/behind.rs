//! The shard as the peers' side of a core sees it: told of events, its effects collected.

use crate::base::time::Now;
use crate::shard::Shard;
use crate::shard::effects::{Event, Outbox};

/// The shard behind the peers of a core, and what it asked for.
pub(crate) struct Behind<'a> {
    /// Both clocks.
    pub now: Now,
    /// The shard.
    pub shard: &'a mut Shard,
    /// What it asked for.
    pub outbox: &'a mut Outbox,
}

impl Behind<'_> {
    /// Tells the shard something.
    pub fn tell(&mut self, event: Event<'_>) {
        assert!(self.outbox.attempts.is_empty(), "attempts are taken before the shard changes");
        self.shard.handle(self.now, event, self.outbox);
    }
}
