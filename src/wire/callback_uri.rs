//! Callback URIs (RFC 3986, schemes `http` and `https`).
//!
//! A URI is split and checked, never changed. The callback server sees path and query exactly as
//! the client wrote them.
//!
//! What this service calls the *authority* of a URI tells the scheme as well. That of an `https`
//! URI begins with its scheme (`https://host:port`), that of an `http` URI has none (`host:port`).
//! So most authorities are as short as can be, and what knows `http` alone refuses the others.

// May panic: expectations 1, indices 4, cuts 1.
// Why it does not: found 4, fixed 1, memory 1.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::base::limits::{URI_BYTES_MAX, URI_TOLD_BYTES_MAX};

/// Most bytes of a host name (RFC 1035 section 2.3.4, as text).
const HOST_BYTES_MAX: usize = 253;
/// Most bytes of one label of a host name.
const LABEL_BYTES_MAX: usize = 63;
/// The port of a URI without a port (RFC 9110 section 4.2.1).
const HTTP_PORT: u16 = 80;
/// The port of a URI of `https` without a port (RFC 9110 section 4.2.2).
const HTTPS_PORT: u16 = 443;
/// What begins the authority of an `https` URI. A scheme may have capitals (RFC 3986 section 3.1).
const SECURE: &str = "https://";
/// What stands in front of all other authorities.
const PLAIN: &str = "http://";

/// What an authority names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host<'a> {
    /// A literal address: IPv4, or IPv6 in brackets.
    Address(IpAddr),
    /// A name for the resolver.
    Name(&'a str),
}

/// A callback URI in its parts, borrowed from the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallbackUri<'a> {
    /// The authority as written: `host` or `host:port`, behind `https://` if that is the scheme.
    pub authority: &'a str,
    /// The host in the authority.
    pub host: Host<'a>,
    /// The port; when none is written, 80 or 443.
    pub port: u16,
    /// Path and query as written, without the fragment. The target may be empty (then `/` is
    /// requested) or begin with `?`.
    pub target: &'a str,
}

/// A callback URI whose authority is known to be well-formed, borrowed from the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitUri<'a> {
    /// As [`CallbackUri::authority`].
    pub authority: &'a str,
    /// As [`CallbackUri::target`].
    pub target: &'a str,
}

/// How many authorities are remembered. Together at most 4 KiB.
const KNOWN_MAX: usize = 64;
/// Longest authority that is remembered, in bytes.
const KNOWN_BYTES_MAX: usize = 64;

/// Authorities that were parsed lately. Timers name the same hosts again and again, and to compare
/// an authority costs less than a fifth of parsing it.
#[derive(Debug)]
pub struct AuthorityMemory {
    /// Each at the place that [`place_of`] gives it, or empty.
    known: [String; KNOWN_MAX],
}

impl Default for AuthorityMemory {
    fn default() -> Self {
        Self { known: [const { String::new() }; KNOWN_MAX] }
    }
}

impl AuthorityMemory {
    /// Splits a callback URI. Refuses what [`parse_callback_uri`] refuses. Cost: one pass; no
    /// allocation once an authority of the same length has been at the place.
    pub fn split<'a>(&mut self, uri: &'a str) -> Result<SplitUri<'a>, UriError> {
        if uri.len() > URI_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let split = split(uri)?;
        let known = &mut self.known[place_of(split.authority)];
        if *known != split.authority || known.is_empty() {
            split_authority(split.authority)?;
            if split.authority.len() <= KNOWN_BYTES_MAX {
                known.clear();
                known.push_str(split.authority);
            }
        }
        Ok(split)
    }
}

/// The place at which an authority is remembered. Authorities of one deployment differ at their
/// ends: in the last part of an address, and in the port.
fn place_of(authority: &str) -> usize {
    let last = authority.bytes().rev().take(8);
    let sum = last.fold(0_usize, |sum, byte| sum * 5 + usize::from(byte));
    (sum + authority.len()) % KNOWN_MAX
}

