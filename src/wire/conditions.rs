//! The headers on which a write depends: `If-Match` and `If-None-Match` (RFC 9110 sections 13.1.1
//! and 13.1.2), and `Idempotency-Key`.
//!
//! The version of a timer is its entity tag: 16 hexadecimal digits in quotation marks.

use super::timer_path::hex_digits;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Hexadecimal digits of a version.
const VERSION_DIGITS: usize = 16;

/// What must be so for a write to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// `If-None-Match: *`: there is no such timer.
    Absent,
    /// `If-Match: *`: there is one.
    Present,
    /// `If-Match: "..."`: it has this version.
    Version(u64),
}

/// What the headers of a request say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conditions<'a> {
    /// What must be so for the write to be made; `None`: nothing.
    pub precondition: Option<Precondition>,
    /// The key under which the client makes a create at most once.
    pub key: Option<&'a [u8]>,
}

/// Why headers are not taken: the name, what was expected, and what came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(pub &'static str);

const TWO_MATCH: ConditionError = ConditionError("If-Match: expected one, got two");
const TWO_NONE_MATCH: ConditionError = ConditionError("If-None-Match: expected one, got two");
const TWO_KEYS: ConditionError = ConditionError("Idempotency-Key: expected one, got two");
const NO_VERSION: ConditionError =
    ConditionError("If-Match: expected * or one version as ETag has it, got something else");
const NO_STAR: ConditionError = ConditionError("If-None-Match: expected *, got something else");
const BOTH: ConditionError =
    ConditionError("If-Match: expected without If-None-Match, got both headers");
const KEY_BESIDE: ConditionError =
    ConditionError("Idempotency-Key: expected without If-Match and If-None-Match, got one of them");
const NO_KEY: ConditionError = ConditionError(
    "Idempotency-Key: expected 1 to 255 characters of visible ASCII and blanks, got something else",
);

/// Reads the headers of a head that `wire::request_head` has parsed. Cost: one pass over the head.
pub fn read_conditions(head: &[u8]) -> Result<Conditions<'_>, ConditionError> {
    let (mut matches, mut none_match, mut key) = (None, None, None);
    // The request line has no name of a header before its first colon.
    for line in head.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        let value = value.trim_ascii();
        let (place, twice) = match name.len() {
            8 if name.eq_ignore_ascii_case(b"if-match") => (&mut matches, TWO_MATCH),
            13 if name.eq_ignore_ascii_case(b"if-none-match") => (&mut none_match, TWO_NONE_MATCH),
            15 if name.eq_ignore_ascii_case(b"idempotency-key") => (&mut key, TWO_KEYS),
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Err(twice);
        }
    }
    let precondition = match (matches, none_match) {
        (Some(_), Some(_)) => return Err(BOTH),
        (Some(b"*"), None) => Some(Precondition::Present),
        (Some(tag), None) => Some(Precondition::Version(version_of(tag).ok_or(NO_VERSION)?)),
        (None, Some(b"*")) => Some(Precondition::Absent),
        (None, Some(_)) => return Err(NO_STAR),
        (None, None) => None,
    };
    if key.is_some() && precondition.is_some() {
        return Err(KEY_BESIDE);
    }
    match key {
        Some(key) if !is_key(key) => Err(NO_KEY),
        key => Ok(Conditions { precondition, key }),
    }
}

/// Whether a head that `wire::request_head` has parsed has `If-Match` or `If-None-Match`, whatever
/// they say. Cost: one pass over the head.
pub fn has_precondition(head: &[u8]) -> bool {
    let mut names = head.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        line.get(..colon)
    });
    names.any(|name| {
        name.eq_ignore_ascii_case(b"if-match") || name.eq_ignore_ascii_case(b"if-none-match")
    })
}

/// Appends the entity tag of a version.
pub fn write_tag(version: u64, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(&hex_digits(version));
    out.push(b'"');
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// The version in an entity tag. Digits have the one form in which they are sent.
fn version_of(tag: &[u8]) -> Option<u64> {
    let digits = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != VERSION_DIGITS || !digits.iter().all(is_plain) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &str) -> Result<Conditions<'static>, ConditionError> {
        let head = format!("PUT /timers/by-name/if-match:%22 HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        read_conditions(head.leak().as_bytes())
    }

    #[test]
    fn each_header_says_what_must_be_so() {
        let of = |precondition| Ok(Conditions { precondition, key: None });
        assert_eq!(read(""), Ok(Conditions::default()));
        assert_eq!(read("if-none-match:*\r\n"), of(Some(Precondition::Absent)));
        assert_eq!(read("IF-MATCH: * \r\n"), of(Some(Precondition::Present)));
        let version = Precondition::Version(0x1f);
        assert_eq!(read("If-Match: \"000000000000001f\"\r\n"), of(Some(version)));
        let key = Conditions { precondition: None, key: Some(b"a b:c") };
        assert_eq!(read("Idempotency-Key:  a b:c \r\n"), Ok(key));
        for bytes in [1, KEY_BYTES_MAX] {
            assert!(read(&format!("Idempotency-Key: {}\r\n", "k".repeat(bytes))).is_ok());
        }
    }

    #[test]
    fn a_precondition_is_seen_whatever_it_says() {
        let has = |headers: &str| {
            let head =
                format!("PUT /timers/if-match:1 HTTP/1.1\r\nHost: if-match\r\n{headers}\r\n");
            has_precondition(head.as_bytes())
        };
        for header in ["If-Match: *", "if-none-match:", "IF-MATCH: nonsense"] {
            assert!(has(&format!("{header}\r\n")), "{header}");
        }
        for header in ["", "Idempotency-Key: if-match\r\n", "If-Matches: *\r\n"] {
            assert!(!has(header), "{header}");
        }
    }

    #[test]
    fn a_tag_is_read_as_it_is_written() {
        for version in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mut tag = Vec::new();
            write_tag(version, &mut tag);
            assert_eq!(version_of(&tag), Some(version));
        }
    }

    #[test]
    fn what_says_nothing_clear_is_refused() {
        let tag = "\"000000000000001f\"";
        for value in ["", "1", "x", "\"\"", "**", "W/\"000000000000001f\"", "\"000000000000001F\""]
            .into_iter()
            .map(str::to_owned)
            .chain([format!("{tag}, {tag}"), "\"+00000000000001f\"".into(), "\"1\"".into()])
        {
            assert_eq!(read(&format!("If-Match: {value}\r\n")), Err(NO_VERSION), "{value}");
        }
        for value in ["", tag, "**"] {
            assert_eq!(read(&format!("If-None-Match: {value}\r\n")), Err(NO_STAR), "{value}");
        }
        assert_eq!(read("If-Match: *\r\nIf-None-Match: *\r\n"), Err(BOTH));
        assert_eq!(read("If-Match: *\r\nif-match: *\r\n"), Err(TWO_MATCH));
        assert_eq!(read("If-None-Match: *\r\nif-none-match: *\r\n"), Err(TWO_NONE_MATCH));
        assert_eq!(read("Idempotency-Key: a\r\nidempotency-key: a\r\n"), Err(TWO_KEYS));
        assert_eq!(read("Idempotency-Key: a\r\nIf-None-Match: *\r\n"), Err(KEY_BESIDE));
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        for key in ["", " ", "a\tb", "a\u{e9}", "\u{7f}", &long] {
            assert_eq!(read(&format!("Idempotency-Key: {key}\r\n")), Err(NO_KEY), "{key}");
        }
    }
}
