//! What nodes tell each other about timers, one message at a time. This file knows the bytes; the
//! shard decides what a message means for a timer.
//!
//! Numbers are little-endian; numbers marked `v` are LEB128 (`wire::leb128`). Nothing is aligned or
//! padded, and a value has one form only:
//!
//! ```text
//! standing  kind u8 = 1, id u64, version u64, sequence v, actives v, list digest u32
//! copy      kind u8 = 2 (+ 16: a client's write) (+ 32: not a tombstone), id u64, version u64,
//!           sequence v, (factor - 1) x 16 + sites u8, replicas u8, each replica u32,
//!           actives v, each site u32, start v, interval v, repeat-for v;
//!           not a tombstone: authority's length v, authority, content's length v, content
//! fetch     kind u8 = 3, id u64
//! missed    kind u8 = 4, id u64, node u32
//! no room   kind u8 = 5, id u64, node u32
//! orders    kind u8 = 6, length v, lines (`wire::destination`)
//! list      kind u8 = 7, shard u16, length v, question (`wire::timer_list`)
//! condition kind u8 = 8, version u64, then a copy that is a client's write
//! trying    kind u8 = 9, and as standing
//! compare   kind u8 = 10, id u64, version u64, sequence v, site u32
//! result    kind u8; superseded: version u64, factor u8; refused: reason u8;
//!           found: length v, a copy or a part of a list
//! ```
//!
//! A standing has 23 bytes. A copy of factor 2 has 43 bytes beside authority and content, if the
//! timer repeats for minutes. `timer::definition` defines the form of the content. This file checks
//! the content to the last byte, because `timer::definition` only slices it.

// May panic: assertions 1.
// Why it does not: bounded 1.

use crate::base::ids::{NodeHash, SiteHash, TimerId};
use crate::base::limits::{
    INTERVAL_MS_MAX, REPLICATION_FACTOR_MAX, SITES_PER_TIMER_MAX, TAG_BYTES_MAX,
    TAGS_PER_TIMER_MAX, URI_TOLD_BYTES_MAX,
};
use crate::base::quota::{IS_OWNER, is_token_name};
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::TICK_NS;
use crate::wire::attributes::{Attributes, HAS_ATTRIBUTES};
use crate::wire::callback_uri::{before, is_authority};
use crate::wire::leb128::{leb128_bytes, read_leb128, write_leb128};
use crate::wire::site_question::SiteQuestion;

/// Most pops of a timer: the shortest interval, 1 ms, in the longest repeat-for.
pub const SEQUENCE_MAX: u64 = INTERVAL_MS_MAX;
/// Latest start in milliseconds: the last millisecond that a clock of nanoseconds tells.
pub const START_MS_MAX: u64 = u64::MAX / TICK_NS;

const STANDING: u8 = 1;
const COPY: u8 = 2;
const FETCH: u8 = 3;
const MISSED: u8 = 4;
const NO_ROOM: u8 = 5;
const ORDERS: u8 = 6;
/// Most bytes of the lines of one message.
pub const ORDERS_BYTES_MAX: usize = 16 << 10;
const LIST: u8 = 7;
const CONDITIONAL: u8 = 8;
const TRYING: u8 = 9;
const COMPARE: u8 = 10;
/// Added to [`COPY`] if the message carries a client's write.
const IS_WRITE: u8 = 0x10;
/// Added to [`COPY`] if the timer is not a tombstone.
const HAS_BODY: u8 = 0x20;

const HELD: u8 = 1;
const WANTED: u8 = 2;
const SUPERSEDED: u8 = 3;
const BUSY: u8 = 4;
const REFUSED: u8 = 5;
const FOUND: u8 = 6;
const NOT_FOUND: u8 = 7;
const AHEAD: u8 = 8;
const OTHERWISE: u8 = 9;

/// How far a copy of a timer is. Copies compare by (version, sequence). Two copies at the same key
/// unite their masks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The timer.
    pub id: TimerId,
    /// The write that made this state, as a [`crate::timer::version::Version`].
    pub version: u64,
    /// How many pops are done since the write.
    pub sequence: u64,
    /// The mask: the active ranks, one bit each. The other ranks hold the timer and wait behind the
    /// active ranks.
    pub actives: u16,
    /// [`Replicas::digest`] of the timer's list.
    pub list_digest: u32,
}

