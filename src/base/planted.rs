//! Switch for planted bugs: one bug at a time and thread, so that seeds can run on several threads
//! side by side.

use std::cell::Cell;

pub use super::planted_bugs::Bug;

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether `bug` is switched on for this thread.
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Switches one bug on for this thread, or all off.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
