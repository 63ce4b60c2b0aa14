//! What simulators share: chance, clocks, callback hosts, traces, and the ways to use a simulator:
//! walk over seeds, shorten a story that fails, find planted bugs. Each simulator has its own
//! options, story and run.

pub mod callback_world;
pub mod disk;
pub mod mono_clock;
pub mod planted;
pub mod random;
pub mod seeds;
pub mod shrink;
pub mod store;
pub mod story;
pub mod trace;
