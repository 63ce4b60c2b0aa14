//! The bugs that a simulator must find, and the replay of one seed with or without one of them. All
//! simulators use it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use chronos::base::planted::{Bug, plant};

use super::Story;
use super::options::Options;
use super::shrink::{explain, judge, judge_seed};

/// Seeds within which every planted bug is to be found.
const PLANTED_SEEDS_MAX: u64 = 1_000;

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Replays the seed in `CHRONOS_SIM_SEED`, with the bug in `CHRONOS_SIM_BUG`, if any.
pub fn replay() {
    let Some(seed) = number("CHRONOS_SIM_SEED") else { return };
    let bug = std::env::var("CHRONOS_SIM_BUG").ok();
    plant(bug.and_then(|name| Bug::named(&name)));
    let result = judge_seed(seed);
    if let Err(failure) = result {
        panic!("seed {seed}: {}", explain(seed, &failure));
    }
}

/// Fails unless every bug is found; two at a time.
pub fn find_all(bugs: &[Bug]) {
    let next = AtomicUsize::new(0);
    let search = || {
        let mut missed = Vec::new();
        while let Some(&bug) = bugs.get(next.fetch_add(1, Relaxed)) {
            match find(bug) {
                Some(found) => eprintln!("{found}"),
                None => missed.push(bug),
            }
        }
        missed
    };
    let missed: Vec<Bug> = std::thread::scope(|scope| {
        let threads = [scope.spawn(search), scope.spawn(search)];
        threads.into_iter().flat_map(|thread| thread.join().expect("it catches panics")).collect()
    });
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}

/// The first good seed that finds a bug, which is switched on for this thread alone.
fn find(bug: Bug) -> Option<String> {
    (0..PLANTED_SEEDS_MAX).find_map(|seed| {
        let story = Story::draw(Options::draw(seed));
        plant(Some(bug));
        let found = judge(&story).err();
        plant(None);
        let failure = found?;
        // A seed that fails without the bug proves nothing.
        judge(&story).is_ok().then(|| {
            let by = format!("{}: {}", failure.by, failure.what);
            format!("{:<30} after {:>4} seeds  {by:.120}", format!("{bug:?}"), seed + 1)
        })
    })
}
