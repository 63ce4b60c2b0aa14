//! The nodes: real processes with files of their own, and the operator's commands.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kit::children::{Tied, command, signal};
use kit::faketime::WrongClock;
use kit::mounts::Mount;
use kit::ports;
use kit::until::until;
use tempfile::TempDir;

use super::client::Client;
use super::network::{Layout, Network};
use super::worlds::{World, Worlds};

/// The place whose disk fills up, and the one whose wall clock is set.
pub const FULL_PLACE: usize = 1;
pub const CLOCK_PLACE: usize = 2;
/// The size of the disk that fills up: room for the four segments of each of two cores, and for two
/// more. With less a node whose segments are all in use cannot make another one to empty them into.
const DISK_MIB: u64 = 700;
/// How long a node may take to start, or to stop in order.
const PATIENCE: Duration = Duration::from_secs(60);

/// All nodes. Dropping the value ends them.
pub struct Nodes {
    folder: Option<TempDir>,
    layout: Layout,
    network: Arc<Network>,
    port: u16,
    admin_port: u16,
    binary: PathBuf,
    tls_port: u16,
    worlds: Worlds,
    /// The disk of [`FULL_PLACE`].
    disk: Option<Mount>,
    /// The wall clock of [`CLOCK_PLACE`].
    clock: Option<WrongClock>,
    processes: Mutex<Vec<Option<Child>>>,
    /// Members that take requests. Clients know these.
    serving: Vec<AtomicBool>,
    /// Nodes to which no client sends requests: they run as a cluster of their own, or are about to
    /// lose what they hold.
    strangers: Vec<AtomicBool>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let mut processes = self.processes.lock().expect("no thread panics with it");
        for process in processes.iter_mut().flatten() {
            // An error means that the process has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Nodes {
    /// Starts the first members. A world for which this machine lacks something is left out, and
    /// a line says so.
    ///
    /// # Errors
    ///
    /// What this machine lacks for several sites.
    pub fn start(binary: PathBuf, worlds: Worlds, layout: Layout) -> Result<Nodes, String> {
        let network = Arc::new(Network::of(layout)?);
        // Nobody else is on the networks of sites.
        let hosts = if layout.has_sites() { vec![network.sinks] } else { network.hosts.clone() };
        let none = || (0..layout.places()).map(|_| AtomicBool::new(false)).collect();
        let folder = tempfile::Builder::new().prefix("chronos-blackbox-").tempdir().expect("room");
        let wants = |world| worlds.has(world);
        let clock = wants(World::Clocks).then(|| WrongClock::right(&folder.path().join("clock")));
        let disk = (wants(World::Disk) && wants(World::Journal))
            .then(|| catch_unwind(|| Mount::tmpfs(DISK_MIB)).ok());
        let mut nodes = Nodes {
            tls_port: ports::free_port(&hosts),
            worlds,
            disk: disk.flatten(),
            clock: clock.flatten(),
            folder: Some(folder),
            layout,
            network,
            port: ports::free_port(&hosts),
            admin_port: ports::free_port(&hosts),
            binary,
            processes: Mutex::new((0..layout.places()).map(|_| None).collect()),
            serving: none(),
            strangers: none(),
        };
        nodes.leave_out(World::Clocks, nodes.clock.is_none(), "faketime is not installed");
        nodes.leave_out(World::Disk, nodes.disk.is_none(), "a mount is not allowed, or no journal");
        if worlds.has(World::Tls) {
            nodes.make_certificates();
        }
        let sites: Vec<_> = (0..layout.sites).map(|site| layout.members_first(site)).collect();
        for members in &sites {
            members.iter().for_each(|place| nodes.write(*place, members, &[]));
        }
        sites.iter().flatten().for_each(|place| nodes.spawn(*place));
        sites.iter().flatten().for_each(|place| nodes.await_ready(*place));
        Ok(nodes)
    }

    /// Returns where the nodes are.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the networks of the sites.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    fn host(&self, place: usize) -> IpAddr {
        self.network.hosts[place]
    }

    fn leave_out(&mut self, world: World, is_lacking: bool, why: &str) {
        if is_lacking && self.worlds.has(world) {
            println!("  without {world:?}: {why}");
            self.worlds = self.worlds.without(world);
        }
    }

