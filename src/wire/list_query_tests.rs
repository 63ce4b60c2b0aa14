use proptest::prelude::*;

use super::*;

const NOW: WallMs = WallMs(1_796_115_600_000);

fn read(query: &str) -> Result<ListQuery, String> {
    ListQuery::read(query, NOW).map_err(|error| error.to_string())
}

fn refused(query: &str) -> String {
    read(query).expect_err(query)
}

#[test]
fn a_query_without_parameters_lists_everything() {
    let query = read("").expect("good");
    assert_eq!((query.limit, query.cursor), (LIST_LIMIT_DEFAULT, None));
    assert_eq!(query.filter.borrow(), Filter::ALL);
    assert_eq!(read("&&").expect("good"), query);
}

#[test]
fn every_parameter_is_understood() {
    let query = read(
        "tag=CALL%20me%2f%C3%A9&host=[::1]:80&due-after=0.5&due-before=2026-12-01T10:00:00%2B00:00\
         &state=backing-off&limit=7",
    )
    .expect("good");
    let filter = query.filter.borrow();
    assert_eq!((filter.tag, filter.host), (Some("CALL me/\u{e9}"), Some("[::1]:80")));
    assert_eq!(filter.due_after, Some(WallMs(NOW.0 + 500)));
    assert_eq!(filter.due_before, Some(WallMs(NOW.0 + 3_600_000)));
    assert_eq!((filter.states, query.limit), (ListedState::BackingOff.bit(), 7));
    let plus = read("due-before=2026-12-01T10:00:00+00:00").expect("a plus sign stays one");
    assert_eq!(plus.filter.borrow().due_before, filter.due_before);
}

#[test]
fn bad_parameters_are_named() {
    for (query, reason) in [
        ("limit=0", "limit: expected 1 to 1000, got 0"),
        ("limit=1001", "limit: expected 1 to 1000, got 1001"),
        ("limit=", "limit: expected 1 to 1000, got "),
        ("limit", "limit: expected 1 to 1000, got "),
        ("limit=+1", "limit: expected 1 to 1000, got +1"),
        ("limit=-1", "limit: expected 1 to 1000, got -1"),
        ("limit=1.0", "limit: expected 1 to 1000, got 1.0"),
        ("limit=99999999999999999999", "limit: expected 1 to 1000, got 99999999999999999999"),
        ("limit=1&limit=1", "limit: expected once, got it twice"),
        ("tag=a&tag=a", "tag: expected once, got it twice"),
        ("cursor=&cursor=", "cursor: expected one that a page of this list gave out, got "),
        ("tag=", "tag: expected 1 to 64 bytes, got 0 bytes"),
        ("host=", "host: expected 1 to 262 bytes, got 0 bytes"),
        ("tag=%", "tag: expected percent escapes of UTF-8 text, got %"),
        ("tag=%f", "tag: expected percent escapes of UTF-8 text, got %f"),
        ("tag=%ff", "tag: expected percent escapes of UTF-8 text, got %ff"),
        (
            "state=asleep",
            "state: expected armed, ready, in-flight, backing-off, handed-over or paused",
        ),
        ("state=Armed", "state: expected armed"),
        ("due-before=soon", "due-before: expected seconds from now (0 to 3162240000), or a time"),
        ("due-before=-1", "due-before: expected seconds"),
        ("due-before=1e3", "due-before: expected seconds"),
        ("due-before=3162240000.001", "due-before: expected seconds"),
        ("due-before=1.2345", "due-before: expected seconds"),
        ("due-after=5&due-before=5", "due-after: expected earlier than due-before, which is 5"),
        ("due-after=6&due-before=5", "due-after: expected earlier than due-before"),
        ("Tag=a", "query: expected tag, host, due-after, due-before, state, limit or cursor"),
        ("name-prefix=a", "query: expected tag, host"),
    ] {
        let got = refused(query);
        // The first of two mistakes is told.
        let is_it =
            got.starts_with(reason) || query.starts_with("cursor=&") && got.contains("twice");
        assert!(is_it, "{query}: {got}");
    }
    assert!(refused(&format!("tag={}", "t".repeat(65))).ends_with("got 65 bytes"));
    assert!(refused(&"x".repeat(5_000)).len() < 200);
}

#[test]
fn a_cursor_is_good_for_its_query_alone() {
    let cursor = Cursor { from: Place(77), walk: 5, began: WallMs(NOW.0 - 9_000) };
    let first = read("tag=a&due-before=10&limit=5").expect("good");
    let text = first.write_cursor(&cursor);
    assert_eq!(text.len(), 2 * CURSOR_BYTES);
    let next = read(&format!("tag=a&due-before=10&limit=9&cursor={text}")).expect("another limit");
    assert_eq!(next.cursor, Some(cursor));
    // Seconds count from when the list began.
    assert_eq!(next.filter.borrow().due_before, Some(WallMs(NOW.0 + 1_000)));
    for other in ["tag=b&due-before=10", "tag=a", "host=a&due-before=10", "tag=a&due-before=10.0"] {
        let reason = refused(&format!("{other}&cursor={text}"));
        assert!(reason.starts_with("cursor: expected one of this query"), "{other}: {reason}");
    }
}

#[test]
fn a_forged_cursor_is_refused() {
    let query = read("").expect("good");
    let cursor = Cursor { from: Place(77), walk: 5, began: NOW };
    let text = query.write_cursor(&cursor);
    assert!(read(&format!("cursor={text}")).is_ok());
    for place in 0..text.len() {
        for digit in ["0", "f", "F", "g", "~"] {
            let mut forged = text.clone();
            forged.replace_range(place..=place, digit);
            if forged != text {
                let reason = refused(&format!("cursor={forged}"));
                assert!(reason.starts_with("cursor: expected one that a page"), "{reason}");
            }
        }
    }
    for forged in ["0", &text[1..], &format!("{text}0"), &text.to_uppercase(), "%00"] {
        assert!(refused(&format!("cursor={forged}")).starts_with("cursor: "), "{forged}");
    }
}

#[test]
fn numbers_are_asked_for_with_or_without_due_times() {
    let read = |query: &str| read_count_query(query).map_err(|error| error.to_string());
    for (query, has_spans) in [("", true), ("&", true), ("histogram=false", false)] {
        assert_eq!(read(query), Ok(has_spans), "{query}");
    }
    for (query, reason) in [
        ("histogram", "histogram: expected true or false, got "),
        ("histogram=1", "histogram: expected true or false, got 1"),
        ("histogram=true&histogram=true", "histogram: expected once, got it twice"),
        ("tag=a", "query: expected histogram, got tag"),
    ] {
        assert_eq!(read(query), Err(reason.to_owned()));
    }
}

#[test]
fn what_nodes_ask_is_told_apart() {
    for query in ["node-for-replicas=a", "x=1&cluster-view-id=3", "time-from", "time-from=1&tag=a"]
    {
        assert!(is_of_nodes(query), "{query}");
    }
    for query in ["", "tag=node-for-replicas", "node-for-replica=1"] {
        assert!(!is_of_nodes(query), "{query}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(query in "[ -~]{0,120}") {
        let _ = read(&query);
    }

    #[test]
    fn likely_texts_are_read_or_refused(
        pairs in prop::collection::vec((0_usize..8, "[0-9a-fTZ:.%+-]{0,70}"), 0..5)
    ) {
        const NAMES: [&str; 8] =
            ["tag", "host", "due-after", "due-before", "state", "limit", "cursor", "x"];
        let pairs: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}={value}", NAMES[*name])).collect();
        let _ = read(&pairs.join("&"));
    }
}
