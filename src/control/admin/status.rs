//! `/status`: everything about the node that is not hot, as one JSON document for people and
//! scripts.

// May panic: indices 3.
// Why it does not: cores 3.

use serde_json::{Map, Value, json};

use super::node_view::NodeView;
use super::process::ProcessUse;
use crate::node::meters::{BUCKETS_US, CoreMeters, Histogram};

/// The figures of the short document.
const FIGURES: [&str; 22] = [
    "timers",
    "dead_letters",
    "timers_paused",
    "creates",
    "updates",
    "deletes",
    "pops_delivered",
    "pops_failed",
    "pops_given_up",
    "pops_waiting",
    "pops_in_flight",
    "oldest_overdue_ms",
    "requests",
    "requests_bad",
    "requests_refused",
    "writes_refused",
    "connections",
    "store_bytes",
    "peers_alive",
    "peers_suspect",
    "peers_dead",
    "journal_lag",
];

/// Renders what an operator looks at first. All else is in [`render`].
pub(super) fn render_short(view: &NodeView, process: ProcessUse) -> Value {
    let mut document = render(view, process);
    let Some(members) = document.as_object_mut() else { return document };
    let cluster = members.remove("cluster").unwrap_or_default();
    let of = |name: &str| cluster.get(name).cloned().unwrap_or_default();
    let count = cluster.get("members").and_then(Value::as_array).map_or(0, Vec::len);
    let short = json!({
        "name": of("name"),
        "site": of("site"),
        "members": count,
        "is_full": of("is_full"),
        "reload_error": of("reload_error"),
    });
    members.insert("cluster".into(), short);
    if let Some(Value::Object(totals)) = members.get_mut("totals") {
        totals.retain(|name, _| FIGURES.contains(&name.as_str()));
    }
    for member in ["per_core", "kernel", "cores", "pinned"] {
        members.remove(member);
    }
    members.insert("more".into(), "GET /status?all, GET /metrics".into());
    document
}

/// Renders all of the document. Meters keep their own names and units here. Durations of histograms
/// are in microseconds.
pub(super) fn render(view: &NodeView, process: ProcessUse) -> Value {
    let lists: Vec<_> = view.meters.iter().map(CoreMeters::list).collect();
    let mut totals: Map<String, Value> = Map::new();
    for list in &lists {
        for &(name, _, _, value) in list {
            let before = totals.get(name).and_then(Value::as_u64).unwrap_or(0);
            let total =
                if is_extreme(name) { before.max(value) } else { before.wrapping_add(value) };
            totals.insert(name.into(), total.into());
        }
    }
    let per_core: Vec<Value> =
        (0..lists.len()).map(|shard| core_of(view, shard, &lists[shard])).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "state": view.state().name(),
        "uptime_ms": process.uptime.as_millis() as u64,
        "address": view.address.to_string(),
        "shards": view.meters.len(),
        "cores": view.cores,
        "pinned": !view.cores.is_empty(),
        "kernel": { "release": view.kernel_release, "features": view.kernel_features },
        "process": {
            "resident_bytes": process.resident_bytes,
            "cpu_ns": process.cpu_ns,
            "open_files": process.open_files,
        },
        "cluster": view.cluster.render(&view.meters),
        "timestamp": view.timestamps.as_ref().map(|board| board.render(crate::ring::now())),
        "totals": totals,
        "per_core": per_core,
    })
}

/// The node's figure of a meter: the sum over its cores, or the largest.
pub(super) fn total_of(lists: &[Vec<(&'static str, bool, &'static str, u64)>], name: &str) -> u64 {
    let figures = lists.iter().flatten().filter(|meter| meter.0 == name).map(|meter| meter.3);
    if is_extreme(name) { figures.max().unwrap_or(0) } else { figures.fold(0, u64::wrapping_add) }
}

