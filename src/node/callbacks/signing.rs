//! Signatures of callbacks: the symmetric scheme of the Standard Webhooks specification 1.0.0. A
//! receiver that knows the secret can tell that this service made the callback, when, and for which
//! pop. Bytes only: no file, no clock.
//!
//! ```text
//! webhook-id: 0004d9f548100001-066cc1e2a0401402-3
//! webhook-timestamp: 1674087231
//! webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=
//! ```
//!
//! The id names the pop: the timer's id, the version of its definition, the number of the pop. All
//! replicas of a timer hold the same three. So whichever of them makes an attempt at a pop sends
//! the same id, and a receiver drops doubles by the id. Another pop has another number, and what a
//! client puts in the timer's place has another version, so no two pops share an id. An id has
//! hexadecimal digits, decimal digits and `-`: no byte that ends a header, and no `.`, which would
//! let two messages be signed alike.

// May panic: expectations 2, indices 2.
// Why it does not: found 2, fixed 1, compiled 1.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::base::ids::TimerId;
use crate::base::time::WallMs;
use crate::timer::version::Version;
use crate::wire::json::write_number;
use crate::wire::timer_path::hex_digits;

/// What a secret begins with.
const PREFIX: &[u8] = b"whsec_";
/// Fewest and most bytes of a secret, as the specification has them.
pub const SECRET_BYTES_MIN: usize = 24;
/// Most bytes of a secret: a block of SHA-256.
pub const SECRET_BYTES_MAX: usize = 64;
/// Most secrets: the present one, and the former one until all receivers know the present one.
pub const SECRETS_MAX: usize = 2;
/// Most bytes of the file: two secrets of 94 bytes, the rest for comments.
pub const FILE_BYTES_MAX: usize = 4 << 10;

/// What is wrong with a file of signing secrets. The text never shows a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// A line is no secret.
    #[error(
        "line {line}: expected `whsec_` and base64 with its padding, found something else; make a \
         line with: echo whsec_$(openssl rand -base64 32)"
    )]
    Line {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// A secret has too few or too many bytes.
    #[error(
        "line {line}: expected the base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes behind \
         `whsec_`, found that of {bytes}; make a line with: echo whsec_$(openssl rand -base64 32)"
    )]
    Length {
        /// The number of the line, counted from 1.
        line: usize,
        /// The bytes of the secret.
        bytes: usize,
    },
    /// The same secret stands in the file twice.
    #[error("line {line}: expected another secret, found the first one again; take the line out")]
    Twice {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// The file has more than [`SECRETS_MAX`] secrets.
    #[error(
        "line {line}: expected at most {SECRETS_MAX} secrets, the present one and the former one, \
         found another one; take out the one that no receiver needs any more"
    )]
    TooMany {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// The file has no secret.
    #[error(
        "expected one secret a line, found none; make one with: echo whsec_$(openssl rand -base64 \
         32)"
    )]
    Empty,
    /// The file has more than [`FILE_BYTES_MAX`] bytes.
    #[error("expected at most {FILE_BYTES_MAX} bytes, found more; is it the right file?")]
    TooLong,
}

/// Names a pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pop {
    /// The timer.
    pub id: TimerId,
    /// The version of the definition that popped.
    pub version: Version,
    /// The number of the pop, from 1: `X-Sequence-Number`.
    pub sequence: u64,
}

#[derive(Clone)]
struct Secret {
    bytes: Vec<u8>,
    /// The state of the HMAC once it has taken the key. To copy the state costs 200 bytes; to take
    /// the key again would cost two blocks of SHA-256.
    keyed: Hmac<Sha256>,
}

/// Signs with one secret or two. Never empty.
#[derive(Clone)]
pub struct Signer(Vec<Secret>);

/// Shows how many secrets there are, and nothing of them.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} signing secrets", self.0.len())
    }
}

/// Whether both sign with the same secrets, in the same order.
impl PartialEq for Signer {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(|secret| &secret.bytes).eq(other.0.iter().map(|secret| &secret.bytes))
    }
}

impl Eq for Signer {}

