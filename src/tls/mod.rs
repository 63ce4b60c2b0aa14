//! TLS without sockets: bytes of the wire in, plaintext out, and back. Only this room knows the
//! library that does the work (rustls with AWS-LC). It names no socket, file or thread; who calls
//! it moves the bytes, and decides when a handshake may cost time.

pub mod acceptor;
pub mod connector;
pub(crate) mod material;
pub(crate) mod names;
pub(crate) mod nodes;
mod pinned;
pub mod session;
#[cfg(test)]
mod tls_tests;
pub(crate) mod validity;
