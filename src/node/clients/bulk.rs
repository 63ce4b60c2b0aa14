//! A bulk request: a timer a line in the body, a result a line in the answer, both without end.
//!
//! The lines are taken as they come and are answered in order. The answer is chunked: the lines
//! that one send carries are a chunk.

// May panic: assertions 1, expectations 1, indices 1.
// Why it does not: found 1, ordered 1, memory 1.

use std::io::Write;

use crate::base::quota::Quota;
use crate::base::time::MonoNs;
use crate::node::clients::answers::{kind_of, one_line, token_full};
use crate::node::clients::request_line::RequestLine;
use crate::shard::effects::{Answer, Refusal};
use crate::wire::chunked::{ChunkError, ChunkedDecoder};
use crate::wire::json::{write_number, write_string};
use crate::wire::ndjson::LineBuffer;
use crate::wire::problem::{Kind, write_member, write_type};
use crate::wire::request_head::Framing;
use crate::wire::timer_path::write_public_id;

/// What the length of a chunk stands in before it is known: eight digits and CRLF.
const NO_LENGTH: &[u8] = b"00000000\r\n";
const LENGTH_DIGITS: usize = 8;

/// Lines of one bulk request that a core takes in a turn: a third of a millisecond.
pub const LINES_OF_ONE_PER_TURN_MAX: u32 = 512;
/// Lines of all bulk requests together that a core takes in a turn.
pub const LINES_PER_TURN_MAX: u32 = 1_024;

/// How many lines may still be taken in a turn.
#[derive(Debug, Default)]
pub struct LineBudget {
    turn: MonoNs,
    left: u32,
    /// How many connections have asked for lines in this turn, and in the one before.
    takers: u32,
    takers_before: u32,
}

impl LineBudget {
    /// What is left in the turn that began at `turn`, of so many lines a turn.
    pub fn of(&mut self, turn: MonoNs, lines_max: u32) -> &mut u32 {
        if self.turn != turn {
            *self = Self { turn, left: lines_max, takers: 0, takers_before: self.takers };
        }
        &mut self.left
    }

    /// How many lines one connection may have in this turn, if all that asked in the last turn ask
    /// again. To be called once for each connection and turn, after [`LineBudget::of`].
    fn share(&mut self) -> u32 {
        self.takers += 1;
        let others = self.takers.max(self.takers_before);
        (LINES_PER_TURN_MAX / others.max(1)).clamp(1, LINES_OF_ONE_PER_TURN_MAX)
    }

    /// What is left of a connection's part of the turn. `self` is the budget of all connections.
    pub fn left_of_one<'b>(&mut self, turn: MonoNs, one: &'b mut LineBudget) -> &'b mut u32 {
        let share = if one.turn == turn { 0 } else { self.share() };
        one.of(turn, share)
    }
}

/// How the end of the body is found.
#[derive(Debug)]
enum Rest {
    /// So many bytes follow.
    Bytes(u64),
    /// Chunks follow.
    Chunks(Box<ChunkedDecoder>),
}

/// A body that is being taken.
#[derive(Debug)]
pub struct BulkBody {
    /// The head of the request.
    pub line: RequestLine,
    /// Whether the head of the answer has been written.
    pub is_answered: bool,
    rest: Rest,
    is_complete: bool,
    /// How many lines may be taken: a turn brings many pieces of a body.
    pub budget: LineBudget,
    /// The lines that have come.
    pub lines: LineBuffer,
}

impl BulkBody {
    /// A body of which nothing has come.
    pub fn new(line: RequestLine, framing: Framing, line_bytes_max: u32) -> Self {
        let lines = LineBuffer::new(line_bytes_max as usize);
        let rest = match framing {
            Framing::Length(length) => Rest::Bytes(length),
            Framing::Chunked => Rest::Chunks(Box::new(ChunkedDecoder::new(u64::MAX))),
        };
        let is_complete = framing == Framing::Length(0);
        let budget = LineBudget::default();
        Self { line, is_answered: false, rest, is_complete, budget, lines }
    }

    /// Takes bytes of the body. Returns how many. Call it when no line is left.
    pub fn receive(&mut self, input: &[u8]) -> Result<usize, ChunkError> {
        let (used, is_complete) = match &mut self.rest {
            Rest::Bytes(left) => {
                let used = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                self.lines.extend(&input[..used]);
                *left -= used as u64;
                (used, *left == 0)
            }
            Rest::Chunks(decoder) => decoder.decode(input, |run| self.lines.extend(run))?,
        };
        self.is_complete = is_complete;
        if is_complete {
            self.lines.end();
        }
        Ok(used)
    }

