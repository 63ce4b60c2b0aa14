//! From the members that the original service does not have to attributes of a timer: what each
//! means, and within which bounds.

use super::calendar::{Calendar, CalendarError};
use super::naming::Identity;
use super::rejection::Rejection;
use crate::base::limits::INTERVAL_MS_MAX;
use crate::base::time::WallMs;
use crate::wire::attributes::{
    ATTEMPTS_MAX, Attributes, CONTENT_TYPE_BYTES_MAX, CallbackMethod, CronTiming, HEADER_BYTES_MAX,
    MULTIPLIER_MILLI_MAX, POLICY_MS_MAX, RetryPolicy, TIMEOUT_MS_MAX, ZONE_BYTES_MAX,
};
use crate::wire::callback_headers::{check_header, is_header_value};
use crate::wire::callback_uri::parse_callback_uri;
use crate::wire::lasting::lasting_ms;
use crate::wire::timer_options::{Lasting, RetryDocument, TimerOptions};
use crate::wire::wall_time::{read_moment, write_wall_time};

/// How long a missed pop of a calendar is made up for, where the client does not say.
const CATCH_UP_MS_DEFAULT: u64 = 60_000;

/// What the options of a document make of a timer.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// The interval, where the document has a time instead.
    pub interval_ms: Option<u64>,
    /// The attributes, encoded.
    pub attributes: Vec<u8>,
    /// The opaque bytes, where the document has them in base64.
    pub opaque: Option<Vec<u8>>,
}

/// Checks the options of a document, and adds what its id was made of.
#[cold]
pub(super) fn admit_options(
    (options, identity): (Option<&TimerOptions<'_>>, Identity<'_>),
    wall: WallMs,
    opaque_bytes_max: u32,
) -> Result<Admitted, Rejection> {
    let none = TimerOptions::default();
    let options = options.unwrap_or(&none);
    let at_ms = options.at.map(|text| moment_ms("timing.at", text)).transpose()?;
    let interval_ms = at_ms.map(|at_ms| ahead_ms(at_ms, wall)).transpose()?;
    let opaque = options.opaque_base64.map(|text| bytes_of(text, opaque_bytes_max)).transpose()?;
    let cron = options.cron.map(|expression| calendar(expression, options, wall)).transpose()?;
    check_company(options)?;
    let interval_ms = cron.map_or(interval_ms, |cron| Some(cron.due_ms.saturating_sub(wall.0)));
    let headers = header_lines(options.headers.as_deref().unwrap_or_default())?;
    let attributes = Attributes {
        is_binary: opaque.is_some(),
        method: options.method.map(method).transpose()?.unwrap_or_default(),
        content_type: options.content_type.map(content_type).transpose()?,
        headers: &headers,
        at_ms,
        window_ms: lasting_of(options.window, "timing.window", (0, INTERVAL_MS_MAX))?,
        retry: options
            .retry
            .as_ref()
            .map(policy)
            .transpose()?
            .or(options.dead_letter.map(|_| RetryPolicy::default())),
        timeout_ms: lasting_of(options.timeout, "callback.timeout", (1, TIMEOUT_MS_MAX))?,
        cron,
        name: identity.name,
        once: identity.once,
        letter: None,
        replay: None,
        on_success: further_uri(options.on_success, "callback.on-success")?,
        on_failure: further_uri(options.on_failure, "callback.on-failure")?,
        dead_letter_uri: further_uri(
            options.dead_letter.and_then(|it| it.uri),
            "callback.dead-letter.uri",
        )?,
        is_paused: false,
        acted: None,
        report: None,
    };
    let mut encoded = Vec::new();
    attributes.write(&mut encoded);
    Ok(Admitted { interval_ms, attributes: encoded, opaque })
}

#[cold]
fn wrong(member: &str, expected: &str, got: &str) -> Rejection {
    let got: String = got.chars().take(60).collect();
    Rejection::Option(format!("{member}: expected {expected}, got {got}").into())
}

fn lasting_of(
    lasting: Option<Lasting<'_>>,
    member: &'static str,
    (min_ms, max_ms): (u64, u64),
) -> Result<Option<u64>, Rejection> {
    let Some(lasting) = lasting else { return Ok(None) };
    let ms = lasting_ms(lasting).filter(|ms| (min_ms..=max_ms).contains(ms));
    ms.map(Some).ok_or_else(|| {
        let got = match lasting {
            Lasting::Seconds(seconds) => seconds.to_string(),
            Lasting::Text(text) => text.to_owned(),
        };
        let (min, max) = (min_ms as f64 / 1000.0, max_ms / 1000);
        let expected = format!("seconds from {min} to {max}, or a duration as PT15M");
        wrong(member, &expected, &got)
    })
}

