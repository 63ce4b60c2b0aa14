//! Lists of a whole cluster: whichever node is asked, whatever moves between two pages.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use kit::client::{Answer, request_with};
use kit::runner::Story;
use serde_json::Value;
use tempfile::TempDir;

use super::harness::{Cluster, Setup, until};
use super::proxies::{Network, Way};
use super::scaling::scale;
use super::timers::Order;

pub const STORIES: &[Story] = &[
    ("every_node_lists_the_timers_of_all", every_node_lists_the_timers_of_all),
    ("a_list_outlives_a_death_and_says_what_it_lacks", a_list_outlives_a_death),
    ("timers_that_move_between_pages_are_seen_once", timers_that_move_are_seen_once),
    ("a_job_deletes_timers_on_all_nodes_and_ends_with_its_node", a_job_is_of_the_cluster),
    ("a_job_in_a_split_says_so_and_its_deletes_reach_the_others", a_job_in_a_split),
    ("counts_are_exact_when_nodes_have_joined_and_left", counts_while_nodes_join),
];

/// A token, and its SHA-256.
const TOKEN: (&str, &str) =
    ("hello", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");

struct Listed {
    cluster: Cluster,
    _folder: TempDir,
}

impl Listed {
    fn running(places: &[usize]) -> Listed {
        Listed::of(places, |setup| (Cluster::with(setup), ())).0
    }

    /// Starts these places of a cluster that `make` makes. Returns what it makes beside.
    fn of<T>(places: &[usize], make: impl FnOnce(Setup) -> (Cluster, T)) -> (Listed, T) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        std::fs::write(&file, format!("all client {}\n", TOKEN.1)).expect("written");
        let permissions = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, permissions).expect("its own file");
        let local = format!("\n[auth]\ntokens_file = {}\n", file.display());
        let (mut cluster, beside) = make(Setup { local, ..Setup::default() });
        cluster.begin(places);
        cluster.await_alive(places);
        (Listed { cluster, _folder: folder }, beside)
    }

    fn ask(&self, place: usize, method: &str, path: &str, body: &str) -> Answer {
        let header = format!("Authorization: Bearer {}\r\n", TOKEN.0);
        let answer = request_with(self.cluster.address(place), method, path, &header, body);
        answer.unwrap_or_else(|error| panic!("node {}: {error}", place + 1))
    }

    /// Creates timers that do not pop, at these nodes in turn. Returns the ids.
    fn create(&self, places: &[usize], count: usize, factor: u8) -> BTreeSet<String> {
        let document =
            Order::once(3_600_000).factor(factor).document("http://127.0.0.1:9/never", "x");
        let of = |at: usize| {
            let answer = self.ask(places[at % places.len()], "POST", "/timers", &document);
            id(answer.location())
        };
        (0..count).map(of).collect()
    }

    fn page(&self, place: usize, query: &str) -> Value {
        let answer = self.ask(place, "GET", &format!("/timers?{query}"), "");
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// All ids of a list, one page after the other; `between` is called after each page.
    fn all(
        &mut self,
        place: usize,
        query: &str,
        mut between: impl FnMut(&mut Self, usize),
    ) -> BTreeSet<String> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        for page in 0.. {
            let told = self.page(place, &format!("{query}{cursor}"));
            all.extend(ids(&told));
            match told["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
            between(self, page);
        }
        let unique: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(unique.len(), all.len(), "each once");
        unique
    }
}

/// The id in a location; what follows it changes with the cluster.
fn id(location: &str) -> String {
    location["/timers/".len()..][..16].to_owned()
}

fn ids(page: &Value) -> Vec<String> {
    let timers = page["timers"].as_array().expect("an array");
    timers.iter().map(|timer| id(timer["location"].as_str().expect("text"))).collect()
}

const THREE: [usize; 3] = [0, 1, 2];

