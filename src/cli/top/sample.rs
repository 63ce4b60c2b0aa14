//! What a node said at one moment, and what happened between two of them.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::cli::service::{Door, Failure, Service, encoded};
use crate::control::http_client::HttpRequest;

/// Destinations of a page.
const DESTINATIONS: usize = 1_000;
/// Most pages of a sample. They come by name, and the worst host may be the last.
const PAGES_MAX: usize = 10;
/// Hosts in trouble that are kept.
const HOSTS_MAX: usize = 10;

/// What a node said.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Value,
    pub(super) hosts: Vec<Value>,
    /// Hosts in trouble beyond those.
    pub(super) more_hosts: usize,
}

impl Sample {
    /// Asks a node.
    pub(super) fn take(service: &Service) -> Result<Self, Failure> {
        let status = service.ask(Door::Operators, HttpRequest::bare("GET", "/status?all"))?;
        let status = status.having("state")?;
        let mut known = Vec::new();
        let mut path = format!("/destinations?limit={DESTINATIONS}");
        for _ in 0..PAGES_MAX {
            let page = service.ask(Door::Operators, HttpRequest::bare("GET", &path))?;
            let mut page = page.having("destinations")?;
            if let Value::Array(destinations) = page["destinations"].take() {
                known.extend(destinations);
            }
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/destinations?limit={DESTINATIONS}&after={}", encoded(next));
        }
        let (hosts, more_hosts) = worst(known);
        Ok(Self { at: Instant::now(), status, hosts, more_hosts })
    }
}

/// Those in trouble, the worst first, and how many there are beyond them.
fn worst(known: Vec<Value>) -> (Vec<Value>, usize) {
    let number = |host: &Value, member: &str| host[member].as_u64().unwrap_or(0);
    let is_in_trouble = |host: &Value| {
        host["breaker"] != "closed"
            || host["paused"] == true
            || number(host, "failures") > 0
            || !host["failing"].is_null()
    };
    let mut hosts: Vec<Value> = known.into_iter().filter(is_in_trouble).collect();
    let rank = |host: &Value| {
        let is_held_up = host["breaker"] != "closed" || host["paused"] == true;
        let in_a_row = number(&host["failing"], "attempts").max(number(host, "failures"));
        (is_held_up, number(host, "queue"), in_a_row)
    };
    hosts.sort_by_key(|host| std::cmp::Reverse(rank(host)));
    let more = hosts.len().saturating_sub(HOSTS_MAX);
    hosts.truncate(HOSTS_MAX);
    (hosts, more)
}

/// What happened between two samples of one node.
pub(super) struct Between<'a> {
    before: &'a Sample,
    pub(super) after: &'a Sample,
}

impl<'a> Between<'a> {
    /// `before` came first.
    pub(super) fn new(before: &'a Sample, after: &'a Sample) -> Self {
        Self { before, after }
    }

    fn seconds(&self) -> f64 {
        self.after.at.saturating_duration_since(self.before.at).as_secs_f64().max(0.001)
    }

    /// By how much counters of the node grew a second. A node that was restarted has grown by what
    /// it counts now.
    pub(super) fn per_second(&self, counters: &[&str]) -> f64 {
        let (before, after) = (&self.before.status["totals"], &self.after.status["totals"]);
        counters.iter().map(|counter| grown(&before[*counter], &after[*counter])).sum::<u64>()
            as f64
            / self.seconds()
    }

    /// The same of one core.
    pub(super) fn per_second_of(&self, core: usize, counters: &[&str]) -> f64 {
        let (before, after) =
            (&self.before.status["per_core"][core], &self.after.status["per_core"][core]);
        counters.iter().map(|counter| grown(&before[*counter], &after[*counter])).sum::<u64>()
            as f64
            / self.seconds()
    }

    /// A figure of the node as it is now.
    pub(super) fn now(&self, figure: &str) -> u64 {
        self.after.status["totals"][figure].as_u64().unwrap_or(0)
    }

    /// The cores of the node.
    pub(super) fn cores(&self) -> &'a [Value] {
        self.after.status["per_core"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The bucket, in microseconds, below which this share of the pops between the samples was
    /// late; `None`: there was no pop. `u64::MAX` stands for more than the last bound.
    pub(super) fn lateness_us(&self, share: f64) -> Option<u64> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (core, now) in self.cores().iter().enumerate() {
            let before = &self.before.status["per_core"][core]["lateness"]["buckets"];
            for bucket in now["lateness"]["buckets"].as_array().into_iter().flatten() {
                let mut earlier = before.as_array().into_iter().flatten();
                let earlier = earlier.find(|earlier| earlier["le_us"] == bucket["le_us"]);
                let earlier = earlier.map_or(&Value::Null, |earlier| &earlier["count"]);
                let bound = bucket["le_us"].as_u64().unwrap_or(u64::MAX);
                *counts.entry(bound).or_default() += grown(earlier, &bucket["count"]);
            }
        }
        let total: u64 = counts.values().sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        counts.into_iter().filter(|(_, count)| *count > 0).find_map(|(bound, count)| {
            seen += count;
            (seen >= wanted).then_some(bound)
        })
    }

