//! The state machine of a coordinated server: which request comes next, when a mastership begins,
//! and when it ends.

// May panic: assertions 1, expectations 8.
// Why it does not: ordered 9.

use super::events::{
    Alarm, Answer, Ask, CoordinatorSettings, Effect, Event, MasterNode, Nodes, Role, SessionId,
    StoredBound,
};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now, WallMs};
use crate::timestamp::Timestamp;
use crate::timestamp::clock::Witness;
use crate::timestamp::lease::Lease;
use crate::timestamp::oracle::Terms;
use crate::timestamp::pace::{Begin, Pace};
use crate::timestamp::window::Window;

/// How often a master writes, and a backup reads, in the length of a session.
const BEATS_PER_SESSION: u64 = 12;
/// How often a master writes, and a backup reads, at least in the length of a window.
const BEATS_PER_WINDOW: u64 = 3;
const BEAT_MS_MIN: u64 = 20;
/// Milliseconds between a lost answer and the look at what became of the request.
const LOST_PAUSE_MS: u64 = 50;
/// Milliseconds before a refused request is tried again.
const REFUSED_PAUSE_MS: u64 = 1_000;
/// Milliseconds after which a backup makes its node again, in case somebody has deleted it.
const REGISTER_EVERY_MS: u64 = 10_000;
/// Most milliseconds of an orderly stop. Nodes that are left then end with the session.
const STOP_MS_MAX: u64 = 1_000;
const NEVER: MonoNs = MonoNs(u64::MAX);

/// A coordinated server, from its start to its stop. Needs a driver that does its effects.
#[derive(Debug)]
pub struct Coordinator {
    settings: CoordinatorSettings,
    stage: NextAsk,
    /// The request that has no answer yet.
    asked: Option<Ask>,
    /// Whether the session of `asked` is over, so that the answer means nothing.
    is_void: bool,
    /// No request is made before this instant.
    ask_at: MonoNs,
    session: Option<Session>,
    /// Whether the watched node has changed.
    is_changed: bool,
    /// The bound of a write whose answer was lost: it may be stored or not.
    doubtful: Option<Timestamp>,
    /// The last stored bound of a mastership that ended because another program wrote or deleted
    /// the bound, or deleted the master's node.
    contested: Option<Timestamp>,
    /// The latest time that `ZooKeeper`'s clock told.
    witness: Option<Witness>,
    /// When the last request to make the master's node was sent.
    create_sent: MonoNs,
    /// Whether this process has found out which nodes exist. Nodes that are missing later are lost,
    /// and are not made anew.
    has_cluster: bool,
    candidacy: Option<Candidacy>,
    mastership: Option<Mastership>,
    /// Whether this process was master before.
    was_master: bool,
    stopping: Option<Stopping>,
    last: Timestamp,
    master_told: Option<String>,
}

/// The request that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextAsk {
    Asleep,
    Open,
    Find,
    Make,
    Create,
    /// Look which server is master.
    Watch,
    Register,
    /// As a backup: look from time to time whether there is still a master.
    Wait,
    Unregister,
    Read,
    /// Write the first bound of a mastership.
    Take,
    Serve,
    Close,
    Stopped,
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    lease: Lease,
    beat_ms: u64,
    /// No request to make the node among the backups comes before this instant.
    register_at: MonoNs,
    is_registered: bool,
}

/// This server owns the master's node, but does not hand out timestamps yet.
#[derive(Debug)]
struct Candidacy {
    created: WallMs,
    /// The bound that was read, and the pace that begins above it.
    read: Option<(StoredBound, Pace)>,
    /// The first bound, after it was written. A last look at the master's node follows, because the
    /// write proves only that there is a master's node, not that the node is still this server's.
    written: Option<Timestamp>,
}

/// This server is master, and the oracle serves.
#[derive(Debug)]
struct Mastership {
    /// Version of the bound's node.
    version: i32,
    pace: Pace,
    is_over_told: bool,
    look_at: MonoNs,
}

#[derive(Debug)]
struct Stopping {
    until: MonoNs,
    /// The version at which the bound can be lowered to the last timestamp handed out; `None`: the
    /// bound must not be lowered.
    version: Option<i32>,
    is_revoking: bool,
}

