//! Which write a copy of an original node tells of. Such a copy has no version; what tells writes
//! apart is the start (docs/design/originals.md).
//!
//! A copy tells the start twice: as time since then, which counts from the copy's arrival, and by
//! the wall clock of the node that took the write. The time since then is right on every clock, but
//! a copy may wait: in the kernel while this node is frozen, and in an original, whose threads all
//! wait for a node that does not answer. While copies may have waited, the wall clock orders them.

// Reads the wall clock: original 3.

use crate::base::ranked::Sites;
use crate::base::time::{Now, Tick, WallMs};
use crate::timer::definition::Content;
use crate::timer::schedule::Schedule;
use crate::timer::version::{StateKey, Version};
use crate::wire::peer_message::{CopyBody, TimerCopy};

use super::Shard;
use super::parts::peers::Teller;
use super::records::Record;

/// A node that sends no versions sends how long ago a timer started, and every message adds its
/// delay (docs/compat/timer-service.md §4). Two starts told by such a node may be one start if they
/// differ by less than this.
const SAME_START_MS: u64 = 500;
/// A copy whose wall clock says that it waited for longer is of a node whose wall clock is wrong.
const WAITED_MS_MAX: u64 = 60_000;

/// Whether an original node sent a copy: the copy came over HTTP and has no version.
fn is_of_original(teller: Teller, copy: &TimerCopy<'_>) -> bool {
    teller.peer.is_none() && Version(copy.standing.version).is_of_start()
}

/// Whether two states may be of one write that has two versions: one version is made from the start
/// that an original told, and the other version is about as old.
pub(super) fn may_be_one_write(one: StateKey, other: StateKey) -> bool {
    one.version != other.version
        && (one.version.is_of_start() || other.version.is_of_start())
        && one.version.wall().0.abs_diff(other.version.wall().0) < SAME_START_MS
}

/// The start of a write, of which `same` is held. It does not change. The start that is told does,
/// by the delay of the message. A cut may hold a message of another site up for long. The earliest
/// start told is nearest to the true one.
pub(super) fn start_of(copy: &TimerCopy<'_>, teller: Teller, same: Option<&Record>) -> Tick {
    let told = teller.start(copy.start_ms);
    same.map_or(told, |held| match copy.replicas.is_empty() || told + SAME_START_MS <= held.start {
        true => held.start.min(told),
        false => held.start,
    })
}

impl Shard {
    /// The sites of a timer that is told. An original tells of a client's write before it has
    /// looked which site took the timer first, and names its own site first. All sites leave the
    /// order as they know it, the original too: otherwise two sites would pop as the first.
    pub(super) fn sites_of_copy(
        &self,
        teller: Teller,
        copy: &TimerCopy<'_>,
        held: Option<&Record>,
    ) -> Sites {
        let known = held.filter(|_| is_of_original(teller, copy));
        let known = known.map(|held| self.records.placement_of(held).sites);
        let known = known.filter(|sites| !sites.is_empty());
        let present = known.map(|sites| self.peers.view.next_sites(&sites));
        present.filter(|sites| !sites.is_empty()).unwrap_or(copy.sites)
    }

    /// The key of a copy; `None`: the copy is older than what is held.
    ///
    /// A copy of an original node has no version. If the copy tells of the write that is held, it
    /// gets the version held. Otherwise it gets a version made from its start. So all nodes that
    /// hear of one write make the same version: a node with a higher one would make the others
    /// repeat pops that they have done.
    pub(super) fn key_of(
        &self,
        now: Now,
        teller: Teller,
        copy: &TimerCopy<'_>,
        held: Option<&Record>,
    ) -> Option<StateKey> {
        let (told, sequence) = (Version(copy.standing.version), copy.standing.sequence);
        let start = teller.start(copy.start_ms);
        if !is_of_original(teller, copy) {
            return match held.filter(|held| self.is_one_write(start, copy, held)) {
                None => Some(StateKey { version: told, sequence }),
                Some(held) if sequence < held.sequence => None,
                Some(held) => Some(StateKey { version: told.max(held.version), sequence }),
            };
        }
        let age_ms = now.mono.tick_floor() - start;
        // Originals count from the start. Their wall clocks do not count.
        let made = match self.clock.is_far(now.wall, told) {
            true => Version::of_start(WallMs(now.wall.0.saturating_sub(age_ms))),
            false => told,
        };
        let Some(held) = held else { return Some(StateKey { version: made, sequence }) };
        let has_waited = self.has_waited(now, told, start);
        let is_near = Self::is_near(start, told, held, has_waited);
        if is_near && self.is_told_again(copy, held) {
            return Some(StateKey { version: held.version, sequence });
        }
        // The tombstone of a delete has the start of the delete. A timer with the same start was
        // deleted.
        let is_deleted = copy.body.is_some() && !held.is_live() && start == held.start;
        let starts_before = match has_waited {
            true => told.wall() < held.version.wall(),
            false => start < held.start,
        };
        let is_older = starts_before && (copy.body.is_some() || !is_near);
        if is_older || is_deleted {
            return None;
        }
        let above = Version::of_start(WallMs(held.version.wall().0 + 1));
        let version = if made > held.version { made } else { above };
        Some(StateKey { version, sequence })
    }

