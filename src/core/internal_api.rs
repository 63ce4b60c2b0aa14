//! What other nodes ask over the clients' port (docs/compat/timer-service.md §5), and what it
//! means.

// May panic: indices 2.
// Why it does not: peers 2.

use std::mem::MaybeUninit;

use httparse::{Header, Request as HttpRequest, Status};

use crate::base::ids::NodeHash;
use crate::base::limits::HEADERS_MAX;
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::Now;
use crate::cluster::murmur3::x86_32;
use crate::cluster::view::{PeerKind, View, site_hash};
use crate::timer::admission::{Told, start_of, start_wall_of};
use crate::timer::naming::{is_digest, may_be_of_key};
use crate::timer::version::Version;
use crate::wire::internal_json::InternalPart;
use crate::wire::peer_message::{Standing, TimerCopy};
use crate::wire::resync_json::{parse_query, parse_range};
use crate::wire::timer_path::PublicId;

use crate::core::gather::PageAsked;

/// Timers on a page when the asking node does not say how many. An original asks for as many.
const PAGE_DEFAULT: u64 = 100;
/// Most timers on a page.
const PAGE_MAX: u64 = 1_000;
/// The factor of a timer whose document neither says a factor nor names nodes.
const FACTOR_DEFAULT: u8 = crate::base::limits::REPLICATION_FACTOR_DEFAULT as u8;

/// The part of a request head that asks for a page of timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageHead {
    query: Box<str>,
    /// The value of the header `Range`, if the head has one. `Err`: the value is no number, or
    /// there are several.
    range: Option<Result<u64, ()>>,
}

impl PageHead {
    /// Takes the query and a whole request head.
    pub fn of(query: &str, head: &[u8]) -> Self {
        Self { query: query.into(), range: range_of(head) }
    }

    /// Returns the page that is asked for. `Err` is the status and reason to refuse it with
    /// (docs/compat/timer-service.md §5.2).
    pub fn read(&self, view: &View) -> Result<PageAsked, (u16, String)> {
        let query = parse_query(&self.query).map_err(|error| (400, error.to_string()))?;
        let count = match self.range {
            None => PAGE_DEFAULT,
            Some(Ok(count)) => count.min(PAGE_MAX),
            Some(Err(())) => {
                return Err((400, "Range: expected how many timers, a decimal number".into()));
            }
        };
        let node = view.node_named(&query.node).filter(|peer| {
            view.new_nodes().contains(*peer) || view.connected_nodes().contains(*peer)
        });
        let Some(PeerKind::Node(node)) = node.map(|peer| view.peers()[peer.index()].kind) else {
            let reason = format!("node-for-replicas: {} is no member of this cluster", query.node);
            return Err((404, reason));
        };
        if query.view_id != view.id() {
            let (own, got) = (view.id(), query.view_id);
            let reason = format!(
                "cluster-view-id: expected {own}, got {got}: this node is configured with other \
                 members"
            );
            return Err((400, reason));
        }
        Ok(PageAsked { node, from_ms: query.time_from_ms, count: count as u32 })
    }
}

fn range_of(head: &[u8]) -> Option<Result<u64, ()>> {
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut request = HttpRequest::new(&mut []);
    // The parser of requests tolerates empty lines before a request line.
    let parsed = request.parse_with_uninit_headers(head.trim_ascii_start(), &mut places);
    if !matches!(parsed, Ok(Status::Complete(_))) {
        return Some(Err(()));
    }
    let mut found = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case("range"));
    let range = parse_range(found.next()?.value).ok_or(());
    Some(if found.next().is_some() { Err(()) } else { range })
}

