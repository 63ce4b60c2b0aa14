//! `/metrics` in the format that the reader asks for: OpenMetrics, or the older text format of
//! Prometheus (version 0.0.4), which every reader knows.
//!
//! Both come from one text. The older format differs: a counter's family has the name of its
//! samples, `_total` included; there are no kinds `info` and `unknown`; there is no end mark.

use crate::wire::accept::accepts;

/// A format of `/metrics`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

impl Format {
    /// The format for a reader that sends these values of `Accept`: OpenMetrics where it is named.
    pub(super) fn wanted<'a>(mut accepted: impl Iterator<Item = &'a [u8]>) -> Self {
        match accepted.any(|value| accepts(value, b"application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// Its media type.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Makes the format of OpenMetrics text.
    pub(super) fn of(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Text => as_text(&text),
        }
    }
}

fn as_text(metrics: &str) -> String {
    let mut out = String::with_capacity(metrics.len() + metrics.len() / 16);
    // The kind stands behind the help, and the name in the help depends on the kind.
    let mut help = None;
    for line in metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match [words.next(), words.next()] {
            [Some("#"), Some("HELP")] => help = words.next().zip(words.next()),
            [Some("#"), Some("TYPE")] => {
                let (Some(name), Some(kind)) = (words.next(), words.next()) else { continue };
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, told)) = help.take_if(|(of, _)| *of == name) {
                    out.extend(["# HELP ", name, suffix, " ", told, "\n"]);
                }
                out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            [Some("#"), _] => {}
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::rendered;
    use super::*;

    #[test]
    fn who_asks_for_open_metrics_gets_it_and_others_get_text() {
        let wanted = |accept: &[&str]| Format::wanted(accept.iter().map(|value| value.as_bytes()));
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
        assert_eq!(wanted(&[prometheus]), Format::OpenMetrics);
        assert_eq!(wanted(&["text/html", "application/openmetrics-text"]), Format::OpenMetrics);
        for others in [&[][..], &["*/*"], &["text/plain"], &["application/openmetrics-text;q=0"]] {
            assert_eq!(wanted(others), Format::Text, "{others:?}");
        }
    }

    #[test]
    fn text_has_a_help_and_a_kind_for_each_family_under_the_name_of_its_samples() {
        let text = as_text(&rendered());
        let build = concat!("chronos_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1");
        for line in [
            "# HELP chronos_creates_total Timers created",
            "# TYPE chronos_creates_total counter",
            "chronos_creates_total{core=\"3\"} 7",
            "# TYPE chronos_timers gauge",
            "# TYPE chronos_lateness_seconds histogram",
            "# TYPE chronos_build_info gauge",
            build,
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
        assert!(!text.contains("# EOF") && !text.contains(" info\n"), "{text}");
        let mut helped = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                helped = rest.split(' ').next().expect("a name");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert_eq!(rest.split(' ').next(), Some(helped), "{line}");
            } else {
                assert!(line.starts_with(helped), "{line} is of no family");
            }
        }
    }
}