/// A whole timer, or its tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerCopy<'a> {
    /// How far the copy is. `list_digest` is not sent; the receiver computes it from `replicas`.
    pub standing: Standing,
    /// Whether the copy carries a client's write. A write that loses must be answered so.
    pub is_write: bool,
    /// The nodes that hold the timer, by rank.
    pub replicas: Replicas,
    /// The replication factor that the client asked for.
    pub factor: u8,
    /// The sites that hold the timer, by rank; empty if the timer is not replicated across sites.
    pub sites: Sites,
    /// When the timer was accepted: milliseconds on the sender's monotonic clock.
    pub start_ms: u64,
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds after the start in which the timer pops.
    pub repeat_for_ms: u64,
    /// Authority of the callback URI, and content (`timer::definition`); `None`: a tombstone.
    pub body: Option<CopyBody<'a>>,
}

/// The part of a copy that holders only carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyBody<'a> {
    /// Authority of the callback URI, as `wire::callback_uri` has it.
    pub authority: &'a str,
    /// Encoded content (`timer::definition`).
    pub content: &'a [u8],
}

/// A message between nodes. The receiver answers each message with one [`PeerResult`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerMessage<'a> {
    /// "I hold this timer, so far." Sent after a pop, and to compare copies.
    Standing(Standing),
    /// "I hold this timer, so far, and am at its next pop, as its retry policy says."
    Trying(Standing),
    /// A timer or a tombstone that the receiver must merge.
    Copy(TimerCopy<'a>),
    /// Asks for the copy that the receiver holds.
    Fetch(TimerId),
    /// Another site asks whether a node of this site makes the next pop. Versions that do not know
    /// the question refuse the message as malformed.
    Compare(SiteQuestion),
    /// "This node or site could not be told of the timer: offer the timer, if you hold it." The
    /// sender cannot offer it itself.
    Missed {
        /// The timer.
        id: TimerId,
        /// The hash of the node, or of the site's name, that may lack the timer.
        by: NodeHash,
    },
    /// "This node should hold the timer and has no room for it." A list without that node, in a
    /// copy that follows, is right although the node lives.
    NoRoom {
        /// The timer.
        id: TimerId,
        /// The node without room.
        at: NodeHash,
    },
    /// What operators ordered for destinations: lines of `wire::destination`, not checked yet. No
    /// line: the teller has told all that it knows.
    Orders(&'a [u8]),
    /// Asks for timers of one of the receiver's shards. Versions that know no lists refuse the
    /// message as malformed.
    List {
        /// The shard.
        shard: u16,
        /// The question, as `wire::timer_list` has it.
        ask: &'a [u8],
    },
    /// A client's write that depends on what the receiver holds. The receiver takes the write if it
    /// holds no state with a version above `seen`, and answers [`PeerResult::Found`] with that
    /// state otherwise.
    Conditional {
        /// The version on which the write depends; 0: no state was known.
        seen: u64,
        /// The write.
        copy: TimerCopy<'a>,
    },
}

/// The answer to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerResult<'a> {
    /// The receiver holds this state or a later one.
    Held,
    /// The receiver does not know enough and wants the copy.
    Wanted,
    /// A client's write lost against the held state. The sender tries the write again with a
    /// version above `version`, and with `factor`.
    Superseded {
        /// The version that the receiver holds.
        version: u64,
        /// The replication factor of the timer that the receiver holds.
        factor: u8,
    },
    /// A queue of the receiver is full. The sender sends the message again.
    Busy,
    /// The receiver does not take the message, now or later.
    Refused(PeerRefusal),
    /// Answers a fetch with the copy, encoded as a message, or a question for a list with a part.
    Found(&'a [u8]),
    /// Answers a fetch: the receiver does not hold the timer, or the timer was deleted. Answers a
    /// question for a list: the receiver has no such shard.
    NotFound,
    /// Answers a standing, or another site's question: the receiver holds a later state, which it
    /// tells, or it makes the next pop.
    Ahead,
    /// Answers a standing: the receiver holds this state, but believes that another list is right.
    /// Answers a copy: the receiver does not hold the timer, for the list names other nodes.
    Otherwise,
}

/// Why a receiver does not take a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PeerRefusal {
    /// The version lies further ahead than `cluster.clock_skew_max_ms`.
    FutureVersion = 1,
    /// The receiver has no room for another timer.
    Full = 2,
    /// The bytes are no message, or a value of the message is out of range.
    Malformed = 3,
    /// The receiver holds as many timers of the owner as the owner may have.
    TokenFull = 4,
    /// The receiver holds a timer of another name under the id.
    OtherName = 5,
}

