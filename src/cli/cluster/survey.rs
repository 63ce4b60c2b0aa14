//! A survey of a cluster: the answers of all nodes that can be found and asked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::context::Context;
use super::plan::Lists;
use crate::cli::admin_client::{AdminError, needed};
use crate::control::http_client::{is_over_tls, place_in};

/// Most addresses asked in one survey: every member at two addresses, and some wrong ones.
const ASKED_MAX: usize = 512;

/// What one node says of itself and its cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReport {
    /// The admin address at which the node was asked.
    pub admin: String,
    /// The node's name.
    pub name: String,
    pub lists: Lists,
    /// Why no order can change the members of this node; `None` if one can.
    pub fixed: Option<String>,
    /// What the node believes of each member: name and belief.
    pub believed: Vec<(String, String)>,
    pub is_running: bool,
    pub seen: u64,
    pub total: u64,
    pub misplaced: u64,
    pub moved: u64,
    pub timers: u64,
    /// The whole document that the node answered.
    pub document: Value,
}

/// The answers of all nodes that could be asked.
pub(crate) struct Survey {
    /// The answers by name of the node.
    pub reports: BTreeMap<String, NodeReport>,
    /// Members that gave no answer, each with what was tried.
    pub missing: BTreeMap<String, String>,
    /// The admin addresses that the operator named.
    pub given: Vec<String>,
}

impl Context {
    /// Asks the given admin APIs, then the admin APIs of `others` and of all members that answers
    /// name. Nodes of `without` are not looked for. An error means that no node answers.
    pub(super) fn survey(&self, others: &[String], without: &[String]) -> Result<Survey, String> {
        let (reports, missing) = (BTreeMap::new(), BTreeMap::new());
        let mut survey = Survey { reports, missing, given: self.admin.clone() };
        let mut asked: BTreeMap<String, String> = BTreeMap::new();
        let mut to_ask: VecDeque<String> = self.admin.iter().cloned().collect();
        while asked.len() < ASKED_MAX {
            if let Some(admin) = to_ask.pop_front() {
                if asked.contains_key(&admin) {
                    continue;
                }
                let result = self.ask(&admin);
                let said = result.as_ref().err().map_or("another node".into(), ToString::to_string);
                asked.insert(admin, said);
                if let Ok(report) = result {
                    to_ask.extend(addresses_of(&report.document));
                    survey.reports.entry(report.name.clone()).or_insert(report);
                }
                continue;
            }
            survey.missing = survey.find_missing(others, without);
            let guesses = survey.missing.keys().filter_map(|name| self.guess(name));
            let fresh: Vec<_> = guesses.filter(|guess| !asked.contains_key(guess)).collect();
            if fresh.is_empty() {
                break;
            }
            to_ask.extend(fresh);
        }
        if survey.reports.is_empty() {
            let tried: Vec<_> = asked.iter().map(|(at, why)| format!("{at}: {why}")).collect();
            return Err(format!(
                "no node answers ({}). Name the admin API of a live member with --admin",
                tried.join("; ")
            ));
        }
        for (name, told) in &mut survey.missing {
            let guess = self.guess(name).unwrap_or_default();
            *told =
                format!("tried {guess}: {}", asked.get(&guess).map_or("not asked", String::as_str));
        }
        Ok(survey)
    }

    /// Guesses where a member's admin API is: at the member's host, at the port of the first
    /// address that was given, over TLS if that is.
    fn guess(&self, name: &str) -> Option<String> {
        let first = self.admin.first()?;
        let (_, port) = place_in(first).rsplit_once(':')?;
        let scheme = if is_over_tls(first) { "https://" } else { "" };
        Some(format!("{scheme}{}:{port}", host_of(name)))
    }
}

impl Survey {
    /// Returns the members that some answer names and that have not answered.
    fn find_missing(&self, others: &[String], without: &[String]) -> BTreeMap<String, String> {
        let members = self.reports.values().flat_map(|report| report.lists.everybody());
        let wanted: BTreeSet<&String> = members.chain(others).collect();
        wanted
            .into_iter()
            .filter(|name| !without.contains(name) && !self.reports.contains_key(*name))
            .map(|name| (name.clone(), String::new()))
            .collect()
    }

