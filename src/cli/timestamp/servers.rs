//! `chronos timestamp servers`: the servers of a cluster, in the words of the original's tool, so
//! that a program that reads the original's lines reads these, too.

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::directory::{DirectoryError, Picture, ServerDirectory, address_of, wrong_cluster};
use super::time::{human_seconds, rfc3339, zone};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use crate::cli::runtime::{on_runtime, wall_ms};
use crate::cli::shown::json_text;
use crate::cli::terminal::{fail, failed, failure, print};
use crate::cli::timestamp::source::ZooKeeperFlags;

const EXAMPLES: &str = "\
Examples:
  chronos timestamp servers --zookeeper 10.0.0.1:2181 --cluster payments
      Connected ZooKeeper 10.0.0.1:2181
      Master is 10.0.0.3_7911
      Backup server is 10.0.0.4_7911
      Persistent-timestamp is 470601292516425728 (2026-11-20 19:04:23 +0000)
  chronos timestamp servers --json | jq -r .master

Persistent-timestamp is above every timestamp handed out so far; a new master begins there.

Exit codes: 0 there is a master; 1 there is none, or no such cluster, or no ZooKeeper; 2 wrong
command line";

/// List master, backups and stored bound of a cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServersFlags {
    #[command(flatten)]
    cluster: ZooKeeperFlags,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command; returns the exit code.
pub(crate) fn run(flags: &ServersFlags) -> u8 {
    let ZooKeeperFlags { zookeeper, cluster } = &flags.cluster;
    if let Some(error) = wrong_cluster(cluster) {
        return failed(flags.json, &error, EXIT_USAGE);
    }
    on_runtime(async {
        let looked = async {
            let directory = ServerDirectory::open(zookeeper, cluster).await?;
            let picture = directory.picture().await?;
            Ok((picture, directory.bound_path().to_owned()))
        };
        let (picture, bound_path) = match looked.await {
            Ok(found) => found,
            Err(error) => return told_failure(flags, &error),
        };
        // A zone that is not known is replaced by UTC, as in `get`.
        let zone = zone(None).unwrap_or(TimeZone::UTC);
        let text = match flags.json {
            true => format!("{:#}\n", document(&picture, &zone, wall_ms())),
            false => lines(zookeeper, &picture, &bound_path, &zone),
        };
        let code = if picture.master.is_some() { EXIT_OK } else { EXIT_FAILURE };
        code.max(print(&text))
    })
}

/// Prints a failure and returns the exit code. The original prints failures to standard output.
fn told_failure(flags: &ServersFlags, error: &DirectoryError) -> u8 {
    let ZooKeeperFlags { zookeeper, cluster } = &flags.cluster;
    let line = match error {
        _ if flags.json => json_text(&failure(error, None)),
        DirectoryError::NoCluster { base } => {
            format!("Connected ZooKeeper {zookeeper}\n{base} doesn't exist, exit immediately\n")
        }
        _ => format!("Error to list {cluster} chronos servers with ZooKeeper {zookeeper}\n"),
    };
    fail(error, EXIT_FAILURE).max(print(&line))
}

/// Returns the lines of the original's `list_servers.rb`, to the letter, the misspelt one included.
fn lines(zookeeper: &str, picture: &Picture, bound_path: &str, zone: &TimeZone) -> String {
    let mut text = format!("Connected ZooKeeper {zookeeper}\n");
    text += &match &picture.master {
        Some(master) => format!("Master is {master}\n"),
        None => "No master is running\n".into(),
    };
    let backups = picture.backups.as_deref().unwrap_or_default();
    text.extend(backups.iter().map(|backup| format!("Backup server is {backup}\n")));
    if backups.is_empty() {
        text += "No backup master is running\n";
    }
    text += &match picture.bound {
        Some(bound) => {
            format!("Persistent-timestamp is {} ({})\n", bound.0, human_seconds(bound, zone))
        }
        None => format!("{bound_path} doesn't exit\n"),
    };
    text
}

/// Returns the servers and the bound as JSON.
pub(crate) fn document(picture: &Picture, zone: &TimeZone, now_ms: u64) -> Value {
    let bound = picture.bound.map(|bound| {
        json!({
            "timestamp": bound.0, "unix_ms": bound.unix_ms(), "time": rfc3339(bound, zone),
            "ahead_ms": bound.unix_ms() as i64 - now_ms as i64,
        })
    });
    let backups = picture.backups.iter().flatten();
    json!({
        "master": picture.master.as_deref().map(address_of),
        "backups": backups.map(|backup| address_of(backup)).collect::<Vec<_>>(),
        "persistent_timestamp": bound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::Timestamp;

    #[test]
    fn the_lines_are_those_of_the_original() {
        let mut picture = Picture {
            master: Some("127.0.0.1_7911".into()),
            backups: Some(vec!["127.0.0.1_7912".into()]),
            bound: Some(Timestamp(365_565_981_241_901_056)),
        };
        let lines = |picture: &Picture| lines("z:1", picture, "/chronos/c/p", &TimeZone::UTC);
        assert_eq!(
            lines(&picture),
            "Connected ZooKeeper z:1\nMaster is 127.0.0.1_7911\nBackup server is 127.0.0.1_7912\n\
             Persistent-timestamp is 365565981241901056 (2014-03-11 07:39:09 +0000)\n"
        );
        let document = document(&picture, &TimeZone::UTC, 1_394_523_549_000);
        assert_eq!(document["master"], "127.0.0.1:7911");
        assert_eq!(document["backups"], json!(["127.0.0.1:7912"]));
        assert_eq!(document["persistent_timestamp"]["ahead_ms"], 49);
        picture.bound = Some(Timestamp(0));
        assert!(lines(&picture).ends_with("is 0 (1970-01-01 00:00:00 +0000)\n"));
        assert_eq!(
            lines(&Picture::default()),
            "Connected ZooKeeper z:1\nNo master is running\nNo backup master is running\n\
             /chronos/c/p doesn't exit\n"
        );
    }
}
