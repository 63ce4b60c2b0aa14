//! One thread of the benchmark. It has a share of the connections. Each connection makes one call
//! at a time, and repeats a call until it is answered.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::{sleep, sleep_until};

use super::order::{BREACHES_SHOWN, Breach, Highest};
use super::outages::Outage;
use crate::cli::timestamp::client::{CallError, TimestampClient};
use crate::timestamp::Timestamp;

/// How often a thread reports what it has done.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Pause after the first error of an outage, doubled after each further error.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest pause between two tries. The end of an outage is seen as exactly as this.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// A call's time that is nearer than this is waited for awake, because the runtime sleeps in whole
/// milliseconds.
const AWAKE: Duration = Duration::from_millis(2);
/// Longest latency that the histogram tells apart, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// What all threads of a run share.
#[derive(Clone)]
pub(crate) struct Load {
    /// How many timestamps a call asks for.
    pub range: u32,
    /// Longest wait for a connection, and for an answer.
    pub limit: Duration,
    /// Time between two calls of one connection. `None`: each call follows the answer to the call
    /// before.
    pub every: Option<Duration>,
    /// When the run began.
    pub begun: Instant,
    /// The address of the master; `None` while there is none.
    pub master: watch::Receiver<Option<Arc<str>>>,
    /// When the run ended; `None` while it lasts.
    pub stop: watch::Receiver<Option<Instant>>,
    /// The largest value of all answers.
    pub highest: Arc<Highest>,
}

/// Makes a histogram of latencies in nanoseconds.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that fit")
}

/// What happened in a thread since its last report.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The number of the thread.
    pub thread: usize,
    /// First values of the answers.
    pub firsts: Vec<u64>,
    /// The value that all calls of this thread exceed that `firsts` does not have yet.
    pub floor: Timestamp,
    /// How many calls failed.
    pub errors: u64,
    /// Outages that have ended.
    pub outages: Vec<Outage>,
    /// How many answers were not above the value that they had to exceed.
    pub breach_count: u64,
    /// The first of these answers.
    pub breaches: Vec<Breach>,
}

/// What a thread hands over at its end.
#[derive(Debug)]
pub(crate) struct Left {
    /// From when each call was due (open loop) or begun (closed loop) to its answer.
    pub latency: Histogram<u64>,
    /// How many calls were due and not answered at the end.
    pub unanswered: u64,
    /// The last errors of connections that were without an answer at the end.
    pub last_errors: Vec<String>,
}

/// What the connections of a thread share.
struct WorkerState {
    news: News,
    /// By connection: the value that its call under way must exceed. The maximum: no call is under
    /// way.
    floors: Vec<Timestamp>,
    left: Left,
}

/// Runs `connections`, given by their numbers, until the run is over. Returns at most `plan.limit`
/// after the stop. Errors are the kernel's.
pub(crate) fn run(
    thread: usize,
    connections: Vec<usize>,
    of_all: usize,
    plan: &Load,
    news: &mpsc::Sender<News>,
) -> std::io::Result<Left> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let left = Left { latency: new_histogram(), unanswered: 0, last_errors: Vec::new() };
    let state = Rc::new(RefCell::new(WorkerState {
        news: News { thread, ..News::default() },
        floors: vec![Timestamp(u64::MAX); connections.len()],
        left,
    }));
    LocalSet::new().block_on(&runtime, async {
        let mut tasks = Vec::new();
        for (index, number) in connections.into_iter().enumerate() {
            // The connections are spread over the interval, so that they do not call all at once.
            let offset = plan.every.map(|every| every.mul_f64(number as f64 / of_all as f64));
            let caller = Caller {
                number,
                index,
                offset: offset.unwrap_or_default(),
                plan: plan.clone(),
                state: state.clone(),
                connection: None,
                own_last: None,
                last_answer_ns: None,
                server: None,
                outage: None,
            };
            tasks.push(tokio::task::spawn_local(caller.run()));
        }
        let all = async {
            for task in tasks {
                // The panic of a task has printed its reason. What that task counted would be
                // missing below.
                task.await.expect("a caller does not panic");
            }
        };
        let mut all = pin!(all);
        loop {
            let is_over = tokio::select! {
                () = &mut all => true,
                () = sleep(TELL_EVERY) => false,
            };
            let told = state.borrow_mut().take_news(&plan.highest);
            // An error means that the run is over.
            if news.send(told).await.is_err() || is_over {
                break;
            }
        }
    });
    let left = Left { latency: new_histogram(), unanswered: 0, last_errors: Vec::new() };
    Ok(std::mem::replace(&mut state.borrow_mut().left, left))
}

