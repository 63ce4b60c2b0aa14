//! A whole site is away and comes back with what it held.

use super::*;
use crate::shard::records::State;
use crate::timer::definition::encode_with_attributes;
use crate::wire::attributes::{Attributes, RetryPolicy};

/// Nodes of the first site get no time, and nobody reaches them.
pub(super) fn leave(sites: &mut Sites, nodes: &'static [usize]) {
    (0..NODES).for_each(|node| sites.cut(node, true));
    sites.frozen = nodes;
}

pub(super) fn come_back(sites: &mut Sites) {
    sites.frozen = &[];
    (0..NODES).for_each(|node| sites.cut(node, false));
}

fn definition(content: &[u8]) -> Definition<'_> {
    Definition {
        interval_ms: 30_000,
        repeat_for_ms: 30_000,
        factor: Some(2),
        authority: "host:80",
        content,
    }
}

/// The content of a timer with a policy.
fn trying(retry: RetryPolicy) -> Vec<u8> {
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    Attributes { retry: Some(retry), ..Attributes::default() }.write(&mut encoded);
    encode_with_attributes("/pop", &[], (&encoded, b"opaque"), &mut content);
    content
}

/// What came due meanwhile was popped, deleted or replaced by the other site.
#[test]
fn a_site_that_was_away_pops_nothing_of_what_ended_meanwhile() {
    let mut sites = Sites::new();
    sites.run_until(1);
    let [popped, deleted, replaced] = [0, 1, 2].map(|_| sites.create(0, (9, 9), 2));
    sites.run_until(2);
    leave(&mut sites, &[0, 1]);
    sites.run_until(5);
    sites.delete(2, deleted, 2);
    let mut content = Vec::new();
    encode_content("/pop", &[], b"other", &mut content);
    let target = Target { id: replaced, factor: Some(2), filter: None };
    sites.ask(3, Request::Update(target, definition(&content)));
    sites.run_until(20);
    let [pop] = sites.pops[..] else { panic!("site 2 pops what is left: {:?}", sites.pops) };
    assert!(pop.0 >= 14_000 && pop.1 >= 2, "{pop:?}");
    come_back(&mut sites);
    sites.run_until(30);
    assert_eq!(sites.pops.len(), 1, "{:?}", sites.pops);
    assert!(sites.holders(popped).is_empty() && sites.holders(deleted).is_empty());
    assert_eq!(sites.holders(replaced), [0, 1, 2, 3]);
    sites.run_until(60);
    let [_, pop] = sites.pops[..] else { panic!("{:?}", sites.pops) };
    assert!(pop.1 < 2 && (35_000..36_000).contains(&pop.0), "the new definition: {pop:?}");
    sites.audit();
}

/// It answers one question after the other, for longer than a silent site would be waited for.
#[test]
fn a_site_that_is_back_waits_for_one_that_has_much_to_answer() {
    let mut sites = Sites::new();
    sites.run_until(1);
    let deleted: Vec<TimerId> = (0..30).map(|_| sites.create(0, (9, 9), 2)).collect();
    sites.run_until(2);
    leave(&mut sites, &[0, 1]);
    deleted.iter().for_each(|id| sites.delete(2, *id, 2));
    sites.run_until(20);
    come_back(&mut sites);
    sites.under_way = Some(Vec::new());
    // 60 questions, and as many answers.
    for step in 0..120 {
        sites.run_for(200);
        let under_way = sites.under_way.as_mut().expect("put there");
        if !under_way.is_empty() {
            let answer = under_way.iter().position(|sent| sent.is_result);
            let in_turn = under_way.iter().position(|sent| sent.node == step / 2 % 2);
            let sent = under_way.remove(answer.or(in_turn).unwrap_or(0));
            sites.arrive(sent);
        }
        assert_eq!(sites.pops, [], "after {} ms", step * 200);
    }
    let rest = sites.under_way.take().expect("put there");
    rest.into_iter().for_each(|sent| sites.arrive(sent));
    sites.run_until(120);
    assert_eq!(sites.pops, []);
    assert!(deleted.iter().all(|id| sites.holders(*id).is_empty()));
    sites.audit();
}

#[test]
fn numbers_of_a_timer_do_not_fall_when_a_site_is_back() {
    let mut sites = Sites::new();
    sites.run_until(1);
    sites.create(0, (2, 60), 2);
    sites.run_until(8);
    leave(&mut sites, &[0, 1]);
    sites.run_until(25);
    come_back(&mut sites);
    sites.run_until(70);
    let numbers: Vec<u64> = sites.pops.iter().map(|pop| pop.2).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>(), "{:?}", sites.pops);
    let last = sites.pops.last().expect("thirty");
    assert!(last.1 < 2 && last.0 < 61_500, "the first site is in time again: {last:?}");
    sites.audit();
}

