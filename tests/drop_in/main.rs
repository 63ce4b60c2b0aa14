//! A node in place of one of the original service: its flags, INI files, pid file, daemon and
//! signals (docs/compat/timer-service.md §2), as an existing deployment uses them. What public
//! deployments have and send stands in [`corpus`], in our own words and with other addresses.

mod corpus;
mod names;
mod signals;
mod snmp;

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use kit::children::{self, Guard, Tied, signal};
use kit::client::{self, Answer};
use kit::ports;
use tempfile::TempDir;

/// Longest wait for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// The files of one node on an address of its own, and the process if it is our child.
struct Node {
    folder: TempDir,
    bind: SocketAddr,
    admin: SocketAddr,
    process: Option<Child>,
    /// Its pid file names a daemon that this test started and has not seen end.
    daemon: Option<Guard>,
    /// Whether `dns.json` is named.
    dns_file: bool,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error means that it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        } else if let Some(pid) = self.pid().filter(|_| self.daemon.is_some()) {
            signal(pid, "KILL");
        }
        if std::thread::panicking() {
            eprintln!("-- the node on {} said:\n{}", self.bind, self.logged());
        }
    }
}

fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    kit::until::until(what, PATIENCE, look)
}

/// The answer; `None`: nobody listens.
fn request(to: SocketAddr, method: &str, path: &str, body: &str) -> Option<Answer> {
    client::request(to, method, path, body).ok()
}

impl Node {
    /// Number `place` of a test: an address that no other test target uses.
    fn new(place: u8) -> Node {
        let host = IpAddr::from([127, 0, 0, 40 + place]);
        let free = || SocketAddr::new(host, ports::free_port(&[host]));
        let (bind, admin) = (free(), free());
        let folder = tempfile::Builder::new().prefix("chronos-drop-in-").tempdir().expect("room");
        let node = Node { folder, bind, admin, process: None, daemon: None, dns_file: false };
        let (ip, port) = (bind.ip(), bind.port());
        node.write(
            "local",
            &format!(
                "[http]\nbind-address = {ip} # this node\nbind-port = {port}\nthreads = 50\n\n\
                 [logging]\nfolder = {}\nlevel = 5\n\n[admin]\nlisten = {admin}\n\n\
                 [node]\npin = false\nshards = 1\n",
                node.folder.path().display()
            ),
        );
        node.write("shared", "");
        node.write_members(&[]);
        node
    }

    fn file(&self, what: &str) -> PathBuf {
        self.folder.path().join(what)
    }

    fn write(&self, what: &str, text: &str) {
        std::fs::write(self.file(what), text).expect("a file in the test's folder");
    }

    fn write_members(&self, members: &[&Node]) {
        let mut text = format!("[cluster]\nlocalhost = {}\n", self.bind);
        for member in members {
            writeln!(text, "node = {}", member.bind).expect("memory");
        }
        self.write("cluster", &text);
    }

    fn command(&self) -> Command {
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        for (flag, what) in [
            ("--local-config-file", "local"),
            ("--cluster-config-file", "cluster"),
            ("--shared-config-file", "shared"),
            ("--pidfile", "pid"),
        ] {
            command.arg(flag).arg(self.file(what));
        }
        if self.dns_file {
            command.arg("--dns-config-file").arg(self.file("dns.json"));
        }
        command.env_clear().stdin(Stdio::null());
        command
    }

