//! One function per parser that reads bytes from outside. Each takes any bytes and checks what must
//! hold for all of them, beyond not to panic. Two drivers run them: `cargo test --test fuzz`
//! (main.rs, deterministic) and cargo-fuzz (libfuzzer/, guided by coverage). A target of another
//! room goes here too, and into [`ALL`].

use chronos::base::limits::{TAG_BYTES_MAX, URI_BYTES_MAX};
use chronos::wire::answer_head::{AnswerHead, parse_answer_head};
use chronos::wire::callback_uri::{Host, parse_callback_uri};
use chronos::wire::chunked::{ChunkError, ChunkedDecoder};
use chronos::wire::request_head::{Framing, HeadProgress, parse_request_head};
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use chronos::wire::timer_path::{PublicId, TimerPath, parse_path, write_public_id};

/// A target and the folder of its seeds.
pub struct Target {
    /// Name of the cargo-fuzz target and of the folder under `seeds/`.
    pub name: &'static str,
    /// Panics when a property does not hold.
    pub check: fn(&[u8]),
}

/// Every target. `config` joins when there is a parser for it.
pub const ALL: &[Target] = &[
    Target { name: "http_head", check: http_head },
    Target { name: "chunked_body", check: chunked_body },
    Target { name: "timer_json", check: timer_json },
    Target { name: "timer_id", check: timer_id },
    Target { name: "callback_uri", check: callback_uri },
    Target { name: "callback_answer", check: callback_answer },
];

/// Small, so that mutated inputs reach it.
const HEADER_BYTES_MAX: usize = 512;

/// A head that is accepted ends with an empty line, says the same with anything behind it, and no
/// shorter piece of it is a head. A head that is refused stays refused when more comes. Asking
/// [`HeadProgress`] first changes nothing.
pub fn http_head(data: &[u8]) {
    let result = parse_request_head(data, HEADER_BYTES_MAX);
    check_trickle(data, |bytes| match parse_request_head(bytes, HEADER_BYTES_MAX) {
        Ok(None) => None,
        Ok(Some(head)) => Some(Ok(head.head_bytes)),
        Err(_) => Some(Err(())),
    });
    match result {
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX, "at the limit there is an answer"),
        Ok(Some(head)) => {
            let bytes = &data[..head.head_bytes];
            assert!(bytes.ends_with(b"\r\n\r\n") && bytes.len() <= HEADER_BYTES_MAX);
            assert!(head.path == "*" || head.path.starts_with('/'), "{:?}", head.path);
            assert!(!head.path.contains(['?', '#', ' ', '\r', '\n']));
            assert!(!head.is_http10 || !head.expects_continue && head.framing != Framing::Chunked);
            assert_eq!(parse_request_head(bytes, HEADER_BYTES_MAX), Ok(Some(head)));
            let shorter = &bytes[..bytes.len() - 1];
            assert_eq!(parse_request_head(shorter, HEADER_BYTES_MAX), Ok(None));
            check_framing_against_lines(bytes, head.framing);
        }
        Err(error) => {
            let known = [400, 414, 417, 431, 501, 505];
            assert!(known.contains(&error.status), "{error}");
            let mut longer = data.to_vec();
            longer.extend_from_slice(b"\r\n\r\n");
            assert!(parse_request_head(&longer, HEADER_BYTES_MAX).is_err(), "refused for good");
        }
    }
}

/// A second reading of the length, by lines alone: what another server between us and the client
/// could do.
fn check_framing_against_lines(head: &[u8], framing: Framing) {
    let (mut lengths, mut codings) = (Vec::new(), 0);
    for line in head.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!line.contains(&b'\r'), "a bare CR came through");
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let value = String::from_utf8_lossy(parts.next().unwrap_or_default()).trim().to_owned();
        match &name[..] {
            b"content-length" => lengths.push(value.parse::<u64>().expect("one number")),
            b"transfer-encoding" => codings += 1,
            _ => {}
        }
    }
    match framing {
        Framing::Chunked => assert!(codings == 1 && lengths.is_empty()),
        Framing::Length(length) => {
            assert!(codings == 0 && lengths.len() <= 1);
            assert_eq!(lengths.first().copied().unwrap_or(0), length);
        }
    }
}

/// Gives `data` byte by byte; a parse is only tried when [`HeadProgress`] says so. The verdict must
/// be that of a parser that is asked after every byte, and must come no later than at the end of
/// the head.
fn check_trickle(data: &[u8], parse: impl Fn(&[u8]) -> Option<Result<usize, ()>>) {
    let data = &data[..data.len().min(HEADER_BYTES_MAX)];
    let Some(end) = (1..=data.len()).find(|&end| parse(&data[..end]).is_some()) else { return };
    let verdict = parse(&data[..end]);
    let mut progress = HeadProgress::default();
    let tried = (1..=data.len()).find_map(|end| {
        let worth = progress.is_worth_parsing(&data[..end], HEADER_BYTES_MAX);
        let said = parse(&data[..end]).filter(|_| worth)?;
        Some((end, said))
    });
    match (verdict, tried) {
        (Some(Ok(bytes)), Some((tried_end, said))) => {
            assert_eq!((tried_end, said), (end, Ok(bytes)), "a head must be seen when it is whole");
        }
        (Some(Ok(_)), None) => panic!("a whole head was never parsed"),
        // An error may be noticed later, when the bytes have doubled, but as an error.
        (_, Some((tried_end, said))) => assert!(said.is_err() && tried_end <= 2 * end),
        (_, None) => assert!(data.len() < 2 * end),
    }
}

