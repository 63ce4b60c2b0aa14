//! The JSON documents in which nodes tell each other timers over the internal HTTP API
//! (docs/compat/timer-service.md §4 and §5). The other node is an original, another site, or a node
//! of this service that uses this API.
//!
//! The documents are those of clients with more members, and one parser takes both. A client's
//! document is read as `timer_json` reads it, at the same cost. Only a document that names replicas
//! or sites is read a second time from the tape, by the laxer rules for nodes
//! (docs/compat/timer-service.md §1.4): a part that an original would drop is dropped and counted.
//!
//! This service writes more members, which originals ignore:
//!
//! - `chronos-version`, `chronos-actives`, `chronos-owner`, `chronos-content` and `chronos-once` in
//!   `reliability`,
//! - exact milliseconds in `timing`, if a time is not a whole number of seconds. They stand beside
//!   the whole seconds that an original can read.

use simd_json::{Node, StaticNode};

use crate::base::limits::{INTERVAL_MS_MAX, REPLICATION_FACTOR_MAX, SITES_PER_TIMER_MAX};
use crate::base::ranked::Ranked;
use crate::base::time::WallMs;
use crate::wire::callback_uri::uri_of;
use crate::wire::json::{Cursor, set_once, write_number, write_signed, write_string};
use crate::wire::peer_message::{SEQUENCE_MAX, START_MS_MAX};
use crate::wire::plain_timer::PlainTimer;
use crate::wire::timer_json::{
    DocumentError, JsonScratch, Tag, Tags, TimerDocument, read_document, read_tag,
};
use crate::wire::unknown_members::unknown_members;

/// Most bytes in the name of a node or site: an address of 253 bytes with a port.
pub const NAME_BYTES_MAX: usize = 260;

/// Names of the nodes that hold a timer, by rank.
pub type ReplicaNames<'a> = Ranked<&'a str, { REPLICATION_FACTOR_MAX as usize }>;
/// Names of the sites that hold a timer, by rank.
pub type SiteNames<'a> = Ranked<&'a str, SITES_PER_TIMER_MAX>;

/// A timer document of a client or of a node.
#[derive(Clone, Debug)]
pub struct AnyDocument<'a> {
    /// The members that clients write. If [`AnyDocument::internal`] is `Some`, an empty `uri` means
    /// a tombstone, and tags that a client could not write are left out.
    pub timer: TimerDocument<'a>,
    /// The members that only nodes write; `None`: a client sent the document.
    pub internal: Option<InternalPart<'a>>,
    /// What a client is told of members that nobody knows; `None`: there are none, or a node sent
    /// the document.
    pub unknown: Option<Box<str>>,
}

/// The sender of a document that no client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The document has `replicas`: a node of this site sent it. The receiver must not replicate it
    /// within the site.
    Peer,
    /// The document has `sites` alone: another site sent it. The receiver replicates it in this
    /// site, but not to other sites.
    Site,
}

/// The members that only nodes write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InternalPart<'a> {
    /// The sender, as far as the members tell.
    pub origin: Origin,
    /// `timing.start-time-delta`: start minus now, in milliseconds; negative for a start in the
    /// past.
    pub start_delta_ms: Option<i64>,
    /// `timing.start-time`: wall milliseconds modulo 2^32. It counts only without a delta.
    pub start_wall_ms: Option<u32>,
    /// `timing.sequence-number`: how many pops are done; 0 if absent.
    pub sequence: u64,
    /// `reliability.cluster-view-id`; `None` if absent or not a decimal number.
    pub view_id: Option<u64>,
    /// `reliability.replicas`, by rank.
    pub replicas: ReplicaNames<'a>,
    /// `reliability.sites`, by rank.
    pub sites: SiteNames<'a>,
    /// `reliability.chronos-version`: the timer's version, if a node of this service sent it.
    pub version: Option<u64>,
    /// `reliability.chronos-actives`: the mask, if a node of this service sent it.
    pub actives: Option<u16>,
    /// `reliability.chronos-owner`: the name of the token that the timer was written with.
    pub owner: Option<&'a str>,
    /// `reliability.chronos-content`: base64 of the timer's content (`timer::definition`), if it
    /// has what the other members do not tell.
    pub content: Option<&'a str>,
    /// `reliability.chronos-once`: of a tombstone whose id a key made, the digest of the body that
    /// came with the key.
    pub once: Option<u64>,
    /// How many tags were left out: malformed tags, and tags beyond the sixteenth.
    pub tags_dropped: u32,
}

