//! Asking other nodes before a pop, where they may have done the pop or changed the timer.
//!
//! Three things make a pop doubtful:
//!
//! - A core that was *away* (its process was stopped, its machine froze, it got no time) may have
//!   missed writes and pops of everything that it holds.
//! - When the turn of another rank has come, that rank may be making the pop.
//!
//! - When the turn of this site has come, a site before it may be making the pop
//!   ([`crate::shard::sites`]).
//!
//! In each case the core tells other nodes how far it is ([`PeerMessage::Standing`]) and waits for
//! the results. A node that knows more, or that makes the pop, answers [`PeerResult::Ahead`] and
//! tells what it knows.
//!
//! A core that has just started is in doubt, too. Other nodes may have kept a timer for it for a
//! while, and may have done an overdue pop since. So the core asks about everything that comes due
//! in its first seconds.
//!
//! A core that was away asks in portions about everything that it holds. It asks at once about a
//! timer that comes due before its portion. It asks other sites that hold the timer, too
//! ([`crate::shard::sites`]). The core has heard of a timer when every node that may
//! have taken writes of the timer meanwhile has answered, or is dead by the core's own count. Until
//! then the timer does not pop and answers no read.
//!
//! Silence alone is no death then. A peer whose machine takes dials may be a process that gets no
//! time, or that is not done with its start, and that has popped meanwhile. It is waited for longer
//! than one whose machine refuses dials, or does not answer them.

use crate::base::ids::{NodeHash, PeerIndex, PeerSet, Slot, TimerId};
use crate::base::limits::RANK_DELAY_MS;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::wire::peer_message::{PeerMessage, Standing};

use super::Shard;
use super::effects::{Outbox, Purpose};
use super::parts::questions::{ASK_AGAIN_MS, ASKED_MAX, DUE_MAX, Question};
use super::records::{Next, Record, State};

/// Records looked at per tick after an absence. Each look takes a message to each of the other
/// holders.
const LOOKS_PER_TICK: usize = 96;
/// After an absence a core waits for a peer that may live and does not answer. It waits for this
/// much longer than it takes to declare a peer dead: the core that owns the timer there may get no
/// time, while other cores of its node tell that the node lives, or its machine takes dials.
const BEYOND_DEATH_MS: u64 = 5_000;
/// After an absence a core waits so long for another site that goes on answering: tens of thousands
/// of questions and copies may be ahead of this one.
const BEHIND_OTHERS_MS: u64 = 600_000;
/// After this many absences a core pops without an answer. A core that never gets time for long
/// gets no answer in time. It pops late rather than not at all.
const ABSENCES_MAX: u8 = 2;

impl Shard {
    /// Whether this core may have missed something about a timer while it was away.
    pub(super) fn is_unheard(&self, slot: Slot, id: TimerId) -> bool {
        self.questions.is_unheard(slot, id)
    }

    /// Notes whether a peer's machine takes dials.
    pub fn note_listening(&mut self, peer: PeerIndex, is_listening: bool) {
        self.peers.note_listening(peer, is_listening);
    }

    /// Notes that this core has missed what others did up to now, for longer than a death takes to
    /// be seen.
    pub(super) fn missed_much(&mut self, tick: Tick) {
        let patience_ms = self.config.cluster.dead_after_ms + BEYOND_DEATH_MS;
        self.questions.was_away(tick, Some(tick + patience_ms));
    }

    /// The peers that will not tell what this core missed.
    fn dead_for_certain(&self, tick: Tick) -> PeerSet {
        match self.questions.is_patient(tick) && !is_planted(Bug::SilenceAtStartIsDeath) {
            true => self.peers.dead().minus(self.peers.listening()),
            false => self.peers.dead(),
        }
    }

