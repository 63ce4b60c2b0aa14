//! Strictly increasing timestamps, as pure state machines:
//!
//! - what a value is: [`Timestamp`],
//! - which word makes values: [`oracle`],
//! - what time a value tells: [`clock`],
//! - how far values may go before more is stored: `window`,
//! - how long a master may answer: `lease`,
//! - what decides that a server may answer: a file ([`standalone`]) or `ZooKeeper`
//!   ([`coordinator`]).

pub mod clock;
pub mod coordinator;
pub(crate) mod lease;
pub mod oracle;
mod pace;
pub mod standalone;
pub(crate) mod window;

/// Width of the counter below a timestamp's milliseconds, in bits.
pub const COUNTER_BITS: u32 = 18;
/// Timestamps in one millisecond, and the most timestamps that one call may take.
pub const RANGE_MAX: u32 = 1 << COUNTER_BITS;

/// Milliseconds since the Unix epoch << 18, plus a counter. As a signed number a timestamp lasts
/// until the year 3084.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The last timestamp that fits a signed number.
    pub const LAST: Self = Self(i64::MAX as u64);

    /// The first timestamp of a millisecond; saturates at [`Timestamp::LAST`].
    #[inline]
    pub const fn of_unix_ms(unix_ms: u64) -> Self {
        if unix_ms > Self::LAST.unix_ms() {
            return Self::LAST;
        }
        Self(unix_ms << COUNTER_BITS)
    }

    /// The millisecond of the timestamp, since the Unix epoch.
    #[inline]
    pub const fn unix_ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The place of the timestamp in its millisecond, below [`RANGE_MAX`].
    #[inline]
    pub const fn counter(self) -> u32 {
        (self.0 & (RANGE_MAX as u64 - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_beyond_the_last_timestamp_give_the_last() {
        let last_ms = Timestamp::LAST.unix_ms();
        assert_eq!(Timestamp::of_unix_ms(last_ms), Timestamp(last_ms << COUNTER_BITS));
        assert_ne!(Timestamp::of_unix_ms(last_ms), Timestamp::LAST);
        assert_eq!(Timestamp::of_unix_ms(last_ms + 1), Timestamp::LAST);
        assert_eq!(Timestamp::of_unix_ms(u64::MAX), Timestamp::LAST);
        let some = Timestamp(5 << COUNTER_BITS | 7);
        assert_eq!((some.unix_ms(), some.counter()), (5, 7));
    }
}
