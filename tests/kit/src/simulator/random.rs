//! The only source of chance of a simulator: small streams, one per subsystem, all made from the
//! seed. One more draw in one stream does not shift the others.

use crate::random::Random;

/// Which subsystem draws. No simulator has all of them.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// What a run is like.
    Options = 1,
    /// What clients ask for.
    Clients = 2,
    /// What goes wrong.
    Faults = 3,
    /// Whose step comes next.
    Interleaving = 4,
    /// What callback hosts do.
    Callbacks = 5,
    /// When records are cleaned away.
    Cleaning = 6,
    /// Rare options and faults: seeds without them draw the same as if there were none.
    Rarities = 7,
}

/// The numbers of one subsystem.
#[derive(Clone, Debug)]
pub struct Stream(Random);

impl Stream {
    /// The stream of a subsystem.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let mut stream = Self(Random::new(seed ^ (purpose as u64) << 56));
        stream.next();
        stream
    }

    /// A stream for one thing that has a number of its own, so that dropping other things changes
    /// nothing here.
    pub fn keyed(seed: u64, purpose: Purpose, key: u64) -> Self {
        let mut stream = Self::new(seed, purpose);
        stream.0.turn_to(key.wrapping_mul(0xd6e8_feb8_6659_fd93));
        stream.next();
        stream
    }

    /// Any number.
    #[allow(clippy::should_implement_trait, reason = "an endless draw, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        low + self.next() % (high - low + 1)
    }

    /// Whether something of this chance happens.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of some.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.range(0, from.len() as u64 - 1) as usize]
    }
}
