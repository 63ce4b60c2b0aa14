//! Starts and stops a node: listeners, threads, pinning.

// May panic: indices 6.
// Why it does not: cores 6.
// Reads the wall clock: reboot 2.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::base::ids::{NodeInstance, ShardCount, ShardIndex, mix};
use crate::base::jobs::JobPlaces;
use crate::base::limits::{CallbackLimits, SHARDS_MAX};
use crate::base::quota::Quotas;
use crate::base::time::Now;
use crate::cluster::view::{MembershipError, View};
use crate::journal::writer::PIECE_BYTES_MAX;
use crate::ring::{
    KernelSupport, Listener, Mailbox, Ring, RingConfig, RingError, Waker, available_cores, now,
    pin_to_core, prefault, probe, raise_open_files_limit, set_timer_slack_ns,
};
use crate::shard::journal::Restored;
use crate::shard::{ShardConfig, Stock};

use crate::store::wheel::Geometry;
use crate::timestamp::oracle::Oracle;

use crate::core::Core;
use crate::core::mesh::{MeshPort, mesh};
use crate::core::peers::hello::{CompleteSince, Identity};
use crate::node::callbacks::lanes::Lanes;
use crate::node::callbacks::listeners::ClusterListeners;
use crate::node::callbacks::policy::Destinations;
use crate::node::clients::service::Service;
use crate::node::clients::table::{Clients, PLAIN_LISTENER, TLS_LISTENER};
use crate::node::commands::{Command, Commander, Commands};
use crate::node::destinations::Duties;
use crate::node::engine::Engine;
use crate::node::files::FileShares;
use crate::node::handshakes::queue::Handshakes;
use crate::node::journal::disk::{Disk, PLACES};
use crate::node::journal::recovery::{self, DAMAGE_REMEDY, JournalError, Opened, Plan};
use crate::node::journal::segments::{self, Backups, Needed, Segments};
use crate::node::memory_ahead::MemoryAhead;
use crate::node::meters::CoreMeters;
use crate::node::owner::Owner;
use crate::node::peers::sockets::PeerSockets;
use crate::node::resolver::threads::Resolver;
use crate::node::settings::NodeSettings;
use crate::node::timestamps::issuer::Issuer;
use crate::node::timestamps::server::{self, TimestampServer};
use crate::node::watchdog::Watchdog;

/// Most connections per core that wait to be accepted.
const BACKLOG: u32 = 4_096;
/// How often a port in use is tried again; below it the pause between two tries.
const PORT_TRIES: u32 = 60;
const PORT_PAUSE: Duration = Duration::from_millis(25);
/// Number of tables of a shard's authorities. With a million authorities each table holds 488.
const AUTHORITY_TABLES: usize = 2_048;

/// Why a node does not start. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ring cannot be made.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The listening socket cannot be opened.
    #[error(
        "cannot listen on {address}: {source}. Is another node running there? \
         Choose another address with {setting}"
    )]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The flag or key that sets the address.
        setting: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The members make no cluster.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The machine does not have a core, or a thread cannot be started.
    #[error("{0}")]
    Cores(String),
}

