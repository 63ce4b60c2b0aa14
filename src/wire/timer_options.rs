//! The members of a timer's document that the original service does not have. Few timers have any,
//! so a document without them costs nothing here. This file checks types and presence;
//! `timer::options` checks values.

use simd_json::{Node, StaticNode};

use super::attributes::HEADERS_MAX;
use super::json::{Cursor, DocumentError, set_once};

/// A duration as a client writes it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Lasting<'a> {
    /// A number of seconds.
    Seconds(f64),
    /// Text in the form of ISO 8601: `PT15M`.
    Text(&'a str),
}

/// `callback.retry`; what is left out has a default.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RetryDocument<'a> {
    /// Attempts at one pop: any whole number.
    pub max_attempts: Option<i64>,
    /// How long after its due time a pop is tried.
    pub max_age: Option<Lasting<'a>>,
    /// The pause after the first failure.
    pub initial: Option<Lasting<'a>>,
    /// By how much each pause is longer than the one before: any finite number.
    pub multiplier: Option<f64>,
    /// The longest pause.
    pub max: Option<Lasting<'a>>,
    /// How much a pause is stretched at random at most: any finite number.
    pub jitter: Option<f64>,
}

/// `callback.dead-letter`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DeadLetterDocument<'a> {
    /// Where pops that are given up go; `None`: the service keeps them.
    pub uri: Option<&'a str>,
}

/// The members beyond the original's document. Strings are unescaped and borrow the body.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TimerOptions<'a> {
    /// `timing.interval`, if it is text.
    pub interval: Option<&'a str>,
    /// `timing.repeat-for`, if it is text.
    pub repeat_for: Option<&'a str>,
    /// `timing.at`.
    pub at: Option<&'a str>,
    /// `timing.window`.
    pub window: Option<Lasting<'a>>,
    /// `timing.cron`.
    pub cron: Option<&'a str>,
    /// `timing.time-zone`.
    pub time_zone: Option<&'a str>,
    /// `timing.catch-up-window`.
    pub catch_up: Option<Lasting<'a>>,
    /// `timing.end-at`.
    pub end_at: Option<&'a str>,
    /// `callback.http.method`.
    pub method: Option<&'a str>,
    /// `callback.http.content-type`.
    pub content_type: Option<&'a str>,
    /// `callback.http.headers`, at most [`HEADERS_MAX`], in their order.
    pub headers: Option<Vec<(&'a str, &'a str)>>,
    /// `callback.http.opaque-base64`.
    pub opaque_base64: Option<&'a str>,
    /// `callback.retry`.
    pub retry: Option<RetryDocument<'a>>,
    /// `callback.timeout`.
    pub timeout: Option<Lasting<'a>>,
    /// `callback.dead-letter`.
    pub dead_letter: Option<DeadLetterDocument<'a>>,
    /// `callback.on-success`.
    pub on_success: Option<&'a str>,
    /// `callback.on-failure`.
    pub on_failure: Option<&'a str>,
}

impl TimerOptions<'_> {
    /// Whether the document has no such member.
    pub fn is_empty(&self) -> bool {
        *self == TimerOptions::default()
    }
}

const AT: &str = "timing.at";
const WINDOW: &str = "timing.window";
const CRON: &str = "timing.cron";
const TIME_ZONE: &str = "timing.time-zone";
const CATCH_UP: &str = "timing.catch-up-window";
const END_AT: &str = "timing.end-at";
const RETRY: &str = "callback.retry";
const TIMEOUT: &str = "callback.timeout";
const DEAD_LETTER: &str = "callback.dead-letter";
const ON_SUCCESS: &str = "callback.on-success";
const ON_FAILURE: &str = "callback.on-failure";
const METHOD: &str = "callback.http.method";
const HEADERS: &str = "callback.http.headers";
const CONTENT_TYPE: &str = "callback.http.content-type";
const OPAQUE_BASE64: &str = "callback.http.opaque-base64";

