//! One run: nodes, clients, faults, a quiet end, and the verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kit::simulator::random::{Purpose, Stream};

use super::faults::Faults;
use super::history::{Clock, Counted, History, Kind, MS, Ns, Outcome, Recorder, SECOND};
use super::judge::{self, Violation};
use super::nodes::Nodes;
use super::operator;
use super::options::Options;
use super::sink::Sinks;
use super::workload::{INTERVAL_MS_MAX, Worker};
use super::worlds::World;

const CLIENTS: u64 = 10;
/// How many clients also send to nodes that are frozen or dead, and wait for them.
const BOLD: u64 = 3;
/// The shortest stall of this process that is kept.
const NOTABLE: Duration = Duration::from_millis(20);
/// Longest wait at the end until the number of copies is right, because tombstones and moves must
/// end first.
const COUNTS: Duration = Duration::from_secs(60);
/// How many violations of a rule are shown with their history.
const SHOWN: usize = 4;

/// Tells threads to end when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs one seed. Returns whether no rule was violated.
pub fn run(options: &Options, seed: u64) -> bool {
    let clock = Clock::start();
    let recorder = Arc::new(Recorder::new(clock, options.layout));
    let nodes = match Nodes::start(options.binary.clone(), options.worlds, options.layout) {
        Ok(nodes) => nodes,
        Err(why) => {
            println!("no network namespaces (root and `ip` are needed): {why}");
            return false;
        }
    };
    let sinks = Sinks::start(&recorder, nodes.network());
    let (is_over, is_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        // Whatever ends the run ends its threads.
        let _ends = [Ends(&is_over), Ends(&is_ended)];
        scope.spawn(|| watch_stalls(&recorder, &is_ended));
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let draw = Stream::keyed(seed, Purpose::Clients, number);
                let (nodes, recorder, is_over) = (&nodes, &*recorder, &is_over);
                let (me, factor, bold) = ((number, draw), options.factor, number < BOLD);
                scope.spawn(move || {
                    let mut worker = Worker::new(nodes, recorder, sinks, me, factor, bold);
                    worker.run(is_over);
                    worker
                })
            })
            .collect();
        let operator = nodes.worlds().has(World::Rules).then(|| {
            let draw = Stream::new(seed, Purpose::Callbacks);
            let (nodes, recorder, is_over) = (&nodes, &*recorder, &is_over);
            scope.spawn(move || {
                operator::pause_and_release(nodes, recorder, sinks.ruled, draw, is_over);
            })
        });
        if options.is_calm {
            thread::sleep(options.load());
        } else {
            // The load ends between two faults, when all nodes run and all copies are in place.
            let draw = Stream::new(seed, Purpose::Faults);
            let (faults, wanted) = (&is_over, &options.faults);
            let ends = scope.spawn(|| Faults::new(&nodes, &recorder, draw, faults, wanted).run());
            thread::sleep(options.load());
            is_over.store(true, Ordering::SeqCst);
            ends.join().expect("the faults do not panic");
        }
        is_over.store(true, Ordering::SeqCst);
        operator.into_iter().for_each(|ends| ends.join().expect("operators do not panic"));
        let workers: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().expect("clients do not panic"))
            .collect();
        for mut worker in workers {
            worker.make_sure();
            worker.look_at_all();
        }
        drain(&recorder);
        count_copies(&nodes, &recorder);
        is_ended.store(true, Ordering::SeqCst);
    });
    is_kept(options, seed, nodes, &recorder)
}

