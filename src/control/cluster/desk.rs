//! The cluster as the admin API shows it, and the orders that the cluster takes: reload,
//! resynchronise, change the members. [`View::build`] decides what a configuration means. The cores
//! decide what is done about it.

// May panic: assertions 1, indices 2.
// Why it does not: peers 3.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::membership_file::{Lists, MembershipFile};
use super::moving::Moving;
use super::site_probe::SiteProbe;
use super::sites::{Offer, Offers, standing_of};
use crate::base::ids::{PeerIndex, TimerId};
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, PeerKind, View};
use crate::control::originals::reader::ReadingProgress;
use crate::control::recovery_progress::{progress, takes_no_writes};
use crate::core::peers::site_watch::SiteStanding;
use crate::node::commands::{Command, Commander};
use crate::node::meters::{CoreMeters, Meter};

/// Reads the configuration again, gives the cores what it says, and returns the view that the cores
/// were given. An error says what is wrong with the configuration; then nothing has changed.
pub(crate) type Reload = Box<dyn Fn() -> Result<Arc<View>, String> + Send + Sync>;

/// Why an order is not carried out. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderError {
    /// The request makes no sense. It is answered 400.
    #[error("{0}")]
    Wrong(String),
    /// The request makes sense, but this node cannot carry it out at present. It is answered 409.
    #[error("{0}")]
    Refused(String),
}

/// The parts of the cluster that depend on the configuration: where the members stand, and how to
/// read them again.
pub(crate) struct Source {
    /// The file that names the members.
    pub file: MembershipFile,
    /// The file that names the other sites.
    pub sites_file: MembershipFile,
    /// Admin listeners of the other members, which `chronos cluster` asks.
    pub admin_addresses: Vec<String>,
    /// Returns what asks a site that is to be added.
    pub probe: Box<dyn Fn() -> SiteProbe + Send + Sync>,
    /// Reads the configuration again, as on SIGHUP.
    pub reload: Reload,
    /// Reads the file of names again, as on SIGUSR2.
    pub read_names: Box<dyn Fn() + Send + Sync>,
    /// Reads the timers of original nodes again. The cores do the rest of SIGUSR1.
    pub resynchronise: Box<dyn Fn() + Send + Sync>,
    /// Returns what was read from original nodes so far.
    pub originals: Box<dyn Fn() -> ReadingProgress + Send + Sync>,
}

/// What the control thread knows of the cluster.
pub(crate) struct ClusterDesk {
    commander: Option<Commander>,
    source: OnceLock<Source>,
    state: Mutex<DeskState>,
    /// Since when timers are compared with the other nodes; `None`: they are not.
    moving: Mutex<Option<Instant>>,
    /// What other sites are offered.
    offers: Mutex<Offers>,
}

pub(super) struct DeskState {
    pub(super) view: Arc<View>,
    reloads: u64,
    reload_failures: u64,
    /// The text of the last reload's error, and when it failed. `None` after a reload that
    /// succeeded.
    reload_error: Option<(String, Instant)>,
}

impl fmt::Debug for ClusterDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterDesk").finish_non_exhaustive()
    }
}

/// The body of `PUT /cluster/membership`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MembersChange {
    nodes: Vec<String>,
    #[serde(default)]
    joining: Vec<String>,
    #[serde(default)]
    leaving: Vec<String>,
    /// What the members must be at present. A change that expects other members is refused, so two
    /// operators cannot undo each other's work.
    expected: Option<NamedLists>,
}

/// The three lists as JSON has them. All three empty mean this node alone.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedLists {
    nodes: Vec<String>,
    #[serde(default)]
    joining: Vec<String>,
    #[serde(default)]
    leaving: Vec<String>,
}

