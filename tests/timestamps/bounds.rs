//! A person writes or deletes by hand what servers keep in `ZooKeeper`.

use std::time::{Duration, Instant, SystemTime};

use kit::children;
use kit::children::Tied;
use kit::runner::Story;
use zookeeper_client::{Acls, Client, CreateMode};

use super::checker::Checker;
use super::processes::{free_port, until};
use super::servers::{START, Server, Servers};
use super::zookeeper::{block_on, shared};

pub const STORIES: &[Story] = &[
    ("a_backups_node_that_was_deleted_is_made_again", a_backups_node_is_made_again),
    ("a_lost_bound_waits_for_an_order", a_lost_bound_waits_for_an_order),
    ("values_stay_at_the_clock_when_somebody_writes_the_bound", values_stay_at_the_clock),
    ("a_new_cluster_may_be_made_by_hand", a_new_cluster_by_hand),
];

/// The session timeout: the longest that the default window allows. No session ends before its
/// server does.
const SESSION_MS: u64 = 3_000;

/// Runs a conversation with the shared `ZooKeeper`.
fn with_zookeeper<T>(conversation: impl AsyncFnOnce(&Client) -> T) -> T {
    let quorum = shared();
    block_on(async {
        let client = Client::connect(&quorum).await.expect("a session");
        conversation(&client).await
    })
}

fn bound_of(cluster: &str) -> String {
    format!("/chronos/{cluster}/persistent-timestamp")
}

fn delete_bound(cluster: &str) {
    with_zookeeper(async |client| {
        client.delete(&bound_of(cluster), None).await.expect("it is there");
    });
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    now.as_millis() as u64
}

/// Runs `chronos timestamp init` for a cluster of the shared `ZooKeeper`. Returns the exit code and
/// the output.
fn init(cluster: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(["timestamp", "init", "--zookeeper", &shared(), "--cluster", cluster]).args(more);
    let output = command.env_remove("CHRONOS_CONFIG").output_tied().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

/// The master's node is older than the largest step of the clock that is followed. The master must
/// not take the time at which its node was made for the present.
fn values_stay_at_the_clock() {
    let mut servers = Servers::stopped(1, &shared(), SESSION_MS);
    let server = &mut servers.all[0];
    server.set("CHRONOS_TIMESTAMP_CLOCK_JUMP_MAX_MS", "100");
    server.start();
    let began = Instant::now();
    let checker = Checker::of(&[server.address]);
    checker.await_reply(began + Duration::from_millis(1_500), START);
    let bound = (now_ms() + 5) << 18;
    with_zookeeper(async |client| {
        let written = client.set_data(&bound_of(&servers.cluster), &bound.to_be_bytes(), None);
        written.await.expect("written");
    });
    let server = &servers.all[0];
    until("the bound to be noticed", START, || {
        (server.count("foreign_bounds") == 1 && server.status()?["serving"] == true).then_some(())
    });
    // The master goes on above its own bound, and more slowly until the clock has caught up.
    until("values at the clock", START, || {
        let status = server.status()?;
        let is_near = |name: &str| Some(status[name].as_u64()? < 5);
        (is_near("ahead_ms")? && is_near("behind_ms")?).then_some(())
    });
    assert_eq!(server.count("clock_refusals"), 0);
    checker.finish();
}

fn a_lost_bound_waits_for_an_order() {
    let mut servers = Servers::start(2, &shared(), SESSION_MS);
    let cluster = servers.cluster.clone();
    let path = bound_of(&cluster);
    // The bound makes values a minute ahead, as after an original.
    with_zookeeper(async |client| {
        let bound = (now_ms() + 60_000) << 18;
        client.set_data(&path, &bound.to_be_bytes(), None).await.expect("written");
    });
    let checker = Checker::of(&servers.addresses());
    until("values far ahead", START, || (checker.ahead_ms_max() > 50_000).then_some(()));
    delete_bound(&cluster);
    let master = until("a server that misses its bound", START, || {
        servers.all.iter().position(|one| one.count("bounds_missing") > 0)
    });
    let server = &mut servers.all[master];
    let said = until("the log to say what was stored", START, || {
        let said = server.process().logged();
        said.contains("which this server stored last").then_some(said)
    });
    assert!(said.contains(&format!("there is no {path}")), "{said}");
    assert!(said.contains(&format!("chronos timestamp init --zookeeper {}", shared())), "{said}");

    // No server knows the bound any more, and no server guesses it.
    servers.all.iter_mut().for_each(Server::stop);
    servers.all.iter_mut().for_each(Server::spawn);
    for server in &mut servers.all {
        until("a server that misses its bound", START, || {
            server.supervise();
            let missing = &server.status()?["counters"]["bounds_missing"];
            (missing.as_u64()? > 0).then_some(())
        });
        assert_eq!(server.role().as_deref(), Some("starting"));
    }
    let (stopped, replies) = (Instant::now(), checker.got().len());
    let absent = with_zookeeper(async |client| client.check_stat(&path).await);
    assert!(absent.expect("answered").is_none(), "it is not made anew");

    // An operator makes the bound anew.
    let (code, told) = init(&cluster, &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("has lost its bound: say with --above"), "{told}");
    assert_eq!(checker.got().len(), replies, "nothing is handed out");
    let above = checker.highest();
    let (code, told) = init(&cluster, &["--above", &above.to_string()]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains(&format!("above {above}")) && told.contains("half speed"), "{told}");
    assert!(checker.await_reply(stopped, START).first > above);
    let (code, told) = init(&cluster, &["--above", &above.to_string()]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("is there already and keeps the bound"), "{told}");
    checker.finish();
}

fn a_new_cluster_by_hand() {
    let cluster = format!("story-{}", free_port());
    let last = "9223372036854775807";
    assert_eq!(init(&cluster, &["--above", last]).0, Some(2));
    let (code, told) = init(&cluster, &[]);
    assert_eq!(code, Some(0), "{told}");
    let servers = Servers::start_in(&cluster, 1, &shared(), SESSION_MS, &[]);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), START);
    checker.finish();
    // A node that an original has made and never written counts as new. A node with other bytes
    // does not.
    for (bytes, wanted) in [(&b""[..], 0), (b"7 bytes", 1)] {
        let cluster = format!("story-{}", free_port());
        with_zookeeper(async |client| {
            let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
            for (path, data) in
                [(format!("/chronos/{cluster}"), &b""[..]), (bound_of(&cluster), bytes)]
            {
                client.create(&path, data, &lasting).await.expect("made");
            }
        });
        let (code, told) = init(&cluster, &[]);
        assert_eq!(code, Some(wanted), "{told}");
    }
}

fn a_backups_node_is_made_again() {
    let servers = Servers::start(2, &shared(), SESSION_MS);
    let find_backup = || {
        let is_backup = |server: &Server| server.role().as_deref() == Some("backup");
        servers.all.iter().position(is_backup)
    };
    // If the machine is away for a session, the backup becomes master. Then the node is deleted
    // once more.
    until("the node of a backup to be made again", START, || {
        let backup = find_backup()?;
        let name = servers.all[backup].address.to_string().replace(':', "_");
        let path = format!("/chronos/{}/backup-servers/{name}", servers.cluster);
        let deleted = with_zookeeper(async |client| client.delete(&path, None).await);
        deleted.ok()?;
        until("the node, or another backup", START, || {
            let found = with_zookeeper(async |client| client.check_stat(&path).await);
            let is_there = found.is_ok_and(|stat| stat.is_some());
            (is_there || find_backup() != Some(backup)).then_some(is_there.then_some(()))
        })
    });
}
