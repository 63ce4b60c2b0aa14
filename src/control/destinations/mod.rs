//! The rules of destinations: what is configured, what operators order, and how the hosts are.

mod book;
pub(crate) mod desk;
mod document;
mod file;
mod hold;
mod keeper;
