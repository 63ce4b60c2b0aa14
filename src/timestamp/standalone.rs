//! One server, which keeps its bound in a file. The stored bound always lies above every timestamp
//! handed out.

// May panic: assertions 3, expectations 4.
// Why it does not: ordered 7.

use super::Timestamp;
use super::clock::Seen;
use super::oracle::Terms;
use super::pace::{Begin, Pace};
use super::window::Window;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now};

/// The settings of a standalone server.
#[derive(Clone, Copy, Debug)]
pub struct StandaloneSettings {
    /// How far ahead of the clock the bound is stored, in milliseconds.
    pub window_ms: u64,
    /// A wall clock that steps forward by more milliseconds is not followed.
    pub clock_jump_max_ms: u64,
}

/// What happens to a standalone server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// The file has been read and held this bound. Sent once, at the start.
    Loaded(Timestamp),
    /// The bound of the last [`FileEffect::Store`] is on the disk.
    Stored,
    /// The last [`FileEffect::Store`] failed. The bound may be on the disk or not.
    StoreFailed,
    /// Time has passed.
    Tick {
        /// The last timestamp handed out.
        last: Timestamp,
    },
    /// An orderly stop begins.
    Stop,
    /// The oracle has been revoked, as [`FileEffect::Revoke`] asked.
    Revoked {
        /// The last timestamp handed out.
        last: Timestamp,
    },
}

/// What the driver must do. Effects are done in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEffect {
    /// Store this bound so that it survives a loss of power, and answer with [`FileEvent::Stored`]
    /// or [`FileEvent::StoreFailed`]. At most one store is open.
    Store(Timestamp),
    /// Call [`super::oracle::Oracle::begin`].
    Begin(Timestamp, Terms),
    /// Call [`super::oracle::Oracle::publish`].
    Publish(Terms),
    /// Call [`super::oracle::Oracle::revoke`] and send [`FileEvent::Revoked`].
    Revoke,
    /// The wall clock is not followed, or was set back: log and count it.
    Clock(Seen),
    /// Everything after [`FileEvent::Stop`] is done.
    Stopped,
}

/// How many ticks come in one window, as far as the two limits below allow.
const TICKS_PER_WINDOW: u64 = 12;
const TICK_MS_MIN: u64 = 20;
const TICK_MS_MAX: u64 = 250;
/// Milliseconds between a failed store and the next try. Nothing is handed out meanwhile.
const RETRY_MS: u64 = 1_000;

/// A standalone server, from its start to its stop. Needs a driver that does its effects.
#[derive(Debug)]
pub struct Standalone {
    settings: StandaloneSettings,
    stage: Phase,
    /// `None` until the file was read.
    pace: Option<Pace>,
    /// The bound of the open store.
    storing: Option<Timestamp>,
    /// The bound that the file held at the start. Every timestamp lies above it.
    floor: Timestamp,
    /// The highest bound that the file may hold: a store that failed may have reached the disk.
    highest: Timestamp,
    last: Timestamp,
    wake_at: MonoNs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is handed out until the first bound is stored.
    Starting,
    Serving,
    /// The last store failed. Nothing is handed out until a store succeeds.
    Failed,
    /// The oracle is being revoked, and the last timestamp is not known yet.
    Stopping,
    /// The last bound is being stored.
    StoringLast,
    Stopped,
}

impl Standalone {
    /// A server that waits for [`FileEvent::Loaded`].
    pub fn new(settings: StandaloneSettings) -> Self {
        Self {
            settings,
            stage: Phase::Starting,
            pace: None,
            storing: None,
            floor: Timestamp(0),
            highest: Timestamp(0),
            last: Timestamp(0),
            wake_at: MonoNs(u64::MAX),
        }
    }

    /// Takes an event and appends effects.
    pub fn handle(&mut self, now: Now, event: FileEvent, effects: &mut Vec<FileEffect>) {
        match event {
            FileEvent::Loaded(bound) => self.loaded(now, bound, effects),
            FileEvent::Stored => self.stored(now, effects),
            FileEvent::StoreFailed => self.store_failed(now, effects),
            FileEvent::Tick { last } => {
                self.last = self.last.max(last);
                self.tick(now, effects);
            }
            FileEvent::Stop => self.stop(effects),
            FileEvent::Revoked { last } => {
                self.last = self.last.max(last);
                if self.stage == Phase::Stopping {
                    self.stage = Phase::StoringLast;
                    self.store_last(effects);
                }
            }
        }
    }

    /// When the server needs the next [`FileEvent::Tick`].
    pub fn wake_at(&self) -> MonoNs {
        self.wake_at
    }

