//! The timer wheel: three doubled levels. The next coarse bucket is drained a little per tick.
//!
//! A bucket of level 0 holds one tick, a bucket of level 1 a *window* of g0 ticks, a bucket of
//! level 2 a window of g0 x g1 ticks. Each level is twice as long as one bucket of the level above:
//! it covers the present window and the whole next window. So while the present window turns, every
//! tick moves its share of the bucket above that holds the next window, and no tick ever empties a
//! whole bucket. A slot beyond the last level waits in the farthest bucket of that level, and is
//! filed again when that bucket comes. So there is no longest delay.
//!
//! The wheel knows slots and ticks only. It never asks for the time, never pops a slot before its
//! tick, and does a bounded amount of work per call, however long the pause before the call.

// May panic: assertions 7, indices 20.
// Why it does not: fixed 19, listed 8.

use super::links::{DUE_MAX, Links, NIL, Neighbours, PLACE_FIFO, PLACE_NONE};
use super::occupancy::Occupancy;
use crate::base::ids::Slot;
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Tick, earlier};

/// Most entries that one step moves in a drain that is behind or that skips ticks, unless the share
/// of one tick is more. 512 x 100 ns (three cache misses) are 50 us.
const STEP_MOVES_MAX: u64 = 512;
/// Entries moved after which a call that is behind returns to its caller: about 0.2 ms.
const CALL_MOVES_MAX: u64 = 2048;
/// Longest sleep while a bucket is being drained, in ticks. The shares of the skipped ticks add up,
/// and at most 64 are done at once.
const DRAIN_SLEEP_TICKS_MAX: u64 = 64;

/// Buckets per level before doubling, finest level first, each a power of two. A node uses 4096 /
/// 1024 / 1024 with ticks of 1 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry(pub [u32; 3]);

impl Geometry {
    /// Buckets of 1 ms, ~4.1 s and ~70 min. The last level turns once in 99 days.
    pub const PRODUCTION: Geometry = Geometry([4096, 1024, 1024]);
    /// A geometry so small that the simulator meets every edge.
    pub const TINY: Geometry = Geometry([16, 8, 4]);
}

/// How far [`Wheel::advance`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advanced {
    /// Whether the wheel stands at the wanted tick and holds no slot that is due. False: the bound
    /// on due slots or on moved entries was reached, and the caller must call again.
    pub caught_up: bool,
    /// How many entries were moved without being popped (drained or filed again).
    pub moved: u64,
}

/// One ring of buckets.
struct Level {
    /// Number of this level's first bucket among the buckets of all levels.
    first: usize,
    /// The number of buckets less one.
    mask: u64,
    /// A bucket spans `1 << shift` ticks.
    shift: u32,
    occupied: Occupancy,
}

impl Level {
    /// The position in the ring of the bucket of a window.
    #[inline]
    fn at(&self, window: u64) -> usize {
        (window & self.mask) as usize
    }
}

/// The wheel of one shard. The wheel has list heads and occupancy bitmaps; the entries live in
/// [`Links`]. Only one wheel may use a `Links`.
pub struct Wheel {
    levels: [Level; 3],
    /// The first slot of every bucket, of all levels.
    heads: Box<[u32]>,
    /// How many entries every bucket of levels 1 and 2 has. The shares of a drain are computed from
    /// these.
    coarse_lens: Box<[u32]>,
    /// Every slot due before this tick is popped, and this tick's share of draining is done.
    tick: u64,
    len: u64,
    bytes: usize,
}

impl Wheel {
    /// An empty wheel that stands at `now`. A slot due at `now` or before pops at the next advance.
    /// Panics if a level has no power of two of buckets, or if there are too many buckets.
    pub fn new(geometry: Geometry, now: Tick) -> Self {
        let [g0, g1, g2] = geometry.0.map(|slots| {
            assert!(slots.is_power_of_two() && slots >= 2, "a level has 2, 4, 8 ... slots");
            slots as usize
        });
        let buckets = 2 * (g0 + g1 + g2);
        assert!(buckets < usize::from(PLACE_FIFO), "a place names a bucket in 16 bits");
        assert!(now.0 <= DUE_MAX, "the clock stands behind the last tick");
        let level = |first, slots: usize, shift| Level {
            first,
            mask: 2 * slots as u64 - 1,
            shift,
            occupied: Occupancy::new(2 * slots),
        };
        let levels = [
            level(0, g0, 0),
            level(2 * g0, g1, g0.ilog2()),
            level(2 * (g0 + g1), g2, g0.ilog2() + g1.ilog2()),
        ];
        let (heads, coarse_lens) = (vec![NIL; buckets], vec![0; buckets - 2 * g0]);
        let bitmaps: usize = levels.iter().map(|level| level.occupied.bytes()).sum();
        Self {
            bytes: bitmaps + (heads.len() + coarse_lens.len()) * size_of::<u32>(),
            levels,
            heads: heads.into(),
            coarse_lens: coarse_lens.into(),
            tick: now.0,
            len: 0,
        }
    }

