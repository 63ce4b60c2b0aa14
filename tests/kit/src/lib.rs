//! What test suites share. The kit knows nothing of the code under test: a suite hands in the
//! binary that it starts, and the types that it simulates.

#![forbid(unsafe_code)]

pub mod documents;
