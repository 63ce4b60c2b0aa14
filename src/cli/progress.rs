//! How far the long work of a command is, on standard error: a bar on a terminal, a line every 10 s
//! elsewhere, and nothing where a program reads the output (`--json`). The load generator uses it,
//! too.

use std::cell::{Cell, OnceCell};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::terminal::{is_plain, tell};
use crate::control::estimate::{left_s, percent};

/// Pause between two lines where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Work that ends sooner shows no bar.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// Whether all work is silent.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Lets no work of this process show its progress: its output is read by a program.
pub fn silence() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// Writes a line to standard error that says how far the work is, unless all work is silent.
pub fn say(line: &str) {
    if !IS_SILENT.load(Ordering::Relaxed) {
        tell(line);
    }
}

/// Work that goes on. Dropping the value clears the bar.
#[derive(Debug)]
pub struct Progress {
    what: String,
    begun: Instant,
    told: Cell<Instant>,
    has_bar: bool,
    bar: OnceCell<ProgressBar>,
}

impl Progress {
    /// Begins work. `what` names it in a few words.
    pub fn begin(what: &str) -> Progress {
        let begun = Instant::now();
        Progress {
            what: what.to_owned(),
            begun,
            told: Cell::new(begun),
            has_bar: std::io::stderr().is_terminal() && !is_plain(),
            bar: OnceCell::new(),
        }
    }

    /// Shows that `done` of `all` is done, and `text` beside it; `all` is 0 where nobody knows it.
    pub fn show(&self, done: u64, all: u64, text: &str) {
        let passed = self.begun.elapsed();
        if IS_SILENT.load(Ordering::Relaxed) {
            return;
        }
        let text = with_estimate(text, passed, done, all);
        if !self.has_bar {
            if self.told.get().elapsed() >= TELL_EVERY {
                self.told.set(Instant::now());
                tell(&line(&self.what, done, all, &text));
            }
        } else if passed >= SHOWN_AFTER {
            let bar = self.bar.get_or_init(|| bar(&self.what, all > 0));
            bar.set_length(all.max(1));
            bar.set_position(done.min(all));
            bar.set_message(text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, has_end: bool) -> ProgressBar {
    let bar = ProgressBar::new(1);
    bar.set_prefix(what.to_owned());
    let template = match has_end {
        true => "{prefix:>18} {bar:32} {percent:>3} %  {msg}",
        false => "{prefix:>18} {spinner} {elapsed}  {msg}",
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.expect("the templates are constants that parse"));
    bar
}

fn with_estimate(text: &str, passed: Duration, done: u64, all: u64) -> String {
    let left = left_s(passed, done, all).filter(|left_s| *left_s > 0 && all > 0);
    let left = left.map(|left_s| format!("about {left_s} s left"));
    let parts = [(!text.is_empty()).then(|| text.to_owned()), left];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn line(what: &str, done: u64, all: u64, text: &str) -> String {
    match percent(done, all) {
        Some(percent) => format!("{what}: {percent} %, {text}").trim_end_matches(", ").to_owned(),
        None => format!("{what}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_percent_figures_and_an_estimate() {
        let shown = |done, all, text: &str| {
            line("moving", done, all, &with_estimate(text, Duration::from_secs(30), done, all))
        };
        assert_eq!(shown(25, 100, "7 moved"), "moving: 25 %, 7 moved, about 90 s left");
        assert_eq!(shown(0, 100, "7 moved"), "moving: 0 %, 7 moved");
        assert_eq!(shown(100, 100, ""), "moving: 100 %");
        assert_eq!(shown(200, 100, "x"), "moving: 100 %, x", "more than was guessed");
        assert_eq!(shown(5, 0, "5 found"), "moving: 5 found", "nobody knows how many there are");
    }
}
