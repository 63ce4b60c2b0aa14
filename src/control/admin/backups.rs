//! Backups that are asked for over the admin API. A backup takes as long as the disk takes that it
//! goes to, and a connection of this API lives for seconds. So an order is answered when the backup
//! has begun, and whoever ordered it asks how far it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::node::commands::{Command, Commander};
use crate::node::journal::backup::{BackedUp, BackupError, Written};
use crate::node::journal::segments::Backups;

/// How long an order waits until the backup has begun. The disk may not answer at all.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// The last backup that was asked for.
#[derive(Debug)]
struct Run {
    directory: PathBuf,
    since: Instant,
    written: Arc<Written>,
    /// `None`: it goes on.
    outcome: Option<Result<BackedUp, String>>,
}

impl Run {
    fn seconds(&self) -> u64 {
        self.since.elapsed().as_secs()
    }
}

/// Takes orders for backups, and knows what became of the last one.
#[derive(Debug, Default)]
pub(crate) struct BackupBoard(Mutex<Option<Run>>);

impl BackupBoard {
    /// Begins a backup in `directory`. Returns once it has begun, or has taken long to begin.
    pub(super) async fn begin(
        self: &Arc<Self>,
        (backups, commander): (Backups, Commander),
        directory: PathBuf,
    ) -> Result<(), BackupError> {
        let (written, former) = self.note(&directory)?;
        let (tell, told) = oneshot::channel();
        let board = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let mut tell = Some(tell);
            let begun = || {
                commander.command(&Command::BackUp);
                tell.take().map(|tell| tell.send(Ok(())))
            };
            let made = backups.make(&directory, &written, begun);
            match (made, tell) {
                // Refused: the backup before is the last one.
                (Err(error), Some(tell)) => {
                    *board.lock() = former;
                    // An error means that the order was answered before.
                    let _ = tell.send(Err(error));
                }
                (made, _) => board.end(made.map_err(|error| error.to_string())),
            }
        });
        match timeout(BEGIN_PATIENCE, told).await {
            Ok(told) => told.unwrap_or(Err(BackupError::Stopped)),
            Err(_) => Ok(()),
        }
    }

    /// Notes that a backup begins, unless another one goes on. Returns the one before it, too.
    fn note(&self, directory: &Path) -> Result<(Arc<Written>, Option<Run>), BackupError> {
        let mut run = self.lock();
        if let Some(run) = run.as_ref().filter(|run| run.outcome.is_none()) {
            let (directory, seconds) = (run.directory.display().to_string(), run.seconds());
            return Err(BackupError::Running { directory, seconds });
        }
        let written = Arc::new(Written::default());
        let (directory, outcome) = (directory.to_owned(), None);
        let since = Instant::now();
        let former = run.replace(Run { directory, since, written: Arc::clone(&written), outcome });
        Ok((written, former))
    }

    fn end(&self, outcome: Result<BackedUp, String>) {
        if let Some(run) = self.lock().as_mut() {
            run.outcome = Some(outcome);
        }
    }

    /// What is known of the last backup; `None`: nobody has asked for one since the start.
    pub(super) fn document(&self) -> Option<Value> {
        let run = self.lock();
        let run = run.as_ref()?;
        let (directory, bytes) = (&run.directory, run.written.bytes.load(Relaxed));
        Some(match &run.outcome {
            None => json!({
                "directory": directory, "state": "running", "bytes": bytes,
                "bytes-total": run.written.all.load(Relaxed), "seconds": run.seconds(),
            }),
            Some(Ok(made)) => json!({
                "directory": directory, "state": "done", "bytes": made.bytes,
                "segments": made.segments, "linked": made.is_linked,
            }),
            Some(Err(error)) => json!({
                "directory": directory, "state": "failed", "bytes": bytes, "error": error,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Run>> {
        // A change is one assignment, so a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backup_runs_at_a_time_and_the_last_one_is_known() {
        let board = BackupBoard::default();
        assert_eq!(board.document(), None);
        let (written, _) = board.note(Path::new("/a")).expect("none runs");
        let refused = board.note(Path::new("/b")).expect_err("one at a time").to_string();
        assert!(refused.contains("another backup, to /a, is being made for 0 s"), "{refused}");
        written.all.store(10, Relaxed);
        written.bytes.store(4, Relaxed);
        let running = json!({
            "directory": "/a", "state": "running", "bytes": 4, "bytes-total": 10, "seconds": 0,
        });
        assert_eq!(board.document(), Some(running));
        board.end(Err("no room".to_owned()));
        let failed = json!({"directory": "/a", "state": "failed", "bytes": 4, "error": "no room"});
        assert_eq!(board.document(), Some(failed));
        board.note(Path::new("/b")).expect("the other one has ended");
        let made = BackedUp { directory: "/b".into(), segments: 2, bytes: 9, is_linked: true };
        board.end(Ok(made));
        let done = json!({
            "directory": "/b", "state": "done", "bytes": 9, "segments": 2, "linked": true,
        });
        assert_eq!(board.document(), Some(done));
    }
}
