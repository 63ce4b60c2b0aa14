//! Compares a history with docs/guarantees.md. A rule names the line that it checks. A broken rule
//! is excused only by a fault that the page names for that rule.

use std::collections::BTreeMap;

use super::history::{
    Act, Fault, History, Kind, MS, Ns, Outcome, Pop, Read, SECOND, Timer, TimerNumber, Wish, Write,
};
use super::judge_actions;
use super::judge_letters;
use super::judge_sites::{is_emptied, known_at, known_from, run_elsewhere, was_undone, were_apart};

/// How long after an event this process may see it on a busy machine.
pub const SLACK: Ns = SECOND;
/// A pop that has not come this long after it was due is lost. A rank waits 2 s for each rank
/// before it, and a failed callback is tried again within 7.5 s.
pub const LOST_AFTER: Ns = 30 * SECOND;
/// A pop is made in calm if there was no fault within this time before it.
const CALM: Ns = 12 * SECOND;
/// A pop that a calm cluster makes later than this is late.
const LATE: Ns = 100 * MS;
/// How far the wall clock of this process may run from its monotonic one in a run.
const DRIFT: Ns = 5 * MS;

/// A rule that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: &'static str,
    pub timer: Option<TimerNumber>,
    pub at: Ns,
    pub what: String,
}

/// Returns all violations in the order in which they happened.
pub fn judge(history: &History, judges_lateness: bool) -> Vec<Violation> {
    let deliveries = Deliveries::of(history);
    let mut found = Vec::new();
    history.pops.iter().for_each(|pop| is_meant(history, pop, &mut found));
    judge_actions::rules_are_kept(history, &mut found);
    for (number, timer) in history.timers.iter().enumerate() {
        let case = Case { history, number, timer, deliveries: &deliveries };
        case.none_lost(&mut found);
        case.none_doubled(&mut found);
        case.sequences_rise(&mut found);
        case.reads_are_right(&mut found);
        judge_actions::pauses_are_kept(history, number, &mut found);
        judge_letters::letters_are_kept(history, number, &mut found);
        if judges_lateness {
            case.none_late(&mut found);
        }
    }
    if let Some(copies) = history.copies.filter(|copies| copies.held != copies.expected) {
        let what = format!("{} copies are held, expected {}", copies.held, copies.expected);
        found.push(Violation { rule: "every copy is held", timer: None, at: history.ended, what });
    }
    for (at, what) in &history.troubles {
        let what = what.clone();
        found.push(Violation { rule: "orders end well", timer: None, at: *at, what });
    }
    found.sort_by_key(|violation| violation.at);
    found
}

/// Returns how late pops were, in nanoseconds: pops in calm, and pops near faults.
pub fn lateness(history: &History) -> (Vec<Ns>, Vec<Ns>) {
    let (mut calm, mut near) = (Vec::new(), Vec::new());
    let deliveries = Deliveries::of(history);
    for (number, timer) in history.timers.iter().enumerate() {
        let case = Case { history, number, timer, deliveries: &deliveries };
        case.each_first(|due, pop| {
            let late = pop.at.saturating_sub(due);
            let into = if case.is_calm(due, pop.at) { &mut calm } else { &mut near };
            into.push(late);
        });
    }
    calm.sort_unstable();
    near.sort_unstable();
    (calm, near)
}

/// Returns how many pops must still come. None of them is lost yet, but the run should not end
/// before they come.
pub fn missing(history: &History, now: Ns) -> usize {
    let deliveries = Deliveries::of(history);
    let cases = history.timers.iter().enumerate();
    let count = |(number, timer): (usize, &Timer)| {
        let case = Case { history, number, timer, deliveries: &deliveries };
        case.required(now)
            .iter()
            .filter(|(write, sequence, _)| !case.came(*write, *sequence))
            .count()
    };
    cases.map(count).sum()
}

/// Callbacks that ended their pops, by timer, write and sequence number, in order of arrival: they
/// were answered 200, or are the only attempt at a pop that becomes a dead letter.
struct Deliveries<'a>(BTreeMap<(usize, usize, u64), Vec<&'a Pop>>);

