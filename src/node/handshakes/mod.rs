//! TLS handshakes of whoever connects to one core: clients of timers and of timestamps, and nodes.

pub(crate) mod queue;
pub(crate) mod secured;
