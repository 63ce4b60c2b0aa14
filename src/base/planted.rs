//! The switch for planted bugs. Each thread has its own switch and at most one bug at a time, so
//! that seeds can run on several threads side by side.

use std::cell::Cell;

pub use super::planted_bugs::Bug;

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether `bug` is switched on for the calling thread.
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Switches one bug on for the calling thread and every other bug off. `None` switches all bugs
/// off.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
