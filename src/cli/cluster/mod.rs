//! `chronos cluster`: shows a cluster and changes its members, over the admin APIs of its nodes.
//! `certs` asks no node. This file has the flags of the commands, and prints how each ends.

mod certs;
mod change;
mod context;
mod nodes;
mod plan;
mod request;
pub(super) mod site;
mod site_change;
mod site_plan;
mod sites;
mod survey;
mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use self::certs::CertsFlags;
use self::context::{Context, Success};
use self::plan::{ChangeKind, Procedure};
use crate::cli::admin_client::{AdminClient, TlsFlags};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use crate::cli::lasting::whole_seconds_in;
use crate::cli::progress::silence;
use crate::cli::shown::{clean, json_text};
use crate::cli::terminal::{failed, print, tell};

const EXAMPLES: &str = "\
Examples:
  chronos cluster status --admin 10.0.0.1:7254
  chronos cluster status --wait 30              right after the start of the nodes
  chronos cluster join 10.0.0.4:7253 --admin 10.0.0.1:7254
  chronos cluster leave 10.0.0.2:7253 --admin 10.0.0.1:7254
  chronos cluster leave --dead 10.0.0.2:7253 --admin 10.0.0.1:7254
  chronos cluster resync --admin 10.0.0.1:7254 --json
  chronos cluster status --admin https://10.0.0.1:7255 --ca ca.pem
  chronos cluster certs --help                  certificates for TLS

Nodes are named as all members write them. Admin APIs of members that no --admin names are looked
for at the [cluster] admin_addresses of those that are, and at the member's host under the port of
the first --admin, over TLS if that is.

join and leave write the members into the configuration files of all nodes, have the timers moved,
wait for it, and write the members again (joining nodes must run already; nodes that left may be
stopped afterwards). Interrupted, they go on when they are run again.

Where tokens are needed (auth.tokens_file), CHRONOS_TOKEN has that of an operator. It goes over TLS
(https://) or to this machine only.

Exit codes:
    0  done, or there was nothing left to do; status: all members answer and agree
    1  failed, what to do is said; resync: a member did not take part, or the members disagree
    2  wrong command line";

/// Show a cluster, add nodes, remove nodes, compare all timers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ClusterFlags {
    #[command(subcommand)]
    command: ClusterCommand,

    #[command(flatten)]
    common: CommonFlags,
}

/// What the commands on a cluster and those on its sites have in common.
#[derive(Debug, Args)]
pub(super) struct CommonFlags {
    /// Admin API of a live member, over TLS with https:// before it; may be given several times
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:7254")]
    admin: Vec<String>,

    #[command(flatten)]
    tls: TlsFlags,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,

    /// Give up waiting for the timers to move after this long
    #[arg(long, global = true, value_name = "DURATION", default_value_t = 3_600)]
    #[arg(value_parser = timeout)]
    timeout: u64,
}

impl CommonFlags {
    /// What the commands work with. Error: the exit code, and why is told.
    fn context(&self) -> Result<Context, u8> {
        let client = AdminClient::new(&self.tls);
        let client = client.map_err(|reason| failed(self.json, &reason, EXIT_USAGE))?;
        if self.json {
            silence();
        }
        Ok(Context {
            admin: self.admin.clone(),
            client,
            json: self.json,
            timeout: Duration::from_secs(self.timeout),
        })
    }
}

fn timeout(text: &str) -> Result<u64, String> {
    whole_seconds_in(text, &(1..=604_800))
}

fn wait(text: &str) -> Result<u64, String> {
    whole_seconds_in(text, &(1..=86_400))
}

