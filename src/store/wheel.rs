//! The timer wheel: three doubled levels, the next coarse slot drained a little per tick (architecture section 5).

use super::links::Links;
use crate::base::ids::Slot;
use crate::base::time::Tick;

/// Slots per level before doubling, finest first; each a power of two. Production: 4096 / 1024 / 1024 ticks of 1 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry(pub [u32; 3]);

impl Geometry {
    /// 1 ms, ~4.1 s, ~70 min.
    pub const PRODUCTION: Geometry = Geometry([4096, 1024, 1024]);
    /// So small that the simulator meets every edge.
    pub const TINY: Geometry = Geometry([16, 8, 4]);
}

/// How far an [`Wheel::advance`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advanced {
    /// Whether the wheel stands at the tick asked for (false: the bound on due slots was reached, call again).
    pub caught_up: bool,
    /// Entries touched without being popped (drained, refiled).
    pub moved: u64,
}

/// The wheel of one shard. Holds list heads and occupancy bitmaps; the entries live in [`Links`].
pub struct Wheel;

impl Wheel {
    /// An empty wheel that stands at `now`: everything due at or before it pops at the next advance.
    pub fn new(_geometry: Geometry, _now: Tick) -> Self {
        todo!()
    }

    /// Files a slot that is in no list. A due tick in the past pops at the next advance. No maximum delay.
    pub fn insert(&mut self, _links: &mut Links, _slot: Slot, _due: Tick) {
        todo!()
    }

    /// Changes the due tick of a slot in the wheel. A later one is only written down and refiled when the old place comes up.
    pub fn rearm(&mut self, _links: &mut Links, _slot: Slot, _due: Tick) {
        todo!()
    }

    /// Takes a slot out; it must be in the wheel.
    pub fn remove(&mut self, _links: &mut Links, _slot: Slot) {
        todo!()
    }

    /// The due tick of a slot in the wheel.
    pub fn due(&self, _links: &Links, _slot: Slot) -> Tick {
        todo!()
    }

    /// Turns to `now` (not back), appending at most `due_max` slots that have come due to `due`, oldest tick first; they are in no list afterwards.
    pub fn advance(
        &mut self,
        _links: &mut Links,
        _now: Tick,
        _due_max: usize,
        _due: &mut Vec<Slot>,
    ) -> Advanced {
        todo!()
    }

    /// When `advance` should next be called: never later than the earliest due tick, earlier when draining must go on;
    /// `None` when nothing is filed.
    pub fn next_wake(&self) -> Option<Tick> {
        todo!()
    }

    /// Entries in the wheel.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held, links not counted.
    pub fn bytes(&self) -> usize {
        todo!()
    }
}
