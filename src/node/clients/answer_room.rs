//! How much may be answered: bytes of answers that are made and not yet taken by their clients.
//!
//! A request of 100 bytes can ask for an answer of a megabyte, and a client need not read the
//! answer.
//!
//! - A long answer is made only where its connection and its core have room for it.
//! - A turn makes so few long answers that other clients are served in time.
//! - Short answers need no room: a connection is not read from while a few of them wait.

use crate::base::limits::Limits;
use crate::shard::effects::Answer;

use crate::node::clients::answers::{Persistence, write_answer, write_error};

/// Answers with at most this many bytes of content are made, whatever else waits.
pub const SHORT_BYTES_MAX: usize = 4 << 10;
/// Bytes of long answers on one connection, in multiples of
/// `limits.unsent_bytes_per_connection_max`. Above it no further long answer is made. Only reads
/// that other cores and nodes answer can get that far.
const LONG_PER_CONNECTION: usize = 16;
/// Bytes of answers to reads in one portion. A turn has two portions: one for what clients sent in
/// this turn and one for what former turns left over. A portion takes some milliseconds.
const READ_BYTES_PER_PORTION: usize = 1 << 20;

const NO_ROOM: &str = "too many bytes of answers wait for their clients \
    (limits.unsent_bytes_per_core_max); retry in a moment";
const NO_ROOM_HERE: &str = "too many bytes of answers wait on this connection \
    (limits.unsent_bytes_per_connection_max); read them and retry";

/// The room for answers on one core.
#[derive(Debug)]
pub struct AnswerRoom {
    /// Bytes of answers that all connections hold, as last accounted.
    pub held_bytes: usize,
    /// How many answers were refused for lack of room.
    pub refused: u64,
    held_bytes_max: usize,
    held_bytes_max_per_connection: usize,
    portion_bytes: usize,
    is_wanted: bool,
}

impl AnswerRoom {
    /// The room of a core that holds no answers.
    pub fn new(limits: &Limits) -> Self {
        let per_connection = limits.unsent_bytes_per_connection_max as usize;
        Self {
            held_bytes: 0,
            refused: 0,
            held_bytes_max: usize::try_from(limits.unsent_bytes_per_core_max).unwrap_or(usize::MAX),
            held_bytes_max_per_connection: per_connection * LONG_PER_CONNECTION,
            portion_bytes: READ_BYTES_PER_PORTION,
            is_wanted: false,
        }
    }

    /// Begins another portion of reads.
    pub fn begin_portion(&mut self) {
        self.portion_bytes = READ_BYTES_PER_PORTION;
    }

    /// Returns whether another read may be served in this portion.
    pub fn may_read(&self) -> bool {
        self.portion_bytes > 0
    }

    /// Appends the answer of a shard, or 503 where there is no room for it. `held_bytes` are the
    /// bytes of answers that the connection holds already. Returns the bytes written.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        answer: &Answer,
        persistence: Persistence,
        held_bytes: usize,
    ) -> usize {
        let begins = out.len();
        match self.refusal(answer, held_bytes) {
            None => write_answer(out, answer, persistence),
            Some(reason) => write_error(out, 503, reason, persistence),
        }
        let written = out.len() - begins;
        self.portion_bytes = self.portion_bytes.saturating_sub(written);
        written
    }

    fn refusal(&mut self, answer: &Answer, held_bytes: usize) -> Option<&'static str> {
        let is_short = answer.heap_bytes() <= SHORT_BYTES_MAX;
        let fits_core = self.held_bytes < self.held_bytes_max;
        let fits_connection = held_bytes <= self.held_bytes_max_per_connection;
        if is_short || (fits_core && fits_connection) {
            return None;
        }
        self.refused += 1;
        self.is_wanted |= !fits_core;
        Some(if fits_core { NO_ROOM_HERE } else { NO_ROOM })
    }

    /// Returns whether an answer was refused since the last call because the connections of the
    /// core hold too much.
    pub fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::shard::effects::TimerView;
    use crate::timer::version::Version;

    const KEEP: Persistence = Persistence { keep_alive: true, ..Persistence::CLOSE };

    fn found(opaque_bytes: usize) -> Answer {
        Answer::Found(Box::new(TimerView {
            id: TimerId(1),
            factor: 1,
            filter: 0,
            interval_ms: 1,
            repeat_for_ms: 1,
            age_ms: 0,
            version: Version(1),
            sequence: 0,
            uri: String::new(),
            opaque: vec![0; opaque_bytes].into(),
            attributes: Box::default(),
            tags: Vec::new(),
        }))
    }

    fn status(room: &mut AnswerRoom, answer: &Answer, held_bytes: usize) -> String {
        let mut out = Vec::new();
        assert_eq!(room.write(&mut out, answer, KEEP, held_bytes), out.len());
        String::from_utf8(out[9..12].to_vec()).expect("a status")
    }

    #[test]
    fn a_long_answer_needs_room_on_its_connection_and_on_its_core() {
        let limits = Limits {
            unsent_bytes_per_connection_max: 1_000,
            unsent_bytes_per_core_max: 50_000,
            ..Limits::default()
        };
        let mut room = AnswerRoom::new(&limits);
        let (short, long) = (found(SHORT_BYTES_MAX), found(SHORT_BYTES_MAX + 1));
        assert_eq!(status(&mut room, &long, 16_000), "200");
        assert_eq!(status(&mut room, &long, 16_001), "503");
        assert_eq!(status(&mut room, &short, 16_001), "200");
        assert!(!room.take_wanted(), "it is this connection's own");
        room.held_bytes = 49_999;
        assert_eq!(status(&mut room, &long, 0), "200");
        room.held_bytes = 50_000;
        assert_eq!(status(&mut room, &long, 0), "503");
        assert_eq!(status(&mut room, &short, 0), "200");
        assert_eq!(room.refused, 2);
        assert!(room.take_wanted());
        assert!(!room.take_wanted(), "once");
    }

    #[test]
    fn a_portion_ends_with_the_answer_that_fills_it() {
        let mut room = AnswerRoom::new(&Limits::default());
        let answer = found(100_000);
        assert_eq!(status(&mut room, &answer, 0), "200");
        assert!(room.may_read(), "600 000 bytes of a million");
        assert_eq!(status(&mut room, &answer, 0), "200");
        assert!(!room.may_read());
        room.begin_portion();
        assert!(room.may_read());
    }
}
