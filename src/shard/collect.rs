//! Pages of timers for nodes that ask which ones they are to hold (docs/compat/timer-service.md
//! §5.2), and the timers that such nodes have taken over.
//!
//! A page is in the order of the next pops, but the wheel knows no order among a million timers. So
//! a shard goes through its records in portions and keeps the earliest of the timers that the node
//! is to hold: the *window* of the node. Pages are taken from the window. The next window begins
//! where it ends. Timers of one millisecond are in the order of their ids, so that a page may end
//! among a million of them and the next page goes on there.
//!
//! A page names timers that are where they belong, too: a node that comes back empty asks for them.
//! The work never blocks, and answers each ask once.

// May panic: expectations 1.
// Why it does not: found 1.

use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::base::ids::{NodeHash, Slot};
use crate::base::time::{Now, Tick};
use crate::wire::peer_message::{PeerMessage, Standing, TimerCopy};
use crate::wire::resync_json::Reference;

use super::Shard;
use super::effects::{
    Answer, CollectedTimer, Internal, Outbox, PageAsk, PagePart, PagePlace, Refusal, Requester,
};
use super::parts::collect::{ASKS_MAX, Asked, TAKEN_MAX, Taken, Window};
use super::records::State;

/// Records looked at per tick, some 150 ns each.
const LOOKS_PER_TICK: u32 = 1_024;
/// What a timer on a page costs, in looks.
const LOOKS_PER_TIMER: u32 = 8;
/// Bytes of timers above which a part of a page ends. The asking node asks for the rest.
const PART_BYTES_MAX: usize = 1 << 20;
impl Shard {
    /// Takes a node's ask for a page. The answer comes at once or in a later tick.
    pub(super) fn ask_for_page(
        &mut self,
        now: Now,
        from: Requester,
        ask: PageAsk,
        outbox: &mut Outbox,
    ) -> Result<Option<Answer>, Refusal> {
        if self.collect.asked.len() >= ASKS_MAX {
            return Err(Refusal::CoreBusy);
        }
        if ask.is_fresh {
            self.collect.windows.retain(|window| window.node != ask.node);
        }
        let part = PagePart::default();
        self.collect.asked.push_back(Asked { from, ask, at: None, part, part_bytes: 0 });
        self.collect(now, outbox);
        Ok(None)
    }

    /// Does a portion of the work.
    pub(super) fn collect(&mut self, now: Now, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        let mut looks = LOOKS_PER_TICK;
        while looks > 0
            && let Some(mut asked) = self.collect.asked.pop_front()
        {
            if self.fill(tick, &mut asked, &mut looks) {
                self.counters.collected += asked.part.timers.len() as u64;
                let answer = Answer::Internal(Box::new(Internal::Part(asked.part)));
                outbox.reply(asked.from, answer);
            } else {
                self.collect.asked.push_front(asked);
            }
        }
        if self.collect.asked.is_empty() {
            self.collect.end_windows(tick);
        }
    }

    /// Goes on with a part, as far as the looks allow. Returns whether the part is complete.
    fn fill(&mut self, tick: Tick, asked: &mut Asked, looks: &mut u32) -> bool {
        while *looks > 0 {
            let ask = &asked.ask;
            let from = asked.at.unwrap_or(ask.from);
            let window = self.collect.window(tick, ask.node, from);
            if let Some(next) = window.next {
                let node = ask.node;
                self.widen(node, next, looks);
                continue;
            }
            let begin = asked.at.map_or(Included(ask.from), Excluded);
            let following = window.timers.range((begin, Unbounded)).next().copied();
            let until = window.until;
            let is_long = asked.part_bytes > PART_BYTES_MAX;
            if is_long || asked.part.timers.len() >= ask.count as usize {
                asked.part.has_more = following.is_some() || until.is_some();
                return true;
            }
            match following {
                Some(at) => {
                    *looks = looks.saturating_sub(LOOKS_PER_TIMER);
                    asked.at = Some(at);
                    let collected = self.collected(at, asked.ask.node);
                    asked.part_bytes += collected.as_ref().map_or(0, |timer| timer.copy.len());
                    asked.part.timers.extend(collected);
                }
                None => {
                    let Some(until) = until else { return true };
                    asked.at = None;
                    asked.ask.from = until;
                }
            }
        }
        false
    }

    /// Goes on with the walk through the records for a window.
    fn widen(&mut self, node: NodeHash, next: Slot, looks: &mut u32) {
        let Self { records, collect, peers, .. } = self;
        let is_of = |window: &&mut Window| window.node == node;
        let window = collect.windows.iter_mut().find(is_of).expect("asked for a moment ago");
        let view = &peers.view;
        let members = view.new_nodes();
        let mut slots = records.occupied_from(next);
        while *looks > 0 {
            *looks -= 1;
            let Some(slot) = slots.next() else {
                window.next = None;
                return;
            };
            window.next = Some(Slot(slot.0 + 1));
            let record = records.get(slot);
            let due = record.due();
            let factor = records.placement_of(record).factor;
            let place = (due, record.id);
            if record.is_live()
                && window.covers(place)
                && view.place(record.id, factor, members).contains(node)
            {
                window.insert(place);
            }
        }
    }

    /// A timer of a window as it is now, if the node still is to hold it.
    fn collected(&self, place: PagePlace, node: NodeHash) -> Option<CollectedTimer> {
        let record = *self.records.get(self.find(place.1)?);
        let list = self.configured(&record);
        if !record.is_live() || !list.contains(node) {
            return None;
        }
        let former = self.records.placement_of(&record).replicas;
        let mut room = Vec::new();
        let copy = self.copy_of(&record, &mut room);
        let (actives, list_digest) = (list.all_ranks(), list.digest());
        let standing = Standing { actives, list_digest, ..copy.standing };
        let moved = TimerCopy { standing, replicas: list, ..copy };
        let mut bytes = Vec::new();
        PeerMessage::Copy(moved).encode(&mut bytes);
        Some(CollectedTimer { place, former, copy: bytes.into() })
    }

    /// Notes that nodes have taken timers over. A reference stands for a node and for all nodes of
    /// higher rank (docs/compat/timer-service.md §9.3). A timer that this node is not to hold any
    /// more is forgotten when all nodes that are to hold it have it. Tombstones stay.
    pub(super) fn forget_references(&mut self, now: Now, references: &[Reference]) -> Answer {
        for reference in references {
            self.forget_reference(now.mono.tick_floor(), reference);
        }
        Answer::Internal(Box::new(Internal::Accepted))
    }

    fn forget_reference(&mut self, tick: Tick, reference: &Reference) {
        let Some(slot) = self.find(reference.id) else { return };
        let record = *self.records.get(slot);
        let list = self.configured(&record);
        if !record.is_live() || list.is_empty() || list.contains(self.peers.own_hash()) {
            return;
        }
        let ranks = list.all_ranks() & (u32::MAX << reference.rank) as u16;
        let (key, list_digest) = (record.key(), list.digest());
        let taken = self.collect.taken.get(&record.id.0).copied();
        let former = taken.filter(|taken| taken.key == key && taken.list_digest == list_digest);
        let ranks = ranks | former.map_or(0, |taken| taken.ranks);
        // A timer cannot go while its callback runs. This node itself moves it after that.
        if ranks == list.all_ranks() && record.state != State::InFlight {
            self.collect.taken.remove(&record.id.0);
            self.counters.released += 1;
            self.records.forget(tick, slot);
        } else if taken.is_some() || self.collect.taken.len() < TAKEN_MAX {
            self.collect.taken.insert(record.id.0, Taken { key, list_digest, ranks });
        }
    }
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
