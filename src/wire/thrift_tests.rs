//! Tests of [`super::thrift`]. The byte examples come from runs of the original server
//! (docs/compat/timestamp-service.md §10).

use proptest::prelude::*;

use super::thrift::*;

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn parse(bytes: &[u8]) -> Request<'_> {
    let (request, used) = parse_request(bytes).expect("a request").expect("complete");
    assert_eq!(used, bytes.len());
    request
}

/// Like [`parse`], and checks that no prefix of `bytes` is a request.
fn parsed(bytes: &[u8]) -> Request<'_> {
    let request = parse(bytes);
    for cut in 0..bytes.len() {
        assert_eq!(parse_request(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
    request
}

const PLAIN: &str = "800100010000000c67657454696d657374616d700000000700";
const RANGE_100: &str = "800100010000000d67657454696d657374616d7073000000080800010000006400";

#[test]
fn the_originals_requests_are_understood() {
    let request = parsed(&unhex(PLAIN)).method;
    assert_eq!(request, Method::GetTimestamp);
    let bytes = unhex(RANGE_100);
    let request = parsed(&bytes);
    assert_eq!(request.method, Method::GetTimestamps { range: Some(100) });
    assert_eq!((request.name, request.seqid, request.is_oneway), (GET_TIMESTAMPS, 8, false));
    let missing = unhex("800100010000000d67657454696d657374616d70730000000900");
    assert_eq!(parsed(&missing).method, Method::GetTimestamps { range: None });
    let oneway = unhex("800100040000000c67657454696d657374616d700000000b00");
    assert!(parsed(&oneway).is_oneway);
    let unknown = unhex("8001000100000003666f6f0000000a00");
    assert_eq!(parsed(&unknown).method, Method::Unknown);
}

#[test]
fn replies_are_the_originals_byte_for_byte_in_the_old_form() {
    let bytes = unhex(PLAIN);
    let mut out = Vec::new();
    write_value(&mut out, Form::Old, &parsed(&bytes), 470_602_295_657_365_504);
    let seen = "0000000c67657454696d657374616d7002000000070a00000687ea4b6724000000";
    assert_eq!(out, unhex(seen));
    let bytes = unhex(RANGE_100);
    out.clear();
    write_value(&mut out, Form::Old, &parsed(&bytes), 470_602_295_710_318_592);
    let seen = "0000000d67657454696d657374616d707302000000080a00000687ea4b6a4c000000";
    assert_eq!(out, unhex(seen));
    let bytes = unhex("8001000100000003666f6f0000000a00");
    out.clear();
    write_unknown_method(&mut out, Form::Old, &parsed(&bytes));
    let seen = "00000003666f6f030000000a0b00010000001a496e76616c6964206d6574686f64206e616d653a20\
                27666f6f270800020000000100";
    assert_eq!(out, unhex(seen));
}

#[test]
fn a_strict_reply_differs_in_its_head_alone() {
    let bytes = unhex(PLAIN);
    let mut out = Vec::new();
    write_value(&mut out, Form::Strict, &parsed(&bytes), 470_602_295_657_365_504);
    let expected = "800100020000000c67657454696d657374616d70000000070a00000687ea4b6724000000";
    assert_eq!(out, unhex(expected));
}

#[test]
fn what_the_original_closes_on_is_refused() {
    let refused = |hex: &str| parse_request(&unhex(hex)).expect_err("refused");
    let old = "0000000c67657454696d657374616d70010000000100";
    assert_eq!(refused(old), ThriftError::Unversioned);
    let framed = "00000019800100010000000c67657454696d657374616d700000000100";
    assert_eq!(refused(framed), ThriftError::Unversioned);
    let version_2 = "800200010000000c67657454696d657374616d700000000100";
    assert_eq!(refused(version_2), ThriftError::Version);
    let compact = "8221010c67657454696d657374616d7000";
    assert_eq!(refused(compact), ThriftError::Version);
    assert_eq!(refused("8001000100002801"), ThriftError::StringLength(10_241));
    assert_eq!(refused("80010001ffffffff"), ThriftError::StringLength(-1));
    assert_eq!(refused("80010002"), ThriftError::MessageType(2));
    assert_eq!(parse_request(b"GET / HTTP/1.1\r\n"), Err(ThriftError::Unversioned));
}

/// A request with `fields` before the range.
fn with_fields(fields: &[u8]) -> Vec<u8> {
    let mut bytes = unhex("800100010000000d67657454696d657374616d707300000008");
    bytes.extend_from_slice(fields);
    bytes.extend_from_slice(&[8, 0, 1, 0, 0, 0, 5, 0]);
    bytes
}

#[test]
fn fields_of_every_type_are_skipped() {
    let fields: [&[u8]; 14] = [
        &[2, 0, 9, 1],
        &[3, 0, 9, 1],
        &[4, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8],
        &[6, 0, 9, 1, 2],
        &[8, 0, 9, 1, 2, 3, 4],
        &[10, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8],
        &[11, 0, 1, 0, 0, 0, 2, b'a', b'b'],
        &[12, 0, 9, 12, 0, 1, 0, 8, 0, 1, 0, 0, 0, 9, 0],
        &[13, 0, 9, 11, 8, 0, 0, 0, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 7],
        &[13, 0, 9, 0, 0, 0, 0, 0, 0],
        &[14, 0, 9, 2, 0, 0, 0, 3, 1, 0, 1],
        &[15, 0, 9, 15, 0, 0, 0, 1, 6, 0, 0, 0, 2, 0, 1, 0, 2],
        &[15, 0, 9, 12, 0, 0, 0, 2, 0, 0],
        &[16, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    ];
    for field in fields {
        let bytes = with_fields(field);
        assert_eq!(parsed(&bytes).method, Method::GetTimestamps { range: Some(5) }, "{field:?}");
    }
    let bytes = with_fields(&fields.concat());
    assert_eq!(parsed(&bytes).method, Method::GetTimestamps { range: Some(5) });
}

#[test]
fn what_is_skipped_is_bounded() {
    let refused = |fields: &[u8]| parse_request(&with_fields(fields)).expect_err("refused");
    assert_eq!(refused(&[1, 0, 9]), ThriftError::FieldType(1));
    assert_eq!(refused(&[15, 0, 9, 5, 0, 0, 0, 1]), ThriftError::FieldType(5));
    assert_eq!(refused(&[14, 0, 9, 2, 0xff, 0, 0, 0]), ThriftError::ContainerSize(-16_777_216));
    assert_eq!(
        refused(&[15, 0, 9, 2, 0x7f, 0xff, 0xff, 0xff]),
        ThriftError::TooLong(REQUEST_BYTES_MAX)
    );
    assert_eq!(
        refused(&[15, 0, 9, 10, 0x7f, 0xff, 0xff, 0xff]),
        ThriftError::TooLong(REQUEST_BYTES_MAX)
    );
    let many = [[2, 0, 9, 1]; VALUES_MAX as usize].concat();
    assert_eq!(refused(&many), ThriftError::TooMany, "the range is one too many");
    let few = with_fields(&many[4..]);
    assert_eq!(parsed(&few).method, Method::GetTimestamps { range: Some(5) });
    let nested = |depth| [[12, 0, 9].repeat(depth), vec![0; depth]].concat();
    assert_eq!(refused(&nested(DEPTH_MAX as usize + 1)), ThriftError::TooDeep);
    let deep = with_fields(&nested(DEPTH_MAX as usize));
    assert_eq!(parsed(&deep).method, Method::GetTimestamps { range: Some(5) });
    let text = [&[11, 0, 9, 0, 0, 0x28, 0][..], &[b'x'; STRING_BYTES_MAX]].concat();
    assert_eq!(parse_request(&with_fields(&text)).map(|parsed| parsed.is_some()), Ok(true));
    assert_eq!(refused(&text.repeat(2)), ThriftError::TooLong(REQUEST_BYTES_MAX));
}

#[test]
fn a_range_of_another_type_is_no_range_and_the_last_one_counts() {
    let mut bytes = unhex("800100010000000d67657454696d657374616d707300000008");
    bytes.extend_from_slice(&[10, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(parsed(&bytes).method, Method::GetTimestamps { range: None });
    let bytes = with_fields(&[8, 0, 1, 0, 0, 0, 4]);
    assert_eq!(parsed(&bytes).method, Method::GetTimestamps { range: Some(5) });
}

#[test]
fn an_unknown_method_of_the_longest_name_fits_a_reply() {
    for byte in [b'x', 0xff] {
        let mut bytes = unhex("8001000100002800");
        bytes.extend_from_slice(&[byte; STRING_BYTES_MAX]);
        bytes.extend_from_slice(&[0, 0, 0, 1, 0]);
        let mut out = Vec::new();
        write_unknown_method(&mut out, Form::Strict, &parse(&bytes));
        assert!(parse_reply(&out).is_ok_and(|reply| reply.is_some()));
    }
}

fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Strict), Just(Form::Old)]
}

proptest! {
    #[test]
    fn calls_come_back_as_they_were(seqid: i32, range: i32, is_range: bool) {
        let mut out = Vec::new();
        let (method, name) = if is_range {
            write_get_timestamps(&mut out, seqid, range);
            (Method::GetTimestamps { range: Some(range) }, GET_TIMESTAMPS)
        } else {
            write_get_timestamp(&mut out, seqid);
            (Method::GetTimestamp, GET_TIMESTAMP)
        };
        prop_assert_eq!(parsed(&out), Request { method, name, seqid, is_oneway: false });
    }

    #[test]
    fn replies_come_back_as_they_were(
        form in any_form(), seqid: i32, value: i64, message in ".{0,40}", is_value: bool,
        name in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let request =
            Request { method: Method::Unknown, name: &name, seqid, is_oneway: false };
        let mut out = Vec::new();
        let outcome = if is_value {
            write_value(&mut out, form, &request, value);
            Outcome::Value(value)
        } else {
            let told = (ExceptionKind::InternalError, message.as_str());
            write_exception(&mut out, form, &request, told);
            Outcome::Exception { kind: 6, message: message.as_bytes() }
        };
        let expected = Reply { name: &name, seqid, outcome };
        prop_assert_eq!(parse_reply(&out), Ok(Some((expected, out.len()))));
        for cut in 0..out.len() {
            prop_assert_eq!(parse_reply(&out[..cut]), Ok(None));
        }
    }
}