/// A moment of RFC 3339 in ms since 1970, rounded up so that a pop is not early.
fn moment_ms(member: &str, text: &str) -> Result<u64, Rejection> {
    if text.get(10..11) == Some(" ") {
        return Err(wrong(member, "a T between date and time as in 2026-12-01T09:00:00Z", text));
    }
    if has_far_offset(text) {
        return Err(wrong(member, "an offset from -23:59 to +23:59", text));
    }
    let expected = "a time of RFC 3339 as 2026-12-01T09:00:00Z";
    let moment = read_moment(text).ok_or_else(|| wrong(member, expected, text))?;
    // A leap second ends a day of UTC, in whatever zone it is told.
    match moment.has_second_60 && moment.ms.div_euclid(1_000).rem_euclid(86_400) > 0 {
        true => Err(wrong(member, "a second up to 59, or 23:59:60 of UTC", text)),
        false => Ok(moment.ms_up()),
    }
}

/// Whether a text ends with an offset that no clock has.
fn has_far_offset(text: &str) -> bool {
    let offset = text.len().checked_sub(6).and_then(|at| text.get(at..));
    let clock = offset.and_then(|offset| offset.strip_prefix(['+', '-']));
    let hours = clock.and_then(|clock| clock.split_once(':')).map(|(hours, _)| hours);
    hours.and_then(|hours| hours.parse::<u8>().ok()).is_some_and(|hours| hours > 23)
}

/// How a timer follows the calendar. Its first pop is the next moment of the expression.
fn calendar<'a>(
    expression: &'a str,
    options: &TimerOptions<'a>,
    wall: WallMs,
) -> Result<CronTiming<'a>, Rejection> {
    let refused = |error: CalendarError| Rejection::Option(error.to_string().into());
    let zone = options.time_zone.unwrap_or("UTC");
    if zone.len() > ZONE_BYTES_MAX {
        return Err(refused(CalendarError::Zone("a longer name".into())));
    }
    let calendar = Calendar::parse(expression, zone).map_err(refused)?;
    let catch_up = lasting_of(options.catch_up, "timing.catch-up-window", (0, INTERVAL_MS_MAX))?;
    let end_ms = options.end_at.map(|text| moment_ms("timing.end-at", text)).transpose()?;
    let due_ms = calendar.next_after(wall.0).ok_or_else(|| refused(CalendarError::Never))?;
    if let Some(end_at) = options.end_at.filter(|_| end_ms.is_some_and(|end_ms| end_ms < due_ms)) {
        let mut first = b"a time from the first pop on, ".to_vec();
        write_wall_time(WallMs(due_ms), &mut first);
        return Err(wrong("timing.end-at", &String::from_utf8_lossy(&first), end_at));
    }
    let catch_up_ms = catch_up.unwrap_or(CATCH_UP_MS_DEFAULT);
    Ok(CronTiming { expression, zone, due_ms, done: 0, catch_up_ms, end_ms })
}

/// Refuses what means something beside `timing.cron` alone.
fn check_company(options: &TimerOptions<'_>) -> Result<(), Rejection> {
    let alone = [
        ("timing.time-zone", options.time_zone.is_some()),
        ("timing.catch-up-window", options.catch_up.is_some()),
        ("timing.end-at", options.end_at.is_some()),
    ];
    match alone.iter().find(|(_, is_there)| *is_there && options.cron.is_none()) {
        Some((member, _)) => Err(wrong(member, "it beside timing.cron", "it alone")),
        None => Ok(()),
    }
}

/// A duration that is text, of a member that may be a number of seconds as well.
pub(super) fn duration_ms(text: &str, member: &'static str) -> Result<u64, Rejection> {
    let ms = lasting_of(Some(Lasting::Text(text)), member, (0, INTERVAL_MS_MAX))?;
    Ok(ms.unwrap_or_default())
}

/// How far ahead a moment is. What is past is now.
fn ahead_ms(at_ms: u64, wall: WallMs) -> Result<u64, Rejection> {
    let ahead_ms = at_ms.saturating_sub(wall.0);
    if ahead_ms > INTERVAL_MS_MAX {
        let got = format!("one that is {} days ahead", ahead_ms / 86_400_000);
        return Err(wrong("timing.at", "a time at most 100 years ahead", &got));
    }
    Ok(ahead_ms)
}

