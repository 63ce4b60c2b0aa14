//! What peers tell. One rule merges every copy and every standing: the higher (version, sequence)
//! wins. At the same key the masks are united.

// Reads the wall clock: order 2.

use crate::base::ids::{NodeHash, PeerSet, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::Replicas;
use crate::base::time::{Now, Tick};
use crate::journal::Position;
use crate::timer::naming::{is_digest, may_be_of_key};
use crate::timer::version::{StateKey, Version, supersedes};
use crate::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy,
};

use super::Shard;
use super::actions::is_same_write;
use super::effects::{Answer, Outbox, PeerTicket, Purpose, Refusal};
use super::far_ends::Beside;
use super::originals::{may_be_one_write, start_of};
use super::parts::peers::{FULL_MS, Teller};
use super::records::{Outline, Placement, Record};

/// Starts of one write that came over several connections differ by less than this: a connection
/// that was silent until a death would be declared is closed (`STALE` in `core/peers/actions.rs`).
const OTHER_START_MS: u64 = 10_000;

/// Bytes for peers made in one turn. Above it a fetch is answered [`PeerResult::Busy`] and comes
/// again: a peer can ask for thousands of large timers in one frame.
const FETCHED_BYTES_PER_TURN_MAX: usize = 2 << 20;

impl Shard {
    pub(super) fn peer_message(
        &mut self,
        now: Now,
        ticket: PeerTicket,
        teller: Teller,
        message: PeerMessage<'_>,
        outbox: &mut Outbox,
    ) {
        self.counters.peer_messages += 1;
        let result = match message {
            PeerMessage::Standing(standing) | PeerMessage::Trying(standing) => {
                let told = (&standing, matches!(message, PeerMessage::Trying(_)));
                let result = self.merge_standing(now, teller, told, outbox);
                match result {
                    PeerResult::Wanted => self.counters.copies_wanted += 1,
                    _ => self.note_told(standing.id),
                }
                self.as_stored(now, standing.id, result, outbox)
            }
            PeerMessage::Copy(copy) => {
                self.note_told(copy.standing.id);
                let result = self.merge_copy(now, teller, &copy, outbox);
                self.as_stored(now, copy.standing.id, result, outbox)
            }
            PeerMessage::Conditional { .. } | PeerMessage::Fetch(_)
                if outbox.peer_bytes.len() > FETCHED_BYTES_PER_TURN_MAX =>
            {
                PeerResult::Busy
            }
            PeerMessage::Conditional { seen, copy } => {
                self.note_told(copy.standing.id);
                match self.newer_than(now, Version(seen), &copy) {
                    Some(Ok(newer)) => {
                        let result = PeerResult::Found(&newer);
                        return outbox.answer(ticket, &result, Position::default());
                    }
                    Some(Err(result)) => result,
                    // Another node decides. What is decided is told to this node, too.
                    None if self.write_refusal.is_some() => {
                        self.refuse_for_room(now, copy.standing.id, outbox)
                    }
                    None => self.merge_copy(now, teller, &copy, outbox),
                }
            }
            PeerMessage::Fetch(id) => match self.fetched(now, id) {
                Ok(copy) => {
                    return outbox.answer(ticket, &PeerResult::Found(&copy), Position::default());
                }
                Err(result) => result,
            },
            PeerMessage::Compare(asked) => {
                let result = self.compared_as_rank(now, asked);
                return outbox.answer(ticket, &result, Position::default());
            }
            PeerMessage::NoRoom { at, .. } => self.note_no_room(now, at),
            PeerMessage::Orders(lines) => self.take_orders(teller, lines, outbox),
            PeerMessage::List { shard, .. } if shard != self.config.own.0 => PeerResult::NotFound,
            PeerMessage::List { ask, .. } => match self.listed_part(now, ask) {
                Ok(part) => {
                    return outbox.answer(ticket, &PeerResult::Found(&part), Position::default());
                }
                Err(_) => PeerResult::Refused(PeerRefusal::Malformed),
            },
            PeerMessage::Missed { id, by } => {
                self.offer_missed(id, by, outbox);
                PeerResult::Held
            }
        };
        outbox.answer(ticket, &result, self.promised(&result));
    }

