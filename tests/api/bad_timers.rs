//! Requests in good HTTP whose content is bad. The node refuses each with a reason that names what
//! is wrong, and the connection goes on.

use super::harness::{Node, document, far_document, request_text};

const GOOD_URI: &str = "http://127.0.0.1:9/";

/// Returns a far timer with one part of its text replaced.
fn with(old: &str, new: &str) -> String {
    let document = document("3600", Some("7200"), GOOD_URI, "x");
    assert!(document.contains(old), "{old}");
    document.replacen(old, new, 1)
}

/// Sends every body by POST and by PUT, on one connection each, and expects its answer. Then sends
/// a good body.
fn refuse_all(node: &Node, status: u16, rows: &[(Vec<u8>, &str)]) {
    for (method, path) in [("POST", "/timers"), ("PUT", "/timers/00000000000000ab-2")] {
        let mut client = node.client();
        for (body, names) in rows {
            let shown: String = body.escape_ascii().to_string().chars().take(80).collect();
            let what = format!("{method} {shown}");
            let length = body.len();
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
            client.send(head);
            client.send(body);
            client.answer().assert_refusal(status, names, &what);
        }
        let answer = client.request("POST", "/timers", &far_document());
        assert_eq!(answer.status, 200, "the connection goes on");
    }
    assert_eq!(node.request("GET", "/timers/00000000000000ab-2", "").status, 404, "none is stored");
    node.assert_alive("bad timers");
}

