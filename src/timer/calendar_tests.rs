use proptest::prelude::*;

use super::*;
use crate::wire::attributes::CRON_BYTES_MAX;

fn ms(text: &str) -> u64 {
    text.parse::<Timestamp>().expect("a timestamp").as_millisecond() as u64
}

/// The next moments after one, in UTC.
fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let mut at = ms(after);
    let calendar = Calendar::parse(expression, zone).expect(expression);
    let mut found = Vec::new();
    for _ in 0..count {
        let Some(next) = calendar.next_after(at) else { break };
        at = next;
        let told = Timestamp::from_millisecond(at as i64).expect("in range").to_string();
        found.push(told.replace(":00Z", "Z"));
    }
    found
}

#[test]
fn fields_mean_what_they_do_in_cron() {
    let after = "2026-11-25T10:33:46Z";
    assert_eq!(
        next("0 0 9 * * MON-FRI", "UTC", after, 3),
        ["2026-11-26T09:00Z", "2026-11-27T09:00Z", "2026-11-30T09:00Z"]
    );
    assert_eq!(next("0 9 * * MON-FRI", "UTC", after, 1), ["2026-11-26T09:00Z"], "five fields");
    assert_eq!(
        next("*/30 * * * * *", "UTC", after, 2),
        ["2026-11-25T10:34Z", "2026-11-25T10:34:30Z"]
    );
    assert_eq!(next("0 0 29 2 *", "UTC", after, 2), ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]);
    assert_eq!(next("0 0 29 2 +MON", "UTC", after, 1), ["2044-02-29T00:00Z"]);
    assert_eq!(next("@daily", "UTC", after, 1), ["2026-11-26T00:00Z"]);
    assert_eq!(next("0 0 L * *", "UTC", after, 1), ["2026-11-30T00:00Z"]);
    assert_eq!(next("0 0 12 1 1 * 2030", "UTC", after, 2), ["2030-01-01T12:00Z"], "and no more");
}

#[test]
fn a_fixed_time_comes_once_a_day_when_clocks_change() {
    // 2027-03-28 01:00 UTC: 01:00 becomes 02:00 in London. 2027-10-31 01:00 UTC: 02:00 becomes
    // 01:00.
    let london = |expression, after, count| next(expression, "Europe/London", after, count);
    assert_eq!(
        london("0 30 9 * * *", "2027-03-27T10:00:00Z", 2),
        ["2027-03-28T08:30Z", "2027-03-29T08:30Z"]
    );
    let skipped = london("0 30 1 * * *", "2027-03-27T10:00:00Z", 2);
    assert_eq!(skipped, ["2027-03-28T01:00Z", "2027-03-29T00:30Z"], "a time that there is not");
    let twice = london("0 30 1 * * *", "2027-10-30T10:00:00Z", 2);
    assert_eq!(twice, ["2027-10-31T00:30Z", "2027-11-01T01:30Z"], "a time that comes twice");
    // What comes each half hour goes on doing so.
    assert_eq!(
        london("0 */30 * * * *", "2027-10-31T00:00:00Z", 4),
        ["2027-10-31T00:30Z", "2027-10-31T01:00Z", "2027-10-31T01:30Z", "2027-10-31T02:00Z"]
    );
    assert_eq!(
        london("0 */30 * * * *", "2027-03-28T00:00:00Z", 3),
        ["2027-03-28T00:30Z", "2027-03-28T01:00Z", "2027-03-28T01:30Z"]
    );
}

