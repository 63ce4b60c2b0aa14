//! Short ordered lists that a timer carries: the nodes that hold it, and the sites that hold it.

// May panic: assertions 1, indices 2.
// Why it does not: bounded 3.

use std::fmt;

use super::ids::{NodeHash, SiteHash};
use super::limits::{REPLICATION_FACTOR_MAX, SITES_PER_TIMER_MAX};

/// At most `N` entries in the order of their ranks. Rank 0 acts first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ranked<T, const N: usize> {
    places: [T; N],
    len: u8,
}

/// The nodes of one site that hold a timer. Rank 0 pops first.
pub type Replicas = Ranked<NodeHash, { REPLICATION_FACTOR_MAX as usize }>;

/// The sites that hold a timer. Rank 0 pops first.
pub type Sites = Ranked<SiteHash, SITES_PER_TIMER_MAX>;

impl<T: Copy + PartialEq + Default, const N: usize> Ranked<T, N> {
    /// An empty list.
    pub fn new() -> Self {
        Self { places: [T::default(); N], len: 0 }
    }

    /// Adds an entry at the last rank. Panics if the list is full.
    pub fn push(&mut self, place: T) {
        assert!(!self.is_full(), "a list of {N} is full");
        self.places[usize::from(self.len)] = place;
        self.len += 1;
    }

    /// Whether the list has `N` entries.
    pub fn is_full(&self) -> bool {
        usize::from(self.len) == N
    }

    /// All entries, rank 0 first.
    pub fn as_slice(&self) -> &[T] {
        &self.places[..usize::from(self.len)]
    }

    /// The rank of `wanted`; `None`: the list does not have it.
    pub fn rank_of(&self, wanted: T) -> Option<u8> {
        self.as_slice().iter().position(|&place| place == wanted).map(|rank| rank as u8)
    }

    /// Whether `wanted` is in the list.
    pub fn contains(&self, wanted: T) -> bool {
        self.as_slice().contains(&wanted)
    }

    /// How many entries the list has.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A mask with a bit for every rank of the list. The list must have at most 16 entries.
    pub fn all_ranks(&self) -> u16 {
        ((1_u32 << self.len) - 1) as u16
    }
}

impl Replicas {
    /// Digest of the list: 32-bit FNV-1a over the hashes in order, low byte first. Different lists
    /// have different digests, but for 1 in 2^32.
    pub fn digest(&self) -> u32 {
        self.as_slice()
            .iter()
            .flat_map(|node| node.0.to_le_bytes())
            .fold(0x811c_9dc5, |digest: u32, byte| {
                (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            })
    }
}

impl<T: Copy + PartialEq + Default, const N: usize> Default for Ranked<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy + PartialEq + Default, const N: usize> FromIterator<T> for Ranked<T, N> {
    /// Panics if there are more than `N` entries.
    fn from_iter<I: IntoIterator<Item = T>>(places: I) -> Self {
        let mut ranked = Self::new();
        places.into_iter().for_each(|place| ranked.push(place));
        ranked
    }
}

impl<T: Copy + PartialEq + Default + fmt::Debug, const N: usize> fmt::Debug for Ranked<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes send each other this digest, the published FNV-1a over the hashes with the low byte
    /// first. The figure comes from another implementation.
    #[test]
    fn a_digest_is_fnv_1a_over_the_hashes_in_order() {
        let list = |hashes: &[u32]| hashes.iter().copied().map(NodeHash).collect::<Replicas>();
        assert_eq!(list(&[]).digest(), 0x811c_9dc5);
        assert_eq!(list(&[0x0102_0304, 0xa0b0_c0d0]).digest(), 0x4c5c_dfa5);
        assert_ne!(list(&[0xa0b0_c0d0, 0x0102_0304]).digest(), 0x4c5c_dfa5);
    }

    #[test]
    fn a_list_keeps_order_and_knows_ranks() {
        let mut list: Sites = Sites::new();
        assert!(list.is_empty() && (list.len(), list.all_ranks()) == (0, 0));
        list.push(SiteHash(7));
        list.push(SiteHash(5));
        assert!(!list.is_empty() && list.len() == 2 && list.all_ranks() == 0b11);
        assert_eq!(list.as_slice(), [SiteHash(7), SiteHash(5)]);
        assert_eq!((list.rank_of(SiteHash(5)), list.rank_of(SiteHash(0))), (Some(1), None));
        assert!(list.contains(SiteHash(7)) && !list.contains(SiteHash(0)));
        assert_eq!(format!("{list:?}"), "[SiteHash(7), SiteHash(5)]");
        let full: Replicas = (0..REPLICATION_FACTOR_MAX).map(NodeHash).collect();
        assert!(full.is_full() && !list.is_full());
        assert_eq!(full.all_ranks(), u16::MAX);
    }
}
