//! What a node does with a timer that it reads from another node, so that at every instant one node
//! acts at each level (docs/compat/timer-service.md §9.3). Pure.

// May panic: indices 1.
// Why it does not: found 1.

/// What this node does with a timer. Names are as the members write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Takeover<'a> {
    /// The rank of this node among the new replicas.
    pub rank: u8,
    /// Whether this node takes the timer.
    pub adds: bool,
    /// The nodes that this node tells the timer.
    pub tells: Vec<&'a str>,
    /// The nodes that this node tells that the timer has ended for them.
    pub ends: Vec<&'a str>,
}

/// Returns the plan of the node `own` for a timer that moves from the list `old` to the list `new`.
/// `None`: the node does nothing with the timer.
///
/// A replica of the new list
///
/// - adds the timer, unless its rank was lower in the old list: then a node that comes before it
///   tells it the timer,
/// - tells the timer to the replicas behind it,
/// - ends the timer at former replicas that are not on the new list.
///
/// The replica tells and ends nothing at a node whose former rank is lower than the replica's new
/// rank: that node acts until another node has taken its rank over.
///
/// A timer that a node of this service held before (`is_moved_by_ours`) is moved by that node. The
/// former holder acts until all new replicas have the timer, and ends it at originals. A new
/// replica does nothing until then, because otherwise both would act.
pub(crate) fn plan<'a>(
    own: &str,
    old: &[&'a str],
    new: &[&'a str],
    is_moved_by_ours: bool,
) -> Option<Takeover<'a>> {
    let rank_in = |list: &[&str], name: &str| list.iter().position(|&one| one == name);
    let rank = rank_in(new, own)?;
    let mut plan = Takeover { rank: rank as u8, adds: true, tells: Vec::new(), ends: Vec::new() };
    if old == new {
        // The lists are equal, so nothing moves. This node may have lost the timer.
        return Some(plan);
    }
    if is_moved_by_ours {
        return rank_in(old, own).map(|_| plan);
    }
    plan.adds = rank_in(old, own).is_none_or(|former| former >= rank);
    let may_change = |name: &str| rank_in(old, name).is_none_or(|former| former >= rank);
    plan.tells = new[rank + 1..].iter().copied().filter(|name| may_change(name)).collect();
    let left = old.iter().copied().filter(|name| !new.contains(name) && *name != own);
    plan.ends = left.filter(|name| may_change(name)).collect();
    Some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(own: &str, old: &[&'static str], new: &[&'static str]) -> (bool, String, String) {
        let plan = plan(own, old, new, false).expect("a replica");
        (plan.adds, plan.tells.concat(), plan.ends.concat())
    }

    fn is(adds: bool, tells: &str, ends: &str) -> (bool, String, String) {
        (adds, tells.to_owned(), ends.to_owned())
    }

    #[test]
    fn the_example_of_the_documents() {
        // The timer moves from (C, A) to (B, A).
        let (old, new) = (["C", "A"], ["B", "A"]);
        assert_eq!(planned("A", &old, &new), is(true, "", ""));
        assert_eq!(planned("B", &old, &new), is(true, "A", "C"));
        assert_eq!(plan("C", &old, &new, false), None);
        assert_eq!(plan("A", &old, &new, false).map(|plan| plan.rank), Some(1));
    }

    #[test]
    fn who_moves_away_from_the_primary_waits_to_be_told() {
        let (old, new) = (["A", "B", "C"], ["D", "A", "B"]);
        assert_eq!(planned("D", &old, &new), is(true, "AB", "C"));
        assert_eq!(planned("A", &old, &new), is(false, "B", "C"));
        assert_eq!(planned("B", &old, &new), is(false, "", "C"));
    }

    #[test]
    fn what_ours_hold_they_move_themselves() {
        let (old, new) = (["C", "A"], ["B", "A"]);
        assert_eq!(plan("B", &old, &new, true), None, "A gives it");
        let held = plan("A", &old, &new, true).expect("a replica");
        assert_eq!((held.rank, held.adds, held.tells.len(), held.ends.len()), (1, true, 0, 0));
        assert!(plan("B", &new, &new, true).is_some_and(|plan| plan.adds), "nothing moves");
    }

    #[test]
    fn nobody_is_told_when_nothing_moves() {
        assert_eq!(planned("A", &["A", "B"], &["A", "B"]), is(true, "", ""));
    }

    #[test]
    fn every_level_is_taken_over_by_somebody_and_every_old_holder_ends() {
        // All pairs of lists of up to three of the four nodes.
        let nodes = ["A", "B", "C", "D"];
        let mut lists: Vec<Vec<&str>> = vec![Vec::new()];
        for _ in 0..3 {
            let longer = lists.iter().flat_map(|list| {
                let more = nodes.iter().filter(|node| !list.contains(node));
                more.map(|node| [&list[..], &[*node]].concat()).collect::<Vec<_>>()
            });
            let longer: Vec<_> = longer.collect();
            lists.extend(longer);
        }
        for old in lists.iter().filter(|list| !list.is_empty()) {
            for new in lists.iter().filter(|list| !list.is_empty() && *list != old) {
                let plans: Vec<_> = new
                    .iter()
                    .map(|own| (own, plan(own, old, new, false).expect("a replica")))
                    .collect();
                for node in new {
                    let is_added = plans.iter().any(|(own, plan)| *own == node && plan.adds);
                    let is_told = plans.iter().any(|(_, plan)| plan.tells.contains(node));
                    assert!(is_added || is_told, "{node} of {old:?} -> {new:?}");
                }
                for node in old.iter().filter(|node| !new.contains(node)) {
                    let ends = plans.iter().filter(|(_, plan)| plan.ends.contains(node)).count();
                    assert!(ends > 0, "{node} of {old:?} -> {new:?}");
                }
            }
        }
    }
}
