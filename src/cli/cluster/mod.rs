//! `chronos cluster`: shows a cluster and changes its members, over the admin APIs of its nodes.
//! Holds what the four commands share: flags, the survey of all members, the ways to end.

mod change;
mod http;
mod plan;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::http::{RequestError, request};
use self::plan::{Kind, Lists, Procedure};
use crate::cli::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE, print, tell};

/// Addresses asked in one survey: every member at two, and some that are wrong.
const ASKED_MAX: usize = 512;

const EXAMPLES: &str = "\
Examples:
  chronos cluster status --admin 10.0.0.1:7254
  chronos cluster join 10.0.0.4:7253 --admin 10.0.0.1:7254
  chronos cluster leave 10.0.0.2:7253 --admin 10.0.0.1:7254
  chronos cluster leave --dead 10.0.0.2:7253 --admin 10.0.0.1:7254
  chronos cluster resync --admin 10.0.0.1:7254 --json

Nodes are named as all members write them. Admin APIs of members that no --admin names are looked
for at the [cluster] admin_addresses of those that are, and at the member's host under the port of
the first --admin.

join and leave write the members into the configuration files of all nodes, have the timers moved,
wait for it, and write the members again (joining nodes must run already; nodes that left may be
stopped afterwards). Interrupted, they go on when they are run again.

Exit codes:
    0  done, or there was nothing left to do; status: all members answer and agree
    1  failed; what to do is said
    2  wrong command line";

/// Show a cluster, add nodes, remove nodes, compare all timers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ClusterFlags {
    #[command(subcommand)]
    command: ClusterCommand,

    /// Admin API of a live member; may be given several times
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:7254")]
    admin: Vec<String>,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,

    /// Give up waiting for the timers to move after this long
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 3_600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,
}

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Show members, their roles, who believes whom alive, timers and resynchronisation
    Status,
    /// Add running nodes and move their share of the timers to them
    Join {
        /// Names of the nodes, as all members are to write them
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Move all timers away from nodes and remove them
    Leave {
        /// Names of the nodes, as all members write them
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        /// They will never run again: do not ask them; timers that only they had are lost
        #[arg(long)]
        dead: bool,
    },
    /// Have every node compare its timers with those who are to hold them, and wait for it
    Resync,
}

/// One command in the making.
pub(crate) struct Context {
    pub admin: Vec<String>,
    pub json: bool,
    pub timeout: Duration,
}

/// How a command ended well.
pub(crate) struct Outcome {
    /// One sentence.
    pub text: String,
    /// Whether anything had to be done.
    pub is_change: bool,
    /// Timers that were moved.
    pub moved: u64,
    /// The members at the end.
    pub members: Vec<String>,
}

/// What one node says.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Where it was asked.
    pub admin: String,
    /// Its own name.
    pub name: String,
    pub lists: Lists,
    /// What it believes of each member.
    pub believed: Vec<(String, String)>,
    pub is_running: bool,
    pub seen: u64,
    pub total: u64,
    pub misplaced: u64,
    pub moved: u64,
    pub timers: u64,
    /// The whole document.
    pub document: Value,
}

/// What all nodes that could be asked say.
pub(crate) struct Survey {
    /// By name.
    pub reports: BTreeMap<String, Report>,
    /// Members that gave no answer, and what was tried.
    pub missing: BTreeMap<String, String>,
    /// The admin APIs that the operator named.
    pub given: Vec<String>,
}

/// Runs one of the commands; returns the exit code.
pub fn run(flags: &ClusterFlags) -> u8 {
    let context = Context {
        admin: flags.admin.clone(),
        json: flags.json,
        timeout: Duration::from_secs(flags.timeout),
    };
    let result = match &flags.command {
        ClusterCommand::Status => return table::status(&context),
        ClusterCommand::Resync => change::resynchronise(&context),
        ClusterCommand::Join { nodes } | ClusterCommand::Leave { nodes, .. } => {
            if let Some(twice) = twice(nodes) {
                tell(&format!("error: {twice} is named twice; name every node once"));
                return EXIT_USAGE;
            }
            let is_dead = matches!(flags.command, ClusterCommand::Leave { dead: true, .. });
            let kind = match flags.command {
                ClusterCommand::Join { .. } => Kind::Join,
                _ => Kind::Leave,
            };
            let procedure = Procedure { kind, nodes: nodes.clone() };
            change::change(&context, &procedure, is_dead)
        }
    };
    end(&context, result)
}

fn twice(nodes: &[String]) -> Option<&String> {
    let mut seen = BTreeSet::new();
    nodes.iter().find(|node| !seen.insert(*node))
}

/// The one end of every command that does something.
fn end(context: &Context, result: Result<Outcome, String>) -> u8 {
    let code = if result.is_ok() { EXIT_OK } else { EXIT_FAILURE };
    let (document, line) = match result {
        Ok(Outcome { text, is_change, moved, members }) => {
            let outcome = if is_change { "done" } else { "nothing to do" };
            let document = json!({
                "outcome": outcome, "text": text, "moved": moved, "members": members,
            });
            (document, format!("{text}\n"))
        }
        Err(text) => {
            for line in text.lines() {
                tell(&format!("error: {line}"));
            }
            (json!({ "outcome": "failed", "text": text }), String::new())
        }
    };
    let printed = if context.json { format!("{document:#}\n") } else { line };
    code.max(print(&printed))
}

