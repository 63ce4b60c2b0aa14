//! The document of a timer as GET shows it: the members that a client wrote, and how far the timer
//! is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::base::time::WallMs;
use crate::shard::effects::TimerView;
use crate::wire::attributes::{Attributes, CallbackMethod, CronTiming, RetryPolicy};
use crate::wire::dead_letter::DeadLetter;
use crate::wire::json::{string_bytes_max, write_number, write_signed, write_string};
use crate::wire::wall_time::write_wall_time;

/// Appends a timer. Durations are shown in seconds. Returns whether its version is told: a name or
/// a key made its id, or clients did something with it.
pub fn write_document(view: &TimerView, out: &mut Vec<u8>) -> bool {
    let attributes = Attributes::read(&view.attributes).unwrap_or_default();
    let opaque = String::from_utf8_lossy(&view.opaque);
    out.reserve(string_bytes_max(&opaque) + view.uri.len() + 256);
    out.extend_from_slice(b"{\"callback\":{\"http\":{");
    if attributes.is_binary {
        out.extend_from_slice(b"\"opaque-base64\":");
        write_string(&STANDARD.encode(&view.opaque), out);
    } else {
        out.extend_from_slice(b"\"opaque\":");
        write_string(&opaque, out);
    }
    out.extend_from_slice(b",\"uri\":");
    write_string(uri_of_callback(view, &attributes), out);
    write_request_members(&attributes, out);
    out.push(b'}');
    write_callback_members(view, &attributes, out);
    out.push(b'}');
    write_state_members(&attributes, out);
    out.extend_from_slice(b",\"reliability\":{\"replication-factor\":");
    write_number(view.factor.into(), out);
    out.extend_from_slice(b"},\"statistics\":{\"tag-info\":[");
    for (place, (kind, count)) in view.tags.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"{\"count\":" } else { b",{\"count\":" });
        write_number((*count).into(), out);
        out.extend_from_slice(b",\"type\":");
        write_string(kind, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]},\"timing\":{");
    match (attributes.at_ms, &attributes.cron) {
        (_, Some(cron)) => write_cron(cron, out),
        (Some(at_ms), None) => {
            out.extend_from_slice(b"\"at\":");
            write_string(&moment(at_ms), out);
        }
        (None, None) => {
            out.extend_from_slice(b"\"interval\":");
            write_seconds(view.interval_ms, out);
            out.extend_from_slice(b",\"repeat-for\":");
            write_seconds(view.repeat_for_ms, out);
        }
    }
    out.extend_from_slice(b",\"sequence-number\":");
    write_number(view.sequence + attributes.cron.map_or(0, |cron| cron.done), out);
    out.extend_from_slice(b",\"start-time-delta\":");
    write_signed((view.age_ms as i64).wrapping_neg(), out);
    if let Some(window_ms) = attributes.window_ms {
        out.extend_from_slice(b",\"window\":");
        write_seconds(window_ms, out);
    }
    out.extend_from_slice(b"}}");
    attributes.name.is_some() || attributes.once.is_some() || attributes.acted.is_some()
}

/// Appends what became of a timer, and its name.
fn write_state_members(attributes: &Attributes<'_>, out: &mut Vec<u8>) {
    if let Some(letter) = &attributes.letter {
        write_letter(letter, out);
    }
    if let Some(replay) = &attributes.replay {
        out.extend_from_slice(b",\"replays\":");
        write_number(replay.count.into(), out);
    }
    if let Some(report) = &attributes.report {
        out.extend_from_slice(b",\"report\":");
        write_string(report.kind.name(), out);
    }
    if let Some(name) = attributes.name {
        out.extend_from_slice(b",\"name\":");
        write_string(name, out);
    }
    if attributes.is_paused {
        out.extend_from_slice(b",\"paused\":true");
    }
}

/// Appends the members of `callback` beside `http`.
fn write_callback_members(view: &TimerView, attributes: &Attributes<'_>, out: &mut Vec<u8>) {
    if let Some(policy) = &attributes.retry {
        write_policy(policy, out);
    }
    if let Some(timeout_ms) = attributes.timeout_ms {
        out.extend_from_slice(b",\"timeout\":");
        write_seconds(timeout_ms, out);
    }
    if let Some(uri) = attributes.dead_letter_uri {
        // While a letter is on its way there, it is the URI of the callback.
        let is_swapped = attributes.letter.is_some_and(|letter| letter.is_on_its_way);
        out.extend_from_slice(b",\"dead-letter\":{\"uri\":");
        write_string(if is_swapped { &view.uri } else { uri }, out);
        out.push(b'}');
    }
    for (member, uri) in [
        (&b",\"on-success\":"[..], attributes.on_success),
        (b",\"on-failure\":", attributes.on_failure),
    ] {
        if let Some(uri) = uri {
            out.extend_from_slice(member);
            write_string(uri, out);
        }
    }
}