/// The bytes are no message, or a value is beyond its limit. The text names the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("peer message: {0}")]
pub struct PeerMessageError(pub &'static str);

impl PeerMessage<'_> {
    /// Appends the message. Its values must be within the limits that [`decode_message`] checks.
    /// Panics if a copy's factor is not 1 to 16. Cost: one copy of the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Standing(standing) => {
                out.push(STANDING);
                write_standing(standing, out);
            }
            Self::Trying(standing) => {
                out.push(TRYING);
                write_standing(standing, out);
            }
            Self::Copy(copy) => copy.encode(out),
            Self::Fetch(id) => {
                out.push(FETCH);
                out.extend_from_slice(&id.0.to_le_bytes());
            }
            Self::Compare(SiteQuestion { id, version, sequence, site }) => {
                out.push(COMPARE);
                out.extend_from_slice(&id.0.to_le_bytes());
                out.extend_from_slice(&version.to_le_bytes());
                write_leb128(*sequence, out);
                out.extend_from_slice(&site.0.to_le_bytes());
            }
            Self::Missed { id, by } => {
                out.push(MISSED);
                out.extend_from_slice(&id.0.to_le_bytes());
                out.extend_from_slice(&by.0.to_le_bytes());
            }
            Self::NoRoom { id, at } => {
                out.push(NO_ROOM);
                out.extend_from_slice(&id.0.to_le_bytes());
                out.extend_from_slice(&at.0.to_le_bytes());
            }
            Self::Orders(lines) => {
                out.push(ORDERS);
                write_bytes(lines, out);
            }
            Self::List { shard, ask } => {
                out.push(LIST);
                out.extend_from_slice(&shard.to_le_bytes());
                write_bytes(ask, out);
            }
            Self::Conditional { seen, copy } => {
                out.push(CONDITIONAL);
                out.extend_from_slice(&seen.to_le_bytes());
                copy.encode(out);
            }
        }
    }
}

impl TimerCopy<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let is_factor = (1..=REPLICATION_FACTOR_MAX).contains(&self.factor.into());
        assert!(is_factor, "a replication factor is 1 to 16, not {}", self.factor);
        let write = if self.is_write { IS_WRITE } else { 0 };
        let body = if self.body.is_some() { HAS_BODY } else { 0 };
        out.push(COPY | write | body);
        write_key(&self.standing, out);
        out.push((self.factor - 1) << 4 | self.sites.len());
        out.push(self.replicas.len());
        for node in self.replicas.as_slice() {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
        write_leb128(self.standing.actives.into(), out);
        for site in self.sites.as_slice() {
            out.extend_from_slice(&site.0.to_le_bytes());
        }
        write_leb128(self.start_ms, out);
        write_leb128(self.interval_ms, out);
        write_leb128(self.repeat_for_ms, out);
        if let Some(CopyBody { authority, content }) = self.body {
            write_bytes(authority.as_bytes(), out);
            write_bytes(content, out);
        }
    }
}

fn write_standing(standing: &Standing, out: &mut Vec<u8>) {
    write_key(standing, out);
    write_leb128(standing.actives.into(), out);
    out.extend_from_slice(&standing.list_digest.to_le_bytes());
}

