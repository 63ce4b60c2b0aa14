//! The report as one page, without scripts, fonts or images from elsewhere. The page can be read on
//! light and dark screens, on telephones and on paper. Lateness comes first: that is what a timer
//! service is for.

use std::fmt::Write;

use crate::chart::{
    Frame, distribution, escape, percentile_curve, percentiles_over_time, timeline,
};
use crate::histogram::BUCKET_NS;
use crate::report::{Report, Row, duration_text, grouped};
use crate::scenario::kind::Scenario;

const STYLE: &str = include_str!("html/style.css");

/// The report as a whole HTML page.
pub fn page(report: &Report) -> String {
    let about = Scenario::ALL.into_iter().find(|each| each.name() == report.scenario);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>chronos-loadgen {0}</title><style>{STYLE}</style></head><body><main>\
         <header><div><p class=\"eyebrow\">Chronos load generator</p><h1>{0}</h1>\
         <p class=\"about\">{3}</p></div><span class=\"badge {1}\">{2}</span></header>",
        escape(&report.scenario),
        if report.passed { "good" } else { "bad" },
        if report.passed { "passed" } else { "failed" },
        about.map_or(String::new(), |scenario| escape(scenario.about()))
    );
    lines(&mut page, "problem", &report.problems);
    tiles(&mut page, report);
    charts(&mut page, report);
    percentiles(&mut page, report);
    numbers(&mut page, report);
    lines(&mut page, "note", &report.notes);
    let machine = &report.machine;
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "<section><h2>How to repeat it</h2><pre>{}</pre><p class=\"muted\">{}, {} cores, {} MiB \
         memory, Linux {}. Finished {}.</p></section></main></body></html>",
        escape(&report.command_line),
        escape(&machine.cpu),
        machine.cores,
        grouped(machine.memory_mib),
        escape(&machine.kernel),
        escape(&report.finished_at)
    );
    page
}

fn lines(page: &mut String, class: &str, texts: &[String]) {
    for text in texts {
        let _ = write!(page, "<p class=\"{class}\">{}</p>", escape(text));
    }
}

/// Writes the most important figures as tiles.
fn tiles(page: &mut String, report: &Report) {
    let mut all: Vec<(&str, String, &str)> = Vec::new();
    if let Some(pops) = &report.pops {
        all.push(("lateness p50", duration_text(pops.lateness_us.p50), ""));
        all.push(("lateness p99", duration_text(pops.lateness_us.p99), ""));
        all.push(("lateness p99.9", duration_text(pops.lateness_us.p99_9), ""));
        let wrong = pops.early + pops.lost + pops.doubled;
        let class = if wrong == 0 { "good" } else { "bad" };
        let text = [pops.early, pops.lost, pops.doubled].map(grouped).join(" / ");
        all.push(("early / lost / doubled", text, class));
        all.push(("pops per second", grouped(pops.per_second.round() as u64), ""));
    }
    if let Some(requests) = &report.requests {
        all.push(("latency p50", duration_text(requests.latency_us.p50), ""));
        all.push(("latency p99", duration_text(requests.latency_us.p99), ""));
        all.push(("latency p99.9", duration_text(requests.latency_us.p99_9), ""));
        all.push(("requests per second", grouped(requests.per_second.round() as u64), ""));
    }
    let server = &report.server;
    for (name, value) in [
        ("server CPU per request", server.cpu_us_per_request),
        ("server CPU per pop", server.cpu_us_per_pop),
    ] {
        if let Some(us) = value {
            all.push((name, duration_text(us), ""));
        }
    }
    if let Some(bytes) = server.bytes_per_timer {
        all.push(("memory per timer", format!("{bytes:.1} B"), ""));
    }
    page.push_str("<div class=\"tiles\">");
    for (name, value, class) in all {
        let _ = write!(
            page,
            "<div class=\"tile {class}\"><span class=\"value\">{value}</span>\
             <span class=\"name\">{name}</span></div>"
        );
    }
    page.push_str("</div>");
}

