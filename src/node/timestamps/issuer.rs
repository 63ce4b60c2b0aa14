//! Where one core takes timestamps: the oracle that all cores share, the master's address, the term
//! of what was made in this turn and may not have left yet, and the counters.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::time::MonoNs;
use crate::shard::effects::Requester;
use crate::timestamp::clock::ClockLine;
use crate::timestamp::oracle::{Oracle, Refusal, Term};
use crate::timestamp::{RANGE_MAX, Timestamp};

/// How long in ms a request waits for the next millisecond, or until a higher bound is stored. Both
/// come within milliseconds when all is well.
pub const WAIT_MS: u64 = 1_000;
/// Most HTTP requests that wait for their timestamps on one core.
const ASKED_MAX: usize = 16_384;
/// Pause in ns between two looks whether a higher bound has been stored. The keeper does not wake
/// the cores.
const WINDOW_LOOK_NS: u64 = 1_000_000;

/// Why a request gets no timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// This process is not the master, or cannot prove that it is.
    NotServing,
    /// The range is missing, below 1 or above [`RANGE_MAX`].
    Range,
    /// The request has waited for [`WAIT_MS`], or too many other requests wait.
    Waited,
}

/// Why a request is not answered with timestamps at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The request may succeed in a turn at or after [`Issuer::retry_at`].
    Wait,
    /// The request will not succeed.
    Refused(Denial),
}

/// What a core counts of timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampCounters {
    /// Timestamps handed out.
    pub timestamps: u64,
    /// Requests that got timestamps.
    pub calls: u64,
    /// Requests that got more than one timestamp.
    pub ranges: u64,
    /// Requests refused because this process is not the master.
    pub refused_not_serving: u64,
    /// Requests refused because of their range.
    pub refused_range: u64,
    /// Requests refused because they had waited too long, or too many others waited.
    pub refused_waited: u64,
    /// Requests for methods that do not exist.
    pub unknown_methods: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests whose timestamps were made and did not leave, because the mastership had ended.
    pub withheld: u64,
}

/// An HTTP request for timestamps.
#[derive(Clone, Copy, Debug)]
struct Asked {
    from: Requester,
    count: u32,
    since: Option<MonoNs>,
}

/// The result of an HTTP request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issued {
    /// Where the answer goes.
    pub to: Requester,
    /// How many timestamps were asked for.
    pub count: u32,
    /// The first timestamp, or why there is none.
    pub result: Result<Timestamp, Denial>,
}

/// The mastership under which the timestamps of this turn were made.
#[derive(Clone, Copy, Debug)]
enum Made {
    Nothing,
    Under(Term),
    /// Several: only the last can still stand, and nobody knows which timestamp is whose.
    Mixed,
}

/// The timestamps of one core.
#[derive(Debug)]
pub struct Issuer {
    /// What this core counted of timestamps.
    pub counters: TimestampCounters,
    oracle: Arc<Oracle>,
    master: Option<Arc<str>>,
    made: Made,
    retry_at: MonoNs,
    asked: VecDeque<Asked>,
    issued: VecDeque<Issued>,
}

impl Issuer {
    /// An issuer that takes from this oracle.
    pub fn new(oracle: Arc<Oracle>) -> Self {
        Self {
            counters: TimestampCounters::default(),
            oracle,
            master: None,
            made: Made::Nothing,
            retry_at: MonoNs(u64::MAX),
            asked: VecDeque::new(),
            issued: VecDeque::new(),
        }
    }

    /// Sets the address of the master. `None`: no master is known.
    pub fn set_master(&mut self, master: Option<Arc<str>>) {
        self.master = master;
    }

    /// The address of the master, if it is known.
    pub fn master(&self) -> Option<&str> {
        self.master.as_deref()
    }

    /// Takes `count` timestamps and returns the first. It must not leave before
    /// [`Issuer::may_leave`] has returned `true`. `since` is when the request was first told to
    /// wait.
    #[inline]
    pub fn take(
        &mut self,
        now: MonoNs,
        count: u32,
        since: Option<MonoNs>,
    ) -> Result<Timestamp, Denied> {
        match self.oracle.take(now, count) {
            Ok((first, term)) => {
                self.made = match self.made {
                    Made::Nothing => Made::Under(term),
                    Made::Under(earlier) if earlier == term => Made::Under(term),
                    Made::Under(_) | Made::Mixed => Made::Mixed,
                };
                self.counters.calls += 1;
                self.counters.timestamps += u64::from(count);
                self.counters.ranges += u64::from(count > 1);
                Ok(first)
            }
            Err(refusal) => Err(self.deny(now, refusal, since)),
        }
    }

