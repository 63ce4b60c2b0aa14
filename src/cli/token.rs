//! `chronos token new`: makes a token for a client, and the line of it for the node's file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, RangedI64ValueParser};
use clap::{Args, Subcommand, value_parser};
use serde_json::json;

use super::exit::EXIT_FAILURE;
use super::terminal::{failed, print, tell};
use crate::base::quota::{CREATES_PER_SECOND_MAX, TokenLimits, is_token_name};
use crate::control::config::regular_file;
use crate::node::clients::tokens::{FILE_BYTES_MAX, Role, Tokens, line_of};
use crate::ring::unpredictable;

const EXAMPLES: &str = "\
Examples:
  chronos token new --name billing --role client
  umask 077; chronos token new --name billing --role client --file tokens > billing.token
  chronos token new --name billing --role client --timers 1000000 --creates-per-second 5000
  kill -HUP $(pidof chronos)                     the nodes read the file again

The token is printed once and kept nowhere: the file has its SHA-256. A client sends it with each
request:  curl -H \"Authorization: Bearer $(cat billing.token)\" ...

To replace a token, make a second one of the same name, give it to the client, and take the former
line out of the file. Give the file to all nodes of the cluster.

Limits are those of the name on each node; both tokens of a name share them. Without any --timers,
--creates-per-second and --connections, a second token gets the limits of the first, if --file has
it. A node of several cores may take one timer more for each core beyond the first.

Exit codes:
    0  the token is printed (and its line is in the file)
    1  the file cannot be written, or has a mistake
    2  wrong command line";
/// What tokens begin with, so that one that leaked is found by a search.
const PREFIX: &str = "chr_";
/// Unpredictable bytes of a token.
const TOKEN_BYTES: usize = 32;

/// Tokens of clients
#[derive(Debug, Args)]
pub(super) struct TokenFlags {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    New(NewFlags),
}

/// Make a token, and print it once
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct NewFlags {
    /// Whose it is, in letters, digits, '-', '_' and '.'
    #[arg(long, value_parser = name)]
    name: String,

    /// What it is good for: a reader reads timers, a client also writes them, an operator may do
    /// all
    #[arg(long, value_parser = PossibleValuesParser::new(Role::WORDS.map(|(word, _)| word)))]
    role: String,

    /// Append the line to this file (auth.tokens_file), made if it is not there
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Most timers that a node holds of this name
    #[arg(long, value_name = "N", value_parser = limit(u32::MAX))]
    timers: Option<u32>,

    /// Most timers that this name may create or replace a second on a node
    #[arg(long, value_name = "N", value_parser = limit(CREATES_PER_SECOND_MAX))]
    creates_per_second: Option<u32>,

    /// Most connections at a time that this name may have to a node
    #[arg(long, value_name = "N", value_parser = limit(u32::MAX))]
    connections: Option<u32>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

fn limit(max: u32) -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=i64::from(max))
}

impl NewFlags {
    fn limits(&self) -> TokenLimits {
        let Self { timers, creates_per_second, connections, .. } = *self;
        TokenLimits { timers, creates_per_second, connections }
    }
}

fn name(text: &str) -> Result<String, String> {
    let fits = is_token_name(text.as_bytes()).then(|| text.to_owned());
    fits.ok_or_else(|| "expected 1 to 64 letters, digits, '-', '_' and '.'".to_owned())
}

/// The variable with the token of whoever types commands. It is no key of the configuration.
pub(super) const VARIABLE: &str = "CHRONOS_TOKEN";

/// The value of the header `Authorization` for orders to a node, if there is a token.
pub(super) fn authorization() -> Option<String> {
    let token = std::env::var(VARIABLE).ok().filter(|token| !token.trim().is_empty())?;
    Some(format!("Bearer {}", token.trim()))
}

/// Runs the command; returns the exit code.
pub(super) fn run(flags: &TokenFlags) -> u8 {
    let TokenCommand::New(flags) = &flags.command;
    let role = Role::WORDS.into_iter().find(|(word, _)| *word == flags.role);
    let role = role.map_or(Role::Reader, |(_, role)| role);
    let token = format!("{PREFIX}{}", hex(&unpredictable::<TOKEN_BYTES>()));
    let bare = line_of(&flags.name, role, &token);
    let mut line = format!("{bare}{}", flags.limits());
    if let Some(path) = &flags.file {
        match append(path, &bare, flags) {
            Ok(appended) => line = appended,
            Err(reason) => {
                let reason = format!("no token was made: {}: {reason}", path.display());
                return failed(flags.json, &reason, EXIT_FAILURE);
            }
        }
    }
    if flags.json {
        let name = &flags.name;
        let document = json!({"name": name, "role": flags.role, "token": token, "line": line});
        return print(&format!("{document:#}\n"));
    }
    match &flags.file {
        Some(path) => tell(&format!("{}: has the line of {} now", path.display(), flags.name)),
        None => tell(&format!("the line for auth.tokens_file:\n{line}")),
    }
    print(&format!("{token}\n"))
}

/// Appends a line to a file of tokens, if the file is right then. A line without limits gets those
/// of the other line of its name. Returns the line.
fn append(path: &Path, bare: &str, flags: &NewFlags) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut text = Vec::new();
    if let Ok(found) = std::fs::metadata(path) {
        let file = regular_file::open(path).map_err(told)?;
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(format!(
                "expected to be readable and writable by its owner alone, found mode {mode:04o}; \
                 type: chmod 600 {}",
                path.display()
            ));
        }
        text = regular_file::read_beyond(&file, FILE_BYTES_MAX).map_err(told)?;
    }
    let mut limits = flags.limits();
    if limits.is_none()
        && let Ok(tokens) = Tokens::parse(&text)
    {
        limits = tokens.limits_of(&flags.name).unwrap_or_default();
    }
    let line = format!("{bare}{limits}");
    let mut open = OpenOptions::new();
    let file = open.append(true).create(true).mode(0o600).open(path);
    let mut file: File = file.map_err(told)?;
    let is_open = text.last().is_some_and(|last| *last != b'\n');
    let added = format!("{}{line}\n", if is_open { "\n" } else { "" });
    text.extend_from_slice(added.as_bytes());
    Tokens::parse(&text).map_err(|error| error.to_string())?;
    file.write_all(added.as_bytes()).and_then(|()| file.sync_all()).map_err(told)?;
    Ok(line)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
