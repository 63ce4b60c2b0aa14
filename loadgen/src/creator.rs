//! The workload that only creates timers: timers that pop late, to measure requests, or soon, to
//! measure pops.

use std::sync::Arc;

use crate::frames::Head;
use crate::ledger::Ledger;
use crate::recorder::Operation;
use crate::request::{Template, TimerShape};
use crate::sessions::Location;
use crate::workload::{Next, Workload};

/// When the timers of a creator come due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// So many milliseconds after their request.
    AfterMs(u64),
    /// From one instant of the monotonic clock on, spread evenly over a time.
    At {
        /// The first due time, in monotonic nanoseconds.
        at_ns: u64,
        /// Nanoseconds from the first due time to the last; 0 for a herd.
        spread_ns: u64,
    },
}

/// Tells a creator to end early: it returns true when the event that the run waits for has
/// happened.
pub type Until = Box<dyn Fn() -> bool + Send>;

/// Sends POSTs until a number of timers is reached.
pub struct Creator {
    template: Template,
    due: Due,
    first_number: u64,
    next_number: u64,
    timers: u64,
    locations: Option<Vec<Option<Location>>>,
    ledger: Option<Arc<Ledger>>,
    until: Option<Until>,
}

impl Creator {
    /// Creates up to `timers` timers of this shape. With a ledger, each timer is entered in the
    /// ledger.
    pub fn new(shape: &TimerShape, due: Due, timers: u64, ledger: Option<Arc<Ledger>>) -> Creator {
        let interval_ms = match due {
            Due::AfterMs(ms) => Some(ms),
            Due::At { .. } => None,
        };
        let shape = TimerShape { interval_ms, ..shape.clone() };
        let template = Template::post(&shape);
        Creator {
            template,
            due,
            first_number: 0,
            next_number: 0,
            timers,
            locations: None,
            ledger,
            until: None,
        }
    }

    /// Ends as soon as `until` returns true. The creator calls `until` once per request.
    pub fn until(self, until: Until) -> Creator {
        Creator { until: Some(until), ..self }
    }

    /// Numbers the timers from `first` on, and keeps where the node says that they are.
    pub fn locating(self, first: u64) -> Creator {
        let locations = Some(vec![None; self.timers as usize]);
        Creator { first_number: first, locations, ..self }
    }

    /// Where the timers are, in the order of their numbers; `None`: the node has not said so.
    pub fn into_locations(self) -> Vec<Option<Location>> {
        self.locations.unwrap_or_default()
    }

    /// How many timers were asked for.
    pub fn asked(&self) -> u64 {
        self.next_number
    }

    /// Milliseconds from now to the due time of timer `number`, rounded up so that no due time is
    /// early. The second value is the interval to patch into the request; `None`: the interval does
    /// not change.
    fn interval_ms(&self, number: u64, now_ns: u64) -> (u64, Option<u64>) {
        match self.due {
            Due::AfterMs(ms) => (ms, None),
            Due::At { at_ns, spread_ns } => {
                let share = u128::from(spread_ns) * u128::from(number) / u128::from(self.timers);
                let left_ns = (at_ns + share as u64).saturating_sub(now_ns);
                let ms = left_ns.div_ceil(1_000_000);
                (ms, Some(ms))
            }
        }
    }
}

impl Workload for Creator {
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Next {
        let over = self.until.as_ref().is_some_and(|until| until());
        if over || self.next_number >= self.timers {
            return Next::Finished;
        }
        let (interval_ms, patch) = self.interval_ms(self.next_number, now_ns);
        let number = self.first_number + self.next_number;
        self.next_number += 1;
        if let Some(ledger) = &self.ledger {
            ledger.ask(number, now_ns + interval_ms * 1_000_000);
        }
        self.template.append(number, patch, out);
        Next::Sent(Operation::Create, number)
    }

    fn answered(&mut self, _operation: Operation, tag: u64, head: &Head<'_>) {
        if let Some(locations) = &mut self.locations {
            locations[(tag - self.first_number) as usize] = Location::new(head.location);
        }
        if let Some(ledger) = &self.ledger {
            ledger.acknowledge(tag);
        }
    }

    fn failed(&mut self, _operation: Operation, _tag: u64) {}

    fn measuring(&mut self, now_ns: u64) {
        if let (Some(ledger), Due::AfterMs(ms)) = (&self.ledger, self.due) {
            ledger.measure_from(now_ns + ms * 1_000_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> TimerShape {
        TimerShape {
            target: "127.0.0.1:7253".parse().unwrap(),
            callback: "127.0.0.1:9999".parse().unwrap(),
            interval_ms: Some(1),
            pops_each: 1,
            opaque_bytes: 4,
            headers: 0,
            replication_factor: 1,
            ralf: false,
            token: None,
        }
    }

    #[test]
    fn a_herd_is_due_at_one_instant_and_a_spread_evenly() {
        let herd = Due::At { at_ns: 5_000_000_000, spread_ns: 0 };
        let creator = Creator::new(&shape(), herd, 10, None);
        assert_eq!(creator.interval_ms(0, 1_000_000_000).1, Some(4000));
        assert_eq!(creator.interval_ms(9, 1_000_000_001).1, Some(4000));
        assert_eq!(creator.interval_ms(9, 6_000_000_000).1, Some(0), "late: due at once");
        let spread = Due::At { at_ns: 5_000_000_000, spread_ns: 1_000_000_000 };
        let creator = Creator::new(&shape(), spread, 10, None);
        assert_eq!(creator.interval_ms(5, 5_000_000_000).1, Some(500));
    }

    #[test]
    fn it_ends_at_its_number_and_enters_each_timer() {
        let ledger = Arc::new(Ledger::new(2, 7, 1));
        let mut creator = Creator::new(&shape(), Due::AfterMs(7), 2, Some(Arc::clone(&ledger)));
        let mut out = Vec::new();
        assert_eq!(creator.next(1, &mut out), Next::Sent(Operation::Create, 0));
        assert_eq!(creator.next(1, &mut out), Next::Sent(Operation::Create, 1));
        assert_eq!(creator.next(1, &mut out), Next::Finished);
        creator.answered(Operation::Create, 1, &Head::default());
        assert_eq!((ledger.owed(), creator.asked()), (1, 2));
        let mut stopped = Creator::new(&shape(), Due::AfterMs(7), 2, None).until(Box::new(|| true));
        assert_eq!(stopped.next(1, &mut out), Next::Finished);
    }
}