impl ClusterDesk {
    /// Makes the desk of a node that has just started. Without a commander the desk belongs to no
    /// node: it shows the view and gives no commands.
    pub(crate) fn of(view: Arc<View>, commander: Option<Commander>) -> Self {
        let state = DeskState { view, reloads: 0, reload_failures: 0, reload_error: None };
        Self {
            commander,
            source: OnceLock::new(),
            state: Mutex::new(state),
            moving: Mutex::new(None),
            offers: Mutex::default(),
        }
    }

    /// Says where the members come from. Without this call nothing can be reloaded or changed. Only
    /// the first call counts.
    pub(crate) fn connect(&self, source: Source) {
        // A second source would be a second owner of the configuration.
        let _ = self.source.set(source);
    }

    /// Reads the configuration again, as SIGHUP does. `/cluster` shows the result until the next
    /// reload.
    pub(crate) fn reload(&self) -> Result<(), OrderError> {
        let source = self.source()?;
        let result = (source.reload)();
        let mut state = self.state();
        match result {
            Ok(view) => {
                state.view = view;
                state.reloads += 1;
                state.reload_error = None;
                Ok(())
            }
            Err(error) => {
                state.reload_failures += 1;
                state.reload_error = Some((error.clone(), Instant::now()));
                Err(OrderError::Refused(format!("the configuration stays as it was: {error}")))
            }
        }
    }

    /// Reads the file of names again, as SIGUSR2 does.
    pub(crate) fn read_names(&self) {
        if let Some(source) = self.source.get() {
            (source.read_names)();
        }
    }

    /// Makes every core compare its timers with the nodes that should hold them, as SIGUSR1 does.
    pub(crate) fn resynchronise(&self) {
        if let Some(commander) = &self.commander {
            commander.command(&Command::Resynchronise);
        }
        if let Some(source) = self.source.get() {
            (source.resynchronise)();
        }
    }

    /// Reports whether this node was taken out of its cluster. Such a node refuses requests.
    pub(crate) fn has_left(&self) -> bool {
        self.state().view.has_left()
    }

    /// Returns the names of the nodes and of the admin listeners, as they are configured.
    pub(crate) fn names(&self) -> Vec<String> {
        let view = Arc::clone(&self.state().view);
        let nodes = view.peers().iter().map(|peer| peer.name.clone());
        let source = self.source.get();
        nodes.chain(source.iter().flat_map(|source| source.admin_addresses.clone())).collect()
    }

    /// Returns the name of this node.
    pub(crate) fn own_name(&self) -> String {
        let state = self.state();
        state.view.name_of(state.view.own()).to_owned()
    }

    /// Returns how many other members hold timers: those that stay, join and leave.
    pub(crate) fn other_members(&self) -> usize {
        let view = Arc::clone(&self.state().view);
        let members = view.new_nodes().union(view.old_nodes());
        members.iter().filter(|peer| *peer != view.own()).count()
    }

    /// Renders which nodes are to hold a timer, in the order of their ranks, and whether they live.
    pub(crate) fn replicas(&self, meters: &[CoreMeters], id: TimerId, factor: u8) -> Value {
        let view = Arc::clone(&self.state().view);
        let replicas = view.place(id, factor, view.new_nodes());
        let peers = replicas.as_slice().iter().filter_map(|node| view.peer_of(*node));
        let render = |(rank, peer): (usize, PeerIndex)| {
            json!({
                "rank": rank,
                "node": view.name_of(peer),
                "liveness": liveness_of(&view, meters, peer),
            })
        };
        peers.enumerate().map(render).collect()
    }

    /// Returns what was read from original nodes so far.
    pub(crate) fn originals(&self) -> ReadingProgress {
        self.source.get().map_or_else(ReadingProgress::default, |source| (source.originals)())
    }

