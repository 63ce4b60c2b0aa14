//! When a peer said something, by this node's clock. A frame may be under way for long, or wait
//! until this node gets to it: then what it says of the peer's clocks is old. It is no older than
//! what it answers.

use crate::base::time::MonoNs;

/// How much two clocks may move apart: a nanosecond in so many (500 ppm).
const DRIFT_SHARE: u64 = 2_000;

/// What is known of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timing {
    is_begun: bool,
    /// When the frame left whose answer is awaited, and the number behind its messages. `None`: it
    /// was the first frame, and whatever the peer says is said after that.
    asked: Option<(MonoNs, Option<u32>)>,
    /// This node's monotonic clock minus the peer's in ns, never more than that, and when that was
    /// found out.
    least: Option<(i64, MonoNs)>,
}

impl Timing {
    /// Notes a frame that leaves. `behind` is the number behind its last message; `None`: it has
    /// none. Which heartbeat an empty answer is for nobody can tell.
    pub fn sent(&mut self, now: MonoNs, behind: Option<u32>) {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if self.asked.is_none() && (is_first || behind.is_some()) {
            self.asked = Some((now, behind.filter(|_| !is_first)));
        }
    }

    /// Notes a frame that came at `now` and left at `sent_at` by the peer's clock. It answers the
    /// messages before the number `last`. Returns for how many ns it was under way, at most. A
    /// peer can say any time: the result is of use to judge that peer's other words alone.
    pub fn came(&mut self, now: MonoNs, sent_at: MonoNs, last: u32) -> u64 {
        let ahead_ns = |own: MonoNs| own.0.wrapping_sub(sent_at.0) as i64;
        let known = self.least.map(|(least_ns, at)| {
            let drift_ns = now.since_ns(at) / DRIFT_SHARE;
            least_ns.saturating_sub_unsigned(drift_ns)
        });
        let is_answered = |behind: u32| last.wrapping_sub(behind) as i32 >= 0;
        let answered = self.asked.filter(|(_, behind)| behind.is_none_or(is_answered));
        if let Some((left_at, _)) = answered {
            self.asked = None;
            let least_ns = known.map_or(ahead_ns(left_at), |known| known.max(ahead_ns(left_at)));
            self.least = Some((least_ns, now));
            return ahead_ns(now).saturating_sub(least_ns).max(0) as u64;
        }
        // Without anything that was asked, nobody knows.
        known.map_or(u64::MAX, |known| ahead_ns(now).saturating_sub(known).max(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The peer's clock when this node's shows so many milliseconds.
    fn peer(ms: u64) -> MonoNs {
        MonoNs((ms + 7_000) * MS)
    }

    fn own(ms: u64) -> MonoNs {
        MonoNs(ms * MS)
    }

    #[test]
    fn what_comes_late_may_have_left_late_or_early() {
        let mut timing = Timing::default();
        timing.sent(own(100), None);
        // 1 ms there, 2 ms back.
        assert_eq!(timing.came(own(103), peer(101), 0), 3 * MS, "one round trip");
        // Stopped for a minute: what the peer said 99 ms after that comes at the end.
        timing.sent(own(200), None);
        let late_ns = timing.came(own(60_300), peer(202), 0);
        assert!((60_098 * MS..60_200 * MS).contains(&late_ns), "{late_ns}");
        let prompt_ns = timing.came(own(60_301), peer(60_300), 0);
        assert!((MS..40 * MS).contains(&prompt_ns), "the clocks may have drifted: {prompt_ns}");
    }

    #[test]
    fn messages_tell_it_anew() {
        let mut timing = Timing::default();
        timing.sent(own(0), None);
        assert_eq!(timing.came(own(50), peer(40), 0), 50 * MS);
        timing.sent(own(1_000), Some(9));
        timing.sent(own(2_000), Some(12));
        let other = timing.came(own(2_001), peer(2_000), 8);
        assert!(other >= 41 * MS, "an answer to what was sent before: {other}");
        let answer = timing.came(own(2_002), peer(2_000), 9);
        assert!(answer < 45 * MS, "{answer}");
        timing.sent(own(90_000), Some(13));
        assert_eq!(timing.came(own(90_002), peer(90_001), 13), 2 * MS);
    }

    #[test]
    fn nonsense_is_survived() {
        let mut timing = Timing::default();
        assert_eq!(timing.came(own(1), peer(1), 0), u64::MAX, "nothing was asked");
        for sent_at in [0, 1, u64::MAX, 1 << 63] {
            timing.sent(MonoNs(u64::MAX), Some(7));
            timing.came(MonoNs(5), MonoNs(sent_at), 7);
            timing.came(MonoNs(u64::MAX), MonoNs(sent_at), 6);
        }
    }
}