    /// Drops nodes that answered and are neither members nor in `meant`, for instance nodes that
    /// have left and still run, or that will join later. Returns their names.
    pub(super) fn forget_strangers(&mut self, meant: &[String]) -> Vec<String> {
        let listed = |name: &String| {
            let mut others = self.reports.values().filter(|report| report.name != *name);
            others.any(|report| report.lists.everybody().any(|member| member == name))
        };
        let is_stranger = |report: &&NodeReport| {
            report.lists.everybody().all(|member| *member == report.name)
                && !meant.contains(&report.name)
                && !listed(&report.name)
        };
        let mut strangers: Vec<String> =
            self.reports.values().filter(is_stranger).map(|report| report.name.clone()).collect();
        let mut rest = self.reports.keys().filter(|name| !strangers.contains(name));
        if !rest.any(|name| !meant.contains(name)) {
            // A node that is alone may be the cluster that others should join. That is the node
            // that the operator gave with --admin, if the other nodes were found by their addresses
            // alone.
            let is_given = |name: &String| self.given.contains(&self.reports[name].admin);
            if !strangers.iter().any(is_given) {
                return Vec::new();
            }
            strangers.retain(|name| !is_given(name));
        }
        self.reports.retain(|name, _| !strangers.contains(name));
        strangers
    }

    /// Says which members have other lists than the first that answers. Empty if all agree.
    pub(super) fn disagreements(&self) -> Vec<String> {
        let mut reports = self.reports.values();
        let Some(first) = reports.next() else { return Vec::new() };
        let others = reports.filter(|other| !other.lists.is_same(&first.lists));
        let told = others.map(|other| {
            format!(
                "members disagree: {} has {}; {} has {}",
                first.name, first.lists, other.name, other.lists
            )
        });
        told.collect()
    }

    /// Returns an error if a member has not answered that is not in `dead`. The command in the
    /// error names these too: to leave one after the other, each would wait for the other.
    pub(super) fn refuse_missing(&self, dead: &[String]) -> Result<(), String> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let told: Vec<_> =
            self.missing.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        let names = dead.iter().chain(self.missing.keys()).map(String::as_str);
        let names: Vec<_> = names.collect();
        Err(format!(
            "not all nodes answer: {}. Start them; or say where their admin APIs are with further \
             --admin, or [cluster] admin_addresses; or, if they will never run again, first \
             chronos cluster leave --dead {}",
            told.join("; "),
            names.join(" ")
        ))
    }
}

impl Context {
    /// Asks one admin API for `/cluster`.
    pub(super) fn ask(&self, admin: &str) -> Result<NodeReport, AdminError> {
        let document = self.request(admin, "GET", "/cluster", None)?;
        for member in ["name", "membership"] {
            needed(admin, 200, &document, member)?;
        }
        let lists = |name: &str| names(&document["membership"][name]);
        let count = |name: &str| document["resynchronisation"][name].as_u64().unwrap_or(0);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let members = document["members"].as_array().into_iter().flatten();
        Ok(NodeReport {
            admin: admin.to_owned(),
            name: text(&document["name"]),
            lists: Lists {
                nodes: lists("nodes"),
                joining: lists("joining"),
                leaving: lists("leaving"),
            },
            fixed: document["membership_fixed"].as_str().map(str::to_owned),
            believed: members.map(|m| (text(&m["name"]), text(&m["liveness"]))).collect(),
            // A node that does not say whether it is at rest counts as running.
            is_running: document["resynchronisation"]["is_running"].as_bool().unwrap_or(true),
            seen: count("seen"),
            total: count("total"),
            misplaced: count("misplaced"),
            moved: count("moved"),
            timers: document["timers"].as_u64().unwrap_or(0),
            document,
        })
    }
}

