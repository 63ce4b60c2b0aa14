//! An ordinary client: epoll, and one read and one write for each socket that has something, as
//! most clients of a service work. It keeps a number of requests in flight on each connection, over
//! any protocol in which every request gets one reply, in order.

pub mod protocol;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use chronos::ring::{pin_to_core, thread_usage};
use chronos::tls::connector::Connector;
use chronos::tls::session::Session;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::clock::clock_ns;
use crate::histogram::new_histogram;
use crate::server_cpu;
use protocol::Protocol;

/// Nanoseconds without any reply after which a run has failed.
const SILENCE_NS: u64 = 5_000_000_000;
const WAIT: Duration = Duration::from_millis(50);
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// How much load, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of connections.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub pipeline: u32,
    /// Load before the measured time.
    pub warm_up: Duration,
    /// The measured time.
    pub duration: Duration,
    /// The core of the client's thread.
    pub core: usize,
}

/// What was measured.
pub struct Outcome {
    /// Replies per second.
    pub per_second: f64,
    /// CPU time of the server per reply, in microseconds.
    pub cpu_us: f64,
    /// Share of the client's core in use.
    pub client_core_share: f64,
    /// Replies since the first connection, warm-up included.
    pub replies: u64,
    /// Time from request to reply, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Puts the load on the server at `target`, the process `pid`; over TLS, if there is a connector.
/// The client runs on a thread of its own, so that servers that are started later do not inherit
/// its core.
pub fn run(
    protocol: &dyn Protocol,
    (target, pid): (SocketAddr, u32),
    load: Load,
    connector: Option<&Connector>,
) -> Result<Outcome> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| drive(protocol, (target, pid), load, connector));
        thread.join().unwrap_or_else(|_| Err(anyhow!("the client's thread panicked")))
    })
}

struct Connection {
    stream: TcpStream,
    /// TLS, whose handshake is over.
    tls: Option<Session>,
    /// When each request in flight was sent.
    flights: VecDeque<u64>,
    /// The beginning of a reply that has not arrived whole.
    begun: Vec<u8>,
    /// Bytes that the socket has not taken yet.
    unsent: Vec<u8>,
}

/// What was counted since the measured time began.
struct Measured {
    began_ns: u64,
    server_cpu_ns: u64,
    client_cpu_ns: u64,
    replies: u64,
    latency: Histogram<u64>,
}

impl Measured {
    fn begin(pid: u32) -> Result<Self> {
        Ok(Self {
            began_ns: clock_ns(),
            server_cpu_ns: server_cpu_ns(pid)?,
            client_cpu_ns: thread_usage().cpu_ns,
            replies: 0,
            latency: new_histogram(),
        })
    }

    fn end(self, pid: u32, replies: u64) -> Result<Outcome> {
        anyhow::ensure!(self.replies > 0, "no request was answered in the measured time");
        let passed_ns = (clock_ns() - self.began_ns) as f64;
        let server_ns = server_cpu_ns(pid)?.saturating_sub(self.server_cpu_ns) as f64;
        Ok(Outcome {
            per_second: self.replies as f64 / passed_ns * 1e9,
            cpu_us: server_ns / 1e3 / self.replies as f64,
            client_core_share: (thread_usage().cpu_ns - self.client_cpu_ns) as f64 / passed_ns,
            replies,
            latency: self.latency,
        })
    }
}

fn server_cpu_ns(pid: u32) -> Result<u64> {
    server_cpu::cpu_ns(pid).with_context(|| format!("there is no process {pid}"))
}

fn drive(
    protocol: &dyn Protocol,
    (target, pid): (SocketAddr, u32),
    load: Load,
    connector: Option<&Connector>,
) -> Result<Outcome> {
    pin_to_core(load.core).with_context(|| format!("cannot run on core {}", load.core))?;
    let mut client = Client {
        protocol,
        connector,
        poll: Poll::new().context("cannot make an epoll")?,
        connections: Vec::new(),
        number: 0,
        replies: 0,
        answered_ns: clock_ns(),
        piece: vec![0; READ_BYTES],
        asked: Vec::new(),
    };
    for _ in 0..load.connections {
        client.connect(target)?;
    }
    let warm_until = clock_ns() + load.warm_up.as_nanos() as u64;
    let until = warm_until + load.duration.as_nanos() as u64;
    let mut events = Events::with_capacity(1_024);
    let mut measured: Option<Measured> = None;
    for place in 0..client.connections.len() {
        client.send(place, load.pipeline)?;
    }
    loop {
        let now_ns = clock_ns();
        if now_ns >= until {
            let measured = measured.context("the measured time ended before it began")?;
            return measured.end(pid, client.replies);
        }
        if measured.is_none() && now_ns >= warm_until {
            measured = Some(Measured::begin(pid)?);
        }
        if now_ns > client.answered_ns + SILENCE_NS {
            bail!("{target} has not answered for 5 s");
        }
        match client.poll.poll(&mut events, Some(WAIT)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled.context("cannot wait for the sockets")?,
        }
        for event in &events {
            let place = event.token().0;
            let replies = client.receive(place, measured.as_mut())?;
            client.send(place, replies)?;
        }
    }
}

