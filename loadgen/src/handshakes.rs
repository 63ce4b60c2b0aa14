//! A herd of handshakes: connections that stand all send the first message of TLS at once, which
//! was made before. What that does to a node's pops another run tells, at the same time.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chronos::ring::{pin_to_core, raise_open_files_limit};
use chronos::tls::connector::{ClientMaterial, Connector, Trust};
use chronos::tls::session::Session;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;

use crate::clock::clock_ns;
use crate::flags::HandshakeFlags;
use crate::histogram::new_histogram;
use crate::report::grouped;

/// Nanoseconds without news from any connection after which the rest has failed.
const SILENCE_NS: u64 = 10_000_000_000;
const WAIT: Duration = Duration::from_millis(100);

/// What became of one herd.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Herd {
    /// Handshakes that ended well.
    pub done: u64,
    /// Those that did not.
    pub failed: u64,
    /// From the first message to the end of the last handshake, in milliseconds.
    pub passed_ms: f64,
    /// From the first message of a connection to the end of its handshake, in milliseconds: half
    /// took less.
    pub ms_p50: f64,
    /// The longest.
    pub ms_max: f64,
}

/// All herds.
#[derive(Clone, Debug, Serialize)]
pub struct HandshakeReport {
    /// Herd by herd.
    pub herds: Vec<Herd>,
}

impl HandshakeReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for herd in &self.herds {
            let per_second = herd.done as f64 / herd.passed_ms * 1e3;
            let _ = writeln!(
                text,
                "{} handshakes in {:.0} ms, {}/s; each p50 {:.0} ms, max {:.0} ms; {} failed",
                grouped(herd.done),
                herd.passed_ms,
                grouped(per_second as u64),
                herd.ms_p50,
                herd.ms_max,
                herd.failed
            );
        }
        text
    }

    /// Whether all handshakes ended well.
    pub fn passed(&self) -> bool {
        self.herds.iter().all(|herd| herd.failed == 0 && herd.done > 0)
    }
}

/// Runs the herds one after the other.
pub fn run(flags: &HandshakeFlags) -> Result<HandshakeReport> {
    raise_open_files_limit();
    if let Some(core) = flags.core {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
    }
    let given = connector(&flags.ca)?;
    let herds = (0..flags.rounds).map(|_| {
        // No ticket of an earlier herd: all handshakes are full.
        herd(&given.with_own_tickets(), flags.target, flags.count)
    });
    Ok(HandshakeReport { herds: herds.collect::<Result<_>>()? })
}

fn connector(ca: &Path) -> Result<Connector> {
    let text = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
    let material = ClientMaterial { trust: Trust::These(&text), identity: None };
    Connector::new(&material).with_context(|| format!("{}", ca.display()))
}

/// A connection of the herd; it closes when its handshake is over.
struct Member {
    stream: TcpStream,
    tls: Session,
    unsent: Vec<u8>,
    began_ns: u64,
}

impl Member {
    fn connect(connector: &Connector, target: SocketAddr) -> Result<Member> {
        let stream = std::net::TcpStream::connect(target)
            .with_context(|| format!("cannot connect to {target}"))?;
        stream.set_nonblocking(true)?;
        let (mut tls, mut unsent) =
            (Session::dial(connector, &target.ip().to_string())?, Vec::new());
        tls.send(&mut unsent);
        Ok(Member { stream: TcpStream::from_std(stream), tls, unsent, began_ns: 0 })
    }

    /// Goes on as far as the socket lets it. Returns whether the handshake is over.
    fn go_on(&mut self, piece: &mut [u8], plain: &mut Vec<u8>) -> Result<bool> {
        loop {
            self.tls.send(&mut self.unsent);
            while !self.unsent.is_empty() {
                match self.stream.write(&self.unsent) {
                    Ok(length) => drop(self.unsent.drain(..length)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            if !self.tls.is_handshaking() {
                return Ok(true);
            }
            match self.stream.read(piece) {
                Ok(0) => anyhow::bail!("closed within the handshake"),
                Ok(length) => drop(self.tls.receive(&piece[..length], plain)?),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn herd(connector: &Connector, target: SocketAddr, count: u32) -> Result<Herd> {
    let mut poll = Poll::new().context("cannot make an epoll")?;
    let mut members = Vec::with_capacity(count as usize);
    for place in 0..count as usize {
        let mut member = Member::connect(connector, target)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut member.stream, Token(place), both)?;
        members.push(Some(member));
    }
    let (mut piece, mut plain) = (vec![0; 16 << 10], Vec::new());
    let mut times: Histogram<u64> = new_histogram();
    let (mut failed, mut first_reason) = (0, None);
    let mut events = Events::with_capacity(1_024);
    let began_ns = clock_ns();
    let mut last_ns = began_ns;
    let mut step = |slot: &mut Option<Member>| {
        let Some(member) = slot else { return };
        if member.began_ns == 0 {
            member.began_ns = clock_ns();
        }
        plain.clear();
        match member.go_on(&mut piece, &mut plain) {
            Ok(false) => return,
            Ok(true) => times.saturating_record(clock_ns() - member.began_ns),
            Err(error) => {
                failed += 1;
                first_reason.get_or_insert(error);
            }
        }
        *slot = None;
    };
    members.iter_mut().for_each(&mut step);
    while members.iter().any(Option::is_some) && clock_ns() < last_ns + SILENCE_NS {
        match poll.poll(&mut events, Some(WAIT)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled.context("cannot wait for the sockets")?,
        }
        for event in &events {
            step(&mut members[event.token().0]);
            last_ns = clock_ns();
        }
    }
    if let Some(reason) = first_reason {
        eprintln!("{failed} handshakes failed, the first: {reason:#}");
    }
    ensure!(!times.is_empty(), "no handshake has ended well");
    let ms = |ns: u64| ns as f64 / 1e6;
    Ok(Herd {
        done: times.len(),
        failed: u64::from(count) - times.len(),
        passed_ms: ms(last_ns - began_ns),
        ms_p50: ms(times.value_at_quantile(0.5)),
        ms_max: ms(times.max()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_a_line_for_each_herd_and_failures_fail_it() {
        let herd = Herd { done: 10_000, failed: 0, passed_ms: 2_500.0, ms_p50: 1.0, ms_max: 2.0 };
        let mut report = HandshakeReport { herds: vec![herd; 2] };
        assert!(report.passed());
        let text = report.text();
        assert_eq!(text.matches("10 000 handshakes in 2500 ms, 4 000/s").count(), 2, "{text}");
        report.herds[1].failed = 1;
        assert!(!report.passed());
    }

    #[test]
    fn a_server_that_says_no_tls_fails_them() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        let trust = Trust::System;
        // Without authorities of the system there is nothing to try with.
        let Ok(connector) = Connector::new(&ClientMaterial { trust, identity: None }) else {
            return;
        };
        let error = herd(&connector, target, 3).unwrap_err().to_string();
        assert_eq!(error, "no handshake has ended well");
    }
}
