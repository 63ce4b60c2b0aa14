//! Tests of one coordinated server with answers given by hand. `tests/sim_timestamp` tests several
//! servers with an ensemble.

use super::*;
use crate::base::time::{MonoNs, Now, WallMs};
use crate::timestamp::Timestamp;
use crate::timestamp::clock::Seen;
use crate::timestamp::oracle::{Oracle, Refusal};

const WALL_MS: u64 = 1_700_000_000_000;
const SESSION_MS: u64 = 4_000;
const OWN: SessionId = SessionId(7);
const OTHER: SessionId = SessionId(8);

struct Server {
    keeper: Coordinator,
    oracle: Oracle,
    now_ms: u64,
    /// How far the wall clock is ahead of the true time.
    wall_wrong_ms: u64,
    /// How far `ZooKeeper`'s clock is ahead of the true time.
    zookeeper_wrong_ms: u64,
    asked: Option<Ask>,
    alarms: Vec<Alarm>,
    clocks: Vec<Seen>,
    master: Option<String>,
    is_stopped: bool,
}

fn node(owner: SessionId) -> Answer {
    let address = if owner == OWN { "own_1" } else { "other_1" };
    let created = WallMs(WALL_MS);
    Answer::Master(Some(MasterNode { address: address.to_owned(), owner, created }))
}

fn bound(ms: u64, version: i32) -> Answer {
    Answer::Bound(StoredBound { bound: Timestamp::of_unix_ms(WALL_MS + ms), version })
}

impl Server {
    fn start() -> Self {
        let settings = CoordinatorSettings {
            address: "own_1".to_owned(),
            window_ms: 3_000,
            clock_jump_max_ms: 10_000,
        };
        let mut server = Self {
            keeper: Coordinator::new(settings),
            oracle: Oracle::default(),
            now_ms: 0,
            wall_wrong_ms: 0,
            zookeeper_wrong_ms: 0,
            asked: None,
            alarms: Vec::new(),
            clocks: Vec::new(),
            master: None,
            is_stopped: false,
        };
        server.tell(Event::Start);
        server
    }

    fn now(&self) -> Now {
        let wall = WallMs(WALL_MS + self.now_ms + self.wall_wrong_ms);
        Now { mono: MonoNs(self.now_ms * 1_000_000), wall }
    }

    /// The answer of `ZooKeeper` to a write at this moment.
    fn written_now(&self) -> Answer {
        Answer::Written(WallMs(WALL_MS + self.now_ms + self.zookeeper_wrong_ms))
    }

