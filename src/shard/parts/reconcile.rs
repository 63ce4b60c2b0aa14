//! The background work of a shard: its walk, the timers on their way to another list, and those
//! that it is to look at again.

use std::collections::VecDeque;

use ahash::{AHashMap, AHashSet};

use crate::base::ids::{PeerIndex, PeerSet, Slot, TimerId};
use crate::base::time::Tick;
use crate::shard::parts::pace::Pace;
use crate::shard::records::Placement;
use crate::timer::version::StateKey;

/// Offers without a result. All of them may reach a peer in one of its turns, so they bound how
/// long that turn takes. Over a line with a round trip of 40 ms they still allow the least pace,
/// 12 offers a millisecond.
pub const OFFERS_MAX: u32 = 512;
/// Timers being moved at a time. The new holder stores each of them, which takes longer than an
/// answer to an offer.
pub const MOVES_MAX: usize = 128;
/// The round of an offer that is a part of no move.
pub const NO_MOVE: u8 = 0;
/// Pause before a timer that could not be moved is looked at again.
pub const LOOK_AGAIN_MS: u64 = 1_000;

/// One walk through all records.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The records from this slot on have not been seen.
    pub next: Slot,
    /// The peers that the walk is for.
    pub offer_to: PeerSet,
    /// Records seen.
    pub seen: u64,
}

/// A timer on its way to another list.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The state with which the move began.
    pub key: StateKey,
    /// The placement that the timer gets.
    pub placement: Placement,
    /// Peers that have not confirmed that they hold the timer.
    pub waiting: PeerSet,
    /// Tells the offers of this move from those of earlier ones.
    pub round: u8,
    /// Whether another site told this node of the timer, which only passes it on.
    pub is_passed_on: bool,
}

/// The background work of a shard.
#[derive(Debug, Default)]
pub struct Reconcile {
    pub walk: Option<Walk>,
    /// The tick of the last portion.
    portion_at: Tick,
    /// How much of the work is done per tick.
    pub pace: Pace,
    /// The next walk, asked for during another one.
    again: Option<PeerSet>,
    /// Peers of walks that have left timers out, because this core has not heard of them yet.
    postponed: Option<PeerSet>,
    /// By the ids of their timers.
    pub moves: AHashMap<u64, Move>,
    /// Timers that are to be looked at, each with its tick.
    later: VecDeque<(Tick, TimerId)>,
    /// The ids in `later`: each stands there once.
    pub queued: AHashSet<u64>,
    /// Timers of which nodes on their lists have no copy, for lack of room there. All of them are
    /// in `later`, or move.
    pub lacking: AHashMap<u64, PeerSet>,
    /// Timers of which all nodes on their next list have a copy and which take that list over with
    /// their next pop. Noted only while nodes have had no room lately. All of them are in `later`.
    pub ready: AHashSet<u64>,
    /// Offers without a result.
    pub offers: u32,
    /// Whether a timer that was given away is kept until its new holders have had it for a while:
    /// they answer before their disks have it.
    pub keeps_given: bool,
    /// Timers that were given away and are kept, each until its tick. All of them are in `later`,
    /// or move.
    given: AHashMap<u64, Tick>,
    /// Timers of which a callback of this node ran as a client did something with them, each with
    /// the tick by which the callback has ended.
    called: AHashMap<u64, Tick>,
    /// The round of the last move.
    round: u8,
}

impl Reconcile {
    /// Asks for a walk that is for the peers of `offer_to`. During another walk it comes next.
    pub fn start_walk(&mut self, offer_to: PeerSet) {
        match &mut self.walk {
            None => self.walk = Some(Walk { next: Slot(0), offer_to, seen: 0 }),
            Some(_) => {
                let again = self.again.get_or_insert(PeerSet::EMPTY);
                *again = again.union(offer_to);
            }
        }
    }

    /// Ends the walk, and starts the next one if it was asked for.
    pub fn end_walk(&mut self) {
        self.walk = None;
        if let Some(offer_to) = self.again.take() {
            self.start_walk(offer_to);
        }
    }

    /// Notes that a walk for these peers has left a timer out.
    pub fn postpone(&mut self, offer_to: PeerSet) {
        let postponed = self.postponed.get_or_insert(PeerSet::EMPTY);
        *postponed = postponed.union(offer_to);
    }

    /// Asks for a walk in place of those that have left timers out.
    pub fn make_up(&mut self) {
        if let Some(offer_to) = self.postponed.take() {
            self.start_walk(offer_to);
        }
    }

    /// Begins the portion of a tick; `false`: the tick has had its portion.
    pub fn begin_portion(&mut self, tick: Tick) -> bool {
        let is_new = tick > self.portion_at;
        if is_new {
            self.portion_at = tick;
        }
        is_new
    }

    /// The round of the next move. No more than [`MOVES_MAX`] timers move at a time, so no two
    /// moves of a timer that are near to each other have one round.
    pub fn next_round(&mut self) -> u8 {
        self.round = self.round.checked_add(1).unwrap_or(NO_MOVE + 1);
        self.round
    }

