//! A timer as it is stored: its numbers, its callback authority, and one byte string for the part
//! that is only carried.
//!
//! The carried bytes (the *content*) are: target length u16, tags length u16 (both little-endian),
//! target, tags, opaque. A tag is: count u32 little-endian, name length u8, name. If the highest
//! bit of the tags' length is set, attributes (`wire::attributes`) stand before the opaque bytes,
//! with their length as a u16 before them.
//!
//! The *owner* of a timer is the name of the token that it was written with, if that name has a
//! limit of timers (`base::quota`). The owner stands before the tags as a tag that no client can
//! write: its count is 0, and its length has the highest bit set. The length of the tags counts it.

// May panic: assertions 4, expectations 2, indices 7, cuts 5.
// Why it does not: bounded 3, encoded 15.

use std::borrow::Cow;

use crate::base::ids::{TimerId, mix};
use crate::base::limits::{TAG_BYTES_MAX, URI_TOLD_BYTES_MAX};
use crate::base::quota::{IS_OWNER, is_token_name};
use crate::wire::attributes::{
    ATTRIBUTES_BYTES_MAX, Attributes, HAS_ATTRIBUTES, is_acted, is_parked,
};
use crate::wire::common_attributes::{join, stand_in};
use crate::wire::timer_json::{Tag, Tags};

const HEADER_BYTES: usize = 4;
const TAG_HEADER_BYTES: usize = 5;

/// A validated timer as a client wrote it, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition<'a> {
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds after the start in which the timer pops; equal to the interval for a one-shot
    /// timer.
    pub repeat_for_ms: u64,
    /// Replicas that the client asked for; `None`: the client named no number.
    pub factor: Option<u8>,
    /// Authority of the callback URI, as `wire::callback_uri` has it. It names the lane.
    pub authority: &'a str,
    /// Encoded content: see [`encode_content`].
    pub content: &'a [u8],
}

/// A definition that owns its bytes, so that it can cross to another core.
#[derive(Clone, Debug)]
pub struct OwnedDefinition {
    interval_ms: u64,
    repeat_for_ms: u64,
    factor: Option<u8>,
    authority: Box<str>,
    content: Box<[u8]>,
}

impl OwnedDefinition {
    /// Copies a definition. Cost: two allocations.
    pub fn copy(definition: &Definition<'_>) -> Self {
        Self {
            interval_ms: definition.interval_ms,
            repeat_for_ms: definition.repeat_for_ms,
            factor: definition.factor,
            authority: definition.authority.into(),
            content: definition.content.into(),
        }
    }

    /// The definition with its bytes borrowed.
    pub fn borrow(&self) -> Definition<'_> {
        Definition {
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
            factor: self.factor,
            authority: &self.authority,
            content: &self.content,
        }
    }
}

