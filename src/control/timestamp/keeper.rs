//! The thread that decides whether this server may hand out timestamps: it drives the state machine
//! of a file or of `ZooKeeper` and publishes what comes of it to the oracle, from which the cores
//! take. A thread of its own, because a heartbeat that waits behind a scrape or a reload costs a
//! mastership; and so that whatever becomes of it, timers go on.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::board::{TimestampBoard, role_name};
use super::bound_file::{TimestampFile, TimestampFileError};
use super::coordinated;
use super::told::Told;
use super::zookeeper::ZooKeeperSettings;
use crate::base::time::MonoNs;
use crate::control::config::timestamp::{
    Authentication, Coordination, TimestampConfig, address_of,
};
use crate::ring::now;
use crate::timestamp::Timestamp;
use crate::timestamp::clock::Seen;
use crate::timestamp::coordinator::{CoordinatorSettings, Role};
use crate::timestamp::oracle::{Oracle, Terms};
use crate::timestamp::standalone::{FileEffect, FileEvent, Standalone, StandaloneSettings};

/// An orderly stop takes one transaction or one write; what takes longer is left behind. Nothing is
/// lost: the bound that is stored is above everything handed out.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// How long a start waits for the first bound of a file to be on the disk.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// A state machine that asks for the past is looked at a thousand times a second, not for ever.
const PAUSE_LEAST: Duration = Duration::from_millis(1);

/// Why there are no timestamps. The text says what to do; the exit code is 1.
#[derive(Debug, thiserror::Error)]
pub enum TimestampError {
    /// The file of the bound.
    #[error(transparent)]
    File(#[from] TimestampFileError),
    /// The file cannot be written.
    #[error(
        "cannot store a timestamp in {file}: {source}. Give the disk room and this user the rights \
         to the file's folder"
    )]
    Store {
        /// The file as named.
        file: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The password of `ZooKeeper`.
    #[error(
        "cannot read the password of ZooKeeper from {file}: {reason}. Put it into the first line \
         of [timestamp] zookeeper_password_file"
    )]
    Password {
        /// The file as named.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// No thread.
    #[error("the keeper of timestamps cannot start: {0}. Check the limit on threads (ulimit -u)")]
    Thread(std::io::Error),
}

/// What a keeper needs, found to be there before anything listens.
#[derive(Debug)]
pub enum Prepared {
    /// One server and its file, with the bound that it held.
    File(TimestampFile, Timestamp, StandaloneSettings),
    /// One of several servers.
    ZooKeeper(ZooKeeperSettings, CoordinatorSettings),
}

impl Prepared {
    /// Takes the file for this process and tries to write it; reads the password. Connects to
    /// nobody.
    pub fn new(config: &TimestampConfig) -> Result<Self, TimestampError> {
        let TimestampConfig { window_ms, clock_jump_max_ms, .. } = *config;
        if config.coordination == Coordination::File {
            let (file, bound) = TimestampFile::open(config.file.as_ref())?;
            // A disk that is full or read-only is told now and not to the first client.
            file.store(bound)
                .map_err(|source| TimestampError::Store { file: file.name(), source })?;
            let settings = StandaloneSettings { window_ms, clock_jump_max_ms };
            return Ok(Prepared::File(file, bound, settings));
        }
        let address = config.host_port().expect("checked with the configuration");
        let zookeeper = zookeeper_settings(config, address.clone())?;
        let settings = CoordinatorSettings { address, window_ms, clock_jump_max_ms };
        Ok(Prepared::ZooKeeper(zookeeper, settings))
    }

    fn coordination(&self) -> &'static str {
        match self {
            Prepared::File(..) => "file",
            Prepared::ZooKeeper(..) => "zookeeper",
        }
    }
}

/// How sessions with `ZooKeeper` begin, as configured; reads the password. For tools as well.
pub fn zookeeper_settings(
    config: &TimestampConfig,
    host_port: String,
) -> Result<ZooKeeperSettings, TimestampError> {
    let password = match config.zookeeper_auth {
        Authentication::None => String::new(),
        _ => read_password(&config.zookeeper_password_file)?,
    };
    Ok(ZooKeeperSettings {
        quorum: config.zookeeper_quorum.clone(),
        cluster: config.zookeeper_cluster.clone(),
        host_port,
        session_timeout: Duration::from_millis(config.session_timeout_ms),
        authentication: config.zookeeper_auth,
        user: config.zookeeper_user.clone(),
        password,
    })
}

/// The first line of a file. For tools as well.
pub fn read_password(file: &str) -> Result<String, TimestampError> {
    let failed = |reason: String| TimestampError::Password { file: file.to_owned(), reason };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let is_open = |metadata: std::fs::Metadata| metadata.permissions().mode() & 0o077 != 0;
    if std::fs::metadata(file).is_ok_and(is_open) {
        warn!("{file} is readable by others; type: chmod 600 {file}");
    }
    match text.lines().next() {
        None | Some("") => Err(failed("its first line is empty".into())),
        Some(password) => Ok(password.to_owned()),
    }
}

