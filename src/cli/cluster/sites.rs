//! The other sites in `chronos cluster status`: a line for each, and what is wrong with them.

use serde_json::Value;

use super::survey::{NodeReport, Survey};
use crate::cli::shown;

/// Clocks of sites that differ by more are a problem, as they are an alarm.
const CLOCKS_APART_MS: u64 = 60_000;
/// A site that was not told a write for longer is a problem, as it is an alarm.
const BEHIND_MS: u64 = 60_000;

/// The lines of the sites; empty if there are none.
pub(super) fn table(survey: &Survey) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in survey.reports.values().flat_map(sites_of).filter_map(|it| it["name"].as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let head = ["SITE", "REACHED BY", "SINCE", "LAG", "WAITING", "TO OFFER", "CLOCK"];
    let rows: Vec<[String; 7]> = names.iter().map(|name| row(survey, name)).collect();
    shown::table(&[&[head.map(str::to_owned)], &rows[..]].concat())
}

fn row(survey: &Survey, name: &str) -> [String; 7] {
    let seen: Vec<&Value> = survey.reports.values().filter_map(|it| site_in(it, name)).collect();
    let reach: Vec<&Value> = seen.iter().copied().filter(|it| is_reached(it)).collect();
    let figures = |of: &str| seen.iter().filter_map(|it| it[of].as_u64()).collect::<Vec<_>>();
    let nodes = if seen.len() == 1 { "node" } else { "nodes" };
    let seconds = |it: &&Value| it["seconds"].as_u64();
    let since = match reach.len() == seen.len() {
        true => reach.iter().filter_map(seconds).min(),
        false => seen.iter().filter(|it| !is_reached(it)).filter_map(seconds).max(),
    };
    let lag_s = figures("lag_ms").into_iter().max().unwrap_or(0) as f64 / 1e3;
    let to_offer: u64 = figures("to_offer").iter().sum();
    let to_offer = match figures("left_s").into_iter().max() {
        Some(left_s) if to_offer > 0 => format!("{to_offer}, {left_s} s left"),
        _ => to_offer.to_string(),
    };
    let ahead = seen.iter().filter_map(|it| it["clock_ahead_ms"].as_i64());
    [
        name.to_owned(),
        format!("{} of {} {nodes}", reach.len(), seen.len()),
        since.map_or("?".into(), |seconds| format!("{seconds} s")),
        format!("{lag_s:.1} s"),
        figures("waiting").iter().sum::<u64>().to_string(),
        to_offer,
        ahead.max_by_key(|ms| ms.unsigned_abs()).map_or("?".into(), clock),
    ]
}

/// How a clock that is so far ahead is told.
fn clock(ahead_ms: i64) -> String {
    match (ahead_ms.unsigned_abs() / 1_000, ahead_ms > 0) {
        (0, _) => "agrees".into(),
        (seconds, true) => format!("{seconds} s ahead"),
        (seconds, false) => format!("{seconds} s behind"),
    }
}

/// What is wrong with the sites as one node sees them.
pub(super) fn problems_of(report: &NodeReport) -> Vec<String> {
    let mut problems = Vec::new();
    let node = &report.name;
    for site in sites_of(report) {
        let name = site["name"].as_str().unwrap_or_default();
        let count = |of: &str| site[of].as_u64().unwrap_or(0);
        if !is_reached(site) {
            problems.push(format!(
                "{node} has not reached the site {name} for {} s: it is told nothing",
                count("seconds")
            ));
        } else if count("to_offer") > 0 {
            let left = site["left_s"].as_u64().map_or(String::new(), |s| format!(", {s} s left"));
            problems.push(format!(
                "the site {name} may lack timers: {node} has {} still to offer to it{left}",
                count("to_offer")
            ));
        } else if count("lag_ms") > BEHIND_MS {
            problems.push(format!(
                "the site {name} was not told for {} s what {node} took: {} messages wait for its \
                 answers. Is one of its nodes full?",
                count("lag_ms") / 1_000,
                count("waiting")
            ));
        }
        let ahead_ms = site["clock_ahead_ms"].as_i64().unwrap_or(0);
        if ahead_ms.unsigned_abs() > CLOCKS_APART_MS {
            problems.push(format!(
                "the wall clock of the site {name} is {} of {node}: set the wrong one (NTP)",
                clock(ahead_ms)
            ));
        }
        if let Some(seconds) = site["lists_differ_s"].as_u64() {
            problems.push(format!(
                "the site {name} has had another list of sites than {node} for {seconds} s: name \
                 the same sites in [sites] of all nodes of all sites"
            ));
        }
    }
    problems
}

