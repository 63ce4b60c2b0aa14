//! What clients know: which writes were sent and acknowledged when, and which pops their hosts saw.
//! From that follow few strong rules, each with the disturbances that excuse it.

use std::collections::{BTreeMap, BTreeSet};

use chronos::base::limits::{Acknowledge, ClusterLimits, TOMBSTONE_MS_MIN};
use chronos::shard::effects::CallbackOutcome;
use kit::simulator::story::Violation;

use super::conditions::Versions;
use super::disturbances::{Disturbances, RECOVERY_NS};
use super::holds::{Act, is_held};
use super::losses::Losses;
use super::network::CoreAt;
use super::silent_starts::Processes;
use super::sites::Sites;
use super::story_plan::Wish;

/// The result of a check.
pub type Checked = Result<(), Violation>;

/// Makes the violation of an invariant.
pub fn broken<T>(invariant: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant, what })
}

pub const MS: u64 = 1_000_000;
/// The delay of each further rank (docs/compat/timer-service.md §4).
pub const RANK_NS: u64 = 2_000 * MS;
/// How long nodes that can talk take to tell each other something.
pub const TALK_NS: u64 = 300 * MS;
/// How long sites take to tell each other something. They tell one timer after the other.
const SITE_TALK_NS: u64 = 1_500 * MS;
/// How long sites take over a link that holds a few messages. A message that does not fit is
/// offered again when the link is empty.
const SITE_TALK_OVER_SMALL_LINKS_NS: u64 = 4_000 * MS;
const SMALL_LINK_BYTES: u64 = 10_000;
/// How long before its death a node has certainly noted which nodes may have missed a write: clocks
/// may be a second apart, and an idle journal writes every 10 s.
const NOTED_NS: u64 = 14_000 * MS;
/// How early a start can be at most after crossing nodes. Each crossing converts clocks by offsets
/// that drift for two windows of 2 s at 1 000 ppm.
const CROSSINGS_NS: u64 = 3 * 4 * MS + MS;

/// The least and the most that any wall clock was ever ahead of the world's. No version is further
/// off.
#[derive(Default)]
pub struct Spread(Option<(i64, i64)>);

impl Spread {
    /// Notes that a clock is this far ahead.
    pub fn see(&mut self, ahead_ms: i64) {
        let (least, most) = self.0.unwrap_or((ahead_ms, ahead_ms));
        self.0 = Some((least.min(ahead_ms), most.max(ahead_ms)));
    }

    /// Returns how far two clocks can be apart. Versions tell milliseconds.
    fn ns(&self) -> u64 {
        self.0.map_or(0, |(least, most)| (most - least) as u64 * MS) + 2 * MS
    }
}

/// How a request of a write ended for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The write was acknowledged.
    Done,
    /// The write certainly did nothing.
    NoEffect,
}

/// One try of a create, an update or a delete.
#[derive(Clone, Debug)]
pub struct Write {
    pub name: usize,
    /// The timer that was asked for; `None` for a delete.
    pub wish: Option<Wish>,
    pub sent_ns: u64,
    pub closed: Option<(u64, Closed)>,
    /// How many replicas must have got the write.
    pub replicas: u32,
    pub id: Option<u64>,
}

impl Write {
    pub fn new(name: usize, wish: Option<Wish>, sent_ns: u64, members: u32) -> Self {
        let replicas = wish.map_or(1, |wish| u32::from(wish.factor)).min(members);
        Self { name, wish, sent_ns, closed: None, replicas, id: None }
    }

    pub fn acknowledged_ns(&self) -> Option<u64> {
        match self.closed {
            Some((at_ns, Closed::Done)) => Some(at_ns),
            _ => None,
        }
    }

    pub fn has_no_effect(&self) -> bool {
        matches!(self.closed, Some((_, Closed::NoEffect)))
    }

    pub fn pops(&self) -> u64 {
        self.wish.map_or(0, |wish| wish.pops())
    }

    /// Returns the earliest time of the world at which a pop can be due on machines that never boot.
    fn due_min_ns(&self, sequence: u64, drift_ppm: u64) -> u64 {
        let after_ns = self.wish.map_or(0, |wish| wish.interval_ms) * sequence * MS;
        let slack_ns = after_ns * drift_ppm / 1_000_000 + CROSSINGS_NS * drift_ppm.min(1);
        (self.sent_ns + after_ns).saturating_sub(slack_ns)
    }

