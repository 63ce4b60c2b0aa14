//! What other nodes ask over the clients' port (seeds/002 "Internal API", compat section 5): who
//! may, and what it means.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use httparse::{Header, Request as HttpRequest, Status};

use crate::base::ids::{NodeHash, PeerSet};
use crate::base::limits::HEADERS_MAX;
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::Now;
use crate::cluster::murmur3::x86_32;
use crate::cluster::view::{PeerKind, View, site_hash};
use crate::timer::admission::{Told, start_of, start_wall_of};
use crate::timer::version::Version;
use crate::wire::internal_json::InternalPart;
use crate::wire::peer_message::{Standing, TimerCopy};
use crate::wire::resync_json::{parse_query, parse_range};
use crate::wire::timer_path::PublicId;

use super::gather::PageAsked;
use super::peer_address::{Place, place_of};
use super::peering::HelloRefusal;
use super::site_members::SiteMembers;

/// Timers on a page when the asking node does not say, as an original asks for.
const PAGE_DEFAULT: u64 = 100;
/// Timers on a page at most.
const PAGE_MAX: u64 = 1_000;
/// The factor of a timer that neither says it nor names nodes.
const FACTOR_DEFAULT: u8 = crate::base::limits::REPLICATION_FACTOR_DEFAULT as u8;

/// What is kept of a head that asks for a page of timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageHead {
    query: Box<str>,
    /// The value of `Range`, if there is one; `Err`: it is no number.
    range: Option<Result<u64, ()>>,
}

impl PageHead {
    /// From a whole request head and its query.
    pub fn of(query: &str, head: &[u8]) -> Self {
        Self { query: query.into(), range: range_of(head) }
    }

    /// What is asked for, or the status and reason to refuse it with (seeds/002 "Response (GET)").
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
    // Empty lines before a request line are tolerated by the parser of requests.
    let parsed = request.parse_with_uninit_headers(head.trim_ascii_start(), &mut places);
    if !matches!(parsed, Ok(Status::Complete(_))) {
        return Some(Err(()));
    }
    let mut found = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case("range"));
    let range = parse_range(found.next()?.value).ok_or(());
    Some(if found.next().is_some() { Err(()) } else { range })
}

/// A timer as a node tells it, in the terms of this one. Names that the view does not know are
/// hashed as those of members are.
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
    // An original names its site also where there is no other.
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
        repeat_for_ms: told.repeat_for_ms,
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

/// Host names of members and sites that are configured by name and were looked up, each with the
/// addresses that were found.
pub type Resolved = Arc<[(String, Vec<IpAddr>)]>;

/// Who may use the internal API: nodes whose address is that of a member, of another site as it is
/// configured, or of a node that such a site has told to be a member of it. And who may connect as
/// a peer: a node whose address is its own.
#[derive(Debug)]
pub struct Gate {
    accepts_strangers: bool,
    /// The view that the addresses are from.
    view: Option<Arc<View>>,
    members: Vec<IpAddr>,
    /// Host names of members and sites; those that were looked up are in `resolved`.
    names: Vec<String>,
    resolved: Vec<(String, Vec<IpAddr>)>,
    /// Requests refused.
    pub refused: u64,
}

impl Gate {
    /// Before any configuration is known.
    pub fn new(accepts_strangers: bool) -> Self {
        Self {
            accepts_strangers,
            view: None,
            members: Vec::new(),
            names: Vec::new(),
            resolved: Vec::new(),
            refused: 0,
        }
    }

    /// The addresses of members that are configured by name.
    pub fn set_resolved(&mut self, resolved: Resolved) {
        self.resolved = resolved.to_vec();
    }

    /// A member's name was looked up to dial it: a node that moved is let in at once.
    pub fn resolved(&mut self, name: &str, addresses: &[SocketAddr]) {
        let found = addresses.iter().map(|address| address.ip().to_canonical()).collect();
        // A name that fails keeps its last addresses.
        if let Some(known) = self.resolved.iter_mut().find(|(known, _)| known == name)
            && !addresses.is_empty()
        {
            known.1 = found;
        }
    }

