//! One run of a story: virtual time, the queue of events, and what each event does.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use chronos::base::time::Now;
use chronos::timestamp::Timestamp;
use chronos::timestamp::coordinator::{Event as KeeperEvent, Nodes};
use chronos::timestamp::oracle::Oracle;
use chronos::timestamp::standalone::FileEvent;
use kit::simulator::random::{Purpose, Stream};
use kit::simulator::story::Violation;
use kit::simulator::trace::Trace;

use super::client::Client;
use super::clocks::{Clocks, SMALL_MS, TRUE_MS};
use super::disk::Disk;
use super::ensemble::{Ensemble, Link, LinkId, Message, Reply, Request};
use super::model::{Checked, MS, Model, broken};
use super::options::{Options, Trouble};
use super::original::Original;
use super::servers::{Call, Core, Decided, Keeper, News, Server, Step};
use super::story::{Fault, MASTER, Story};
use super::users::{Calling, Outcome};

/// How many events make a run endless.
const EVENTS_MAX: u64 = 3_000_000;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    UserCalls(usize),
    CallArrives(usize),
    Answer(usize),
    Impatient(usize),
    Fault(usize),
    /// Faults end.
    Heal,
    End,
    /// Checks that a server serves again after a fault that no other fault disturbed.
    ServesAgain {
        since_ns: u64,
    },
    Restart {
        server: usize,
        life: u64,
    },
    News {
        server: usize,
        life: u64,
        at: usize,
    },
    Keeper {
        server: usize,
        life: u64,
        read: Option<Now>,
    },
    Decided {
        server: usize,
        life: u64,
        at: usize,
    },
    Step {
        server: usize,
        life: u64,
        step: Step,
    },
    Connect {
        server: usize,
        life: u64,
    },
    ClientLooks {
        server: usize,
        life: u64,
    },
    ToPeer(usize),
    ToClient(usize),
    LinkDown(LinkId),
    Between {
        peer: usize,
        is_to_leader: bool,
        cut: u64,
        epoch: u64,
        message: usize,
    },
    Commit {
        epoch: u64,
    },
    PingPeers {
        epoch: u64,
    },
    Expire {
        epoch: u64,
    },
    Elect {
        epoch: u64,
    },
    PeerDown {
        peer: usize,
        cut: u64,
    },
    PeerBack {
        peer: usize,
        cut: u64,
    },
    CutOff {
        server: usize,
        answers_ms: u64,
    },
    SetWall {
        server: usize,
        ms: i64,
    },
    MakeBound,
}

