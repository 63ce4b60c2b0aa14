//! One of several servers. `ZooKeeper` makes one of them the master (layout and formats:
//! docs/compat/timestamp-service.md §3 and §4).
//!
//! The driver of this state machine has a `ZooKeeper` session and does one [`Ask`] at a time. A
//! master writes its bound again and again. Each write is a transaction that fails if the master's
//! node is gone or another program has written the bound (a compare-and-set on the bound's
//! version). Acknowledged writes extend the lease (`timestamp::lease`). A backup reads as often as
//! a master writes, so that it has a lease when it takes over.

mod events;
mod machine;
#[cfg(test)]
mod machine_tests;

pub use events::{
    Alarm, Answer, Ask, CoordinatorSettings, Effect, Event, MasterNode, Nodes, Role, SessionId,
    StoredBound,
};
pub use machine::Coordinator;
