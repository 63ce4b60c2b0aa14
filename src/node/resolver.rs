//! Host names of callbacks and peers, resolved by the system resolver (hosts file, DNS, whatever
//! the machine is set up for) on threads of its own: a name server that hangs holds up nobody else.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_queue::SegQueue;

use crate::base::ids::{HostId, PeerIndex};
use crate::ring::Waker;

/// Threads that resolve: as many names may hang at once before others wait.
const THREADS: usize = 4;
/// Names waiting for a thread; beyond it a question fails at once and is asked again with the next
/// callback.
const QUESTIONS_MAX: usize = 1_024;
/// Addresses kept of one name.
const ADDRESSES_MAX: usize = 16;

/// For whom a core asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A callback host.
    Host(HostId),
    /// A peer.
    Peer(PeerIndex),
}

/// What a core wants to know.
struct Question {
    core: usize,
    asker: Asker,
    name: String,
    port: u16,
}

/// What the system said: addresses, none if the name could not be resolved.
#[derive(Debug)]
pub struct Resolved {
    /// For whom it was asked.
    pub asker: Asker,
    /// The name asked for: a host's number may have been given to another since.
    pub name: String,
    /// Where it is.
    pub addresses: Vec<SocketAddr>,
}

/// Answers for one core. Bounded by the questions that the core has open: one per host and peer.
struct Inbox {
    answers: SegQueue<Resolved>,
    waker: Waker,
}

/// The resolver of a node; each core has one handle.
#[derive(Clone)]
pub struct Resolver {
    core: usize,
    questions: SyncSender<Question>,
    inboxes: Arc<[Inbox]>,
}

impl Resolver {
    /// Starts the threads and returns one handle per core, in the order of their wakers. The
    /// threads end with the last handle.
    pub fn start(wakers: Vec<Waker>) -> std::io::Result<Vec<Resolver>> {
        let cores = wakers.len();
        let inboxes: Arc<[_]> =
            wakers.into_iter().map(|waker| Inbox { answers: SegQueue::new(), waker }).collect();
        let (questions, taken) = sync_channel::<Question>(QUESTIONS_MAX);
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..THREADS {
            let (taken, inboxes) = (taken.clone(), inboxes.clone());
            let name = "chronos-resolve".to_owned();
            thread::Builder::new().name(name).spawn(move || answer_all(&taken, &inboxes))?;
        }
        let handle =
            |core| Resolver { core, questions: questions.clone(), inboxes: inboxes.clone() };
        Ok((0..cores).map(handle).collect())
    }

    /// Asks; the answer comes later from [`Resolver::next`]. False when too many questions wait.
    pub fn ask(&self, asker: Asker, name: &str, port: u16) -> bool {
        let question = Question { core: self.core, asker, name: name.to_owned(), port };
        match self.questions.try_send(question) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// The next answer for this core.
    pub fn next(&self) -> Option<Resolved> {
        self.inboxes[self.core].answers.pop()
    }
}

fn answer_all(taken: &Mutex<Receiver<Question>>, inboxes: &[Inbox]) {
    loop {
        // Only the wait for the next question holds the lock, never a resolution.
        let question = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Question { core, asker, name, port }) = question else { return };
        let found = (name.as_str(), port).to_socket_addrs();
        let addresses = found.map_or_else(|_| Vec::new(), |all| all.take(ADDRESSES_MAX).collect());
        inboxes[core].answers.push(Resolved { asker, name, addresses });
        inboxes[core].waker.wake();
    }
}