    #[cold]
    fn deny(&mut self, now: MonoNs, refusal: Refusal, since: Option<MonoNs>) -> Denied {
        let denial = match refusal {
            Refusal::NotServing => Denial::NotServing,
            Refusal::Range => Denial::Range,
            Refusal::NextMillisecond | Refusal::Window => {
                if since.is_none_or(|since| now < since.plus_ms(WAIT_MS)) {
                    let pause_ns = match refusal {
                        Refusal::Window => WINDOW_LOOK_NS,
                        _ => next_ms_in_ns(&self.oracle.terms().0.clock, now),
                    };
                    self.retry_at = self.retry_at.min(MonoNs(now.0 + pause_ns));
                    self.counters.waits += u64::from(since.is_none());
                    return Denied::Wait;
                }
                Denial::Waited
            }
        };
        match denial {
            Denial::NotServing => self.counters.refused_not_serving += 1,
            Denial::Range => self.counters.refused_range += 1,
            Denial::Waited => self.counters.refused_waited += 1,
        }
        Denied::Refused(denial)
    }

    /// Returns the reason of a denial, for people.
    pub fn reason(&self, denial: Denial) -> String {
        match denial {
            Denial::NotServing => match &self.master {
                Some(master) => format!("not the master; the master is {master}"),
                None => "not the master, and no master is known; try again".into(),
            },
            Denial::Range => format!("range: expected 1 to {RANGE_MAX}"),
            Denial::Waited => {
                "more timestamps are asked for than there are, or the bound is not stored in time; \
                 try again"
                    .into()
            }
        }
    }

    /// Returns whether the timestamps taken since the last call may leave. `fresh` must be a clock
    /// reading made after the last of them.
    pub fn may_leave(&mut self, fresh: MonoNs) -> bool {
        match std::mem::replace(&mut self.made, Made::Nothing) {
            Made::Nothing => true,
            Made::Under(term) => self.oracle.holds(fresh, term),
            Made::Mixed => false,
        }
    }

    /// Returns whether timestamps were taken since the last [`Issuer::may_leave`].
    pub fn has_made(&self) -> bool {
        !matches!(self.made, Made::Nothing)
    }

    /// When waiting requests should be tried again; `u64::MAX` if none waits.
    pub fn retry_at(&self) -> MonoNs {
        self.retry_at
    }

    /// Returns whether it is time to try all waiting requests again. If it is, the caller must do
    /// so.
    pub fn begin_retry(&mut self, now: MonoNs) -> bool {
        let is_time = now >= self.retry_at;
        if is_time {
            self.retry_at = MonoNs(u64::MAX);
        }
        is_time
    }

    /// Takes an HTTP request. [`Issuer::serve_asked`] serves it.
    pub fn ask(&mut self, from: Requester, count: u32) {
        let asked = Asked { from, count, since: None };
        if self.asked.len() < ASKED_MAX {
            return self.asked.push_back(asked);
        }
        self.counters.refused_waited += 1;
        self.issued.push_back(Issued::of(&asked, Err(Denial::Waited)));
    }

    /// How many HTTP requests wait.
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Serves the HTTP requests in order, up to the first that must wait. The timestamps must not
    /// leave before [`Issuer::may_leave`] has returned `true`.
    pub fn serve_asked(&mut self, now: MonoNs) {
        while let Some(mut asked) = self.asked.pop_front() {
            match self.take(now, asked.count, asked.since) {
                Ok(first) => self.issued.push_back(Issued::of(&asked, Ok(first))),
                Err(Denied::Refused(denial)) => {
                    self.issued.push_back(Issued::of(&asked, Err(denial)));
                }
                Err(Denied::Wait) => {
                    asked.since.get_or_insert(now);
                    self.asked.push_front(asked);
                    return;
                }
            }
        }
    }

    /// Returns the next HTTP request to be answered. `may_leave` says whether the timestamps made
    /// for it may leave.
    pub fn next_issued(&mut self, may_leave: bool) -> Option<Issued> {
        let mut issued = self.issued.pop_front()?;
        if issued.result.is_ok() && !may_leave {
            issued.result = Err(Denial::NotServing);
            self.counters.withheld += 1;
        }
        Some(issued)
    }
}

impl Issued {
    fn of(asked: &Asked, result: Result<Timestamp, Denial>) -> Self {
        Self { to: asked.from, count: asked.count, result }
    }
}