    /// Returns the latest time of the world at which a pop can be due on such machines; `None` if
    /// the write was not acknowledged.
    fn due_max_ns(&self, sequence: u64, drift_ppm: u64) -> Option<u64> {
        let after_ns = self.wish.map_or(0, |wish| wish.interval_ms) * sequence * MS;
        let slack_ns = after_ns * drift_ppm / 1_000_000 + CROSSINGS_NS;
        Some(self.acknowledged_ns()? + after_ns + slack_ns)
    }
}

/// One callback.
#[derive(Clone, Copy, Debug)]
pub struct Attempted {
    pub place: CoreAt,
    pub begun_ns: u64,
    /// When the host answered 2xx, if it did or will.
    pub served_ns: Option<u64>,
    /// When the node knew how the callback ended, and how.
    pub told: Option<(u64, CallbackOutcome)>,
}

/// Everything that clients and hosts know.
pub struct Model {
    /// How long nodes and sites that can talk take to tell each other something.
    pub talk_ns: u64,
    pub has_sites: bool,
    pub writes: BTreeMap<usize, Write>,
    /// Names of the writes of each id, in the order in which they were sent.
    pub timers: BTreeMap<u64, Vec<usize>>,
    /// Callbacks by write and sequence number.
    pub pops: BTreeMap<(usize, u64), Vec<Attempted>>,
    /// What each process last began and last delivered of a write.
    last: BTreeMap<(usize, u64, usize), (u64, u64)>,
    /// The highest pop of a write that any host has seen begin, and when.
    highest: BTreeMap<usize, (u64, u64)>,
    /// The entries of `last` whose timer the process has not held since.
    forgotten: BTreeSet<(usize, u64, usize)>,
    pub disturbances: Disturbances,
    /// Whether nodes keep on disks what they hold, and all of them come back.
    pub keeps_all: bool,
    /// Whether a node that was away finds out which of its timers have ended.
    pub tells_ends: bool,
    /// What disks may have lost.
    pub losses: Losses,
    /// When a bit was last turned over on a disk.
    pub damaged_ns: Option<u64>,
    /// Other nodes may take a node for dead that is silent for so long.
    silence_ns: u64,
    /// How long a pop takes at most until the disk has it, and until a node that has just started
    /// has asked the others about it. The next pop of the timer waits for both.
    pub store_ns: u64,
    /// Until when nodes that started with the run ask the others about each pop, and how long that
    /// takes.
    pub asks: (u64, u64),
    /// When nodes read new files. Meanwhile they may not know each other. What a client does
    /// through one of them reaches the others as soon as they do.
    pub reloads: Vec<(u64, u64)>,
    /// When and for how long each host did not answer well.
    pub unwell: Vec<Vec<(u64, u64)>>,
    /// Time since which everything is healed.
    pub healed_ns: Option<u64>,
    drift_ppm: u64,
    /// A node that was away for longer than this may bring back a timer that has ended since,
    /// because tombstones have ended, too.
    pub away_ns: u64,
    pub acknowledges_first: bool,
    /// How far wall clocks are apart. Nodes that do not hear each other may order writes of one
    /// timer in another order, if the writes are closer than this.
    pub clocks: Spread,
    promotion: bool,
    /// The factor from which on no node can stand in for a node that has little room; `None` if all
    /// have room.
    pub crowded_from: Option<u8>,
    /// What clients know of versions.
    pub versions: Versions,
    /// What clients did with timers beside writing them.
    pub acts: Vec<Act>,
    /// The processes, where some are silent as others start.
    pub processes: Option<Processes>,
    pub delivered: u64,
    pub attempts: u64,
    pub doubled: u64,
}

impl Model {
    pub fn new(hosts: usize, drift_ppm: u64, limits: &ClusterLimits, sites: Option<Sites>) -> Self {
        Self {
            talk_ns: match sites {
                Some(_) if limits.link_bytes_max < SMALL_LINK_BYTES => {
                    SITE_TALK_OVER_SMALL_LINKS_NS
                }
                Some(_) => SITE_TALK_NS,
                None => TALK_NS,
            },
            has_sites: sites.is_some(),
            writes: BTreeMap::new(),
            timers: BTreeMap::new(),
            pops: BTreeMap::new(),
            last: BTreeMap::new(),
            highest: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            disturbances: Disturbances::of(sites),
            keeps_all: false,
            tells_ends: false,
            silence_ns: limits.dead_after_ms.saturating_sub(limits.heartbeat_ms) * MS,
            losses: Losses::default(),
            damaged_ns: None,
            store_ns: 0,
            asks: (0, 0),
            reloads: Vec::new(),
            unwell: vec![Vec::new(); hosts],
            healed_ns: None,
            drift_ppm,
            away_ns: (TOMBSTONE_MS_MIN + limits.tombstone_hold_ms) * MS,
            acknowledges_first: limits.acknowledge == Acknowledge::First,
            clocks: Spread::default(),
            promotion: limits.promotion,
            crowded_from: None,
            versions: Versions::default(),
            acts: Vec::new(),
            processes: None,
            delivered: 0,
            attempts: 0,
            doubled: 0,
        }
    }

