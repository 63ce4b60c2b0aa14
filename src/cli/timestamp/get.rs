//! `chronos timestamp get`: takes timestamps as the Java client does, from the server that
//! `ZooKeeper` names. A failed call asks `ZooKeeper` again.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::sleep;

use super::client::{CallError, TimestampClient};
use super::directory::{DirectoryError, ServerDirectory, address_of};
use super::time::{human, rfc3339, zone};
use crate::cli::exit::{EXIT_FAILURE, EXIT_USAGE};
use crate::cli::runtime::{on_runtime, wall_ms};
use crate::cli::terminal::{failed, print, tell};
use crate::cli::timestamp::source::{SourceFlags, TimestampSource};
use crate::timestamp::{RANGE_MAX, Timestamp};

/// Pause before the second try, doubled before each further one.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How a server ends a refusal that does not last: nobody is master yet.
const TRY_AGAIN: &str = "try again";

const EXAMPLES: &str = "\
Examples:
  chronos timestamp get
      470601292516425728
  chronos timestamp get -n 100 --server 10.0.0.1:7911
      470601292516425729 470601292516425828       (the first and the last, both yours)
  chronos timestamp get -H --zookeeper 10.0.0.1:2181,10.0.0.2:2181 --cluster payments
      470601292516425829  2026-11-20 19:04:23.762 +0000, counter 101, 0.000 s ahead of this clock
  chronos timestamp get --json | jq .first

A call that fails is made again: through ZooKeeper with whoever is master then. With ten tries that
is longer than it takes a backup to become master. Timestamps of calls that failed are never used.

Exit codes: 0 here they are, 1 no server gave any, 2 wrong command line";

/// Take timestamps, each larger than all before
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GetFlags {
    #[command(flatten)]
    source: SourceFlags,

    /// Number of timestamps, one after the other
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RANGE_MAX)))]
    count: u32,

    /// Print also the time of the first timestamp, in this machine's zone
    #[arg(short = 'H', long, conflicts_with = "json")]
    human: bool,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    /// Number of tries until the command gives up
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tries: u32,

    /// Longest wait for a connection, and for an answer
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout_ms: u64,
}

/// Why one try failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TryError {
    #[error(transparent)]
    ServerDirectory(#[from] DirectoryError),
    #[error("{0} has no master now")]
    NoMaster(String),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Finds the server, and keeps the session with `ZooKeeper` for the next search.
#[derive(Debug)]
pub(crate) struct Finder {
    source: TimestampSource,
    directory: Option<ServerDirectory>,
}

impl Finder {
    /// Remembers the source. No server is asked yet.
    pub(super) fn new(source: TimestampSource) -> Self {
        Self { source, directory: None }
    }

    /// Returns the address to connect to.
    pub(super) async fn address(&mut self) -> Result<Arc<str>, TryError> {
        let (quorum, cluster) = match &self.source {
            TimestampSource::Server(address) => return Ok(address.clone()),
            TimestampSource::Cluster { quorum, cluster } => (quorum, cluster),
        };
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => ServerDirectory::open(quorum, cluster).await?,
        };
        // The session is kept only if it gave an answer.
        let master = directory.master().await?;
        let base = directory.base().to_owned();
        self.directory = Some(directory);
        let master = master.ok_or(TryError::NoMaster(base))?;
        Ok(address_of(&master).into())
    }

    /// Finds the server, connects to it and takes `count` timestamps. `limit` is the longest wait
    /// for the connection, and for the answer. Returns the first timestamp and the server.
    pub(super) async fn take(
        &mut self,
        count: u32,
        limit: Duration,
    ) -> Result<(Timestamp, Arc<str>), TryError> {
        let address = self.address().await?;
        let mut connection = TimestampClient::open(&address, limit).await?;
        Ok((connection.take(count).await?, address))
    }

    /// Takes timestamps with up to `tries` tries and pauses between them. `failed` is called after
    /// each failed try that another try follows.
    pub(super) async fn take_patiently(
        &mut self,
        count: u32,
        limit: Duration,
        tries: u32,
        failed: impl Fn(&TryError),
    ) -> Result<(Timestamp, Arc<str>), TryError> {
        let mut pause = PAUSE;
        for _ in 1..tries {
            match self.take(count, limit).await {
                Ok(taken) => return Ok(taken),
                // A single server that refuses will refuse the next try, too, unless it says that
                // it is about to begin.
                Err(TryError::Call(CallError::Refused { address, reason }))
                    if matches!(self.source, TimestampSource::Server(_))
                        && !reason.ends_with(TRY_AGAIN) =>
                {
                    return Err(CallError::Refused { address, reason }.into());
                }
                Err(error) => failed(&error),
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
        self.take(count, limit).await
    }
}

/// Runs the command; returns the exit code.
pub(crate) fn run(flags: &GetFlags) -> u8 {
    let source = match flags.source.chosen() {
        Ok(source) => source,
        Err(error) => return failed(flags.json, &error, EXIT_USAGE),
    };
    on_runtime(async {
        let mut finder = Finder::new(source);
        let limit = Duration::from_millis(flags.timeout_ms);
        let last = RefCell::new(String::new());
        let again = |error: &TryError| tell_once(&last, error, flags.tries);
        match finder.take_patiently(flags.count, limit, flags.tries, again).await {
            Ok((first, server)) => print(&told(flags, first, &server, wall_ms())),
            Err(error) => failed(flags.json, &error, EXIT_FAILURE),
        }
    })
}

/// Tells why a try failed, unless the try before it failed in the same way.
fn tell_once(last: &RefCell<String>, error: &TryError, tries: u32) {
    if let Some(line) = news(&mut last.borrow_mut(), &error.to_string()) {
        tell(&format!("{line}; trying again, {tries} times in all"));
    }
}

/// Returns what failed if it is not what was told last, and notes it as told.
fn news<'a>(told: &mut String, failed: &'a str) -> Option<&'a str> {
    if told == failed {
        return None;
    }
    failed.clone_into(told);
    Some(failed)
}

