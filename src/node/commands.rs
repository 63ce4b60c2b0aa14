//! Orders of the control thread to running cores, over one bounded lock-free queue per core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crossbeam_queue::ArrayQueue;

use crate::base::ids::PeerIndex;
use crate::cluster::view::View;
use crate::core::copies::Copies;
use crate::core::gate::NamedAddresses;
use crate::core::peers::secret::Secrets;
use crate::node::callbacks::policy::Rules;
use crate::node::callbacks::signing::Signer;
use crate::node::clients::tokens::Tokens;
use crate::node::destinations::{DestinationRules, Survey};
use crate::node::list_orders::ListOrder;
use crate::node::meters::CoreMeters;
use crate::node::resolver::statics::StaticNames;
use crate::node::settings::PeerTls;
use crate::ring::Waker;
use crate::tls::acceptor::Acceptor;
use crate::tls::connector::Connector;

/// Most commands that wait for a core. A core takes all of them in every turn, so more than a few
/// wait only for a core that hangs.
const WAITING_MAX: usize = 64;

/// One order to every core.
#[derive(Clone, Debug)]
pub enum Command {
    /// Take a new view of the cluster (SIGHUP).
    View(Arc<View>),
    /// Close the present segment of the journal, so that the files up to it can be copied.
    BackUp,
    /// Put a page of a list together, or numbers of timers. One core gets it.
    List(Arc<ListOrder>),
    /// Compare all timers with all nodes that are to hold them (SIGUSR1).
    Resynchronise,
    /// Merge timers that were read from an original node. Each core takes the timers that it owns.
    Copies(Arc<Copies>),
    /// An original node was read to the end, and the cores have taken all that it lists.
    Read(PeerIndex),
    /// Take the addresses of members that are configured by name. These addresses may use the
    /// internal API.
    Members(NamedAddresses),
    /// Take the addresses of members' admin APIs that are configured by name. No callback goes
    /// there.
    Admins(NamedAddresses),
    /// Take the cluster's secrets, read again. Open connections are not asked again.
    Secrets(Arc<Secrets>),
    /// Take the tokens of clients, read again.
    Tokens(Arc<Tokens>),
    /// Take the secrets that callbacks are signed with, read again.
    Signer(Arc<Signer>),
    /// Take the rules of where callbacks may go, read again.
    Rules(Arc<Rules>),
    /// Take which names lead elsewhere, read again, and look all names up anew.
    StaticNames(Arc<StaticNames>),
    /// Take what connections to `https` servers are dialled with; `None`: this node believes no
    /// authority. Those that stand are closed, at once or when their request is over.
    Connector(Option<Arc<Connector>>),
    /// Take what further connections over TLS are accepted with. Open ones stay as they are.
    Acceptor(Arc<Acceptor>),
    /// Take how nodes talk over TLS with each other. Where TLS is required, plain connections with
    /// peers end.
    PeerTls(Option<PeerTls>),
    /// Take the rules of destinations, and tell other nodes of orders.
    Destinations(Arc<DestinationRules>),
    /// Tell how callback hosts are.
    Survey(Arc<Survey>),
    /// Take the address of the server that hands out timestamps (`host:port`), for clients that are
    /// refused. `None`: no such server is known.
    TimestampMaster(Option<Arc<str>>),
}

/// The queue of one core, shared with the threads that give commands.
#[derive(Clone, Debug)]
pub struct Commands {
    queue: Arc<ArrayQueue<Command>>,
    given: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    /// How often a thread has asked for the present figures, and how many of these askings the core
    /// has answered by publishing.
    asked: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
}

impl Commands {
    /// An empty queue.
    pub fn empty() -> Self {
        Self {
            queue: Arc::new(ArrayQueue::new(WAITING_MAX)),
            given: Arc::default(),
            taken: Arc::default(),
            asked: Arc::default(),
            told: Arc::default(),
        }
    }

    /// Adds a command. The caller must wake the core. When the queue is full the oldest command
    /// gives way: a later view supersedes a view, and the sender repeats a resynchronisation, and
    /// copies whose results do not come.
    pub fn push(&self, command: Command) {
        self.given.fetch_add(1, Relaxed);
        if self.queue.force_push(command).is_some() {
            self.taken.fetch_add(1, Relaxed);
        }
    }

    /// How many commands were given since the start.
    pub fn given(&self) -> u64 {
        self.given.load(Relaxed)
    }

    /// How many commands were taken by the core, or gave way to later ones.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// How often a thread has asked for the present figures. Whoever publishes them after this call
    /// tells so by [`Commands::tell`].
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// Whether somebody waits for the present figures.
    pub fn is_asked(&self) -> bool {
        self.asked() != self.told.load(Relaxed)
    }

    /// Tells that the figures published now are those that the first `asked` askings wait for.
    pub fn tell(&self, asked: u64) {
        self.told.store(asked, Release);
    }

    /// Returns the next command. Cost when there is none: two loads.
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
#[derive(Clone, Debug)]
pub struct Commander {
    cores: Arc<[(Commands, Waker)]>,
    /// Chooses the core of the next order that one core gets.
    turn: Arc<AtomicU64>,
}

impl Commander {
    /// A commander of these cores, in shard order.
    pub(crate) fn of(commands: &[Commands], wakers: &[Waker]) -> Self {
        let cores = commands.iter().cloned().zip(wakers.iter().cloned()).collect();
        Self { cores, turn: Arc::default() }
    }

    /// Gives a command to every core. Each core obeys in its next turn.
    pub fn command(&self, command: &Command) {
        for (commands, waker) in self.cores.iter() {
            commands.push(command.clone());
            waker.wake();
        }
    }

    /// Gives an order for a page of a list to one core, another one each time. Returns whether the
    /// core has room for it: commands must never give way to such orders.
    pub fn list(&self, order: Arc<ListOrder>) -> bool {
        let turn = self.turn.fetch_add(1, Relaxed) as usize;
        let chosen = self.cores.get(turn % self.cores.len().max(1));
        let Some((commands, waker)) = chosen.filter(|(it, _)| it.queue.len() < WAITING_MAX / 2)
        else {
            return false;
        };
        commands.push(Command::List(order));
        waker.wake();
        true
    }

    /// Asks every core to publish its figures. Returns what [`Commander::have_told`] takes.
    pub fn ask(&self) -> Vec<u64> {
        let ask = |(commands, waker): &(Commands, Waker)| {
            let asked = commands.asked.fetch_add(1, Relaxed) + 1;
            waker.wake();
            asked
        };
        self.cores.iter().map(ask).collect()
    }

    /// Whether every core has published figures of a time after this asking.
    pub fn have_told(&self, asked: &[u64]) -> bool {
        let mut cores = self.cores.iter().zip(asked);
        cores.all(|((commands, _), &asked)| commands.told.load(Acquire) >= asked)
    }

    /// Returns whether every core has published figures (`commands_taken`) that follow from all
    /// commands given so far.
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
