//! Stories of whole clusters, told by real processes: the binary that users get, started with the
//! flags and files that they have, on loopback addresses; killed, frozen and cut off for real.
//!
//! Stories mostly wait for timers to come due, so many of them run at one time; the runner here is
//! for that alone. It takes a filter, `--exact`, `--list` and `--test-threads` as other test
//! targets do. A story that cannot run on this machine says why, and is counted as ignored.

use kit::runner::Story;
use kit::{noise, runner};

mod files;
mod harness;
mod hostile_peer;
mod nonsense_lines;
mod nonsense_peer;
mod original;
mod placement;
mod proxies;
mod sink;
mod timers;
mod wires;

mod abc;
mod cables;
mod deaths;
mod hostile;
mod mixed;
mod nonsense;
mod requests;
mod scaling;
mod secrets;
mod sites;
mod splits;

/// The longest first: they decide how long all take.
const STORIES: &[&[Story]] = &[
    abc::STORIES,
    cables::STORIES,
    mixed::STORIES,
    hostile::STORIES,
    nonsense::STORIES,
    splits::STORIES,
    scaling::STORIES,
    deaths::STORIES,
    secrets::STORIES,
    sites::STORIES,
    requests::STORIES,
];

fn main() -> std::process::ExitCode {
    noise::watch();
    let stories: Vec<Story> = STORIES.iter().copied().flatten().copied().collect();
    runner::run(&stories)
}
