//! A hundred timers: created, and judged by the callbacks that the sink got.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use kit::noise;

use super::harness::Cluster;
use super::sink::{Pop, Sink};

/// How many timers a story usually has.
pub const HUNDRED: usize = 100;
/// Pause between two ranks.
pub const RANK_DELAY: Duration = Duration::from_secs(2);
/// A pop of the first rank is late by less than this. The second rank would act at 2 s.
pub const PROMPT: Duration = Duration::from_millis(500);
/// After this time, none of three ranks acts on a pop any more.
pub const QUIET: Duration = Duration::from_millis(4_500);

/// The kind of timer that a story creates.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// How many pops a timer has. 1 is a timer without `repeat-for`.
    pub pops: u64,
    /// The member `replication-factor`. `None` leaves it out, which means 2.
    pub factor: Option<u8>,
}

impl Order {
    /// Makes an order of one pop with the default factor.
    pub fn once(interval_ms: u64) -> Order {
        Order { interval_ms, pops: 1, factor: None }
    }

    /// Returns the same order with this many pops.
    pub fn times(self, pops: u64) -> Order {
        Order { pops, ..self }
    }

    /// Returns the same order with this factor.
    pub fn factor(self, factor: u8) -> Order {
        Order { factor: Some(factor), ..self }
    }

    /// Returns the document of a timer with this callback.
    pub fn document(self, uri: &str, opaque: &str) -> String {
        let seconds = |ms: u64| ms as f64 / 1e3;
        let mut text = format!("{{\"timing\":{{\"interval\":{}", seconds(self.interval_ms));
        if self.pops > 1 {
            let whole = seconds(self.interval_ms * self.pops);
            write!(text, ",\"repeat-for\":{whole}").expect("memory");
        }
        write!(text, "}},\"callback\":{{\"http\":{{\"uri\":\"{uri}\",\"opaque\":\"{opaque}\"}}}}")
            .expect("memory");
        if let Some(factor) = self.factor {
            write!(text, ",\"reliability\":{{\"replication-factor\":{factor}}}").expect("memory");
        }
        text + "}"
    }
}

/// One timer that a node has acknowledged.
#[derive(Clone, Debug)]
pub struct Timer {
    /// The path of the timer's callback.
    pub path: String,
    /// The path of the timer at the nodes.
    pub location: String,
    /// A time before the request left.
    pub asked: Instant,
    /// A time after the answer came.
    pub answered: Instant,
}

/// Timers of one order.
pub struct Timers {
    pub order: Order,
    pub all: Vec<Timer>,
    /// When the first timer was asked for.
    pub begun: Instant,
}

impl Timers {
    /// Creates a hundred timers over these nodes in turn.
    pub fn hundred(cluster: &Cluster, places: &[usize], order: Order, sink: &Sink) -> Timers {
        Timers::some(cluster, places, order, sink, HUNDRED)
    }

    /// Creates `count` timers over these nodes in turn.
    pub fn some(
        cluster: &Cluster,
        places: &[usize],
        order: Order,
        sink: &Sink,
        count: usize,
    ) -> Timers {
        let begun = Instant::now();
        let one = |number: usize| {
            let path = format!("/pop/{number}");
            let document = order.document(&sink.uri(&path), &format!("opaque {number}"));
            let asked = Instant::now();
            let answer =
                cluster.request(places[number % places.len()], "POST", "/timers", &document);
            let location = answer.location().to_owned();
            Timer { path, location, asked, answered: Instant::now() }
        };
        Timers { order, all: (0..count).map(one).collect(), begun }
    }

    /// Returns when pop `number` (from 1) of the last timer is due at the latest.
    pub fn due(&self, number: u64) -> Instant {
        let last = self.all.iter().map(|timer| timer.answered).max().expect("timers");
        last + Duration::from_millis(self.order.interval_ms * number)
    }

    /// Sleeps until this long after the first timer was asked for. Panics if that time is over.
    pub fn sleep_until(&self, since_begun: Duration) {
        let at = self.begun + since_begun;
        let left = at.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "this machine is too slow for the story: {since_begun:?} is over");
        thread::sleep(left);
    }

    /// Waits until every pop must have come, and [`QUIET`] more for pops that must not come. Then
    /// judges.
    pub fn judge(&self, sink: &Sink) -> Judgement {
        self.judge_after(sink, QUIET)
    }

    /// Judges as [`Timers::judge`] does, but waits `quiet` after the last due time.
    pub fn judge_after(&self, sink: &Sink, quiet: Duration) -> Judgement {
        let end = self.due(self.order.pops) + quiet + noise::since(self.begun);
        thread::sleep(end.saturating_duration_since(Instant::now()));
        Judgement::of(self, &sink.by_path())
    }
}