    #[track_caller]
    fn write(&mut self) {
        self.answer(&WRITE, self.written_now());
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.keeper.handle(self.now(), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Ask(ask) => assert_eq!(self.asked.replace(ask), None, "one at a time"),
                Effect::Begin(floor, terms) => self.oracle.begin(floor, &terms),
                Effect::Publish(terms) => self.oracle.publish(&terms),
                Effect::Revoke => {
                    let last = self.oracle.revoke();
                    self.tell(Event::Revoked { last });
                }
                Effect::MasterIs(master) => self.master = master,
                Effect::Clock(seen) => self.clocks.push(seen),
                Effect::Alarm(alarm) => self.alarms.push(alarm),
                Effect::Stopped => self.is_stopped = true,
            }
        }
    }

    /// Lets time pass and sends each tick when the server wants it.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            if self.now().mono >= self.keeper.wake_at() {
                self.tell(Event::Tick { last: self.oracle.last() });
            }
        }
    }

    /// Answers the open request after 1 ms.
    #[track_caller]
    fn answer(&mut self, wanted: &Ask, answer: Answer) {
        let ask = self.asked.take().unwrap_or_else(|| panic!("nothing is asked"));
        assert_eq!(std::mem::discriminant(&ask), std::mem::discriminant(wanted), "{ask:?}");
        let sent = self.now().mono;
        self.now_ms += 1;
        self.tell(Event::Answered { sent, answer });
    }

    fn open(&mut self) {
        self.answer(&Ask::OpenSession, Answer::Session { session: OWN, timeout_ms: SESSION_MS });
        self.answer(&Ask::FindNodes, Answer::Nodes(Nodes::Whole));
    }

    fn master() -> Self {
        let mut server = Self::start();
        server.open();
        server.take_over(bound(0, 3));
        server
    }

    fn take_over(&mut self, stored: Answer) {
        self.answer(&Ask::CreateMaster, Answer::Done);
        self.confirm(stored);
    }

    fn confirm(&mut self, stored: Answer) {
        self.come_to_write(stored);
        self.write();
        self.answer(&Ask::WatchMaster, node(OWN));
    }

    /// Answers every request before the first write.
    fn come_to_write(&mut self, stored: Answer) {
        self.answer(&Ask::WatchMaster, node(OWN));
        self.answer(&Ask::UnregisterBackup, Answer::Done);
        self.answer(&Ask::ReadBound, stored);
    }

    /// A server whose next request writes its first bound.
    fn candidate(stored: Answer) -> Self {
        let mut server = Self::start();
        server.open();
        server.answer(&Ask::CreateMaster, Answer::Done);
        server.come_to_write(stored);
        server
    }

    fn backup() -> Self {
        let mut server = Self::start();
        server.open();
        server.answer(&Ask::CreateMaster, Answer::Exists);
        server.answer(&Ask::WatchMaster, node(OTHER));
        server.answer(&Ask::RegisterBackup, Answer::Done);
        server
    }

    fn take(&self) -> Result<Timestamp, Refusal> {
        Ok(self.oracle.take(self.now().mono, 1)?.0)
    }

    fn role(&self) -> Role {
        self.keeper.role(self.now().mono)
    }

    /// Lets a master write, or a backup look, for `ms` milliseconds.
    fn live(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.pass(1);
            match self.asked {
                Some(Ask::WriteBound { .. }) => self.write(),
                Some(Ask::WatchMaster) => self.answer(&Ask::WatchMaster, node(OTHER)),
                Some(Ask::RegisterBackup) => self.answer(&Ask::RegisterBackup, Answer::Exists),
                _ => {}
            }
        }
    }

    /// Lets time pass until the server makes a request.
    fn pass_until_asked(&mut self) {
        while self.asked.is_none() {
            self.pass(1);
        }
    }

    fn written(&self) -> (Timestamp, i32) {
        match self.asked {
            Some(Ask::WriteBound { bound, version }) => (bound, version),
            ref other => panic!("{other:?} is not a write"),
        }
    }
}

const OPEN: Ask = Ask::OpenSession;
const LOST: Alarm = Alarm::BoundLost(None);
const WRITE: Ask = Ask::WriteBound { bound: Timestamp(0), version: 0 };
const RELEASE: Ask = Ask::Release { bound: Timestamp(0), version: 0 };

#[test]
fn the_first_server_becomes_master_above_the_stored_bound() {
    let mut server = Server::candidate(bound(500, 3));
    assert_eq!(server.take(), Err(Refusal::NotServing));
    assert_eq!(server.written().1, 3);
    assert!(server.written().0 >= Timestamp::of_unix_ms(WALL_MS + 3_000));
    server.write();
    assert_eq!(server.take(), Err(Refusal::NotServing));
    server.answer(&Ask::WatchMaster, node(OWN));
    // Two answers came since the bound was read, half a millisecond of lead for each.
    assert_eq!(server.take(), Ok(Timestamp::of_unix_ms(WALL_MS + 501)));
    assert_eq!((server.role(), server.master.as_deref()), (Role::Master, Some("own_1")));
    server.live(60_000);
    assert_eq!(server.role(), Role::Master);
    assert!(server.take().is_ok() && server.alarms.is_empty());
}

#[test]
fn a_server_that_knows_no_master_is_neither_master_nor_backup() {
    let mut server = Server::start();
    assert_eq!((server.role(), server.master.as_deref()), (Role::Starting, None));
    server.open();
    server.answer(&Ask::CreateMaster, Answer::Exists);
    assert_eq!(server.role(), Role::Starting);
    server.answer(&Ask::WatchMaster, node(OTHER));
    assert_eq!(server.role(), Role::Backup);
}

