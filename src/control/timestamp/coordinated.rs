//! Drives the coordinator with a session of `ZooKeeper`. The driver decides nothing: it carries out
//! what the coordinator asks, one operation at a time. It then tells the coordinator the answer,
//! with the time at which the operation was begun.

// May panic: assertions 2, expectations 2.
// Why it does not: ordered 4.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{error, info, warn};
use zookeeper_client::{SessionState, StateWatcher};

use super::once_a_minute::OnceAMinute;
use super::outlets::{Outlets, pause_until};
use super::zookeeper::{Asked, ZooKeeperSession, ZooKeeperSettings, closed};
use crate::base::time::MonoNs;
use crate::ring::now;
use crate::timestamp::coordinator::{
    Alarm, Answer, Ask, Coordinator, CoordinatorSettings, Effect, Event, Role, SessionId,
};

/// Runs until the coordinator has stopped. Dropping the sender of `stop` stops it, too.
pub(crate) async fn drive(
    zookeeper: ZooKeeperSettings,
    settings: CoordinatorSettings,
    outlets: Outlets,
    mut stop: oneshot::Receiver<()>,
) {
    let mut driver = CoordinatorDriver {
        session: ZooKeeperSession::new(zookeeper),
        machine: Coordinator::new(settings),
        outlets,
        asking: None,
        watching: None,
        state: None,
        problem_told: OnceAMinute::default(),
        lost_told: OnceAMinute::default(),
        is_stopping: false,
        has_stopped: false,
    };
    driver.take(Event::Start);
    while !driver.has_stopped {
        let pause = sleep(pause_until(driver.machine.wake_at()));
        let is_stopping = driver.is_stopping;
        tokio::select! {
            biased;
            // A keeper whose handle was dropped stops, too.
            _ = &mut stop, if !is_stopping => {
                driver.is_stopping = true;
                driver.take(Event::Stop);
            }
            state = changed(&mut driver.state) => driver.state_is(state),
            asked = answered(&mut driver.asking) => driver.answer(asked),
            () = fired(&mut driver.watching) => {
                driver.watching = None;
                driver.take(Event::MasterChanged);
            }
            () = pause => {
                let last = driver.outlets.oracle().last();
                driver.take(Event::Tick { last });
            }
        }
    }
}

/// The operation under way, and when it was begun.
struct Asking {
    ask: Ask,
    sent: MonoNs,
    task: JoinHandle<Asked>,
}

/// A future that ends when the watched node changes.
type Watching = Pin<Box<dyn Future<Output = ()>>>;

struct CoordinatorDriver {
    session: ZooKeeperSession,
    machine: Coordinator,
    outlets: Outlets,
    asking: Option<Asking>,
    watching: Option<Watching>,
    /// Id and state of the session, until the session is over.
    state: Option<(SessionId, StateWatcher)>,
    problem_told: OnceAMinute,
    lost_told: OnceAMinute,
    is_stopping: bool,
    has_stopped: bool,
}

