//! From a request's document to a timer: what each member means (docs/compat/timer-service.md §1.4,
//! the column *here*).

// May panic: indices 2.
// Why it does not: found 2.
// Reads the wall clock: original 2.

use super::definition::{Definition, encode_content, encode_with_attributes};
use super::naming::Identity;
use super::options::{admit_options, duration_ms};
pub use super::rejection::Rejection;
use crate::base::limits::REPLICATION_FACTOR_MAX;
use crate::base::time::{Now, Tick, WallMs};
use crate::wire::callback_uri::{AuthorityMemory, before, escaped, parse_told_uri};
use crate::wire::internal_json::InternalPart;
use crate::wire::lasting::milliseconds;
use crate::wire::peer_frame::OPAQUE_TOLD_BYTES_MAX;
use crate::wire::peer_message::{CopyBody, START_MS_MAX};
use crate::wire::timer_json::TimerDocument;

/// How far a wall-clock start may lie ahead, because clocks differ. A start that seems further
/// ahead lies 2^32 ms, 49 days, earlier instead.
const START_AHEAD_MS_MAX: u32 = 3_600_000;

/// Checks the document of a create (`factor_in_path` is `None`) or of an update, and encodes its
/// content into `content`, which is cleared first. `wall` is the node's clock. No allocation if
/// `content` has room and the document has no options.
#[inline]
pub fn admit<'a>(
    document: &TimerDocument<'a>,
    limits: (Option<u8>, u32, WallMs),
    authorities: &mut AuthorityMemory,
    content: &'a mut Vec<u8>,
) -> Result<Definition<'a>, Rejection> {
    admit_as(document, Identity::default(), limits, authorities, content)
}

/// The same as [`admit`], for a timer whose id a name or a key makes.
#[inline]
pub fn admit_as<'a>(
    document: &TimerDocument<'a>,
    identity: Identity<'_>,
    (factor_in_path, opaque_bytes_max, wall): (Option<u8>, u32, WallMs),
    authorities: &mut AuthorityMemory,
    content: &'a mut Vec<u8>,
) -> Result<Definition<'a>, Rejection> {
    let (interval_ms, repeat_for_ms) = timing(document)?;
    let factor = factor(document.replication_factor, factor_in_path)?;
    let uri = authorities.split(document.uri);
    let uri = uri.map_err(|error| Rejection::of_uri(error.0, document.uri))?;
    if document.opaque.len() > opaque_bytes_max as usize {
        return Err(Rejection::OpaqueTooLong { max: opaque_bytes_max, got: document.opaque.len() });
    }
    content.clear();
    let (tags, opaque) = (document.tags.as_slice(), document.opaque.as_bytes());
    let authority = uri.authority;
    if document.options.is_some() || identity != Identity::default() {
        let options = (document.options.as_deref(), identity);
        let options = admit_options(options, wall, opaque_bytes_max)?;
        let opaque = options.opaque.as_deref().unwrap_or(opaque);
        encode_with_attributes(uri.target, tags, (&options.attributes, opaque), content);
        let at_ms = options.interval_ms;
        let [interval_ms, repeat_for_ms] =
            [interval_ms, repeat_for_ms].map(|ms| at_ms.unwrap_or(ms));
        return Ok(Definition { interval_ms, repeat_for_ms, factor, authority, content });
    }
    encode_content(uri.target, tags, opaque, content);
    Ok(Definition { interval_ms, repeat_for_ms, factor, authority, content })
}

/// A timer as a node tells it, without its holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told<'a> {
    /// Milliseconds between pops.
    pub interval_ms: u64,
    /// Milliseconds after the start in which the timer pops.
    pub repeat_for_ms: u64,
    /// What is called back; `None`: the timer is a tombstone.
    pub body: Option<CopyBody<'a>>,
}