/// Writes a chart under its title: once for wide pages and once for telephones. The style sheet
/// shows one of the two.
fn card(
    page: &mut String,
    title: &str,
    text: &str,
    names: &[&str],
    draw: impl Fn(Frame) -> String,
) {
    let _ = write!(page, "<section class=\"card\"><h2>{title}</h2><p class=\"muted\">{text}</p>");
    if names.len() > 1 {
        page.push_str("<p class=\"legend\">");
        for (index, name) in names.iter().enumerate() {
            let _ = write!(page, "<span class=\"key s{index}\">{}</span>", escape(name));
        }
        page.push_str("</p>");
    }
    for (class, frame) in [("wide", Frame::WIDE), ("narrow", Frame::NARROW)] {
        let _ = write!(page, "<div class=\"{class}\">{}</div>", draw(frame));
    }
    page.push_str("</section>");
}

fn charts(page: &mut String, report: &Report) {
    let drawings = &report.drawings;
    let bucket_s = BUCKET_NS as f64 / 1e9;
    let kinds = [
        (
            "Lateness",
            "From the due time to the arrival at the sink",
            (&drawings.lateness, &drawings.lateness_over_time),
            ("Pops per second", &drawings.pops, "From the first pop on."),
        ),
        (
            "Latency",
            "From the intended send time to the answer",
            (&drawings.latency, &drawings.latency_over_time),
            ("Answers per second", &drawings.answers, "Over the measured time."),
        ),
    ];
    for (word, text, (series, times), (count_title, counts, count_text)) in kinds {
        if series.iter().any(|(_, values)| !values.is_empty()) {
            let title = format!("{word} over time");
            let names = ["p50", "p99", "highest"];
            card(page, &title, &format!("{text}, logarithmic."), &names, |frame| {
                let moments = times.moments(frame.points_max());
                percentiles_over_time(frame, &title, &moments, times.seconds())
            });
            let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
            let title = format!("{word} distribution");
            let text = "The share of the values in each bar. Dashed: percentiles.";
            card(page, &title, text, &names, |frame| distribution(frame, &title, series));
            let title = format!("{word} by percentile");
            let text = "The further right, the rarer: each step is ten times fewer.";
            card(page, &title, text, &names, |frame| percentile_curve(frame, &title, series));
        }
        if counts.len() > 1 {
            card(page, count_title, count_text, &[], |frame| {
                timeline(frame, count_title, counts, bucket_s)
            });
        }
    }
}

