//! What the control thread asks of running cores, over one bounded lock-free queue per core.

use std::sync::Arc;

use crate::cluster::view::View;

/// One request to every core.
#[derive(Clone, Debug)]
pub enum Command {
    /// A new configuration of the cluster (SIGHUP).
    View(Arc<View>),
    /// Compare all timers with everybody who is to hold them (SIGUSR1).
    Resynchronise,
}