    /// Files a slot. Panics if the slot is in a list. A slot whose due tick has passed pops at the
    /// next advance. There is no longest delay (ticks from 2^48 ms, 8 900 years, on count as that
    /// tick). Constant work.
    #[inline]
    pub fn insert(&mut self, links: &mut Links, slot: Slot, due: Tick) {
        let early = if is_planted(Bug::FileTwoAhead) { 2 } else { 0 };
        self.file(links, slot, due.0.saturating_sub(early));
        self.len += 1;
    }

    /// Changes the due tick of a slot in the wheel. Panics if the slot is not in the wheel. A later
    /// tick is only written down; the slot is filed again when its old bucket comes. Constant work.
    #[inline]
    pub fn rearm(&mut self, links: &mut Links, slot: Slot, due: Tick) {
        let (old_due, place) = links.due_and_place(slot);
        bucket_of(place, slot);
        if due.0 >= old_due {
            links.set_due(slot, due.0);
        } else {
            self.unfile(links, slot, place);
            self.file(links, slot, due.0);
        }
    }

    /// Files a slot that is in no list, or changes the due tick of a slot in the wheel. Panics if
    /// the slot is in another list. Constant work.
    #[inline]
    pub fn put(&mut self, links: &mut Links, slot: Slot, due: Tick) {
        match links.place(slot) {
            PLACE_NONE => self.insert(links, slot, due),
            _ => self.rearm(links, slot, due),
        }
    }

    /// Takes a slot out of the wheel. Panics if the slot is not in the wheel. Constant work.
    #[inline]
    pub fn remove(&mut self, links: &mut Links, slot: Slot) {
        let place = links.place(slot);
        self.unfile(links, slot, place);
        self.len -= 1;
    }

    /// The due tick of a slot in the wheel, as it was given last. Panics if the slot is not in the
    /// wheel.
    #[inline]
    pub fn due(&self, links: &Links, slot: Slot) -> Tick {
        let (due, place) = links.due_and_place(slot);
        bucket_of(place, slot);
        Tick(due)
    }

    /// Turns to `now`, never back, and appends at most `due_max` due slots to `due`. These slots
    /// are in no list afterwards. The oldest tick comes first; a slot that was filed late counts
    /// with the tick at which the wheel stood.
    ///
    /// Cost: the popped slots, and at most about 2 048 moved entries, or the share of a single tick
    /// if that is more. When a bound is reached, the wheel stays where it is and `caught_up` is
    /// false, perhaps with nothing popped. Then the caller must call again, at the latest in its
    /// next turn. Empty stretches are skipped, not walked.
    pub fn advance(
        &mut self,
        links: &mut Links,
        now: Tick,
        due_max: usize,
        due: &mut Vec<Slot>,
    ) -> Advanced {
        assert!(now.0 <= DUE_MAX, "the clock stands behind the last tick");
        let target = now.0.max(self.tick);
        let due_len_max = due.len().saturating_add(due_max);
        let mut moved = 0;
        loop {
            let bucket_done = self.pop_tick(links, due_len_max, &mut moved, due);
            if bucket_done && self.tick == target {
                return Advanced { caught_up: true, moved };
            }
            if !bucket_done || moved >= CALL_MOVES_MAX {
                return Advanced { caught_up: false, moved };
            }
            let next = self.next_event(u64::MAX).map_or(target, |next| next.min(target));
            moved += self.turn_to(links, next);
        }
    }

    /// When `advance` should be called next; `None`: the wheel is empty. Never later than the
    /// earliest due tick. Earlier while a bucket is being drained: every 64 ticks, or more often if
    /// the shares of 64 ticks would be a large step. Cost: three looks into bitmaps, about ten
    /// words.
    #[inline]
    pub fn next_wake(&self) -> Option<Tick> {
        if self.heads[self.levels[0].at(self.tick)] != NIL {
            return Some(Tick(self.tick));
        }
        self.next_event(DRAIN_SLEEP_TICKS_MAX).map(Tick)
    }

