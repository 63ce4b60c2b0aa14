//! The callback server: answers callbacks as the test asks, and judges each pop.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use crate::frames::Head;
use crate::ledger::{Callback, Ledger, Tally};
use crate::request::number_in_path;
use crate::server::{Handler, ServerThread, Verdict};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// How the sink treats callbacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkMode {
    /// Answers 200 at once.
    Ok,
    /// Accepts and reads callbacks, and never answers.
    Hang,
    /// Answers 200 after so many milliseconds.
    SlowMs(u64),
    /// Answers this status at once.
    Status(u16),
    /// Closes the connection instead of answering.
    Close,
}

impl SinkMode {
    /// Whether a node owes a pop again that it has made, if its callback says that it is this
    /// attempt. A sink that takes each callback at once is owed nothing again, whatever a callback
    /// says. A node gives up waiting for a slow one, and says so by its count of attempts.
    fn owes_again(self, attempt: Option<u32>) -> bool {
        match self {
            SinkMode::Ok => false,
            SinkMode::Hang | SinkMode::Close => true,
            SinkMode::Status(code) => !(200..300).contains(&code),
            SinkMode::SlowMs(_) => attempt.is_some_and(|attempt| attempt > 1),
        }
    }
}

impl FromStr for SinkMode {
    type Err = String;

    fn from_str(text: &str) -> Result<SinkMode, String> {
        let (word, number) = text.split_once(':').map_or((text, None), |(w, n)| (w, Some(n)));
        let number = number.map(|digits| digits.parse::<u64>());
        match (word, number) {
            ("ok", None) => Ok(SinkMode::Ok),
            ("hang", None) => Ok(SinkMode::Hang),
            ("close", None) => Ok(SinkMode::Close),
            ("slow", Some(Ok(ms))) if ms <= 3_600_000 => Ok(SinkMode::SlowMs(ms)),
            ("status", Some(Ok(code))) if (200..600).contains(&code) => {
                Ok(SinkMode::Status(code as u16))
            }
            _ => Err(format!("expected ok, hang, slow:MS, status:CODE or close, found `{text}`")),
        }
    }
}

impl fmt::Display for SinkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SinkMode::Ok => f.write_str("ok"),
            SinkMode::Hang => f.write_str("hang"),
            SinkMode::Close => f.write_str("close"),
            SinkMode::SlowMs(ms) => write!(f, "slow:{ms}"),
            SinkMode::Status(code) => write!(f, "status:{code}"),
        }
    }
}

/// The handler of callbacks. The sink counts callbacks and, if it has a ledger, judges pops.
#[derive(Debug)]
pub struct Sink {
    mode: SinkMode,
    ledger: Option<(Arc<Ledger>, Tally)>,
    status_answer: Vec<u8>,
    requests: u64,
    counter: Arc<AtomicU64>,
}

impl Sink {
    /// A sink that judges pops by `ledger`; `None`: it only counts them.
    pub fn new(mode: SinkMode, ledger: Option<Arc<Ledger>>) -> Sink {
        let status_answer = match mode {
            SinkMode::Status(code) => {
                format!("HTTP/1.1 {code} As-Asked\r\nContent-Length: 0\r\n\r\n").into_bytes()
            }
            _ => OK.to_vec(),
        };
        let ledger = ledger.map(|ledger| {
            let tally = Tally::new(&ledger);
            (ledger, tally)
        });
        Sink { mode, ledger, status_answer, requests: 0, counter: Arc::default() }
    }

    /// The number of callbacks so far. Another thread can read it while the sink runs.
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.counter)
    }

    /// The judged pops, after the sink has stopped; `None`: the sink has no ledger.
    pub fn into_tally(self) -> Option<Tally> {
        self.ledger.map(|(_, tally)| tally)
    }

    /// Starts this sink on a thread of its own.
    pub fn start(self, listen: SocketAddr, core: Option<usize>) -> Result<ServerThread<Sink>> {
        ServerThread::start(listen, core, self)
    }
}

impl Handler for Sink {
    fn request(&mut self, head: &Head<'_>, now_ns: u64, out: &mut Vec<u8>) -> Verdict {
        self.requests += 1;
        if let Some((ledger, tally)) = &mut self.ledger {
            let (number, sequence) = (number_in_path(head.path()), head.sequence);
            let is_owed_again = self.mode.owes_again(head.attempt);
            tally.pop(ledger, Callback { number, sequence, is_owed_again }, now_ns);
        }
        match self.mode {
            SinkMode::Ok => out.extend_from_slice(OK),
            SinkMode::Status(_) => out.extend_from_slice(&self.status_answer),
            SinkMode::Hang => return Verdict::Hang,
            SinkMode::Close => return Verdict::Close,
            SinkMode::SlowMs(ms) => return Verdict::AnswerAfterMs(ms),
        }
        Verdict::Answered
    }

    fn late_answer(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(OK);
    }

    fn turn_ended(&mut self, now_ns: u64) {
        self.counter.store(self.requests, Ordering::Relaxed);
        if let Some((ledger, tally)) = &self.ledger {
            tally.publish(ledger, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::parse_head;

    #[test]
    fn modes_read_and_print_the_same() {
        for text in ["ok", "hang", "close", "slow:250", "status:503"] {
            assert_eq!(text.parse::<SinkMode>().unwrap().to_string(), text);
        }
        for bad in ["", "slow", "slow:x", "status:42", "ok:1", "status:"] {
            assert!(bad.parse::<SinkMode>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_sink_that_did_not_take_a_pop_is_owed_it_again() {
        let owed = |mode: &str, attempt| mode.parse::<SinkMode>().unwrap().owes_again(attempt);
        for mode in ["hang", "close", "status:503", "status:301", "status:404"] {
            assert!(owed(mode, Some(2)) && owed(mode, None), "{mode}: another node counts from 1");
        }
        for mode in ["ok", "status:204"] {
            assert!(!owed(mode, Some(2)) && !owed(mode, None), "{mode}");
        }
        assert!(owed("slow:5000", Some(2)) && !owed("slow:5000", Some(1)));
        assert!(!owed("slow:5000", None));
    }

    #[test]
    fn a_callback_is_judged_and_answered_by_mode() {
        let request = b"POST /pop/0000000001 HTTP/1.1\r\nX-Sequence-Number: 1\r\n\r\n";
        let head = parse_head(request).unwrap().unwrap();
        let expected = [
            (SinkMode::Ok, Verdict::Answered, OK),
            (SinkMode::Hang, Verdict::Hang, b""),
            (SinkMode::SlowMs(5), Verdict::AnswerAfterMs(5), b""),
            (SinkMode::Close, Verdict::Close, b""),
            (
                SinkMode::Status(500),
                Verdict::Answered,
                b"HTTP/1.1 500 As-Asked\r\nContent-Length: 0\r\n\r\n",
            ),
        ];
        for (mode, verdict, answer) in expected {
            let ledger = Arc::new(Ledger::new(2, 1, 1));
            ledger.ask(1, 100);
            let mut sink = Sink::new(mode, Some(Arc::clone(&ledger)));
            let mut out = Vec::new();
            assert_eq!(sink.request(&head, 150, &mut out), verdict);
            assert_eq!(out, answer);
            sink.turn_ended(150);
            assert_eq!(ledger.distinct(), 1);
        }
    }
}
