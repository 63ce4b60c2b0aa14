//! `chronos site add`, `remove` and `list` against real nodes: a site of two nodes, places 0 and 1,
//! and two sites of one node each, places 2 and 3.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Longest pause between a pop and its time that no site's turn explains: two sites before.
const TURNS: Duration = Duration::from_secs(6);

impl Cluster {
    /// Writes the file of a member of a site that knows no other site.
    fn write_member(&self, place: usize, members: &[usize], site: usize, more: &str) {
        self.write(place, members);
        let text = format!("{}{more}\n[sites]\nlocal = \"site{site}\"\n", self.text(place));
        fs::write(self.file(place, "toml"), text).expect("a file in the test's folder");
    }

    /// Runs `chronos site` with these words and the admin API of a node.
    fn site_order(&self, place: usize, words: &[&str]) -> Ended {
        let admin = self.admin(place).to_string();
        run(&[&["site"], words, &["--admin", &admin, "--timeout", "120"]].concat())
    }

    fn begin_site(&self, place: usize, words: &[&str]) -> Joining {
        Joining::ordered(self, place, &[&["site"], words].concat())
    }

    /// The names of the other sites that a node knows.
    fn sites_of(&self, place: usize) -> Vec<String> {
        let document = self.look(place);
        let sites = document["sites"].as_array().expect("a list").iter();
        let mut names: Vec<_> =
            sites.map(|site| site["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    }

    fn await_sites(&self, places: &[usize], names: &[&str]) {
        for place in places {
            until("a node to know the sites", || (self.sites_of(*place) == names).then_some(()));
        }
    }

    /// Makes two sites know each other, by the commands that operators give at both.
    fn introduce(&self, [one, other]: [(usize, &[&str]); 2]) {
        let (first, second) = (self.begin_site(one.0, one.1), self.begin_site(other.0, other.1));
        first.await_end().expect(0, " added: ");
        second.await_end().expect(0, " added: ");
    }

    fn create_for(&self, place: usize, uri: &str, interval_s: u64) -> String {
        let timer = json!({
            "timing": { "interval": interval_s },
            "callback": { "http": { "uri": uri, "opaque": "x" } },
        });
        let to = self.name(place).parse().expect("an address");
        let answer = request_with(to, "POST", "/timers", "", &timer.to_string());
        let answer = answer.expect("it runs");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.location().to_owned()
    }

    fn status_of(&self, place: usize, method: &str, location: &str) -> u16 {
        let to = self.name(place).parse().expect("an address");
        request_with(to, method, location, "", "").expect("it runs").status
    }
}

/// Nodes of one site, running, that know no other site.
fn start_site(cluster: &mut Cluster, places: &[usize], site: usize) {
    places.iter().for_each(|place| cluster.write_member(*place, places, site, ""));
    places.iter().for_each(|place| cluster.spawn(*place));
    places.iter().for_each(|place| cluster.await_members(*place, places));
}

#[test]
fn a_site_is_added_and_gets_every_timer_although_the_order_was_interrupted() {
    let mut cluster = Cluster::new();
    start_site(&mut cluster, &[0, 1], 1);
    start_site(&mut cluster, &[2], 2);
    let names: Vec<String> = cluster.names(&[0, 1, 2, 3]);
    let [n0, n1, n2, n3] = [0, 1, 2, 3].map(|place| names[place].as_str());
    cluster.site_order(0, &[]).expect(0, "no other site holds the timers of site1");
    cluster.introduce([(0, &["add", "site2", n2]), (2, &["add", "site1", n0, n1])]);
    let uri = "http://127.0.0.1:9/";
    (0..TIMERS).for_each(|number| drop(cluster.create_for(number % 3, uri, 3_600)));

    // While timers are created, a third site is added. The operator interrupts the order.
    start_site(&mut cluster, &[3], 3);
    let (is_over, cluster) = (AtomicBool::new(false), &cluster);
    let created = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut created = 0;
            while !is_over.load(Ordering::Relaxed) {
                cluster.create_for(created % 3, uri, 3_600);
                created += 1;
            }
            created
        });
        let interrupted = cluster.begin_site(0, &["add", "site3", n3]);
        cluster.await_sites(&[0, 1], &["site2", "site3"]);
        interrupted.signal("INT");
        assert_eq!(interrupted.await_end().code, None, "it ends by the signal");
        cluster.site_order(0, &["list"]).expect(1, "has not reached the site site3");
        let again = cluster.begin_site(1, &["add", "site3", n3]);
        let back = cluster.site_order(3, &["add", "site1", n0, n1]);
        back.expect(0, "site1 added: 1 node knows it");
        let added = again.await_end();
        added.expect(0, "site3 added: 2 nodes know it and it has been offered every timer");
        added.expect(
            0,
            &format!(
                "next, at site2, whose list of sites is another one: chronos site add site3 {n3}\n"
            ),
        );
        cluster.introduce([(2, &["add", "site3", n3]), (3, &["add", "site2", n2])]);
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("each is taken")
    });
    for place in [0, 2, 3] {
        let shown = cluster.site_order(place, &["list", "--wait", "60"]);
        shown.expect(0, "SITE   REACHED BY");
        assert!(!shown.out.contains("problem"), "{shown:?}");
    }
    until("every timer to be at the new site", || {
        (cluster.timers_at(3) == (TIMERS + created) as u64).then_some(())
    });
    cluster.site_order(1, &["add", "site3", n3]).expect(0, "nothing to do: site3 is known to 2");
    // The files name it: it is there after a restart as well.
    for place in [0, 1] {
        let text = cluster.text(place);
        let section = format!(
            "[sites]\nlocal = \"site1\"\nremote = [\"site2={n2}\", \"site3={n3}\"]\n\
             replicate_across = true\n"
        );
        assert!(text.ends_with(&section), "{text}");
    }
}

