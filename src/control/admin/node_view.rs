//! What the control thread knows of a running node: facts that do not change, the meters, and
//! whether the node still serves. The admin API gets a clone, so it never needs the node's handle.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::backups::BackupBoard;
#[cfg(test)]
use crate::cluster::view::View;
use crate::control::cluster::desk::ClusterDesk;
use crate::control::destinations::desk::DestinationDesk;
use crate::control::timestamp::board::TimestampBoard;
use crate::node::NodeHandle;
use crate::node::commands::Commander;
use crate::node::journal::backup::BackupError;
use crate::node::journal::segments::Backups;
use crate::node::list_orders::{ListOrder, Ordered};
use crate::node::meters::CoreMeters;
use crate::shard::effects::Answer;

/// Longest wait for figures of cores that hang.
const FIGURES_WAIT: Duration = Duration::from_millis(100);
/// How often the wait looks again. A core publishes within some tens of microseconds.
const FIGURES_PAUSE: Duration = Duration::from_millis(1);

/// Why a core has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Silence {
    /// The cores are too busy, or hang. What was asked for is not done, and will not be.
    #[error("the cores do not answer, and nothing was done; retry in a moment")]
    NotBegun,
    /// A core does it, but is not ready in time.
    #[error(
        "a core has begun with it and does not answer yet: it may be done, look before a retry"
    )]
    Begun,
}

/// Longest wait for a page of a list. A core ends it within 2 s.
const LIST_WAIT: Duration = Duration::from_secs(5);

/// The state of a node's life as the admin API shows it. A higher number is never taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NodeState {
    /// Every core serves.
    Serving = 0,
    /// The node was taken out of its cluster and refuses clients. It may be added again, so this
    /// state is read from the members and never set.
    Left = 1,
    /// An orderly stop has begun.
    Stopping = 2,
    /// A core has ended, although nobody had asked it to stop.
    Failed = 3,
}

impl NodeState {
    /// The word for this state in `/status` and `/readyz`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NodeState::Serving => "serving",
            NodeState::Left => "left",
            NodeState::Stopping => "stopping",
            NodeState::Failed => "failed",
        }
    }
}

/// The node as seen from outside its cores.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    /// Where clients connect.
    pub address: SocketAddr,
    /// The address for clients that speak TLS, if there is one.
    pub tls_address: Option<SocketAddr>,
    /// The address for clients of timestamps, if there is one.
    pub timestamp_address: Option<SocketAddr>,
    /// The address for clients of timestamps that speak TLS, if there is one.
    pub timestamp_tls_address: Option<SocketAddr>,
    /// The CPU cores that the shards are pinned to, in shard order. Empty when they are not pinned.
    pub cores: Vec<usize>,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Kernel features in use.
    pub kernel_features: Vec<&'static str>,
    /// The meters of each core. Only that core writes them.
    pub meters: Arc<[CoreMeters]>,
    /// Asks the cores for their figures; `None` in a view without a node.
    commander: Option<Commander>,
    /// When the start was complete.
    pub started: Instant,
    /// The cluster, and the orders that it takes.
    pub cluster: Arc<ClusterDesk>,
    /// What operators see of timestamps; `None` where they are not served.
    pub timestamps: Option<Arc<TimestampBoard>>,
    /// The rules of destinations.
    pub destinations: Arc<DestinationDesk>,
    /// Asks for backups of the journal; `None`: the node has none.
    backups: Option<Backups>,
    /// What became of the last one.
    pub backup_board: Arc<BackupBoard>,
    state: Arc<AtomicU8>,
}

impl NodeView {
    /// The view of a node that has just started.
    pub(crate) fn of(node: &NodeHandle) -> Self {
        Self {
            address: node.address,
            tls_address: node.tls_address,
            timestamp_address: node.timestamp_address,
            timestamp_tls_address: node.timestamp_tls_address,
            cores: node.cores.clone(),
            kernel_release: node.kernel.release.clone(),
            kernel_features: node.kernel.features.clone(),
            meters: Arc::clone(&node.meters),
            commander: Some(node.commander()),
            started: Instant::now(),
            cluster: Arc::new(ClusterDesk::of(node.view.clone(), Some(node.commander()))),
            timestamps: None,
            destinations: Arc::default(),
            backups: node.backups.clone(),
            backup_board: Arc::default(),
            state: Arc::default(),
        }
    }

