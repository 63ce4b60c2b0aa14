//! Dead letters of a whole cluster (docs/api.md): whichever node is asked, and whichever holds them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kit::callbacks::{Reaction, serve};
use kit::client::{Answer, request_with};
use kit::runner::Story;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Cluster, Setup, until};

pub const STORIES: &[Story] = &[
    ("any_node_lists_and_replays_the_dead_letters_of_all", all_letters),
    ("a_dead_letter_outlives_the_node_that_gave_up", outlives),
    ("pages_that_all_nodes_replay_at_once_make_each_callback_once", at_once),
];

/// A token, and its SHA-256.
const TOKEN: (&str, &str) =
    ("hello", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
const ALL: [usize; 3] = [0, 1, 2];

struct Kept {
    cluster: Cluster,
    _folder: TempDir,
    uri: String,
    is_well: Arc<AtomicBool>,
    /// The opaque text of each callback that was taken.
    taken: Arc<Mutex<Vec<String>>>,
}

impl Kept {
    fn running() -> Kept {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        std::fs::write(&file, format!("all client {}\n", TOKEN.1)).expect("written");
        let permissions = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, permissions).expect("its own file");
        let local = format!("\n[auth]\ntokens_file = {}\n", file.display());
        let mut cluster = Cluster::with(Setup { local, ..Setup::default() });
        cluster.begin(&ALL);
        cluster.await_alive(&ALL);
        let is_well = Arc::new(AtomicBool::new(false));
        let (well, taken) = (is_well.clone(), Arc::new(Mutex::new(Vec::new())));
        let told = taken.clone();
        let (address, _) = serve("127.0.0.1:0".parse().expect("an address"), move |request| {
            if !well.load(SeqCst) {
                return Reaction::Status(500);
            }
            let text = String::from_utf8_lossy(&request.body).into_owned();
            told.lock().expect("no story panics with it").push(text);
            Reaction::Status(200)
        });
        Kept { cluster, _folder: folder, uri: format!("http://{address}"), is_well, taken }
    }

    fn ask(&self, place: usize, method: &str, path: &str, body: &str) -> Answer {
        let header = format!("Authorization: Bearer {}\r\n", TOKEN.0);
        let answer = request_with(self.cluster.address(place), method, path, &header, body);
        answer.unwrap_or_else(|error| panic!("node {}: {error}", place + 1))
    }

    /// A timer that pops at once, twice at most, and then is given up.
    fn create(&self, place: usize, factor: u8) -> String {
        self.create_with(place, factor, "any text")
    }

    fn create_with(&self, place: usize, factor: u8, opaque: &str) -> String {
        let document = json!({
            "timing": {"interval": 0},
            "callback": {
                "http": {"uri": self.uri, "opaque": opaque},
                "retry": {"max-attempts": 2, "initial": 0.05, "jitter": 0},
            },
            "reliability": {"replication-factor": factor},
        });
        let answer = self.ask(place, "POST", "/timers", &document.to_string());
        answer.location().to_owned()
    }

    fn json(&self, place: usize, method: &str, path: &str) -> Value {
        let answer = self.ask(place, method, path, "");
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// The ids of all letters, as a node lists them in pages of seven.
    fn letters(&self, place: usize) -> BTreeSet<String> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.json(place, "GET", &format!("/dead-letters?limit=7{cursor}"));
            let letters = page["dead-letters"].as_array().expect("an array");
            all.extend(letters.iter().map(|it| it["location"].as_str().expect("text").to_owned()));
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let ids: BTreeSet<_> = all.iter().map(|path| id_of(path)).collect();
        assert_eq!(ids.len(), all.len(), "each once");
        ids
    }
}

/// The 16 digits in a path.
fn id_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().chars().take(16).collect()
}

fn all_letters() {
    let kept = Kept::running();
    let timers: BTreeSet<String> =
        (0..30).map(|at| id_of(&kept.create(at % 3, 1 + (at % 2) as u8))).collect();
    for place in ALL {
        until("all letters", || (kept.letters(place) == timers).then_some(()));
    }
    kept.is_well.store(true, SeqCst);
    let (mut replayed, mut cursor) = (0, String::new());
    loop {
        let path = format!("/dead-letters/replay?reason=attempts&limit=11{cursor}");
        let page = kept.json(1, "POST", &path);
        replayed += page["replayed"].as_u64().expect("a number");
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(replayed, 30);
    for place in ALL {
        until("no letter", || kept.letters(place).is_empty().then_some(()));
    }
}

fn at_once() {
    let kept = Kept::running();
    let names: BTreeSet<String> = (0..100).map(|at| format!("timer {at}")).collect();
    for (at, name) in names.iter().enumerate() {
        kept.create_with(at % 3, 1 + (at % 3) as u8, name);
    }
    for place in ALL {
        until("all letters", || (kept.letters(place).len() == names.len()).then_some(()));
    }
    kept.is_well.store(true, SeqCst);
    // Each node is asked for all of them, in pages, as long as there are any.
    let replay_all = |place: usize| {
        let mut replayed = 0;
        until("no letter", || {
            let page = kept.json(place, "POST", "/dead-letters/replay?limit=30");
            replayed += page["replayed"].as_u64().expect("a number");
            kept.letters(place).is_empty().then_some(())
        });
        replayed
    };
    let replayed: Vec<u64> = std::thread::scope(|scope| {
        let nodes = ALL.map(|place| scope.spawn(move || replay_all(place)));
        nodes.map(|node| node.join().expect("it ends")).to_vec()
    });
    let all_taken = || {
        let taken = kept.taken.lock().expect("no story panics with it").clone();
        (taken.len() >= names.len()).then_some(())
    };
    until("all callbacks", all_taken);
    for place in ALL {
        until("their ends", || {
            let held = kept.cluster.look(place)?["timers"].as_u64()?;
            (held == 0).then_some(())
        });
    }
    let mut taken = kept.taken.lock().expect("no story panics with it").clone();
    taken.sort();
    let mut once: Vec<String> = names.into_iter().collect();
    once.sort();
    assert_eq!(taken, once, "each callback once");
    assert_eq!(replayed.iter().sum::<u64>(), 100, "{replayed:?}");
}

fn outlives() {
    let mut kept = Kept::running();
    let timer = kept.create(0, 2);
    let letter = timer.replace("/timers/", "/dead-letters/");
    until("a letter", || (kept.ask(0, "GET", &letter, "").status == 200).then_some(()));
    let gave_up = ALL
        .into_iter()
        .find(|place| kept.cluster.metric(*place, "chronos_dead_letters_kept_total") == 1);
    let gave_up = gave_up.expect("one of them");
    kept.cluster.kill(gave_up);
    let others: Vec<usize> = ALL.into_iter().filter(|place| *place != gave_up).collect();
    kept.cluster.await_dead(&others, gave_up);
    for place in &others {
        until("the letter", || (kept.ask(*place, "GET", &letter, "").status == 200).then_some(()));
    }
    // It returns empty, and gets the letter again.
    kept.cluster.start(gave_up);
    kept.cluster.await_alive(&ALL);
    until("a copy", || (kept.cluster.metric(gave_up, "chronos_dead_letters") == 1).then_some(()));
    let replay = format!("{letter}/replay");
    kept.is_well.store(true, SeqCst);
    assert_eq!(kept.ask(gave_up, "POST", &replay, "").status, 200);
    for place in ALL {
        until("its end", || (kept.ask(place, "GET", &letter, "").status == 404).then_some(()));
    }
}
