//! Blocks of small payloads, in chunks of 16 KiB. A chunk has blocks of one size as long as any of
//! them is in use. An empty chunk goes back to the source and may have blocks of another size next;
//! each size keeps one empty chunk, so that a payload that comes and goes moves none.

// May panic: assertions 5, expectations 1, indices 27, cuts 1.
// Why it does not: listed 33, compiled 1.

use std::sync::Arc;

use super::directory::Directory;
use super::source::Source;

/// Bytes of a chunk. They are initialised when they are first used. The allocator loses one chunk
/// of each page of 512 KiB, so the chunks are small.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// Bits of a place that name the block of a chunk. The smallest block has 16 bytes.
const BLOCK_BITS: u32 = 10;
const BLOCKS_MAX: usize = 1 << BLOCK_BITS;
const WORD_BITS: usize = 64;
/// Most chunks of a shard: 64 GiB, all that a place can name.
const CHUNKS_MAX: usize = 1 << (u32::BITS - BLOCK_BITS);
/// No chunk.
const NIL: u32 = u32::MAX;
/// No class: the chunk has no memory.
const VACANT: u8 = u8::MAX;

const _: () = assert!(CHUNK_BYTES / BLOCKS_MAX == 16, "a word has a bit for the last block");

/// The blocks of one size.
struct Class {
    block_bytes: usize,
    /// The first of the chunks with a free block; they are linked.
    open: u32,
    /// A chunk that was empty when it was last looked at, and was kept.
    spare: u32,
}

struct Chunk {
    bytes: Vec<u8>,
    /// One bit per block, and set ones behind the last block.
    taken: Box<[u64]>,
    /// One bit per word of `taken` that has a free bit.
    open_words: u32,
    used: u16,
    class: u8,
    /// Neighbours among the chunks of the class with a free block.
    next: u32,
    prev: u32,
}

/// All blocks of a shard.
pub(super) struct Blocks {
    classes: Box<[Class]>,
    chunks: Directory<Chunk>,
    /// Numbers of chunks without memory.
    vacant: Vec<u32>,
    source: Arc<Source<u8>>,
    held_bytes: usize,
    /// Bytes of the bits of all chunks.
    bits_bytes: usize,
}

impl Blocks {
    /// No block yet. A class of blocks for each of `sizes`, at most 2 KiB each.
    pub fn new(sizes: impl Iterator<Item = usize>, source: Arc<Source<u8>>) -> Self {
        let class = |block_bytes| Class { block_bytes, open: NIL, spare: NIL };
        Self {
            classes: sizes.map(class).collect(),
            chunks: Directory::new(),
            vacant: Vec::new(),
            source,
            held_bytes: 0,
            bits_bytes: 0,
        }
    }

    /// Stores a copy of `bytes` in a block of a class and returns its place. The lowest free block
    /// of a chunk comes first, so the blocks of a chunk are initialised in their order.
    #[inline]
    pub fn insert(&mut self, class_at: usize, bytes: &[u8]) -> u32 {
        if self.classes[class_at].open == NIL {
            self.open_chunk(class_at);
        }
        let Class { block_bytes, open: at, .. } = self.classes[class_at];
        let chunk = &mut self.chunks[at as usize];
        let word = chunk.open_words.trailing_zeros() as usize;
        let taken = &mut chunk.taken[word];
        let bit = taken.trailing_ones() as usize;
        *taken |= 1 << bit;
        chunk.used += 1;
        let is_word_full = *taken == u64::MAX;
        let block = word * WORD_BITS + bit;
        let start = block * block_bytes;
        if start < chunk.bytes.len() {
            chunk.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        } else {
            assert!(start == chunk.bytes.len(), "fresh blocks come in order");
            chunk.bytes.extend_from_slice(bytes);
            chunk.bytes.resize(start + block_bytes, 0);
        }
        if is_word_full {
            self.word_filled(at, word);
        }
        at << BLOCK_BITS | block as u32
    }

    /// The first `len` bytes of a block. Panics if the block is free.
    #[inline]
    pub fn get(&self, class_at: usize, place: u32, len: usize) -> &[u8] {
        let (at, block) = split(place);
        let chunk = &self.chunks[at];
        assert!(chunk.has(class_at, block), "a freed payload is read");
        let start = block * self.classes[class_at].block_bytes;
        &chunk.bytes[start..start + len]
    }

    /// Frees a block. Panics if it is free.
    #[inline]
    pub fn remove(&mut self, class_at: usize, place: u32) {
        let (at, block) = split(place);
        let chunk = &mut self.chunks[at];
        assert!(chunk.has(class_at, block), "a payload is freed, but was not taken");
        let word = block / WORD_BITS;
        chunk.taken[word] &= !(1 << (block % WORD_BITS));
        chunk.used -= 1;
        let (was_full, is_empty) = (chunk.open_words == 0, chunk.used == 0);
        chunk.open_words |= 1 << word;
        if was_full {
            self.link(at as u32);
        }
        if is_empty {
            self.emptied(at as u32);
        }
    }