    /// The document that `--json` prints.
    pub(super) fn document(&self) -> Value {
        let core = |(place, core): (usize, &Value)| {
            json!({
                "core": core["core"], "timers": core["timers"],
                "creates-per-s": self.per_second_of(place, &CREATES),
                "pops-per-s": self.per_second_of(place, &POPS),
                "cpu": self.per_second_of(place, &["cpu_ns"]) / 1e9,
            })
        };
        let late = |share| self.lateness_us(share).filter(|us| *us != u64::MAX);
        let status = &self.after.status;
        json!({
            "state": status["state"], "version": status["version"],
            "uptime-ms": status["uptime_ms"], "name": status["cluster"]["name"],
            "timers": self.now("timers"),
            "creates-per-s": self.per_second(&CREATES), "pops-per-s": self.per_second(&POPS),
            "failures-per-s": self.per_second(&["pops_failed"]),
            "pops-waiting": self.now("pops_waiting"),
            "pops-in-flight": self.now("pops_in_flight"),
            "oldest-overdue-ms": self.now("oldest_overdue_ms"),
            "dead-letters": self.now("dead_letters"),
            "lateness-us": { "p50": late(0.5), "p99": late(0.99), "p999": late(0.999) },
            "cores": self.cores().iter().enumerate().map(core).collect::<Vec<_>>(),
            "hosts": self.after.hosts, "peers": status["cluster"]["members"],
        })
    }
}

/// Counters of timers that are written.
pub(super) const CREATES: [&str; 2] = ["creates", "updates"];
/// Counters of pops that were made.
pub(super) const POPS: [&str; 1] = ["pops_delivered"];

fn grown(before: &Value, after: &Value) -> u64 {
    let (before, after) = (before.as_u64().unwrap_or(0), after.as_u64().unwrap_or(0));
    if after >= before { after - before } else { after }
}

/// Samples for tests: those of a node of one core, a second apart.
#[cfg(test)]
pub(super) fn two_samples() -> (Sample, Sample) {
    let status = |creates: u64, late: u64| {
        let buckets = json!([{ "le_us": 50, "count": 98 }, { "le_us": 100, "count": 1 },
                             { "le_us": null, "count": late }]);
        let core = json!({ "core": 0, "timers": 7, "creates": creates, "pops_delivered": 0,
                           "cpu_ns": creates * 1_000_000, "lateness": { "buckets": buckets } });
        json!({
            "state": "serving", "version": "0.1.0", "uptime_ms": 61_000,
            "totals": { "creates": creates, "updates": creates, "timers": 7 },
            "per_core": [core],
            "cluster": { "name": "a\u{1b}:1",
                         "members": [{ "name": "b\u{1b}[2J", "liveness": "dead" }] },
        })
    };
    let at = Instant::now();
    let host = json!({ "destination": "evil\u{1b}]0;x", "breaker": "open", "failures": 3 });
    let well = json!({ "destination": "well", "breaker": "closed", "failures": 0 });
    let before = Sample { at, status: status(10, 0), hosts: Vec::new(), more_hosts: 0 };
    let later = at + std::time::Duration::from_secs(1);
    let (hosts, more_hosts) = worst(vec![well, host]);
    let after = Sample { at: later, status: status(110, 1), hosts, more_hosts };
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::shown::word_of;

    #[test]
    fn the_worst_hosts_are_shown_and_the_others_counted() {
        let host = |name: &str, breaker: &str, paused: bool, queue: u64, failures: u64| {
            json!({ "destination": name, "breaker": breaker, "paused": paused, "queue": queue,
                    "failures": failures })
        };
        let mut known: Vec<Value> =
            (0..20).map(|at| host(&format!("a{at:02}"), "closed", false, 0, 1)).collect();
        known.push(host("paused", "closed", true, 3, 0));
        known.push(host("open", "open", false, 9, 4));
        known.push(host("queue", "closed", false, 70, 1));
        known.push(host("failing", "closed", false, 0, 7));
        let (hosts, more) = worst(known);
        let names: Vec<_> = hosts.iter().map(|host| word_of(&host["destination"])).collect();
        assert_eq!(names[..5], ["open", "paused", "queue", "failing", "a00"]);
        assert_eq!((hosts.len(), more), (HOSTS_MAX, 14));
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let (before, after) = two_samples();
        let between = Between::new(&before, &after);
        assert_eq!(between.per_second(&CREATES), 200.0);
        assert_eq!(between.per_second_of(0, &CREATES), 100.0);
        assert_eq!(between.lateness_us(0.5), Some(u64::MAX), "the only new pop");
        assert_eq!(Between::new(&after, &after).lateness_us(0.5), None);
        assert_eq!(after.hosts.len(), 1);
        assert_eq!(grown(&json!(9), &json!(3)), 3, "restarted");
        assert!(between.document()["lateness-us"]["p50"].is_null());
    }
}
