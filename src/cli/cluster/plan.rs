//! What `chronos cluster join` and `leave` should do, from what the members say of themselves.
//! Pure: asks no node and changes nothing.
//!
//! A procedure brings every member from *before* over *during* to *after*
//! (docs/compat/timer-service.md §9.2). Members in two neighbouring phases show that a procedure
//! was interrupted: it goes on. Any other disagreement is left to people.

use std::collections::BTreeSet;

/// The three lists of members: nodes that stay, that join, that leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// The nodes that stay.
    pub nodes: Vec<String>,
    /// The nodes that are being added.
    pub joining: Vec<String>,
    /// The nodes that are being removed.
    pub leaving: Vec<String>,
}

/// The kind of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// Nodes are added.
    Join,
    /// Nodes are removed.
    Leave,
}

/// What the operator has ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Procedure {
    /// Whether the nodes are added or removed.
    pub kind: ChangeKind,
    /// The names of the nodes that are added or removed.
    pub nodes: Vec<String>,
}

/// What the command does, as the members' answers decide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing is left to do. The sentence says so.
    Done(String),
    /// The procedure begins, or goes on.
    Go(ChangePlan),
}

/// The steps of the procedure for this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangePlan {
    /// The members that stay, in the order in which all nodes write them.
    pub stays: Vec<String>,
    /// The nodes that join or leave.
    pub moves: Vec<String>,
    /// The members that every node gets in step 1.
    pub during: Lists,
    /// The members that every node but the leaving ones gets in step 3.
    pub after: Lists,
    /// The nodes that step 1 has yet to reach, in this order. All operators use the same order, so
    /// of two procedures at once one is refused by the first node.
    pub tell_during: Vec<String>,
}

/// How far a member is in the procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    /// In the opposite procedure. This procedure takes the opposite one back.
    Opposite,
    During,
    After,
}

impl Lists {
    /// Reports whether no change is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.joining.is_empty() && self.leaving.is_empty()
    }

    /// Returns the nodes of all three lists.
    pub(super) fn everybody(&self) -> impl Iterator<Item = &String> {
        self.nodes.iter().chain(&self.joining).chain(&self.leaving)
    }

    /// Reports whether both have the same nodes in the same lists. The order in a list means
    /// nothing.
    pub(super) fn is_same(&self, other: &Lists) -> bool {
        set(&self.nodes) == set(&other.nodes)
            && set(&self.joining) == set(&other.joining)
            && set(&self.leaving) == set(&other.leaving)
    }

    fn is_alone(&self, name: &str) -> bool {
        self.is_at_rest() && self.nodes.iter().all(|node| node == name)
    }
}

/// Writes the lists for operators: `nodes a b, joining c`.
impl std::fmt::Display for Lists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nodes {}", self.nodes.join(" "))?;
        for (role, list) in [("joining", &self.joining), ("leaving", &self.leaving)] {
            if !list.is_empty() {
                write!(f, ", {role} {}", list.join(" "))?;
            }
        }
        Ok(())
    }
}

impl ChangePlan {
    /// Reports whether a node has lists that this procedure gives it: the lists during the change,
    /// or the last lists.
    pub(super) fn is_under_way_at(&self, name: &str, lists: &Lists) -> bool {
        let has_left = self.during.leaving.iter().any(|node| node == name) && lists.is_alone(name);
        has_left || lists.is_same(&self.during) || lists.is_same(&self.after)
    }

    /// Returns the nodes of step 3 in order, each with its new lists. Nodes that leave come last
    /// and are told that they are alone.
    pub(super) fn last_words(&self) -> Vec<(String, Lists)> {
        let mut members = self.after.nodes.clone();
        members.sort();
        let mut words: Vec<_> =
            members.into_iter().map(|name| (name, self.after.clone())).collect();
        let leaving = self.during.leaving.iter();
        words.extend(leaving.map(|name| (name.clone(), Lists::default())));
        words
    }
}

