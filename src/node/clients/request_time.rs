//! How long a turn takes requests and lines of clients. A count of requests alone is no bound: what
//! a request costs depends on what it says.
//!
//! The clock is read after some work, not after each request: plain requests are short, and
//! [`WORK_PER_LOOK`] of them take less than a tenth of a turn's budget. A request that may be long
//! says so ([`RequestTime::spend_much`]), and the clock is read at once.

use crate::base::time::MonoNs;
use crate::ring::monotonic;

/// Work after which the clock is read. A plain request is 1, and so is each [`BYTES_PER_WORK`].
const WORK_PER_LOOK: u32 = 32;
/// Bytes of a request that count for a plain request.
const BYTES_PER_WORK: usize = 1_024;

/// The time of a turn for requests, in two parts: one for what has just arrived, and one for
/// connections that had more than their share. So neither keeps the other out.
#[derive(Debug)]
pub struct RequestTime {
    /// How long a part lasts.
    part_ns: u64,
    until: MonoNs,
    looked: MonoNs,
    work: u32,
    is_over: bool,
    /// Time that the turn has spent on requests, as far as the clock was read.
    spent_ns: u64,
}

impl RequestTime {
    /// Parts that may last as long as the budget of a turn each: a turn that is full of requests is
    /// over its budget, and counted. No part ends before the first turn has begun.
    pub fn new(turn_budget_us: u64) -> Self {
        Self {
            part_ns: turn_budget_us * 1_000,
            until: MonoNs(u64::MAX),
            looked: MonoNs(0),
            work: 0,
            is_over: false,
            spent_ns: 0,
        }
    }

    /// Begins a turn with its first part, and ends the count of what the turn before has spent.
    pub fn begin_turn(&mut self, at: MonoNs) {
        self.spent_ns = 0;
        self.begin(at);
    }

    /// Begins the second part.
    pub fn begin_rest(&mut self) {
        self.begin(monotonic());
    }

    fn begin(&mut self, at: MonoNs) {
        let until = MonoNs(at.0.saturating_add(self.part_ns));
        *self = Self { looked: at, until, work: 0, is_over: false, ..*self };
    }

    /// Takes note of a request of so many bytes.
    #[inline]
    pub fn spend(&mut self, bytes: usize) {
        self.work += 1 + (bytes / BYTES_PER_WORK) as u32;
        if self.work >= WORK_PER_LOOK {
            self.look();
        }
    }

    /// Takes note of a request that may take long, if it is one.
    #[inline]
    pub fn spend_much(&mut self, is_one: bool) {
        self.work += if is_one { WORK_PER_LOOK } else { 0 };
    }

    #[cold]
    fn look(&mut self) {
        let now = monotonic();
        self.spent_ns += now.since_ns(self.looked);
        (self.looked, self.work) = (now, 0);
        self.is_over = now >= self.until;
    }

    /// Whether this part of the turn takes no further request. At least one was taken then.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How long this turn has taken requests.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_over_when_its_time_is_and_only_after_a_request() {
        let mut time = RequestTime::new(1_000);
        for _ in 0..1_000 {
            time.spend(10_000);
        }
        assert!(!time.is_over(), "no turn has begun");
        time.begin_turn(MonoNs(0));
        assert!(!time.is_over(), "what is asked first is taken");
        for _ in 1..WORK_PER_LOOK {
            time.spend(100);
            assert!(!time.is_over(), "plain requests are short");
        }
        time.spend(100);
        assert!(time.is_over());
        assert!(time.spent_ns() > 0);
        time.begin_rest();
        assert!(!time.is_over(), "the rest has a time of its own");
        time.begin_turn(MonoNs(0));
        time.spend_much(true);
        time.spend(0);
        assert!(time.is_over(), "the clock is read after a request that may be long");
        time.begin_turn(MonoNs(0));
        time.spend(BYTES_PER_WORK * WORK_PER_LOOK as usize);
        assert!(time.is_over(), "and after a long one");
        time.begin_turn(monotonic().plus_ms(3_600_000));
        time.spend_much(true);
        time.spend(0);
        assert!(!time.is_over());
    }
}