impl<'a> Deliveries<'a> {
    fn of(history: &'a History) -> Deliveries<'a> {
        let mut all: BTreeMap<_, Vec<&Pop>> = BTreeMap::new();
        let ends = |pop: &&Pop| pop.replay == 0 && (pop.status == 200 || pop.status == 500);
        for pop in history.pops.iter().filter(ends) {
            all.entry((pop.timer, pop.write, pop.sequence)).or_default().push(pop);
        }
        all.values_mut().for_each(|pops| pops.sort_by_key(|pop| pop.at));
        Deliveries(all)
    }

    fn get(&self, timer: usize, write: usize, sequence: u64) -> &[&'a Pop] {
        self.0.get(&(timer, write, sequence)).map_or(&[], Vec::as_slice)
    }
}

/// "A pop is never early." "From the answer on only the new definition pops." "After the answer to a
/// DELETE no further callback begins." "There are floor(repeat-for / interval) of them."
fn is_meant(history: &History, pop: &Pop, found: &mut Vec<Violation>) {
    let mut broken = |rule, what| {
        found.push(Violation { rule, timer: Some(pop.timer), at: pop.at, what });
    };
    let timer = history.timers.get(pop.timer);
    let Some(write) = timer.and_then(|timer| timer.writes.get(pop.write)) else {
        // A write is recorded when it has ended. This write was under way as the run ended.
        return;
    };
    let timer = &history.timers[pop.timer];
    let Some((due, _)) = write.due(pop.sequence, &history.clock) else {
        return broken("only timers pop", format!("{pop:?}"));
    };
    if !pop.is_whole {
        broken("the body is the opaque text", format!("{pop:?}"));
    }
    match write.wish {
        Wish::Timer { pops, .. } if pop.sequence == 0 || pop.sequence > pops => {
            broken("as many pops as repeat-for holds", format!("{pop:?} of {pops}"));
        }
        Wish::Cron { every_s, .. } if !pop.sequence.is_multiple_of(every_s) => {
            broken("pops of the calendar are those of its plan", format!("{pop:?} of {every_s}"));
        }
        _ => {}
    }
    let runs = timer.actions_on(pop.write).filter(|action| action.act == Act::RunNow);
    let run = runs.map(|action| action.sent).min().unwrap_or(Ns::MAX);
    let run = run.min(run_elsewhere(history, timer, pop.write));
    let drift = if matches!(write.wish, Wish::Cron { .. }) { DRIFT } else { 0 };
    let due_min = due.min(run).saturating_sub(drift);
    if pop.at < due_min {
        let early_us = (due_min - pop.at) / 1_000;
        broken("never early", format!("{pop:?} is at least {early_us} us early"));
    }
    let later = (pop.write + 1..timer.writes.len())
        .filter(|index| !was_undone(history, timer, *index))
        .filter_map(|index| timer.writes[index].acknowledged());
    let Some(replaced) = later.min() else { return };
    let replaced = known_from(history, replaced);
    let grace = SLACK + stalled(history, replaced, pop.at);
    let is_excused = is_tainted(timer, pop.write + 1) || was_frozen_with(history, write, pop);
    if pop.at > replaced + grace && !is_excused {
        let late_ms = (pop.at - replaced) / MS;
        let what = format!("{pop:?} came {late_ms} ms after a later write was acknowledged");
        broken("nothing pops after a later write", what);
    }
}

/// One timer of a history.
struct Case<'a> {
    history: &'a History,
    number: TimerNumber,
    timer: &'a Timer,
    deliveries: &'a Deliveries<'a>,
}

