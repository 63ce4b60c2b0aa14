//! Every limit of the configuration, set small. What is beyond a limit is refused with a reason;
//! what was accepted is kept.

use std::sync::{Mutex, mpsc};
use std::thread;

use kit::client::request;

use super::harness::{Client, End, Node, PATIENCE, document, far_document, request_text, until};
use super::sink::{Reaction, Sink};

/// Posts timers until one is refused. Returns the paths of the accepted timers. The refusal must be
/// a 503 for this reason.
fn fill(client: &mut Client, body: &str, reason: &str, most: usize) -> Vec<String> {
    let mut paths = Vec::new();
    loop {
        let answer = client.request("POST", "/timers", body);
        if answer.status != 200 {
            answer.assert_refusal(503, reason, "at the limit");
            return paths;
        }
        paths.push(answer.header("Location").expect("created").to_owned());
        assert!(paths.len() <= most, "no limit at {most}");
    }
}

#[test]
fn timers() {
    let node = Node::start(1, "[limits]\ntimers_max = 10\n");
    let sink = Sink::ok();
    let mut client = node.client();
    let body = document("3600", None, &sink.uri("/"), "x");
    let paths = fill(&mut client, &body, "limits.timers_max", 10);
    assert_eq!(paths.len(), 10);
    let answer = client.request("PUT", "/timers/0000000000000001-2", &body);
    answer.assert_refusal(503, "limits.timers_max", "PUT of a new one");
    // A held timer can still be read, replaced, deleted and popped.
    for path in &paths {
        assert_eq!(client.request("GET", path, "").status, 200);
        let near = document("0.05", None, &sink.uri(path), "near");
        assert_eq!(client.request("PUT", path, &near).status, 200);
    }
    let seen = sink.wait_for(10);
    for path in &paths {
        assert!(seen.iter().any(|one| one.path == *path), "{path} was accepted");
    }
    assert_eq!(client.request("DELETE", "/timers/0000000000000001-2", "").status, 200);
    until("the refusals to be counted", || {
        (node.metric("chronos_requests_refused_total") >= 2.0).then_some(())
    });
}

