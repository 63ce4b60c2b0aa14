//! The query of `GET /timers`: which timers a client wants to see, and where it goes on. It comes
//! from outside, so each parameter is known, comes once, and lies within its limits.
//!
//! A cursor is a place in the order of lists, as text. It is good for the query that it was given
//! out for, on every node, for as long as the format lasts. Nobody is kept from making one: it only
//! says where to go on, so that a made-up cursor shows nothing that the query itself would not.

// May panic: indices 3, cuts 4.
// Why it does not: found 2, fixed 5.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::base::ids::mix;
use crate::base::limits::{INTERVAL_MS_MAX, TAG_BYTES_MAX};
use crate::base::time::WallMs;
use crate::wire::dead_letter::{GivenUp, LetterUse};
use crate::wire::lasting::lasting_ms;
use crate::wire::timer_list::{Filter, LIST_LIMIT_MAX, ListedState, Place, STATES_ALL};
use crate::wire::timer_name::NAME_BYTES_MAX;
use crate::wire::timer_options::Lasting;
use crate::wire::wall_time::read_wall_time;

/// Timers on a page when the query does not say how many.
pub const LIST_LIMIT_DEFAULT: u16 = 100;
/// Longest host of a callback: 253 bytes of a name, or an IPv6 address, and a port.
const HOST_BYTES_MAX: usize = 262;
/// Bytes of a cursor before they are written as hex digits.
const CURSOR_BYTES: usize = 32;
/// The format of the cursors that this version gives out.
const CURSOR_FORMAT: u32 = 1;

/// Every parameter, as errors name them.
const PARAMETERS: &str = "tag, host, name-prefix, due-after, due-before, state, limit or cursor";
/// Every parameter of a list of dead letters.
const LETTER_PARAMETERS: &str = "tag, host, reason, limit or cursor";

/// The parameters of `DELETE /timers`, as errors name them.
const FILTERS: &str = "tag, name-prefix, host, due-after or due-before";
const FILTER_NAMES: [&str; 5] = ["tag", "name-prefix", "host", "due-after", "due-before"];

/// A filter that owns its texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFilter {
    states: u8,
    tag: Option<Box<str>>,
    host: Option<Box<str>>,
    name_prefix: Option<Box<str>>,
    due_after: Option<WallMs>,
    due_before: Option<WallMs>,
    reason: Option<GivenUp>,
}

impl OwnedFilter {
    /// Copies a filter.
    pub fn copy(filter: &Filter<'_>) -> Self {
        Self {
            states: filter.states,
            tag: filter.tag.map(Into::into),
            host: filter.host.map(Into::into),
            name_prefix: filter.name_prefix.map(Into::into),
            due_after: filter.due_after,
            due_before: filter.due_before,
            reason: filter.reason,
        }
    }

    /// The filter with its texts borrowed.
    pub fn borrow(&self) -> Filter<'_> {
        Filter {
            states: self.states,
            tag: self.tag.as_deref(),
            host: self.host.as_deref(),
            name_prefix: self.name_prefix.as_deref(),
            due_after: self.due_after,
            due_before: self.due_before,
            reason: self.reason,
        }
    }
}

/// A page of a list as a client asks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListQuery {
    /// Which timers.
    pub filter: OwnedFilter,
    /// Most timers on the page.
    pub limit: u16,
    /// Where the page begins; `None`: it is the first page of a list.
    pub cursor: Option<Cursor>,
    /// What is done with dead letters, if the list is one of those; `None`: it is one of timers.
    pub letters: Option<LetterUse>,
    /// Stands in the cursor of the next page.
    query_digest: u32,
}

/// Where a list goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The first place of the page.
    pub from: Place,
    /// Which list the page is of.
    pub walk: u64,
    /// When the list began. Seconds in the query count from then.
    pub began: WallMs,
}

/// Why a query is refused, as a sentence for the client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ListQueryError(String);

fn expected(name: &str, what: &str, got: &str) -> ListQueryError {
    // The sentence goes into a header of limited length.
    let shown: String = got.chars().take(60).collect();
    ListQueryError(format!("{name}: expected {what}, got {shown}"))
}