/// Appends the content of a timer without attributes to `out`. Panics if target or a tag is longer
/// than its parser allows.
pub fn encode_content(target: &str, tags: &[Tag<'_>], opaque: &[u8], out: &mut Vec<u8>) {
    encode_front(target, tags, opaque.len(), 0, out);
    out.extend_from_slice(opaque);
}

/// The same as [`encode_content`], with attributes in their encoded form. None are encoded if they
/// are empty. Panics if there are more than [`ATTRIBUTES_BYTES_MAX`] bytes.
#[inline(never)]
pub fn encode_with_attributes(
    target: &str,
    tags: &[Tag<'_>],
    (attributes, opaque): (&[u8], &[u8]),
    out: &mut Vec<u8>,
) {
    if attributes.is_empty() {
        return encode_content(target, tags, opaque, out);
    }
    assert!(attributes.len() <= ATTRIBUTES_BYTES_MAX, "admission bounds attributes");
    encode_front(target, tags, 2 + attributes.len() + opaque.len(), HAS_ATTRIBUTES, out);
    out.extend_from_slice(&(attributes.len() as u16).to_le_bytes());
    out.extend_from_slice(attributes);
    out.extend_from_slice(opaque);
}

/// Appends lengths, target and tags.
#[inline]
fn encode_front(target: &str, tags: &[Tag<'_>], behind: usize, flag: u16, out: &mut Vec<u8>) {
    assert!(target.len() <= URI_TOLD_BYTES_MAX, "the URI parser bounds the target");
    let tag_bytes: usize = tags.iter().map(|tag| TAG_HEADER_BYTES + tag.kind.len()).sum();
    out.reserve([HEADER_BYTES, target.len(), tag_bytes, behind].iter().sum());
    out.extend_from_slice(&(target.len() as u16).to_le_bytes());
    out.extend_from_slice(&(tag_bytes as u16 | flag).to_le_bytes());
    out.extend_from_slice(target.as_bytes());
    for tag in tags {
        assert!(tag.kind.len() <= TAG_BYTES_MAX, "the document parser bounds the tag");
        out.extend_from_slice(&tag.count.to_le_bytes());
        out.push(tag.kind.len() as u8);
        out.extend_from_slice(tag.kind.as_bytes());
    }
}

/// Whether a timer with this content has attributes. Cost: a look at one byte.
#[inline(always)] // it is asked of each create
pub fn has_attributes(content: &[u8]) -> bool {
    content.get(3).is_some_and(|high| high & (HAS_ATTRIBUTES >> 8) as u8 != 0)
}

/// How much later than its interval says a timer starts: a moment of its window, fixed by its id.
#[inline(always)]
pub fn spread_ms(id: TimerId, content: &[u8]) -> u64 {
    if has_attributes(content) { window_moment_ms(id, content) } else { 0 }
}

#[cold]
fn window_moment_ms(id: TimerId, content: &[u8]) -> u64 {
    Content::decode(content).spread_ms(id)
}

/// Copies encoded content into `out`, which is cleared first, with an owner. The content must have
/// none. A name that no token can have is left out.
#[inline(never)]
pub fn with_owner(content: &[u8], owner: &str, out: &mut Vec<u8>) {
    out.clear();
    let Some((header, rest)) = content.split_first_chunk::<HEADER_BYTES>() else { return };
    let [target_low, target_high, tags_low, tags_high] = *header;
    let target_len = usize::from(u16::from_le_bytes([target_low, target_high]));
    let (target, rest) = rest.split_at_checked(target_len).unwrap_or((rest, &[]));
    if !is_token_name(owner.as_bytes()) {
        return out.extend_from_slice(content);
    }
    let tags_len = u16::from_le_bytes([tags_low, tags_high]);
    let owner_len = (TAG_HEADER_BYTES + owner.len()) as u16;
    out.reserve(content.len() + usize::from(owner_len));
    out.extend_from_slice(&[target_low, target_high]);
    out.extend_from_slice(&(tags_len + owner_len).to_le_bytes());
    out.extend_from_slice(target);
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.push(IS_OWNER | owner.len() as u8);
    out.extend_from_slice(owner.as_bytes());
    out.extend_from_slice(rest);
}

/// Appends content with other attributes in their encoded form, of which there must be some.
pub fn with_attributes(content: &Content<'_>, attributes: &[u8], out: &mut Vec<u8>) {
    let Content { target, tags, opaque, .. } = *content;
    let parts = [target.len(), tags.len(), attributes.len(), opaque.len()];
    out.reserve(HEADER_BYTES + 2 + parts.iter().sum::<usize>());
    out.extend_from_slice(&(target.len() as u16).to_le_bytes());
    out.extend_from_slice(&(tags.len() as u16 | HAS_ATTRIBUTES).to_le_bytes());
    out.extend_from_slice(target);
    out.extend_from_slice(tags);
    out.extend_from_slice(&(attributes.len() as u16).to_le_bytes());
    out.extend_from_slice(attributes);
    out.extend_from_slice(opaque);
}

/// A view of encoded content. Only [`encode_content`] makes content, so a length that does not fit
/// is a bug and panics.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Path and query of the callback URI; may be empty.
    pub target: &'a [u8],
    tags: &'a [u8],
    attributes: &'a [u8],
    /// Attributes that lie elsewhere, because other timers have them as well. The first of
    /// `attributes` then is their stand-in (`wire::common_attributes`).
    common: &'a [u8],
    /// The opaque bytes, exactly as the client sent them.
    pub opaque: &'a [u8],
}

impl<'a> Content<'a> {
    /// Splits encoded content into its parts. Panics if `bytes` is not encoded content.
    pub fn decode(bytes: &'a [u8]) -> Self {
        let target_len = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        let tags_len = u16::from_le_bytes([bytes[2], bytes[3]]);
        let (target, rest) = bytes[HEADER_BYTES..].split_at(target_len);
        let (tags, opaque) = rest.split_at(usize::from(tags_len & !HAS_ATTRIBUTES));
        if tags_len & HAS_ATTRIBUTES != 0 {
            let (length, rest) = opaque.split_at(2);
            let (attributes, opaque) =
                rest.split_at(usize::from(u16::from_le_bytes([length[0], length[1]])));
            return Self { target, tags, attributes, common: &[], opaque };
        }
        Self { target, tags, attributes: &[], common: &[], opaque }
    }

    /// The number of the attributes that lie elsewhere; `None`: none do.
    pub fn common_number(&self) -> Option<u32> {
        stand_in(self.attributes).map(|(number, _)| number)
    }

    /// The same content with the attributes that lie elsewhere.
    pub fn with_common(self, common: &'a [u8]) -> Self {
        Self { common, ..self }
    }

    /// Whether the timer has attributes: something beyond the original's document.
    #[inline]
    pub fn has_attributes(&self) -> bool {
        !self.attributes.is_empty()
    }

    /// The attributes. Panics if they are none, as content is checked when it comes. Cost: one pass
    /// over them, and a comparison where there are none.
    pub fn attributes(&self) -> Attributes<'a> {
        if self.attributes.is_empty() {
            return Attributes::default();
        }
        let read = match self.own_behind_stand_in() {
            Some(own) => Attributes::read_apart(self.common, own),
            None => Attributes::read(self.attributes),
        };
        read.expect("attributes are checked when they come")
    }

    /// The attributes that lie here, if others lie elsewhere.
    fn own_behind_stand_in(&self) -> Option<&'a [u8]> {
        stand_in(self.attributes).filter(|_| !self.common.is_empty()).map(|(_, own)| own)
    }

    /// How much later than its interval says the timer starts: see [`spread_ms`].
    pub fn spread_ms(&self, id: TimerId) -> u64 {
        let window_ms = self.attributes().window_ms;
        window_ms.map_or(0, |window_ms| mix(id.0) % (window_ms + 1))
    }

    /// Whether the attributes say what clients did with the timer. Cost: a look at the kind of each
    /// that lies here.
    pub fn is_acted(&self) -> bool {
        is_acted(self.attributes)
    }

    /// Whether the timer is a dead letter that is parked. Cost where there are no attributes: a
    /// comparison.
    #[inline]
    pub fn is_parked(&self) -> bool {
        !self.attributes.is_empty() && is_parked(self.attributes)
    }

    /// The attributes as they are encoded; empty if there are none. Cost: a copy, if some lie
    /// elsewhere.
    pub fn encoded_attributes(&self) -> Cow<'a, [u8]> {
        let Some(own) = self.own_behind_stand_in() else { return Cow::Borrowed(self.attributes) };
        let mut whole = Vec::with_capacity(self.common.len() + own.len());
        join(self.common, own, &mut whole);
        Cow::Owned(whole)
    }

    /// Whether the timer has a statistics tag or an owner. Cost: one comparison; [`Content::tags`]
    /// reads every tag.
    pub fn is_counted(&self) -> bool {
        !self.tags.is_empty()
    }

    /// The owner, and the encoded tags behind it.
    fn owner_and_tags(&self) -> (Option<&'a str>, &'a [u8]) {
        let [_, _, _, _, len, tail @ ..] = self.tags else { return (None, self.tags) };
        let owner_len = usize::from(len & !IS_OWNER);
        match tail.split_at_checked(owner_len) {
            Some((owner, tags)) if len & IS_OWNER != 0 => (std::str::from_utf8(owner).ok(), tags),
            _ => (None, self.tags),
        }
    }

    /// The name of the token that the timer was written with, if the name had a limit of timers.
    pub fn owner(&self) -> Option<&'a str> {
        self.owner_and_tags().0
    }

    /// The statistics tags, read from their encoded form.
    pub fn tags(&self) -> Tags<'a> {
        let mut tags = Tags::none();
        let mut rest = self.owner_and_tags().1;
        while let [c0, c1, c2, c3, len, tail @ ..] = rest {
            let (kind, next) = tail.split_at(usize::from(*len));
            let kind = std::str::from_utf8(kind).expect("tag names are stored from text");
            let stored = tags.push(Tag { kind, count: u32::from_le_bytes([*c0, *c1, *c2, *c3]) });
            assert!(stored, "no more tags are stored than were parsed");
            rest = next;
        }
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_comes_back_as_it_was() {
        let tags = [Tag { kind: "CALL", count: 1 }, Tag { kind: "REG", count: u32::MAX }];
        for target in ["", "/", "/a?b=c"] {
            for opaque in [&b""[..], b"\0\xff opaque"] {
                for tags in [&tags[..], &[]] {
                    let mut bytes = Vec::new();
                    encode_content(target, tags, opaque, &mut bytes);
                    let content = Content::decode(&bytes);
                    assert_eq!(content.target, target.as_bytes());
                    assert_eq!(content.opaque, opaque);
                    assert_eq!(content.tags().as_slice(), tags);
                    assert_eq!((content.is_counted(), content.owner()), (!tags.is_empty(), None));
                    let mut owned = vec![7];
                    with_owner(&bytes, "billing", &mut owned);
                    let content = Content::decode(&owned);
                    assert_eq!(content.target, target.as_bytes());
                    assert_eq!(content.opaque, opaque);
                    assert_eq!(content.tags().as_slice(), tags);
                    assert_eq!((content.is_counted(), content.owner()), (true, Some("billing")));
                    with_owner(&bytes, "no name", &mut owned);
                    assert_eq!(owned, bytes);
                }
            }
        }
    }
}
