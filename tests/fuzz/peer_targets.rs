//! What must hold for every parser of what nodes tell each other, on every input; as `targets.rs`
//! for clients. Frames carry checksums, which no mutation hits: where frames are parsed they are
//! signed first, so that what lies behind the checksum is reached.

use chronos::base::ids::TimerId;
use chronos::base::limits::{INTERVAL_MS_MAX, SITES_PER_TIMER_MAX};
use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::cluster::link::{Inbound, Link, LinkError, LinkLimits};
use chronos::core::peers::handshake::{
    Answered, NoAnswer, Protocol, parse_answer, parse_request, write_acceptance, write_request,
};
use chronos::core::peers::secret::{SECRETS_MAX, Secrets};
use chronos::node::callbacks::signing::{self, Pop, Signer};
use chronos::timer::definition::{Content, encode_with_attributes, with_owner};
use chronos::timer::version::Version;
use chronos::wire::callback_uri::{parse_callback_uri, uri_of};
use chronos::wire::internal_json::{
    AnyDocument, InternalCallback, InternalTimer, Origin, parse_any, write_internal,
};
use chronos::wire::peer_frame::{
    FRAME_BODY_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, FrameKind, FrameReader,
    begin_frame, end_frame, parse_frame,
};
use chronos::wire::peer_message::{
    CopyBody, ORDERS_BYTES_MAX, PeerMessage, PeerResult, SEQUENCE_MAX, START_MS_MAX, TimerCopy,
    decode_message, decode_result,
};
use chronos::wire::resync_json::{
    parse_query, parse_range, parse_references, parse_timers, write_references, write_target,
};
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use serde_json::Value;

const NOW: MonoNs = MonoNs(1 << 50);
const BOTH: Now = Now { mono: NOW, wall: WallMs(1 << 40) };
const LIMITS: LinkLimits =
    LinkLimits { bytes_max: 1 << 16, window_bytes: 1 << 12, heartbeat_ms: 250 };

/// Messages: what is taken is within every limit, comes apart without a panic, and has one form.
pub fn peer_message(data: &[u8]) -> bool {
    let mut rest = data;
    let Ok(message) = decode_message(&mut rest) else { return false };
    let taken = &data[..data.len() - rest.len()];
    let mut written = Vec::new();
    message.encode(&mut written);
    assert_eq!(written, taken, "written again, it is the same bytes");
    for cut in 0..taken.len() {
        assert!(decode_message(&mut &taken[..cut]).is_err(), "taken when cut off at {cut}");
    }
    match message {
        PeerMessage::Standing(standing) | PeerMessage::Trying(standing) => {
            assert!(standing.sequence <= SEQUENCE_MAX)
        }
        PeerMessage::Compare(asked) => assert!(asked.sequence <= SEQUENCE_MAX),
        PeerMessage::Copy(copy) => check_copy(&copy),
        PeerMessage::Orders(lines) => assert!(lines.len() <= ORDERS_BYTES_MAX),
        PeerMessage::Conditional { copy, .. } => {
            assert!(copy.is_write, "a condition is that of a write");
            check_copy(&copy);
        }
        PeerMessage::Fetch(_) => assert_eq!(taken.len(), 9),
        PeerMessage::Missed { .. } | PeerMessage::NoRoom { .. } => assert_eq!(taken.len(), 13),
        PeerMessage::List { ask, .. } => assert!(taken.ends_with(ask)),
    }
    true
}

fn check_copy(copy: &TimerCopy<'_>) {
    assert!(copy.standing.sequence <= SEQUENCE_MAX && copy.start_ms <= START_MS_MAX);
    assert!(copy.interval_ms.max(copy.repeat_for_ms) <= INTERVAL_MS_MAX);
    assert!((1..=16).contains(&copy.factor) && copy.replicas.len() <= 16);
    assert!(usize::from(copy.sites.len()) <= SITES_PER_TIMER_MAX);
    assert_eq!(copy.standing.actives & !copy.replicas.all_ranks(), 0);
    assert_eq!(copy.standing.list_digest, copy.replicas.digest());
    let Some(CopyBody { authority, content }) = copy.body else { return };
    let parts = Content::decode(content);
    let target = std::str::from_utf8(parts.target).expect("a target is ASCII");
    let tags = parts.tags();
    let mut again = Vec::new();
    let attributes = parts.encoded_attributes();
    let behind = (&*attributes, parts.opaque);
    encode_with_attributes(target, tags.as_slice(), behind, &mut again);
    if let Some(owner) = parts.owner() {
        let plain = std::mem::take(&mut again);
        with_owner(&plain, owner, &mut again);
    }
    assert_eq!(again, content, "content has one form");
    let uri = uri_of(authority, target.as_bytes());
    let uri = parse_callback_uri(&uri).expect("authority and target are those of a URI");
    assert_eq!((uri.authority, uri.target), (authority, target));
    if !parts.attributes().is_binary {
        std::str::from_utf8(parts.opaque).expect("opaque data is text");
    }
}

