//! The bugs that a simulator must find, and the replay of one seed with or without a bug.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::seeds::number;
use super::shrink::{explain, judge, judge_seed};
use super::story::Simulator;

/// How many seeds may be tried until a planted bug is found.
const PLANTED_SEEDS_MAX: u64 = 1_000;

/// Replays the seed in `CHRONOS_SIM_SEED`. Plants the bug in `CHRONOS_SIM_BUG`, if it is set.
pub fn replay<S: Simulator>() {
    let Some(seed) = number("CHRONOS_SIM_SEED") else { return };
    let bug = std::env::var("CHRONOS_SIM_BUG").ok();
    S::plant(bug.and_then(|name| S::bug(&name)));
    let result = judge_seed::<S>(seed);
    if let Err(failure) = result {
        panic!("seed {seed}: {}", explain::<S>(seed, &failure));
    }
}

/// Fails unless every bug is found. Looks for two bugs at a time; with `CHRONOS_SIM_BUG` for that
/// one alone.
pub fn find_all<S: Simulator>(bugs: &[S::Bug]) {
    let only = std::env::var("CHRONOS_SIM_BUG").ok();
    let is_wanted = |bug: &S::Bug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    let bugs: Vec<S::Bug> = bugs.iter().copied().filter(is_wanted).collect();
    let next = AtomicUsize::new(0);
    let search = || {
        let mut missed = Vec::new();
        while let Some(&bug) = bugs.get(next.fetch_add(1, Relaxed)) {
            match find::<S>(bug) {
                Some(found) => eprintln!("{found}"),
                None => missed.push(bug),
            }
        }
        missed
    };
    let missed: Vec<S::Bug> = std::thread::scope(|scope| {
        let threads = [scope.spawn(search), scope.spawn(search)];
        threads.into_iter().flat_map(|thread| thread.join().expect("it catches panics")).collect()
    });
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}

/// Fails unless each bug is found by its seed. For bugs that few seeds find: whoever changes what a
/// seed draws looks for another one, with `CHRONOS_SIM_BUG` and `replay`.
pub fn find_each<S: Simulator>(bugs: &[(S::Bug, u64)]) {
    for &(bug, seed) in bugs {
        let story = S::draw(S::options(seed));
        S::plant(Some(bug));
        let found = judge::<S>(&story).err();
        S::plant(None);
        let failure = found.unwrap_or_else(|| panic!("seed {seed} does not find {bug:?}"));
        assert!(judge::<S>(&story).is_ok(), "seed {seed} fails without {bug:?}, too");
        eprintln!("{bug:?}: {}: {:.120}", failure.by, failure.what);
    }
}

/// Returns the line of the first good seed that finds a bug. The bug is switched on for this thread
/// alone.
fn find<S: Simulator>(bug: S::Bug) -> Option<String> {
    (0..PLANTED_SEEDS_MAX).find_map(|seed| {
        let story = S::draw(S::options(seed));
        S::plant(Some(bug));
        let found = judge::<S>(&story).err();
        S::plant(None);
        let failure = found?;
        // A seed that also fails without the bug proves nothing.
        judge::<S>(&story).is_ok().then(|| {
            let by = format!("{}: {}", failure.by, failure.what);
            format!("{:<30} after {:>4} seeds  {by:.120}", format!("{bug:?}"), seed + 1)
        })
    })
}
