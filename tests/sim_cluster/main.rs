//! The simulator of a cluster: up to five nodes of one or two cores each. Their production code
//! runs in virtual time, against networks, clocks, operators, clients and callback hosts that
//! misbehave by a seed, and nodes that die.
//!
//! More than the usual seeds: `CHRONOS_SIM_SEEDS=5000` or `CHRONOS_SIM_MINUTES=10`. Other seeds:
//! `CHRONOS_SIM_FIRST=1000`. One seed: `CHRONOS_SIM_SEED=7`. Seeds with a rare fault (see
//! `rarities.rs`): `CHRONOS_SIM_RARITY=OldFiles`. Only seeds with disks: `CHRONOS_SIM_DISKS=1`;
//! with disks of a kind: `CHRONOS_SIM_DISKS=Interval`, `Boots`, `Sites`. Which seeds find a planted
//! bug: `CHRONOS_SIM_BUG=DoNotTellReplicasOfPop`. What nodes hold of one timer
//! while a seed is replayed: `CHRONOS_SIM_WATCH=68c61740470022e2`, the id as the failure prints it.

mod agreement;
mod boots;
mod claims;
mod clocks;
mod conditions;
mod disks;
mod disturbances;
mod driver;
mod full_disks;
mod holds;
mod losses;
mod model;
mod network;
mod nodes;
mod operators;
mod options;
mod pauses;
mod policies;
mod rarities;
mod requests;
mod returns;
mod rules;
mod silent_starts;
mod sites;
mod story;
mod story_plan;
mod twins;
mod world;

use std::collections::BTreeMap;

use chronos::base::planted::{Bug, plant};
use kit::simulator::planted;
use kit::simulator::seeds::{Walk, give_one_trace};
use kit::simulator::story::{self as kit_story, Simulator, Violation};
use kit::simulator::trace::Trace;

use options::Options;
use story_plan::{Fault, Operation, Story};
use world::{Report, run};

/// How many seeds a usual test run has.
const SEEDS: u64 = 300;

/// The bugs of the journal that need a second node, or worlds of their own, each with a seed that
/// finds it.
const JOURNAL_BUGS: [(Bug, u64); 7] = [
    (Bug::ReturningNodeKeepsEnded, 3),
    (Bug::JournalDropsTombstones, 1_099),
    (Bug::EndsWhatPeersMissed, 2_323),
    (Bug::JournalKeepsOldBoot, 25),
    (Bug::JournalWritesRarely, 21),
    (Bug::FullDiskDisobeys, 1_476),
    (Bug::FullDiskDisobeys, 1_500),
];

/// Bugs that few seeds find, each with a seed that does.
const RARE_BUGS: [(Bug, u64); 20] = [
    (Bug::SilentRankDelaysEachPop, 91_263),
    (Bug::NewHolderTellsNoFormerOnes, 858_518),
    (Bug::PreferredListNotTold, 1_008_610),
    (Bug::LastHolderStaysBehindTheDead, 724_595),
    (Bug::PopsBeforeActionUntold, 508),
    (Bug::LetterCountsPopsOfTimer, 3_656),
    (Bug::StaleBytesAreNoSign, 1_072_524),
    (Bug::CallbackOfFormerHolderLost, 11_472),
    (Bug::VerdictAwaitedForEver, 4_002_925),
    (Bug::SilenceAtStartIsDeath, 68),
    (Bug::ReturningSiteAsksNoSite, 3_370),
    (Bug::OrderOfSitesDecidedTwice, 1_123),
    (Bug::WriteMadeAgainRepeatsPops, 3_000_002),
    (Bug::KeyOfSiteNotTold, 23_002_635),
    (Bug::FullNodeStaysFull, 23_002_348),
    (Bug::MovingTimerLeftToActing, 25_002_045),
    (Bug::FarEndVoidsLaterWrite, 26_000_748),
    (Bug::PauseLeavesQuestionOpen, 25_003_850),
    (Bug::ReadLooksOnce, 24_000_155),
    (Bug::KeeperOfEndNotAsked, 3_009_463),
];

/// This simulator, as the kit drives it.
struct Cluster;

impl Simulator for Cluster {
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

