//! What operators see of timestamps. The keeper's thread writes the board, the admin API reads it.
//! Neither waits for the other.

// Reads the wall clock: timestamps 2.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::base::time::{MonoNs, Now};
use crate::timestamp::coordinator::Role;
use crate::timestamp::oracle::Oracle;

/// Returns the word for a role in `/status` and `/metrics`.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Starting => "starting",
        Role::Backup => "backup",
        Role::Master => "master",
        Role::Suspended => "suspended",
        Role::Stopped => "stopped",
    }
}

/// All roles, in the order in which a server takes them.
pub(crate) const ROLES: [Role; 5] =
    [Role::Starting, Role::Backup, Role::Master, Role::Suspended, Role::Stopped];

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// Counters of a server's timestamps since its start.
        #[derive(Debug, Default)]
        pub(crate) struct TimestampCounters {
            $($(#[doc = $help])+ pub(crate) $name: AtomicU64,)+
        }

        impl TimestampCounters {
            /// Returns name, help and count of each counter.
            pub(crate) fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($help),+), self.$name.load(Relaxed)),)+]
            }
        }
    };
}

counters! {
    /// Masterships begun by this server.
    masterships,
    /// Masterships lost: the session expired, or the master's node was taken away.
    masterships_lost,
    /// Times that a master stopped answering because its lease ran out.
    suspensions,
    /// Times that somebody else wrote the bound while this server was master.
    foreign_bounds,
    /// Times that the bound was looked for and not found in ZooKeeper: somebody has deleted it.
    bounds_missing,
    /// Times that the wall clock was found too far ahead to be followed.
    clock_refusals,
    /// Times that the wall clock was found set back.
    clock_set_back,
    /// Bounds that could not be stored, by the file or by ZooKeeper.
    store_errors,
    /// Sessions of ZooKeeper begun.
    sessions,
}

/// What one server shows of its timestamps.
#[derive(Debug)]
pub(crate) struct TimestampBoard {
    /// The oracle that the cores take timestamps from.
    pub oracle: Arc<Oracle>,
    /// The counters of this server.
    pub counters: TimestampCounters,
    /// Where the bound is kept, for people: `file` or `zookeeper`.
    coordination: &'static str,
    role: Mutex<Role>,
    master: Mutex<Option<String>>,
    has_ended: AtomicBool,
}

/// The figures of a server at one moment. While no timestamps are handed out, all figures but
/// `bound` and `last` are 0 or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Whether timestamps are handed out at that moment.
    pub is_serving: bool,
    /// Milliseconds from the clock of the timestamps to the stored bound.
    pub window_remaining_ms: u64,
    /// Milliseconds until the lease ends; `None` for a standalone server, which needs no lease.
    pub lease_remaining_ms: Option<u64>,
    /// Milliseconds by which timestamps are ahead of the wall clock of this machine.
    pub ahead_ms: u64,
    /// Milliseconds by which timestamps are behind the wall clock of this machine.
    pub behind_ms: u64,
    /// The bound that is stored.
    pub bound: u64,
    /// The last timestamp handed out.
    pub last: u64,
}

