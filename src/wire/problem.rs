//! Errors as `application/problem+json` (RFC 9457), for clients that accept it.

use crate::wire::json::{write_number, write_string};
use crate::wire::unknown_members::{NAME_CHARS_MAX, NEVER_POPS, NOT_KNOWN};

/// The media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// What every `type` of a problem begins with.
const URN: &str = "urn:chronos:error:";
/// The members of a timer's document, as far as reasons name them: a reason that names one begins
/// with its path.
const MEMBERS: [&str; 4] = ["timing", "callback", "reliability", "statistics"];

/// What kind of error it is. Clients tell errors apart by it, so its word never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The body is no timer.
    Document,
    /// The request is none, or asks for what is not understood.
    Request,
    /// There is no token, or one that is not known.
    Unauthorized,
    /// This may not be done by this client, or not with this host.
    Forbidden,
    /// There is no such path.
    NoPath,
    /// There is no such timer.
    NoTimer,
    /// The path allows other methods.
    Method,
    /// The request was not complete in time.
    TooSlow,
    /// The order does not fit the present state.
    Conflict,
    /// Something is longer than its limit.
    TooLong,
    /// The host that the request names is not this node.
    Misdirected,
    /// What the token's name may use is used up.
    Quota,
    /// The server does not implement what is asked for.
    NotImplemented,
    /// A limit of the node is reached. Nothing was stored.
    Limit,
    /// The write was not confirmed by all nodes that are to hold the timer. It may count.
    Unconfirmed,
    /// The node does not serve this at present.
    Unavailable,
    /// The node failed.
    Failure,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 17] = [
        Kind::Document,
        Kind::Request,
        Kind::Unauthorized,
        Kind::Forbidden,
        Kind::NoPath,
        Kind::NoTimer,
        Kind::Method,
        Kind::TooSlow,
        Kind::Conflict,
        Kind::TooLong,
        Kind::Misdirected,
        Kind::Quota,
        Kind::NotImplemented,
        Kind::Limit,
        Kind::Unconfirmed,
        Kind::Unavailable,
        Kind::Failure,
    ];

    /// The kind of an error of which only status and reason are known.
    pub fn of(status: u16, reason: &str) -> Self {
        match status {
            400 | 403 if member_of(reason).is_some() => Kind::Document,
            400 if reason.starts_with("body: ") || is_warning(reason) => Kind::Document,
            401 => Kind::Unauthorized,
            403 => Kind::Forbidden,
            404 => Kind::NoPath,
            405 => Kind::Method,
            408 => Kind::TooSlow,
            409 => Kind::Conflict,
            413 | 414 | 431 => Kind::TooLong,
            421 => Kind::Misdirected,
            429 => Kind::Quota,
            501 | 505 => Kind::NotImplemented,
            503 => Kind::Unavailable,
            500.. => Kind::Failure,
            _ => Kind::Request,
        }
    }

    /// The last word of the `type`, and the `title`.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Kind::Document => ("document", "The timer's document is refused"),
            Kind::Request => ("request", "The request is not understood"),
            Kind::Unauthorized => ("unauthorized", "A token is needed"),
            Kind::Forbidden => ("forbidden", "This is not allowed"),
            Kind::NoPath => ("no-path", "There is no such path"),
            Kind::NoTimer => ("no-timer", "There is no such timer"),
            Kind::Method => ("method", "The path allows other methods"),
            Kind::TooSlow => ("too-slow", "The request was not complete in time"),
            Kind::Conflict => ("conflict", "The order does not fit the present state"),
            Kind::TooLong => ("too-long", "Something is longer than its limit"),
            Kind::Misdirected => ("misdirected", "The request is meant for another host"),
            Kind::Quota => ("quota", "The token's name has used up its share"),
            Kind::NotImplemented => ("not-implemented", "The server does not do this"),
            Kind::Limit => ("limit", "A limit of the node is reached, and nothing was stored"),
            Kind::Unconfirmed => ("unconfirmed", "The write was not confirmed, and may count"),
            Kind::Unavailable => ("unavailable", "The node does not serve this at present"),
            Kind::Failure => ("failure", "The node failed"),
        }
    }
}

