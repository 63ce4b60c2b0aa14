//! `chronos cluster` against real nodes: every node a process with a TOML file of its own on
//! 127.0.0.21 to 127.0.0.24, ports that are free, operators who interrupt, repeat and err.

mod site_commands;
mod sites;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kit::callbacks::{Reaction, serve};
use kit::children::{self, Tied, signal};
use kit::client::request_with;
use kit::{noise, ports};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Places of a cluster: 127.0.0.21 to 127.0.0.24.
const PLACES: usize = 4;
/// Longest wait for anything that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A rank acts so long after the one before it: what came within it has waited for no other.
const RANK_DELAY: Duration = Duration::from_secs(2);
/// Timers of a story.
const TIMERS: usize = 60;
/// Long enough for a join and a leave before the pops. A story that is slower is told again.
const INTERVAL: Duration = Duration::from_secs(20);
/// Longest time for all tellings of a story.
const TELLINGS: Duration = Duration::from_secs(300);

/// A cluster in the making, ended with the value.
struct Cluster {
    folder: TempDir,
    port: u16,
    admin_port: u16,
    processes: Vec<Option<Child>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            // An error means that it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        for place in (0..PLACES).filter(|_| thread::panicking()) {
            if let Ok(text) = fs::read_to_string(self.file(place, "log")) {
                eprintln!("-- node {place} said:\n{text}");
            }
        }
    }
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    errors: String,
}

impl Cluster {
    fn new() -> Cluster {
        let hosts: Vec<_> = (0..PLACES).map(Cluster::host).collect();
        let (port, admin_port) = (ports::free_port(&hosts), ports::free_port(&hosts));
        let folder = tempfile::Builder::new().prefix("chronos-cli-").tempdir().expect("room");
        Cluster { folder, port, admin_port, processes: (0..PLACES).map(|_| None).collect() }
    }

    /// Nodes that are members of one cluster, running.
    fn running(places: &[usize]) -> Cluster {
        let mut cluster = Cluster::new();
        places.iter().for_each(|place| cluster.write(*place, places));
        places.iter().for_each(|place| cluster.spawn(*place));
        places.iter().for_each(|place| cluster.await_members(*place, places));
        cluster
    }

    /// Starts a node that knows nobody.
    fn start_alone(&mut self, place: usize) {
        self.write(place, &[]);
        self.spawn(place);
        self.await_members(place, &[place]);
    }

    fn host(place: usize) -> IpAddr {
        IpAddr::from([127, 0, 0, 21 + place as u8])
    }

    fn name(&self, place: usize) -> String {
        format!("{}:{}", Self::host(place), self.port)
    }

    fn names(&self, places: &[usize]) -> Vec<String> {
        places.iter().map(|place| self.name(*place)).collect()
    }

    fn admin(&self, place: usize) -> SocketAddr {
        SocketAddr::new(Self::host(place), self.admin_port)
    }

    fn file(&self, place: usize, what: &str) -> PathBuf {
        self.folder.path().join(format!("node{place}.{what}"))
    }

    fn text(&self, place: usize) -> String {
        fs::read_to_string(self.file(place, "toml")).expect("written before")
    }

    /// Writes a node's file; nobody in `members` means that it has no such list.
    fn write(&self, place: usize, members: &[usize]) {
        let mut text = format!(
            "# node {place}\n[node]\nlisten = \"{}\"\nshards = 2\npin = false\n\
             instance_id = {}\n\n[admin]\nlisten = \"{}\"\n",
            self.name(place),
            place + 1,
            self.admin(place)
        );
        if !members.is_empty() {
            let names = self.names(members).join("\", \"");
            text +=
                &format!("\n[cluster]\nnodes = [\"{names}\"] # all of us\nheartbeat_ms = 100\n");
        }
        fs::write(self.file(place, "toml"), text).expect("a file in the test's folder");
    }

