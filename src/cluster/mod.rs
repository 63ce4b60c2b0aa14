//! Who holds what, who lives, and how nodes talk, as pure functions and state machines.
//!
//! - Placement and filters: `view`, `placement`, `murmur3`, `bloom`.
//! - Failure detection: `detector`.
//! - Reliable links: `link`.
//! - Clocks of other nodes: `clock_offset`, `wall_clocks`, `calendar_clock`.

pub mod bloom;
pub(crate) mod calendar_clock;
pub(crate) mod clock_offset;
pub mod detector;
pub mod link;
pub mod murmur3;
pub(crate) mod rendezvous;
pub mod view;
pub(crate) mod wall_clocks;

#[cfg(test)]
mod view_tests;
