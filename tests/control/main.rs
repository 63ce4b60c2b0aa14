//! A node's life as its operator sees it: start lines, admin API, signals, exit codes, and the
//! demo. Every node takes free ports; its addresses are read from its own start lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kit::children::{self, Tied, signal};
use kit::client::request;

/// Longest wait for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node of its own process, ended with the test.
struct Node {
    process: Child,
    errors: BufReader<ChildStderr>,
    clients: SocketAddr,
    admin: SocketAddr,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Starts a node with one unpinned shard and reads its start lines.
fn start() -> Node {
    start_with(&[])
}

/// Starts a node with these variables.
fn start_with(variables: &[(&str, &str)]) -> Node {
    let arguments = [
        ["--listen", "127.0.0.1:0"],
        ["--admin", "127.0.0.1:0"],
        ["--shards", "1"],
        ["--log-format", "json"],
    ];
    let mut process = command(&arguments.concat())
        .arg("--no-pin")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn_tied()
        .expect("the binary runs");
    let mut errors = BufReader::new(process.stderr.take().expect("piped"));
    let (mut clients, mut admin) = (None, None);
    let mut seen = String::new();
    while admin.is_none() {
        let mut line = String::new();
        let count = errors.read_line(&mut line).expect("text");
        assert!(count > 0, "the node ended before it said where it listens:\n{seen}");
        seen.push_str(&line);
        let event: serde_json::Value = serde_json::from_str(&line).expect("a JSON line");
        let message = event["message"].as_str().unwrap_or_default();
        let address = || {
            let rest = message.split_once("http://").expect("an address").1;
            let end =
                rest.find(|c: char| c == ' ' || c.is_ascii_alphabetic()).unwrap_or(rest.len());
            rest[..end].trim_end_matches(':').parse().expect("an address")
        };
        if message.starts_with("clients connect to") {
            clients = Some(address());
        } else if message.starts_with("admin API on") {
            admin = Some(address());
        }
    }
    let (clients, admin) = (clients.expect("told first"), admin.expect("the loop's end"));
    Node { process, errors, clients, admin }
}

impl Node {
    fn signal(&self, name: &str) {
        let pid = self.process.id();
        let sent = signal(pid, name);
        assert!(sent.success());
    }

    /// The exit status and what was logged until then.
    fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let mut logged = String::new();
        // The end of standard error is the end of the process; the deadline is for a process that
        // hangs.
        let pid = self.process.id();
        let watchdog = std::thread::spawn(move || {
            std::thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
            if Instant::now() >= deadline {
                signal(pid, "KILL");
            }
        });
        self.errors.read_to_string(&mut logged).expect("text");
        watchdog.thread().unpark();
        watchdog.join().expect("the watchdog does not panic");
        (self.process.wait().expect("it has ended"), logged)
    }
}

/// The whole answer of the admin API, or what came before the connection broke.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the answer ends");
    answer
}

