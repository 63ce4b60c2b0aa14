//! The JSON document of a timer (seeds/002, compat section 5), parsed with simd-json in place.

use crate::base::limits::TAGS_PER_TIMER_MAX;

/// One statistics tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag<'a> {
    /// Its name.
    pub kind: &'a str,
    /// How much it counts, at least 1.
    pub count: u32,
}

/// Up to [`TAGS_PER_TIMER_MAX`] tags, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Tags<'a> {
    items: [Tag<'a>; TAGS_PER_TIMER_MAX],
    len: usize,
}

impl<'a> Tags<'a> {
    /// No tag.
    pub const fn none() -> Self {
        Self { items: [Tag { kind: "", count: 0 }; TAGS_PER_TIMER_MAX], len: 0 }
    }

    /// Adds one; false when there is no room.
    pub fn push(&mut self, tag: Tag<'a>) -> bool {
        let Some(place) = self.items.get_mut(self.len) else { return false };
        *place = tag;
        self.len += 1;
        true
    }

    /// The tags.
    pub fn as_slice(&self) -> &[Tag<'a>] {
        &self.items[..self.len]
    }
}

/// A timer document as a client writes it; every string is JSON-unescaped and borrows the body.
#[derive(Clone, Copy, Debug)]
pub struct TimerDocument<'a> {
    /// `timing.interval`, seconds.
    pub interval_s: f64,
    /// `timing.repeat-for`, seconds.
    pub repeat_for_s: Option<f64>,
    /// `callback.http.uri`.
    pub uri: &'a str,
    /// `callback.http.opaque`.
    pub opaque: &'a str,
    /// `reliability.replication-factor`.
    pub replication_factor: Option<i64>,
    /// `statistics.tag-info`.
    pub tags: Tags<'a>,
}

/// Why a body is no timer document: one line that names the member, what was expected and what came. Answered with 400.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub std::borrow::Cow<'static, str>);

/// Memory that the parser keeps from one document to the next.
#[derive(Default)]
pub struct JsonScratch;

/// Parses a timer document in place (`body` is used as scratch: escapes are resolved in it).
pub fn parse_timer<'a>(
    _body: &'a mut [u8],
    _scratch: &'a mut JsonScratch,
) -> Result<TimerDocument<'a>, DocumentError> {
    todo!()
}
