//! A node's life as its operator sees it: start, signals, failure, stop. The calling thread becomes
//! the control thread and runs a single-threaded runtime. The cores never wait for it.

// May panic: expectations 1.
// Why it does not: configured 1.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{error, info, warn};

use super::log;
use super::signals::{NodeEvent, Signals};
use super::snmp::{remaining, subagent};
use crate::control::admin::alarm_board::AlarmBoard;
use crate::control::admin::alarms;
use crate::control::admin::api::{self, AdminState};
use crate::control::admin::doors::{AdminDoors, DoorError, DoorPlan};
use crate::control::admin::facts::{self, Facts, SharedConfiguration};
use crate::control::admin::guard::SharedTokens;
use crate::control::admin::listener::SharedAcceptor;
use crate::control::admin::node_view::{NodeState, NodeView};
use crate::control::cluster::desk::Source;
use crate::control::cluster::peer_news;
use crate::control::cluster::site_probe::SiteProbe;
use crate::control::config::files::ConfigFiles;
use crate::control::config::reload::{self, Reloader};
use crate::control::config::settings::Config;
use crate::control::config::timestamp::Coordination;
use crate::control::destinations::desk::DestinationDesk;
use crate::control::http_client::{is_over_tls, place_in};
use crate::control::long_work;
use crate::control::names::Names;
use crate::control::originals::reader::Originals;
use crate::control::recovery_progress;
use crate::control::tags::board::{Members, SharedConnector};
use crate::control::tenants::{self, PresentTokens};
use crate::control::timestamp::keeper::{Keeper, Prepared, TimestampError};
use crate::node::callbacks::listeners::Reserved;
use crate::node::commands::{Command, Commander};
use crate::node::resolver::statics::StaticNames;
use crate::node::settings::PeerTls;
use crate::node::{self, NodeHandle, StartError};
use crate::tls::connector::{ClientMaterial, Connector, Trust};

/// How often the files that the configuration names are looked at. A change is taken after one more
/// look, in which nothing has changed. Costs a call of the kernel for each file.
const LOOK_AT_FILES_EVERY: Duration = Duration::from_secs(1);
/// Longest orderly stop. A stop takes at most 2 s (running callbacks finish); after five times as
/// long a core hangs.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Exit code after a second signal: 128 + SIGINT, as shells expect.
const EXIT_AT_ONCE: i32 = 130;

/// Why a node ended badly. The text says what to do; the exit code is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The control thread has no runtime or no signals.
    #[error(
        "the control thread cannot start: {0}. Check the limits on open files and threads (ulimit \
         -n, -u)"
    )]
    Control(std::io::Error),
    /// The admin API has no listener.
    #[error(transparent)]
    Admin(#[from] DoorError),
    /// The cores or their listeners cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The keeper of timestamps cannot start.
    #[error(transparent)]
    Timestamp(#[from] TimestampError),
    /// The keeper of timestamps ended on a broken invariant, in a process that serves nothing else.
    #[error(
        "the keeper of timestamps has failed. This is a bug in Chronos; please report it with the \
         lines logged before"
    )]
    Keeper,
    /// A core ended by itself. The text says why, and what to do.
    #[error("a core has failed: {0}")]
    Core(String),
    /// A core did not stop within the limit.
    #[error("the cores did not stop within {STOP_LIMIT:?}; the process ends without them")]
    Hangs,
}

/// The control thread, before it has a node.
pub(super) struct Control {
    runtime: Runtime,
    signals: Signals,
}

