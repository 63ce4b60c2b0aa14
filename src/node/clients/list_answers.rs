//! The JSON of lists and counts of timers.

// May panic: assertions 1.
// Why it does not: encoded 1.

use crate::base::time::WallMs;
use crate::shard::effects::{ListCount, ListPage, ListedTimer, TimerView};
use crate::wire::dead_letter::LetterUse;
use crate::wire::json::{write_number, write_signed, write_string};
use crate::wire::timer_count::SPANS;
use crate::wire::timer_list::ListedState;
use crate::wire::timer_path::write_public_id;
use crate::wire::wall_time::write_wall_time;

/// Appends a timer as GET shows it.
type WriteDocument = fn(&TimerView, &mut Vec<u8>) -> bool;

/// Appends a page of a list as a JSON document. `write_document` writes the members of GET.
pub fn write_list(page: &ListPage, write_document: WriteDocument, out: &mut Vec<u8>) {
    match page.letters {
        None => out.extend_from_slice(b"{\"timers\":["),
        Some(LetterUse::Show) => out.extend_from_slice(b"{\"dead-letters\":["),
        Some(LetterUse::Replay) => return write_used("replayed", page, out),
        Some(LetterUse::Delete) => return write_used("deleted", page, out),
    }
    for (number, timer) in page.timers.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_document(&timer.view, out);
        write_listed(timer, page.at, out);
    }
    out.push(b']');
    if let Some(cursor) = &page.cursor {
        out.extend_from_slice(b",\"cursor\":");
        write_string(cursor, out);
    }
    write_incomplete(&page.incomplete, out);
    out.push(b'}');
}

/// Appends numbers of timers as a JSON document.
pub fn write_count(count: &ListCount, out: &mut Vec<u8>) {
    let numbers = &count.numbers;
    let all = numbers.states.iter().fold(0_u64, |sum, timers| sum.saturating_add(*timers));
    out.extend_from_slice(b"{\"timers\":");
    write_number(all, out);
    let states = ListedState::ALL.iter().map(|state| state.name()).zip(numbers.states);
    write_numbers("by-state", states, out);
    if count.has_spans {
        let spans = SPANS.iter().map(|(name, _)| *name).zip(numbers.spans);
        write_numbers("due", spans, out);
    }
    write_numbers("by-tag", numbers.tags.iter().map(|(tag, count)| (tag.as_str(), *count)), out);
    write_numbers("by-host", numbers.hosts.iter().map(|(host, n)| (host.as_str(), *n)), out);
    out.extend_from_slice(b",\"other-tags\":");
    write_number(numbers.other_tags, out);
    let (hosts, timers) = (numbers.other_hosts, numbers.timers_of_other_hosts);
    write_numbers("other-hosts", [("hosts", hosts), ("timers", timers)].into_iter(), out);
    write_incomplete(&count.incomplete, out);
    out.push(b'}');
}

/// Appends a member with named numbers behind other members.
fn write_numbers<'n>(
    member: &str,
    numbers: impl Iterator<Item = (&'n str, u64)>,
    out: &mut Vec<u8>,
) {
    out.push(b',');
    write_string(member, out);
    out.extend_from_slice(b":{");
    for (place, (name, number)) in numbers.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_string(name, out);
        out.push(b':');
        write_number(number, out);
    }
    out.push(b'}');
}

/// Appends what was done with the dead letters of a page.
fn write_used(what: &str, page: &ListPage, out: &mut Vec<u8>) {
    out.push(b'{');
    write_string(what, out);
    out.push(b':');
    write_number(page.used as u64, out);
    out.extend_from_slice(b",\"refused\":");
    write_number(page.refused as u64, out);
    if let Some(cursor) = &page.cursor {
        out.extend_from_slice(b",\"cursor\":");
        write_string(cursor, out);
    }
    write_incomplete(&page.incomplete, out);
    out.push(b'}');
}

/// Appends the sentences about nodes that were not heard, if there are any.
pub fn write_incomplete(incomplete: &[String], out: &mut Vec<u8>) {
    for (number, sentence) in incomplete.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b",\"incomplete\":[" } else { b"," });
        write_string(sentence, out);
    }
    if !incomplete.is_empty() {
        out.push(b']');
    }
}

/// Appends what a list tells beside the members of GET to a timer that has just been written.
fn write_listed(timer: &ListedTimer, at: WallMs, out: &mut Vec<u8>) {
    let view = &timer.view;
    let end = out.pop();
    debug_assert_eq!(end, Some(b'}'), "a timer is an object");
    let is_letter = timer.state == ListedState::Parked;
    let path: &[u8] = if is_letter { b"/dead-letters/" } else { b"/timers/" };
    out.extend_from_slice(b",\"location\":\"");
    out.extend_from_slice(path);
    write_public_id(view.id, view.factor, view.filter, out);
    if is_letter {
        return out.extend_from_slice(b"\"}");
    }
    out.extend_from_slice(b"\",\"state\":");
    write_string(timer.state.name(), out);
    out.extend_from_slice(b",\"due-in-ms\":");
    write_signed(timer.due_in_ms, out);
    out.extend_from_slice(b",\"due-at\":\"");
    write_wall_time(WallMs(at.0.saturating_add_signed(timer.due_in_ms)), out);
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::shard::effects::TimerView;
    use crate::timer::version::Version;

    fn text(page: &ListPage) -> String {
        let mut out = Vec::new();
        write_list(page, crate::node::clients::document::write_document, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_page_is_json() {
        let view = TimerView {
            version: Version(7),
            id: TimerId(0x0004_d9f5_4810_0000),
            factor: 2,
            filter: 0xff,
            interval_ms: 1_500,
            repeat_for_ms: 300_000,
            age_ms: 20,
            sequence: 3,
            uri: "http://h/".into(),
            opaque: b"\""[..].into(),
            attributes: Box::default(),
            tags: vec![],
        };
        let timer = ListedTimer { view, state: ListedState::InFlight, due_in_ms: -20 };
        let page = ListPage {
            timers: vec![timer.clone(), timer],
            cursor: Some("c0".into()),
            incomplete: vec!["a: down".into(), "b: \"down\"".into()],
            at: WallMs(1_796_115_600_250),
            bytes: 0,
            letters: None,
            used: 0,
            refused: 0,
        };
        let document: serde_json::Value = serde_json::from_str(&text(&page)).expect("JSON");
        let first = &document["timers"][0];
        assert_eq!(first["location"], "/timers/0004d9f548100000-2-00000000000000ff");
        assert_eq!((&first["state"], &first["due-in-ms"]), (&"in-flight".into(), &(-20).into()));
        assert_eq!(first["due-at"], "2026-12-01T09:00:00.230Z");
        assert_eq!(first["timing"]["sequence-number"], 3);
        assert_eq!(document["timers"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&document["cursor"], &document["incomplete"][1]),
            (&"c0".into(), &"b: \"down\"".into())
        );
        let empty = ListPage { timers: vec![], cursor: None, incomplete: vec![], ..page };
        assert_eq!(text(&empty), "{\"timers\":[]}");
    }
}
