//! Messages between nodes: a written message comes back; a message that is cut off or beyond a
//! bound is refused.

use proptest::prelude::*;

use super::peer_message::*;
use crate::base::ids::{NodeHash, SiteHash, TimerId};
use crate::base::limits::{INTERVAL_MS_MAX, URI_TOLD_BYTES_MAX};
use crate::base::ranked::{Replicas, Sites};
use crate::wire::site_question::SiteQuestion;

const COMPARED: SiteQuestion =
    SiteQuestion { id: TimerId(1), version: 2, sequence: SEQUENCE_MAX, site: SiteHash(5) };

/// Content as `timer::definition` encodes it.
fn content(target: &str, tags: &[(u32, &[u8])], opaque: &[u8]) -> Vec<u8> {
    let mut tag_bytes = Vec::new();
    for (count, name) in tags {
        tag_bytes.extend_from_slice(&count.to_le_bytes());
        tag_bytes.push(name.len() as u8);
        tag_bytes.extend_from_slice(name);
    }
    let mut content = Vec::new();
    content.extend_from_slice(&(target.len() as u16).to_le_bytes());
    content.extend_from_slice(&(tag_bytes.len() as u16).to_le_bytes());
    content.extend_from_slice(target.as_bytes());
    content.extend_from_slice(&tag_bytes);
    content.extend_from_slice(opaque);
    content
}

fn standing_of(id: u64, version: u64, sequence: u64, actives: u16, list_digest: u32) -> Standing {
    Standing { id: TimerId(id), version, sequence, actives, list_digest }
}

/// A timer of factor 2 whose second pop comes an hour after the clocks' base of 30 years.
fn usual<'a>(body: Option<CopyBody<'a>>) -> TimerCopy<'a> {
    let replicas: Replicas = [NodeHash(7), NodeHash(0xffff_fff0)].into_iter().collect();
    TimerCopy {
        standing: standing_of(0x0004_d9f5_4810_0000, 1 << 60, 1, 0b11, replicas.digest()),
        is_write: true,
        replicas,
        factor: 2,
        sites: Sites::new(),
        start_ms: 30 * 366 * 86_400_000 + 3_600_000,
        interval_ms: 300_000,
        repeat_for_ms: 600_000,
        body,
    }
}

fn encoded(message: PeerMessage<'_>) -> Vec<u8> {
    let mut out = vec![0xee];
    message.encode(&mut out);
    out.remove(0);
    out
}

fn decoded(bytes: &[u8]) -> Result<PeerMessage<'_>, &'static str> {
    let mut rest = bytes;
    let message = decode_message(&mut rest).map_err(|error| error.0)?;
    assert!(rest.is_empty(), "{} bytes are left", rest.len());
    Ok(message)
}

