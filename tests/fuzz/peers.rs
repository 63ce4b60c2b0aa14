//! The targets of what nodes tell each other, with seeds that are made as nodes make them.

use chronos::base::ids::{NodeHash, SiteHash, TimerId};
use chronos::base::ranked::{Replicas, Sites};
use chronos::base::time::{MonoNs, Now, WallMs};
use chronos::timer::definition::{encode_content, encode_with_attributes, with_owner};
use chronos::wire::attributes::{Acted, Attributes, RetryPolicy};
use chronos::wire::leb128::write_leb128;
use chronos::wire::peer_frame::{FrameKind, begin_frame, end_frame};
use chronos::wire::peer_message::{
    CopyBody, PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy,
};
use chronos::wire::site_question::SiteQuestion;
use chronos::wire::timer_json::Tag;

use crate::{fuzz, peer_targets};

/// Numbers at edges, little-endian and as LEB128.
const NUMBERS: &[&[u8]] = &[
    &[0],
    &[1],
    &[0x7f],
    &[0x80],
    &[0x80, 1],
    &[0xff, 0xff, 3],
    &[0xff; 4],
    &[0xff; 9],
    &[0, 0, 0, 0],
    &[1, 0, 0, 0],
    &[0, 0, 0x20, 0],
    b"/",
    b"?",
    b"#",
    b":80",
    b"a.b",
    b"[::1]",
    b"\r\n",
    b"\xc3\xa9",
    &[4, 0, 0, 0, b'/', b'a', b'b', b'c'],
    &[0, 0, 6, 0, 1, 0, 0, 0, 1, b'x'],
];

fn encoded(message: PeerMessage<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

fn copy<'a>(factor: u8, body: Option<CopyBody<'a>>) -> PeerMessage<'a> {
    let replicas: Replicas = (1..=u32::from(factor)).map(NodeHash).collect();
    let sites: Sites = (1..u32::from(factor)).take(8).map(SiteHash).collect();
    let (actives, list_digest) = (replicas.all_ranks(), replicas.digest());
    let id = TimerId(0x0004_d9f5_4810_0000);
    let standing = Standing { id, version: 1 << 62, sequence: 300, actives, list_digest };
    PeerMessage::Copy(TimerCopy {
        standing,
        is_write: factor == 2,
        replicas,
        factor,
        sites,
        start_ms: 948_672_000_000,
        interval_ms: 1_000,
        repeat_for_ms: 3_600_000,
        body,
    })
}

fn standing(sequence: u64) -> PeerMessage<'static> {
    PeerMessage::Standing(standing_of(sequence))
}

fn standing_of(sequence: u64) -> Standing {
    Standing { id: TimerId(7), version: 9, sequence, actives: 3, list_digest: 5 }
}

/// Messages that carry timers.
pub fn copies() -> Vec<Vec<u8>> {
    messages().into_iter().filter(|message| message[0] & 0xf == 2).collect()
}

