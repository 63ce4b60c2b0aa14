//! Timers that say themselves when a failed pop is tried again (`callback.retry`) and how long an
//! attempt may take (`callback.timeout`).
//!
//! - The node that begins with a pop keeps it while it lives: it does not leave the next attempt to
//!   another rank, because the policy counts attempts and pauses. The other ranks ask whether it is
//!   at it, and come again later.
//! - A node that takes over from a dead one begins to count anew.
//! - 410 ends the timer, on all nodes.

use crate::base::ids::Slot;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::wire::answer_head::RetryAfter;
use crate::wire::attributes::{Attributes, POLICY_MS_MAX, RetryPolicy};

use super::Shard;
use super::records::{Next, Record, State};

/// A rank that has heard that another one is at a pop asks again after a quarter of the time since
/// the pop was due, within these bounds in milliseconds.
const LOOK_AGAIN_MS_MIN: u64 = 1_000;
const LOOK_AGAIN_MS_MAX: u64 = 30_000;

impl Shard {
    /// What a live record has beyond the original's document. Cost: a look at its content.
    pub(super) fn attributes_of(&self, record: &Record) -> Attributes<'_> {
        match record.is_live() {
            true => self.records.content_of(record).attributes(),
            false => Attributes::default(),
        }
    }

    /// When the pops of a timer are tried again; `None`: as the configuration says.
    pub(super) fn policy_of(&self, record: &Record) -> Option<RetryPolicy> {
        self.attributes_of(record).retry
    }

    /// Whether the node that is at a pop of this timer may be at it for longer than other timers
    /// allow: because the timer says so, or a rule of its destination.
    pub(super) fn may_take_long(&self, record: &Record) -> bool {
        let attributes = self.attributes_of(record);
        attributes.retry.is_some() || attributes.timeout_ms.is_some() || self.is_ruled(record)
    }

    /// When a rank that waits for another one looks again.
    pub(super) fn look_again_at(&self, tick: Tick, record: &Record) -> Tick {
        let since_due_ms = tick - self.records.due(record);
        tick + (since_due_ms / 4).clamp(LOOK_AGAIN_MS_MIN, LOOK_AGAIN_MS_MAX)
    }

    /// Whether this node is at a pop that is due, and keeps it for its next attempt.
    pub(super) fn keeps_pop(&self, tick: Tick, record: &Record) -> bool {
        matches!(record.state, State::BackingOff | State::Ready | State::InFlight)
            && self.records.due(record) <= tick
            && (self.keeps_for_policy(record) || self.keeps_for_rule(record))
    }

    fn keeps_for_policy(&self, record: &Record) -> bool {
        self.policy_of(record).is_some() && !is_planted(Bug::PopOfPolicyNotKept)
    }

    /// Whether no further attempt follows after so many.
    pub(super) fn is_exhausted(policy: &RetryPolicy, record: &Record) -> bool {
        let one_more = u16::from(is_planted(Bug::OneAttemptTooMany));
        u16::from(record.attempts) >= policy.max_attempts + one_more
    }

    /// Whether a policy allows no further attempt at a pop because of its age.
    pub(super) fn is_too_old(&mut self, tick: Tick, record: &Record) -> bool {
        self.policy_of(record).is_some() && tick >= self.give_up_at(record)
    }

    /// Whether a policy allows no further attempt at a pop that was tried, because of its age: this
    /// core may have got no time between its decision and the attempt.
    pub(super) fn is_retry_too_old(&mut self, tick: Tick, slot: Slot) -> bool {
        let record = *self.records.get(slot);
        record.attempts > 0 && self.is_too_old(tick, &record)
    }

    /// The pause before the next attempt, and the most by which it is stretched.
    pub(super) fn pause_by(policy: &RetryPolicy, record: &Record) -> (u64, u64) {
        if is_planted(Bug::PolicyWithoutPauses) {
            return (0, 0);
        }
        let pause_ms = policy.pause_ms(record.attempts.into());
        (pause_ms, pause_ms * u64::from(policy.jitter_milli) / 1_000)
    }

    /// How long a server wants to be left alone, in milliseconds.
    pub(super) fn asked_pause_ms(&self, now: Now, after: RetryAfter) -> u64 {
        let pause_ms = match after {
            RetryAfter::Seconds(seconds) => u64::from(seconds) * 1_000,
            RetryAfter::At(unix_s) => {
                (u64::from(unix_s) * 1_000).saturating_sub(self.calendar_wall(now).0)
            }
        };
        pause_ms.min(POLICY_MS_MAX)
    }

    /// Whether a pop waits because of a rule, or has waited for one that was taken away since, at
    /// whatever rank.
    #[inline]
    pub(super) fn is_ruled(&self, record: &Record) -> bool {
        let hosts = self.records.hosts();
        hosts.has_ever_had_rules() && hosts.rules(record.authority, self.records.due(record))
    }

    /// Whether a pop that is due waits here because of a rule. This rank keeps it then.
    #[inline]
    pub(super) fn keeps_for_rule(&self, record: &Record) -> bool {
        record.state == State::Ready && self.is_ruled(record) && !is_planted(Bug::RuledPopNotKept)
    }

    /// Leaves a pop that waits here because of a rule to a rank that is at it as well. So it is
    /// where both had lost sight of each other. This rank comes again later.
    pub(super) fn leave_pop_to_others(&mut self, slot: Slot) {
        let record = *self.records.get(slot);
        if record.attempts == 0 && self.keeps_for_rule(&record) {
            let again = self.look_again_at(self.turns.at, &record);
            self.records.transition(slot, Next::Armed(again));
        }
    }

    /// When the present pop is given up. After a restart the last pop of a timer, which may be long
    /// overdue, is tried for as long as any other.
    pub(super) fn give_up_at(&mut self, record: &Record) -> Tick {
        let (schedule, sequence) = (record.schedule(), record.sequence + 1);
        let policy = self.policy_of(record);
        let give_up_ms = policy.map_or(self.config.callbacks.give_up_ms, |it| it.max_age_ms);
        let due = self.records.due(record);
        let mut at = schedule.give_up_at(sequence, due, give_up_ms);
        if policy.is_some() {
            at = at.min(due + give_up_ms);
        }
        if let Some(pause_ms) = self.calendar_pause_ms(record) {
            return at.min(due + pause_ms);
        }
        // The age that a policy allows counts from the due time, whatever happened meanwhile, once
        // the pop was tried.
        if !schedule.is_last(sequence) || policy.is_some() && record.attempts > 0 {
            return at;
        }
        // Nor is a pop given up for the time in which its destination was paused.
        let host = self.records.hosts().host_of(record.authority);
        let resumed_at = host.map(|host| host.resumed_at).filter(|resumed| *resumed > Tick(0));
        let after = resumed_at.map_or(Tick(0), |at| at + give_up_ms);
        at.max(self.pops.none_given_up_before).max(after)
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
