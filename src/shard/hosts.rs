//! Callback hosts of one shard: who waits for each, how many callbacks run, and whether the host is
//! in trouble.
//!
//! Isolation: every host has its own list and its own places, so a host that hangs fills only
//! these. After [`SUSPECT_FAILURES`] failures in a row it is *in trouble*: one attempt at a time
//! probes it, its waiting pops are moved back into the wheel in portions, and pops that come due go
//! there at once.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::base::ids::{HostId, Slot};
use crate::base::limits::CallbackLimits;
use crate::base::time::Tick;
use crate::store::links::{Fifo, Links};

/// Failures in a row, at any timer of the host, after which it is suspected. One server that died
/// behind a balancer of four fails a quarter of the attempts: eight in a row then happen once in 65
/// 536.
pub(super) const SUSPECT_FAILURES: u32 = 8;
/// How long a host without timers is remembered, so that its connections and health survive a
/// pause.
const IDLE_HOST_MS: u64 = 60_000;

/// One callback host.
#[derive(Debug)]
pub(super) struct Host {
    pub authority: Box<str>,
    /// Due pops waiting for a place.
    pub ready: Fifo,
    /// Places taken.
    pub in_flight: u32,
    /// Live timers that name this host.
    pub timers: u64,
    /// Failures since the last success.
    pub failures: u32,
    /// Pause after the next failure, while in trouble.
    pause_ms: u64,
    /// When the next probe may run, while in trouble.
    pub probe_at: Tick,
    idle_since: Tick,
    /// Whether the host stands in the list of hosts to be emptied.
    listed: bool,
}

impl Host {
    pub fn is_in_trouble(&self) -> bool {
        self.failures >= SUSPECT_FAILURES
    }
}

/// All callback hosts of a shard.
pub(super) struct Hosts {
    places: Vec<Option<Host>>,
    free: Vec<u32>,
    by_authority: HashTable<u32>,
    hasher: RandomState,
    /// Hosts in trouble that still have waiting pops.
    troubled: Vec<HostId>,
    authority_bytes: usize,
    hosts_max: usize,
    places_per_host: u32,
    retry_first_ms: u64,
    retry_max_ms: u64,
    /// Where the sweep for idle hosts goes on.
    sweep_at: usize,
}