#[test]
fn a_master_is_one_until_its_lease_ends() {
    let server = Server::master();
    let role = |at: MonoNs| server.keeper.role(at);
    let ends = (0..).map(|ms| MonoNs(0).plus_ms(ms)).find(|at| role(*at) != Role::Master);
    let end = ends.expect("a lease has an end");
    assert_eq!((role(MonoNs(end.0 - 1)), role(end)), (Role::Master, Role::Suspended));
}

/// The server's node was deleted by hand, and another server has made a node: the write shows only
/// that there is a node.
#[test]
fn a_candidate_whose_node_is_anothers_does_not_begin() {
    let mut server = Server::candidate(bound(500, 3));
    server.write();
    server.answer(&Ask::WatchMaster, node(OTHER));
    assert_eq!(server.take(), Err(Refusal::NotServing));
    assert_eq!((server.role(), server.master.as_deref()), (Role::Backup, Some("other_1")));
    server.answer(&Ask::RegisterBackup, Answer::Done);
    server.tell(Event::MasterChanged);
    server.take_over(bound(3_500, 5));
    assert!(server.take().is_ok());
}

#[test]
fn a_backup_takes_over_when_the_masters_node_is_gone() {
    let mut server = Server::backup();
    assert_eq!((server.role(), server.master.as_deref()), (Role::Backup, Some("other_1")));
    server.live(20_000);
    assert_eq!(server.asked, None);
    server.tell(Event::MasterChanged);
    server.take_over(bound(20_500, 90));
    assert_eq!(server.role(), Role::Master, "what it read while it waited proves its session");
    assert!(server.take().expect("it serves") > Timestamp::of_unix_ms(WALL_MS + 20_500));
}

#[test]
fn a_change_that_comes_early_is_not_forgotten() {
    let mut server = Server::start();
    server.open();
    server.answer(&Ask::CreateMaster, Answer::Exists);
    server.answer(&Ask::WatchMaster, node(OTHER));
    server.tell(Event::MasterChanged);
    server.answer(&Ask::RegisterBackup, Answer::Done);
    server.answer(&Ask::CreateMaster, Answer::Exists);
    server.answer(&Ask::WatchMaster, Answer::Master(None));
    server.answer(&Ask::CreateMaster, Answer::Exists);
}

#[test]
fn a_master_looks_once_after_a_change() {
    let mut server = Server::master();
    server.tell(Event::MasterChanged);
    server.answer(&Ask::WatchMaster, node(OWN));
    server.pass_until_asked();
    server.write();
}

#[test]
fn without_acknowledgements_it_stops_by_the_clock_alone() {
    let mut server = Server::master();
    server.live(10_000);
    server.pass_until_asked();
    let since_ms = server.now_ms;
    while server.role() == Role::Master {
        assert!(server.now_ms < since_ms + SESSION_MS * 6 / 10, "not before the session ends");
        server.pass(1);
    }
    assert!(server.now_ms > since_ms + SESSION_MS * 4 / 10, "it is given some time");
    assert_eq!(server.take(), Err(Refusal::NotServing));
    assert_eq!((server.role(), &server.alarms[..]), (Role::Suspended, &[Alarm::LeaseOver][..]));
    server.live(SESSION_MS / 2);
    assert_eq!(server.role(), Role::Master, "it goes on in the same session");
    assert_eq!(server.alarms.len(), 1);
    server.live(2 * SESSION_MS);
    server.pass_until_asked();
    server.pass(SESSION_MS);
    assert_eq!(server.alarms.len(), 2, "told again after a whole lease");
}

#[test]
fn a_lost_write_is_looked_after() {
    for was_written in [false, true] {
        let mut server = Server::master();
        server.live(1_000);
        server.pass_until_asked();
        let (written, version) = server.written();
        let before = server.oracle.terms().0.bound;
        server.answer(&WRITE, Answer::Lost);
        server.pass(60);
        server.answer(&Ask::WatchMaster, node(OWN));
        let (bound, version) = match was_written {
            true => (written, version + 1),
            false => (before, version),
        };
        server.answer(&Ask::ReadBound, Answer::Bound(StoredBound { bound, version }));
        assert_eq!(server.oracle.terms().0.bound, bound);
        assert_eq!(server.written().1, version);
        assert!(server.take().is_ok() && server.alarms.is_empty());
    }
}

