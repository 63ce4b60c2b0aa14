//! Alarms of Prometheus and dashboards of Grafana against the metrics of a node.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use kit::children::{Tied, command};
use kit::client::request;
use kit::documents::{expect_none, files_below, read};
use serde_json::Value;

use crate::yaml::{document_of, list, text};
use crate::{CHRONOS, chronos, other};

const RULES: &str = "packaging/prometheus/chronos.rules.yml";

/// Names of metrics in an expression. Labels of a recorded rule and of `job="chronos"` are none.
fn names_in(expression: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(move |c| !is_part(c));
    words.filter(|word| word.starts_with("chronos_"))
}

/// The names of the samples that a node with a journal and with timestamps serves.
fn served() -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    chronos(&["timestamp", "init", "--file", &place("timestamp")]);
    let mut node = command(CHRONOS);
    node.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--shards", "1", "--no-pin"]);
    node.args(["--log-format", "json", "--data-dir", &place("data")]).env_clear();
    node.env("CHRONOS_TIMESTAMP_ENABLED", "true").env("CHRONOS_TIMESTAMP_LISTEN", "127.0.0.1:0");
    node.env("CHRONOS_TIMESTAMP_FILE", place("timestamp"));
    let mut node = node.stderr(Stdio::piped()).spawn_tied().expect("the binary runs");
    let mut lines = BufReader::new(node.stderr.take().expect("piped")).lines();
    let admin = lines.by_ref().find_map(|line| {
        let line = line.expect("text");
        let event: Value = serde_json::from_str(&line).expect("a line of JSON");
        let place = event["message"].as_str()?.strip_prefix("admin API on http://")?;
        place.split(": ").next()?.parse().ok()
    });
    let admin = admin.expect("the node tells where its admin API is");
    let page = request(admin, "GET", "/metrics", "").expect("an answer").body;
    node.kill().and_then(|()| node.wait()).expect("it was running");
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())).collect()
}

/// All expressions of a dashboard, wherever they stand.
fn expressions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| match member {
            Value::String(text) if ["expr", "query"].contains(&name.as_str()) => found.push(text),
            _ => expressions(member, found),
        }),
        Value::Array(list) => list.iter().for_each(|each| expressions(each, found)),
        _ => {}
    }
}

pub fn names_are_served() {
    let served = served();
    assert!(served.len() > 150, "{} names", served.len());
    let mut findings = Vec::new();
    let rules = document_of(RULES);
    let all = list(&rules, "groups").iter().flat_map(|group| list(group, "rules"));
    let all: Vec<&Value> = all.collect();
    let recorded: BTreeSet<&str> =
        all.iter().filter_map(|rule| rule.get("record")?.as_str()).collect();
    for rule in &all {
        for name in names_in(text(rule, "expr")) {
            if !served.contains(name) {
                findings.push(format!("{RULES}: no metric {name}"));
            }
        }
    }
    let mut panels = 0;
    for name in files_below("packaging/grafana") {
        let dashboard: Value = serde_json::from_str(&read(&name)).expect(&name);
        panels += list(&dashboard, "panels").len();
        let mut ids: Vec<i64> = list(&dashboard, "panels")
            .iter()
            .map(|one| one["id"].as_i64().expect("an id"))
            .collect();
        ids.dedup();
        assert_eq!(ids.len(), list(&dashboard, "panels").len(), "{name}: ids");
        let mut found = Vec::new();
        expressions(&dashboard, &mut found);
        assert!(found.len() > 10, "{name}: {found:?}");
        for metric in found.iter().flat_map(|expression| names_in(expression)) {
            if !served.contains(metric) {
                findings.push(format!("{name}: no metric {metric}"));
            }
        }
    }
    assert!(panels > 20 && recorded.len() > 2, "{panels} panels, {recorded:?}");
    expect_none(&findings);
    assert_eq!(names_in("rate(chronos_a_total{job=\"chronos\"}[5m]) > x").count(), 1);
}

pub fn alarms_are_tested() {
    let rules = document_of(RULES);
    let tests = read("packaging/prometheus/chronos_test.yml");
    let all = list(&rules, "groups").iter().flat_map(|group| list(group, "rules"));
    let names: Vec<&str> = all.filter_map(|rule| rule.get("alert")?.as_str()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "no test lets {name} ring");
    }
    other("promtool", &["check", "rules", RULES]);
    other("promtool", &["test", "rules", "packaging/prometheus/chronos_test.yml"]);
}

/// What a node calls an alarm (`src/control/admin/alarm_conditions.rs`) is one for Prometheus, too.
pub fn alarms_of_nodes_ring() {
    let (rules, conditions) = (read(RULES), read("src/control/admin/alarm_conditions.rs"));
    let mut findings = Vec::new();
    let mut seen = 0;
    for condition in conditions.split("    Condition {\n").skip(1) {
        let name = condition.split('"').nth(1).expect("a name");
        let figure = condition.split("what:").next().unwrap_or_default();
        for read in figure.split(".get()").filter(|read| read.contains("core")) {
            let field = read.rsplit('.').next().expect("a field").trim();
            let metric = match field.strip_suffix("_ms") {
                Some(stem) => format!("chronos_{stem}_seconds"),
                None => format!("chronos_{field}"),
            };
            seen += 1;
            if !rules.contains(&metric) {
                findings.push(format!("alarm {name}: no rule of {RULES} looks at {metric}"));
            }
        }
    }
    assert!(seen > 40, "{seen}");
    expect_none(&findings);
}

pub fn alarms_say_what_to_do() {
    let rules = document_of(RULES);
    for rule in list(&rules, "groups").iter().flat_map(|group| list(group, "rules")) {
        if rule.get("alert").is_none() {
            continue;
        }
        let severity = text(rule, "labels/severity");
        assert!(["page", "ticket"].contains(&severity), "{rule}");
        assert!(text(rule, "annotations/summary").len() > 10, "{rule}");
        assert!(text(rule, "annotations/action").len() > 10, "{rule}");
    }
}