impl Case<'_> {
    fn came(&self, write: usize, sequence: u64) -> bool {
        !self.deliveries.get(self.number, write, sequence).is_empty()
    }

    fn broken(&self, found: &mut Vec<Violation>, rule: &'static str, at: Ns, what: String) {
        found.push(Violation { rule, timer: Some(self.number), at, what });
    }

    /// Returns the pops that must have come by `now`: pops of acknowledged writes, unless a later
    /// write may have taken their place. Each is given as write, sequence number and the latest
    /// time at which it is due.
    fn required(&self, now: Ns) -> Vec<(usize, u64, Ns)> {
        let mut required = Vec::new();
        for (index, write) in self.timer.writes.iter().enumerate() {
            let is_undone = was_undone(self.history, self.timer, index);
            if write.acknowledged().is_none() || is_undone || is_tainted(self.timer, index) {
                continue;
            }
            let replaced = self.timer.replaced_from(index);
            let ends = replaced.map_or(now, |sent| sent.saturating_sub(LOST_AFTER));
            match write.wish {
                Wish::Timer { pops: 1, .. } | Wish::Letter { .. } => {
                    let due = judge_actions::due_at_last(self.history, self.timer, index);
                    required.extend(due.map(|due| (index, 1, due)));
                }
                Wish::Timer { pops, .. } => {
                    let passed_over = |sequence| sequence < pops && self.is_missed(write, sequence);
                    let due = |sequence| write.due(sequence, &self.history.clock);
                    let all = (1..=pops).filter(|sequence| !passed_over(*sequence));
                    required.extend(all.filter_map(|it| Some((index, it, due(it)?.1))));
                }
                Wish::Cron { .. } => {
                    let until = replaced.unwrap_or(now).min(now);
                    required.extend(self.moments(index, until));
                }
                Wish::Delete => {}
            }
            required.retain(|pop| pop.0 != index || self.patience_from(pop.2) < ends.min(now));
        }
        required
    }

    /// From when a pop that is due at a moment is waited for: while no node runs nobody makes it.
    fn patience_from(&self, due: Ns) -> Ns {
        let outages = self.history.faults.iter().filter(|fault| fault.kind == Kind::KillAll);
        let over = outages.filter(|fault| (fault.from..=fault.until).contains(&due));
        over.map(|fault| fault.until).max().unwrap_or(due)
    }

    /// "A repeating timer makes the last pop that it missed": reports whether no node ran when the
    /// pop was due, and the next one was due, too, before the nodes served again.
    fn is_missed(&self, write: &Write, sequence: u64) -> bool {
        let due = |sequence| write.due(sequence, &self.history.clock);
        let Some(((_, due), (next, _))) = due(sequence).zip(due(sequence + 1)) else {
            return false;
        };
        let all = self.history.faults.iter().filter(|fault| fault.kind == Kind::KillAll);
        let mut outages = all.map(|fault| (fault.from.saturating_sub(SLACK), fault.until + SLACK));
        outages.any(|(from, until)| due >= from && next <= until)
    }

    /// Returns the pops of the calendar that must have come before `until`. A pop that comes when
    /// nothing fails comes at its moment.
    fn moments(&self, index: usize, until: Ns) -> Vec<(usize, u64, Ns)> {
        let write = &self.timer.writes[index];
        let moments = write.moments(write.ended, until, &self.history.clock).into_iter();
        let due = moments
            .filter_map(|moment| Some((index, moment, write.due(moment, &self.history.clock)?.1)));
        let is_past = |pop: &(usize, u64, Ns)| {
            let patience = if self.is_calm(pop.2, until) { CALM } else { LOST_AFTER };
            pop.2 + patience < until
        };
        due.filter(is_past).collect()
    }

    /// "No acknowledged timer is lost while one that holds it lives."
    fn none_lost(&self, found: &mut Vec<Violation>) {
        let now = self.history.ended.saturating_sub(LOST_AFTER);
        for (write, sequence, due) in self.required(now) {
            // "Tried until the next pop is due, then counted as given up": the callback server had
            // no time to answer.
            let is_unanswered = is_soon_given_up(&self.timer.writes[write])
                && stalled(self.history, due.saturating_sub(2 * SECOND), due + 4 * SECOND) > SECOND;
            if !self.came(write, sequence) && !is_unanswered {
                let what = format!("pop {sequence} of write {write} never came");
                self.broken(found, "none lost", due, what);
            }
        }
    }

    /// "Each pop once when nothing fails", and the column "doubled" of the table.
    fn none_doubled(&self, found: &mut Vec<Violation>) {
        let all = self.deliveries.0.range((self.number, 0, 0)..(self.number + 1, 0, 0));
        for ((_, index, sequence), pops) in all.filter(|(_, pops)| pops.len() > 1) {
            let Some(write) = self.timer.writes.get(*index) else { continue };
            let is_answered = write.outcome == Outcome::Acknowledged;
            let was_acted_on =
                pops.iter().any(|pop| judge_actions::was_near(self.timer, *index, pop.at));
            let is_ruled = matches!(write.wish, Wish::Timer { is_ruled: true, .. });
            let is_excused = pops.iter().any(|pop| was_under_way(self.history, write, pop))
                || !is_answered
                || were_apart(self.history, pops[0].at.saturating_sub(SECOND), pops[1].at)
                || was_acted_on
                || (is_ruled && !self.is_calm(pops[0].at, pops[1].at));
            if !is_excused {
                let times: Vec<_> = pops.iter().map(|pop| seconds(pop.at)).collect();
                let what = format!("pop {sequence} of write {index} came at {times:?}");
                self.broken(found, "none doubled", pops[1].at, what);
            }
        }
    }

    /// "Sequence numbers of a timer never fall."
    fn sequences_rise(&self, found: &mut Vec<Violation>) {
        let all = self.deliveries.0.range((self.number, 0, 0)..(self.number + 1, 0, 0));
        let mut pops: Vec<&Pop> = all.flat_map(|(_, pops)| pops.iter().copied()).collect();
        pops.sort_by_key(|pop| pop.at);
        let mut last: BTreeMap<usize, u64> = BTreeMap::new();
        for pop in pops {
            let Some(write) = self.timer.writes.get(pop.write) else { continue };
            let highest = last.entry(pop.write).or_default();
            let is_excused = was_under_way(self.history, write, pop)
                || were_apart(self.history, write.sent, pop.at)
                || write.outcome != Outcome::Acknowledged;
            if pop.sequence < *highest && !is_excused {
                let what = format!("{} of write {} after {highest}", pop.sequence, pop.write);
                self.broken(found, "sequence numbers never fall", pop.at, what);
            }
            *highest = pop.sequence.max(*highest);
        }
    }

    /// "Any of them takes any request": a GET through any node shows the last acknowledged write.
    fn reads_are_right(&self, found: &mut Vec<Violation>) {
        for read in &self.timer.reads {
            let done = self.timer.writes.iter().filter(|write| write.ended <= read.sent);
            let done: Vec<_> = done.collect();
            let last = done.iter().rposition(|write| write.outcome != Outcome::NotSent);
            let Some(index) = last.filter(|index| !is_tainted(self.timer, *index)) else {
                continue;
            };
            let Some(acknowledged) = done[index].acknowledged() else { continue };
            let is_known = read.sent >= known_at(self.history, read.via, done[index])
                && !was_undone(self.history, self.timer, index);
            if !is_known || is_emptied(self.history, read.via, read.sent) {
                continue;
            }
            if let Some(what) = self.wrong_in(read, index, done[index], acknowledged) {
                let what = format!("GET through node {}: {what}", read.via);
                self.broken(found, "GET tells the last write", read.ended, what);
            }
        }
    }

    fn wrong_in(
        &self,
        read: &Read,
        index: usize,
        write: &Write,
        acknowledged: Ns,
    ) -> Option<String> {
        let status = read.status?;
        let pops = match write.wish {
            Wish::Delete => {
                return (status == 200).then(|| "200 after an acknowledged DELETE".to_owned());
            }
            Wish::Timer { pops, .. } => pops,
            Wish::Letter { .. } => 1,
            Wish::Cron { .. } => 0,
        };
        let runs = self.timer.actions_on(index).filter(|action| action.act == Act::RunNow);
        let run = runs.map(|action| action.sent).min().unwrap_or(Ns::MAX);
        let lives_until = match write.wish {
            Wish::Cron { .. } => Ns::MAX,
            _ => write.due(pops, &self.history.clock)?.0.min(run),
        };
        if status == 404 && read.ended < lives_until {
            return Some(format!("404 for write {index}, which lives"));
        }
        if status == 200 && read.write != Some(index) {
            return Some(format!("write {:?}, expected write {index}", read.write));
        }
        // A node that takes an attempt of another one over makes it later than this.
        if matches!(write.wish, Wish::Letter { .. }) {
            return None;
        }
        let last_pop = self.deliveries.get(self.number, index, pops).first()?;
        let over = known_from(self.history, last_pop.at.max(acknowledged));
        let is_over = read.sent > over + 5 * SECOND;
        (status == 200 && is_over).then(|| {
            let since_ms = (read.sent - last_pop.at) / MS;
            format!("200, {since_ms} ms after the last pop of write {index}")
        })
    }

    /// "Nothing happens: late by milliseconds."
    fn none_late(&self, found: &mut Vec<Violation>) {
        self.each_first(|due, pop| {
            let bound = LATE + 2 * stalled(self.history, due.saturating_sub(SECOND), pop.at);
            if pop.at > due + bound && self.is_calm(due, pop.at) {
                let late_ms = (pop.at - due) / MS;
                let what = format!("pop {} of write {}: {late_ms} ms", pop.sequence, pop.write);
                self.broken(found, "late by milliseconds", pop.at, what);
            }
        });
    }

    /// Calls `take` for every pop of an acknowledged write as it came first, with its latest due
    /// time.
    fn each_first(&self, mut take: impl FnMut(Ns, &Pop)) {
        let all = self.deliveries.0.range((self.number, 0, 0)..(self.number + 1, 0, 0));
        for ((_, index, sequence), delivered) in all {
            let Some(write) = self.timer.writes.get(*index) else { continue };
            let is_free = match write.wish {
                // The sink refuses the first attempt of some of these timers.
                Wish::Timer { pops: 1, is_ruled, .. } => !is_ruled && self.number % 16 != 7,
                _ => true,
            };
            let was_acted_on = self.timer.actions_on(*index).next().is_some();
            let due = write.due(*sequence, &self.history.clock);
            if let (Some((_, due)), Some(acknowledged)) = (due, write.acknowledged())
                && (is_free && !was_acted_on)
            {
                // A moment of the calendar may lie between the write and its answer.
                take(due.max(acknowledged), delivered[0]);
            }
        }
    }

    fn is_calm(&self, due: Ns, at: Ns) -> bool {
        is_calm(self.history, due, at)
    }
}

