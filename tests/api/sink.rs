//! A callback server that records callbacks and answers as it is told.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use kit::callbacks::{Connections, serve};

pub use kit::callbacks::{Callback, Reaction};

use super::harness::{Node, PATIENCE, document};

/// Path of the callbacks that only show that time has passed.
const MARKER: &str = "/marker";

#[derive(Default)]
struct Seen {
    callbacks: Mutex<Vec<Callback>>,
    changed: Condvar,
}

/// A callback server on a free port, with a thread per connection.
pub struct Sink {
    /// The address on which the server listens.
    pub address: SocketAddr,
    seen: Arc<Seen>,
    connections: Arc<Connections>,
}

impl Sink {
    /// A server on IPv4 that answers 200.
    pub fn ok() -> Sink {
        Sink::start(|_, _| Reaction::OK)
    }

    /// A server on IPv4. `react` gets the callback and the number of callbacks before it.
    pub fn start(react: impl Fn(&Callback, usize) -> Reaction + Send + Sync + 'static) -> Sink {
        Sink::on("127.0.0.1:0", react)
    }

    /// A server at this address.
    pub fn on(
        address: &str,
        react: impl Fn(&Callback, usize) -> Reaction + Send + Sync + 'static,
    ) -> Sink {
        let seen = Arc::new(Seen::default());
        let all = seen.clone();
        let at = address.parse().expect("an address");
        let (address, connections) = serve(at, move |callback| {
            let mut callbacks = all.callbacks.lock().expect("nobody panics with it");
            let before = callbacks.len();
            callbacks.push(callback.clone());
            all.changed.notify_all();
            drop(callbacks);
            react(callback, before)
        });
        Sink { address, seen, connections }
    }

    /// Returns the URI of a path at this server.
    pub fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the callbacks that have come so far.
    pub fn callbacks(&self) -> Vec<Callback> {
        self.lock().clone()
    }

    /// Returns how many callbacks have come so far.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Waits until `count` callbacks have come. Returns all that came.
    pub fn wait_for(&self, count: usize) -> Vec<Callback> {
        self.wait_until(&format!("{count} callbacks"), |seen| seen.len() >= count)
    }

    /// Waits until `is_enough`. Returns all callbacks that came.
    pub fn wait_until(&self, what: &str, is_enough: impl Fn(&[Callback]) -> bool) -> Vec<Callback> {
        let deadline = Instant::now() + PATIENCE;
        let mut callbacks = self.lock();
        while !is_enough(&callbacks) {
            let left = deadline.saturating_duration_since(Instant::now());
            let got = callbacks.len();
            assert!(!left.is_zero(), "waited in vain for {what}, got {got} callbacks");
            callbacks = self.seen.changed.wait_timeout(callbacks, left).expect("no panic").0;
        }
        callbacks.clone()
    }

    /// Asserts that no callback comes beyond `count` until a timer created by this call has popped
    /// after `seconds`.
    pub fn assert_no_more(&self, node: &Node, count: usize, seconds: &str) {
        node.create(&document(seconds, None, &self.uri(MARKER), ""));
        let is_marked = |seen: &[Callback]| seen.iter().any(|one| one.path == MARKER);
        let seen = self.wait_until("the marker", is_marked);
        let others: Vec<_> = seen.iter().filter(|one| one.path != MARKER).collect();
        assert_eq!(others.len(), count, "{others:?}");
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.made.load(SeqCst)
    }

    /// The most connections that were open at one time.
    pub fn open_max(&self) -> usize {
        self.connections.open_max.load(SeqCst)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.connections.open.load(SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Callback>> {
        self.seen.callbacks.lock().expect("nobody panics with it")
    }
}