/// Why a core has ended.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// Its ring failed, or the disk under its journal.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Its journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A running node. Dropping the handle without [`NodeHandle::stop`] leaves the threads running.
pub struct NodeHandle {
    /// The address on which all cores listen, with the port that was taken when 0 was asked for. No
    /// core listens there unless [`NodeSettings::opens_listen`].
    pub address: SocketAddr,
    /// The address on which all cores listen for clients that speak TLS, if there is one.
    pub tls_address: Option<SocketAddr>,
    /// The address on which all cores listen for timestamps, if there is one.
    pub timestamp_address: Option<SocketAddr>,
    /// The address on which all cores listen for clients of timestamps that speak TLS, if there is
    /// one.
    pub timestamp_tls_address: Option<SocketAddr>,
    /// The meters of the cores, in shard order.
    pub meters: Arc<[CoreMeters]>,
    /// The CPU cores that threads are pinned to, in shard order; empty when they are not pinned.
    pub cores: Vec<usize>,
    /// What the kernel offers.
    pub kernel: KernelSupport,
    /// How the files that the process may open are shared out.
    pub files: FileShares,
    /// The cluster that the node was started with. The next view is built on this one, later views
    /// each on the one before.
    pub view: Arc<View>,
    /// The oracle from which the cores take timestamps, if they serve any. It hands out nothing
    /// before a keeper begins.
    pub oracle: Option<Arc<Oracle>>,
    commands: Vec<Commands>,
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<Result<(), CoreError>>>,
    /// Asks for backups of the journal, if the node has one.
    pub backups: Option<Backups>,
    /// The thread that makes segments, if the node has a journal.
    segments: Option<JoinHandle<()>>,
    /// The thread that takes memory ahead and gives it back.
    memory: JoinHandle<()>,
}

impl NodeHandle {
    /// Gives a command to every core. Each core obeys in its next turn.
    pub fn command(&self, command: &Command) {
        self.commander().command(command);
    }

    /// Returns an object that gives commands to the cores without the handle.
    pub fn commander(&self) -> Commander {
        Commander::of(&self.commands, &self.wakers)
    }

