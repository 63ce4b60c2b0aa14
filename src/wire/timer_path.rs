//! The id that a client gets, `<16 hex id>-<factor>-<16 hex filter>`, and the older forms that a
//! path may have.
//!
//! This file knows text and numbers only. It does not know which nodes a filter names.

// May panic: assertions 1, indices 10, cuts 3.
// Why it does not: found 2, fixed 11, bounded 1.

use crate::base::ids::TimerId;
use crate::base::limits::REPLICATION_FACTOR_MAX;
use crate::wire::site_question::SiteQuestion;
use crate::wire::timer_action::TimerAction;

/// Most bytes of an id that [`write_public_id`] writes: 16 + 1 + 2 + 1 + 16.
pub const PUBLIC_ID_BYTES_MAX: usize = 36;
/// Most bytes of a path after its percent escapes are resolved: room for an id and a suffix. Bytes
/// beyond it are ignored.
const ESCAPED_PATH_BYTES_MAX: usize = 256;
/// Bytes behind `/timers/` of a path with escapes that is not cut off. A longer path has no action.
const BEHIND_TIMERS_MAX: usize = ESCAPED_PATH_BYTES_MAX - b"/timers/".len();
/// Hex digits of an id and of a filter.
const HEX_DIGITS: usize = 16;

/// Value of each hex digit; 0xff for every other byte.
const HEX_VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// What a path stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerPath {
    /// `/timers` or `/timers/`.
    Collection,
    /// `/timers/<id>`.
    Timer(PublicId),
    /// `/timers/bulk`.
    Bulk,
    /// `/timers/by-name/<name>` ([`timer_name`](super::timer_name) reads the name).
    Named,
    /// `/timers/<id>/<action>`.
    Action(PublicId, TimerAction),
    /// `/timers/by-name/<name>/<action>`.
    NamedAction(TimerAction),
    /// `/timers/references`.
    References,
    /// `/timers/count`.
    Count,
    /// `/dead-letters` or `/dead-letters/`.
    DeadLetters,
    /// `/dead-letters/replay`.
    Replays,
    /// `/dead-letters/<id>`.
    DeadLetter(PublicId),
    /// `/dead-letters/<id>/replay`.
    Replay(PublicId),
    /// `/jobs` or `/jobs/`.
    Jobs,
    /// `/jobs/<id>`.
    Job(u64),
    /// `/ping`.
    Ping,
    /// `/ping?standing=...`: another site asks about a timer. No path alone says so.
    Compare(SiteQuestion),
    /// `/timestamps`.
    Timestamps,
    /// Any other path, or a `/timers/...` path that holds no id. The service answers 404.
    Unknown,
}

/// Least bytes of an id with an action behind it: `<16 hex>-1/pause`.
const ACTION_BYTES_MIN: usize = HEX_DIGITS + 8;

/// An id as a client wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicId {
    /// The timer.
    pub id: TimerId,
    /// The replication factor, 1..=16; `None`: the form has no factor.
    pub factor: Option<u8>,
    /// The filter of the replicas; `None`: the form has no filter.
    pub filter: Option<u64>,
}

/// Parses the path of a request target. No allocation.
///
/// Hex digits may have either case. An id has one of these forms:
///
/// - `<16 hex>-<factor>-<16 hex>`,
/// - `<16 hex>-<factor>` with any suffix, which is ignored unless it ends with an action,
/// - `<16 hex><16 hex>`, without a factor.
///
/// A factor outside 1..=16 makes the path unknown. Clients URL-escape the id, so escapes of
/// unreserved characters are resolved (RFC 3986 section 6.2.2.2); other escapes are not.
pub fn parse_path(path: &str) -> TimerPath {
    if !path.contains('%') {
        return parse_plain_path(path.as_bytes());
    }
    let mut plain = [0; ESCAPED_PATH_BYTES_MAX];
    let plain_bytes = unescape(path.as_bytes(), &mut plain);
    let is_cut = plain_bytes == ESCAPED_PATH_BYTES_MAX;
    match parse_plain_path(&plain[..plain_bytes]) {
        TimerPath::Named | TimerPath::NamedAction(_) if is_cut => named_path(path),
        TimerPath::Action(timer, _) if is_cut => TimerPath::Timer(timer),
        path => path,
    }
}

