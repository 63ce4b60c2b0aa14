//! Java clients of the original, with their libraries (`libthrift`, `ZooKeeper`), their way to a
//! master, their messages, and both forms of replies.

use std::path::Path;
use std::process::Output;

use chronos::timestamp::RANGE_MAX;
use kit::children::{Tied, command};
use kit::runner::{Story, cannot_run};

use super::servers::Servers;
use super::zookeeper::shared;

pub const STORIES: &[Story] = &[
    ("java_clients_read_versioned_replies", java_clients_read_versioned_replies),
    ("java_clients_read_old_replies", java_clients_read_old_replies),
];

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/timestamps/Client.java");
/// The jars of Debian's packages `libthrift-java` and `zookeeper`.
const THRIFT: &str = "/usr/share/java/thrift.jar";
const CLASSES: &str = "/usr/share/java/thrift.jar:/usr/share/java/zookeeper.jar:/usr/share/java/\
                       slf4j-api.jar";

/// Runs the client to its end.
fn java(servers: &Servers, quorum: &str, calls: u32, range: i64) -> Output {
    if !Path::new(THRIFT).exists() {
        cannot_run(format!("there is no {THRIFT}: apt-get install -y libthrift-java"));
    }
    if !command("javac").arg("-version").output_tied().is_ok_and(|told| told.status.success()) {
        cannot_run("there is no javac: apt-get install -y default-jdk-headless");
    }
    let mut java = command("java");
    java.args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", CLASSES, CLIENT]);
    java.args([quorum, &servers.cluster, &calls.to_string(), &range.to_string()]);
    java.output_tied().expect("java runs")
}

#[track_caller]
fn read_both_ways(servers: &Servers, quorum: &str) {
    let mut least = 0;
    for (calls, range) in [(2_000, 1), (20, 1_000)] {
        let Output { status, stdout, stderr } = java(servers, quorum, calls, range);
        let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{said}{errors}");
        let values: Vec<u64> = said.split_whitespace().map(|n| n.parse().expect(&said)).collect();
        assert!(least < values[0] && values[0] + u64::from(calls) * range as u64 <= values[1] + 1);
        least = values[1];
    }
    for range in [0, -5, i64::from(RANGE_MAX) + 1] {
        let Output { status, stderr, .. } = java(servers, quorum, 1, range);
        let errors = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && errors.contains("TApplicationException"), "{range}: {errors}");
    }
}

fn java_clients_read_versioned_replies() {
    let quorum = shared();
    let servers = Servers::start(2, &quorum, 3_000);
    read_both_ways(&servers, &quorum);
}

fn java_clients_read_old_replies() {
    let quorum = shared();
    let servers = Servers::start_with(1, &quorum, 3_000, &["--replies", "old"]);
    read_both_ways(&servers, &quorum);
}
