//! The document of a timer from flags: for a new timer, or laid over one that is there.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Number, Value, json};

use crate::cli::lasting::with_units;

/// Longest file of a document or of opaque bytes that is read, in bytes. The node has a limit of
/// its own.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The members of a timer.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct DocumentFlags {
    /// The whole document, in JSON, as the API takes it; - is standard input
    #[arg(long, value_name = "FILE|-", help_heading = "Document")]
    pub(super) file: Option<PathBuf>,

    /// Pop so long from now: seconds, 15m, 1h30m, 2d or PT15M
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    interval: Option<Value>,

    /// Pop again each interval for so long
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    repeat_for: Option<Value>,

    /// Pop at this time, such as 2026-12-01T09:00:00Z
    #[arg(long, value_name = "TIME", help_heading = "When")]
    #[arg(conflicts_with_all = ["interval", "cron", "repeat_for"])]
    at: Option<String>,

    /// Pop by the calendar, such as '0 9 * * MON-FRI'
    #[arg(long, value_name = "EXPRESSION", help_heading = "When")]
    #[arg(conflicts_with_all = ["interval", "repeat_for"])]
    cron: Option<String>,

    /// The zone of --cron, such as Europe/London
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    time_zone: Option<String>,

    /// How late a pop of --cron is made up for
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    catch_up_window: Option<Value>,

    /// No pop of --cron comes later
    #[arg(long, value_name = "TIME", help_heading = "When")]
    end_at: Option<String>,

    /// Spread pops over so long behind their time
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    window: Option<Value>,

    /// Where the callback goes
    #[arg(long, value_name = "URI", help_heading = "Callback")]
    uri: Option<String>,

    /// What the callback carries
    #[arg(long, value_name = "TEXT", help_heading = "Callback")]
    opaque: Option<String>,

    /// The same from a file, any bytes; - is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "opaque", help_heading = "Callback")]
    opaque_file: Option<PathBuf>,

    /// POST, GET, PUT, PATCH or DELETE [default: POST]
    #[arg(long, value_name = "METHOD", help_heading = "Callback")]
    method: Option<String>,

    /// The Content-Type of the callback
    #[arg(long, value_name = "TYPE", help_heading = "Callback")]
    content_type: Option<String>,

    /// A header of the callback; may be given several times
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, help_heading = "Callback")]
    header: Vec<(String, String)>,

    /// How long an attempt may take
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Callback")]
    attempt_timeout: Option<Value>,

    /// Most attempts at a pop
    #[arg(long, value_name = "N", help_heading = "When a callback fails")]
    max_attempts: Option<u64>,

    /// How long after its time a pop is tried
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "When a callback fails")]
    max_age: Option<Value>,

    /// The pause after the first failure
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "When a callback fails")]
    retry_initial: Option<Value>,

    /// The longest pause
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    #[arg(help_heading = "When a callback fails")]
    retry_max: Option<Value>,

    /// Where a pop goes that is given up
    #[arg(long, value_name = "URI", help_heading = "When a callback fails")]
    dead_letter_uri: Option<String>,

    /// Where a report of each delivered pop goes
    #[arg(long, value_name = "URI", help_heading = "Callback")]
    on_success: Option<String>,

    /// Where a report of each pop goes that was given up
    #[arg(long, value_name = "URI", help_heading = "When a callback fails")]
    on_failure: Option<String>,

    /// How many nodes hold the timer
    #[arg(long, value_name = "N", help_heading = "Timer")]
    replication_factor: Option<u64>,

    /// A statistics tag, TYPE or TYPE=COUNT; may be given several times
    #[arg(long, value_name = "TYPE[=COUNT]", value_parser = tag, help_heading = "Timer")]
    tag: Vec<Value>,
}

impl DocumentFlags {
    /// Whether a flag names a member.
    pub(super) fn says_something(&self) -> bool {
        let mut document = json!({});
        self.lay_over(&mut document, &[]);
        document != json!({}) || self.opaque_file.is_some()
    }

    /// Returns the bytes of the document: those of --file, or those that flags make of `base`.
    pub(super) fn bytes(&self, mut base: Value) -> Result<Vec<u8>, String> {
        if let Some(file) = &self.file {
            if self.says_something() {
                return Err("--file is the whole document: expected no flag of a member beside \
                            it; put the member into the file"
                    .into());
            }
            let bytes = read(file)?;
            let text: Result<Value, _> = serde_json::from_slice(&bytes);
            return match text {
                Ok(_) => Ok(bytes),
                Err(error) => {
                    Err(format!("{}: expected a JSON document, got: {error}", file.display()))
                }
            };
        }
        let opaque = self.opaque_file.as_deref().map(read).transpose()?;
        self.lay_over(&mut base, opaque.as_deref().unwrap_or_default());
        Ok(base.to_string().into_bytes())
    }

