//! The oracle: one atomic word, from which all cores take timestamps without a lock.
//!
//! The keeper's thread publishes [`Terms`]: until when cores may take timestamps (the lease), how
//! far (the stored bound), and what time it is. A core checks the terms twice: before it makes a
//! value ([`Oracle::take`]) and before the value leaves ([`Oracle::holds`]). A process that was
//! frozen in between finds its lease over by the monotonic clock, whatever it believes of its
//! mastership.
//!
//! Two checks are enough. A served request had arrived before the clock was read, and the lease was
//! not over then, so no other server had handed out anything yet. A reply that leaves later belongs
//! to a request that began before any value of a successor was known.

// May panic: assertions 1.
// Why it does not: ordered 1.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use crossbeam_utils::CachePadded;

use super::clock::ClockLine;
use super::{RANGE_MAX, Timestamp};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::MonoNs;

/// The limits within which cores may hand out timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The end of the lease: no timestamp at or after this instant.
    pub until: MonoNs,
    /// The stored bound, which a successor will find: no timestamp at or above it.
    pub bound: Timestamp,
    /// The time that timestamps tell.
    pub clock: ClockLine,
}

impl Terms {
    /// Terms under which nothing may be handed out.
    pub const NONE: Terms = Terms { until: MonoNs(0), bound: Timestamp(0), clock: ClockLine::ZERO };
}

/// Why there is no timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This process is not the master, or cannot prove that it still is.
    NotServing,
    /// The milliseconds up to now are used up. Ask again when the next millisecond has begun.
    NextMillisecond,
    /// The timestamps below the stored bound are used up. Ask again when a higher bound is stored.
    Window,
    /// The count is below 1 or above [`RANGE_MAX`].
    Range,
}

/// Number of the mastership under which a value was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term(u64);

/// The words that all cores and the keeper share.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The last timestamp handed out.
    last: CachePadded<AtomicU64>,
    published: CachePadded<Published>,
}

/// [`Terms`] in words. A reading is valid if `edition` is even, and equal before and after.
#[derive(Debug, Default)]
struct Published {
    edition: AtomicU64,
    term: AtomicU64,
    until: AtomicU64,
    bound: AtomicU64,
    wall_offset_ns: AtomicU64,
    ahead_ns: AtomicU64,
    ahead_at: AtomicU64,
}

impl Oracle {
    /// Takes `count` consecutive timestamps and returns the first. Cost: some ten loads and one
    /// compare-and-swap, which is repeated only if another core was faster.
    #[inline]
    pub fn take(&self, now: MonoNs, count: u32) -> Result<(Timestamp, Term), Refusal> {
        if count == 0 || count > RANGE_MAX {
            return Err(Refusal::Range);
        }
        let count = u64::from(count);
        let mut last = self.last.load(Acquire);
        loop {
            // The terms are read after `last`, so terms newer than `last` hold for it, too.
            let (terms, term) = self.terms();
            if now >= terms.until {
                return Err(Refusal::NotServing);
            }
            let physical_ms = terms.clock.unix_ms(now);
            let first = (last + 1).max(Timestamp::of_unix_ms(physical_ms).0);
            let end = first + count - 1;
            if end >= Timestamp::of_unix_ms(physical_ms + 1).0 {
                return Err(Refusal::NextMillisecond);
            }
            if end >= terms.bound.0 {
                return Err(Refusal::Window);
            }
            match self.last.compare_exchange_weak(last, end, AcqRel, Acquire) {
                Ok(_) => return Ok((Timestamp(first), term)),
                Err(newer) => last = newer,
            }
        }
    }

    /// Whether values of `term` may still leave. The caller reads `now` after the values were made.
    /// One call per turn is enough.
    #[inline]
    pub fn holds(&self, now: MonoNs, term: Term) -> bool {
        // Either this core sees that the keeper has revoked the terms, or the keeper, which reads
        // `last` after revoking, sees the values that this core took.
        fence(SeqCst);
        let (terms, present) = self.terms();
        if is_planted(Bug::NoCheckAfterwards) {
            return true;
        }
        present == term && now < terms.until
    }

