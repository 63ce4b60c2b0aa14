//! Flags and subcommands. A flag that sets a configuration key takes its help from the table of
//! keys. Its text goes through the same reader as the file and the environment.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::backup::BackupFlags;
use super::cluster::ClusterFlags;
use super::journal::JournalFlags;
use super::key_flags::{admin_settings, help};
use super::manual::{CompletionsFlags, ManFlags};
use super::timestamp::TimestampFlags;
use super::token::TokenFlags;
use crate::base::version::VERSION;
use crate::control::config::files::IniFiles;
use crate::control::launch::Launch;

const EXAMPLES: &str = "\
Examples:
  chronos                                    serve on 127.0.0.1:7253, one pinned thread per core
  chronos timestamp --help                   strictly increasing timestamps
  chronos token new --help                   tokens for clients
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
service; its keys for thread counts, throttling, DNS and exceptions are accepted and mean nothing.

SIGHUP reads members and sites again, SIGUSR1 compares all timers with the other members, SIGTERM
and SIGINT stop.

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

    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "CHRONOS_CONFIG")]
    pub config: Option<PathBuf>,

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
    keys: KeyFlags,

    #[command(flatten)]
    drop_in: DropInFlags,
}

/// Flags of the original service. Without --config, any of them means that this is one of its
/// deployments. Beside --config, only a flag that names one of its files means that.
#[derive(Debug, Args)]
#[command(next_help_heading = "In place of the original service (INI files, its defaults)")]
struct DropInFlags {
    /// Leave the terminal once the node serves; log to chronos_current.txt in the log folder
    #[arg(long)]
    daemon: bool,

    /// Write the process id to this file before the port opens, and lock it
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,

    /// INI file of this node [default: /etc/chronos/chronos.conf]
    #[arg(long, value_name = "FILE")]
    local_config_file: Option<PathBuf>,

    /// INI file of the cluster, read again on SIGHUP [default: /etc/chronos/chronos_cluster.conf]
    #[arg(long, value_name = "FILE")]
    cluster_config_file: Option<PathBuf>,

    /// INI file of all nodes, read again on SIGHUP [default: /etc/chronos/chronos_shared.conf]
    #[arg(long, value_name = "FILE")]
    shared_config_file: Option<PathBuf>,

    /// Accepted and ignored: the system resolves names
    #[arg(long, value_name = "FILE")]
    dns_config_file: Option<PathBuf>,
}

/// Flags that set a key of the configuration.
#[derive(Debug, Args)]
struct KeyFlags {
    #[arg(long, value_name = "ADDRESS", help = help("node", "listen"))]
    listen: Option<String>,

    #[arg(long, value_name = "CORES", help = help("node", "cores"))]
    cores: Option<String>,

    #[arg(long, value_name = "N", help = help("node", "shards"))]
    shards: Option<String>,

    /// Do not pin threads to cores
    #[arg(long, action = ArgAction::SetTrue)]
    no_pin: bool,

    #[arg(long, action = ArgAction::SetTrue, help = help("auth", "insecure_open"))]
    insecure_open: bool,

    #[arg(long, value_name = "DIR", help = help("journal", "data_dir"))]
    data_dir: Option<String>,

    #[arg(long, value_name = "off|interval|sync", help = help("journal", "mode"))]
    journal: Option<String>,

    #[arg(long, value_name = "ADDRESS|off", help = help("admin", "listen"))]
    admin: Option<String>,

    #[arg(long, value_name = "LEVEL", help = help("log", "level"))]
    log_level: Option<String>,

    #[arg(long, value_name = "FORMAT", help = help("log", "format"))]
    log_format: Option<String>,
}

/// The subcommands: what the binary can do besides serving timers.
#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Start a node and a callback receiver in this process, create two timers over HTTP and watch
    /// them pop
    Demo,
    Backup(BackupFlags),
    Cluster(ClusterFlags),
    Journal(Box<JournalFlags>),
    Timestamp(Box<TimestampFlags>),
    Token(TokenFlags),
    Completions(CompletionsFlags),
    Man(ManFlags),
}

impl Flags {
    /// Returns the files of the original service if this is one of its deployments. Beside --config
    /// only a flag that names a file says so. A pid file or --daemon alone must not move a
    /// configured node to all addresses and take its admin API away.
    pub(super) fn ini_files(&self) -> Option<IniFiles> {
        let DropInFlags {
            daemon,
            pidfile,
            local_config_file: local,
            cluster_config_file: cluster,
            shared_config_file: shared,
            dns_config_file: dns,
        } = &self.drop_in;
        let files = [local, cluster, shared, dns];
        let is_process_meant = self.config.is_none() && (*daemon || pidfile.is_some());
        let is_meant = is_process_meant || files.iter().any(|file| file.is_some());
        is_meant.then(|| IniFiles {
            local: local.clone(),
            cluster: cluster.clone(),
            shared: shared.clone(),
        })
    }

    /// Returns how the process should run: as a daemon or not, and its pid file.
    pub(super) fn launch(&self) -> Launch {
        Launch { daemon: self.drop_in.daemon, pid_file: self.drop_in.pidfile.clone() }
    }

    /// Returns the keys that flags set, as `((section, name), text)`.
    pub(super) fn settings(&self) -> Vec<((&'static str, &'static str), String)> {
        let keys = &self.keys;
        let mut settings = Vec::new();
        let given = [
            (("node", "listen"), &keys.listen),
            (("node", "cores"), &keys.cores),
            (("node", "shards"), &keys.shards),
            (("journal", "data_dir"), &keys.data_dir),
            (("journal", "mode"), &keys.journal),
            (("log", "level"), &keys.log_level),
            (("log", "format"), &keys.log_format),
        ];
        for (key, text) in given {
            settings.extend(text.iter().map(|text| (key, text.clone())));
        }
        if keys.insecure_open {
            settings.push((("auth", "insecure_open"), "true".into()));
        }
        if keys.no_pin {
            settings.push((("node", "pin"), "false".into()));
        }
        settings.extend(admin_settings(keys.admin.as_deref()));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::keys::{KEYS, find};
    use clap::CommandFactory;

    fn settings(line: &str) -> Vec<((&'static str, &'static str), String)> {
        let words = ["chronos"].into_iter().chain(line.split_whitespace());
        Flags::try_parse_from(words).expect(line).settings()
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
            Flags::try_parse_from(words).expect(line).ini_files().is_some()
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