#[test]
fn a_foreign_bound_is_adopted() {
    let mut server = Server::master();
    server.live(1_000);
    server.pass_until_asked();
    let own = server.oracle.terms().0.bound;
    server.answer(&WRITE, Answer::Conflict);
    assert_eq!(server.take(), Err(Refusal::NotServing));
    server.confirm(bound(100, 77));
    let stored = StoredBound { bound: Timestamp::of_unix_ms(WALL_MS + 100), version: 77 };
    assert_eq!(server.alarms, [Alarm::ForeignBound(stored)]);
    assert!(server.take().expect("it serves again") > own);
}

#[test]
fn a_deposed_master_stops_and_is_a_backup() {
    let mut server = Server::master();
    server.tell(Event::MasterChanged);
    server.answer(&Ask::WatchMaster, node(OTHER));
    assert_eq!(server.take(), Err(Refusal::NotServing));
    assert_eq!((server.role(), &server.alarms[..]), (Role::Backup, &[Alarm::Deposed][..]));
    server.answer(&Ask::RegisterBackup, Answer::Done);
}

#[test]
fn an_expired_session_ends_a_mastership() {
    let mut server = Server::master();
    let before = server.take().expect("it serves");
    server.pass_until_asked();
    server.tell(Event::SessionExpired);
    assert_eq!(server.take(), Err(Refusal::NotServing));
    server.answer(&WRITE, Answer::Expired);
    server.open();
    server.take_over(bound(3_000, 4));
    assert!(server.take().expect("it serves again") > before);
    assert_eq!(server.master.as_deref(), Some("own_1"));
}

#[test]
fn an_answer_from_a_session_that_is_over_means_nothing() {
    let mut server = Server::master();
    server.pass_until_asked();
    server.tell(Event::SessionExpired);
    server.write();
    assert_eq!(server.asked, Some(Ask::OpenSession));
    assert_eq!(server.take(), Err(Refusal::NotServing));
}

#[test]
fn an_end_of_a_session_that_is_told_twice_is_one() {
    let mut server = Server::master();
    server.pass_until_asked();
    server.answer(&WRITE, Answer::Expired);
    server.tell(Event::SessionExpired);
    server.open();
    server.take_over(bound(3_000, 4));
    assert_eq!(server.role(), Role::Master);
}

#[test]
fn an_own_node_of_an_earlier_life_is_left_alone() {
    let mut server = Server::start();
    server.open();
    server.answer(&Ask::CreateMaster, Answer::Exists);
    let created = WallMs(WALL_MS);
    let earlier = MasterNode { address: "own_1".to_owned(), owner: OTHER, created };
    server.answer(&Ask::WatchMaster, Answer::Master(Some(earlier)));
    server.answer(&Ask::RegisterBackup, Answer::Exists);
    assert_eq!(server.role(), Role::Backup);
}

#[test]
fn a_lost_create_is_recognised_by_its_owner() {
    let mut server = Server::start();
    server.open();
    server.answer(&Ask::CreateMaster, Answer::Lost);
    server.pass(60);
    server.confirm(bound(0, 3));
    server.live(2_000);
    assert_eq!(server.role(), Role::Master);
}

#[test]
fn an_orderly_stop_lowers_the_bound_and_leaves() {
    let mut server = Server::master();
    let last = server.take().expect("it serves");
    server.pass_until_asked();
    let (_, version) = server.written();
    server.tell(Event::Stop);
    assert_eq!(server.take(), Err(Refusal::NotServing));
    server.write();
    let bound = Timestamp(last.0 + 1);
    assert_eq!(server.asked, Some(Ask::Release { bound, version: version + 1 }));
    server.answer(&RELEASE, Answer::Done);
    server.answer(&Ask::CloseSession, Answer::Done);
    assert!(server.is_stopped && server.role() == Role::Stopped);
}

