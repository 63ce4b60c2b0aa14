//! The processes that serve timestamps. Each has a keeper and a core, which stop where the story
//! says.

use std::collections::VecDeque;

use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::timestamp::Timestamp;
use chronos::timestamp::coordinator::{
    Alarm, Answer, Ask, Coordinator, CoordinatorSettings, Effect, Event as KeeperEvent, MasterNode,
    SessionId,
};
use chronos::timestamp::oracle::{Oracle, Refusal, Term};
use chronos::timestamp::standalone::{FileEvent, Standalone, StandaloneSettings};

use super::client::{Client, Told};
use super::clocks::{Clocks, TRUE_MS};
use super::disk::Disk;
use super::ensemble::{MasterIs, Op, Reply};
use super::model::{Checked, MS, Range, broken};
use super::original::Original;
use super::story::Point;
use super::users::Outcome;
use super::world::{Event, World};

/// How long a request is parked until it is given up.
const PARKED_MS_MAX: u64 = 200;
/// How often a keeper that gets time looks at its wall clock at least.
const LOOK_MS: u64 = 1_500;
/// How much values may differ because clocks differ in speed and are rounded.
const SLACK_MS: u64 = 100;
/// Pause between two looks at a parked request.
const PARKED_NS: u64 = MS;

/// The state machine that decides over the oracle.
pub enum Keeper {
    Zoo(Box<Coordinator>),
    File(Box<Standalone>),
    Original(Original),
}

/// An event for a keeper.
#[derive(Clone, Debug)]
pub enum News {
    Zoo(KeeperEvent),
    File(FileEvent),
    Original(Told),
}

/// The decisions of a keeper.
#[derive(Clone, Debug)]
pub enum Decided {
    Zoo(Vec<Effect>),
    File(Vec<chronos::timestamp::standalone::FileEffect>),
}

/// A user's request at a server.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub number: usize,
    pub count: u32,
}

/// The step of its turn that a core takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Clock,
    Make,
    Check,
    Send,
}

#[derive(Default)]
pub struct Core {
    pub inbox: Vec<(Call, u64)>,
    is_turning: bool,
    now: MonoNs,
    /// The time that values made with that reading of the clock must not be below.
    least_ms: u64,
    made: Vec<(Call, Timestamp, Option<Term>)>,
    leaving: Vec<(Call, Timestamp)>,
}

pub struct Server {
    pub life: u64,
    pub is_up: bool,
    /// Whether the wall clock was far behind when this life began.
    pub began_behind: bool,
    pub is_original: bool,
    pub clocks: Clocks,
    pub client: Client,
    pub disk: Disk,
    pub keeper: Keeper,
    pub oracle: Oracle,
    pub core: Core,
    pub frozen_until_ns: u64,
    pub starved_until_ns: u64,
    pub isolated_until_ns: u64,
    pub freeze_at: Option<(Point, u64)>,
    pub ticks_at: Option<u64>,
    /// When the last news of its session arrives. News keep their order.
    pub told_ns: u64,
    /// The news that the keeper has not looked at yet, in order.
    pub inbox: VecDeque<News>,
    pub keeper_turns: bool,
    pub is_stopping: bool,
    pub restarts_in_ms: u64,
}

impl Server {
    pub fn serves(&self, now_ns: u64) -> bool {
        let now = self.clocks.now(now_ns);
        self.is_up
            && match &self.keeper {
                Keeper::Original(original) => original.serves(),
                _ => now.mono < self.oracle.terms().0.until,
            }
    }
}

impl World {
    pub fn is_alive(&self, server: usize, life: u64) -> bool {
        self.servers[server].is_up && self.servers[server].life == life
    }

    /// Starts a process.
    pub fn boot(&mut self, server: usize) {
        self.trace.add(self.now_ns, "boot", [server as u64, 0, 0, 0]);
        let options = self.options.clone();
        let one = &mut self.servers[server];
        one.life += 1;
        one.is_up = true;
        one.began_behind = one.clocks.far_ms < 0;
        one.is_stopping = false;
        one.client = Client::default();
        one.core = Core::default();
        one.oracle = Oracle::default();
        one.frozen_until_ns = 0;
        one.starved_until_ns = 0;
        one.freeze_at = None;
        one.ticks_at = None;
        one.inbox.clear();
        one.keeper_turns = false;
        let life = one.life;
        if options.is_standalone {
            let keeper = Standalone::new(StandaloneSettings {
                window_ms: options.window_ms,
                clock_jump_max_ms: options.clock_jump_max_ms,
            });
            one.keeper = Keeper::File(Box::new(keeper));
            let file = one.disk.content(&mut self.interleaving);
            return self.news(server, 0, News::File(FileEvent::Loaded(file)));
        }
        self.schedule(self.now_ns, Event::ClientLooks { server, life });
        if self.servers[server].is_original {
            self.servers[server].keeper = Keeper::Original(Original::default());
            return self.client_asks(server, Op::Open);
        }
        let keeper = Coordinator::new(CoordinatorSettings {
            address: format!("server{server}_7911"),
            window_ms: options.window_ms,
            clock_jump_max_ms: options.clock_jump_max_ms,
        });
        self.servers[server].keeper = Keeper::Zoo(Box::new(keeper));
        self.news(server, 0, News::Zoo(KeeperEvent::Start));
    }