/// Holds what was done and seen against the promises, and prints what was found.
fn is_kept(options: &Options, seed: u64, mut nodes: Nodes, recorder: &Recorder) -> bool {
    let clock = recorder.clock;
    for node in nodes.ended() {
        recorder.with(|history| {
            history.troubles.push((clock.now(), format!("node {node} ended by itself")));
        });
    }
    if nodes.panicked() {
        recorder.with(|history| history.troubles.push((clock.now(), "a node panicked".to_owned())));
    }
    let mut history = recorder.take();
    history.ended = clock.now();
    let violations = judge::judge(&history, options.judges_lateness);
    summarise(&history, seed, violations.len());
    if violations.is_empty() {
        return true;
    }
    let mut shown: Vec<(&str, Option<usize>)> = Vec::new();
    for violation in &violations {
        let of_rule = shown.iter().filter(|(rule, _)| *rule == violation.rule).count();
        if of_rule < SHOWN && !shown.contains(&(violation.rule, violation.timer)) {
            explain(&history, violation);
            shown.push((violation.rule, violation.timer));
        }
    }
    let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
    violations.iter().for_each(|violation| *rules.entry(violation.rule).or_default() += 1);
    println!("violations by rule: {rules:?}");
    println!("{}files and logs of the nodes are kept in {}", nodes.logs(), nodes.keep().display());
    false
}

fn watch_stalls(recorder: &Recorder, is_ended: &AtomicBool) {
    let nap = Duration::from_millis(5);
    let mut last = Instant::now();
    while !is_ended.load(Ordering::SeqCst) {
        thread::sleep(nap);
        let now = Instant::now();
        let stalled = now.duration_since(last).saturating_sub(nap);
        last = now;
        if stalled >= NOTABLE {
            let stall = (recorder.clock.now(), stalled.as_nanos() as Ns);
            recorder.with(|history| history.stalls.push(stall));
        }
    }
}

