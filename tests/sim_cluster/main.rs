//! The simulator of a cluster: up to five nodes of one or two cores each in virtual time, driven
//! through their production code, against networks, clocks, operators, clients and callback hosts
//! that misbehave by a seed, and nodes that die.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`; others:
//! `CHRONOS_SIM_FIRST=1000`; one seed: `CHRONOS_SIM_SEED=7`; those with a rare fault (see
//! `rarities.rs`): `CHRONOS_SIM_RARITY=OldFiles`.

mod agreement;
#[path = "../sim/callback_world.rs"]
mod callback_world;
mod clocks;
mod disturbances;
mod driver;
mod model;
mod network;
mod nodes;
mod operators;
mod options;
#[path = "../sim/planted.rs"]
mod planted;
#[path = "../sim/random.rs"]
mod random;
mod rarities;
mod requests;
#[path = "../sim/shrink.rs"]
mod shrink;
mod story;
mod story_plan;
#[path = "../sim/trace.rs"]
mod trace;
mod twins;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chronos::base::planted::Bug;

use options::Options;
use planted::{find_all, number};
use shrink::{explain, judge_seed};
use story_plan::Story;

/// Seeds of a usual test run.
const SEEDS: u64 = 150;

#[test]
fn no_seed_breaks_an_invariant() {
    let began = Instant::now();
    let minutes = number("CHRONOS_SIM_MINUTES");
    let seeds =
        number("CHRONOS_SIM_SEEDS").unwrap_or(if minutes.is_some() { u64::MAX } else { SEEDS });
    let until = minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let first = number("CHRONOS_SIM_FIRST").unwrap_or(0);
    let rarity = std::env::var("CHRONOS_SIM_RARITY").ok();
    let (mut virtual_ns, mut attempts, mut doubled, mut requests, mut ran) = (0, 0, 0, 0, 0);
    let mut delivered = 0;
    let mut refusals = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in first..first.saturating_add(seeds) {
        if until.is_some_and(|until| Instant::now() >= until) || failed.len() >= 5 {
            break;
        }
        if rarity.as_ref().is_some_and(|name| !Options::draw(seed).rarities.has(name)) {
            continue;
        }
        ran += 1;
        match judge_seed(seed) {
            Ok(report) => {
                virtual_ns += report.virtual_ns;
                attempts += report.attempts;
                delivered += report.delivered;
                doubled += report.doubled;
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
        "{ran} seeds: {virtual_s:.0} s in {real:.1} s ({:.0} x), {requests} requests, {attempts} \
         callbacks ({delivered} delivered, {doubled} doubled), refused {refusals:?}",
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
    find_all(&Bug::CLUSTER);
}
