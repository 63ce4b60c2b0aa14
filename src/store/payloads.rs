//! Byte strings in size classes: a multiple of 16 bytes up to 1 KiB, then steps that waste at most an eighth; large ones on their own.
//! Equal payloads are not shared here.

/// Where a payload lies: 8 bytes, `Copy`. Freed exactly once by its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRef;

impl PayloadRef {
    /// The empty payload: takes no memory, freeing it does nothing.
    pub const EMPTY: PayloadRef = PayloadRef;
}

/// The payload arena of one shard.
pub struct Payloads;

impl Payloads {
    /// Empty.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        todo!()
    }

    /// Stores a copy of `bytes`. Bounded work (one chunk allocation at most).
    pub fn insert(&mut self, _bytes: &[u8]) -> PayloadRef {
        todo!()
    }

    /// The bytes.
    pub fn get(&self, _payload: PayloadRef) -> &[u8] {
        todo!()
    }

    /// Frees.
    pub fn remove(&mut self, _payload: PayloadRef) {
        todo!()
    }

    /// Bytes of classes in use (what the payloads cost), not of chunks reserved.
    pub fn used_bytes(&self) -> usize {
        todo!()
    }

    /// Bytes held from the allocator.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}
