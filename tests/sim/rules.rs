//! What rules of destinations must do to callbacks: rate (F1), places (F2), pause (F3), that what may
//! go on does (F4), and that a timer makes up for no pop that it missed (F6). Cores take a new rule in their next turn, so F1, F2 and F4 are checked
//! from when all have it.

use std::sync::Arc;

use chronos::base::destinations::{DestinationTable, Rule};
use kit::simulator::random::Stream;

use super::invariants::authority;
use super::model::{Checked, broken};

/// How much later than its moment an attempt may begin, in seconds: what a core may keep a moment
/// for, what is caught up, and a turn.
const LATE_S: f64 = 0.035;

/// The rules of one host, as they must be seen.
#[derive(Clone, Debug, Default)]
pub struct HostRules {
    /// The rule that each core has taken.
    taken: Vec<Option<Rule>>,
    ordered: Option<Rule>,
    /// Since when all cores have the rule, in ns; `None`: they do not.
    strict_ns: Option<u64>,
    /// Attempts that the rate has not paid for yet.
    level: f64,
    at_ns: u64,
    /// Callbacks that run, over all cores.
    running: u32,
    begun_tick: u64,
    /// When a callback last ended while as many ran as the rule allows.
    freed_tick: u64,
}

impl HostRules {
    pub fn new(cores: usize) -> Self {
        Self { taken: vec![None; cores], ..Self::default() }
    }

    /// Notes that a rule is ordered.
    pub fn order(&mut self, rule: Option<Rule>) {
        if self.ordered != rule {
            (self.ordered, self.strict_ns) = (rule, None);
        }
    }

    /// Notes that a core takes the rules of a table. Returns whether its rule is another one.
    pub fn take(&mut self, core: usize, rule: Option<Rule>, now_ns: u64) -> bool {
        let is_new = self.taken[core] != rule;
        self.taken[core] = rule;
        let has_it = |taken: &Option<Rule>| *taken == self.ordered;
        if self.strict_ns.is_none() && self.taken.iter().all(has_it) {
            (self.strict_ns, self.level, self.at_ns) = (Some(now_ns), 0.0, now_ns);
        }
        is_new
    }

    /// Checks F1 to F3 for an attempt that begins. One that repeats an attempt on another
    /// connection counts as the same.
    pub fn begin(
        &mut self,
        core: usize,
        now_ns: u64,
        is_again: bool,
        late: f64,
        story: &str,
    ) -> Checked {
        let running = self.running;
        self.running += 1;
        self.begun_tick = now_ns / 1_000_000;
        let Some(rule) = self.taken[core] else { return Ok(()) };
        if rule.is_paused {
            return broken("F3", format!("{story}: begins at a destination that is paused"));
        }
        if self.strict_ns.is_none() {
            return Ok(());
        }
        if rule.max_in_flight.is_some_and(|max| running >= max) && !is_again {
            return broken("F2", format!("{story}: {running} run at its destination, {rule:?}"));
        }
        if let Some(rate) = rule.per_1000_s.filter(|_| !is_again) {
            let per_s = f64::from(rate) / 1_000.0;
            let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
            self.level = (self.level - per_s * passed_s).max(0.0) + 1.0;
            self.at_ns = self.at_ns.max(now_ns);
            if self.level > 1.0 + per_s * LATE_S + late {
                return broken("F1", format!("{story}: {} above the rate, {rule:?}", self.level));
            }
        }
        Ok(())
    }

    pub fn end(&mut self, tick: u64) {
        let max = self.ordered.and_then(|rule| rule.max_in_flight);
        if max.is_some_and(|max| self.running >= max) {
            self.freed_tick = tick;
        }
        self.running -= 1;
    }

    /// Since when (tick) a pop that is due must not wait any more; `None`: it may wait.
    pub fn must_begin_after(&self, core: usize, cores: u64) -> Option<u64> {
        let Some(rule) = self.taken[core] else { return Some(0) };
        let strict_ns = self.strict_ns?;
        let is_full = rule.max_in_flight.is_some_and(|max| self.running >= max);
        if rule.is_paused || is_full {
            return None;
        }
        let pause_ms = rule.per_1000_s.map_or(0, |rate| 1_000_000 / u64::from(rate) + 1);
        let since = (strict_ns / 1_000_000).max(self.begun_tick).max(self.freed_tick);
        Some(since + (cores + 1) * pause_ms + 600)
    }
}

/// Draws a rule; `None`: there is none any more.
pub fn draw(draw: &mut Stream) -> Option<Rule> {
    let per_1000_s = draw.pick(&[0, 0, 2_000, 10_000, 50_000, 1_000_000]) as u32;
    let max_in_flight = draw.pick(&[0, 0, 1, 2, 3]) as u32;
    let rule = Rule {
        max_in_flight: (max_in_flight > 0).then_some(max_in_flight),
        per_1000_s: (per_1000_s > 0).then_some(per_1000_s),
        is_paused: draw.chance(25),
    };
    draw.chance(80).then_some(rule)
}

/// The table with these rules by host.
pub fn table(rules: &[Option<Rule>], former: &DestinationTable) -> Arc<DestinationTable> {
    let named = (0..).zip(rules).filter_map(|(host, rule)| Some((authority(host), (*rule)?)));
    Arc::new(DestinationTable::new(named, former))
}
