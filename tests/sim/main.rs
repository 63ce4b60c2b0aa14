//! The simulator of one node with one or two cores. Its production code runs in virtual time,
//! against clients, callback hosts, clocks and stalls that misbehave by a seed. Limits are tiny, so
//! that edges are met.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`. One seed:
//! `CHRONOS_SIM_SEED=7`.

mod actions;
mod calendar;
mod clocks;
mod clients;
mod driver;
mod extras;
mod invariants;
mod model;
mod options;
mod reports;
mod requests;
mod rules;
mod stories;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use chronos::base::planted::{Bug, plant};
use kit::simulator::planted;
use kit::simulator::seeds::{Walk, give_one_trace};
use kit::simulator::shrink::judge;
use kit::simulator::story::{self as kit_story, Simulator, Violation};
use kit::simulator::trace::Trace;

use clients::{Fault, Operation, Story};
use options::Options;
use world::{Report, run};

/// How many seeds a usual test run has.
const SEEDS: u64 = 400;

/// This simulator, as the kit drives it.
struct OneNode;

impl Simulator for OneNode {
    type Options = Options;
    type Story = Story;
    type Operation = Operation;
    type Fault = (u64, Fault);
    type Report = Report;
    type Bug = Bug;

    const TARGET: &'static str = env!("CARGO_CRATE_NAME");

    fn options(seed: u64) -> Options {
        Options::draw(seed)
    }

    fn draw(options: Options) -> Story {
        Story::draw(options)
    }

    fn options_of(story: &Story) -> &Options {
        &story.options
    }

    fn operations(story: &mut Story) -> &mut Vec<Operation> {
        &mut story.operations
    }

    fn faults(story: &mut Story) -> &mut Vec<(u64, Fault)> {
        &mut story.faults
    }

    fn run(story: &Story, keep_trace: bool) -> Report {
        run(story, keep_trace)
    }

    fn plant(bug: Option<Bug>) {
        plant(bug);
    }

    fn bug(name: &str) -> Option<Bug> {
        Bug::named(name)
    }
}

impl kit_story::Report for Report {
    fn trace(&self) -> &Trace {
        &self.trace
    }

    fn virtual_ns(&self) -> u64 {
        self.virtual_ns
    }

    fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }
}

#[test]
fn no_seed_breaks_an_invariant() {
    let (mut pops, mut requests, mut refusals) = (0, 0, BTreeMap::new());
    let walk = Walk::run::<OneNode>(
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
    give_one_trace::<OneNode>(20);
}

/// Runs ten thousand timers of call sessions on two cores, among hosts that fail. Prints how much
/// faster than real time the run is.
#[test]
fn a_crowd_of_timers_runs_fast() {
    let began = Instant::now();
    let options = Options::crowd(1, 10_000, 1_800_000);
    let report = judge::<OneNode>(&Story::draw(options)).expect("no invariant is broken");
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
    planted::replay::<OneNode>();
}

/// Seeds that found something, far behind those that the gate walks through.
#[test]
fn seeds_that_failed_once_pass() {
    for seed in [
        665, 668, 767, 785, 851, 1036, 1628, 1629, 2846, 4137, 5058, 5939, 21337, 22976, 100191,
        100697, 100936, 102331, 102338, 103231, 103654, 103726, 104255, 104414, 104784, 105398,
        105563, 105691, 105799, 106199, 106508, 21000055, 21003131, 22001323, 22003216, 22003983,
        22005206, 21001140, 21002412, 22004467, 21001966,
    ] {
        let report = run(&Story::draw(Options::draw(seed)), false);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
    }
}

#[test]
fn every_planted_bug_is_found() {
    planted::find_all::<OneNode>(&Bug::ONE_NODE);
}

/// Bugs that few seeds find, each with one that does.
#[test]
fn every_rare_planted_bug_is_found() {
    let bugs = [(Bug::CalendarTakenAsItComes, 103_654), (Bug::OrderCostsMoments, 105_563)];
    planted::find_each::<OneNode>(&bugs);
}
