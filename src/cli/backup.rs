//! `chronos backup`: copies the journal of a running node, over its admin API.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::admin_client::{AdminClient, AdminError, AdminRequest, TlsFlags, needed};
use super::exit::{EXIT_FAILURE, EXIT_USAGE};
use super::progress::{Progress, silence};
use super::terminal::{failed, failed_by, print};

const EXAMPLES: &str = "\
Examples:
  chronos backup /backup/today                          of the node on this machine
  chronos backup /backup/today --admin 127.0.0.2:7254   of another one on this machine
  chronos backup /backup/today --admin https://10.0.0.1:7255 --ca ca.pem     over TLS
  chronos --data-dir /backup/today                      start on it: that is all a restore needs

The node runs on meanwhile. Everything that it had acknowledged when the backup began is in it. On
the file system of the data directory a backup takes no room at first: its files are hard links,
and their blocks are freed when the node does not need them and the backup is removed. On another
file system the bytes are copied.

A node starts on a backup only under the name that it had. A backup is of one node: in a cluster
make one of each.

Where tokens are needed (auth.tokens_file), CHRONOS_TOKEN has that of an operator. It goes over TLS
or to this machine only.

Exit codes:
    0  the backup is there, whole
    1  there is none: the node does not run or has no journal, the directory is not empty, no room
    2  wrong command line";
/// How long the node may take for an answer. It waits until the backup has begun.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two looks whether the backup is there.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Copy the journal of a running node to a new directory
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BackupFlags {
    /// The directory to make, on the node's machine
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The node's admin API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7254")]
    admin: String,

    #[command(flatten)]
    tls: TlsFlags,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Makes the backup and returns the exit code.
pub(super) fn run(flags: &BackupFlags) -> u8 {
    let Ok(directory) = std::path::absolute(&flags.directory) else {
        let told = "the directory has no name; give one";
        return failed(flags.json, &told, EXIT_USAGE);
    };
    let client = match AdminClient::new(&flags.tls) {
        Ok(client) => client,
        Err(reason) => return failed(flags.json, &reason, EXIT_USAGE),
    };
    if flags.json {
        silence();
    }
    match watched(&client, &flags.admin, &directory) {
        Ok(made) if flags.json => print(&format!("{made:#}\n")),
        Ok(made) => {
            let number = |name: &str| made[name].as_u64().unwrap_or(0);
            let how = if made["linked"] == true { "linked" } else { "copied" };
            let (segments, mb) = (number("segments"), number("bytes") >> 20);
            let text = format!("{}: {segments} segments, {mb} MiB, {how}\n", directory.display());
            print(&text)
        }
        Err(error) => {
            let told = format!("no backup of {}: {error}", flags.admin);
            failed_by(flags.json, &told, error.status(), EXIT_FAILURE)
        }
    }
}

/// Orders a backup, waits until it is over, and shows meanwhile how far it is.
fn watched(client: &AdminClient, admin: &str, directory: &Path) -> Result<Value, AdminError> {
    let progress = Progress::begin("backup");
    let begun = Instant::now();
    let order = json!({ "directory": directory }).to_string();
    let mut told = ask(client, admin, ("POST", &order))?;
    loop {
        let number = |name: &str| told[name].as_u64().unwrap_or(0);
        let is_ours = told["directory"].as_str().map(Path::new) == Some(directory);
        match needed(admin, 200, &told, "state")?.as_str() {
            _ if !is_ours => {
                let why = "the node knows of a later backup only; look whether this one is there";
                return Err(AdminError::Strange(why.to_owned()));
            }
            Some("done") => {
                needed(admin, 200, &told, "segments")?;
                return Ok(told);
            }
            Some("running") => {
                let passed_s = begun.elapsed().as_secs();
                let text = format!("the node has been writing for {passed_s} s");
                progress.show(number("bytes"), number("bytes-total"), &text);
            }
            _ => {
                let why = told["error"].as_str().unwrap_or("the node does not say why");
                return Err(AdminError::Strange(why.to_owned()));
            }
        }
        std::thread::sleep(LOOK_EVERY);
        told = ask(client, admin, ("GET", ""))?;
    }
}

fn ask(
    client: &AdminClient,
    admin: &str,
    (method, body): (&str, &str),
) -> Result<Value, AdminError> {
    let (path, patience, answer_bytes_max) = ("/backup", PATIENCE, ANSWER_BYTES_MAX);
    client.ask(admin, AdminRequest { method, path, body, patience, answer_bytes_max })
}