    /// Begins an orderly stop: no new connection, no new work; running callbacks finish (at most 2
    /// s). Returns at once.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Waits until every core has stopped. `Err` tells which cores failed and why.
    pub fn join(self) -> Result<(), String> {
        let mut failures = Vec::new();
        for (shard, thread) in self.threads.into_iter().enumerate() {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failures.push(format!("core of shard {shard}: {error}")),
                Err(panic) => failures.push(format!("core of shard {shard}: {}", bug(&*panic))),
            }
        }
        self.stop.store(true, Relaxed);
        if let Err(panic) = self.memory.join() {
            failures.push(format!("the thread that takes memory ahead: {}", bug(&*panic)));
        }
        if let Some(Err(panic)) = self.segments.map(JoinHandle::join) {
            failures.push(format!("the thread that makes segments: {}", bug(&*panic)));
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// Returns whether a core has ended without being asked to: its disk failed, or an invariant is
    /// broken.
    pub fn has_failed(&self) -> bool {
        !self.stop.load(Relaxed) && self.threads.iter().any(JoinHandle::is_finished)
    }
}

/// What a thread says that has panicked. A core that ends otherwise says what its operator can do.
fn bug(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a broken invariant");
    format!("{text}. This is a bug in Chronos; please report it with the lines logged before")
}

/// What a core's thread tells the starter once its ring stands.
type Ready = (usize, Result<(Mailbox, Waker), RingError>);

/// What the starter tells a core's thread when all rings stand.
struct Go {
    mailboxes: Arc<[Mailbox]>,
    resolver: Resolver,
    segments: Option<Segments>,
    addresses: Addresses,
}

/// The listeners of one core.
#[derive(Default)]
struct Listeners {
    timers: Option<Listener>,
    tls: Option<Listener>,
    timestamps: Option<Listener>,
    timestamps_tls: Option<Listener>,
}

impl Listeners {
    /// Begins to accept.
    fn open(self, ring: &mut Ring) {
        let of = |listener: Option<Listener>, owner: Owner| listener.map(|it| (it, owner));
        let all = [
            of(self.timers, Owner::Client(PLAIN_LISTENER)),
            of(self.tls, Owner::Client(TLS_LISTENER)),
            of(self.timestamps, Owner::Timestamp(server::PLAIN_LISTENER)),
            of(self.timestamps_tls, Owner::Timestamp(server::TLS_LISTENER)),
        ];
        for (listener, owner) in all.into_iter().flatten() {
            ring.listen_as(listener, owner.to_bits());
        }
    }
}

/// What a core's thread is started with.
struct Seat {
    own: usize,
    core: Option<usize>,
    settings: Arc<NodeSettings>,
    /// Most callback connections of the core.
    connections_max: u32,
    shards: ShardCount,
    listeners: Listeners,
    oracle: Option<Arc<Oracle>>,
    mesh: MeshPort,
    meters: Arc<[CoreMeters]>,
    stop: Arc<AtomicBool>,
    view: Arc<View>,
    identity: Identity,
    stock: Stock,
    job_places: Arc<JobPlaces>,
    journal: Option<SeatJournal>,
    commands: Commands,
    ready: Sender<Ready>,
    go: Receiver<Go>,
}

/// What a core needs for its journal.
#[derive(Clone)]
struct SeatJournal {
    plan: Arc<Plan>,
    /// Where the cores wait until each has read its journal.
    all_read: Arc<Barrier>,
}

/// Starts a node: probes the kernel, opens the listeners, starts and pins one thread per shard.
/// Returns when all cores serve.
pub fn start(settings: &NodeSettings) -> Result<NodeHandle, StartError> {
    let view = Arc::new(view_of(settings)?);
    let (kernel, placement) = (probe()?, placement(settings)?);
    let files = FileShares::of(raise_open_files_limit(), placement.len(), settings);
    let shards = ShardCount::new(placement.len() as u16);
    let opened = open_journal(settings, shards)?;
    let (addresses, listeners) = listen_all(settings, placement.len())?;
    let oracle = settings.timestamp.as_ref().map(|_| Arc::<Oracle>::default());
    let meters: Arc<[_]> = placement.iter().map(|_| CoreMeters::default()).collect();
    let journal = opened.as_ref().map(|opened| SeatJournal::of(opened, &meters));
    let (settings, stop) = (Arc::new(files.restricted(settings)), Arc::<AtomicBool>::default());
    let (ready, all_ready) = channel();
    let (mut threads, mut gos) = (Vec::new(), Vec::new());
    let ports = mesh(shards, settings.limits.mesh_queue_max);
    let commands: Vec<_> = placement.iter().map(|_| Commands::empty()).collect();
    let ahead = MemoryAhead::new(placement.len(), &settings);
    let (identity, job_places) = (identity(&settings), Arc::<JobPlaces>::default());
    for (own, (listeners, mesh)) in listeners.into_iter().zip(ports).enumerate() {
        let (go, wait_for_go) = channel();
        gos.push(go);
        let seat = Seat {
            own,
            core: placement[own],
            settings: settings.clone(),
            connections_max: files.callbacks_per_core,
            shards,
            listeners,
            oracle: oracle.clone(),
            mesh,
            meters: meters.clone(),
            stop: stop.clone(),
            view: view.clone(),
            identity: identity.clone(),
            stock: ahead.stocks[own].clone(),
            job_places: job_places.clone(),
            journal: journal.clone(),
            commands: commands[own].clone(),
            ready: ready.clone(),
            go: wait_for_go,
        };
        threads.push(seat.start()?);
    }
    drop(ready);
    let (mailboxes, wakers) = gather(placement.len(), &all_ready)?;
    let resolvers = Resolver::start(wakers.clone(), files.lookups, settings.static_names.clone());
    let resolvers = resolvers.map_err(not_started("the resolver"))?;
    let (ends, maker) = start_segments(opened, &wakers)?;
    let (backups, segments) = maker.unzip();
    tell_to_go(&gos, &mailboxes, (resolvers, ends), addresses);
    let memory = ahead.start(stop.clone()).map_err(not_started("the taker of memory"))?;
    Ok(NodeHandle {
        address: addresses.timers,
        tls_address: addresses.tls,
        timestamp_address: addresses.timestamps,
        timestamp_tls_address: addresses.timestamps_tls,
        meters,
        cores: placement.into_iter().flatten().collect(),
        kernel,
        files,
        view,
        oracle,
        commands,
        stop,
        wakers,
        threads,
        backups,
        segments,
        memory,
    })
}

/// The cluster that the node starts with.
fn view_of(settings: &NodeSettings) -> Result<View, MembershipError> {
    match &settings.membership {
        Some(membership) => View::build(None, membership),
        None => Ok(View::alone(&settings.name)),
    }
}

/// Tells the cores' threads that all rings stand.
fn tell_to_go(
    gos: &[Sender<Go>],
    mailboxes: &Arc<[Mailbox]>,
    (resolvers, ends): (Vec<Resolver>, Vec<Option<Segments>>),
    addresses: Addresses,
) {
    for ((go, resolver), segments) in gos.iter().zip(resolvers).zip(ends) {
        let mailboxes = mailboxes.clone();
        // `has_failed` tells of a thread that is gone.
        let _ = go.send(Go { mailboxes, resolver, segments, addresses });
    }
}

fn open_journal(
    settings: &NodeSettings,
    shards: ShardCount,
) -> Result<Option<Opened>, JournalError> {
    let Some(path) = settings.journal.directory().filter(|_| settings.serves_timers) else {
        warn_of_unread_journal(settings);
        return Ok(None);
    };
    recovery::open(path, &settings.journal, &settings.name, shards.get(), now()).map(Some)
}

/// Says that a journal is there and not read.
fn warn_of_unread_journal(settings: &NodeSettings) {
    let unread = settings.journal.data_dir.as_ref();
    if let Some(path) = unread.filter(|path| path.join("node.toml").exists()) {
        warn!(
            "{} has a journal, and mode off does not read it: this node starts without those \
             timers. A later start that reads it brings them back, also those that end or are \
             deleted until then. Remove the directory if nobody wants them",
            path.display()
        );
    }
}

/// The cores' ends of the thread that makes segments, one for each core, and the thread.
type SegmentMaker = (Vec<Option<Segments>>, Option<(Backups, JoinHandle<()>)>);

/// Starts the thread that makes segments, if there is a journal.
fn start_segments(opened: Option<Opened>, wakers: &[Waker]) -> Result<SegmentMaker, StartError> {
    let Some(Opened { data, present, older, .. }) = opened else {
        return Ok((wakers.iter().map(|_| None).collect(), None));
    };
    let started = segments::start(data, present, older, wakers.to_vec());
    let (ends, backups, maker) = started.map_err(not_started("the maker of segments"))?;
    Ok((ends.into_iter().map(Some).collect(), Some((backups, maker))))
}

fn not_started(what: &str) -> impl Fn(std::io::Error) -> StartError {
    move |error| StartError::Cores(format!("cannot start {what}: {error}"))
}

/// Returns another identity for each process, even for one that starts within the same millisecond.
fn identity(settings: &NodeSettings) -> Identity {
    Identity {
        incarnation: unguessable() | 1,
        accepts_strangers: settings.accept_strangers,
        complete_since: CompleteSince::default(),
    }
}

/// Returns a number that differs between processes and that nobody outside knows.
fn unguessable() -> u64 {
    mix(now().mono.0 ^ now().wall.0.rotate_left(32) ^ u64::from(std::process::id()))
}

/// Returns the CPU core that each shard is pinned to; `None` when threads are not pinned.
fn placement(settings: &NodeSettings) -> Result<Vec<Option<usize>>, StartError> {
    let available = available_cores()
        .map_err(|error| StartError::Cores(format!("cannot ask for the cores: {error}")))?;
    let cores = settings.cores.as_ref().unwrap_or(&available);
    if let Some(absent) = cores.iter().find(|core| !available.contains(core)) {
        return Err(StartError::Cores(format!(
            "core {absent} cannot be used: this process may run on {available:?}. \
             Choose among them with --cores or [node] cores"
        )));
    }
    let shards = settings.shards.map_or(cores.len(), usize::from);
    if shards == 0 || shards > usize::from(SHARDS_MAX) {
        return Err(StartError::Cores(format!(
            "{shards} shards cannot be run: expected 1 to {SHARDS_MAX}. \
             Choose with --cores or --shards"
        )));
    }
    Ok((0..shards).map(|shard| settings.pin.then(|| cores[shard % cores.len()])).collect())
}

/// Where all cores listen.
#[derive(Clone, Copy)]
struct Addresses {
    timers: SocketAddr,
    tls: Option<SocketAddr>,
    timestamps: Option<SocketAddr>,
    timestamps_tls: Option<SocketAddr>,
}

/// Opens all listeners. Returns the addresses, and the listeners of each core.
fn listen_all(
    settings: &NodeSettings,
    count: usize,
) -> Result<(Addresses, Vec<Listeners>), StartError> {
    let mut all: Vec<_> = (0..count).map(|_| Listeners::default()).collect();
    let mut addresses =
        Addresses { timers: settings.listen, tls: None, timestamps: None, timestamps_tls: None };
    if settings.opens_listen() {
        let setting = "--listen or [node] listen";
        let (bound, listeners) = listen(settings.listen, setting, count)?;
        addresses.timers = bound;
        all.iter_mut().zip(listeners).for_each(|(core, it)| core.timers = Some(it));
    }
    let tls = settings.tls.as_ref().filter(|_| settings.serves_timers);
    if let Some(address) = tls.and_then(|tls| tls.listen) {
        let (bound, listeners) = listen(address, "[node] listen_tls", count)?;
        addresses.tls = Some(bound);
        all.iter_mut().zip(listeners).for_each(|(core, it)| core.tls = Some(it));
    }
    let timestamp = settings.timestamp.as_ref();
    if let Some(address) = timestamp.and_then(|timestamp| timestamp.listen) {
        let (bound, listeners) = listen(address, "[timestamp] listen", count)?;
        addresses.timestamps = Some(bound);
        all.iter_mut().zip(listeners).for_each(|(core, it)| core.timestamps = Some(it));
    }
    let timestamp = timestamp.filter(|_| settings.tls.is_some());
    if let Some(address) = timestamp.and_then(|timestamp| timestamp.listen_tls) {
        let (bound, listeners) = listen(address, "[timestamp] listen_tls", count)?;
        addresses.timestamps_tls = Some(bound);
        all.iter_mut().zip(listeners).for_each(|(core, it)| core.timestamps_tls = Some(it));
    }
    Ok((addresses, all))
}

/// Opens one listener per core on the same address. A first bind without sharing tells whether
/// another process has the port.
fn listen(
    wanted: SocketAddr,
    setting: &'static str,
    count: usize,
) -> Result<(SocketAddr, Vec<Listener>), StartError> {
    let failed = |source| StartError::Listen { address: wanted, setting, source };
    let mut address = wanted;
    if wanted.port() != 0 {
        wait_until_free(wanted).map_err(failed)?;
    }
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let listener = Listener::bind(address, BACKLOG).map_err(failed)?;
        address = listener.local_address();
        listeners.push(listener);
    }
    Ok((address, listeners))
}

