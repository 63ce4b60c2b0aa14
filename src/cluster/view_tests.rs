//! Tests of what a view promises: the four properties of docs/compat/timer-service.md §9 over
//! random clusters, peer numbers that stay, filters that hide no replica, and configurations that
//! are refused with a remedy.

use proptest::prelude::*;

use super::murmur3::x86_32;
use super::view::{LOCAL_SITE_DEFAULT, Membership, PeerKind, View, site_hash};
use crate::base::ids::{NodeHash, PeerIndex, PeerSet, TimerId};
use crate::base::limits::{PEERS_MAX, SITES_PER_TIMER_MAX};

/// Timers of a sample. One of twenty nodes is the primary of 5 000 timers, give or take 70 (one
/// standard deviation), so a bound of 10 % is seven standard deviations.
const SAMPLE: u64 = 100_000;

fn members(nodes: &[String]) -> Membership {
    Membership { localhost: nodes[0].clone(), nodes: nodes.to_vec(), ..Membership::default() }
}

fn build(membership: &Membership) -> View {
    View::build(None, membership).expect("a configuration without contradictions")
}

fn refusal(membership: &Membership) -> String {
    View::build(None, membership).expect_err("a contradiction").0
}

fn everybody(view: &View) -> PeerSet {
    view.connected_nodes().with(view.own())
}

