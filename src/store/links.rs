//! One pair of links and one due tick per slot. The wheel and first-in-first-out lists share these
//! links. A slot is in at most one list, because it has one pair of links and carries the name of
//! the place that it is in; every move asserts that name. This file does not know what a slot
//! stands for.

// May panic: assertions 8, indices 5.
// Why it does not: listed 12, compiled 1.

use std::ops::Range;
use std::sync::Arc;

use super::directory::Directory;
use super::source::Source;
use crate::base::ids::Slot;

/// Links of one chunk: 1024 x 16 B = 16 KiB. A chunk is one allocation, filled as slots are handed
/// out. The allocator loses one block of each page of 512 KiB, so the blocks are small.
const CHUNK_SLOTS_LOG2: u32 = 10;
const CHUNK_SLOTS: usize = 1 << CHUNK_SLOTS_LOG2;

/// Stands for no slot. The slab never hands out this number.
pub(super) const NIL: u32 = u32::MAX;

/// The place of a slot that is in no list.
pub(super) const PLACE_NONE: u16 = 0;
/// The place of a slot that is in a [`Fifo`]. Every other place names a bucket of the wheel,
/// counted from 1.
pub(super) const PLACE_FIFO: u16 = u16::MAX;

/// Bits of a link that hold the due tick: 2^48 ms are 8 900 years.
const DUE_BITS: u32 = 48;
/// The latest due tick that a link can hold. A later tick counts as this tick.
pub(super) const DUE_MAX: u64 = (1 << DUE_BITS) - 1;

/// The links of one slot.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The due tick in the low 48 bits, the place in the high 16.
    due_and_place: u64,
    next: u32,
    prev: u32,
}

const _: () = assert!(size_of::<Link>() == 16, "the memory budget gives a slot 16 bytes of links");

impl Link {
    const UNUSED: Link = Link { due_and_place: 0, next: NIL, prev: NIL };

    fn place(&self) -> u16 {
        (self.due_and_place >> DUE_BITS) as u16
    }

    fn set_place(&mut self, place: u16) {
        self.due_and_place = self.due_and_place & DUE_MAX | u64::from(place) << DUE_BITS;
    }
}

/// Link memory for all slots of a shard, in chunks: 16 bytes a slot (due tick 48 bits, place 16,
/// next 32, prev 32). One wheel and any number of [`Fifo`]s share it.
pub struct Links {
    chunks: Directory<Vec<Link>>,
    source: Arc<Source<Link>>,
    /// Chunks that have memory.
    chunks_held: usize,
}

impl From<Arc<Source<Link>>> for Links {
    /// Links without any slot that take their chunks from `source`.
    fn from(source: Arc<Source<Link>>) -> Self {
        Self { chunks: Directory::new(), source, chunks_held: 0 }
    }
}

impl Links {
    /// Links of a chunk.
    pub const CHUNK_LEN: usize = CHUNK_SLOTS;

