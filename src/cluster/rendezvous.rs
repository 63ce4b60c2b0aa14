//! Rendezvous hashing over the nodes of one cluster (docs/compat/timer-service.md §3). It decides
//! which nodes hold a timer, in the order of their ranks.
//!
//! It runs for every timer that is written, so it never allocates.

// May panic: assertions 2, expectations 1, indices 3.
// Why it does not: found 4, configured 2.

use super::murmur3::ManySeeds;
use crate::base::ids::{NodeHash, PeerIndex, PeerSet, TimerId};
use crate::base::limits::{PEERS_MAX, REPLICATION_FACTOR_MAX};
use crate::base::ranked::Replicas;

/// Clusters of at most this many nodes draw in a short array. To clear the long array costs more
/// than to draw for three nodes.
const SMALL_CLUSTER: usize = 16;

/// One node that may hold timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's number in the view.
    pub peer: PeerIndex,
    /// The hash of the node's name: the seed under which timer ids are hashed for this node.
    pub node: NodeHash,
}

/// The nodes of a cluster, in the order of their list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendezvous {
    members: Vec<Member>,
    everybody: PeerSet,
}

impl Rendezvous {
    /// A cluster of these nodes. The order of the list decides between equal results. Panics when a
    /// node stands in the list twice, or when there are more than [`PEERS_MAX`] nodes.
    pub fn of(members: Vec<Member>) -> Self {
        assert!(members.len() <= PEERS_MAX, "a view has at most {PEERS_MAX} peers");
        let everybody = members.iter().fold(PeerSet::EMPTY, |set, member| set.with(member.peer));
        assert!(everybody.len() as usize == members.len(), "a node stands in a list once");
        Self { members, everybody }
    }

    /// All nodes of the cluster as a set.
    pub fn everybody(&self) -> PeerSet {
        self.everybody
    }

    /// The nodes in the order of their list.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the first `factor` nodes for a timer among the nodes in `live`, as if the other
    /// nodes were no members. The node with the lowest result is the primary, the node with the
    /// highest result is the first backup, the node with the second highest result is the second
    /// backup, and so on. Returns fewer than `factor` nodes when `live` has fewer.
    ///
    /// Cost for n nodes: n hashes and n x n / 2 comparisons; nothing for one node.
    pub fn first(&self, id: TimerId, factor: u8, live: PeerSet) -> Replicas {
        let factor = usize::from(factor).min(REPLICATION_FACTOR_MAX as usize);
        if factor == 0 {
            return Replicas::new();
        }
        match self.members.as_slice() {
            [] => Replicas::new(),
            [only] if live.contains(only.peer) => [only.node].into_iter().collect(),
            [_] => Replicas::new(),
            members if members.len() <= SMALL_CLUSTER => {
                draw::<SMALL_CLUSTER>(members, id, factor, live)
            }
            members => draw::<PEERS_MAX>(members, id, factor, live),
        }
    }
}

/// The result in the upper 32 bits, the node that drew it in the lower 32 bits. Results are unique,
/// so the order of draws is the order of results.
type Draw = u64;

fn draw<const N: usize>(members: &[Member], id: TimerId, factor: usize, live: PeerSet) -> Replicas {
    let timer = ManySeeds::of(id.0);
    let mut draws: [Draw; N] = [0; N];
    let mut drawn = 0;
    for member in members.iter().filter(|member| live.contains(member.peer)) {
        let result = unique(&draws[..drawn], timer.hash(member.node.0));
        draws[drawn] = u64::from(result) << 32 | u64::from(member.node.0);
        drawn += 1;
    }
    ranked(&draws[..drawn], factor)
}

/// Increments a result until no earlier node has drawn it.
#[inline]
fn unique(draws: &[Draw], mut result: u32) -> u32 {
    while draws.iter().fold(false, |taken, draw| taken | ((draw >> 32) as u32 == result)) {
        result = result.wrapping_add(1);
    }
    result
}

