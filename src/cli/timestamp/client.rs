//! A client of timestamp servers, including original ones: one connection, one call at a time.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::timestamp::Timestamp;
use crate::wire::thrift::{self, Outcome, Reply};

/// Why there is no timestamp.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("cannot connect to {address}: {source}; is a timestamp server listening there?")]
    Connect { address: Arc<str>, source: io::Error },
    #[error("the connection to {address} broke: {source}")]
    Lost { address: Arc<str>, source: io::Error },
    #[error(
        "no answer from {address} within {timeout_ms} ms: a backup server of the original accepts \
         connections and answers nothing; name the master, or give --zookeeper"
    )]
    Late { address: Arc<str>, timeout_ms: u128 },
    #[error("{address} refuses: {reason}")]
    Refused { address: Arc<str>, reason: String },
    #[error("{address} does not speak as a timestamp server: {what}")]
    Garbage { address: Arc<str>, what: String },
}

/// A connection to one timestamp server.
pub(crate) struct TimestampClient {
    address: Arc<str>,
    stream: TcpStream,
    timeout: Duration,
    seqid: i32,
    request: Vec<u8>,
    received: Vec<u8>,
}

impl TimestampClient {
    /// Connects to `host:port`. Connecting may take `limit`, and so may each call.
    pub(super) async fn open(address: &Arc<str>, limit: Duration) -> Result<Self, CallError> {
        let connected = match timeout(limit, TcpStream::connect(&**address)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "it does not answer in time")),
        };
        let stream = connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream =
            stream.map_err(|source| CallError::Connect { address: address.clone(), source })?;
        Ok(Self {
            address: address.clone(),
            stream,
            timeout: limit,
            seqid: 0,
            request: Vec::new(),
            received: Vec::new(),
        })
    }

    /// Returns the address of the server.
    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Takes `count` consecutive timestamps and returns the first. After an error other than
    /// [`CallError::Refused`] the connection must not be used again.
    pub(super) async fn take(&mut self, count: u32) -> Result<Timestamp, CallError> {
        self.seqid = self.seqid.wrapping_add(1);
        self.request.clear();
        let range = i32::try_from(count).unwrap_or(i32::MAX);
        // The Java client does the same: it never calls getTimestamp().
        thrift::write_get_timestamps(&mut self.request, self.seqid, range);
        match timeout(self.timeout, self.exchange(count)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Late {
                address: self.address.clone(),
                timeout_ms: self.timeout.as_millis(),
            }),
        }
    }

    async fn exchange(&mut self, count: u32) -> Result<Timestamp, CallError> {
        let lost = |source| CallError::Lost { address: self.address.clone(), source };
        send(&self.stream, &self.request).await.map_err(lost)?;
        loop {
            receive(&mut self.stream, &mut self.received).await.map_err(lost)?;
            let garbage = |what| CallError::Garbage { address: self.address.clone(), what };
            let parsed = thrift::parse_reply(&self.received);
            let Some((reply, bytes)) = parsed.map_err(|error| garbage(error.to_string()))? else {
                continue;
            };
            let outcome = judge(&reply, self.seqid, count);
            if bytes < self.received.len() {
                return Err(garbage("more than one reply to one request".into()));
            }
            self.received.clear();
            return outcome.map_err(|error| match error {
                Judged::Garbage(what) => garbage(what),
                Judged::Refused(reason) => {
                    CallError::Refused { address: self.address.clone(), reason }
                }
            });
        }
    }
}

enum Judged {
    Garbage(String),
    Refused(String),
}

/// Reads the reply to request `seqid` for `count` timestamps. Returns the first timestamp, or why
/// the reply has none.
fn judge(reply: &Reply<'_>, seqid: i32, count: u32) -> Result<Timestamp, Judged> {
    if reply.name != thrift::GET_TIMESTAMPS || reply.seqid != seqid {
        let name = String::from_utf8_lossy(reply.name);
        return Err(Judged::Garbage(format!(
            "a reply to {name:.40?} number {} instead of getTimestamps number {seqid}",
            reply.seqid
        )));
    }
    match reply.outcome {
        Outcome::Value(value) => match u64::try_from(value) {
            Ok(first) if value.checked_add(i64::from(count)).is_some() => Ok(Timestamp(first)),
            _ => Err(Judged::Garbage(format!("{count} timestamps from {value}"))),
        },
        Outcome::NoValue => Err(Judged::Garbage("a reply without a number".into())),
        Outcome::Exception { kind, message } => {
            let text = String::from_utf8_lossy(message).into_owned();
            let reason = if text.is_empty() { format!("exception {kind}") } else { text };
            Err(Judged::Refused(reason))
        }
    }
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for bytes and appends them, at least one. A read that leaves room tells the runtime that
/// the socket is empty. `try_read` does not tell that, and would cost a second system call each
/// time.
async fn receive(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<()> {
    let mut room = [0; 512];
    let mut room = ReadBuf::new(&mut room);
    poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut room)).await?;
    if room.filled().is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    received.extend_from_slice(room.filled());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_judged() {
        let judged = |name: &[u8], seqid, outcome, count| match judge(
            &Reply { name, seqid, outcome },
            7,
            count,
        ) {
            Ok(first) => format!("{}", first.0),
            Err(Judged::Garbage(what)) => format!("garbage: {what}"),
            Err(Judged::Refused(reason)) => format!("refused: {reason}"),
        };
        let ours = thrift::GET_TIMESTAMPS;
        assert_eq!(judged(ours, 7, Outcome::Value(42), 1), "42");
        assert!(judged(ours, 8, Outcome::Value(42), 1).contains("number 8 instead of"));
        assert!(judged(b"getTimestamp", 7, Outcome::Value(42), 1).starts_with("garbage"));
        assert!(judged(ours, 7, Outcome::Value(-1), 1).starts_with("garbage"));
        assert!(judged(ours, 7, Outcome::Value(i64::MAX), 2).starts_with("garbage"));
        assert!(judged(ours, 7, Outcome::NoValue, 1).starts_with("garbage"));
        let not_master = Outcome::Exception { kind: 6, message: b"not the master" };
        assert_eq!(judged(ours, 7, not_master, 1), "refused: not the master");
        let silent = Outcome::Exception { kind: 6, message: b"" };
        assert_eq!(judged(ours, 7, silent, 1), "refused: exception 6");
    }
}
