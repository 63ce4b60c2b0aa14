//! One core's clients: connections, requests and answers.

mod access;
pub(crate) mod answer_room;
pub(crate) mod answers;
pub(crate) mod connection;
#[cfg(test)]
mod connection_tests;
pub(crate) mod document;
mod head_memory;
pub(crate) mod list_answers;
mod lists;
mod request_line;
pub(crate) mod table;
mod table_tls;
pub(crate) mod service;
pub(crate) mod tokens;