    /// Returns how many reloads succeeded, and how many failed.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        let state = self.state();
        (state.reloads, state.reload_failures)
    }

    /// Changes the members: writes them into the file that the present members came from, then
    /// reloads. When the reload fails, the file gets its former text back.
    pub(crate) fn change(&self, body: &[u8]) -> Result<(), OrderError> {
        let change: MembersChange = serde_json::from_slice(body).map_err(|error| {
            OrderError::Wrong(format!(
                "the members are no JSON of the form {{\"nodes\": [\"host:port\", ...], \
                 \"joining\": [...], \"leaving\": [...]}}: {error}"
            ))
        })?;
        let (view, held) = {
            let state = self.state();
            (state.view.clone(), lists_of(&state.view))
        };
        if change.expected.is_some_and(|lists| !is_same(&lists.lists(), &held)) {
            return Err(OrderError::Refused(format!(
                "the members have changed meanwhile: {}. Another procedure may be under way; look \
                 with chronos cluster status",
                told(&held)
            )));
        }
        let wanted = [change.nodes, change.joining, change.leaving];
        check(&view, &wanted)?;
        let source = self.source()?;
        let former = source.file.write(&wanted);
        let former = former.map_err(|error| OrderError::Refused(error.to_string()))?;
        self.reload_written(&source.file, &former, |view| {
            let now = lists_of(view);
            if is_same(&now, &alone_or(&wanted, view)) {
                return Ok(());
            }
            Err(OrderError::Refused(format!(
                "the members were written and are not what the node has read: {}. Something \
                 overrides the file (a variable CHRONOS_CLUSTER_...?); remove that",
                told(&now)
            )))
        })
    }

    /// Reloads after a file was written. If that fails, or `check` refuses what was read, the file
    /// gets its former text back.
    pub(super) fn reload_written(
        &self,
        file: &MembershipFile,
        former: &str,
        check: impl FnOnce(&View) -> Result<(), OrderError>,
    ) -> Result<(), OrderError> {
        let reloaded = self.reload().and_then(|()| check(&Arc::clone(&self.state().view)));
        if reloaded.is_err() {
            let restored = file.restore(former);
            restored.map_err(|error| OrderError::Refused(error.to_string()))?;
            // The former text was valid once. If it no longer is, `/cluster` shows that error.
            let _ = self.reload();
        }
        reloaded
    }

    /// The names of the other members and sites, and what the cores believe of them.
    pub(crate) fn peers_believed(&self, meters: &[CoreMeters]) -> Vec<(String, Option<Liveness>)> {
        let view = self.state().view.clone();
        let members = view.new_nodes().union(view.old_nodes()).iter();
        let members = members.filter(|peer| *peer != view.own());
        let all = members.chain(view.connected_sites().iter());
        all.map(|peer| (view.name_of(peer).to_owned(), believed(meters, peer))).collect()
    }

    /// The document of `GET /cluster`.
    pub(crate) fn render(&self, meters: &[CoreMeters]) -> Value {
        let state = self.state();
        let view = &state.view;
        let [nodes, joining, leaving] = lists_of(view);
        let (members, sites) = (members_of(view, meters), self.sites_in(view, meters));
        let reload_error = state
            .reload_error
            .as_ref()
            .map(|(text, at)| json!({ "text": text, "seconds_ago": at.elapsed().as_secs() }));
        let source = self.source.get();
        json!({
            "name": view.name_of(view.own()),
            "version": env!("CARGO_PKG_VERSION"),
            "site": view.name_of_site(view.local_site()),
            "view_id": view.id().to_string(),
            "membership": { "nodes": nodes, "joining": joining, "leaving": leaving },
            "membership_fixed": source.and_then(|source| source.file.why_none()),
            "members": members,
            "sites": sites,
            "sites_fixed": source.and_then(|source| source.sites_file.why_none()),
            "resynchronisation": self.progress(view, meters),
            "timers": sum(meters, |core| &core.timers),
            "is_recovering": progress(meters).is_some(),
            "takes_no_writes": meters.iter().find_map(takes_no_writes),
            "is_full": sum(meters, |core| &core.node_full) > 0,
            "timers_lacking": sum(meters, |core| &core.timers_lacking),
            "clock": {
                "is_refused": sum(meters, |core| &core.clock_refused) > 0,
                "apart_ms": meters.iter().map(|core| core.clocks_apart_ms.get()).max(),
            },
            "peers_unproven": sum(meters, |core| &core.peer_unproven),
            "reloads": state.reloads,
            "reload_failures": state.reload_failures,
            "reload_error": reload_error,
            "admin_addresses": source.map_or(&[][..], |source| &source.admin_addresses),
        })
    }

    /// What is offered at present to each of the other sites that are reached.
    pub(crate) fn offers(&self, meters: &[CoreMeters]) -> Vec<(String, Option<Offer>)> {
        let view = Arc::clone(&self.state().view);
        let mut offers = Vec::new();
        for site in view.connected_sites().iter() {
            let (name, standing) = (view.name_of(site), standing_of(meters, site));
            let offer = self.offer(name, standing, Instant::now());
            if standing.is_some_and(|standing| standing.is_reached) {
                offers.push((name.to_owned(), offer));
            }
        }
        offers
    }

    fn offer(&self, site: &str, standing: Option<SiteStanding>, now: Instant) -> Option<Offer> {
        // Nothing that holds the lock can fail.
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        offers.look(site, &standing?, now)
    }

    fn sites_in(&self, view: &View, meters: &[CoreMeters]) -> Vec<Value> {
        let all = view.connected_sites().iter();
        all.map(|peer| {
            let site = &view.peers()[peer.index()];
            assert!(matches!(site.kind, PeerKind::Site(_)), "the view says so");
            let standing = standing_of(meters, peer);
            let offer = self.offer(&site.name, standing, Instant::now());
            let it = standing.unwrap_or_default();
            json!({
                "name": site.name,
                "address": view.addresses_of(peer).collect::<Vec<_>>().join(","),
                "liveness": word(believed(meters, peer)),
                "tls": is_tls(meters, peer),
                "kept_bytes": kept_bytes(meters, peer),
                "seconds": it.for_ms / 1_000,
                "waiting": it.waiting,
                "lag_ms": it.lag_ms,
                "to_offer": it.to_offer,
                "left_s": offer.and_then(|offer| offer.left_s()),
                "clock_ahead_ms": it.ahead_ms,
                "lists_differ_s": it.differs_ms.map(|ms| ms / 1_000),
            })
        })
        .collect()
    }

    /// How far the walks of all cores are.
    pub(crate) fn moving(&self, meters: &[CoreMeters]) -> Moving {
        let view = Arc::clone(&self.state().view);
        let moving = self.moving_in(&view, meters);
        self.moving_since(moving.is_running, Instant::now());
        moving
    }

    /// For how long timers have been compared, as far as anybody looked; `None`: they are not.
    pub(crate) fn moving_since(&self, is_running: bool, now: Instant) -> Option<Duration> {
        let mut begun = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        *begun = is_running.then(|| begun.unwrap_or(now));
        begun.map(|begun| now.saturating_duration_since(begun))
    }

    /// How far the walks of all cores are. `is_running` is true while
    ///
    /// - a core has not begun with the last command,
    /// - a core walks,
    /// - an offer has no answer yet and no member is dead (a dead member will not answer),
    /// - an original node is being read.
    fn moving_in(&self, view: &View, meters: &[CoreMeters]) -> Moving {
        let is_obeyed = self.commander.as_ref().is_none_or(|commander| commander.is_obeyed(meters));
        let held = sum(meters, |core| &core.timers) + sum(meters, |core| &core.tombstones);
        let mut members = view.new_nodes().union(view.old_nodes()).iter();
        let is_anybody_dead = members.any(|peer| believed(meters, peer) == Some(Liveness::Dead));
        let offers = sum(meters, |core| &core.offers_waiting);
        let is_walking = meters.iter().any(|core| core.walks.get() > 0);
        let walking = meters.iter().filter(|core| core.walks.get() > 0);
        let left: u64 = walking
            .map(|core| {
                let held = core.timers.get() + core.tombstones.get();
                held.saturating_sub(core.walk_seen.get())
            })
            .sum();
        let is_offering = offers > 0 && !is_anybody_dead;
        Moving {
            is_running: !is_obeyed || is_walking || is_offering || self.originals().is_busy,
            seen: if is_obeyed { held - left.min(held) } else { 0 },
            total: held,
            misplaced: sum(meters, |core| &core.timers_misplaced),
            moved: sum(meters, |core| &core.timers_moved),
        }
    }

    fn progress(&self, view: &View, meters: &[CoreMeters]) -> Value {
        let Moving { is_running, seen, total, misplaced, moved } = self.moving_in(view, meters);
        json!({
            "is_running": is_running,
            "originals": self.originals().render(),
            "seen": seen,
            "total": total,
            "misplaced": misplaced,
            "moved": moved,
        })
    }

    pub(super) fn source(&self) -> Result<&Source, OrderError> {
        self.source.get().ok_or_else(|| {
            OrderError::Refused("this node has no configuration that could be read again".into())
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DeskState> {
        // Every change of the state is one assignment, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NamedLists {
    fn lists(self) -> Lists {
        [self.nodes, self.joining, self.leaving]
    }
}

/// Returns the lists that a view means. A node alone is listed under the nodes, although no file
/// names it.
pub(super) fn lists_of(view: &View) -> Lists {
    let (new, old) = (view.new_nodes(), view.old_nodes());
    [new.intersection(old), new.minus(old), old.minus(new)]
        .map(|set| set.iter().map(|peer| view.name_of(peer).to_owned()).collect())
}

fn alone_or(wanted: &Lists, view: &View) -> Lists {
    if wanted.iter().all(Vec::is_empty) {
        return [vec![view.name_of(view.own()).to_owned()], vec![], vec![]];
    }
    wanted.clone()
}

/// Reports whether both have the same nodes in the same lists. The order in a list means nothing.
fn is_same(a: &Lists, b: &Lists) -> bool {
    let sorted = |list: &Vec<String>| {
        let mut list = list.clone();
        list.sort();
        list
    };
    a.iter().map(sorted).eq(b.iter().map(sorted))
}

fn told([nodes, joining, leaving]: &Lists) -> String {
    let mut text = format!("nodes {}", nodes.join(" "));
    for (role, list) in [("joining", joining), ("leaving", leaving)] {
        if !list.is_empty() {
            text += &format!(", {role} {}", list.join(" "));
        }
    }
    text
}

fn check(view: &View, [nodes, joining, leaving]: &Lists) -> Result<(), OrderError> {
    let membership = Membership {
        localhost: view.name_of(view.own()).to_owned(),
        nodes: nodes.clone(),
        joining: joining.clone(),
        leaving: leaving.clone(),
        ..Membership::default()
    };
    View::build(Some(view), &membership)
        .map(|_| ())
        .map_err(|error| OrderError::Wrong(error.to_string()))
}

fn members_of(view: &View, meters: &[CoreMeters]) -> Vec<Value> {
    let (new, old) = (view.new_nodes(), view.old_nodes());
    let role = |peer| match (old.contains(peer), new.contains(peer)) {
        (true, true) => "staying",
        (false, _) => "joining",
        (true, false) => "leaving",
    };
    let all = new.union(old).iter();
    all.map(|peer| {
        json!({
            "name": view.name_of(peer),
            "role": role(peer),
            "liveness": liveness_of(view, meters, peer),
            "tls": is_tls(meters, peer),
            "kept_bytes": kept_bytes(meters, peer),
        })
    })
    .collect()
}

fn liveness_of(view: &View, meters: &[CoreMeters], peer: PeerIndex) -> &'static str {
    if peer == view.own() { "self" } else { word(believed(meters, peer)) }
}

/// What the cores believe of a peer: alive or dead if all agree, suspected if they disagree, `None`
/// if the first core has no belief yet.
fn believed(meters: &[CoreMeters], peer: PeerIndex) -> Option<Liveness> {
    let mut cores = meters.iter().map(|core| core.beliefs.get(peer).map(|(liveness, _)| liveness));
    let first = cores.next()??;
    let is_agreed = cores.all(|other| other == Some(first));
    Some(if is_agreed { first } else { Liveness::Suspect })
}

/// Whether the connections of all cores to a peer go over TLS.
fn is_tls(meters: &[CoreMeters], peer: PeerIndex) -> bool {
    !meters.is_empty() && meters.iter().all(|core| core.beliefs.is_tls(peer))
}

fn word(liveness: Option<Liveness>) -> &'static str {
    match liveness {
        Some(Liveness::Alive) => "alive",
        Some(Liveness::Suspect) => "suspect",
        Some(Liveness::Dead) => "dead",
        None => "unknown",
    }
}

fn kept_bytes(meters: &[CoreMeters], peer: PeerIndex) -> u64 {
    meters.iter().map(|core| core.kept_bytes[peer.index()].get()).sum()
}

fn sum(meters: &[CoreMeters], meter: impl Fn(&CoreMeters) -> &Meter) -> u64 {
    meters.iter().map(|core| meter(core).get()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::settings::Config;
    use crate::control::names::Names;
    use crate::shard::effects::Dialect;
    use std::fs;
    use std::path::{Path, PathBuf};

    const OWN: &str = "127.0.0.1:7253";

    /// Reads the three lists without any check. The view becomes what the file says.
    fn reload_from(path: PathBuf) -> Reload {
        Box::new(move || {
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            let document: toml::Table = text.parse().map_err(|_| "no TOML".to_owned())?;
            let cluster = document.get("cluster").and_then(|section| section.as_table());
            let list = |key: &str| -> Vec<String> {
                let list = cluster.and_then(|cluster| cluster.get(key)?.as_array());
                let names = list.into_iter().flatten();
                names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
            };
            if text.contains("broken = true") {
                return Err("line 9: broken".into());
            }
            let membership = Membership {
                localhost: OWN.into(),
                nodes: list("nodes"),
                joining: list("joining"),
                leaving: list("leaving"),
                ..Membership::default()
            };
            let view = View::build(None, &membership).map_err(|error| error.to_string())?;
            Ok(Arc::new(view))
        })
    }

    fn desk(path: &Path) -> ClusterDesk {
        let desk = ClusterDesk::of(Arc::new(View::alone(OWN)), None);
        desk.connect(Source {
            file: MembershipFile::Toml(path.to_owned()),
            sites_file: MembershipFile::Toml(path.to_owned()),
            admin_addresses: vec!["127.0.0.1:7254".into()],
            probe: Box::new(|| {
                SiteProbe::of(&Config::default(), &View::alone(OWN), Names::default())
            }),
            reload: reload_from(path.to_owned()),
            read_names: Box::new(|| {}),
            resynchronise: Box::new(|| {}),
            originals: Box::new(ReadingProgress::default),
        });
        desk
    }

    fn put(desk: &ClusterDesk, body: &str) -> Result<(), String> {
        desk.change(body.as_bytes()).map_err(|error| match error {
            OrderError::Wrong(text) => format!("400 {text}"),
            OrderError::Refused(text) => format!("409 {text}"),
        })
    }

    #[test]
    fn members_change_in_file_and_view_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chronos.toml");
        fs::write(&path, "# mine\n").expect("written");
        let desk = desk(&path);
        let during = r#"{"nodes":["127.0.0.1:7253"],"joining":["b:1"],
            "expected":{"nodes":["127.0.0.1:7253"]}}"#;
        put(&desk, during).expect("fine");
        let shown = desk.render(&[CoreMeters::default()]);
        assert_eq!(shown["membership"]["joining"], json!(["b:1"]));
        assert_eq!(shown["members"][0]["liveness"], "self");
        assert_eq!(shown["members"][1]["role"], "joining");
        assert_eq!(shown["members"][1]["liveness"], "unknown");
        assert_eq!(desk.reloads(), (1, 0));
        let refused = put(&desk, during).expect_err("others are there now");
        assert!(refused.starts_with("409 the members have changed meanwhile"), "{refused}");
        put(&desk, r#"{"nodes":[]}"#).expect("alone");
        assert_eq!(desk.render(&[])["membership"]["nodes"], json!([OWN]));
        assert!(fs::read_to_string(&path).expect("there").starts_with("# mine"));
    }

    #[test]
    fn wrong_members_change_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chronos.toml");
        fs::write(&path, "").expect("written");
        let desk = desk(&path);
        for (body, told) in [
            ("{", "400 the members are no JSON"),
            (r#"{"nodes":["a"],"node":[]}"#, "400 the members are no JSON"),
            (r#"{"joining":["a"]}"#, "400 the members are no JSON"),
            (r#"{"nodes":["a:1"]}"#, "400 this node is"),
            (r#"{"nodes":["127.0.0.1:7253","127.0.0.1:7253"]}"#, "400 \"127.0.0.1:7253\" is l"),
            (r#"{"nodes":["127.0.0.1:7253"],"joining":["a b"]}"#, "400 \"a b\" is no address"),
            (r#"{"nodes":["127.0.0.1:7253"],"joining":["a\nb"]}"#, "400 \"a\\nb\" is no address"),
        ] {
            let refused = put(&desk, body).expect_err(body);
            assert!(refused.starts_with(told), "{body}: {refused}");
        }
        assert_eq!(fs::read_to_string(&path).expect("there"), "");
    }

    #[test]
    fn a_reload_that_fails_puts_the_file_back_and_is_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chronos.toml");
        fs::write(&path, "broken = true\n").expect("written");
        let desk = desk(&path);
        let body = r#"{"nodes":["127.0.0.1:7253","b:1"]}"#;
        let refused = put(&desk, body).expect_err("the file is broken");
        assert!(refused.contains("stays as it was: line 9: broken"), "{refused}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "broken = true\n");
        let shown = desk.render(&[]);
        assert_eq!(shown["reload_error"]["text"], "line 9: broken");
        assert_eq!(shown["membership"]["nodes"], json!([OWN]));
        fs::write(&path, "").expect("written");
        desk.reload().expect("repaired");
        assert_eq!(desk.render(&[])["reload_error"], Value::Null);
        assert_eq!(desk.reloads().0, 1);
        assert!(put(&ClusterDesk::of(Arc::new(View::alone(OWN)), None), body).is_err());
    }

    #[test]
    fn a_peer_is_what_all_cores_believe() {
        let cores = [CoreMeters::default(), CoreMeters::default()];
        let peer = PeerIndex(1);
        let say = |core: usize, liveness| {
            cores[core].beliefs.set(peer, liveness, Dialect::Frames, core == 1)
        };
        assert_eq!(believed(&cores, peer), None);
        say(0, Liveness::Alive);
        assert_eq!(believed(&cores, peer), Some(Liveness::Suspect));
        say(1, Liveness::Alive);
        assert_eq!(believed(&cores, peer), Some(Liveness::Alive));
        say(0, Liveness::Dead);
        assert_eq!(believed(&cores, peer), Some(Liveness::Suspect));
        say(1, Liveness::Dead);
        assert_eq!(believed(&cores, peer), Some(Liveness::Dead));
        assert!(!is_tls(&cores, peer), "one of them has no TLS");
        assert!(is_tls(&cores[1..], peer) && !is_tls(&cores, PeerIndex(2)));
        cores[0].kept_bytes[1].set(3);
        cores[1].kept_bytes[1].set(4);
        assert_eq!(kept_bytes(&cores, peer), 7);
    }
}
