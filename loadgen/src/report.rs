//! The outcome of a run as numbers: one structure that text, JSON and HTML are made from.

use std::collections::BTreeMap;
use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::Outcome;
use crate::ledger::{Ledger, Tally};
use crate::machine::{Machine, utc_text};
use crate::recorder::Operation;

/// Percentiles of a distribution, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p99_9: f64,
    /// All.
    pub max: f64,
}

impl Percentiles {
    /// Of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Percentiles {
        if histogram.is_empty() {
            return Percentiles::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// The requests of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Requests {
    /// Good answers in the measured time.
    pub answered: u64,
    /// Measured seconds.
    pub seconds: f64,
    /// Good answers per second.
    pub per_second: f64,
    /// From the intended send time to the answer.
    pub latency_us: Percentiles,
    /// The same by operation.
    pub latency_us_by_operation: BTreeMap<&'static str, Percentiles>,
    /// The same after the event of the scenario (herd due, host hung).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us_during: Option<Percentiles>,
    /// What went wrong, by kind, in the whole run.
    pub failures: BTreeMap<String, u64>,
    /// Connections made again.
    pub reconnects: u64,
}

/// The pops of the run, as the sink saw them.
#[derive(Clone, Debug, Serialize)]
pub struct Pops {
    /// Pops of acknowledged timers.
    pub owed: u64,
    /// Distinct pops that arrived.
    pub arrived: u64,
    /// Distinct pops per second, first to last.
    pub per_second: f64,
    /// Arrived before they were due.
    pub early: u64,
    /// By how much at most.
    pub early_us_max: f64,
    /// Owed and never seen.
    pub lost: u64,
    /// Seen again.
    pub doubled: u64,
    /// Seen after a later pop of the same timer.
    pub misordered: u64,
    /// Callbacks of no timer of this run.
    pub stray: u64,
    /// From the due time (counted from before the request was sent) to the arrival.
    pub lateness_us: Percentiles,
    /// The same for pops due after the event of the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_us_during: Option<Percentiles>,
}

/// What the run cost the server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Server {
    /// User and system time per good answer, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request: Option<f64>,
    /// User and system time per pop, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_pop: Option<f64>,
    /// Cores in use on average in the measured time (1 = one core, fully).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_busy: Option<f64>,
    /// Resident memory before, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_mib_before: Option<f64>,
    /// Resident memory after, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_mib_after: Option<f64>,
    /// Growth of resident memory per timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_timer: Option<f64>,
}

/// How busy the load generator was: near 1, it was itself the limit.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Own {
    /// Share of a core that the client's thread took in the measured time.
    pub client_core_share: f64,
    /// Share of a core that the sink's thread took over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_core_share: Option<f64>,
}

/// Distributions and timelines, for the page.
#[derive(Clone, Debug, Default)]
pub struct Drawings {
    /// Latency by name of the phase, in nanoseconds.
    pub latency: Vec<(String, Histogram<u64>)>,
    /// Lateness by name of the phase, in nanoseconds.
    pub lateness: Vec<(String, Histogram<u64>)>,
    /// Good answers per tenth of a second.
    pub answers: Vec<u32>,
    /// Pops per tenth of a second.
    pub pops: Vec<u32>,
}

/// Everything about a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its scenario.
    pub scenario: String,
    /// Nothing was wrong.
    pub passed: bool,
    /// What was wrong.
    pub problems: Vec<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// The command, as given.
    pub command_line: String,
    /// When the report was made.
    pub finished_at: String,
    /// Where.
    pub machine: Machine,
    /// Requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Pops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pops: Option<Pops>,
    /// The server's cost.
    pub server: Server,
    /// The load generator's own cost.
    pub loadgen: Own,
    /// For the page.
    #[serde(skip)]
    pub drawings: Drawings,
}

impl Report {
    /// An empty report of this scenario.
    pub fn new(scenario: &str) -> Report {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Report {
            scenario: scenario.to_owned(),
            passed: true,
            problems: Vec::new(),
            notes: Vec::new(),
            command_line: format!("chronos-loadgen {}", arguments.join(" ")),
            finished_at: utc_text(chronos::ring::now().wall.0),
            machine: Machine::read(),
            requests: None,
            pops: None,
            server: Server::default(),
            loadgen: Own::default(),
            drawings: Drawings::default(),
        }
    }

    /// Something is wrong: the run has failed.
    pub fn problem(&mut self, text: String) {
        self.passed = false;
        self.problems.push(text);
    }

