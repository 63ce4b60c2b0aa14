//! Records of one size in chunks: a slot never moves, growth allocates one chunk.

use crate::base::ids::Slot;

/// A slab of `T`.
pub struct Slab<T>(std::marker::PhantomData<T>);

impl<T: Copy> Slab<T> {
    /// Empty.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        todo!()
    }

    /// Stores `value`, in a freed slot if there is one. Bounded work (one chunk allocation at most).
    pub fn insert(&mut self, _value: T) -> Slot {
        todo!()
    }

    /// Frees an occupied slot and returns its value. Freeing twice is a bug and stops the node.
    pub fn remove(&mut self, _slot: Slot) -> T {
        todo!()
    }

    /// The value of an occupied slot.
    pub fn get(&self, _slot: Slot) -> &T {
        todo!()
    }

    /// The value of an occupied slot, to change.
    pub fn get_mut(&mut self, _slot: Slot) -> &mut T {
        todo!()
    }

    /// Whether a slot is occupied.
    pub fn contains(&self, _slot: Slot) -> bool {
        todo!()
    }

    /// Occupied slots in ascending order, from `from` on (for sweeps in portions).
    pub fn occupied_from(&self, _from: Slot) -> impl Iterator<Item = Slot> + '_ {
        std::iter::empty()
    }

    /// Occupied slots.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// None occupied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}
