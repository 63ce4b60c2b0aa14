//! Clusters whose nodes speak TLS with each other: how a running one is moved to it, and what is
//! seen from outside.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use kit::children::{Tied, command};
use kit::client::request;
use kit::runner::Story;

use super::certificates::host_of;
use super::files::Roles;
use super::harness::{Cluster, PATIENCE, PLACES, Setup, until};
use super::hostile_peer::{Claim, upgrade_as};
use super::original::Original;
use super::sink::Sink;
use super::timers::{Order, QUIET, Timer, Timers};

pub const STORIES: &[Story] = &[
    ("a_running_cluster_is_moved_to_tls", a_running_cluster_is_moved_to_tls),
    ("nodes_replicate_over_tls", nodes_replicate_over_tls),
    ("tls_is_changed_while_nodes_run", tls_is_changed_while_nodes_run),
    ("an_original_is_met_beside_tls", an_original_is_met_beside_tls),
    ("sites_speak_tls", sites_speak_tls),
    ("a_node_that_is_back_from_a_stall_is_met_over_tls", a_node_that_is_back_is_met_over_tls),
];

const THREE: [usize; 3] = [0, 1, 2];

/// Certificates of a cluster's places, as the command makes them that operators use.
pub struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// An authority and a certificate of each place, and one of a client. Every second one is good
    /// for the member's port alone.
    pub fn new(cluster: &Cluster, name: &str) -> Pki {
        let folder = cluster.folder().join(name);
        let mut words = command(env!("CARGO_BIN_EXE_chronos"));
        words.args(["cluster", "certs", "--client", "ralf", "--out"]).arg(&folder);
        (0..PLACES).for_each(|place| {
            words.args(["--node", named(cluster, place)]);
        });
        let made = words.output_tied().expect("the binary runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Pki { folder }
    }

    /// A file of these.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The lines of a node's configuration.
    pub fn lines(&self, cluster: &Cluster, place: usize, mode: &str) -> String {
        let stem = named(cluster, place).replace(':', "_");
        let path = |name: &str| self.file(name).display().to_string();
        lines(mode, &path(&format!("{stem}.pem")), &path(&format!("{stem}.key")), &path("ca.pem"))
    }
}

/// What the certificate of a place is made for: the host of the member, or its whole name.
fn named(cluster: &Cluster, place: usize) -> &str {
    let name = cluster.names[place].as_str();
    if place.is_multiple_of(2) { name } else { host_of(name) }
}

fn lines(mode: &str, cert: &str, key: &str, ca: &str) -> String {
    format!("\n[cluster]\ntls = {mode}\ntls_cert = {cert}\ntls_key = {key}\ntls_ca = {ca}\n")
}

/// Waits until all connections between these nodes go over TLS.
fn await_tls(cluster: &Cluster, places: &[usize]) {
    for place in places {
        until(&format!("node {} to speak TLS", place + 1), || {
            cluster.speaks_tls(*place, places).filter(|speaks| *speaks).map(|_| ())
        });
    }
}

/// A node that has spoken TLS and says nothing is busy: it is not talked to in the clear for that.
fn a_node_that_is_back_is_met_over_tls() {
    let mut cluster = Cluster::new();
    let pki = Pki::new(&cluster, "pki");
    for place in [0, 1] {
        let lines = pki.lines(&cluster, place, "accept-both");
        cluster.set_local(place, &lines);
    }
    cluster.begin(&[0, 1]);
    cluster.await_alive(&[0, 1]);
    await_tls(&cluster, &[0, 1]);
    for _ in 0..2 {
        cluster.freeze(1);
        cluster.await_dead(&[0], 1);
        // Time for some dials that nobody answers.
        std::thread::sleep(std::time::Duration::from_secs(3));
        cluster.thaw(1);
        cluster.await_alive(&[0, 1]);
        await_tls(&cluster, &[0, 1]);
    }
}

fn nodes_replicate_over_tls() {
    let mut cluster = Cluster::new();
    let pki = Pki::new(&cluster, "pki");
    for place in THREE {
        let lines = pki.lines(&cluster, place, "required");
        cluster.set_local(place, &lines);
    }
    cluster.begin(&THREE);
    cluster.await_alive(&THREE);
    await_tls(&cluster, &THREE);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &THREE, Order::once(3_000).factor(3), &sink);
    timers.judge(&sink).assert_perfect();
    for place in THREE {
        assert_eq!(cluster.metric(place, "chronos_peer_tls_failed_total"), 0);
    }
}

