//! Measures how long this machine stalls. What a suite sees during a stall proves nothing about the
//! program.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long the watching thread sleeps between two looks.
const NAP: Duration = Duration::from_millis(5);
/// Stalls shorter than this are not kept.
const NOTABLE: Duration = Duration::from_millis(20);

static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Starts a thread that watches until the process ends.
pub fn watch() {
    thread::spawn(|| {
        let mut last = Instant::now();
        loop {
            thread::sleep(NAP);
            let now = Instant::now();
            let stalled = now.duration_since(last).saturating_sub(NAP);
            last = now;
            if stalled >= NOTABLE {
                STALLS.lock().expect("nobody panics with it").push((now, stalled));
            }
        }
    });
}

/// Returns the sum of all stalls since `begin`. A chain of messages over several processes can meet
/// more than one stall.
pub fn since(begin: Instant) -> Duration {
    let stalls = STALLS.lock().expect("nobody panics with it");
    stalls.iter().filter(|one| one.0 >= begin).map(|one| one.1).sum()
}
