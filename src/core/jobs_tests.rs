//! Jobs whose pages and deletes are answered in every way.

use std::sync::Arc;

use super::*;
use crate::base::ids::TimerId;
use crate::base::jobs::JobPlaces;
use crate::base::time::{MonoNs, TICK_NS, WallMs};
use crate::shard::effects::{Identified, ListedTimer, TimerView};
use crate::wire::jobs::JobsAsk;
use crate::wire::list_query::Cursor;
use crate::wire::timer_list::ListedState;

const OWN: ShardIndex = ShardIndex(0);

/// A core whose lists and deletes a test answers.
struct World {
    jobs: Jobs,
    table: Table,
    places: Arc<JobPlaces>,
    now_ms: u64,
    /// The timers that match, in the order of lists, each with its version.
    timers: Vec<(u64, u64)>,
    page_max: usize,
    /// How many deletes began in the busiest tick.
    most: usize,
}

impl World {
    fn new(timers: impl IntoIterator<Item = u64>) -> Self {
        let mut timers: Vec<_> = timers.into_iter().map(|id| (id, 1)).collect();
        timers.sort_by_key(|(id, _)| Place::of(TimerId(*id)));
        let (jobs, table, places) = (Jobs::default(), Table::default(), Arc::default());
        Self { jobs, table, places, now_ms: 1_000, timers, page_max: 250, most: 0 }
    }

    fn now(&self) -> Now {
        Now { mono: MonoNs(self.now_ms * TICK_NS), wall: WallMs(self.now_ms) }
    }

    fn begin(&mut self, owner: &str) -> Result<u64, Refusal> {
        let query = ListQuery::read_delete("tag=a", JOB_PAGE, WallMs(0)).expect("good");
        let (now, place) = (self.now(), self.places.take(owner));
        let begun = self.jobs.begin(now, 7, &mut self.table, (query, owner.into()), place);
        begun.map(|report| report.id)
    }

    fn page(&self, query: &ListQuery) -> ListPage {
        let from = query.cursor.map_or(Place(0), |cursor| cursor.from);
        let rest: Vec<_> =
            self.timers.iter().filter(|(id, _)| Place::of(TimerId(*id)) >= from).collect();
        let cursor = rest.get(self.page_max).map(|(id, _)| {
            let from = Place::of(TimerId(*id));
            query.write_cursor(&Cursor { from, walk: 1, began: WallMs(0) })
        });
        let listed = |(id, version): &(u64, u64)| ListedTimer {
            view: TimerView {
                id: TimerId(*id),
                factor: 1,
                filter: 0,
                interval_ms: 1,
                repeat_for_ms: 1,
                age_ms: 0,
                version: Version(*version),
                sequence: 0,
                uri: String::new(),
                opaque: Box::default(),
                attributes: Box::default(),
                tags: vec![],
            },
            state: ListedState::Armed,
            due_in_ms: 1,
        };
        let timers = rest.iter().take(self.page_max).map(|timer| listed(timer)).collect();
        let (incomplete, at, bytes, letters, used, refused) = (vec![], WallMs(0), 0, None, 0, 0);
        ListPage { timers, cursor, incomplete, at, bytes, letters, used, refused }
    }

    /// Takes one turn. `answer` says what becomes of a delete that its version allows.
    fn turn(&mut self, mut answer: impl FnMut(&mut Self, u64) -> Option<Refusal>) {
        let (now, mut orders) = (self.now(), Vec::new());
        self.jobs.tick(now, OWN, &mut self.table, &mut orders);
        let deletes = orders.iter().filter(|order| matches!(order, JobOrder::Delete(..))).count();
        self.most = self.most.max(deletes);
        for order in orders {
            let (to, answer) = match order {
                JobOrder::List(from, query) => {
                    (from, Answer::Internal(Box::new(Internal::List(self.page(&query)))))
                }
                JobOrder::Delete(from, delete) => {
                    let id = delete.target.id.0;
                    let refusal = answer(self, id);
                    let at = self.timers.iter().position(|(held, version)| {
                        *held == id && delete.condition == Condition::Version(Version(*version))
                    });
                    (
                        from,
                        match (refusal, at) {
                            (Some(refusal), _) => Answer::Refused(refusal),
                            (None, None) => Answer::Refused(Refusal::Unmet),
                            (None, Some(at)) => {
                                self.timers.remove(at);
                                let (id, version) = (TimerId(id), Version(9));
                                let done = Identified { id, factor: 1, filter: 0, version };
                                Answer::Identified(Box::new(done))
                            }
                        },
                    )
                }
            };
            self.jobs.take(now, &mut self.table, Reply::at_once(to, answer));
        }
        assert!(self.jobs.next_wake().is_none_or(|wake| wake.0 < self.now_ms + 10_000));
        self.now_ms += 1;
    }