/// Different node names in any order, as operators write them. `count` says how many.
fn names(count: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<String>> {
    let name = prop_oneof![
        (0_u8..4, any::<u8>()).prop_map(|(third, last)| format!("10.0.{third}.{last}:7253")),
        "[a-z]{3,8}\\.example",
    ];
    proptest::collection::hash_set(name, count)
        .prop_map(|names| names.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

/// Ids as a node mints them: nearly consecutive.
fn sample(first: u64) -> impl Iterator<Item = TimerId> {
    (0..SAMPLE).map(move |n| TimerId(first.wrapping_add(n << 12)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn load_is_balanced(nodes in names(1..=20), first in any::<u64>()) {
        let view = build(&members(&nodes));
        let factor = nodes.len().min(2) as u8;
        let mut ranks = vec![vec![0_u64; nodes.len()]; usize::from(factor)];
        for id in sample(first) {
            let placed = view.place(id, factor, view.new_nodes());
            for (rank, node) in placed.as_slice().iter().enumerate() {
                let peer = view.peer_of(*node).expect("placed on members only");
                ranks[rank][peer.index()] += 1;
            }
        }
        let share = SAMPLE / nodes.len() as u64;
        for held in ranks.iter().flatten() {
            prop_assert!(held.abs_diff(share) * 10 <= share, "{held} of {share}: {ranks:?}");
        }
    }

    #[test]
    fn a_node_that_joins_takes_its_share_and_no_more(
        nodes in names(2..=21),
        first in any::<u64>(),
    ) {
        let (stay, join) = (&nodes[1..], &nodes[0]);
        let view = build(&Membership {
            localhost: stay[0].clone(),
            nodes: stay.to_vec(),
            joining: vec![join.clone()],
            ..Membership::default()
        });
        let joining = NodeHash(x86_32(join.as_bytes(), 0));
        let mut moved = 0_u64;
        for id in sample(first) {
            let (old, new) = (view.place_old(id, 1), view.place(id, 1, view.new_nodes()));
            if old != new {
                prop_assert_eq!(new.as_slice(), &[joining][..]);
                moved += 1;
            }
        }
        let share = SAMPLE as f64 / nodes.len() as f64;
        prop_assert!(moved as f64 <= 1.1 * share, "{moved} moved, the share is {share}");
        prop_assert!(moved as f64 >= 0.9 * share, "{moved} moved, the share is {share}");
    }
}

proptest! {
    #[test]
    fn every_node_computes_the_same(
        (nodes, shuffled) in names(1..=20)
            .prop_flat_map(|nodes| (Just(nodes.clone()), Just(nodes).prop_shuffle())),
        ids in proptest::collection::vec(any::<u64>(), 1..50),
        factor in 1_u8..=16,
    ) {
        let here = build(&members(&nodes));
        let there = build(&members(&shuffled));
        prop_assert_eq!(here.id(), there.id());
        for id in ids.into_iter().map(TimerId) {
            let placed = here.place(id, factor, here.new_nodes());
            prop_assert_eq!(placed, there.place(id, factor, there.new_nodes()));
            prop_assert_eq!(placed, here.place_old(id, factor), "no change: one cluster");
            prop_assert_eq!(usize::from(placed.len()), nodes.len().min(factor.into()));
            prop_assert_eq!(here.filter_of(&placed), there.filter_of(&placed));
        }
    }

    /// A node that joins pushes another node out of a list, and a node that leaves lets another
    /// node in. With as many nodes as replicas before and after, no node goes from primary to
    /// backup or back.
    #[test]
    fn a_scale_operation_swaps_no_primary_with_a_backup(
        nodes in names(3..=20),
        ids in proptest::collection::vec(any::<u64>(), 1..200),
        factor in 2_u8..=16,
        joins in any::<bool>(),
    ) {
        let (stay, one) = (&nodes[1..], vec![nodes[0].clone()]);
        let factor = factor.min(stay.len() as u8);
        let (joining, leaving) = if joins { (one, vec![]) } else { (vec![], one) };
        let moving = NodeHash(x86_32(nodes[0].as_bytes(), 0));
        let localhost = stay[0].clone();
        let nodes = stay.to_vec();
        let view =
            build(&Membership { localhost, nodes, joining, leaving, ..Membership::default() });
        prop_assert!(view.is_changing());
        for id in ids.into_iter().map(TimerId) {
            let (old, new) = (view.place_old(id, factor), view.place(id, factor, view.new_nodes()));
            let both = old.as_slice().iter().filter(|node| new.contains(**node));
            for node in both.clone() {
                let (before, after) = (old.rank_of(*node), new.rank_of(*node));
                prop_assert_eq!(before == Some(0), after == Some(0), "{:?} -> {:?}", old, new);
            }
            prop_assert!(both.count() + 1 >= usize::from(factor), "{old:?} -> {new:?}");
            let others = if joins { new } else { old };
            prop_assert!(old == new || others.contains(moving));
        }
    }

    #[test]
    fn the_dead_are_left_out_as_if_they_were_no_members(
        nodes in names(2..=20),
        dead in any::<u32>(),
        ids in proptest::collection::vec(any::<u64>(), 1..50),
        factor in 1_u8..=16,
    ) {
        let view = build(&members(&nodes));
        let is_live = |number: usize| dead >> number & 1 == 0;
        let live: Vec<String> =
            (0..nodes.len()).filter(|n| is_live(*n)).map(|n| nodes[n].clone()).collect();
        let set = (0..nodes.len()).filter(|n| is_live(*n));
        let set = set.fold(PeerSet::EMPTY, |set, n| set.with(PeerIndex(n as u8)));
        for id in ids.into_iter().map(TimerId) {
            let placed = view.place(id, factor, set);
            if live.is_empty() {
                prop_assert!(placed.is_empty());
            } else {
                let without = build(&members(&live));
                prop_assert_eq!(placed, without.place(id, factor, without.new_nodes()));
            }
        }
    }

    #[test]
    fn filters_hide_no_replica(
        nodes in names(3..=20),
        ids in proptest::collection::vec(any::<u64>(), 1..50),
        factor in 1_u8..=16,
        filter in any::<u64>(),
    ) {
        let view = build(&members(&nodes));
        for id in ids.into_iter().map(TimerId) {
            let placed = view.place(id, factor, view.new_nodes());
            let filter = view.filter_of(&placed);
            let held = view.peers_of(&placed);
            prop_assert_eq!(held.len(), u32::from(placed.len()));
            prop_assert!(held.minus(view.matching(filter)).is_empty());
            prop_assert_eq!(filter & !view.id(), 0);
            // A later view of this node still finds the holders that left.
            let later = View::build(Some(&view), &members(&nodes[..1])).expect("only this one");
            prop_assert!(held.minus(later.matching(filter)).is_empty());
            prop_assert_eq!(later.peers_of(&placed), held);
        }
        for peer in view.matching(filter).iter() {
            prop_assert_eq!(view.peers()[peer.index()].filter_bits & !filter, 0);
        }
    }

    #[test]
    fn numbers_stay(steps in proptest::collection::vec(names(1..=12), 1..8)) {
        let own = "own:7253".to_owned();
        let with_own = |nodes: &Vec<String>| {
            let nodes = nodes.iter().cloned().chain([own.clone()]).collect();
            Membership { localhost: own.clone(), nodes, ..Membership::default() }
        };
        let mut view = build(&with_own(&steps[0]));
        for nodes in &steps[1..] {
            let later = View::build(Some(&view), &with_own(nodes)).expect("fewer than 128");
            for (before, after) in view.peers().iter().zip(later.peers()) {
                prop_assert_eq!(before, after);
            }
            prop_assert!(later.peers().len() >= view.peers().len());
            prop_assert_eq!(later.own(), view.own());
            prop_assert_eq!(later.new_nodes().len() as usize, nodes.len() + 1);
            prop_assert_eq!(later.id(), build(&with_own(nodes)).id());
            view = later;
        }
    }
}

#[test]
fn facts_of_an_original_node() {
    let nodes = ["127.0.0.1", "127.0.0.9"].map(String::from);
    let view = build(&members(&nodes));
    assert_eq!(view.own_hash(), NodeHash(x86_32(b"127.0.0.1", 0)));
    assert_eq!(view.local_site(), site_hash(LOCAL_SITE_DEFAULT));
    // The id in the message of docs/compat/timer-service.md §5.1, sent by an original node of that
    // cluster.
    let id = TimerId(0x0004_d9f5_4810_0000);
    let placed = view.place(id, 2, view.new_nodes());
    let placed: Vec<&str> = placed
        .as_slice()
        .iter()
        .map(|node| view.name_of(view.peer_of(*node).expect("a member")))
        .collect();
    assert_eq!(placed, ["127.0.0.9", "127.0.0.1"]);
    assert_eq!(view.id(), 5_030_520_784_871_784_460);
    assert_eq!(View::alone("127.0.0.1").id(), 292_733_975_804_248_076);
}

/// Nodes compare these digests with each other, so another version must compute the same figures.
#[test]
fn a_digest_is_of_the_nodes_in_any_order() {
    let view =
        |nodes: &[&str]| build(&members(&nodes.iter().map(|n| n.to_string()).collect::<Vec<_>>()));
    let both = view(&["10.0.0.1:7253", "10.0.0.2:7253"]);
    assert_eq!(both.digest(), 0xf18b_ce90);
    assert_eq!(view(&["10.0.0.2:7253", "10.0.0.1:7253"]).digest(), both.digest());
    assert_eq!(view(&["10.0.0.1:7253"]).digest(), 0x1e9f_1cbb);
}

#[test]
fn nodes_have_hashes_and_sites_have_none() {
    let nodes = ["10.0.0.1:7253", "10.0.0.2:7253"].map(String::from);
    let view = build(&Membership {
        local_site: "here".into(),
        remote_sites: vec![("there".into(), "10.1.0.1".into())],
        ..members(&nodes)
    });
    assert_eq!(view.hash_of(PeerIndex(0)), NodeHash(0x3e2c_5d23));
    assert_eq!(view.hash_of(PeerIndex(1)), NodeHash(0x89be_5d95));
    let there = view.peer_of_site(site_hash("there")).expect("configured");
    assert_eq!(view.hash_of(there), NodeHash(u32::MAX));
    assert_eq!(view.addresses_of(there).collect::<Vec<_>>(), ["10.1.0.1"]);
}

#[test]
fn without_lists_the_cluster_is_this_node_alone() {
    for view in [
        View::alone("10.0.0.1"),
        build(&Membership { localhost: "10.0.0.1".into(), ..Membership::default() }),
    ] {
        assert_eq!(view.own(), PeerIndex(0));
        assert_eq!(view.name_of(view.own()), "10.0.0.1");
        assert_eq!(everybody(&view), PeerSet::EMPTY.with(view.own()));
        assert_eq!(view.place(TimerId(9), 3, view.new_nodes()).as_slice(), [view.own_hash()]);
        assert!(view.place(TimerId(9), 3, PeerSet::EMPTY).is_empty());
        assert!(view.connected_nodes().is_empty() && view.connected_sites().is_empty());
        assert!(!view.is_changing() && view.sites().is_empty());
    }
    assert_eq!(View::alone("").peers().len(), 1, "a node always is somebody");
}

#[test]
fn a_node_has_left_when_its_lists_name_others_no_more() {
    let with = |nodes: &[&str]| Membership {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        localhost: "a".into(),
        ..Membership::default()
    };
    let next = |former: &View, nodes: &[&str]| {
        View::build(Some(former), &with(nodes)).expect("a good configuration")
    };
    let started_alone = build(&with(&[]));
    let only_member = next(&started_alone, &["a"]);
    assert!(!started_alone.has_left() && !only_member.has_left());
    assert!(!next(&only_member, &[]).has_left(), "it never had another");
    let member = next(&started_alone, &["a", "b"]);
    let remaining = next(&member, &["a"]);
    assert!(!member.has_left() && !remaining.has_left(), "the lists name it");
    assert!(!next(&remaining, &[]).has_left(), "nobody is left that it could have left");
    let out = next(&member, &[]);
    assert!(out.has_left() && next(&out, &[]).has_left());
    assert!(!next(&out, &["a", "b"]).has_left());
    let joining = Membership { joining: vec!["a".into()], ..with(&["b"]) };
    assert!(build(&joining).is_joining() && !member.is_joining());
    let first = Membership { joining: vec!["a".into(), "b".into()], ..with(&[]) };
    assert!(!build(&first).is_joining(), "all begin together");
}

#[test]
fn a_leaving_node_knows_itself_and_holds_nothing_new() {
    let membership = Membership {
        localhost: "c".into(),
        nodes: vec!["a".into(), "b".into()],
        leaving: vec!["c".into()],
        ..Membership::default()
    };
    let view = build(&membership);
    assert_eq!(view.name_of(view.own()), "c");
    assert!(!view.new_nodes().contains(view.own()));
    assert!(view.is_changing());
    let own = view.own_hash();
    let ids = || (0..100).map(TimerId);
    assert!(ids().all(|id| !view.place(id, 2, everybody(&view)).contains(own)));
    assert!(ids().any(|id| view.place_old(id, 2).contains(own)));
    assert_eq!(view.connected_nodes().len(), 2);
}

#[test]
fn sites_stand_in_configured_order() {
    let remote = |n: usize| (format!("site{n}"), format!("10.{n}.0.1"));
    let mut membership = Membership {
        localhost: "a".into(),
        local_site: "home".into(),
        remote_sites: (2..14).map(remote).collect(),
        replicate_across_sites: true,
        ..Membership::default()
    };
    let view = build(&membership);
    let expected: Vec<_> = ["home", "site2", "site3", "site4", "site5", "site6", "site7", "site8"]
        .map(site_hash)
        .to_vec();
    assert_eq!(view.sites().as_slice(), expected);
    assert_eq!(expected.len(), SITES_PER_TIMER_MAX);
    assert_eq!(view.connected_sites().len(), 12);
    let peer = view.peer_of_site(site_hash("site9")).expect("configured");
    assert_eq!(view.peers()[peer.index()].address, "10.9.0.1");
    assert_eq!(view.peers()[peer.index()].kind, PeerKind::Site(site_hash("site9")));
    assert_eq!(view.name_of_site(site_hash("site9")), Some("site9"));
    assert_eq!(view.name_of_site(view.local_site()), Some("home"));
    assert_eq!(view.name_of_site(site_hash("nowhere")), None);
    assert_eq!(view.peer_of_site(view.local_site()), None);
    assert_eq!(view.connected_nodes(), PeerSet::EMPTY, "a site is no node");

    // Site 9 moves and site 2 is removed. Site 9 keeps its number; site 2 is not connected with.
    membership.remote_sites = vec![("site9".into(), "elsewhere.example".into())];
    let later = View::build(Some(&view), &membership).expect("no contradiction");
    assert_eq!(later.peer_of_site(site_hash("site9")), Some(peer));
    assert_eq!(later.peers()[peer.index()].address, "elsewhere.example");
    assert_eq!(later.connected_sites(), PeerSet::EMPTY.with(peer));
    assert_eq!(later.peer_of_site(site_hash("site2")), None);
    let held = ["site9", "site2", "home"].into_iter().map(site_hash).collect();
    let next: Vec<_> = ["site9", "home"].map(site_hash).into();
    assert_eq!(later.next_sites(&held).as_slice(), next, "in the order of the timer");
    let held = [site_hash("site9")].into_iter().collect();
    assert_eq!(later.next_sites(&held).as_slice(), next, "a site that was added comes last");
    let site9 = |address: &str| ("site9".to_owned(), address.to_owned());
    membership.remote_sites = vec![site9("elsewhere.example"), site9("10.9.0.2")];
    for _ in 0..2 {
        let twice = View::build(Some(&later), &membership).expect("two addresses of one site");
        let addresses: Vec<&str> = twice.addresses_of(peer).collect();
        assert_eq!(addresses, ["elsewhere.example", "10.9.0.2"]);
        assert_eq!(twice.sites().len(), 2);
    }
    membership.replicate_across_sites = false;
    let off = View::build(Some(&later), &membership).expect("no contradiction");
    assert!(off.sites().is_empty() && !off.connected_sites().is_empty());
    assert!(off.next_sites(&held).is_empty());
}

#[test]
fn colliding_names_get_different_hashes_in_list_order() {
    let (first, second) = colliding_names();
    assert_eq!(x86_32(first.as_bytes(), 0), x86_32(second.as_bytes(), 0));
    let view = build(&members(&[first.clone(), second.clone()]));
    let hash = NodeHash(x86_32(first.as_bytes(), 0));
    assert_eq!(view.own_hash(), hash);
    let kind = PeerKind::Node(NodeHash(hash.0.wrapping_sub(1)));
    assert_eq!(view.peers()[1].kind, kind);
    let there = build(&members(&[second, first]));
    assert_eq!(there.own_hash(), hash, "the order of the list decides");
}

/// Finds two names with one hash. Among 300 000 names of one scheme ten pairs collide on average (n
/// x n / 2 / 2^32).
fn colliding_names() -> (String, String) {
    let mut seen = std::collections::HashMap::new();
    for n in 0..2_000_000_u32 {
        let name = format!("node-{n}.example:7253");
        if let Some(other) = seen.insert(x86_32(name.as_bytes(), 0), name.clone()) {
            return (other, name);
        }
    }
    panic!("two million names of 32-bit hashes without a collision");
}

#[test]
fn contradictions_are_refused_with_a_remedy() {
    let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let good =
        Membership { localhost: "a".into(), nodes: list(&["a", "b"]), ..Membership::default() };
    let twice = Membership { nodes: list(&["a", "b", "a"]), ..good.clone() };
    assert_eq!(refusal(&twice), "\"a\" is listed twice under \"node\"; list it once");
    let both = Membership { leaving: list(&["b"]), ..good.clone() };
    assert!(refusal(&both).contains("\"b\" is listed under \"node\" and under \"leaving\""));
    let missing = Membership { localhost: "c".into(), ..good.clone() };
    assert!(refusal(&missing).contains("add it under \"node\""), "{}", refusal(&missing));
    let empty = Membership { joining: list(&[""]), ..good.clone() };
    assert!(refusal(&empty).contains("under \"joining\" is empty"));
    let nobody = Membership { localhost: String::new(), ..good.clone() };
    assert!(refusal(&nobody).contains("localhost is empty"));
    let site = |name: &str, address: &str| (name.to_owned(), address.to_owned());
    for (sites, text) in [
        (vec![site("site1", "x")], "named twice"),
        (vec![site("far", "x"), site("far", "x")], "named twice"),
        (vec![site("far", "")], "lacks its name or its address"),
        (vec![site("", "x")], "lacks its name or its address"),
    ] {
        let membership = Membership { remote_sites: sites, ..good.clone() };
        assert!(refusal(&membership).contains(text), "{}", refusal(&membership));
    }
    let other = View::build(Some(&build(&good)), &missing);
    assert!(other.expect_err("another node").0.contains("restart it"));
}

#[test]
fn a_process_knows_a_bounded_number_of_peers() {
    let nodes: Vec<String> = (0..PEERS_MAX).map(|n| format!("10.0.0.{n}")).collect();
    let view = build(&members(&nodes));
    assert_eq!(view.peers().len(), PEERS_MAX);
    assert_eq!(view.place(TimerId(5), 16, view.new_nodes()).len(), 16);
    let smaller = View::build(Some(&view), &members(&nodes[..3])).expect("fewer");
    assert_eq!(smaller.connected_nodes().len(), 2);
    let more = Membership { joining: vec!["one-more".into()], ..members(&nodes[..3]) };
    let refused = View::build(Some(&smaller), &more).expect_err("one too many").0;
    assert!(refused.contains("restart it"), "{refused}");
}
