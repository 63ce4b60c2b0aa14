//! `chronos timestamp` from outside: translation, logs, and the tools against a server that
//! answers as the test wants: in either form of reply, as a backup, going back in time. Real
//! servers and a real `ZooKeeper`: tests/timestamps.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::SystemTime;

use kit::children;
use kit::children::Tied;
use kit::ports;
use serde_json::Value;

/// How a server answers.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fake {
    /// In the strict form.
    Strict,
    /// In the original's form.
    Old,
    /// Every twentieth answer is a second behind.
    GoesBack,
    /// Every twentieth answer is given twice, to whoever comes next.
    Repeats,
    /// Closes every connection after ten answers.
    Hangs10,
    /// Refuses with an exception.
    Backup,
    /// Speaks something else.
    Http,
}

/// Answers for as long as the test runs: its threads end with the process.
fn serve(fake: Fake) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let state = Arc::new(State { last: AtomicU64::new(0), answers: AtomicU64::new(0) });
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let state = state.clone();
            thread::spawn(move || talk(fake, &state, stream));
        }
    });
    address
}

struct State {
    last: AtomicU64,
    answers: AtomicU64,
}

impl State {
    /// The first of `count` values.
    fn next(&self, fake: Fake, count: u64) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let floor = (now.as_millis() as u64) << 18;
        let take = |last: u64| last.max(floor) + count;
        let last = self.last.fetch_update(SeqCst, SeqCst, |last| Some(take(last))).expect("some");
        let first = take(last) - count + 1;
        match (fake, (self.answers.fetch_add(1, SeqCst) + 1).is_multiple_of(20)) {
            (Fake::GoesBack, true) => first - (1_000 << 18),
            // What the call before got.
            (Fake::Repeats, true) => last + 1 - count,
            _ => first,
        }
    }
}

fn talk(fake: Fake, state: &State, mut stream: TcpStream) {
    stream.set_nodelay(true).expect("an open socket");
    for answered in 0.. {
        let Some((name, seqid, range)) = read_call(&mut stream) else { return };
        if fake == Fake::Hangs10 && answered == 10 {
            return;
        }
        let mut reply = Vec::new();
        let message_type = if fake == Fake::Backup { 3u8 } else { 2 };
        if fake == Fake::Old {
            reply.extend((name.len() as u32).to_be_bytes());
            reply.extend(&name);
            reply.push(message_type);
        } else {
            reply.extend([0x80, 1, 0, message_type]);
            reply.extend((name.len() as u32).to_be_bytes());
            reply.extend(&name);
        }
        reply.extend(seqid);
        match fake {
            Fake::Http => reply = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            Fake::Backup => {
                let text = b"not the master: ask 10.0.0.1:7911";
                reply.extend([11, 0, 1]);
                reply.extend((text.len() as u32).to_be_bytes());
                reply.extend(text);
                reply.extend([8, 0, 2, 0, 0, 0, 6, 0]);
            }
            _ => {
                reply.extend([10, 0, 0]);
                reply.extend(state.next(fake, u64::from(range)).to_be_bytes());
                reply.push(0);
            }
        }
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

/// A strict call of `getTimestamps`: its name, number and range.
fn read_call(stream: &mut TcpStream) -> Option<(Vec<u8>, [u8; 4], u32)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).ok()?;
    assert_eq!(head[..4], [0x80, 1, 0, 1], "a strict call");
    let mut name = vec![0; u32::from_be_bytes(head[4..].try_into().expect("four")) as usize];
    stream.read_exact(&mut name).ok()?;
    assert_eq!(name, b"getTimestamps", "what the Java client calls");
    let mut rest = [0; 12];
    stream.read_exact(&mut rest).ok()?;
    assert_eq!(rest[4..7], [8, 0, 1], "an i32 with number 1");
    assert_eq!(rest[11], 0, "the end of the arguments");
    let range = u32::from_be_bytes(rest[7..11].try_into().expect("four"));
    Some((name, rest[..4].try_into().expect("four"), range))
}

struct Ended {
    code: Option<i32>,
    out: String,
    errors: String,
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32, text: &str) -> Ended {
        let all = format!("{}{}", self.out, self.errors);
        assert_eq!(self.code, Some(code), "{all}");
        assert!(all.contains(text), "`{text}` is not in:\n{all}");
        self
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}:\n{}", self.out))
    }
}

fn run_with(arguments: &[&str], input: &[u8]) -> Ended {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.arg("timestamp").args(arguments).env_clear().env("TZ", "UTC");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn_tied().expect("the binary runs");
    // A command that does not read its input may have ended already.
    let _ = process.stdin.take().expect("piped").write_all(input);
    let Output { status, stdout, stderr } = process.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: status.code(), out: text(stdout), errors: text(stderr) }
}

fn run(line: &str) -> Ended {
    run_with(&line.split_whitespace().collect::<Vec<_>>(), b"")
}