fn refusal(message: PeerMessage<'_>) -> &'static str {
    decode_message(&mut &encoded(message)[..]).expect_err("it is refused").0
}

fn refused_copy(change: impl FnOnce(&mut TimerCopy<'_>)) -> &'static str {
    let mut copy = usual(None);
    change(&mut copy);
    refusal(PeerMessage::Copy(copy))
}

fn refused_body(authority: &str, content: &[u8]) -> &'static str {
    refusal(PeerMessage::Copy(usual(Some(CopyBody { authority, content }))))
}

#[test]
fn bytes_that_a_message_takes() {
    let bytes = |message| encoded(message).len();
    assert_eq!(bytes(PeerMessage::Fetch(TimerId(1))), 9);
    assert_eq!(bytes(PeerMessage::Standing(standing_of(u64::MAX, u64::MAX, 100, 0b11, 1))), 23);
    assert_eq!(bytes(PeerMessage::Copy(usual(None))), 41);
    let content = content("/pop", &[(1, b"CALL")], b"opaque");
    let body = CopyBody { authority: "ralf.example:10888", content: &content };
    let beside = 18 + content.len();
    assert_eq!(bytes(PeerMessage::Copy(usual(Some(body)))) - beside, 43);
}

#[test]
fn a_copy_is_these_bytes() {
    let content = content("/p", &[], b"x");
    let body = CopyBody { authority: "a", content: &content };
    let mut copy = usual(Some(body));
    copy.sites = [SiteHash(5)].into_iter().collect();
    let expected = [
        &[0x32][..],
        &[0x00, 0x00, 0x10, 0x48, 0xf5, 0xd9, 0x04, 0x00],
        &[0, 0, 0, 0, 0, 0, 0, 0x10],
        &[1, 0x11, 2],
        &[7, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff],
        &[0b11, 5, 0, 0, 0],
        &[0x80, 0xbd, 0xe3, 0x8b, 0xce, 0x1b],
        &[0xe0, 0xa7, 0x12],
        &[0xc0, 0xcf, 0x24],
        &[1, b'a', 7, 2, 0, 0, 0, b'/', b'p', b'x'],
    ];
    assert_eq!(encoded(PeerMessage::Copy(copy)), expected.concat());
}

#[test]
fn cut_off_at_every_byte() {
    let content = content("/p?q", &[(1, b"CALL"), (2, b"REG")], b"opaque");
    let body = CopyBody { authority: "[::1]:80", content: &content };
    let mut copy = usual(Some(body));
    copy.sites = [SiteHash(5), SiteHash(6)].into_iter().collect();
    let messages = [
        PeerMessage::Standing(standing_of(1, 2, SEQUENCE_MAX, u16::MAX, 5)),
        PeerMessage::Trying(standing_of(1, 2, SEQUENCE_MAX, u16::MAX, 5)),
        PeerMessage::Compare(COMPARED),
        PeerMessage::Copy(copy),
        PeerMessage::Copy(usual(None)),
        PeerMessage::Fetch(TimerId(9)),
    ];
    for message in messages {
        let bytes = encoded(message);
        assert_eq!(decoded(&bytes), Ok(message));
        for cut in 0..bytes.len() {
            assert!(decode_message(&mut &bytes[..cut]).is_err(), "{message:?} at {cut}");
        }
    }
    for cut in 0..content.len() - b"opaque".len() {
        assert!(!refused_body("a", &content[..cut]).is_empty(), "content at {cut}");
    }
}

#[test]
fn numbers_beyond_their_bounds() {
    let mut largest = usual(None);
    largest.standing.sequence = SEQUENCE_MAX;
    largest.start_ms = START_MS_MAX;
    largest.interval_ms = INTERVAL_MS_MAX;
    largest.repeat_for_ms = INTERVAL_MS_MAX;
    largest.factor = 16;
    assert_eq!(
        decoded(&encoded(PeerMessage::Copy(largest))),
        Ok(PeerMessage::Copy(largest)),
        "the bounds are included"
    );
    let sequence = "a sequence out of range";
    assert_eq!(refused_copy(|copy| copy.standing.sequence = SEQUENCE_MAX + 1), sequence);
    let standing = PeerMessage::Standing(standing_of(1, 1, SEQUENCE_MAX + 1, 0, 0));
    assert_eq!(refusal(standing), sequence);
    assert_eq!(refused_copy(|copy| copy.start_ms = START_MS_MAX + 1), "a start out of range");
    let interval = "an interval or repeat-for out of range";
    assert_eq!(refused_copy(|copy| copy.interval_ms = INTERVAL_MS_MAX + 1), interval);
    assert_eq!(refused_copy(|copy| copy.repeat_for_ms = INTERVAL_MS_MAX + 1), interval);
    let rank = "a rank acts that the list does not have";
    assert_eq!(refused_copy(|copy| copy.standing.actives = 0b100), rank);
    assert_eq!(refused_copy(|copy| copy.replicas = Replicas::new()), rank);
}

#[test]
fn lists_beyond_their_bounds() {
    let twice = [NodeHash(1), NodeHash(1)].into_iter().collect();
    assert_eq!(refused_copy(|copy| copy.replicas = twice), "a replica twice");
    let twice = [SiteHash(1), SiteHash(1)].into_iter().collect();
    assert_eq!(refused_copy(|copy| copy.sites = twice), "a site twice");
    let bytes = encoded(PeerMessage::Copy(usual(None)));
    // Offsets behind kind, id, version and a sequence of one byte.
    let (sites_at, replicas_at) = (18, 19);
    for (at, value, reason) in [
        (sites_at, 0x19, "more sites than a timer can have"),
        (replicas_at, 17, "more replicas than a timer can have"),
        (replicas_at, 255, "more replicas than a timer can have"),
    ] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let got = decode_message(&mut &[&bytes[..], &[7; 400]].concat()[..]).expect_err(reason).0;
        assert_eq!(got, reason);
    }
}

#[test]
fn orders_come_back_and_are_bounded() {
    for bytes in [0, 1, ORDERS_BYTES_MAX, ORDERS_BYTES_MAX + 1] {
        let lines = vec![b'x'; bytes];
        let mut encoded = Vec::new();
        PeerMessage::Orders(&lines).encode(&mut encoded);
        let decoded = decode_message(&mut &encoded[..]);
        match bytes <= ORDERS_BYTES_MAX {
            true => assert_eq!(decoded, Ok(PeerMessage::Orders(&lines))),
            false => assert!(decoded.is_err()),
        }
        assert!(decode_message(&mut &encoded[..encoded.len() - 1]).is_err());
    }
}

#[test]
fn kinds_that_are_none() {
    let known = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0x12, 0x22, 0x32];
    for kind in (0..=255_u8).filter(|kind| !known.contains(kind)) {
        let bytes = [&[kind][..], &[1; 100]].concat();
        assert_eq!(decode_message(&mut &bytes[..]), Err(PeerMessageError("unknown kind")));
    }
    for kind in (0..=255_u8).filter(|kind| ![0x12, 0x32].contains(kind)) {
        let bytes = [&[8][..], &[1; 8], &[kind], &[1; 100]].concat();
        let refused = decode_message(&mut &bytes[..]).expect_err("no client's write");
        assert_eq!(refused.0, "a condition without a client's write");
    }
    let long_number = [&[1][..], &[0; 16], &[0x80, 0x00], &[0; 5]].concat();
    let refused = decode_message(&mut &long_number[..]).expect_err("two forms of a number");
    assert_eq!(refused.0, "expected a LEB128 number in its shortest form");
}

