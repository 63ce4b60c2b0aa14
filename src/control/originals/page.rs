//! A page of timers as an original node serves it, in the terms of this node: what this node does
//! with each timer, and what it tells other nodes about it. Pure.

// Reads the wall clock: original 1.

use super::plan::plan;
use crate::base::ids::{PeerSet, TimerId};
use crate::base::limits::RANK_DELAY_MS;
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::core::internal_api::copy_of;
use crate::timer::admission::{admit_told, start_of};
use crate::wire::callback_uri::{escaped, parse_told_uri};
use crate::wire::internal_json::{InternalCallback, InternalPart, InternalTimer, write_internal};
use crate::wire::peer_message::{CopyBody, Standing, TimerCopy};
use crate::wire::resync_json::{ResyncTimer, parse_timers};
use crate::wire::timer_json::JsonScratch;
use crate::wire::timer_path::PublicId;

/// A page of timers.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The timers that this node should hold, too.
    pub timers: Vec<Timer>,
    /// When the last timer of the page comes up in the other node's order. `None`: the page has no
    /// timer.
    pub last: Option<Tick>,
    /// How many timers make no sense. They are left out.
    pub malformed: u64,
}

/// A timer of a page.
#[derive(Debug)]
pub(crate) struct Timer {
    pub id: TimerId,
    /// The rank of this node among the new replicas.
    pub rank: u8,
    /// Whether this node takes the timer.
    pub adds: bool,
    /// The path of the requests that tell the timer to other nodes.
    pub path: String,
    /// The nodes that are told the timer, each with the body of the request.
    pub told: Vec<(String, Vec<u8>)>,
    /// The nodes that are told that the timer has ended for them, each with the body of the
    /// request.
    pub ended: Vec<(String, Vec<u8>)>,
    standing: Standing,
    replicas: Replicas,
    factor: u8,
    sites: Sites,
    start_ms: u64,
    interval_ms: u64,
    repeat_for_ms: u64,
    authority: String,
    /// The content; `None` for a tombstone.
    content: Option<Vec<u8>>,
}

impl Timer {
    /// Returns the timer as the copy that the cores merge.
    pub(super) fn copy(&self) -> TimerCopy<'_> {
        let content = self.content.as_deref();
        TimerCopy {
            standing: self.standing,
            is_write: false,
            replicas: self.replicas,
            factor: self.factor,
            sites: self.sites,
            start_ms: self.start_ms,
            interval_ms: self.interval_ms,
            repeat_for_ms: self.repeat_for_ms,
            body: content.map(|content| CopyBody { authority: &self.authority, content }),
        }
    }
}

/// Reads the page that `server` answered at `now`. `ours` are the living nodes of this service,
/// this node included. A timer that makes no sense is left out and counted. An error means that the
/// body is no page.
pub(crate) fn read_page(
    now: Now,
    view: &View,
    server: &str,
    ours: PeerSet,
    body: &mut [u8],
) -> Result<Page, String> {
    let mut scratch = JsonScratch::default();
    let mut page = Page::default();
    let parsed = parse_timers(body, &mut scratch, |timer| {
        let Ok(timer) = timer else {
            page.malformed += 1;
            return;
        };
        let Some(part) = &timer.timer.internal else {
            page.malformed += 1;
            return;
        };
        match read_timer(now, view, ours, &timer, part) {
            None => page.malformed += 1,
            Some((due, read)) => {
                // An original sorts timers by the time of its own pop, which depends on its rank.
                let old = timer.old_replicas.as_slice();
                let rank = old.iter().position(|name| *name == server).unwrap_or(0) as u64;
                page.last = Some(due + rank * RANK_DELAY_MS);
                page.timers.extend(read);
            }
        }
    });
    parsed.map_err(|error| error.to_string())?;
    Ok(page)
}

