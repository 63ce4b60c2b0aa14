//! Inputs of the targets in `option_targets.rs`.

use chronos::wire::attributes::{Acted, Attributes, CallbackMethod, CronTiming, RetryPolicy};
use chronos::wire::dead_letter::{DeadLetter, Failure, GivenUp, Replay};
use chronos::wire::report::{ReportKind, Reported};

use super::{fuzz, option_targets};

#[test]
fn timer_options() {
    fuzz(
        option_targets::timer_options,
        &[
            br#"{"timing":{"at":"2027-01-15T10:00:00.5+02:00","window":"PT5M"},"callback":{"http":{
                "uri":"http://a/b","opaque":"x","method":"PUT","content-type":"a/b; c=\"d\""}}}"#,
            br#"{"timing":{"interval":"PT1M30S","repeat-for":"P1DT12H"},"callback":{"http":{
                "uri":"http://[::1]:9/p?q","opaque-base64":"AAEC/w=="},"retry":{"max-attempts":8,
                "max-age":"PT24H","initial":"PT1S","multiplier":1.5,"max":"PT1H","jitter":0.2},
                "timeout":"PT15S"},"statistics":{"tag-info":[{"type":"CALL"}]}}"#,
            br#"{"callback":{"timeout":0.001,"retry":{},"http":{"uri":"http://a","opaque":"",
                "headers":{"Authorization":"Bearer abc","X-A":"","x-!#$":"a\tb"}}},
                "timing":{"interval":0,"window":3600}}"#,
            br#"{"timing":{"interval":1},"callback":{"dead-letter":{"uri":"https://b:9/dead?c"},
                "http":{"uri":"http://a","opaque":""}}}"#,
            br#"{"timing":{"interval":1},"callback":{"on-success":"https://b:9/yes?c","on-failure":
                "http://c/","http":{"uri":"http://a","opaque":""}}}"#,
            br#"{"timing":{"at":"1969-07-20T20:17:40Z"},"callback":{"http":{"uri":"http://a/",
                "opaque":"\u0000","headers":{}}},"reliability":{"replication-factor":3}}"#,
        ],
        &[
            b"\"at\":",
            b"\"window\":",
            b"\"interval\":",
            b"\"repeat-for\":",
            b"\"retry\":{",
            b"\"timeout\":",
            b"\"dead-letter\":{",
            b"\"on-success\":\"http://d/\",",
            b"\"method\":\"GET\",",
            b"\"content-type\":",
            b"\"headers\":{",
            b"\"opaque-base64\":",
            b"\"opaque\":",
            b"\"max-attempts\":200,",
            b"\"max-age\":",
            b"\"initial\":",
            b"\"multiplier\":100,",
            b"\"max\":",
            b"\"jitter\":1,",
            b"\"PT15M\"",
            b"\"P100D\"",
            b"\"P1Y\"",
            b"\"-PT1S\"",
            b"\"2127-01-15T00:00:00Z\"",
            b"23:59:60",
            b"+14:00",
            b"\"Host\":\"a\",",
            b"\"X-B\":\"c\",",
            b"\\r\\n",
            b"\\u0000",
            b"\\u00e9",
            b"1e300",
            b"-1",
            b"0.0004",
            b"0.0005",
            b"3162240000",
            b"31622400",
            b"null",
            b"{}",
            b",",
            b"}",
        ],
    );
}

fn letter() -> DeadLetter<'static> {
    DeadLetter {
        is_on_its_way: false,
        uri_failed: true,
        reason: GivenUp::Attempts,
        failure: Failure::Status,
        attempts: 8,
        status: Some(503),
        given_up_ms: 1_800_000_000_000,
        until_ms: 1_800_600_000_000,
        sequence: 3,
        answer: b"no such user",
    }
}

/// A timer that has everything.
fn all() -> Attributes<'static> {
    let cron = CronTiming {
        expression: "0 0 9 * * MON-FRI",
        zone: "Europe/London",
        due_ms: 1 << 40,
        done: 7,
        catch_up_ms: 60_000,
        end_ms: Some(1 << 41),
    };
    Attributes {
        cron: Some(cron),
        name: Some("a \u{20ac}"),
        once: Some(7),
        is_binary: true,
        method: CallbackMethod::Patch,
        content_type: Some("a/b"),
        headers: "X-A: b\r\nX-C: \r\n",
        at_ms: Some(1_800_000_000_000),
        window_ms: Some(300_000),
        retry: Some(RetryPolicy::default()),
        timeout_ms: Some(15_000),
        letter: Some(letter()),
        replay: Some(Replay { count: 2, sequence: 3 }),
        on_success: Some("https://reports.example/yes"),
        on_failure: Some("http://reports.example/no"),
        dead_letter_uri: Some("https://letters.example/dead?a"),
        is_paused: true,
        acted: Some(Acted { root: 1 << 63, at_ms: 1 << 40, pop: 3 }),
        report: Some(Reported { kind: ReportKind::Success, sequence: 300 }),
    }
}

#[test]
fn attributes() {
    let few = Attributes { window_ms: Some(1), ..Attributes::default() };
    let written = |attributes: &Attributes<'_>| {
        let mut out = Vec::new();
        attributes.write(&mut out);
        out
    };
    fuzz(
        option_targets::attributes,
        &[&written(&all()), &written(&few), b""],
        &[
            b"\x01\x00",
            b"\x02\x01\x04",
            b"\x03\x01a",
            b"\x04\x06a: b\r\n",
            b"\x05\x01\x00",
            b"\x06\x01\x00",
            b"\x08\x01\x01",
            b"\x09\x00",
            b"\x0c\x08\x00\x00\x01\x02\x00\x01\x02\x01",
            b"\x0d\x02\x01\x07",
            b"\x0e\x08http://a",
            b"\x0f\x08http://a",
            b"\x11\x08http://a",
            b"\x12\x02\x02\x07",
            b"\r\n",
            b": ",
            b"Host: a\r\n",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x80\x00",
            b"\x00",
        ],
    );
}

#[test]
fn retry_after() {
    fuzz(
        option_targets::retry_after,
        &[b"120", b" 0 ", b"99999999999999999999", b"Wed, 21 Oct 2015 07:28:00 GMT"],
        &[b"GMT", b"UTC", b"+0000", b"-", b"+", b"1", b"0", b"4294967296", b" ", b"Wed, ", b":60"],
    );
}