/// Waits until every pop that must come has come and no other is due, or until a pop is lost.
fn drain(recorder: &Recorder) {
    let begun = recorder.clock.now();
    let last_due = begun + INTERVAL_MS_MAX * MS + SECOND;
    let patience = last_due + judge::LOST_AFTER + SECOND;
    loop {
        let now = recorder.clock.now();
        let is_due = now >= last_due;
        if is_due && recorder.with(|history| judge::missing(history, now)) == 0 || now > patience {
            return;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Counts the copies of the timers that do not pop within a run. All other timers are gone by then.
fn count_copies(nodes: &Nodes, recorder: &Recorder) {
    let serving = nodes.serving();
    let (expected, is_sure) = recorder.with(|history| {
        let mut expected = 0;
        let mut is_sure = true;
        for timer in &history.timers {
            let last = timer.writes.iter().rev().find(|write| write.outcome != Outcome::NotSent);
            let Some(last) = last else { continue };
            // A write without an answer, or one that was refused, may be in force or not.
            is_sure &= last.outcome == Outcome::Acknowledged;
            if let Some(factor) = last.wish.factor()
                && last.wish.outlasts_the_run()
            {
                let of_site = (serving.len() / nodes.layout().sites) as u64;
                expected += u64::from(factor).min(of_site) * nodes.layout().sites as u64;
            }
        }
        (expected, is_sure)
    });
    if !is_sure {
        return;
    }
    let deadline = Instant::now() + COUNTS;
    loop {
        let held = serving.iter().filter_map(|node| nodes.metric(*node, "chronos_timers"));
        let held: u64 = held.sum();
        if held == expected || Instant::now() > deadline {
            recorder.with(|history| history.copies = Some(Counted { held, expected }));
            return;
        }
        thread::sleep(Duration::from_millis(250));
    }
}

fn summarise(history: &History, seed: u64, violations: usize) {
    let writes = history.timers.iter().flat_map(|timer| &timer.writes);
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes {
        let name = match &write.outcome {
            Outcome::Acknowledged => "acknowledged".to_owned(),
            Outcome::Refused(status, reason) => format!("{status} {reason}"),
            Outcome::Unknown(why) => format!("without an answer: {why}"),
            Outcome::NotSent => "not sent".to_owned(),
        };
        *outcomes.entry(name).or_default() += 1;
    }
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    history.faults.iter().for_each(|fault| *kinds.entry(fault.kind).or_default() += 1);
    let reads: usize = history.timers.iter().map(|timer| timer.reads.len()).sum();
    let (calm, near) = judge::lateness(history);
    let at = |times: &[Ns], percent: usize| {
        let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |late| *late as f64 / MS as f64)
    };
    let told = |times: &[Ns]| {
        let (half, most) = (at(times, 50), at(times, 100));
        format!("{} pops, p50 {half:.1}, p99 {:.1}, most {most:.1} ms", times.len(), at(times, 99))
    };
    println!(
        "seed {seed}: {} timers, {} callbacks, {reads} reads, {:.0} s, {violations} violations",
        history.timers.len(),
        history.pops.len(),
        judge::seconds(history.ended)
    );
    println!("  writes: {outcomes:?}");
    let actions: usize = history.timers.iter().map(|timer| timer.actions.len()).sum();
    let letters: usize = history.timers.iter().map(|timer| timer.letters.len()).sum();
    println!(
        "  {actions} actions, {letters} requests about dead letters, {} pauses of a server",
        history.rule_pauses.len()
    );
    println!("  faults: {kinds:?}");
    println!("  late at least, without a fault near: {}; near one: {}", told(&calm), told(&near));
    match history.copies {
        Some(copies) => println!("  copies at the end: {} of {}", copies.held, copies.expected),
        None => println!(
            "  copies at the end: not counted, the last write of a timer was not answered with 200"
        ),
    }
}

/// Prints a violation with all that is known of its timer.
fn explain(history: &History, violation: &Violation) {
    let s = judge::seconds;
    println!("VIOLATION of \"{}\" at {:.3} s: {}", violation.rule, s(violation.at), violation.what);
    let Some(number) = violation.timer else { return };
    let mut lines: Vec<(Ns, String)> = Vec::new();
    let timer = &history.timers[number];
    for (index, write) in timer.writes.iter().enumerate() {
        lines.push((write.sent, format!("write {index} via {}: {:?}", write.via, write.wish)));
        lines.push((write.ended, format!("write {index} ended: {:?}", write.outcome)));
    }
    for action in &timer.actions {
        let (act, write, via) = (action.act, action.write, action.via);
        lines.push((action.sent, format!("{act:?} of write {write} via {via}")));
        lines.push((action.ended, format!("{act:?} ended: {:?}", action.outcome)));
    }
    for letter in &timer.letters {
        let (handling, via, outcome) = (letter.handling, letter.via, &letter.outcome);
        lines.push((letter.ended, format!("dead letter: {handling:?} via {via}: {outcome:?}")));
    }
    for read in &timer.reads {
        let (status, write) = (read.status, read.write);
        lines.push((read.ended, format!("GET via {}: {status:?}, write {write:?}", read.via)));
    }
    for pop in history.pops.iter().filter(|pop| pop.timer == number) {
        let (write, sequence, status) = (pop.write, pop.sequence, pop.status);
        let replay = if pop.replay > 0 { ", a replay" } else { "" };
        let by =
            if history.layout.has_sites() { format!(" by site {}", pop.site) } else { "".into() };
        let what = format!("pop {sequence} of write {write}{by}, answered {status}{replay}");
        lines.push((pop.at, what));
    }
    let first = lines.iter().map(|line| line.0).min().unwrap_or(0);
    let last = lines.iter().map(|line| line.0).max().unwrap_or(Ns::MAX);
    for fault in &history.faults {
        let (kind, node) = (fault.kind, fault.node);
        lines.push((fault.from, format!("  {kind:?} of node {node}")));
        lines.push((fault.until, format!("  {kind:?} of node {node} ends")));
        lines.push((fault.settled, format!("  {kind:?} of node {node}: all is well again")));
    }
    for pause in &history.rule_pauses {
        let site = pause.site;
        lines.push((pause.acknowledged, format!("  the ruled server is paused at site {site}")));
        lines.push((pause.until, format!("  the ruled server goes on at site {site}")));
    }
    let near = first.saturating_sub(15 * SECOND)..=last.saturating_add(5 * SECOND);
    lines.retain(|line| near.contains(&line.0));
    lines.sort();
    println!("history of timer {number}:");
    lines.iter().for_each(|(at, text)| println!("  {:9.3}  {text}", s(*at)));
}
