//! What a core has asked other nodes before doubtful pops, and what it is still to ask.

use std::collections::BTreeMap;

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::limits::ClusterLimits;
use crate::base::time::Tick;
use crate::timer::version::StateKey;

/// Records asked about without an answer, beside those that are due.
pub const ASKED_MAX: usize = 1_024;
/// Timers that are due and wait for answers. Further ones wait until there is room.
pub const DUE_MAX: usize = 16_384;
/// Pause before a peer that knows more and has not told it yet is asked again. The pause doubles
/// each time: what the peer tells may be held up, and each question adds to what waits there.
pub const ASK_AGAIN_MS: u64 = 50;
/// The longest such pause.
pub const ASK_AGAIN_MS_MAX: u64 = 400;

/// What is asked about one timer.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The state that this core holds.
    pub key: StateKey,
    /// Peers that have not answered.
    pub waiting: PeerSet,
    /// Peers of `waiting` whose answer is under way.
    pub asked: PeerSet,
    /// Peers that know more, by their answer, and are asked again at `again_at`.
    pub ahead: PeerSet,
    pub again_at: Tick,
    /// The pause before that.
    pub pause_ms: u64,
    /// Peers of `asked` whose answer does not count: they have told since that they go on.
    pub outdated: PeerSet,
    /// Peers that have told that the timer is overdue with them, whatever this core believed of
    /// them then.
    pub told: PeerSet,
    /// When this core first asked.
    pub since: Tick,
    /// Whether the timer is due and waits for the answers.
    pub is_due: bool,
    /// Whether a peer has said that it keeps the pop, which may last for as long as a destination
    /// is paused.
    pub is_kept: bool,
    /// Whether this core may have missed something about the timer while it was away.
    pub is_unheard: bool,
    /// Absences of this core since it first asked.
    pub absences: u8,
    /// Whether a peer holds the timer, by its answer.
    pub is_known: bool,
    /// Peers that want the timer, or do not hold it.
    pub denied: PeerSet,
    /// How often all other nodes have been asked for the timer: it may have ended
    /// (`src/shard/ended.rs`).
    pub fetches: u8,
}

impl Question {
    /// A question to the peers of `waiting` about a timer that is not due yet.
    pub fn new(key: StateKey, waiting: PeerSet, tick: Tick) -> Self {
        Self {
            key,
            waiting,
            asked: PeerSet::EMPTY,
            ahead: PeerSet::EMPTY,
            again_at: Tick(0),
            pause_ms: 0,
            outdated: PeerSet::EMPTY,
            told: PeerSet::EMPTY,
            since: tick,
            is_due: false,
            is_kept: false,
            is_unheard: false,
            absences: 0,
            is_known: false,
            denied: PeerSet::EMPTY,
            fetches: 0,
        }
    }

    /// The question that takes the place of `former`, which was asked before an absence of this
    /// core. An answer to what was asked before does not count.
    pub fn anew(former: Option<&Self>, key: StateKey, waiting: PeerSet, tick: Tick) -> Self {
        let asked = former.filter(|former| former.fetches == 0).map(|former| former.asked);
        let asked = asked.unwrap_or(PeerSet::EMPTY);
        Self {
            asked,
            outdated: asked,
            is_due: former.is_some_and(|former| former.is_due && former.key == key),
            is_unheard: true,
            absences: former.map_or(0, |former| former.absences),
            ..Self::new(key, waiting, tick)
        }
    }

    /// A peer knows more, by its answer, and will tell it.
    pub fn note_ahead(&mut self, tick: Tick, peer: PeerIndex) {
        self.pause_ms = (2 * self.pause_ms).clamp(ASK_AGAIN_MS, ASK_AGAIN_MS_MAX);
        self.ahead = self.ahead.with(peer);
        self.again_at = tick + self.pause_ms;
    }

    /// A peer has said that it makes the pop, which may take long. The peer is asked again at
    /// `again`, and waited for from then on as if this core had not asked before.
    pub fn rest_until(&mut self, again: Tick) {
        (self.since, self.again_at) = (again, again);
        (self.pause_ms, self.absences) = (0, 0);
        self.is_kept = true;
    }

    /// Peers that are not asked for now.
    pub fn not_asked(&self, tick: Tick) -> PeerSet {
        if tick < self.again_at { self.asked.union(self.ahead) } else { self.asked }
    }

    /// A peer tells that it goes on with the pop: what it does is waited for, and an answer to what
    /// it was asked before does not count.
    pub fn wait_for_pop_of(&mut self, peer: PeerIndex) {
        let only = PeerSet::EMPTY.with(peer);
        self.outdated = self.outdated.union(self.asked.intersection(only));
        self.waiting = self.waiting.with(peer);
        self.told = self.told.with(peer);
    }
}

