//! Runs the story of a seed, catches its panics, and shortens a story that fails.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::story::{Report, Simulator, Violation};

/// Most runs that are spent on shortening one story.
const SHRINK_RUNS_MAX: u32 = 400;

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Why a story failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The name of an invariant, or `panic` with the place.
    pub by: String,
    /// What was seen.
    pub what: String,
}

/// Runs a story. A panic of production code is a failure, too.
pub fn judge<S: Simulator>(story: &S::Story) -> Result<S::Report, Failure> {
    install_hook();
    IS_CAUGHT.set(true);
    let report = catch_unwind(AssertUnwindSafe(|| S::run(story, false)));
    IS_CAUGHT.set(false);
    let Ok(report) = report else {
        let what = PANIC.with_borrow(String::clone);
        let place = what.split(": ").next().unwrap_or("").to_owned();
        return Err(Failure { by: format!("panic at {place}"), what });
    };
    match report.violation() {
        Some(Violation { invariant, what }) => {
            Err(Failure { by: (*invariant).to_owned(), what: what.clone() })
        }
        None => Ok(report),
    }
}

/// Runs the story of a seed.
pub fn judge_seed<S: Simulator>(seed: u64) -> Result<S::Report, Failure> {
    judge::<S>(&S::draw(S::options(seed)))
}

/// Drops operations and faults, halves first, as long as the story fails in the same way. Returns
/// the shortest story found.
pub fn shrink<S: Simulator>(mut story: S::Story, failure: &Failure) -> S::Story {
    let mut runs = 0;
    let mut fails = |story: &S::Story| {
        runs += 1;
        runs <= SHRINK_RUNS_MAX && judge::<S>(story).is_err_and(|found| found.by == failure.by)
    };
    let mut portion = S::operations(&mut story).len().max(S::faults(&mut story).len()).max(1);
    loop {
        drop_portions(&mut story, portion, S::operations, &mut fails);
        drop_portions(&mut story, portion, S::faults, &mut fails);
        if portion == 1 {
            return story;
        }
        portion /= 2;
    }
}

/// Drops from one list of a story every portion that the failure does not need.
fn drop_portions<Story: Clone, T>(
    story: &mut Story,
    portion: usize,
    list: fn(&mut Story) -> &mut Vec<T>,
    fails: &mut impl FnMut(&Story) -> bool,
) {
    let mut at = 0;
    while at < list(story).len() {
        let mut shorter = story.clone();
        let end = (at + portion).min(list(story).len());
        list(&mut shorter).drain(at..end);
        if fails(&shorter) { *story = shorter } else { at += portion }
    }
}

/// Returns everything that a person needs: the line that replays, the shortest story found, the
/// last events.
pub fn explain<S: Simulator>(seed: u64, story: S::Story, failure: &Failure) -> String {
    let mut story = shrink::<S>(story, failure);
    let mut text = format!(
        "{}: {}\nreplay: CHRONOS_SIM_SEED={seed} cargo test --features planted --test {} replay\n\
         {:?}\nshortest story found:\n",
        failure.by,
        failure.what,
        S::TARGET,
        S::options_of(&story)
    );
    for operation in S::operations(&mut story) {
        text += &format!("  {operation:?}\n");
    }
    for fault in S::faults(&mut story) {
        text += &format!("  {fault:?}\n");
    }
    if let Err(failure) = judge::<S>(&story) {
        text += &format!("it ends with {}: {}\n", failure.by, failure.what);
    }
    if !failure.by.starts_with("panic") {
        for event in S::run(&story, true).trace().tail() {
            text += &format!("  {event}\n");
        }
    }
    text
}

/// Keeps the text of panics that are caught instead of printing it. Other panics are printed as
/// usual.
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
