//! One thread of the benchmark: its share of the connections, each of which makes one call at a
//! time, and makes it again until it is answered.

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

/// How often a thread tells what it has done.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Pause after the first error of an outage, doubled up to the next.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest pause between two tries: how exactly the end of an outage is seen.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Below this a call's time is waited for awake: the runtime sleeps in whole milliseconds.
const AWAKE: Duration = Duration::from_millis(2);
/// Longest latency that is told apart.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// The whole run.
#[derive(Clone)]
pub(crate) struct Load {
    /// Values per call.
    pub range: u32,
    /// Longest wait for a connection, and for an answer.
    pub limit: Duration,
    /// Between two calls of one connection; `None`: each follows the answer to the one before.
    pub every: Option<Duration>,
    /// When it began.
    pub begun: Instant,
    /// Who is master.
    pub master: watch::Receiver<Option<Arc<str>>>,
    /// When it ended, once it has.
    pub stop: watch::Receiver<Option<Instant>>,
    /// The largest value of all answers.
    pub highest: Arc<Highest>,
}

/// Latencies in nanoseconds.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that fit")
}

/// What happened since the last.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Number of the thread.
    pub thread: usize,
    /// First values of the answers.
    pub firsts: Vec<u64>,
    /// What calls of this thread that are not among them will bring values above.
    pub floor: Timestamp,
    /// Calls that failed.
    pub errors: u64,
    /// Outages that have ended.
    pub outages: Vec<Outage>,
    /// Answers that were not above what they had to be.
    pub breach_count: u64,
    /// The first of these.
    pub breaches: Vec<Breach>,
}

/// What a thread leaves.
#[derive(Debug)]
pub(crate) struct Left {
    /// From when each call was due (open loop) or begun (closed loop) to its answer.
    pub latency: Histogram<u64>,
    /// Calls that were due and not answered at the end, and the last error of each connection that
    /// had none.
    pub unanswered: u64,
    /// The last errors of connections that were without an answer at the end.
    pub last_errors: Vec<String>,
}

/// Shared by the connections of a thread.
struct WorkerState {
    news: News,
    /// What the call of each connection brings values above; the maximum: there is none.
    floors: Vec<Timestamp>,
    left: Left,
}

/// Runs `connections` (their numbers) to the end. Bounded by `plan.limit` after the stop.
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
            // Spread over the interval, so that they do not call all at once.
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
                // A task that panicked has told so, and what it counted is missed below.
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
            // Nobody listens: the run is over.
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
        // First what is under way, then, for calls that are still to be sent, what is known now.
        let under_way = self.floors.iter().min().copied();
        let floor = highest.floor().min(under_way.unwrap_or(Timestamp(u64::MAX)));
        let next = News { thread: self.news.thread, ..News::default() };
        News { floor, ..std::mem::replace(&mut self.news, next) }
    }
}

/// One connection.
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
            // A closed loop never waits: it looks whether to stop.
            if stop.borrow().is_some() || !self.call(begun, &mut stop).await {
                return self.leave(due.unwrap_or(begun));
            }
        }
    }

    /// Calls until there is an answer. `false`: the run ended before.
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
        // Read before the call is sent; nothing comes between this and the sending.
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

    /// One call; `Err(None)`: another server became master meanwhile.
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
                    // Without a master the old one may still answer, or end the connection.
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

    /// At the end, when the call due at `due` has not been answered: it and those after it.
    fn leave(self, due: Instant) {
        let mut state = self.state.borrow_mut();
        let late = self.plan.stop.borrow().and_then(|stopped| stopped.checked_duration_since(due));
        state.left.unanswered += match (self.plan.every, late) {
            (Some(every), Some(late)) => 1 + (late.as_secs_f64() / every.as_secs_f64()) as u64,
            (Some(_), None) => 0,
            // A closed loop owes the call that it was at, if it was at one.
            (None, _) => u64::from(self.outage.is_some()),
        };
        state.left.last_errors.extend(self.outage.map(|outage| outage.error));
    }
}

/// Waits for a call's time, and returns from when its latency counts: from when it was due if the
/// connection was not free then, so that a server that stalls is not forgiven the calls that it
/// keeps from being made; else from the waking up, which is not the server's.
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
