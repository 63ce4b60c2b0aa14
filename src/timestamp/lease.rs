//! How long a master may answer without hearing from `ZooKeeper`.
//!
//! The session is taken away by the leader of the ensemble, which counts from when it last heard of
//! the session. It hears of sessions that live on other servers with their pings, each half tick
//! (a session lasts at least two ticks, so that this is at most a quarter of it), and a server that
//! is cut off from its leader answers reads and pings for a while. So only writes count, which the
//! leader has seen, and an acknowledged write proves that the leader has been told of what this
//! session sent a quarter of the session before that write was sent. From there the session lasts
//! its whole length. A twentieth is kept back for clocks that differ in speed.

use crate::base::time::MonoNs;

/// What a session has proved.
#[derive(Clone, Debug)]
pub struct Lease {
    session_ms: u64,
    /// The leader had heard of the session at this time or later.
    proved: MonoNs,
    /// Times at which writes were sent that have been acknowledged, in order, all after `proved`.
    sent: std::collections::VecDeque<MonoNs>,
}

impl Lease {
    /// A session was made by a request that was sent at `sent`.
    pub fn begin(_sent: MonoNs, _session_ms: u64) -> Self {
        todo!()
    }

    /// A write that was sent at `sent` has been acknowledged.
    pub fn acknowledged(&mut self, _sent: MonoNs) {
        todo!()
    }

    /// When the master stops answering.
    pub fn until(&self) -> MonoNs {
        todo!()
    }
}
