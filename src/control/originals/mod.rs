//! Timers of original nodes: they are read over HTTP, interpreted, and given to the cores.

mod page;
mod plan;
pub(crate) mod reader;