/// Why a URI is refused: one sentence for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UriError(pub &'static str);

const TOO_LONG: UriError = UriError("longer than 2048 bytes");

/// Parses `http://host[:port][/path][?query]`, or the same of `https`. Cost: one pass, no
/// allocation.
///
/// Refused:
///
/// - more than [`URI_BYTES_MAX`] bytes,
/// - other schemes and relative references,
/// - spaces, control characters and bytes outside ASCII,
/// - user information,
/// - no host, or an IPv6 zone,
/// - a name with bytes other than letters, digits, `-`, `.` and `_`,
/// - a host that ends in a number but is not an IPv4 address (`127.1`, which resolvers read in
///   surprising ways),
/// - an empty port, port 0, or a port above 65535.
///
/// Percent signs pass as they are.
pub fn parse_callback_uri(uri: &str) -> Result<CallbackUri<'_>, UriError> {
    if uri.len() > URI_BYTES_MAX {
        return Err(TOO_LONG);
    }
    parse(uri)
}

/// Parses a URI that another node tells, of at most [`URI_TOLD_BYTES_MAX`] bytes. Originals accept
/// URIs with bytes that [`parse_callback_uri`] refuses; [`escaped`] must encode these bytes before.
pub fn parse_told_uri(uri: &str) -> Result<CallbackUri<'_>, UriError> {
    if uri.len() > URI_TOLD_BYTES_MAX {
        return Err(UriError("longer than 32768 bytes"));
    }
    parse(uri)
}

/// A URI in the form in which an original requests it. Bytes outside ASCII and spaces are
/// percent-encoded; a space behind `?` becomes a plus sign. All other bytes stay as they are.
/// Allocates only if a byte changes.
pub fn escaped(uri: &str) -> Cow<'_, str> {
    let is_meant = |byte: &u8| *byte != b' ' && byte.is_ascii();
    if uri.as_bytes().iter().all(is_meant) {
        return Cow::Borrowed(uri);
    }
    let query_at = uri.find('?').unwrap_or(uri.len());
    let mut escaped = String::with_capacity(3 * uri.len());
    for (at, byte) in uri.bytes().enumerate() {
        match byte {
            b' ' if at > query_at => escaped.push('+'),
            byte if is_meant(&byte) => escaped.push(char::from(byte)),
            byte => write!(escaped, "%{byte:02x}").expect("memory"),
        }
    }
    Cow::Owned(escaped)
}

fn parse(uri: &str) -> Result<CallbackUri<'_>, UriError> {
    let SplitUri { authority, target } = split(uri)?;
    let (host, port) = split_authority(authority)?;
    Ok(CallbackUri { authority, host, port, target })
}

/// Splits a URI without a look at its authority.
fn split(uri: &str) -> Result<SplitUri<'_>, UriError> {
    // The fold has no early exit, so that the compiler compares whole vectors.
    if !uri.bytes().fold(true, |visible, byte| visible & byte.is_ascii_graphic()) {
        return Err(UriError("expected visible ASCII, got a space, a control or another byte"));
    }
    let begins = after_scheme(uri)?;
    let rest = &uri[begins..];
    let is_end = |byte| matches!(byte, b'/' | b'?' | b'#' | b'@');
    let (host, local) = rest.split_at(rest.bytes().position(is_end).unwrap_or(rest.len()));
    let secure = uri.get(..begins + host.len()).filter(|_| begins == SECURE.len());
    let authority = secure.unwrap_or(host);
    if local.starts_with('@') {
        return Err(UriError("user information is not allowed"));
    }
    // Few targets have a fragment. Like the fold above, this fold compares whole vectors.
    let target = match local.bytes().fold(false, |found, byte| found | (byte == b'#')) {
        true => local.split_once('#').map_or(local, |(target, _)| target),
        false => local,
    };
    Ok(SplitUri { authority, target })
}

/// Host and port of an authority such as [`CallbackUri::authority`] holds. Cost: one pass.
pub fn parse_authority(authority: &str) -> Result<(Host<'_>, u16), UriError> {
    split_authority(authority)
}

