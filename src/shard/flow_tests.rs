//! Pops that wait because of the rule of their destination: on one core, on two that share a meter,
//! and in a cluster.

use std::sync::Arc;

use super::*;
use crate::base::destinations::Rule;
use crate::base::ids::PeerSet;
use crate::base::ids::TimerId;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Answer, CallbackOutcome, Event, Request, Ticket};
use crate::shard::harness_tests::{Cluster, START_MS, target};
use crate::wire::peer_message::decode_message;

#[path = "flow_pause_tests.rs"]
mod pauses;

const RATE_10: Rule = Rule { max_in_flight: None, per_1000_s: Some(10_000), is_paused: false };
const RATE_1: Rule = Rule { max_in_flight: None, per_1000_s: Some(1_000), is_paused: false };
const PAUSED: Rule = Rule { max_in_flight: None, per_1000_s: None, is_paused: true };
const NONE: Rule = Rule { max_in_flight: None, per_1000_s: None, is_paused: false };

/// Gives a node this rule for the host of all timers.
fn set(cluster: &mut Cluster, node: usize, rule: Option<Rule>) {
    let former = cluster.shard(node).records.hosts().destinations();
    let rules = rule.map(|rule| ("host:80".to_owned(), rule));
    let table = Arc::new(DestinationTable::new(rules, &former));
    set_table(cluster, node, table);
}

fn set_table(cluster: &mut Cluster, node: usize, table: Arc<DestinationTable>) {
    let now = cluster.now_of(node);
    cluster.shard(node).set_flow_rules(now, table);
    cluster.tick(node);
    cluster.audit();
}

fn alone(timers: usize, seconds: (u64, u64), rule: Rule) -> Cluster {
    let mut cluster = Cluster::new(1, true);
    set(&mut cluster, 0, Some(rule));
    for _ in 0..timers {
        cluster.create(0, seconds, 1);
    }
    cluster
}

#[test]
fn attempts_keep_the_rate_and_a_core_sleeps_between_them() {
    let mut cluster = alone(50, (1, 1), RATE_10);
    let mut at_ms = Vec::new();
    let mut wakes = 0;
    while at_ms.len() < 50 && cluster.now_ms < START_MS + 20_000 {
        let wake = cluster.shard(0).next_wake().map_or(u64::MAX, |tick| tick.0);
        cluster.now_ms = wake.max(cluster.now_ms + 1);
        wakes += 1;
        cluster.tick(0);
        at_ms.resize(cluster.pops.len(), cluster.now_ms - START_MS);
    }
    assert_eq!(at_ms.len(), 50);
    for (begin, end) in (0..50).flat_map(|begin| (begin..50).map(move |end| (begin, end))) {
        let (begun, ms) = (end - begin + 1, at_ms[end] - at_ms[begin]);
        assert!(begun as u64 * 100 <= ms + 10 + 100, "{begun} in {ms} ms");
    }
    assert!(at_ms[49] <= 1_000 + 49 * 100 + 20, "{at_ms:?}");
    assert!(wakes < 120, "{wakes}");
    let counters = cluster.shard(0).counters();
    assert_eq!((counters.delivered, counters.given_up, counters.waiting), (50, 0, 0));
    cluster.audit();
}

#[test]
fn orders_about_other_destinations_cost_no_moment() {
    let mut cluster = alone(5, (1, 1), RATE_1);
    for order in 1..=25 {
        let former = cluster.shard(0).records.hosts().destinations();
        let other = Rule { max_in_flight: Some(order), ..NONE };
        let rules = [("a:80".to_owned(), other), ("host:80".to_owned(), RATE_1)];
        set_table(&mut cluster, 0, Arc::new(DestinationTable::new(rules, &former)));
        let passed_ms = cluster.passed_ms();
        cluster.pass_to(passed_ms + 300);
    }
    assert_eq!(cluster.pops.len(), 5, "{:?}", cluster.pops);
}

