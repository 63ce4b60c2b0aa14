//! The network between nodes, controlled by a story: bytes are held back, delayed or changed, and
//! connections are broken.
//!
//! Members know each other by addresses at which proxies listen. The first request head on a
//! connection names the node that dialled (the Upgrade between nodes).

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use kit::http::find;

use super::harness::{Cluster, PLACES, Setup};

/// Most pieces that one direction of a connection holds back. After that its sender meets a full
/// window.
const PIECES_HELD: usize = 4_096;

/// The first byte of a connection over TLS: the type of its first record.
const TLS: u8 = 22;

/// What happens to bytes on their way from one node to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// The bytes arrive.
    #[default]
    Open,
    /// The bytes wait until the way opens, as when packets are lost and sent again.
    Cut,
    /// The bytes arrive this much later.
    Slow(Duration),
    /// One bit in this many bytes is turned, counted over all connections of the way.
    Corrupt(u64),
}

#[derive(Default)]
struct State {
    ways: HashMap<(usize, usize), Way>,
    /// How many bytes each way has carried while it corrupted them.
    carried: HashMap<(usize, usize), u64>,
    live: Vec<Connection>,
}

/// A connection between two nodes.
struct Connection {
    /// The ends that the proxy holds.
    ends: [TcpStream; 2],
    /// How many pieces the node that was dialled has sent.
    answers: Arc<AtomicU64>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// How many bits were turned so far.
    corrupted: AtomicU64,
    /// All that was carried, if the story looks at it.
    carried: Option<Mutex<Vec<u8>>>,
}

/// The proxies of a cluster.
pub struct Network {
    shared: Arc<Shared>,
}

impl Network {
    /// Makes a cluster whose members reach each other through proxies only. No node runs yet.
    pub fn around(setup: Setup) -> (Cluster, Network) {
        Network::of(setup, Shared::default())
    }

    /// Does the same with proxies that remember all that they carry.
    pub fn overhearing(setup: Setup) -> (Cluster, Network) {
        Network::of(setup, Shared { carried: Some(Mutex::default()), ..Shared::default() })
    }

    fn of(setup: Setup, shared: Shared) -> (Cluster, Network) {
        let cluster = Cluster::with(Setup { behind_proxies: true, ..setup });
        let shared = Arc::new(shared);
        for place in 0..PLACES {
            let listener = kit::ports::listen(cluster.names[place].parse().expect("an address"));
            let route =
                Route { names: cluster.names.clone(), to: place, bind: cluster.address(place) };
            let shared = shared.clone();
            // The thread ends with the process. A listener without traffic costs nothing.
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let (shared, route) = (shared.clone(), route.clone());
                    thread::spawn(move || route.carry(stream, &shared));
                }
            });
        }
        (cluster, Network { shared })
    }

    /// Sets what happens to bytes from one node to another.
    pub fn set(&self, from: usize, to: usize, way: Way) {
        self.shared.lock().ways.insert((from, to), way);
        self.shared.changed.notify_all();
    }

    /// Sets what happens to bytes in both directions between two nodes.
    pub fn set_both(&self, one: usize, other: usize, way: Way) {
        self.set(one, other, way);
        self.set(other, one, way);
    }

    /// Sets what happens to bytes between a node and all others.
    pub fn set_around(&self, place: usize, way: Way) {
        (0..PLACES).filter(|other| *other != place).for_each(|other| {
            self.set_both(place, other, way);
        });
    }

    /// Breaks every connection between nodes that has carried results. Returns how many those were.
    /// On a slow machine the others would be broken before they are of any use.
    pub fn break_used(&self) -> usize {
        // The first piece is the answer to the request that dialled.
        let is_used = |one: &mut Connection| one.answers.load(SeqCst) > 1;
        let used: Vec<_> = self.shared.lock().live.extract_if(.., is_used).collect();
        for end in used.iter().flat_map(|one| &one.ends) {
            // The connection may have ended by itself.
            let _ = end.shutdown(Shutdown::Both);
        }
        used.len()
    }

    /// Returns whether this text was carried in the clear.
    pub fn has_carried(&self, text: &str) -> bool {
        let carried = self.shared.carried.as_ref().expect("it overhears");
        find(&carried.lock().expect("nobody panics with it"), text.as_bytes()).is_some()
    }

    /// Returns how many bits were turned so far.
    pub fn corrupted(&self) -> u64 {
        self.shared.corrupted.load(SeqCst)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Remembers what is carried, if the story looks at it. Bytes of several connections and both
    /// directions stand in turn, so a text may be cut by others: stories plant many.
    fn note(&self, bytes: &[u8]) {
        if let Some(carried) = &self.carried {
            carried.lock().expect("nobody panics with it").extend_from_slice(bytes);
        }
    }

    /// Waits while the way is cut. Returns what happens to bytes after that.
    fn open_way(&self, from: usize, to: usize) -> Way {
        let mut state = self.lock();
        loop {
            let way = state.ways.get(&(from, to)).copied().unwrap_or_default();
            if way != Way::Cut {
                return way;
            }
            state = self.changed.wait(state).expect("nobody panics with it");
        }
    }
}

