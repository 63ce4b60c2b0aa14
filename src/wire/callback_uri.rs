//! Callback URIs (RFC 3986, scheme `http` only).
//!
//! A URI is only split and checked, never changed: the callback server sees path and query exactly as the client wrote them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::base::limits::URI_BYTES_MAX;

/// Bytes of a host name (RFC 1035 section 2.3.4, as text).
const HOST_BYTES_MAX: usize = 253;
/// Bytes of one label of it.
const LABEL_BYTES_MAX: usize = 63;
/// Port when none is written (RFC 9110 section 4.2.1).
const HTTP_PORT: u16 = 80;

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
///
/// Also refused: an empty port, an IPv6 zone, a host that ends in a number without being an IPv4 address (`127.1`,
/// which resolvers read in surprising ways), a name with bytes other than letters, digits, `-`, `.` and `_`.
/// Percent signs pass as they are. Cost: one pass, no allocation.
pub fn parse_callback_uri(uri: &str) -> Result<CallbackUri<'_>, UriError> {
    if uri.len() > URI_BYTES_MAX {
        return Err(UriError("callback URI: longer than 2048 bytes"));
    }
    // A fold without early exit compares whole vectors.
    if !uri.bytes().fold(true, |visible, byte| visible & byte.is_ascii_graphic()) {
        return Err(UriError(
            "callback URI: expected visible ASCII, got a space, a control character or another byte",
        ));
    }
    let rest = after_scheme(uri)?;
    let authority_bytes =
        rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, local) = rest.split_at(authority_bytes);
    let target = match local.bytes().position(|byte| byte == b'#') {
        Some(fragment_at) => &local[..fragment_at],
        None => local,
    };
    if authority.bytes().any(|byte| byte == b'@') {
        return Err(UriError("callback URI: user information is not allowed"));
    }
    let (host, port) = split_authority(authority)?;
    Ok(CallbackUri { authority, host, port, target })
}

fn after_scheme(uri: &str) -> Result<&str, UriError> {
    let begins = |scheme: &str| {
        uri.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    if begins("http://") {
        return Ok(&uri["http://".len()..]);
    }
    Err(UriError(if begins("https:") {
        "callback URI: https is not supported, expected http://host[:port]/path"
    } else {
        "callback URI: expected http://host[:port]/path"
    }))
}

fn split_authority(authority: &str) -> Result<(Host<'_>, u16), UriError> {
    if let Some(literal) = authority.strip_prefix('[') {
        let (address, port) = literal
            .split_once(']')
            .ok_or(UriError("callback URI: expected `]` after an IPv6 address"))?;
        let address = address
            .parse::<Ipv6Addr>()
            .map_err(|_| UriError("callback URI: expected an IPv6 address between brackets"))?;
        let port = match port.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if port.is_empty() => HTTP_PORT,
            None => return Err(UriError("callback URI: expected `:port` after `]`")),
        };
        return Ok((Host::Address(IpAddr::V6(address)), port));
    }
    let (host, port) = match authority.bytes().position(|byte| byte == b':') {
        Some(colon_at) => (&authority[..colon_at], parse_port(&authority[colon_at + 1..])?),
        None => (authority, HTTP_PORT),
    };
    Ok((parse_host(host)?, port))
}

fn parse_port(text: &str) -> Result<u16, UriError> {
    const EXPECTED: UriError = UriError("callback URI: expected a port from 1 to 65535");
    // Not `parse` alone: it takes a plus sign.
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EXPECTED);
    }
    text.parse().ok().filter(|&port| port != 0).ok_or(EXPECTED)
}

fn parse_host(host: &str) -> Result<Host<'_>, UriError> {
    if host.is_empty() {
        return Err(UriError("callback URI: expected a host after http://"));
    }
    let mut label_bytes = 0;
    let mut is_number = false;
    for byte in host.bytes() {
        match byte {
            b'.' if label_bytes == 0 => {
                return Err(UriError("callback URI: the host name has an empty label"));
            }
            b'.' => label_bytes = 0,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => {
                is_number = byte.is_ascii_digit() && (label_bytes == 0 || is_number);
                label_bytes += 1;
                if label_bytes > LABEL_BYTES_MAX {
                    return Err(UriError(
                        "callback URI: a label of the host name exceeds 63 bytes",
                    ));
                }
            }
            _ => {
                return Err(UriError(
                    "callback URI: expected letters, digits, `-`, `.` or `_` in the host name",
                ));
            }
        }
    }
    if host.len() > HOST_BYTES_MAX {
        return Err(UriError("callback URI: the host name exceeds 253 bytes"));
    }
    if !is_number {
        return Ok(Host::Name(host));
    }
    host.parse::<Ipv4Addr>()
        .map(|address| Host::Address(IpAddr::V4(address)))
        .map_err(|_| UriError("callback URI: the host ends in a number but is not an IPv4 address"))
}