/// What both drivers work with.
pub(crate) struct Desk {
    board: Arc<TimestampBoard>,
    /// Tells the cores who is master.
    tell_master: Box<dyn Fn(Option<Arc<str>>) + Send>,
    /// Told once, at the first mastership.
    began: Option<oneshot::Sender<()>>,
    set_back_told: Told,
    refusal_told: Told,
}

impl Desk {
    pub(crate) fn oracle(&self) -> &Oracle {
        &self.board.oracle
    }

    pub(crate) fn board(&self) -> &TimestampBoard {
        &self.board
    }

    pub(crate) fn begin(&mut self, floor: Timestamp, terms: &Terms) {
        self.oracle().begin(floor, terms);
        self.board.counters.masterships.fetch_add(1, Relaxed);
        let now = now();
        let ahead_ms = terms.clock.unix_ms(now.mono) as i64 - now.wall.0 as i64;
        info!(floor = floor.0, ahead_ms, "timestamps are handed out");
        if let Some(began) = self.began.take() {
            // Nobody waits any more: the start was slow.
            let _ = began.send(());
        }
    }

    pub(crate) fn set_role(&self, role: Role) {
        if self.board.set_role(role) {
            info!("timestamps: this server is {}", role_name(role));
        }
    }

    pub(crate) fn master_is(&self, host_port: Option<String>) {
        let address = host_port.map(|host_port| address_of(&host_port));
        self.board.set_master(address.clone());
        (self.tell_master)(address.map(Arc::from));
    }

    pub(crate) fn clock_seen(&mut self, seen: Seen) {
        match seen {
            // The end of a refusal.
            Seen::Agreed => info!("the wall clock is followed again"),
            Seen::BackMs(ms) => {
                self.board.counters.clock_set_back.fetch_add(1, Relaxed);
                if self.set_back_told.is_due() {
                    warn!(
                        "the wall clock was set back by {ms} ms: timestamps go on at half speed \
                         until it has caught up"
                    );
                }
            }
            Seen::RefusedMs(ms) => {
                self.board.counters.clock_refusals.fetch_add(1, Relaxed);
                if self.refusal_told.is_due() {
                    error!(
                        "the wall clock is {ms} ms ahead of what was believed and is not \
                         followed: set it right (NTP), or restart this server if it is right"
                    );
                }
            }
        }
    }
}

/// Whatever ends the keeper's thread: nothing more is handed out.
struct LastWord(Arc<TimestampBoard>);

impl Drop for LastWord {
    fn drop(&mut self) {
        self.0.oracle.revoke();
        self.0.set_role(Role::Stopped);
        if thread::panicking() {
            self.0.set_ended();
            error!("the keeper of timestamps has failed; no timestamp is handed out any more");
        }
    }
}

