//! Jobs that delete all timers of a filter, on the core that took the order. A job goes through the
//! list of these timers page by page, as a client would, and deletes each timer of a page as a
//! client would: on condition that it is what the page shows. A timer that was written anew
//! meanwhile is looked at again, and stays if it does not belong to the list any more.
//!
//! A job is in the memory of its node alone. What it has deleted stays deleted.
//!
//! No clock, no socket.

// Reads the wall clock: told 2.

use crate::base::ids::{ShardIndex, mix};
use crate::base::jobs::{JobPlace, NoJobPlace};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::{Now, Tick};
use crate::shard::effects::{
    Answer, Condition, Conditional, Internal, ListPage, Refusal, Reply, Requester, Target,
};
use crate::shard::jobs::Jobs as Table;
use crate::shard::requesters::JOBBED;
use crate::timer::version::Version;
use crate::wire::jobs::{JobReport, JobState};
use crate::wire::list_query::{ListQuery, OwnedFilter};
use crate::wire::timer_list::Place;

/// Who asks for the pages of jobs, in place of a digest of a name.
pub(crate) const BY_JOBS: u64 = 0;
/// Timers on a page of a job, all of which it deletes at the same time.
pub(crate) const JOB_PAGE: u16 = 250;
/// Deletes that all jobs of a core begin in one tick: some 100 us.
const DELETES_PER_TICK: usize = 64;
/// How often a page is gone through again because timers were not deleted.
const TRIES_MAX: u32 = 6;
/// The pause before a page is asked for again after refusals; doubled with each try.
const PAUSE_MS: u64 = 50;

/// What a core does for a job.
#[derive(Debug)]
pub(crate) enum JobOrder {
    /// Put a page of a list together.
    List(Requester, ListQuery),
    /// Delete a timer.
    Delete(Requester, Conditional<'static>),
}

/// What a job waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The time to ask for its page.
    Ask(Tick),
    /// Its page.
    Listing,
    /// Answers to deletes.
    Deleting,
}

/// A job that runs.
#[derive(Debug)]
struct Run {
    id: u64,
    step: Step,
    query: ListQuery,
    /// The page behind the present one; `None`: there is none.
    next: Option<ListQuery>,
    /// Timers of the page that are to be deleted.
    queue: Vec<(Target, Version)>,
    /// Deletes that are not answered.
    waiting: usize,
    /// Deletes of the page that were refused, and those of timers that had changed.
    refused: u64,
    changed: u64,
    tries: u32,
    /// The first timer of the page. While it is the same, the page does not get on.
    first: Option<Place>,
    /// Timers before this place have been counted; `None`: all have.
    counted_until: Option<Place>,
    /// Kept for as long as the job runs.
    _place: JobPlace,
}

/// All jobs that run on one core.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    runs: Slots<Run>,
    begun: u64,
    tick: Tick,
    /// How many deletes may still begin in this tick.
    left: usize,
}

impl Jobs {
    /// Begins a job. `seed` tells this core from all others. Returns what is told of the job.
    pub fn begin(
        &mut self,
        now: Now,
        seed: u64,
        table: &mut Table,
        (query, owner): (ListQuery, Box<str>),
        place: Result<JobPlace, NoJobPlace>,
    ) -> Result<JobReport, Refusal> {
        let place = place.map_err(|none| match none {
            NoJobPlace::OnNode => Refusal::JobsFull,
            NoJobPlace::OfName => Refusal::JobsOfNameFull,
        })?;
        self.begun += 1;
        let report = JobReport {
            id: mix(seed ^ mix(self.begun << 8 | 1)).max(1),
            state: JobState::Running,
            is_incomplete: false,
            seen: 0,
            deleted: 0,
            failed: 0,
            began: now.wall,
            ended: None,
            owner,
            filter: OwnedFilter::copy(&query.filter.borrow()),
        };
        if !table.begin(report.clone()) {
            return Err(Refusal::JobsFull);
        }
        self.runs.insert(Run {
            id: report.id,
            step: Step::Ask(now.mono.tick_floor()),
            query,
            next: None,
            queue: Vec::new(),
            waiting: 0,
            refused: 0,
            changed: 0,
            tries: 0,
            first: None,
            counted_until: Some(Place(0)),
            _place: place,
        });
        Ok(report)
    }

    /// Appends what is to be done now. A part of the deletes that may begin is for each job.
    pub fn tick(
        &mut self,
        now: Now,
        own: ShardIndex,
        table: &mut Table,
        orders: &mut Vec<JobOrder>,
    ) {
        let tick = now.mono.tick_floor();
        if self.tick != tick {
            (self.tick, self.left) = (tick, DELETES_PER_TICK);
        }
        let share = (self.left / self.runs.len().max(1)).max(1);
        for place in 0..self.runs.places() {
            let Some(key) = self.runs.key_at(place) else { continue };
            let Some(run) = self.runs.get_mut(key) else { continue };
            let SlotKey { index, generation } = key;
            let from = Requester { shard: own, connection: JOBBED, generation, request: index };
            if table.is_to_stop(run.id) {
                run.stop();
            }
            match run.step {
                Step::Ask(at) if at <= tick && !table.is_to_stop(run.id) => {
                    run.step = Step::Listing;
                    orders.push(JobOrder::List(from, run.query.clone()));
                }
                Step::Deleting => {
                    let count = share.min(self.left).min(run.queue.len());
                    self.left -= count;
                    run.waiting += count;
                    let begun = std::iter::from_fn(|| run.queue.pop()).take(count);
                    orders.extend(begun.map(|(target, version)| {
                        let condition = Condition::Version(version);
                        let delete =
                            Conditional { target, condition, definition: None, action: None };
                        JobOrder::Delete(from, delete)
                    }));
                }
                Step::Ask(_) | Step::Listing => {}
            }
            self.settle(now, key, table);
        }
    }

