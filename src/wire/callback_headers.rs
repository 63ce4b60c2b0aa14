//! The headers of callbacks: which a client may give one, and which say that a request is one.
//!
//! A callback goes to whatever host its client names, from the address of a node. So it may look
//! like an operator's order to the admin API of another deployment, or like a node to another node.
//! Two rules keep it from that, one at each end:
//!
//! - No client sets a header by which Chronos believes somebody ([`CHRONOS_HEADERS`]), and no node
//!   sends one that it has from a version that took them.
//! - Each callback has headers of its own, which no client can take away ([`is_of_callback`]). Who
//!   shows one is neither an operator nor a node. Callbacks of the original service have them, too.

use crate::wire::chunked::is_token_byte;

/// Headers that a callback has of its own, or that mean something between two ends of a connection
/// only (RFC 9110 section 7.6.1, RFC 2616 section 13.5.1, RFC 7540 section 3.2.1). In lower case.
const OWN_HEADERS: [&str; 23] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-dead-letter-attempts",
    "x-dead-letter-failure",
    "x-dead-letter-reason",
    "x-dead-letter-status",
    "x-dead-letter-uri",
    "x-replay",
    "x-sequence-number",
];
/// All headers that begin so are for operators and nodes, which are believed by them. Like
/// [`TIMER_HEADERS`] they may stand in what others hold. In lower case.
const CHRONOS_HEADERS: &str = "x-chronos-";
/// What a callback says of its timer. Unlike [`OWN_HEADERS`] they may stand in what other nodes and
/// journals hold: versions before these headers took them from clients. In lower case.
const TIMER_HEADERS: [&str; 3] = ["x-attempt", "x-due-time", "x-timer-id"];
/// All headers that begin so are of signatures.
const SIGNATURE_HEADERS: &str = "webhook-";
/// All headers that begin so are of dead letters on their way.
const LETTER_HEADERS: &str = "x-dead-letter-";
/// A header of each callback, whoever made it.
pub const SEQUENCE_HEADER: &str = "x-sequence-number";

/// Whether a callback may have these bytes as the value of a header: visible ASCII, with spaces and
/// tabs between. What is beyond ASCII has no agreed meaning there (RFC 9110 section 5.5).
pub fn is_header_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_visible = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    value.iter().all(is_visible) && !is_blank(value.first()) && !is_blank(value.last())
}

/// Why a client's header is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// The name is no token.
    #[error("expected names of letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// The callback has such a header of its own, or it is not the client's to set.
    #[error("expected no header that the callback has itself, for one hop, or X-Chronos-*")]
    Own,
    /// The value would end the line, or is no ASCII.
    #[error("expected values of visible ASCII, with blanks only between")]
    Value,
}

/// Checks a header that a client gives a callback.
pub fn check_header(name: &str, value: &str) -> Result<(), HeaderError> {
    if is_timer_header(name) || is_chronos_header(name) {
        return Err(HeaderError::Own);
    }
    check_kept_header(name, value)
}

fn is_timer_header(name: &str) -> bool {
    TIMER_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether header lines have one that says which timer a callback is of: the client's own.
pub fn has_timer_header(lines: &str) -> bool {
    let mut names = lines.split_terminator("\r\n").filter_map(|line| line.split_once(": "));
    names.any(|(name, _)| is_timer_header(name))
}

fn is_chronos_header(name: &str) -> bool {
    begins_with(name, CHRONOS_HEADERS)
}

/// Whether a name begins so, in upper or lower case.
fn begins_with(name: &str, beginning: &str) -> bool {
    name.get(..beginning.len()).is_some_and(|it| it.eq_ignore_ascii_case(beginning))
}

/// Whether a header says that its request is a callback.
pub fn is_of_callback(name: &str) -> bool {
    name.eq_ignore_ascii_case(SEQUENCE_HEADER)
        || is_timer_header(name)
        || [SIGNATURE_HEADERS, LETTER_HEADERS].iter().any(|it| begins_with(name, it))
}

/// Appends those of a client's header lines that leave with a callback.
pub fn write_client_headers(lines: &str, out: &mut Vec<u8>) {
    let leaves = |line: &&str| !is_chronos_header(line);
    for line in lines.split_inclusive("\r\n").filter(leaves) {
        out.extend_from_slice(line.as_bytes());
    }
}

/// Checks a header that a node holds.
pub fn check_kept_header(name: &str, value: &str) -> Result<(), HeaderError> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(HeaderError::Name);
    }
    if begins_with(name, SIGNATURE_HEADERS)
        || OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name))
    {
        return Err(HeaderError::Own);
    }
    if !is_header_value(value.as_bytes()) {
        return Err(HeaderError::Value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sets_what_chronos_believes_and_no_callback_leaves_with_it() {
        for name in ["X-Chronos-Order", "x-chronos-site", "X-CHRONOS-Name", "X-Chronos-Of-Later"] {
            assert_eq!(check_header(name, "1"), Err(HeaderError::Own), "{name}");
            assert_eq!(check_kept_header(name, "1"), Ok(()), "journals of before have {name}");
            let mut out = Vec::new();
            write_client_headers(&format!("A: b\r\n{name}: 1\r\nC: d\r\n"), &mut out);
            assert_eq!(out, b"A: b\r\nC: d\r\n", "{name}");
        }
        for name in ["X-Chrono", "Chronos-Order", "Authorization", "X-Api-Key"] {
            assert_eq!(check_header(name, "1"), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_says_that_a_request_is_a_callback_is_no_clients_to_set_or_to_take_away() {
        let own = ["X-Sequence-Number", "X-Timer-Id", "X-Due-Time", "X-Attempt", "webhook-id"];
        for name in own.into_iter().chain(["X-Dead-Letter-Reason", "WEBHOOK-SIGNATURE"]) {
            assert!(is_of_callback(name), "{name}");
            assert_eq!(check_header(name, "1"), Err(HeaderError::Own), "{name}");
        }
        for name in ["Host", "X-Sequence", "Webhook", "Idempotency-Key", "X-Chronos-Order"] {
            assert!(!is_of_callback(name), "{name}");
        }
    }
}
