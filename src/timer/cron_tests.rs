use jiff::civil::date;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::timer::cron_text::Reading;

fn expression(text: &str) -> Expression {
    Expression::parse(text, Reading::Strict).unwrap_or_else(|wrong| panic!("{text}: {wrong}"))
}

fn at(text: &str) -> DateTime {
    text.parse().expect("a date and a time")
}

/// The times from one on, this one left out.
fn times(text: &str, from: &str, count: usize) -> Vec<String> {
    let expression = expression(text);
    let second = jiff::SignedDuration::from_secs(1);
    let mut found = Vec::new();
    let mut from = at(from);
    while found.len() < count {
        let mut search = Search::new(&expression, Way::Ahead, (from.year(), 173));
        let Some(next) = from.checked_add(second).ok().and_then(|from| search.from(from)) else {
            break;
        };
        found.push(next.to_string().replace("T00:00:00", ""));
        from = next;
    }
    found
}

#[test]
fn days_and_weekdays_mean_what_the_specification_says() {
    for (text, from, expected) in [
        ("0 12 1 * MON", "2025-08-31", ["2025-09-01T12:00:00", "2025-09-08T12:00:00"]),
        ("0 0 1 * +MON", "2025-09-02", ["2025-12-01", "2026-06-01"]),
        ("0 0 1-31 * MON", "2025-10-05", ["2025-10-06", "2025-10-07"]),
        ("0 0 *,1 * MON", "2025-10-05", ["2025-10-06", "2025-10-13"]),
        ("0 0 */2 * MON", "2025-10-05", ["2025-10-06", "2025-10-07"]),
        ("0 0 ? * SUN", "2025-10-05", ["2025-10-12", "2025-10-19"]),
        ("0 0 * * 7", "2025-10-05", ["2025-10-12", "2025-10-19"]),
        ("0 0 * * sat-sun", "2025-10-05", ["2025-10-11", "2025-10-12"]),
        ("0 0 L * *", "2025-02-01", ["2025-02-28", "2025-03-31"]),
        ("0 0 LW * *", "2025-05-01", ["2025-05-30", "2025-06-30"]),
        ("0 0 15W * *", "2025-06-01", ["2025-06-16", "2025-07-15"]),
        ("0 0 1W * *", "2025-01-31", ["2025-02-03", "2025-03-03"]),
        ("0 0 31W * *", "2025-08-01", ["2025-08-29", "2025-10-31"]),
        ("0 0 * * FRI#L", "2025-02-01", ["2025-02-28", "2025-03-28"]),
        ("0 0 * * 5L", "2025-02-01", ["2025-02-28", "2025-03-28"]),
        ("0 0 * * TUE#3", "2025-06-01", ["2025-06-17", "2025-07-15"]),
        ("0 0 * * MON#5", "2025-06-01", ["2025-06-30", "2025-09-29"]),
        ("0 0 29 2 *", "2097-01-01", ["2104-02-29", "2108-02-29"]),
        ("0 0 29 2 +MON", "2072-03-01", ["2112-02-29", "2140-02-29"]),
        ("0 0 * FEB-MAR/1 *", "2025-02-27", ["2025-02-28", "2025-03-01"]),
        ("59 59 23 31 12 *", "2025-01-01", ["2025-12-31T23:59:59", "2026-12-31T23:59:59"]),
        ("0\t5  4 * * *", "2025-01-01", ["2025-01-01T04:05:00", "2025-01-02T04:05:00"]),
        ("\t@daily ", "2025-01-01", ["2025-01-02", "2025-01-03"]),
        ("@midnight", "2025-01-01", ["2025-01-02", "2025-01-03"]),
        ("@annually", "2025-01-01", ["2026-01-01", "2027-01-01"]),
        ("0 0 0 1 1 * */2", "2025-01-01", ["2026-01-01", "2028-01-01"]),
        ("0 0 0 1 1 * */4", "2025-01-01", ["2026-01-01", "2030-01-01"]),
        ("0 0 0 1 1 * 1970-2199/2", "2025-01-01", ["2026-01-01", "2028-01-01"]),
        ("0 0 0 1 1 * 2198,2199", "2025-01-01", ["2198-01-01", "2199-01-01"]),
    ] {
        assert_eq!(times(text, from, 2), expected, "{text}");
    }
    assert_eq!(times("0 0 0 1 1 * 2199", "2199-01-01", 1), [""; 0], "the last year");
}

