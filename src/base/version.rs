//! Which version runs.

/// The version, and the commit it is built from where that is known: `0.1.0 (58f510d2a1b3)`.
/// `build.rs` says when.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("CHRONOS_VERSION_SUFFIX"));