    /// Whether a pop that is due waits for what other nodes say of it. If so, the slot, which is in
    /// no list, is filed to be looked at again.
    pub(super) fn waits_for_others(&mut self, tick: Tick, slot: Slot, outbox: &mut Outbox) -> bool {
        if self.peers.is_alone() {
            return false;
        }
        let record = *self.records.get(slot);
        if self.waits_for_originals(&record) {
            self.wait_until(slot, &record, tick + ASK_AGAIN_MS);
            return true;
        }
        let is_unheard = self.is_unheard(slot, record.id) && !is_planted(Bug::WokenCorePopsUnheard);
        if !is_unheard && !self.questions.is_fresh(tick) && !self.may_be_anothers(tick, &record) {
            return false;
        }
        let former = self.questions.open.get(&record.id.0).copied();
        let known = former.filter(|question| {
            let is_outdated = is_unheard && self.turns.was_away_since(question.since);
            // A rank that tries for long tells so now and then. That is no answer to this look.
            let is_only_told = !question.is_due && !is_unheard && self.may_take_long(&record);
            question.key == record.key() && !is_outdated && !is_only_told
        });
        let mut question = known.unwrap_or_else(|| {
            let waiting = self.whom_to_ask(tick, &record, is_unheard);
            match is_unheard {
                true => Question::anew(former.as_ref(), record.key(), waiting, tick),
                false => Question::new(record.key(), waiting, tick),
            }
        });
        if !question.is_due {
            // It was asked before the turn of this site came, or told by a rank.
            question.waiting = question.waiting.union(self.sites_before(tick, &record));
        }
        question.is_due = true;
        let is_told_copies =
            is_unheard && tick < self.turns.held_until && self.has_holder_of_copies(&record);
        if !is_told_copies && self.is_answered(tick, &record, &mut question) {
            self.questions.open.remove(&record.id.0);
            return false;
        }
        let is_anothers = self.is_anothers(tick, &record, &question);
        let again = match is_anothers {
            true => self.look_again_at(tick, &record),
            false => tick + ASK_AGAIN_MS,
        };
        if is_anothers && !is_unheard {
            self.questions.open.remove(&record.id.0);
        } else if known.is_some() || self.questions.open.len() < DUE_MAX {
            if is_anothers && !is_planted(Bug::KeptPopWaitedForOnce) {
                question.rest_until(again);
            }
            self.ask(tick, slot, &mut question, outbox);
            self.questions.open.insert(record.id.0, question);
        }
        self.wait_until(slot, &record, again);
        true
    }

    /// Whether another node has said that it makes a pop, and may be at it for long. A site says so
    /// for as long as it is at it: what holds the pop up there is not known here.
    fn is_anothers(&self, tick: Tick, record: &Record, question: &Question) -> bool {
        let by_site = question.ahead.intersection(self.sites_before(tick, record));
        question.pause_ms > 0
            && (self.may_take_long(record) || !question.is_unheard && !by_site.is_empty())
    }

    fn wait_until(&mut self, slot: Slot, record: &Record, again: Tick) {
        let next = if record.attempts == 0 { Next::Armed(again) } else { Next::BackingOff(again) };
        self.records.transition(slot, next);
    }

    /// Whether the turn of another rank or of another site has come, so that it may be making the
    /// pop.
    fn may_be_anothers(&self, tick: Tick, record: &Record) -> bool {
        let placement = self.records.placement_of(record);
        let promotion = self.config.cluster.promotion;
        let due = self.records.due(record);
        let is_on_time = tick < self.records.pops_at(record) + RANK_DELAY_MS;
        let is_first = placement.delay_ms(promotion) == placement.delay_of_sites_ms();
        // A node that is not on the list holds the timer until the nodes on the list have it.
        let has_others = placement.replicas.len() > 1 || placement.own.is_none();
        has_others && !(is_first && is_on_time && tick >= due)
            || !self.sites_before(tick, record).is_empty()
    }