impl TimestampBoard {
    /// Makes the board of a server that has just begun. `coordination` is `file` or `zookeeper`.
    pub(crate) fn new(oracle: Arc<Oracle>, coordination: &'static str) -> Self {
        Self {
            oracle,
            counters: TimestampCounters::default(),
            coordination,
            role: Mutex::new(Role::Starting),
            master: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Returns the role of this server.
    pub(crate) fn role(&self) -> Role {
        *self.role.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the role. Returns whether the role has changed.
    pub(crate) fn set_role(&self, role: Role) -> bool {
        let before =
            std::mem::replace(&mut *self.role.lock().unwrap_or_else(PoisonError::into_inner), role);
        before != role
    }

    /// Returns `host:port` of the master; `None` if the master is not known.
    pub(crate) fn master(&self) -> Option<String> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets `host:port` of the master.
    pub(crate) fn set_master(&self, master: Option<String>) {
        *self.master.lock().unwrap_or_else(PoisonError::into_inner) = master;
    }

    /// Notes that the keeper has ended, although nobody asked it to stop. From then on there are no
    /// timestamps.
    pub(crate) fn set_ended(&self) {
        self.has_ended.store(true, Relaxed);
    }

    /// Reports whether the keeper has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Returns the figures of the moment `at`.
    pub(crate) fn figures(&self, at: Now) -> Figures {
        let now = at.mono;
        let (terms, _) = self.oracle.terms();
        let last = self.oracle.last();
        if now >= terms.until {
            return Figures { bound: terms.bound.0, last: last.0, ..Figures::default() };
        }
        let physical_ms = terms.clock.unix_ms(now);
        let lease_ms = (terms.until.since_ns(now)) / 1_000_000;
        let is_endless = terms.until == MonoNs(u64::MAX);
        Figures {
            is_serving: true,
            window_remaining_ms: terms.bound.unix_ms().saturating_sub(physical_ms),
            lease_remaining_ms: (!is_endless).then_some(lease_ms),
            ahead_ms: physical_ms.saturating_sub(at.wall.0),
            behind_ms: at.wall.0.saturating_sub(physical_ms),
            bound: terms.bound.0,
            last: last.0,
        }
    }

    /// Renders the section of `/status`. Timestamps are texts, because they have more digits than a
    /// JavaScript number keeps.
    pub(crate) fn render(&self, now: Now) -> Value {
        let figures = self.figures(now);
        let counters = self.counters.list().into_iter();
        let counters: serde_json::Map<String, Value> =
            counters.map(|(name, _, count)| (name.to_owned(), count.into())).collect();
        json!({
            "coordination": self.coordination,
            "role": role_name(self.role()),
            "serving": figures.is_serving,
            "keeper_failed": self.has_ended(),
            "master": self.master(),
            "bound": figures.bound.to_string(),
            "last": figures.last.to_string(),
            "window_remaining_ms": figures.window_remaining_ms,
            "lease_ms": figures.lease_remaining_ms,
            "ahead_ms": figures.ahead_ms,
            "behind_ms": figures.behind_ms,
            "counters": counters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::WallMs;
    use crate::timestamp::Timestamp;
    use crate::timestamp::clock::ClockLine;
    use crate::timestamp::oracle::Terms;

    #[test]
    fn figures_are_those_of_the_oracle() {
        let oracle = Arc::new(Oracle::default());
        let board = TimestampBoard::new(Arc::clone(&oracle), "zookeeper");
        let at = |ms: u64, wall: u64| Now { mono: MonoNs(0).plus_ms(ms), wall: WallMs(wall) };
        let now = at(5_000, 5_000);
        assert_eq!(board.figures(now), Figures::default());
        let clock = ClockLine { wall_offset_ns: 0, ahead_ns: 2_000_000_000, ahead_at: now.mono };
        let (until, bound) = (now.mono.plus_ms(700), Timestamp::of_unix_ms(8_000));
        oracle.begin(Timestamp(0), &Terms { until, bound, clock });
        let figures = board.figures(now);
        assert_eq!((figures.window_remaining_ms, figures.lease_remaining_ms), (1_000, Some(700)));
        assert_eq!((figures.ahead_ms, figures.behind_ms), (2_000, 0));
        assert!(figures.is_serving);
        // Measured against the clock as it is, whether timestamps follow it or not.
        let figures = board.figures(at(5_200, 37_200));
        assert_eq!((figures.ahead_ms, figures.behind_ms), (0, 30_100));
        assert!(board.set_role(Role::Master) && !board.set_role(Role::Master));
        board.set_master(Some("a:1".into()));
        board.counters.masterships.fetch_add(1, Relaxed);
        let shown = board.render(now);
        assert_eq!((&shown["role"], &shown["master"]), (&json!("master"), &json!("a:1")));
        assert_eq!((&shown["ahead_ms"], &shown["behind_ms"]), (&json!(2_000), &json!(0)));
        assert_eq!(shown["bound"], bound.0.to_string());
        assert_eq!(shown["counters"]["masterships"], 1);
        assert!(!board.figures(at(5_700, 5_700)).is_serving);
        // The lease of a standalone server never ends.
        oracle.publish(&Terms { until: MonoNs(u64::MAX), bound, clock });
        let figures = board.figures(at(10_000, 10_000));
        assert_eq!((figures.lease_remaining_ms, figures.is_serving), (None, true));
        assert_eq!(figures.window_remaining_ms, 0);
    }
}