impl Control {
    /// Installs the handlers of signals. Called before anything tells others that this process is
    /// there: who knows its number may send signals. A signal that arrives during the start waits
    /// until the node runs.
    pub(super) fn begin() -> Result<Self, ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServeError::Control)?;
        let signals = {
            let _within = runtime.enter();
            Signals::install().map_err(ServeError::Control)?
        };
        Ok(Self { runtime, signals })
    }

    /// Runs a node until a signal stops it. `Ok` is an orderly stop. A second signal ends the
    /// process at once with code 130. `files` are read again on SIGHUP. `log_file` is the log file
    /// of a daemon; it is opened again on SIGHUP. `ready` is called once all cores serve.
    pub(super) fn serve(
        self,
        config: &Config,
        files: ConfigFiles,
        log_file: Option<&Path>,
        ready: impl FnOnce(),
    ) -> Result<(), ServeError> {
        let Self { runtime, signals } = self;
        let end = runtime.block_on(live(config, files, signals, log_file, ready));
        // A thread of the runtime may still wait for a core that hangs. Do not wait for that
        // thread.
        runtime.shutdown_background();
        end
    }
}

async fn live(
    config: &Config,
    files: ConfigFiles,
    mut signals: Signals,
    log_file: Option<&Path>,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let doors = open_doors(config).await?;
    // Problems of timestamps are told before anything listens.
    let timestamps = &config.timestamp;
    let prepared = timestamps.enabled.then(|| Prepared::new(timestamps)).transpose()?;
    let mut settings = config.node.clone();
    settings.reserved = reserved(config, &doors);
    let desk = DestinationDesk::open(config);
    settings.destinations = desk.first_table(is_alone(config));
    let node = node::start(&settings)?;
    let mut keeper = start_keeper(prepared, &node)?;
    let mut view = NodeView::of(&node);
    view.destinations = Arc::new(desk.with_cores(&node));
    view.timestamps = keeper.as_ref().map(|keeper| Arc::clone(keeper.board()));
    announce(config, (&view, &doors), node.files.shortage(&config.node));
    let (meters, admins) = (Arc::clone(&node.meters), config.admin.cluster.clone());
    let (leads, names) = Names::new(Arc::clone(&config.node.static_names));
    let (originals, mut commands) =
        Originals::start(node.view.clone(), meters, node.address.port(), admins, names.clone());
    let tokens = SharedTokens::default();
    tokens.set(config.node.tokens.clone());
    let (present, tenants) = watch::channel(config.node.tokens.clone());
    let acceptor = config.node.tls.as_ref();
    let acceptor = acceptor.map(|tls| SharedAcceptor::new(Arc::clone(&tls.acceptor)));
    let connector = SharedConnector::new(connector_of(config, config.node.peer_tls.as_ref()));
    let told = Told {
        tokens: tokens.clone(),
        present,
        acceptor: acceptor.clone(),
        connector: connector.clone(),
        leads,
        destinations: Arc::clone(&view.destinations),
        configuration: SharedConfiguration::new(facts::configuration(config)),
    };
    let shown = (Facts::of(config), told.configuration.clone());
    let board = AlarmBoard::default();
    view.cluster.connect(source(config, files, (&node, told), (originals, names.clone())));
    let addresses = doors.addresses();
    if !addresses.is_empty() {
        let state = admin_state(config, &view, tokens).with(shown.0, shown.1, board.clone());
        state.set_members(Members { addresses: others(config, &addresses), connector, names });
        tokio::spawn(api::serve(doors, (acceptor, node.files.admin), state));
    }
    tokio::spawn(tenants::watch(tenants));
    spawn_watchers(&view, board);
    spawn_subagent(config, &view);
    if let Some(keeper) = &mut keeper {
        keeper.begun().await;
    }
    ready();
    let serves_timers = config.node.serves_timers;
    let mut running = Running { node, keeper, serves_timers, view, log_file };
    let failure = running.until_end(&mut signals, &mut commands).await;
    let Running { node, keeper, view, .. } = running;
    view.set_state(if failure.is_some() { NodeState::Failed } else { NodeState::Stopping });
    if let Some(keeper) = keeper {
        // The keeper stops first: another server takes over while this node stops.
        keeper.stop().await;
    }
    stop(node, &mut signals, failure).await?;
    tell_what_becomes_of_timers(config, &view);
    info!("stopped");
    Ok(())
}

