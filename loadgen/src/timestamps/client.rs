//! The load: a closed loop on every connection, on one ring. Every value is compared with the
//! highest value that was known when the value was asked for.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, bail};
use chronos::base::time::MonoNs;
use chronos::ring::{Completion, Ring, RingConfig, SocketId, Wait, pin_to_core, thread_usage};
use chronos::wire::thrift::{Outcome, parse_reply, write_get_timestamps};
use hdrhistogram::Histogram;

use super::figures::Figures;
use crate::clock::clock_ns;
use crate::flags::TimestampFlags;
use crate::histogram::new_histogram;
use crate::server_cpu;

/// The sequence number of every request. Replies come in order, so requests need no numbers of
/// their own, and the bare ring, which reads no request, can send the number back.
pub const SEQID: i32 = 1;
/// Nanoseconds without any reply after which a run has failed.
const SILENCE_NS: u64 = 5_000_000_000;
/// Longest sleep of a turn, in nanoseconds.
const TURN_NS: u64 = 50_000_000;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    sent_ns: u64,
    /// The highest timestamp that this client knew when it sent the request.
    floor: u64,
}

#[derive(Debug, Default)]
struct Connection {
    socket: Option<SocketId>,
    /// The beginning of a reply that has not arrived whole.
    begun: Vec<u8>,
    flights: VecDeque<Flight>,
    to_send: u32,
    spare: Vec<u8>,
    is_sending: bool,
    is_touched: bool,
}

/// The counts of the measured time.
struct Counts {
    began_ns: u64,
    server_cpu_ns: u64,
    client_cpu_ns: u64,
    calls: u64,
    latency: Histogram<u64>,
}

impl Counts {
    fn begin(pid: Option<u32>) -> Result<Counts> {
        Ok(Counts {
            began_ns: clock_ns(),
            server_cpu_ns: server_cpu_of(pid)?,
            client_cpu_ns: thread_usage().cpu_ns,
            calls: 0,
            latency: new_histogram(),
        })
    }

    fn figures(&self, flags: &TimestampFlags, pid: Option<u32>) -> Result<Figures> {
        if self.calls == 0 {
            bail!("no call was answered in the measured time");
        }
        let passed_ns = (clock_ns() - self.began_ns) as f64;
        let (calls, percentile) =
            (self.calls as f64, |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3);
        let server_ns = server_cpu_of(pid)?.saturating_sub(self.server_cpu_ns) as f64;
        Ok(Figures {
            calls_per_second: calls / passed_ns * 1e9,
            timestamps_per_second: calls * f64::from(flags.range) / passed_ns * 1e9,
            cpu_us: pid.map(|_| server_ns / 1e3 / calls),
            latency_us_p50: percentile(0.5),
            latency_us_p99: percentile(0.99),
            latency_us_p999: percentile(0.999),
            client_core_share: (thread_usage().cpu_ns - self.client_cpu_ns) as f64 / passed_ns,
        })
    }
}

fn server_cpu_of(pid: Option<u32>) -> Result<u64> {
    let Some(pid) = pid else { return Ok(0) };
    server_cpu::cpu_ns(pid).with_context(|| format!("there is no process {pid}"))
}

struct Client {
    ring: Ring,
    range: u32,
    connections: Vec<Connection>,
    touched: Vec<usize>,
    highest: u64,
    answered_ns: u64,
}

/// Puts the load on a server and measures it. The load runs on a thread of its own, so that servers
/// started later do not inherit the pinning.
pub fn run(
    flags: &TimestampFlags,
    target: SocketAddr,
    pid: Option<u32>,
    core: Option<usize>,
) -> Result<Figures> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| load(flags, target, pid, core));
        thread.join().unwrap_or_else(|_| Err(anyhow!("the client's thread panicked")))
    })
}

fn load(
    flags: &TimestampFlags,
    target: SocketAddr,
    pid: Option<u32>,
    core: Option<usize>,
) -> Result<Figures> {
    if let Some(core) = core {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
    }
    let mut ring = Ring::new(&RingConfig::default()).context("cannot make the client's ring")?;
    for owner in 0..u64::from(flags.connections) {
        let begun = ring.connect(target, owner);
        begun.map_err(|errno| anyhow!("cannot make a socket: {errno}"))?;
    }
    let mut client = Client {
        ring,
        range: flags.range,
        connections: (0..flags.connections).map(|_| Connection::default()).collect(),
        touched: Vec::new(),
        highest: 0,
        answered_ns: clock_ns(),
    };
    let warm_until = clock_ns() + flags.warm_up_s.as_nanos() as u64;
    let until = warm_until + flags.duration_s.as_nanos() as u64;
    let mut counts: Option<Counts> = None;
    let mut completions = Vec::new();
    loop {
        let now_ns = clock_ns();
        if now_ns >= until {
            return counts
                .context("the measured time is over before it began")?
                .figures(flags, pid);
        }
        if counts.is_none() && now_ns >= warm_until {
            counts = Some(Counts::begin(pid)?);
        }
        if now_ns > client.answered_ns + SILENCE_NS {
            bail!("{target} has not answered for 5 s");
        }
        let wake = chronos::ring::now().mono.0 + TURN_NS;
        client.ring.turn(Wait::Until(MonoNs(wake)), &mut completions)?;
        client.turn(clock_ns(), &mut completions, flags.pipeline, counts.as_mut())?;
    }
}

