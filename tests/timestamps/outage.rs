//! `ZooKeeper` itself goes away and comes back.

use std::thread::sleep;
use std::time::{Duration, Instant};

use kit::children;
use kit::client::request;
use kit::runner::Story;

use super::checker::Checker;
use super::measures;
use super::processes::{Process, free_port, until};
use super::servers::{START, Servers};
use super::zookeeper::ZooKeeper;

pub const STORIES: &[Story] = &[
    ("an_outage_longer_than_the_session_is_survived", an_outage_longer_than_the_session),
    ("a_restart_shorter_than_the_session_is_survived", a_restart_shorter_than_the_session),
    ("timers_go_on_without_zookeeper", timers_go_on_without_zookeeper),
];

fn an_outage_longer_than_the_session() {
    const SESSION_MS: u64 = 1_000;
    let mut zookeeper = ZooKeeper::start(100);
    let servers = Servers::start(3, &zookeeper.quorum(), SESSION_MS);
    let checker = Checker::of(&servers.addresses());
    let outage_s = std::env::var("CHRONOS_TIMESTAMPS_LONG_S").map_or(4, |_| 60);
    checker.await_reply(Instant::now(), START);
    for _ in 0..2 {
        let begin = Instant::now();
        zookeeper.kill();
        // The lease is over before the session can be.
        until("the lease to end", START, || {
            let status = servers.all.iter().map(|server| server.status());
            status
                .into_iter()
                .all(|status| status.is_some_and(|it| it["serving"] == false))
                .then_some(())
        });
        let stopped = Instant::now();
        sleep((begin + Duration::from_secs(outage_s)).saturating_duration_since(stopped));
        // A value that was handed out before may have been read later.
        sleep(Duration::from_secs(1));
        let got = checker.got();
        sleep(Duration::from_secs(1));
        assert_eq!(checker.got().len(), got.len(), "nothing is handed out without a lease");
        let answered = got.last().expect("replies").at.saturating_duration_since(begin);
        println!("without ZooKeeper timestamps were handed out for {answered:.0?}");
        let limit = Duration::from_millis(SESSION_MS);
        assert!(!measures() || answered <= limit, "{answered:?} is more than {limit:?}");
        zookeeper.run();
        let back = Instant::now();
        checker.await_reply(back, START);
        println!("back after {:.0?}", back.elapsed());
    }
    // All servers have found `ZooKeeper` again.
    until("two backups", START, || {
        let roles = servers.all.iter().filter_map(|server| server.role());
        (roles.filter(|role| role == "backup").count() == 2).then_some(())
    });
    println!("{} replies", checker.finish());
}

fn a_restart_shorter_than_the_session() {
    // Java starts within this time, usually within 2 s.
    const SESSION_MS: u64 = 10_000;
    let mut zookeeper = ZooKeeper::start(1_000);
    let arguments = ["--window-ms", "10000"];
    let servers = Servers::start_with(2, &zookeeper.quorum(), SESSION_MS, &arguments);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), START);
    for _ in 0..2 {
        let master = servers.master();
        let begin = Instant::now();
        zookeeper.kill();
        let killed = Instant::now();
        zookeeper.run();
        let outage = begin.elapsed();
        let back = Instant::now();
        checker.await_reply(back, START);
        let gap = checker.longest_gap(begin);
        println!("ZooKeeper restarted in {outage:.0?}: no answer for {gap:.0?}");
        // Half of the session is left in the worst case. No client notices a shorter outage.
        if outage < Duration::from_millis(SESSION_MS / 3) {
            let goes_on = checker.got().iter().any(|one| one.at > killed && one.at < back);
            assert!(goes_on, "no timestamp without ZooKeeper");
            let limit = Duration::from_millis(200);
            assert!(!measures() || gap <= limit, "{gap:?} is more than {limit:?}");
            assert_eq!(servers.master(), master, "mastership changed");
        }
    }
    println!("{} replies", checker.finish());
}

/// Starts a node with timers, and with timestamps of which no server can be master.
fn timers_go_on_without_zookeeper() {
    let folder = tempfile::Builder::new().prefix("chronos-ts-").tempdir().expect("room");
    let (clients, thrift, nobody) = (free_port(), free_port(), free_port());
    let file = folder.path().join("chronos.toml");
    let text = format!(
        "[node]\nlisten = \"127.0.0.1:{clients}\"\npin = false\nshards = 2\n[admin]\nenabled = \
         false\n[timestamp]\nenabled = true\nlisten = \"127.0.0.1:{thrift}\"\ncoordination = \
         \"zookeeper\"\nzookeeper_quorum = \"127.0.0.1:{nobody}\"\n"
    );
    std::fs::write(&file, text).expect("a file");
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.arg("--config").arg(&file);
    let mut process = Process::start(&mut command, &folder.path().join("log"));
    let to = std::net::SocketAddr::from(([127, 0, 0, 1], clients));
    until("timers to be served", START, || {
        assert!(process.ended().is_none(), "{}", process.logged());
        let body = "{\"timing\":{\"interval\":60},\"callback\":{\"http\":{\"uri\":\
                    \"http://127.0.0.1:1/\",\"opaque\":\"\"}}}";
        (request(to, "POST", "/timers", body).ok()?.status == 200).then_some(())
    });
    let refused = request(to, "POST", "/timestamps", "").expect("an answer");
    assert_eq!(refused.status, 503, "{refused:?}");
    process.signal("TERM");
    assert!(process.await_end(START).success(), "{}", process.logged());
}
