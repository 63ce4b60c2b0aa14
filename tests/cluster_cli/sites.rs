//! Sites as operators see them: three sites of one node each, `chronos cluster status`, metrics.

use std::fs;

use kit::faketime::WrongClock;

use super::*;

impl Cluster {
    /// Writes the file of a node that is a site of its own and knows these others.
    fn write_site(&self, place: usize, others: &[usize]) {
        self.write(place, &[place]);
        let remote: Vec<String> = others
            .iter()
            .map(|other| format!("\"site{}={}\"", other + 1, self.name(*other)))
            .collect();
        let text = format!(
            "{}\n[sites]\nlocal = \"site{}\"\nremote = [{}]\nreplicate_across = true\n",
            self.text(place),
            place + 1,
            remote.join(", ")
        );
        fs::write(self.file(place, "toml"), text).expect("a file in the test's folder");
    }

    /// Gives a node that runs another list of sites.
    fn change_sites(&self, place: usize, others: &[usize]) {
        self.write_site(place, others);
        let (status, text) =
            http(self.admin(place), "POST", "/cluster/reload", "").expect("it runs");
        assert_eq!(status, 200, "{text}");
    }

    /// A figure of a node: the largest of its cores.
    fn figure(&self, place: usize, name: &str) -> f64 {
        let (_, text) = http(self.admin(place), "GET", "/metrics", "").expect("it runs");
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let figures = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok());
        figures.fold(f64::MIN, f64::max)
    }

    fn site(&self, place: usize, name: &str) -> Value {
        let document = self.look(place);
        let sites = document["sites"].as_array().expect("a list");
        sites.iter().find(|site| site["name"] == name).expect("it is configured").clone()
    }
}

/// Waits for a problem that status is to tell. Nothing else may be wrong in the end.
fn await_status(cluster: &Cluster, place: usize, told: &str) {
    until(&format!("status to tell: {told}"), || {
        let shown = cluster.order(place, &["status"]);
        (shown.code == Some(1) && shown.out.contains(told)).then_some(())
    });
}

#[test]
fn status_tells_how_sites_stand() {
    let mut cluster = Cluster::new();
    cluster.write_site(0, &[1]);
    cluster.write_site(1, &[0]);
    cluster.spawn(0);
    await_status(&cluster, 0, "has not reached the site site2");
    cluster.spawn(1);
    let shown = cluster.order(0, &["status", "--wait", "60"]);
    shown.expect(
        0,
        "\nSITE   REACHED BY   SINCE  LAG    WAITING  TO OFFER  CLOCK\nsite2  1 of 1 node",
    );
    for _ in 0..TIMERS {
        let timer = json!({
            "timing": { "interval": 3_600 },
            "callback": { "http": { "uri": "http://127.0.0.1:9/", "opaque": "x" } },
        });
        let to = cluster.name(0).parse().expect("an address");
        let (status, text) = http(to, "POST", "/timers", &timer.to_string()).expect("it runs");
        assert_eq!(status, 200, "{text}");
    }

    // A site that only one of them names: the other one tells, and so does that site itself.
    cluster.change_sites(0, &[1, 2]);
    await_status(&cluster, 0, "the site site2 has had another list of sites than");
    await_status(&cluster, 1, "the site site1 has had another list of sites than");
    until("the metric", || {
        (cluster.figure(1, "chronos_site_lists_differ_seconds") > 0.0).then_some(())
    });
    cluster.change_sites(1, &[0, 2]);
    await_status(&cluster, 1, "has not reached the site site3");
    until("the lists to agree", || {
        cluster.site(1, "site1")["lists_differ_s"].is_null().then_some(())
    });

    // The site is started: it is offered everything, and then all is well.
    cluster.write_site(2, &[0, 1]);
    cluster.spawn(2);
    for place in [0, 1, 2] {
        cluster.order(place, &["status", "--wait", "60"]).expect(0, "site3");
    }
    until("the site to have all, and nobody to owe it anything", || {
        let site = cluster.site(0, "site3");
        let owes = ["to_offer", "lag_ms", "waiting"].iter().any(|figure| site[*figure] != 0);
        (!owes && cluster.look(2)["timers"] == json!(TIMERS)).then_some(())
    });

    // It dies: no member of the cluster is dead, the site is out of reach.
    cluster.kill(2);
    await_status(&cluster, 0, "has not reached the site site3");
    until("the metric", || {
        (cluster.figure(0, "chronos_site_unreached_seconds") > 1.0).then_some(())
    });
    assert_eq!(cluster.figure(0, "chronos_sites_unreached"), 1.0);
    assert_eq!(cluster.figure(0, "chronos_peers_dead"), 0.0);
    until("the site to be dead, and to lack what comes", || {
        (cluster.figure(0, "chronos_site_lag_seconds") > 0.0).then_some(())
    });
    assert!(cluster.site(0, "site3")["seconds"].as_u64() >= Some(1));
}

