//! Alarms in the log: nodes that contradict each other. An operator must hear of them even where
//! nobody reads metrics. An alarm is logged when its count grows, and then at most once a minute.

// Reads the wall clock: told 1.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::interval;
use tracing::{error, warn};

use super::alarm_board::AlarmBoard;
use super::give_up_news::{GiveUpNews, News};
use crate::node::callbacks::dialling::ToldFailure;
use crate::node::meters::CoreMeters;
use crate::node::watchdog::Work;
use crate::ring;

/// How often the counts are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause between two lines of the same alarm. Without the pause a line would come every second,
/// because nodes try again every second, for ever.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Of how many callback hosts failures are told in that time.
const HOSTS_MAX: usize = 20;
/// Of how many turns over their budget the log tells at least. A single one comes of whatever else
/// runs on the machine.
const TURNS_MIN: u64 = 10;

/// A count that must not grow, and what the log says when it does.
struct CountAlarm {
    /// Reads the count of one core. An alarm watches the sum over all cores.
    count: fn(&CoreMeters) -> u64,
    /// What is wrong, and what to do.
    text: &'static str,
}

const ALARMS: [CountAlarm; 14] = [
    CountAlarm {
        count: |meters| meters.peer_twins.get(),
        text: "two processes say that they are the same node; stop one of the two, or give one of \
               them another address",
    },
    CountAlarm {
        count: |meters| meters.peer_same_instance.get(),
        text: "another node has this node's instance and deployment ids, so that both may give \
               out the same timer ids; give each its own [identity] instance_id ([node] \
               instance_id) and restart it",
    },
    CountAlarm {
        count: |meters| meters.peer_refusals.get(),
        text: "a peer refuses this node: this one is no member in its configuration, calls from \
               another address than it has there, or another process has this one's name",
    },
    CountAlarm {
        count: |meters| meters.peer_strangers.get(),
        text: "a node that is no member connects, or an address leads to another node than the \
               one of that name; make the configurations of all nodes agree",
    },
    CountAlarm {
        count: |meters| meters.site_refusals.get(),
        text: "another site takes nothing from this node: it does not know this site or this \
               node, or asks for a proof or a token. Make the [sites] of both name each other, \
               with the same secret or TLS; stop this site if it was removed from the others",
    },
    CountAlarm {
        count: |meters| meters.peer_unproven.get(),
        text: "this node and another one do not prove to each other that they know the cluster's \
               secret: give all nodes the same cluster.secret_file, or set \
               cluster.secret_required = false until all have it",
    },
    CountAlarm {
        count: |meters| meters.peer_tls_failed.get(),
        text: "this node and another one do not come to TLS: one of them speaks none, or its \
               certificate is not of cluster.tls_ca, not of this time, without the node's name, or \
               good for clients alone (openssl x509 -noout -text -in FILE)",
    },
    CountAlarm {
        count: |meters| meters.peer_plain_refused.get(),
        text: "a node connects without TLS, and cluster.tls = \"required\": give it a \
               certificate, or set cluster.tls = \"accept-both\" until all nodes have one",
    },
    CountAlarm {
        count: |meters| meters.clock_alarms.get(),
        text: "the wall clock of another member or site differs from this node's by more than \
               cluster.clock_skew_max_ms; set the wall clocks of all nodes (NTP)",
    },
    CountAlarm {
        count: |meters| meters.clock_refusals.get(),
        text: "this node's wall clock differs from that of most other nodes by more than \
               cluster.clock_skew_max_ms: it takes no writes until that is set (NTP)",
    },
    CountAlarm {
        count: |meters| meters.ring_shortages.get(),
        text: "the kernel has no memory for a core's input and output and is asked again; free \
               some, or give the process more",
    },
    CountAlarm {
        count: |meters| meters.journal_stalls.get(),
        text: "the disk under the journal does not answer: clients' writes are refused until it \
               does; pops and reads go on. Look at the disk (dmesg, iostat)",
    },
    CountAlarm {
        count: |meters| meters.journal_clock_behind_ms.get(),
        text: "the wall clock shows less than the journal's newest page: the time of that page \
               counts as the present, and timers may pop late by as much. Set the clock (NTP) and \
               restart the node",
    },
    CountAlarm {
        count: |meters| meters.requests_of_unknown_token.get(),
        text: "requests with a token that is not in auth.tokens_file: a client has a token that \
               was taken out, this node lacks a line that others have, or somebody guesses",
    },
];

/// Logs each alarm whose count grows, and looks at the conditions of the board, until the future is
/// dropped. Must run inside the control thread's runtime.
pub(crate) async fn watch(meters: Arc<[CoreMeters]>, board: AlarmBoard) {
    let mut look = interval(LOOK_EVERY);
    let mut told = [LastTold::default(); ALARMS.len()];
    let mut hosts = HashMap::new();
    let mut give_ups = GiveUpNews::default();
    let mut turns = TurnNews::default();
    loop {
        look.tick().await;
        board.look(&meters, Instant::now(), ring::now().wall.0);
        for (alarm, told) in ALARMS.iter().zip(&mut told) {
            let count = meters.iter().map(alarm.count).sum();
            if let Some(more) = told.due(count, Instant::now()) {
                error!(more, total = count, "{}", alarm.text);
            }
        }
        let failures = meters.iter().flat_map(|core| iter::from_fn(|| core.tls_failures.take()));
        for failure in due_failures(&mut hosts, failures, Instant::now()) {
            warn!(host = failure.host, "callbacks over TLS fail: {}", failure.reason);
        }
        let given_up = meters.iter().flat_map(|core| iter::from_fn(|| core.give_ups.take()));
        give_ups.look(given_up, Instant::now()).iter().for_each(News::log);
        if let Some(said) = turns.look(&meters, Instant::now()) {
            warn!("turns of a core took longer than limits.turn_budget_us, mostly for {said}");
        }
    }
}

