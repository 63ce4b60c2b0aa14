//! The binary `chronos`: one allocator, one call.

use std::process::ExitCode;

/// Steady allocation time when many cores allocate at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    chronos::ring::hold_signals();
    chronos::ring::refuse_huge_pages();
    chronos::ring::keep_freed_memory();
    chronos::cli::run()
}
