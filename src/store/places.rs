//! Which of the numbers 0, 1, 2 ... are taken: one bit each, in groups of 4096. The lowest free
//! number of a group with a free number is given out, so a number that was never given out comes
//! only when all lower numbers are taken. A number that is given back twice is noticed. A group
//! none of whose numbers is taken can be closed: its numbers come again when all others are taken.
//! This file holds no values.

// May panic: assertions 3, expectations 2, indices 11.
// Why it does not: listed 16.

use super::directory::Directory;

/// Width of a number in its group, in bits. A group is 64 words of 64 bits, and one word that says
/// which of these words have a free bit.
const GROUP_LOG2: u32 = 12;
pub(super) const GROUP: usize = 1 << GROUP_LOG2;
const WORD_BITS: usize = 64;

struct Group {
    taken: Box<[u64; GROUP / WORD_BITS]>,
    /// One bit per word of `taken` that has a free bit.
    open_words: u64,
    len: u32,
    is_closed: bool,
}

/// A set of taken numbers below `u32::MAX`.
pub(super) struct Places {
    groups: Directory<Group>,
    /// The groups with a free number, each once. The last group is used first.
    open_groups: Vec<u32>,
    /// The groups whose numbers are not given out at present.
    closed_groups: Vec<u32>,
    len: u64,
}

impl Places {
    pub(super) fn new() -> Self {
        let (open_groups, closed_groups) = (Vec::new(), Vec::new());
        Self { groups: Directory::new(), open_groups, closed_groups, len: 0 }
    }

    /// Takes a free number. Cost: at most one group (512 bytes) is allocated. Panics when no number
    /// is left.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        if self.open_groups.is_empty() {
            self.open_group();
        }
        let group_at = *self.open_groups.last().expect("one was opened if there was none");
        let group = &mut self.groups[group_at as usize];
        let word = group.open_words.trailing_zeros() as usize;
        let bit = group.taken[word].trailing_ones() as usize;
        group.taken[word] |= 1 << bit;
        group.len += 1;
        if group.taken[word] == u64::MAX {
            group.open_words &= !(1 << word);
            if group.open_words == 0 {
                self.open_groups.pop();
            }
        }
        self.len += 1;
        (group_at << GROUP_LOG2) + (word * WORD_BITS + bit) as u32
    }

    /// Gives a taken number back. Returns whether no number of its group is taken any more. Panics
    /// if the number is not taken.
    #[inline]
    pub(super) fn give_back(&mut self, place: u32) -> bool {
        assert!(self.contains(place), "place {place} is freed, but was not taken");
        let (group_at, word, bit) = split(place);
        let group = &mut self.groups[group_at];
        if group.open_words == 0 {
            self.open_groups.push(group_at as u32);
        }
        group.taken[word] &= !(1 << bit);
        group.open_words |= 1 << word;
        group.len -= 1;
        self.len -= 1;
        group.len == 0
    }

    /// Whether a group is open and none of its numbers is taken. False for a group that never was.
    pub(super) fn is_idle(&self, group: u32) -> bool {
        self.groups.get(group as usize).is_some_and(|group| group.len == 0 && !group.is_closed)
    }

    /// Keeps the numbers of an idle group from being given out, until all others are taken.
    #[cold]
    pub(super) fn close(&mut self, group: u32) {
        assert!(self.is_idle(group), "group {group} is closed, but has taken numbers");
        let at = self.open_groups.iter().position(|&open| open == group);
        self.open_groups.remove(at.expect("a group with a free number is open"));
        self.groups[group as usize].is_closed = true;
        self.closed_groups.push(group);
    }

    /// Whether a number is taken.
    #[inline]
    pub(super) fn contains(&self, place: u32) -> bool {
        let (group, word, bit) = split(place);
        self.groups.get(group).is_some_and(|group| group.taken[word] >> bit & 1 == 1)
    }

    /// The first taken number at or above `from`; `None`: there is none.
    pub(super) fn first_from(&self, from: u32) -> Option<u32> {
        let (mut group_at, mut word, bit) = split(from);
        let mut bits = self.groups.get(group_at)?.taken[word] & u64::MAX << bit;
        while bits == 0 {
            word += 1;
            if word == GROUP / WORD_BITS {
                word = 0;
                group_at += 1;
            }
            bits = self.groups.get(group_at)?.taken[word];
        }
        Some((group_at * GROUP + word * WORD_BITS) as u32 + bits.trailing_zeros())
    }

    /// How many numbers are taken.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory, as reserved.
    pub(super) fn bytes(&self) -> usize {
        self.groups.bytes()
            + self.groups.len() * size_of::<[u64; GROUP / WORD_BITS]>()
            + (self.open_groups.capacity() + self.closed_groups.capacity()) * size_of::<u32>()
    }

    #[cold]
    fn open_group(&mut self) {
        if let Some(closed) = self.closed_groups.pop() {
            self.groups[closed as usize].is_closed = false;
            return self.open_groups.push(closed);
        }
        let next = self.groups.len();
        assert!(next < (u32::MAX >> GROUP_LOG2) as usize, "more than 2^32 places in one shard");
        let taken = Box::new([0; GROUP / WORD_BITS]);
        self.groups.push(Group { taken, open_words: u64::MAX, len: 0, is_closed: false });
        self.open_groups.push(next as u32);
    }
}

