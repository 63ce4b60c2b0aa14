//! What a timer has beyond the document of the original service: when it is retried, how its
//! callback looks. Most timers have none of it, so the attributes are one byte string in the
//! content of a timer (`timer::definition`), and are only looked at where they matter.
//!
//! ```text
//! attribute   kind u8, length of the value v, value
//! ```
//!
//! Attributes stand in ascending order of their kinds, each at most once. Numbers in values are
//! LEB128 (`wire::leb128`). A node of an earlier version does not know the attributes of a later
//! one and refuses the timer, so that none is kept without what its client asked for.

use crate::base::limits::{INTERVAL_MS_MAX, URI_BYTES_MAX};
use crate::wire::callback_headers::{check_kept_header, is_header_value};
use crate::wire::callback_uri::parse_told_uri;
use crate::wire::dead_letter::{DeadLetter, Replay};
use crate::wire::leb128::{read_leb128, write_leb128};
use crate::wire::report::Reported;
use crate::wire::timer_name::is_name_length;

/// Set in the length of a timer's tags if attributes follow (`timer::definition`). Tags are shorter
/// than that.
pub const HAS_ATTRIBUTES: u16 = 0x8000;
/// Most bytes of all attributes of a timer: headers of 4 KiB, three URIs of 2 KiB, and under 2 KiB
/// of all else.
pub const ATTRIBUTES_BYTES_MAX: usize = 12 << 10;
/// Most headers that a client gives a callback.
pub const HEADERS_MAX: usize = 32;
/// Most bytes of these headers, with `": "` and the line end of each.
pub const HEADER_BYTES_MAX: usize = 4 << 10;
/// Longest `content-type` in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// Most attempts that a policy may ask for.
pub const ATTEMPTS_MAX: u16 = 200;
/// Longest time of a policy in milliseconds: 366 days.
pub const POLICY_MS_MAX: u64 = 366 * 24 * 3_600_000;
/// Largest multiplier of a policy, in thousandths.
pub const MULTIPLIER_MILLI_MAX: u32 = 100_000;
/// Longest time that a client may give an attempt, in milliseconds.
pub const TIMEOUT_MS_MAX: u64 = 300_000;

const BINARY: u8 = 1;
const METHOD: u8 = 2;
const CONTENT_TYPE: u8 = 3;
const HEADERS: u8 = 4;
const AT: u8 = 5;
const WINDOW: u8 = 6;
const RETRY: u8 = 7;
const TIMEOUT: u8 = 8;
const CRON: u8 = 9;
const NAME: u8 = 10;
const ONCE: u8 = 11;
const DEAD_LETTER: u8 = 12;
const REPLAY: u8 = 13;
const ON_SUCCESS: u8 = 14;
const ON_FAILURE: u8 = 15;
const PAUSED: u8 = 16;
const DEAD_LETTER_URI: u8 = 17;
const ACTED: u8 = 18;
const REPORT: u8 = 19;
/// The last kind.
const LAST: u8 = REPORT;

/// The method of a callback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CallbackMethod {
    /// The method of all callbacks whose client asked for none.
    #[default]
    Post,
    /// A read; a body is sent if there is opaque data.
    Get,
    /// A replacement.
    Put,
    /// A change.
    Patch,
    /// A removal.
    Delete,
}

impl CallbackMethod {
    const ALL: [Self; 5] = [Self::Post, Self::Get, Self::Put, Self::Patch, Self::Delete];

