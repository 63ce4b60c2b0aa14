//! The log: text on a terminal, JSON otherwise. It goes to standard error, which is a file in a
//! daemon. A log line that cannot be written is dropped: a full disk or a closed pipe never stops a
//! timer.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use tracing_subscriber::EnvFilter;

use crate::control::config::settings::LogSettings;
use crate::ring::redirect_standard_error;

/// The name of the log file, the same as that of the original service.
const FILE: &str = "chronos_current.txt";

/// Installs the process's logger. Later calls change nothing. `NO_COLOR` is honoured.
pub(crate) fn install(settings: &LogSettings) {
    let is_terminal = std::io::stderr().is_terminal();
    let as_json = match settings.format.as_str() {
        "json" => true,
        "text" => false,
        _ => !is_terminal,
    };
    // Lines of libraries below `warn` say nothing about timers.
    let level = settings.level.as_str();
    let libraries = if level == "error" { "error" } else { "warn" };
    let filter = EnvFilter::new(format!("{libraries},chronos={level}"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    // An error means that a logger is installed already. That logger stays.
    let _ = if as_json {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        let coloured = is_terminal && std::env::var_os("NO_COLOR").is_none();
        builder.with_ansi(coloured).with_target(false).try_init()
    };
}

/// Returns the path of the log file in a folder.
pub(crate) fn file_in(folder: &str) -> PathBuf {
    Path::new(folder).join(FILE)
}

/// Sends standard error to the end of a file, including the messages of panics. Makes the file and
/// its folder if they are missing. Called again after the file was moved away, it makes a new file.
pub(crate) fn send_to(file: &Path) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let opened = File::options().create(true).append(true).open(file)?;
    redirect_standard_error(&opened)
}
