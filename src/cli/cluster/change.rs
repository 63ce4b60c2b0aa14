//! `chronos cluster join`, `leave` and `resync`: the steps of docs/compat/timer-service.md §9.2,
//! over the admin APIs. The command keeps no state of its own: it asks the nodes for everything. So
//! it can be stopped at any time and run again.

use std::collections::BTreeMap;

use serde_json::json;

use super::context::{Context, Success};
use super::nodes::Nodes;
use super::plan::{ChangeKind, ChangePlan, Decision, Lists, Procedure};
use super::survey::{NodeReport, Survey};
use crate::cli::progress::Progress;

/// Adds or removes nodes and moves their timers. `is_dead` means that the nodes will never run
/// again. An error says what to do.
pub(crate) fn change(
    context: &Context,
    procedure: &Procedure,
    is_dead: bool,
) -> Result<Success, String> {
    let dead = if is_dead { &procedure.nodes[..] } else { &[] };
    let others = if procedure.kind == ChangeKind::Join { &procedure.nodes[..] } else { &[] };
    let mut survey = context.survey(others, dead)?;
    survey.forget_strangers(&procedure.nodes);
    refuse_living(&survey, dead)?;
    // A node that has left and was stopped does not answer, and is reported here as missing.
    survey.refuse_missing(dead)?;
    let reports: Vec<(String, Lists)> =
        survey.reports.values().map(|report| (report.name.clone(), report.lists.clone())).collect();
    let plan = match procedure.decide(&reports)? {
        Decision::Done(text) => {
            let members = members_of(&survey);
            let incomplete = Vec::new();
            return Ok(Success { text, is_change: false, moved: 0, members, incomplete });
        }
        Decision::Go(plan) => plan,
    };
    refuse_dead(&survey, &plan, dead)?;
    refuse_fixed(&survey, &plan)?;
    let work = Work::of(context, &survey);
    work.step_1(&plan, &survey)?;
    let moved = work.step_2(&plan, procedure.kind)?;
    work.step_3(&plan)?;
    let nodes = plan.after.nodes.len();
    let (names, verb) = (
        plan.moves.join(" "),
        match procedure.kind {
            ChangeKind::Join => "joined",
            ChangeKind::Leave => "left",
        },
    );
    let mut text = format!(
        "{names} {verb}: {nodes} {}, {moved} copies of timers moved, {:.1} s",
        if nodes == 1 { "node" } else { "nodes" },
        work.nodes.began.elapsed().as_secs_f64()
    );
    if procedure.kind == ChangeKind::Leave && !is_dead {
        text += "; what left may be stopped now";
    }
    let (members, incomplete) = (plan.after.nodes.clone(), Vec::new());
    Ok(Success { text, is_change: true, moved, members, incomplete })
}

/// Makes all nodes compare their timers, where no node joins or leaves. Waits until that is done.
pub(crate) fn resynchronise(context: &Context) -> Result<Success, String> {
    let mut survey = context.survey(&[], &[])?;
    for name in survey.forget_strangers(&[]) {
        context.say(&format!("{name} answers and is no member: left out"));
    }
    let missing = survey.missing.iter().map(|(name, why)| format!("{name} is missing: {why}"));
    let incomplete: Vec<String> = missing.chain(survey.disagreements()).collect();
    let work = Work::of(context, &survey);
    let members = members_of(&survey);
    let moved = work.resynchronise(&members, &[], None)?;
    let text = format!(
        "resynchronised: {} of {} nodes, {moved} copies of timers moved, {:.1} s",
        survey.reports.len(),
        survey.reports.len() + survey.missing.len(),
        work.nodes.began.elapsed().as_secs_f64()
    );
    Ok(Success { text, is_change: true, moved, members, incomplete })
}

fn members_of(survey: &Survey) -> Vec<String> {
    let mut members: Vec<String> = Vec::new();
    for name in survey.reports.values().flat_map(|report| report.lists.everybody()) {
        if !members.contains(name) {
            members.push(name.clone());
        }
    }
    members
}

/// Returns an error if a node that the operator calls dead lives. Such a node would go on as a
/// member.
fn refuse_living(survey: &Survey, dead: &[String]) -> Result<(), String> {
    for name in dead {
        let believes = |report: &&NodeReport| {
            report.believed.iter().any(|(other, belief)| other == name && belief == "alive")
        };
        let answers = survey.reports.get(name);
        let witness = answers.or_else(|| survey.reports.values().find(believes));
        if let Some(witness) = witness {
            return Err(format!(
                "{name} is not dead: {} says so. Stop it, or let it leave without --dead",
                witness.name
            ));
        }
    }
    Ok(())
}

