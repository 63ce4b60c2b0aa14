//! What tools need of the machine that they run on: a runtime of their own and the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use super::exit::EXIT_FAILURE;
use super::terminal::fail;

/// Runs `work` on a runtime of this thread.
pub(super) fn on_runtime(work: impl Future<Output = u8>) -> u8 {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => fail(&format!("the runtime does not start: {error}"), EXIT_FAILURE),
    }
}

/// Milliseconds since 1970 by the wall clock of this machine.
pub(super) fn wall_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}