    fn run(&mut self, mut answer: impl FnMut(&mut Self, u64) -> Option<Refusal>) {
        (0..100_000).find(|_| {
            self.turn(&mut answer);
            self.jobs.is_empty()
        });
        assert!(self.jobs.is_empty(), "it ends");
    }

    fn report(&mut self, id: u64) -> JobReport {
        self.table.report_mut(id).expect("it is kept").clone()
    }
}

fn numbers(report: &JobReport) -> (JobState, [u64; 3]) {
    (report.state, [report.seen, report.deleted, report.failed])
}

#[test]
fn a_job_deletes_all_timers_page_by_page_and_so_many_a_tick() {
    let mut world = World::new(0..1_000);
    let id = world.begin("a").expect("room");
    world.run(|_, _| None);
    let report = world.report(id);
    assert_eq!(numbers(&report), (JobState::Done, [1_000, 1_000, 0]));
    assert!(world.timers.is_empty() && world.most == DELETES_PER_TICK, "{}", world.most);
    assert!(report.ended.is_some_and(|ended| ended.0 >= 1_000 + 1_000 / 64), "{report:?}");
    let none = World::new([]).begin("a");
    assert!(none.is_ok());
}

#[test]
fn a_timer_that_was_written_anew_is_looked_at_again() {
    let mut world = World::new(0..10);
    let id = world.begin("a").expect("room");
    let mut changes = 0;
    world.run(|world, id| {
        // Two of them change before they are deleted: one belongs to the list still.
        let at = world.timers.iter().position(|(held, _)| *held == id);
        match (id, at) {
            (3, Some(at)) if changes == 0 => {
                changes += 1;
                world.timers[at].1 += 1;
            }
            (4, Some(at)) => drop(world.timers.remove(at)),
            _ => {}
        }
        None
    });
    assert_eq!(numbers(&world.report(id)), (JobState::Done, [10, 9, 0]));
}

#[test]
fn what_is_refused_is_tried_again_and_then_counted() {
    let mut world = World::new(0..10);
    let id = world.begin("a").expect("room");
    let mut tries = 0;
    world.run(|_, id| match id {
        5 => Some(Refusal::NoReplica),
        6 if tries < 3 => {
            tries += 1;
            Some(Refusal::CoreBusy)
        }
        _ => None,
    });
    assert_eq!(numbers(&world.report(id)), (JobState::Done, [10, 9, 1]));
    assert!(world.now_ms > 1_000 + PAUSE_MS, "with pauses");
}

#[test]
fn a_job_is_stopped_between_two_deletes() {
    let mut world = World::new(0..1_000);
    let id = world.begin("a").expect("room");
    (0..5).for_each(|_| world.turn(|_, _| None));
    let told = world.table.part(2, &JobsAsk { job: Some(id), is_stop: true });
    assert_eq!((told.jobs.len(), told.jobs[0].state), (1, JobState::Running));
    world.run(|_, _| None);
    let report = world.report(id);
    let (state, [_, deleted, failed]) = numbers(&report);
    assert_eq!((state, failed), (JobState::Stopped, 0));
    assert!(deleted > 0 && world.timers.len() == 1_000 - deleted as usize, "{report:?}");
    // Its place is free.
    let begun = (0..4).filter(|_| world.begin("a").is_ok()).count();
    assert_eq!(begun, 4);
    assert_eq!(world.begin("a"), Err(Refusal::JobsOfNameFull));
}