    /// Whether as many offers wait, or as many timers move, as may at a time.
    pub fn is_full(&self) -> bool {
        self.offers >= OFFERS_MAX || self.moves.len() >= MOVES_MAX
    }

    /// Files a timer to be looked at in a while.
    pub fn look_again(&mut self, tick: Tick, id: TimerId) {
        if self.queued.insert(id.0) {
            self.later.push_back((tick + LOOK_AGAIN_MS, id));
        }
    }

    /// Takes out the next timer that is to be looked at by now.
    pub fn take_later(&mut self, tick: Tick) -> Option<TimerId> {
        let &(at, id) = self.later.front()?;
        if at > tick {
            return None;
        }
        self.later.pop_front();
        self.queued.remove(&id.0);
        Some(id)
    }

    /// Notes that a timer of another list is held by all nodes of that list. Returns whether it may
    /// be forgotten now. Otherwise it is looked at again in a while.
    pub fn may_forget(&mut self, tick: Tick, id: TimerId) -> bool {
        let until = tick + if self.keeps_given { LOOK_AGAIN_MS } else { 0 };
        let may_forget = *self.given.entry(id.0).or_insert(until) <= tick;
        if may_forget {
            self.given.remove(&id.0);
        } else {
            self.look_again(tick, id);
        }
        may_forget
    }

    /// Notes that a callback of a timer runs, until a tick at most, which its record does not show.
    pub fn note_called(&mut self, id: TimerId, until: Tick) {
        self.called.insert(id.0, until);
    }

    /// Whether such a callback may still run.
    pub fn is_called(&self, tick: Tick, id: TimerId) -> bool {
        self.called.get(&id.0).is_some_and(|until| *until > tick)
    }

    /// Notes that a node of its list did not have a timer.
    pub fn is_wanted(&mut self, id: TimerId) {
        self.given.remove(&id.0);
    }

    /// Gives up all moves that wait for a peer, and files their timers to be looked at in a while.
    pub fn abandon_moves(&mut self, tick: Tick, peer: PeerIndex) {
        let waits = |moving: &Move| moving.waiting.contains(peer);
        let moves = self.moves.iter();
        let mut ids: Vec<u64> =
            moves.filter(|(_, moving)| waits(moving)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in ids {
            self.moves.remove(&id);
            self.look_again(tick, TimerId(id));
        }
    }

    /// Timers that are known to be in the wrong place.
    pub fn misplaced(&self) -> u64 {
        let moves = self.moves.values().filter(|moving| !moving.is_passed_on);
        (self.later.len() + moves.count()) as u64
    }

    /// Forgets the lack of copies of timers that have ended or have been moved since, and callbacks
    /// that have ended.
    pub fn forget_settled(&mut self, tick: Tick) {
        let Self { lacking, ready, given, called, queued, moves, .. } = self;
        called.retain(|_, until| *until > tick);
        given.retain(|id, _| queued.contains(id) || moves.contains_key(id));
        ready.retain(|id| queued.contains(id) || moves.contains_key(id));
        lacking.retain(|id, _| queued.contains(id) || moves.contains_key(id));
    }

    /// Timers that lack a copy.
    pub fn lacking(&self) -> u64 {
        self.lacking.len() as u64
    }

    /// The nodes on the list of a timer that had no room for it.
    pub fn lacking_of(&self, id: TimerId) -> PeerSet {
        self.lacking.get(&id.0).copied().unwrap_or(PeerSet::EMPTY)
    }

    /// Records that the walk has seen; `None`: there is no walk.
    pub fn seen(&self) -> Option<u64> {
        self.walk.map(|walk| walk.seen)
    }

    /// Records that walks for a peer have not seen yet, of so many that are held. While offers have
    /// no result the last walk is not over.
    pub fn left_for(&self, peer: PeerIndex, held: u64) -> u64 {
        let in_walk = self.walk.filter(|walk| walk.offer_to.contains(peer));
        let in_walk = in_walk.map_or(0, |walk| held.saturating_sub(walk.seen).max(1));
        let again = self.again.is_some_and(|peers| peers.contains(peer));
        let is_postponed = self.postponed.is_some_and(|peers| peers.contains(peer));
        in_walk + if again { held.max(1) } else { is_postponed.into() }
    }

    /// Offers without a result.
    pub fn offers_waiting(&self) -> u64 {
        u64::from(self.offers)
    }

    /// Whether a peer is still to be shown what it may have missed.
    pub fn owes(&self) -> bool {
        let walk = self.walk.map(|walk| walk.offer_to);
        let mut shown = [walk, self.again, self.postponed].into_iter().flatten();
        self.offers > 0 || shown.any(|peers| !peers.is_empty())
    }

    /// When there is work again, given that nothing arrives.
    pub fn next_wake(&self) -> Option<Tick> {
        if self.is_full() {
            return None;
        }
        let next = self.portion_at + 1;
        if self.walk.is_some() {
            return Some(next);
        }
        let later = self.later.front().map(|(at, _)| next.max(*at));
        let made_up = self.postponed.map(|_| self.portion_at + LOOK_AGAIN_MS);
        later.into_iter().chain(made_up).min()
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
