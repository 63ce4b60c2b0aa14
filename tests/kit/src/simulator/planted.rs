//! The bugs that a simulator must find, and the replay of one seed with or without a bug.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::seeds::number;
use super::shrink::{explain, judge};
use super::story::Simulator;

/// How many seeds may be tried until a planted bug is found.
const PLANTED_SEEDS_MAX: u64 = 1_000;
/// How many variants of a seed may be tried until it finds a bug that few seeds find.
const VARIANTS_MAX: u64 = 100;

/// Replays the seed in `CHRONOS_SIM_SEED`, or its variant `CHRONOS_SIM_VARIANT`. Plants the bug in
/// `CHRONOS_SIM_BUG`, if it is set.
pub fn replay<S: Simulator>() {
    let Some(seed) = number("CHRONOS_SIM_SEED") else { return };
    let bug = std::env::var("CHRONOS_SIM_BUG").ok();
    S::plant(bug.and_then(|name| S::bug(&name)));
    let variant = number("CHRONOS_SIM_VARIANT").unwrap_or(0);
    let story = S::draw(varied::<S>(seed, variant));
    if let Err(failure) = judge::<S>(&story) {
        panic!("seed {seed}: {}", explain::<S>(seed, story, &failure));
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

/// Fails unless each bug is found by a variant of its seed. For bugs that few seeds find: a message
/// more or less moves what happens, and in most of the variants the story takes another course.
/// With `CHRONOS_SIM_BUG` looks for that bug alone.
pub fn find_each<S: Simulator>(bugs: &[(S::Bug, u64)]) {
    let only = std::env::var("CHRONOS_SIM_BUG").ok();
    let mut missed = Vec::new();
    for &(bug, seed) in bugs {
        if only.as_ref().is_some_and(|only| *only != format!("{bug:?}")) {
            continue;
        }
        match (0..VARIANTS_MAX).find_map(|variant| find_in::<S>(bug, seed, variant)) {
            Some(found) => eprintln!("{found}"),
            None => missed.push((bug, seed)),
        }
    }
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
}

/// Returns the line of a variant that finds a bug.
fn find_in<S: Simulator>(bug: S::Bug, seed: u64, variant: u64) -> Option<String> {
    let story = S::draw(varied::<S>(seed, variant));
    S::plant(Some(bug));
    let found = judge::<S>(&story).err();
    S::plant(None);
    let failure = found?;
    if let Err(failure) = judge::<S>(&story) {
        let (by, what) = (failure.by, failure.what);
        panic!("seed {seed}, variant {variant} fails without {bug:?}, too: {by}: {what}");
    }
    let by = format!("{}: {}", failure.by, failure.what);
    Some(format!("{:<30} seed {seed}, variant {variant}  {by:.120}", format!("{bug:?}")))
}

fn varied<S: Simulator>(seed: u64, variant: u64) -> S::Options {
    let mut options = S::options(seed);
    S::vary(&mut options, variant);
    options
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
