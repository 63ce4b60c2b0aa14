//! Ids of timers that clients name, of creates that they make at most once, and of reports. An id
//! is made of the name, the key, or the pop that is reported, so that all nodes make the same one
//! without asking each other.
//!
//! ```text
//! name  1110, 60 bits of SHA-256
//! key   1111, 60 bits of SHA-256
//! ```
//!
//! The id of a report is any number, but the core that owns the timer owns its reports.
//!
//! An id that a node mints begins with its milliseconds (`timer::identity`), which have the three
//! highest bits set from the year 2090 on.

use sha2::{Digest, Sha256};

use super::version::Version;
use crate::base::ids::{TimerId, mix, unmix};
use crate::wire::report::ReportKind;

/// The highest bits of an id that a name makes.
const NAME: u64 = 0xe;
/// The highest bits of an id that a key makes.
const KEY: u64 = 0xf;
/// Bits of an id behind these.
const HASH_BITS: u32 = 60;
/// Bits of a digest of a body. A tombstone keeps the digest in the place of a time, of which 2^40
/// milliseconds are 34 years.
const DIGEST_BITS: u32 = 40;

/// For how long a key is remembered after its timer was created, in milliseconds.
pub const KEY_REMEMBERED_MS: u64 = 24 * 3_600_000;

/// What an id was made of, and what is remembered of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity<'a> {
    /// The timer's name.
    pub name: Option<&'a str>,
    /// The digest of the body that came with the key.
    pub once: Option<u64>,
}

/// The id of a name.
pub fn id_of_name(name: &str) -> TimerId {
    hashed(NAME, &[b"chronos name", name.as_bytes()])
}

/// The id of a key. Keys of different scopes, names of tokens, do not meet.
pub fn id_of_key(scope: &str, key: &[u8]) -> TimerId {
    hashed(KEY, &[b"chronos key", scope.as_bytes(), key])
}

/// The id of the report of a pop. Whoever reports the pop makes the same one. The owner of an id
/// depends on the upper half of its mixed bits (`ShardCount::owner`), which the timer gives, so on
/// each node the report stays on the timer's core. The lower half is a hash.
pub fn id_of_report(timer: TimerId, version: Version, sequence: u64, kind: ReportKind) -> TimerId {
    let numbers = [timer.0, version.0, sequence].map(u64::to_le_bytes);
    let [id, version, sequence] = &numbers;
    let hash = first_bits(&[b"chronos report", id, version, sequence, &[kind as u8]]);
    TimerId(unmix(mix(timer.0) >> 32 << 32 | hash >> 32))
}

/// Whether a name may have made the id. A client may have chosen the id as well.
pub fn may_be_of_name(id: TimerId) -> bool {
    id.0 >> HASH_BITS == NAME
}

/// Whether a key may have made the id. A client may have chosen the id as well.
pub fn may_be_of_key(id: TimerId) -> bool {
    id.0 >> HASH_BITS == KEY
}

/// Whether a name or a key may have made the id.
#[inline]
pub fn may_be_made(id: TimerId) -> bool {
    id.0 >> HASH_BITS >= NAME
}

/// The digest of a body, by which another body under the same key is found. Never 0.
pub fn digest_of(body: &[u8]) -> u64 {
    (first_bits(&[b"chronos body", body]) >> (u64::BITS - DIGEST_BITS)).max(1)
}

/// Whether a number can be a digest of a body.
pub fn is_digest(digest: u64) -> bool {
    digest != 0 && digest >> DIGEST_BITS == 0
}

fn hashed(kind: u64, parts: &[&[u8]]) -> TimerId {
    TimerId(kind << HASH_BITS | first_bits(parts) >> (u64::BITS - HASH_BITS))
}

/// The first bits of the hash of all parts, each with its length before it.
fn first_bits(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    digest.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::ids::ShardCount;
    use crate::timer::identity::Minter;

    #[test]
    fn names_and_keys_do_not_meet_each_other_or_minted_ids() {
        let ids = [
            id_of_name("a"),
            id_of_name("b"),
            id_of_key("", b"a"),
            id_of_key("", b"b"),
            id_of_key("a", b"b"),
            id_of_key("ab", b""),
            id_of_key("", b"ab"),
        ];
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for id in ids {
            assert!(Minter::minted_at(id).0 > 3_786_912_000_000, "that is later than 2090");
        }
        assert!(!may_be_of_key(ids[0]) && may_be_of_key(ids[2]));
        assert_eq!(id_of_name("a"), id_of_name("a"));
    }

    #[test]
    fn each_report_has_an_id_of_its_own_on_the_core_of_its_timer() {
        let mut ids = HashSet::new();
        for timer in [0, 1, 0x687e_bc01_f940_0001, u64::MAX].map(TimerId) {
            for (version, sequence) in [(1, 1), (1, 2), (2, 1), (u64::MAX, u64::MAX)] {
                for kind in [ReportKind::Success, ReportKind::Failure] {
                    let id = id_of_report(timer, Version(version), sequence, kind);
                    assert_eq!(id, id_of_report(timer, Version(version), sequence, kind));
                    for shards in [1, 2, 3, 7, 16, 200].map(ShardCount::new) {
                        assert_eq!(shards.owner(id), shards.owner(timer));
                    }
                    ids.insert(id);
                }
            }
        }
        assert_eq!(ids.len(), 32);
    }

    #[test]
    fn a_digest_tells_bodies_apart_and_fits_a_time() {
        let digests: HashSet<u64> = (0..1_000_u32).map(|i| digest_of(&i.to_le_bytes())).collect();
        assert_eq!(digests.len(), 1_000);
        assert!(digests.into_iter().all(is_digest));
        assert!(!is_digest(0) && !is_digest(1 << DIGEST_BITS));
    }
}
