//! Clusters whose nodes share a secret: which connections are refused, and how a secret is
//! introduced and changed while timers run.

use std::io::Write;
use std::thread;
use std::time::Duration;

use kit::client::{read_answer, request_with};
use kit::runner::Story;

use super::files::Roles;
use super::harness::{Cluster, Setup, until};
use super::hostile_peer::{Claim, Forged, frame, hash, upgrade, upgrade_as};
use super::sink::Sink;
use super::sites::{lose_the_configured_nodes, two_sites_with};
use super::timers::{Order, QUIET, Timers};

pub const STORIES: &[Story] = &[
    ("a_cluster_with_a_secret_outlives_a_node", a_cluster_with_a_secret_outlives_a_node),
    ("whoever_lacks_the_secret_does_nothing", whoever_lacks_the_secret_does_nothing),
    ("a_secret_is_changed_node_by_node", a_secret_is_changed_node_by_node),
    ("a_secret_is_brought_in_node_by_node", a_secret_is_brought_in_node_by_node),
    ("sites_with_a_secret_meet", sites_with_a_secret_meet),
];

const ONE: &str = "0123456789abcdef0123456789abcdef-one\n";
const TWO: &str = "0123456789abcdef0123456789abcdef-two\n";
const THREE: [usize; 3] = [0, 1, 2];
/// The place of a member that the story plays.
const IT: usize = 2;
/// What a node logs about a connection that was refused for want of the secret.
const TOLD: &str = "do not prove to each other";

fn with_secret() -> Cluster {
    Cluster::with(Setup { secret: ONE.into(), ..Setup::default() })
}

/// Waits until a timer written at any of these nodes is held by all of them.
fn await_links(cluster: &Cluster, places: &[usize]) {
    let factor = places.len() as u8;
    let document = Order::once(3_600_000).factor(factor).document("http://127.0.0.1:9/", "");
    for place in places {
        until("the nodes to meet", || {
            let written = cluster.request(*place, "POST", "/timers", &document);
            let location = written.location().to_owned();
            let holds = |place: &usize| cluster.request(*place, "GET", &location, "").status == 200;
            let is_held = places.iter().all(holds);
            assert_eq!(cluster.request(*place, "DELETE", &location, "").status, 200);
            is_held.then_some(())
        });
    }
}

fn assert_nobody_was_refused(cluster: &Cluster, places: &[usize]) {
    for place in places {
        let said = cluster.logged(*place);
        assert!(!said.contains(TOLD), "node {}: {said}", place + 1);
    }
}

fn a_cluster_with_a_secret_outlives_a_node() {
    let mut cluster = with_secret();
    cluster.begin(&THREE);
    await_links(&cluster, &THREE);
    let sink = Sink::ok();
    let order = Order::once(3_000).times(3).factor(2);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    thread::sleep(Duration::from_secs(1));
    cluster.kill(1);
    thread::sleep(Duration::from_millis(1_500));
    cluster.start(1);
    timers.judge(&sink).assert_none_lost();
    await_links(&cluster, &THREE);
    assert_nobody_was_refused(&cluster, &THREE);
    assert!(!cluster.logged(0).contains(ONE.trim()), "a secret is never logged");
}

