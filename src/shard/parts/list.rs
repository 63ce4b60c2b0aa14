//! Lists of timers: what a shard has found for pages that follow, and its time for lists.
//!
//! No order of all timers is kept: it would cost every timer memory and every create time. Instead
//! a shard goes through its records, in portions, and keeps the first places of a list from some
//! place on: the *window*. Pages are taken from the window; the next window begins where it ends.

// May panic: indices 10, cuts 1.
// Why it does not: found 11.

use crate::base::ids::Slot;
use crate::base::time::Tick;
use crate::wire::timer_list::Place;

/// Places in a window, at least. Above it the last of them give way: 1 MiB, and as much again while
/// a bucket grows.
pub const WINDOW_MIN: usize = 1 << 16;
/// Places in a window, at most. A window has a quarter of all records, so that a list goes through
/// them four times: with fewer its cost would grow with the square of the records.
const WINDOW_MAX: usize = 1 << 20;
/// Places in all windows above which further windows have [`WINDOW_MIN`]: 32 MiB.
const PLACES_MAX: usize = 2 << 20;
/// Buckets of a window, as a power of two. A full window has some 64 places in each, or more.
const BUCKETS_LOG2: u32 = 10;
/// Windows at a time. Further lists wait until one of them is idle.
pub const WINDOWS_MAX: usize = 16;
/// A window that was not asked for in this time gives way to that of another list.
const IDLE_MS: u64 = 200;
/// A window that was not asked for in this time is given up.
const KEPT_MS: u64 = 60_000;

/// What a shard may do for lists in one tick, in looks at a record of some 10 ns each: half of the
/// time of a core, while somebody asks.
const LOOKS_PER_TICK: u32 = 50_000;

/// The first places of a list from some place on.
#[derive(Debug)]
pub struct Window {
    /// Which list.
    pub walk: u64,
    from: Place,
    /// All places of the list before this one are in the window; `None`: all of them are.
    pub until: Option<Place>,
    /// A bucket has the places of a range of `1 << shift`, from `from` on.
    shift: u32,
    buckets: Vec<Bucket>,
    len: usize,
    len_max: usize,
    /// Where the walk through the records goes on; `None`: the walk is done.
    pub next: Option<Slot>,
    used_at: Tick,
}

/// A place of a list, and the slot where its record was when the window got it.
pub type Entry = (Place, Slot);

#[derive(Debug, Default)]
struct Bucket {
    places: Vec<Entry>,
    is_sorted: bool,
}

impl Window {
    fn new(walk: u64, from: Place, used_at: Tick, len_max: usize) -> Self {
        let mut window = Self {
            walk,
            from,
            until: None,
            shift: 0,
            buckets: Vec::new(),
            len: 0,
            len_max,
            next: Some(Slot(0)),
            used_at,
        };
        window.spread(u64::MAX - from.0);
        window
    }

    /// Makes empty buckets for the places up to `span` behind the first.
    fn spread(&mut self, span: u64) {
        self.shift = (u64::BITS - span.leading_zeros()).saturating_sub(BUCKETS_LOG2);
        self.buckets.clear();
        self.buckets.resize_with((span >> self.shift) as usize + 1, Bucket::default);
    }

    fn bucket_of(&self, place: Place) -> usize {
        ((place.0 - self.from.0) >> self.shift) as usize
    }

    /// Whether a place belongs in the window.
    #[inline]
    pub fn covers(&self, place: Place) -> bool {
        self.from <= place && self.until.is_none_or(|until| place < until)
    }

    /// Takes in a place that the window covers. In a full window the last places give way.
    pub fn insert(&mut self, place: Place, slot: Slot) {
        let bucket = self.bucket_of(place);
        self.buckets[bucket].places.push((place, slot));
        self.buckets[bucket].is_sorted = false;
        self.len += 1;
        while self.len > self.len_max {
            self.drop_last();
        }
    }