    /// Ends a process, with all that it had not sent.
    pub fn die(&mut self, server: usize) {
        self.trace.add(self.now_ns, "dies", [server as u64, 0, 0, 0]);
        let one = &mut self.servers[server];
        one.is_up = false;
        one.core = Core::default();
        one.disk.crash();
        for link in 0..self.links.len() {
            if self.links[link].server == server {
                self.links[link].is_open = false;
            }
        }
    }

    pub fn restart_later(&mut self, server: usize, for_ms: u64) {
        let life = self.servers[server].life;
        self.schedule(self.now_ns + for_ms * MS, Event::Restart { server, life });
    }

    /// Sends an event to the keeper, which takes its way through the process.
    pub fn news(&mut self, server: usize, delay_ns: u64, news: News) {
        let life = self.servers[server].life;
        self.news.push(Some(news));
        let at = self.news.len() - 1;
        self.schedule(self.now_ns + delay_ns, Event::News { server, life, at });
    }

    pub fn tell(&mut self, server: usize, told: Told) {
        let news = match (&self.servers[server].keeper, told) {
            (Keeper::Original(_), told) => News::Original(told),
            (_, Told::Disconnected) => return,
            (_, Told::Changed) => News::Zoo(KeeperEvent::MasterChanged),
            (_, Told::Expired) => News::Zoo(KeeperEvent::SessionExpired),
            (_, Told::Lost { sent }) => {
                News::Zoo(KeeperEvent::Answered { sent, answer: Answer::Lost })
            }
            (_, Told::Answer { sent, reply }) => {
                News::Zoo(KeeperEvent::Answered { sent, answer: self.answer(reply) })
            }
        };
        // News go through the one channel to the keeper. Changes may be late.
        let changes_ns = self.options.watch_delay_ms * MS;
        let most_ns = if matches!(told, Told::Changed) { changes_ns } else { 200_000 };
        let delay_ns = self.interleaving.range(1_000, most_ns);
        if matches!(told, Told::Changed) {
            return self.news(server, delay_ns, news);
        }
        let one = &mut self.servers[server];
        one.told_ns = (self.now_ns + delay_ns).max(one.told_ns + 1);
        let delay_ns = one.told_ns - self.now_ns;
        self.news(server, delay_ns, news);
    }

    fn answer(&self, reply: Reply) -> Answer {
        match reply {
            Reply::Session(session) => {
                Answer::Session { session: SessionId(session), timeout_ms: self.options.session_ms }
            }
            Reply::Done => Answer::Done,
            Reply::Exists => Answer::Exists,
            Reply::Conflict => Answer::Conflict,
            Reply::Expired => Answer::Expired,
            Reply::Nodes(nodes) => Answer::Nodes(nodes),
            Reply::Bound(stored) => Answer::Bound(stored),
            Reply::NoBound => Answer::NoBound,
            Reply::Written(ms) => Answer::Written(WallMs(ms)),
            Reply::Master(master, _) => Answer::Master(master.map(|master| self.node(master))),
            Reply::Resumed | Reply::Pong | Reply::Synced | Reply::MasterChanged => {
                unreachable!("{reply:?} is no answer to a keeper")
            }
        }
    }

    fn node(&self, master: MasterIs) -> MasterNode {
        MasterNode {
            address: format!("server{}_7911", master.server),
            owner: SessionId(master.owner),
            created: WallMs(TRUE_MS + master.created_ns / MS),
        }
    }

    /// Freezes the process if it should freeze at this point. Returns whether it froze. Then
    /// everything that it does comes later.
    fn freezes_at(&mut self, server: usize, point: Point) -> bool {
        let one = &mut self.servers[server];
        let Some((_, ms)) = one.freeze_at.take_if(|(at, _)| *at == point) else { return false };
        one.frozen_until_ns = one.frozen_until_ns.max(self.now_ns + ms * MS);
        self.trace.add(self.now_ns, "freezes", [server as u64, point as u64, ms, 0]);
        true
    }

