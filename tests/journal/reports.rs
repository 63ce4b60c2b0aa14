//! Reports (docs/api.md) outlive the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use kit::callbacks::{Reaction, serve};
use kit::runner::Story;
use kit::until::{PATIENCE, until};
use serde_json::json;

use super::harness::Node;

pub const STORIES: &[Story] =
    &[("a_report_survives_a_kill_between_the_pop_and_itself", survives_a_kill)];

fn survives_a_kill() {
    let (is_well, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (well, count) = (is_well.clone(), taken.clone());
    let (reports, _) = serve("127.0.0.1:0".parse().expect("an address"), move |report| {
        if !well.load(SeqCst) {
            return Reaction::Status(503);
        }
        assert!(report.body.starts_with(b"{\"id\":\""), "{report:?}");
        count.fetch_add(1, SeqCst);
        Reaction::OK
    });
    let (pops, _) =
        serve("127.0.0.1:0".parse().expect("an address"), |callback| match &*callback.path {
            "/bad" => Reaction::Status(500),
            _ => Reaction::OK,
        });
    let mut node = Node::alone();
    node.start();
    for path in ["ok", "ok", "bad"] {
        let document = json!({
            "timing": {"interval": 0},
            "callback": {
                "http": {"uri": format!("http://{pops}/{path}"), "opaque": "any text"},
                "retry": {"max-attempts": 1},
                "on-success": format!("http://{reports}/done"),
                "on-failure": format!("http://{reports}/failed"),
            },
        });
        node.create(&document.to_string());
    }
    node.await_metric("chronos_reports_made_total", |made| made == 3);
    // Reports wait for no client: the journal has them some milliseconds later.
    node.await_metric("chronos_journal_lag", |lag| lag == 0);
    node.kill();
    is_well.store(true, SeqCst);
    node.start();
    until("all reports", PATIENCE, || (taken.load(SeqCst) == 3).then_some(()));
    node.await_metric("chronos_timers", |timers| timers == 1);
    node.await_metric("chronos_journal_lag", |lag| lag == 0);
    node.kill();
    node.start();
    node.await_metric("chronos_dead_letters", |letters| letters == 1);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(taken.load(SeqCst), 3, "none comes again");
}
