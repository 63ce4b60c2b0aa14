//! How much is left of bringing timers where they belong, as one number: 0 when this node has its
//! share and has given others theirs.
//!
//! A node knows how far its own comparison is, and not how far those of other nodes are. While
//! others go through their timers, they offer this node its share; so the node has its share when
//! offers of timers that it lacks have stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::control::cluster::desk::ClusterDesk;
use crate::node::meters::CoreMeters;

/// How often the node is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long nothing may have happened before nothing is left. Offers follow each other within
/// milliseconds; a busy machine may keep a node from its turn for a second or two.
const QUIET: Duration = Duration::from_secs(5);

/// What the node does at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Look {
    /// Members beside this node.
    others: usize,
    /// Members that some core believes alive, that it suspects, and that are dead, at most.
    alive: u64,
    suspect: u64,
    dead: u64,
    /// Offers of timers that this node lacked, since its start.
    wanted: u64,
    /// Whether the node compares its timers with others, or has timers that belong elsewhere.
    is_moving: bool,
    /// Timers that the node has not compared yet.
    left: u64,
}

/// Since when nothing has happened.
struct Quiet {
    since: Instant,
    last: Option<Look>,
}

impl Quiet {
    /// Returns what is left.
    fn take(&mut self, now: Instant, look: Look) -> u32 {
        let is_same = self.last.is_some_and(|last| {
            (last.others, last.alive, last.wanted) == (look.others, look.alive, look.wanted)
        });
        // A member that is neither alive nor dead may bring timers any moment. A dead one will not.
        let is_waited_for = look.suspect > 0 || look.alive + look.dead < look.others as u64;
        if !is_same || is_waited_for || look.is_moving {
            self.since = now;
        }
        self.last = Some(look);
        match look.others > 0 && now < self.since + QUIET {
            true => u32::try_from(look.left).unwrap_or(u32::MAX).max(1),
            false => 0,
        }
    }
}

/// Keeps the number up to date, as long as the runtime lives.
pub(crate) async fn watch(
    cluster: Arc<ClusterDesk>,
    meters: Arc<[CoreMeters]>,
    remaining: Arc<AtomicU32>,
) {
    let mut quiet = Quiet { since: Instant::now(), last: None };
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        remaining.store(quiet.take(Instant::now(), look_at(&cluster, &meters)), Relaxed);
    }
}

fn look_at(cluster: &ClusterDesk, meters: &[CoreMeters]) -> Look {
    let most = |of: fn(&CoreMeters) -> u64| meters.iter().map(of).max().unwrap_or(0);
    let least_alive = meters.iter().map(|core| core.peers_alive.get()).min().unwrap_or(0);
    let dead = most(|core| core.peers_dead.get());
    let moving = cluster.moving(meters);
    Look {
        others: cluster.other_members(),
        alive: least_alive,
        suspect: most(|core| core.peers_suspect.get()),
        dead,
        wanted: meters.iter().map(|core| core.copies_wanted.get()).sum(),
        is_moving: moving.is_running || moving.misplaced > 0 && dead == 0,
        left: moving.total.saturating_sub(moving.done()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_after_a_quiet_time() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut quiet = Quiet { since: began, last: None };
        let starting =
            Look { others: 2, alive: 0, suspect: 0, dead: 0, wanted: 0, is_moving: false, left: 0 };
        assert_eq!(quiet.take(at(0), starting), 1);
        assert_eq!(quiet.take(at(60_000), starting), 1, "no member has been heard of");
        let alive = Look { alive: 1, dead: 1, ..starting };
        assert_eq!(quiet.take(at(61_000), alive), 1);
        assert_eq!(quiet.take(at(65_000), Look { wanted: 9, ..alive }), 1, "it gets its share");
        assert_eq!(quiet.take(at(69_999), Look { wanted: 9, ..alive }), 1);
        assert_eq!(quiet.take(at(70_000), Look { wanted: 9, ..alive }), 0);
        let moving = Look { wanted: 9, is_moving: true, left: 700, ..alive };
        assert_eq!(quiet.take(at(71_000), moving), 700, "a resynchronisation");
        assert_eq!(quiet.take(at(76_000), Look { is_moving: false, ..moving }), 0);
        let suspecting = Look { suspect: 1, alive: 0, wanted: 9, ..alive };
        assert_eq!(quiet.take(at(77_000), suspecting), 1);
        let alone = Look { others: 0, ..starting };
        assert_eq!(quiet.take(at(77_001), alone), 0, "nobody has anything for it");
    }
}