/// Site 2 is five minutes ahead and dies as it has taken an update. A delete that comes later
/// through site 1, which has not heard of the update, is the later write.
#[test]
fn a_later_delete_wins_over_a_site_whose_clock_is_ahead() {
    let mut cluster = Cluster::new();
    let Some(clock) = WrongClock::right(&cluster.folder.path().join("wrong")) else {
        eprintln!("not run: it takes libfaketime (apt-get install faketime)");
        return;
    };
    clock.set("+300");
    cluster.write_site(0, &[1]);
    cluster.write_site(1, &[0]);
    let journal = cluster.file(1, "data");
    let text = format!("{}\n[journal]\ndata_dir = \"{}\"\n", cluster.text(1), journal.display());
    fs::write(cluster.file(1, "toml"), text).expect("a file in the test's folder");
    cluster.spawn(0);
    let wrong = |command: &mut Command| {
        command.envs(clock.environment());
    };
    cluster.spawn_with(1, wrong);
    await_status(&cluster, 0, "the wall clock of the site site2 is ");
    let [to, far] = [0, 1].map(|place| cluster.name(place).parse().expect("an address"));
    let ask = |to, method: &str, path: &str, body: &str| {
        request_with(to, method, path, "", body).expect("it runs")
    };
    let timer = |path: &str| {
        let uri = format!("http://127.0.0.1:9/{path}");
        json!({
            "timing": { "interval": 3_600 },
            "callback": { "http": { "uri": uri, "opaque": "x" } },
        })
        .to_string()
    };
    let location = ask(to, "POST", "/timers", &timer("first")).location().to_owned();
    let gets = |to: SocketAddr, status: u16| {
        until(&format!("{status} of {to}"), || {
            (ask(to, "GET", &location, "").status == status).then_some(())
        });
    };
    gets(far, 200);
    let pid = cluster.processes[0].as_ref().expect("it runs").id();
    assert!(signal(pid, "STOP").success());
    until("the other site to miss it", || {
        (cluster.site(1, "site1")["liveness"] == "dead").then_some(())
    });
    assert_eq!(ask(far, "PUT", &location, &timer("second")).status, 200);
    cluster.kill(1);
    assert!(signal(pid, "CONT").success());
    // So much later that the clocks do not decide.
    thread::sleep(Duration::from_secs(3));
    until("the delete to be taken", || {
        (ask(to, "DELETE", &location, "").status == 200).then_some(())
    });
    cluster.spawn_with(1, wrong);
    cluster.await_members(1, &[1]);
    until("the sites to have told each other everything", || {
        let is_level = |place: usize, other: &str| {
            let site = cluster.site(place, other);
            let owes = ["to_offer", "lag_ms", "waiting"].iter().any(|of| site[*of] != 0);
            site["liveness"] == "alive" && !owes
        };
        (is_level(0, "site2") && is_level(1, "site1")).then_some(())
    });
    gets(far, 404);
    gets(to, 404);
}

/// The clock of one of two sites is five minutes ahead.
#[test]
fn clocks_of_sites_are_compared() {
    let mut cluster = Cluster::new();
    let Some(clock) = WrongClock::right(&cluster.folder.path().join("wrong")) else {
        eprintln!("not run: it takes libfaketime (apt-get install faketime)");
        return;
    };
    cluster.write_site(0, &[1]);
    cluster.write_site(1, &[0]);
    cluster.spawn(0);
    clock.set("+300");
    cluster.spawn_with(1, |command| {
        command.envs(clock.environment());
    });
    await_status(&cluster, 0, "the wall clock of the site site2 is ");
    await_status(&cluster, 1, "the wall clock of the site site1 is ");
    let ahead_ms = cluster.site(0, "site2")["clock_ahead_ms"].as_i64().expect("it says so");
    assert!((290_000..310_000).contains(&ahead_ms), "{ahead_ms}");
    until("the metric", || {
        let apart = cluster.figure(0, "chronos_clocks_apart_seconds");
        (290.0..310.0).contains(&apart).then_some(())
    });
    let (_, alarms) = http(cluster.admin(0), "GET", "/alarms", "").expect("it runs");
    assert!(alarms.contains("\"clocks-apart\""), "{alarms}");
    assert_eq!(cluster.figure(0, "chronos_clock_refused"), 0.0, "nobody knows which is right");
    // Set right, it is believed within seconds.
    clock.set("+0");
    cluster.order(0, &["status", "--wait", "60"]).expect(0, "agrees");
}
