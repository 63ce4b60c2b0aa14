//! Files and requests as public deployments of the original have and send them: its documents, the
//! recipes, images and managers that install it, and its clients. In our own words, with other
//! addresses.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use kit::callbacks::{Reaction, serve};
use kit::children::Tied;
use kit::client;

use super::{Node, PATIENCE, request, text};

/// The local, the cluster and the shared file of a deployment; `""`: there is none.
struct Deployment {
    what: &'static str,
    files: [&'static str; 3],
    /// Lines of the configuration that these files mean.
    means: &'static [&'static str],
}

const LOCAL: &str = "[http]\nbind-address = 127.0.0.58\nbind-port = 7253\nthreads = 50\n\n\
                     [logging]\nfolder = /var/log/chronos\nlevel = 2\n";
/// The cluster manager's file, with these members.
macro_rules! managed {
    ($members:literal) => {
        concat!(
            "# Written by the cluster manager on this node.\n#\n# DO NOT EDIT.\n\n",
            "[identity]\ninstance_id = 23\ndeployment_id = 5\n\n",
            "[cluster]\nlocalhost = 127.0.0.58\n",
            $members
        )
    };
}

/// The recipe writes one list for all sites.
const SITES: &str = "[sites]\nlocal_site = site2\nremote_site = site1=store-site1.example.net\n\
                     remote_site = site2=store-site2.example.net\n\
                     remote_site = site3=store-site3.example.net\n\n";

