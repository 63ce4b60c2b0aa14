//! One connection of the client: the requests in flight, in order, and the requests that wait to be
//! sent.

use std::collections::VecDeque;

use chronos::ring::SocketId;

use crate::frames::{FrameError, Inbox};
use crate::recorder::{Failure, Flight, Recorder};
use crate::workload::Workload;

/// First pause before a broken connection is made again, in nanoseconds. The pause doubles with
/// each failure.
const BACK_OFF_NS: u64 = 10_000_000;
/// Longest pause before a broken connection is made again, in nanoseconds.
const BACK_OFF_NS_MAX: u64 = 1_000_000_000;

/// The state of one connection. Memory: two buffers of at most a pipeline of requests, and one
/// flight per request.
#[derive(Debug, Default)]
pub struct Connection {
    /// The socket, while the connection is connecting or open.
    pub socket: Option<SocketId>,
    /// Whether requests may be sent.
    pub open: bool,
    /// Requests without an answer, oldest first. Answers come in this order.
    pub in_flight: VecDeque<Flight>,
    /// Requests that wait until the send in flight has ended.
    pub out: Vec<u8>,
    /// Whether the connection is in the list of connections to look at in this turn.
    pub touched: bool,
    spare: Vec<u8>,
    sending: bool,
    inbox: Inbox,
    back_off_ns: u64,
    retry_at_ns: u64,
}

impl Connection {
    /// Notes that a connect has begun on `socket`.
    pub fn connecting(&mut self, socket: SocketId) {
        self.socket = Some(socket);
    }

    /// Notes that the connection is established, and forgets everything of an earlier connection.
    pub fn opened(&mut self) {
        self.open = true;
        self.sending = false;
        self.back_off_ns = 0;
        self.inbox.clear();
        self.out.clear();
    }

    /// Notes that the connection is gone. The next try comes after a pause that doubles with each
    /// failure.
    pub fn retry_later(&mut self, now_ns: u64) {
        self.open = false;
        self.out.clear();
        self.back_off_ns = (self.back_off_ns * 2).clamp(BACK_OFF_NS, BACK_OFF_NS_MAX);
        self.retry_at_ns = now_ns + self.back_off_ns;
    }

    /// Whether the connection has no socket and its pause is over.
    pub fn wants_to_connect(&self, now_ns: u64) -> bool {
        self.socket.is_none() && now_ns >= self.retry_at_ns
    }

    /// Whether the connection is open and fewer than `pipeline` requests are in flight.
    pub fn has_room(&self, pipeline: usize) -> bool {
        self.open && self.in_flight.len() < pipeline
    }

    /// Notes that a send has ended. Its buffer is kept for the send after the next.
    pub fn sent(&mut self, buffer: Vec<u8>) {
        self.sending = false;
        self.spare = buffer;
    }

    /// The requests to send now; `None`: nothing waits, or a send is in flight.
    pub fn take_output(&mut self) -> Option<(SocketId, Vec<u8>)> {
        if !self.open || self.sending || self.out.is_empty() {
            return None;
        }
        self.sending = true;
        let output = std::mem::replace(&mut self.out, std::mem::take(&mut self.spare));
        Some((self.socket?, output))
    }

