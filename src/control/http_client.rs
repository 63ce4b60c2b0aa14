//! The HTTP client of the control thread and of the commands. It asks admin APIs, the demo's node
//! and original nodes, over TLS where the address begins with `https://`. An exchange ends within
//! its time, an answer is bounded in bytes, and each error has a sentence of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{self, HeaderMap};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::names::Names;
use super::tls_stream::{TlsStream, tls_error};
use crate::tls::connector::Connector;
use crate::tls::session::{OwnCertificate, TlsError, TlsFault};

/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Why there is no answer, or no answer that the caller can use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The name has no address, no server listens there, or the connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server is not the one that is meant, refuses this end, or speaks no TLS.
    #[error("{}", told_of(.0))]
    Tls(TlsError),
    /// The server is to be asked over TLS, and nothing says which certificates are good.
    #[error("there are no authorities to check its certificate with (a node: [cluster] tls_ca)")]
    NoAuthorities,
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

/// Says in words what went wrong in TLS.
fn told_of(error: &TlsError) -> String {
    match (error.kind, error.own_certificate()) {
        (TlsFault::Authority, _) => "its certificate comes from no authority that is believed \
             here; name the file of that authority: --ca FILE or CHRONOS_CA (a node: [cluster] \
             tls_ca)"
            .into(),
        (TlsFault::Name, _) => {
            format!("its certificate has another name: ask under one that it has ({error})")
        }
        (TlsFault::Time, _) => {
            format!("its certificate has expired or is not valid yet, by the clock here ({error})")
        }
        (TlsFault::Certificate, _) => format!("its certificate cannot be used ({error})"),
        (TlsFault::Alert, Some(OwnCertificate::Asked)) => {
            "it asks for a certificate: name it with \
             --cert FILE --key FILE, or CHRONOS_CERT and CHRONOS_KEY"
                .into()
        }
        (TlsFault::Alert, Some(OwnCertificate::Refused)) => {
            format!("it refuses the certificate that it was shown ({error})")
        }
        (TlsFault::Alert, None) => format!("it ends the TLS handshake ({error})"),
        (TlsFault::Protocol, _) => {
            format!("it speaks no TLS there, or none that is known here ({error})")
        }
    }
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
        Self::bare("GET", path)
    }

    /// Makes a request without headers and body.
    pub(crate) fn bare(method: &'a str, path: &'a str) -> Self {
        Self { method, path, headers: &[], body: &[] }
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

    /// Returns the JSON document of an answer with status 200, or 202: what was ordered has begun.
    /// Any other status is [`HttpError::Refused`].
    pub(crate) fn document<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        if matches!(self.status, 200 | 202) {
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

/// Returns the host of an address, without scheme, port and brackets.
pub(crate) fn host_of(address: &str) -> &str {
    let place = place_in(address);
    let host = match place.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        _ => place,
    };
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// One server, and the connection to it while there is one.
#[derive(Debug)]
pub(crate) struct HttpClient {
    /// The address of the server, as `host:port`.
    address: String,
    is_over_tls: bool,
    /// What the server is dialled with over TLS.
    connector: Option<Arc<Connector>>,
    /// Where names lead.
    names: Names,
    patience: Duration,
    body_bytes_max: usize,
    connection: Option<Connected>,
}

/// A connection, and the task that moves its bytes.
#[derive(Debug)]
struct Connected {
    sender: SendRequest<Full<Bytes>>,
    work: JoinHandle<hyper::Result<()>>,
}

impl Connected {
    /// Translates an error of the connection. If the connection had ended before it took the
    /// request, the task knows why.
    async fn why(self, error: hyper::Error) -> HttpError {
        if error.is_canceled() || error.is_closed() {
            drop(self.sender);
            if let Ok(Err(reason)) = self.work.await {
                return why(reason);
            }
        }
        why(error)
    }
}

impl HttpClient {
    /// Makes a client and does not connect yet. `address` is `host:port`, with `https://` before it
    /// for TLS; then [`HttpClient::with`] says whom to believe. `patience` limits one exchange,
    /// including the look-up of the name and the connection.
    pub(crate) fn new(address: &str, patience: Duration, body_bytes_max: usize) -> Self {
        Self {
            address: place_in(address).to_owned(),
            is_over_tls: is_over_tls(address),
            connector: None,
            names: Names::default(),
            patience,
            body_bytes_max,
            connection: None,
        }
    }

    /// Dials with this connector where the address is one of TLS.
    pub(crate) fn with(mut self, connector: Arc<Connector>) -> Self {
        self.connector = Some(connector);
        self
    }

    /// Looks the host up by these names.
    pub(crate) fn named(mut self, names: Names) -> Self {
        self.names = names;
        self
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
        self.connection = Some(connection).filter(|connection| !connection.sender.is_closed());
        Ok(answer)
    }

    async fn exchange(
        &self,
        connection: Option<Connected>,
        request: HttpRequest<'_>,
    ) -> Result<(HttpAnswer, Connected), HttpError> {
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
        if let Err(error) = connection.sender.ready().await {
            return Err(connection.why(error).await);
        }
        let (head, body) = match connection.sender.send_request(whole).await {
            Ok(answer) => answer.into_parts(),
            Err(error) => return Err(connection.why(error).await),
        };
        let body = self.read(body).await?;
        Ok((HttpAnswer { status: head.status.as_u16(), headers: head.headers, body }, connection))
    }

    /// Connects to one of the addresses of the host. Each address gets an equal share of the
    /// remaining time, so that a silent address does not hide the others.
    async fn connect(&self) -> Result<Connected, HttpError> {
        let end = Instant::now() + self.patience;
        let no_port = || io::Error::new(io::ErrorKind::InvalidInput, "invalid socket address");
        let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port = port.ok_or_else(no_port)?;
        let addresses = self.names.look_up(host_of(&self.address), port).await?;
        let mut problem = io::Error::new(io::ErrorKind::NotFound, "the name has no address").into();
        for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
            let share = end.saturating_duration_since(Instant::now()) / left;
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return self.begin(stream).await,
                Ok(Err(error)) => problem = error.into(),
                Err(_) => problem = HttpError::Late(self.patience),
            }
        }
        Err(problem)
    }

    /// Begins TLS, if the server is one of TLS, and HTTP.
    async fn begin(&self, stream: TcpStream) -> Result<Connected, HttpError> {
        stream.set_nodelay(true)?;
        if !self.is_over_tls {
            return handshake(stream).await;
        }
        let connector = self.connector.as_ref().ok_or(HttpError::NoAuthorities)?;
        let dialled = TlsStream::dial(stream, connector, host_of(&self.address)).await;
        handshake(dialled.map_err(|error| told_by(&error))?).await
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

async fn handshake<S>(stream: S) -> Result<Connected, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HEAD_BYTES_MAX);
    let (sender, work) = builder.handshake(TokioIo::new(stream)).await.map_err(why)?;
    // The task ends with the client. Its errors reach the exchange that is under way.
    Ok(Connected { sender, work: tokio::spawn(work) })
}

/// Translates an error of hyper.
fn why(error: hyper::Error) -> HttpError {
    if error.is_parse() {
        return HttpError::NotHttp;
    }
    // The reason of the stream may stand behind one that says that the request was not sent.
    let mut source = std::error::Error::source(&error);
    while let Some(reason) = source {
        if let Some(reason) = reason.downcast_ref::<io::Error>() {
            return told_by(reason);
        }
        source = reason.source();
    }
    HttpError::CutOff
}

/// Translates an error of the stream.
pub(crate) fn told_by(error: &io::Error) -> HttpError {
    match tls_error(error) {
        Some(error) => HttpError::Tls(error.clone()),
        None if error.kind() == io::ErrorKind::UnexpectedEof => HttpError::CutOff,
        None => HttpError::Io(io::Error::new(error.kind(), error.to_string())),
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