fn bytes_of(text: &str, bytes_max: u32) -> Result<Vec<u8>, Rejection> {
    use base64::Engine as _;
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    let decoded = decoded.map_err(|error| {
        let got = format!("text that is not ({error})");
        wrong("callback.http.opaque-base64", "base64 of RFC 4648 section 4 with padding", &got)
    })?;
    match decoded.len() > bytes_max as usize {
        true => Err(Rejection::OpaqueTooLong { max: bytes_max, got: decoded.len() }),
        false => Ok(decoded),
    }
}

/// A URI beside that of the callback.
fn further_uri<'a>(
    uri: Option<&'a str>,
    member: &'static str,
) -> Result<Option<&'a str>, Rejection> {
    let parsed = uri.map(|uri| parse_callback_uri(uri).map(|_| uri)).transpose();
    parsed.map_err(|error| Rejection::Option(format!("{member}: {}", error.0).into()))
}

fn method(name: &str) -> Result<CallbackMethod, Rejection> {
    CallbackMethod::named(name)
        .ok_or_else(|| wrong("callback.http.method", "POST, GET, PUT, PATCH or DELETE", name))
}

fn content_type(text: &str) -> Result<&str, Rejection> {
    let is_fit =
        (1..=CONTENT_TYPE_BYTES_MAX).contains(&text.len()) && is_header_value(text.as_bytes());
    is_fit.then_some(text).ok_or_else(|| {
        let expected = format!("1 to {CONTENT_TYPE_BYTES_MAX} bytes of visible ASCII");
        wrong("callback.http.content-type", &expected, &visible(text))
    })
}

