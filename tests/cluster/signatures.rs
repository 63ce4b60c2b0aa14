//! Signed callbacks of a cluster: a receiver drops doubles by the id, whichever replica sends them.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::channel;
use std::time::Duration;

use kit::callbacks::{Callback, Reaction, serve};
use kit::runner::Story;

use super::harness::{Cluster, PATIENCE, Setup};
use super::timers::Order;

pub const STORIES: &[Story] =
    &[("another_replica_sends_the_same_id", another_replica_sends_the_same_id)];

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const TWO: [usize; 2] = [0, 1];

/// The first attempt fails, so the other replica makes the second one, 2 s after the due time. The
/// next pop has another id.
fn another_replica_sends_the_same_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secrets");
    std::fs::write(&file, SECRET).expect("written");
    let permissions = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&file, permissions).expect("its own file");
    let local = format!("\n[callbacks]\nsigning_secrets_file = {}\n", file.display());
    let mut cluster = Cluster::with(Setup { local, ..Setup::default() });
    cluster.begin(&TWO);
    cluster.await_alive(&TWO);
    let (sender, callbacks) = channel::<Callback>();
    let address = "127.0.0.1:0".parse().expect("an address");
    let (address, _) = serve(address, move |callback| {
        // The story may have ended.
        let _ = sender.send(callback.clone());
        Reaction::Status(if callback.connection == 0 { 500 } else { 200 })
    });
    let uri = format!("http://{address}/pop");
    let document = Order::once(5_000).times(2).factor(2).document(&uri, "signed");
    cluster.request(0, "POST", "/timers", &document).location();
    let next = || callbacks.recv_timeout(PATIENCE).expect("another attempt");
    let (first, second) = (next(), next());
    assert_ne!(first.connection, second.connection, "another node");
    assert!(second.at - first.at > Duration::from_secs(1), "a node would try again at once");
    assert_eq!((first.sequence(), second.sequence()), (1, 1));
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    assert_ne!(first.header("webhook-timestamp"), second.header("webhook-timestamp"));
    assert_ne!(first.header("webhook-signature"), second.header("webhook-signature"));
    let third = next();
    assert_eq!(third.sequence(), 2);
    assert_ne!(third.header("webhook-id"), second.header("webhook-id"));
}