/// Returns when a timer is due, and the timer if this node should hold it. `None`: the timer makes
/// no sense. Its former holders act until it has moved.
fn read_timer(
    now: Now,
    view: &View,
    ours: PeerSet,
    timer: &ResyncTimer<'_>,
    part: &InternalPart<'_>,
) -> Option<(Tick, Option<Timer>)> {
    let document = &timer.timer.timer;
    let mut content = Vec::new();
    let told = admit_told(document, &mut content).ok()?;
    let (interval_ms, repeat_for_ms) = (told.interval_ms, told.repeat_for_ms);
    let since_start_ms = interval_ms.saturating_mul(part.sequence.saturating_add(1));
    let due = start_of(part, now) + since_start_ms;
    let (new, old) = (part.replicas.as_slice(), timer.old_replicas.as_slice());
    let is_ours = |name: &&str| view.node_named(name).is_some_and(|peer| ours.contains(peer));
    let is_moved_by_ours = old.iter().any(is_ours);
    let Some(plan) = plan(view.name_of(view.own()), old, new, is_moved_by_ours) else {
        return Some((due, None));
    };
    let named = PublicId { id: timer.id, factor: None, filter: None };
    let mut copy = copy_of(now, view, named, document.replication_factor, part, told);
    if is_moved_by_ours && old != new {
        let acts = new.iter().enumerate().map(|(rank, name)| u16::from(old.contains(name)) << rank);
        copy.standing.actives &= acts.fold(0, |all, act| all | act);
    }
    let start_delta_ms = (copy.start_ms as i64).wrapping_sub(now.mono.tick_ceil().0 as i64);
    let whole = escaped(document.uri);
    let callback = parse_told_uri(&whole).ok().map(|uri| InternalCallback {
        authority: uri.authority,
        target: uri.target,
        opaque: document.opaque,
    });
    let alive = InternalTimer {
        now: now.wall,
        start_delta_ms,
        sequence: part.sequence,
        interval_ms,
        repeat_for_ms,
        callback,
        view_id: view.id(),
        replicas: new,
        sites: part.sites.as_slice(),
        factor: None,
        tags: document.tags.as_slice(),
        version: part.version,
        actives: None,
        owner: part.owner,
        content: part.content,
        once: part.once,
    };
    let ended = InternalTimer { repeat_for_ms: since_start_ms, callback: None, tags: &[], ..alive };
    let read = Timer {
        id: timer.id,
        rank: plan.rank,
        adds: plan.adds,
        path: format!("/timers/{}-{}", timer.id, copy.factor),
        told: written(&plan.tells, &alive),
        ended: written(&plan.ends, &ended),
        standing: copy.standing,
        replicas: copy.replicas,
        factor: copy.factor,
        sites: copy.sites,
        start_ms: copy.start_ms,
        interval_ms,
        repeat_for_ms,
        authority: copy.body.map_or(String::new(), |body| body.authority.to_owned()),
        content: copy.body.map(|body| body.content.to_vec()),
    };
    Some((due, Some(read)))
}