/// The moment that a pop waited for comes when nobody waits any more. It is not there for the next
/// pop, beside that one's own.
#[test]
fn a_moment_that_passes_unused_after_an_order_is_left_unused() {
    let mut cluster = alone(1, (1, 1), RATE_1);
    let waiting = cluster.create(0, (1, 1), 1);
    cluster.pass_to(1_200);
    assert_eq!(cluster.pops.len(), 1);
    cluster.ask(0, Request::Delete(target(waiting, 1)));
    let former = cluster.shard(0).records.hosts().destinations();
    let rules = [("a:80".to_owned(), PAUSED), ("host:80".to_owned(), RATE_1)];
    set_table(&mut cluster, 0, Arc::new(DestinationTable::new(rules, &former)));
    cluster.pass_to(10_000);
    let before = cluster.pops.len();
    assert_eq!(before, 1, "the other one was deleted");
    cluster.create(0, (1, 1), 1);
    cluster.pass_to(10_200);
    cluster.create(0, (1, 1), 1);
    cluster.pass_to(11_900);
    assert_eq!(cluster.pops.len() - before, 1, "a second one within a second");
    cluster.pass_to(12_100);
    assert_eq!(cluster.pops.len() - before, 2);
}

#[test]
fn a_rule_holds_for_all_spellings_of_a_host_together() {
    let mut cluster = Cluster::new(1, true);
    let rule = Rule { max_in_flight: Some(3), ..NONE };
    let table = DestinationTable::new([("host".to_owned(), rule)], &DestinationTable::default());
    set_table(&mut cluster, 0, Arc::new(table));
    cluster.hung = Some(0);
    for (at, authority) in ["host:80", "HOST", "host:81", "https://host"].iter().enumerate() {
        for _ in 0..=at {
            cluster.create_at(0, authority, (1, 1), 1);
        }
    }
    cluster.create_at(0, "other:80", (1, 1), 1);
    cluster.pass_to(1_500);
    assert_eq!(cluster.pops.len(), 3 + 1, "the other host notices nothing");
    for finished in 2..=10 {
        let (node, ticket) = cluster.hanging.remove(0);
        let outcome = CallbackOutcome::Delivered;
        cluster.handle(node, Event::CallbackFinished { ticket, outcome });
        cluster.audit();
        assert!(cluster.hanging.len() <= 4, "{finished}");
    }
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    assert_eq!(cluster.shard(0).counters().delivered, 11);
    cluster.audit();
}

#[test]
fn an_attempt_that_this_node_lacks_something_for_takes_no_place_of_a_rule() {
    for rule in [Rule { max_in_flight: Some(1), ..NONE }, RATE_10] {
        let mut cluster = alone(5, (1, 1), rule);
        cluster.outcome = |_, _| CallbackOutcome::Lacking;
        cluster.pass_to(3_000);
        assert!(!cluster.pops.is_empty() && cluster.shard(0).counters().without_means > 0);
        cluster.audit();
        cluster.outcome = |_, _| CallbackOutcome::Delivered;
        cluster.pass_to(9_000);
        let counters = cluster.shard(0).counters();
        let ended = (counters.delivered, counters.failed, counters.given_up, counters.waiting);
        assert_eq!(ended, (5, 0, 0, 0), "{rule:?}");
        cluster.audit();
    }
}

#[test]
fn a_paused_destination_costs_nothing_and_goes_on_when_it_is_resumed() {
    let mut cluster = alone(300, (1, 1), PAUSED);
    cluster.pass_to(1_100);
    assert_eq!((cluster.pops.len(), cluster.shard(0).counters().waiting), (0, 300));
    cluster.audit();
    // Two minutes: longer than any pop is tried for.
    let moved = cluster.shard(0).counters().wheel_moved;
    cluster.now_ms += 1300;
    cluster.tick(0);
    let wake = cluster.shard(0).next_wake();
    assert!(wake.is_none_or(|wake| wake.0 > cluster.now_ms), "{wake:?}");
    assert!(cluster.shard(0).counters().wheel_moved - moved < 100);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    set(&mut cluster, 0, None);
    assert_eq!(cluster.pops.len(), 300);
    // Those that fail are tried for as long as if they had become due now.
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    cluster.pass_to(cluster.now_ms - START_MS + 500);
    let counters = cluster.shard(0).counters();
    assert_eq!((counters.delivered, counters.given_up), (300, 0));
    cluster.audit();
}

#[test]
fn a_repeating_timer_that_waited_makes_its_present_pop_only() {
    for rule in [Some(RATE_10), Some(NONE), None] {
        let mut cluster = alone(1, (1, 100), PAUSED);
        cluster.now_ms += 10_500;
        cluster.tick(0);
        assert_eq!(cluster.pops, []);
        set(&mut cluster, 0, rule);
        assert_eq!(cluster.pops, [(10, 0, 10)], "{rule:?}");
        assert_eq!(cluster.shard(0).counters().given_up, 9);
        cluster.pass_to(11_100);
        assert_eq!(cluster.pops[1..], [(11, 0, 11)], "{rule:?}");
        cluster.audit();
    }
}

