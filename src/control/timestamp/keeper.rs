//! The thread that decides whether this server may hand out timestamps. It drives the state machine
//! of a file or of `ZooKeeper`, and publishes the result to the oracle, from which the cores take
//! timestamps. The keeper has a thread of its own for two reasons: a heartbeat that waits behind a
//! scrape or a reload costs a mastership, and timers go on whatever happens to the keeper.

// May panic: expectations 1.
// Why it does not: configured 1.

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
use crate::control::config::regular_file;
use crate::control::config::timestamp::{Authentication, Coordination, TimestampConfig};
use crate::timestamp::Timestamp;
use crate::timestamp::coordinator::{CoordinatorSettings, Role};
use crate::timestamp::oracle::Oracle;
use crate::timestamp::standalone::StandaloneSettings;

/// Most bytes of a file whose first line is a password.
const PASSWORD_BYTES_MAX: usize = 4 << 10;

/// Longest wait for an orderly stop, which takes one transaction or one write. After this time the
/// thread is left behind. Nothing is lost: the stored bound is above every timestamp that was
/// handed out.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// How long a start waits for the first bound of a file to be on the disk.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// Why there are no timestamps. The text says what to do; the exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimestampError {
    /// The file of the bound cannot be used.
    #[error(transparent)]
    File(#[from] TimestampFileError),
    /// The bound cannot be stored.
    #[error(
        "cannot store a timestamp in {file}: {source}. Give the disk room and this user the rights \
         to the file's folder"
    )]
    Store {
        /// The file as the operator named it.
        file: String,
        /// The error that the kernel returned.
        source: std::io::Error,
    },
    /// The password of `ZooKeeper` cannot be read.
    #[error(
        "cannot read the password of ZooKeeper from {file}: {reason}. Put it into the first line \
         of [timestamp] zookeeper_password_file"
    )]
    Password {
        /// The file as the operator named it.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The thread or its runtime cannot start.
    #[error("the keeper of timestamps cannot start: {0}. Check the limit on threads (ulimit -u)")]
    Thread(std::io::Error),
}

/// What a keeper needs. Everything is checked before anything listens.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// One server, with its file and the bound that the file held.
    File(TimestampFile, Timestamp, StandaloneSettings),
    /// One of several servers, which `ZooKeeper` coordinates.
    ZooKeeper(ZooKeeperSettings, CoordinatorSettings),
}

impl Prepared {
    /// Locks the file for this process and stores its bound once, or reads the password. Does not
    /// connect to `ZooKeeper`.
    pub(crate) fn new(config: &TimestampConfig) -> Result<Self, TimestampError> {
        let TimestampConfig { window_ms, clock_jump_max_ms, .. } = *config;
        if config.coordination == Coordination::File {
            let (file, bound) = TimestampFile::open(config.file.as_ref())?;
            // A disk that is full or read-only is reported at the start and not to the first
            // client.
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

/// Returns the settings of sessions with `ZooKeeper`, as configured. Reads the password. Tools use
/// this as well.
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

/// Returns the first line of a file. Warns if other users may read the file. Tools use this as
/// well.
pub(crate) fn read_password(file: &str) -> Result<String, TimestampError> {
    let failed = |reason: String| TimestampError::Password { file: file.to_owned(), reason };
    let read = regular_file::read(file.as_ref(), PASSWORD_BYTES_MAX);
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".into()))?;
    let is_open = |metadata: std::fs::Metadata| metadata.permissions().mode() & 0o077 != 0;
    if std::fs::metadata(file).is_ok_and(is_open) {
        warn!("{file} is readable by others; type: chmod 600 {file}");
    }
    match text.lines().next() {
        None | Some("") => Err(failed("its first line is empty".into())),
        Some(password) => Ok(password.to_owned()),
    }
}

/// Dropped when the keeper's thread ends, for any reason: from then on no timestamp is handed out.
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

/// The handle of a running keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    board: Arc<TimestampBoard>,
    began: Option<oneshot::Receiver<()>>,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Keeper {
    /// Starts the thread. `tell_master` is called with `host:port` of the master whenever the
    /// master changes.
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
        // Only a server with a file begins at once. One of several servers may be a backup for
        // ever.
        let began = matches!(prepared, Prepared::File(..)).then_some(has_begun);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(TimestampError::Thread)?;
        let last_board = Arc::clone(&board);
        let live = move || {
            // Dropped last. The drop tells the handle that the thread has ended.
            let _end = end;
            let _last_word = LastWord(last_board);
            runtime.block_on(drive(prepared, outlets, stop_asked));
            // A disk that hangs holds a thread of the runtime. Do not wait for that thread.
            runtime.shutdown_background();
        };
        let named = thread::Builder::new().name("timestamps".into());
        named.spawn(live).map_err(TimestampError::Thread)?;
        Ok(Self { board, began, stop, ended })
    }

    /// Returns what operators see.
    pub(crate) fn board(&self) -> &Arc<TimestampBoard> {
        &self.board
    }

    /// Waits until a server with a file hands out timestamps, at most [`BEGIN_LIMIT`]. The reason
    /// of a delay has been logged. Returns at once for one of several servers.
    pub(crate) async fn begun(&mut self) {
        if let Some(began) = self.began.take() {
            let _ = timeout(BEGIN_LIMIT, began).await;
        }
    }

    /// Returns when the keeper has ended by itself.
    pub(crate) async fn failed(&mut self) {
        // The thread drops the sender when it ends, and sends nothing.
        let _ = (&mut self.ended).await;
    }

    /// Stops in order: no timestamp is handed out any more, mastership is given up, and what is
    /// left of the window is given back.
    pub(crate) async fn stop(self) {
        // The thread may have ended already.
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
