//! The header `Accept` (RFC 9110 section 12.5.1), as far as this service looks at it: whether it
//! names a media type.

/// Returns whether the value of an `Accept` header names `media_type` and wants it: with a weight
/// above 0, or without a weight. Ranges such as `*/*` name nothing. An item whose weight is no
/// weight names nothing, and neither does one with a string that does not end.
///
/// Accepts any bytes. Cost: two passes over the value, no allocation.
pub fn accepts(value: &[u8], media_type: &[u8]) -> bool {
    parts(value, b',').any(|item| wants(item, media_type))
}

/// Whether one item of the list, `type/subtype;parameter=value;q=0.5`, wants the type.
fn wants(item: &[u8], media_type: &[u8]) -> bool {
    let mut parts = parts(item, b';');
    let is_named = |name: &[u8]| name.trim_ascii().eq_ignore_ascii_case(media_type);
    parts.next().is_some_and(is_named) && parts.all(allows)
}

/// Whether a parameter is no weight, or a weight above 0.
fn allows(parameter: &[u8]) -> bool {
    let mut halves = parameter.splitn(2, |&byte| byte == b'=');
    let name = halves.next().unwrap_or_default().trim_ascii();
    let value = halves.next().unwrap_or_default().trim_ascii();
    let is_whole = value.first() != Some(&b'"') || (value.len() > 1 && value.ends_with(b"\""));
    is_whole && (!name.eq_ignore_ascii_case(b"q") || is_weight_above_0(value))
}

/// Whether a weight is well formed (RFC 9110 section 12.4.2) and above 0.
fn is_weight_above_0(weight: &[u8]) -> bool {
    let (decimals, whole) = match weight {
        [whole @ (b'0' | b'1')] => (&[][..], *whole),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (decimals, *whole),
        _ => return false,
    };
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let is_above_0 = decimals.iter().any(|&digit| digit != b'0');
    decimals.len() <= 3 && decimals.iter().all(is_digit) && (whole == b'1') != is_above_0
}

/// The parts of a value between separators that stand outside of quoted strings.
fn parts(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value.split(move |&byte| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match byte {
            b'\\' if is_quoted && !was_escaped => is_escaped = true,
            b'"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        byte == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wanted(value: &str) -> bool {
        accepts(value.as_bytes(), b"application/problem+json")
    }

    #[test]
    fn a_type_that_is_named_is_wanted() {
        for value in [
            "application/problem+json",
            "Application/Problem+JSON",
            " application/problem+json ; charset=utf-8 ",
            "text/html, application/problem+json;q=0.001, */*;q=0.8",
            "application/problem+json;q=1.000",
            "application/problem+json; Q=0.5",
            "application/problem+json;q=0, application/problem+json",
            r#"text/plain;x="\",", application/problem+json"#,
            ",,application/problem+json,",
            "application/problem+json;",
        ] {
            assert!(is_wanted(value), "{value}");
        }
    }

    #[test]
    fn a_type_that_is_not_named_or_not_wanted() {
        for value in [
            "",
            "*/*",
            "application/*",
            "application/json",
            "application/problem+json5",
            "application/problem+json;q=0",
            "application/problem+json;q=0.",
            "application/problem+json;q=0.000",
            "application/problem+json;q=0;q=1",
            r#"text/plain;x="a,application/problem+json,b""#,
            r#"text/plain;x="\",application/problem+json"#,
            r#"application/problem+json;x=""#,
        ] {
            assert!(!is_wanted(value), "{value}");
        }
    }

    #[test]
    fn a_weight_that_is_none_wants_nothing() {
        for weight in ["", "-1", "+1", "2", "1.001", "0.0001", "1.0000", "0,5", ".5", "NaN", "1e0"]
        {
            assert!(!is_wanted(&format!("application/problem+json;q={weight}")), "{weight}");
        }
        assert!(!is_wanted("application/problem+json;q=\"1\""));
    }

    #[test]
    fn long_values_are_read_once() {
        let value = "application/problem+json;q=9,".repeat(100_000);
        assert!(!is_wanted(&value));
        assert!(is_wanted(&(value + "application/problem+json")));
        assert!(!is_wanted(&"\"\\".repeat(100_000)));
    }
}
