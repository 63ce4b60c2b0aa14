//! Which names are looked up, in which order, and for how long a failure is remembered. This module
//! only decides: threads and clocks are the resolver's.
//!
//! A lookup may hang for as long as the system lets it, so names compete for places for lookups.
//! Two rules keep one user's names from troubling other users:
//!
//! - Names that were resolved before have places of their own: they never wait behind other names.
//! - Places go by turns to *groups*: names that share their last two labels, which is as far as a
//!   name tells users apart. No group has more than its share of the places. When too many names
//!   wait, the largest group loses one.

// May panic: expectations 2, indices 10.
// Why it does not: found 1, fixed 4, ordered 7.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::base::time::MonoNs;

/// Most names of either class that wait. Above it the largest group loses its newest name.
const WAITING_MAX: usize = 8_192;
/// How many names are remembered as resolved, and how many as failing: at least this many, at most
/// twice as many.
const REMEMBERED_MAX: usize = 16_384;
/// How long in ms a name that failed is not looked up again. Every further failure doubles it.
const PAUSE_FIRST_MS: u64 = 1_000;
/// How long in ms a name waits for a place, at most. An attempt has 2 s, so it hears in time that
/// the lack is this node's.
const WAIT_MS_MAX: u64 = 1_500;
/// Most doublings: 32 s.
const DOUBLINGS_MAX: u32 = 5;

/// Classes of names. Each class has places of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Names that were resolved before, or that the operator wrote.
    Known = 0,
    /// All other names.
    Unknown = 1,
}

/// A name that askers wait for.
struct Open<A> {
    askers: Vec<A>,
    class: Class,
    is_running: bool,
    /// Since when the name has been waiting.
    since: MonoNs,
}

/// How often a name failed, and when it failed last.
#[derive(Clone, Copy)]
struct Failing {
    times: u32,
    last: MonoNs,
}

/// The names of a node. `A` names an asker.
pub struct Names<A> {
    known: Remembered<()>,
    failing: Remembered<Failing>,
    open: HashMap<Arc<str>, Open<A>>,
    turns: [Turns; 2],
    /// Names in the order in which they were asked for, to find those that wait for too long.
    ages: VecDeque<(MonoNs, Arc<str>)>,
    refused: Vec<(A, Why)>,
}

/// Why an asker is told of no address without a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The name has just failed.
    Failed,
    /// Too many names wait, or this one has waited for too long: this node has no place for it.
    Lack,
}

impl<A> Names<A> {
    /// No names yet. `places` is the number of lookups at once; a quarter of them is for known
    /// names.
    pub fn new(places: usize) -> Self {
        let known = (places / 4).max(1);
        Self {
            known: Remembered::new(),
            failing: Remembered::new(),
            open: HashMap::new(),
            turns: [Turns::new(known), Turns::new(places.saturating_sub(known).max(1))],
            ages: VecDeque::new(),
            refused: Vec::new(),
        }
    }

    /// Asks for a name in lower case. [`Names::looked_up`] or [`Names::refused`] returns the asker.
    /// `is_trusted` says that the operator wrote the name.
    pub fn ask(&mut self, now: MonoNs, name: &str, is_trusted: bool, asker: A) {
        let failing = self.failing.get(name).copied();
        if let Some(open) = self.open.get_mut(name) {
            open.askers.push(asker);
            if !is_trusted || open.is_running || open.class == Class::Known {
                return;
            }
            // The name's entry among the unknown names is passed over when its turn comes.
            open.class = Class::Known;
        } else {
            let pause_ms = |failing: Failing| match is_trusted {
                true => PAUSE_FIRST_MS,
                false => PAUSE_FIRST_MS << (failing.times - 1).min(DOUBLINGS_MAX),
            };
            if failing.is_some_and(|failing| now < failing.last.plus_ms(pause_ms(failing))) {
                return self.refused.push((asker, Why::Failed));
            }
            let is_known = is_trusted || self.known.get(name).is_some();
            let class = if is_known { Class::Known } else { Class::Unknown };
            let open = Open { askers: vec![asker], class, is_running: false, since: now };
            let name: Arc<str> = name.into();
            self.ages.push_back((now, name.clone()));
            self.open.insert(name, open);
        }
        let class = self.open[name].class;
        let lost = self.turns[class as usize].wait(name.into(), failing.is_some());
        let is_lost = |open: &Open<A>| open.class == class && !open.is_running;
        if let Some(lost) = lost.filter(|lost| self.open.get(lost).is_some_and(is_lost)) {
            self.lose(&lost);
        }
    }

