//! Real nodes that ask for a token and sign their callbacks.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use kit::children::{Tied, command};
use kit::client::request;
use kit::ports::free_port;
use kit::until::{PATIENCE, until};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_chronos");
/// What the nodes sign with, the first one of two.
pub const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// What receivers do not know: nodes sign with both.
const NEW_SECRET: &str = "whsec_3mEVBGZ8gLfTzMm4Vn0vVyJbDmQtL9Ck";

/// What a cluster of the suite has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doors {
    /// Plain HTTP, open to all.
    Open,
    /// Plain HTTP, with a token.
    Token,
    /// TLS with a certificate of an authority of its own, and a token.
    Tls,
}

/// Nodes of one cluster. Dropping the value ends their processes.
pub struct Nodes {
    folder: TempDir,
    doors: Doors,
    /// For each node, where it listens for clients.
    pub addresses: Vec<SocketAddr>,
    processes: Vec<Child>,
    /// The token of a client; empty where nobody is asked for one.
    pub token: String,
    /// The token of a client that may create few timers a second.
    pub slow_token: String,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // An error means that the process has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        for place in 0..self.processes.len() {
            let log = fs::read_to_string(self.folder.path().join(format!("log{place}")));
            let log = log.unwrap_or_default();
            if thread::panicking() {
                eprintln!("-- node {} said:\n{log}", place + 1);
            } else {
                assert!(!log.contains("panicked"), "{log}");
            }
        }
    }
}

impl Nodes {
    /// Starts a cluster of so many nodes, and waits until all of them serve.
    pub fn start(count: usize, doors: Doors) -> Nodes {
        let folder = tempfile::Builder::new().prefix("chronos-clients-").tempdir().expect("room");
        let hosts: Vec<IpAddr> =
            (1..=count as u8).map(|place| IpAddr::from([127, 0, 0, 90 + place])).collect();
        let [port, admin_port, tls_port] = [(); 3].map(|()| free_port(&hosts));
        // Both sign, so receivers see two signatures in each callback.
        write_private(&folder.path().join("secrets"), &format!("{NEW_SECRET}\n{SECRET}\n"));
        let at = |port| hosts.iter().map(move |host| SocketAddr::new(*host, port));
        let names: Vec<SocketAddr> = at(port).collect();
        let mut nodes = Nodes {
            folder,
            doors,
            addresses: at(if doors == Doors::Tls { tls_port } else { port }).collect(),
            processes: Vec::new(),
            token: String::new(),
            slow_token: String::new(),
        };
        if doors != Doors::Open {
            nodes.token = nodes.make_token("clients", &[]);
            nodes.slow_token = nodes.make_token("slow", &["--creates-per-second", "10"]);
        }
        nodes.make_certificates(&hosts);
        for (place, host) in hosts.iter().enumerate() {
            let admin = SocketAddr::new(*host, admin_port);
            let text = nodes.config(place, &names, admin);
            nodes.spawn(place, &text);
        }
        for admin in at(admin_port) {
            until("a node to serve", PATIENCE, || {
                let answer = request(admin, "GET", "/readyz", "").ok()?;
                (answer.status == 200).then_some(())
            });
        }
        nodes
    }

    /// The URLs of the nodes, with commas between.
    pub fn urls(&self) -> String {
        let scheme = if self.doors == Doors::Tls { "https" } else { "http" };
        let urls: Vec<String> =
            self.addresses.iter().map(|address| format!("{scheme}://{address}")).collect();
        urls.join(",")
    }

    /// The process id of a node.
    pub fn pid(&self, place: usize) -> u32 {
        self.processes[place].id()
    }

    /// Whether a node's process has ended.
    pub fn has_ended(&mut self, place: usize) -> bool {
        self.processes[place].try_wait().expect("a child can be asked").is_some()
    }

    /// A file of the cluster.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn make_token(&self, name: &str, limits: &[&str]) -> String {
        let mut command = command(BINARY);
        command.args(["token", "new", "--name", name, "--role", "client"]).args(limits);
        let made = command.arg("--file").arg(self.file("tokens")).output_tied();
        let made = made.expect("the binary runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).expect("text").trim_end().to_owned()
    }

    fn make_certificates(&self, hosts: &[IpAddr]) {
        if self.doors == Doors::Tls {
            let mut certs = command(BINARY);
            certs.args(["cluster", "certs", "--out"]).arg(self.file("pki"));
            for host in hosts {
                certs.arg("--node").arg(host.to_string());
            }
            let made = certs.output_tied().expect("the binary runs");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
    }

    fn config(&self, place: usize, names: &[SocketAddr], admin: SocketAddr) -> String {
        let (name, id) = (names[place], place + 1);
        let mut text =
            format!("[node]\nlisten = \"{name}\"\ninstance_id = {id}\nshards = 1\npin = false\n");
        if self.doors == Doors::Tls {
            writeln!(text, "listen_tls = \"{}\"", self.addresses[place]).expect("memory");
            let pem = |end| self.file(&format!("pki/{}.{end}", name.ip()));
            let (cert, key) = (pem("pem"), pem("key"));
            write!(text, "[tls]\ncert = {cert:?}\nkey = {key:?}\n").expect("memory");
        }
        write!(text, "[admin]\nlisten = \"{admin}\"\n").expect("memory");
        if names.len() > 1 {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            let names = names.join(", ");
            write!(text, "[cluster]\nlocalhost = \"{name}\"\nnodes = [{names}]\n").expect("memory");
        }
        if self.doors != Doors::Open {
            write!(text, "[auth]\ntokens_file = {:?}\n", self.file("tokens")).expect("memory");
        }
        let secrets = self.file("secrets");
        write!(text, "[callbacks]\nsigning_secrets_file = {secrets:?}\n").expect("memory");
        if self.doors == Doors::Tls {
            writeln!(text, "ca = {:?}", self.file("pki/ca.pem")).expect("memory");
        }
        // A slow machine must not make a receiver late.
        text.push_str("timeout_ms = 60000\n");
        text
    }

    fn spawn(&mut self, place: usize, config: &str) {
        let file = self.folder.path().join(format!("node{place}.toml"));
        fs::write(&file, config).expect("written");
        let log = File::create(self.folder.path().join(format!("log{place}"))).expect("a file");
        let process = command(BINARY)
            .args(["--log-format", "text", "--config"])
            .arg(&file)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn_tied()
            .expect("the binary runs");
        self.processes.push(process);
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its own file");
}