/// Parses a timer document of a client, of a node of this site, or of another site, in place. A
/// client's document has the errors, the cost and the memory of
/// [`parse_timer`](crate::wire::timer_json::parse_timer); the documents that nearly all clients
/// write cost two thirds of that (`plain_timer.rs`). A node's document costs another pass over its
/// tokens.
pub fn parse_any<'a>(
    body: &'a mut [u8],
    scratch: &mut JsonScratch,
) -> Result<AnyDocument<'a>, DocumentError> {
    let mut plain = PlainTimer::default();
    match plain.read(body) {
        true => Ok(AnyDocument { timer: plain.document(body), internal: None, unknown: None }),
        false => scratch.parse(body, read_any),
    }
}

/// Reads the document that comes next on the tape.
pub(super) fn read_any<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<AnyDocument<'a>, DocumentError> {
    let whole = *cursor;
    match read_document(cursor) {
        Ok((timer, false)) => {
            let unknown = if cursor.has_unknown { unknown_members(whole) } else { None };
            Ok(AnyDocument { timer, internal: None, unknown })
        }
        Err(error) if !names_nodes(whole) => Err(error),
        Ok(_) | Err(_) => read_internal(&mut { whole }),
    }
}

/// Whether the document names replicas or sites, so that a node must have written it.
#[cold]
fn names_nodes(mut cursor: Cursor<'_, '_>) -> bool {
    let mut reliability = None;
    for _ in 0..cursor.object("").unwrap_or(0) {
        let is_reliability = cursor.key() == "reliability";
        let value = cursor.value();
        if is_reliability {
            reliability = Some(value);
        }
    }
    reliability.is_some_and(|mut members| {
        (0..members.object("").unwrap_or(0)).any(|_| {
            let is_node_list = matches!(members.key(), "replicas" | "sites");
            members.skip();
            is_node_list
        })
    })
}

/// The members of `timing` as nodes write them.
#[derive(Default)]
struct Timing {
    interval_s: f64,
    repeat_for_s: Option<f64>,
    start_delta_ms: Option<i64>,
    start_wall_ms: Option<u32>,
    sequence: Option<u64>,
}

/// The members of `reliability` as nodes write them.
#[derive(Default)]
struct Reliability<'a> {
    factor: Option<i64>,
    view_id: Option<u64>,
    replicas: Option<ReplicaNames<'a>>,
    sites: Option<SiteNames<'a>>,
    version: Option<u64>,
    actives: Option<u16>,
    owner: Option<&'a str>,
    content: Option<&'a str>,
    once: Option<u64>,
}