impl Procedure {
    /// Decides what to do, from the name and the lists of every member that could be asked. An
    /// error means that nothing may be done. Its text says why, and what to do.
    pub(super) fn decide(&self, reports: &[(String, Lists)]) -> Result<Decision, String> {
        // A node that will join knows no other node yet. A node that has left knows none any more.
        let is_evidence =
            |(name, lists): &&(String, Lists)| !(self.nodes.contains(name) && lists.is_alone(name));
        let mut evidence: Vec<&(String, Lists)> = reports.iter().filter(is_evidence).collect();
        evidence.sort_by_key(|(name, _)| name);
        if evidence.is_empty() {
            return Err(format!(
                "only {} answered, and it knows no cluster: give --admin of a node that is a \
                 member and stays",
                self.nodes.join(" ")
            ));
        }
        let moves = self.not_settled(&evidence);
        if moves.is_empty() && self.is_told(reports) {
            return Ok(Decision::Done(self.done()));
        }
        let moves = if moves.is_empty() { self.nodes.clone() } else { moves };
        let procedure = Procedure { kind: self.kind, nodes: moves };
        let mut stays: Option<(&String, Vec<String>)> = None;
        let mut phases = Vec::new();
        for (name, lists) in &evidence {
            let (phase, others) = procedure.phase(name, lists)?;
            match &stays {
                Some((first, known)) if set(known) != set(&others) => {
                    return Err(disagreement((first, known), (name, &others)));
                }
                Some(_) => {}
                None => stays = Some((name, others)),
            }
            phases.push((name, lists, phase));
        }
        procedure.refuse_gap(&phases)?;
        let (_, stays) = stays.expect("there is evidence");
        if stays.is_empty() {
            return Err(format!(
                "the cluster would have no member left: it consists of {}. Join other \
                 nodes first; to end the cluster, stop its nodes",
                procedure.nodes.join(" ")
            ));
        }
        Ok(Decision::Go(procedure.plan(stays, &phases, reports)))
    }

    /// Returns the nodes whose change some member does not have yet.
    fn not_settled(&self, evidence: &[&(String, Lists)]) -> Vec<String> {
        let is_settled = |node: &String| {
            evidence.iter().all(|(_, lists)| match self.kind {
                ChangeKind::Join => lists.is_at_rest() && lists.nodes.contains(node),
                ChangeKind::Leave => lists.is_at_rest() && !lists.nodes.contains(node),
            })
        };
        self.nodes.iter().filter(|node| !is_settled(node)).cloned().collect()
    }

    /// Reports whether the nodes that join or leave know that themselves.
    fn is_told(&self, reports: &[(String, Lists)]) -> bool {
        reports.iter().filter(|(name, _)| self.nodes.contains(name)).all(|(name, lists)| {
            lists.is_at_rest()
                && match self.kind {
                    ChangeKind::Join => reports.len() == 1 || !lists.is_alone(name),
                    ChangeKind::Leave => lists.is_alone(name),
                }
        })
    }

    fn done(&self) -> String {
        let names = self.nodes.join(" ");
        match self.kind {
            ChangeKind::Join => format!("nothing to do: {names} already in the cluster"),
            ChangeKind::Leave => format!("nothing to do: {names} not in the cluster (any more)"),
        }
    }

    /// Returns how far a member is, and which nodes stay in the cluster by its lists.
    fn phase(&self, name: &str, lists: &Lists) -> Result<(Phase, Vec<String>), String> {
        let moving = set(&self.nodes);
        let (joining, leaving) = (set(&lists.joining), set(&lists.leaving));
        let (own, opposite) = match self.kind {
            ChangeKind::Join => (&joining, &leaving),
            ChangeKind::Leave => (&leaving, &joining),
        };
        let stays: Vec<String> =
            lists.nodes.iter().filter(|node| !moving.contains(*node)).cloned().collect();
        let listed = lists.nodes.iter().filter(|node| moving.contains(*node)).count();
        let (is_absent, is_complete) = (listed == 0, listed == moving.len());
        let phase = if lists.is_at_rest() {
            match (self.kind, is_absent, is_complete) {
                (ChangeKind::Join, true, _) | (ChangeKind::Leave, _, true) => Phase::Before,
                (ChangeKind::Join, _, true) | (ChangeKind::Leave, true, _) => Phase::After,
                _ => return Err(self.partly(name, lists)),
            }
        } else if *own == moving && opposite.is_empty() && is_absent {
            Phase::During
        } else if own.is_empty() && *opposite == moving && is_absent {
            Phase::Opposite
        } else {
            return Err(other_procedure(name, lists));
        };
        Ok((phase, stays))
    }

    fn partly(&self, name: &str, lists: &Lists) -> String {
        let verb = self.verb();
        format!(
            "of {} only some are members for {name} ({lists}); {verb} them one after the other",
            self.nodes.join(" ")
        )
    }