#[test]
fn while_the_rules_are_not_known_no_pop_begins_and_none_is_left_out() {
    for rule in [None, Some(RATE_10)] {
        let mut cluster = Cluster::new(1, true);
        set_table(&mut cluster, 0, Arc::new(DestinationTable::hold()));
        cluster.create(0, (1, 100), 1);
        cluster.create_at(0, "https://other", (1, 1), 1);
        cluster.pass_to(2_100);
        assert_eq!(cluster.pops, []);
        set(&mut cluster, 0, rule);
        cluster.pass_to(2_900);
        let mut made: Vec<u64> = cluster.pops.iter().map(|pop| pop.2).collect();
        made.sort_unstable();
        // Where a rule holds the timer makes its present pop only, as ever.
        assert_eq!(made, if rule.is_none() { vec![1, 1, 2] } else { vec![1, 2] });
        cluster.audit();
    }
}

/// More pops wait than there are places at the host. It takes them 3 s after the rule is gone.
#[test]
fn a_pop_that_waits_for_a_place_when_its_rule_is_gone_makes_up_for_none_that_it_missed() {
    for fails in [false, true] {
        let mut cluster = alone(70, (1, 100), if fails { NONE } else { PAUSED });
        if fails {
            // They are paused while they wait for their second attempt.
            cluster.outcome = |_, _| CallbackOutcome::Rejected;
            cluster.pass_to(1_050);
            set(&mut cluster, 0, Some(PAUSED));
            cluster.outcome = |_, _| CallbackOutcome::Delivered;
            cluster.pops.clear();
        }
        cluster.now_ms = START_MS + 10_500;
        cluster.tick(0);
        cluster.hung = Some(0);
        set(&mut cluster, 0, None);
        assert_eq!(cluster.pops, [(10, 0, 10); 64]);
        cluster.now_ms += 3_000;
        cluster.answer_callbacks(CallbackOutcome::Delivered);
        let late: Vec<u64> = cluster.pops.iter().skip(64).map(|pop| pop.2).collect();
        assert_eq!(late[..6], [13; 6], "{late:?}");
        // What came due after that waited for no rule.
        assert!(late[6..].iter().all(|sequence| (11..=13).contains(sequence)), "{late:?}");
        cluster.audit();
    }
}

#[test]
fn where_two_ranks_wait_neither_makes_what_both_missed() {
    for rule in [Some(NONE), None] {
        let mut cluster = Cluster::new(2, true);
        (0..2).for_each(|node| set(&mut cluster, node, Some(PAUSED)));
        for timer in 0..20 {
            cluster.create(timer % 2, (1, 1_000), 2);
        }
        cluster.run_until(60);
        assert_eq!(cluster.pops, []);
        (0..2).for_each(|node| set(&mut cluster, node, rule));
        cluster.run_until(80);
        // To the second rank the present pop is that of 2 s ago.
        let missed: Vec<_> = cluster.pops.iter().filter(|pop| pop.2 < 58).collect();
        assert!(missed.is_empty(), "{rule:?}: {missed:?}");
        for sequence in 61..=80 {
            let made = cluster.pops.iter().filter(|pop| pop.2 == sequence).count();
            assert_eq!(made, 20, "{rule:?}: pop {sequence}");
        }
        cluster.audit();
    }
}

#[test]
fn pause_holds_what_fails_what_is_stale_and_what_is_in_trouble() {
    for outcome in [CallbackOutcome::Stale, CallbackOutcome::Unreachable] {
        let mut cluster = alone(20, (1, 1), NONE);
        cluster.hung = Some(0);
        cluster.pass_to(1_000);
        assert_eq!(cluster.pops.len(), 20);
        set(&mut cluster, 0, Some(PAUSED));
        for (node, ticket) in std::mem::take(&mut cluster.hanging) {
            cluster.handle(node, Event::CallbackFinished { ticket, outcome });
            cluster.audit();
        }
        cluster.pass_to(30_000);
        assert_eq!(cluster.pops.len(), 20, "{outcome:?}");
        assert_eq!(cluster.shard(0).counters().waiting, 20);
        cluster.hung = None;
        set(&mut cluster, 0, Some(RATE_10));
        cluster.pass_to(60_000);
        assert_eq!(cluster.shard(0).counters().delivered, 20, "{outcome:?}");
        cluster.audit();
    }
}

