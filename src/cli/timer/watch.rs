//! `chronos timer watch`: a line for each change of a timer, until the timer is over.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::target::{TargetFlags, bare, send};
use crate::cli::ending::{Ending, NotDone};
use crate::cli::exit::EXIT_FAILURE;
use crate::cli::lasting::seconds_in;
use crate::cli::service::{Door, Failure, Service, encoded};
use crate::cli::shown::clean;
use crate::cli::terminal::{print, tell};
use crate::control::http_client::HttpRequest;
use crate::timer::naming::id_of_name;

/// How often a node that does not answer is asked again before the watch ends.
const FAILURES_MAX: u32 = 5;

#[derive(Debug, Args)]
pub(super) struct WatchFlags {
    #[command(flatten)]
    target: TargetFlags,

    /// Pause between two looks
    #[arg(long, value_name = "DURATION", default_value_t = 1.0, value_parser = seconds)]
    every: f64,

    /// Stop after this time, with exit code 1 if the timer is still there
    #[arg(long = "for", value_name = "DURATION", default_value_t = 86_400.0)]
    #[arg(value_parser = seconds)]
    length: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    seconds_in(text, &(0.1..=31_536_000.0))
}

/// What a line tells of: it changes when something has happened to the timer.
#[derive(PartialEq)]
struct Seen {
    pops: Value,
    is_paused: bool,
    version: Option<String>,
}

