//! Clients that check their values. A value of a reply that was there before a request was sent is
//! below all values of the reply to that request. No value comes twice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use kit::runner::Story;

use super::processes::until;
use super::thrift::{Reply, Thrift};

/// Stories of the checker itself.
pub const STORIES: &[Story] = &[
    ("a_value_that_comes_again_is_found", a_value_that_comes_again_is_found),
    ("a_value_that_is_late_is_found", a_value_that_is_late_is_found),
];

/// How many connections the checker makes to each server.
const CONNECTIONS: usize = 2;
/// Longest wait for a reply. It is longer than a server is frozen, because the replies of a thawed
/// server must not be stale.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after each call, so that clients leave the machine to the servers.
const PAUSE: Duration = Duration::from_millis(1);
/// Most timestamps of one call.
const COUNT_MAX: u32 = 3;

/// One reply.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// When the reply was there.
    pub at: Instant,
    /// The first value.
    pub first: u64,
    /// How many values the reply has.
    pub count: u32,
    /// The number of the server that answered.
    pub server: usize,
    /// How far the first value was ahead of the wall clock.
    pub ahead_ms: i64,
}

#[derive(Debug, Default)]
struct Seen {
    /// The highest value of all replies so far.
    highest: AtomicU64,
    got: Mutex<Vec<Got>>,
    wrong: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

/// Running clients.
#[derive(Debug)]
pub struct Checker {
    seen: Arc<Seen>,
    clients: Vec<JoinHandle<()>>,
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.seen.is_over.store(true, SeqCst);
    }
}

impl Checker {
    /// Starts clients of these servers. Each client stays with its server, so that a reply of any
    /// server is seen.
    pub fn of(servers: &[SocketAddr]) -> Checker {
        let seen = Arc::new(Seen::default());
        let clients = (0..servers.len() * CONNECTIONS).map(|client| {
            let server = client / CONNECTIONS;
            let (to, seen) = (servers[server], Arc::clone(&seen));
            thread::spawn(move || ask(to, server, &seen))
        });
        let clients = clients.collect();
        Checker { seen, clients }
    }

    /// Returns all replies so far.
    pub fn got(&self) -> Vec<Got> {
        self.seen.got.lock().expect("nobody panics with it").clone()
    }

    /// Waits for a reply that comes after `since`.
    pub fn await_reply(&self, since: Instant, patience: Duration) -> Got {
        until("a timestamp", patience, || {
            let got = self.seen.got.lock().expect("nobody panics with it");
            got.iter().rev().take(64).filter(|one| one.at > since).copied().next_back()
        })
    }

    /// Returns the longest time between two replies after `since`, and until now.
    pub fn longest_gap(&self, since: Instant) -> Duration {
        let mut times: Vec<Instant> = self.got().iter().map(|one| one.at).collect();
        times.retain(|at| *at >= since);
        times.extend([since, Instant::now()]);
        times.sort_unstable();
        times.windows(2).map(|two| two[1] - two[0]).max().expect("two times")
    }

    /// Returns how far values were ahead of the clock at most.
    pub fn ahead_ms_max(&self) -> i64 {
        self.got().iter().map(|one| one.ahead_ms).max().unwrap_or(0)
    }

    /// Returns what was wrong so far.
    pub fn wrong(&self) -> Vec<String> {
        self.seen.wrong.lock().expect("nobody panics with it").clone()
    }

    /// Ends the clients and waits for their last replies, so that no request is under way. All
    /// servers must run.
    pub fn settle(&mut self) {
        self.seen.is_over.store(true, SeqCst);
        for client in self.clients.drain(..) {
            client.join().expect("a client ends well");
        }
    }

    /// Returns the highest value of all replies so far.
    pub fn highest(&self) -> u64 {
        self.seen.highest.load(SeqCst)
    }

    /// Ends the clients and judges everything. Returns how many replies there were.
    pub fn finish(mut self) -> usize {
        self.seen.is_over.store(true, SeqCst);
        let got = self.got();
        let mut wrong = self.wrong();
        wrong.extend(repeated(got.clone()));
        wrong.truncate(10);
        assert!(wrong.is_empty(), "of {} replies:\n{}", got.len(), wrong.join("\n"));
        // A client may still wait for a frozen server. It is left behind.
        self.clients.retain(|client| !client.is_finished());
        got.len()
    }
}

/// Returns the values that came twice.
fn repeated(mut got: Vec<Got>) -> Vec<String> {
    got.sort_unstable_by_key(|one| one.first);
    let pairs = got.windows(2).filter(|two| two[0].first + u64::from(two[0].count) > two[1].first);
    pairs.map(|two| format!("values came twice: {two:?}")).collect()
}

fn ask(to: SocketAddr, server: usize, seen: &Seen) {
    let mut connection = None;
    let mut count = 0;
    while !seen.is_over.load(SeqCst) {
        thread::sleep(PAUSE);
        if connection.is_none() {
            connection = Thrift::connect(to, PATIENCE).ok();
        }
        let Some(thrift) = &mut connection else { continue };
        count = count % COUNT_MAX + 1;
        // Read before the request is sent.
        let floor = seen.highest.load(SeqCst);
        let sent = Instant::now();
        match thrift.get(count) {
            Ok(Reply::First(first)) => {
                let got =
                    Got { at: Instant::now(), first, count, server, ahead_ms: ahead_ms(first) };
                seen.highest.fetch_max(first + u64::from(count) - 1, SeqCst);
                if first <= floor {
                    let waited = sent.elapsed();
                    let told =
                        format!("not above {floor}, which was known {waited:?} before: {got:?}");
                    seen.wrong.lock().expect("nobody panics with it").push(told);
                }
                seen.got.lock().expect("nobody panics with it").push(got);
            }
            Ok(Reply::Refused(_)) => {}
            Err(error) => {
                if error.kind() == std::io::ErrorKind::InvalidData {
                    seen.wrong.lock().expect("nobody panics with it").push(error.to_string());
                }
                connection = None;
            }
        }
    }
}

fn ahead_ms(value: u64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    (value >> 18) as i64 - now.as_millis() as i64
}

/// Starts a server that answers its n-th call with `value(n)`. Returns its address.
fn liar(value: fn(u64) -> u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let calls = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, calls) = (stream.expect("a client"), Arc::clone(&calls));
            thread::spawn(move || {
                let mut call = [0; 33];
                while stream.read_exact(&mut call).is_ok() {
                    let mut reply = vec![0x80, 1, 0, 2];
                    reply.extend(&call[4..25]);
                    reply.extend([10, 0, 0]);
                    reply.extend(value(calls.fetch_add(1, SeqCst)).to_be_bytes());
                    reply.push(0);
                    if stream.write_all(&reply).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn a_value_that_comes_again_is_found() {
    // The values rise, so that only the last value of a range comes again.
    let checker = Checker::of(&[liar(|call| (call + 1) << 1)]);
    until("a hundred replies", PATIENCE, || (checker.got().len() > 100).then_some(()));
    assert!(!repeated(checker.got()).is_empty());
}

fn a_value_that_is_late_is_found() {
    // No value comes twice, but every fiftieth is from before.
    let value = |call: u64| if call % 50 == 49 { call + 1 } else { (call + 1_000_000) << 4 };
    let checker = Checker::of(&[liar(value)]);
    until("a late one to be found", PATIENCE, || (!checker.wrong().is_empty()).then_some(()));
    let told = checker.wrong().join("\n");
    assert!(told.contains("which was known"), "{told}");
}