/// Where the callback of a timer goes, or, while it is on its way as a dead letter, went.
fn uri_of_callback<'a>(view: &'a TimerView, attributes: &Attributes<'a>) -> &'a str {
    let is_swapped = attributes.letter.is_some_and(|letter| letter.is_on_its_way);
    attributes.dead_letter_uri.filter(|_| is_swapped).unwrap_or(&view.uri)
}

/// Appends what is known of a pop that was given up. The answer is shown as text where it is text.
fn write_letter(letter: &DeadLetter<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"dead-letter\":{\"reason\":");
    write_string(letter.reason.name(), out);
    out.extend_from_slice(b",\"attempts\":");
    write_number(letter.attempts.into(), out);
    out.extend_from_slice(b",\"failure\":");
    write_string(letter.failure.name(), out);
    if let Some(status) = letter.status {
        out.extend_from_slice(b",\"status\":");
        write_number(status.into(), out);
    }
    match text_of(letter.answer) {
        Some("") => {}
        Some(text) => {
            out.extend_from_slice(b",\"answer\":");
            write_string(text, out);
        }
        None => {
            out.extend_from_slice(b",\"answer-base64\":");
            write_string(&STANDARD.encode(letter.answer), out);
        }
    }
    out.extend_from_slice(b",\"sequence-number\":");
    write_number(letter.sequence, out);
    out.extend_from_slice(b",\"given-up-at\":");
    write_string(&moment(letter.given_up_ms), out);
    out.extend_from_slice(b",\"kept-until\":");
    write_string(&moment(letter.until_ms), out);
    if letter.uri_failed {
        out.extend_from_slice(b",\"uri-failed\":true");
    }
    out.push(b'}');
}

/// The bytes as text. A character at their end may be cut off, and is left out then.
fn text_of(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            let whole = bytes.get(..error.valid_up_to())?;
            std::str::from_utf8(whole).ok().filter(|text| !text.is_empty())
        }
        Err(_) => None,
    }
}

fn write_request_members(attributes: &Attributes<'_>, out: &mut Vec<u8>) {
    if attributes.method != CallbackMethod::Post {
        out.extend_from_slice(b",\"method\":");
        write_string(attributes.method.name(), out);
    }
    if let Some(content_type) = attributes.content_type {
        out.extend_from_slice(b",\"content-type\":");
        write_string(content_type, out);
    }
    if attributes.headers.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"headers\":{");
    for (place, (name, value)) in attributes.headers().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_string(name, out);
        out.push(b':');
        write_string(value, out);
    }
    out.push(b'}');
}

fn write_cron(cron: &CronTiming<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"cron\":");
    write_string(cron.expression, out);
    out.extend_from_slice(b",\"time-zone\":");
    write_string(cron.zone, out);
    out.extend_from_slice(b",\"catch-up-window\":");
    write_seconds(cron.catch_up_ms, out);
    if let Some(end_ms) = cron.end_ms {
        out.extend_from_slice(b",\"end-at\":");
        write_string(&moment(end_ms), out);
    }
    out.extend_from_slice(b",\"next-at\":");
    write_string(&moment(cron.due_ms), out);
}

fn write_policy(policy: &RetryPolicy, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"retry\":{\"max-attempts\":");
    write_number(policy.max_attempts.into(), out);
    out.extend_from_slice(b",\"max-age\":");
    write_seconds(policy.max_age_ms, out);
    out.extend_from_slice(b",\"initial\":");
    write_seconds(policy.initial_ms, out);
    out.extend_from_slice(b",\"multiplier\":");
    // Thousandths are written as seconds are.
    write_seconds(policy.multiplier_milli.into(), out);
    out.extend_from_slice(b",\"max\":");
    write_seconds(policy.max_ms, out);
    out.extend_from_slice(b",\"jitter\":");
    write_seconds(policy.jitter_milli.into(), out);
    out.push(b'}');
}

/// A wall time in the form of RFC 3339.
fn moment(ms: u64) -> String {
    let mut text = Vec::new();
    write_wall_time(WallMs(ms), &mut text);
    let text = String::from_utf8_lossy(&text);
    let without_zeros = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{without_zeros}Z")
}