fn every_node_lists_the_timers_of_all() {
    let mut listed = Listed::running(&THREE);
    // Timers that one node holds alone, too: nobody else can tell of them.
    let mut made = listed.create(&THREE, 60, 2);
    made.extend(listed.create(&THREE, 30, 1));
    for place in THREE {
        assert_eq!(listed.all(place, "limit=11", |_, _| {}), made, "node {}", place + 1);
        let page = listed.page(place, "limit=1000");
        assert_eq!(ids(&page).len(), made.len(), "node {}", place + 1);
        assert!(page.get("incomplete").is_none(), "{page}");
        let states = page["timers"].as_array().expect("an array");
        assert!(states.iter().all(|timer| timer["state"] == "armed"), "{page}");
        assert_eq!(listed.all(place, "state=armed&limit=50", |_, _| {}), made);
        assert!(listed.all(place, "state=ready", |_, _| {}).is_empty());
    }
    for place in THREE {
        let answer = listed.ask(place, "GET", "/timers/count", "");
        let told: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert!(told.get("incomplete").is_none(), "{told}");
        assert_eq!((&told["timers"], &told["by-state"]["armed"]), (&90.into(), &90.into()));
        assert_eq!(told["due"]["within-hour"], 90);
        assert_eq!(told["by-host"]["127.0.0.1:9"], 90);
    }
    // Another node goes on with the list.
    let first = listed.page(0, "limit=40");
    let cursor = first["cursor"].as_str().expect("more follow");
    let rest = listed.page(1, &format!("limit=1000&cursor={cursor}"));
    let both: BTreeSet<_> = ids(&first).into_iter().chain(ids(&rest)).collect();
    assert_eq!(both, made);
}

fn a_list_outlives_a_death() {
    let mut listed = Listed::running(&THREE);
    let made = listed.create(&THREE, 90, 2);
    let seen = listed.all(0, "limit=9", |listed, page| {
        if page == 3 {
            listed.cluster.kill(2);
            listed.cluster.await_dead(&[0, 1], 2);
        }
    });
    assert_eq!(seen, made, "another node holds each timer");
    let answer = listed.ask(0, "GET", "/timers/count?histogram=false", "");
    let told: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(told["timers"], 90, "those of the dead node count at others: {told}");
    assert_eq!(told["incomplete"].as_array().map(Vec::len), Some(1));
    let page = listed.page(0, "limit=1");
    let told = page["incomplete"][0].as_str().expect("a sentence");
    let name = &listed.cluster.names[2];
    let wanted = format!("{name}: not reached; timers that no other node holds are missing");
    assert_eq!(told, wanted);
    listed.cluster.start(2);
    until("the list to be complete again", || {
        listed.page(0, "limit=1").get("incomplete").is_none().then_some(())
    });
    assert_eq!(listed.all(0, "limit=20", |_, _| {}), made);
}

fn timers_that_move_are_seen_once() {
    let mut listed = Listed::running(&[0, 1]);
    let made = listed.create(&[0, 1], 120, 1);
    let seen = listed.all(1, "limit=10", |listed, page| {
        if page == 4 {
            scale(&mut listed.cluster, &[1], &[2, 3], &[0]);
        }
    });
    assert_eq!(seen, made);
}

/// Orders a job at a node. Returns its path.
fn order(listed: &Listed, place: usize, query: &str) -> String {
    let answer = listed.ask(place, "DELETE", &format!("/timers?{query}"), "");
    assert_eq!(answer.status, 202, "{answer:?}");
    let job: Value = serde_json::from_str(&answer.body).expect("JSON");
    format!("/jobs/{}", job["id"].as_str().expect("text"))
}

