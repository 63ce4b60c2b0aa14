//! Pops that are given up, in the log: of each callback host the first one in a minute, with the
//! timer's id, and how many more. Otherwise an operator learns of a dead server from its users.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::shard::give_ups::{GivenUpPop, GivenUpPops};
use crate::wire::dead_letter::GivenUp;

/// How long further pops of a host are counted and not told.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Of how many hosts pops are told in that time.
const HOSTS_MAX: usize = 20;

/// What the log is to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The first pop of a host in a minute, with those that came with it.
    First(GivenUpPop),
    /// So many more of a host in the minute after its first.
    More(Box<str>, u64),
    /// So many of other hosts.
    Others(u64),
}

impl News {
    pub(super) fn log(&self) {
        match self {
            News::First(GivenUpPop { host, timer, uri, reason, count }) => {
                let (more, word, why) = (count - 1, reason.name(), why(*reason));
                warn!(
                    host = %host, timer = %timer, uri = %uri, reason = word, more,
                    "a pop was given up: {why}. GET /destinations/{host} on the admin port says \
                     how the host is; timers with callback.retry leave dead letters"
                );
            }
            News::More(host, count) => {
                warn!(host = %host, count, "{count} more pops of {host} were given up in a minute");
            }
            News::Others(count) => {
                warn!(count, "{count} pops of further hosts were given up in a minute");
            }
        }
    }
}

fn why(reason: GivenUp) -> &'static str {
    match reason {
        GivenUp::Attempts => "all attempts that its policy allows have failed",
        GivenUp::Age => "it could not be delivered in its time",
        GivenUp::Denied => "no callback may go there (callbacks.allow, callbacks.deny)",
    }
}

/// Finds what is new.
#[derive(Debug, Default)]
pub(super) struct GiveUpNews {
    /// Hosts that were told, when, and how many of their pops were not.
    hosts: BTreeMap<Box<str>, (Instant, u64)>,
    others: u64,
    others_told: Option<Instant>,
}

impl GiveUpNews {
    /// Takes what cores told, and returns what the log is to say.
    pub(super) fn look(
        &mut self,
        told: impl Iterator<Item = GivenUpPops>,
        now: Instant,
    ) -> Vec<News> {
        let mut news = Vec::new();
        let is_over = |at: Instant| now.saturating_duration_since(at) >= TELL_EVERY;
        self.hosts.retain(|host, (at, more)| {
            if is_over(*at) && *more > 0 {
                news.push(News::More(host.clone(), *more));
            }
            !is_over(*at)
        });
        for GivenUpPops { hosts, others } in told {
            self.others += others;
            for pop in hosts {
                let has_room = self.hosts.len() < HOSTS_MAX;
                match self.hosts.get_mut(&pop.host) {
                    Some((_, more)) => *more += pop.count,
                    None if has_room => {
                        self.hosts.insert(pop.host.clone(), (now, 0));
                        news.push(News::First(pop));
                    }
                    None => self.others += pop.count,
                }
            }
        }
        if self.others > 0 && self.others_told.is_none_or(is_over) {
            news.push(News::Others(std::mem::take(&mut self.others)));
            self.others_told = Some(now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(host: &str, count: u64) -> GivenUpPop {
        let reason = GivenUp::Age;
        GivenUpPop { host: host.into(), timer: "t".into(), uri: "u".into(), reason, count }
    }

    fn told(hosts: Vec<GivenUpPop>) -> Vec<GivenUpPops> {
        vec![GivenUpPops { hosts, others: 0 }]
    }

    #[test]
    fn the_first_of_a_host_is_told_at_once_and_the_others_after_a_minute() {
        let begun = Instant::now();
        let mut news = GiveUpNews::default();
        let mut look = |pops: Vec<GivenUpPop>, after_s: u64| {
            news.look(told(pops).into_iter(), begun + Duration::from_secs(after_s))
        };
        assert_eq!(look(vec![], 0), []);
        assert_eq!(look(vec![pop("a", 3)], 1), [News::First(pop("a", 3))]);
        assert_eq!(look(vec![pop("a", 4), pop("b", 1)], 2), [News::First(pop("b", 1))]);
        assert_eq!(look(vec![pop("a", 5)], 60), []);
        assert_eq!(look(vec![], 61), [News::More("a".into(), 9)]);
        assert_eq!(look(vec![], 62), [], "of b there were no more");
        assert_eq!(look(vec![pop("a", 1)], 63), [News::First(pop("a", 1))]);
    }

    #[test]
    fn a_log_can_take_what_is_told() {
        let begun = Instant::now();
        let mut news = GiveUpNews::default();
        let all = |from: usize| (from..from + 100).map(|at| pop(&format!("h{at}"), 2)).collect();
        let first = news.look(told(all(0)).into_iter(), begun);
        assert_eq!(first.len(), HOSTS_MAX + 1);
        assert_eq!(first[HOSTS_MAX], News::Others(160));
        assert_eq!(news.look(told(all(200)).into_iter(), begun), []);
        let later = news.look(std::iter::empty(), begun + TELL_EVERY);
        assert_eq!(later, [News::Others(200)]);
    }
}