const DEPLOYMENTS: [Deployment; 17] = [
    Deployment { what: "no files", files: ["", "", ""], means: &["listen = \"0.0.0.0:7253\""] },
    Deployment {
        what: "the sample of the package",
        files: [
            "[http]\nbind-address = 0.0.0.0\nbind-port = 7253\nthreads = 50\n\n\
                 [logging]\nfolder = /var/log/chronos\nlevel = 2\n",
            "",
            "",
        ],
        means: &["listen = \"0.0.0.0:7253\"", "level = \"info\""],
    },
    Deployment {
        what: "an installation by hand of an older version",
        files: [
            "[http]\nbind-address = 127.0.0.58\nbind-port = 7253\nthreads = 50\n\n\
                 [logging]\nfolder = /var/log/chronos\nlevel = 2\n\n\
                 [alarms]\nenabled = true\n\n[exceptions]\nmax_ttl = 600\n",
            "",
            "",
        ],
        means: &["listen = \"127.0.0.58:7253\""],
    },
    Deployment {
        what: "an older version with its cluster in the local file",
        files: [
            "[http]\nbind-address = 127.0.0.58\nbind-port = 7253\n\n[cluster]\n\
                 localhost = 127.0.0.58\nnode = 127.0.0.58\nnode = 127.0.0.59\n",
            "",
            "",
        ],
        means: &["nodes = [\"127.0.0.58\", \"127.0.0.59\"]"],
    },
    Deployment {
        what: "the same after the cluster manager came",
        files: [
            "[http]\nbind-address = 127.0.0.58\nbind-port = 7253\n\n[cluster]\n\
                 localhost = 127.0.0.58\nnode = 127.0.0.58\nnode = 127.0.0.78\n",
            "[identity]\ninstance_id = 1\ndeployment_id = 0\n\n[cluster]\n\
                 localhost = 127.0.0.58\nnode = 127.0.0.58\nnode = 127.0.0.59\n",
            "",
        ],
        means: &["nodes = [\"127.0.0.58\", \"127.0.0.59\"]", "instance_id = 1"],
    },
    Deployment {
        what: "the cluster manager's, stable",
        files: [LOCAL, managed!("node = 127.0.0.58\nnode = 127.0.0.59\n"), ""],
        means: &["instance_id = 23", "deployment_id = 5"],
    },
    Deployment {
        what: "the cluster manager's, while nodes join and leave",
        files: [
            LOCAL,
            managed!(
                "joining = 127.0.0.60\nnode = 127.0.0.58\n\
                                        leaving = 127.0.0.61\nleaving = 127.0.0.62\n"
            ),
            "",
        ],
        means: &["joining = [\"127.0.0.60\"]", "leaving = [\"127.0.0.61\", \"127.0.0.62\"]"],
    },
    Deployment {
        what: "the cluster manager's, while this node joins",
        files: [LOCAL, managed!("joining = 127.0.0.58\nnode = 127.0.0.59\n"), ""],
        means: &["joining = [\"127.0.0.58\"]"],
    },
    Deployment {
        what: "the config manager's default: comments alone",
        files: [
            LOCAL,
            "",
            "##########\n# No shared configuration has been provided\n# Replace \
                            this file\n##########",
        ],
        means: &["remote = []"],
    },
    Deployment {
        what: "the recipe of one site",
        files: [LOCAL, "", "[sites]\nlocal_site = single_site\n\n"],
        means: &["local = \"single_site\"", "remote = []"],
    },
    Deployment {
        what: "the recipe of several sites",
        files: [LOCAL, "", SITES],
        means: &["remote = [\"site1=store-site1.example.net\", \"site3=store-site3.example.net\"]"],
    },
    Deployment {
        what: "an image: the sample, and a name server at its end",
        files: [
            "[http]\nbind-address = 127.0.0.58\nbind-port = 7253\nthreads = 50\n\n\
                 [logging]\nfolder = /var/log/chronos\nlevel = 2\n\n[dns]\nservers=10.96.0.10\n",
            "",
            "",
        ],
        means: &["listen = \"127.0.0.58:7253\""],
    },
    Deployment {
        what: "the documents, with their comments behind values",
        files: [
            "[http]\nbind-address = 127.0.0.58         # Address to bind to\n\
                 bind-port = 7253               # Port\nthreads = 50                   # Threads\n\
                 gr_threads = 50                # Threads for other sites\n",
            "[cluster]\nlocalhost = 127.0.0.58            # This host\n\
                 node = 127.0.0.58                 # All nodes\nnode = 127.0.0.59\n",
            "[exceptions]\nmax_ttl = 600     # Longest time\n\n[dns]\nservers = 127.0.0.1\n\
                 timeout = 200\nport = 5353\n\n[sites]\nlocal_site = here       # This site\n\
                 remote_site = there=other.example.net:8000  # Another\n\
                 replicate_timers_across_sites = false\n",
        ],
        means: &["localhost = \"127.0.0.58\"", "remote = [\"there=other.example.net:8000\"]"],
    },
    Deployment {
        what: "an operator's: lines of Windows, blanks, an entry of a form of its own",
        files: [
            "[http]\r\n  bind-address=127.0.0.58\r\n\tbind-port =7253\r\n",
            "[cluster]\r\nlocalhost=127.0.0.58\r\n\r\nnode=127.0.0.58\r\njoining =\r\n",
            "[sites]\nlocal_site = a\nremote_site = a=a.example.net\nremote_site = c\n\
                 replicate_timers_across_sites = True\n",
        ],
        means: &["nodes = [\"127.0.0.58\"]", "remote = []", "replicate_across = true"],
    },
    Deployment {
        what: "three name servers, overload control, ports",
        files: [
            "[http]\nbind-address = 127.0.0.58\nbind-port = 7254\n\n[throttling]\n\
                 target_latency = 500000\nmax_tokens = 1000\ninitial_token_rate = 500\n\
                 min_token_rate = 10\nmax_token_rate = 0\n",
            "[cluster]\nlocalhost = 127.0.0.58:7254\nnode = 127.0.0.58:7254\n",
            "[dns]\nservers = 10.0.0.1\nservers = 10.0.0.2\nservers = 10.0.0.3\n\
                 timeout = 500\nport = 53\n",
        ],
        means: &["listen = \"127.0.0.58:7254\"", "nodes = [\"127.0.0.58:7254\"]"],
    },
    Deployment {
        what: "addresses of IPv6",
        files: [
            "[http]\nbind-address = ::1\nbind-port = 7253\n",
            "[cluster]\nlocalhost = [::1]:7253\nnode = [::1]:7253\n",
            "",
        ],
        means: &["listen = \"[::1]:7253\"", "nodes = [\"[::1]:7253\"]"],
    },
    Deployment {
        what: "keys of no section that anybody knows, and dotted ones",
        files: [
            "http.bind-address = 127.0.0.58\n\n[unknown]\noption = true\nbind adress = 1\n",
            "",
            "[sites]\nlocal_site = local\n",
        ],
        means: &["listen = \"127.0.0.58:7253\"", "local = \"local\""],
    },
];