    /// Whether the whole body has come.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether there may be more to do without another byte.
    pub fn has_more(&self) -> bool {
        self.is_complete || self.lines.has_more()
    }
}

/// The chunk in a connection's answers to which further lines may be added.
#[derive(Debug, Default)]
pub struct OpenChunk(Option<usize>);

impl OpenChunk {
    /// Prepares the answers for a line.
    #[inline]
    pub fn begin_line(&mut self, out: &mut Vec<u8>) {
        if self.0.is_none() {
            self.0 = Some(out.len());
            out.extend_from_slice(NO_LENGTH);
        }
    }

    /// Ends the chunk, if there is one, because the answers leave or something else follows.
    #[inline]
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if let Some(begins) = self.0.take() {
            close_chunk(begins, out);
        }
    }
}

fn close_chunk(begins: usize, out: &mut Vec<u8>) {
    // Answers that TLS has thrown away have no chunk any more.
    let Some(length) = out.len().checked_sub(begins + NO_LENGTH.len()) else { return };
    let Some(mut digits) = out.get_mut(begins..begins + LENGTH_DIGITS) else { return };
    write!(digits, "{length:08x}").expect("a send has less than 4 GiB");
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an answer.
pub fn write_head(out: &mut Vec<u8>, line: &RequestLine) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    out.extend_from_slice(line.persistence.header().as_bytes());
    out.extend_from_slice(
        b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
}

/// Appends the end of an answer.
pub fn write_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Appends the result of a line: the answer of a shard to its create.
#[inline]
pub fn write_result(out: &mut Vec<u8>, number: u64, answer: &Answer, quota: Option<&Quota>) {
    match answer {
        Answer::Done { id, factor, filter } => {
            out.extend_from_slice(b"{\"location\":\"/timers/");
            write_public_id(*id, *factor, *filter, out);
            out.extend_from_slice(b"\"}\n");
        }
        Answer::Refused(Refusal::TokenFull) => {
            write_failure(out, number, (429, Kind::Quota), &token_full(quota));
        }
        Answer::Refused(refusal) => {
            write_failure(out, number, kind_of(*refusal), &refusal.to_string());
        }
        Answer::Identified(_) | Answer::Found(_) | Answer::NotFound | Answer::Internal(_) => {
            unreachable!("a create is done or refused")
        }
    }
}

/// Appends the result of a line that is no timer, or of which there was no create.
#[cold]
pub fn write_failure(out: &mut Vec<u8>, number: u64, (status, kind): (u16, Kind), reason: &str) {
    let reason = one_line(reason);
    out.extend_from_slice(b"{\"status\":");
    write_number(status.into(), out);
    out.extend_from_slice(b",\"reason\":");
    write_string(&reason, out);
    out.extend_from_slice(b",\"type\":\"");
    write_type(kind.words().0, out);
    out.push(b'"');
    write_member(&reason, out);
    out.extend_from_slice(b",\"line\":");
    write_number(number, out);
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_a_turn() {
        let mut all = LineBudget::default();
        let mut ones: Vec<LineBudget> = (0..8).map(|_| LineBudget::default()).collect();
        let mut turn = |number, count: usize| -> Vec<u32> {
            let turn = MonoNs(number);
            all.of(turn, LINES_PER_TURN_MAX);
            let mut taken = Vec::new();
            for one in ones.iter_mut().take(count) {
                let of_one = *all.left_of_one(turn, one);
                let lines = of_one.min(*all.of(turn, LINES_PER_TURN_MAX));
                *all.left_of_one(turn, one) -= lines;
                *all.of(turn, LINES_PER_TURN_MAX) -= lines;
                taken.push(lines);
            }
            taken
        };
        assert_eq!(turn(1, 1), [LINES_OF_ONE_PER_TURN_MAX]);
        assert_eq!(turn(2, 8)[..3], [512, 512, 0], "the others are not known yet");
        assert_eq!(turn(3, 8), [128; 8]);
        assert_eq!(turn(4, 8), [128; 8]);
        assert_eq!(turn(5, 2), [128; 2]);
        assert_eq!(turn(6, 2), [512; 2]);
    }
}
