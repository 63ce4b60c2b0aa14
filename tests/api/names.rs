//! Timers by name, conditions, and keys: `PUT /timers/by-name/<name>`, `If-Match`,
//! `If-None-Match`, `ETag`, `Idempotency-Key`.

use std::collections::HashSet;
use std::thread;

use serde_json::Value;

use super::harness::{Answer, Client, Node, document, far_document, until};
use super::sink::Sink;
use super::tokens::token_command;

/// A request with further header lines.
fn send(client: &mut Client, (method, path): (&str, &str), headers: &[&str], body: &str) -> Answer {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    ));
    client.answer()
}

fn put(client: &mut Client, name: &str, headers: &[&str]) -> Answer {
    let path = format!("/timers/by-name/{name}");
    send(client, ("PUT", &path), headers, &far_document())
}

fn get(client: &mut Client, name: &str) -> Answer {
    send(client, ("GET", &format!("/timers/by-name/{name}")), &[], "")
}

fn delete(client: &mut Client, name: &str, headers: &[&str]) -> Answer {
    send(client, ("DELETE", &format!("/timers/by-name/{name}")), headers, "")
}

fn post(client: &mut Client, key: &str, body: &str) -> Answer {
    send(client, ("POST", "/timers"), &[&format!("Idempotency-Key: {key}")], body)
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.header(name).unwrap_or_else(|| panic!("no {name} in {answer:?}"))
}

