//! A disk that fills up under a node, and gets room again.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use kit::mounts::Mount;
use serde_json::{Value, json};

use super::client::Client;
use super::nodes::Nodes;

/// The tag of the timers that fill the journal.
const TAG: &str = "FILLS";
/// How long a disk may take to be full, and to have room again.
const PATIENCE: Duration = Duration::from_secs(90);
/// Fewer bytes than a limit of the body takes.
const OPAQUE_BYTES: usize = 60_000;

/// Takes all room of the disk, and writes timers through the node until it says that its disk is
/// full. Returns whether it said so.
pub fn fill(nodes: &Nodes, disk: &Mount, place: usize) -> bool {
    let mut filler = fs::File::create(disk.path.join("filler")).expect("a file on the disk");
    let zeros = vec![0; 1 << 20];
    // An error means that there is no room left.
    while filler.write_all(&zeros).is_ok() {}
    let body = json!({
        "timing": { "interval": 3600 },
        "callback": { "http": { "uri": "http://127.0.0.1:9/x", "opaque": "x".repeat(OPAQUE_BYTES) } },
        "reliability": { "replication-factor": 3 },
        "statistics": { "tag-info": [{ "type": TAG }] },
    })
    .to_string();
    let mut client = Client::new(nodes.addresses());
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && nodes.metric(place, "chronos_journal_full") != Some(1) {
        for _ in 0..50 {
            // Whatever the answer is, the metric tells when the disk is full.
            let _ = client.request(place, "POST", "/timers", &body);
        }
    }
    nodes.metric(place, "chronos_journal_full") == Some(1)
}

/// Gives the disk room, waits until the node takes writes, and deletes the timers that filled the
/// journal.
///
/// # Errors
///
/// A sentence, if one of these does not happen in time.
pub fn make_room(nodes: &Nodes, disk: &Mount, place: usize) -> Result<(), String> {
    fs::remove_file(disk.path.join("filler")).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    let mut admins = Client::new(nodes.admins());
    let mut last = String::new();
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(200));
        if nodes.metric(place, "chronos_journal_full") != Some(0) {
            "its disk is full".clone_into(&mut last);
            continue;
        }
        let Ok(answer) = admins.order(place, "DELETE", &format!("/timers?tag={TAG}"), "") else {
            continue;
        };
        let path = answer.header("Location").unwrap_or("/jobs/none").to_owned();
        let job = loop {
            let Ok(answer) = admins.request(place, "GET", &path, "") else { break Value::Null };
            let job: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            if job["state"] != "running" || Instant::now() > deadline {
                break job;
            }
            thread::sleep(Duration::from_millis(50));
        };
        last = job.to_string();
        if job["complete"] == true && job["failed"] == 0 && job["seen"] == 0 {
            return Ok(());
        }
    }
    Err(format!("node {place} does not recover from a full disk: {last}"))
}