/// Each pop of a calendar writes its timer anew, also where there is no room for another one.
#[test]
fn a_timer_of_the_calendar_goes_on_where_nothing_more_fits() {
    let large = document("3600", None, "http://127.0.0.1:9/", &"x".repeat(50_000));
    for (limit, body) in [
        ("limits.timers_max", "timers_max = 4"),
        ("limits.store_bytes_max", "store_bytes_max = 4194304"),
    ] {
        let node = Node::start(1, &format!("[limits]\n{body}\n"));
        let sink = Sink::ok();
        let http = format!(r#"{{"http":{{"uri":"{}","opaque":"x"}}}}"#, sink.uri("/tick"));
        node.create(&format!(r#"{{"timing":{{"cron":"* * * * * *"}},"callback":{http}}}"#));
        let mut client = node.client();
        let _ = fill(&mut client, &large, limit, 100);
        let before = sink.count();
        let seen = sink.wait_for(before + 3);
        let numbers: Vec<u64> = seen.iter().map(|pop| pop.sequence()).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
        client.request("POST", "/timers", &large).assert_refusal(503, limit, "still full");
    }
}

#[test]
fn timers_of_a_node_are_shared_out_to_its_cores() {
    let node = Node::start(2, "[limits]\ntimers_max = 20\n");
    for _ in 0..10 {
        // Clients land on either core.
        let _ = fill(&mut node.client(), &far_document(), "limits.timers_max", 20);
    }
    assert!(node.metric("chronos_timers") <= 20.0);
}

#[test]
fn bytes() {
    let node = Node::start(1, "[limits]\nstore_bytes_max = 4194304\n");
    let mut client = node.client();
    let body = document("3600", None, "http://127.0.0.1:9/", &"x".repeat(50_000));
    let paths = fill(&mut client, &body, "limits.store_bytes_max", 100);
    assert!(paths.len() >= 10, "{} timers of 50 kB in 4 MiB", paths.len());
    assert!(node.metric("chronos_store_bytes") <= 4194304.0);
    let answer = client.request("PUT", &paths[0], &body.replace("xxx", "yyyyyyy"));
    answer.assert_refusal(503, "limits.store_bytes_max", "a larger one in its place");
    for path in &paths {
        assert_eq!(client.request("GET", path, "").status, 200, "kept");
    }
    assert_eq!(client.request("DELETE", &paths[0], "").status, 200);
    assert_eq!(client.request("POST", "/timers", &body).status, 200, "there is room again");
}

/// Herds of timers of different sizes, almost up to the limit each, and each is deleted before the
/// next.
#[test]
fn the_process_holds_little_more_than_the_bytes_of_the_limit() {
    const LIMIT: u64 = 24 << 20;
    const HERD_BYTES: usize = 20 << 20;
    let config =
        format!("[node]\nmemory_ahead_bytes = 4194304\n[limits]\nstore_bytes_max = {LIMIT}\n");
    let node = Node::start(1, &config);
    let idle = node.resident_bytes();
    // A quarter of the limit, what is taken ahead, and what a core has beside (docs/how-to/size.md).
    let most = idle + LIMIT / 4 * 5 + (4 << 20) + (32 << 20);
    let mut client = node.client();
    for opaque in [60_000, 2_500, 20_000, 7_500, 90_000, 1_500] {
        let body = document("3600", None, "http://127.0.0.1:9/", &"x".repeat(opaque));
        let mut paths = Vec::new();
        for _ in 0..HERD_BYTES / (opaque + 200) {
            let answer = client.request("POST", "/timers", &body);
            match answer.status {
                200 => paths.push(answer.header("Location").expect("created").to_owned()),
                _ => answer.assert_refusal(503, "limits.store_bytes_max", "the eighth"),
            }
        }
        assert!(paths.len() > HERD_BYTES / (opaque + 200) * 3 / 4, "{} of {opaque}", paths.len());
        let full = node.resident_bytes();
        assert!(full <= most, "{} KiB of {} with contents of {opaque}", full >> 10, most >> 10);
        assert!(node.metric("chronos_store_held_bytes") <= (LIMIT / 8 * 9 + (4 << 20)) as f64);
        for path in &paths {
            assert_eq!(client.request("DELETE", path, "").status, 200);
        }
    }
    until("the memory to go back", || (node.resident_bytes() <= idle + (20 << 20)).then_some(()));
}

#[test]
fn bodies_heads_and_opaque_data() {
    let config =
        "[limits]\nbody_bytes_max = 400\nheader_bytes_max = 1024\nopaque_bytes_max = 100\n";
    let node = Node::start(1, config);
    let with = |opaque: usize| document("3600", None, "http://127.0.0.1:9/", &"x".repeat(opaque));
    let mut client = node.client();
    client.create(&with(100));
    let answer = client.request("POST", "/timers", &with(101));
    answer.assert_refusal(413, "limits.opaque_bytes_max", "101 bytes");
    let largest = format!("{:400}", with(100));
    assert_eq!(client.request("POST", "/timers", &largest).status, 200, "400 bytes in all");
    let answer = client.request("POST", "/timers", &(largest + " "));
    answer.assert_refusal(413, "limits.body_bytes_max", "401 bytes");
    assert_eq!(client.end(), End::Closed);
    for (text, status) in [
        (format!("GET /ping HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(1024)), 431),
        (format!("GET /ping?{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(1024)), 414),
    ] {
        let mut client = node.client();
        client.send(text);
        client.answer().assert_refusal(status, "limit on header bytes", "1 kB");
        assert_eq!(client.end(), End::Closed);
    }
    let begins = "GET /ping HTTP/1.1\r\nHost: x\r\nX: ";
    let fits = format!("{begins}{}\r\n\r\n", "y".repeat(1024 - begins.len() - 4));
    let mut client = node.client();
    client.send(&fits);
    assert_eq!(client.answer().status, 200, "{} bytes", fits.len());
}

#[test]
fn connections() {
    let node = Node::start(1, "[limits]\nconnections_per_core_max = 5\n");
    let mut clients: Vec<_> = (0..5).map(|_| node.client()).collect();
    for client in &mut clients {
        assert_eq!(client.request("GET", "/ping", "").status, 200);
    }
    for _ in 0..10 {
        let mut refused = node.client();
        let answer = refused.answer();
        answer.assert_refusal(503, "limits.connections_per_core_max", "the sixth");
        assert!(answer.says_close());
        assert_eq!(refused.end(), End::Closed);
    }
    for client in &mut clients {
        assert_eq!(client.request("GET", "/ping", "").status, 200, "the first five go on");
    }
    clients.pop();
    until("a place", || {
        let mut client = node.client();
        let _ = client.try_send(request_text("GET", "/ping", "").as_bytes());
        (client.answer().status == 200).then_some(())
    });
}

#[test]
fn a_flood_of_connections_is_survived() {
    let node = Node::start(1, "[limits]\nconnections_per_core_max = 5\n");
    let mut clients: Vec<_> = (0..5).map(|_| node.client()).collect();
    assert_eq!(clients[0].request("GET", "/ping", "").status, 200);
    let flood: Vec<_> = (0..300).map(|_| node.client()).collect();
    assert_eq!(clients[0].request("GET", "/ping", "").status, 200);
    assert!(node.metric("chronos_connections") <= 5.0 + 64.0);
    drop(flood);
    drop(clients);
    until("all to be gone", || (node.metric("chronos_connections") == 0.0).then_some(()));
}

#[test]
fn small_portions_change_no_answer() {
    let config = "[limits]\npipelined_requests_per_turn_max = 1\n\
                  unsent_bytes_per_connection_max = 4096\n\
                  pops_per_turn_max = 1\n";
    for shards in [1, 2] {
        let node = Node::start(shards, config);
        let mut client = node.client();
        let mut writer = client.stream().try_clone().expect("a second handle");
        let text: String = (0..1_000)
            .map(|at| {
                request_text("GET", &format!("/timers/{at:016x}-2"), "")
                    + &request_text("GET", &format!("/no/{at}"), "")
                    + &request_text("GET", "/ping", "")
            })
            .collect();
        let sender = thread::spawn(move || {
            std::io::Write::write_all(&mut writer, text.as_bytes()).expect("taken");
        });
        for _ in 0..1_000 {
            client.answer().assert_refusal(404, "no timer", "first");
            client.answer().assert_refusal(404, "no such path", "second");
            assert_eq!(client.answer().status, 200);
        }
        sender.join().expect("no panic");
        let sink = Sink::ok();
        for _ in 0..200 {
            client.create(&document("0.1", None, &sink.uri("/"), "x"));
        }
        sink.wait_for(200);
        sink.assert_no_more(&node, 200, "0.1");
    }
}

#[test]
fn incomplete_requests() {
    let node = Node::start(
        1,
        "[limits]\nbody_bytes_max = 65536\nopaque_bytes_max = 65536\n\
         partial_bytes_per_core_max = 262144\n",
    );
    let body = document("3600", None, "http://127.0.0.1:9/", &"x".repeat(60_000));
    let (begin, rest) = body.split_at(50_000);
    let head =
        format!("POST /timers HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = node.client();
            client.send(head.clone() + begin);
            client
        })
        .collect();
    until("some refusals", || {
        (clients.iter().filter(|client| client.has_answer()).count() >= 10).then_some(())
    });
    assert!(node.metric("chronos_partial_bytes") <= 262144.0);
    // The room is full or nearly full. Clients that hold little of it must not be refused.
    let small = request_text("POST", "/timers", &format!("{:900}", far_document()));
    let mut modest: Vec<_> = (0..100)
        .map(|_| {
            let mut client = node.client();
            client.send(&small[..small.len() - 1]);
            client
        })
        .collect();
    until("all to have been received", || {
        (node.metric("chronos_connections_accepted_total") >= 120.0
            && node.metric("chronos_partial_bytes") >= 100.0 * 900.0)
            .then_some(())
    });
    for client in &mut modest {
        client.send(&small[small.len() - 1..]);
        assert_eq!(client.answer().status, 200);
    }
    let mut served = 0;
    for client in &mut clients {
        if client.has_answer() {
            let answer = client.answer();
            answer.assert_refusal(503, "limits.partial_bytes_per_core_max", "incomplete");
            assert!(answer.says_close());
            assert_eq!(client.end(), End::Closed);
            continue;
        }
        // A refusal may be on its way.
        let _ = client.try_send(rest.as_bytes());
        let answer = client.answer();
        if answer.status == 200 {
            served += 1;
        } else {
            answer.assert_refusal(503, "limits.partial_bytes_per_core_max", "incomplete");
        }
    }
    assert!(served >= 1, "those within the limit are served");
    until("the room to be free", || (node.metric("chronos_partial_bytes") == 0.0).then_some(()));
    assert_eq!(node.request("POST", "/timers", &body).status, 200);
}

#[test]
fn messages_between_cores() {
    let node = Node::start(16, "[limits]\nmesh_queue_max = 16\n");
    let threads: Vec<_> = (0..4_u64)
        .map(|own| {
            let address = node.address;
            thread::spawn(move || {
                let mut client = Client::connect(address);
                let paths: Vec<_> =
                    (0..500).map(|at| format!("/timers/{:016x}-2", own << 32 | at)).collect();
                let text: String =
                    paths.iter().map(|path| request_text("PUT", path, &far_document())).collect();
                client.send(text);
                let answers: Vec<_> = paths.iter().map(|_| client.answer()).collect();
                for (path, answer) in paths.iter().zip(answers) {
                    let expected = if answer.status == 200 {
                        200
                    } else {
                        answer.assert_refusal(503, "retry", "a full queue");
                        404
                    };
                    let found = until("room in the queue", || {
                        let answer = client.request("GET", path, "");
                        (answer.status != 503).then_some(answer.status)
                    });
                    assert_eq!(found, expected, "{path}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("every answer was true");
    }
}

#[test]
fn callback_hosts() {
    // There are far more hosts than lanes. Hosts without a due pop need no lane; the others take
    // turns.
    let node = Node::start(1, "[callbacks]\nhosts_per_core_max = 2\n");
    let mut client = node.client();
    for at in 0..1_000 {
        client.create(&document("3600", None, &format!("http://far{at}.example/"), "x"));
    }
    assert_eq!(node.metric("chronos_callback_lanes"), 0.0);
    let sinks: Vec<_> = (0..6).map(|_| Sink::ok()).collect();
    for _ in 0..10 {
        for sink in &sinks {
            client.create(&document("0.3", None, &sink.uri("/"), "x"));
        }
    }
    for sink in &sinks {
        sink.wait_for(10);
    }
    node.await_metric("chronos_pops_delivered_total", 60.0);
    node.await_metric("chronos_callback_lanes", 2.0);
    // Hosts that no timer names are gone, but for those with a lane.
    until("forgotten hosts", || (node.metric("chronos_callback_hosts") == 1_002.0).then_some(()));
    assert!(sinks.iter().all(|sink| sink.callbacks().len() == 10));
}

#[test]
fn pops_that_wait_for_a_host() {
    let config = "[callbacks]\nconnections_per_host_max = 1\nqueue_per_host_max = 3\n";
    let node = Node::start(1, config);
    // The first callback is answered only when the test says so.
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let hung = Sink::start(move |_, before| {
        if before == 0 {
            let _ = released.lock().expect("one waits").recv_timeout(PATIENCE);
        }
        Reaction::OK
    });
    let good = Sink::ok();
    let mut client = node.client();
    let mut created = 0;
    // The pops are due together. When three wait behind the pop that hangs, new timers are refused.
    for _ in 0..4 {
        client.create(&document("0.05", None, &hung.uri("/"), "x"));
        created += 1;
    }
    hung.wait_for(1);
    until("a refusal", || {
        let answer = client.request("POST", "/timers", &document("0", None, &hung.uri("/"), "x"));
        created += usize::from(answer.status == 200);
        (answer.status != 200)
            .then(|| answer.assert_refusal(503, "callbacks.queue_per_host_max", "the queue"))
    });
    client.create(&document("0", None, &good.uri("/"), "x"));
    good.wait_for(1);
    release.send(()).expect("the sink waits");
    let seen = hung.wait_for(created);
    assert!(seen.iter().all(|one| one.sequence() == 1));
    hung.assert_no_more(&node, created, "0.1");
}

#[test]
fn open_files_of_the_process() {
    let node = Node::start_with_open_files(1, "", 64);
    let mut held = node.client();
    assert_eq!(held.request("GET", "/ping", "").status, 200);
    // More connections than the process may open: accepting fails and is tried again, and open
    // connections are served.
    let flood: Vec<_> = (0..100).map(|_| node.client()).collect();
    assert_eq!(held.request("GET", "/ping", "").status, 200);
    drop(flood);
    // Until the node has seen that those are gone, it closes what comes.
    let is_served = || request(node.address, "GET", "/ping", "").is_ok_and(|it| it.status == 200);
    until("room for others", || is_served().then_some(()));
    let sink = Sink::ok();
    node.create(&document("0", None, &sink.uri("/"), "x"));
    sink.wait_for(1);
}

#[test]
fn clients_that_hold_connections_leave_files_for_callbacks() {
    let node = Node::start_with_open_files(1, "", 128);
    until("a warning with the remedy", || {
        let told = node.logged();
        (told.contains("may open 128 files only") && told.contains("ulimit -n")).then_some(())
    });
    let mut first = node.client();
    assert_eq!(first.request("GET", "/ping", "").status, 200);
    let held: Vec<_> = (0..300).map(|_| node.client()).collect();
    // While files are short, the admin API may close a connection, too.
    let refused = || {
        let told = request(node.admin, "GET", "/metrics", "").ok()?.body;
        let of = |line: &str| {
            line.strip_prefix("chronos_connections_refused_total")?
                .rsplit(' ')
                .next()?
                .parse::<f64>()
                .ok()
        };
        Some(told.lines().filter_map(of).sum::<f64>())
    };
    until("refusals", || refused().filter(|count| *count >= 200.0));
    for _ in 0..3 {
        let sink = Sink::ok();
        first.create(&document("0", None, &sink.uri("/"), "x"));
        sink.wait_for(1);
    }
    assert_eq!(node.metric("chronos_pops_failed_total"), 0.0);
    drop(held);
}