    /// The tick at which the wheel stands. No slot that is due before this tick is left.
    #[inline]
    pub fn stands_at(&self) -> Tick {
        Tick(self.tick)
    }

    /// How many slots are in the wheel.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the wheel has no slot.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, without the links.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pops the slots that are due at the tick where the wheel stands, and files slots again whose
    /// due tick is later. True: the bucket is empty.
    #[inline]
    fn pop_tick(
        &mut self,
        links: &mut Links,
        due_len_max: usize,
        moved: &mut u64,
        due: &mut Vec<Slot>,
    ) -> bool {
        let bucket = self.levels[0].at(self.tick);
        loop {
            let head = self.heads[bucket];
            if head == NIL {
                return true;
            }
            let slot = Slot(head);
            let (due_tick, place) = links.due_and_place(slot);
            if due_tick > self.tick {
                if *moved >= CALL_MOVES_MAX {
                    return false;
                }
                self.unfile(links, slot, place);
                self.file(links, slot, due_tick);
                *moved += 1;
            } else {
                if due.len() >= due_len_max {
                    return false;
                }
                self.unfile(links, slot, place);
                self.len -= 1;
                due.push(slot);
            }
        }
    }

    /// The first tick with something to pop or to drain. The bucket of the present tick must be
    /// empty. A drain that is going on may skip at most `sleep_max` ticks, and only as many as make
    /// no large step.
    #[inline]
    fn next_event(&self, sleep_max: u64) -> Option<u64> {
        let [finest, middle, coarsest] = &self.levels;
        let due = finest.occupied.distance_from(finest.at(self.tick));
        let due = due.map(|distance| self.tick + distance);
        let (sooner, later) =
            (self.next_drain(middle, sleep_max), self.next_drain(coarsest, sleep_max));
        earlier(due, earlier(sooner, later))
    }

    /// The next tick at which entries of `level` must move down.
    #[inline]
    fn next_drain(&self, level: &Level, sleep_max: u64) -> Option<u64> {
        let window = self.tick >> level.shift;
        let distance = level.occupied.distance_from(level.at(window + 1))?;
        if distance > 0 {
            // The bucket of window `w` is drained while window `w - 1` turns, from the first tick
            // of that window on.
            return Some((window + distance) << level.shift);
        }
        let ticks_left = ((window + 1) << level.shift) - 1 - self.tick;
        if ticks_left == 0 {
            // The last share takes all entries that are left, so this case cannot occur; the next
            // turn asserts that.
            return Some(self.tick + 1);
        }
        let left = self.bucket_len(level, window + 1);
        let step = STEP_MOVES_MAX / left.div_ceil(ticks_left);
        Some(self.tick + step.clamp(1, sleep_max).min(ticks_left))
    }

    /// Turns to `next`, which [`next_event`](Self::next_event) allows, and does the draining of all
    /// ticks up to `next`. Returns how many entries moved.
    fn turn_to(&mut self, links: &mut Links, next: u64) -> u64 {
        let before = self.tick;
        for level in &self.levels[1..] {
            let (old_window, window) = (before >> level.shift, next >> level.shift);
            if window != old_window {
                let distance = level.occupied.distance_from(level.at(old_window + 1));
                assert!(
                    distance.is_none_or(|distance| old_window + distance >= window),
                    "a window begins whose entries are not drained"
                );
            }
        }
        self.tick = next;
        self.drain(links, 2, before) + self.drain(links, 1, before)
    }

    /// Moves down the shares of all ticks after `before` up to the present tick. Returns how many
    /// entries moved.
    fn drain(&mut self, links: &mut Links, level: usize, before: u64) -> u64 {
        let level = &self.levels[level];
        let window = self.tick >> level.shift;
        let left = self.bucket_len(level, window + 1);
        if left == 0 {
            return 0;
        }
        let begin = (window << level.shift).max(before + 1);
        let end = (window + 1) << level.shift;
        let mut share = share_of(left, end - begin, self.tick + 1 - begin);
        if is_planted(Bug::DrainOneTooFew) {
            share = share.saturating_sub(1);
        }
        let bucket = level.first + level.at(window + 1);
        for _ in 0..share {
            let slot = Slot(self.heads[bucket]);
            let (due, place) = links.due_and_place(slot);
            self.unfile(links, slot, place);
            self.file(links, slot, due);
        }
        share
    }

