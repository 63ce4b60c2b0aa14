//! The `connection` of a requester that is no client, by where the answer goes. No client has these
//! numbers.

/// What a core gathers of all shards.
pub const GATHERED: u32 = u32::MAX;
/// Parts of lists and numbers, which a core puts together.
pub const LISTED: u32 = u32::MAX - 1;
/// What the control thread asked for.
pub const ORDERED: u32 = u32::MAX - 2;
/// What jobs asked for.
pub const JOBBED: u32 = u32::MAX - 3;
/// What became of the dead letters of a page.
pub const LETTERS: u32 = u32::MAX - 4;
