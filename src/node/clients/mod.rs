//! One core's clients: connections, requests and answers.

mod access;
mod actions;
mod addressed;
pub(crate) mod answer_room;
pub(crate) mod answers;
mod bulk;
mod caller;
pub(crate) mod connection;
mod connection_bulk;
#[cfg(test)]
mod connection_tests;
#[cfg(test)]
mod cost_tests;
pub(crate) mod document;
mod head_memory;
pub(crate) mod job_answers;
pub(crate) mod list_answers;
mod letters;
mod lists;
mod refusals;
mod request_line;
mod request_time;
pub(crate) mod table;
mod table_tls;
pub(crate) mod service;
pub(crate) mod tokens;
mod warnings;