    /// Tells those who asked for a name that there is no place for it.
    fn lose(&mut self, name: &str) {
        let askers = self.open.remove(name).into_iter().flat_map(|open| open.askers);
        self.refused.extend(askers.map(|asker| (asker, Why::Lack)));
    }

    /// Ends the waiting of names that have waited for too long. Their places among those that wait
    /// are passed over when their turns come.
    pub fn expire(&mut self, now: MonoNs) {
        while let Some((since, name)) = self.ages.front()
            && now >= since.plus_ms(WAIT_MS_MAX)
        {
            let is_waiting = |open: &Open<A>| !open.is_running && open.since == *since;
            let name = name.clone();
            let is_late = self.open.get(&name).is_some_and(is_waiting);
            self.ages.pop_front();
            if is_late {
                self.lose(&name);
            }
        }
    }

    /// When [`Names::expire`] should next be called.
    pub fn next_wake(&self) -> Option<MonoNs> {
        self.ages.front().map(|(since, _)| since.plus_ms(WAIT_MS_MAX))
    }

    /// Returns the next name to be looked up, if there is a place for it.
    pub fn next(&mut self) -> Option<Arc<str>> {
        for class in [Class::Known, Class::Unknown] {
            while let Some(name) = self.turns[class as usize].take() {
                match self.open.get_mut(&name) {
                    Some(open) if open.class == class && !open.is_running => {
                        open.is_running = true;
                        return Some(name);
                    }
                    _ => self.turns[class as usize].give_back(&name),
                }
            }
        }
        None
    }

    /// Tells that a lookup has ended. Returns all who asked for the name.
    pub fn looked_up(&mut self, now: MonoNs, name: &Arc<str>, is_found: bool) -> Vec<A> {
        if is_found {
            self.failing.remove(name);
            self.known.insert(name.clone(), ());
        } else {
            let before = self.failing.get(name).map_or(0, |failing| failing.times);
            self.failing.insert(name.clone(), Failing { times: before + 1, last: now });
            self.known.remove(name);
        }
        let Some(open) = self.open.remove(name) else { return Vec::new() };
        self.turns[open.class as usize].give_back(name);
        open.askers
    }

    /// Returns the next asker to be told at once that there is no address, and why.
    pub fn refused(&mut self) -> Option<(A, Why)> {
        self.refused.pop()
    }
}

/// The names of one group.
#[derive(Default)]
struct Group {
    /// Names that are not remembered as failing. They go first.
    fresh: VecDeque<Arc<str>>,
    /// Names that are remembered as failing.
    failed: VecDeque<Arc<str>>,
    /// How many places the group has.
    running: usize,
}

impl Group {
    fn waiting(&self) -> usize {
        self.fresh.len() + self.failed.len()
    }
}

/// Decides which name gets the next place of a class.
struct Turns {
    places: usize,
    /// Most places of one group.
    share: usize,
    running: usize,
    waiting: usize,
    groups: HashMap<Arc<str>, Group>,
    /// Groups with names that wait. The group whose turn it is stands first.
    order: VecDeque<Arc<str>>,
    by_size: BTreeSet<(usize, Arc<str>)>,
}

impl Turns {
    fn new(places: usize) -> Self {
        Self {
            places,
            share: places.div_ceil(4),
            running: 0,
            waiting: 0,
            groups: HashMap::new(),
            order: VecDeque::new(),
            by_size: BTreeSet::new(),
        }
    }

    /// Lets a name wait. When too many wait, returns the name that no longer does: the newest of
    /// the largest group, which may be this name's group.
    fn wait(&mut self, name: Arc<str>, has_failed: bool) -> Option<Arc<str>> {
        let group = group_of(&name);
        let key = match self.groups.get_key_value(group) {
            Some((key, _)) => key.clone(),
            None => Arc::from(group),
        };
        let entry = self.groups.entry(key.clone()).or_default();
        if entry.waiting() == 0 {
            self.order.push_back(key.clone());
        }
        self.by_size.remove(&(entry.waiting(), key.clone()));
        if has_failed {
            entry.failed.push_back(name)
        } else {
            entry.fresh.push_back(name)
        }
        let size = entry.waiting();
        self.by_size.insert((size, key.clone()));
        self.waiting += 1;
        if self.waiting <= WAITING_MAX {
            return None;
        }
        let largest = self.by_size.last().filter(|(other, _)| *other > size);
        let loser = largest.map_or(key, |(_, group)| group.clone());
        let newest = |group: &mut Group| group.failed.pop_back().or_else(|| group.fresh.pop_back());
        let lost = self.remove(&loser, newest);
        if self.groups[&loser].waiting() == 0 {
            // A group larger than another has several names. So the emptied group is the one that
            // has just come.
            self.order.pop_back();
            self.forget_if_empty(&loser);
        }
        lost
    }