/// Results: what is taken has one form.
pub fn peer_result(data: &[u8]) -> bool {
    let mut rest = data;
    let Ok(result) = decode_result(&mut rest) else { return false };
    let taken = &data[..data.len() - rest.len()];
    let mut written = Vec::new();
    result.encode(&mut written);
    assert_eq!(written, taken, "written again, it is the same bytes");
    assert_eq!(written.len(), result.encoded_bytes());
    for cut in 0..taken.len() {
        assert!(decode_result(&mut &taken[..cut]).is_err(), "taken when cut off at {cut}");
    }
    true
}

/// Frames: a prefix is waited for or refused for the same reason as the whole; what is taken is
/// written the same; portions change nothing.
pub fn peer_frame(data: &[u8]) -> bool {
    check_frame(data);
    let bytes = signed(data);
    check_frame(&bytes);
    let whole = frames_in(&bytes, bytes.len().max(1));
    for portion in [1, 7, FRAME_HEADER_BYTES + 1] {
        assert_eq!(frames_in(&bytes, portion), whole, "in portions of {portion}");
    }
    whole.0.is_ok() && !whole.1.is_empty()
}

fn check_frame(data: &[u8]) {
    let whole = parse_frame(data);
    for cut in (0..data.len()).step_by((data.len() / 24).max(1)) {
        match (parse_frame(&data[..cut]), whole) {
            (Ok(None), _) => {}
            (Ok(part), whole) => assert_eq!(Ok(part), whole, "taken at {cut}"),
            (Err(early), whole) => assert_eq!(Err(early), whole, "refused at {cut}"),
        }
    }
    let Ok(Some((frame, frame_bytes))) = whole else { return };
    assert_eq!(frame_bytes, FRAME_HEADER_BYTES + frame.body.len());
    assert_eq!(written(&frame), data[..frame_bytes]);
}

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let begins = begin_frame(&mut out);
    out.extend_from_slice(frame.body);
    let now = Now { mono: frame.sent_at, wall: frame.wall };
    end_frame(&mut out, begins, frame.kind, frame.count, frame.first, now, frame.view);
    out
}

fn frames_in(bytes: &[u8], portion: usize) -> (Result<(), FrameError>, Vec<Vec<u8>>) {
    let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
    for portion in bytes.chunks(portion) {
        let read = reader.read(portion, |frame| {
            frames.push(written(&frame));
            Ok(())
        });
        assert!(reader.partial_bytes() <= FRAME_HEADER_BYTES + FRAME_BODY_BYTES_MAX);
        if read.is_err() {
            return (read, frames);
        }
    }
    (Ok(()), frames)
}

/// Documents of clients and nodes: a client's is read as the parser of clients reads it; a node's
/// is written anew, and reads the same.
pub fn internal_json(data: &[u8]) -> bool {
    let mut scratch = JsonScratch::default();
    let (mut body, mut again) = (data.to_vec(), data.to_vec());
    let as_client = parse_timer(&mut again, &mut scratch);
    let as_client = as_client.map(|timer| format!("{timer:?}"));
    match parse_any(&mut body, &mut scratch) {
        Ok(AnyDocument { timer, internal: None, unknown }) => {
            assert!(unknown.is_none_or(|told| told.chars().count() < 400));
            assert_eq!(as_client, Ok(format!("{timer:?}")));
            true
        }
        Ok(document) => {
            check_rewritten(&document);
            true
        }
        Err(error) => {
            assert!(error.0.contains(": ") && error.0.len() < 200, "{error}");
            false
        }
    }
}

