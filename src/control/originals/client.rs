//! A small HTTP client for original nodes: one request at a time over one connection, bodies
//! bounded, every step within a time. Knows nothing of timers.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::core::peers::address::{Place, place_of};
use crate::wire::answer_head::parse_answer_head;
use crate::wire::chunked::{ChunkError, ChunkedDecoder};
use crate::wire::request_head::Framing;

/// Time for a connection, and for one request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of an answer's body: 100 timers with 160 KiB each, or a few of the longest. One that is
/// longer is `ErrorKind::FileTooLarge`.
const BODY_BYTES_MAX: u64 = 16 << 20;
/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub status: u16,
    pub body: Vec<u8>,
}

/// One node, and the connection to it while there is one.
#[derive(Debug)]
pub(crate) struct Client {
    place: Place,
    stream: Option<TcpStream>,
    received: Vec<u8>,
}

impl Client {
    /// For a node as the configuration calls it; `port` is meant where it names none.
    pub fn of(address: &str, port: u16) -> Self {
        Self { place: place_of(address, port), stream: None, received: Vec::new() }
    }

    /// Sends a whole request and returns its answer. One that fails on a connection that was used
    /// before is sent again over a new one: every request here may come twice.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<Answered> {
        let was_used = self.stream.is_some();
        let first = self.ask_once(request).await;
        if first.is_ok() || !was_used {
            return first;
        }
        self.ask_once(request).await
    }

    async fn ask_once(&mut self, request: &[u8]) -> io::Result<Answered> {
        let answered = match timeout(PATIENCE, self.talk(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(io::Error::new(ErrorKind::TimedOut, "no answer in time")),
        };
        if answered.is_err() {
            self.stream = None;
        }
        answered
    }

    async fn talk(&mut self, request: &[u8]) -> io::Result<Answered> {
        if self.stream.is_none() {
            self.received.clear();
            self.stream = Some(TcpStream::connect(self.address().await?).await?);
        }
        let stream = self.stream.as_ref().expect("connected above");
        let mut left = request;
        while !left.is_empty() {
            stream.writable().await?;
            match stream.try_write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let head = loop {
            match parse_answer_head(&self.received, HEAD_BYTES_MAX).map_err(garbage)? {
                Some(head) if (100..200).contains(&head.status) => {
                    self.received.drain(..head.head_bytes);
                }
                Some(head) => break head,
                None => fill(stream, &mut self.received).await?,
            }
        };
        self.received.drain(..head.head_bytes);
        let body = read_body(stream, &mut self.received, head.framing).await?;
        if !head.keep_alive || head.framing.is_none() {
            self.stream = None;
        }
        Ok(Answered { status: head.status, body })
    }

    async fn address(&self) -> io::Result<SocketAddr> {
        match &self.place {
            Place::At(address) => Ok(*address),
            Place::Named(name, port) => {
                let mut found = lookup_host((name.as_str(), *port)).await?;
                found.next().ok_or_else(|| ErrorKind::NotFound.into())
            }
        }
    }
}

async fn read_body(
    stream: &TcpStream,
    received: &mut Vec<u8>,
    framing: Option<Framing>,
) -> io::Result<Vec<u8>> {
    match framing {
        Some(Framing::Length(length)) if length > BODY_BYTES_MAX => {
            Err(ErrorKind::FileTooLarge.into())
        }
        Some(Framing::Length(length)) => {
            let length = length as usize;
            while received.len() < length {
                fill(stream, received).await?;
            }
            Ok(received.drain(..length).collect())
        }
        Some(Framing::Chunked) => {
            let mut decoder = ChunkedDecoder::new(BODY_BYTES_MAX);
            let mut body = Vec::new();
            loop {
                let decoded = decoder.decode(received, |run| body.extend_from_slice(run));
                let (used, is_complete) = decoded.map_err(|error| match error {
                    ChunkError::TooLong => ErrorKind::FileTooLarge.into(),
                    other => garbage(other),
                })?;
                received.drain(..used);
                if is_complete {
                    return Ok(body);
                }
                fill(stream, received).await?;
            }
        }
        None => loop {
            match fill(stream, received).await {
                Ok(()) if received.len() as u64 > BODY_BYTES_MAX => {
                    return Err(ErrorKind::FileTooLarge.into());
                }
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(std::mem::take(received));
                }
                Err(error) => return Err(error),
            }
        },
    }
}

/// Waits for more bytes.
async fn fill(stream: &TcpStream, received: &mut Vec<u8>) -> io::Result<()> {
    loop {
        stream.readable().await?;
        let end = received.len();
        received.resize(end + READ_BYTES, 0);
        let read = stream.try_read(&mut received[end..]);
        received.truncate(end + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn garbage(error: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that gives these answers, one connection each, and closes.
    fn server(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = [0; 4];
                stream.read_exact(&mut request).expect("its request");
                assert_eq!(&request, b"ask!");
                stream.write_all(answer.as_bytes()).expect("sent");
            }
        });
        address
    }

    #[tokio::test]
    async fn answers_of_all_framings_are_read_and_connections_renewed() {
        let address = server(&[
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none",
            "HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1\r\no\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nthree",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        ]);
        let mut client = Client::of(&address.to_string(), 1);
        for (status, body) in [(200, "one"), (206, "two"), (200, "three")] {
            let answered = client.ask(b"ask!").await.expect("an answer");
            assert_eq!((answered.status, &answered.body[..]), (status, body.as_bytes()));
        }
        let too_long = client.ask(b"ask!").await.expect_err("refused");
        assert_eq!(too_long.kind(), ErrorKind::FileTooLarge);
    }
}
