//! The client: one pinned thread, one ring, N connections, P requests in flight on each.
//!
//! - In an open loop a schedule says when requests are due. While every pipeline is full, due
//!   requests wait in the schedule and take no memory. Latency counts from the intended time.
//! - In a closed loop every answer makes room for the next request at once.
//!
//! A run always ends: warm-up, measured time and drain are bounded, and so is the memory of the
//! client.

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chronos::base::time::MonoNs;
use chronos::ring::{Completion, Errno, Ring, RingConfig, Wait, pin_to_core, thread_usage};

use crate::arrival::{Rate, Schedule};
use crate::clock::clock_ns;
use crate::frames::FrameError;
use crate::recorder::{Failure, Flight, Operation, Recorder};
use crate::server_cpu;
use crate::workload::{Next, Workload};
use connection::Connection;

/// Nanoseconds between two looks at all connections for timeouts, reconnects and idle pipelines.
const SWEEP_NS: u64 = 10_000_000;
/// How long the first connections may take, in nanoseconds.
const CONNECT_NS_MAX: u64 = 3_000_000_000;
/// Most requests of the open loop that the client puts on connections in one turn. The limit bounds
/// the turn after a stall.
const OFFERS_PER_TURN_MAX: usize = 16_384;

/// What the client does, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address of the server.
    pub target: SocketAddr,
    /// Number of connections, at least 1.
    pub connections: usize,
    /// Requests in flight on each connection, at least 1.
    pub pipeline: usize,
    /// Open or closed loop, and the rate of an open loop.
    pub rate: Rate,
    /// Open loop: gap between bursts in which requests are gathered; 0 sends each request at its
    /// own time.
    pub burst: Duration,
    /// Open loop: whether gaps are exponential instead of equal.
    pub poisson: bool,
    /// Seed of the exponential gaps.
    pub seed: u64,
    /// How long the load runs before the measured time.
    pub warm_up: Duration,
    /// Longest measured time. A workload that has finished ends the measured time earlier.
    pub duration: Duration,
    /// How long to wait for open answers after the measured time.
    pub drain: Duration,
    /// How long an answer may take. A longer answer counts as a timeout, and its connection is
    /// closed.
    pub timeout: Duration,
    /// The core to run on; `None`: any core.
    pub core: Option<usize>,
    /// The server process whose CPU time is read at both ends of the measured time.
    pub server_pid: Option<u32>,
    /// Requests intended from this monotonic time on (in nanoseconds) are also recorded apart.
    pub split_ns: Option<u64>,
    /// Number of good answers so far, for a progress bar.
    pub progress: Arc<AtomicU64>,
}

/// The results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Latencies, throughput and failures.
    pub recorder: Recorder,
    /// Length of the measured time in seconds.
    pub seconds: f64,
    /// CPU time of the server in the measured time, in nanoseconds; `None`: not known.
    pub server_cpu_ns: Option<u64>,
    /// CPU time of the client's thread in the measured time, in nanoseconds.
    pub own_cpu_ns: u64,
    /// How many broken connections were made again.
    pub reconnects: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Phase {
    Connecting,
    WarmUp,
    Measured,
    Draining,
    Done,
}

/// A client in one run of one workload.
pub struct Client<W> {
    plan: Plan,
    workload: W,
    ring: Ring,
    connections: Vec<Connection>,
    /// Connections to look at before the end of this turn: connections that answered, opened, sent,
    /// or were offered a request.
    touched: Vec<u32>,
    /// How many more requests fit into the pipelines of all open connections.
    free: usize,
    cursor: usize,
    schedule: Option<Schedule>,
    recorder: Recorder,
    phase: Phase,
    phase_ends_ns: u64,
    next_sweep_ns: u64,
    finished: bool,
    reconnects: u64,
    server_cpu_ns: Option<u64>,
    own_cpu_ns: u64,
}

