//! What a node does with a timer that it reads from another one, so that at every instant one node
//! acts at each level (docs/compat/timer-service.md §9.3). Pure.

/// What is to be done with a timer. Names as the members write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Takeover<'a> {
    /// The rank of this node among the new replicas.
    pub rank: u8,
    /// Whether it is to hold the timer from now on.
    pub adds: bool,
    /// To whom it is to tell the timer.
    pub tells: Vec<&'a str>,
    /// Whom it is to tell that the timer has ended there.
    pub ends: Vec<&'a str>,
}

/// The plan of the node `own`; `None`: the timer is not its business.
///
/// It adds the timer unless it was nearer to the primary before: then whoever comes before it now
/// tells it. It tells those behind it, and ends the timer at those that are no replicas any more,
/// but never at one that was before its new place: that one still acts until somebody else has
/// taken its place over.
///
/// A timer that a node of this service held before (`is_moved_by_ours`) is moved by that one, which
/// acts until all others have it, and ends it at originals: who is new waits for that, or both
/// would act.
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
        // Nothing moves: this node may only have lost it.
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
        // On (C, A), moving to (B, A).
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
        // All pairs of lists of up to three of four nodes.
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
