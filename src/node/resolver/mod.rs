//! Addresses of names: threads of their own ask the system for them.

pub(crate) mod hosts_file;
pub(crate) mod names;
pub(crate) mod statics;
pub(crate) mod threads;
