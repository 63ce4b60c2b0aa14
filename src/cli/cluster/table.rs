//! `chronos cluster status`: one line per member, one per other site, then the problems; and
//! `chronos site list`: the sites alone.

use std::time::{Duration, Instant};

use serde_json::json;

use super::context::Context;
use super::sites;
use super::survey::{NodeReport, Survey};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK};
use crate::cli::shown;
use crate::cli::terminal::{failed, print, tell};

/// Pause between two looks of who waits.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Shows the cluster and returns the exit code. The code is 0 if all members answer and agree, have
/// read their journals, have met each other and the other sites, and take writes, and if the sites
/// lack nothing. A node that answers and is no member is mentioned, and is no problem.
///
/// `wait`: how long to wait for that.
pub(crate) fn status(context: &Context, wait: Option<Duration>) -> u8 {
    let mut survey = match surveyed(context, wait, problems) {
        Ok(survey) => survey,
        Err(error) => return failed(context.json, &error, EXIT_FAILURE),
    };
    let strangers = survey.forget_strangers(&[]);
    let problems = problems(&survey);
    let text = if context.json {
        let nodes: Vec<_> = survey.reports.values().map(|report| &report.document).collect();
        format!("{:#}\n", json!({ "nodes": nodes, "problems": problems, "strangers": strangers }))
    } else {
        let strangers = strangers
            .iter()
            .map(|name| format!("{name} answers and is no member: it has left, or is to join\n"));
        let problems = problems.iter().map(|text| format!("problem: {text}\n"));
        table(&survey) + &strangers.chain(problems).collect::<String>()
    };
    let code = if problems.is_empty() { EXIT_OK } else { EXIT_FAILURE };
    code.max(print(&text))
}

/// Shows the other sites and returns the exit code. The code is 0 if all members answer, agree
/// about the sites and reach them, and if the sites lack nothing.
///
/// `wait`: how long to wait for that.
pub(crate) fn show_sites(context: &Context, wait: Option<Duration>) -> u8 {
    let mut survey = match surveyed(context, wait, problems_of_sites) {
        Ok(survey) => survey,
        Err(error) => return failed(context.json, &error, EXIT_FAILURE),
    };
    survey.forget_strangers(&[]);
    let problems = problems_of_sites(&survey);
    let text = if context.json {
        let nodes: Vec<_> = survey
            .reports
            .values()
            .map(|report| {
                let NodeReport { name, document, .. } = report;
                json!({ "name": name, "site": document["site"], "sites": document["sites"] })
            })
            .collect();
        format!("{:#}\n", json!({ "nodes": nodes, "problems": problems }))
    } else {
        let first = survey.reports.values().next().expect("a survey has an answer");
        let own = first.document["site"].as_str().unwrap_or_default();
        let problems: String = problems.iter().map(|text| format!("problem: {text}\n")).collect();
        match sites::table(&survey) {
            none if none.is_empty() => {
                format!("no other site holds the timers of {own}\n{problems}")
            }
            table => format!("{table}seen from {own}\n{problems}"),
        }
    };
    let code = if problems.is_empty() { EXIT_OK } else { EXIT_FAILURE };
    code.max(print(&text))
}

/// Looks at the cluster, again and again until all is well or the time to wait is over. `problems`
/// finds what is not well.
fn surveyed(
    context: &Context,
    wait: Option<Duration>,
    problems: fn(&Survey) -> Vec<String>,
) -> Result<Survey, String> {
    let end = wait.map(|wait| Instant::now() + wait);
    let mut is_told = false;
    loop {
        let survey = context.survey(&[], &[]);
        let left = end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
        let is_well = survey.as_ref().is_ok_and(|survey| problems(survey).is_empty());
        if is_well || left.is_zero() {
            return survey;
        }
        if !is_told {
            let seconds = left.as_secs_f64().ceil();
            let admin = context.admin.join(", ");
            tell(&format!("waiting for the nodes of {admin}, for {seconds} s at most"));
            is_told = true;
        }
        std::thread::sleep(LOOK_EVERY.min(left));
    }
}

/// Returns what is wrong with the other sites. Empty if all is well.
fn problems_of_sites(survey: &Survey) -> Vec<String> {
    let mut problems = missing(survey);
    problems.extend(sites::disagreements(survey));
    problems.extend(survey.reports.values().flat_map(sites::problems_of));
    problems
}

fn missing(survey: &Survey) -> Vec<String> {
    survey.missing.iter().map(|(name, why)| format!("{name} does not answer: {why}")).collect()
}

