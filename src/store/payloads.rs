//! Byte strings in size classes. Classes are multiples of 16 bytes up to 1 KiB; above, steps waste
//! at most an eighth. No memory belongs to a class: small payloads lie in chunks of 16 KiB
//! ([`super::blocks`]), middle ones in spans of 1 MiB ([`super::spans`]), each large one in an
//! allocation of its own. Chunks and spans that are empty go back to their source, and serve
//! payloads of any size next. Equal payloads are not shared.

// May panic: assertions 2, expectations 1, indices 3.
// Why it does not: bounded 1, listed 4, compiled 1.

use std::sync::Arc;

use super::blocks::Blocks;
use super::places::Places;
use super::source::Source;
use super::spans::Spans;

/// Longest payload that is rounded up to a multiple of [`FINE_STEP`].
const FINE_BYTES_MAX: usize = 1024;
const FINE_STEP: usize = 16;
const FINE_CLASSES: usize = FINE_BYTES_MAX / FINE_STEP;
/// Longest payload in a block of a chunk: at least eight blocks fill a chunk, so that less than an
/// eighth of it stays unused.
const BLOCK_BYTES_MAX: usize = super::blocks::CHUNK_BYTES / 8;
/// Shortest payload in a span.
const SPAN_BYTES_MIN: usize = BLOCK_BYTES_MAX + 1;
/// Longest payload in a class. A longer payload has an allocation of its own.
const CLASS_BYTES_MAX: usize = 64 * 1024;
/// Classes per doubling above [`FINE_BYTES_MAX`], so that a payload wastes less than 1/8.
const CLASSES_PER_DOUBLING: usize = 8;
/// The classes of payloads that lie in blocks.
const BLOCK_CLASSES: usize = class_of(BLOCK_BYTES_MAX) + 1;

/// Where a payload lies: 8 bytes, `Copy`. The owner of the payload must free it exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRef {
    len: u32,
    /// Number of the block, of the run in a span, or of the large payload. `len` tells which.
    place: u32,
}

const _: () = assert!(size_of::<PayloadRef>() == 8, "a record keeps eight bytes for its payload");

impl PayloadRef {
    /// The empty payload. It takes no memory, and freeing it does nothing.
    pub const EMPTY: PayloadRef = PayloadRef { len: 0, place: 0 };

    /// Bytes of the payload, as they were stored.
    #[inline]
    pub const fn len(self) -> u32 {
        self.len
    }

    /// Whether the payload is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The payload arena of one shard.
pub struct Payloads {
    blocks: Blocks,
    spans: Spans,
    large: Vec<Vec<u8>>,
    large_places: Places,
    large_bytes: usize,
    used_bytes: usize,
}

impl Payloads {
    /// Bytes of a chunk of small payloads.
    pub const CHUNK_LEN: usize = super::blocks::CHUNK_BYTES;
    /// Bytes of a span of middle payloads.
    pub const SPAN_LEN: usize = super::spans::SPAN_BYTES;

    /// An arena without payloads that takes chunks and spans from sources.
    pub fn new(chunks: Arc<Source<u8>>, spans: Arc<Source<u8>>) -> Self {
        Self {
            blocks: Blocks::new((0..BLOCK_CLASSES).map(class_bytes), chunks),
            spans: Spans::new(spans),
            large: Vec::new(),
            large_places: Places::new(),
            large_bytes: 0,
            used_bytes: 0,
        }
    }

    /// An arena without payloads whose memory comes from the allocator.
    pub fn alone() -> Self {
        Self::new(Source::none(Self::CHUNK_LEN), Source::none(Self::SPAN_LEN))
    }

    /// How many bytes a payload of `len` bytes adds to [`used_bytes`](Self::used_bytes).
    pub fn cost_bytes(len: usize) -> usize {
        match len {
            1..=CLASS_BYTES_MAX => class_bytes(class_of(len)),
            // An empty payload costs nothing, and a large payload costs its length.
            _ => len,
        }
    }