/// Returns the nanoseconds until the clock shows the next millisecond: twice as many while the
/// clock goes at half speed. If the clock returns to full speed meanwhile, the result is a little
/// late.
fn next_ms_in_ns(clock: &ClockLine, now: MonoNs) -> u64 {
    let ahead_ns = clock.ahead_ns(now);
    let rest_ns = 1_000_000 - (clock.wall_offset_ns + now.0 + ahead_ns) % 1_000_000;
    if ahead_ns > 0 { 2 * rest_ns } else { rest_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::oracle::Terms;

    const MS: u64 = 1_000_000;

    fn terms(until_ms: u64, bound_ms: u64) -> Terms {
        let clock = ClockLine { wall_offset_ns: 1_000 * MS, ..ClockLine::ZERO };
        Terms {
            until: MonoNs(until_ms * MS),
            bound: Timestamp::of_unix_ms(1_000 + bound_ms),
            clock,
        }
    }

    fn issuer(terms: &Terms) -> (Arc<Oracle>, Issuer) {
        let oracle = Arc::new(Oracle::default());
        oracle.begin(Timestamp(0), terms);
        (oracle.clone(), Issuer::new(oracle))
    }

    #[test]
    fn a_full_millisecond_makes_wait_until_the_next_begins() {
        let (_, mut issuer) = issuer(&terms(100, 100));
        let now = MonoNs(5 * MS + 300_000);
        assert_eq!(issuer.take(now, RANGE_MAX, None), Ok(Timestamp::of_unix_ms(1_005)));
        assert_eq!(issuer.take(now, 1, None), Err(Denied::Wait));
        assert_eq!(issuer.retry_at(), MonoNs(6 * MS));
        assert!(!issuer.begin_retry(MonoNs(6 * MS - 1)));
        assert!(issuer.begin_retry(MonoNs(6 * MS)));
        let next = issuer.take(MonoNs(6 * MS), 1, Some(now));
        assert_eq!(next, Ok(Timestamp::of_unix_ms(1_006)));
        assert_eq!((issuer.counters.waits, issuer.counters.calls), (1, 2));
    }

    #[test]
    fn while_the_clock_goes_at_half_speed_a_millisecond_lasts_two() {
        let clock = ClockLine { wall_offset_ns: 0, ahead_ns: 100 * MS, ahead_at: MonoNs(0) };
        let now = MonoNs(MS / 2);
        let wake = MonoNs(now.0 + next_ms_in_ns(&clock, now));
        assert_eq!(clock.unix_ms(now), 100);
        assert_eq!(clock.unix_ms(MonoNs(wake.0 - 2)), 100);
        assert_eq!(clock.unix_ms(wake), 101);
    }

    #[test]
    fn what_waits_for_storage_is_refused_after_a_second() {
        let (_, mut issuer) = issuer(&terms(5_000, 2));
        let since = MonoNs(2 * MS);
        assert_eq!(issuer.take(since, 1, None), Err(Denied::Wait));
        let late = since.plus_ms(WAIT_MS);
        assert_eq!(issuer.take(MonoNs(late.0 - 1), 1, Some(since)), Err(Denied::Wait));
        assert_eq!(issuer.take(late, 1, Some(since)), Err(Denied::Refused(Denial::Waited)));
        assert_eq!((issuer.counters.waits, issuer.counters.refused_waited), (1, 1));
    }

    #[test]
    fn nothing_leaves_after_the_mastership() {
        let (oracle, mut issuer) = issuer(&terms(100, 100));
        assert!(issuer.take(MonoNs(MS), 1, None).is_ok());
        assert!(issuer.has_made() && issuer.may_leave(MonoNs(2 * MS)));
        assert!(issuer.take(MonoNs(3 * MS), 1, None).is_ok());
        assert!(!issuer.may_leave(MonoNs(100 * MS)), "the lease was over before it left");
        assert!(issuer.take(MonoNs(4 * MS), 1, None).is_ok());
        oracle.revoke();
        oracle.begin(Timestamp(0), &terms(100, 100));
        assert!(issuer.take(MonoNs(5 * MS), 1, None).is_ok(), "of another mastership");
        assert!(!issuer.may_leave(MonoNs(5 * MS)));
        assert!(!issuer.has_made() && issuer.may_leave(MonoNs(6 * MS)));
        let refused = Err(Denied::Refused(Denial::NotServing));
        assert_eq!(issuer.take(MonoNs(100 * MS), 1, None), refused);
        assert_eq!(issuer.take(MonoNs(MS), 0, None), Err(Denied::Refused(Denial::Range)));
    }
}