fn messages() -> Vec<Vec<u8>> {
    let mut content = Vec::new();
    let tags = [Tag { kind: "CALL", count: 1 }, Tag { kind: "REG", count: u32::MAX }];
    encode_content("/a%2Fb?c", &tags, b"opaque", &mut content);
    let mut owned = Vec::new();
    with_owner(&content, "billing", &mut owned);
    let mut special = Vec::new();
    let (mut attributes, headers) = (Vec::new(), "X-A: b\r\nX-C: d\r\n");
    let retry = Some(RetryPolicy::default());
    let more = Attributes { is_binary: true, content_type: Some("a/b"), ..Attributes::default() };
    let more = Attributes { headers, retry, at_ms: Some(1 << 40), ..more };
    let more = Attributes { name: Some("a name"), once: Some(1 << 39), ..more };
    let acted = Some(Acted { root: 7, at_ms: 500, pop: 1 });
    let more = Attributes { is_paused: true, acted, ..more };
    more.write(&mut attributes);
    encode_with_attributes("/a", &tags, (&attributes, b"\xff\0"), &mut special);
    let mut plain = Vec::new();
    encode_content("", &[], b"", &mut plain);
    let write = match copy(2, Some(CopyBody { authority: "a", content: &special })) {
        PeerMessage::Copy(copy) => PeerMessage::Conditional { seen: 1 << 61, copy },
        other => other,
    };
    vec![
        encoded(write),
        encoded(standing(0)),
        encoded(standing(1 << 40)),
        encoded(PeerMessage::Trying(Standing { list_digest: 9, ..standing_of(3) })),
        encoded(PeerMessage::Fetch(TimerId(u64::MAX))),
        encoded(PeerMessage::Compare(SiteQuestion {
            id: TimerId(7),
            version: 8,
            sequence: 1 << 40,
            site: SiteHash(9),
        })),
        encoded(PeerMessage::Missed { id: TimerId(7), by: NodeHash(0x0102_0304) }),
        encoded(PeerMessage::NoRoom { id: TimerId(7), at: NodeHash(0x0102_0304) }),
        encoded(PeerMessage::Orders(b"")),
        encoded(PeerMessage::Orders(b"1 2 a:80 paused\n3 4 - b\n")),
        encoded(PeerMessage::List { shard: 258, ask: b"a question" }),
        encoded(copy(1, None)),
        encoded(copy(2, Some(CopyBody { authority: "ralf.example:10888", content: &content }))),
        encoded(copy(2, Some(CopyBody { authority: "a", content: &owned }))),
        encoded(copy(3, Some(CopyBody { authority: "a", content: &special }))),
        encoded(copy(16, Some(CopyBody { authority: "[::1]:80", content: &plain }))),
    ]
}

fn frame(kind: FrameKind, count: u16, first: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let begins = begin_frame(&mut out);
    let now = Now { mono: MonoNs(1 << 50), wall: WallMs(1 << 40) };
    out.extend_from_slice(body);
    end_frame(&mut out, begins, kind, count, first, now, 7);
    out
}

fn seeds(owned: &[Vec<u8>]) -> Vec<&[u8]> {
    owned.iter().map(Vec::as_slice).collect()
}

/// Words of the documents of nodes.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"0",
    b"-1",
    b"1.5",
    b"65536",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\"\"",
    b"\"a\"",
    b"\"timing\":",
    b"\"interval\":0.001,",
    b"\"repeat-for\":",
    b"\"start-time-delta\":",
    b"\"start-time\":4294967296,",
    b"\"sequence-number\":",
    b"\"chronos-interval-ms\":1500,",
    b"\"chronos-repeat-for-ms\":4500,",
    b"\"callback\":{},",
    b"\"http\":{},",
    b"\"uri\":",
    b"\"opaque\":",
    b"\"reliability\":{},",
    b"\"replicas\":[\"a\"],",
    b"\"sites\":[\"b\"],",
    b"\"cluster-view-id\":7,",
    b"\"replication-factor\":2,",
    b"\"chronos-version\":\"7\",",
    b"\"chronos-actives\":3,",
    b"\"statistics\":0,",
    b"\"tag-info\":[{}],",
    b"{\"type\":\"x\",\"count\":0},",
    b"{\"type\":\"x\",\"count\":2},",
    b"\"timers\":",
    b"\"Timers\":",
    b"\"TimerID\":1,",
    b"\"Timer\":{},",
    b"\"OldReplicas\":[],",
    b"\"IDs\":[]",
    b"{\"ID\":1,\"ReplicaIndex\":2},",
    b"\\u0000",
    b"\\",
];

const FROM_PEER: &[u8] = br#"{"timing":{"start-time":4200796160,"start-time-delta":-4004,
    "sequence-number":1,"interval":2,"repeat-for":4},"callback":{"http":{
    "uri":"http://127.0.0.1:9901/ok/repl0","opaque":"OPAQUE-DATA"}},"reliability":{
    "cluster-view-id":"5030520784871784460","replicas":["127.0.0.9","127.0.0.1"],
    "sites":["site1"]},"statistics":{"tag-info":[{"type":"CALL","count":1}]}}"#;
const TOMBSTONE: &[u8] = br#"{"reliability":{"sites":["a","b"],"chronos-version":"9",
    "chronos-actives":1},"callback":{"http":{"uri":"","opaque":""}},"timing":{"interval":2,
    "chronos-interval-ms":1500}}"#;