#[test]
fn a_stop_with_an_unknown_outcome_does_not_lower_the_bound() {
    for answer in [Answer::Lost, Answer::Refused] {
        let mut server = Server::master();
        server.pass_until_asked();
        server.tell(Event::Stop);
        server.answer(&WRITE, Answer::Lost);
        server.answer(&Ask::CloseSession, answer);
        assert!(server.is_stopped);
    }
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut server = Server::master();
    server.pass_until_asked();
    server.tell(Event::Stop);
    server.pass(1_000);
    assert!(server.is_stopped);
    let mut server = Server::start();
    server.tell(Event::Stop);
    assert!(server.is_stopped, "without a session there is nothing to end");
}

#[test]
fn what_is_refused_is_tried_again_after_a_pause() {
    let mut server = Server::start();
    server.answer(&Ask::OpenSession, Answer::Session { session: OWN, timeout_ms: SESSION_MS });
    server.answer(&Ask::FindNodes, Answer::Refused);
    assert_eq!(server.asked, None);
    server.pass(1_000);
    server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::Whole));
}

/// The first server of a cluster makes the nodes, and no server makes them twice.
#[test]
fn a_cluster_that_never_was_is_made() {
    for made in [Answer::Done, Answer::Exists] {
        let mut server = Server::start();
        server.answer(&OPEN, Answer::Session { session: OWN, timeout_ms: SESSION_MS });
        server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::None));
        server.answer(&Ask::MakeCluster, made);
        server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::Whole));
        server.take_over(bound(0, 0));
        assert!(server.take().is_ok() && server.alarms.is_empty());
        // All nodes are gone, and a new session looks for them.
        server.tell(Event::SessionExpired);
        server.answer(&OPEN, Answer::Session { session: OWN, timeout_ms: SESSION_MS });
        server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::None));
        assert_eq!((server.asked.as_ref(), &server.alarms[..]), (None, &[LOST][..]));
    }
}

#[test]
fn a_bound_that_was_lost_is_not_made_anew() {
    let mut server = Server::start();
    server.answer(&OPEN, Answer::Session { session: OWN, timeout_ms: SESSION_MS });
    for looks in 1..=3 {
        server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::NoBound));
        assert_eq!((server.asked.as_ref(), &server.alarms[..]), (None, &vec![LOST; looks][..]));
        server.pass(999);
        assert_eq!(server.asked, None, "it looks once a second");
        server.pass(1);
    }
    server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::None));
    server.pass(1_000);
    server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::Whole));
    server.take_over(bound(60_000, 0));
    assert!(server.take().expect("it serves").unix_ms() >= WALL_MS + 60_000);
}

#[test]
fn a_master_whose_bound_is_deleted_waits_for_another() {
    for is_doubtful in [false, true] {
        let mut server = Server::master();
        server.live(5_000);
        server.pass_until_asked();
        let own = server.oracle.terms().0.bound;
        if is_doubtful {
            server.answer(&WRITE, Answer::Lost);
            server.pass(60);
            server.answer(&Ask::WatchMaster, node(OWN));
            server.answer(&Ask::ReadBound, Answer::NoBound);
        } else {
            server.answer(&WRITE, Answer::Conflict);
        }
        assert_eq!(server.take(), Err(Refusal::NotServing));
        server.come_to_write(Answer::NoBound);
        assert_eq!(server.alarms, [Alarm::BoundLost(Some(own))]);
        server.pass(999);
        assert_eq!(server.asked, None);
        server.pass(1);
        server.answer(&Ask::ReadBound, bound(100, 0));
        server.write();
        server.answer(&Ask::WatchMaster, node(OWN));
        server.live(SESSION_MS);
        assert!(server.take().expect("it serves again") > own, "it remembers what it stored");
    }
}

/// The master's node is old by then, and the time that it told is long past.
#[test]
fn an_old_master_believes_its_clock_when_it_reads_the_bound_again() {
    let mut server = Server::master();
    server.live(60_000);
    server.pass_until_asked();
    server.answer(&WRITE, Answer::Conflict);
    server.confirm(bound(0, 77));
    assert_eq!(server.clocks, []);
    // The bound was stored a window ahead of the clock.
    let before = server.take().expect("it serves again").unix_ms();
    server.live(10_000);
    assert_eq!(server.take().expect("it serves").unix_ms(), WALL_MS + server.now_ms);
    assert!(before >= WALL_MS + 60_000, "{before}");
}