impl Hosts {
    pub fn new(hash_seed: u64, limits: &CallbackLimits) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            by_authority: HashTable::new(),
            hasher: RandomState::with_seeds(hash_seed, !hash_seed, hash_seed.rotate_left(17), 11),
            troubled: Vec::new(),
            authority_bytes: 0,
            hosts_max: limits.hosts_per_core_max as usize,
            places_per_host: limits.connections_per_host_max,
            retry_first_ms: limits.retry_first_ms,
            retry_max_ms: limits.retry_max_ms,
            sweep_at: 0,
        }
    }

    pub fn get(&self, host: HostId) -> &Host {
        self.places[host.0 as usize].as_ref().expect("a host is kept while anything names it")
    }

    pub fn get_mut(&mut self, host: HostId) -> &mut Host {
        self.places[host.0 as usize].as_mut().expect("a host is kept while anything names it")
    }

    pub fn authority(&self, host: HostId) -> &str {
        &self.get(host).authority
    }

    pub fn len(&self) -> u64 {
        self.by_authority.len() as u64
    }

    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<Host>>() + self.authority_bytes
    }

    /// The host with this authority.
    pub fn find(&self, authority: &str) -> Option<HostId> {
        let places = &self.places;
        let same = |&place: &u32| authority_of(places, place) == authority;
        self.by_authority.find(self.hasher.hash_one(authority), same).map(|&place| HostId(place))
    }

    /// The host with this authority, made if new. `None`: as many hosts are known as may be.
    pub fn intern(&mut self, authority: &str, now: Tick) -> Option<HostId> {
        if let Some(known) = self.find(authority) {
            return Some(known);
        }
        if self.by_authority.len() >= self.hosts_max {
            return None;
        }
        let host = Host {
            authority: authority.into(),
            ready: Fifo::new(),
            in_flight: 0,
            timers: 0,
            failures: 0,
            pause_ms: self.retry_first_ms,
            probe_at: Tick(0),
            idle_since: now,
            listed: false,
        };
        self.authority_bytes += authority.len();
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        match self.places.get_mut(place as usize) {
            Some(empty) => *empty = Some(host),
            None => self.places.push(Some(host)),
        }
        let places = &self.places;
        let hasher = &self.hasher;
        let rehash = |&place: &u32| hasher.hash_one(authority_of(places, place));
        self.by_authority.insert_unique(hasher.hash_one(authority), place, rehash);
        Some(HostId(place))
    }

    /// A timer no longer names the host.
    pub fn leave(&mut self, host: HostId, now: Tick) {
        let host = self.get_mut(host);
        host.timers -= 1;
        host.idle_since = now;
    }

    /// Whether a callback may start now: a free place, and while in trouble only one probe after
    /// each pause.
    pub fn may_start(&self, host: HostId, now: Tick) -> bool {
        let host = self.get(host);
        if host.is_in_trouble() {
            return host.in_flight == 0 && now >= host.probe_at;
        }
        host.in_flight < self.places_per_host
    }

    /// Lists a host in trouble that has waiting pops, to be emptied in portions.
    pub fn list_if_troubled(&mut self, host: HostId) {
        let entry = self.get_mut(host);
        if entry.is_in_trouble() && !entry.ready.is_empty() && !entry.listed {
            entry.listed = true;
            self.troubled.push(host);
        }
    }

    pub fn has_waiting_in_trouble(&self) -> bool {
        !self.troubled.is_empty()
    }

    /// Takes a waiting pop of a host in trouble, to be moved back into the wheel. A host that
    /// recovered or has no more is unlisted.
    pub fn take_from_troubled(&mut self, links: &mut Links) -> Option<(HostId, Slot)> {
        while let Some(&host) = self.troubled.last() {
            let entry = self.get_mut(host);
            if entry.is_in_trouble()
                && let Some(slot) = entry.ready.pop_front(links)
            {
                return Some((host, slot));
            }
            entry.listed = false;
            self.troubled.pop();
        }
        None
    }

    /// The host answered.
    pub fn succeeded(&mut self, host: HostId) {
        let first = self.retry_first_ms;
        let host = self.get_mut(host);
        host.failures = 0;
        host.pause_ms = first;
    }

    /// The host did not answer. Failures of one burst count as one step of the pause.
    pub fn failed(&mut self, host: HostId, now: Tick) {
        let pause_max = self.retry_max_ms;
        let host = self.get_mut(host);
        host.failures = host.failures.saturating_add(1);
        if host.is_in_trouble() && now >= host.probe_at {
            host.probe_at = now + host.pause_ms;
            host.pause_ms = (host.pause_ms * 2).min(pause_max);
        }
    }

    /// Forgets hosts that nothing has named for a while; looks at `portion` places a call.
    pub fn sweep(&mut self, now: Tick, portion: usize, released: &mut Vec<HostId>) {
        for _ in 0..portion.min(self.places.len()) {
            self.sweep_at = (self.sweep_at + 1) % self.places.len();
            let place = self.sweep_at as u32;
            let is_idle = self.places[self.sweep_at].as_ref().is_some_and(|host| {
                let unused = host.timers == 0 && host.in_flight == 0 && host.ready.is_empty();
                unused && !host.listed && now - host.idle_since >= IDLE_HOST_MS
            });
            if is_idle {
                self.forget(place);
                released.push(HostId(place));
            }
        }
    }

    /// Every host, for the audit and the oldest waiting pop.
    pub fn iter(&self) -> impl Iterator<Item = &Host> {
        self.places.iter().flatten()
    }

    fn forget(&mut self, place: u32) {
        let hash = self.hasher.hash_one(authority_of(&self.places, place));
        let entry = self.by_authority.find_entry(hash, |&other| other == place);
        entry.expect("every host is in the table").remove();
        let host = self.places[place as usize].take().expect("found just now");
        self.authority_bytes -= host.authority.len();
        self.free.push(place);
    }
}

fn authority_of(places: &[Option<Host>], place: u32) -> &str {
    &places[place as usize].as_ref().expect("the table names only known hosts").authority
}
