//! What is counted.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use chronos::wire::thrift::{parse_reply, write_get_timestamps};
use kit::callbacks::{self, Reaction};
use kit::children::Tied;
use kit::ports::free_port;
use kit::until::until;

use super::node::{Client, Counts, LOCALHOST, Node};
use super::pair::Pair;

/// Timers that a node holds before an operation is counted.
const HELD: usize = 4_352;
/// How often an operation is done before it is counted.
const WARM_UP: usize = 256;
/// How often an operation is done while it is counted.
const COUNT: usize = 2_048;
/// The same for timestamps, which are cheap, and for creates of sixteen in one send. Those share a
/// page of the index, which is searched fast or slowly as the page is just split or almost full. It
/// takes many pages for chance to make little of that.
const COUNT_OF_MANY: usize = 8_192;
/// A timer of an hour: none pops while others are counted.
const HOUR_S: u32 = 3_600;
/// Longest wait for all pops.
const PATIENCE: Duration = Duration::from_secs(300);

/// One row of the table.
pub struct Operation {
    /// What it does, and how many requests each send carries.
    pub name: &'static str,
    kind: Kind,
    batch: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Create,
    Update,
    Delete,
    CreateAndPop,
    Timestamp,
    ReplicatedCreate,
    ReplicasCreate,
}

const fn operation(name: &'static str, kind: Kind, batch: usize) -> Operation {
    Operation { name, kind, batch }
}

pub static OPERATIONS: [Operation; 13] = [
    operation("create x 1", Kind::Create, 1),
    operation("create x 16", Kind::Create, 16),
    operation("update x 1", Kind::Update, 1),
    operation("update x 16", Kind::Update, 16),
    operation("delete x 1", Kind::Delete, 1),
    operation("delete x 16", Kind::Delete, 16),
    operation("create and pop x 16", Kind::CreateAndPop, 16),
    operation("timestamp x 1", Kind::Timestamp, 1),
    operation("timestamp x 16", Kind::Timestamp, 16),
    operation("replicated create x 1", Kind::ReplicatedCreate, 1),
    operation("replicated create x 16", Kind::ReplicatedCreate, 16),
    operation("replica's create x 1", Kind::ReplicasCreate, 1),
    operation("replica's create x 16", Kind::ReplicasCreate, 16),
];

impl Operation {
    /// Counts one operation.
    pub fn count(&self) -> Counts {
        let (run, is_of_many): (fn(usize, usize) -> Counts, _) = match self.kind {
            Kind::Create => (create, true),
            Kind::Update => (update, false),
            Kind::Delete => (delete, false),
            Kind::CreateAndPop => (create_and_pop, true),
            Kind::Timestamp => (timestamp, true),
            Kind::ReplicatedCreate => (replicated_create, true),
            Kind::ReplicasCreate => (replicas_create, true),
        };
        let count = if is_of_many && self.batch > 1 { COUNT_OF_MANY } else { COUNT };
        run(self.batch, count).of_one(count as u64)
    }
}

/// The numbers below `count`, in batches.
fn batches(count: usize, batch: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..count / batch).map(move |at| at * batch..(at + 1) * batch)
}

