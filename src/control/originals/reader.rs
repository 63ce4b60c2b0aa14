//! Reads timers from original nodes: at the start, on SIGUSR1, and when an original is heard again
//! (docs/compat/timer-service.md §9.3 and §5.2). Nodes of this service exchange timers in frames;
//! an original only answers requests.
//!
//! One node is read at a time, page by page. The cores get the timers that were read. Other nodes
//! are told only of timers that the cores took. A round ends, whatever the other node answers,
//! because each page must bring a new timer. No core waits for the reader.

// May panic: indices 8.
// Why it does not: found 5, peers 3.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::AHashSet;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use super::page::{Page, read_page};
use crate::base::ids::{PeerIndex, PeerSet};
use crate::cluster::detector::Liveness;
use crate::cluster::view::{PeerKind, View};
use crate::control::cluster::member_addresses;
use crate::control::http_client::{HttpClient, HttpError, HttpRequest};
use crate::control::names::Names;
use crate::core::copies::Copies;
use crate::core::peers::address::{PeerAddress, place_of};
use crate::node::commands::Command;
use crate::node::meters::CoreMeters;
use crate::shard::effects::Dialect;
use crate::wire::resync_json::{Reference, ResyncQuery, write_references, write_target};

/// Time for one request to an original and its answer, the connection included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest body of an answer, in bytes: 100 timers with 160 KiB each, or a few of the longest.
const BODY_BYTES_MAX: usize = 16 << 20;
/// How often the reader looks which original nodes are alive.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a round is begun with a node that fails.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Timers asked for in one request. The number shrinks when an answer would be too long.
const PAGE_TIMERS: u32 = 100;
/// Most pages of one round: 100 million timers.
const PAGES_MAX: u64 = 1 << 20;
/// Most pages in a row that bring nothing new. Each of them is asked for from twice as far ahead as
/// the page before, together 4 s and more.
const BARREN_MAX: u32 = 12;
/// How long the cores may take for a page before they get it again.
const MERGE_PATIENCE: Duration = Duration::from_secs(5);
const MERGE_TRIES: u32 = 3;
/// How often the reader looks whether the cores have taken a page.
const MERGE_LOOK: Duration = Duration::from_millis(2);

/// How far the reading of original nodes is. All counts are since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadingProgress {
    /// Whether a node is being read, or will be read at once.
    pub is_busy: bool,
    /// The node that is being read.
    pub reading: Option<String>,
    /// How many nodes were read to the end.
    pub rounds: u64,
    /// How many nodes were given up after all tries.
    pub failures: u64,
    /// How many pages were read.
    pub pages: u64,
    /// How many timers these pages had.
    pub timers: u64,
    /// How many timers the cores merged.
    pub merged: u64,
    /// How many timers the cores refused, for instance because memory was full.
    pub refused: u64,
    /// How many timers could not be read.
    pub malformed: u64,
    /// How many times a timer was meant for another original node, whether or not the request
    /// succeeded.
    pub told: u64,
    /// How many times a timer was meant to end at a former holder, whether or not the request
    /// succeeded.
    pub ended: u64,
}

impl ReadingProgress {
    /// Returns the counters, each with name, help and number.
    pub(crate) fn counters(&self) -> [(&'static str, &'static str, u64); 9] {
        [
            ("originals_rounds", "Original nodes read to the end", self.rounds),
            ("originals_failures", "Original nodes given up after all tries", self.failures),
            ("originals_pages", "Pages of timers read from original nodes", self.pages),
            ("originals_timers", "Timers on these pages", self.timers),
            ("originals_merged", "Timers of these that the cores took", self.merged),
            ("originals_refused", "Timers of these that found no room", self.refused),
            ("originals_malformed", "Timers of these that made no sense", self.malformed),
            ("originals_told", "Timers of these told to other original nodes", self.told),
            ("originals_ended", "Timers of these ended at their former holders", self.ended),
        ]
    }

    /// Renders the counters and the node that is being read, for `/cluster`.
    pub(crate) fn render(&self) -> Value {
        let prefix = "originals_".len();
        let counters = self.counters().map(|(name, _, value)| (name[prefix..].to_owned(), value));
        let mut rendered: Value = counters.into_iter().collect();
        rendered["reading"] = self.reading.clone().into();
        rendered
    }
}

/// A handle of the task that reads original nodes.
#[derive(Clone, Debug)]
pub(crate) struct Originals {
    shared: Arc<ReaderShared>,
}

#[derive(Debug)]
struct ReaderShared {
    state: Mutex<ReaderState>,
    wanted: Notify,
    /// Sends the view to the task that looks up the names of members.
    views: watch::Sender<Arc<View>>,
}