    fn spawn(&mut self, place: usize) {
        self.spawn_with(place, |_| {});
    }

    fn spawn_with(&mut self, place: usize, set: impl FnOnce(&mut Command)) {
        let log = File::create(self.file(place, "log")).expect("a file in the test's folder");
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.arg("--config").arg(self.file(place, "toml")).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        set(&mut command);
        self.processes[place] = Some(command.spawn_tied().expect("the binary runs"));
    }

    fn kill(&mut self, place: usize) {
        let mut process = self.processes[place].take().expect("it runs");
        process.kill().expect("a child can be killed");
        process.wait().expect("it ends");
    }

    /// Waits until a node has these members and believes all of them alive.
    fn await_members(&self, place: usize, places: &[usize]) {
        let wanted: BTreeSet<String> = self.names(places).into_iter().collect();
        until(&format!("node {place} to see its members"), || {
            let (_, text) = http(self.admin(place), "GET", "/cluster", "").ok()?;
            let document: Value = serde_json::from_str(&text).ok()?;
            let members = document["members"].as_array()?;
            let is_well = |member: &&Value| {
                ["self", "alive"].contains(&member["liveness"].as_str().unwrap_or_default())
            };
            let well = members.iter().filter(is_well);
            let names: BTreeSet<_> =
                well.filter_map(|member| member["name"].as_str().map(str::to_owned)).collect();
            (names == wanted).then_some(())
        });
    }

    /// Runs `chronos cluster` with these words and the admin API of a node.
    fn order(&self, place: usize, words: &[&str]) -> Ended {
        let admin = self.admin(place).to_string();
        run(&[&["cluster"], words, &["--admin", &admin]].concat())
    }

    /// The document that a node's admin API has now.
    fn look(&self, place: usize) -> Value {
        let (status, text) = http(self.admin(place), "GET", "/cluster", "").expect("it runs");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    fn put(&self, place: usize, document: &Value) -> (u16, String) {
        let admin = self.admin(place);
        http(admin, "PUT", "/cluster/membership", &document.to_string()).expect("it runs")
    }

    /// What `/status` and `/overview` call the state of a node.
    fn state(&self, place: usize) -> String {
        let told = ["/status", "/overview"].map(|path| {
            let (_, text) = http(self.admin(place), "GET", path, "").expect("it runs");
            let document: Value = serde_json::from_str(&text).expect("JSON");
            document["state"].as_str().expect("a word").to_owned()
        });
        assert_eq!(told[0], told[1]);
        told[0].clone()
    }

    fn timers_at(&self, place: usize) -> u64 {
        self.look(place)["timers"].as_u64().expect("a number")
    }

    fn timers_at_all(&self, places: &[usize]) -> u64 {
        places.iter().map(|place| self.timers_at(*place)).sum()
    }

    fn assert_members(&self, places: &[usize], members: &[usize]) {
        for place in places {
            let mut nodes: Vec<String> =
                serde_json::from_value(self.look(*place)["membership"]["nodes"].clone())
                    .expect("names");
            nodes.sort();
            assert_eq!(nodes, self.names(members), "members of node {place}");
            for name in self.names(members) {
                let is_alone = members.len() == 1 && members[0] == *place;
                assert!(is_alone || self.text(*place).contains(&format!("{name}\"")), "{name}");
            }
        }
    }

    /// Creates timers with factor 2 at these nodes in turn; returns when each was asked for.
    fn create(&self, places: &[usize], sink: &Sink) -> Vec<Instant> {
        let one = |number: usize| {
            let asked = Instant::now();
            let to = self.name(places[number % places.len()]).parse().expect("an address");
            let body = json!({
                "timing": { "interval": INTERVAL.as_secs() },
                "callback": { "http": {
                    "uri": format!("http://{}/pop/{number}", sink.address), "opaque": "x",
                } },
                "reliability": { "replication-factor": 2 },
            });
            let (status, text) = http(to, "POST", "/timers", &body.to_string()).expect("it runs");
            assert_eq!(status, 200, "{text}");
            asked
        };
        (0..TIMERS).map(one).collect()
    }
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), errors: text(output.stderr) }
    }

    #[track_caller]
    fn expect(&self, code: i32, told: &str) -> &Ended {
        assert_eq!(self.code, Some(code), "{self:?}");
        let text = if code == 0 { &self.out } else { &self.errors };
        assert!(text.contains(told) || self.out.contains(told), "{told:?} is not in {self:?}");
        assert!(!self.errors.contains("panicked"), "{self:?}");
        self
    }
}