    /// The method as a request line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The method of this name. Names are in capitals (RFC 9110 section 9.1).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// When a failed pop is tried again, and for how long. Times are milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// Attempts at one pop, the first one among them: 1 to [`ATTEMPTS_MAX`].
    pub max_attempts: u16,
    /// How long after its due time a pop is tried.
    pub max_age_ms: u64,
    /// The pause after the first failure.
    pub initial_ms: u64,
    /// The longest pause.
    pub max_ms: u64,
    /// By how much each pause is longer than the one before, in thousandths: 1 000 to
    /// [`MULTIPLIER_MILLI_MAX`].
    pub multiplier_milli: u32,
    /// How much a pause is stretched at random at most, in thousandths of it: 0 to 1 000.
    pub jitter_milli: u16,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            max_age_ms: 24 * 3_600_000,
            initial_ms: 1_000,
            max_ms: 3_600_000,
            multiplier_milli: 2_000,
            jitter_milli: 200,
        }
    }
}

impl RetryPolicy {
    /// The pause after so many failed attempts, without its stretch.
    pub fn pause_ms(&self, failed: u16) -> u64 {
        let mut pause_ms = self.initial_ms.min(self.max_ms);
        for _ in 1..failed {
            if self.multiplier_milli <= 1_000 || pause_ms >= self.max_ms {
                break;
            }
            let longer_ms = pause_ms.saturating_mul(self.multiplier_milli.into()).div_ceil(1_000);
            pause_ms = longer_ms.min(self.max_ms);
        }
        pause_ms
    }

    fn write(&self, out: &mut Vec<u8>) {
        let numbers = [
            self.max_attempts.into(),
            self.max_age_ms,
            self.initial_ms,
            self.max_ms,
            self.multiplier_milli.into(),
            self.jitter_milli.into(),
        ];
        numbers.into_iter().for_each(|number| write_leb128(number, out));
    }

    fn read(mut value: &[u8]) -> Option<Self> {
        let rest = &mut value;
        let mut upto =
            |min: u64, max: u64| read_leb128(rest).filter(|number| (min..=max).contains(number));
        let policy = Self {
            max_attempts: upto(1, ATTEMPTS_MAX.into())? as u16,
            max_age_ms: upto(0, POLICY_MS_MAX)?,
            initial_ms: upto(1, POLICY_MS_MAX)?,
            max_ms: upto(1, POLICY_MS_MAX)?,
            multiplier_milli: upto(1_000, MULTIPLIER_MILLI_MAX.into())? as u32,
            jitter_milli: upto(0, 1_000)? as u16,
        };
        value.is_empty().then_some(policy)
    }
}

/// Longest cron expression in bytes.
pub const CRON_BYTES_MAX: usize = 128;
/// Longest name of a time zone in bytes.
pub const ZONE_BYTES_MAX: usize = 64;

/// A timer that follows the calendar: which of its pops is next, and how the one after is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CronTiming<'a> {
    /// The expression, as the client wrote it.
    pub expression: &'a str,
    /// The name of the zone.
    pub zone: &'a str,
    /// The wall time of the next pop in ms since 1970.
    pub due_ms: u64,
    /// Pops done before the next one. The record counts each as the first.
    pub done: u64,
    /// Pops that are missed for longer than this, in milliseconds, are left out.
    pub catch_up_ms: u64,
    /// The wall time after which no pop comes, in ms since 1970.
    pub end_ms: Option<u64>,
}

impl<'a> CronTiming<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        // An end of 0 is none, so an end is one more.
        let end = self.end_ms.map_or(0, |end_ms| end_ms.saturating_add(1));
        let numbers = [self.due_ms, self.done, self.catch_up_ms, end, self.zone.len() as u64];
        numbers.into_iter().for_each(|number| write_leb128(number, out));
        out.extend_from_slice(self.zone.as_bytes());
        out.extend_from_slice(self.expression.as_bytes());
    }

    fn read(mut value: &'a [u8]) -> Option<Self> {
        let mut number = || read_leb128(&mut value);
        let [due_ms, done, catch_up_ms, end, zone_bytes] =
            [number()?, number()?, number()?, number()?, number()?];
        let zone_bytes = usize::try_from(zone_bytes).ok()?;
        let (zone, expression) = value.split_at_checked(zone_bytes)?;
        let text = |bytes: &'a [u8], bytes_max: usize| {
            let is_fit = (1..=bytes_max).contains(&bytes.len());
            // Tabs may stand between the fields of an expression.
            let is_text =
                bytes.iter().all(|byte| byte.is_ascii_graphic() || [b' ', b'\t'].contains(byte));
            std::str::from_utf8(bytes).ok().filter(|_| is_fit && is_text)
        };
        Some(Self {
            expression: text(expression, CRON_BYTES_MAX)?,
            zone: text(zone, ZONE_BYTES_MAX)?,
            due_ms,
            done,
            catch_up_ms: Some(catch_up_ms).filter(is_interval)?,
            end_ms: end.checked_sub(1),
        })
    }
}

