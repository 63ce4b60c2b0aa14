//! One core's clients for timestamps: connections, requests and the oracle behind them.

pub(crate) mod connection;
pub(crate) mod issuer;
pub(crate) mod server;
mod server_tls;
