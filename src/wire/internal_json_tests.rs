//! The documents of the internal HTTP API. What an original sends can be read, and what this
//! service writes an original can read.

use super::internal_json::*;
use super::resync_json::*;
use super::timer_json::{JsonScratch, Tag, parse_timer};
use crate::base::ids::TimerId;
use crate::base::limits::INTERVAL_MS_MAX;
use crate::base::time::WallMs;
use crate::wire::peer_message::{SEQUENCE_MAX, START_MS_MAX};

/// The message of docs/compat/timer-service.md §5.1, on one line as on the wire.
const WATCHED: &str = concat!(
    r#"{"timing":{"start-time":4200796160,"start-time-delta":-4004,"sequence-number":1,"#,
    r#""interval":2,"repeat-for":4},"#,
    r#""callback":{"http":{"uri":"http://127.0.0.1:9901/ok/repl0","opaque":"OPAQUE-DATA"}},"#,
    r#""reliability":{"cluster-view-id":"5030520784871784460","#,
    r#""replicas":["127.0.0.9","127.0.0.1"],"sites":["site1"]},"#,
    r#""statistics":{"tag-info":[]}}"#
);

/// The timer of [`WATCHED`], as this service writes it for an original.
fn watched() -> InternalTimer<'static> {
    InternalTimer {
        now: WallMs((1 << 40) + 4_200_796_160 + 4_004),
        start_delta_ms: -4_004,
        sequence: 1,
        interval_ms: 2_000,
        repeat_for_ms: 4_000,
        callback: Some(InternalCallback {
            authority: "127.0.0.1:9901",
            target: "/ok/repl0",
            opaque: "OPAQUE-DATA",
        }),
        view_id: 5_030_520_784_871_784_460,
        replicas: &["127.0.0.9", "127.0.0.1"],
        sites: &["site1"],
        factor: None,
        tags: &[],
        version: None,
        actives: None,
        owner: None,
        content: None,
        once: None,
    }
}

