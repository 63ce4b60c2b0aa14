//! Whether there is room for one more record, for its content, in the list of its host, and among
//! the timers of its owner.
//!
//! `limits.store_bytes_max` bounds what is in use. What chunks and spans hold beyond that is
//! bounded by an eighth of the limit and 4 MiB: contents that are deleted here and there leave
//! blocks that only contents of the same size can use. So the process holds at most so much.

use super::{AuthorityId, Record, Records};
use crate::shard::effects::Refusal;
use crate::store::payloads::Payloads;
use crate::timer::definition::Content;

/// Bytes of chunks and spans that may hold no contents, beside an eighth of the limit: the last
/// chunk and the spare one of each size, and a span.
const UNUSED_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a tombstone, generously: its record of 64 bytes, its links, its place in the index.
const TOMBSTONE_BYTES: u64 = 128;

impl Records {
    /// Whether one more record with so much content fits.
    pub fn room(&self, content_bytes: usize) -> Result<(), Refusal> {
        if self.slab.len() >= self.limits.records_max {
            return Err(Refusal::TimersFull);
        }
        self.room_for_bytes(content_bytes, content_bytes)
    }

    /// Whether tombstones may stay for longer than usual. They take an eighth of the room at most,
    /// so that what stays for a site that is away for good leaves room for timers.
    pub fn has_room_for_tombstones(&self) -> bool {
        let all = self.limits.records_max.min(self.limits.bytes_max / TOMBSTONE_BYTES);
        self.counts.tombstones <= all / 8
    }

    /// Whether content fits in place of what is held. Content that takes the place of what is held
    /// always fits.
    pub fn room_for_change(&self, held: &Record, content_bytes: usize) -> Result<(), Refusal> {
        let former_bytes = Payloads::cost_bytes(self.content_bytes(held));
        match Payloads::cost_bytes(content_bytes).checked_sub(former_bytes) {
            Some(0) => Ok(()),
            None => self.room_in_held(content_bytes),
            Some(more_bytes) => self.room_for_bytes(more_bytes, content_bytes),
        }
    }

    /// Whether the owner of content that a client writes may have one more timer here. Content that
    /// replaces what is of the same owner is none more. Cost without quotas: one comparison.
    #[inline]
    pub fn room_of_owner(&self, held: Option<&Record>, content: &[u8]) -> Result<(), Refusal> {
        if self.owners.has_quotas() { self.room_by_quota(held, content) } else { Ok(()) }
    }

    #[inline(never)]
    fn room_by_quota(&self, held: Option<&Record>, content: &[u8]) -> Result<(), Refusal> {
        let Some(owner) = Content::decode(content).owner() else { return Ok(()) };
        let held = held.filter(|held| held.is_live() && self.owners.is_full(owner));
        let former = held.and_then(|held| self.content_of(held).owner());
        let is_more = former != Some(owner) && self.owners.is_full(owner);
        if is_more { Err(Refusal::TokenFull) } else { Ok(()) }
    }

    /// Whether content of this length fits that takes so many bytes more than what it replaces.
    fn room_for_bytes(&self, more_bytes: usize, content_bytes: usize) -> Result<(), Refusal> {
        let needed = self.bytes() + Payloads::cost_bytes(more_bytes) as u64;
        if needed > self.limits.bytes_max {
            return Err(Refusal::BytesFull);
        }
        self.room_in_held(content_bytes)
    }

    /// Whether content of this length leaves enough of what chunks and spans hold in use.
    #[inline]
    fn room_in_held(&self, content_bytes: usize) -> Result<(), Refusal> {
        let unused_max = self.limits.bytes_max / 8 + UNUSED_BYTES_MAX;
        match self.unused_bytes() <= unused_max || self.uses_held(content_bytes) {
            true => Ok(()),
            false => Err(Refusal::BytesFull),
        }
    }

    /// Whether content of this length finds room in what is held, or what is held may grow by it.
    #[cold]
    fn uses_held(&self, content_bytes: usize) -> bool {
        let bytes_max = self.limits.bytes_max;
        let held_max = bytes_max.saturating_add(bytes_max / 8).saturating_add(UNUSED_BYTES_MAX);
        let left = held_max.saturating_sub(self.held_bytes());
        self.payloads.grows_by_at_most(content_bytes, usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Enters the authority of a timer that is about to be held.
    pub fn enter_authority(&mut self, authority: &str) -> AuthorityId {
        self.hosts.enter(authority).0
    }

    /// Enters the authority of a timer that a client is about to write, unless too many pops wait
    /// for the host.
    pub fn admit_authority(&mut self, authority: &str) -> Result<AuthorityId, Refusal> {
        let (authority, host) = self.hosts.enter(authority);
        let waiting = host.map_or(0, |host| self.hosts.get(host).waiting());
        if waiting >= self.limits.waiting_per_host_max {
            self.hosts.withdraw(authority);
            return Err(Refusal::HostQueueFull);
        }
        Ok(authority)
    }
}
