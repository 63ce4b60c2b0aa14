//! TLS over a byte stream of the control thread. The handshake goes on while the stream is read, so
//! whoever bounds the reads in time bounds the handshake as well. What waits is bounded in bytes.
//!
//! ```text
//! stream ──bytes──▶ Session ──▶ plain ──▶ the reader
//! stream ◀──wire─── Session ◀── the writer
//! ```

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::acceptor::Acceptor;
use crate::tls::connector::Connector;
use crate::tls::session::{Session, TlsError, may_be_tls};

/// Most bytes of the other end's share of a handshake, as for the clients of the cores. A chain of
/// certificates has some kilobytes.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the wire that wait for the other end to take them. Nothing more is read until
/// then: each record that comes may ask for an answer.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Bytes taken from the stream at a time. The plaintext that waits is at most one record longer.
const READ_BYTES: usize = 8 << 10;
/// Bytes encrypted at a time: a record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Bytes that are taken and thrown away behind the answer to what is no TLS. A socket that is
/// closed with unread bytes tells the other end that the connection broke, and the answer may be
/// lost.
const DRAINED_BYTES_MAX: usize = 256 << 10;
/// The answer to plain HTTP where TLS is spoken.
const PLAIN: &str = "this port speaks TLS and found no TLS; ask for https:// here\n";

/// One end of a TLS connection.
pub(crate) struct TlsStream<S> {
    stream: S,
    session: Session,
    /// Whether this is the server's end.
    is_server: bool,
    /// Bytes of the other end's share of the handshake.
    handshake_bytes: usize,
    /// Plaintext that has come, and how much of it was read.
    plain: Vec<u8>,
    read: usize,
    /// Bytes that are to go, and how many of them have gone.
    wire: Vec<u8>,
    sent: usize,
    /// Whether the other end has said that it sends nothing more.
    has_ended: bool,
    /// Whether this end has said so.
    is_closed: bool,
    /// Why the connection cannot go on. The other end is told first.
    failure: Option<io::Error>,
    drained: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// The server's end of a connection on which nothing has come yet. Error: the system has no
    /// randomness.
    pub(crate) fn accept(stream: S, acceptor: &Acceptor) -> Result<Self, TlsError> {
        Ok(Self::new(stream, Session::accept(acceptor)?, true))
    }

    /// The client's end of a connection to the server of this name or address, after the handshake.
    /// In TLS 1.3 the server may refuse the client's certificate afterwards. Errors of TLS are
    /// found by [`tls_error`].
    pub(crate) async fn dial(stream: S, connector: &Connector, host: &str) -> io::Result<Self> {
        let session = Session::dial(connector, host).map_err(failure)?;
        let mut dialled = Self::new(stream, session, false);
        dialled.session.send(&mut dialled.wire);
        std::future::poll_fn(|cx| dialled.poll_handshake(cx)).await?;
        Ok(dialled)
    }

    fn new(stream: S, session: Session, is_server: bool) -> Self {
        Self {
            stream,
            session,
            is_server,
            handshake_bytes: 0,
            plain: Vec::new(),
            read: 0,
            wire: Vec::new(),
            sent: 0,
            has_ended: false,
            is_closed: false,
            failure: None,
            drained: 0,
        }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
            if self.has_ended {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            ready!(self.poll_receive(cx))?;
        }
        self.poll_send(cx)
    }