fn tls_is_changed_while_nodes_run() {
    let mut cluster = Cluster::new();
    let pki = Pki::new(&cluster, "pki");
    cluster.begin(&THREE);
    cluster.await_alive(&THREE);
    let sink = Sink::ok();
    let order = Order::once(2_000).times(4).factor(3);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    let reload = |cluster: &mut Cluster, lines: &dyn Fn(&Cluster, usize) -> String, told: &str| {
        for place in THREE {
            let (before, lines) = (cluster.logged(place).len(), lines(cluster, place));
            cluster.reload_local(place, &lines);
            until(told, || cluster.logged(place)[before..].contains(told).then_some(()));
        }
    };
    let took = "further connections between nodes";
    let losses = THREE.map(|place| cluster.metric(place, "chronos_peer_losses_total"));
    reload(&mut cluster, &|cluster, place| pki.lines(cluster, place, "accept-both"), took);
    // Plain connections go on until others have taken their place, and none breaks.
    await_tls(&cluster, &THREE);
    assert_eq!(THREE.map(|place| cluster.metric(place, "chronos_peer_losses_total")), losses);
    reload(&mut cluster, &|cluster, place| pki.lines(cluster, place, "required"), took);
    await_tls(&cluster, &THREE);
    cluster.await_alive(&THREE);
    // A file of another node changes nothing.
    let others = |cluster: &Cluster, place: usize| pki.lines(cluster, (place + 1) % 3, "required");
    reload(&mut cluster, &others, "not reloaded: [cluster] tls_cert: ");
    // Another authority: nodes take the certificates of both, then each gets one of the new one.
    let next = Pki::new(&cluster, "next");
    let read = |pki: &Pki| std::fs::read_to_string(pki.file("ca.pem")).expect("made");
    std::fs::write(pki.file("both.pem"), read(&pki) + &read(&next)).expect("written");
    std::fs::copy(pki.file("both.pem"), next.file("both.pem")).expect("copied");
    for which in [&pki, &next] {
        let both = |cluster: &Cluster, place: usize| {
            which.lines(cluster, place, "required").replace("ca.pem", "both.pem")
        };
        reload(&mut cluster, &both, took);
    }
    reload(&mut cluster, &|cluster, place| next.lines(cluster, place, "required"), took);
    cluster.await_alive(&THREE);
    await_tls(&cluster, &THREE);
    timers.judge(&sink).assert_none_lost();
    // A node that has only the old certificate is no node any more.
    cluster.kill(2);
    let lines = pki.lines(&cluster, 2, "required");
    cluster.set_local(2, &lines);
    cluster.await_dead(&[0, 1], 2);
    cluster.start(2);
    until("the node to be refused", || {
        (cluster.metric(0, "chronos_peer_tls_failed_total") > 0).then_some(())
    });
    until("the alarm", || {
        let text = "do not come to TLS";
        THREE.iter().all(|place| cluster.logged(*place).contains(text)).then_some(())
    });
    assert_eq!(cluster.speaks_tls(0, &[2]), Some(false));
}

fn an_original_is_met_beside_tls() {
    let mut cluster = Cluster::new();
    let pki = Pki::new(&cluster, "pki");
    let original = Original::start(cluster.address(1));
    let lines = pki.lines(&cluster, 0, "accept-both");
    cluster.set_local(0, &lines);
    cluster.start_with(&[0], &Roles::staying(&[0, 1]));
    cluster.await_belief(&[0], &[1], "alive");
    assert_eq!(cluster.speaks_tls(0, &[1]), Some(false));
    until("a ping", || (!original.messages("GET").is_empty()).then_some(()));
}

fn sites_speak_tls() {
    let mut cluster = Cluster::with(Setup { sites: true, ..Setup::default() });
    let pki = Pki::new(&cluster, "pki");
    let all = [0, 1, 2, 3];
    for place in all {
        let lines = pki.lines(&cluster, place, "required");
        cluster.set_local(place, &lines);
    }
    cluster.begin(&all);
    let sink = Sink::ok();
    let order = Order::once(3_000).times(2).factor(1);
    // Each site holds each timer once the sites have met.
    for place in all {
        let document = Order::once(3_600_000).factor(1).document("http://127.0.0.1:9/", "");
        let location = cluster.request(place, "POST", "/timers", &document).location().to_owned();
        until("the sites to meet", || {
            let holds = |other: &usize| cluster.request(*other, "GET", &location, "").status == 200;
            all.iter().all(holds).then_some(())
        });
        assert_eq!(cluster.request(place, "DELETE", &location, "").status, 200);
    }
    let timers = Timers::hundred(&cluster, &all, order, &sink);
    // The fourth site would act 6 s after the first.
    timers.judge_after(&sink, Duration::from_millis(6_500)).assert_perfect();
    for place in all {
        // Three sites that this one dials; they do not upgrade to frames.
        let secured = cluster.metric(place, "chronos_peer_tls_connections");
        assert!(secured >= 3, "node {}: {secured}", place + 1);
        assert_eq!(cluster.metric(place, "chronos_peer_tls_failed_total"), 0);
        assert_eq!(cluster.metric(place, "chronos_peer_plain_refused_total"), 0);
    }
}