    /// Links without any slot.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::from(Source::none(CHUNK_SLOTS))
    }

    /// Makes room for `slot`, which starts in no list. Call this when the slab hands out a slot.
    /// Cost: one comparison if there is room; one chunk at most if the call comes for
    /// every slot in turn.
    #[inline]
    pub fn ensure(&mut self, slot: Slot) {
        let chunk = slot.index() >> CHUNK_SLOTS_LOG2;
        let held = self.chunks.get(chunk).map_or(0, Vec::len);
        if held <= slot.index() % CHUNK_SLOTS {
            self.grow(slot);
        }
    }

    /// Whether `slot` is in the wheel or in a [`Fifo`].
    #[inline]
    pub fn is_linked(&self, slot: Slot) -> bool {
        self.at(slot).place() != PLACE_NONE
    }

    /// Whether `slot` is in a [`Fifo`].
    #[inline]
    pub fn is_in_fifo(&self, slot: Slot) -> bool {
        self.at(slot).place() == PLACE_FIFO
    }

    /// Whether `slot` is in the wheel.
    #[inline]
    pub fn is_in_wheel(&self, slot: Slot) -> bool {
        self.is_linked(slot) && !self.is_in_fifo(slot)
    }

    /// Bytes of memory, as reserved.
    pub fn bytes(&self) -> usize {
        self.chunks.bytes() + self.chunks_held * CHUNK_SLOTS * size_of::<Link>()
    }

    /// Gives back the chunks of slots that are in no list and have no records. Each of them is to
    /// be [ensured](Self::ensure) before it is used again. Chunks with other slots stay.
    #[cold]
    pub fn release(&mut self, slots: Range<u32>) {
        let first = (slots.start as usize).div_ceil(CHUNK_SLOTS);
        for chunk_at in first..slots.end as usize / CHUNK_SLOTS {
            let chunk = self.chunks.get_mut(chunk_at).map(std::mem::take).unwrap_or_default();
            let is_unlinked = |link: &Link| link.place() == PLACE_NONE;
            assert!(chunk.iter().all(is_unlinked), "a slot is given back that is in a list");
            self.give_back(chunk);
        }
    }

    fn give_back(&mut self, mut chunk: Vec<Link>) {
        if chunk.capacity() > 0 {
            chunk.clear();
            self.chunks_held -= 1;
            self.source.give_back(chunk);
        }
    }

    #[cold]
    fn grow(&mut self, slot: Slot) {
        assert!(slot.0 != NIL, "the last u32 means 'no slot'");
        let (chunk_at, at) = (slot.index() >> CHUNK_SLOTS_LOG2, slot.index() % CHUNK_SLOTS);
        while self.chunks.len() <= chunk_at {
            let mut chunk = self.source.take();
            let slots = if self.chunks.len() < chunk_at { CHUNK_SLOTS } else { 0 };
            chunk.resize(slots, Link::UNUSED);
            self.chunks.push(chunk);
            self.chunks_held += 1;
        }
        let chunk = &mut self.chunks[chunk_at];
        if chunk.capacity() == 0 {
            *chunk = self.source.take();
            self.chunks_held += 1;
        }
        chunk.resize(at + 1, Link::UNUSED);
    }

    #[inline]
    fn at(&self, slot: Slot) -> &Link {
        &self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS]
    }

    #[inline]
    fn at_mut(&mut self, slot: Slot) -> &mut Link {
        &mut self.chunks[slot.index() >> CHUNK_SLOTS_LOG2][slot.index() % CHUNK_SLOTS]
    }

    #[inline]
    pub(super) fn place(&self, slot: Slot) -> u16 {
        self.at(slot).place()
    }

    /// The due tick and the place of a slot, from one memory access.
    #[inline]
    pub(super) fn due_and_place(&self, slot: Slot) -> (u64, u16) {
        let link = self.at(slot);
        (link.due_and_place & DUE_MAX, link.place())
    }

    #[inline]
    pub(super) fn set_due(&mut self, slot: Slot, due: u64) {
        let link = self.at_mut(slot);
        link.due_and_place = link.due_and_place & !DUE_MAX | due.min(DUE_MAX);
    }

    /// Puts a slot that is in no list before `head`, which may be [`NIL`], and writes its due tick.
    /// Panics if the slot is in a list.
    #[inline]
    pub(super) fn attach_front(&mut self, slot: Slot, place: u16, due: u64, head: u32) {
        let link = self.at_mut(slot);
        assert!(link.place() == PLACE_NONE, "slot {} is in a list already", slot.0);
        *link = Link {
            due_and_place: due.min(DUE_MAX) | u64::from(place) << DUE_BITS,
            next: head,
            prev: NIL,
        };
        if head != NIL {
            self.at_mut(Slot(head)).prev = slot.0;
        }
    }

    /// Puts a slot that is in no list behind `tail`, which may be [`NIL`]. Panics if the slot is in
    /// a list.
    #[inline]
    fn attach_back(&mut self, slot: Slot, place: u16, tail: u32) {
        let link = self.at_mut(slot);
        assert!(link.place() == PLACE_NONE, "slot {} is in a list already", slot.0);
        link.set_place(place);
        link.next = NIL;
        link.prev = tail;
        if tail != NIL {
            self.at_mut(Slot(tail)).next = slot.0;
        }
    }

    /// Takes a slot out from between its neighbours. Where a neighbour is [`NIL`], the caller must
    /// correct the head or the tail of the list.
    #[inline]
    pub(super) fn detach(&mut self, slot: Slot) -> Neighbours {
        let link = self.at_mut(slot);
        let Link { next, prev, .. } = *link;
        link.set_place(PLACE_NONE);
        if next != NIL {
            self.at_mut(Slot(next)).prev = prev;
        }
        if prev != NIL {
            self.at_mut(Slot(prev)).next = next;
        }
        Neighbours { prev, next }
    }
}

