//! What must hold for every parser on every input: one function per parser. `main.rs` calls them
//! with mutated seeds on every test run, `libfuzzer/` with inputs that coverage guides.
//!
//! Each function panics when a property is broken and returns whether the parser accepted the
//! input, so that the caller can see that it does not fuzz refusals alone. None keeps state from
//! one input to the next.

use std::net::IpAddr;

use chronos::base::ids::TimerId;
use chronos::base::limits::{HEADERS_MAX, INTERVAL_MS_MAX, TAG_BYTES_MAX, TAGS_PER_TIMER_MAX};
use chronos::base::time::WallMs;
use chronos::control::config::error::ConfigError;
use chronos::control::config::ini::{IniEntry, parse_ini};
use chronos::control::config::load::{Sources, load, parse_config};
use chronos::control::config::settings::Config;
use chronos::control::config::text::print_effective;
use chronos::timer::admission::{Rejection, admit};
use chronos::timer::definition::{Content, OwnedDefinition};
use chronos::wire::accept::accepts;
use chronos::wire::answer_head::parse_answer_head;
use chronos::wire::callback_uri::{
    AuthorityMemory, Host, host_and_port, is_secure, parse_callback_uri, uri_of,
};
use chronos::wire::chunked::{ChunkError, ChunkedDecoder};
use chronos::wire::conditions::{
    Conditions, KEY_BYTES_MAX, Precondition, read_conditions, write_tag,
};
use chronos::wire::ndjson::{Line, LineBuffer};
use chronos::wire::request_head::{
    Framing, HeadError, HeadProgress, RequestHead, parse_request_head,
};
use chronos::wire::timer_json::{JsonScratch, TimerDocument, parse_timer};
use chronos::wire::timer_name::{NAME_BYTES_MAX, before_action, name_in};
use chronos::wire::timer_path::{PublicId, TimerPath, parse_path, write_public_id};
use serde_json::{Value, json};

/// Small enough that mutated heads exceed it.
const HEADER_BYTES_MAX: usize = 512;
/// Most prefixes of one input that are tried: all of a short input.
const CUTS_MAX: usize = 24;
/// Small enough that mutated documents exceed it.
const OPAQUE_BYTES_MAX: u32 = 64;