/// What clients did with a timer since they wrote it ([`super::timer_action`]): each time it got a
/// version, and its pops are numbered on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acted {
    /// The version of the write that all this goes back to.
    pub root: u64,
    /// When the last action was, in milliseconds after the timer's start.
    pub at_ms: u64,
    /// The pop that is due at that moment in place of its own time; 0: none.
    pub pop: u64,
}

impl Acted {
    fn write(&self, out: &mut Vec<u8>) {
        [self.root, self.at_ms, self.pop].into_iter().for_each(|number| write_leb128(number, out));
    }

    fn read(mut value: &[u8]) -> Option<Self> {
        let mut number = || read_leb128(&mut value);
        let [root, at_ms, pop] = [number()?, number()?, number()?];
        value.is_empty().then_some(Self { root, at_ms, pop })
    }
}

/// The attributes of a timer, borrowed from its content, or to be encoded into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes<'a> {
    /// Whether the opaque data are bytes, which a client writes in base64, instead of text.
    pub is_binary: bool,
    /// The method of the callback.
    pub method: CallbackMethod,
    /// `Content-Type` of the callback; `None`: `application/octet-stream`.
    pub content_type: Option<&'a str>,
    /// Further headers of the callback as lines, each with its end: `name: value\r\n`.
    pub headers: &'a str,
    /// The wall time at which the client wanted the pop, in ms since 1970. The interval of the
    /// timer leads there; this is what the client is shown.
    pub at_ms: Option<u64>,
    /// The client let the pops come as much later in milliseconds, to spread them. The start of the
    /// timer has moved by what was drawn.
    pub window_ms: Option<u64>,
    /// When a failed pop is tried again; `None`: as the node's configuration says.
    pub retry: Option<RetryPolicy>,
    /// What an attempt has for everything, in milliseconds; `None`: `callbacks.timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// The calendar that the timer follows; `None`: it has an interval.
    pub cron: Option<CronTiming<'a>>,
    /// The name that made the timer's id.
    pub name: Option<&'a str>,
    /// A key made the timer's id. This is the digest of the body that came with the key.
    pub once: Option<u64>,
    /// The timer is a pop that was given up: it is parked, or on its way to its URI.
    pub letter: Option<DeadLetter<'a>>,
    /// The timer is a pop that was given up and is tried again.
    pub replay: Option<Replay>,
    /// Where a report goes of each pop that was delivered.
    pub on_success: Option<&'a str>,
    /// Where a report goes of each pop that was not delivered.
    pub on_failure: Option<&'a str>,
    /// Where a pop that is given up goes, instead of being kept. While it is on its way there, the
    /// URI of the callback.
    pub dead_letter_uri: Option<&'a str>,
    /// The timer does not pop until a client resumes it.
    pub is_paused: bool,
    /// What clients did with it since it was written.
    pub acted: Option<Acted>,
    /// The timer is a report of another timer's pop.
    pub report: Option<Reported>,
}

/// Whether many timers are likely to have the same attribute of this kind
/// (`wire::common_attributes`).
pub(super) fn is_common(kind: u8) -> bool {
    let is_look = matches!(kind, BINARY | METHOD | CONTENT_TYPE | HEADERS);
    let is_told = matches!(kind, ON_SUCCESS | ON_FAILURE | DEAD_LETTER_URI);
    is_look || is_told || matches!(kind, WINDOW | RETRY | TIMEOUT)
}