#[test]
fn timestamps_are_translated_in_both_directions() {
    let told = run("translate 365565981241901056");
    assert_eq!(told.expect(0, "").out, "2014-03-11 07:39:09.049 +0000 0\n");
    let told = run_with(&["translate", "2014-03-11 07:39:09.049", "1394523549049"], b"");
    let first = 1_394_523_549_049u64 << 18;
    assert_eq!(told.expect(0, "").out, format!("{first}\n{first}\n"));
    let told = run("translate --zone Asia/Shanghai --json 365565981241901057");
    let document = told.expect(0, "").json();
    assert_eq!(document["time"], "2014-03-11T15:39:09.049+08:00");
    assert_eq!(
        (&document["counter"], &document["unix_ms"]),
        (&1.into(), &1_394_523_549_049u64.into())
    );
    run("translate nonsense").expect(2, "neither a timestamp nor a time");
    run("translate 365565981241901056 nonsense").expect(2, "`nonsense`");
    run("translate --zone Atlantis/Centre 1").expect(2, "no time zone `Atlantis/Centre`");
    let told = run_with(&["translate"], b"365565981241901056\nnonsense\n1394523549049\n");
    let told = told.expect(1, "line 2: `nonsense`");
    assert_eq!(told.out.lines().count(), 3, "{}", told.out);
    let told = run_with(&["translate"], b"365565981241901056");
    assert_eq!(told.expect(0, "").out, "2014-03-11 07:39:09.049 +0000 0\n");
}

#[test]
fn timestamps_are_taken_from_servers_of_both_kinds() {
    for fake in [Fake::Strict, Fake::Old] {
        let server = serve(fake).to_string();
        let first: u64 = run(&format!("get --server {server}"))
            .expect(0, "")
            .out
            .trim()
            .parse()
            .expect("a number");
        let told = run(&format!("get -n 100 --server {server}")).expect(0, "");
        let range: Vec<u64> =
            told.out.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        assert!(
            range.len() == 2 && range[0] > first && range[1] == range[0] + 99,
            "{fake:?} {range:?}"
        );
        let document = run(&format!("get --json --server {server}")).expect(0, "").json();
        assert!(document["first"].as_u64() > Some(range[1]), "{document}");
        assert_eq!(document["server"], server);
        let told = run(&format!("get -H --server {server}")).expect(0, " this clock\n");
        assert!(told.out.contains(" +0000, counter "), "{}", told.out);
    }
}

#[test]
fn a_server_that_gives_none_is_told() {
    let backup = serve(Fake::Backup);
    run(&format!("get --server {backup}")).expect(1, "not the master: ask 10.0.0.1:7911");
    let other = serve(Fake::Http);
    run(&format!("get --server {other} --tries 1"))
        .expect(1, "does not speak as a timestamp server");
    let told = run(&format!("get --server 127.0.0.1:{} --tries 4", free_port()))
        .expect(1, "cannot connect to");
    assert_eq!(told.errors.matches("trying again, 4 times").count(), 1, "{}", told.errors);
    assert_eq!(told.errors.lines().count(), 2, "the failure and the end: {}", told.errors);
    // A backup of the original: connections succeed, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound");
    run(&format!("get --server {address} --tries 1 --timeout-ms 100")).expect(1, "within 100 ms");
    run(&format!("bench --server {address} --timeout-ms 100")).expect(1, "within 100 ms");
    let nowhere = format!("127.0.0.1:{}", free_port());
    run(&format!("get --zookeeper {nowhere} --tries 1")).expect(1, "no session with ZooKeeper");
    run(&format!("watch --zookeeper {nowhere}")).expect(1, "no session with ZooKeeper");
    let told = run(&format!("servers --zookeeper {nowhere}"));
    let told = told.expect(1, "no session with ZooKeeper");
    let line = format!("Error to list default-cluster chronos servers with ZooKeeper {nowhere}\n");
    assert_eq!(told.out, line);
}

/// A port where nobody listens.
fn free_port() -> u16 {
    ports::free_port(&[[127, 0, 0, 1].into()])
}

#[test]
fn wrong_command_lines_are_told() {
    for (line, told) in [
        ("get --server nonsense", "expected host:port"),
        ("get -n 0", "1..=262144"),
        ("get -n 262145", "1..=262144"),
        ("get --cluster x", "--zookeeper"),
        ("get --server a:1 --zookeeper b:1", "cannot be used with"),
        ("servers --cluster a/b", "expected a name without `/`"),
        ("watch --cluster .. --for 1", "expected a name without `/`"),
        ("watch --for 0", "expected 0.1 to"),
        ("bench --rate 0", "above 0"),
        ("bench --connections 0", "1..=100000"),
        ("", "Usage"),
    ] {
        run(line).expect(2, told);
    }
    for command in ["get", "servers", "watch", "translate", "bench"] {
        run(&format!("{command} --help")).expect(0, "Examples:");
    }
}