    /// Takes over the requests. `during` names the time after the split, if there was one.
    pub fn add_requests(&mut self, outcome: Outcome, during: Option<&str>, allow_errors: bool) {
        let recorder = outcome.recorder;
        let seconds = outcome.seconds.max(1e-9);
        let answered = recorder.answered.max(1) as f64;
        let spent_ns = outcome.server_cpu_ns.map(|ns| ns as f64);
        self.server.cpu_us_per_request = spent_ns.map(|ns| ns / 1e3 / answered);
        self.server.cores_busy = spent_ns.map(|ns| ns / 1e9 / seconds);
        self.loadgen.client_core_share = outcome.own_cpu_ns as f64 / 1e9 / seconds;
        let failures = recorder.failures.iter().map(|(failure, count)| (failure.name(), *count));
        let by_operation = Operation::ALL.iter().zip(&recorder.by_operation);
        let requests = Requests {
            answered: recorder.answered,
            seconds: outcome.seconds,
            per_second: recorder.answered as f64 / seconds,
            latency_us: Percentiles::of(&recorder.latency),
            latency_us_by_operation: by_operation
                .filter(|(_, histogram)| !histogram.is_empty())
                .map(|(operation, histogram)| (operation.name(), Percentiles::of(histogram)))
                .collect(),
            latency_us_during: during.map(|_| Percentiles::of(&recorder.after_split)),
            failures: failures.collect(),
            reconnects: outcome.reconnects,
        };
        if requests.answered == 0 {
            self.problem("no request was answered with 200".to_owned());
        }
        if !allow_errors {
            for (kind, count) in requests.failures.clone() {
                self.problem(format!("{count} requests failed: {kind}"));
            }
        }
        self.requests = Some(requests);
        self.drawings.answers = recorder.timeline;
        self.drawings.latency = match during {
            Some(name) => {
                vec![("all".to_owned(), recorder.latency), (name.to_owned(), recorder.after_split)]
            }
            None => vec![("all".to_owned(), recorder.latency)],
        };
    }

    /// Takes over the pops. `during` names the time after the split, if there was one.
    pub fn add_pops(&mut self, ledger: &Ledger, tally: Tally, during: Option<&str>) {
        let span_ns = ledger.arrivals_ns().map_or(0, |(first, last)| last.saturating_sub(first));
        let pops = Pops {
            owed: ledger.owed(),
            arrived: tally.distinct,
            per_second: tally.distinct as f64 / (span_ns.max(1_000_000) as f64 / 1e9),
            early: tally.early,
            early_us_max: tally.early_ns_max as f64 / 1e3,
            lost: tally.lost(ledger),
            doubled: tally.doubled,
            misordered: tally.misordered,
            stray: tally.stray,
            lateness_us: Percentiles::of(&tally.before),
            lateness_us_during: during.map(|_| Percentiles::of(&tally.after)),
        };
        let wrong = [("early", pops.early), ("lost", pops.lost), ("doubled", pops.doubled)];
        for (word, count) in wrong.into_iter().filter(|(_, count)| *count > 0) {
            self.problem(format!("{count} pops {word}"));
        }
        if pops.arrived == 0 {
            self.problem("no pop arrived".to_owned());
        }
        self.pops = Some(pops);
        self.drawings.pops = tally.timeline;
        self.drawings.lateness = match during {
            Some(name) => {
                vec![("before".to_owned(), tally.before), (name.to_owned(), tally.after)]
            }
            None => vec![("all".to_owned(), tally.before)],
        };
    }

