//! The totals of a run of the benchmark.

use std::time::Duration;

use hdrhistogram::Histogram;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::order::{BREACHES_SHOWN, Breach, Disjoint};
use super::outages::{Outage, failovers};
use super::worker::{Left, News, new_histogram};
use crate::cli::timestamp::time::{human, rfc3339, zone};
use crate::timestamp::Timestamp;

/// Most outages that are kept: a thousand connections through a hundred failovers.
const OUTAGES_MAX: usize = 100_000;

/// What was run, for the report.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The server or the cluster that was asked, for people.
    pub source: String,
    pub connections: usize,
    pub threads: usize,
    /// How many timestamps a call asks for.
    pub range: u32,
    /// Calls per second, in an open loop.
    pub rate: Option<f64>,
    /// When the run began, in milliseconds since 1970 by the wall clock.
    pub begun_ms: u64,
}

/// The totals, collected while the run lasts.
pub(crate) struct Summary {
    run: Run,
    zone: TimeZone,
    length: Duration,
    calls: u64,
    calls_shown: u64,
    errors: u64,
    outages: Vec<Outage>,
    outages_left_out: u64,
    breach_count: u64,
    breaches: Vec<Breach>,
    disjoint: Disjoint,
    /// By thread: the value that calls not reported yet must exceed.
    floors: Vec<Timestamp>,
    latency: Histogram<u64>,
    unanswered: u64,
    last_errors: Vec<String>,
}

impl Summary {
    /// Makes a summary of a run that has just begun.
    pub(super) fn new(run: Run) -> Self {
        Self {
            disjoint: Disjoint::new(run.range),
            floors: vec![Timestamp(0); run.threads],
            run,
            zone: zone(None).unwrap_or(TimeZone::UTC),
            length: Duration::ZERO,
            calls: 0,
            calls_shown: 0,
            errors: 0,
            outages: Vec::new(),
            outages_left_out: 0,
            breach_count: 0,
            breaches: Vec::new(),
            latency: new_histogram(),
            unanswered: 0,
            last_errors: Vec::new(),
        }
    }

