//! What test suites share. The kit knows nothing of the code under test: a suite hands in the
//! binary that it starts, and the types that it simulates.

#![forbid(unsafe_code)]

pub mod callbacks;
pub mod children;
pub mod client;
pub mod documents;
pub mod http;
pub mod noise;
pub mod ports;
pub mod random;
pub mod runner;
pub mod simulator;
pub mod until;