    /// The last timestamp handed out; 0 before the first mastership.
    pub fn last(&self) -> Timestamp {
        Timestamp(self.last.load(Acquire))
    }

    /// The present terms, and the mastership that they belong to. Spins while the keeper publishes.
    #[inline]
    pub fn terms(&self) -> (Terms, Term) {
        let published = &*self.published;
        loop {
            let edition = published.edition.load(Acquire);
            if edition % 2 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let clock = ClockLine {
                wall_offset_ns: published.wall_offset_ns.load(Relaxed),
                ahead_ns: published.ahead_ns.load(Relaxed),
                ahead_at: MonoNs(published.ahead_at.load(Relaxed)),
            };
            let until = MonoNs(published.until.load(Relaxed));
            let bound = Timestamp(published.bound.load(Relaxed));
            let term = Term(published.term.load(Relaxed));
            fence(Acquire);
            if published.edition.load(Relaxed) == edition {
                return (Terms { until, bound, clock }, term);
            }
        }
    }

    /// Begins a mastership: all later timestamps lie above `floor`. Only the keeper's thread may
    /// call this, at the start or after [`Oracle::revoke`]. Panics if a mastership has not been
    /// revoked.
    pub fn begin(&self, floor: Timestamp, terms: &Terms) {
        assert_eq!(self.terms().0.until, MonoNs(0), "a mastership begins after the one before it");
        self.last.fetch_max(floor.0, AcqRel);
        let term = self.published.term.load(Relaxed) + 1;
        self.publish_as(term, terms);
    }

    /// Gives the present mastership new terms. Only the keeper's thread may call this.
    pub fn publish(&self, terms: &Terms) {
        self.publish_as(self.published.term.load(Relaxed), terms);
    }

    /// Ends the mastership and returns the last timestamp handed out. A value that another core
    /// takes at the same time is either counted in the result or will not leave.
    pub fn revoke(&self) -> Timestamp {
        let terms = Terms { until: MonoNs(0), ..self.terms().0 };
        self.publish(&terms);
        fence(SeqCst);
        self.last()
    }

    fn publish_as(&self, term: u64, terms: &Terms) {
        let published = &*self.published;
        let edition = published.edition.load(Relaxed);
        published.edition.store(edition + 1, Relaxed);
        fence(Release);
        published.term.store(term, Relaxed);
        published.until.store(terms.until.0, Relaxed);
        published.bound.store(terms.bound.0, Relaxed);
        published.wall_offset_ns.store(terms.clock.wall_offset_ns, Relaxed);
        published.ahead_ns.store(terms.clock.ahead_ns, Relaxed);
        published.ahead_at.store(terms.clock.ahead_at.0, Relaxed);
        published.edition.store(edition + 2, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const CLOCK: ClockLine =
        ClockLine { wall_offset_ns: 1_000_000 * MS, ahead_ns: 0, ahead_at: MonoNs(0) };

    fn terms(until_ms: u64, bound_ms: u64) -> Terms {
        Terms {
            until: MonoNs(until_ms * MS),
            bound: Timestamp::of_unix_ms(1_000_000 + bound_ms),
            clock: CLOCK,
        }
    }

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * MS)
    }

    #[test]
    fn nothing_is_handed_out_before_the_first_mastership() {
        assert_eq!(Oracle::default().take(at(1), 1), Err(Refusal::NotServing));
    }

    #[test]
    fn ranges_of_no_length_and_of_more_than_a_millisecond_are_refused() {
        let oracle = Oracle::default();
        oracle.begin(Timestamp(0), &terms(1_000, 1_000));
        assert_eq!(oracle.take(at(1), 0), Err(Refusal::Range));
        assert_eq!(oracle.take(at(1), RANGE_MAX + 1), Err(Refusal::Range));
        assert_eq!(oracle.last(), Timestamp(0));
        assert!(oracle.take(at(1), RANGE_MAX).is_ok());
    }