    fn make_certificates(&self) {
        let mut made = command(&self.binary);
        made.args(["cluster", "certs", "--out"]).arg(self.path("pki")).env_clear();
        for host in &self.network.hosts {
            made.args(["--node", &host.to_string()]);
        }
        let ended = made.output_tied().expect("the binary runs");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    /// Returns the worlds that this machine has.
    pub fn worlds(&self) -> Worlds {
        self.worlds
    }

    /// Returns the disk that fills up.
    pub fn disk(&self) -> Option<&Mount> {
        self.disk.as_ref()
    }

    /// Returns the wall clock that is set.
    pub fn clock(&self) -> Option<&WrongClock> {
        self.clock.as_ref()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.network.hosts.iter().map(|host| SocketAddr::new(*host, self.port)).collect()
    }

    pub fn admins(&self) -> Vec<SocketAddr> {
        (0..self.layout.places()).map(|place| self.admin(place)).collect()
    }

    fn admin(&self, place: usize) -> SocketAddr {
        SocketAddr::new(self.host(place), self.admin_port)
    }

    pub fn name(&self, place: usize) -> String {
        SocketAddr::new(self.host(place), self.port).to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.as_ref().expect("kept while nodes run").path().join(name)
    }

    fn file(&self, place: usize, what: &str) -> PathBuf {
        self.path(&format!("node{place}.{what}"))
    }

    /// Returns where a node keeps its journal.
    fn data_dir(&self, place: usize) -> PathBuf {
        match &self.disk {
            Some(disk) if place == FULL_PLACE => disk.path.join("data"),
            _ => self.file(place, "data"),
        }
    }

    /// Returns what stands in the sections of the worlds.
    fn sections(&self, place: usize) -> String {
        let mut text = String::new();
        if self.worlds.has(World::Journal) {
            text += &format!("[journal]\ndata_dir = \"{}\"\n\n", self.data_dir(place).display());
        }
        if self.worlds.has(World::Tls) {
            let of = |end| self.path("pki").join(format!("{}.{end}", self.host(place)));
            let (cert, key) = (of("pem"), of("key"));
            text +=
                &format!("[tls]\ncert = \"{}\"\nkey = \"{}\"\n\n", cert.display(), key.display());
        }
        text
    }

    /// Writes the file of a node. Without members the node is a cluster of its own.
    fn write(&self, place: usize, members: &[usize], joining: &[usize]) {
        let list = |of: &dyn Fn(usize) -> String, places: &[usize]| {
            let names: Vec<_> = places.iter().map(|place| format!("\"{}\"", of(*place))).collect();
            names.join(", ")
        };
        let every = self.layout.places_of(self.layout.site(place));
        let mut text = format!(
            "[node]\nlisten = \"{}\"\nshards = 2\npin = false\ninstance_id = {}\n\
             {}[admin]\nlisten = \"{}\"\n\n{}[cluster]\nadmin_addresses = [{}]\n",
            self.name(place),
            place + 1,
            match self.worlds.has(World::Tls) {
                true => format!("listen_tls = \"{}:{}\"\n\n", self.host(place), self.tls_port),
                false => String::new(),
            },
            self.admin(place),
            self.sections(place),
            list(&|place| self.admin(place).to_string(), &every),
        );
        if self.worlds.has(World::Tls) {
            let authority = self.path("pki").join("ca.pem");
            text += &format!("tls = \"required\"\ntls_ca = \"{}\"\n", authority.display());
        }
        if !members.is_empty() {
            text += &format!("nodes = [{}]\n", list(&|place| self.name(place), members));
            text += &format!("joining = [{}]\n", list(&|place| self.name(place), joining));
        }
        if self.layout.has_sites() {
            text += &self.lines_of_sites(self.layout.site(place));
        }
        fs::write(self.file(place, "toml"), text).expect("a file in the run's folder");
    }

    /// Returns what nodes of a site know of the others: two nodes of each.
    fn lines_of_sites(&self, own: usize) -> String {
        let others = (0..self.layout.sites).filter(|site| *site != own);
        let known = others.flat_map(|site| {
            let places = self.layout.places_of(site).into_iter().take(2);
            places.map(move |place| format!("\"site{site}={}\"", self.name(place)))
        });
        let known: Vec<String> = known.collect();
        let known = known.join(", ");
        format!("\n[sites]\nlocal = \"site{own}\"\nremote = [{known}]\nreplicate_across = true\n")
    }

    /// Loses what a node that does not run has on its disk.
    pub fn lose_journal(&self, place: usize) {
        // Without journals there is nothing to lose.
        let _ = fs::remove_dir_all(self.data_dir(place));
    }

    /// Starts a node with the file that it has.
    pub fn spawn(&self, place: usize) {
        let log = File::options().create(true).append(true).open(self.file(place, "log"));
        let log = log.expect("a file in the run's folder");
        let mut words = self.network.starter(place);
        words.push(self.binary.display().to_string());
        let process = command(&words[0])
            .args(&words[1..])
            .arg("--config")
            .arg(self.file(place, "toml"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // The networks of sites are this run's alone.
            .envs(self.layout.has_sites().then_some(("CHRONOS_AUTH_INSECURE_OPEN", "true")))
            .envs(
                self.clock
                    .iter()
                    .filter(|_| place == CLOCK_PLACE)
                    .flat_map(WrongClock::environment),
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn_tied()
            .expect("the binary runs");
        self.processes.lock().expect("no thread panics with it")[place] = Some(process);
    }

    /// Starts a node as a cluster of its own. It is a stranger until [`Nodes::has_joined`].
    pub fn spawn_alone(&self, place: usize) {
        self.strangers[place].store(true, Ordering::SeqCst);
        self.write(place, &[], &[]);
        self.spawn(place);
    }

    /// Starts a node that knows the members that it joins, before these know the node.
    pub fn spawn_joining(&self, place: usize, members: &[usize]) {
        self.write(place, members, &[place]);
        self.spawn(place);
    }

    /// Notes that a node has joined, and lets clients know it.
    pub fn has_joined(&self, place: usize) {
        self.strangers[place].store(false, Ordering::SeqCst);
        self.set_serving(place, true);
    }

    /// Waits until a node takes writes, and lets clients know it.
    pub fn await_ready(&self, place: usize) {
        self.await_health(place, "/readyz");
        self.set_serving(place, true);
    }

    /// Waits until a node answers. One that joins takes no writes before the members know it, and
    /// one whose disk is full takes none at all.
    pub fn await_answer(&self, place: usize) {
        self.await_health(place, "/healthz");
    }

    fn await_health(&self, place: usize, path: &str) {
        let mut client = Client::new(self.addresses());
        let mut admin = Client::new(vec![self.admin(place)]);
        until(&format!("node {place} to answer {path}"), PATIENCE, || {
            let pinged = client.request(place, "GET", "/ping", "").ok()?;
            let well = admin.request(0, "GET", path, "").ok()?;
            (pinged.status == 200 && well.status == 200).then_some(())
        });
    }

    pub fn set_serving(&self, place: usize, serving: bool) {
        self.serving[place].store(serving, Ordering::SeqCst);
    }

    /// Returns the members that clients use.
    pub fn serving(&self) -> Vec<usize> {
        (0..self.layout.places())
            .filter(|place| self.serving[*place].load(Ordering::SeqCst))
            .collect()
    }

    /// Returns the members of a site that clients use.
    pub fn serving_of(&self, site: usize) -> Vec<usize> {
        let serving = self.serving().into_iter();
        serving.filter(|place| self.layout.site(*place) == site).collect()
    }

    /// Notes whether no client is to send requests to a node.
    pub fn set_stranger(&self, place: usize, is_stranger: bool) {
        self.strangers[place].store(is_stranger, Ordering::SeqCst);
    }

    /// Reports whether no client sends requests to a node.
    pub fn is_stranger(&self, place: usize) -> bool {
        self.strangers[place].load(Ordering::SeqCst)
    }

    /// Ends a node at once: sends SIGKILL.
    pub fn kill(&self, place: usize) {
        let mut process = self.take(place);
        assert!(process.try_wait().expect("a child").is_none(), "node {place} has ended by itself");
        process.kill().expect("a child can be killed");
        process.wait().expect("it ends");
    }

    /// Stops a node in order: sends SIGTERM. Waits for the end and returns how the node ended.
    pub fn stop(&self, place: usize) -> std::process::ExitStatus {
        self.signal(place, "TERM");
        let mut process = self.take(place);
        until("a node to stop", PATIENCE, || process.try_wait().expect("a child"))
    }

    fn take(&self, place: usize) -> Child {
        self.processes.lock().expect("no thread panics with it")[place].take().expect("it runs")
    }

    /// Sends a signal by name.
    pub fn signal(&self, place: usize, name: &str) {
        let processes = self.processes.lock().expect("no thread panics with it");
        let pid = processes[place].as_ref().expect("it runs").id();
        drop(processes);
        let sent = signal(pid, name);
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Returns the nodes that should run and do not.
    pub fn ended(&self) -> Vec<usize> {
        let mut processes = self.processes.lock().expect("no thread panics with it");
        let mut ended = Vec::new();
        for (place, process) in processes.iter_mut().enumerate() {
            let status = process.as_mut().and_then(|child| child.try_wait().expect("a child"));
            if status.is_some() {
                ended.push(place);
            }
        }
        ended
    }

    /// Runs `chronos cluster` against the admin API of a node.
    pub fn order(&self, at: usize, words: &[&str]) -> Output {
        let admin = self.admin(at).to_string();
        command(&self.binary)
            .arg("cluster")
            .args(words)
            .args(["--admin", &admin])
            .env_clear()
            .stdin(Stdio::null())
            .output_tied()
            .expect("the binary runs")
    }

    /// Returns the sum of a metric over the cores of a node; `None` if the node does not answer.
    pub fn metric(&self, place: usize, name: &str) -> Option<u64> {
        let mut admin = Client::new(vec![self.admin(place)]);
        let answer = admin.request(0, "GET", "/metrics", "").ok()?;
        let text = String::from_utf8(answer.body).ok()?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_it = rest.starts_with('{') || rest.starts_with(' ');
            is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
        });
        Some(values.sum::<f64>() as u64)
    }

    /// Returns the last lines of every node's log.
    pub fn logs(&self) -> String {
        let read = |place| {
            let text = fs::read_to_string(self.file(place, "log")).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(12)..].join("\n");
            format!("-- node {place} said last:\n{last}\n")
        };
        (0..self.layout.places()).map(read).collect()
    }

    /// Reports whether a node's log has a panic.
    pub fn panicked(&self) -> bool {
        let text = |place| fs::read_to_string(self.file(place, "log")).unwrap_or_default();
        (0..self.layout.places()).any(|place| text(place).contains("panicked"))
    }

    /// Keeps the folder with files and logs, and returns its path.
    pub fn keep(&mut self) -> PathBuf {
        self.folder.take().expect("kept once").keep()
    }
}