#[test]
fn a_site_is_removed_and_added_again_and_each_timer_pops_once() {
    tell(remove_and_add_again);
}

/// Timers all the time; the third site is stopped and taken out, then comes back with nothing.
fn remove_and_add_again() -> Option<()> {
    let mut cluster = Cluster::new();
    for (place, site) in [(0, 1), (2, 2), (3, 3)] {
        start_site(&mut cluster, &[place], site);
    }
    let names: Vec<String> = cluster.names(&[0, 1, 2, 3]);
    let [n0, n2, n3] = [0, 2, 3].map(|place| names[place].as_str());
    let add = |site: &'static str, at| ["add", site, at];
    cluster.introduce([(0, &add("site2", n2)), (2, &add("site1", n0))]);
    cluster.introduce([(0, &add("site3", n3)), (3, &add("site1", n0))]);
    cluster.introduce([(2, &add("site3", n3)), (3, &add("site2", n2))]);
    let sink = Sink::start();
    let begun = Instant::now();
    let uri = format!("http://{}/deleted", sink.address);
    let deleted: Vec<String> = (0..TIMERS).map(|_| cluster.create_for(3, &uri, 3_600)).collect();
    for place in [0, 2] {
        until("all to be told", || {
            let is_told = |location: &String| cluster.status_of(place, "GET", location) == 200;
            deleted.iter().all(is_told).then_some(())
        });
    }
    cluster.site_order(0, &["remove", "site3"]).expect(1, "Stop its nodes first");
    let is_over = AtomicBool::new(false);
    let addresses = [0, 2].map(|place| names[place].parse::<SocketAddr>().expect("one"));
    let created = thread::scope(|scope| {
        let load = scope.spawn(|| create_until(&is_over, addresses, &sink));
        take_out_and_bring_back(&mut cluster, &deleted, n3);
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("each is taken")
    });
    until("all to pop", || (sink.seen().len() >= created.len()).then_some(()));
    thread::sleep(TURNS);
    let stalled = noise::since(begun);
    let pops = sink.seen();
    assert!(!pops.contains_key("/deleted"), "what was deleted while it was away stays so");
    for location in &deleted {
        assert_eq!(cluster.status_of(3, "GET", location), 404);
    }
    for (number, asked) in created.iter().enumerate() {
        let times = &pops[&format!("/pop/{number}")];
        assert!(times[0] >= *asked + Duration::from_secs(5), "{number} popped early");
        if times.len() > 1 && stalled >= RANK_DELAY / 4 {
            return None;
        }
        assert_eq!(times.len(), 1, "{number} popped at {times:?}");
    }
    assert_eq!(pops.len(), created.len(), "none is lost, and nothing else pops");
    Some(())
}