/// Whether attributes say what clients did with a timer. Cost: a look at the kind of each.
pub fn is_acted(mut attributes: &[u8]) -> bool {
    while let Some((&kind, mut rest)) = attributes.split_first() {
        if matches!(kind, PAUSED | ACTED) {
            return true;
        }
        let length = read_leb128(&mut rest).and_then(|length| usize::try_from(length).ok());
        let Some(behind) = length.and_then(|length| rest.get(length..)) else { return false };
        attributes = behind;
    }
    false
}

/// Why bytes are no attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct AttributesError(pub &'static str);

impl<'a> Attributes<'a> {
    /// Appends the attributes that are not the usual. Nothing is appended if all are.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        let mut put = |kind: u8, write: &dyn Fn(&mut Vec<u8>)| {
            value.clear();
            write(&mut value);
            out.push(kind);
            write_leb128(value.len() as u64, out);
            out.extend_from_slice(&value);
        };
        if self.is_binary {
            put(BINARY, &|_| ());
        }
        if self.method != CallbackMethod::Post {
            put(METHOD, &|value| value.push(self.method as u8));
        }
        if let Some(content_type) = self.content_type {
            put(CONTENT_TYPE, &|value| value.extend_from_slice(content_type.as_bytes()));
        }
        if !self.headers.is_empty() {
            put(HEADERS, &|value| value.extend_from_slice(self.headers.as_bytes()));
        }
        for (kind, ms) in [(AT, self.at_ms), (WINDOW, self.window_ms)] {
            if let Some(ms) = ms {
                put(kind, &|value| write_leb128(ms, value));
            }
        }
        if let Some(retry) = &self.retry {
            put(RETRY, &|value| retry.write(value));
        }
        if let Some(ms) = self.timeout_ms {
            put(TIMEOUT, &|value| write_leb128(ms, value));
        }
        if let Some(cron) = &self.cron {
            put(CRON, &|value| cron.write(value));
        }
        if let Some(name) = self.name {
            put(NAME, &|value| value.extend_from_slice(name.as_bytes()));
        }
        if let Some(digest) = self.once {
            put(ONCE, &|value| write_leb128(digest, value));
        }
        if let Some(letter) = &self.letter {
            put(DEAD_LETTER, &|value| letter.write(value));
        }
        if let Some(replay) = &self.replay {
            put(REPLAY, &|value| replay.write(value));
        }
        let mut put_uri = |kind, uri: Option<&str>| {
            if let Some(uri) = uri {
                put(kind, &|value| value.extend_from_slice(uri.as_bytes()));
            }
        };
        put_uri(ON_SUCCESS, self.on_success);
        put_uri(ON_FAILURE, self.on_failure);
        if self.is_paused {
            put(PAUSED, &|_| ());
        }
        if let Some(uri) = self.dead_letter_uri {
            put(DEAD_LETTER_URI, &|value| value.extend_from_slice(uri.as_bytes()));
        }
        if let Some(acted) = &self.acted {
            put(ACTED, &|value| acted.write(value));
        }
        if let Some(report) = &self.report {
            put(REPORT, &|value| report.write(value));
        }
    }

    /// Reads attributes, and checks all that is known of them. Cost: one pass over the bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, AttributesError> {
        if bytes.len() > ATTRIBUTES_BYTES_MAX {
            return Err(AttributesError("more attributes than a timer can have"));
        }
        let mut read = Self::default();
        read.take_all(bytes)?;
        Ok(read)
    }

    /// The same of attributes of which those that are common lie elsewhere
    /// (`wire::common_attributes`).
    pub fn read_apart(common: &'a [u8], own: &'a [u8]) -> Result<Self, AttributesError> {
        let mut read = Self::default();
        read.take_all(common)?;
        read.take_all(own)?;
        Ok(read)
    }

    fn take_all(&mut self, bytes: &'a [u8]) -> Result<(), AttributesError> {
        let (mut rest, mut former) = (bytes, 0);
        while let Some((&kind, tail)) = rest.split_first() {
            rest = tail;
            if kind <= former {
                return Err(AttributesError("attributes out of order"));
            }
            former = kind;
            let length = read_leb128(&mut rest).and_then(|length| usize::try_from(length).ok());
            let value = length.and_then(|length| rest.split_at_checked(length));
            let Some((value, tail)) = value else {
                return Err(AttributesError("an attribute that is cut off"));
            };
            rest = tail;
            self.take(kind, value)?;
        }
        Ok(())
    }

    fn take(&mut self, kind: u8, value: &'a [u8]) -> Result<(), AttributesError> {
        const WRONG: AttributesError = AttributesError("an attribute with a value out of range");
        match kind {
            BINARY if value.is_empty() => self.is_binary = true,
            METHOD => {
                let [number] = value else { return Err(WRONG) };
                let known = CallbackMethod::ALL.get(usize::from(*number));
                self.method =
                    *known.filter(|method| **method != CallbackMethod::Post).ok_or(WRONG)?;
            }
            CONTENT_TYPE => self.content_type = Some(content_type(value).ok_or(WRONG)?),
            HEADERS => self.headers = header_lines(value).ok_or(WRONG)?,
            AT => self.at_ms = Some(number(value).ok_or(WRONG)?),
            WINDOW => self.window_ms = Some(number(value).filter(is_interval).ok_or(WRONG)?),
            RETRY => self.retry = Some(RetryPolicy::read(value).ok_or(WRONG)?),
            TIMEOUT => self.timeout_ms = Some(number(value).filter(is_timeout).ok_or(WRONG)?),
            CRON => self.cron = Some(CronTiming::read(value).ok_or(WRONG)?),
            NAME => self.name = Some(name(value).ok_or(WRONG)?),
            ONCE => self.once = Some(number(value).filter(is_digest).ok_or(WRONG)?),
            DEAD_LETTER => self.letter = Some(DeadLetter::read(value).ok_or(WRONG)?),
            REPLAY => self.replay = Some(Replay::read(value).ok_or(WRONG)?),
            ON_SUCCESS => self.on_success = Some(uri(value).ok_or(WRONG)?),
            ON_FAILURE => self.on_failure = Some(uri(value).ok_or(WRONG)?),
            DEAD_LETTER_URI => self.dead_letter_uri = Some(uri(value).ok_or(WRONG)?),
            PAUSED if value.is_empty() => self.is_paused = true,
            ACTED => self.acted = Some(Acted::read(value).ok_or(WRONG)?),
            REPORT => self.report = Some(Reported::read(value).ok_or(WRONG)?),
            1..=LAST => return Err(WRONG),
            _ => return Err(AttributesError("an attribute that this version does not know")),
        }
        Ok(())
    }

    /// The headers, name and value.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.headers.split_terminator("\r\n").filter_map(|line| line.split_once(": "))
    }
}

