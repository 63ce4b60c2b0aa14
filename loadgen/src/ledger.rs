//! What was asked for and what came. The client writes every timer's due time into the ledger, and
//! the sink judges every pop by it.
//!
//! Due times are counted from the moment *before* the request is handed to the kernel. So a pop
//! that counts as early is early, and lateness includes the way of the request to the node and of
//! the callback back.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use crate::histogram::{BUCKET_NS, BUCKETS_MAX, new_histogram};
use crate::over_time::OverTime;

/// The bit in a due time that says that the node has acknowledged the timer. From then on its pops
/// are owed.
const ACKNOWLEDGED: u64 = 1 << 63;
/// How far pops of one timer can come out of order and still be told from doubled pops.
const SEQUENCE_WINDOW: u32 = 64;

/// The due times that the client's thread and the sink's thread share: one word per timer. The
/// client writes the word before the request leaves.
#[derive(Debug)]
pub struct Ledger {
    /// Due time of each timer's first pop, in monotonic nanoseconds; 0: the timer was not asked
    /// for. The top bit says that the timer was acknowledged.
    due: Vec<AtomicU64>,
    /// Nanoseconds between pops of one timer.
    period_ns: u64,
    /// Pops that each acknowledged timer owes.
    pops_each: u32,
    /// Lateness counts for pops due from this instant on. Earlier pops, of the warm-up, are checked
    /// but not measured.
    measured_from_ns: AtomicU64,
    /// Pops due at or after this instant are counted apart ("during").
    split_ns: AtomicU64,
    acknowledged: AtomicU64,
    distinct: AtomicU64,
    first_arrival_ns: AtomicU64,
    last_arrival_ns: AtomicU64,
}

impl Ledger {
    /// A ledger with room for `timers` timers that pop `pops_each` times, `period_ms` apart.
    pub fn new(timers: usize, period_ms: u64, pops_each: u32) -> Ledger {
        Ledger {
            due: (0..timers).map(|_| AtomicU64::new(0)).collect(),
            period_ns: period_ms * 1_000_000,
            pops_each,
            measured_from_ns: AtomicU64::new(0),
            split_ns: AtomicU64::new(u64::MAX),
            acknowledged: AtomicU64::new(0),
            distinct: AtomicU64::new(0),
            first_arrival_ns: AtomicU64::new(u64::MAX),
            last_arrival_ns: AtomicU64::new(0),
        }
    }

    /// How many timers the ledger has room for.
    pub fn timers_max(&self) -> u64 {
        self.due.len() as u64
    }

    /// Notes that timer `number` is about to be asked for, and that its first pop is due at
    /// `due_ns`. Panics if `number` is not below [`Ledger::timers_max`].
    pub fn ask(&self, number: u64, due_ns: u64) {
        // Release, so that a sink that sees the pop also sees the due time.
        self.due[number as usize].store(due_ns, Ordering::Release);
    }

    /// Notes that the node has acknowledged timer `number`.
    pub fn acknowledge(&self, number: u64) {
        self.due[number as usize].fetch_or(ACKNOWLEDGED, Ordering::Release);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that timer `number` was deleted or replaced: its pops are owed no more.
    pub fn revoke(&self, number: u64) {
        let word = self.due[number as usize].fetch_and(!ACKNOWLEDGED, Ordering::AcqRel);
        self.acknowledged.fetch_sub(u64::from(word & ACKNOWLEDGED != 0), Ordering::Relaxed);
    }

    /// Measures lateness only of pops due at or after `ns`.
    pub fn measure_from(&self, ns: u64) {
        self.measured_from_ns.store(ns, Ordering::Release);
    }

    /// Counts pops due at or after `ns` apart.
    pub fn split_at(&self, ns: u64) {
        self.split_ns.store(ns, Ordering::Release);
    }

    /// How many pops all acknowledged timers owe together.
    pub fn owed(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire) * u64::from(self.pops_each)
    }

    /// How many distinct pops have arrived, as of the sink's last turn.
    pub fn distinct(&self) -> u64 {
        self.distinct.load(Ordering::Acquire)
    }

    /// Monotonic times of the first and the last distinct pop; `None`: no pop has come.
    pub fn arrivals_ns(&self) -> Option<(u64, u64)> {
        let first = self.first_arrival_ns.load(Ordering::Acquire);
        (first != u64::MAX).then(|| (first, self.last_arrival_ns.load(Ordering::Acquire)))
    }

    /// Due time of pop `sequence` of timer `number`; `None`: the timer was not asked for.
    fn due_ns(&self, number: u64, sequence: u32) -> Option<u64> {
        let word = self.due.get(number as usize)?.load(Ordering::Acquire);
        let first = word & !ACKNOWLEDGED;
        let later = u64::from(sequence.checked_sub(1)?) * self.period_ns;
        (first != 0).then_some(first + later)
    }
}

/// Which pops of one timer have come.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The highest sequence number that has come.
    highest: u32,
    /// How many distinct pops have come.
    count: u32,
    /// Bit k: sequence number `highest - k` has come.
    seen: u64,
}

