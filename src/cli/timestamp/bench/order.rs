//! Whether timestamps keep their promise, judged by one who takes them over many connections.
//!
//! In order: a call that is sent after another has been answered gets larger values. The largest
//! value of any answer is one shared word; it is read before a call is sent, and what the call
//! brings must be above it. That holds on one connection and between connections.
//!
//! Disjoint: calls that overlap in time may be answered in any order, but never with the same
//! value. All values are collected and compared; those go out of the collection that no call under
//! way could bring again without breaking the order, which is found anyhow.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::timestamp::Timestamp;

/// Breaches that are kept to be shown; the others are counted.
pub(crate) const BREACHES_SHOWN: usize = 10;

/// The largest value of any answer so far.
#[derive(Debug, Default)]
pub(crate) struct Highest(AtomicU64);

impl Highest {
    /// Before a call is sent: what it must bring values above.
    pub(super) fn floor(&self) -> Timestamp {
        Timestamp(self.0.load(SeqCst))
    }

    /// After an answer: its last value.
    pub(super) fn answered(&self, last: Timestamp) {
        self.0.fetch_max(last.0, SeqCst);
    }
}

/// A value that was not above one known before its call was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    /// Number of the connection.
    pub connection: usize,
    /// Who answered.
    pub server: String,
    /// The first value of the answer.
    pub got: Timestamp,
    /// What it had to be above.
    pub floor: Timestamp,
    /// The last value on the same connection, if that was not below the answer either.
    pub own_last: Option<Timestamp>,
}

/// All values that may come twice.
#[derive(Debug)]
pub(crate) struct Disjoint {
    range: u64,
    /// First values, sorted but for those that have come since [`Disjoint::settle`].
    firsts: Vec<u64>,
    /// Answers compared.
    pub compared: u64,
    /// Answers that share values with another.
    pub overlaps: u64,
    /// The first values of the first two that do.
    pub example: Option<(Timestamp, Timestamp)>,
}

impl Disjoint {
    /// Each answer brings `range` values.
    pub(super) fn new(range: u32) -> Self {
        let firsts = Vec::new();
        Self { range: u64::from(range), firsts, compared: 0, overlaps: 0, example: None }
    }

    /// First values of answers, in any order.
    pub(super) fn add(&mut self, firsts: &[u64]) {
        self.compared += firsts.len() as u64;
        self.firsts.extend_from_slice(firsts);
    }

    /// Compares. All calls that have not been added yet must bring values above `floor`.
    pub(super) fn settle(&mut self, floor: Timestamp) {
        // Mostly sorted: merged run by run.
        self.firsts.sort();
        let range = self.range;
        let (mut overlaps, mut example) = (0, None);
        self.firsts.dedup_by(|later, earlier| {
            let is_overlap = *later - *earlier < range;
            if is_overlap {
                overlaps += 1;
                example.get_or_insert((Timestamp(*earlier), Timestamp(*later)));
            }
            is_overlap
        });
        self.overlaps += overlaps;
        self.example = self.example.or(example);
        let settled =
            self.firsts.partition_point(|first| first.saturating_add(range - 1) <= floor.0);
        self.firsts.drain(..settled);
    }

    /// Values still kept.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.firsts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_floor_never_falls() {
        let highest = Highest::default();
        highest.answered(Timestamp(9));
        highest.answered(Timestamp(4));
        assert_eq!(highest.floor(), Timestamp(9));
    }

    #[test]
    fn a_value_that_comes_twice_is_found_while_it_can() {
        let mut disjoint = Disjoint::new(10);
        disjoint.add(&[100, 130, 110]);
        disjoint.settle(Timestamp(119));
        assert_eq!((disjoint.overlaps, disjoint.kept()), (0, 1));
        disjoint.add(&[139, 120]);
        disjoint.settle(Timestamp(119));
        assert_eq!(disjoint.overlaps, 1);
        assert_eq!(disjoint.example, Some((Timestamp(130), Timestamp(139))));
        // Counted once.
        disjoint.settle(Timestamp(0));
        assert_eq!((disjoint.overlaps, disjoint.compared), (1, 5));
    }

    proptest! {
        #[test]
        fn what_is_disjoint_is_never_blamed_and_twins_always_are(
            gaps in prop::collection::vec(0u64..3, 1..60),
            range in 1u32..4,
            cut in 0usize..60,
            twin in prop::option::of(0usize..60),
        ) {
            let mut first = 1;
            let firsts: Vec<u64> = gaps.iter().map(|gap| {
                let this = first + gap;
                first = this + u64::from(range);
                this
            }).collect();
            let cut = cut % firsts.len();
            let mut disjoint = Disjoint::new(range);
            disjoint.add(&firsts[..cut]);
            let floor = firsts[cut] - 1;
            disjoint.settle(Timestamp(floor));
            disjoint.add(&firsts[cut..]);
            if let Some(twin) = twin {
                disjoint.add(&[firsts[cut + twin % (firsts.len() - cut)]]);
            }
            disjoint.settle(Timestamp(u64::MAX));
            prop_assert_eq!(disjoint.overlaps, u64::from(twin.is_some()));
            prop_assert_eq!(disjoint.kept(), 0);
        }
    }
}
