//! The name of a timer in a path, `/timers/by-name/<name>`: any text of 1 to 256 bytes, percent
//! escapes resolved (RFC 3986 section 2.1).

/// Longest name in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 256;
/// The slashes of a path before the name.
const SLASHES: usize = 3;

/// Why a path has no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// There are none or too many bytes.
    #[error("name: expected 1 to {NAME_BYTES_MAX} bytes of UTF-8, got {0}")]
    Length(usize),
    /// A `%` without its two digits.
    #[error("name: expected two hexadecimal digits behind each %, got something else")]
    Escape,
    /// A slash ends a segment of a path, so two programs could read two names.
    #[error("name: expected %2F where the name has a slash, got /")]
    Slash,
    /// The bytes are no text.
    #[error("name: expected UTF-8, got other bytes")]
    Utf8,
}

/// The path of the timer in that of an action ([`super::timer_action`]).
pub fn before_action(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(timer, _)| timer)
}

/// Reads the name in a path that [`parse_path`](super::timer_path::parse_path) has found to be that
/// of a timer by its name. Cost: an allocation.
pub fn name_in(path: &str) -> Result<String, NameError> {
    let escaped = path.splitn(SLASHES + 1, '/').nth(SLASHES).unwrap_or_default();
    let mut name = Vec::new();
    let mut rest = escaped.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let byte = match first {
            b'/' => return Err(NameError::Slash),
            b'%' => {
                let (digits, tail) = rest.split_first_chunk().ok_or(NameError::Escape)?;
                rest = tail;
                byte_of(*digits).ok_or(NameError::Escape)?
            }
            byte => byte,
        };
        name.push(byte);
    }
    if !is_name_length(name.len()) {
        return Err(NameError::Length(name.len()));
    }
    String::from_utf8(name).map_err(|_| NameError::Utf8)
}

/// Whether a name can have so many bytes.
pub fn is_name_length(bytes: usize) -> bool {
    (1..=NAME_BYTES_MAX).contains(&bytes)
}

fn byte_of(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Result<String, NameError> {
        name_in(&format!("/timers/by-name/{text}"))
    }

    #[test]
    fn a_name_is_any_text() {
        for (text, expected) in [
            ("invoice-17", "invoice-17"),
            ("a%20b", "a b"),
            ("a+b", "a+b"),
            ("%2F%2f", "//"),
            ("%00%0a", "\0\n"),
            ("%E2%82%ac", "\u{20ac}"),
            ("\u{20ac}", "\u{20ac}"),
            ("..", ".."),
            ("%25", "%"),
        ] {
            assert_eq!(name(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(name_in("/timers/%62y-name/x").as_deref(), Ok("x"));
    }

    #[test]
    fn what_is_no_name_is_told_why() {
        let of_bytes = |bytes: usize| name(&"a".repeat(bytes)).map(|name| name.len());
        assert_eq!((of_bytes(1), of_bytes(256)), (Ok(1), Ok(256)));
        assert_eq!(of_bytes(0), Err(NameError::Length(0)));
        assert_eq!(of_bytes(257), Err(NameError::Length(257)));
        let escaped = |bytes: usize| name(&"%61".repeat(bytes)).map(|name| name.len());
        assert_eq!((escaped(256), escaped(257)), (Ok(256), Err(NameError::Length(257))));
        for bad in ["%", "a%", "%4", "%zz", "%+1", "%4 ", "%\u{20ac}"] {
            assert_eq!(name(bad), Err(NameError::Escape), "{bad}");
        }
        for bad in ["/", "a/b", "a/"] {
            assert_eq!(name(bad), Err(NameError::Slash), "{bad}");
        }
        for bad in ["%ff", "%c3", "%c3%28", "%ed%a0%80"] {
            assert_eq!(name(bad), Err(NameError::Utf8), "{bad}");
        }
    }
}
