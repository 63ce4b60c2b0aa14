//! Limits of timers per owner: what counts, whoever dies, and what is refused.

use std::sync::Arc;

use super::effects::{Answer, Refusal, Request};
use super::harness_tests::{Cluster, content, definition, target};
use crate::base::ids::TimerId;
use crate::base::quota::{Quota, Quotas, TokenLimits};
use crate::timer::definition::with_owner;

const FULL: Answer = Answer::Refused(Refusal::TokenFull);

fn owned(owner: &str) -> Vec<u8> {
    let mut owned = Vec::new();
    with_owner(&content(), owner, &mut owned);
    owned
}

/// Gives each node quotas of its own: names with the most timers that a node may hold of them.
fn limit(cluster: &mut Cluster, names: &[(&str, u32)]) {
    for node in 0..cluster.nodes.len() {
        let quota = |(name, timers): &(&str, u32)| {
            let limits = TokenLimits { timers: Some(*timers), ..TokenLimits::default() };
            ((*name).into(), Arc::new(Quota::new(name, limits)))
        };
        let quotas: Quotas = names.iter().map(quota).collect();
        cluster.shard(node).set_quotas(Arc::new(quotas));
    }
}

fn post(cluster: &mut Cluster, node: usize, owner: &str, factor: u8) -> Answer {
    let content = owned(owner);
    cluster.ask(node, Request::Create(definition((60, 600), factor, &content)))
}

fn put(cluster: &mut Cluster, node: usize, id: TimerId, owner: &str, factor: u8) -> Answer {
    let content = owned(owner);
    let request = Request::Update(target(id, factor), definition((60, 600), factor, &content));
    cluster.ask(node, request)
}

fn id_of(answer: &Answer) -> TimerId {
    match answer {
        Answer::Done { id, .. } => *id,
        other => panic!("{other:?}"),
    }
}

fn held(cluster: &mut Cluster, owner: &str) -> Vec<u64> {
    cluster.audit();
    let nodes = cluster.nodes.iter().filter_map(|node| node.shard.as_ref());
    nodes.map(|shard| shard.records.timers_of(owner)).collect()
}

#[test]
fn an_owner_has_as_many_timers_as_it_may() {
    let mut cluster = Cluster::new(1, true);
    limit(&mut cluster, &[("a", 3)]);
    let ids: Vec<_> = (0..3).map(|_| id_of(&post(&mut cluster, 0, "a", 1))).collect();
    assert_eq!(post(&mut cluster, 0, "a", 1), FULL);
    assert_eq!(put(&mut cluster, 0, TimerId(77), "a", 1), FULL, "a PUT of a new timer");
    assert_eq!(id_of(&put(&mut cluster, 0, ids[1], "a", 1)), ids[1], "an own timer, replaced");
    id_of(&post(&mut cluster, 0, "b", 1));
    cluster.create(0, (60, 600), 1);
    assert_eq!(held(&mut cluster, "a"), [3]);

    id_of(&cluster.ask(0, Request::Delete(target(ids[0], 1))));
    assert_eq!(held(&mut cluster, "a"), [2]);
    assert_eq!(id_of(&put(&mut cluster, 0, ids[0], "a", 1)), ids[0], "where its tombstone is");
    assert_eq!(post(&mut cluster, 0, "a", 1), FULL);
}

#[test]
fn a_timer_is_of_whoever_wrote_it_last() {
    let mut cluster = Cluster::new(1, true);
    limit(&mut cluster, &[("a", 2), ("b", 1)]);
    let first = id_of(&post(&mut cluster, 0, "a", 1));
    let second = id_of(&post(&mut cluster, 0, "a", 1));
    assert_eq!(id_of(&put(&mut cluster, 0, first, "b", 1)), first);
    assert_eq!((held(&mut cluster, "a"), held(&mut cluster, "b")), (vec![1], vec![1]));
    assert_eq!(put(&mut cluster, 0, second, "b", 1), FULL, "another's timer is one more");
    assert_eq!(held(&mut cluster, "a"), [1], "and nothing has changed");
    cluster.put(0, first, (60, 600), 1);
    assert_eq!(held(&mut cluster, "b"), [0], "written without a limited token");
}

#[test]
fn timers_that_popped_are_free() {
    let mut cluster = Cluster::new(2, true);
    limit(&mut cluster, &[("a", 2)]);
    let content = owned("a");
    for seconds in [(1, 1), (1, 3)] {
        id_of(&cluster.ask(0, Request::Create(definition(seconds, 2, &content))));
    }
    assert_eq!(post(&mut cluster, 0, "a", 2), FULL);
    cluster.run_until(2);
    assert_eq!(held(&mut cluster, "a"), [1, 1], "one is over, the other pops again");
    cluster.run_until(8);
    assert_eq!(held(&mut cluster, "a"), [0, 0]);
    id_of(&post(&mut cluster, 1, "a", 2));
}

