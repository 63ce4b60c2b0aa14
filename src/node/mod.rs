//! One thread per core drives ring and shard: the loop turn, the mesh between cores, client
//! connections, callback lanes.

mod answer_room;
mod answers;
mod callback_answer;
pub mod commands;
mod connection;
#[cfg(test)]
mod connection_tests;
pub mod core;
mod deadlines;
mod engine;
mod files;
pub mod gather;
mod hosts_file;
mod http_talk;
mod inbounds;
pub mod internal_api;
mod internal_document;
mod lanes;
pub mod listeners;
pub mod mesh;
pub mod meters;
mod owner;
mod names;
pub mod peer_address;
mod peer_greeting;
pub mod peer_handshake;
pub mod peer_hello;
pub mod peer_secret;
#[cfg(test)]
mod peer_secret_tests;
mod peer_sockets;
#[cfg(test)]
mod peer_sockets_tests;
pub mod peering;
#[cfg(test)]
mod peering_tests;
mod publish;
mod resolver;
mod server;
mod service;
pub mod settings;
pub mod site_members;
mod start;
pub mod tag_feed;
mod timestamp_connection;
mod timestamp_issuer;
mod timestamp_server;
mod voice;

pub use files::FileShares;
pub use start::{NodeHandle, StartError, start};
