//! Byte strings in size classes. Classes are multiples of 16 bytes up to 1 KiB; above, steps waste
//! at most an eighth. Each large payload has an allocation of its own. Freed memory serves the same
//! class again. Equal payloads are not shared.

use std::sync::Arc;

use super::directory::Directory;
use super::places::Places;
use super::source::Source;

/// Longest payload that is rounded up to a multiple of [`FINE_STEP`].
const FINE_BYTES_MAX: usize = 1024;
const FINE_STEP: usize = 16;
const FINE_CLASSES: usize = FINE_BYTES_MAX / FINE_STEP;
/// Longest payload in a class. A longer payload has an allocation of its own.
const CLASS_BYTES_MAX: usize = 64 * 1024;
/// Classes per doubling above [`FINE_BYTES_MAX`], so that a payload wastes less than 1/8.
const CLASSES_PER_DOUBLING: usize = 8;
const CLASSES: usize =
    FINE_CLASSES + CLASSES_PER_DOUBLING * (CLASS_BYTES_MAX / FINE_BYTES_MAX).ilog2() as usize;
/// Most bytes of a chunk of blocks, except that a chunk holds at least one block. A chunk's bytes
/// are initialised when they are first used. The allocator loses one chunk of each page of 512 KiB,
/// so the chunks are small.
const CHUNK_BYTES: usize = 16 * 1024;
/// Longest block of which chunks have [`CHUNK_BYTES`], filled up to an eighth or better: these come
/// from the source. A chunk of longer blocks is an allocation of its own size.
const SOURCE_BLOCK_BYTES_MAX: usize = CHUNK_BYTES / 8;

/// Where a payload lies: 8 bytes, `Copy`. The owner of the payload must free it exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRef {
    len: u32,
    /// Number of the block in the class that follows from `len`, or number of a large payload.
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
    classes: Box<[Class]>,
    source: Arc<Source<u8>>,
    large: Vec<Box<[u8]>>,
    large_places: Places,
    large_bytes: usize,
    used_bytes: usize,
    chunk_bytes: usize,
}

impl Payloads {
    /// Bytes of a chunk of small blocks.
    pub const CHUNK_LEN: usize = CHUNK_BYTES;

    /// An arena without payloads.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::from(Source::none(CHUNK_BYTES))
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
    /// chunk allocation.
    #[inline]
    pub fn insert(&mut self, bytes: &[u8]) -> PayloadRef {
        let len = u32::try_from(bytes.len()).expect("limits keep payloads far below 4 GiB");
        if bytes.is_empty() {
            return PayloadRef::EMPTY;
        }
        self.used_bytes += Self::cost_bytes(bytes.len());
        if bytes.len() > CLASS_BYTES_MAX {
            return PayloadRef { len, place: self.insert_large(bytes) };
        }
        let class = &mut self.classes[class_of(bytes.len())];
        let chunks_before = class.chunks.len();
        let place = class.insert(bytes, &self.source);
        if class.chunks.len() > chunks_before {
            self.chunk_bytes += class.chunk_bytes();
        }
        PayloadRef { len, place }
    }

    /// The bytes of a payload. Panics if the payload was freed and its place not used again.
    #[inline]
    pub fn get(&self, payload: PayloadRef) -> &[u8] {
        let len = payload.len as usize;
        if len == 0 {
            return &[];
        }
        if len > CLASS_BYTES_MAX {
            assert!(self.large_places.contains(payload.place), "a freed payload is read");
            return &self.large[payload.place as usize];
        }
        let class = &self.classes[class_of(len)];
        assert!(class.places.contains(payload.place), "a freed payload is read");
        let (chunk, start) = class.locate(payload.place);
        &class.chunks[chunk][start..start + len]
    }

    /// Frees a payload. Panics if its place is free.
    #[inline]
    pub fn remove(&mut self, payload: PayloadRef) {
        let len = payload.len as usize;
        if len == 0 {
            return;
        }
        self.used_bytes -= Self::cost_bytes(len);
        if len > CLASS_BYTES_MAX {
            self.large_places.give_back(payload.place);
            self.large[payload.place as usize] = Box::default();
            self.large_bytes -= len;
        } else {
            self.classes[class_of(len)].places.give_back(payload.place);
        }
    }

    /// Bytes of the blocks in use, which is what the payloads cost. Unused parts of chunks are not
    /// counted.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of memory, as reserved. Chunks count whole, though the kernel gives their pages only
    /// when they are used. Cost: a walk over the size classes.
    pub fn bytes(&self) -> usize {
        let overhead: usize = self.classes.iter().map(Class::overhead_bytes).sum();
        self.chunk_bytes
            + self.large_bytes
            + overhead
            + self.large.capacity() * size_of::<Box<[u8]>>()
            + self.large_places.bytes()
    }

    #[cold]
    fn insert_large(&mut self, bytes: &[u8]) -> u32 {
        let place = self.large_places.take();
        self.large_bytes += bytes.len();
        if place as usize == self.large.len() {
            self.large.push(bytes.into());
        } else {
            self.large[place as usize] = bytes.into();
        }
        place
    }
}

impl From<Arc<Source<u8>>> for Payloads {
    /// An arena without payloads that takes its chunks of small blocks from `source`.
    fn from(source: Arc<Source<u8>>) -> Self {
        Self {
            classes: (0..CLASSES).map(|class| Class::new(class_bytes(class))).collect(),
            source,
            large: Vec::new(),
            large_places: Places::new(),
            large_bytes: 0,
            used_bytes: 0,
            chunk_bytes: 0,
        }
    }
}