    fn verb(&self) -> &'static str {
        match self.kind {
            ChangeKind::Join => "join",
            ChangeKind::Leave => "leave",
        }
    }

    /// Returns an error if one member is in the phase *before* while another is in the phase
    /// *after*. This procedure cannot have brought the members there, because it waits for all of
    /// them in between.
    fn refuse_gap(&self, phases: &[(&String, &Lists, Phase)]) -> Result<(), String> {
        let of = |wanted| phases.iter().find(|(.., phase)| *phase == wanted);
        let is_taken_back = of(Phase::Opposite).is_some();
        match (of(Phase::Before), of(Phase::After)) {
            (Some((before, theirs, _)), Some((after, others, _))) if !is_taken_back => {
                Err(format!(
                    "members disagree: {before} has {theirs}; {after} has {others}. Make \
                     [cluster] the same on all by hand (SIGHUP reads it), then run this again"
                ))
            }
            _ => Ok(()),
        }
    }

    fn plan(
        &self,
        stays: Vec<String>,
        phases: &[(&String, &Lists, Phase)],
        reports: &[(String, Lists)],
    ) -> ChangePlan {
        let moves = self.nodes.clone();
        let (during, after) = match self.kind {
            ChangeKind::Join => (
                Lists { nodes: stays.clone(), joining: moves.clone(), leaving: vec![] },
                Lists { nodes: [&stays[..], &moves].concat(), ..Lists::default() },
            ),
            ChangeKind::Leave => (
                Lists { nodes: stays.clone(), joining: vec![], leaving: moves.clone() },
                Lists { nodes: stays.clone(), ..Lists::default() },
            ),
        };
        let early = phases.iter().filter(|(.., phase)| *phase < Phase::During);
        let mut tell_during: Vec<String> = early.map(|(name, ..)| (*name).clone()).collect();
        if self.kind == ChangeKind::Join {
            let knows_nobody = |node: &&String| {
                reports.iter().any(|(name, lists)| name == *node && lists.is_alone(name))
            };
            tell_during.extend(moves.iter().filter(knows_nobody).cloned());
        }
        ChangePlan { stays, moves, during, after, tell_during }
    }
}

fn other_procedure(name: &str, lists: &Lists) -> String {
    let finish = match (lists.joining.is_empty(), lists.leaving.is_empty()) {
        (false, true) => format!("chronos cluster join {}", lists.joining.join(" ")),
        (true, false) => format!("chronos cluster leave {}", lists.leaving.join(" ")),
        _ => "both one after the other, by hand".to_owned(),
    };
    format!(
        "another procedure is under way: {name} has {lists}. Finish it first: {finish}; or take it \
         back with the opposite command for the same nodes"
    )
}

fn disagreement(
    (first, theirs): (&String, &[String]),
    (second, others): (&String, &[String]),
) -> String {
    format!(
        "members disagree about who stays: for {first} it is {}; for {second} it is {}. Make \
         [cluster] the same on all by hand (SIGHUP reads it), then run this again",
        theirs.join(" "),
        others.join(" ")
    )
}