/// An order under way, ended with the value.
struct Joining(Option<Child>);

impl Drop for Joining {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Joining {
    fn begin(cluster: &Cluster, place: usize, name: &str) -> Joining {
        Joining::ordered(cluster, place, &["cluster", "join", name])
    }

    fn ordered(cluster: &Cluster, place: usize, words: &[&str]) -> Joining {
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        let admin = cluster.admin(place).to_string();
        command.args(words).args(["--admin", &admin, "--timeout", "120"]);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Joining(Some(command.spawn_tied().expect("the binary runs")))
    }

    fn signal(&self, name: &str) {
        let pid = self.0.as_ref().expect("it runs").id();
        let sent = signal(pid, name);
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    fn await_end(mut self) -> Ended {
        let output = self.0.take().expect("it runs").wait_with_output().expect("it ends");
        Ended::of(output)
    }
}

fn run(words: &[&str]) -> Ended {
    let output = children::command(env!("CARGO_BIN_EXE_chronos"))
        .args(words)
        .env_clear()
        .stdin(Stdio::null())
        .output_tied()
        .expect("the binary runs");
    Ended::of(output)
}

/// Looks until there is something to see.
fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    kit::until::until(what, PATIENCE, look)
}

/// One request, an order to the admin API too; status and body.
fn http(to: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let answer = request_with(to, method, path, "X-Chronos-Order: 1\r\n", body)?;
    Ok((answer.status, answer.body))
}

/// A callback server that counts.
struct Sink {
    address: SocketAddr,
    /// Path to times of arrival.
    pops: Arc<Mutex<HashMap<String, Vec<Instant>>>>,
}

impl Sink {
    fn start() -> Sink {
        let pops: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
        let all = pops.clone();
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, _) = serve(anywhere, move |callback| {
            let mut pops = all.lock().expect("nobody panics with it");
            pops.entry(callback.path.clone()).or_default().push(callback.at);
            Reaction::OK
        });
        Sink { address, pops }
    }

    /// Waits for all timers; each must pop once, not early, and after so many ranks at most.
    /// Nothing: the machine was away for so long that other ranks have acted rightly.
    fn judge(&self, asked: &[Instant], ranks: u32) -> Option<()> {
        until("all to pop", || (self.seen().len() >= TIMERS).then_some(()));
        // A second pop of another rank would come after one rank delay.
        thread::sleep(RANK_DELAY + RANK_DELAY / 4);
        let pops = self.seen();
        let stalled = noise::since(asked[0]);
        for (number, asked) in asked.iter().enumerate() {
            let (path, due) = (format!("/pop/{number}"), *asked + INTERVAL);
            let times = pops.get(&path).unwrap_or_else(|| panic!("{path} is lost"));
            assert!(times[0] >= due, "{path} popped early");
            let is_right = times.len() == 1 && times[0] < due + RANK_DELAY * (ranks + 1);
            if !is_right && stalled >= RANK_DELAY / 4 {
                return None;
            }
            assert!(is_right, "{path} popped {:?} after {due:?}", times);
        }
        assert_eq!(pops.len(), TIMERS);
        Some(())
    }

    fn seen(&self) -> HashMap<String, Vec<Instant>> {
        self.pops.lock().expect("nobody panics with it").clone()
    }
}

