//! Strictly increasing timestamps: pure state machines. What a value is ([`Timestamp`]), who makes
//! it ([`oracle`]), what time it tells ([`clock`]), how far it may go before more is stored
//! ([`window`]), how long a master may answer ([`lease`]), and who decides that with a file
//! ([`standalone`]) or with `ZooKeeper` ([`coordinator`]).

pub mod clock;
pub mod coordinator;
pub(crate) mod lease;
pub mod oracle;
mod pace;
pub mod standalone;
pub(crate) mod window;

/// Bits of a timestamp below its milliseconds.
pub const COUNTER_BITS: u32 = 18;
/// Timestamps in one millisecond, and the most that one call may take.
pub const RANGE_MAX: u32 = 1 << COUNTER_BITS;

/// Milliseconds since the Unix epoch << 18, plus a counter. Lasts until the year 3084 as a signed
/// number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The last one that a signed number holds.
    pub const LAST: Self = Self(i64::MAX as u64);

    /// The first timestamp of a millisecond; saturates at the last one that a signed number holds.
    #[inline]
    pub const fn of_unix_ms(unix_ms: u64) -> Self {
        if unix_ms > Self::LAST.unix_ms() {
            return Self::LAST;
        }
        Self(unix_ms << COUNTER_BITS)
    }

    /// The millisecond that it lies in.
    #[inline]
    pub const fn unix_ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// Its place in the millisecond.
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