fn whoever_lacks_the_secret_does_nothing() {
    let mut cluster = with_secret();
    cluster.start_with(&[0, 1], &Roles::staying(&[0, 1, IT]));
    let claim = Claim::member(&cluster.names[IT], IT);
    let (from, to) = (cluster.address(IT), cluster.address(0));
    cluster.await_dead(&[0, 1], IT);
    let sink = Sink::ok();
    let order = Order::once(5_000).factor(2);
    let timers = Timers::hundred(&cluster, &[0, 1], order, &sink);
    // The claim has the name and the address of a member, but not its secret.
    let (_, answer) = upgrade_as(&claim, from, to).expect("an answer");
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(answer.header("X-Chronos-Refused"), Some("secret"));
    let reason = answer.header("Reason").expect("a reason");
    assert!(reason.contains("cluster.secret_file"), "{reason}");
    // A nonce is answered by a challenge. Frames are no answer to a challenge.
    let (word, name) = ("0f".repeat(32), &claim.name);
    let headers = format!(
        "Connection: Upgrade\r\nUpgrade: chronos-peer/1\r\nX-Chronos-Name: {name}\r\n\
         X-Chronos-Instance: 3\r\nX-Chronos-Incarnation: 0bad\r\nX-Chronos-View: 1\r\n\
         X-Chronos-Shard: 0\r\nX-Chronos-Shards: 1\r\nX-Chronos-Nonce: {word}\r\n"
    );
    let (mut stream, answer) = upgrade(from, to, &headers).expect("an answer");
    assert_eq!(answer.status, 401, "{answer:?}");
    for told in ["X-Chronos-Incarnation", "X-Chronos-Name", "X-Chronos-View"] {
        assert_eq!(answer.header(told), None, "{answer:?}");
    }
    let replicas = [hash(&cluster.names[0]), hash(&cluster.names[1])];
    let forged = Forged::new(0x0007_0000_0000_0000, &replicas, sink.address, "/forged");
    stream.write_all(&frame(&[forged.message()], 0)).expect("taken");
    let answer = read_answer(&mut stream).expect("an answer in HTTP");
    assert_eq!(answer.status, 400, "{answer:?}");
    let proof = format!("{headers}X-Chronos-Proof: {word}\r\n");
    assert_eq!(upgrade(from, to, &proof).expect("an answer").1.status, 403, "no challenge");
    // The internal HTTP API refuses as well, even for the address of a member.
    let location = &timers.all[0].location;
    let killed = "{\"timing\":{\"interval\":2,\"sequence-number\":9},\"callback\":{\"http\":\
                  {\"uri\":\"\",\"opaque\":\"\"}},\"reliability\":{\"replicas\":[\"x\"]}}";
    let page = format!("/timers?node-for-replicas={}&cluster-view-id=1", cluster.names[1]);
    let requests = [
        ("PUT", location.as_str(), killed),
        ("GET", &page, ""),
        ("GET", "/ping?members", ""),
        ("DELETE", "/timers/references", "{\"IDs\":[{\"ID\":1,\"ReplicaIndex\":0}]}"),
    ];
    for (method, path, body) in requests {
        let answer = request_with(to, method, path, "", body).expect("an answer");
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
        let reason = answer.header("Reason").expect("a reason");
        assert!(reason.contains("cluster.secret_file"), "{reason}");
    }
    until("the alarm", || cluster.logged(0).contains(TOLD).then_some(()));
    timers.judge(&sink).assert_perfect();
}

fn a_secret_is_changed_node_by_node() {
    let mut cluster = with_secret();
    cluster.begin(&THREE);
    await_links(&cluster, &THREE);
    let sink = Sink::ok();
    let order = Order::once(4_000).times(4).factor(2);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    for (step, lines) in
        [format!("{ONE}{TWO}"), format!("{TWO}{ONE}"), TWO.to_owned()].into_iter().enumerate()
    {
        for place in THREE {
            let before = cluster.logged(place).len();
            cluster.write_secret(place, &lines);
            cluster.signal(place, "HUP");
            until("the secrets to be read again", || {
                cluster.logged(place)[before..].contains("secrets have changed").then_some(())
            });
            if place == step {
                // The node makes its connections anew while the other nodes have other lines first.
                cluster.stop(place);
                cluster.start(place);
                cluster.await_copies(&THREE, &timers);
                await_links(&cluster, &THREE);
            }
        }
    }
    timers.judge(&sink).assert_none_lost();
    assert_nobody_was_refused(&cluster, &THREE);
    // The old secret is refused.
    cluster.kill(IT);
    cluster.write_secret(IT, ONE);
    cluster.start(IT);
    until("the node to be refused", || {
        THREE.iter().all(|place| cluster.logged(*place).contains(TOLD)).then_some(())
    });
    // A file that others may read is refused and changes nothing.
    let before = cluster.logged(0).len();
    cluster.write_open_secret(0, ONE);
    cluster.signal(0, "HUP");
    until("the file to be refused", || {
        cluster.logged(0)[before..].contains("chmod 600").then_some(())
    });
}

fn a_secret_is_brought_in_node_by_node() {
    let mut cluster = Cluster::running(&THREE);
    await_links(&cluster, &THREE);
    let sink = Sink::ok();
    let order = Order::once(6_000).times(4).factor(2);
    let timers = Timers::hundred(&cluster, &THREE, order, &sink);
    for keys in ["secret_required = false\n", ""] {
        cluster.set_secret_keys(keys);
        for place in THREE {
            cluster.write_secret(place, ONE);
            cluster.stop(place);
            cluster.start(place);
            cluster.await_copies(&THREE, &timers);
            await_links(&cluster, &THREE);
        }
    }
    timers.judge_after(&sink, QUIET).assert_none_lost();
    assert_nobody_was_refused(&cluster, &THREE);
    for place in THREE {
        let said = cluster.logged(place);
        assert!(said.contains("secret_required = false"), "the first start warns: {said}");
    }
}

fn sites_with_a_secret_meet() {
    let setup = Setup { secret: ONE.into(), ..Setup::default() };
    lose_the_configured_nodes(two_sites_with(setup));
}
