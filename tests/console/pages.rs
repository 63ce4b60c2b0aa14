//! Every page: it loads by itself, complains of nothing, and fits.

use std::path::Path;

use kit::children::{self, Tied};
use kit::runner::Story;
use serde_json::json;

use crate::browser::Browser;
use crate::node::{Node, callback_server, place, timer};

pub const STORIES: &[Story] = &[
    ("pages::every_page_loads_by_itself_and_fits", every_page_loads_by_itself_and_fits),
    ("pages::live_charts_move", live_charts_move),
];

/// The pages and their titles.
const PAGES: [(&str, &str, &str); 9] = [
    ("overview", "/", "Overview"),
    ("alarms", "/alarms", "Alarms"),
    ("timers", "/timers", "Timers"),
    ("destinations", "/destinations", "Destinations"),
    ("dead-letters", "/dead-letters", "Dead letters"),
    ("cluster", "/cluster", "Cluster"),
    ("journal", "/journal", "Journal"),
    ("timestamps", "/timestamps", "Timestamps"),
    ("configuration", "/configuration", "Configuration"),
];

fn every_page_loads_by_itself_and_fits() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(&timestamps_in(folder.path()));
    let (good, _) = callback_server(200);
    let (bad, _) = callback_server(503);
    for n in 0..40 {
        node.create(&timer(f64::from(n) * 0.2, good));
        node.create(&timer(3_600.0 * f64::from(n + 1), good));
    }
    let failing = json!({ "timing": { "interval": 1, "repeat-for": 600 },
        "callback": { "http": { "uri": format!("http://{bad}/call"), "opaque": "" },
            "retry": { "max-attempts": 1 } } });
    node.create(&failing);
    let named = node.create_named("invoice-17", &timer(5_000.0, good));
    node.order("PUT", "/destinations/slow.example", r#"{"paused": true, "max-in-flight": 8}"#);
    let browser = Browser::open(&node.console());
    // The last minutes of charts.
    browser.wait("figures", "return document.querySelectorAll('main .chart .line').length > 5");
    let one = format!("/timer/{}", named.trim_start_matches("/timers/"));
    let pages = PAGES.iter().map(|(name, hash, title)| (*name, (*hash).to_owned(), *title));
    for (name, hash, title) in pages.chain([("timer", one, "Timer")]) {
        browser.size(1_280);
        browser.page(&hash, title);
        let errors = browser.errors();
        // A version without dead letters says so, and the browser notes the 404.
        let is_missing = name == "dead-letters" && node.ask("/dead-letters").status == 404;
        assert!(errors.is_empty() || is_missing, "{name}: {errors:?}");
        let outside = "return performance.getEntriesByType('resource').map((one) => one.name)
            .filter((one) => !one.startsWith(location.origin) && !one.startsWith('data:'))";
        assert_eq!(browser.script(outside, &[]), json!([]), "{name}");
        for width in [1_280, 420] {
            browser.size(width);
            for scheme in ["light", "dark"] {
                browser.scheme(scheme);
                let beyond = "return document.documentElement.scrollWidth - innerWidth";
                let beyond = browser.script(beyond, &[]).as_i64().expect("a number");
                assert!(beyond <= 0, "{name} at {width}: {beyond} beyond");
                let faint = browser.script(FAINT, &[]);
                assert_eq!(faint, json!([]), "{name}, {scheme}");
                browser.picture(&format!("{name}-{width}-{scheme}"));
            }
        }
    }
}

/// Makes the file of a server of timestamps. Returns the lines of its configuration.
fn timestamps_in(folder: &Path) -> String {
    let file = folder.join("timestamps").display().to_string();
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    let made = command.args(["timestamp", "init", "--file", &file]).output_tied();
    let made = made.expect("the binary runs");
    assert!(made.status.success(), "{made:?}");
    let listen = place();
    format!("[timestamp]\nenabled = true\nlisten = \"{listen}\"\nfile = {file:?}\n")
}

/// Texts whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3). What is disabled
/// does not count there.
const FAINT: &str = r"
    const parts = (color) => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const color = parts(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const node of document.querySelectorAll('body *')) {
        const own = [...node.childNodes].some((it) => it.nodeType === 3 && it.data.trim());
        if (!own || !node.getClientRects().length || node.disabled) continue;
        if (node.closest('script, style, noscript, svg')) continue;
        const [a, b] = [light(parts(getComputedStyle(node).color)), light(ground(node))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) found.push(`${node.textContent.slice(0, 30)} ${contrast.toFixed(2)}`);
    }
    return found";

fn live_charts_move() {
    let node = Node::start("");
    let (host, _) = callback_server(200);
    let browser = Browser::open(&node.console());
    let chart = "main .chart[data-name=\"Timers held\"] .line";
    let line = format!("return document.querySelector('{chart}')?.getAttribute('d')");
    let mut before = browser.wait("a line", &line);
    for turn in 0..3 {
        node.create(&timer(600.0, host));
        let moved = format!("{line} !== arguments[0]");
        browser.wait_with(&format!("move {turn}"), &moved, std::slice::from_ref(&before));
        before = browser.script(&line, &[]);
    }
    browser.wait("the figure", "return document.querySelector('.figure dd').innerText === '3'");
    assert_eq!(browser.errors(), [""; 0]);
}