    /// Starts it in the foreground, its words going to `log`.
    fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.file("log"));
        let log = log.expect("a file in the test's folder");
        let process = self.command().stdout(Stdio::null()).stderr(log).spawn_tied();
        self.process = Some(process.expect("the binary runs"));
        self.await_ping();
        // Written before the port opened.
        assert_eq!(self.pid(), self.process.as_ref().map(Child::id), "{}", self.logged());
    }

    fn await_ping(&mut self) {
        until("an answer", || {
            if let Some(process) = &mut self.process {
                let ended = process.try_wait().expect("a child can be asked");
                assert!(ended.is_none(), "{ended:?}: {}", self.logged());
            }
            request(self.bind, "GET", "/ping", "").filter(|answer| answer.status == 200)
        });
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// What the pid file says.
    fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.file("pid")).ok()?.trim().parse().ok()
    }

    fn signal(&self, name: &str) {
        let pid = self.pid().expect("a pid file");
        let sent = signal(pid, name);
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Waits until the log has so many lines with `word`.
    fn await_log(&self, word: &str, count: usize) {
        until(word, || (self.logged().matches(word).count() >= count).then_some(()));
    }

    /// A sum over the samples of a metric.
    fn metric(&self, name: &str) -> Option<f64> {
        let text = request(self.admin, "GET", "/metrics", "")?.body;
        let samples = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        samples.map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn await_peers_alive(&self, count: f64) {
        until("peers", || (self.metric("chronos_peers_alive") == Some(count)).then_some(()));
    }

    /// A daemon's parent is whoever takes orphans, and may be slow to look at its end.
    fn await_end_of(&mut self, pid: u32) {
        until("the daemon to end", || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z ").then_some(()),
            Err(_) => Some(()),
        });
        self.daemon = None;
        assert!(request(self.bind, "GET", "/ping", "").is_none());
    }

    fn end(&mut self) -> ExitStatus {
        self.signal("TERM");
        let mut process = self.process.take().expect("it runs");
        until("the end", || process.try_wait().expect("a child can be asked"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Standard error of a start that must fail with `code`.
fn failure(output: &Output, code: i32) -> String {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains("error: ") && !errors.contains("panicked"), "{errors}");
    errors
}

#[test]
fn two_nodes_know_each_other_by_their_files() {
    let (mut one, mut two) = (Node::new(1), Node::new(2));
    one.write_members(&[&one, &two]);
    two.write_members(&[&one, &two]);
    one.start();
    two.start();
    one.await_peers_alive(1.0);
    two.await_peers_alive(1.0);
    let timer = "{\"timing\":{\"interval\":3600},\"callback\":{\"http\":{\"uri\":\
                 \"http://127.0.0.1:9/x\",\"opaque\":\"\"}},\
                 \"reliability\":{\"replication-factor\":2}}";
    let created = request(one.bind, "POST", "/timers", timer).expect("an answer");
    assert_eq!(created.status, 200, "{created:?}");
    let location = created.location();
    // Acknowledged, so the other has it; but where a busy machine gave the other no time for 1 s.
    until("the other to have it", || (two.metric("chronos_timers") == Some(1.0)).then_some(()));
    let mut killed = one.process.take().expect("it runs");
    killed.kill().expect("a child can be killed");
    killed.wait().expect("it ends");
    let answer = request(two.bind, "GET", location, "").expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
    // Its file stays behind unlocked, and keeps nobody from starting.
    assert!(one.pid().is_some());
    one.start();
    two.await_peers_alive(1.0);
    assert!(one.end().success() && two.end().success());
    assert!(one.pid().is_none(), "the pid file goes with the process");
}

#[test]
fn a_reload_changes_the_members_and_a_bad_one_changes_nothing() {
    let (mut one, mut two) = (Node::new(3), Node::new(4));
    two.write_members(&[&one, &two]);
    one.start();
    two.start();
    assert_eq!(one.metric("chronos_peers_alive"), Some(0.0));
    one.write_members(&[&one, &two]);
    one.signal("HUP");
    one.await_peers_alive(1.0);
    let members = format!("localhost = {}\nnode = {}\n", one.bind, one.bind);
    for (number, (bad, told)) in [
        (format!("[cluster]\n{members}node {}\n", two.bind), "cluster:4: not valid INI"),
        ("[cluster]\nnode = 127.0.0.1:1\n".into(), "no list has that address"),
        (
            format!("[cluster]\nlocalhost = {0}\nnode = {0}\n", two.bind),
            "restart it to give it another address",
        ),
        (format!("[cluster]\n{members}node = {0}\nnode = {0}\n", two.bind), "listed twice"),
    ]
    .iter()
    .enumerate()
    {
        one.write("cluster", bad);
        one.signal("HUP");
        one.await_log("not reloaded", number + 1);
        assert!(one.logged().contains(told), "{told} not in {}", one.logged());
    }
    std::fs::remove_file(one.file("cluster")).expect("there");
    one.signal("HUP");
    one.await_log("is gone", 1);
    assert_eq!(one.metric("chronos_peers_alive"), Some(1.0), "the old members stay");
    one.write_members(&[&one, &two]);
    one.signal("HUP");
    one.await_log("the members are the same", 1);
    one.signal("USR1");
    one.await_log("SIGUSR1: comparing all timers", 1);
    assert!(one.end().success() && two.end().success(), "{}", one.logged());
}

#[test]
fn nodes_that_contradict_each_other_are_told() {
    let (mut one, mut two, mut stranger) = (Node::new(11), Node::new(12), Node::new(13));
    let same = "[identity]\ninstance_id = 7\n";
    one.write("shared", same);
    two.write("shared", same);
    one.write_members(&[&one, &two]);
    two.write_members(&[&one, &two]);
    stranger.write_members(&[&one, &stranger]);
    one.start();
    two.start();
    stranger.start();
    one.await_log("has this node's instance and deployment ids", 1);
    one.await_log("a node that is no member connects", 1);
    stranger.await_log("a peer refuses this node", 1);
    // A second process with the name of `one`.
    stranger.end();
    stranger.write("cluster", &std::fs::read_to_string(one.file("cluster")).expect("there"));
    stranger.start();
    two.await_log("two processes say that they are the same node", 1);
}

/// Receivers of the original's callbacks get the bytes that they know, unless the deployment asks
/// for more.
#[test]
fn callbacks_have_the_headers_of_the_original_unless_more_are_asked_for() {
    let mut node = Node::new(12);
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let at = SocketAddr::new(node.bind.ip(), 0);
    let (sink, _) = kit::callbacks::serve(at, move |callback| {
        told.lock().expect("no panic").send(callback.head.clone()).expect("somebody hears");
        kit::callbacks::Reaction::OK
    });
    let timer = format!(
        "{{\"timing\":{{\"interval\":0}},\"callback\":{{\"http\":{{\"uri\":\
         \"http://{sink}/x\",\"opaque\":\"\"}}}}}}"
    );
    let callback_of = |node: &Node| {
        let created = request(node.bind, "POST", "/timers", &timer).expect("an answer");
        assert_eq!(created.status, 200, "{created:?}");
        heard.recv_timeout(PATIENCE).expect("a callback")
    };
    node.start();
    let expected = format!(
        "POST /x HTTP/1.1\r\nHost: {sink}\r\nContent-Type: application/octet-stream\r\n\
         X-Sequence-Number: 1\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(callback_of(&node), expected);
    assert!(node.end().success());
    node.write("shared", "[callbacks]\ntimer_headers = true\n");
    node.start();
    let head = callback_of(&node);
    assert!(head.contains("\r\nX-Attempt: 1\r\n"), "{head}");
}

#[test]
fn a_pid_file_has_one_process() {
    let mut node = Node::new(5);
    node.start();
    let pid = node.pid().expect("a pid file");
    let other = Node::new(6);
    std::fs::copy(other.file("local"), node.file("local")).expect("copied");
    let refused = failure(&node.command().output_tied().expect("the binary runs"), 1);
    assert!(refused.contains(&format!("process {pid} runs already")), "{refused}");
    assert_eq!(node.pid(), Some(pid));
    assert!(request(other.bind, "GET", "/ping", "").is_none(), "the port was never opened");
    assert!(node.end().success());
    other.write("local", &format!("[http]\nbind-address = {}\n", other.bind.ip()));
    let nowhere = other.command().arg("--check-config").output_tied().expect("the binary runs");
    assert!(nowhere.status.success() && other.pid().is_none(), "a check takes no pid file");
}

#[test]
fn a_daemon_is_ready_when_its_launcher_ends() {
    let mut node = Node::new(7);
    node.daemon = Some(Guard::of_daemon(&node.file("pid")));
    let output = node.command().arg("--daemon").output_tied().expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((output.stdout.len(), text(&output.stderr)), (0, String::new()));
    assert_eq!(request(node.bind, "GET", "/ping", "").map(|answer| answer.status), Some(200));
    let log = node.file("chronos_current.txt");
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(logged().contains("clients connect to"), "{}", logged());
    // As a second one is started: refused while the first goes on.
    let refused = node.command().arg("--daemon").output_tied().expect("the binary runs");
    assert!(failure(&refused, 1).contains("runs already"));
    // As a log is rotated.
    std::fs::rename(&log, node.file("chronos_before.txt")).expect("renamed");
    node.signal("HUP");
    until("a new log", || logged().contains("the members are the same").then_some(()));
    let pid = node.pid().expect("a pid file");
    let working = std::fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs");
    assert_eq!(working.to_str(), Some("/"));
    node.signal("TERM");
    until("the pid file to go", || node.pid().is_none().then_some(()));
    assert!(logged().contains("\"stopped\""), "{}", logged());
    node.await_end_of(pid);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let node = Node::new(8);
    // A socket without SO_REUSEPORT keeps others out, whatever they ask for.
    let taken = kit::ports::listen(node.bind);
    let errors = failure(&node.command().arg("--daemon").output_tied().expect("it runs"), 1);
    assert!(errors.contains(&format!("cannot listen on {}", node.bind)), "{errors}");
    assert!(node.pid().is_none());
    drop(taken);
    std::fs::write(node.file("folder"), "a file").expect("written");
    let folder = node.file("folder").display().to_string();
    node.write("local", &format!("[logging]\nfolder = {folder}\n"));
    let errors = failure(&node.command().arg("--daemon").output_tied().expect("it runs"), 1);
    assert!(errors.contains("cannot log to") && errors.contains(&folder), "{errors}");
    node.write("local", "[http]\nbind-port = many\n");
    let errors = failure(&node.command().arg("--daemon").output_tied().expect("it runs"), 2);
    assert!(errors.contains("local:2: [http] bind-port"), "{errors}");
    assert!(node.pid().is_none());
}

#[test]
fn files_are_judged_before_anything_starts() {
    let node = Node::new(9);
    let check = || node.command().arg("--check-config").output_tied().expect("the binary runs");
    assert!(check().status.success());
    node.write("shared", "[sites]\nlocal_sit = x\n");
    let warned = check();
    assert!(warned.status.success());
    let errors = text(&warned.stderr);
    assert!(errors.contains("shared:2: unknown key \"local_sit\" in [sites]"), "{errors}");
    assert!(errors.contains("did you mean local_site?"), "{errors}");
    node.write("shared", "[sites\n");
    node.write("cluster", "[cluster]\nlocalhost = a\nnode = b\n\u{1}\n");
    for errors in
        [failure(&check(), 2), failure(&node.command().output_tied().expect("it runs"), 2)]
    {
        for told in ["shared:1: not valid INI: expected a \"]\"", "cluster:4: not valid INI"] {
            assert!(errors.contains(told), "{told} not in {errors}");
        }
    }
    std::fs::remove_file(node.file("shared")).expect("there");
    std::fs::remove_file(node.file("cluster")).expect("there");
    let printed = node.command().arg("--print-config").output_tied().expect("the binary runs");
    let shown = text(&printed.stdout);
    for setting in
        [&format!("listen = \"{}\"", node.bind), "localhost = \"127.0.0.1:7253\"", "pin = false"]
    {
        assert!(shown.contains(setting), "{setting} not in {shown}");
    }
    assert_eq!(text(&printed.stderr).matches("no such file; its defaults hold").count(), 2);
}

#[test]
fn toml_nodes_reload_their_members_too() {
    let mut node = Node::new(10);
    let toml = |joining: &str| {
        format!(
            "[node]\nlisten = '{0}'\npin = false\nshards = 1\n[admin]\nlisten = '{1}'\n\
             [cluster]\nnodes = ['{0}']\njoining = [{joining}]\npromotion = false\n",
            node.bind, node.admin
        )
    };
    node.write("toml", &toml(""));
    let log = std::fs::File::create(node.file("log")).expect("a file in the test's folder");
    let process = children::command(env!("CARGO_BIN_EXE_chronos"))
        .arg("--config")
        .arg(node.file("toml"))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn_tied()
        .expect("the binary runs");
    node.write("toml2", &toml("'127.0.0.49:1'"));
    let pid = process.id();
    node.process = Some(process);
    node.await_ping();
    node.write("pid", &pid.to_string());
    std::fs::rename(node.file("toml2"), node.file("toml")).expect("renamed");
    node.signal("HUP");
    node.await_log("the cluster has 1 nodes, 1 joining", 1);
    node.write("toml", "[cluster\n");
    node.signal("HUP");
    node.await_log("not valid TOML", 1);
    assert!(node.end().success(), "{}", node.logged());
}

/// The files where the original's package puts them make a machine one of its deployment: no flag
/// says so. Seen in a mount namespace of its own, which only root may make.
#[test]
fn the_files_of_an_installed_original_are_taken_without_a_flag() {
    let mut node = Node::new(11);
    let script = "mount -t tmpfs none /etc && mkdir /etc/chronos \
                  && cp \"$1\" /etc/chronos/chronos.conf \
                  && cp \"$2\" /etc/chronos/chronos_cluster.conf && exec \"$3\"";
    let log = std::fs::File::create(node.file("log")).expect("a file in the test's folder");
    let mut command = children::command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(node.file("local")).arg(node.file("cluster")).arg(env!("CARGO_BIN_EXE_chronos"));
    let may = children::command("unshare").args(["--mount", "true"]).output_tied();
    if !may.is_ok_and(|output| output.status.success()) {
        eprintln!("CANNOT RUN HERE: unshare --mount is refused; run the tests as root");
        return;
    }
    command.env("PATH", std::env::var_os("PATH").expect("a path")).stdin(Stdio::null());
    let process = command.stdout(Stdio::null()).stderr(log).spawn_tied().expect("unshare runs");
    let pid = process.id();
    node.process = Some(process);
    node.await_ping();
    // As the original: a cluster file of this node alone, and the admin API of its local file.
    assert!(node.metric("chronos_timers").is_some(), "{}", node.logged());
    node.write("pid", &pid.to_string());
    assert!(node.end().success(), "{}", node.logged());
}
