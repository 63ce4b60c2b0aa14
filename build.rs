//! Tells the program which commit it is built from.
//!
//! - `CHRONOS_COMMIT` in the environment says it. Packages are built so, and sources without git
//!   can be.
//! - A release build asks git. Without git, or outside of a repository, no commit is named.
//! - A debug build names none: each commit would build the whole program anew.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=CHRONOS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let told = std::env::var("CHRONOS_COMMIT").ok().filter(|commit| is_plain(commit));
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = told.or_else(|| is_release.then(commit_of_git).flatten());
    let suffix = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=CHRONOS_VERSION_SUFFIX={suffix}");
}

/// The commit that git has checked out here. The script runs again when another one is.
fn commit_of_git() -> Option<String> {
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    // Sources that lie unpacked in somebody else's repository are not of its commit.
    if std::fs::canonicalize(root).ok()? != std::fs::canonicalize(here).ok()? {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if std::path::Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| is_plain(commit))
}

/// What git prints, or `None` if it fails or is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn is_plain(commit: &str) -> bool {
    !commit.is_empty() && commit.chars().all(|c| c.is_ascii_alphanumeric() || ".-_+".contains(c))
}