struct Client<'p> {
    protocol: &'p dyn Protocol,
    connector: Option<&'p Connector>,
    poll: Poll,
    connections: Vec<Connection>,
    /// The number of the next request.
    number: u64,
    replies: u64,
    answered_ns: u64,
    piece: Vec<u8>,
    /// Requests before they are encrypted.
    asked: Vec<u8>,
}

/// Shakes hands before the load begins.
fn shake_hands(
    connector: &Connector,
    target: SocketAddr,
    stream: &mut std::net::TcpStream,
) -> Result<Session> {
    let mut tls = Session::dial(connector, &target.ip().to_string())?;
    let (mut piece, mut wire, mut plain) = ([0; 4 << 10], Vec::new(), Vec::new());
    stream.set_read_timeout(Some(Duration::from_nanos(SILENCE_NS)))?;
    loop {
        wire.clear();
        tls.send(&mut wire);
        stream.write_all(&wire)?;
        if !tls.is_handshaking() {
            return Ok(tls);
        }
        let length = stream.read(&mut piece).context("no handshake")?;
        anyhow::ensure!(length > 0, "the server closed a connection within the handshake");
        tls.receive(&piece[..length], &mut plain)?;
    }
}

impl Client<'_> {
    fn connect(&mut self, target: SocketAddr) -> Result<()> {
        let mut stream = std::net::TcpStream::connect(target)
            .with_context(|| format!("cannot connect to {target}"))?;
        stream.set_nodelay(true)?;
        let tls = self.connector.map(|connector| shake_hands(connector, target, &mut stream));
        let tls = tls.transpose()?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let token = Token(self.connections.len());
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, token, both)?;
        let (flights, begun, unsent) = Default::default();
        self.connections.push(Connection { stream, tls, flights, begun, unsent });
        Ok(())
    }

    /// Reads what has come. Returns how many replies came with it.
    fn receive(&mut self, place: usize, mut measured: Option<&mut Measured>) -> Result<u32> {
        let connection = &mut self.connections[place];
        let mut replies = 0;
        loop {
            let length = match connection.stream.read(&mut self.piece) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read"),
            };
            match &mut connection.tls {
                Some(tls) => drop(tls.receive(&self.piece[..length], &mut connection.begun)?),
                None => connection.begun.extend_from_slice(&self.piece[..length]),
            }
            let now_ns = clock_ns();
            let mut used = 0;
            while let Some(reply) = self.protocol.reply_bytes(&connection.begun[used..])? {
                used += reply;
                let sent_ns = connection.flights.pop_front().context("a reply too many")?;
                replies += 1;
                if let Some(measured) = measured.as_deref_mut() {
                    measured.replies += 1;
                    measured.latency.saturating_record(now_ns - sent_ns);
                }
            }
            connection.begun.drain(..used);
            self.answered_ns = now_ns;
            // A short read has emptied the socket, and epoll tells when there is more.
            if length < self.piece.len() {
                break;
            }
        }
        self.replies += u64::from(replies);
        Ok(replies)
    }

    /// Sends so many further requests with one write.
    fn send(&mut self, place: usize, requests: u32) -> Result<()> {
        let connection = &mut self.connections[place];
        let now_ns = clock_ns();
        self.asked.clear();
        let out = if connection.tls.is_some() { &mut self.asked } else { &mut connection.unsent };
        for _ in 0..requests {
            self.protocol.append(self.number, out);
            self.number += 1;
            connection.flights.push_back(now_ns);
        }
        if let Some(tls) = &mut connection.tls {
            if !self.asked.is_empty() {
                tls.write(&self.asked);
            }
            tls.send(&mut connection.unsent);
        }
        if connection.unsent.is_empty() {
            return Ok(());
        }
        match connection.stream.write(&connection.unsent) {
            Ok(length) => drop(connection.unsent.drain(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot write"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::protocol::Http;
    use super::*;
    use crate::reference::Reference;
    use crate::server;

    #[test]
    fn every_request_is_answered_once_at_any_depth() {
        let (tell, told) = std::sync::mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let server = std::thread::spawn(move || {
            let ready = |address| tell.send(address).expect("the test waits");
            server::run("127.0.0.1:0".parse().unwrap(), None, Reference, &stopped, ready)
        });
        let target = told.recv().unwrap();
        let core = chronos::ring::available_cores().unwrap()[0];
        for (connections, pipeline) in [(1, 1), (3, 16)] {
            let (warm_up, duration) = (Duration::ZERO, Duration::from_millis(300));
            let load = Load { connections, pipeline, warm_up, duration, core };
            let http = Http::post(target);
            let outcome = run(&http, (target, std::process::id()), load, None).unwrap();
            assert!(outcome.replies > 0 && outcome.cpu_us > 0.0);
            assert!(outcome.latency.len() <= outcome.replies);
            assert!(outcome.latency.min() > 0);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        // The server looks at `stop` when something happens.
        drop(std::net::TcpStream::connect(target));
        server.join().unwrap().unwrap();
    }
}