/// Reports whether a pop of this write is given up when its callback server is away for a second or
/// two, because the next pop is due.
fn is_soon_given_up(write: &Write) -> bool {
    match write.wish {
        Wish::Cron { every_s, .. } => every_s <= 3,
        Wish::Timer { interval_ms, pops, .. } => pops > 1 && interval_ms <= 3_000,
        Wish::Letter { .. } | Wish::Delete => false,
    }
}

/// Reports whether no fault was near this time.
pub fn is_calm(history: &History, from: Ns, until: Ns) -> bool {
    let overlaps = |fault: &Fault| {
        fault.from <= until && from < fault.settled.max(fault.until).saturating_add(CALM)
    };
    !history.faults.iter().any(overlaps)
}

/// Reports whether an earlier write got no answer for another reason than the death of its node.
/// Such a write may be done at any later time.
pub fn is_tainted(timer: &Timer, index: usize) -> bool {
    let is_open = |write: &Write| match &write.outcome {
        Outcome::Unknown(why) => !why.contains("reset") && !why.contains("end of file"),
        _ => false,
    };
    timer.writes[..index.min(timer.writes.len())].iter().any(is_open)
}

/// "A pop whose callback was under way as it died", "a pop that it was about to make as it froze".
pub fn was_under_way(history: &History, write: &Write, pop: &Pop) -> bool {
    const KINDS: [Kind; 6] = [
        Kind::Kill,
        Kind::KillAll,
        Kind::Freeze,
        Kind::KillSite,
        Kind::EmptySite,
        Kind::FreezeSite,
    ];
    was_being_made(history, write, pop, &KINDS)
}

