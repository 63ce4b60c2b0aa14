//! Nodes in processes of their own, and what is asked of their APIs.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Stdio};

use kit::callbacks::{Reaction, serve};
use kit::children::{self, Tied};
use kit::client::{Answer, request, request_with};
use kit::ports::free_port;
use kit::until::{PATIENCE, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tempfile::TempDir;

/// A node that ends with the value.
pub struct Node {
    process: Child,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    _folder: TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address with a port that is free.
pub fn place() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(&[IpAddr::V4(Ipv4Addr::LOCALHOST)])))
}

impl Node {
    /// Starts a node of one shard with a journal and these further lines of TOML.
    pub fn start(lines: &str) -> Node {
        Node::start_at(place(), place(), lines)
    }

    /// The same at these addresses.
    pub fn start_at(address: SocketAddr, admin: SocketAddr, lines: &str) -> Node {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chronos.toml");
        let data = folder.path().join("data");
        let mut text = format!("[journal]\ndata_dir = {:?}\n", data.display().to_string());
        writeln!(text, "{lines}").expect("memory");
        std::fs::write(&path, text).expect("written");
        let process = children::command(env!("CARGO_BIN_EXE_chronos"))
            .env_clear()
            .args(["--listen", &address.to_string(), "--admin", &admin.to_string()])
            .args(["--shards", "1", "--no-pin", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn_tied()
            .expect("the binary runs");
        let node = Node { process, address, admin, _folder: folder };
        until("the node", PATIENCE, || request(admin, "GET", "/healthz", "").ok());
        node
    }

    /// Ends the process at once.
    pub fn kill(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// The address of the console.
    pub fn console(&self) -> String {
        format!("http://{}/", self.admin)
    }

    /// Asks the admin API.
    pub fn ask(&self, path: &str) -> Answer {
        request(self.admin, "GET", path, "").expect("an answer")
    }

    /// The JSON document that the admin API answers.
    pub fn document(&self, path: &str) -> Value {
        let answer = self.ask(path);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{path}: {answer:?}"))
    }

    /// Gives an order.
    pub fn order(&self, method: &str, path: &str, body: &str) -> Answer {
        request_with(self.admin, method, path, "X-Chronos-Order: 1\r\n", body).expect("an answer")
    }

    /// Creates a timer. Returns its path.
    pub fn create(&self, timer: &Value) -> String {
        let answer = request(self.address, "POST", "/timers", &timer.to_string());
        answer.expect("an answer").location().to_owned()
    }

    /// Creates a timer under a name, which stands percent-encoded in a path. Returns its path.
    pub fn create_named(&self, name: &str, timer: &Value) -> String {
        let path = format!("/timers/by-name/{name}");
        let answer = request(self.address, "PUT", &path, &timer.to_string());
        answer.expect("an answer").location().to_owned()
    }

    /// Whether clients find a timer.
    pub fn holds(&self, path: &str) -> bool {
        request(self.address, "GET", path, "").expect("an answer").status == 200
    }
}

/// A timer that pops once after so many seconds.
pub fn timer(interval: f64, host: SocketAddr) -> Value {
    json!({
        "timing": { "interval": interval },
        "callback": { "http": { "uri": format!("http://{host}/call"), "opaque": "any text" } },
        "statistics": { "tag-info": [{ "type": "CALL", "count": 1 }] },
    })
}

/// A callback server that answers with a status. Returns its address and how often it was called.
pub fn callback_server(status: u16) -> (SocketAddr, Arc<AtomicUsize>) {
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let (address, _) = serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), move |_| {
        counted.fetch_add(1, SeqCst);
        Reaction::Status(status)
    });
    (address, called)
}
