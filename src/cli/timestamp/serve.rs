//! `chronos timestamp serve`: a server of timestamps alone, without timers.

use std::path::PathBuf;

use clap::Args;

use crate::cli::exit::EXIT_USAGE;
use crate::cli::key_flags::{admin_settings, help};
use crate::cli::node::{environment, launch_node};
use crate::cli::terminal::fail;
use crate::control::config::files::ConfigFiles;
use crate::control::launch::Launch;

/// Serve timestamps and no timers
#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "CHRONOS_CONFIG")]
    config: Option<PathBuf>,

    #[arg(long, value_name = "ADDRESS", help = help("timestamp", "listen"))]
    listen: Option<String>,

    #[arg(long, value_name = "file|zookeeper", help = help("timestamp", "coordination"))]
    coordination: Option<String>,

    #[arg(long, value_name = "FILE", help = help("timestamp", "file"))]
    file: Option<String>,

    #[arg(long, value_name = "HOST:PORT", help = help("timestamp", "advertise"))]
    advertise: Option<String>,

    #[arg(long, value_name = "SERVERS", help = help("timestamp", "zookeeper_quorum"))]
    zookeeper_quorum: Option<String>,

    #[arg(long, value_name = "NAME", help = help("timestamp", "zookeeper_cluster"))]
    zookeeper_cluster: Option<String>,

    #[arg(long, value_name = "MS", help = help("timestamp", "session_timeout_ms"))]
    session_timeout_ms: Option<String>,

    #[arg(long, value_name = "MS", help = help("timestamp", "window_ms"))]
    window_ms: Option<String>,

    #[arg(long, value_name = "strict|old", help = help("timestamp", "replies"))]
    replies: Option<String>,

    #[arg(long, value_name = "CORES", help = help("node", "cores"))]
    cores: Option<String>,

    #[arg(long, value_name = "N", help = help("node", "shards"))]
    shards: Option<String>,

    /// Do not pin threads to cores
    #[arg(long)]
    no_pin: bool,

    #[arg(long, help = help("auth", "insecure_open"))]
    insecure_open: bool,

    #[arg(long, value_name = "ADDRESS|off", help = help("admin", "listen"))]
    admin: Option<String>,

    #[arg(long, value_name = "LEVEL", help = help("log", "level"))]
    log_level: Option<String>,

    #[arg(long, value_name = "FORMAT", help = help("log", "format"))]
    log_format: Option<String>,
}

impl ServeFlags {
    /// Returns the keys that flags set, as `((section, name), text)`.
    fn settings(&self) -> Vec<((&'static str, &'static str), String)> {
        let given = [
            (("timestamp", "listen"), &self.listen),
            (("timestamp", "coordination"), &self.coordination),
            (("timestamp", "file"), &self.file),
            (("timestamp", "advertise"), &self.advertise),
            (("timestamp", "zookeeper_quorum"), &self.zookeeper_quorum),
            (("timestamp", "zookeeper_cluster"), &self.zookeeper_cluster),
            (("timestamp", "session_timeout_ms"), &self.session_timeout_ms),
            (("timestamp", "window_ms"), &self.window_ms),
            (("timestamp", "replies"), &self.replies),
            (("node", "cores"), &self.cores),
            (("node", "shards"), &self.shards),
            (("log", "level"), &self.log_level),
            (("log", "format"), &self.log_format),
        ];
        let mut settings = Vec::new();
        for (key, text) in given {
            settings.extend(text.iter().map(|text| (key, text.clone())));
        }
        if self.no_pin {
            settings.push((("node", "pin"), "false".into()));
        }
        if self.insecure_open {
            settings.push((("auth", "insecure_open"), "true".into()));
        }
        settings.extend(admin_settings(self.admin.as_deref()));
        settings
    }
}

/// Serves until a signal and returns the exit code.
pub(super) fn run(flags: &ServeFlags) -> u8 {
    let environment = match environment() {
        Ok(environment) => environment,
        Err(problem) => return fail(&problem, EXIT_USAGE),
    };
    let files = ConfigFiles::new(flags.config.as_deref(), None, environment, flags.settings());
    let mut files = files.timestamps_alone();
    match files.load() {
        Ok(loaded) => launch_node(&Launch::default(), files, loaded),
        Err(error) => fail(&error, EXIT_USAGE),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::control::config::keys::find;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: ServeFlags,
    }

    #[test]
    fn every_flag_sets_a_key_that_it_is_named_after() {
        let line = "serve --listen [::1]:1 --coordination zookeeper --file f --advertise a:1 \
                    --zookeeper-quorum a:1 --zookeeper-cluster c --session-timeout-ms 4000 \
                    --window-ms 4000 --cores 0 --shards 2 --no-pin --admin 127.0.0.1:2 \
                    --insecure-open --log-level warn --log-format json";
        let line = Line::try_parse_from(line.split_whitespace()).expect("flags");
        let settings = line.flags.settings();
        assert_eq!(settings.len(), 16);
        for ((section, name), text) in settings {
            let key = find(section, name).expect("in the table");
            assert!(key.kind.read_text(&text).is_ok(), "{key} = {text}");
        }
    }
}