    /// Takes the answer to a page or to a delete.
    pub fn take(&mut self, now: Now, table: &mut Table, reply: Reply) {
        let key = SlotKey { index: reply.to.request, generation: reply.to.generation };
        let Some(run) = self.runs.get_mut(key) else { return };
        let Some(report) = table.report_mut(run.id) else { return };
        match (run.step, reply.answer) {
            (Step::Listing, Answer::Internal(internal)) => match *internal {
                Internal::List(page) => run.page(page, report),
                _ => run.step = Step::Ask(now.mono.tick_floor() + PAUSE_MS),
            },
            (Step::Listing, _) => run.step = Step::Ask(now.mono.tick_floor() + PAUSE_MS),
            (Step::Deleting, answer) => {
                run.waiting = run.waiting.saturating_sub(1);
                match answer {
                    Answer::Done { .. } | Answer::Identified(_) => report.deleted += 1,
                    Answer::Refused(Refusal::Unmet) => run.changed += 1,
                    Answer::Refused(_) => run.refused += 1,
                    _ => {}
                }
            }
            (Step::Ask(_), _) => {}
        }
        self.settle(now, key, table);
    }

    /// Whether no job runs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many jobs run.
    pub fn running(&self) -> usize {
        self.runs.len()
    }

    /// When [`Jobs::tick`] has work next.
    pub fn next_wake(&self) -> Option<Tick> {
        let wake_of = |run: &Run| match run.step {
            Step::Ask(at) => Some(at),
            Step::Deleting if !run.queue.is_empty() => Some(self.tick + 1),
            Step::Deleting | Step::Listing => None,
        };
        self.runs.iter().filter_map(|(_, run)| wake_of(run)).min()
    }

    /// Goes on to the next page when all timers of one are dealt with, and ends the job behind the
    /// last.
    fn settle(&mut self, now: Now, key: SlotKey, table: &mut Table) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let is_to_stop = table.is_to_stop(run.id);
        if run.step == Step::Listing || !run.queue.is_empty() || run.waiting > 0 {
            return;
        }
        let Some(report) = table.report_mut(run.id) else { return };
        if run.step == Step::Deleting && !is_to_stop && run.go_on(now.mono.tick_floor(), report) {
            return;
        }
        if matches!(run.step, Step::Ask(_)) && !is_to_stop {
            return;
        }
        report.state = if is_to_stop { JobState::Stopped } else { JobState::Done };
        report.ended = Some(now.wall);
        self.runs.remove(key);
    }
}

impl Run {
    /// Takes a page.
    fn page(&mut self, page: ListPage, report: &mut JobReport) {
        report.is_incomplete |= !page.incomplete.is_empty();
        let is_new = |place: Place| self.counted_until.is_some_and(|until| place >= until);
        let mut places = page.timers.iter().map(|timer| Place::of(timer.view.id));
        let first = places.clone().next();
        if std::mem::replace(&mut self.first, first) != first {
            self.tries = 0;
        }
        report.seen += places.clone().filter(|place| is_new(*place)).count() as u64;
        if let Some(last) = places.next_back().filter(|last| is_new(*last)) {
            self.counted_until = last.next();
        }
        self.queue.extend(page.timers.iter().map(|timer| {
            let view = &timer.view;
            let (factor, filter) = (Some(view.factor), Some(view.filter));
            (Target { id: view.id, factor, filter }, view.version)
        }));
        self.next = page.cursor.and_then(|cursor| self.query.behind(&cursor));
        self.step = Step::Deleting;
    }

    /// Forgets what was not begun.
    fn stop(&mut self) {
        self.queue.clear();
        self.next = None;
    }

    /// Asks for the page again if timers of it were not deleted, or else for the next one. Returns
    /// whether there is one.
    fn go_on(&mut self, tick: Tick, report: &mut JobReport) -> bool {
        let (refused, changed) = (self.refused, self.changed);
        (self.refused, self.changed) = (0, 0);
        if refused + changed > 0 && self.tries < TRIES_MAX {
            let pause_ms = if refused > 0 { PAUSE_MS << self.tries } else { 0 };
            self.tries += 1;
            self.step = Step::Ask(tick + pause_ms);
            return true;
        }
        report.failed += refused + changed;
        self.tries = 0;
        let Some(next) = self.next.take() else { return false };
        self.query = next;
        self.step = Step::Ask(tick);
        true
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
