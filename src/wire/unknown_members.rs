//! Members of a client's document that nobody knows. The contract of the original ignores them, so
//! a typing error makes a timer that does something else. This is what the client is told.

use std::fmt::Write;

use crate::wire::json::Cursor;
use simd_json::Node;

/// What every sentence about a member has, whatever it is called.
pub const NOT_KNOWN: &str = " is not known";
/// What the client of a timer that never pops is told.
pub const NEVER_POPS: &str = "the timer never pops, because timing.repeat-for is less than \
                              timing.interval; nothing is stored";
/// Members that are named; others are counted.
const NAMED_MAX: usize = 3;
/// Most characters of all members that are named, so that a reason of 200 has them and how many
/// more there are.
const TEXT_CHARS_MAX: usize = 184;
/// Most characters of a member's name that are told. Longer names are not compared with others,
/// because that costs the product of their lengths.
pub const NAME_CHARS_MAX: usize = 40;
/// Least similarity (Jaro-Winkler, 0 to 1) of a member that is offered for one that is not known.
const SIMILARITY_MIN: f64 = 0.80;

/// What a client may write, by the path of its object.
const KNOWN: [(&str, &[&str]); 9] = [
    ("", &["timing", "callback", "reliability", "statistics"]),
    (
        "timing",
        &[
            "interval",
            "repeat-for",
            "at",
            "window",
            "cron",
            "time-zone",
            "catch-up-window",
            "end-at",
        ],
    ),
    ("callback", &["http", "retry", "timeout", "dead-letter", "on-success", "on-failure"]),
    ("callback.http", &["uri", "opaque", "opaque-base64", "method", "content-type", "headers"]),
    ("callback.retry", &["max-attempts", "max-age", "initial", "multiplier", "max", "jitter"]),
    ("callback.dead-letter", &["uri"]),
    ("reliability", &["replication-factor"]),
    ("statistics", &["tag-info"]),
    ("statistics.tag-info", &["type", "count"]),
];

/// What answers show and nodes tell: a client that sends a document back as it got it means
/// nothing by these.
const SHOWN: [(&str, &[&str]); 3] = [
    (
        "",
        &[
            "name",
            "paused",
            "report",
            "replays",
            "dead-letter",
            "location",
            "state",
            "due-in-ms",
            "due-at",
            "next-pops",
            "replicas",
        ],
    ),
    ("timing", &["start-time", "start-time-delta", "sequence-number", "next-at"]),
    ("reliability", &["cluster-view-id", "replicas", "sites"]),
];

fn members(
    of: &'static [(&'static str, &'static [&'static str])],
    path: &str,
) -> &'static [&'static str] {
    of.iter().find(|(known, _)| *known == path).map_or(&[], |(_, members)| members)
}

/// What is told of a document.
#[derive(Default)]
struct Found {
    text: String,
    named: usize,
    count: usize,
}

impl Found {
    fn note(&mut self, path: &str, name: &str) {
        self.count += 1;
        // Those that are named are the first ones.
        if self.named == NAMED_MAX || self.named + 1 < self.count {
            return;
        }
        let mut text = String::new();
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        let dot = if path.is_empty() { "" } else { "." };
        let _ = write!(text, "{path}{dot}{shown}{NOT_KNOWN}");
        if name.len() <= NAME_CHARS_MAX
            && let Some(near) = nearest(path, name)
        {
            let _ = write!(text, ", did you mean {near}?");
        }
        if self.named > 0 {
            if self.text.chars().count() + 2 + text.chars().count() > TEXT_CHARS_MAX {
                return;
            }
            self.text.push_str("; ");
        }
        self.named += 1;
        self.text.push_str(&text);
    }

    fn finish(mut self) -> Option<Box<str>> {
        if self.count > self.named {
            let _ = write!(self.text, "; and {} more", self.count - self.named);
        }
        (self.count > 0).then(|| self.text.into())
    }
}

/// The member that was meant: one of the same object that looks like it, or the same name
/// elsewhere.
fn nearest(path: &str, name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase().replace(['_', ' '], "-");
    let here = members(&KNOWN, path).iter();
    let alike = here.map(|known| (strsim::jaro_winkler(&name, known), *known));
    let best = alike.max_by(|left, right| left.0.total_cmp(&right.0))?;
    let elsewhere = || {
        let (home, _) = KNOWN.iter().find(|(_, members)| members.contains(&&*name))?;
        let dot = if home.is_empty() { "" } else { "." };
        Some(format!("{home}{dot}{name}"))
    };
    match best {
        (1.0, known) => Some(known.to_owned()),
        (similarity, known) => {
            elsewhere().or_else(|| (similarity >= SIMILARITY_MIN).then(|| known.to_owned()))
        }
    }
}