#[derive(Debug)]
struct ReaderState {
    view: Arc<View>,
    /// Whether all nodes should be read again. The task clears the flag when it begins.
    is_wanted: bool,
    progress: ReadingProgress,
}

impl ReaderShared {
    fn lock(&self) -> MutexGuard<'_, ReaderState> {
        // A panic with the lock in hand leaves numbers behind, which are whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Originals {
    /// Starts the task on the runtime of the caller. The receiver yields the commands for the
    /// cores. `port` is the port of a member whose name has none; `admins` are the admin APIs of
    /// members; `names` says where names lead.
    pub(crate) fn start(
        view: Arc<View>,
        meters: Arc<[CoreMeters]>,
        port: u16,
        admins: Vec<String>,
        names: Names,
    ) -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(1);
        let (views, changes) = watch::channel(view.clone());
        tokio::spawn(member_addresses::tell(changes, admins, names.clone(), commands.clone()));
        let state = ReaderState { view, is_wanted: false, progress: ReadingProgress::default() };
        let shared =
            Arc::new(ReaderShared { state: Mutex::new(state), wanted: Notify::new(), views });
        let reader = OriginalsReader {
            shared: shared.clone(),
            commands,
            meters,
            port,
            names,
            known: PeerSet::EMPTY,
        };
        tokio::spawn(reader.run());
        (Self { shared }, receiver)
    }

    /// Tells the task that the cores have another view.
    pub(crate) fn set_view(&self, view: Arc<View>) {
        self.shared.lock().view = view.clone();
        // An error means that the node stops.
        let _ = self.shared.views.send(view);
        self.shared.wanted.notify_one();
    }

    /// Makes the task read every original node again.
    pub(crate) fn resynchronise(&self) {
        self.shared.lock().is_wanted = true;
        self.shared.wanted.notify_one();
    }

    /// Returns how far the reading is.
    pub(crate) fn progress(&self) -> ReadingProgress {
        let state = self.shared.lock();
        let is_busy = state.is_wanted || state.progress.reading.is_some();
        ReadingProgress { is_busy, ..state.progress.clone() }
    }
}

/// The task that reads original nodes.
struct OriginalsReader {
    shared: Arc<ReaderShared>,
    commands: mpsc::Sender<Command>,
    meters: Arc<[CoreMeters]>,
    port: u16,
    /// Where names of members lead.
    names: Names,
    /// The original nodes that were alive at the last look.
    known: PeerSet,
}

impl OriginalsReader {
    async fn run(mut self) {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.commands.is_closed() {
            tokio::select! {
                _ = look.tick() => {}
                () = self.shared.wanted.notified() => {}
            }
            let view = self.shared.lock().view.clone();
            let alive = self.originals(&view);
            if std::mem::take(&mut self.shared.lock().is_wanted) {
                self.known = PeerSet::EMPTY;
            }
            let fresh = alive.minus(self.known);
            self.known = alive;
            for peer in fresh.iter() {
                self.read(&view, peer).await;
            }
        }
    }

    /// Returns the original nodes that some core believes alive.
    fn originals(&self, view: &View) -> PeerSet {
        self.alive(view, Dialect::Http)
    }

    /// Returns the nodes of this service: this node, and the members that are not known to be dead
    /// or originals. A member that has not let this node in yet may hold timers; it moves them when
    /// it lets this node in.
    fn ours(&self, view: &View) -> PeerSet {
        let is_dead =
            |core: &CoreMeters, peer| matches!(core.beliefs.get(peer), Some((Liveness::Dead, _)));
        let may_live = |peer: &PeerIndex| self.meters.iter().any(|core| !is_dead(core, *peer));
        let living = view.connected_nodes().iter().filter(may_live);
        let living = living.fold(PeerSet::EMPTY, PeerSet::with);
        living.minus(self.alive(view, Dialect::Http)).with(view.own())
    }

    fn alive(&self, view: &View, dialect: Dialect) -> PeerSet {
        let is_alive = |peer: &PeerIndex| {
            let believed = |core: &CoreMeters| core.beliefs.get(*peer);
            matches!(view.peers()[peer.index()].kind, PeerKind::Node(_))
                && self.meters.iter().any(|core| believed(core) == Some((Liveness::Alive, dialect)))
        };
        view.connected_nodes().iter().filter(is_alive).fold(PeerSet::EMPTY, PeerSet::with)
    }

    async fn command(&self, command: Command) {
        // An error means that the node stops. This task ends with the node.
        let _ = self.commands.send(command).await;
    }

    fn count(&self, change: impl FnOnce(&mut ReadingProgress)) {
        change(&mut self.shared.lock().progress);
    }

