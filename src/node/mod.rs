//! One thread per core drives ring and shard: the loop turn, the mesh between cores, client connections, callback lanes.

pub mod meters;
pub mod settings;

use std::net::SocketAddr;
use std::sync::Arc;

use meters::CoreMeters;
use settings::NodeSettings;

/// Why a node does not start; the text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ring cannot be made.
    #[error(transparent)]
    Ring(#[from] crate::ring::RingError),
    /// The listening socket cannot be opened.
    #[error(
        "cannot listen on {address}: {source}. Is another node running there? Choose another address with --listen or [node] listen"
    )]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A core that the machine does not have, or a thread that cannot be started.
    #[error("{0}")]
    Cores(String),
}

/// A running node. Dropping it without [`NodeHandle::stop`] leaves the threads running.
pub struct NodeHandle {
    /// The address that all cores listen on (with the port taken when 0 was asked for).
    pub address: SocketAddr,
    /// One per core.
    pub meters: Arc<[CoreMeters]>,
    /// The cores pinned to, in shard order; empty when not pinned.
    pub cores: Vec<usize>,
    /// What the kernel offers.
    pub kernel: crate::ring::KernelSupport,
}

impl NodeHandle {
    /// Begins an orderly stop: no new connection, no new work, running callbacks finish (at most 2 s). Returns at once.
    pub fn stop(&self) {
        todo!()
    }

    /// Waits until every core has stopped. `Err` tells which core stopped on a broken invariant.
    pub fn join(self) -> Result<(), String> {
        todo!()
    }

    /// Whether a core has ended without having been asked to (a broken invariant).
    pub fn has_failed(&self) -> bool {
        todo!()
    }
}

/// Starts a node: probes the kernel, opens the listeners, starts and pins one thread per shard, returns when all serve.
pub fn start(_settings: &NodeSettings) -> Result<NodeHandle, StartError> {
    todo!()
}
