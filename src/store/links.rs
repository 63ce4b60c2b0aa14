//! One pair of links and one due tick per slot, shared by the wheel and by first-in-first-out lists:
//! a slot is in at most one of them, by construction.

use crate::base::ids::Slot;

/// Link memory for all slots of a shard, in chunks (16 bytes a slot: due 48 bits + list tag 16 bits, next u32, prev u32, or better).
pub struct Links;

impl Links {
    /// No slot yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        todo!()
    }

    /// Makes room for `slot` (call when the slab hands out a slot beyond all earlier ones). Bounded work.
    pub fn ensure(&mut self, _slot: Slot) {
        todo!()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}

/// A first-in-first-out list of slots, with removal from the middle.
#[derive(Debug, Default)]
pub struct Fifo;

impl Fifo {
    /// An empty list.
    pub fn new() -> Self {
        todo!()
    }

    /// Appends a slot that is in no list.
    pub fn push_back(&mut self, _links: &mut Links, _slot: Slot) {
        todo!()
    }

    /// Takes the oldest.
    pub fn pop_front(&mut self, _links: &mut Links) -> Option<Slot> {
        todo!()
    }

    /// Takes `slot`, which must be in this list.
    pub fn remove(&mut self, _links: &mut Links, _slot: Slot) {
        todo!()
    }

    /// The oldest, left where it is.
    pub fn front(&self) -> Option<Slot> {
        todo!()
    }

    /// How many.
    pub fn len(&self) -> u32 {
        todo!()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
