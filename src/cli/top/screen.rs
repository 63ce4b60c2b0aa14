//! The screen of `chronos top` as text.

use serde_json::Value;

use super::sample::{Between, CREATES, POPS, Sample};
use crate::cli::shown::{table, word_of};

/// Cores that are shown one by one.
const CORES_MAX: usize = 32;
/// Peers that are shown.
const PEERS_MAX: usize = 32;

/// Returns the screen of what happened between two samples.
pub(super) fn screen(between: &Between<'_>) -> String {
    let status = &between.after.status;
    let text = |value: &Value| word_of(value);
    let uptime = status["uptime_ms"].as_u64().unwrap_or(0) / 1_000;
    let mut screen = format!(
        "chronos {}  {}  {}  up {}\n\n",
        text(&status["version"]),
        text(&status["cluster"]["name"]),
        state_of(status),
        length(uptime)
    );
    let late = |share| late(between, share);
    screen += &format!(
        "timers {}   creates/s {:.0}   pops/s {:.0}   failures/s {:.0}\n",
        between.now("timers"),
        between.per_second(&CREATES),
        between.per_second(&POPS),
        between.per_second(&["pops_failed"])
    );
    screen += &format!(
        "late: p50 {}   p99 {}   p99.9 {}   oldest overdue {} ms\n",
        late(0.5),
        late(0.99),
        late(0.999),
        between.now("oldest_overdue_ms")
    );
    screen += &format!(
        "pops waiting {}   in flight {}   given up/s {:.0}   dead letters {}\n\n",
        between.now("pops_waiting"),
        between.now("pops_in_flight"),
        between.per_second(&["pops_given_up"]),
        between.now("dead_letters")
    );
    screen + &cores(between) + "\n" + &hosts(between.after) + "\n" + &peers(status)
}

/// The state of a node. A node that has left its cluster may be stopped if it holds nothing.
pub(super) fn state_of(status: &Value) -> String {
    match (status["state"].as_str(), status["totals"]["timers"].as_u64()) {
        (Some("left"), Some(0)) => "left its cluster, holds no timers".to_owned(),
        (Some("left"), Some(timers)) => format!("left its cluster, still holds {timers} timers"),
        _ => word_of(&status["state"]),
    }
}

/// The bound of the lateness of this share of the pops.
pub(super) fn late(between: &Between<'_>, share: f64) -> String {
    match between.lateness_us(share) {
        None => "-".to_owned(),
        Some(u64::MAX) => "above 60 s".to_owned(),
        Some(us) => format!("{} ms", us as f64 / 1e3),
    }
}

pub(super) fn length(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn cores(between: &Between<'_>) -> String {
    let mut rows = vec![head(&["CORE", "TIMERS", "CREATES/S", "POPS/S", "CPU"])];
    for (place, core) in between.cores().iter().enumerate().take(CORES_MAX) {
        let rate = |counters: &[&str]| between.per_second_of(place, counters);
        rows.push(vec![
            word_of(&core["core"]),
            word_of(&core["timers"]),
            format!("{:.0}", rate(&CREATES)),
            format!("{:.0}", rate(&POPS)),
            format!("{:.0} %", rate(&["cpu_ns"]) / 1e7),
        ]);
    }
    table(&rows) + &left_out(between.cores().len(), CORES_MAX)
}

fn hosts(after: &Sample) -> String {
    let hosts = &after.hosts;
    if hosts.is_empty() {
        return "no host in trouble\n".into();
    }
    let mut rows = vec![head(&["HOST IN TROUBLE", "WHY", "QUEUE"])];
    for host in hosts {
        rows.push(vec![word_of(&host["destination"]), trouble_of(host), word_of(&host["queue"])]);
    }
    table(&rows) + &left_out(hosts.len() + after.more_hosts, hosts.len())
}

/// What the trouble of a host is. A breaker that is closed is none.
pub(super) fn trouble_of(host: &Value) -> String {
    let mut told = Vec::new();
    if host["paused"] == true {
        told.push("paused".to_owned());
    }
    let failing = &host["failing"];
    let how = if failing["status"].is_null() { &failing["failure"] } else { &failing["status"] };
    match (failing.is_null(), host["failures"].as_u64()) {
        (false, _) => told.push(format!("{} x {}", word_of(&failing["attempts"]), word_of(how))),
        (true, Some(failures @ 1..)) => told.push(format!("{failures} failures")),
        (true, _) => {}
    }
    if host["breaker"] != "closed" {
        told.push(format!("breaker {}", word_of(&host["breaker"])));
    }
    told.join(", ")
}

fn peers(status: &Value) -> String {
    let members = status["cluster"]["members"].as_array().map_or(&[][..], Vec::as_slice);
    let mut rows = vec![head(&["MEMBER", "ROLE", "LIVENESS", "KEPT BYTES"])];
    for member in members.iter().take(PEERS_MAX) {
        let cells = ["name", "role", "liveness", "kept_bytes"];
        rows.push(cells.map(|cell| word_of(&member[cell])).to_vec());
    }
    table(&rows) + &left_out(members.len(), PEERS_MAX)
}

fn head(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn left_out(count: usize, shown: usize) -> String {
    match count.saturating_sub(shown) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::top::sample::two_samples;

    #[test]
    fn a_node_that_has_left_says_so_and_what_it_still_holds() {
        let told = |state: &str, timers: u64| {
            state_of(&json!({ "state": state, "totals": { "timers": timers } }))
        };
        assert_eq!(told("serving", 0), "serving");
        assert_eq!(told("left", 0), "left its cluster, holds no timers");
        assert_eq!(told("left", 7), "left its cluster, still holds 7 timers");
    }

    #[test]
    fn a_host_in_trouble_says_why() {
        let failing = json!({ "attempts": 42, "status": 503, "failure": "status" });
        let unreachable = json!({ "attempts": 3, "status": null, "failure": "unreachable" });
        for (host, why) in [
            (json!({ "breaker": "closed", "failing": failing }), "42 x 503"),
            (json!({ "breaker": "open", "failing": unreachable }), "3 x unreachable, breaker open"),
            (json!({ "breaker": "closed", "paused": true, "failures": 0 }), "paused"),
            (json!({ "breaker": "half-open", "failures": 7 }), "7 failures, breaker half-open"),
        ] {
            assert_eq!(trouble_of(&host), why);
        }
    }

    #[test]
    fn a_screen_tells_all_and_acts_on_no_terminal() {
        let (before, after) = two_samples();
        let screen = screen(&Between::new(&before, &after));
        for told in ["serving", "creates/s 200", "p50 above 60 s", "up 1 min", "open", "dead"] {
            assert!(screen.contains(told), "{told} is not in\n{screen}");
        }
        assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
    }
}
