//! The bloom filter in a timer's id tells which nodes hold the timer (docs/compat/timer-service.md
//! §3).

use super::murmur3::x86_128;

/// Returns the bits of one node. The name is hashed three times to 128 bits. Each 64-bit half sets
/// one bit, so a node has at most six bits.
pub fn node_bits(name: &str) -> u64 {
    (0..3)
        .flat_map(|seed| x86_128(name.as_bytes(), seed))
        .fold(0, |bits, half| bits | 1 << (half % 64))
}

/// Returns whether a filter may hold the node: whether all bits of the node are set in the filter.
pub const fn may_hold(filter: u64, node_bits: u64) -> bool {
    filter & node_bits == node_bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_holds_every_node_that_was_put_in() {
        let names: Vec<_> = (1..=16).map(|n| format!("10.0.0.{n}:7253")).collect();
        let filter = names.iter().fold(0, |filter, name| filter | node_bits(name));
        assert!(names.iter().all(|name| may_hold(filter, node_bits(name))));
        assert!((1..=6).contains(&node_bits("127.0.0.1:7253").count_ones()));
        assert!(!may_hold(node_bits("a"), node_bits("b")));
    }
}