/// No site knows better than another. The one that took the timer pops it.
#[test]
fn where_all_sites_were_away_the_first_pops_once() {
    for creator in [0, 2] {
        let mut sites = Sites::new();
        sites.run_until(1);
        sites.create(creator, (5, 5), 2);
        sites.run_until(2);
        leave(&mut sites, &[0, 1, 2, 3]);
        sites.run_until(20);
        come_back(&mut sites);
        sites.run_until(40);
        let [pop] = sites.pops[..] else { panic!("{:?}", sites.pops) };
        assert_eq!(pop.1 / 2, creator / 2, "{pop:?}");
        assert!(pop.0 < 20_000 + 9_000, "{pop:?}");
        sites.audit();
    }
}

/// The other site is not there to be asked.
#[test]
fn a_site_that_is_known_to_be_dead_is_not_waited_for() {
    let mut sites = Sites::new();
    sites.run_until(1);
    sites.create(0, (5, 5), 2);
    sites.run_until(2);
    leave(&mut sites, &[0, 1, 2, 3]);
    sites.run_until(20);
    sites.frozen = &[2, 3];
    sites.run_until(22);
    let [pop] = sites.pops[..] else { panic!("{:?}", sites.pops) };
    assert!(pop.1 < 2, "{pop:?}");
}

/// A site that was away for longer than tombstones stay elsewhere is told what has ended, as far as
/// there was room to remember it.
#[test]
fn a_site_that_was_away_for_long_brings_nothing_back() {
    for (records_max, has_room) in [(1_000_000, true), (15, false)] {
        let mut sites = Sites::new();
        sites.shards.iter_mut().for_each(|shard| shard.records.set_records_max(records_max));
        sites.run_until(1);
        let deleted = [0, 1, 2].map(|_| sites.create(0, (900, 900), 2));
        sites.create(0, (9, 9), 2);
        sites.run_until(2);
        leave(&mut sites, &[0, 1]);
        deleted.iter().for_each(|id| sites.delete(3, *id, 2));
        sites.run_until(1_100);
        assert_eq!(sites.pops.len(), 1, "{:?}", sites.pops);
        let kept = sites.shards[2].records.counts().tombstones;
        assert_eq!(kept, if has_room { 4 } else { 1 });
        let early = |sites: &Sites| -> u64 {
            sites.shards.iter().map(|shard| shard.counters.tombstones_ended_early).sum()
        };
        assert_eq!(early(&sites) == 0, has_room);
        come_back(&mut sites);
        sites.run_until(1_140);
        assert_eq!(sites.pops.len() == 1, has_room, "{:?}", sites.pops);
        // Everybody has heard. They end as any other.
        sites.run_until(3_000);
        assert!(sites.shards.iter().all(|shard| shard.records.counts().tombstones == 0));
        sites.audit();
    }
}

/// A node of a site is away, and its site and the other one live. Nobody holds what was deleted.
#[test]
fn a_node_of_a_site_that_was_away_for_long_brings_nothing_back() {
    let mut sites = Sites::new();
    sites.run_until(1);
    let deleted = sites.create(0, (30, 300), 2);
    sites.run_until(2);
    sites.part(true);
    sites.cut(0, true);
    sites.frozen = &[0];
    sites.delete(3, deleted, 2);
    sites.run_until(400);
    let lives = sites.pops.len();
    sites.frozen = &[];
    sites.part(false);
    sites.cut(0, false);
    sites.run_until(430);
    assert_eq!(sites.pops.len(), lives, "{:?}", sites.pops);
    assert!(sites.holders(deleted).is_empty());
    sites.audit();
}

/// The start of a dead letter lies in the future: there its time is over.
#[test]
fn a_site_that_was_away_takes_dead_letters_with_all_of_their_time() {
    let mut sites = Sites::new();
    sites.outcome = |_, _| CallbackOutcome::Rejected;
    sites.run_until(1);
    let retry = RetryPolicy {
        max_attempts: 2,
        max_age_ms: 60_000,
        initial_ms: 100,
        max_ms: 100,
        multiplier_milli: 1_000,
        jitter_milli: 0,
    };
    let id = sites.create_with(0, (5, 5), 2, &trying(retry));
    sites.run_until(2);
    leave(&mut sites, &[0, 1]);
    sites.run_until(30);
    assert_eq!(sites.pops.len(), 2, "{:?}", sites.pops);
    let over_at = |sites: &Sites, node: usize| {
        let shard = &sites.shards[node];
        let record = *shard.records.get(shard.find(id).expect("a letter"));
        (record.state, record.start)
    };
    let letter = over_at(&sites, 2);
    assert_eq!(letter.0, State::Parked);
    come_back(&mut sites);
    sites.run_until(60);
    assert_eq!(sites.pops.len(), 2, "{:?}", sites.pops);
    for node in 0..NODES {
        let (state, start) = over_at(&sites, node);
        assert_eq!(state, State::Parked, "at node {node}");
        assert!(start.0.abs_diff(letter.1.0) <= 2_000, "at node {node}: {start:?} {letter:?}");
    }
    sites.audit();
}

