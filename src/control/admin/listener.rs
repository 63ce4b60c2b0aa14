//! The connections of the admin API. Every connection is accepted at once, and 64 are held at a
//! time, or fewer where the process may open few files: clients of this API leave to timers and
//! timestamps the files that these take. When all are taken, the oldest connection that has sent no
//! request yet is closed for the next one. So a client that connects and keeps silent holds up
//! nobody, least of all the supervisor that asks for `/healthz`. Over TLS a handshake is part of
//! its connection: it has the time of the head, and its connection has sent no request yet.

// May panic: indices 2.
// Why it does not: found 1, fixed 1.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::control::shared::Shared;
use crate::control::tls_stream::TlsStream;
use crate::tls::acceptor::Acceptor;

/// Pause after a failed accept (out of file descriptors), so that the control thread does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time limits of a connection, counted from its accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Until the head of the request is there.
    pub head: Duration,
    /// Until the connection ends, however far the answer is.
    pub life: Duration,
}

/// What connections over TLS are accepted with now.
pub(crate) type SharedAcceptor = Shared<Arc<Acceptor>>;

/// The listening socket. It accepts every connection and closes an old one where the table is full.
pub(crate) struct AdminListener {
    listener: TcpListener,
    /// `None`: connections are plain.
    acceptor: Option<SharedAcceptor>,
    /// When the next connection over TLS may be accepted.
    resume: Instant,
    times: Times,
    table: Arc<Mutex<Table>>,
}

/// Pause between two connections over TLS. A handshake costs the control thread 0.2 to 1 ms, and
/// this thread has no core of its own: a herd of them must not take one from the pops. A command
/// on 128 members needs one connection to each.
const HANDSHAKE_PAUSE: Duration = Duration::from_millis(5);
/// How often clients that fail in TLS are logged.
const FAILURES_EVERY: Duration = Duration::from_secs(60);

/// The connections held, the oldest first.
struct Table {
    most: usize,
    connections: VecDeque<OpenConnection>,
    next: u64,
    /// Clients that have failed in TLS since the last line of the log, and when that was.
    failures: u64,
    told: Option<Instant>,
}

struct OpenConnection {
    number: u64,
    /// Whether the head of the connection's request is there.
    has_asked: bool,
    /// The other half is the stream's `kept`. When this entry is dropped, `kept` resolves and the
    /// connection ends.
    _keep: oneshot::Sender<()>,
}

impl Table {
    fn new(most: usize) -> Self {
        Self { most, connections: VecDeque::new(), next: 0, failures: 0, told: None }
    }

    /// Enters a connection and makes room for it. Returns its number and the receiver that resolves
    /// when its entry is dropped.
    fn insert(&mut self) -> (u64, oneshot::Receiver<()>) {
        while self.connections.len() >= self.most {
            self.let_go();
        }
        let (keep, kept) = oneshot::channel();
        self.next += 1;
        self.connections.push_back(OpenConnection {
            number: self.next,
            has_asked: false,
            _keep: keep,
        });
        (self.next, kept)
    }

    /// Ends the oldest connection that has sent no request yet. When all have sent one, ends the
    /// oldest.
    fn let_go(&mut self) {
        let silent = self.connections.iter().position(|connection| !connection.has_asked);
        self.connections.remove(silent.unwrap_or(0));
    }

    fn has_asked(&mut self, number: u64) {
        if let Some(connection) =
            self.connections.iter_mut().find(|connection| connection.number == number)
        {
            connection.has_asked = true;
        }
    }

    fn remove(&mut self, number: u64) {
        self.connections.retain(|connection| connection.number != number);
    }

