//! Whole clusters end at one moment under load, again and again, and nothing that was acknowledged
//! is lost.

use std::thread;
use std::time::{Duration, Instant};

use kit::random::Random;
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, turns};
use super::judge::{Outage, judge, last_due};
use super::load::{Load, Timer};
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("kill_of_one_node_under_load", kill_of_one_node),
    ("kill_of_a_cluster_under_load", kill_of_three),
    ("orderly_stop_under_load", stop_of_one_node),
];

/// Turns in the gate.
const TURNS: usize = 3;
/// Clients of all nodes together.
const CLIENTS: usize = 6;
/// Requests acknowledged between two ends, at least.
const REQUESTS: u64 = 300;
/// Nodes start so long after each other at most. Power comes back to one machine before another,
/// and one reads its disk longer than another.
const STAGGER_MS: usize = 2_000;
/// Longest wait for pops that are late.
const LATE: Duration = Duration::from_secs(30);
/// How many broken promises are told.
const TOLD: usize = 3;

fn kill_of_one_node() {
    let mut nodes = Node::cluster(1);
    nodes[0].shards = 2;
    end_again_and_again("one node", &mut nodes, 1, Node::kill);
}

fn kill_of_three() {
    end_again_and_again("three nodes", &mut Node::cluster(3), 2, Node::kill);
}

fn stop_of_one_node() {
    end_again_and_again("one node, stopped in order", &mut Node::cluster(1), 1, Node::stop);
}

/// Waits until so many further requests were acknowledged that the next end meets some.
pub fn await_load(load: &Load) {
    let wanted = load.acknowledged() + REQUESTS;
    until("acknowledged requests", PATIENCE, || (load.acknowledged() >= wanted).then_some(()));
}

/// Ends all nodes by `end` under load and starts them again, turn by turn. Then waits for the last
/// pop and judges.
fn end_again_and_again(what: &str, nodes: &mut [Node], factor: usize, end: fn(&mut Node)) {
    let sink = Sink::start();
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let load = Load::start(&addresses, &sink, CLIENTS, factor);
    let mut draw = Random::of_this_moment();
    let mut outages = Vec::new();
    for _ in 0..turns(TURNS) {
        await_load(&load);
        thread::sleep(Duration::from_millis(draw.below(300) as u64));
        let ended = Instant::now();
        nodes.iter_mut().for_each(end);
        let started = Instant::now();
        for node in nodes.iter_mut() {
            node.spawn();
            thread::sleep(Duration::from_millis(draw.below(STAGGER_MS) as u64));
        }
        nodes.iter_mut().for_each(Node::await_ready);
        outages.push(Outage { ended, started, served: Instant::now() });
    }
    await_load(&load);
    let late = Duration::from_secs(if nodes.len() > 1 { 3 } else { 1 });
    await_judgement(what, &load.end(), &sink, &outages, late);
    for node in nodes {
        assert_eq!(node.metric("chronos_journal_damaged"), Some(0), "{}", node.log());
    }
}

/// Waits for the last pop, and so much longer for one that must not come. Prints what was counted,
/// and panics if a promise was broken.
pub fn await_judgement(
    what: &str,
    timers: &[Timer],
    sink: &Sink,
    outages: &[Outage],
    late: Duration,
) {
    let latest = last_due(timers);
    thread::sleep((latest + late).saturating_duration_since(Instant::now()));
    let (counts, broken) = loop {
        let (counts, broken) = judge(timers, &sink.pops(), outages);
        let lost: u64 = counts.iter().map(|one| one.lost + one.left_out).sum();
        if lost == 0 || Instant::now() > latest + LATE {
            break (counts, broken);
        }
        thread::sleep(Duration::from_millis(200));
    };
    for (turn, one) in counts.iter().enumerate() {
        println!("{what}, turn {}: {one}", turn + 1);
    }
    let told = broken[..broken.len().min(TOLD)].join("\n");
    assert!(broken.is_empty(), "{} timers are wrong:\n{told}", broken.len());
    assert!(counts.iter().any(|one| one.kept > 0), "there was no load");
}