    /// Notes that a client sends a write.
    pub fn asked(&mut self, id: Option<u64>, write: Write) {
        let name = write.name;
        self.writes.insert(name, Write { id, ..write });
        if let Some(id) = id {
            self.timers.entry(id).or_default().push(name);
        }
    }

    /// Notes the id of a create, from its answer or from its first pop.
    pub fn named(&mut self, name: usize, id: u64) -> Checked {
        let write = self.writes.get_mut(&name).expect("only writes get ids");
        match write.id {
            None => {
                write.id = Some(id);
                let names = self.timers.entry(id).or_default();
                let own = [name];
                if names.iter().any(|other| self.writes[other].sent_ns < self.writes[&name].sent_ns)
                {
                    return broken("T7", format!("create {name} got {id:x}, which is taken"));
                }
                names.splice(0..0, own);
                Ok(())
            }
            Some(known) if known == id => Ok(()),
            Some(known) => broken("R2", format!("{name} is about {known:x} and {id:x}")),
        }
    }

    /// Returns the factor that a timer was made with.
    pub fn factor_of(&self, id: u64) -> Option<u8> {
        let names = self.timers.get(&id)?;
        names.iter().find_map(|name| self.writes[name].wish).map(|wish| wish.factor)
    }

    /// Notes that a write was answered, or that it certainly did nothing.
    pub fn closed(&mut self, name: usize, now_ns: u64, how: Closed) {
        if let Some(write) = self.writes.get_mut(&name) {
            write.closed.get_or_insert((now_ns, how));
        }
    }

    /// Notes that the result of a callback reached its node.
    pub fn told(
        &mut self,
        name: usize,
        sequence: u64,
        at: usize,
        now_ns: u64,
        outcome: CallbackOutcome,
    ) {
        let attempted = &mut self.pops.get_mut(&(name, sequence)).expect("it was begun")[at];
        attempted.told = Some((now_ns, outcome));
        if outcome == CallbackOutcome::Delivered {
            self.delivered += 1;
            let key = (attempted.place.node, attempted.place.life, name);
            let last = self.last.get_mut(&key).expect("it was begun");
            last.1 = last.1.max(sequence);
        }
    }

    /// Reports whether a host answered well all the time.
    pub fn host_is_well(&self, host: u32, from_ns: u64, to_ns: u64) -> bool {
        self.unwell[host as usize].iter().all(|span| span.0 > to_ns || span.1 < from_ns)
    }

    /// Returns a write that certainly replaced this one: it was sent after this one was over, and
    /// acknowledged.
    pub fn superseded_by(&self, write: &Write) -> Option<&Write> {
        let over_ns = match write.closed {
            Some((at_ns, _)) => at_ns,
            None => return None,
        };
        self.timers
            .get(&write.id?)?
            .iter()
            .map(|name| &self.writes[name])
            .filter(|later| later.sent_ns > over_ns && later.acknowledged_ns().is_some())
            .filter(|later| !self.may_be_reordered(write, later))
            .min_by_key(|later| later.acknowledged_ns())
    }

    /// Reports whether no write that was sent to the timer until `until_ns` can have replaced this
    /// write.
    pub fn is_current(&self, write: &Write, until_ns: u64) -> bool {
        let Some(id) = write.id else { return false };
        self.timers[&id].iter().map(|name| &self.writes[name]).all(|other| {
            other.name == write.name
                || other.sent_ns > until_ns
                || other.has_no_effect()
                || other.closed.is_some_and(|(at_ns, _)| at_ns < write.sent_ns)
                    && !self.may_be_reordered(other, write)
        })
    }

    /// Notes which timers that it popped a process may have forgotten.
    pub fn forget_unless(&mut self, place: CoreAt, holds: impl Fn(u64) -> bool) {
        let (from, to) = ((place.node, place.life, 0), (place.node, place.life, usize::MAX));
        for key in self.last.range(from..=to).map(|(key, _)| *key) {
            if self.writes[&key.2].id.is_some_and(|id| !holds(id)) {
                self.forgotten.insert(key);
            }
        }
    }

