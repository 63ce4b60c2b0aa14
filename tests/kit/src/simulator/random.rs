//! The only source of chance of a simulator: small streams, one per subsystem, all made from the
//! seed. One more draw in one stream does not shift the others.

use crate::random::Random;

/// The subsystem that draws. No simulator has all of them.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// The options of a run.
    Options = 1,
    /// What clients ask for.
    Clients = 2,
    /// Which faults happen, and when.
    Faults = 3,
    /// Whose step comes next.
    Interleaving = 4,
    /// What callback hosts do.
    Callbacks = 5,
    /// When records are cleaned away.
    Cleaning = 6,
    /// Rare options and faults. A seed without them draws the same as if they did not exist.
    Rarities = 7,
    /// Which timers follow the calendar.
    Calendars = 9,
    /// What disks do, and what of a write they keep.
    Disk = 8,
}

/// The random numbers of one subsystem.
#[derive(Clone, Debug)]
pub struct Stream(Random);

impl Stream {
    /// Makes the stream of a subsystem.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let mut stream = Self(Random::new(seed ^ (purpose as u64) << 56));
        stream.next();
        stream
    }

    /// Makes a stream for one thing that has a number of its own. Dropping other things from a
    /// story does not change this stream.
    pub fn keyed(seed: u64, purpose: Purpose, key: u64) -> Self {
        let mut stream = Self::new(seed, purpose);
        stream.0.turn_to(key.wrapping_mul(0xd6e8_feb8_6659_fd93));
        stream.next();
        stream
    }

    /// Returns any number of 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an endless draw, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        low + self.next() % (high - low + 1)
    }

    /// Returns true with a chance of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Returns one of the items.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.range(0, from.len() as u64 - 1) as usize]
    }
}
