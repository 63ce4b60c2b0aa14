//! Tells in the log which members and sites stop answering, and which answer again: at a failure
//! the log is where an operator looks first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::interval;
use tracing::{info, warn};

use super::desk::ClusterDesk;
use crate::cluster::detector::Liveness;
use crate::node::meters::CoreMeters;

/// How often the beliefs of the cores are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause between two lines about one peer: a connection that comes and goes does not fill the log.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What is new of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    /// It answers, for the first time since this node's start.
    Answers,
    /// It does not answer any more, or has not answered yet.
    Dead,
    /// It answers again, after so long.
    AnswersAgain(Duration),
}

/// What the log has said of a peer.
#[derive(Clone, Copy, Debug)]
struct Told {
    is_alive: bool,
    at: Instant,
}

/// Finds what is new.
#[derive(Debug, Default)]
struct PeerNews {
    told: BTreeMap<String, Told>,
}

impl PeerNews {
    /// Takes what is believed of all peers, and returns what the log is to say. A suspicion is no
    /// news. Peers that are not named any more are forgotten.
    fn look(
        &mut self,
        peers: Vec<(String, Option<Liveness>)>,
        now: Instant,
    ) -> Vec<(String, News)> {
        self.told.retain(|name, _| peers.iter().any(|(peer, _)| peer == name));
        let mut news = Vec::new();
        for (name, believed) in peers {
            let is_alive = match believed {
                Some(Liveness::Alive) => true,
                Some(Liveness::Dead) => false,
                Some(Liveness::Suspect) | None => continue,
            };
            let former = self.told.get(&name).copied();
            let since = former.map(|told| now.saturating_duration_since(told.at));
            let is_new = former.is_none_or(|told| told.is_alive != is_alive);
            if !is_new || since.is_some_and(|since| since < TELL_EVERY) {
                continue;
            }
            self.told.insert(name.clone(), Told { is_alive, at: now });
            let what = match (is_alive, since) {
                (false, _) => News::Dead,
                (true, None) => News::Answers,
                (true, Some(since)) => News::AnswersAgain(since),
            };
            news.push((name, what));
        }
        news
    }
}

/// Logs news of peers until the future is dropped. Must run inside the control thread's runtime.
pub(crate) async fn watch(desk: Arc<ClusterDesk>, meters: Arc<[CoreMeters]>) {
    let mut look = interval(LOOK_EVERY);
    let mut news = PeerNews::default();
    loop {
        look.tick().await;
        for (peer, what) in news.look(desk.peers_believed(&meters), Instant::now()) {
            match what {
                News::Answers => info!(peer, "{peer} answers"),
                News::AnswersAgain(after) => {
                    let seconds = after.as_secs();
                    info!(
                        peer,
                        seconds,
                        "{peer} answers again, after {seconds} s: it is told what it missed"
                    );
                }
                News::Dead => warn!(
                    peer,
                    "{peer} does not answer: the other nodes that hold its timers pop them, the \
                     first time up to 2 s late. Look at that machine and at the network to it; \
                     `chronos cluster status` says who believes what"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_and_returns_are_told_once_and_flapping_at_most_every_ten_seconds() {
        let begun = Instant::now();
        let mut news = PeerNews::default();
        let mut look = |believed: Option<Liveness>, after_s: u64| {
            let now = begun + Duration::from_secs(after_s);
            let found = news.look(vec![("a".into(), believed)], now);
            found.into_iter().map(|(_, what)| what).collect::<Vec<_>>()
        };
        let (alive, dead) = (Some(Liveness::Alive), Some(Liveness::Dead));
        assert_eq!(look(None, 0), []);
        assert_eq!(look(alive, 1), [News::Answers]);
        assert_eq!(look(alive, 30), []);
        assert_eq!(look(Some(Liveness::Suspect), 40), []);
        assert_eq!(look(dead, 50), [News::Dead]);
        assert_eq!(look(alive, 51), []);
        assert_eq!(look(dead, 52), []);
        assert_eq!(look(dead, 70), []);
        assert_eq!(look(alive, 75), [News::AnswersAgain(Duration::from_secs(25))]);
    }

    #[test]
    fn a_peer_that_never_answered_is_told_and_one_that_is_gone_is_forgotten() {
        let now = Instant::now();
        let mut news = PeerNews::default();
        let dead = || vec![("a".to_owned(), Some(Liveness::Dead))];
        assert_eq!(news.look(dead(), now), [("a".to_owned(), News::Dead)]);
        assert_eq!(news.look(vec![], now), []);
        assert_eq!(news.look(dead(), now), [("a".to_owned(), News::Dead)]);
    }
}