    /// Reports whether a write may win against a later write. They must be closer than clocks are
    /// apart, and something must have been wrong between them, so that the node that took the later
    /// write did not know the earlier one.
    fn may_be_reordered(&self, earlier: &Write, later: &Write) -> bool {
        let from_ns = earlier.sent_ns.saturating_sub(RECOVERY_NS);
        let until_ns = later.closed.map_or(u64::MAX, |(at_ns, _)| at_ns);
        // A write that is answered before all replicas have it may still be made again.
        let over_ns = earlier.closed.map_or(u64::MAX, |(at_ns, _)| at_ns);
        if self.acknowledges_first && later.sent_ns < over_ns.saturating_add(TALK_NS) {
            return true;
        }
        // Another site may not have heard of the earlier write yet.
        if self.has_sites && later.sent_ns < over_ns.saturating_add(self.talk_ns) {
            return true;
        }
        // Nor may it have heard of the later one, as a client does something with the timer there.
        if self.has_sites && self.is_acted_on_beside(earlier, later) {
            return true;
        }
        // A node that was started anew keeps the distance that its clocks had drifted by then.
        let drifted_ns = 2 * later.sent_ns * self.drift_ppm / 1_000_000;
        later.sent_ns <= over_ns.saturating_add(self.clocks.ns() + drifted_ns)
            && !self.is_steady(from_ns, until_ns)
    }

    /// Reports whether disturbances explain that no node has an acknowledged write for good.
    pub fn may_be_lost(&self, write: &Write, until_ns: u64) -> bool {
        match self.keeps_all {
            true => {
                write.acknowledged_ns().is_none()
                    || self.was_answered_early(write)
                    || self.may_be_unwritten(write)
            }
            false => self.may_be_unknown(write, until_ns),
        }
    }

    /// Reports whether disturbances explain that no node that lives has an acknowledged write, or
    /// that some node has not heard of it.
    pub fn may_be_unknown(&self, write: &Write, until_ns: u64) -> bool {
        if write.acknowledged_ns().is_none() {
            return true;
        }
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        if self.was_answered_early(write) {
            return true;
        }
        self.disturbances.impaired_max(from_ns, until_ns) >= write.replicas
            && self.disturbances.has_death(from_ns, until_ns)
    }

    /// Reports whether all nodes that have an acknowledged write may have been silent for so long
    /// that others took them for dead, and went on without it.
    pub fn may_be_unheard(&self, write: &Write, until_ns: u64) -> bool {
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        self.disturbances.impaired_max(from_ns, until_ns) >= write.replicas
            && self.disturbances.has_silence(from_ns, until_ns, self.silence_ns)
    }

    /// Reports whether a write was acknowledged by one replica that may have been the only one.
    fn was_answered_early(&self, write: &Write) -> bool {
        if self.acknowledges_first
            && self.is_crowded(write.wish.map_or(1, |wish| wish.factor), true)
        {
            return true;
        }
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        let until_ns = write.acknowledged_ns().map_or(u64::MAX, |done_ns| done_ns + RANK_NS);
        self.acknowledges_first && !self.disturbances.is_quiet(from_ns, until_ns)
    }

    /// Returns the earliest time of the world at which a pop can be due.
    fn due_min_ns(&self, write: &Write, sequence: u64) -> u64 {
        let (early_ns, _) = self.losses.shifted_ns(write.sent_ns);
        write.due_min_ns(sequence, self.drift_ppm).saturating_sub(early_ns)
    }

    /// Returns the latest time of the world at which a pop can be due; `None` if the write was not
    /// acknowledged.
    pub fn due_max_ns(&self, write: &Write, sequence: u64) -> Option<u64> {
        let (_, late_ns) = self.losses.shifted_ns(write.sent_ns);
        Some(write.due_max_ns(sequence, self.drift_ppm)? + late_ns)
    }

    /// Checks T1: pop `sequence` of a write should have been seen by now.
    pub fn is_seen(&self, name: usize, sequence: u64, now_ns: u64) -> Checked {
        let write = &self.writes[&name];
        let Some(due_ns) = self.due_max_ns(write, sequence) else { return Ok(()) };
        let wish = write.wish.expect("deletes have no pops");
        let seen = self.pops.get(&(name, sequence));
        let is_served = |attempted: &Attempted| attempted.served_ns.is_some_and(|at| at <= now_ns);
        // What is done with it says when it pops (`holds.rs`).
        let is_served = seen.is_some_and(|seen| seen.iter().any(is_served));
        if is_served || !self.is_current(write, now_ns) || write.id.is_some_and(is_held) {
            return Ok(());
        }
        let settles_ns = RECOVERY_NS + wish.interval_ms * MS;
        // The pop may have been tried before boots made the timer later.
        let tried_ns = due_ns - self.losses.shifted_ns(write.sent_ns).1;
        if !self.host_is_well(wish.host, tried_ns.saturating_sub(settles_ns), now_ns) {
            return Ok(());
        }
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        if self.was_answered_early(write) {
            return Ok(());
        }
        let impaired = self.disturbances.impaired_max(from_ns, now_ns);
        let is_owed = impaired < write.replicas;
        // No node died. A node that was cut off or frozen still has the timer, and pops once that
        // has ended.
        let is_healed = self.healed_ns.is_some_and(|healed| healed + RECOVERY_NS < tried_ns);
        let is_kept = is_healed && !self.may_be_lost(write, now_ns);
        if is_owed || is_kept {
            let id = write.id.unwrap_or(0);
            let what = format!(
                "pop {sequence} of {name}, {id:x} ({wish:?}, {impaired} impaired), due at {} ms",
                due_ns / MS
            );
            return broken("T1", what);
        }
        Ok(())
    }

