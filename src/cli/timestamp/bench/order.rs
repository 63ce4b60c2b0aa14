//! Checks that timestamps keep their promise, as a client sees it that takes them over many
//! connections.
//!
//! In order: a call that is sent after another call was answered gets larger values. The largest
//! value of any answer is one shared word. The word is read before a call is sent, and the values
//! of that call must be above it. This holds on one connection and between connections.
//!
//! Disjoint: calls that overlap in time may be answered in any order, but never with the same
//! value. All values are collected and compared. A value leaves the collection when no call under
//! way could bring it again without breaking the order, because that breach is found anyhow.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::timestamp::Timestamp;

/// Most breaches that are kept to be shown. The others are counted.
pub(crate) const BREACHES_SHOWN: usize = 10;

/// The largest value of any answer so far.
#[derive(Debug, Default)]
pub(crate) struct Highest(AtomicU64);

impl Highest {
    /// Returns the value that a call sent from now on must exceed. Read this before the call is
    /// sent.
    pub(super) fn floor(&self) -> Timestamp {
        Timestamp(self.0.load(SeqCst))
    }

    /// Notes the last value of an answer.
    pub(super) fn answered(&self, last: Timestamp) {
        self.0.fetch_max(last.0, SeqCst);
    }
}

/// A value that was not above a value known before its call was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    /// The number of the connection.
    pub connection: usize,
    /// The address of the server that answered.
    pub server: String,
    /// The first value of the answer.
    pub got: Timestamp,
    /// The value that the answer had to exceed.
    pub floor: Timestamp,
    /// The last value on the same connection, if the answer is not above that value either.
    pub own_last: Option<Timestamp>,
}

/// The values that a call under way could still bring again.
#[derive(Debug)]
pub(crate) struct Disjoint {
    range: u64,
    /// First values of answers. They are sorted up to the values that were added since
    /// [`Disjoint::settle`].
    firsts: Vec<u64>,
    /// How many answers were compared.
    pub compared: u64,
    /// How many answers share values with another answer.
    pub overlaps: u64,
    /// The first values of the first two answers that share a value.
    pub example: Option<(Timestamp, Timestamp)>,
}

impl Disjoint {
    /// Makes an empty collection. Each answer has `range` values.
    pub(super) fn new(range: u32) -> Self {
        let firsts = Vec::new();
        Self { range: u64::from(range), firsts, compared: 0, overlaps: 0, example: None }
    }

    /// Adds answers by their first values, in any order.
    pub(super) fn add(&mut self, firsts: &[u64]) {
        self.compared += firsts.len() as u64;
        self.firsts.extend_from_slice(firsts);
    }

    /// Compares the values. All calls that have not been added yet must bring values above `floor`.
    pub(super) fn settle(&mut self, floor: Timestamp) {
        // The values are mostly sorted, so the sort merges run by run.
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

    /// Returns how many values are kept.
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
        // An overlap is counted once.
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
