//! One of several servers, of which `ZooKeeper` makes one the master
//! (layout and formats: docs/compat/timestamp-service.md §3 and §4).
//!
//! The one driver of this state machine has a `ZooKeeper` session and does what is asked, one
//! [`Ask`] at a time. A master writes its bound again and again. Each write is a transaction that
//! fails when the master's node is gone or when anybody else has written the bound (a
//! compare-and-set on its version). Acknowledged writes extend the lease
//! ([`crate::timestamp::lease`]). A backup reads as often, so that it has a lease when it takes
//! over.

mod events;
mod machine;
#[cfg(test)]
mod machine_tests;

pub use events::{
    Alarm, Answer, Ask, CoordinatorSettings, Effect, Event, MasterNode, Nodes, Role, SessionId,
    StoredBound,
};
pub use machine::Coordinator;