    /// Returns the latest time at which a pop must have been seen.
    pub fn deadline_ns(&self, name: usize, sequence: u64, timeout_ms: u64) -> Option<u64> {
        let write = &self.writes[&name];
        let due_ns = self.due_max_ns(write, sequence)?;
        Some(due_ns + u64::from(write.replicas + 1) * RANK_NS + timeout_ms * MS + 10 * TALK_NS)
    }

    /// Checks T2 to T8 for a callback that begins.
    pub fn attempt(&mut self, place: CoreAt, now_ns: u64, name: usize, sequence: u64) -> Checked {
        self.attempts += 1;
        let Some(write) = self.writes.get(&name).filter(|write| write.wish.is_some()) else {
            return broken("T7", format!("a pop of {name}, which nobody asked for"));
        };
        let text = || format!("pop {sequence} of {name} on node {}: {write:?}", place.node);
        if sequence == 0 || sequence > write.pops() {
            return broken("T8", text());
        }
        let is_run = write.id.is_some_and(|id| self.may_be_run(id));
        if now_ns < self.due_min_ns(write, sequence) && !is_run {
            return broken("T2", text());
        }
        self.is_not_superseded(write, now_ns)?;
        self.is_no_duplicate(write, place, sequence, now_ns)?;
        self.has_heard_witness(write, (place, sequence), now_ns)?;
        self.is_on_time(write, sequence, now_ns)?;
        let key = (place.node, place.life, name);
        let last = self.last.get(&key).copied().unwrap_or_default();
        let was_away_ns = self.disturbances.longest_ns(write.sent_ns, now_ns);
        // A write that pops before all replicas have it, and then loses against another write, is
        // made again.
        let is_early = write.acknowledged_ns().is_none() || self.acknowledges_first;
        let names = write.id.and_then(|id| self.timers.get(&id)).into_iter().flatten();
        let mut later =
            names.map(|name| &self.writes[name]).filter(|it| it.sent_ns > write.sent_ns);
        let is_early = is_early || later.any(|later| self.is_made_again(write, later));
        let is_rival = is_early && !self.is_current(write, now_ns) || self.is_run_meanwhile(write);
        let is_again = sequence < last.0 || sequence <= last.1;
        // A process that moved a timer away may get an older copy back: when all nodes that had the
        // timer failed, or from a node that did not know those nodes as members.
        let is_older = self.forgotten.remove(&key)
            && (self.may_be_unknown(write, now_ns) || self.has_reload(now_ns));
        if is_again
            && !is_rival
            && !is_older
            && !self.may_be_damaged(write)
            && !self.may_be_keyed_anew(write, now_ns)
            && was_away_ns < self.away_ns(write.sent_ns, now_ns)
        {
            return broken("T5", format!("{} after {last:?}", text()));
        }
        self.is_in_order(write, place, sequence, now_ns)?;
        let highest = self.highest.entry(name).or_default();
        *highest = (*highest).max((sequence, now_ns));
        let last = self.last.entry(key).or_default();
        // A write that is made again is counted anew.
        *last = (sequence, if is_again { 0 } else { last.1 });
        Ok(())
    }

