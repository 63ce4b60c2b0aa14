//! The age of a timer, which is told in place of its start to a node that knows nothing of this
//! node's clock.
//!
//! The start of a dead letter lies in the future: there its time is over. So an age may be below 0.
//! It is told as a complement then, as the processor writes numbers below 0, within the range of
//! starts.

use crate::base::time::Tick;
use crate::timer::definition::spread_ms;
use crate::wire::peer_message::{START_MS_MAX, TimerCopy};

/// The age at a tick of a timer whose copy has its start.
pub fn age_of(tick: Tick, copy: &TimerCopy<'_>) -> u64 {
    let since = tick.0 + spread_of(copy);
    match copy.start_ms <= since {
        true => since - copy.start_ms,
        false => START_MS_MAX - (copy.start_ms - since).min(START_MS_MAX / 2),
    }
}

/// The start of a timer whose copy has its age at a tick.
pub fn start_of(tick: Tick, copy: &TimerCopy<'_>) -> Tick {
    let since = tick + spread_of(copy);
    match copy.start_ms <= START_MS_MAX / 2 {
        true => Tick(since - Tick(copy.start_ms)),
        false => (since + (START_MS_MAX - copy.start_ms)).min(Tick(START_MS_MAX)),
    }
}

/// How much later than its definition says a timer pops, which its start tells.
fn spread_of(copy: &TimerCopy<'_>) -> u64 {
    copy.body.map_or(0, |body| spread_ms(copy.standing.id, body.content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::base::ranked::{Replicas, Sites};
    use crate::wire::peer_message::Standing;

    fn copy(start_ms: u64) -> TimerCopy<'static> {
        TimerCopy {
            standing: Standing {
                id: TimerId(1),
                version: 1,
                sequence: 0,
                actives: 0,
                list_digest: 0,
            },
            is_write: false,
            replicas: Replicas::default(),
            factor: 2,
            sites: Sites::default(),
            start_ms,
            interval_ms: 0,
            repeat_for_ms: 0,
            body: None,
        }
    }

    #[test]
    fn a_start_in_the_future_is_told_as_one_in_the_past_is() {
        for start_ms in [0, 1, 4_999, 5_000, 5_001, 7 * 86_400_000, START_MS_MAX / 2] {
            let age_ms = age_of(Tick(5_000), &copy(start_ms));
            assert!(age_ms <= START_MS_MAX, "a peer takes no more");
            // The other node has run for longer.
            let start = start_of(Tick(105_000), &copy(age_ms));
            assert_eq!(start, Tick(100_000 + start_ms));
        }
    }

    #[test]
    fn no_age_is_beyond_what_a_peer_takes() {
        for (tick, told) in [(0, START_MS_MAX), (5, 0), (START_MS_MAX, START_MS_MAX / 2 + 1)] {
            assert!(age_of(Tick(tick), &copy(told)) <= START_MS_MAX);
            assert!(start_of(Tick(tick), &copy(told)).0 <= START_MS_MAX);
        }
        assert_eq!(start_of(Tick(5), &copy(6)), Tick(0), "older than this node's clock");
    }
}