fn read_internal<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<AnyDocument<'a>, DocumentError> {
    let (mut timing, mut callback, mut reliability, mut statistics) = (None, None, None, None);
    for _ in 0..cursor.object("body")? {
        match cursor.key() {
            "timing" => set_once(&mut timing, read_timing(cursor)?, "timing")?,
            "callback" => set_once(&mut callback, read_callback(cursor)?, "callback")?,
            "reliability" => {
                set_once(&mut reliability, read_reliability(cursor)?, "reliability")?;
            }
            "statistics" => set_once(&mut statistics, read_statistics(cursor), "statistics")?,
            _ => cursor.skip(),
        }
    }
    let timing: Timing = timing.ok_or_else(|| DocumentError::missing("timing", "an object"))?;
    let (uri, opaque) = callback.unwrap_or_default();
    let reliability: Reliability<'a> = reliability.unwrap_or_default();
    let (tags, tags_dropped) = statistics.unwrap_or((Tags::none(), 0));
    let origin = if reliability.replicas.is_some() { Origin::Peer } else { Origin::Site };
    let timer = TimerDocument {
        interval_s: timing.interval_s,
        repeat_for_s: timing.repeat_for_s,
        uri,
        opaque,
        replication_factor: reliability.factor,
        tags,
        options: None,
    };
    let internal = InternalPart {
        origin,
        start_delta_ms: timing.start_delta_ms,
        start_wall_ms: timing.start_wall_ms,
        sequence: timing.sequence.unwrap_or(0),
        view_id: reliability.view_id,
        replicas: reliability.replicas.unwrap_or_default(),
        sites: reliability.sites.unwrap_or_default(),
        version: reliability.version,
        actives: reliability.actives,
        owner: reliability.owner,
        content: reliability.content,
        once: reliability.once,
        tags_dropped,
    };
    Ok(AnyDocument { timer, internal: Some(internal), unknown: None })
}

fn read_timing(cursor: &mut Cursor<'_, '_>) -> Result<Timing, DocumentError> {
    const INTERVAL: &str = "timing.interval";
    const REPEAT_FOR: &str = "timing.repeat-for";
    const DELTA: &str = "timing.start-time-delta";
    const START: &str = "timing.start-time";
    const SEQUENCE: &str = "timing.sequence-number";
    const INTERVAL_MS: &str = "timing.chronos-interval-ms";
    const REPEAT_FOR_MS: &str = "timing.chronos-repeat-for-ms";
    let mut timing = Timing::default();
    let (mut interval, mut interval_ms, mut repeat_for_ms) = (None, None, None);
    for _ in 0..cursor.object("timing")? {
        match cursor.key() {
            "interval" => set_once(&mut interval, cursor.seconds(INTERVAL)?, INTERVAL)?,
            "repeat-for" => {
                set_once(&mut timing.repeat_for_s, cursor.seconds(REPEAT_FOR)?, REPEAT_FOR)?;
            }
            "start-time-delta" => {
                let delta_ms = cursor.whole_number(DELTA)?;
                if delta_ms.unsigned_abs() > START_MS_MAX {
                    return Err(DocumentError::told("timing.start-time-delta: out of range"));
                }
                set_once(&mut timing.start_delta_ms, delta_ms, DELTA)?;
            }
            "start-time" => {
                let wall_ms = cursor.whole_number(START)? as u32;
                set_once(&mut timing.start_wall_ms, wall_ms, START)?;
            }
            "sequence-number" => {
                set_once(&mut timing.sequence, cursor.number(SEQUENCE_MAX, SEQUENCE)?, SEQUENCE)?;
            }
            "chronos-interval-ms" => {
                let ms = cursor.number(INTERVAL_MS_MAX, INTERVAL_MS)?;
                set_once(&mut interval_ms, ms, INTERVAL_MS)?;
            }
            "chronos-repeat-for-ms" => {
                let ms = cursor.number(INTERVAL_MS_MAX, REPEAT_FOR_MS)?;
                set_once(&mut repeat_for_ms, ms, REPEAT_FOR_MS)?;
            }
            _ => cursor.skip(),
        }
    }
    // A double holds each of these milliseconds as seconds, with an error below a millionth of a
    // second.
    let seconds = |ms| ms as f64 / 1000.0;
    timing.interval_s = interval_ms
        .map(seconds)
        .or(interval)
        .ok_or_else(|| DocumentError::missing(INTERVAL, "a number of seconds"))?;
    timing.repeat_for_s = repeat_for_ms.map(seconds).or(timing.repeat_for_s);
    Ok(timing)
}

