//! Stories of nodes that keep a journal, told by real processes on loopback: killed all at once
//! under load, started with other cores, on damaged files, and on disks that are full, fail and
//! stall.
//!
//! `cargo test --test journal -- kill --turns 20` kills 20 times in a row and prints what was
//! counted. A story that cannot run on this machine says why, and counts as ignored.

use kit::runner::{self, Story};

mod client;
mod harness;
mod judge;
mod load;
mod sink;

mod away;
mod backups;
mod clocks;
mod controls;
mod damage;
mod destinations;
mod dead_letters;
mod reports;
mod disks;
mod full_disk;
mod growth;
mod kills;
mod missed;
mod options;
mod names;
mod restarts;

/// The longest stories come first, because they decide how long all of them take.
const STORIES: &[&[Story]] = &[
    growth::STORIES,
    full_disk::STORIES,
    away::STORIES,
    kills::STORIES,
    disks::STORIES,
    damage::STORIES,
    missed::STORIES,
    names::STORIES,
    controls::STORIES,
    clocks::STORIES,
    restarts::STORIES,
    options::STORIES,
    destinations::STORIES,
    dead_letters::STORIES,
    reports::STORIES,
    backups::STORIES,
];

fn main() -> std::process::ExitCode {
    let stories: Vec<Story> = STORIES.iter().copied().flatten().copied().collect();
    runner::run(&stories)
}
