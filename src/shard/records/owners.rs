//! How many timers of each owner this shard holds. An *owner* is the name of a token with a limit
//! of timers; it is in the content of each timer that was written with the token
//! (`timer::definition`).
//!
//! A node counts each live timer that it holds, of whatever rank: what a limit protects is the room
//! of the node. So the count needs no news of other nodes: it is right after a restart, which reads
//! the timers from the journal, and when a node takes over timers of a dead one.
//!
//! A timer without an owner never gets here.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;

use crate::base::quota::{Quota, Quotas};

/// What an owner has here.
#[derive(Debug)]
struct Held {
    /// At least 1.
    timers: u64,
    /// The quota that counts them, if the owner has one now.
    quota: Option<Arc<Quota>>,
}

/// The timers of each owner.
pub struct Owners {
    held: HashMap<Box<str>, Held, RandomState>,
    quotas: Arc<Quotas>,
}

impl Owners {
    /// No timer has an owner yet, and no name has a quota.
    pub fn new(hash_seed: u64) -> Self {
        let hasher = RandomState::with_seeds(!hash_seed, hash_seed, hash_seed.rotate_left(23), 71);
        Self { held: HashMap::with_hasher(hasher), quotas: Arc::default() }
    }

    /// Whether no timer has an owner.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Counts a timer more. Cost: a look-up, an atomic addition; an allocation for the first timer.
    pub fn enter(&mut self, owner: &str) {
        let quota = match self.held.get_mut(owner) {
            Some(held) => {
                held.timers += 1;
                held.quota.as_ref()
            }
            None => {
                let held = Held { timers: 1, quota: self.quotas.get(owner).cloned() };
                self.held.entry(owner.into()).or_insert(held).quota.as_ref()
            }
        };
        quota.into_iter().for_each(|quota| quota.add_timers(1));
    }

    /// Counts a timer less, which has entered with this owner.
    pub fn leave(&mut self, owner: &str) {
        let Some(held) = self.held.get_mut(owner) else { return };
        held.timers -= 1;
        held.quota.iter().for_each(|quota| quota.remove_timers(1));
        if held.timers == 0 {
            self.held.remove(owner);
        }
    }

    /// Takes the quotas that count from now on. Cost: one step for each owner.
    pub fn set_quotas(&mut self, quotas: Arc<Quotas>) {
        for (name, held) in &mut self.held {
            let next = quotas.get(name).cloned();
            let goes_on = match (&held.quota, &next) {
                (Some(former), Some(next)) => former.counts_with(next),
                _ => false,
            };
            if !goes_on {
                held.quota.iter().for_each(|former| former.remove_timers(held.timers));
                next.iter().for_each(|next| next.add_timers(held.timers));
            }
            held.quota = next;
        }
        self.quotas = quotas;
    }

    /// Whether any name has a quota.
    #[inline]
    pub fn has_quotas(&self) -> bool {
        !self.quotas.is_empty()
    }

    /// Whether an owner has as many timers as it may.
    pub fn is_full(&self, owner: &str) -> bool {
        self.quotas.get(owner).is_some_and(|quota| quota.has_all_timers())
    }

    /// Every owner, and how many timers it has here.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.held.iter().map(|(name, held)| (&**name, held.timers))
    }
}
