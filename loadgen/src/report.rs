//! The outcome of a run in numbers: one structure from which text, JSON and HTML are made.

use std::collections::BTreeMap;
use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::Outcome;
use crate::ledger::{Ledger, Tally};
use crate::machine::{Machine, utc_text};
use crate::over_time::OverTime;
use crate::recorder::Operation;

/// Percentiles of a distribution, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The value that 90 % of the values do not exceed.
    pub p90: f64,
    /// The value that 99 % of the values do not exceed.
    pub p99: f64,
    /// The value that 99.9 % of the values do not exceed.
    pub p99_9: f64,
    /// The highest value.
    pub max: f64,
}

impl Percentiles {
    /// The percentiles of a histogram in nanoseconds; all are 0 if the histogram is empty.
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

/// The results of a run's requests.
#[derive(Clone, Debug, Serialize)]
pub struct Requests {
    /// Good answers that arrived within the measured time.
    pub answered: u64,
    /// Length of the measured time in seconds.
    pub seconds: f64,
    /// Good answers per second.
    pub per_second: f64,
    /// Latency from the intended send time to the answer.
    pub latency_us: Percentiles,
    /// The same latency by operation, without operations that did not occur.
    pub latency_us_by_operation: BTreeMap<&'static str, Percentiles>,
    /// The same latency after the event of the scenario (herd due, host hung).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us_during: Option<Percentiles>,
    /// Number of failures in the whole run, by kind.
    pub failures: BTreeMap<String, u64>,
    /// How many broken connections were made again.
    pub reconnects: u64,
}

/// The results of a run's pops, as the sink saw them.
#[derive(Clone, Debug, Serialize)]
pub struct Pops {
    /// Pops that acknowledged timers owe.
    pub owed: u64,
    /// Distinct pops that arrived.
    pub arrived: u64,
    /// Distinct pops per second, from the first pop to the last.
    pub per_second: f64,
    /// Pops that arrived before they were due.
    pub early: u64,
    /// By how many microseconds the earliest pop was early.
    pub early_us_max: f64,
    /// Pops that are owed and have not come.
    pub lost: u64,
    /// Pops that came again although the sink had taken them.
    pub doubled: u64,
    /// Pops that came again because the sink had not taken them.
    pub retried: u64,
    /// Pops that came after a later pop of the same timer.
    pub misordered: u64,
    /// Callbacks that belong to no timer of this run.
    pub stray: u64,
    /// Lateness from the due time (counted from before the request was sent) to the arrival.
    pub lateness_us: Percentiles,
    /// The same lateness for pops due after the event of the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_us_during: Option<Percentiles>,
}

/// What the run cost the server. A figure is `None` if the server's process is not known.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Server {
    /// CPU time (user and system) per good answer, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request: Option<f64>,
    /// CPU time (user and system) per pop, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_pop: Option<f64>,
    /// Cores in use on average in the measured time (1 = one core, fully).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_busy: Option<f64>,
    /// Resident memory before the timers were created, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_mib_before: Option<f64>,
    /// Resident memory after the timers were created, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_mib_after: Option<f64>,
    /// Growth of resident memory per timer, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_timer: Option<f64>,
}

/// What the run cost the load generator. A share near 1 means that the load generator was the
/// limit.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Own {
    /// Share of a core that the client's thread took in the measured time.
    pub client_core_share: f64,
    /// Share of a core that the sink's thread took over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink_core_share: Option<f64>,
}

/// The timers that a run left.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Left {
    /// How many the node had acknowledged and not been told to delete.
    pub timers: u64,
    /// The host of their callbacks.
    pub host: String,
    /// How many the run deleted at its end; `None`: it was not asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
}