/// Whether the query is that of a node that asks which timers it is to hold
/// (docs/compat/timer-service.md §5.2).
pub fn is_of_nodes(query: &str) -> bool {
    let names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    let mut of_nodes = ["node-for-replicas", "cluster-view-id", "time-from"].into_iter();
    let names: Vec<&str> = names.collect();
    of_nodes.any(|name| names.contains(&name))
}

/// Reads the query of `GET /timers/count`: whether it is asked when timers are due.
pub fn read_count_query(query: &str) -> Result<bool, ListQueryError> {
    let mut has_spans = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "histogram" {
            return Err(expected("query", "histogram", name));
        }
        let is_wanted = match value {
            "true" => true,
            "false" => false,
            other => return Err(expected("histogram", "true or false", other)),
        };
        if has_spans.replace(is_wanted).is_some() {
            return Err(ListQueryError("histogram: expected once, got it twice".to_owned()));
        }
    }
    Ok(has_spans.unwrap_or(true))
}

impl ListQuery {
    /// Reads a query. `now` is when a list begins of which this is the first page.
    pub fn read(query: &str, now: WallMs) -> Result<Self, ListQueryError> {
        Self::read_for(query, None, now)
    }

    /// Reads the query of a list of dead letters, with which something is done.
    pub fn read_letters(
        query: &str,
        wanted: LetterUse,
        now: WallMs,
    ) -> Result<Self, ListQueryError> {
        Self::read_for(query, Some(wanted), now)
    }

    fn read_for(
        query: &str,
        letters: Option<LetterUse>,
        now: WallMs,
    ) -> Result<Self, ListQueryError> {
        let mut raw = Parameters { letters, ..Parameters::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = raw.place_of(name).ok_or_else(|| {
                let shown: String = name.chars().take(60).collect();
                let known = if letters.is_some() { LETTER_PARAMETERS } else { PARAMETERS };
                ListQueryError(format!("query: expected {known}, got {shown}"))
            })?;
            if place.is_some() {
                return Err(ListQueryError(format!("{name}: expected once, got it twice")));
            }
            *place = Some(unescaped(name, value)?);
        }
        raw.read(now)
    }