/// Ranks the draws: the lowest first, then the highest, the second highest and so on. Draws are
/// unique, and at most as many are taken as there are, so the lowest draw is not taken twice.
fn ranked(draws: &[Draw], factor: usize) -> Replicas {
    let mut replicas = Replicas::new();
    let Some(&lowest) = draws.iter().min() else { return replicas };
    replicas.push(NodeHash(lowest as u32));
    let mut last: Option<Draw> = None;
    for _ in 1..factor.min(draws.len()) {
        let below = |draw: &Draw| last.is_none_or(|last| *draw < last);
        let highest = draws.iter().copied().filter(below).max();
        let highest = highest.expect("as many draws are below each other as there are draws");
        replicas.push(NodeHash(highest as u32));
        last = Some(highest);
    }
    replicas
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::murmur3::x86_32;

    /// The rule of docs/compat/timer-service.md §3, word for word.
    fn by_the_book(seeds: &[u32], id: u64, factor: usize) -> Vec<u32> {
        let mut results = BTreeMap::new();
        for (position, seed) in seeds.iter().enumerate() {
            let mut result = x86_32(&id.to_le_bytes(), *seed);
            while results.contains_key(&result) {
                result = result.wrapping_add(1);
            }
            results.insert(result, position);
        }
        let mut positions: Vec<usize> = results.into_values().collect();
        let primary = positions.remove(0);
        let order = std::iter::once(primary).chain(positions.into_iter().rev());
        order.take(factor).map(|position| seeds[position]).collect()
    }

    fn placement(seeds: &[u32]) -> Rendezvous {
        let member = |(number, seed): (usize, &u32)| Member {
            peer: PeerIndex(number as u8),
            node: NodeHash(*seed),
        };
        Rendezvous::of(seeds.iter().enumerate().map(member).collect())
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_the_book(
            seeds in proptest::collection::hash_set(any::<u32>(), 1..40),
            id in any::<u64>(),
            factor in 1_u8..=16,
        ) {
            let seeds: Vec<u32> = seeds.into_iter().collect();
            let placement = placement(&seeds);
            let placed = placement.first(TimerId(id), factor, placement.everybody());
            let placed: Vec<u32> = placed.as_slice().iter().map(|node| node.0).collect();
            prop_assert_eq!(placed, by_the_book(&seeds, id, factor.into()));
        }

        #[test]
        fn equal_results_are_made_unique_in_list_order(
            groups in proptest::collection::vec(0_u32..3, 2..20),
            factor in 1_usize..=16,
        ) {
            let mut draws: Vec<Draw> = Vec::new();
            let mut book = BTreeMap::new();
            for (node, group) in groups.iter().enumerate() {
                // Results near the upper end, so that increments wrap round.
                let first = (u32::MAX - 2).wrapping_add(*group);
                let result = unique(&draws, first);
                draws.push(u64::from(result) << 32 | node as u64);
                let mut expected = first;
                while book.contains_key(&expected) {
                    expected = expected.wrapping_add(1);
                }
                book.insert(expected, node as u32);
                prop_assert_eq!(result, expected);
            }
            let mut order: Vec<u32> = book.into_values().collect();
            let primary = order.remove(0);
            let expected: Vec<u32> =
                std::iter::once(primary).chain(order.into_iter().rev()).take(factor).collect();
            let ranked: Vec<u32> =
                ranked(&draws, factor).as_slice().iter().map(|node| node.0).collect();
            prop_assert_eq!(ranked, expected);
        }
    }

    #[test]
    fn nobody_holds_what_nobody_can() {
        let placement = placement(&[5, 6, 7]);
        assert!(placement.first(TimerId(1), 2, PeerSet::EMPTY).is_empty());
        assert!(placement.first(TimerId(1), 0, placement.everybody()).is_empty());
        assert!(Rendezvous::default().first(TimerId(1), 2, placement.everybody()).is_empty());
        assert!(self::placement(&[5]).first(TimerId(1), 2, PeerSet::EMPTY).is_empty());
    }
}