impl Context {
    /// A line for whoever watches; none for programs.
    pub fn say(&self, line: &str) {
        if !self.json {
            // Where nobody can read it, the command goes on all the same.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    /// Asks the given admin APIs, then those of all members that they name and of `others`, but not
    /// of `without`. `Err`: nobody answers.
    pub fn survey(&self, others: &[String], without: &[String]) -> Result<Survey, String> {
        let (reports, missing) = (BTreeMap::new(), BTreeMap::new());
        let mut survey = Survey { reports, missing, given: self.admin.clone() };
        let mut asked: BTreeMap<String, String> = BTreeMap::new();
        let mut to_ask: VecDeque<String> = self.admin.iter().cloned().collect();
        while asked.len() < ASKED_MAX {
            if let Some(admin) = to_ask.pop_front() {
                if asked.contains_key(&admin) {
                    continue;
                }
                let result = ask(&admin);
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

    /// Where a member's admin API may be: at its host, at the port of the first that was given.
    fn guess(&self, name: &str) -> Option<String> {
        let (_, port) = self.admin.first()?.rsplit_once(':')?;
        Some(format!("{}:{port}", host_of(name)))
    }
}

impl Survey {
    /// Members named by anybody that have not answered.
    fn find_missing(&self, others: &[String], without: &[String]) -> BTreeMap<String, String> {
        let members = self.reports.values().flat_map(|report| report.lists.everybody());
        let wanted: BTreeSet<&String> = members.chain(others).collect();
        wanted
            .into_iter()
            .filter(|name| !without.contains(name) && !self.reports.contains_key(*name))
            .map(|name| (name.clone(), String::new()))
            .collect()
    }

    /// Drops nodes that answered under a given address and are neither members nor among those
    /// meant: such as have left and run on, or are to join. Returns their names.
    pub fn forget_strangers(&mut self, meant: &[String]) -> Vec<String> {
        let listed = |name: &String| {
            let mut others = self.reports.values().filter(|report| report.name != *name);
            others.any(|report| report.lists.everybody().any(|member| member == name))
        };
        let is_stranger = |report: &&Report| {
            report.lists.everybody().all(|member| *member == report.name)
                && !meant.contains(&report.name)
                && !listed(&report.name)
        };
        let mut strangers: Vec<String> =
            self.reports.values().filter(is_stranger).map(|report| report.name.clone()).collect();
        let mut rest = self.reports.keys().filter(|name| !strangers.contains(name));
        if !rest.any(|name| !meant.contains(name)) {
            // One that is alone may be the cluster that others are to join: the one that was asked
            // by the operator, if only others are known by their addresses alone.
            let is_given = |name: &String| self.given.contains(&self.reports[name].admin);
            if !strangers.iter().any(is_given) {
                return Vec::new();
            }
            strangers.retain(|name| !is_given(name));
        }
        self.reports.retain(|name, _| !strangers.contains(name));
        strangers
    }

    /// `Err` if a member has not answered.
    pub fn refuse_missing(&self) -> Result<(), String> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let told: Vec<_> =
            self.missing.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        let names: Vec<_> = self.missing.keys().map(String::as_str).collect();
        Err(format!(
            "not all nodes answer: {}. Start them; or say where their admin APIs are with further \
             --admin, or [cluster] admin_addresses; or, if they will never run again, first \
             chronos cluster leave --dead {}",
            told.join("; "),
            names.join(" ")
        ))
    }
}

/// Asks one admin API for its cluster.
pub(crate) fn ask(admin: &str) -> Result<Report, RequestError> {
    let document = request(admin, "GET", "/cluster", None)?;
    let lists = |name: &str| names(&document["membership"][name]);
    let count = |name: &str| document["resynchronisation"][name].as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = document["members"].as_array().into_iter().flatten();
    Ok(Report {
        admin: admin.to_owned(),
        name: text(&document["name"]),
        lists: Lists {
            nodes: lists("nodes"),
            joining: lists("joining"),
            leaving: lists("leaving"),
        },
        believed: members.map(|m| (text(&m["name"]), text(&m["liveness"]))).collect(),
        // A node that does not say so is not known to be at rest.
        is_running: document["resynchronisation"]["is_running"].as_bool().unwrap_or(true),
        seen: count("seen"),
        total: count("total"),
        misplaced: count("misplaced"),
        moved: count("moved"),
        timers: document["timers"].as_u64().unwrap_or(0),
        document,
    })
}

fn addresses_of(document: &Value) -> Vec<String> {
    names(&document["admin_addresses"])
}

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The host of `host`, `host:port` or `[address]:port`.
fn host_of(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_api_is_looked_for_at_the_host_of_its_node() {
        let admin = vec!["10.0.0.1:7254".into()];
        let context = Context { admin, json: false, timeout: Duration::from_secs(1) };
        for (name, guess) in [
            ("10.0.0.2:7253", "10.0.0.2:7254"),
            ("node-2", "node-2:7254"),
            ("[fd00::2]:7253", "[fd00::2]:7254"),
            ("[fd00::2]", "[fd00::2]:7254"),
        ] {
            assert_eq!(context.guess(name).as_deref(), Some(guess));
        }
    }

    fn report(name: &str, nodes: &[&str]) -> (String, Report) {
        let lists = Lists {
            nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
            joining: Vec::new(),
            leaving: Vec::new(),
        };
        let report = Report {
            admin: format!("at {name}"),
            name: name.to_owned(),
            lists,
            believed: Vec::new(),
            is_running: false,
            seen: 0,
            total: 0,
            misplaced: 0,
            moved: 0,
            timers: 0,
            document: Value::Null,
        };
        (name.to_owned(), report)
    }

    #[test]
    fn a_node_that_has_left_is_no_member_and_one_that_is_listed_is() {
        let forgotten = |reports: Vec<(String, Report)>, meant: &[&str]| {
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

    #[test]
    fn a_node_named_twice_is_found() {
        let nodes = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(twice(&nodes).map(String::as_str), Some("a"));
        assert_eq!(twice(&nodes[..2]), None);
    }
}
