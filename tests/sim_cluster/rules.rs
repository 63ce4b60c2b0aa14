//! Rules of destinations in a cluster: all living nodes of a site together keep the rate (F1), none
//! begins a callback at a destination that is paused at its site (F3), a pop that waits at one rank
//! or is being made there is made by no other one (F5), and the numbers of the pops of a timer do
//! not fall (F7). Of two sites, each with rules of its own, one makes a pop, whichever of them has
//! a rule (F8). Where nodes die and links break, only F3 is checked, beside what holds without
//! rules: nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronos::base::destinations::{DestinationTable, Rule};
use chronos::shard::effects::CallbackOutcome;
use kit::simulator::random::Stream;

use super::driver::Input;
use super::model::{Attempted, Checked, MS, broken};
use super::network::CoreAt;
use super::options::{Options, Trouble};
use super::sites::Sites;
use super::story_plan::Fault;
use super::world::World;

/// How much later than its moment an attempt may begin, in seconds.
const LATE_S: f64 = 0.06;
/// What another rank began or was about to begin before a rule held is over by then.
const SETTLED_NS: u64 = 5_000 * MS;

/// The rules of the hosts at one site, as they must be seen.
#[derive(Default)]
struct OfSite {
    ordered: Vec<Option<Rule>>,
    /// What each core has taken of the last order.
    taken: BTreeMap<(usize, u16), Vec<Option<Rule>>>,
    /// Since when all cores have the rule of a host.
    strict_ns: Vec<Option<u64>>,
    /// Since when all cores have had one rule or another of a host.
    ruled_ns: Vec<Option<u64>>,
    /// Attempts that the rate of a host has not paid for yet, and when that was counted.
    levels: Vec<(f64, u64)>,
    cores: usize,
    nodes: f64,
}

/// The rules of the hosts at all sites.
#[derive(Default)]
pub struct Rules {
    /// One, or two.
    all: Vec<OfSite>,
    sites: Option<Sites>,
    /// The highest number of a pop that has begun of each timer.
    highest: BTreeMap<usize, u64>,
    /// Whether there are rules, and nothing else goes wrong.
    is_quiet: bool,
}

impl OfSite {
    fn new(options: &Options, nodes: &[usize]) -> Self {
        let hosts = options.hosts as usize;
        Self {
            ordered: vec![None; hosts],
            strict_ns: vec![None; hosts],
            ruled_ns: vec![None; hosts],
            levels: vec![(0.0, 0); hosts],
            cores: nodes.iter().map(|node| usize::from(options.shards[*node])).sum(),
            nodes: nodes.len() as f64,
            ..Self::default()
        }
    }

    /// Notes that a core takes all rules.
    fn take(&mut self, place: CoreAt, rules: &[Option<Rule>], now_ns: u64) {
        self.taken.insert((place.node, place.core), rules.to_vec());
        for host in 0..self.ordered.len() {
            let has_it = |taken: &&Vec<Option<Rule>>| taken[host] == self.ordered[host];
            let has_all = self.taken.values().filter(has_it).count() == self.cores;
            if has_all && self.strict_ns[host].is_none() {
                (self.strict_ns[host], self.levels[host]) = (Some(now_ns), (0.0, now_ns));
                let is_ruled = self.ordered[host].is_some();
                self.ruled_ns[host] = is_ruled.then(|| self.ruled_ns[host].unwrap_or(now_ns));
            }
        }
    }
}

impl Rules {
    pub fn new(options: &Options) -> Self {
        let site_of = |node: usize| options.sites.map_or(0, |sites| sites.site_of(node));
        let nodes = |site: usize| -> Vec<usize> {
            (0..options.nodes).filter(|node| site_of(*node) == site).collect()
        };
        let sites = if options.sites.is_some() { 2 } else { 1 };
        Self {
            all: (0..sites).map(|site| OfSite::new(options, &nodes(site))).collect(),
            sites: options.sites,
            is_quiet: options.trouble == Trouble::None && options.rarities.has("Rules"),
            ..Self::default()
        }
    }

    fn site_of(&self, node: usize) -> usize {
        self.sites.map_or(0, |sites| sites.site_of(node))
    }

    fn take(&mut self, place: CoreAt, rules: &[Option<Rule>], now_ns: u64) {
        let site = self.site_of(place.node);
        self.all[site].take(place, rules, now_ns);
    }

    /// Checks F8 for a callback that begins, beside others of the same pop.
    fn is_of_one_site(&self, place: CoreAt, now_ns: u64, others: &[Attempted]) -> Checked {
        let site = self.site_of(place.node);
        let is_done = |other: &Attempted| {
            other.told.is_none_or(|(_, outcome)| outcome == CallbackOutcome::Delivered)
        };
        let is_elsewhere = |other: &&Attempted| self.site_of(other.place.node) != site;
        match others.iter().filter(is_elsewhere).find(|other| is_done(other)) {
            Some(other) => broken("F8", format!("{place:?} at {now_ns} beside {other:?}")),
            None => Ok(()),
        }
    }