/// The id in an answer, without what may change.
fn id(answer: &Answer) -> &str {
    let location = header(answer, "Location");
    assert_eq!(location, header(answer, "Content-Location"));
    &location["/timers/".len().."/timers/".len() + 16]
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn a_name_is_one_timer_on_every_core() {
    for shards in [1, 2, 16] {
        let node = Node::start(shards, "");
        let mut client = node.client();
        let mut ids = HashSet::new();
        for number in 0..100 {
            let name = format!("invoice-{number}");
            assert_eq!(get(&mut client, &name).status, 404);
            let made = put(&mut client, &name, &[]);
            assert_eq!(made.status, 200, "{made:?}");
            ids.insert(id(&made).to_owned());
            let mut other = node.client();
            let again = put(&mut other, &name, &[]);
            assert_eq!(id(&again), id(&made), "the name makes the id");
            assert!(header(&again, "ETag") > header(&made, "ETag"), "versions rise");
            let read = get(&mut other, &name);
            assert_eq!((read.status, header(&read, "ETag")), (200, header(&again, "ETag")));
            assert_eq!(json(&read)["name"], *name);
            let by_id = node.request("GET", header(&made, "Location"), "");
            assert_eq!(header(&by_id, "ETag"), header(&again, "ETag"));
        }
        assert_eq!(ids.len(), 100);
        assert_eq!(node.metric("chronos_timers"), 100.0, "{shards} shards");
        for number in 0..100 {
            let name = format!("invoice-{number}");
            assert_eq!(delete(&mut client, &name, &[]).status, 200);
            assert_eq!(get(&mut client, &name).status, 404);
            assert_eq!(delete(&mut client, &name, &[]).status, 200, "again");
        }
        assert_eq!(node.metric("chronos_timers"), 0.0);
    }
}

#[test]
fn conditions_are_met_or_nothing_is_written() {
    let node = Node::start(4, "");
    let mut client = node.client();
    let (absent, present) = (["If-None-Match: *"], ["if-match: *"]);
    for number in 0..20 {
        let name = format!("job%20{number}");
        let unmet = put(&mut client, &name, &present);
        unmet.assert_refusal(412, "If-Match", "there is none");
        assert_eq!(get(&mut client, &name).status, 404, "nothing was written");
        let made = put(&mut client, &name, &absent);
        assert_eq!(made.status, 200, "{made:?}");
        put(&mut client, &name, &absent).assert_refusal(412, "If-None-Match", "there is one");
        let first = format!("If-Match: {}", header(&made, "ETag"));
        let replaced = put(&mut client, &name, &[&first]);
        assert_eq!(replaced.status, 200, "{replaced:?}");
        put(&mut client, &name, &[&first]).assert_refusal(412, "If-Match", "another version");
        delete(&mut client, &name, &[&first]).assert_refusal(412, "If-Match", "another version");
        assert_eq!(header(&get(&mut client, &name), "ETag"), header(&replaced, "ETag"));
        let second = format!("If-Match: {}", header(&replaced, "ETag"));
        assert_eq!(delete(&mut client, &name, &[&second]).status, 200);
        delete(&mut client, &name, &[&second]).assert_refusal(412, "If-Match", "it has gone");
        assert_eq!(get(&mut client, &name).status, 404);
        assert_eq!(put(&mut client, &name, &absent).status, 200, "the name is free again");
        assert_eq!(put(&mut client, &name, &present).status, 200);
    }
}

#[test]
fn of_many_who_create_a_name_at_once_one_does() {
    let node = Node::start(2, "");
    let created: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| node.client()).collect();
        let run = |mut client: Client| {
            let put = |number| put(&mut client, &format!("n{number}"), &["If-None-Match: *"]);
            (0..250).map(put).filter(|answer| answer.status == 200).count()
        };
        let threads: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || run(client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    assert_eq!(created, 250);
    assert_eq!(node.metric("chronos_timers"), 250.0);
}

#[test]
fn a_name_is_any_text_of_1_to_256_bytes() {
    let node = Node::shared();
    let mut client = node.client();
    let longest = "n".repeat(256);
    for (name, shown) in [
        ("a+b", "a+b"),
        ("a%2Fb", "a/b"),
        ("%E2%82%AC", "\u{20ac}"),
        ("%00%0d%0a%22", "\0\r\n\""),
        ("..", ".."),
        (&*longest, &*longest),
        (&*"%6e".repeat(255), &*"n".repeat(255)),
    ] {
        let made = put(&mut client, name, &[]);
        assert_eq!(made.status, 200, "{name}: {made:?}");
        assert_eq!(json(&get(&mut client, name))["name"], *shown);
        let with_query =
            send(&mut client, ("GET", &format!("/timers/by-name/{name}?x=1")), &[], "");
        assert_eq!(json(&with_query)["name"], *shown);
        assert_eq!(delete(&mut client, name, &[]).status, 200);
    }
    let too_long = "n".repeat(257);
    for name in ["", &*too_long, "%", "a%4", "a%zz", "%ff", "%C3%28", "a/b", "a/"] {
        let what = format!("the name {name:?}");
        put(&mut client, name, &[]).assert_refusal(400, "name", &what);
        get(&mut client, name).assert_refusal(400, "name", &what);
        delete(&mut client, name, &[]).assert_refusal(400, "name", &what);
    }
    for (method, allowed) in
        [("POST", "GET, HEAD, PUT, DELETE"), ("PATCH", "GET, HEAD, PUT, DELETE")]
    {
        let answer = send(&mut client, (method, "/timers/by-name/a"), &[], &far_document());
        assert_eq!((answer.status, header(&answer, "Allow")), (405, allowed));
    }
    assert_eq!(node.request("GET", "/timers/by-name", "").status, 404);
    node.assert_alive("names that are none");
}

#[test]
fn headers_that_say_nothing_clear_are_refused() {
    let node = Node::shared();
    let mut client = node.client();
    let made = put(&mut client, "clear", &[]);
    let tag = header(&made, "ETag").to_owned();
    let weak = format!("If-Match: W/{tag}");
    let two = format!("If-Match: {tag}, {tag}");
    let bare = format!("If-Match: {}", tag.trim_matches('"'));
    let upper = format!("If-Match: {}", tag.to_uppercase().replace('0', "A"));
    for (headers, names) in [
        (&["If-Match: *", "If-None-Match: *"][..], "If-Match"),
        (&["If-Match: *", "If-Match: *"], "If-Match"),
        (&["If-None-Match: *", "If-None-Match: *"], "If-None-Match"),
        (&["If-Match: nonsense"], "If-Match"),
        (&["If-Match: \"\""], "If-Match"),
        (&["If-Match:"], "If-Match"),
        (&[&weak], "If-Match"),
        (&[&two], "If-Match"),
        (&[&bare], "If-Match"),
        (&[&upper], "If-Match"),
        (&["If-None-Match: \"0000000000000001\""], "If-None-Match"),
        (&["If-None-Match: *", "Idempotency-Key: a"], "Idempotency-Key"),
    ] {
        let what = format!("{headers:?}");
        put(&mut client, "clear", headers).assert_refusal(400, names, &what);
    }
    delete(&mut client, "clear", &["If-None-Match: *"]).assert_refusal(400, "If-None-Match", "");
    assert_eq!(header(&get(&mut client, "clear"), "ETag"), tag, "nothing was written");

    let body = far_document();
    for (header, told) in [
        ("If-None-Match: *", "If-None-Match: expected with PUT, got it with POST"),
        ("If-Match: *", "If-Match: expected with PUT, DELETE or an action, got it with a create"),
        (&format!("If-Match: {tag}"), "If-Match: expected with PUT, DELETE or an action"),
    ] {
        let answer = send(&mut client, ("POST", "/timers"), &[header], &body);
        answer.assert_refusal(400, told, header);
    }
    let longest = "k".repeat(255);
    assert_eq!(post(&mut client, &longest, &body).status, 200);
    for key in ["", &format!("{longest}k"), "a\tb", "\u{e9}"] {
        post(&mut client, key, &body).assert_refusal(400, "Idempotency-Key", key);
    }
    for headers in [
        ["Idempotency-Key: a", "Idempotency-Key: a"],
        ["Idempotency-Key: a", "If-None-Match: *"],
        ["Idempotency-Key: a", "If-Match: *"],
    ] {
        let answer = send(&mut client, ("POST", "/timers"), &headers, &body);
        answer.assert_refusal(400, "Idempotency-Key", headers[1]);
    }
    // The parser of heads refuses every other control byte, and closes.
    for byte in ["\u{1}", "\u{7f}", "\0"] {
        let answer = post(&mut node.client(), &format!("a{byte}b"), &body);
        assert_eq!(answer.status, 400, "{byte:?}");
    }
    node.assert_alive("headers that say nothing clear");
}

#[test]
fn a_write_by_an_id_does_not_ignore_a_condition() {
    let node = Node::shared();
    let mut client = node.client();
    let made = put(&mut client, "by-id", &[]);
    let (tag, path) = (header(&made, "ETag").to_owned(), header(&made, "Location").to_owned());
    let told = "If-Match, If-None-Match: expected at /timers/by-name/<name>";
    let present = format!("If-Match: {tag}");
    for condition in [&*present, "If-Match: *", "If-Match: nonsense", "If-None-Match: *"] {
        for (method, body) in [("PUT", far_document()), ("DELETE", String::new())] {
            let answer = send(&mut client, (method, &path), &[condition], &body);
            answer.assert_refusal(400, told, &format!("{method} {condition}"));
        }
    }
    assert_eq!(header(&get(&mut client, "by-id"), "ETag"), tag, "nothing was written");
    // Who only reads changes nothing, and an action has its own version to ask for.
    assert_eq!(send(&mut client, ("GET", &path), &[&present], "").status, 200);
    let pause = format!("{path}/pause");
    assert_eq!(send(&mut client, ("POST", &pause), &[&present], "").status, 200);
    let key = ["Idempotency-Key: a"];
    assert_eq!(send(&mut client, ("PUT", &path), &key, &far_document()).status, 200);
    assert_eq!(send(&mut client, ("DELETE", &path), &[], "").status, 200);
    node.assert_alive("conditions on writes by an id");
}

#[test]
fn a_key_makes_one_timer() {
    for shards in [1, 4] {
        let node = Node::start(shards, "");
        let mut client = node.client();
        let body = far_document();
        let first = post(&mut client, "a-key", &body);
        assert_eq!(first.status, 200);
        for _ in 0..5 {
            let again = post(&mut node.client(), "a-key", &body);
            assert_eq!(again.status, 200);
            assert_eq!(header(&again, "Location"), header(&first, "Location"));
        }
        let other = document("3601", None, "http://127.0.0.1:9/never", "x");
        for other in [&other, &format!("{body} ")] {
            post(&mut client, "a-key", other).assert_refusal(422, "Idempotency-Key", "another");
        }
        assert_ne!(id(&post(&mut client, "a-Key", &body)), id(&first), "keys are told apart");
        assert_eq!(node.metric("chronos_timers"), 2.0);
        let plain = node.create(&body);
        assert_ne!(plain, header(&first, "Location"));
        // A bad body is refused as always, and the key stays free.
        post(&mut client, "bad", "{").assert_refusal(400, "body", "no JSON");
        assert_eq!(post(&mut client, "bad", &body).status, 200);
        let read = node.request("GET", header(&first, "Location"), "");
        assert_eq!((read.status, json(&read)["timing"]["interval"].clone()), (200, 3600.into()));
    }
}

#[test]
fn a_key_is_remembered_when_its_timer_has_ended() {
    let node = Node::start(2, "");
    let sink = Sink::ok();
    let mut client = node.client();
    let body = document("0.05", None, &sink.uri("/once"), "x");
    let first = post(&mut client, "popped", &body);
    sink.wait_for(1);
    let path = header(&first, "Location").to_owned();
    until("the timer to end", || (node.request("GET", &path, "").status == 404).then_some(()));
    let again = post(&mut client, "popped", &body);
    assert_eq!((again.status, header(&again, "Location")), (200, &*path));
    post(&mut client, "popped", &far_document()).assert_refusal(422, "Idempotency-Key", "another");
    sink.assert_no_more(&node, 1, "0.2");

    let body = far_document();
    let first = post(&mut client, "deleted", &body);
    let path = header(&first, "Location").to_owned();
    assert_eq!(node.request("DELETE", &path, "").status, 200);
    let again = post(&mut client, "deleted", &body);
    assert_eq!((again.status, header(&again, "Location")), (200, &*path));
    assert_eq!(node.request("GET", &path, "").status, 404, "it stays deleted");
}

#[test]
fn keys_count_as_timers_until_they_are_forgotten() {
    let node = Node::start(1, "[limits]\ntimers_max = 10\n");
    let mut client = node.client();
    let body = far_document();
    for key in 0..10 {
        let made = post(&mut client, &format!("k{key}"), &body);
        assert_eq!(made.status, 200);
        assert_eq!(node.request("DELETE", header(&made, "Location"), "").status, 200);
    }
    post(&mut client, "one more", &body).assert_refusal(503, "the node holds", "no room");
    assert_eq!(post(&mut client, "k3", &body).status, 200, "what is known is answered");
    post(&mut client, "k3", &format!("{body} ")).assert_refusal(422, "Idempotency-Key", "");
}

#[test]
fn pipelined_requests_with_names_and_keys_are_answered_in_order() {
    let node = Node::start(4, "");
    let mut client = node.client();
    let body = far_document();
    let length = body.len();
    let mut text = String::new();
    for number in 0..50 {
        let head = |first: &str, line: &str| {
            format!("{first} HTTP/1.1\r\nHost: x\r\n{line}Content-Length: {length}\r\n\r\n{body}")
        };
        text += &head(&format!("PUT /timers/by-name/p{number}"), "If-None-Match: *\r\n");
        text += &head(&format!("PUT /timers/by-name/p{number}"), "If-None-Match: *\r\n");
        text += &head("POST /timers", &format!("Idempotency-Key: p{number}\r\n"));
        text += &head("POST /timers", "");
    }
    client.send(text);
    let mut locations = HashSet::new();
    for _ in 0..50 {
        let answers: Vec<Answer> = (0..4).map(|_| client.answer()).collect();
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200, 412, 200, 200]);
        for place in [0, 2, 3] {
            locations.insert(header(&answers[place], "Location").to_owned());
        }
        assert_eq!(answers[3].header("ETag"), None, "it has no name");
    }
    assert_eq!(locations.len(), 150);
}