/// A running keeper.
#[derive(Debug)]
pub struct Keeper {
    board: Arc<TimestampBoard>,
    began: Option<oneshot::Receiver<()>>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Keeper {
    /// Starts the thread. `tell_master` is called with `host:port` of the master whenever that
    /// changes.
    pub fn start(
        prepared: Prepared,
        oracle: Arc<Oracle>,
        tell_master: Box<dyn Fn(Option<Arc<str>>) + Send>,
    ) -> Result<Self, TimestampError> {
        let board = Arc::new(TimestampBoard::new(oracle, prepared.coordination()));
        let (began, has_begun) = oneshot::channel();
        let (stop, stop_asked) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let desk = Desk {
            board: Arc::clone(&board),
            tell_master,
            began: Some(began),
            set_back_told: Told::default(),
            refusal_told: Told::default(),
        };
        // Only a file begins at once; one of several servers may well be a backup for ever.
        let began = matches!(prepared, Prepared::File(..)).then_some(has_begun);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(TimestampError::Thread)?;
        let live = move || {
            // Dropped last: it tells that all is over.
            let _end = end;
            let _last_word = LastWord(Arc::clone(&desk.board));
            runtime.block_on(drive(prepared, desk, stop_asked));
            // A disk that hangs holds a thread of the runtime: nobody waits for it.
            runtime.shutdown_background();
        };
        let named = thread::Builder::new().name("timestamps".into());
        named.spawn(live).map_err(TimestampError::Thread)?;
        Ok(Self { board, began, stop, ended })
    }

    /// What operators see.
    pub fn board(&self) -> &Arc<TimestampBoard> {
        &self.board
    }

    /// Returns when the first timestamp can be had from a server with a file, or soon after all the
    /// same: what keeps it waiting has been logged.
    pub async fn begun(&mut self) {
        if let Some(began) = self.began.take() {
            let _ = timeout(BEGIN_LIMIT, began).await;
        }
    }

    /// Returns when the keeper has ended by itself.
    pub async fn failed(&mut self) {
        // The sender is dropped with the thread; nothing is ever sent.
        let _ = (&mut self.ended).await;
    }

    /// Stops in order: nothing more is handed out, mastership is given up, what is left of the
    /// window is given back.
    pub async fn stop(self) {
        // It may have ended already.
        let _ = self.stop.send(());
        if timeout(STOP_LIMIT, self.ended).await.is_err() {
            warn!("mastership of timestamps could not be given up in order; others wait for it");
        }
    }
}

async fn drive(prepared: Prepared, desk: Desk, stop: oneshot::Receiver<()>) {
    match prepared {
        Prepared::File(file, bound, settings) => {
            desk.master_is(None);
            FileDriver::new(file, settings, desk).drive(bound, stop).await;
        }
        Prepared::ZooKeeper(zookeeper, settings) => {
            coordinated::drive(zookeeper, settings, desk, stop).await;
        }
    }
}

/// How long to sleep until then.
pub(crate) fn pause_until(then: MonoNs) -> Duration {
    Duration::from_nanos(then.since_ns(now().mono)).max(PAUSE_LEAST)
}

/// Drives [`Standalone`].
struct FileDriver {
    file: Arc<TimestampFile>,
    machine: Standalone,
    desk: Desk,
    effects: Vec<FileEffect>,
    storing: Option<JoinHandle<std::io::Result<()>>>,
    store_told: Told,
    has_stopped: bool,
}

impl FileDriver {
    fn new(file: TimestampFile, settings: StandaloneSettings, desk: Desk) -> Self {
        Self {
            file: Arc::new(file),
            machine: Standalone::new(settings),
            desk,
            effects: Vec::new(),
            storing: None,
            store_told: Told::default(),
            has_stopped: false,
        }
    }

    async fn drive(mut self, bound: Timestamp, mut stop: oneshot::Receiver<()>) {
        self.take(FileEvent::Loaded(bound));
        let mut is_stopping = false;
        while !self.has_stopped {
            let pause = sleep(pause_until(self.machine.wake_at()));
            let event = tokio::select! {
                biased;
                // A keeper that nobody holds any more stops, too.
                _ = &mut stop, if !is_stopping => {
                    is_stopping = true;
                    FileEvent::Stop
                }
                stored = stored(&mut self.storing) => self.judge(stored),
                () = pause => FileEvent::Tick { last: self.desk.oracle().last() },
            };
            self.take(event);
        }
    }

    fn judge(&mut self, stored: std::io::Result<()>) -> FileEvent {
        self.storing = None;
        match stored {
            Ok(()) => {
                self.store_told.reset();
                FileEvent::Stored
            }
            Err(problem) => {
                self.desk.board().counters.store_errors.fetch_add(1, Relaxed);
                if self.store_told.is_due() {
                    error!(
                        "cannot store a timestamp in {}: {problem}; no timestamp is handed out \
                         until that works. Give the disk room, or mend it",
                        self.file.name()
                    );
                }
                FileEvent::StoreFailed
            }
        }
    }

    fn take(&mut self, event: FileEvent) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let mut effects = std::mem::take(&mut self.effects);
            self.machine.handle(now(), event, &mut effects);
            for effect in effects.drain(..) {
                if let Some(answer) = self.apply(effect) {
                    assert!(next.is_none(), "one revocation for each event");
                    next = Some(answer);
                }
            }
            self.effects = effects;
        }
    }

    fn apply(&mut self, effect: FileEffect) -> Option<FileEvent> {
        match effect {
            FileEffect::Store(bound) => {
                assert!(self.storing.is_none(), "one bound is stored at a time");
                let file = Arc::clone(&self.file);
                self.storing = Some(tokio::task::spawn_blocking(move || file.store(bound)));
            }
            FileEffect::Begin(floor, terms) => {
                self.desk.begin(floor, &terms);
                self.desk.set_role(Role::Master);
            }
            FileEffect::Publish(terms) => self.desk.oracle().publish(&terms),
            FileEffect::Revoke => {
                self.desk.set_role(Role::Suspended);
                return Some(FileEvent::Revoked { last: self.desk.oracle().revoke() });
            }
            FileEffect::Clock(seen) => self.desk.clock_seen(seen),
            FileEffect::Stopped => self.has_stopped = true,
        }
        None
    }
}

/// The end of a store; never, while there is none.
async fn stored(storing: &mut Option<JoinHandle<std::io::Result<()>>>) -> std::io::Result<()> {
    match storing {
        Some(storing) => storing.await.map_err(std::io::Error::other)?,
        None => std::future::pending().await,
    }
}