    /// Stores a copy of `bytes`, which must be fewer than 4 GiB. Cost: the copy, and at most one
    /// chunk or span.
    #[inline]
    pub fn insert(&mut self, bytes: &[u8]) -> PayloadRef {
        let len = u32::try_from(bytes.len()).expect("limits keep payloads far below 4 GiB");
        if bytes.is_empty() {
            return PayloadRef::EMPTY;
        }
        self.used_bytes += Self::cost_bytes(bytes.len());
        let place = match bytes.len() {
            1..=BLOCK_BYTES_MAX => self.blocks.insert(class_of(bytes.len()), bytes),
            SPAN_BYTES_MIN..=CLASS_BYTES_MAX => {
                self.spans.insert(Self::cost_bytes(bytes.len()), bytes)
            }
            _ => self.insert_large(bytes),
        };
        PayloadRef { len, place }
    }

    /// The bytes of a payload. Panics if the payload was freed and its place not used again.
    #[inline]
    pub fn get(&self, payload: PayloadRef) -> &[u8] {
        let len = payload.len as usize;
        match len {
            0 => &[],
            1..=BLOCK_BYTES_MAX => self.blocks.get(class_of(len), payload.place, len),
            SPAN_BYTES_MIN..=CLASS_BYTES_MAX => self.spans.get(payload.place, len),
            _ => {
                assert!(self.large_places.contains(payload.place), "a freed payload is read");
                &self.large[payload.place as usize]
            }
        }
    }

    /// Frees a payload. Panics if its place is free.
    #[inline]
    pub fn remove(&mut self, payload: PayloadRef) {
        let len = payload.len as usize;
        if len == 0 {
            return;
        }
        self.used_bytes -= Self::cost_bytes(len);
        match len {
            1..=BLOCK_BYTES_MAX => self.blocks.remove(class_of(len), payload.place),
            SPAN_BYTES_MIN..=CLASS_BYTES_MAX => {
                self.spans.remove(Self::cost_bytes(len), payload.place)
            }
            _ => self.remove_large(payload.place),
        }
    }

    /// Bytes of the blocks in use, which is what the payloads cost. Unused parts of chunks and
    /// spans are not counted.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of the process's memory that hold payloads or did so, and were not given back.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.blocks.held_bytes() + self.spans.held_bytes() + self.large_bytes
    }

    /// Whether one more payload of `len` bytes would need no more than `bytes` beyond what is held.
    /// Cost: a walk over the spans, of which one in 64 is looked at.
    pub fn grows_by_at_most(&self, len: usize, bytes: usize) -> bool {
        let growth = match len {
            0 => Some(0),
            1..=BLOCK_BYTES_MAX => self.blocks.growth(class_of(len)),
            SPAN_BYTES_MIN..=CLASS_BYTES_MAX => self.spans.growth(Self::cost_bytes(len)),
            _ => Some(len),
        };
        growth.is_some_and(|growth| growth <= bytes)
    }

    /// Bytes of memory, as reserved, with what finds the payloads. Cost: a walk over large ones.
    pub fn bytes(&self) -> usize {
        self.blocks.bytes()
            + self.spans.bytes()
            + self.large_bytes
            + self.large.capacity() * size_of::<Vec<u8>>()
            + self.large_places.bytes()
    }

    #[cold]
    fn insert_large(&mut self, bytes: &[u8]) -> u32 {
        let place = self.large_places.take();
        self.large_bytes += bytes.len();
        if place as usize == self.large.len() {
            self.large.push(bytes.to_vec());
        } else {
            self.large[place as usize] = bytes.to_vec();
        }
        place
    }

    #[cold]
    fn remove_large(&mut self, place: u32) {
        self.large_places.give_back(place);
        let large = std::mem::take(&mut self.large[place as usize]);
        self.large_bytes -= large.len();
        self.spans.source().give_up(large);
    }
}

/// The class of a payload of 1 to [`CLASS_BYTES_MAX`] bytes.
#[inline]
const fn class_of(len: usize) -> usize {
    if len <= FINE_BYTES_MAX {
        return (len - 1) / FINE_STEP;
    }
    // `len - 1` lies in [2^k, 2^(k+1)). k tells the doubling, and the three bits below the highest
    // bit tell which of the eight steps.
    let below = len - 1;
    let doubling = below.ilog2() as usize;
    let step = below >> (doubling - 3) & (CLASSES_PER_DOUBLING - 1);
    FINE_CLASSES + (doubling - FINE_BYTES_MAX.ilog2() as usize) * CLASSES_PER_DOUBLING + step
}