/// Waits until a port is free. The port of a process that has just exited stays bound for some
/// milliseconds, until the kernel has torn the rings of that process down.
fn wait_until_free(address: SocketAddr) -> std::io::Result<()> {
    for _ in 0..PORT_TRIES {
        if Listener::check_free(address).is_ok() {
            return Ok(());
        }
        thread::sleep(PORT_PAUSE);
    }
    Listener::check_free(address)
}

/// Waits until every core's ring stands.
fn gather(
    count: usize,
    ready: &Receiver<Ready>,
) -> Result<(Arc<[Mailbox]>, Vec<Waker>), StartError> {
    let mut rings: Vec<Option<(Mailbox, Waker)>> = vec![None; count];
    for _ in 0..count {
        let (own, ring) = ready
            .recv()
            .map_err(|_| StartError::Cores("a core's thread ended while starting".into()))?;
        rings[own] = Some(ring?);
    }
    let rings: Vec<_> = rings.into_iter().flatten().collect();
    let mailboxes = rings.iter().map(|(mailbox, _)| *mailbox).collect();
    Ok((mailboxes, rings.into_iter().map(|(_, waker)| waker).collect()))
}

impl SeatJournal {
    /// What all cores need.
    fn of(opened: &Opened, meters: &[CoreMeters]) -> Self {
        // Nobody may find the node ready before the cores have begun.
        meters.iter().for_each(|core| core.journal_recovering.set(1));
        let all_read = Arc::new(Barrier::new(meters.len()));
        Self { plan: opened.plan.clone(), all_read }
    }