/// URI and opaque data; both are empty where they are missing. A tombstone has an empty callback
/// section (docs/compat/timer-service.md §4) or empty members.
fn read_callback<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<(&'a str, &'a str), DocumentError> {
    const URI: &str = "callback.http.uri";
    const OPAQUE: &str = "callback.http.opaque";
    let (mut uri, mut opaque) = (None, None);
    for _ in 0..cursor.object("callback")? {
        if cursor.key() != "http" {
            cursor.skip();
            continue;
        }
        for _ in 0..cursor.object("callback.http")? {
            match cursor.key() {
                "uri" => set_once(&mut uri, cursor.string(URI)?, URI)?,
                "opaque" => set_once(&mut opaque, cursor.string(OPAQUE)?, OPAQUE)?,
                _ => cursor.skip(),
            }
        }
    }
    let (uri, opaque) = (uri.unwrap_or_default(), opaque.unwrap_or_default());
    if uri.is_empty() && !opaque.is_empty() {
        return Err(DocumentError::told(
            "callback.http.uri: expected http://host[:port]/path beside opaque data, got nothing",
        ));
    }
    Ok((uri, opaque))
}

fn read_reliability<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Reliability<'a>, DocumentError> {
    const FACTOR: &str = "reliability.replication-factor";
    const VERSION: &str = "reliability.chronos-version";
    const ACTIVES: &str = "reliability.chronos-actives";
    const OWNER: &str = "reliability.chronos-owner";
    const CONTENT: &str = "reliability.chronos-content";
    const ONCE: &str = "reliability.chronos-once";
    let mut read = Reliability::default();
    for _ in 0..cursor.object("reliability")? {
        match cursor.key() {
            "replication-factor" => {
                set_once(&mut read.factor, cursor.whole_number(FACTOR)?, FACTOR)?;
            }
            // A view id is only compared with this node's view id, so an id of another form stands
            // for another view.
            "cluster-view-id" => read.view_id = read_view_id(cursor),
            "replicas" => {
                let names = read_names(cursor, "reliability.replicas")?;
                set_once(&mut read.replicas, names, "reliability.replicas")?;
            }
            "sites" => {
                let names = read_names(cursor, "reliability.sites")?;
                set_once(&mut read.sites, names, "reliability.sites")?;
            }
            "chronos-version" => {
                let version = parse_decimal(cursor.string(VERSION)?).ok_or(DocumentError::told(
                    "reliability.chronos-version: expected a decimal number in a string",
                ))?;
                set_once(&mut read.version, version, VERSION)?;
            }
            "chronos-actives" => {
                let actives = cursor.number(u16::MAX.into(), ACTIVES)? as u16;
                set_once(&mut read.actives, actives, ACTIVES)?;
            }
            "chronos-owner" => set_once(&mut read.owner, cursor.string(OWNER)?, OWNER)?,
            "chronos-content" => set_once(&mut read.content, cursor.string(CONTENT)?, CONTENT)?,
            "chronos-once" => {
                let once = cursor.number(u64::MAX, ONCE)?;
                set_once(&mut read.once, once, ONCE)?;
            }
            _ => cursor.skip(),
        }
    }
    Ok(read)
}

fn read_view_id(cursor: &mut Cursor<'_, '_>) -> Option<u64> {
    let node = cursor.value().next();
    match node {
        Node::String(text) => parse_decimal(text),
        Node::Static(StaticNode::U64(number)) => Some(number),
        _ => None,
    }
}