    fn loaded(&mut self, now: Now, bound: Timestamp, effects: &mut Vec<FileEffect>) {
        if self.stage == Phase::Stopped {
            return;
        }
        assert!(self.pace.is_none(), "the file is read once");
        let floor = if is_planted(Bug::FloorForgotten) { Timestamp(0) } else { bound };
        let window_ms = self.settings.window_ms;
        let (pace, seen) = Pace::begin(
            now,
            Begin {
                floor,
                witness: None,
                clock_jump_max_ms: self.settings.clock_jump_max_ms,
                window: Window { window_ms, least_ms: window_ms / 6 },
            },
        );
        effects.extend(seen.map(FileEffect::Clock));
        self.pace = Some(pace);
        self.floor = floor;
        self.highest = floor;
        self.store_next(now, effects);
        if is_planted(Bug::ServedBeforeBoundIsStored) {
            self.stage = Phase::Serving;
            let bound = self.storing.expect("one was begun");
            effects.push(FileEffect::Begin(floor, Terms { bound, ..self.terms() }));
        }
    }

    fn pace(&mut self) -> &mut Pace {
        self.pace.as_mut().expect("the file has been read")
    }

    /// The terms of a server without a lease: no other process may use the file.
    fn terms(&mut self) -> Terms {
        self.pace().terms(MonoNs(u64::MAX))
    }

    fn store_next(&mut self, now: Now, effects: &mut Vec<FileEffect>) {
        let last = self.last;
        // A store that failed may have left `highest` in the file, so the next bound is not below
        // it.
        let bound = self.pace().target(now.mono, last).max(self.highest);
        self.store(bound, effects);
        self.sleep(now);
    }

    fn store(&mut self, bound: Timestamp, effects: &mut Vec<FileEffect>) {
        assert!(self.storing.is_none(), "one at a time");
        self.storing = Some(bound);
        effects.push(FileEffect::Store(bound));
    }

    fn sleep(&mut self, now: Now) {
        let tick_ms = self.settings.window_ms / TICKS_PER_WINDOW;
        self.wake_at = now.mono.plus_ms(tick_ms.clamp(TICK_MS_MIN, TICK_MS_MAX));
    }

    fn stored(&mut self, now: Now, effects: &mut Vec<FileEffect>) {
        let bound = self.storing.take().expect("something was being stored");
        self.highest = self.highest.max(bound);
        match self.stage {
            Phase::Starting | Phase::Failed => {
                self.pace().stored(bound);
                self.stage = Phase::Serving;
                effects.push(FileEffect::Begin(self.floor, self.terms()));
                self.sleep(now);
            }
            Phase::Serving => {
                self.pace().stored(bound);
                effects.push(FileEffect::Publish(self.terms()));
            }
            Phase::Stopping => {}
            Phase::StoringLast => self.end_or_store_last(bound, effects),
            Phase::Stopped => {}
        }
    }

    fn store_failed(&mut self, now: Now, effects: &mut Vec<FileEffect>) {
        let bound = self.storing.take().expect("something was being stored");
        self.highest = self.highest.max(bound);
        match self.stage {
            Phase::Serving => {
                self.stage = Phase::Failed;
                effects.push(FileEffect::Revoke);
            }
            Phase::StoringLast => self.end_or_store_last(bound, effects),
            Phase::Starting | Phase::Failed | Phase::Stopping | Phase::Stopped => {}
        }
        self.wake_at = now.mono.plus_ms(RETRY_MS);
    }

    fn tick(&mut self, now: Now, effects: &mut Vec<FileEffect>) {
        if now.mono < self.wake_at || self.pace.is_none() {
            return;
        }
        let last = self.last;
        effects.extend(self.pace().look(now, None).map(FileEffect::Clock));
        match self.stage {
            Phase::Serving => {
                effects.push(FileEffect::Publish(self.terms()));
                if self.storing.is_none() && self.pace().is_due(now.mono, last) {
                    return self.store_next(now, effects);
                }
            }
            Phase::Starting | Phase::Failed if self.storing.is_none() => {
                return self.store_next(now, effects);
            }
            _ => {}
        }
        self.sleep(now);
    }

    fn stop(&mut self, effects: &mut Vec<FileEffect>) {
        match self.stage {
            Phase::Serving => {
                self.stage = Phase::Stopping;
                effects.push(FileEffect::Revoke);
            }
            Phase::Failed => {
                self.stage = Phase::StoringLast;
                self.store_last(effects);
            }
            // Nothing was handed out, so the file is right whatever it holds.
            Phase::Starting => self.end(effects),
            Phase::Stopping | Phase::StoringLast | Phase::Stopped => {}
        }
    }

