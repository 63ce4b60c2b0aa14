//! Pops that were given up since the log was told last: of each host the first, and how many more.
//! A table of fixed size, so a million timers of a dead server cost a count each.

use crate::wire::dead_letter::GivenUp;

/// Hosts whose first pop is kept; pops of further hosts are counted together.
const HOSTS_MAX: usize = 16;
/// Most bytes of a URI that are kept.
const URI_BYTES_MAX: usize = 200;

/// A pop that was given up, and how many of its host were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenUpPop {
    /// The authority of the callback URI.
    pub host: Box<str>,
    /// The timer's id, as clients have it.
    pub timer: Box<str>,
    /// The callback URI without its query.
    pub uri: Box<str>,
    /// Why.
    pub reason: GivenUp,
    /// Pops of the host that were given up, this one among them.
    pub count: u64,
}

/// What the log is told at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GivenUpPops {
    /// A pop of each host.
    pub hosts: Vec<GivenUpPop>,
    /// Pops of further hosts.
    pub others: u64,
}

/// What one shard has given up.
#[derive(Debug, Default)]
pub struct GiveUps {
    noted: GivenUpPops,
    /// Whether the log may be told.
    is_due: bool,
}

impl GiveUps {
    /// Notes a pop. `describe` writes the timer's id and the URI of the first one of a host.
    pub fn note(
        &mut self,
        host: &str,
        reason: GivenUp,
        describe: impl FnOnce() -> (String, String),
    ) {
        if let Some(known) = self.noted.hosts.iter_mut().find(|known| *known.host == *host) {
            known.count += 1;
            return;
        }
        if self.noted.hosts.len() >= HOSTS_MAX {
            self.noted.others += 1;
            return;
        }
        let (timer, mut uri) = describe();
        uri.truncate(uri.find(['?', '#']).unwrap_or(uri.len()));
        // URIs are ASCII, and cut off where one is not.
        if uri.len() > URI_BYTES_MAX {
            uri = uri.chars().take(URI_BYTES_MAX).collect();
        }
        let (timer, uri) = (timer.into(), uri.into());
        self.noted.hosts.push(GivenUpPop { host: host.into(), timer, uri, reason, count: 1 });
    }

    /// Lets the log be told of what was noted. To be called once a second.
    pub fn sweep(&mut self) {
        self.is_due = !self.noted.hosts.is_empty();
    }

    /// Whether there is something to tell.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Takes what was noted.
    pub fn take(&mut self) -> GivenUpPops {
        self.is_due = false;
        std::mem::take(&mut self.noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_host_is_kept_and_the_others_are_counted() {
        let mut give_ups = GiveUps::default();
        let uri = |query: &str| format!("http://h/{}{query}", "p".repeat(300));
        for at in 0..5 {
            give_ups.note("h", GivenUp::Age, || (format!("timer {at}"), uri("?secret=1")));
        }
        assert!(!give_ups.is_due(), "not before the sweep");
        give_ups.sweep();
        assert!(give_ups.is_due());
        let taken = give_ups.take();
        assert_eq!((taken.hosts.len(), taken.others), (1, 0));
        assert_eq!((&*taken.hosts[0].timer, taken.hosts[0].count), ("timer 0", 5));
        assert_eq!(*taken.hosts[0].uri, uri("")[..URI_BYTES_MAX]);
        give_ups.note("h", GivenUp::Age, || ("t".into(), "http://h?secret=1".into()));
        assert_eq!(*give_ups.take().hosts[0].uri, *"http://h");
        for at in 0..2 * HOSTS_MAX {
            give_ups.note(&format!("h{at}"), GivenUp::Denied, Default::default);
        }
        let taken = give_ups.take();
        assert_eq!((taken.hosts.len(), taken.others), (HOSTS_MAX, HOSTS_MAX as u64));
    }
}
