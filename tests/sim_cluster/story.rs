//! The story of A, B and C (docs/compat/timer-service.md §8), second for second: A dies, B and C
//! split, the split heals, A returns empty.

use chronos::base::ids::TimerId;
use chronos::base::limits::{Acknowledge, CallbackLimits, ClusterLimits};
use chronos::base::planted::{Bug, plant};

use super::disks::Disks;
use super::disturbances::Disturbances;
use super::model::MS;
use super::operators::Members;
use super::options::{Options, PROCESSES_MAX, Trouble};
use super::story_plan::{Death, Fault, Kind, Operation, Story, Target, Wish};
use super::world::run;

/// The client asks at this time. The story counts from it.
const ASKED_MS: u64 = 5_000;
const ID: u64 = 0x00c0_ffef;

fn options(promotion: bool, shards: u16) -> Options {
    Options {
        nodes: 3,
        spares: 0,
        shards: [shards; PROCESSES_MAX],
        drift_ppm_max: 0,
        skew_ms_max: 0,
        latency_ns: (100_000, 400_000),
        mesh_queue_max: 64,
        pops_per_turn_max: 256,
        callbacks: CallbackLimits { tombstone_ms_max: 15_000, ..CallbackLimits::default() },
        cluster: ClusterLimits {
            tombstone_hold_ms: 10_000,
            promotion,
            acknowledge: Acknowledge::Replicas,
            ..ClusterLimits::default()
        },
        hosts: 1,
        safety_ms: 150_000,
        operations: 0,
        chosen_ids: 1,
        factor_max: 3,
        interval_ms_max: 20_000,
        trouble: Trouble::None,
        host_trouble: false,
        has_clock_steps: false,
        operator_changes: 0,
        lost_reply_percent: 0,
        stays_dead: None,
        sites: None,
        ..Options::draw(1)
    }
}

/// Returns the nodes A, B and C, which have the ranks 0, 1 and 2.
fn ranks() -> [usize; 3] {
    let view = Members::new(3).view(0, None);
    let list = view.place(TimerId(ID), 3, view.new_nodes());
    let rank = |rank: usize| {
        let peer = view.peer_of(list.as_slice()[rank]).expect("a member");
        let name = view.name_of(peer);
        (0..3).find(|node| super::nodes::node_name(*node) == name).expect("a node of the run")
    };
    [rank(0), rank(1), rank(2)]
}

/// Plays the story. Returns which node popped at which second.
fn play(promotion: bool, shards: u16, heals_s: u64) -> Vec<(char, u64)> {
    let options = options(promotion, shards);
    let [a, b, c] = ranks();
    let at_ns = |second: u64| (ASKED_MS + second * 1_000) * MS;
    // The story's split begins after B has told C of the pop at 42.
    let split_ns = at_ns(43);
    let wish =
        Wish { interval_ms: 20_000, repeat_for_ms: 120_000, host: 0, factor: 3, policy: None };
    let story = Story {
        operations: vec![Operation {
            name: 0,
            at_ns: ASKED_MS * MS,
            node: a,
            kind: Kind::Update(Target::Chosen(ID), wish),
            patience_ms: 8_000,
            loses_reply: false,
        }],
        faults: vec![
            (at_ns(21), Fault::Kill { node: a, for_ms: 69_000, how: Death::Power }),
            (split_ns, Fault::Cut { from: b, to: c, ms: (heals_s - 43) * 1_000, is_both: true }),
        ],
        options,
    };
    let report = run(&story, false);
    if let Some(violation) = report.violation {
        let tail: Vec<&str> = report.trace.tail().collect();
        panic!("{violation:?}\n{}", tail.join("\n"));
    }
    assert_eq!(report.delivered, report.attempts, "every callback succeeds");
    let named = |node: usize| ['A', 'B', 'C'][[a, b, c].iter().position(|n| *n == node).unwrap()];
    let mut pops = Vec::new();
    for (node, at_ns, _, _) in report.pops {
        let late_ms = (at_ns / MS - ASKED_MS) % 1_000;
        assert!(late_ms < 20, "{} popped {late_ms} ms late", named(node));
        pops.push((named(node), (at_ns / MS - ASKED_MS) / 1_000));
    }
    pops
}

#[test]
fn the_story_of_a_b_and_c_comes_out_to_the_second_without_promotion() {
    let told = [('A', 20), ('B', 42), ('B', 62), ('C', 64), ('B', 82), ('B', 102), ('A', 120)];
    for shards in [1, 2] {
        assert_eq!(play(false, shards, 70), told, "{shards} shards");
    }
}

