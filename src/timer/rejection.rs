//! Why a document is no timer.

use crate::base::limits::{INTERVAL_MS_MAX, REPLICATION_FACTOR_MAX};
use crate::wire::peer_frame::OPAQUE_TOLD_BYTES_MAX;

/// Why a document is no timer. The service answers 400, or 413 for [`Rejection::OpaqueTooLong`].
/// The text becomes `Reason` and body.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Rejection {
    /// A time is negative, not finite, or above a hundred years.
    #[error("{member}: expected seconds from 0 to {}, got {got}", INTERVAL_MS_MAX / 1000)]
    Seconds {
        /// The path of the member in the document.
        member: &'static str,
        /// The seconds in the document.
        got: f64,
    },
    /// A repeating timer has the interval 0: it would make all of its pops at once, without end.
    #[error("timing.interval: expected more than 0 because timing.repeat-for is {0} s, got 0")]
    ZeroInterval(f64),
    /// The replication factor is not 1 to 16.
    #[error("reliability.replication-factor: expected 1 to {REPLICATION_FACTOR_MAX}, got {0}")]
    Factor(i64),
    /// The body names another factor than the id in the path.
    #[error(
        "reliability.replication-factor: expected {in_path} as in the timer's id, got {in_body} \
         (it cannot be changed)"
    )]
    FactorChanged {
        /// The factor of the id in the path.
        in_path: u8,
        /// The factor in the body.
        in_body: u8,
    },
    /// The callback URI is refused. The text names the reason, and the URI as far as it may be
    /// shown.
    #[error("callback.http.uri: {0}")]
    Uri(Box<str>),
    /// A member that the original does not have is out of range. The text names it.
    #[error("{0}")]
    Option(Box<str>),
    /// The opaque data in a node's document is longer than messages between nodes carry.
    #[error("callback.http.opaque: expected at most {OPAQUE_TOLD_BYTES_MAX} bytes, got {0}")]
    OpaqueToldTooLong(usize),
    /// A client's opaque data is longer than the configuration allows.
    #[error(
        "callback.http.opaque: expected at most {max} bytes (limits.opaque_bytes_max), got {got}"
    )]
    OpaqueTooLong {
        /// The limit in bytes.
        max: u32,
        /// The bytes that the client sent.
        got: usize,
    },
}

/// Most characters of a URI that a reason shows.
const SHOWN_CHARS_MAX: usize = 60;

impl Rejection {
    /// The rejection of a URI. What may be secret is not shown: the query, and all of a URI that
    /// may have a password.
    #[cold]
    pub fn of_uri(reason: &str, uri: &str) -> Self {
        if uri.contains('@') {
            return Rejection::Uri(reason.into());
        }
        let bare = uri.split('?').next().unwrap_or_default();
        let mut shown: String =
            bare.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_default).collect();
        if bare.chars().count() > SHOWN_CHARS_MAX || bare.len() < uri.len() {
            shown.push_str("...");
        }
        Rejection::Uri(format!("{reason}, in \"{shown}\"").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_uri_is_shown_short_and_printable_without_secrets() {
        let told = |uri: &str| Rejection::of_uri("why", uri).to_string();
        assert_eq!(told("htp://a"), "callback.http.uri: why, in \"htp://a\"");
        assert_eq!(told("a\u{e9}\n\""), r#"callback.http.uri: why, in "a\u{e9}\n\"""#);
        assert_eq!(told("http://a/b?key=x"), "callback.http.uri: why, in \"http://a/b...\"");
        assert_eq!(told("http://user:word@a/"), "callback.http.uri: why");
        let long = told(&"x".repeat(2_049));
        assert!(long.len() < 100 && long.ends_with("x...\""), "{long}");
    }
}