/// Returns an error if a member believes a node dead that stays. Timers cannot be moved to or from
/// a node that others cannot reach.
fn refuse_dead(survey: &Survey, plan: &ChangePlan, dead: &[String]) -> Result<(), String> {
    for report in survey.reports.values() {
        for (name, belief) in &report.believed {
            if belief == "dead" && plan.stays.contains(name) && !dead.contains(name) {
                return Err(format!(
                    "{} believes {name} dead, although its admin API answers: repair the network \
                     between them (port of the node's name), then run this again",
                    report.name
                ));
            }
        }
    }
    Ok(())
}

/// Returns an error if a node that is to hear of the change cannot write it down: before any node
/// is told.
fn refuse_fixed(survey: &Survey, plan: &ChangePlan) -> Result<(), String> {
    for name in &plan.tell_during {
        let reason = survey.reports.get(name).and_then(|report| report.fixed.as_ref());
        if let Some(reason) = reason {
            return Err(format!("{name}: {reason}. No node was told anything"));
        }
    }
    Ok(())
}

/// A procedure under way.
struct Work<'a> {
    context: &'a Context,
    nodes: Nodes<'a>,
    /// Copies that each node had moved before, by name. Nodes count since their start.
    moved: BTreeMap<String, u64>,
}

impl<'a> Work<'a> {
    fn of(context: &'a Context, survey: &Survey) -> Self {
        let reports = survey.reports.values();
        Self {
            context,
            nodes: Nodes::of(context, survey),
            moved: reports.map(|r| (r.name.clone(), r.moved)).collect(),
        }
    }

    fn step_1(&self, plan: &ChangePlan, survey: &Survey) -> Result<(), String> {
        let who = plan.tell_during.len();
        self.context.say(&format!("1/3 {}: told to {who} of them", plan.during));
        for name in &plan.tell_during {
            let known = survey.reports.get(name).map(|report| &report.lists);
            self.tell(name, &plan.during, known)?;
        }
        Ok(())
    }

    fn step_2(&self, plan: &ChangePlan, kind: ChangeKind) -> Result<u64, String> {
        let remain = match kind {
            ChangeKind::Join => [&plan.stays[..], &plan.moves].concat(),
            ChangeKind::Leave => plan.stays.clone(),
        };
        let leaving: &[String] = if kind == ChangeKind::Leave { &plan.moves } else { &[] };
        self.context.say("2/3 moving timers");
        self.resynchronise(&remain, leaving, Some(plan))
    }

    fn step_3(&self, plan: &ChangePlan) -> Result<(), String> {
        self.context.say(&format!("3/3 {}", plan.after));
        for (name, lists) in plan.last_words() {
            if self.nodes.knows(&name) {
                let report = self.nodes.look_at(&name).map_err(|error| {
                    format!("{error}\nrun the same command again when it is back: it goes on")
                })?;
                refuse_other(plan, &report)?;
                // The node refuses if another order has changed its members since the look.
                self.tell(&name, &lists, Some(&report.lists))?;
            }
        }
        Ok(())
    }

    /// Gives a node other members. With `expected`, the node refuses unless it has those members
    /// now.
    fn tell(&self, name: &str, lists: &Lists, expected: Option<&Lists>) -> Result<(), String> {
        let of = |lists: &Lists| {
            let Lists { nodes, joining, leaving } = lists;
            json!({ "nodes": nodes, "joining": joining, "leaving": leaving })
        };
        let mut body = of(lists);
        if let Some(expected) = expected {
            body["expected"] = of(expected);
        }
        self.nodes.order(name, "PUT", "/cluster/membership", Some(&body)).map(|_| ())
    }

    /// Waits until all nodes of `remain` and `leaving` believe each other alive. Then makes
    /// `remain` compare all timers, and waits until nothing is left to do. Returns how many copies
    /// were moved.
    fn resynchronise(
        &self,
        remain: &[String],
        leaving: &[String],
        plan: Option<&ChangePlan>,
    ) -> Result<u64, String> {
        let known = |names: &[String]| -> Vec<String> {
            names.iter().filter(|name| self.nodes.knows(name)).cloned().collect()
        };
        let (remain, leaving) = (known(remain), known(leaving));
        let all = [&remain[..], &leaving].concat();
        let watch = MoveWatch { work: self, all: &all, leaving: &leaving, plan };
        watch.until("see each other", None, &|report| not_seen(report, &all))?;
        for name in &remain {
            self.nodes.order(name, "POST", "/cluster/resync", None)?;
        }
        let progress = Progress::begin("moving timers");
        watch.until("move their timers", Some(&progress), &|report| {
            let is_leaving = leaving.contains(&report.name);
            unrest(report, is_leaving)
        })
    }
}