    /// Writes the members that flags name into a document.
    fn lay_over(&self, document: &mut Value, opaque: &[u8]) {
        let text = |value: &Option<String>| value.clone().map(Value::from);
        let number = |value: Option<u64>| value.map(Value::from);
        self.clear_timing(document);
        for (path, value) in [
            (&["timing", "interval"][..], self.interval.clone()),
            (&["timing", "repeat-for"], self.repeat_for.clone()),
            (&["timing", "at"], text(&self.at)),
            (&["timing", "cron"], text(&self.cron)),
            (&["timing", "time-zone"], text(&self.time_zone)),
            (&["timing", "catch-up-window"], self.catch_up_window.clone()),
            (&["timing", "end-at"], text(&self.end_at)),
            (&["timing", "window"], self.window.clone()),
            (&["callback", "http", "uri"], text(&self.uri)),
            (&["callback", "http", "method"], text(&self.method)),
            (&["callback", "http", "content-type"], text(&self.content_type)),
            (&["callback", "timeout"], self.attempt_timeout.clone()),
            (&["callback", "retry", "max-attempts"], number(self.max_attempts)),
            (&["callback", "retry", "max-age"], self.max_age.clone()),
            (&["callback", "retry", "initial"], self.retry_initial.clone()),
            (&["callback", "retry", "max"], self.retry_max.clone()),
            (&["callback", "dead-letter", "uri"], text(&self.dead_letter_uri)),
            (&["callback", "on-success"], text(&self.on_success)),
            (&["callback", "on-failure"], text(&self.on_failure)),
            (&["reliability", "replication-factor"], number(self.replication_factor)),
        ] {
            if let Some(value) = value {
                put(document, path, value);
            }
        }
        for (name, value) in &self.header {
            put(document, &["callback", "http", "headers", name], value.as_str().into());
        }
        if !self.tag.is_empty() {
            put(document, &["statistics", "tag-info"], self.tag.clone().into());
        }
        self.lay_opaque_over(document, opaque);
    }

    /// Takes out of a document the timing that a flag takes the place of. What belongs to another
    /// kind of timing goes, and so does a `repeat-for` that only says that the timer pops once.
    fn clear_timing(&self, document: &mut Value) {
        let kinds = [
            ("interval", self.interval.is_some()),
            ("at", self.at.is_some()),
            ("cron", self.cron.is_some()),
        ];
        let Some((kind, _)) = kinds.into_iter().find(|(_, is_given)| *is_given) else { return };
        let Some(members) = document.as_object_mut() else { return };
        let timing = members.entry("timing").or_insert(Value::Null);
        if timing.get(kind).is_none() {
            *timing = json!({});
        } else if timing["interval"] == timing["repeat-for"]
            && let Some(members) = timing.as_object_mut()
        {
            members.remove("repeat-for");
        }
    }

    /// The opaque data is of one kind: text, or bytes in base64.
    fn lay_opaque_over(&self, document: &mut Value, opaque: &[u8]) {
        let (member, other, value) = match (&self.opaque, &self.opaque_file) {
            (Some(text), _) => ("opaque", "opaque-base64", text.clone()),
            (None, Some(_)) => match std::str::from_utf8(opaque) {
                Ok(text) => ("opaque", "opaque-base64", text.to_owned()),
                Err(_) => ("opaque-base64", "opaque", STANDARD.encode(opaque)),
            },
            (None, None) => return,
        };
        if let Some(http) = document.pointer_mut("/callback/http").and_then(Value::as_object_mut) {
            http.remove(other);
        }
        put(document, &["callback", "http", member], value.into());
    }
}

/// Writes a member into a document, and the objects around it where they are missing.
fn put(document: &mut Value, path: &[&str], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *document = value;
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    if let Some(members) = document.as_object_mut() {
        put(members.entry(*name).or_insert(Value::Null), rest, value);
    }
}

/// Takes out of a document what GET shows and a client does not write, so that it can be written
/// again.
pub(super) fn writable(mut document: Value) -> Value {
    if let Some(members) = document.as_object_mut() {
        for shown in ["name", "paused", "dead-letter", "replays", "report"] {
            members.remove(shown);
        }
    }
    if let Some(timing) = document.pointer_mut("/timing").and_then(Value::as_object_mut) {
        for shown in ["start-time-delta", "sequence-number", "next-at"] {
            timing.remove(shown);
        }
    }
    document
}

