//! Drives the state machine of a server that stands alone and keeps its bound in a file. The driver
//! decides nothing: it carries out what the machine asks for, and tells the machine the result.

// May panic: assertions 2.
// Why it does not: ordered 2.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::error;

use super::bound_file::TimestampFile;
use super::once_a_minute::OnceAMinute;
use super::outlets::{Outlets, pause_until};
use crate::ring::now;
use crate::timestamp::Timestamp;
use crate::timestamp::coordinator::Role;
use crate::timestamp::standalone::{FileEffect, FileEvent, Standalone, StandaloneSettings};

/// Runs until the machine has stopped. Dropping the sender of `stop` stops it, too.
pub(super) async fn drive(
    file: TimestampFile,
    bound: Timestamp,
    settings: StandaloneSettings,
    outlets: Outlets,
    stop: oneshot::Receiver<()>,
) {
    outlets.master_is(None);
    FileDriver::new(file, settings, outlets).drive(bound, stop).await;
}

/// The state machine, its file and its outlets.
struct FileDriver {
    file: Arc<TimestampFile>,
    machine: Standalone,
    outlets: Outlets,
    effects: Vec<FileEffect>,
    storing: Option<JoinHandle<std::io::Result<()>>>,
    store_told: OnceAMinute,
    has_stopped: bool,
}

impl FileDriver {
    fn new(file: TimestampFile, settings: StandaloneSettings, outlets: Outlets) -> Self {
        Self {
            file: Arc::new(file),
            machine: Standalone::new(settings),
            outlets,
            effects: Vec::new(),
            storing: None,
            store_told: OnceAMinute::default(),
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
                // A keeper whose handle was dropped stops, too.
                _ = &mut stop, if !is_stopping => {
                    is_stopping = true;
                    FileEvent::Stop
                }
                stored = stored(&mut self.storing) => self.judge(stored),
                () = pause => FileEvent::Tick { last: self.outlets.oracle().last() },
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
                self.outlets.board().counters.store_errors.fetch_add(1, Relaxed);
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
                self.outlets.begin(floor, &terms);
                self.outlets.set_role(Role::Master);
            }
            FileEffect::Publish(terms) => self.outlets.oracle().publish(&terms),
            FileEffect::Revoke => {
                self.outlets.set_role(Role::Suspended);
                return Some(FileEvent::Revoked { last: self.outlets.oracle().revoke() });
            }
            FileEffect::Clock(seen) => self.outlets.clock_seen(seen),
            FileEffect::Stopped => self.has_stopped = true,
        }
        None
    }
}

/// Returns when the store under way has ended. Never returns if there is none.
async fn stored(storing: &mut Option<JoinHandle<std::io::Result<()>>>) -> std::io::Result<()> {
    match storing {
        Some(storing) => storing.await.map_err(std::io::Error::other)?,
        None => std::future::pending().await,
    }
}