/// Tells a story until the machine has not disturbed it.
fn tell(mut story: impl FnMut() -> Option<()>) {
    noise::watch();
    kit::until::until("a telling that was not disturbed", TELLINGS, &mut story);
}

/// Nothing if the first of these timers is due already: what is counted then says nothing.
fn expect_none_due(asked: &[Instant]) -> Option<()> {
    (Instant::now() < asked[0] + INTERVAL).then_some(())
}

#[test]
fn status_tells_who_is_there_and_what_is_wrong() {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let shown = cluster.order(1, &["status"]);
    shown.expect(0, "3 nodes, site site1, cluster view ");
    for name in cluster.names(&[0, 1, 2]) {
        let line = shown.out.lines().find(|line| line.starts_with(&name)).expect("a line each");
        assert!(line.contains("staying") && line.contains("alive"), "{line}");
        assert!(line.ends_with("at rest"), "{line}");
    }
    let shown = cluster.order(0, &["status", "--json"]);
    let document: Value = serde_json::from_str(&shown.expect(0, "").out).expect("JSON");
    assert_eq!(document["nodes"].as_array().expect("a list").len(), 3);
    assert_eq!(document["problems"], json!([]));
    let (_, text) = http(cluster.admin(2), "GET", "/status", "").expect("it runs");
    let status: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status["cluster"]["name"], cluster.name(2));
    cluster.kill(2);
    let told = format!("{} does not answer", cluster.name(2));
    cluster.order(0, &["status"]).expect(1, &told);
    until("the survivors to declare it dead", || {
        let told = format!("{} believes {} dead", cluster.name(0), cluster.name(2));
        cluster.order(0, &["status"]).out.contains(&told).then_some(())
    });
    until("the others to declare it dead", || {
        let told = format!("{} believes {} dead", cluster.name(1), cluster.name(2));
        cluster.order(0, &["status"]).out.contains(&told).then_some(())
    });
    let missing = format!("{} is missing", cluster.name(2));
    let part = cluster.order(0, &["resync"]);
    part.expect(1, &format!("incomplete: {missing}")).expect(1, "resynchronised: 2 of 3 nodes");
    let part = cluster.order(0, &["resync", "--json"]);
    let document: Value = serde_json::from_str(&part.expect(1, &missing).out).expect("JSON");
    assert_eq!(document["outcome"], "incomplete");
    assert_eq!(document["incomplete"].as_array().map(Vec::len), Some(1), "{document}");
}

#[test]
fn a_node_joins_and_another_leaves_while_timers_run() {
    tell(join_and_leave);
}