/// Creates timers of 5 s until it is told to end. Returns when each was asked for.
fn create_until(is_over: &AtomicBool, addresses: [SocketAddr; 2], sink: &Sink) -> Vec<Instant> {
    let mut asked: Vec<Instant> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let uri = format!("http://{}/pop/{}", sink.address, asked.len());
        let timer = json!({
            "timing": { "interval": 5 },
            "callback": { "http": { "uri": uri, "opaque": "x" } },
        });
        let to = addresses[asked.len() % 2];
        asked.push(Instant::now());
        let answer = request_with(to, "POST", "/timers", "", &timer.to_string());
        assert_eq!(answer.expect("it runs").status, 200);
        thread::sleep(Duration::from_millis(10));
    }
    asked
}

/// The site at place 3 is killed and taken out, `deleted` is deleted, and the site comes back.
fn take_out_and_bring_back(cluster: &mut Cluster, deleted: &[String], n3: &str) {
    cluster.kill(3);
    for place in [0, 2] {
        until("the site to be out of reach and removed", || {
            let removed = cluster.site_order(place, &["remove", "site3"]);
            removed.out.contains("site3 removed: 1 node tells it nothing any more").then_some(())
        });
    }
    cluster.await_sites(&[0], &["site2"]);
    cluster.site_order(0, &["remove", "site3"]).expect(0, "nothing to do: no node knows site3");
    for location in deleted {
        assert_eq!(cluster.status_of(2, "DELETE", location), 200);
    }
    // It runs with its file of before: nobody takes it for a site.
    cluster.spawn(3);
    cluster.await_members(3, &[3]);
    cluster.site_order(3, &["list"]).expect(1, "has not reached the site site1");
    for place in [0, 2] {
        let added = cluster.site_order(place, &["add", "site3", n3]);
        added.expect(0, "site3 added: 1 node knows it");
    }
    for place in [0, 2, 3] {
        cluster.site_order(place, &["list", "--wait", "60"]).expect(0, "site");
    }
}