    pub fn news_arrive(&mut self, server: usize, life: u64, at: usize) {
        if !self.is_alive(server, life) {
            return;
        }
        let news = self.news[at].take().expect("news come once");
        self.servers[server].inbox.push_back(news);
        if !std::mem::replace(&mut self.servers[server].keeper_turns, true) {
            self.schedule(self.now_ns, Event::Keeper { server, life, read: None });
        }
    }

    fn keeper_goes_on(&mut self, server: usize) {
        let one = &mut self.servers[server];
        one.keeper_turns = one.is_up && !one.inbox.is_empty();
        if one.keeper_turns {
            let life = one.life;
            self.schedule(self.now_ns + 1_000, Event::Keeper { server, life, read: None });
        }
    }

    /// Runs the keeper on its news. `read` is the clock's reading that the keeper has already.
    pub fn keeper_turns(&mut self, server: usize, life: u64, read: Option<Now>) -> Checked {
        if !self.is_alive(server, life) {
            return Ok(());
        }
        let one = &self.servers[server];
        let not_before_ns = one.frozen_until_ns.max(one.starved_until_ns);
        if not_before_ns > self.now_ns {
            self.schedule(not_before_ns, Event::Keeper { server, life, read });
            return Ok(());
        }
        let now = read.unwrap_or_else(|| one.clocks.now(self.now_ns));
        if read.is_none() && self.freezes_at(server, Point::KeeperClockRead) {
            let at_ns = self.servers[server].frozen_until_ns;
            self.schedule(at_ns, Event::Keeper { server, life, read: Some(now) });
            return Ok(());
        }
        let one = &mut self.servers[server];
        let mut news = one.inbox.pop_front().expect("there is a turn for each");
        let last = one.oracle.last();
        match &mut news {
            News::Zoo(KeeperEvent::Tick { last: at })
            | News::File(FileEvent::Tick { last: at }) => {
                *at = last;
            }
            _ => {}
        }
        if matches!(news, News::File(FileEvent::Stored)) {
            self.file_is_stored(server);
        }
        if self.is_tick(&news) {
            self.servers[server].ticks_at = None;
        }
        let decided = match (&mut self.servers[server].keeper, news) {
            (Keeper::Zoo(keeper), News::Zoo(event)) => {
                let mut effects = Vec::new();
                keeper.handle(now, event, &mut effects);
                Decided::Zoo(effects)
            }
            (Keeper::File(keeper), News::File(event)) => {
                let mut effects = Vec::new();
                keeper.handle(now, event, &mut effects);
                Decided::File(effects)
            }
            (_, News::Original(told)) => {
                self.original_told(server, told)?;
                self.keeper_goes_on(server);
                return Ok(());
            }
            (_, news) => unreachable!("{news:?} is for another keeper"),
        };
        if self.freezes_at(server, Point::KeeperDecided) {
            let at_ns = self.servers[server].frozen_until_ns;
            self.decided.push(Some(decided));
            let at = self.decided.len() - 1;
            self.schedule(at_ns, Event::Decided { server, life, at });
            return Ok(());
        }
        self.carry_out(server, decided);
        self.keeper_goes_on(server);
        Ok(())
    }

    fn is_tick(&self, news: &News) -> bool {
        matches!(news, News::Zoo(KeeperEvent::Tick { .. }) | News::File(FileEvent::Tick { .. }))
    }

    pub fn carry_out_later(&mut self, server: usize, life: u64, at: usize) {
        if !self.is_alive(server, life) {
            return;
        }
        let frozen_until_ns = self.servers[server].frozen_until_ns;
        if frozen_until_ns > self.now_ns {
            return self.schedule(frozen_until_ns, Event::Decided { server, life, at });
        }
        let decided = self.decided[at].take().expect("it is carried out once");
        self.carry_out(server, decided);
        self.keeper_goes_on(server);
    }

    pub fn carry_out(&mut self, server: usize, decided: Decided) {
        match decided {
            Decided::Zoo(effects) => {
                for effect in effects {
                    self.zoo_effect(server, effect);
                }
            }
            Decided::File(effects) => {
                for effect in effects {
                    self.file_effect(server, effect);
                }
            }
        }
        self.wake_keeper(server);
    }