impl Coordinator {
    /// A coordinator that waits for [`Event::Start`].
    pub fn new(settings: CoordinatorSettings) -> Self {
        Self {
            settings,
            stage: NextAsk::Asleep,
            asked: None,
            is_void: false,
            ask_at: NEVER,
            session: None,
            is_changed: false,
            doubtful: None,
            contested: None,
            witness: None,
            create_sent: MonoNs(0),
            has_cluster: false,
            candidacy: None,
            mastership: None,
            was_master: false,
            stopping: None,
            last: Timestamp(0),
            master_told: None,
        }
    }

    /// Takes an event and appends effects. Panics on an answer that does not fit the open [`Ask`].
    pub fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        if self.stage == NextAsk::Stopped {
            return;
        }
        match event {
            Event::Start => self.go(NextAsk::Open),
            Event::Answered { sent, answer } => self.answered(now, sent, answer, effects),
            Event::MasterChanged => self.is_changed = true,
            // Without a session, an answer has told the end of the session before.
            Event::SessionExpired if self.session.is_none() => {}
            Event::SessionExpired => self.session_is_over(effects),
            Event::Tick { last } => {
                self.last = self.last.max(last);
                self.look(now, effects);
            }
            Event::Revoked { last } => {
                self.last = self.last.max(last);
                if let Some(stopping) = &mut self.stopping {
                    stopping.is_revoking = false;
                }
            }
            Event::Stop => self.stop(now, effects),
        }
        self.proceed(now, effects);
    }

    /// When the coordinator needs the next [`Event::Tick`].
    pub fn wake_at(&self) -> MonoNs {
        let ask_at = if self.asked.is_none() { self.ask_at } else { NEVER };
        let stop_at = self.stopping.as_ref().map_or(NEVER, |stopping| stopping.until);
        let look_at = self.mastership.as_ref().map_or(NEVER, |mastership| {
            let over_at = if mastership.is_over_told { NEVER } else { self.lease_until() };
            mastership.look_at.min(over_at)
        });
        if self.stage == NextAsk::Stopped { NEVER } else { ask_at.min(stop_at).min(look_at) }
    }

    /// The role of this server at `now`.
    pub fn role(&self, now: MonoNs) -> Role {
        match (&self.mastership, self.stage) {
            (_, NextAsk::Stopped) => Role::Stopped,
            (Some(_), _) if now < self.lease_until() => Role::Master,
            (Some(_), _) => Role::Suspended,
            (None, _) if self.master_told.is_some() => Role::Backup,
            _ => Role::Starting,
        }
    }

    fn go(&mut self, stage: NextAsk) {
        self.stage = stage;
        self.ask_at = MonoNs(0);
    }

    fn lease_until(&self) -> MonoNs {
        if is_planted(Bug::LeaseNotChecked) {
            return NEVER;
        }
        self.session.as_ref().map_or(MonoNs(0), |session| session.lease.until())
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("this is asked only in a session")
    }

    /// Makes the next request, if one is due and no other request is open.
    fn proceed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let Some(stopping) = &self.stopping {
            let is_late = now.mono >= stopping.until;
            if is_late || self.session.is_none() && !stopping.is_revoking {
                return self.end(effects);
            }
            if stopping.is_revoking || self.asked.is_some() {
                return;
            }
            let ask = match stopping.version {
                Some(version) => Ask::Release { bound: Timestamp(self.last.0 + 1), version },
                None => Ask::CloseSession,
            };
            self.stage = NextAsk::Close;
            return self.ask(ask, effects);
        }
        if self.asked.is_some() {
            return;
        }
        if self.is_changed {
            match self.stage {
                NextAsk::Wait => self.go(NextAsk::Create),
                NextAsk::Serve => self.go(NextAsk::Watch),
                _ => {}
            }
        }
        if now.mono < self.ask_at {
            return;
        }
        let ask = match self.stage {
            NextAsk::Asleep | NextAsk::Close | NextAsk::Stopped => return,
            NextAsk::Open => Ask::OpenSession,
            NextAsk::Find => Ask::FindNodes,
            NextAsk::Make => Ask::MakeCluster,
            NextAsk::Create => Ask::CreateMaster,
            NextAsk::Watch | NextAsk::Wait => Ask::WatchMaster,
            NextAsk::Register => Ask::RegisterBackup,
            NextAsk::Unregister => Ask::UnregisterBackup,
            NextAsk::Read => Ask::ReadBound,
            NextAsk::Take => self.first_write(now, effects),
            NextAsk::Serve => self.next_write(now, effects),
        };
        self.ask(ask, effects);
    }

    fn ask(&mut self, ask: Ask, effects: &mut Vec<Effect>) {
        if ask == Ask::WatchMaster {
            self.is_changed = false;
        }
        self.asked = Some(ask.clone());
        effects.push(Effect::Ask(ask));
    }

    fn answered(&mut self, now: Now, sent: MonoNs, answer: Answer, effects: &mut Vec<Effect>) {
        let ask = self.asked.take().expect("an answer to what was asked");
        if std::mem::take(&mut self.is_void) {
            return;
        }
        if ask == Ask::CreateMaster {
            self.create_sent = sent;
        }
        match answer {
            Answer::Expired => return self.session_is_over(effects),
            Answer::Lost => return self.lost(now, ask),
            Answer::Refused => return self.refused(now, ask),
            _ => {}
        }
        if let Some(session) = &mut self.session {
            let is_write = match ask {
                Ask::CreateMaster => answer == Answer::Done,
                _ => matches!(answer, Answer::Written(_)),
            };
            if is_write {
                session.lease.acknowledged(sent, now.mono);
            } else {
                session.lease.touched(sent, now.mono);
            }
        }
        match (ask, answer) {
            (Ask::OpenSession, Answer::Session { session, timeout_ms }) => {
                self.opened(sent, session, timeout_ms);
            }
            (Ask::FindNodes, Answer::Nodes(nodes)) => self.found(now, nodes, effects),
            (Ask::MakeCluster, Answer::Done | Answer::Exists) => self.go(NextAsk::Find),
            (Ask::CreateMaster, Answer::Done | Answer::Exists) => self.go(NextAsk::Watch),
            (Ask::WatchMaster, Answer::Master(master)) => self.seen(now, master, effects),
            (Ask::RegisterBackup, done @ (Answer::Done | Answer::Exists)) => {
                let session = self.session();
                session.is_registered |= done == Answer::Done;
                // A backup's node of an earlier process of this server ends with the session of
                // that process.
                let is_own = session.is_registered;
                let pause_ms = if is_own { REGISTER_EVERY_MS } else { REFUSED_PAUSE_MS };
                session.register_at = now.mono.plus_ms(pause_ms);
                self.wait(now);
            }
            (Ask::UnregisterBackup, Answer::Done) => {
                let session = self.session();
                (session.is_registered, session.register_at) = (false, MonoNs(0));
                self.go(NextAsk::Read);
            }
            (Ask::ReadBound, Answer::Bound(stored)) => self.read(now, stored, effects),
            (Ask::ReadBound, Answer::NoBound) => self.bound_is_lost(now, effects),
            (Ask::WriteBound { bound, .. }, Answer::Written(at)) => {
                self.witnessed(Witness { told: at, asked: sent, heard: now.mono });
                self.written(now, bound, effects);
            }
            (Ask::WriteBound { .. }, Answer::Conflict) => self.conflict(effects),
            (Ask::Release { .. }, Answer::Done | Answer::Conflict) => self.released(),
            (Ask::CloseSession, Answer::Done) => self.session = None,
            (ask, answer) => panic!("{answer:?} is no answer to {ask:?}"),
        }
    }

    fn lost(&mut self, now: Now, ask: Ask) {
        let stage = match ask {
            Ask::CreateMaster => NextAsk::Watch,
            Ask::WriteBound { bound, .. } => {
                self.doubtful = Some(bound);
                self.candidacy = None;
                self.revoke_release();
                NextAsk::Watch
            }
            Ask::Release { .. } => return self.released(),
            Ask::CloseSession => {
                self.session = None;
                return;
            }
            _ => self.stage,
        };
        self.stage = stage;
        self.ask_at = now.mono.plus_ms(LOST_PAUSE_MS);
    }

    fn refused(&mut self, now: Now, ask: Ask) {
        match ask {
            Ask::Release { .. } => self.released(),
            Ask::CloseSession => self.session = None,
            // The folder of the node may be missing.
            Ask::CreateMaster | Ask::RegisterBackup => {
                self.stage = NextAsk::Find;
                self.ask_at = now.mono.plus_ms(REFUSED_PAUSE_MS);
            }
            _ => self.ask_at = now.mono.plus_ms(REFUSED_PAUSE_MS),
        }
    }

    fn opened(&mut self, sent: MonoNs, id: SessionId, timeout_ms: u64) {
        let window_ms = self.settings.window_ms;
        let beat_ms = (timeout_ms / BEATS_PER_SESSION).min(window_ms / BEATS_PER_WINDOW);
        self.session = Some(Session {
            id,
            lease: Lease::begin(sent, timeout_ms),
            beat_ms: beat_ms.max(BEAT_MS_MIN),
            register_at: MonoNs(0),
            is_registered: false,
        });
        self.go(NextAsk::Find);
    }

    /// Handles the answer to [`Ask::FindNodes`].
    fn found(&mut self, now: Now, nodes: Nodes, effects: &mut Vec<Effect>) {
        let was_there = std::mem::replace(&mut self.has_cluster, true);
        match nodes {
            Nodes::Whole => self.go(NextAsk::Create),
            Nodes::None if !was_there => self.go(NextAsk::Make),
            Nodes::NoBound if is_planted(Bug::LostBoundMadeAnew) => self.go(NextAsk::Make),
            Nodes::None | Nodes::NoBound => self.bound_is_lost(now, effects),
        }
    }

    /// The bound is gone, so nothing tells how far timestamps were handed out. Only an operator may
    /// make the bound anew.
    fn bound_is_lost(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.doubtful = None;
        if let Some(mastership) = self.abdicate(effects) {
            self.contested = Some(mastership.pace.bound());
            self.tell_master(None, effects);
            return self.go(NextAsk::Watch);
        }
        effects.push(Effect::Alarm(Alarm::BoundLost(self.contested)));
        self.ask_at = now.mono.plus_ms(REFUSED_PAUSE_MS);
    }

    /// Takes a time that `ZooKeeper`'s clock told. The time that was asked for last counts.
    fn witnessed(&mut self, mut witness: Witness) {
        if is_planted(Bug::OldWitness) {
            (witness.asked, witness.heard) = (NEVER, NEVER);
        }
        if self.witness.is_none_or(|known| known.asked < witness.asked) {
            self.witness = Some(witness);
        }
    }

    /// Ends everything that belonged to the session.
    fn session_is_over(&mut self, effects: &mut Vec<Effect>) {
        self.is_void = self.asked.is_some();
        self.session = None;
        self.candidacy = None;
        self.doubtful = None;
        self.contested = None;
        self.revoke_release();
        self.abdicate(effects);
        self.tell_master(None, effects);
        self.go(NextAsk::Open);
    }

    /// Ends the mastership: nothing is handed out after this. Returns the mastership that ended.
    fn abdicate(&mut self, effects: &mut Vec<Effect>) -> Option<Mastership> {
        let mastership = self.mastership.take()?;
        effects.push(Effect::Revoke);
        Some(mastership)
    }

    fn revoke_release(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.version = None;
        }
    }

    fn tell_master(&mut self, master: Option<String>, effects: &mut Vec<Effect>) {
        if self.master_told != master {
            self.master_told.clone_from(&master);
            effects.push(Effect::MasterIs(master));
        }
    }

    fn wait(&mut self, now: Now) {
        self.stage = NextAsk::Wait;
        self.ask_at = now.mono.plus_ms(self.session().beat_ms);
    }

    /// Handles the answer to [`Ask::WatchMaster`].
    fn seen(&mut self, now: Now, master: Option<MasterNode>, effects: &mut Vec<Effect>) {
        let own = self.session().id;
        match master {
            Some(node) if node.owner == own => {
                if self.mastership.is_some() {
                    return match self.doubtful {
                        Some(_) => self.go(NextAsk::Read),
                        None => self.go(NextAsk::Serve),
                    };
                }
                let candidacy = self.candidacy.as_ref();
                let candidacy = candidacy.filter(|candidacy| candidacy.created == node.created);
                if let Some(bound) = candidacy.and_then(|candidacy| candidacy.written) {
                    self.begin(now, 1, bound, effects);
                    return self.serve(now);
                }
                self.tell_master(None, effects);
                let created = node.created;
                let (asked, heard) = (self.create_sent, now.mono);
                self.witnessed(Witness { told: created, asked, heard });
                self.candidacy = Some(Candidacy { created, read: None, written: None });
                self.go(NextAsk::Unregister);
            }
            other => {
                self.doubtful = None;
                self.candidacy = None;
                let is_deposed = self.abdicate(effects).is_some() | self.contested.take().is_some();
                if is_deposed {
                    effects.push(Effect::Alarm(Alarm::Deposed));
                }
                self.tell_master(other.as_ref().map(|node| node.address.clone()), effects);
                let (session, now_mono) = (self.session(), now.mono);
                match other {
                    None => self.go(NextAsk::Create),
                    Some(_) if now_mono < session.register_at => self.wait(now),
                    Some(_) => self.go(NextAsk::Register),
                }
            }
        }
    }

    fn serve(&mut self, now: Now) {
        self.stage = NextAsk::Serve;
        self.ask_at = now.mono.plus_ms(self.session().beat_ms);
    }

    /// Handles the stored bound. A mastership begins above it, or goes on after a lost answer.
    fn read(&mut self, now: Now, stored: StoredBound, effects: &mut Vec<Effect>) {
        let doubtful = self.doubtful.take();
        if let Some(mastership) = &mut self.mastership {
            let bound = mastership.pace.bound();
            if stored == (StoredBound { bound, version: mastership.version }) {
                return self.go(NextAsk::Serve);
            }
            let version = mastership.version.wrapping_add(1);
            if doubtful.is_some_and(|bound| stored == StoredBound { bound, version }) {
                mastership.version = version;
                mastership.pace.stored(stored.bound);
                self.publish(effects);
                return self.go(NextAsk::Serve);
            }
            self.contested = Some(bound);
            self.abdicate(effects);
            // Start again from the question which server owns the master's node.
            self.tell_master(None, effects);
            return self.go(NextAsk::Watch);
        }
        let Some(candidacy) = &mut self.candidacy else { return self.go(NextAsk::Watch) };
        let mut floor = stored.bound;
        if let Some(own) = self.contested.take() {
            effects.push(Effect::Alarm(Alarm::ForeignBound(stored)));
            floor = floor.max(own);
        }
        if is_planted(Bug::OracleKeepsMemory) && self.was_master {
            floor = Timestamp(0);
        }
        if is_planted(Bug::FloorForgotten) && !self.was_master {
            floor = Timestamp(0);
        }
        let session_beat_ms = self.session.as_ref().map_or(BEAT_MS_MIN, |session| session.beat_ms);
        let (pace, seen) = Pace::begin(
            now,
            Begin {
                floor,
                witness: self.witness,
                clock_jump_max_ms: self.settings.clock_jump_max_ms,
                window: Window {
                    window_ms: self.settings.window_ms,
                    least_ms: 2 * session_beat_ms,
                },
            },
        );
        effects.extend(seen.map(Effect::Clock));
        candidacy.read = Some((stored, pace));
        self.go(NextAsk::Take);
    }

    /// The request that writes the first bound of a mastership.
    fn first_write(&mut self, now: Now, effects: &mut Vec<Effect>) -> Ask {
        let candidacy = self.candidacy.as_mut().expect("who takes over is a candidate");
        let (stored, pace) = candidacy.read.as_mut().expect("who takes over has read the bound");
        let (bound, version) = (pace.target(now.mono, self.last), stored.version);
        if is_planted(Bug::ServedBeforeBoundIsStored) {
            self.begin(now, 0, bound, effects);
        }
        self.write(bound, version)
    }

    fn next_write(&mut self, now: Now, effects: &mut Vec<Effect>) -> Ask {
        self.look(now, effects);
        let mastership = self.mastership.as_ref().expect("who serves is master");
        let (bound, version) = (mastership.pace.target(now.mono, self.last), mastership.version);
        if is_planted(Bug::ServedBeforeBoundIsStored) {
            let terms = Terms { bound, ..mastership.pace.terms(self.lease_until()) };
            effects.push(Effect::Publish(terms));
        }
        self.write(bound, version)
    }

    fn write(&self, bound: Timestamp, version: i32) -> Ask {
        // For ZooKeeper, version -1 matches every version.
        let version = if is_planted(Bug::BoundWithoutCompare) { -1 } else { version };
        Ask::WriteBound { bound, version }
    }

    fn written(&mut self, now: Now, bound: Timestamp, effects: &mut Vec<Effect>) {
        if let Some(stopping) = &mut self.stopping {
            stopping.version = stopping.version.map(|version| version.wrapping_add(1));
            return;
        }
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.written = Some(bound);
            return self.go(NextAsk::Watch);
        }
        // A lease shorter than at rest may run out once more. Then the alarm is not repeated.
        let beat_ms = self.session().beat_ms;
        let is_over = now.mono.plus_ms(5 * beat_ms) >= self.lease_until();
        let mastership = self.mastership.as_mut().expect("who writes is master, or a candidate");
        mastership.version = mastership.version.wrapping_add(1);
        mastership.pace.stored(bound);
        mastership.is_over_told &= is_over;
        self.publish(effects);
        self.serve(now);
    }

    fn begin(&mut self, now: Now, written: i32, bound: Timestamp, effects: &mut Vec<Effect>) {
        let candidacy = self.candidacy.take().expect("who begins was a candidate");
        let (stored, mut pace) = candidacy.read.expect("who begins has read the bound");
        let floor = pace.bound();
        pace.stored(bound);
        let until = self.lease_until();
        effects.push(Effect::Begin(floor, pace.terms(until)));
        self.tell_master(Some(self.settings.address.clone()), effects);
        self.was_master = true;
        self.mastership = Some(Mastership {
            version: stored.version.wrapping_add(written),
            pace,
            is_over_told: now.mono >= until,
            look_at: now.mono,
        });
    }

    fn publish(&self, effects: &mut Vec<Effect>) {
        let terms = self.mastership.as_ref().map(|held| held.pace.terms(self.lease_until()));
        effects.extend(terms.map(Effect::Publish));
    }

    /// Compares the lease and the wall clock with the clocks of now.
    fn look(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let until = self.lease_until();
        let beat_ms = self.session.as_ref().map_or(BEAT_MS_MIN, |session| session.beat_ms);
        let Some(mastership) = &mut self.mastership else { return };
        if now.mono >= until && !mastership.is_over_told {
            mastership.is_over_told = true;
            effects.push(Effect::Alarm(Alarm::LeaseOver));
        }
        if now.mono >= mastership.look_at {
            mastership.look_at = now.mono.plus_ms(beat_ms);
            effects.extend(mastership.pace.look(now, self.witness).map(Effect::Clock));
            self.publish(effects);
        }
    }

    /// Handles a refused transaction: another program has written the bound, or the master's node
    /// is gone. Nothing is handed out until the owner of the master's node is known.
    fn conflict(&mut self, effects: &mut Vec<Effect>) {
        self.candidacy = None;
        self.revoke_release();
        if let Some(mastership) = self.abdicate(effects) {
            self.contested = Some(mastership.pace.bound());
            self.tell_master(None, effects);
        }
        self.go(NextAsk::Watch);
    }

    fn stop(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.stopping.is_some() {
            return;
        }
        let is_certain = self.doubtful.is_none();
        let mastership = self.abdicate(effects);
        self.stopping = Some(Stopping {
            until: now.mono.plus_ms(STOP_MS_MAX),
            is_revoking: mastership.is_some(),
            version: mastership.filter(|_| is_certain).map(|mastership| mastership.version),
        });
        self.tell_master(None, effects);
    }

    /// The master's node is deleted, or will end with the session.
    fn released(&mut self) {
        self.revoke_release();
    }

    fn end(&mut self, effects: &mut Vec<Effect>) {
        self.stage = NextAsk::Stopped;
        effects.push(Effect::Stopped);
    }
}