    #[test]
    fn overflow_waits_for_the_next_millisecond() {
        let oracle = Oracle::default();
        oracle.begin(Timestamp(0), &terms(1_000, 1_000));
        let first = oracle.take(at(5), RANGE_MAX - 1).expect("it fits").0;
        assert_eq!((first.unix_ms(), first.counter()), (1_000_005, 0));
        assert_eq!(oracle.take(at(5), 2), Err(Refusal::NextMillisecond));
        let last = oracle.take(at(5), 1).expect("it is the last one").0;
        assert_eq!((last.unix_ms(), last.counter()), (1_000_005, RANGE_MAX - 1));
        assert_eq!(oracle.take(at(5), 1), Err(Refusal::NextMillisecond));
        let next = oracle.take(at(6), 1).expect("it has begun").0;
        assert_eq!((next.unix_ms(), next.counter()), (1_000_006, 0));
    }

    #[test]
    fn the_bound_itself_is_not_handed_out() {
        let oracle = Oracle::default();
        oracle.begin(Timestamp(0), &terms(1_000, 6));
        assert!(oracle.take(at(5), RANGE_MAX).is_ok());
        assert_eq!(oracle.take(at(6), 1), Err(Refusal::Window));
        oracle.publish(&terms(1_000, 7));
        assert!(oracle.take(at(6), 1).is_ok());
    }

    #[test]
    fn the_lease_is_over_at_its_last_instant() {
        let oracle = Oracle::default();
        oracle.begin(Timestamp(0), &terms(10, 1_000));
        let (_, term) = oracle.take(MonoNs(10 * MS - 1), 1).expect("it is not over");
        assert_eq!(oracle.take(at(10), 1), Err(Refusal::NotServing));
        assert!(oracle.holds(MonoNs(10 * MS - 1), term) && !oracle.holds(at(10), term));
    }

    #[test]
    fn a_new_mastership_begins_above_its_floor_and_ends_what_was_before() {
        let oracle = Oracle::default();
        oracle.begin(Timestamp(0), &terms(1_000, 1_000));
        let (_, old) = oracle.take(at(5), 1).expect("it serves");
        let last = oracle.revoke();
        assert!(!oracle.holds(at(5), old));
        assert_eq!(oracle.take(at(5), 1), Err(Refusal::NotServing));
        let floor = Timestamp(last.0 + 77);
        oracle.begin(floor, &terms(1_000, 1_000));
        let (value, new) = oracle.take(at(5), 1).expect("it serves again");
        assert_eq!(value, Timestamp(floor.0 + 1));
        assert!(oracle.holds(at(5), new) && !oracle.holds(at(5), old));
        oracle.publish(&terms(2_000, 1_000));
        assert!(oracle.holds(at(5), new), "new terms are the same mastership");
    }