/// B moves up once it has popped for the dead A. C moves up within its half of the split, after its
/// one late pop. The split heals between two pops: B stays first. A, back and empty, is first again
/// after the pop that finds that it holds the timer.
#[test]
fn with_promotion_only_the_first_pop_after_each_death_is_late() {
    let told = [('A', 20), ('B', 42), ('B', 60), ('C', 62), ('B', 80), ('B', 100), ('A', 120)];
    for shards in [1, 2] {
        assert_eq!(play(true, shards, 70), told, "{shards} shards");
    }
}

/// A node that gets a turn every 4 s answers a dial now and then, and is dead for the other node in
/// between. The tombstone of a timer that came to its end must not end while that node seems alive.
#[test]
fn a_node_that_seems_alive_now_and_then_brings_nothing_back() {
    for begins_ms in (0..4_000).step_by(200) {
        let wish =
            Wish { interval_ms: 950, repeat_for_ms: 9_500, host: 0, factor: 2, policy: None };
        let operation = Operation {
            name: 0,
            at_ns: ASKED_MS * MS,
            node: 1,
            kind: Kind::Update(Target::Chosen(ID), wish),
            patience_ms: 1_000,
            loses_reply: false,
        };
        let starve = Fault::Starve { node: 1, core: 0, ms: 20_000, pause_ms: 4_000 };
        let story = Story {
            operations: vec![operation],
            faults: vec![((ASKED_MS + begins_ms) * MS, starve)],
            options: Options { nodes: 2, cluster: ClusterLimits::default(), ..options(true, 1) },
        };
        let violation = run(&story, false).violation;
        assert!(violation.is_none(), "starved after {begins_ms} ms: {violation:?}");
    }
}

/// A stand-in gives a timer back to the right node, which dies again. The client writes the timer
/// once more, and the stand-in is restarted. It holds the timer, for it forgot the timer *before*
/// that write. Returns the invariant that is broken, if one is.
fn a_stand_in_is_restarted() -> Option<&'static str> {
    let view = Members::new(2).view(0, None);
    let list = view.place(TimerId(ID), 1, view.new_nodes());
    let name = view.name_of(view.peer_of(list.as_slice()[0]).expect("a member"));
    let right = usize::from(name == super::nodes::node_name(1));
    let stand_in = 1 - right;
    let write = |name: usize, second: u64, interval_ms: u64| Operation {
        name,
        at_ns: second * 1_000 * MS,
        node: stand_in,
        kind: Kind::Update(
            Target::Chosen(ID),
            Wish { interval_ms, repeat_for_ms: interval_ms, host: 0, factor: 1, policy: None },
        ),
        patience_ms: 8_000,
        loses_reply: false,
    };
    let kill = |second: u64, node: usize, for_ms: u64| {
        (second * 1_000 * MS, Fault::Kill { node, for_ms, how: Death::Process })
    };
    let story = Story {
        operations: vec![write(0, 7, 48_000), write(1, 26, 300_000)],
        faults: vec![kill(3, right, 6_000), kill(20, right, 14_000), kill(28, stand_in, 200)],
        options: Options {
            nodes: 2,
            factor_max: 1,
            safety_ms: 40_000,
            disks: Some(Disks::plain()),
            ..options(true, 1)
        },
    };
    run(&story, false).violation.map(|violation| violation.invariant)
}

#[test]
fn what_a_stand_in_forgot_and_got_again_survives_its_restart() {
    assert_eq!(a_stand_in_is_restarted(), None);
    plant(Some(Bug::JournalForgetsOutOfOrder));
    let found = a_stand_in_is_restarted();
    plant(None);
    assert!(found.is_some(), "the bug is not found");
}

/// Two of three nodes are dead, and a pair is cut: how many nodes count as impaired.
#[test]
fn disturbances_are_explained_by_the_fewest_nodes() {
    use super::disturbances::Whom::{Node, Pair};
    let mut all = Disturbances::default();
    all.add(Pair(0, 1), 100, 200);
    all.add(Pair(0, 2), 150, 250);
    assert_eq!(all.impaired_max(0, 300), 1, "node 0 explains both");
    all.add(Node(1), 160, 170);
    assert_eq!(all.impaired_max(0, 300), 2);
    assert_eq!(all.impaired_max(0, 140), 1);
    assert!(all.is_quiet(0, 99) && !all.is_quiet(0, 100) && all.is_quiet(251, 300));
}
