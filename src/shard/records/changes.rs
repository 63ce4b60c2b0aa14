//! Which records have changed since the journal last heard of them. A slot is noted once however
//! often its record changes, so there are never more notes than slots and forgotten timers. Without
//! a journal nothing is noted.

// May panic: indices 7.
// Why it does not: found 1, fixed 6.

use std::collections::VecDeque;

use crate::base::ids::{Slot, TimerId};
use crate::journal::{Position, SegmentNumber};

/// The journal is to have the whole record.
const WHOLE: u8 = 1;
/// The journal is to have how many pops are done and who acts.
const PROGRESS: u8 = 2;

/// Slots of a chunk: 10 KiB.
const CHUNK_SLOTS: usize = 2_048;

/// What the journal is to hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The record at this slot, as a whole.
    Whole(Slot),
    /// How far the record at this slot is.
    Progress(Slot),
    /// This timer is not held any more: other nodes hold it, or it ended so long ago that its
    /// tombstone is gone, too.
    Forgotten(TimerId),
}

#[derive(Clone, Copy, Debug)]
enum Note {
    Slot(Slot),
    Forgotten(TimerId),
}

/// The changes that the journal has not heard of, in their order.
#[derive(Debug, Default)]
pub struct Changes {
    is_on: bool,
    /// How many changes were noted.
    noted: u64,
    /// What is to be told, each with the number of the change that put it here.
    queue: VecDeque<(u64, Note)>,
    /// By slot, in chunks, so that growth copies nothing.
    chunks: Vec<Box<Chunk>>,
}

/// What is known of the slots of a chunk.
#[derive(Clone, Debug)]
struct Chunk {
    /// What the journal is to hear of each slot; 0: nothing.
    marks: [u8; CHUNK_SLOTS],
    /// The oldest segment that each slot's record needs.
    homes: [u32; CHUNK_SLOTS],
}

impl Changes {
    /// From now on changes are noted.
    pub fn turn_on(&mut self) {
        self.is_on = true;
    }

    /// The position of the last change.
    #[inline]
    pub fn position(&self) -> Position {
        Position(self.noted)
    }

    /// Changes up to this position have been taken.
    pub fn taken(&self) -> Position {
        Position(self.queue.front().map_or(self.noted, |(number, _)| number - 1))
    }

    /// Notes that a record is new or another.
    #[inline]
    pub fn whole(&mut self, slot: Slot) {
        if self.is_on {
            self.note(slot, WHOLE);
        }
    }

    /// Notes that pops of a timer are done, or that other ranks act.
    #[inline]
    pub fn progress(&mut self, slot: Slot) {
        if self.is_on {
            self.note(slot, PROGRESS);
        }
    }

    /// Notes that a timer is not held any more.
    pub fn forgotten(&mut self, id: TimerId) {
        if self.is_on {
            self.noted += 1;
            self.queue.push_back((self.noted, Note::Forgotten(id)));
        }
    }

    fn note(&mut self, slot: Slot, what: u8) {
        self.noted += 1;
        let mark = &mut self.chunk(slot).marks[slot.index() % CHUNK_SLOTS];
        let is_new = *mark == 0;
        *mark |= what;
        if is_new {
            self.queue.push_back((self.noted, Note::Slot(slot)));
        }
    }

    /// Whether the journal has not heard yet what the record at a slot is.
    pub fn is_pending(&self, slot: Slot) -> bool {
        let chunk = self.chunks.get(slot.index() / CHUNK_SLOTS);
        chunk.is_some_and(|chunk| chunk.marks[slot.index() % CHUNK_SLOTS] != 0)
    }

    /// The slot of the first change; `None`: no record is needed to tell of it.
    pub fn first_slot(&self) -> Option<Slot> {
        match self.queue.front() {
            Some((_, Note::Slot(slot))) => Some(*slot),
            _ => None,
        }
    }

    /// Whether the journal has not heard of the record at a slot as a whole.
    pub fn is_whole_pending(&self, slot: Slot) -> bool {
        let chunk = self.chunks.get(slot.index() / CHUNK_SLOTS);
        chunk.is_some_and(|chunk| chunk.marks[slot.index() % CHUNK_SLOTS] & WHOLE != 0)
    }

    /// Takes the first change. What it tells of is the record as it is now.
    pub fn take(&mut self) -> Option<Change> {
        let (_, note) = self.queue.pop_front()?;
        Some(match note {
            Note::Forgotten(id) => Change::Forgotten(id),
            Note::Slot(slot) => {
                let mark = &mut self.chunk(slot).marks[slot.index() % CHUNK_SLOTS];
                match std::mem::take(mark) & WHOLE {
                    0 => Change::Progress(slot),
                    _ => Change::Whole(slot),
                }
            }
        })
    }

    /// Whether the journal is to hear of something.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Notes the segment that has the whole record of a slot.
    pub fn stands_in(&mut self, slot: Slot, segment: SegmentNumber) {
        self.chunk(slot).homes[slot.index() % CHUNK_SLOTS] = segment.0 as u32;
    }

    /// Whether the record of a slot needs a segment, or an older one.
    pub fn needs(&self, slot: Slot, segment: SegmentNumber) -> bool {
        let chunk = self.chunks.get(slot.index() / CHUNK_SLOTS);
        chunk.is_some_and(|chunk| chunk.homes[slot.index() % CHUNK_SLOTS] <= segment.0 as u32)
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<(u64, Note)>() + self.chunks.len() * size_of::<Chunk>()
    }

    fn chunk(&mut self, slot: Slot) -> &mut Chunk {
        let at = slot.index() / CHUNK_SLOTS;
        while self.chunks.len() <= at {
            self.chunks.push(Box::new(Chunk { marks: [0; CHUNK_SLOTS], homes: [0; CHUNK_SLOTS] }));
        }
        &mut self.chunks[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_told_once_with_all_that_changed() {
        let mut changes = Changes::default();
        changes.whole(Slot(1));
        assert!(changes.is_empty(), "it is off");
        changes.turn_on();
        changes.progress(Slot(1));
        changes.progress(Slot(2));
        changes.whole(Slot(1));
        changes.forgotten(TimerId(9));
        changes.progress(Slot(2));
        assert_eq!((changes.position(), changes.taken()), (Position(5), Position(0)));
        assert_eq!(changes.take(), Some(Change::Whole(Slot(1))));
        assert_eq!(changes.taken(), Position(1), "the change 3 is in it, the change 2 is not");
        assert_eq!(changes.take(), Some(Change::Progress(Slot(2))));
        assert_eq!(changes.taken(), Position(3));
        assert_eq!(changes.take(), Some(Change::Forgotten(TimerId(9))));
        assert_eq!(changes.taken(), Position(5));
        assert_eq!(changes.take(), None);
    }

    #[test]
    fn a_slot_needs_the_segment_that_it_stands_in_and_all_after_it_do_without() {
        let mut changes = Changes::default();
        changes.turn_on();
        assert!(!changes.is_pending(Slot(70)));
        changes.whole(Slot(70));
        assert!(changes.is_pending(Slot(70)));
        changes.stands_in(Slot(70), SegmentNumber(5));
        assert!(changes.needs(Slot(70), SegmentNumber(5)));
        assert!(!changes.needs(Slot(70), SegmentNumber(4)));
        assert!(!changes.needs(Slot(90_000), SegmentNumber(4)), "no record was there");
    }
}