fn bench(fake: Fake, flags: &str) -> (Ended, Value) {
    let server = serve(fake);
    let told = run(&format!("bench --server {server} --duration 1 --json {flags}"));
    let document = told.json();
    (told, document)
}

#[test]
fn a_server_that_keeps_its_promise_is_measured() {
    for (fake, flags) in [(Fake::Strict, "-c 3"), (Fake::Old, "-c 2 --range 7 --threads 1")] {
        let (told, document) = bench(fake, flags);
        assert_eq!(told.code, Some(0), "{document:#}");
        let calls = document["calls"].as_u64().expect("a number");
        assert!(calls > 0, "{document:#}");
        assert_eq!(document["order"]["compared"], calls);
        assert_eq!(document["timestamps"], calls * document["range"].as_u64().expect("a number"));
        assert_eq!(
            (&document["errors"], &document["failovers"]),
            (&0.into(), &Value::Array(vec![]))
        );
        let latency = |name: &str| document["latency_us"][name].as_f64().expect("a number");
        assert!(0.0 < latency("p50") && latency("p50") <= latency("max"), "{document:#}");
    }
    let server = serve(Fake::Strict);
    let told = run(&format!("bench --server {server} --duration 1 -c 1"));
    told.expect(0, "answers, each above all before it");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let (told, document) = bench(Fake::Strict, "-c 5 --rate 200");
    assert_eq!(told.code, Some(0), "{document:#}");
    assert_eq!(document["loop"], "open");
    let count = |name: &str| document[name].as_u64().expect("a number");
    // What was due and not made is told; each connection has its own time to call. A machine that
    // stops the run late adds what was due until then.
    let made = (count("calls") + count("unanswered")) as f64;
    let longest = document["duration_s"].as_f64().expect("a number") * 200.0;
    assert!((200.0 - 6.0..=longest + 6.0).contains(&made), "{document:#}");
}

#[test]
fn values_that_go_back_are_found() {
    for connections in ["-c 1", "-c 4"] {
        let (told, document) = bench(Fake::GoesBack, connections);
        assert_eq!(told.code, Some(1), "{document:#}");
        let order = &document["order"];
        assert_eq!(order["is_kept"], false);
        assert!(order["not_above_earlier"].as_u64() > Some(0), "{document:#}");
        assert!(order["examples"][0]["got"].as_u64() < order["examples"][0]["above"].as_u64());
    }
    let server = serve(Fake::GoesBack);
    let told = run(&format!("bench --server {server} --duration 1"));
    told.expect(1, "VIOLATED").expect(1, " ms back)");
}

#[test]
fn values_that_come_twice_are_found() {
    for flags in ["-c 1", "-c 8 --range 10"] {
        let (told, document) = bench(Fake::Repeats, flags);
        assert_eq!(told.code, Some(1), "{document:#}");
        let order = &document["order"];
        // Which of the two is found depends on whether the calls overlapped; twins always are.
        assert!(order["overlaps"].as_u64() > Some(0), "{document:#}");
    }
}

#[test]
fn connections_that_are_closed_are_made_again() {
    let (told, document) = bench(Fake::Hangs10, "-c 2");
    assert_eq!(told.code, Some(0), "{document:#}");
    let errors = document["errors"].as_u64().expect("a number");
    let calls = document["calls"].as_u64().expect("a number");
    assert!(errors > 0 && document["reconnections"].as_u64() > Some(0), "{document:#}");
    assert!(calls / 10 <= errors + 2, "{document:#}");
    assert_eq!(document["failovers"], Value::Array(vec![]), "nobody else answered");
}

#[test]
fn logs_of_the_original_are_summed() {
    let folder = tempfile::tempdir().expect("room");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file in the test's folder");
        path.to_str().expect("plain").to_owned()
    };
    let sample = "Total 10.003, in 10.003 seconds, qps: 10043.38698390483, latency: 0.0995ms\n";
    let after = "After 2014-03-11 15:39:09, the total failover time is 3.05 seconds\n";
    let good = file("good.log", &format!("begun\n{sample}{after}{sample}"));
    let told = run(&format!("bench --read-log {good}")).expect(0, "Skipped lines: 1\n");
    assert!(told.out.starts_with("Average failover time: 3.05 "), "{}", told.out);
    let document = run(&format!("bench --json --read-log {good}")).expect(0, "").json();
    assert_eq!(document["qps_per_client"]["count"], 2);
    let quiet = file("quiet.log", sample);
    run(&format!("bench --read-log {quiet}")).expect(0, "Average failover time: none\n");
    let fatal = file("fatal.log", &format!("{sample}Fatal error to get a lower timestamp 4\n"));
    run(&format!("bench --read-log {fatal}")).expect(1, "Order violated: 1 times");
    run(&format!("bench --read-log {}", file("empty.log", ""))).expect(1, "nothing in it");
    run(&format!("bench --read-log {}/none", folder.path().display())).expect(1, "/none: ");
    run(&format!("bench --read-log {good} --rate 5")).expect(2, "cannot be used with");
}