    /// How many entries the bucket of a window of level 1 or 2 has.
    #[inline]
    fn bucket_len(&self, level: &Level, window: u64) -> u64 {
        let coarse = level.first + level.at(window) - self.levels[1].first;
        u64::from(self.coarse_lens[coarse])
    }

    /// Level and ring position for a due tick.
    ///
    /// - An overdue slot goes to the tick where the wheel stands.
    /// - The present window and the next window belong to the finer level.
    /// - A slot beyond the last level waits in the farthest bucket of that level, which is never
    ///   the bucket that is being drained.
    #[inline]
    fn locate(&self, due: u64) -> (usize, usize) {
        let [finest, middle, coarsest] = &self.levels;
        let at = due.max(self.tick);
        let window = at >> middle.shift;
        if window - (self.tick >> middle.shift) <= 1 {
            return (0, finest.at(at));
        }
        let here = self.tick >> coarsest.shift;
        let ahead = (at >> coarsest.shift) - here;
        if ahead <= 1 {
            return (1, middle.at(window));
        }
        (2, coarsest.at(here + ahead.min(coarsest.mask)))
    }

    #[inline]
    fn file(&mut self, links: &mut Links, slot: Slot, due: u64) {
        let due = due.min(DUE_MAX);
        let (level, at) = self.locate(due);
        let bucket = self.levels[level].first + at;
        let head = self.heads[bucket];
        links.attach_front(slot, bucket as u16 + 1, due, head);
        self.heads[bucket] = slot.0;
        if head == NIL {
            self.levels[level].occupied.set(at);
        }
        if level > 0 {
            self.coarse_lens[bucket - self.levels[1].first] += 1;
        }
    }

    #[inline]
    fn unfile(&mut self, links: &mut Links, slot: Slot, place: u16) {
        let bucket = bucket_of(place, slot);
        let Neighbours { prev, next } = links.detach(slot);
        if prev == NIL {
            assert!(self.heads[bucket] == slot.0, "slot {} is in another wheel", slot.0);
            self.heads[bucket] = next;
            if next == NIL {
                let level = self.level_of(bucket);
                level.occupied.clear(bucket - level.first);
            }
        }
        if bucket >= self.levels[1].first {
            self.coarse_lens[bucket - self.levels[1].first] -= 1;
        }
    }

    #[inline]
    fn level_of(&mut self, bucket: usize) -> &mut Level {
        let [finest, middle, coarsest] = &mut self.levels;
        if bucket < middle.first {
            finest
        } else if bucket < coarsest.first {
            middle
        } else {
            coarsest
        }
    }
}

/// The bucket that a place names. Panics if the place is not of the wheel.
#[inline]
fn bucket_of(place: u16, slot: Slot) -> usize {
    assert!(place != PLACE_NONE && place != PLACE_FIFO, "slot {} is not in the wheel", slot.0);
    usize::from(place) - 1
}

/// How many of `left` entries move in `ticks` of `ticks_left` ticks, if every tick moves `ceil(left
/// / ticks left)`: with left = q x ticks_left + r, the first r ticks move q + 1 each and the others
/// q.
#[inline]
fn share_of(left: u64, ticks_left: u64, ticks: u64) -> u64 {
    left / ticks_left * ticks + (left % ticks_left).min(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_single_ticks_and_add_up() {
        for left in 0..40_u64 {
            for ticks_left in 1..20 {
                let mut rest = left;
                for ticks in 1..=ticks_left {
                    rest -= rest.div_ceil(ticks_left + 1 - ticks);
                    assert_eq!(share_of(left, ticks_left, ticks), left - rest);
                }
                assert_eq!(rest, 0);
            }
        }
    }

    #[test]
    #[should_panic(expected = "is not in the wheel")]
    fn removing_twice_stops() {
        let mut links = Links::new();
        links.ensure(Slot(0));
        let mut wheel = Wheel::new(Geometry::TINY, Tick(0));
        wheel.insert(&mut links, Slot(0), Tick(3));
        wheel.remove(&mut links, Slot(0));
        wheel.remove(&mut links, Slot(0));
    }

    #[test]
    fn a_production_wheel_takes_64_kib() {
        let (fine, coarse) = (2 * 4096, 2 * (1024 + 1024));
        let bitmaps = (fine + coarse) / 8 + (128 / 8 + 8 + 8);
        let lists = (fine + 2 * coarse) * 4;
        let bytes = Wheel::new(Geometry::PRODUCTION, Tick(0)).bytes();
        assert_eq!(bytes, bitmaps + lists);
        assert!(bytes <= 68 * 1024);
    }
}