fn join_and_leave() -> Option<()> {
    let mut cluster = Cluster::running(&[0, 1]);
    let sink = Sink::start();
    let asked = cluster.create(&[0, 1], &sink);
    cluster.start_alone(2);
    let third = cluster.name(2);
    let joined = cluster.order(0, &["join", &third]);
    joined.expect(0, &format!("{third} joined: 3 nodes, "));
    cluster.assert_members(&[0, 1, 2], &[0, 1, 2]);
    let (held, its) = (cluster.timers_at_all(&[0, 1, 2]), cluster.timers_at(2));
    expect_none_due(&asked)?;
    assert_eq!(held, 2 * TIMERS as u64, "each is held twice");
    // Each of 60 timers is placed on the third node with probability 2/3.
    assert!(its > TIMERS as u64 / 3, "{its}");
    assert!(cluster.text(0).contains("] # all of us\n"), "{}", cluster.text(0));
    cluster.order(1, &["join", &third]).expect(0, "nothing to do");
    let first = cluster.name(0);
    let left = cluster.order(1, &["leave", &first, "--json"]);
    let document: Value = serde_json::from_str(&left.expect(0, "").out).expect("JSON");
    assert_eq!(document["outcome"], "done");
    assert_eq!(document["members"], json!(cluster.names(&[1, 2])));
    cluster.assert_members(&[1, 2], &[1, 2]);
    cluster.assert_members(&[0], &[0]);
    assert_eq!(cluster.timers_at(0), 0, "what leaves holds nothing");
    assert_eq!(cluster.state(0), "left");
    assert_eq!(cluster.state(1), "serving");
    let admin = cluster.admin(0).to_string();
    let top = run(&["top", "--once", "--every", "0.1", "--admin", &admin]);
    top.expect(0, "left its cluster, holds no timers");
    let held = (cluster.timers_at(1), cluster.timers_at(2));
    expect_none_due(&asked)?;
    assert!(document["moved"].as_u64() > Some(0), "{document}");
    assert_eq!(held, (TIMERS as u64, TIMERS as u64));
    // Until it is stopped it answers, and is no member.
    let shown = cluster.order(1, &["status", "--admin", &admin]);
    shown.expect(0, "2 nodes, site site1, cluster view ");
    shown.expect(0, &format!("{first} answers and is no member"));
    let resynchronised = cluster.order(1, &["resync", "--admin", &admin]);
    resynchronised.expect(0, "resynchronised: 2 of 2 nodes");
    cluster.kill(0);
    cluster.order(1, &["leave", &first]).expect(0, "nothing to do");
    cluster.order(1, &["resync"]).expect(0, "resynchronised: 2 of 2 nodes");
    sink.judge(&asked, 0)
}

#[test]
fn what_was_interrupted_goes_on_or_is_taken_back() {
    let mut cluster = Cluster::running(&[0, 1]);
    cluster.start_alone(2);
    let third = cluster.name(2);
    // As if the operator had been cut off after the first node.
    let (nodes, joining) = (cluster.names(&[0, 1]), [third.clone()]);
    let during = json!({ "nodes": nodes, "joining": joining });
    assert_eq!(cluster.put(0, &during).0, 200);
    cluster.order(1, &["status"]).expect(1, "members disagree");
    let fourth = cluster.name(3);
    cluster.start_alone(3);
    cluster.order(0, &["join", &fourth]).expect(1, &format!("chronos cluster join {third}"));
    cluster.order(1, &["join", &third]).expect(0, "3 nodes");
    cluster.assert_members(&[0, 1, 2], &[0, 1, 2]);
    // Interrupted in its first step, and not wanted any more.
    let leaving = json!({ "nodes": cluster.names(&[1, 2]), "leaving": cluster.names(&[0]) });
    assert_eq!(cluster.put(0, &leaving).0, 200);
    let first = cluster.name(0);
    cluster.order(1, &["join", &first]).expect(0, "3 nodes");
    cluster.assert_members(&[0, 1, 2], &[0, 1, 2]);
}

/// Two operators: while one joins a node, the other takes it back.
#[test]
fn an_order_that_was_taken_back_meanwhile_ends_and_undoes_nothing() {
    let mut cluster = Cluster::running(&[0, 1]);
    cluster.start_alone(2);
    let third = cluster.name(2);
    // One that has ended before it could be held up has not been disturbed: then once more.
    let join = until("a join that is held up", || {
        let join = Joining::begin(&cluster, 0, &third);
        let is_joining = |place: &usize| {
            let joining = &cluster.look(*place)["membership"]["joining"];
            joining.as_array().is_some_and(|names| !names.is_empty())
        };
        let is_begun = until("the join to be under way or over", || {
            let is_over = cluster.look(0)["membership"]["nodes"].as_array()?.len() == 3;
            (is_over || (0..3).all(|place| is_joining(&place))).then_some(!is_over)
        });
        join.signal("STOP");
        if is_begun && (0..3).all(|place| is_joining(&place)) {
            return Some(join);
        }
        join.signal("CONT");
        join.await_end().expect(0, "3 nodes");
        cluster.order(1, &["leave", &third]).expect(0, "2 nodes");
        None
    });
    cluster.order(1, &["leave", &third]).expect(0, "may be stopped now");
    join.signal("CONT");
    join.await_end().expect(1, "another order has changed the members");
    cluster.assert_members(&[0, 1], &[0, 1]);
    cluster.order(0, &["status"]).expect(0, "");
    let (ready, _) = http(cluster.admin(2), "GET", "/readyz", "").expect("it runs");
    assert_eq!(ready, 503, "it has left");
}

