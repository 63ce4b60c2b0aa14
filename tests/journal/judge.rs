//! Whether nodes kept what they acknowledged.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::load::{Timer, Wish};
use super::sink::Pop;

/// A pop that was due so long before a node died may be known to the sink only. One that is made
/// late by another replica comes sooner.
const SLACK: Duration = Duration::from_secs(3);

/// A time in which no node ran.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// When the first node was ended.
    pub ended: Instant,
    /// When the first was started again.
    pub started: Instant,
    /// When all served again.
    pub served: Instant,
}

/// What became of the timers whose last acknowledged request fell between two outages.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Requests that were acknowledged.
    pub acknowledged: u64,
    /// Timers that the last acknowledged request defined, or a later one that was not acknowledged.
    pub timers: u64,
    /// Those that popped for the last time.
    pub kept: u64,
    /// Those that did not.
    pub lost: u64,
    /// Pops that were due while nodes ran and never came.
    pub left_out: u64,
    /// Pops of a definition that was deleted or replaced before an outage, after the outage.
    pub returned: u64,
    /// Pops that came more than once.
    pub repeated: u64,
    /// Pops whose number is below that of an earlier one.
    pub fallen: u64,
    /// Pops with other opaque data than was sent.
    pub altered: u64,
}

impl Counts {
    /// Whether every promise was kept.
    pub fn is_right(&self) -> bool {
        self.lost + self.left_out + self.returned + self.fallen + self.altered == 0
    }

    /// Adds those of another time.
    pub fn add(&mut self, other: &Counts) {
        self.acknowledged += other.acknowledged;
        self.timers += other.timers;
        self.kept += other.kept;
        self.lost += other.lost;
        self.left_out += other.left_out;
        self.returned += other.returned;
        self.repeated += other.repeated;
        self.fallen += other.fallen;
        self.altered += other.altered;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{} requests acknowledged; of {} timers {} kept, {} lost; pops: {} left out, {} of \
             what was deleted or replaced, {} repeated, {} with lower numbers, {} altered",
            self.acknowledged,
            self.timers,
            self.kept,
            self.lost,
            self.left_out,
            self.returned,
            self.repeated,
            self.fallen,
            self.altered
        )
    }
}

/// The moment at which the last pop of all definitions is due.
pub fn last_due(timers: &[Timer]) -> Instant {
    let last = timers.iter().flat_map(|timer| &timer.asked).map(|asked| match asked.wish {
        Wish::Defined { interval_ms, pops } => {
            asked.acknowledged.unwrap_or(asked.sent) + Duration::from_millis(interval_ms * pops)
        }
        Wish::Deleted => asked.sent,
    });
    last.max().unwrap_or_else(Instant::now)
}

/// Judges all timers. Returns the counts by the number of outages before the last acknowledged
/// request, and a sentence for each of the first broken promises.
pub fn judge(timers: &[Timer], pops: &[Pop], outages: &[Outage]) -> (Vec<Counts>, Vec<String>) {
    let mut by_path: HashMap<&str, Vec<&Pop>> = HashMap::new();
    for pop in pops {
        by_path.entry(&pop.path).or_default().push(pop);
    }
    let mut all = vec![Counts::default(); outages.len() + 1];
    let mut broken = Vec::new();
    for timer in timers {
        let Some(last) = timer.asked.iter().rposition(|asked| asked.acknowledged.is_some()) else {
            continue;
        };
        let when = timer.asked[last].acknowledged.expect("found by it");
        let turn = outages.iter().filter(|outage| outage.ended < when).count();
        let case = Case { timer, last, by_path: &by_path, outages };
        let counts = case.judge();
        if !counts.is_right() {
            broken.push(format!("turn {turn}, {counts}: {}", case.history()));
        }
        all[turn].add(&counts);
    }
    (all, broken)
}

