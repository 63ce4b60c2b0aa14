//! What a node asks another site before it pops a timer that the other site may know better:
//!
//! ```text
//! GET /ping?standing=000198d5f4810000-0198d5f481000001-3-9f1b0a2c HTTP/1.1
//!
//! HTTP/1.1 200 OK
//! X-Chronos-Standing: later
//! ```
//!
//! The query has the id, the version and the number of pops done as the asker holds them, and the
//! hash of the asker's site. An answer `later` has the state as its body, a copy in the form of
//! `wire::peer_message` with the timer's age in place of its start. A site that understands such
//! questions says so where it tells its members ([`COMPARES_HEADER`]). Others are not asked.

// May panic: expectations 1.
// Why it does not: memory 1.

use std::fmt::Write;

use crate::base::ids::{SiteHash, TimerId};
use crate::wire::text::Text;

/// A line of the answer to `GET /ping?members`: the site answers questions about timers, and takes
/// several requests at a time on one connection.
pub const COMPARES_HEADER: &str = "X-Chronos-Compares: 1\r\n";
/// The header with the answer to a question.
const ANSWER_HEADER: &str = "X-Chronos-Standing: ";
const QUERY: &str = "standing=";

/// How far a node of another site is with a timer that it is about to pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteQuestion {
    /// The timer.
    pub id: TimerId,
    /// The write that made the state that the asker holds.
    pub version: u64,
    /// How many pops are done since the write.
    pub sequence: u64,
    /// The asker's site.
    pub site: SiteHash,
}

/// What a site answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SiteAnswer {
    /// The site holds this state, and does not make the pop.
    Held,
    /// The site does not hold the timer, or holds an earlier state.
    Wanted,
    /// The site makes the pop, or cannot tell the asker yet what it does: it is asked again.
    Ahead,
    /// The site holds this later state, a copy with its age in place of its start.
    Later(Box<[u8]>),
}

impl SiteQuestion {
    /// Appends the target of the request.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { id, version, sequence, site } = *self;
        write!(Text(out), "/ping?{QUERY}{:016x}-{version:016x}-{sequence}-{:08x}", id.0, site.0)
            .expect("writing to memory does not fail");
    }

    /// Returns the question in the query of a `/ping`; `None`: it has none.
    pub fn parse(query: &str) -> Option<Self> {
        let mut parts = query.strip_prefix(QUERY)?.split('-');
        let id = TimerId(hex(parts.next()?, 16)?);
        let version = hex(parts.next()?, 16)?;
        let sequence = parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        let sequence = sequence?.parse().ok()?;
        let site = SiteHash(hex(parts.next()?, 8)? as u32);
        let question = Self { id, version, sequence, site };
        parts.next().is_none().then_some(question)
    }
}

impl SiteAnswer {
    /// The header line of the answer.
    pub fn header(&self) -> String {
        let word = match self {
            Self::Held => "held",
            Self::Wanted => "wanted",
            Self::Ahead => "ahead",
            Self::Later(_) => "later",
        };
        format!("{ANSWER_HEADER}{word}\r\n")
    }

    /// The body of the answer.
    pub fn body(&self) -> &[u8] {
        match self {
            Self::Later(copy) => copy,
            _ => &[],
        }
    }

    /// Returns the answer that a whole HTTP answer with 200 has; `None`: it has none. The body of a
    /// later state is not checked.
    pub fn parse(head: &[u8], body: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        match head.split("\r\n").find_map(|line| line.strip_prefix(ANSWER_HEADER))? {
            "held" => Some(Self::Held),
            "wanted" => Some(Self::Wanted),
            "ahead" => Some(Self::Ahead),
            "later" => Some(Self::Later(body.into())),
            _ => None,
        }
    }
}

/// Returns the number that so many hex digits tell, up to 16.
fn hex(part: &str, digits: usize) -> Option<u64> {
    let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_number { u64::from_str_radix(part, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: SiteQuestion = SiteQuestion {
        id: TimerId(0x1_98d5_f481_0000),
        version: 77,
        sequence: 3,
        site: SiteHash(0x9f1b),
    };

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let mut target = Vec::new();
        QUESTION.write(&mut target);
        let target = String::from_utf8(target).expect("text");
        assert_eq!(target, "/ping?standing=000198d5f4810000-000000000000004d-3-00009f1b");
        let (_, query) = target.split_once('?').expect("a query");
        assert_eq!(SiteQuestion::parse(query), Some(QUESTION));
    }

    #[test]
    fn what_is_no_question_is_none() {
        for bad in [
            "members",
            "standing=",
            "standing=000198d5f4810000-000000000000004d-3",
            "standing=000198d5f4810000-000000000000004d-3-00009f1b-",
            "standing=000198d5f4810000-000000000000004d-+3-00009f1b",
            "standing=000198d5f4810000-000000000000004d--00009f1b",
            "standing=000198d5f4810000-+00000000000004d-3-00009f1b",
            "standing=000198d5f4810000-000000000000004d-3-+0009f1b",
            "standing=000198d5f4810000-000000000000004d-99999999999999999999-00009f1b",
            "standing=98d5f4810000-000000000000004d-3-00009f1b",
        ] {
            assert_eq!(SiteQuestion::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let later = SiteAnswer::Later(Box::from(&b"copy"[..]));
        for answer in [SiteAnswer::Held, SiteAnswer::Wanted, SiteAnswer::Ahead, later] {
            let head = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", answer.header());
            assert_eq!(SiteAnswer::parse(head.as_bytes(), answer.body()), Some(answer));
        }
        assert_eq!(SiteAnswer::parse(b"HTTP/1.1 200 OK\r\n\r\n", b""), None);
        assert_eq!(
            SiteAnswer::parse(b"HTTP/1.1 200 OK\r\nX-Chronos-Standing: x\r\n\r\n", b""),
            None
        );
    }
}
