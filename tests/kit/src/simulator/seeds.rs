//! Walks over seeds. The environment may say how many seeds, for how long, and from which seed on.

use std::time::{Duration, Instant};

use super::shrink::{explain, judge_seed};
use super::story::{Report, Simulator};

/// How many failed seeds end a walk.
const FAILED_MAX: usize = 5;

/// Returns a number from the environment; `None` if it is not set or no number.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The totals of a walk, without the reports of its runs.
#[derive(Debug)]
pub struct Walk {
    began: Instant,
    ran: u64,
    virtual_ns: u64,
    /// Seeds that failed, and by what.
    failed: Vec<(u64, String)>,
}

impl Walk {
    /// Runs `usual` seeds from 0 on. The environment may ask for others: `CHRONOS_SIM_SEEDS` seeds,
    /// or as many as `CHRONOS_SIM_MINUTES` allow, from `CHRONOS_SIM_FIRST` on. Seeds that
    /// `is_wanted` refuses are left out. A good seed is passed to `report`. A seed that fails is
    /// explained at once. With `CHRONOS_SIM_BUG` that bug is planted, and seeds that find it are told
    /// in a line.
    pub fn run<S: Simulator>(
        usual: u64,
        is_wanted: impl Fn(&S::Options) -> bool,
        mut report: impl FnMut(S::Report),
    ) -> Walk {
        let mut walk = Walk { began: Instant::now(), ran: 0, virtual_ns: 0, failed: Vec::new() };
        let minutes = number("CHRONOS_SIM_MINUTES");
        let seeds = number("CHRONOS_SIM_SEEDS").unwrap_or(minutes.map_or(usual, |_| u64::MAX));
        let until = minutes.map(|minutes| walk.began + Duration::from_secs(60 * minutes));
        let first = number("CHRONOS_SIM_FIRST").unwrap_or(0);
        let bug = std::env::var("CHRONOS_SIM_BUG").ok().and_then(|name| S::bug(&name));
        S::plant(bug);
        for seed in first..first.saturating_add(seeds) {
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if is_late || walk.failed.len() >= FAILED_MAX {
                break;
            }
            if !is_wanted(&S::options(seed)) {
                continue;
            }
            walk.ran += 1;
            match judge_seed::<S>(seed) {
                Ok(good) => {
                    walk.virtual_ns += good.virtual_ns();
                    report(good);
                }
                Err(failure) if bug.is_some() => {
                    eprintln!("seed {seed}: {}: {}", failure.by, failure.what);
                    walk.failed.push((seed, failure.by));
                }
                Err(failure) => {
                    let story = S::draw(S::options(seed));
                    eprintln!("seed {seed}: {}", explain::<S>(seed, story, &failure));
                    walk.failed.push((seed, failure.by));
                }
            }
        }
        S::plant(None);
        walk
    }

    /// Prints how far the walk went, and the sums of its reports. Fails if a seed failed.
    pub fn end(self, sums: &str) {
        let real = self.began.elapsed().as_secs_f64();
        let virtual_s = self.virtual_ns as f64 / 1e9;
        let (ran, speed) = (self.ran, virtual_s / real);
        eprintln!("{ran} seeds: {virtual_s:.0} s in {real:.1} s ({speed:.0} x), {sums}");
        assert!(self.failed.is_empty(), "seeds that fail: {:?}", self.failed);
    }
}

/// Fails unless each of the first `seeds` seeds gives the same events in two runs.
pub fn give_one_trace<S: Simulator>(seeds: u64) {
    for seed in 0..seeds {
        let first = judge_seed::<S>(seed).expect("a good seed");
        let second = judge_seed::<S>(seed).expect("a good seed");
        assert_eq!(first.trace().hash(), second.trace().hash(), "seed {seed}");
        assert!(first.trace().events() > 0);
    }
}
