//! What tools need of the machine that they run on: a runtime of their own and the wall clock.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use super::exit::EXIT_FAILURE;
use super::terminal::fail;

/// Runs a command on a runtime of this thread; returns its exit code.
pub(super) fn on_runtime(work: impl Future<Output = u8>) -> u8 {
    match block_on(work) {
        Ok(code) => code,
        Err(error) => fail(&format!("the runtime does not start: {error}"), EXIT_FAILURE),
    }
}

/// Runs `work` on a runtime of this thread, which ends with it.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A search for an address may hold a thread of the runtime: nobody waits for it.
    runtime.shutdown_background();
    Ok(result)
}

/// Milliseconds since 1970 by the wall clock of this machine.
pub(super) fn wall_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}
