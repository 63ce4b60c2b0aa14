//! How a node's process begins and ends: in the foreground or as a daemon, with a pid file and a
//! log file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::log;
use super::pid_file::{LOCK_PATIENCE, PidFile, PidFileError};
use super::serve::{Control, ServeError};
use crate::control::config::error::Origin;
use crate::control::config::files::ConfigFiles;
use crate::control::config::load::Loaded;
use crate::ring::{Daemon, Launcher, daemonise, refuse_core_dumps};

/// A wait for the pid file's lock that is at least this long is logged.
const LOCK_TOLD: Duration = Duration::from_millis(10);

/// How the command line asks the process to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Whether the process leaves the terminal.
    pub daemon: bool,
    /// The path of the pid file; `None`: no pid file.
    pub pid_file: Option<PathBuf>,
}

/// Why a process ended badly. The text says what to do; the exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The process cannot leave the terminal.
    #[error("cannot become a daemon: {0}. Start without --daemon under a service manager")]
    Fork(std::io::Error),
    /// The daemon did not start. The text is the daemon's.
    #[error("{0}")]
    Daemon(String),
    /// The daemon has told its launcher why it ends. Nothing more is printed.
    #[error("told to the launcher")]
    Told,
    /// The log file cannot be opened.
    #[error(
        "cannot log to {file}: {source}. Make the folder writable for this user, or name another \
         one with [logging] folder ([log] folder)"
    )]
    Log {
        /// The path of the log file.
        file: String,
        /// The error that the kernel returned.
        source: std::io::Error,
    },
    /// Nobody can write the log.
    #[error(
        "cannot start the thread that writes the log: {0}. Check the limit on threads (ulimit -u)"
    )]
    LogThread(std::io::Error),
    /// The pid file is locked or cannot be written.
    #[error(transparent)]
    PidFile(#[from] PidFileError),
    /// The node did not start or has failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Runs a node until it ends. The launcher of a daemon returns when the daemon is ready.
pub(crate) fn launch(
    launch: &Launch,
    files: ConfigFiles,
    loaded: Loaded,
) -> Result<(), LaunchError> {
    // The path is made absolute, because a daemon works in another folder.
    let pid_file = launch.pid_file.as_deref();
    let pid_file = pid_file.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    if !launch.daemon {
        return run(pid_file.as_deref(), files, loaded, None, || ());
    }
    match daemonise().map_err(LaunchError::Fork)? {
        Daemon::Launcher(outcome) => outcome.map_err(LaunchError::Daemon),
        Daemon::Started(launcher) => run_daemon(pid_file.as_deref(), files, loaded, launcher),
    }
}

fn run_daemon(
    pid_file: Option<&Path>,
    files: ConfigFiles,
    loaded: Loaded,
    launcher: Launcher,
) -> Result<(), LaunchError> {
    let log_file = log::file_in(&loaded.config.log.folder);
    let mut waiting = Some(launcher);
    let ready = || {
        if let Some(launcher) = waiting.take() {
            // Whoever started the daemon finds in its log how it began.
            log::finish();
            launcher.ready();
        }
    };
    let ended = run(pid_file, files, loaded, Some(&log_file), ready);
    match (ended, waiting) {
        (Err(error), Some(launcher)) => {
            launcher.failed(&error.to_string());
            Err(LaunchError::Told)
        }
        (ended, _) => ended,
    }
}

fn run(
    pid_file: Option<&Path>,
    files: ConfigFiles,
    loaded: Loaded,
    log_file: Option<&Path>,
    ready: impl FnOnce(),
) -> Result<(), LaunchError> {
    let Loaded { config, warnings } = loaded;
    // The lock comes before the log: a second process must not write into the log of the first.
    let mut held = pid_file.map(|path| PidFile::lock(path, LOCK_PATIENCE)).transpose()?;
    // The handlers come before the number: whoever reads it may send signals.
    let control = Control::begin()?;
    if let Some(held) = &mut held {
        held.write()?;
    }
    if let Some(file) = log_file {
        log::send_to(file)
            .map_err(|source| LaunchError::Log { file: file.display().to_string(), source })?;
    }
    log::install(&config.log).map_err(LaunchError::LogThread)?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    if log_file.is_none() && *config.origin("log", "folder") != Origin::Default {
        tracing::warn!(
            "{} has no file: a node in the foreground logs to standard error. Start it with \
             --daemon, or send standard error there",
            config.describe("log", "folder")
        );
    }
    if !config.core_dumps
        && let Err(error) = refuse_core_dumps()
    {
        tracing::warn!("core dumps of this process cannot be refused: {error}");
    }
    if let Some(held) = held.as_ref().filter(|held| held.waited >= LOCK_TOLD) {
        let waited_ms = held.waited.as_millis() as u64;
        tracing::warn!(waited_ms, "the pid file was locked by a process that has ended since");
    }
    let ended = control.serve(&config, files, log_file, ready);
    // Before the pid file goes: whoever waits for that finds in the log how it ended.
    log::finish();
    Ok(ended?)
}
