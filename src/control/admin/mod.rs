//! What operators ask a running node for, and what the node tells them unasked: the admin API,
//! metrics, status, and alarms in the log.

pub(crate) mod alarms;
pub(crate) mod api;
pub(crate) mod doors;
pub(crate) mod guard;
pub(crate) mod listener;
mod metrics;
pub(crate) mod node_view;
mod process;
mod status;
mod timers;