/// Heads of requests: what is accepted is accepted at its last byte and not before, whatever
/// follows; and a second, naive reading of it agrees (request smuggling lives on two readings that
/// differ).
pub fn http_head(data: &[u8]) -> bool {
    fn parse(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, HeadError> {
        parse_request_head(bytes, HEADER_BYTES_MAX)
    }
    let whole = parse(data);
    for cut in cuts(data) {
        match (parse(&data[..cut]), whole) {
            (Ok(Some(head)), whole) => assert_eq!(Ok(Some(head)), whole, "accepted at {cut}"),
            // A method of more than 32 bytes is refused while its end has not come.
            (Err(error), Ok(Some(_))) => assert_eq!(error.status, 400, "refused at {cut}"),
            (Ok(None), _) | (Err(_), Ok(None) | Err(_)) => {}
        }
    }
    let head = match whole {
        Ok(Some(head)) => head,
        Ok(None) => {
            assert!(data.len() < HEADER_BYTES_MAX, "a full head is accepted or refused");
            return false;
        }
        Err(error) => {
            assert!(matches!(error.status, 400 | 414 | 417 | 431 | 501 | 505), "{error}");
            assert!(!error.reason.is_empty());
            return false;
        }
    };
    assert!(head.head_bytes <= data.len() && head.head_bytes <= HEADER_BYTES_MAX);
    let bytes = &data[..head.head_bytes];
    assert_eq!(parse(bytes), whole, "the head alone is the same head");
    assert_eq!(parse(&[bytes, b"\r\nGET"].concat()), whole, "what follows is not looked at");
    assert!(head.path.starts_with('/') || head.path == "*", "path {:?}", head.path);
    assert!(!head.path.contains(['?', '#', ' ']));
    assert!(!(head.is_http10 && (head.expects_continue || head.framing == Framing::Chunked)));
    reads_the_same_naively(bytes, &head);
    let mut progress = HeadProgress::default();
    let trickled = (1..=bytes.len())
        .filter(|&arrived| progress.is_worth_parsing(&bytes[..arrived], HEADER_BYTES_MAX))
        .find_map(|arrived| parse(&bytes[..arrived]).transpose());
    if !matches!(trickled, Some(Err(_))) {
        assert_eq!(trickled, Some(Ok(head)), "a head that trickles in is parsed when complete");
    }
    true
}

/// Reads an accepted head line by line, without the parser's library.
fn reads_the_same_naively(bytes: &[u8], head: &RequestHead<'_>) {
    let feeds = bytes.iter().filter(|&&byte| byte == b'\n').count();
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n").skip_while(|line| line.is_empty());
    assert_eq!(text.split("\r\n").count(), feeds + 1, "every LF follows a CR");
    assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']), "a stray control byte");
    let is_http10 = lines.next().is_some_and(|line| line.ends_with("HTTP/1.0"));
    assert_eq!(is_http10, head.is_http10);
    let fields: Vec<(String, &str)> = lines
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_once(':').expect("a header line has a colon"))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])))
        .collect();
    assert!(fields.len() <= HEADERS_MAX);
    assert!(fields.iter().all(|(name, _)| !name.is_empty() && !name.contains([' ', '\t'])));
    let values = |wanted: &str| -> Vec<&str> {
        fields.iter().filter(|(name, _)| name == wanted).map(|&(_, value)| value).collect()
    };
    let hosts = values("host").len();
    assert!(hosts == 1 || (hosts == 0 && is_http10), "{hosts} hosts");
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    match head.framing {
        Framing::Chunked => {
            assert!(lengths.is_empty() && codings.len() == 1);
            assert!(codings[0].eq_ignore_ascii_case("chunked"));
        }
        Framing::Length(length) => {
            assert!(codings.is_empty() && lengths.len() <= 1);
            let told = lengths.first().map_or("0", |text| text);
            assert!(told.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(told.parse(), Ok(length));
        }
    }
}

/// Heads of answers: the same about prefixes, and a body is never expected where there is none.
pub fn callback_answer(data: &[u8]) -> bool {
    let parse = |bytes| parse_answer_head(bytes, HEADER_BYTES_MAX);
    let whole = parse(data);
    for cut in cuts(data) {
        match (parse(&data[..cut]), whole) {
            (Ok(Some(head)), whole) => assert_eq!(Ok(Some(head)), whole, "accepted at {cut}"),
            (Err(error), Ok(Some(_))) => panic!("refused at {cut}, accepted later: {error}"),
            (Ok(None), _) | (Err(_), Ok(None) | Err(_)) => {}
        }
    }
    let Ok(Some(head)) = whole else {
        assert!(whole.is_err() || data.len() < HEADER_BYTES_MAX, "a full head is decided");
        return false;
    };
    assert!(head.head_bytes <= data.len() && head.head_bytes <= HEADER_BYTES_MAX);
    let bytes = &data[..head.head_bytes];
    assert!(bytes.ends_with(b"\r\n\r\n"));
    assert_eq!(parse(&[bytes, b"\r\n \0"].concat()), whole, "what follows is not looked at");
    assert!((100..=999).contains(&head.status));
    assert!(head.framing.is_some() || !head.keep_alive, "the end of the body is known");
    if head.status < 200 || head.status == 204 || head.status == 304 {
        assert_eq!(head.framing, Some(Framing::Length(0)));
    }
    true
}