fn percentiles(page: &mut String, report: &Report) {
    page.push_str(
        "<section class=\"card\"><h2>Percentiles</h2><div class=\"scroll\"><table><thead><tr>\
         <th></th><th>count</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>p99.9</th>\
         <th>max</th></tr></thead><tbody>",
    );
    for (name, of) in report.distributions() {
        let _ = write!(page, "<tr><th>{}</th><td>{}</td>", escape(&name), grouped(of.count));
        for us in [of.mean, of.p50, of.p90, of.p99, of.p99_9, of.max] {
            let _ = write!(page, "<td>{}</td>", duration_text(us));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div></section>");
}

/// Writes the figures, and what each means.
fn numbers(page: &mut String, report: &Report) {
    page.push_str("<section class=\"card\"><h2>Numbers</h2><table class=\"pairs\"><tbody>");
    for Row { name, value, meaning } in report.rows() {
        let _ = write!(page, "<tr><th>{}", escape(&name));
        if !meaning.is_empty() {
            let _ = write!(page, "<p class=\"muted\">{}</p>", escape(meaning));
        }
        let _ = write!(page, "</th><td>{}</td></tr>", escape(&value));
    }
    page.push_str("</tbody></table></section>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::new_histogram;
    use crate::machine::Machine;
    use crate::over_time::OverTime;
    use crate::report::{Drawings, Own, Percentiles, Pops, Requests, Server};

    fn report() -> Report {
        let mut latency = new_histogram();
        let mut random = crate::random::Random::new(1);
        for _ in 0..100_000 {
            latency.saturating_record((random.exponential(300_000.0) + 40_000.0) as u64);
        }
        let percentiles = Percentiles::of(&latency);
        let requests = Requests {
            answered: 100_000,
            seconds: 1.0,
            per_second: 100_000.0,
            latency_us: percentiles,
            latency_us_by_operation: [("create", percentiles), ("delete", percentiles)].into(),
            latency_us_during: Some(percentiles),
            failures: [("status 503".to_owned(), 2)].into(),
            reconnects: 1,
        };
        let pops = Pops {
            owed: 5,
            arrived: 5,
            per_second: 5.0,
            early: 0,
            early_us_max: 0.0,
            lost: 0,
            doubled: 0,
            retried: 0,
            misordered: 0,
            stray: 0,
            lateness_us: percentiles,
            lateness_us_during: None,
        };
        let both = vec![("all".to_owned(), latency.clone()), ("during <it>".to_owned(), latency)];
        let mut over_time = OverTime::default();
        for tenth in (0..100u64).filter(|tenth| tenth % 40 != 7) {
            for _ in 0..50 {
                let ns = random.exponential(300_000.0 + 9_000.0 * tenth as f64) + 40_000.0;
                over_time.note(tenth * BUCKET_NS, ns as u64);
            }
        }
        let drawings = Drawings {
            latency: both.clone(),
            lateness: both,
            answers: (0..100).map(|i| 9000 + i % 7).collect(),
            pops: vec![1, 2, 0],
            latency_over_time: over_time.clone(),
            lateness_over_time: over_time,
        };
        Report {
            scenario: "herd".to_owned(),
            passed: false,
            problems: vec!["2 requests failed: status 503".to_owned()],
            notes: vec!["a & b".to_owned()],
            command_line: "chronos-loadgen herd --target <x>".to_owned(),
            finished_at: "2026-01-01 00:00:00 UTC".to_owned(),
            machine: Machine::read(),
            requests: Some(requests),
            pops: Some(pops),
            left: None,
            server: Server { cpu_us_per_request: Some(3.2), ..Server::default() },
            loadgen: Own::default(),
            drawings,
        }
    }

    /// Checks that every opened element is closed, in order, and that text has no stray brackets.
    fn check_balance(page: &str) {
        let body = page.strip_prefix("<!DOCTYPE html>\n").expect("a doctype");
        let (style_start, style_end) =
            (body.find("<style>").unwrap(), body.find("</style>").unwrap());
        let body = format!("{}{}", &body[..style_start], &body[style_end + 8..]);
        let mut open: Vec<&str> = Vec::new();
        let mut rest = body.as_str();
        while let Some(start) = rest.find('<') {
            assert!(!rest[..start].contains('>'), "stray >: {}", &rest[..start]);
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "</{name}> closes");
            } else if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().expect("a tag has a name"));
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_from_elsewhere() {
        let page = page(&report());
        check_balance(&page);
        for word in ["http:", "https:", "src=", "@import", "url(", "<script", "NaN", "inf"] {
            assert!(!page.contains(word), "{word}");
        }
        // Four charts of lateness and four of latency, each wide and narrow.
        assert_eq!(page.matches("<svg").count(), 16);
        assert!(page.contains("prefers-color-scheme: dark"));
        assert!(page.contains("during &lt;it&gt;") && page.contains("a &amp; b"));
        assert!(page.contains("--target &lt;x&gt;"));
        if let Some(path) = std::env::var_os("LOADGEN_SAMPLE_PAGE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    #[test]
    fn lateness_comes_first_and_its_words_are_explained() {
        let page = page(&report());
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not there"));
        assert!(at("lateness p50") < at("latency p50"));
        assert!(at("Lateness over time") < at("Lateness distribution"));
        assert!(at("Lateness by percentile") < at("Latency over time"));
        assert!(at("<th>lateness</th>") < at("<th>latency</th>"));
        for word in ["answered", "pops arrived / owed", "early", "lost", "doubled"] {
            let row = &page[at(&format!("<tr><th>{word}<"))..];
            let row = &row[..row.find("</tr>").unwrap()];
            assert!(row.contains("<p class=\"muted\">"), "{word} is not explained");
        }
    }

    #[test]
    fn a_report_of_nothing_is_still_a_page() {
        let empty =
            Report { requests: None, pops: None, drawings: Drawings::default(), ..report() };
        check_balance(&page(&empty));
        assert!(empty.text().contains("PROBLEM: 2 requests failed"));
    }
}
