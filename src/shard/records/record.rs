//! One timer as the slab holds it: 64 bytes. With 16 bytes of links and about 14 of index a timer
//! takes 94 bytes and the payload.

// May panic: assertions 1, indices 6.
// Why it does not: fixed 6, compiled 1.

use crate::base::ids::TimerId;
use crate::base::time::Tick;
use crate::store::payloads::PayloadRef;
use crate::timer::schedule::Schedule;
use crate::timer::version::{StateKey, Version};

use super::authorities::AuthorityId;
use super::placements::PlacementId;

/// Where a record is in its life. The state says in which list the slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Waits for its next pop, in the wheel.
    Armed,
    /// Is due and waits for a place at its host, in the host's list.
    Ready,
    /// Its callback runs; in no list.
    InFlight,
    /// Waits for the next attempt, in the wheel, because its callback failed or its host is in
    /// trouble.
    BackingOff,
    /// Waits in the wheel until the next rank tells of the pop, or until the pop is taken back. The
    /// pop failed here, or came too late.
    HandedOver,
    /// A client has paused it. It is in no list and waits for a client. A callback of before may
    /// still run.
    Paused,
    /// A pop that was given up, kept as a dead letter until its time is over, in the wheel. It does
    /// not pop.
    Parked,
    /// Deleted, or popped for the last time. Waits for its end, in the wheel.
    Tombstone,
}

impl State {
    /// The states of a timer that has pops left, and of a dead letter.
    pub const LIVE: [State; 7] = [
        State::Armed,
        State::Ready,
        State::InFlight,
        State::BackingOff,
        State::HandedOver,
        State::Paused,
        State::Parked,
    ];
    /// The states of a timer that has pops left.
    pub const POPPING: [State; 6] = [
        State::Armed,
        State::Ready,
        State::InFlight,
        State::BackingOff,
        State::HandedOver,
        State::Paused,
    ];
    /// The states in which a slot is in the wheel.
    pub const FILED: [State; 5] =
        [State::Armed, State::BackingOff, State::HandedOver, State::Parked, State::Tombstone];
}

/// A timer or a tombstone.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub id: TimerId,
    pub version: Version,
    pub start: Tick,
    pub interval_ms: u64,
    pub repeat_for: Ms45,
    /// Pops done.
    pub sequence: u64,
    pub payload: PayloadRef,
    /// The nodes that hold the timer, and the order in which they act.
    pub placement: PlacementId,
    /// The authority of the callback host; `NONE` in a tombstone.
    pub authority: AuthorityId,
    pub state: State,
    /// Failed attempts at the present pop.
    pub attempts: u8,
}

/// Milliseconds in six bytes, without alignment: up to 1 100 years, of which a timer uses 100. The
/// highest bits are marks: the timer is tallied (`super::tallies`), its content says what clients
/// did with it (`super::acted`), and a part of its content lies elsewhere (`super::commons`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ms45([u16; 3]);

/// The marks, in the last of the three.
const MARK: u16 = 0x8000;
const ACTED: u16 = 0x4000;
const COMMON: u16 = 0x2000;

impl Ms45 {
    pub const fn new(ms: u64) -> Self {
        let ms = if ms >> 45 == 0 { ms } else { (1 << 45) - 1 };
        Self([ms as u16, (ms >> 16) as u16, (ms >> 32) as u16])
    }

    #[inline]
    pub const fn get(self) -> u64 {
        let high = (self.0[2] & !(MARK | ACTED | COMMON)) as u64;
        self.0[0] as u64 | (self.0[1] as u64) << 16 | high << 32
    }

    /// The same time, with the mark or without.
    #[inline]
    pub const fn marked(self, is_marked: bool) -> Self {
        let [low, middle, high] = self.0;
        Self([low, middle, high & !MARK | (is_marked as u16) << 15])
    }

    /// The same time, with the mark that the content is to be looked at.
    pub const fn acted(self) -> Self {
        let [low, middle, high] = self.0;
        Self([low, middle, high | ACTED])
    }

    /// Whether that mark is there.
    #[inline]
    pub const fn is_acted(self) -> bool {
        self.0[2] & ACTED != 0
    }

    /// The same time, with the mark that a part of the content lies elsewhere.
    pub const fn common(self) -> Self {
        let [low, middle, high] = self.0;
        Self([low, middle, high | COMMON])
    }

    /// Whether that mark is there.
    #[inline]
    pub const fn is_common(self) -> bool {
        self.0[2] & COMMON != 0
    }

    /// Whether the mark is there.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.0[2] & MARK != 0
    }
}

const _: () = assert!(size_of::<Record>() == 64, "a record is one cache line");

impl Record {
    pub fn schedule(&self) -> Schedule {
        Schedule {
            start: self.start,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for.get(),
        }
    }

    /// When the next pop is due by the schedule, if there are pops left.
    #[inline]
    pub fn due(&self) -> Tick {
        self.schedule().due(self.sequence + 1)
    }

    pub fn key(&self) -> StateKey {
        StateKey { version: self.version, sequence: self.sequence }
    }

    pub fn is_live(&self) -> bool {
        self.state != State::Tombstone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::INTERVAL_MS_MAX;

    #[test]
    fn six_bytes_hold_every_time_that_a_timer_can_have() {
        for ms in [0, 1, 65_535, 65_536, 1 << 32, INTERVAL_MS_MAX, (1 << 45) - 1] {
            let time = Ms45::new(ms);
            assert_eq!((time.get(), time.is_marked()), (ms, false));
            let marked = time.marked(true);
            assert_eq!((marked.get(), marked.is_marked()), (ms, true));
            assert_eq!(marked.marked(false), time);
            let acted = time.acted();
            assert_eq!((acted.get(), acted.is_marked(), acted.is_acted()), (ms, false, true));
            assert!(acted.marked(true).is_acted() && !time.is_acted());
            let common = time.common();
            assert_eq!((common.get(), common.is_common(), common.is_acted()), (ms, true, false));
            assert!(common.acted().marked(true).is_common() && !acted.is_common());
        }
        assert_eq!(Ms45::new(u64::MAX).get(), (1 << 45) - 1);
    }
}
