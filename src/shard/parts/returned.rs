//! What a core that began with a journal knows of its last process.

use ahash::AHashSet;

use crate::base::ids::PeerSet;
use crate::base::time::WallMs;

/// Timers that peers have told of since the start and that are remembered. Above this no timer is
/// ended.
pub const TOLD_MAX: usize = 100_000;

/// What this core knows of its last process, and was told since.
#[derive(Clone, Debug)]
pub struct Return {
    /// When the last process was alive for certain, by its own clock.
    pub seen_at: WallMs,
    /// Nodes that may have missed something when the last process died.
    pub lacking: PeerSet,
    /// Timers that a peer has told of, and may have handed over to this node since.
    pub told: AHashSet<u64>,
}
