//! The oracle: one atomic word, from which all cores take timestamps without a lock.
//!
//! What the cores may do is published by one thread, the keeper's, as [`Terms`]: until when (the
//! lease), how far (the stored bound), and what time it is. The cores ask twice: before a value is
//! made ([`Oracle::take`]) and before it leaves ([`Oracle::holds`]). A process that was frozen
//! anywhere between finds its lease over, by the monotonic clock, whatever it believes of its
//! mastership.
//!
//! Why that is enough: a request that is served had arrived before the clock was read; the lease
//! was not over then; so nobody else had handed out anything yet. A reply that leaves later belongs
//! to a request that began before any value of a successor was known.

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

/// What the cores may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Not at or after this instant.
    pub until: MonoNs,
    /// Nothing at or above this: it is stored where a successor finds it.
    pub bound: Timestamp,
    /// What time it is.
    pub clock: ClockLine,
}

impl Terms {
    /// Nothing may be handed out.
    pub const NONE: Terms = Terms { until: MonoNs(0), bound: Timestamp(0), clock: ClockLine::ZERO };
}

/// Why there is no timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This process is not the master, or cannot prove that it still is.
    NotServing,
    /// The milliseconds up to now are used up: ask again when the next has begun.
    NextMillisecond,
    /// What is stored is used up: ask again when more is.
    Window,
    /// A range below 1 or above [`RANGE_MAX`].
    Range,
}

/// Names the mastership under which a value was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term(u64);

/// The words that all cores share.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The last timestamp handed out.
    last: CachePadded<AtomicU64>,
    published: CachePadded<Published>,
}

/// [`Terms`] in words, valid while `edition` is even and the same before and after.
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
    /// compare-and-swap; it is tried again only when another core was faster.
    #[inline]
    pub fn take(&self, now: MonoNs, count: u32) -> Result<(Timestamp, Term), Refusal> {
        if count == 0 || count > RANGE_MAX {
            return Err(Refusal::Range);
        }
        let count = u64::from(count);
        let mut last = self.last.load(Acquire);
        loop {
            // Read after `last`: terms that are newer than it hold for it, too.
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

    /// Whether values made under `term` may still leave at `now`, a clock reading taken after they
    /// were made. Once per turn is enough.
    #[inline]
    pub fn holds(&self, now: MonoNs, term: Term) -> bool {
        // Either this sees that the keeper has revoked the terms, or the keeper, who looks after
        // revoking, sees the values that were taken.
        fence(SeqCst);
        let (terms, present) = self.terms();
        if is_planted(Bug::NoCheckAfterwards) {
            return true;
        }
        present == term && now < terms.until
    }

    /// The last timestamp handed out.
    pub fn last(&self) -> Timestamp {
        Timestamp(self.last.load(Acquire))
    }

    /// The terms as they are, and the mastership that they belong to.
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

    /// A mastership begins: everything handed out from now on is above `floor`. Only the keeper's
    /// thread may call this, and only after [`Oracle::revoke`] or at the start.
    pub fn begin(&self, floor: Timestamp, terms: &Terms) {
        assert_eq!(self.terms().0.until, MonoNs(0), "a mastership begins after the one before it");
        self.last.fetch_max(floor.0, AcqRel);
        let term = self.published.term.load(Relaxed) + 1;
        self.publish_as(term, terms);
    }

    /// The same mastership goes on with new terms. Only the keeper's thread may call this.
    pub fn publish(&self, terms: &Terms) {
        self.publish_as(self.published.term.load(Relaxed), terms);
    }

    /// The mastership is over. Returns the last timestamp handed out: what is taken at the same
    /// time by another core is either counted in it or will not leave.
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
