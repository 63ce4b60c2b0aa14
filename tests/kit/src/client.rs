//! An HTTP client for nodes that may be slow or gone.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::http::{Message, header, read_message};

/// Longest wait for an answer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of the status line.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// The body, as long as `Content-Length` says.
    pub body: String,
}

impl Answer {
    /// Returns the value of a header; `None` if it is missing.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Returns the path of the timer that was created or changed. Panics unless the status is 200.
    pub fn location(&self) -> &str {
        assert_eq!(self.status, 200, "{self:?}");
        self.header("Location").unwrap_or_else(|| panic!("no Location in {self:?}"))
    }
}

/// Sends one request on a connection of its own. An error means that no answer came within
/// [`PATIENCE`], or that it was no HTTP.
pub fn request(to: SocketAddr, method: &str, path: &str, body: &str) -> Result<Answer> {
    request_with(to, method, path, "", body)
}

/// Sends one request with more headers. Each header includes its line end.
pub fn request_with(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    read_answer(&mut stream)
}

/// Reads the next answer on this connection.
pub fn read_answer(stream: &mut impl Read) -> Result<Answer> {
    let Message { head, body } = read_message(stream, &mut Vec::new())?;
    let wrong = || Error::new(ErrorKind::InvalidData, "no HTTP answer");
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let body = String::from_utf8(body).map_err(|_| wrong())?;
    Ok(Answer { status, head, body })
}