impl<'a> TimerOptions<'a> {
    /// Takes a member of `timing`, if it is one of these. False: it is another one, and the cursor
    /// stands before its value.
    #[cold]
    pub(super) fn take_timing(
        &mut self,
        key: &str,
        cursor: &mut Cursor<'_, 'a>,
    ) -> Result<bool, DocumentError> {
        match key {
            "at" => set_once(&mut self.at, cursor.string(AT)?, AT)?,
            "window" => set_once(&mut self.window, cursor.lasting(WINDOW)?, WINDOW)?,
            "cron" => set_once(&mut self.cron, cursor.string(CRON)?, CRON)?,
            "time-zone" => set_once(&mut self.time_zone, cursor.string(TIME_ZONE)?, TIME_ZONE)?,
            "catch-up-window" => {
                set_once(&mut self.catch_up, cursor.lasting(CATCH_UP)?, CATCH_UP)?;
            }
            "end-at" => set_once(&mut self.end_at, cursor.string(END_AT)?, END_AT)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes a member of `callback`, as [`TimerOptions::take_timing`] does.
    #[cold]
    pub(super) fn take_callback(
        &mut self,
        key: &str,
        cursor: &mut Cursor<'_, 'a>,
    ) -> Result<bool, DocumentError> {
        match key {
            "retry" => set_once(&mut self.retry, read_retry(cursor)?, RETRY)?,
            "timeout" => set_once(&mut self.timeout, cursor.lasting(TIMEOUT)?, TIMEOUT)?,
            "dead-letter" => {
                set_once(&mut self.dead_letter, read_dead_letter(cursor)?, DEAD_LETTER)?;
            }
            "on-success" => set_once(&mut self.on_success, cursor.string(ON_SUCCESS)?, ON_SUCCESS)?,
            "on-failure" => set_once(&mut self.on_failure, cursor.string(ON_FAILURE)?, ON_FAILURE)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes a member of `callback.http`, as [`TimerOptions::take_timing`] does.
    #[cold]
    pub(super) fn take_http(
        &mut self,
        key: &str,
        cursor: &mut Cursor<'_, 'a>,
    ) -> Result<bool, DocumentError> {
        match key {
            "method" => set_once(&mut self.method, cursor.string(METHOD)?, METHOD)?,
            "content-type" => {
                set_once(&mut self.content_type, cursor.string(CONTENT_TYPE)?, CONTENT_TYPE)?;
            }
            "opaque-base64" => {
                set_once(&mut self.opaque_base64, cursor.string(OPAQUE_BASE64)?, OPAQUE_BASE64)?;
            }
            "headers" => set_once(&mut self.headers, read_headers(cursor)?, HEADERS)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn read_headers<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Vec<(&'a str, &'a str)>, DocumentError> {
    let count = cursor.object(HEADERS)?;
    if count > HEADERS_MAX {
        return Err(DocumentError(
            format!("{HEADERS}: expected at most {HEADERS_MAX}, got {count}").into(),
        ));
    }
    (0..count).map(|_| Ok((cursor.key(), cursor.string(HEADERS)?))).collect()
}

fn read_dead_letter<'a>(
    cursor: &mut Cursor<'_, 'a>,
) -> Result<DeadLetterDocument<'a>, DocumentError> {
    const URI: &str = "callback.dead-letter.uri";
    let mut read = DeadLetterDocument::default();
    for _ in 0..cursor.object(DEAD_LETTER)? {
        match cursor.key() {
            "uri" => set_once(&mut read.uri, cursor.string(URI)?, URI)?,
            _ => cursor.skip_unknown(),
        }
    }
    Ok(read)
}

fn read_retry<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<RetryDocument<'a>, DocumentError> {
    const MAX_ATTEMPTS: &str = "callback.retry.max-attempts";
    const MAX_AGE: &str = "callback.retry.max-age";
    const INITIAL: &str = "callback.retry.initial";
    const MULTIPLIER: &str = "callback.retry.multiplier";
    const MAX: &str = "callback.retry.max";
    const JITTER: &str = "callback.retry.jitter";
    let mut read = RetryDocument::default();
    for _ in 0..cursor.object(RETRY)? {
        match cursor.key() {
            "max-attempts" => {
                let attempts = cursor.whole_number(MAX_ATTEMPTS)?;
                set_once(&mut read.max_attempts, attempts, MAX_ATTEMPTS)?;
            }
            "max-age" => set_once(&mut read.max_age, cursor.lasting(MAX_AGE)?, MAX_AGE)?,
            "initial" => set_once(&mut read.initial, cursor.lasting(INITIAL)?, INITIAL)?,
            "multiplier" => {
                set_once(&mut read.multiplier, cursor.ratio(MULTIPLIER)?, MULTIPLIER)?;
            }
            "max" => set_once(&mut read.max, cursor.lasting(MAX)?, MAX)?,
            "jitter" => set_once(&mut read.jitter, cursor.ratio(JITTER)?, JITTER)?,
            _ => cursor.skip_unknown(),
        }
    }
    Ok(read)
}

impl<'a> Cursor<'_, 'a> {
    /// The seconds of a duration. Text goes to `text`; the seconds are 0 then.
    pub(super) fn seconds_or_text(
        &mut self,
        path: &str,
        text: &mut Option<&'a str>,
    ) -> Result<f64, DocumentError> {
        match self.lasting(path)? {
            Lasting::Seconds(seconds) => Ok(seconds),
            Lasting::Text(duration) => {
                *text = Some(duration);
                Ok(0.0)
            }
        }
    }

    fn lasting(&mut self, path: &str) -> Result<Lasting<'a>, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(seconds)) => Ok(Lasting::Seconds(seconds as f64)),
            Node::Static(StaticNode::I64(seconds)) => Ok(Lasting::Seconds(seconds as f64)),
            Node::Static(StaticNode::F64(seconds)) => Ok(Lasting::Seconds(seconds)),
            Node::String(text) => Ok(Lasting::Text(text)),
            other => {
                let expected = "a number of seconds, or a duration as PT15M";
                Err(DocumentError::unexpected(path, expected, other))
            }
        }
    }

    fn ratio(&mut self, path: &str) -> Result<f64, DocumentError> {
        match self.next() {
            Node::Static(StaticNode::U64(number)) => Ok(number as f64),
            Node::Static(StaticNode::I64(number)) => Ok(number as f64),
            Node::Static(StaticNode::F64(number)) => Ok(number),
            other => Err(DocumentError::unexpected(path, "a number", other)),
        }
    }
}
