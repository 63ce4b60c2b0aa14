//! How many timers of which this node is the first to pop are in which state, and name which
//! callback host. Each change of a record changes a few numbers, so that to read them costs
//! nothing.
//!
//! A record remembers that it is tallied. When beliefs about other nodes change, this node becomes
//! the first to pop of some timers and ceases to be that of others. A walk over all records, in
//! portions, then brings the marks up to date; until it is done the numbers are on their way.

use super::record::State;
use crate::base::ids::Slot;

/// The numbers of one shard.
#[derive(Debug, Default)]
pub struct Tallies {
    /// Tallied timers by state, as [`State::POPPING`] numbers them.
    states: [u64; State::POPPING.len()],
    /// Where the walk goes on; `None`: all marks are up to date.
    pub(super) next: Option<Slot>,
}

impl Tallies {
    /// Tallied timers by state, as [`State::POPPING`] numbers them.
    pub fn states(&self) -> [u64; State::POPPING.len()] {
        self.states
    }

    /// Whether all marks are up to date.
    pub fn is_settled(&self) -> bool {
        self.next.is_none()
    }

    /// A tallied timer changes its state.
    #[inline]
    pub(super) fn pass(&mut self, from: State, to: State) {
        self.leave(from);
        self.enter(to);
    }

    #[inline]
    pub(super) fn enter(&mut self, state: State) {
        if let Some(count) = self.states.get_mut(state as usize) {
            *count += 1;
        }
    }

    #[inline]
    pub(super) fn leave(&mut self, state: State) {
        if let Some(count) = self.states.get_mut(state as usize) {
            *count -= 1;
        }
    }
}
