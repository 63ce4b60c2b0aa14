//! What the control thread asks of running cores, over one bounded lock-free queue per core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_queue::ArrayQueue;

use crate::cluster::view::View;
use crate::core::copies::Copies;
use crate::core::gate::NamedAddresses;
use crate::core::peers::secret::Secrets;
use crate::node::meters::CoreMeters;
use crate::ring::Waker;

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
    /// Merge timers that were read from an original node; each core takes those that it owns.
    Copies(Arc<Copies>),
    /// The addresses of members that are configured by name: they may use the internal API.
    Members(NamedAddresses),
    /// The cluster's secrets, read again; connections that stand are not asked again.
    Secrets(Arc<Secrets>),
    /// Who hands out timestamps (`host:port`), for clients that are refused; `None`: nobody knows.
    TimestampMaster(Option<Arc<str>>),
}

/// The queue of one core, shared with those who command.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: Arc<ArrayQueue<Command>>,
    given: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
}

impl Commands {
    /// An empty queue.
    pub fn empty() -> Self {
        Self {
            queue: Arc::new(ArrayQueue::new(WAITING_MAX)),
            given: Arc::default(),
            taken: Arc::default(),
        }
    }

    /// Adds a command; the caller wakes the core. In a full queue the oldest gives way: a later
    /// configuration supersedes it, and a resynchronisation is asked for again, as are copies whose
    /// results do not come.
    pub fn push(&self, command: Command) {
        self.given.fetch_add(1, Relaxed);
        if self.queue.force_push(command).is_some() {
            self.taken.fetch_add(1, Relaxed);
        }
    }

    /// Commands given since the start.
    pub fn given(&self) -> u64 {
        self.given.load(Relaxed)
    }

    /// Commands that the core has taken, or that gave way to later ones.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// The next command. Cost of none: two loads.
    pub fn next(&self) -> Option<Command> {
        if self.queue.is_empty() {
            return None;
        }
        let command = self.queue.pop();
        self.taken.fetch_add(u64::from(command.is_some()), Relaxed);
        command
    }
}

/// Gives commands to all cores of a node, from any thread.
#[derive(Clone)]
pub struct Commander {
    cores: Arc<[(Commands, Waker)]>,
}

impl Commander {
    /// The cores and what wakes them, in shard order.
    pub(crate) fn of(commands: &[Commands], wakers: &[Waker]) -> Self {
        Self { cores: commands.iter().cloned().zip(wakers.iter().cloned()).collect() }
    }

    /// Asks something of every core; each does it in its next turn.
    pub fn command(&self, command: &Command) {
        for (commands, waker) in self.cores.iter() {
            commands.push(command.clone());
            waker.wake();
        }
    }

    /// Whether every core has published figures (`commands_taken`) that follow from all commands
    /// given so far.
    pub fn is_obeyed(&self, meters: &[CoreMeters]) -> bool {
        let mut cores = self.cores.iter().zip(meters);
        cores.all(|((commands, _), meters)| meters.commands_taken.get() >= commands.given())
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
        assert_eq!((commands.given(), commands.taken()), (128, 128));
    }
}
