//! `/metrics` in the OpenMetrics text format, of which [`super::metrics_text`] makes the older one.
//! Names, kinds and help texts come from the one list of meters. Names end in base units (seconds,
//! bytes) as Prometheus asks, so `_ms`, `_us` and `_ns` meters are converted. What each process has
//! stands under the names that all Prometheus clients give it.

// May panic: indices 4.
// Why it does not: cores 4.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::node_view::NodeView;
use super::process::ProcessUse;
use crate::control::log;
use crate::control::tags::history::{Report, WindowReport};
use crate::control::tags::statistics::TagsReport;
use crate::control::timestamp::board::{ROLES, TimestampBoard, role_name};
use crate::node::meters::{BUCKETS_US, Histogram};

/// How a meter appears in `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Exposed {
    /// The meter's name without its unit.
    stem: &'static str,
    /// What the exposed name has in place of the meter's unit: `_seconds`, or nothing.
    suffix: &'static str,
    /// How many of the meter's units make one exposed unit.
    divisor: f64,
}

/// Returns how a meter is exposed: `oldest_overdue_ms` as `oldest_overdue_seconds`, `cpu_ns` as
/// `cpu_seconds`, every meter without a unit of time under its own name.
fn exposed(meter: &'static str) -> Exposed {
    for (unit, divisor) in [("_ms", 1e3), ("_us", 1e6), ("_ns", 1e9)] {
        if let Some(stem) = meter.strip_suffix(unit) {
            return Exposed { stem, suffix: "_seconds", divisor };
        }
    }
    Exposed { stem: meter, suffix: "", divisor: 1.0 }
}

/// Renders every metric. Reads each core's counters with plain loads, so no core waits for a
/// scrape.
pub(super) fn render(
    view: &NodeView,
    process: ProcessUse,
    tags: TagsReport,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("chronos");
    registry.register_collector(Box::new(Snapshot { view: view.clone(), process, tags }));
    let mut of_process = Registry::default();
    of_process.register_collector(Box::new(process));
    let mut text = String::with_capacity(128 << 10);
    encode_registry(&mut text, &registry)?;
    encode_registry(&mut text, &of_process)?;
    encode_eof(&mut text)?;
    Ok(text)
}

/// The state of one scrape, from which the encoder writes every family.
#[derive(Debug)]
struct Snapshot {
    view: NodeView,
    process: ProcessUse,
    tags: TagsReport,
}

/// Takes one figure from a window of a tag.
type OfWindow = fn(&WindowReport) -> f64;

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_meters(&mut encoder)?;
        self.encode_histogram(
            &mut encoder,
            "lateness_seconds",
            "From the due time to the loop turn that begins the first attempt, per pop",
            |shard| &self.view.meters[shard].lateness,
        )?;
        self.encode_histogram(
            &mut encoder,
            "turn_seconds",
            "Length of loop turns, waiting not counted",
            |shard| &self.view.meters[shard].turn,
        )?;
        self.encode_histogram(
            &mut encoder,
            "journal_sync_seconds",
            "From giving a piece of the journal to the kernel until the disk has it",
            |shard| &self.view.meters[shard].journal_sync,
        )?;
        self.encode_cluster(&mut encoder)?;
        self.encode_destinations(&mut encoder)?;
        self.encode_tags(&mut encoder)?;
        if let Some(board) = &self.view.timestamps {
            encode_timestamps(board, &mut encoder)?;
        }
        self.encode_process(&mut encoder)
    }
}

impl Snapshot {
    /// Writes one family per meter, with one sample per core.
    fn encode_meters(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let cores: Vec<_> = self.view.meters.iter().map(|meters| meters.list()).collect();
        let Some(first) = cores.first() else { return Ok(()) };
        for (index, &(meter, is_counter, help, _)) in first.iter().enumerate() {
            let Exposed { stem, suffix, divisor } = exposed(meter);
            let name = format!("{stem}{suffix}");
            let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(&name, sentence(help), None, kind)?;
            for (shard, meters) in cores.iter().enumerate() {
                let labels = [("core", self.view.core_label(shard).to_string())];
                let mut sample = family.encode_family(&labels)?;
                let value = meters[index].3;
                match (is_counter, divisor == 1.0) {
                    (true, true) => sample.encode_counter::<NoLabelSet, u64, f64>(&value, None)?,
                    (true, false) => {
                        let converted = value as f64 / divisor;
                        sample.encode_counter::<NoLabelSet, f64, f64>(&converted, None)?;
                    }
                    (false, _) => sample.encode_gauge(&(value as f64 / divisor))?,
                }
            }
        }
        Ok(())
    }

