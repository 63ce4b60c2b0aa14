//! Runs of middle payloads, in spans of 1 MiB. A run has any number of units of 256 bytes, so what
//! payloads of one size have left serves those of any other. A run is placed in the first span that
//! has room, as low as possible; so the other spans become empty and go back to the source. One
//! empty span is kept.

// May panic: assertions 4, expectations 1, indices 22, cuts 1.
// Why it does not: listed 28.

use std::sync::Arc;

use super::directory::Directory;
use super::source::Source;

const UNIT_BYTES: usize = 256;
/// Bits of a place that name the first unit in the span.
const UNIT_BITS: u32 = 12;
const UNITS: usize = 1 << UNIT_BITS;
/// Bytes of a span. They are initialised when they are first used.
pub(super) const SPAN_BYTES: usize = UNITS * UNIT_BYTES;
/// Most spans of a shard: 1 TiB, all that a place can name.
const SPANS_MAX: usize = 1 << (u32::BITS - UNIT_BITS);
const WORD_BITS: usize = 64;
/// Spans whose longest free runs are looked at together.
const GROUP: usize = 64;
/// No span.
const NIL: u32 = u32::MAX;

/// Which units of a span are taken: a bit each.
type Taken = [u64; UNITS / WORD_BITS];

struct Span {
    bytes: Vec<u8>,
    taken: Box<Taken>,
    used: u16,
}

/// All spans of a shard.
pub(super) struct Spans {
    spans: Directory<Span>,
    /// The longest free run of each span, in units; 0: the span has no memory.
    longest: Vec<u16>,
    /// The longest free run of each group of spans.
    longest_of_group: Vec<u16>,
    /// Numbers of spans without memory.
    vacant: Vec<u32>,
    /// A span that was empty when it was last looked at, and was kept.
    spare: u32,
    source: Arc<Source<u8>>,
    held_bytes: usize,
}

impl Spans {
    /// No span yet.
    pub fn new(source: Arc<Source<u8>>) -> Self {
        Self {
            spans: Directory::new(),
            longest: Vec::new(),
            longest_of_group: Vec::new(),
            vacant: Vec::new(),
            spare: NIL,
            source,
            held_bytes: 0,
        }
    }

    /// Where spans come from.
    pub fn source(&self) -> &Source<u8> {
        &self.source
    }

    /// Stores a copy of `bytes` in a run of `run_bytes`, a multiple of a unit, and returns its
    /// place.
    pub fn insert(&mut self, run_bytes: usize, bytes: &[u8]) -> u32 {
        let units = run_bytes / UNIT_BYTES;
        let at = self.first_with(units).unwrap_or_else(|| self.open_span());
        let span = &mut self.spans[at];
        let run = free_runs(&span.taken).find(|run| run.len() >= units);
        let run = run.expect("the longest free run is known");
        let first = run.start;
        mark(&mut span.taken, first, units, true);
        span.used += units as u16;
        let (start, end) = (first * UNIT_BYTES, (first + units) * UNIT_BYTES);
        if end <= span.bytes.len() {
            span.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        } else {
            // Nothing behind the start is in use: else the run would end before that. And what was
            // never used is part of the last run, which begins no later.
            assert!(start <= span.bytes.len(), "a span is initialised in order");
            self.held_bytes += end - span.bytes.len();
            span.bytes.truncate(start);
            span.bytes.extend_from_slice(bytes);
            span.bytes.resize(end, 0);
        }
        if run.len() == usize::from(self.longest[at]) {
            let longest = free_runs(&span.taken).map(|run| run.len()).max().unwrap_or(0);
            self.set_longest(at, longest);
        }
        (at << UNIT_BITS | first) as u32
    }

    /// The first `len` bytes of a run. Panics if its first unit is free.
    pub fn get(&self, place: u32, len: usize) -> &[u8] {
        let (at, first) = split(place);
        let span = &self.spans[at];
        assert!(is_taken(&span.taken, first), "a freed payload is read");
        &span.bytes[first * UNIT_BYTES..][..len]
    }

    /// Frees a run of `run_bytes`. Panics if its first unit is free.
    pub fn remove(&mut self, run_bytes: usize, place: u32) {
        let ((at, first), units) = (split(place), run_bytes / UNIT_BYTES);
        let span = &mut self.spans[at];
        assert!(is_taken(&span.taken, first), "a payload is freed, but was not taken");
        mark(&mut span.taken, first, units, false);
        span.used -= units as u16;
        let is_empty = span.used == 0;
        let end = free_end(&span.taken, first);
        let run = end - free_begin(&span.taken, first);
        self.set_longest(at, run.max(usize::from(self.longest[at])));
        if is_empty {
            self.emptied(at);
        }
    }

    /// Bytes of spans that were used since they came from the source.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many bytes more are held after one more run, at most. `None`: no span can be named any
    /// more.
    pub fn growth(&self, run_bytes: usize) -> Option<usize> {
        let can_open = !self.vacant.is_empty() || self.spans.len() < SPANS_MAX;
        match self.first_with(run_bytes / UNIT_BYTES) {
            Some(at) => Some(run_bytes.min(SPAN_BYTES - self.spans[at].bytes.len())),
            None => can_open.then_some(run_bytes),
        }
    }

