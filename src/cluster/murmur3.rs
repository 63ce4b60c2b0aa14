//! MurmurHash3 (Austin Appleby, public domain algorithm) in the two variants with which original
//! nodes hash (docs/compat/timer-service.md §3).

// May panic: indices 18.
// Why it does not: fixed 18.

/// Returns MurmurHash3_x86_32 of `bytes`.
pub fn x86_32(bytes: &[u8], seed: u32) -> u32 {
    let mut hash = seed;
    let mut blocks = bytes.chunks_exact(4);
    for block in &mut blocks {
        hash = absorb(hash, scramble(little_endian(block)));
    }
    if !blocks.remainder().is_empty() {
        hash ^= scramble(little_endian(blocks.remainder()));
    }
    finish(hash ^ bytes.len() as u32)
}

/// Computes MurmurHash3_x86_32 of the eight little-endian bytes of one number under many seeds. The
/// half of the work that does not depend on the seed is done once.
#[derive(Clone, Copy, Debug)]
pub struct ManySeeds {
    scrambled: [u32; 2],
}

impl ManySeeds {
    /// Prepares for `number`.
    #[inline]
    pub const fn of(number: u64) -> Self {
        Self { scrambled: [scramble(number as u32), scramble((number >> 32) as u32)] }
    }

    /// The hash under `seed`. Cost: about 2 ns.
    #[inline]
    pub const fn hash(self, seed: u32) -> u32 {
        let [low, high] = self.scrambled;
        finish(absorb(absorb(seed, low), high) ^ 8)
    }
}

/// Returns MurmurHash3_x86_128 of `bytes`: four 32-bit lanes, as two 64-bit halves in memory order.
pub fn x86_128(bytes: &[u8], seed: u32) -> [u64; 2] {
    const C: [u32; 4] = [0x239b_961b, 0xab0e_9789, 0x38b3_4ae5, 0xa1e3_8b93];
    const SCRAMBLE: [u32; 4] = [15, 16, 17, 18];
    const ROTATE: [u32; 4] = [19, 17, 15, 13];
    const ADD: [u32; 4] = [0x561c_cd1b, 0x0bca_a747, 0x96cd_1c35, 0x32ac_3b17];
    let scramble = |lane: usize, k: u32| {
        k.wrapping_mul(C[lane]).rotate_left(SCRAMBLE[lane]).wrapping_mul(C[(lane + 1) % 4])
    };
    let mut hash = [seed; 4];
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        for lane in 0..4 {
            hash[lane] ^= scramble(lane, little_endian(&block[lane * 4..lane * 4 + 4]));
            hash[lane] = hash[lane].rotate_left(ROTATE[lane]).wrapping_add(hash[(lane + 1) % 4]);
            hash[lane] = hash[lane].wrapping_mul(5).wrapping_add(ADD[lane]);
        }
    }
    for (lane, tail) in blocks.remainder().chunks(4).enumerate() {
        hash[lane] ^= scramble(lane, little_endian(tail));
    }
    hash = hash.map(|lane| lane ^ bytes.len() as u32);
    hash = spread(spread(hash).map(finish));
    [0, 2].map(|low| u64::from(hash[low]) | u64::from(hash[low + 1]) << 32)
}

/// Adds every lane to the first lane, then the first lane to every other lane.
fn spread(mut hash: [u32; 4]) -> [u32; 4] {
    hash[0] = hash.iter().fold(0, |sum: u32, lane| sum.wrapping_add(*lane));
    let first = hash[0];
    hash[1..].iter_mut().for_each(|lane| *lane = lane.wrapping_add(first));
    hash
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

const fn scramble(block: u32) -> u32 {
    block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

const fn absorb(hash: u32, scrambled: u32) -> u32 {
    (hash ^ scrambled).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

const fn finish(mut hash: u32) -> u32 {
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verification procedure of the SMHasher suite: it hashes keys of 0..=255 bytes, each with
    /// the seed 256 - length, and then hashes the results.
    fn verification(width: usize, hash: impl Fn(&[u8], u32) -> Vec<u8>) -> u32 {
        let key: Vec<u8> = (0..=255).collect();
        let mut results = Vec::new();
        for length in 0..256_u32 {
            results.extend_from_slice(&hash(&key[..length as usize], 256 - length)[..width]);
        }
        little_endian(&hash(&results, 0)[..4])
    }

    #[test]
    fn agrees_with_the_published_verification_values() {
        assert_eq!(
            verification(4, |key, seed| x86_32(key, seed).to_le_bytes().to_vec()),
            0xB0F5_7EE3
        );
        let wide = |key: &[u8], seed| {
            x86_128(key, seed).iter().flat_map(|half| half.to_le_bytes()).collect()
        };
        assert_eq!(verification(16, wide), 0xB3EC_E62A);
    }

    #[test]
    fn many_seeds_agree_with_one() {
        for number in [0, 1, 0x0004_d9f5_4810_0000, 0xffff_0000_1234_5678, u64::MAX] {
            let many = ManySeeds::of(number);
            for seed in [0, 1, 0x8000_0000, 0xdead_beef, u32::MAX] {
                assert_eq!(many.hash(seed), x86_32(&number.to_le_bytes(), seed));
            }
        }
    }
}