/// The same verdict and the same body however the input is cut; no more body than the limit or the
/// input; a longer limit changes nothing but [`ChunkError::TooLong`].
pub fn chunked_body(data: &[u8]) {
    const BODY_BYTES_MAX: u64 = 64;
    let whole = decode(data, data.len().max(1), BODY_BYTES_MAX);
    for piece_bytes in [1, 2, 3, 7] {
        assert_eq!(decode(data, piece_bytes, BODY_BYTES_MAX), whole, "in pieces of {piece_bytes}");
    }
    let unlimited = decode(data, data.len().max(1), u64::MAX);
    match &whole {
        Err(ChunkError::TooLong) => {}
        _ => assert_eq!(unlimited, whole),
    }
    if let Ok((body, used, is_complete)) = whole {
        assert!(body.len() as u64 <= BODY_BYTES_MAX && body.len() <= used && used <= data.len());
        assert!(is_complete || used == data.len());
        assert!(!is_complete || data[..used].ends_with(b"\r\n"));
        if is_complete {
            let mut text = encode(&body);
            let used = text.len();
            text.extend_from_slice(data);
            assert_eq!(decode(&text, text.len(), BODY_BYTES_MAX), Ok((body, used, true)));
        }
    }
}

fn encode(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in body.chunks(10) {
        text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

/// Body, bytes used, and whether it is complete.
fn decode(
    data: &[u8],
    piece_bytes: usize,
    body_bytes_max: u64,
) -> Result<(Vec<u8>, usize, bool), ChunkError> {
    let mut decoder = ChunkedDecoder::new(body_bytes_max);
    let (mut body, mut used) = (Vec::new(), 0);
    for piece in data.chunks(piece_bytes) {
        let (bytes, is_complete) = decoder.decode(piece, |run| {
            assert!(!run.is_empty(), "no empty runs");
            body.extend_from_slice(run);
        })?;
        used += bytes;
        if is_complete {
            return Ok((body, used, true));
        }
        assert_eq!(bytes, piece.len());
    }
    Ok((body, used, false))
}

/// What is accepted is JSON to another parser too, with the same strings and numbers. What is
/// refused is told in one short line. The scratch of earlier documents changes nothing.
pub fn timer_json(data: &[u8]) {
    thread_local! {
        static USED: std::cell::RefCell<JsonScratch> = std::cell::RefCell::default();
    }
    let mut body = data.to_vec();
    let mut fresh = JsonScratch::default();
    let result = parse_timer(&mut body, &mut fresh);
    USED.with_borrow_mut(|used| {
        let mut body = data.to_vec();
        let again = parse_timer(&mut body, used);
        assert_eq!(format!("{again:?}"), format!("{result:?}"), "the scratch leaks");
        assert!(used.tape_bytes() <= 512 << 10);
    });
    let document = match result {
        Ok(document) => document,
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.len() < 200 && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{text}"
            );
            return;
        }
    };
    for text in [document.uri, document.opaque] {
        assert!(std::str::from_utf8(text.as_bytes()).is_ok(), "a str that is no UTF-8");
    }
    assert!(!document.uri.is_empty() && document.interval_s.is_finite());
    assert!(document.repeat_for_s.is_none_or(f64::is_finite));
    for tag in document.tags.as_slice() {
        assert!(tag.count > 0 && (1..=TAG_BYTES_MAX).contains(&tag.kind.len()));
    }
    // The other parser stops at 128 levels, and simd-json takes exponents modulo 2^32 (documented
    // at `parse_timer`).
    let value = match serde_json::from_slice::<serde_json::Value>(data) {
        Ok(value) => value,
        Err(error) if error.to_string().contains("recursion") || has_long_exponent(data) => return,
        Err(error) => panic!("accepted, but {error}"),
    };
    let http = &value["callback"]["http"];
    assert_eq!(http["uri"], document.uri);
    assert_eq!(http["opaque"], document.opaque);
    if !has_long_exponent(data) {
        let interval_s = value["timing"]["interval"].as_f64().expect("a number there too");
        let apart = (interval_s - document.interval_s).abs();
        // serde_json, without `float_roundtrip`, may be off by the last bit.
        assert!(apart <= interval_s.abs() * 4.0 * f64::EPSILON, "{interval_s} {document:?}");
    }
}

