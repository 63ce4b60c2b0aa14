//! Servers that authenticate themselves, and nodes in `ZooKeeper` that only these servers may
//! write.

use std::time::{Duration, Instant};

use kit::runner::Story;
use zookeeper_client::{Acl, Client, Error, Permission};

use super::checker::Checker;
use super::processes::until;
use super::servers::{START, Server};
use super::zookeeper::{ZooKeeper, block_on};

pub const STORIES: &[Story] = &[("nobody_else_writes_what_is_protected", nobody_else_writes)];

const USER: &str = "h_chronos_admin";
const PASSWORD: &str = "sesame";

fn nobody_else_writes() {
    let zookeeper = ZooKeeper::start_with_sasl(100, USER, PASSWORD);
    let folder = tempfile::Builder::new().prefix("chronos-ts-").tempdir().expect("room");
    std::fs::write(folder.path().join("password"), format!("{PASSWORD}\n")).expect("a file");
    std::fs::write(folder.path().join("wrong"), "wrong\n").expect("a file");
    for auth in ["sasl-digest", "digest"] {
        let config = |password: &str| {
            let path = folder.path().join(format!("{auth}-{password}.toml"));
            let text = format!(
                "[timestamp]\ncoordination = \"zookeeper\"\nzookeeper_quorum = \"{}\"\n\
                 zookeeper_cluster = \"{auth}\"\nzookeeper_auth = \"{auth}\"\nzookeeper_user = \
                 \"{USER}\"\nzookeeper_password_file = \"{}\"\nsession_timeout_ms = 1_000\n",
                zookeeper.quorum(),
                folder.path().join(password).display(),
            );
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let server = |name: &str, password: &str| {
            Server::new(folder.path(), name, &["--config", &config(password)])
        };
        let mut servers = [
            server(&format!("{auth}1.log"), "password"),
            server(&format!("{auth}2.log"), "password"),
        ];
        servers.iter_mut().for_each(Server::start);
        let checker = Checker::of(&servers.each_ref().map(|server| server.address));
        checker.await_reply(Instant::now(), START);

        // A server with another password is refused, and says why.
        let mut stranger = server(&format!("{auth}3.log"), "wrong");
        stranger.spawn();
        let why = if auth == "digest" { "belong to another user" } else { "make zookeeper_auth" };
        until("the stranger to be refused", START, || {
            stranger.process().logged().contains(why).then_some(())
        });
        assert_eq!(stranger.role().as_deref(), Some("starting"));
        stranger.kill();

        servers[0].kill();
        checker.await_reply(Instant::now() + Duration::from_millis(50), START);
        checker.finish();
        block_on(look(&zookeeper.quorum(), auth));
    }
}

/// Checks that the rights are those of the original's secure mode.
async fn look(quorum: &str, auth: &str) {
    let client = Client::connector().connect(quorum).await.expect("a session");
    let everybody_reads = ("world".to_owned(), "anyone".to_owned(), Permission::READ);
    let rights = |acls: &[Acl]| -> Vec<(String, String, Permission)> {
        let one = |acl: &Acl| (acl.scheme().to_owned(), acl.id().to_owned(), acl.permission());
        acls.iter().map(one).collect()
    };
    let base = format!("/chronos/{auth}");
    let (root, _) = client.get_acl("/chronos").await.expect("readable");
    assert_eq!(rights(&root), [("world".into(), "anyone".into(), Permission::ALL)]);
    for path in ["", "/backup-servers", "/persistent-timestamp", "/master"] {
        let (acls, _) = client.get_acl(&format!("{base}{path}")).await.expect("readable");
        let found = rights(&acls);
        assert_eq!(found[0], everybody_reads, "{path}: {found:?}");
        let (scheme, id, permission) = &found[1];
        assert_eq!((found.len(), *permission), (2, Permission::ALL), "{path}: {found:?}");
        match auth {
            "digest" => assert!(scheme == "digest" && id.starts_with(USER), "{found:?}"),
            _ => assert_eq!((scheme.as_str(), id.as_str()), ("sasl", USER), "{found:?}"),
        }
        let refused = client.set_data(&format!("{base}{path}"), b"x", None).await;
        assert_eq!(refused.expect_err("protected"), Error::NoAuth, "{path}");
    }
    // The clients of the original read without authentication.
    client.get_data(&format!("{base}/master")).await.expect("readable");
}
