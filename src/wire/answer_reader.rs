//! Reads the answer of a callback server as it arrives. The status decides: once its line has
//! arrived, the answer counts, whatever follows or does not follow. Headers say where the answer
//! ends, so a head that is too long, has too many headers, or is cut off, ends the connection and
//! nothing else. The body is thrown away, up to a limit; of a failure the first bytes can be kept.

// May panic: indices 2.
// Why it does not: found 2.

use crate::wire::answer_head::{RetryAfter, parse_answer_head, parse_status_line};
use crate::wire::chunked::ChunkedDecoder;
use crate::wire::dead_letter::LETTER_ANSWER_BYTES_MAX;
use crate::wire::request_head::{Framing, HeadProgress};

/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a body that are read so that the connection can be used again. After more bytes
/// the connection closes.
const BODY_BYTES_MAX: u64 = 64 << 10;
/// Most interim answers (1xx) before the final answer.
const INTERIM_MAX: u8 = 8;

/// The part of an answer that the next byte belongs to.
#[derive(Debug)]
enum AnswerPart {
    Head,
    Body { left: u64 },
    Chunked(Box<ChunkedDecoder>),
    UntilClose { left: u64 },
}

/// How much of an answer has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More bytes are needed.
    Partial,
    /// The answer is complete.
    Complete {
        /// What the answer says.
        verdict: Verdict,
        /// Whether another request can follow on the connection.
        reusable: bool,
    },
    /// The bytes are not an HTTP answer.
    Garbage,
}

/// What an answer says of a callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Status code.
    pub status: u16,
    /// When to ask again, if the status is 429 or 503 and the server says so.
    pub retry_after: Option<RetryAfter>,
}

impl Verdict {
    /// What the status line of a final answer says, if `bytes` begin with a whole one.
    #[cold]
    fn of_line(bytes: &[u8]) -> Option<Verdict> {
        let status = parse_status_line(bytes).filter(|status| *status >= 200)?;
        Some(Verdict { status, retry_after: None })
    }
}

/// Reads one answer. A connection needs a new reader for each answer.
#[derive(Debug)]
pub struct AnswerReader {
    stage: AnswerPart,
    progress: HeadProgress,
    partial: Vec<u8>,
    verdict: Option<Verdict>,
    keep_alive: bool,
    interim: u8,
    /// Whether any byte of an answer has arrived.
    pub has_begun: bool,
    /// The first bytes of the body of a failure; `None`: they are not wanted.
    kept: Option<Vec<u8>>,
    /// Whether the status is wanted of a success as well.
    tells_success: bool,
}

impl Default for AnswerReader {
    fn default() -> Self {
        Self {
            stage: AnswerPart::Head,
            progress: HeadProgress::default(),
            partial: Vec::new(),
            verdict: None,
            keep_alive: false,
            interim: 0,
            has_begun: false,
            kept: None,
            tells_success: false,
        }
    }
}

impl AnswerReader {
    /// A reader that keeps the first bytes of the body, if the answer tells of a failure; and the
    /// status of a success, if that is wanted.
    pub fn keeping(tells_success: bool) -> Self {
        Self { kept: Some(Vec::new()), tells_success, ..Self::default() }
    }

    /// The status and, of a failure, the first bytes of the body, if these were wanted. `None`:
    /// there is no such answer.
    pub fn said(&self) -> Option<(u16, &[u8])> {
        let kept = self.kept.as_ref()?;
        let verdict = self.end()?;
        match verdict.status {
            200..300 => self.tells_success.then_some((verdict.status, &[])),
            status => Some((status, kept)),
        }
    }

    /// Takes the bytes that arrived. After [`Progress::Complete`] or [`Progress::Garbage`] the
    /// reader must not be fed again. Cost: one pass over the bytes; a head in several pieces is
    /// copied.
    pub fn feed(&mut self, input: &[u8]) -> Progress {
        self.has_begun = true;
        if self.partial.is_empty() {
            return self.take(input);
        }
        let mut kept = std::mem::take(&mut self.partial);
        kept.extend_from_slice(input);
        self.take(&kept)
    }

