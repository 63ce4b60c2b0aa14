//! Measures node and reference in turn under the same load, and tells the ratio of their CPU time
//! per request.
//!
//! Noise of a shared machine moves both alike. So rounds are interleaved, each with fresh
//! processes, and the order of node and reference changes from round to round.

use std::fmt::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use serde::Serialize;

use chronos::cli::progress::say;

use crate::child::{Child, free_address};
use crate::clock::clock_ns;
use crate::command::{Job, command, job};
use crate::flags::RatioFlags;
use crate::machine::Machine;
use crate::report::{grouped, median};
use crate::server_cpu;
use crate::sink::{Sink, SinkMode};

/// The figures of one run of one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Requests (or pops) per second.
    pub per_second: f64,
    /// CPU time of the server per request (or pop), in microseconds.
    pub cpu_us: f64,
    /// Share of the client's core in use. Near 1, the client was the limit.
    pub client_core_share: f64,
}

/// One run of each server, one after the other.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// The figures of the node.
    pub node: Figures,
    /// The figures of the reference.
    pub reference: Figures,
}

/// All rounds at one pipeline depth.
#[derive(Clone, Debug, Serialize)]
pub struct Shape {
    /// Number of connections.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub pipeline: u32,
    /// The figures, round by round.
    pub rounds: Vec<Round>,
    /// The median of each figure over the rounds.
    pub median: Round,
    /// Median CPU time of the node / median CPU time of the reference.
    pub cpu_ratio: f64,
    /// Lowest and highest ratio of a single round: how far noise moved the ratio.
    pub cpu_ratio_spread: [f64; 2],
}

/// The report on the whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct RatioReport {
    /// `post` or `pops`.
    pub scenario: String,
    /// The machine of the run.
    pub machine: Machine,
    /// The results, pipeline depth by pipeline depth.
    pub shapes: Vec<Shape>,
}

/// Runs all rounds. Error: a server does not start or end, or a run shows a problem.
pub fn run(flags: &RatioFlags) -> Result<RatioReport> {
    let cores = chronos::ring::available_cores().context("which cores are there?")?;
    let other = cores.iter().copied().find(|&core| core != flags.server_core);
    let client_core = flags.core.or(other).unwrap_or(flags.server_core);
    let depths = if flags.scenario == "pops" { vec![1] } else { flags.pipeline.clone() };
    let mut shapes = Vec::new();
    for pipeline in depths {
        let run = Run { flags, client_core, pipeline };
        let mut rounds = Vec::new();
        for number in 0..flags.rounds {
            let round = if number % 2 == 0 {
                let node = run.node()?;
                Round { node, reference: run.reference()? }
            } else {
                let reference = run.reference()?;
                Round { node: run.node()?, reference }
            };
            say(&format!("round {} of {}: {}", number + 1, flags.rounds, round_text(&round)));
            rounds.push(round);
        }
        shapes.push(summarise(flags.connections, pipeline, rounds));
    }
    let scenario = flags.scenario.clone();
    Ok(RatioReport { scenario, machine: Machine::read(), shapes })
}

fn summarise(connections: u32, pipeline: u32, rounds: Vec<Round>) -> Shape {
    let of = |pick: fn(&Round) -> f64| median(&rounds.iter().map(pick).collect::<Vec<f64>>());
    let median = Round {
        node: Figures {
            per_second: of(|round| round.node.per_second),
            cpu_us: of(|round| round.node.cpu_us),
            client_core_share: of(|round| round.node.client_core_share),
        },
        reference: Figures {
            per_second: of(|round| round.reference.per_second),
            cpu_us: of(|round| round.reference.cpu_us),
            client_core_share: of(|round| round.reference.client_core_share),
        },
    };
    let cpu_ratio = median.node.cpu_us / median.reference.cpu_us;
    let ratios = rounds.iter().map(|round| round.node.cpu_us / round.reference.cpu_us);
    let widen = |[low, high]: [f64; 2], ratio: f64| [low.min(ratio), high.max(ratio)];
    let cpu_ratio_spread = ratios.fold([f64::MAX, 0.0], widen);
    Shape { connections, pipeline, rounds, median, cpu_ratio, cpu_ratio_spread }
}

/// The settings of one run.
struct Run<'a> {
    flags: &'a RatioFlags,
    client_core: usize,
    pipeline: u32,
}