/// Checks the document of a node (docs/compat/timer-service.md §5.1) and encodes its content into
/// `content`, which is cleared first. An empty URI means a tombstone. The limits are those of
/// messages between nodes instead of those for clients, because a client already has the answer 200
/// for this timer.
pub fn admit_told<'a>(
    document: &TimerDocument<'a>,
    content: &'a mut Vec<u8>,
) -> Result<Told<'a>, Rejection> {
    let (interval_ms, repeat_for_ms) = timing(document)?;
    if document.uri.is_empty() {
        return Ok(Told { interval_ms, repeat_for_ms, body: None });
    }
    factor(document.replication_factor, None)?;
    let whole = escaped(document.uri);
    let uri = parse_told_uri(&whole).map_err(|error| Rejection::of_uri(error.0, &whole))?;
    if document.opaque.len() > OPAQUE_TOLD_BYTES_MAX as usize {
        return Err(Rejection::OpaqueToldTooLong(document.opaque.len()));
    }
    content.clear();
    encode_content(uri.target, document.tags.as_slice(), document.opaque.as_bytes(), content);
    // Scheme and authority have no escapes, so the authority has the same bytes in the document.
    let authority = &document.uri[before(uri.authority).len()..][..uri.authority.len()];
    let body = CopyBody { authority, content };
    Ok(Told { interval_ms, repeat_for_ms, body: Some(body) })
}

/// When a timer that a node tells of started, on this node's monotonic clock. The delta decides;
/// without a delta the wall clock modulo 2^32 ms decides (docs/compat/timer-service.md §4). The
/// result is never before the true start, as far as the message tells that start.
pub fn start_of(part: &InternalPart<'_>, now: Now) -> Tick {
    let age_ms = |start_wall_ms: u32| {
        let age_ms = (now.wall.0 as u32).wrapping_sub(start_wall_ms);
        if age_ms > u32::MAX - START_AHEAD_MS_MAX { 0 } else { i64::from(age_ms) }
    };
    let told_ms = part.start_delta_ms.or_else(|| part.start_wall_ms.map(|at| -age_ms(at)));
    let start_ms = now.mono.tick_ceil().0.saturating_add_signed(told_ms.unwrap_or(0));
    Tick(start_ms.min(START_MS_MAX))
}

/// When a timer that a node tells of started, on the wall clock of the node that says so. Of all
/// milliseconds that agree with `start-time` modulo 2^32, this is the millisecond nearest to the
/// start on this node's clock. So every node reads the same start from one message, whenever the
/// message arrives. Without `start-time`, or if the result lies before 1970, the start on this
/// node's clock counts.
pub fn start_wall_of(part: &InternalPart<'_>, now: Now) -> WallMs {
    let age_ms = now.mono.tick_ceil() - start_of(part, now);
    let near = now.wall.0.saturating_sub(age_ms);
    let Some(told) = part.start_wall_ms else { return WallMs(near) };
    let off_ms = told.wrapping_sub(near as u32) as i32;
    WallMs(near.checked_add_signed(off_ms.into()).unwrap_or(near))
}

fn timing(document: &TimerDocument<'_>) -> Result<(u64, u64), Rejection> {
    let (interval, repeat_for) = match &document.options {
        Some(options) => (options.interval, options.repeat_for),
        None => (None, None),
    };
    let ms_of = |member, got, text| match text {
        Some(text) => duration_ms(text, member),
        None => milliseconds(got).ok_or(Rejection::Seconds { member, got }),
    };
    let interval_ms = ms_of("timing.interval", document.interval_s, interval)?;
    let Some(repeat_for_s) = document.repeat_for_s else { return Ok((interval_ms, interval_ms)) };
    let repeat_for_ms = ms_of("timing.repeat-for", repeat_for_s, repeat_for)?;
    if interval_ms == 0 && repeat_for_ms > 0 {
        return Err(Rejection::ZeroInterval(repeat_for_ms as f64 / 1_000.0));
    }
    Ok((interval_ms, repeat_for_ms))
}

