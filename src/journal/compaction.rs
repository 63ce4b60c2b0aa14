//! Which segment is emptied, and when. The oldest segment is emptied first: what is live in it is
//! appended again, from memory. So a later entry of a timer never loses the entry before it, and a
//! tombstone goes only when everything older than it is gone.
//!
//! 1. The slots are looked at, a portion at a time. Those whose timer stands in the segment are
//!    noted as changed.
//! 2. When all of them are on the disk, a state is appended that does not need the segment.
//! 3. When that is on the disk, the file is free for another segment.

use crate::base::ids::Slot;

use super::{Position, SegmentNumber};

/// Segments that a journal may have beyond its live bytes before it begins to empty one.
const SEGMENTS_FREE: u64 = 2;

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
}

impl Compaction {
    /// The compaction of a journal whose oldest segment is given.
    pub fn new(oldest: SegmentNumber, segment_bytes: u64) -> Self {
        Self { oldest, segment_bytes, phase: Phase::Idle }
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
    /// live bytes and two segments. `present` is the segment that is filled; it is never emptied.
    pub fn begin(&mut self, present: SegmentNumber, live_bytes: u64) {
        let used = (present.0 + 1).saturating_sub(self.oldest.0) * self.segment_bytes;
        let most = 2 * live_bytes + SEGMENTS_FREE * self.segment_bytes;
        if self.phase == Phase::Idle && used > most && self.oldest < present {
            self.phase = Phase::Looking(Slot(0));
        }
    }

    /// Begins to empty the oldest segment however long the journal is: it is of a restart with
    /// another number of cores, or the disk is full.
    pub fn begin_anyway(&mut self, present: SegmentNumber) {
        if self.phase == Phase::Idle && self.oldest < present {
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

    /// Ends the emptying. Returns the segment whose file is free.
    pub fn end(&mut self) -> SegmentNumber {
        assert!(matches!(self.phase, Phase::Stated(_)), "a state without it was appended");
        let emptied = self.oldest;
        self.oldest = emptied.next();
        self.phase = Phase::Idle;
        emptied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_segment_is_emptied_when_the_journal_is_too_long() {
        let mut compaction = Compaction::new(SegmentNumber(3), 100);
        compaction.begin(SegmentNumber(7), 150);
        assert_eq!(compaction.phase(), Phase::Idle, "500 bytes of 150 live");
        compaction.begin(SegmentNumber(8), 150);
        assert_eq!(compaction.phase(), Phase::Looking(Slot(0)));
        compaction.looked(Some(Slot(40)), Position(9));
        assert_eq!(compaction.phase(), Phase::Looking(Slot(40)));
        compaction.looked(None, Position(10));
        assert_eq!(compaction.phase(), Phase::Noted(Position(10)));
        compaction.stated(77);
        assert_eq!(compaction.phase(), Phase::Stated(77));
        assert_eq!(compaction.end(), SegmentNumber(3));
        assert_eq!((compaction.oldest(), compaction.phase()), (SegmentNumber(4), Phase::Idle));
    }

    #[test]
    fn the_segment_that_is_filled_is_never_emptied() {
        let mut compaction = Compaction::new(SegmentNumber(1), 100);
        compaction.begin(SegmentNumber(1), 0);
        compaction.begin_anyway(SegmentNumber(1));
        assert_eq!(compaction.phase(), Phase::Idle);
        compaction.begin_anyway(SegmentNumber(2));
        assert_eq!(compaction.phase(), Phase::Looking(Slot(0)));
    }
}