impl Client {
    fn turn(
        &mut self,
        now_ns: u64,
        completions: &mut Vec<Completion>,
        pipeline: u32,
        mut counts: Option<&mut Counts>,
    ) -> Result<()> {
        for completion in completions.drain(..) {
            let place = match completion {
                Completion::Connected { owner, socket, result } => {
                    result.map_err(|errno| anyhow!("cannot connect: {errno}"))?;
                    self.ring.receive(socket);
                    let connection = &mut self.connections[owner as usize];
                    (connection.socket, connection.to_send) = (Some(socket), pipeline);
                    owner as usize
                }
                Completion::Received { owner, bytes, .. } => {
                    let connection = &mut self.connections[owner as usize];
                    let input = self.ring.bytes_mut(&bytes);
                    let range = u64::from(self.range);
                    let highest = &mut self.highest;
                    connection.replies(input, range, highest, |flight| {
                        if let Some(counts) = counts.as_deref_mut() {
                            counts.calls += 1;
                            counts.latency.saturating_record(now_ns - flight.sent_ns);
                        }
                    })?;
                    self.answered_ns = now_ns;
                    owner as usize
                }
                Completion::Sent { owner, buffer, .. } => {
                    let connection = &mut self.connections[owner as usize];
                    (connection.spare, connection.is_sending) = (buffer, false);
                    owner as usize
                }
                Completion::Ended { .. } => bail!("the server closed a connection"),
                _ => continue,
            };
            if !std::mem::replace(&mut self.connections[place].is_touched, true) {
                self.touched.push(place);
            }
        }
        self.send(now_ns);
        Ok(())
    }

    fn send(&mut self, now_ns: u64) {
        for place in self.touched.drain(..) {
            let connection = &mut self.connections[place];
            connection.is_touched = false;
            let is_ready = !connection.is_sending && connection.to_send > 0;
            let Some(socket) = connection.socket.filter(|_| is_ready) else { continue };
            let mut out = std::mem::take(&mut connection.spare);
            for _ in 0..std::mem::take(&mut connection.to_send) {
                write_get_timestamps(&mut out, SEQID, self.range as i32);
                let flight = Flight { sent_ns: now_ns, floor: self.highest };
                connection.flights.push_back(flight);
            }
            connection.is_sending = true;
            self.ring.send(socket, out);
        }
    }
}

impl Connection {
    /// Reads replies and compares each value with the floor of its request. Error: a value is not
    /// above its floor, or a reply is not a value.
    fn replies(
        &mut self,
        input: &[u8],
        range: u64,
        highest: &mut u64,
        mut answered: impl FnMut(Flight),
    ) -> Result<()> {
        let whole;
        let mut rest = input;
        if !self.begun.is_empty() {
            self.begun.extend_from_slice(input);
            whole = std::mem::take(&mut self.begun);
            rest = &whole;
        }
        while let Some((reply, used)) = parse_reply(rest)? {
            let flight = self.flights.pop_front().context("a reply to no request")?;
            let value = match reply.outcome {
                Outcome::Value(value) if reply.seqid == SEQID => value as u64,
                Outcome::Exception { message, .. } => {
                    bail!("the server refuses: {}", String::from_utf8_lossy(message))
                }
                _ => bail!("a reply without a value, or to another request: {reply:?}"),
            };
            if value <= flight.floor {
                bail!("{value} after {} had been handed out", flight.floor);
            }
            *highest = (*highest).max(value + range - 1);
            self.to_send += 1;
            answered(flight);
            rest = &rest[used..];
        }
        self.begun = rest.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronos::wire::thrift::{Form, GET_TIMESTAMPS, Method, Request, write_value};

    fn reply(value: i64) -> Vec<u8> {
        let method = Method::GetTimestamp;
        let request = Request { method, name: GET_TIMESTAMPS, seqid: SEQID, is_oneway: false };
        let mut out = Vec::new();
        write_value(&mut out, Form::Old, &request, value);
        out
    }

    #[test]
    fn a_value_that_is_not_above_what_was_known_fails_the_run() {
        let mut connection = Connection::default();
        let flights = [Flight { sent_ns: 0, floor: 0 }, Flight { sent_ns: 0, floor: 14 }];
        connection.flights.extend(flights);
        let mut highest = 0;
        let first = reply(10);
        // The reply arrives in two pieces.
        connection.replies(&first[..9], 5, &mut highest, |_| panic!("not yet")).unwrap();
        connection.replies(&first[9..], 5, &mut highest, |_| ()).unwrap();
        assert_eq!((highest, connection.to_send), (14, 1));
        let error = connection.replies(&reply(14), 5, &mut highest, |_| ()).unwrap_err();
        assert!(error.to_string().contains("14 after 14"), "{error}");
        assert!(connection.replies(&reply(20), 5, &mut highest, |_| ()).is_err(), "nobody asked");
    }
}