    /// Gives a place to the next name and returns it.
    fn take(&mut self) -> Option<Arc<str>> {
        if self.running == self.places {
            return None;
        }
        // Only a few groups can have their whole share at once, so few are passed over.
        let has_room = |group: &Arc<str>| self.groups[group].running < self.share;
        let at = self.order.iter().position(has_room)?;
        self.order.rotate_left(at);
        let key = self.order.pop_front()?;
        let oldest =
            |group: &mut Group| group.fresh.pop_front().or_else(|| group.failed.pop_front());
        let taken = self.remove(&key, oldest);
        let group = self.groups.get_mut(&key).expect("a group whose turn it is has names");
        group.running += 1;
        self.running += 1;
        if group.waiting() > 0 {
            self.order.push_back(key);
        }
        taken
    }

    /// Takes back the place of a name.
    fn give_back(&mut self, name: &str) {
        self.running -= 1;
        let group = group_of(name);
        let entry = self.groups.get_mut(group).expect("a group stays while it has a place");
        entry.running -= 1;
        self.forget_if_empty(group);
    }

    fn forget_if_empty(&mut self, group: &str) {
        if self.groups[group].waiting() == 0 && self.groups[group].running == 0 {
            self.groups.remove(group);
        }
    }

    /// Takes a waiting name out of a group.
    fn remove(
        &mut self,
        key: &Arc<str>,
        take: impl FnOnce(&mut Group) -> Option<Arc<str>>,
    ) -> Option<Arc<str>> {
        let group = self.groups.get_mut(key)?;
        self.by_size.remove(&(group.waiting(), key.clone()));
        let taken = take(group)?;
        self.waiting -= 1;
        if group.waiting() > 0 {
            self.by_size.insert((group.waiting(), key.clone()));
        }
        Some(taken)
    }
}

/// Returns the last two labels of a name. All names of a single label are one group.
fn group_of(name: &str) -> &str {
    let mut dots = name.trim_end_matches('.').rmatch_indices('.');
    match (dots.next(), dots.next()) {
        (None, _) => "",
        (Some(_), None) => name,
        (Some(_), Some((second, _))) => &name[second + 1..],
    }
}

/// The names used last, without a list of their order. When enough are remembered they become the
/// former names. A former name that is not asked for until the next change is forgotten.
pub struct Remembered<T> {
    present: HashMap<Arc<str>, T>,
    former: HashMap<Arc<str>, T>,
}

impl<T> Remembered<T> {
    pub fn new() -> Self {
        Self { present: HashMap::new(), former: HashMap::new() }
    }

    pub fn get(&mut self, name: &str) -> Option<&T> {
        if let Some((name, value)) = self.former.remove_entry(name) {
            self.insert(name, value);
        }
        self.present.get(name)
    }

    pub fn insert(&mut self, name: Arc<str>, value: T) {
        self.former.remove(&name);
        if self.present.len() >= REMEMBERED_MAX && !self.present.contains_key(&name) {
            self.former = std::mem::take(&mut self.present);
        }
        self.present.insert(name, value);
    }