async fn open_doors(config: &Config) -> Result<AdminDoors, DoorError> {
    let plan = DoorPlan {
        plain: config.admin.enabled.then_some(config.admin.listen),
        secure: config.admin.listen_tls,
    };
    AdminDoors::open(plan).await
}

fn admin_state(config: &Config, view: &NodeView, tokens: SharedTokens) -> AdminState {
    AdminState::of(view.clone(), config.node.limits.tags_max, &config.admin.hosts, tokens)
}

/// Begins what looks at the node from time to time.
fn spawn_watchers(view: &NodeView, alarm_board: AlarmBoard) {
    let desk = Arc::clone(&view.destinations);
    tokio::spawn(async move { desk.listen().await });
    tokio::spawn(alarms::watch(view.meters.clone(), alarm_board));
    tokio::spawn(peer_news::watch(view.cluster.clone(), view.meters.clone()));
    tokio::spawn(recovery_progress::tell(view.meters.clone()));
    tokio::spawn(long_work::watch(view.cluster.clone(), view.meters.clone()));
}

/// Tells the machine's SNMP daemon how much of a resynchronisation is left, where one is named.
fn spawn_subagent(config: &Config, view: &NodeView) {
    let socket = config.admin.agentx_socket.clone();
    if socket.is_empty() || !config.node.serves_timers {
        return;
    }
    // Nobody is told that nothing is left before somebody has looked.
    let remaining = Arc::new(AtomicU32::new(1));
    let (cluster, meters) = (view.cluster.clone(), view.meters.clone());
    tokio::spawn(remaining::watch(cluster, meters, Arc::clone(&remaining)));
    tokio::spawn(subagent::serve(socket, remaining));
}

/// A node that serves.
struct Running<'a> {
    node: NodeHandle,
    keeper: Option<Keeper>,
    serves_timers: bool,
    view: NodeView,
    log_file: Option<&'a Path>,
}

impl Running<'_> {
    /// Answers signals and events until the node should stop. `Some(error)`: the node stops because
    /// something has failed.
    async fn until_end(
        &mut self,
        signals: &mut Signals,
        commands: &mut Receiver<Command>,
    ) -> Option<ServeError> {
        loop {
            let asked = tokio::select! {
                Some(command) = commands.recv() => {
                    self.node.command(&command);
                    continue;
                }
                () = failed(&mut self.keeper) => {
                    self.keeper = None;
                    // Timers go on without the keeper.
                    if self.serves_timers {
                        continue;
                    }
                    NodeEvent::KeeperFailed
                }
                asked = signals.next(&self.node) => asked,
            };
            match asked {
                NodeEvent::Stop => return None,
                NodeEvent::Failed => {
                    return Some(ServeError::Core(
                        "it ended without having been asked to. This is a bug in Chronos; please \
                         report it with the lines logged before"
                            .into(),
                    ));
                }
                NodeEvent::KeeperFailed => return Some(ServeError::Keeper),
                NodeEvent::Reload => {
                    info!("SIGHUP: reading the configuration again");
                    reopen(self.log_file);
                    // The error has been logged, and the admin API shows it.
                    let _ = self.view.cluster.reload();
                }
                NodeEvent::Resynchronise => {
                    info!("SIGUSR1: comparing all timers with the other members");
                    self.view.cluster.resynchronise();
                }
                NodeEvent::Names => {
                    info!("SIGUSR2: reading the file of names again");
                    self.view.cluster.read_names();
                }
            }
        }
    }
}

/// Starts the keeper of timestamps. Returns `None` where timestamps are not served.
fn start_keeper(
    prepared: Option<Prepared>,
    node: &NodeHandle,
) -> Result<Option<Keeper>, TimestampError> {
    let Some(prepared) = prepared else { return Ok(None) };
    let oracle = node.oracle.clone().expect("the node was told to serve timestamps");
    let commander = node.commander();
    let tell_master = move |master| commander.command(&Command::TimestampMaster(master));
    Keeper::start(prepared, oracle, Box::new(tell_master)).map(Some)
}

