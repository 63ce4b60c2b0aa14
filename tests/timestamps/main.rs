//! Stories of timestamps, told by real processes: the binary that users get, and a real
//! `ZooKeeper`. They are killed, frozen and restarted for real, while clients check every value.
//!
//! Stories wait most of the time, so many run at one time, with the runner of the cluster's
//! stories. `CHRONOS_TIMESTAMPS_LONG_S` makes the random story longer: its seconds.

use kit::runner::Story;
use kit::{noise, runner};

mod bounds;
mod checker;
mod clocks;
mod processes;
mod servers;
mod thrift;
mod zookeeper;

mod endurance;
mod ensemble;
mod failover;
mod file;
mod java;
mod originals;
mod outage;
mod secure;
mod tools;

/// Reports whether this run compares times with what was measured: a run that is asked for.
fn measures() -> bool {
    std::env::var("CHRONOS_TIMESTAMPS_LONG_S").is_ok()
}

/// The longest stories come first, because they decide how long all of them take.
const STORIES: &[&[Story]] = &[
    endurance::STORIES,
    ensemble::STORIES,
    outage::STORIES,
    failover::STORIES,
    originals::STORIES,
    bounds::STORIES,
    secure::STORIES,
    tools::STORIES,
    java::STORIES,
    file::STORIES,
    clocks::STORIES,
    checker::STORIES,
];

fn main() -> std::process::ExitCode {
    noise::watch();
    let stories: Vec<Story> = STORIES.iter().copied().flatten().copied().collect();
    let code = runner::run(&stories);
    zookeeper::end_shared();
    code
}
