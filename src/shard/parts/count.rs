//! Numbers of timers that are being put together, in portions: when timers are due, and which hosts
//! have most of them.

// May panic: indices 4, cuts 1.
// Why it does not: found 4, fixed 1.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::base::ids::Slot;
use crate::base::time::Tick;
use crate::shard::records::AuthorityId;
use crate::wire::timer_count::{HOSTS_NAMED_MAX, SPANS};

/// Countings at a time, some 5 KiB each. Another one takes the place of the one that was asked for
/// longest ago.
const COUNTINGS_MAX: usize = 16;

/// One answer that is being put together.
#[derive(Debug)]
pub struct Counting {
    walk: u64,
    /// Where the walk through hosts goes on; `None`: it is done.
    pub next_host: Option<u32>,
    /// Where the walk through records goes on; `None`: it is done.
    pub next: Option<Slot>,
    /// Timers by when they are due.
    pub spans: [u64; SPANS.len()],
    /// The hosts with most timers.
    top: BinaryHeap<Reverse<(u32, u32)>>,
    /// How many hosts are not among them, and how many timers they have.
    pub other_hosts: u64,
    pub timers_of_other_hosts: u64,
    used_at: Tick,
}

impl Counting {
    fn new(walk: u64, has_spans: bool, used_at: Tick) -> Self {
        Self {
            walk,
            next_host: Some(0),
            next: has_spans.then_some(Slot(0)),
            spans: Default::default(),
            top: BinaryHeap::new(),
            other_hosts: 0,
            timers_of_other_hosts: 0,
            used_at,
        }
    }

    /// Counts a timer that is due at a moment.
    pub fn count_due(&mut self, tick: Tick, due: Tick) {
        let is_overdue = due < tick;
        let in_ms = due - tick;
        let span = SPANS.iter().skip(1).position(|(_, within)| in_ms < *within);
        let last = SPANS.len() - 1;
        let place = if is_overdue { 0 } else { span.map_or(last, |span| span + 1) };
        self.spans[place] += 1;
    }

    /// Counts a host that has timers.
    pub fn count_host(&mut self, host: AuthorityId, timers: u32) {
        self.top.push(Reverse((timers, host.number())));
        if self.top.len() > HOSTS_NAMED_MAX
            && let Some(Reverse((timers, _))) = self.top.pop()
        {
            self.other_hosts += 1;
            self.timers_of_other_hosts += u64::from(timers);
        }
    }

    /// The hosts with most timers.
    pub fn top(&self) -> impl Iterator<Item = (AuthorityId, u32)> {
        self.top.iter().map(|Reverse((timers, host))| (AuthorityId::numbered(*host), *timers))
    }
}

/// All answers that a shard puts together.
#[derive(Debug, Default)]
pub struct Countings(Vec<Counting>);

impl Countings {
    /// The answer of a walk.
    pub fn of(&mut self, tick: Tick, walk: u64, has_spans: bool) -> &mut Counting {
        let place = match self.0.iter().position(|counting| counting.walk == walk) {
            Some(place) => place,
            None => {
                if self.0.len() >= COUNTINGS_MAX {
                    let oldest = (0..COUNTINGS_MAX).min_by_key(|&place| self.0[place].used_at);
                    oldest.into_iter().for_each(|oldest| drop(self.0.swap_remove(oldest)));
                }
                self.0.push(Counting::new(walk, has_spans, tick));
                self.0.len() - 1
            }
        };
        self.0[place].used_at = tick;
        &mut self.0[place]
    }

    /// Forgets an answer that was given.
    pub fn end(&mut self, walk: u64) {
        self.0.retain(|counting| counting.walk != walk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_end_before_their_moment() {
        let mut counting = Counting::new(1, true, Tick(0));
        let now = Tick(1_000);
        for due in [999, 0, 1_000, 1_999, 2_000, 60_999, 61_000, 3_601_000, 86_401_000, u64::MAX] {
            counting.count_due(now, Tick(due));
        }
        assert_eq!(counting.spans, [2, 2, 2, 1, 1, 2]);
    }

    #[test]
    fn hosts_with_few_timers_are_summed_up() {
        let mut counting = Counting::new(1, true, Tick(0));
        for host in 0..150 {
            counting.count_host(AuthorityId::numbered(host), host * 7 % 150);
        }
        assert_eq!(counting.top().count(), HOSTS_NAMED_MAX);
        assert!(counting.top().all(|(_, timers)| timers >= 50));
        assert_eq!((counting.other_hosts, counting.timers_of_other_hosts), (50, 49 * 50 / 2));
    }

    #[test]
    fn a_counting_that_is_asked_for_stays() {
        let mut countings = Countings::default();
        for walk in 0..3 * COUNTINGS_MAX as u64 {
            countings.of(Tick(walk), walk, true).other_hosts = walk;
            assert_eq!(countings.of(Tick(walk), 0, true).other_hosts, 0);
        }
        assert_eq!(countings.0.len(), COUNTINGS_MAX);
        countings.end(0);
        assert_eq!(countings.0.len(), COUNTINGS_MAX - 1);
    }
}