/// Writes what a node sent as ours would; whoever reads that reads the same.
fn check_rewritten(document: &AnyDocument<'_>) {
    let (timer, part) = (&document.timer, document.internal.expect("from a node"));
    assert!(part.sequence <= SEQUENCE_MAX && usize::from(part.replicas.len()) <= 16);
    assert!(part.origin == Origin::Peer || part.replicas.is_empty());
    let ms = |seconds: f64| Some((seconds * 1000.0).round()).filter(|ms| (0.0..=3e12).contains(ms));
    let repeat_for_s = timer.repeat_for_s.unwrap_or(timer.interval_s);
    let (Some(interval), Some(repeat_for)) = (ms(timer.interval_s), ms(repeat_for_s)) else {
        return;
    };
    let uri = parse_callback_uri(timer.uri);
    if uri.is_err() && !timer.uri.is_empty() {
        return;
    }
    let names: Vec<&str> = part.replicas.as_slice().to_vec();
    let rewritten = InternalTimer {
        now: WallMs(1 << 41),
        start_delta_ms: part.start_delta_ms.unwrap_or(0),
        sequence: part.sequence,
        interval_ms: interval as u64,
        repeat_for_ms: repeat_for as u64,
        callback: uri.ok().map(|uri| InternalCallback {
            authority: uri.authority,
            target: uri.target,
            opaque: timer.opaque,
        }),
        view_id: part.view_id.unwrap_or(7),
        replicas: &names,
        sites: if names.is_empty() { &["here"] } else { part.sites.as_slice() },
        factor: timer.replication_factor.and_then(|factor| u8::try_from(factor).ok()),
        tags: timer.tags.as_slice(),
        version: part.version,
        actives: part.actives,
        owner: part.owner,
        content: part.content,
        once: part.once,
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    write_internal(&rewritten, &mut first);
    let mut bytes = first.clone();
    let mut scratch = JsonScratch::default();
    let read = parse_any(&mut bytes, &mut scratch).expect("it is a node's document");
    let again = read.internal.expect("it names replicas or sites");
    let uri = parse_callback_uri(read.timer.uri).ok();
    write_internal(
        &InternalTimer {
            start_delta_ms: again.start_delta_ms.expect("it was written"),
            sequence: again.sequence,
            interval_ms: ms(read.timer.interval_s).expect("within limits") as u64,
            repeat_for_ms: ms(read.timer.repeat_for_s.expect("set")).expect("within limits") as u64,
            callback: uri.map(|uri| InternalCallback {
                authority: uri.authority,
                target: uri.target,
                opaque: read.timer.opaque,
            }),
            view_id: again.view_id.expect("it was written"),
            replicas: again.replicas.as_slice(),
            sites: again.sites.as_slice(),
            factor: read.timer.replication_factor.map(|factor| factor as u8),
            tags: read.timer.tags.as_slice(),
            version: again.version,
            actives: again.actives,
            owner: again.owner,
            content: again.content,
            once: again.once,
            ..rewritten
        },
        &mut second,
    );
    assert_eq!(first.escape_ascii().to_string(), second.escape_ascii().to_string());
}

/// Answers to a resynchronisation: every timer is told, malformed or not.
pub fn resync_timers(data: &[u8]) -> bool {
    let (mut good, mut all) = (0, 0);
    let read = parse_timers(&mut data.to_vec(), &mut JsonScratch::default(), |timer| {
        all += 1;
        if let Ok(timer) = timer {
            good += 1;
            assert!(timer.old_replicas.len() <= 16);
            if timer.timer.internal.is_some() {
                check_rewritten(&timer.timer);
            }
        }
    });
    if read.is_ok()
        && let Ok(value) = serde_json::from_slice::<Value>(data)
    {
        let timers = value.get("Timers").or(value.get("timers"));
        let told = timers.and_then(Value::as_array).map(Vec::len);
        assert_eq!(told, Some(all), "{value}");
    }
    read.is_ok() && good > 0
}

/// Bodies of `DELETE /timers/references`.
pub fn references(data: &[u8]) -> bool {
    let mut scratch = JsonScratch::default();
    let mut references = Vec::new();
    if parse_references(&mut data.to_vec(), &mut scratch, &mut references).is_err() {
        assert!(references.is_empty(), "a body that is refused says nothing");
        return false;
    }
    assert!(references.len() <= data.len() / 22, "{} in {} bytes", references.len(), data.len());
    let (mut written, mut again) = (Vec::new(), Vec::new());
    write_references(&references, &mut written);
    parse_references(&mut written, &mut scratch, &mut again).expect("written by us");
    assert_eq!(references, again);
    true
}

/// Queries of `GET /timers`, and values of `Range`.
pub fn resync_query(data: &[u8]) -> bool {
    assert!(parse_range(data).is_none_or(|count| {
        let text = String::from_utf8_lossy(data.trim_ascii());
        count > 0 && text.trim_start_matches('0') == count.to_string()
    }));
    let text = String::from_utf8_lossy(data);
    let query = match parse_query(&text) {
        Ok(query) => query,
        Err(error) => {
            assert!(error.0.contains(": "), "{error}");
            return false;
        }
    };
    assert!(query.node.bytes().all(|byte| byte.is_ascii_graphic()) && !query.node.is_empty());
    let mut target = Vec::new();
    write_target(&query, &mut target);
    let target = String::from_utf8(target).expect("a target is ASCII");
    let (path, again) = target.split_once('?').expect("it has a query");
    assert_eq!((path, parse_query(again)), ("/timers", Ok(query)));
    true
}

/// Frames with the right version and checksum, as many as `data` has room for.
fn signed(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    while let Some((header, body)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() {
        let kind = match header[1] {
            1 => FrameKind::Messages,
            2 => FrameKind::Results,
            _ => break,
        };
        let told = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (body, behind) = body.split_at(told.min(body.len()));
        let count = u16::from_le_bytes([header[2], header[3]]);
        let first = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let sent_at = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes are left"));
        let (sent_at, wall) = (MonoNs(sent_at), WallMs(1 << 40));
        out.extend(written(&Frame { kind, count, first, sent_at, view: 7, wall, body }));
        rest = behind;
    }
    out.extend_from_slice(rest);
    out
}

/// Results that come to a link with messages under way: every message has one result at most, in
/// order, or is kept. The first byte says how many messages there are.
pub fn link_received(data: &[u8]) -> bool {
    let Some((&messages, frames)) = data.split_first() else { return false };
    let bytes = signed(frames);
    let whole = results_of(messages, &bytes, bytes.len().max(1));
    assert_eq!(results_of(messages, &bytes, 5), whole, "portions change nothing");
    whole.0.is_ok() && !whole.1.is_empty()
}

type Results = (Result<(), LinkError>, Vec<(u8, String)>);

fn results_of(messages: u8, bytes: &[u8], portion: usize) -> Results {
    let mut link = Link::new(LIMITS);
    link.opened(NOW);
    for purpose in 0..messages {
        link.push(&[purpose; 9], purpose).expect("there is room for 255");
    }
    link.write(BOTH, &mut Vec::new());
    let (mut read, mut results) = (Ok(()), Vec::new());
    for portion in bytes.chunks(portion) {
        read = link.received(NOW, portion, |purpose, result| {
            assert_ne!(result, PeerResult::Busy, "such a message is kept");
            results.push((purpose, format!("{result:?}")));
        });
        if read.is_err() {
            break;
        }
    }
    assert!(results.is_sorted_by(|one, other| one.0 < other.0), "one for each, in order");
    assert_eq!(link.len() + results.len(), usize::from(messages));
    send_again(&mut link);
    (read, results)
}

/// What has no result goes again on the next connection, if need be in several portions.
fn send_again(link: &mut Link<u8>) {
    link.opened(NOW);
    let mut inbound = Inbound::new();
    while !link.is_empty() {
        let (mut sent, mut came, mut results) = (Vec::new(), Vec::new(), Vec::new());
        link.write(BOTH, &mut sent);
        let read = inbound.received(NOW, &sent, |number, _, _| came.push(number));
        read.expect("frames of a link");
        assert!(!came.is_empty(), "{} messages wait", link.len());
        came.iter().for_each(|number| inbound.answer(*number, PeerResult::Held));
        inbound.write(BOTH, &mut results);
        link.received(NOW, &results, |_, _| {}).expect("results of an inbound");
    }
}

fn frames_of(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    while let Some((frame, frame_bytes)) = parse_frame(bytes).expect("frames of our own") {
        frames.push(frame);
        bytes = &bytes[frame_bytes..];
    }
    assert!(bytes.is_empty());
    frames
}

/// Messages that come to the answering side: numbers without a gap, each answered once, and a link
/// takes the results.
pub fn inbound_received(data: &[u8]) -> bool {
    let bytes = signed(data);
    let whole = messages_of(&bytes, bytes.len().max(1));
    assert_eq!(messages_of(&bytes, 5), whole, "portions change nothing");
    whole.0.is_ok() && whole.1 > 0
}

fn messages_of(bytes: &[u8], portion: usize) -> (Result<(), LinkError>, u32) {
    let (mut inbound, mut link) = (Inbound::new(), Link::new(LIMITS));
    link.opened(NOW);
    let (mut read, mut seen) = (Ok(()), 0);
    for portion in bytes.chunks(portion) {
        let first_seen = seen;
        read = inbound.received(NOW, portion, |number, _, message| {
            assert_eq!(number, seen, "numbers have no gap");
            assert!(message.len() <= bytes.len());
            seen += 1;
        });
        assert_eq!(inbound.unanswered(), (seen - first_seen) as usize);
        for number in (first_seen..seen).rev() {
            match number % 3 {
                0 => inbound.answer(number, PeerResult::Found(&number.to_le_bytes())),
                _ => inbound.answer(number, PeerResult::Held),
            }
            link.push(b"", number).unwrap_or(());
        }
        link.write(BOTH, &mut Vec::new());
        let mut results = Vec::new();
        inbound.write(BOTH, &mut results);
        let told: usize = frames_of(&results).iter().map(|frame| usize::from(frame.count)).sum();
        assert_eq!(told, (seen - first_seen) as usize);
        if told == link.len() {
            let taken = link.received(NOW, &results, |_, _| {});
            assert_eq!((taken, link.len()), (Ok(()), 0), "a link takes the results");
        }
        if read.is_err() {
            break;
        }
    }
    (read, seen)
}

/// Requests for an Upgrade: what is taken is the same when it is written again.
pub fn upgrade_request(data: &[u8]) -> bool {
    let Ok(asked) = parse_request(data) else { return false };
    assert!(asked.hello.name.bytes().all(|byte| byte.is_ascii_graphic()));
    let mut written = Vec::new();
    write_request(&mut written, "h", &asked);
    assert_eq!(parse_request(&written), Ok(asked), "written again");
    true
}

/// Answers to an Upgrade: a part of one says nothing, and none is taken for both protocols.
pub fn upgrade_answer(data: &[u8]) -> bool {
    let whole = parse_answer(data, Protocol::Frames);
    for cut in 0..data.len().min(2_048) {
        match parse_answer(&data[..cut], Protocol::Frames) {
            Ok(None) => {}
            part => assert!(part == whole || whole == Ok(None), "{part:?} at {cut}, {whole:?}"),
        }
    }
    let Ok(Some(answered)) = whole else { return false };
    if let Answered::Upgraded { hello, proof, head_bytes } = answered {
        assert!(head_bytes <= data.len());
        assert_eq!(parse_answer(data, Protocol::Site), Err(NoAnswer));
        let mut written = Vec::new();
        write_acceptance(&mut written, Protocol::Frames, &hello, proof);
        let head_bytes = written.len();
        let again = Answered::Upgraded { hello, proof, head_bytes };
        assert_eq!(parse_answer(&written, Protocol::Frames), Ok(Some(again)), "written again");
    } else if let Answered::Challenged { head_bytes, .. } = answered {
        assert!(head_bytes <= data.len());
    }
    true
}

/// The file of the cluster's secrets: never empty, bounded, and the same with space around it.
pub fn secrets(data: &[u8]) -> bool {
    let Ok(secrets) = Secrets::parse(data) else { return false };
    assert!((1..=SECRETS_MAX).contains(&secrets.count()));
    let spaced = [b"# x\n \n", data, b"\n"].concat();
    if let Ok(again) = Secrets::parse(&spaced) {
        assert_eq!(again, secrets);
    }
    true
}

/// The file of the secrets that callbacks are signed with: one or two, the same with space around
/// it, and nothing of them is shown. What is signed is text of one line a header.
pub fn signing_secrets(data: &[u8]) -> bool {
    let Ok(signer) = Signer::parse(data) else { return false };
    assert!((1..=signing::SECRETS_MAX).contains(&signer.count()));
    assert_eq!(format!("{signer:?}"), format!("{} signing secrets", signer.count()));
    let spaced = [b"# x\n \n", data, b"\n"].concat();
    if let Ok(again) = Signer::parse(&spaced) {
        assert_eq!(again, signer);
    }
    let pop = Pop { id: TimerId(7), version: Version(8), sequence: 9 };
    let mut out = Vec::new();
    signer.write_headers(&mut out, &pop, WallMs(1_000), data);
    assert!(out.is_ascii() && out.ends_with(b"=\r\n"));
    assert_eq!(out.iter().filter(|byte| byte.is_ascii_control()).count(), 6, "three lines");
    true
}