    /// Reads the journal of a core, and waits until all cores have read theirs.
    fn read(
        &self,
        own: usize,
        core: &mut Core,
        began: Now,
        meters: &CoreMeters,
        segments: &Segments,
    ) -> Result<(), JournalError> {
        let recovered = self.plan.recover(core, ShardIndex(own as u16), (began, &now), meters);
        core.note_complete();
        // A core that fails must not keep the others waiting.
        self.all_read.wait();
        meters.journal_recovering.set(0);
        let recovered = recovered?;
        segments.keep_only(Needed {
            used: recovered.used,
            damaged: recovered.damaged,
            is_older_damaged: recovered.is_older_damaged,
        });
        let seconds = f64::from((now().mono.since_ns(began.mono) / 1_000_000) as u32) / 1e3;
        let Restored { timers, overdue, left_out, .. } = recovered.restored;
        let bytes = recovered.bytes;
        info!(
            shard = own,
            timers, overdue, left_out, bytes, seconds, "journal: the timers of this shard are back"
        );
        for what in &recovered.damage {
            error!("journal of shard {own}: {what}");
        }
        if !recovered.damage.is_empty() {
            error!("journal of shard {own} is damaged. {DAMAGE_REMEDY}");
        }
        Ok(())
    }
}

impl Seat {
    /// Starts the core's thread.
    fn start(self) -> Result<JoinHandle<Result<(), CoreError>>, StartError> {
        let own = self.own;
        let thread = thread::Builder::new().name(format!("chronos-{own}"));
        thread.spawn(move || self.run()).map_err(|error| {
            StartError::Cores(format!("cannot start the thread of shard {own}: {error}"))
        })
    }

