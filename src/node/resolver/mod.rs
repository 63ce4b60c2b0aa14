//! Addresses of names: asked of the system by threads of their own.

pub(crate) mod hosts_file;
pub(crate) mod names;
pub(crate) mod threads;
