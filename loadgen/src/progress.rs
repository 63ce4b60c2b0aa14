//! A bar on the terminal during a long run. Nothing is drawn if standard error is not a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::clock::clock_ns;

/// Runs that take no longer show no bar.
const SHOWN_FROM: Duration = Duration::from_secs(2);

/// Progress over a known time, with a text beside it.
pub struct Progress {
    bar: Option<ProgressBar>,
    start_ns: u64,
}

impl Progress {
    /// Begins a bar for a run of about `length`.
    pub fn start(what: &str, length: Duration) -> Progress {
        let shown = length > SHOWN_FROM && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let bar = ProgressBar::new(length.as_millis() as u64);
            let style = ProgressStyle::with_template(
                "{prefix:>18} {bar:36.cyan/dim} {elapsed:>4} of about {duration}  {msg}",
            );
            bar.set_style(style.expect("the template is a constant that parses"));
            bar.set_prefix(what.to_owned());
            bar
        });
        Progress { bar, start_ns: clock_ns() }
    }

    /// Draws the time that has passed, and `message`.
    pub fn show(&self, message: String) {
        if let Some(bar) = &self.bar {
            let passed_ms = (clock_ns() - self.start_ns) / 1_000_000;
            bar.set_position(passed_ms.min(bar.length().unwrap_or(0)));
            bar.set_message(message);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
