//! Requests as bytes, and answers read strictly, over whatever stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use kit::until::PATIENCE;

/// A request that a story makes.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub method: String,
    /// The path, with a query if there is one.
    pub target: String,
    /// Lines of the head, each with its end.
    pub headers: String,
    pub body: String,
}

impl Ask {
    pub fn new(method: &str, target: &str) -> Ask {
        let (method, target) = (method.to_uppercase(), target.to_owned());
        Ask { method, target, ..Ask::default() }
    }

    /// The same with one more line of the head.
    pub fn with(mut self, line: &str) -> Ask {
        self.headers.push_str(line);
        self.headers.push_str("\r\n");
        self
    }

    pub fn body(self, body: &str) -> Ask {
        Ask { body: body.to_owned(), ..self }
    }

    /// The request as a usual client writes it.
    pub fn text(&self) -> String {
        let Ask { method, target, headers, body } = self;
        let length = body.len();
        format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: \
             {length}\r\n\r\n{body}"
        )
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The headers in their order.
    pub headers: Vec<(String, String)>,
    /// The body without framing.
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|header| header.0.eq_ignore_ascii_case(name));
        found.map(|header| header.1.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The path of the timer or job. Panics if the answer has none.
    pub fn location(&self) -> String {
        self.header("Location").unwrap_or_else(|| panic!("no Location: {self:?}")).to_owned()
    }
}

/// Connects to a node.
pub fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the node accepts");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Sends bytes and reads the answer to them. The node may answer and close before it has read all.
pub fn exchange(stream: &mut (impl Read + Write), bytes: &[u8], is_head: bool) -> Answer {
    // What cannot be written is not read either: the answer says why.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let of = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let mut reader = Reader { stream, buffer: Vec::new(), of };
    loop {
        let answer = reader.answer(is_head);
        if answer.status >= 200 {
            return answer;
        }
    }
}

struct Reader<'s, S> {
    stream: &'s mut S,
    buffer: Vec<u8>,
    /// How the request begins.
    of: String,
}

impl<S: Read> Reader<'_, S> {
    fn answer(&mut self, is_head: bool) -> Answer {
        let head = self.until(b"\r\n\r\n");
        let head = String::from_utf8(head).expect("heads are text");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status = status.and_then(|rest| rest[..3].parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer of HTTP: {head:?}"));
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        if is_head || status < 200 {
            return answer;
        }
        if answer.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let line = String::from_utf8(self.until(b"\r\n")).expect("digits");
                let length = usize::from_str_radix(line.trim(), 16).expect("a length");
                let piece = self.take(length + 2);
                if length == 0 {
                    return answer;
                }
                answer.body.extend_from_slice(&piece[..length]);
            }
        }
        let length = answer.header("Content-Length").expect("a length");
        answer.body = self.take(length.parse().expect("a number"));
        answer
    }

    /// The bytes up to a mark and with it.
    fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = kit::http::find(&self.buffer, mark) {
                return self.buffer.drain(..at + mark.len()).collect();
            }
            self.fill();
        }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            self.fill();
        }
        self.buffer.drain(..count).collect()
    }

    fn fill(&mut self) {
        let mut bytes = [0; 16 << 10];
        let count = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => {
                    break other.unwrap_or_else(|error| panic!("no answer, {error}: {self:?}"));
                }
            }
        };
        assert!(count > 0, "the connection ended before the answer: {self:?}");
        self.buffer.extend_from_slice(&bytes[..count]);
    }
}

impl<S> std::fmt::Debug for Reader<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.buffer.escape_ascii(), self.of)
    }
}