#[test]
fn a_delete_ends_a_pop_that_waits() {
    let mut cluster = alone(0, (1, 1), PAUSED);
    let ids: Vec<_> = (0..10).map(|_| cluster.create(0, (1, 1), 1)).collect();
    cluster.pass_to(1_100);
    for id in &ids[..9] {
        cluster.ask(
            0,
            crate::shard::effects::Request::Delete(crate::shard::harness_tests::target(*id, 1)),
        );
    }
    assert_eq!(cluster.shard(0).counters().waiting, 1);
    set(&mut cluster, 0, Some(NONE));
    assert_eq!(cluster.pops.len(), 1);
    cluster.audit();
}

#[test]
fn the_nodes_of_a_cluster_share_a_rate_and_no_pop_comes_twice() {
    let mut cluster = Cluster::new(2, true);
    (0..2).for_each(|node| set(&mut cluster, node, Some(RATE_10)));
    for timer in 0..100 {
        cluster.create(timer % 2, (1, 1), 2);
    }
    let mut seconds = vec![0; 30];
    for second in 0..30 {
        let before = cluster.pops.len();
        cluster.run_until(second + 1);
        seconds[second as usize] = cluster.pops.len() - before;
    }
    assert_eq!(cluster.pops.len(), 100, "{seconds:?}");
    assert!(seconds.iter().all(|pops| *pops <= 12), "{seconds:?}");
    // A node that has made its own pops leaves its share unused.
    assert!(seconds[3..9].iter().all(|pops| *pops >= 8), "{seconds:?}");
    cluster.audit();
}

#[test]
fn a_paused_pop_is_made_once_when_both_ranks_go_on() {
    let mut cluster = Cluster::new(2, true);
    (0..2).for_each(|node| set(&mut cluster, node, Some(PAUSED)));
    for timer in 0..20 {
        cluster.create(timer % 2, (1, 1), 2);
    }
    cluster.run_until(300);
    assert_eq!(cluster.pops, []);
    (0..2).for_each(|node| set(&mut cluster, node, Some(RATE_10)));
    cluster.run_until(340);
    assert_eq!(cluster.pops.len(), 20, "{:?}", cluster.pops);
    cluster.audit();
}

#[test]
fn the_survivor_takes_the_whole_rate_and_the_pops() {
    let mut cluster = Cluster::new(2, true);
    (0..2).for_each(|node| set(&mut cluster, node, Some(RATE_10)));
    for timer in 0..100 {
        cluster.create(timer % 2, (1, 1), 2);
    }
    cluster.run_until(3);
    let before = cluster.pops.len();
    cluster.kill(1);
    cluster.believe(0, 1, Liveness::Dead);
    cluster.run_until(8);
    let made = cluster.pops.len() - before;
    assert!((44..=52).contains(&made), "{made}");
    cluster.run_until(60);
    assert!((100..=101).contains(&cluster.pops.len()), "{}", cluster.pops.len());
    cluster.audit();
}

#[test]
fn cores_of_a_node_share_places_and_take_turns() {
    // Two shards that share a table stand for two cores of one node.
    let mut cluster = Cluster::new(2, true);
    for node in 0..2 {
        cluster.nodes[node].view = Arc::new(crate::cluster::view::View::alone("one"));
        cluster.start_as(node, node as u16);
    }
    let rule = Rule { max_in_flight: Some(1), ..NONE };
    let table = DestinationTable::new([("host".to_owned(), rule)], &DestinationTable::default());
    let table = Arc::new(table);
    (0..2).for_each(|node| set_table(&mut cluster, node, Arc::clone(&table)));
    for timer in 0..20 {
        cluster.create(timer % 2, (1, 1), 1);
    }
    cluster.hung = Some(0);
    let mut order = Vec::new();
    cluster.now_ms += 1_000;
    let tick = |cluster: &mut Cluster, node: usize| {
        let now = cluster.now_of(node);
        let mut outbox = Outbox::default();
        cluster.shard(node).tick(now, &mut outbox);
        let woken: Vec<_> = std::iter::from_fn(|| cluster.shard(node).next_woken()).collect();
        (outbox.attempts, woken)
    };
    let mut running = None;
    for _ in 0..60 {
        for node in 0..2 {
            let (attempts, _) = tick(&mut cluster, node);
            for attempt in attempts {
                assert!(running.is_none(), "one at a time");
                running = Some((node, attempt.ticket));
                order.push(node);
            }
        }
        let Some((node, ticket)) = running.take() else { continue };
        let now = cluster.now_of(node);
        let mut outbox = Outbox::default();
        let outcome = CallbackOutcome::Delivered;
        let event = Event::CallbackFinished { ticket, outcome };
        cluster.shard(node).handle(now, event, &mut outbox);
        if let Some(attempt) = outbox.attempts.pop() {
            running = Some((node, attempt.ticket));
            order.push(node);
        } else {
            let others = order.iter().filter(|core| **core != node).count();
            let woken = cluster.shard(node).next_woken().map(|core| usize::from(core.0));
            assert!(woken == Some(1 - node) || others == 10, "{order:?}");
        }
    }
    assert_eq!(order.len(), 20, "{order:?}");
    assert!(order[..18].chunks(2).all(|pair| pair[0] != pair[1]), "{order:?}");
}

