//! Which timers a journal holds at its end: its entries merged as a node merges them.

use std::collections::HashMap;

use super::survey::Tool;
use crate::base::time::{Tick, WallMs};
use crate::journal::entry::Entry;
use crate::node::journal::reading::{PagePlace, Visitor};
use crate::timer::schedule::Schedule;
use crate::wire::peer_message::{Standing, TimerCopy};

/// What is known of one timer.
#[derive(Clone, Copy, Debug)]
struct Held {
    version: u64,
    sequence: u64,
    interval_ms: u64,
    repeat_for_ms: u64,
    /// Bytes of its last whole entry.
    bytes: u32,
    is_live: bool,
}

/// The timers of a journal. Cost: about 100 bytes of memory each.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    timers: HashMap<u64, Held, ahash::RandomState>,
    scratch: Vec<u8>,
    /// The earliest and the latest wall time of a page.
    pub span: Option<(WallMs, WallMs)>,
}

/// How many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// Timers with pops left.
    pub timers: u64,
    /// Timers that ended.
    pub tombstones: u64,
    /// Bytes of the last whole entries of both.
    pub live_bytes: u64,
}

impl Ledger {
    /// What is held at the end.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for held in self.timers.values() {
            let count = if held.is_live { &mut totals.timers } else { &mut totals.tombstones };
            *count += 1;
            totals.live_bytes += u64::from(held.bytes);
        }
        totals
    }

    fn whole(&mut self, copy: &TimerCopy<'_>) {
        let Standing { id, version, sequence, .. } = copy.standing;
        self.scratch.clear();
        Entry::Timer(*copy).encode(&mut self.scratch);
        let mut held = Held {
            version,
            sequence,
            interval_ms: copy.interval_ms,
            repeat_for_ms: copy.repeat_for_ms,
            bytes: self.scratch.len() as u32,
            is_live: copy.body.is_some(),
        };
        held.is_live &= sequence == 0 || !held.has_ended();
        self.timers.insert(id.0, held);
    }

    fn progress(&mut self, standing: &Standing) {
        let Some(held) = self.timers.get_mut(&standing.id.0) else { return };
        if held.is_live && held.version == standing.version && held.sequence <= standing.sequence {
            held.sequence = standing.sequence;
            held.is_live = !held.has_ended();
        }
    }
}

impl Held {
    fn has_ended(&self) -> bool {
        let Self { interval_ms, repeat_for_ms, .. } = *self;
        Schedule { start: Tick(0), interval_ms, repeat_for_ms }.is_last(self.sequence)
    }
}

impl Tool for Ledger {}

impl Visitor for Ledger {
    fn page(&mut self, place: &PagePlace, _bytes: &[u8]) {
        let wall = place.stamp.wall;
        let (first, last) = self.span.unwrap_or((wall, wall));
        self.span = Some((first.min(wall), last.max(wall)));
    }

    fn entry(&mut self, _: &PagePlace, entry: &Entry<'_>) {
        match entry {
            Entry::Timer(copy) => self.whole(copy),
            Entry::Progress(standing) => self.progress(standing),
            Entry::Forgotten(id) => drop(self.timers.remove(&id.0)),
            Entry::Head(_) | Entry::State(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::journal::SegmentNumber;
    use crate::journal::entry::tests::{content, timer};
    use crate::journal::page::Stamp;

    /// Ten pops, as `timer` makes it.
    const POPS: u64 = 10;

    fn totals(entries: &[Entry<'_>]) -> (u64, u64) {
        let mut ledger = Ledger::default();
        let place = PagePlace {
            segment: SegmentNumber(1),
            block: 0,
            blocks: 1,
            stamp: Stamp::default(),
            write: 1,
        };
        entries.iter().for_each(|entry| ledger.entry(&place, entry));
        (ledger.totals().timers, ledger.totals().tombstones)
    }

    #[test]
    fn entries_are_merged_as_a_node_merges_them() {
        let content = content(b"x");
        let whole = |id, sequence| Entry::Timer(timer(id, sequence, Some(&content)));
        let ended = |id, sequence| Entry::Timer(timer(id, sequence, None));
        let popped = |id, sequence| Entry::Progress(timer(id, sequence, None).standing);
        assert_eq!(totals(&[whole(1, 0), whole(2, 3), whole(1, 1)]), (2, 0));
        assert_eq!(totals(&[whole(1, 0), ended(1, 1)]), (0, 1));
        assert_eq!(totals(&[ended(1, 1), whole(1, 0)]), (1, 0), "the last entry counts");
        assert_eq!(totals(&[whole(1, 0), popped(1, POPS - 1)]), (1, 0));
        assert_eq!(totals(&[whole(1, 0), popped(1, POPS)]), (0, 1), "the last pop is done");
        assert_eq!(totals(&[whole(1, POPS)]), (0, 1));
        assert_eq!(totals(&[popped(1, 1)]), (0, 0), "of a timer that no entry has");
        assert_eq!(totals(&[whole(1, 0), Entry::Forgotten(TimerId(1)), whole(2, 0)]), (1, 0));
        assert_eq!(totals(&[Entry::Forgotten(TimerId(1)), whole(1, 0)]), (1, 0));
    }
}
