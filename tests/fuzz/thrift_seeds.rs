//! The targets of Thrift's binary protocol, with the original's bytes as seeds.

use crate::{fuzz, thrift_targets};

const TOKENS: &[&[u8]] = &[
    &[0x80, 1, 0, 1],
    &[0x80, 1, 0, 2],
    &[0x80, 1, 0, 4],
    &[0, 0, 0, 0],
    &[0, 0, 0, 1],
    &[0, 0, 0, 12],
    &[0, 0, 0x28, 0],
    &[0, 0, 0x28, 1],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x7f, 0xff, 0xff, 0xff],
    b"getTimestamp",
    b"getTimestamps",
    &[8, 0, 1, 0, 0, 0, 5],
    &[8, 0, 1],
    &[10, 0, 0],
    &[11, 0, 1, 0, 0, 0, 1, b'a'],
    &[12, 0, 3],
    &[13, 0, 4, 11, 12, 0, 0, 0, 1],
    &[14, 0, 5, 2, 0, 0, 0, 3, 1, 1, 1],
    &[15, 0, 6, 15, 0, 0, 0, 2],
    &[16, 0, 7],
    &[2, 0, 8, 1],
    &[3, 0, 8, 1],
    &[4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
    &[6, 0, 8, 0, 1],
    &[0],
];

#[test]
fn thrift_request() {
    fuzz(
        thrift_targets::thrift_request,
        &[
            b"\x80\x01\x00\x01\x00\x00\x00\x0cgetTimestamp\x00\x00\x00\x07\x00",
            b"\x80\x01\x00\x01\x00\x00\x00\x0dgetTimestamps\x00\x00\x00\x08\
              \x08\x00\x01\x00\x00\x00\x64\x00",
            b"\x80\x01\x00\x04\x00\x00\x00\x03foo\x00\x00\x00\x0a\x00",
            b"\x80\x01\x00\x01\x00\x00\x00\x0dgetTimestamps\x00\x00\x00\x08\
              \x0c\x00\x03\x0b\x00\x01\x00\x00\x00\x02ab\x00\
              \x0d\x00\x04\x08\x0c\x00\x00\x00\x01\x00\x00\x00\x05\x00\
              \x0f\x00\x05\x0e\x00\x00\x00\x01\x02\x00\x00\x00\x03\x01\x00\x01\
              \x08\x00\x01\x00\x04\x00\x00\x00",
        ],
        TOKENS,
    );
}

#[test]
fn thrift_reply() {
    fuzz(
        thrift_targets::thrift_reply,
        &[
            b"\x80\x01\x00\x02\x00\x00\x00\x0cgetTimestamp\x00\x00\x00\x07\
              \x0a\x00\x00\x06\x87\xea\x4b\x67\x24\x00\x00\x00",
            b"\x00\x00\x00\x0dgetTimestamps\x02\x00\x00\x00\x08\
              \x0a\x00\x00\x06\x87\xea\x4b\x6a\x4c\x00\x00\x00",
            b"\x00\x00\x00\x03foo\x03\x00\x00\x00\x0a\x0b\x00\x01\x00\x00\x00\x02no\
              \x08\x00\x02\x00\x00\x00\x01\x00",
            b"\x80\x01\x00\x03\x00\x00\x00\x00\x00\x00\x00\x07\x0c\x00\x09\x00\x00",
        ],
        TOKENS,
    );
}