    fn remove(&mut self, name: &str) {
        self.present.remove(name);
        self.former.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 16;

    fn at(ms: u64) -> MonoNs {
        MonoNs(0).plus_ms(ms)
    }

    /// Names whose askers are numbers.
    fn names() -> Names<u32> {
        Names::new(PLACES)
    }

    fn started(names: &mut Names<u32>) -> Vec<Arc<str>> {
        std::iter::from_fn(|| names.next()).collect()
    }

    fn refused(names: &mut Names<u32>) -> Vec<u32> {
        std::iter::from_fn(|| names.refused()).map(|(asker, _)| asker).collect()
    }

    /// Resolves all names that are asked for.
    fn learn_all(names: &mut Names<u32>) {
        for name in started(names) {
            names.looked_up(at(0), &name, true);
        }
    }

    /// Resolves a name once, so that it is known.
    fn learn(names: &mut Names<u32>, name: &str) {
        names.ask(at(0), name, false, 0);
        let started = started(names);
        assert_eq!(started, [Arc::from(name)]);
        assert_eq!(names.looked_up(at(0), &started[0], true), [0]);
    }

    #[test]
    fn a_name_is_looked_up_once_for_all_who_ask() {
        let mut names = names();
        names.ask(at(0), "a.example", false, 1);
        names.ask(at(0), "a.example", false, 2);
        let name: Arc<str> = "a.example".into();
        assert_eq!(started(&mut names), std::slice::from_ref(&name));
        names.ask(at(0), "a.example", false, 3);
        assert_eq!(started(&mut names), []);
        assert_eq!(names.looked_up(at(1), &name, true), [1, 2, 3]);
        names.ask(at(2), "a.example", false, 4);
        assert_eq!(
            started(&mut names),
            std::slice::from_ref(&name),
            "asked again, looked up again"
        );
        assert_eq!(names.looked_up(at(2), &name, true), [4]);
    }

    /// A name that waits behind names that hang is told that this node lacks a place for it. A name
    /// that is looked up is not: its server is silent.
    #[test]
    fn a_name_that_gets_no_place_in_time_is_a_lack_of_this_node() {
        let mut names = names();
        for number in 0..PLACES as u32 {
            names.ask(at(0), &format!("n.g{number}"), false, number);
        }
        let running = started(&mut names).len() as u32;
        assert_eq!(names.next_wake(), Some(at(WAIT_MS_MAX)));
        names.expire(at(WAIT_MS_MAX - 1));
        assert_eq!(names.refused(), None);
        names.expire(at(WAIT_MS_MAX));
        let mut lost: Vec<_> = std::iter::from_fn(|| names.refused()).collect();
        lost.sort_by_key(|(asker, _)| *asker);
        let expected: Vec<_> = (running..PLACES as u32).map(|asker| (asker, Why::Lack)).collect();
        assert_eq!((lost, names.next_wake()), (expected, None));
        // Its former place is passed over, and it is looked up once.
        names.ask(at(2_000), &format!("n.g{running}"), false, 7);
        assert_eq!(names.looked_up(at(2_000), &"n.g0".into(), true), [0]);
        assert_eq!(started(&mut names), [Arc::from(format!("n.g{running}"))]);
    }

    #[test]
    fn names_that_hang_leave_known_names_their_places() {
        let mut names = names();
        learn(&mut names, "good.example");
        for at_ms in 0..5_000 {
            names.ask(at(at_ms), &format!("n{at_ms}.silent.example"), false, 0);
        }
        assert!(!started(&mut names).is_empty());
        names.ask(at(5_000), "good.example", false, 7);
        assert_eq!(started(&mut names), [Arc::from("good.example")]);
        names.ask(at(5_000), "peer.example", true, 8);
        assert_eq!(started(&mut names), [Arc::from("peer.example")], "an operator's is known");
    }

    #[test]
    fn a_known_name_that_fails_gives_its_places_back_to_those_that_do_not() {
        let mut names = names();
        learn(&mut names, "n.example");
        names.ask(at(0), "n.example", false, 1);
        let name = names.next().expect("known");
        names.looked_up(at(0), &name, false);
        // All places for unknown names are taken, and the name waits for one of them.
        for number in 0..PLACES {
            names.ask(at(0), &format!("n.g{number}"), false, 0);
        }
        assert_eq!(started(&mut names).len(), PLACES - PLACES / 4);
        names.ask(at(60_000), "n.example", false, 1);
        assert_eq!(started(&mut names), []);
    }

    #[test]
    fn one_name_of_an_operator_waits_with_the_known() {
        let mut names = names();
        names.ask(at(0), "peer.example", true, 0);
        names.ask(at(0), "client.example", false, 1);
        assert_eq!(names.open["peer.example"].class, Class::Known);
        assert_eq!(names.open["client.example"].class, Class::Unknown);
        learn_all(&mut names);
        names.ask(at(0), "client.example", false, 1);
        assert_eq!(names.open["client.example"].class, Class::Known);
    }

    #[test]
    fn names_are_remembered_beside_each_other() {
        let mut names = names();
        let all = ["a.example", "b.example", "c.example", "d.example"];
        all.iter().for_each(|name| learn(&mut names, name));
        assert!(all.iter().all(|name| names.known.get(name).is_some()));
        assert_eq!((names.known.present.len(), names.known.former.len()), (4, 0));
    }

    #[test]
    fn a_group_is_the_last_two_labels() {
        for (name, group) in [
            ("single", ""),
            ("single.", ""),
            ("other.example", "other.example"),
            ("a.other.example", "other.example"),
            ("b.a.other.example", "other.example"),
        ] {
            assert_eq!(group_of(name), group, "{name}");
        }
    }

    #[test]
    fn no_group_has_more_than_its_share() {
        let mut names = names();
        for number in 0..100 {
            names.ask(at(0), &format!("n{number}.a.silent.example"), false, 0);
        }
        let of_one = started(&mut names).len();
        assert_eq!(of_one, (PLACES - PLACES / 4).div_ceil(4));
        names.ask(at(0), "new.other.example.org", false, 1);
        assert_eq!(started(&mut names), [Arc::from("new.other.example.org")]);
    }

    #[test]
    fn groups_take_turns_for_places() {
        let mut names = names();
        for group in 0..4 {
            for number in 0..50 {
                names.ask(at(0), &format!("n{number}.g{group}.example"), false, 0);
            }
        }
        let running = started(&mut names);
        assert_eq!(running.len(), PLACES - PLACES / 4, "all places are taken");
        names.ask(at(0), "late.other.example", false, 1);
        names.ask(at(0), "late.else.example.", false, 1);
        names.ask(at(0), "single", false, 1);
        names.ask(at(0), "n.xexample", false, 1);
        // The names share `other.example` and so on, not `example`. Four turns of other groups come
        // before them, not 188 names.
        let mut next = Vec::new();
        for name in &running {
            names.looked_up(at(0), name, false);
            next.extend(started(&mut names));
        }
        for late in ["late.other.example", "late.else.example.", "single", "n.xexample"] {
            assert!(next[..8].iter().any(|name| &**name == late), "{late}: {next:?}");
        }
    }

    #[test]
    fn a_failure_is_remembered_for_a_growing_time() {
        let mut names = names();
        let mut now = 0;
        for pause_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000] {
            names.ask(at(now), "n.example", false, 1);
            let name = names.next().expect("its pause is over");
            assert_eq!(names.looked_up(at(now), &name, false), [1]);
            names.ask(at(now + pause_ms - 1), "n.example", false, 2);
            assert_eq!((refused(&mut names), names.next()), (vec![2], None));
            now += pause_ms;
        }
        names.ask(at(now), "n.example", false, 1);
        let name = names.next().expect("its pause is over");
        names.looked_up(at(now), &name, true);
        names.ask(at(now), "n.example", false, 1);
        names.next().expect("a success ends it");
        names.looked_up(at(now), &name, false);
        names.ask(at(now + 1_000), "n.example", false, 1);
        assert!(names.next().is_some(), "and the next failure is the first again");
    }