    /// Runs the core on its thread until the core stops.
    fn run(self) -> Result<(), CoreError> {
        let mut ring = match self.make_ring() {
            Ok(ring) => ring,
            Err(error) => {
                // A starter that hears this gives the node up. A starter that is gone has given it
                // up already.
                let _ = self.ready.send((self.own, Err(error)));
                return Ok(());
            }
        };
        let _ = self.ready.send((self.own, Ok((ring.mailbox(), ring.waker()))));
        let Ok(go) = self.go.recv() else { return Ok(()) };
        let Go { mailboxes, resolver, segments, addresses } = go;
        let (listen, settings) = (addresses.timers, &self.settings);
        let wall = self.journal.as_ref().map(|journal| journal.plan.wall);
        let began = wall.map_or_else(now, |wall| wall.raise(now()));
        let config = self.shard_config();
        let mut core = Core::with_identity(config, self.mesh, self.identity, began);
        core.shard_mut().set_quotas(quotas_of(settings));
        core.set_job_places(Arc::clone(&self.job_places));
        if let (Some(journal), Some(segments)) = (&self.journal, &segments) {
            journal.read(self.own, &mut core, began, &self.meters[self.own], segments)?;
        }
        let began = wall.map_or_else(now, |wall| wall.raise(now()));
        core.begin(began);
        let own = ShardIndex(self.own as u16);
        let mut service = Service::new(&settings.limits, settings.accept_strangers);
        service.guard = settings.guard.clone();
        service.tokens.clone_from(&settings.tokens);
        service.timestamp_asks = self.oracle.as_ref().map(|_| Vec::new());
        self.listeners.open(&mut ring);
        let mut clients = Clients::new(service, own, &settings.limits, began.mono);
        clients.handshakes = Handshakes::new(settings.tls.as_ref());
        clients.set_peer_tls(settings.peer_tls.as_ref());
        clients.takes_plain = settings.plain_clients;
        let timestamp = settings.timestamp.clone().unwrap_or_default();
        let issuer = Issuer::new(self.oracle.unwrap_or_default());
        let mut reserved = settings.reserved.clone();
        reserved.own.extend(settings.serves_timers.then_some(listen));
        reserved.own.extend(addresses.tls);
        let listeners = ClusterListeners::new(reserved, listen.port(), &self.view);
        let open_max = self.connections_max;
        let callbacks = Lanes::new(resolver.clone(), &settings.callbacks, open_max, began.mono);
        let mut engine = Engine {
            core,
            ring,
            completions: Vec::new(),
            clients,
            timestamps: TimestampServer::new(&timestamp, issuer, began.mono),
            callbacks,
            peers: PeerSockets::new(resolver.clone(), listen, settings),
            resolver,
            commands: self.commands,
            mailboxes,
            meters: self.meters,
            own: self.own,
            stop: self.stop,
            duties: Duties::default(),
            limits: settings.limits.clone(),
            disk: segments.zip(wall).map(|(segments, wall)| Disk::new(segments, wall)),
            failed: None,
            watchdog: Watchdog::default(),
            spin_ns: u64::from(settings.spin_us) * 1_000,
        };
        engine.core.set_flow_rules(began, Arc::clone(&settings.destinations));
        engine.callbacks.signer.clone_from(&settings.signer);
        engine.callbacks.set_connector(&mut engine.ring, settings.connector.clone());
        engine.set_destinations(Destinations { listeners, rules: settings.rules.clone() });
        Ok(engine.run()?)
    }

