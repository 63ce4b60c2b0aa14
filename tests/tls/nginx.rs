//! nginx as the callback server: a server that people know, with OpenSSL at the other end.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use kit::children::{Tied, parent_command, signal};
use kit::client::request;
use kit::ports::free_port;

use super::authorities::{Authority, Files};
use super::callbacks::{node, pop};
use super::harness::PATIENCE;

/// Where Debian has it, and where a path has it that knows no daemons.
const PROGRAM: &str = "/usr/sbin/nginx";

/// Whether nginx is installed. Says so if not.
fn is_there() -> bool {
    let is_there = std::path::Path::new(PROGRAM).exists();
    if !is_there {
        println!("nginx is not installed: this test has not looked at anything");
    }
    is_there
}

/// A server that answers 200. It ends when the value is dropped.
struct Nginx {
    master: Child,
    address: SocketAddr,
    files: Files,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        signal(self.master.id(), "TERM");
        // An error means that it has ended already.
        let _ = self.master.wait();
    }
}

/// One line of the access log.
#[derive(Debug)]
struct Line {
    /// The number of the connection.
    connection: u64,
    /// The number of the request on its connection, from 1.
    request: u64,
    /// Whether the connection went on where another one ended.
    is_resumed: bool,
    /// The version of TLS.
    version: String,
    status: u16,
    /// Whether the client's certificate was good: `NONE`, `SUCCESS`, `FAILED:...`.
    verified: String,
    path: String,
}

const FORMAT: &str = "$connection $connection_requests $ssl_session_reused $ssl_protocol $status \
                      $ssl_client_verify $request_uri";

impl Line {
    fn of(text: &str) -> Option<Line> {
        let words: Vec<&str> = text.split(' ').collect();
        let [connection, request, resumed, version, status, verified, path] = words[..] else {
            return None;
        };
        Some(Line {
            connection: connection.parse().ok()?,
            request: request.parse().ok()?,
            is_resumed: resumed == "r",
            version: version.to_owned(),
            status: status.parse().ok()?,
            verified: verified.to_owned(),
            path: path.to_owned(),
        })
    }
}

