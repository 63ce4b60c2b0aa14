//! Decides whether a peer lives, by when the peer was last heard, and when to dial it.
//!
//! - A peer is alive until it has been silent for `suspect_after_ms`.
//! - After that it is suspected: writes no longer wait for it.
//! - After `dead_after_ms` of silence it is dead: other nodes take its ranks.
//! - A connection that breaks, or a dial that is refused, makes a peer suspected at once.

// May panic: expectations 1.
// Why it does not: ordered 1.

use crate::base::limits::ClusterLimits;
use crate::base::time::{MonoNs, TICK_NS};

/// The first pause in ms after a failed dial or a broken connection. Every further failure doubles
/// it.
pub const DIAL_PAUSE_MS_FIRST: u64 = 50;
/// The longest pause in ms between two dials.
pub const DIAL_PAUSE_MS_MAX: u64 = 500;
/// How long a dial and its Upgrade may take, in ms. Within a site a handshake takes milliseconds
/// unless its packets are lost. The kernel repeats lost packets after 1, 3 and 7 s: without this
/// bound a peer that returns would be heard late.
pub const DIAL_MS_MAX: u64 = 1_000;

/// What a core believes of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Liveness {
    /// The peer was heard within the last `suspect_after_ms`.
    Alive,
    /// The peer has been silent for `suspect_after_ms`, or its connection broke, or it was never
    /// heard.
    Suspect,
    /// The peer has been silent for `dead_after_ms`.
    Dead,
}

/// The state of the connection that this side dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// There is no connection. The next dial is at `dial_at`.
    Down { dial_at: MonoNs },
    /// A dial is under way. It is given up at `give_up_at`.
    Dialling { give_up_at: MonoNs },
    /// The connection is open.
    Up,
}

/// The detector and dialler of one peer.
#[derive(Clone, Copy, Debug)]
pub struct Detector {
    heard_at: MonoNs,
    liveness: Liveness,
    line: Line,
    pause_ms: u64,
}

/// What the driver is to do about a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The belief about the peer changed to this.
    pub changed: Option<Liveness>,
    /// Dial the peer now.
    pub dial: bool,
    /// Close the connection, because the peer was silent on it until it was declared dead. Or give
    /// up the dial, because it has taken [`DIAL_MS_MAX`]. The detector already counts the
    /// connection as lost: a call of [`Detector::lost`] is not needed and does no harm.
    pub close: bool,
}

impl Detector {
    /// A detector of a peer that was never heard. The peer is suspected, and dead in
    /// `dead_after_ms` from now unless it is heard. The first [`Detector::tick`] asks for a dial.
    pub fn new(now: MonoNs) -> Self {
        Self {
            heard_at: now,
            liveness: Liveness::Suspect,
            line: Line::Down { dial_at: now },
            pause_ms: DIAL_PAUSE_MS_FIRST,
        }
    }

    /// What this core believes of the peer at present.
    pub fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Tells the detector the time. Call it at [`Detector::next_wake`] or earlier.
    pub fn tick(&mut self, now: MonoNs, limits: &ClusterLimits) -> Verdict {
        let mut verdict = Verdict { changed: self.silence(now, limits), ..Verdict::default() };
        match self.line {
            Line::Up if self.liveness == Liveness::Dead => {
                verdict.close = true;
                self.line = Line::Down { dial_at: now.plus_ms(DIAL_PAUSE_MS_FIRST) };
            }
            Line::Dialling { give_up_at } if now >= give_up_at => {
                verdict.close = true;
                self.line = Line::Down { dial_at: now.plus_ms(DIAL_PAUSE_MS_FIRST) };
            }
            Line::Down { dial_at } if now >= dial_at => {
                verdict.dial = true;
                self.line = Line::Dialling { give_up_at: now.plus_ms(DIAL_MS_MAX) };
            }
            _ => {}
        }
        verdict
    }

    /// Tells that this core itself got no time until `now`, so that it could hear nobody. Silence
    /// counts from `now`. Beliefs do not change until connections tell otherwise: a dead peer stays
    /// dead.
    pub fn was_away(&mut self, now: MonoNs) {
        if self.liveness != Liveness::Dead {
            self.heard_at = now;
        }
    }