fn set(list: &[String]) -> BTreeSet<&String> {
    list.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Reads lists from `a b +c -d`: nodes, joining, leaving.
    fn lists(text: &str) -> Lists {
        let mut lists = Lists::default();
        for word in text.split_whitespace() {
            match word.split_at(1) {
                ("+", name) => lists.joining.push(name.into()),
                ("-", name) => lists.leaving.push(name.into()),
                _ => lists.nodes.push(word.into()),
            }
        }
        lists
    }

    /// Decides an order such as `join c` for members with lists such as `a: a b +c; b: a b`.
    fn decide(order: &str, reports: &str) -> Result<Decision, String> {
        let mut words = names(order);
        let kind = if words.remove(0) == "join" { ChangeKind::Join } else { ChangeKind::Leave };
        let reports = reports.split(';').map(|report| {
            let (name, text) = report.split_once(':').expect("a name");
            (name.trim().to_owned(), lists(text))
        });
        Procedure { kind, nodes: words }.decide(&reports.collect::<Vec<_>>())
    }

    fn plan(order: &str, reports: &str) -> ChangePlan {
        match decide(order, reports) {
            Ok(Decision::Go(plan)) => plan,
            other => panic!("{order} of {reports}: {other:?}"),
        }
    }

    #[test]
    fn a_procedure_begins_goes_on_and_ends() {
        for (order, reports, during, after, tell) in [
            ("join c", "a: a b; b: a b; c: c", "a b +c", "a b c", "a b c"),
            ("join c", "a: a b +c; b: a b; c: c", "a b +c", "a b c", "b c"),
            ("join c", "a: a b +c; b: a b +c; c: a b +c", "a b +c", "a b c", ""),
            ("join c", "a: a b c; b: a b +c; c: a b +c", "a b +c", "a b c", ""),
            ("join c d", "a: a; c: c; d: d", "a +c +d", "a c d", "a c d"),
            ("join b c", "a: a b; b: a b; c: c", "a b +c", "a b c", "a b c"),
            ("leave c", "a: a b c; b: a b c; c: a b c", "a b -c", "a b", "a b c"),
            ("leave c", "a: a b -c; b: a b c; c: a b c", "a b -c", "a b", "b c"),
            ("leave c", "a: a b; b: a b -c; c: a b -c", "a b -c", "a b", ""),
            ("leave c", "a: a b; b: a b; c: a b -c", "a b -c", "a b", ""),
            ("leave c", "a: a b c; b: a b c", "a b -c", "a b", "a b"),
            // Each order takes the other back.
            ("leave c", "a: a b +c; b: a b; c: c", "a b -c", "a b", "a"),
            ("join c", "a: a b -c; b: a b c; c: a b c", "a b +c", "a b c", "a"),
        ] {
            let plan = plan(order, reports);
            assert_eq!(plan.during, lists(during), "{order} of {reports}");
            assert_eq!(plan.after, lists(after), "{order} of {reports}");
            assert_eq!(plan.tell_during, names(tell), "{order} of {reports}");
        }
    }

    #[test]
    fn what_is_done_is_said_to_be() {
        for (order, reports) in [
            ("join c", "a: a b c; b: a b c; c: a b c"),
            ("join b c", "a: a b c; b: a b c; c: a b c"),
            ("leave c", "a: a b; b: a b; c: c"),
            ("leave c", "a: a b; b: a b"),
        ] {
            assert!(matches!(decide(order, reports), Ok(Decision::Done(_))), "{order} {reports}");
        }
    }

    #[test]
    fn what_is_not_safe_is_refused() {
        for (order, reports, told) in [
            ("join d", "a: a b +c; b: a b +c; c: a b +c; d: d", "chronos cluster join c"),
            ("leave b", "a: a b +c; b: a b +c", "chronos cluster join c"),
            ("leave a", "a: a b -c; b: a b -c", "chronos cluster leave c"),
            ("join d", "a: a b +c -e; d: d", "one after the other"),
            ("join c", "a: a b; b: b; c: c", "members disagree about who stays"),
            ("join c", "a: a b; b: a b c; c: c", "members disagree: a has nodes a b;"),
            ("leave c", "a: a b; b: a b c; c: a b c", "members disagree: b has nodes a b c;"),
            ("leave a b", "a: a b; b: a b", "no member left"),
            ("join c", "c: c", "give --admin of a node that is a member"),
            ("join c d", "a: a b; b: a b c; c: c; d: d", "only some are members for b"),
        ] {
            let refused = decide(order, reports).expect_err(reports);
            assert!(refused.contains(told), "{order} of {reports}: {refused}");
        }
    }

    /// All ways to be interrupted: after any prefix of the steps, the same order goes on and ends
    /// with what it asked for.
    #[test]
    fn an_order_can_be_repeated_after_any_interruption() {
        for (order, before, mover_alone) in [("join c", "a b", true), ("leave c", "a b c", false)] {
            let start = |name: &str| {
                let text = if name == "c" && mover_alone { "c" } else { before };
                (name.to_owned(), lists(text))
            };
            for interrupted_after in 0..=6 {
                let mut members: Vec<_> = ["a", "b", "c"].map(start).into();
                run_until(order, &mut members, interrupted_after);
                run_until(order, &mut members, usize::MAX);
                let texts: Vec<_> = members.iter().map(|(_, lists)| lists.to_string()).collect();
                assert!(matches!(ask(order, &members), Ok(Decision::Done(_))), "{texts:?}");
            }
        }
    }

    fn ask(order: &str, members: &[(String, Lists)]) -> Result<Decision, String> {
        let mut words = names(order);
        let kind = if words.remove(0) == "join" { ChangeKind::Join } else { ChangeKind::Leave };
        Procedure { kind, nodes: words }.decide(members)
    }

    /// Carries out at most `writes` of the writes that the order wants.
    fn run_until(order: &str, members: &mut [(String, Lists)], mut writes: usize) {
        let Decision::Go(plan) = ask(order, members).expect("it can go on") else { return };
        let mut steps: Vec<(String, Lists)> =
            plan.tell_during.iter().map(|name| (name.clone(), plan.during.clone())).collect();
        steps.extend(plan.last_words());
        for (name, lists) in steps {
            if writes == 0 {
                return;
            }
            writes -= 1;
            let member = members.iter_mut().find(|(member, _)| *member == name);
            let alone = Lists { nodes: vec![name], ..Lists::default() };
            member.expect("a member").1 = if lists.nodes.is_empty() { alone } else { lists };
        }
    }
}