fn write_key(standing: &Standing, out: &mut Vec<u8>) {
    out.extend_from_slice(&standing.id.0.to_le_bytes());
    out.extend_from_slice(&standing.version.to_le_bytes());
    write_leb128(standing.sequence, out);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_leb128(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Takes one message off the front of `input` and leaves the rest. A message that is written again
/// is the same bytes.
///
/// The caller can use a message without further checks: numbers are within `base::limits`, active
/// ranks are in the list, no node or site comes twice, authority and target are such as
/// `callback_uri` accepts, the content comes apart, and tags and opaque data are text. Cost: one
/// pass over the message.
pub fn decode_message<'a>(input: &mut &'a [u8]) -> Result<PeerMessage<'a>, PeerMessageError> {
    match byte(input)? {
        STANDING => standing(input).map(PeerMessage::Standing),
        TRYING => standing(input).map(PeerMessage::Trying),
        FETCH => Ok(PeerMessage::Fetch(TimerId(u64::from_le_bytes(chunk(input)?)))),
        COMPARE => {
            let Standing { id, version, sequence, .. } = key(input)?;
            let site = SiteHash(u32::from_le_bytes(chunk(input)?));
            Ok(PeerMessage::Compare(SiteQuestion { id, version, sequence, site }))
        }
        MISSED => Ok(PeerMessage::Missed {
            id: TimerId(u64::from_le_bytes(chunk(input)?)),
            by: NodeHash(u32::from_le_bytes(chunk(input)?)),
        }),
        NO_ROOM => Ok(PeerMessage::NoRoom {
            id: TimerId(u64::from_le_bytes(chunk(input)?)),
            at: NodeHash(u32::from_le_bytes(chunk(input)?)),
        }),
        ORDERS => {
            let lines = bytes(input)?;
            match lines.len() <= ORDERS_BYTES_MAX {
                true => Ok(PeerMessage::Orders(lines)),
                false => Err(PeerMessageError("more orders than a message has")),
            }
        }
        LIST => {
            Ok(PeerMessage::List { shard: u16::from_le_bytes(chunk(input)?), ask: bytes(input)? })
        }
        CONDITIONAL => {
            let seen = u64::from_le_bytes(chunk(input)?);
            let kind = byte(input)?;
            if kind & !HAS_BODY != COPY | IS_WRITE {
                return Err(PeerMessageError("a condition without a client's write"));
            }
            Ok(PeerMessage::Conditional { seen, copy: copy(kind, input)? })
        }
        kind if kind & !(IS_WRITE | HAS_BODY) == COPY => copy(kind, input).map(PeerMessage::Copy),
        _ => Err(PeerMessageError("unknown kind")),
    }
}

impl PeerResult<'_> {
    /// Appends the result. Cost: one copy of a found timer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Held => out.push(HELD),
            Self::Wanted => out.push(WANTED),
            Self::Superseded { version, factor } => {
                out.push(SUPERSEDED);
                out.extend_from_slice(&version.to_le_bytes());
                out.push(factor);
            }
            Self::Busy => out.push(BUSY),
            Self::Refused(reason) => out.extend_from_slice(&[REFUSED, reason as u8]),
            Self::Found(copy) => {
                out.push(FOUND);
                write_bytes(copy, out);
            }
            Self::NotFound => out.push(NOT_FOUND),
            Self::Ahead => out.push(AHEAD),
            Self::Otherwise => out.push(OTHERWISE),
        }
    }

    /// Bytes that [`PeerResult::encode`] appends for this result.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Held | Self::Wanted | Self::Busy | Self::NotFound => 1,
            Self::Ahead | Self::Otherwise => 1,
            Self::Refused(_) => 2,
            Self::Superseded { .. } => 10,
            Self::Found(copy) => 1 + leb128_bytes(copy.len() as u64) + copy.len(),
        }
    }
}

/// Takes one result off the front of `input` and leaves the rest. The bytes of a found copy are not
/// checked; [`decode_message`] checks them.
pub fn decode_result<'a>(input: &mut &'a [u8]) -> Result<PeerResult<'a>, PeerMessageError> {
    match byte(input)? {
        HELD => Ok(PeerResult::Held),
        WANTED => Ok(PeerResult::Wanted),
        SUPERSEDED => {
            let version = u64::from_le_bytes(chunk(input)?);
            let factor = byte(input)?;
            if !(1..=REPLICATION_FACTOR_MAX).contains(&factor.into()) {
                return Err(PeerMessageError("a replication factor that is not 1 to 16"));
            }
            Ok(PeerResult::Superseded { version, factor })
        }
        BUSY => Ok(PeerResult::Busy),
        REFUSED => match byte(input)? {
            1 => Ok(PeerResult::Refused(PeerRefusal::FutureVersion)),
            2 => Ok(PeerResult::Refused(PeerRefusal::Full)),
            3 => Ok(PeerResult::Refused(PeerRefusal::Malformed)),
            4 => Ok(PeerResult::Refused(PeerRefusal::TokenFull)),
            5 => Ok(PeerResult::Refused(PeerRefusal::OtherName)),
            _ => Err(PeerMessageError("unknown reason of a refusal")),
        },
        FOUND => Ok(PeerResult::Found(bytes(input)?)),
        NOT_FOUND => Ok(PeerResult::NotFound),
        AHEAD => Ok(PeerResult::Ahead),
        OTHERWISE => Ok(PeerResult::Otherwise),
        _ => Err(PeerMessageError("unknown kind of result")),
    }
}