    /// Tells that a dial succeeded. The peer's process answered, so the peer is alive.
    pub fn connected(&mut self, now: MonoNs) -> Verdict {
        self.line = Line::Up;
        self.alive(now)
    }

    /// Tells that bytes came over the connection that this side dialled. Bytes on the connection
    /// that the peer dialled do not count, because they do not show that the peer hears. The call
    /// is ignored while no connection is open: bytes that were under way when the connection was
    /// closed mean nothing.
    pub fn heard(&mut self, now: MonoNs) -> Verdict {
        if self.line != Line::Up {
            return Verdict::default();
        }
        self.pause_ms = DIAL_PAUSE_MS_FIRST;
        self.alive(now)
    }

    /// Tells that a dial failed or the connection broke. The peer is suspected at once and dialled
    /// again after a pause. The pause is 50 ms, doubled with each failure up to 500 ms, until bytes
    /// come over a connection. `spread` is any random number; it takes off up to half of the pause.
    /// Nothing happens when the loss is known already.
    pub fn lost(&mut self, now: MonoNs, spread: u64) -> Verdict {
        if let Line::Down { .. } = self.line {
            return Verdict::default();
        }
        let half_ns = self.pause_ms * TICK_NS / 2;
        let pause_ns = half_ns + spread % (half_ns + 1);
        self.line = Line::Down { dial_at: MonoNs(now.0.saturating_add(pause_ns)) };
        self.pause_ms = (self.pause_ms * 2).min(DIAL_PAUSE_MS_MAX);
        if self.liveness != Liveness::Alive {
            return Verdict::default();
        }
        self.liveness = Liveness::Suspect;
        Verdict { changed: Some(Liveness::Suspect), ..Verdict::default() }
    }

    /// When [`Detector::tick`] should next be called.
    pub fn next_wake(&self, limits: &ClusterLimits) -> MonoNs {
        let line = match self.line {
            Line::Down { dial_at } => Some(dial_at),
            Line::Dialling { give_up_at } => Some(give_up_at),
            Line::Up => None,
        };
        let silence_ms = match self.liveness {
            Liveness::Alive => Some(limits.suspect_after_ms.min(limits.dead_after_ms)),
            Liveness::Suspect => Some(limits.dead_after_ms),
            Liveness::Dead => None,
        };
        let silence = silence_ms.map(|ms| self.heard_at.plus_ms(ms));
        let next = line.into_iter().chain(silence).min();
        next.expect("a dead peer has no open connection: it is about to be dialled")
    }

    fn alive(&mut self, now: MonoNs) -> Verdict {
        self.heard_at = now;
        let changed = (self.liveness != Liveness::Alive).then_some(Liveness::Alive);
        self.liveness = Liveness::Alive;
        Verdict { changed, ..Verdict::default() }
    }

    /// Applies silence to the belief, which silence never improves. Returns the new belief if it
    /// changed.
    fn silence(&mut self, now: MonoNs, limits: &ClusterLimits) -> Option<Liveness> {
        let silent_since = |ms: u64| now >= self.heard_at.plus_ms(ms);
        let by_silence = if silent_since(limits.dead_after_ms) {
            Liveness::Dead
        } else if silent_since(limits.suspect_after_ms) {
            Liveness::Suspect
        } else {
            Liveness::Alive
        };
        let worse = by_silence > self.liveness;
        self.liveness = self.liveness.max(by_silence);
        worse.then_some(by_silence)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(suspect_after_ms: u64, dead_after_ms: u64) -> ClusterLimits {
        ClusterLimits { suspect_after_ms, dead_after_ms, ..ClusterLimits::default() }
    }

    /// Ticks at every `next_wake` up to `until`. Returns all verdicts.
    fn tick_to(detector: &mut Detector, until: MonoNs, limits: &ClusterLimits) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..10_000 {
            let wake = detector.next_wake(limits);
            if wake > until {
                return changes;
            }
            let verdict = detector.tick(wake, limits);
            assert_ne!(verdict, Verdict::default(), "woken for nothing at {wake:?}");
            changes.push((wake, verdict));
        }
        panic!("the detector wakes again and again");
    }