/// The slots before and behind a slot that was taken out; [`NIL`] at an end.
pub(super) struct Neighbours {
    pub(super) prev: u32,
    pub(super) next: u32,
}

/// A first-in-first-out list of slots, with removal from the middle. A list does not change due
/// ticks.
#[derive(Debug)]
pub struct Fifo {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Fifo {
    /// An empty list.
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }

    /// Appends a slot. Panics if the slot is in a list.
    #[inline]
    pub fn push_back(&mut self, links: &mut Links, slot: Slot) {
        links.attach_back(slot, PLACE_FIFO, self.tail);
        if self.tail == NIL {
            self.head = slot.0;
        }
        self.tail = slot.0;
        self.len += 1;
    }

    /// Takes the oldest slot; `None`: the list is empty.
    #[inline]
    pub fn pop_front(&mut self, links: &mut Links) -> Option<Slot> {
        let oldest = self.front()?;
        self.remove(links, oldest);
        Some(oldest)
    }

    /// The oldest slot, which stays in the list.
    #[inline]
    pub fn front(&self) -> Option<Slot> {
        (self.head != NIL).then_some(Slot(self.head))
    }

    /// Takes `slot`, which must be in this list. Panics if the slot is in no [`Fifo`], or has no
    /// neighbour on a side without being at that end of this list. A slot in the middle of another
    /// list is not noticed.
    #[inline]
    pub fn remove(&mut self, links: &mut Links, slot: Slot) {
        assert!(
            links.place(slot) == PLACE_FIFO,
            "slot {} is in no first-in-first-out list",
            slot.0
        );
        let Neighbours { prev, next } = links.detach(slot);
        if prev == NIL {
            assert!(self.head == slot.0, "slot {} heads another list", slot.0);
            self.head = next;
        }
        if next == NIL {
            assert!(self.tail == slot.0, "slot {} ends another list", slot.0);
            self.tail = prev;
        }
        self.len -= 1;
    }

    /// How many slots the list has.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the list has no slot.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::base::time::Tick;
    use crate::store::wheel::{Geometry, Wheel};

    const SLOTS: u32 = 24;

    fn links_for(slots: u32) -> Links {
        let mut links = Links::new();
        links.ensure(Slot(slots - 1));
        links
    }

    #[test]
    #[should_panic(expected = "in a list already")]
    fn a_slot_cannot_enter_a_second_list() {
        let mut links = links_for(4);
        Fifo::new().push_back(&mut links, Slot(1));
        Fifo::new().push_back(&mut links, Slot(1));
    }

    #[test]
    #[should_panic(expected = "in no first-in-first-out list")]
    fn a_slot_in_the_wheel_cannot_leave_a_list() {
        let mut links = links_for(4);
        let mut wheel = Wheel::new(Geometry::TINY, Tick(0));
        wheel.insert(&mut links, Slot(2), Tick(5));
        Fifo::new().remove(&mut links, Slot(2));
    }