    /// The peers that are asked about a timer:
    ///
    /// - After an absence or the start: all nodes that may have taken writes of the timer
    ///   meanwhile, or the end that another site told.
    /// - Otherwise: the nodes that are believed alive and whose turn to pop has come. Where a rule
    ///   holds the pop up, those that are only suspected as well.
    /// - The sites whose turn came before that of this one.
    pub(super) fn whom_to_ask(&self, tick: Tick, record: &Record, is_unheard: bool) -> PeerSet {
        let placement = self.records.placement_of(record);
        let view = &self.peers.view;
        let sites_before = self.sites_before(tick, record);
        let frames = |peers: PeerSet| peers.minus(self.peers.http()).without(self.peers.own());
        if is_unheard || self.questions.is_fresh(tick) {
            let gone = self.dead_for_certain(tick);
            let stood_in = |others: PeerSet| {
                let others = others.without(self.peers.own());
                view.peers_of(&view.place(record.id, placement.factor, others))
            };
            let stood_in = match gone == self.peers.dead() {
                true => stood_in(self.peers.not_dead()),
                false => {
                    stood_in(self.peers.not_dead()).union(stood_in(view.new_nodes().minus(gone)))
                }
            };
            let sites = if is_unheard { self.sites_to_ask(record) } else { PeerSet::EMPTY };
            // What another site told of the timer, any node of this one may keep.
            let keepers = match self.peers.sites_of(&placement.sites).is_empty()
                || is_planted(Bug::KeeperOfEndNotAsked)
            {
                true => PeerSet::EMPTY,
                false => self.peers.view.connected_nodes(),
            };
            let holders = view.peers_of(&placement.replicas).union(stood_in).union(keepers);
            return frames(holders).union(sites).minus(gone).union(sites_before);
        }
        let since_due_ms = tick - self.records.due(record);
        let promotion = self.config.cluster.promotion;
        let ranks = placement.replicas.as_slice().iter().zip(0_u8..);
        let has_come = |rank: u8| placement.delay_of(Some(rank), promotion) <= since_due_ms;
        let their =
            ranks.filter(|(_, rank)| has_come(*rank)).filter_map(|(&node, _)| view.peer_of(node));
        let may_answer = match self.is_ruled(record) {
            // It may keep the pop for long, and come back with it from its journal.
            true => self.peers.not_dead(),
            false => self.peers.alive(),
        };
        let their = frames(their.fold(PeerSet::EMPTY, PeerSet::with));
        their.intersection(may_answer).union(sites_before)
    }

    /// Whether a holder is an original node. An original is told whole copies only, so it cannot be
    /// asked.
    fn has_holder_of_copies(&self, record: &Record) -> bool {
        let replicas = &self.records.placement_of(record).replicas;
        !self.peers.view.peers_of(replicas).intersection(self.peers.http()).is_empty()
    }

    /// Whether the question waits for no peer any more.
    fn is_answered(&self, tick: Tick, record: &Record, question: &mut Question) -> bool {
        let limits = &self.config.cluster;
        let (waiting, until) = match question.is_unheard {
            true => {
                let silent = self.dead_for_certain(tick).union(self.mute_sites(tick));
                let waiting = question.waiting.minus(silent);
                let is_of_site =
                    !waiting.intersection(self.peers.view.connected_sites()).is_empty();
                let beyond_ms = if is_of_site { BEHIND_OTHERS_MS } else { BEYOND_DEATH_MS };
                (waiting, question.since + limits.dead_after_ms + beyond_ms)
            }
            // Just after the start and after an absence, live peers may not be connected yet.
            false => {
                let is_early = tick - self.questions.started_at < limits.suspect_after_ms
                    || tick < self.turns.held_until;
                let is_patient = is_early || self.is_ruled(record);
                let silent = if is_patient { PeerSet::EMPTY } else { self.peers.not_alive() };
                let gone = silent.union(self.peers.dead());
                // A peer that has told something counts as alive for as long as it takes to suspect
                // a peer.
                let is_lately = tick - question.since < limits.suspect_after_ms;
                let told = if is_lately { question.told } else { PeerSet::EMPTY };
                let waiting = question.waiting.minus(gone.minus(told));
                (waiting, self.waits_until(record, question))
            }
        };
        question.waiting = waiting;
        waiting.is_empty() || tick >= until || question.absences >= ABSENCES_MAX
    }