/// Returns when the keeper has ended by itself. Never returns if there is no keeper.
async fn failed(keeper: &mut Option<Keeper>) {
    match keeper {
        Some(keeper) => keeper.failed().await,
        None => std::future::pending().await,
    }
}

/// Makes the source of the admin API: it can change the members, and read the configuration again
/// as SIGHUP does.
fn source(
    config: &Config,
    files: ConfigFiles,
    (node, told): (&NodeHandle, Told),
    (originals, names): (Originals, Names),
) -> Source {
    let (file, sites_file) = (files.members(), files.sites());
    let reloader = Arc::new(Mutex::new(Reloader::new(files, config.clone(), node.view.clone())));
    let commander = node.commander();
    let (readers, progress) = (originals.clone(), originals.clone());
    let configuration = told.configuration.clone();
    let tell = tell(node.commander(), told);
    tokio::spawn(look_at_files(Arc::clone(&reloader), tell.clone()));
    let asked = Arc::clone(&reloader);
    let probe = move || {
        let reloader = asked.lock().unwrap_or_else(PoisonError::into_inner);
        SiteProbe::of(reloader.config(), reloader.view(), names.clone())
    };
    let (named, tell_names) = (Arc::clone(&reloader), tell.clone());
    let read_names = move || {
        let mut reloader = named.lock().unwrap_or_else(PoisonError::into_inner);
        reloader.read_names();
        tell_names(&mut reloader);
    };
    let reload = move || {
        let mut reloader = reloader.lock().unwrap_or_else(PoisonError::into_inner);
        let view = reloader.reload()?;
        tell(&mut reloader);
        configuration.set(facts::configuration(reloader.config()));
        if let Some(view) = view {
            commander.command(&Command::View(view.clone()));
            readers.set_view(view);
        }
        Ok(reloader.view().clone())
    };
    Source {
        file,
        sites_file,
        probe: Box::new(probe),
        admin_addresses: config.admin.cluster.clone(),
        reload: Box::new(reload),
        read_names: Box::new(read_names),
        originals: Box::new(move || progress.progress()),
        resynchronise: Box::new(move || originals.resynchronise()),
    }
}

/// Who on the control thread is told of what was read.
#[derive(Clone)]
struct Told {
    tokens: SharedTokens,
    present: PresentTokens,
    /// What the admin API accepts connections over TLS with.
    acceptor: Option<SharedAcceptor>,
    /// What the admin APIs of other members are dialled with over TLS.
    connector: SharedConnector,
    /// Where names lead.
    leads: watch::Sender<Arc<StaticNames>>,
    destinations: Arc<DestinationDesk>,
    /// What the admin API shows of the configuration.
    configuration: SharedConfiguration,
}

/// Returns what the admin APIs of other members are dialled with over TLS: as the nodes themselves
/// if these speak TLS with each other, otherwise with the authorities of the system.
fn connector_of(config: &Config, peers: Option<&PeerTls>) -> Option<Arc<Connector>> {
    if let Some(peers) = peers {
        return Some(Arc::clone(&peers.nodes.connector));
    }
    config.admin.cluster.iter().find(|address| is_over_tls(address))?;
    let material = ClientMaterial { trust: Trust::System, identity: None };
    Connector::new(&material).ok().map(Arc::new)
}

