//! The HTTP client of the control thread and of the commands. It asks admin APIs, the demo's node
//! and original nodes. An exchange ends within its time, an answer is bounded in bytes, and each
//! error has a sentence of its own.

use std::io;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{self, HeaderMap};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Why there is no answer, or no answer that the caller can use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The name has no address, no server listens there, or the connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The whole exchange took longer than it may.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// Another program listens there.
    #[error("the answer is not HTTP/1.1")]
    NotHttp,
    /// The connection ended before the answer did.
    #[error("the answer broke off")]
    CutOff,
    /// The answer has more bytes than it may.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// A path or a header has bytes that HTTP does not allow.
    #[error("the request cannot be sent: {0}")]
    Unsendable(#[from] http::Error),
    /// The server refused. The text is the server's.
    #[error("{text} (status {status})")]
    Refused {
        /// The status of the answer, e.g. 409.
        status: u16,
        /// The body of the answer.
        text: String,
    },
    /// The status is 200, but the body is not the JSON that was expected.
    #[error("the answer is not the JSON that was expected: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// A request to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a str,
    /// The path with its query.
    pub(crate) path: &'a str,
    /// Names and values. `Content-Length` is added, and `Host` if it is missing.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

impl<'a> HttpRequest<'a> {
    /// Makes a GET without headers.
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, headers: &[], body: &[] }
    }
}

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    /// Returns a header as text; `None` if the header is missing or no text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the JSON document of an answer with status 200. Any other status is
    /// [`HttpError::Refused`].
    pub(crate) fn document<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        if self.status == 200 {
            return Ok(serde_json::from_slice(&self.body)?);
        }
        let text = match String::from_utf8_lossy(&self.body).trim() {
            "" => "no reason given".to_owned(),
            text => text.to_owned(),
        };
        Err(HttpError::Refused { status: self.status, text })
    }
}

/// What the address of a server that speaks TLS begins with.
const TLS_SCHEME: &str = "https://";

/// Returns `host:port` of an address that may begin with its scheme.
pub(crate) fn place_in(address: &str) -> &str {
    let plain = address.strip_prefix("http://").unwrap_or(address);
    plain.strip_prefix(TLS_SCHEME).unwrap_or(plain).trim_end_matches('/')
}

/// Whether a server of this address is asked over TLS.
pub(crate) fn is_over_tls(address: &str) -> bool {
    address.starts_with(TLS_SCHEME)
}

/// One server, and the connection to it while there is one.
#[derive(Debug)]
pub(crate) struct HttpClient {
    /// The address of the server, as `host:port`.
    address: String,
    patience: Duration,
    body_bytes_max: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl HttpClient {
    /// Makes a client and does not connect yet. `patience` limits one exchange, including the
    /// look-up of the name and the connection.
    pub(crate) fn new(address: &str, patience: Duration, body_bytes_max: usize) -> Self {
        Self { address: address.to_owned(), patience, body_bytes_max, connection: None }
    }

    /// Sends a request and waits for the whole answer. A request that fails on a connection that
    /// was used before is sent again over a new connection, and may then take twice the time. So a
    /// client may send only requests that do no harm when they arrive twice.
    pub(crate) async fn ask(&mut self, request: HttpRequest<'_>) -> Result<HttpAnswer, HttpError> {
        let was_used = self.connection.is_some();
        match self.ask_once(request).await {
            Err(error) if was_used && !matches!(error, HttpError::TooLong(_)) => {
                self.ask_once(request).await
            }
            answer => answer,
        }
    }

    async fn ask_once(&mut self, request: HttpRequest<'_>) -> Result<HttpAnswer, HttpError> {
        // The connection is taken out: an exchange that fails or is dropped half way leaves no
        // connection behind.
        let connection = self.connection.take();
        let exchange = self.exchange(connection, request);
        let (answer, connection) = timeout(self.patience, exchange)
            .await
            .map_err(|_| HttpError::Late(self.patience))??;
        self.connection = Some(connection).filter(|connection| !connection.is_closed());
        Ok(answer)
    }

    async fn exchange(
        &self,
        connection: Option<SendRequest<Full<Bytes>>>,
        request: HttpRequest<'_>,
    ) -> Result<(HttpAnswer, SendRequest<Full<Bytes>>), HttpError> {
        let mut whole = http::Request::builder().method(request.method).uri(request.path);
        if !request.headers.iter().any(|(name, _)| *name == "Host") {
            whole = whole.header("Host", &self.address);
        }
        for (name, value) in request.headers {
            whole = whole.header(*name, *value);
        }
        let whole = whole.body(Full::new(Bytes::copy_from_slice(request.body)))?;
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        connection.ready().await.map_err(why)?;
        let (head, body) = connection.send_request(whole).await.map_err(why)?.into_parts();
        let body = self.read(body).await?;
        Ok((HttpAnswer { status: head.status.as_u16(), headers: head.headers, body }, connection))
    }

    /// Connects to one of the addresses of the host. Each address gets an equal share of the
    /// remaining time, so that a silent address does not hide the others.
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpError> {
        let end = Instant::now() + self.patience;
        let addresses: Vec<_> = lookup_host(&self.address).await?.collect();
        let mut problem = io::Error::new(io::ErrorKind::NotFound, "the name has no address").into();
        for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
            let share = end.saturating_duration_since(Instant::now()) / left;
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return handshake(stream).await,
                Ok(Err(error)) => problem = error.into(),
                Err(_) => problem = HttpError::Late(self.patience),
            }
        }
        Err(problem)
    }

    async fn read(&self, body: Incoming) -> Result<Vec<u8>, HttpError> {
        let too_long = || HttpError::TooLong(self.body_bytes_max);
        if body.size_hint().lower() > self.body_bytes_max as u64 {
            return Err(too_long());
        }
        match Limited::new(body, self.body_bytes_max).collect().await {
            Ok(whole) => Ok(whole.to_bytes().into()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
            Err(error) => {
                Err(error.downcast::<hyper::Error>().map_or(HttpError::CutOff, |e| why(*e)))
            }
        }
    }
}

