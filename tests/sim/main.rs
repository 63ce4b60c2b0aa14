//! The simulator: one node of one or two cores in virtual time, driven through its production code,
//! against clients, callback hosts, clocks and stalls that misbehave by a seed. Limits are tiny so
//! that edges are met.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`; one seed:
//! `CHRONOS_SIM_SEED=7`.

mod callback_world;
mod clients;
mod driver;
mod invariants;
mod model;
mod options;
mod planted;
mod random;
mod requests;
mod shrink;
mod stories;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chronos::base::planted::Bug;

use clients::Story;
use options::Options;
use planted::{find_all, number};
use shrink::{explain, judge, judge_seed};

/// Seeds of a usual test run.
const SEEDS: u64 = 400;

#[test]
fn no_seed_breaks_an_invariant() {
    let began = Instant::now();
    let minutes = number("CHRONOS_SIM_MINUTES");
    let seeds =
        number("CHRONOS_SIM_SEEDS").unwrap_or(if minutes.is_some() { u64::MAX } else { SEEDS });
    let until = minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let first = number("CHRONOS_SIM_FIRST").unwrap_or(0);
    let (mut virtual_ns, mut pops, mut requests, mut ran) = (0, 0, 0, 0);
    let mut refusals = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in first..first.saturating_add(seeds) {
        if until.is_some_and(|until| Instant::now() >= until) || failed.len() >= 5 {
            break;
        }
        ran += 1;
        match judge_seed(seed) {
            Ok(report) => {
                virtual_ns += report.virtual_ns;
                pops += report.pops;
                requests += report.requests;
                for (refusal, count) in report.refusals {
                    *refusals.entry(refusal).or_insert(0) += count;
                }
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
        "{ran} seeds: {virtual_s:.0} s in {real:.1} s ({:.0} x), {requests} requests, {pops} pops, \
         refused {refusals:?}",
        virtual_s / real
    );
    assert!(failed.is_empty(), "seeds that fail: {failed:?}");
}

#[test]
fn one_seed_gives_one_trace() {
    for seed in 0..20 {
        let first = judge_seed(seed).expect("a good seed");
        let second = judge_seed(seed).expect("a good seed");
        assert_eq!(first.trace.hash(), second.trace.hash(), "seed {seed}");
        assert!(first.trace.events() > 0);
    }
}

/// Ten thousand timers of call sessions on two cores, among hosts that fail. Prints how much faster
/// than real time.
#[test]
fn a_crowd_of_timers_runs_fast() {
    let began = Instant::now();
    let options = Options::crowd(1, 10_000, 1_800_000);
    let report = judge(&Story::draw(options)).expect("no invariant is broken");
    let (real, virtual_s) = (began.elapsed().as_secs_f64(), report.virtual_ns as f64 / 1e9);
    eprintln!(
        "10 000 timers: {virtual_s:.0} s in {real:.2} s ({:.0} x), {} pops",
        virtual_s / real,
        report.pops
    );
    assert!(report.pops > 10_000, "timers pop");
}

#[test]
fn replay() {
    planted::replay();
}

#[test]
fn every_planted_bug_is_found() {
    find_all(&Bug::ONE_NODE);
}