    /// Checks T5 at the host: sequence numbers do not fall, whichever nodes pop, as long as these
    /// nodes can talk.
    fn is_in_order(&self, write: &Write, place: CoreAt, sequence: u64, now_ns: u64) -> Checked {
        let Some(&(highest, at_ns)) = self.highest.get(&write.name) else { return Ok(()) };
        self.keeps_order_at_starts(write, (place, now_ns), (sequence, highest))?;
        let wish = write.wish.expect("a pop has one");
        let from_ns = now_ns.saturating_sub(RECOVERY_NS + wish.interval_ms * MS);
        // A write that loses against another one is made again, and counted anew.
        let is_early = write.acknowledged_ns().is_none() || self.acknowledges_first;
        if sequence >= highest
            || is_early && !self.is_current(write, now_ns)
            || !self.has_only_pauses(from_ns.min(at_ns), now_ns)
            || !self.host_is_well(wish.host, from_ns, now_ns)
            || self.may_be_unknown(write, now_ns)
            || self.may_be_unheard(write, now_ns)
            || self.disturbances.longest_ns(write.sent_ns, now_ns)
                >= self.away_ns(write.sent_ns, now_ns)
        {
            return Ok(());
        }
        broken(
            "T5 order",
            format!("{sequence} after {highest} by {place:?}: {write:?} at {now_ns}"),
        )
    }

    /// Reports whether nodes that lived could talk and knew each other: nodes only stopped, died,
    /// froze, and came back.
    pub fn has_only_pauses(&self, from_ns: u64, to_ns: u64) -> bool {
        !self.has_sites
            && self.disturbances.has_only_pauses(from_ns, to_ns)
            && self.reloads.iter().all(|reload| reload.0 > to_ns || reload.1 < from_ns)
    }

    /// Reports whether there was no trouble, and all nodes knew each other.
    pub fn is_steady(&self, from_ns: u64, to_ns: u64) -> bool {
        self.disturbances.is_quiet(from_ns, to_ns)
            && self.reloads.iter().all(|reload| reload.0 > to_ns || reload.1 < from_ns)
    }

    /// Reports whether nodes read new files a short while before.
    fn has_reload(&self, now_ns: u64) -> bool {
        let from_ns = now_ns.saturating_sub(RECOVERY_NS);
        self.reloads.iter().any(|reload| reload.0 <= now_ns && reload.1 >= from_ns)
    }

    /// Checks T6 and T7: no write pops after another write has replaced it.
    fn is_not_superseded(&self, write: &Write, now_ns: u64) -> Checked {
        let Some(later) = self.superseded_by(write) else { return Ok(()) };
        let known_ns = later.acknowledged_ns().expect("it is chosen for that") + self.talk_ns;
        if now_ns <= known_ns {
            return Ok(());
        }
        let from_ns = later.sent_ns.saturating_sub(RECOVERY_NS).min(write.sent_ns);
        let is_quiet = self.is_steady(from_ns, now_ns);
        // After the tombstone is gone an old copy comes back only from a node that was away longer.
        let may_return = self.may_return(write, from_ns, now_ns);
        let is_healed = self.healed_ns.is_some_and(|healed| healed + RECOVERY_NS < now_ns);
        let is_kept = is_healed
            && self.is_steady(now_ns - RECOVERY_NS, now_ns)
            && !self.may_be_forgotten(write, later, (from_ns, now_ns))
            && !may_return;
        // Nodes that froze or came back ask before they pop, and get the answer before they pop.
        let is_asked = !self.acknowledges_first
            && self.has_only_pauses(from_ns, now_ns)
            && !may_return
            && !self.may_be_unknown(later, now_ns)
            && !self.may_be_unheard(later, now_ns)
            && !self.is_made_again(write, later);
        if is_quiet || is_kept || is_asked {
            let invariant = if later.wish.is_some() { "T7" } else { "T6" };
            return broken(invariant, format!("pop of {write:?} after {later:?}"));
        }
        Ok(())
    }

    /// Reports whether all nodes that had the later of two writes may have lost it.
    fn may_be_forgotten(&self, write: &Write, later: &Write, (from, to): (u64, u64)) -> bool {
        match self.keeps_all {
            true => self.may_be_lost(later, to),
            false => self.disturbances.impaired_max(from, to) >= write.replicas.min(later.replicas),
        }
    }

    /// Reports whether an old copy of a write may come back: a node was away for longer than
    /// tombstones stay, and cannot tell that the timer has ended (J3).
    pub fn may_return(&self, write: &Write, from_ns: u64, now_ns: u64) -> bool {
        // The node must have lived, and written a page, for a while after the write.
        let is_noted = self.disturbances.first_death_ns(write.sent_ns, now_ns);
        let is_noted = is_noted.is_none_or(|at_ns| write.sent_ns + NOTED_NS < at_ns);
        let is_told = self.tells_ends
            && self.are_others_complete(write, now_ns)
            && is_noted
            && !self.acknowledges_first
            && write.replicas > 1
            && self.disturbances.has_only_single_deaths(from_ns, now_ns);
        self.disturbances.longest_ns(from_ns, now_ns) >= self.away_ns(from_ns, now_ns) && !is_told
    }

