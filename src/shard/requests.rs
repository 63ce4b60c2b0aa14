//! What clients ask: create, update, delete, read.

use crate::base::ids::{HostId, Slot, TimerId};
use crate::base::limits::REPLICATION_FACTOR_DEFAULT;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick, WallMs};
use crate::store::payloads::PayloadRef;
use crate::timer::definition::{Content, Definition};
use crate::timer::schedule::tombstone_ms;
use crate::timer::version::{StateKey, Version, supersedes};

use super::Shard;
use super::effects::{Answer, Outbox, Refusal, Reply, Request, Requester, TimerView};
use super::record::{Record, State};

const FACTOR_DEFAULT: u8 = REPLICATION_FACTOR_DEFAULT as u8;

impl Shard {
    pub(super) fn request(
        &mut self,
        now: Now,
        from: Requester,
        request: Request<'_>,
        outbox: &mut Outbox,
    ) {
        let answer = match request {
            Request::Create(definition) => self.create(now, &definition),
            Request::Update(target, definition) => self.update(now, target.id, &definition),
            Request::Delete(target) => Ok(self.delete(now, target.id, target.factor)),
            Request::Read(target) => Ok(self.read(now, target.id)),
        };
        let answer = answer.unwrap_or_else(|refusal| {
            self.counters.refused += 1;
            Answer::Refused(refusal)
        });
        outbox.replies.push(Reply { to: from, answer });
    }

    fn create(&mut self, now: Now, definition: &Definition<'_>) -> Result<Answer, Refusal> {
        let wall = self.steady_wall(now);
        let id = self.minter.mint(wall).ok_or(Refusal::IdsExhausted)?;
        self.create_under(now, id, definition)
    }

    /// The wall clock for ids: goes on from where it was when the real one steps back, for a clock
    /// that stood still would soon have no id left.
    fn steady_wall(&mut self, now: Now) -> WallMs {
        let mono_ms = now.mono.tick_floor().0;
        self.wall_ahead_ms = self.wall_ahead_ms.max(now.wall.0.saturating_sub(mono_ms));
        WallMs(mono_ms + self.wall_ahead_ms)
    }

    fn update(
        &mut self,
        now: Now,
        id: TimerId,
        definition: &Definition<'_>,
    ) -> Result<Answer, Refusal> {
        let Some(slot) = self.find(id) else { return self.create_under(now, id, definition) };
        let held = *self.records.get(slot);
        let factor =
            if held.is_live() { held.factor } else { definition.factor.unwrap_or(held.factor) };
        if !fires(definition) {
            self.counters.never_firing += 1;
            self.bury(now, slot);
            return Ok(Answer::Done { id, factor, filter: 0 });
        }
        let host = self.admit_host(definition, now.mono.tick_floor())?;
        self.room_for_bytes(definition.content.len())?;
        let version = self.clock.assign(now.wall, Some(held.version));
        self.replace(now, slot, version, factor, host, definition);
        if held.is_live() {
            self.counters.updates += 1;
        } else {
            self.counters.creates += 1;
        }
        Ok(Answer::Done { id, factor, filter: 0 })
    }

    /// A new timer under a minted id, or by a PUT on an id not held (seeds/002, note under
    /// "Response").
    fn create_under(
        &mut self,
        now: Now,
        id: TimerId,
        definition: &Definition<'_>,
    ) -> Result<Answer, Refusal> {
        let factor = definition.factor.unwrap_or(FACTOR_DEFAULT);
        if !fires(definition) {
            self.counters.never_firing += 1;
            return Ok(Answer::Done { id, factor, filter: 0 });
        }
        let host = self.admit_host(definition, now.mono.tick_floor())?;
        self.room(definition.content.len())?;
        let version = self.clock.assign(now.wall, None);
        self.insert(now, id, version, factor, host, definition);
        self.counters.creates += 1;
        Ok(Answer::Done { id, factor, filter: 0 })
    }

    fn delete(&mut self, now: Now, id: TimerId, factor: Option<u8>) -> Answer {
        self.counters.deletes += 1;
        match self.find(id) {
            Some(slot) => {
                let held = *self.records.get(slot);
                if held.is_live() {
                    self.bury(now, slot);
                }
                Answer::Done { id, factor: held.factor, filter: 0 }
            }
            None => {
                let factor = factor.unwrap_or(FACTOR_DEFAULT);
                self.bury_unknown(now, id, factor);
                Answer::Done { id, factor, filter: 0 }
            }
        }
    }

    fn read(&mut self, now: Now, id: TimerId) -> Answer {
        self.counters.reads += 1;
        let live = self.find(id).map(|slot| self.records.get(slot)).filter(|held| held.is_live());
        live.map_or(Answer::NotFound, |held| Answer::Found(Box::new(self.view(held, now))))
    }

    fn view(&self, held: &Record, now: Now) -> TimerView {
        let content = Content::decode(self.payloads.get(held.payload));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tags = content.tags();
        TimerView {
            id: held.id,
            factor: held.factor,
            filter: 0,
            interval_ms: held.interval_ms,
            repeat_for_ms: held.repeat_for_ms,
            age_ms: now.mono.tick_floor() - held.start,
            sequence: held.sequence,
            uri: format!("http://{}{}", self.hosts.authority(held.host), text(content.target)),
            opaque: text(content.opaque),
            tags: tags.as_slice().iter().map(|tag| (tag.kind.to_owned(), tag.count)).collect(),
        }
    }