/// Says which nodes have other sites than the first that answers. Empty if all agree.
pub(super) fn disagreements(survey: &Survey) -> Vec<String> {
    let mut reports = survey.reports.values();
    let Some(first) = reports.next() else { return Vec::new() };
    let others = reports.filter(|other| list_of(other) != list_of(first));
    let told = others.map(|other| {
        format!(
            "members disagree about sites: {} has {}; {} has {}",
            first.name,
            list_of(first).join(" "),
            other.name,
            list_of(other).join(" ")
        )
    });
    told.collect()
}

/// The sites of a node as its configuration has them, its own first.
fn list_of(report: &NodeReport) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let others =
        sites_of(report).map(|it| format!("{}={}", text(&it["name"]), text(&it["address"])));
    let mut others: Vec<String> = others.collect();
    others.sort();
    [vec![format!("local {}", text(&report.document["site"]))], others].concat()
}

fn sites_of(report: &NodeReport) -> impl Iterator<Item = &Value> {
    report.document["sites"].as_array().into_iter().flatten()
}

fn site_in<'a>(report: &'a NodeReport, name: &str) -> Option<&'a Value> {
    sites_of(report).find(|site| site["name"] == name)
}

fn is_reached(site: &Value) -> bool {
    site["liveness"] == "alive"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::survey::survey_of;
    use super::*;

    fn site(liveness: &str, more: &[(&str, Value)]) -> Value {
        let mut site = json!({
            "name": "site2", "address": "10.2.0.1:7253", "liveness": liveness, "seconds": 35,
            "waiting": 0, "lag_ms": 20, "to_offer": 0, "left_s": null, "clock_ahead_ms": 3,
            "lists_differ_s": null,
        });
        more.iter().for_each(|(name, value)| site[*name] = value.clone());
        site
    }

    fn node(name: &str, sites: &[Value]) -> Value {
        json!({"name": name, "members": [], "site": "site1", "sites": sites})
    }

    fn problems(sites: &[Value]) -> Vec<String> {
        let survey = survey_of(&[node("a", sites)]);
        survey.reports.values().flat_map(problems_of).collect()
    }

    #[test]
    fn a_site_is_shown_as_all_nodes_see_it() {
        let survey = survey_of(&[
            node("a", &[site("alive", &[("seconds", json!(90)), ("waiting", json!(3))])]),
            node("b", &[site("alive", &[("lag_ms", json!(1_250)), ("waiting", json!(4))])]),
        ]);
        let wanted = "SITE   REACHED BY    SINCE  LAG    WAITING  TO OFFER  CLOCK\n\
                      site2  2 of 2 nodes  35 s   1.2 s  7        0         agrees\n";
        assert_eq!(table(&survey), wanted);
        let offered = [("to_offer", json!(40)), ("left_s", json!(12))];
        let survey = survey_of(&[
            node("a", &[site("alive", &offered)]),
            node("b", &[site("dead", &[("clock_ahead_ms", json!(-300_000))])]),
        ]);
        let wanted = "SITE   REACHED BY    SINCE  LAG    WAITING  TO OFFER       CLOCK\n\
                      site2  1 of 2 nodes  35 s   0.0 s  0        40, 12 s left  300 s behind\n";
        assert_eq!(table(&survey), wanted);
        assert_eq!(table(&survey_of(&[node("a", &[])])), "");
    }

    #[test]
    fn each_thing_that_is_wrong_with_a_site_is_a_problem() {
        assert_eq!(problems(&[site("alive", &[])]), [""; 0]);
        let of = |liveness: &str, name: &str, value: Value| {
            let [told] = &problems(&[site(liveness, &[(name, value)])])[..] else {
                panic!("one problem of {name}")
            };
            told.clone()
        };
        assert!(of("dead", "seconds", json!(7)).contains("a has not reached the site site2 for 7"));
        assert!(of("unknown", "seconds", json!(7)).contains("has not reached"));
        assert!(of("alive", "to_offer", json!(9)).contains("a has 9 still to offer"));
        assert!(of("alive", "lag_ms", json!(90_000)).contains("not told for 90 s"));
        assert!(of("alive", "clock_ahead_ms", json!(300_000)).contains("300 s ahead of a"));
        assert!(of("alive", "lists_differ_s", json!(4)).contains("another list of sites than a"));
        assert_eq!(problems(&[site("alive", &[("clock_ahead_ms", json!(-60_000))])]), [""; 0]);
    }

    #[test]
    fn nodes_with_different_sites_disagree() {
        let other = site("alive", &[("address", json!("10.2.0.2:7253"))]);
        let of = |one: &[Value], two: &[Value]| {
            disagreements(&survey_of(&[node("a", one), node("b", two)])).join("\n")
        };
        let plain = [site("alive", &[])];
        assert_eq!(of(&plain, &[site("dead", &[])]), "");
        assert_eq!(
            of(&plain, &[]),
            "members disagree about sites: a has local site1 site2=10.2.0.1:7253; b has local site1"
        );
        assert!(of(&plain, &[other]).contains("b has local site1 site2=10.2.0.2:7253"));
    }
}
