//! Requests that are built once and patched. One more request costs a copy of some 300 bytes and
//! ten digits.
//!
//! Holes have a fixed width, so that Content-Length never changes. A number in JSON may not begin
//! with zeros. So a hole for seconds is filled up with spaces, which JSON allows before a value.

use std::net::SocketAddr;

/// Digits of a timer's number in the path of its callback.
const NUMBER_WIDTH: usize = 10;
/// Characters of an interval in seconds, with the spaces before it: `1234567.890`.
const SECONDS_WIDTH: usize = 11;
/// The text of which opaque bodies consist. None of its characters needs an escape in JSON.
const FILLER: &[u8] = b"call-leg-9f3c/terminating;sequence=0042/";
/// The opaque body of the `ralf` workload, as it stands inside a JSON string.
const RALF_OPAQUE: &str = concat!(
    r#"{\"event\":{\"Service-Information\":{\"IMS-Information\":"#,
    r#"{\"Role-Of-Node\":0,\"Node-Functionality\":0}},\"Accounting-Record-Type\":3}}"#
);

/// Bytes of a header's name and value.
const HEADER_BYTES: usize = 60;

/// The timer that a request asks for.
#[derive(Clone, Debug)]
pub struct TimerShape {
    /// The node's address, for the Host header.
    pub target: SocketAddr,
    /// The address that callbacks go to.
    pub callback: SocketAddr,
    /// Milliseconds to the first pop and between pops. `None` leaves a hole that each request
    /// fills.
    pub interval_ms: Option<u64>,
    /// Pops before the timer ends, at least 1.
    pub pops_each: u32,
    /// Bytes of the opaque body.
    pub opaque_bytes: usize,
    /// Headers of the callback, of [`HEADER_BYTES`] each, the same in all timers.
    pub headers: u32,
    /// Replicas asked for.
    pub replication_factor: u8,
    /// Whether timers look like those of the charging function of an IMS core: a call id in the
    /// path, an opaque body of that function, and a CALL tag.
    pub ralf: bool,
    /// The token that requests show; `None`: nobody needs one.
    pub token: Option<String>,
}

/// A request with holes for the timer's number and, if the shape leaves it open, the interval.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    number_at: usize,
    seconds_at: Option<usize>,
    /// Offset of the resource in a PUT. Method and space stand before it.
    resource_at: usize,
}

impl Template {
    /// A template for `POST /timers`.
    pub fn post(shape: &TimerShape) -> Template {
        Template::with_body("POST ", "/timers", shape)
    }

    /// A template for `PUT`. Each request names its resource.
    pub fn put(shape: &TimerShape) -> Template {
        Template::with_body("PUT ", "", shape)
    }

    fn with_body(method: &str, resource: &str, shape: &TimerShape) -> Template {
        let body = timer_body(shape);
        let token = shape.token.as_ref();
        let token =
            token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "{method}{resource} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             {token}Content-Length: {}\r\n\r\n",
            shape.target,
            body.len()
        );
        let bytes = [head.as_bytes(), body.as_bytes()].concat();
        let place = |hole: &[u8]| bytes.windows(hole.len()).position(|window| window == hole);
        let number_at = place(&[b'#'; NUMBER_WIDTH]).expect("the path of the callback has a hole");
        let seconds_at = place(&[b'@'; SECONDS_WIDTH]);
        Template { number_at, seconds_at, resource_at: method.len(), bytes }
    }

    /// Appends the request for timer `number`. `interval_ms` must be `Some` exactly if the shape
    /// left the interval open.
    pub fn append(&self, number: u64, interval_ms: Option<u64>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        self.patch(number, interval_ms, &mut out[start..], 0);
    }

    /// Appends the PUT of timer `number` on `resource`.
    pub fn append_on(&self, resource: &[u8], number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let (before, after) = self.bytes.split_at(self.resource_at);
        out.extend_from_slice(before);
        out.extend_from_slice(resource);
        out.extend_from_slice(after);
        self.patch(number, None, &mut out[start..], resource.len());
    }

    fn patch(&self, number: u64, interval_ms: Option<u64>, request: &mut [u8], shift: usize) {
        let at = self.number_at + shift;
        write_digits(number, &mut request[at..at + NUMBER_WIDTH]);
        assert_eq!(self.seconds_at.is_some(), interval_ms.is_some(), "a hole needs a value");
        // The hole stands twice, because a timer that pops once has the same interval and
        // repeat-for.
        let (Some(first), Some(ms)) = (self.seconds_at, interval_ms) else { return };
        let second = first + SECONDS_WIDTH + REPEAT_FOR_MEMBER.len();
        for at in [first + shift, second + shift] {
            write_seconds(ms, &mut request[at..at + SECONDS_WIDTH]);
        }
    }
}

