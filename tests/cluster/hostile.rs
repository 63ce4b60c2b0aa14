//! Peers that lie, babble or keep silent, and operators' mistakes.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use chronos::wire::peer_frame::{FRAME_BODY_BYTES_MAX, FRAME_HEADER_BYTES};
use chronos::wire::peer_message::{PeerRefusal, PeerResult};
use kit::children::{SETPRIV, Tied, command};
use kit::runner::Story;

use super::files::{Roles, replace};
use super::harness::{Cluster, until};
use super::hostile_peer::{
    Claim, Forged, Line, frame, hash, silent_member, upgrade, upgrade_as, version_ahead,
};
use super::placement;
use super::sink::Sink;
use super::timers::{Order, QUIET, Timers};

pub const STORIES: &[Story] = &[
    ("hostile_frames_harm_nobody", hostile_frames_harm_nobody),
    ("a_peer_that_never_acknowledges_holds_up_nobody", a_peer_that_never_acknowledges),
    ("versions_of_the_future_void_no_write", versions_of_the_future_void_no_write),
    ("messages_that_come_again_change_nothing", messages_that_come_again_change_nothing),
    ("strangers_get_no_connection", strangers_get_no_connection),
    ("two_processes_of_one_name_are_noticed", two_processes_of_one_name_are_noticed),
    ("broken_files_leave_the_old_cluster", broken_files_leave_the_old_cluster),
    ("impossible_clusters_do_not_start", impossible_clusters_do_not_start),
];

/// The place of the hostile member, which the story plays.
const IT: usize = 2;

/// Starts nodes 1 and 2. Node 3 is a member that the story plays.
fn with_a_hostile_member() -> (Cluster, Claim) {
    let mut cluster = Cluster::new();
    cluster.start_with(&[0, 1], &Roles::staying(&[0, 1, IT]));
    let claim = Claim::member(&cluster.names[IT], IT);
    (cluster, claim)
}

/// Returns the hashes of the members at these places.
fn hashes(cluster: &Cluster, places: &[usize]) -> Vec<chronos::base::ids::NodeHash> {
    places.iter().map(|place| hash(&cluster.names[*place])).collect()
}