/// Returns an error if another order has given a node other members. A procedure that went on would
/// undo that order.
fn refuse_other(plan: &ChangePlan, report: &NodeReport) -> Result<(), String> {
    let NodeReport { name, lists, .. } = report;
    if plan.is_under_way_at(name, lists) {
        return Ok(());
    }
    Err(format!(
        "another order has changed the members meanwhile: {name} has {lists}. This order ends \
         here. Look at chronos cluster status, then give the order that you want once more"
    ))
}

/// Says which of `all` a node does not believe alive; `None` if it believes all of them alive.
fn not_seen(report: &NodeReport, all: &[String]) -> Option<String> {
    let mut others = all.iter().filter(|name| **name != report.name);
    let unseen = others.find(|name| {
        !report.believed.iter().any(|(other, belief)| other == *name && belief == "alive")
    });
    unseen.map(|name| format!("{} does not believe {name} alive", report.name))
}

/// Says what a node has left to do; `None` if nothing.
fn unrest(report: &NodeReport, is_leaving: bool) -> Option<String> {
    let NodeReport { name, misplaced, timers, seen, total, .. } = report;
    if *misplaced > 0 {
        Some(format!(
            "{name} has {misplaced} timers to move (those due within 3 s move as they pop)"
        ))
    } else if report.is_running {
        Some(format!("{name} has seen {seen} of {total}"))
    } else if is_leaving && *timers > 0 {
        Some(format!("{name} leaves and still holds {timers} timers"))
    } else {
        None
    }
}

/// Waits for several nodes.
struct MoveWatch<'a> {
    work: &'a Work<'a>,
    all: &'a [String],
    leaving: &'a [String],
    /// The change under way, if nodes join or leave. All nodes must have its members meanwhile.
    plan: Option<&'a ChangePlan>,
}

impl MoveWatch<'_> {
    /// Looks at all nodes until `unrest` finds nothing. Returns how many copies the nodes have
    /// moved since the command began.
    fn until(
        &self,
        what: &str,
        progress: Option<&Progress>,
        unrest: &dyn Fn(&NodeReport) -> Option<String>,
    ) -> Result<u64, String> {
        let give_up = |left: &str| self.give_up(what, left);
        let reports = self.work.nodes.until(self.all, &give_up, &|reports| {
            self.refuse_others(reports)?;
            if let Some(progress) = progress {
                self.show(progress, reports);
            }
            Ok(reports.iter().find_map(unrest))
        })?;
        Ok(self.moved(&reports))
    }

    fn refuse_others(&self, reports: &[NodeReport]) -> Result<(), String> {
        let Some(plan) = self.plan else { return Ok(()) };
        reports.iter().try_for_each(|report| refuse_other(plan, report))
    }

    fn moved(&self, reports: &[NodeReport]) -> u64 {
        let one = |report: &NodeReport| {
            let before = self.work.moved.get(&report.name).copied().unwrap_or(0);
            // A count below the former count means that the node was started anew.
            report.moved.checked_sub(before).unwrap_or(report.moved)
        };
        reports.iter().map(one).sum()
    }

    fn give_up(&self, what: &str, left: &str) -> String {
        let moves = self.plan.map_or(0, |plan| plan.moves.len());
        let hint = if moves == 0 || self.leaving.len() == moves {
            "; nothing is lost: run the same command again, it goes on"
        } else {
            "; nothing is lost: run the same command again, it goes on, or take it back with the \
             opposite one"
        };
        let seconds = self.work.context.timeout.as_secs();
        format!("the nodes did not {what} within {seconds} s: {left}{hint}")
    }

    fn show(&self, progress: &Progress, reports: &[NodeReport]) {
        let sum = |of: fn(&NodeReport) -> u64| reports.iter().map(of).sum::<u64>();
        let (seen, misplaced) = (sum(|report| report.seen), sum(|report| report.misplaced));
        let text = format!("{misplaced} to move, {} moved", self.moved(reports));
        progress.show(seen.saturating_sub(misplaced), sum(|report| report.total), &text);
    }
}