/// The member of a timer's document that a reason is about, as its path: `timing.interval`.
pub fn member_of(reason: &str) -> Option<&str> {
    if let Some((path, rest)) = reason.split_once(NOT_KNOWN) {
        // Several members are no one member, and a long name may be cut.
        let is_one = !rest.contains("; ") && path.len() < NAME_CHARS_MAX && !path.contains(' ');
        return is_one.then_some(path);
    }
    let (path, _) = reason.split_once(": ")?;
    let root = path.split('.').next().unwrap_or_default();
    let is_path = path.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    (is_path && MEMBERS.contains(&root)).then_some(path)
}

/// Whether a reason is what clients of documents are warned of otherwise.
fn is_warning(reason: &str) -> bool {
    reason.contains(NOT_KNOWN) || reason.starts_with(NEVER_POPS)
}

/// Appends a problem: an object with `type`, `title`, `status`, `detail`, and `member` if the
/// reason is about one.
pub fn write_problem(kind: Kind, status: u16, reason: &str, out: &mut Vec<u8>) {
    let (word, title) = kind.words();
    out.extend_from_slice(b"{\"type\":\"");
    write_type(word, out);
    out.extend_from_slice(b"\",\"title\":");
    write_string(title, out);
    out.extend_from_slice(b",\"status\":");
    write_number(status.into(), out);
    out.extend_from_slice(b",\"detail\":");
    write_string(reason, out);
    write_member(reason, out);
    out.push(b'}');
}

/// Appends `,"member":` with the member that a reason is about, if it is about one.
pub fn write_member(reason: &str, out: &mut Vec<u8>) {
    if let Some(member) = member_of(reason) {
        out.extend_from_slice(b",\"member\":");
        write_string(member, out);
    }
}

/// Appends the `type` with this last word.
pub fn write_type(word: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(URN.as_bytes());
    out.extend_from_slice(word.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_members_of_a_document_and_nothing_else() {
        for (reason, member) in [
            ("timing.interval: missing, expected a number of seconds", Some("timing.interval")),
            ("callback: expected the mechanism http alone, got another", Some("callback")),
            ("statistics.tag-info.type: expected 1 to 64 bytes", Some("statistics.tag-info.type")),
            ("body: empty, expected a JSON object", None),
            ("Authorization: expected one, got two", None),
            ("target: expected `/path`, an http URI, or `*`", None),
            ("count: expected ?count=n with n from 1 to 2", None),
            ("timing.repeat_for is not known, did you mean repeat-for?", Some("timing.repeat_for")),
            ("x is not known", Some("x")),
            ("timing.x is not known; timing.y is not known", None),
            ("x; y is not known", None),
            ("callback.http.uri", None),
            ("timing.\u{e9}: x", None),
            ("", None),
        ] {
            assert_eq!(member_of(reason), member, "{reason}");
        }
        assert_eq!(Kind::of(400, "body: empty"), Kind::Document);
        assert_eq!(Kind::of(400, "Host: missing"), Kind::Request);
        assert_eq!(Kind::of(403, "callback.http.uri: expected a host"), Kind::Document);
    }

    #[test]
    fn a_problem_is_json() {
        let mut out = Vec::new();
        write_problem(Kind::Document, 400, "timing.interval: got \"\u{1}\"", &mut out);
        let problem: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            problem,
            serde_json::json!({
                "type": "urn:chronos:error:document",
                "title": "The timer's document is refused",
                "status": 400,
                "detail": "timing.interval: got \"\u{1}\"",
                "member": "timing.interval",
            })
        );
    }

    #[test]
    fn every_kind_has_words_of_its_own() {
        let words: std::collections::BTreeSet<_> =
            Kind::ALL.iter().map(|kind| kind.words()).collect();
        assert_eq!(words.len(), Kind::ALL.len());
    }
}