#[test]
fn files_of_deployments_are_taken() {
    for Deployment { what, files, means } in &DEPLOYMENTS {
        let node = Node::new(18);
        for (name, text) in ["local", "cluster", "shared"].iter().zip(files) {
            match text.is_empty() {
                true => std::fs::remove_file(node.file(name)).expect("there"),
                false => node.write(name, text),
            }
        }
        let printed = node.command().arg("--print-config").output_tied().expect("it runs");
        let (shown, told) = (text(&printed.stdout), text(&printed.stderr));
        assert!(printed.status.success(), "{what}: {told}");
        for line in *means {
            assert!(shown.lines().any(|it| it.starts_with(line)), "{what}: {line} not in\n{shown}");
        }
    }
}

/// A cluster section that was left in the local file names a node that is long gone.
#[test]
fn the_cluster_file_decides_over_what_is_left_in_the_local_file() {
    let mut node = Node::new(20);
    let local = std::fs::read_to_string(node.file("local")).expect("there");
    node.write("local", &format!("{local}[cluster]\nlocalhost = x\nnode = x\nnode = 127.0.0.78\n"));
    node.write_members(&[&node]);
    node.start();
    node.await_log("[cluster] node is set at", 1);
    let told = node.logged();
    assert!(told.contains("[cluster] node is set at") && told.contains("already"), "{told}");
    // What orders write into the cluster file counts, too.
    let members =
        format!("{{\"nodes\":[{:?}],\"joining\":[\"127.0.0.59:1\"]}}", node.bind.to_string());
    let order = "X-Chronos-Order: 1\r\n";
    let answer = client::request_with(node.admin, "PUT", "/cluster/membership", order, &members);
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
    node.await_log("the cluster has 1 nodes, 1 joining", 1);
    let cluster = std::fs::read_to_string(node.file("cluster")).expect("there");
    assert!(cluster.contains("joining = 127.0.0.59:1"), "{cluster}");
    assert!(node.end().success(), "{}", node.logged());
}

/// What clients of the original send at the life of one timer.
struct Request {
    who: &'static str,
    interval: u32,
    repeat_for: u32,
    path: &'static str,
    opaque: &'static str,
    tags: &'static [(&'static str, u32)],
}

const AOR: &str = r#"{\"aor_id\": \"sip:1000000001@example.net\"}"#;

const REQUESTS: [Request; 9] = [
    Request {
        who: "Sprout: a registration",
        interval: 300,
        repeat_for: 300,
        path: "/timers",
        opaque: AOR,
        tags: &[("BIND", 1), ("REG", 1), ("SUB", 0)],
    },
    Request {
        who: "Sprout: the phone has subscribed",
        interval: 300,
        repeat_for: 300,
        path: "/timers",
        opaque: AOR,
        tags: &[("BIND", 2), ("REG", 1), ("SUB", 1)],
    },
    Request {
        who: "S4: all bindings are gone, the timer is not deleted yet",
        interval: 0,
        repeat_for: 0,
        path: "/timers/",
        opaque: AOR,
        tags: &[("BIND", 0), ("REG", 0), ("SUB", 0)],
    },
    Request {
        who: "Sprout: a challenge that nobody answers",
        interval: 30,
        repeat_for: 30,
        path: "/authentication-timeout",
        opaque: r#"{\"impi\": \"a@b.net\", \"impu\": \"sip:a@b.net\", \"nonce\": \"7f\"}"#,
        tags: &[],
    },
    Request {
        who: "Ralf: a call begins",
        interval: 300,
        repeat_for: 600,
        path: "/call-id/1-2%4010.0.0.1%3A5060?timer-interim=true",
        opaque: r#"{\"event\":{\"Accounting-Record-Type\":3,\"Service-Information\":{}}}"#,
        tags: &[("CALL", 1)],
    },
    Request {
        who: "Ralf: a call with a long interim interval and none of its own refresh",
        interval: 86_400,
        repeat_for: 172_800,
        path: "/call-id/x?timer-interim=true",
        opaque: "{}",
        tags: &[("CALL", 1)],
    },
    Request {
        who: "an example of the documents",
        interval: 100,
        repeat_for: 200,
        path: "/callback",
        opaque: "stuff",
        tags: &[("TYPE1", 5), ("TYPE2", 1)],
    },
    Request {
        who: "tags of the largest count, and of one name twice",
        interval: 10,
        repeat_for: 0,
        path: "",
        opaque: "",
        tags: &[("A", u32::MAX), ("B", 1), ("B", 0)],
    },
    Request {
        who: "the counters of a client that adds them up itself",
        interval: 5,
        repeat_for: 5,
        path: "/x",
        opaque: "\\u00e9 \\\" \\\\ \\n",
        tags: &[("CALL", 0)],
    },
];