/// Chunked bodies: the result depends neither on how the input is cut nor on what follows it, the
/// limit holds, and the body comes back from an encoding of our own. The first byte chooses the
/// limit, the second the cuts.
pub fn chunked_body(data: &[u8]) -> bool {
    let [limit, pieces, input @ ..] = data else { return false };
    let (limit, pieces) = (u64::from(*limit) * 4, usize::from(*pieces));
    let whole = dechunk(input, input.len().max(1), limit);
    for piece_bytes in [1, 2, 3, 1 + pieces % 16, 1 + pieces] {
        assert_eq!(dechunk(input, piece_bytes, limit), whole, "in pieces of {piece_bytes}");
    }
    let Ok((body, used, is_complete)) = whole else { return false };
    assert!(used <= input.len() && (is_complete || used == input.len()));
    assert!(body.len() as u64 <= limit && body.len() <= used, "no more comes out than went in");
    if !is_complete {
        return false;
    }
    assert!(input[..used].ends_with(b"\r\n"));
    let followed = [&input[..used], b"5\r\nx"].concat();
    assert_eq!(dechunk(&followed, 7, limit), Ok((body.clone(), used, true)));
    let mut encoded = Vec::new();
    for run in body.chunks(1 + pieces % 32) {
        encoded.extend_from_slice(format!("{:x}\r\n", run.len()).as_bytes());
        encoded.extend_from_slice(run);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(dechunk(&encoded, 5, limit), Ok((body, encoded.len(), true)));
    true
}

/// Bodies of lines: however they are cut into pieces, they hold the lines that a naive reading of
/// the whole finds, and little is held.
pub fn bulk_lines(data: &[u8]) -> bool {
    let [limit, pieces, body @ ..] = data else { return false };
    let (limit, pieces) = (usize::from(*limit % 64), usize::from(*pieces));
    let bare = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
    let is_blank = |line: &[u8]| line.iter().all(u8::is_ascii_whitespace);
    let all = body.split(|&byte| byte == b'\n').map(bare).zip(1..);
    let naive: Vec<(u64, Option<Vec<u8>>)> = all
        .filter(|(line, _)| line.len() > limit || !is_blank(line))
        .map(|(line, number)| (number, (line.len() <= limit).then_some(line)))
        .collect();
    for piece_bytes in [1, 2, 3, 1 + pieces % 16, 1 + pieces, body.len() + 1] {
        let (mut buffer, mut found) = (LineBuffer::new(limit), Vec::new());
        let mut take = |buffer: &mut LineBuffer| {
            while let Some((number, line)) = buffer.next_line() {
                let text = match line {
                    Line::Text(text) => Some(text.to_vec()),
                    Line::TooLong => None,
                    Line::Blank => continue,
                };
                found.push((number, text));
            }
            assert!(!buffer.has_more());
        };
        for piece in body.chunks(piece_bytes) {
            buffer.extend(piece);
            take(&mut buffer);
            let held = buffer.held_bytes();
            assert!(held <= 4 * (limit + piece_bytes.min(body.len()) + 8), "bounded");
        }
        buffer.end();
        take(&mut buffer);
        assert_eq!(found, naive, "in pieces of {piece_bytes}");
    }
    naive.iter().any(|(_, text)| text.is_some())
}

/// Values of `Accept`: a naive reading of values without quotes agrees, and further items of the
/// list take nothing back.
pub fn accept(data: &[u8]) -> bool {
    const PROBLEM: &[u8] = b"application/problem+json";
    let is_wanted = accepts(data, PROBLEM);
    let list = |more: &[u8]| [data, b",", more].concat();
    if is_wanted {
        assert!(accepts(&list(b"*/*;q=0,\"x"), PROBLEM));
    }
    if data.contains(&b'"') {
        return is_wanted;
    }
    assert!(accepts(&list(PROBLEM), PROBLEM));
    let text = String::from_utf8_lossy(data).to_ascii_lowercase();
    let naive = text.split(',').any(|item| {
        let mut parts =
            item.split(';').map(|part| part.trim_matches([' ', '\t', '\n', '\r', '\x0c']));
        let is_named = parts.next() == Some("application/problem+json");
        is_named
            && parts.all(|part| {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                let value = value.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
                let is_form = value.len() <= 5
                    && value.bytes().all(|b| b.is_ascii_digit() || b == b'.')
                    && value.get(1..2).is_none_or(|dot| dot == ".")
                    && value.matches('.').count() < 2;
                let weight = value.parse::<f64>().unwrap_or(-1.0);
                let name = name.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
                name != "q" || is_form && !value.starts_with('.') && weight > 0.0 && weight <= 1.0
            })
    });
    assert_eq!(is_wanted, naive);
    is_wanted
}

/// The body decoded from `input` given in pieces, the bytes used, and whether it is complete.
fn dechunk(
    input: &[u8],
    piece_bytes: usize,
    limit: u64,
) -> Result<(Vec<u8>, usize, bool), ChunkError> {
    let mut decoder = ChunkedDecoder::new(limit);
    let (mut body, mut used, mut is_complete) = (Vec::new(), 0, false);
    for piece in input.chunks(piece_bytes) {
        let (bytes, complete) = decoder.decode(piece, |run| body.extend_from_slice(run))?;
        assert!(complete || bytes == piece.len(), "all is used unless the body ended");
        used += bytes;
        is_complete = complete;
    }
    Ok((body, used, is_complete))
}

/// Timer documents: values in range, the same ones from a scratch used before and from the document
/// written anew, and acceptance as a general JSON parser and the list of members in
/// docs/compat/timer-service.md §5 say. Admission holds its promises.
pub fn timer_json(data: &[u8]) -> bool {
    let mut scratch = JsonScratch::default();
    let mut body = data.to_vec();
    let parsed = parse_timer(&mut body, &mut scratch).map(|document| rewritten(&document));
    let mut again = data.to_vec();
    let repeated = parse_timer(&mut again, &mut scratch).map(|document| rewritten(&document));
    assert_eq!(parsed, repeated, "a used scratch changes nothing");
    // Without the numbers beyond the reach of either and without members that come twice, both
    // parsers must agree.
    if let Ok(value) = serde_json::from_slice::<Value>(data)
        && !has_options(&value)
    {
        let mut canonical = value.to_string().into_bytes();
        let accepted = parse_timer(&mut canonical, &mut scratch).map(|doc| rewritten(&doc));
        assert_eq!(accepted.is_ok(), is_timer(&value), "{value}: {accepted:?}");
        if let (Ok(canonical), Ok(parsed)) = (accepted, &parsed) {
            assert!(is_close(&canonical, parsed), "{canonical} is not {parsed}");
        }
    }
    match parse_timer(&mut data.to_vec(), &mut scratch) {
        // Documents with options have a target of their own.
        Ok(document) if document.options.is_some() => return true,
        Ok(document) => check_document(&document),
        Err(error) => {
            assert!(error.0.contains(": ") && error.0.len() < 200, "{error}");
            return false;
        }
    }
    let first = parsed.expect("accepted just now");
    let mut written = first.to_string().into_bytes();
    let second = parse_timer(&mut written, &mut scratch).map(|document| rewritten(&document));
    assert_eq!(second.as_ref(), Ok(&first), "written anew, it reads the same to the last bit");
    true
}

/// The document as another client would write it.
fn rewritten(document: &TimerDocument<'_>) -> Value {
    let tag_info: Vec<Value> = (document.tags.as_slice().iter())
        .map(|tag| json!({ "type": tag.kind, "count": tag.count }))
        .collect();
    let mut value = json!({
        "timing": { "interval": document.interval_s },
        "callback": { "http": { "uri": document.uri, "opaque": document.opaque } },
        "statistics": { "tag-info": tag_info },
    });
    if let Some(repeat_for_s) = document.repeat_for_s {
        value["timing"]["repeat-for"] = json!(repeat_for_s);
    }
    if let Some(factor) = document.replication_factor {
        value["reliability"] = json!({ "replication-factor": factor });
    }
    value
}

/// Equal, but for the last bits of a time: serde_json reads numbers a little less exactly than we
/// do.
fn is_close(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64(), one, other) {
        (Some(one), Some(other), ..) => (one - other).abs() <= one.abs() * 4.0 * f64::EPSILON,
        (.., Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|other| is_close(value, other)))
        }
        _ => one == other,
    }
}

