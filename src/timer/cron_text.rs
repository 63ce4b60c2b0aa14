//! The text of a cron expression, to sets of numbers. The expressions are those of the Open Cron
//! Pattern Specification (<https://github.com/open-source-cron/ocps>), versions 1.0 to 1.4. What
//! they do not define is refused: a blank in a list would make another schedule of it, without a
//! word.
//!
//! The text has at most [`CRON_BYTES_MAX`] bytes, and each of its items sets at most as many bits
//! as its field has numbers, so that reading an expression is short whatever it says.

use crate::wire::attributes::CRON_BYTES_MAX;

/// The first and the last year of the field of years.
pub(super) const YEARS: (i16, i16) = (1970, 2199);
/// One day of each week, counted from its first one in the month.
pub(super) const EACH_WEEK: u32 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;

/// Most characters of an expression that an error repeats.
const SHOWN_CHARS_MAX: usize = 40;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Why a text is no expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongExpression(pub String);

/// How strictly an expression is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// By the specification.
    Strict,
    /// As version 0.1.0 let it in, so that the timers that it took go on: empty items of a list are
    /// none, capitals do not count, and years beyond the field's are its first and last.
    Kept,
}

/// What an expression says. Bit n of a set stands for the number n.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days: Days,
    pub(super) months: u64,
    pub(super) years: Years,
    is_fixed: bool,
}

/// The days of a month that an expression has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Days {
    /// Days by their number.
    pub by_number: u32,
    /// Days whose nearest working day is meant (`W`).
    pub nearest: u32,
    /// The last day (`L`).
    pub has_last: bool,
    /// The last working day (`LW`).
    pub has_last_working: bool,
    /// For each weekday, from Sunday on, its days in a month, counted from its first one there.
    pub by_weekday: [u32; 7],
    /// The weekdays of which the last one in the month is meant (`#L`).
    pub last: u8,
    /// Whether the number of a day and its weekday must both be meant.
    pub needs_both: bool,
}

/// A set of years.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Years([u64; 4]);

