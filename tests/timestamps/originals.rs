//! Original servers in the same cluster, played by their rules. Servers of this service read what
//! originals write, and originals can read what these servers write.

use std::time::{Duration, Instant, SystemTime};

use kit::runner::Story;
use zookeeper_client::{Acls, Client, CreateMode};

use super::checker::Checker;
use super::processes::{free_port, until};
use super::servers::{START, Servers};
use super::zookeeper::{block_on, shared};

pub const STORIES: &[Story] = &[
    ("mastership_goes_from_an_original_to_us_and_back", from_an_original_and_back),
    ("a_frozen_original_that_writes_is_noticed", a_frozen_original_writes),
];

/// How far ahead the original stores its bound: 100 s.
const ADVANCE: u64 = 26_214_400_000;

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    (now.as_millis() as u64) << 18
}

/// An original server, as far as `ZooKeeper` sees it.
struct Original {
    client: Client,
    base: String,
}

impl Original {
    async fn connect(cluster: &str) -> Original {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(2));
        let client = connector.connect(&shared()).await.expect("a session");
        let original = Original { client, base: format!("/chronos/{cluster}") };
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for path in
            ["/chronos", &original.base, &original.path("backup-servers"), &original.bound()]
        {
            // An error means that the node is there already.
            let _ = original.client.create(path, b"", &persistent).await;
        }
        original
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    fn bound(&self) -> String {
        self.path("persistent-timestamp")
    }

    async fn try_to_be_master(&self) -> bool {
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        self.client.create(&self.path("master"), b"127.0.0.1_1", &ephemeral).await.is_ok()
    }

    async fn read_bound(&self) -> u64 {
        let (bytes, _) = self.client.get_data(&self.bound()).await.expect("the bound");
        if bytes.is_empty() { 0 } else { u64::from_be_bytes(bytes.try_into().expect("8 bytes")) }
    }

    /// Writes the bound, whichever server wrote it last.
    async fn write_bound(&self, bound: u64) {
        let written = self.client.set_data(&self.bound(), &bound.to_be_bytes(), None).await;
        written.expect("written");
    }
}

/// Runs blocking work beside the session of an original, which must not fall asleep meanwhile.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it ends well")
}

fn from_an_original_and_back() {
    // The shared `ZooKeeper` must run before a client talks to it.
    shared();
    let cluster = format!("story-{}", free_port());
    let mut servers = block_on(an_original_dies(cluster.clone()));
    let own = servers.all[0].address.to_string().replace(':', "_");
    let mut checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), START);
    block_on(async {
        // An original can read what this server has written.
        let original = Original::connect(&cluster).await;
        let (master, stat) =
            original.client.get_data(&original.path("master")).await.expect("a master");
        assert_eq!(String::from_utf8(master), Ok(own));
        assert_ne!(stat.ephemeral_owner, 0);
        assert!(original.read_bound().await > checker.got().last().expect("replies").first);
        let children = original.client.list_children(&original.path("backup-servers")).await;
        assert_eq!(children.expect("readable"), [""; 0]);
    });
    // This server stops, and the original takes over.
    checker.settle();
    servers.all[0].stop();
    block_on(async {
        let original = Original::connect(&cluster).await;
        assert!(original.try_to_be_master().await, "the node is gone when the server is");
        let bound = original.read_bound().await;
        assert_eq!(bound, checker.highest() + 1, "what is left of the window is given back");
    });
    checker.finish();
}

/// An original is master, has stored its bound 100 s ahead and handed out some of that window. It
/// dies. A server of this service, which was a backup all the time, goes on above the bound.
async fn an_original_dies(cluster: String) -> Servers {
    let original = Original::connect(&cluster).await;
    assert!(original.try_to_be_master().await);
    let stored = now() + ADVANCE;
    original.write_bound(stored).await;
    let servers = beside(move || Servers::start_in(&cluster, 1, &shared(), 3_000, &[])).await;
    assert_eq!(servers.all[0].role().as_deref(), Some("backup"));
    let status = servers.all[0].status().expect("it answers");
    assert_eq!(status["master"], "127.0.0.1:1", "{status}");
    let children = original.client.list_children(&original.path("backup-servers")).await;
    let own = servers.all[0].address.to_string().replace(':', "_");
    assert_eq!(children.expect("readable"), [own]);

    let checker = Checker::of(&servers.addresses());
    drop(original);
    beside(move || {
        let first = checker.await_reply(Instant::now(), START);
        assert!(first.first > stored, "{first:?} is not above {stored}");
        let beyond_ms = (checker.got()[0].first >> 18) - (stored >> 18);
        assert!(beyond_ms <= 10_000, "it begins where the original ended: {beyond_ms} ms beyond");
        checker.finish();
    })
    .await;
    servers
}

fn a_frozen_original_writes() {
    let servers = Servers::start(1, &shared(), 3_000);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), START);
    let bound = now() + ADVANCE;
    block_on(async {
        let original = Original::connect(&servers.cluster).await;
        original.write_bound(bound).await;
    });
    // No value is below the values that the original may have handed out.
    until("values above the foreign bound", START, || {
        (checker.await_reply(Instant::now(), START).first > bound).then_some(())
    });
    assert_eq!(servers.all[0].count("foreign_bounds"), 1);
    assert_eq!(servers.all[0].role().as_deref(), Some("master"));
    checker.finish();
}