/// The node that takes a request need not be one of those that are to hold the timer.
#[test]
fn each_node_that_is_to_hold_a_timer_looks_at_its_own_count() {
    let mut cluster = Cluster::new(4, true);
    limit(&mut cluster, &[("a", 5)]);
    let mut taken = Vec::new();
    for _ in 0..60 {
        match post(&mut cluster, 0, "a", 2) {
            Answer::Done { id, .. } => taken.push(id),
            full => assert_eq!(full, FULL),
        }
    }
    let counts = held(&mut cluster, "a");
    assert!(counts.iter().all(|held| *held <= 5), "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 2 * taken.len() as u64, "none is half there");
    // Ids that clients choose: somebody who holds one has taken it below its limit.
    for id in 1..400 {
        put(&mut cluster, 0, TimerId(id), "a", 1);
    }
    let counts = held(&mut cluster, "a");
    assert!(counts.iter().all(|held| *held <= 5), "{counts:?}");
    for id in taken {
        assert_eq!(id_of(&put(&mut cluster, 0, id, "a", 2)), id, "own timers are replaced");
    }
}

#[test]
fn what_nodes_take_over_counts_once_and_is_never_refused() {
    let mut cluster = Cluster::new(3, true);
    limit(&mut cluster, &[("a", 8)]);
    let made = (0..8).filter(|_| post(&mut cluster, 0, "a", 2) != FULL).count() as u64;
    assert_eq!(made, 8, "no node holds more than all of them");
    let counts = held(&mut cluster, "a");
    assert_eq!(counts.iter().sum::<u64>(), 16, "{counts:?}");
    cluster.kill(2);
    cluster.run_until(30);
    assert_eq!(held(&mut cluster, "a"), counts[..2], "the others go on with what they hold");

    // The node gets back what it is to hold, although that is more than its limit is now.
    cluster.return_empty(2);
    limit(&mut cluster, &[("a", 1)]);
    cluster.run_until(59);
    assert!(counts[2] > 1, "{counts:?}");
    assert_eq!(held(&mut cluster, "a"), counts);
    assert_eq!(post(&mut cluster, 0, "a", 2), FULL);
    // Pops that other ranks have done meanwhile end the timers here, too.
    cluster.run_until(700);
    assert_eq!(held(&mut cluster, "a"), [0, 0, 0]);
}

/// Quotas come after the timers when a node starts, and again with each change of the file.
#[test]
fn quotas_that_come_later_count_what_is_there() {
    let mut cluster = Cluster::new(1, true);
    for _ in 0..5 {
        id_of(&post(&mut cluster, 0, "a", 1));
    }
    let quota = |timers| {
        let limits = TokenLimits { timers: Some(timers), ..TokenLimits::default() };
        Arc::new(Quota::new("a", limits))
    };
    let set = |cluster: &mut Cluster, quota: &Arc<Quota>| {
        let quotas = Quotas::from([("a".into(), Arc::clone(quota))]);
        cluster.shard(0).set_quotas(Arc::new(quotas));
    };
    let first = quota(6);
    set(&mut cluster, &first);
    assert_eq!(first.timers(), 5);
    id_of(&post(&mut cluster, 0, "a", 1));
    assert_eq!(post(&mut cluster, 0, "a", 1), FULL);
    let second = Arc::new(quota(7).going_on_from(&first));
    set(&mut cluster, &second);
    assert_eq!(second.timers(), 6, "counted once");
    id_of(&post(&mut cluster, 0, "a", 1));
    assert_eq!(post(&mut cluster, 0, "a", 1), FULL);
    let third = quota(9);
    set(&mut cluster, &third);
    assert_eq!((second.timers(), third.timers()), (0, 7));
    cluster.shard(0).set_quotas(Arc::default());
    assert_eq!(third.timers(), 0);
    for _ in 0..3 {
        id_of(&post(&mut cluster, 0, "a", 1));
    }
    assert_eq!(held(&mut cluster, "a"), [10]);
}

#[test]
fn clients_are_not_shown_the_owner() {
    let mut cluster = Cluster::new(2, true);
    let id = id_of(&post(&mut cluster, 0, "billing", 2));
    for node in 0..2 {
        let Answer::Found(view) = cluster.ask(node, Request::Read(target(id, 2))) else {
            panic!("it is there")
        };
        assert_eq!((view.tags, &*view.opaque), (vec![("CALL".to_owned(), 3)], &b"opaque"[..]));
    }
    assert_eq!(cluster.calls(), 3, "tags count as ever");
}
