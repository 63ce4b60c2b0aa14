//! One core's clients: connections, requests and answers.

mod access;
mod addressed;
pub(crate) mod answer_room;
pub(crate) mod answers;
pub(crate) mod connection;
#[cfg(test)]
mod connection_tests;
mod document;
mod head_memory;
mod request_line;
pub(crate) mod table;
mod table_tls;
pub(crate) mod service;
pub(crate) mod tokens;
