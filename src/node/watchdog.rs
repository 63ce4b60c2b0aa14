//! What turns over their budget have done (`limits.turn_budget_us`). A core reads the clock when a
//! turn begins and when it ends, and while it takes requests now and then. The other steps of a
//! turn are timed in the minute after a turn over the budget alone, so that a core whose turns are
//! short pays for no more readings.

use crate::base::time::MonoNs;
use crate::core::turn::{STEPS, Step};
use crate::node::meters::{CoreMeters, Counter};
use crate::ring::monotonic;

/// How long in ms the steps of turns are timed after a turn over the budget.
const WATCH_MS: u64 = 60_000;

/// What took most of a turn's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Requests and lines of clients.
    Requests,
    /// Pops: the wheel, and callbacks that begin and end.
    Pops,
    /// What arrives besides requests: messages of peers and siblings, handshakes, orders.
    Arrivals,
    /// Messages to peers, the journal, answers.
    Sends,
    /// Not known: the steps were not timed.
    Unknown,
}

/// The counter of a kind of work.
type CounterOf = fn(&CoreMeters) -> &Counter;

impl Work {
    /// All, with the counter of each and the words of the log.
    pub const ALL: [(Work, &'static str, CounterOf); 5] = [
        (Work::Requests, "requests", |core| &core.turns_over_budget_of_requests),
        (Work::Pops, "pops", |core| &core.turns_over_budget_of_pops),
        (Work::Arrivals, "arrivals", |core| &core.turns_over_budget_of_arrivals),
        (Work::Sends, "sends", |core| &core.turns_over_budget_of_sends),
        (Work::Unknown, "unknown", |core| &core.turns_over_budget_of_unknown),
    ];

    fn of(step: Step) -> Self {
        match step {
            Step::Arrivals | Step::Siblings => Work::Arrivals,
            Step::Ended | Step::Wheel | Step::Overdue => Work::Pops,
            Step::Peers | Step::Journal | Step::Answers | Step::Wakes => Work::Sends,
        }
    }

    /// Counts a turn over the budget.
    pub fn count(self, meters: &CoreMeters) {
        Work::ALL
            .iter()
            .filter(|(work, ..)| *work == self)
            .for_each(|(_, _, of)| of(meters).add(1));
    }
}

/// Times the steps of a core's turns, if it must.
#[derive(Debug, Default)]
pub struct Watchdog {
    is_on: bool,
    /// Until when steps are timed.
    until: MonoNs,
    last: MonoNs,
    steps_ns: [u64; STEPS.len()],
}

impl Watchdog {
    /// Begins a turn.
    #[inline]
    pub fn begin(&mut self, at: MonoNs) {
        self.is_on = at < self.until;
        if self.is_on {
            (self.last, self.steps_ns) = (at, Default::default());
        }
    }

    /// Ends a step of a turn.
    #[inline]
    pub fn ended(&mut self, step: Step) {
        if self.is_on {
            self.note(step, monotonic());
        }
    }

    fn note(&mut self, step: Step, now: MonoNs) {
        if let Some(ns) = self.steps_ns.get_mut(step as usize) {
            *ns = now.since_ns(self.last);
        }
        self.last = now;
    }

    /// What took most of a turn that was over the budget. `requests_ns` is how long it is known to
    /// have taken requests.
    #[cold]
    pub fn judge(&mut self, (began, ended): (MonoNs, MonoNs), requests_ns: u64) -> Work {
        self.until = ended.plus_ms(WATCH_MS);
        if requests_ns >= ended.since_ns(began) / 2 {
            return Work::Requests;
        }
        let longest = STEPS.iter().zip(self.steps_ns).max_by_key(|(_, ns)| *ns);
        match longest.filter(|_| self.is_on) {
            Some((step, ns)) if *step == Step::Arrivals && requests_ns > ns / 2 => Work::Requests,
            Some((step, _)) => Work::of(*step),
            None => Work::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_over_the_budget_is_told_by_what_it_did() {
        let ms = |ms| MonoNs(0).plus_ms(ms);
        let mut watchdog = Watchdog::default();
        watchdog.begin(ms(1));
        assert_eq!(watchdog.judge((ms(1), ms(5)), 3_000_000), Work::Requests);
        assert_eq!(Watchdog::default().judge((ms(1), ms(5)), 1_000_000), Work::Unknown);
        // From then on the steps are timed.
        for (step, work) in [
            (Step::Arrivals, Work::Arrivals),
            (Step::Siblings, Work::Arrivals),
            (Step::Wheel, Work::Pops),
            (Step::Ended, Work::Pops),
            (Step::Journal, Work::Sends),
        ] {
            watchdog.begin(ms(10));
            assert!(watchdog.is_on);
            let mut now = ms(10);
            for each in STEPS {
                now = MonoNs(now.0 + if each == step { 5_000_000 } else { 1_000 });
                watchdog.note(each, now);
            }
            assert_eq!(watchdog.judge((ms(10), now), 1_000), work, "{step:?}");
            assert_eq!(watchdog.judge((ms(10), now), 4_000_000), Work::Requests, "{step:?}");
        }
        watchdog.begin(ms(10 + 2 * WATCH_MS));
        assert!(!watchdog.is_on, "a minute without one");
        let meters = CoreMeters::default();
        Work::Pops.count(&meters);
        assert_eq!(meters.turns_over_budget_of_pops.get(), 1);
        assert_eq!(meters.turns_over_budget_of_requests.get(), 0);
    }
}