/// What a callback says, and what is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Callback {
    /// The number of its timer; `None`: it does not say.
    pub number: Option<u64>,
    /// Its sequence number; `None`: it does not say.
    pub sequence: Option<u32>,
    /// Whether a pop that comes again is a retry, as the callback before was not taken.
    pub is_owed_again: bool,
}

/// How a pop relates to the pops before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Fresh,
    Misordered,
    Doubled,
}

impl Mark {
    fn note(&mut self, sequence: u32) -> Kind {
        if sequence > self.highest {
            let distance = sequence - self.highest;
            self.seen = self.seen.checked_shl(distance).unwrap_or(0) | 1;
            self.highest = sequence;
            self.count += 1;
            return Kind::Fresh;
        }
        let behind = self.highest - sequence;
        let bit = 1u64.checked_shl(behind).unwrap_or(0);
        // A pop so far behind is not known, and gets the stricter word.
        if behind >= SEQUENCE_WINDOW || self.seen & bit != 0 {
            return Kind::Doubled;
        }
        self.seen |= bit;
        self.count += 1;
        Kind::Misordered
    }
}

/// The counts of the sink, which judges each pop as it arrives. Memory: 16 bytes per timer.
#[derive(Debug)]
pub struct Tally {
    marks: Vec<Mark>,
    /// Lateness of pops due before the split, in nanoseconds.
    pub before: Histogram<u64>,
    /// Lateness of pops due after the split, in nanoseconds.
    pub after: Histogram<u64>,
    /// Pops that arrived before they were due.
    pub early: u64,
    /// By how many nanoseconds the earliest pop was early.
    pub early_ns_max: u64,
    /// Pops that came again after they had come, although the sink had taken them.
    pub doubled: u64,
    /// Pops that came again because the sink had not taken them.
    pub retried: u64,
    /// Pops that came after a later pop of their timer.
    pub misordered: u64,
    /// Callbacks that belong to no timer of this run.
    pub stray: u64,
    /// How many distinct pops have come.
    pub distinct: u64,
    /// Distinct pops per bucket of time since the first pop.
    pub timeline: Vec<u32>,
    /// Lateness of the measured pops by the time since the first pop.
    pub over_time: OverTime,
}

impl Tally {
    /// An empty tally for `ledger`.
    pub fn new(ledger: &Ledger) -> Tally {
        Tally {
            marks: vec![Mark::default(); ledger.due.len()],
            before: new_histogram(),
            after: new_histogram(),
            early: 0,
            early_ns_max: 0,
            doubled: 0,
            retried: 0,
            misordered: 0,
            stray: 0,
            distinct: 0,
            timeline: Vec::new(),
            over_time: OverTime::default(),
        }
    }

    /// Judges a pop that arrived at `now`.
    pub fn pop(&mut self, ledger: &Ledger, callback: Callback, now: u64) {
        let known = callback.number.zip(callback.sequence);
        let known = known.and_then(|(n, s)| ledger.due_ns(n, s).map(|due_ns| (n, s, due_ns)));
        let Some((number, sequence, due_ns)) = known else {
            self.stray += 1;
            return;
        };
        match self.marks[number as usize].note(sequence) {
            Kind::Doubled => {
                let count =
                    if callback.is_owed_again { &mut self.retried } else { &mut self.doubled };
                *count += 1;
                return;
            }
            Kind::Misordered => self.misordered += 1,
            Kind::Fresh => {}
        }
        self.distinct += 1;
        let first = ledger.first_arrival_ns.fetch_min(now, Ordering::AcqRel).min(now);
        if now < due_ns {
            self.early += 1;
            self.early_ns_max = self.early_ns_max.max(due_ns - now);
        } else if due_ns >= ledger.measured_from_ns.load(Ordering::Relaxed) {
            let during = due_ns >= ledger.split_ns.load(Ordering::Relaxed);
            let histogram = if during { &mut self.after } else { &mut self.before };
            histogram.saturating_record(now - due_ns);
            self.over_time.note(now - first, now - due_ns);
        }
        let bucket = ((now - first) / BUCKET_NS) as usize;
        if bucket < BUCKETS_MAX {
            self.timeline.resize(self.timeline.len().max(bucket + 1), 0);
            self.timeline[bucket] += 1;
        }
    }

    /// Whether a pop of timer `number` has come.
    pub fn has_popped(&self, number: u64) -> bool {
        self.marks[number as usize].count > 0
    }

    /// Tells the other threads how many distinct pops have come. The sink calls this once per turn.
    pub fn publish(&self, ledger: &Ledger, now: u64) {
        if ledger.distinct.swap(self.distinct, Ordering::AcqRel) != self.distinct {
            ledger.last_arrival_ns.store(now, Ordering::Release);
        }
    }

