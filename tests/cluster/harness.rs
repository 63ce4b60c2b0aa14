//! Clusters of real processes: the binary with the original's flags and the files of an existing
//! deployment.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use kit::children::{Tied, command, signal};
use kit::client::{Answer, request};
use kit::ports;
use serde_json::Value;
use tempfile::TempDir;

use super::files::{Roles, cluster_file, replace};
use super::timers::Timers;
pub use kit::until::PATIENCE;

/// How many places a cluster has: 127.0.0.11 to 127.0.0.14.
pub const PLACES: usize = 4;
/// What differs from an ordinary cluster.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Lines for the end of every local file.
    pub local: String,
    /// Lines for the end of every shared file.
    pub shared: String,
    /// Whether members know each other by a second port, where a proxy listens.
    pub behind_proxies: bool,
    /// The lines of every node's `cluster.secret_file`; empty: there is none.
    pub secret: String,
    /// Lines below the key `cluster.secret_file`.
    pub secret_keys: String,
    /// Whether `[identity]` is left out, so that all nodes have the same identity.
    pub without_identity: bool,
    /// Whether each place is a cluster of its own in a site of its own.
    pub sites: bool,
    /// Whether places 1 and 2 are one site, 3 and 4 another. Each site is configured with the
    /// address of the first node of the other.
    pub two_sites: bool,
    /// Addresses of the places. Empty: 127.0.0.11 and so on.
    pub hosts: Vec<IpAddr>,
    /// For each place, words before the binary's name. Empty: none.
    pub starters: Vec<Vec<String>>,
}

/// A cluster. Dropping the value ends its processes.
pub struct Cluster {
    setup: Setup,
    folder: TempDir,
    /// The names of the members by place.
    pub names: Vec<String>,
    binds: Vec<SocketAddr>,
    admin_port: u16,
    /// For each place, more lines for the end of its local file.
    more: Vec<String>,
    /// The order of the sites in the files, where each place is one.
    listed_sites: Vec<usize>,
    processes: Vec<Option<Child>>,
    /// Places whose processes are frozen. They are thawed before they are ended.
    frozen: HashSet<usize>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for place in 0..PLACES {
            if let Some(mut process) = self.processes[place].take() {
                // An error means that the process has ended already.
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        let told = (0..PLACES).map(|place| (place, self.logged(place)));
        let told: Vec<_> = told.filter(|(_, text)| !text.is_empty()).collect();
        if thread::panicking() {
            for (place, text) in told {
                let story = thread::current().name().unwrap_or("?").to_owned();
                eprintln!("-- {story}: node {} said:\n{text}", place + 1);
            }
        } else {
            told.iter().for_each(|(_, text)| assert!(!text.contains("panicked"), "{text}"));
        }
    }
}

impl Cluster {
    /// Makes a cluster of four places, none of them running.
    pub fn new() -> Cluster {
        Cluster::with(Setup::default())
    }

    /// Makes a cluster of four places with this setup, none of them running.
    pub fn with(setup: Setup) -> Cluster {
        let port = free_port();
        let known_port = if setup.behind_proxies { free_port() } else { port };
        let hosts = setup.hosts.clone();
        let host = |place| hosts.get(place).copied().unwrap_or(loopback(place));
        let at = |port| (0..PLACES).map(move |place| SocketAddr::new(host(place), port));
        let folder = tempfile::Builder::new().prefix("chronos-cluster-").tempdir();
        let cluster = Cluster {
            folder: folder.expect("room"),
            names: at(known_port).map(|name| name.to_string()).collect(),
            binds: at(port).collect(),
            admin_port: free_port(),
            more: vec![String::new(); PLACES],
            listed_sites: (0..PLACES).collect(),
            processes: (0..PLACES).map(|_| None).collect(),
            frozen: HashSet::new(),
            setup,
        };
        if !cluster.setup.secret.is_empty() {
            (0..PLACES).for_each(|place| cluster.write_secret(place, &cluster.setup.secret));
        }
        cluster
    }

    /// Writes a node's secret file. The node reads it at its next start or SIGHUP.
    pub fn write_secret(&self, place: usize, lines: &str) {
        let file = self.secret_file(place);
        replace(&file, lines);
        let permissions = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, permissions).expect("a file of the story");
    }

    /// Writes a node's secret file so that everybody may read it.
    pub fn write_open_secret(&self, place: usize, lines: &str) {
        replace(&self.secret_file(place), lines);
        let permissions = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(self.secret_file(place), permissions).expect("its own file");
    }

    /// Sets the lines below the key of the secret file, from a node's next start on.
    pub fn set_secret_keys(&mut self, lines: &str) {
        self.setup.secret_keys = lines.to_owned();
    }

