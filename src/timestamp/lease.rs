//! How long a master may answer without hearing from `ZooKeeper`.
//!
//! The leader of the ensemble ends a session. The leader counts from the moment in which it last
//! heard of the session. A session on another server reaches the leader only in that server's
//! answers to the leader's pings, every half tick. A session lasts at least two ticks, so half a
//! tick is at most a quarter of a session.
//!
//! Two failures make a single answer worthless as a proof:
//!
//! - A server that is cut off from its leader goes on answering reads and pings for a while.
//! - A leader, or the way from the leader to the server, may be stuck while requests still travel
//!   the other way. Then acknowledgements come late, although no ping was answered for a long time.
//!
//! So neither an answer nor one acknowledged write proves that the leader has heard of the session.
//! Three messages in a row do, because each way between leader and server keeps its order:
//!
//! 1. Something was answered: the server had heard of the session before.
//! 2. A write sent a quarter of the session later or more is acknowledged: the leader has sent a
//!    ping in between, and the server has seen the ping before this acknowledgement.
//! 3. A write sent after that is acknowledged: the leader saw the answer to the ping first.
//!
//! The session lasts its whole length from the moment in which the first message was sent. A
//! session that moves to another server is announced to the leader by the move itself, and a new
//! leader counts from its own start. A twentieth of the session is kept back for clocks that differ
//! in speed.

use std::collections::VecDeque;

use crate::base::planted::{Bug, is_planted};
use crate::base::time::MonoNs;

/// What a session has proved so far, and the lease that follows.
#[derive(Clone, Debug)]
pub struct Lease {
    session_ms: u64,
    /// The leader has heard of the session at this instant or later.
    proved: MonoNs,
    /// The value of `proved` once a write that is sent from now on has been acknowledged.
    nearly_proved: MonoNs,
    /// The answered messages, oldest first. Of the messages that are a quarter of the session old,
    /// only the newest is kept.
    touches: VecDeque<Touch>,
}

#[derive(Clone, Copy, Debug)]
struct Touch {
    sent: MonoNs,
    answered: MonoNs,
}

impl Lease {
    /// The lease of a session of `session_ms` milliseconds that a request made. The request was
    /// sent at `sent`.
    pub fn begin(sent: MonoNs, session_ms: u64) -> Self {
        Self { session_ms, proved: sent, nearly_proved: sent, touches: VecDeque::new() }
    }

    /// A message that was sent at `sent` has been answered. `now` must not be earlier than the
    /// answer.
    pub fn touched(&mut self, sent: MonoNs, now: MonoNs) {
        while self.touches.get(1).is_some_and(|next| self.is_old(next, now)) {
            self.touches.pop_front();
        }
        self.touches.push_back(Touch { sent, answered: now });
    }

    /// A write that was sent at `sent`, after all earlier answers, has been acknowledged.
    pub fn acknowledged(&mut self, sent: MonoNs, now: MonoNs) {
        if is_planted(Bug::LeaseFromAcknowledgement) {
            self.proved = now;
        }
        self.proved = self.proved.max(self.nearly_proved);
        if let Some(touch) = self.touches.iter().rev().find(|touch| self.is_old(touch, sent)) {
            self.nearly_proved = self.nearly_proved.max(touch.sent);
        }
        self.touched(sent, now);
    }

    /// When the lease ends: the master must not answer at or after this instant.
    pub fn until(&self) -> MonoNs {
        self.proved.plus_ms(self.session_ms - self.session_ms / 20)
    }

    fn is_old(&self, touch: &Touch, now: MonoNs) -> bool {
        now >= touch.answered.plus_ms(self.session_ms.div_ceil(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION_MS: u64 = 4_000;

    fn ms(ms: u64) -> MonoNs {
        MonoNs(0).plus_ms(ms)
    }

    /// The instant from which the lease counts, in milliseconds.
    fn proved_ms(lease: &Lease) -> u64 {
        (lease.until().0 / 1_000_000) - SESSION_MS * 19 / 20
    }

    #[test]
    fn a_new_session_is_proved() {
        assert_eq!(proved_ms(&Lease::begin(ms(100), SESSION_MS)), 100);
    }

    #[test]
    fn one_late_acknowledgement_proves_nothing() {
        let mut lease = Lease::begin(ms(0), SESSION_MS);
        lease.acknowledged(ms(300), ms(310));
        lease.acknowledged(ms(600), ms(2_900));
        assert_eq!(proved_ms(&lease), 0);
    }

    #[test]
    fn three_in_a_row_prove_the_first() {
        let mut lease = Lease::begin(ms(0), SESSION_MS);
        lease.touched(ms(300), ms(310));
        lease.acknowledged(ms(1_309), ms(1_320));
        lease.acknowledged(ms(1_330), ms(1_340));
        assert_eq!(proved_ms(&lease), 0, "no ping need have been between");
        let mut lease = Lease::begin(ms(0), SESSION_MS);
        lease.touched(ms(300), ms(310));
        lease.acknowledged(ms(1_310), ms(1_320));
        assert_eq!(proved_ms(&lease), 0, "its answer may still be on its way");
        lease.acknowledged(ms(1_330), ms(1_340));
        assert_eq!(proved_ms(&lease), 300);
    }

    #[test]
    fn reads_alone_prove_nothing() {
        let mut lease = Lease::begin(ms(0), SESSION_MS);
        for at in 1..1_000 {
            lease.touched(ms(at * 300), ms(at * 300 + 10));
            assert!(lease.touches.len() <= 6, "{} are kept", lease.touches.len());
        }
        assert_eq!(proved_ms(&lease), 0);
    }

    #[test]
    fn steady_writing_keeps_nearly_half_a_session() {
        let mut lease = Lease::begin(ms(0), SESSION_MS);
        let mut at = 0;
        for _ in 0..100 {
            at += SESSION_MS / 12;
            assert!(lease.until() > ms(at + SESSION_MS * 2 / 5));
            lease.acknowledged(ms(at), ms(at + 5));
            at += 5;
        }
    }
}