/// Translates a timer that a node told into this node's terms. Names that the view does not know
/// are hashed as members' names are.
pub fn copy_of<'a>(
    now: Now,
    view: &View,
    named: PublicId,
    factor_told: Option<i64>,
    part: &InternalPart<'_>,
    told: Told<'a>,
) -> TimerCopy<'a> {
    let mut replicas = Replicas::new();
    for name in part.replicas.as_slice() {
        let node = node_hash(view, name);
        if !replicas.contains(node) {
            replicas.push(node);
        }
    }
    let mut sites = Sites::new();
    for site in part.sites.as_slice().iter().map(|name| site_hash(name)) {
        if !sites.contains(site) {
            sites.push(site);
        }
    }
    // An original names its own site even where there is no other site.
    if sites.as_slice() == [view.local_site()] {
        sites = Sites::new();
    }
    let factor_told = factor_told.and_then(|factor| u8::try_from(factor).ok());
    let is_factor = |factor: &u8| (1..=16).contains(factor);
    let factor = [named.factor, factor_told, Some(replicas.len())].into_iter().flatten();
    let actives = part.actives.map_or(u16::MAX, |actives| actives) & replicas.all_ranks();
    let made = || Version::of_start(start_wall_of(part, now)).0;
    TimerCopy {
        standing: Standing {
            id: named.id,
            version: part.version.unwrap_or_else(made),
            sequence: part.sequence,
            actives,
            list_digest: replicas.digest(),
        },
        is_write: false,
        replicas,
        factor: factor.into_iter().find(is_factor).unwrap_or(FACTOR_DEFAULT),
        sites,
        start_ms: start_of(part, now).0,
        interval_ms: told.interval_ms,
        repeat_for_ms: match told.body {
            // What an original says there would be taken for the digest of another body.
            None if may_be_of_key(named.id) && !is_planted(Bug::KeyOfSiteNotTold) => {
                part.once.filter(|once| is_digest(*once)).unwrap_or(0)
            }
            _ => told.repeat_for_ms,
        },
        body: told.body,
    }
}

