//! What a timer can have beyond the original's document: each function panics when a property is
//! broken and returns whether the input was accepted, as those of `targets.rs` do.

use chronos::base::limits::INTERVAL_MS_MAX;
use chronos::base::time::WallMs;
use chronos::timer::admission::admit;
use chronos::timer::definition::{Content, Definition, OwnedDefinition};
use chronos::wire::answer_head::{RetryAfter, parse_answer_head};
use chronos::wire::attributes::{
    ATTEMPTS_MAX, Attributes, CallbackMethod, HEADER_BYTES_MAX, HEADERS_MAX, POLICY_MS_MAX,
    RetryPolicy, TIMEOUT_MS_MAX, is_parked,
};
use chronos::wire::callback_headers::{check_header, check_kept_header};
use chronos::wire::callback_uri::{AuthorityMemory, parse_told_uri, uri_of};
use chronos::wire::dead_letter::LETTER_ANSWER_BYTES_MAX;
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use serde_json::{Map, Value, json};

const NOW: WallMs = WallMs(1_800_000_000_000);

/// Documents with options: a refusal names a member; what is admitted is within its bounds, comes
/// back from its bytes, and is admitted as the same timer when it is written as GET shows it.
pub fn timer_options(data: &[u8]) -> bool {
    let Some(first) = admitted(&mut data.to_vec()) else { return false };
    let first = first.borrow();
    let content = Content::decode(first.content);
    let attributes = content.attributes();
    assert!(first.interval_ms.max(first.repeat_for_ms) <= INTERVAL_MS_MAX);
    check(&attributes);
    let mut encoded = Vec::new();
    attributes.write(&mut encoded);
    assert_eq!(encoded, *content.encoded_attributes(), "attributes have one form");
    let shown = shown(&first, &content, &attributes).to_string();
    let again = admitted(&mut shown.clone().into_bytes());
    let again = again.unwrap_or_else(|| panic!("what is shown is refused: {shown}"));
    assert_eq!(parts(&again.borrow()), parts(&first), "{shown}");
    true
}

/// What a definition says, with its headers in alphabetical order: so the documents have them.
fn parts<'a>(timer: &Definition<'a>) -> impl PartialEq + std::fmt::Debug + use<'a> {
    let content = Content::decode(timer.content);
    let attributes = content.attributes();
    let mut headers: Vec<_> = attributes.headers().collect();
    headers.sort_unstable();
    let times = (timer.interval_ms, timer.repeat_for_ms, timer.factor, timer.authority);
    let rest = Attributes { headers: "", ..attributes };
    (times, content.target, content.opaque, rest, headers)
}

fn admitted(body: &mut [u8]) -> Option<OwnedDefinition> {
    let mut scratch = JsonScratch::default();
    let document = match parse_timer(body, &mut scratch) {
        Ok(document) => document,
        Err(error) => {
            assert!(error.0.contains(": ") && error.0.len() < 200, "{error}");
            return None;
        }
    };
    let mut content = Vec::new();
    match admit(&document, (None, 1_000, NOW), &mut AuthorityMemory::default(), &mut content) {
        Ok(definition) => Some(OwnedDefinition::copy(&definition)),
        Err(rejection) => {
            let reason = rejection.to_string();
            let names = ["timing.", "callback.", "reliability."];
            assert!(names.iter().any(|name| reason.starts_with(name)), "{reason}");
            assert!(reason.contains(": ") && reason.len() < 500, "{reason}");
            None
        }
    }
}

fn check(attributes: &Attributes<'_>) {
    let headers: Vec<_> = attributes.headers().collect();
    assert!(headers.len() <= HEADERS_MAX && attributes.headers.len() <= HEADER_BYTES_MAX);
    for (place, (name, value)) in headers.iter().enumerate() {
        assert_eq!(check_header(name, value), Ok(()));
        let is_same = |(other, _): &(&str, &str)| other.eq_ignore_ascii_case(name);
        assert!(!headers[..place].iter().any(is_same), "{name} comes twice");
    }
    // Nothing ends a line but the line ends of the headers themselves.
    let lines = attributes.headers.split("\r\n").count();
    assert_eq!(lines, headers.len() + 1);
    assert!(!attributes.headers.replace("\r\n", "").contains(|c: char| c != '\t' && c < ' '));
    let is_visible = |text: &str| text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    assert!(attributes.content_type.is_none_or(is_visible));
    assert!(attributes.window_ms.is_none_or(|ms| ms <= INTERVAL_MS_MAX));
    assert!(attributes.timeout_ms.is_none_or(|ms| (1..=TIMEOUT_MS_MAX).contains(&ms)));
    if let Some(policy) = attributes.retry {
        assert!((1..=ATTEMPTS_MAX).contains(&policy.max_attempts));
        let times = [policy.max_age_ms, policy.initial_ms, policy.max_ms];
        assert!(times.iter().all(|ms| *ms <= POLICY_MS_MAX));
        let pauses = (1..=ATTEMPTS_MAX).map(|failed| policy.pause_ms(failed));
        let mut former_ms = 1;
        for pause_ms in pauses {
            assert!((former_ms..=policy.max_ms).contains(&pause_ms), "{policy:?}");
            former_ms = pause_ms;
        }
    }
}