async fn handshake(stream: TcpStream) -> Result<SendRequest<Full<Bytes>>, HttpError> {
    stream.set_nodelay(true)?;
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HEAD_BYTES_MAX);
    let (connection, work) = builder.handshake(TokioIo::new(stream)).await.map_err(why)?;
    // The task ends with the client. Its errors reach the exchange that is under way.
    tokio::spawn(work);
    Ok(connection)
}

/// Translates an error of hyper.
fn why(error: hyper::Error) -> HttpError {
    if error.is_parse() {
        return HttpError::NotHttp;
    }
    let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
    match source {
        Some(source) if source.kind() != io::ErrorKind::UnexpectedEof => {
            HttpError::Io(io::Error::new(source.kind(), source.to_string()))
        }
        _ => HttpError::CutOff,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Starts a server that gives these answers, one connection each, and closes. Returns its
    /// address.
    fn server(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let request = read_head(&mut stream);
                assert!(request.starts_with("GET /x HTTP/1.1\r\nHost: "), "{request}");
                stream.write_all(answer.as_bytes()).expect("sent");
            }
        });
        address
    }

    fn read_head(stream: &mut impl Read) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            head.push(byte[0]);
        }
        String::from_utf8(head).expect("text")
    }

    fn client(address: &str) -> HttpClient {
        HttpClient::new(address, Duration::from_secs(10), 1_000)
    }

    async fn problem(address: &str) -> String {
        client(address).ask(HttpRequest::get("/x")).await.expect_err(address).to_string()
    }

    #[tokio::test]
    async fn answers_of_all_framings_are_read_and_connections_renewed() {
        let address = server(&[
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none",
            "HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1\r\no\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nLocation: /y\r\n\r\nthree",
            "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        ]);
        let mut client = client(&address);
        for (status, body) in [(200, "one"), (206, "two"), (200, "three")] {
            let answer = client.ask(HttpRequest::get("/x")).await.expect("an answer");
            assert_eq!((answer.status, &answer.body[..]), (status, body.as_bytes()));
            assert_eq!(answer.header("location"), (body == "three").then_some("/y"));
        }
        let error = client.ask(HttpRequest::get("/x")).await.expect_err("too long");
        assert!(matches!(error, HttpError::TooLong(1_000)), "{error}");
    }

    #[tokio::test]
    async fn a_connection_that_stays_open_is_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = client(&listener.local_addr().expect("bound").to_string());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for _ in 0..3 {
                let head = read_head(&mut stream);
                assert!(head.contains("\r\nContent-Length: 4\r\n"), "{head}");
                assert!(head.contains("\r\nX-Test: yes\r\n"), "{head}");
                let mut body = [0; 4];
                stream.read_exact(&mut body).expect("a body");
                stream.write_all(b"HTTP/1.1 204 No\r\n\r\n").expect("sent");
            }
        });
        for _ in 0..3 {
            let headers = [("X-Test", "yes")];
            let put = HttpRequest { method: "PUT", path: "/y", headers: &headers, body: b"body" };
            assert_eq!(client.ask(put).await.expect("an answer").status, 204);
        }
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told_in_its_own_sentence() {
        let gone = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound").to_string()
        };
        assert!(problem(&gone).await.starts_with("Connection refused"));
        assert!(problem("127.0.0.1").await.contains("invalid socket address"));
        let long = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let long: &'static str = format!("{long}{}", "x".repeat(1_001)).leak();
        let head: &'static str = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(64 << 10)).leak();
        for (answer, told) in [
            (long, "the answer is longer than 1000 bytes"),
            (head, "the answer is not HTTP/1.1"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "the answer is not HTTP/1.1"),
            ("\u{1}\u{2}\r\n\r\n", "the answer is not HTTP/1.1"),
            ("", "the answer broke off"),
            ("HTTP/1.1 200 OK\r\n", "the answer broke off"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the answer broke off"),
        ] {
            let address = server(vec![answer].leak());
            assert_eq!(problem(&address).await, told, "{:.60}", answer);
        }
    }

    #[tokio::test]
    async fn silence_ends_with_the_time_that_was_given() {
        // The kernel accepts into the backlog, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let mut client = HttpClient::new(&address, Duration::from_millis(200), 1_000);
        let begun = Instant::now();
        let error = client.ask(HttpRequest::get("/x")).await.expect_err("silence");
        assert_eq!(error.to_string(), "no answer within 0.2 s");
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn only_a_200_with_json_is_a_document() {
        for (answer, told) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", Some("not the JSON")),
            ("HTTP/1.1 409 No\r\nContent-Length: 6\r\n\r\nbusy\r\n", Some("busy (status 409)")),
            ("HTTP/1.1 503 No\r\n\r\n", Some("no reason given (status 503)")),
        ] {
            let mut client = client(&server(vec![answer].leak()));
            let answer = client.ask(HttpRequest::get("/x")).await.expect("an answer");
            let document: Result<serde_json::Value, _> = answer.document();
            match (document, told) {
                (Ok(document), None) => assert_eq!(document, serde_json::Value::Null),
                (Err(error), Some(told)) => assert!(error.to_string().contains(told), "{error}"),
                (document, _) => panic!("{document:?}, expected {told:?}"),
            }
        }
    }
}
