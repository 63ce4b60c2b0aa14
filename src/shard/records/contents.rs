//! The contents of timers. Of some a part lies with what several timers have in common
//! ([`super::commons`]). Those are read in two parts, and put together where all bytes are wanted.

// May panic: expectations 2.
// Why it does not: listed 2.

use super::{Record, Records};
use crate::base::ids::Slot;
use crate::timer::definition::{Content, has_attributes, with_attributes};

impl Records {
    /// Whether a record is of a timer that has attributes. Cost: a look at one byte of its content.
    #[inline]
    pub fn has_attributes(&self, record: &Record) -> bool {
        has_attributes(self.payloads.get(record.payload))
    }

    /// Reads of timers in these slots what a look at each of them needs, so that the looks that
    /// follow need not wait for it. No read depends on one before it.
    pub fn warm(&self, slots: impl Iterator<Item = Slot> + Clone) {
        let live = slots.filter(|slot| self.contains(*slot));
        let records = live.clone().fold(0, |seen, slot| seen ^ self.get(slot).id.0);
        let ends = |slot| {
            let content = self.payloads.get(self.get(slot).payload);
            content.first().copied().unwrap_or(0) ^ content.last().copied().unwrap_or(0)
        };
        let contents = live.fold(0, |seen, slot| seen ^ ends(slot));
        std::hint::black_box((records, contents));
    }

    /// The content of a live record.
    #[inline]
    pub fn content_of(&self, record: &Record) -> Content<'_> {
        let content = Content::decode(self.payloads.get(record.payload));
        if record.repeat_for.is_common() { self.with_common(content) } else { content }
    }

    /// The content of a record as it was given to [`Records::hold`]; empty: it is a tombstone's.
    /// `room` is used if it has to be put together.
    #[inline]
    pub fn whole_content_of<'a>(&'a self, record: &Record, room: &'a mut Vec<u8>) -> &'a [u8] {
        match record.repeat_for.is_common() {
            true => self.joined(record, room),
            false => self.payloads.get(record.payload),
        }
    }

    /// Bytes of that content.
    pub fn content_bytes(&self, record: &Record) -> usize {
        let kept_bytes = record.payload.len() as usize;
        match record.repeat_for.is_common() {
            true => kept_bytes + self.commons.spared_by(self.common_number(record)),
            false => kept_bytes,
        }
    }

    /// Gives back what the content of a record has elsewhere. It is still there.
    #[cold]
    pub(super) fn leave_commons(&mut self, record: &Record) {
        self.commons.leave(self.common_number(record));
    }

    #[cold]
    fn with_common<'a>(&'a self, content: Content<'a>) -> Content<'a> {
        let number = content.common_number().expect("the record says that it has one");
        content.with_common(self.commons.get(number))
    }

    #[cold]
    fn joined<'a>(&'a self, record: &Record, room: &'a mut Vec<u8>) -> &'a [u8] {
        room.clear();
        let content = self.content_of(record);
        with_attributes(&content, &content.encoded_attributes(), room);
        room
    }

    fn common_number(&self, record: &Record) -> u32 {
        let content = Content::decode(self.payloads.get(record.payload));
        content.common_number().expect("the record says that it has one")
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