    /// Pins this thread, then makes the ring. The thread that will use a ring must make it.
    fn make_ring(&self) -> Result<Ring, RingError> {
        let failed = |what, source, remedy: &str| RingError::Kernel {
            what,
            source,
            remedy: remedy.to_owned(),
        };
        if let Some(core) = self.core {
            pin_to_core(core).map_err(|source| {
                failed(
                    "pinning a thread",
                    source,
                    "Start with --no-pin, or choose other cores with --cores",
                )
            })?;
        }
        set_timer_slack_ns(1).map_err(|source| {
            failed(
                "setting the timer slack",
                source,
                "Allow prctl(PR_SET_TIMERSLACK) to this process",
            )
        })?;
        prefault(self.settings.prefault_bytes / u64::from(self.shards.get()));
        let mut ring = Ring::new(&RingConfig::default())?;
        if self.journal.is_some() {
            ring.prepare_disk(PLACES, PIECE_BYTES_MAX)?;
        }
        Ok(ring)
    }

    fn shard_config(&self) -> ShardConfig {
        let settings = &self.settings;
        let shards = u64::from(self.shards.get());
        ShardConfig {
            own: ShardIndex(self.own as u16),
            shards: self.shards,
            instance: NodeInstance::new(settings.instance_id, settings.deployment_id),
            geometry: Geometry::PRODUCTION,
            authority_tables: AUTHORITY_TABLES,
            stock: self.stock.clone(),
            // A seed that nobody outside knows, so that nobody outside knows how ids and hosts
            // hash.
            hash_seed: unguessable(),
            records_max: settings.limits.timers_max.div_ceil(shards),
            store_bytes_max: settings.limits.store_bytes_max.div_ceil(shards),
            pops_per_turn_max: settings.limits.pops_per_turn_max as usize,
            callbacks: CallbackLimits {
                places_per_core_max: self.connections_max,
                ..settings.callbacks.clone()
            },
            tags_max: settings.limits.tags_max as usize,
            cluster: settings.cluster.clone(),
            view: self.view.clone(),
        }
    }
}

/// The quotas of the tokens at the start.
fn quotas_of(settings: &NodeSettings) -> Arc<Quotas> {
    let quotas = settings.tokens.as_ref().map(|tokens| Arc::clone(tokens.quotas()));
    quotas.unwrap_or_default()
}