pub(super) fn chunk<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], PeerMessageError> {
    let (chunk, rest) = input.split_first_chunk().ok_or(PeerMessageError("cut off"))?;
    *input = rest;
    Ok(*chunk)
}

pub(super) fn byte(input: &mut &[u8]) -> Result<u8, PeerMessageError> {
    chunk(input).map(|[byte]| byte)
}

pub(super) fn number(
    input: &mut &[u8],
    max: u64,
    beyond: PeerMessageError,
) -> Result<u64, PeerMessageError> {
    let number = read_leb128(input)
        .ok_or(PeerMessageError("expected a LEB128 number in its shortest form"))?;
    if number > max { Err(beyond) } else { Ok(number) }
}

pub(super) fn bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], PeerMessageError> {
    const CUT_OFF: PeerMessageError = PeerMessageError("cut off");
    let len = number(input, input.len() as u64, CUT_OFF)?;
    let (bytes, rest) = input.split_at_checked(len as usize).ok_or(CUT_OFF)?;
    *input = rest;
    Ok(bytes)
}

fn standing(input: &mut &[u8]) -> Result<Standing, PeerMessageError> {
    let mut standing = key(input)?;
    standing.actives = actives(input)?;
    standing.list_digest = u32::from_le_bytes(chunk(input)?);
    Ok(standing)
}

/// Takes id, version and sequence. The other fields of the standing are 0.
fn key(input: &mut &[u8]) -> Result<Standing, PeerMessageError> {
    Ok(Standing {
        id: TimerId(u64::from_le_bytes(chunk(input)?)),
        version: u64::from_le_bytes(chunk(input)?),
        sequence: number(input, SEQUENCE_MAX, PeerMessageError("a sequence out of range"))?,
        actives: 0,
        list_digest: 0,
    })
}

fn actives(input: &mut &[u8]) -> Result<u16, PeerMessageError> {
    let beyond = PeerMessageError("ranks that no list has");
    number(input, u16::MAX.into(), beyond).map(|actives| actives as u16)
}

fn copy<'a>(kind: u8, input: &mut &'a [u8]) -> Result<TimerCopy<'a>, PeerMessageError> {
    let mut standing = key(input)?;
    let factor_and_sites = byte(input)?;
    let replicas = replicas(input)?;
    standing.list_digest = replicas.digest();
    standing.actives = actives(input)?;
    if standing.actives & !replicas.all_ranks() != 0 {
        return Err(PeerMessageError("a rank acts that the list does not have"));
    }
    let sites = sites(factor_and_sites & 0xf, input)?;
    let beyond = PeerMessageError("a start out of range");
    let start_ms = number(input, START_MS_MAX, beyond)?;
    let beyond = PeerMessageError("an interval or repeat-for out of range");
    Ok(TimerCopy {
        standing,
        is_write: kind & IS_WRITE != 0,
        replicas,
        factor: (factor_and_sites >> 4) + 1,
        sites,
        start_ms,
        interval_ms: number(input, INTERVAL_MS_MAX, beyond)?,
        repeat_for_ms: number(input, INTERVAL_MS_MAX, beyond)?,
        body: if kind & HAS_BODY == 0 { None } else { Some(body(input)?) },
    })
}

fn replicas(input: &mut &[u8]) -> Result<Replicas, PeerMessageError> {
    let count = byte(input)?;
    if u32::from(count) > REPLICATION_FACTOR_MAX {
        return Err(PeerMessageError("more replicas than a timer can have"));
    }
    let mut replicas = Replicas::new();
    for _ in 0..count {
        let node = NodeHash(u32::from_le_bytes(chunk(input)?));
        if replicas.contains(node) {
            return Err(PeerMessageError("a replica twice"));
        }
        replicas.push(node);
    }
    Ok(replicas)
}

fn sites(count: u8, input: &mut &[u8]) -> Result<Sites, PeerMessageError> {
    if usize::from(count) > SITES_PER_TIMER_MAX {
        return Err(PeerMessageError("more sites than a timer can have"));
    }
    let mut sites = Sites::new();
    for _ in 0..count {
        let site = SiteHash(u32::from_le_bytes(chunk(input)?));
        if sites.contains(site) {
            return Err(PeerMessageError("a site twice"));
        }
        sites.push(site);
    }
    Ok(sites)
}

