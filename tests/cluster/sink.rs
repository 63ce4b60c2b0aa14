//! A callback server that remembers its callbacks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
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
    /// The status that the sink answered.
    pub status: u16,
}

#[derive(Default)]
struct Seen {
    pops: Mutex<Vec<Pop>>,
}

/// A callback server on a free port of 127.0.0.1, with a thread per connection.
pub struct Sink {
    /// Where the sink listens.
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

impl Sink {
    /// Starts a sink that answers 200.
    pub fn ok() -> Sink {
        Sink::start(|_| 200)
    }

    /// Starts a sink that answers with the status that `react` returns. `react` gets the number of
    /// callbacks with the same path that came before.
    pub fn start(react: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Sink {
        Sink::on("127.0.0.1:0".parse().expect("an address"), react)
    }

    /// Starts a sink at this address.
    pub fn on(address: SocketAddr, react: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Sink {
        let seen = Arc::new(Seen::default());
        let all = seen.clone();
        let (address, _) = serve(address, move |callback| {
            let body = String::from_utf8(callback.body.clone()).expect("text was sent");
            let (path, sequence, at) = (callback.path.clone(), callback.sequence(), callback.at);
            let mut pops = all.pops.lock().expect("nobody panics with it");
            let status = react(pops.iter().filter(|one| one.path == path).count());
            pops.push(Pop { path, sequence, body, at, status });
            Reaction::Status(status)
        });
        Sink { address, seen }
    }

    /// Returns the URI of a path at this sink.
    pub fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the callbacks so far.
    pub fn pops(&self) -> Vec<Pop> {
        self.seen.pops.lock().expect("nobody panics with it").clone()
    }

    /// Returns the callbacks so far by path, each path in the order of arrival.
    pub fn by_path(&self) -> HashMap<String, Vec<Pop>> {
        let mut paths: HashMap<String, Vec<Pop>> = HashMap::new();
        self.pops()
            .into_iter()
            .for_each(|pop| paths.entry(pop.path.clone()).or_default().push(pop));
        paths
    }
}