fn hostile_frames_harm_nobody() {
    let (cluster, claim) = with_a_hostile_member();
    cluster.await_dead(&[0, 1], IT);
    let sink = Sink::ok();
    let order = Order::once(4_000).times(2).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    let good = Forged::new(77, &hashes(&cluster, &[0, 1]), sink.address, "/forged");
    let whole = frame(&[good.message()], 0);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = whole.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut long = vec![b'x'; 64 << 10];
    long[..2].copy_from_slice(&[1, 1]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("noise", (0..5_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
        ("a request", b"GET /timers HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a changed byte", with(FRAME_HEADER_BYTES + 9, b"!")),
        ("a wrong checksum", with(8, &[1, 2, 3, 4])),
        ("a version to come", with(0, &[3])),
        ("version 0", with(0, &[0])),
        ("an unknown kind", with(1, &[7])),
        ("a body beyond the limit", with(4, &(FRAME_BODY_BYTES_MAX as u32 + 1).to_le_bytes())),
        ("the longest body there is", with(4, &u32::MAX.to_le_bytes())),
        ("more messages than there are", with(2, &9_u16.to_le_bytes())),
        ("a frame full of nothing", long),
    ];
    for place in [0, 1] {
        let to = cluster.address(place);
        for (what, bytes) in &cases {
            let mut line = Line::open(&claim, cluster.address(IT), to);
            line.send(bytes);
            assert!(line.is_closed_soon(), "{what} is kept open");
        }
        // Half a frame and then the end of the connection, and many connections that say nothing.
        let mut line = Line::open(&claim, cluster.address(IT), to);
        line.send(&whole[..whole.len() / 2]);
        drop(line);
        let idle: Vec<_> = (0..8)
            .map(|_| upgrade_as(&claim, cluster.address(IT), to).expect("an answer"))
            .collect();
        assert!(idle.iter().all(|one| matches!(one.1.status, 101 | 409 | 503)));
    }
    timers.judge(&sink).assert_perfect();
}

fn a_peer_that_never_acknowledges() {
    let mut cluster = Cluster::new();
    let claim = Claim::member(&cluster.names[IT], IT);
    let accepted = silent_member(claim, cluster.address(IT));
    cluster.start_with(&[0, 1], &Roles::staying(&[0, 1, IT]));
    let sink = Sink::ok();
    let order = Order::once(9_000).factor(3);
    let timers = Timers::some(&cluster, &[0, 1], order, &sink, 30);
    // The member is suspected after 1 s of silence. From then on no write waits for it. A second
    // for each write would be longer than the interval.
    timers.expect_none_due();
    // The member is dead when the timers are due.
    let judgement = timers.judge_after(&sink, Duration::from_millis(6_500));
    judgement.assert_once().assert_ranks(2);
    assert!(accepted.load(SeqCst) >= 2, "each core of each node dials");
}

fn versions_of_the_future_void_no_write() {
    let (cluster, claim) = with_a_hostile_member();
    // The two nodes have found each other, and know that the third is not there.
    cluster.await_alive(&[0, 1]);
    cluster.await_dead(&[0, 1], IT);
    let sink = Sink::ok();
    let names: Vec<&str> = [0, 1, IT].map(|place| &cluster.names[place][..]).to_vec();
    let is_first = |id: &u64| placement::replicas(&names, *id, 2) == [0, 1];
    let id = (0x0007_0000_0000_0000..).find(is_first).expect("one in six");
    let mut forged = Forged::new(id, &hashes(&cluster, &[0, 1]), sink.address, "/future");
    forged.version = u64::MAX;
    let mut line = Line::open(&claim, cluster.address(IT), cluster.address(0));
    let body = line.ask(&[forged.message()]);
    let mut refused = Vec::new();
    PeerResult::Refused(PeerRefusal::FutureVersion).encode(&mut refused);
    assert!(body.ends_with(&refused), "no clock can have given that out: {body:?}");
    // A member whose clock is ahead is believed. What clients write afterwards gets a higher
    // version.
    forged.version = version_ahead(Duration::from_secs(2 * 3_600));
    let body = line.ask(&[forged.message()]);
    assert!(!body.ends_with(&refused), "{body:?}");
    let order = Order::once(2_000).factor(2);
    let document = order.document(&sink.uri("/client"), "");
    let path = format!("/timers/{id:016x}-2");
    cluster.request(1, "PUT", &path, &document).location();
    let body = line.ask(&[forged.message()]);
    assert!(!body.ends_with(&refused), "{body:?}");
    thread::sleep(Duration::from_secs(2) + QUIET);
    until("the pop", || (!sink.pops().is_empty()).then_some(()));
    let paths: Vec<_> = sink.pops().into_iter().map(|pop| pop.path).collect();
    assert_eq!(paths, ["/client"], "the write that was acknowledged, once");
}

fn messages_that_come_again_change_nothing() {
    let (cluster, claim) = with_a_hostile_member();
    let sink = Sink::ok();
    let replicas = hashes(&cluster, &[0, 1]);
    let forged: Vec<_> = (0..20_u64)
        .map(|number| {
            let path = format!("/replayed/{number}");
            Forged::new(0x0008_0000_0000_0000 + number, &replicas, sink.address, &path)
        })
        .collect();
    let messages: Vec<_> = forged.iter().map(Forged::message).collect();
    for place in [0, 1, 0, 1] {
        let mut line = Line::open(&claim, cluster.address(IT), cluster.address(place));
        line.ask(&messages);
        line.ask(&messages);
    }
    until("all to pop", || (sink.by_path().len() >= forged.len()).then_some(()));
    // The timers have popped. The same messages again must not bring them back.
    for place in [0, 1] {
        let mut line = Line::open(&claim, cluster.address(IT), cluster.address(place));
        line.ask(&messages);
    }
    thread::sleep(QUIET);
    let by_path = sink.by_path();
    assert_eq!(by_path.len(), forged.len());
    let again: Vec<_> = by_path.values().filter(|pops| pops.len() > 1).collect();
    assert!(again.is_empty(), "{again:?}");
}

fn strangers_get_no_connection() {
    let (cluster, claim) = with_a_hostile_member();
    let (from, to) = (cluster.address(IT), cluster.address(0));
    let status = |claim: &Claim| upgrade_as(claim, from, to).expect("an answer").1;
    let stranger = Claim { name: "127.0.0.99:7253".to_owned(), ..claim.clone() };
    let answer = status(&stranger);
    assert_eq!(answer.status, 403, "{answer:?}");
    let reason = answer.header("Reason").expect("a reason").to_owned();
    assert!(reason.contains("127.0.0.99:7253"), "{reason}");
    // A process that claims to be the node that it calls.
    let twin = Claim { name: cluster.names[0].clone(), ..claim.clone() };
    assert_eq!(upgrade_as(&twin, to, to).expect("an answer").1.status, 409);
    assert_eq!(status(&twin).status, 403, "it has another address");
    let refused = |headers: &str| upgrade(from, to, headers).expect("an answer").1.status;
    assert_eq!(refused("Connection: Upgrade\r\nUpgrade: chronos-peer/2\r\n"), 426);
    assert_eq!(refused("Connection: Upgrade\r\nUpgrade: chronos-peer/1\r\n"), 400);
    // A member's name from an address that no member has, while that member is down.
    let elsewhere = "127.0.0.77:0".parse().expect("an address");
    let answer = upgrade_as(&claim, elsewhere, to).expect("an answer").1;
    assert_eq!((answer.status, answer.header("X-Chronos-Incarnation")), (403, None), "{answer:?}");
    assert_eq!(status(&claim).status, 101);
}

fn two_processes_of_one_name_are_noticed() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let order = Order::once(3_000).times(3);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    // A third process starts with the files of node 1, on another address.
    cluster.start_as(IT, 0, &Roles::staying(&[0, 1]));
    let said = "two processes say that they are";
    until("somebody to notice", || {
        let is_gone = cluster.ended(IT).is_some_and(|status| !status.success());
        let is_told = [0, 1, IT].iter().any(|place| cluster.logged(*place).contains(said));
        (is_gone || is_told).then_some(())
    });
    // The cluster goes on.
    timers.judge(&sink).assert_perfect();
}

fn broken_files_leave_the_old_cluster() {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::ok();
    let timers = Timers::hundred(&cluster, &[0, 1], Order::once(7_000), &sink);
    let name = cluster.names[0].clone();
    let broken = [
        ("twice", format!("[cluster]\nlocalhost = {name}\nnode = {name}\nnode = {name}\n")),
        ("not in it", format!("[cluster]\nlocalhost = {name}\nnode = 127.0.0.99:1\n")),
        ("a line that is none", format!("[cluster\nlocalhost = {name}\nnode\n")),
    ];
    for (what, text) in broken {
        let before = cluster.logged(0).len();
        replace(&cluster.cluster_file(0), &text);
        cluster.signal(0, "HUP");
        until(&format!("a log line about an address {what}"), || {
            let new = cluster.logged(0)[before..].to_ascii_lowercase();
            (new.contains("error") || new.contains("warn")).then_some(())
        });
    }
    // The repaired files are read again.
    cluster.start_with(&[IT], &Roles::staying(&[0, 1]).with_joining(&[IT]));
    cluster.reload(&[0, 1], &Roles::staying(&[0, 1]).with_joining(&[IT]));
    cluster.signal_all(&[0, 1, IT], "USR1");
    timers.judge(&sink).assert_perfect();
}

fn impossible_clusters_do_not_start() {
    let cluster = Cluster::new();
    let name = &cluster.names[0];
    let files = [
        format!("[cluster]\nlocalhost = {name}\nnode = {name}\nnode = {name}\n"),
        format!("[cluster]\nlocalhost = {name}\nnode = 127.0.0.99:1\n"),
        format!("[cluster]\nlocalhost = {name}\nnode = {name}\njoining = {name}\n"),
    ];
    for text in files {
        replace(&cluster.cluster_file(0), &text);
        let bind: SocketAddr = cluster.address(0);
        let local = format!("[http]\nbind-address = {}\nbind-port = {}\n", bind.ip(), bind.port());
        let local_file = cluster.cluster_file(0).with_extension("local");
        replace(&local_file, &local);
        let output = command("timeout")
            .arg("60")
            .args(SETPRIV)
            .args([env!("CARGO_BIN_EXE_chronos"), "--local-config-file"])
            .arg(&local_file)
            .arg("--cluster-config-file")
            .arg(cluster.cluster_file(0))
            .args(["--shared-config-file", "/nonexistent", "--pidfile"])
            .arg(local_file.with_extension("pid"))
            .output_tied()
            .expect("timeout runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}\n{said}");
        assert!(said.contains(name.as_str()), "{text}\n{said}");
    }
}
