//! Judges whether this node's wall clock is wrong, by what the members say of their wall clocks.
//!
//! Wall clocks order writes that nothing else orders. A node cannot tell by itself that its clock
//! is wrong; the other members can, when most of them agree on another time. Of two nodes that
//! differ, nobody can say which one is right.

// May panic: indices 2.
// Why it does not: found 2.

/// What the members' clocks say of this node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockVerdict {
    /// More than half of the members agree with each other, and this node's clock is in no such
    /// majority.
    pub is_refused: bool,
    /// The distance in ms between this node's clock and the clock that differs most from it.
    pub apart_ms: u64,
}

/// Where a clock stands among the clocks of members, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// In a majority that agrees.
    Among,
    /// In no such majority. The members that agree are so many ms ahead of it, in the middle.
    Against(i64),
    /// No majority agrees.
    Unknown,
}

/// Judges this node's wall clock. `ahead_ms` says how far the clocks of the other heard members are
/// ahead of it. The function adds 0 for this node and leaves the list sorted. Two clocks agree when
/// they are at most `skew_max_ms` apart. Cost: one sort.
pub fn judge(ahead_ms: &mut Vec<i64>, skew_max_ms: u64) -> ClockVerdict {
    let stand = stand(ahead_ms, skew_max_ms);
    let extremes = ahead_ms.first().into_iter().chain(ahead_ms.last());
    let apart_ms = extremes.map(|ms| ms.unsigned_abs()).max().unwrap_or(0);
    ClockVerdict { is_refused: matches!(stand, Stand::Against(_)), apart_ms }
}

/// The same, without how far clocks are apart.
pub fn stand(ahead_ms: &mut Vec<i64>, skew_max_ms: u64) -> Stand {
    ahead_ms.push(0);
    ahead_ms.sort_unstable();
    let majority = ahead_ms.len() / 2 + 1;
    let mut majorities = ahead_ms
        .windows(majority)
        .map(|agreed| (agreed[0], agreed[majority - 1]))
        .filter(|(first, last)| last.abs_diff(*first) <= skew_max_ms)
        .peekable();
    let Some(&(first, last)) = majorities.peek() else { return Stand::Unknown };
    match majorities.any(|(first, last)| (first..=last).contains(&0)) {
        true => Stand::Among,
        false => Stand::Against(first + (last - first) / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn verdict(ahead_ms: &[i64]) -> (bool, u64) {
        let ClockVerdict { is_refused, apart_ms } = judge(&mut ahead_ms.to_vec(), 60_000);
        (is_refused, apart_ms)
    }

    #[test]
    fn a_clock_is_refused_by_a_majority_that_agrees() {
        assert_eq!(verdict(&[-HOUR, -HOUR]), (true, HOUR as u64), "an hour ahead of both");
        assert_eq!(verdict(&[HOUR, HOUR + 60_000]), (true, HOUR as u64 + 60_000));
        assert_eq!(verdict(&[0, HOUR]), (false, HOUR as u64), "the other one is wrong");
        assert_eq!(verdict(&[HOUR, HOUR, HOUR, -5]), (true, HOUR as u64), "three of five");
        assert_eq!(verdict(&[HOUR, HOUR, 5]), (false, HOUR as u64), "two of four");
    }

    #[test]
    fn nobody_knows_which_of_two_is_right_or_of_many_that_all_differ() {
        assert_eq!(verdict(&[]), (false, 0));
        assert_eq!(verdict(&[HOUR]), (false, HOUR as u64));
        assert_eq!(verdict(&[HOUR, -HOUR]), (false, HOUR as u64));
        assert_eq!(verdict(&[HOUR, 2 * HOUR, 3 * HOUR, -HOUR]), (false, 3 * HOUR as u64));
    }

    #[test]
    fn the_bound_is_between_the_clocks_of_a_majority() {
        assert_eq!(verdict(&[60_000, 60_000]), (false, 60_000));
        assert_eq!(verdict(&[60_001, 60_001]), (true, 60_001));
        assert_eq!(verdict(&[-60_001, -60_001]), (true, 60_001));
        assert_eq!(verdict(&[-60_001, -30_000]), (false, 60_001), "it agrees with one of two");
        assert_eq!(verdict(&[i64::MIN, i64::MAX]), (false, 1 << 63), "nonsense is survived");
    }
}
