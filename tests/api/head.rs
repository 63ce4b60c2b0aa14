//! HEAD: what GET answers, without its body (docs/api.md, "HTTP").

use super::harness::{Client, Node, far_document};

/// The answer to HEAD has the headers of the answer to GET, and the connection goes on.
fn assert_as_get(client: &mut Client, path: &str, status: u16) {
    let get = client.request("GET", path, "");
    client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let head = client.answer_to_head();
    assert_eq!((get.status, head.status), (status, status), "{path}: {get:?} {head:?}");
    assert_eq!(head.header("Content-Type"), get.header("Content-Type"), "{path}");
    assert_eq!(head.header("Content-Length"), get.header("Content-Length"), "{path}");
    assert_eq!(head.header("Reason"), get.header("Reason"), "{path}");
    assert!(head.header("Content-Length") > Some("0"), "{path}: {head:?}");
    // A body would be taken for the beginning of the next answer.
    assert_eq!(client.request("GET", "/ping", "").text(), "OK", "{path}");
}

#[test]
fn head_is_answered_as_get_without_a_body() {
    for shards in [1, 3] {
        let node = Node::start(shards, "");
        let mut client = node.client();
        // The age that is shown may be a digit longer when it is asked for again.
        let long = far_document().replace("3600", "3600.25");
        for at in 1..6_u64 {
            let path = format!("/timers/{:016x}-1", at << 40);
            assert_eq!(client.request("PUT", &path, &long).status, 200);
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let head = client.answer_to_head();
            assert_eq!(head.status, 200, "{head:?}");
            assert_eq!(head.header("Content-Type"), Some("application/json"));
            let length: usize =
                head.header("Content-Length").expect("a length").parse().expect("a number");
            let get = client.request("GET", &path, "");
            assert!(length.abs_diff(get.body.len()) < 4, "{length} {}", get.body.len());
        }
        for (path, status) in [
            ("/ping", 200),
            ("/timers/00000000000000bb-2", 404),
            ("/timers/by-name/nobody", 404),
            ("/nowhere", 404),
            // They need a token.
            ("/timers", 403),
            ("/timers/count", 403),
            ("/jobs", 403),
        ] {
            assert_as_get(&mut client, path, status);
        }
    }
}

#[test]
fn where_get_is_not_answered_head_is_told_what_is() {
    let node = Node::shared();
    let mut client = node.client();
    for path in ["/timers/bulk", "/timestamps", "/timers/00000000000000bb-2/pause"] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let head = client.answer_to_head();
        assert_eq!((head.status, head.header("Allow")), (405, Some("POST")), "{path}: {head:?}");
        assert_eq!(client.request("GET", "/ping", "").text(), "OK", "{path}");
    }
}

#[test]
fn a_head_that_is_refused_has_no_body() {
    let node = Node::shared();
    let mut client = node.client();
    client.send("HEAD /ping HTTP/1.1\r\n\r\n");
    let refused = client.answer_to_head();
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(client.rest(), "", "nothing follows the head");
}

#[test]
fn the_admin_api_answers_head() {
    let node = Node::shared();
    let of = |method: &str, path: &str| {
        let mut client = Client::connect(node.admin);
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
        let answer = client.answer_to_head();
        (answer, client.rest())
    };
    for path in [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/status",
        "/overview",
        "/alarms",
        "/timers",
        "/timers/count",
        "/cluster",
        "/destinations",
        "/jobs",
    ] {
        let (head, rest) = of("HEAD", path);
        assert_eq!((head.status, &*rest), (200, ""), "{path}: {head:?}");
        let length: usize = head.header("Content-Length").expect(path).parse().expect("a number");
        let (get, body) = of("GET", path);
        assert_eq!((get.status, body.is_empty()), (200, false), "{path}");
        assert!(length > 0, "{path}");
    }
    let (head, rest) = of("HEAD", "/cluster/reload");
    assert_eq!((head.status, &*rest), (405, ""), "{head:?}");
    assert_eq!(head.header("Allow"), Some("POST"));
}