/// Makes what tells the cores, and the admin API, of what was read.
fn tell(commander: Commander, told: Told) -> impl Fn(&mut Reloader) + Clone + Send {
    move |reloader| {
        if let Some(rules) = reloader.take_destinations() {
            told.destinations.configure(&rules);
        }
        for command in reloader.take_commands() {
            match (&command, &told.acceptor) {
                (Command::Tokens(read), _) => {
                    told.tokens.set(Some(Arc::clone(read)));
                    told.present.send_replace(Some(Arc::clone(read)));
                }
                (Command::StaticNames(read), _) => drop(told.leads.send_replace(Arc::clone(read))),
                (Command::Acceptor(read), Some(acceptor)) => acceptor.set(Arc::clone(read)),
                (Command::PeerTls(Some(read)), _) => {
                    told.connector.set(Some(Arc::clone(&read.nodes.connector)));
                }
                _ => {}
            }
            commander.command(&command);
        }
    }
}

/// Takes files that have changed, without SIGHUP, as long as the runtime lives.
async fn look_at_files(reloader: Arc<Mutex<Reloader>>, tell: impl Fn(&mut Reloader)) {
    let mut look = interval(LOOK_AT_FILES_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let mut reloader = reloader.lock().unwrap_or_else(PoisonError::into_inner);
        reloader.look_at_files();
        tell(&mut reloader);
    }
}

/// Returns the listeners of the deployment that no callback may reach, beside the listeners for
/// clients.
fn reserved(config: &Config, doors: &AdminDoors) -> Reserved {
    let served = Some(&config.timestamp.served).filter(|_| config.timestamp.enabled);
    let timestamps = served.into_iter().flat_map(|served| [served.listen, served.listen_tls]);
    let named = config.admin.cluster.iter();
    Reserved {
        own: doors.addresses().into_iter().chain(timestamps.flatten()).collect(),
        named: named.map(|address| place_in(address).to_owned()).collect(),
    }
}

/// Returns the admin listeners of the other members.
fn others(config: &Config, own: &[SocketAddr]) -> Vec<String> {
    let own: Vec<String> = own.iter().map(SocketAddr::to_string).collect();
    let is_other = |address: &&String| !own.iter().any(|own| own == place_in(address));
    config.admin.cluster.iter().filter(is_other).cloned().collect()
}

/// Logs what a start is worth.
fn announce(config: &Config, (view, doors): (&NodeView, &AdminDoors), shortage: Option<String>) {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    match config.node.serves_timers {
        true if config.node.plain_clients => {
            info!(version, pid, "clients connect to http://{}", view.address);
        }
        true if config.opens_listen() => {
            info!(version, pid, "nodes alone connect to {}, over TLS", view.address);
        }
        true => info!(version, pid, "nobody connects without TLS"),
        false => info!(version, pid, "timestamps alone: no timers are served"),
    }
    if let Some(address) = view.tls_address {
        info!("over TLS clients connect to https://{address}");
    }
    let shards = view.meters.len();
    let count = if shards == 1 { "1 shard".into() } else { format!("{shards} shards") };
    match view.cores.as_slice() {
        [] => info!(shards, "{count}, threads not pinned"),
        cores => {
            let cores = cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            info!(shards, cores, "{count}, one pinned thread per core");
        }
    }
    let features = view.kernel_features.join(", ");
    info!(release = view.kernel_release, "kernel features in use: {features}");
    announce_admin(config, doors);
    if !is_alone(config) {
        reload::announce(config);
    }
    announce_timestamps(config, view);
    if let Some(shortage) = shortage {
        warn!("{shortage}");
    }
}

fn announce_admin(config: &Config, doors: &AdminDoors) {
    if let Some(address) = doors.secure_address() {
        info!("over TLS the admin API is on https://{address}");
        let is_open = !address.ip().to_canonical().is_loopback();
        if is_open && config.tokens_file.is_empty() {
            warn!(
                "the admin API over TLS takes orders from whoever has a certificate of [tls] \
                 client_ca, if it asks for one at all: set [auth] tokens_file"
            );
        }
    }
    match doors.plain_address() {
        Some(address) => {
            info!("admin API on http://{address}: /healthz /readyz /metrics /status /cluster");
            if !address.ip().to_canonical().is_loopback() {
                warn!("the plain admin API listens beyond loopback: keep others out");
            }
        }
        None if doors.secure_address().is_none() => info!("admin API off"),
        None => {}
    }
}