#[test]
fn pages_that_do_not_come_are_asked_for_again() {
    let mut world = World::new(0..3);
    let id = world.begin("a").expect("room");
    let mut orders = Vec::new();
    world.jobs.tick(world.now(), OWN, &mut world.table, &mut orders);
    let Some(JobOrder::List(from, _)) = orders.pop() else { panic!("a page") };
    let full = Reply::at_once(from, Answer::Refused(Refusal::ListsFull));
    world.jobs.take(world.now(), &mut world.table, full);
    assert_eq!(world.jobs.next_wake(), Some(Tick(1_000 + PAUSE_MS)));
    world.run(|_, _| None);
    assert_eq!(numbers(&world.report(id)), (JobState::Done, [3, 3, 0]));
}

#[test]
fn jobs_share_a_tick_and_those_that_ended_give_way() {
    let mut world = World::new(0..2_000);
    let ids: Vec<_> = ["a", "b", "c"].map(|name| world.begin(name).expect("room")).into();
    (0..6).for_each(|_| world.turn(|_, _| None));
    assert!(world.most <= DELETES_PER_TICK, "{}", world.most);
    world.run(|_, _| None);
    // They find the same timers, and each of these is deleted once.
    let reports: Vec<_> = ids.iter().map(|id| world.report(*id)).collect();
    assert_eq!(reports.iter().map(|report| report.deleted).sum::<u64>(), 2_000, "{reports:?}");
    assert!(reports.iter().all(|report| report.state == JobState::Done && report.failed == 0));
    for _ in 0..40 {
        world.begin("d").expect("room");
        world.run(|_, _| None);
    }
    assert!(world.table.report_mut(ids[0]).is_none(), "others came since");
}

#[test]
fn of_the_deletes_of_a_tick_each_job_begins_as_many() {
    let mut world = World::new(0..500);
    for owner in ["a", "b"] {
        world.begin(owner).expect("room");
    }
    world.turn(|_, _| None);
    let (now, mut orders) = (world.now(), Vec::new());
    world.jobs.tick(now, OWN, &mut world.table, &mut orders);
    for job in [0, 1] {
        let is_its =
            |order: &&JobOrder| matches!(order, JobOrder::Delete(to, _) if to.request == job);
        assert_eq!(orders.iter().filter(is_its).count(), DELETES_PER_TICK / 2, "{job}");
    }
}

#[test]
fn a_delete_that_is_refused_each_time_is_tried_as_often_as_is_said() {
    let mut world = World::new([5]);
    let id = world.begin("a").expect("room");
    let mut tried = 0;
    world.run(|_, _| {
        tried += 1;
        Some(Refusal::NoReplica)
    });
    assert_eq!(tried, 1 + TRIES_MAX);
    assert_eq!(numbers(&world.report(id)), (JobState::Done, [1, 0, 1]));
}

#[test]
fn a_job_that_is_stopped_begins_no_further_delete_of_its_page() {
    let mut world = World::new(0..200);
    let id = world.begin("a").expect("room");
    (0..2).for_each(|_| world.turn(|_, _| None));
    assert_eq!(world.report(id).deleted, 64, "of a page of 200");
    assert_eq!(world.jobs.next_wake(), Some(Tick(world.now_ms)), "the next tick has more");
    world.table.part(2, &JobsAsk { job: Some(id), is_stop: true });
    world.run(|_, _| None);
    assert_eq!(numbers(&world.report(id)), (JobState::Stopped, [200, 64, 0]));
}