/// All questions of a shard.
#[derive(Debug, Default)]
pub struct Questions {
    /// By the ids of their timers.
    pub open: BTreeMap<u64, Question>,
    /// After an absence: the records from this slot on have not been asked about.
    pub walk: Option<Slot>,
    /// When the core started.
    pub started_at: Tick,
    /// Until when this core asks about everything that comes due.
    pub fresh_until: Tick,
    /// Until when this core waits for peers of which it knows no more than that they are silent.
    pub patient_until: Tick,
    /// Whether other sites are asked, too: this core was away for so long that they may have gone
    /// on without it.
    pub asks_sites: bool,
    /// When this core last came back.
    back_at: Tick,
    /// When other sites last answered anything, since then.
    said: Vec<(PeerIndex, Tick)>,
    /// Counts long absences. An answer to a question from before an absence says nothing.
    pub life: u8,
    /// The tick of the last portion.
    pub walked_at: Tick,
    /// When the last look at all open questions began.
    pub looked_at: Tick,
    /// The least id that this look has not reached; `None`: the look is over.
    pub look: Option<u64>,
}

impl Questions {
    /// A core that starts, with nothing asked.
    pub fn new(tick: Tick, limits: &ClusterLimits) -> Self {
        let fresh_until = tick + 2 * limits.dead_after_ms;
        Self { started_at: tick, fresh_until, ..Self::default() }
    }

    /// Whether this core has started, or was away for long, so lately that other nodes may know
    /// better even of what it hears now.
    pub fn is_fresh(&self, tick: Tick) -> bool {
        tick < self.fresh_until
    }

    /// Makes this core fresh until `until`, see [`Questions::is_fresh`].
    pub fn be_fresh(&mut self, until: Tick) {
        self.fresh_until = self.fresh_until.max(until);
    }

    /// Whether this core may have missed something about a timer.
    pub fn is_unheard(&self, slot: Slot, id: TimerId) -> bool {
        self.walk.is_some_and(|next| slot >= next)
            || self.open.get(&id.0).is_some_and(|question| question.is_unheard)
    }

    /// Whether no question is open or still to be asked.
    pub fn is_idle(&self) -> bool {
        self.walk.is_none() && self.open.is_empty()
    }

    /// Whether all questions were asked, and those that are open are about pops that peers keep.
    /// Cost: a look at each of these.
    pub fn are_of_kept_alone(&self) -> bool {
        self.walk.is_none() && self.open.values().all(|question| question.is_kept)
    }

    /// Whether silence is no proof yet that a peer is dead.
    pub fn is_patient(&self, tick: Tick) -> bool {
        tick < self.patient_until
    }

    /// Notes that this core got no time. After a long absence no answer from before counts, and the
    /// core is patient until then.
    pub fn was_away(&mut self, tick: Tick, patient_until: Option<Tick>) {
        self.asks_sites = patient_until.is_some() || self.asks_sites && !self.is_idle();
        self.walk = Some(Slot(0));
        self.back_at = tick;
        self.said.clear();
        let Some(patient_until) = patient_until else { return };
        self.patient_until = patient_until;
        self.life = self.life.wrapping_add(1);
        self.open.retain(|_, question| question.is_due);
        for question in self.open.values_mut() {
            question.asked = PeerSet::EMPTY;
            question.is_unheard = true;
            (question.fetches, question.denied) = (0, PeerSet::EMPTY);
            question.absences = question.absences.saturating_add(1);
            question.since = tick;
        }
    }

    /// Notes that another site has answered a question, or taken a copy.
    pub fn note_said(&mut self, site: PeerIndex, tick: Tick) {
        self.said.retain(|(known, _)| *known != site);
        self.said.push((site, tick));
    }

    /// When another site last answered anything, or since when it may have.
    pub fn said_at(&self, site: PeerIndex) -> Tick {
        let said = self.said.iter().find(|(known, _)| *known == site);
        said.map_or(self.back_at, |(_, at)| *at)
    }

    /// Begins the portion of a tick. Returns whether there is something to ask in this tick.
    pub fn begin_portion(&mut self, tick: Tick) -> bool {
        if self.is_idle() || tick <= self.walked_at {
            return false;
        }
        self.walked_at = tick;
        if tick - self.looked_at >= ASK_AGAIN_MS {
            self.looked_at = tick;
            self.look = Some(0);
        }
        true
    }

    /// The next open question of the look; `None`: the look is over.
    pub fn next_look(&mut self) -> Option<(u64, Question)> {
        let from = self.look?;
        let next = self.open.range(from..).next().map(|(&id, &question)| (id, question));
        self.look = next.and_then(|(id, _)| id.checked_add(1));
        next
    }

    /// When there is something to do, given that nothing arrives.
    pub fn next_wake(&self) -> Option<Tick> {
        let is_walking = self.walk.is_some() && self.open.len() < ASKED_MAX;
        let is_looking = self.look.is_some() && !self.open.is_empty();
        match (is_walking || is_looking, self.open.is_empty()) {
            (true, _) => Some(self.walked_at + 1),
            (false, false) => Some(self.looked_at + ASK_AGAIN_MS),
            (false, true) => None,
        }
    }
}

#[cfg(test)]
#[path = "questions_tests.rs"]
mod tests;