    /// Reads the query of `DELETE /timers`, which says what timers have that a job is to delete.
    /// `limit` is that of the job's pages.
    pub fn read_delete(query: &str, limit: u16, now: WallMs) -> Result<Self, ListQueryError> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let names = pairs.map(|pair| pair.split('=').next().unwrap_or_default());
        let is_of_filters = |name: &str| FILTER_NAMES.contains(&name);
        if let Some(name) = { names }.find(|name| !is_of_filters(name)) {
            return Err(expected("query", FILTERS, name));
        }
        let read = Self::read(query, now)?;
        let filter = read.filter.borrow();
        let is_bare = Filter { due_after: None, due_before: None, ..filter } == Filter::ALL
            && filter.due_after.is_none()
            && filter.due_before.is_none();
        match is_bare {
            true => Err(ListQueryError(format!("query: expected {FILTERS}, got none of them"))),
            false => Ok(Self { limit, ..read }),
        }
    }

    /// The query of the page behind one that gave out this cursor.
    pub fn behind(&self, cursor: &str) -> Option<Self> {
        let cursor = read_cursor(cursor, self.query_digest).ok()?;
        Some(Self { cursor: Some(cursor), ..self.clone() })
    }

    /// The cursor of the page that begins at `from`, as text.
    pub fn write_cursor(&self, cursor: &Cursor) -> String {
        let numbers = [cursor.from.0, cursor.walk, cursor.began.0];
        let mut bytes = [0; CURSOR_BYTES];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        let check = check_of(numbers, self.query_digest);
        bytes[24..28].copy_from_slice(&self.query_digest.to_be_bytes());
        bytes[28..].copy_from_slice(&check.to_be_bytes());
        bytes.iter().fold(String::with_capacity(2 * CURSOR_BYTES), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The parameters of a query, unescaped.
#[derive(Default)]
struct Parameters<'q> {
    letters: Option<LetterUse>,
    reason: Option<Cow<'q, str>>,
    tag: Option<Cow<'q, str>>,
    host: Option<Cow<'q, str>>,
    name_prefix: Option<Cow<'q, str>>,
    due_after: Option<Cow<'q, str>>,
    due_before: Option<Cow<'q, str>>,
    state: Option<Cow<'q, str>>,
    limit: Option<Cow<'q, str>>,
    cursor: Option<Cow<'q, str>>,
}

impl<'q> Parameters<'q> {
    fn place_of(&mut self, name: &str) -> Option<&mut Option<Cow<'q, str>>> {
        Some(match name {
            "tag" => &mut self.tag,
            "host" => &mut self.host,
            "name-prefix" if self.letters.is_none() => &mut self.name_prefix,
            "due-after" if self.letters.is_none() => &mut self.due_after,
            "due-before" if self.letters.is_none() => &mut self.due_before,
            "state" if self.letters.is_none() => &mut self.state,
            "reason" if self.letters.is_some() => &mut self.reason,
            "limit" => &mut self.limit,
            "cursor" => &mut self.cursor,
            _ => return None,
        })
    }

    fn read(&self, now: WallMs) -> Result<ListQuery, ListQueryError> {
        let query_digest = self.digest();
        let cursor = self.cursor.as_deref().map(|text| read_cursor(text, query_digest));
        let cursor = cursor.transpose()?;
        let began = cursor.map_or(now, |cursor| cursor.began);
        let moment = |name, text: &Option<Cow<'q, str>>| {
            text.as_deref().map(|text| read_moment(name, text, began)).transpose()
        };
        let due_after = moment("due-after", &self.due_after)?;
        let due_before = moment("due-before", &self.due_before)?;
        if let (Some(after), Some(before)) = (&self.due_after, &self.due_before)
            && due_after >= due_before
        {
            let what = format!("earlier than due-before, which is {before}");
            return Err(expected("due-after", &what, after));
        }
        let bounded = |name, text: &Option<Cow<'q, str>>, bytes_max: usize| {
            let is_good = |text: &str| (1..=bytes_max).contains(&text.len());
            match text.as_deref() {
                Some(text) if !is_good(text) => {
                    let what = format!("1 to {bytes_max} bytes");
                    Err(expected(name, &what, &format!("{} bytes", text.len())))
                }
                text => Ok(text.map(Into::into)),
            }
        };
        Ok(ListQuery {
            filter: OwnedFilter {
                states: match self.letters {
                    Some(_) => ListedState::Parked.bit(),
                    None => self.state.as_deref().map_or(Ok(STATES_ALL), read_state)?,
                },
                reason: self.reason.as_deref().map(read_reason).transpose()?,
                tag: bounded("tag", &self.tag, TAG_BYTES_MAX)?,
                host: bounded("host", &self.host, HOST_BYTES_MAX)?,
                name_prefix: bounded("name-prefix", &self.name_prefix, NAME_BYTES_MAX)?,
                due_after,
                due_before,
            },
            limit: self.limit.as_deref().map_or(Ok(LIST_LIMIT_DEFAULT), read_limit)?,
            cursor,
            letters: self.letters,
            query_digest,
        })
    }

    /// A digest of everything that says which timers the list has.
    fn digest(&self) -> u32 {
        let of_text = |seed: u64, text: &Option<Cow<'q, str>>| {
            let Some(text) = text else { return mix(seed ^ 1) };
            let seed = mix(seed ^ (text.len() as u64) << 1);
            text.as_bytes().chunks(8).fold(seed, |digest, chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                mix(digest ^ u64::from_le_bytes(word))
            })
        };
        let texts = [&self.tag, &self.host, &self.due_after, &self.due_before, &self.state];
        let digest = texts.into_iter().fold(u64::from(CURSOR_FORMAT), of_text);
        match self.letters {
            // Without a prefix the digest is that of versions that know none.
            None if self.name_prefix.is_none() => digest as u32,
            None => of_text(digest, &self.name_prefix) as u32,
            // What is done with the letters is no part of the list.
            Some(_) => of_text(mix(digest ^ 2), &self.reason) as u32,
        }
    }
}