#[test]
fn a_dead_node_is_removed_and_its_timers_have_two_holders_again() {
    tell(remove_a_dead_node);
}

fn remove_a_dead_node() -> Option<()> {
    let mut cluster = Cluster::running(&[0, 1, 2]);
    let sink = Sink::start();
    let asked = cluster.create(&[0, 1, 2], &sink);
    let third = cluster.name(2);
    cluster.order(0, &["leave", "--dead", &third]).expect(1, "is not dead");
    cluster.kill(2);
    cluster.order(0, &["leave", &third]).expect(1, "chronos cluster leave --dead");
    until("the survivors to declare it dead", || {
        let left = cluster.order(0, &["leave", "--dead", &third]);
        (left.code == Some(0)).then_some(())
    });
    cluster.assert_members(&[0, 1], &[0, 1]);
    let held = (cluster.timers_at(0), cluster.timers_at(1));
    expect_none_due(&asked)?;
    assert_eq!(held, (TIMERS as u64, TIMERS as u64));
    // Those of the dead primary may be one rank late: once, and no more.
    sink.judge(&asked, 1)
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let mut cluster = Cluster::running(&[0, 1]);
    let (second, third) = (cluster.name(1), cluster.name(2));
    let before = cluster.text(0);
    run(&["cluster", "join"]).expect(2, "NODE");
    run(&["cluster"]).expect(2, "status");
    run(&["cluster", "join", "a", "--timeout", "0"]).expect(2, "--timeout");
    cluster.order(0, &["join", &third, &third]).expect(2, "named twice");
    cluster.order(2, &["status"]).expect(1, "Name the admin API of a live member with --admin");
    cluster.order(0, &["join", &third]).expect(1, &format!("not all nodes answer: {third}"));
    let everybody = cluster.names(&[0, 1]);
    let all = ["leave", &everybody[0], &everybody[1]];
    cluster.order(0, &all).expect(1, "no member left");
    let failed = cluster.order(0, &["join", &third, "--json"]);
    let document: Value = serde_json::from_str(&failed.expect(1, "").out).expect("JSON");
    assert_eq!(document["status"], Value::Null);
    let told = document["error"].as_str().expect("a text");
    assert!(told.starts_with(&format!("not all nodes answer: {third}")), "{told}");
    // By hand, on one node only.
    let disagree = json!({ "nodes": [cluster.name(0)] });
    assert_eq!(cluster.put(0, &disagree).0, 200);
    cluster.start_alone(2);
    let both = [cluster.admin(0).to_string(), cluster.admin(1).to_string()];
    run(&["cluster", "join", &third, "--admin", &both[0], "--admin", &both[1]])
        .expect(1, "members disagree");
    assert_eq!(cluster.put(0, &json!({ "nodes": everybody })).0, 200);
    assert_eq!(cluster.text(0), before, "the file is what it was");
    // Refused by the node itself.
    let (status, text) = cluster.put(0, &json!({ "nodes": [second] }));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("no list has that address"), "{text}");
    let stale = json!({ "nodes": everybody, "expected": { "nodes": [second] } });
    assert_eq!(cluster.put(0, &stale).0, 409);
    assert_eq!(cluster.text(0), before);
}