/// The block size of a class: the longest payload for which [`class_of`] returns the class.
#[inline]
fn class_bytes(class: usize) -> usize {
    if class < FINE_CLASSES {
        return (class + 1) * FINE_STEP;
    }
    let above = class - FINE_CLASSES;
    let base = FINE_BYTES_MAX << (above / CLASSES_PER_DOUBLING);
    base + base / CLASSES_PER_DOUBLING * (above % CLASSES_PER_DOUBLING + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::blocks::CHUNK_BYTES;

    #[test]
    fn every_length_has_the_smallest_class_that_fits_and_wastes_little() {
        for len in 1..=CLASS_BYTES_MAX {
            let class = class_of(len);
            let cost = class_bytes(class);
            assert!(cost >= len, "{len} in {cost}");
            assert!(class == 0 || class_bytes(class - 1) < len, "{len} fits a smaller class");
            assert!(cost - len < FINE_STEP.max(len.div_ceil(8)), "{len} in {cost}");
        }
        assert_eq!(class_bytes(class_of(CLASS_BYTES_MAX)), CLASS_BYTES_MAX);
        assert_eq!(class_bytes(BLOCK_CLASSES - 1), BLOCK_BYTES_MAX);
    }

    #[test]
    #[should_panic(expected = "is freed, but was not taken")]
    fn freeing_twice_stops() {
        let mut payloads = Payloads::alone();
        let payload = payloads.insert(b"once");
        payloads.insert(b"other");
        payloads.remove(payload);
        payloads.remove(payload);
    }

    #[test]
    #[should_panic(expected = "a freed payload is read")]
    fn reading_a_freed_payload_stops() {
        let mut payloads = Payloads::alone();
        let payload = payloads.insert(b"once");
        payloads.remove(payload);
        payloads.get(payload);
    }

    #[test]
    fn the_longest_of_the_classes_and_the_first_beyond_are_read_and_freed() {
        let mut payloads = Payloads::alone();
        let of = |len: usize| (0..len).map(|at| at as u8).collect::<Vec<u8>>();
        let lens = [CLASS_BYTES_MAX - 1, CLASS_BYTES_MAX, CLASS_BYTES_MAX + 1];
        let held = lens.map(|len| payloads.insert(&of(len)));
        for (payload, len) in held.into_iter().zip(lens) {
            assert_eq!(payloads.get(payload), of(len));
        }
        assert_eq!(payloads.used_bytes(), 3 * CLASS_BYTES_MAX + 1);
        held.into_iter().for_each(|payload| payloads.remove(payload));
        assert_eq!(payloads.used_bytes(), 0);
    }

    #[test]
    fn the_empty_payload_costs_nothing_and_freed_blocks_are_used_again() {
        let mut payloads = Payloads::alone();
        let idle = payloads.bytes();
        assert_eq!(payloads.insert(&[]), PayloadRef::EMPTY);
        payloads.remove(PayloadRef::EMPTY);
        assert_eq!((payloads.used_bytes(), payloads.bytes()), (0, idle));
        let mut full = 0;
        for _ in 0..3 {
            let held: Vec<_> = (0..50_000_u32).map(|n| payloads.insert(&n.to_be_bytes())).collect();
            assert_eq!(payloads.used_bytes(), 50_000 * 16);
            full = if full == 0 { payloads.bytes() } else { full };
            // The list of groups with a free block may be longer the second time.
            assert!(payloads.bytes() <= full + 1024, "memory was not used again");
            held.into_iter().for_each(|payload| payloads.remove(payload));
            assert_eq!(payloads.used_bytes(), 0);
        }
        assert!(full < 50_000 * 17 + CHUNK_BYTES + idle);
    }

    #[test]
    fn bytes_are_chunks_spans_and_large_ones() {
        let mut payloads = Payloads::alone();
        let idle = payloads.bytes();
        assert!(idle < 8 * 1024 && payloads.held_bytes() == 0, "{idle}");
        payloads.insert(b"small");
        assert_eq!(payloads.held_bytes(), CHUNK_BYTES);
        let middle = payloads.insert(&[7; 5_000]);
        assert_eq!(payloads.held_bytes(), CHUNK_BYTES + 5_120);
        let large = payloads.insert(&[7; CLASS_BYTES_MAX + 1]);
        let held = CHUNK_BYTES + 5_120 + CLASS_BYTES_MAX + 1;
        assert_eq!(payloads.held_bytes(), held);
        assert!((held..held + 32 * 1024).contains(&payloads.bytes()), "{}", payloads.bytes());
        payloads.remove(large);
        payloads.remove(middle);
        // What a span has used stays with it.
        assert_eq!(payloads.held_bytes(), CHUNK_BYTES + 5_120);
        assert_eq!(payloads.used_bytes(), 16);
    }

    /// Herds of one size after the other, each of which is deleted.
    #[test]
    fn payloads_of_one_size_use_what_those_of_another_have_left() {
        const HERD_BYTES: usize = 20 << 20;
        let mut payloads = Payloads::alone();
        let spares = 4 << 20;
        for len in [60_000, 500, 30_000, 2_049, 16, 1_100, 65_536, 80, 2_048, 7_500] {
            let count = HERD_BYTES / Payloads::cost_bytes(len);
            let bytes: Vec<u8> = (0..len).map(|at| (at ^ len) as u8).collect();
            let herd: Vec<_> = (0..count).map(|_| payloads.insert(&bytes)).collect();
            let held = payloads.held_bytes();
            assert!(held < HERD_BYTES / 8 * 9 + spares, "{held} bytes for {len}");
            assert!(herd.iter().all(|&payload| payloads.get(payload) == bytes));
            // In an order that empties no chunk soon.
            for step in 0..7 {
                let part = herd.iter().skip(step).step_by(7);
                part.for_each(|&payload| payloads.remove(payload));
            }
            let left = payloads.held_bytes();
            assert!(left < spares && payloads.used_bytes() == 0, "{left} bytes left of {len}");
        }
    }

    #[test]
    fn a_hole_serves_payloads_of_any_size_that_fit() {
        let mut payloads = Payloads::alone();
        let herd: Vec<_> = (0..170).map(|at| payloads.insert(&[at as u8; 60_000])).collect();
        let full = payloads.held_bytes();
        herd.iter().step_by(2).for_each(|&payload| payloads.remove(payload));
        let smaller: Vec<_> = (0..170).map(|at| payloads.insert(&[at as u8; 30_000])).collect();
        assert!(payloads.held_bytes() <= full, "{} of {full}", payloads.held_bytes());
        assert!(!payloads.grows_by_at_most(60_000, 0) && payloads.grows_by_at_most(30, 16 << 10));
        let are = |kept: &[PayloadRef], len| {
            kept.iter().zip(0..).all(|(&one, at)| payloads.get(one) == vec![at as u8; len])
        };
        assert!(are(&smaller, 30_000));
        let rest: Vec<_> = herd.into_iter().zip(0..170_u8).skip(1).step_by(2).collect();
        assert!(rest.iter().all(|&(one, at)| payloads.get(one) == [at; 60_000]));
    }

    /// Lengths of all three kinds: fine classes, classes of doublings, and large payloads.
    fn lens() -> impl Strategy<Value = usize> {
        prop_oneof![0_usize..100, 900_usize..3000, 3_000_usize..70_000]
    }

    proptest! {
        #[test]
        fn gives_back_what_was_stored(
            steps in prop::collection::vec(
                (any::<bool>(), any::<u8>(), lens()),
                1..100,
            )
        ) {
            let mut payloads = Payloads::alone();
            let mut model: Vec<(PayloadRef, Vec<u8>)> = Vec::new();
            for (insert, fill, len) in steps {
                if insert {
                    let bytes: Vec<u8> = (0..len).map(|at| fill ^ at as u8).collect();
                    model.push((payloads.insert(&bytes), bytes));
                } else if !model.is_empty() {
                    payloads.remove(model.swap_remove(len % model.len()).0);
                }
                for (payload, bytes) in &model {
                    prop_assert_eq!(payloads.get(*payload), &bytes[..]);
                    prop_assert_eq!(payload.len() as usize, bytes.len());
                }
                let used: usize = model.iter().map(|(_, b)| Payloads::cost_bytes(b.len())).sum();
                prop_assert_eq!(payloads.used_bytes(), used);
                prop_assert!(payloads.bytes() >= used);
            }
        }
    }
}
