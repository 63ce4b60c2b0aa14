//! What test suites share. The kit knows nothing of the code under test: a suite gives the kit the
//! binary to start, and the types to simulate.

#![forbid(unsafe_code)]

pub mod callbacks;
pub mod children;
pub mod client;
pub mod documents;
pub mod faketime;
pub mod http;
pub mod mounts;
pub mod namespaces;
pub mod noise;
pub mod ports;
pub mod random;
pub mod runner;
pub mod simulator;
pub mod until;
