//! The simulator of timestamps: up to four servers in virtual time, driven through their production
//! code, against a model of a `ZooKeeper` ensemble (or a file), clocks and users that misbehave by
//! a seed, and processes that stop or die anywhere.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`; others:
//! `CHRONOS_SIM_FIRST=1000`; one seed: `CHRONOS_SIM_SEED=7`.

mod client;
mod clocks;
mod disk;
mod ensemble;
mod model;
mod options;
#[path = "../sim/planted.rs"]
mod planted;
mod original;
#[path = "../sim/random.rs"]
mod random;
mod servers;
#[path = "../sim/shrink.rs"]
mod shrink;
mod story;
#[path = "../sim/trace.rs"]
mod trace;
mod users;
mod world;

use std::time::{Duration, Instant};

use chronos::base::planted::Bug;

use planted::{find_all, number};
use shrink::{explain, judge_seed};
use story::Story;

/// Seeds of a usual test run.
const SEEDS: u64 = 300;

#[test]
fn no_seed_breaks_an_invariant() {
    let began = Instant::now();
    let minutes = number("CHRONOS_SIM_MINUTES");
    let seeds =
        number("CHRONOS_SIM_SEEDS").unwrap_or(if minutes.is_some() { u64::MAX } else { SEEDS });
    let until = minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let first = number("CHRONOS_SIM_FIRST").unwrap_or(0);
    let (mut virtual_ns, mut answers, mut refused, mut alarms, mut ran) = (0, 0, 0, 0, 0);
    let (mut failovers, mut ahead_ms) = (0, 0);
    let mut failed = Vec::new();
    for seed in first..first.saturating_add(seeds) {
        if until.is_some_and(|until| Instant::now() >= until) || failed.len() >= 5 {
            break;
        }
        ran += 1;
        match judge_seed(seed) {
            Ok(report) => {
                virtual_ns += report.virtual_ns;
                answers += report.answers;
                refused += report.refused;
                alarms += report.alarms;
                failovers += report.failovers_timed;
                ahead_ms = report.ahead_ms.max(ahead_ms);
            }
            Err(failure) => {
                eprintln!("seed {seed}: {}", explain(seed, &failure));
                failed.push((seed, failure.by));
            }
        }
    }
    let real = began.elapsed().as_secs_f64();
    let virtual_s = virtual_ns as f64 / 1e9;
    eprintln!(
        "{ran} seeds: {virtual_s:.0} s in {real:.1} s ({:.0} x), {answers} answers, {refused} \
         refusals, {alarms} alarms, {failovers} failovers timed, {ahead_ms} ms ahead at most",
        virtual_s / real
    );
    assert!(failed.is_empty(), "seeds that fail: {failed:?}");
}

#[test]
fn one_seed_gives_one_trace() {
    for seed in 0..10 {
        let first = judge_seed(seed).expect("a good seed");
        let second = judge_seed(seed).expect("a good seed");
        assert_eq!(first.trace.hash(), second.trace.hash(), "seed {seed}");
        assert!(first.trace.events() > 0);
    }
}

#[test]
fn replay() {
    planted::replay();
}

#[test]
fn every_planted_bug_is_found() {
    find_all(&Bug::TIMESTAMP);
}