/// A request with a timer as the load generator writes it: a URI of 42 bytes, 40 bytes of opaque.
fn request(method: &str, resource: &str, callback: SocketAddr, delay_s: u32, at: usize) -> String {
    let body = format!(
        "{{\"timing\":{{\"interval\":{delay_s},\"repeat-for\":{delay_s}}},\"callback\":{{\"http\":\
         {{\"uri\":\"http://{callback}/calls/{at:010}\",\"opaque\":\
         \"call-leg-9f3c/terminating;sequence=0042/\"}}}}}}"
    );
    format!(
        "{method} {resource} HTTP/1.1\r\nHost: 127.0.0.1:7253\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Whether as many answers without a body are there. Panics unless each is 200.
fn answers(count: usize) -> impl Fn(&[u8]) -> bool {
    move |bytes| {
        let ends = bytes.windows(4).filter(|window| window == b"\r\n\r\n").count();
        let done = bytes.windows(12).filter(|window| window == b"HTTP/1.1 200").count();
        assert!(done >= ends, "refused: {}", String::from_utf8_lossy(bytes));
        ends == count
    }
}

/// Creates `count` timers in batches.
fn post(client: &mut Client, callback: SocketAddr, delay_s: u32, count: usize, batch: usize) {
    for numbers in batches(count, batch) {
        let of = |at| request("POST", "/timers", callback, delay_s, at);
        let sent: String = numbers.map(of).collect();
        client.exchange(sent.as_bytes(), answers(batch));
    }
}

fn nobody() -> SocketAddr {
    SocketAddr::new(LOCALHOST, 9)
}

/// A node alone that holds timers, a client of it, and the timers' resources.
fn holding() -> (Node, Client, Vec<String>) {
    let node = Node::start(&["--admin", "off"]).serving();
    let mut client = Client::connect(node.address);
    let resources = hold(&mut client);
    (node, client, resources)
}

/// Makes [`HELD`] timers and returns their resources. The client chooses their ids, each of another
/// page of the index.
fn hold(client: &mut Client) -> Vec<String> {
    let resource = |at: usize| format!("/timers/{:016x}-2", at << 6);
    for numbers in batches(HELD, 16) {
        let of = |at| request("PUT", &resource(at), nobody(), HOUR_S, at);
        client.exchange(numbers.map(of).collect::<String>().as_bytes(), answers(16));
    }
    (0..HELD).map(resource).collect()
}

fn create(batch: usize, count: usize) -> Counts {
    let (node, mut client, _) = holding();
    let mut work = |times| post(&mut client, nobody(), HOUR_S, times, batch);
    work(WARM_UP);
    node.count(|| work(count))
}

fn update(batch: usize, count: usize) -> Counts {
    let (node, mut client, resources) = holding();
    let mut work = |times| {
        for numbers in batches(times, batch) {
            let of = |at: usize| request("PUT", &resources[at % 16], nobody(), HOUR_S, at);
            let sent: String = numbers.map(of).collect();
            client.exchange(sent.as_bytes(), answers(batch));
        }
    };
    work(WARM_UP);
    node.count(|| work(count))
}

fn delete(batch: usize, count: usize) -> Counts {
    let (node, mut client, resources) = holding();
    let (before, rest) = resources.split_at(WARM_UP);
    let mut work = |resources: &[String]| {
        for numbers in batches(resources.len(), batch) {
            let sent = numbers.fold(String::new(), |mut sent, at| {
                let resource = &resources[at];
                write!(sent, "DELETE {resource} HTTP/1.1\r\nHost: 127.0.0.1:7253\r\n\r\n")
                    .expect("memory");
                sent
            });
            client.exchange(sent.as_bytes(), answers(batch));
        }
    };
    work(before);
    node.count(|| work(&rest[..count]))
}

fn create_and_pop(batch: usize, count: usize) -> Counts {
    let popped = Arc::new(AtomicUsize::new(0));
    let counter = popped.clone();
    let free = SocketAddr::new(LOCALHOST, 0);
    let (sink, _) = callbacks::serve(free, move |_| {
        counter.fetch_add(1, SeqCst);
        Reaction::OK
    });
    let (node, mut client, _) = holding();
    let mut work = |times, popped_then: usize| {
        post(&mut client, sink, 2, times, batch);
        let all = || (popped.load(SeqCst) >= popped_then).then_some(());
        until("all timers to pop", PATIENCE, all);
    };
    work(WARM_UP, WARM_UP);
    node.count(|| work(count, WARM_UP + count))
}

/// What the node computes that takes a create from the client and gives it to the other replica.
fn replicated_create(batch: usize, count: usize) -> Counts {
    let pair = Pair::start();
    create_in_pair(&pair, &pair.counted, batch, count)
}

/// What the other replica computes for a create.
fn replicas_create(batch: usize, count: usize) -> Counts {
    let pair = Pair::start();
    create_in_pair(&pair, &pair.plain, batch, count)
}

/// Creates timers at one node of a pair.
fn create_in_pair(pair: &Pair, at: &Node, batch: usize, count: usize) -> Counts {
    let mut client = Client::connect(at.address);
    hold(&mut client);
    let mut work = |times| post(&mut client, nobody(), HOUR_S, times, batch);
    work(WARM_UP);
    pair.await_timers(HELD + WARM_UP);
    let counts = pair.counted.count(|| work(count));
    pair.await_timers(HELD + WARM_UP + count);
    counts
}

fn timestamp(batch: usize, count: usize) -> Counts {
    let file = tempfile::tempdir().expect("room for files");
    let file = file.path().join("bound");
    let file = file.to_str().expect("a path of text");
    let made = Node::command().args(["timestamp", "init", "--file", file]).output_tied();
    assert!(made.expect("the binary runs").status.success(), "the file is made");
    // The node serves timers as well, so that it can be told to write its counts.
    let address = SocketAddr::new(LOCALHOST, free_port(&[LOCALHOST]));
    let at = SocketAddr::new(LOCALHOST, free_port(&[LOCALHOST]));
    let variables = [
        ("CHRONOS_TIMESTAMP_ENABLED", "true"),
        ("CHRONOS_TIMESTAMP_LISTEN", &at.to_string()),
        ("CHRONOS_TIMESTAMP_COORDINATION", "file"),
        ("CHRONOS_TIMESTAMP_FILE", file),
    ];
    let node = Node::start_at(address, true, &["--admin", "off"], &variables).serving();
    let mut client = Client::connect(at);
    let mut asked = Vec::new();
    (0..batch).for_each(|_| write_get_timestamps(&mut asked, 1, 1));
    let mut work = |times| {
        for _ in 0..times / batch {
            client.exchange(&asked, |mut bytes| {
                let mut replies = 0;
                while let Some((_, length)) = parse_reply(bytes).expect("a reply of Thrift") {
                    (bytes, replies) = (&bytes[length..], replies + 1);
                }
                replies == batch
            });
        }
    };
    work(WARM_UP);
    node.count(|| work(count))
}