    #[test]
    fn what_an_operator_wrote_is_asked_for_every_second() {
        let mut names = names();
        for second in 0..10 {
            names.ask(at(second * 1_000), "peer.example", true, 1);
            let name = names.next().expect("looked up again");
            names.looked_up(at(second * 1_000), &name, false);
        }
    }

    #[test]
    fn a_name_that_waits_among_the_unknown_is_known_when_an_operator_wrote_it() {
        let mut names = names();
        for number in 0..PLACES * 2 {
            names.ask(at(0), &format!("n.g{number}"), false, 0);
        }
        let running = started(&mut names);
        names.ask(at(0), "peer.example", false, 1);
        assert_eq!(started(&mut names), []);
        names.ask(at(0), "peer.example", true, 2);
        let name: Arc<str> = "peer.example".into();
        assert_eq!(started(&mut names), std::slice::from_ref(&name));
        assert_eq!(names.looked_up(at(0), &name, true), [1, 2]);
        let mut rest = running.len();
        for name in running {
            names.looked_up(at(0), &name, false);
        }
        loop {
            let more = started(&mut names);
            rest += more.len();
            if more.is_empty() {
                break;
            }
            for name in more {
                assert_ne!(&*name, "peer.example", "its former place is passed over");
                names.looked_up(at(0), &name, false);
            }
        }
        assert_eq!(rest, PLACES * 2);
    }