    /// Matches the answers in `data` to the requests in flight, in order. An error says why the
    /// caller must close the connection. Requests without an answer stay in flight, and the caller
    /// must fail them.
    pub fn read_answers<W: Workload>(
        &mut self,
        data: &[u8],
        now_ns: u64,
        recorder: &mut Recorder,
        workload: &mut W,
    ) -> Result<(), Failure> {
        let in_flight = &mut self.in_flight;
        let mut close = false;
        self.inbox.feed(data, |head| {
            let status = head.status().ok_or(FrameError::Unexpected)?;
            if (100..200).contains(&status) {
                return Ok(());
            }
            let flight = in_flight.pop_front().ok_or(FrameError::Unexpected)?;
            if status == 200 {
                recorder.answered(&flight, now_ns);
                workload.answered(flight.operation, flight.tag, head);
            } else {
                recorder.failed(Failure::Status(status), &flight, now_ns);
                workload.failed(flight.operation, flight.tag);
            }
            close |= head.close;
            Ok(())
        })?;
        if close { Err(Failure::Closed) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Head;
    use crate::recorder::Operation;
    use crate::workload::Next;

    #[derive(Default)]
    struct Log(Vec<String>);

    impl Workload for Log {
        fn next(&mut self, _now_ns: u64, _out: &mut Vec<u8>) -> Next {
            Next::Later
        }
        fn answered(&mut self, _operation: Operation, tag: u64, head: &Head<'_>) {
            self.0.push(format!("{tag} {}", String::from_utf8_lossy(head.location)));
        }
        fn failed(&mut self, _operation: Operation, tag: u64) {
            self.0.push(format!("{tag} failed"));
        }
    }

    fn with_flights(tags: std::ops::Range<u64>) -> Connection {
        let operation = Operation::Create;
        let flights = tags.map(|tag| Flight { intended_ns: 1, sent_ns: 1, operation, tag });
        Connection { in_flight: flights.collect(), open: true, ..Connection::default() }
    }

    #[test]
    fn answers_belong_to_requests_in_order() {
        let mut connection = with_flights(0..3);
        let (mut recorder, mut log) = (Recorder::new(false, None), Log::default());
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nLocation: /a\r\n\r\n\
            HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\nLocation: /c\r\n\r\n";
        let (left, right) = bytes.split_at(60);
        connection.read_answers(left, 5, &mut recorder, &mut log).unwrap();
        connection.read_answers(right, 5, &mut recorder, &mut log).unwrap();
        assert_eq!(log.0, ["0 /a", "1 failed", "2 /c"]);
        assert_eq!(recorder.failures[&Failure::Status(503)], 1);
        assert_eq!(recorder.answered_in_all, 2);
        // One answer more than there were requests.
        let more = connection.read_answers(b"HTTP/1.1 200 OK\r\n\r\n", 5, &mut recorder, &mut log);
        assert_eq!(more, Err(Failure::Malformed));
    }

    #[test]
    fn connection_close_and_garbage_end_the_connection() {
        let (mut recorder, mut log) = (Recorder::new(false, None), Log::default());
        let close = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let mut connection = with_flights(0..2);
        let end = connection.read_answers(close, 5, &mut recorder, &mut log);
        assert_eq!((end, connection.in_flight.len()), (Err(Failure::Closed), 1));
        let end = with_flights(0..1).read_answers(b"what\r\n\r\n", 5, &mut recorder, &mut log);
        assert_eq!(end, Err(Failure::Malformed));
    }

    #[test]
    fn output_waits_for_the_send_under_way() {
        let mut connection = with_flights(0..0);
        connection.connecting(SocketId { index: 1, generation: 1 });
        connection.out.extend_from_slice(b"one");
        assert_eq!(connection.take_output().unwrap().1, b"one");
        connection.out.extend_from_slice(b"two");
        assert!(connection.take_output().is_none());
        connection.sent(Vec::new());
        assert_eq!(connection.take_output().unwrap().1, b"two");
    }

    #[test]
    fn back_off_doubles_to_its_bound_and_starts_again() {
        let mut connection = Connection::default();
        let pause = |connection: &mut Connection| {
            connection.retry_later(0);
            connection.retry_at_ns
        };
        assert_eq!([0; 3].map(|_| pause(&mut connection)), [10_000_000, 20_000_000, 40_000_000]);
        assert_eq!((0..20).map(|_| pause(&mut connection)).max(), Some(BACK_OFF_NS_MAX));
        connection.opened();
        assert_eq!(pause(&mut connection), BACK_OFF_NS);
    }
}
