//! `chronos site add` and `remove`: what `chronos cluster join` and `leave` are for nodes. The
//! command keeps no state of its own: it asks the nodes of this site for everything. So it can be
//! stopped at any time and run again.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::context::Context;
use super::nodes::{LOOK_EVERY, Nodes};
use super::site_plan::{NodeSites, SiteOrder, Telling, document};
use super::survey::{NodeReport, Survey};
use crate::cli::progress::Progress;

/// How long it takes at most, with default settings, until a site that was stopped is missed.
const MISSED_WITHIN: Duration = Duration::from_secs(5);
/// How often a site that is not reached is asked again.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// What a command that succeeded tells.
#[derive(Debug)]
pub(super) struct SiteSuccess {
    /// What was done, in one sentence.
    pub text: String,
    /// Whether anything had to be done.
    pub is_change: bool,
    /// What is to be done at other sites: the name of the site, and the command.
    pub next: Vec<(String, String)>,
}

/// Adds or removes a site at all nodes of this one. `is_running` means that a removed site may run
/// on. An error says what to do.
pub(super) fn change(
    context: &Context,
    order: &SiteOrder,
    is_running: bool,
) -> Result<SiteSuccess, String> {
    let mut survey = context.survey(&[], &[])?;
    survey.forget_strangers(&[]);
    survey.refuse_missing(&[])?;
    let nodes: Vec<NodeSites> = survey.reports.values().map(NodeSites::of).collect();
    let tellings = order.plan(&nodes)?;
    let names: Vec<String> = nodes.iter().map(|node| node.node.clone()).collect();
    let own = nodes.first().map_or("", |node| &node.local);
    let work = SiteWork { context, order, nodes: Nodes::of(context, &survey), own, names: &names };
    match order {
        SiteOrder::Add(..) => work.add(&survey, &tellings),
        SiteOrder::Remove(_) => work.remove(&survey, &tellings, is_running),
    }
}

/// An order under way.
struct SiteWork<'a> {
    context: &'a Context,
    order: &'a SiteOrder,
    nodes: Nodes<'a>,
    /// The site of the nodes.
    own: &'a str,
    names: &'a [String],
}