#[test]
fn mistakes_with_sites_are_told_and_change_nothing() {
    let mut cluster = Cluster::new();
    start_site(&mut cluster, &[0, 1], 1);
    start_site(&mut cluster, &[2], 2);
    let names: Vec<String> = cluster.names(&[0, 1, 2, 3]);
    let [n0, n1, n2, n3] = [0, 1, 2, 3].map(|place| names[place].as_str());
    let before = [0, 1].map(|place| cluster.text(place));
    let is_untouched = || assert_eq!([0, 1].map(|place| cluster.text(place)), before);
    run(&["site", "add", "site2"]).expect(2, "ADDRESS");
    run(&["site", "add"]).expect(2, "ADDRESS");
    cluster.site_order(0, &["add", "site2", n2, n2]).expect(2, "named twice");
    cluster.site_order(0, &["add", "site1", n2]).expect(1, "site1 is the site of");
    cluster.site_order(0, &["add", "site2", n1]).expect(1, "is a node of this site");
    cluster.site_order(0, &["add", "a=b", n2]).expect(1, "expected");
    cluster.site_order(0, &["remove", "site2"]).expect(0, "nothing to do: no node knows site2");
    let away = cluster.site_order(0, &["add", "site3", n3]);
    away.expect(1, &format!("site3 does not answer {n0} ({n3}: ")).expect(1, "No node was told");
    // It knows this site, and has another name.
    let known = json!({ "sites": [{ "name": "site1", "addresses": [n0, n1] }] });
    let put = |place: usize, body: &Value| {
        http(cluster.admin(place), "PUT", "/cluster/sites", &body.to_string()).expect("it runs")
    };
    assert_eq!(put(2, &known).0, 200);
    let named = cluster.site_order(0, &["add", "site3", n2]);
    named.expect(1, "calls itself site2 and not site3").expect(1, "No node was told");
    let document = cluster.site_order(0, &["add", "site3", n2, "--json"]);
    let document: Value = serde_json::from_str(&document.expect(1, "").out).expect("JSON");
    assert!(document["error"].as_str().expect("a text").contains("calls itself"), "{document}");
    is_untouched();
    // Refused by the node itself.
    let site = |name: &str, at: &str| json!({ "name": name, "addresses": [at] });
    for (body, status) in [
        (json!({ "sites": [site("site1", n2)] }), 400),
        (json!({ "sites": [site("x\ny", n2)] }), 400),
        (json!({ "sites": [site("x", "a b")] }), 400),
        (json!({ "sites": [{ "name": "", "addresses": [] }] }), 400),
        (json!({ "sites": [{ "name": "x", "addresses": [] }] }), 400),
        (json!({ "sites": [], "more": 1 }), 400),
        (json!({ "sites": [], "expected": [site("site2", n2)] }), 409),
    ] {
        let (got, text) = put(0, &body);
        assert_eq!(got, status, "{body}: {text}");
    }
    let (status, _) = http(cluster.admin(0), "POST", "/cluster/sites/probe", "{}").expect("runs");
    assert_eq!(status, 400);
    is_untouched();
    // An order that was interrupted at another site, and is in the way.
    assert_eq!(put(0, &json!({ "sites": [site("site9", n3)] })).0, 200);
    let apart = cluster.site_order(1, &["add", "site2", n2]);
    apart.expect(1, "members disagree about sites");
    cluster.site_order(1, &["remove", "site9"]).expect(0, "site9 removed: 2 nodes tell");
    assert_eq!(cluster.sites_of(0), [""; 0]);
    // A file that cannot be written. It says who was told before.
    let good = cluster.text(1);
    fs::write(cluster.file(1, "toml"), "not TOML").expect("writable");
    let broken = cluster.site_order(0, &["remove", "site9"]);
    broken.expect(0, "nothing to do");
    let broken = cluster.site_order(0, &["add", "site2", n2]);
    broken.expect(1, &format!("{n1}: ")).expect(1, &format!("Changed so far: {n0}. Repair that"));
    assert_eq!(cluster.sites_of(0), ["site2"]);
    fs::write(cluster.file(1, "toml"), good).expect("writable");
    let back = cluster.site_order(0, &["remove", "site2", "--running"]);
    back.expect(0, "site2 removed: 2 nodes tell");
    // A member that does not answer is told of before any other is told anything.
    let mut cluster = cluster;
    cluster.kill(1);
    cluster.site_order(0, &["add", "site2", n2]).expect(1, &format!("not all nodes answer: {n1}"));
    assert_eq!(cluster.sites_of(0), [""; 0]);
}