    #[test]
    fn four_threads_take_disjoint_ranges_that_only_rise() {
        let oracle = Oracle::default();
        oracle.begin(Timestamp(0), &terms(1_000_000, 1_000_000));
        let mut taken: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let take = |thread: u32| {
                let mut ranges = Vec::new();
                for turn in 0..20_000 {
                    let count = 1 + (turn * 7 + thread) % 5;
                    // The threads see different times, but no thread's time goes back.
                    let now = at(1 + u64::from(turn / 500 + thread % 2));
                    if let Ok((first, _)) = oracle.take(now, count) {
                        let range = (first.0, first.0 + u64::from(count));
                        assert!(ranges.last().is_none_or(|&(_, end)| first.0 >= end));
                        ranges.push(range);
                    }
                }
                ranges
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || take(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(taken.len() > 20_000);
        taken.sort_unstable();
        for two in taken.windows(2) {
            assert!(two[0].1 <= two[1].0, "{two:?} overlap");
        }
    }

    /// No reading mixes two terms that were published one after the other.
    #[test]
    fn terms_are_never_mixed() {
        let oracle = Oracle::default();
        let of = |number: u64| Terms {
            until: MonoNs(number),
            bound: Timestamp(number),
            clock: ClockLine { wall_offset_ns: number, ahead_ns: number, ahead_at: MonoNs(number) },
        };
        oracle.begin(Timestamp(0), &of(1));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let read = || {
                let (mut last, mut changes) = (0, 0);
                while !is_over.load(Acquire) {
                    let (terms, _) = oracle.terms();
                    let number = terms.until.0;
                    assert_eq!(terms, of(number));
                    assert!(number >= last, "{number} after {last}");
                    changes += u64::from(number != last);
                    last = number;
                }
                changes
            };
            let readers = [scope.spawn(read), scope.spawn(read)];
            let mut number = 1;
            let begin = std::time::Instant::now();
            // The limits are wide enough for a machine that runs one thread at a time.
            while number < 2_000_000 && begin.elapsed().as_secs() < 20 {
                number += 1;
                oracle.publish(&of(number));
            }
            is_over.store(true, Release);
            let changes: u64 =
                readers.into_iter().map(|reader| reader.join().expect("whole")).sum();
            assert!(changes > 0, "nobody read anything new");
        });
    }

    /// The keeper revokes, notes the last timestamp, and begins a mastership right above it. No
    /// value above the note may be sent under the earlier terms.
    #[test]
    fn what_revoking_does_not_count_is_not_sent() {
        let oracle = Oracle::default();
        let is_over = AtomicBool::new(false);
        let served = terms(1_000_000, 1_000_000);
        std::thread::scope(|scope| {
            let take = || {
                let mut sent = Vec::new();
                while !is_over.load(Acquire) {
                    let Ok((value, term)) = oracle.take(at(3), 1) else { continue };
                    if oracle.holds(at(3), term) {
                        sent.push((term.0, value));
                    }
                }
                sent
            };
            let takers = [scope.spawn(take), scope.spawn(take), scope.spawn(take)];
            let mut noted = Vec::new();
            for round in 1..=3_000u64 {
                oracle.begin(Timestamp(round * 64), &served);
                for _ in 0..round % 7 * 20 {
                    std::hint::spin_loop();
                }
                noted.push(oracle.revoke());
            }
            is_over.store(true, Release);
            for taker in takers {
                for (term, value) in taker.join().expect("no panic") {
                    let last = noted[term as usize - 1];
                    assert!(value <= last, "{value:?} of term {term} was not counted in {last:?}");
                }
            }
        });
    }

    proptest! {
        /// The model is the simplest oracle that is right.
        #[test]
        fn taking_is_as_the_model_says(steps in prop::collection::vec(
            (0u64..3 * MS, prop_oneof![1u32..10, 1..=RANGE_MAX, Just(RANGE_MAX)], 0u64..40), 1..200,
        )) {
            let oracle = Oracle::default();
            oracle.begin(Timestamp(0), &terms(60, 20));
            let (mut now, mut next, mut bound_ms) = (0, 0u64, 20);
            for (pass_ns, count, raise_ms) in steps {
                now += pass_ns;
                if raise_ms > 30 {
                    bound_ms = bound_ms.max(now / MS + raise_ms - 30);
                    oracle.publish(&terms(60, bound_ms));
                }
                let ms = 1_000_000 + now / MS;
                let first = next.max(ms << 18);
                let end = first + u64::from(count);
                let wanted = if now >= 60 * MS {
                    Err(Refusal::NotServing)
                } else if end > (ms + 1) << 18 {
                    Err(Refusal::NextMillisecond)
                } else if end > (1_000_000 + bound_ms) << 18 {
                    Err(Refusal::Window)
                } else {
                    next = end;
                    Ok(Timestamp(first))
                };
                let taken = oracle.take(MonoNs(now), count).map(|(value, _)| value);
                prop_assert_eq!(taken, wanted);
            }
        }
    }
}