/// Whether the whole of `text` is an authority such as [`CallbackUri::authority`] holds. Cost: one
/// pass.
pub fn is_authority(text: &str) -> bool {
    split_authority(text).is_ok()
}

/// Whether the whole of `text` is `host` or `host:port`. Cost: one pass.
pub fn is_host_and_port(text: &str) -> bool {
    !is_secure(text) && is_authority(text)
}

/// Whether the authority is one of `https`.
#[inline]
pub fn is_secure(authority: &str) -> bool {
    begins_with(authority, SECURE)
}

/// The authority as `host` or `host:port`, which is the value of the header `Host`.
#[inline]
pub fn host_and_port(authority: &str) -> &str {
    let host = authority.get(SECURE.len()..).filter(|_| is_secure(authority));
    host.unwrap_or(authority)
}

/// The port of an authority in which none is written.
pub fn default_port(authority: &str) -> u16 {
    if is_secure(authority) { HTTPS_PORT } else { HTTP_PORT }
}

/// The URI of an authority with this path and query.
pub fn uri_of(authority: &str, target: &[u8]) -> String {
    format!("{}{authority}{}", before(authority), String::from_utf8_lossy(target))
}

/// What stands before the authority in a URI.
pub fn before(authority: &str) -> &'static str {
    if is_secure(authority) { "" } else { PLAIN }
}

/// Whether the whole of `text` is a host name such as a callback URI may have. Cost: one pass.
pub fn is_host_name(text: &str) -> bool {
    matches!(parse_host(text), Ok(Host::Name(_)))
}

fn begins_with(text: &str, scheme: &str) -> bool {
    let begin = text.as_bytes().get(..scheme.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme.as_bytes()))
}

/// Where the host begins.
fn after_scheme(uri: &str) -> Result<usize, UriError> {
    let mut schemes = [PLAIN, SECURE].into_iter();
    let found = schemes.find(|scheme| begins_with(uri, scheme));
    found.map(str::len).ok_or(UriError("expected http://host[:port]/path, or https://"))
}

fn split_authority(authority: &str) -> Result<(Host<'_>, u16), UriError> {
    let default_port = default_port(authority);
    let authority = host_and_port(authority);
    if let Some(literal) = authority.strip_prefix('[') {
        let (address, port) =
            literal.split_once(']').ok_or(UriError("expected `]` after an IPv6 address"))?;
        let address = address
            .parse::<Ipv6Addr>()
            .map_err(|_| UriError("expected an IPv6 address between brackets"))?;
        let port = match port.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if port.is_empty() => default_port,
            None => return Err(UriError("expected `:port` after `]`")),
        };
        return Ok((Host::Address(IpAddr::V6(address)), port));
    }
    let (host, port) = match authority.bytes().position(|byte| byte == b':') {
        Some(colon_at) => (&authority[..colon_at], parse_port(&authority[colon_at + 1..])?),
        None => (authority, default_port),
    };
    Ok((parse_host(host)?, port))
}

fn parse_port(text: &str) -> Result<u16, UriError> {
    const EXPECTED: UriError = UriError("expected a port from 1 to 65535");
    // The digits are checked because `parse` accepts a plus sign.
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EXPECTED);
    }
    text.parse().ok().filter(|&port| port != 0).ok_or(EXPECTED)
}

