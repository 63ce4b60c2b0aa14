//! The demo's client: one HTTP/1.1 POST over one connection, as any program would send it. Only for
//! answers with a short head and no need of the body.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes of an answer's head that are read before it counts as nonsense.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Whole time of one request; a node on the same machine answers within a millisecond.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the demo needs of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// E.g. 200.
    pub status: u16,
    /// `Location`, if there is one.
    pub location: Option<String>,
    /// `Reason`, if there is one: why a request was refused.
    pub reason: Option<String>,
}

/// Sends `body` to `path` and reads the answer's head. Takes at most 5 s.
pub async fn post(address: SocketAddr, path: &str, body: &str) -> io::Result<Answer> {
    let exchange = exchange(address, path, body);
    match timeout(TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 5 s")),
    }
}

async fn exchange(address: SocketAddr, path: &str, body: &str) -> io::Result<Answer> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: \
         application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    write_all(&stream, request.as_bytes()).await?;
    let mut head = Vec::new();
    loop {
        if let Some(answer) = parse(&head)? {
            return Ok(answer);
        }
        let mut chunk = [0; 1024];
        match read(&stream, &mut chunk).await? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off")),
            _ if head.len() > HEAD_BYTES_MAX => return Err(nonsense()),
            count => head.extend(&chunk[..count]),
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read(stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// The answer, or `None` while its head is not complete.
fn parse(head: &[u8]) -> io::Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(nonsense()),
    }
    let value_of = |name: &str| {
        let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| String::from_utf8_lossy(header.value).into_owned())
    };
    let status = response.code.ok_or_else(nonsense)?;
    Ok(Some(Answer { status, location: value_of("location"), reason: value_of("reason") }))
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_when_complete_and_not_before() {
        let head = b"HTTP/1.1 200 OK\r\nlocation: /timers/x-1\r\nContent-Length: 0\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(parse(&head[..cut]).expect("a good beginning"), None, "{cut}");
        }
        let answer = Answer { status: 200, location: Some("/timers/x-1".into()), reason: None };
        assert_eq!(parse(head).expect("good"), Some(answer));
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
        let refused = parse(b"HTTP/1.1 503 No\r\nReason: full\r\n\r\n").expect("good");
        assert_eq!(refused.and_then(|answer| answer.reason).as_deref(), Some("full"));
    }
}
