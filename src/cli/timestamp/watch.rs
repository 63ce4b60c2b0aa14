//! `chronos timestamp watch`: shows which server serves timestamps and how far the bound is. Prints
//! one line per change, or on a terminal one picture that is drawn again.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::client::TimestampClient;
use super::directory::{DirectoryError, Picture, ServerDirectory, address_of, wrong_cluster};
use super::get::against_clock;
use super::servers::document;
use super::time::{human, rfc3339, zone};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use crate::cli::lasting::seconds_in;
use crate::cli::runtime::{on_runtime, wall_ms};
use crate::cli::terminal::{fail, failure, print};
use crate::cli::timestamp::source::ZooKeeperFlags;
use crate::timestamp::Timestamp;

/// Pause between two looks at `ZooKeeper`.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for a timestamp. A slower master is shown as silent.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  chronos timestamp watch --zookeeper 10.0.0.1:2181
  chronos timestamp watch --zookeeper 10.0.0.1:2181 | tee changes.log
      2026-11-20 19:04:23.762 +0000  start: master 127.0.0.1:7911; backups 127.0.0.1:7912;
          bound 2.914 s ahead of this clock; timestamps 0.000 s ahead of this clock   (one line)
  chronos timestamp watch --json --for 60

ZooKeeper is looked at five times a second. Changes of master and backups are told at once, of the
bound at most every --every seconds: a master may write it several times a second. With each line
one timestamp is taken from the master.

Exit codes: 0 stopped, 1 no ZooKeeper at the start, or nobody reads any more, 2 wrong command line";

/// Watch master, backups and bound until Ctrl-C
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchFlags {
    #[command(flatten)]
    cluster: ZooKeeperFlags,

    /// Shortest time between two lines about the bound
    #[arg(long, value_name = "DURATION", default_value_t = 1.0, value_parser = seconds)]
    every: f64,

    /// Stop after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = seconds)]
    length: Option<f64>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    seconds_in(text, &(0.1..=100_000_000.0))
}

/// What was seen and shown so far.
struct Watch {
    zone: TimeZone,
    /// What was shown last. An error says why nothing is known.
    told: Option<Result<Picture, String>>,
    told_at: Instant,
    changes: u64,
    connection: Option<TimestampClient>,
}