/// Reads a list of at most `N` names of nodes or sites.
pub(super) fn read_names<'a, const N: usize>(
    cursor: &mut Cursor<'_, 'a>,
    path: &str,
) -> Result<Ranked<&'a str, N>, DocumentError> {
    let len = cursor.array(path, "an array of names")?;
    if len > N {
        return Err(DocumentError(format!("{path}: expected at most {N}, got {len}").into()));
    }
    let mut names = Ranked::new();
    for _ in 0..len {
        let name = cursor.string(path)?;
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            let got = name.len();
            return Err(DocumentError(
                format!("{path}: expected names of 1 to {NAME_BYTES_MAX} bytes, got {got}").into(),
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// The tags, and how many tags were left out. A malformed tag is left out because the timer matters
/// more.
fn read_statistics<'a>(cursor: &mut Cursor<'_, 'a>) -> (Tags<'a>, u32) {
    let (mut tags, mut dropped) = (Tags::none(), 0);
    let mut statistics = cursor.value();
    let Ok(members) = statistics.object("statistics") else { return (tags, 1) };
    for _ in 0..members {
        let is_tag_info = statistics.key() == "tag-info";
        let mut value = statistics.value();
        if !is_tag_info {
            continue;
        }
        let Ok(len) = value.array("statistics.tag-info", "an array") else {
            dropped += 1;
            continue;
        };
        for _ in 0..len {
            let is_kept = |tag: Tag<'a>| tag.count == 0 || tags.push(tag);
            let is_kept = read_tag(&mut value.value()).is_ok_and(is_kept);
            dropped += u32::from(!is_kept);
        }
    }
    (tags, dropped)
}

/// Reads decimal digits without a sign, at most 2^64 - 1. Empty text is no number.
pub(super) fn parse_decimal(text: &str) -> Option<u64> {
    // The digits are checked because `parse` accepts a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A timer as this service tells it over the internal HTTP API.
#[derive(Clone, Copy, Debug)]
pub struct InternalTimer<'a> {
    /// The wall clock at the time of writing.
    pub now: WallMs,
    /// Start minus now, in milliseconds.
    pub start_delta_ms: i64,
    /// How many pops are done.
    pub sequence: u64,
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds after the start in which the timer pops.
    pub repeat_for_ms: u64,
    /// What is called back; `None`: the timer is a tombstone.
    pub callback: Option<InternalCallback<'a>>,
    /// The sender's `cluster-view-id`.
    pub view_id: u64,
    /// Names of the nodes that hold the timer, by rank. Empty leaves the member out, as for another
    /// site.
    pub replicas: &'a [&'a str],
    /// Names of the sites that hold the timer, by rank. Empty leaves the member out.
    pub sites: &'a [&'a str],
    /// The replication factor, if the document should repeat the factor in the path.
    pub factor: Option<u8>,
    /// Statistics tags.
    pub tags: &'a [Tag<'a>],
    /// The version, if the receiver is a node of this service.
    pub version: Option<u64>,
    /// The mask, if the receiver is a node of this service.
    pub actives: Option<u16>,
    /// The name of the token that the timer was written with, if the receiver is a node of this
    /// service.
    pub owner: Option<&'a str>,
    /// Base64 of the content, if it has attributes. Only nodes of this service hold such timers.
    pub content: Option<&'a str>,
    /// Of a tombstone whose id a key made, the digest of the body that came with the key.
    pub once: Option<u64>,
}

/// A callback as the document writes it.
#[derive(Clone, Copy, Debug)]
pub struct InternalCallback<'a> {
    /// Authority of the URI, as `wire::callback_uri` has it.
    pub authority: &'a str,
    /// Path and query of the URI.
    pub target: &'a str,
    /// Opaque data.
    pub opaque: &'a str,
}

