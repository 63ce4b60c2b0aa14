//! What must hold for every parser of what nodes tell each other, on every input; as `targets.rs`
//! for clients. Frames carry checksums, which no mutation hits: where frames are parsed they are
//! signed first, so that what lies behind the checksum is reached.

use chronos::base::limits::{INTERVAL_MS_MAX, SITES_PER_TIMER_MAX};
use chronos::base::time::MonoNs;
use chronos::cluster::link::{Inbound, Link, LinkError, LinkLimits};
use chronos::timer::definition::{Content, encode_content};
use chronos::wire::callback_uri::parse_callback_uri;
use chronos::wire::peer_frame::{
    FRAME_BODY_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameError, FrameKind, FrameReader,
    begin_frame, end_frame, parse_frame,
};
use chronos::wire::peer_message::{
    CopyBody, PeerMessage, PeerResult, SEQUENCE_MAX, START_MS_MAX, TimerCopy, decode_message,
    decode_result,
};

const NOW: MonoNs = MonoNs(1 << 50);
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
        PeerMessage::Standing(standing) => assert!(standing.sequence <= SEQUENCE_MAX),
        PeerMessage::Copy(copy) => check_copy(&copy),
        PeerMessage::Fetch(_) => assert_eq!(taken.len(), 9),
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
    encode_content(target, tags.as_slice(), parts.opaque, &mut again);
    assert_eq!(again, content, "content has one form");
    let uri = format!("http://{authority}{target}");
    let uri = parse_callback_uri(&uri).expect("authority and target are those of a URI");
    assert_eq!((uri.authority, uri.target), (authority, target));
    std::str::from_utf8(parts.opaque).expect("opaque data is text");
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
    end_frame(&mut out, begins, frame.kind, frame.count, frame.first, frame.sent_at);
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
        let sent_at = u64::from_le_bytes(header[16..].try_into().expect("eight bytes are left"));
        out.extend(written(&Frame { kind, count, first, sent_at: MonoNs(sent_at), body }));
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
    link.write(NOW, &mut Vec::new());
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
    link.opened(NOW);
    let mut again = Vec::new();
    link.write(NOW, &mut again);
    let sent: usize = frames_of(&again).iter().map(|frame| usize::from(frame.count)).sum();
    assert_eq!(sent, link.len(), "what has no result goes again");
    (read, results)
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
        link.write(NOW, &mut Vec::new());
        let mut results = Vec::new();
        inbound.write(NOW, &mut results);
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