/// Runs the command; returns the exit code.
pub(crate) fn run(flags: &WatchFlags) -> u8 {
    let ZooKeeperFlags { zookeeper, cluster } = &flags.cluster;
    if let Some(error) = wrong_cluster(cluster) {
        return told_failure(flags, &error, EXIT_USAGE);
    }
    on_runtime(async {
        let directory = match ServerDirectory::open(zookeeper, cluster).await {
            Ok(directory) => directory,
            Err(error) => return told_failure(flags, &error, EXIT_FAILURE),
        };
        let end = async {
            match flags.length {
                Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            code = watch(flags, directory) => code,
            _ = tokio::signal::ctrl_c() => EXIT_OK,
            () = end => EXIT_OK,
        }
    })
}

/// Says why there is nothing to watch, with `--json` as a line, as all that it prints.
fn told_failure(flags: &WatchFlags, error: &dyn std::fmt::Display, code: u8) -> u8 {
    if flags.json {
        print(&format!("{}\n", failure(error, None)));
    }
    fail(error, code)
}

async fn watch(flags: &WatchFlags, directory: ServerDirectory) -> u8 {
    let is_terminal = std::io::stdout().is_terminal() && !flags.json;
    let mut watch = Watch {
        zone: zone(None).unwrap_or(TimeZone::UTC),
        told: None,
        told_at: Instant::now(),
        changes: 0,
        connection: None,
    };
    let mut directory = Some(directory);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drawn_lines = 0;
    loop {
        looks.tick().await;
        let seen = look(&mut directory, &flags.cluster).await;
        let seen = seen.map_err(|error| error.to_string());
        let every = Duration::from_secs_f64(flags.every);
        let changed = watch.changed(&seen);
        let is_due = watch.told_at.elapsed() >= every;
        let only_bound = changed == ["bound"];
        if !(is_terminal && is_due) && (changed.is_empty() || (only_bound && !is_due)) {
            continue;
        }
        let answer = watch.ask(seen.as_ref().ok()).await;
        let only_changes_that_count = !changed.is_empty() && !only_bound;
        watch.changes += u64::from(only_changes_that_count && watch.told.is_some());
        let text = if is_terminal {
            watch.picture(&flags.cluster, &seen, &answer)
        } else {
            watch.line(flags.json, &changed, &seen, &answer)
        };
        watch.told = Some(seen);
        watch.told_at = Instant::now();
        let mut output = std::io::stdout().lock();
        let back =
            if drawn_lines > 0 { format!("\x1b[{drawn_lines}A\x1b[J") } else { String::new() };
        drawn_lines = if is_terminal { text.lines().count() } else { 0 };
        if output.write_all((back + &text).as_bytes()).and_then(|()| output.flush()).is_err() {
            return EXIT_FAILURE;
        }
    }
}

/// Looks at the cluster once, with a new session if the last one is no longer of use.
async fn look(
    directory: &mut Option<ServerDirectory>,
    flags: &ZooKeeperFlags,
) -> Result<Picture, DirectoryError> {
    let session = match directory.take() {
        Some(session) => session,
        None => ServerDirectory::open(&flags.zookeeper, &flags.cluster).await?,
    };
    let picture = session.picture().await;
    // A cluster that does not exist yet is a valid answer, so the session is kept.
    if matches!(picture, Ok(_) | Err(DirectoryError::NoCluster { .. })) {
        *directory = Some(session);
    }
    picture
}

impl Watch {
    /// Returns what differs from what was shown last, in words.
    fn changed(&self, seen: &Result<Picture, String>) -> Vec<&'static str> {
        match (&self.told, seen) {
            (None, _) => vec!["start"],
            (Some(Ok(old)), Ok(new)) => {
                let parts = [
                    ("master", old.master != new.master),
                    ("backups", old.backups != new.backups),
                    ("bound", old.bound != new.bound),
                ];
                parts.into_iter().filter(|(_, is_changed)| *is_changed).map(|(n, _)| n).collect()
            }
            (Some(Err(_)), Ok(_)) => vec!["back"],
            (Some(Ok(_)), Err(_)) => vec!["lost"],
            (Some(Err(old)), Err(new)) if old == new => vec![],
            (Some(Err(_)), Err(_)) => vec!["still lost"],
        }
    }

    /// Takes a timestamp of the master. Returns it, and how many milliseconds it is ahead of the
    /// wall clock.
    async fn ask(&mut self, seen: Option<&Picture>) -> Result<(Timestamp, i64), String> {
        let master = seen.and_then(|picture| picture.master.as_deref());
        let address: Arc<str> = address_of(master.ok_or("no master to ask")?).into();
        let mut connection = match self.connection.take() {
            Some(connection) if *connection.address() == address => connection,
            _ => open(&address).await?,
        };
        let mut taken = connection.take(1).await;
        if taken.is_err() {
            // The original closes connections that are quiet for 3 s.
            connection = open(&address).await?;
            taken = connection.take(1).await;
        }
        let timestamp = taken.map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        Ok((timestamp, timestamp.unix_ms() as i64 - wall_ms() as i64))
    }

    fn line(
        &self,
        is_json: bool,
        changed: &[&str],
        seen: &Result<Picture, String>,
        answer: &Result<(Timestamp, i64), String>,
    ) -> String {
        let now = Timestamp::of_unix_ms(wall_ms());
        if is_json {
            let mut object = match seen {
                Ok(picture) => document(picture, &self.zone, wall_ms()),
                Err(error) => json!({ "error": error }),
            };
            object["at"] = rfc3339(now, &self.zone).into();
            object["changed"] = json!(changed);
            object["timestamp"] = json!(answer.as_ref().ok().map(|(timestamp, _)| timestamp.0));
            object["ahead_ms"] = json!(answer.as_ref().ok().map(|(_, ahead_ms)| ahead_ms));
            return format!("{object}\n");
        }
        let what = match seen {
            Ok(picture) => parts(picture, answer).map(|(name, value)| format!("{name} {value}")),
            Err(error) => return format!("{}  {}: {error}\n", human(now, &self.zone), changed[0]),
        };
        format!("{}  {}: {}\n", human(now, &self.zone), changed.join(", "), what.join("; "))
    }

    fn picture(
        &self,
        flags: &ZooKeeperFlags,
        seen: &Result<Picture, String>,
        answer: &Result<(Timestamp, i64), String>,
    ) -> String {
        let now = human(Timestamp::of_unix_ms(wall_ms()), &self.zone);
        let mut text = format!("{} at {}  {now}\n", flags.cluster, flags.zookeeper);
        match seen {
            Ok(picture) => text.extend(
                parts(picture, answer).map(|(name, value)| format!("{name:<11} {value}\n")),
            ),
            Err(error) => text += &format!("no answer   {error}\n"),
        }
        text + &format!("changes     {} of master or backups   (Ctrl-C ends)\n", self.changes)
    }
}