    /// An asker for a name that is asked for already waits with the former askers. Only an
    /// operator's asker moves the name, only from the unknown names, and only while the name waits.
    #[test]
    fn a_name_that_is_asked_for_again_keeps_its_place() {
        for (is_running, was_trusted, is_trusted, class) in [
            (false, false, false, Class::Unknown),
            (true, false, false, Class::Unknown),
            (true, false, true, Class::Unknown),
            (false, false, true, Class::Known),
            (false, true, true, Class::Known),
        ] {
            let mut names = names();
            names.ask(at(0), "n.example", was_trusted, 1);
            if is_running {
                assert_eq!(started(&mut names).len(), 1);
            }
            let waiting = |names: &Names<u32>| [0, 1].map(|class| names.turns[class].waiting);
            let mut before = waiting(&names);
            names.ask(at(0), "n.example", is_trusted, 2);
            assert_eq!(names.open["n.example"].class, class, "{is_running} {is_trusted}");
            // The name keeps its former place, in which it is passed over.
            before[Class::Known as usize] += usize::from(class == Class::Known && !was_trusted);
            assert_eq!(waiting(&names), before, "{is_running} {is_trusted}");
            assert_eq!(started(&mut names).len(), usize::from(!is_running));
            let name = Arc::from("n.example");
            assert_eq!(names.looked_up(at(0), &name, true), [1, 2]);
        }
    }

    #[test]
    fn when_too_many_wait_the_largest_group_loses_its_newest() {
        let mut names = names();
        for number in 0..WAITING_MAX as u32 - 1 {
            names.ask(at(0), &format!("n{number}.silent.example"), false, number);
        }
        names.ask(at(0), "a.other.example", false, 1_000_000);
        assert!(refused(&mut names).is_empty());
        names.ask(at(0), "b.other.example", false, 1_000_001);
        assert_eq!(refused(&mut names), [WAITING_MAX as u32 - 2]);
        names.ask(at(0), "late.silent.example", false, 1_000_002);
        assert_eq!(
            refused(&mut names),
            [1_000_002],
            "the newcomer, where its group is the largest"
        );
        let all = started(&mut names);
        assert!(all.contains(&"a.other.example".into()) && all.contains(&"b.other.example".into()));
        assert!(names.turns.iter().all(|turns| turns.by_size.len() == turns.order.len()));
    }

    /// The name loses its former place among the unknown names, not its present place.
    #[test]
    fn a_name_that_an_operator_has_written_since_is_not_lost_with_its_former_place() {
        let mut names = names();
        for number in 1..WAITING_MAX as u32 {
            names.ask(at(0), &format!("n{number}.silent.example"), false, number);
        }
        names.ask(at(0), "peer.silent.example", false, 0);
        names.ask(at(0), "peer.silent.example", true, 0);
        names.ask(at(0), "n.other.example", false, 0);
        assert!(refused(&mut names).is_empty());
        let name: Arc<str> = "peer.silent.example".into();
        assert_eq!(names.next(), Some(name.clone()));
        assert_eq!(names.looked_up(at(0), &name, true), [0, 0]);
    }

    #[test]
    fn a_newcomer_of_its_own_group_is_lost_where_all_are_as_small() {
        let mut names = names();
        for number in 0..WAITING_MAX as u32 {
            names.ask(at(0), &format!("n.g{number}"), false, number);
        }
        names.ask(at(0), "a.a", false, 1_000_000);
        assert_eq!(refused(&mut names), [1_000_000]);
        let turns = &names.turns[Class::Unknown as usize];
        assert_eq!((turns.groups.len(), turns.order.len()), (WAITING_MAX, WAITING_MAX));
        assert_eq!(turns.waiting, WAITING_MAX);
    }

    #[test]
    fn nothing_is_kept_of_names_that_are_done() {
        let mut names = names();
        for round in 0..3 {
            for number in 0..300 {
                names.ask(at(round * 100_000), &format!("n{number}.g{}", number % 7), false, 0);
            }
            loop {
                let running = started(&mut names);
                if running.is_empty() {
                    break;
                }
                for name in running {
                    names.looked_up(at(round * 100_000), &name, name.len() % 2 == 0);
                }
            }
        }
        assert!(names.open.is_empty());
        for turns in &names.turns {
            assert_eq!((turns.running, turns.waiting), (0, 0));
            assert!(turns.groups.is_empty() && turns.order.is_empty() && turns.by_size.is_empty());
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_used_stays() {
        let mut names = names();
        learn(&mut names, "used.example");
        for number in 0..5 * REMEMBERED_MAX {
            names.ask(at(0), &format!("n{number}.example"), false, 0);
            let name = names.next().expect("one at a time");
            names.looked_up(at(0), &name, number % 2 == 0);
            assert!(names.known.get("used.example").is_some());
        }
        let sizes = |present: usize, former: usize| {
            assert!(present <= REMEMBERED_MAX && former <= REMEMBERED_MAX);
        };
        sizes(names.known.present.len(), names.known.former.len());
        sizes(names.failing.present.len(), names.failing.former.len());
    }
}
