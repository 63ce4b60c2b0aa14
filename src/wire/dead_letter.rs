//! A *dead letter*: a pop that was given up, and is kept for whoever wants to know or to try again.
//! It is an attribute of the timer that carries it (`wire::attributes`):
//!
//! ```text
//! flags u8 (1: on its way to its URI, 2: its URI did not take it), reason u8, failure u8,
//! attempts v, status v (0: none), given up at v, kept until v (wall ms), sequence v, answer
//! ```
//!
//! Numbers marked `v` are LEB128. The answer is the rest of the value.

use crate::wire::leb128::{read_leb128, write_leb128};

/// Most bytes that are kept of the answer of a callback server.
pub const LETTER_ANSWER_BYTES_MAX: usize = 256;

const ON_ITS_WAY: u8 = 1;
const URI_FAILED: u8 = 2;

/// What is done with a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LetterUse {
    /// It is shown.
    Show,
    /// Its pop is tried again.
    Replay,
    /// It is deleted.
    Delete,
}

/// Why a pop was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GivenUp {
    /// All attempts that its policy allows have failed.
    Attempts = 0,
    /// It could not be delivered for as long as it is tried, or until the next pop was due.
    Age = 1,
    /// No callback may go to its host.
    Denied = 2,
}

impl GivenUp {
    /// All reasons, by their numbers.
    pub const ALL: [Self; 3] = [Self::Attempts, Self::Age, Self::Denied];

    /// The word of queries and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Age => "age",
            Self::Denied => "denied",
        }
    }

    /// The reason with this word.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// How the last attempt at a pop failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Failure {
    /// The node does not know any more, or there was no attempt.
    #[default]
    Unknown = 0,
    /// An answer that is not 2xx.
    Status = 1,
    /// No name, no connection, a connection broken off, or an answer that is no HTTP.
    Unreachable = 2,
    /// No answer in time.
    TimedOut = 3,
}

impl Failure {
    const ALL: [Self; 4] = [Self::Unknown, Self::Status, Self::Unreachable, Self::TimedOut];

    /// The word of answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Status => "status",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
        }
    }
}

/// A pop that was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetter<'a> {
    /// The timer that carries this is a callback to the letter's URI. Otherwise it is parked.
    pub is_on_its_way: bool,
    /// The letter's URI did not take it.
    pub uri_failed: bool,
    /// Why it was given up.
    pub reason: GivenUp,
    /// How the last attempt failed.
    pub failure: Failure,
    /// Attempts that the node that gave up has made.
    pub attempts: u16,
    /// The status of the last answer; `None`: there was no answer.
    pub status: Option<u16>,
    /// When it was given up, in ms since 1970.
    pub given_up_ms: u64,
    /// Until when it is kept at most, in ms since 1970.
    pub until_ms: u64,
    /// The sequence number of the pop.
    pub sequence: u64,
    /// The first bytes of the last answer, at most [`LETTER_ANSWER_BYTES_MAX`].
    pub answer: &'a [u8],
}