fn factor(in_body: Option<i64>, in_path: Option<u8>) -> Result<Option<u8>, Rejection> {
    let Some(asked) = in_body else { return Ok(in_path) };
    let in_body = u8::try_from(asked)
        .ok()
        .filter(|&factor| factor >= 1 && u32::from(factor) <= REPLICATION_FACTOR_MAX)
        .ok_or(Rejection::Factor(asked))?;
    match in_path {
        Some(in_path) if in_path != in_body => Err(Rejection::FactorChanged { in_path, in_body }),
        _ => Ok(Some(in_body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::INTERVAL_MS_MAX;
    use crate::wire::timer_json::Tags;

    fn document(interval_s: f64, repeat_for_s: Option<f64>) -> TimerDocument<'static> {
        TimerDocument {
            interval_s,
            repeat_for_s,
            uri: "http://127.0.0.1:9000/pop",
            opaque: "data",
            replication_factor: None,
            tags: Tags::none(),
            options: None,
        }
    }

    fn times(interval_s: f64, repeat_for_s: Option<f64>) -> Result<(u64, u64), Rejection> {
        timing(&document(interval_s, repeat_for_s))
    }

    #[test]
    fn bad_intervals_are_refused_by_name() {
        for bad in [-1.0, -0.001, -1e-9, f64::NAN, f64::INFINITY, 1e15, INTERVAL_MS_MAX as f64] {
            let error = times(bad, None).expect_err("refused");
            assert!(error.to_string().starts_with("timing.interval: expected seconds"), "{error}");
            assert!(times(1.0, Some(bad)).is_err());
        }
        assert_eq!(times(1e-9, None), Ok((1, 1)));
        assert_eq!(times(0.0, None), Ok((0, 0)));
        assert_eq!(times(0.0, Some(0.0)), Ok((0, 0)));
        assert_eq!(times(0.0, Some(1.0)), Err(Rejection::ZeroInterval(1.0)));
        assert_eq!(times(5.0, Some(2.0)), Ok((5_000, 2_000)));
    }

    #[test]
    fn what_a_node_tells_has_limits_of_its_own() {
        use crate::base::limits::{URI_BYTES_MAX, URI_TOLD_BYTES_MAX};
        let told = |uri: &str, opaque: &str| {
            let mut content = Vec::new();
            let document = TimerDocument { uri, opaque, ..document(2.0, None) };
            let told = admit_told(&document, &mut content)
                .map(|told| told.body.map_or(0, |body| body.authority.len() + body.content.len()));
            let limits = (None, 256 << 10, WallMs(0));
            let memory = &mut AuthorityMemory::default();
            let client = admit(&document, limits, memory, &mut Vec::new()).is_ok();
            (told, client)
        };
        let uri = |bytes: usize| format!("HTTP://h:1/{}", "u".repeat(bytes - 11));
        assert_eq!(told(&uri(URI_BYTES_MAX), "o"), (Ok(3 + 4 + URI_BYTES_MAX - 10 + 1), true));
        let (longer, is_for_clients) = told(&uri(3_000), "o");
        assert_eq!((longer, is_for_clients), (Ok(3 + 4 + 3_000 - 10 + 1), false));
        assert!(told(&uri(URI_TOLD_BYTES_MAX + 1), "").0.is_err());
        assert!(told(&format!("http://h/{}", "\u{e9}".repeat(8_000)), "").0.is_err());
        let opaque = "o".repeat(OPAQUE_TOLD_BYTES_MAX as usize);
        assert!(opaque.len() > 2_000_000);
        let (whole, is_for_clients) = told("http://h", &opaque);
        assert_eq!((whole, is_for_clients), (Ok(1 + 4 + opaque.len()), false));
        let longer = opaque + "o";
        assert_eq!(told("http://h", &longer).0, Err(Rejection::OpaqueToldTooLong(longer.len())));
        let mut content = Vec::new();
        let document = TimerDocument { uri: "http://h/\u{e9}", ..document(2.0, None) };
        let body = admit_told(&document, &mut content).expect("told").body.expect("a callback");
        assert_eq!(body.authority, "h");
        assert_eq!(super::super::definition::Content::decode(body.content).target, b"/%c3%a9");
    }

    #[test]
    fn a_start_is_told_by_its_distance_or_by_a_wall_clock_that_wraps() {
        use crate::base::ranked::Ranked;
        use crate::base::time::{MonoNs, TICK_NS, WallMs};
        use crate::wire::internal_json::Origin;
        let part = |start_delta_ms, start_wall_ms| InternalPart {
            origin: Origin::Peer,
            start_delta_ms,
            start_wall_ms,
            sequence: 0,
            view_id: None,
            replicas: Ranked::new(),
            sites: Ranked::new(),
            version: None,
            actives: None,
            owner: None,
            content: None,
            once: None,
            tags_dropped: 0,
        };
        let wall = WallMs((7 << 32) + 1_000);
        let now = Now { mono: MonoNs(90_000_000 * TICK_NS), wall };
        let mono = MonoNs(5_000_000_000 * TICK_NS);
        let back_ms = |start: Tick| 90_000_000 - start.0 as i64;
        assert_eq!(back_ms(start_of(&part(Some(-4_004), Some(1)), now)), 4_004);
        assert_eq!(back_ms(start_of(&part(Some(20), None), now)), -20);
        assert_eq!(start_of(&part(Some(i64::MIN), None), now), Tick(0));
        assert_eq!(back_ms(start_of(&part(None, Some(400)), now)), 600);
        assert_eq!(back_ms(start_of(&part(None, Some(u32::MAX)), now)), 1_001, "it wraps");
        assert_eq!(back_ms(start_of(&part(None, Some(5_000)), now)), 0, "a clock that is ahead");
        assert_eq!(back_ms(start_of(&part(None, None), now)), 0);
        // A clock more than an hour ahead is a clock that wrapped.
        let ahead = |ms: u32| now.wall.0 as u32 + ms;
        assert_eq!(back_ms(start_of(&part(None, Some(ahead(START_AHEAD_MS_MAX))), now)), 0);
        let wrapped =
            start_of(&part(None, Some(ahead(START_AHEAD_MS_MAX + 1))), Now { mono, ..now });
        assert_eq!(mono.tick_ceil() - wrapped, u64::from(u32::MAX - START_AHEAD_MS_MAX));
    }

    #[test]
    fn opaque_data_of_the_limit_is_admitted_and_a_byte_more_is_not() {
        let admitted = |bytes_max| {
            let (document, memory) = (document(1.0, None), &mut AuthorityMemory::default());
            admit(&document, (None, bytes_max, WallMs(0)), memory, &mut Vec::new()).map(|_| ())
        };
        assert_eq!(admitted(4), Ok(()));
        assert_eq!(admitted(3), Err(Rejection::OpaqueTooLong { max: 3, got: 4 }));
    }

    #[test]
    fn the_wall_clock_of_a_start_is_read_alike_whenever_the_message_arrives() {
        use crate::base::time::{MonoNs, TICK_NS};
        use crate::wire::internal_json::Origin;
        let part = |start_delta_ms, start_wall_ms| InternalPart {
            origin: Origin::Peer,
            start_delta_ms,
            start_wall_ms,
            sequence: 0,
            view_id: None,
            replicas: crate::base::ranked::Ranked::new(),
            sites: crate::base::ranked::Ranked::new(),
            version: None,
            actives: None,
            owner: None,
            content: None,
            once: None,
            tags_dropped: 0,
        };
        let start_ms = (9 << 32) + 40;
        let read = |told: Option<u32>, delta_ms: i64, wall_ms: u64| {
            let now = Now { mono: MonoNs(90_000_000 * TICK_NS), wall: WallMs(wall_ms) };
            start_wall_of(&part(Some(delta_ms), told), now).0
        };
        // The message as it was sent, the message under way, and clocks that differ.
        for (delta_ms, wall_ms) in [
            (0, start_ms),
            (-4_004, start_ms + 4_004),
            (-4_004, start_ms + 4_900),
            (0, start_ms - 3_600_000),
            (0, start_ms + 3_600_000),
            (-50, start_ms - 60_000),
        ] {
            assert_eq!(read(Some(40), delta_ms, wall_ms), start_ms, "{delta_ms} {wall_ms}");
        }
        assert_eq!(read(None, -4_004, start_ms + 4_010), start_ms + 6);
        assert_eq!(read(Some(u32::MAX), -7, 8), 1, "nothing is before 1970");
    }

    #[test]
    fn the_factor_is_bounded_and_cannot_change() {
        assert_eq!(factor(None, None), Ok(None));
        assert_eq!(factor(None, Some(3)), Ok(Some(3)));
        assert_eq!(factor(Some(16), None), Ok(Some(16)));
        for bad in [0, -1, 17, 256, 1_000_000_000, i64::MIN] {
            assert_eq!(factor(Some(bad), None), Err(Rejection::Factor(bad)));
        }
        let changed = Rejection::FactorChanged { in_path: 2, in_body: 3 };
        assert_eq!(factor(Some(3), Some(2)), Err(changed));
        assert_eq!(factor(Some(3), Some(3)), Ok(Some(3)));
    }
}
