//! Waits for conditions that give no signal: looks again and again.

use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for something that must happen, however slow the machine is. No suite waits for the
/// whole of it unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Calls `look` until it returns something. Panics with `what` when `patience` is over.
pub fn until<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(LOOK_AGAIN);
    }
}