    /// Lets the places of the last bucket go. If all places are in one bucket, spreads them over
    /// more buckets instead.
    fn drop_last(&mut self) {
        let is_filled = |bucket: &Bucket| !bucket.places.is_empty();
        let last = self.buckets.iter().rposition(is_filled).unwrap_or(0);
        if last > 0 {
            // From here on the window has nothing.
            self.until = Some(Place(self.from.0 + ((last as u64) << self.shift)));
            self.len -= self.buckets[last].places.len();
            self.buckets.truncate(last);
            return;
        }
        // The last of these buckets gives way next.
        let places = std::mem::take(&mut self.buckets[0].places);
        // A bucket of one place cannot overflow, because each place comes once or twice.
        self.spread(!(u64::MAX << self.shift));
        for entry in places {
            let bucket = self.bucket_of(entry.0);
            self.buckets[bucket].places.push(entry);
        }
    }

    /// Appends the first places of the window from `from` on, at most so many and of one bucket;
    /// none: there are none. Returns how many looks it took to find them.
    pub fn first_from(&mut self, from: Place, found: &mut Vec<Entry>, most: usize) -> u32 {
        let mut looks = 0;
        let first = self.bucket_of(from);
        for (number, bucket) in self.buckets.iter_mut().enumerate().skip(first) {
            looks += 1;
            if !bucket.is_sorted {
                looks += bucket.places.len() as u32;
                bucket.places.sort_unstable();
                bucket.is_sorted = true;
            }
            let places = &bucket.places;
            let is_before = |entry: &Entry| entry.0 < from;
            let at = if number > first { 0 } else { places.partition_point(is_before) };
            let behind = places.get(at..).unwrap_or_default();
            if !behind.is_empty() {
                found.extend(behind.iter().take(most));
                return looks;
            }
        }
        looks
    }
}

/// What a shard has for lists.
#[derive(Debug, Default)]
pub struct Lists {
    windows: Vec<Window>,
    /// The tick of which `looks` are what is left.
    tick: Tick,
    looks: u32,
}

impl Lists {
    /// Takes in a record that has begun in a slot that windows may have passed.
    pub fn arrived(&mut self, slot: Slot, place: Place) {
        for window in &mut self.windows {
            if window.covers(place) && window.next.is_none_or(|next| slot < next) {
                window.insert(place, slot);
            }
        }
    }

    /// Gives up all windows, because they may lack records that have begun since.
    pub fn forget(&mut self) {
        self.windows.clear();
    }

    /// Whether there are windows.
    pub fn has_windows(&self) -> bool {
        !self.windows.is_empty()
    }

    /// The looks that are left of this tick, at most `most`.
    pub fn looks(&mut self, tick: Tick, most: u32) -> u32 {
        if self.tick != tick {
            (self.tick, self.looks) = (tick, LOOKS_PER_TICK);
        }
        self.looks.min(most)
    }

    /// Notes that looks were made.
    pub fn spend(&mut self, looks: u32) {
        self.looks = self.looks.saturating_sub(looks);
    }

    /// The window of a list that covers a place. `None`: there are as many windows as may be.
    /// `records` says how many records the shard has.
    pub fn window(
        &mut self,
        tick: Tick,
        walk: u64,
        from: Place,
        records: u32,
    ) -> Option<&mut Window> {
        let is_of = |window: &Window| window.walk == walk;
        let place = match self.windows.iter().position(is_of) {
            Some(place) => {
                if !self.windows[place].covers(from) {
                    let len_max = self.len_max(records, Some(place));
                    self.windows[place] = Window::new(walk, from, tick, len_max);
                }
                place
            }
            None => {
                if self.windows.len() >= WINDOWS_MAX {
                    let oldest =
                        (0..WINDOWS_MAX).min_by_key(|&place| self.windows[place].used_at)?;
                    if tick - self.windows[oldest].used_at < IDLE_MS {
                        return None;
                    }
                    self.windows.swap_remove(oldest);
                }
                let len_max = self.len_max(records, None);
                self.windows.push(Window::new(walk, from, tick, len_max));
                self.windows.len() - 1
            }
        };
        self.windows[place].used_at = tick;
        self.windows.get_mut(place)
    }

