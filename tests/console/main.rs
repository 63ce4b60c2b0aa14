//! The console as an operator sees it: a real node, and a real browser (Chromium without a window)
//! that a WebDriver steers. Where the packages chromium and chromium-driver are missing each story
//! says so, and counts as ignored.
//!
//! The pictures of all pages are left in `target/tmp/console/`.

use kit::runner::{self, Story};

mod browser;
mod node;

mod keyboard;
mod orders;
mod pages;
mod safety;
mod tokens;
mod trouble;

/// The longest story comes first.
const STORIES: &[&[Story]] = &[
    pages::STORIES,
    trouble::STORIES,
    orders::STORIES,
    tokens::STORIES,
    safety::STORIES,
    keyboard::STORIES,
];

fn main() -> std::process::ExitCode {
    let stories: Vec<Story> = STORIES.iter().copied().flatten().copied().collect();
    runner::run(&stories)
}
