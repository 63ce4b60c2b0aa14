//! Callback hosts that have failed since their last success, by name. A host whose pops are over
//! has no lane any more, and an operator who comes later still finds it here.

use std::collections::BTreeMap;

use crate::base::time::WallMs;
use crate::shard::effects::CallbackOutcome;
use crate::wire::dead_letter::Failure;

/// Most hosts of a core. The one that failed longest ago gives way.
const HOSTS_MAX: usize = 1_024;

/// How a host has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failing {
    /// Attempts that failed since the last success.
    pub attempts: u64,
    /// How the last one failed.
    pub failure: Failure,
    /// The status of the last answer; `None`: the last attempt had none.
    pub status: Option<u16>,
    /// When the first of them failed.
    pub since: WallMs,
    /// When the last of them failed.
    pub last_at: WallMs,
}

/// The hosts of one core that fail.
#[derive(Debug, Default)]
pub struct FailingHosts(BTreeMap<Box<str>, Failing>);

impl FailingHosts {
    /// Whether this host has failed since its last success.
    pub(super) fn has(&self, authority: &str) -> bool {
        self.0.contains_key(authority)
    }

    /// Notes an attempt that failed. `status` is that of the answer.
    #[cold]
    pub(super) fn failed(
        &mut self,
        authority: &str,
        (outcome, status): (CallbackOutcome, Option<u16>),
        now: WallMs,
    ) {
        let failure = match outcome {
            CallbackOutcome::Unreachable => Failure::Unreachable,
            CallbackOutcome::TimedOut => Failure::TimedOut,
            _ => Failure::Status,
        };
        if let Some(known) = self.0.get_mut(authority) {
            let (attempts, since) = (known.attempts.saturating_add(1), known.since);
            *known = Failing { attempts, failure, status, since, last_at: now };
            return;
        }
        if self.0.len() >= HOSTS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, failing)| failing.last_at);
            if let Some(oldest) = oldest.map(|(authority, _)| authority.clone()) {
                self.0.remove(&oldest);
            }
        }
        let failing = Failing { attempts: 1, failure, status, since: now, last_at: now };
        self.0.insert(authority.into(), failing);
    }

    /// Notes a success.
    #[cold]
    pub(super) fn succeeded(&mut self, authority: &str) {
        self.0.remove(authority);
    }

    /// The hosts that fail.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Failing)> {
        self.0.iter().map(|(authority, failing)| (&**authority, failing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_kept_from_its_first_failure_to_its_next_success() {
        let mut hosts = FailingHosts::default();
        let refused = (CallbackOutcome::Rejected, Some(503));
        hosts.failed("a", refused, WallMs(5));
        hosts.failed("a", (CallbackOutcome::TimedOut, None), WallMs(7));
        let (name, failing) = hosts.all().next().expect("it fails");
        assert_eq!((name, failing.attempts, failing.since), ("a", 2, WallMs(5)));
        assert_eq!((failing.failure, failing.status), (Failure::TimedOut, None));
        hosts.succeeded("a");
        assert!(!hosts.has("a") && hosts.all().next().is_none());
        hosts.failed("a", refused, WallMs(9));
        assert_eq!(hosts.all().next().map(|(_, it)| (it.attempts, it.since)), Some((1, WallMs(9))));
    }

    #[test]
    fn the_host_that_failed_longest_ago_gives_way() {
        let mut hosts = FailingHosts::default();
        for at in 0..HOSTS_MAX as u64 {
            hosts.failed(&format!("h{at}"), (CallbackOutcome::Unreachable, None), WallMs(at));
        }
        hosts.failed("h0", (CallbackOutcome::Unreachable, None), WallMs(5_000));
        hosts.failed("late", (CallbackOutcome::Unreachable, None), WallMs(5_001));
        assert_eq!(hosts.all().count(), HOSTS_MAX);
        assert!(hosts.has("h0") && hosts.has("late") && !hosts.has("h1"));
    }
}