/// Whether encoded attributes are those of a dead letter that is parked. Cost: a look at the head
/// of each attribute.
pub fn is_parked(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some((&kind, tail)) = rest.split_first() {
        rest = tail;
        let length = read_leb128(&mut rest).and_then(|length| usize::try_from(length).ok());
        let Some((value, tail)) = length.and_then(|length| rest.split_at_checked(length)) else {
            return false;
        };
        if kind >= DEAD_LETTER {
            let letter = DeadLetter::read(value).filter(|_| kind == DEAD_LETTER);
            return letter.is_some_and(|letter| !letter.is_on_its_way);
        }
        rest = tail;
    }
    false
}

fn uri(value: &[u8]) -> Option<&str> {
    let uri = std::str::from_utf8(value).ok().filter(|uri| uri.len() <= URI_BYTES_MAX);
    uri.filter(|uri| parse_told_uri(uri).is_ok())
}

fn number(mut value: &[u8]) -> Option<u64> {
    let number = read_leb128(&mut value)?;
    value.is_empty().then_some(number)
}

fn name(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|name| is_name_length(name.len()))
}

/// A digest has 40 bits and is not 0 (`timer::naming`).
fn is_digest(digest: &u64) -> bool {
    *digest != 0 && *digest >> 40 == 0
}