/// What a client is told of the members that nobody knows, in a sentence of bounded length;
/// `None`: all are known. `document` stands before a document that was read.
#[cold]
pub(super) fn unknown_members(mut document: Cursor<'_, '_>) -> Option<Box<str>> {
    let mut found = Found::default();
    walk(&mut document, "", &mut found);
    found.finish()
}

/// Walks over the value of a member that is known. Objects lie in each other as deep as [`KNOWN`]
/// says.
fn walk(cursor: &mut Cursor<'_, '_>, path: &str, found: &mut Found) {
    let (known, shown) = (members(&KNOWN, path), members(&SHOWN, path));
    let count = match cursor.next() {
        Node::Object { len, .. } => len,
        Node::Array { len, .. } => return (0..len).for_each(|_| walk(cursor, path, found)),
        _ => return,
    };
    for _ in 0..count {
        let key = cursor.key();
        let mut value = cursor.value();
        if !known.contains(&key) {
            if !shown.contains(&key) {
                found.note(path, key);
            }
            continue;
        }
        let inner = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if !members(&KNOWN, &inner).is_empty() {
            walk(&mut value, &inner, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::internal_json::parse_any;
    use crate::wire::json::JsonScratch;

    fn told(body: &str) -> Option<Box<str>> {
        let mut body = body.as_bytes().to_vec();
        let document = parse_any(&mut body, &mut JsonScratch::default()).expect("a timer");
        document.unknown
    }

    fn timer(timing: &str, http: &str, callback: &str, more: &str) -> String {
        format!(
            "{{\"timing\":{{\"interval\":5{timing}}},\"callback\":{{\"http\":{{\
             \"uri\":\"http://h\",\"opaque\":\"\"{http}}}{callback}}}{more}}}"
        )
    }

    #[test]
    fn members_that_are_known_or_shown_are_no_matter() {
        for body in [
            timer("", "", "", ""),
            timer(",\"repeat-for\":10,\"window\":2", ",\"headers\":{\"Own\":\"x\"}", "", ""),
            timer("", "", ",\"retry\":{\"max-attempts\":2},\"timeout\":\"PT1S\"", ""),
            timer("", "", ",\"dead-letter\":{\"uri\":\"http://h\"}", ",\"statistics\":{}"),
            timer(
                ",\"start-time-delta\":-7,\"sequence-number\":1",
                "",
                "",
                ",\"name\":\"a\",\"paused\":true,\"next-pops\":[],\"replicas\":[],\
                 \"statistics\":{\"tag-info\":[{\"type\":\"A\"}]}",
            ),
        ] {
            assert_eq!(told(&body), None, "{body}");
        }
    }

    #[test]
    fn members_that_are_not_known_are_named_with_what_was_meant() {
        for (body, expected) in [
            (
                timer(",\"repeat_for\":10", "", "", ""),
                "timing.repeat_for is not known, did you mean repeat-for?",
            ),
            (
                timer(",\"REPEAT-FOR\":10", "", "", ""),
                "timing.REPEAT-FOR is not known, did you mean repeat-for?",
            ),
            (timer("", ",\"foo\":{\"a\":[1]}", "", ""), "callback.http.foo is not known"),
            (
                timer("", "", "", ",\"repeat-for\":[]"),
                "repeat-for is not known, did you mean timing.repeat-for?",
            ),
            (
                timer("", ",\"retry\":{\"max-attempts\":2}", "", ""),
                "callback.http.retry is not known, did you mean callback.retry?",
            ),
            (
                timer("", "", ",\"retry\":{\"max_attempt\":2}", ""),
                "callback.retry.max_attempt is not known, did you mean max-attempts?",
            ),
            (
                timer("", "", "", ",\"statistics\":{\"tag-info\":[{\"type\":\"A\",\"counts\":2}]}"),
                "statistics.tag-info.counts is not known, did you mean count?",
            ),
            (
                timer(
                    "",
                    "",
                    "",
                    ",\"reliability\":{\"factor\":2},\"x\":1,\"y\":1,\"z\":1,\"w\":1",
                ),
                "reliability.factor is not known; x is not known; y is not known; and 2 more",
            ),
        ] {
            assert_eq!(told(&body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn what_is_told_is_bounded() {
        let names = (0..5_000).map(|at| format!(",\"{}{at}\":{{}}", "n".repeat(100)));
        let body = timer(&names.collect::<String>(), "", "", "");
        let told = told(&body).expect("they are not known");
        assert!(told.ends_with("; and 4997 more") && told.len() <= 200, "{told}");
        let names =
            ["reliability.replication_factor", "dead_letter_", "repeat_forr", "max_attempt"];
        let http: String = names.iter().map(|name| format!(",\"{name}\":1")).collect();
        let told = super::tests::told(&timer("", &http, "", "")).expect("they are not known");
        assert!(told.ends_with(" more") && told.len() <= 200, "{told}");
    }
}
