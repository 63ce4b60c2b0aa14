//! The exit codes of every command.

/// The command did what it was asked to do.
pub(crate) const EXIT_OK: u8 = 0;
/// The command was understood and failed: a port in use, a kernel without io_uring, a core that
/// failed, missing pops.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// The command line or the configuration is wrong; nothing was started. The argument parser uses
/// the same code.
pub(crate) const EXIT_USAGE: u8 = 2;
