//! How nodes ask each other for timers of a list, and the parts that they answer with. A list is in
//! the order of [`Place`]s, which never change; so its pages neither repeat nor leave out a timer
//! that is there all the time.
//!
//! Numbers are little-endian; numbers marked `v` are LEB128:
//!
//! ```text
//! ask   kind u8 = 1, walk u64, from u64, limit v, filter
//! filter  states u8, which u8 (1: tag, 2: host, 4: due after, 8: due before, 16: name prefix, 32:
//!       reason), then tag, host, name prefix: length v and text each; due after, due before: wall
//!       ms v each; reason u8
//! part  flags u8 (1: done, 2: starved), shards u16, departures u32, until u64, then each timer:
//!       state u8 (+ 128: of the first rank), due v (ms from now; zigzag), copy
//! ```
//!
//! A copy is a message of [`super::peer_message`] with the timer's age in place of its start.

// May panic: indices 4, cuts 3.
// Why it does not: fixed 7.

use crate::base::ids::{TimerId, mix};
use crate::base::limits::{TAG_BYTES_MAX, URI_TOLD_BYTES_MAX};
use crate::base::time::WallMs;
use crate::wire::dead_letter::GivenUp;
use crate::wire::leb128::{read_leb128, write_leb128};
use crate::wire::peer_message::{
    PeerMessage, PeerMessageError, TimerCopy, byte, bytes, chunk, decode_message, number,
};
use crate::wire::timer_name::NAME_BYTES_MAX;

/// The first byte of a question for timers, and of one for numbers (`wire::timer_count`).
const TIMERS_KIND: u8 = 1;
/// See [`TIMERS_KIND`].
pub const COUNT_KIND: u8 = 2;
/// The first byte of a question for jobs (`wire::jobs`).
pub const JOBS_KIND: u8 = 3;
/// Most timers on a page, and in a part of one.
pub const LIST_LIMIT_MAX: u16 = 1_000;

/// Changes ids before they are mixed, so that places do not follow from the shards of timers, which
/// are made from mixed ids as well.
const PLACES: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where a timer stands in every list: its id, mixed. Each id has its own place, on all nodes and
/// for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place(pub u64);

impl Place {
    /// The place of a timer.
    #[inline]
    pub const fn of(id: TimerId) -> Self {
        Self(mix(id.0 ^ PLACES))
    }

    /// The timer that stands at this place.
    pub const fn id(self) -> TimerId {
        const fn unshifted(bits: u64) -> u64 {
            bits ^ bits >> 33
        }
        // The inverses of the multipliers of `mix`, modulo 2^64.
        let bits = unshifted(self.0).wrapping_mul(0x9cb4_b2f8_1293_37db);
        let bits = unshifted(bits).wrapping_mul(0x4f74_430c_22a5_4005);
        TimerId(unshifted(bits) ^ PLACES)
    }

    /// The place behind this one; `None`: this is the last.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

/// What a timer of a list does at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ListedState {
    /// Waits for its next pop.
    Armed = 0,
    /// Is due and waits for a place at its host.
    Ready = 1,
    /// Its callback runs.
    InFlight = 2,
    /// Its callback failed; it waits for the next attempt.
    BackingOff = 3,
    /// Its pop is left to another rank.
    HandedOver = 4,
    /// A client has paused it.
    Paused = 5,
    /// It is a dead letter: its pop was given up.
    Parked = 6,
}

impl ListedState {
    /// All states, by their numbers.
    pub const ALL: [ListedState; 7] = [
        Self::Armed,
        Self::Ready,
        Self::InFlight,
        Self::BackingOff,
        Self::HandedOver,
        Self::Paused,
        Self::Parked,
    ];

    /// The word of queries and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Ready => "ready",
            Self::InFlight => "in-flight",
            Self::BackingOff => "backing-off",
            Self::HandedOver => "handed-over",
            Self::Parked => "dead-letter",
            Self::Paused => "paused",
        }
    }

    /// The state with this word.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state as one bit of [`Filter::states`].
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Every state of a timer that is to pop, as bits.
pub const STATES_ALL: u8 = 0b11_1111;
/// Every state, that of dead letters among them, as bits.
const STATES_KNOWN: u8 = STATES_ALL | ListedState::Parked.bit();

