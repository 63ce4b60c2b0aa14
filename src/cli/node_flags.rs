//! Flags of a node. A flag that sets a configuration key takes its help from the table of keys. Its
//! text goes through the same reader as the file and the environment.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::key_flags::{admin_settings, help};
use crate::control::config::files::IniFiles;
use crate::control::launch::Launch;

/// What a node is configured with.
#[derive(Debug, Args)]
pub(super) struct NodeFlags {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "CHRONOS_CONFIG")]
    pub(super) config: Option<PathBuf>,

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

    /// Names that lead elsewhere (JSON), read again on SIGUSR2 [default: /etc/clearwater/dns.json]
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

impl NodeFlags {
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
            names: dns.clone(),
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
