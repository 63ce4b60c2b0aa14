//! The clients of `clients/`: their own tests, and real nodes that they ask. A node is killed while
//! a client creates timers. Where python3 or a JDK is missing each story says so, and counts as
//! ignored.

use kit::runner::{self, Story};

mod nodes;
mod programs;
mod readme;

mod java;
mod python;
mod sources;

/// The longest story comes first.
const STORIES: &[&[Story]] = &[java::STORIES, python::STORIES, sources::STORIES];

fn main() -> std::process::ExitCode {
    let stories: Vec<Story> = STORIES.iter().copied().flatten().copied().collect();
    runner::run(&stories)
}
