//! The JSON document of a timer (docs/compat/timer-service.md §1.2), as clients write it. This file
//! checks types and presence. `timer::admission` checks values, such as a negative interval or a
//! factor of 17.

// May panic: indices 1.
// Why it does not: found 1.

use crate::base::limits::{TAG_BYTES_MAX, TAGS_PER_TIMER_MAX};
use crate::wire::json::{Cursor, set_once};
use crate::wire::timer_options::TimerOptions;

pub use crate::wire::json::{DocumentError, JsonScratch};

/// One statistics tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag<'a> {
    /// The tag's name, 1 to [`TAG_BYTES_MAX`] bytes in a parsed document.
    pub kind: &'a str,
    /// How much the timer counts under this name, at least 1.
    pub count: u32,
}

/// At most [`TAGS_PER_TIMER_MAX`] tags, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Tags<'a> {
    items: [Tag<'a>; TAGS_PER_TIMER_MAX],
    len: usize,
}

impl<'a> Tags<'a> {
    /// A list without tags.
    pub const fn none() -> Self {
        Self { items: [Tag { kind: "", count: 0 }; TAGS_PER_TIMER_MAX], len: 0 }
    }

    /// Adds a tag; false: the list is full, and the tag is not added.
    pub fn push(&mut self, tag: Tag<'a>) -> bool {
        let Some(place) = self.items.get_mut(self.len) else { return false };
        *place = tag;
        self.len += 1;
        true
    }

    /// The tags in the order in which they were added.
    pub fn as_slice(&self) -> &[Tag<'a>] {
        &self.items[..self.len]
    }
}

/// A timer document as a client writes it. Every string is JSON-unescaped and borrows the body.
#[derive(Clone, Debug)]
pub struct TimerDocument<'a> {
    /// `timing.interval` in seconds: any finite number; 0 if it is text or there is `timing.at`.
    pub interval_s: f64,
    /// `timing.repeat-for` in seconds: any finite number; 0 if it is text.
    pub repeat_for_s: Option<f64>,
    /// `callback.http.uri`. Empty only in a tombstone that a node sends.
    pub uri: &'a str,
    /// `callback.http.opaque`. May be empty, and may hold any character, NUL included.
    pub opaque: &'a str,
    /// `reliability.replication-factor`: any whole number; a number beyond `i64` reads as
    /// `i64::MAX`.
    pub replication_factor: Option<i64>,
    /// `statistics.tag-info`.
    pub tags: Tags<'a>,
    /// What the original service does not have; `None`: no such member is there.
    pub options: Option<Box<TimerOptions<'a>>>,
}

/// Parses a timer document in place: `body` is overwritten as its escapes are resolved.
///
/// - Unknown members are ignored, among them the members that only nodes send
///   (docs/compat/timer-service.md §5.1).
/// - A known member that comes twice is an error, because two parsers may disagree which of the two
///   counts.
/// - `callback` holds `http` and nothing else.
/// - A number above 2^64 without point or exponent is an error, and so is a number beyond the range
///   of `f64`.
/// - simd-json takes the exponent of a number modulo 2^32, so `1e4294967296` reads as 1.
///
/// Cost: one pass over the body and one pass over its tokens; no allocation once `scratch` has
/// grown to the usual size. While a body of n bytes is parsed, the parser holds up to 54 n bytes,
/// if the body consists of brackets alone.
pub fn parse_timer<'a>(
    body: &'a mut [u8],
    scratch: &'a mut JsonScratch,
) -> Result<TimerDocument<'a>, DocumentError> {
    scratch.parse(body, |cursor| read_document(cursor).map(|(document, _)| document))
}