fn is_interval(ms: &u64) -> bool {
    *ms <= INTERVAL_MS_MAX
}

fn is_timeout(ms: &u64) -> bool {
    (1..=TIMEOUT_MS_MAX).contains(ms)
}

/// The text, if it can be the value of `Content-Type`.
fn content_type(value: &[u8]) -> Option<&str> {
    let is_fit = (1..=CONTENT_TYPE_BYTES_MAX).contains(&value.len()) && is_header_value(value);
    std::str::from_utf8(value).ok().filter(|_| is_fit)
}

/// The text, if it is header lines that a client could have asked for.
fn header_lines(value: &[u8]) -> Option<&str> {
    let lines = std::str::from_utf8(value).ok()?;
    if !(1..=HEADER_BYTES_MAX).contains(&value.len()) || !lines.ends_with("\r\n") {
        return None;
    }
    let mut count = 0;
    for line in lines.split_terminator("\r\n") {
        let (name, value) = line.split_once(": ")?;
        check_kept_header(name, value).ok()?;
        count += 1;
    }
    (count <= HEADERS_MAX).then_some(lines)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::dead_letter::{Failure, GivenUp};
    use crate::wire::report::ReportKind;
    use crate::wire::timer_name::NAME_BYTES_MAX;

    fn all() -> Attributes<'static> {
        Attributes {
            is_binary: true,
            method: CallbackMethod::Patch,
            content_type: Some("application/json; charset=utf-8"),
            headers: "X-Tenant: blue\r\nAuthorization: Bearer a b\r\n",
            at_ms: Some(1_800_000_000_000),
            window_ms: Some(300_000),
            retry: Some(RetryPolicy::default()),
            timeout_ms: Some(15_000),
            cron: Some(CronTiming {
                expression: "0\t0 9 * * MON-FRI",
                zone: "Europe/London",
                due_ms: 1_800_000_000_000,
                done: 7,
                catch_up_ms: 60_000,
                end_ms: Some(0),
            }),
            name: Some("a \u{20ac}"),
            once: Some(7),
            letter: Some(LETTER),
            replay: Some(Replay { count: 2, sequence: 7 }),
            on_success: Some("https://reports.example/done"),
            on_failure: Some("http://reports.example/failed?a"),
            dead_letter_uri: Some("https://letters.example/dead?a=b"),
            is_paused: true,
            acted: Some(Acted { root: u64::MAX, at_ms: 1_500, pop: 3 }),
            report: Some(Reported { kind: ReportKind::Failure, sequence: 7 }),
        }
    }

    const LETTER: DeadLetter<'static> = DeadLetter {
        is_on_its_way: false,
        uri_failed: false,
        reason: GivenUp::Attempts,
        failure: Failure::Status,
        attempts: 8,
        status: Some(500),
        given_up_ms: 1,
        until_ms: 2,
        sequence: 7,
        answer: b"no",
    };

    #[test]
    fn what_is_parked_is_known_without_reading_everything() {
        assert!(is_parked(&written(&all())));
        let others = [
            Attributes { letter: None, ..all() },
            Attributes { letter: Some(DeadLetter { is_on_its_way: true, ..LETTER }), ..all() },
            Attributes { letter: None, replay: None, dead_letter_uri: None, ..all() },
            Attributes { letter: None, on_success: None, on_failure: None, ..all() },
        ];
        assert!(others.iter().all(|attributes| !is_parked(&written(attributes))));
        assert!(!is_parked(&[]) && !is_parked(&[12]) && !is_parked(&[12, 200]));
    }

    fn written(attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        attributes.write(&mut out);
        out
    }

    #[test]
    fn attributes_come_back_as_they_were_and_no_part_of_them_does() {
        assert!(written(&Attributes::default()).is_empty(), "the usual takes no room");
        let only = [
            Attributes { is_binary: true, ..Attributes::default() },
            Attributes { method: CallbackMethod::Get, ..Attributes::default() },
            Attributes { at_ms: Some(0), ..Attributes::default() },
            all(),
        ];
        for attributes in only {
            let bytes = written(&attributes);
            assert_eq!(Attributes::read(&bytes), Ok(attributes));
            for end in 0..bytes.len() {
                assert_ne!(Attributes::read(&bytes[..end]), Ok(attributes));
            }
        }
        let names: Vec<_> = all().headers().collect();
        assert_eq!(names, [("X-Tenant", "blue"), ("Authorization", "Bearer a b")]);
    }

    #[test]
    fn attributes_that_no_client_could_have_are_refused() {
        let bad: [&[u8]; 21] = [
            &[0, 0],
            &[9, 0],
            &[9, 6, 1, 0, 0, 0, 1, b'a'],
            &[200, 0],
            &[1, 0, 1, 0],
            &[2, 1, 1, 1, 0],
            &[1, 1, 0],
            &[2, 1, 0],
            &[2, 1, 5],
            &[3, 0],
            b"\x03\x02a\n",
            b"\x04\x06Host: a\r\n",
            b"\x04\x08Host: a\r\n",
            &[8, 1, 0],
            &[10, 0],
            &[10, 1, 0xff],
            &[11, 0],
            &[11, 1, 0],
            &[16, 1, 0],
            &[18, 2, 1, 1],
            &[18, 4, 1, 1, 1, 1],
        ];
        for bytes in bad {
            assert!(Attributes::read(bytes).is_err(), "{bytes:?}");
        }
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert!(Attributes::read(&written(&Attributes { headers: &many, ..all() })).is_err());
        let long = format!("a: {}\r\n", "b".repeat(HEADER_BYTES_MAX));
        assert!(Attributes::read(&written(&Attributes { headers: &long, ..all() })).is_err());
        let name = "n".repeat(NAME_BYTES_MAX + 1);
        assert!(Attributes::read(&written(&Attributes { name: Some(&name), ..all() })).is_err());
        let policy = RetryPolicy { multiplier_milli: 999, ..RetryPolicy::default() };
        assert!(Attributes::read(&written(&Attributes { retry: Some(policy), ..all() })).is_err());
    }

    #[test]
    fn pauses_grow_by_the_multiplier_up_to_their_longest() {
        let policy = RetryPolicy { max_ms: 10_000, ..RetryPolicy::default() };
        let pauses: Vec<u64> = (1..=7).map(|failed| policy.pause_ms(failed)).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
        let even = RetryPolicy { multiplier_milli: 1_000, ..policy };
        assert_eq!(even.pause_ms(u16::MAX), 1_000);
        let short = RetryPolicy { max_ms: 10, ..policy };
        assert_eq!(short.pause_ms(1), 10);
        let slow = RetryPolicy { initial_ms: 1, multiplier_milli: 1_500, ..policy };
        assert_eq!([1, 2, 3, 4].map(|failed| slow.pause_ms(failed)), [1, 2, 3, 5]);
        assert_eq!(slow.pause_ms(u16::MAX), 10_000);
    }

    proptest! {
        #[test]
        fn whatever_bytes_come_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Ok(attributes) = Attributes::read(&bytes) {
                let again = written(&attributes);
                prop_assert_eq!(Attributes::read(&again), Ok(attributes));
            }
        }
    }
}