#[test]
fn two_tokens_with_one_key_do_not_meet_and_names_are_everybodys() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let token = |name: &str, role: &str| {
        let made = token_command(&["--name", name, "--role", role], Some(&file));
        let token = String::from_utf8(made.stdout).expect("text");
        format!("Authorization: Bearer {}", token.trim())
    };
    let (blue, second_blue) = (token("blue", "client"), token("blue", "client"));
    let (red, reader) = (token("red", "client"), token("audit", "reader"));
    let node = Node::start(2, &format!("[auth]\ntokens_file = {file:?}\n"));
    let mut client = node.client();
    let body = far_document();
    let mut post = |token: &str, body: &str| {
        let headers = ["Idempotency-Key: one", token];
        send(&mut client, ("POST", "/timers"), &headers, body)
    };
    let of_blue = post(&blue, &body);
    assert_eq!(header(&post(&second_blue, &body), "Location"), header(&of_blue, "Location"));
    let of_red = post(&red, &format!("{body} "));
    assert_eq!(of_red.status, 200, "{of_red:?}");
    assert_ne!(id(&of_red), id(&of_blue));
    post(&blue, &format!("{body} ")).assert_refusal(422, "Idempotency-Key", "another");

    let mut client = node.client();
    let path = ("PUT", "/timers/by-name/shared");
    assert_eq!(send(&mut client, path, &[&blue], &body).status, 200);
    let headers = ["If-None-Match: *", &*red];
    send(&mut client, path, &headers, &body).assert_refusal(412, "If-None-Match", "there is one");
    let read = send(&mut client, ("GET", path.1), &[&reader], "");
    assert_eq!(read.status, 200);
    send(&mut client, path, &[&reader], &body).assert_refusal(403, "Authorization", "a reader");
}