impl Years {
    /// Adds a year of [`YEARS`].
    pub fn put(&mut self, year: u16) {
        let at = usize::from(year).saturating_sub(YEARS.0 as usize);
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Whether a year is in the set.
    pub fn has(&self, year: i16) -> bool {
        let at = usize::try_from(year - YEARS.0).unwrap_or(usize::MAX);
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

/// The numbers that a field may have.
struct Field {
    name: &'static str,
    from: u16,
    to: u16,
    /// Names of the numbers, from `from` on.
    names: &'static [&'static str],
    /// Whether `?` stands for all.
    has_question: bool,
}

const SECOND: Field = Field { name: "seconds", from: 0, to: 59, names: &[], has_question: false };
const MINUTE: Field = Field { name: "minutes", ..SECOND };
const HOUR: Field = Field { name: "hours", to: 23, ..SECOND };
const DAY: Field = Field { name: "days", from: 1, to: 31, names: &[], has_question: true };
const MONTH: Field = Field { name: "months", from: 1, to: 12, names: &MONTHS, ..SECOND };
/// 7 is Sunday, as 0 is.
const WEEKDAY: Field = Field { name: "weekdays", from: 0, to: 7, names: &WEEKDAYS, ..DAY };
const YEAR: Field =
    Field { name: "years", from: YEARS.0 as u16, to: YEARS.1 as u16, names: &[], ..SECOND };

/// Numbers of an item, each so many after the one before.
struct Span {
    from: u16,
    to: u16,
    step: u16,
    is_all: bool,
}

impl Span {
    fn each(&self) -> impl Iterator<Item = u16> {
        (self.from..=self.to).step_by(self.step.into())
    }
}

impl Expression {
    /// Reads five to seven fields, or a name for them.
    pub fn parse(text: &str, reading: Reading) -> Result<Self, WrongExpression> {
        if text.len() > CRON_BYTES_MAX {
            return Err(WrongExpression(format!("got more than {CRON_BYTES_MAX} bytes")));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')) {
            return Err(WrongExpression("got characters that no expression has".to_owned()));
        }
        let folded = (reading == Reading::Kept).then(|| text.to_ascii_uppercase());
        let text = folded.as_deref().unwrap_or(text).trim_matches([' ', '\t']);
        let text = nickname(text, reading)?.unwrap_or(text);
        let fields: Vec<&str> = text.split([' ', '\t']).filter(|it| !it.is_empty()).collect();
        match fields[..] {
            [minute, hour, day, month, weekday] => {
                Self::of_fields(["0", minute, hour, day, month, weekday, "*"], reading)
            }
            [second, minute, hour, day, month, weekday] => {
                Self::of_fields([second, minute, hour, day, month, weekday, "*"], reading)
            }
            [second, minute, hour, day, month, weekday, year] => {
                Self::of_fields([second, minute, hour, day, month, weekday, year], reading)
            }
            _ => Err(WrongExpression(format!("got {} fields", fields.len()))),
        }
    }

    fn of_fields(
        [second, minute, hour, day, month, weekday, year]: [&str; 7],
        reading: Reading,
    ) -> Result<Self, WrongExpression> {
        let set = |field: &Field, text| {
            let mut set = 0;
            field.read(text, reading, |item| {
                set |= field.span(item, reading)?.each().fold(0_u64, |set, at| set | 1 << at);
                Ok(())
            })?;
            Ok(set)
        };
        let mut years = Years::default();
        YEAR.read(year, reading, |item| {
            YEAR.span(item, reading)?.each().for_each(|year| years.put(year));
            Ok(())
        })?;
        Ok(Self {
            seconds: set(&SECOND, second)?,
            minutes: set(&MINUTE, minute)?,
            hours: set(&HOUR, hour)?,
            days: read_days((day, weekday), reading)?,
            months: set(&MONTH, month)?,
            years,
            is_fixed: ![second, minute, hour].iter().any(|field| field.contains('*')),
        })
    }

    /// Whether seconds, minutes and hours have no `*`, so that each time comes once a day.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }
}

/// What a name as `@daily` stands for. The names have small letters (OCPS 1.1).
fn nickname(text: &str, reading: Reading) -> Result<Option<&'static str>, WrongExpression> {
    let Some(name) = text.strip_prefix('@') else { return Ok(None) };
    let folded = (reading == Reading::Kept).then(|| name.to_ascii_lowercase());
    match folded.as_deref().unwrap_or(name) {
        "yearly" | "annually" => Ok(Some("0 0 1 1 *")),
        "monthly" => Ok(Some("0 0 1 * *")),
        "weekly" => Ok(Some("0 0 * * 0")),
        "daily" | "midnight" => Ok(Some("0 0 * * *")),
        "hourly" => Ok(Some("0 * * * *")),
        _ => Err(WrongExpression(format!(
            "got {}; the names are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and \
             @annually",
            shown(text)
        ))),
    }
}

/// Reads the days of the month and those of the week.
fn read_days((day, weekday): (&str, &str), reading: Reading) -> Result<Days, WrongExpression> {
    let mut days = Days::default();
    DAY.read(day, reading, |item| {
        match (item, item.strip_suffix('W')) {
            ("L", _) => days.has_last = true,
            (_, Some("L")) => days.has_last_working = true,
            (_, Some(number)) => days.nearest |= 1 << DAY.number(number, (item, reading), false)?,
            (_, None) => DAY.span(item, reading)?.each().for_each(|day| days.by_number |= 1 << day),
        }
        Ok(())
    })?;
    let (both, weekday) = weekday.strip_prefix('+').map_or((false, weekday), |rest| (true, rest));
    WEEKDAY.read(weekday, reading, |item| {
        let (of_week, which) =
            match (item.split_once('#'), item.strip_suffix('L').filter(|it| !it.is_empty())) {
                (Some((of_week, which)), _) => (of_week, Some(which)),
                (None, Some(of_week)) => (of_week, Some("L")),
                (None, None) => (item, None),
            };
        let weeks = match which.map(|which| (which, digits(which))) {
            None => EACH_WEEK,
            Some(("L", _)) => 0,
            Some((_, Some(nth @ 1..=5))) => 1 << (7 * (nth - 1)),
            Some(_) => return Err(WEEKDAY.wrong(item, "; # is followed by 1 to 5 or L")),
        };
        let span = WEEKDAY.span(of_week, reading)?;
        if which.is_some() && span.is_all {
            return Err(WEEKDAY.wrong(item, "; # and L follow one weekday, as FRI#L"));
        }
        for of_week in span.each().map(|number| number % 7) {
            if let Some(known) = days.by_weekday.get_mut(usize::from(of_week)) {
                *known |= weeks;
            }
            days.last |= u8::from(weeks == 0) << of_week;
        }
        Ok(())
    })?;
    // A field that begins with `*` leaves the choice to the other one (OCPS 1.1 section 6.1).
    let is_open = |text: &str| matches!(text.split(',').next(), Some("*" | "?"));
    days.needs_both = both || is_open(day) || is_open(weekday);
    Ok(days)
}

impl Field {
    /// Reads the items of a list.
    fn read(
        &self,
        text: &str,
        reading: Reading,
        mut item: impl FnMut(&str) -> Result<(), WrongExpression>,
    ) -> Result<(), WrongExpression> {
        for text_of_item in text.split(',') {
            match text_of_item {
                "" if reading == Reading::Kept => {}
                "" => {
                    let told = ", a list with an empty item; no blank stands in a list";
                    return Err(self.wrong(text, told));
                }
                _ => item(text_of_item)?,
            }
        }
        Ok(())
    }