#[test]
fn a_job_of_one_page_asks_for_it_once_and_waits_for_its_answers() {
    let mut world = World::new(0..3);
    world.begin("a").expect("room");
    let (now, mut orders) = (world.now(), Vec::new());
    assert_eq!(world.jobs.next_wake(), Some(now.mono.tick_floor()));
    world.jobs.tick(now, OWN, &mut world.table, &mut orders);
    let Some(JobOrder::List(from, query)) = orders.pop() else { panic!("a page") };
    assert_eq!(world.jobs.next_wake(), None, "the page wakes the core");
    let page = Answer::Internal(Box::new(Internal::List(world.page(&query))));
    world.jobs.take(now, &mut world.table, Reply::at_once(from, page));
    world.jobs.tick(now, OWN, &mut world.table, &mut orders);
    assert_eq!((orders.len(), world.jobs.next_wake()), (3, None), "answers wake the core");
    for order in orders.drain(..) {
        let JobOrder::Delete(to, Conditional { target: Target { id, .. }, .. }) = order else {
            panic!("a delete")
        };
        let done = Answer::Done { id, factor: 1, filter: 0 };
        world.jobs.take(now, &mut world.table, Reply::at_once(to, done));
    }
    assert!(world.jobs.is_empty(), "nothing was refused, so nothing is asked again");
}

#[test]
fn deletes_of_a_tick_are_bounded_however_often_the_core_turns() {
    let mut world = World::new(0..250);
    world.begin("a").expect("room");
    world.turn(|_, _| None);
    let (now, mut orders) = (world.now(), Vec::new());
    (0..3).for_each(|_| world.jobs.tick(now, OWN, &mut world.table, &mut orders));
    assert_eq!(orders.len(), DELETES_PER_TICK);
}

#[test]
fn only_a_refusal_makes_a_pause_and_each_pause_is_twice_as_long() {
    // A timer that always changes is looked at again at once.
    let mut world = World::new([5]);
    let id = world.begin("a").expect("room");
    world.run(|_, _| Some(Refusal::Unmet));
    assert!(world.now_ms < 1_000 + PAUSE_MS, "{}", world.now_ms);
    assert_eq!(numbers(&world.report(id)), (JobState::Done, [1, 0, 1]));
    let mut world = World::new([5]);
    world.begin("a").expect("room");
    let mut at_ms = Vec::new();
    world.run(|world, _| {
        at_ms.push(world.now_ms);
        Some(Refusal::NoReplica)
    });
    let pauses = at_ms.windows(2).map(|two| (two[1] - two[0]) / PAUSE_MS);
    assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32]);
    // Both kinds count as failed in the end.
    let mut world = World::new([5, 6]);
    let id = world.begin("a").expect("room");
    world.run(|_, id| Some(if id == 5 { Refusal::Unmet } else { Refusal::NoReplica }));
    assert_eq!(numbers(&world.report(id)), (JobState::Done, [2, 0, 2]));
}

#[test]
fn a_page_without_all_nodes_makes_a_job_incomplete() {
    for (lacking, is_incomplete) in [(vec![], false), (vec!["b: down".to_owned()], true)] {
        let mut world = World::new([]);
        let id = world.begin("a").expect("room");
        let (now, mut orders) = (world.now(), Vec::new());
        world.jobs.tick(now, OWN, &mut world.table, &mut orders);
        let Some(JobOrder::List(from, query)) = orders.pop() else { panic!("a page") };
        let page = ListPage { incomplete: lacking, ..world.page(&query) };
        let page = Answer::Internal(Box::new(Internal::List(page)));
        world.jobs.take(now, &mut world.table, Reply::at_once(from, page));
        world.run(|_, _| None);
        assert_eq!(world.report(id).is_incomplete, is_incomplete);
    }
}

#[test]
fn jobs_have_ids_of_their_own_whatever_the_core() {
    for seed in [0, 7, u64::MAX] {
        let mut world = World::new([]);
        let mut begin = |owner: &str| {
            let query = ListQuery::read_delete("tag=a", JOB_PAGE, WallMs(0)).expect("good");
            let (now, place) = (world.now(), world.places.take(owner));
            let of = (query, owner.into());
            world.jobs.begin(now, seed, &mut world.table, of, place).expect("room").id
        };
        assert_ne!(begin("a"), begin("b"), "{seed}");
    }
}