    /// Until when a rank waits for other ranks that live: no peer makes a pop for longer than a
    /// callback may take.
    ///
    /// The core of a rank that says nothing may get no time for long. If each pop of a timer waited
    /// for it anew, one pop would be later than the other. So after the first pop the patience with
    /// a silent rank counts from this rank's turn, and lasts for half an interval at least.
    ///
    /// The ranks of a site behind others all wait for these. They see at different times that a
    /// site is dead, so each waits for the rank before it for longer.
    fn waits_until(&self, record: &Record, question: &Question) -> Tick {
        let limits = &self.config;
        let placement = self.records.placement_of(record);
        let behind_ms = match placement.sites_ahead {
            0 => 0,
            _ => placement.delay_ms(limits.cluster.promotion) - placement.delay_of_sites_ms(),
        };
        let patience_ms = limits.callbacks.timeout_ms + limits.cluster.suspect_after_ms + behind_ms;
        let longest = question.since + patience_ms;
        let has_said_something = question.pause_ms > 0 || !question.told.is_empty();
        let is_planted = is_planted(Bug::SilentRankDelaysEachPop);
        if record.sequence == 0 || has_said_something || is_planted {
            return longest;
        }
        let from_turn = self.records.pops_at(record) + patience_ms;
        longest.min(from_turn.max(question.since + record.interval_ms / 2))
    }

    /// Asks the peers that are alive and have not been asked, or not for a while.
    fn ask(&self, tick: Tick, slot: Slot, question: &mut Question, outbox: &mut Outbox) {
        let able =
            question.waiting.intersection(self.peers.alive()).minus(question.not_asked(tick));
        if able.is_empty() {
            return;
        }
        question.asked = question.asked.union(able);
        question.ahead = question.ahead.minus(able);
        let record = self.records.get(slot);
        let (id, life) = (record.id, self.questions.life);
        let (purpose, bytes) = match question.fetches {
            0 => {
                let standing = self.standing_of(record);
                let message = match self.keeps_pop(tick, record) {
                    true => PeerMessage::Trying(standing),
                    false => PeerMessage::Standing(standing),
                };
                (Purpose::Question { id, life }, outbox.encode(&message))
            }
            _ => (Purpose::End { id, life }, outbox.encode(&PeerMessage::Fetch(id))),
        };
        able.iter().for_each(|peer| outbox.tell(peer, purpose, bytes.clone()));
    }

    pub(super) fn question_answered(&mut self, tick: Tick, id: TimerId) {
        let Some(question) = self.questions.open.get(&id.0).copied() else { return };
        if !question.is_due {
            self.questions.open.remove(&id.0);
            return;
        }
        // The question is taken out when the timer is looked at. A timer that has gone on meanwhile
        // is not due.
        let Some(slot) = self.find(id) else { return };
        // A timer that was forgotten since, and told anew with the same key, may be due later.
        let record = self.records.get(slot);
        let is_due = self.records.due(record) <= tick;
        if question.key == record.key()
            && is_due
            && matches!(record.state, State::Armed | State::BackingOff)
        {
            self.records.rearm(slot, tick);
        }
    }