    #[test]
    #[should_panic(expected = "heads another list")]
    fn a_slot_cannot_leave_a_list_it_is_not_in() {
        let mut links = links_for(4);
        let (mut one, mut other) = (Fifo::new(), Fifo::new());
        one.push_back(&mut links, Slot(1));
        other.push_back(&mut links, Slot(2));
        other.remove(&mut links, Slot(1));
    }

    #[test]
    fn memory_is_sixteen_bytes_a_slot_and_grows_by_one_chunk() {
        let mut links = Links::new();
        for slot in 0..3 * CHUNK_SLOTS as u32 {
            let before = links.bytes();
            links.ensure(Slot(slot));
            assert!(links.bytes() - before <= CHUNK_SLOTS * 16 + 256);
        }
        assert_eq!(links.bytes(), 3 * CHUNK_SLOTS * 16 + 2 * 4 * 24);
    }

    #[test]
    fn where_there_is_room_none_is_made() {
        let mut links = links_for(CHUNK_SLOTS as u32 + 7);
        let (bytes, slots) = (links.bytes(), [0, CHUNK_SLOTS as u32 - 1, CHUNK_SLOTS as u32 + 6]);
        for _ in 0..CHUNK_SLOTS {
            slots.into_iter().for_each(|slot| links.ensure(Slot(slot)));
        }
        assert_eq!(links.bytes(), bytes);
    }

    #[test]
    fn the_chunks_of_slots_without_records_go_back_and_come_again() {
        let mut links = links_for(4 * CHUNK_SLOTS as u32);
        let full = links.bytes();
        let slots = CHUNK_SLOTS as u32..3 * CHUNK_SLOTS as u32;
        links.release(slots.start - 5..slots.end + 5);
        assert_eq!(full - links.bytes(), 2 * CHUNK_SLOTS * 16, "chunks with other slots stay");
        for slot in slots.map(Slot) {
            links.ensure(slot);
            assert!(!links.is_linked(slot));
        }
        assert_eq!(links.bytes(), full);
    }

    #[test]
    #[should_panic(expected = "a slot is given back that is in a list")]
    fn a_slot_in_a_list_is_not_given_back() {
        let mut links = links_for(CHUNK_SLOTS as u32);
        Fifo::new().push_back(&mut links, Slot(3));
        links.release(0..CHUNK_SLOTS as u32);
    }

    proptest! {
           /// Slots move between the wheel and two lists. Each slot is in one place only, and lists
           /// keep their order.
           #[test]
           fn wheel_and_lists_share_links(
               steps in prop::collection::vec((0_u8..4, 0_u32..SLOTS, 0_usize..2), 1..300)
           ) {
               let mut links = links_for(SLOTS);
               let mut wheel = Wheel::new(Geometry::TINY, Tick(0));
               let mut lists = [Fifo::new(), Fifo::new()];
               let mut models = [VecDeque::new(), VecDeque::new()];
               for (step, slot, list) in steps {
                   let slot = Slot(slot);
                   let held = (0..2).find(|&l: &usize| models[l].contains(&slot));
                   match (step, held, links.is_in_wheel(slot)) {
                       (0, None, false) => {
                           lists[list].push_back(&mut links, slot);
                           models[list].push_back(slot);
                       }
                       (1, None, false) => wheel.insert(&mut links, slot, Tick(u64::from(slot.0))),
                       (2, Some(list), _) => {
                           lists[list].remove(&mut links, slot);
                           models[list].retain(|&other| other != slot);
                       }
                       (2, None, true) => wheel.remove(&mut links, slot),
                       (3, ..) => {
                           let oldest = lists[list].pop_front(&mut links);
    prop_assert_eq!(oldest, models[list].pop_front());
                       }
                       _ => {}
                   }
                   for list in 0..2 {
                       prop_assert_eq!(lists[list].len() as usize, models[list].len());
                       prop_assert_eq!(lists[list].front(), models[list].front().copied());
                   }
                   let wheeled = (0..SLOTS).filter(|&s| links.is_in_wheel(Slot(s))).count();
                   prop_assert_eq!(wheel.len(), wheeled as u64);
               }
           }
       }
}
