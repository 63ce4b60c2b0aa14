//! What the control thread asks of running cores, over one bounded lock-free queue per core.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::cluster::view::View;

/// Commands that wait for a core. A core takes all of them in every turn, so that more than a few
/// wait only for one that hangs.
const WAITING_MAX: usize = 64;

/// One request to every core.
#[derive(Clone, Debug)]
pub enum Command {
    /// A new configuration of the cluster (SIGHUP).
    View(Arc<View>),
    /// Compare all timers with everybody who is to hold them (SIGUSR1).
    Resynchronise,
}

/// The queue of one core, shared with those who command.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: Arc<ArrayQueue<Command>>,
}

impl Commands {
    /// An empty queue.
    pub fn empty() -> Self {
        Self { queue: Arc::new(ArrayQueue::new(WAITING_MAX)) }
    }

    /// Adds a command; the caller wakes the core. In a full queue the oldest gives way: a later
    /// configuration supersedes it, and a resynchronisation is asked for again.
    pub fn push(&self, command: Command) {
        self.queue.force_push(command);
    }

    /// The next command. Cost of none: two loads.
    pub fn next(&self) -> Option<Command> {
        if self.queue.is_empty() { None } else { self.queue.pop() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_hangs_finds_the_latest_commands() {
        let commands = Commands::empty();
        assert!(commands.next().is_none());
        for _ in 0..2 * WAITING_MAX {
            commands.clone().push(Command::Resynchronise);
        }
        let waiting = std::iter::from_fn(|| commands.next()).count();
        assert_eq!(waiting, WAITING_MAX);
    }
}
