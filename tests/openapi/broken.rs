//! Requests that are wrong before anybody looks at what they are about: each is made on each
//! operation.

use std::collections::BTreeSet;
use std::io::Write;
use std::thread;

use super::contract::{Contract, Operation, items};
use super::node::{Node, Tokens};
use super::wire::{Ask, connect, exchange};

const PROBLEM: &str = "Accept: application/problem+json";
/// Small limits.
const STRICT: &str = "[limits]\nheader_bytes_max = 1024\nbody_bytes_max = 65536\n\
    opaque_bytes_max = 1000\n";
/// What may wait to be complete is one request of the longest.
const CROWDED: &str = "partial_bytes_per_core_max = 66560\n";

/// Whether an operation documents this status.
fn has(operation: &Operation, status: u16) -> bool {
    operation.value["responses"].get(status.to_string()).is_some()
}

fn has_reason(operation: &Operation, group: &str) -> bool {
    items(&operation.value["x-reasons"]).iter().any(|one| one == group)
}

/// The request of an operation, with errors as text and as a problem.
fn both(contract: &Contract, operation: &Operation) -> [Ask; 2] {
    let ask = contract.example(&operation.id, &[]);
    [ask.clone(), ask.with(PROBLEM)]
}

/// The bytes of a request that is broken in the way of a status.
fn broken(ask: &Ask, status: u16) -> Vec<u8> {
    let whole = ask.text();
    let line = |more: &str| whole.replacen("\r\n", &format!("\r\n{more}\r\n"), 1);
    let unfinished = |length: usize, sent: usize| {
        let head = Ask { body: String::new(), ..ask.clone() }.text();
        let head = head.replace("Content-Length: 0", &format!("Content-Length: {length}"));
        head + &"x".repeat(sent)
    };
    let text = match status {
        400 => line("Content-Length: 1"),
        408 => unfinished(10, 5),
        // From the address of a node a longer timer might come, so that the body is read first.
        413 => Ask { body: ask.body.clone() + &" ".repeat(65_537), ..ask.clone() }.text(),
        414 => whole.replacen(" HTTP/", &format!("?{} HTTP/", "y".repeat(1_024)), 1),
        417 => line("Expect: 200-ok"),
        431 => line("a: b\r\n".repeat(65).trim_end()),
        501 => line("Transfer-Encoding: gzip"),
        503 => unfinished(65_000, 60_000),
        505 => whole.replacen("HTTP/1.1", "HTTP/2.0", 1),
        other => panic!("nothing breaks a request so that it is answered {other}"),
    };
    // Two lengths, or a length beside a coding, would be another mistake.
    let text = if status == 501 { text.replace("Content-Length", "X-Length") } else { text };
    text.into_bytes()
}

/// What is no request, comes too slowly, or is too long.
pub fn requests(contract: &Contract) {
    let strict = Node::start(STRICT);
    let hasty = Node::start("[limits]\nidle_timeout_ms = 100\n");
    thread::scope(|scope| {
        let (strict, hasty) = (&strict, &hasty);
        for operation in &contract.operations {
            scope.spawn(move || {
                for ask in both(contract, operation) {
                    for status in [400, 408, 413, 414, 417, 431, 501, 505] {
                        if !has(operation, status) {
                            continue;
                        }
                        let node = if status == 408 { hasty } else { strict };
                        let answer = contract.ask_in(node.address, &ask, &broken(&ask, status));
                        if answer.status != status {
                            contract.note(format!("{}: no {status}: {answer:?}", operation.id));
                        }
                    }
                }
            });
        }
    });
    crowd(contract);
    for operation in &contract.operations {
        let lacks_tokens = ["list-token", "job-token"].iter().any(|it| has_reason(operation, it));
        if lacks_tokens {
            contract.refused(strict.address, &contract.example(&operation.id, &[]), 403);
        }
    }
}

/// Of two connections that hold too much together the one that holds more is refused.
fn crowd(contract: &Contract) {
    let node = Node::start(&format!("{STRICT}{CROWDED}"));
    let mut other = connect(node.address);
    let text = Ask::new("PUT", "/timers/by-name/a").body(&"x".repeat(30_001)).text();
    other.write_all(&text.as_bytes()[..30_000]).expect("sent");
    for operation in &contract.operations {
        for ask in both(contract, operation) {
            let mut stream = connect(node.address);
            let answer = exchange(&mut stream, &broken(&ask, 503), false);
            contract.judge(&ask, &answer);
            if answer.status != 503 {
                contract.note(format!("{}: no 503: {answer:?}", operation.id));
            }
        }
    }
}

/// Tokens that are missing, of another role, or used up.
pub fn tokens(contract: &Contract) {
    let tokens = Tokens::make();
    let node = Node::start(&tokens.config());
    let to = node.address;
    let read = contract.example("getTimer", &[]);
    let mut holder = connect(to);
    let held = read.clone().with(&tokens.narrow);
    contract.judge(&held, &exchange(&mut holder, held.text().as_bytes(), false));
    for operation in &contract.operations {
        let ask = contract.example(&operation.id, &[]);
        if has(operation, 401) {
            contract.refused(to, &ask, 401);
            contract.expect(to, &ask.clone().with("Authorization: Bearer chr_0"), 401);
            contract.refused(to, &ask.clone().with(&tokens.narrow), 429);
        }
        if has_reason(operation, "role") {
            contract.refused(to, &ask.clone().with(&tokens.reader), 403);
        }
    }
    drop(holder);
    let create = contract.example("createTimer", &[]).with(&tokens.slow);
    let answers = (0..1_000).map(|_| contract.ask(to, &create));
    let refused = answers.into_iter().find(|answer| answer.status != 200);
    let refused = refused.expect("one timer a second is less than a thousand");
    if refused.status != 429 || refused.header("Retry-After").is_none() {
        contract.note(format!("too many creates: {refused:?}"));
    }
    let timer =
        contract.expect(to, &contract.example("createTimer", &[]).with(&tokens.client), 200);
    contract.expect(to, &Ask::new("GET", &timer.location()).with(&tokens.reader), 200);
}

/// Methods that a path does not have, and paths that are not there.
pub fn paths(contract: &Contract) {
    let node = Node::start("");
    let paths: BTreeSet<&String> = contract.operations.iter().map(|one| &one.path).collect();
    for path in paths {
        let here: Vec<&Operation> =
            contract.operations.iter().filter(|one| one.path == *path).collect();
        let ask = Ask { method: "PATCH".into(), ..contract.example(&here[0].id, &[]) };
        contract.refused(node.address, &ask, 405);
        let answer = contract.ask(node.address, &ask);
        let methods = answer.header("Allow").unwrap_or_default().split(',').map(str::trim);
        let allowed: BTreeSet<String> = methods.map(str::to_lowercase).collect();
        let mut told: BTreeSet<String> = here.iter().map(|one| one.method.clone()).collect();
        if told.contains("get") {
            told.insert("head".to_owned());
        }
        if allowed != told {
            contract.note(format!("{path}: the node has {allowed:?}, the contract {told:?}"));
        }
    }
    for path in ["/nothing", "/", "/timers-of-mine"] {
        contract.refused(node.address, &Ask::new("GET", path), 404);
    }
    let mut stream = connect(node.address);
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").expect("sent");
}
