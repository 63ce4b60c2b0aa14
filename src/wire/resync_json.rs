//! What nodes ask and answer when an original takes part in resynchronisation
//! (docs/compat/timer-service.md §5.2 and §5.3): `GET /timers?node-for-replicas=...`, its answer,
//! and the body of `DELETE /timers/references`.
//!
//! Where the original's documents and the original differ, the original counts. The key of the
//! answer is `Timers` (`timers` is read as well), and `time-from` is milliseconds from now.

// May panic: indices 1.
// Why it does not: found 1.

use std::borrow::Cow;

use crate::base::ids::TimerId;
use crate::base::limits::REPLICATION_FACTOR_MAX;
use crate::wire::internal_json::{
    AnyDocument, InternalTimer, NAME_BYTES_MAX, ReplicaNames, parse_decimal, read_any, read_names,
    write_internal, write_names,
};
use crate::wire::json::{Cursor, set_once, write_number};
use crate::wire::timer_json::{DocumentError, JsonScratch};

/// One timer of the answer.
#[derive(Clone, Debug)]
pub struct ResyncTimer<'a> {
    /// `TimerID`.
    pub id: TimerId,
    /// `OldReplicas`: the nodes that hold the timer under the old cluster.
    pub old_replicas: ReplicaNames<'a>,
    /// `Timer`: the timer with the replicas of the new cluster.
    pub timer: AnyDocument<'a>,
}

/// Writes the answer to `GET /timers?node-for-replicas=...`, timer by timer.
#[derive(Debug)]
pub struct ResyncWriter<'o> {
    out: &'o mut Vec<u8>,
    count: usize,
}

impl<'o> ResyncWriter<'o> {
    /// Appends the beginning of the answer.
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        out.extend_from_slice(b"{\"Timers\":[");
        Self { out, count: 0 }
    }

    /// Appends a timer. `timer` must name the replicas of the new cluster.
    pub fn timer(&mut self, id: TimerId, old_replicas: &[&str], timer: &InternalTimer<'_>) {
        if self.count > 0 {
            self.out.push(b',');
        }
        self.count += 1;
        self.out.extend_from_slice(b"{\"TimerID\":");
        write_number(id.0, self.out);
        if old_replicas.is_empty() {
            self.out.extend_from_slice(b",\"OldReplicas\":[]");
        }
        write_names(",\"OldReplicas\":", old_replicas, self.out);
        self.out.extend_from_slice(b",\"Timer\":");
        write_internal(timer, self.out);
        self.out.push(b'}');
    }

    /// How many timers were appended, for `Content-Range`.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Appends the end of the answer.
    pub fn end(self) {
        self.out.extend_from_slice(b"]}");
    }
}

/// Parses the answer in place and calls `each` for every timer, in order. `each` gets an error for
/// a malformed timer, and the timers behind it are read all the same, because one timer must not
/// keep a node from the others. `Err`: the body is no such answer.
pub fn parse_timers<'a>(
    body: &'a mut [u8],
    scratch: &mut JsonScratch,
    mut each: impl FnMut(Result<ResyncTimer<'a>, DocumentError>),
) -> Result<(), DocumentError> {
    scratch.parse(body, |cursor| {
        let mut timers = None;
        for _ in 0..cursor.object("body")? {
            let is_timers = matches!(cursor.key(), "Timers" | "timers");
            let value = cursor.value();
            if is_timers {
                set_once(&mut timers, value, "Timers")?;
            }
        }
        let mut timers = timers.ok_or_else(|| DocumentError::missing("Timers", "an array"))?;
        for _ in 0..timers.array("Timers", "an array")? {
            each(read_timer(&mut timers.value()));
        }
        Ok(())
    })
}

fn read_timer<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<ResyncTimer<'a>, DocumentError> {
    const ID: &str = "Timers.TimerID";
    const OLD_REPLICAS: &str = "Timers.OldReplicas";
    const TIMER: &str = "Timers.Timer";
    let (mut id, mut old_replicas, mut timer) = (None, None, None);
    for _ in 0..cursor.object("Timers")? {
        match cursor.key() {
            "TimerID" => set_once(&mut id, TimerId(cursor.number(u64::MAX, ID)?), ID)?,
            "OldReplicas" => {
                set_once(&mut old_replicas, read_names(cursor, OLD_REPLICAS)?, OLD_REPLICAS)?;
            }
            "Timer" => set_once(&mut timer, read_any(&mut cursor.value())?, TIMER)?,
            _ => cursor.skip(),
        }
    }
    Ok(ResyncTimer {
        id: id.ok_or_else(|| DocumentError::missing(ID, "a whole number"))?,
        old_replicas: old_replicas.unwrap_or_default(),
        timer: timer.ok_or_else(|| DocumentError::missing(TIMER, "an object"))?,
    })
}

/// A timer that a node has taken over, in `DELETE /timers/references`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The timer.
    pub id: TimerId,
    /// The rank of the node that has taken the timer over.
    pub rank: u8,
}

