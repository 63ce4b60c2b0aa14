//! Clients that write on condition: replacements of a timer that is as somebody last read it
//! (`If-Match`), and creates that are made once however often they are asked for
//! (`Idempotency-Key`).
//!
//! Rules, beside those of all writes:
//!
//! - N3: of the replacements of one version at most one is acknowledged, unless something was wrong
//!   between them.
//! - N4: all requests with one key make one timer: each answer names the same version. A node that
//!   took the first request may have died.
//!
//! Creates of timers that are not there have rules of their own (`claims.rs`).

use std::collections::BTreeMap;

use chronos::shard::effects::Condition;
use chronos::timer::version::Version;
use kit::simulator::random::{Purpose, Stream};

use super::disturbances::RECOVERY_NS;
use super::model::{Checked, Closed, MS, Model, Write, broken};
use super::options::Options;
use super::rarities::Rarity;
use super::requests::Ask;
use super::story_plan::{Fault, Kind, Operation, Story, Target, Wish};
use super::world::World;

/// The names of these requests begin here, beyond those of claims.
const NAMES: usize = 20_000;
/// The ids that clients replace begin here, as those of names do.
const IDS: u64 = 0xe100_0000_0000_0000;
/// The ids that keys make begin here.
const KEYS: u64 = 0xf000_0000_0000_0000;
/// How long a client waits for the answer to a request with a key.
const PATIENCE_NS: u64 = 8_000 * MS;
/// A timer that is replaced pops for the first time after this, beyond all replacements.
const INTERVAL_MS: u64 = 30_000;

/// What clients know of versions.
#[derive(Default)]
pub struct Versions {
    /// The last version of each timer that any client has read.
    read: BTreeMap<u64, Version>,
    /// Acknowledged replacements by id and by the version that they replaced.
    matched: BTreeMap<(u64, Version), Vec<usize>>,
    /// What is known of each key, by id.
    keys: BTreeMap<u64, Key>,
}

/// What is known of a key.
struct Key {
    /// The write that all requests with the key ask for.
    write: usize,
    /// The version that the first answer names.
    version: Option<Version>,
    /// When the requests were sent.
    asked_ns: Vec<u64>,
}

impl Versions {
    /// Notes what a read shows.
    pub fn read(&mut self, id: u64, version: Version) {
        let known = self.read.entry(id).or_insert(version);
        *known = (*known).max(version);
    }

    /// How many keys there are.
    pub fn keys(&self) -> u64 {
        self.keys.len() as u64
    }
}

/// A timer is to be replaced that nobody has read yet.
pub struct NothingRead;

/// Appends requests at almost the same time through several nodes.
fn at_once(
    story: &mut Story,
    draw: &mut Stream,
    (number, times): (&mut usize, u64),
    (at_ns, first): (u64, u64),
    kind: Kind,
) {
    let close_ns = draw.pick(&[0, 200_000, 2 * MS, 20 * MS]);
    let nodes = story.options.all_nodes() as u64;
    for time in 0..times {
        *number += 1;
        story.operations.push(Operation {
            name: story.options.operations + NAMES + *number,
            at_ns: at_ns + if time == 0 { 0 } else { draw.range(0, close_ns) },
            node: ((first + time) % nodes) as usize,
            kind,
            patience_ms: PATIENCE_NS / MS,
            loses_reply: draw.chance(5),
        });
    }
}

fn wish(draw: &mut Stream, options: &Options, interval_ms: u64) -> Wish {
    let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
    let interval_ms = interval_ms + draw.range(0, 1_000);
    // The factor of a chosen id follows from the id, see `World::operate`.
    Wish { interval_ms, repeat_for_ms: interval_ms, host, factor: 0, policy: None }
}