    fn vary(options: &mut Options, variant: u64) {
        options.variant = variant;
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
    let rarity = std::env::var("CHRONOS_SIM_RARITY").ok();
    let disks = std::env::var("CHRONOS_SIM_DISKS").ok();
    let is_wanted = |options: &Options| {
        let has_rarity = rarity.iter().all(|name| options.rarities.has(name));
        has_rarity
            && disks.iter().all(|kind| options.disks.is_some_and(|disks| disks.is(kind, options)))
    };
    let (mut attempts, mut delivered, mut doubled, mut requests) = (0, 0, 0, 0);
    let mut refusals = BTreeMap::new();
    let walk = Walk::run::<Cluster>(SEEDS, is_wanted, |report| {
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

/// Seeds in which a node lost, doubled or brought back a timer once, each for another reason.
#[test]
fn seeds_that_failed_once_pass() {
    for seed in [
        190_564,    // A move counted a result of an earlier move: lost.
        171_574,    // An answer from before a short absence counted: a deleted timer popped.
        118_218,    // A holder off the list did not ask before its pop: doubled.
        200_919,    // Two nodes waited for each other in full meshes: a delete came late.
        139_275,    // A tombstone ended while it was told: a deleted timer came back.
        106_854,    // A node that returned did not become the first again: late pops.
        495_022,    // A holder that had missed a write counted as a witness of its end: lost.
        444_291,    // A stand-in stayed where no other node looked: a delete did not reach it.
        231_385,    // A former holder did not hear of a write: an old timer was read.
        829_274,    // A silent rank delayed each pop anew: later and later.
        974_351,    // A timer that came while its node was suspected did not go home.
        1_072_524,  // Of two that paused one after the other one took the other for dead.
        11_472,     // A former holder forgot a timer whose callback ran: a 410 was lost.
        3_027_661,  // A site that came back with an ended timer was not told of the end.
        4_002_925,  // A write with a condition waited for a node that came and went.
        4_004_143,  // The model: who is resumed while its callback runs may pop again elsewhere.
        4_000_913,  // The model: a node that refuses many deletes at once is asked again.
        3_000_002,  // A PUT that was made again made its pop again.
        1_037_382,  // A node that had left spoke for its site, which was told nothing.
        1_030_328,  // The model: a node was away for longer than tombstones stay.
        1_056_174,  // The model: the same, of a site that was cut off.
        3_015_961,  // The model: a boot by another clock moves the turns of sites.
        1_044_751,  // The model: a pause at another site may win against a later PUT.
        28_276,     // Another site told a node, and its holders died: an update was lost there.
        23_002_635, // A site took what stood in the place of a key's digest for another body.
        21_001_809, // A stand-in believed a node full that held the timer, and heard of no pop.
        23_002_348, // The same.
        25_002_045, // An update at a node that waited for its timer left the stand-in's.
        21_001_855, // The model: versions follow the other site's clock.
        25_003_177, // The model: the same.
        24_001_087, // The model: a key is made again where all that know it are believed dead.
        22_002_575, // The model: a delete of a key's timer is another write.
        26_001_276, // The model: a timer was run before the PUT that made it was answered.
        24_000_681, // The model: a site died before it could tell what it had popped in a cut.
        26_001_267, // The model: a pop that was given up is taken over by nobody.
        26_001_515, // The model: a file of one site named a node of the other one.
        26_000_748, // A PUT lay below an end that a wrong clock had made: it was lost.
        25_003_850, // A question that was open as a pause began held up all copies.
        24_000_155, // A read asked both nodes of a timer that moved, each too early or too late.
        3_009_463,  // A node of a site kept an end for a dead one, which asked another node.
    ] {
        let report = run(&Story::draw(Options::draw(seed)), false);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
    }
}

#[test]
fn one_seed_gives_one_trace() {
    give_one_trace::<Cluster>(10);
}

#[test]
fn replay() {
    planted::replay::<Cluster>();
}

#[test]
fn every_planted_bug_is_found() {
    planted::find_all::<Cluster>(&Bug::CLUSTER);
}

#[test]
fn bugs_of_journals_in_clusters_are_found() {
    planted::find_each::<Cluster>(&JOURNAL_BUGS);
}

#[test]
fn bugs_that_few_seeds_find_are_found() {
    planted::find_each::<Cluster>(&RARE_BUGS);
}
