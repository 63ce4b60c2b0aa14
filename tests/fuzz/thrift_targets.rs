//! What must hold for the readers of Thrift's binary protocol, on every input; as `targets.rs` for
//! the others. Thrift's own implementation reads the same bytes: two readings of one request must
//! not differ.

use chronos::wire::thrift::{ExceptionKind, GET_TIMESTAMP, GET_TIMESTAMPS};
use chronos::wire::thrift::{
    Form, Method, Outcome, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reply, Request, STRING_BYTES_MAX,
    ThriftError, parse_reply, parse_request, write_exception, write_get_timestamp,
    write_get_timestamps, write_unknown_method, write_value,
};
use thrift::protocol::{TBinaryInputProtocol, TInputProtocol, TType};

/// Most prefixes of one input that are tried, beside those around its end.
const CUTS_MAX: usize = 16;

type Parsed<T> = Result<Option<(T, usize)>, ThriftError>;

/// What is accepted or refused is so at the byte that decides it, whatever follows.
fn check_cuts<'a, T: PartialEq + std::fmt::Debug>(
    data: &'a [u8],
    bytes_max: usize,
    parse: fn(&'a [u8]) -> Parsed<T>,
) {
    let whole = parse(data);
    let used = match &whole {
        Ok(Some((_, used))) => *used,
        Ok(None) => {
            assert!(data.len() < bytes_max, "a full message is accepted or refused");
            data.len()
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            data.len()
        }
    };
    assert!(used <= data.len() && used <= bytes_max);
    let step = (data.len() / CUTS_MAX).max(1);
    let edges = used.saturating_sub(2)..=used.min(data.len());
    for cut in (0..=data.len()).step_by(step).chain(edges) {
        match parse(&data[..cut]) {
            Ok(None) => assert!(cut < used || whole.is_err() || whole == Ok(None)),
            decided => assert_eq!(decided, whole, "at {cut}"),
        }
    }
}

/// Requests.
pub fn thrift_request(data: &[u8]) -> bool {
    check_cuts(data, REQUEST_BYTES_MAX, parse_request);
    let Ok(Some((request, used))) = parse_request(data) else { return false };
    assert!(request.name.len() <= STRING_BYTES_MAX);
    match request.method {
        Method::GetTimestamp => assert_eq!(request.name, GET_TIMESTAMP),
        Method::GetTimestamps { .. } => assert_eq!(request.name, GET_TIMESTAMPS),
        Method::Unknown => assert!(![GET_TIMESTAMP, GET_TIMESTAMPS].contains(&request.name)),
    }
    if let Ok((name, seqid, range)) = read_by_thrift(&data[..used]) {
        assert_eq!((name.as_bytes(), seqid), (request.name, request.seqid));
        if let Method::GetTimestamps { range: ours } = request.method {
            assert_eq!(ours, range);
        }
    }
    let mut plain = Vec::new();
    match request.method {
        Method::GetTimestamp => write_get_timestamp(&mut plain, request.seqid),
        Method::GetTimestamps { range: Some(range) } => {
            write_get_timestamps(&mut plain, request.seqid, range);
        }
        Method::GetTimestamps { range: None } | Method::Unknown => {}
    }
    if !plain.is_empty() {
        let expected = Request { is_oneway: false, ..request };
        assert_eq!(parse_request(&plain), Ok(Some((expected, plain.len()))), "written again");
    }
    for form in [Form::Strict, Form::Old] {
        answer(&request, form);
    }
    true
}

/// Every request can be answered, and the answer read.
fn answer(request: &Request<'_>, form: Form) {
    let (name, seqid) = (request.name, request.seqid);
    let mut out = Vec::new();
    write_value(&mut out, form, request, i64::MAX);
    let outcome = Outcome::Value(i64::MAX);
    assert_eq!(parse_reply(&out), Ok(Some((Reply { name, seqid, outcome }, out.len()))));
    out.clear();
    write_exception(&mut out, form, request, (ExceptionKind::InternalError, "no"));
    let outcome = Outcome::Exception { kind: 6, message: b"no" };
    assert_eq!(parse_reply(&out), Ok(Some((Reply { name, seqid, outcome }, out.len()))));
    out.clear();
    write_unknown_method(&mut out, form, request);
    assert!(matches!(parse_reply(&out), Ok(Some((_, used))) if used == out.len()));
}

/// Name, sequence number and range as Thrift's own implementation reads them.
fn read_by_thrift(bytes: &[u8]) -> thrift::Result<(String, i32, Option<i32>)> {
    let mut input = TBinaryInputProtocol::new(bytes, true);
    let message = input.read_message_begin()?;
    let mut range = None;
    input.read_struct_begin()?;
    loop {
        let field = input.read_field_begin()?;
        match (field.field_type, field.id) {
            (TType::Stop, _) => break,
            (TType::I32, Some(1)) => range = Some(input.read_i32()?),
            (other, _) => input.skip(other)?,
        }
        input.read_field_end()?;
    }
    Ok((message.name, message.sequence_number, range))
}

/// Replies.
pub fn thrift_reply(data: &[u8]) -> bool {
    check_cuts(data, REPLY_BYTES_MAX, parse_reply);
    let Ok(Some((reply, used))) = parse_reply(data) else { return false };
    assert!(reply.name.len() < used);
    if let Outcome::Exception { message, .. } = reply.outcome {
        assert!(message.len() < used);
    }
    true
}