/// Adds timers that several clients replace at once, twice, and others that they read meanwhile.
pub fn matches(story: &mut Story) {
    let options = story.options.clone();
    if !options.rarities.kinds.contains(&Rarity::Matches) || options.sites.is_some() {
        // Sites do not ask each other.
        return;
    }
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 160);
    let (number, nodes) = (&mut 0, options.all_nodes() as u64);
    for timer in 0..draw.range(4, 16) {
        let (id, first) = (Target::Chosen(IDS + timer), draw.range(0, nodes - 1));
        let at_ns = draw.range(9_000, options.safety_ms.max(9_001)) * MS;
        let made = wish(draw, &options, INTERVAL_MS);
        at_once(story, draw, (number, 1), (at_ns, first), Kind::Claim(id, made));
        for round in 1..=2 {
            let at_ns = at_ns + round * draw.range(2_500, 3_000) * MS;
            let (times, wish) = (draw.range(2, 4), wish(draw, &options, INTERVAL_MS));
            at_once(story, draw, (number, times), (at_ns, first + round), Kind::Match(id, wish));
        }
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

/// Adds creates with keys. Each is asked for several times at once, and again within seconds,
/// before or after its pop. Some come just before their node dies.
pub fn keys(story: &mut Story) {
    let options = story.options.clone();
    let has_keys = options.rarities.kinds.contains(&Rarity::Keys);
    if !has_keys || options.sites.is_some() || options.disks.is_some() {
        return;
    }
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 161);
    let (number, nodes) = (&mut 1_000, options.all_nodes() as u64);
    let deaths = story.faults.iter().filter_map(|(at_ns, fault)| match fault {
        Fault::Kill { node, .. } => Some((*at_ns, *node as u64)),
        _ => None,
    });
    let deaths: Vec<(u64, u64)> = deaths.filter(|(at_ns, _)| *at_ns > 9_000 * MS).collect();
    for key in 0..draw.range(4, 16) {
        let id = Target::Chosen(KEYS + key);
        let calm = (draw.range(9_000, options.safety_ms.max(9_001)) * MS, draw.range(0, nodes - 1));
        let (at_ns, first) = match deaths.get(key as usize) {
            Some((at_ns, node)) => (at_ns - draw.range(0, 3_000_000), *node),
            None => calm,
        };
        let interval_ms = draw.pick(&[4_000, INTERVAL_MS]);
        let wish = wish(draw, &options, interval_ms);
        let kind = Kind::Once(id, wish);
        let times = draw.range(1, 3);
        at_once(story, draw, (number, times), (at_ns, first), kind);
        let again_ns = at_ns + draw.range(500, 9_000) * MS;
        at_once(story, draw, (number, 2), (again_ns, first + 1), kind);
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

impl World {
    /// What a request asks to be so.
    pub fn condition_of(
        &self,
        kind: Kind,
        id: Option<u64>,
    ) -> Result<Option<Condition>, NothingRead> {
        match kind {
            Kind::Claim(..) => Ok(Some(Condition::Absent)),
            Kind::Once(..) => Ok(Some(Condition::Once)),
            Kind::Match(..) => {
                let read = id.and_then(|id| self.model.versions.read.get(&id));
                read.map(|version| Some(Condition::Version(*version))).ok_or(NothingRead)
            }
            Kind::Create(_) | Kind::Update(..) | Kind::Delete(_) => Ok(None),
            Kind::Read(_) | Kind::Act(..) => Ok(None),
        }
    }

    /// The write that a request asks for.
    pub fn write_of(
        &mut self,
        name: usize,
        id: Option<u64>,
        condition: Option<Condition>,
    ) -> usize {
        match (condition, id) {
            (Some(Condition::Once), Some(id)) => {
                let keys = &mut self.model.versions.keys;
                let new = Key { write: name, version: None, asked_ns: Vec::new() };
                let key = keys.entry(id).or_insert(new);
                key.asked_ns.push(self.now_ns);
                key.write
            }
            _ => name,
        }
    }

    /// Notes that a request certainly did nothing. Another request with its key may do something.
    pub fn had_no_effect(&mut self, ask: Ask) {
        if !ask.has_key() {
            self.model.closed(ask.name, self.now_ns, Closed::NoEffect);
        }
    }
}

impl Model {
    /// Checks N3 when a replacement is acknowledged.
    pub fn matched(&mut self, name: usize, version: Version, now_ns: u64) -> Checked {
        let Some(id) = self.writes[&name].id else { return Ok(()) };
        let others = self.versions.matched.entry((id, version)).or_default();
        others.push(name);
        let others = &self.versions.matched[&(id, version)];
        let write = &self.writes[&name];
        let is_other = |other: &&Write| {
            let from_ns = other.sent_ns.min(write.sent_ns);
            other.name != name
                && self.crowded_from.is_none()
                && self.is_steady(from_ns.saturating_sub(2 * RECOVERY_NS), now_ns)
        };
        match others.iter().map(|other| &self.writes[other]).find(is_other) {
            Some(other) => {
                broken("N3", format!("both replace {version:?}: {other:?} and {write:?}"))
            }
            None => Ok(()),
        }
    }

    /// Checks N4 when a request with a key, which was sent at `sent_ns`, is answered.
    pub fn keyed(
        &mut self,
        name: usize,
        version: Version,
        (sent_ns, now_ns): (u64, u64),
    ) -> Checked {
        let Some(id) = self.writes[&name].id else { return Ok(()) };
        if self.has_sites {
            // Each site may have made it. One version stays.
            return Ok(());
        }
        let Some(key) = self.versions.keys.get_mut(&id) else { return Ok(()) };
        let first = *key.version.get_or_insert(version);
        let write = &self.writes[&name];
        // The run ends with a delete of each timer: a write of its own, which a retry names.
        let is_deleted = self.timers[&id].iter().any(|other| self.writes[other].wish.is_none());
        match first == version || is_deleted || !self.must_be_read(write, sent_ns, now_ns) {
            true => Ok(()),
            false => broken("N4", format!("{version:?} after {first:?} at {now_ns}: {write:?}")),
        }
    }

    /// Whether a request with a key may have made its timer again since it ended: the node that was
    /// asked may not have known, because it believed dead, or could not reach, all that did.
    pub fn may_be_keyed_anew(&self, write: &Write, now_ns: u64) -> bool {
        let key = write.id.and_then(|id| self.versions.keys.get(&id));
        let asked = key.into_iter().flat_map(|key| &key.asked_ns);
        let mut again = asked.filter(|sent_ns| **sent_ns > write.sent_ns);
        again.any(|sent_ns| !self.must_be_read(write, *sent_ns, now_ns.min(sent_ns + PATIENCE_NS)))
    }
}
