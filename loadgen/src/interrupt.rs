//! What a run says when SIGINT or SIGTERM ends it: how many of its timers may be left in the node,
//! and the command that deletes them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::flags::ScenarioFlags;
use crate::leftover::command_text;
use crate::output::tell;
use crate::report::grouped;

/// What the run has done until this moment.
struct Done {
    /// Where callbacks of its timers go.
    hosts: BTreeSet<SocketAddr>,
    /// Answers to the requests of each client.
    answers: Vec<Arc<AtomicU64>>,
}

static DONE: Mutex<Done> = Mutex::new(Done { hosts: BTreeSet::new(), answers: Vec::new() });

fn with<T>(change: impl FnOnce(&mut Done) -> T) -> T {
    change(&mut DONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Notes where callbacks of timers go.
pub fn note_host(host: SocketAddr) {
    with(|done| done.hosts.insert(host));
}

/// Notes the counter of a client's answers.
pub fn note_answers(answers: &Arc<AtomicU64>) {
    with(|done| done.answers.push(Arc::clone(answers)));
}

/// From this call on, a signal that ends the process says what is left.
pub fn watch(flags: &ScenarioFlags) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals cannot be watched")?;
    let flags = flags.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            with(|done| words(done, &flags).iter().for_each(|line| tell(line)));
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// The lines for who ended the run.
fn words(done: &Done, flags: &ScenarioFlags) -> Vec<String> {
    let answers: u64 = done.answers.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    if answers == 0 || done.hosts.is_empty() {
        return vec!["chronos-loadgen: ended by a signal".to_owned()];
    }
    let mut lines = vec![format!(
        "chronos-loadgen: ended by a signal; up to {} timers may be left in the node at {}. \
         Delete them (all that go there, of other runs, too):",
        grouped(answers),
        flags.target
    )];
    lines.extend(
        done.hosts.iter().map(|host| format!("  {}", command_text(flags, &host.to_string()))),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Job, command, job};

    #[test]
    fn an_ended_run_tells_what_is_left_and_how_to_delete_it() {
        let matches = command().try_get_matches_from(["x", "post"]).unwrap();
        let Ok(Job::Scenario(_, flags)) = job(&matches) else { panic!("no scenario") };
        let mut done = Done { hosts: BTreeSet::new(), answers: Vec::new() };
        assert_eq!(words(&done, &flags), ["chronos-loadgen: ended by a signal"]);
        done.hosts.insert(crate::scenario::setup::nobody());
        done.answers = vec![Arc::new(AtomicU64::new(1_200)), Arc::new(AtomicU64::new(34))];
        let lines = words(&done, &flags);
        assert!(lines[0].contains("up to 1 234 timers may be left"), "{lines:?}");
        assert_eq!(lines[1], "  chronos timer delete --host 127.0.0.1:9");
    }
}