    /// Whether the node at `address` may ask; `Err` is the reason to refuse it with, 403. `told`
    /// are the nodes of other sites, as these tell them. `address` is asked for only when it
    /// matters.
    pub fn admit(
        &mut self,
        view: &Arc<View>,
        told: &[IpAddr],
        address: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<(), String> {
        if self.accepts_strangers {
            return Ok(());
        }
        let address = address();
        let is_told = |address: IpAddr| {
            told.contains(&address.to_canonical()) && !is_planted(Bug::SiteMembersUnknown)
        };
        if self.knows(view, address) || address.is_some_and(is_told) {
            return Ok(());
        }
        self.refused += 1;
        Err(self.stranger(address))
    }

    /// As [`Gate::admit`], and nothing is counted.
    pub fn admits(&mut self, view: &Arc<View>, address: Option<IpAddr>) -> bool {
        self.accepts_strangers || self.knows(view, address)
    }

    /// Whether the node at `address` may connect as the peer `name`. Somebody at an address that is
    /// no member's learns nothing of the members; somebody at another member's may not speak for
    /// this one.
    pub fn admit_peer(
        &mut self,
        view: &Arc<View>,
        name: &str,
        address: Option<IpAddr>,
    ) -> Result<(), HelloRefusal> {
        if self.accepts_strangers {
            return Ok(());
        }
        if !self.knows(view, address) {
            let is_known = |name| self.resolved.iter().any(|(known, _)| known == name);
            return Err(if self.names.iter().all(is_known) {
                HelloRefusal::Elsewhere(self.stranger(address))
            } else {
                HelloRefusal::Unresolved
            });
        }
        let Some(peer) = view.node_named(name) else { return Ok(()) };
        let at;
        let its = match place_of(&view.peers()[peer.index()].address, 0) {
            Place::At(address) => {
                at = [address.ip().to_canonical()];
                &at[..]
            }
            Place::Named(host, _) => match self.resolved.iter().find(|(known, _)| *known == host) {
                Some((_, found)) => &found[..],
                None => return Err(HelloRefusal::Unresolved),
            },
        };
        let address = address.map(|address| address.to_canonical());
        if address.is_some_and(|it| its.contains(&it) || is_local_call(it, its)) {
            return Ok(());
        }
        let address = spoken(address);
        Err(HelloRefusal::Elsewhere(format!(
            "{name} does not have the address {address}, from which this node calls: let it have \
             the one that it calls from in [cluster], or set cluster.accept_strangers = true"
        )))
    }

    /// Appends who the members of this site are, for another one.
    pub fn write_members(&self, view: &View, out: &mut Vec<u8>) {
        let site = view.name_of_site(view.local_site()).expect("a site knows its own name");
        let members = view.connected_nodes().with(view.own());
        let nodes = members.iter().map(|peer| view.name_of(peer));
        let (_, names) = addresses_in(view, members);
        let found = names.iter().filter_map(|name| {
            self.resolved.iter().find(|(known, _)| known == name).map(|(_, found)| found)
        });
        SiteMembers::write(site, nodes, found.flatten().copied(), out);
    }

    /// Whether this is the address of a member or site.
    pub fn knows(&mut self, view: &Arc<View>, address: Option<IpAddr>) -> bool {
        if self.view.as_ref().is_none_or(|known| !Arc::ptr_eq(known, view)) {
            self.learn(view);
        }
        let Some(it) = address.map(|address| address.to_canonical()) else { return false };
        let mut named = self.resolved.iter().map(|(_, found)| found);
        self.members.contains(&it)
            || named.any(|found| found.contains(&it) || is_local_call(it, found))
    }

    /// Why somebody at an address that is no member's is refused.
    fn stranger(&self, address: Option<IpAddr>) -> String {
        let address = spoken(address.map(|address| address.to_canonical()));
        let names = if self.names.is_empty() { "" } else { " (some are configured by name)" };
        format!(
            "only for members of the cluster{names}, and {address} is none: add it to [cluster], \
             or set cluster.accept_strangers = true"
        )
    }

    fn learn(&mut self, view: &Arc<View>) {
        let (members, names) = addresses(view);
        self.members = members;
        self.names = names;
        self.view = Some(view.clone());
    }
}

fn spoken(address: Option<IpAddr>) -> String {
    address.map_or("the sender".to_owned(), |address| address.to_string())
}

/// The addresses of this node and of all nodes and sites that it is to be connected with, and the
/// names of those that are configured by name.
pub fn addresses(view: &View) -> (Vec<IpAddr>, Vec<String>) {
    addresses_in(view, view.connected_nodes().union(view.connected_sites()).with(view.own()))
}

/// The addresses of some peers, and the names of those that are configured by name.
fn addresses_in(view: &View, peers: PeerSet) -> (Vec<IpAddr>, Vec<String>) {
    let (mut literal, mut named) = (Vec::new(), Vec::new());
    for address in peers.iter().flat_map(|peer| view.addresses_of(peer)) {
        match place_of(address, 0) {
            Place::At(address) => literal.push(address.ip().to_canonical()),
            Place::Named(name, _) => named.push(name),
        }
    }
    if is_local_call(Ipv4Addr::LOCALHOST.into(), &literal) {
        literal.push(Ipv4Addr::LOCALHOST.into());
    }
    (literal, named)
}

/// Whether `address` is where somebody with one of `its` addresses calls from on this machine: the
/// kernel gives 127.0.0.1 to whoever does not choose, whatever loopback address is its own.
fn is_local_call(address: IpAddr, its: &[IpAddr]) -> bool {
    address == Ipv4Addr::LOCALHOST
        && its.iter().any(|it| matches!(it, IpAddr::V4(it) if it.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::base::ranked::Ranked;
    use crate::cluster::view::Membership;
    use crate::wire::internal_json::Origin;

    fn view(nodes: &[&str]) -> Arc<View> {
        let membership = Membership {
            localhost: nodes[0].into(),
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            remote_sites: vec![("away".into(), "10.9.0.1:7253".into())],
            ..Membership::default()
        };
        Arc::new(View::build(None, &membership).expect("a good configuration"))
    }

    #[test]
    fn only_members_and_sites_pass_unless_told_otherwise() {
        let view = view(&["10.0.0.1:7253", "10.0.0.2", "node-3:7253"]);
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut gate = Gate::new(false);
        for member in ["10.0.0.1", "10.0.0.2", "10.9.0.1", "::ffff:10.0.0.2"] {
            assert_eq!(gate.admit(&view, &[], || Some(ip(member))), Ok(()), "{member}");
        }
        let reason = gate.admit(&view, &[], || Some(ip("10.0.0.3"))).expect_err("a stranger");
        assert!(reason.contains("10.0.0.3") && reason.contains("accept_strangers"), "{reason}");
        assert!(gate.admit(&view, &[], || None).is_err());
        assert_eq!(gate.refused, 2);
        let told = [ip("10.9.0.2")];
        assert_eq!(gate.admit(&view, &told, || Some(told[0])), Ok(()));
        let its = gate.admit_peer(&view, "10.0.0.2", Some(told[0]));
        assert!(its.is_err(), "it may tell copies, it is no peer");
        gate.set_resolved(Arc::new([
            ("node-3".into(), vec![ip("10.0.0.3")]),
            ("of-another-site".into(), vec![ip("10.0.0.9")]),
        ]));
        let mut members = Vec::new();
        gate.write_members(&view, &mut members);
        let members = SiteMembers::parse(&members).expect("written here");
        assert_eq!((members.nodes.len(), &members.addresses[..]), (3, &[ip("10.0.0.3")][..]));
        assert_eq!(gate.admit(&view, &[], || Some(ip("10.0.0.3"))), Ok(()));
        let other = self::view(&["10.0.0.1:7253", "10.0.0.4"]);
        assert!(
            gate.admit(&other, &[], || Some(ip("10.0.0.2"))).is_err(),
            "it is no member any more"
        );
        let unasked = || unreachable!("everybody may");
        assert_eq!(Gate::new(true).admit(&other, &[], unasked), Ok(()));
    }

    #[test]
    fn a_peer_must_call_from_the_address_of_its_name() {
        let nodes = ["10.0.0.1:7253", "10.0.0.2", "node-3:7253", "127.0.0.11:7253"];
        let view = view(&nodes);
        let ip = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        let mut gate = Gate::new(false);
        let mut admit = |name: &str, from: &str| gate.admit_peer(&view, name, ip(from));
        assert_eq!(admit("10.0.0.2", "10.0.0.66"), Err(HelloRefusal::Unresolved), "may be node-3");
        gate.set_resolved(Arc::new([("node-3".into(), ip("10.0.0.3").into_iter().collect())]));
        let mut admit = |name: &str, from: &str| gate.admit_peer(&view, name, ip(from));
        let nobody = admit("10.0.0.2", "10.0.0.66");
        let Err(HelloRefusal::Elsewhere(reason)) = &nobody else { panic!("{nobody:?}") };
        assert!(!reason.contains("10.0.0.2"), "a stranger learns who is a member: {reason}");
        assert_eq!(admit("10.0.0.77", "10.0.0.66"), nobody, "the same for any name");
        for known in ["10.0.0.2 10.0.0.2", "10.0.0.2 ::ffff:10.0.0.2", "node-3:7253 10.0.0.3"] {
            let (name, address) = known.split_once(' ').expect("two");
            assert_eq!(admit(name, address), Ok(()), "{known}");
        }
        for other in ["10.0.0.1", "10.9.0.1", "10.0.0.3", "127.0.0.1"] {
            assert!(matches!(admit("10.0.0.2", other), Err(HelloRefusal::Elsewhere(_))), "{other}");
        }
        assert_eq!(admit("127.0.0.11:7253", "127.0.0.1"), Ok(()), "on this machine");
        assert!(admit("127.0.0.11:7253", "10.0.0.2").is_err());
        assert!(admit("node-3:7253", "10.0.0.2").is_err());
        assert!(admit("node-3:7253", "10.0.0.4").is_err());
        assert_eq!(admit("10.0.0.77", "10.0.0.2"), Ok(()), "its name is looked at next");
        assert!(gate.admit_peer(&view, "10.0.0.2", None).is_err());
        gate.resolved("node-3", &["10.0.0.4:7253".parse().expect("an address")]);
        gate.resolved("node-3", &[]);
        assert_eq!(gate.admit_peer(&view, "node-3:7253", ip("10.0.0.4")), Ok(()), "it moved");
        assert_eq!(gate.refused, 0, "that counts for the internal API");
        assert_eq!(Gate::new(true).admit_peer(&view, "10.0.0.2", ip("10.0.0.66")), Ok(()));
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
}
