//! A member that says well-formed nonsense ends no node, and harms no timer that it has no part in.
//!
//! A member may delete a timer, replace it, or say that it has popped: nodes believe each other,
//! and this story asks for no more. What is promised:
//!
//! - The other nodes live on, answer in time and keep within their memory.
//! - Timers that other nodes hold, and of which the liar says nothing, pop once.
//!
//! The story runs a few seconds of one seed, or as many as `CHRONOS_NONSENSE_S` says of the seed
//! `CHRONOS_NONSENSE_SEED`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use chronos::cluster::view::{Membership, View};
use kit::client::{Answer, request};
use kit::random::Random;
use kit::runner::Story;

use super::files::Roles;
use super::harness::{Cluster, until};
use super::hostile_peer::{Claim, hash};
use super::nonsense_lines::{ask, listen, tell};
use super::nonsense_peer::{Liar, SPARED};
use super::placement;
use super::sink::{Pop, Sink};
use super::timers::{Order, QUIET};

pub const STORIES: &[Story] =
    &[("well_formed_nonsense_ends_no_node", well_formed_nonsense_ends_no_node)];

/// The place of the liar.
const IT: usize = 2;
/// The places of the honest nodes.
const HONEST: [usize; 2] = [0, 1];
/// Seconds of the story without `CHRONOS_NONSENSE_S`.
const SHORT_S: u64 = 6;
/// How long nodes may take to hear the liar.
const HEARD: Duration = Duration::from_secs(60);
/// Connections that the liar dials to each node.
const LINES: u64 = 3;
/// Interval of timers of clients.
const INTERVAL_MS: u64 = 2_000;
/// Longest wait for an answer to /ping. A node that is silent for longer is dead for its peers.
/// Checked only in a run that is asked for with `CHRONOS_NONSENSE_S`, on a machine without other
/// work.
const PING_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the answer to a write. After that time a node answers 503. Checked as
/// [`PING_MAX`] is.
const WRITE_MAX: Duration = Duration::from_secs(8);
/// How much memory a node may take above what it takes at rest. What peers begin is bounded by 64
/// MiB a core, a link by as much.
const GROWTH_MAX_KB: u64 = 256 << 10;

/// A timer of a client that the liar has no part in.
struct Spared {
    path: String,
    asked: Instant,
    answered: Instant,
    is_deleted: bool,
}

/// Counts of the clients.
#[derive(Default)]
struct Told {
    refused: AtomicU64,
    requests: AtomicU64,
    slowest_ms: AtomicU64,
    /// Whether answers must come in time: in a run that is asked for.
    measures: bool,
}

impl Told {
    /// Sends one request. Panics unless it is answered, in a run that measures also if the answer
    /// is late.
    fn request(&self, to: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
        let begun = Instant::now();
        let answer = request(to, method, path, body)
            .unwrap_or_else(|error| panic!("{method} {path} to {to}: {error}"));
        let took = begun.elapsed();
        let bound = if method == "GET" { PING_MAX } else { WRITE_MAX };
        assert!(!self.measures || took < bound, "{method} {path} to {to} took {took:?}");
        self.slowest_ms.fetch_max(took.as_millis() as u64, SeqCst);
        self.requests.fetch_add(1, SeqCst);
        answer
    }
}

fn number_of(variable: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(variable);
    asked.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text}")))
}