impl Run<'_> {
    fn node(&self) -> Result<Figures> {
        let address = free_address()?;
        let binary = match &self.flags.node_binary {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("chronos"),
        };
        let mut command = Command::new(binary);
        let core = self.flags.server_core.to_string();
        let listen = address.to_string();
        command.args(["--listen", &listen, "--cores", &core, "--admin", "off"]);
        command.env("CHRONOS_NODE_PREFAULT_BYTES", self.flags.prefault_bytes.to_string());
        let mut node = Child::start(command)?;
        node.await_ready(address)?;
        let scenario = self.flags.scenario.as_str();
        let figures = self.load(scenario, address, node.pid()).context("measuring the node")?;
        node.stop()?;
        Ok(figures)
    }

    fn reference(&self) -> Result<Figures> {
        if self.flags.scenario == "pops" {
            return self.reference_pops();
        }
        let address = free_address()?;
        let mut reference = self.start_reference(["--listen", &address.to_string()])?;
        reference.await_ready(address)?;
        let figures = self.load("post", address, reference.pid());
        reference.stop()?;
        figures.context("measuring the reference")
    }

    fn start_reference(&self, arguments: [&str; 2]) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("reference").args(arguments).arg("--until-stdin-ends");
        command.args(["--core", &self.flags.server_core.to_string()]);
        command.args(["--connections", &self.flags.connections.to_string()]);
        Child::start(command)
    }

    /// Runs the same scenario for both servers, through the command line of the load generator.
    fn load(&self, scenario: &str, target: SocketAddr, pid: u32) -> Result<Figures> {
        let flags = self.flags;
        let core = self.client_core.to_string();
        let mut line: Vec<String> = ["chronos-loadgen", scenario].map(str::to_owned).to_vec();
        let mut add = |flag: &str, value: String| line.extend([flag.to_owned(), value]);
        add("--target", target.to_string());
        add("--server-pid", pid.to_string());
        add("--core", core.clone());
        add("--connections", flags.connections.to_string());
        if scenario == "pops" {
            add("--sink-core", core);
            add("--timers", flags.timers.to_string());
        } else {
            add("--pipeline", self.pipeline.to_string());
            add("--duration-s", flags.duration_s.as_secs_f64().to_string());
            add("--warm-up-s", flags.warm_up_s.as_secs_f64().to_string());
        }
        let Job::Scenario(scenario, flags) = job(&command().try_get_matches_from(line)?)? else {
            unreachable!("the line names a scenario")
        };
        let report = scenario.run(&flags)?;
        anyhow::ensure!(report.passed, "{}", report.problems.join("; "));
        let server = report.server;
        let pops = report.pops.as_ref().map(|pops| pops.per_second);
        let requests = report.requests.as_ref().map(|requests| requests.per_second);
        let share = report.loadgen.sink_core_share.unwrap_or(report.loadgen.client_core_share);
        Ok(Figures {
            per_second: pops.or(requests).unwrap_or(0.0),
            cpu_us: server.cpu_us_per_pop.or(server.cpu_us_per_request).context("no CPU time")?,
            client_core_share: share,
        })
    }

    /// Measures callbacks from the bare ring to a sink in this process.
    fn reference_pops(&self) -> Result<Figures> {
        let sink = Sink::new(SinkMode::Ok, None);
        let counter = sink.counter();
        let sink = sink.start("127.0.0.1:0".parse()?, Some(self.client_core))?;
        let caller = self.start_reference(["--call-back", &sink.address.to_string()])?;
        std::thread::sleep(self.flags.warm_up_s);
        let sample = || {
            let cpu_ns = server_cpu::cpu_ns(caller.pid()).context("the reference has ended")?;
            anyhow::Ok((clock_ns(), cpu_ns, counter.load(Ordering::Relaxed)))
        };
        let first = sample()?;
        std::thread::sleep(self.flags.duration_s);
        let last = sample()?;
        caller.stop()?;
        let (_, sink_cpu_ns) = sink.stop()?;
        let pops = (last.2 - first.2).max(1) as f64;
        let passed_ns = (last.0 - first.0) as f64;
        let whole_ns = passed_ns + self.flags.warm_up_s.as_nanos() as f64;
        Ok(Figures {
            per_second: pops / (passed_ns / 1e9),
            cpu_us: last.1.saturating_sub(first.1) as f64 / 1e3 / pops,
            client_core_share: sink_cpu_ns as f64 / whole_ns,
        })
    }
}

fn round_text(round: &Round) -> String {
    let one = |figures: &Figures| {
        let per_second = grouped(figures.per_second.round() as u64);
        format!("{per_second:>10}/s {:>7.3} us", figures.cpu_us)
    };
    let ratio = round.node.cpu_us / round.reference.cpu_us;
    format!("node {}   reference {}   {ratio:.3} x", one(&round.node), one(&round.reference))
}

impl RatioReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for shape in &self.shapes {
            let rounds = shape.rounds.len();
            let _ = writeln!(
                text,
                "{}: {} connections x {} in flight, {rounds} rounds",
                self.scenario, shape.connections, shape.pipeline
            );
            for (index, round) in shape.rounds.iter().enumerate() {
                let _ = writeln!(text, "  round {:<3} {}", index + 1, round_text(round));
            }
            let _ = writeln!(text, "  median    {}", round_text(&shape.median));
            let _ = writeln!(
                text,
                "  client core busy: node {:.2}, reference {:.2}",
                shape.median.node.client_core_share, shape.median.reference.client_core_share
            );
            let [low, high] = shape.cpu_ratio_spread;
            let _ = writeln!(
                text,
                "  CPU ratio node / reference: {:.3} (single rounds {low:.3} to {high:.3})\n",
                shape.cpu_ratio
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let figures = |cpu_us| Figures { per_second: 1e6 / cpu_us, cpu_us, client_core_share: 0.5 };
        let round = |node, reference| Round { node: figures(node), reference: figures(reference) };
        let shape = summarise(64, 1, vec![round(4.0, 3.0), round(9.0, 3.2), round(4.4, 4.0)]);
        assert_eq!((shape.median.node.cpu_us, shape.median.reference.cpu_us), (4.4, 3.2));
        assert!((shape.cpu_ratio - 1.375).abs() < 1e-9);
        assert!((shape.cpu_ratio_spread[0] - 1.1).abs() < 1e-9);
        assert!((shape.cpu_ratio_spread[1] - 2.8125).abs() < 1e-9);
        let report = RatioReport {
            scenario: "post".to_owned(),
            machine: Machine::read(),
            shapes: vec![shape],
        };
        assert!(report.text().contains("CPU ratio node / reference: 1.375"));
    }
}
