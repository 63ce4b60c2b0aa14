//! What a callback says of its timer besides the pop: `X-Timer-Id`, `X-Due-Time`, `X-Attempt`.

// Reads the wall clock: told 1.

use crate::base::time::{Now, Tick, WallMs};

use super::Shard;
use super::effects::Attempt;
use super::records::Record;

/// What a callback says of its timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToldTimer {
    /// The replication factor, for the id.
    pub factor: u8,
    /// The filter of the replicas, for the id.
    pub filter: u64,
    /// When the pop was due.
    pub due: WallMs,
    /// Which attempt of this node at this pop it is, from 1.
    pub attempt: u16,
}

impl Shard {
    /// What the callback of an attempt says of its timer. Call it before the next event.
    #[inline]
    pub fn told_timer(&self, now: Now, attempt: &Attempt) -> ToldTimer {
        let record = self.records.get(attempt.ticket.slot);
        let placement = self.records.placement_of(record);
        ToldTimer {
            factor: placement.factor,
            filter: self.peers.view.filter_of(&placement.replicas),
            due: self.due_by_wall(now, record, attempt.due),
            attempt: attempt.number,
        }
    }

    /// When the present pop of a record was due, by the wall clock. `due` is when it was due by the
    /// clock by which timers run.
    #[inline]
    pub(super) fn due_by_wall(&self, now: Now, record: &Record, due: Tick) -> WallMs {
        let written = match self.records.has_attributes(record) {
            true => self.written_due(record),
            false => None,
        };
        let late_ms = now.mono.tick_floor() - due;
        written.unwrap_or(WallMs(now.wall.0.saturating_sub(late_ms)))
    }

    /// The moment that the client wrote for the present pop. It is exact; the clock by which timers
    /// run is not the wall clock, and may differ from it by some milliseconds. `None`: there is
    /// none, or the pop is made at another moment.
    #[cold]
    fn written_due(&self, record: &Record) -> Option<WallMs> {
        let attributes = self.attributes_of(record);
        let is_acted = attributes.acted.is_some_and(|acted| acted.pop == record.sequence + 1);
        if attributes.replay.is_some() || is_acted {
            return None;
        }
        let written_ms = attributes.cron.map(|cron| cron.due_ms).or(attributes.at_ms)?;
        let spread_ms = self.records.content_of(record).spread_ms(record.id);
        Some(WallMs(written_ms.saturating_add(spread_ms)))
    }
}