/// The document as GET shows it, and in another order.
fn shown(timer: &Definition<'_>, content: &Content<'_>, attributes: &Attributes<'_>) -> Value {
    let seconds = |ms: u64| json!(ms as f64 / 1_000.0);
    let text = |bytes| std::str::from_utf8(bytes).expect("text came as text");
    let mut http = json!({"uri": uri_of(timer.authority, content.target)});
    match attributes.is_binary {
        true => {
            use base64::Engine as _;
            let base64 = base64::engine::general_purpose::STANDARD.encode(content.opaque);
            http["opaque-base64"] = json!(base64);
        }
        false => http["opaque"] = json!(text(content.opaque)),
    }
    if attributes.method != CallbackMethod::Post {
        http["method"] = json!(attributes.method.name());
    }
    if let Some(content_type) = attributes.content_type {
        http["content-type"] = json!(content_type);
    }
    if !attributes.headers.is_empty() {
        let headers: Map<_, _> =
            attributes.headers().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        http["headers"] = Value::Object(headers);
    }
    let mut callback = json!({ "http": http });
    if let Some(retry) = &attributes.retry {
        callback["retry"] = policy(retry);
    }
    if let Some(ms) = attributes.timeout_ms {
        callback["timeout"] = seconds(ms);
    }
    if let Some(uri) = attributes.dead_letter_uri {
        callback["dead-letter"] = json!({ "uri": uri });
    }
    for (member, uri) in
        [("on-success", attributes.on_success), ("on-failure", attributes.on_failure)]
    {
        if let Some(uri) = uri {
            callback[member] = json!(uri);
        }
    }
    let mut timing = match attributes.at_ms {
        Some(ms) => {
            let at = jiff::Timestamp::from_millisecond(ms as i64).expect("a time");
            json!({"at": at.to_string()})
        }
        None => json!({
            "interval": seconds(timer.interval_ms),
            "repeat-for": seconds(timer.repeat_for_ms),
        }),
    };
    if let Some(ms) = attributes.window_ms {
        timing["window"] = seconds(ms);
    }
    let tags = content.tags();
    let tags = tags.as_slice().iter().map(|tag| json!({"type": tag.kind, "count": tag.count}));
    let mut document = json!({
        "timing": timing,
        "callback": callback,
        "statistics": {"tag-info": tags.collect::<Vec<_>>()},
    });
    if let Some(factor) = timer.factor {
        document["reliability"] = json!({ "replication-factor": factor });
    }
    document
}

fn policy(policy: &RetryPolicy) -> Value {
    json!({
        "max-attempts": policy.max_attempts,
        "max-age": policy.max_age_ms as f64 / 1_000.0,
        "initial": policy.initial_ms as f64 / 1_000.0,
        "max": policy.max_ms as f64 / 1_000.0,
        "multiplier": f64::from(policy.multiplier_milli) / 1_000.0,
        "jitter": f64::from(policy.jitter_milli) / 1_000.0,
    })
}

/// Encoded attributes, as another node sends them: what is accepted has one form and is within its
/// bounds.
pub fn attributes(data: &[u8]) -> bool {
    let Ok(attributes) = Attributes::read(data) else { return false };
    check_told(&attributes);
    let mut encoded = Vec::new();
    attributes.write(&mut encoded);
    let again = Attributes::read(&encoded).expect("what is written is read");
    assert_eq!(again, attributes);
    let is_kept = attributes.letter.is_some_and(|letter| !letter.is_on_its_way);
    assert_eq!(is_parked(data), is_kept, "a look tells the same as reading everything");
    true
}

/// As [`check`], without what only documents of clients promise.
fn check_told(attributes: &Attributes<'_>) {
    assert!(attributes.headers.len() <= HEADER_BYTES_MAX);
    assert!(attributes.headers().count() <= HEADERS_MAX);
    assert!(attributes.headers().all(|(name, value)| check_kept_header(name, value).is_ok()));
    let letter = attributes.letter;
    assert!(letter.is_none_or(|letter| letter.answer.len() <= LETTER_ANSWER_BYTES_MAX));
    assert!(letter.and_then(|letter| letter.status).is_none_or(|it| (100..1_000).contains(&it)));
    for uri in [attributes.dead_letter_uri, attributes.on_success, attributes.on_failure] {
        assert!(uri.is_none_or(|uri| parse_told_uri(uri).is_ok() && uri.len() <= 2_048));
    }
    assert!(attributes.retry.is_none_or(|policy| policy.pause_ms(ATTEMPTS_MAX) <= policy.max_ms));
}

/// `Retry-After` of an answer: only 429 and 503 ask for a pause.
pub fn retry_after(data: &[u8]) -> bool {
    let value = data.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).copied();
    let value: Vec<u8> = value.collect();
    let read = |status: &str| {
        let head = [status.as_bytes(), b"Retry-After: ", &value, b"\r\n\r\n"].concat();
        parse_answer_head(&head, 4_096).ok().flatten().map(|head| head.retry_after)
    };
    let asked = read("HTTP/1.1 503 x\r\n").flatten();
    assert_eq!(asked, read("HTTP/1.1 429 x\r\n").flatten());
    assert_eq!(read("HTTP/1.1 500 x\r\n").flatten(), None);
    assert_eq!(read("HTTP/1.1 302 x\r\n").flatten(), None);
    if let Some(RetryAfter::Seconds(seconds)) = asked {
        let text = String::from_utf8_lossy(&value);
        let told: u128 = text.trim().parse().unwrap_or(u128::MAX);
        assert_eq!(u128::from(seconds), told.min(u32::MAX.into()));
    }
    asked.is_some()
}