impl WorkerState {
    fn take_news(&mut self, highest: &Highest) -> News {
        // The calls under way are looked at first. Calls that are still to be sent exceed the
        // highest value of now.
        let under_way = self.floors.iter().min().copied();
        let floor = highest.floor().min(under_way.unwrap_or(Timestamp(u64::MAX)));
        let next = News { thread: self.news.thread, ..News::default() };
        News { floor, ..std::mem::replace(&mut self.news, next) }
    }
}

/// One connection and its calls.
struct Caller {
    number: usize,
    index: usize,
    offset: Duration,
    plan: Load,
    state: Rc<RefCell<WorkerState>>,
    connection: Option<TimestampClient>,
    own_last: Option<Timestamp>,
    last_answer_ns: Option<u64>,
    server: Option<Arc<str>>,
    outage: Option<Outage>,
}

impl Caller {
    async fn run(mut self) {
        let mut stop = self.plan.stop.clone();
        for call in 0u32.. {
            let due = self
                .plan
                .every
                .map(|every| self.plan.begun + self.offset + every.mul_f64(f64::from(call)));
            let mut begun = Instant::now();
            if let Some(due) = due {
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| stop.is_some()) => return self.leave(due),
                    at = wait_until(due, self.plan.every.unwrap_or_default()) => begun = at,
                }
            }
            // A closed loop never waits, so it looks here whether to stop.
            if stop.borrow().is_some() || !self.call(begun, &mut stop).await {
                return self.leave(due.unwrap_or(begun));
            }
        }
    }

    /// Makes a call until there is an answer. Returns `false` if the run ended before.
    async fn call(&mut self, begun: Instant, stop: &mut watch::Receiver<Option<Instant>>) -> bool {
        let mut pause = PAUSE;
        loop {
            match self.attempt().await {
                Ok(()) => {
                    self.answered(begun);
                    return true;
                }
                Err(error) => self.fail(&error),
            }
            tokio::select! {
                _ = stop.wait_for(|stop| stop.is_some()) => return false,
                () = sleep(pause) => {}
                // A new master is worth a try at once.
                Ok(()) = self.plan.master.changed() => {}
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    async fn attempt(&mut self) -> Result<(), String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let master = self.plan.master.borrow_and_update().clone();
                let master = master.ok_or("there is no master")?;
                let opened = TimestampClient::open(&master, self.plan.limit).await;
                opened.map_err(|error| error.to_string())?
            }
        };
        // Read before the call is sent. Nothing happens between this line and the sending.
        let floor = self.plan.highest.floor();
        self.state.borrow_mut().floors[self.index] = floor;
        let result = self.take(&mut connection).await;
        if let Ok(first) = &result {
            self.judge(*first, floor, &connection);
            self.plan.highest.answered(Timestamp(first.0 + u64::from(self.plan.range) - 1));
            self.server = Some(connection.address().clone());
            self.state.borrow_mut().news.firsts.push(first.0);
            self.connection = Some(connection);
        }
        self.state.borrow_mut().floors[self.index] = Timestamp(u64::MAX);
        let failed = |error: Option<CallError>| {
            error.map_or("another is master".into(), |error| error.to_string())
        };
        result.map(|_| ()).map_err(failed)
    }

    /// Makes one call. `Err(None)`: another server became master meanwhile.
    async fn take(
        &mut self,
        connection: &mut TimestampClient,
    ) -> Result<Timestamp, Option<CallError>> {
        let address = connection.address().clone();
        let mut call = pin!(connection.take(self.plan.range));
        loop {
            tokio::select! {
                biased;
                taken = &mut call => return taken.map_err(Some),
                Ok(()) = self.plan.master.changed() => {
                    let master = self.plan.master.borrow_and_update();
                    // While there is no master, the old master may still answer, or end the
                    // connection.
                    if master.as_ref().is_some_and(|master| *master != address) {
                        return Err(None);
                    }
                }
            }
        }
    }

    fn judge(&mut self, first: Timestamp, floor: Timestamp, connection: &TimestampClient) {
        let own_last = self.own_last.replace(Timestamp(first.0 + u64::from(self.plan.range) - 1));
        if first > floor {
            return;
        }
        let news = &mut self.state.borrow_mut().news;
        news.breach_count += 1;
        if news.breaches.len() < BREACHES_SHOWN {
            news.breaches.push(Breach {
                connection: self.number,
                server: connection.address().to_string(),
                got: first,
                floor,
                own_last: own_last.filter(|last| first <= *last),
            });
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.plan.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn answered(&mut self, begun: Instant) {
        let latency_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let answer_ns = self.now_ns();
        let mut state = self.state.borrow_mut();
        state.left.latency.saturating_record(latency_ns);
        if let Some(mut outage) = self.outage.take() {
            outage.answer_ns = answer_ns;
            outage.to = self.server.as_deref().unwrap_or_default().to_owned();
            state.news.outages.push(outage);
        }
        self.last_answer_ns = Some(answer_ns);
    }

    fn fail(&mut self, error: &str) {
        self.state.borrow_mut().news.errors += 1;
        let now_ns = self.now_ns();
        let outage = self.outage.get_or_insert_with(|| Outage {
            last_answer_ns: self.last_answer_ns,
            first_error_ns: now_ns,
            answer_ns: now_ns,
            errors: 0,
            from: self.server.as_deref().map(str::to_owned),
            to: String::new(),
            error: error.to_owned(),
        });
        outage.errors += 1;
    }

    /// Counts what is unanswered at the end: the call due at `due` and the calls due after it.
    fn leave(self, due: Instant) {
        let mut state = self.state.borrow_mut();
        let late = self.plan.stop.borrow().and_then(|stopped| stopped.checked_duration_since(due));
        state.left.unanswered += match (self.plan.every, late) {
            (Some(every), Some(late)) => 1 + (late.as_secs_f64() / every.as_secs_f64()) as u64,
            (Some(_), None) => 0,
            // In a closed loop one call is unanswered if the connection is in an outage.
            (None, _) => u64::from(self.outage.is_some()),
        };
        state.left.last_errors.extend(self.outage.map(|outage| outage.error));
    }
}

/// Waits until a call is due. Returns from when its latency counts:
///
/// - from `due`, if the connection was not free then, so that a server that stalls is not forgiven
///   the calls that it keeps from being made,
/// - else from the waking up, because a late waking is not the server's fault.
async fn wait_until(due: Instant, every: Duration) -> Instant {
    if Instant::now() >= due {
        return due;
    }
    if every >= AWAKE {
        sleep_until(due.into()).await;
        return Instant::now();
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_promise_no_more_than_the_calls_under_way_keep() {
        let left = Left { latency: new_histogram(), unanswered: 0, last_errors: Vec::new() };
        let floors = vec![Timestamp(u64::MAX), Timestamp(7)];
        let mut state = WorkerState { news: News { thread: 3, ..News::default() }, floors, left };
        state.news.firsts.push(9);
        let highest = Highest::default();
        highest.answered(Timestamp(20));
        let news = state.take_news(&highest);
        assert_eq!((news.thread, news.floor), (3, Timestamp(7)));
        assert_eq!(news.firsts, [9]);
        state.floors[1] = Timestamp(u64::MAX);
        let news = state.take_news(&highest);
        assert_eq!((news.thread, news.floor, news.firsts.len()), (3, Timestamp(20), 0));
    }
}