/// Watches a timer. Each change is told when it is seen.
pub(super) fn watch(
    service: &Service,
    flags: &WatchFlags,
    is_json: bool,
) -> Result<Ending, NotDone> {
    let path = flags.target.path()?;
    let end = Instant::now() + Duration::from_secs_f64(flags.length);
    let mut last: Option<Seen> = None;
    let mut id = flags.target.id.as_deref().map(|id| bare(id).to_owned());
    let mut failures = 0;
    loop {
        match send(service, ("GET", &path), &[], &[]) {
            Ok(reply) => {
                failures = 0;
                // A name makes the id, and the factor tells where to ask for it.
                let factor = &reply.document["reliability"]["replication-factor"];
                let of_name = flags.target.name.as_deref().map(id_of_name);
                id = of_name.map(|named| format!("{:016x}-{factor}", named.0)).or(id);
                let seen = Seen {
                    pops: reply.document["timing"]["sequence-number"].clone(),
                    is_paused: reply.document["paused"] == true,
                    version: reply.version,
                };
                if last.as_ref() != Some(&seen) {
                    print(&line(&reply.document, &seen, is_json));
                    last = Some(seen);
                }
            }
            Err(error) if error.is_not_found() && last.is_none() => return Err(error.into()),
            Err(error) if error.is_not_found() => return Ok(over(service, id.as_deref())),
            Err(error @ Failure::Refused { status: 400..500, .. }) => return Err(error.into()),
            Err(error) => {
                failures += 1;
                if failures >= FAILURES_MAX {
                    return Err(error.into());
                }
                tell(&format!("looks again: {error}"));
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let document = json!({ "event": "watch ended", "is-over": false });
            let text = "the timer is still there\n".to_owned();
            return Ok(Ending { code: EXIT_FAILURE, ..Ending::done(text, document) });
        }
        std::thread::sleep(left.min(Duration::from_secs_f64(flags.every)));
    }
}

fn line(document: &Value, seen: &Seen, is_json: bool) -> String {
    let pops = seen.pops.as_u64().unwrap_or(0);
    let state = if seen.is_paused { "paused" } else { "waits" };
    let due_ms = next_due_ms(document, pops);
    if is_json {
        let event = json!({
            "event": "seen", "pops": pops, "is-paused": seen.is_paused, "due-in-ms": due_ms,
        });
        return format!("{event}\n");
    }
    let due = match (&document["timing"]["next-at"], due_ms) {
        (Value::String(at), _) => format!(", next at {}", clean(at)),
        (_, Some(ms)) if !seen.is_paused && ms < 0 => {
            format!(", overdue for {:.3} s", ms.unsigned_abs() as f64 / 1e3)
        }
        (_, Some(ms)) if !seen.is_paused => format!(", next in {:.3} s", ms as f64 / 1e3),
        _ => match &document["timing"]["at"] {
            Value::String(at) => format!(", at {}", clean(at)),
            _ => String::new(),
        },
    };
    format!("{state}, {pops} pops done{due}\n")
}

/// When the next pop of an interval is due, in words; `None`: the timer is paused, or its document
/// tells that itself.
pub(super) fn due_of(document: &Value) -> Option<String> {
    let pops = document["timing"]["sequence-number"].as_u64().unwrap_or(0);
    if document["paused"] == true || document["timing"]["next-at"].is_string() {
        return None;
    }
    let due_ms = next_due_ms(document, pops)?;
    let at = Timestamp::now().checked_add(SignedDuration::from_millis(due_ms)).ok()?;
    let seconds = due_ms.unsigned_abs() as f64 / 1e3;
    let side = if due_ms < 0 { "overdue for" } else { "in" };
    Some(format!("{side} {seconds:.3} s, {at:.3}"))
}

/// In how many milliseconds the next pop of an interval is due.
fn next_due_ms(document: &Value, pops: u64) -> Option<i64> {
    let timing = &document["timing"];
    let interval_ms = timing["interval"].as_f64()? * 1e3;
    let start_ms = timing["start-time-delta"].as_i64()?;
    Some((interval_ms * (pops + 1) as f64) as i64 + start_ms)
}

/// Tells how a timer ended that is not there any more.
fn over(service: &Service, id: Option<&str>) -> Ending {
    let letter = id.and_then(|id| {
        let path = format!("/dead-letters/{}", encoded(id));
        service.ask(Door::Clients, HttpRequest::bare("GET", &path)).ok()
    });
    match letter {
        None => {
            let text = "over: its last pop was made, or it was deleted\n".to_owned();
            Ending::done(text, json!({ "event": "over", "is-over": true, "dead-letter": null }))
        }
        Some(letter) => {
            let known = &letter.document["dead-letter"];
            let reason = known["reason"].as_str().unwrap_or("unknown");
            let attempts = &known["attempts"];
            let text = format!(
                "given up ({}, {attempts} attempts): chronos dead-letters show {}\n",
                clean(reason),
                clean(id.unwrap_or_default())
            );
            let document = json!({ "event": "over", "is-over": true, "dead-letter": known });
            Ending { code: EXIT_FAILURE, ..Ending::done(text, document) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_with_an_interval_tells_when_it_is_due() {
        let timer = |start_ms: i64| {
            json!({ "timing": { "interval": 300, "start-time-delta": start_ms,
                                "sequence-number": 1 } })
        };
        let told = due_of(&timer(-23)).expect("an interval");
        assert!(told.starts_with("in 599.977 s, 2") && told.ends_with('Z'), "{told}");
        let late = due_of(&timer(-601_500)).expect("an interval");
        assert!(late.starts_with("overdue for 1.500 s, "), "{late}");
        let mut paused = timer(-23);
        paused["paused"] = true.into();
        assert_eq!(due_of(&paused), None);
        let cron = json!({ "timing": { "next-at": "2030-01-01T00:00:00Z", "cron": "@daily" } });
        assert_eq!(due_of(&cron), None);
    }

    #[test]
    fn the_next_pop_counts_from_the_start() {
        let document = json!({ "timing": { "interval": 1.5, "start-time-delta": -2056 } });
        assert_eq!(next_due_ms(&document, 1), Some(944));
        assert_eq!(next_due_ms(&json!({ "timing": { "at": "x" } }), 0), None);
        let seen = Seen { pops: 1.into(), is_paused: false, version: None };
        assert_eq!(line(&document, &seen, false), "waits, 1 pops done, next in 0.944 s\n");
        let seen = Seen { pops: 0.into(), is_paused: false, version: None };
        assert_eq!(line(&document, &seen, false), "waits, 0 pops done, overdue for 0.556 s\n");
    }
}
