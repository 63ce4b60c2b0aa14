//! What operators ask a running node for, and what it tells them unasked: the admin API, metrics,
//! status, alarms in the log.

pub(crate) mod alarms;
pub(crate) mod api;
pub(crate) mod guard;
mod listener;
mod metrics;
pub(crate) mod node_view;
mod process;
mod status;