fn well_formed_nonsense_ends_no_node() {
    let length = Duration::from_secs(number_of("CHRONOS_NONSENSE_S", SHORT_S));
    let seed = number_of("CHRONOS_NONSENSE_SEED", 1);
    let mut cluster = Cluster::new();
    cluster.start_with(&HONEST, &Roles::staying(&[0, 1, IT]));
    let memory_kb = HONEST.map(|place| resident_kb(cluster.pid(place)));
    let liar = begin(&cluster, seed);
    let measures = std::env::var("CHRONOS_NONSENSE_S").is_ok();
    let (sink, told) = (Sink::ok(), Told { measures, ..Told::default() });
    let is_over = AtomicBool::new(false);
    let of = |count: &AtomicU64| count.load(SeqCst);
    let mut most_kb = 0;
    let spared = thread::scope(|scope| {
        let (told, is_over, cluster) = (&told, &is_over, &cluster);
        let spared = scope.spawn(|| write_spared(cluster, &sink, told, is_over));
        scope.spawn(|| write_others(cluster, told, is_over, seed));
        for place in HONEST {
            scope.spawn(move || ping(cluster.address(place), told, is_over));
        }
        let begun = Instant::now();
        let is_heard = || of(&liar.messages) > 100 && of(&liar.results) > 10;
        let goes_on = || begun.elapsed() < length || !is_heard() && begun.elapsed() < HEARD;
        // A thread that fails ends the story at once.
        while goes_on() && !spared.is_finished() {
            thread::sleep(Duration::from_millis(100));
            for (place, before_kb) in HONEST.into_iter().zip(memory_kb) {
                let grown_kb = resident_kb(cluster.pid(place)).saturating_sub(before_kb);
                most_kb = most_kb.max(grown_kb);
            }
        }
        is_over.store(true, SeqCst);
        spared.join().expect("the clients are answered")
    });
    // The liar goes on until the last of the spared timers has popped.
    thread::sleep(Duration::from_millis(INTERVAL_MS) + QUIET);
    let left = spared.iter().filter(|timer| !timer.is_deleted).count();
    until("the spared timers to pop", || (sink.by_path().len() >= left).then_some(()));
    liar.is_over.store(true, SeqCst);
    for place in HONEST {
        assert!(cluster.ended(place).is_none(), "node {} ended", place + 1);
    }
    let late = judge(&spared, &sink.pops());
    println!(
        "nonsense, seed {seed}, {length:?}: {} messages, {} results, {} requests, {} connections; \
         clients' {} requests, {} answered 503, the slowest took {} ms; {} spared timers, the latest pop {late:?}; at \
         most {most_kb} kB more memory",
        of(&liar.messages),
        of(&liar.results),
        of(&liar.requests),
        of(&liar.connections),
        of(&told.requests),
        of(&told.refused),
        of(&told.slowest_ms),
        spared.len()
    );
    assert!(of(&liar.messages) > 100 && of(&liar.results) > 10, "the liar was heard");
    assert!(most_kb < GROWTH_MAX_KB, "{most_kb} kB");
    let unreadable = liar.unreadable();
    assert!(unreadable.is_empty(), "{} such: {}", unreadable.len(), unreadable[0]);
}

/// Starts the liar. It listens, and dials both other nodes.
fn begin(cluster: &Cluster, seed: u64) -> Arc<Liar> {
    let members = [0, 1, IT].map(|place| hash(&cluster.names[place])).to_vec();
    let membership = Membership {
        localhost: cluster.names[IT].clone(),
        nodes: cluster.names[..=IT].to_vec(),
        ..Membership::default()
    };
    let view = View::build(None, &membership).expect("as the nodes have it");
    let liar = Arc::new(Liar::new(members, &view));
    let claim = Claim::member(&cluster.names[IT], IT);
    let own = cluster.address(IT);
    let mut random = Random::new(seed);
    listen(&liar, claim.clone(), own, random.next());
    for place in HONEST {
        for _ in 0..LINES {
            tell(&liar, claim.clone(), own, cluster.address(place), random.next());
        }
        ask(&liar, cluster.names[..=IT].to_vec(), cluster.address(place), random.next());
    }
    until("the nodes and the liar to meet", || {
        (liar.connections.load(SeqCst) > LINES).then_some(())
    });
    liar
}