impl SiteWork<'_> {
    fn add(&self, survey: &Survey, tellings: &[Telling]) -> Result<SiteSuccess, String> {
        let site = self.order.site();
        let count = self.names.len();
        let is_complete = |report: &NodeReport| matches!(self.unrest(report), Ok(None));
        if tellings.is_empty() && survey.reports.values().all(is_complete) {
            let text =
                format!("nothing to do: {site} is known to {count} nodes and lacks no timer");
            let next = self.next(survey.reports.values());
            return Ok(SiteSuccess { text, is_change: false, next });
        }
        self.context.say(&format!("1/3 asking {site}"));
        let answers = self.ask()?;
        let judged = refuse_silent(site, &answers).and_then(|()| judge(site, &answers));
        let is_known = judged.map_err(|told| format!("{told}. No node was told anything"))?;
        if !is_known {
            self.context.say(&format!(
                "{site} answers and does not know {} yet. Give there, too: {}",
                self.own,
                self.counterpart()
            ));
        }
        self.context.say(&format!("2/3 telling {} of {count} nodes of it", tellings.len()));
        self.tell(tellings)?;
        self.context.say("3/3 offering timers");
        let reports = self.offer()?;
        let text = format!(
            "{site} added: {} it and it has been offered every timer, {:.1} s",
            if count == 1 { "1 node knows".into() } else { format!("{count} nodes know") },
            self.nodes.began.elapsed().as_secs_f64()
        );
        Ok(SiteSuccess { text, is_change: true, next: self.next(reports.iter()) })
    }

    fn remove(
        &self,
        survey: &Survey,
        tellings: &[Telling],
        is_running: bool,
    ) -> Result<SiteSuccess, String> {
        let (site, count) = (self.order.site(), self.names.len());
        if tellings.is_empty() {
            let text = format!("nothing to do: no node knows {site} (any more)");
            let next = self.next(survey.reports.values());
            return Ok(SiteSuccess { text, is_change: false, next });
        }
        if !is_running && let Some(name) = self.still_reached(survey)? {
            return Err(format!(
                "{name} reaches {site}: it runs, and what it holds would pop there as well as \
                 here. Stop its nodes first, when chronos site list shows there that {} lacks \
                 nothing; or say --running to take it out nevertheless",
                self.own
            ));
        }
        self.context.say(&format!("1/2 telling {} of {count} nodes", tellings.len()));
        self.tell(tellings)?;
        self.context.say("2/2 waiting until all have obeyed");
        let give_up = |left: &str| self.give_up("forget it", left, "add SITE ADDRESS...");
        let reports = self.nodes.until(self.names, &give_up, &|reports| {
            if let Some(report) = reports.iter().find(|report| site_in(report, site).is_some()) {
                return Err(other_order(report, site, "knows it again"));
            }
            let busy = reports.iter().find(|report| report.is_running);
            Ok(busy.map(|report| format!("{} is not done yet", report.name)))
        })?;
        let text = format!(
            "{site} removed: {} it nothing any more, and {} what it says, {:.1} s",
            if count == 1 { "1 node tells".into() } else { format!("{count} nodes tell") },
            if count == 1 { "refuses" } else { "refuse" },
            self.nodes.began.elapsed().as_secs_f64()
        );
        Ok(SiteSuccess { text, is_change: true, next: self.next(reports.iter()) })
    }

    /// Returns a node that reaches the site and goes on doing so: a site that was stopped just now
    /// is missed in a moment.
    fn still_reached(&self, survey: &Survey) -> Result<Option<String>, String> {
        let mut reports: Vec<NodeReport> = survey.reports.values().cloned().collect();
        let reached = |reports: &[NodeReport]| {
            let found = reports.iter().find(|report| is_reached(report, self.order.site()));
            found.map(|report| report.name.clone())
        };
        while reached(&reports).is_some() && self.nodes.began.elapsed() < MISSED_WITHIN {
            thread::sleep(LOOK_EVERY);
            reports = self.nodes.look(self.names)?;
        }
        Ok(reached(&reports))
    }

    /// Has each node ask the site.
    fn ask(&self) -> Result<Vec<Answer>, String> {
        let SiteOrder::Add(site, addresses) = self.order else { return Ok(Vec::new()) };
        let body = json!({ "name": site, "addresses": addresses });
        let ask = |name: &String| {
            let told = self.nodes.order(name, "POST", "/cluster/sites/probe", Some(&body))?;
            Ok(Answer::of(name, &told))
        };
        self.names.iter().map(ask).collect()
    }

    fn tell(&self, tellings: &[Telling]) -> Result<(), String> {
        for (at, Telling { node, held, wanted }) in tellings.iter().enumerate() {
            let body = json!({ "sites": document(wanted), "expected": document(held) });
            let told = self.nodes.order(node, "PUT", "/cluster/sites", Some(&body));
            told.map_err(|why| self.broken_off(&why, &tellings[..at]))?;
        }
        Ok(())
    }

    /// Says which nodes an order has changed that cannot go on.
    fn broken_off(&self, why: &str, told: &[Telling]) -> String {
        if told.is_empty() {
            return format!("{why}. No node was told anything");
        }
        let nodes: Vec<&str> = told.iter().map(|telling| telling.node.as_str()).collect();
        let opposite = match self.order {
            SiteOrder::Add(..) => "remove SITE",
            SiteOrder::Remove(_) => "add SITE ADDRESS...",
        };
        format!(
            "{why}. Changed so far: {}. Repair that and run the same command again, it goes on, or \
             take it back with chronos site {}",
            nodes.join(" "),
            opposite.replace("SITE", self.order.site())
        )
    }

    /// Waits until all nodes have offered the site all that it lacks.
    fn offer(&self) -> Result<Vec<NodeReport>, String> {
        let progress = Progress::begin("offering timers");
        let (most, asked) = (Cell::new(0), Cell::new(Instant::now()));
        let site = self.order.site();
        let give_up = |left: &str| self.give_up("offer it all timers", left, "remove SITE");
        self.nodes.until(self.names, &give_up, &|reports| {
            let figure = |report: &NodeReport| {
                site_in(report, site).and_then(|seen| seen["to_offer"].as_u64()).unwrap_or(0)
            };
            let left: u64 = reports.iter().map(figure).sum();
            let mut unrest = None;
            for report in reports {
                unrest = unrest.or(self.unrest(report)?);
            }
            let is_silent = reports.iter().any(|report| !is_reached(report, site));
            if is_silent && asked.get().elapsed() >= ASK_EVERY {
                // What it answered before it knew this site says little.
                judge(site, &self.ask()?).map_err(|told| {
                    format!("{told}. Repair that and run this again, or chronos site remove {site}")
                })?;
                asked.set(Instant::now());
            }
            most.set(left.max(most.get()));
            let text = unrest.clone().filter(|_| left == 0);
            let text = text.unwrap_or_else(|| format!("{left} to offer"));
            progress.show(most.get() - left, most.get(), &text);
            Ok(unrest)
        })
    }

    /// Says what a node has left to do before the site lacks nothing; `None` if nothing. Error: the
    /// node does not know the site.
    fn unrest(&self, report: &NodeReport) -> Result<Option<String>, String> {
        let (site, name) = (self.order.site(), &report.name);
        let seen = site_in(report, site);
        let seen = seen.ok_or_else(|| other_order(report, site, "does not know it any more"))?;
        let left = seen["to_offer"].as_u64().unwrap_or(0);
        Ok(if !is_reached(report, site) {
            Some(format!(
                "{name} does not reach {site}; if it does not know {} yet, give there: {}",
                self.own,
                self.counterpart()
            ))
        } else if left > 0 {
            Some(format!("{name} has {left} timers to offer to {site}"))
        } else {
            report.is_running.then(|| format!("{name} is not done yet"))
        })
    }

    /// The command that makes the new site know this one.
    fn counterpart(&self) -> String {
        let two = self.names.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" ");
        format!("chronos site add {} {two}", self.own)
    }

    /// What is to be done at the other sites: those that have another list of sites.
    fn next<'r>(&self, reports: impl Iterator<Item = &'r NodeReport>) -> Vec<(String, String)> {
        let command = match self.order {
            SiteOrder::Add(site, at) => format!("chronos site add {site} {}", at.join(" ")),
            SiteOrder::Remove(site) => format!("chronos site remove {site}"),
        };
        let mut next: Vec<(String, String)> = Vec::new();
        for seen in reports.flat_map(sites_in) {
            let name = seen["name"].as_str().unwrap_or_default().to_owned();
            if seen["lists_differ_s"].is_null() || next.iter().any(|(site, _)| *site == name) {
                continue;
            }
            let is_new = name == self.order.site();
            let what = if is_new { "chronos site list".into() } else { command.clone() };
            next.push((name, what));
        }
        next
    }

    fn give_up(&self, what: &str, left: &str, opposite: &str) -> String {
        let seconds = self.context.timeout.as_secs();
        let opposite = opposite.replace("SITE", self.order.site());
        format!(
            "the nodes did not {what} within {seconds} s: {left}; nothing is lost: run the same \
             command again, it goes on, or take it back with chronos site {opposite}"
        )
    }
}

