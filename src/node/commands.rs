//! What the control thread asks of running cores, over one bounded lock-free queue per core.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_queue::ArrayQueue;

use super::internal_api::Resolved;
use super::meters::CoreMeters;
use super::peer_secret::Secrets;
use crate::base::ids::TimerId;
use crate::cluster::view::View;
use crate::ring::Waker;
use crate::wire::peer_message::{PeerMessage, TimerCopy, decode_message};

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
    Members(Resolved),
    /// The cluster's secrets, read again; connections that stand are not asked again.
    Secrets(Arc<Secrets>),
    /// Who hands out timestamps (`host:port`), for clients that are refused; `None`: nobody knows.
    TimestampMaster(Option<Arc<str>>),
}

/// Timers for the cores, and what became of them.
#[derive(Debug)]
pub struct Copies {
    /// Encoded messages, each a copy.
    copies: Vec<(TimerId, Box<[u8]>)>,
    results: Vec<AtomicU8>,
}

/// Results of a copy.
const WAITING: u8 = 0;
const MERGED: u8 = 1;
const REFUSED: u8 = 2;

impl Copies {
    /// Nothing has been done yet.
    pub fn of<'a>(copies: impl Iterator<Item = TimerCopy<'a>>) -> Self {
        let copies: Vec<_> = copies
            .map(|copy| {
                let mut bytes = Vec::new();
                PeerMessage::Copy(copy).encode(&mut bytes);
                (copy.standing.id, bytes.into_boxed_slice())
            })
            .collect();
        let results = copies.iter().map(|_| AtomicU8::new(WAITING)).collect();
        Self { copies, results }
    }

    /// Merges those that belong to the calling core, by `merge`, which tells whether it is done.
    pub(super) fn merge(
        &self,
        is_own: impl Fn(TimerId) -> bool,
        mut merge: impl FnMut(TimerCopy<'_>) -> bool,
    ) {
        for ((id, bytes), result) in self.copies.iter().zip(&self.results) {
            if !is_own(*id) {
                continue;
            }
            let is_merged = match decode_message(&mut &bytes[..]) {
                Ok(PeerMessage::Copy(copy)) => merge(copy),
                _ => false,
            };
            result.store(if is_merged { MERGED } else { REFUSED }, Release);
        }
    }

    /// Whether all cores have taken theirs.
    pub fn are_taken(&self) -> bool {
        self.results.iter().all(|result| result.load(Acquire) != WAITING)
    }

    /// Whether the copy at a place, counted from 0, is merged.
    pub fn is_merged(&self, place: usize) -> bool {
        self.results[place].load(Acquire) == MERGED
    }
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
    pub(super) fn of(commands: &[Commands], wakers: &[Waker]) -> Self {
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
    use crate::base::ranked::{Replicas, Sites};
    use crate::wire::peer_message::Standing;

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

    #[test]
    fn copies_are_taken_when_every_core_has_taken_its_own() {
        let copy = |id| TimerCopy {
            standing: Standing {
                id: TimerId(id),
                version: 1,
                sequence: 0,
                actives: 0,
                list_digest: 0,
            },
            is_write: false,
            replicas: Replicas::new(),
            factor: 1,
            sites: Sites::new(),
            start_ms: 1,
            interval_ms: 1,
            repeat_for_ms: 1,
            body: None,
        };
        let copies = Copies::of([1, 2, 3].map(copy).into_iter());
        copies.merge(|id| id.0 != 2, |copy| copy.standing.id.0 != 3);
        assert!(!copies.are_taken());
        copies.merge(|id| id.0 == 2, |_| true);
        assert!(copies.are_taken());
        assert_eq!([0, 1, 2].map(|place| copies.is_merged(place)), [true, true, false]);
    }
}