/// Whether a JSON value has members that only this service knows.
fn has_options(value: &Value) -> bool {
    let (timing, callback) = (&value["timing"], &value["callback"]);
    let has = |parent: &Value, names: &[&str]| names.iter().any(|name| parent.get(name).is_some());
    timing["interval"].is_string()
        || timing["repeat-for"].is_string()
        || has(timing, &["at", "window"])
        || has(callback, &["retry", "timeout"])
        || has(&callback["http"], &["method", "content-type", "headers", "opaque-base64"])
}

/// Whether docs/compat/timer-service.md §5 makes a timer of a JSON value.
fn is_timer(value: &Value) -> bool {
    let optional = |parent: &Value, name: &str, is_right: fn(&Value) -> bool| {
        parent.get(name).is_none_or(is_right)
    };
    let (timing, callback) = (&value["timing"], &value["callback"]);
    let is_tag = |tag: &Value| {
        tag["type"].as_str().is_some_and(|kind| (1..=TAG_BYTES_MAX).contains(&kind.len()))
            && tag.get("count").is_none_or(|count| {
                count.as_u64().is_some_and(|count| (1..=u64::from(u32::MAX)).contains(&count))
            })
    };
    let has_tags = |parent: &Value| match parent.get("tag-info") {
        None => true,
        Some(tags) => tags
            .as_array()
            .is_some_and(|tags| tags.len() <= TAGS_PER_TIMER_MAX && tags.iter().all(is_tag)),
    };
    timing["interval"].is_number()
        && optional(timing, "repeat-for", Value::is_number)
        && callback.as_object().is_some_and(|mechanisms| mechanisms.len() == 1)
        && callback["http"]["uri"].as_str().is_some_and(|uri| !uri.is_empty())
        && callback["http"]["opaque"].is_string()
        && value.get("reliability").is_none_or(|reliability| {
            reliability.is_object()
                && optional(reliability, "replication-factor", |factor| {
                    factor.is_i64() || factor.is_u64()
                })
        })
        && value
            .get("statistics")
            .is_none_or(|statistics| statistics.is_object() && has_tags(statistics))
}