#[test]
fn each_of_several_fixed_times_comes_once_a_day_when_clocks_change() {
    let london = |expression, after, count| next(expression, "Europe/London", after, count);
    let (spring, autumn) = ("2027-03-27T20:00:00Z", "2027-10-30T20:00:00Z");
    // What is left out comes at the change, all of it as one.
    assert_eq!(
        london("0 0,30 1 * * *", spring, 3),
        ["2027-03-28T01:00Z", "2027-03-29T00:00Z", "2027-03-29T00:30Z"]
    );
    assert_eq!(
        london("0 30 0-2 * * *", spring, 3),
        ["2027-03-28T00:30Z", "2027-03-28T01:00Z", "2027-03-28T01:30Z"]
    );
    assert_eq!(
        london("0 0 1,2,3 * * *", spring, 2),
        ["2027-03-28T01:00Z", "2027-03-28T02:00Z"],
        "1 o'clock is left out, and 2 o'clock is the change"
    );
    // What is shown twice comes when it is shown first.
    assert_eq!(
        london("0 0 1,13 * * *", autumn, 3),
        ["2027-10-31T00:00Z", "2027-10-31T13:00Z", "2027-11-01T01:00Z"]
    );
    assert_eq!(
        london("0 0-30/15 1,2 * * *", autumn, 4),
        ["2027-10-31T00:00Z", "2027-10-31T00:15Z", "2027-10-31T00:30Z", "2027-10-31T02:00Z"]
    );
    // A star follows the time that passes.
    assert_eq!(
        london("0 */30 1 * * *", autumn, 5),
        [
            "2027-10-31T00:00Z",
            "2027-10-31T00:30Z",
            "2027-10-31T01:00Z",
            "2027-10-31T01:30Z",
            "2027-11-01T01:00Z"
        ]
    );
    assert_eq!(
        london("0 30 * * * *", spring, 5)[3..],
        ["2027-03-27T23:30Z".to_owned(), "2027-03-28T00:30Z".to_owned()]
    );
    assert_eq!(london("0 */30 1 * * *", spring, 1), ["2027-03-29T00:00Z"]);
    // Half an hour, and midnight.
    assert_eq!(
        next("0 0,15,45 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00:00Z", 3),
        ["2027-10-02T15:30Z", "2027-10-02T15:45Z", "2027-10-03T15:00Z"]
    );
    assert_eq!(next("@daily", "Africa/Cairo", "2027-04-29T12:00:00Z", 1), ["2027-04-29T22:00Z"]);
    assert_eq!(
        next("0 30 23 * * *", "Africa/Cairo", "2027-10-28T12:00:00Z", 2),
        ["2027-10-28T20:30Z", "2027-10-29T21:30Z"]
    );
}

/// The moments of a fixed expression are those at which a clock that is never put back would
/// pass one of its times.
#[test]
fn fixed_times_come_when_the_clock_first_reaches_or_passes_them() {
    let cases = [
        ("Europe/London", ["2027-03-27T12:00:00Z", "2027-10-30T12:00:00Z"]),
        ("America/New_York", ["2027-03-13T12:00:00Z", "2027-11-06T12:00:00Z"]),
        ("Australia/Lord_Howe", ["2027-04-03T00:00:00Z", "2027-10-02T00:00:00Z"]),
        ("Africa/Cairo", ["2027-04-29T00:00:00Z", "2027-10-28T00:00:00Z"]),
        ("UTC", ["2027-01-01T00:00:00Z", "2027-12-31T00:00:00Z"]),
    ];
    let lists = [
        ([0, 15, 30, 45].as_slice(), [0, 1, 2, 3].as_slice()),
        (&[0], &[1, 13]),
        (&[5, 59], &[0, 1, 2, 23]),
        (&[30], &[2]),
    ];
    let joined = |numbers: &[i8]| {
        let texts: Vec<String> = numbers.iter().map(i8::to_string).collect();
        texts.join(",")
    };
    for ((zone, changes), (minutes, hours)) in
        cases.iter().flat_map(|case| lists.iter().map(move |list| (case, list)))
    {
        let expression = format!("0 {} {} * * *", joined(minutes), joined(hours));
        for begin in changes {
            let begin = ms(begin);
            let calendar = Calendar::parse(&expression, zone).expect("an expression");
            let shown = |at_ms: u64| moment(at_ms, &calendar.zone).expect("a time").datetime();
            let is_listed =
                |at: &DateTime| minutes.contains(&at.minute()) && hours.contains(&at.hour());
            let (mut reached, mut expected) = (shown(begin), Vec::new());
            for minute in 1..=3 * 24 * 60 {
                let at_ms = begin + minute * 60_000;
                let mut passed = Vec::new();
                while reached < shown(at_ms) {
                    reached = reached.checked_add(SignedDuration::from_mins(1)).expect("fits");
                    passed.push(reached);
                }
                expected.extend(passed.iter().any(is_listed).then_some(at_ms));
            }
            let found = std::iter::successors(Some(begin), |at| calendar.next_after(*at));
            let found: Vec<u64> = found.skip(1).take(expected.len()).collect();
            assert_eq!(found, expected, "{expression} in {zone}");
            let until_ms = begin + 3 * 24 * 3_600_000;
            let timing = CronTiming {
                expression: &expression,
                zone,
                due_ms: 0,
                done: 0,
                catch_up_ms: 0,
                end_ms: None,
            };
            for at_ms in (expected[0]..until_ms).step_by(450_000) {
                let last = expected.iter().rfind(|ms| **ms <= at_ms).copied();
                let latest = Some(calendar.latest(&timing, at_ms));
                assert_eq!(latest, last, "{expression} in {zone} at {at_ms}");
            }
        }
    }
}