/// Returns the timer as a request body for each of these nodes.
fn written(names: &[&str], timer: &InternalTimer<'_>) -> Vec<(String, Vec<u8>)> {
    let body = |name: &&str| {
        let mut body = Vec::new();
        write_internal(timer, &mut body);
        ((*name).to_owned(), body)
    };
    names.iter().map(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::{MonoNs, TICK_NS, WallMs};
    use crate::cluster::view::Membership;
    use crate::timer::version::Version;

    const NOW: Now = Now { mono: MonoNs(90_000_000 * TICK_NS), wall: WallMs(1_700_000_000_000) };

    fn view() -> View {
        let membership = Membership {
            localhost: "b".into(),
            nodes: vec!["a".into(), "b".into()],
            leaving: vec!["c".into()],
            ..Membership::default()
        };
        View::build(None, &membership).expect("a good configuration")
    }

    /// The set of this node alone.
    fn ours() -> PeerSet {
        PeerSet::EMPTY.with(view().own())
    }

    fn entry(id: u64, old: &str, new: &str, more: &str) -> String {
        format!(
            "{{\"TimerID\":{id},\"OldReplicas\":{old},\"Timer\":{{\"timing\":{{\
             \"start-time\":0,\"start-time-delta\":-500,\"sequence-number\":1,\"interval\":2,\
             \"repeat-for\":8}},\"callback\":{{\"http\":{{\"uri\":\"http://h:1/p\",\
             \"opaque\":\"o\"}}}},\"reliability\":{{\"cluster-view-id\":\"1\",\
             \"replicas\":{new},\"sites\":[\"site1\"]}}{more}}}}}"
        )
    }

    fn page(entries: &[String]) -> Page {
        let mut body = format!("{{\"Timers\":[{}]}}", entries.join(",")).into_bytes();
        read_page(NOW, &view(), "c", ours(), &mut body).expect("a page")
    }

    #[test]
    fn a_timer_that_moves_is_held_told_and_ended() {
        let read = page(&[entry(7, "[\"c\",\"a\"]", "[\"b\",\"a\"]", "")]);
        assert_eq!(read.last, Some(Tick(90_000_000 - 500 + 4_000)), "the server is its primary");
        let [timer] = &read.timers[..] else { panic!("one timer: {read:?}") };
        assert_eq!((timer.id, timer.rank, timer.adds), (TimerId(7), 0, true));
        assert_eq!(timer.path, "/timers/0000000000000007-2");
        let copy = timer.copy();
        assert_eq!((copy.start_ms, copy.interval_ms), (90_000_000 - 500, 2_000));
        assert_eq!((copy.repeat_for_ms, copy.standing.sequence), (8_000, 1));
        let version = Version(copy.standing.version);
        assert!(version.is_of_start(), "{version:?}");
        assert_eq!(copy.replicas.len(), 2);
        assert_eq!(copy.body.map(|body| body.authority), Some("h:1"));
        let text = |told: &[(String, Vec<u8>)]| {
            let (name, body) = &told[0];
            (name.clone(), String::from_utf8(body.clone()).expect("text"))
        };
        let (to, body) = text(&timer.told);
        assert_eq!(to, "a");
        assert!(body.contains("\"start-time-delta\":-500,\"sequence-number\":1"), "{body}");
        assert!(body.contains("\"uri\":\"http://h:1/p\",\"opaque\":\"o\""), "{body}");
        let (to, body) = text(&timer.ended);
        assert_eq!(to, "c");
        assert!(body.contains("\"uri\":\"\",\"opaque\":\"\""), "{body}");
        assert!(body.contains("\"interval\":2,\"repeat-for\":4"), "{body}");
    }

    #[test]
    fn a_timer_that_this_node_holds_already_changes_nothing_until_it_has_moved() {
        let read = page(&[entry(7, "[\"c\",\"b\"]", "[\"a\",\"b\"]", "")]);
        let [timer] = &read.timers[..] else { panic!("one timer: {read:?}") };
        assert!(timer.adds && timer.told.is_empty() && timer.ended.is_empty(), "{timer:?}");
        assert_eq!(timer.copy().standing.actives, 0b10, "only this node acts, not the new one");
    }

    #[test]
    fn what_makes_no_sense_is_counted_and_what_is_not_ours_only_moves_the_page_on() {
        let good = entry(1, "[\"a\",\"c\"]", "[\"a\",\"b\"]", "");
        let read = page(&[
            entry(2, "[]", "[\"a\"]", ""),
            good.replace("\"interval\":2", "\"interval\":-2"),
            good.replace("\"TimerID\":1,", ""),
            good.replace("http://h", "ftp://h"),
            good.clone(),
        ]);
        assert_eq!((read.timers.len(), read.malformed), (1, 3));
        assert_eq!(read.last, Some(Tick(90_000_000 - 500 + 4_000 + 2_000)), "it is its backup");
        let mut garbage = b"{\"Timers\":7}".to_vec();
        assert!(read_page(NOW, &view(), "c", ours(), &mut garbage).is_err());
    }
}