const FROM_CLIENT: &[u8] = br#"{"timing":{"interval":1.5},"callback":{"http":{"uri":"http://a/b",
    "opaque":"x"}},"reliability":{"replication-factor":2}}"#;

#[test]
fn internal_json() {
    fuzz(peer_targets::internal_json, &[FROM_PEER, TOMBSTONE, FROM_CLIENT], WORDS);
}

#[test]
fn resync_timers() {
    let answer = |key: &str, timers: &[&[u8]]| {
        let mut out = format!("{{\"{key}\":[").into_bytes();
        for (id, timer) in timers.iter().enumerate() {
            out.extend_from_slice(if id == 0 { b"" } else { b"," });
            out.extend_from_slice(
                format!("{{\"TimerID\":{id},\"OldReplicas\":[\"a\"],").as_bytes(),
            );
            out.extend_from_slice(b"\"Timer\":");
            out.extend_from_slice(timer);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        out
    };
    let inputs = [answer("Timers", &[FROM_PEER]), answer("timers", &[TOMBSTONE, FROM_CLIENT])];
    fuzz(peer_targets::resync_timers, &seeds(&inputs), WORDS);
}

#[test]
fn references() {
    let inputs: [&[u8]; 3] = [
        br#"{"IDs":[{"ID":809146204028928,"ReplicaIndex":0},{"ReplicaIndex":15,"ID":2}]}"#,
        br#" {"x":[{}],"IDs":[]}"#,
        br#"{"IDs":[{"ID":1,"ReplicaIndex":2}],"y":{"ID":7}}"#,
    ];
    fuzz(peer_targets::references, &inputs, WORDS);
}

#[test]
fn resync_query() {
    let inputs: [&[u8]; 3] = [
        b"node-for-replicas=127.0.0.1&cluster-view-id=292733975804248076",
        b"node-for-replicas=%5B::1%5d:7254&cluster-view-id=18446744073709551615&time-from=3590000",
        b"x&time-from=0&cluster-view-id=0&node-for-replicas=a.b_c-d~&y=z=",
    ];
    let tokens: &[&[u8]] = &[
        b"&",
        b"=",
        b"%",
        b"%41",
        b"%0a",
        b"%c3",
        b"node-for-replicas=",
        b"cluster-view-id=",
        b"time-from=",
        b"100",
        b"+1",
        b"18446744073709551616",
        b"\xc3\xa9",
        b" ",
    ];
    fuzz(peer_targets::resync_query, &inputs, tokens);
}

#[test]
fn peer_message() {
    fuzz(peer_targets::peer_message, &seeds(&messages()), NUMBERS);
}

#[test]
fn peer_result() {
    let results = [
        PeerResult::Held,
        PeerResult::Superseded { version: 1 << 60, factor: 16 },
        PeerResult::Refused(PeerRefusal::FutureVersion),
        PeerResult::Found(b"a copy"),
        PeerResult::NotFound,
    ];
    let encoded = results.map(|result| {
        let mut out = Vec::new();
        result.encode(&mut out);
        out
    });
    fuzz(peer_targets::peer_result, &seeds(&encoded), NUMBERS);
}

#[test]
fn peer_frame() {
    let inputs = [
        frame(FrameKind::Messages, 0, 0, b""),
        frame(FrameKind::Results, 300, u32::MAX, b"\xac\x02"),
        frame(FrameKind::Messages, 2, 7, &[&[9; 10][..], &[0]].concat()).repeat(2),
    ];
    fuzz(peer_targets::peer_frame, &seeds(&inputs), NUMBERS);
}

#[test]
fn link_received() {
    let with = |messages: u8, frames: &[Vec<u8>]| [&[messages][..], &frames.concat()].concat();
    let results = |count, first, body: &[u8]| frame(FrameKind::Results, count, first, body);
    let inputs = [
        with(3, &[results(3, 0, &[3])]),
        with(4, &[results(1, 0, &[0, 2]), results(0, 1, &[]), results(3, 1, &[1, 4, 0, 7])]),
        with(200, &[results(200, 0, &[0x63, 6, 2, b'a', b'b', 0x64])]),
        with(2, &[results(2, 0, &[0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 5, 1])]),
    ];
    fuzz(peer_targets::link_received, &seeds(&inputs), NUMBERS);
}

#[test]
fn inbound_received() {
    let mut body = Vec::new();
    for message in &messages()[..3] {
        write_leb128(message.len() as u64, &mut body);
        body.extend_from_slice(message);
    }
    let inputs = [
        frame(FrameKind::Messages, 3, 0, &body),
        [
            frame(FrameKind::Messages, 0, 0, b""),
            frame(FrameKind::Messages, 4, 0, &[0, 1, 9, 0, 0]),
            frame(FrameKind::Messages, 1, 4, b"\x05hello"),
        ]
        .concat(),
    ];
    fuzz(peer_targets::inbound_received, &seeds(&inputs), NUMBERS);
}

/// Words of the heads with which a connection between nodes begins.
const UPGRADES: &[&[u8]] = &[
    b"\r\n",
    b": ",
    b"GET /peer HTTP/1.1\r\n",
    b"HTTP/1.1 101 x\r\n",
    b"HTTP/1.1 401 x\r\n",
    b"HTTP/1.1 403 x\r\n",
    b"Connection: keep-alive, upgrade\r\n",
    b"Upgrade: chronos-peer/1\r\n",
    b"Upgrade: chronos-site/1\r\n",
    b"X-Chronos-Refused: secret\r\n",
    b"X-Chronos-Refused: address\r\n",
    b"X-Chronos-Site: site2\r\n",
    b"X-Chronos-Nonce: ",
    b"X-Chronos-Proof: ",
    b"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
    b"ABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCD",
    b"65536",
    b"18446744073709551616",
    b"\xc3\xa9",
];

fn hello() -> String {
    let word = "5a".repeat(32);
    format!(
        "Connection: Upgrade\r\nUpgrade: chronos-peer/1\r\nX-Chronos-Name: 10.0.0.2:7253\r\n\
         X-Chronos-Instance: 2\r\nX-Chronos-Incarnation: 0123456789abcdef\r\n\
         X-Chronos-View: 5\r\nX-Chronos-Shard: 0\r\nX-Chronos-Shards: 2\r\n\
         X-Chronos-Proof: {word}\r\n"
    )
}

#[test]
fn upgrade_request() {
    let (plain, nonce) = (hello().replace("-Proof", "-Nothing"), "a5".repeat(32));
    let inputs = [
        format!("GET /peer HTTP/1.1\r\nHost: h\r\n{plain}\r\n").into_bytes(),
        format!("GET /peer HTTP/1.1\r\n{}X-Chronos-Nonce: {nonce}\r\n\r\n", hello()).into_bytes(),
    ];
    fuzz(peer_targets::upgrade_request, &seeds(&inputs), UPGRADES);
}

#[test]
fn upgrade_answer() {
    let nonce = "a5".repeat(32);
    let inputs = [
        format!("HTTP/1.1 101 Switching Protocols\r\n{}\r\nframes", hello()).into_bytes(),
        format!("HTTP/1.1 401 Unauthorized\r\nX-Chronos-Nonce: {nonce}\r\n\r\n").into_bytes(),
        b"HTTP/1.1 403 Forbidden\r\nX-Chronos-Refused: secret\r\n\r\n".to_vec(),
    ];
    fuzz(peer_targets::upgrade_answer, &seeds(&inputs), UPGRADES);
}

#[test]
fn signing_secrets() {
    let inputs: [&[u8]; 2] = [
        b"# the present one\n\n  whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\r\n",
        b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\nwhsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3OA==",
    ];
    let tokens: &[&[u8]] = &[b"\n", b"\r\n", b"#", b"=", b"==", b"whsec_", b"\0", b"\xff", b"MDEy"];
    fuzz(peer_targets::signing_secrets, &inputs, tokens);
}

#[test]
fn secrets() {
    let inputs: [&[u8]; 2] = [
        b"# of this cluster\n\n  0123456789abcdef0123456789abcdef\r\n",
        b"0123456789abcdef0123456789abcdef\nfedcba9876543210fedcba9876543210fedcba98",
    ];
    let tokens: &[&[u8]] = &[b"\n", b"\r\n", b"#", b" ", b"\0", b"\xff", b"0123456789abcdef"];
    fuzz(peer_targets::secrets, &inputs, tokens);
}