/// Where a proxy's connections go.
#[derive(Clone)]
struct Route {
    names: Vec<String>,
    to: usize,
    bind: SocketAddr,
}

impl Route {
    fn carry(&self, mut dialled: TcpStream, shared: &Arc<Shared>) {
        let Some(head) = read_head(&mut dialled) else { return };
        let text = String::from_utf8_lossy(&head).into_owned();
        let address = dialled.peer_addr().expect("connected").ip().to_string();
        // Over TLS no name is seen, but nodes call from their addresses.
        let is_named = |place: &usize| match head.first() {
            Some(&TLS) => self.names[*place].starts_with(&format!("{address}:")),
            _ => *place != self.to && text.contains(&self.names[*place]),
        };
        let from = (0..PLACES).find(is_named);
        let from = from.unwrap_or_else(|| panic!("who dials {}?\n{text}", self.names[self.to]));
        shared.note(&head);
        // A SYN does not arrive over a way that is cut.
        shared.open_way(from, self.to);
        let Ok(mut target) = TcpStream::connect(self.bind) else { return };
        let _ = dialled.set_nodelay(true);
        let _ = target.set_nodelay(true);
        if target.write_all(&head).is_err() {
            return;
        }
        let twice = |stream: &TcpStream| stream.try_clone().expect("a second handle");
        let (back_from, back_to) = (twice(&target), twice(&dialled));
        let answers = Arc::new(AtomicU64::new(0));
        let ends = [twice(&dialled), twice(&target)];
        shared.lock().live.push(Connection { ends, answers: answers.clone() });
        pump(shared, (from, self.to), (dialled, target), Arc::default());
        pump(shared, (self.to, from), (back_from, back_to), answers);
    }
}

/// Carries bytes one way, on two threads. The delay of a piece counts from when that piece was
/// read, and not from when the piece before it had left. Counts the pieces that are delivered.
fn pump(
    shared: &Arc<Shared>,
    way: (usize, usize),
    (mut from, to): (TcpStream, TcpStream),
    delivered: Arc<AtomicU64>,
) {
    let (held, pieces) = sync_channel(PIECES_HELD);
    let shared = shared.clone();
    thread::spawn(move || deliver(&shared, way, &pieces, to, &delivered));
    thread::spawn(move || collect(&mut from, &held));
}

fn collect(from: &mut TcpStream, held: &SyncSender<(Instant, Vec<u8>)>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if held.send((Instant::now(), bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(
    shared: &Shared,
    (from, to): (usize, usize),
    pieces: &Receiver<(Instant, Vec<u8>)>,
    mut stream: TcpStream,
    delivered: &AtomicU64,
) {
    while let Ok((at, mut piece)) = pieces.recv() {
        shared.note(&piece);
        match shared.open_way(from, to) {
            Way::Slow(delay) => {
                thread::sleep((at + delay).saturating_duration_since(Instant::now()));
            }
            Way::Corrupt(one_in) => {
                let mut state = shared.lock();
                let carried = state.carried.entry((from, to)).or_default();
                for byte in &mut piece {
                    *carried += 1;
                    if carried.is_multiple_of(one_in) {
                        *byte ^= 0x10;
                        shared.corrupted.fetch_add(1, SeqCst);
                    }
                }
            }
            Way::Open | Way::Cut => {}
        }
        if stream.write_all(&piece).is_err() {
            return;
        }
        delivered.fetch_add(1, SeqCst);
    }
    shared.open_way(from, to);
    // An error means that the other end is gone.
    let _ = stream.shutdown(Shutdown::Write);
}

/// Reads a head up to the empty line. Returns it with the bytes that came along.
fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut head = Vec::new();
    let mut bytes = [0; 4 << 10];
    while head.first() != Some(&TLS) && find(&head, b"\r\n\r\n").is_none() {
        let count = stream.read(&mut bytes).ok().filter(|&count| count > 0)?;
        head.extend_from_slice(&bytes[..count]);
    }
    stream.set_read_timeout(None).ok()?;
    Some(head)
}
