//! Which records are dead letters, and how they are counted.

use super::letters::{Age, Letters};
use super::{Record, Records};
use crate::base::ids::Slot;

impl Records {
    /// The dead letters.
    pub fn letters(&self) -> &Letters {
        &self.letters
    }

    fn age_of(&self, record: &Record) -> (Age, u64) {
        let letter = self.content_of(record).attributes().letter;
        let bytes = self.content_bytes(record) as u64;
        ((letter.map_or(0, |letter| letter.given_up_ms), record.id), bytes)
    }

    /// Counts a letter that has been put at a slot.
    #[cold]
    pub(super) fn enter_letter(&mut self, slot: Slot) {
        let counted = self.age_of(self.slab.get(slot));
        self.letters.enter(counted, slot);
    }

    /// Counts a letter less. Its content is still there.
    #[cold]
    pub(super) fn leave_letter(&mut self, record: &Record) {
        let counted = self.age_of(record);
        self.letters.leave(counted);
    }
}
