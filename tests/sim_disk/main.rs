//! The simulator of one node with a disk. Its production code runs in virtual time, on a disk that
//! is slow, stalls, fills up, fails and forgets by a seed. The process is killed at any step of a
//! turn, the machine loses its power, clocks start elsewhere. Segments are tiny.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`. One seed:
//! `CHRONOS_SIM_SEED=7`.

mod boots;
mod driver;
mod held;
mod model;
mod options;
mod requests;
mod story;
mod world;

use std::collections::BTreeMap;

use chronos::base::planted::{Bug, plant};
use kit::simulator::planted;
use kit::simulator::seeds::{Walk, give_one_trace};
use kit::simulator::story::{self as kit_story, Simulator, Violation};
use kit::simulator::trace::Trace;

use options::Options;
use story::{Fault, Operation, Story};
use world::{Report, run};

/// How many seeds a usual test run has.
const SEEDS: u64 = 400;

/// The bugs that this simulator must find. The others of the journal need a second node.
const BUGS: [Bug; 14] = [
    Bug::JournalAcknowledgesEarly,
    Bug::JournalWithoutChecksum,
    Bug::JournalWithoutEpoch,
    Bug::JournalTakesDamageForTail,
    Bug::JournalReusesLiveSegment,
    Bug::JournalSkipsProgress,
    Bug::JournalDirectoryNotSynced,
    Bug::JournalKeepsOldBoot,
    Bug::JournalWritesRarely,
    Bug::JournalSkipsPause,
    Bug::JournalSkipsResume,
    Bug::JournalSkipsLetter,
    Bug::JournalSkipsDeletedLetter,
    Bug::JournalSkipsReplay,
];

/// This simulator, as the kit drives it.
struct OneNodeWithDisk;

impl Simulator for OneNodeWithDisk {
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
    let (mut pops, mut repeated, mut left_out, mut requests) = (0, 0, 0, 0);
    let (mut lives, mut emptied, mut reused) = (0, 0, 0);
    let mut refusals = BTreeMap::new();
    let walk = Walk::run::<OneNodeWithDisk>(
        SEEDS,
        |_| true,
        |report| {
            pops += report.pops;
            repeated += report.repeated;
            left_out += report.left_out;
            requests += report.requests;
            lives += report.lives;
            emptied += report.emptied;
            reused += report.reused;
            for (refusal, count) in report.refusals {
                *refusals.entry(refusal).or_insert(0) += count;
            }
        },
    );
    walk.end(&format!(
        "{requests} requests, {pops} pops ({repeated} again after a restart, {left_out} left out), \
         {lives} processes, {emptied} segments emptied, {reused} used again, refused {refusals:?}"
    ));
}

#[test]
fn one_seed_gives_one_trace() {
    give_one_trace::<OneNodeWithDisk>(20);
}

#[test]
fn replay() {
    planted::replay::<OneNodeWithDisk>();
}

#[test]
fn every_planted_bug_is_found() {
    planted::find_all::<OneNodeWithDisk>(&BUGS);
}

/// Seeds that found something, far behind those that the gate walks through.
#[test]
fn seeds_that_failed_once_pass() {
    for seed in [
        342399, 170148, 115471, 142673, 150170, 158341, 210581, 156907, 251831, 177849, 206647,
        232216, 749649, 832994, 957420, 1057932, 20782,
    ] {
        let report = run(&Story::draw(Options::draw(seed)), false);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
    }
}