/// Callbacks take 600 ms. Returns all that began, in this order: the timer, the number of the pop.
fn begun_at_a_slow_server(
    cluster: &mut Cluster,
    until: u64,
    at: impl Fn(&mut Cluster, u64),
) -> Vec<(u64, u64)> {
    cluster.all_hang = true;
    let mut running: Vec<(u64, usize, Ticket)> = Vec::new();
    let mut begun = Vec::new();
    while cluster.now_ms < START_MS + until * 1_000 {
        cluster.now_ms += 100;
        let ms = cluster.now_ms;
        at(cluster, ms - START_MS);
        for node in 0..cluster.nodes.len() {
            if cluster.nodes[node].shard.is_some() {
                cluster.tick(node);
            }
        }
        // A node that is frozen takes no answer.
        let is_over = |run: &(u64, usize, _)| run.0 <= ms && cluster.nodes[run.1].shard.is_some();
        let (over, still) = running.into_iter().partition(is_over);
        running = still;
        let over: Vec<(u64, usize, Ticket)> = over;
        for (_, node, ticket) in over {
            if cluster.nodes[node].shard.is_some() {
                let outcome = CallbackOutcome::Delivered;
                cluster.handle(node, Event::CallbackFinished { ticket, outcome });
            }
        }
        for (node, ticket) in std::mem::take(&mut cluster.hanging) {
            let is_running = |run: &&(u64, usize, Ticket)| {
                run.2.id == ticket.id && cluster.nodes[run.1].shard.is_some()
            };
            let other = running.iter().find(is_running);
            assert!(other.is_none(), "{ms}: {ticket:?} of {node} beside {other:?}");
            begun.push((ticket.id.0, ticket.sequence));
            running.push((ms + 600, node, ticket));
        }
        cluster.audit();
    }
    begun
}

/// The numbers of the pops of each timer rise.
fn assert_rising(begun: &[(u64, u64)]) {
    let mut last = std::collections::BTreeMap::new();
    for (id, sequence) in begun {
        let former = last.insert(*id, *sequence);
        assert!(former.is_none_or(|former| former < *sequence), "{sequence} after {former:?}");
    }
}

#[test]
fn at_a_slow_server_one_rank_at_a_time_makes_the_pops_of_a_timer_and_their_numbers_rise() {
    let few_at_once = Rule { max_in_flight: Some(4), ..NONE };
    let rate_5 = Rule { per_1000_s: Some(5_000), ..NONE };
    for rule in [Some(few_at_once), Some(rate_5), Some(RATE_10), Some(NONE), None] {
        for first in [Some(PAUSED), rule] {
            let mut cluster = Cluster::new(3, true);
            (0..3).for_each(|node| set(&mut cluster, node, first));
            for timer in 0..30 {
                cluster.create(timer % 3, (1, 100), 1 + timer as u8 % 3);
            }
            let begun = begun_at_a_slow_server(&mut cluster, 60, |cluster, ms| {
                if ms == 20_000 {
                    (0..3).for_each(|node| set(cluster, node, rule));
                }
            });
            assert_rising(&begun);
            assert!(begun.len() > 100, "{rule:?}: {}", begun.len());
        }
    }
}

#[test]
fn when_the_rank_that_a_pop_waits_at_dies_the_next_one_makes_it_within_half_a_minute() {
    for (rule, resumed_ms) in [(PAUSED, 25_000), (PAUSED, 10_000), (RATE_1, 0)] {
        let mut cluster = Cluster::new(2, true);
        (0..2).for_each(|node| set(&mut cluster, node, Some(rule)));
        for timer in 0..30 {
            cluster.create(timer % 2, (1, 1), 2);
        }
        let begun = begun_at_a_slow_server(&mut cluster, 60, |cluster, ms| {
            if ms == 20_000 {
                cluster.kill(0);
                cluster.believe(1, 0, Liveness::Dead);
            }
            if ms == resumed_ms {
                let nodes = if ms < 20_000 { 0..2 } else { 1..2 };
                nodes.for_each(|node| set(cluster, node, Some(RATE_1)));
            }
        });
        assert!((30..=31).contains(&begun.len()), "{rule:?} {resumed_ms}: {begun:?}");
    }
}