    /// Takes bytes from the stream once. Error: the connection cannot go on, and the other end has
    /// been told as far as it listens.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failure.is_some() {
            return self.poll_end(cx);
        }
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        if self.wire.len() - self.sent > WAITING_BYTES_MAX {
            // What is sent wakes the task.
            return Poll::Pending;
        }
        let mut bytes = [0; READ_BYTES];
        let mut taken = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut taken))?;
        if taken.filled().is_empty() {
            // Without close_notify what came may have been cut off.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.take(taken.filled());
        Poll::Ready(Ok(()))
    }

    /// Takes bytes of the wire.
    fn take(&mut self, bytes: &[u8]) {
        if self.session.is_handshaking() {
            if self.is_server && self.handshake_bytes == 0 && !may_be_tls(bytes) {
                self.answer_plainly();
                return;
            }
            self.handshake_bytes += bytes.len();
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                self.failure = Some(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the handshake is longer than 64 KiB",
                ));
                return;
            }
        }
        match self.session.receive(bytes, &mut self.plain) {
            Ok(has_ended) => self.has_ended |= has_ended,
            Err(error) => self.failure = Some(failure(error)),
        }
        self.session.send(&mut self.wire);
    }

    /// Tells a client that speaks no TLS where it is, in the clear.
    fn answer_plainly(&mut self) {
        let length = PLAIN.len();
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{PLAIN}"
        );
        self.wire.extend_from_slice(answer.as_bytes());
        self.failure = Some(io::Error::new(io::ErrorKind::InvalidData, "it speaks no TLS"));
    }

    /// Sends what tells the other end of the failure. A server then waits for the other end to
    /// close, so that what was told is not lost. Returns the failure.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_told = ready!(self.poll_send(cx)).is_ok();
        if is_told && self.is_server && ready!(Pin::new(&mut self.stream).poll_shutdown(cx)).is_ok()
        {
            while self.drained < DRAINED_BYTES_MAX {
                let mut bytes = [0; READ_BYTES];
                let mut taken = ReadBuf::new(&mut bytes);
                match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut taken)) {
                    Ok(()) if !taken.filled().is_empty() => self.drained += taken.filled().len(),
                    _ => break,
                }
            }
        }
        Poll::Ready(Err(self.failure.replace(broken()).unwrap_or_else(broken)))
    }

    /// Hands the stream all bytes that are to go.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.wire.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        self.wire.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let rest = self.plain.get(self.read..).unwrap_or_default();
            if !rest.is_empty() {
                let count = rest.len().min(into.remaining());
                into.put_slice(rest.get(..count).unwrap_or_default());
                self.read += count;
                return Poll::Ready(Ok(()));
            }
            self.plain.clear();
            self.read = 0;
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(cx))?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failure.is_some() || self.is_closed || self.session.is_handshaking() {
            return Poll::Ready(Err(broken()));
        }
        ready!(self.poll_send(cx))?;
        let this = &mut *self;
        let record = bytes.get(..RECORD_BYTES).unwrap_or(bytes);
        this.session.write(record);
        this.session.send(&mut this.wire);
        match this.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(record.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_closed {
            this.is_closed = true;
            this.session.close();
            this.session.send(&mut this.wire);
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

/// Returns what went wrong in TLS, if that is what the error of a [`TlsStream`] is about.
pub(crate) fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref::<TlsError>()
}

fn failure(error: TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn broken() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rcgen::{CertificateParams, KeyPair};
    use tokio::net::UnixStream;

    use super::*;
    use crate::tls::acceptor::{ClientAuth, Material};
    use crate::tls::connector::{ClientMaterial, Trust};

    /// Both sides of a server named localhost that signs its own certificate.
    fn both() -> (Acceptor, Connector) {
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("randomness");
        let certificate = parameters.self_signed(&key).expect("its own").pem();
        let acceptor = Acceptor::new(&Material {
            certificates: certificate.as_bytes(),
            key: key.serialize_pem().as_bytes(),
            client_ca: &[],
            client_auth: ClientAuth::Off,
        });
        let trust = Trust::These(certificate.as_bytes());
        let connector = Connector::new(&ClientMaterial { trust, identity: None });
        (acceptor.expect("they fit"), connector.expect("an authority"))
    }

    async fn write(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await?;
            bytes = &bytes[count..];
        }
        poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await
    }

    /// Reads until there are that many bytes, or the end.
    async fn read(stream: &mut (impl AsyncRead + Unpin), count: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut bytes = [0; 1_000];
            let mut taken = ReadBuf::new(&mut bytes);
            poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut taken)).await?;
            if taken.filled().is_empty() {
                break;
            }
            all.extend_from_slice(taken.filled());
        }
        Ok(all)
    }

    async fn close(stream: &mut (impl AsyncWrite + Unpin)) {
        poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await.expect("open");
    }

    /// More than a socket takes at once, both ways, and the ends of both.
    #[tokio::test]
    async fn what_is_written_is_read_and_the_end_is_told() {
        let (acceptor, connector) = both();
        let (here, there) = UnixStream::pair().expect("a pair");
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7) as u8).collect();
        let server = async {
            let mut stream = TlsStream::accept(there, &acceptor).expect("randomness");
            assert!(write(&mut stream, b"early").await.is_err(), "before the handshake");
            assert_eq!(read(&mut stream, bytes.len()).await.expect("all"), bytes);
            write(&mut stream, &bytes).await.expect("taken");
            close(&mut stream).await;
            assert!(write(&mut stream, b"late").await.is_err());
            read(&mut stream, 1).await.expect("the end")
        };
        let client = async {
            let dialled = TlsStream::dial(here, &connector, "localhost").await;
            let mut stream = dialled.expect("a good server");
            write(&mut stream, &bytes).await.expect("taken");
            assert_eq!(read(&mut stream, usize::MAX).await.expect("all and the end"), bytes);
            close(&mut stream).await;
        };
        assert_eq!(tokio::join!(server, client).0, b"");
    }

    #[tokio::test]
    async fn an_end_that_is_not_told_is_an_error() {
        let (acceptor, connector) = both();
        let (here, there) = UnixStream::pair().expect("a pair");
        let server = async {
            let mut stream = TlsStream::accept(there, &acceptor).expect("randomness");
            assert_eq!(read(&mut stream, 3).await.expect("all"), b"ask");
            write(&mut stream, b"half of an").await.expect("taken");
        };
        let client = async {
            let dialled = TlsStream::dial(here, &connector, "localhost").await;
            let mut stream = dialled.expect("a good server");
            write(&mut stream, b"ask").await.expect("taken");
            assert_eq!(read(&mut stream, 10).await.expect("it came"), b"half of an");
            read(&mut stream, 1).await.expect_err("cut off").kind()
        };
        assert_eq!(tokio::join!(server, client).1, io::ErrorKind::UnexpectedEof);
    }

    /// Each side learns why: the client by its own look, the server by the alert.
    #[tokio::test]
    async fn both_ends_learn_why_a_handshake_fails() {
        let ((acceptor, _), (_, stranger)) = (both(), both());
        let (here, there) = UnixStream::pair().expect("a pair");
        let server = async {
            let mut stream = TlsStream::accept(there, &acceptor).expect("randomness");
            read(&mut stream, 1).await.expect_err("refused")
        };
        let client = async {
            let dialled = TlsStream::dial(here, &stranger, "localhost").await;
            dialled.err().expect("another authority")
        };
        let (told, found) = tokio::join!(server, client);
        use crate::tls::session::TlsFault::{Alert, Authority};
        assert_eq!(tls_error(&told).map(|error| error.kind), Some(Alert), "{told}");
        assert_eq!(tls_error(&found).map(|error| error.kind), Some(Authority), "{found}");
    }

    #[tokio::test]
    async fn no_bytes_hang_or_panic_either_end() {
        let (acceptor, connector) = both();
        let long = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat().repeat(8);
        for bytes in
            [&[][..], &[22], &[22, 3, 1, 0, 4, 1, 0, 0xff, 0xff], b"GET /", &[0xff; 9_000], &long]
        {
            let (mut here, there) = UnixStream::pair().expect("a pair");
            let server = async {
                let mut stream = TlsStream::accept(there, &acceptor).expect("randomness");
                read(&mut stream, 1).await.expect_err("no TLS")
            };
            let client = async {
                // The server may have ended it before.
                let _ = write(&mut here, bytes).await;
                let _ = poll_fn(|cx| Pin::new(&mut here).poll_shutdown(cx)).await;
                read(&mut here, usize::MAX).await
            };
            tokio::join!(server, client).1.ok();
            let (here, mut there) = UnixStream::pair().expect("a pair");
            let client = async { TlsStream::dial(here, &connector, "localhost").await.err() };
            let server = async {
                let _ = write(&mut there, bytes).await;
                drop(there);
            };
            assert!(tokio::join!(client, server).0.is_some());
        }
    }
}
