//! The callback server. It records every callback, and refuses the first attempt at some pops.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use kit::callbacks::{Callback, Reaction, serve};
use kit::http::header;

use super::history::{Pop, Recorder};

/// The end of paths whose first attempt at every pop is refused.
pub const FAILS_FIRST: &str = "/fails-first";

/// A callback server on a free port of 127.0.0.1, with a thread per connection.
pub struct Sink {
    pub address: SocketAddr,
}

impl Sink {
    pub fn start(recorder: Arc<Recorder>) -> Sink {
        let refused = Mutex::new(HashSet::new());
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, _) = serve(anywhere, move |callback| take(callback, &recorder, &refused));
        Sink { address }
    }
}

fn take(
    callback: &Callback,
    recorder: &Recorder,
    refused: &Mutex<HashSet<(usize, usize, u64)>>,
) -> Reaction {
    let (head, at) = (&callback.head, recorder.clock.now());
    let Some((timer, write, fails_first, sequence)) = parse(head) else {
        recorder.with(|history| history.troubles.push((at, format!("callback: {head:?}"))));
        return Reaction::BytesThenClose(Vec::new());
    };
    let is_refused = fails_first
        && refused.lock().expect("no thread panics with it").insert((timer, write, sequence));
    let status = if is_refused { 503 } else { 200 };
    let is_whole = callback.body == opaque(timer, write).as_bytes();
    let pop = Pop { timer, write, sequence, at, status, is_whole };
    recorder.with(|history| history.pops.push(pop));
    Reaction::Status(status)
}

/// Returns the opaque text of a write.
pub fn opaque(timer: usize, write: usize) -> String {
    format!("timer {timer} write {write}")
}

/// Returns the path of a write's callbacks.
pub fn path(timer: usize, write: usize, fails_first: bool) -> String {
    format!("/{timer}/{write}{}", if fails_first { FAILS_FIRST } else { "" })
}

/// Reads the head of a callback. Returns timer, write, whether the first attempt fails, and
/// sequence number.
fn parse(head: &str) -> Option<(usize, usize, bool, u64)> {
    let path = head.strip_prefix("POST ")?.split(' ').next()?;
    let plain = path.strip_suffix(FAILS_FIRST);
    let (timer, write) = plain.unwrap_or(path).strip_prefix('/')?.split_once('/')?;
    let sequence = header(head, "X-Sequence-Number")?.parse().ok()?;
    Some((timer.parse().ok()?, write.parse().ok()?, plain.is_some(), sequence))
}