/// An event of the queue, in the order of time, then of scheduling.
struct Queued {
    at: Reverse<(u64, u64)>,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// The result of a run.
pub struct Report {
    pub trace: Trace,
    pub virtual_ns: u64,
    pub answers: u64,
    pub refused: u64,
    pub alarms: u64,
    pub failovers_timed: u64,
    pub ahead_ms: u64,
    pub violation: Option<Violation>,
}

pub struct World {
    pub options: Options,
    pub story: Story,
    pub now_ns: u64,
    pub model: Model,
    pub trace: Trace,
    pub network: Stream,
    pub interleaving: Stream,
    pub users: Stream,
    pub zoo: Ensemble,
    pub servers: Vec<Server>,
    pub links: Vec<Link>,
    pub messages: Vec<Option<Message>>,
    pub requests: Vec<Request>,
    pub replies: Vec<(LinkId, u64, Reply)>,
    pub news: Vec<Option<News>>,
    pub decided: Vec<Option<Decided>>,
    pub calls: Vec<(usize, Call)>,
    pub answers: Vec<(usize, Call, Outcome, bool)>,
    pub calling: Vec<Calling>,
    pub calls_left: Vec<u32>,
    pub believed: usize,
    pub refused: u64,
    pub alarms: u64,
    failovers_timed: u64,
    /// Until when the last fault is felt.
    disturbed_until_ns: u64,
    disturbances: u64,
    is_healed: bool,
    queue: BinaryHeap<Queued>,
    queued: u64,
    is_over: bool,
}

/// Runs a story to its end or to the first violation.
pub fn run(story: &Story, keep_trace: bool) -> Report {
    let mut world = World::new(story.clone(), keep_trace);
    let violation = world.play().err();
    Report {
        virtual_ns: world.now_ns,
        answers: world.model.answers,
        refused: world.refused,
        alarms: world.alarms,
        failovers_timed: world.failovers_timed,
        ahead_ms: world.model.ahead_ms_seen,
        trace: world.trace,
        violation,
    }
}

impl World {
    fn new(story: Story, keep_trace: bool) -> Self {
        let options = story.options.clone();
        let draw = &mut Stream::new(options.seed, Purpose::Interleaving);
        let ahead_ms = draw.pick(&[0, 0, 20_000]);
        let floor_ms = draw.pick(&[TRUE_MS - 10_000, TRUE_MS + ahead_ms]);
        let floor = Timestamp(Timestamp::of_unix_ms(floor_ms).0 + draw.range(0, 1_000));
        let (nodes, floor) = match options.is_fresh {
            true => (Nodes::None, Timestamp(0)),
            false => (Nodes::Whole, floor),
        };
        let servers = (0..options.servers)
            .map(|server| Server {
                life: 0,
                is_up: false,
                began_behind: false,
                is_original: server < options.originals,
                clocks: Clocks::new(draw, &options),
                client: Client::default(),
                disk: Disk::new(floor),
                keeper: Keeper::Original(Original::default()),
                oracle: Oracle::default(),
                core: Core::default(),
                frozen_until_ns: 0,
                starved_until_ns: 0,
                isolated_until_ns: 0,
                freeze_at: None,
                ticks_at: None,
                told_ns: 0,
                inbox: VecDeque::new(),
                keeper_turns: false,
                is_stopping: false,
                restarts_in_ms: 0,
            })
            .collect();
        let calls_left = story.operations.iter().map(|operation| operation.calls).collect();
        let mut world = Self {
            now_ns: 0,
            model: Model::new(floor, ahead_ms_max(&story, ahead_ms)),
            trace: Trace::new(keep_trace),
            network: Stream::new(options.seed, Purpose::Callbacks),
            users: Stream::new(options.seed, Purpose::Cleaning),
            interleaving: draw.clone(),
            zoo: Ensemble::new(options.peers, nodes, floor),
            servers,
            links: Vec::new(),
            messages: Vec::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            news: Vec::new(),
            decided: Vec::new(),
            calls: Vec::new(),
            answers: Vec::new(),
            calling: Vec::new(),
            calls_left,
            believed: 0,
            refused: 0,
            alarms: 0,
            failovers_timed: 0,
            disturbed_until_ns: 0,
            disturbances: 0,
            is_healed: false,
            queue: BinaryHeap::new(),
            queued: 0,
            is_over: false,
            options,
            story,
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        self.schedule(0, Event::Elect { epoch: 0 });
        for at in 0..self.story.operations.len() {
            self.schedule(self.story.operations[at].at_ns, Event::UserCalls(at));
        }
        for at in 0..self.story.faults.len() {
            self.schedule(self.story.faults[at].0, Event::Fault(at));
        }
        for server in 0..self.servers.len() {
            let at_ns = self.interleaving.range(0, 500 * MS);
            self.schedule(at_ns, Event::Restart { server, life: 0 });
        }
        self.schedule(self.options.safety_ms * MS, Event::Heal);
    }

    pub fn schedule(&mut self, at_ns: u64, event: Event) {
        assert!(at_ns >= self.now_ns, "{event:?} lies in the past");
        self.queued += 1;
        self.queue.push(Queued { at: Reverse((at_ns, self.queued)), event });
    }

    pub fn keep(&mut self, message: Message) -> usize {
        self.messages.push(Some(message));
        self.messages.len() - 1
    }

    fn play(&mut self) -> Checked {
        let mut events = 0;
        while !self.is_over {
            let Some(Queued { at: Reverse((at_ns, _)), event }) = self.queue.pop() else {
                return broken("endless", "nothing is left to happen".to_owned());
            };
            self.now_ns = at_ns;
            self.happen(event)?;
            events += 1;
            if events > EVENTS_MAX {
                return broken("endless", format!("{events} events"));
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::UserCalls(operation) => self.user_calls(operation),
            Event::CallArrives(at) => {
                let (server, call) = self.calls[at];
                self.call_arrives(server, call);
            }
            Event::Answer(at) => self.answer_comes(at)?,
            Event::Impatient(number) => self.impatient(number),
            Event::Fault(at) => self.fault(self.story.faults[at].1),
            Event::Heal => self.heal(),
            Event::End => {
                self.is_over = true;
                self.one_serves()?;
            }
            Event::ServesAgain { since_ns } => self.serves_again(since_ns)?,
            Event::Restart { server, life } => {
                if !self.servers[server].is_up && self.servers[server].life == life {
                    self.boot(server);
                }
            }
            Event::News { server, life, at } => self.news_arrive(server, life, at),
            Event::Keeper { server, life, read } => self.keeper_turns(server, life, read)?,
            Event::Decided { server, life, at } => self.carry_out_later(server, life, at),
            Event::Step { server, life, step } => self.step(server, life, step)?,
            Event::Connect { server, life } => {
                if self.is_alive(server, life) {
                    self.connect(server);
                }
            }
            Event::ClientLooks { server, life } => self.client_looks(server, life),
            Event::ToPeer(at) => self.request_arrives(at),
            Event::ToClient(at) => self.reply_arrives(at),
            Event::LinkDown(link) => self.link_down(link),
            Event::Between { .. } => self.arrives_between(event),
            Event::Commit { epoch } => self.committed(epoch),
            Event::PingPeers { epoch } => self.ping_peers(epoch),
            Event::Expire { epoch } => self.expire(epoch),
            Event::Elect { epoch } => self.elect(epoch),
            Event::PeerDown { peer, cut } => self.peer_down(peer, cut),
            Event::PeerBack { peer, cut } => self.peer_back(peer, cut),
            Event::CutOff { server, answers_ms } => {
                let peer = self.peer_of(server);
                self.cut_off(peer, answers_ms, answers_ms + 2_000);
            }
            Event::SetWall { server, ms } => self.servers[server].clocks.step(ms, self.now_ns),
            Event::MakeBound => self.make_bound(),
        }
        Ok(())
    }

    /// Returns the peer that a server is connected to, or any peer if it is connected to none.
    fn peer_of(&mut self, server: usize) -> usize {
        let life = self.servers[server].life;
        let open = |link: &&Link| link.server == server && link.life == life && link.is_open;
        match self.links.iter().rev().find(open) {
            Some(link) => link.peer,
            None => self.network.range(0, self.options.peers as u64 - 1) as usize,
        }
    }

    fn fault(&mut self, fault: Fault) {
        if self.is_healed {
            return;
        }
        let fault = self.aimed(fault);
        self.trace.add(self.now_ns, "fault", [0; 4]);
        let ms = match fault {
            Fault::Kill { server, for_ms } => self.kill(server, for_ms),
            Fault::Stop { server, for_ms } => self.stop(server, for_ms),
            Fault::Freeze { server, ms } => {
                let until_ns = &mut self.servers[server].frozen_until_ns;
                *until_ns = (*until_ns).max(self.now_ns + ms * MS);
                ms
            }
            Fault::FreezeAt { server, point, ms } => {
                self.servers[server].freeze_at = Some((point, ms));
                ms
            }
            Fault::Starve { server, ms } => {
                let until_ns = &mut self.servers[server].starved_until_ns;
                *until_ns = (*until_ns).max(self.now_ns + ms * MS);
                ms
            }
            Fault::WallStep { server, ms, right_after_ms } => {
                self.servers[server].clocks.step(ms, self.now_ns);
                if let Some(after_ms) = right_after_ms {
                    let at_ns = self.now_ns + after_ms * MS;
                    self.schedule(at_ns, Event::SetWall { server, ms: -ms });
                }
                0
            }
            Fault::Isolate { server, ms } => {
                let until_ns = &mut self.servers[server].isolated_until_ns;
                *until_ns = (*until_ns).max(self.now_ns + ms * MS);
                ms
            }
            Fault::Break { server } => {
                for link in 0..self.links.len() {
                    if self.links[link].server == server {
                        self.break_link(link);
                    }
                }
                0
            }
            Fault::Disk { ms, fails, stores } => {
                let troubles = (0..stores).map(|_| (ms, fails));
                self.servers[0].disk.troubles.extend(troubles);
                ms
            }
            other => self.ensemble_fault(other),
        };
        self.disturbances += 1;
        self.disturbed_until_ns = self.disturbed_until_ns.max(self.now_ns + ms * MS);
    }

    /// Returns the fault with the present master in place of [`MASTER`].
    fn aimed(&self, mut fault: Fault) -> Fault {
        use Fault::*;
        if let Kill { server, .. }
        | Stop { server, .. }
        | Freeze { server, .. }
        | FreezeAt { server, .. }
        | Starve { server, .. }
        | WallStep { server, .. }
        | Isolate { server, .. }
        | Break { server }
        | Cut { server, .. }
        | Stall { server, .. }
        | LeaderFreeze { server, .. } = &mut fault
            && *server == MASTER
        {
            *server = self.zoo.head().master.map_or(0, |master| master.server);
        }
        fault
    }

    /// Carries out a fault of the ensemble. Returns for how long it lasts.
    fn ensemble_fault(&mut self, fault: Fault) -> u64 {
        if self.options.is_standalone {
            return 0;
        }
        let now_ns = self.now_ns;
        match fault {
            Fault::Cut { server, answers_ms, ms } => {
                let peer = self.peer_of(server);
                self.cut_off(peer, answers_ms, ms);
                answers_ms + ms + 2_000
            }
            Fault::Stall { server, is_from_leader, ms, answers_ms } => {
                let peer = self.peer_of(server);
                let peer = &mut self.zoo.peers[peer];
                let way = if is_from_leader { &mut peer.from_leader } else { &mut peer.to_leader };
                way.stuck_until_ns = way.stuck_until_ns.max(now_ns + ms * MS);
                self.then_cut(server, ms, answers_ms)
            }
            Fault::LeaderFreeze { server, ms, answers_ms } => {
                self.zoo.frozen_until_ns = self.zoo.frozen_until_ns.max(now_ns + ms * MS);
                self.then_cut(server, ms, answers_ms)
            }
            Fault::LeaderChange { election_ms, answers_ms } => {
                self.change_leader(election_ms, answers_ms);
                election_ms + answers_ms.unwrap_or(0) + 2_000
            }
            Fault::DeleteMaster => {
                if let Some(server) = self.delete_master() {
                    let until_ns = now_ns + 2 * self.options.session_ms * MS;
                    self.model.excuse(server, until_ns);
                }
                2 * self.options.session_ms
            }
            Fault::WriteBound { ahead_ms } => {
                self.write_bound_by_hand(ahead_ms);
                0
            }
            Fault::DeleteBound { for_ms } => {
                if !self.delete_bound() {
                    return 0;
                }
                self.schedule(now_ns + for_ms * MS, Event::MakeBound);
                for_ms + 2_000
            }
            other => unreachable!("{other:?} is no fault of the ensemble"),
        }
    }

    fn then_cut(&mut self, server: usize, ms: u64, answers_ms: Option<u64>) -> u64 {
        if let Some(answers_ms) = answers_ms {
            let soon_ns = self.network.range(0, 30 * MS);
            let at_ns = self.now_ns + ms * MS + soon_ns;
            self.schedule(at_ns, Event::CutOff { server, answers_ms });
        }
        ms + answers_ms.unwrap_or(0) + 5_000
    }

    fn kill(&mut self, server: usize, for_ms: u64) -> u64 {
        if !self.servers[server].is_up {
            return 0;
        }
        // The leader learns of a session half a tick late, and counts in whole ticks.
        let expiry_ms = self.options.session_ms + self.options.ping_ms() + self.options.tick_ms;
        let limit_ms = expiry_ms + 300;
        self.expect_service(server, limit_ms);
        self.die(server);
        self.restart_later(server, for_ms);
        for_ms
    }

    fn stop(&mut self, server: usize, for_ms: u64) -> u64 {
        let one = &mut self.servers[server];
        one.restarts_in_ms = for_ms;
        if !one.is_up || std::mem::replace(&mut one.is_stopping, true) {
            return 0;
        }
        if self.servers[server].is_original {
            return self.kill(server, for_ms);
        }
        self.expect_service(server, 200);
        let stop = match &self.servers[server].keeper {
            Keeper::File(_) => News::File(FileEvent::Stop),
            _ => News::Zoo(KeeperEvent::Stop),
        };
        self.news(server, 0, stop);
        for_ms
    }

    /// Checks S6: when nothing else is wrong, another server takes over in time.
    fn expect_service(&mut self, leaving: usize, limit_ms: u64) {
        let calm_ns = self.disturbed_until_ns + 2 * self.options.session_ms * MS;
        let is_slow = self.options.quorum_ns.1 > 5 * MS || self.options.latency_ns.1 > MS;
        let limit_ms = limit_ms + self.options.watch_delay_ms;
        let others = (0..self.servers.len()).filter(|&at| at != leaving && self.servers[at].is_up);
        let is_expected = self.options.trouble == Trouble::OneAtATime
            && self.options.originals == 0
            && self
                .servers
                .iter()
                .all(|one| one.freeze_at.is_none() && one.frozen_until_ns <= self.now_ns)
            && self.servers[leaving].serves(self.now_ns)
            && self.now_ns >= calm_ns.max(3 * self.options.session_ms * MS)
            && others.count() > 0;
        if is_expected {
            let limit_ms = limit_ms + if is_slow { 700 } else { 0 };
            // This fault itself is counted after this line.
            let since_ns = self.disturbances + 1;
            let at_ns = self.now_ns + limit_ms * MS;
            self.schedule(at_ns, Event::ServesAgain { since_ns });
        }
    }

    fn serves_again(&mut self, since_ns: u64) -> Checked {
        if self.disturbances != since_ns {
            return Ok(());
        }
        self.failovers_timed += 1;
        match (0..self.servers.len()).any(|server| self.servers[server].serves(self.now_ns)) {
            true => Ok(()),
            false => broken("S6", "nobody serves in time".to_owned()),
        }
    }

    /// Ends all faults for good. What is under way ends by itself.
    fn heal(&mut self) {
        self.is_healed = true;
        for one in &mut self.servers {
            one.freeze_at = None;
            one.disk.troubles.clear();
            one.isolated_until_ns = one.isolated_until_ns.min(self.now_ns);
            one.starved_until_ns = one.starved_until_ns.min(self.now_ns);
        }
        let rest_ms = 4 * self.options.session_ms + self.options.tick_ms + 10_000;
        let from_ns = self.disturbed_until_ns.max(self.now_ns);
        self.schedule(from_ns + rest_ms * MS, Event::End);
    }
}

/// Returns how far timestamps may be above the true time. `None`: an original, or a clock that no
/// server can check, may take them anywhere.
fn ahead_ms_max(story: &Story, begins_ahead_ms: u64) -> Option<u64> {
    let options = &story.options;
    if options.originals > 0 || options.is_standalone && options.has_clock_steps {
        return None;
    }
    let by_hand_ms = |fault: &Fault| match fault {
        Fault::WallStep { ms, .. } if ms.unsigned_abs() < SMALL_MS => 2 * ms.unsigned_abs(),
        Fault::WriteBound { ahead_ms } => *ahead_ms,
        _ => 0,
    };
    let by_hand_ms: u64 = story.faults.iter().map(|(_, fault)| by_hand_ms(fault)).sum();
    let jump_ms = if options.has_clock_steps { options.clock_jump_max_ms } else { 0 };
    let restarts = story.faults.len() as u64;
    let standalone_ms = if options.is_standalone { restarts * options.window_ms / 6 } else { 0 };
    let skew_ms = options.skew_ms_max as u64 + jump_ms + by_hand_ms;
    Some(begins_ahead_ms + skew_ms + options.window_ms + standalone_ms + 1_000)
}
