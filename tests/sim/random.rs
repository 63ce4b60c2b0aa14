//! The only source of chance: small streams, one per subsystem, all made from the seed. One more
//! draw in one stream does not shift the others.

/// Which subsystem draws. No simulator has all of them.
#[allow(dead_code)]
#[derive(Clone, Copy)]
pub enum Purpose {
    Options = 1,
    Clients = 2,
    Faults = 3,
    Interleaving = 4,
    Callbacks = 5,
    Cleaning = 6,
    /// Options and faults that were added later: known seeds stay as they were without them.
    #[allow(dead_code, reason = "the simulator of one node has none")]
    Rarities = 7,
}

/// SplitMix64.
#[derive(Clone)]
pub struct Stream(u64);

impl Stream {
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let mut stream = Self(seed ^ (purpose as u64) << 56);
        stream.next();
        stream
    }

    /// A stream for one thing that has a number of its own, so that dropping other things changes
    /// nothing here.
    pub fn keyed(seed: u64, purpose: Purpose, key: u64) -> Self {
        let mut stream = Self::new(seed, purpose);
        stream.0 ^= key.wrapping_mul(0xd6e8_feb8_6659_fd93);
        stream.next();
        stream
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range");
        low + self.next() % (high - low + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.range(0, from.len() as u64 - 1) as usize]
    }
}
