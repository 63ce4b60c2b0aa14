//! Destinations of callbacks and their rules, as operators write them.
//!
//! A destination is `host:port`, or `host` for all ports of the host that have no rule of their
//! own. The host is a name, an IPv4 address, or an IPv6 address in brackets. The scheme of a
//! callback makes no difference. One form stands for all spellings: names in small letters without
//! a last dot, addresses as they are printed.

use std::borrow::Cow;
use std::fmt::Write;

use crate::base::destinations::{IN_FLIGHT_MAX, PER_1000_S_MAX, Rule};
use crate::wire::callback_uri::{Host, host_and_port, is_host_and_port, parse_authority};
use crate::wire::json::{Cursor, set_once};
use crate::wire::timer_json::{DocumentError, JsonScratch};

/// Most bytes of a destination: a name, a colon and a port.
pub const DESTINATION_BYTES_MAX: usize = 253 + 6;
const EXPECTED: &str = "destination: expected host or host:port (a name, an IPv4 address, or an \
                        IPv6 address in brackets; no scheme, no path)";
const MAX_IN_FLIGHT: &str = "max-in-flight";
const RATE: &str = "rate-per-second";
const PAUSED: &str = "paused";

/// The one form of a destination that an operator names. The error is a sentence.
pub fn destination_of(text: &str) -> Result<String, DocumentError> {
    let told = || {
        let got: String = text.chars().take(60).flat_map(char::escape_default).collect();
        DocumentError(Cow::Owned(format!("{EXPECTED}, got \"{got}\"")))
    };
    if text.len() > DESTINATION_BYTES_MAX + 1 || !is_host_and_port(text) {
        return Err(told());
    }
    let (host, port) = parse_authority(text).map_err(|_| told())?;
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let mut name = host_text(host);
    if name.is_empty() {
        return Err(told());
    }
    if has_port {
        // Writing to a text does not fail.
        let _ = write!(name, ":{port}");
    }
    Ok(name)
}

/// The destination, with its port, to which callbacks with this authority (`wire::callback_uri`)
/// go.
pub fn destination_to(authority: &str) -> String {
    match parse_authority(authority) {
        Ok((host, port)) => {
            let mut name = host_text(host);
            let _ = write!(name, ":{port}");
            name
        }
        // The texts of originals are checked by others; what is no authority has no rule.
        Err(_) => host_and_port(authority).to_owned(),
    }
}