    /// Bytes of memory, as reserved.
    pub fn bytes(&self) -> usize {
        let numbers = self.longest.capacity() + self.longest_of_group.capacity();
        self.held_bytes
            + self.spans.bytes()
            + self.spans.len() * size_of::<Taken>()
            + numbers * size_of::<u16>()
            + self.vacant.capacity() * size_of::<u32>()
    }

    /// The first span that has so many units in a row. Cost: one look per group, and one group.
    fn first_with(&self, units: usize) -> Option<usize> {
        let has_room = |longest: &u16| usize::from(*longest) >= units;
        let group = self.longest_of_group.iter().position(has_room)?;
        let first = group * GROUP;
        let in_group = self.longest[first..].iter().take(GROUP).position(has_room);
        in_group.map(|at| first + at)
    }

    fn set_longest(&mut self, at: usize, units: usize) {
        self.longest[at] = units as u16;
        let group = self.longest[at / GROUP * GROUP..].iter().take(GROUP);
        self.longest_of_group[at / GROUP] = group.copied().max().unwrap_or(0);
    }

    /// Takes a span from the source and returns its number.
    #[cold]
    fn open_span(&mut self) -> usize {
        let at = self.vacant.pop().map_or(self.spans.len(), |at| at as usize);
        assert!(at < SPANS_MAX, "middle payloads of more than 1 TiB in one shard");
        if at == self.spans.len() {
            let taken = Box::new([0; UNITS / WORD_BITS]);
            self.spans.push(Span { bytes: Vec::new(), taken, used: 0 });
            self.longest.push(0);
            self.longest_of_group.resize(self.longest.len().div_ceil(GROUP), 0);
        }
        self.spans[at].bytes = self.source.take();
        self.set_longest(at, UNITS);
        at
    }

    /// Keeps an empty span, if there is no other, or gives its memory back.
    #[cold]
    fn emptied(&mut self, at: usize) {
        let is_spare = |span: &Span| span.used == 0 && span.bytes.capacity() > 0;
        let has_spare = self.spans.get(self.spare as usize).is_some_and(is_spare);
        if !has_spare || self.spare as usize == at {
            self.spare = at as u32;
            return;
        }
        let mut bytes = std::mem::take(&mut self.spans[at].bytes);
        self.held_bytes -= bytes.len();
        bytes.clear();
        self.set_longest(at, 0);
        self.vacant.push(at as u32);
        self.source.give_back(bytes);
    }
}

/// The span of a place, and the first unit in the span.
fn split(place: u32) -> (usize, usize) {
    ((place >> UNIT_BITS) as usize, place as usize % UNITS)
}

fn is_taken(taken: &Taken, unit: usize) -> bool {
    taken[unit / WORD_BITS] >> (unit % WORD_BITS) & 1 == 1
}

/// Marks `units` units from `first` on as taken or as free.
fn mark(taken: &mut Taken, first: usize, units: usize, is_taken: bool) {
    let (mut at, end) = (first, first + units);
    while at < end {
        let (word, bit) = (at / WORD_BITS, at % WORD_BITS);
        let bits = (WORD_BITS - bit).min(end - at);
        let mask = u64::MAX >> (WORD_BITS - bits) << bit;
        if is_taken {
            taken[word] |= mask;
        } else {
            taken[word] &= !mask;
        }
        at += bits;
    }
}

/// The runs of free units, in their order.
fn free_runs(taken: &Taken) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = first_bit(from, |word| !taken[word]);
        let end = free_end(taken, start);
        from = end;
        (start < UNITS).then_some(start..end)
    })
}

/// Where the run of free units ends that goes on at `unit`.
fn free_end(taken: &Taken, unit: usize) -> usize {
    first_bit(unit, |word| taken[word])
}

/// The first set bit at or behind `from`, or else [`UNITS`].
fn first_bit(from: usize, word_at: impl Fn(usize) -> u64) -> usize {
    let mut word = from / WORD_BITS;
    let mut cut = u64::MAX << (from % WORD_BITS);
    while word < UNITS / WORD_BITS {
        match word_at(word) & cut {
            0 => (word, cut) = (word + 1, u64::MAX),
            bits => return word * WORD_BITS + bits.trailing_zeros() as usize,
        }
    }
    UNITS
}

/// Where the run of free units begins that ends with the free unit `unit`.
fn free_begin(taken: &Taken, unit: usize) -> usize {
    let mut word = unit / WORD_BITS;
    let mut bits = taken[word] & (u64::MAX >> (WORD_BITS - 1 - unit % WORD_BITS));
    while bits == 0 && word > 0 {
        word -= 1;
        bits = taken[word];
    }
    if bits == 0 { 0 } else { word * WORD_BITS + WORD_BITS - bits.leading_zeros() as usize }
}