/// The answers of nodes that answer with these documents. Their lists are empty.
#[cfg(test)]
pub(super) fn survey_of(documents: &[Value]) -> Survey {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let report = |document: &Value| {
        let members = document["members"].as_array().into_iter().flatten();
        let report = NodeReport {
            name: text(&document["name"]),
            believed: members.map(|it| (text(&it["name"]), text(&it["liveness"]))).collect(),
            document: document.clone(),
            ..NodeReport::default()
        };
        (text(&document["name"]), report)
    };
    let reports = documents.iter().map(report).collect();
    Survey { reports, missing: BTreeMap::new(), given: Vec::new() }
}

fn addresses_of(document: &Value) -> Vec<String> {
    names(&document["admin_addresses"])
}

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Returns the host of `host`, `host:port` or `[address]:port`.
fn host_of(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::admin_client::{AdminClient, TlsFlags};

    #[test]
    fn an_admin_api_is_looked_for_at_the_host_of_its_node() {
        let admin = vec!["10.0.0.1:7254".into()];
        let client = AdminClient::new(&TlsFlags::default()).expect("no files");
        let timeout = Duration::from_secs(1);
        let mut context = Context { admin, client, json: false, timeout };
        for (name, guess) in [
            ("10.0.0.2:7253", "10.0.0.2:7254"),
            ("node-2", "node-2:7254"),
            ("[fd00::2]:7253", "[fd00::2]:7254"),
            ("[fd00::2]", "[fd00::2]:7254"),
        ] {
            assert_eq!(context.guess(name).as_deref(), Some(guess));
        }
        context.admin = vec!["https://10.0.0.1:7255/".into()];
        assert_eq!(context.guess("[fd00::2]:7253").as_deref(), Some("https://[fd00::2]:7255"));
    }

    #[test]
    fn one_command_names_all_nodes_that_are_dead() {
        let missing = [("c".to_owned(), "tried c".to_owned())].into();
        let survey = Survey { reports: BTreeMap::new(), missing, given: Vec::new() };
        let told = |dead: &[String]| survey.refuse_missing(dead).expect_err("c is missing");
        assert!(told(&["b".to_owned()]).ends_with("leave --dead b c"));
        assert!(told(&[]).ends_with("leave --dead c"));
    }

    fn report(name: &str, nodes: &[&str]) -> (String, NodeReport) {
        let nodes = nodes.iter().map(|&name| name.to_owned()).collect();
        let lists = Lists { nodes, ..Lists::default() };
        let report = NodeReport {
            admin: format!("at {name}"),
            name: name.to_owned(),
            lists,
            ..NodeReport::default()
        };
        (name.to_owned(), report)
    }

    #[test]
    fn a_node_that_has_left_is_no_member_and_one_that_is_listed_is() {
        let forgotten = |reports: Vec<(String, NodeReport)>, meant: &[&str]| {
            let meant: Vec<String> = meant.iter().map(|&name| name.to_owned()).collect();
            let reports = reports.into_iter().collect();
            let given = vec!["at a".to_owned()];
            Survey { reports, missing: BTreeMap::new(), given }.forget_strangers(&meant)
        };
        let left = || vec![report("a", &["a", "b"]), report("b", &["a", "b"]), report("c", &["c"])];
        assert_eq!(forgotten(left(), &[]), ["c"]);
        assert_eq!(forgotten(left(), &["c"]), [""; 0], "it is to join");
        let lost = vec![report("a", &["a", "c"]), report("c", &["c"])];
        assert_eq!(forgotten(lost, &[]), [""; 0], "it has lost its file");
        let apart = |one, other| vec![report(one, &[one]), report(other, &[other])];
        assert_eq!(forgotten(apart("a", "c"), &[]), ["c"], "a was asked, and c is in its file");
        assert_eq!(forgotten(apart("a", "c"), &["c"]), [""; 0], "it is to join");
        assert_eq!(forgotten(apart("b", "c"), &[]), [""; 0], "nobody knows which is the cluster");
    }
}
