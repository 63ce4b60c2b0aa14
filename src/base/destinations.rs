//! How much callback servers may be asked: the rules of *destinations*, and what a node has used of
//! them. All cores of the node share the figures. Each figure is one atomic word, so no core waits
//! for another.
//!
//! A rule holds for a whole cluster. Each living node has its [`Share`] of it.

// May panic: assertions 1, indices 5.
// Why it does not: compiled 1, fixed 5.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::ids::ShardIndex;
use super::limits::SHARDS_MAX;
use super::planted::{Bug, is_planted};
use super::time::MonoNs;

/// Most destinations that have rules.
pub const DESTINATIONS_MAX: usize = 1_000;
/// Highest `max-in-flight`.
pub const IN_FLIGHT_MAX: u32 = 1_000_000;
/// Highest rate, in attempts per 1 000 s. Above it the pause between two attempts, counted in whole
/// nanoseconds, would be off by more than 0.1 %. The lowest rate is 1.
pub const PER_1000_S_MAX: u32 = 1_000_000_000;
const NS_PER_1000_S: u64 = 1_000_000_000_000;
/// Attempts of so many ns that were not made may be made at once, so that turns of a millisecond
/// reach a high rate.
const CATCH_UP_NS: u64 = 10_000_000;

/// What may be asked of a destination. `None`: as much as there is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rule {
    /// Most callbacks that run at a time.
    pub max_in_flight: Option<u32>,
    /// Most attempts in 1 000 s.
    pub per_1000_s: Option<u32>,
    /// Whether no attempt begins at all.
    pub is_paused: bool,
}

/// A node's share of what a rule allows to the living nodes of its site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// How many nodes live, 1 at least.
    pub nodes: u32,
    /// The number of this node among them.
    pub own: u32,
}

impl Share {
    /// The share of a node alone.
    pub const WHOLE: Share = Share { nodes: 1, own: 0 };

    /// The node's part of `max_in_flight`: the parts of all nodes add up to it, but each is 1 at
    /// least, or the timers of a node would never pop.
    pub fn places(self, max_in_flight: u32) -> u32 {
        let rest = max_in_flight % self.nodes.max(1);
        (max_in_flight / self.nodes.max(1) + u32::from(self.own < rest)).max(1)
    }

    /// Nanoseconds between two attempts of the node.
    pub fn pause_ns(self, per_1000_s: u32) -> u64 {
        let nodes = if is_planted(Bug::RateNotDivided) { 1 } else { self.nodes.max(1) };
        (NS_PER_1000_S * u64::from(nodes)).div_ceil(u64::from(per_1000_s.max(1)))
    }
}

/// What a node has used of a rule.
#[derive(Debug, Default)]
pub struct Meter {
    /// When the next attempt may begin, in ns of the monotonic clock.
    next_ns: AtomicU64,
    /// Callbacks that run, and places that are kept for callbacks.
    places: AtomicU32,
    /// One bit for each core that waits for a place.
    waiting: [AtomicU64; SHARDS_MAX as usize / 64],
}

impl Meter {
    /// Takes the next moment at which an attempt may begin, and returns it. Whoever takes it either
    /// uses it or leaves it unused. In any t seconds at most rate x (t + 0.01) + 1 moments lie.
    pub fn reserve(&self, now: MonoNs, pause_ns: u64) -> MonoNs {
        let earliest = now.0.saturating_sub(CATCH_UP_NS);
        let moment = |next: u64| next.max(earliest);
        let after = |next: u64| Some(moment(next).saturating_add(pause_ns));
        let former = self.next_ns.fetch_update(Relaxed, Relaxed, after);
        MonoNs(moment(former.unwrap_or_else(|next| next)))
    }

