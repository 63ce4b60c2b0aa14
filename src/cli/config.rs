//! `chronos config`: checks and shows what a node would be configured with, and starts nothing.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::exit::EXIT_USAGE;
use super::node::files_of;
use super::node_flags::NodeFlags;
use super::shown::json_text;
use super::terminal::{fail, print, tell};
use crate::control::config::text::{print_effective, print_reference};

const EXAMPLES: &str = "\
Examples:
  chronos config check --config chronos.toml && systemctl restart chronos
  chronos config show --config chronos.toml       effective values, and where each came from
  chronos config show --json | jq .limits
  chronos config reference > chronos.toml         every key with its default

These do what chronos --check-config, --print-config and --print-reference-config do. Files,
environment and flags count as they do for a node: later wins.

Exit codes:
    0  the configuration is fine
    2  it is not, or the command line is wrong; what is wrong is said";

/// Check and show the configuration of a node
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConfigFlags {
    #[command(subcommand)]
    command: ConfigCommand,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check files, environment and flags
    Check(Box<NodeFlags>),
    /// Show the effective values, and where each came from
    Show(Box<NodeFlags>),
    /// Show every key with its default
    Reference,
}

/// What is shown of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Whether it is fine.
    Check,
    /// Its values.
    Effective,
    /// Every key.
    Reference,
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &ConfigFlags) -> u8 {
    match &flags.command {
        ConfigCommand::Check(node) => show(node, Shown::Check, flags.json),
        ConfigCommand::Show(node) => show(node, Shown::Effective, flags.json),
        ConfigCommand::Reference if flags.json => print(&json_text(&values(&print_reference()))),
        ConfigCommand::Reference => print(&print_reference()),
    }
}

/// Shows the configuration, or what is wrong with it; returns the exit code.
pub(super) fn show(flags: &NodeFlags, shown: Shown, is_json: bool) -> u8 {
    if shown == Shown::Reference {
        return print(&print_reference());
    }
    let refused = |text: String| {
        if is_json {
            let errors: Vec<&str> = text.lines().collect();
            print(&json_text(&json!({ "is-fine": false, "errors": errors })));
        }
        fail(&text, EXIT_USAGE)
    };
    let mut files = match files_of(flags) {
        Ok(files) => files,
        Err(problem) => return refused(problem.to_string()),
    };
    let loaded = match files.load() {
        Ok(loaded) => loaded,
        Err(error) => return refused(error.to_string()),
    };
    for warning in &loaded.warnings {
        tell(&format!("warning: {warning}"));
    }
    match (shown, is_json) {
        (Shown::Effective, false) => print(&print_effective(&loaded.config)),
        (Shown::Effective, true) => print(&json_text(&values(&print_effective(&loaded.config)))),
        (_, false) => print(&format!("configuration ok ({})\n", files.names())),
        (_, true) => {
            let document = json!({
                "is-fine": true, "files": files.names(), "warnings": loaded.warnings,
            });
            print(&json_text(&document))
        }
    }
}

/// The values of a text of TOML that this process has made.
fn values(text: &str) -> Value {
    let table: Result<toml::Table, _> = toml::from_str(text);
    table.ok().and_then(|table| serde_json::to_value(table).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_a_document_of_sections() {
        let values = values(&print_reference());
        assert!(values.is_object(), "{values}");
    }
}