    /// Logs why a client failed in TLS, at once and then once a minute.
    fn failed(&mut self, peer: SocketAddr, error: &io::Error) {
        self.failures += 1;
        if self.told.is_none_or(|told| told.elapsed() >= FAILURES_EVERY) {
            let count = std::mem::take(&mut self.failures);
            tracing::warn!(%peer, count, "the admin API over TLS has refused a client: {error}");
            self.told = Some(Instant::now());
        }
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // A change is one call of the list, so a panic leaves nothing half done.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AdminListener {
    /// A listener for connections over TLS, or for plain ones without an acceptor. It holds
    /// `most` connections.
    pub(super) fn new(
        listener: TcpListener,
        acceptor: Option<SharedAcceptor>,
        times: Times,
        most: usize,
    ) -> Self {
        let table = Arc::new(Mutex::new(Table::new(most)));
        Self { listener, acceptor, resume: Instant::now(), times, table }
    }

    /// Accepts the next connection of the socket.
    async fn next(&mut self) -> io::Result<(Transport, SocketAddr)> {
        if self.acceptor.is_some() {
            sleep_until(self.resume).await;
        }
        let (stream, peer) = self.listener.accept().await?;
        let transport = match &self.acceptor {
            None => Transport::Plain(stream),
            Some(acceptor) => {
                self.resume = Instant::now() + HANDSHAKE_PAUSE;
                let stream = TlsStream::accept(stream, &acceptor.get());
                Transport::Tls(Box::new(stream.map_err(io::Error::other)?))
            }
        };
        Ok((transport, peer))
    }
}

impl axum::serve::Listener for AdminListener {
    type Io = AdminStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminStream, SocketAddr) {
        // The connections accepted before run once, before the next connection can push them out.
        tokio::task::yield_now().await;
        loop {
            match self.next().await {
                Ok((stream, peer)) => {
                    let (number, kept) = lock(&self.table).insert();
                    let accepted = Instant::now();
                    let end = Box::pin(sleep_until(accepted + self.times.head));
                    let table = Arc::clone(&self.table);
                    let over = accepted + self.times.life;
                    let (head, seen) = (HeadEnd::default(), Seen::default());
                    #[rustfmt::skip]
                    let stream = AdminStream {
                        stream, peer, number, table, kept, end, over, head, seen,
                    };
                    return (stream, peer);
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin listener cannot accept; trying again");
                    lock(&self.table).let_go();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What is seen of the bytes of a request before the HTTP library reads them. The library cuts a
/// fragment off, and a name with `#` in it would be another name.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<AtomicBool>);

impl Seen {
    /// Whether the request line has a `#`.
    pub(super) fn has_fragment(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connected<IncomingStream<'_, AdminListener>> for Seen {
    fn connect_info(stream: IncomingStream<'_, AdminListener>) -> Self {
        stream.io().seen.clone()
    }
}

/// Finds the empty line behind a head, and a fragment in its first line. The head may come in any
/// portions.
#[derive(Default)]
struct HeadEnd {
    matched: usize,
    request_line: RequestLine,
    has_fragment: bool,
}

/// How much of the request line has come. Empty lines may stand before it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RequestLine {
    #[default]
    Awaited,
    Begun,
    Over,
}

impl HeadEnd {
    const MARK: &'static [u8] = b"\r\n\r\n";

    /// Takes the next bytes. Returns whether the head has ended, with these bytes or before.
    fn see(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            if self.is_over() {
                break;
            }
            self.request_line = match (self.request_line, byte) {
                (RequestLine::Awaited, b'\r' | b'\n') => RequestLine::Awaited,
                (RequestLine::Begun, b'\n') | (RequestLine::Over, _) => RequestLine::Over,
                _ => RequestLine::Begun,
            };
            self.has_fragment |= byte == b'#' && self.request_line == RequestLine::Begun;
            self.matched = match byte {
                _ if byte == Self::MARK[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
        }
        self.is_over()
    }

    fn is_over(&self) -> bool {
        self.matched == Self::MARK.len()
    }
}

/// What a connection goes over.
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls a method of whichever stream it is.
macro_rules! of_transport {
    ($transport:expr, $method:ident ( $($argument:expr),* )) => {
        match &mut $transport {
            Transport::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Transport::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

/// A connection of the admin API. Every operation that has to wait fails with `TimedOut` once the
/// connection's time is over or its entry in the table is gone.
pub(crate) struct AdminStream {
    stream: Transport,
    peer: SocketAddr,
    number: u64,
    table: Arc<Mutex<Table>>,
    /// Resolves when the connection's entry in the table is dropped.
    kept: oneshot::Receiver<()>,
    /// Before the head is there: the deadline of the head. Afterwards: `over`.
    end: Pin<Box<Sleep>>,
    over: Instant,
    head: HeadEnd,
    seen: Seen,
}

impl Drop for AdminStream {
    fn drop(&mut self) {
        lock(&self.table).remove(self.number);
    }
}

impl AdminStream {
    /// Returns `poll` if the operation is done, and an error if the connection is to end. Otherwise
    /// the end of the connection wakes the task.
    fn or_end<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_pending() {
            let is_late = self.end.as_mut().poll(cx).is_ready();
            if is_late || Pin::new(&mut self.kept).poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        poll
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let poll = of_transport!(self.stream, poll_read(cx, into));
        if let (Transport::Tls(_), Poll::Ready(Err(error))) = (&self.stream, &poll)
            && error.kind() == io::ErrorKind::InvalidData
        {
            lock(&self.table).failed(self.peer, error);
        }
        if !self.head.is_over() && self.head.see(&into.filled()[before..]) {
            self.seen.0.store(self.head.has_fragment, Ordering::Relaxed);
            let (number, over) = (self.number, self.over);
            lock(&self.table).has_asked(number);
            self.end.as_mut().reset(over);
        }
        self.or_end(cx, poll)
    }
}

impl AsyncWrite for AdminStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = of_transport!(self.stream, poll_write(cx, bytes));
        self.or_end(cx, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = of_transport!(self.stream, poll_flush(cx));
        self.or_end(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = of_transport!(self.stream, poll_shutdown(cx));
        self.or_end(cx, poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_silent_goes_first() {
        const MOST: usize = 5;
        let mut table = Table::new(MOST);
        let mut kept: Vec<_> = (0..MOST).map(|_| table.insert()).collect();
        let is_gone = |one: &mut (u64, oneshot::Receiver<()>)| {
            one.1.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        assert!(!kept.iter_mut().any(is_gone));
        table.has_asked(kept[0].0);
        let newest = table.insert();
        assert!(is_gone(&mut kept[1]) && !is_gone(&mut kept[0]));
        table.remove(newest.0);
        table.insert();
        assert!(!is_gone(&mut kept[2]), "there was room");
        let others: Vec<u64> =
            table.connections.iter().map(|connection| connection.number).collect();
        others.into_iter().for_each(|number| table.has_asked(number));
        table.insert();
        assert!(is_gone(&mut kept[0]), "all have asked");
        assert_eq!(table.connections.len(), MOST);
    }

    #[test]
    fn the_end_of_a_head_is_found_in_any_portions() {
        let bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\r\n\r\n\r\nrest";
        let end = bytes.len() - b"\r\nrest".len();
        for cut in 0..bytes.len() {
            let mut head = HeadEnd::default();
            assert_eq!(head.see(&bytes[..cut]), cut >= end, "{cut}");
            assert!(head.see(&bytes[cut..]), "{cut}");
        }
    }

    #[test]
    fn a_fragment_is_one_in_the_request_line_alone() {
        for (bytes, has) in [
            ("GET /a#b HTTP/1.1\r\n\r\n", true),
            ("\r\nGET /#", true),
            ("GET /a HTTP/1.1\r\nX: #\r\n\r\n#", false),
            ("GET /a%23b HTTP/1.1\r\n\r\n", false),
        ] {
            let mut head = HeadEnd::default();
            bytes.as_bytes().chunks(1).for_each(|byte| {
                head.see(byte);
            });
            assert_eq!(head.has_fragment, has, "{bytes}");
        }
    }
}