/// Which timers a list has. All of its conditions must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter<'a> {
    /// The states, one bit each.
    pub states: u8,
    /// A statistics tag of the timer.
    pub tag: Option<&'a str>,
    /// The callback's host, with or without its port.
    pub host: Option<&'a str>,
    /// What the name of the timer begins with.
    pub name_prefix: Option<&'a str>,
    /// The next pop is due at this moment or later.
    pub due_after: Option<WallMs>,
    /// The next pop is due before this moment.
    pub due_before: Option<WallMs>,
    /// Why a dead letter was given up.
    pub reason: Option<GivenUp>,
}

impl Filter<'_> {
    /// All timers.
    pub const ALL: Filter<'static> = Filter {
        states: STATES_ALL,
        tag: None,
        host: None,
        name_prefix: None,
        due_after: None,
        due_before: None,
        reason: None,
    };

    /// Appends the filter.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let which = u8::from(self.tag.is_some())
            | u8::from(self.host.is_some()) << 1
            | u8::from(self.due_after.is_some()) << 2
            | u8::from(self.due_before.is_some()) << 3
            | u8::from(self.name_prefix.is_some()) << 4
            | u8::from(self.reason.is_some()) << 5;
        out.extend_from_slice(&[self.states, which]);
        for text in [self.tag, self.host, self.name_prefix].into_iter().flatten() {
            write_leb128(text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        }
        for at in [self.due_after, self.due_before].into_iter().flatten() {
            write_leb128(at.0, out);
        }
        out.extend(self.reason.map(|reason| reason as u8));
    }
}

/// A question for the timers of one shard from a place on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListAsk<'a> {
    /// Tells the pages of one list from those of others, so that what a shard has found for one
    /// page serves the next.
    pub walk: u64,
    /// The first place of the part.
    pub from: Place,
    /// Most timers in the part, at least 1.
    pub limit: u16,
    /// Which timers.
    pub filter: Filter<'a>,
}

impl<'a> ListAsk<'a> {
    /// Appends the question.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(TIMERS_KIND);
        out.extend_from_slice(&self.walk.to_le_bytes());
        out.extend_from_slice(&self.from.0.to_le_bytes());
        write_leb128(self.limit.into(), out);
        self.filter.encode(out);
    }

    /// Reads a question, which is all of `input`. Its values are within their limits.
    pub fn decode(mut input: &'a [u8]) -> Result<Self, PeerMessageError> {
        let input = &mut input;
        if byte(input)? != TIMERS_KIND {
            return Err(PeerMessageError("expected a question for a list"));
        }
        let walk = u64::from_le_bytes(chunk(input)?);
        let from = Place(u64::from_le_bytes(chunk(input)?));
        let beyond = PeerMessageError("more timers of a list than a part has");
        let limit = number(input, LIST_LIMIT_MAX.into(), beyond)? as u16;
        if limit == 0 {
            return Err(PeerMessageError("a part of a list without timers"));
        }
        let filter = read_filter(input)?;
        match input.is_empty() {
            true => Ok(Self { walk, from, limit, filter }),
            false => Err(PeerMessageError("bytes behind a question for a list")),
        }
    }
}

fn text<'a>(input: &mut &'a [u8], bytes_max: usize) -> Result<&'a str, PeerMessageError> {
    let text = bytes(input)?;
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= bytes_max);
    text.ok_or(PeerMessageError("a word of a list that is too long, or no text"))
}

/// Takes a filter off the front of `input`. Its values are within their limits.
pub fn read_filter<'a>(input: &mut &'a [u8]) -> Result<Filter<'a>, PeerMessageError> {
    let (states, which) = (byte(input)?, byte(input)?);
    if states == 0 || states & !STATES_KNOWN != 0 || which > 0b11_1111 {
        return Err(PeerMessageError("a list of unknown states or by unknown members"));
    }
    let mut word = |bit: u8, bytes_max: usize| match which & bit {
        0 => Ok(None),
        _ => text(input, bytes_max).map(Some),
    };
    let (tag, host) = (word(1, TAG_BYTES_MAX)?, word(2, URI_TOLD_BYTES_MAX)?);
    let name_prefix = word(16, NAME_BYTES_MAX)?;
    let mut at = |bit: u8| match which & bit {
        0 => Ok(None),
        _ => number(input, u64::MAX, PeerMessageError("a time out of range")).map(Some),
    };
    let (due_after, due_before) = (at(4)?.map(WallMs), at(8)?.map(WallMs));
    let reason = match which & 32 {
        0 => None,
        _ => match GivenUp::ALL.get(usize::from(byte(input)?)) {
            Some(reason) => Some(*reason),
            None => return Err(PeerMessageError("a list of dead letters of an unknown reason")),
        },
    };
    Ok(Filter { states, tag, host, name_prefix, due_after, due_before, reason })
}