#[test]
fn authorities_and_targets_that_no_uri_has() {
    for authority in ["", "a b", "a\r\nX: y", "u@a", "a/b", "a:0", "1.2", "\u{e9}"] {
        assert_eq!(
            refused_body(authority, &content("", &[], b"")),
            "expected an authority host:port"
        );
    }
    for target in ["x", "*", "/a b", "/\r\nHost: b", "/#f", "/\u{e9}", "/\0", "http://a/"] {
        let reason = refused_body("a", &content(target, &[], b""));
        assert_eq!(reason, "a target that no callback URI has", "{target:?}");
    }
    let longest = format!("/{}", "x".repeat(URI_TOLD_BYTES_MAX - "http://a/".len()));
    let content_of_longest = content(&longest, &[], b"");
    let body = CopyBody { authority: "a", content: &content_of_longest };
    assert!(decoded(&encoded(PeerMessage::Copy(usual(Some(body))))).is_ok());
    assert_eq!(refused_body("ab", &content_of_longest), "a callback URI that is too long");
}

#[test]
fn tags_and_opaque_data_that_are_none() {
    const MALFORMED: &str = "malformed statistics tags";
    let name = [b'x'; 65];
    let accepts = |tags: &[(u32, &[u8])]| {
        let content = content("", tags, b"");
        decoded(&encoded(PeerMessage::Copy(usual(Some(CopyBody {
            authority: "a",
            content: &content,
        })))))
        .map(|_| ())
    };
    assert_eq!(accepts(&[(1, &name[..64]); 16]), Ok(()));
    assert_eq!(accepts(&[(u32::MAX, "\u{e9}".as_bytes())]), Ok(()));
    let accepts = |tags: &[(u32, &[u8])]| refused_body("a", &content("", tags, b""));
    assert_eq!(accepts(&[(1, &name[..64]); 17]), "more tags than a timer can have");
    assert_eq!(accepts(&[(1, &name[..])]), MALFORMED);
    assert_eq!(accepts(&[(1, b"")]), MALFORMED);
    assert_eq!(accepts(&[(0, b"x")]), MALFORMED);
    assert_eq!(accepts(&[(1, b"\xff")]), MALFORMED);
    // A name of a token stands before the tags, with a count of 0 and a bit in its length.
    const OWNER: &str = "malformed owner of a timer";
    let owned = |count: u32, length: u8, name: &[u8]| {
        let tags = [&count.to_le_bytes()[..], &[length], name].concat();
        [&[0, 0, tags.len() as u8, 0][..], &tags, b"opaque"].concat()
    };
    let content_of_owner = owned(0, 0x87, b"billing\x01\0\0\0\x01x");
    let body = CopyBody { authority: "a", content: &content_of_owner };
    assert!(decoded(&encoded(PeerMessage::Copy(usual(Some(body))))).is_ok());
    let refused_owner = |count, length, name: &[u8]| refused_body("a", &owned(count, length, name));
    assert_eq!(refused_owner(1, 0x87, b"billing"), OWNER, "a count");
    assert_eq!(refused_owner(0, 0x88, b"billing"), OWNER, "longer than all tags");
    assert_eq!(refused_owner(0, 0x80, b""), OWNER);
    assert_eq!(refused_owner(0, 0xc1, &name), OWNER);
    assert_eq!(refused_owner(0, 0x82, b"a "), OWNER, "a name that no token has");
    assert_eq!(refused_owner(0, 0x81, b"a\0\0\0\0\x81b"), MALFORMED, "two of them");
    // The tag claims to be longer than all tags together; the opaque data must not complete it.
    let cut_off = [&[0, 0, 6, 0, 1, 0, 0, 0, 2, b'x'][..], b"yz"].concat();
    assert_eq!(refused_body("a", &cut_off), MALFORMED);
    assert_eq!(refused_body("a", &content("", &[], b"\xff")), "opaque data that is no text");
    for lengths in [[1, 0, 0, 0], [0, 0, 1, 0], [255, 255, 255, 255]] {
        assert_eq!(refused_body("a", &lengths), "content that is cut off");
    }
}

