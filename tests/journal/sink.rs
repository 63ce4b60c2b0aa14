//! A callback server that remembers its callbacks and answers 200.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use kit::callbacks::{Reaction, serve};

/// One callback as it came.
#[derive(Clone, Debug)]
pub struct Pop {
    /// The path of the request line.
    pub path: String,
    /// The header `X-Sequence-Number`.
    pub sequence: u64,
    /// The opaque data.
    pub body: String,
    /// When its last byte was read.
    pub at: Instant,
}

/// A callback server on a free port of 127.0.0.1, with a thread for every connection.
pub struct Sink {
    address: SocketAddr,
    pops: Arc<Mutex<Vec<Pop>>>,
}

impl Sink {
    /// Starts a sink.
    pub fn start() -> Sink {
        let pops: Arc<Mutex<Vec<Pop>>> = Arc::default();
        let all = pops.clone();
        let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |callback| {
            let body = String::from_utf8(callback.body.clone()).expect("text was sent");
            let (path, sequence, at) = (callback.path.clone(), callback.sequence(), callback.at);
            all.lock().expect("nobody panics with it").push(Pop { path, sequence, body, at });
            Reaction::OK
        });
        Sink { address, pops }
    }

    /// Returns the URI of a path at this sink.
    pub fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the callbacks so far, in the order of arrival.
    pub fn pops(&self) -> MutexGuard<'_, Vec<Pop>> {
        self.pops.lock().expect("nobody panics with it")
    }

    /// Returns the sequence numbers that came for a path, in the order of arrival.
    pub fn sequences(&self, path: &str) -> Vec<u64> {
        let pops = self.pops();
        pops.iter().filter(|pop| pop.path == path).map(|pop| pop.sequence).collect()
    }
}