/// A process that was killed and is back within three seconds has its pops from its journal.
#[test]
fn a_rank_that_is_only_suspected_keeps_the_pops_that_wait_for_a_rule() {
    for until_ms in [4_000, 9_000] {
        let mut cluster = Cluster::new(2, true);
        (0..2).for_each(|node| set(&mut cluster, node, Some(RATE_1)));
        // The second node has no pops of its own that go before.
        let mut timers = 0;
        while timers < 30 {
            let id = cluster.create(0, (1, 1), 2);
            let shard = cluster.shard(0);
            let record = *shard.records.get(shard.find(id).expect("it was made"));
            if shard.records.placement_of(&record).own == Some(0) {
                timers += 1;
            } else {
                let target = crate::shard::harness_tests::target(id, 2);
                cluster.ask(0, crate::shard::effects::Request::Delete(target));
            }
        }
        let begun = begun_at_a_slow_server(&mut cluster, 80, |cluster, ms| {
            if ms == 2_000 {
                cluster.believe(1, 0, Liveness::Suspect);
            }
            if ms == until_ms {
                cluster.believe(1, 0, Liveness::Alive);
            }
        });
        assert_rising(&begun);
        assert_eq!(begun.len(), 30, "{until_ms}: {begun:?}");
    }
}

/// A node gets no time, or is killed and is back with what it held. Its pops wait at the other node
/// meanwhile, for longer than a node that is silent is waited for.
#[test]
fn ranks_that_lost_sight_of_each_other_do_not_both_make_what_waits_for_a_rule() {
    let few_at_once = Rule { max_in_flight: Some(4), ..NONE };
    let cases = [(60, 7_000), (240, 4_000), (240, 20_000)];
    for ((timers, back_ms), dies, node) in
        cases.into_iter().flat_map(|case| [(case, false, 0), (case, false, 1), (case, true, 0)])
    {
        for first in [few_at_once, PAUSED] {
            let case = (timers, back_ms, dies, node, first.is_paused);
            let mut cluster = Cluster::new(2, true);
            (0..2).for_each(|node| set(&mut cluster, node, Some(first)));
            for timer in 0..timers {
                cluster.create(timer % 2, (1, 1), 2);
            }
            cluster.all_hang = true;
            cluster.run_until(2);
            let held = cluster.held(node);
            if dies {
                // Nobody is told how its callbacks end.
                cluster.hanging.retain(|(of, _)| *of != node);
                cluster.kill(node);
            } else {
                cluster.freeze(node);
            }
            let begun = begun_at_a_slow_server(&mut cluster, 120, |cluster, ms| {
                if ms == back_ms {
                    come_back(cluster, node, (dies, &held), first);
                }
                if ms == 40_000 && first.is_paused {
                    let waiting = |node| cluster.shard(node).counters().waiting;
                    let waiting: u64 = [0, 1].into_iter().map(waiting).sum();
                    assert_eq!(waiting, timers as u64, "{case:?}: each waits at one node");
                    (0..2).for_each(|node| set(cluster, node, Some(few_at_once)));
                }
            });
            // Those that ran as the node went are repeated.
            assert!((timers..=timers + 4).contains(&begun.len()), "{case:?}: {}", begun.len());
        }
    }
}

fn come_back(cluster: &mut Cluster, node: usize, (has_died, held): (bool, &[Vec<u8>]), rule: Rule) {
    if has_died {
        cluster.return_with(node, held);
        set(cluster, node, Some(rule));
        cluster.meet(node);
    } else {
        cluster.thaw(node);
        cluster.believe(1 - node, node, Liveness::Alive);
    }
}

#[test]
fn the_ranks_before_one_are_those_whose_turn_comes_earlier() {
    let mut cluster = Cluster::new(3, true);
    let id = TimerId(7);
    cluster.put(0, id, (10, 10), 3);
    let list = cluster.list(id);
    for (rank, node) in list.iter().copied().enumerate() {
        let earlier = list[..rank].iter().map(|earlier| cluster.peer(node, *earlier));
        let earlier = earlier.flatten().fold(PeerSet::EMPTY, PeerSet::with);
        let shard = cluster.shard(node);
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        assert_eq!(shard.ranks_before(&record), earlier, "{rank}");
    }
}

