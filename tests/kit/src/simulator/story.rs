//! What a simulator is: options and a story drawn from a seed, and a run that reports.

use std::fmt::Debug;

use super::trace::Trace;

/// A rule that a run broke.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which invariant of the simulator's list.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

/// A simulator.
pub trait Simulator {
    /// What a run is like.
    type Options: Debug;
    /// Everything that is done in a run.
    type Story: Clone;
    /// What a client does.
    type Operation: Debug;
    /// What goes wrong, and when.
    type Fault: Debug;
    /// What came of a run.
    type Report: Report;
    /// A bug that can be planted into the code under test.
    type Bug: Copy + Debug + Send + Sync;

    /// The test target, as `cargo test --test` names it.
    const TARGET: &'static str;

    /// Draws the options of a seed.
    fn options(seed: u64) -> Self::Options;
    /// Draws the story of a run that is like that.
    fn draw(options: Self::Options) -> Self::Story;
    /// The options that a story was drawn from.
    fn options_of(story: &Self::Story) -> &Self::Options;
    /// The operations of a story.
    fn operations(story: &mut Self::Story) -> &mut Vec<Self::Operation>;
    /// The faults of a story.
    fn faults(story: &mut Self::Story) -> &mut Vec<Self::Fault>;
    /// Runs a story; the newest events are kept as text if `keep_trace` says so.
    fn run(story: &Self::Story, keep_trace: bool) -> Self::Report;
    /// Switches one bug on for this thread, or all off.
    fn plant(bug: Option<Self::Bug>);
    /// The bug of this name.
    fn bug(name: &str) -> Option<Self::Bug>;
}

/// What the report of every run has.
pub trait Report {
    /// Every event, as one number.
    fn trace(&self) -> &Trace;
    /// How long the run took in the time of its world.
    fn virtual_ns(&self) -> u64;
    /// The rule that the run broke, if it broke one.
    fn violation(&self) -> Option<&Violation>;
}
