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
#[path = "../sim_cluster/mono_clock.rs"]
mod mono_clock;
mod options;
#[path = "../sim/planted.rs"]
mod planted;
mod original;
#[path = "../sim/random.rs"]
mod random;
mod servers;
#[path = "../sim/seeds.rs"]
mod seeds;
#[path = "../sim/shrink.rs"]
mod shrink;
mod story;
#[path = "../sim/trace.rs"]
mod trace;
mod users;
mod world;

use chronos::base::planted::Bug;

use planted::find_all;
use seeds::Walk;
use story::Story;

/// Seeds of a usual test run.
const SEEDS: u64 = 300;

#[test]
fn no_seed_breaks_an_invariant() {
    let (mut answers, mut refused, mut alarms) = (0, 0, 0);
    let (mut failovers, mut ahead_ms) = (0, 0);
    let walk = Walk::run(
        SEEDS,
        |_| true,
        |report| {
            answers += report.answers;
            refused += report.refused;
            alarms += report.alarms;
            failovers += report.failovers_timed;
            ahead_ms = report.ahead_ms.max(ahead_ms);
        },
    );
    walk.end(&format!(
        "{answers} answers, {refused} refusals, {alarms} alarms, {failovers} failovers timed, \
         {ahead_ms} ms ahead at most"
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
    find_all(&Bug::TIMESTAMP);
}