    /// Takes a place; false: `max` are taken. Exact for the node.
    pub fn take_place(&self, max: u32) -> bool {
        let more = |taken: u32| (taken < max).then_some(taken + 1);
        self.places.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Counts places that were taken before anybody counted.
    pub fn add_places(&self, count: u32) {
        self.places.fetch_add(count, SeqCst);
    }

    /// Gives places back. They must have been taken or added.
    pub fn give_back(&self, count: u32) {
        self.places.fetch_sub(count, SeqCst);
    }

    /// Places taken.
    pub fn places(&self) -> u32 {
        self.places.load(SeqCst)
    }

    /// Notes that a core waits for a place. It must try once more afterwards: a place may have been
    /// given back just before.
    pub fn wait(&self, core: ShardIndex) {
        let (word, bit) = place_of(core);
        self.waiting[word].fetch_or(bit, SeqCst);
    }

    /// Whether a core is still noted. Otherwise it has been told to try.
    pub fn is_waiting(&self, core: ShardIndex) -> bool {
        let (word, bit) = place_of(core);
        self.waiting[word].load(SeqCst) & bit != 0
    }

    /// Notes that a core waits no more.
    pub fn stop_waiting(&self, core: ShardIndex) {
        let (word, bit) = place_of(core);
        self.waiting[word].fetch_and(!bit, SeqCst);
    }

    /// Whether another core waits for a place.
    pub fn others_wait(&self, own: ShardIndex) -> bool {
        let (own_word, own_bit) = place_of(own);
        let of_others = |(word, bits): (usize, &AtomicU64)| {
            let bits = bits.load(SeqCst);
            if word == own_word { bits & !own_bit } else { bits }
        };
        self.waiting.iter().enumerate().any(|word| of_others(word) != 0)
    }

    /// Takes the next core after `own` that waits, so that cores take turns. The caller wakes it.
    pub fn next_waiting(&self, own: ShardIndex) -> Option<ShardIndex> {
        let after = (1..u32::from(SHARDS_MAX)).map(|step| (u32::from(own.0) + step) % 256);
        after.map(|core| ShardIndex(core as u16)).find(|core| {
            let (word, bit) = place_of(*core);
            self.waiting[word].load(SeqCst) & bit != 0
                && self.waiting[word].fetch_and(!bit, SeqCst) & bit != 0
        })
    }

    /// Forgets when the last attempts began: the rate has changed.
    fn forget_rate(&self) {
        self.next_ns.store(0, Relaxed);
    }
}

const _: () = assert!(SHARDS_MAX == 256, "next_waiting takes turns among 256 cores");

fn place_of(core: ShardIndex) -> (usize, u64) {
    (usize::from(core.0 / 64), 1 << (core.0 % 64))
}

/// A destination that has a rule.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Host and port, or a host at all its ports, as `wire::destination` writes them.
    pub name: Box<str>,
    /// What may be asked of it.
    pub rule: Rule,
    /// What this node has used.
    pub meter: Arc<Meter>,
}

/// Both have the same rule. What is used of it is not compared.
impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.rule) == (&other.name, other.rule)
    }
}

impl Eq for Destination {}

/// All destinations that have rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DestinationTable {
    /// By name.
    all: Vec<Destination>,
    is_hold: bool,
}

impl DestinationTable {
    /// A table of at most [`DESTINATIONS_MAX`] rules, in the order of their names. What is used of
    /// a destination that `former` has, too, goes on.
    pub fn new(rules: impl IntoIterator<Item = (String, Rule)>, former: &DestinationTable) -> Self {
        let make = |(name, rule): (String, Rule)| {
            let meter = match former.find(&name) {
                Some(before) => {
                    if before.rule.per_1000_s != rule.per_1000_s {
                        before.meter.forget_rate();
                    }
                    Arc::clone(&before.meter)
                }
                None => Arc::default(),
            };
            Destination { name: name.into(), rule, meter }
        };
        let mut all: Vec<Destination> = rules.into_iter().map(make).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.truncate(DESTINATIONS_MAX);
        Self { all, is_hold: false }
    }

    /// The table of a node that does not know the rules yet: every host is paused.
    pub fn hold() -> Self {
        let rule = Rule { is_paused: true, ..Rule::default() };
        let every = Destination { name: "".into(), rule, meter: Arc::default() };
        Self { all: vec![every], is_hold: true }
    }

    /// Whether the rules are not known yet.
    pub fn is_hold(&self) -> bool {
        self.is_hold
    }

    /// Every destination, by name.
    pub fn all(&self) -> &[Destination] {
        &self.all
    }

    /// The destination of this name.
    pub fn find(&self, name: &str) -> Option<&Destination> {
        self.place(name).and_then(|at| self.all.get(at))
    }

    /// The rule for a host and its port, see [`DestinationTable::place_for`].
    pub fn find_for(&self, name: &str) -> Option<&Destination> {
        self.place_for(name).and_then(|at| self.all.get(at))
    }

    /// The place in [`DestinationTable::all`] of the rule for a host and its port: that of both if
    /// there is one, otherwise that of the host. `name` is `host:port`.
    pub fn place_for(&self, name: &str) -> Option<usize> {
        if self.is_hold {
            return Some(0);
        }
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        self.place(name).or_else(|| self.place(host))
    }

