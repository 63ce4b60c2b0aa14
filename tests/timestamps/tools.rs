//! `chronos timestamp get|servers|watch|bench` while masters come and go.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use chronos::timestamp::COUNTER_BITS;
use kit::children;
use kit::children::Tied;
use kit::runner::Story;
use serde_json::Value;
use zookeeper_client::{Acls, Client, CreateMode};

use super::processes::{Process, until};
use super::servers::{START, Server, Servers};
use super::zookeeper::{block_on, shared};

pub const STORIES: &[Story] = &[
    ("tools_follow_the_master", tools_follow_the_master),
    ("watch_tells_every_change", watch_tells_every_change),
    ("bench_times_a_failover_and_finds_all_in_order", bench_times_a_failover),
    ("servers_are_listed_as_by_the_original", servers_are_listed),
];

/// The session timeout: the longest that the default window allows.
const SESSION_MS: u64 = 3_000;

fn chronos(line: &str) -> Command {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.arg("timestamp").args(line.split_whitespace()).env_remove("CHRONOS_CONFIG");
    command.env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// Runs a command. Panics unless it ends with this code. Returns its standard output.
#[track_caller]
fn told(code: i32, line: &str) -> String {
    let Output { status, stdout, stderr } = chronos(line).output_tied().expect("the binary runs");
    let (out, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(code), "{line}\n{out}{errors}");
    out.into_owned()
}

fn at(servers: &Servers, quorum: &str) -> String {
    format!("--zookeeper {quorum} --cluster {}", servers.cluster)
}

fn host_port(servers: &Servers, place: usize) -> String {
    servers.all[place].address.to_string().replace(':', "_")
}

fn tools_follow_the_master() {
    let quorum = shared();
    let mut servers = Servers::start(2, &quorum, SESSION_MS);
    let place = at(&servers, &quorum);
    let take = |count: u64| {
        let document: Value =
            serde_json::from_str(&told(0, &format!("get --json -n {count} {place}")))
                .expect("JSON");
        let number = |name: &str| document[name].as_u64().expect("a number");
        assert_eq!(number("last") - number("first") + 1, count, "{document}");
        (number("first"), number("last"), document["server"].as_str().map(str::to_owned))
    };
    let (_, last, server) = take(100);
    assert_eq!(server, Some(servers.all[0].address.to_string()));
    let listed = told(0, &format!("servers {place}"));
    let expected = format!(
        "Connected ZooKeeper {quorum}\nMaster is {}\nBackup server is {}\nPersistent-timestamp is ",
        host_port(&servers, 0),
        host_port(&servers, 1)
    );
    assert!(listed.starts_with(&expected), "{listed}");
    // A backup refuses, and is not asked again.
    let backup = servers.all[1].address;
    told(1, &format!("get --server {backup}"));
    servers.all[0].kill();
    // The call comes at once, while the dead master's node is still there.
    let (first, _, server) = take(1);
    assert!(first > last, "{first} {last}");
    assert_eq!(server, Some(backup.to_string()));
    servers.all[1].stop();
    let document: Value =
        serde_json::from_str(&told(1, &format!("servers --json {place}"))).expect("JSON");
    assert_eq!(document["master"], Value::Null);
    // The stop has lowered the bound to what was handed out.
    let bound = document["persistent_timestamp"]["timestamp"].as_u64();
    assert!(bound > Some(first), "{document}");
}

fn watch_tells_every_change() {
    let quorum = shared();
    let mut servers = Servers::start(2, &quorum, SESSION_MS);
    let place = at(&servers, &quorum);
    let folder = tempfile::tempdir().expect("room");
    let log = folder.path().join("watch.log");
    let mut watching =
        Process::start(&mut chronos(&format!("watch --json --every 0.5 {place}")), &log);
    let lines = |watching: &Process| -> Vec<Value> {
        let text = watching.logged();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let find = |watching: &Process, what: &str, is_it: &dyn Fn(&Value) -> bool| {
        until(what, START, || lines(watching).into_iter().find(|line| is_it(line)))
    };
    let first = find(&watching, "the first line", &|_| true);
    assert_eq!(first["changed"][0], "start");
    assert_eq!(first["master"], servers.all[0].address.to_string());
    // The server may not have become master yet when it was first asked.
    let line = find(&watching, "the master's lead", &|line| line["ahead_ms"].is_i64());
    let ahead_ms = line["ahead_ms"].as_i64().expect("just found");
    assert!((-1_000..=4_000).contains(&ahead_ms), "{line}");
    find(&watching, "a line about the bound", &|line| {
        line["changed"] == serde_json::json!(["bound"])
    });
    let has = |line: &Value, word: &str| {
        line["changed"].as_array().is_some_and(|all| all.iter().any(|one| one == word))
    };
    let second = servers.all[1].address.to_string();
    servers.all[0].stop();
    find(&watching, "the change of master", &|line| {
        has(line, "master") && line["master"] == *second
    });
    servers.all[0].start();
    let backup = servers.all[0].address.to_string();
    find(&watching, "the new backup", &|line| {
        has(line, "backups") && line["backups"][0] == *backup
    });
    watching.signal("INT");
    assert!(watching.await_end(START).success());
    let text = told(0, &format!("watch --for 0.1 {place}"));
    assert!(text.contains("  start: master ") || text.is_empty(), "{text}");
}

fn bench_times_a_failover() {
    let quorum = shared();
    let mut servers = Servers::start(3, &quorum, SESSION_MS);
    let place = at(&servers, &quorum);
    let folder = tempfile::tempdir().expect("room");
    let (out, flags) = (folder.path().join("out.json"), "--duration 0 -c 4 --rate 400 --json");
    let begun = Instant::now();
    let mut bench = Process::start(&mut chronos(&format!("bench {flags} {place}")), &out);
    // The load is under way when the server counts calls.
    let master = servers.master();
    await_calls(&servers.all[master]);
    servers.all[master].kill();
    let other = until("another master", START, || servers.find_master());
    await_calls(&servers.all[other]);
    bench.signal("INT");
    let status = bench.await_end(START);
    let document: Value = serde_json::from_str(&bench.logged()).expect("JSON");
    assert!(status.success(), "{document:#}");
    assert_eq!(document["order"]["is_kept"], true);
    let failovers = document["failovers"].as_array().expect("a list");
    assert!(!failovers.is_empty(), "{document:#}");
    let failover = &failovers[0];
    assert_eq!(failover["server"], servers.all[other].address.to_string(), "{document:#}");
    assert_eq!(failover["connections"], 4, "{document:#}");
    let ms = |name: &str| failover[name].as_f64().expect("a number");
    assert!(ms("gap_all_ms") > 100.0, "a session ends first: {document:#}");
    assert!(ms("gap_max_ms") >= ms("from_first_error_max_ms"), "{document:#}");
    assert!(ms("gap_max_ms") < begun.elapsed().as_secs_f64() * 1e3, "{document:#}");
    // The calls that were due meanwhile waited, and an open loop counts their wait.
    assert!(document["latency_us"]["max"].as_f64() > Some(1e5), "{document:#}");
}

/// Waits until clients have been calling for 200 ms.
fn await_calls(server: &Server) {
    let last = || server.status()?["last"].as_str()?.parse::<u64>().ok().filter(|last| *last > 0);
    let first = until("a call", START, last);
    until("calls", START, || last().filter(|last| last - first > 200 << COUNTER_BITS));
}

/// Lists servers from nodes as the original leaves them.
fn servers_are_listed() {
    let quorum = shared();
    let cluster = format!("listed-{}", super::processes::free_port());
    let base = format!("/chronos/{cluster}");
    let place = format!("--zookeeper {quorum} --cluster {cluster}");
    let missing = told(1, &format!("servers {place}"));
    let lines = format!("Connected ZooKeeper {quorum}\n{base} doesn't exist, exit immediately\n");
    assert_eq!(missing, lines);
    told(1, &format!("get --tries 1 {place}"));
    let _session = block_on(async {
        let client = Client::connector()
            .with_session_timeout(Duration::from_secs(2))
            .connect(&quorum)
            .await
            .expect("it runs");
        let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(&base, &lasting).await.expect("a node");
        client
    });
    let empty = told(1, &format!("servers {place}"));
    assert_eq!(
        empty,
        format!(
            "Connected ZooKeeper {quorum}\nNo master is running\nNo backup master is running\n\
             {base}/persistent-timestamp doesn't exit\n"
        )
    );
    block_on(async {
        let client = Client::connect(&quorum).await.expect("it runs");
        let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let create = async |path: &str, data: &[u8]| {
            client.create(&format!("{base}/{path}"), data, &lasting).await.expect("a node");
        };
        create("backup-servers", b"").await;
        create("backup-servers/127.0.0.1_7912", b"127.0.0.1_7912").await;
        create("master", b"127.0.0.1_7911").await;
        create("persistent-timestamp", b"").await;
    });
    let listed = told(0, &format!("servers {place}"));
    let tail = "Master is 127.0.0.1_7911\nBackup server is 127.0.0.1_7912\nPersistent-timestamp is \
                0 (1970-01-01 00:00:00 +0000)\n";
    assert!(listed.ends_with(tail), "{listed}");
}