    /// Reads one node. A round that fails is tried again, up to [`TRIES`] rounds.
    async fn read(&self, view: &View, peer: PeerIndex) {
        let name = view.name_of(peer);
        info!("reading the timers of {name}, which speaks the internal HTTP API");
        self.count(|progress| progress.reading = Some(name.to_owned()));
        for tried in 1..=TRIES {
            let mut round = Round {
                reader: self,
                view,
                peer,
                clients: view.peers().iter().map(|_| None).collect(),
                references_refused: PeerSet::EMPTY,
                page_timers: PAGE_TIMERS,
                is_whole: true,
            };
            match round.run().await {
                Ok((pages, timers)) => {
                    info!(pages, timers, "read all timers of {name} that are this node's, too");
                    self.count(|progress| progress.rounds += 1);
                    if round.is_whole {
                        self.command(Command::Read(peer)).await;
                    }
                    break;
                }
                Err(reason) => warn!("reading the timers of {name} failed: {reason}"),
            }
            if tried == TRIES {
                self.count(|progress| progress.failures += 1);
            } else {
                sleep(PAUSE).await;
            }
        }
        self.count(|progress| progress.reading = None);
    }

    /// Gives copies to the cores and waits until the cores have taken them. An error means that
    /// they did not within [`MERGE_TRIES`] times [`MERGE_PATIENCE`].
    async fn merge(&self, copies: Arc<Copies>) -> Result<(), String> {
        for _ in 0..MERGE_TRIES {
            self.command(Command::Copies(copies.clone())).await;
            let began = Instant::now();
            while began.elapsed() < MERGE_PATIENCE {
                if copies.are_taken() {
                    return Ok(());
                }
                sleep(MERGE_LOOK).await;
            }
        }
        Err("the cores do not take the timers".into())
    }
}

/// One round: a node is read from its first page to its last.
struct Round<'a> {
    reader: &'a OriginalsReader,
    view: &'a View,
    peer: PeerIndex,
    /// The connections, by number of the peer.
    clients: Vec<Option<HttpClient>>,
    /// Nodes that refused a request with references. Original nodes do.
    references_refused: PeerSet,
    /// Timers asked for in one request.
    page_timers: u32,
    /// Whether every timer that was listed made sense and was taken.
    is_whole: bool,
}

/// Where the next page begins.
#[derive(Clone, Copy, Debug)]
struct Next {
    from_ms: Option<u64>,
    barren: u32,
}

