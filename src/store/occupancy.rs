//! Which buckets of one wheel level hold a slot. A bitmap with a bitmap above it finds the next
//! occupied bucket among 8192 by a look at four words. This file does not know ticks.

// May panic: assertions 1, indices 7.
// Why it does not: fixed 8.

/// Bits of one word of the bitmap.
const WORD_BITS: usize = 64;

/// The occupied buckets of a ring of `buckets` (a power of two).
pub(super) struct Occupancy {
    words: Box<[u64]>,
    /// One bit per word of `words` that is not zero.
    summary: Box<[u64]>,
    mask: usize,
}

impl Occupancy {
    pub(super) fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two(), "a ring has a power of two of buckets");
        let words = buckets.div_ceil(WORD_BITS);
        Self {
            words: vec![0; words].into(),
            summary: vec![0; words.div_ceil(WORD_BITS)].into(),
            mask: buckets - 1,
        }
    }

    #[inline]
    pub(super) fn set(&mut self, bucket: usize) {
        let word = bucket / WORD_BITS;
        self.words[word] |= 1 << (bucket % WORD_BITS);
        self.summary[word / WORD_BITS] |= 1 << (word % WORD_BITS);
    }

    #[inline]
    pub(super) fn clear(&mut self, bucket: usize) {
        let word = bucket / WORD_BITS;
        self.words[word] &= !(1 << (bucket % WORD_BITS));
        if self.words[word] == 0 {
            self.summary[word / WORD_BITS] &= !(1 << (word % WORD_BITS));
        }
    }

    /// How many steps round the ring lie between `start` and the first occupied bucket; 0 if
    /// `start` is occupied. `None`: no bucket is occupied.
    #[inline]
    pub(super) fn distance_from(&self, start: usize) -> Option<u64> {
        let found = self.first_from(start).or_else(|| self.first_from(0))?;
        Some((found.wrapping_sub(start) & self.mask) as u64)
    }

    pub(super) fn bytes(&self) -> usize {
        (self.words.len() + self.summary.len()) * size_of::<u64>()
    }

    /// The first occupied bucket from `start` to the end of the ring.
    #[inline]
    fn first_from(&self, start: usize) -> Option<usize> {
        let word = start / WORD_BITS;
        let here = self.words[word] & u64::MAX << (start % WORD_BITS);
        if here != 0 {
            return Some(word * WORD_BITS + here.trailing_zeros() as usize);
        }
        let from = word + 1;
        let mut group = from / WORD_BITS;
        let mut later = self.summary.get(group)? & u64::MAX << (from % WORD_BITS);
        while later == 0 {
            group += 1;
            later = *self.summary.get(group)?;
        }
        let word = group * WORD_BITS + later.trailing_zeros() as usize;
        Some(word * WORD_BITS + self.words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_a_bit_a_bucket_and_a_bit_a_word() {
        assert_eq!(Occupancy::new(8192).bytes(), 8192 / 8 + 128 / 8);
    }

    proptest! {
        #[test]
        fn finds_what_a_set_finds(
            size_log2 in 3_u32..14,
            steps in prop::collection::vec((any::<bool>(), any::<usize>(), any::<usize>()), 1..100)
        ) {
            let buckets = 1_usize << size_log2;
            let mut occupancy = Occupancy::new(buckets);
            let mut model = BTreeSet::new();
            for (set, bucket, start) in steps {
                let (bucket, start) = (bucket % buckets, start % buckets);
                if set {
                    occupancy.set(bucket);
                    model.insert(bucket);
                } else {
                    let victim = model.range(bucket..).next().copied().unwrap_or(bucket);
                    occupancy.clear(victim);
                    model.remove(&victim);
                }
                let next = model.range(start..).next().or(model.first());
                let distance = next.map(|&next| ((next + buckets - start) % buckets) as u64);
                prop_assert_eq!(occupancy.distance_from(start), distance);
            }
        }
    }
}
