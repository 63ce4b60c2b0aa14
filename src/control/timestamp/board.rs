//! What operators see of timestamps: written by the keeper's thread, read by the admin API. Nobody
//! waits for anybody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::base::time::{MonoNs, Now};
use crate::timestamp::coordinator::Role;
use crate::timestamp::oracle::Oracle;

/// What a role is called in `/status` and `/metrics`.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Starting => "starting",
        Role::Backup => "backup",
        Role::Master => "master",
        Role::Suspended => "suspended",
        Role::Stopped => "stopped",
    }
}

/// All roles, in the order in which a server has them.
pub(crate) const ROLES: [Role; 5] =
    [Role::Starting, Role::Backup, Role::Master, Role::Suspended, Role::Stopped];

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// What is counted.
        #[derive(Debug, Default)]
        pub(crate) struct TimestampCounters {
            $($(#[doc = $help])+ pub(crate) $name: AtomicU64,)+
        }

        impl TimestampCounters {
            /// Name, help and count of each.
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

/// One server's timestamps.
#[derive(Debug)]
pub(crate) struct TimestampBoard {
    /// What the cores take timestamps from.
    pub oracle: Arc<Oracle>,
    /// Counts.
    pub counters: TimestampCounters,
    /// `file` or `zookeeper`, for people.
    coordination: &'static str,
    role: Mutex<Role>,
    master: Mutex<Option<String>>,
    has_ended: AtomicBool,
}

/// Figures of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Whether timestamps are handed out.
    pub is_serving: bool,
    /// What is left of the stored window.
    pub window_remaining_ms: u64,
    /// What is left of the lease; `None`: a standalone server needs none.
    pub lease_remaining_ms: Option<u64>,
    /// How far timestamps are ahead of the wall clock of this machine.
    pub ahead_ms: u64,
    /// How far they are behind it.
    pub behind_ms: u64,
    /// The bound stored.
    pub bound: u64,
    /// The last timestamp handed out.
    pub last: u64,
}

impl TimestampBoard {
    /// A server that has just begun.
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

    /// What this server is.
    pub(crate) fn role(&self) -> Role {
        *self.role.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes it; `true` if it is new.
    pub(crate) fn set_role(&self, role: Role) -> bool {
        let before =
            std::mem::replace(&mut *self.role.lock().unwrap_or_else(PoisonError::into_inner), role);
        before != role
    }

    /// Where the master is, as `host:port`, if anybody knows.
    pub(crate) fn master(&self) -> Option<String> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes it.
    pub(crate) fn set_master(&self, master: Option<String>) {
        *self.master.lock().unwrap_or_else(PoisonError::into_inner) = master;
    }

    /// The keeper has ended without having been asked to: there will be no more timestamps.
    pub(crate) fn set_ended(&self) {
        self.has_ended.store(true, Relaxed);
    }

    /// Whether the keeper has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// The figures at `now`.
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

    /// The section of `/status`. Timestamps are texts: they have more digits than a JavaScript
    /// number keeps.
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
        // Against the clock as it is, whether it is followed or not.
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
        // The lease of a file never ends.
        oracle.publish(&Terms { until: MonoNs(u64::MAX), bound, clock });
        let figures = board.figures(at(10_000, 10_000));
        assert_eq!((figures.lease_remaining_ms, figures.is_serving), (None, true));
        assert_eq!(figures.window_remaining_ms, 0);
    }
}