fn rows<const N: usize>(rows: [(&str, &'static str); N]) -> Vec<(Vec<u8>, &'static str)> {
    rows.into_iter().map(|(body, names)| (body.as_bytes().to_vec(), names)).collect()
}

#[test]
fn what_is_no_json_object() {
    let node = Node::shared();
    let mut all = rows([
        ("", "body: empty"),
        (" \r\n ", "body"),
        ("not json", "body"),
        ("{", "body"),
        ("}", "body"),
        ("{\"timing\"", "body"),
        ("{\"timing\":}", "body"),
        ("[]", "body: expected an object"),
        ("[1,2,3]", "body: expected an object"),
        ("7", "body"),
        ("-1e5", "body"),
        ("\"text\"", "body"),
        ("null", "body"),
        ("true", "body"),
        ("{} {}", "body"),
        ("{}x", "body"),
        ("{'timing':1}", "body"),
        ("{\"a\":01}", "body"),
        ("{\"a\":1,}", "body"),
        ("<timing/>", "body"),
        ("interval=3600", "body"),
        ("{}", "timing: missing"),
    ]);
    all.push((b"\xff\xfe{}".to_vec(), "body"));
    all.push((vec![0; 100], "body"));
    all.push((far_document().into_bytes().into_iter().chain([0]).collect(), "body"));
    all.push((vec![b'['; 100_000], "body"));
    all.push((b"{\"a\":".repeat(100_000), "body"));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    all.push((deep.into_bytes(), ""));
    all.push((format!("{{\"a\":{}}}", "9".repeat(1_000_000)).into_bytes(), "body"));
    all.push((vec![b' '; 1 << 20], "body"));
    refuse_all(&node, 400, &all);
}

#[test]
fn wrong_types_and_missing_members() {
    let node = Node::shared();
    let http = r#"{"uri":"http://127.0.0.1:9/","opaque":"x"}"#;
    let callback = format!(r#"{{"http":{http}}}"#);
    let timing = r#"{"interval":3600,"repeat-for":7200}"#;
    let mut all = Vec::new();
    let members = [
        ("timing", timing, &["7", "\"x\"", "[]", "null", "true"][..]),
        ("callback", callback.as_str(), &["7", "\"x\"", "[]", "null"]),
        ("callback.http", http, &["7", "\"x\"", "[]", "null"]),
        ("callback.http.uri", "\"http://127.0.0.1:9/\"", &["7", "{}", "[]", "null", "\"\""]),
        ("callback.http.opaque", "\"x\"", &["7", "{}", "[\"x\"]", "null", "false"]),
        ("timing.interval", "3600", &["\"3600\"", "{}", "[1]", "null", "true"]),
        ("timing.repeat-for", "7200", &["\"7200\"", "{}", "[1]", "null", "true"]),
    ];
    for (name, value, others) in members {
        let key = name.rsplit('.').next().expect("a name");
        let member = format!("\"{key}\":{value}");
        for other in others {
            all.push((with(&member, &format!("\"{key}\":{other}")).into_bytes(), name));
        }
        if name != "timing.repeat-for" {
            all.push((with(&format!("\"{key}\":"), "\"other\":").into_bytes(), name));
        }
        let twice = format!("{member},{member}");
        all.push((with(&member, &twice).into_bytes(), name));
    }
    for reliability in ["7", "[]", "\"2\"", "null"] {
        let body = with("{\"timing\"", &format!("{{\"reliability\":{reliability},\"timing\""));
        all.push((body.into_bytes(), "reliability"));
    }
    refuse_all(&node, 400, &all);
}

#[test]
fn impossible_times() {
    let node = Node::shared();
    let mut all = Vec::new();
    for interval in ["-1", "-1e-9", "1e15", "1e300", "9223372036854775807", "3162240001"] {
        all.push((with(":3600", &format!(":{interval}")).into_bytes(), "timing.interval"));
        all.push((with(":7200", &format!(":{interval}")).into_bytes(), "timing.repeat-for"));
    }
    all.push((with(":3600", ":0").into_bytes(), "timing.interval"));
    // Texts that are no JSON numbers.
    for interval in ["NaN", "Infinity", "-Infinity", "1e400", "-", "+1", ".5", "0x10", "1.", "1e"] {
        all.push((with(":3600", &format!(":{interval}")).into_bytes(), "body"));
    }
    refuse_all(&node, 400, &all);
    let tiny = node.create(&document("1e-9", None, GOOD_URI, ""));
    assert_eq!(node.request("DELETE", &tiny, "").status, 200, "rounded up to 1 ms");
}

#[test]
fn bad_callback_uris() {
    let node = Node::shared();
    let long = format!("http://a/{}", "x".repeat(2_048));
    let long_host = format!("http://{}/", "a.".repeat(150));
    let mut all = Vec::new();
    for uri in [
        "http://",
        "http:///path",
        "http://:80/",
        "http://?x",
        "http://user@host/",
        "http://user:secret@host/",
        "http://host:0/",
        "http://host:99999/",
        "http://host:65536/",
        "http://host:-1/",
        "http://host:+80/",
        "http://host:/",
        "http://host:80x/",
        "http://ho st/",
        "http://host/a b",
        " http://host/",
        "http://host/\\u0000",
        "http://host/\\r\\nX-Evil: 1",
        "http://host\\n/",
        "http://host/\\t",
        "http://h\u{e9}st/",
        "http://host/\u{1F600}",
        "http://[::1/",
        "http://[::g]/",
        "http://::1/",
        "http://1.2.3/",
        "http://256.1.1.1/",
        "http://a..b/",
        "/relative",
        "relative",
        "//host/path",
        "host:80/path",
        "ftp://host/",
        "file:///etc/passwd",
        "http:/host",
        "mailto:a@b",
        &long,
        &long_host,
    ] {
        all.push((with(GOOD_URI, uri).into_bytes(), "callback.http.uri"));
    }
    all.push((with(GOOD_URI, "ftp://host/").into_bytes(), "expected http://host"));
    refuse_all(&node, 400, &all);
}

#[test]
fn callbacks_to_the_node_itself() {
    let node = Node::shared();
    let (clients, admin) = (node.address.port(), node.admin.port());
    let mut all = Vec::new();
    for uri in [
        format!("http://127.0.0.1:{clients}/timers"),
        format!("http://127.0.0.1:{admin}/cluster/reload"),
        format!("http://localhost:{admin}/cluster/reload"),
        format!("http://0.0.0.0:{clients}/timers"),
        format!("http://[::ffff:127.0.0.1]:{clients}/timers"),
    ] {
        all.push((with(GOOD_URI, &uri).into_bytes(), "callback.http.uri"));
    }
    refuse_all(&node, 403, &all);
}

#[test]
fn bad_text_in_opaque() {
    let node = Node::shared();
    let mut all = rows([
        (&with("\"x\"", "\"\\u12\""), "body"),
        (&with("\"x\"", "\"\\ud800\""), "body"),
        (&with("\"x\"", "\"\\udc00\\ud800\""), "body"),
        (&with("\"x\"", "\"\\x41\""), "body"),
        (&with("\"x\"", "\"line\nend\""), "body"),
        (&with("\"x\"", "\"x"), "body"),
    ]);
    let mut invalid = with("\"x\"", "\"??\"").into_bytes();
    let at = invalid.windows(2).position(|two| two == b"??").expect("put there");
    for bad in [[0xff, 0xfe], [0xc0, 0x80], [0xc3, b'?'], [b'a', 0]] {
        invalid[at..at + 2].copy_from_slice(&bad);
        all.push((invalid.clone(), "body"));
    }
    refuse_all(&node, 400, &all);
    let most = "x".repeat(256 << 10);
    assert_eq!(
        node.request("POST", "/timers", &document("3600", None, GOOD_URI, &most)).status,
        200
    );
    let too_much = document("3600", None, GOOD_URI, &(most + "x")).into_bytes();
    refuse_all(&node, 413, &[(too_much, "callback.http.opaque")]);
}

#[test]
fn too_many_or_too_long_tags() {
    let node = Node::shared();
    let tags = |count: usize, name: &str| {
        let tag = format!("{{\"type\":\"{name}\",\"count\":1}}");
        let tags = vec![tag; count].join(",");
        with("{\"timing\"", &format!("{{\"statistics\":{{\"tag-info\":[{tags}]}},\"timing\""))
    };
    assert_eq!(node.request("POST", "/timers", &tags(16, &"a".repeat(64))).status, 200);
    refuse_all(
        &node,
        400,
        &[
            (tags(17, "a").into_bytes(), "statistics.tag-info"),
            (tags(1, &"a".repeat(65)).into_bytes(), "statistics.tag-info.type"),
        ],
    );
}

#[test]
fn a_bad_request_in_a_pipeline_spoils_only_itself() {
    let node = Node::shared();
    let mut client = node.client();
    let bad = request_text("POST", "/timers", "{\"timing\":7}");
    let good = request_text("POST", "/timers", &far_document());
    client.send((good.clone() + &bad).repeat(50));
    for _ in 0..50 {
        assert_eq!(client.answer().status, 200);
        client.answer().assert_refusal(400, "timing", "in a pipeline");
    }
}