#[test]
fn the_rule_of_one_host_holds_up_no_pop_to_another() {
    let mut cluster = Cluster::new(1, true);
    let [ruled, other] =
        ["host:80", "other:80"].map(|host| cluster.create_at(0, host, (10, 10), 1));
    let is_ruled = |cluster: &mut Cluster, id| {
        let shard = cluster.shard(0);
        shard.is_ruled(shard.records.get(shard.find(id).expect("it is held")))
    };
    assert!(!is_ruled(&mut cluster, ruled));
    set(&mut cluster, 0, Some(RATE_1));
    assert_eq!([ruled, other].map(|id| is_ruled(&mut cluster, id)), [true, false]);
}

/// By when the pop was due and when the rule was taken away: the number of the pop that is made.
#[test]
fn only_pops_that_were_due_when_their_rule_was_taken_away_are_left_out() {
    for (unruled_ms, number) in [(0, 1), (999, 1), (1_000, 3), (1_001, 3)] {
        let mut cluster = alone(1, (1, 100), PAUSED);
        cluster.skip_to(unruled_ms);
        let (now, none) = (cluster.now(), Arc::default());
        let shard = cluster.shard(0);
        let slot = shard.records.occupied_from(Slot(0)).next().expect("one timer");
        let authority = shard.records.get(slot).authority;
        shard.records.hosts_mut().admit(authority, Tick(1), &mut Vec::new()).expect("a lane");
        shard.set_flow_rules(now, none);
        let tick = Tick(START_MS + 3_500);
        assert_eq!(shard.without_missed(tick, slot).sequence + 1, number, "{unruled_ms}");
    }
}

#[test]
fn only_a_pop_that_was_not_tried_waits_by_a_rule() {
    for (attempts, waits) in [(0, true), (1, false)] {
        let mut cluster = alone(1, (10, 10), PAUSED);
        cluster.run_until(11);
        let shard = cluster.shard(0);
        let slot = shard.records.occupied_from(Slot(0)).next().expect("one timer");
        let record = Record { attempts, ..*shard.records.get(slot) };
        assert_eq!(shard.waits_by_rule(&record), waits, "{attempts}");
    }
}

/// The other rank has taken the delete.
#[test]
fn a_pop_that_waited_for_a_rule_while_its_core_got_no_time_is_asked_about() {
    let id = TimerId(7);
    let (mut cluster, first, second) = Cluster::with_timer_of_two(id);
    (0..3).for_each(|node| set(&mut cluster, node, Some(PAUSED)));
    cluster.run_until(11);
    cluster.freeze(first);
    cluster.run_until(12);
    let answer = cluster.ask(second, Request::Delete(target(id, 2)));
    assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
    cluster.run_until(20);
    cluster.thaw(first);
    set(&mut cluster, first, Some(NONE));
    cluster.run_until(30);
    assert_eq!(cluster.pops, []);
}

/// A rank has just asked whether another one is at a pop, as the destination is paused.
#[test]
fn a_pause_leaves_no_question_open() {
    let mut cluster = Cluster::new(2, true);
    (0..2).for_each(|node| set(&mut cluster, node, Some(RATE_1)));
    for node in [0, 1].repeat(10) {
        cluster.create(node, (2, 2), 2);
    }
    let is_idle = |cluster: &mut Cluster, node: usize| cluster.shard(node).questions.is_idle();
    while (0..2).all(|node| is_idle(&mut cluster, node)) && cluster.passed_ms() < 20_000 {
        cluster.now_ms += 10;
        (0..2).for_each(|node| cluster.tick(node));
    }
    assert!(!(0..2).all(|node| is_idle(&mut cluster, node)), "one has asked the other");
    (0..2).for_each(|node| set(&mut cluster, node, Some(PAUSED)));
    cluster.run_until(60);
    assert!((0..2).all(|node| is_idle(&mut cluster, node)));
}