/// Reports whether the node's figure is the largest of its cores' figures. All other figures of the
/// node are sums.
fn is_extreme(name: &str) -> bool {
    let extremes = [
        "oldest_overdue_ms",
        "clocks_apart_ms",
        "clock_refused",
        "writes_refused",
        "node_full",
        "sites_unreached",
        "site_unreached_ms",
        "site_lag_ms",
        "site_lists_differ_ms",
    ];
    name.ends_with("_max") || extremes.contains(&name)
}

fn core_of(view: &NodeView, shard: usize, list: &[(&str, bool, &str, u64)]) -> Value {
    let mut core: Map<String, Value> =
        list.iter().map(|&(name, _, _, value)| (name.to_string(), value.into())).collect();
    core.insert("shard".into(), shard.into());
    core.insert("core".into(), view.core_label(shard).into());
    core.insert("lateness".into(), histogram(&view.meters[shard].lateness));
    core.insert("turn".into(), histogram(&view.meters[shard].turn));
    core.into()
}

/// The sum over cores: bounds in microseconds, and one count more than there are bounds.
pub(super) fn histogram_of_all(
    meters: &[CoreMeters],
    of: impl Fn(&CoreMeters) -> &Histogram,
) -> Value {
    let mut counts = [0_u64; BUCKETS_US.len() + 1];
    let mut sum_us = 0_u64;
    for core in meters {
        let (read, sum) = of(core).read();
        counts.iter_mut().zip(read).for_each(|(count, read)| *count = count.wrapping_add(read));
        sum_us = sum_us.wrapping_add(sum);
    }
    json!({ "le_us": BUCKETS_US, "counts": counts, "sum_us": sum_us })
}

/// Renders the buckets that hold something. `le_us` is null for the bucket above the last bound.
fn histogram(histogram: &Histogram) -> Value {
    let (counts, sum_us) = histogram.read();
    let buckets: Vec<Value> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(index, count)| json!({ "le_us": BUCKETS_US.get(index), "count": count }))
        .collect();
    json!({ "count": counts.iter().sum::<u64>(), "sum_us": sum_us, "buckets": buckets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sums_and_extremes_over_cores() {
        let view = NodeView::with_meters(vec![2, 3], 2);
        for (shard, n) in [(0, 5), (1, 3)] {
            view.meters[shard].timers.set(n);
            view.meters[shard].oldest_overdue_ms.set(n);
            view.meters[shard].mesh_depth_max.set(n);
        }
        view.meters[1].lateness.record_us(120);
        view.meters[1].lateness.record_us(90_000_000);
        let status = render(&view, ProcessUse::default());
        assert_eq!(status["totals"]["timers"], 8);
        assert_eq!(status["totals"]["oldest_overdue_ms"], 5);
        assert_eq!(status["totals"]["mesh_depth_max"], 5);
        assert_eq!(status["per_core"][1]["core"], 3);
        assert_eq!(status["per_core"][1]["timers"], 3);
        let buckets = json!([{ "le_us": 200, "count": 1 }, { "le_us": null, "count": 1 }]);
        assert_eq!(status["per_core"][1]["lateness"]["buckets"], buckets);
        assert_eq!(status["state"], "serving");
        assert_eq!(status["shards"], 2);
        let short = render_short(&view, ProcessUse::default());
        assert_eq!((&short["totals"]["timers"], &short["state"]), (&8.into(), &"serving".into()));
        let figures = short["totals"].as_object().expect("an object");
        assert_eq!(figures.len(), FIGURES.len(), "each is one of a core");
        let lines = format!("{short:#}").lines().count();
        assert!(short.get("per_core").is_none() && lines < 80, "{lines} lines");
    }

    #[test]
    fn histograms_of_cores_are_added() {
        let meters = [CoreMeters::default(), CoreMeters::default()];
        meters[0].lateness.record_us(60);
        meters[1].lateness.record_us(70);
        meters[1].lateness.record_us(90_000_000);
        let sum = histogram_of_all(&meters, |core| &core.lateness);
        assert_eq!((&sum["counts"][1], &sum["counts"][20]), (&2.into(), &1.into()));
        assert_eq!(sum["le_us"][1], 100);
    }
}