async fn open(address: &Arc<str>) -> Result<TimestampClient, String> {
    TimestampClient::open(address, ANSWER_LIMIT).await.map_err(|error| error.to_string())
}

/// Returns names and values of everything that is shown.
fn parts(
    picture: &Picture,
    answer: &Result<(Timestamp, i64), String>,
) -> [(&'static str, String); 4] {
    let backups: Vec<String> =
        picture.backups.iter().flatten().map(|backup| address_of(backup)).collect();
    let ahead = |bound: Timestamp| against_clock(bound.unix_ms() as i64 - wall_ms() as i64);
    [
        ("master", picture.master.as_deref().map_or("none".into(), address_of)),
        ("backups", if backups.is_empty() { "none".into() } else { backups.join(" ") }),
        ("bound", picture.bound.map_or("none".into(), ahead)),
        (
            "timestamps",
            match answer {
                Ok((_, ahead_ms)) => against_clock(*ahead_ms),
                Err(error) => format!("unknown: {error}"),
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(told: Option<Result<Picture, String>>) -> Watch {
        let zone = TimeZone::UTC;
        Watch { zone, told, told_at: Instant::now(), changes: 0, connection: None }
    }

    fn error() -> String {
        "silent".into()
    }

    #[test]
    fn changes_have_names() {
        let old = Picture { master: Some("a_1".into()), ..Picture::default() };
        let new = Picture { bound: Some(Timestamp(1)), ..Picture::default() };
        assert_eq!(watch(None).changed(&Ok(old.clone())), ["start"]);
        assert_eq!(watch(Some(Ok(old.clone()))).changed(&Ok(old.clone())), [""; 0]);
        assert_eq!(watch(Some(Ok(old.clone()))).changed(&Ok(new)), ["master", "bound"]);
        assert_eq!(watch(Some(Ok(old.clone()))).changed(&Err(error())), ["lost"]);
        assert_eq!(watch(Some(Err(error()))).changed(&Err(error())), [""; 0]);
        assert_eq!(watch(Some(Err(error()))).changed(&Ok(old)), ["back"]);
    }

    #[test]
    fn a_line_tells_all() {
        let picture = Picture {
            master: Some("a_1".into()),
            backups: Some(vec!["b_2".into(), "c_3".into()]),
            bound: None,
        };
        let seen = Ok(picture);
        let answer = Ok((Timestamp(5), 1_250));
        let line = watch(None).line(false, &["start"], &seen, &answer);
        let told = "start: master a:1; backups b:2 c:3; bound none; timestamps 1.250 s ahead of \
                    this clock\n";
        assert!(line.ends_with(told), "{line}");
        let line = watch(None).line(true, &["master"], &seen, &Err("silent".into()));
        let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(object["master"], "a:1");
        assert_eq!(object["changed"], json!(["master"]));
        assert!(object["ahead_ms"].is_null(), "{object}");
        let flags = ZooKeeperFlags { zookeeper: "z:1".into(), cluster: "c".into() };
        let picture = watch(None).picture(&flags, &seen, &Err("silent".into()));
        assert_eq!(picture.lines().count(), 6);
        assert!(picture.contains("\ntimestamps  unknown: silent\n"), "{picture}");
    }
}