    /// What an answer says that was cut off, by the server or by a timeout. `None`: its status line
    /// is not complete.
    pub fn end(&self) -> Option<Verdict> {
        self.verdict.or_else(|| Verdict::of_line(&self.partial))
    }

    fn take(&mut self, input: &[u8]) -> Progress {
        let mut at = 0;
        while matches!(self.stage, AnswerPart::Head) {
            let rest = &input[at..];
            if rest.is_empty() || !self.progress.is_worth_parsing(rest, HEAD_BYTES_MAX) {
                self.partial.extend_from_slice(rest);
                return Progress::Partial;
            }
            match parse_answer_head(rest, HEAD_BYTES_MAX) {
                Ok(Some(head)) => {
                    at += head.head_bytes;
                    self.progress = HeadProgress::default();
                    if (100..200).contains(&head.status) {
                        self.interim += 1;
                        if self.interim > INTERIM_MAX || head.status == 101 {
                            return Progress::Garbage;
                        }
                        continue;
                    }
                    let (status, retry_after) = (head.status, head.retry_after);
                    self.verdict = Some(Verdict { status, retry_after });
                    self.keep_alive = head.keep_alive;
                    self.stage = match head.framing {
                        Some(Framing::Length(left)) => AnswerPart::Body { left },
                        Some(Framing::Chunked) => {
                            AnswerPart::Chunked(Box::new(ChunkedDecoder::new(BODY_BYTES_MAX)))
                        }
                        None => AnswerPart::UntilClose { left: BODY_BYTES_MAX },
                    };
                }
                Ok(None) => {
                    self.partial.extend_from_slice(rest);
                    return Progress::Partial;
                }
                Err(_) => {
                    let Some(verdict) = Verdict::of_line(rest) else { return Progress::Garbage };
                    self.verdict = Some(verdict);
                    return Progress::Complete { verdict, reusable: false };
                }
            }
        }
        self.skip_body(&input[at..])
    }

    fn skip_body(&mut self, input: &[u8]) -> Progress {
        // Only a complete head leads to a later stage, so the verdict is known.
        let Some(verdict) = self.verdict else { return Progress::Partial };
        let closing = Progress::Complete { verdict, reusable: false };
        let kept = &mut self.kept;
        match &mut self.stage {
            AnswerPart::Head => Progress::Partial,
            AnswerPart::Body { left } if *left > BODY_BYTES_MAX => {
                keep(kept, input);
                closing
            }
            AnswerPart::Body { left } => match (input.len() as u64).cmp(left) {
                std::cmp::Ordering::Less => {
                    keep(kept, input);
                    *left -= input.len() as u64;
                    Progress::Partial
                }
                std::cmp::Ordering::Equal => {
                    keep(kept, input);
                    Progress::Complete { verdict, reusable: self.keep_alive }
                }
                // The server sent more than one answer to one request: later bytes cannot be
                // trusted.
                std::cmp::Ordering::Greater => {
                    keep(kept, input.get(..*left as usize).unwrap_or(input));
                    closing
                }
            },
            AnswerPart::Chunked(decoder) => match decoder.decode(input, |run| keep(kept, run)) {
                Ok((_, false)) => Progress::Partial,
                Ok((used, true)) => {
                    let reusable = self.keep_alive && used == input.len();
                    Progress::Complete { verdict, reusable }
                }
                Err(_) => closing,
            },
            AnswerPart::UntilClose { left } => {
                keep(kept, input);
                *left = left.saturating_sub(input.len() as u64);
                if *left == 0 { closing } else { Progress::Partial }
            }
        }
    }
}