    /// Rows of name and value: what the text and the table of the page show.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        if let Some(requests) = &self.requests {
            row("requests/s", grouped(requests.per_second.round() as u64));
            let answered = grouped(requests.answered);
            row("answered", format!("{answered} in {:.2} s", requests.seconds));
            for (kind, count) in &requests.failures {
                row(&format!("failed: {kind}"), grouped(*count));
            }
            if requests.reconnects > 0 {
                row("reconnects", grouped(requests.reconnects));
            }
        }
        if let Some(pops) = &self.pops {
            row("pops/s", grouped(pops.per_second.round() as u64));
            row(
                "pops arrived / owed",
                format!("{} / {}", grouped(pops.arrived), grouped(pops.owed)),
            );
            let judged = [
                ("early", pops.early),
                ("lost", pops.lost),
                ("doubled", pops.doubled),
                ("misordered", pops.misordered),
                ("stray callbacks", pops.stray),
            ];
            judged.iter().for_each(|(name, count)| row(name, grouped(*count)));
        }
        let server = &self.server;
        let micros = |value: f64| format!("{value:.3} µs");
        let optional = [
            ("server CPU per request", server.cpu_us_per_request.map(micros)),
            ("server CPU per pop", server.cpu_us_per_pop.map(micros)),
            ("server cores busy", server.cores_busy.map(|share| format!("{share:.2}"))),
            ("server memory before", server.resident_mib_before.map(|mib| format!("{mib:.1} MiB"))),
            ("server memory after", server.resident_mib_after.map(|mib| format!("{mib:.1} MiB"))),
            (
                "server memory per timer",
                server.bytes_per_timer.map(|bytes| format!("{bytes:.1} B")),
            ),
            ("client core share", Some(format!("{:.2}", self.loadgen.client_core_share))),
            ("sink core share", self.loadgen.sink_core_share.map(|share| format!("{share:.2}"))),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                row(name, value);
            }
        }
        rows
    }

    /// Named distributions: what the percentile tables show.
    pub fn distributions(&self) -> Vec<(String, Percentiles)> {
        let mut all = Vec::new();
        if let Some(requests) = &self.requests {
            all.push(("latency".to_owned(), requests.latency_us));
            let by_operation = &requests.latency_us_by_operation;
            for (name, percentiles) in by_operation.iter().filter(|_| by_operation.len() > 1) {
                all.push((format!("latency of {name}"), *percentiles));
            }
            if let Some(during) = requests.latency_us_during {
                all.push((format!("latency {}", phase_name(&self.drawings.latency)), during));
            }
        }
        if let Some(pops) = &self.pops {
            all.push(("lateness".to_owned(), pops.lateness_us));
            if let Some(during) = pops.lateness_us_during {
                all.push((format!("lateness {}", phase_name(&self.drawings.lateness)), during));
            }
        }
        all.retain(|(_, percentiles)| percentiles.count > 0);
        all
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.scenario);
        // Writing to a String cannot fail.
        for (name, value) in self.rows() {
            let _ = writeln!(text, "  {name:<26} {value}");
        }
        let _ = write!(text, "\n  {:<26}", "");
        for head in ["p50", "p90", "p99", "p99.9", "max"] {
            let _ = write!(text, " {head:>10}");
        }
        for (name, of) in self.distributions() {
            let _ = write!(text, "\n  {name:<26}");
            for value in [of.p50, of.p90, of.p99, of.p99_9, of.max] {
                let _ = write!(text, " {:>10}", duration_text(value));
            }
        }
        text.push('\n');
        for note in &self.notes {
            let _ = writeln!(text, "\n  note: {note}");
        }
        for problem in &self.problems {
            let _ = writeln!(text, "\n  PROBLEM: {problem}");
        }
        text
    }
}

fn phase_name(drawings: &[(String, Histogram<u64>)]) -> &str {
    drawings.last().map_or("during", |(name, _)| name)
}

/// Digits in groups of three: `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits and a unit that fits: `812 µs`, `1.24 ms`, `3.10 s`.
pub fn duration_text(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let decimals =
        if value >= 99.95 { 0 } else { usize::from(value < 99.95) + usize::from(value < 9.995) };
    format!("{value:.decimals$} {unit}")
}

/// The middle of these values, the mean of the two middle ones if their number is even; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::new_histogram;

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut histogram = new_histogram();
        (1..=1000u64).for_each(|us| histogram.record(us * 1000).unwrap());
        let of = Percentiles::of(&histogram);
        // Three significant digits: at most one part in a thousand off.
        for (found, exact) in
            [(of.p50, 500.0), (of.p90, 900.0), (of.p99, 990.0), (of.p99_9, 999.0), (of.max, 1000.0)]
        {
            assert!((found - exact).abs() <= exact / 1000.0, "{found} for {exact}");
        }
        assert_eq!(of.count, 1000);
        assert_eq!(Percentiles::of(&new_histogram()), Percentiles::default());
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        let texts =
            [0.5, 9.996, 81.26, 812.4, 999.7, 1240.0, 99_960.0, 3_100_000.0].map(duration_text);
        assert_eq!(
            texts,
            ["0.50 µs", "10.0 µs", "81.3 µs", "812 µs", "1.00 ms", "1.24 ms", "100 ms", "3.10 s"]
        );
        assert_eq!([median(&[]), median(&[3.0, 1.0, 2.0]), median(&[1.0, 2.0])], [0.0, 2.0, 1.5]);
    }
}