fn node_hash(view: &View, name: &str) -> NodeHash {
    let known = view.node_named(name).map(|peer| view.peers()[peer.index()].kind);
    match known {
        Some(PeerKind::Node(node)) => node,
        _ => NodeHash(x86_32(name.as_bytes(), 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::base::ranked::Ranked;
    use std::sync::Arc;

    use crate::cluster::view::Membership;
    use crate::core::internal_document::with_document;
    use crate::timer::admission::admit_told;
    use crate::wire::internal_json::{InternalTimer, Origin, parse_any, write_internal};
    use crate::wire::timer_json::JsonScratch;

    fn view(nodes: &[&str]) -> Arc<View> {
        let membership = Membership {
            localhost: nodes[0].into(),
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            remote_sites: vec![("away".into(), "10.9.0.1:7253".into())],
            ..Membership::default()
        };
        Arc::new(View::build(None, &membership).expect("a good configuration"))
    }

    fn page(query: &str, more: &str) -> PageHead {
        let head = format!("GET /timers?{query} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
        PageHead::of(query, head.as_bytes())
    }

    #[test]
    fn a_page_is_asked_for_by_a_member_of_the_same_view() {
        let view = view(&["10.0.0.1:7253", "10.0.0.2:7253"]);
        let id = view.id();
        let read = |query: &str, more: &str| page(query, more).read(&view);
        let good = format!("node-for-replicas=10.0.0.2:7253&cluster-view-id={id}");
        let asked = read(&good, "Range: 7\r\n").expect("good");
        assert_eq!((asked.from_ms, asked.count), (None, 7));
        let asked = read(&format!("{good}&time-from=9"), "range: 99999\r\n").expect("good");
        assert_eq!((asked.from_ms, asked.count), (Some(9), 1_000));
        assert_eq!(read(&good, "").expect("good").count, 100);
        let status = |query: &str, more: &str| read(query, more).expect_err("refused").0;
        for bad in ["bytes=0-9", "0", "-1", ""] {
            assert_eq!(status(&good, &format!("Range: {bad}\r\n")), 400, "{bad}");
        }
        assert_eq!(status(&good, "Range: 1\r\nRange: 1\r\n"), 400);
        assert_eq!(status(&good.replace("0.2", "0.3"), ""), 404);
        assert_eq!(status(&format!("{good}0"), ""), 400);
        assert_eq!(status("node-for-replicas=10.0.0.2:7253", ""), 400);
        assert_eq!(status(&format!("cluster-view-id={id}"), ""), 400);
        assert_eq!(status("", ""), 400);
    }

    #[test]
    fn a_copy_is_told_by_names() {
        let view = view(&["10.0.0.1:7253", "10.0.0.2:7253"]);
        let list = |names: &[&'static str]| names.iter().copied().collect::<Ranked<_, 16>>();
        let part = InternalPart {
            origin: Origin::Peer,
            start_delta_ms: Some(0),
            start_wall_ms: None,
            sequence: 3,
            view_id: None,
            replicas: list(&["10.0.0.2:7253", "gone:1", "10.0.0.2:7253"]),
            sites: ["site1"].into_iter().collect(),
            version: None,
            actives: Some(0xffff),
            owner: None,
            content: None,
            once: None,
            tags_dropped: 0,
        };
        let told = Told { interval_ms: 1, repeat_for_ms: 2, body: None };
        let named = PublicId { id: TimerId(5), factor: None, filter: None };
        let copy = copy_of(Now::default(), &view, named, Some(99), &part, told);
        let own_hash = view.peers()[1].kind;
        assert_eq!(PeerKind::Node(copy.replicas.as_slice()[0]), own_hash);
        assert_eq!(copy.replicas.as_slice()[1], NodeHash(x86_32(b"gone:1", 0)));
        assert_eq!((copy.replicas.len(), copy.standing.actives, copy.factor), (2, 0b11, 2));
        assert!(copy.sites.is_empty(), "this site alone is no list");
        assert_eq!((copy.standing.version, copy.standing.sequence), (0, 3), "1970 here");
        let now = Now { wall: crate::base::time::WallMs(1_000_000), ..Now::default() };
        let dated = InternalPart { start_wall_ms: Some(999_990), ..part };
        let copy = copy_of(now, &view, named, None, &dated, told);
        let version = Version::of_start(crate::base::time::WallMs(999_990));
        assert_eq!(copy.standing.version, version.0, "from what it says of its start");
        let ours = InternalPart { version: Some(77), ..dated };
        assert_eq!(copy_of(now, &view, named, None, &ours, told).standing.version, 77);
        let part = InternalPart {
            replicas: Ranked::new(),
            sites: ["away", "site1", "away"].into_iter().collect(),
            ..part
        };
        let copy = copy_of(Now::default(), &view, named, None, &part, told);
        assert_eq!((copy.replicas.len(), copy.sites.len(), copy.factor), (0, 2, 2));
    }
    /// The end of a timer has the digest of the body that came with its key, or none: what stands
    /// in the place of the repeat-for is not taken for it.
    #[test]
    fn the_end_of_a_keyed_timer_keeps_its_digest_between_sites() {
        let view = view(&["10.0.0.1:7253", "10.0.0.2:7253"]);
        let (keyed, chosen) = (TimerId(0xf << 60 | 7), TimerId(7));
        let ended = TimerCopy {
            standing: Standing { id: keyed, version: 9, sequence: 1, actives: 1, list_digest: 0 },
            is_write: false,
            replicas: Ranked::new(),
            factor: 1,
            sites: Sites::new(),
            start_ms: 0,
            interval_ms: 86_400_000,
            repeat_for_ms: 12_345,
            body: None,
        };
        let told = |copy: &TimerCopy<'_>, id: TimerId, has_once: bool| {
            let mut bytes = Vec::new();
            with_document(Now::default(), &view, copy, (&[], None), |timer| {
                let once = timer.once.filter(|_| has_once);
                write_internal(&InternalTimer { once, ..*timer }, &mut bytes);
            });
            let scratch = &mut JsonScratch::default();
            let document = parse_any(&mut bytes, scratch).expect("written here");
            let part = document.internal.expect("from a node");
            let mut content = Vec::new();
            let told = admit_told(&document.timer, &mut content).expect("good");
            let named = PublicId { id, factor: None, filter: None };
            copy_of(Now::default(), &view, named, None, &part, told).repeat_for_ms
        };
        assert_eq!(told(&ended, keyed, true), 12_345);
        assert_eq!(told(&ended, keyed, false), 0, "an original, or an older version");
        let other = Standing { id: chosen, ..ended.standing };
        let other = TimerCopy { standing: other, ..ended };
        assert_eq!(told(&other, chosen, true), 2 * 86_400_000);
    }
}
