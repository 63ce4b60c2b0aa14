//! The callback servers. They record every callback, and refuse the first attempt at some pops, and
//! every attempt but replays at those that are to become dead letters.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use kit::callbacks::{Callback, Reaction, serve};
use kit::http::header;

use super::history::{Pop, Recorder};
use super::network::Network;

/// What a path asks the server to do, and how the path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Takes,
    /// Refuses the first attempt at every pop.
    FailsFirst,
    /// Takes replays only.
    Refuses,
    /// Takes pops of the calendar, whose number is their moment.
    TakesMoments,
}

const ENDS: [(Manner, &str); 4] = [
    (Manner::FailsFirst, "/fails-first"),
    (Manner::Refuses, "/refuses"),
    (Manner::TakesMoments, "/moments"),
    (Manner::Takes, ""),
];

/// Callback servers on free ports, with a thread per connection.
#[derive(Clone, Copy)]
pub struct Sinks {
    pub free: SocketAddr,
    /// The server that operators pause.
    pub ruled: SocketAddr,
}

impl Sinks {
    pub fn start(recorder: &Arc<Recorder>, network: &Arc<Network>) -> Sinks {
        let start = || {
            let (recorder, network) = (recorder.clone(), network.clone());
            let (host, refused) = (network.sinks, Mutex::new(HashSet::new()));
            let react = move |callback: &Callback| {
                take(callback, &recorder, network.site_of(callback.from), &refused)
            };
            serve(SocketAddr::new(host, 0), react).0
        };
        Sinks { free: start(), ruled: start() }
    }
}

fn take(
    callback: &Callback,
    recorder: &Recorder,
    site: usize,
    refused: &Mutex<HashSet<(usize, usize, u64)>>,
) -> Reaction {
    let (head, at) = (&callback.head, recorder.clock.now());
    let Some((timer, write, manner, sequence, replay)) = parse(head) else {
        // Clients run no calendars, but a site may hold one that does not know the next write yet.
        let is_run = header(head, "X-Due-Time").is_some() && head.contains("/moments ");
        if is_run && recorder.with(|history| history.layout.has_sites()) {
            return Reaction::Status(200);
        }
        recorder.with(|history| history.troubles.push((at, format!("callback: {head:?}"))));
        return Reaction::BytesThenClose(Vec::new());
    };
    let is_first =
        || refused.lock().expect("no thread panics with it").insert((timer, write, sequence));
    let status = match manner {
        Manner::FailsFirst if is_first() => 503,
        Manner::Refuses if replay == 0 => 500,
        _ => 200,
    };
    let is_whole = callback.body == opaque(timer, write).as_bytes();
    let pop = Pop { timer, write, site, sequence, replay, at, status, is_whole };
    recorder.with(|history| history.pops.push(pop));
    Reaction::Status(status)
}

/// Returns the opaque text of a write.
pub fn opaque(timer: usize, write: usize) -> String {
    format!("timer {timer} write {write}")
}

/// Returns the path of a write's callbacks.
pub fn path(timer: usize, write: usize, manner: Manner) -> String {
    let end = ENDS.iter().find(|end| end.0 == manner).expect("each has an end").1;
    format!("/{timer}/{write}{end}")
}

/// Reads the head of a callback. Returns timer, write, what the server is to do, the number of the
/// pop and the number of its replay.
fn parse(head: &str) -> Option<(usize, usize, Manner, u64, u64)> {
    let path = head.strip_prefix("POST ")?.split(' ').next()?;
    let (manner, plain) =
        ENDS.iter().find_map(|(manner, end)| Some((*manner, path.strip_suffix(end)?)))?;
    let (timer, write) = plain.strip_prefix('/')?.split_once('/')?;
    let sequence = match manner {
        Manner::TakesMoments => {
            let due: jiff::Timestamp = header(head, "X-Due-Time")?.parse().ok()?;
            (due.subsec_nanosecond() == 0).then(|| due.as_second() as u64)?
        }
        _ => header(head, "X-Sequence-Number")?.parse().ok()?,
    };
    let replay = header(head, "X-Replay").map_or(Some(0), |text| text.parse().ok())?;
    Some((timer.parse().ok()?, write.parse().ok()?, manner, sequence, replay))
}