/// Turns over their budget, as the log last told them.
#[derive(Default)]
struct TurnNews {
    told: LastTold,
    of_work: [u64; Work::ALL.len()],
}

impl TurnNews {
    /// Says what turns over their budget have done since the last line, if they are many.
    fn look(&mut self, meters: &[CoreMeters], now: Instant) -> Option<String> {
        let all: u64 = meters.iter().map(|core| core.turns_over_budget.get()).sum();
        if all.saturating_sub(self.told.count) < TURNS_MIN {
            return None;
        }
        self.told.due(all, now)?;
        let mut said = Vec::new();
        for ((_, name, counter), before) in Work::ALL.iter().zip(&mut self.of_work) {
            let count: u64 = meters.iter().map(|core| counter(core).get()).sum();
            let more = count.saturating_sub(std::mem::replace(before, count));
            said.extend((more > 0).then(|| format!("{name} ({more})")));
        }
        Some(said.join(", "))
    }
}

/// Returns the failures to be logged: of each host one a minute, of at most [`HOSTS_MAX`] hosts.
fn due_failures(
    hosts: &mut HashMap<String, Instant>,
    failures: impl Iterator<Item = ToldFailure>,
    now: Instant,
) -> Vec<ToldFailure> {
    hosts.retain(|_, told| now.saturating_duration_since(*told) < TELL_EVERY);
    let mut due = Vec::new();
    for failure in failures {
        if hosts.len() < HOSTS_MAX && !hosts.contains_key(&failure.host) {
            hosts.insert(failure.host.clone(), now);
            due.push(failure);
        }
    }
    due
}

/// The count that an alarm was last logged with, and when.
#[derive(Clone, Copy, Debug, Default)]
struct LastTold {
    count: u64,
    at: Option<Instant>,
}

impl LastTold {
    /// Returns by how much the count has grown since the last line, and notes the count as told.
    /// Returns `None` when the count has not grown, or when the last line is younger than
    /// [`TELL_EVERY`].
    fn due(&mut self, count: u64, now: Instant) -> Option<u64> {
        let more = count.checked_sub(self.count).filter(|more| *more > 0)?;
        if self.at.is_some_and(|at| now.saturating_duration_since(at) < TELL_EVERY) {
            return None;
        }
        *self = LastTold { count, at: Some(now) };
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_long_turns_did_is_told_once_a_minute() {
        let (meters, begun) = ([CoreMeters::default(), CoreMeters::default()], Instant::now());
        let mut news = TurnNews::default();
        let count = |work: Work, turns| {
            for _ in 0..turns {
                meters[1].turns_over_budget.add(1);
                work.count(&meters[1]);
            }
        };
        count(Work::Pops, TURNS_MIN - 1);
        assert_eq!(news.look(&meters, begun), None, "a few");
        count(Work::Requests, 20);
        let said = news.look(&meters, begun);
        assert_eq!(said.as_deref(), Some("requests (20), pops (9)"));
        count(Work::Requests, 20);
        assert_eq!(news.look(&meters, begun + TELL_EVERY / 2), None, "within a minute");
        let said = news.look(&meters, begun + TELL_EVERY);
        assert_eq!(said.as_deref(), Some("requests (20)"));
    }

    #[test]
    fn growth_is_told_at_once_and_then_once_a_minute() {
        let begun = Instant::now();
        let mut told = LastTold::default();
        assert_eq!(told.due(0, begun), None);
        assert_eq!(told.due(2, begun), Some(2));
        assert_eq!(told.due(5, begun + TELL_EVERY / 2), None);
        assert_eq!(told.due(7, begun + TELL_EVERY), Some(5));
        assert_eq!(told.due(7, begun + TELL_EVERY * 3), None);
    }

    #[test]
    fn a_host_is_told_once_a_minute_and_no_more_hosts_than_a_log_can_take() {
        let begun = Instant::now();
        let mut hosts = HashMap::new();
        let mut due = |names: &[usize], at: Instant| {
            let failures = names
                .iter()
                .map(|name| ToldFailure { host: format!("https://h{name}"), reason: "r".into() });
            let due = due_failures(&mut hosts, failures, at).into_iter();
            due.map(|failure| failure.host).collect::<Vec<_>>()
        };
        assert_eq!(due(&[1, 1, 2], begun), ["https://h1", "https://h2"]);
        assert_eq!(due(&[2, 1], begun + TELL_EVERY / 2), [""; 0]);
        assert_eq!(due(&[1], begun + TELL_EVERY), ["https://h1"]);
        let many = (10..100).collect::<Vec<_>>();
        assert_eq!(due(&many, begun + TELL_EVERY).len(), HOSTS_MAX - 1);
    }

    #[test]
    fn each_alarm_counts_its_own() {
        let meters = CoreMeters::default();
        let counts = |meters: &CoreMeters| ALARMS.map(|alarm| (alarm.count)(meters));
        assert_eq!(counts(&meters), [0; 14]);
        meters.peer_twins.set(1);
        meters.peer_same_instance.set(2);
        meters.peer_refusals.set(3);
        meters.peer_strangers.set(4);
        meters.peer_unproven.set(5);
        meters.peer_tls_failed.set(6);
        meters.peer_plain_refused.set(7);
        meters.clock_alarms.set(8);
        meters.clock_refusals.set(9);
        meters.ring_shortages.set(10);
        meters.journal_stalls.set(11);
        meters.journal_clock_behind_ms.set(12);
        meters.requests_of_unknown_token.set(13);
        meters.site_refusals.set(14);
        assert_eq!(counts(&meters), [1, 2, 3, 4, 14, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    }
}