    /// A view without a node, for tests of the texts that are made from a view.
    #[cfg(test)]
    pub(crate) fn with_meters(cores: Vec<usize>, shards: usize) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 7253)),
            tls_address: None,
            timestamp_address: None,
            timestamp_tls_address: None,
            cores,
            kernel_release: "6.1.0".into(),
            kernel_features: vec!["buffer rings"],
            meters: (0..shards).map(|_| CoreMeters::default()).collect(),
            commander: None,
            started: Instant::now(),
            cluster: Arc::new(ClusterDesk::of(Arc::new(View::alone("127.0.0.1:7253")), None)),
            timestamps: Some(Arc::new(TimestampBoard::new(Arc::default(), "file"))),
            destinations: Arc::default(),
            backups: None,
            backup_board: Arc::default(),
            state: Arc::default(),
        }
    }

    /// Waits until the meters show the present, so that whoever was answered finds his request
    /// counted. Figures of cores that hang stay old.
    pub(crate) async fn refresh(&self) {
        let Some(commander) = &self.commander else { return };
        let asked = commander.ask();
        let deadline = Instant::now() + FIGURES_WAIT;
        while !commander.have_told(&asked) && Instant::now() < deadline {
            tokio::time::sleep(FIGURES_PAUSE).await;
        }
    }

    /// Has a core put a page of a list or numbers together, or do something with a timer or a dead
    /// letter.
    pub(crate) async fn list(&self, what: Ordered) -> Result<Answer, Silence> {
        let order = Arc::new(ListOrder::new(what));
        let commander = self.commander.as_ref().ok_or(Silence::NotBegun)?;
        if !commander.list(Arc::clone(&order)) {
            return Err(Silence::NotBegun);
        }
        let deadline = Instant::now() + LIST_WAIT;
        loop {
            let is_over = Instant::now() >= deadline;
            match order.answer() {
                Some(answer) => return Ok(answer),
                None if is_over && order.give_up() => return Err(Silence::NotBegun),
                None if is_over => return Err(Silence::Begun),
                None => tokio::time::sleep(FIGURES_PAUSE).await,
            }
        }
    }

    /// Begins a backup of the journal in `directory`.
    pub(crate) async fn back_up(&self, directory: PathBuf) -> Result<(), BackupError> {
        let (Some(backups), Some(commander)) = (self.backups.clone(), self.commander.clone())
        else {
            return Err(BackupError::NoJournal);
        };
        self.backup_board.begin((backups, commander), directory).await
    }

    /// Whether the node serves, has left its cluster, stops or has failed.
    pub(crate) fn state(&self) -> NodeState {
        match self.state.load(Ordering::Relaxed) {
            0 if self.cluster.has_left() => NodeState::Left,
            0 => NodeState::Serving,
            1 | 2 => NodeState::Stopping,
            _ => NodeState::Failed,
        }
    }

    /// Sets the state in every clone of this view. A stop after a failure does not take the failure
    /// back.
    pub(crate) fn set_state(&self, state: NodeState) {
        self.state.fetch_max(state as u8, Ordering::Relaxed);
    }

    /// The label of a shard's meters: the core it is pinned to, or its index when not pinned.
    pub(crate) fn core_label(&self, shard: usize) -> usize {
        self.cores.get(shard).copied().unwrap_or(shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_outlives_the_stop_that_follows() {
        let view = NodeView::with_meters(vec![], 1);
        let clone = view.clone();
        assert_eq!(clone.state(), NodeState::Serving);
        view.set_state(NodeState::Failed);
        view.set_state(NodeState::Stopping);
        assert_eq!(clone.state(), NodeState::Failed);
    }

    #[test]
    fn labels_are_cores_when_pinned_and_shards_otherwise() {
        assert_eq!(NodeView::with_meters(vec![4, 2], 2).core_label(1), 2);
        assert_eq!(NodeView::with_meters(vec![], 2).core_label(1), 1);
    }
}