/// The document, and whether it has members that only nodes write (`replicas` or `sites`).
pub(super) fn read_document<'a>(
    cursor: &mut Cursor<'_, 'a>,
) -> Result<(TimerDocument<'a>, bool), DocumentError> {
    let (mut timing, mut callback, mut reliability, mut tags) = (None, None, None, None);
    let mut options = TimerOptions::default();
    for _ in 0..cursor.object("body")? {
        match cursor.key() {
            "timing" => set_once(&mut timing, read_timing(cursor, &mut options)?, "timing")?,
            "callback" => {
                set_once(&mut callback, read_callback(cursor, &mut options)?, "callback")?;
            }
            "reliability" => {
                set_once(&mut reliability, read_reliability(cursor)?, "reliability")?;
            }
            "statistics" => set_once(&mut tags, read_statistics(cursor)?, "statistics")?,
            _ => cursor.skip_unknown(),
        }
    }
    let (interval_s, repeat_for_s) =
        timing.ok_or_else(|| DocumentError::missing("timing", "an object"))?;
    let (uri, opaque) = callback.ok_or_else(|| DocumentError::missing("callback", "an object"))?;
    let (replication_factor, is_internal) = reliability.unwrap_or_default();
    let tags = tags.unwrap_or(Tags::none());
    let options = (!options.is_empty()).then(|| Box::new(options));
    let document =
        TimerDocument { interval_s, repeat_for_s, uri, opaque, replication_factor, tags, options };
    Ok((document, is_internal))
}

fn read_timing<'a>(
    cursor: &mut Cursor<'_, 'a>,
    options: &mut TimerOptions<'a>,
) -> Result<(f64, Option<f64>), DocumentError> {
    const INTERVAL: &str = "timing.interval";
    const REPEAT_FOR: &str = "timing.repeat-for";
    let (mut interval, mut repeat_for) = (None, None);
    for _ in 0..cursor.object("timing")? {
        match cursor.key() {
            "interval" => {
                let seconds = cursor.seconds_or_text(INTERVAL, &mut options.interval)?;
                set_once(&mut interval, seconds, INTERVAL)?;
            }
            "repeat-for" => {
                let seconds = cursor.seconds_or_text(REPEAT_FOR, &mut options.repeat_for)?;
                set_once(&mut repeat_for, seconds, REPEAT_FOR)?;
            }
            key if options.take_timing(key, cursor)? => {}
            _ => cursor.skip_unknown(),
        }
    }
    let ways = [options.at.is_some(), options.cron.is_some(), interval.or(repeat_for).is_some()];
    if ways.into_iter().filter(|is_there| *is_there).count() > 1 {
        return Err(DocumentError::told(
            "timing: expected `at`, or `cron`, or `interval` with `repeat-for`, got several",
        ));
    }
    if options.at.is_some() || options.cron.is_some() {
        return Ok((0.0, None));
    }
    let interval =
        interval.ok_or_else(|| DocumentError::missing(INTERVAL, "a number of seconds"))?;
    Ok((interval, repeat_for))
}

/// Reads URI and opaque data of the only mechanism, `http` (docs/compat/timer-service.md §1.2).
fn read_callback<'a>(
    cursor: &mut Cursor<'_, 'a>,
    options: &mut TimerOptions<'a>,
) -> Result<(&'a str, &'a str), DocumentError> {
    let mut http = None;
    let mut has_other = false;
    for _ in 0..cursor.object("callback")? {
        match cursor.key() {
            "http" => set_once(&mut http, read_http(cursor, options)?, "callback.http")?,
            key if options.take_callback(key, cursor)? => {}
            _ => {
                has_other = true;
                cursor.skip();
            }
        }
    }
    let http = http.ok_or_else(|| DocumentError::missing("callback.http", "an object"))?;
    if has_other {
        return Err(DocumentError::told(
            "callback: expected the mechanism http alone, got another beside it",
        ));
    }
    Ok(http)
}

