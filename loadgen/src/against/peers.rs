//! The servers that are compared, each started by itself on one core.

use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use chronos::tls::connector::{ClientMaterial, Connector, Trust};

use crate::child::{Child, free_address};
use crate::ordinary::protocol::{Beanstalkd, Http, Protocol, Redis};

/// How long a server may take until it listens.
const READY: Duration = Duration::from_secs(10);

/// A kind of server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Peer {
    /// This service.
    Chronos,
    /// The ring alone: answers every request with the same 200.
    Ring,
    /// beanstalkd, without its log on disk: delayed jobs in memory.
    Beanstalkd,
    /// Redis, without snapshots: a sorted set of due times and a key for each body.
    Redis,
    /// nginx with `return 200`: what reading the request costs in a server that people know.
    Nginx,
}

impl Peer {
    /// The word for the server on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Chronos => "chronos",
            Peer::Ring => "ring",
            Peer::Beanstalkd => "beanstalkd",
            Peer::Redis => "redis",
            Peer::Nginx => "nginx",
        }
    }

    /// The program of a foreign server; `None`: it comes with this one.
    fn program(self) -> Option<&'static str> {
        match self {
            Peer::Chronos | Peer::Ring => None,
            Peer::Beanstalkd => Some("beanstalkd"),
            Peer::Redis => Some("redis-server"),
            Peer::Nginx => Some("nginx"),
        }
    }

    /// Whether the server is installed.
    pub fn is_there(self) -> bool {
        self.program().is_none_or(|program| find(program).is_some())
    }

    /// Whether the server answers requests of HTTP.
    fn speaks_http(self) -> bool {
        matches!(self, Peer::Chronos | Peer::Ring | Peer::Nginx)
    }

    /// The word for the server over TLS; `None`: it is not measured over TLS.
    pub fn name_over_tls(self) -> Option<&'static str> {
        match self {
            Peer::Chronos => Some("chronos, TLS"),
            Peer::Nginx => Some("nginx, TLS"),
            Peer::Ring | Peer::Beanstalkd | Peer::Redis => None,
        }
    }

    /// Whether the server keeps what it is sent, so that it has a size for each.
    pub fn keeps(self) -> bool {
        !matches!(self, Peer::Ring | Peer::Nginx)
    }

    /// What the client says to it.
    pub fn protocol(self, target: SocketAddr) -> Box<dyn Protocol> {
        match self {
            Peer::Beanstalkd => Box::new(Beanstalkd),
            Peer::Redis => Box::new(Redis),
            _ => Box::new(Http::post(target)),
        }
    }
}

/// How the servers are started.
pub struct Seat<'a> {
    /// The core of the server.
    pub core: usize,
    /// The node's binary.
    pub node_binary: &'a Path,
    /// Bytes that the node takes and touches at its start; 0: as it is by default.
    pub prefault_bytes: u64,
    /// A folder for files of servers.
    pub folder: &'a Path,
}

/// A server that runs.
pub struct Started {
    /// Its process.
    pub child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens for TLS, if it has certificates.
    pub secure: Option<SocketAddr>,
}

