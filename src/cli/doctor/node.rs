//! What a running node says of itself and its peers: its alarms, in words.

use serde_json::Value;

use super::check::Check;
use crate::cli::admin_client::AdminClient;
use crate::cli::cluster;
use crate::cli::service::{Asked, Door, Service};
use crate::cli::shown::clean;

/// How late the oldest pop may be before there is a word, in milliseconds.
const OVERDUE_MS_MAX: u64 = 10_000;
/// How far wall clocks of members may be apart before there is a word, in milliseconds.
const APART_MS_MAX: u64 = 1_000;

/// A figure of /status that should be low, and what it means if it is not.
struct Alarm {
    figure: &'static str,
    above: u64,
    is_failure: bool,
    told: &'static str,
    remedy: &'static str,
}

const ALARMS: [Alarm; 10] = [
    Alarm {
        figure: "writes_refused",
        above: 0,
        is_failure: true,
        told: "takes no writes",
        remedy: "chronos cluster status and the log say why",
    },
    Alarm {
        figure: "clock_refused",
        above: 0,
        is_failure: true,
        told: "its wall clock differs from that of most other nodes",
        remedy: "set the clock (NTP)",
    },
    Alarm {
        figure: "node_full",
        above: 0,
        is_failure: true,
        told: "is at its limit of timers or memory",
        remedy: "raise limits.timers_max or limits.store_bytes_max, or add a node",
    },
    Alarm {
        figure: "journal_stalled",
        above: 0,
        is_failure: true,
        told: "the disk does not take a write",
        remedy: "look at the disk (dmesg, iostat)",
    },
    Alarm {
        figure: "journal_full",
        above: 0,
        is_failure: true,
        told: "the journal finds no room",
        remedy: "make room on that disk",
    },
    Alarm {
        figure: "journal_damaged",
        above: 0,
        is_failure: true,
        told: "the disk has lost or changed what was on it",
        remedy: "chronos journal check tells the places; replace the disk",
    },
    Alarm {
        figure: "peers_dead",
        above: 0,
        is_failure: true,
        told: "believes a member dead",
        remedy: "restart that member, or: chronos cluster leave --dead",
    },
    Alarm {
        figure: "timers_lacking",
        above: 0,
        is_failure: false,
        told: "timers have fewer copies than asked for",
        remedy: "add a node, or raise the limits of one",
    },
    Alarm {
        figure: "oldest_overdue_ms",
        above: OVERDUE_MS_MAX,
        is_failure: false,
        told: "the oldest pop is overdue, in milliseconds",
        remedy: "chronos destinations list tells which host is in trouble",
    },
    Alarm {
        figure: "clocks_apart_ms",
        above: APART_MS_MAX,
        is_failure: false,
        told: "wall clocks of members differ, in milliseconds",
        remedy: "set the clocks of all nodes (NTP)",
    },
];

/// Asks a node, and whether each member answers.
pub(super) fn checks(client: &AdminClient, admin: &str) -> Vec<Check> {
    let service = Service::of_operators(client, admin);
    let what = format!("node {}", clean(admin));
    let status = match service.ask(Door::Operators, Asked::bare("GET", "/status")) {
        Ok(reply) => reply.document,
        Err(error) => return vec![Check::fail(what, error.to_string(), "see above")],
    };
    let state = status["state"].as_str().unwrap_or("unknown");
    let told = format!("{}, version {}", clean(state), clean(text(&status["version"])));
    let mut checks = vec![match state {
        "serving" => Check::ok(&what, told),
        _ => Check::fail(&what, told, "look at its log"),
    }];
    checks.extend(alarms(&what, &status));
    if let Some(error) = status["cluster"]["reload_error"]["text"].as_str() {
        let found = format!("the last reload failed: {}", clean(error));
        checks.push(Check::fail(&what, found, "repair the file, then kill -HUP"));
    }
    checks.extend(members(client, admin));
    checks
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

/// The alarms of a document of /status; one line that there is none.
fn alarms(what: &str, status: &Value) -> Vec<Check> {
    let rung = ALARMS.iter().filter_map(|alarm| {
        let figure = status["totals"][alarm.figure].as_u64()?;
        let found = format!("{}: {figure}", alarm.told);
        (figure > alarm.above).then(|| match alarm.is_failure {
            true => Check::fail(what, found, alarm.remedy),
            false => Check::warn(what, found, alarm.remedy),
        })
    });
    let rung: Vec<Check> = rung.collect();
    match rung.is_empty() {
        true => vec![Check::ok(what, "no alarm")],
        false => rung,
    }
}

fn members(client: &AdminClient, admin: &str) -> Vec<Check> {
    match cluster::members(client, admin) {
        Err(error) => vec![Check::fail("members", clean(&error), "start them")],
        Ok(members) if members.missing.is_empty() => {
            let count = members.answering.len();
            vec![Check::ok("members", format!("all answer ({count})"))]
        }
        Ok(members) => {
            let remedy = "start it, or set [cluster] admin_addresses";
            let missing = members.missing.iter();
            missing.map(|told| Check::fail("members", clean(told), remedy)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;
    use crate::node::meters::CoreMeters;
    use serde_json::json;

    #[test]
    fn each_alarm_watches_a_figure_that_there_is() {
        let meters = CoreMeters::default();
        let names: Vec<&str> = meters.list().iter().map(|meter| meter.0).collect();
        for alarm in &ALARMS {
            assert!(names.contains(&alarm.figure), "{}", alarm.figure);
        }
    }

    #[test]
    fn what_is_above_its_bound_rings() {
        let status = json!({ "totals": { "peers_dead": 1, "oldest_overdue_ms": 10_000 } });
        let rung = alarms("node", &status);
        assert_eq!(rung.len(), 1);
        assert_eq!(rung[0].verdict, Verdict::Fail);
        let quiet = alarms("node", &json!({}));
        assert_eq!(quiet[0].verdict, Verdict::Ok);
    }
}