#[test]
fn what_the_specification_does_not_define_is_refused() {
    let wrong = |text: &str| {
        let read = Expression::parse(text, Reading::Strict);
        read.expect_err(text).to_string()
    };
    for (text, told) in [
        (", * * * * *", "got , in its seconds, a list with an empty item"),
        ("0 9, 17 * * *", "got 9, in its minutes, a list with an empty item; no blank"),
        ("0 0 1, 15 * *", "got 1, in its hours, a list with an empty item"),
        ("0 0 * * 1, 3", "got 1, in its months, a list with an empty item"),
        ("0 0 0 * * 1,", "got 1, in its weekdays, a list with an empty item"),
        ("5,,6 * * * *", "got 5,,6 in its minutes, a list with an empty item"),
        (",5 * * * *", "got ,5 in its minutes, a list with an empty item"),
        ("0 , * * *", "got , in its hours, a list with an empty item"),
        ("60 * * * *", "got 60 in its minutes (0 to 59)"),
        ("*,*,61 * * * *", "got 61 in its minutes (0 to 59)"),
        ("* * 0 * *", "got 0 in its days (1 to 31)"),
        ("* * * 13 *", "got 13 in its months (1 to 12, or JAN to DEC)"),
        ("* * * * 8", "got 8 in its weekdays (0 to 7, or SUN to SAT)"),
        ("0 0 0 1 1 * 1969", "got 1969 in its years (1970 to 2199)"),
        ("0 0 0 1 1 * 2026-2200", "got 2026-2200 in its years (1970 to 2199)"),
        ("MON * * * *", "got MON in its minutes"),
        ("* * * MON *", "got MON in its months"),
        ("* * JAN * *", "got JAN in its days"),
        ("* * * JANFEB *", "got JANFEB in its months"),
        ("* * * * JAN", "got JAN in its weekdays"),
        ("10-5 * * * *", "got 10-5 in its minutes, a range that ends before it begins"),
        ("* * * * SAT-MON", "got SAT-MON in its weekdays, a range that ends"),
        ("/30 * * * *", "got /30 in its minutes; a step follows * or a range"),
        ("0/15 * * * *", "got 0/15 in its minutes; a step follows * or a range"),
        ("*/0 * * * *", "got */0 in its minutes; a step is a number from 1"),
        ("*/5/5 * * * *", "got */5/5 in its minutes; a step is"),
        ("*/ * * * *", "got */ in its minutes; a step is"),
        ("*/99999999 * * * *", "got */99999999 in its minutes; a step is"),
        ("+5 * * * *", "got +5 in its minutes"),
        ("1- * * * *", "got 1- in its minutes"),
        ("** * * * *", "got ** in its minutes"),
        ("? 12 * * *", "got ? in its minutes"),
        ("* * * ? *", "got ? in its months"),
        ("0 12 1-15W * *", "got 1-15W in its days"),
        ("0 12 W * *", "got W in its days"),
        ("0 12 l * *", "got l in its days"),
        ("0 12 15w * *", "got 15w in its days"),
        ("0 12 +1 * MON", "got +1 in its days"),
        ("* * * * L", "got L in its weekdays"),
        ("* * * * MON#6", "got MON#6 in its weekdays; # is followed by 1 to 5 or L"),
        ("* * * * MON#", "got MON# in its weekdays; # is followed by"),
        ("* * * * *#1", "got *#1 in its weekdays; # and L follow one weekday"),
        ("* * * * 1,+2", "got +2 in its weekdays"),
        ("* * * *", "got 4 fields"),
        ("* * * * * * * *", "got 8 fields"),
        ("", "got 0 fields"),
        ("@reboot", "got @reboot; the names are @hourly, @daily"),
        ("@Daily", "got @Daily; the names are"),
        ("@daily 0 0 * * *", "got @daily 0 0 * * *; the names are"),
        ("\u{e9} * * * *", "got characters that no expression has"),
        ("* * *\n* *", "got characters that no expression has"),
    ] {
        let got = wrong(text);
        assert!(got.starts_with(told), "{text}: {got}");
        assert!(got.len() < 130, "{text}: {got}");
    }
}

/// What version 0.1.0 took goes on.
#[test]
fn timers_of_a_former_version_go_on() {
    for (old, meant) in [
        ("0 9, 17 * * *", "0 9 17 * * *"),
        (",5 * * * *", "5 * * * *"),
        ("@Daily", "@daily"),
        ("0 0 l * 5l", "0 0 L * 5L"),
        ("0 0 0 1 1 * 1-5000", "0 0 0 1 1 * *"),
    ] {
        let read = |text| Expression::parse(text, Reading::Kept).expect(text);
        assert_eq!(read(old), expression(meant), "{old}");
        assert_eq!(read(meant), expression(meant), "{meant}");
        assert!(Expression::parse(old, Reading::Strict).is_err(), "{old}");
    }
    let never = Expression::parse(", * * * * *", Reading::Kept).expect("an expression");
    assert_eq!(Search::new(&never, Way::Ahead, (2025, 100)).from(at("2025-01-01")), None);
}