#[inline]
fn split(place: u32) -> (usize, usize, usize) {
    let place = place as usize;
    (place >> GROUP_LOG2, place % GROUP / WORD_BITS, place % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::ids::mix;

    #[test]
    fn bytes_are_the_directory_of_groups_their_bits_and_the_list_of_open_ones() {
        let mut places = Places::new();
        assert_eq!(places.bytes(), 0);
        for _ in 0..=GROUP {
            places.take();
        }
        // The directory has a root of four leaves and a leaf of four groups. Beside it there are
        // two groups, and a list with room for four numbers.
        assert_eq!(places.bytes(), (4 * 24 + 4 * 24) + 2 * 512 + 4 * 4);
    }

    #[test]
    fn gives_what_is_free_and_fresh_numbers_in_order() {
        let (mut places, mut model, mut fresh) = (Places::new(), BTreeSet::new(), 0);
        for step in 0..60_000_u64 {
            let dice = mix(step);
            if dice % 8 < if step / 20_000 == 1 { 2 } else { 5 } {
                let place = places.take();
                assert!(model.insert(place), "{place} was taken");
                assert!(place <= fresh, "{place} is fresh, but {fresh} was not given yet");
                fresh = fresh.max(place + 1);
            } else if let Some(&victim) = model.range((dice >> 8) as u32 % 8192..).next() {
                places.give_back(victim);
                model.remove(&victim);
            }
            let probe = (dice >> 40) as u32 % 20_000;
            assert_eq!(places.first_from(probe), model.range(probe..).next().copied());
            assert_eq!(places.contains(probe), model.contains(&probe));
            assert_eq!(places.len(), model.len() as u64);
        }
        assert!(fresh as usize > GROUP, "the test must cross a group");
    }

    #[test]
    fn the_numbers_of_a_closed_group_come_again_before_fresh_ones() {
        let mut places = Places::new();
        let all = 3 * GROUP as u32;
        (0..all).for_each(|number| assert_eq!(places.take(), number));
        let second = GROUP as u32..2 * GROUP as u32;
        let emptied: Vec<_> = second.clone().filter(|&place| places.give_back(place)).collect();
        assert_eq!(emptied, [second.end - 1], "the last of the group is told");
        assert!(places.is_idle(1) && !places.is_idle(0) && !places.is_idle(9));
        places.close(1);
        assert!(!places.is_idle(1) && !places.contains(second.start));
        places.give_back(7);
        assert_eq!(places.take(), 7, "what is free elsewhere comes first");
        assert_eq!(places.first_from(GROUP as u32), Some(second.end), "nothing is in there");
        second.for_each(|number| assert_eq!(places.take(), number));
        assert_eq!((places.take(), places.len()), (all, u64::from(all) + 1));
    }
}
