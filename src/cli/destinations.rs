//! `chronos destinations`: how callback servers are, and how much they may be asked.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::admin_client::AdminClient;
use super::cluster;
use super::ending::{Ending, NotDone, end};
use super::exit::{EXIT_FAILURE, EXIT_USAGE};
use super::service::{Door, OperatorFlags, Service, encoded};
use super::shown::{clean, lines_of, table, word_of};
use super::terminal::failed;
use crate::control::http_client::HttpRequest;

const EXAMPLES: &str = "\
Examples:
  chronos destinations list                              as the node on this machine sees them
  chronos destinations list --all --admin 10.0.0.1:7254  summed up over all members
  chronos destinations show 10.0.0.1:8080
  chronos destinations set 10.0.0.1:8080 --max-in-flight 8 --rate-per-second 100
  chronos destinations pause slow.example                all ports of the host
  chronos destinations resume slow.example
  chronos destinations reset slow.example                what is configured holds again

A rule counts for the whole cluster, whichever node takes it. set gives the whole rule: what is left
out is not limited. pause and resume keep the limits of the rule that holds.
CHRONOS_TOKEN has that of an operator where one is needed.

Exit codes:
    0  done
    1  refused, not known, or no answer; list --all: a member does not answer
    2  wrong command line";
/// Destinations of a page.
const PAGE: usize = 1_000;
/// Most pages of a node.
const PAGES_MAX: usize = 100;

/// See callback servers, limit and pause them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DestinationsFlags {
    #[command(subcommand)]
    command: DestinationsCommand,

    #[command(flatten)]
    operator: OperatorFlags,
}

#[derive(Debug, Subcommand)]
enum DestinationsCommand {
    /// List those that have a rule, or pops that wait, run or fail
    List {
        /// Ask every member, and sum up
        #[arg(long)]
        all: bool,
    },
    /// Show one
    Show(Named),
    /// Set the rule of one; what is left out is not limited
    Set {
        #[command(flatten)]
        named: Named,

        /// Most callbacks that run at a time
        #[arg(long, value_name = "N")]
        max_in_flight: Option<u64>,

        /// Most attempts a second
        #[arg(long, value_name = "N", value_parser = rate)]
        rate_per_second: Option<f64>,

        /// Begin no attempt
        #[arg(long)]
        paused: bool,
    },
    /// Begin no attempt until it is resumed
    Pause(Named),
    /// Begin attempts again
    Resume(Named),
    /// Take the order back: what is configured holds
    Reset(Named),
}

/// Reads attempts a second. Numbers that are not finite are null in JSON, and null takes the limit
/// away.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e6).contains(rate));
    rate.ok_or_else(|| "expected 0.001 to 1000000 attempts a second".into())
}

#[derive(Debug, Args)]
struct Named {
    /// host:port, or host for all ports
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
}

impl Named {
    fn path(&self) -> String {
        format!("/destinations/{}", encoded(&self.host))
    }
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &DestinationsFlags) -> u8 {
    let OperatorFlags { admin, tls, json } = &flags.operator;
    let client = match AdminClient::new(tls) {
        Ok(client) => client,
        Err(reason) => return failed(*json, &reason, EXIT_USAGE),
    };
    let service = Service::of_operators(&client, admin);
    let result = match &flags.command {
        DestinationsCommand::List { all: true } => list_all(&client, admin),
        DestinationsCommand::List { all: false } => list(&service),
        DestinationsCommand::Show(named) => {
            shown(&service, HttpRequest::bare("GET", &named.path()))
        }
        DestinationsCommand::Set { named, max_in_flight, rate_per_second, paused } => {
            let rule = json!({
                "max-in-flight": max_in_flight, "rate-per-second": rate_per_second,
                "paused": paused,
            });
            put(&service, named, &rule)
        }
        DestinationsCommand::Pause(named) => pause(&service, named, true),
        DestinationsCommand::Resume(named) => pause(&service, named, false),
        DestinationsCommand::Reset(named) => {
            shown(&service, HttpRequest::bare("DELETE", &named.path()))
        }
    };
    end(*json, result)
}

fn shown(service: &Service, asked: HttpRequest<'_>) -> Result<Ending, NotDone> {
    let document = service.ask(Door::Operators, asked)?.having("destination")?;
    Ok(Ending::done(lines_of(&document), document))
}

