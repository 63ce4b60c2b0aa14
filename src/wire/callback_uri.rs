//! Callback URIs (RFC 3986, scheme `http` only).

use std::net::IpAddr;

/// What the authority names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host<'a> {
    /// An IPv4 or bracketed IPv6 literal.
    Address(IpAddr),
    /// A name for the resolver.
    Name(&'a str),
}

/// A callback URI in its parts, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallbackUri<'a> {
    /// The authority as written (`host` or `host:port`): the `Host` header.
    pub authority: &'a str,
    /// The host.
    pub host: Host<'a>,
    /// The port, 80 when none is written.
    pub port: u16,
    /// Path and query as written, without fragment; may be empty (then `/` is requested) or begin with `?`.
    pub target: &'a str,
}

/// Why a URI is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UriError(pub &'static str);

/// Parses `http://host[:port][/path][?query]`. Refused: other schemes (`https` with its own sentence), no host, user
/// information, port 0 or above 65535, spaces, control characters, bytes outside ASCII, relative references, more than URI_BYTES_MAX bytes.
pub fn parse_callback_uri(_uri: &str) -> Result<CallbackUri<'_>, UriError> {
    todo!()
}
