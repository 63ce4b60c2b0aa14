//! Orders that operators give by the console, and what becomes of them.

use std::sync::atomic::Ordering::SeqCst;

use kit::runner::Story;
use kit::until::{PATIENCE, until};
use serde_json::json;

use crate::browser::Browser;
use crate::node::{Node, callback_server, timer};

pub const STORIES: &[Story] = &[
    ("orders::a_timer_is_found_and_cancelled", a_timer_is_found_and_cancelled),
    ("orders::a_timer_is_run_now", a_timer_is_run_now),
    ("orders::a_destination_is_paused_and_resumed", a_destination_is_paused_and_resumed),
    ("orders::dead_letters_are_replayed", dead_letters_are_replayed),
    ("orders::long_work_is_seen", long_work_is_seen),
];

/// Enter, as WebDriver names it.
const ENTER: &str = "\u{e007}";

fn a_timer_is_found_and_cancelled() {
    let node = Node::start("");
    let (host, _) = callback_server(200);
    let path = node.create_named("order-4711", &timer(600.0, host));
    let other = node.create(&timer(900.0, host));
    let browser = Browser::open(&node.console());
    browser.page("/timers", "Timers");
    browser.fill("input[name=name]", &format!("order-4711{ENTER}"));
    browser.wait("one timer", "return document.querySelectorAll('main tbody tr').length === 1");
    browser.press("order-4711");
    browser.wait_for_text("Next pops");
    let id = path.trim_start_matches("/timers/");
    assert!(browser.text("main .facts").contains(&id[..16]), "{}", browser.text("main"));
    browser.press("Cancel timer");
    browser.wait_for_text("Cancel this timer?");
    browser.picture("question-1280");
    browser.press("Back");
    assert!(node.holds(&path), "nobody was sure");
    browser.press("Cancel timer");
    browser.press("Cancel the timer");
    browser.wait_for_text("The timer is cancelled.");
    assert!(!node.holds(&path) && node.holds(&other));
    // By tag, host and time; and by the id alone.
    for query in ["tag=CALL", &format!("host={host}"), "due-before=3600", "state=armed"] {
        browser.page(&format!("/timers?{query}"), "Timers");
        browser.wait(query, "return document.querySelectorAll('main tbody tr').length === 1");
    }
    browser.page("/timers?tag=NONE", "Timers");
    browser.wait_for_text("No such timer");
    let digits = &other.trim_start_matches("/timers/")[..16];
    browser.fill("input[name=id]", &format!("{digits}{ENTER}"));
    browser.wait_for_text("Replicas");
}

fn a_timer_is_run_now() {
    let node = Node::start("");
    let (host, called) = callback_server(200);
    let path = node.create(&timer(600.0, host));
    let browser = Browser::open(&node.console());
    browser.page(&format!("/timer/{}", path.trim_start_matches("/timers/")), "Timer");
    let action = node.order("POST", "/timers/0000000000000000-1/run-now", "");
    browser.press("Run now");
    if action.status == 405 || action.body.starts_with("the admin API has") {
        // A version without the order says so.
        browser.wait_for_text("This node's version has no order to run-now a timer.");
        return;
    }
    browser.wait_for_text("The next pop is made now.");
    until("the pop", PATIENCE, || (called.load(SeqCst) == 1).then_some(()));
    let second = node.create(&timer(600.0, host));
    browser.page(&format!("/timer/{}", second.trim_start_matches("/timers/")), "Timer");
    browser.press("Pause");
    browser.press("Resume");
    browser.wait_for_text("The timer pops again.");
}