/// The moments of any other expression are those at which the clock shows one of its times.
#[test]
fn passing_times_come_whenever_the_clock_shows_them() {
    let cases = [
        ("Europe/London", ["2027-03-27T12:00:00Z", "2027-10-30T12:00:00Z"]),
        ("America/New_York", ["2027-03-13T12:00:00Z", "2027-11-06T12:00:00Z"]),
        ("Australia/Lord_Howe", ["2027-04-03T00:00:00Z", "2027-10-02T00:00:00Z"]),
        ("Africa/Cairo", ["2027-04-29T00:00:00Z", "2027-10-28T00:00:00Z"]),
        ("Africa/Casablanca", ["2027-02-06T12:00:00Z", "2027-03-13T12:00:00Z"]),
        ("Pacific/Apia", ["2011-12-29T00:00:00Z", "2011-12-30T00:00:00Z"]),
        ("UTC", ["2027-01-01T00:00:00Z", "2027-12-31T00:00:00Z"]),
    ];
    type Has = fn(&DateTime) -> bool;
    let expressions: [(&str, Has); 5] = [
        ("0 */30 * * * *", |at| at.minute() % 30 == 0),
        ("0 * 2 * * *", |at| at.hour() == 2),
        ("0 */7 0-1 * * *", |at| at.minute() % 7 == 0 && at.hour() <= 1),
        ("0 59 */23 * * *", |at| at.minute() == 59 && at.hour() % 23 == 0),
        ("0 15 * 30,31 * *", |at| at.minute() == 15 && at.day() >= 30),
    ];
    for ((zone, changes), (expression, has)) in
        cases.iter().flat_map(|case| expressions.iter().map(move |it| (case, it)))
    {
        let calendar = Calendar::parse(expression, zone).expect("an expression");
        for begin in changes.map(ms) {
            let until = begin + 3 * 24 * 3_600_000;
            let shown = |at_ms: &u64| moment(*at_ms, &calendar.zone).expect("a time").datetime();
            let expected: Vec<u64> = (begin + 60_000..until)
                .step_by(60_000)
                .filter(|at_ms| has(&shown(at_ms)))
                .collect();
            let found = std::iter::successors(Some(begin), |at| calendar.next_after(*at));
            let found: Vec<u64> = found.skip(1).take_while(|at| *at < until).collect();
            assert_eq!(found, expected, "{expression} in {zone}");
            for at_ms in (begin..until).step_by(1_170_000) {
                let until = moment(at_ms, &calendar.zone).expect("a time");
                let latest = calendar.at_or_before(&until).filter(|at| *at > begin);
                let last = expected.iter().rfind(|ms| **ms <= at_ms).copied();
                assert_eq!(latest, last, "{expression} in {zone} at {at_ms}");
            }
        }
    }
}

/// What a search costs is bounded by months that it looks at, whatever expression and zone.
#[test]
fn a_search_in_any_zone_looks_at_few_months() {
    const STEPS_MAX: u32 = 500;
    let zones: Vec<String> =
        TimeZoneDatabase::bundled().available().map(|it| it.to_string()).collect();
    assert!(zones.len() > 400);
    let some = zones.iter().step_by(23).map(String::as_str);
    let odd = ["America/New_York", "Africa/Casablanca", "Africa/El_Aaiun", "Antarctica/Troll"];
    let mut most = 0;
    for zone in odd.into_iter().chain(some) {
        for expression in crate::timer::cron::tests::RARE {
            let calendar = Calendar::parse(expression, zone).expect(zone);
            for (way, at) in
                [(Way::Ahead, "2026-11-27T12:00:00Z"), (Way::Back, "2099-01-01T00:00:00Z")]
            {
                let from = moment(ms(at), &calendar.zone).expect("a time");
                let mut search = calendar.search(way, &from);
                calendar.found(&mut search, &from);
                most = most.max(search.steps);
                assert!(search.steps <= STEPS_MAX, "{expression} in {zone}: {}", search.steps);
            }
        }
    }
    println!("at most {most} months");
}