    /// Reports whether a timer that came to its end may be back since it popped at `popped_ns`.
    pub fn may_be_back(&self, write: &Write, popped_ns: u64, now_ns: u64) -> bool {
        let from_ns = popped_ns.min(write.sent_ns);
        self.has_sites && self.may_be_over(write, now_ns) && self.may_return(write, from_ns, now_ns)
    }

    /// Reports whether the earlier of two writes may have been made again as the later one: it was
    /// not answered when the later one was sent.
    pub fn is_made_again(&self, earlier: &Write, later: &Write) -> bool {
        earlier.acknowledged_ns().is_none_or(|done_ns| done_ns >= later.sent_ns)
    }

    /// Checks T3, T4 and T9 against other callbacks of the same pop.
    fn is_no_duplicate(&self, write: &Write, place: CoreAt, sequence: u64, now_ns: u64) -> Checked {
        let Some(others) = self.pops.get(&(write.name, sequence)) else { return Ok(()) };
        let wish = write.wish.expect("a pop has one");
        let settled_ns = RECOVERY_NS + wish.interval_ms * MS;
        // While nodes have different files, one node may believe the old list right, another the
        // new one.
        let ranks_ns = u64::from(2 * write.replicas + 1) * RANK_NS / 2;
        let is_quiet = self.disturbances.is_quiet(now_ns.saturating_sub(settled_ns), now_ns)
            && self.is_steady(now_ns.saturating_sub(ranks_ns), now_ns);
        let text =
            || format!("pop {sequence} of {write:?} at {now_ns} by {place:?} and {others:?}");
        if !is_quiet {
            return self.is_no_double_of_a_pause(write, (place, now_ns), others, &text);
        }
        let (early_ns, late_ns) = self.losses.shifted_ns(write.sent_ns);
        for other in others {
            let is_own = (other.place.node, other.place.life) == (place.node, place.life);
            if let Some((told_ns, CallbackOutcome::Delivered)) = other.told
                && told_ns + self.talk_ns < now_ns
                && !self.may_be_back(write, told_ns, now_ns)
                && !self.is_untold((other.place, told_ns), place, now_ns)
            {
                return broken("T3", text());
            }
            // The next rank takes over two seconds after the due time, not earlier. A pop that
            // began late, because its host was in trouble, proves nothing.
            let is_well = self.host_is_well(wish.host, now_ns.saturating_sub(settled_ns), now_ns);
            // Where clocks were set before a boot, ranks and sites do not count from one moment.
            let least_ns = RANK_NS - 2 * CROSSINGS_NS - TALK_NS;
            let least_ns = least_ns.saturating_sub(early_ns + late_ns);
            let is_again = write.id.is_some_and(|id| self.is_resumed_meanwhile(id, other));
            let is_late = now_ns.saturating_sub(other.begun_ns) >= least_ns || is_again;
            if !is_own && is_well && !is_late {
                return broken("T3", text());
            }
        }
        Ok(())
    }

    /// Checks that the first callback of a pop is on time after all have settled.
    fn is_on_time(&self, write: &Write, sequence: u64, now_ns: u64) -> Checked {
        let wish = write.wish.expect("a pop has one");
        if self.pops.contains_key(&(write.name, sequence)) || write.id.is_some_and(is_held) {
            return Ok(());
        }
        let Some(due_ns) = self.due_max_ns(write, sequence) else { return Ok(()) };
        let settled_ns = RECOVERY_NS + 2 * wish.interval_ms * MS;
        let from_ns = due_ns.saturating_sub(settled_ns);
        let known_all = self.is_steady(write.sent_ns, write.sent_ns)
            && self.is_steady(now_ns.saturating_sub(RANK_NS * 3 / 2), now_ns);
        if !self.disturbances.is_quiet(from_ns, now_ns)
            || !known_all
            || !self.host_is_well(wish.host, from_ns, now_ns)
            || !self.is_current(write, now_ns)
        {
            return Ok(());
        }
        let is_down = self.disturbances.has_death(from_ns, now_ns);
        let ranks = match (is_down, self.has_sites) {
            // All nodes of one site that hold the timer may be dead. The other site acts behind
            // them.
            (true, true) => u64::from(wish.factor) + u64::from(write.replicas),
            (true, false) if !self.promotion => u64::from(write.replicas),
            _ => 0,
        };
        let due_ns = match wish.interval_ms * MS < self.store_ns {
            true => due_ns + sequence * self.store_ns,
            false => due_ns,
        };
        // The pops of a short interval wait for each other's answers as long as nodes ask.
        let (asks_until_ns, asks_ns) = self.asks;
        let asked = if wish.interval_ms * MS < asks_ns { sequence } else { 1 };
        let asked_ns = (due_ns + asked * asks_ns).min(asks_until_ns + asks_ns);
        let due_ns = due_ns.max(asked_ns);
        let room_ns = self.waits_for_room_until_ns(write, sequence, is_down);
        if now_ns > room_ns.unwrap_or(0).max(due_ns + TALK_NS + ranks * RANK_NS) {
            return broken("late", format!("pop {sequence} of {write:?} at {now_ns}"));
        }
        Ok(())
    }

