//! Where the decisions of both drivers go: to the oracle, from which the cores take timestamps; to
//! the board, which operators read; to the cores, which name the master to clients; and to the log.

// Reads the wall clock: timestamps 1.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::board::{TimestampBoard, role_name};
use super::once_a_minute::OnceAMinute;
use crate::base::time::MonoNs;
use crate::control::config::timestamp::address_of;
use crate::ring::now;
use crate::timestamp::Timestamp;
use crate::timestamp::clock::Seen;
use crate::timestamp::coordinator::Role;
use crate::timestamp::oracle::{Oracle, Terms};

/// Shortest sleep of a driver. A state machine that asks to be woken in the past runs a thousand
/// times a second, not without a pause.
const PAUSE_LEAST: Duration = Duration::from_millis(1);

/// Carries out the decisions of a driver.
pub(super) struct Outlets {
    board: Arc<TimestampBoard>,
    /// Gives the cores `host:port` of the master; `None` while it is not known.
    tell_master: Box<dyn Fn(Option<Arc<str>>) + Send>,
    /// Sent once, at the first mastership.
    began: Option<oneshot::Sender<()>>,
    set_back_told: OnceAMinute,
    refusal_told: OnceAMinute,
}

impl Outlets {
    /// Makes the outlets. `tell_master` is called with `host:port` of the master. `began` is sent
    /// at the first mastership.
    pub(super) fn new(
        board: Arc<TimestampBoard>,
        tell_master: Box<dyn Fn(Option<Arc<str>>) + Send>,
        began: oneshot::Sender<()>,
    ) -> Self {
        Self {
            board,
            tell_master,
            began: Some(began),
            set_back_told: OnceAMinute::default(),
            refusal_told: OnceAMinute::default(),
        }
    }

    pub(super) fn oracle(&self) -> &Oracle {
        &self.board.oracle
    }

    pub(super) fn board(&self) -> &TimestampBoard {
        &self.board
    }

    pub(super) fn begin(&mut self, floor: Timestamp, terms: &Terms) {
        self.oracle().begin(floor, terms);
        self.board.counters.masterships.fetch_add(1, Relaxed);
        let now = now();
        let ahead_ms = terms.clock.unix_ms(now.mono) as i64 - now.wall.0 as i64;
        info!(floor = floor.0, ahead_ms, "timestamps are handed out");
        if let Some(began) = self.began.take() {
            // An error means that the start was slow and no longer waits.
            let _ = began.send(());
        }
    }

    pub(super) fn set_role(&self, role: Role) {
        if self.board.set_role(role) {
            info!("timestamps: this server is {}", role_name(role));
        }
    }

    pub(super) fn master_is(&self, host_port: Option<String>) {
        let address = host_port.map(|host_port| address_of(&host_port));
        self.board.set_master(address.clone());
        (self.tell_master)(address.map(Arc::from));
    }

    pub(super) fn clock_seen(&mut self, seen: Seen) {
        match seen {
            // A refusal has ended.
            Seen::Agreed => info!("the wall clock is followed again"),
            Seen::BackMs(ms) => {
                self.board.counters.clock_set_back.fetch_add(1, Relaxed);
                if self.set_back_told.is_due() {
                    warn!(
                        "the wall clock was set back by {ms} ms: timestamps go on at half speed \
                         until it has caught up"
                    );
                }
            }
            Seen::RefusedMs(ms) => {
                self.board.counters.clock_refusals.fetch_add(1, Relaxed);
                if self.refusal_told.is_due() {
                    error!(
                        "the wall clock is {ms} ms ahead of what was believed and is not \
                         followed: set it right (NTP), or restart this server if it is right"
                    );
                }
            }
        }
    }
}

/// Returns how long to sleep until `then`, at least [`PAUSE_LEAST`].
pub(super) fn pause_until(then: MonoNs) -> Duration {
    Duration::from_nanos(then.since_ns(now().mono)).max(PAUSE_LEAST)
}