fn written(timer: &InternalTimer<'_>) -> String {
    let mut out = Vec::new();
    write_internal(timer, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

/// The parsed document on one line, or the reason of the refusal.
fn read(body: &str) -> Result<String, String> {
    let (mut bytes, mut scratch) = (body.as_bytes().to_vec(), JsonScratch::default());
    parse_any(&mut bytes, &mut scratch)
        .map(|document| format!("{document:?}"))
        .map_err(|error| error.0.into_owned())
}

fn with_document<T>(body: &str, look: impl FnOnce(AnyDocument<'_>) -> T) -> T {
    let (mut bytes, mut scratch) = (body.as_bytes().to_vec(), JsonScratch::default());
    look(parse_any(&mut bytes, &mut scratch).unwrap_or_else(|error| panic!("{body}: {error}")))
}

fn with_internal<T>(body: &str, look: impl FnOnce(InternalPart<'_>) -> T) -> T {
    with_document(body, |document| look(document.internal.expect("from a node")))
}

#[test]
fn what_an_original_node_sends() {
    with_document(WATCHED, |document| {
        let timer = document.timer;
        assert_eq!((timer.interval_s, timer.repeat_for_s), (2.0, Some(4.0)));
        assert_eq!((timer.uri, timer.opaque), ("http://127.0.0.1:9901/ok/repl0", "OPAQUE-DATA"));
        assert_eq!(timer.replication_factor, None);
        let expected = InternalPart {
            origin: Origin::Peer,
            start_delta_ms: Some(-4_004),
            start_wall_ms: Some(4_200_796_160),
            sequence: 1,
            view_id: Some(5_030_520_784_871_784_460),
            replicas: ["127.0.0.9", "127.0.0.1"].into_iter().collect(),
            sites: ["site1"].into_iter().collect(),
            version: None,
            actives: None,
            owner: None,
            content: None,
            once: None,
            tags_dropped: 0,
        };
        assert_eq!(document.internal, Some(expected));
    });
}

#[test]
fn what_is_written_is_what_an_original_writes() {
    assert_eq!(written(&watched()), WATCHED);
    let tags = [Tag { kind: "CALL", count: 1 }, Tag { kind: "R\"G", count: u32::MAX }];
    let tagged = written(&InternalTimer { tags: &tags, ..watched() });
    let tag_info = r#"[{"type":"CALL","count":1},{"type":"R\"G","count":4294967295}]"#;
    assert_eq!(tagged, WATCHED.replace("[]", tag_info));
    let tombstone = written(&InternalTimer { callback: None, ..watched() });
    let empty = r#"{"uri":"","opaque":""}"#;
    let begins = WATCHED.find(r#"{"uri""#).expect("a callback");
    let ends = WATCHED.find(r#"},"reliability"#).expect("reliability");
    assert_eq!(tombstone, format!("{}{empty}{}", &WATCHED[..begins], &WATCHED[ends..]));
}

#[test]
fn nothing_is_lost_between_two_of_ours() {
    let ours = InternalTimer {
        interval_ms: 1_001,
        repeat_for_ms: 60_060,
        factor: Some(16),
        version: Some(u64::MAX),
        actives: Some(0b101),
        owner: Some("billing"),
        start_delta_ms: -(START_MS_MAX as i64),
        sequence: SEQUENCE_MAX,
        tags: &[Tag { kind: "\u{e9}", count: 7 }],
        callback: Some(InternalCallback {
            authority: "[::1]:80",
            target: "?x",
            opaque: "\0\"\\\n\u{1f600}",
        }),
        ..watched()
    };
    with_document(&written(&ours), |document| {
        let (timer, part) = (document.timer, document.internal.expect("from a node"));
        assert_eq!((timer.interval_s, timer.repeat_for_s), (1.001, Some(60.06)));
        assert_eq!((timer.uri, timer.opaque), ("http://[::1]:80?x", "\0\"\\\n\u{1f600}"));
        assert_eq!(timer.tags.as_slice(), ours.tags);
        assert_eq!(timer.replication_factor, Some(16));
        assert_eq!((part.version, part.actives), (ours.version, ours.actives));
        assert_eq!(part.owner, Some("billing"));
        assert_eq!(part.start_delta_ms, Some(ours.start_delta_ms));
        assert_eq!(part.sequence, SEQUENCE_MAX);
    });
    let ended = InternalTimer { callback: None, once: Some((1 << 40) - 1), ..ours };
    with_document(&written(&ended), |document| {
        let part = document.internal.expect("from a node");
        assert_eq!((document.timer.uri, part.once), ("", ended.once));
    });
    // An original reads whole seconds: 2 s, as many times as 1.001 s fit into 60.06 s.
    let for_originals = r#""interval":2,"repeat-for":120,"#;
    assert!(written(&ours).contains(for_originals), "{}", written(&ours));
    // This repeat-for is shorter than one interval.
    let short = written(&InternalTimer { interval_ms: 1_500, repeat_for_ms: 1_200, ..watched() });
    assert!(short.contains(r#""interval":2,"repeat-for":2,"#), "{short}");
    for ms in [1, 999, 1_000, INTERVAL_MS_MAX - 1, INTERVAL_MS_MAX] {
        let timer = InternalTimer { interval_ms: ms, repeat_for_ms: ms, ..watched() };
        with_document(&written(&timer), |document| {
            assert_eq!((document.timer.interval_s * 1000.0).round() as u64, ms);
            assert_eq!(document.timer.repeat_for_s, Some(document.timer.interval_s));
        });
    }
}

#[test]
fn who_sent_it() {
    let body = |reliability: &str| {
        format!(
            r#"{{"timing":{{"interval":1}},"callback":{{"http":{{"uri":"http://a","opaque":""}}}},
                "reliability":{reliability}}}"#
        )
    };
    for (reliability, origin) in [
        (r#"{"replicas":[],"sites":["a"]}"#, Some(Origin::Peer)),
        (r#"{"replicas":["a"]}"#, Some(Origin::Peer)),
        (r#"{"sites":["a","b"],"replication-factor":2}"#, Some(Origin::Site)),
        (r#"{"sites":[]}"#, Some(Origin::Site)),
        (r#"{"cluster-view-id":"1","replication-factor":2}"#, None),
        (r#"{"x":{"replicas":[]}}"#, None),
        (r#"{}"#, None),
    ] {
        let got = with_document(&body(reliability), |document| {
            document.internal.map(|internal| internal.origin)
        });
        assert_eq!(got, origin, "{reliability}");
    }
}

#[test]
fn a_client_is_read_as_before() {
    for body in [
        r#"{"timing":{"interval":1,"repeat-for":3},"callback":{"http":{"uri":"http://a/b",
            "opaque":"x"}},"reliability":{"replication-factor":3},
            "statistics":{"tag-info":[{"type":"CALL"}]}}"#,
        r#"{"timing":{"interval":1},"callback":{"http":{"uri":"","opaque":""}}}"#,
        r#"{"timing":{"interval":1},"callback":{"http":{"uri":"http://a","opaque":""}},
            "statistics":{"tag-info":[{"type":"CALL","count":0}]}}"#,
        r#"{"timing":{"interval":"1"},"callback":{},"replicas":[],"reliability":[]}"#,
        r#"{"reliability":{"replication-factor":"x"}}"#,
        "[]",
        "",
        "{",
    ] {
        let mut scratch = JsonScratch::default();
        let as_client = parse_timer(&mut body.as_bytes().to_vec(), &mut scratch)
            .map(|timer| format!("{:?}", AnyDocument { timer, internal: None, unknown: None }))
            .map_err(|error| error.0.into_owned());
        assert_eq!(read(body), as_client, "{body}");
    }
}

#[test]
fn tombstones() {
    for callback in [
        r#"{"http":{"uri":"","opaque":""}}"#,
        r#"{"http":{"opaque":""}}"#,
        r#"{"http":{}}"#,
        r#"{}"#,
    ] {
        let body = format!(
            r#"{{"timing":{{"interval":1,"repeat-for":2,"sequence-number":1}},"callback":{callback},
                "reliability":{{"replicas":["a"]}}}}"#
        );
        with_document(&body, |document| {
            assert_eq!((document.timer.uri, document.timer.opaque), ("", ""));
        });
    }
    with_document(r#"{"reliability":{"replicas":[]},"timing":{"interval":1}}"#, |document| {
        assert_eq!(document.timer.uri, "");
    });
    let opaque_alone = r#"{"reliability":{"replicas":[]},"timing":{"interval":1},
        "callback":{"http":{"opaque":"x"}}}"#;
    assert!(read(opaque_alone).expect_err("refused").starts_with("callback.http.uri: "));
}

#[test]
fn what_an_original_drops_is_dropped_and_counted() {
    let dropped = |statistics: &str| {
        let body = WATCHED.replace(r#"{"tag-info":[]}"#, statistics);
        with_document(&body, |document| {
            let internal = document.internal.expect("from a node");
            (document.timer.tags.as_slice().len(), internal.tags_dropped)
        })
    };
    assert_eq!(dropped("7"), (0, 1));
    assert_eq!(dropped("{}"), (0, 0));
    assert_eq!(dropped(r#"{"tag-info":{"type":"A"},"x":[[]]}"#), (0, 1));
    assert_eq!(
        dropped(
            r#"{"tag-info":[{"type":"A","count":0},{"type":"B"},null,{"count":1},{"type":"",
                "count":1},{"type":["x"],"y":[{"type":"Z"}]},{"type":"C","count":2}]}"#
        ),
        (2, 4)
    );
    let many = vec![r#"{"type":"A","count":1}"#; 20].join(",");
    assert_eq!(dropped(&format!(r#"{{"tag-info":[{many}]}}"#)), (16, 4));
    let view_id = |text: &str| {
        with_internal(&WATCHED.replace(r#""5030520784871784460""#, text), |part| part.view_id)
    };
    assert_eq!(view_id("17"), Some(17));
    assert_eq!(view_id(r#""18446744073709551615""#), Some(u64::MAX));
    for text in [r#""18446744073709551616""#, r#""""#, r#""+1""#, "null", "[1,2]", "1.5"] {
        assert_eq!(view_id(text), None, "{text}");
    }
}

#[test]
fn what_is_refused_of_a_node() {
    let refusal = |from: &str, to: &str| {
        assert!(WATCHED.contains(from), "{from}");
        read(&WATCHED.replace(from, to)).expect_err(to)
    };
    for (from, to, expected) in [
        ("-4004", "1.5", "timing.start-time-delta: expected a whole number, got 1.5"),
        ("-4004", "-18446744073710", "timing.start-time-delta: out of range"),
        ("-4004", "9223372036854775807", "timing.start-time-delta: out of range"),
        (
            r#"number":1,"#,
            r#"number":-1,"#,
            "timing.sequence-number: expected a whole number from 0 to 3162240000000, got -1",
        ),
        (
            r#"number":1,"#,
            r#"number":3162240000001,"#,
            "timing.sequence-number: expected a whole number from 0 to 3162240000000, \
             got 3162240000001",
        ),
        (r#""interval":2,"#, "", "timing.interval: missing, expected a number of seconds"),
        (
            r#"["site1"]"#,
            r#"["1","2","3","4","5","6","7","8","9"]"#,
            "reliability.sites: expected at most 8, got 9",
        ),
        (r#"["site1"]"#, "7", "reliability.sites: expected an array of names, got 7"),
        (r#"["site1"]"#, "[7]", "reliability.sites: expected a string, got 7"),
        (
            r#""127.0.0.9""#,
            r#""""#,
            "reliability.replicas: expected names of 1 to 260 bytes, got 0",
        ),
        (r#""sites""#, r#""replicas""#, "reliability.replicas: expected once, got it twice"),
        (
            r#""sites""#,
            r#""chronos-version":"-1","sites""#,
            "reliability.chronos-version: expected a decimal number in a string",
        ),
        (
            r#""sites""#,
            r#""chronos-actives":65536,"sites""#,
            "reliability.chronos-actives: expected a whole number from 0 to 65535, got 65536",
        ),
    ] {
        assert_eq!(refusal(from, to), expected);
    }
    let names = vec![r#""n""#; 17].join(",");
    let refused = refusal(r#""127.0.0.9","127.0.0.1""#, &names);
    assert_eq!(refused, "reliability.replicas: expected at most 16, got 17");
    let sixteen: Vec<String> = (0..16).map(|name| format!("\"{name}\"")).collect();
    let most = WATCHED.replace(r#""127.0.0.9","127.0.0.1""#, &sixteen.join(","));
    assert!(read(&most).is_ok(), "sixteen names");
    let names = vec![r#""n""#; 18].join(",");
    let refused = refusal(r#""127.0.0.9","127.0.0.1""#, &names);
    assert_eq!(refused, "reliability.replicas: expected at most 16, got 18");
    for cut in 0..WATCHED.len() {
        assert!(read(&WATCHED[..cut]).is_err(), "cut off at {cut}");
    }
}

#[test]
fn an_answer_to_a_resynchronisation() {
    // The page of docs/compat/timer-service.md §5.2 with its `Timer` written in full.
    let begins = r#"{"Timers":[{"TimerID":809146204028928,"OldReplicas":["127.0.0.1"],"Timer":"#;
    let expected = format!("{begins}{WATCHED}}}]}}");
    let mut out = Vec::new();
    let mut writer = ResyncWriter::begin(&mut out);
    writer.timer(TimerId(809_146_204_028_928), &["127.0.0.1"], &watched());
    assert_eq!(writer.count(), 1);
    writer.end();
    assert_eq!(String::from_utf8(out), Ok(expected.clone()));
    let mut two = Vec::new();
    let mut writer = ResyncWriter::begin(&mut two);
    writer.timer(TimerId(1), &[], &watched());
    writer.timer(TimerId(2), &[], &watched());
    writer.end();
    let one = |id: u64| format!(r#"{{"TimerID":{id},"OldReplicas":[],"Timer":{WATCHED}}}"#);
    assert_eq!(String::from_utf8(two), Ok(format!("{{\"Timers\":[{},{}]}}", one(1), one(2))));
    for body in [expected.clone(), expected.replace("\"Timers\"", "\"timers\"")] {
        let mut seen = 0;
        let mut bytes = body.into_bytes();
        parse_timers(&mut bytes, &mut JsonScratch::default(), |timer| {
            let timer = timer.expect("well-formed");
            assert_eq!(timer.id, TimerId(809_146_204_028_928));
            assert_eq!(timer.old_replicas.as_slice(), ["127.0.0.1"]);
            assert_eq!(timer.timer.timer.opaque, "OPAQUE-DATA");
            assert_eq!(timer.timer.internal.map(|part| part.sequence), Some(1));
            seen += 1;
        })
        .expect("an answer");
        assert_eq!(seen, 1);
    }
}

#[test]
fn one_timer_that_cannot_be_read_leaves_the_others() {
    let good = |id: u64| format!(r#"{{"TimerID":{id},"OldReplicas":[],"Timer":{WATCHED}}}"#);
    let body = [
        good(1),
        "7".into(),
        good(2),
        r#"{"TimerID":-1}"#.into(),
        r#"{"TimerID":3,"OldReplicas":[[[]]],"Timer":{}}"#.into(),
        format!(r#"{{"TimerID":4,"Timer":{}}}"#, WATCHED.replace("-4004", "null")),
        r#"{"OldReplicas":[]}"#.into(),
        good(u64::MAX),
    ];
    let mut bytes = format!(r#"{{"more":[{{}}],"Timers":[{}]}}"#, body.join(",")).into_bytes();
    let mut seen = Vec::new();
    parse_timers(&mut bytes, &mut JsonScratch::default(), |timer| {
        seen.push(timer.map(|timer| timer.id.0).map_err(|_| ()));
    })
    .expect("an answer");
    let bad = Err(());
    assert_eq!(seen, [Ok(1), bad, Ok(2), bad, bad, bad, bad, Ok(u64::MAX)]);
    for body in
        ["[]", "{}", r#"{"Timers":{}}"#, r#"{"Timers":[],"timers":[]}"#, "", "{\"Timers\":["]
    {
        let mut bytes = body.as_bytes().to_vec();
        let read = parse_timers(&mut bytes, &mut JsonScratch::default(), |_| panic!("{body}"));
        assert!(read.is_err(), "{body}");
    }
    let mut out = Vec::new();
    ResyncWriter::begin(&mut out).end();
    assert_eq!(out, br#"{"Timers":[]}"#);
    parse_timers(&mut out, &mut JsonScratch::default(), |_| panic!("there is none"))
        .expect("an answer");
}

#[test]
fn references() {
    let references = [
        Reference { id: TimerId(809_146_204_028_928), rank: 0 },
        Reference { id: TimerId(u64::MAX), rank: 15 },
    ];
    let expected = concat!(
        r#"{"IDs":[{"ID":809146204028928,"ReplicaIndex":0},"#,
        r#"{"ID":18446744073709551615,"ReplicaIndex":15}]}"#
    );
    for count in 0..=2 {
        let mut out = Vec::new();
        write_references(&references[..count], &mut out);
        assert!(count < 2 || out == expected.as_bytes());
        let mut read = Vec::new();
        parse_references(&mut out, &mut JsonScratch::default(), &mut read).expect("a body");
        assert_eq!(read, references[..count]);
    }
    let refused = |body: &str| {
        let mut read = vec![references[0]];
        let mut bytes = body.as_bytes().to_vec();
        parse_references(&mut bytes, &mut JsonScratch::default(), &mut read).expect_err(body);
        assert_eq!(read, references[..1], "{body}");
    };
    refused("{}");
    refused(r#"{"IDs":{}}"#);
    refused(r#"{"IDs":[7]}"#);
    refused(r#"{"IDs":[{"ID":1}]}"#);
    refused(r#"{"IDs":[{"ReplicaIndex":1}]}"#);
    refused(r#"{"IDs":[],"IDs":[]}"#);
    refused(&expected.replace(":15", ":16"));
    refused(&expected.replace(":15", ":-1"));
    refused(&expected.replace("18446744073709551615", "18446744073709551616"));
}

#[test]
fn queries() {
    let watched = "node-for-replicas=127.0.0.1&cluster-view-id=292733975804248076";
    let query = parse_query(watched).expect("as an original asks");
    let view_id = 292_733_975_804_248_076;
    assert_eq!(query, ResyncQuery { node: "127.0.0.1".into(), view_id, time_from_ms: None });
    let with_time = format!("{watched}&time-from=3590000");
    let query = parse_query(&with_time).expect("as an original asks");
    assert_eq!(query.time_from_ms, Some(3_590_000));
    let mut out = Vec::new();
    write_target(&query, &mut out);
    assert_eq!(String::from_utf8(out), Ok(format!("/timers?{with_time}")));
    let as_originals_ask = with_time.replace('&', ";");
    assert_eq!(parse_query(&as_originals_ask), Ok(query));
    let mixed = "cluster-view-id=7;x&node-for-replicas=a:1;;time-from=3";
    let query = parse_query(mixed).expect("either separates");
    assert_eq!((&*query.node, query.view_id, query.time_from_ms), ("a:1", 7, Some(3)));
    let escaped = "x&time-from=0&cluster-view-id=0&node-for-replicas=%5b::1%5D%3A7254&y=z=";
    let query = parse_query(escaped).expect("escaped");
    assert_eq!((&*query.node, query.view_id, query.time_from_ms), ("[::1]:7254", 0, Some(0)));
    for (query, reason) in [
        ("", "node-for-replicas: expected the name of a node"),
        ("node-for-replicas=&cluster-view-id=1", "node-for-replicas: expected the name of a node"),
        ("node-for-replicas&cluster-view-id=1", "node-for-replicas: expected the name of a node"),
        (
            "node-for-replicas=a%2&cluster-view-id=1",
            "node-for-replicas: expected the name of a node",
        ),
        ("node-for-replicas=a%0a", "node-for-replicas: expected the name of a node"),
        ("node-for-replicas=%c3%a9", "node-for-replicas: expected the name of a node"),
        ("node-for-replicas=a%+1", "node-for-replicas: expected the name of a node"),
        ("node-for-replicas=a", "cluster-view-id: expected a decimal number"),
        ("node-for-replicas=a&cluster-view-id=", "cluster-view-id: expected a decimal number"),
        ("cluster-view-id=-1", "cluster-view-id: expected a decimal number"),
        ("cluster-view-id=18446744073709551616", "cluster-view-id: expected a decimal number"),
        ("time-from=1.5", "time-from: expected a decimal number of milliseconds"),
        ("time-from=1&time-from=1", "query: a parameter comes twice"),
        ("time-from=1;time-from=1", "query: a parameter comes twice"),
    ] {
        assert_eq!(parse_query(query), Err(QueryError(reason)), "{query}");
    }
    let long = format!("node-for-replicas={}&cluster-view-id=1", "a".repeat(261));
    assert!(parse_query(&long).is_err());
}

#[test]
fn ranges() {
    assert_eq!(parse_range(b"100"), Some(100));
    assert_eq!(parse_range(b" 1\t"), Some(1));
    for text in
        [&b""[..], b"0", b"-1", b"+1", b"items=0-99", b"1 2", b"\xff", b"99999999999999999999"]
    {
        assert_eq!(parse_range(text), None, "{text:?}");
    }
}
