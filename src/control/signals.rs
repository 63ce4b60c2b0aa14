//! The signals that a running node answers to, and what else its control thread waits for.
//!
//! | signal | what it does |
//! |---|---|
//! | SIGTERM, SIGINT | stop; a second one ends the process at once |
//! | SIGHUP | read the configuration again |
//! | SIGUSR1 | compare all timers with the other members |
//! | SIGUSR2 | read the file of names again (`--dns-config-file`) |
//! | SIGQUIT, SIGABRT, SIGXCPU, those of faults | end at once: so they are meant |
//! | all others | nothing |

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::interval;
use tracing::{error, info};

use crate::node::NodeHandle;
use crate::ring::{ignore_meaningless_signals, let_signals_through};

/// How often the control thread looks at the cores. Costs 4 wake-ups a second; a core that failed
/// is noticed within 250 ms.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What the control thread hears while the node runs.
pub(super) enum NodeEvent {
    /// SIGTERM, SIGINT.
    Stop,
    /// A core has ended by itself.
    Failed,
    /// The keeper of timestamps has ended by itself, in a process that serves nothing else.
    KeeperFailed,
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    Resynchronise,
    /// SIGUSR2.
    Names,
}

/// The signals that a node answers to.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    resynchronise: Signal,
    names: Signal,
}

impl Signals {
    /// Installs the handlers, and lets through what was held since the process began. Called within
    /// a runtime.
    pub(super) fn install() -> std::io::Result<Self> {
        let installed = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            resynchronise: signal(SignalKind::user_defined1())?,
            names: signal(SignalKind::user_defined2())?,
        };
        ignore_meaningless_signals();
        let_signals_through();
        Ok(installed)
    }

    /// Returns on SIGTERM or SIGINT.
    pub(super) async fn stop_asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => info!("SIGTERM"),
            _ = self.interrupt.recv() => info!("SIGINT"),
        }
    }

    /// Returns the next signal, or the failure of a core.
    pub(super) async fn next(&mut self, node: &NodeHandle) -> NodeEvent {
        let mut look = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                // The order matters: a signal sent before the signal to stop is answered first.
                biased;
                _ = self.hang_up.recv() => return NodeEvent::Reload,
                _ = self.resynchronise.recv() => return NodeEvent::Resynchronise,
                _ = self.names.recv() => return NodeEvent::Names,
                _ = self.terminate.recv() => { info!("SIGTERM"); return NodeEvent::Stop; }
                _ = self.interrupt.recv() => { info!("SIGINT"); return NodeEvent::Stop; }
                _ = look.tick() => if node.has_failed() {
                    error!("a core has failed");
                    return NodeEvent::Failed;
                }
            }
        }
    }
}
