//! A node under the profile, with all that a node may have.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use kit::children::{self, signal};
use kit::client::{PATIENCE, read_answer};
use kit::ports::free_port;
use kit::until::until;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::profile::Contained;

const BINARY: &str = env!("CARGO_BIN_EXE_chronos");

/// The files of a node, and where it listens.
pub struct Setting {
    folder: PathBuf,
    secure: SocketAddr,
}

impl Setting {
    /// Makes the files, as far as the binary makes them under the profile.
    pub fn new(folder: &Path, contained: &Contained) -> Setting {
        let here = Ipv4Addr::LOCALHOST;
        let [plain, secure, admin, thrift] = [(); 4].map(|()| free_port(&[here.into()]));
        let path = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "[node]\nlisten = '{here}:{plain}'\nlisten_tls = '{here}:{secure}'\n\
             [admin]\nlisten = '{here}:{admin}'\n\
             [timestamp]\nenabled = true\nlisten = '{here}:{thrift}'\nfile = '{}'\n\
             [journal]\ndata_dir = '{}'\n\
             [tls]\ncert = '{}'\nkey = '{}'\n\
             [callbacks]\nsigning_secrets_file = '{}'\n",
            path("timestamp"),
            path("data"),
            path("pki/127.0.0.1.pem"),
            path("pki/127.0.0.1.key"),
            path("webhook.secrets")
        );
        std::fs::write(folder.join("chronos.toml"), config).expect("written");
        let setting = Setting { folder: folder.to_owned(), secure: (here, secure).into() };
        setting.write_secret("bGV0IHRoaXMgYmUgb2YgdGhlIGxlbmd0aCBhc2tlZCBmb3I=");
        setting.tool(contained, &["timestamp", "init", "--file", &path("timestamp")]);
        setting
            .tool(contained, &["cluster", "certs", "--out", &path("pki"), "--node", "127.0.0.1"]);
        setting
    }

    fn write_secret(&self, secret: &str) {
        let path = self.folder.join("webhook.secrets");
        std::fs::write(&path, format!("whsec_{secret}\n")).expect("written");
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, own).expect("its own");
    }

    /// Puts another secret in place of the first, which a node notices by itself.
    pub fn change_secrets(&self) {
        self.write_secret("YW5kIHRoaXMgb25lIGlzIGFuIG90aGVyLCBvZiB0aGUgc2FtZQ==");
    }

    /// Runs a command of the binary to its end, which must be good.
    pub fn tool(&self, contained: &Contained, words: &[&str]) {
        let mut command = children::command(BINARY);
        command.args(words).env_clear().stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = contained.spawn(command).wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
    }

    /// Creates a timer over TLS.
    pub fn create_over_tls(&self, timer: &str) {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.folder.join("pki/ca.pem")).expect("made");
        roots.add(ca).expect("an authority");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::from(self.secure.ip());
        let session = ClientConnection::new(Arc::new(config), name).expect("a client");
        let stream = TcpStream::connect(self.secure).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut stream = StreamOwned::new(session, stream);
        let length = timer.len();
        let text =
            format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{timer}");
        stream.write_all(text.as_bytes()).expect("the node takes it");
        read_answer(&mut stream).expect("an answer").location();
    }
}

/// A node in a process of its own. The process ends when the value is dropped.
pub struct Node {
    process: Child,
    /// Where plain clients connect.
    pub plain: SocketAddr,
    /// The admin API.
    pub admin: SocketAddr,
    logged: Arc<Mutex<String>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    /// Starts a node, pinned to the cores of the machine.
    pub fn start(contained: &Contained, setting: &Setting) -> Node {
        let mut command = children::command(BINARY);
        command.env_clear().args(["--log-format", "json", "--config"]);
        command.arg(setting.folder.join("chronos.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = contained.spawn(command);
        let mut errors = BufReader::new(process.stderr.take().expect("piped"));
        let (mut plain, mut admin) = (None, None);
        let mut seen = String::new();
        while admin.is_none() {
            let mut line = String::new();
            let count = errors.read_line(&mut line).expect("text");
            assert!(count > 0, "the node ended before it said where it listens:\n{seen}");
            plain = plain.or(address_after("clients connect to http://", &line));
            admin = address_after("admin API on http://", &line);
            seen.push_str(&line);
        }
        let logged = Arc::new(Mutex::new(seen));
        let log = logged.clone();
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                writeln!(log.lock().expect("no writer panics"), "{line}").expect("memory");
            }
        });
        let (plain, admin) = (plain.expect("told first"), admin.expect("the loop's end"));
        Node { process, plain, admin, logged }
    }

    fn logged(&self) -> String {
        self.logged.lock().expect("no writer panics").clone()
    }

    /// Waits until the log has this text.
    pub fn await_log(&self, text: &str) {
        until(text, PATIENCE, || self.logged().contains(text).then_some(()));
    }

    /// Sends a signal and waits until the log has what it leads to.
    pub fn signal(&self, name: &str, leads_to: &str) {
        assert!(signal(self.process.id(), name).success());
        self.await_log(leads_to);
    }

    /// Stops the node in order.
    pub fn stop(mut self) {
        assert!(signal(self.process.id(), "TERM").success());
        let status = self.process.wait().expect("a child");
        self.await_log("\"stopped\"");
        let logged = self.logged();
        assert!(status.success() && !logged.contains("panicked"), "{status:?}\n{logged}");
        let refused = ["Operation not permitted", "os error 1)", "not implemented"];
        assert!(!refused.iter().any(|told| logged.contains(told)), "{logged}");
    }
}

fn address_after(phrase: &str, line: &str) -> Option<SocketAddr> {
    let rest = line.split_once(phrase)?.1;
    let end = rest.find(|c: char| !"0123456789.:".contains(c)).unwrap_or(rest.len());
    rest[..end].trim_end_matches(':').parse().ok()
}