fn told(flags: &GetFlags, first: Timestamp, server: &str, now_ms: u64) -> String {
    let last = first.0 + u64::from(flags.count) - 1;
    let ahead_ms = first.unix_ms() as i64 - now_ms as i64;
    // A zone that is not known is replaced by UTC: that is no reason to keep the timestamps back.
    let zone = zone(None).unwrap_or(jiff::tz::TimeZone::UTC);
    if flags.json {
        let document = json!({
            "first": first.0, "last": last, "count": flags.count, "unix_ms": first.unix_ms(),
            "counter": first.counter(), "time": rfc3339(first, &zone), "ahead_ms": ahead_ms,
            "server": server,
        });
        return format!("{document}\n");
    }
    let numbers =
        if flags.count == 1 { first.0.to_string() } else { format!("{} {last}", first.0) };
    if !flags.human {
        return format!("{numbers}\n");
    }
    let (time, counter) = (human(first, &zone), first.counter());
    format!("{numbers}  {time}, counter {counter}, {}\n", against_clock(ahead_ms))
}

/// Says how far a timestamp is from the wall clock.
pub(crate) fn against_clock(ahead_ms: i64) -> String {
    let seconds = ahead_ms.unsigned_abs() as f64 / 1e3;
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    format!("{seconds:.3} s {side} this clock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> GetFlags {
        #[derive(clap::Parser)]
        struct Whole {
            #[command(flatten)]
            flags: GetFlags,
        }
        let words = ["get"].into_iter().chain(line.split_whitespace());
        <Whole as clap::Parser>::try_parse_from(words).expect(line).flags
    }

    #[test]
    fn what_was_taken_is_told_in_three_forms() {
        let shown = "470601292516425829  2026-11-20 19:04:23.762 +0000, counter 101,";
        let time = human(Timestamp(470_601_292_516_425_829), &jiff::tz::TimeZone::UTC);
        assert!(shown.contains(&time) && EXAMPLES.contains(shown), "{time}");
        let first = Timestamp((1_795_201_463_062 << 18) + 5);
        let text = |line| told(&flags(line), first, "a:1", 1_795_201_463_060);
        let number = first.0;
        assert_eq!(text(""), format!("{number}\n"));
        assert_eq!(text("-n 3"), format!("{number} {}\n", number + 2));
        let line = text("-H -n 1");
        assert!(line.starts_with(&format!("{number}  2026-11-2")), "{line}");
        assert!(
            line.ends_with(".062 +0000, counter 5, 0.002 s ahead of this clock\n")
                || line.contains(", counter 5, 0.002 s ahead of this clock"),
            "{line}"
        );
        let document: serde_json::Value = serde_json::from_str(&text("--json -n 2")).expect("JSON");
        assert_eq!(document["first"], number);
        assert_eq!(document["last"], number + 1);
        assert_eq!((&document["ahead_ms"], &document["counter"]), (&2.into(), &5.into()));
        assert_eq!(document["server"], "a:1");
        assert_eq!(against_clock(-1_500), "1.500 s behind this clock");
    }

    #[test]
    fn a_failure_that_goes_on_is_told_once() {
        let mut told = String::new();
        let lines = ["no answer", "no answer", "refused", "refused", "no answer"].into_iter();
        let news: Vec<_> = lines.filter_map(|line| news(&mut told, line)).collect();
        assert_eq!(news, ["no answer", "refused", "no answer"]);
    }

    #[test]
    fn the_place_is_checked() {
        let source = |line| flags(line).source.chosen();
        assert_eq!(source(""), Ok(TimestampSource::Server("127.0.0.1:7911".into())));
        assert_eq!(source("--server [::1]:7"), Ok(TimestampSource::Server("[::1]:7".into())));
        let cluster = TimestampSource::Cluster {
            quorum: "z:1,y:2".into(),
            cluster: "default-cluster".into(),
        };
        assert_eq!(source("--zookeeper z:1,y:2"), Ok(cluster));
        for wrong in ["--server x", "--server :7", "--server x:0", "--server x:70000"] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
        assert!(source("--zookeeper z:1 --cluster a/b").is_err());
    }
}