/// The distributions and timelines that the page draws.
#[derive(Clone, Debug, Default)]
pub struct Drawings {
    /// Latency in nanoseconds, with the name of the phase.
    pub latency: Vec<(String, Histogram<u64>)>,
    /// Lateness in nanoseconds, with the name of the phase.
    pub lateness: Vec<(String, Histogram<u64>)>,
    /// Good answers per tenth of a second.
    pub answers: Vec<u32>,
    /// Pops per tenth of a second.
    pub pops: Vec<u32>,
    /// Latency over the measured time.
    pub latency_over_time: OverTime,
    /// Lateness over the time since the first pop.
    pub lateness_over_time: OverTime,
}

/// A figure that the text and the page show.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// How large it is.
    pub value: String,
    /// What the name means, in a sentence; empty: the name says it.
    pub meaning: &'static str,
}

/// The report on a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Whether the run showed no problem.
    pub passed: bool,
    /// The problems of the run. Each makes the run fail.
    pub problems: Vec<String>,
    /// Facts that a reader of the figures should know.
    pub notes: Vec<String>,
    /// The command line of the run.
    pub command_line: String,
    /// When the report was made, in UTC.
    pub finished_at: String,
    /// The machine of the run.
    pub machine: Machine,
    /// The results of requests; `None`: the scenario measures none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// The results of pops; `None`: the scenario measures none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pops: Option<Pops>,
    /// The timers that the run left in the node; `None`: it left none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
    /// What the run cost the server.
    pub server: Server,
    /// What the run cost the load generator.
    pub loadgen: Own,
    /// What the page draws. Not part of the JSON.
    #[serde(skip)]
    pub drawings: Drawings,
}

impl Report {
    /// An empty report on a run of this scenario, made now.
    pub fn new(scenario: &str) -> Report {
        Report {
            scenario: scenario.to_owned(),
            passed: true,
            problems: Vec::new(),
            notes: Vec::new(),
            command_line: format!("chronos-loadgen {}", crate::token::shown_arguments()),
            finished_at: utc_text(chronos::ring::now().wall.0),
            machine: Machine::read(),
            requests: None,
            pops: None,
            left: None,
            server: Server::default(),
            loadgen: Own::default(),
            drawings: Drawings::default(),
        }
    }

    /// Adds a problem, so that the run has failed.
    pub fn problem(&mut self, text: String) {
        self.passed = false;
        self.problems.push(text);
    }

