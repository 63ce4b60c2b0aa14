//! The client of admin APIs: one request per connection, whole answers, bounded in time and bytes.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::control::admin::guard::ORDER_HEADER;

/// Whole time of one request: a node answers within milliseconds unless its machine is lost.
const REQUEST_TIME: Duration = Duration::from_secs(3);
/// Bytes of an answer: 128 members with names of at most 255 bytes, each three times, are 150 KiB.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nobody answers there, or not as an admin API does.
    #[error("{0}")]
    Unreachable(#[from] io::Error),
    /// The node refuses; its own words.
    #[error("{text} (status {status})")]
    Refused {
        /// E.g. 409.
        status: u16,
        /// The body.
        text: String,
    },
}

/// Sends a request to `host:port` and returns the JSON document of a 200. Takes at most 3 s per
/// address that the host has.
pub fn request(
    admin: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, RequestError> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let order = if method == "GET" { String::new() } else { format!("{ORDER_HEADER}: 1\r\n") };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\n{order}\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let answer = exchange(admin, &(head + &body))?;
    let (status, body) = parse(&answer).ok_or_else(|| nonsense("the answer is not HTTP/1.1"))?;
    let text = String::from_utf8_lossy(body);
    if status != 200 {
        return Err(RequestError::Refused { status, text: text.trim().to_owned() });
    }
    Ok(serde_json::from_str(&text).map_err(|_| nonsense("the answer is no JSON"))?)
}

fn exchange(admin: &str, request: &str) -> io::Result<Vec<u8>> {
    let mut last = nonsense("the name has no address");
    for address in admin.to_socket_addrs()? {
        let end = Instant::now() + REQUEST_TIME;
        let result = TcpStream::connect_timeout(&address, REQUEST_TIME).and_then(|mut stream| {
            stream.set_write_timeout(Some(REQUEST_TIME))?;
            stream.write_all(request.as_bytes())?;
            read_all(&mut stream, end)
        });
        match result {
            Ok(answer) => return Ok(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads until the node closes.
fn read_all(stream: &mut TcpStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no whole answer within 3 s"));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(&piece[..count]),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(nonsense("the answer is longer than any of an admin API"));
        }
    }
}

/// Status and body.
fn parse(answer: &[u8]) -> Option<(u16, &[u8])> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = response.parse(answer).ok()? else { return None };
    let body = &answer[head_bytes..];
    let length = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length: usize = std::str::from_utf8(length?.value).ok()?.parse().ok()?;
    (body.len() == length).then_some((response.code?, body))
}

fn nonsense(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_count() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull";
        assert_eq!(parse(answer), Some((200, &b"null"[..])));
        for cut in 0..answer.len() {
            assert_eq!(parse(&answer[..cut]), None, "{cut}");
        }
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\nnull"), None);
        assert_eq!(parse(b"SSH-2.0-x\r\n\r\n"), None);
    }

    #[test]
    fn nobody_there_is_told() {
        let gone = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound").to_string()
        };
        let error = request(&gone, "GET", "/cluster", None).expect_err("nobody listens");
        assert!(matches!(error, RequestError::Unreachable(_)), "{error}");
    }
}