/// Appends the document with its members in the order of docs/compat/timer-service.md §5.1.
///
/// An original reads whole seconds only. For other times the interval is rounded up, and repeat-for
/// becomes as many of these intervals as the timer has pops. So the original makes as many pops,
/// but later. Nodes of this service read the milliseconds beside the seconds.
pub fn write_internal(timer: &InternalTimer<'_>, out: &mut Vec<u8>) {
    write_timing(timer, out);
    out.extend_from_slice(b",\"callback\":{\"http\":{\"uri\":");
    let callback = timer.callback.map(|InternalCallback { authority, target, opaque }| {
        (uri_of(authority, target.as_bytes()), opaque)
    });
    let (uri, opaque) = callback.as_ref().map_or(("", ""), |(uri, opaque)| (uri, opaque));
    write_string(uri, out);
    out.extend_from_slice(b",\"opaque\":");
    write_string(opaque, out);
    out.extend_from_slice(b"}},\"reliability\":{\"cluster-view-id\":\"");
    write_number(timer.view_id, out);
    out.push(b'"');
    write_names(",\"replicas\":", timer.replicas, out);
    write_names(",\"sites\":", timer.sites, out);
    if let Some(factor) = timer.factor {
        out.extend_from_slice(b",\"replication-factor\":");
        write_number(factor.into(), out);
    }
    if let Some(version) = timer.version {
        out.extend_from_slice(b",\"chronos-version\":\"");
        write_number(version, out);
        out.push(b'"');
    }
    if let Some(actives) = timer.actives {
        out.extend_from_slice(b",\"chronos-actives\":");
        write_number(actives.into(), out);
    }
    if let Some(owner) = timer.owner {
        out.extend_from_slice(b",\"chronos-owner\":");
        write_string(owner, out);
    }
    if let Some(content) = timer.content {
        out.extend_from_slice(b",\"chronos-content\":");
        write_string(content, out);
    }
    if let Some(once) = timer.once {
        out.extend_from_slice(b",\"chronos-once\":");
        write_number(once, out);
    }
    out.extend_from_slice(b"},\"statistics\":{\"tag-info\":[");
    for (place, tag) in timer.tags.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"{\"type\":" } else { b",{\"type\":" });
        write_string(tag.kind, out);
        out.extend_from_slice(b",\"count\":");
        write_number(tag.count.into(), out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}}");
}

fn write_timing(timer: &InternalTimer<'_>, out: &mut Vec<u8>) {
    let (interval_ms, repeat_for_ms) = (timer.interval_ms, timer.repeat_for_ms);
    let is_whole = interval_ms.is_multiple_of(1000) && repeat_for_ms.is_multiple_of(1000);
    let interval_s = interval_ms.div_ceil(1000);
    let repeat_for_s = match repeat_for_ms.checked_div(interval_ms) {
        Some(pops) if !is_whole && pops > 0 => interval_s.saturating_mul(pops),
        _ => repeat_for_ms.div_ceil(1000),
    };
    let start_wall_ms = timer.now.0.wrapping_add_signed(timer.start_delta_ms) as u32;
    out.extend_from_slice(b"{\"timing\":{\"start-time\":");
    write_number(start_wall_ms.into(), out);
    out.extend_from_slice(b",\"start-time-delta\":");
    // A start is rounded up to the next millisecond, so a start of now can lie a millisecond ahead.
    // That of a timer with a window may lie ahead.
    let most = if timer.content.is_some() { i64::MAX } else { 0 };
    write_signed(timer.start_delta_ms.min(most), out);
    out.extend_from_slice(b",\"sequence-number\":");
    write_number(timer.sequence, out);
    out.extend_from_slice(b",\"interval\":");
    write_number(interval_s, out);
    out.extend_from_slice(b",\"repeat-for\":");
    write_number(repeat_for_s, out);
    if !is_whole {
        out.extend_from_slice(b",\"chronos-interval-ms\":");
        write_number(interval_ms, out);
        out.extend_from_slice(b",\"chronos-repeat-for-ms\":");
        write_number(repeat_for_ms, out);
    }
    out.push(b'}');
}

/// Appends a member that is a list of names. An empty list appends nothing.
pub(super) fn write_names(key: &str, names: &[&str], out: &mut Vec<u8>) {
    if names.is_empty() {
        return;
    }
    out.extend_from_slice(key.as_bytes());
    for (place, name) in names.iter().enumerate() {
        out.push(if place == 0 { b'[' } else { b',' });
        write_string(name, out);
    }
    out.push(b']');
}