fn read_http<'a>(
    cursor: &mut Cursor<'_, 'a>,
    options: &mut TimerOptions<'a>,
) -> Result<(&'a str, &'a str), DocumentError> {
    const URI: &str = "callback.http.uri";
    const OPAQUE: &str = "callback.http.opaque";
    let (mut uri, mut opaque) = (None, None);
    for _ in 0..cursor.object("callback.http")? {
        match cursor.key() {
            "uri" => set_once(&mut uri, cursor.string(URI)?, URI)?,
            "opaque" => set_once(&mut opaque, cursor.string(OPAQUE)?, OPAQUE)?,
            key if options.take_http(key, cursor)? => {}
            _ => cursor.skip_unknown(),
        }
    }
    let uri = uri.ok_or_else(|| DocumentError::missing(URI, "a string"))?;
    if uri.is_empty() {
        return Err(DocumentError::told(
            "callback.http.uri: expected http://host[:port]/path, got an empty string",
        ));
    }
    let opaque = match (opaque, options.opaque_base64) {
        (Some(_), Some(_)) => {
            return Err(DocumentError::told(
                "callback.http: expected `opaque` or `opaque-base64`, got both",
            ));
        }
        (None, Some(_)) => "",
        (opaque, None) => opaque.ok_or_else(|| DocumentError::missing(OPAQUE, "a string"))?,
    };
    Ok((uri, opaque))
}

/// The replication factor, and whether `replicas` or `sites` is there, which only nodes write.
fn read_reliability(cursor: &mut Cursor<'_, '_>) -> Result<(Option<i64>, bool), DocumentError> {
    const FACTOR: &str = "reliability.replication-factor";
    let (mut factor, mut is_internal) = (None, false);
    for _ in 0..cursor.object("reliability")? {
        match cursor.key() {
            "replication-factor" => set_once(&mut factor, cursor.whole_number(FACTOR)?, FACTOR)?,
            key => {
                is_internal |= matches!(key, "replicas" | "sites");
                cursor.skip_unknown();
            }
        }
    }
    Ok((factor, is_internal))
}

fn read_statistics<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Tags<'a>, DocumentError> {
    let mut tags = None;
    for _ in 0..cursor.object("statistics")? {
        match cursor.key() {
            "tag-info" => set_once(&mut tags, read_tags(cursor)?, "statistics.tag-info")?,
            _ => cursor.skip_unknown(),
        }
    }
    Ok(tags.unwrap_or(Tags::none()))
}

/// Reads the tags. A name that comes several times counts each time. A count of 0 adds nothing and
/// is not kept: clients of the original send it for what a timer may count later.
fn read_tags<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Tags<'a>, DocumentError> {
    const TAG_INFO: &str = "statistics.tag-info";
    let len = cursor.array(TAG_INFO, "an array of objects")?;
    let mut tags = Tags::none();
    for _ in 0..len {
        let tag = read_tag(cursor)?;
        if tag.count != 0 && !tags.push(tag) {
            return Err(DocumentError::told("statistics.tag-info: expected at most 16 tags"));
        }
    }
    Ok(tags)
}

/// Reads one tag. Its count may be 0.
pub(super) fn read_tag<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Tag<'a>, DocumentError> {
    const TYPE: &str = "statistics.tag-info.type";
    const COUNT: &str = "statistics.tag-info.count";
    let (mut kind, mut count) = (None, None);
    for _ in 0..cursor.object("statistics.tag-info")? {
        match cursor.key() {
            "type" => set_once(&mut kind, cursor.string(TYPE)?, TYPE)?,
            "count" => set_once(&mut count, cursor.count(COUNT)?, COUNT)?,
            _ => cursor.skip_unknown(),
        }
    }
    let kind = kind.ok_or_else(|| DocumentError::missing(TYPE, "a string"))?;
    if kind.is_empty() || kind.len() > TAG_BYTES_MAX {
        return Err(DocumentError(
            format!("{TYPE}: expected 1 to {TAG_BYTES_MAX} bytes, got {}", kind.len()).into(),
        ));
    }
    Ok(Tag { kind, count: count.unwrap_or(1) })
}
