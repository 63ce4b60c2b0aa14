//! The numbers of `GET /timers/count`. States, tags and hosts are counted as timers change, so that
//! their numbers are there at once. When timers are due changes with each moment, so a walk over
//! all records counts that, in portions, as long as somebody asks.
//!
//! A timer that several nodes hold counts at the first of them that acts and lives.

use crate::base::ids::Slot;
use crate::base::time::Now;
use crate::wire::peer_message::PeerMessageError;
use crate::wire::timer_count::{CountAsk, CountPart, Numbers};

use super::Shard;
use super::records::{Record, State};

/// Looks for one answer: some 100 us.
const LOOKS_PER_PART: u32 = 10_000;

impl Shard {
    /// Answers a question for numbers. `Err`: the question is none.
    pub(super) fn count_part(&mut self, now: Now, ask: &[u8]) -> Result<Vec<u8>, PeerMessageError> {
        let ask = CountAsk::decode(ask)?;
        let tick = now.mono.tick_floor();
        let all = self.lists.looks(tick, LOOKS_PER_PART);
        let mut looks = all;
        let Self { countings, records, .. } = self;
        let counting = countings.of(tick, ask.walk, ask.has_spans);
        if let Some(next) = counting.next_host {
            let mut hosts = records.hosts().tallies_from(next);
            while looks > 0 && counting.next_host.is_some() {
                looks -= 1;
                let host = hosts.next();
                counting.next_host = host.map(|(host, _)| host.number() + 1);
                if let Some((host, timers)) = host.filter(|(_, timers)| *timers > 0) {
                    counting.count_host(host, timers);
                }
            }
        }
        if let Some(next) = counting.next {
            let mut slots = records.occupied_from(next);
            while looks > 0 && counting.next.is_some() {
                looks -= 1;
                let slot = slots.next();
                counting.next = slot.map(|slot| Slot(slot.0 + 1));
                let record = slot.map(|slot| records.get(slot));
                let is_counted = |record: &&Record| {
                    record.repeat_for.is_marked() && record.state != State::Paused
                };
                if let Some(record) = record.filter(is_counted) {
                    counting.count_due(tick, records.due(record));
                }
            }
        }
        let is_done = counting.next_host.is_none() && counting.next.is_none();
        let numbers = is_done.then(|| self.numbers(now, &ask));
        if is_done {
            self.countings.end(ask.walk);
        }
        self.lists.spend(all - looks);
        self.counters.list_looks += u64::from(all - looks);
        let is_starved = self.lists.looks(tick, 1) == 0;
        let part = CountPart { shards: self.config.shards.get(), is_starved, numbers };
        let mut bytes = Vec::new();
        part.encode(&mut bytes);
        Ok(bytes)
    }

    fn numbers(&mut self, now: Now, ask: &CountAsk) -> Numbers {
        let tick = now.mono.tick_floor();
        let counting = self.countings.of(tick, ask.walk, ask.has_spans);
        let named = counting.top().map(|(host, timers)| {
            (self.records.hosts().authority_named(host).to_owned(), u64::from(timers))
        });
        let hosts = named.collect();
        let tags = self.records.tags();
        let counted = tags.iter().filter(|(_, count)| *count > 0);
        Numbers {
            states: self.records.tallies().states(),
            spans: counting.spans,
            tags: counted.map(|(tag, count)| (tag.to_owned(), count)).collect(),
            other_tags: tags.overflow(),
            hosts,
            other_hosts: counting.other_hosts,
            timers_of_other_hosts: counting.timers_of_other_hosts,
        }
    }
}

#[cfg(test)]
#[path = "count_tests.rs"]
mod tests;