    /// Bytes of chunks that have memory.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many bytes more are held after one more block of a class. `None`: no chunk can be named
    /// any more.
    pub fn growth(&self, class_at: usize) -> Option<usize> {
        let is_open = self.classes[class_at].open != NIL;
        let can_open = !self.vacant.is_empty() || self.chunks.len() < CHUNKS_MAX;
        if is_open { Some(0) } else { can_open.then_some(CHUNK_BYTES) }
    }

    /// Bytes of memory, as reserved.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.classes)
            + self.held_bytes
            + self.bits_bytes
            + self.chunks.bytes()
            + self.vacant.capacity() * size_of::<u32>()
    }

    /// Notes that the last free block of a word was taken.
    #[inline]
    fn word_filled(&mut self, at: u32, word: usize) {
        let chunk = &mut self.chunks[at as usize];
        chunk.open_words &= !(1 << word);
        if chunk.open_words == 0 {
            self.unlink(at);
        }
    }

    /// Takes a chunk for blocks of a class.
    #[cold]
    fn open_chunk(&mut self, class_at: usize) {
        let at = self.vacant.pop().unwrap_or(self.chunks.len() as u32);
        assert!((at as usize) < CHUNKS_MAX, "small payloads of more than 64 GiB in one shard");
        let blocks = CHUNK_BYTES / self.classes[class_at].block_bytes;
        let mut taken: Box<[u64]> = vec![0; blocks.div_ceil(WORD_BITS)].into();
        if !blocks.is_multiple_of(WORD_BITS) {
            *taken.last_mut().expect("a chunk has blocks") = u64::MAX << (blocks % WORD_BITS);
        }
        self.held_bytes += CHUNK_BYTES;
        self.bits_bytes += size_of_val(&*taken);
        let chunk = Chunk {
            bytes: self.source.take(),
            open_words: (1 << taken.len()) - 1,
            taken,
            used: 0,
            class: class_at as u8,
            next: NIL,
            prev: NIL,
        };
        match self.chunks.get_mut(at as usize) {
            Some(place) => *place = chunk,
            None => self.chunks.push(chunk),
        }
        self.link(at);
    }

    /// Keeps an empty chunk, if its class has no other, or gives its memory back.
    #[cold]
    fn emptied(&mut self, at: u32) {
        let class_at = self.chunks[at as usize].class;
        let spare = self.classes[usize::from(class_at)].spare;
        let is_spare = |chunk: &Chunk| chunk.class == class_at && chunk.used == 0;
        if spare == at || !self.chunks.get(spare as usize).is_some_and(is_spare) {
            self.classes[usize::from(class_at)].spare = at;
            return;
        }
        self.unlink(at);
        let chunk = &mut self.chunks[at as usize];
        let mut bytes = std::mem::take(&mut chunk.bytes);
        bytes.clear();
        self.bits_bytes -= size_of_val(&*chunk.taken);
        chunk.taken = Box::default();
        chunk.class = VACANT;
        self.held_bytes -= CHUNK_BYTES;
        self.vacant.push(at);
        self.source.give_back(bytes);
    }

    /// Puts a chunk before the other chunks of its class with a free block.
    #[cold]
    fn link(&mut self, at: u32) {
        let class = &mut self.classes[usize::from(self.chunks[at as usize].class)];
        let next = std::mem::replace(&mut class.open, at);
        (self.chunks[at as usize].next, self.chunks[at as usize].prev) = (next, NIL);
        if next != NIL {
            self.chunks[next as usize].prev = at;
        }
    }

    /// Takes a chunk out from among the chunks of its class with a free block.
    #[cold]
    fn unlink(&mut self, at: u32) {
        let Chunk { next, prev, class, .. } = self.chunks[at as usize];
        match prev {
            NIL => self.classes[usize::from(class)].open = next,
            prev => self.chunks[prev as usize].next = next,
        }
        if next != NIL {
            self.chunks[next as usize].prev = prev;
        }
    }
}

impl Chunk {
    /// Whether a block is in use, by a payload of a class.
    #[inline]
    fn has(&self, class_at: usize, block: usize) -> bool {
        usize::from(self.class) == class_at
            && self.taken[block / WORD_BITS] >> (block % WORD_BITS) & 1 == 1
    }
}

/// The chunk of a place, and the block in the chunk.
#[inline]
fn split(place: u32) -> (usize, usize) {
    ((place >> BLOCK_BITS) as usize, place as usize % BLOCKS_MAX)
}
