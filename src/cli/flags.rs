//! The command line as a whole: what it can do, and what it does when nothing is said.

use clap::{Parser, Subcommand};

use super::backup::BackupFlags;
use super::cluster::ClusterFlags;
use super::cluster::site::SiteFlags;
use super::config::ConfigFlags;
use super::dead_letters::DeadLettersFlags;
use super::destinations::DestinationsFlags;
use super::doctor::DoctorFlags;
use super::jobs::JobsFlags;
use super::journal::JournalFlags;
use super::manual::{CompletionsFlags, ManFlags};
use super::node_flags::NodeFlags;
use super::timer::TimerFlags;
use super::timestamp::TimestampFlags;
use super::token::TokenFlags;
use super::top::TopFlags;
use crate::base::version::VERSION;

const EXAMPLES: &str = "\
Examples:
  chronos                                    serve on 127.0.0.1:7253, one pinned thread per core
  chronos timestamp --help                   strictly increasing timestamps
  chronos token new --help                   tokens for clients
  chronos timer --help                       timers from the command line
  chronos doctor                             whether this machine is fit for a node
  chronos top                                what a node does, live
  chronos demo                               see two timers pop, nothing to set up
  chronos --listen 0.0.0.0:7253 --insecure-open --cores 2-5
                                             serve a network of your own on four cores
  chronos --data-dir /var/lib/chronos        timers survive the restart of everything
  chronos --config chronos.toml              keys as in tuning/reference.toml, all optional
  chronos --config chronos.toml --check-config && systemctl restart chronos
  chronos --print-config                     effective values and where each came from
  CHRONOS_LIMITS_TIMERS_MAX=1000000 chronos  any key as CHRONOS_<SECTION>_<KEY>

  chronos --daemon --pidfile /run/chronos.pid
                                             in place of the original service, with its INI files

  curl -i http://127.0.0.1:7253/timers -d '{\"timing\":{\"interval\":2},
      \"callback\":{\"http\":{\"uri\":\"http://127.0.0.1:9000/pop\",\"opaque\":\"hello\"}}}'
  curl http://127.0.0.1:7254/status          what the node does

Later wins: default, TOML file, INI files, environment, flags. INI files are those of the original
service: of these the first that has a key decides, in the order cluster, local, shared. Its keys
for thread counts, throttling, DNS and exceptions are accepted and mean nothing.

SIGHUP reads members and sites again, SIGUSR1 compares all timers with the other members, SIGUSR2
reads the file of names again, SIGTERM and SIGINT stop.

Exit codes:
    0  stopped in order (SIGTERM, SIGINT), or did what was asked
    1  failed: an address in use, a missing kernel feature, a failed core, a missing pop of the demo
    2  wrong command line or configuration; nothing was started
  130  ended at once by a second signal";

/// A timer service: POST a timer, get your bytes back by HTTP at the right millisecond.
#[derive(Debug, Parser)]
#[command(name = "chronos", version = VERSION, after_help = EXAMPLES, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Flags {
    /// What to do [default: serve timers]
    #[command(subcommand)]
    pub command: Option<Tool>,

    /// Check file, environment and flags, then exit: 0 if they are fine, 2 if not
    #[arg(long)]
    pub check_config: bool,

    /// Print the effective configuration as TOML, with the origin of every value, then exit
    #[arg(long)]
    pub print_config: bool,

    /// Print tuning/reference.toml, then exit
    #[arg(long, hide = true)]
    pub print_reference_config: bool,

    #[command(flatten)]
    pub node: NodeFlags,
}

/// The subcommands: what the binary can do besides serving timers.
#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Start a node and a callback receiver in this process, create two timers over HTTP and watch
    /// them pop
    Demo,
    Backup(BackupFlags),
    Cluster(ClusterFlags),
    Config(ConfigFlags),
    DeadLetters(DeadLettersFlags),
    Destinations(DestinationsFlags),
    Doctor(DoctorFlags),
    Jobs(JobsFlags),
    Journal(Box<JournalFlags>),
    Site(SiteFlags),
    Timer(TimerFlags),
    Timestamp(Box<TimestampFlags>),
    Token(TokenFlags),
    Top(TopFlags),
    Completions(CompletionsFlags),
    Man(ManFlags),
}

impl Flags {
    /// Whether the process becomes a node or a server of timestamps.
    pub(super) fn runs_a_node(&self) -> bool {
        match &self.command {
            None => true,
            Some(Tool::Timestamp(flags)) => flags.serves(),
            Some(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::keys::{KEYS, find};
    use clap::CommandFactory;

    fn settings(line: &str) -> Vec<((&'static str, &'static str), String)> {
        let words = ["chronos"].into_iter().chain(line.split_whitespace());
        Flags::try_parse_from(words).expect(line).node.settings()
    }

    #[test]
    fn the_definition_is_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn every_flag_of_the_table_exists_and_sets_a_key_that_names_it() {
        let command = Flags::command();
        for key in KEYS.iter() {
            let Some(flag) = key.flag.and_then(|flag| flag.strip_prefix("--")) else { continue };
            assert!(command.get_arguments().any(|a| a.get_long() == Some(flag)), "{key}: --{flag}");
        }
        let all = "--listen [::1]:1 --cores 0 --shards 2 --no-pin --admin 127.0.0.1:2 --log-level \
            warn \
                   --log-format json";
        for ((section, name), text) in settings(all) {
            let key = find(section, name).expect("in the table");
            assert!(key.flag.is_some(), "{key} has no flag");
            assert!(key.kind.read_text(&text).is_ok(), "{key} = {text}");
        }
    }

    #[test]
    fn a_pid_file_beside_our_own_configuration_changes_nothing_else() {
        let is_drop_in = |line: &str| {
            let words = ["chronos"].into_iter().chain(line.split_whitespace());
            Flags::try_parse_from(words).expect(line).node.ini_files().is_some()
        };
        for line in ["--pidfile p", "--daemon", "--cluster-config-file c", "--dns-config-file d"] {
            assert!(is_drop_in(line), "{line}");
        }
        assert!(is_drop_in("--config c.toml --local-config-file l"));
        for line in ["", "--config c.toml", "--config c.toml --daemon --pidfile p"] {
            assert!(!is_drop_in(line), "{line}");
        }
    }

    #[test]
    fn the_admin_flag_switches_on_and_off() {
        assert_eq!(settings("--admin off"), [(("admin", "enabled"), "false".to_string())]);
        assert_eq!(settings("--admin 1.2.3.4:5").len(), 2);
        assert_eq!(settings(""), []);
    }
}
