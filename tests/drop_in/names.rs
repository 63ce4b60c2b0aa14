//! The original's file of names: where callbacks go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use kit::callbacks::{Reaction, serve};
use kit::ports;

use super::{Node, PATIENCE, request};

fn record(rest: &str) -> String {
    format!("{{\"hostnames\":[{{\"name\":\"sprout.example\",\"records\":[{{{rest}}}]}}]}}")
}

/// A callback server that tells its own name.
fn sink(at: SocketAddr, name: &'static str, told: Sender<&'static str>) {
    let told = Mutex::new(told);
    serve(at, move |_| {
        told.lock().expect("no panic").send(name).expect("somebody hears");
        Reaction::OK
    });
}

#[test]
fn names_lead_where_the_file_says() {
    let mut node = Node::new(17);
    let hosts = [IpAddr::from([127, 0, 0, 39]), IpAddr::from([127, 0, 0, 1])];
    let port = ports::free_port(&hosts);
    let (told, heard) = channel();
    sink(SocketAddr::new(hosts[0], port), "first", told.clone());
    sink(SocketAddr::new(hosts[1], port), "second", told);
    let names = node.file("dns.json");
    let write = |text: &str| std::fs::write(&names, text).expect("written");
    let timer = format!(
        "{{\"timing\":{{\"interval\":0}},\"callback\":{{\"http\":{{\"uri\":\
         \"http://sprout.example:{port}/timers\",\"opaque\":\"\"}}}}}}"
    );
    let pop = |node: &Node| {
        let created = request(node.bind, "POST", "/timers", &timer).expect("an answer");
        assert_eq!(created.status, 200, "{created:?}");
        heard.recv_timeout(PATIENCE).expect("a callback")
    };
    write(&record("\"rrtype\":\"A\",\"targets\":[\"127.0.0.39\"]"));
    node.dns_file = true;
    node.start();
    assert_eq!((pop(&node), pop(&node)), ("first", "first"));
    // As Clearwater's reload of dns.json: the file, then the signal. The kept connection ends.
    write(&record("\"rrtype\":\"CNAME\",\"target\":\"localhost\""));
    node.signal("USR2");
    node.await_log("names that lead elsewhere are read", 1);
    assert_eq!(pop(&node), "second");
    write("{");
    node.signal("USR2");
    node.await_log("not valid JSON", 1);
    assert_eq!(pop(&node), "second", "the names stay as they are");
    assert!(node.end().success(), "{}", node.logged());
}
