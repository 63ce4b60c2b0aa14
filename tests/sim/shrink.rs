//! Seeds and what becomes of them: run one, catch its panics, shorten the story of one that fails.
//! All simulators use it; each has a `Story`, `Options` and `run` of its own.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::Story;
use super::model::Violation;
use super::options::Options;
use super::world::{Report, run};

/// Runs spent on shortening one story.
const SHRINK_RUNS_MAX: u32 = 400;

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Why a story failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// An invariant, or `panic` with the place.
    pub by: String,
    pub what: String,
}

/// Runs a story; a panic of production code is a finding, too.
pub fn judge(story: &Story) -> Result<Report, Failure> {
    install_hook();
    IS_CAUGHT.set(true);
    let report = catch_unwind(AssertUnwindSafe(|| run(story, false)));
    IS_CAUGHT.set(false);
    match report {
        Ok(Report { violation: Some(Violation { invariant, what }), .. }) => {
            Err(Failure { by: invariant.to_owned(), what })
        }
        Ok(report) => Ok(report),
        Err(_) => {
            let what = PANIC.with_borrow(String::clone);
            let place = what.split(": ").next().unwrap_or("").to_owned();
            Err(Failure { by: format!("panic at {place}"), what })
        }
    }
}

/// Runs the story of a seed.
pub fn judge_seed(seed: u64) -> Result<Report, Failure> {
    judge(&Story::draw(Options::draw(seed)))
}

/// Drops operations and faults, halves first, as long as the story fails in the same way.
pub fn shrink(mut story: Story, failure: &Failure) -> Story {
    let mut runs = 0;
    let mut fails = |story: &Story| {
        runs += 1;
        runs <= SHRINK_RUNS_MAX && judge(story).is_err_and(|found| found.by == failure.by)
    };
    let mut portion = story.operations.len().max(story.faults.len()).max(1);
    loop {
        let mut at = 0;
        while at < story.operations.len() {
            let mut shorter = story.clone();
            shorter.operations.drain(at..(at + portion).min(story.operations.len()));
            if fails(&shorter) { story = shorter } else { at += portion }
        }
        at = 0;
        while at < story.faults.len() {
            let mut shorter = story.clone();
            shorter.faults.drain(at..(at + portion).min(story.faults.len()));
            if fails(&shorter) { story = shorter } else { at += portion }
        }
        if portion == 1 {
            return story;
        }
        portion /= 2;
    }
}

/// Everything that a person needs: the line that replays, the shortest story found, the last
/// events.
pub fn explain(seed: u64, failure: &Failure) -> String {
    let story = shrink(Story::draw(Options::draw(seed)), failure);
    let mut text = format!(
        "{}: {}\nreplay: CHRONOS_SIM_SEED={seed} cargo test --features planted --test {} replay\n\
         {:?}\nshortest story found:\n",
        failure.by,
        failure.what,
        env!("CARGO_CRATE_NAME"),
        story.options
    );
    for operation in &story.operations {
        text += &format!("  {operation:?}\n");
    }
    for fault in &story.faults {
        text += &format!("  {fault:?}\n");
    }
    if let Err(failure) = judge(&story) {
        text += &format!("it ends with {}: {}\n", failure.by, failure.what);
    }
    if !failure.by.starts_with("panic") {
        for event in run(&story, true).trace.tail() {
            text += &format!("  {event}\n");
        }
    }
    text
}

/// Panics that are caught are kept as text instead of being printed; others are printed as ever.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_CAUGHT.get() {
                return usual(info);
            }
            let place =
                info.location().map_or(String::new(), |at| format!("{}:{}", at.file(), at.line()));
            let fixed = info.payload().downcast_ref::<&str>().copied();
            let made = info.payload().downcast_ref::<String>().map(String::as_str);
            PANIC.set(format!("{place}: {}", fixed.or(made).unwrap_or("a panic without words")));
        }));
    });
}
