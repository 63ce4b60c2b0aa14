//! `chronos demo`: a node and a callback receiver in one process, two timers created over real
//! HTTP, every pop printed as it arrives. The demo ends by itself. It drives the node through its
//! public API only, so the curl lines that it prints do the same.

mod receiver;

use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use self::receiver::{Pop, receive};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK};
use crate::cli::runtime::on_runtime;
use crate::cli::terminal::fail;
use crate::control::http_client::{HttpAnswer, HttpClient, HttpError, HttpRequest};
use crate::node::settings::NodeSettings;
use crate::node::{self, NodeHandle, StartError};

/// How long the demo waits for pops after the last due time: one callback timeout and one retry.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest time of one request. A node on the same machine answers within a millisecond.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Longest body of an answer, in bytes. A node answers with a sentence.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Why the demo ended without showing what it should.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("the node did not answer the demo's request: {0}")]
    Unanswered(HttpError),
    #[error("the node refused the timer with status {status}: {reason}")]
    Refused { status: u16, reason: String },
    #[error("{0}")]
    Pops(String),
    #[error("the node did not stop in order: {0}")]
    Stop(String),
}

/// One timer of the demo.
#[derive(Clone, Debug)]
struct DemoTimer {
    /// The path of the timer's callback, and its name on the screen.
    name: &'static str,
    interval: Duration,
    /// How long the timer repeats. Zero: the timer pops once.
    repeat_for: Duration,
}

impl DemoTimer {
    /// Returns how many pops the timer makes: one at every multiple of the interval up to
    /// repeat-for, and at least one.
    fn pops(&self) -> u128 {
        (self.repeat_for.as_nanos() / self.interval.as_nanos()).max(1)
    }

    /// Returns the body of the request that creates the timer.
    fn body(&self, receiver: SocketAddr) -> String {
        let mut timing = format!("\"interval\":{}", self.interval.as_secs_f64());
        if !self.repeat_for.is_zero() {
            write!(timing, ",\"repeat-for\":{}", self.repeat_for.as_secs_f64())
                .expect("writing to a String cannot fail");
        }
        let name = self.name;
        format!(
            "{{\"timing\":{{{timing}}},\
             \"callback\":{{\"http\":{{\"uri\":\"http://{receiver}/{name}\",\
             \"opaque\":\"hello from {name}\"}}}},\"reliability\":{{\"replication-factor\":1}}}}"
        )
    }
}

/// A timer that was created.
struct Created {
    plan: DemoTimer,
    /// When the request was about to be sent. Lateness counts from here, so it includes the
    /// request's way and is never understated.
    at: Instant,
    sequences: Vec<u64>,
}

/// Runs the demo; returns the exit code.
pub(super) fn run() -> u8 {
    let plans = [
        DemoTimer {
            name: "one-shot",
            interval: Duration::from_secs(1),
            repeat_for: Duration::ZERO,
        },
        DemoTimer {
            name: "repeating",
            interval: Duration::from_millis(500),
            repeat_for: Duration::from_secs(3),
        },
    ];
    on_runtime(async {
        match with_own_node(&plans).await {
            Ok(()) => EXIT_OK,
            Err(error) => fail(&error, EXIT_FAILURE),
        }
    })
}

/// Runs the demo on a node of its own: one unpinned shard on a free port of loopback.
async fn with_own_node(plans: &[DemoTimer]) -> Result<(), DemoError> {
    let node = node::start(&NodeSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: Some(1),
        pin: false,
        ..NodeSettings::default()
    })?;
    let shown = show(node.address, plans, &mut std::io::stdout(), PATIENCE).await;
    let stopped = stop(node);
    shown.and(stopped)
}

fn stop(node: NodeHandle) -> Result<(), DemoError> {
    node.stop();
    node.join().map_err(DemoError::Stop)
}

/// Creates the timers on the node at `node` and prints until the last pop has arrived, at most
/// `patience` after the last pop is due.
async fn show(
    node: SocketAddr,
    plans: &[DemoTimer],
    output: &mut impl Write,
    patience: Duration,
) -> Result<(), DemoError> {
    let (receiver, mut pops, serving) = receive().await.map_err(|source| DemoError::Io {
        what: "the callback receiver cannot listen on a free port of 127.0.0.1",
        source,
    })?;
    say(output, &format!("node       http://{node}\nreceiver   http://{receiver}"))?;
    let mut created = Vec::new();
    let serving = tokio::spawn(serving);
    for plan in plans {
        let body = plan.body(receiver);
        say(output, &format!("\n$ curl -i http://{node}/timers -d '{body}'"))?;
        let at = Instant::now();
        let answer = post(node, "/timers", &[], &body).await.map_err(DemoError::Unanswered)?;
        if answer.status != 200 {
            let reason = answer.header("reason").unwrap_or("no reason given").to_owned();
            return Err(DemoError::Refused { status: answer.status, reason });
        }
        let location = answer.header("location").unwrap_or("no Location");
        say(output, &format!("200 OK, Location: {location}"))?;
        created.push(Created { plan: plan.clone(), at, sequences: Vec::new() });
    }
    say(output, "")?;
    let lateness_us = watch(&mut created, &mut pops, output, patience).await;
    serving.abort();
    summarise(&created, lateness_us?, output)
}

