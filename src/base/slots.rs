//! Values in numbered places. A place is used again after its value is removed, and every use has
//! its own generation, so that the key of an earlier value finds nothing.

// May panic: assertions 1.
// Why it does not: memory 1.

/// Stands for no place: the end of the list of free places.
const NONE: u32 = u32::MAX;

/// Key of one value in a [`Slots`]: a place, and which use of the place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SlotKey {
    /// The place, counted from 0.
    pub index: u32,
    /// How many values the place has lost before this value; wraps at 2^32.
    pub generation: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    /// While the place is free: the next free place in the list, or [`NONE`].
    next_free: u32,
    value: Option<T>,
}

/// A table of values. Each value has a place and a key.
///
/// - Every operation on one value takes constant time, [`Slots::insert`] amortised: only growth
///   allocates, and growth moves all values.
/// - The place that was freed last is used again first. The table never shrinks.
/// - A key is good until its value is removed. The generation of a place comes round after 2^32
///   values; a key that is kept for so long could find another value.
/// - A place costs 8 bytes beside its `Option<T>`.
#[derive(Debug)]
pub struct Slots<T> {
    entries: Vec<Entry<T>>,
    first_free: u32,
    len: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// An empty table; allocates nothing.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), first_free: NONE, len: 0 }
    }

    /// Stores a value in the place freed last, or in a new place. Panics at 2^32 - 1 places.
    #[inline]
    pub fn insert(&mut self, value: T) -> SlotKey {
        self.insert_with(|_| value)
    }

    /// Stores the value that `make` returns for the value's own key. Panics like [`Slots::insert`].
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(SlotKey) -> T) -> SlotKey {
        let index = self.first_free;
        let key = match self.entries.get_mut(index as usize) {
            Some(free) => {
                let key = SlotKey { index, generation: free.generation };
                free.value = Some(make(key));
                self.first_free = free.next_free;
                key
            }
            None => {
                let index = self.entries.len() as u32;
                assert!(index < NONE, "a table has fewer than 2^32 - 1 places");
                let key = SlotKey { index, generation: 0 };
                let value = Some(make(key));
                self.entries.push(Entry { generation: 0, next_free: NONE, value });
                key
            }
        };
        self.len += 1;
        key
    }

    /// The value of a key; `None` once the value has been removed.
    #[inline]
    pub fn get(&self, key: SlotKey) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    /// The value of a key, to change; `None` once the value has been removed.
    #[inline]
    pub fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == key.generation)
    }

    /// Takes the value of a key out and frees its place; `None` once the value has been removed.
    #[inline]
    pub fn remove(&mut self, key: SlotKey) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.first_free;
        self.first_free = key.index;
        self.len -= 1;
        Some(value)
    }

    /// Takes the value at a place out, whatever its generation, and frees the place; `None` where
    /// the place is free or was never used.
    #[inline]
    pub fn remove_at(&mut self, index: u32) -> Option<T> {
        self.remove(self.key_at(index)?)
    }

    /// The key of the value at a place, whatever its generation; `None` where the place is free or
    /// was never used.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<SlotKey> {
        let entry = self.entries.get(index as usize)?;
        entry.value.as_ref().map(|_| SlotKey { index, generation: entry.generation })
    }

    /// The value at a place, whatever its generation; `None` where the place is free or was never
    /// used.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.value.as_ref()
    }

    /// The value at a place, to change, whatever its generation; `None` where the place is free or
    /// was never used.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// How many places were ever used. Every value is at an index below this number. With
    /// [`Slots::key_at`] a caller can walk through a table that changes during the walk.
    #[inline]
    pub fn places(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Values in the table.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the table holds no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every value with its key, in the order of the places. Cost: one step per place, free places
    /// included.
    pub fn iter(&self) -> impl Iterator<Item = (SlotKey, &T)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| {
            let key = SlotKey { index, generation: entry.generation };
            entry.value.as_ref().map(|value| (key, value))
        })
    }

    /// Every value, to change, with its key, in the order of the places. Cost: one step per place,
    /// free places included.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlotKey, &mut T)> {
        (0..).zip(&mut self.entries).filter_map(|(index, entry)| {
            let key = SlotKey { index, generation: entry.generation };
            entry.value.as_mut().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_finds_its_value_until_the_value_is_removed() {
        let mut slots = Slots::new();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!((a.index, b.index, slots.len()), (0, 1, 2));
        assert_eq!(slots.get(a), Some(&'a'));
        assert_eq!(slots.get_mut(b), Some(&mut 'b'));
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!((slots.get(a).is_none(), slots.get_mut(a).is_none()), (true, true));
        assert_eq!(slots.remove(a), None);
        assert_eq!((slots.at(0), slots.key_at(0), slots.at(1)), (None, None, Some(&'b')));
        assert_eq!((slots.len(), slots.places(), slots.is_empty()), (1, 2, false));
        assert_eq!(slots.remove(b), Some('b'));
        assert!(slots.is_empty());
    }

    #[test]
    fn a_key_of_an_earlier_value_does_not_find_the_next_value_of_its_place() {
        let mut slots = Slots::new();
        let first = slots.insert(1);
        slots.remove(first);
        let second = slots.insert(2);
        assert_eq!((second.index, second.generation), (first.index, first.generation + 1));
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!((slots.get(second), slots.key_at(0)), (Some(&2), Some(second)));
    }

    #[test]
    fn the_place_freed_last_is_used_first() {
        let mut slots = Slots::new();
        let keys = [1, 2, 3].map(|value| slots.insert(value));
        keys.into_iter().for_each(|key| assert!(slots.remove(key).is_some()));
        assert_eq!([4, 5, 6, 7].map(|value| slots.insert(value).index), [2, 1, 0, 3]);
    }

    #[test]
    fn a_value_can_be_made_with_its_key() {
        let mut slots = Slots::new();
        let first = slots.insert_with(|key| key);
        slots.remove(first);
        let second = slots.insert_with(|key| key);
        assert_eq!((first.generation, slots.get(second)), (0, Some(&second)));
    }

    #[test]
    fn a_table_of_its_greatest_size_does_not_grow() {
        let mut slots = Slots::new();
        let mut capacities = (0..3).map(|_| {
            let keys: Vec<_> = (0..16).map(|value| slots.insert(value)).collect();
            keys.into_iter().for_each(|key| assert!(slots.remove(key).is_some()));
            (slots.entries.capacity(), slots.places())
        });
        let first = capacities.next().expect("three rounds");
        assert!(first.1 == 16 && capacities.all(|later| later == first));
    }

    #[test]
    fn a_key_of_a_place_never_used_finds_nothing() {
        let mut slots = Slots::<u8>::default();
        let key = SlotKey { index: 5, generation: 0 };
        assert!(slots.get(key).is_none() && slots.get_mut(key).is_none());
        assert_eq!(slots.remove(key), None);
        assert!(slots.at(5).is_none() && slots.at_mut(5).is_none() && slots.key_at(5).is_none());
    }

    proptest! {
        /// The model is a map from every key that was ever given to its value.
        #[test]
        fn behaves_like_a_map_whose_keys_never_come_again(
            steps in prop::collection::vec((0_u8..5, 0_usize..64), 1..120)
        ) {
            let mut slots = Slots::new();
            let (mut keys, mut model) = (Vec::<SlotKey>::new(), BTreeMap::new());
            for (number, (step, at)) in steps.into_iter().enumerate() {
                let known = (!keys.is_empty()).then(|| keys[at % keys.len()]);
                match (step, known) {
                    (0 | 1, _) | (_, None) => {
                        let key = slots.insert(number);
                        prop_assert!(!keys.contains(&key), "{key:?} was given before");
                        keys.push(key);
                        model.insert(key, number);
                    }
                    (2 | 3, Some(key)) => {
                        prop_assert_eq!(slots.remove(key), model.remove(&key));
                    }
                    (_, Some(key)) => {
                        let changed = slots.get_mut(key).map(|value| { *value += 1; *value });
                        let expected = model.get_mut(&key).map(|value| { *value += 1; *value });
                        prop_assert_eq!(changed, expected);
                    }
                }
                prop_assert_eq!(slots.len(), model.len());
                for key in &keys {
                    prop_assert_eq!(slots.get(*key), model.get(key));
                    let at = slots.key_at(key.index).filter(|at| at == key);
                    prop_assert_eq!(at.is_some(), model.contains_key(key));
                }
                let held: BTreeMap<_, _> = slots.iter().map(|(key, value)| (key, *value)).collect();
                prop_assert_eq!(&held, &model);
                let most = slots.iter_mut().map(|(key, _)| key.index).max();
                prop_assert!(most.is_none_or(|most| most < slots.places()));
            }
        }
    }
}