fn check_of(numbers: [u64; 3], query_digest: u32) -> u32 {
    let seed = mix(u64::from(CURSOR_FORMAT) << 32 | u64::from(query_digest));
    numbers.into_iter().fold(seed, |digest, number| mix(digest ^ number)) as u32
}

fn read_cursor(text: &str, query_digest: u32) -> Result<Cursor, ListQueryError> {
    let none = || expected("cursor", "one that a page of this list gave out", text);
    let bytes = from_hex(text).ok_or_else(none)?;
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.first_chunk().map_or(0, |word: &[u8; 8]| u64::from_be_bytes(*word)));
    let mut word = || words.next().unwrap_or(0);
    let (from, walk, began, checks) = (word(), word(), word(), word());
    let (of_query, check) = ((checks >> 32) as u32, checks as u32);
    if check != check_of([from, walk, began], of_query) {
        return Err(none());
    }
    if of_query != query_digest {
        return Err(ListQueryError(
            "cursor: expected one of this query, got one of another query; keep tag, host, \
             name-prefix, due-after, due-before, state and reason as they were"
                .to_owned(),
        ));
    }
    Ok(Cursor { from: Place(from), walk, began: WallMs(began) })
}

fn from_hex(text: &str) -> Option<[u8; CURSOR_BYTES]> {
    let text: &[u8; 2 * CURSOR_BYTES] = text.as_bytes().try_into().ok()?;
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; CURSOR_BYTES];
    for (to, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = *pair else { return None };
        *to = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn read_limit(text: &str) -> Result<u16, ListQueryError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = is_number.then(|| text.parse().ok()).flatten();
    let limit = limit.filter(|limit| (1..=LIST_LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| expected("limit", &format!("1 to {LIST_LIMIT_MAX}"), text))
}

fn read_reason(text: &str) -> Result<GivenUp, ListQueryError> {
    GivenUp::named(text).ok_or_else(|| expected("reason", "attempts, age or denied", text))
}

fn read_state(text: &str) -> Result<u8, ListQueryError> {
    let what = "armed, ready, in-flight, backing-off, handed-over, paused or dead-letter";
    let state = ListedState::named(text).ok_or_else(|| expected("state", what, text))?;
    Ok(state.bit())
}

/// A moment: seconds or a duration from when the list began, or a date.
fn read_moment(name: &str, text: &str, began: WallMs) -> Result<WallMs, ListQueryError> {
    let what = "seconds from now (0 to 3162240000), a duration such as PT15M, or a time such as \
        2026-12-01T09:00:00Z";
    let ahead_ms = match text.starts_with(['P', 'p']) {
        true => lasting_ms(Lasting::Text(text)),
        false => read_seconds(text),
    };
    let moment = match ahead_ms {
        Some(ms) => Some(WallMs(began.0.saturating_add(ms))),
        None => read_wall_time(text),
    };
    moment.ok_or_else(|| expected(name, what, text))
}

/// Seconds with at most three decimals, in milliseconds.
fn read_seconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str, len_max| {
        (1..=len_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_digits(whole, 10) || !is_digits(decimals, 3) {
        return None;
    }
    let ms = decimals.bytes().chain([b'0'; 2]).take(3);
    let ms = ms.fold(0, |ms, digit| 10 * ms + u64::from(digit - b'0'));
    let ms = whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(ms)?;
    (ms <= INTERVAL_MS_MAX).then_some(ms)
}

/// A value with its percent escapes resolved. A plus sign stays one: times have them.
fn unescaped<'q>(name: &str, value: &'q str) -> Result<Cow<'q, str>, ListQueryError> {
    if !value.contains('%') {
        return Ok(Cow::Borrowed(value));
    }
    let what = "percent escapes of UTF-8 text";
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let plain = match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high << 4 | low) as u8,
                _ => return Err(expected(name, what, value)),
            },
            byte => byte,
        };
        bytes.push(plain);
    }
    let text = String::from_utf8(bytes).map_err(|_| expected(name, what, value))?;
    Ok(Cow::Owned(text))
}

#[cfg(test)]
#[path = "list_query_tests.rs"]
mod tests;