/// The commands of `chronos cluster`.
#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Show the members with roles, beliefs about each other, timers and resynchronisation
    Status {
        /// Wait so long at most until all members answer and agree
        #[arg(long, value_name = "DURATION", value_parser = wait)]
        wait: Option<u64>,
    },
    /// Add running nodes and move their share of the timers to them
    Join {
        /// Names of the nodes, as all members will write them in their configuration
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Move all timers away from nodes and remove them
    Leave {
        /// Names of the nodes, as all members write them in their configuration
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        /// The nodes will never run again: do not ask them; timers that only they held are lost
        #[arg(long)]
        dead: bool,
    },
    /// Make every node compare its timers with the other nodes, and wait until that is done
    Resync,
    Certs(CertsFlags),
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &ClusterFlags) -> u8 {
    let context = match flags.common.context() {
        Ok(context) => context,
        Err(code) => return code,
    };
    let result = match &flags.command {
        ClusterCommand::Status { wait } => {
            return table::status(&context, wait.map(Duration::from_secs));
        }
        ClusterCommand::Certs(flags) => return made(&context, certs::run(flags)),
        ClusterCommand::Resync => change::resynchronise(&context),
        ClusterCommand::Join { nodes } | ClusterCommand::Leave { nodes, .. } => {
            if let Some(twice) = twice(nodes) {
                let told = format!("{twice} is named twice; name every node once");
                return failed(context.json, &told, EXIT_USAGE);
            }
            let is_dead = matches!(flags.command, ClusterCommand::Leave { dead: true, .. });
            let kind = match flags.command {
                ClusterCommand::Join { .. } => ChangeKind::Join,
                _ => ChangeKind::Leave,
            };
            let procedure = Procedure { kind, nodes: nodes.clone() };
            change::change(&context, &procedure, is_dead)
        }
    };
    end(&context, result)
}

/// Where the members of a cluster are.
pub(super) struct Members {
    /// The admin API of each node that answers, by name.
    pub(super) answering: Vec<(String, String)>,
    /// A sentence for each member that does not answer.
    pub(super) missing: Vec<String>,
}

/// Asks an admin API for the members of its cluster, and each member whether it answers. Error: no
/// node answers.
pub(super) fn members(client: &AdminClient, admin: &str) -> Result<Members, String> {
    let context = Context {
        admin: vec![admin.to_owned()],
        client: client.clone(),
        json: true,
        timeout: Duration::ZERO,
    };
    let mut survey = context.survey(&[], &[])?;
    survey.forget_strangers(&[]);
    let answering = survey.reports.into_values().map(|report| (report.name, report.admin));
    let missing = survey.missing.iter().map(|(name, why)| format!("{name} is missing: {why}"));
    Ok(Members { answering: answering.collect(), missing: missing.collect() })
}

fn twice(nodes: &[String]) -> Option<&String> {
    let mut seen = BTreeSet::new();
    nodes.iter().find(|node| !seen.insert(*node))
}

/// Prints the files that were made, and returns the exit code.
fn made(context: &Context, result: Result<String, String>) -> u8 {
    let files = match result {
        Ok(files) => files,
        Err(text) => return failed(context.json, &text, EXIT_FAILURE),
    };
    if !context.json {
        return print(&files);
    }
    let files: Vec<&str> = files.lines().collect();
    print(&format!("{:#}\n", json!({ "files": files })))
}

/// How a command ended that did all that was ordered.
fn outcome_of(is_change: bool) -> &'static str {
    if is_change { "done" } else { "nothing to do" }
}

/// Prints how a command ended, as text or as JSON, and returns the exit code.
fn end(context: &Context, result: Result<Success, String>) -> u8 {
    let Success { text, is_change, moved, members, incomplete } = match result {
        Ok(success) => success,
        Err(text) => return failed(context.json, &text, EXIT_FAILURE),
    };
    incomplete.iter().for_each(|told| tell(&format!("incomplete: {}", clean(told))));
    let (outcome, code) = match incomplete.is_empty() {
        false => ("incomplete", EXIT_FAILURE),
        true => (outcome_of(is_change), EXIT_OK),
    };
    let printed = if context.json {
        json_text(&json!({
            "outcome": outcome, "text": text, "moved": moved, "members": members,
            "incomplete": incomplete,
        }))
    } else {
        format!("{}\n", clean(&text))
    };
    code.max(print(&printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_named_twice_is_found() {
        let nodes = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(twice(&nodes).map(String::as_str), Some("a"));
        assert_eq!(twice(&nodes[..2]), None);
    }
}
