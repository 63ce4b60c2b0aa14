//! Parts of lists of timers: `GET /timers`. A shard answers each question at once, after a bounded
//! amount of work, with the timers found so far and the place up to which none is missing. Nothing
//! goes on when nobody asks.
//!
//! - A part has timers in the order of their places, which never change (`wire::timer_list`). So
//!   pages of a list neither repeat nor leave out a timer that is there all the time.
//! - Every holder of a timer tells of it, whichever rank acts; whoever puts the page together
//!   drops doubles. So a timer that moves between two pages is neither lost nor seen twice.
//! - What only the first rank knows, the state, is asked of the first rank alone.

// Reads the wall clock: told 1.

use crate::base::ids::Slot;
use crate::base::time::Now;
use crate::timer::definition::spread_ms;
use crate::timer::naming::may_be_of_name;
use crate::wire::callback_uri::host_and_port;
use crate::wire::jobs::JobsAsk;
use crate::wire::peer_message::PeerMessageError;
use crate::wire::timer_list::{
    COUNT_KIND, Filter, JOBS_KIND, ListAsk, ListedCopy, ListedState, PartHead, Place, STATES_ALL,
    begin_part, end_part, write_listed,
};

use super::Shard;
use super::parts::list::Entry;
use super::records::{Record, Records, State};

/// Looks for one part: some 100 us.
const LOOKS_PER_PART: u32 = 10_000;
/// What a look costs at the content of a timer, whose bytes lie elsewhere.
const LOOKS_PER_CONTENT: u32 = 8;
/// What it costs to find one timer of a window and to write it.
const LOOKS_PER_TIMER: u32 = 30;
/// Timers of a window that are read into the caches together: their records and contents lie
/// anywhere, and a core waits for many reads of memory hardly longer than for one.
const WARMED: usize = 16;
/// Bytes of a part above which it ends. The next part goes on there.
const PART_BYTES_MAX: usize = 64 << 10;

impl Shard {
    /// Answers a question for timers of a list, for numbers or for jobs. `Err`: it is none of them.
    pub(super) fn listed_part(
        &mut self,
        now: Now,
        ask: &[u8],
    ) -> Result<Vec<u8>, PeerMessageError> {
        match ask.first() {
            Some(&COUNT_KIND) => self.count_part(now, ask),
            Some(&JOBS_KIND) => self.jobs_part(ask),
            _ => self.list_part(now, ask),
        }
    }

    fn jobs_part(&mut self, ask: &[u8]) -> Result<Vec<u8>, PeerMessageError> {
        let ask = JobsAsk::decode(ask)?;
        let mut part = Vec::new();
        self.jobs.part(self.config.shards.get(), &ask).encode(&mut part);
        Ok(part)
    }

    fn list_part(&mut self, now: Now, ask: &[u8]) -> Result<Vec<u8>, PeerMessageError> {
        let ask = ListAsk::decode(ask)?;
        let tick = now.mono.tick_floor();
        self.take_arrivals();
        let all = self.lists.looks(tick, LOOKS_PER_PART);
        let mut looks = all;
        let mut part = Vec::new();
        begin_part(&mut part);
        let (until, is_done) = self.fill_part(now, &ask, &mut looks, &mut part);
        self.lists.spend(all - looks);
        self.counters.list_looks += u64::from(all - looks);
        let is_starved = self.lists.looks(tick, 1) == 0;
        let (shards, departures) = (self.config.shards.get(), self.records.departures());
        let head = PartHead { is_done, is_starved, shards, departures, until };
        end_part(&mut part, &head);
        self.records.arrivals_mut().watch(self.lists.has_windows());
        Ok(part)
    }

    /// Takes timers into windows that have come since, from clients or from other nodes. A timer
    /// that has moved here may be one that no other node tells of any more.
    fn take_arrivals(&mut self) {
        match self.records.arrivals_mut().take() {
            Ok(slots) => {
                for slot in slots {
                    // It may be gone already, or another.
                    if self.records.contains(slot) {
                        self.lists.arrived(slot, Place::of(self.records.get(slot).id));
                    }
                }
            }
            Err(()) => self.lists.forget(),
        }
    }

    /// Appends timers of a list to a part, as far as the looks allow. Returns the place up to which
    /// no timer is missing, and whether no timer follows.
    fn fill_part(
        &mut self,
        now: Now,
        ask: &ListAsk<'_>,
        looks: &mut u32,
        part: &mut Vec<u8>,
    ) -> (Place, bool) {
        let mut at = ask.from;
        let mut left = ask.limit;
        let is_full = |looks: u32, left: u16, part: &[u8]| {
            looks == 0 || left == 0 || part.len() > PART_BYTES_MAX
        };
        let mut entries = Vec::with_capacity(WARMED);
        while !is_full(*looks, left, part) {
            let Some(until) = self.next_listed(now, ask, at, (looks, &mut entries)) else {
                return (at, false);
            };
            if entries.is_empty() {
                // The window is used up. The next one begins behind it.
                let Some(until) = until else { return (at, true) };
                at = until;
                continue;
            }
            self.records.warm(entries.iter().map(|(_, slot)| *slot));
            for (place, slot) in entries.drain(..) {
                if is_full(*looks, left, part) {
                    return (at, false);
                }
                *looks = looks.saturating_sub(LOOKS_PER_TIMER);
                if self.write_part(now, &ask.filter, (place, slot), part) {
                    left -= 1;
                    self.counters.listed += 1;
                }
                match place.next() {
                    Some(next) => at = next,
                    None => return (place, true),
                }
            }
        }
        (at, false)
    }