#[test]
fn a_node_serves_tells_and_stops_in_order() {
    for name in ["TERM", "INT"] {
        let node = start();
        let timer = r#"{"timing":{"interval":600},"callback":{"http":{"uri":"http://127.0.0.1:9/","opaque":""}}}"#;
        let created = request(node.clients, "POST", "/timers", timer).expect("clients can connect");
        assert_eq!(created.status, 200);
        assert!(get(node.admin, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(get(node.admin, "/readyz").starts_with("HTTP/1.1 200"));
        let metrics = get(node.admin, "/metrics");
        for sample in ["chronos_timers{core=\"0\"} 1", "process_cpu_seconds_total "] {
            assert!(metrics.contains(sample), "{sample} not in\n{metrics}");
        }
        let status = get(node.admin, "/status");
        let body = status.split_once("\r\n\r\n").expect("a head").1;
        let document: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(document["address"], node.clients.to_string());
        assert_eq!(document["pid"], node.process.id());
        assert_eq!(document["state"], "serving");
        assert!(document["process"]["resident_bytes"].as_u64() > Some(1 << 20), "{document}");
        node.signal(name);
        let (status, logged) = node.end();
        assert_eq!(status.code(), Some(0), "{logged}");
        assert!(logged.contains("\"message\":\"stopped\""), "{logged}");
        assert!(logged.contains("lost: 1 timer, because"), "{logged}");
    }
}

/// The limits of core dumps that a process has, in bytes: the soft one and the hard one.
fn core_limits(process: &str) -> [String; 2] {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).expect("Linux");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    let mut words = line.expect("a limit").split_whitespace().map(str::to_owned);
    [(); 2].map(|()| words.next().expect("two limits"))
}

#[test]
fn no_core_dump_has_what_a_node_knows_unless_it_is_wanted() {
    let node = start();
    let limits = core_limits(&node.process.id().to_string());
    assert!(limits.iter().all(|limit| limit == "0" || limit == "1"), "{limits:?}");
    node.signal("TERM");
    node.end();
    let node = start_with(&[("CHRONOS_NODE_CORE_DUMPS", "true")]);
    assert_eq!(core_limits(&node.process.id().to_string()), core_limits("self"));
    node.signal("TERM");
    node.end();
}

#[test]
fn signals_of_the_original_do_not_end_the_node() {
    let node = start();
    node.signal("HUP");
    node.signal("USR1");
    assert!(get(node.admin, "/healthz").starts_with("HTTP/1.1 200"));
    node.signal("TERM");
    let (status, logged) = node.end();
    assert_eq!(status.code(), Some(0), "{logged}");
    assert!(logged.contains("not reloaded: there is no file to read again"), "{logged}");
    assert!(logged.contains("SIGUSR1: comparing all timers"), "{logged}");
}

#[test]
fn a_core_that_the_machine_does_not_have_is_told() {
    let output = command(&["--listen", "127.0.0.1:0", "--admin", "off", "--cores", "8191"])
        .output_tied()
        .expect("the binary runs");
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("8191") && errors.contains("error: "), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn an_address_in_use_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    // A socket without SO_REUSEPORT keeps others out, whatever they ask for.
    let strange = taken.local_addr().expect("bound").to_string();
    let output = command(&["--listen", &strange, "--admin", "off", "--shards", "1", "--no-pin"])
        .output_tied()
        .expect("the binary runs");
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&format!("cannot listen on {strange}")), "{errors}");
}

#[test]
fn the_demo_shows_every_pop_and_ends() {
    let output = command(&["demo"]).output_tied().expect("the binary runs");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{shown}\n{errors}");
    assert_eq!(shown.matches(" ms late").count(), 7, "{shown}");
    assert_eq!(shown.matches("$ curl -i http://127.0.0.1:").count(), 2, "{shown}");
    assert!(shown.contains("7 of 7 pops, each once and none early"), "{shown}");
}

/// A timer far away.
const TIMER: &str =
    r#"{"timing":{"interval":600},"callback":{"http":{"uri":"http://127.0.0.1:9/","opaque":""}}}"#;

#[test]
fn a_reader_of_the_log_that_stalls_holds_up_nobody() {
    let node = start();
    let dropped = || {
        let metrics = get(node.admin, "/metrics");
        let line =
            metrics.lines().find(|line| line.starts_with("chronos_log_lines_dropped_total "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("a sample")
    };
    // Nobody reads now. Each reload has lines; the pipe has 64 KiB, and the node keeps some more.
    let end = Instant::now() + PATIENCE;
    while dropped() == 0.0 {
        assert!(Instant::now() < end, "no line was dropped");
        (0..200).for_each(|_| node.signal("HUP"));
        assert!(get(node.admin, "/healthz").starts_with("HTTP/1.1 200"));
        assert_eq!(request(node.clients, "POST", "/timers", TIMER).expect("served").status, 200);
    }
    node.signal("TERM");
    // Now somebody reads, and has what was said last.
    let (status, logged) = node.end();
    let last = &logged[logged.len().saturating_sub(2_000)..];
    assert_eq!(status.code(), Some(0), "{last}");
    assert!(last.contains("\"message\":\"stopped\""), "{last}");
    assert!(logged.contains("lines of the log were dropped"), "{last}");
}

#[test]
fn a_node_ends_although_nobody_reads_its_log() {
    let mut node = start();
    let end = Instant::now() + PATIENCE;
    while !get(node.admin, "/metrics").lines().any(|line| {
        line.strip_prefix("chronos_log_lines_dropped_total ").is_some_and(|count| count != "0")
    }) {
        assert!(Instant::now() < end, "no line was dropped");
        (0..200).for_each(|_| node.signal("HUP"));
    }
    node.signal("TERM");
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match node.process.try_wait().expect("a child") {
            Some(status) => break status,
            None if Instant::now() >= end => panic!("it does not end"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(0));
}
