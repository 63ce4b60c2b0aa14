//! `chronos timestamp init`: makes the bound above all timestamps that were handed out, in the file
//! of a standalone server or in `ZooKeeper`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::directory::wrong_cluster;
use crate::base::time::WallMs;
use crate::cli::exit::{EXIT_FAILURE, EXIT_USAGE};
use crate::cli::node::environment;
use crate::cli::runtime::on_runtime;
use crate::cli::terminal::{fail, print};
use crate::control::config::files::ConfigFiles;
use crate::control::config::timestamp::{Coordination, TimestampConfig};
use crate::control::timestamp::bound_file::TimestampFile;
use crate::control::timestamp::keeper::zookeeper_settings;
use crate::control::timestamp::zookeeper_init;
use crate::ring::now;
use crate::timestamp::Timestamp;

/// Milliseconds of timestamps that must be left above a bound: a year.
const ROOM_MS: u64 = 365 * 24 * 3_600_000;

const EXAMPLES: &str = "\
Examples:
  chronos timestamp init --file /var/lib/chronos/timestamp
  chronos timestamp init --file /var/lib/chronos/timestamp --above 470602296525709312
  chronos timestamp init --zookeeper 10.0.0.1:2181 --cluster payments --above 470602296525709312
  chronos timestamp init --config chronos.toml      the file or the cluster that it names

A new cluster in ZooKeeper needs no init: its first server makes the nodes.

Exit codes: 0 made, 1 it is there already, or could not be made, 2 wrong command line";

/// Make the bound above all timestamps handed out, in a file or in ZooKeeper
///
/// A server never makes a bound by itself: a new bound in place of a lost one could repeat
/// timestamps. The new bound is not below the wall clock. If timestamps above the wall clock may
/// have been handed out, give one that is above all of them with --above.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct InitFlags {
    /// File of the bound [default: [timestamp] file of the configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "zookeeper")]
    file: Option<PathBuf>,

    /// Servers of ZooKeeper [default: those of the configuration, if it uses ZooKeeper]
    #[arg(long, value_name = "HOST:PORT,...")]
    zookeeper: Option<String>,

    /// Name of the cluster in ZooKeeper [default: that of the configuration]
    #[arg(long, value_name = "NAME", requires = "zookeeper")]
    cluster: Option<String>,

    /// A timestamp that is above all that were handed out
    #[arg(long, value_name = "TS")]
    above: Option<u64>,

    /// Configuration file (TOML) with the file of the bound, or with ZooKeeper and the
    /// authentication
    #[arg(long, value_name = "FILE", env = "CHRONOS_CONFIG")]
    config: Option<PathBuf>,
}

/// Makes the bound; returns the exit code.
pub(super) fn run(flags: &InitFlags) -> u8 {
    let wrong = flags.above.and_then(wrong_above);
    if let Some(wrong) = wrong.or_else(|| flags.cluster.as_deref().and_then(wrong_cluster)) {
        return fail(&std::io::Error::other(wrong), EXIT_USAGE);
    }
    if let Some(file) = &flags.file {
        return make_file(file, flags);
    }
    match configured(flags) {
        Ok(config) if is_in_zookeeper(flags, &config) => make_in_zookeeper(&config, flags),
        Ok(config) => make_file(config.file.as_ref(), flags),
        Err(code) => code,
    }
}

fn is_in_zookeeper(flags: &InitFlags, config: &TimestampConfig) -> bool {
    flags.zookeeper.is_some() || config.coordination == Coordination::ZooKeeper
}

fn make_file(path: &Path, flags: &InitFlags) -> u8 {
    let bound = bound_above(now().wall, flags.above);
    let file = path.display();
    let serve = format!("Serve with: chronos timestamp serve --file {file}\n");
    match TimestampFile::create(path, bound) {
        Ok(()) => made(&file.to_string(), bound, &serve),
        Err(error) => fail(&error, EXIT_FAILURE),
    }
}

fn make_in_zookeeper(config: &TimestampConfig, flags: &InitFlags) -> u8 {
    // The tool makes no node of its own, so it needs no `host_port`.
    let settings = match zookeeper_settings(config, String::new()) {
        Ok(settings) => settings,
        Err(error) => return fail(&error, EXIT_FAILURE),
    };
    let bound = bound_above(now().wall, flags.above);
    on_runtime(async {
        let is_said = flags.above.is_some();
        match zookeeper_init::init(&settings, bound, is_said).await {
            Ok(path) => made(&path, bound, "Servers that wait for it go on within a second.\n"),
            Err(error) => fail(&error, EXIT_FAILURE),
        }
    })
}

/// Prints what was made and what comes next. Returns the exit code.
fn made(place: &str, bound: Timestamp, next: &str) -> u8 {
    let slow = match bound.unix_ms().saturating_sub(now().wall.0) {
        0 => String::new(),
        ahead_ms => format!(
            "That is {ahead_ms} ms ahead of the clock: timestamps go at half speed until it has \
             caught up.\n"
        ),
    };
    print(&format!("{place} is made; the first timestamp will be above {}.\n{slow}{next}", bound.0))
}

/// Returns what is wrong with `--above`.
fn wrong_above(above: u64) -> Option<String> {
    let room = Timestamp::LAST.unix_ms().saturating_sub(Timestamp(above).unix_ms());
    let last = Timestamp::LAST.0;
    (room < ROOM_MS).then(|| {
        format!(
            "--above {above}: timestamps end in the year 3084 with {last}, and less than a year \
             of them would be left"
        )
    })
}

/// Returns a bound that is above what was handed out, and above what the clock may have given so
/// far.
fn bound_above(wall: WallMs, above: Option<u64>) -> Timestamp {
    Timestamp::of_unix_ms(wall.0).max(Timestamp(above.unwrap_or(0)))
}

fn configured(flags: &InitFlags) -> Result<TimestampConfig, u8> {
    let environment = environment().map_err(|problem| fail(&problem, EXIT_USAGE))?;
    let given = [("zookeeper_quorum", &flags.zookeeper), ("zookeeper_cluster", &flags.cluster)];
    let given =
        given.into_iter().filter_map(|(key, text)| Some((("timestamp", key), text.clone()?)));
    let mut files = ConfigFiles::new(flags.config.as_deref(), None, environment, given.collect());
    let loaded = files.load().map_err(|error| fail(&error, EXIT_USAGE))?;
    Ok(loaded.config.timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::COUNTER_BITS;

    #[test]
    fn a_new_file_is_above_the_clock_and_above_what_is_said() {
        let wall = WallMs(1_000);
        assert_eq!(bound_above(wall, None), Timestamp::of_unix_ms(1_000));
        assert_eq!(bound_above(wall, Some(5)), Timestamp::of_unix_ms(1_000));
        let later = Timestamp::of_unix_ms(2_000).0 + 5;
        assert_eq!(bound_above(wall, Some(later)), Timestamp(later));
    }

    #[test]
    fn a_year_of_timestamps_must_be_left() {
        let most = (Timestamp::LAST.unix_ms() - ROOM_MS) << COUNTER_BITS;
        assert_eq!(wrong_above(0), None);
        assert_eq!(wrong_above(most), None);
        for above in [most + (1 << COUNTER_BITS), Timestamp::LAST.0, u64::MAX] {
            let told = wrong_above(above).expect("too little is left");
            assert!(told.contains("timestamps end in the year 3084"), "{told}");
        }
    }
}