    /// Finds the next places of a list in its window, and goes on with the window if it is not
    /// complete. Returns the place at which the window ends, if it does not have all. `None`: the
    /// looks are used up, or there is no room for a window.
    fn next_listed(
        &mut self,
        now: Now,
        ask: &ListAsk<'_>,
        at: Place,
        (looks, entries): (&mut u32, &mut Vec<Entry>),
    ) -> Option<Option<Place>> {
        let (tick, records) = (now.mono.tick_floor(), self.records.slots());
        let Some(window) = self.lists.window(tick, ask.walk, at, records) else {
            // Others have all windows. The question comes again in the next tick.
            self.lists.spend(u32::MAX);
            return None;
        };
        if let Some(next) = window.next {
            let mut slots = self.records.occupied_from(next);
            loop {
                if *looks == 0 {
                    return None;
                }
                *looks -= 1;
                let Some(slot) = slots.next() else {
                    window.next = None;
                    break;
                };
                window.next = Some(Slot(slot.0 + 1));
                let record = self.records.get(slot);
                let place = Place::of(record.id);
                if window.covers(place) && is_listed(&self.records, now, record, &ask.filter, looks)
                {
                    window.insert(place, slot);
                }
            }
        }
        let spent = window.first_from(at, entries, WARMED);
        *looks = looks.saturating_sub(spent);
        Some(window.until)
    }

    /// Appends the timer of a place to a part, if it is there and in the list still.
    fn write_part(
        &self,
        now: Now,
        filter: &Filter<'_>,
        (place, slot): Entry,
        part: &mut Vec<u8>,
    ) -> bool {
        let id = place.id();
        let is_there = self.records.contains(slot) && self.records.get(slot).id == id;
        // A timer that was forgotten may have come back in another slot.
        let Some(slot) = Some(slot).filter(|_| is_there).or_else(|| self.find(id)) else {
            return false;
        };
        let record = self.records.get(slot);
        if !is_listed(&self.records, now, record, filter, &mut 0) {
            return false;
        }
        let is_first = self.records.is_first_of_site(&self.peers, record);
        let Some(state) = listed_state(record.state) else { return false };
        // Every holder of a dead letter knows that it is one.
        if filter.states != STATES_ALL && !is_first && state != ListedState::Parked {
            return false;
        }
        let tick = now.mono.tick_floor();
        let mut room = Vec::new();
        let mut copy = self.copy_of(record, &mut room);
        let spread_ms = copy.body.map_or(0, |body| spread_ms(record.id, body.content));
        copy.start_ms = tick + spread_ms - record.start;
        let due = self.records.told_due(record);
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let due_in_ms = signed(due - tick) - signed(tick - due);
        write_listed(&ListedCopy { state, is_first, due_in_ms, copy }, part);
        true
    }
}

fn listed_state(state: State) -> Option<ListedState> {
    match state {
        State::Armed => Some(ListedState::Armed),
        State::Ready => Some(ListedState::Ready),
        State::InFlight => Some(ListedState::InFlight),
        State::BackingOff => Some(ListedState::BackingOff),
        State::HandedOver => Some(ListedState::HandedOver),
        State::Parked => Some(ListedState::Parked),
        State::Paused => Some(ListedState::Paused),
        State::Tombstone => None,
    }
}

/// Whether a record is in a list by what it is.
fn is_listed(
    records: &Records,
    now: Now,
    record: &Record,
    filter: &Filter<'_>,
    looks: &mut u32,
) -> bool {
    let Some(state) = listed_state(record.state) else { return false };
    if filter.states & state.bit() == 0 {
        return false;
    }
    if filter.due_after.is_some() || filter.due_before.is_some() {
        let tick = now.mono.tick_floor();
        let due = records.told_due(record);
        // By this node's wall clock; what is overdue lies in its past.
        let due = now.wall.0.saturating_add(due - tick).saturating_sub(tick - due);
        if filter.due_after.is_some_and(|after| due < after.0)
            || filter.due_before.is_some_and(|before| due >= before.0)
        {
            return false;
        }
    }
    if let Some(host) = filter.host
        && !is_at(host_and_port(records.authority_of(record)), host)
    {
        return false;
    }
    if filter.name_prefix.is_some() && !may_be_of_name(record.id) {
        return false;
    }
    if filter.tag.is_none() && filter.name_prefix.is_none() && filter.reason.is_none() {
        return true;
    }
    *looks = looks.saturating_sub(LOOKS_PER_CONTENT);
    let content = records.content_of(record);
    let has_tag = |tag: &str| {
        content.is_counted() && content.tags().as_slice().iter().any(|held| held.kind == tag)
    };
    let is_named =
        |prefix: &str| content.attributes().name.is_some_and(|name| name.starts_with(prefix));
    let is_for = |reason| content.attributes().letter.is_some_and(|letter| letter.reason == reason);
    filter.tag.is_none_or(has_tag)
        && filter.name_prefix.is_none_or(is_named)
        && filter.reason.is_none_or(is_for)
}

/// Whether an authority is that of a host, which is named with or without a port.
fn is_at(authority: &str, host: &str) -> bool {
    if authority.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some((name, port)) = authority.rsplit_once(':') else { return false };
    port.bytes().all(|byte| byte.is_ascii_digit()) && name.eq_ignore_ascii_case(host)
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