/// One pop that came, and how late it was.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The callback's path.
    #[expect(dead_code, reason = "told by assertions that fail")]
    pub path: String,
    /// The pop, from 1.
    pub sequence: u64,
    /// How long after the latest time at which the pop may have been due it came.
    pub late: Duration,
    /// Whether the pop came before the earliest time at which it may have been due.
    pub is_early: bool,
    /// How often the same pop came before.
    pub earlier: usize,
}

/// The pops that came, compared with the timers that were created.
pub struct Judgement {
    /// All pops that came, by timer and in the order of arrival.
    pub pops: Vec<Judged>,
    /// Pops that never came: path and sequence.
    pub lost: Vec<(String, u64)>,
    /// Callbacks that no timer asked for.
    pub strange: Vec<Pop>,
    /// How many pops must come.
    owed: usize,
    /// How much lateness the machine's stalls may have added to each pop.
    stalled: Duration,
}

impl Judgement {
    fn of(timers: &Timers, by_path: &HashMap<String, Vec<Pop>>) -> Judgement {
        let order = timers.order;
        let mut judgement = Judgement {
            pops: Vec::new(),
            lost: Vec::new(),
            strange: Vec::new(),
            owed: timers.all.len() * order.pops as usize,
            stalled: noise::since(timers.begun),
        };
        let known: HashMap<_, _> = timers.all.iter().map(|one| (one.path.as_str(), one)).collect();
        for (path, pops) in by_path {
            let timer = known.get(path.as_str());
            let mut seen = HashMap::<u64, usize>::new();
            for pop in pops {
                let is_asked = (1..=order.pops).contains(&pop.sequence);
                let Some(timer) = timer.filter(|_| is_asked) else {
                    judgement.strange.push(pop.clone());
                    continue;
                };
                let after = Duration::from_millis(order.interval_ms * pop.sequence);
                let earlier = seen.entry(pop.sequence).or_default();
                judgement.pops.push(Judged {
                    path: path.clone(),
                    sequence: pop.sequence,
                    late: pop.at.saturating_duration_since(timer.answered + after),
                    is_early: pop.at < timer.asked + after,
                    earlier: *earlier,
                });
                *earlier += 1;
            }
        }
        for timer in &timers.all {
            let pops = by_path.get(&timer.path).map_or(&[][..], Vec::as_slice);
            for sequence in 1..=order.pops {
                if !pops.iter().any(|pop| pop.sequence == sequence) {
                    judgement.lost.push((timer.path.clone(), sequence));
                }
            }
        }
        judgement
    }

    /// Returns the pops that came again.
    pub fn doubled(&self) -> Vec<&Judged> {
        self.pops.iter().filter(|pop| pop.earlier > 0).collect()
    }

    /// Returns the pops that are later than `bound` and the machine's stalls. A pop that came again
    /// counts as doubled, not as late.
    pub fn later_than(&self, bound: Duration) -> Vec<&Judged> {
        let is_late = |pop: &&Judged| pop.earlier == 0 && pop.late > bound + self.stalled;
        self.pops.iter().filter(is_late).collect()
    }

    /// Checks that no pop was lost or early, and that no callback came that no timer asked for. A
    /// cluster promises this whatever happens to it, as long as a replica of each timer lives.
    pub fn assert_none_lost(&self) -> &Judgement {
        let early: Vec<_> = self.pops.iter().filter(|pop| pop.is_early).collect();
        assert!(
            self.lost.is_empty() && early.is_empty() && self.strange.is_empty(),
            "{self}; lost {:?}; early {early:?}; strange {:?}",
            self.lost,
            self.strange
        );
        self
    }

    /// Checks that each pop came exactly once.
    pub fn assert_once(&self) -> &Judgement {
        self.assert_none_lost();
        assert!(self.doubled().is_empty(), "{self}; doubled {:?}", self.doubled());
        assert_eq!(self.pops.len(), self.owed);
        self
    }

    /// Checks that no pop was later than `bound`.
    pub fn assert_within(&self, bound: Duration) -> &Judgement {
        let late = self.later_than(bound);
        assert!(late.is_empty(), "{self}; later than {bound:?}: {late:?}");
        self
    }

    /// Checks that each pop came exactly once, and that none waited for a second rank.
    pub fn assert_perfect(&self) {
        self.assert_once().assert_within(PROMPT);
    }
}

impl std::fmt::Display for Judgement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "of {} pops {} came, {} lost, {} doubled, {} later than {PROMPT:?} (stalls {:?}), {} \
             strange",
            self.owed,
            self.pops.len(),
            self.lost.len(),
            self.doubled().len(),
            self.later_than(PROMPT).len(),
            self.stalled,
            self.strange.len()
        )
    }
}