/// Appends the body of `DELETE /timers/references`.
pub fn write_references(references: &[Reference], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"IDs\":[");
    for (place, reference) in references.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"{\"ID\":" } else { b",{\"ID\":" });
        write_number(reference.id.0, out);
        out.extend_from_slice(b",\"ReplicaIndex\":");
        write_number(reference.rank.into(), out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

/// Parses the body of `DELETE /timers/references` in place and appends its references to
/// `references`. A body that is refused leaves `references` unchanged. A body names at most one
/// timer for each 22 of its bytes.
pub fn parse_references(
    body: &mut [u8],
    scratch: &mut JsonScratch,
    references: &mut Vec<Reference>,
) -> Result<(), DocumentError> {
    let before = references.len();
    let read = scratch.parse(body, |cursor| read_references(cursor, references));
    if read.is_err() {
        references.truncate(before);
    }
    read
}

fn read_references(
    cursor: &mut Cursor<'_, '_>,
    references: &mut Vec<Reference>,
) -> Result<(), DocumentError> {
    const ID: &str = "IDs.ID";
    const RANK: &str = "IDs.ReplicaIndex";
    let mut lists = None;
    for _ in 0..cursor.object("body")? {
        if cursor.key() != "IDs" {
            cursor.skip();
            continue;
        }
        set_once(&mut lists, (), "IDs")?;
        for _ in 0..cursor.array("IDs", "an array of objects")? {
            let (mut id, mut rank) = (None, None);
            for _ in 0..cursor.object("IDs")? {
                match cursor.key() {
                    "ID" => set_once(&mut id, TimerId(cursor.number(u64::MAX, ID)?), ID)?,
                    "ReplicaIndex" => {
                        let rank_max = u64::from(REPLICATION_FACTOR_MAX) - 1;
                        set_once(&mut rank, cursor.number(rank_max, RANK)? as u8, RANK)?;
                    }
                    _ => cursor.skip(),
                }
            }
            let id = id.ok_or_else(|| DocumentError::missing(ID, "a whole number"))?;
            let rank = rank.ok_or_else(|| DocumentError::missing(RANK, "a whole number"))?;
            references.push(Reference { id, rank });
        }
    }
    lists.ok_or_else(|| DocumentError::missing("IDs", "an array of objects"))
}

/// The query of `GET /timers`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResyncQuery<'a> {
    /// `node-for-replicas`: the node that asks, by the name that the members use.
    pub node: Cow<'a, str>,
    /// `cluster-view-id` of the node that asks.
    pub view_id: u64,
    /// `time-from`: asks only for timers that pop later than so many milliseconds from now.
    pub time_from_ms: Option<u64>,
}

/// Why a query is refused with 400: one sentence for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(pub &'static str);

/// Parses the text behind `GET /timers?`. Parameters are separated by `;`, as originals write them,
/// or by `&`. Unknown parameters are ignored. Percent escapes in the node's name are resolved.
///
/// Refused:
///
/// - a parameter that comes twice, or a mandatory parameter that is missing,
/// - a number that is not decimal,
/// - a name that is empty, longer than [`NAME_BYTES_MAX`], or not visible ASCII.
pub fn parse_query(query: &str) -> Result<ResyncQuery<'_>, QueryError> {
    let (mut node, mut view_id, mut time_from_ms) = (None, None, None);
    for parameter in query.split(['&', ';']) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let is_again = match key {
            "node-for-replicas" => node.replace(unescape(value).ok_or(BAD_NODE)?).is_some(),
            "cluster-view-id" => {
                let number = parse_decimal(value).ok_or(BAD_VIEW_ID)?;
                view_id.replace(number).is_some()
            }
            "time-from" => {
                let number = parse_decimal(value).ok_or(BAD_TIME)?;
                time_from_ms.replace(number).is_some()
            }
            _ => false,
        };
        if is_again {
            return Err(QueryError("query: a parameter comes twice"));
        }
    }
    Ok(ResyncQuery {
        node: node.ok_or(BAD_NODE)?,
        view_id: view_id.ok_or(BAD_VIEW_ID)?,
        time_from_ms,
    })
}

const BAD_NODE: QueryError = QueryError("node-for-replicas: expected the name of a node");
const BAD_VIEW_ID: QueryError = QueryError("cluster-view-id: expected a decimal number");
const BAD_TIME: QueryError = QueryError("time-from: expected a decimal number of milliseconds");

/// Appends the target of the request, `/timers?node-for-replicas=...`.
pub fn write_target(query: &ResyncQuery<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"/timers?node-for-replicas=");
    for &byte in query.node.as_bytes() {
        // A query may hold the bytes of an address as they are (RFC 3986 section 3.4).
        if byte.is_ascii_alphanumeric() || b".-_~:[]".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out.extend_from_slice(b"&cluster-view-id=");
    write_number(query.view_id, out);
    if let Some(time_from_ms) = query.time_from_ms {
        out.extend_from_slice(b"&time-from=");
        write_number(time_from_ms, out);
    }
}

/// Resolves percent escapes in a name. `None`: an escape is broken, or the result is no name.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    let name = if text.contains('%') {
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, escaped)) = rest.split_once('%') {
            plain.push_str(before);
            let digits = escaped.get(..2)?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            plain.push(u8::from_str_radix(digits, 16).ok()?.into());
            rest = &escaped[2..];
        }
        plain.push_str(rest);
        Cow::Owned(plain)
    } else {
        Cow::Borrowed(text)
    };
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then_some(name)
}

/// Reads `Range` of the request (how many timers the node wants at most) or `Content-Range` of the
/// answer 206 (how many timers there are): a decimal number alone, at least 1.
pub fn parse_range(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    parse_decimal(text).filter(|&count| count > 0)
}
