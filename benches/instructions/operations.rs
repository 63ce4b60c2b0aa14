//! What is counted.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use chronos::wire::thrift::{parse_reply, write_get_timestamps};
use kit::callbacks::{self, Reaction};
use kit::children::Tied;
use kit::until::until;

use super::node::{Client, Counts, LOCALHOST, Node};

/// How often an operation is done before it is counted, and how often while it is counted.
const COUNT: usize = 2_048;
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
}

const fn operation(name: &'static str, kind: Kind, batch: usize) -> Operation {
    Operation { name, kind, batch }
}

pub static OPERATIONS: [Operation; 9] = [
    operation("create x 1", Kind::Create, 1),
    operation("create x 16", Kind::Create, 16),
    operation("update x 1", Kind::Update, 1),
    operation("update x 16", Kind::Update, 16),
    operation("delete x 1", Kind::Delete, 1),
    operation("delete x 16", Kind::Delete, 16),
    operation("create and pop x 16", Kind::CreateAndPop, 16),
    operation("timestamp x 1", Kind::Timestamp, 1),
    operation("timestamp x 16", Kind::Timestamp, 16),
];

impl Operation {
    /// Counts one operation.
    pub fn count(&self) -> Counts {
        let run = match self.kind {
            Kind::Create => create,
            Kind::Update => update,
            Kind::Delete => delete,
            Kind::CreateAndPop => create_and_pop,
            Kind::Timestamp => timestamp,
        };
        run(self.batch).of_one(COUNT as u64)
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

/// Creates timers in batches. Returns their resources.
fn created(
    client: &mut Client,
    callback: SocketAddr,
    delay_s: u32,
    (count, batch): (usize, usize),
) -> Vec<String> {
    let mut resources = Vec::new();
    for numbers in batches(count, batch) {
        let of = |at| request("POST", "/timers", callback, delay_s, at);
        let sent: String = numbers.map(of).collect();
        let told = client.exchange(sent.as_bytes(), answers(batch)).to_vec();
        let told = String::from_utf8(told).expect("heads are text");
        let places = told.lines().filter_map(|line| line.strip_prefix("Location: /timers/"));
        resources.extend(places.map(|id| format!("/timers/{id}")));
    }
    assert_eq!(resources.len(), count, "each create is answered with a place");
    resources
}

fn nobody() -> SocketAddr {
    SocketAddr::new(LOCALHOST, 9)
}

fn create(batch: usize) -> Counts {
    let node = Node::start(&["--admin", "off"]).serving();
    let mut client = Client::connect(node.address);
    let mut work = || drop(created(&mut client, nobody(), HOUR_S, (COUNT, batch)));
    work();
    node.count(work)
}

fn update(batch: usize) -> Counts {
    let node = Node::start(&["--admin", "off"]).serving();
    let mut client = Client::connect(node.address);
    let resources = created(&mut client, nobody(), HOUR_S, (16, 16));
    let mut work = || {
        for numbers in batches(COUNT, batch) {
            let of = |at: usize| request("PUT", &resources[at % 16], nobody(), HOUR_S, at);
            let sent: String = numbers.map(of).collect();
            client.exchange(sent.as_bytes(), answers(batch));
        }
    };
    work();
    node.count(work)
}

fn delete(batch: usize) -> Counts {
    let node = Node::start(&["--admin", "off"]).serving();
    let mut client = Client::connect(node.address);
    let resources = created(&mut client, nobody(), HOUR_S, (2 * COUNT, 16));
    let (first, second) = resources.split_at(COUNT);
    let mut work = |resources: &[String]| {
        for numbers in batches(COUNT, batch) {
            let sent = numbers.fold(String::new(), |mut sent, at| {
                let resource = &resources[at];
                write!(sent, "DELETE {resource} HTTP/1.1\r\nHost: 127.0.0.1:7253\r\n\r\n")
                    .expect("memory");
                sent
            });
            client.exchange(sent.as_bytes(), answers(batch));
        }
    };
    work(first);
    node.count(|| work(second))
}

fn create_and_pop(batch: usize) -> Counts {
    let popped = Arc::new(AtomicUsize::new(0));
    let counter = popped.clone();
    let free = SocketAddr::new(LOCALHOST, 0);
    let (sink, _) = callbacks::serve(free, move |_| {
        counter.fetch_add(1, SeqCst);
        Reaction::OK
    });
    let node = Node::start(&["--admin", "off"]).serving();
    let mut client = Client::connect(node.address);
    let mut work = |popped_by_now: usize| {
        created(&mut client, sink, 2, (COUNT, batch));
        let all = || (popped.load(SeqCst) >= popped_by_now + COUNT).then_some(());
        until("all timers to pop", PATIENCE, all);
    };
    work(0);
    node.count(|| work(COUNT))
}

fn timestamp(batch: usize) -> Counts {
    let file = tempfile::tempdir().expect("room for files");
    let file = file.path().join("bound");
    let file = file.to_str().expect("a path of text");
    let arguments =
        ["timestamp", "serve", "--coordination", "file", "--file", file, "--admin", "off"];
    let made = Node::command().args(["timestamp", "init", "--file", file]).output_tied();
    assert!(made.expect("the binary runs").status.success(), "the file is made");
    let node = Node::start(&arguments);
    let mut client = Client::connect(node.address);
    let mut asked = Vec::new();
    (0..batch).for_each(|_| write_get_timestamps(&mut asked, 1, 1));
    let mut work = || {
        for _ in 0..COUNT / batch {
            client.exchange(&asked, |mut bytes| {
                let mut replies = 0;
                while let Some((_, length)) = parse_reply(bytes).expect("a reply of Thrift") {
                    (bytes, replies) = (&bytes[length..], replies + 1);
                }
                replies == batch
            });
        }
    };
    work();
    node.count(work)
}