    /// Takes a report of a thread.
    pub(super) fn add(&mut self, news: News) {
        self.calls += news.firsts.len() as u64;
        self.errors += news.errors;
        let room = OUTAGES_MAX - self.outages.len();
        self.outages_left_out += news.outages.len().saturating_sub(room) as u64;
        self.outages.extend(news.outages.into_iter().take(room));
        self.breach_count += news.breach_count;
        let room = BREACHES_SHOWN - self.breaches.len();
        self.breaches.extend(news.breaches.into_iter().take(room));
        self.disjoint.add(&news.firsts);
        self.floors[news.thread] = news.floor;
        // The last thread ends a round, because each thread reports as often as the others.
        if news.thread + 1 == self.floors.len() {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.disjoint.settle(self.floors.iter().min().copied().unwrap_or_default());
    }

    /// Notes how long the load lasted.
    pub(super) fn stopped(&mut self, length: Duration) {
        self.length = length;
    }

    /// Takes the last report of a thread.
    pub(super) fn leave(&mut self, left: Left) {
        self.latency.add(left.latency).expect("histograms of the same bounds");
        self.unanswered += left.unanswered;
        self.last_errors.extend(left.last_errors);
        self.settle();
    }

    /// Reports whether all promises were kept and there was a call to judge.
    pub(super) fn is_good(&self) -> bool {
        self.calls > 0 && self.breach_count == 0 && self.disjoint.overlaps == 0
    }

    /// Returns the progress line. `passed` is the time since the last one.
    pub(super) fn progress(&mut self, passed: Duration) -> String {
        let calls = self.calls - self.calls_shown;
        self.calls_shown = self.calls;
        let order = match self.breach_count + self.disjoint.overlaps {
            0 => "in order".into(),
            count => format!("ORDER VIOLATED {count} times"),
        };
        format!(
            "{} calls/s  {} errors  {} outages  {order}",
            grouped((calls as f64 / passed.as_secs_f64()) as u64),
            self.errors,
            self.outages.iter().filter(|outage| !outage.is_reconnection()).count()
        )
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.length.as_secs_f64().max(1e-9)
    }

    fn at(&self, run_ns: u64) -> Timestamp {
        Timestamp::of_unix_ms(self.run.begun_ms + run_ns / 1_000_000)
    }

    /// Returns the report as text.
    pub(super) fn text(&self) -> String {
        let Run { source, connections, threads, range, rate, .. } = &self.run;
        let plural = |count: usize, word: &str| {
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let kind = match rate {
            Some(rate) => format!("open loop, {rate} calls/s wanted"),
            None => "closed loop".into(),
        };
        let mut text = format!(
            "{}, {}, to {source}, getTimestamps({range}), {:.1} s, {kind}\n",
            plural(*connections, "connection"),
            plural(*threads, "thread"),
            self.length.as_secs_f64(),
        );
        let line = |name: &str, value: String| format!("{name:<12} {value}\n");
        let rate = |count: u64| {
            format!("{}, {} /s", grouped(count), grouped(self.per_second(count) as u64))
        };
        text += &line("calls", rate(self.calls));
        text += &line("timestamps", rate(self.calls * u64::from(*range)));
        text += &line("latency", self.latency_text());
        let reconnections = self.outages.iter().filter(|o| o.is_reconnection()).count();
        text += &line("errors", format!("{}, {reconnections} reconnections", self.errors));
        if self.unanswered > 0 {
            let last = self.last_errors.first().map_or(String::new(), |e| format!(": {e}"));
            text += &line("unanswered", format!("{} calls at the end{last}", self.unanswered));
        }
        let failovers = failovers(&self.outages);
        text += &line("failovers", failovers.len().to_string());
        for failover in &failovers {
            let at = human(self.at(failover.first_error_ns), &self.zone);
            text += &format!("  {}\n", failover.line(&at));
        }
        if self.outages_left_out > 0 {
            text += &format!("  and {} outages of connections\n", self.outages_left_out);
        }
        text + &self.order_text()
    }

    fn latency_text(&self) -> String {
        let at = |quantile: f64| length(self.latency.value_at_quantile(quantile));
        format!(
            "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}, mean {}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            length(self.latency.max()),
            length(self.latency.mean() as u64)
        )
    }

    fn order_text(&self) -> String {
        let compared = grouped(self.disjoint.compared);
        if self.breach_count == 0 && self.disjoint.overlaps == 0 {
            return format!("order        kept: {compared} answers, each above all before it\n");
        }
        let mut text = format!(
            "order        VIOLATED: {} of {compared} answers not above earlier ones, {} with \
             values of another\n",
            self.breach_count, self.disjoint.overlaps
        );
        for breach in &self.breaches {
            let Breach { connection, server, got, floor, own_last } = breach;
            let where_ = if own_last.is_some() { "on the same" } else { "on another" };
            text += &format!(
                "  connection {connection}, {server}: {} after {} {where_} connection ({} ms \
                 back)\n",
                got.0,
                floor.0,
                floor.unix_ms() as i64 - got.unix_ms() as i64
            );
        }
        if let Some((one, other)) = self.disjoint.example {
            text += &format!("  answers {} and {} share values\n", one.0, other.0);
        }
        text
    }

    /// Returns the report as JSON.
    pub(super) fn document(&self) -> Value {
        let Run { source, connections, threads, range, rate, begun_ms } = &self.run;
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile: f64| us(self.latency.value_at_quantile(quantile));
        let failovers = failovers(&self.outages);
        let breach = |breach: &Breach| {
            json!({
                "connection": breach.connection, "server": breach.server, "got": breach.got.0,
                "above": breach.floor.0, "same_connection": breach.own_last.is_some(),
            })
        };
        let example = self.disjoint.example.map(|(one, other)| [one.0, other.0]);
        json!({
            "place": source, "connections": connections, "threads": threads, "range": range,
            "loop": if rate.is_some() { "open" } else { "closed" }, "rate_wanted": rate,
            "begun": rfc3339(Timestamp::of_unix_ms(*begun_ms), &self.zone),
            "duration_s": self.length.as_secs_f64(),
            "calls": self.calls, "calls_per_s": self.per_second(self.calls),
            "timestamps": self.calls * u64::from(*range),
            "timestamps_per_s": self.per_second(self.calls * u64::from(*range)),
            "latency_us": {
                "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999),
                "max": us(self.latency.max()), "mean": self.latency.mean() / 1e3,
            },
            "errors": self.errors,
            "reconnections": self.outages.iter().filter(|o| o.is_reconnection()).count(),
            "unanswered": self.unanswered,
            "failovers": failovers.iter().map(|failover| {
                failover.document(&rfc3339(self.at(failover.first_error_ns), &self.zone))
            }).collect::<Vec<_>>(),
            "order": {
                "is_kept": self.breach_count == 0 && self.disjoint.overlaps == 0,
                "compared": self.disjoint.compared,
                "not_above_earlier": self.breach_count,
                "overlaps": self.disjoint.overlaps,
                "overlap_example": example,
                "examples": self.breaches.iter().map(breach).collect::<Vec<_>>(),
            },
        })
    }
}

/// Writes a length of time with a fitting unit.
fn length(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Writes a number in groups of three digits.
fn grouped(number: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(threads: usize) -> Summary {
        let source = "a:1".into();
        Summary::new(Run { source, connections: 4, threads, range: 2, rate: None, begun_ms: 0 })
    }

    fn news(thread: usize, firsts: &[u64], floor: u64) -> News {
        News { thread, firsts: firsts.to_vec(), floor: Timestamp(floor), ..News::default() }
    }

    #[test]
    fn values_of_two_threads_are_compared() {
        let mut summary = summary(2);
        summary.add(news(0, &[10, 14], 15));
        // The other thread has a call under way whose value may lie below.
        summary.add(news(1, &[12], 9));
        assert!(summary.is_good());
        summary.add(news(1, &[11], 15));
        assert!(!summary.is_good());
        let document = summary.document();
        assert_eq!(document["order"]["overlaps"], 1);
        assert_eq!((&document["calls"], &document["timestamps"]), (&4.into(), &8.into()));
        assert!(summary.text().contains("answers 10 and 11 share values"), "{}", summary.text());
    }

    #[test]
    fn a_run_without_an_answer_is_not_good() {
        let mut summary = summary(1);
        assert!(!summary.is_good());
        let left =
            Left { latency: new_histogram(), unanswered: 2, last_errors: vec!["refused".into()] };
        summary.leave(left);
        assert!(summary.text().contains("unanswered   2 calls at the end: refused\n"));
    }

    #[test]
    fn figures_are_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(length(81_500), "81.5 us");
        assert_eq!(length(4_100_000), "4.10 ms");
        assert_eq!(length(3_050_000_000), "3.050 s");
    }
}