fn host_text(host: Host<'_>) -> String {
    match host {
        Host::Address(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        Host::Address(address) => address.to_string(),
        Host::Name(name) => name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase(),
    }
}

/// Reads `{"max-in-flight": 8, "rate-per-second": 0.5, "paused": false}`, in place. A member that
/// is left out sets no limit. An unknown member is an error: a limit that is misspelt must not be
/// no limit.
pub fn parse_rule(body: &mut [u8], scratch: &mut JsonScratch) -> Result<Rule, DocumentError> {
    scratch.parse(body, read_rule)
}

fn read_rule(cursor: &mut Cursor<'_, '_>) -> Result<Rule, DocumentError> {
    let (mut max_in_flight, mut per_1000_s, mut is_paused) = (None, None, None);
    for _ in 0..cursor.object("body")? {
        match cursor.key() {
            MAX_IN_FLIGHT => set_once(&mut max_in_flight, read_max(cursor)?, MAX_IN_FLIGHT)?,
            RATE => {
                let rate = cursor.number_of("a number of attempts a second", RATE)?;
                set_once(&mut per_1000_s, per_1000_s_of(rate)?, RATE)?;
            }
            PAUSED => set_once(&mut is_paused, cursor.boolean(PAUSED)?, PAUSED)?,
            other => {
                let got: String = other.chars().take(60).flat_map(char::escape_default).collect();
                let told = format!(
                    "{got}: expected {MAX_IN_FLIGHT}, {RATE} or {PAUSED}; another member is unknown"
                );
                return Err(DocumentError(told.into()));
            }
        }
    }
    Ok(Rule { max_in_flight, per_1000_s, is_paused: is_paused.unwrap_or(false) })
}

fn read_max(cursor: &mut Cursor<'_, '_>) -> Result<u32, DocumentError> {
    let max = cursor.number_from((1, IN_FLIGHT_MAX.into()), MAX_IN_FLIGHT)?;
    u32::try_from(max).ok().filter(|max| *max > 0).ok_or_else(|| {
        let told = format!(
            "{MAX_IN_FLIGHT}: expected a whole number from 1 to {IN_FLIGHT_MAX}, got {max}; to \
             stop callbacks set {PAUSED}"
        );
        DocumentError(told.into())
    })
}

/// Attempts in 1 000 s, rounded down, from attempts a second. The error is a sentence.
pub fn per_1000_s_of(per_second: f64) -> Result<u32, DocumentError> {
    let scaled = per_second * 1_000.0;
    // What is no number is not in the range either. A third of a second, say, is met as written.
    if (1.0..=f64::from(PER_1000_S_MAX)).contains(&scaled) {
        return Ok((scaled + 1e-6).floor() as u32);
    }
    let told = format!(
        "{RATE}: expected 0.001 to {}, got {per_second}; to stop callbacks set {PAUSED}",
        PER_1000_S_MAX / 1_000
    );
    Err(DocumentError(told.into()))
}

/// Attempts a second, of attempts in 1 000 s.
pub fn per_second_of(per_1000_s: u32) -> f64 {
    f64::from(per_1000_s) / 1_000.0
}

/// Appends a rule as [`parse_rule`] reads it.
pub fn write_rule(rule: &Rule, out: &mut String) {
    // Writing to a text does not fail.
    out.push('{');
    if let Some(max) = rule.max_in_flight {
        let _ = write!(out, "\"{MAX_IN_FLIGHT}\":{max},");
    }
    if let Some(rate) = rule.per_1000_s {
        let _ = write!(out, "\"{RATE}\":{},", per_second_of(rate));
    }
    let _ = write!(out, "\"{PAUSED}\":{}}}", rule.is_paused);
}

/// A destination and its rule as a line of words: `10.0.0.1:8080 max-in-flight=8
/// rate-per-second=0.5 paused`. The configuration has such lines. The error is a sentence.
pub fn parse_line(line: &str) -> Result<(String, Rule), DocumentError> {
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let name = destination_of(words.next().unwrap_or_default())?;
    let (mut max_in_flight, mut per_1000_s, mut is_paused) = (None, None, None);
    for word in words {
        let wrong = || {
            let got: String = word.chars().take(60).flat_map(char::escape_default).collect();
            let told = format!("expected {MAX_IN_FLIGHT}=, {RATE}= or {PAUSED}, got \"{got}\"");
            DocumentError(told.into())
        };
        match word.split_once('=') {
            Some((MAX_IN_FLIGHT, max)) => {
                let is_digits = max.bytes().all(|byte| byte.is_ascii_digit());
                let max =
                    max.parse().ok().filter(|max| is_digits && (1..=IN_FLIGHT_MAX).contains(max));
                set_once(&mut max_in_flight, max.ok_or_else(wrong)?, MAX_IN_FLIGHT)?;
            }
            Some((RATE, rate)) => {
                let rate = per_1000_s_of(rate.parse().map_err(|_| wrong())?)?;
                set_once(&mut per_1000_s, rate, RATE)?;
            }
            None if word == PAUSED => set_once(&mut is_paused, true, PAUSED)?,
            _ => return Err(wrong()),
        }
    }
    Ok((name, Rule { max_in_flight, per_1000_s, is_paused: is_paused.unwrap_or(false) }))
}

/// Writes a line as [`parse_line`] reads it.
pub fn write_line(name: &str, rule: &Rule) -> String {
    let mut line = name.to_owned();
    // Writing to a text does not fail.
    if let Some(max) = rule.max_in_flight {
        let _ = write!(line, " {MAX_IN_FLIGHT}={max}");
    }
    if let Some(rate) = rule.per_1000_s {
        let _ = write!(line, " {RATE}={}", per_second_of(rate));
    }
    if rule.is_paused {
        let _ = write!(line, " {PAUSED}");
    }
    line
}

/// What an operator ordered for a destination, and when. Nodes tell each other, and keep, lines of
/// these: `milliseconds node order`, and `order` is a line of [`parse_line`], or `- name` if the
/// operator took the rule back. Of two orders for a destination the later one counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// When it was ordered, in ms of the wall clock, and by which node: orders compare by this.
    pub stamp: (u64, u32),
    /// The destination, in its one form.
    pub name: String,
    /// `None`: what is configured holds.
    pub rule: Option<Rule>,
}