impl CoordinatorDriver {
    fn take(&mut self, event: Event) {
        let is_loss = matches!(event, Event::SessionExpired)
            || matches!(event, Event::Answered { answer: Answer::Expired, .. });
        let was_master = matches!(self.outlets.board().role(), Role::Master | Role::Suspended);
        if is_loss && was_master {
            self.outlets.board().counters.masterships_lost.fetch_add(1, Relaxed);
        }
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let mut effects = Vec::new();
            self.machine.handle(now(), event, &mut effects);
            for effect in effects {
                if let Some(answer) = self.apply(effect) {
                    assert!(next.is_none(), "one revocation for each event");
                    next = Some(answer);
                }
            }
        }
        let role = self.machine.role(now().mono);
        self.outlets.set_role(if self.is_stopping { Role::Stopped } else { role });
    }

    fn apply(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Ask(ask) => self.ask(ask),
            Effect::Begin(floor, terms) => self.outlets.begin(floor, &terms),
            Effect::Publish(terms) => self.outlets.oracle().publish(&terms),
            Effect::Revoke => return Some(Event::Revoked { last: self.outlets.oracle().revoke() }),
            Effect::MasterIs(address) => self.outlets.master_is(address),
            Effect::Clock(seen) => self.outlets.clock_seen(seen),
            Effect::Alarm(alarm) => self.alarm(alarm),
            Effect::Stopped => self.has_stopped = true,
        }
        None
    }

    fn alarm(&mut self, alarm: Alarm) {
        let counters = &self.outlets.board().counters;
        match alarm {
            Alarm::ForeignBound(stored) => {
                counters.foreign_bounds.fetch_add(1, Relaxed);
                error!(
                    bound = stored.bound.0,
                    "another server wrote the bound while this one was master: an original server \
                     that had been frozen does so; timestamps go on above it"
                );
            }
            Alarm::BoundLost(stored) => {
                counters.bounds_missing.fetch_add(1, Relaxed);
                if self.lost_told.is_due() {
                    error!("{}", self.session.lost_bound_told(stored));
                }
            }
            Alarm::Deposed => {
                counters.masterships_lost.fetch_add(1, Relaxed);
                error!(
                    "the master's node was taken from this server: it stands for election again"
                );
            }
            Alarm::LeaseOver => {
                counters.suspensions.fetch_add(1, Relaxed);
                error!(
                    "ZooKeeper has acknowledged nothing for so long that another server may be \
                     master soon: no timestamp is handed out until it does"
                );
            }
        }
    }

    /// Begins an operation. At most one operation is under way.
    fn ask(&mut self, ask: Ask) {
        assert!(self.asking.is_none(), "one thing is asked at a time");
        let sent = now().mono;
        let task = match &ask {
            Ask::CloseSession => {
                // This drops the last handle, so the library closes the session.
                let state = self.let_go();
                tokio::spawn(async {
                    if let Some((_, state)) = state {
                        closed(state).await;
                    }
                    Asked::of(Answer::Done)
                })
            }
            _ => {
                if matches!(ask, Ask::OpenSession) {
                    self.let_go();
                }
                if matches!(ask, Ask::WatchMaster) {
                    // There is one watch at a time. The former watch ends first.
                    self.watching = None;
                }
                let (session, ask) = (self.session.clone(), ask.clone());
                tokio::spawn(async move { session.ask(&ask).await })
            }
        };
        self.asking = Some(Asking { ask, sent, task });
    }

    fn let_go(&mut self) -> Option<(SessionId, StateWatcher)> {
        self.watching = None;
        self.session.set_client(None);
        self.state.take()
    }

    /// Tells the coordinator how the operation under way ended.
    fn answer(&mut self, asked: Asked) {
        let Asking { ask, sent, .. } = self.asking.take().expect("it was asked");
        let Asked { answer, watcher, opened, problem } = asked;
        if let Some(problem) = problem {
            self.tell(&ask, &answer, &problem);
        } else if self.problem_told.reset() {
            info!("ZooKeeper answers again");
        }
        if matches!(ask, Ask::OpenSession) {
            if opened.is_none() && !self.is_stopping {
                return self.ask(Ask::OpenSession);
            }
            self.session.set_client(opened);
            self.state = self.session.state();
            if let Answer::Session { session, timeout_ms } = &answer {
                self.outlets.board().counters.sessions.fetch_add(1, Relaxed);
                info!(timeout_ms, "session {:#x} of ZooKeeper", session.0);
            }
        }
        let is_store = matches!(ask, Ask::WriteBound { .. } | Ask::Release { .. });
        if is_store && !matches!(answer, Answer::Done | Answer::Written(_)) {
            self.outlets.board().counters.store_errors.fetch_add(1, Relaxed);
        }
        if let Some(watcher) = watcher {
            self.watching = Some(Box::pin(async {
                watcher.changed().await;
            }));
        }
        self.take(Event::Answered { sent, answer });
    }

    fn tell(&mut self, ask: &Ask, answer: &Answer, problem: &str) {
        if !self.problem_told.is_due() {
            return;
        }
        match answer {
            Answer::Refused => error!("ZooKeeper refuses {ask:?}: {problem}; tried again"),
            _ => warn!("ZooKeeper did not answer {ask:?}: {problem}; tried again"),
        }
    }

    fn state_is(&mut self, state: SessionState) {
        match state {
            SessionState::Disconnected => warn!("the connection to ZooKeeper is lost"),
            state if state.is_terminated() => {
                let (session, _) = self.state.take().expect("its state changed");
                warn!("session {:#x} of ZooKeeper is over: {state}", session.0);
                self.watching = None;
                self.take(Event::SessionExpired);
            }
            _ => info!("connected to ZooKeeper again"),
        }
    }
}

/// Returns the session's next state. Never returns without a session.
async fn changed(state: &mut Option<(SessionId, StateWatcher)>) -> SessionState {
    match state {
        Some((_, watcher)) => watcher.changed().await,
        None => pending().await,
    }
}

/// Returns how the operation under way ended. Never returns if there is none. A panic of the
/// library counts as an answer that got lost.
async fn answered(asking: &mut Option<Asking>) -> Asked {
    match asking {
        Some(asking) => match (&mut asking.task).await {
            Ok(asked) => asked,
            Err(panic) => Asked { problem: Some(panic.to_string()), ..Asked::of(Answer::Lost) },
        },
        None => pending().await,
    }
}

/// Returns when the watched node has changed. Never returns if none is watched.
async fn fired(watching: &mut Option<Watching>) {
    match watching {
        Some(watching) => watching.await,
        None => pending().await,
    }
}