/// Keeps more bytes of a body, up to the limit.
#[inline]
fn keep(kept: &mut Option<Vec<u8>>, body: &[u8]) {
    if let Some(kept) = kept {
        let room = LETTER_ANSWER_BYTES_MAX.saturating_sub(kept.len());
        kept.extend(body.iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Progress {
        let whole = AnswerReader::default().feed(bytes);
        let mut byte_wise = AnswerReader::default();
        let mut last = Progress::Partial;
        for byte in bytes {
            last = byte_wise.feed(&[*byte]);
            if last != Progress::Partial {
                break;
            }
        }
        if !matches!(whole, Progress::Complete { reusable: false, .. }) {
            assert_eq!(whole, last, "however it is cut");
        }
        whole
    }

    const fn said(status: u16) -> Verdict {
        Verdict { status, retry_after: None }
    }

    const OK: Progress = Progress::Complete { verdict: said(200), reusable: true };
    const OK_CLOSING: Progress = Progress::Complete { verdict: said(200), reusable: false };

    #[test]
    fn answers_of_every_framing_are_read() {
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), OK);
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), OK);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        assert_eq!(read(chunked), OK);
        assert_eq!(
            read(b"HTTP/1.1 204 No Content\r\n\r\n"),
            Progress::Complete { verdict: said(204), reusable: true }
        );
        assert_eq!(read(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), OK_CLOSING);
    }

    #[test]
    fn a_connection_is_used_again_after_a_chunked_answer_that_is_all_there_was() {
        let chunked = |header: &str, behind: &str| {
            let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{header}\r\n");
            let answer = format!("{head}2\r\nok\r\n0\r\n\r\n{behind}");
            AnswerReader::default().feed(answer.as_bytes())
        };
        assert_eq!(chunked("", ""), OK);
        assert_eq!(chunked("Connection: close\r\n", ""), OK_CLOSING);
        assert_eq!(chunked("", "HTTP/1.1 200 OK\r\n"), OK_CLOSING, "nobody asked for it");
    }

    #[test]
    fn a_body_is_read_up_to_its_limit_so_that_the_connection_can_be_used_again() {
        let answer = |bytes: u64| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
            let mut reader = AnswerReader::default();
            let progress = reader.feed(head.as_bytes());
            if progress != Progress::Partial {
                return progress;
            }
            reader.feed(&vec![b'x'; bytes as usize])
        };
        assert_eq!(answer(BODY_BYTES_MAX - 1), OK);
        assert_eq!(answer(BODY_BYTES_MAX), OK);
        assert_eq!(answer(BODY_BYTES_MAX + 1), OK_CLOSING);
    }

    #[test]
    fn the_first_bytes_of_a_failure_are_kept_however_it_is_framed_and_cut() {
        let long = "x".repeat(1_000);
        for (head, body) in [
            ("Content-Length: 1000\r\n\r\n", long.clone()),
            ("Content-Length: 100000\r\n\r\n", long.clone()),
            ("Content-Length: 2\r\n\r\n", "nope".to_owned()),
            ("Transfer-Encoding: chunked\r\n\r\n", format!("3e8\r\n{long}\r\n0\r\n\r\n")),
            ("\r\n", long.clone()),
        ] {
            for piece in [1, 7, 5_000] {
                let answer = format!("HTTP/1.1 500 X\r\n{head}{body}");
                let mut reader = AnswerReader::keeping(piece == 1);
                for bytes in answer.as_bytes().chunks(piece) {
                    if reader.feed(bytes) != Progress::Partial {
                        break;
                    }
                }
                let (status, kept) = reader.said().expect("a failure");
                let is_short = head.contains(" 2\r");
                assert_eq!(status, 500);
                // An answer that is too long ends with its head, whatever of it has arrived.
                let is_cut = head.contains("100000") && piece < 5_000;
                let expected = if is_short { 2 } else { LETTER_ANSWER_BYTES_MAX };
                assert!(kept.len() == expected || is_cut, "{head} {piece} {}", kept.len());
            }
        }
        for tells_success in [false, true] {
            let mut reader = AnswerReader::keeping(tells_success);
            reader.feed(b"HTTP/1.1 202 OK\r\nContent-Length: 2\r\n\r\nok");
            assert_eq!(reader.said(), tells_success.then_some((202, &b""[..])));
        }
        let mut reader = AnswerReader::default();
        reader.feed(b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(reader.said(), None, "nobody asked for it");
    }

    #[test]
    fn a_status_that_has_arrived_counts_whatever_is_wrong_with_the_rest_of_the_head() {
        let line = "HTTP/1.1 503 Busy\r\n";
        let closing = Progress::Complete { verdict: said(503), reusable: false };
        for rest in [
            "X: y\r\n".repeat(65) + "\r\n",
            "X: y\r\n".repeat(10_000),
            format!("X: {}\r\n\r\n", "y".repeat(HEAD_BYTES_MAX)),
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(),
            "no header\r\n\r\n".to_owned(),
            "X: y\n\r\n".to_owned(),
        ] {
            assert_eq!(read(format!("{line}{rest}").as_bytes()), closing, "{rest:.40}");
        }
        let cut_off = |bytes: &str| {
            let mut reader = AnswerReader::keeping(true);
            assert_eq!(reader.feed(bytes.as_bytes()), Progress::Partial, "{bytes}");
            assert_eq!(reader.said().map(|(status, _)| status), reader.end().map(|it| it.status));
            reader.end()
        };
        assert_eq!(cut_off(line), Some(said(503)));
        assert_eq!(cut_off("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Le"), Some(said(200)));
        assert_eq!(cut_off("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X\r\n"), Some(said(204)));
        for bytes in ["HTTP/1.1 200 OK", "HTTP/1.1 20", "HTTP/1.1 100 Continue\r\n", "HTT"] {
            assert_eq!(cut_off(bytes), None, "{bytes}");
        }
    }

    #[test]
    fn interim_answers_are_skipped_but_not_for_ever() {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        let last = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(read(&[&interim[..], last].concat()), OK);
        assert_eq!(read(&[&interim.repeat(8)[..], last].concat()), OK);
        assert_eq!(read(&interim.repeat(9)), Progress::Garbage);
        assert_eq!(read(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), Progress::Garbage);
    }

    #[test]
    fn hostile_answers_end_the_connection_and_nothing_else() {
        assert_eq!(read(b"\x16\x03\x01garbage"), Progress::Garbage);
        let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nxxx";
        assert_eq!(read(huge), OK_CLOSING);
        let twice = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(2);
        assert_eq!(AnswerReader::default().feed(&twice), OK_CLOSING);
        let mut endless = AnswerReader::default();
        let head = endless.feed(b"HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!((head, endless.end()), (Progress::Partial, Some(said(200))));
        let body = vec![b'x'; BODY_BYTES_MAX as usize];
        assert_eq!(endless.feed(&body), OK_CLOSING);
    }

    /// Pieces of answers, correct and faulty.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let said: [&[u8]; 16] = [
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.0 500 X\r\n",
            b"HTTP/1.1 204 X\r\n",
            b"Content-Length: 3\r\n",
            b"Content-Length: 18446744073709551615\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"\r\n",
            b"abc",
            b"0\r\n\r\n",
            b"3\r\nabc\r\n",
            b"ffffffffffffffff\r\n",
            b"1;x=y\r\n",
            b"\n",
            b":",
        ];
        let piece = prop_oneof![
            8 => proptest::sample::select(said.to_vec()).prop_map(<[u8]>::to_vec),
            1 => proptest::collection::vec(any::<u8>(), 0..40),
            1 => (1..20_000_usize).prop_map(|count| vec![b'x'; count]),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn whatever_a_server_says_is_read_in_bounded_memory(
            bytes in pieces(),
            cuts in proptest::collection::vec(1..2_000_usize, 1..20),
        ) {
            let mut reader = AnswerReader::default();
            let mut rest = &bytes[..];
            for cut in cuts.into_iter().cycle() {
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                let progress = reader.feed(piece);
                prop_assert!(reader.partial.len() < HEAD_BYTES_MAX + piece.len());
                match progress {
                    Progress::Partial => {}
                    Progress::Complete { verdict, .. } => {
                        prop_assert!(verdict.status >= 200 && reader.end() == Some(verdict));
                        break;
                    }
                    Progress::Garbage => break,
                }
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}