impl Seat<'_> {
    /// Starts a server and waits until it listens. `is_secure`: over TLS as well.
    pub fn start(&self, peer: Peer, is_secure: bool) -> Result<Started> {
        let address = free_address()?;
        let secure = is_secure.then(free_address).transpose()?;
        let mut child = Child::start(self.command(peer, address, secure)?)?;
        if peer.speaks_http() {
            // A node listens before it has touched its memory, and answers afterwards.
            child.await_ready(address)?;
        } else {
            await_listening(&mut child, peer, address)?;
        }
        Ok(Started { child, address, secure })
    }

    /// Makes an authority and a certificate of this machine, as users of the node make them.
    pub fn make_certificates(&self) -> Result<Connector> {
        let pki = self.folder.join("pki");
        let made = Command::new(self.node_binary)
            .args(["cluster", "certs", "--node", "127.0.0.1", "--out"])
            .arg(&pki)
            .output()
            .context("cannot run the node's binary")?;
        let told = String::from_utf8_lossy(&made.stderr);
        anyhow::ensure!(made.status.success(), "no certificates: {told}");
        let text = std::fs::read(pki.join("ca.pem"))?;
        let material = ClientMaterial { trust: Trust::These(&text), identity: None };
        Ok(Connector::new(&material)?)
    }

    fn command(
        &self,
        peer: Peer,
        address: SocketAddr,
        secure: Option<SocketAddr>,
    ) -> Result<Command> {
        let core = self.core.to_string();
        let listen = address.to_string();
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        Ok(match peer {
            Peer::Chronos => {
                let mut command = Command::new(self.node_binary);
                command.args(["--listen", &listen, "--cores", &core, "--admin", "off"]);
                command.env("CHRONOS_NODE_PREFAULT_BYTES", self.prefault_bytes.to_string());
                if let Some(secure) = secure {
                    let pki = self.folder.join("pki");
                    command.env("CHRONOS_NODE_LISTEN_TLS", secure.to_string());
                    command.env("CHRONOS_TLS_CERT", pki.join("127.0.0.1.pem"));
                    command.env("CHRONOS_TLS_KEY", pki.join("127.0.0.1.key"));
                }
                command
            }
            Peer::Ring => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["reference", "--listen", &listen, "--core", &core]);
                command.arg("--until-stdin-ends");
                command
            }
            Peer::Beanstalkd => self.pinned(peer, &["-l", &ip, "-p", &port])?,
            Peer::Redis => {
                let no = ["--save", "", "--appendonly", "no", "--daemonize", "no"];
                let at = ["--bind", &ip, "--port", &port];
                self.pinned(peer, &[&at[..], &no[..]].concat())?
            }
            Peer::Nginx => {
                let file = self.folder.join(format!("nginx-{port}.conf"));
                std::fs::write(&file, nginx_configuration(address, secure, self.folder))
                    .with_context(|| format!("cannot write {}", file.display()))?;
                let file = file.to_string_lossy().into_owned();
                self.pinned(peer, &["-e", "stderr", "-c", &file])?
            }
        })
    }

    /// A command that runs a foreign server on the core.
    pub fn pinned(&self, peer: Peer, arguments: &[&str]) -> Result<Command> {
        let program = peer.program().and_then(find);
        let program = program.with_context(|| format!("{} is not installed", peer.name()))?;
        let mut command = Command::new("taskset");
        command.args(["-c", &self.core.to_string()]).arg(program).args(arguments);
        Ok(command)
    }
}

/// Waits until a foreign server takes connections.
pub fn await_listening(child: &mut Child, peer: Peer, address: SocketAddr) -> Result<()> {
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(end) = child.ended()? {
            bail!("{} ended before it listened: {end}", peer.name());
        }
        anyhow::ensure!(began.elapsed() < READY, "{} does not listen", peer.name());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Where a program is: in a folder of PATH, or where daemons are.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn nginx_configuration(listen: SocketAddr, secure: Option<SocketAddr>, folder: &Path) -> String {
    let folder = folder.display();
    let mut text = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {folder}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\nhttp {{\n  access_log off;\n  \
         keepalive_requests 1000000000;\n  keepalive_timeout 600s;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "  {kind}_temp_path {folder}/{kind};").expect("memory takes it");
    }
    let mut secured = String::new();
    if let Some(secure) = secure {
        secured = format!(
            " listen {secure} ssl; ssl_certificate {folder}/pki/127.0.0.1.pem; \
             ssl_certificate_key {folder}/pki/127.0.0.1.key;"
        );
    }
    text + &format!("  server {{ listen {listen};{secured} location / {{ return 200; }} }}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_others_are_not() {
        assert!(find("sh").is_some_and(|file| file.is_absolute()));
        assert_eq!(find("no-such-program-9f3c"), None);
        assert!(Peer::Chronos.is_there() && Peer::Ring.is_there());
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn nginx_serves_one_location_and_closes_nothing() {
        let text = nginx_configuration(address(7), None, Path::new("/tmp/x"));
        assert!(text.contains("listen 127.0.0.1:7; location / { return 200; }"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        let text = nginx_configuration(address(7), Some(address(8)), Path::new("/tmp/x"));
        assert!(text.contains("listen 127.0.0.1:8 ssl; ssl_certificate /tmp/x/pki/"), "{text}");
    }
}