/// A time that the clock leaves out in each year is never shown.
#[test]
fn a_time_that_is_always_left_out_never_comes() {
    let never = Calendar::parse("*/30 2 8-14 3 +SUN", "America/New_York").expect("an expression");
    assert_eq!(never.next_after(ms("2026-11-27T12:00:00Z")), None);
    // Before 2007 the clocks changed in April.
    let from = moment(ms("2026-11-27T12:00:00Z"), &never.zone).expect("a time");
    assert_eq!(never.at_or_before(&from), Some(ms("2006-03-12T07:30:00Z")));
}

#[test]
fn a_moment_lies_at_most_a_hundred_years_ahead() {
    let next = |year: u16| {
        let text = format!("0 0 0 1 1 * {year}");
        let calendar = Calendar::parse(&text, "UTC").expect("an expression");
        calendar.next_after(ms("2026-11-27T12:00:00Z"))
    };
    assert_eq!(next(2126), Some(ms("2126-01-01T00:00:00Z")));
    assert_eq!(next(2127), Some(ms("2127-01-01T00:00:00Z")), "in less than 100 years of 366 days");
    assert_eq!(next(2128), None);
    assert_eq!(next(2199), None);
}

#[test]
fn the_latest_moment_that_has_come_is_found() {
    let start = ms("2026-11-25T10:33:46Z");
    let calendar = Calendar::parse("*/15 * * * *", "UTC").expect("an expression");
    let due_ms = calendar.next_after(start).expect("one");
    let timing = CronTiming {
        expression: "*/15 * * * *",
        zone: "UTC",
        due_ms,
        done: 0,
        catch_up_ms: 0,
        end_ms: Some(ms("2026-11-25T12:20:00Z")),
    };
    let latest = |now: &str| calendar.latest(&timing, ms(now));
    assert_eq!(latest("2026-11-25T10:40:00Z"), ms("2026-11-25T10:45:00Z"), "none has come");
    assert_eq!(latest("2026-11-25T10:45:00Z"), ms("2026-11-25T10:45:00Z"));
    assert_eq!(latest("2026-11-25T11:29:59.999Z"), ms("2026-11-25T11:15:00Z"));
    assert_eq!(latest("2026-11-25T11:30:00Z"), ms("2026-11-25T11:30:00Z"));
    assert_eq!(latest("2026-11-26T11:30:00Z"), ms("2026-11-25T12:15:00Z"), "it has ended");
}

#[test]
fn what_is_no_expression_or_zone_or_never_fires_is_told() {
    let parse = |expression: &str, zone: &str| {
        let now = ms("2026-11-25T10:00:00Z");
        Calendar::parse(expression, zone).map(|calendar| calendar.next_after(now))
    };
    for bad in ["", "* * *", "a b c d e", "60 * * * *", "* * * * * * * *", "@reboot", "0 0 0 0 0"] {
        let error = parse(bad, "UTC").expect_err(bad).to_string();
        assert!(error.starts_with("timing.cron: expected an expression"), "{error}");
        assert!(error.len() < 200, "{error}");
    }
    assert!(parse(&"*".repeat(CRON_BYTES_MAX + 1), "UTC").is_err());
    assert!(parse("\u{e9} * * * *", "UTC").is_err());
    for bad in ["", "Mars/Base", "../../etc/passwd", "GMT+1:00"] {
        let error = parse("* * * * *", bad).expect_err(bad).to_string();
        assert!(error.starts_with("timing.time-zone: expected a zone"), "{error}");
    }
    for never in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 0 1 1 * 1999"] {
        assert_eq!(parse(never, "Europe/London").expect("an expression"), None, "{never}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_fail(
        text in "[-0-9*/,?LW#+@A-Za-z ]{0,40}",
        zone in "[A-Za-z/_+0-9-]{0,20}",
    ) {
        if let Ok(calendar) = Calendar::parse(&text, &zone) {
            calendar.next_after(1_795_600_000_000);
        }
        if let Ok(calendar) = Calendar::parse(&text, "America/New_York") {
            let next = calendar.next_after(1_795_600_000_000);
            prop_assert!(next.is_none_or(|next| next > 1_795_600_000_000));
        }
    }
}
