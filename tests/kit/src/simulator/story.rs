//! What a simulator is: options and a story drawn from a seed, and a run that reports.

use std::fmt::Debug;

use super::trace::Trace;

/// A rule that a run broke.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The name of the invariant in the simulator's list.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

/// A simulator of one kind of world.
pub trait Simulator {
    /// The options of a run.
    type Options: Debug;
    /// Everything that is done in a run.
    type Story: Clone;
    /// What a client does.
    type Operation: Debug;
    /// What goes wrong, and when.
    type Fault: Debug;
    /// The report of a run.
    type Report: Report;
    /// A bug that can be planted into the code under test.
    type Bug: Copy + Debug + Send + Sync;

    /// The test target, as `cargo test --test` names it.
    const TARGET: &'static str;

    /// Draws the options of a seed.
    fn options(seed: u64) -> Self::Options;
    /// Lets the same things happen at slightly other times, in another order. The variant 0 is what
    /// the seed means.
    fn vary(_options: &mut Self::Options, _variant: u64) {}
    /// Draws the story of a run with these options.
    fn draw(options: Self::Options) -> Self::Story;
    /// Returns the options that a story was drawn from.
    fn options_of(story: &Self::Story) -> &Self::Options;
    /// Returns the operations of a story.
    fn operations(story: &mut Self::Story) -> &mut Vec<Self::Operation>;
    /// Returns the faults of a story.
    fn faults(story: &mut Self::Story) -> &mut Vec<Self::Fault>;
    /// Runs a story. With `keep_trace`, keeps the newest events as text.
    fn run(story: &Self::Story, keep_trace: bool) -> Self::Report;
    /// Switches one bug on for this thread, or all bugs off.
    fn plant(bug: Option<Self::Bug>);
    /// Returns the bug of this name.
    fn bug(name: &str) -> Option<Self::Bug>;
}

/// What the report of every run has.
pub trait Report {
    /// Returns the trace of all events.
    fn trace(&self) -> &Trace;
    /// Returns the nanoseconds that the run took in the time of its world.
    fn virtual_ns(&self) -> u64;
    /// Returns the rule that the run broke; `None` if it broke none.
    fn violation(&self) -> Option<&Violation>;
}
