//! Clients that claim timers: creates that are to be made only if the timer is not there
//! (`If-None-Match: *`), through several nodes at almost the same time.
//!
//! Rules, beside those of all writes:
//!
//! - N1: of the claims of one timer at most one is acknowledged, unless something was wrong between
//!   them, or the timer may have ended.
//! - N2: nobody is told that a timer is there that nobody has asked for.
//!
//! Sites do not ask each other before a write: each may acknowledge one ([`site_claims`]). Of these
//! one stays, and pops once (T3).

use kit::simulator::random::{Purpose, Stream};

use super::disturbances::RECOVERY_NS;
use super::model::{Checked, Model, Write, broken};
use super::rarities::Rarity;
use super::story_plan::{Kind, Operation, Story, Target, Wish};

const MS: u64 = 1_000_000;
/// The names of claims begin here, beyond those of other operations.
const NAMES: usize = 10_000;
/// The names of claims through both sites begin here.
const SITE_NAMES: usize = 40_000;
/// The ids that clients claim begin here, as those of names do.
const IDS: u64 = 0xe000_0000_0000_0000;
/// The ids of keys that clients use at both sites begin here.
const KEYS: u64 = 0xf800_0000_0000_0000;
/// A claimed timer pops for the first time after this, beyond all claims of it.
const INTERVAL_MS: u64 = 30_000;

/// Adds claims to a story. Each timer is claimed twice to four times at once, and once more within
/// seconds.
pub fn claims(story: &mut Story) {
    let options = &story.options;
    if options.sites.is_some() {
        return;
    }
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 150);
    let nodes = options.all_nodes() as u64;
    for timer in 0..draw.range(4, 16) {
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let interval_ms = INTERVAL_MS + draw.range(0, 1_000);
        // The factor of a chosen id follows from the id, see `World::operate`.
        let wish = Wish { interval_ms, repeat_for_ms: interval_ms, host, factor: 0, policy: None };
        let at_ns = draw.range(9_000, options.safety_ms.max(9_001)) * MS;
        let close_ns = draw.pick(&[0, 200_000, 2 * MS, 20 * MS]);
        let (first, times) = (draw.range(0, nodes - 1), draw.range(2, 4));
        for time in 0..=times {
            let after_ns = match time {
                _ if time == times => draw.range(500, 8_000) * MS,
                _ => draw.range(0, close_ns),
            };
            story.operations.push(Operation {
                name: options.operations + NAMES + (timer * 10 + time) as usize,
                at_ns: at_ns + after_ns,
                node: ((first + time) % nodes) as usize,
                kind: Kind::Claim(Target::Chosen(IDS + timer), wish),
                patience_ms: 8_000,
                loses_reply: draw.chance(5),
            });
        }
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

/// Adds claims, keys and plain writes of one timer through both sites at almost the same time.
pub fn site_claims(story: &mut Story) {
    let options = &story.options;
    // A run with rules of destinations has one site.
    if !options.rarities.kinds.contains(&Rarity::SiteClaims) || options.sites.is_none() {
        return;
    }
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 131);
    let nodes = options.all_nodes() as u64;
    for timer in 0..draw.range(4, 16) {
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let interval_ms = draw.range(4_000, 12_000);
        let repeat_for_ms = interval_ms * draw.range(1, 2);
        // The factor of a chosen id follows from the id, see `World::operate`.
        let wish = Wish { interval_ms, repeat_for_ms, host, factor: 0, policy: None };
        let at_ns = draw.range(9_000, options.safety_ms.max(9_001)) * MS;
        let close_ns = draw.pick(&[0, 200_000, 2 * MS, 20 * MS]);
        let (first, kind) = (draw.range(0, nodes - 1), draw.range(0, 3));
        for time in 0..draw.range(2, 4) {
            let target = Target::Chosen(if kind == 0 { KEYS } else { IDS } + timer);
            let kind = match kind {
                0 => Kind::Once(target, wish),
                1 if draw.chance(50) => Kind::Update(target, wish),
                _ => Kind::Claim(target, wish),
            };
            story.operations.push(Operation {
                name: options.operations + SITE_NAMES + (timer * 10 + time) as usize,
                at_ns: at_ns + draw.range(0, close_ns),
                node: ((first + time) % nodes) as usize,
                kind,
                patience_ms: 8_000,
                loses_reply: draw.chance(5),
            });
        }
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

impl Model {
    /// Checks N1 when a claim is acknowledged.
    pub fn claimed(&self, name: usize, now_ns: u64) -> Checked {
        let write = &self.writes[&name];
        let others = write.id.and_then(|id| self.timers.get(&id)).into_iter().flatten();
        let others = others.map(|other| &self.writes[other]).filter(|other| other.name != name);
        let others: Vec<&Write> = others.collect();
        if self.has_sites || others.iter().any(|other| other.wish.is_none()) {
            // The run ends with a delete of each timer.
            return Ok(());
        }
        let is_both = |other: &&&Write| {
            let from_ns = other.sent_ns.min(write.sent_ns);
            other.acknowledged_ns().is_some()
                && now_ns < from_ns + INTERVAL_MS * MS / 2
                && self.crowded_from.is_none()
                && self.is_steady(from_ns.saturating_sub(2 * RECOVERY_NS), now_ns)
        };
        match others.iter().find(is_both) {
            Some(other) => broken("N1", format!("both are made: {other:?} and {write:?}")),
            None => Ok(()),
        }
    }

    /// Checks N2 when a claim is told that the timer is there.
    pub fn unclaimed(&self, name: usize) -> Checked {
        let id = self.writes[&name].id;
        let asked = id.and_then(|id| self.timers.get(&id)).map_or(0, Vec::len);
        match asked {
            0 | 1 => broken("N2", format!("nobody else asked for the timer of {name}")),
            _ => Ok(()),
        }
    }
}