    /// Notes that another node has no room at present.
    fn note_no_room(&mut self, now: Now, at: NodeHash) -> PeerResult<'static> {
        let peer = self.peers.view.peer_of(at).filter(|peer| *peer != self.peers.own());
        let until = now.mono.tick_floor() + FULL_MS;
        peer.into_iter().for_each(|peer| self.peers.note_full(peer, until));
        PeerResult::NotFound
    }

    /// Merges a copy that came over the internal HTTP API.
    pub(super) fn merge(
        &mut self,
        now: Now,
        copy: &TimerCopy<'_>,
        outbox: &mut Outbox,
    ) -> Result<Answer, Refusal> {
        self.counters.peer_messages += 1;
        let teller = Teller { peer: None, clock_offset_ns: 0 };
        let before = match self.readings {
            Some(_) => self.find(copy.standing.id).map(|slot| *self.records.get(slot)),
            None => None,
        };
        let result = self.merge_copy(now, teller, copy, outbox);
        self.note_listed(now, copy, before);
        match result {
            PeerResult::Refused(PeerRefusal::FutureVersion) => Err(Refusal::FutureVersion),
            PeerResult::Refused(_) => Err(Refusal::TimersFull),
            _ => {
                let (id, factor) = (copy.standing.id, copy.factor);
                let filter = self.peers.view.filter_of(&copy.replicas);
                Ok(Answer::Done { id, factor, filter })
            }
        }
    }

    /// Merges a standing: "I hold this timer, so far." `is_trying`: the teller is at its next pop.
    fn merge_standing(
        &mut self,
        now: Now,
        teller: Teller,
        (standing, is_trying): (&Standing, bool),
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        let version = Version(standing.version);
        if version.is_impossible() {
            self.counters.refused += 1;
            return PeerResult::Refused(PeerRefusal::FutureVersion);
        }
        let key = StateKey { version, sequence: standing.sequence };
        let Some(slot) = self.find(standing.id) else {
            return match self.room_for_copy(0, None) {
                Ok(()) => PeerResult::Wanted,
                Err(_) => self.refuse_for_room(now, standing.id, outbox),
            };
        };
        let held = *self.records.get(slot);
        if held.version < version && !is_planted(Bug::AcceptLowerVersion) {
            return PeerResult::Wanted;
        }
        if !supersedes(key, Some(held.key())) && key != held.key() {
            if may_be_one_write(key, held.key()) && key.sequence > held.sequence {
                // Only the whole copy tells whether the two states are of one write.
                return PeerResult::Wanted;
            }
            if !self.takes_earlier_pops(now, slot, key, outbox) {
                self.tell_back(slot, teller, outbox);
            }
            return PeerResult::Ahead;
        }
        if !held.is_live() {
            return PeerResult::Held;
        }
        if key == held.key() {
            let is_on_it = self.is_on_it(slot, teller.peer, (standing, is_trying));
            let result = self.merge_same(now.mono.tick_floor(), slot, standing);
            let is_ahead = is_on_it || self.may_leave_untold(teller);
            return if is_ahead { PeerResult::Ahead } else { result };
        }
        let mut placement = *self.records.placement_of(&held);
        let is_same_list = placement.replicas.digest() == standing.list_digest;
        if is_same_list {
            self.note_proof(teller, &placement, standing);
            // A standing tells ranks without their list. Ranks that the list lacks cannot act.
            placement.actives = standing.actives & placement.replicas.all_ranks();
            placement.confirmed = 0;
        }
        let tick = now.mono.tick_floor();
        self.records.catch_up(&self.peers, tick, slot, standing.sequence, &placement);
        if is_same_list { PeerResult::Held } else { PeerResult::Wanted }
    }

    /// Whether the teller, which may be about to pop, would not hear of a pop that this node makes
    /// next: this node has not reached the teller, which has just started. The teller asks again.
    fn may_leave_untold(&self, teller: Teller) -> bool {
        let is_reached = |peer| self.peers.alive().contains(peer);
        !teller.peer.is_none_or(is_reached)
    }

    /// Notes that a peer can deliver, if its rank acts before and after the pop that it tells of. A
    /// peer that gives a pop up leaves the next pop to other ranks.
    fn note_proof(&mut self, teller: Teller, held: &Placement, standing: &Standing) {
        let Some(peer) = teller.peer else { return };
        let own = self.ranks_of(&held.replicas, PeerSet::EMPTY.with(peer));
        if own & held.actives & standing.actives != 0 {
            self.peers.prove(peer);
        }
    }

    /// Merges a standing at the key that is held. The masks of one list are united. Of two lists
    /// the preferred list is right.
    fn merge_same(&mut self, tick: Tick, slot: Slot, standing: &Standing) -> PeerResult<'static> {
        let held = *self.records.get(slot);
        let replicas = self.records.placement_of(&held).replicas;
        if replicas.digest() == standing.list_digest {
            self.unite(slot, standing.actives);
            return PeerResult::Held;
        }
        // A list that names nodes that are believed full here is told by its digest, too.
        let factor = self.records.placement_of(&held).factor;
        let whole = self.peers.view.place(held.id, factor, self.peers.not_dead());
        let acting = match whole.digest() == standing.list_digest {
            true => self.peers_at(&whole, standing.actives),
            false => PeerSet::EMPTY,
        };
        for list in self.preferred_lists(&held, acting) {
            if replicas == list {
                break;
            }
            if list.digest() == standing.list_digest {
                self.take_list(tick, slot, list, standing.actives);
                return PeerResult::Held;
            }
        }
        PeerResult::Otherwise
    }

    /// Merges a whole timer, or its tombstone.
    fn merge_copy(
        &mut self,
        now: Now,
        teller: Teller,
        copy: &TimerCopy<'_>,
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        if copy.is_write && self.write_refusal.is_some() {
            return self.obey_unwritten(now, teller, copy, outbox);
        }
        self.merge_state(now, teller, copy, outbox)
    }

    /// Merges a whole timer, or its tombstone, whatever the disk takes.
    pub(super) fn merge_state(
        &mut self,
        now: Now,
        teller: Teller,
        copy: &TimerCopy<'_>,
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        let found = self.find(copy.standing.id);
        let held = found.map(|slot| *self.records.get(slot));
        if let (Some(slot), Some(held)) = (found, &held)
            && self.is_moved_away(teller, copy, held)
        {
            // This node holds the timer until the listed nodes have it. It does a pop only if none
            // of the listed nodes does.
            let actives = copy.replicas.all_ranks();
            self.take_list(now.mono.tick_floor(), slot, copy.replicas, actives);
            return PeerResult::Held;
        }
        let key = match self.key_of(now, teller, copy, held.as_ref()) {
            Some(key) => key,
            None => {
                found.into_iter().for_each(|slot| self.tell_back(slot, teller, outbox));
                return PeerResult::Held;
            }
        };
        if key.version.is_impossible() {
            self.counters.refused += 1;
            return PeerResult::Refused(PeerRefusal::FutureVersion);
        }
        self.clock.observe(now.wall, key.version);
        let key = self.with_known_pops(key, copy, held.as_ref());
        if copy.is_write
            && let Some(held) = &held
            && let Some(lost) = self.lost_against(teller, key, copy, held)
        {
            return lost;
        }
        let told = key;
        let Some(key) = self.key_beside(now, teller, (key, copy), found, outbox) else {
            return PeerResult::Held;
        };
        let is_stale_taken = is_planted(Bug::StaleCopyResurrects) && !copy.is_write;
        if !supersedes(key, held.map(|held| held.key())) && !is_stale_taken {
            if let Some(slot) = found {
                self.merge_earlier(now, slot, teller, (key, copy), outbox);
            }
            return PeerResult::Held;
        }
        // The timer does not care whose clock is wrong: its writes are in order all the same.
        self.counters.future_versions += u64::from(self.clock.is_far(now.wall, key.version));
        if self.is_beyond_quota(copy, held.as_ref()) {
            return PeerResult::Refused(PeerRefusal::TokenFull);
        }
        let known = held.as_ref().zip(copy.body);
        let plan = known.and_then(|(it, body)| self.with_later_plan(it, key.version, body.content));
        held.iter().for_each(|held| self.note_pops_made(held));
        if self.take_copy(now, teller, key, copy, held.as_ref(), outbox).is_err() {
            return self.refuse_for_room(now, copy.standing.id, outbox);
        }
        match (found, held, plan) {
            (Some(slot), Some(held), Some(plan)) => self.keep_plan(slot, &held, &plan, outbox),
            (Some(slot), ..) => {
                self.tell_raised(slot, (told, key), outbox);
                self.tell_more(slot, (key, &copy.standing), teller, outbox);
            }
            (None, ..) => {}
        }
        if self.has_left_to_others(copy) { PeerResult::Otherwise } else { PeerResult::Held }
    }

    /// The key of a copy, above an end by a wrong clock if the copy was written later. `None`: the
    /// copy is such an end, and what is held stays.
    fn key_beside(
        &mut self,
        now: Now,
        teller: Teller,
        (key, copy): (StateKey, &TimerCopy<'_>),
        found: Option<Slot>,
        outbox: &mut Outbox,
    ) -> Option<StateKey> {
        match self.beside_far_ends(now, teller, (key, copy), found) {
            Beside::Taken(key) => Some(key),
            Beside::Raised(slot) => {
                self.tell_holders(slot, outbox);
                self.tell_back(slot, teller, outbox);
                None
            }
        }
    }

    /// Tells all others of what was taken, if it has another key now than it was told with.
    fn tell_raised(&mut self, slot: Slot, (told, key): (StateKey, StateKey), outbox: &mut Outbox) {
        if key != told && self.records.get(slot).is_live() {
            self.tell_holders(slot, outbox);
        }
    }

    /// Merges a copy that is no later than what is held.
    fn merge_earlier(
        &mut self,
        now: Now,
        slot: Slot,
        teller: Teller,
        (key, copy): (StateKey, &TimerCopy<'_>),
        outbox: &mut Outbox,
    ) {
        if key == self.records.get(slot).key() {
            self.unite_copies(now.mono.tick_floor(), slot, teller, copy, outbox);
        } else if !self.takes_earlier_pops(now, slot, key, outbox) {
            self.tell_back(slot, teller, outbox);
            self.tell_sites_back(slot, key.version, copy, outbox);
        }
    }

    /// What a client's write is answered that loses against the state held. `None`: it wins.
    fn lost_against(
        &self,
        teller: Teller,
        key: StateKey,
        copy: &TimerCopy<'_>,
        held: &Record,
    ) -> Option<PeerResult<'static>> {
        let has_other_name = |body: CopyBody<'_>| self.has_other_name(held, body.content);
        if held.is_live() && copy.body.is_some_and(has_other_name) {
            return Some(PeerResult::Refused(PeerRefusal::OtherName));
        }
        let factor = self.records.placement_of(held).factor;
        let is_other = held.is_live() && factor != copy.factor;
        // A write that came again over another connection may have popped since. It is still the
        // same write.
        let is_other = is_other || self.is_other_write(teller, key, copy, held);
        let is_lost = is_other || held.version > key.version;
        is_lost.then_some(PeerResult::Superseded { version: held.version.0, factor })
    }

    /// Whether a copy is a client's write of a timer that this node is to hold and that is one more
    /// than its owner may have here. All other copies are taken: the timer exists already.
    fn is_beyond_quota(&self, copy: &TimerCopy<'_>, held: Option<&Record>) -> bool {
        let is_meant = copy.is_write && copy.replicas.contains(self.peers.own_hash());
        let body = copy.body.filter(|_| is_meant);
        body.is_some_and(|body| self.records.room_of_owner(held, body.content).is_err())
    }

    /// Whether a live timer that this node was told of is not held: the list names other nodes. The
    /// teller must not take this node for a holder.
    fn has_left_to_others(&self, copy: &TimerCopy<'_>) -> bool {
        let own = self.peers.own_hash();
        let names_others = !copy.replicas.is_empty() && !copy.replicas.contains(own);
        let slot = || self.find(copy.standing.id);
        let is_held = || slot().is_some_and(|slot| self.records.get(slot).is_live());
        copy.body.is_some() && !copy.is_write && names_others && !is_held()
    }

    /// Ends the state that is held when there is no room for the state that replaces it. Otherwise
    /// the old state would pop beside the new one.
    ///
    /// - The tombstone has the version just below the new state, so that the new state is still
    ///   taken when there is room.
    /// - The tombstone leaves this node out of its list, so that other nodes answer reads.
    fn bury_below(&mut self, tick: Tick, outline: &Outline, held: &Record) {
        // No version is below 0. There the sequence tells the new state from the one before.
        let version = Version(outline.key.version.0.saturating_sub(1));
        let own = self.peers.own_hash();
        let others = outline.placement.replicas.as_slice().iter().filter(|node| **node != own);
        let others = others.copied().collect();
        let Placement { sites, factor, .. } = outline.placement;
        let placement = self.placement(others, sites, factor);
        let key = StateKey { version, sequence: held.sequence };
        let slot = self.find(outline.id);
        self.records.bury(tick, &Outline { key, placement, ..*outline }, slot);
    }

    /// Whether a write with the version held is another write. A node gives a version out twice if
    /// its clock was set back, or if it started again with a clock that is behind. The same write,
    /// come again over another connection, has the same start.
    fn is_other_write(
        &self,
        teller: Teller,
        key: StateKey,
        copy: &TimerCopy<'_>,
        held: &Record,
    ) -> bool {
        let start = teller.start(copy.start_ms);
        key.version == held.version
            && (copy.body.is_some() && start.0.abs_diff(held.start.0) >= OTHER_START_MS
                || copy.body.is_none() && held.is_live())
    }

    /// Holds the end of a timer. Where there is no room for a tombstone, other nodes may stand in
    /// for this node and hold the timer. The node that deletes the timer is told of the lack of
    /// room, and tells the stand-ins.
    fn bury_told(
        &mut self,
        tick: Tick,
        outline: &Outline,
        is_write: bool,
        is_held: bool,
    ) -> Result<(), Refusal> {
        let is_wanted = outline.placement.own.is_some();
        if !is_held
            && is_wanted
            && let Err(refusal) = self.room_for_copy(0, None)
        {
            return if is_write { Err(refusal) } else { Ok(()) };
        }
        if is_held || is_wanted && !is_planted(Bug::DropTombstonesAtRestart) {
            let slot = self.records.bury(tick, outline, self.records.find(outline.id));
            self.look_later_if_misplaced(tick, slot);
        }
        Ok(())
    }

    /// Whether this node keeps the end of a timer that another site tells of, whoever held the
    /// timer: the holders may die before they hear of it, and come back with the timer.
    fn keeps_ends_of_sites(&self) -> bool {
        self.room_for_copy(0, None).is_ok() && !is_planted(Bug::EndOfSiteOnlyPassedOn)
    }

    /// Whether this node keeps the end of a timer because it tells of a key. Stand-ins may have
    /// ended the timer while this node was away, which is asked first about the key.
    fn keeps_key(&self, ended: &Outline) -> bool {
        let Outline { id, repeat_for_ms, placement, .. } = ended;
        let belongs = || {
            let view = &self.peers.view;
            view.place(*id, placement.factor, view.new_nodes()).contains(self.peers.own_hash())
        };
        may_be_of_key(*id) && is_digest(*repeat_for_ms) && belongs() && self.records.room(0).is_ok()
    }

    /// Whether this node keeps a timer that another site tells of and that other nodes of this site
    /// are to hold, until those nodes have it: one of them may be frozen, or about to die. What has
    /// popped since it was written is told again at its next pop.
    fn keeps_copies_of_sites(&self, copy: &TimerCopy<'_>, held: Option<&Record>) -> bool {
        let bytes = copy.body.map_or(0, |body| body.content.len());
        copy.standing.sequence == 0
            && self.room_for_copy(bytes, held).is_ok()
            && !is_planted(Bug::CopyOfSiteOnlyPassedOn)
    }

    /// The nodes of this site that are to hold what another site tells of: the nodes that have
    /// room, if these suffice.
    fn list_for_site(&self, copy: &TimerCopy<'_>, held: Option<&Record>) -> Replicas {
        let (id, factor, own) = (copy.standing.id, copy.factor, self.peers.own());
        let bytes = copy.body.map_or(0, |body| body.content.len());
        let has_room = self.room_for_copy(bytes, held).is_ok();
        let full = self.peers.full(self.turns.at).without(own);
        let full = if has_room { full } else { full.with(own) };
        let all = self.plan_new(id, factor).placement.replicas;
        let roomy = self.peers.view.place(id, factor, self.peers.not_dead().minus(full));
        if roomy.len() == all.len() { roomy } else { all }
    }

    /// Replaces what is held by what a copy says.
    fn take_copy(
        &mut self,
        now: Now,
        teller: Teller,
        key: StateKey,
        copy: &TimerCopy<'_>,
        held: Option<&Record>,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let tick = now.mono.tick_floor();
        let is_from_site = copy.replicas.is_empty();
        let replicas = if is_from_site { self.list_for_site(copy, held) } else { copy.replicas };
        let sites = self.sites_of_copy(teller, copy, held);
        let mut placement = self.placement(replicas, sites, copy.factor);
        if !is_from_site {
            placement.actives = copy.standing.actives & replicas.all_ranks();
        }
        let former = held.map(|held| self.records.placement_of(held).replicas);
        let outline = Outline {
            id: copy.standing.id,
            key,
            start: start_of(copy, teller, held.filter(|held| is_same_write(held, key, copy))),
            interval_ms: copy.interval_ms,
            repeat_for_ms: copy.repeat_for_ms,
            placement,
        };
        let has_ended = key.sequence > 0 && outline.schedule().is_last(key.sequence);
        let outline = outline.ended(tick, copy.body.filter(|_| has_ended));
        let (is_own, is_lived) = (placement.own.is_some(), held.is_some_and(Record::is_live));
        let is_kept = is_own || is_lived || is_from_site && self.keeps_copies_of_sites(copy, held);
        match copy.body.filter(|_| !has_ended) {
            Some(body) if is_kept => {
                let room = self.room_for_copy(body.content.len(), held);
                if let (Err(_), Some(held)) = (room, held.filter(|held| held.is_live())) {
                    self.bury_below(tick, &outline, held);
                }
                if room.is_err() && is_from_site && outline.placement.replicas.len() > 1 {
                    // The other nodes of this site get the copy then.
                    self.refuse_for_room(now, outline.id, outbox);
                    self.pass_on(&outline, copy, former, outbox);
                    return Ok(());
                }
                room?;
                let authority = self.records.enter_authority(body.authority);
                let slot = held.and_then(|_| self.find(outline.id));
                let (records, peers) = (&mut self.records, &self.peers);
                let slot = records.hold(peers, tick, (&outline, slot), authority, body.content);
                self.note_callback(tick, held, slot);
                if is_own || !is_from_site {
                    self.look_later_if_misplaced(tick, slot);
                }
            }
            Some(_) => self.leave_to_others(outline.id, &outline.placement),
            None => {
                let is_kept = held.is_some()
                    || is_from_site && self.keeps_ends_of_sites()
                    || self.keeps_key(&outline);
                self.bury_told(tick, &outline, copy.is_write, is_kept)?;
            }
        }
        if is_from_site {
            self.pass_on(&outline, copy, former, outbox);
        } else if copy.is_write {
            // If this node had no room before, stand-ins held the timer in its place.
            let stood_in = || self.standing_in_for_own(outline.id, placement.factor);
            self.tell_former(&outline, former.or_else(stood_in), teller, outbox);
        }
        Ok(())
    }

    /// Tells the former holders of a timer that a write has given it to other nodes. The node that
    /// took the write need not hold the timer, and then does not know the former holders. One of
    /// them tells the others.
    fn tell_former(
        &mut self,
        outline: &Outline,
        former: Option<Replicas>,
        teller: Teller,
        outbox: &mut Outbox,
    ) {
        let Some(former) = former.filter(|former| *former != outline.placement.replicas) else {
            return;
        };
        let view = &self.peers.view;
        let told = view.peers_of(&outline.placement.replicas).with(self.peers.own());
        let told = teller.peer.map_or(told, |teller| told.with(teller));
        let untold = view.peers_of(&former).minus(told).minus(self.peers.dead());
        if let Some(slot) = self.find(outline.id).filter(|_| !untold.is_empty()) {
            self.tell(slot, untold, true, outbox);
        }
    }

    /// Passes a copy from another site on to the replicas of this site. If this node is none of
    /// them and keeps the timer, it forgets the timer when all of them have it.
    fn pass_on(
        &mut self,
        outline: &Outline,
        copy: &TimerCopy<'_>,
        former: Option<Replicas>,
        outbox: &mut Outbox,
    ) {
        let (key, placement) = (outline.key, &outline.placement);
        let view = &self.peers.view;
        let mut to = view.peers_of(&placement.replicas);
        if let Some(former) = former {
            to = to.union(view.peers_of(&former));
        }
        let passed = TimerCopy {
            standing: Standing {
                version: key.version.0,
                sequence: key.sequence,
                actives: placement.actives,
                ..copy.standing
            },
            replicas: placement.replicas,
            sites: placement.sites,
            start_ms: outline.start.0,
            ..*copy
        };
        let bytes = outbox.encode(&PeerMessage::Copy(TimerCopy { is_write: false, ..passed }));
        let holders = view.peers_of(&placement.replicas);
        let round = self.begin_to_pass_on(outline, holders);
        for peer in to.without(self.peers.own()).iter() {
            match round.filter(|_| holders.contains(peer)) {
                Some(round) => self.offer_in(round, peer, outline.id, bytes.clone(), outbox),
                None => outbox.tell(peer, Purpose::News(outline.id), bytes.clone()),
            }
        }
    }

    /// Unites the masks of two copies at one key: a rank acts if it acts in either mask.
    fn unite(&mut self, slot: Slot, actives: u16) {
        let mut placement = *self.records.placement_of(self.records.get(slot));
        let united = placement.actives | actives & placement.replicas.all_ranks();
        if united != placement.actives && !is_planted(Bug::ActivesNotUnited) {
            placement.actives = united;
            placement.confirmed &= !united;
            self.place(slot, &placement);
        }
    }

    /// Merges a copy at the key that is held. Of two lists the preferred list is right. If that is
    /// the one held, the teller hears of it: it would not tell this node of its pops.
    fn unite_copies(
        &mut self,
        tick: Tick,
        slot: Slot,
        teller: Teller,
        copy: &TimerCopy<'_>,
        outbox: &mut Outbox,
    ) {
        let held = *self.records.get(slot);
        let former = self.records.placement_of(&held).replicas;
        if copy.replicas.is_empty() || !held.is_live() {
            return;
        }
        if former == copy.replicas {
            return self.unite(slot, copy.standing.actives);
        }
        let acting = self.peers_at(&copy.replicas, copy.standing.actives);
        let lists = self.preferred_lists(&held, acting);
        let place = |list| lists.iter().position(|preferred| *preferred == list).unwrap_or(2);
        if place(copy.replicas) < place(former) {
            self.take_list(tick, slot, copy.replicas, copy.standing.actives);
        } else if place(former) < place(copy.replicas) && !is_planted(Bug::PreferredListNotTold) {
            self.tell_back(slot, teller, outbox);
        }
    }

    /// Takes over a preferred list that a peer tells of at the key held. Another node has made sure
    /// that all live nodes of that list hold the timer.
    fn take_list(&mut self, tick: Tick, slot: Slot, list: Replicas, actives: u16) {
        if self.is_under_way(&list, actives) {
            return;
        }
        let former = *self.records.placement_of(self.records.get(slot));
        let mut placement = self.placement(list, former.sites, former.factor);
        // Ranks of the list alone: otherwise the move would be under way.
        placement.actives = actives;
        self.place(slot, &placement);
        self.look_later_if_misplaced(tick, slot);
    }

    /// The lists that two copies at one key agree on, in the order of preference: first the list of
    /// live nodes, then the list of right nodes. While no right node is dead, the two are the same.
    /// If a right node preferred its own list while another right node is dead, this node and the
    /// stand-in of the dead one would each pop for itself. A node of `acting` holds the timer, by
    /// what the peer says: it has had room, whatever it said to this node before.
    fn preferred_lists(&self, held: &Record, acting: PeerSet) -> [Replicas; 2] {
        let factor = self.records.placement_of(held).factor;
        let acting = if is_planted(Bug::FullNodeStaysFull) { PeerSet::EMPTY } else { acting };
        let full = self.full().minus(acting.without(self.peers.own()));
        let able = self.peers.not_dead().minus(full);
        let live = self.peers.view.place(held.id, factor, able);
        [live, self.configured(held)]
    }

    /// Takes a client's write that the disk cannot take: in memory, if it is about a timer that is
    /// held. Says in any case that this node has no copy, unless the write is lost against what is
    /// held.
    pub(super) fn obey_unwritten(
        &mut self,
        now: Now,
        teller: Teller,
        copy: &TimerCopy<'_>,
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        let id = copy.standing.id;
        let is_held = self.find(id).is_some_and(|slot| self.records.get(slot).is_live());
        if is_held && !is_planted(Bug::FullDiskDisobeys) {
            let copy = self.with_stand_ins(copy);
            let result = self.merge_state(now, teller, &copy, outbox);
            if !matches!(result, PeerResult::Held | PeerResult::Otherwise) {
                return result;
            }
        }
        self.refuse_for_room(now, id, outbox)
    }

    /// A write with those on its list that will hold it: the node that made it will find the same
    /// ones. Where no others can stand in, this node stays on the list, without a copy on its disk.
    pub(super) fn with_stand_ins<'a>(&self, copy: &TimerCopy<'a>) -> TimerCopy<'a> {
        let is_meant = copy.body.is_some() && copy.replicas.contains(self.peers.own_hash());
        let others = self.peers.not_dead().minus(self.full());
        let list = self.peers.view.place(copy.standing.id, copy.factor, others);
        if !is_meant || list.len() < copy.replicas.len() {
            return *copy;
        }
        let (actives, list_digest) = (list.all_ranks(), list.digest());
        let standing = Standing { actives, list_digest, ..copy.standing };
        TimerCopy { replicas: list, standing, ..*copy }
    }

    /// Tells the other sites of a timer what one of them does not know, if that is why it tells of
    /// an earlier write. It was told before, and lost that with a disk or a process.
    pub(super) fn tell_sites_back(
        &self,
        slot: Slot,
        told: Version,
        copy: &TimerCopy<'_>,
        outbox: &mut Outbox,
    ) {
        let record = self.records.get(slot);
        let is_of_site = copy.replicas.is_empty();
        if !is_of_site || told >= record.version || self.is_earlier_pop(record, copy) {
            return;
        }
        if is_planted(Bug::SiteBehindNotTold) {
            return;
        }
        let bytes = outbox.encode(&PeerMessage::Copy(self.copy_of(record, &mut Vec::new())));
        self.tell_sites(self.records.placement_of(record), bytes, record.id, outbox);
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "merge_nonsense_tests.rs"]
mod nonsense_tests;
