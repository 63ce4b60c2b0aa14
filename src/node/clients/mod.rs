//! One core's clients: connections, requests and answers.

pub(crate) mod answer_room;
pub(crate) mod answers;
pub(crate) mod connection;
#[cfg(test)]
mod connection_tests;
mod head_memory;
mod request_line;
pub(crate) mod table;
pub(crate) mod service;
