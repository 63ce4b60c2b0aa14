//! `chronos timestamp translate`: turns timestamps into times and times into timestamps. Each
//! argument, or each line of standard input, becomes one line.

use std::io::{BufRead, Write};

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::json;

use super::time::{NumberIs, Written, human, read, rfc3339, zone};
use crate::cli::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use crate::cli::terminal::{fail, failure, print, tell};

const EXAMPLES: &str = "\
Examples:
  chronos timestamp translate --utc 470601292516425728
      2026-11-20 19:04:23.762 +0000 0        (its time, and its place in the millisecond)
  chronos timestamp translate '2026-11-20 19:04:23.762'
      470601292516425728                     (the first timestamp of that millisecond, here)
  chronos timestamp translate 2026-11-20T19:04:23.762Z 1795201463762
  chronos timestamp translate --zone Asia/Shanghai 470601292516425728
  cut -f1 values.tsv | chronos timestamp translate --json

Numbers below 10^15 are milliseconds since 1970, the others timestamps; --numbers says otherwise.
A time without an offset is of the zone given, else of the zone of TZ or of the machine. Finer
parts than a millisecond are cut off.

Exit codes: 0 all translated, 1 a line of standard input is neither, 2 an argument is neither";

/// Print the times of timestamps, and the first timestamps of times
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TranslateFlags {
    /// Timestamps, times or milliseconds since 1970; without values, the lines of standard input
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    values: Vec<String>,

    /// Times are in UTC
    #[arg(long)]
    utc: bool,

    /// Times are in this zone, by its IANA name [default: that of TZ, else of the machine]
    #[arg(long, value_name = "NAME", conflicts_with = "utc")]
    zone: Option<String>,

    /// How a number is read
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    numbers: NumberIs,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command; returns the exit code.
pub(crate) fn run(flags: &TranslateFlags) -> u8 {
    let name = if flags.utc { Some("UTC") } else { flags.zone.as_deref() };
    let zone = match zone(name) {
        Ok(zone) => zone,
        Err(error) => return told_failure(flags, &error),
    };
    let mut output = std::io::stdout().lock();
    let result = if flags.values.is_empty() {
        lines(flags, &zone, &mut std::io::stdin().lock(), &mut output)
    } else {
        // All values are read before the first is printed: a wrong command line prints nothing.
        let read = flags.values.iter().map(|value| read(value, flags.numbers, &zone));
        match read.collect::<Result<Vec<_>, _>>() {
            Err(error) => return told_failure(flags, &error),
            Ok(all) => all
                .iter()
                .try_for_each(|one| writeln!(output, "{}", told(*one, &zone, flags.json)))
                .map(|()| EXIT_OK),
        }
    };
    match result.and_then(|code| output.flush().map(|()| code)) {
        Ok(code) => code,
        // A reader that has closed its end is no error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => EXIT_OK,
        Err(error) => fail(&error, EXIT_FAILURE),
    }
}

/// Says what is wrong with the command line, with `--json` as a line, as all that it prints.
fn told_failure(flags: &TranslateFlags, error: &dyn std::fmt::Display) -> u8 {
    if flags.json {
        print(&format!("{}\n", failure(error, None)));
    }
    fail(error, EXIT_USAGE)
}

/// Translates every line. A line that cannot be read is reported and leaves an empty line, so that
/// columns stay side by side.
fn lines(
    flags: &TranslateFlags,
    zone: &TimeZone,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> std::io::Result<u8> {
    let mut code = EXIT_OK;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            writeln!(output)?;
            continue;
        }
        match read(&text, flags.numbers, zone) {
            Ok(one) => writeln!(output, "{}", told(one, zone, flags.json))?,
            Err(error) => {
                writeln!(output)?;
                tell(&format!("error: line {number}: {error}"));
                code = EXIT_FAILURE;
            }
        }
    }
    Ok(code)
}

/// Returns the line of one translation.
fn told(written: Written, zone: &TimeZone, is_json: bool) -> String {
    let (Written::Timestamp(timestamp) | Written::Time(timestamp)) = written;
    if is_json {
        return json!({
            "timestamp": timestamp.0,
            "unix_ms": timestamp.unix_ms(),
            "counter": timestamp.counter(),
            "time": rfc3339(timestamp, zone),
        })
        .to_string();
    }
    match written {
        Written::Timestamp(_) => format!("{} {}", human(timestamp, zone), timestamp.counter()),
        Written::Time(_) => timestamp.0.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> TranslateFlags {
        let numbers = NumberIs::Either;
        TranslateFlags { values: Vec::new(), utc: true, zone: None, numbers, json: false }
    }

    #[test]
    fn each_line_of_input_is_one_line_of_output() {
        let input = b"470601292516425729\n\nnonsense\n1795201463062\n\xff\xfe\n470601292516425728";
        let mut output = Vec::new();
        let code = lines(&flags(), &TimeZone::UTC, &mut &input[..], &mut output).expect("memory");
        assert_eq!(code, EXIT_FAILURE);
        let text = String::from_utf8(output).expect("text");
        let time = "2026-11-20 19:04:23";
        let expected: Vec<&str> = text.lines().collect();
        assert_eq!(expected.len(), 6, "{text}");
        assert!(expected[0].starts_with(time) && expected[0].ends_with(" +0000 1"), "{text}");
        assert_eq!(expected[1..3], ["", ""]);
        assert_eq!(expected[3], (1_795_201_463_062u64 << 18).to_string());
        assert!(expected[5].ends_with(" +0000 0"), "{text}");
    }

    #[test]
    fn the_examples_tell_what_is_printed() {
        let zone = TimeZone::UTC;
        let of = |text: &str| told(read(text, NumberIs::Either, &zone).expect(text), &zone, false);
        let (timestamp, time) = ("470601292516425728", "2026-11-20 19:04:23.762");
        assert_eq!(of(timestamp), format!("{time} +0000 0"));
        for shown in [time, "2026-11-20T19:04:23.762Z", "1795201463762"] {
            assert_eq!(of(shown), timestamp);
            assert!(EXAMPLES.contains(shown), "{shown}");
        }
    }

    #[test]
    fn both_directions_agree() {
        let zone = TimeZone::UTC;
        for ms in [0u64, 1, 999, 1_795_201_463_062, 35_000_000_000_000] {
            let text = told(read(&ms.to_string(), NumberIs::Ms, &zone).unwrap(), &zone, false);
            let back = told(read(&text, NumberIs::Timestamp, &zone).unwrap(), &zone, false);
            let (time, counter) = back.rsplit_once(' ').expect("two parts");
            assert_eq!(counter, "0");
            let time = time.replacen(" +0000", "", 1);
            assert_eq!(told(read(&time, NumberIs::Either, &zone).unwrap(), &zone, false), text);
        }
    }
}