    /// Checks F1, F3, F5, F7 and F8 for a callback that begins, beside others of the same pop.
    pub fn begin(
        &mut self,
        place: CoreAt,
        (host, now_ns): (u32, u64),
        (name, sequence): (usize, u64),
        others: &[Attempted],
    ) -> Checked {
        let host = host as usize;
        let highest = self.highest.entry(name).or_default();
        let has_fallen = sequence < *highest;
        *highest = sequence.max(*highest);
        if self.is_quiet && now_ns > SETTLED_NS {
            self.is_of_one_site(place, now_ns, others)?;
        }
        let at = self.site_of(place.node);
        let site = &mut self.all[at];
        let rule = site.taken.get(&(place.node, place.core)).and_then(|taken| taken[host]);
        let Some(rule) = rule else { return Ok(()) };
        if rule.is_paused {
            return broken("F3", format!("{place:?} begins at host {host}, which is paused"));
        }
        if !self.is_quiet {
            return Ok(());
        }
        let is_settled = site.ruled_ns[host].is_some_and(|since_ns| now_ns > since_ns + SETTLED_NS);
        let is_at_once =
            |other: &&Attempted| other.told.is_none() && other.place.node != place.node;
        if is_settled && let Some(other) = others.iter().find(is_at_once) {
            return broken("F5", format!("{place:?} at {now_ns} beside {other:?}"));
        }
        if is_settled && has_fallen {
            return broken("F7", format!("{place:?} at {now_ns}: {name} falls to {sequence}"));
        }
        if site.strict_ns[host].is_none() {
            return Ok(());
        }
        let Some(rate) = rule.per_1000_s else { return Ok(()) };
        let per_s = f64::from(rate) / 1_000.0;
        let (level, at_ns) = site.levels[host];
        let level = (level - per_s * (now_ns - at_ns) as f64 / 1e9).max(0.0) + 1.0;
        site.levels[host] = (level, now_ns);
        if level > site.nodes + per_s * LATE_S {
            return broken("F1", format!("{level} above the rate at host {host}: {rule:?}"));
        }
        Ok(())
    }
}

/// Orders of operators: a rate that is lower than what comes due, and pauses.
pub fn orders(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    let mut at_ms = draw.range(0, 4_000);
    while at_ms < options.safety_ms {
        let rule = Rule {
            max_in_flight: draw.chance(20).then_some(4),
            per_1000_s: draw.chance(85).then_some(draw.pick(&[500, 1_000, 2_000, 4_000]) as u32),
            is_paused: draw.chance(25),
        };
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let rule = draw.chance(90).then_some(rule);
        let site = options.sites.and_then(|_| (draw.range(0, 2) as usize).checked_sub(1));
        made.push((at_ms * MS, Fault::Rule { host, rule, site }));
        at_ms += draw.pick(&[4_000, 12_000, 25_000]);
    }
}

impl World {
    /// Gives a host another rule on all nodes of a site; `None`: of all sites. Each core takes it
    /// in its next turn.
    pub fn order(&mut self, host: u32, rule: Option<Rule>, site: Option<usize>) {
        let at = host as usize;
        let is_new = |of: &usize| {
            site.is_none_or(|only| only == *of) && self.rules.all[*of].ordered[at] != rule
        };
        let told: Vec<usize> = (0..self.rules.all.len()).filter(is_new).collect();
        if told.is_empty() {
            return;
        }
        for of in told {
            let of_site = &mut self.rules.all[of];
            (of_site.ordered[at], of_site.strict_ns[at]) = (rule, None);
            self.tell_rules(of);
        }
        let timeout_ns = self.options.callbacks.timeout_ms * MS;
        for span in &mut self.model.unwell[at] {
            span.1 = span.1.min(self.now_ns + timeout_ns);
        }
        // Its pops wait, as those of a host that does not answer.
        let is_ruled = self.rules.all.iter().any(|of_site| of_site.ordered[at].is_some());
        let until_ns = if is_ruled { u64::MAX } else { self.now_ns + timeout_ns };
        self.model.unwell[at].push((self.now_ns, until_ns));
    }

    fn tell_rules(&mut self, site: usize) {
        let ordered = self.rules.all[site].ordered.clone();
        let is_there = |node: &usize| self.rules.site_of(*node) == site;
        for node in (0..self.nodes.len()).filter(is_there).collect::<Vec<_>>() {
            let named = (0..)
                .zip(&ordered)
                .filter_map(|(host, rule)| Some((format!("host-{host}:80"), (*rule)?)));
            let table =
                Arc::new(DestinationTable::new(named.collect::<Vec<_>>(), &self.tables[node]));
            self.tables[node] = Arc::clone(&table);
            self.tell_all_cores(node, || Input::Rules(Arc::clone(&table), ordered.clone()));
        }
    }

    /// Takes every rule back.
    pub fn end_rules(&mut self) {
        (0..self.options.hosts).for_each(|host| self.order(host, None, None));
    }

    /// The rules that hold for a node as it starts: it begins no callback before it knows them.
    pub fn rules_at_start(&mut self, place: CoreAt) -> Option<Arc<DestinationTable>> {
        let table = self.tables.get(place.node)?;
        let ordered = self.rules.all[self.rules.site_of(place.node)].ordered.clone();
        self.rules.take(place, &ordered, self.now_ns);
        (!table.all().is_empty()).then(|| Arc::clone(table))
    }

    /// Notes that a core takes rules.
    pub fn took_rules(&mut self, place: CoreAt, rules: &[Option<Rule>]) {
        self.rules.take(place, rules, self.now_ns);
    }
}
