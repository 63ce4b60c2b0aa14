//! Writes orders to their file on a thread of its own. A disk may not answer for as long as it
//! likes, and the control thread serves `/healthz` and signals meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tracing::warn;

use super::file::OrdersFile;

/// Longest wait for the disk.
const WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// What is to be written, and what has been.
#[derive(Debug)]
struct Desk {
    /// The newest text, until the thread takes it.
    text: Option<String>,
    given: u64,
    /// The last text that the disk has answered for, and how.
    done: u64,
    outcome: Result<(), String>,
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    desk: Mutex<Desk>,
    wakes: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next text and its number; `None`: there will be none.
    fn next(&self) -> Option<(String, u64)> {
        let mut desk = self.desk();
        loop {
            if let Some(text) = desk.text.take() {
                return Some((text, desk.given));
            }
            if desk.is_over {
                return None;
            }
            desk = self.wakes.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, file: &OrdersFile) {
        while let Some((text, number)) = self.next() {
            let outcome = file.write(&text).map_err(|error| error.to_string());
            if let Err(error) = &outcome {
                warn!("{}", lost(file, &format!("cannot be kept in {{}}: {error}")));
            }
            let mut desk = self.desk();
            (desk.done, desk.outcome) = (number, outcome);
        }
    }
}

/// A sentence about orders that are not on the disk. `{}` in `why` is the path.
fn lost(file: &OrdersFile, why: &str) -> String {
    let why = why.replace("{}", &file.path().display().to_string());
    format!("the order holds, but {why}; after a restart it is known only if another node has it")
}

/// Keeps orders in a file.
#[derive(Debug)]
pub(super) struct Keeper {
    file: OrdersFile,
    shared: Arc<Shared>,
}

impl Keeper {
    pub(super) fn new(file: OrdersFile) -> Self {
        let desk = Desk { text: None, given: 0, done: 0, outcome: Ok(()), is_over: false };
        let shared = Arc::new(Shared { desk: Mutex::new(desk), wakes: Condvar::new() });
        let (own, of) = (Arc::clone(&shared), file.clone());
        let thread = thread::Builder::new().name("orders".into()).spawn(move || own.run(&of));
        if let Err(error) = thread {
            warn!("{}", lost(&file, &format!("cannot be kept in {{}}: {error}")));
        }
        Self { file, shared }
    }

    pub(super) fn file(&self) -> &OrdersFile {
        &self.file
    }

    /// Hands a text over to be written. What waits for the disk is replaced by it.
    pub(super) fn give(&self, text: String) -> Kept {
        let mut desk = self.shared.desk();
        desk.text = Some(text);
        desk.given += 1;
        self.shared.wakes.notify_one();
        let number = desk.given;
        Kept { file: self.file.clone(), shared: Arc::clone(&self.shared), number }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.desk().is_over = true;
        self.shared.wakes.notify_one();
    }
}

/// A text that was handed over.
pub(super) struct Kept {
    file: OrdersFile,
    shared: Arc<Shared>,
    number: u64,
}

impl Kept {
    /// Waits until the disk has it, for 2 s at most.
    ///
    /// # Errors
    ///
    /// A sentence, if it cannot be kept, or if the disk does not answer.
    pub(super) async fn wait(self) -> Result<(), String> {
        let deadline = Instant::now() + WAIT;
        loop {
            {
                let desk = self.shared.desk();
                if desk.done >= self.number {
                    let why = |error: &String| format!("cannot be kept in {{}}: {error}");
                    return desk.outcome.as_ref().copied().map_err(|it| lost(&self.file, &why(it)));
                }
            }
            if Instant::now() >= deadline {
                let why = "the disk has not answered for 2 s ({})";
                return Err(lost(&self.file, why));
            }
            sleep(PAUSE).await;
        }
    }
}