/// Writes timers that the honest nodes hold and the liar never names. Each is created, then
/// changed, deleted or left alone, over both nodes in turn.
fn write_spared(cluster: &Cluster, sink: &Sink, told: &Told, is_over: &AtomicBool) -> Vec<Spared> {
    let names: Vec<&str> = cluster.names[..=IT].iter().map(String::as_str).collect();
    let is_theirs = |id: &u64| {
        let mut replicas = placement::replicas(&names, *id, 2);
        replicas.sort_unstable();
        replicas == HONEST
    };
    let order = Order::once(INTERVAL_MS).factor(2);
    let mut spared = Vec::new();
    for (number, id) in SPARED.filter(is_theirs).enumerate() {
        if is_over.load(SeqCst) {
            break;
        }
        let [first, second] = [number % 2, (number + 1) % 2].map(|place| cluster.address(place));
        let timer = format!("/timers/{id:016x}-2");
        let write = |to, method, body: &str| loop {
            let asked = Instant::now();
            let answer = told.request(to, method, &timer, body);
            if answer.status == 200 {
                return (asked, Instant::now());
            }
            assert_eq!(answer.status, 503, "{answer:?}");
            told.refused.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(20));
        };
        let path = format!("/spared/{number}");
        let document = order.document(&sink.uri(&path), "spared");
        let (mut asked, mut answered) = write(first, "PUT", &document);
        let mut is_deleted = false;
        match number % 4 {
            0 => {
                (asked, answered) = write(second, "PUT", &document);
            }
            1 => {
                write(second, "DELETE", "");
                is_deleted = true;
            }
            _ => {}
        }
        spared.push(Spared { path, asked, answered, is_deleted });
        thread::sleep(Duration::from_millis(10));
    }
    spared
}

/// Writes timers of all three nodes. Nothing is promised of them but an answer.
fn write_others(cluster: &Cluster, told: &Told, is_over: &AtomicBool, seed: u64) {
    let mut random = Random::new(seed);
    let mut known = Vec::new();
    while !is_over.load(SeqCst) {
        let to = cluster.address(random.pick(&HONEST));
        let order = Order::once(random.pick(&[0, 50, 3_000, 100_000])).times(random.pick(&[1, 3]));
        let (method, path, order) = match random.below(5) {
            0 | 1 => ("POST", "/timers".to_owned(), order.factor(random.pick(&[1, 2, 3]))),
            kind if !known.is_empty() => {
                let at = random.below(known.len());
                (["PUT", "DELETE", "GET"][kind - 2], known.swap_remove(at), order)
            }
            _ => continue,
        };
        let document = order.document("http://127.0.0.1:1/x", "");
        let is_read = matches!(method, "GET" | "DELETE");
        let begun = Instant::now();
        let body = if is_read { "" } else { &document };
        // The node may have asked the liar, which may take its time.
        let answer = request(to, method, &path, body)
            .unwrap_or_else(|error| panic!("{method} {path} after {:?}: {error}", begun.elapsed()));
        assert!(matches!(answer.status, 200 | 404 | 503), "{answer:?}");
        told.requests.fetch_add(1, SeqCst);
        told.refused.fetch_add(u64::from(answer.status == 503), SeqCst);
        let location = answer.header("Location").map_or(path, str::to_owned);
        if location != "/timers" && known.len() < 200 {
            known.push(location);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn ping(to: SocketAddr, told: &Told, is_over: &AtomicBool) {
    while !is_over.load(SeqCst) {
        let answer = told.request(to, "GET", "/ping", "");
        assert_eq!((answer.status, answer.body.as_str()), (200, "OK"));
        thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that each timer that was left popped once and not early, and that no deleted timer
/// popped. Returns how late the latest pop was.
fn judge(spared: &[Spared], pops: &[Pop]) -> Duration {
    let mut by_path = std::collections::HashMap::<&str, Vec<&Pop>>::new();
    pops.iter().for_each(|pop| by_path.entry(&pop.path).or_default().push(pop));
    let mut latest = Duration::ZERO;
    let mut wrong = Vec::new();
    for timer in spared {
        let interval = Duration::from_millis(INTERVAL_MS);
        match (by_path.get(timer.path.as_str()).map_or(&[][..], Vec::as_slice), timer.is_deleted) {
            ([], true) => {}
            ([pop], false) if pop.at >= timer.asked + interval => {
                let late = pop.at.saturating_duration_since(timer.answered + interval);
                latest = latest.max(late);
            }
            (pops, _) => {
                wrong.push(format!("{} (deleted: {}): {pops:?}", timer.path, timer.is_deleted));
            }
        }
    }
    assert!(!spared.is_empty(), "clients wrote");
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), spared.len(), wrong.join("\n"));
    latest
}

/// Returns the resident memory of a process in KiB; 0 if it is gone.
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}