    /// Returns until when a rank without room for the timer may be waited for, while no node can
    /// stand in for it. That is until the first pop; afterwards other ranks act, unless ranks stay
    /// as they are.
    fn waits_for_room_until_ns(&self, write: &Write, sequence: u64, is_down: bool) -> Option<u64> {
        let factor = write.wish.map_or(1, |wish| wish.factor);
        let first = if self.promotion { 1 } else { sequence };
        let due_ns = self.due_max_ns(write, first)?;
        let until_ns = due_ns + TALK_NS + (u64::from(factor) + 1) * RANK_NS;
        self.is_crowded(factor, is_down).then_some(until_ns)
    }

    /// Reports whether there may be no node to stand in for a node that has little room.
    pub fn is_crowded(&self, factor: u8, is_down: bool) -> bool {
        self.crowded_from.is_some_and(|from| factor + u8::from(is_down) >= from)
    }

    /// Checks R and C3 for a read of a client.
    pub fn read(&self, now_ns: u64, sent_ns: u64, id: Option<u64>, uri: Option<&str>) -> Checked {
        let Some(id) = id else { return broken("R2", "a create is answered as a read".into()) };
        let Some(names) = self.timers.get(&id) else {
            return match uri {
                Some(uri) => broken("C3", format!("{id:x} is {uri}, which nobody asked for")),
                None => Ok(()),
            };
        };
        let Some(uri) = uri else {
            let missed = names.iter().map(|name| &self.writes[name]).find(|write| {
                write.acknowledged_ns().is_some_and(|done_ns| done_ns + self.talk_ns < sent_ns)
                    && write.pops() > 0
                    && self.is_current(write, now_ns)
                    && !self.may_be_over(write, now_ns)
                    && self.must_be_read(write, sent_ns, now_ns)
            });
            return match missed {
                Some(write) => broken("C3", format!("not found: {write:?}")),
                None => Ok(()),
            };
        };
        let name = uri.rsplit('/').next().and_then(|name| name.parse::<usize>().ok());
        let Some(write) = name.filter(|name| names.contains(name)).map(|name| &self.writes[&name])
        else {
            return broken("C3", format!("{id:x} is {uri}"));
        };
        if let Some(later) = self.superseded_by(write)
            && later.acknowledged_ns().is_some_and(|done_ns| done_ns + self.talk_ns < sent_ns)
            && !self.is_made_again(write, later)
            && self.must_be_read(later, sent_ns, now_ns)
        {
            return broken("C3", format!("read {write:?} after {later:?} at {now_ns}"));
        }
        Ok(())
    }

    /// Reports whether any node that answers a read must know of an acknowledged write. Nodes may
    /// have stopped, died, frozen and come back, but nodes that lived could talk.
    pub fn must_be_read(&self, write: &Write, sent_ns: u64, now_ns: u64) -> bool {
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        let is_read_in_calm = self.disturbances.has_only_pauses(sent_ns, now_ns);
        let is_steady = self.is_steady(from_ns, now_ns);
        // A node that stands in for one without room is not known to hold the timer.
        let is_kept = !self.acknowledges_first
            && self.crowded_from.is_none()
            && self.has_only_pauses(from_ns, now_ns)
            && !self.may_be_unknown(write, now_ns)
            && !self.may_be_unheard(write, now_ns)
            && self.disturbances.longest_ns(from_ns, now_ns) < self.away_ns(from_ns, now_ns);
        is_read_in_calm && (is_steady || is_kept)
    }

    /// Reports whether the last pop has been delivered, or may have been given up. The pop of a
    /// host in trouble may be given up untried.
    pub fn may_be_over(&self, write: &Write, now_ns: u64) -> bool {
        let Some(wish) = write.wish.filter(|wish| wish.pops() > 0) else { return true };
        let due_ns = self.due_min_ns(write, wish.pops());
        let is_tried = self.pops.contains_key(&(write.name, wish.pops()));
        let from_ns = due_ns.saturating_sub(RECOVERY_NS);
        is_tried || now_ns >= due_ns && !self.host_is_well(wish.host, from_ns, now_ns)
    }
}
