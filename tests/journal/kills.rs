//! Whole clusters end at one moment under load, again and again, and nothing that was acknowledged
//! is lost.

use std::thread;
use std::time::{Duration, Instant};

use kit::children::signal;
use kit::random::Random;
use kit::runner::{Story, disturbed};
use kit::until::{PATIENCE, until};

use super::harness::{Node, body, turns};
use super::judge::{Outage, judge, last_due};
use super::load::{Load, Timer};
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("kill_of_one_node_under_load", kill_of_one_node),
    ("kill_of_a_cluster_under_load", kill_of_three),
    ("orderly_stop_under_load", stop_of_one_node),
    ("beside_a_silent_process_a_start_lets_no_number_fall", start_beside_a_silent_one),
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
/// Timers that pop every half second, and how many pops each makes while one node runs alone.
const TIMERS: usize = 40;
const ALONE: usize = 5;
/// For so long a process gets no time while another one serves: for longer than silence takes to be
/// a death. And how long one that has started waits for it, whose machine takes connections.
const SILENT: Duration = Duration::from_millis(4_500);
const PATIENT: Duration = Duration::from_millis(7_500);

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

/// Waits until each timer has made so many further pops.
fn await_pops(sink: &Sink, further: usize) {
    let counts = || (0..TIMERS).map(|timer| sink.sequences(&format!("/{timer}")).len());
    let before: Vec<usize> = counts().collect();
    until("pops of all timers", PATIENCE, || {
        counts().zip(&before).all(|(now, before)| now >= before + further).then_some(())
    });
}

/// All nodes are killed. One is back, makes pops, and gets no time any more. Another one starts
/// beside it with its journal, which knows nothing of these pops.
fn start_beside_a_silent_one() {
    let sink = Sink::start();
    let mut nodes = Node::cluster(2);
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    for timer in 0..TIMERS {
        nodes[timer % 2].create(&body(&sink.uri(&format!("/{timer}")), 500, 1_000, "x", 2));
    }
    await_pops(&sink, 1);
    nodes.iter_mut().for_each(Node::kill);
    nodes[1].start();
    await_pops(&sink, ALONE);
    assert!(signal(nodes[1].pid(), "STOP").success());
    let began = Instant::now();
    nodes[0].start();
    thread::sleep(SILENT);
    assert!(signal(nodes[1].pid(), "CONT").success());
    if began.elapsed() > PATIENT {
        disturbed("the start took too long");
    }
    await_pops(&sink, 2);
    for timer in 0..TIMERS {
        let numbers = sink.sequences(&format!("/{timer}"));
        assert!(numbers.is_sorted(), "{timer}: {numbers:?}");
    }
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