    fn wake_keeper(&mut self, server: usize) {
        let one = &mut self.servers[server];
        if !one.is_up {
            return;
        }
        let (wake_at, news) = match &one.keeper {
            Keeper::Zoo(keeper) => {
                (keeper.wake_at(), News::Zoo(KeeperEvent::Tick { last: Timestamp(0) }))
            }
            Keeper::File(keeper) => {
                (keeper.wake_at(), News::File(FileEvent::Tick { last: Timestamp(0) }))
            }
            Keeper::Original(_) => return,
        };
        if wake_at.0 == u64::MAX {
            return;
        }
        let at_ns = one.clocks.mono.when(wake_at.0).max(self.now_ns + 1_000);
        if one.ticks_at.is_none_or(|ticks_at| ticks_at > at_ns) {
            one.ticks_at = Some(at_ns);
            self.news(server, at_ns - self.now_ns, news);
        }
    }

    fn zoo_effect(&mut self, server: usize, effect: Effect) {
        let now = self.servers[server].clocks.now(self.now_ns);
        match effect {
            Effect::Ask(ask) => self.client_asks(server, op(ask)),
            Effect::Begin(floor, terms) => {
                self.trace.add(self.now_ns, "begins", [server as u64, floor.0, 0, 0]);
                self.servers[server].oracle.begin(floor, &terms);
                self.model.begins(server, now.mono < terms.until);
            }
            Effect::Publish(terms) => self.servers[server].oracle.publish(&terms),
            Effect::Revoke => {
                self.trace.add(self.now_ns, "revoked", [server as u64, 0, 0, 0]);
                let last = self.servers[server].oracle.revoke();
                let Keeper::Zoo(keeper) = &mut self.servers[server].keeper else { return };
                let mut effects = Vec::new();
                keeper.handle(now, KeeperEvent::Revoked { last }, &mut effects);
                self.carry_out(server, Decided::Zoo(effects));
            }
            Effect::Alarm(alarm) => {
                self.alarms += 1;
                let kind = match alarm {
                    Alarm::ForeignBound(_) => "foreign",
                    Alarm::BoundLost(_) => "boundlost",
                    Alarm::Deposed => "deposed",
                    Alarm::LeaseOver => "leaseover",
                };
                self.trace.add(self.now_ns, kind, [server as u64, 0, 0, 0]);
            }
            Effect::MasterIs(_) | Effect::Clock(_) => {}
            Effect::Stopped => self.stopped(server),
        }
    }

    pub fn stopped(&mut self, server: usize) {
        self.die(server);
        let for_ms = self.servers[server].restarts_in_ms;
        self.restart_later(server, for_ms);
    }

    /// Takes a request of a user.
    pub fn call_arrives(&mut self, server: usize, call: Call) {
        if !self.servers[server].is_up {
            return self.reply(server, call, Outcome::Refused);
        }
        let now_ns = self.now_ns;
        let core = &mut self.servers[server].core;
        core.inbox.push((call, now_ns));
        if !std::mem::replace(&mut core.is_turning, true) {
            self.next_step(server, Step::Clock, 0);
        }
    }

    fn next_step(&mut self, server: usize, step: Step, delay_ns: u64) {
        let life = self.servers[server].life;
        let delay_ns = delay_ns + self.interleaving.range(1_000, 50_000);
        self.schedule(self.now_ns + delay_ns, Event::Step { server, life, step });
    }

    pub fn step(&mut self, server: usize, life: u64, step: Step) -> Checked {
        if !self.is_alive(server, life) {
            return Ok(());
        }
        let frozen_until_ns = self.servers[server].frozen_until_ns;
        if frozen_until_ns > self.now_ns {
            self.schedule(frozen_until_ns, Event::Step { server, life, step });
            return Ok(());
        }
        let now = self.servers[server].clocks.now(self.now_ns);
        match step {
            Step::Clock => {
                self.servers[server].core.now = now.mono;
                self.servers[server].core.least_ms = self.least_ms(server);
                self.freezes_at(server, Point::ClockRead);
                self.next_step(server, Step::Make, 0);
            }
            Step::Make => {
                self.make(server, now);
                self.freezes_at(server, Point::Made);
                self.next_step(server, Step::Check, 0);
            }
            Step::Check => {
                self.check(server, now)?;
                self.freezes_at(server, Point::Checked);
                self.next_step(server, Step::Send, 0);
            }
            Step::Send => {
                for (call, first) in std::mem::take(&mut self.servers[server].core.leaving) {
                    self.reply(server, call, Outcome::Given(first));
                }
                let core = &mut self.servers[server].core;
                core.is_turning = !core.inbox.is_empty();
                if core.is_turning {
                    self.next_step(server, Step::Clock, PARKED_NS);
                }
            }
        }
        Ok(())
    }

