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
mod seeds;
mod shrink;
mod stories;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use chronos::base::planted::Bug;

use clients::Story;
use options::Options;
use planted::find_all;
use seeds::Walk;
use shrink::judge;

/// Seeds of a usual test run.
const SEEDS: u64 = 400;

#[test]
fn no_seed_breaks_an_invariant() {
    let (mut pops, mut requests, mut refusals) = (0, 0, BTreeMap::new());
    let walk = Walk::run(
        SEEDS,
        |_| true,
        |report| {
            pops += report.pops;
            requests += report.requests;
            for (refusal, count) in report.refusals {
                *refusals.entry(refusal).or_insert(0) += count;
            }
        },
    );
    walk.end(&format!("{requests} requests, {pops} pops, refused {refusals:?}"));
}

#[test]
fn one_seed_gives_one_trace() {
    seeds::give_one_trace(20);
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
