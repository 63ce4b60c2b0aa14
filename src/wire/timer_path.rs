//! The id that a client gets, `<16 hex id>-<factor>-<16 hex filter>`, and the older forms accepted in a path.

use crate::base::ids::TimerId;

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerPath {
    /// `/timers` or `/timers/`.
    Collection,
    /// `/timers/<id>`.
    Timer(PublicId),
    /// `/timers/references`.
    References,
    /// `/ping`.
    Ping,
    /// A `/timers/...` path that holds no id, or any other path: 404.
    Unknown,
}

/// An id as a client wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicId {
    /// The timer.
    pub id: TimerId,
    /// The replication factor, when the form has one (1..=16).
    pub factor: Option<u8>,
    /// The bloom filter of the replicas, when the form has one.
    pub filter: Option<u64>,
}

/// Parses the path of a request target.
pub fn parse_path(_path: &str) -> TimerPath {
    todo!()
}

/// Appends `<16 hex id>-<factor>-<16 hex filter>`, lower case.
pub fn write_public_id(_id: TimerId, _factor: u8, _filter: u64, _out: &mut Vec<u8>) {
    todo!()
}