impl Signer {
    /// Reads the bytes of a file: one secret a line. Empty lines and lines that begin with `#` are
    /// left out. Accepts any bytes without panicking.
    pub fn parse(text: &[u8]) -> Result<Self, SigningError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(SigningError::TooLong);
        }
        let mut secrets: Vec<Secret> = Vec::new();
        for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let text = text.trim_ascii();
            if text.is_empty() || text.starts_with(b"#") {
                continue;
            }
            let digits = text.strip_prefix(PREFIX);
            let bytes = digits.and_then(from_base64).ok_or(SigningError::Line { line })?;
            if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
                return Err(SigningError::Length { line, bytes: bytes.len() });
            }
            if secrets.iter().any(|other| other.bytes == bytes) {
                return Err(SigningError::Twice { line });
            }
            if secrets.len() == SECRETS_MAX {
                return Err(SigningError::TooMany { line });
            }
            let keyed = Hmac::new_from_slice(&bytes).expect("a key may have any length");
            secrets.push(Secret { bytes, keyed });
        }
        if secrets.is_empty() { Err(SigningError::Empty) } else { Ok(Self(secrets)) }
    }

    /// How many secrets there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Appends the three headers of an attempt at a pop, each with the end of its line. `body` is
    /// the body that follows. Cost for a body of up to 70 bytes: three blocks of SHA-256 for each
    /// secret; `benches/signing.rs` measures it.
    pub fn write_headers(&self, out: &mut Vec<u8>, pop: &Pop, at: WallMs, body: &[u8]) {
        out.extend_from_slice(b"webhook-id: ");
        let id_begins = out.len();
        write_id(out, pop);
        let id = id_begins..out.len();
        out.extend_from_slice(b"\r\nwebhook-timestamp: ");
        let timestamp_begins = out.len();
        write_number(at.0 / 1_000, out);
        let timestamp = timestamp_begins..out.len();
        out.extend_from_slice(b"\r\nwebhook-signature:");
        for secret in &self.0 {
            let signed = [&out[id.clone()], &out[timestamp.clone()], body];
            let signature = signature_of(&secret.keyed, signed);
            out.extend_from_slice(b" v1,");
            write_base64(out, &signature);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The HMAC of the id, the timestamp and the body, with dots between them.
fn signature_of(keyed: &Hmac<Sha256>, [id, timestamp, body]: [&[u8]; 3]) -> [u8; 32] {
    let mut mac = keyed.clone();
    for part in [id, b".", timestamp, b".", body] {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn write_id(out: &mut Vec<u8>, pop: &Pop) {
    out.extend_from_slice(&hex_digits(pop.id.0));
    out.push(b'-');
    out.extend_from_slice(&hex_digits(pop.version.0));
    out.push(b'-');
    write_number(pop.sequence, out);
}

/// Appends the base64 of 32 bytes: 43 digits and one `=`.
fn write_base64(out: &mut Vec<u8>, bytes: &[u8; 32]) {
    let mut digits = [0; 44];
    STANDARD.encode_slice(bytes, &mut digits).expect("32 bytes have 44 digits");
    out.extend_from_slice(&digits);
}

/// The bytes of base64 with its padding. `None`: it is none, or other digits would be the same
/// bytes.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of the specification's reference libraries.
    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const OTHER: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const POP: Pop =
        Pop { id: TimerId(0x4d9f548100001), version: Version(0x66cc1e2a0401402), sequence: 3 };

    fn signer(text: &str) -> Signer {
        Signer::parse(text.as_bytes()).expect("good secrets")
    }

    fn signature(secret: &str, parts: [&str; 3]) -> String {
        let key = from_base64(&secret.as_bytes()[PREFIX.len()..]).expect("base64");
        let keyed = Hmac::new_from_slice(&key).expect("a key may have any length");
        let mac = signature_of(&keyed, parts.map(str::as_bytes));
        let mut out = Vec::new();
        write_base64(&mut out, &mac);
        String::from_utf8(out).expect("digits")
    }

    /// The vectors of the specification's reference libraries and of its tool for receivers.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let body = r#"{"email":"test@example.com","username":"test_user"}"#;
        let parts = ["msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", "1649367553", body];
        assert_eq!(signature(SECRET, parts), "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
        let body = r#"{"event_type":"ping","data":{"success":true}}"#;
        let parts = ["msg_loFOjxBNrRLzqYUf", "1731705121", body];
        // Its secret has fewer bytes than the specification asks for.
        let secret = "whsec_plJ3nmyCDGBKInavdOK15jsl";
        assert_eq!(signature(secret, parts), "rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=");
    }

    #[test]
    fn headers_name_the_pop_and_have_a_signature_of_each_secret() {
        let (id, at) = ("0004d9f548100001-066cc1e2a0401402-3", WallMs(1_674_087_231_999));
        for secrets in [vec![SECRET], vec![OTHER, SECRET]] {
            let mut out = Vec::with_capacity(1_024);
            signer(&secrets.join("\n")).write_headers(&mut out, &POP, at, b"hello");
            assert_eq!(out.capacity(), 1_024);
            let of_each = secrets
                .iter()
                .map(|secret| format!(" v1,{}", signature(secret, [id, "1674087231", "hello"])));
            let signatures: String = of_each.collect();
            let expected = format!(
                "webhook-id: {id}\r\nwebhook-timestamp: 1674087231\r\n\
                 webhook-signature:{signatures}\r\n"
            );
            assert_eq!(String::from_utf8(out).expect("text"), expected);
        }
    }

    #[test]
    fn no_two_pops_share_an_id() {
        let id = |pop: Pop| {
            let mut out = Vec::new();
            write_id(&mut out, &pop);
            out
        };
        let others = [
            Pop { id: TimerId(1), ..POP },
            Pop { version: Version(POP.version.0 + 1), ..POP },
            Pop { sequence: 33, ..POP },
            Pop { id: TimerId(POP.version.0), version: Version(POP.id.0), ..POP },
        ];
        for other in others {
            assert_ne!(id(other), id(POP));
        }
        let last = Pop { id: TimerId(u64::MAX), version: Version(u64::MAX), sequence: u64::MAX };
        assert!(id(last).iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'));
    }

    #[test]
    fn base64_is_read_as_it_is_written() {
        for number in 0..=u8::MAX {
            let bytes: [u8; 32] = std::array::from_fn(|at| number.wrapping_mul(at as u8 + 1));
            let mut out = Vec::new();
            write_base64(&mut out, &bytes);
            assert_eq!((out.len(), from_base64(&out)), (44, Some(bytes.to_vec())));
        }
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo")] {
            assert_eq!(from_base64(text.as_bytes()), Some(bytes.as_bytes().to_vec()));
        }
        let none = ["Zg", "Zg=", "Zg===", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm-v", "Z", "="];
        for text in none {
            assert_eq!(from_base64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_file_has_one_secret_or_two() {
        let two = signer(&format!("# now\n\n  {SECRET}\r\n# before\n{OTHER}"));
        assert_eq!((two.count(), format!("{two:?}")), (2, "2 signing secrets".to_owned()));
        assert_eq!(two, signer(&format!("{SECRET}\n{OTHER}\n")));
        assert_ne!(two, signer(&format!("{OTHER}\n{SECRET}\n")));
        let parse = |text: &str| Signer::parse(text.as_bytes()).expect_err(text);
        for wrong in [&SECRET[6..], "whsec_", "whsec_known known", "WHSEC_plJ3", "\u{0}"] {
            let told = match wrong {
                "whsec_" => SigningError::Length { line: 2, bytes: 0 },
                _ => SigningError::Line { line: 2 },
            };
            assert_eq!(parse(&format!("{SECRET}\n{wrong}")), told);
            assert!(!told.to_string().contains("known"));
        }
        assert_eq!(parse("whsec_AAAA"), SigningError::Length { line: 1, bytes: 3 });
        let long = format!("whsec_{}", "A".repeat(88));
        assert_eq!(parse(&long), SigningError::Length { line: 1, bytes: 66 });
        assert!(Signer::parse(format!("whsec_{}AA==", "A".repeat(84)).as_bytes()).is_ok());
        assert_eq!(parse(&format!("{SECRET}\n{SECRET}")), SigningError::Twice { line: 2 });
        let third = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let three = format!("{SECRET}\n{OTHER}\n{third}");
        assert_eq!(parse(&three), SigningError::TooMany { line: 3 });
        for empty in ["", "# only words\n"] {
            assert_eq!(parse(empty), SigningError::Empty);
        }
        assert_eq!(parse(&"#".repeat(FILE_BYTES_MAX + 1)), SigningError::TooLong);
        assert_eq!(Signer::parse(b"\xff"), Err(SigningError::Line { line: 1 }));
    }
}