fn has_long_exponent(data: &[u8]) -> bool {
    data.windows(8).any(|digits| digits.iter().all(u8::is_ascii_digit))
        && data.iter().any(|byte| matches!(byte, b'e' | b'E'))
}

/// Any path is read without a panic; an id that is read is written in a form that is read as the
/// same id; escaping any byte of a path that needs no escape changes nothing. The first 17 bytes as
/// numbers make the trip the other way.
pub fn timer_id(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let path = format!("/timers/{text}");
        let parsed = parse_path(&path);
        assert_eq!(parse_path(&path), parsed);
        parse_path(text);
        if let TimerPath::Timer(PublicId { id, factor, filter }) = parsed {
            assert!(factor.is_some() || filter.is_some());
            assert!(factor.is_none_or(|factor| (1..=16).contains(&factor)));
            check_round_trip(id.0, factor.unwrap_or(1), filter.unwrap_or(0));
        }
        if path.len() < 80
            && path[1..].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/".contains(&byte))
        {
            let escaped: String = path
                .chars()
                .map(|byte| if byte == '/' { "/".into() } else { format!("%{:02X}", byte as u32) })
                .collect();
            assert_eq!(parse_path(&escaped), parsed, "{escaped}");
        }
    }
    if let Some((numbers, _)) = data.split_first_chunk::<17>() {
        let number = |at: usize| {
            numbers[at..at + 8].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        check_round_trip(number(0), numbers[16] % 16 + 1, number(8));
    }
}

fn check_round_trip(id: u64, factor: u8, filter: u64) {
    let id = chronos::base::ids::TimerId(id);
    let mut path = b"/timers/".to_vec();
    write_public_id(id, factor, filter, &mut path);
    let path = String::from_utf8(path).expect("ids are ASCII");
    let written = PublicId { id, factor: Some(factor), filter: Some(filter) };
    assert_eq!(parse_path(&path), TimerPath::Timer(written), "{path}");
}

/// The parts of a URI are pieces of it in their order, can stand in a request head as they are, and
/// make the same URI when put together again.
pub fn callback_uri(data: &[u8]) {
    let Ok(uri) = std::str::from_utf8(data) else { return };
    let parsed = match parse_callback_uri(uri) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(error.0.starts_with("callback URI: ") && !error.0.contains(['\r', '\n']));
            return;
        }
    };
    assert!(uri.len() <= URI_BYTES_MAX && parsed.port != 0);
    assert!(uri.bytes().all(|byte| (b'!'..=b'~').contains(&byte)));
    assert_eq!(&uri[7..7 + parsed.authority.len()], parsed.authority);
    assert!(uri[7 + parsed.authority.len()..].starts_with(parsed.target));
    assert!(matches!(parsed.target.bytes().next(), None | Some(b'/' | b'?')));
    assert!(!parsed.authority.contains(['@', '/', '?', '#']) && !parsed.target.contains('#'));
    if let Host::Name(name) = parsed.host {
        assert!(parsed.authority.starts_with(name) && (1..=253).contains(&name.len()));
        assert!(name.parse::<std::net::IpAddr>().is_err(), "an address is no name");
    }
    let again = format!("http://{}{}", parsed.authority, parsed.target);
    assert_eq!(parse_callback_uri(&again), Ok(parsed));
}

/// As [`http_head`], for answers; and the body that follows is skipped as the head says, in bounds.
pub fn callback_answer(data: &[u8]) {
    check_trickle(data, |bytes| match parse_answer_head(bytes, HEADER_BYTES_MAX) {
        Ok(None) => None,
        Ok(Some(head)) => Some(Ok(head.head_bytes)),
        Err(_) => Some(Err(())),
    });
    match parse_answer_head(data, HEADER_BYTES_MAX) {
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX),
        Ok(Some(head)) => check_answer(data, head),
        Err(_) => {
            let mut longer = data.to_vec();
            longer.extend_from_slice(b"\r\n\r\n");
            assert!(parse_answer_head(&longer, HEADER_BYTES_MAX).is_err(), "refused for good");
        }
    }
}

fn check_answer(data: &[u8], head: AnswerHead) {
    let (bytes, behind) = data.split_at(head.head_bytes);
    assert!(bytes.ends_with(b"\r\n\r\n") && bytes.len() <= HEADER_BYTES_MAX);
    assert!((100..=999).contains(&head.status));
    assert!(head.framing.is_some() || !head.keep_alive, "a body until close ends the connection");
    assert_eq!(parse_answer_head(bytes, HEADER_BYTES_MAX), Ok(Some(head)));
    assert_eq!(parse_answer_head(&bytes[..bytes.len() - 1], HEADER_BYTES_MAX), Ok(None));
    if matches!(head.status, 100..=199 | 204 | 304) {
        assert_eq!(head.framing, Some(Framing::Length(0)));
    }
    if head.framing == Some(Framing::Chunked) {
        let whole = decode(behind, behind.len().max(1), u64::MAX);
        assert_eq!(decode(behind, 1, u64::MAX), whole);
    }
}