/// A site of files of the original, whose list of sites names its own as well, beside one that goes
/// on by itself when it is taken out.
#[test]
fn a_site_that_runs_is_taken_out_of_the_files_of_an_existing_deployment() {
    let mut cluster = Cluster::new();
    start_site(&mut cluster, &[2], 2);
    let names: Vec<String> = cluster.names(&[0, 2]);
    let [n0, n2] = [0, 1].map(|place| names[place].as_str());
    let local =
        format!("[http]\nbind-address = {}\nbind-port = {}\n", Cluster::host(0), cluster.port);
    let shared = format!(
        "# ours\n[cluster]\nlocalhost = {n0}\nnode = {n0}\n\n[sites]\nlocal_site = site1\n\
         remote_site = site1={n0} # all sites have this list\n"
    );
    for (what, text) in [("toml", "[node]\npin = false\n"), ("local", &local), ("ini", &shared)] {
        fs::write(cluster.file(0, what), text).expect("a file in the test's folder");
    }
    let (local, ini) = (cluster.file(0, "local"), cluster.file(0, "ini"));
    let admin = cluster.admin(0).to_string();
    cluster.spawn_with(0, |command| {
        command.arg("--local-config-file").arg(local).arg("--cluster-config-file").arg(ini);
        command.arg("--shared-config-file").arg("/dev/null").args(["--admin", &admin]);
    });
    cluster.await_members(0, &[0]);
    cluster.introduce([(0, &["add", "site2", n2]), (2, &["add", "site1", n0])]);
    let text = || fs::read_to_string(cluster.file(0, "ini")).expect("there");
    let replicates = "replicate_timers_across_sites = true\n";
    assert_eq!(text(), format!("{shared}remote_site = site2={n2}\n{replicates}"));
    let before = cluster.create_for(0, "http://127.0.0.1:9/", 3_600);
    until("the timer to be told", || (cluster.timers_at(2) == 1).then_some(()));
    cluster.site_order(0, &["remove", "site2"]).expect(1, "or say --running");
    cluster.site_order(0, &["remove", "site2", "--running"]).expect(0, "site2 removed: 1 node");
    assert_eq!(text(), format!("{shared}{replicates}"));
    // Each goes on by itself: what one is told from now on, the other is not.
    assert_eq!(cluster.status_of(0, "DELETE", &before), 200);
    let after = cluster.create_for(2, "http://127.0.0.1:9/", 3_600);
    cluster.site_order(2, &["list"]).expect(1, "has not reached the site site1");
    assert_eq!(cluster.status_of(2, "GET", &before), 200);
    assert_eq!(cluster.status_of(0, "GET", &after), 404);
}

#[test]
fn a_site_that_would_take_nothing_is_not_added() {
    let mut cluster = Cluster::new();
    let secret = cluster.file(2, "secret");
    fs::write(&secret, "a secret of thirty-two bytes, or more\n").expect("room");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("ours");
    let proves = format!("secret_file = {secret:?}\n");
    for (place, site, more) in [(0, 1, ""), (2, 2, &proves[..]), (3, 3, &proves[..])] {
        cluster.write_member(place, &[place], site, more);
        cluster.spawn(place);
        cluster.await_members(place, &[place]);
    }
    let names: Vec<String> = cluster.names(&[0, 2, 3]);
    let [n0, n2, n3] = [0, 1, 2].map(|place| names[place].as_str());
    cluster
        .site_order(2, &["add", "site1", n0])
        .expect(1, "do not take each other: it has another");
    // Both know the secret: each is a stranger until it is named, and then they know each other.
    cluster.introduce([(2, &["add", "site3", n3]), (3, &["add", "site2", n2])]);
    cluster.create_for(2, "http://127.0.0.1:9/", 3_600);
    until("the timer to be told", || (cluster.timers_at(3) == 1).then_some(()));
    // Without the secret there is no way in, whichever side asks.
    let body = json!({ "sites": [
        { "name": "site1", "addresses": [n0] }, { "name": "site3", "addresses": [n3] },
    ] });
    let (status, told) =
        http(cluster.admin(2), "PUT", "/cluster/sites", &body.to_string()).expect("it runs");
    assert_eq!(status, 200, "{told}");
    cluster.site_order(0, &["add", "site2", n2]).expect(1, "do not take each other");
    // What the files of a node forbid, no order changes.
    let text = cluster.text(0) + "replicate_across = false\n";
    fs::write(cluster.file(0, "toml"), &text).expect("writable");
    let body = json!({ "sites": [{ "name": "site9", "addresses": ["127.0.0.1:9"] }] });
    let put = |cluster: &Cluster| {
        http(cluster.admin(0), "PUT", "/cluster/sites", &body.to_string()).expect("it runs")
    };
    let (status, told) = put(&cluster);
    assert!(status == 409 && told.contains("replicate_across is false"), "{status} {told}");
    assert_eq!(cluster.text(0), text);
    cluster.kill(0);
    cluster.spawn_with(0, |command| {
        command.env("CHRONOS_SITES_REMOTE", "");
    });
    cluster.await_members(0, &[0]);
    let (status, told) = put(&cluster);
    assert!(status == 409 && told.contains("CHRONOS_SITES_REMOTE"), "{status} {told}");
}
