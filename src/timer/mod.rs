//! What a timer means, as pure functions: schedule, version and merge, id, and the way from a
//! request to a definition. Only the clock and the minter have state; time comes in as an argument.

pub(crate) mod action;
pub mod admission;
pub mod definition;
pub(crate) mod identity;
pub(crate) mod calendar;
pub(crate) mod calendar_plan;
mod cron;
mod cron_text;
pub mod naming;
mod options;
mod rejection;
pub(crate) mod schedule;
pub mod version;