fn check_document(document: &TimerDocument<'_>) {
    assert!(document.interval_s.is_finite());
    assert!(document.repeat_for_s.is_none_or(f64::is_finite));
    assert!(!document.uri.is_empty());
    let tags = document.tags.as_slice();
    assert!(tags.iter().all(|tag| tag.count >= 1 && (1..=64).contains(&tag.kind.len())));
    let (mut content, mut authorities) = (vec![0xee; 3], AuthorityMemory::default());
    for factor_in_path in [None, Some(2)] {
        let (opaque, uri) = (document.opaque, parse_callback_uri(document.uri));
        let limits = (factor_in_path, OPAQUE_BYTES_MAX, WallMs(1_800_000_000_000));
        match admit(document, limits, &mut authorities, &mut content) {
            Ok(definition) => {
                let exact_ms = document.interval_s * 1000.0;
                let slack_ms = exact_ms * 4.0 * f64::EPSILON;
                let interval_ms = definition.interval_ms as f64;
                assert!(definition.interval_ms.max(definition.repeat_for_ms) <= INTERVAL_MS_MAX);
                assert!(interval_ms >= exact_ms - slack_ms, "never early");
                assert!(interval_ms - 1.0 < exact_ms, "late by less than a tick");
                assert!(definition.factor.is_none_or(|factor| (1..=16).contains(&factor)));
                assert!(definition.interval_ms > 0 || definition.repeat_for_ms == 0);
                let uri = uri.expect("an admitted URI parses");
                let content = Content::decode(definition.content);
                assert_eq!(definition.authority, uri.authority);
                assert_eq!(content.target, uri.target.as_bytes());
                assert_eq!(content.opaque, opaque.as_bytes());
                assert_eq!(content.tags().as_slice(), tags);
                assert_eq!(OwnedDefinition::copy(&definition).borrow(), definition);
            }
            Err(rejection) => {
                match rejection {
                    Rejection::Uri(_) => assert!(uri.is_err()),
                    Rejection::OpaqueTooLong { max, got } => {
                        assert!(uri.is_ok() && got == opaque.len() && got > max as usize);
                    }
                    _ => {}
                }
                assert!(rejection.to_string().contains(": "), "{rejection}");
            }
        }
    }
}