    /// How many places the next window may have, which takes that of the window at `place`, if any.
    fn len_max(&self, records: u32, place: Option<usize>) -> usize {
        let others = self.windows.iter().enumerate().filter(|(at, _)| Some(*at) != place);
        let taken: usize = others.map(|(_, window)| window.len_max).sum();
        let wanted = (records as usize / 4).clamp(WINDOW_MIN, WINDOW_MAX);
        if taken + wanted > PLACES_MAX { WINDOW_MIN } else { wanted }
    }

    /// When a window is given up, given that nobody asks.
    pub fn next_wake(&self) -> Option<Tick> {
        self.windows.iter().map(|window| window.used_at + KEPT_MS).min()
    }

    /// Gives up windows that nobody has asked for lately. Returns whether these were the last ones.
    pub fn end_idle(&mut self, tick: Tick) -> bool {
        if self.windows.is_empty() {
            return false;
        }
        self.windows.retain(|window| tick - window.used_at < KEPT_MS);
        self.windows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn all(window: &mut Window) -> Vec<Place> {
        let mut from = Some(window.from);
        let mut found = Vec::new();
        while let Some(at) = from
            && window.covers(at)
        {
            let mut entries = Vec::new();
            window.first_from(at, &mut entries, 3);
            let Some((last, _)) = entries.last() else { break };
            from = last.next();
            found.extend(entries.iter().map(|(place, _)| *place));
        }
        found
    }

    #[test]
    fn a_full_window_keeps_its_first_places() {
        let mut window = Window::new(1, Place(0), Tick(0), WINDOW_MIN);
        let mut model = BTreeSet::new();
        for number in 0..3 * WINDOW_MIN as u64 {
            let place = Place(crate::base::ids::mix(number));
            model.insert(place);
            if window.covers(place) {
                window.insert(place, Slot(0));
            }
        }
        let until = window.until.expect("it is full");
        assert!(window.len > WINDOW_MIN - WINDOW_MIN / 100, "{}", window.len);
        assert!(all(&mut window).into_iter().eq(model.range(..until).copied()));
    }

    #[test]
    fn neighbours_are_kept_in_order_too() {
        // Ids that a client chose, so that all places lie in one bucket.
        for (from, first) in [(0, 5), (7, 7), (1 << 63, (1 << 63) + 99)] {
            let mut window = Window::new(1, Place(from), Tick(0), WINDOW_MIN);
            let last = first + 2 * WINDOW_MIN as u64;
            for place in (first..last).rev().map(Place) {
                if window.covers(place) {
                    window.insert(place, Slot(0));
                }
            }
            let until = window.until.expect("it is full").0;
            assert!(until > first, "something is left");
            let kept: Vec<_> = (first..until).map(Place).collect();
            assert_eq!(all(&mut window), kept);
            assert!(window.buckets.len() <= 2 << BUCKETS_LOG2);
        }
    }

    #[test]
    fn the_last_places_of_all_are_reached() {
        let first = u64::MAX - 2 * WINDOW_MIN as u64;
        let (mut from, mut found, mut windows) = (Place(0), Vec::new(), 0);
        loop {
            let mut window = Window::new(1, from, Tick(0), WINDOW_MIN);
            for place in (first..=u64::MAX).map(Place) {
                if window.covers(place) {
                    window.insert(place, Slot(0));
                }
            }
            found.extend(all(&mut window));
            windows += 1;
            match window.until {
                Some(until) => from = until,
                None => break,
            }
        }
        assert!(windows < 12, "{windows} windows");
        assert!(found.into_iter().eq((first..=u64::MAX).map(Place)));
    }

    #[test]
    fn a_list_gets_a_window_when_another_is_idle() {
        let mut lists = Lists::default();
        for walk in 0..WINDOWS_MAX as u64 {
            assert!(lists.window(Tick(walk), walk, Place(0), 1_000).is_some());
        }
        assert!(lists.window(Tick(IDLE_MS - 1), 99, Place(0), 1_000).is_none());
        assert!(lists.window(Tick(IDLE_MS), 99, Place(0), 1_000).is_some(), "the first was idle");
        assert!(lists.window(Tick(IDLE_MS), 0, Place(0), 1_000).is_none());
        assert_eq!(lists.next_wake(), Some(Tick(1 + KEPT_MS)));
        assert!(!lists.end_idle(Tick(KEPT_MS)), "one is left");
        assert!(lists.end_idle(Tick(IDLE_MS + KEPT_MS)));
        assert!(!lists.end_idle(Tick(IDLE_MS + KEPT_MS)), "there is none");
        assert_eq!(lists.next_wake(), None);
    }

    #[test]
    fn windows_grow_with_the_records_and_have_a_bound_together() {
        let mut lists = Lists::default();
        let mut len_max = |walk, records| {
            let window = lists.window(Tick(0), walk, Place(0), records);
            window.map_or(0, |window| window.len_max)
        };
        assert_eq!(len_max(1, 1_000), WINDOW_MIN);
        assert_eq!(len_max(2, 1 << 20), 256 << 10);
        assert_eq!(len_max(3, 100 << 20), WINDOW_MAX);
        assert_eq!(len_max(4, 100 << 20), WINDOW_MIN, "others have so much");
        assert_eq!(len_max(2, 100), 256 << 10, "it is there already");
    }

    #[test]
    fn what_arrives_is_taken_in_if_the_walk_has_passed_its_slot() {
        let mut lists = Lists::default();
        let window = lists.window(Tick(0), 1, Place(100), 1_000).expect("room");
        window.next = Some(Slot(10));
        for (slot, place) in [(9, 150), (10, 160), (11, 170), (3, 50)] {
            lists.arrived(Slot(slot), Place(place));
        }
        let window = &mut lists.windows[0];
        assert_eq!(all(window), [Place(150)], "the walk comes to the others, or not to the list");
        window.next = None;
        lists.arrived(Slot(99), Place(180));
        assert_eq!(all(&mut lists.windows[0]), [Place(150), Place(180)]);
    }

    #[test]
    fn places_that_lie_together_are_spread_over_as_many_buckets_again() {
        let mut window = Window::new(1, Place(0), Tick(0), 4);
        let first = 1_u64 << (64 - BUCKETS_LOG2);
        (0..5).for_each(|place| window.insert(Place(place << 20), Slot(0)));
        assert!(window.until.is_some_and(|until| until.0 <= first), "{:?}", window.until);
        assert!(!window.covers(Place(first)) && window.len <= 4);
        assert!(window.buckets.len() <= 1 << BUCKETS_LOG2);
        let left = all(&mut window);
        assert!(left.iter().zip(0..).all(|(place, at)| *place == Place(at << 20)), "{left:?}");
    }

    #[test]
    fn looks_come_back_with_the_next_tick() {
        let mut lists = Lists::default();
        assert_eq!(lists.looks(Tick(1), u32::MAX), LOOKS_PER_TICK);
        lists.spend(LOOKS_PER_TICK - 10);
        assert_eq!((lists.looks(Tick(1), 100), lists.looks(Tick(1), 4)), (10, 4));
        lists.spend(1_000);
        assert_eq!(lists.looks(Tick(1), 100), 0);
        assert_eq!(lists.looks(Tick(2), 100), 100);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(
            from in prop_oneof![Just(0), any::<u64>()],
            places in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..99], 0..300)
        ) {
            let mut window = Window::new(1, Place(from), Tick(0), WINDOW_MIN);
            let places: BTreeSet<_> = places.into_iter().map(Place).collect();
            for place in &places {
                if window.covers(*place) {
                    window.insert(*place, Slot(0));
                }
            }
            prop_assert!(all(&mut window).into_iter().eq(places.range(Place(from)..).copied()));
        }
    }
}
