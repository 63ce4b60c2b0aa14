//! Stories of whole clusters, told by real processes: the binary that users get, with the flags and
//! files that users have, on loopback addresses. Nodes are killed, frozen and cut off for real.
//!
//! Stories mostly wait for timers to come due, so many stories run at one time. The runner serves
//! only that. It takes a filter, `--exact`, `--list` and `--test-threads` as other test targets do.
//! A story that cannot run on this machine says why, and counts as ignored.

use kit::runner::Story;
use kit::{noise, runner};

mod certificates;
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
mod bulk;
mod cables;
mod calendar;
mod controls;
mod dead_letters;
mod reports;
mod deaths;
mod destinations;
mod hostile;
mod lists;
mod mixed;
mod names;
mod nonsense;
mod options;
mod requests;
mod scaling;
mod secrets;
mod signatures;
mod site_rules;
mod sites;
mod splits;
mod tls;
mod tls_sites;
mod tls_wrong;
mod token_limits;

/// The longest stories come first, because they decide how long all of them take.
const STORIES: &[&[Story]] = &[
    abc::STORIES,
    tls::STORIES,
    tls_wrong::STORIES,
    tls_sites::STORIES,
    cables::STORIES,
    mixed::STORIES,
    hostile::STORIES,
    nonsense::STORIES,
    splits::STORIES,
    names::STORIES,
    calendar::STORIES,
    controls::STORIES,
    scaling::STORIES,
    deaths::STORIES,
    destinations::STORIES,
    secrets::STORIES,
    lists::STORIES,
    dead_letters::STORIES,
    reports::STORIES,
    signatures::STORIES,
    token_limits::STORIES,
    sites::STORIES,
    site_rules::STORIES,
    options::STORIES,
    bulk::STORIES,
    requests::STORIES,
];

fn main() -> std::process::ExitCode {
    noise::watch();
    let stories: Vec<Story> = STORIES.iter().copied().flatten().copied().collect();
    runner::run(&stories)
}
