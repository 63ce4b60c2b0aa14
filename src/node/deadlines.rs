//! Deadlines of connections: coarse, cheap, and checked again when they come up.
//!
//! An owner has one [`Deadline`], and one filed entry that counts.
//!
//! - Every request moves the deadline later. That only writes the deadline: when the entry comes
//!   up, the present deadline is looked at and filed anew.
//! - A deadline that moves before its entry is filed again.

// May panic: assertions 1, indices 3.
// Why it does not: fixed 3, ordered 1.

use crate::base::time::MonoNs;

/// Width of a bucket: 2^26 ns, about 67 ms. A deadline may be noticed that late.
const BUCKET_SHIFT: u32 = 26;
/// Number of buckets: a horizon of about 34 s. A deadline beyond it comes up at the horizon and is
/// filed again.
const BUCKETS: usize = 512;

/// The deadline of one owner.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: MonoNs,
    /// When the entry that counts comes up.
    filed: MonoNs,
}

impl Deadline {
    /// Moves the deadline to `at`, if `at` is later. It is for owners that cannot reach
    /// [`Deadlines::set`].
    pub fn extend(&mut self, at: MonoNs) {
        self.at = self.at.max(at);
    }
}

/// Deadlines of one kind of owner. A number names an owner.
#[derive(Debug)]
pub struct Deadlines {
    buckets: Vec<Vec<u32>>,
    /// The bucket, counted from time 0, up to which everything has come up.
    passed: u64,
    filed: usize,
    /// The first bucket that is not empty; `u64::MAX` when all are empty.
    first: u64,
}

impl Deadlines {
    /// No deadlines; time begins at `now`.
    pub fn new(now: MonoNs) -> Self {
        Self {
            buckets: vec![Vec::new(); BUCKETS],
            passed: now.0 >> BUCKET_SHIFT,
            filed: 0,
            first: u64::MAX,
        }
    }

    /// Files the deadline of a new owner.
    pub fn begin(&mut self, owner: u32, at: MonoNs) -> Deadline {
        Deadline { at, filed: self.file(owner, at) }
    }

    /// Moves a deadline, earlier or later.
    pub fn set(&mut self, owner: u32, deadline: &mut Deadline, at: MonoNs) {
        deadline.at = at;
        if at < deadline.filed {
            deadline.filed = self.file(owner, at);
        }
    }

    /// Returns whether the deadline of an owner that has come up is over. A deadline that was moved
    /// is filed anew.
    pub fn is_over(&mut self, owner: u32, deadline: &mut Deadline, now: MonoNs) -> bool {
        if now < deadline.filed {
            return false;
        }
        let is_over = now >= deadline.at;
        if !is_over {
            deadline.filed = self.file(owner, deadline.at);
        }
        is_over
    }

    /// Files an entry and returns when it comes up: at `deadline`, or at the horizon if that is
    /// earlier. The owner may come up a little later than that.
    fn file(&mut self, owner: u32, deadline: MonoNs) -> MonoNs {
        let bucket = (deadline.0 >> BUCKET_SHIFT) + 1;
        let bucket = bucket.clamp(self.passed + 1, self.passed + BUCKETS as u64 - 1);
        self.buckets[bucket as usize % BUCKETS].push(owner);
        self.filed += 1;
        self.first = self.first.min(bucket);
        deadline.min(MonoNs(bucket << BUCKET_SHIFT))
    }

    /// Moves the owners that have come up into `due`. Cost when there is none: a comparison.
    pub fn advance(&mut self, now: MonoNs, due: &mut Vec<u32>) {
        let present = now.0 >> BUCKET_SHIFT;
        if present < self.first {
            self.passed = self.passed.max(present);
            return;
        }
        let last = present.min(self.passed + BUCKETS as u64);
        for bucket in self.passed + 1..=last {
            due.append(&mut self.buckets[bucket as usize % BUCKETS]);
        }
        self.filed -= due.len();
        self.passed = self.passed.max(present);
        let mut ahead = self.passed + 1..self.passed + BUCKETS as u64;
        let first = ahead.find(|bucket| !self.buckets[*bucket as usize % BUCKETS].is_empty());
        self.first = first.unwrap_or(u64::MAX);
        assert_eq!(self.first == u64::MAX, self.filed == 0, "what is filed has a bucket ahead");
    }

    /// When [`Deadlines::advance`] should next be called.
    pub fn next_wake(&self) -> Option<MonoNs> {
        (self.filed > 0).then_some(MonoNs(self.first << BUCKET_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn comes_up_after_the_deadline_and_not_much_later() {
        let mut deadlines = Deadlines::new(MonoNs(5 * MS));
        for (owner, ms) in [(1, 20), (2, 2_000), (3, 20_000), (4, 90_000)] {
            deadlines.file(owner, MonoNs(ms * MS));
        }
        let mut came_up = Vec::new();
        for ms in 0..40_000 {
            let mut due = Vec::new();
            deadlines.advance(MonoNs(ms * MS), &mut due);
            came_up.extend(due.into_iter().map(|owner| (owner, ms)));
        }
        let at = |owner| came_up.iter().find(|up| up.0 == owner).expect("came up").1;
        assert!((20..=20 + 135).contains(&at(1)), "{}", at(1));
        assert!((2_000..=2_135).contains(&at(2)), "{}", at(2));
        assert!((20_000..=20_135).contains(&at(3)), "{}", at(3));
        assert!((34_000..36_000).contains(&at(4)), "at the horizon, to be filed again");
        assert_eq!(deadlines.next_wake(), None);
    }

    #[test]
    fn wakes_for_the_earliest() {
        let mut deadlines = Deadlines::new(MonoNs(0));
        deadlines.file(7, MonoNs(1_000 * MS));
        let wake = deadlines.next_wake().expect("one is filed");
        let mut due = Vec::new();
        deadlines.advance(wake, &mut due);
        assert_eq!(due, [7]);
        assert!(wake >= MonoNs(1_000 * MS));
    }

    #[test]
    fn a_long_pause_brings_everything_up_once() {
        let mut deadlines = Deadlines::new(MonoNs(0));
        for owner in 0..100 {
            deadlines.file(owner, MonoNs(u64::from(owner) * 300 * MS));
        }
        let mut due = Vec::new();
        deadlines.advance(MonoNs(1 << 50), &mut due);
        assert_eq!(due.len(), 100);
        deadlines.file(1, MonoNs(0));
        assert!(deadlines.next_wake().is_some_and(|wake| wake > MonoNs(1 << 50)));
    }
}