    /// Files a new record. Everything that can refuse has been asked before.
    fn insert(
        &mut self,
        now: Now,
        id: TimerId,
        version: Version,
        factor: u8,
        host: HostId,
        definition: &Definition<'_>,
    ) {
        let record = Record {
            id,
            version,
            start: now.mono.tick_ceil(),
            interval_ms: definition.interval_ms,
            repeat_for_ms: definition.repeat_for_ms,
            sequence: 0,
            payload: self.payloads.insert(definition.content),
            host,
            factor,
            state: State::Armed,
            attempts: 0,
        };
        let due = record.schedule().due(1);
        self.file_new(record, due);
        self.hosts.get_mut(host).timers += 1;
        self.counters.timers += 1;
    }

    fn file_new(&mut self, record: Record, due: Tick) {
        let slot = self.records.insert(record);
        self.links.ensure(slot);
        let records = &self.records;
        self.index.insert(record.id.0, slot, |slot| records.get(slot).id.0);
        self.wheel.insert(&mut self.links, slot, due);
    }

    /// Puts a new definition in place of whatever the slot holds, in one step.
    fn replace(
        &mut self,
        now: Now,
        slot: Slot,
        version: Version,
        factor: u8,
        host: HostId,
        definition: &Definition<'_>,
    ) {
        let held = *self.records.get(slot);
        let key = StateKey { version, sequence: 0 };
        assert!(supersedes(key, Some(held.key())), "the clock gives versions above the one held");
        self.release(now.mono.tick_floor(), &held);
        self.hosts.get_mut(host).timers += 1;
        self.counters.timers += 1;
        let replaced = Record {
            version,
            start: now.mono.tick_ceil(),
            interval_ms: definition.interval_ms,
            repeat_for_ms: definition.repeat_for_ms,
            sequence: 0,
            payload: self.payloads.insert(definition.content),
            host,
            factor,
            state: State::Armed,
            attempts: 0,
            ..held
        };
        *self.records.get_mut(slot) = replaced;
        if is_planted(Bug::KeepOldSchedule) && held.state == State::Armed {
            return;
        }
        self.refile(slot, &held, replaced.schedule().due(1));
    }

    /// Makes a tombstone of a live timer, with a version of its own.
    fn bury(&mut self, now: Now, slot: Slot) {
        let held = *self.records.get(slot);
        let version = self.clock.assign(now.wall, Some(held.version));
        let tick = now.mono.tick_floor();
        self.release(tick, &held);
        let record = self.records.get_mut(slot);
        *record = Record { version, state: State::Tombstone, payload: PayloadRef::EMPTY, ..held };
        self.counters.tombstones += 1;
        let mut stays_ms = tombstone_ms(held.interval_ms, self.config.callbacks.tombstone_ms_max);
        if is_planted(Bug::DropTombstone) {
            stays_ms = 0;
        }
        self.refile(slot, &held, tick + stays_ms);
    }

    /// Leaves a tombstone for an id not held, so that a create that is still under way loses
    /// against it. Without room there is none: nothing is lost by that which a client was promised.
    fn bury_unknown(&mut self, now: Now, id: TimerId, factor: u8) {
        if self.room(0).is_err() || is_planted(Bug::DropTombstone) {
            return;
        }
        let tick = now.mono.tick_floor();
        let record = Record {
            id,
            version: self.clock.assign(now.wall, None),
            start: tick,
            interval_ms: 0,
            repeat_for_ms: 0,
            sequence: 0,
            payload: PayloadRef::EMPTY,
            host: HostId(u32::MAX),
            factor,
            state: State::Tombstone,
            attempts: 0,
        };
        self.file_new(record, tick + tombstone_ms(0, self.config.callbacks.tombstone_ms_max));
        self.counters.tombstones += 1;
    }

    /// Gives back what a record held beyond its slot: payload, host, its count.
    pub(super) fn release(&mut self, now: Tick, held: &Record) {
        if held.is_live() {
            self.payloads.remove(held.payload);
            self.hosts.leave(held.host, now);
            self.counters.timers -= 1;
        } else {
            self.counters.tombstones -= 1;
        }
    }

    /// Files a slot in the wheel, from whichever list the record's former state had it in.
    fn refile(&mut self, slot: Slot, former: &Record, due: Tick) {
        match former.state {
            State::Armed | State::BackingOff | State::Tombstone => {
                self.wheel.rearm(&mut self.links, slot, due);
            }
            State::Ready => {
                self.hosts.get_mut(former.host).ready.remove(&mut self.links, slot);
                self.counters.waiting -= 1;
                self.wheel.insert(&mut self.links, slot, due);
            }
            State::InFlight => self.wheel.insert(&mut self.links, slot, due),
        }
    }

    pub(super) fn find(&self, id: TimerId) -> Option<Slot> {
        self.index.get(id.0, |slot| self.records.get(slot).id.0)
    }

    /// The callback host of a new definition, unless too many hosts are known or too many pops wait
    /// for it.
    fn admit_host(&mut self, definition: &Definition<'_>, now: Tick) -> Result<HostId, Refusal> {
        let host = self.hosts.intern(definition.authority, now).ok_or(Refusal::HostsFull)?;
        if self.hosts.get(host).ready.len() >= self.config.callbacks.queue_per_host_max {
            return Err(Refusal::HostQueueFull);
        }
        Ok(host)
    }

    fn room(&self, content_bytes: usize) -> Result<(), Refusal> {
        if self.records.len() >= self.config.records_max {
            return Err(Refusal::TimersFull);
        }
        self.room_for_bytes(content_bytes)
    }

    fn room_for_bytes(&self, content_bytes: usize) -> Result<(), Refusal> {
        let needed = self.bytes() + content_bytes as u64;
        if needed > self.config.store_bytes_max { Err(Refusal::BytesFull) } else { Ok(()) }
    }
}

/// Whether a timer pops at all. One that does not is accepted and not stored (seeds/002, "never
/// fire").
fn fires(definition: &Definition<'_>) -> bool {
    definition.repeat_for_ms >= definition.interval_ms
}