fn a_destination_is_paused_and_resumed() {
    let node = Node::start("");
    let (host, called) = callback_server(200);
    let path = format!("/destinations/{host}");
    node.order("PUT", &path, r#"{"max-in-flight": 3}"#);
    let browser = Browser::open(&node.console());
    browser.page("/destinations", "Destinations");
    browser.press("Pause");
    browser.wait_for_text("No callback begins there");
    browser.script("document.querySelector('dialog button[type=submit]').click()", &[]);
    browser.wait_for_text("is paused.");
    let rule = node.document(&path);
    assert_eq!((&rule["paused"], &rule["max-in-flight"]), (&json!(true), &json!(3)));
    node.create(&timer(0.0, host));
    browser.wait("one waits", "return document.querySelector('td.number').innerText === '1'");
    assert_eq!(called.load(SeqCst), 0);
    browser.press("Resume");
    browser.script("document.querySelector('dialog button[type=submit]').click()", &[]);
    until("the pop", PATIENCE, || (called.load(SeqCst) == 1).then_some(()));
    assert_eq!(node.document(&path)["max-in-flight"], 3, "the limit stays");
    browser.press("Limits …");
    browser.fill("dialog input[name=rate-per-second]", "12.5\u{e007}");
    browser.wait_for_text("The limits hold.");
    let rule = node.document(&path);
    assert_eq!((&rule["rate-per-second"], &rule["paused"]), (&json!(12.5), &json!(false)));
    browser.press("Take back");
    browser.wait_for_text("What is configured holds again.");
}

fn dead_letters_are_replayed() {
    let node = Node::start("");
    let (host, called) = callback_server(500);
    let browser = Browser::open(&node.console());
    browser.page("/dead-letters", "Dead letters");
    if node.ask("/dead-letters").status == 404 {
        browser.wait_for_text("This node's version has no dead letters.");
        return;
    }
    browser.wait_for_text("No dead letters");
    let mut failing = timer(0.1, host);
    failing["callback"]["retry"] = json!({ "max-attempts": 1 });
    node.create(&failing);
    until("the attempt", PATIENCE, || (called.load(SeqCst) == 1).then_some(()));
    let letters = || node.document("/dead-letters")["dead-letters"].as_array().map(Vec::len);
    until("a letter", PATIENCE, || (letters() == Some(1)).then_some(()));
    browser.press("Show");
    browser.wait_for_text("all attempts failed");
    browser.picture("dead-letters-one");
    browser.press("Replay");
    browser.wait_for_text("The pop is tried again.");
    until("the replay", PATIENCE, || (called.load(SeqCst) == 2).then_some(()));
    until("a letter", PATIENCE, || (letters() == Some(1)).then_some(()));
    browser.press("Show");
    browser.press("Delete");
    browser.script("document.querySelector('dialog button[type=submit]').click()", &[]);
    browser.wait_for_text("The dead letter is deleted.");
    until("no letter", PATIENCE, || (letters() == Some(0)).then_some(()));
}

/// A job that deletes timers, and what a node has to do for long.
fn long_work_is_seen() {
    let node = Node::start("");
    let (host, _) = callback_server(200);
    let browser = Browser::open(&node.console());
    browser.page("/timers", "Timers");
    browser.wait_for_text("No such timer");
    (0..7).for_each(|_| drop(node.create(&timer(600.0, host))));
    assert_eq!(node.order("DELETE", "/timers?tag=CALL", "").status, 202);
    browser.wait_for_text("7 timers deleted");
    assert!(browser.text("main .job").contains("tag=CALL"), "{}", browser.text("main"));
    browser.picture("jobs");
    // As if the node compared its timers with others, which this one has none of.
    let work = json!([{ "what": "resynchronisation", "percent": 40, "left_s": 30,
        "text": "4000 of 10000 timers compared with the other nodes" }]);
    browser.script(
        "const real = window.fetch;
         const work = arguments[0];
         window.fetch = async (to, how) => {
           const answer = await real(to, how);
           if (!String(to).includes('/overview')) return answer;
           const told = { ...await answer.json(), work };
           return new Response(JSON.stringify(told), { headers: answer.headers });
         };",
        &[work],
    );
    browser.page("/", "Overview");
    browser.wait_for_text("about 30\u{a0}s left");
    browser.wait_for_text("4000 of 10000 timers compared");
    let percent = "return document.querySelector('.progress').getAttribute('aria-valuenow')";
    assert_eq!(browser.script(percent, &[]), json!("40"));
    browser.picture("work");
    assert_eq!(browser.errors(), [""; 0]);
}
