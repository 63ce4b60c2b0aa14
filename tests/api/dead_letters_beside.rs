//! Dead letters beside what else a timer can have: rules of destinations, a calendar, a name, a
//! key. Their bounds by bytes.

use std::sync::atomic::Ordering::SeqCst;

use kit::ports;
use serde_json::{Value, json};

use super::dead_letters::{Kept, hasty, letter_path, server};
use super::harness::{Client, until};

/// A document of [`hasty`], with another timing.
fn timed(uri: &str, timing: &Value) -> String {
    let mut document: Value = serde_json::from_str(&hasty(uri, json!({}))).expect("JSON");
    document["timing"] = timing.clone();
    document["callback"]["retry"]["max-attempts"] = json!(1);
    document.to_string()
}

/// Sets a destination's rule, as an operator does.
fn rule(kept: &Kept, name: &str, body: &str) {
    let mut client = Client::connect(kept.node.admin);
    let bearer = format!("Authorization: Bearer {}", kept.tokens[2]);
    let head = format!("PUT /destinations/{name} HTTP/1.1\r\nHost: x\r\n{bearer}\r\n");
    client
        .send(format!("{head}X-Chronos-Order: 1\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn numbers(letters: &[Value]) -> Vec<u64> {
    let number = |it: &Value| it["dead-letter"]["sequence-number"].as_u64().expect("a number");
    let mut numbers: Vec<u64> = letters.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn path_of(letter: &Value) -> &str {
    letter["location"].as_str().expect("a path")
}

#[test]
fn pops_of_a_paused_destination_wait_and_then_become_letters_or_not() {
    let kept = Kept::start(2, "");
    let (sink, status) = server(500);
    let name = sink.address.to_string();
    rule(&kept, &name, r#"{"paused": true}"#);
    let timers: Vec<String> = (0..6)
        .map(|number| kept.create(&hasty(&sink.uri(&format!("/{number}")), json!({}))))
        .collect();
    let age = json!({"retry": {"max-age": 0.3}});
    let aged = kept.create(&hasty(&sink.uri("/aged"), age));
    kept.node.await_metric("chronos_pops_waiting", 7.0);
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(kept.letters("").is_empty(), "a pause gives nothing up");
    assert_eq!(sink.count(), 0);
    rule(&kept, &name, r#"{"paused": false, "max-in-flight": 1}"#);
    for timer in &timers {
        assert_eq!(kept.await_letter(timer)["dead-letter"]["reason"], "attempts");
    }
    assert_eq!(kept.await_letter(&aged)["dead-letter"]["status"], 500);
    // A replay waits for the destination like any pop.
    rule(&kept, &name, r#"{"paused": true}"#);
    status.store(200, SeqCst);
    let before = sink.count();
    let page = kept.json("POST", "/dead-letters/replay");
    assert_eq!((&page["replayed"], &page["refused"]), (&json!(7), &json!(0)));
    kept.node.await_metric("chronos_pops_waiting", 7.0);
    assert_eq!(sink.count(), before);
    rule(&kept, &name, r#"{"paused": false, "rate-per-second": 20}"#);
    let seen = sink.wait_for(before + 7);
    assert!(seen[before..].iter().all(|it| it.head.contains("X-Replay: 1\r\n")));
    kept.node.await_metric("chronos_dead_letters", 0.0);
}

#[test]
fn pops_of_a_destination_in_trouble_become_letters_by_their_age() {
    let kept = Kept::start(1, "");
    let nobody = ports::free_port(&[[127, 0, 0, 1].into()]);
    let age = json!({"retry": {"max-attempts": 100, "initial": 0.05, "max": 0.05,
                               "max-age": 1, "jitter": 0}});
    let uri = format!("http://127.0.0.1:{nobody}/");
    let timers: Vec<String> = (0..40).map(|_| kept.create(&hasty(&uri, age.clone()))).collect();
    for timer in &timers {
        let letter = kept.await_letter(timer);
        let letter = &letter["dead-letter"];
        assert_eq!(letter["reason"], "age");
        // Not all were tried while the host was called once at a time.
        let told = letter["failure"].as_str().expect("a word");
        assert!(["unreachable", "unknown"].contains(&told), "{letter}");
    }
    assert_eq!(kept.letters("reason=age").len(), timers.len(), "each once");
    assert_eq!(kept.node.metric("chronos_pops_given_up_total"), timers.len() as f64);
    assert_eq!(kept.node.metric("chronos_dead_letters_kept_total"), timers.len() as f64);
}

#[test]
fn each_pop_of_a_calendar_is_a_letter_of_its_own_and_the_timer_goes_on() {
    let kept = Kept::start(2, "");
    let (sink, status) = server(500);
    let timer = kept.create(&timed(&sink.uri("/tick"), &json!({"cron": "* * * * * *"})));
    let letters = until("two letters", || {
        let letters = kept.letters("");
        (letters.len() >= 2).then_some(letters)
    });
    assert!(letters.iter().all(|letter| path_of(letter) != letter_path(&timer)));
    assert!(letters.iter().all(|letter| letter["timing"].get("cron").is_none()), "one pop each");
    assert_eq!(numbers(&letters)[..2], [1, 2]);
    assert_eq!(kept.ask("GET", &letter_path(&timer), "").status, 404, "the timer goes on");
    status.store(200, SeqCst);
    let first = letters.iter().find(|it| it["dead-letter"]["sequence-number"] == 1);
    let path = path_of(first.expect("the first pop's"));
    assert_eq!(kept.ask("POST", &format!("{path}/replay"), "").status, 200);
    let is_replay = |head: &str| head.contains("X-Replay: 1\r\n");
    let seen = sink.wait_until("the replay", |seen| seen.iter().any(|it| is_replay(&it.head)));
    let replay = seen.iter().find(|it| is_replay(&it.head)).expect("it came");
    assert_eq!(replay.sequence(), 1);
    let last = seen.iter().map(|it| it.sequence()).max().expect("some");
    let seen = sink.wait_until("the next", |seen| seen.iter().any(|it| it.sequence() > last));
    let next = seen.iter().find(|it| it.sequence() == last + 1).expect("the timer's own");
    assert!(!is_replay(&next.head), "{}", next.head);
    assert_eq!(kept.ask("GET", &timer, "").status, 200);
    kept.ask("DELETE", &timer, "");
}

#[test]
fn the_last_pop_of_a_calendar_is_a_letter_under_the_timers_id() {
    let kept = Kept::start(1, "");
    let (sink, _) = server(500);
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(2_200);
    let timing = json!({"cron": "* * * * * *", "end-at": end.to_string()});
    let timer = kept.create(&timed(&sink.uri("/end"), &timing));
    let letter = kept.await_letter(&timer);
    let last = letter["dead-letter"]["sequence-number"].as_u64().expect("a number");
    assert_eq!(numbers(&kept.letters("")), (1..=last).collect::<Vec<_>>());
    assert_eq!(kept.ask("GET", &timer, "").status, 404, "it is over");
    // The one pop is tried again, and not the calendar.
    assert_eq!(kept.ask("POST", &format!("{}/replay", letter_path(&timer)), "").status, 200);
    let letter = until("it failed again", || {
        let answer = kept.ask("GET", &letter_path(&timer), "");
        let shown: Value = serde_json::from_str(answer.text()).ok()?;
        (shown["replays"] == 1 && shown.get("dead-letter").is_some()).then_some(shown)
    });
    assert_eq!(letter["dead-letter"]["sequence-number"], last);
    assert_eq!(sink.count() as u64, last + 1);
}

#[test]
fn a_letter_of_a_named_timer_gives_way_to_what_is_written_under_the_name() {
    let kept = Kept::start(3, "");
    let (sink, status) = server(500);
    let path = "/timers/by-name/alarm%2F7";
    let put = |lines: &str, body: &str| kept.ask_with((1, lines), "PUT", path, body);
    let far = timed(&sink.uri("/new"), &json!({"interval": 3_600}));
    let answer = put("", &hasty(&sink.uri("/old"), json!({})));
    let timer = answer.header("Location").expect("written").to_owned();
    let letter = kept.await_letter(&timer);
    assert_eq!(letter["name"], "alarm/7");
    assert_eq!(kept.ask("GET", path, "").status, 404, "the timer is over");
    // The name is free: only what replaces is refused.
    assert_eq!(put("If-Match: *\r\n", &far).status, 412);
    kept.await_letter(&timer);
    let answer = put("If-None-Match: *\r\n", &far);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(kept.ask("GET", path, "").status, 200);
    for (method, path) in
        [("POST", format!("{}/replay", letter_path(&timer))), ("DELETE", letter_path(&timer))]
    {
        assert_eq!(kept.ask(method, &path, "").status, 404, "{method}: it gave way");
    }
    assert_eq!(kept.ask("GET", path, "").status, 200, "and the timer stays");
    assert!(kept.letters("").is_empty());
    // A replay is a timer under the name again, until it is over.
    assert_eq!(put("", &hasty(&sink.uri("/old"), json!({}))).status, 200);
    kept.await_letter(&timer);
    status.store(200, SeqCst);
    let replay = format!("{}/replay", letter_path(&timer));
    assert_eq!(kept.ask("POST", &replay, "").status, 200);
    let seen = sink
        .wait_until("the replay", |seen| seen.iter().any(|it| it.head.contains("X-Replay: 1\r\n")));
    assert_eq!(seen.last().map(|it| (it.path.as_str(), it.sequence())), Some(("/old", 1)));
}

#[test]
fn an_earlier_pop_of_a_named_timer_is_tried_again_after_the_name_was_written_anew() {
    let kept = Kept::start(2, "");
    let (sink, status) = server(500);
    let path = "/timers/by-name/often";
    let timing = json!({"interval": 0.2, "repeat-for": 3_600});
    assert_eq!(kept.ask("PUT", path, &timed(&sink.uri("/old"), &timing)).status, 200);
    let letter = until("a letter", || kept.letters("").into_iter().next());
    let far = timed(&sink.uri("/new"), &json!({"interval": 3_600}));
    let answer = kept.ask("PUT", path, &far);
    let tag = answer.header("ETag").expect("a version").to_owned();
    status.store(200, SeqCst);
    assert_eq!(kept.ask("POST", &format!("{}/replay", path_of(&letter)), "").status, 200);
    let seen = sink
        .wait_until("the replay", |seen| seen.iter().any(|it| it.head.contains("X-Replay: 1\r\n")));
    let replay = seen.iter().find(|it| it.head.contains("X-Replay: 1\r\n")).expect("it came");
    assert_eq!(replay.path, "/old");
    assert_eq!(letter["dead-letter"]["sequence-number"], replay.sequence());
    let now = kept.ask("GET", path, "");
    assert_eq!((now.status, now.header("ETag")), (200, Some(tag.as_str())));
    let shown: Value = serde_json::from_str(now.text()).expect("JSON");
    assert_eq!(shown["callback"]["http"]["uri"], sink.uri("/new"), "the name's timer is as it was");
}

#[test]
fn a_key_answers_with_its_timer_while_that_is_a_letter() {
    let kept = Kept::start(2, "");
    let (sink, _) = server(500);
    let body = hasty(&sink.uri("/once"), json!({}));
    let key = (1, "Idempotency-Key: order-17\r\n");
    let first = kept.ask_with(key, "POST", "/timers", &body);
    let timer = first.header("Location").expect("created").to_owned();
    kept.await_letter(&timer);
    let again = kept.ask_with(key, "POST", "/timers", &body);
    let same = again.header("Location").map(|it| &it[..24]);
    assert_eq!((again.status, same), (200, Some(&timer[..24])));
    let other = body.replace("/once", "/other");
    assert_eq!(kept.ask_with(key, "POST", "/timers", &other).status, 422);
    assert_eq!(sink.count(), 2, "the key makes it once");
    kept.await_letter(&timer);
    // It is still remembered when the letter is deleted.
    assert_eq!(kept.ask("DELETE", &letter_path(&timer), "").status, 200);
    assert_eq!(kept.ask_with(key, "POST", "/timers", &other).status, 422);
    assert_eq!(kept.ask_with(key, "POST", "/timers", &body).status, 200);
    assert_eq!(sink.count(), 2);
}

#[test]
fn letters_leave_for_bytes_the_oldest_first() {
    let kept = Kept::start(1, "[dead_letters]\nbytes_per_core_max = 30000\n");
    let (sink, _) = server(500);
    let long = "x".repeat(9_000);
    let all: Vec<String> = (0..5)
        .map(|number| {
            let body = hasty(&sink.uri(&format!("/{number}")), json!({}));
            let timer = kept.create(&body.replace("any text", &long));
            kept.await_letter(&timer);
            timer
        })
        .collect();
    kept.node.await_metric("chronos_dead_letters_dropped_for_number_total", 2.0);
    assert!(kept.node.metric("chronos_dead_letter_bytes") <= 30_000.0);
    let left = kept.letters("");
    let mut left: Vec<&str> = left.iter().map(path_of).collect();
    let mut last: Vec<String> = all[2..].iter().map(|timer| letter_path(timer)).collect();
    left.sort_unstable();
    last.sort_unstable();
    assert_eq!(left, last);
    let counted = ["kept_total", "dropped_for_number_total"]
        .map(|name| kept.node.metric(&format!("chronos_dead_letters_{name}")));
    assert_eq!(counted[0] - counted[1], kept.node.metric("chronos_dead_letters"));
}
