//! Random numbers. The same seed gives the same numbers on every machine.

use std::time::SystemTime;

/// A SplitMix64 generator (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator. The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Makes a generator whose numbers differ from run to run, and between processes.
    pub fn of_this_moment() -> Random {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        Random(u64::from(std::process::id()) << 32 ^ now.as_nanos() as u64)
    }

    /// Goes on from another state, which depends on `key`.
    pub fn turn_to(&mut self, key: u64) {
        self.0 ^= key;
    }

    /// Returns any number of 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an endless draw, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Returns true with a chance of one in `sides`.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    /// Returns one of the items, by value.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        *self.of(items)
    }

    /// Returns one of the items.
    pub fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