#[test]
fn results() {
    let results = [
        (PeerResult::Held, 1),
        (PeerResult::Wanted, 1),
        (PeerResult::Superseded { version: u64::MAX, factor: 16 }, 10),
        (PeerResult::Busy, 1),
        (PeerResult::Refused(PeerRefusal::FutureVersion), 2),
        (PeerResult::Refused(PeerRefusal::Full), 2),
        (PeerResult::Refused(PeerRefusal::Malformed), 2),
        (PeerResult::Refused(PeerRefusal::TokenFull), 2),
        (PeerResult::Refused(PeerRefusal::OtherName), 2),
        (PeerResult::Found(b""), 2),
        (PeerResult::Found(&[7; 200]), 203),
        (PeerResult::NotFound, 1),
        (PeerResult::Ahead, 1),
        (PeerResult::Otherwise, 1),
    ];
    for (result, bytes) in results {
        let mut out = Vec::new();
        result.encode(&mut out);
        assert_eq!(out.len(), bytes, "{result:?}");
        assert_eq!(result.encoded_bytes(), bytes, "{result:?}");
        for cut in 0..bytes {
            assert!(decode_result(&mut &out[..cut]).is_err(), "{result:?} at {cut}");
        }
        out.push(0xee);
        let mut rest = &out[..];
        assert_eq!(decode_result(&mut rest), Ok(result));
        assert_eq!(rest, [0xee]);
    }
    let refused = |bytes: &[u8]| decode_result(&mut &bytes[..]).expect_err("refused").0;
    for kind in (0..=255).filter(|kind| !(1..=9).contains(kind)) {
        assert_eq!(refused(&[kind, 1, 1, 1, 1, 1, 1, 1, 1, 1]), "unknown kind of result");
    }
    for reason in [0, 6, 255] {
        assert_eq!(refused(&[5, reason]), "unknown reason of a refusal");
    }
    for factor in [0, 17, 255] {
        let reason = refused(&[3, 0, 0, 0, 0, 0, 0, 0, 0, factor]);
        assert_eq!(reason, "a replication factor that is not 1 to 16");
    }
}

