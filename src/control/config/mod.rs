//! The configuration: its keys, its files, what can be wrong with it, and how a running node reads
//! it again.

pub(crate) mod callback_tls;
mod check;
mod check_admin;
mod check_peer_tls;
mod check_timestamp;
mod check_tls;
mod drop_in;
mod concealed;
pub mod error;
pub(crate) mod files;
mod identity;
pub mod ini;
mod key;
pub mod keys;
#[cfg(test)]
mod keys_tests;
mod keys_listeners;
mod keys_admin;
mod keys_dead_letters;
mod keys_peer_tls;
pub mod load;
mod loader;
pub(crate) mod peer_tls;
pub(crate) mod regular_file;
mod named_files;
pub(crate) mod reload;
pub(crate) mod secret_file;
pub mod settings;
mod static_names;
pub(crate) mod suggest;
pub mod text;
pub(crate) mod timestamp;
pub(crate) mod tls;
pub(crate) mod value;
mod watch;