impl Request {
    /// The document as the original's class for clients writes it.
    fn body(&self, host: &str) -> String {
        let Request { interval, repeat_for, path, opaque, tags, .. } = self;
        let tag =
            |(kind, count): &(&str, u32)| format!("{{\"type\":\"{kind}\",\"count\":{count}}}");
        let tags: Vec<String> = tags.iter().map(tag).collect();
        format!(
            "{{\"timing\":{{\"interval\":{interval},\"repeat-for\":{repeat_for}}},\"callback\":\
             {{\"http\":{{\"uri\":\"http://{host}{path}\",\"opaque\":\"{opaque}\"}}}},\
             \"statistics\":{{\"tag-info\":[{}]}}}}",
            tags.join(",")
        )
    }
}

/// Each is created, replaced under the word that was answered last, and deleted, with the headers
/// that the original's clients send.
#[test]
fn requests_of_clients_are_taken() {
    let mut node = Node::new(21);
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let at = SocketAddr::new(node.bind.ip(), 0);
    let (sink, _) = serve(at, move |callback| {
        told.lock().expect("no panic").send(callback.path.clone()).expect("somebody hears");
        Reaction::OK
    });
    node.start();
    let headers = "Accept: */*\r\nX-SAS-HTTP-Branch-ID: 0f8e\r\nContent-Type: application/json\r\n";
    let ask = |method: &str, path: &str, body: &str| {
        let answer = client::request_with(node.bind, method, path, headers, body);
        answer.expect("an answer")
    };
    for request in &REQUESTS {
        let who = request.who;
        let body = request.body(&sink.to_string());
        let mut path = String::from("/timers");
        for (method, body) in [("POST", &*body), ("PUT", &*body), ("PUT", &*body), ("DELETE", "")] {
            // Four requests may take less than the millisecond that rounds the due time up.
            if request.interval == 0 && method == "DELETE" {
                while heard.recv_timeout(PATIENCE).expect("a callback") != request.path {}
            }
            let answer = ask(method, &path, body);
            assert_eq!((answer.status, &*answer.body), (200, ""), "{who}: {method} {answer:?}");
            // A client looks for this header alone.
            path = answer.location().to_owned();
            assert!(path.starts_with("/timers/"), "{who}: {answer:?}");
        }
    }
    // Clients that know less, and clients that know an id of an older version.
    let uri = format!("\"callback\":{{\"http\":{{\"uri\":\"http://{sink}/x\",\"opaque\":\"\"}}}}");
    for (path, rest) in [
        ("/timers", ""),
        ("/timers/", ""),
        ("/timers", ",\"reliability\":{}"),
        ("/timers", ",\"reliability\":{\"replication-factor\":3}"),
        ("/timers", ",\"statistics\":{}"),
        ("/timers", ",\"statistics\":{\"tag-info\":[]}"),
    ] {
        let body = format!("{{\"timing\":{{\"interval\":9}},{uri}{rest}}}");
        assert_eq!(ask("POST", path, &body).status, 200, "{path} {rest}");
    }
    for id in ["0004d9f548100000-2", "0004D9F548100000-2", "0004d9f548100000-2-0000000000000001"] {
        let body = format!("{{\"timing\":{{\"interval\":9}},{uri}}}");
        assert_eq!(ask("PUT", &format!("/timers/{id}"), &body).status, 200, "{id}");
        assert_eq!(ask("DELETE", &format!("/timers/{id}"), "").status, 200, "{id}");
    }
    // As its monit file asks: `OK200`, or 503.
    let ping = request(node.bind, "GET", "/ping", "").expect("an answer");
    assert_eq!((ping.status, ping.body.trim_end()), (200, "OK"));
    assert!(node.end().success(), "{}", node.logged());
}
