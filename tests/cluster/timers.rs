//! A hundred timers: created, and judged by the callbacks that the sink got.
//!
//! Lateness is counted in ranks. A rank acts 2 s after the rank before it, so a pop that came less
//! than 2 s after it was due has waited for no other rank. Milliseconds are for commands that
//! measure. A story whose judgement fails is told again if the machine has stalled meanwhile.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use kit::noise;
use kit::runner::disturbed;

use super::harness::{Cluster, PATIENCE};
use super::sink::{Pop, Sink};

/// How many timers a story usually has.
pub const HUNDRED: usize = 100;
/// How many timers are asked for at one time.
const CREATORS: usize = 8;
/// Pause between two ranks.
pub const RANK_DELAY: Duration = Duration::from_secs(2);
/// If the machine was away for this long during a story, its failure proves nothing. A node that is
/// silent for a second is suspected, and after two seconds others act in its place.
pub const STALLED: Duration = Duration::from_millis(500);
/// After this time, none of three ranks acts on a pop any more.
pub const QUIET: Duration = Duration::from_millis(4_500);

/// Unless the machine was away, the news of a pop leaves its node within this time.
pub const NEWS: Duration = Duration::from_millis(500);

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

    /// Creates `count` timers over these nodes in turn, several at one time. One after the other
    /// they would take longer than their interval on a machine that is busy.
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
        let numbers: Vec<usize> = (0..count).collect();
        let all = thread::scope(|scope| {
            let one = &one;
            let create = |share: &[usize]| share.iter().map(|&number| one(number)).collect();
            let shares = numbers.chunks(count.div_ceil(CREATORS));
            let creators: Vec<_> =
                shares.map(|share| scope.spawn(move || -> Vec<Timer> { create(share) })).collect();
            let created = |creator: thread::ScopedJoinHandle<'_, Vec<Timer>>| {
                creator.join().unwrap_or_else(|payload| resume_unwind(payload))
            };
            creators.into_iter().flat_map(created).collect()
        });
        Timers { order, all, begun }
    }

    /// Returns when pop `number` (from 1) of the last timer is due at the latest.
    pub fn due(&self, number: u64) -> Instant {
        let last = self.all.iter().map(|timer| timer.answered).max().expect("timers");
        last + Duration::from_millis(self.order.interval_ms * number)
    }

    /// Reports whether the last pop is due.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.due(self.order.pops)
    }

    /// Sleeps until this long after the first timer was asked for. The story's next step must come
    /// before a certain pop is due. If the moment is over already, the machine has disturbed the
    /// story.
    pub fn sleep_until(&self, since_begun: Duration) {
        let left = (self.begun + since_begun).saturating_duration_since(Instant::now());
        if left.is_zero() {
            disturbed(format!("{since_begun:?} after the story's begin were over too soon"));
        }
        thread::sleep(left);
    }

    /// Ends this telling of the story as disturbed if a first pop may be due already.
    pub fn expect_none_due(&self) {
        let first = self.all.iter().map(|timer| timer.asked).min().expect("timers");
        if Instant::now() >= first + Duration::from_millis(self.order.interval_ms) {
            disturbed("timers were due too soon");
        }
    }

    /// Waits until every pop that must come has come, and [`QUIET`] more for pops that must not
    /// come. Then judges.
    pub fn judge(&self, sink: &Sink) -> Judgement {
        self.judge_after(sink, QUIET)
    }

    /// Judges as [`Timers::judge`] does, but waits `quiet` after the last due time.
    pub fn judge_after(&self, sink: &Sink, quiet: Duration) -> Judgement {
        let end = self.due(self.order.pops) + quiet;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        // A slow machine may owe pops still.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let judgement = Judgement::of(self, &sink.by_path());
            if judgement.lost.is_empty() || Instant::now() >= deadline {
                return judgement;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One pop that came, and how late it was.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The callback's path.
    pub path: String,
    /// The pop, from 1.
    pub sequence: u64,
    /// When the pop came.
    pub at: Instant,
    /// How many ranks the pop may have waited for. A pop of the first rank has 0, unless the
    /// machine was away for 2 s.
    pub ranks: u32,
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
    /// How long the machine stalled in all.
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
                    at: pop.at,
                    ranks: ranks_between(timer.asked + after, pop.at),
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

    /// When what comes again came the first time.
    pub fn first_at(&self, again: &Judged) -> Instant {
        let is_first = |pop: &&Judged| {
            pop.earlier == 0 && pop.path == again.path && pop.sequence == again.sequence
        };
        self.pops.iter().find(is_first).expect("what comes again came before").at
    }

    /// Pops that waited for more ranks than that. What comes again counts as doubled, not as late.
    pub fn beyond(&self, ranks: u32) -> Vec<&Judged> {
        self.pops.iter().filter(|pop| pop.earlier == 0 && pop.ranks > ranks).collect()
    }

    /// Returns the pops that waited for another rank.
    pub fn late(&self) -> Vec<&Judged> {
        self.beyond(0)
    }

    /// Checks a condition. If it does not hold and the machine stalled for [`STALLED`], the story
    /// is told again.
    #[track_caller]
    pub fn expect(&self, is_so: bool, what: impl std::fmt::Display) {
        if !is_so && self.stalled >= STALLED {
            disturbed(format!("{what}; {self}"));
        }
        assert!(is_so, "{what}; {self}");
    }

    /// Checks that no pop was lost or early, and that no callback came that no timer asked for. A
    /// cluster promises this whatever happens to it, as long as a replica of each timer lives.
    #[track_caller]
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
    #[track_caller]
    pub fn assert_once(&self) -> &Judgement {
        self.assert_none_lost();
        let doubled = self.doubled();
        self.expect(doubled.is_empty(), format_args!("doubled {doubled:?}"));
        assert_eq!(self.pops.len(), self.owed);
        self
    }

    /// Checks that no pop waited for more than `most` ranks.
    #[track_caller]
    pub fn assert_ranks(&self, most: u32) -> &Judgement {
        let late = self.beyond(most);
        self.expect(late.is_empty(), format_args!("waited for more than {most} ranks: {late:?}"));
        self
    }

    /// Checks that each pop came exactly once, and that none waited for a second rank.
    #[track_caller]
    pub fn assert_perfect(&self) {
        self.assert_once().assert_ranks(0);
    }
}

/// Returns how many ranks' delays lie between these moments.
pub fn ranks_between(due: Instant, came: Instant) -> u32 {
    (came.saturating_duration_since(due).as_millis() / RANK_DELAY.as_millis()) as u32
}

impl std::fmt::Display for Judgement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "of {} pops {} came, {} lost, {} doubled, {} after a rank's delay (stalls {:?}), {} \
             strange",
            self.owed,
            self.pops.len(),
            self.lost.len(),
            self.doubled().len(),
            self.late().len(),
            self.stalled,
            self.strange.len()
        )
    }
}
