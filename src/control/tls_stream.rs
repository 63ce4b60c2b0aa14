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
/// Most bytes of the wire that wait for the other end to take them. Nothing more is read until then:
/// each record that comes may ask for an answer.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Bytes taken from the stream at a time. The plaintext that waits is at most one record longer.
const READ_BYTES: usize = 8 << 10;
/// Bytes encrypted at a time: a record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Bytes that are taken and thrown away behind the answer to what is no TLS. A socket that is closed
/// with unread bytes tells the other end that the connection broke, and the answer may be lost.
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
