//! HTTP/1.1 messages on a stream, for clients and servers that do not check the form.

use std::io::{Error, ErrorKind, Read, Result};

/// One message: a request or an answer.
#[derive(Clone, Debug)]
pub struct Message {
    /// First line and headers, with the empty line.
    pub head: String,
    /// The body, as long as `Content-Length` says; empty if the head has no such header.
    pub body: Vec<u8>,
}

impl Message {
    /// Returns the value of a header; the first value, if the header comes more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// Returns the value of a header in a head; the first value, if the header comes more than once.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
    lines.find(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1)
}

/// Returns the first index at which a piece stands in the bytes.
pub fn find(bytes: &[u8], piece: &[u8]) -> Option<usize> {
    bytes.windows(piece.len()).position(|window| window == piece)
}

/// Reads the next message. Bytes behind the message stay in `buffer` for the next call.
///
/// # Errors
///
/// `UnexpectedEof` if the stream ends before the message, `InvalidData` if the head is no text, and
/// every error of the stream.
pub fn read_message(stream: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Message> {
    let head_bytes = loop {
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            break end + 4;
        }
        fill(stream, buffer)?;
    };
    let wrong = |_| Error::new(ErrorKind::InvalidData, "a head that is no text");
    let head = String::from_utf8(buffer.drain(..head_bytes).collect()).map_err(wrong)?;
    let length = header(&head, "Content-Length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while buffer.len() < length {
        fill(stream, buffer)?;
    }
    Ok(Message { head, body: buffer.drain(..length).collect() })
}

fn fill(stream: &mut impl Read, buffer: &mut Vec<u8>) -> Result<()> {
    let mut piece = [0; 16 << 10];
    let count = stream.read(&mut piece)?;
    if count == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    buffer.extend_from_slice(&piece[..count]);
    Ok(())
}