/// Reports whether a frozen node was about to make the pop, which then comes when the node wakes.
pub fn was_frozen_with(history: &History, write: &Write, pop: &Pop) -> bool {
    was_being_made(history, write, pop, &[Kind::Freeze, Kind::FreezeSite])
}

fn was_being_made(history: &History, write: &Write, pop: &Pop, kinds: &[Kind]) -> bool {
    let Some((due_min, due_max)) = write.due(pop.sequence, &history.clock) else { return false };
    history.faults.iter().filter(|fault| kinds.contains(&fault.kind)).any(|fault| {
        let slack = SECOND / 2 + stalled(history, fault.from.saturating_sub(SECOND), fault.from);
        let (first, last) = (fault.from.saturating_sub(slack), fault.from + slack);
        let is_due = due_max >= first && due_min <= last;
        is_due || (first..=last).contains(&pop.at)
    })
}

/// Returns how long this process got no time between two moments.
pub fn stalled(history: &History, from: Ns, until: Ns) -> Ns {
    let stalls = history.stalls.iter();
    stalls.filter(|stall| stall.0 >= from && stall.0 <= until + SECOND).map(|stall| stall.1).sum()
}

pub fn seconds(at: Ns) -> f64 {
    (at / MS) as f64 / 1_000.0
}