    /// Adds the results of requests. `during` names the time after the split; `None`: there was no
    /// split.
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
        self.drawings.latency_over_time = recorder.over_time;
        self.drawings.latency = match during {
            Some(name) => {
                vec![("all".to_owned(), recorder.latency), (name.to_owned(), recorder.after_split)]
            }
            None => vec![("all".to_owned(), recorder.latency)],
        };
    }

    /// Adds the results of pops. `during` names the time after the split; `None`: there was no
    /// split.
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
            retried: tally.retried,
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
        self.drawings.lateness_over_time = tally.over_time;
        self.drawings.lateness = match during {
            Some(name) => {
                vec![("before".to_owned(), tally.before), (name.to_owned(), tally.after)]
            }
            None => vec![("all".to_owned(), tally.before)],
        };
    }

    /// The figures that the text and the page show, those of pops first.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.pops.as_ref().map(pop_rows).unwrap_or_default();
        let mut row = |name: &str, value: String, meaning: &'static str| {
            rows.push(Row { name: name.to_owned(), value, meaning });
        };
        if let Some(requests) = &self.requests {
            let rate = grouped(requests.per_second.round() as u64);
            row("requests/s", rate, "Requests answered with 200, per second of the measured time.");
            row(
                "answered",
                format!("{} in {:.2} s", grouped(requests.answered), requests.seconds),
                "Requests whose answer was 200 and came within the measured time. Those of the \
                 warm-up are not counted.",
            );
            for (kind, count) in &requests.failures {
                let meaning = "Requests of the whole run without an answer 200.";
                row(&format!("failed: {kind}"), grouped(*count), meaning);
            }
            if requests.reconnects > 0 {
                let meaning = "Connections that broke and were made again.";
                row("reconnects", grouped(requests.reconnects), meaning);
            }
        }
        for (name, value, meaning) in self.costs() {
            if let Some(value) = value {
                row(name, value, meaning);
            }
        }
        rows
    }

    /// What the run cost the server and the load generator, where it is known.
    fn costs(&self) -> [(&'static str, Option<String>, &'static str); 8] {
        let (server, own) = (&self.server, &self.loadgen);
        let micros = |value: Option<f64>| value.map(|us| format!("{us:.3} µs"));
        let share = |value: Option<f64>| value.map(|share| format!("{share:.2}"));
        let mib = |value: Option<f64>| value.map(|mib| format!("{mib:.1} MiB"));
        let per_timer = server.bytes_per_timer.map(|bytes| format!("{bytes:.1} B"));
        let own_meaning = "Near 1 the load generator was the limit, not the server.";
        [
            (
                "server CPU per request",
                micros(server.cpu_us_per_request),
                "CPU time of the whole server, user and system, by the requests answered.",
            ),
            (
                "server CPU per pop",
                micros(server.cpu_us_per_pop),
                "CPU time of the whole server, user and system, by the pops that arrived.",
            ),
            ("server cores busy", share(server.cores_busy), "1 is one core, fully."),
            ("server memory before", mib(server.resident_mib_before), ""),
            ("server memory after", mib(server.resident_mib_after), ""),
            ("server memory per timer", per_timer, "The growth between the two, by the timers."),
            ("client core share", share(Some(own.client_core_share)), own_meaning),
            ("sink core share", share(own.sink_core_share), own_meaning),
        ]
    }

    /// The named distributions that the tables of percentiles show, without empty ones.
    pub fn distributions(&self) -> Vec<(String, Percentiles)> {
        let mut all = Vec::new();
        if let Some(pops) = &self.pops {
            all.push(("lateness".to_owned(), pops.lateness_us));
            if let Some(during) = pops.lateness_us_during {
                all.push((format!("lateness {}", phase_name(&self.drawings.lateness)), during));
            }
        }
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
        all.retain(|(_, percentiles)| percentiles.count > 0);
        all
    }

    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.scenario);
        // Writing to a String cannot fail.
        for Row { name, value, .. } in self.rows() {
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

fn pop_rows(pops: &Pops) -> Vec<Row> {
    let rows = [
        (
            "pops/s",
            grouped(pops.per_second.round() as u64),
            "Pops that arrived, per second from the first pop to the last.",
        ),
        (
            "pops arrived / owed",
            format!("{} / {}", grouped(pops.arrived), grouped(pops.owed)),
            "Owed are all pops of timers whose create was answered with 200: the server has \
             promised these and no others. Each pop that arrived counts once.",
        ),
        (
            "early",
            grouped(pops.early),
            "Pops that arrived before their due time. The due time counts from before the create \
             was sent.",
        ),
        ("lost", grouped(pops.lost), "Pops that were owed and did not arrive before the end."),
        (
            "doubled",
            grouped(pops.doubled),
            "Pops that arrived again although the sink had taken them.",
        ),
        (
            "retried",
            grouped(pops.retried),
            "Pops that arrived again because the sink had not taken them (--sink-mode).",
        ),
        (
            "misordered",
            grouped(pops.misordered),
            "Pops that arrived behind a later one of a timer.",
        ),
        ("stray callbacks", grouped(pops.stray), "Callbacks that belong to no timer of this run."),
    ];
    rows.map(|(name, value, meaning)| Row { name: name.to_owned(), value, meaning }).into()
}

fn phase_name(drawings: &[(String, Histogram<u64>)]) -> &str {
    drawings.last().map_or("during", |(name, _)| name)
}

/// The number in groups of three digits: `1 234 567`.
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

/// A duration with three significant digits and a unit that fits: `812 µs`, `1.24 ms`, `3.10 s`.
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

/// The median of the values. For an even number of values the mean of the two middle values; 0 for
/// no value.
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
        // With three significant digits a percentile is off by at most one part in a thousand.
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
