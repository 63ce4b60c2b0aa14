//! What users know of timestamps, and the rules that follow from that.

use std::collections::BTreeMap;

use chronos::timestamp::{COUNTER_BITS, RANGE_MAX, Timestamp};
use kit::simulator::story::Violation;

use super::clocks::TRUE_MS;

pub const MS: u64 = 1_000_000;

pub type Checked = Result<(), Violation>;

pub fn broken<T>(invariant: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant, what })
}

/// Values that leave a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub first: Timestamp,
    pub count: u32,
}

impl Range {
    pub fn last(&self) -> u64 {
        self.first.0 + u64::from(self.count) - 1
    }
}

pub struct Model {
    /// Ranges that left a server, by their first value: the last value, and the server.
    left: BTreeMap<u64, (u64, usize)>,
    /// The highest value that any user has received.
    pub received: u64,
    /// The highest bound that was ever stored.
    highest: Timestamp,
    /// How many masterships there were. `begun` has the last one of each server, `served` the last
    /// one that could serve.
    masterships: u64,
    begun: BTreeMap<usize, u64>,
    served: u64,
    /// By server whose node was deleted by hand: until when it may go on serving.
    excused: BTreeMap<usize, u64>,
    /// How far timestamps may be above the true time; `None` without a limit.
    pub ahead_ms_max: Option<u64>,
    /// Whether a server has made a lost bound anew.
    is_remade: bool,
    pub answers: u64,
    pub ahead_ms_seen: u64,
}

impl Model {
    pub fn new(floor: Timestamp, ahead_ms_max: Option<u64>) -> Self {
        Self {
            left: BTreeMap::new(),
            received: floor.0,
            highest: floor,
            masterships: 0,
            begun: BTreeMap::new(),
            served: 0,
            excused: BTreeMap::new(),
            ahead_ms_max,
            is_remade: false,
            answers: 0,
            ahead_ms_seen: 0,
        }
    }

    pub fn stored(&mut self, bound: Timestamp) {
        self.highest = self.highest.max(bound);
    }

    /// Notes that a server makes the nodes of a cluster.
    pub fn makes_cluster(&mut self, is_new: bool) {
        self.is_remade |= !is_new;
    }

    pub fn highest(&self) -> Timestamp {
        self.highest
    }

    /// Notes that a mastership begins. A mastership whose lease is over already, because its server
    /// was frozen, does not serve yet.
    pub fn begins(&mut self, server: usize, can_serve: bool) {
        self.masterships += 1;
        self.begun.insert(server, self.masterships);
        if can_serve {
            self.served = self.masterships;
        }
    }

    pub fn excuse(&mut self, server: usize, until_ns: u64) {
        self.excused.insert(server, until_ns);
    }

    fn is_excused(&self, server: usize, now_ns: u64) -> bool {
        self.excused.get(&server).is_some_and(|&until_ns| now_ns < until_ns)
    }

    /// Checks S3, S4, S5 and S8: a server of this service has looked at the clock a second time and
    /// lets values go.
    pub fn leaves(
        &mut self,
        now_ns: u64,
        server: usize,
        range: Range,
        stored: Timestamp,
    ) -> Checked {
        if self.is_remade {
            return broken("S8", format!("{range:?} of {server}, after a bound was made anew"));
        }
        if range.last() >= stored.0 {
            return broken("S3", format!("{range:?} of {server} is not below {stored:?}"));
        }
        let mastership = self.begun[&server];
        if mastership < self.served && !self.is_excused(server, now_ns) {
            return broken("S4", format!("{range:?} of {server}, after {:?} began", self.begun));
        }
        self.served = self.served.max(mastership);
        let (first_ms, last_ms) = (range.first.0 >> COUNTER_BITS, range.last() >> COUNTER_BITS);
        if range.count == 0 || range.count > RANGE_MAX || first_ms != last_ms {
            return broken("S5", format!("{range:?} does not lie in one millisecond"));
        }
        Ok(())
    }

    /// Checks S7: values are not behind the clock.
    pub fn is_not_behind(&self, server: usize, range: Range, least_ms: u64) -> Checked {
        let told_ms = range.first.unix_ms();
        if told_ms < least_ms {
            let behind_ms = least_ms - told_ms;
            let what = format!("{range:?} of {server} is {behind_ms} ms behind what it may be");
            return broken("S7", what);
        }
        Ok(())
    }

    /// Checks S2: values are handed out once. Values of an original count, too.
    pub fn hands_out(&mut self, server: usize, range: Range) -> Checked {
        let next = self.left.range(..=range.last()).next_back();
        if let Some((&first, &(last, other))) = next
            && last >= range.first.0
        {
            let what = format!("{range:?} of {server}, but {other} handed out {first} to {last}");
            return broken("S2", what);
        }
        self.left.insert(range.first.0, (range.last(), server));
        Ok(())
    }

    /// Checks S1: a user receives values that it asked for when `floor` had been received.
    pub fn receives(
        &mut self,
        now_ns: u64,
        server: usize,
        is_original: bool,
        range: Range,
        floor: u64,
    ) -> Checked {
        self.answers += 1;
        let is_checked = !is_original && !self.is_excused(server, now_ns);
        if is_checked && range.first.0 <= floor {
            return broken("S1", format!("{range:?} of {server}, after {floor} was received"));
        }
        self.received = self.received.max(range.last());
        let ahead_ms = range.first.unix_ms().saturating_sub(TRUE_MS + now_ns / MS);
        self.ahead_ms_seen = self.ahead_ms_seen.max(ahead_ms);
        match self.ahead_ms_max {
            Some(max) if ahead_ms > max => {
                broken("ahead", format!("{range:?} of {server} is {ahead_ms} ms ahead, not {max}"))
            }
            _ => Ok(()),
        }
    }
}