fn body<'a>(input: &mut &'a [u8]) -> Result<CopyBody<'a>, PeerMessageError> {
    let authority = bytes(input)?;
    let authority = std::str::from_utf8(authority)
        .ok()
        .filter(|text| is_authority(text))
        .ok_or(PeerMessageError("expected an authority host:port"))?;
    let content = bytes(input)?;
    check_content(authority, content)?;
    Ok(CopyBody { authority, content })
}

/// Checks that content comes apart as `timer::definition` takes it apart, and that its target may
/// stand in a request line.
pub fn check_content(authority: &str, content: &[u8]) -> Result<(), PeerMessageError> {
    const CUT_OFF: PeerMessageError = PeerMessageError("content that is cut off");
    let mut rest = content;
    let [target_low, target_high, tags_low, tags_high] = chunk(&mut rest).map_err(|_| CUT_OFF)?;
    let target_bytes = usize::from(u16::from_le_bytes([target_low, target_high]));
    let tags_bytes = u16::from_le_bytes([tags_low, tags_high]);
    let (target, rest) = rest.split_at_checked(target_bytes).ok_or(CUT_OFF)?;
    let (tags, opaque) =
        rest.split_at_checked(usize::from(tags_bytes & !HAS_ATTRIBUTES)).ok_or(CUT_OFF)?;
    if before(authority).len() + authority.len() + target.len() > URI_TOLD_BYTES_MAX {
        return Err(PeerMessageError("a callback URI that is too long"));
    }
    let is_path = matches!(target.first(), None | Some(b'/' | b'?'));
    if !is_path || !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
        return Err(PeerMessageError("a target that no callback URI has"));
    }
    check_tags(tags)?;
    let (is_binary, opaque) = match tags_bytes & HAS_ATTRIBUTES {
        0 => (false, opaque),
        _ => check_attributes(opaque)?,
    };
    match std::str::from_utf8(opaque) {
        Err(_) if !is_binary => Err(PeerMessageError("opaque data that is no text")),
        _ => Ok(()),
    }
}

/// Checks the attributes at the front of the input. Returns whether the opaque data behind them are
/// bytes, and these data.
#[inline(never)]
fn check_attributes(mut input: &[u8]) -> Result<(bool, &[u8]), PeerMessageError> {
    const CUT_OFF: PeerMessageError = PeerMessageError("attributes that are cut off");
    let length = usize::from(u16::from_le_bytes(chunk(&mut input).map_err(|_| CUT_OFF)?));
    let (attributes, opaque) = input.split_at_checked(length).ok_or(CUT_OFF)?;
    if attributes.is_empty() {
        return Err(PeerMessageError("room for attributes, and none"));
    }
    let read = Attributes::read(attributes).map_err(|error| PeerMessageError(error.0))?;
    Ok((read.is_binary, opaque))
}

fn check_tags(mut tags: &[u8]) -> Result<(), PeerMessageError> {
    const MALFORMED: PeerMessageError = PeerMessageError("malformed statistics tags");
    const OWNER: PeerMessageError = PeerMessageError("malformed owner of a timer");
    if tags.get(4).is_some_and(|length| length & IS_OWNER != 0) {
        let count = u32::from_le_bytes(chunk(&mut tags).map_err(|_| OWNER)?);
        let length = usize::from(byte(&mut tags).map_err(|_| OWNER)? & !IS_OWNER);
        let (name, rest) = tags.split_at_checked(length).ok_or(OWNER)?;
        if count != 0 || !is_token_name(name) {
            return Err(OWNER);
        }
        tags = rest;
    }
    for _ in 0..TAGS_PER_TIMER_MAX {
        if tags.is_empty() {
            break;
        }
        let count = u32::from_le_bytes(chunk(&mut tags).map_err(|_| MALFORMED)?);
        let name_bytes = usize::from(byte(&mut tags).map_err(|_| MALFORMED)?);
        let (name, rest) = tags.split_at_checked(name_bytes).ok_or(MALFORMED)?;
        tags = rest;
        let is_name = (1..=TAG_BYTES_MAX).contains(&name_bytes);
        if count == 0 || !is_name || std::str::from_utf8(name).is_err() {
            return Err(MALFORMED);
        }
    }
    if tags.is_empty() { Ok(()) } else { Err(PeerMessageError("more tags than a timer can have")) }
}
