//! The simulator of timestamps: up to four servers, whose production code runs in virtual time,
//! against a model of a `ZooKeeper` ensemble (or a file), clocks and users that misbehave by a
//! seed. Processes stop or die anywhere.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`. Other seeds:
//! `CHRONOS_SIM_FIRST=1000`. One seed: `CHRONOS_SIM_SEED=7`.

mod client;
mod clocks;
mod disk;
mod ensemble;
mod model;
mod options;
mod original;
mod servers;
mod story;
mod users;
mod world;

use chronos::base::planted::{Bug, plant};
use kit::simulator::planted;
use kit::simulator::seeds::{Walk, give_one_trace};
use kit::simulator::story::{self as kit_story, Simulator, Violation};
use kit::simulator::trace::Trace;

use options::Options;
use story::{Fault, Operation, Story};
use world::{Report, run};

/// How many seeds a usual test run has.
const SEEDS: u64 = 300;

/// This simulator, as the kit drives it.
struct Timestamps;

impl Simulator for Timestamps {
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
    let (mut answers, mut refused, mut alarms) = (0, 0, 0);
    let (mut failovers, mut ahead_ms) = (0, 0);
    let walk = Walk::run::<Timestamps>(
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
    give_one_trace::<Timestamps>(10);
}

#[test]
fn replay() {
    planted::replay::<Timestamps>();
}

/// Seeds that found something, far behind those that the gate walks through.
#[test]
fn seeds_that_failed_once_pass() {
    for seed in [101163, 172876, 182257] {
        let report = run(&Story::draw(Options::draw(seed)), false);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
    }
}

#[test]
fn every_planted_bug_is_found() {
    planted::find_all::<Timestamps>(&Bug::TIMESTAMP);
}