    /// The place of the destination of this name.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.all.binary_search_by(|one| (*one.name).cmp(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn parts_add_up_and_none_is_empty() {
        for nodes in 1..9_u32 {
            for max in 1..40 {
                let parts = (0..nodes).map(|own| Share { nodes, own }.places(max));
                assert_eq!(parts.sum::<u32>(), max.max(nodes), "{max} over {nodes}");
            }
        }
        let third = Share { nodes: 3, own: 1 };
        assert_eq!(third.pause_ns(1_000), 3_000 * MS, "1 a second over three nodes");
        assert_eq!(Share::WHOLE.pause_ns(PER_1000_S_MAX), 1_000);
        assert_eq!(Share::WHOLE.pause_ns(1), 1_000_000 * MS);
    }

    #[test]
    fn moments_keep_the_rate_and_what_was_left_unused_is_lost() {
        let meter = Meter::default();
        let at = |ms: u64| MonoNs(1_000_000 * MS + ms * MS);
        assert!(meter.reserve(at(0), 100 * MS) <= at(0));
        let next = meter.reserve(at(0), 100 * MS);
        assert_eq!(next, at(90), "10 ms are caught up");
        assert_eq!(meter.reserve(at(0), 100 * MS), at(190));
        // After a long silence.
        assert!(meter.reserve(at(60_000), 100 * MS) <= at(60_000));
        assert_eq!(meter.reserve(at(60_000), 100 * MS), at(60_090));
        // 1 000 a ms.
        let fast = Meter::default();
        let begun = (0..50_000).filter(|_| fast.reserve(at(0), 1_000) <= at(0)).count();
        assert_eq!(begun, 10_001);
    }

    #[test]
    fn places_are_exact_and_cores_take_turns() {
        let meter = Meter::default();
        assert!(meter.take_place(2) && meter.take_place(2) && !meter.take_place(2));
        for core in [0, 3, 255] {
            meter.wait(ShardIndex(core));
        }
        assert!(meter.others_wait(ShardIndex(0)));
        let next = |own| meter.next_waiting(ShardIndex(own)).map(|core| core.0);
        assert_eq!((next(3), next(0), next(3), next(3)), (Some(255), Some(3), Some(0), None));
        meter.wait(ShardIndex(7));
        assert!(meter.is_waiting(ShardIndex(7)) && !meter.others_wait(ShardIndex(7)));
        meter.stop_waiting(ShardIndex(7));
        assert!(!meter.is_waiting(ShardIndex(7)));
        meter.give_back(2);
        meter.add_places(5);
        assert_eq!(meter.places(), 5);
    }

    #[test]
    fn a_rule_for_the_port_goes_before_that_for_the_host() {
        let rule = |max| Rule { max_in_flight: Some(max), ..Rule::default() };
        let rules = [("b.example", 1), ("b.example:81", 2), ("[::1]", 3), ("[::1]:80", 4)];
        let rules = rules.map(|(name, max)| (name.to_owned(), rule(max)));
        let table = DestinationTable::new(rules, &DestinationTable::default());
        let max_of = |name| table.place_for(name).map(|at| table.all()[at].rule.max_in_flight);
        assert_eq!(max_of("b.example:81"), Some(Some(2)));
        assert_eq!(max_of("b.example:80"), Some(Some(1)));
        assert_eq!((max_of("[::1]:80"), max_of("[::1]:81")), (Some(Some(4)), Some(Some(3))));
        assert_eq!(max_of("a.example:80"), None);
    }

    #[test]
    fn what_is_used_goes_on_when_rules_change() {
        let rule = Rule { per_1000_s: Some(1_000), ..Rule::default() };
        let first = DestinationTable::new([("a".into(), rule)], &DestinationTable::default());
        assert!(first.all()[0].meter.take_place(1));
        let at = MonoNs(MS * MS);
        first.all()[0].meter.reserve(at, 1_000 * MS);
        let same = DestinationTable::new([("a".into(), rule), ("b".into(), rule)], &first);
        assert_eq!(same.all()[0].meter.places(), 1);
        assert!(same.all()[0].meter.reserve(at, MS) > at);
        let faster = Rule { per_1000_s: Some(9_000), ..rule };
        let other = DestinationTable::new([("a".into(), faster)], &same);
        assert!(other.all()[0].meter.reserve(at, MS) <= at, "the rate begins anew");
        assert_eq!(other.all()[0].meter.places(), 1);
    }
}