#[test]
fn orders_of_members_are_passed_on_as_far_as_a_turn_takes_them() {
    let mut cluster = Cluster::new(2, true);
    let peer = cluster.peer(0, 1);
    let shard = cluster.shard(0);
    for (peer, waiting, result, passed_on) in [
        (peer, 0, PeerResult::Held, 1),
        (peer, ORDERS_PER_TURN_MAX - 1, PeerResult::Held, 1),
        (peer, ORDERS_PER_TURN_MAX, PeerResult::Busy, 0),
        (None, 0, PeerResult::Refused(PeerRefusal::Malformed), 0),
    ] {
        let mut outbox = Outbox::default();
        let other = (shard.peers.own(), Box::from(&b"other"[..]));
        outbox.orders = vec![other; waiting];
        let teller = Teller { peer, clock_offset_ns: 0 };
        assert_eq!(shard.take_orders(teller, b"lines", &mut outbox), result, "{waiting}");
        assert_eq!(outbox.orders.len(), waiting + passed_on);
        let last = outbox.orders.last().map(|(_, lines)| &lines[..]);
        assert!(passed_on == 0 || last == Some(b"lines"), "{last:?}");
    }
}

#[test]
fn a_member_that_returns_is_told_all_orders_and_that_these_are_all() {
    let mut cluster = Cluster::new(2, true);
    let peer = cluster.peer(0, 1).expect("a member");
    let shard = cluster.shard(0);
    let told = |shard: &Shard, peer| {
        let mut outbox = Outbox::default();
        shard.tell_orders(peer, &mut outbox);
        let messages = std::mem::take(&mut outbox.to_peers).into_iter();
        let lines = messages.map(|message| {
            let bytes = &outbox.peer_bytes[message.bytes];
            let Ok(PeerMessage::Orders(lines)) = decode_message(&mut &bytes[..]) else {
                panic!("orders")
            };
            lines.to_vec()
        });
        lines.collect::<Vec<_>>()
    };
    let orders = |orders: &[&[u8]]| Arc::new(orders.iter().map(|lines| (*lines).into()).collect());
    assert_eq!(told(shard, peer).len(), 0, "nothing is known yet, not even that there is nothing");
    assert!(shard.set_orders(orders(&[])), "the first");
    assert_eq!(told(shard, peer), [b""]);
    assert!(!shard.set_orders(orders(&[b"one", b"two"])));
    assert_eq!(told(shard, peer), [&b"one"[..], b"two", b""]);
    let nobody = PeerIndex(99);
    assert_eq!(told(shard, nobody).len(), 0, "each site has its own");
}

#[test]
fn a_survey_tells_of_the_hosts_with_something_to_tell_portion_by_portion() {
    let mut cluster = Cluster::new(1, true);
    set(&mut cluster, 0, Some(PAUSED));
    cluster.create_at(0, "idle:80", (1, 1), 1);
    cluster.run_until(2);
    cluster.all_hang = true;
    cluster.create_at(0, "host:80", (1, 1), 1);
    cluster.create_at(0, "hung:80", (1, 1), 1);
    cluster.create_at(0, "failed:80", (1, 1), 1);
    cluster.run_until(4);
    let is_failed = |cluster: &mut Cluster, ticket: &Ticket| {
        let shard = cluster.shard(0);
        let record = *shard.records.get(ticket.slot);
        shard.records.authority_of(&record) == "failed:80"
    };
    for (node, ticket) in std::mem::take(&mut cluster.hanging) {
        if is_failed(&mut cluster, &ticket) {
            let outcome = CallbackOutcome::Unreachable;
            cluster.handle(node, Event::CallbackFinished { ticket, outcome });
        }
    }
    let (now, places) = (cluster.now(), cluster.shard(0).records.hosts().places());
    assert!(places >= 4, "{places}");
    for portion in [1, 3, places - 1, places, places + 1] {
        let (mut found, mut from, mut portions) = (Vec::new(), Some(0), 0);
        while let Some(begin) = from {
            let shard = cluster.shard(0);
            from = shard.survey(now, (begin, portion), |name| name != "none", &mut found);
            assert_eq!(from, Some(begin + portion).filter(|next| *next < places));
            portions += 1;
        }
        assert_eq!(portions, places.div_ceil(portion), "{portion} of {places}");
        let told = found
            .iter()
            .map(|host| (&*host.authority, [host.waiting, host.in_flight, host.failures.min(1)]));
        let mut told: Vec<_> = told.collect();
        told.sort();
        let wanted = [("failed:80", [0, 0, 1]), ("host:80", [1, 0, 0]), ("hung:80", [0, 1, 0])];
        assert_eq!(told, wanted, "{portion}");
    }
    let mut found = Vec::new();
    cluster.shard(0).survey(now, (0, places), |name| name == "hung:80", &mut found);
    assert_eq!(found.len(), 1);
}
