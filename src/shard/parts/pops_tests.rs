//! For how long a failing pop is remembered.

use super::*;

/// A pop is remembered in its window of 8 s and in the next one.
#[test]
fn the_oldest_pop_seen_failing_is_remembered_for_two_windows() {
    let mut oldest = OldestFailing::default();
    assert_eq!(oldest.get(Tick(1)), None);
    oldest.see(Tick(30));
    oldest.see(Tick(20));
    oldest.see(Tick(40));
    for (at, seen) in [(7_999, Some(20)), (8_000, Some(20)), (15_999, Some(20)), (16_000, None)] {
        assert_eq!(oldest.get(Tick(at)), seen.map(Tick), "{at}");
    }
}