fn visible(text: &str) -> String {
    text.chars().take(60).map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

fn header_lines(headers: &[(&str, &str)]) -> Result<String, Rejection> {
    const HEADERS: &str = "callback.http.headers";
    let mut lines = String::new();
    for (place, (name, value)) in headers.iter().enumerate() {
        check_header(name, value).map_err(|error| {
            Rejection::Option(format!("{HEADERS}: {error}, got {}", visible(name)).into())
        })?;
        if headers.iter().take(place).any(|(former, _)| former.eq_ignore_ascii_case(name)) {
            return Err(wrong(HEADERS, "each header once", &format!("{name} twice")));
        }
        lines.extend([name, ": ", value, "\r\n"]);
    }
    match lines.len() > HEADER_BYTES_MAX {
        true => {
            let expected = format!("at most {HEADER_BYTES_MAX} bytes of names and values");
            Err(wrong(HEADERS, &expected, &lines.len().to_string()))
        }
        false => Ok(lines),
    }
}

fn policy(document: &RetryDocument<'_>) -> Result<RetryPolicy, Rejection> {
    let usual = RetryPolicy::default();
    let lasting = |lasting, member, min_ms, usual_ms| {
        lasting_of(lasting, member, (min_ms, POLICY_MS_MAX)).map(|ms| ms.unwrap_or(usual_ms))
    };
    let max_attempts = match document.max_attempts {
        None => usual.max_attempts,
        Some(asked) => {
            let fit = u16::try_from(asked).ok().filter(|most| (1..=ATTEMPTS_MAX).contains(most));
            fit.ok_or_else(|| {
                let expected = format!("1 to {ATTEMPTS_MAX}");
                wrong("callback.retry.max-attempts", &expected, &asked.to_string())
            })?
        }
    };
    let milli = |ratio: Option<f64>, member, (min, max): (u32, u32), usual: u32| {
        let Some(ratio) = ratio else { return Ok(usual) };
        let milli = (ratio * 1_000.0).round();
        let is_fit = milli >= f64::from(min) && milli <= f64::from(max);
        is_fit.then_some(milli as u32).ok_or_else(|| {
            let expected = format!("{} to {}", min / 1_000, max / 1_000);
            wrong(member, &expected, &ratio.to_string())
        })
    };
    let multiplier = "callback.retry.multiplier";
    Ok(RetryPolicy {
        max_attempts,
        max_age_ms: lasting(document.max_age, "callback.retry.max-age", 0, usual.max_age_ms)?,
        initial_ms: lasting(document.initial, "callback.retry.initial", 1, usual.initial_ms)?,
        max_ms: lasting(document.max, "callback.retry.max", 1, usual.max_ms)?,
        multiplier_milli: milli(
            document.multiplier,
            multiplier,
            (1_000, MULTIPLIER_MILLI_MAX),
            usual.multiplier_milli,
        )?,
        jitter_milli: milli(
            document.jitter,
            "callback.retry.jitter",
            (0, 1_000),
            usual.jitter_milli.into(),
        )? as u16,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(options: &TimerOptions<'_>) -> Result<Admitted, String> {
        let wall = WallMs(1_800_000_000_000);
        admit_options((Some(options), Identity::default()), wall, 100)
            .map_err(|rejection| rejection.to_string())
    }

    #[test]
    fn moments_are_met_and_never_early() {
        let at = |at| TimerOptions { at: Some(at), ..TimerOptions::default() };
        let interval = |text| admitted(&at(text)).map(|admitted| admitted.interval_ms);
        assert_eq!(interval("2027-01-15T08:00:00Z"), Ok(Some(0)), "now");
        assert_eq!(interval("2027-01-15T08:00:01Z"), Ok(Some(1_000)));
        for (text, ms) in [
            ("2027-01-15T08:00:00.1230000000000Z", 123),
            ("2027-01-15T09:00:00.1230000000001+01:00", 124),
            ("2027-01-15T08:00:00.123456789012Z", 124),
            ("2027-01-15T08:00:00.9999999999999999Z", 1_000),
        ] {
            assert_eq!(interval(text), Ok(Some(ms)), "{text}");
        }
        assert_eq!(interval("2027-01-15T10:00:01+02:00"), Ok(Some(1_000)));
        assert_eq!(interval("2027-01-15T08:00:00.0001Z"), Ok(Some(1)));
        assert_eq!(interval("1969-01-01T00:00:00Z"), Ok(Some(0)), "past");
        assert_eq!(interval("2027-01-15t08:00:01.5z"), Ok(Some(1_500)));
        assert_eq!(interval("2027-01-15T08:00:01-00:00"), Ok(Some(1_000)));
        assert_eq!(interval("2027-01-15T23:59:60Z"), Ok(Some(57_600_000)), "a leap second");
        assert_eq!(interval("2027-01-16T00:59:60.5+01:00"), Ok(Some(57_600_500)), "the same");
        assert_eq!(interval("2027-01-16T07:59:00+23:59"), Ok(Some(0)), "the longest offset");
        for bad in [
            "",
            "tomorrow",
            "2027-13-01T00:00:00Z",
            "2027-01-15T08:00:00",
            "2027-01-15",
            "2027-01-15T08:00Z",
            "20270115T080000Z",
            "2027-01-15T08:00:00+0200",
            "2027-01-15T08:00:00+02",
            "2027-01-15T08:00:00.Z",
            "2027-01-15T08:00:00,5Z",
            "2027-01-15T08:00:61Z",
            "2027-01-15T24:00:00Z",
            "2027-02-29T08:00:00Z",
            "2027-01-15T08:00:00Z[Europe/London]",
            "2027-01-15T08:00:00Z ",
            "+002027-01-15T08:00:00Z",
            "2027-01-15T08:00:0\u{663}Z",
            "\u{1F600}\u{1F600}\u{1F600}\u{1F600}\u{1F600}\u{1F600}",
        ] {
            let error = interval(bad).expect_err(bad);
            assert!(error.starts_with("timing.at: expected a time of RFC 3339"), "{error}");
        }
        for (bad, said) in [
            ("2027-01-15 08:00:01Z", "timing.at: expected a T between date and time"),
            ("2027-01-16T08:00:00+24:00", "timing.at: expected an offset from -23:59 to +23:59"),
            ("2027-01-16T08:00:00-24:01", "timing.at: expected an offset from -23:59 to +23:59"),
            ("2027-01-16T09:59:00+25:59", "timing.at: expected an offset from -23:59 to +23:59"),
            ("2027-01-15T08:59:60Z", "timing.at: expected a second up to 59, or 23:59:60 of UTC"),
            ("2027-01-15T23:59:60+01:00", "timing.at: expected a second up to 59"),
        ] {
            let error = interval(bad).expect_err(bad);
            assert!(error.starts_with(said), "{error}");
        }
        let error = interval("2200-01-01T00:00:00Z").expect_err("too far");
        assert!(error.contains("at most 100 years ahead"), "{error}");
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let retry = |retry| TimerOptions { retry: Some(retry), ..TimerOptions::default() };
        let none = RetryDocument::default();
        let policies = [
            (RetryDocument { max_attempts: Some(0), ..none }, "callback.retry.max-attempts"),
            (RetryDocument { max_attempts: Some(i64::MAX), ..none }, "callback.retry.max-attempts"),
            (RetryDocument { multiplier: Some(0.5), ..none }, "callback.retry.multiplier"),
            (
                RetryDocument { multiplier: Some(f64::INFINITY), ..none },
                "callback.retry.multiplier",
            ),
            (RetryDocument { jitter: Some(1.1), ..none }, "callback.retry.jitter"),
            (RetryDocument { jitter: Some(-0.1), ..none }, "callback.retry.jitter"),
            (
                RetryDocument { initial: Some(Lasting::Seconds(0.0)), ..none },
                "callback.retry.initial",
            ),
            (RetryDocument { max: Some(Lasting::Text("P400D")), ..none }, "callback.retry.max"),
            (RetryDocument { max_age: Some(Lasting::Text("x")), ..none }, "callback.retry.max-age"),
        ];
        for (document, member) in policies {
            let error = admitted(&retry(document)).expect_err(member);
            assert!(error.starts_with(&format!("{member}: expected ")), "{error}");
        }
        let with = |headers: &[(&'static str, &'static str)]| TimerOptions {
            headers: Some(headers.to_vec()),
            ..TimerOptions::default()
        };
        for headers in [
            &[("Host", "a")][..],
            &[("connection", "close")],
            &[("X-Sequence-Number", "7")],
            &[("a b", "c")],
            &[("", "c")],
            &[("a", "b\r\nc: d")],
            &[("a", "\u{e9}")],
            &[("a", " b")],
            &[("a", "b"), ("A", "c")],
        ] {
            let error = admitted(&with(headers)).expect_err("refused");
            assert!(error.starts_with("callback.http.headers: expected "), "{error}");
        }
        assert!(admitted(&with(&[("a", ""), ("b", "x y")])).is_ok());
        let other = [
            (TimerOptions { method: Some("post"), ..with(&[]) }, "callback.http.method"),
            (TimerOptions { content_type: Some(""), ..with(&[]) }, "callback.http.content-type"),
            (
                TimerOptions { content_type: Some("a\nb"), ..with(&[]) },
                "callback.http.content-type",
            ),
            (TimerOptions { opaque_base64: Some("a"), ..with(&[]) }, "callback.http.opaque-base64"),
            (
                TimerOptions { opaque_base64: Some("YQ"), ..with(&[]) },
                "callback.http.opaque-base64",
            ),
            (
                TimerOptions { timeout: Some(Lasting::Seconds(0.0)), ..with(&[]) },
                "callback.timeout",
            ),
            (
                TimerOptions { timeout: Some(Lasting::Text("PT1H")), ..with(&[]) },
                "callback.timeout",
            ),
        ];
        for (options, member) in other {
            let error = admitted(&options).expect_err(member);
            assert!(error.starts_with(&format!("{member}: expected ")), "{error}");
        }
    }

    #[test]
    fn a_calendar_begins_with_its_next_moment() {
        let cron = |cron| TimerOptions { cron: Some(cron), ..TimerOptions::default() };
        let admitted_one = admitted(&cron("0 9 * * *")).expect("admitted");
        assert_eq!(admitted_one.interval_ms, Some(3_600_000), "from 8 o'clock");
        let attributes = Attributes::read(&admitted_one.attributes).expect("attributes");
        let timing = attributes.cron.expect("a calendar");
        assert_eq!((timing.zone, timing.done, timing.catch_up_ms), ("UTC", 0, 60_000));
        assert_eq!(timing.due_ms, 1_800_003_600_000);
        let london = TimerOptions { time_zone: Some("Asia/Kolkata"), ..cron("30 14 * * *") };
        assert_eq!(admitted(&london).expect("admitted").interval_ms, Some(3_600_000));
        let bad = [
            (cron("0 0 30 2 *"), "timing.cron: expected an expression that fires"),
            (cron("nonsense"), "timing.cron: expected an expression of five"),
            (TimerOptions { time_zone: Some("Mars"), ..cron("@daily") }, "timing.time-zone: "),
            (TimerOptions { end_at: Some("soon"), ..cron("@daily") }, "timing.end-at: expected"),
            (
                TimerOptions { end_at: Some("2027-01-15T08:30:00Z"), ..cron("0 9 * * *") },
                "timing.end-at: expected a time from the first pop on, 2027-01-15T09:00:00.000Z",
            ),
            (TimerOptions { cron: None, time_zone: Some("UTC"), ..cron("") }, "timing.time-zone"),
            (TimerOptions { cron: None, end_at: Some("x"), ..cron("") }, "timing.end-at"),
        ];
        for (options, said) in bad {
            let error = admitted(&options).expect_err(said);
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_policy_without_members_is_the_usual_one() {
        let options = TimerOptions { retry: Some(RetryDocument::default()), ..Default::default() };
        let admitted = admitted(&options).expect("admitted");
        let attributes = Attributes::read(&admitted.attributes).expect("attributes");
        assert_eq!(attributes.retry, Some(RetryPolicy::default()));
    }
}
