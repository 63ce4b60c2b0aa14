//! Pops that come due while no node runs.

use std::thread;
use std::time::{Duration, Instant};

use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::sink::Sink;

pub const STORIES: &[Story] = &[
    ("missed_pops_are_made_after_the_start", missed_pops),
    ("each_missed_pop_is_made_if_asked_for", each_missed_pop),
    ("overdue_pops_are_paced_oldest_first", paced),
];

const INTERVAL_MS: u64 = 400;
const POPS: u64 = 20;

/// Waits until the clock shows this moment.
fn wait_for(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// A repeating timer loses its node after two pops, until six more were due. Returns the sequence
/// numbers that came.
fn after_an_outage(node: &mut Node, sink: &Sink) -> Vec<u64> {
    node.start();
    // The first write waits for the first segment.
    node.create(&body(&sink.uri("/later"), 3_600_000, 1, "x", 1));
    node.create(&body(&sink.uri("/repeats"), INTERVAL_MS, POPS, "x", 1));
    node.create(&body(&sink.uri("/ends"), INTERVAL_MS, 4, "x", 1));
    node.create(&body(&sink.uri("/once"), INTERVAL_MS * 4, 1, "x", 1));
    until("two pops", PATIENCE, || sink.sequences("/repeats").contains(&2).then_some(()));
    node.kill();
    wait_for(Instant::now() + Duration::from_millis(INTERVAL_MS * 6));
    node.start();
    until("the last pop", PATIENCE, || sink.sequences("/repeats").contains(&POPS).then_some(()));
    for (path, last) in [("/once", 1), ("/ends", 4)] {
        until(path, PATIENCE, || sink.sequences(path).contains(&last).then_some(()));
    }
    wait_for(Instant::now() + Duration::from_millis(INTERVAL_MS * 2));
    // It may have been under way when the node was killed.
    let once = sink.sequences("/once");
    assert!(once.len() <= 2 && once.iter().all(|number| *number == 1), "{once:?}");
    let ends = sink.sequences("/ends");
    assert!(ends.is_sorted() && ends.last() == Some(&4), "{ends:?}");
    sink.sequences("/repeats")
}

fn missed_pops() {
    let sink = Sink::start();
    let mut node = Node::alone();
    let came = after_an_outage(&mut node, &sink);
    assert!(came.is_sorted(), "numbers never fall: {came:?}");
    let left_out: Vec<u64> = (1..=POPS).filter(|number| !came.contains(number)).collect();
    // Of the pops that came due while no node ran, at least five, the last was made.
    assert!(left_out.len() >= 4 && left_out[0] > 2, "{came:?}");
    assert!(left_out.windows(2).all(|pair| pair[1] == pair[0] + 1), "{came:?}");
}

fn each_missed_pop() {
    let sink = Sink::start();
    let mut node = Node::alone();
    node.lines = "[journal]\nmissed = \"each\"\n".to_owned();
    let mut came = after_an_outage(&mut node, &sink);
    assert!(came.is_sorted(), "numbers never fall: {came:?}");
    came.dedup();
    assert_eq!(came, (1..=POPS).collect::<Vec<_>>());
}

/// A machine that is slow with the disk is given more time to make all timers.
fn paced() {
    let is_told = |lead_ms: &u64| paced_with(*lead_ms);
    assert!([6_000, 20_000, 60_000].iter().any(is_told), "the machine is too slow for the story");
}

/// Pops that come due one after the other from `lead_ms` on, 20 ms apart, are overdue at the start.
/// False: the first was due before the last was made.
fn paced_with(lead_ms: u64) -> bool {
    const OVERDUE: usize = 200;
    let sink = Sink::start();
    let mut node = Node::alone();
    node.lines = "[journal]\ncatch_up_per_s = 50\n".to_owned();
    node.start();
    // The first write waits for the first segment.
    node.create(&body(&sink.uri("/later"), 3_600_000, 1, "x", 1));
    let began = Instant::now();
    // The last that is created comes due first.
    for number in 0..OVERDUE {
        let due_ms = lead_ms - 20 * number as u64;
        let Some(left_ms) = due_ms.checked_sub(began.elapsed().as_millis() as u64) else {
            return false;
        };
        node.create(&body(&sink.uri(&format!("/{number}")), left_ms.max(1), 1, "x", 1));
    }
    node.kill();
    if !sink.pops().is_empty() {
        return false;
    }
    wait_for(began + Duration::from_millis(lead_ms));
    node.start();
    node.create(&body(&sink.uri("/new"), 1_000, 1, "x", 1));
    until("all pops", PATIENCE, || (sink.pops().len() > OVERDUE).then_some(()));
    let pops = sink.pops().clone();
    let new = pops.iter().position(|pop| pop.path == "/new").expect("it came");
    assert!(new < OVERDUE, "a new pop waits for none that is overdue");
    let old: Vec<_> = pops.iter().filter(|pop| pop.path != "/new").collect();
    let span = old[OVERDUE - 1].at - old[0].at;
    assert!(span >= Duration::from_secs(3), "200 pops at 50 a second in {span:?}");
    for (place, pop) in old.iter().enumerate() {
        let number: usize = pop.path[1..].parse().expect("its number");
        let rank = OVERDUE - 1 - number;
        assert!(rank.abs_diff(place) < 50, "{rank} came at place {place}");
    }
    true
}
