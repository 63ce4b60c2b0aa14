//! How far this node's monotonic clock is ahead of a peer's, computed from the frames of that peer.
//!
//! Every frame says when it left. The least difference `received - sent` of the last seconds is the
//! offset plus the least delay of the network. A peer's start that is converted with it is never
//! before the true start, so a timer never pops early. A timer is late by that least delay at most
//! (tens of microseconds), even when frames queue.

use crate::base::time::{MonoNs, TICK_NS};

/// Length of a window in ms. The present window and the former one count. At 500 ppm of drift the
/// clocks move apart by 2 ms in two windows.
pub const WINDOW_MS: u64 = 2_000;

const WINDOW_NS: u64 = WINDOW_MS * TICK_NS;

/// The offset to one peer. A peer that starts again (another incarnation) needs a new
/// `ClockOffset`, because the peer's clock may have started again, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    present_ns: Option<i64>,
    former_ns: Option<i64>,
    turned_at: MonoNs,
}

impl ClockOffset {
    /// Takes note of a frame that left at `sent_at` (the peer's clock) and came at `now`. A hostile
    /// peer can say any time, so a caller that adds the offset to a time must saturate.
    pub fn see(&mut self, now: MonoNs, sent_at: MonoNs) {
        self.turn(now);
        let difference_ns = now.0.wrapping_sub(sent_at.0) as i64;
        self.present_ns = Some(self.present_ns.map_or(difference_ns, |d| d.min(difference_ns)));
    }

    /// Returns this node's clock minus the peer's clock in ns, never less than the true offset.
    /// `None` before the first frame. While the peer is silent the last known offset stays.
    pub fn offset_ns(&self) -> Option<i64> {
        match (self.present_ns, self.former_ns) {
            (Some(present), Some(former)) => Some(present.min(former)),
            (present, former) => present.or(former),
        }
    }

    /// Begins a new window when `now` lies in one. Windows begin at whole multiples of their
    /// length, so no frame older than two windows counts, whenever frames come.
    fn turn(&mut self, now: MonoNs) {
        let window_at = MonoNs(now.0 - now.0 % WINDOW_NS);
        let passed_ns = window_at.since_ns(self.turned_at);
        if passed_ns == 0 {
            return;
        }
        self.former_ns = if passed_ns == WINDOW_NS { self.present_ns } else { None };
        self.present_ns = None;
        self.turned_at = window_at;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_least_difference_of_two_windows(
            frames in proptest::collection::vec((0..900_u64, 0..50_000_000_u64), 1..200),
            truth in -(1_i64 << 50)..1 << 50,
        ) {
            let mut offset = ClockOffset::default();
            let mut now = MonoNs(1 << 55);
            let mut seen: Vec<(u64, i64)> = Vec::new();
            for (pause_ms, delay_ns) in frames {
                now = now.plus_ms(pause_ms * pause_ms / 100);
                let sent_at = MonoNs((now.0 as i64 - truth - delay_ns as i64) as u64);
                offset.see(now, sent_at);
                seen.push((now.0 / WINDOW_NS, truth + delay_ns as i64));
                let window = now.0 / WINDOW_NS;
                let expected = seen.iter().filter(|(at, _)| at + 1 >= window).map(|(_, d)| *d);
                prop_assert_eq!(offset.offset_ns(), expected.min());
                prop_assert!(offset.offset_ns() >= Some(truth));
            }
        }
    }

    #[test]
    fn knows_nothing_before_the_first_frame_and_survives_nonsense() {
        let mut offset = ClockOffset::default();
        assert_eq!(offset.offset_ns(), None);
        for sent_at in [0, 1, u64::MAX, 1 << 63] {
            offset.see(MonoNs(5), MonoNs(sent_at));
            offset.see(MonoNs(u64::MAX), MonoNs(sent_at));
        }
        assert!(offset.offset_ns().is_some());
    }
}