prop_compose! {
    fn keys()(
        id: u64,
        version: u64,
        sequence in 0..=SEQUENCE_MAX,
        actives: u16,
        list_digest: u32,
    ) -> Standing {
        standing_of(id, version, sequence, actives, list_digest)
    }
}

prop_compose! {
    fn copies()(
        mut standing in keys(),
        is_write: bool,
        nodes in prop::collection::hash_set(any::<u32>(), 0..=16),
        factor in 1..=16_u8,
        sites in prop::collection::hash_set(any::<u32>(), 0..=8),
        start_ms in 0..=START_MS_MAX,
        interval_ms in 0..=INTERVAL_MS_MAX,
        repeat_for_ms in 0..=INTERVAL_MS_MAX,
    ) -> TimerCopy<'static> {
        let replicas: Replicas = nodes.into_iter().map(NodeHash).collect();
        standing.actives &= replicas.all_ranks();
        standing.list_digest = replicas.digest();
        let sites = sites.into_iter().map(SiteHash).collect();
        TimerCopy {
            standing, is_write, replicas, factor, sites, start_ms, interval_ms, repeat_for_ms,
            body: None,
        }
    }
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    let tag = (1..=u32::MAX, "[A-Z\u{e9}]{1,32}");
    ("(|[/?][!-\"$-~]{0,40})", prop::collection::vec(tag, 0..=16), ".{0,200}").prop_map(
        |(target, tags, opaque)| {
            let tags: Vec<(u32, &[u8])> =
                tags.iter().map(|(count, name)| (*count, name.as_bytes())).collect();
            content(&target, &tags, opaque.as_bytes())
        },
    )
}

fn assert_comes_back(message: PeerMessage<'_>, tail: &[u8]) {
    let bytes = [&encoded(message)[..], tail].concat();
    let mut rest = &bytes[..];
    assert_eq!(decode_message(&mut rest), Ok(message));
    assert_eq!(rest, tail);
}

proptest! {
    #[test]
    fn standings_come_back(standing in keys(), tail: [u8; 3]) {
        assert_comes_back(PeerMessage::Standing(standing), &tail);
        assert_comes_back(PeerMessage::Trying(standing), &tail);
        let asked = SiteQuestion { sequence: standing.sequence, ..COMPARED };
        assert_comes_back(PeerMessage::Compare(asked), &tail);
    }

    #[test]
    fn tombstones_come_back(copy in copies(), tail: [u8; 3]) {
        assert_comes_back(PeerMessage::Copy(copy), &tail);
    }

    #[test]
    fn copies_come_back(
        mut copy in copies(),
        authority in "([a-z]{1,10}\\.){0,3}[a-z][a-z0-9]{0,10}(:[1-9][0-9]{0,3})?",
        content in contents(),
        tail: [u8; 3],
    ) {
        copy.body = Some(CopyBody { authority: &authority, content: &content });
        assert_comes_back(PeerMessage::Copy(copy), &tail);
    }

    #[test]
    fn what_is_taken_is_written_the_same(bytes in prop::collection::vec(0..64_u8, 0..80)) {
        let mut rest = &bytes[..];
        if let Ok(message) = decode_message(&mut rest) {
            prop_assert_eq!(&encoded(message)[..], &bytes[..bytes.len() - rest.len()]);
        }
    }
}
