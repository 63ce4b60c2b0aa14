//! `chronos doctor`: whether a machine is fit for a node, and how a running node is. It changes
//! nothing but a scratch file in the data directory, and ends within half a minute.

mod check;
mod files;
mod machine;
mod node;
mod ports;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use self::check::{Check, Verdict};
use super::admin_client::{AdminClient, TlsFlags};
use super::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use super::node::environment;
use super::service::address;
use super::shown::{clean, json_text};
use super::terminal::{failed, is_coloured, print};
use crate::control::config::files::{ConfigFiles, IniFiles, LOCAL_FILE};

const EXAMPLES: &str = "\
Examples:
  chronos doctor                                 this machine, with the defaults
  chronos doctor --config /etc/chronos/chronos.toml
  chronos doctor --admin 127.0.0.1:7254          a running node and its peers, too
  chronos doctor --json | jq '.checks[] | select(.verdict != \"ok\")'

It looks at kernel features, limits, the wall clock, the configuration, ports, certificates, and how
long a durable write takes in the data directory. Type it as the user that the node runs as.

Exit codes:
    0  nothing fails; there may be warnings
    1  something fails
    2  wrong command line";

/// Tell whether this machine is fit for a node, each line with a remedy
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorFlags {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "CHRONOS_CONFIG")]
    config: Option<PathBuf>,

    /// The admin API of a running node, over TLS with https:// before it
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    admin: Option<String>,

    #[command(flatten)]
    tls: TlsFlags,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Looks at everything; returns the exit code.
pub(super) fn run(flags: &DoctorFlags) -> u8 {
    let client = match AdminClient::new(&flags.tls) {
        Ok(client) => client,
        Err(reason) => return failed(flags.json, &reason, EXIT_USAGE),
    };
    let mut checks = machine::checks();
    checks.extend(configured(flags.config.as_deref()));
    if let Some(admin) = &flags.admin {
        checks.extend(node::checks(&client, admin));
    }
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    let printed = if flags.json {
        let checks: Vec<Value> = checks.iter().map(Check::document).collect();
        json_text(&json!({ "verdict": worst.word(), "checks": checks }))
    } else {
        checks.iter().map(|check| line(check, is_coloured())).collect()
    };
    let code = if worst == Verdict::Fail { EXIT_FAILURE } else { EXIT_OK };
    code.max(print(&printed))
}

/// Looks at what the configuration says, as far as it can be read.
fn configured(config: Option<&Path>) -> Vec<Check> {
    let environment = match environment() {
        Ok(environment) => environment,
        Err(problem) => {
            let remedy = "unset the variable, or repair it";
            return vec![Check::fail("environment", problem.to_string(), remedy)];
        }
    };
    let is_found = config.is_none() && Path::new(LOCAL_FILE).exists();
    let ini = is_found.then(IniFiles::default);
    let mut read = ConfigFiles::new(config, ini.as_ref(), environment, Vec::new());
    let (mut checks, config) = files::configuration(&mut read);
    if let Some(config) = config {
        checks.extend(files::certificates(&config));
        checks.extend(ports::checks(&config));
        checks.extend(files::disk(&config));
    }
    checks
}

/// A line of the doctor, and its remedy below it.
fn line(check: &Check, is_coloured: bool) -> String {
    let (colour, end) = match (is_coloured, check.verdict) {
        (false, _) => ("", ""),
        (true, Verdict::Ok) => ("\x1b[32m", "\x1b[0m"),
        (true, Verdict::Warn) => ("\x1b[33m", "\x1b[0m"),
        (true, Verdict::Fail) => ("\x1b[31m", "\x1b[0m"),
    };
    let word = check.verdict.word();
    let mut text =
        format!("{colour}{word:<4}{end}  {}: {}\n", clean(&check.what), clean(&check.found));
    for remedy in check.remedy.lines() {
        text += &format!("      -> {}\n", clean(remedy));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_remedy_and_no_foreign_control_characters() {
        let check = Check::warn("a", "b\u{1b}[2J", "do this");
        assert_eq!(line(&check, false), "warn  a: b\\u{1b}[2J\n      -> do this\n");
        assert!(line(&check, true).starts_with("\u{1b}[33mwarn"));
    }
}