/// Most bytes of a line of [`Ordered`].
pub const ORDERED_BYTES_MAX: usize = 400;

impl Ordered {
    /// Appends the line.
    pub fn write(&self, out: &mut String) {
        let (ms, node) = self.stamp;
        let _ = match &self.rule {
            Some(rule) => writeln!(out, "{ms} {node} {}", write_line(&self.name, rule)),
            None => writeln!(out, "{ms} {node} - {}", self.name),
        };
    }

    /// Reads a line without its end. `None`: it is no such line.
    pub fn parse(line: &str) -> Option<Self> {
        if line.len() > ORDERED_BYTES_MAX {
            return None;
        }
        let (ms, rest) = line.split_once(' ')?;
        let (node, rest) = rest.split_once(' ')?;
        let stamp = (ms.parse().ok()?, node.parse().ok()?);
        let (name, rule) = match rest.strip_prefix("- ") {
            Some(name) => (destination_of(name).ok()?, None),
            None => parse_line(rest).ok().map(|(name, rule)| (name, Some(rule)))?,
        };
        Some(Self { stamp, name, rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Rule, String> {
        let mut body = text.as_bytes().to_vec();
        parse_rule(&mut body, &mut JsonScratch::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_form_stands_for_all_spellings() {
        for (text, name) in [
            ("A.Example", "a.example"),
            ("a.example.", "a.example"),
            ("a.example:080", "a.example:80"),
            ("10.0.0.1:8080", "10.0.0.1:8080"),
            ("[::1]", "[::1]"),
            ("[0:0::1]:99", "[::1]:99"),
        ] {
            assert_eq!(destination_of(text).as_deref(), Ok(name));
            assert_eq!(destination_of(name).as_deref(), Ok(name));
        }
        for (authority, name) in [
            ("A.example", "a.example:80"),
            ("https://a.example.", "a.example:443"),
            ("[0::1]:99", "[::1]:99"),
        ] {
            assert_eq!(destination_to(authority), name);
        }
        let long = "a".repeat(300);
        for bad in [
            "",
            ".",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "http://a",
            "https://a",
            "a/b",
            "a b",
            "u@a",
            "::1",
            "[::1",
            "[::1]x",
            "127.1",
            "a..b",
            "ä",
            "a\0",
            "a\r\n",
            "*",
            "a?b",
            &long,
        ] {
            let told = destination_of(bad).expect_err(bad).to_string();
            assert!(told.starts_with("destination: expected host"), "{told}");
            assert!(told.is_ascii() && told.len() < 300, "{told}");
        }
    }

    #[test]
    fn rules_are_read_and_written() {
        let all = r#"{"max-in-flight":8,"rate-per-second":0.5,"paused":true}"#;
        let rule = Rule { max_in_flight: Some(8), per_1000_s: Some(500), is_paused: true };
        assert_eq!(parse(all), Ok(rule));
        let mut out = String::new();
        write_rule(&rule, &mut out);
        assert_eq!(out, all);
        assert_eq!(parse("{}"), Ok(Rule::default()));
        for (text, per_1000_s) in [("100", 100_000), ("1e6", PER_1000_S_MAX), ("0.001", 1)] {
            let rule = parse(&format!("{{\"rate-per-second\":{text}}}")).expect(text);
            assert_eq!(rule.per_1000_s, Some(per_1000_s));
        }
        for thousandths in 1..5_000_u32 {
            assert_eq!(per_1000_s_of(per_second_of(thousandths)), Ok(thousandths));
        }
    }

    #[test]
    fn lines_are_read_and_written() {
        let rule = Rule { max_in_flight: Some(8), per_1000_s: Some(500), is_paused: true };
        let line = "a.example:80 max-in-flight=8 rate-per-second=0.5 paused";
        assert_eq!(parse_line(line), Ok(("a.example:80".into(), rule)));
        assert_eq!(write_line("a.example:80", &rule), line);
        assert_eq!(parse_line(" A.  paused").map(|(name, _)| name), Ok("a".into()));
        for (bad, told) in [
            ("", "destination: expected host"),
            ("a rate-per-second=nan", "rate-per-second: expected 0.001"),
            ("a rate-per-second=inf", "rate-per-second: expected 0.001"),
            ("a rate-per-second=x", "expected max-in-flight=, rate-per-second= or paused, got"),
            ("a max-in-flight=+1", "expected max-in-flight="),
            ("a max-in-flight=0", "expected max-in-flight="),
            ("a paused paused", "paused: expected once"),
            ("a pause", "expected max-in-flight="),
        ] {
            let got = parse_line(bad).expect_err(bad).to_string();
            assert!(got.starts_with(told), "{bad}: {got}");
        }
        for rule in [Some(rule), Some(Rule::default()), None] {
            let ordered = Ordered { stamp: (u64::MAX, 7), name: "[::1]:80".into(), rule };
            let mut line = String::new();
            ordered.write(&mut line);
            assert_eq!(Ordered::parse(line.strip_suffix('\n').expect("a line")), Some(ordered));
        }
        for bad in ["", "1", "1 2", "1 2 ", "x 2 a", "1 -2 a", "1 2 - ", "1 2 a b", "1 2 - a b"] {
            assert_eq!(Ordered::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_the_member() {
        for (text, told) in [
            (r#"{"rate-per-second":0}"#, "rate-per-second: expected 0.001 to 1000000, got 0; to"),
            (r#"{"rate-per-second":-1}"#, "rate-per-second: expected 0.001 to 1000000, got -1"),
            (r#"{"rate-per-second":1e7}"#, "rate-per-second: expected 0.001"),
            (r#"{"rate-per-second":"5"}"#, "rate-per-second: expected a number of attempts a"),
            (r#"{"rate-per-second":NaN}"#, "body: "),
            (r#"{"max-in-flight":0}"#, "max-in-flight: expected a whole number from 1 to 1000000"),
            (r#"{"max-in-flight":-3}"#, "max-in-flight: expected a whole number"),
            (
                r#"{"max-in-flight":1.0}"#,
                "max-in-flight: expected a whole number from 1 to 1000000",
            ),
            (r#"{"max-in-flight":1000001}"#, "max-in-flight: expected a whole number from 1 to 1"),
            (r#"{"max-in-flight":null}"#, "max-in-flight: expected a whole number"),
            (r#"{"paused":1}"#, "paused: expected true or false, got 1"),
            (r#"{"paused":true,"paused":false}"#, "paused: expected once, got it twice"),
            (r#"{"pause":true}"#, "pause: expected max-in-flight, rate-per-second or paused"),
            ("[]", "body: expected an object, got an array"),
            ("7", "body: expected an object"),
            ("", "body: "),
        ] {
            let got = parse(text).expect_err(text);
            assert!(got.starts_with(told), "{text}: {got}");
        }
    }
}
