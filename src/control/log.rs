//! The log: text on a terminal, JSON otherwise. It goes to standard error, which is a file in a
//! daemon. A log line that cannot be written is dropped: a full disk, a closed pipe, or a reader
//! that stalls never stops a timer ([`super::log_queue`]).

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::log_queue::LogQueue;
use crate::control::config::settings::LogSettings;
use crate::ring::{redirect_standard_error, write_standard_error};

/// The name of the log file, the same as that of the original service.
const FILE: &str = "chronos_current.txt";

/// How long a process waits at its end, or at a panic, for whoever reads its log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The way of all lines; none before [`install`].
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Installs the process's logger, and has panics told by it. Later calls change nothing. `NO_COLOR`
/// is honoured. Error: no thread can be started.
pub(crate) fn install(settings: &LogSettings) -> io::Result<()> {
    if QUEUE.get().is_none() {
        let queue = LogQueue::start(write_standard_error, |dropped| {
            tracing::warn!(
                dropped,
                "lines of the log were dropped: whoever reads standard error was too slow, or the \
                 disk of the log had no room"
            );
        })?;
        let _ = QUEUE.set(queue);
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let trace = std::backtrace::Backtrace::capture();
            let name = thread.name().unwrap_or("<unnamed>");
            let mut text = format!("\nthread '{name}' {panic}\n");
            if trace.status() == std::backtrace::BacktraceStatus::Captured {
                text += &format!("{trace}\n");
            }
            say(&text);
            finish();
        }));
    }
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
        .with_writer(|| Line)
        .log_internal_errors(false);
    // An error means that a logger is installed already. That logger stays.
    let _ = if as_json {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        let coloured = is_terminal && std::env::var_os("NO_COLOR").is_none();
        builder.with_ansi(coloured).with_target(false).try_init()
    };
    Ok(())
}

/// Where the logger puts a line, in one write.
struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(queue) = QUEUE.get() {
            queue.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes text to standard error that is more than a line of the log: the last words of a process.
/// What cannot be written is dropped.
pub(crate) fn say(text: &str) {
    match QUEUE.get() {
        Some(queue) => _ = queue.push_within(text.as_bytes(), LAST_WORDS),
        None => _ = io::stderr().lock().write_all(text.as_bytes()),
    }
}

/// From now on lines wait for whoever reads: the process is about to end.
pub(crate) fn expect_end() {
    if let Some(queue) = QUEUE.get() {
        queue.expect_end(LAST_WORDS);
    }
}

/// Returns when the log is written, or whoever reads it does not read. To be called before a
/// process ends.
pub(crate) fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LAST_WORDS);
    }
}

/// How many lines of the log were dropped.
pub(crate) fn dropped() -> u64 {
    QUEUE.get().map_or(0, LogQueue::dropped)
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