/// The other site tries a pop by its policy when the first site is back. The first one leaves the
/// pop to it, and it goes on.
#[test]
fn a_site_that_is_back_leaves_a_pop_to_the_site_that_tries_it() {
    let mut sites = Sites::new();
    sites.outcome = |_, _| CallbackOutcome::Rejected;
    sites.run_until(1);
    let retry = RetryPolicy {
        max_attempts: 100,
        max_age_ms: 600_000,
        initial_ms: 2_000,
        max_ms: 2_000,
        multiplier_milli: 1_000,
        jitter_milli: 0,
    };
    let id = sites.create_with(0, (5, 5), 2, &trying(retry));
    sites.run_until(2);
    leave(&mut sites, &[0, 1]);
    sites.run_until(20);
    come_back(&mut sites);
    sites.run_until(40);
    let times: Vec<u64> = sites.pops.iter().map(|pop| pop.0).filter(|at| *at > 15_000).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest.is_some_and(|ms| ms <= 4_000), "{:?}", sites.pops);
    assert!(sites.pops.iter().all(|pop| pop.1 >= 2), "by one site: {:?}", sites.pops);
    sites.outcome = |_, _| CallbackOutcome::Delivered;
    sites.run_until(45);
    let last = *sites.pops.last().expect("many");
    assert!(last.0 > 40_000, "{last:?}");
    let pops = sites.pops.len();
    sites.run_until(90);
    assert_eq!(sites.pops.len(), pops, "{:?}", sites.pops);
    assert!(sites.holders(id).is_empty());
    sites.audit();
}

/// A client deletes a timer while the clocks of its site are an hour ahead, and writes it anew when
/// they are right. The site has forgotten the end by then, and the other one has not.
#[test]
fn what_is_written_after_an_end_of_a_wrong_clock_lies_above_it() {
    // The write is told first, or the end is.
    for told_first in [0, 2] {
        let mut sites = Sites::new();
        let id = sites.create(0, (300, 300), 2);
        sites.run_until(1);
        sites.ahead_ms = 3_600_000;
        sites.delete(0, id, 2);
        sites.ahead_ms = 0;
        sites.run_until(8);
        (0..NODES).for_each(|node| sites.cut(node, true));
        for node in [0, 1] {
            let (tick, shard) = (sites.now(node).mono.tick_floor(), &mut sites.shards[node]);
            let slot = shard.find(id).expect("an end");
            shard.records.forget(tick, slot);
        }
        let mut content = Vec::new();
        encode_content("/pop", &[], b"opaque", &mut content);
        let target = Target { id, factor: Some(2), filter: None };
        sites.ask(0, Request::Update(target, definition(&content)));
        for (node, second) in [(told_first, 9), (told_first + 1, 10), (2 - told_first, 11)] {
            sites.cut(node, false);
            sites.run_until(second);
        }
        sites.cut(3 - told_first, false);
        sites.run_until(20);
        assert_eq!(sites.holders(id), [0, 1, 2, 3], "{told_first}");
        let versions = sites
            .shards
            .iter()
            .map(|shard| shard.records.get(shard.find(id).expect("held by all")).version);
        let versions: Vec<Version> = versions.collect();
        assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
        sites.run_until(60);
        assert_eq!(sites.pops.len(), 1, "{:?}", sites.pops);
        sites.audit();
    }
}

/// Each site takes an action in a cut, of which the other one hears later. The later one stands,
/// also if it changed nothing where it was taken.
#[test]
fn a_later_action_stands_that_changed_nothing_at_its_site() {
    use TimerAction::{Pause, Resume};
    for (before, first, second, pops) in
        [(None, Pause, Resume, true), (Some(Pause), Resume, Pause, false)]
    {
        let mut sites = Sites::new();
        sites.run_until(1);
        let id = sites.create(0, (30, 30), 1);
        before.into_iter().for_each(|action| sites.act(sites.holder(id, 0), id, action));
        sites.run_until(2);
        (0..NODES).for_each(|node| sites.cut(node, true));
        sites.run_until(6);
        sites.act(sites.holder(id, 0), id, first);
        sites.run_until(9);
        sites.act(sites.holder(id, 1), id, second);
        sites.run_until(12);
        (0..NODES).for_each(|node| sites.cut(node, false));
        sites.run_until(50);
        assert_eq!(sites.pops.len(), usize::from(pops), "{first:?}, {second:?}: {:?}", sites.pops);
        sites.audit();
    }
}

/// It has much to ask, and has not asked about this one yet.
#[test]
fn what_has_ended_is_remembered_for_a_while_when_a_site_is_back() {
    let mut sites = Sites::new();
    sites.run_until(1);
    let id = sites.create(0, (9, 9), 2);
    sites.run_until(2);
    leave(&mut sites, &[0, 1]);
    sites.delete(2, id, 2);
    sites.run_until(400);
    let is_held = |sites: &Sites| [2, 3].iter().all(|node| sites.shards[*node].find(id).is_some());
    assert!(is_held(&sites));
    come_back(&mut sites);
    sites.run_until(515);
    assert!(is_held(&sites), "two minutes are not over");
    sites.run_until(800);
    assert!(sites.shards.iter().all(|shard| shard.find(id).is_none()));
    sites.audit();
}