/// The text between the values of interval and repeat-for.
const REPEAT_FOR_MEMBER: &str = r#","repeat-for":"#;

/// Appends `DELETE resource`.
pub fn append_delete(target: SocketAddr, resource: &[u8], out: &mut Vec<u8>) {
    use std::io::Write;
    out.extend_from_slice(b"DELETE ");
    out.extend_from_slice(resource);
    write!(out, " HTTP/1.1\r\nHost: {target}\r\n\r\n").expect("writing to memory cannot fail");
}

/// The number of the timer in the path of its callback: the last ten characters before a query.
/// `None`: they are not digits.
pub fn number_in_path(path: &[u8]) -> Option<u64> {
    let end = path.iter().position(|&byte| byte == b'?').unwrap_or(path.len());
    let digits = path[..end].get(end.checked_sub(NUMBER_WIDTH)?..)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Seconds with as many decimals as needed: 1500 becomes `1.5`.
pub fn seconds_text(ms: u64) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn timer_body(shape: &TimerShape) -> String {
    let hole = "@".repeat(SECONDS_WIDTH);
    let (interval, repeat_for) = match shape.interval_ms {
        Some(ms) => (seconds_text(ms), seconds_text(ms * u64::from(shape.pops_each))),
        None => (hole.clone(), hole),
    };
    let number = "#".repeat(NUMBER_WIDTH);
    let (path, opaque, tail) = if shape.ralf {
        // A call id as an IMS core makes it, `<number>@10.0.0.1`, URL-escaped. The number comes
        // last so that it can be found.
        let path = format!("/call-id/ims%40pcscf-1%3B{number}?timer-interim=true");
        let tags = r#","statistics":{"tag-info":[{"type":"CALL","count":1}]}"#;
        (path, RALF_OPAQUE.to_owned(), tags)
    } else {
        let filler: Vec<u8> = FILLER.iter().copied().cycle().take(shape.opaque_bytes).collect();
        let opaque = String::from_utf8(filler).expect("the filler is ASCII");
        (format!("/pop/{number}"), opaque, "")
    };
    let timing = format!(r#"{{"interval":{interval}{REPEAT_FOR_MEMBER}{repeat_for}}}"#);
    let headers = headers(shape.headers);
    let http =
        format!(r#"{{"uri":"http://{}{path}","opaque":"{opaque}"{headers}}}"#, shape.callback);
    let reliability = format!(r#"{{"replication-factor":{}}}"#, shape.replication_factor);
    format!(
        r#"{{"timing":{timing},"callback":{{"http":{http}}},"reliability":{reliability}{tail}}}"#
    )
}

/// The member of so many headers; empty: of none.
fn headers(count: u32) -> String {
    let header = |number| {
        let name = format!("X-Header-{number:02}");
        let value = "v".repeat(HEADER_BYTES - name.len());
        format!(r#""{name}":"{value}""#)
    };
    let members: Vec<String> = (0..count).map(header).collect();
    if members.is_empty() {
        String::new()
    } else {
        format!(r#","headers":{{{}}}"#, members.join(","))
    }
}

fn write_digits(mut number: u64, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    assert_eq!(number, 0, "timer numbers have at most {NUMBER_WIDTH} digits");
}

/// Writes seconds with three decimals, right-aligned behind spaces.
fn write_seconds(ms: u64, place: &mut [u8]) {
    let (whole, fraction) = place.split_at_mut(SECONDS_WIDTH - 4);
    fraction[0] = b'.';
    write_digits(ms % 1000, &mut fraction[1..]);
    let mut seconds = ms / 1000;
    for (index, digit) in whole.iter_mut().rev().enumerate() {
        *digit = if seconds == 0 && index > 0 { b' ' } else { b'0' + (seconds % 10) as u8 };
        seconds /= 10;
    }
    assert_eq!(seconds, 0, "an interval has at most seven digits of seconds");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::parse_head;

    fn shape(interval_ms: Option<u64>, ralf: bool) -> TimerShape {
        TimerShape {
            target: "127.0.0.1:7253".parse().unwrap(),
            callback: "127.0.0.1:9999".parse().unwrap(),
            interval_ms,
            pops_each: 1,
            opaque_bytes: 40,
            headers: 0,
            replication_factor: 1,
            ralf,
            token: None,
        }
    }

    fn body(request: &[u8]) -> serde_json::Value {
        let head = parse_head(request).unwrap().unwrap();
        assert_eq!(head.head_bytes + head.body_bytes, request.len(), "Content-Length fits");
        serde_json::from_slice(&request[head.head_bytes..]).unwrap()
    }

    #[test]
    fn post_is_valid_json_of_the_stated_size() {
        let mut request = Vec::new();
        Template::post(&shape(Some(3_600_000), false)).append(42, None, &mut request);
        let body = body(&request);
        assert_eq!(body["timing"]["interval"], 3600);
        assert_eq!(body["callback"]["http"]["uri"], "http://127.0.0.1:9999/pop/0000000042");
        assert_eq!(body["callback"]["http"]["opaque"].as_str().unwrap().len(), 40);
        assert!((280..330).contains(&request.len()), "{} bytes", request.len());
    }

    #[test]
    fn headers_have_the_stated_size_and_are_the_same_in_all_timers() {
        let shape = TimerShape { headers: 3, ..shape(Some(1_000), false) };
        let template = Template::post(&shape);
        let headers = [1, 2].map(|number| {
            let mut request = Vec::new();
            template.append(number, None, &mut request);
            body(&request)["callback"]["http"]["headers"].as_object().unwrap().clone()
        });
        assert_eq!(headers[0], headers[1]);
        assert_eq!(headers[0].len(), 3);
        for (name, value) in &headers[0] {
            assert_eq!(name.len() + value.as_str().unwrap().len(), HEADER_BYTES);
        }
    }

    #[test]
    fn open_interval_is_patched_in_both_places() {
        let template = Template::post(&shape(None, false));
        for (ms, seconds) in [(1, 0.001), (12_345, 12.345), (9_999_999_000, 9_999_999.0)] {
            let mut request = Vec::new();
            template.append(7, Some(ms), &mut request);
            let body = body(&request);
            assert_eq!(body["timing"]["interval"].as_f64(), Some(seconds));
            assert_eq!(body["timing"]["repeat-for"].as_f64(), Some(seconds));
        }
    }

    #[test]
    fn put_and_delete_name_the_resource() {
        let mut request = Vec::new();
        Template::put(&shape(Some(1500), true)).append_on(b"/timers/abc-1", 77, &mut request);
        assert!(request.starts_with(b"PUT /timers/abc-1 HTTP/1.1\r\nHost: 127.0.0.1:7253\r\n"));
        let body = body(&request);
        assert_eq!(body["timing"]["interval"], 1.5);
        assert_eq!(body["statistics"]["tag-info"][0]["type"], "CALL");
        let uri = body["callback"]["http"]["uri"].as_str().unwrap();
        assert_eq!(number_in_path(&uri.as_bytes()["http://127.0.0.1:9999".len()..]), Some(77));
        let opaque = body["callback"]["http"]["opaque"].as_str().unwrap();
        assert!((90..130).contains(&opaque.len()), "{}", opaque.len());
        assert!(serde_json::from_str::<serde_json::Value>(opaque).is_ok(), "opaque is JSON");

        let mut request = Vec::new();
        append_delete("[::1]:80".parse().unwrap(), b"/timers/abc-1", &mut request);
        assert_eq!(request, b"DELETE /timers/abc-1 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
    }

    #[test]
    fn numbers_come_back_from_paths() {
        assert_eq!(number_in_path(b"/pop/0000000042"), Some(42));
        assert_eq!(number_in_path(b"/pop/0000000042?a=1"), Some(42));
        for bad in [&b"/pop/42"[..], b"", b"/", b"/pop/00000000x2"] {
            assert_eq!(number_in_path(bad), None);
        }
        assert_eq!([0, 1, 1500, 60_000].map(seconds_text), ["0", "0.001", "1.5", "60"]);
    }
}