fn announce_timestamps(config: &Config, view: &NodeView) {
    let timestamps = &config.timestamp;
    let listen = match view.timestamp_address {
        Some(address) => format!("on {address}"),
        None => "over TLS alone".into(),
    };
    if let Some(address) = view.timestamp_tls_address {
        info!("over TLS Thrift clients connect to {address}");
    }
    match timestamps.coordination {
        _ if !timestamps.enabled => {}
        Coordination::File => {
            info!("timestamps for Thrift clients {listen}, bound in {}", timestamps.file);
        }
        Coordination::ZooKeeper => {
            let (quorum, cluster) = (&timestamps.zookeeper_quorum, &timestamps.zookeeper_cluster);
            let advertised = timestamps.advertised();
            info!(
                "timestamps for Thrift clients {listen}, told as {advertised} to {quorum}, \
                 cluster {cluster}"
            );
            let is_here = |address: &str| {
                ["127.", "[::1]", "localhost"].iter().any(|h| address.starts_with(h))
            };
            if is_here(&advertised) && !quorum.split(',').any(is_here) {
                warn!(
                    "clients are told {advertised}, which is no address of this machine for \
                     others; set [timestamp] advertise"
                );
            }
        }
    }
}

fn is_alone(config: &Config) -> bool {
    let members = &config.membership;
    let lists = [&members.nodes, &members.joining, &members.leaving];
    lists.iter().all(|list| list.is_empty()) && members.remote_sites.is_empty()
}

/// Stops the node and waits for its cores. On a further signal, ends the process at once.
async fn stop(
    node: NodeHandle,
    signals: &mut Signals,
    failure: Option<ServeError>,
) -> Result<(), ServeError> {
    log::expect_end();
    info!(
        "stopping: no new work, running callbacks finish (at most 2 s); signal again to end at once"
    );
    node.stop();
    let joined = tokio::task::spawn_blocking(move || node.join());
    tokio::select! {
        joined = timeout(STOP_LIMIT, joined) => match joined {
            Err(_) => Err(ServeError::Hangs),
            Ok(Err(panic)) => Err(ServeError::Core(panic.to_string())),
            Ok(Ok(Err(reason))) => Err(ServeError::Core(reason)),
            Ok(Ok(Ok(()))) => match failure {
                Some(failure) => Err(failure),
                None => Ok(()),
            },
        },
        () = signals.stop_asked() => {
            warn!("second signal: ending at once");
            log::finish();
            std::process::exit(EXIT_AT_ONCE);
        }
    }
}

/// Logs what becomes of the timers that the node held when it stopped.
fn tell_what_becomes_of_timers(config: &Config, view: &NodeView) {
    let timers: u64 = view.meters.iter().map(|core| core.timers.get()).sum();
    let count = if timers == 1 { "1 timer".into() } else { format!("{timers} timers") };
    match config.node.journal.directory() {
        _ if timers == 0 => {}
        Some(directory) => {
            info!(timers, "kept in {}: {count}, for the next start", directory.display());
        }
        None if is_alone(config) => warn!(
            timers,
            "lost: {count}, because this node is alone and keeps none on disk (--data-dir DIR does)"
        ),
        None => info!(
            timers,
            "forgotten here: {count}. The other nodes that hold them pop them; those of \
             replication factor 1 are lost (--data-dir DIR keeps them)"
        ),
    }
}

/// Opens the log file again, so that a file that was moved away is written no further.
fn reopen(log_file: Option<&Path>) {
    if let Some(file) = log_file
        && let Err(problem) = log::send_to(file)
    {
        // Standard error is still the former file.
        error!("cannot log to {}: {problem}; the former file goes on", file.display());
    }
}
