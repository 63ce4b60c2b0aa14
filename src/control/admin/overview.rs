//! `/overview`: how a node is at present, in one short document. The console asks for it every 2 s.
//! It also tells when the timers of the whole site are due. Counting these is a walk over all
//! timers, so the walk is shared: one counts for all who ask.

// Reads the wall clock: told 1.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::alarm_board::AlarmBoard;
use super::answers::json_line;
use super::facts::Facts;
use super::node_view::NodeView;
use super::status::{histogram_of_all, total_of};
use crate::control::long_work;
use crate::core::lists::ListAsked;
use crate::node::clients::list_answers::write_count;
use crate::node::list_orders::Ordered;
use crate::node::meters::CoreMeters;
use crate::ring;
use crate::shard::effects::{Answer, Internal};

/// The least time between two walks.
const WALK_EVERY: Duration = Duration::from_secs(10);
/// The cores walk for at most this share of the time: one part in so many.
const WALK_SHARE: u32 = 50;

/// Meters that only grow. Who asks twice makes rates of them.
const COUNTERS: [&str; 15] = [
    "creates",
    "updates",
    "deletes",
    "reads",
    "pops_delivered",
    "pops_failed",
    "pops_timed_out",
    "pops_retried",
    "pops_given_up",
    "requests",
    "requests_bad",
    "requests_refused",
    "cpu_ns",
    "turns_over_budget",
    "timers_moved",
];
/// Meters that go up and down.
const GAUGES: [&str; 12] = [
    "timers",
    "tombstones",
    "store_bytes",
    "pops_waiting",
    "pops_in_flight",
    "oldest_overdue_ms",
    "writes_waiting",
    "connections",
    "callback_hosts",
    "timers_misplaced",
    "writes_refused",
    "walks",
];

/// Answers the document.
pub(super) async fn overview(
    State(view): State<NodeView>,
    State(facts): State<Arc<Facts>>,
    State(alarms): State<AlarmBoard>,
    State(due): State<DueBoard>,
) -> Response {
    let meters = &view.meters;
    let lists: Vec<_> = meters.iter().map(CoreMeters::list).collect();
    let named = |names: &[&str]| -> Map<String, Value> {
        names.iter().map(|name| ((*name).to_owned(), total_of(&lists, name).into())).collect()
    };
    let [alive, suspect, dead] =
        ["peers_alive", "peers_suspect", "peers_dead"].map(|name| largest(&lists, name));
    json_line(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "name": view.cluster.own_name(),
        "state": view.state().name(),
        "at": super::moment(ring::now().wall.0),
        "uptime_ms": view.started.elapsed().as_millis() as u64,
        "shards": meters.len(),
        "timers_max": facts.timers_max,
        "store_bytes_max": facts.store_bytes_max,
        "counters": named(&COUNTERS),
        "gauges": named(&GAUGES),
        "lateness": histogram_of_all(meters, |core| &core.lateness),
        "peers": { "alive": alive, "suspect": suspect, "dead": dead },
        "alarms": alarms.counts(),
        "work": long_work::document(&view.cluster, meters, view.started.elapsed()),
        "due": due.document(&view),
    }))
}

/// The largest figure of a core: what all cores believe.
fn largest(lists: &[Vec<(&'static str, bool, &'static str, u64)>], name: &str) -> u64 {
    let found = lists.iter().flatten().filter(|meter| meter.0 == name).map(|meter| meter.3);
    found.max().unwrap_or(0)
}

/// When timers are due, as counted last.
#[derive(Clone, Debug, Default)]
pub(super) struct DueBoard(Arc<Mutex<Due>>);

#[derive(Debug, Default)]
struct Due {
    counted: Option<(Instant, Value)>,
    is_counting: bool,
    /// No walk begins before.
    not_before: Option<Instant>,
}

impl DueBoard {
    fn lock(&self) -> MutexGuard<'_, Due> {
        // Every change is one assignment, so a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted last, and how long ago; null before the first walk has ended. Begins a walk
    /// if it is time for one.
    fn document(&self, view: &NodeView) -> Value {
        let mut due = self.lock();
        let now = Instant::now();
        if !due.is_counting && due.not_before.is_none_or(|moment| moment <= now) {
            due.is_counting = true;
            tokio::spawn(self.clone().count(view.clone()));
        }
        let Some((at, counted)) = &due.counted else { return Value::Null };
        let mut document = counted.clone();
        if let Some(members) = document.as_object_mut() {
            members.insert("age_ms".into(), (at.elapsed().as_millis() as u64).into());
        }
        document
    }

    async fn count(self, view: NodeView) {
        let begun = Instant::now();
        let answer = view.list(Ordered::List(ListAsked::Count { has_spans: true })).await;
        let took = begun.elapsed();
        let mut due = self.lock();
        if let Some(document) = answer.as_ref().ok().and_then(numbers) {
            due.counted = Some((Instant::now(), document));
        }
        due.is_counting = false;
        due.not_before = Some(Instant::now() + WALK_EVERY.max(took * WALK_SHARE));
    }
}

/// The numbers that an overview has.
fn numbers(answer: &Answer) -> Option<Value> {
    let Answer::Internal(internal) = answer else { return None };
    let Internal::Count(count) = &**internal else { return None };
    let mut text = Vec::new();
    write_count(count, &mut text);
    let whole: Value = serde_json::from_slice(&text).ok()?;
    let member = |name: &str| whole.get(name).cloned().unwrap_or_default();
    Some(json!({
        "timers": member("timers"),
        "by-state": member("by-state"),
        "due": member("due"),
        "incomplete": member("incomplete"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_a_meter() {
        let list = CoreMeters::default().list();
        for (names, is_counter) in [(&COUNTERS[..], true), (&GAUGES[..], false)] {
            for name in names {
                let meter = list.iter().find(|meter| meter.0 == *name);
                assert_eq!(meter.map(|meter| meter.1), Some(is_counter), "{name}");
            }
        }
    }
}