#[test]
fn a_candidate_that_waited_long_for_the_bound_believes_its_clock() {
    let mut server = Server::candidate(Answer::NoBound);
    server.pass(3_600_000);
    server.answer(&Ask::ReadBound, bound(0, 0));
    assert_eq!(server.clocks, []);
    assert!(server.written().0.unix_ms() >= WALL_MS + 3_600_000);
}

#[test]
fn a_clock_that_zookeeper_does_not_confirm_is_refused_until_it_does() {
    const HOUR_MS: u64 = 3_600_000;
    let mut server = Server::start();
    server.wall_wrong_ms = HOUR_MS;
    server.open();
    server.take_over(bound(0, 3));
    let told = |seen: &Seen| matches!(seen, Seen::RefusedMs(ms) if ms.abs_diff(HOUR_MS) < 10);
    assert!(matches!(&server.clocks[..], [one] if told(one)), "{:?}", server.clocks);
    server.live(20_000);
    let told_ms = server.take().expect("it serves").unix_ms();
    assert!(told_ms.abs_diff(WALL_MS + server.now_ms) < 10, "it goes by ZooKeeper's clock");
    assert_eq!(server.clocks.len(), 1, "a refusal is told once");
    // ZooKeeper's clock was wrong.
    server.zookeeper_wrong_ms = HOUR_MS;
    server.live(1_000);
    assert_eq!(server.clocks[1..], [Seen::Agreed]);
    assert_eq!(server.take().expect("it serves").unix_ms(), WALL_MS + server.now_ms + HOUR_MS);
}

#[test]
fn a_step_forward_is_followed_when_zookeeper_tells_the_same() {
    for (zookeeper_wrong_ms, is_followed) in [(0, false), (49_900, false), (50_100, true)] {
        let mut server = Server::master();
        server.live(10_000);
        server.wall_wrong_ms = 60_000;
        server.zookeeper_wrong_ms = zookeeper_wrong_ms;
        server.live(1_000);
        let told_ms = server.take().expect("it serves").unix_ms();
        assert_eq!(told_ms == WALL_MS + server.now_ms + 60_000, is_followed, "{told_ms}");
    }
}

#[test]
fn a_backup_makes_its_node_anew() {
    let mut server = Server::backup();
    let mut asked = Vec::new();
    for _ in 0..25_000 {
        server.pass(1);
        match server.asked {
            Some(Ask::RegisterBackup) => {
                asked.push(server.now_ms);
                // The node still exists, or was deleted by hand.
                let answer = if asked.len() == 1 { Answer::Exists } else { Answer::Done };
                server.answer(&Ask::RegisterBackup, answer);
            }
            Some(_) => server.answer(&Ask::WatchMaster, node(OTHER)),
            None => {}
        }
    }
    assert!(matches!(asked[..], [10_000..11_000, 20_000..22_000, ..]), "{asked:?}");
}

#[test]
fn a_node_of_an_earlier_life_is_looked_after_every_second() {
    let mut server = Server::start();
    server.open();
    server.answer(&Ask::CreateMaster, Answer::Exists);
    server.answer(&Ask::WatchMaster, node(OTHER));
    server.answer(&Ask::RegisterBackup, Answer::Exists);
    let before_ms = server.now_ms;
    while server.asked != Some(Ask::RegisterBackup) {
        server.pass(1);
        if server.asked == Some(Ask::WatchMaster) {
            server.answer(&Ask::WatchMaster, node(OTHER));
        }
    }
    assert!((1_000..2_000).contains(&(server.now_ms - before_ms)));
}

#[test]
fn a_folder_that_is_gone_is_looked_for() {
    let mut server = Server::start();
    server.open();
    server.answer(&Ask::CreateMaster, Answer::Refused);
    server.pass(999);
    assert_eq!(server.asked, None);
    server.pass(1);
    server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::Whole));
    server.answer(&Ask::CreateMaster, Answer::Exists);
    server.answer(&Ask::WatchMaster, node(OTHER));
    server.answer(&Ask::RegisterBackup, Answer::Refused);
    server.pass(1_000);
    server.answer(&Ask::FindNodes, Answer::Nodes(Nodes::Whole));
}
