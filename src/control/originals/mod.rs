//! Timers of original nodes: read over HTTP, understood, and given to the cores.

mod page;
mod plan;
pub(crate) mod reader;
