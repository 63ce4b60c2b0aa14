//! What tools need of their machine: a runtime and the wall clock.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use super::exit::EXIT_FAILURE;
use super::terminal::fail;

/// Runs a command on a new runtime of this thread and returns its exit code.
pub(super) fn on_runtime(work: impl Future<Output = u8>) -> u8 {
    match block_on(work) {
        Ok(code) => code,
        Err(error) => fail(&format!("the runtime does not start: {error}"), EXIT_FAILURE),
    }
}

/// Runs `work` on a new runtime of this thread. The runtime ends with `work`. Errors are the
/// kernel's.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // The look-up of an address may hold a thread of the runtime. Do not wait for that thread.
    runtime.shutdown_background();
    Ok(result)
}

/// Returns the milliseconds since 1970 by the wall clock of this machine.
pub(super) fn wall_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}