impl Round<'_> {
    async fn run(&mut self) -> Result<(u64, u64), String> {
        let mut next = Next { from_ms: None, barren: 0 };
        let mut former: AHashSet<u64> = AHashSet::new();
        let (mut pages, mut timers) = (0, 0);
        while pages < PAGES_MAX {
            let asked_at = Instant::now();
            let (page, has_more) = self.page(next.from_ms).await?;
            let took_ms = asked_at.elapsed().as_millis() as u64 + 1;
            pages += 1;
            let ids: AHashSet<u64> = page.timers.iter().map(|timer| timer.id.0).collect();
            let is_barren = ids.iter().all(|id| former.contains(id));
            timers += ids.difference(&former).count() as u64;
            self.reader.count(|progress| {
                progress.pages += 1;
                progress.timers += page.timers.len() as u64;
                progress.malformed += page.malformed;
            });
            self.is_whole &= page.malformed == 0;
            self.take(&page).await?;
            if !has_more {
                return Ok((pages, timers));
            }
            next.barren = if is_barren { next.barren + 1 } else { 0 };
            let Some(last) = page.last else {
                return Err("a page without timers says that there are more".into());
            };
            if next.barren > BARREN_MAX {
                return Err("the same timers are served again and again".into());
            }
            let ahead_ms = if next.barren == 0 { 0 } else { took_ms << next.barren };
            // The place is told as time from the moment at which the other node reads the request.
            // The time that an answer and a request take is subtracted, so that no timer is left
            // out. A timer that comes twice is merged once.
            let now = crate::ring::now().mono.tick_floor();
            let left_ms = (last - now).saturating_sub(took_ms);
            next.from_ms = Some(left_ms.saturating_add(ahead_ms));
            former = ids;
        }
        Err("it has more timers than a node can hold".into())
    }

    /// Asks for a page that begins `from_ms` from now. Returns the page and whether more pages
    /// follow.
    async fn page(&mut self, from_ms: Option<u64>) -> Result<(Page, bool), String> {
        let (own, other) = (self.view.name_of(self.view.own()), self.view.name_of(self.peer));
        let query =
            ResyncQuery { node: own.into(), view_id: self.view.id(), time_from_ms: from_ms };
        let mut target = Vec::new();
        write_target(&query, &mut target);
        let target = String::from_utf8_lossy(&target);
        let mut answered = loop {
            let count = self.page_timers;
            let headers = [("Host", other), ("Range", &count.to_string())];
            let request = HttpRequest { headers: &headers, ..HttpRequest::get(&target) };
            match self.client(self.peer).ask(request).await {
                Err(HttpError::TooLong(_)) if count > 1 => {
                    // The timers of this node are long.
                    self.page_timers = count.div_ceil(8);
                }
                answered => break answered.map_err(|error| error.to_string())?,
            }
        };
        let has_more = match answered.status {
            200 => false,
            206 => true,
            400 => return Err("it answered 400; is it configured with the same members?".into()),
            status => return Err(format!("it answered {status}")),
        };
        let ours = self.reader.ours(self.view);
        let page = read_page(crate::ring::now(), self.view, other, ours, &mut answered.body)?;
        Ok((page, has_more))
    }

    /// Handles a page: gives the cores the timers that this node takes, then tells other nodes.
    async fn take(&mut self, page: &Page) -> Result<(), String> {
        let added: Vec<usize> =
            (0..page.timers.len()).filter(|&place| page.timers[place].adds).collect();
        let copies = Copies::of(added.iter().map(|&place| page.timers[place].copy()));
        let copies = Arc::new(copies);
        self.reader.merge(copies.clone()).await?;
        let is_refused = |place: &usize| !copies.is_merged(*place);
        let refused: AHashSet<usize> =
            (0..added.len()).filter(is_refused).map(|place| added[place]).collect();
        self.is_whole &= refused.is_empty();
        self.reader.count(|progress| {
            progress.refused += refused.len() as u64;
            progress.merged += (added.len() - refused.len()) as u64;
        });
        let mut references = Vec::new();
        for (place, timer) in page.timers.iter().enumerate() {
            if refused.contains(&place) {
                continue;
            }
            references.push(Reference { id: timer.id, rank: timer.rank });
            for (name, body) in timer.told.iter().chain(&timer.ended) {
                self.put(name, &timer.path, body).await;
            }
            self.reader.count(|progress| {
                progress.told += timer.told.len() as u64;
                progress.ended += timer.ended.len() as u64;
            });
        }
        self.refer(&references).await;
        Ok(())
    }

    /// Sends a timer to an original node. A failure is logged only: another node tells the same
    /// timer, or the original asks for it.
    async fn put(&mut self, name: &str, path: &str, body: &[u8]) {
        let Some(peer) = self.view.node_named(name) else { return };
        if !self.reader.known.contains(peer) {
            return;
        }
        let headers = [("Host", name), ("Content-Type", "application/json")];
        let request = HttpRequest { method: "PUT", path, headers: &headers, body };
        match self.client(peer).ask(request).await {
            Ok(answered) if answered.status < 300 => {}
            Ok(answered) => warn!("{name} answered {} to {path}", answered.status),
            Err(error) => warn!("{name} cannot be told {path}: {error}"),
        }
    }

    /// Tells the leaving nodes which timers this node has handled.
    async fn refer(&mut self, references: &[Reference]) {
        let leaving = self.view.connected_nodes().minus(self.view.new_nodes());
        let to = leaving.intersection(self.reader.known).minus(self.references_refused);
        if references.is_empty() {
            return;
        }
        let mut body = Vec::new();
        write_references(references, &mut body);
        for peer in to.iter() {
            let name = self.view.name_of(peer);
            let headers = [("Host", name), ("Content-Type", "application/json")];
            let path = "/timers/references";
            let request = HttpRequest { method: "DELETE", path, headers: &headers, body: &body };
            let answered = self.client(peer).ask(request).await;
            if !answered.is_ok_and(|answered| answered.status < 300) {
                self.references_refused = self.references_refused.with(peer);
                info!("{name} takes no references; it is told the end of each timer instead");
            }
        }
    }

    /// Returns the connection to a peer. It may be used again, because every request of a round
    /// does no harm when it arrives twice.
    fn client(&mut self, peer: PeerIndex) -> &mut HttpClient {
        let address = &self.view.peers()[peer.index()].address;
        let port = self.reader.port;
        self.clients[peer.index()].get_or_insert_with(|| {
            let address = match place_of(address, port) {
                PeerAddress::At(address) => address.to_string(),
                PeerAddress::Named(name, port) => format!("{name}:{port}"),
            };
            HttpClient::new(&address, PATIENCE, BODY_BYTES_MAX).named(self.reader.names.clone())
        })
    }
}