fn parse_host(host: &str) -> Result<Host<'_>, UriError> {
    if host.is_empty() {
        return Err(UriError("expected a host after the scheme"));
    }
    let mut label_bytes = 0;
    let mut is_number = false;
    for byte in host.bytes() {
        match byte {
            b'.' if label_bytes == 0 => {
                return Err(UriError("the host name has an empty label"));
            }
            b'.' => label_bytes = 0,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => {
                is_number = byte.is_ascii_digit() && (label_bytes == 0 || is_number);
                label_bytes += 1;
                if label_bytes > LABEL_BYTES_MAX {
                    return Err(UriError("a label of the host name exceeds 63 bytes"));
                }
            }
            _ => {
                return Err(UriError("expected letters, digits, `-`, `.` or `_` in the host name"));
            }
        }
    }
    if host.len() > HOST_BYTES_MAX {
        return Err(UriError("the host name exceeds 253 bytes"));
    }
    if !is_number {
        return Ok(Host::Name(host));
    }
    host.parse::<Ipv4Addr>()
        .map(|address| Host::Address(IpAddr::V4(address)))
        .map_err(|_| UriError("the host ends in a number but is not an IPv4 address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str) -> (&str, Host<'_>, u16, &str) {
        let parsed = parse_callback_uri(uri).unwrap_or_else(|error| panic!("{uri}: {error}"));
        (parsed.authority, parsed.host, parsed.port, parsed.target)
    }

    fn refusal(uri: impl AsRef<str>) -> &'static str {
        let uri = uri.as_ref();
        parse_callback_uri(uri).expect_err(uri).0
    }

    #[test]
    fn names() {
        assert_eq!(parts("http://a"), ("a", Host::Name("a"), 80, ""));
        assert_eq!(
            parts("HTTP://A.b_c-d.:8080"),
            ("A.b_c-d.:8080", Host::Name("A.b_c-d."), 8080, "")
        );
        assert_eq!(
            parts("http://ralf.example:10888/call-id/a%2Fb%zz?timer-interim=true"),
            (
                "ralf.example:10888",
                Host::Name("ralf.example"),
                10888,
                "/call-id/a%2Fb%zz?timer-interim=true"
            )
        );
        assert_eq!(parts("http://1a/").1, Host::Name("1a"));
        assert_eq!(parts("http://1.a/").1, Host::Name("1.a"));
    }

    #[test]
    fn addresses() {
        let address = |text: &str| Host::Address(text.parse().expect("an address"));
        assert_eq!(parts("http://127.0.0.1:9/x"), ("127.0.0.1:9", address("127.0.0.1"), 9, "/x"));
        assert_eq!(parts("http://[::1]:80/x"), ("[::1]:80", address("::1"), 80, "/x"));
        assert_eq!(
            parts("http://[2001:DB8::1]"),
            ("[2001:DB8::1]", address("2001:db8::1"), 80, "")
        );
    }

    #[test]
    fn https() {
        assert_eq!(parts("https://a"), ("https://a", Host::Name("a"), 443, ""));
        assert_eq!(parts("HttpS://A:1/b?c"), ("HttpS://A:1", Host::Name("A"), 1, "/b?c"));
        let v4 = Host::Address("1.2.3.4".parse().expect("an address"));
        assert_eq!(parts("https://1.2.3.4#x"), ("https://1.2.3.4", v4, 443, ""));
        let v6 = Host::Address("::1".parse().expect("an address"));
        assert_eq!(parts("https://[::1]/"), ("https://[::1]", v6, 443, "/"));
        assert_eq!(parts("https://[::1]:80").2, 80);
        for (authority, host, port, uri) in [
            ("a:80", "a:80", 80, "http://a:80"),
            ("https://a:80", "a:80", 443, "https://a:80"),
            ("HTTPS://a", "a", 443, "HTTPS://a"),
            ("https", "https", 80, "http://https"),
        ] {
            assert_eq!((host_and_port(authority), default_port(authority)), (host, port));
            assert_eq!(uri_of(authority, b"/x"), format!("{uri}/x"));
            assert!(is_authority(authority));
            assert_eq!(is_host_and_port(authority), !is_secure(authority));
        }
        for text in ["https://", "https://a/", "https://u@a", "https://https://a", "http://a"] {
            assert!(!is_authority(text), "{text}");
        }
        let refusals = ["https://", "https:///b", "https://u@a/", "https://a:0", "https://a..b"];
        for uri in refusals {
            let plain = uri.replacen("https", "http", 1);
            assert_eq!(refusal(uri), refusal(&plain), "{uri}");
        }
    }

    #[test]
    fn an_authority_alone() {
        for text in ["a", "a.b:80", "1.2.3.4", "[::1]:65535"] {
            assert!(is_authority(text), "{text}");
            assert_eq!(parts(&format!("http://{text}/x")).0, text);
        }
        for text in ["", "a/", "a?", "a#", "u@a", "a b", "a\r\nb", "a:0", "1.2", "\u{e9}", "[::1"] {
            assert!(!is_authority(text), "{text:?}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(parts("http://a?b=c").3, "?b=c");
        assert_eq!(parts("http://a/?").3, "/?");
        assert_eq!(parts("http://a/b#part").3, "/b");
        assert_eq!(parts("http://a#part").3, "");
        assert_eq!(parts("http://a/b?c#d?e#f").3, "/b?c");
        assert_eq!(parts("http://a/user@b:c").3, "/user@b:c", "only the authority has users");
    }

    #[test]
    fn other_schemes_and_relative_references() {
        for uri in [
            "",
            "/a/b",
            "a/b",
            "//a/b",
            "?x",
            "a",
            "ftp://a",
            "http:/a",
            "http:a",
            "httpx://a",
            "http",
            "mailto:a@b",
            "https:",
            "https:/a",
            "https:a",
            "httpss://a",
            "https//a",
        ] {
            let expected = "expected http://host[:port]/path, or https://";
            assert_eq!(refusal(uri), expected, "{uri}");
        }
    }

    #[test]
    fn hosts_that_are_none() {
        for uri in ["http://", "http:///b", "http://:80", "http://?x", "http://#x"] {
            assert_eq!(refusal(uri), "expected a host after the scheme", "{uri}");
        }
        for uri in ["http://a..b", "http://.a", "http://.", "http://..", "http://1..1"] {
            assert_eq!(refusal(uri), "the host name has an empty label", "{uri}");
        }
        for uri in
            ["http://a%41", "http://a\\b", "http://a,b", "http://a]", "http://a[b]", "http://*"]
        {
            assert_eq!(
                refusal(uri),
                "expected letters, digits, `-`, `.` or `_` in the host name",
                "{uri}"
            );
        }
        for uri in [
            "http://1",
            "http://127.1",
            "http://256.1.1.1",
            "http://1.2.3.4.5",
            "http://a.1",
            "http://01.1.1.1",
        ] {
            assert_eq!(
                refusal(uri),
                "the host ends in a number but is not an IPv4 address",
                "{uri}"
            );
        }
        for uri in ["http://[", "http://[::1", "http://[::1/x"] {
            assert_eq!(refusal(uri), "expected `]` after an IPv6 address", "{uri}");
        }
        for uri in [
            "http://[]",
            "http://[1.2.3.4]",
            "http://[::1%eth0]",
            "http://[::1%25eth0]",
            "http://[v1.x]",
            "http://[:::]",
        ] {
            assert_eq!(refusal(uri), "expected an IPv6 address between brackets", "{uri}");
        }
        assert_eq!(refusal("http://[::1]x"), "expected `:port` after `]`");
    }

    #[test]
    fn user_information() {
        for uri in ["http://user@a", "http://user:secret@a:80/b", "http://@a", "http://a@[::1]"] {
            assert_eq!(refusal(uri), "user information is not allowed", "{uri}");
        }
    }

    #[test]
    fn ports() {
        for port in ["", "0", "00000", "99999", "65536", "-1", "+1", "8a", "080800", "80:80"] {
            for host in ["a", "1.2.3.4", "[::1]"] {
                assert_eq!(
                    refusal(format!("http://{host}:{port}/b")),
                    "expected a port from 1 to 65535",
                    "{host} {port}"
                );
            }
        }
        assert_eq!(parts("http://a:65535").2, 65535);
        assert_eq!(parts("http://a:00080").2, 80);
    }

    #[test]
    fn bytes_that_no_uri_has() {
        for byte in (0..=0x20_u8).chain([0x7f]) {
            for uri in
                [format!("http://a/{}b", char::from(byte)), format!("http://{}a", char::from(byte))]
            {
                assert!(refusal(&uri).starts_with("expected visible ASCII"), "{uri:?}");
            }
        }
        assert!(refusal("http://a/\u{e9}").starts_with("expected visible ASCII"));
        assert!(refusal("http://\u{e9}/").starts_with("expected visible ASCII"));
        assert!(refusal("http://a/#\r\n").starts_with("expected visible ASCII"));
    }

    #[test]
    fn what_an_original_has_taken_is_asked_for_as_it_would() {
        for same in ["http://a/b?c=%c3%a9", "http://a", "", "http://a/\u{7f}"] {
            assert!(matches!(escaped(same), Cow::Borrowed(uri) if uri == same), "{same}");
        }
        let uri = escaped("http://a:1/\u{e9} b?c d\u{4e2d}");
        assert_eq!(uri, "http://a:1/%c3%a9%20b?c+d%e4%b8%ad");
        let told = parse_told_uri(&uri).expect("a URI");
        assert_eq!((told.authority, told.target), ("a:1", "/%c3%a9%20b?c+d%e4%b8%ad"));
        assert!(parse_told_uri(&escaped("http://\u{e9}/")).is_err(), "a name is not changed");
        let path = |bytes: usize| format!("http://a/{}", "b".repeat(bytes - 9));
        assert!(parse_told_uri(&path(URI_TOLD_BYTES_MAX)).is_ok());
        let longer = path(URI_TOLD_BYTES_MAX + 1);
        assert_eq!(parse_told_uri(&longer), Err(UriError("longer than 32768 bytes")));
    }

    #[test]
    fn what_is_remembered_is_split_and_refused_as_what_is_parsed() {
        let mut memory = AuthorityMemory::default();
        let hosts = (0..200).map(|at| format!("10.0.{}.{}:{}", at % 3, at % 7, 8_000 + at % 50));
        let others = ["a", "a:80", "[::1]:9", "", ":80", "a:0", "1.2", "a..b", "u@a", "[::1"];
        let hosts: Vec<_> = hosts.chain(others.map(str::to_owned)).collect();
        let long = "a.".repeat(40) + "b";
        for host in hosts.iter().chain(&hosts).chain([&long, &long]) {
            let rests = ["", "/x", "?y", "#z", "/x#z"];
            let all = rests.map(|rest| ["http", "https"].map(|scheme| (scheme, rest)));
            for (scheme, rest) in all.into_iter().flatten() {
                let uri = format!("{scheme}://{host}{rest}");
                let parsed = parse_callback_uri(&uri).map(|uri| (uri.authority, uri.target));
                let split = memory.split(&uri).map(|uri| (uri.authority, uri.target));
                assert_eq!(split, parsed, "{uri}");
            }
        }
        assert!(memory.known.iter().all(|known| known.len() <= KNOWN_BYTES_MAX));
        assert_eq!(memory.split(&format!("http://a/{}", "b".repeat(2_040))), Err(TOO_LONG));
    }

    #[test]
    fn lengths() {
        let path = |bytes: usize| format!("http://a/{}", "b".repeat(bytes - 9));
        assert_eq!(parts(&path(URI_BYTES_MAX)).3.len(), URI_BYTES_MAX - 8);
        assert_eq!(refusal(path(URI_BYTES_MAX + 1)), "longer than 2048 bytes");
        let labels = |count: usize| format!("http://{}", vec!["a".repeat(63); count].join("."));
        assert_eq!(refusal(labels(4)), "the host name exceeds 253 bytes");
        let longest = format!("{}.{}", labels(3), "b".repeat(61));
        assert_eq!(longest.len() - "http://".len(), 253);
        assert_eq!(parts(&longest).2, 80);
        assert_eq!(refusal(longest + "b"), "the host name exceeds 253 bytes");
        assert_eq!(parts(&labels(3)).2, 80);
        let label = format!("http://{}", "a".repeat(64));
        assert_eq!(refusal(label), "a label of the host name exceeds 63 bytes");
    }
}