/// What the path of a long name stands for, by its end as it was sent.
fn named_path(path: &str) -> TimerPath {
    match TimerAction::split(path.as_bytes()) {
        // Behind the third slash is the name.
        Some((timer, action)) if timer.iter().filter(|&&byte| byte == b'/').count() >= 3 => {
            TimerPath::NamedAction(action)
        }
        _ => TimerPath::Named,
    }
}

/// Appends `<16 hex id>-<factor>-<16 hex filter>` in lower case: 35 or 36 bytes. Panics unless
/// `factor` lies in 1..=16.
pub fn write_public_id(id: TimerId, factor: u8, filter: u64, out: &mut Vec<u8>) {
    assert!(is_factor(u32::from(factor)), "a replication factor is 1 to 16, not {factor}");
    let mut text = [b'-'; PUBLIC_ID_BYTES_MAX];
    text[..HEX_DIGITS].copy_from_slice(&hex_digits(id.0));
    let mut end = HEX_DIGITS + 1;
    if factor >= 10 {
        text[end] = b'1';
        end += 1;
    }
    text[end] = b'0' + factor % 10;
    end += 2;
    text[end..end + HEX_DIGITS].copy_from_slice(&hex_digits(filter));
    out.extend_from_slice(&text[..end + HEX_DIGITS]);
}

/// The 16 lower-case hex digits of `value`, most significant first.
pub fn hex_digits(value: u64) -> [u8; HEX_DIGITS] {
    let [high, low] = [(value >> 32) as u32, value as u32].map(eight_hex_digits);
    ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
}

/// The 8 hex digits of `value`, the first one in the highest byte: all are made at once.
#[inline]
fn eight_hex_digits(value: u32) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let value = u64::from(value);
    let value = (value | value << 16) & 0x0000_FFFF_0000_FFFF;
    let value = (value | value << 8) & 0x00FF_00FF_00FF_00FF;
    let nibbles = (value | value << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    // A nibble above 9 is a letter, which stands 39 places behind the digit that it would be.
    let letters = ((nibbles + 6 * ONES) >> 4) & ONES;
    nibbles + ONES * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)
}

fn parse_plain_path(path: &[u8]) -> TimerPath {
    match path.strip_prefix(b"/timers") {
        Some(b"" | b"/") => TimerPath::Collection,
        Some(b"/bulk") => TimerPath::Bulk,
        Some(b"/references") => TimerPath::References,
        Some(b"/count") => TimerPath::Count,
        Some([b'/', id @ ..]) => match parse_id(id) {
            // No action fits behind so short an id.
            Some(named) if named.filter.is_some() || id.len() < ACTION_BYTES_MIN => {
                TimerPath::Timer(named)
            }
            named => unusual(id, named),
        },
        None if path == b"/ping" => TimerPath::Ping,
        None if path == b"/timestamps" => TimerPath::Timestamps,
        None => other_path(path),
        _ => TimerPath::Unknown,
    }
}

/// What a path stands for that is not of timers.
#[cold]
fn other_path(path: &[u8]) -> TimerPath {
    match path.strip_prefix(b"/dead-letters") {
        Some(rest) => letter_path(rest),
        None => job(path),
    }
}

#[cold]
fn letter_path(rest: &[u8]) -> TimerPath {
    match rest {
        b"" | b"/" => TimerPath::DeadLetters,
        b"/replay" => TimerPath::Replays,
        [b'/', id @ ..] => {
            let (id, path): (_, fn(PublicId) -> TimerPath) = match id.strip_suffix(b"/replay") {
                Some(id) => (id, TimerPath::Replay),
                None => (id, TimerPath::DeadLetter),
            };
            // Nothing behind an id is ignored: what is cut off from a long path with escapes may be
            // `/replay`.
            let is_bare = || {
                id.len() <= HEX_DIGITS + 3 && id.last().is_some_and(|byte| byte.is_ascii_digit())
            };
            let public = parse_id(id).filter(|public| public.filter.is_some() || is_bare());
            public.map_or(TimerPath::Unknown, path)
        }
        _ => TimerPath::Unknown,
    }
}