/// Sets a rule. A member that is null is left out, and so not limited.
fn put(service: &Service, named: &Named, rule: &Value) -> Result<Ending, NotDone> {
    let members = rule.as_object().into_iter().flatten();
    let given = members.filter(|(_, value)| !value.is_null());
    let given: serde_json::Map<_, _> = given.map(|(n, value)| (n.clone(), value.clone())).collect();
    let body = Value::from(given).to_string();
    let path = named.path();
    shown(service, HttpRequest { method: "PUT", path: &path, headers: &[], body: body.as_bytes() })
}

/// Pauses or resumes a destination. An order is a whole rule, so the limits are read before.
fn pause(service: &Service, named: &Named, is_paused: bool) -> Result<Ending, NotDone> {
    let found = match service.ask(Door::Operators, HttpRequest::bare("GET", &named.path())) {
        Ok(reply) => reply.having("destination")?,
        Err(error) if error.is_not_found() => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let rule = json!({
        "max-in-flight": found["max-in-flight"], "rate-per-second": found["rate-per-second"],
        "paused": is_paused,
    });
    put(service, named, &rule)
}

/// All destinations that a node knows.
fn pages(service: &Service) -> Result<Vec<Value>, NotDone> {
    let mut known = Vec::new();
    let mut path = format!("/destinations?limit={PAGE}");
    for _ in 0..PAGES_MAX {
        let page = service.ask(Door::Operators, HttpRequest::bare("GET", &path))?;
        let mut page = page.having("destinations")?;
        if let Some(Value::Array(destinations)) = page.get_mut("destinations").map(Value::take) {
            known.extend(destinations);
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/destinations?limit={PAGE}&after={}", encoded(next));
    }
    Ok(known)
}

fn list(service: &Service) -> Result<Ending, NotDone> {
    let known = pages(service)?;
    Ok(Ending::done(text_of(&known), json!({ "destinations": known })))
}

fn list_all(client: &AdminClient, admin: &str) -> Result<Ending, NotDone> {
    let members = cluster::members(client, admin).map_err(NotDone::Other)?;
    let mut missing = members.missing;
    let mut sums = BTreeMap::new();
    for (name, admin) in &members.answering {
        match pages(&Service::of_operators(client, admin)) {
            Ok(known) => known.into_iter().for_each(|one| add(&mut sums, one)),
            Err(error) => missing.push(format!("{name} is missing: {error}")),
        }
    }
    let known: Vec<Value> = sums.into_values().collect();
    let notes = missing.iter().map(|told| format!("incomplete: {}", clean(told))).collect();
    let code = if missing.is_empty() { 0 } else { EXIT_FAILURE };
    let nodes: Vec<&String> = members.answering.iter().map(|(name, _)| name).collect();
    let document = json!({ "destinations": known, "nodes": nodes, "incomplete": missing });
    Ok(Ending { notes, code, ..Ending::done(text_of(&known), document) })
}

/// How bad a breaker is; a word that is not known is worst.
fn badness(breaker: &Value) -> usize {
    let words = ["closed", "half-open", "open"];
    words.iter().position(|word| breaker == word).unwrap_or(words.len())
}

/// Adds what a node knows of a destination to what others know.
fn add(sums: &mut BTreeMap<String, Value>, one: Value) {
    // Writing a member into what is no object would panic.
    let Some(name) = one["destination"].as_str().map(str::to_owned) else { return };
    let Some(sum) = sums.get_mut(&name) else {
        sums.insert(name, one);
        return;
    };
    for member in ["failures", "queue", "in-flight", "attempts-per-second"] {
        let number = |value: &Value| value[member].as_u64().unwrap_or(0);
        sum[member] = number(sum).saturating_add(number(&one)).into();
    }
    if badness(&one["breaker"]) > badness(&sum["breaker"]) {
        sum["breaker"] = one["breaker"].clone();
    }
    add_failing(&mut sum["failing"], &one["failing"]);
    let probes = [&sum["next-probe-ms"], &one["next-probe-ms"]];
    sum["next-probe-ms"] = probes.iter().filter_map(|ms| ms.as_u64()).min().into();
}

/// Adds how a host has failed at one node to how it has failed at others. Times of one form are in
/// the order of their texts.
fn add_failing(sum: &mut Value, one: &Value) {
    if sum.is_null() || one.is_null() {
        if sum.is_null() {
            *sum = one.clone();
        }
        return;
    }
    let text = |value: &Value, member: &str| value[member].as_str().unwrap_or("").to_owned();
    let attempts = |value: &Value| value["attempts"].as_u64().unwrap_or(0);
    let all = attempts(sum).saturating_add(attempts(one));
    let since = text(sum, "since").min(text(one, "since"));
    if text(one, "last-at") > text(sum, "last-at") {
        *sum = one.clone();
    }
    if let Some(members) = sum.as_object_mut() {
        members.insert("attempts".into(), all.into());
        members.insert("since".into(), since.into());
    }
}

/// How a host fails, in a few words: `42 x 503 since 2026-12-01T09:00:00.250Z`.
fn failing_of(one: &Value) -> String {
    let failing = &one["failing"];
    if failing.is_null() {
        return word_of(failing);
    }
    let how = if failing["status"].is_null() { &failing["failure"] } else { &failing["status"] };
    let (attempts, how) = (word_of(&failing["attempts"]), word_of(how));
    format!("{attempts} x {how} since {}", word_of(&failing["since"]))
}

fn text_of(known: &[Value]) -> String {
    if known.is_empty() {
        return "no destinations\n".into();
    }
    let head = [
        "DESTINATION",
        "BREAKER",
        "QUEUE",
        "IN FLIGHT",
        "PER S",
        "FAILURES",
        "MAX IN FLIGHT",
        "MAX PER S",
        "PAUSED",
        "FAILING",
    ];
    let members = [
        "destination",
        "breaker",
        "queue",
        "in-flight",
        "attempts-per-second",
        "failures",
        "max-in-flight",
        "rate-per-second",
        "paused",
    ];
    let row = |one: &Value| {
        let words = members.iter().map(|member| word_of(&one[*member]));
        words.chain([failing_of(one)]).collect()
    };
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(known.iter().map(row));
    table(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_that_a_rule_can_have() {
        for bad in ["nan", "NaN", "inf", "-inf", "infinity", "1e400", "0", "-1", "1000001", "x", ""]
        {
            assert!(rate(bad).is_err(), "{bad}");
        }
        for (good, value) in [("0.001", 0.001), ("100", 100.0), ("1e6", 1e6)] {
            assert_eq!(rate(good), Ok(value));
        }
    }

    #[test]
    fn members_are_summed_up_and_the_worst_breaker_is_shown() {
        let one = |queue: u64, breaker: &str, probe: Option<u64>| {
            json!({ "destination": "a:1", "queue": queue, "failures": 2, "breaker": breaker,
                    "next-probe-ms": probe, "in-flight": 0, "attempts-per-second": 1 })
        };
        let mut sums = BTreeMap::new();
        add(&mut sums, one(3, "closed", None));
        add(&mut sums, one(4, "open", Some(70)));
        add(&mut sums, one(5, "half-open", Some(30)));
        let sum = &sums["a:1"];
        assert_eq!((&sum["queue"], &sum["failures"]), (&json!(12), &json!(6)));
        assert_eq!((&sum["breaker"], &sum["next-probe-ms"]), (&json!("open"), &json!(30)));
        assert_eq!((&sum["failing"], failing_of(sum)), (&Value::Null, word_of(&Value::Null)));
    }

    #[test]
    fn failures_at_several_nodes_are_summed_up_and_the_last_one_is_shown() {
        let failing = |attempts: u64, status: Option<u16>, since: &str, last: &str| {
            json!({ "destination": "a:1", "failing": {
                "attempts": attempts, "failure": "unreachable", "status": status,
                "since": since, "last-at": last,
            }})
        };
        let mut sums = BTreeMap::new();
        add(&mut sums, json!({ "destination": "a:1", "failing": null }));
        add(&mut sums, failing(2, None, "2026-12-01T09:00:00.000Z", "2026-12-01T09:05:00.000Z"));
        add(
            &mut sums,
            failing(3, Some(503), "2026-12-01T08:00:00.000Z", "2026-12-01T09:04:00.000Z"),
        );
        let told = failing_of(&sums["a:1"]);
        assert_eq!(told, "5 x unreachable since 2026-12-01T08:00:00.000Z");
    }
}