/// Returns what an operator should know. Empty if all is well.
fn problems(survey: &Survey) -> Vec<String> {
    let mut problems = missing(survey);
    problems.extend(survey.disagreements());
    problems.extend(sites::disagreements(survey));
    for report in survey.reports.values() {
        for (name, belief) in &report.believed {
            let why = why_not_met(&report.document);
            match belief.as_str() {
                "dead" | "suspect" => {
                    problems.push(format!("{} believes {name} {belief}{why}", report.name));
                }
                "unknown" => {
                    problems
                        .push(format!("{} has not met {name} since its start{why}", report.name));
                }
                _ => {}
            }
        }
        problems.extend(sites::problems_of(report));
        if report.document["is_recovering"] == true {
            problems.push(format!("{} reads its journal, and serves nobody yet", report.name));
        }
        if let Some(why) = report.document["takes_no_writes"].as_str() {
            problems.push(format!("{}: {why}", report.name));
        }
        if report.document["clock"]["is_refused"] == true {
            problems.push(format!(
                "{}: its wall clock differs from that of most other nodes by more than \
                 cluster.clock_skew_max_ms: it takes no writes until that is set",
                report.name
            ));
        }
        if report.document["is_full"] == true {
            problems.push(format!(
                "{}: it has no room for timers that it is to hold (limits.timers_max, \
                 limits.store_bytes_max)",
                report.name
            ));
        }
        if let Some(lacking @ 1..) = report.document["timers_lacking"].as_u64() {
            problems.push(format!(
                "{}: {lacking} of its timers have fewer copies than they are to have, for no other \
                 node has room",
                report.name
            ));
        }
        if let Some(error) = report.document["reload_error"]["text"].as_str() {
            problems.push(format!("{}: the last reload failed: {error}", report.name));
        }
    }
    problems
}

/// Says what may keep a node from the members that it does not reach; empty if nothing is known.
fn why_not_met(document: &serde_json::Value) -> String {
    match document["peers_unproven"].as_u64() {
        None | Some(0) => String::new(),
        Some(count) => format!(
            " (it has refused, or was refused, {count} times for want of a proof that both know \
             the cluster's secret: give all nodes the same cluster.secret_file)"
        ),
    }
}

fn table(survey: &Survey) -> String {
    let head = ["NODE", "ROLE", "LIVENESS", "TIMERS", "KEPT BYTES", "RESYNCHRONISATION"];
    let mut rows = vec![head.map(str::to_owned)];
    let mut names: Vec<&String> = Vec::new();
    for name in survey.reports.values().flat_map(|report| report.lists.everybody()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in &names {
        rows.push(row(survey, name));
    }
    let first = survey.reports.values().next().expect("a survey has an answer");
    let site = first.document["site"].as_str().unwrap_or_default();
    let view = first.document["view_id"].as_str().unwrap_or_default();
    let nodes = if names.len() == 1 { "1 node" } else { &format!("{} nodes", names.len()) };
    let (members, sites) = (shown::table(&rows), sites::table(survey));
    format!("{members}{nodes}, site {site}, cluster view {view}\n{sites}")
}

fn row(survey: &Survey, name: &str) -> [String; 6] {
    let others = survey.reports.values().filter(|report| report.name != name);
    let beliefs: Vec<&str> = others.clone().filter_map(|report| belief(report, name)).collect();
    let answers = survey.reports.get(name);
    let liveness = match beliefs.first() {
        None if answers.is_some() => "answers",
        None => "no answer",
        Some(first) if beliefs.iter().all(|belief| belief == first) => first,
        Some(_) => "disputed",
    };
    let kept: u64 = others.filter_map(|report| member(report, name)?["kept_bytes"].as_u64()).sum();
    let role = survey.reports.values().find_map(|report| member(report, name)?["role"].as_str());
    let (timers, work) = match answers {
        Some(report) => (report.timers.to_string(), work(report)),
        None => ("?".into(), "?".into()),
    };
    let role = role.unwrap_or("?").to_owned();
    [name.to_owned(), role, liveness.to_owned(), timers, kept.to_string(), work]
}

fn work(report: &NodeReport) -> String {
    match (report.is_running, report.misplaced) {
        (false, 0) => "at rest".into(),
        (false, left) => format!("{left} to move"),
        (true, left) => format!("{} of {} seen, {left} to move", report.seen, report.total),
    }
}

fn belief<'a>(report: &'a NodeReport, name: &str) -> Option<&'a str> {
    report.believed.iter().find(|(other, _)| other == name).map(|(_, belief)| belief.as_str())
}

fn member<'a>(report: &'a NodeReport, name: &str) -> Option<&'a serde_json::Value> {
    report.document["members"].as_array()?.iter().find(|member| member["name"] == name)
}

#[cfg(test)]
mod tests {
    use super::super::survey::survey_of;
    use super::*;

    #[test]
    fn all_is_well_only_when_everybody_is_known_and_has_read_its_journal() {
        let of = |liveness: &str, more: (&str, serde_json::Value)| {
            let members = json!([{"name": "a", "liveness": "self"},
                                 {"name": "b", "liveness": liveness}]);
            let mut document = json!({"name": "a", "members": members});
            document[more.0] = more.1;
            problems(&survey_of(&[document]))
        };
        let none = || ("x", json!(null));
        assert_eq!(of("alive", none()), [""; 0]);
        assert_eq!(of("unknown", none()), ["a has not met b since its start"]);
        assert_eq!(of("dead", none()), ["a believes b dead"]);
        assert!(of("alive", ("is_recovering", json!(true)))[0].contains("reads its journal"));
        assert_eq!(of("alive", ("is_recovering", json!(false))), [""; 0]);
        assert_eq!(of("alive", ("takes_no_writes", json!("why"))), ["a: why"]);
    }

    #[test]
    fn a_peer_without_the_secret_is_told_of_where_it_is_not_reached() {
        assert_eq!(why_not_met(&json!({})), "");
        assert_eq!(why_not_met(&json!({ "peers_unproven": 0 })), "");
        let text = why_not_met(&json!({ "peers_unproven": 3 }));
        assert!(text.contains("3 times") && text.contains("cluster.secret_file"), "{text}");
    }
}
