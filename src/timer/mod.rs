//! What a timer means, as pure functions: schedule, version and merge, identity, request to
//! command. Nothing here holds state beyond a clock's last value; time comes in as an argument.

pub mod admission;
pub mod definition;
pub(crate) mod identity;
pub(crate) mod schedule;
pub mod version;