/// One timer.
struct Case<'a> {
    timer: &'a Timer,
    /// The last request that was acknowledged.
    last: usize,
    by_path: &'a HashMap<&'a str, Vec<&'a Pop>>,
    outages: &'a [Outage],
}

impl Case<'_> {
    fn pops(&self, definition: usize) -> &[&Pop] {
        let path = format!("/{}/{definition}", self.timer.key);
        self.by_path.get(&*path).map_or(&[], Vec::as_slice)
    }

    fn judge(&self) -> Counts {
        let asked = &self.timer.asked;
        let acknowledged = asked.iter().filter(|one| one.acknowledged.is_some()).count() as u64;
        let mut counts = Counts { acknowledged, ..Counts::default() };
        // What may hold: the last that was acknowledged, or one behind it.
        let may_hold = &asked[self.last..];
        if may_hold.iter().all(|one| one.wish != Wish::Deleted) {
            counts.timers = 1;
            let is_done = (self.last..asked.len()).any(|at| self.is_done(at));
            (counts.kept, counts.lost) = (is_done.into(), (!is_done).into());
        }
        for at in 0..asked.len() {
            self.judge_pops(at, &mut counts);
        }
        counts
    }

    /// Whether the last pop of a definition came.
    fn is_done(&self, at: usize) -> bool {
        let Wish::Defined { pops, .. } = self.timer.asked[at].wish else { return false };
        self.pops(at).iter().any(|pop| pop.sequence == pops)
    }

    fn judge_pops(&self, at: usize, counts: &mut Counts) {
        let Wish::Defined { interval_ms, pops } = self.timer.asked[at].wish else { return };
        let came = self.pops(at);
        for (place, pop) in came.iter().enumerate() {
            let before = &came[..place];
            let is_repeated = before.iter().any(|other| other.sequence == pop.sequence);
            let has_fallen = before.iter().any(|other| other.sequence > pop.sequence);
            counts.repeated += u64::from(is_repeated);
            counts.fallen += u64::from(has_fallen);
            counts.altered += u64::from(pop.body != self.timer.key);
        }
        let voided = self.timer.asked[at + 1..].iter().find_map(|one| one.acknowledged);
        if let Some(voided) = voided
            && let Some(outage) = self.outages.iter().find(|outage| outage.ended > voided)
        {
            counts.returned += came.iter().filter(|pop| pop.at > outage.started).count() as u64;
        }
        let Some(acknowledged) = self.timer.asked[at].acknowledged else { return };
        let until = self.timer.asked.get(at + 1).map(|one| one.sent);
        for number in 1..=pops {
            let after = Duration::from_millis(interval_ms * number);
            let (from, to) = (self.timer.asked[at].sent + after, acknowledged + after + SLACK);
            let is_in_effect = until.is_none_or(|until| to < until);
            let is_disturbed =
                self.outages.iter().any(|outage| outage.ended < to && from < outage.served);
            let has_come = came.iter().any(|pop| pop.sequence == number);
            counts.left_out += u64::from(is_in_effect && !is_disturbed && !has_come);
        }
    }

    /// All that was asked for and all that came, in ms since the first request.
    fn history(&self) -> String {
        let begin = self.timer.asked[0].sent;
        let ms = |at: Instant| at.saturating_duration_since(begin).as_millis();
        let mut text = self.timer.key.clone();
        for (at, asked) in self.timer.asked.iter().enumerate() {
            let answered = asked.acknowledged.map(ms);
            text +=
                &format!("\n  {} ms: {at} {:?}, answered {answered:?}", ms(asked.sent), asked.wish);
            for pop in self.pops(at) {
                text += &format!("\n    {} ms: pop {}", ms(pop.at), pop.sequence);
            }
        }
        for outage in self.outages.iter().filter(|outage| outage.served > begin) {
            let (ended, served) = (ms(outage.ended), ms(outage.served));
            text += &format!("\n  no node from {ended} to {served} ms");
        }
        text
    }
}
