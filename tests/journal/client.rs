//! An HTTP client with one connection, which it makes anew when the node has gone and come back.

use std::io::{Error, ErrorKind, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kit::http::{Message, header, read_message};

/// Longest wait for an answer. A node that runs refuses what it cannot do within 8 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
pub struct Answer {
    /// The status of the status line.
    pub status: u16,
    head: String,
}

impl Answer {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// A client of one node.
pub struct Client {
    node: SocketAddr,
    connection: Option<TcpStream>,
}

impl Client {
    /// Makes a client. It connects when it is used.
    pub fn new(node: SocketAddr) -> Client {
        Client { node, connection: None }
    }

    /// Sends a request and reads its answer. `Err`: whether the node did what was asked is not
    /// known.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let mut stream = match self.connection.take() {
            Some(stream) => stream,
            None => connect(self.node)?,
        };
        let (node, length) = (self.node, body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {node}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes())?;
        let Message { head, .. } = read_message(&mut stream, &mut Vec::new())?;
        self.connection = Some(stream);
        let wrong = || Error::new(ErrorKind::InvalidData, "no HTTP answer");
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        Ok(Answer { status: status.ok_or_else(wrong)?, head })
    }
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