fn job(listed: &Listed, place: usize, path: &str) -> Value {
    let answer = listed.ask(place, "GET", path, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

fn a_job_is_of_the_cluster() {
    let mut listed = Listed::running(&THREE);
    let mut made = listed.create(&THREE, 200, 2);
    made.extend(listed.create(&THREE, 100, 1));
    let named = Order::once(3_600_000).document("http://127.0.0.1:9/never", "x");
    for number in 0..5 {
        let answer =
            listed.ask(number % 3, "PUT", &format!("/timers/by-name/keep-{number}"), &named);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // A job of names leaves all others alone, and every node tells of it.
    let path = order(&listed, 1, "name-prefix=keep-4");
    until("the job to end", || (job(&listed, 0, &path)["state"] == "done").then_some(()));
    for place in THREE {
        let told = job(&listed, place, &path);
        let numbers = (&told["deleted"], &told["failed"], &told["complete"]);
        assert_eq!(numbers, (&1.into(), &0.into(), &true.into()), "node {}", place + 1);
        assert_eq!(listed.all(place, "limit=1000", |_, _| {}).len(), made.len() + 4);
    }
    // The node of a job dies. What it deleted stays deleted, and nobody knows the job any more.
    let path = order(&listed, 2, "host=127.0.0.1:9");
    listed.cluster.kill(2);
    listed.cluster.await_dead(&[0, 1], 2);
    assert_eq!(listed.ask(0, "GET", &path, "").status, 404);
    let left = listed.all(0, "limit=1000", |_, _| {});
    // A job at another node says that it could not ask for all timers. It deletes the others.
    let path = order(&listed, 0, "host=127.0.0.1:9");
    let told = until("the job to end", || {
        Some(job(&listed, 1, &path)).filter(|told| told["state"] != "running")
    });
    assert_eq!((&told["state"], &told["complete"]), (&"done".into(), &false.into()));
    assert_eq!(told["deleted"], left.len(), "{told}");
    for place in [0, 1] {
        assert!(listed.all(place, "limit=1000", |_, _| {}).is_empty());
    }
    // The dead node returns empty, and no replica brings a timer back.
    listed.cluster.start(2);
    until("the list to be complete again", || {
        listed.page(0, "limit=1").get("incomplete").is_none().then_some(())
    });
    assert!(listed.all(2, "limit=1000", |_, _| {}).is_empty());
}

fn a_job_in_a_split() {
    let (mut listed, network) = Listed::of(&THREE, Network::around);
    let made = listed.create(&THREE, 120, 2);
    network.set_around(0, Way::Cut);
    listed.cluster.await_dead(&[1, 2], 0);
    let path = order(&listed, 1, "host=127.0.0.1:9");
    let told = until("the job to end", || {
        Some(job(&listed, 2, &path)).filter(|told| told["state"] != "running")
    });
    // One of these two holds each timer.
    assert_eq!((&told["deleted"], &told["failed"]), (&made.len().into(), &0.into()), "{told}");
    assert_eq!(told["complete"], false, "{told}");
    assert!(!listed.all(0, "limit=1000", |_, _| {}).is_empty(), "it has heard of nothing");
    network.set_around(0, Way::Open);
    listed.cluster.await_alive(&THREE);
    until("the deletes to arrive", || {
        listed.all(0, "limit=1000", |_, _| {}).is_empty().then_some(())
    });
    assert!(listed.all(1, "limit=1000", |_, _| {}).is_empty(), "nothing came back");
}

fn counts_while_nodes_join() {
    let mut listed = Listed::running(&[0, 1]);
    let made = listed.create(&[0, 1], 120, 2).len() + listed.create(&[0, 1], 60, 1).len();
    let assert_counts = |listed: &Listed, places: &[usize]| {
        for place in places {
            let is_exact = || {
                let answer = listed.ask(*place, "GET", "/timers/count", "");
                let told: Value = serde_json::from_str(&answer.body).expect("JSON");
                let numbers = [&told["timers"], &told["by-host"]["127.0.0.1:9"]];
                let all = numbers.iter().all(|number| **number == made);
                (told.get("incomplete").is_none() && all).then_some(())
            };
            until(&format!("node {} to count {made}", place + 1), is_exact);
        }
    };
    assert_counts(&listed, &[0, 1]);
    scale(&mut listed.cluster, &[0, 1], &[2, 3], &[]);
    assert_counts(&listed, &[0, 1, 2, 3]);
    scale(&mut listed.cluster, &[2, 3], &[], &[0, 1]);
    assert_counts(&listed, &[2, 3]);
}