impl<'a> DeadLetter<'a> {
    /// Appends the letter. More of an answer than may be kept is left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        let flags = if self.is_on_its_way { ON_ITS_WAY } else { 0 }
            | if self.uri_failed { URI_FAILED } else { 0 };
        out.extend_from_slice(&[flags, self.reason as u8, self.failure as u8]);
        let status = self.status.unwrap_or(0).into();
        let numbers =
            [self.attempts.into(), status, self.given_up_ms, self.until_ms, self.sequence];
        numbers.into_iter().for_each(|number| write_leb128(number, out));
        out.extend(self.answer.iter().take(LETTER_ANSWER_BYTES_MAX));
    }

    /// Reads a letter, which is all of `value`.
    pub fn read(value: &'a [u8]) -> Option<Self> {
        let (&[flags, reason, failure], mut rest) = value.split_first_chunk::<3>()?;
        let mut upto = |max: u64| read_leb128(&mut rest).filter(|number| *number <= max);
        let attempts = upto(u16::MAX.into())? as u16;
        let status = upto(999)? as u16;
        let [given_up_ms, until_ms, sequence] = [upto(u64::MAX)?, upto(u64::MAX)?, upto(u64::MAX)?];
        let is_known = flags & !(ON_ITS_WAY | URI_FAILED) == 0 && !(1..100).contains(&status);
        (is_known && rest.len() <= LETTER_ANSWER_BYTES_MAX).then_some(Self {
            is_on_its_way: flags & ON_ITS_WAY != 0,
            uri_failed: flags & URI_FAILED != 0,
            reason: *GivenUp::ALL.get(usize::from(reason))?,
            failure: *Failure::ALL.get(usize::from(failure))?,
            attempts,
            status: Some(status).filter(|status| *status > 0),
            given_up_ms,
            until_ms,
            sequence,
            answer: rest,
        })
    }
}

/// A pop that was given up and is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// How often it was begun again: `X-Replay`. At least 1.
    pub count: u32,
    /// The sequence number of the pop that was given up: `X-Sequence-Number`.
    pub sequence: u64,
}

impl Replay {
    /// Appends the replay.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_leb128(self.count.into(), out);
        write_leb128(self.sequence, out);
    }

    /// Reads a replay, which is all of `value`.
    pub fn read(mut value: &[u8]) -> Option<Self> {
        let count = read_leb128(&mut value).and_then(|count| u32::try_from(count).ok())?;
        let sequence = read_leb128(&mut value)?;
        (value.is_empty() && count > 0).then_some(Self { count, sequence })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LETTER: DeadLetter<'static> = DeadLetter {
        is_on_its_way: false,
        uri_failed: true,
        reason: GivenUp::Age,
        failure: Failure::Status,
        attempts: 8,
        status: Some(503),
        given_up_ms: 1_800_000_000_000,
        until_ms: 1_800_600_000_000,
        sequence: 3,
        answer: b"no such user",
    };

    fn written(letter: &DeadLetter<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        letter.write(&mut out);
        out
    }

    #[test]
    fn a_letter_comes_back_as_it_was() {
        let letters = [
            LETTER,
            DeadLetter { is_on_its_way: true, status: None, answer: b"", ..LETTER },
            DeadLetter { reason: GivenUp::Denied, failure: Failure::Unknown, ..LETTER },
        ];
        for letter in letters {
            assert_eq!(DeadLetter::read(&written(&letter)), Some(letter));
        }
        let long = [b'x'; LETTER_ANSWER_BYTES_MAX + 1];
        let bytes = written(&DeadLetter { answer: &long, ..LETTER });
        let read = DeadLetter::read(&bytes).expect("it is bounded when it is written");
        assert_eq!(read.answer.len(), LETTER_ANSWER_BYTES_MAX);
        assert_eq!(DeadLetter::read(&[bytes, vec![1]].concat()), None);
        for reason in GivenUp::ALL {
            assert_eq!(GivenUp::named(reason.name()), Some(reason));
        }
    }

    #[test]
    fn what_is_no_letter_is_refused() {
        for (place, byte) in [(0, 4), (1, 3), (2, 4)] {
            let mut bytes = written(&LETTER);
            bytes[place] = byte;
            assert_eq!(DeadLetter::read(&bytes), None, "{place}");
        }
        let low = written(&DeadLetter { status: Some(99), ..LETTER });
        assert_eq!(DeadLetter::read(&low), None);
        assert_eq!(Replay::read(&[0, 1]), None);
        assert_eq!(Replay::read(&[1, 1, 1]), None);
        assert_eq!(Replay::read(&[1, 7]), Some(Replay { count: 1, sequence: 7 }));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(letter) = DeadLetter::read(&bytes) {
                prop_assert_eq!(written(&letter), bytes);
            }
        }
    }
}
