//! The public API over TLS, seen from outside: the real binary in a process of its own, real TCP,
//! certificates made for each test. The other end is rustls without the project's code, and `curl`
//! and `openssl` where they are installed.

mod admin;
mod admin_cli;
mod authorities;
mod callback_server;
mod callbacks;
mod callbacks_kept;
mod callbacks_wrong;
mod certs;
mod clients;
mod closed;
mod harness;
mod nginx;
mod reload;
mod requests;
mod start;
mod timestamps;
mod tools;
mod wrong;