/// Expressions that are searched for long, or in vain.
pub(in crate::timer) const RARE: [&str; 14] = [
    "* * * 1 2 +MON#5",
    "* * * 1-28 * +MON#5",
    "* * * 31 2,4,6,9,11 *",
    "* * * 30-31 2 *",
    "* * * 29 2 +MON#5",
    "* * * 8-31 * +MON#1",
    "* * * 1-28 * +MON#5,TUE#5,WED#5,THU#5,FRI#5,SAT#5,SUN#5",
    "* * * 1-28 * +MON#5 2080-2086",
    "* * * LW 2 * 2199",
    "* * * 1W,31W,30W 2 +SAT",
    "*/30 2 8-14 3 +SUN",
    "* 0 2 8-14 3 +SUN#2",
    "0 0 29 2 +MON",
    "59 59 23 31 12 +SAT 2199",
];

#[test]
fn a_search_looks_at_few_months() {
    for text in RARE {
        let Ok(expression) = Expression::parse(text, Reading::Strict) else { panic!("{text}") };
        for year in [1970, 2026, 2096, 2100, 2199] {
            for way in [Way::Ahead, Way::Back] {
                let mut search = Search::new(&expression, way, (year, 300));
                search.from(date(year, 3, 1).at(0, 0, 0, 0));
                assert!(search.steps <= STEPS_MAX, "{text} {way:?}: {}", search.steps);
            }
        }
    }
}

fn list(items: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(items, 1..4).prop_map(|items| items.join(","))
}

fn numbers(from: u32, to: u32) -> impl Strategy<Value = String> {
    let item = prop_oneof![
        4 => (from..=to).prop_map(|number| number.to_string()),
        2 => (from..=to, from..=to).prop_map(|(one, other)| {
            format!("{}-{}", one.min(other), one.max(other))
        }),
        1 => (from..=to, from..=to, 1_u32..9).prop_map(|(one, other, step)| {
            format!("{}-{}/{step}", one.min(other), one.max(other))
        }),
    ];
    prop_oneof![
        2 => Just("*".to_owned()),
        1 => (1_u32..9).prop_map(|step| format!("*/{step}")),
        4 => list(item),
    ]
}

fn days() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => numbers(1, 31),
        1 => Just("L".to_owned()),
        1 => Just("LW".to_owned()),
        1 => list((1_u32..=31).prop_map(|day| format!("{day}W"))),
    ]
}

fn weekdays() -> impl Strategy<Value = String> {
    let nth = (0_u32..=7, 1_u32..=5).prop_map(|(of_week, nth)| format!("{of_week}#{nth}"));
    let last = (0_u32..=7).prop_map(|of_week| format!("{of_week}L"));
    let field = prop_oneof![4 => numbers(0, 7), 2 => list(nth), 1 => list(last)];
    (field, any::<bool>()).prop_map(|(field, both)| if both { format!("+{field}") } else { field })
}

proptest! {
    /// Another reader of the specification finds the same times. Its search is long where nothing
    /// is found, so the years are few.
    #[test]
    fn another_implementation_finds_the_same(
        fields in (numbers(0, 59), numbers(0, 59), numbers(0, 23), days(), numbers(1, 12)),
        weekdays in weekdays(),
        from in (2026_i16..=2028, 1_i8..=12, 1_i8..=28, 0_i8..=23, 0_i8..=59, 0_i8..=59),
    ) {
        let (second, minute, hour, day, month) = fields;
        let text = format!("{second} {minute} {hour} {day} {month} {weekdays} 2026-2028");
        let (year, of_year, of_month, hour, minute, second) = from;
        let from = date(year, of_year, of_month).at(hour, minute, second, 0);
        let expression = expression(&text);
        let croner = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Required)
            .year(croner::parser::Year::Required)
            .build()
            .parse(&text)
            .expect("it reads this");
        let zoned = from.to_zoned(TimeZone::UTC).expect("in range");
        for way in [Way::Ahead, Way::Back] {
            let found = Search::new(&expression, way, (year, 300)).from(from);
            let other = match way {
                Way::Ahead => croner.find_next_occurrence(&zoned, true),
                Way::Back => croner.find_previous_occurrence(&zoned, true),
            };
            prop_assert_eq!(found, other.ok().map(|at| at.datetime()), "{} {:?}", text, way);
        }
    }

    #[test]
    fn no_text_makes_it_fail(
        text in "[-0-9*/,?LW#+@A-Za-z \t]{0,130}",
        year in 1960_i16..2210,
    ) {
        for reading in [Reading::Strict, Reading::Kept] {
            let Ok(expression) = Expression::parse(&text, reading) else { continue };
            for way in [Way::Ahead, Way::Back] {
                let mut search = Search::new(&expression, way, (year, 300));
                search.from(date(year, 2, 28).at(23, 59, 59, 0));
                prop_assert!(search.steps <= STEPS_MAX, "{}", search.steps);
            }
        }
    }
}