impl<W: Workload> Client<W> {
    /// Runs `workload` on the calling thread until the workload or the plan's time ends. Returns
    /// the workload with the results.
    pub fn run(plan: Plan, workload: W) -> Result<(W, Outcome)> {
        if let Some(core) = plan.core {
            pin_to_core(core).with_context(|| format!("cannot run the client on core {core}"))?;
        }
        chronos::ring::set_timer_slack_ns(1).context("cannot set the timer slack")?;
        let recorder = Recorder::new(plan.rate != Rate::Max, plan.split_ns);
        let mut client = Client {
            ring: Ring::new(&RingConfig::default()).context("cannot make the client's ring")?,
            connections: (0..plan.connections).map(|_| Connection::default()).collect(),
            touched: Vec::new(),
            free: 0,
            cursor: 0,
            schedule: None,
            recorder,
            phase: Phase::Connecting,
            phase_ends_ns: 0,
            next_sweep_ns: 0,
            finished: false,
            reconnects: 0,
            server_cpu_ns: None,
            own_cpu_ns: 0,
            plan,
            workload,
        };
        client.drive()?;
        client.conclude()
    }

    fn drive(&mut self) -> Result<()> {
        let mut completions = Vec::new();
        let start_ns = clock_ns();
        self.phase_ends_ns = start_ns + CONNECT_NS_MAX;
        for index in 0..self.connections.len() {
            self.connect(index, start_ns);
        }
        while self.phase != Phase::Done {
            self.ring.turn(self.wait(), &mut completions)?;
            let now_ns = clock_ns();
            for completion in completions.drain(..) {
                self.completed(completion, now_ns);
            }
            self.change_phase(now_ns)?;
            if now_ns >= self.next_sweep_ns {
                self.next_sweep_ns = now_ns + SWEEP_NS;
                self.sweep(now_ns);
                self.plan.progress.store(self.recorder.answered_in_all, Ordering::Relaxed);
            }
            if matches!(self.phase, Phase::WarmUp | Phase::Measured) && !self.finished {
                self.offer(now_ns);
            }
            self.flush();
        }
        Ok(())
    }

    /// How long the next turn may sleep: until something happens, the next request is due, or it is
    /// time to sweep.
    fn wait(&self) -> Wait {
        let mut until_ns = self.next_sweep_ns.min(self.phase_ends_ns);
        if let Some(schedule) = &self.schedule
            && self.free > 0
            && !self.finished
        {
            until_ns = until_ns.min(schedule.next_ns());
        }
        Wait::Until(MonoNs(until_ns))
    }