/// Paths: no text makes the parser fail, an id with factor and filter comes back from its text, in
/// upper case and with every byte escaped, too. The first 17 bytes also make an id to be written.
pub fn timer_id(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let accepted = match parse_path(&text) {
        TimerPath::Timer(public) | TimerPath::DeadLetter(public) | TimerPath::Replay(public) => {
            if let PublicId { id, factor: Some(factor), filter: Some(filter) } = public {
                assert_comes_back(id, factor, filter);
            }
            assert!(public.factor.is_none_or(|factor| (1..=16).contains(&factor)));
            assert!(public.factor.is_some() || public.filter.is_some());
            assert_eq!(
                parse_path(&text.replace("%2D", "-").replace("%2d", "-")),
                parse_path(&text)
            );
            true
        }
        TimerPath::Named => {
            timer_name(data);
            true
        }
        TimerPath::Action(public, action) => {
            assert!(public.factor.is_some() || public.filter.is_some());
            assert!(text.ends_with(action.name()) || text.contains('%'));
            true
        }
        TimerPath::NamedAction(action) => {
            assert!(text.ends_with(action.name()) || text.contains('%'));
            timer_name(before_action(&text).as_bytes());
            true
        }
        TimerPath::Collection
        | TimerPath::Bulk
        | TimerPath::References
        | TimerPath::DeadLetters
        | TimerPath::Replays
        | TimerPath::Count
        | TimerPath::Ping
        | TimerPath::Timestamps => true,
        TimerPath::Jobs => true,
        TimerPath::Job(id) => id != 0,
        // No path alone says so.
        TimerPath::Compare(_) | TimerPath::Unknown => false,
    };
    if let Some((bytes, rest)) = data.split_first_chunk::<16>() {
        let value = u128::from_le_bytes(*bytes);
        let factor = 1 + rest.first().map_or(0, |byte| byte % 16);
        assert_comes_back(TimerId(value as u64), factor, (value >> 64) as u64);
    }
    accepted
}

/// Names in paths, after `/timers/by-name/` unless the whole path is there: what is accepted is 1
/// to 256 bytes, and comes back when every byte of it is escaped.
pub fn timer_name(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let path = match parse_path(&text) {
        TimerPath::Named => text.into_owned(),
        _ => format!("/timers/by-name/{text}"),
    };
    match parse_path(&path) {
        TimerPath::Named => {}
        TimerPath::NamedAction(_) => return name_in(before_action(&path)).is_ok(),
        other => panic!("{path}: {other:?}"),
    }
    let Ok(name) = name_in(&path) else { return false };
    assert!((1..=NAME_BYTES_MAX).contains(&name.len()));
    let escaped: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(name_in(&format!("/timers/by-name/{escaped}")).as_deref(), Ok(&*name));
    true
}

/// Headers on which writes depend, in any bytes: what is accepted says one thing, and a version
/// comes back from its tag.
pub fn conditions(data: &[u8]) -> bool {
    let Ok(Conditions { precondition, key }) = read_conditions(data) else { return false };
    assert!(precondition.is_none() || key.is_none());
    assert!(key.is_none_or(|key| (1..=KEY_BYTES_MAX).contains(&key.len())));
    if let Some(Precondition::Version(version)) = precondition {
        let mut head = b"If-Match: ".to_vec();
        write_tag(version, &mut head);
        assert_eq!(read_conditions(&head), Ok(Conditions { precondition, key }));
    }
    true
}

fn assert_comes_back(id: TimerId, factor: u8, filter: u64) {
    let mut text = Vec::new();
    write_public_id(id, factor, filter, &mut text);
    assert_eq!(text.len(), if factor < 10 { 35 } else { 36 });
    let text = String::from_utf8(text).expect("an id is ASCII");
    let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let public = PublicId { id, factor: Some(factor), filter: Some(filter) };
    for form in [&text, &text.to_uppercase(), &escaped] {
        assert_eq!(parse_path(&format!("/timers/{form}")), TimerPath::Timer(public), "{form}");
    }
}