    /// How many owed pops have not come. Cost: one step per timer of the ledger.
    pub fn lost(&self, ledger: &Ledger) -> u64 {
        let owed = |word: &AtomicU64| {
            let acknowledged = word.load(Ordering::Acquire) & ACKNOWLEDGED != 0;
            if acknowledged { ledger.pops_each } else { 0 }
        };
        let pairs = ledger.due.iter().zip(&self.marks);
        pairs.map(|(word, mark)| u64::from(owed(word).saturating_sub(mark.count))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn callback(number: Option<u64>, sequence: Option<u32>) -> Callback {
        Callback { number, sequence, is_owed_again: false }
    }

    #[test]
    fn early_late_doubled_and_lost_are_told_apart() {
        let ledger = Ledger::new(4, 10, 1);
        let mut tally = Tally::new(&ledger);
        for number in 0..3 {
            ledger.ask(number, 100 * MS);
            ledger.acknowledge(number);
        }
        tally.pop(&ledger, callback(Some(0), Some(1)), 100 * MS - 1);
        tally.pop(&ledger, callback(Some(1), Some(1)), 103 * MS);
        tally.pop(&ledger, callback(Some(1), Some(1)), 104 * MS);
        tally.pop(&ledger, callback(Some(3), Some(1)), 104 * MS);
        tally.pop(&ledger, callback(Some(9), Some(1)), 104 * MS);
        tally.pop(&ledger, callback(Some(1), Some(0)), 104 * MS);
        tally.pop(&ledger, callback(Some(1), None), 104 * MS);
        assert_eq!((tally.early, tally.early_ns_max), (1, 1));
        assert_eq!((tally.doubled, tally.stray, tally.distinct), (1, 4, 2));
        assert_eq!(tally.lost(&ledger), 1);
        assert_eq!(tally.before.len(), 1);
        assert!(tally.before.equivalent(tally.before.max(), 3 * MS));
        assert_eq!(tally.timeline, [2]);
    }

    #[test]
    fn what_the_sink_did_not_take_comes_again_as_a_retry() {
        let ledger = Ledger::new(1, 10, 1);
        let mut tally = Tally::new(&ledger);
        ledger.ask(0, 100 * MS);
        ledger.acknowledge(0);
        let again = Callback { is_owed_again: true, ..callback(Some(0), Some(1)) };
        for _ in 0..3 {
            tally.pop(&ledger, again, 101 * MS);
        }
        tally.pop(&ledger, callback(Some(0), Some(1)), 104 * MS);
        assert_eq!((tally.distinct, tally.retried, tally.doubled), (1, 2, 1));
        assert_eq!(tally.lost(&ledger), 0);
    }

    #[test]
    fn repeating_timers_are_due_from_their_start() {
        let ledger = Ledger::new(1, 10, 3);
        let mut tally = Tally::new(&ledger);
        ledger.ask(0, 100 * MS);
        ledger.acknowledge(0);
        tally.pop(&ledger, callback(Some(0), Some(1)), 105 * MS);
        tally.pop(&ledger, callback(Some(0), Some(3)), 121 * MS);
        tally.pop(&ledger, callback(Some(0), Some(2)), 122 * MS);
        tally.pop(&ledger, callback(Some(0), Some(2)), 123 * MS);
        assert_eq!((tally.misordered, tally.doubled, tally.lost(&ledger)), (1, 1, 0));
        assert!(tally.before.equivalent(tally.before.max(), 12 * MS));
    }

    #[test]
    fn a_timer_that_was_never_acknowledged_owes_nothing() {
        let ledger = Ledger::new(2, 10, 1);
        let tally = Tally::new(&ledger);
        ledger.ask(0, MS);
        assert_eq!((ledger.owed(), tally.lost(&ledger)), (0, 0));
    }

    #[test]
    fn a_timer_that_was_deleted_owes_nothing_and_its_pop_is_seen() {
        let ledger = Ledger::new(2, 1, 1);
        let mut tally = Tally::new(&ledger);
        for number in 0..2 {
            ledger.ask(number, MS);
            ledger.acknowledge(number);
        }
        ledger.revoke(0);
        ledger.revoke(0);
        assert_eq!((ledger.owed(), tally.lost(&ledger)), (1, 1));
        tally.pop(&ledger, callback(Some(0), Some(1)), 2 * MS);
        assert!(tally.has_popped(0) && !tally.has_popped(1));
        assert_eq!(tally.lost(&ledger), 1);
    }

    #[test]
    fn split_and_warm_up_choose_the_histogram() {
        let ledger = Ledger::new(3, 10, 1);
        let mut tally = Tally::new(&ledger);
        (0..3).for_each(|number| ledger.ask(number, (number + 1) * 10 * MS));
        ledger.measure_from(20 * MS);
        ledger.split_at(30 * MS);
        (0..3).for_each(|number| tally.pop(&ledger, callback(Some(number), Some(1)), 40 * MS));
        assert_eq!((tally.before.len(), tally.after.len(), tally.distinct), (1, 1, 3));
    }

    #[test]
    fn marks_agree_with_a_set_of_all_sequences() {
        let mut random = crate::random::Random::new(5);
        let mut mark = Mark::default();
        let mut set = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let highest: u32 = set.last().copied().unwrap_or(0);
            let sequence = (highest + 4).saturating_sub((random.next() % 60) as u32).max(1);
            let kind = mark.note(sequence);
            assert_eq!(kind == Kind::Doubled, !set.insert(sequence), "{sequence}");
            assert_eq!(mark.count as usize, set.len());
        }
    }
}
