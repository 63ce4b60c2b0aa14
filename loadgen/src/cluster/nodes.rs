//! The node processes of a cluster, started with the configuration files of an existing deployment.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::child::Child;
use crate::flags::ClusterFlags;
use crate::server_cpu;

/// How many nodes a cluster can have. Each place has an address of its own.
const PLACES: usize = 5;

/// The part of each place in a change of members.
#[derive(Clone, Copy, Debug)]
pub struct Roles<'a> {
    /// Places whose nodes stay members.
    pub staying: &'a [usize],
    /// Places whose nodes join.
    pub joining: &'a [usize],
}

/// A cluster. Dropping the value ends its processes and removes its files.
pub struct Nodes {
    folder: PathBuf,
    binary: PathBuf,
    cores: String,
    /// The address at which each place listens.
    pub addresses: Vec<SocketAddr>,
    /// The address by which members call each place. The port is another port if a relay listens
    /// there.
    names: Vec<SocketAddr>,
    /// The address of each place's admin listener.
    pub admins: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.processes.clear();
        // Files that are left over do no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Nodes {
    /// Chooses addresses and makes the folder, without starting a process. With `behind_relays`
    /// members call each other at other ports than those at which they listen.
    pub fn new(flags: &ClusterFlags, behind_relays: bool) -> Result<Nodes> {
        let [port, relay_port, admin_port] = free_ports()?;
        let known_port = if behind_relays { relay_port } else { port };
        let all = |port| (0..PLACES).map(|place| at(place, port)).collect::<Vec<_>>();
        let number = std::process::id();
        let folder = std::env::temp_dir().join(format!("chronos-loadgen-cluster-{number}-{port}"));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        let binary = match &flags.node_binary {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("chronos"),
        };
        Ok(Nodes {
            folder,
            binary,
            cores: flags.cores.clone(),
            addresses: all(port),
            names: all(known_port),
            admins: all(admin_port),
            processes: (0..PLACES).map(|_| None).collect(),
        })
    }

    /// Starts a cluster of `count` nodes and waits until it is ready.
    pub fn started(flags: &ClusterFlags, count: usize) -> Result<Nodes> {
        let mut nodes = Nodes::new(flags, false)?;
        let places: Vec<usize> = (0..count).collect();
        nodes.start(&places, Roles { staying: &places, joining: &[] })?;
        Ok(nodes)
    }

    /// The address by which members call a place.
    pub fn name(&self, place: usize) -> SocketAddr {
        self.names[place]
    }

    /// Starts the nodes at these places and waits until they answer.
    pub fn start(&mut self, places: &[usize], roles: Roles<'_>) -> Result<()> {
        for &place in places {
            self.write_roles(place, roles)?;
            self.processes[place] = Some(self.spawn(place)?);
        }
        self.await_ready(places)?;
        // Nodes do not wait for each other's writes before their links are up. The pause makes the
        // figures those of a cluster at rest.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        Ok(())
    }

    fn await_ready(&mut self, places: &[usize]) -> Result<()> {
        for &place in places {
            let process = self.processes[place].as_mut().context("just started")?;
            process.await_ready(self.addresses[place])?;
        }
        Ok(())
    }

    /// Starts the nodes at these places with their files `toml`, and waits until they answer.
    pub fn start_with_toml(&mut self, places: &[usize]) -> Result<()> {
        for &place in places {
            let child = self.launch(&[("--config", self.file(place, "toml"))])?;
            self.processes[place] = Some(child);
        }
        self.await_ready(places)
    }

    /// Writes the cluster file of a place.
    pub fn write_roles(&self, place: usize, roles: Roles<'_>) -> Result<()> {
        let mut text = format!("[cluster]\nlocalhost = {}\n", self.names[place]);
        // Writing to a String cannot fail.
        for place in roles.staying {
            let _ = writeln!(text, "node = {}", self.names[*place]);
        }
        for place in roles.joining {
            let _ = writeln!(text, "joining = {}", self.names[*place]);
        }
        self.write(place, "cluster", &text)
    }

    /// Writes a file of a place.
    pub fn write(&self, place: usize, what: &str, text: &str) -> Result<()> {
        let path = self.file(place, what);
        std::fs::write(&path, text).with_context(|| format!("cannot write {path:?}"))
    }

    /// Where a file of a place is.
    pub fn file(&self, place: usize, what: &str) -> PathBuf {
        self.folder.join(format!("node{place}.{what}"))
    }

    fn spawn(&self, place: usize) -> Result<Child> {
        let address = self.addresses[place];
        let local = format!(
            "[http]\nbind-address = {}\nbind-port = {}\n\n[identity]\ninstance_id = {}\n\n\
             [logging]\nfolder = {}\nlevel = 3\n\n[admin]\nlisten = {}\n",
            address.ip(),
            address.port(),
            place + 1,
            self.folder.display(),
            self.admins[place]
        );
        self.write(place, "local", &local)?;
        self.write(place, "shared", "")?;
        let files = [
            ("--local-config-file", "local"),
            ("--cluster-config-file", "cluster"),
            ("--shared-config-file", "shared"),
            ("--pidfile", "pid"),
        ];
        self.launch(&files.map(|(flag, what)| (flag, self.file(place, what))))
    }

    fn launch(&self, files: &[(&str, PathBuf)]) -> Result<Child> {
        // The threads of a node inherit the affinity of its process, and a node has a shard for
        // each core that it may run on.
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cores]).arg(&self.binary);
        for (flag, file) in files {
            command.arg(flag).arg(file);
        }
        Child::start(command)
    }

    /// The process ids of the running nodes.
    fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().flatten().map(Child::pid)
    }

    /// CPU time of all nodes so far, in nanoseconds. Error: a node has ended.
    pub fn cpu_ns(&self) -> Result<u64> {
        self.pids().map(|pid| server_cpu::cpu_ns(pid).context("a node has ended")).sum()
    }

    /// Kills the node at a place with SIGKILL.
    pub fn kill(&mut self, place: usize) -> Result<()> {
        self.signal(place, "KILL")?;
        self.processes[place] = None;
        Ok(())
    }

    /// Stops the node at a place in good order.
    pub fn stop(&mut self, place: usize) -> Result<()> {
        self.processes[place].take().context("it runs")?.stop()
    }

    /// Sends the signal `name` to the node at a place.
    pub fn signal(&self, place: usize, name: &str) -> Result<()> {
        let pid = self.processes[place].as_ref().context("it runs")?.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status()?;
        if !sent.success() {
            bail!("cannot send {name} to node {place}");
        }
        Ok(())
    }
}

fn at(place: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 11 + place as u8], port))
}

/// Three ports that were free on all addresses a moment ago.
fn free_ports() -> Result<[u16; 3]> {
    // The listeners are held until all ports are found, because the kernel may give out a released
    // port again at once.
    let (mut held, mut found) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let listener = TcpListener::bind(at(0, 0)).context("no free port")?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        if (1..PLACES).all(|place| TcpListener::bind(at(place, port)).is_ok()) {
            found.push(port);
        }
        if let [first, second, third] = found[..] {
            return Ok([first, second, third]);
        }
    }
    bail!("no port is free on all of 127.0.0.11 to 127.0.0.{}", 10 + PLACES)
}