    fn encode_histogram<'a>(
        &'a self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        histogram: impl Fn(usize) -> &'a Histogram,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for shard in 0..self.view.meters.len() {
            let (counts, sum_us) = histogram(shard).read();
            // The encoder makes the counts cumulative and writes f64::MAX as +Inf.
            let bounds = BUCKETS_US.iter().map(|&bound| bound as f64 / 1e6).chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let labels = [("core", self.view.core_label(shard).to_string())];
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum_us as f64 / 1e6,
                counts.iter().sum(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn encode_cluster(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let (reloads, failures) = self.view.cluster.reloads();
        let counters = [
            ("reloads", "Times that the configuration was read again", reloads),
            ("reload_failures", "Reloads refused: the old configuration stays", failures),
        ];
        let originals = self.view.cluster.originals().counters();
        for (name, help, value) in counters.into_iter().chain(originals) {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    /// Writes two figures of all destinations together: no operator's host becomes a label.
    fn encode_destinations(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let (rules, paused) = self.view.destinations.counts();
        let gauges = [
            ("destinations_with_rules", "Destinations that have a rule", rules),
            ("destinations_paused", "Destinations that are paused", paused),
        ];
        for (name, help, value) in gauges {
            let value = value as f64;
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes at most 13 samples a tag for at most `limits.tags_max` tags, and 13 samples for all
    /// other tags together.
    fn encode_tags(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let tags = || self.tags.tags.iter().map(|(name, report)| (escaped(name), report));
        let overflow = &self.tags.overflow;
        let help = "Sum of a statistics tag's counts over the live timers held as primary";
        let mut family = encoder.encode_descriptor("tag_current", help, None, MetricType::Gauge)?;
        for (name, report) in tags() {
            family.encode_family(&[("tag", name)])?.encode_gauge(&report.current)?;
        }
        let help = "Sum of the counts of all tags beyond limits.tags_max";
        let kind = MetricType::Gauge;
        encoder
            .encode_descriptor("tags_overflow_current", help, None, kind)?
            .encode_gauge(&overflow.current)?;
        let families: [(&str, &str, OfWindow); 4] = [
            ("tag_average", "Time-weighted mean of tag_current", |window| window.average),
            ("tag_variance", "Time-weighted variance of tag_current", |window| window.variance),
            ("tag_low", "Low water mark of tag_current", |window| window.low as f64),
            ("tag_high", "High water mark of tag_current", |window| window.high as f64),
        ];
        for (name, help, figure) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            let overflow = [(String::new(), overflow)].into_iter();
            let overflow = overflow.filter(|(_, report)| **report != Report::default());
            for (tag, report) in tags().chain(overflow) {
                for (window, figures) in report.windows() {
                    let labels = [("tag", tag.as_str()), ("window", window)];
                    family.encode_family(&labels)?.encode_gauge(&figure(figures))?;
                }
            }
        }
        Ok(())
    }

    fn encode_process(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let (name, help) = ("uptime_seconds", "Time since the node began to serve");
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&self.process.uptime.as_secs_f64())?;
        let (name, help) = ("log_lines_dropped", "Lines of the log that could not be written");
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&log::dropped(), None)?;
        encoder
            .encode_descriptor("build", "Version that runs", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

impl Collector for ProcessUse {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let gauges = [
            ("resident_memory_bytes", "Resident memory size in bytes", self.resident_bytes as f64),
            ("virtual_memory_bytes", "Virtual memory size in bytes", self.virtual_bytes as f64),
            ("open_fds", "Number of open file descriptors", self.open_files as f64),
            ("max_fds", "Maximum number of open file descriptors", self.open_files_max as f64),
            (
                "start_time_seconds",
                "Start time of the process since the Unix epoch in seconds",
                self.began.as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            let name = format!("process_{name}");
            encoder
                .encode_descriptor(&name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        let (name, help) =
            ("process_cpu_seconds", "Total user and system CPU time spent in seconds");
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, f64, f64>(&(self.cpu_ns as f64 / 1e9), None)
    }
}

/// Writes what the keeper of timestamps knows. A figure that makes no sense at present is 0.
fn encode_timestamps(board: &TimestampBoard, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let figures = board.figures(crate::ring::now());
    let seconds = |ms: u64| ms as f64 / 1e3;
    let gauges = [
        (
            "timestamp_serving",
            "Whether timestamps are handed out: 1 or 0",
            f64::from(u8::from(figures.is_serving)),
        ),
        (
            "timestamp_window_remaining_seconds",
            "What is left of the stored window",
            seconds(figures.window_remaining_ms),
        ),
        (
            "timestamp_lease_remaining_seconds",
            "What is left of the master's lease; 0 with coordination by file, which needs none",
            seconds(figures.lease_remaining_ms.unwrap_or(0)),
        ),
        (
            "timestamp_ahead_seconds",
            "How far timestamps are ahead of the wall clock",
            seconds(figures.ahead_ms),
        ),
        (
            "timestamp_behind_seconds",
            "How far timestamps are behind the wall clock",
            seconds(figures.behind_ms),
        ),
        (
            "timestamp_keeper_failed",
            "Whether the keeper has ended on a broken invariant: 1 or 0",
            f64::from(u8::from(board.has_ended())),
        ),
    ];
    for (name, help, value) in gauges {
        encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
    }
    let help = "What the server is: 1 for the role that it has";
    let mut family = encoder.encode_descriptor("timestamp_role", help, None, MetricType::Gauge)?;
    for role in ROLES {
        let labels = [("role", role_name(role))];
        let has_it = f64::from(u8::from(board.role() == role));
        family.encode_family(&labels)?.encode_gauge(&has_it)?;
    }
    for (name, help, count) in board.counters.list() {
        let name = format!("timestamp_{name}");
        encoder
            .encode_descriptor(&name, sentence(help), None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
    }
    Ok(())
}

/// Makes a help text of a doc comment: without the space at its begin and the full stop at its end.
fn sentence(help: &str) -> &str {
    help.trim().trim_end_matches('.')
}

/// Escapes a label's value for the text format. The encoder writes values as they are. The format
/// has no escape for other control characters, which a terminal would obey: they are written as
/// Rust writes them, such as `\\u{1b}`.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c if c.is_control() => text.push_str(&format!("\\{}", c.escape_unicode())),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    pub(in crate::control::admin) fn rendered() -> String {
        let view = NodeView::with_meters(vec![3, 5], 2);
        view.meters[0].creates.add(7);
        view.meters[1].oldest_overdue_ms.set(1_500);
        view.meters[1].cpu_ns.set(2_500_000_000);
        for us in [40, 50, 51, 70_000_000] {
            view.meters[0].lateness.record_us(us);
        }
        let process = ProcessUse {
            resident_bytes: 4096,
            virtual_bytes: 8192,
            open_files_max: 20,
            began: Duration::from_millis(1_700_000_000_500),
            cpu_ns: 1_000_000_000,
            open_files: 9,
            uptime: Duration::from_millis(1_500),
        };
        let figures = WindowReport { average: 2.5, variance: 0.25, low: 1, high: 4 };
        let report = Report { current: 3, last_5_seconds: figures, ..Report::default() };
        let names = ["CALL", "a\"b\\\n\u{1b}[2J"];
        let tags = names.map(|name| (name.to_owned(), report)).into();
        let tags = TagsReport { tags, overflow: Report::default() };
        render(&view, process, tags).expect("writing to a String cannot fail")
    }

    /// Returns the names of all families, e.g. `chronos_creates`.
    fn families(text: &str) -> BTreeSet<&str> {
        text.lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|rest| rest.split(' ').next())
            .collect()
    }

    #[test]
    fn meters_are_exposed_per_core_in_base_units() {
        let text = rendered();
        for line in [
            "# HELP chronos_creates Timers created",
            "# TYPE chronos_creates counter",
            "chronos_creates_total{core=\"3\"} 7",
            "chronos_creates_total{core=\"5\"} 0",
            "chronos_oldest_overdue_seconds{core=\"5\"} 1.5",
            "chronos_cpu_seconds_total{core=\"5\"} 2.5",
            "# TYPE process_cpu_seconds counter",
            "process_cpu_seconds_total 1.0",
            "process_resident_memory_bytes 4096.0",
            "process_open_fds 9.0",
            "process_max_fds 20.0",
            "process_start_time_seconds 1700000000.5",
            "chronos_uptime_seconds 1.5",
            "chronos_tag_current{tag=\"CALL\"} 3",
            "chronos_tag_current{tag=\"a\\\"b\\\\\\n\\\\u{1b}[2J\"} 3",
            "chronos_tag_average{tag=\"CALL\",window=\"last_5_seconds\"} 2.5",
            "chronos_tag_high{tag=\"CALL\",window=\"last_5_seconds\"} 4.0",
            "chronos_tag_low{tag=\"CALL\",window=\"previous_5_minutes\"} 0.0",
            "chronos_tags_overflow_current 0",
            "chronos_timestamp_serving 0.0",
            "chronos_timestamp_role{role=\"starting\"} 1.0",
            "chronos_timestamp_role{role=\"master\"} 0.0",
            "chronos_timestamp_foreign_bounds_total 0",
            concat!("chronos_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn histogram_buckets_are_cumulative_and_end_at_infinity() {
        let text = rendered();
        for line in [
            "chronos_lateness_seconds_bucket{le=\"0.00005\",core=\"3\"} 2",
            "chronos_lateness_seconds_bucket{le=\"0.0001\",core=\"3\"} 3",
            "chronos_lateness_seconds_bucket{le=\"60.0\",core=\"3\"} 3",
            "chronos_lateness_seconds_bucket{le=\"+Inf\",core=\"3\"} 4",
            "chronos_lateness_seconds_count{core=\"3\"} 4",
            "chronos_lateness_seconds_sum{core=\"3\"} 70.000141",
            "chronos_turn_seconds_count{core=\"5\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn every_metric_is_documented_and_no_document_outlives_its_metric() {
        // Documented are the names in the first column of each table of metrics. The table of
        // alarms is left out by its expressions, which no name of a metric looks like.
        let documented: BTreeSet<&str> = include_str!("../../../docs/metrics.md")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name))
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            .collect();
        let text = rendered();
        assert_eq!(families(&text), documented);
    }
}