    type Change = (MonoNs, Verdict);

    fn beliefs(changes: &[Change]) -> Vec<(MonoNs, Liveness)> {
        changes.iter().filter_map(|(at, v)| v.changed.map(|changed| (*at, changed))).collect()
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(u64),
        Heard,
        Lost(u64),
        Connected,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..2_000_u64).prop_map(Step::Wait),
            3 => Just(Step::Heard),
            2 => any::<u64>().prop_map(Step::Lost),
            2 => Just(Step::Connected),
        ]
    }

    #[test]
    fn a_dial_pauses_for_half_its_bound_and_what_chance_adds() {
        let half_ns = DIAL_PAUSE_MS_FIRST * TICK_NS / 2;
        for (spread, more_ns) in
            [(0, 0), (7, 7), (half_ns, half_ns), (half_ns + 1, 0), (half_ns + 3, 2)]
        {
            let mut detector = Detector::new(MonoNs(0));
            assert!(detector.tick(MonoNs(0), &limits(1_000, 3_000)).dial);
            detector.lost(MonoNs(1_000), spread);
            assert_eq!(detector.line, Line::Down { dial_at: MonoNs(1_000 + half_ns + more_ns) });
        }
    }

    #[test]
    fn silence_while_this_core_was_away_says_nothing() {
        let (limits, start) = (limits(1_000, 3_000), MonoNs(0));
        let mut detector = Detector::new(start);
        detector.connected(start);
        let back = start.plus_ms(20_000);
        detector.was_away(back);
        assert_eq!(detector.tick(back, &limits), Verdict::default());
        assert_eq!(detector.liveness(), Liveness::Alive);
        let said = beliefs(&tick_to(&mut detector, back.plus_ms(3_000), &limits));
        let after = |ms| back.plus_ms(ms);
        assert_eq!(said, [(after(1_000), Liveness::Suspect), (after(3_000), Liveness::Dead)]);
        detector.was_away(after(9_000));
        assert_eq!(detector.liveness(), Liveness::Dead, "nobody rises by silence");
    }

    proptest! {
        #[test]
        fn suspects_and_buries_exactly_at_the_stated_times(
            suspect_after_ms in 1_u64..2_000,
            more_ms in 1_u64..4_000,
            heard_ms in proptest::collection::vec(0_u64..5_000, 0..20),
        ) {
            let limits = limits(suspect_after_ms, suspect_after_ms + more_ms);
            let mut now = MonoNs(7_000_000_123);
            let mut detector = Detector::new(now);
            prop_assert!(detector.tick(now, &limits).dial);
            prop_assert_eq!(detector.connected(now).changed, Some(Liveness::Alive));
            for pause_ms in heard_ms {
                now = now.plus_ms(pause_ms % suspect_after_ms);
                prop_assert_eq!(tick_to(&mut detector, now, &limits), vec![]);
                prop_assert_eq!(detector.heard(now), Verdict::default());
            }
            let suspect_at = now.plus_ms(suspect_after_ms);
            let dead_at = now.plus_ms(suspect_after_ms + more_ms);
            prop_assert_eq!(detector.next_wake(&limits), suspect_at);
            let early = detector.tick(MonoNs(suspect_at.0 - 1), &limits);
            prop_assert_eq!(early, Verdict::default());
            let changes = tick_to(&mut detector, dead_at, &limits);
            let expected = vec![(suspect_at, Liveness::Suspect), (dead_at, Liveness::Dead)];
            prop_assert_eq!(beliefs(&changes), expected);
            prop_assert!(changes.last().is_some_and(|(_, verdict)| verdict.close));
            prop_assert_eq!(detector.heard(dead_at), Verdict::default(), "it was closed");
        }

        /// A detector that ticks only at its `next_wake` and a detector that ticks every
        /// millisecond believe the same at every millisecond.
        #[test]
        fn never_wakes_too_late(steps in proptest::collection::vec(step(), 1..60)) {
            let limits = limits(300, 1_000);
            let mut now = MonoNs(0);
            let mut lazy = Detector::new(now);
            let mut eager = lazy;
            for step in steps {
                match step {
                    Step::Wait(ms) => for _ in 0..ms {
                        now = now.plus_ms(1);
                        let busy = eager.tick(now, &limits);
                        if lazy.next_wake(&limits) <= now {
                            prop_assert_eq!(lazy.tick(now, &limits), busy);
                        } else {
                            prop_assert_eq!(busy, Verdict::default());
                        }
                    },
                    Step::Heard => prop_assert_eq!(lazy.heard(now), eager.heard(now)),
                    Step::Lost(spread) => {
                        prop_assert_eq!(lazy.lost(now, spread), eager.lost(now, spread));
                    }
                    Step::Connected => {
                        prop_assert_eq!(lazy.connected(now), eager.connected(now));
                    }
                }
                prop_assert_eq!(lazy.liveness(), eager.liveness());
            }
        }

        #[test]
        fn pauses_between_dials_double_to_a_bound(spreads in proptest::collection::vec(
            prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 1..12,
        )) {
            let limits = ClusterLimits::default();
            let mut now = MonoNs(0);
            let mut detector = Detector::new(now);
            let mut bound_ms = DIAL_PAUSE_MS_FIRST;
            for spread in spreads {
                prop_assert!(detector.tick(now, &limits).dial);
                prop_assert!(!detector.tick(now, &limits).dial, "one dial at a time");
                detector.lost(now, spread);
                detector.lost(now, spread);
                let dialled = tick_to(&mut detector, now.plus_ms(bound_ms), &limits)
                    .into_iter()
                    .find(|(_, verdict)| verdict.dial);
                let (dialled_at, _) = dialled.expect("dialled within the bound");
                prop_assert!(dialled_at >= now.plus_ms(bound_ms / 2));
                // The next round begins with a dial of its own.
                now = dialled_at;
                detector.line = Line::Down { dial_at: now };
                bound_ms = (bound_ms * 2).min(DIAL_PAUSE_MS_MAX);
            }
        }
    }

    #[test]
    fn a_broken_connection_is_suspected_at_once_and_buried_in_time() {
        let limits = ClusterLimits::default();
        let mut detector = Detector::new(MonoNs(0));
        assert!(detector.tick(MonoNs(0), &limits).dial);
        detector.connected(MonoNs(5));
        detector.heard(MonoNs(9));
        assert_eq!(detector.lost(MonoNs(10), 3).changed, Some(Liveness::Suspect));
        assert_eq!(detector.lost(MonoNs(11), 3), Verdict::default(), "known already");
        let changes = tick_to(&mut detector, MonoNs(0).plus_ms(60_000), &limits);
        let dead_at = MonoNs(9).plus_ms(limits.dead_after_ms);
        assert_eq!(beliefs(&changes), vec![(dead_at, Liveness::Dead)]);
        assert_eq!(detector.liveness(), Liveness::Dead);
        assert_eq!(detector.connected(MonoNs(0).plus_ms(60_001)).changed, Some(Liveness::Alive));
    }

    #[test]
    fn a_peer_never_heard_of_is_dead_in_time_and_a_dial_that_hangs_is_given_up() {
        let limits = ClusterLimits::default();
        let mut detector = Detector::new(MonoNs(0));
        let changes = tick_to(&mut detector, MonoNs(0).plus_ms(10_000), &limits);
        let dead_at = MonoNs(0).plus_ms(limits.dead_after_ms);
        assert_eq!(beliefs(&changes), vec![(dead_at, Liveness::Dead)]);
        let given_up = changes.iter().filter(|(_, verdict)| verdict.close).count();
        let dialled = changes.iter().filter(|(_, verdict)| verdict.dial).count();
        assert_eq!((dialled, given_up), (10, 9), "a dial a second and its pause");
    }

    #[test]
    fn time_that_jumps_skips_suspicion() {
        let limits = ClusterLimits::default();
        let mut detector = Detector::new(MonoNs(0));
        detector.tick(MonoNs(0), &limits);
        detector.connected(MonoNs(0));
        let verdict = detector.tick(MonoNs(0).plus_ms(1 << 40), &limits);
        assert_eq!(verdict, Verdict { changed: Some(Liveness::Dead), dial: false, close: true });
    }
}
