//! Seeds of the parsers of rules of destinations.

use super::{destination_targets, fuzz};

#[test]
fn destination_rule() {
    fuzz(
        destination_targets::destination_rule,
        &[
            b"{}",
            br#"{"max-in-flight":8,"rate-per-second":100,"paused":true}"#,
            br#"{"rate-per-second":0.001}"#,
            br#" { "paused" : false , "max-in-flight" : 1000000 } "#,
        ],
        &[
            b"max-in-flight",
            b"rate-per-second",
            b"paused",
            b"true",
            b"null",
            b"1e6",
            b"-0.0",
            b"1e-3",
            b"18446744073709551616",
            b"\"\\u0000\"",
            b"{",
            b"}",
            b",",
            b":",
            b"0",
            b"NaN",
        ],
    );
}

#[test]
fn destination_line() {
    fuzz(
        destination_targets::destination_line,
        &[
            b"a",
            b"10.0.0.1:8080 max-in-flight=8 rate-per-second=0.5 paused",
            b"[2001:db8::1]:80 rate-per-second=1e6",
            b"1800000000000 7 A.example. paused",
            b"1 4294967295 - [::1]",
        ],
        &[
            b"max-in-flight=",
            b"rate-per-second=",
            b"paused",
            b" ",
            b"  ",
            b"- ",
            b":80",
            b".",
            b"[::]",
            b"=",
            b"inf",
            b"nan",
            b"+1",
            b"0.0009",
            b"1e-3",
            b"18446744073709551616",
            b"\n",
        ],
    );
}
