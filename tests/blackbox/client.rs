//! An HTTP client with a connection to each node. Written from docs/api.md alone.

use std::io::{ErrorKind, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kit::http::{Message, header, read_message};

/// Longest wait for an answer. A node that runs refuses a write after 8 s, and no node is frozen
/// for longer than 8 s.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(2);

/// One answer.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// Why there is no answer.
pub enum Failure {
    NotSent,
    Unknown(String),
}

/// A connection to each node, made when it is needed.
pub struct Client {
    nodes: Vec<SocketAddr>,
    connections: Vec<Option<TcpStream>>,
}

impl Client {
    pub fn new(nodes: Vec<SocketAddr>) -> Client {
        let connections = nodes.iter().map(|_| None).collect();
        Client { nodes, connections }
    }

    /// Sends one request through one node.
    pub fn request(
        &mut self,
        node: usize,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::result::Result<Answer, Failure> {
        self.send(node, method, path, "", body)
    }

    /// Sends an operator's order, which a browser could not send by itself.
    pub fn order(
        &mut self,
        node: usize,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::result::Result<Answer, Failure> {
        self.send(node, method, path, "X-Chronos-Order: 1\r\n", body)
    }

    fn send(
        &mut self,
        node: usize,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> std::result::Result<Answer, Failure> {
        // A node that ended may have closed a kept connection. Then it cannot be told whether the
        // request was read. So a connection is tested for its end before it is used.
        if self.connections[node].as_ref().is_some_and(has_ended) {
            self.connections[node] = None;
        }
        if self.connections[node].is_none() {
            let made = connect(self.nodes[node]).map_err(|_| Failure::NotSent)?;
            self.connections[node] = Some(made);
        }
        let stream = self.connections[node].as_mut().expect("made above");
        let length = body.len();
        let host = self.nodes[node];
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\r\n\
             {body}"
        );
        let answered = stream.write_all(text.as_bytes()).and_then(|()| read_answer(stream));
        let is_kept = |answer: &Answer| answer.header("Connection") != Some("close");
        if !answered.as_ref().is_ok_and(is_kept) {
            self.connections[node] = None;
        }
        answered.map_err(|error| Failure::Unknown(error.to_string()))
    }
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, CONNECT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn has_ended(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut byte));
    let is_open = matches!(&looked, Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).is_err() || !is_open
}

fn read_answer(stream: &mut TcpStream) -> Result<Answer> {
    let Message { head, body } = read_message(stream, &mut Vec::new())?;
    let wrong = || std::io::Error::new(ErrorKind::InvalidData, "no HTTP answer");
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    Ok(Answer { status, head, body })
}