/// Appends milliseconds as seconds, with as many decimals as are needed.
fn write_seconds(ms: u64, out: &mut Vec<u8>) {
    write_number(ms / 1000, out);
    let decimals = format!(".{:03}", ms % 1000);
    out.extend_from_slice(decimals.trim_end_matches(['0', '.']).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::timer::version::Version;
    use crate::wire::dead_letter::{Failure, GivenUp, Replay};
    use crate::wire::report::{ReportKind, Reported};

    const LETTER: DeadLetter<'static> = DeadLetter {
        is_on_its_way: false,
        uri_failed: true,
        reason: GivenUp::Attempts,
        failure: Failure::Status,
        attempts: 2,
        status: Some(500),
        given_up_ms: 1_800_000_000_000,
        until_ms: 1_800_000_001_000,
        sequence: 4,
        answer: b"no",
    };

    fn letter_text(letter: &DeadLetter<'_>) -> String {
        let mut out = Vec::new();
        write_letter(letter, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_letter_tells_what_is_known() {
        assert_eq!(
            letter_text(&LETTER),
            concat!(
                r#","dead-letter":{"reason":"attempts","attempts":2,"failure":"status","#,
                r#""status":500,"answer":"no","sequence-number":4,"#,
                r#""given-up-at":"2027-01-15T08:00:00Z","kept-until":"2027-01-15T08:00:01Z","#,
                r#""uri-failed":true}"#,
            )
        );
        let cut = "caf\u{e9}".as_bytes();
        for (answer, shown) in [
            (&b""[..], None),
            (&b"\xff\xfe"[..], Some(r#""answer-base64":"//4=""#)),
            (&cut[..4], Some(r#""answer":"caf""#)),
            (&b"\xc3"[..], Some(r#""answer-base64":"ww==""#)),
        ] {
            let text = letter_text(&DeadLetter { answer, status: None, ..LETTER });
            match shown {
                Some(shown) => assert!(text.contains(shown), "{text}"),
                None => assert!(!text.contains("answer"), "{text}"),
            }
        }
    }

    #[test]
    fn what_the_original_does_not_have_is_shown_as_it_was_written() {
        let attributes = Attributes {
            is_binary: true,
            method: CallbackMethod::Put,
            content_type: Some("image/png"),
            headers: "X-A: b \"c\"\r\nX-D: e\r\n",
            at_ms: Some(1_800_000_000_250),
            window_ms: Some(300_000),
            retry: Some(RetryPolicy { multiplier_milli: 1_500, ..RetryPolicy::default() }),
            timeout_ms: Some(15_000),
            cron: None,
            name: Some("a \"b\""),
            once: Some(1),
            letter: None,
            replay: Some(Replay { count: 3, sequence: 1 }),
            on_success: Some("http://done/"),
            on_failure: Some("http://failed/"),
            dead_letter_uri: Some("http://letters/"),
            is_paused: true,
            acted: None,
            report: Some(Reported { kind: ReportKind::Success, sequence: 1 }),
        };
        let mut encoded = Vec::new();
        attributes.write(&mut encoded);
        let view = TimerView {
            id: TimerId(1),
            factor: 2,
            filter: 0,
            interval_ms: 1_500,
            repeat_for_ms: 1_500,
            age_ms: 20,
            sequence: 0,
            version: Version(1),
            uri: "http://h/".into(),
            opaque: vec![0xff, 0].into(),
            attributes: encoded.into(),
            tags: vec![],
        };
        let mut body = Vec::new();
        assert!(write_document(&view, &mut body), "it has a name");
        let expected = concat!(
            r#"{"callback":{"http":{"opaque-base64":"/wA=","uri":"http://h/","method":"PUT","#,
            r#""content-type":"image/png","headers":{"X-A":"b \"c\"","X-D":"e"}},"#,
            r#""retry":{"max-attempts":8,"max-age":86400,"initial":1,"multiplier":1.5,"#,
            r#""max":3600,"jitter":0.2},"timeout":15,"dead-letter":{"uri":"http://letters/"},"#,
            r#""on-success":"http://done/","on-failure":"http://failed/"},"replays":3,"#,
            r#""report":"success","name":"a \"b\"","paused":true,"#,
            r#""reliability":{"replication-factor":2},"#,
            r#""statistics":{"tag-info":[]},"timing":{"at":"2027-01-15T08:00:00.25Z","#,
            r#""sequence-number":0,"start-time-delta":-20,"window":300}}"#,
        );
        assert_eq!(String::from_utf8(body).as_deref(), Ok(expected));
        serde_json::from_str::<serde_json::Value>(expected).expect("JSON");
    }

    #[test]
    fn seconds_are_shown_as_they_were_written() {
        let seconds = |ms| {
            let mut out = Vec::new();
            write_seconds(ms, &mut out);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(seconds(0), "0");
        assert_eq!(seconds(300_000), "300");
        assert_eq!(seconds(1_500), "1.5");
        assert_eq!(seconds(1_050), "1.05");
        assert_eq!(seconds(1), "0.001");
    }
}