/// Reads a file, or standard input.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)),
    };
    match read {
        Err(error) => Err(format!("{}: cannot be read: {error}", path.display())),
        Ok(count) if count as u64 > FILE_BYTES_MAX => {
            Err(format!("{}: expected at most {FILE_BYTES_MAX} bytes, got more", path.display()))
        }
        Ok(_) => Ok(bytes),
    }
}

/// Reads a duration: seconds, ISO 8601, or numbers with the units d, h, m, s.
pub(super) fn duration(text: &str) -> Result<Value, String> {
    if let Ok(number) = serde_json::from_str::<Number>(text) {
        return Ok(number.into());
    }
    // The node judges it.
    if text.starts_with('P') {
        return Ok(text.into());
    }
    with_units(text).map(Value::from).ok_or_else(|| {
        "expected seconds (90 or 1.5), 15m, 1h30m, 2d, or ISO 8601 as PT15M".to_owned()
    })
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn tag(text: &str) -> Result<Value, String> {
    match text.rsplit_once('=') {
        None => Ok(json!({ "type": text })),
        Some((kind, count)) => {
            let count: u32 = count.parse().map_err(|_| {
                "expected TYPE, or TYPE=COUNT with a count from 0 to 4294967295".to_owned()
            })?;
            Ok(json!({ "type": kind, "count": count }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: DocumentFlags,
    }

    fn flags(words: &[&str]) -> DocumentFlags {
        Line::try_parse_from([&["x"], words].concat()).expect("flags").flags
    }

    fn made(words: &[&str], base: Value) -> Value {
        let bytes = flags(words).bytes(base).expect("a document");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn flags_make_a_document() {
        let words = ["--interval", "1h30m", "--uri", "http://a/b", "--opaque", "x", "--tag", "A=2"];
        let more = ["--header", "X-A: b:c", "--max-age", "PT1H", "--repeat-for", "1.5"];
        let document = made(&[&words[..], &more].concat(), json!({}));
        let http = json!({ "uri": "http://a/b", "opaque": "x", "headers": { "X-A": "b:c" } });
        assert_eq!(
            document,
            json!({
                "timing": { "interval": 5400, "repeat-for": 1.5 },
                "callback": { "http": http, "retry": { "max-age": "PT1H" } },
                "statistics": { "tag-info": [{ "type": "A", "count": 2 }] },
            })
        );
    }

    #[test]
    fn what_flags_do_not_name_stays() {
        let shown = json!({
            "timing": { "interval": 5, "repeat-for": 5, "start-time-delta": -1,
                        "sequence-number": 0, "window": 3 },
            "callback": { "http": { "uri": "http://a/", "opaque-base64": "AA==" } },
            "paused": true, "name": "n",
        });
        let base = writable(shown);
        let document = made(&["--opaque", "x"], base.clone());
        assert_eq!(document["callback"]["http"], json!({ "uri": "http://a/", "opaque": "x" }));
        assert_eq!(document["timing"], json!({ "interval": 5, "repeat-for": 5, "window": 3 }));
        assert!(document.get("paused").is_none() && document.get("name").is_none());
        let document = made(&["--interval", "7"], base.clone());
        assert_eq!(document["timing"], json!({ "interval": 7, "window": 3 }));
        let cron = json!({ "timing": { "cron": "@daily", "time-zone": "Europe/London" } });
        let document = made(&["--cron", "@hourly"], cron);
        let kept = json!({ "cron": "@hourly", "time-zone": "Europe/London" });
        assert_eq!(document["timing"], kept);
        let document = made(&["--at", "2030-01-01T00:00:00Z"], base);
        assert_eq!(document["timing"], json!({ "at": "2030-01-01T00:00:00Z" }));
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, value) in [
            ("90", json!(90)),
            ("1.5", json!(1.5)),
            ("15m", json!(900)),
            ("1d2h3m4s", json!(93_784)),
            ("PT15M", json!("PT15M")),
        ] {
            assert_eq!(duration(text), Ok(value));
        }
        for bad in ["", "m", "5x", "1m1h", "-5m", "5m5", "99999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_is_the_whole_document() {
        let error = flags(&["--file", "/nowhere", "--uri", "http://a/"]).bytes(json!({}));
        assert!(error.expect_err("both").contains("whole document"));
        let error = flags(&["--file", "/nowhere"]).bytes(json!({}));
        assert!(error.expect_err("no file").contains("/nowhere: cannot be read"));
    }
}
