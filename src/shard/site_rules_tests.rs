//! Rules of destinations at one site or at both, and callbacks that take long: a pop that one site
//! is at is made by no other one, as long as that site lives.

use super::returns::{come_back, leave};
use super::*;
use crate::base::destinations::{DestinationTable, Rule};
use crate::timer::definition::encode_with_attributes;
use crate::wire::attributes::Attributes;

const NONE: Rule = Rule { max_in_flight: None, per_1000_s: None, is_paused: false };
const PAUSED: Rule = Rule { is_paused: true, ..NONE };
const RATE_1: Rule = Rule { per_1000_s: Some(1_000), ..NONE };

/// Gives the nodes of some sites this rule for the host of all timers.
fn set(sites: &mut Sites, which: &[usize], rule: Option<Rule>) {
    for node in which.iter().flat_map(|site| [2 * site, 2 * site + 1]) {
        let now = sites.now(node);
        let shard = &mut sites.shards[node];
        let former = shard.records.hosts().destinations();
        let rules = rule.map(|rule| ("host:80".to_owned(), rule));
        shard.set_flow_rules(now, Arc::new(DestinationTable::new(rules, &former)));
    }
}

/// Twenty timers of the first site, held by one or two nodes of each site.
fn twenty(sites: &mut Sites, factor: u8) {
    for number in 0..20 {
        sites.create(number % 2, (2, 2), factor);
    }
}

/// How many timers have popped at each site. None has popped twice.
fn made(sites: &Sites) -> [usize; 2] {
    let by = |site: usize| sites.pops.iter().filter(|pop| pop.1 / 2 == site).count();
    let shown: Vec<_> = sites.pops.iter().map(|pop| pop.2).collect();
    assert!(shown.iter().all(|number| *number == 1), "{:?}", sites.pops);
    [by(0), by(1)]
}

/// Only the site with the rule knows of it. The node that is asked need not hold the timer.
#[test]
fn a_pop_that_waits_for_a_rule_of_its_site_is_made_by_no_other_site() {
    for (factor, rule, by_20_s) in [(1, PAUSED, 0..1), (2, PAUSED, 0..1), (2, RATE_1, 12..21)] {
        let mut sites = Sites::new();
        set(&mut sites, &[0], Some(rule));
        twenty(&mut sites, factor);
        sites.run_until(20);
        let [first, second] = made(&sites);
        assert!(by_20_s.contains(&first) && second == 0, "{rule:?}: {first} {second}");
        set(&mut sites, &[0], None);
        sites.run_until(21);
        assert_eq!(made(&sites), [20, 0], "{rule:?}");
        sites.run_until(60);
        assert_eq!(made(&sites), [20, 0], "{rule:?}");
        sites.audit();
    }
}

/// A rule at the other site alone is not asked for what this site makes.
#[test]
fn a_rule_of_another_site_holds_up_no_pop_of_this_one() {
    let mut sites = Sites::new();
    set(&mut sites, &[1], Some(PAUSED));
    twenty(&mut sites, 2);
    sites.run_until(3);
    assert_eq!(made(&sites), [20, 0]);
}

/// Whichever order is the first, and if both come in one moment.
#[test]
fn a_pause_of_both_sites_that_ends_lets_each_pop_be_made_once() {
    for order in [&[0, 1][..], &[1, 0]] {
        for apart_s in [0, 2] {
            let mut sites = Sites::new();
            set(&mut sites, &[0, 1], Some(PAUSED));
            twenty(&mut sites, 2);
            sites.run_until(12);
            assert_eq!(sites.pops, []);
            set(&mut sites, &order[..1], None);
            sites.run_until(12 + apart_s);
            set(&mut sites, &order[1..], None);
            sites.run_until(60);
            assert_eq!(made(&sites), [20, 0], "{order:?} {apart_s} s");
            sites.audit();
        }
    }
}

/// A rate that both sites are given is that of one of them for the timers of one.
#[test]
fn two_sites_do_not_share_the_pops_of_one() {
    let mut sites = Sites::new();
    set(&mut sites, &[0, 1], Some(RATE_1));
    twenty(&mut sites, 2);
    sites.run_until(14);
    let [first, second] = made(&sites);
    assert!((8..=15).contains(&first) && second == 0, "{first} {second}");
    sites.run_until(60);
    assert_eq!(made(&sites), [20, 0]);
}

/// Nobody keeps the pops of a site that is dead. They are made by the rules of the next one.
#[test]
fn what_waits_for_a_rule_is_made_by_the_next_site_when_its_own_is_dead() {
    let mut sites = Sites::new();
    set(&mut sites, &[0], Some(PAUSED));
    twenty(&mut sites, 2);
    sites.run_until(30);
    leave(&mut sites, &[0, 1]);
    sites.run_until(61);
    assert_eq!(made(&sites), [0, 20]);
    come_back(&mut sites);
    set(&mut sites, &[0], None);
    sites.run_until(120);
    assert_eq!(made(&sites), [0, 20]);
    sites.audit();
}