/// What a site answered to one node.
struct Answer {
    node: String,
    /// Address, verdict, the name that the site gives itself, text.
    at: Vec<(String, String, Option<String>, String)>,
}

impl Answer {
    fn of(node: &str, told: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let at = told["answers"].as_array().into_iter().flatten().map(|it| {
            let site = it["site"].as_str().map(str::to_owned);
            (text(&it["address"]), text(&it["verdict"]), site, text(&it["text"]))
        });
        Self { node: node.to_owned(), at: at.collect() }
    }
}

/// Returns whether the site knows this one. Error: it is not the one that is meant, or the two do
/// not believe each other.
fn judge(site: &str, answers: &[Answer]) -> Result<bool, String> {
    let mut is_known = false;
    for Answer { node, at } in answers {
        for (address, verdict, name, text) in at {
            match (verdict.as_str(), name) {
                ("taken", Some(name)) if name != site => {
                    return Err(format!(
                        "the site at {address} calls itself {name} and not {site}: give its own \
                         name"
                    ));
                }
                ("taken", _) => is_known = true,
                ("refused", _) => {
                    return Err(format!(
                        "{node} and {site} at {address} do not take each other: {text}"
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(is_known)
}

/// Returns an error if the site answers a node at no address.
fn refuse_silent(site: &str, answers: &[Answer]) -> Result<(), String> {
    for Answer { node, at } in answers {
        if at.iter().any(|(_, verdict, ..)| verdict != "unreached") {
            continue;
        }
        let told = at.iter().map(|(address, _, _, text)| format!("{address}: {text}"));
        return Err(format!(
            "{site} does not answer {node} ({}). Start it, and let nodes of both sites reach each \
             other under the port of their names",
            told.collect::<Vec<_>>().join("; ")
        ));
    }
    Ok(())
}

fn other_order(report: &NodeReport, site: &str, what: &str) -> String {
    format!(
        "another order has changed the sites meanwhile: {} {what} ({site}). This order ends here. \
         Look at chronos site list, then give the order that you want once more",
        report.name
    )
}

fn is_reached(report: &NodeReport, site: &str) -> bool {
    site_in(report, site).is_some_and(|seen| seen["liveness"] == "alive")
}

fn sites_in(report: &NodeReport) -> impl Iterator<Item = &Value> {
    report.document["sites"].as_array().into_iter().flatten()
}

fn site_in<'r>(report: &'r NodeReport, name: &str) -> Option<&'r Value> {
    sites_in(report).find(|site| site["name"] == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str, at: &[(&str, Option<&str>)]) -> Answer {
        let answers: Vec<Value> = at
            .iter()
            .map(|(verdict, site)| {
                json!({ "address": "c:1", "verdict": verdict, "site": site, "text": "why" })
            })
            .collect();
        Answer::of(node, &json!({ "answers": answers }))
    }

    #[test]
    fn a_site_is_taken_if_it_is_the_one_that_is_meant_and_all_reach_it() {
        let of =
            |answers: &[Answer]| refuse_silent("z", answers).and_then(|()| judge("z", answers));
        let (taken, stranger) = (("taken", Some("z")), ("stranger", None));
        assert_eq!(of(&[answer("a", &[taken]), answer("b", &[stranger])]), Ok(true));
        assert_eq!(of(&[answer("a", &[("unreached", None), taken])]), Ok(true));
        assert_eq!(of(&[answer("a", &[("taken", None)])]), Ok(true), "originals tell no name");
        assert_eq!(of(&[answer("a", &[stranger])]), Ok(false));
        let refused = |answers: &[Answer]| of(answers).expect_err("it is refused");
        let other = refused(&[answer("a", &[("taken", Some("y"))])]);
        assert!(other.contains("calls itself y and not z"), "{other}");
        let apart = refused(&[answer("a", &[taken]), answer("b", &[("refused", None)])]);
        assert!(apart.starts_with("b and z at c:1 do not take each other: why"), "{apart}");
        let away = refused(&[answer("a", &[taken]), answer("b", &[("unreached", None)])]);
        assert!(away.starts_with("z does not answer b (c:1: why)"), "{away}");
    }
}