#[test]
fn a_file_that_cannot_be_read_any_more_changes_nothing_and_is_shown() {
    let cluster = Cluster::running(&[0, 1]);
    let good = cluster.text(0);
    let bad = good.replace("pin = false", "pin = perhaps");
    fs::write(cluster.file(0, "toml"), &bad).expect("writable");
    let (status, text) = http(cluster.admin(0), "POST", "/cluster/reload", "").expect("it runs");
    assert_eq!(status, 409, "{text}");
    assert!(
        text.contains("the configuration stays as it was") && text.contains("toml:5:"),
        "{text}"
    );
    cluster.order(1, &["status"]).expect(1, "the last reload failed");
    let wanted = json!({ "nodes": cluster.names(&[0, 1]), "joining": cluster.names(&[2]) });
    let (status, text) = cluster.put(0, &wanted);
    assert_eq!(status, 409, "{text}");
    assert_eq!(cluster.text(0), bad, "the operator's file is as it was");
    assert_eq!(cluster.look(0)["membership"]["joining"], json!([]));
    fs::write(cluster.file(0, "toml"), &good).expect("writable");
    let (status, text) = http(cluster.admin(0), "POST", "/cluster/reload", "").expect("it runs");
    assert_eq!(status, 200, "{text}");
    cluster.order(1, &["status"]).expect(0, "2 nodes");
}

#[test]
fn members_that_do_not_come_from_a_file_are_not_changed() {
    let mut cluster = Cluster::new();
    cluster.write(0, &[]);
    let name = cluster.name(0);
    cluster.spawn_with(0, |command| {
        command.env("CHRONOS_CLUSTER_NODES", &name);
    });
    cluster.await_members(0, &[0]);
    let before = cluster.text(0);
    let wanted = json!({ "nodes": cluster.names(&[0, 1]) });
    let (status, text) = cluster.put(0, &wanted);
    assert_eq!(status, 409, "{text}");
    assert!(text.contains("CHRONOS_CLUSTER_NODES"), "{text}");
    assert_eq!(cluster.text(0), before);
    cluster.start_alone(1);
    let joined = cluster.order(0, &["join", &cluster.name(1)]);
    let told = joined.expect(1, &format!("{name}: the members of this node come from"));
    assert!(told.errors.contains("No node was told anything"), "{told:?}");
    assert!(!told.errors.contains("told to"), "{told:?}");
    let [first, second] = [0, 1].map(|place| cluster.look(place)["membership"].clone());
    assert_eq!((&first["joining"], &second["joining"]), (&json!([]), &json!([])));
}

#[test]
fn members_of_an_existing_deployment_stay_in_its_own_file() {
    let mut cluster = Cluster::new();
    let (name, second) = (cluster.name(0), cluster.name(1));
    let local =
        format!("[http]\nbind-address = {}\nbind-port = {}\n", Cluster::host(0), cluster.port);
    let members = format!("# ours\n[cluster]\nlocalhost = {name}\nnode = {name}\n");
    for (what, text) in [("toml", "[node]\nshards = 1\npin = false\n"), ("local", &local)] {
        fs::write(cluster.file(0, what), text).expect("a file in the test's folder");
    }
    fs::write(cluster.file(0, "ini"), &members).expect("a file in the test's folder");
    let (local, ini) = (cluster.file(0, "local"), cluster.file(0, "ini"));
    let admin = cluster.admin(0).to_string();
    cluster.spawn_with(0, |command| {
        command.arg("--local-config-file").arg(local).arg("--cluster-config-file").arg(ini);
        command.arg("--shared-config-file").arg("/dev/null").args(["--admin", &admin]);
    });
    cluster.await_members(0, &[0]);
    let wanted = json!({ "nodes": [name], "joining": [second] });
    let (status, text) = cluster.put(0, &wanted);
    assert_eq!(status, 200, "{text}");
    let now = fs::read_to_string(cluster.file(0, "ini")).expect("there");
    assert_eq!(now, format!("{members}joining = {second}\n"));
    assert_eq!(cluster.put(0, &json!({ "nodes": [name] })).0, 200);
    assert_eq!(fs::read_to_string(cluster.file(0, "ini")).expect("there"), members);
}