/// Prints pops until all have arrived. Returns the lateness of each pop in microseconds.
async fn watch(
    created: &mut [Created],
    pops: &mut mpsc::Receiver<Pop>,
    output: &mut impl Write,
    patience: Duration,
) -> Result<Vec<i64>, DemoError> {
    let begun = created.iter().map(|timer| timer.at).min().unwrap_or_else(Instant::now);
    let ends = created.iter().map(|t| t.at + t.plan.interval.max(t.plan.repeat_for));
    let end = ends.max().unwrap_or(begun) + patience;
    let expected: u128 = created.iter().map(|timer| timer.plan.pops()).sum();
    let mut lateness_us = Vec::new();
    while (lateness_us.len() as u128) < expected {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(Some(pop)) = timeout(left, pops.recv()).await else { break };
        let timer = created.iter_mut().find(|timer| timer.plan.name == pop.name);
        let (Some(timer), Some(sequence)) = (timer, pop.sequence) else {
            return Err(DemoError::Pops(format!("a callback that nobody asked for: {pop:?}")));
        };
        if timer.sequences.contains(&sequence) {
            let name = timer.plan.name;
            return Err(DemoError::Pops(format!("pop {sequence} of {name} came twice")));
        }
        timer.sequences.push(sequence);
        let due = timer.at + timer.plan.interval * u32::try_from(sequence).unwrap_or(u32::MAX);
        let late_us = signed_us(pop.at, due);
        lateness_us.push(late_us);
        let line = format!(
            "{:>7.3} s  {:<10} pop {sequence}  {:>6.2} ms late  body \"{}\"",
            pop.at.duration_since(begun).as_secs_f64(),
            timer.plan.name,
            late_us as f64 / 1e3,
            pop.opaque.escape_debug()
        );
        say(output, &line)?;
    }
    Ok(lateness_us)
}

/// Returns the microseconds from `due` to `at`, negative if `at` is earlier.
fn signed_us(at: Instant, due: Instant) -> i64 {
    let late = at.saturating_duration_since(due).as_micros() as i64;
    let early = due.saturating_duration_since(at).as_micros() as i64;
    late - early
}

/// Prints the totals. Returns an error if pops are missing or a pop was early.
fn summarise(
    created: &[Created],
    mut lateness_us: Vec<i64>,
    output: &mut impl Write,
) -> Result<(), DemoError> {
    for Created { plan, sequences, .. } in created {
        let missing: Vec<String> = (1..=plan.pops())
            .filter(|&pop| !sequences.iter().any(|&sequence| u128::from(sequence) == pop))
            .map(|pop| pop.to_string())
            .collect();
        if !missing.is_empty() {
            let pops = missing.join(", ");
            return Err(DemoError::Pops(format!("{}: pop {pops} never came", plan.name)));
        }
    }
    lateness_us.sort_unstable();
    if let Some(early) = lateness_us.first().filter(|&&us| us < 0) {
        return Err(DemoError::Pops(format!("a pop came {} us early", -early)));
    }
    let ms = |index: usize| lateness_us[index] as f64 / 1e3;
    let last = lateness_us.len() - 1;
    say(
        output,
        &format!(
            "\n{} of {} pops, each once and none early.\n\
             Lateness: least {:.2}, median {:.2}, most {:.2} ms, counted from before the request\n\
             was sent until the receiver's handler ran.\n\n\
             Next: start a node with `chronos`, take anything that accepts a POST as receiver,\n\
             and send the curl lines above to http://127.0.0.1:7253/timers with your own uri.\n\
             `chronos --help` shows more.",
            last + 1,
            last + 1,
            ms(0),
            ms(last / 2),
            ms(last)
        ),
    )
}

