//! What a core that began with a journal was told by the original nodes that it reads.

use ahash::AHashSet;

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::time::{Tick, WallMs};

/// For how long after a start timers wait for originals to be read.
const PATIENCE_MS: u64 = 10_000;

/// Since the start: which originals were read, and what they listed.
#[derive(Clone, Debug)]
pub struct Readings {
    /// When the last process was alive for certain, by its own clock.
    pub seen_at: WallMs,
    /// Nodes that may have missed something when the last process died.
    pub lacking: PeerSet,
    /// When this core began.
    pub began_at: Tick,
    /// Originals that were read from the first page to the last.
    pub read: PeerSet,
    /// Timers that originals have told of.
    listed: AHashSet<u64>,
    /// Sets of originals, of each of which one at least has run since before the last process died.
    running: Vec<PeerSet>,
    /// Once all were read: the records from this slot on are still to be looked at.
    pub next: Option<Slot>,
}

impl Readings {
    /// A core that begins at `began_at` with what a journal has.
    pub fn new(seen_at: WallMs, lacking: PeerSet, began_at: Tick) -> Self {
        Self {
            seen_at,
            lacking,
            began_at,
            read: PeerSet::EMPTY,
            listed: AHashSet::new(),
            running: Vec::new(),
            next: None,
        }
    }

    /// Notes that an original has told of a live timer.
    pub fn note_listed(&mut self, id: TimerId) {
        self.listed.insert(id.0);
    }

    /// Whether an original has told of a timer.
    pub fn is_listed(&self, id: TimerId) -> bool {
        self.listed.contains(&id.0)
    }

    /// Notes originals that alone could keep something over the death of the last process, and that
    /// have kept it.
    pub fn note_running(&mut self, originals: PeerSet) {
        let is_known = self.running.iter().any(|known| known.minus(originals).is_empty());
        if !is_known && !originals.is_empty() {
            self.running.push(originals);
        }
    }

    /// Whether one of `originals`, none of which is in `doubtful`, has run since before the last
    /// process died.
    pub fn has_run(&self, originals: PeerSet, doubtful: PeerSet) -> bool {
        self.running
            .iter()
            .any(|set| set.minus(originals).is_empty() && set.intersection(doubtful).is_empty())
    }

    /// Whether timers have waited for as long as they may.
    pub fn is_over(&self, tick: Tick) -> bool {
        self.next.is_none() && tick - self.began_at >= PATIENCE_MS
    }
}
