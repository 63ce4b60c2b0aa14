//! Which segment is emptied, and when. The oldest segment is emptied first: what is live in it is
//! appended again, from memory. So a later entry of a timer never loses the entry before it, and a
//! tombstone goes only when everything older than it is gone.
//!
//! 1. The slots are looked at, a portion at a time. Those whose timer stands in the segment are
//!    noted as changed.
//! 2. When all of them are on the disk, a state is appended that does not need the segment.
//! 3. When that is on the disk, the file is free for another segment.

// May panic: assertions 3.
// Why it does not: ordered 3.

use crate::base::ids::Slot;

use super::{Position, SegmentNumber};

/// Segments that a journal may have beyond its live bytes before it begins to empty one.
const SEGMENTS_FREE: u64 = 1;

/// How far the emptying of a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing is to be emptied.
    #[default]
    Idle,
    /// Slots from this one on are to be looked at.
    Looking(Slot),
    /// All that was live is noted. It is on the disk when this position is durable.
    Noted(Position),
    /// A state without the segment is in this write.
    Stated(u64),
}

/// The segments of a journal from the oldest on, and the emptying of the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compaction {
    oldest: SegmentNumber,
    segment_bytes: u64,
    phase: Phase,
    /// Whether records stand in segments of an earlier layout. These are appended first.
    is_moving: bool,
}

impl Compaction {
    /// The compaction of a journal whose oldest segment is given. `is_moving`: records stand in
    /// segments of an earlier layout, which have the number 0 here.
    pub fn new(oldest: SegmentNumber, segment_bytes: u64, is_moving: bool) -> Self {
        Self { oldest, segment_bytes, phase: Phase::Idle, is_moving }
    }

    /// The segment that is emptied, when one is.
    pub fn emptied(&self) -> SegmentNumber {
        if self.is_moving { SegmentNumber(0) } else { self.oldest }
    }

    /// The oldest segment that is needed.
    pub fn oldest(&self) -> SegmentNumber {
        self.oldest
    }

    /// How far the emptying of the oldest segment is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins to empty the oldest segment if the journal has become too long: longer than twice its
    /// live bytes and one segment. `present` is the segment that is filled; it is never emptied.
    pub fn begin(&mut self, present: SegmentNumber, live_bytes: u64) {
        if self.is_moving && self.phase == Phase::Idle {
            self.phase = Phase::Looking(Slot(0));
            return;
        }
        let used = (present.0 + 1).saturating_sub(self.oldest.0) * self.segment_bytes;
        // At least one segment: so a journal that is longer has one before the present.
        let most = 2 * live_bytes + SEGMENTS_FREE * self.segment_bytes;
        if self.phase == Phase::Idle && used > most {
            self.phase = Phase::Looking(Slot(0));
        }
    }

    /// Tells up to which slot was looked; `None`: up to the last, and all that was live in the
    /// segment is noted at or below `position`.
    pub fn looked(&mut self, next: Option<Slot>, position: Position) {
        assert!(matches!(self.phase, Phase::Looking(_)), "a look was taken");
        self.phase = next.map_or(Phase::Noted(position), Phase::Looking);
    }

    /// Tells that a state without the oldest segment is in the write with this number.
    pub fn stated(&mut self, write: u64) {
        assert!(matches!(self.phase, Phase::Noted(_)), "the live timers were noted");
        self.phase = Phase::Stated(write);
    }

    /// The oldest segment that will be needed when the present one is emptied.
    pub fn oldest_after(&self) -> SegmentNumber {
        if self.is_moving { self.oldest } else { self.oldest.next() }
    }

    /// Ends the emptying. Returns the segment whose file is free; `None`: the earlier layout is.
    pub fn end(&mut self) -> Option<SegmentNumber> {
        assert!(matches!(self.phase, Phase::Stated(_)), "a state without it was appended");
        self.phase = Phase::Idle;
        if std::mem::take(&mut self.is_moving) {
            return None;
        }
        let emptied = self.oldest;
        self.oldest = emptied.next();
        Some(emptied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_segment_is_emptied_when_the_journal_is_too_long() {
        let mut compaction = Compaction::new(SegmentNumber(3), 100, false);
        compaction.begin(SegmentNumber(7), 200);
        assert_eq!(compaction.phase(), Phase::Idle, "500 bytes of 200 live");
        compaction.begin(SegmentNumber(8), 200);
        assert_eq!(compaction.phase(), Phase::Looking(Slot(0)));
        compaction.looked(Some(Slot(40)), Position(9));
        assert_eq!(compaction.phase(), Phase::Looking(Slot(40)));
        compaction.looked(None, Position(10));
        assert_eq!(compaction.phase(), Phase::Noted(Position(10)));
        compaction.stated(77);
        assert_eq!(compaction.phase(), Phase::Stated(77));
        assert_eq!(compaction.end(), Some(SegmentNumber(3)));
        assert_eq!((compaction.oldest(), compaction.phase()), (SegmentNumber(4), Phase::Idle));
    }

    #[test]
    fn the_segment_that_is_filled_is_never_emptied() {
        let mut compaction = Compaction::new(SegmentNumber(1), 100, false);
        compaction.begin(SegmentNumber(1), 0);
        assert_eq!(compaction.phase(), Phase::Idle);
        compaction.begin(SegmentNumber(3), 0);
        assert_eq!(compaction.phase(), Phase::Looking(Slot(0)));
    }

    #[test]
    fn a_journal_has_twice_its_live_bytes_and_a_segment() {
        for (live_bytes, phase) in [(253, Phase::Idle), (252, Phase::Looking(Slot(0)))] {
            let mut compaction = Compaction::new(SegmentNumber(1), 101, false);
            compaction.begin(SegmentNumber(6), live_bytes);
            assert_eq!(compaction.phase(), phase, "606 bytes of {live_bytes} live");
        }
    }

    #[test]
    fn an_earlier_layout_is_emptied_first() {
        let mut compaction = Compaction::new(SegmentNumber(1), 100, true);
        compaction.begin(SegmentNumber(0), 1_000);
        assert_eq!(compaction.phase(), Phase::Looking(Slot(0)));
        assert_eq!(compaction.emptied(), SegmentNumber(0));
        compaction.looked(None, Position(1));
        assert_eq!(compaction.oldest_after(), SegmentNumber(1));
        compaction.stated(1);
        assert_eq!(compaction.end(), None);
        assert_eq!(compaction.emptied(), SegmentNumber(1));
    }
}