/// The blocks of one size.
struct Class {
    block_bytes: usize,
    chunk_blocks: u32,
    chunks: Directory<Vec<u8>>,
    /// How many blocks were ever given out.
    fresh: u32,
    places: Places,
}

impl Class {
    fn new(block_bytes: usize) -> Self {
        Self {
            block_bytes,
            chunk_blocks: (CHUNK_BYTES / block_bytes).max(1) as u32,
            chunks: Directory::new(),
            fresh: 0,
            places: Places::new(),
        }
    }

    /// The chunk of a block, and the offset of the block in the chunk.
    #[inline]
    fn locate(&self, place: u32) -> (usize, usize) {
        let (chunk, in_chunk) = (place / self.chunk_blocks, place % self.chunk_blocks);
        (chunk as usize, in_chunk as usize * self.block_bytes)
    }

    #[inline]
    fn insert(&mut self, bytes: &[u8], source: &Source<u8>) -> u32 {
        let place = self.places.take();
        let (chunk, start) = self.locate(place);
        if place < self.fresh {
            self.chunks[chunk][start..start + bytes.len()].copy_from_slice(bytes);
            return place;
        }
        assert!(place == self.fresh, "fresh places come in order");
        if start == 0 {
            self.chunks.push(match self.block_bytes {
                1..=SOURCE_BLOCK_BYTES_MAX => source.take(),
                _ => Vec::with_capacity(self.chunk_bytes()),
            });
        }
        let chunk = &mut self.chunks[chunk];
        chunk.extend_from_slice(bytes);
        chunk.resize(start + self.block_bytes, 0);
        self.fresh += 1;
        place
    }

    /// Bytes of a chunk, as reserved.
    fn chunk_bytes(&self) -> usize {
        match self.block_bytes {
            1..=SOURCE_BLOCK_BYTES_MAX => CHUNK_BYTES,
            _ => self.block_bytes * self.chunk_blocks as usize,
        }
    }

    fn overhead_bytes(&self) -> usize {
        size_of::<Self>() + self.chunks.bytes() + self.places.bytes()
    }
}

/// The class of a payload of 1 to [`CLASS_BYTES_MAX`] bytes.
#[inline]
fn class_of(len: usize) -> usize {
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

    #[test]
    fn every_length_has_the_smallest_class_that_fits_and_wastes_little() {
        for len in 1..=CLASS_BYTES_MAX {
            let class = class_of(len);
            let cost = class_bytes(class);
            assert!(cost >= len, "{len} in {cost}");
            assert!(class == 0 || class_bytes(class - 1) < len, "{len} fits a smaller class");
            assert!(cost - len < FINE_STEP.max(len.div_ceil(8)), "{len} in {cost}");
        }
        assert_eq!(class_of(CLASS_BYTES_MAX), CLASSES - 1);
        assert_eq!(class_bytes(CLASSES - 1), CLASS_BYTES_MAX);
    }

    #[test]
    #[should_panic(expected = "freed, but was not taken")]
    fn freeing_twice_stops() {
        let mut payloads = Payloads::new();
        let payload = payloads.insert(b"once");
        payloads.insert(b"other");
        payloads.remove(payload);
        payloads.remove(payload);
    }

    #[test]
    #[should_panic(expected = "a freed payload is read")]
    fn reading_a_freed_payload_stops() {
        let mut payloads = Payloads::new();
        let payload = payloads.insert(b"once");
        payloads.remove(payload);
        payloads.get(payload);
    }

    #[test]
    fn the_longest_of_the_classes_and_the_first_beyond_are_read_and_freed() {
        let mut payloads = Payloads::new();
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
        let mut payloads = Payloads::new();
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
    fn bytes_are_chunks_large_ones_and_what_finds_them() {
        let mut payloads = Payloads::new();
        assert_eq!(payloads.bytes(), CLASSES * size_of::<Class>());
        payloads.insert(b"small");
        let class = &payloads.classes[0];
        let overhead = class.chunks.bytes() + class.places.bytes();
        assert!(overhead > 512, "a group of places, {overhead}");
        let with_chunk = CLASSES * size_of::<Class>() + overhead + CHUNK_BYTES;
        assert_eq!(payloads.bytes(), with_chunk);
        let large = payloads.insert(&[7; CLASS_BYTES_MAX + 1]);
        let beside = 4 * 16 + payloads.large_places.bytes();
        assert_eq!(payloads.bytes(), with_chunk + CLASS_BYTES_MAX + 1 + beside);
        payloads.insert(&[7; CLASS_BYTES_MAX + 9]);
        payloads.remove(large);
        assert_eq!(payloads.bytes(), with_chunk + CLASS_BYTES_MAX + 9 + beside);
        assert_eq!(payloads.used_bytes(), 16 + CLASS_BYTES_MAX + 9);
    }

    /// Lengths of all three kinds: fine classes, classes of doublings, and large payloads.
    fn lens() -> impl Strategy<Value = usize> {
        prop_oneof![0_usize..100, 900_usize..3000, 65_000_usize..70_000]
    }

    proptest! {
        #[test]
        fn gives_back_what_was_stored(
            steps in prop::collection::vec(
                (any::<bool>(), any::<u8>(), lens()),
                1..100,
            )
        ) {
            let mut payloads = Payloads::new();
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
