//! How much background work may be under way, and what is still owed.

use super::*;
use crate::shard::harness_tests::Cluster;

/// The state and the placement of a timer.
fn held() -> (StateKey, Placement) {
    let mut cluster = Cluster::new(3, true);
    cluster.put(0, TimerId(7), (10, 10), 2);
    let holder = cluster.holders(TimerId(7))[0];
    let records = &cluster.shard(holder).records;
    let record = records.get(records.find(TimerId(7)).expect("it is held"));
    (record.key(), *records.placement_of(record))
}

#[test]
fn something_is_owed_while_a_walk_offers_or_an_offer_has_no_result() {
    let somebody = PeerSet::EMPTY.with(PeerIndex(1));
    let walk = |offer_to| Some(Walk { next: Slot(0), offer_to, seen: 0 });
    assert!(!Reconcile::default().owes());
    assert!(!Reconcile { walk: walk(PeerSet::EMPTY), ..Reconcile::default() }.owes());
    assert!(Reconcile { walk: walk(somebody), ..Reconcile::default() }.owes());
    assert!(Reconcile { again: Some(somebody), ..Reconcile::default() }.owes());
    assert!(Reconcile { offers: 1, ..Reconcile::default() }.owes());
}

#[test]
fn offers_without_a_result_are_counted() {
    for offers in [0, 1, 7] {
        assert_eq!(
            Reconcile { offers, ..Reconcile::default() }.offers_waiting(),
            u64::from(offers)
        );
    }
}

#[test]
fn the_work_pauses_while_as_much_as_allowed_is_under_way() {
    let portion_at = Tick(70);
    let walk = Some(Walk { next: Slot(0), offer_to: PeerSet::EMPTY, seen: 0 });
    let walking = |offers| Reconcile { walk, portion_at, offers, ..Reconcile::default() };
    assert_eq!(walking(OFFERS_MAX - 1).next_wake(), Some(Tick(71)));
    assert_eq!(walking(OFFERS_MAX).next_wake(), None);
    let mut moving = walking(0);
    let (key, placement) = held();
    for id in 0..MOVES_MAX as u64 {
        assert_eq!(moving.next_wake(), Some(Tick(71)), "{id} moves");
        moving.moves.insert(
            id,
            Move { key, placement, waiting: PeerSet::EMPTY, round: 1, is_passed_on: false },
        );
    }
    assert_eq!(moving.next_wake(), None);
    let later = VecDeque::from([(Tick(90), TimerId(1))]);
    let waiting = Reconcile { portion_at, later, ..Reconcile::default() };
    assert_eq!(waiting.next_wake(), Some(Tick(90)));
    assert_eq!(Reconcile { portion_at, ..Reconcile::default() }.next_wake(), None);
}

#[test]
fn a_death_ends_the_moves_that_wait_for_it_alone() {
    let (key, placement) = held();
    let mut reconcile = Reconcile::default();
    for (id, waiting) in [(1, 1), (2, 2), (3, 1)] {
        let waiting = PeerSet::EMPTY.with(PeerIndex(waiting));
        reconcile.moves.insert(id, Move { key, placement, waiting, round: 1, is_passed_on: false });
    }
    reconcile.abandon_moves(Tick(70), PeerIndex(1));
    assert_eq!(reconcile.moves.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(reconcile.misplaced(), 3, "those that ended are looked at again");
}

#[test]
fn what_was_given_away_is_kept_for_a_second_where_disks_are_late() {
    let (id, at) = (TimerId(7), Tick(5_000));
    let mut reconcile = Reconcile::default();
    assert!(reconcile.may_forget(at, id) && reconcile.given.is_empty());
    reconcile.keeps_given = true;
    // Several moves may end soon after each other.
    assert!(!reconcile.may_forget(at, id));
    assert!(!reconcile.may_forget(at + 1, id));
    assert!(!reconcile.may_forget(at + (LOOK_AGAIN_MS - 1), id));
    assert_eq!(reconcile.take_later(at + LOOK_AGAIN_MS), Some(id));
    assert!(reconcile.may_forget(at + LOOK_AGAIN_MS, id) && reconcile.given.is_empty());
    // A new holder that lost the timer gets it once more, and the second begins anew.
    assert!(!reconcile.may_forget(at, id));
    reconcile.is_wanted(id);
    assert!(!reconcile.may_forget(at + LOOK_AGAIN_MS, id));
}
