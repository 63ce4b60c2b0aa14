//! `chronos site`: the other sites that hold the same timers. This file has the flags of the
//! commands, and prints how each ends.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::site_change::{self, SiteSuccess};
use super::site_plan::SiteOrder;
use super::{CommonFlags, outcome_of, table, wait};
use crate::cli::exit::{EXIT_FAILURE, EXIT_USAGE};
use crate::cli::shown::{clean, json_text};
use crate::cli::terminal::{failed, print};

const EXAMPLES: &str = "\
Examples:
  chronos site --admin 10.1.0.1:7254
  chronos site add site3 10.3.0.1:7253 10.3.0.2:7253 --admin 10.1.0.1:7254
  chronos site remove site3 --admin 10.1.0.1:7254

Each command changes the site that --admin belongs to, at all its nodes: it writes [sites] remote
into their files and has them read it. Give it once at each site: the sites that are to know the new
one, and the new one itself, for each of the others. What is left to do elsewhere is printed.

add asks the site first, from each node. Then it tells the nodes, and waits until the site has been
offered every timer. Interrupted, it goes on when it is run again.
remove takes a site out that was stopped; with --running one that goes on by itself.

Where tokens are needed (auth.tokens_file), CHRONOS_TOKEN has that of an operator. It goes over TLS
(https://) or to this machine only.

Exit codes:
    0  done, or there was nothing left to do; list: all sites are reached and lack nothing
    1  failed, what to do is said
    2  wrong command line";

/// Show the other sites that hold the same timers, add one, take one out
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SiteFlags {
    /// What to do [default: list]
    #[command(subcommand)]
    command: Option<SiteCommand>,

    #[command(flatten)]
    common: CommonFlags,
}

/// The commands of `chronos site`.
#[derive(Debug, Subcommand)]
enum SiteCommand {
    /// Show how the other sites stand
    List {
        /// Wait so long at most until all are reached and lack nothing
        #[arg(long, value_name = "DURATION", value_parser = wait)]
        wait: Option<u64>,
    },
    /// Let a site hold all timers that this one holds
    Add {
        /// What the site calls itself
        name: String,
        /// Addresses of nodes there, as these name themselves; two, so that one may be away
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
    },
    /// Tell a site nothing any more, and refuse what it says
    Remove {
        /// The name of the site
        name: String,
        /// Take it out although it runs: what it holds pops there, too
        #[arg(long)]
        running: bool,
    },
}

/// Runs one of the commands; returns the exit code.
pub(crate) fn run(flags: &SiteFlags) -> u8 {
    let context = match flags.common.context() {
        Ok(context) => context,
        Err(code) => return code,
    };
    let (order, is_running) = match &flags.command {
        None => return table::show_sites(&context, None),
        Some(SiteCommand::List { wait }) => {
            return table::show_sites(&context, wait.map(Duration::from_secs));
        }
        Some(SiteCommand::Add { name, addresses }) => {
            if let Some(twice) = super::twice(addresses) {
                let told = format!("{twice} is named twice; name every address once");
                return failed(context.json, &told, EXIT_USAGE);
            }
            (SiteOrder::Add(name.clone(), addresses.clone()), false)
        }
        Some(SiteCommand::Remove { name, running }) => (SiteOrder::Remove(name.clone()), *running),
    };
    match site_change::change(&context, &order, is_running) {
        Ok(success) => end(context.json, &success),
        Err(text) => failed(context.json, &text, EXIT_FAILURE),
    }
}

/// Prints how a command ended, as text or as JSON, and returns the exit code.
fn end(is_json: bool, success: &SiteSuccess) -> u8 {
    let SiteSuccess { text, is_change, next } = success;
    let printed = if is_json {
        let next: Vec<Value> = next
            .iter()
            .map(|(site, command)| json!({ "site": site, "command": command }))
            .collect();
        let outcome = outcome_of(*is_change);
        json_text(&json!({ "outcome": outcome, "text": text, "next": next }))
    } else {
        let next = next.iter().map(|(site, command)| {
            format!("next, at {site}, whose list of sites is another one: {command}\n")
        });
        format!("{text}\n{}", next.collect::<String>())
    };
    print(&printed.lines().map(|line| clean(line) + "\n").collect::<String>())
}
