//! What every part of a core works with in a turn: the time and the ring.

use crate::base::time::Now;
use crate::ring::Ring;

/// The time of a turn, and the ring that the turn writes to.
pub struct Io<'a> {
    /// When the turn began.
    pub now: Now,
    /// The ring of the core.
    pub ring: &'a mut Ring,
}