/// Creates timers until told to stop. A create that fails is made again at another node under the
/// same id, as clients do.
fn create(
    cluster_addresses: &[std::net::SocketAddr],
    sink: &Sink,
    order: Order,
    client: usize,
    (is_over, count): (&AtomicBool, &AtomicUsize),
) -> Vec<Timer> {
    let mut all = Vec::new();
    for number in 0_usize.. {
        if is_over.load(SeqCst) {
            break;
        }
        let path = format!("/pop/{client}-{number}");
        let document = order.document(&sink.uri(&path), "opaque");
        // The id is the client's own, so that a create that is made again is the same timer.
        let id = 0x4321_0000_0000_0000_u64 + ((client as u64) << 32) + number as u64;
        let target = format!("/timers/{id:016x}-2");
        let asked = Instant::now();
        let mut place = number;
        let answer = loop {
            place += 1;
            let to = cluster_addresses[place % cluster_addresses.len()];
            match request(to, "PUT", &target, &document) {
                Ok(answer) if answer.status == 200 => break answer,
                _ => assert!(asked.elapsed() < PATIENCE, "no node takes {target}"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let location = answer.location().to_owned();
        all.push(Timer { path, location, asked, answered: Instant::now() });
        count.fetch_add(1, SeqCst);
        thread::sleep(Duration::from_millis(20));
    }
    all
}

/// Tells clients to stop when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn a_running_cluster_is_moved_to_tls() {
    let mut cluster = Cluster::new();
    let pki = Pki::new(&cluster, "pki");
    cluster.begin(&THREE);
    cluster.await_alive(&THREE);
    let sink = Sink::ok();
    // Timers that stand all the while, and pop at each step.
    let standing = Timers::hundred(&cluster, &THREE, Order::once(2_000).times(20), &sink);
    let more = Sink::ok();
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let addresses = THREE.map(|place| cluster.address(place));
    let order = Order::once(2_500);
    let begun = Instant::now();
    let created: Vec<Timer> = thread::scope(|scope| {
        let (more, is_over, count) = (&more, &is_over, &count);
        let create = move |client| create(&addresses, more, order, client, (is_over, count));
        let clients: Vec<_> = (0..2).map(|client| scope.spawn(move || create(client))).collect();
        // Whatever ends the story ends the clients.
        let _ends = Ends(is_over);
        for mode in ["accept-both", "required"] {
            for place in THREE {
                let lines = pki.lines(&cluster, place, mode);
                cluster.set_local(place, &lines);
                cluster.stop(place);
                cluster.start(place);
                cluster.await_alive(&THREE);
                cluster.await_settled(&THREE, &Roles::staying(&THREE));
                cluster.await_copies(&THREE, &standing);
                let before = count.load(SeqCst);
                until("creates beside it", || (count.load(SeqCst) > before + 10).then_some(()));
            }
            await_tls(&cluster, &THREE);
        }
        is_over.store(true, SeqCst);
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    assert_refused_in_the_clear(&cluster);
    let created = Timers { order, all: created, begun };
    created.judge_after(&more, QUIET).assert_once();
    standing.judge_after(&sink, QUIET).assert_once();
    for place in THREE {
        assert_eq!(cluster.metric(place, "chronos_peer_tls_failed_total"), 0, "{place}");
        let open = cluster.metric(place, "chronos_peer_connections");
        assert!(cluster.metric(place, "chronos_peer_tls_connections") >= open, "{place}");
    }
}

/// Checks that whoever comes without TLS is no node, even at the address of a member.
fn assert_refused_in_the_clear(cluster: &Cluster) {
    let claim = Claim::member(&cluster.names[1], 1);
    let (_, answer) =
        upgrade_as(&claim, cluster.address(1), cluster.address(0)).expect("an answer");
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(answer.header("X-Chronos-Refused"), Some("tls"));
    let reason = answer.header("Reason").expect("a reason");
    assert!(reason.contains("cluster.tls"), "{reason}");
    until("the count", || {
        (cluster.metric(0, "chronos_peer_plain_refused_total") >= 1).then_some(())
    });
}
