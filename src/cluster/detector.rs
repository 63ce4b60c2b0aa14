//! Whether a peer lives, from when it was last heard; and when to dial it.
//!
//! Alive until it has been silent for `suspect_after_ms`, then suspected (writes no longer wait for
//! it), after `dead_after_ms` dead (others move up for it). A connection that breaks, or a dial
//! that is refused, makes it suspected at once.

use crate::base::limits::ClusterLimits;
use crate::base::time::MonoNs;

/// What is believed of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Liveness {
    /// Heard of within `suspect_after_ms`.
    Alive,
    /// Silent for longer, or its connection broke; or never heard of yet.
    Suspect,
    /// Silent for `dead_after_ms`.
    Dead,
}

/// The detector and dialler of one peer.
#[derive(Clone, Copy, Debug)]
pub struct Detector {
    heard_at: MonoNs,
    liveness: Liveness,
}

/// What to do about a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is believed of it changed to this.
    pub changed: Option<Liveness>,
    /// Dial it now.
    pub dial: bool,
    /// Close the connection: the peer has been silent on it until it was declared dead.
    pub close: bool,
}

impl Detector {
    /// A peer never heard of: suspected, dead `dead_after_ms` from now unless it is heard.
    pub fn new(now: MonoNs) -> Self {
        Self { heard_at: now, liveness: Liveness::Suspect }
    }

    /// What is believed now.
    pub fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Time passed.
    pub fn tick(&mut self, now: MonoNs, limits: &ClusterLimits) -> Verdict {
        let _ = (now, limits, self.heard_at);
        todo!()
    }

    /// A dial succeeded.
    pub fn connected(&mut self, now: MonoNs) -> Verdict {
        let _ = now;
        todo!()
    }

    /// Bytes came over the connection.
    pub fn heard(&mut self, now: MonoNs) -> Verdict {
        let _ = now;
        todo!()
    }

    /// A dial failed, or the connection broke: suspected at once, dialled again after a pause (50
    /// ms, doubled to 500 ms, spread by `spread`).
    pub fn lost(&mut self, now: MonoNs, spread: u64) -> Verdict {
        let _ = (now, spread);
        todo!()
    }

    /// When [`Detector::tick`] should next be called.
    pub fn next_wake(&self, limits: &ClusterLimits) -> MonoNs {
        let _ = limits;
        todo!()
    }
}