/// What a path of jobs stands for.
#[cold]
fn job(path: &[u8]) -> TimerPath {
    match path.strip_prefix(b"/jobs") {
        Some(b"" | b"/") => TimerPath::Jobs,
        Some([b'/', id @ ..]) => {
            let id = id.try_into().ok().and_then(parse_hex).filter(|id| *id != 0);
            id.map_or(TimerPath::Unknown, TimerPath::Job)
        }
        _ => TimerPath::Unknown,
    }
}

/// What a path stands for that holds no id with a filter. `timer` is the id that it begins with.
#[cold]
fn unusual(text: &[u8], timer: Option<PublicId>) -> TimerPath {
    let is_named = |text: &[u8]| text.starts_with(b"by-name/");
    match TimerAction::split(text) {
        Some((timer, action)) if is_named(timer) => TimerPath::NamedAction(action),
        Some((timer, action)) if !is_named(text) && text.len() < BEHIND_TIMERS_MAX => {
            match parse_id(timer) {
                Some(timer) => TimerPath::Action(timer, action),
                None => TimerPath::Unknown,
            }
        }
        _ if is_named(text) => TimerPath::Named,
        _ => timer.map_or(TimerPath::Unknown, TimerPath::Timer),
    }
}

fn parse_id(text: &[u8]) -> Option<PublicId> {
    let (id, rest) = text.split_first_chunk::<HEX_DIGITS>()?;
    let id = TimerId(parse_hex(id)?);
    let Some(rest) = rest.strip_prefix(b"-") else {
        let filter = parse_hex(rest.try_into().ok()?)?;
        return Some(PublicId { id, factor: None, filter: Some(filter) });
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (factor, suffix) = rest.split_at(digits);
    let factor = match factor {
        [ones] => u32::from(ones - b'0'),
        [tens, ones] => u32::from(tens - b'0') * 10 + u32::from(ones - b'0'),
        _ => return None,
    };
    if !is_factor(factor) {
        return None;
    }
    let filter = suffix
        .strip_prefix(b"-")
        .and_then(|filter| filter.try_into().ok())
        .and_then(|filter: &[u8; HEX_DIGITS]| parse_hex(filter));
    Some(PublicId { id, factor: Some(factor as u8), filter })
}

const fn is_factor(factor: u32) -> bool {
    factor >= 1 && factor <= REPLICATION_FACTOR_MAX
}

fn parse_hex(digits: &[u8; HEX_DIGITS]) -> Option<u64> {
    // The fold collects invalid digits instead of testing each digit: no branch until the end.
    let (value, seen) = digits.iter().fold((0_u64, 0_u8), |(value, seen), &digit| {
        let digit = HEX_VALUES[usize::from(digit)];
        (value << 4 | u64::from(digit & 15), seen | digit)
    });
    (seen < 16).then_some(value)
}

/// Resolves escapes of unreserved characters into `plain` and returns how many bytes it wrote.
/// Every other escape stays as it is: in an id it is no hex digit, and in a suffix it is ignored.
/// Bytes that do not fit are cut off, because only a path with an ignored suffix is longer and yet
/// known.
fn unescape(path: &[u8], plain: &mut [u8; ESCAPED_PATH_BYTES_MAX]) -> usize {
    let mut rest = path;
    for (written, place) in plain.iter_mut().enumerate() {
        let Some((&first, after)) = rest.split_first() else { return written };
        (*place, rest) = match after.split_first_chunk::<2>() {
            Some((&digits, behind)) if first == b'%' => match unreserved(digits) {
                Some(byte) => (byte, behind),
                None => (first, after),
            },
            _ => (first, after),
        };
    }
    ESCAPED_PATH_BYTES_MAX
}

/// The unreserved character (RFC 3986 section 2.3) with these two hex digits; `None`: another byte.
fn unreserved(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| HEX_VALUES[usize::from(digit)]);
    let byte = (high | low < 16).then_some(high << 4 | low)?;
    (byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0004d9f548100000";

    fn timer(factor: Option<u8>, filter: Option<u64>) -> TimerPath {
        TimerPath::Timer(PublicId { id: TimerId(0x0004_d9f5_4810_0000), factor, filter })
    }

    #[test]
    fn fixed_paths() {
        assert_eq!(parse_path("/timers"), TimerPath::Collection);
        assert_eq!(parse_path("/timers/"), TimerPath::Collection);
        assert_eq!(parse_path("/timers/references"), TimerPath::References);
        assert_eq!(parse_path("/timers/bulk"), TimerPath::Bulk);
        assert_eq!(parse_path("/timers/count"), TimerPath::Count);
        assert_eq!(parse_path("/timers/count/"), TimerPath::Unknown);
        for named in ["/timers/by-name/", "/timers/by-name/a/b", "/timers/by%2Dname/%2F%"] {
            assert_eq!(parse_path(named), TimerPath::Named, "{named}");
        }
        assert_eq!(parse_path("/ping"), TimerPath::Ping);
        assert_eq!(parse_path("/timestamps"), TimerPath::Timestamps);
        for other in [
            "",
            "/",
            "*",
            "/timer",
            "/timersx",
            "/timers//",
            "/Timers",
            "timers",
            "/timers/references/",
            "/timers/by-name",
            "/timers/by-names/a",
            "/timers/by-name%2Fa",
            "/ping/",
            "/pingx",
            "/timestamps/",
            "//timers",
            "/timers/../ping",
            "/timers/.",
            "/\u{e9}",
        ] {
            assert_eq!(parse_path(other), TimerPath::Unknown, "{other}");
        }
    }

    #[test]
    fn paths_of_dead_letters() {
        assert_eq!(parse_path("/dead-letters"), TimerPath::DeadLetters);
        assert_eq!(parse_path("/dead-letters/"), TimerPath::DeadLetters);
        assert_eq!(parse_path("/dead-letters/replay"), TimerPath::Replays);
        let TimerPath::Timer(id) = timer(Some(2), Some(15)) else { return };
        let path = format!("/dead-letters/{ID}-2-000000000000000f");
        assert_eq!(parse_path(&path), TimerPath::DeadLetter(id));
        assert_eq!(parse_path(&format!("{path}/replay")), TimerPath::Replay(id));
        for other in ["/dead-letters/x", "/dead-letters/x/replay", "/dead-lettersx", "/dead"] {
            assert_eq!(parse_path(other), TimerPath::Unknown, "{other}");
        }
    }

    #[test]
    fn an_action_is_the_last_segment_behind_an_id_or_a_name() {
        use TimerAction::{Pause, RunNow};
        let (id, filter) = (ID, "00000000000000ff");
        let acted = |text: String| parse_path(&format!("/timers/{text}"));
        let known = TimerId(0x0004_d9f5_4810_0000);
        for (text, factor, filter) in [
            (format!("{id}-2-{filter}"), Some(2), Some(0xff)),
            (format!("{id}%2D2%2d{filter}"), Some(2), Some(0xff)),
            (format!("{id}-2"), Some(2), None),
            (format!("{id}-2-any/thing"), Some(2), None),
            (format!("{id}{filter}"), None, Some(0xff)),
        ] {
            let public = PublicId { id: known, factor, filter };
            assert_eq!(acted(format!("{text}/pause")), TimerPath::Action(public, Pause), "{text}");
            let path = acted(format!("{text}/run%2Dnow"));
            assert_eq!(path, TimerPath::Action(public, RunNow), "{text}");
        }
        assert_eq!(acted("by-name/a%2Fb/pause".into()), TimerPath::NamedAction(Pause));
        assert_eq!(acted("by-name/pause".into()), TimerPath::Named);
        for length in [1, 80, 81, 82, 83, 84, 85, 256, 300] {
            let name = "%c3".repeat(length);
            assert_eq!(acted(format!("by-name/{name}")), TimerPath::Named);
            assert_eq!(acted(format!("by-name/{name}/pause")), TimerPath::NamedAction(Pause));
            let other = "a".repeat(length);
            for path in [format!("by-name/%c3{other}/pauses"), format!("by-name/%c3{other}")] {
                assert_eq!(acted(path.clone()), TimerPath::Named, "{path}");
            }
        }
        assert_eq!(acted("pause".into()), TimerPath::Unknown);
        assert_eq!(acted(format!("{id}/pause")), TimerPath::Unknown);
    }

    #[test]
    fn ids_in_every_form() {
        let filter = 0x8000_0000_0000_000f;
        for (text, expected) in [
            (format!("{ID}-2-800000000000000f"), timer(Some(2), Some(filter))),
            (format!("{ID}-16-800000000000000F"), timer(Some(16), Some(filter))),
            (format!("{}-02", ID.to_uppercase()), timer(Some(2), None)),
            (format!("{ID}800000000000000f"), timer(None, Some(filter))),
            (format!("{ID}-1"), timer(Some(1), None)),
        ] {
            assert_eq!(parse_path(&format!("/timers/{text}")), expected, "{text}");
        }
    }

    #[test]
    fn no_number_of_digits_that_are_none_makes_an_id() {
        for count in 1..=ID.len() {
            let text = format!("/timers/{}{}-1", "z".repeat(count), &ID[count..]);
            assert_eq!(parse_path(&text), TimerPath::Unknown, "{text}");
        }
    }

    #[test]
    fn a_suffix_that_is_no_filter_is_ignored() {
        for suffix in [
            "-",
            "-x",
            "x",
            "/x",
            "-800000000000000",
            "-800000000000000ff",
            "-800000000000000g",
            "--",
            "?",
            "%20",
            "%",
            "%2F%2e%2e",
        ] {
            assert_eq!(
                parse_path(&format!("/timers/{ID}-3{suffix}")),
                timer(Some(3), None),
                "{suffix}"
            );
        }
        let long = "%41".repeat(1_000);
        assert_eq!(parse_path(&format!("/timers/{ID}-3{long}")), timer(Some(3), None));
    }

    #[test]
    fn factors_out_of_range() {
        let digits = "12345678901234567890123";
        for factor in
            ["0", "00", "17", "99", "1000000000", "1e9", digits, "-1", "+1", "", "x", "002"]
        {
            let path = format!("/timers/{ID}-{factor}");
            // `1e9` is the factor 1 with a suffix.
            let expected = if factor == "1e9" { timer(Some(1), None) } else { TimerPath::Unknown };
            assert_eq!(parse_path(&path), expected, "{factor}");
        }
    }

    #[test]
    fn malformed_ids() {
        for id in [
            ID,
            "1",
            "0004d9f54810000",
            "0004d9f54810000-2",
            "0004d9f5481000000-2",
            "0004d9f54810000g-2",
            "0004d9f54810000\u{e9}-2",
            "0x04d9f548100000-2",
            "+004d9f548100000-2",
            "%2e%2e",
            "%2e%2e%2fping",
            "0004d9f548100000800000000000000",
            "0004d9f5481000008000000000000000f",
            "0004d9f548100000-",
            "0004d9f548100000_2",
            " 004d9f548100000-2",
        ] {
            assert_eq!(parse_path(&format!("/timers/{id}")), TimerPath::Unknown, "{id}");
        }
    }

    #[test]
    fn escapes_of_unreserved_characters() {
        assert_eq!(
            parse_path(&format!("/timers/{ID}%2D2%2d0000000000000001")),
            timer(Some(2), Some(1))
        );
        let all: String =
            format!("/timers/{ID}-2").bytes().skip(1).map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(parse_path(&format!("/{}", all.replace("%2f", "/"))), timer(Some(2), None));
        assert_eq!(parse_path("/%70ing"), TimerPath::Ping);
        for other in [
            "/timers%2Freferences",
            "/timers/%",
            "/timers/%3",
            "/timers/%zz",
            "/timers/%00",
            "/pin%67%",
        ] {
            assert_eq!(parse_path(other), TimerPath::Unknown, "{other}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for factor in 1..=16 {
            for bits in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
                let mut path = b"/timers/".to_vec();
                write_public_id(TimerId(bits), factor, !bits, &mut path);
                let path = String::from_utf8(path).expect("ASCII");
                assert_eq!(path, format!("/timers/{bits:016x}-{factor}-{:016x}", !bits));
                assert_eq!(
                    parse_path(&path),
                    TimerPath::Timer(PublicId {
                        id: TimerId(bits),
                        factor: Some(factor),
                        filter: Some(!bits)
                    })
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "a replication factor is 1 to 16, not 17")]
    fn no_factor_out_of_range_is_written() {
        write_public_id(TimerId(1), 17, 0, &mut Vec::new());
    }
}
