//! How a node's process begins and ends: in the foreground or as a daemon, with a pid file, its log
//! where it belongs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::log;
use super::pid_file::{LOCK_PATIENCE, PidFile, PidFileError};
use super::serve::{self, ServeError};
use crate::control::config::files::ConfigFiles;
use crate::control::config::load::Loaded;
use crate::ring::{Daemon, Launcher, daemonise};

/// A lock that was waited for so long is told of.
const LOCK_TOLD: Duration = Duration::from_millis(10);

/// What the command line says about the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Leave the terminal.
    pub daemon: bool,
    /// Where to write the number of the process.
    pub pid_file: Option<PathBuf>,
}

/// Why a process ended badly. The text says what to do; the exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// It cannot leave the terminal.
    #[error("cannot become a daemon: {0}. Start without --daemon under a service manager")]
    Fork(std::io::Error),
    /// The daemon did not start; in its own words.
    #[error("{0}")]
    Daemon(String),
    /// The daemon has told its launcher why it ends: nobody else is to be told.
    #[error("told to the launcher")]
    Told,
    /// The log file cannot be opened.
    #[error(
        "cannot log to {file}: {source}. Make the folder writable for this user, or name another \
         one with [logging] folder ([log] folder)"
    )]
    Log {
        /// The file.
        file: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// No pid file.
    #[error(transparent)]
    PidFile(#[from] PidFileError),
    /// The node.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Runs a node to its end. In the launcher of a daemon: until that is ready.
pub(crate) fn launch(
    launch: &Launch,
    files: ConfigFiles,
    loaded: Loaded,
) -> Result<(), LaunchError> {
    // A daemon works in another folder.
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
    // Before the log: a second process must not write into that of the first.
    let held = pid_file.map(|path| PidFile::take(path, LOCK_PATIENCE)).transpose()?;
    if let Some(file) = log_file {
        log::send_to(file)
            .map_err(|source| LaunchError::Log { file: file.display().to_string(), source })?;
    }
    log::install(&config.log);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    if let Some(held) = held.as_ref().filter(|held| held.waited >= LOCK_TOLD) {
        let waited_ms = held.waited.as_millis() as u64;
        tracing::warn!(waited_ms, "the pid file was locked by a process that has ended since");
    }
    Ok(serve::serve(&config, files, log_file, ready)?)
}
