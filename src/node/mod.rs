//! One thread per core drives ring and core: client connections, callbacks, connections with peers,
//! timestamps, and the control thread's commands.

mod buffer_pool;
pub mod callbacks;
pub(crate) mod clients;
pub mod commands;
mod core_loop;
pub(crate) mod deadlines;
pub(crate) mod destinations;
mod engine;
mod files;
pub(crate) mod give_ups;
pub(crate) mod handshakes;
pub(crate) mod io;
pub mod journal;
pub(crate) mod list_orders;
mod memory_ahead;
pub(crate) mod meters;
pub(crate) mod owner;
pub(crate) mod peers;
mod publish;
pub(crate) mod resolver;
pub mod settings;
mod start;
pub(crate) mod tag_feed;
pub(crate) mod timestamps;
pub(crate) mod watchdog;

pub use files::FileShares;
pub use meters::CoreMeters;
pub use start::{NodeHandle, StartError, start};