    fn make(&mut self, server: usize, now: Now) {
        let arrived = std::mem::take(&mut self.servers[server].core.inbox);
        for (call, since_ns) in arrived {
            let one = &mut self.servers[server];
            let taken = match &mut one.keeper {
                Keeper::Original(original) => {
                    original.take(now.wall.0, call.count, self.options.original_advance_ms)
                }
                _ => one.oracle.take(one.core.now, call.count).map(|(at, term)| (at, Some(term))),
            };
            match taken {
                Ok((first, term)) => one.core.made.push((call, first, term)),
                Err(Refusal::NextMillisecond | Refusal::Window)
                    if self.now_ns - since_ns < PARKED_MS_MAX * MS =>
                {
                    one.core.inbox.push((call, since_ns));
                }
                Err(_) => self.reply(server, call, Outcome::Refused),
            }
        }
        self.original_writes(server);
    }

    /// Takes the second look at the clock, and lets values go.
    fn check(&mut self, server: usize, now: Now) -> Checked {
        for (call, first, term) in std::mem::take(&mut self.servers[server].core.made) {
            let range = Range { first, count: call.count };
            if term.is_none() && !self.is_valid_master(server) {
                // This is an original that does not know yet that it was replaced.
                self.servers[server].core.leaving.push((call, first));
                continue;
            }
            if let Some(term) = term {
                if !self.servers[server].oracle.holds(now.mono, term) {
                    self.reply(server, call, Outcome::Refused);
                    continue;
                }
                let stored = self.stored_bound(server);
                self.model.leaves(self.now_ns, server, range, stored)?;
                self.model.is_not_behind(server, range, self.servers[server].core.least_ms)?;
            }
            self.trace.add(self.now_ns, "leaves", [server as u64, first.0, call.count.into(), 0]);
            self.model.hands_out(server, range)?;
            self.servers[server].core.leaving.push((call, first));
        }
        Ok(())
    }

    /// Returns for S7 the least time that values may tell. Values may be behind the true time as
    /// far as the wall clock is, and not for long after the clock was set right.
    fn least_ms(&self, server: usize) -> u64 {
        let one = &self.servers[server];
        let busy_until_ns = one.frozen_until_ns.max(one.starved_until_ns);
        let is_fresh = self.now_ns < busy_until_ns.max(one.clocks.stepped_ns) + LOOK_MS * MS;
        // A server with a file has no witness against a clock that was wrong when the server began,
        // or is wrong now.
        let clocks = &one.clocks;
        let is_wrong = one.began_behind || clocks.far_ms != 0 || clocks.is_refused();
        if is_fresh || self.options.is_standalone && is_wrong {
            return 0;
        }
        let true_ms = TRUE_MS + self.now_ns / MS;
        let behind_ms = self.options.skew_ms_max as u64 + one.clocks.small_steps_ms + SLACK_MS;
        one.clocks.now(self.now_ns).wall.0.min(true_ms - behind_ms + SLACK_MS) - SLACK_MS
    }

    /// Returns the bound at which a successor would begin.
    fn stored_bound(&self, server: usize) -> Timestamp {
        match (self.options.is_standalone, self.options.originals) {
            (true, _) => self.servers[server].disk.least(),
            (false, 0) => self.zoo.head().bound.bound,
            // An original writes any bound, even as a master that was deposed.
            _ => self.model.highest(),
        }
    }

    /// Checks at the end, when all is well, that exactly one server serves. Two originals may both
    /// believe that they do: nothing ends a mastership of theirs but a session that they see end.
    pub fn one_serves(&self) -> Checked {
        let serving: Vec<usize> =
            (0..self.servers.len()).filter(|&at| self.servers[at].serves(self.now_ns)).collect();
        let is_original = |&at: &usize| matches!(self.servers[at].keeper, Keeper::Original(_));
        if serving.len() == 1 || serving.len() > 1 && serving.iter().all(is_original) {
            return Ok(());
        }
        broken("S6", format!("{serving:?} serve at the end"))
    }
}

fn op(ask: Ask) -> Op {
    match ask {
        Ask::OpenSession => Op::Open,
        Ask::FindNodes => Op::FindNodes,
        Ask::MakeCluster => Op::MakeCluster,
        Ask::CreateMaster => Op::CreateMaster,
        Ask::WatchMaster => Op::ReadMaster,
        Ask::RegisterBackup => Op::CreateBackup,
        Ask::UnregisterBackup => Op::DeleteBackup,
        Ask::ReadBound => Op::ReadBound,
        Ask::WriteBound { bound, version } => Op::SetBound { bound, version, needs_master: true },
        Ask::Release { bound, version } => Op::Release { bound, version },
        Ask::CloseSession => Op::Close,
    }
}
