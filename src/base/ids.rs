//! Identities of timers, slots, shards, nodes and peers. Each kind has its own type, so that a slot
//! is never passed where a shard is meant.

// May panic: assertions 2.
// Why it does not: configured 2.

use std::fmt;

/// Identity of a timer in the whole cluster: the first 16 hex digits of the id that a client gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(pub u64);

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerId({:016x})", self.0)
    }
}

/// Number of a record in one shard's store. A slot is used again after its record is freed, so a
/// holder of a slot compares the timer's id, too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an index into a table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of the lane that one shard has for a callback host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HostId(pub u32);

/// Number of a shard within its node, from 0. Each core has one shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShardIndex(pub u16);

/// How many shards a node has. The count decides which shard owns an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardCount(u16);

impl ShardCount {
    /// Panics unless `count` lies in 1..=[`SHARDS_MAX`](super::limits::SHARDS_MAX).
    pub fn new(count: u16) -> Self {
        assert!(
            (1..=super::limits::SHARDS_MAX).contains(&count),
            "a node has 1 to 256 shards, not {count}"
        );
        Self(count)
    }

    /// The count, 1..=[`SHARDS_MAX`](super::limits::SHARDS_MAX).
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The shard that owns `id`. The bits of the id are mixed and then scaled to the count, so that
    /// ids that clients choose spread as evenly as ids that nodes mint.
    #[inline]
    pub fn owner(self, id: TimerId) -> ShardIndex {
        if self.0 == 1 {
            return ShardIndex(0);
        }
        let mixed = mix(id.0) >> 32;
        ShardIndex(((mixed * u64::from(self.0)) >> 32) as u16)
    }
}

/// The finaliser of MurmurHash3 (64 bit). Every input bit affects every output bit.
#[inline]
pub const fn mix(mut bits: u64) -> u64 {
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

/// The bits that [`mix`] makes these of.
pub const fn unmix(mut bits: u64) -> u64 {
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0x9cb4_b2f8_1293_37db);
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0x4f74_430c_22a5_4005);
    bits ^ (bits >> 33)
}

/// Ten bits in ids and versions that tell the nodes of all deployments apart: `instance_id`
/// (0..=127) and `deployment_id` (0..=7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeInstance(u16);

impl NodeInstance {
    /// Width of a node instance in bits.
    pub const BITS: u32 = 10;

    /// Panics unless `instance` lies in 0..=127 and `deployment` in 0..=7. The configuration checks
    /// both before.
    pub fn new(instance: u8, deployment: u8) -> Self {
        assert!(instance < 128 && deployment < 8, "instance 0..=127 and deployment 0..=7");
        Self(u16::from(deployment) << 7 | u16::from(instance))
    }

    /// The ten bits: `deployment_id` in the upper three, `instance_id` in the lower seven.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Hash of a node's name as placement uses it (docs/compat/timer-service.md §3): MurmurHash3_x86_32
/// with seed 0, made unique within the cluster. The hash stands for the node in replica lists, in
/// memory and on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct NodeHash(pub u32);

/// Hash of a site's name, made like a node's hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SiteHash(pub u32);

/// Number of a peer: another member of this process's site, or another site as a whole. The process
/// numbers peers as it learns of them, and never gives a number to a second peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PeerIndex(pub u8);

impl PeerIndex {
    /// The number as an index into a table of peers.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of peers: one bit for each of the 128 numbers that a [`PeerIndex`] can have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PeerSet(u128);

impl PeerSet {
    /// The set without any peer.
    pub const EMPTY: PeerSet = PeerSet(0);

    /// This set and `peer`.
    #[must_use]
    pub const fn with(self, peer: PeerIndex) -> Self {
        Self(self.0 | 1 << peer.0)
    }

    /// This set without `peer`.
    #[must_use]
    pub const fn without(self, peer: PeerIndex) -> Self {
        Self(self.0 & !(1 << peer.0))
    }

    /// The peers that are in this set or in `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The peers that are in this set and in `other`.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The peers that are in this set but not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether `peer` is in the set.
    pub const fn contains(self, peer: PeerIndex) -> bool {
        self.0 >> peer.0 & 1 == 1
    }

    /// Whether the set has no peer.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many peers are in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The peers of the set in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = PeerIndex> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let next = rest.trailing_zeros();
            (next < 128).then(|| {
                rest &= rest - 1;
                PeerIndex(next as u8)
            })
        })
    }
}

impl fmt::Debug for PeerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|peer| peer.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures come from another implementation of `fmix64`. Nodes of two releases in one
    /// cluster must mix alike.
    #[test]
    fn the_mix_is_the_finaliser_of_murmurhash3() {
        assert_eq!(mix(0), 0);
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
        assert_eq!(mix(0x0123_4567_89ab_cdef), 0x87cb_fbfe_8902_2cea);
        assert_eq!(mix(u64::MAX), 0x64b5_720b_4b82_5f21);
    }

    #[test]
    fn a_set_of_peers_does_what_a_set_does() {
        let set_of = |peers: &[u8]| {
            peers.iter().fold(PeerSet::EMPTY, |set, &peer| set.with(PeerIndex(peer)))
        };
        let (one, other) = (set_of(&[0, 5, 127]), set_of(&[5, 6]));
        assert_eq!(one.with(PeerIndex(5)), one, "who is in it stays in it");
        assert_eq!(one.without(PeerIndex(5)), set_of(&[0, 127]));
        assert_eq!(one.without(PeerIndex(6)), one, "who is not in it does not get in");
        assert_eq!(one.union(other), set_of(&[0, 5, 6, 127]));
        assert_eq!(one.intersection(other), set_of(&[5]));
        assert_eq!(one.minus(other), set_of(&[0, 127]));
        assert_eq!((one.len(), PeerSet::EMPTY.len()), (3, 0));
        assert!(PeerSet::EMPTY.is_empty() && !one.is_empty());
        assert!(one.contains(PeerIndex(127)) && !one.contains(PeerIndex(126)));
        assert!(one.iter().map(|peer| peer.0).eq([0, 5, 127]));
        assert_eq!(PeerIndex(7).index(), 7);
    }

    #[test]
    fn what_is_mixed_is_unmixed() {
        for bits in (0..64).map(|bit| 1 << bit).chain(0..1_000).chain([u64::MAX]) {
            assert_eq!(unmix(mix(bits)), bits);
            assert_eq!(mix(unmix(bits)), bits);
        }
    }

    #[test]
    fn owners_are_balanced_for_consecutive_ids() {
        for count in [1_u16, 2, 3, 16, 256] {
            let shards = ShardCount::new(count);
            let mut held = vec![0_u32; count.into()];
            for id in 0..100_000_u64 {
                held[usize::from(shards.owner(TimerId(id)).0)] += 1;
            }
            let mean = 100_000 / u32::from(count);
            assert!(held.iter().all(|&n| n > mean / 2 && n < mean * 2 + 1), "{count}: {held:?}");
        }
    }
}