    fn store_last(&mut self, effects: &mut Vec<FileEffect>) {
        if self.storing.is_none() {
            assert!(self.last >= self.floor, "a revoked oracle remembers where it began");
            self.store(self.last_bound(), effects);
        }
    }

    fn last_bound(&self) -> Timestamp {
        Timestamp(self.last.0 + 1)
    }

    fn end_or_store_last(&mut self, stored: Timestamp, effects: &mut Vec<FileEffect>) {
        if stored == self.last_bound() {
            self.end(effects);
        } else {
            self.store_last(effects);
        }
    }

    fn end(&mut self, effects: &mut Vec<FileEffect>) {
        self.stage = Phase::Stopped;
        self.wake_at = MonoNs(u64::MAX);
        effects.push(FileEffect::Stopped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::WallMs;
    use crate::timestamp::oracle::{Oracle, Refusal};

    const WALL_MS: u64 = 1_700_000_000_000;
    const SETTINGS: StandaloneSettings =
        StandaloneSettings { window_ms: 3_000, clock_jump_max_ms: 10_000 };

    /// A server with its oracle, and a file that stores at once when the test says so.
    struct Server {
        keeper: Standalone,
        oracle: Oracle,
        now_ms: u64,
        storing: Option<Timestamp>,
        file: Timestamp,
        is_stopped: bool,
    }

    impl Server {
        fn start(now_ms: u64, file: Timestamp) -> Self {
            let keeper = Standalone::new(SETTINGS);
            let oracle = Oracle::default();
            let mut server =
                Self { keeper, oracle, now_ms, storing: None, file, is_stopped: false };
            server.tell(FileEvent::Loaded(file));
            server
        }

        fn now(&self) -> Now {
            Now { mono: MonoNs(self.now_ms * 1_000_000), wall: WallMs(WALL_MS + self.now_ms) }
        }

        fn tell(&mut self, event: FileEvent) {
            let mut effects = Vec::new();
            self.keeper.handle(self.now(), event, &mut effects);
            for effect in effects {
                match effect {
                    FileEffect::Store(bound) => self.storing = Some(bound),
                    FileEffect::Begin(floor, terms) => self.oracle.begin(floor, &terms),
                    FileEffect::Publish(terms) => self.oracle.publish(&terms),
                    FileEffect::Revoke => {
                        let last = self.oracle.revoke();
                        self.tell(FileEvent::Revoked { last });
                    }
                    FileEffect::Clock(_) => {}
                    FileEffect::Stopped => self.is_stopped = true,
                }
            }
        }

        fn store(&mut self) -> bool {
            let Some(bound) = self.storing.take() else { return false };
            self.file = bound;
            self.tell(FileEvent::Stored);
            true
        }

        fn fail(&mut self) {
            self.storing.take().expect("a store is under way");
            self.tell(FileEvent::StoreFailed);
        }

        /// Runs until `until_ms`. `stores` says whether the disk works. Returns how many bounds it
        /// stored.
        fn run(&mut self, until_ms: u64, stores: bool) -> u32 {
            let mut stored = 0;
            while self.now_ms < until_ms {
                self.now_ms += 1;
                if self.now().mono >= self.keeper.wake_at() {
                    self.tell(FileEvent::Tick { last: self.oracle.last() });
                }
                stored += u32::from(stores && self.store());
            }
            stored
        }

        fn take(&self) -> Result<Timestamp, Refusal> {
            let (value, term) = self.oracle.take(self.now().mono, 1)?;
            assert!(value < self.file && self.oracle.holds(self.now().mono, term));
            Ok(value)
        }
    }

    #[test]
    fn nothing_is_handed_out_before_a_bound_is_stored() {
        let mut server = Server::start(0, Timestamp(7));
        assert_eq!(server.take(), Err(Refusal::NotServing));
        assert!(server.store());
        assert_eq!(server.take(), Ok(Timestamp::of_unix_ms(WALL_MS)));
    }

    #[test]
    fn at_rest_it_stores_about_once_in_a_third_of_the_window() {
        let mut server = Server::start(0, Timestamp(7));
        assert!(server.store());
        let stored = server.run(60_000, true);
        assert!((40..=65).contains(&stored), "{stored} stores in 60 s");
        assert!(server.take().is_ok());
    }

    #[test]
    fn without_a_disk_it_stops_at_its_bound() {
        let mut server = Server::start(0, Timestamp(7));
        assert!(server.store());
        server.run(2_999, false);
        assert!(server.take().is_ok());
        server.run(3_000, false);
        assert_eq!(server.take(), Err(Refusal::Window));
    }

    #[test]
    fn a_failed_store_stops_it_until_one_succeeds() {
        let mut server = Server::start(0, Timestamp(7));
        assert!(server.store());
        let before = server.take().expect("it serves");
        server.run(1_500, false);
        server.fail();
        assert_eq!(server.take(), Err(Refusal::NotServing));
        server.run(2_499, true);
        assert_eq!(server.take(), Err(Refusal::NotServing));
        server.run(2_501, true);
        assert!(server.take().expect("it serves again") > before);
    }

    #[test]
    fn a_crash_never_repeats_a_value() {
        let (mut now_ms, mut file, mut last) = (0, Timestamp(7), Timestamp(7));
        for round in 0..50 {
            let mut server = Server::start(now_ms, file);
            let old = server.file;
            server.store();
            for _ in 0..3 {
                server.run(server.now_ms + 300, round % 3 != 0);
                let value = server.take().expect("it serves");
                assert!(value > last, "{value:?} after {last:?}");
                last = value;
            }
            (now_ms, file) = (server.now_ms, server.file);
            assert!(old < file);
        }
        assert!(last.unix_ms() < WALL_MS + now_ms + SETTINGS.window_ms);
    }

    #[test]
    fn an_orderly_stop_leaves_no_gap() {
        let mut server = Server::start(0, Timestamp(7));
        assert!(server.store());
        server.run(1_500, true);
        let last = server.take().expect("it serves");
        server.tell(FileEvent::Stop);
        assert_eq!(server.take(), Err(Refusal::NotServing));
        assert!(server.store() && server.is_stopped);
        assert_eq!(server.file, Timestamp(last.0 + 1));
        let mut server = Server::start(server.now_ms, server.file);
        assert!(server.store());
        assert!(server.take().expect("it serves") > last);
    }

    #[test]
    fn an_orderly_stop_waits_for_the_store_that_runs() {
        let mut server = Server::start(0, Timestamp(7));
        assert!(server.store());
        server.run(1_500, false);
        server.tell(FileEvent::Stop);
        assert!(server.store() && !server.is_stopped);
        assert!(server.store() && server.is_stopped);
        let mut server = Server::start(0, Timestamp(7));
        server.tell(FileEvent::Stop);
        assert!(server.is_stopped, "nothing was handed out");
    }

    #[test]
    fn a_clock_that_was_set_back_goes_at_half_speed() {
        let mut server = Server::start(0, Timestamp::of_unix_ms(WALL_MS + 60_000));
        assert!(server.store());
        let first = server.take().expect("it serves").unix_ms();
        assert_eq!(first, WALL_MS + 60_000);
        server.run(10_000, true);
        assert_eq!(server.take().expect("it serves").unix_ms(), first + 5_000);
        assert!(server.file.unix_ms() <= first + 5_000 + SETTINGS.window_ms / 6);
    }

    #[test]
    fn a_tick_before_its_time_does_nothing_and_one_on_time_does() {
        let mut server = Server::start(0, Timestamp(7));
        assert!(server.store());
        let wake_at = server.keeper.wake_at();
        for (at, is_done) in [(MonoNs(wake_at.0 - 1), false), (wake_at, true)] {
            let now = Now { mono: at, ..server.now() };
            let mut effects = Vec::new();
            let last = server.oracle.last();
            server.keeper.handle(now, FileEvent::Tick { last }, &mut effects);
            assert_eq!(!effects.is_empty(), is_done, "{effects:?}");
        }
        assert!(server.keeper.wake_at() > wake_at);
    }

    #[test]
    fn a_tick_before_the_file_is_read_does_nothing() {
        let mut keeper = Standalone::new(SETTINGS);
        let mut effects = Vec::new();
        let now = Now { mono: keeper.wake_at(), wall: WallMs(WALL_MS) };
        keeper.handle(now, FileEvent::Tick { last: Timestamp(0) }, &mut effects);
        assert!(effects.is_empty(), "{effects:?}");
    }

    #[test]
    fn a_store_that_takes_long_is_the_only_one() {
        let mut server = Server::start(0, Timestamp(7));
        let storing = server.storing;
        assert!(storing.is_some());
        server.run(20_000, false);
        assert_eq!((server.storing, server.take()), (storing, Err(Refusal::NotServing)));
        assert!(server.store() && server.take().is_err(), "its bound is of long ago");
    }
}
