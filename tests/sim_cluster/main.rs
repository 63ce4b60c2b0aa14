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
mod mono_clock;
mod network;
mod nodes;
mod operators;
mod options;
mod pauses;
#[path = "../sim/planted.rs"]
mod planted;
#[path = "../sim/random.rs"]
mod random;
mod rarities;
mod requests;
#[path = "../sim/seeds.rs"]
mod seeds;
#[path = "../sim/shrink.rs"]
mod shrink;
mod sites;
mod story;
mod story_plan;
#[path = "../sim/trace.rs"]
mod trace;
mod twins;
mod world;

use std::collections::BTreeMap;

use chronos::base::planted::Bug;

use options::Options;
use planted::find_all;
use seeds::Walk;
use story_plan::Story;

/// Seeds of a usual test run.
const SEEDS: u64 = 300;

#[test]
fn no_seed_breaks_an_invariant() {
    let rarity = std::env::var("CHRONOS_SIM_RARITY").ok();
    let is_wanted = |options: &Options| rarity.iter().all(|name| options.rarities.has(name));
    let (mut attempts, mut delivered, mut doubled, mut requests) = (0, 0, 0, 0);
    let mut refusals = BTreeMap::new();
    let walk = Walk::run(SEEDS, is_wanted, |report| {
        attempts += report.attempts;
        delivered += report.delivered;
        doubled += report.doubled;
        requests += report.requests;
        for (refusal, count) in report.refusals {
            *refusals.entry(refusal).or_insert(0) += count;
        }
    });
    walk.end(&format!(
        "{requests} requests, {attempts} callbacks ({delivered} delivered, {doubled} doubled), \
         refused {refusals:?}"
    ));
}

#[test]
fn one_seed_gives_one_trace() {
    seeds::give_one_trace(10);
}

#[test]
fn replay() {
    planted::replay();
}

#[test]
fn every_planted_bug_is_found() {
    find_all(&Bug::CLUSTER);
}