/// The nodes of a site see at different times that the site before it is dead.
#[test]
fn the_ranks_of_a_site_do_not_both_make_what_a_dead_site_held_up() {
    for first_to_know in [2, 3] {
        let mut sites = Sites::new();
        set(&mut sites, &[0], Some(PAUSED));
        twenty(&mut sites, 2);
        sites.run_until(14);
        sites.frozen = &[0, 1];
        for node in [2, 3] {
            sites.lines[node][0] = None;
            let peer = sites.views[node].connected_sites().iter().next().expect("one other site");
            sites.believe(node, peer, Liveness::Suspect);
        }
        for (node, second) in [(first_to_know, 17), (first_to_know ^ 1, 18)] {
            sites.run_until(second);
            let peer = sites.views[node].connected_sites().iter().next().expect("one other site");
            sites.believe(node, peer, Liveness::Dead);
        }
        sites.run_until(60);
        assert_eq!(made(&sites), [0, 20], "{first_to_know} knows first");
    }
}

/// A site that is back and the one that took over may both wait with a pop. The first one that
/// makes it tells the other.
#[test]
fn what_a_returned_site_and_another_one_both_hold_up_is_made_once() {
    for factor in [1, 2] {
        let mut sites = Sites::new();
        set(&mut sites, &[0, 1], Some(PAUSED));
        twenty(&mut sites, factor);
        sites.run_until(10);
        leave(&mut sites, &[0, 1]);
        sites.run_until(60);
        come_back(&mut sites);
        sites.run_until(90);
        assert_eq!(sites.pops, []);
        set(&mut sites, &[0, 1], None);
        sites.run_until(150);
        let [first, second] = made(&sites);
        assert_eq!(first + second, 20, "factor {factor}");
        sites.audit();
    }
}

/// One rank has failed, and another one waits for the rule. The node of the site that is asked is
/// the first.
#[test]
fn a_site_asks_all_its_ranks_whether_they_are_at_a_pop() {
    let mut sites = Sites::new();
    sites.outcome = |node, _| match node {
        0 => CallbackOutcome::Rejected,
        _ => CallbackOutcome::Delivered,
    };
    let mut ids = Vec::new();
    while ids.len() < 10 {
        let id = sites.create(0, (2, 2), 2);
        match sites.holder(id, 0) {
            0 => ids.push(id),
            _ => sites.delete(0, id, 2),
        }
    }
    sites.run_until(3);
    assert_eq!(made(&sites), [10, 0], "the first rank fails");
    set(&mut sites, &[0], Some(PAUSED));
    sites.run_until(40);
    assert_eq!(made(&sites), [10, 0]);
    set(&mut sites, &[0], None);
    sites.run_until(80);
    let delivered = sites.pops.iter().filter(|pop| pop.1 == 1).count();
    assert_eq!((delivered, made(&sites)[1]), (10, 0), "the second rank delivers");
    sites.audit();
}

/// What a site has failed to deliver is tried by the next one.
#[test]
fn a_pop_that_fails_at_all_ranks_of_a_site_is_left_to_the_next_site() {
    for rule in [None, Some(RATE_1)] {
        let mut sites = Sites::new();
        sites.outcome = |node, _| match node {
            0 | 1 => CallbackOutcome::Unreachable,
            _ => CallbackOutcome::Delivered,
        };
        set(&mut sites, &[0], rule);
        let id = sites.create(0, (2, 2), 2);
        sites.run_until(9);
        let by: Vec<usize> = sites.pops.iter().map(|pop| pop.1 / 2).collect();
        assert_eq!(by, [0, 0, 1], "{rule:?}: {:?}", sites.pops);
        assert!(sites.pops[2].0 < 8_000, "{:?}", sites.pops);
        assert!(sites.holders(id).is_empty());
    }
}

/// A callback that is allowed minutes is not begun by the other site beside it.
#[test]
fn a_callback_that_takes_long_is_waited_for_by_other_sites() {
    let mut sites = Sites::new();
    sites.hung = true;
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    Attributes { timeout_ms: Some(60_000), ..Attributes::default() }.write(&mut encoded);
    encode_with_attributes("/pop", &[], (&encoded, b""), &mut content);
    sites.create_with(0, (2, 2), 2, &content);
    sites.run_until(50);
    let [(_, node, 1)] = sites.pops[..] else { panic!("{:?}", sites.pops) };
    assert!(node < 2);
    sites.hung = false;
    let (node, ticket) = sites.hanging.remove(0);
    let outcome = CallbackOutcome::Delivered;
    sites.handle(node, Event::CallbackFinished { ticket, outcome });
    sites.run_until(120);
    assert_eq!(made(&sites), [1, 0]);
    sites.audit();
}
