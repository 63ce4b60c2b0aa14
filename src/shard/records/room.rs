//! Whether there is room for one more record, for its content, in the list of its host, and among
//! the timers of its owner.

use super::{AuthorityId, Record, Records};
use crate::shard::effects::Refusal;
use crate::store::payloads::Payloads;
use crate::timer::definition::Content;

impl Records {
    /// Whether one more record with so much content fits.
    pub fn room(&self, content_bytes: usize) -> Result<(), Refusal> {
        if self.slab.len() >= self.limits.records_max {
            return Err(Refusal::TimersFull);
        }
        self.room_for_bytes(content_bytes)
    }

    /// Whether content fits in place of what is held. Content that takes no more memory than what
    /// is held always fits.
    pub fn room_for_change(&self, held: &Record, content_bytes: usize) -> Result<(), Refusal> {
        let former_bytes = Payloads::cost_bytes(self.content_bytes(held));
        match Payloads::cost_bytes(content_bytes).checked_sub(former_bytes) {
            None | Some(0) => Ok(()),
            Some(more_bytes) => self.room_for_bytes(more_bytes),
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

    fn room_for_bytes(&self, content_bytes: usize) -> Result<(), Refusal> {
        let needed = self.bytes() + Payloads::cost_bytes(content_bytes) as u64;
        if needed > self.limits.bytes_max { Err(Refusal::BytesFull) } else { Ok(()) }
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