    /// Sets more lines of a node's local file, from its next start on.
    pub fn set_local(&mut self, place: usize, lines: &str) {
        self.more[place] = lines.to_owned();
    }

    /// Sets the sites that files list, in this order. A node reads them at its next start, or when
    /// [`Cluster::reload_local`] writes its files.
    pub fn set_sites(&mut self, places: &[usize]) {
        self.listed_sites = places.to_vec();
    }

    /// Returns the lines of [`Cluster::set_local`].
    pub fn local_of(&self, place: usize) -> &str {
        &self.more[place]
    }

    /// Writes the lines of [`Cluster::set_local`] under a running node and sends SIGHUP.
    pub fn reload_local(&mut self, place: usize, lines: &str) {
        self.set_local(place, lines);
        replace(&self.file(place, "local"), &self.local_file(place));
        replace(&self.file(place, "shared"), &self.shared_file(place));
        self.signal(place, "HUP");
    }

    /// The folder of the story.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn secret_file(&self, place: usize) -> PathBuf {
        self.file(place, "secret")
    }

    /// Makes a cluster at rest and starts these places.
    pub fn running(places: &[usize]) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.begin(places);
        cluster
    }

    /// Writes the files of these places as a cluster at rest, and starts them.
    pub fn begin(&mut self, places: &[usize]) {
        let roles = Roles::staying(places);
        self.start_with(places, &roles);
    }

    /// Writes the files of these places with these roles, and starts them. Waits until they serve.
    pub fn start_with(&mut self, places: &[usize], roles: &Roles) {
        places.iter().for_each(|place| self.write_roles(*place, roles));
        places.iter().for_each(|place| self.spawn(*place));
        places.iter().for_each(|place| self.await_ready(*place));
    }

    /// Returns the address at which a node listens.
    pub fn address(&self, place: usize) -> SocketAddr {
        self.binds[place]
    }

    /// Writes the cluster file of a node. The node reads it at the next SIGHUP.
    pub fn write_roles(&self, place: usize, roles: &Roles) {
        let text = if self.setup.sites {
            let alone = Roles::staying(&[place]);
            cluster_file(&self.names[place], &alone, &self.names)
        } else if self.setup.two_sites {
            let first = place / 2 * 2;
            let site = Roles::staying(&[first, first + 1]);
            cluster_file(&self.names[place], &site, &self.names)
        } else {
            cluster_file(&self.names[place], roles, &self.names)
        };
        replace(&self.file(place, "cluster"), &text);
    }

    /// Writes these roles for these places and sends SIGHUP to them.
    pub fn reload(&self, places: &[usize], roles: &Roles) {
        places.iter().for_each(|place| self.write_roles(*place, roles));
        places.iter().for_each(|place| self.signal(*place, "HUP"));
    }

    /// Starts a node that is not running, with the files that it has. It has nothing in memory.
    pub fn start(&mut self, place: usize) {
        self.spawn(place);
        self.await_ready(place);
    }

    /// Starts a process at this place that says that it is the node at another place. Does not wait
    /// until it serves.
    pub fn start_as(&mut self, place: usize, other: usize, roles: &Roles) {
        let text = cluster_file(&self.names[other], roles, &self.names);
        replace(&self.cluster_file(place), &text);
        self.spawn(place);
    }

    /// Returns the path of a node's cluster file.
    pub fn cluster_file(&self, place: usize) -> PathBuf {
        self.file(place, "cluster")
    }

    fn spawn(&mut self, place: usize) {
        assert!(self.processes[place].is_none(), "node {} runs", place + 1);
        replace(&self.file(place, "local"), &self.local_file(place));
        replace(&self.file(place, "shared"), &self.shared_file(place));
        // The file is removed here, because a user's script may look at it at any time.
        let _ = std::fs::remove_file(self.file(place, "pid"));
        let log = File::options().create(true).append(true).open(self.file(place, "log"));
        let log = log.expect("a file in the folder of the story");
        let binary = env!("CARGO_BIN_EXE_chronos").to_owned();
        let mut words = self.setup.starters.get(place).cloned().unwrap_or_default();
        words.push(binary);
        let process = command(&words[0])
            .args(&words[1..])
            .arg("--local-config-file")
            .arg(self.file(place, "local"))
            .arg("--cluster-config-file")
            .arg(self.file(place, "cluster"))
            .arg("--shared-config-file")
            .arg(self.file(place, "shared"))
            .arg("--pidfile")
            .arg(self.file(place, "pid"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // The networks of stories are theirs alone.
            .env("CHRONOS_AUTH_INSECURE_OPEN", "true")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn_tied()
            .expect("the binary runs");
        self.processes[place] = Some(process);
    }

    fn await_ready(&mut self, place: usize) {
        let what = format!("node {} to answer", place + 1);
        until(&what, || {
            if let Some(status) = self.ended(place) {
                panic!("node {} ended with {status}:\n{}", place + 1, self.logged(place));
            }
            let answer = request(self.binds[place], "GET", "/ping", "").ok()?;
            assert_eq!((answer.status, answer.body.as_str()), (200, "OK"));
            Some(())
        });
        // The pid file is written before the port opens.
        let text = std::fs::read_to_string(self.file(place, "pid")).expect("a pid file");
        assert_eq!(text.trim().parse(), Ok(self.pid(place)), "{text:?}");
    }

    fn local_file(&self, place: usize) -> String {
        let bind = self.binds[place];
        let mut text = format!(
            "[http]\nbind-address = {}\nbind-port = {}\nthreads = 50\n\n\
             [logging]\nfolder = {}\nlevel = 5\n\n[admin]\nlisten = {}\n",
            bind.ip(),
            bind.port(),
            self.folder.path().display(),
            self.admin(place)
        );
        if !self.setup.without_identity {
            let identity = place + 1;
            write!(text, "\n[identity]\ninstance_id = {identity}\ndeployment_id = 0\n")
                .expect("memory");
        }
        if self.secret_file(place).exists() {
            let (file, keys) = (self.secret_file(place), &self.setup.secret_keys);
            write!(text, "\n[cluster]\nsecret_file = {}\n{keys}", file.display()).expect("memory");
        }
        text + &self.setup.local + &self.more[place]
    }

    fn shared_file(&self, place: usize) -> String {
        let mut text = String::new();
        if self.setup.sites {
            write!(text, "[sites]\nlocal_site = site{}\n", place + 1).expect("memory");
            for &other in self.listed_sites.iter().filter(|other| **other != place) {
                let remote = &self.names[other];
                writeln!(text, "remote_site = site{}={remote}", other + 1).expect("memory");
            }
            text.push_str("replicate_timers_across_sites = true\n");
        }
        if self.setup.two_sites {
            let (own, other) = (place / 2 + 1, 2 - place / 2);
            let remote = &self.names[(other - 1) * 2];
            write!(
                text,
                "[sites]\nlocal_site = site{own}\nremote_site = site{other}={remote}\n\
                 replicate_timers_across_sites = true\n"
            )
            .expect("memory");
        }
        text + &self.setup.shared
    }

    fn file(&self, place: usize, what: &str) -> PathBuf {
        self.folder.path().join(format!("node{}.{what}", place + 1))
    }

    /// Returns the log of a node so far.
    pub fn logged(&self, place: usize) -> String {
        std::fs::read_to_string(self.file(place, "log")).unwrap_or_default()
    }

    /// Returns the process id of a running node.
    pub fn pid(&self, place: usize) -> u32 {
        self.processes[place].as_ref().expect("it runs").id()
    }

    /// Returns how a node ended; `None` while it runs.
    pub fn ended(&mut self, place: usize) -> Option<std::process::ExitStatus> {
        self.processes[place].as_mut().expect("started").try_wait().expect("a child can be asked")
    }

    /// Sends a signal to a node by the signal's name.
    pub fn signal(&self, place: usize, name: &str) {
        let pid = self.pid(place);
        let sent = signal(pid, name);
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Sends a signal to several nodes.
    pub fn signal_all(&self, places: &[usize], name: &str) {
        places.iter().for_each(|place| self.signal(*place, name));
    }

    /// Ends a node at once: SIGKILL.
    pub fn kill(&mut self, place: usize) {
        let mut process = self.processes[place].take().expect("it runs");
        assert!(process.try_wait().expect("a child").is_none(), "{}", self.logged(place));
        process.kill().expect("a child can be killed");
        process.wait().expect("it ends");
    }

    /// Stops a node in order: sends SIGTERM, and fails unless the node ends well.
    pub fn stop(&mut self, place: usize) {
        self.signal(place, "TERM");
        let status = until("the node to stop", || self.ended(place));
        self.processes[place] = None;
        assert!(status.success(), "{status}\n{}", self.logged(place));
    }

    /// Freezes a node: sends SIGSTOP.
    pub fn freeze(&mut self, place: usize) {
        self.signal(place, "STOP");
        self.frozen.insert(place);
    }

    /// Lets a frozen node go on: sends SIGCONT.
    pub fn thaw(&mut self, place: usize) {
        assert!(self.frozen.remove(&place), "it is frozen");
        self.signal(place, "CONT");
    }

    /// The address of a node's admin API.
    pub fn admin(&self, place: usize) -> SocketAddr {
        SocketAddr::new(self.binds[place].ip(), self.admin_port)
    }

    /// Returns what the admin API of a node says of the cluster; `None` if the node does not
    /// answer.
    pub fn look(&self, place: usize) -> Option<Value> {
        let answer = request(self.admin(place), "GET", "/cluster", "").ok()?;
        serde_json::from_str(&answer.body).ok()
    }

    /// Returns whether a node says that all its connections to these other members go over TLS;
    /// `None` if it does not answer.
    pub fn speaks_tls(&self, place: usize, others: &[usize]) -> Option<bool> {
        let document = self.look(place)?;
        let members = document["members"].as_array()?;
        let is_tls = |other: &&usize| {
            let name = &self.names[**other];
            members.iter().any(|member| member["name"] == *name && member["tls"] == true)
        };
        Some(others.iter().filter(|other| **other != place).all(|other| is_tls(&other)))
    }

    /// Returns a figure of a node's metrics, summed over its cores.
    pub fn metric(&self, place: usize, name: &str) -> u64 {
        let answer = request(self.admin(place), "GET", "/metrics", "").expect("metrics");
        let samples = answer.body.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let value = |line: &str| -> f64 {
            line.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number")
        };
        samples.map(value).sum::<f64>() as u64
    }

    /// Waits until each of these nodes has this belief of each of `others`: `alive` or `dead`.
    pub fn await_belief(&self, places: &[usize], others: &[usize], belief: &str) {
        for (place, other) in places.iter().flat_map(|one| others.iter().map(move |two| (one, two)))
        {
            if place == other {
                continue;
            }
            until(&format!("node {} to believe {} {belief}", place + 1, other + 1), || {
                let document = self.look(*place)?;
                let mut members = document["members"].as_array()?.iter();
                let member = members.find(|member| member["name"] == self.names[*other])?;
                (member["liveness"] == belief).then_some(())
            });
        }
    }

    /// Waits until each of these nodes believes each other node alive.
    pub fn await_alive(&self, places: &[usize]) {
        self.await_belief(places, places, "alive");
    }

    /// Waits until each of these nodes has declared the node `dead` dead.
    pub fn await_dead(&self, places: &[usize], dead: usize) {
        self.await_belief(places, &[dead], "dead");
    }

    /// Waits until these nodes have these members, have compared all their timers, and hold no
    /// misplaced timer.
    pub fn await_settled(&self, places: &[usize], roles: &Roles) {
        let wanted = roles.names(&self.names);
        for place in places {
            until(&format!("node {} to be settled", place + 1), || {
                let document = self.look(*place)?;
                let lists = ["nodes", "joining", "leaving"];
                let has = |(list, wanted): (&str, &Vec<String>)| {
                    let mut names: Vec<String> =
                        serde_json::from_value(document["membership"][list].clone()).ok()?;
                    names.sort();
                    (names == *wanted).then_some(())
                };
                lists.into_iter().zip(&wanted).map(has).collect::<Option<()>>()?;
                let work = &document["resynchronisation"];
                (work["is_running"] == false && work["misplaced"] == 0).then_some(())
            });
        }
    }

    /// Waits until these nodes together hold two copies of each of these timers, or until the last
    /// pop is due.
    pub fn await_copies(&self, places: &[usize], timers: &Timers) {
        let wanted = 2 * timers.all.len() as u64;
        until("two copies of each timer", || {
            let held = places.iter().map(|place| self.look(*place)?["timers"].as_u64());
            let held: u64 = held.collect::<Option<Vec<_>>>()?.iter().sum();
            (held >= wanted || timers.is_over()).then_some(())
        });
    }

    /// Sends one request to a node. Panics if the node does not answer. What may be said twice is
    /// said again while the node answers 503, as it does on a busy machine where another node is
    /// slow for a moment.
    pub fn request(&self, place: usize, method: &str, path: &str, body: &str) -> Answer {
        let ask = || {
            request(self.binds[place], method, path, body).unwrap_or_else(|error| {
                panic!("{method} {path} to node {}: {error}\n{}", place + 1, self.logged(place))
            })
        };
        match method {
            "POST" => ask(),
            _ => until("an answer", || Some(ask()).filter(|answer| answer.status != 503)),
        }
    }
}

/// Calls `look` until it returns something. Panics with `what` after [`PATIENCE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    kit::until::until(what, PATIENCE, look)
}

/// Returns the usual address of a place.
fn loopback(place: usize) -> IpAddr {
    IpAddr::from([127, 0, 0, 11 + place as u8])
}

/// Returns a port that is free on the addresses of all places.
pub fn free_port() -> u16 {
    ports::free_port(&(0..PLACES).map(loopback).collect::<Vec<_>>())
}