    /// Reads a number, a range, or all, and the step behind a range or all.
    fn span(&self, item: &str, reading: Reading) -> Result<Span, WrongExpression> {
        let (base, step) = match item.split_once('/') {
            Some((base, step)) => (base, Some(step)),
            None => (item, None),
        };
        let is_all = base == "*" || base == "?" && self.has_question;
        let range = base.split_once('-');
        if step.is_some() && !is_all && range.is_none() {
            return Err(self.wrong(item, "; a step follows * or a range, as */5 or 10-59/5"));
        }
        let step = match step {
            None => 1,
            Some(step) => match digits(step) {
                Some(step) if step > 0 => step,
                _ => return Err(self.wrong(item, "; a step is a number from 1")),
            },
        };
        let number = |text, is_end| self.number(text, (item, reading), is_end);
        let (from, to) = match range {
            _ if is_all => (self.from, self.to - u16::from(self.to == 7)),
            Some((from, to)) => (number(from, false)?, number(to, true)?),
            None => [number(base, false)?; 2].into(),
        };
        match from > to {
            true => Err(self.wrong(item, ", a range that ends before it begins")),
            false => Ok(Span { from, to, step, is_all }),
        }
    }

    /// Reads a number or its name. At the end of a range Sunday is the seventh day.
    fn number(
        &self,
        text: &str,
        (item, reading): (&str, Reading),
        is_end: bool,
    ) -> Result<u16, WrongExpression> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let number = match named {
            Some(0) if is_end && self.to == 7 => Some(7),
            Some(place) => Some(self.from + place as u16),
            None => digits(text),
        };
        let is_year = self.from == YEAR.from;
        let number = match number {
            Some(year) if is_year && reading == Reading::Kept => {
                Some(year.clamp(self.from, self.to))
            }
            number => number.filter(|number| (self.from..=self.to).contains(number)),
        };
        number.ok_or_else(|| {
            let names = match self.names {
                [first, .., last] => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            self.wrong(item, &format!(" ({} to {}{names})", self.from, self.to))
        })
    }

    #[cold]
    fn wrong(&self, item: &str, told: &str) -> WrongExpression {
        WrongExpression(format!("got {} in its {}{told}", shown(item), self.name))
    }
}

/// A number of digits alone.
fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