    /// Whether this node makes the next pop of a timer, or is about to. Then the peer that tells of
    /// the timer, and may be asking, is to wait. Of two nodes that ask each other, the one that is
    /// trying goes on, as its policy says; otherwise the lower rank.
    pub(super) fn is_on_it(
        &mut self,
        slot: Slot,
        asker: Option<PeerIndex>,
        (standing, is_trying): (&Standing, bool),
    ) -> bool {
        let record = *self.records.get(slot);
        if record.state == State::InFlight {
            return true;
        }
        let Some(asker) = asker else { return false };
        let tick = self.turns.at;
        let is_first = self.is_before_asker(&record, asker, standing);
        let keeps_pop = self.keeps_pop(tick, &record);
        let is_first = if keeps_pop == is_trying { is_first } else { keeps_pop };
        if is_first && keeps_pop {
            return true;
        }
        if is_trying && !is_first {
            self.leave_pop_to_others(slot);
        }
        let is_overdue = self.records.due(&record) <= tick;
        let has_room = self.questions.open.len() < DUE_MAX;
        let open = self.questions.open.get_mut(&record.id.0);
        match open.filter(|question| question.key == record.key()) {
            Some(question) if is_first => return question.is_due,
            Some(question) => question.wait_for_pop_of(asker),
            None if !is_first && is_overdue && has_room => {
                let question = Question {
                    told: PeerSet::EMPTY.with(asker),
                    ..Question::new(record.key(), PeerSet::EMPTY.with(asker), tick)
                };
                self.questions.open.insert(record.id.0, question);
            }
            None => {}
        }
        false
    }

    /// Whether this node comes before a peer that asks. Nobody asks itself, so that ranks and
    /// hashes differ.
    fn is_before_asker(&self, record: &Record, asker: PeerIndex, standing: &Standing) -> bool {
        let placement = self.records.placement_of(record);
        let is_asker = |node: &NodeHash| self.peers.view.peer_of(*node) == Some(asker);
        let rank = placement.replicas.as_slice().iter().position(is_asker);
        match (placement.own, rank) {
            // Two lists have no common order of ranks. The hashes of their nodes have an order.
            _ if placement.replicas.digest() != standing.list_digest => {
                self.peers.own_hash() < self.peers.view.hash_of(asker)
            }
            (Some(own), Some(rank)) => usize::from(own) < rank,
            (own, _) => own.is_some(),
        }
    }

    /// Does the portion of a tick: asks again, and goes on with the walk after an absence.
    pub(super) fn ask_on(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        if !self.questions.begin_portion(tick) {
            return;
        }
        self.ask_again(tick, outbox);
        for _ in 0..LOOKS_PER_TICK {
            let Some(next) = self.questions.walk else { return };
            if self.questions.open.len() >= ASKED_MAX {
                return;
            }
            let slot = self.records.occupied_from(next).next();
            self.questions.walk = slot.map(|slot| Slot(slot.0 + 1));
            if let Some(slot) = slot {
                self.ask_about(tick, slot, outbox);
            }
        }
    }

    /// Asks what other nodes did with a timer while this core was away.
    fn ask_about(&mut self, tick: Tick, slot: Slot, outbox: &mut Outbox) {
        let record = *self.records.get(slot);
        let former = self.questions.open.get(&record.id.0);
        let waiting = self.whom_to_ask(tick, &record, true);
        let mut question = Question::anew(former, record.key(), waiting, tick);
        if self.is_answered(tick, &record, &mut question) && !question.is_due {
            self.questions.open.remove(&record.id.0);
            return;
        }
        self.ask(tick, slot, &mut question, outbox);
        self.questions.open.insert(record.id.0, question);
    }

    /// Asks, in portions, the peers that were not alive or knew more.
    fn ask_again(&mut self, tick: Tick, outbox: &mut Outbox) {
        for _ in 0..LOOKS_PER_TICK {
            let Some((id, mut question)) = self.questions.next_look() else { return };
            let Some(slot) = self.find(TimerId(id)) else {
                self.questions.open.remove(&id);
                continue;
            };
            let record = *self.records.get(slot);
            if question.key != record.key() {
                self.questions.open.remove(&id);
                if question.is_unheard {
                    self.ask_about(tick, slot, outbox);
                }
            } else if self.is_answered(tick, &record, &mut question) && !question.is_due {
                self.questions.open.remove(&id);
            } else {
                self.ask(tick, slot, &mut question, outbox);
                self.questions.open.insert(id, question);
            }
        }
    }
}

#[cfg(test)]
#[path = "questions_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "questions_story_tests.rs"]
mod story_tests;
