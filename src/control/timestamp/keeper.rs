//! The thread that decides whether this server may hand out timestamps: it drives the state machine
//! of a file or of `ZooKeeper` and publishes what comes of it to the oracle, from which the cores
//! take. A thread of its own, because a heartbeat that waits behind a scrape or a reload costs a
//! mastership; and so that whatever becomes of it, timers go on.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{error, warn};

use super::board::TimestampBoard;
use super::bound_file::{TimestampFile, TimestampFileError};
use super::coordinated;
use super::outlets::Outlets;
use super::standalone;
use super::zookeeper::ZooKeeperSettings;
use crate::control::config::timestamp::{Authentication, Coordination, TimestampConfig};
use crate::timestamp::Timestamp;
use crate::timestamp::coordinator::{CoordinatorSettings, Role};
use crate::timestamp::oracle::Oracle;
use crate::timestamp::standalone::StandaloneSettings;

/// An orderly stop takes one transaction or one write; what takes longer is left behind. Nothing is
/// lost: the bound that is stored is above everything handed out.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// How long a start waits for the first bound of a file to be on the disk.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// Why there are no timestamps. The text says what to do; the exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimestampError {
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
pub(crate) enum Prepared {
    /// One server and its file, with the bound that it held.
    File(TimestampFile, Timestamp, StandaloneSettings),
    /// One of several servers.
    ZooKeeper(ZooKeeperSettings, CoordinatorSettings),
}

impl Prepared {
    /// Takes the file for this process and tries to write it; reads the password. Connects to
    /// nobody.
    pub(crate) fn new(config: &TimestampConfig) -> Result<Self, TimestampError> {
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
pub(crate) fn zookeeper_settings(
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
pub(crate) fn read_password(file: &str) -> Result<String, TimestampError> {
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
pub(crate) struct Keeper {
    board: Arc<TimestampBoard>,
    began: Option<oneshot::Receiver<()>>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Keeper {
    /// Starts the thread. `tell_master` is called with `host:port` of the master whenever that
    /// changes.
    pub(crate) fn start(
        prepared: Prepared,
        oracle: Arc<Oracle>,
        tell_master: Box<dyn Fn(Option<Arc<str>>) + Send>,
    ) -> Result<Self, TimestampError> {
        let board = Arc::new(TimestampBoard::new(oracle, prepared.coordination()));
        let (began, has_begun) = oneshot::channel();
        let (stop, stop_asked) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let outlets = Outlets::new(Arc::clone(&board), tell_master, began);
        // Only a file begins at once; one of several servers may well be a backup for ever.
        let began = matches!(prepared, Prepared::File(..)).then_some(has_begun);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(TimestampError::Thread)?;
        let last_board = Arc::clone(&board);
        let live = move || {
            // Dropped last: it tells that all is over.
            let _end = end;
            let _last_word = LastWord(last_board);
            runtime.block_on(drive(prepared, outlets, stop_asked));
            // A disk that hangs holds a thread of the runtime: nobody waits for it.
            runtime.shutdown_background();
        };
        let named = thread::Builder::new().name("timestamps".into());
        named.spawn(live).map_err(TimestampError::Thread)?;
        Ok(Self { board, began, stop, ended })
    }

    /// What operators see.
    pub(crate) fn board(&self) -> &Arc<TimestampBoard> {
        &self.board
    }

    /// Returns when the first timestamp can be had from a server with a file, or soon after all the
    /// same: what keeps it waiting has been logged.
    pub(crate) async fn begun(&mut self) {
        if let Some(began) = self.began.take() {
            let _ = timeout(BEGIN_LIMIT, began).await;
        }
    }

    /// Returns when the keeper has ended by itself.
    pub(crate) async fn failed(&mut self) {
        // The sender is dropped with the thread; nothing is ever sent.
        let _ = (&mut self.ended).await;
    }

    /// Stops in order: nothing more is handed out, mastership is given up, what is left of the
    /// window is given back.
    pub(crate) async fn stop(self) {
        // It may have ended already.
        let _ = self.stop.send(());
        if timeout(STOP_LIMIT, self.ended).await.is_err() {
            warn!("mastership of timestamps could not be given up in order; others wait for it");
        }
    }
}

async fn drive(prepared: Prepared, outlets: Outlets, stop: oneshot::Receiver<()>) {
    match prepared {
        Prepared::File(file, bound, settings) => {
            standalone::drive(file, bound, settings, outlets, stop).await;
        }
        Prepared::ZooKeeper(zookeeper, settings) => {
            coordinated::drive(zookeeper, settings, outlets, stop).await;
        }
    }
}