    fn completed(&mut self, completion: Completion, now_ns: u64) {
        match completion {
            Completion::Connected { socket, owner, result } => {
                let index = owner as usize;
                if self.connections[index].socket != Some(socket) {
                    return;
                }
                match result {
                    Ok(()) => {
                        self.ring.receive(socket);
                        self.connections[index].opened();
                        self.free += self.plan.pipeline;
                        self.touch(index);
                    }
                    Err(errno) => {
                        self.connections[index].socket = None;
                        self.connections[index].retry_later(now_ns);
                        self.recorder.failed_without_request(connect_failure(errno));
                    }
                }
            }
            Completion::Received { socket, owner, bytes } => {
                let index = owner as usize;
                let connection = &mut self.connections[index];
                if connection.socket != Some(socket) {
                    return;
                }
                let before = connection.in_flight.len();
                let (recorder, workload) = (&mut self.recorder, &mut self.workload);
                let data = self.ring.bytes_mut(&bytes);
                let end = connection.read_answers(data, now_ns, recorder, workload);
                self.free += before - connection.in_flight.len();
                match end {
                    Ok(()) => self.touch(index),
                    Err(failure) => self.disconnect(index, failure, now_ns),
                }
            }
            Completion::Ended { owner, error, socket } => {
                let index = owner as usize;
                if self.connections[index].socket == Some(socket) {
                    let broke = if error.is_some() { Failure::Reset } else { Failure::Closed };
                    self.disconnect(index, broke, now_ns);
                }
            }
            Completion::Sent { socket, owner, buffer, result } => {
                let index = owner as usize;
                if self.connections[index].socket != Some(socket) {
                    return;
                }
                match result {
                    Ok(()) => {
                        self.connections[index].sent(buffer);
                        self.touch(index);
                    }
                    Err(_) => self.disconnect(index, Failure::Reset, now_ns),
                }
            }
            Completion::Accepted { socket, .. } => self.ring.close(socket),
            Completion::AcceptFailed(_) | Completion::Written { .. } | Completion::Woken => {}
        }
    }

    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].touched, true) {
            self.touched.push(index as u32);
        }
    }

    fn connect(&mut self, index: usize, now_ns: u64) {
        match self.ring.connect(self.plan.target, index as u64) {
            Ok(socket) => self.connections[index].connecting(socket),
            Err(errno) => {
                self.connections[index].retry_later(now_ns);
                self.recorder.failed_without_request(connect_failure(errno));
            }
        }
    }

    /// Closes a connection. Its requests in flight have failed. A close without requests in flight
    /// is no failure.
    fn disconnect(&mut self, index: usize, failure: Failure, now_ns: u64) {
        let connection = &mut self.connections[index];
        let Some(socket) = connection.socket.take() else { return };
        self.ring.close(socket);
        if connection.open {
            self.free -= self.plan.pipeline - connection.in_flight.len();
        }
        while let Some(flight) = connection.in_flight.pop_front() {
            self.recorder.failed(failure, &flight, now_ns);
            self.workload.failed(flight.operation, flight.tag);
        }
        connection.retry_later(now_ns);
    }

    fn sweep(&mut self, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let oldest_ns = connection.in_flight.front().map(|flight| flight.sent_ns);
            if oldest_ns.is_some_and(|sent_ns| now_ns.saturating_sub(sent_ns) > timeout_ns) {
                self.disconnect(index, Failure::Timeout, now_ns);
            } else if connection.wants_to_connect(now_ns) && self.phase < Phase::Draining {
                self.reconnects += u64::from(self.phase > Phase::Connecting);
                self.connect(index, now_ns);
            } else if connection.open {
                self.touch(index);
            }
        }
    }

    fn change_phase(&mut self, now_ns: u64) -> Result<()> {
        let in_flight = self.connections.iter().any(|each| !each.in_flight.is_empty());
        match self.phase {
            Phase::Connecting => {
                let all_open = self.connections.iter().all(|connection| connection.open);
                let time_over = now_ns >= self.phase_ends_ns;
                if time_over && !self.connections.iter().any(|connection| connection.open) {
                    bail!("no connection to {}: does the server listen there?", self.plan.target);
                }
                if all_open || time_over {
                    self.begin(now_ns);
                    // Without a warm-up the measured time begins before the first request.
                    return self.change_phase(now_ns);
                }
            }
            Phase::WarmUp if now_ns >= self.phase_ends_ns => {
                self.phase = Phase::Measured;
                self.phase_ends_ns = self.recorder.to_ns;
                self.server_cpu_ns = self.plan.server_pid.and_then(server_cpu::cpu_ns);
                self.own_cpu_ns = thread_usage().cpu_ns;
                self.workload.measuring(self.recorder.from_ns);
            }
            Phase::Measured if self.is_over(now_ns) || (self.finished && !in_flight) => {
                self.phase = Phase::Draining;
                self.recorder.to_ns = self.recorder.to_ns.min(now_ns + 1);
                self.phase_ends_ns = now_ns + self.plan.drain.as_nanos() as u64;
                let end_ns = self.plan.server_pid.and_then(server_cpu::cpu_ns);
                let spent =
                    end_ns.zip(self.server_cpu_ns).map(|(end, start)| end.saturating_sub(start));
                self.server_cpu_ns = spent;
                self.own_cpu_ns = thread_usage().cpu_ns - self.own_cpu_ns;
            }
            Phase::Draining if !in_flight || now_ns >= self.phase_ends_ns => {
                self.phase = Phase::Done;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the measured time is over. If this thread noticed the end late, it first sends the
    /// requests that were due before the end and fit into a pipeline, because the server is not to
    /// blame for the delay.
    fn is_over(&self, now_ns: u64) -> bool {
        let due = self.schedule.as_ref().is_some_and(|each| each.next_ns() < self.recorder.to_ns);
        let late = due && self.free > 0 && !self.finished;
        let patience_ns = if late { self.plan.drain.as_nanos() as u64 } else { 0 };
        now_ns >= self.phase_ends_ns + patience_ns
    }

    /// Begins the warm-up, and fixes the times of everything that follows.
    fn begin(&mut self, now_ns: u64) {
        self.phase = Phase::WarmUp;
        self.recorder.from_ns = now_ns + self.plan.warm_up.as_nanos() as u64;
        self.recorder.to_ns = self.recorder.from_ns + self.plan.duration.as_nanos() as u64;
        self.phase_ends_ns = self.recorder.from_ns;
        if let Rate::PerSecond(rate) = self.plan.rate {
            let burst_ns = self.plan.burst.as_nanos() as u64;
            let seed = self.plan.poisson.then_some(self.plan.seed);
            self.schedule = Some(Schedule::new(now_ns, rate, seed).in_bursts(burst_ns));
        }
    }

    fn offer(&mut self, now_ns: u64) {
        match self.schedule.take() {
            Some(mut schedule) => {
                self.offer_due(&mut schedule, now_ns);
                self.schedule = Some(schedule);
            }
            None => self.fill_pipelines(now_ns),
        }
    }

    /// Closed loop: fills the pipeline of every touched connection.
    fn fill_pipelines(&mut self, now_ns: u64) {
        for at in 0..self.touched.len() {
            let connection = &mut self.connections[self.touched[at] as usize];
            while connection.open && connection.in_flight.len() < self.plan.pipeline {
                match self.workload.next(now_ns, &mut connection.out) {
                    Next::Sent(operation, tag) => {
                        let flight =
                            Flight { intended_ns: now_ns, sent_ns: now_ns, operation, tag };
                        connection.in_flight.push_back(flight);
                        self.free -= 1;
                    }
                    Next::Later => return,
                    Next::Finished => {
                        self.finished = true;
                        return;
                    }
                }
            }
        }
    }

    /// Open loop: gives all due requests to the connections in turn, as long as a connection has
    /// room.
    fn offer_due(&mut self, schedule: &mut Schedule, now_ns: u64) {
        let end_ns = now_ns.min(self.recorder.to_ns - 1);
        // Without bursts, requests go round the connections one by one. A burst goes to one
        // connection as long as it has room.
        self.cursor =
            (self.cursor + usize::from(!self.plan.burst.is_zero())) % self.connections.len();
        for _ in 0..OFFERS_PER_TURN_MAX {
            let intended_ns = schedule.next_ns();
            if intended_ns > end_ns || self.free == 0 {
                return;
            }
            let index = (self.cursor..self.cursor + self.connections.len())
                .map(|place| place % self.connections.len())
                .find(|&place| self.connections[place].has_room(self.plan.pipeline))
                .expect("`free` counts the room in open connections");
            self.cursor = index + usize::from(self.plan.burst.is_zero());
            let connection = &mut self.connections[index];
            match self.workload.next(now_ns, &mut connection.out) {
                Next::Sent(operation, tag) => {
                    let flight = Flight { intended_ns, sent_ns: now_ns, operation, tag };
                    connection.in_flight.push_back(flight);
                    self.free -= 1;
                    schedule.advance();
                    self.touch(index);
                }
                Next::Later => return,
                Next::Finished => {
                    self.finished = true;
                    return;
                }
            }
        }
    }

    /// Begins one send for each touched connection that has no send in flight.
    fn flush(&mut self) {
        for index in self.touched.drain(..) {
            let connection = &mut self.connections[index as usize];
            connection.touched = false;
            if let Some((socket, buffer)) = connection.take_output() {
                self.ring.send(socket, buffer);
            }
        }
    }

    /// Counts the requests that were never answered or never sent, and makes the results.
    fn conclude(mut self) -> Result<(W, Outcome)> {
        let now_ns = clock_ns();
        for index in 0..self.connections.len() {
            self.disconnect(index, Failure::Timeout, now_ns);
        }
        while let Some(schedule) = &mut self.schedule
            && !self.finished
            && schedule.next_ns() < self.recorder.to_ns
        {
            let intended_ns = schedule.next_ns();
            let operation = Operation::Create;
            let flight = Flight { intended_ns, sent_ns: now_ns, operation, tag: 0 };
            self.recorder.failed(Failure::Unsent, &flight, now_ns);
            schedule.advance();
        }
        let measured_ns = self.recorder.to_ns.saturating_sub(self.recorder.from_ns);
        let outcome = Outcome {
            recorder: self.recorder,
            seconds: measured_ns as f64 / 1e9,
            server_cpu_ns: self.server_cpu_ns,
            own_cpu_ns: self.own_cpu_ns,
            reconnects: self.reconnects,
        };
        Ok((self.workload, outcome))
    }
}

fn connect_failure(errno: Errno) -> Failure {
    // The numbers are ECONNREFUSED and ETIMEDOUT of Linux. Every other error is a break before the
    // first byte.
    match errno.0 {
        111 => Failure::Refused,
        110 => Failure::Timeout,
        _ => Failure::Reset,
    }
}

impl From<FrameError> for Failure {
    fn from(_: FrameError) -> Failure {
        Failure::Malformed
    }
}