impl Nginx {
    /// Starts it with a certificate of the authority and more lines for its server.
    fn start(authority: &Authority, more: &str) -> Nginx {
        let files = Files::new(&authority.server());
        let address =
            SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(&[Ipv4Addr::LOCALHOST.into()])));
        let at = |name: &str| files.path(name).display().to_string();
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};\n", at(kind)));
        let text = format!(
            "daemon off;\nuser root;\nworker_processes 2;\npid {};\nerror_log {} notice;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n{}log_format seen '{FORMAT}';\naccess_log {} seen;\n\
             server {{\nlisten {address} ssl;\nserver_name localhost;\n\
             ssl_certificate {};\nssl_certificate_key {};\n{more}\n\
             location / {{ return 200 'ok'; }}\n}}\n}}\n",
            at("pid"),
            at("error"),
            folders.concat(),
            at("seen"),
            at("cert.pem"),
            at("key.pem"),
        );
        files.write("nginx.conf", &text, 0o644);
        // A master that is killed leaves its workers.
        let mut command = parent_command(PROGRAM);
        command.args(["-e", &at("error"), "-c", &at("nginx.conf")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut master = command.spawn_tied().expect("it runs");
        kit::until::until("nginx to listen", PATIENCE, || {
            let ended = master.try_wait().expect("a child can be asked");
            let told = || std::fs::read_to_string(files.path("error")).unwrap_or_default();
            assert!(ended.is_none(), "nginx ended: {}", told());
            TcpStream::connect(address).ok()
        });
        Nginx { master, address, files }
    }

    fn uri(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// What it has answered so far.
    fn seen(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.files.path("seen")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| Line::of(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Waits until it has answered so many.
    fn await_seen(&self, count: usize) -> Vec<Line> {
        kit::until::until("nginx's answers in its log", PATIENCE, || {
            let seen = self.seen();
            (seen.len() >= count).then_some(seen)
        })
    }

    /// Reads its configuration again: new workers take over, and the old ones end their work.
    fn reload(&self) {
        let log = || std::fs::read_to_string(self.files.path("error")).unwrap_or_default();
        let workers = || log().matches("start worker process ").count();
        let before = workers();
        assert!(signal(self.master.id(), "HUP").success());
        kit::until::until("new workers", PATIENCE, || (workers() >= before + 2).then_some(()));
    }

    fn logged(&self) -> PathBuf {
        self.files.path("error")
    }
}

#[test]
fn many_callbacks_take_few_handshakes() {
    const EACH: usize = 100;
    if !is_there() {
        return;
    }
    let authority = Authority::new();
    let (node, _files) = node(&authority, "connections_per_host_max = 2");
    let mut all = 0;
    for version in ["TLSv1.2", "TLSv1.3"] {
        let nginx = Nginx::start(&authority, &format!("ssl_protocols {version};"));
        (0..EACH).for_each(|number| drop(pop(&node, &nginx.uri(&format!("/{number}")))));
        all += EACH as u64;
        node.await_metric("chronos_pops_delivered_total", all);
        let seen = nginx.await_seen(EACH);
        assert_eq!(seen.len(), EACH);
        assert!(seen.iter().all(|line| line.version == version && line.status == 200));
        // Two cores with two connections each.
        let begun = seen.iter().filter(|line| line.request == 1).count();
        assert!(begun <= 4, "{begun} connections");
    }
    assert_eq!(node.metric("chronos_pops_failed_total"), 0);
    assert!(node.metric("chronos_callbacks_tls_handshakes_total") <= 8);
}

/// The server ends each connection behind its fifth answer, as servers do behind their thousandth.
#[test]
fn further_connections_to_it_go_on_where_others_ended() {
    const EACH: usize = 60;
    if !is_there() {
        return;
    }
    let authority = Authority::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (node, _files) = node(&authority, "connections_per_host_max = 1");
        let more = format!("ssl_protocols {version};\nkeepalive_requests 5;");
        let nginx = Nginx::start(&authority, &more);
        (0..EACH).for_each(|number| drop(pop(&node, &nginx.uri(&format!("/{number}")))));
        node.await_metric("chronos_pops_delivered_total", EACH as u64);
        let seen = nginx.await_seen(EACH);
        assert_eq!(seen.len(), EACH, "none comes twice");
        let begun: Vec<_> = seen.iter().filter(|line| line.request == 1).collect();
        assert!(begun.len() >= EACH / 5 && begun.len() <= EACH / 5 + 2, "{} begun", begun.len());
        let full = begun.iter().filter(|line| !line.is_resumed).count();
        assert!(full <= 2, "one of each core: {begun:?}");
        assert_eq!(node.metric("chronos_pops_failed_total"), 0);
    }
}

/// nginx shakes hands with those who have no certificate, and answers them 400.
#[test]
fn one_that_asks_gets_the_certificate() {
    if !is_there() {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let shown = Files::new(&clients.client());
    shown.write("ca.pem", &clients.pem(), 0o644);
    for version in ["TLSv1.2", "TLSv1.3"] {
        let more = format!(
            "ssl_protocols {version};\nssl_verify_client on;\nssl_client_certificate {};",
            shown.path("ca.pem").display()
        );
        let nginx = Nginx::start(&authority, &more);
        let (without, _files) = node(&authority, "give_up_ms = 0");
        pop(&without, &nginx.uri("/without"));
        without.await_metric("chronos_pops_failed_total", 1);
        let (cert, key) = (shown.path("cert.pem"), shown.path("key.pem"));
        let lines = format!("client_cert = '{}'\nclient_key = '{}'", cert.display(), key.display());
        let (with, _files) = node(&authority, &lines);
        pop(&with, &nginx.uri("/with"));
        with.await_metric("chronos_pops_delivered_total", 1);
        let seen = nginx.await_seen(2);
        let told: Vec<_> =
            seen.iter().map(|it| (&it.path[..], it.status, &it.verified[..])).collect();
        assert_eq!(told, [("/without", 400, "NONE"), ("/with", 200, "SUCCESS")]);
    }
}

/// While callbacks are made, nginx reads its configuration again and again. Its old workers close
/// connections that wait for a request, and one may be on its way. nginx has not read such a
/// request, and the node sends it once more on a new connection, without an attempt lost: so each
/// callback is answered once, and none fails.
#[test]
fn a_reload_under_load_loses_nothing_and_doubles_nothing() {
    const TIMERS: usize = 600;
    const RELOADS: usize = 6;
    if !is_there() {
        return;
    }
    let authority = Authority::new();
    // An attempt that fails is the last one.
    let (node, _files) = node(&authority, "give_up_ms = 0");
    let nginx = Nginx::start(&authority, "");
    for number in 0..TIMERS {
        let body = format!(
            "{{\"timing\":{{\"interval\":0.{:03}}},\"callback\":{{\"http\":{{\"uri\":\"{}\",\
             \"opaque\":\"hello\"}}}}}}",
            number % 50,
            nginx.uri(&format!("/{number}"))
        );
        assert_eq!(request(node.plain, "POST", "/timers", &body).expect("an answer").status, 200);
        if number % (TIMERS / RELOADS) == 0 {
            nginx.reload();
        }
    }
    node.await_metric("chronos_pops_delivered_total", TIMERS as u64);
    assert_eq!(node.metric("chronos_pops_failed_total"), 0);
    let seen = nginx.await_seen(TIMERS);
    let mut answered: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &seen {
        assert_eq!(line.status, 200, "{line:?}");
        *answered.entry(&line.path).or_default() += 1;
    }
    let doubled: Vec<_> = answered.iter().filter(|(_, count)| **count > 1).collect();
    assert_eq!((answered.len(), doubled.len()), (TIMERS, 0), "{doubled:?}");
    let mut connections: Vec<u64> = seen.iter().map(|line| line.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    println!("{TIMERS} callbacks on {} connections, {RELOADS} reloads", connections.len());
    let told = std::fs::read_to_string(nginx.logged()).expect("a log");
    assert!(!told.contains("[error]") && !told.contains("[crit]"), "{told}");
}