/// Callback URIs: authority and target are pieces of what was written and safe to copy into a
/// request head.
pub fn callback_uri(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let uri = match parse_callback_uri(&text) {
        Ok(uri) => uri,
        Err(error) => {
            assert!(!error.0.is_empty());
            return false;
        }
    };
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "no byte that could end a line");
    let host = host_and_port(uri.authority);
    let rest = if is_secure(&text) { &text[..] } else { &text["http://".len()..] };
    let local = rest.strip_prefix(uri.authority).expect("the authority is as written");
    let fragment = local.strip_prefix(uri.target).expect("the target is as written");
    assert!(fragment.is_empty() || fragment.starts_with('#'));
    assert!(uri.target.is_empty() || uri.target.starts_with(['/', '?']), "{:?}", uri.target);
    assert!(!host.contains(['@', '/', '?', '#']) && !uri.target.contains('#'));
    assert!(uri.port != 0);
    match uri.host {
        Host::Name(name) => {
            assert!((1..=253).contains(&name.len()) && host.starts_with(name));
            assert!(name.parse::<IpAddr>().is_err(), "an address is not resolved by name");
        }
        Host::Address(address) => assert_eq!(host.starts_with('['), address.is_ipv6()),
    }
    let again = uri_of(uri.authority, uri.target.as_bytes());
    assert_eq!(parse_callback_uri(&again), Ok(uri));
    true
}

/// Configuration files: an error names the file or the keys and is bounded and printable; what is
/// accepted means the same when it is printed and read again.
pub fn config(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    match parse_config(&text, "fuzz.toml") {
        Ok(config) => {
            let printed = print_effective(&config);
            let again = parse_config(&printed, "printed.toml")
                .unwrap_or_else(|error| panic!("{printed}\nis refused: {error}"));
            assert_same_settings(&config, &again);
            true
        }
        Err(error) => {
            assert_tells(&error, "fuzz.toml");
            false
        }
    }
}

/// INI files of an existing deployment: what is read means the same when it is written again; what
/// is accepted means the same as the TOML that is printed for it; errors and warnings are bounded
/// and name a line.
pub fn ini(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data).into_owned();
    if let Ok(entries) = parse_ini(&text) {
        for entry in &entries {
            let again = match entry.section {
                "" => format!("{} = {}", entry.name, entry.value),
                section => format!("[{section}]\n{} = {}", entry.name, entry.value),
            };
            let again = parse_ini(&again).expect("as written by us");
            let same = |e: &IniEntry<'_>| {
                (e.section, e.name, e.value) == (entry.section, entry.name, entry.value)
            };
            assert!(again.len() == 1 && same(&again[0]), "{entry:?} is read as {again:?}");
            assert!((1..=1 + text.matches('\n').count()).contains(&entry.line), "{entry:?}");
        }
        assert!(entries.is_sorted_by(|one, other| one.line < other.line));
    }
    let ini = Some(vec![("fuzz.conf".into(), text)]);
    match load(&Sources { ini, ..Sources::default() }) {
        Ok(loaded) => {
            assert!(loaded.warnings.len() <= 21, "{} warnings", loaded.warnings.len());
            for told in &loaded.warnings {
                assert!(told.len() < 1_000 && !told.contains(char::is_control), "{told:?}");
            }
            let printed = print_effective(&loaded.config);
            // What asks nobody is open in place of the original only.
            let printed = printed.replace("insecure_open = false", "insecure_open = true");
            let again = parse_config(&printed, "printed.toml")
                .unwrap_or_else(|error| panic!("{printed}\nis refused: {error}"));
            assert_same_settings(&loaded.config, &again);
            true
        }
        Err(error) => {
            assert_tells(&error, "fuzz.conf");
            false
        }
    }
}

fn assert_same_settings(one: &Config, other: &Config) {
    assert_eq!(one.node, other.node);
    assert_eq!(one.admin, other.admin);
    assert_eq!(one.log, other.log);
}

fn assert_tells(error: &ConfigError, file: &str) {
    assert!((1..=20).contains(&error.problems.len()), "{} problems", error.problems.len());
    for problem in &error.problems {
        let told = problem.to_string();
        let names = told.contains(file) || (problem.code() == "conflict" && told.contains('['));
        assert!(names, "{told:?} names neither a line nor a key");
        assert!(told.len() < 1_000 && !told.contains(char::is_control), "{told:?}");
    }
}

/// Where an input is cut: everywhere in a short one, at evenly spread places and around the end in
/// a longer one.
fn cuts(data: &[u8]) -> impl Iterator<Item = usize> {
    let len = data.len();
    let step = (len / CUTS_MAX).max(1);
    (0..len).step_by(step).chain(len.saturating_sub(4)..len)
}
