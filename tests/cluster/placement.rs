//! Which nodes hold a timer, computed a second time from docs/compat/timer-service.md §3 and apart
//! from the program's own code.

/// Computes MurmurHash3_x86_32.
fn murmur3(bytes: &[u8], seed: u32) -> u32 {
    let word = |four: &[u8]| four.iter().rev().fold(0_u32, |sum, byte| sum << 8 | *byte as u32);
    let mixed = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let whole = bytes.len() / 4 * 4;
    let mut hash = bytes[..whole].chunks(4).fold(seed, |hash, four| {
        (hash ^ mixed(word(four))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if whole < bytes.len() {
        hash ^= mixed(word(&bytes[whole..]));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// Returns the nodes that hold a timer, the primary first, as indices of `names`.
pub fn replicas(names: &[&str], id: u64, factor: usize) -> Vec<usize> {
    let mut hashes: Vec<u32> = Vec::new();
    for name in names {
        let mut hash = murmur3(name.as_bytes(), 0);
        while hashes.contains(&hash) {
            hash = hash.wrapping_sub(1);
        }
        hashes.push(hash);
    }
    let mut results: Vec<(u32, usize)> = Vec::new();
    for (place, seed) in hashes.into_iter().enumerate() {
        let mut result = murmur3(&id.to_le_bytes(), seed);
        while results.iter().any(|one| one.0 == result) {
            result = result.wrapping_add(1);
        }
        results.push((result, place));
    }
    results.sort_unstable();
    let primary = results.remove(0).1;
    let backups = results.into_iter().rev().map(|one| one.1);
    std::iter::once(primary).chain(backups).take(factor).collect()
}