/// What a part says beside its timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartHead {
    /// Whether the shard has no timer of the list behind the part.
    pub is_done: bool,
    /// Whether the shard's time for lists is used up for now.
    pub is_starved: bool,
    /// How many shards the node has.
    pub shards: u16,
    /// How many timers have moved from the shard to others since it began; wraps. A timer that
    /// moves between two parts may be in neither.
    pub departures: u32,
    /// The first place that the part says nothing about, unless the shard is done.
    pub until: Place,
}

/// One timer of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedCopy<'a> {
    /// What the timer does on the node that tells of it.
    pub state: ListedState,
    /// Whether that node is the first to pop.
    pub is_first: bool,
    /// When the next pop is due, in ms from now.
    pub due_in_ms: i64,
    /// The timer; its start is its age in ms.
    pub copy: TimerCopy<'a>,
}

const IS_DONE: u8 = 1;
const IS_STARVED: u8 = 2;
const IS_FIRST: u8 = 0x80;
/// Bytes of a part before its timers.
const PART_HEAD_BYTES: usize = 15;

/// Begins a part in `out`, which must be empty. [`end_part`] tells what is not known yet.
pub fn begin_part(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; PART_HEAD_BYTES]);
}

/// Fills in the head of a part.
pub fn end_part(out: &mut [u8], head: &PartHead) {
    let flags =
        if head.is_done { IS_DONE } else { 0 } | if head.is_starved { IS_STARVED } else { 0 };
    if let Some(begin) = out.first_chunk_mut::<PART_HEAD_BYTES>() {
        begin[0] = flags;
        begin[1..3].copy_from_slice(&head.shards.to_le_bytes());
        begin[3..7].copy_from_slice(&head.departures.to_le_bytes());
        begin[7..].copy_from_slice(&head.until.0.to_le_bytes());
    }
}

/// Appends a timer to a part. Panics if the copy's factor is not 1 to 16.
pub fn write_listed(listed: &ListedCopy<'_>, out: &mut Vec<u8>) {
    out.push(listed.state as u8 | if listed.is_first { IS_FIRST } else { 0 });
    let due = listed.due_in_ms;
    write_leb128(((due << 1) ^ (due >> 63)) as u64, out);
    PeerMessage::Copy(listed.copy).encode(out);
}

/// Takes the head of a part off the front of `input`.
pub fn read_part(input: &mut &[u8]) -> Result<PartHead, PeerMessageError> {
    let flags = byte(input)?;
    if flags & !(IS_DONE | IS_STARVED) != 0 {
        return Err(PeerMessageError("a part of a list with unknown flags"));
    }
    let shards = u16::from_le_bytes(chunk(input)?);
    if !(1..=crate::base::limits::SHARDS_MAX).contains(&shards) {
        return Err(PeerMessageError("a number of shards that no node has"));
    }
    let departures = u32::from_le_bytes(chunk(input)?);
    let until = Place(u64::from_le_bytes(chunk(input)?));
    let (is_done, is_starved) = (flags & IS_DONE != 0, flags & IS_STARVED != 0);
    Ok(PartHead { is_done, is_starved, shards, departures, until })
}

/// Takes a timer off the front of `input`, which must have one more.
pub fn read_listed<'a>(input: &mut &'a [u8]) -> Result<ListedCopy<'a>, PeerMessageError> {
    let first = byte(input)?;
    let state = ListedState::ALL.get(usize::from(first & !IS_FIRST)).copied();
    let state = state.ok_or(PeerMessageError("a listed timer of an unknown state"))?;
    let due = read_leb128(input).ok_or(PeerMessageError("a listed timer without a due time"))?;
    let due_in_ms = (due >> 1) as i64 ^ -((due & 1) as i64);
    match decode_message(input)? {
        PeerMessage::Copy(copy) if copy.body.is_some() => {
            Ok(ListedCopy { state, is_first: first & IS_FIRST != 0, due_in_ms, copy })
        }
        _ => Err(PeerMessageError("expected a timer of a list, got something else")),
    }
}

#[cfg(test)]
#[path = "timer_list_tests.rs"]
mod tests;