/// Sends `body` to `path` over a connection of its own, as any program would.
async fn post(
    server: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<HttpAnswer, HttpError> {
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    let request = HttpRequest { method: "POST", path, headers: &headers, body: body.as_bytes() };
    HttpClient::new(&server.to_string(), ANSWER_TIME, ANSWER_BYTES_MAX).ask(request).await
}

fn say(output: &mut impl Write, line: &str) -> Result<(), DemoError> {
    let written = writeln!(output, "{line}").and_then(|()| output.flush());
    written.map_err(|source| DemoError::Io { what: "standard output is closed", source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Uri;
    use serde_json::Value;
    use tokio::net::TcpListener;

    /// How the stand-in for a node behaves in a test.
    #[derive(Clone, Copy, PartialEq)]
    enum Fake {
        Honest,
        ForgetsTheSecondPop,
        RepeatsTheFirstPop,
        PopsEarly,
        Refuses,
    }

    /// Starts a server that answers POST /timers and calls back with tokio's timers, as a node
    /// would. Returns its address.
    async fn fake_node(fake: Fake) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let create = move |body: String| async move {
            if fake == Fake::Refuses {
                let headers = [("reason", "full"), ("location", "")];
                return (axum::http::StatusCode::SERVICE_UNAVAILABLE, headers);
            }
            tokio::spawn(pop_all(fake, body));
            (axum::http::StatusCode::OK, [("location", "/timers/0-1"), ("reason", "")])
        };
        let router = axum::Router::new().route("/timers", axum::routing::post(create));
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    async fn pop_all(fake: Fake, body: String) {
        let start = tokio::time::Instant::now();
        let timer: Value = serde_json::from_str(&body).expect("the demo sends JSON");
        let interval = timer["timing"]["interval"].as_f64().expect("a number");
        let repeat_for = timer["timing"]["repeat-for"].as_f64().unwrap_or(interval);
        let uri: Uri = timer["callback"]["http"]["uri"].as_str().unwrap().parse().expect("a URI");
        let receiver = uri.authority().expect("a host").as_str().parse().expect("an address");
        for sequence in 1..=((repeat_for / interval).round() as u32) {
            if fake != Fake::PopsEarly {
                let due = start + Duration::from_secs_f64(interval * f64::from(sequence));
                tokio::time::sleep_until(due).await;
            }
            if fake == Fake::ForgetsTheSecondPop && sequence == 2 {
                continue;
            }
            let sent = if fake == Fake::RepeatsTheFirstPop { 1 } else { sequence };
            let headers = [("X-Sequence-Number", &*sent.to_string())];
            let _ = post(receiver, uri.path(), &headers, "opaque").await;
        }
    }

    fn shown(fake: Fake) -> (Result<(), DemoError>, String) {
        // Early pops come at once. Intervals of minutes keep a loaded machine from making them
        // late.
        let unit_ms = if fake == Fake::PopsEarly { 600_000 } else { 30 };
        let unit = Duration::from_millis(unit_ms);
        let plans = [
            DemoTimer { name: "one", interval: 2 * unit, repeat_for: Duration::ZERO },
            DemoTimer { name: "more", interval: unit, repeat_for: 4 * unit },
        ];
        // Only the test with a missing pop waits to the end.
        let patience_ms = if fake == Fake::ForgetsTheSecondPop { 300 } else { 20_000 };
        let patience = Duration::from_millis(patience_ms);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let mut output = Vec::new();
        let end = runtime.expect("a runtime").block_on(async {
            let node = fake_node(fake).await;
            show(node, &plans, &mut output, patience).await
        });
        (end, String::from_utf8(output).expect("text"))
    }

    #[test]
    fn every_pop_is_shown_and_summed_up() {
        let (end, text) = shown(Fake::Honest);
        end.expect(&text);
        assert_eq!(text.matches(" ms late").count(), 5, "{text}");
        assert_eq!(text.matches("$ curl -i http://127.0.0.1:").count(), 2, "{text}");
        assert_eq!(text.matches("Location: /timers/0-1").count(), 2, "{text}");
        assert!(text.contains("5 of 5 pops") && text.contains("pop 4"), "{text}");
    }

    #[test]
    fn missing_doubled_early_and_refused_pops_are_failures() {
        for (fake, told) in [
            (Fake::ForgetsTheSecondPop, "more: pop 2 never came"),
            (Fake::RepeatsTheFirstPop, "pop 1 of more came twice"),
            (Fake::PopsEarly, "early"),
            (Fake::Refuses, "refused the timer with status 503: full"),
        ] {
            let (end, text) = shown(fake);
            let error = end.expect_err(&text).to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn plans_pop_at_every_multiple_up_to_repeat_for() {
        let plan = |interval, repeat_for| DemoTimer {
            name: "x",
            interval: Duration::from_millis(interval),
            repeat_for: Duration::from_millis(repeat_for),
        };
        assert_eq!(plan(1_000, 0).pops(), 1);
        assert_eq!(plan(500, 3_000).pops(), 6);
        assert_eq!(plan(500, 3_499).pops(), 6);
        let body = plan(500, 3_000).body(SocketAddr::from(([127, 0, 0, 1], 9)));
        let json: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(json["timing"]["interval"], 0.5);
        assert_eq!(json["timing"]["repeat-for"], 3.0);
        assert_eq!(json["callback"]["http"]["uri"], "http://127.0.0.1:9/x");
    }
}