    /// Whether a copy of an original waited on its way for so long that the time since the start
    /// that it tells is too short. It may have, just after this core or an original got no time.
    /// `told` is made from the start by the wall clock.
    fn has_waited(&self, now: Now, told: Version, start: Tick) -> bool {
        let age_ms = now.mono.tick_floor() - start;
        let waited_ms = now.wall.0.saturating_sub(age_ms).saturating_sub(told.wall().0);
        let copies_may_wait =
            self.turns.was_away_lately() || self.peers.may_tell_late(self.turns.at);
        copies_may_wait && (SAME_START_MS..WAITED_MS_MAX).contains(&waited_ms)
    }

    /// Whether a copy of an original may tell of the write that is held, by its start. The copy
    /// that told of the write first may have waited, too: then the start held is too late.
    fn is_near(start: Tick, told: Version, held: &Record, has_waited: bool) -> bool {
        let wall_off_ms = told.wall().0.abs_diff(held.version.wall().0);
        start.0.abs_diff(held.start.0) < SAME_START_MS
            || wall_off_ms < SAME_START_MS && (has_waited || start < held.start)
    }

    /// Whether an original tells that a timer ends here alone, because other nodes go on with it.
    /// The tombstone of this node would win against what those nodes hold.
    pub(super) fn is_moved_away(
        &self,
        teller: Teller,
        copy: &TimerCopy<'_>,
        held: &Record,
    ) -> bool {
        let start = teller.start(copy.start_ms);
        let lists_others =
            !copy.replicas.is_empty() && !copy.replicas.contains(self.peers.own_hash());
        is_of_original(teller, copy)
            && copy.body.is_none()
            && held.is_live()
            && lists_others
            && copy.standing.sequence == held.sequence
            && start.0.abs_diff(held.start.0) < SAME_START_MS
    }

    /// Whether a copy of an original node tells of the write that is held, which started when the
    /// copy says.
    fn is_told_again(&self, copy: &TimerCopy<'_>, held: &Record) -> bool {
        let has_ended = held.sequence > 0 && held.schedule().is_last(held.sequence);
        match copy.body {
            None => copy.standing.sequence > held.sequence,
            Some(_) if !held.is_live() => has_ended,
            Some(body) => self.says_the_same(copy.interval_ms, body, held),
        }
    }

    /// Whether a copy from a node of ours tells of the write that is held, under another version.
    /// This happens when one of the two nodes has heard of the write from an original and made a
    /// version of its own. The pops done of one write count, whichever version tells of them.
    /// Otherwise those pops would be done again.
    pub(super) fn is_one_write(&self, start: Tick, copy: &TimerCopy<'_>, held: &Record) -> bool {
        let (version, sequence) = (Version(copy.standing.version), copy.standing.sequence);
        let schedule =
            Schedule { start, interval_ms: copy.interval_ms, repeat_for_ms: copy.repeat_for_ms };
        let has_ended = |schedule: Schedule, sequence| sequence > 0 && schedule.is_last(sequence);
        !copy.is_write
            && may_be_one_write(StateKey { version, sequence }, held.key())
            && start.0.abs_diff(held.start.0) < SAME_START_MS
            && match copy.body {
                None => held.is_live() && has_ended(schedule, sequence),
                Some(_) if !held.is_live() => has_ended(held.schedule(), held.sequence),
                Some(body) => self.says_the_same(copy.interval_ms, body, held),
            }
    }

    /// Whether a copy has the callback and the interval that are held. Intervals are compared in
    /// whole seconds, the unit of an original. Tags are not compared, because an original sorts
    /// them.
    fn says_the_same(&self, interval_ms: u64, body: CopyBody<'_>, held: &Record) -> bool {
        let content = Content::decode(body.content);
        let known = self.records.content_of(held);
        held.interval_ms.div_ceil(1_000) == interval_ms.div_ceil(1_000)
            && self.records.authority_of(held) == body.authority
            && (known.target, known.opaque) == (content.target, content.opaque)
    }
}

#[cfg(test)]
#[path = "originals_tests.rs"]
mod tests;
