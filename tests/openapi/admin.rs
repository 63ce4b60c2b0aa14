//! The admin API: who may ask, what a node tells, and the orders that it takes.

use std::collections::BTreeSet;

use kit::until::{PATIENCE, until};

use super::contract::{Contract, Operation};
use super::node::{Node, Tokens};
use super::public::{UNKNOWN, documents, id_of};
use super::public_many::{hopeless, query};
use super::wire::Ask;

const ORIGIN: &str = "Origin: http://evil.example";

/// Requests of web pages, for other hosts, and orders without what an order needs.
pub fn who_asks(contract: &Contract) {
    let tokens = Tokens::make();
    let node = Node::start(&tokens.config());
    for operation in &contract.operations {
        let ask = contract.example(&operation.id, &[]);
        contract.refused(node.admin, &ask.clone().with(ORIGIN), 403);
        contract.refused(node.admin, &ask.clone().with("Host: evil.example"), 421);
        if operation.method == "get" {
            continue;
        }
        let bare = Ask { headers: String::new(), ..ask.clone() };
        contract.expect(node.admin, &bare, 403);
        contract.refused(node.admin, &ask, 401);
        contract.expect(node.admin, &ask.with(&tokens.client), 403);
    }
    for token in [&tokens.reader, &tokens.operator, "X-Nobody: 1"] {
        contract.expect(node.admin, &contract.example("access", &[]).with(token), 200);
    }
}

/// Methods that a path does not have, paths that are not there, and HEAD.
pub fn paths(contract: &Contract) {
    let node = Node::start("");
    let paths: BTreeSet<&String> = contract.operations.iter().map(|one| &one.path).collect();
    for path in paths {
        let here: Vec<&Operation> =
            contract.operations.iter().filter(|one| one.path == *path).collect();
        let example = contract.example(&here[0].id, &[("action", "pause")]);
        let ask = Ask { headers: String::new(), ..example }.with("X-Chronos-Order: 1");
        let ask = Ask { method: "PATCH".into(), body: String::new(), ..ask };
        contract.refused(node.admin, &ask, 405);
        let answer = contract.ask(node.admin, &ask);
        let methods = answer.header("Allow").unwrap_or_default().split(',').map(str::trim);
        let allowed: BTreeSet<String> =
            methods.filter(|one| *one != "HEAD").map(str::to_lowercase).collect();
        let told: BTreeSet<String> = here.iter().map(|one| one.method.clone()).collect();
        if allowed != told {
            contract.note(format!("{path}: the node has {allowed:?}, the contract {told:?}"));
        }
        if here.iter().any(|one| one.method == "get") {
            let [get, head] = ["GET", "HEAD"].map(|method| {
                contract.ask(node.admin, &Ask { method: method.into(), ..ask.clone() })
            });
            assert_eq!(get.status, head.status, "{path}");
            assert_eq!(get.header("Content-Type"), head.header("Content-Type"), "{path}");
        }
    }
    for path in ["/nothing", "/timers/x/y/z"] {
        contract.refused(node.admin, &Ask::new("GET", path), 404);
    }
}

/// What a node tells of itself.
pub fn figures(contract: &Contract) {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, timestamps) = (folder.path().join("data"), super::node::timestamps(folder.path()));
    let node = Node::start(&format!("{timestamps}[journal]\ndata_dir = {data:?}\n"));
    let bare = Node::start("");
    for (to, clients) in [(node.admin, node.address), (bare.admin, bare.address)] {
        let tagged = Ask::new("POST", "/timers").body(&documents()[0]);
        let mut client = super::wire::connect(clients);
        let made = super::wire::exchange(&mut client, tagged.text().as_bytes(), false);
        assert_eq!(made.status, 200, "{made:?}");
        for operation in [
            "console",
            "access",
            "healthz",
            "metrics",
            "status",
            "alarms",
            "config",
            "journal",
            "timestamp",
            "cluster",
            "clusterMembers",
            "allTags",
            "oneTag",
            "listDestinations",
        ] {
            contract.expect(to, &contract.example(operation, &[]), 200);
        }
        until("the node to be ready", PATIENCE, || {
            (contract.ask(to, &contract.example("readyz", &[])).status == 200).then_some(())
        });
        until("a count of what is due", PATIENCE, || {
            let told = contract.expect(to, &contract.example("overview", &[]), 200).json();
            (!told["due"].is_null()).then_some(())
        });
    }
    let open_metrics = contract.example("metrics", &[]);
    contract.expect(node.admin, &open_metrics.with("Accept: application/openmetrics-text"), 200);
    let status = contract.example("status", &[]);
    for all in ["all", "all=true"] {
        let told = contract.expect(node.admin, &query(&status, all), 200).json();
        assert!(told["per_core"].is_array(), "{told}");
    }
    contract.refused(node.admin, &query(&status, "every"), 400);
    for operation in ["allTags", "oneTag"] {
        let ask = contract.example(operation, &[]);
        contract.expect(bare.admin, &query(&ask, "scope=cluster"), 200);
        contract.refused(bare.admin, &query(&ask, "scope=all"), 400);
    }
    let backup = contract.example("backup", &[]);
    let made = folder.path().join("backup");
    let order = backup.clone().body(&serde_json::json!({ "directory": made }).to_string());
    let last = contract.example("lastBackup", &[]);
    contract.refused(node.admin, &last, 404);
    contract.expect(node.admin, &order, 202);
    until("the backup to be there", PATIENCE, || {
        (contract.expect(node.admin, &last, 200).json()["state"] == "done").then_some(())
    });
    contract.refused(node.admin, &order, 409);
    contract.refused(bare.admin, &backup, 409);
    contract.refused(bare.admin, &backup.body("{}"), 400);
    for operation in ["backup", "changeMembers", "changeSites", "probeSite", "putDestination"] {
        let long = contract.example(operation, &[]).body(&"x".repeat(200_000));
        contract.refused(bare.admin, &long, 413);
    }
}

/// Orders that change the cluster.
pub fn cluster(contract: &Contract) {
    let port = kit::ports::free_port(&["127.0.0.1".parse().expect("an address")]);
    let own = format!("127.0.0.1:{port}");
    let node = Node::start_at(&own, &format!("[cluster]\nlocalhost = {own:?}\n"));
    let of = |operation: &str| contract.example(operation, &[]);
    let to = node.admin;
    contract.expect(to, &of("resync"), 200);
    contract.expect(to, &of("reload"), 200);
    let change = of("changeMembers");
    let body = |nodes: &str| {
        let lists = format!("{{\"nodes\":[{own:?}],\"joining\":[{nodes}]}}");
        change.clone().body(&lists)
    };
    contract.expect(to, &body("\"127.0.0.2:1\""), 200);
    contract.expect(to, &of("cluster"), 200);
    contract.expect(to, &body(""), 200);
    contract.refused(to, &body("\"a b\""), 400);
    contract.refused(to, &change.clone().body("{"), 400);
    let expected = format!("{{\"nodes\":[{own:?}],\"expected\":{{\"nodes\":[\"127.0.0.9:1\"]}}}}");
    contract.refused(to, &change.clone().body(&expected), 409);
    let sites = of("changeSites");
    contract.expect(to, &sites, 200);
    contract.expect(to, &of("cluster"), 200);
    contract.refused(to, &sites, 409);
    contract.refused(to, &sites.clone().body("{"), 400);
    contract.expect(to, &sites.clone().body("{\"sites\":[]}"), 200);
    contract.expect(to, &of("probeSite"), 200);
    contract.refused(to, &of("probeSite").body("{\"name\":\"a\",\"addresses\":[]}"), 400);
    node.write_config("[limits]\nno_such_key = 1\n");
    contract.refused(to, &of("reload"), 409);
    contract.expect(to, &of("cluster"), 200);
    let port = kit::ports::free_port(&["127.0.0.2".parse().expect("an address")]);
    let own = format!("127.0.0.2:{port}");
    let fixed = Node::start_in(&[("CHRONOS_CLUSTER_NODES", &own)], &own, "");
    let told = contract.expect(fixed.admin, &of("cluster"), 200).json();
    assert!(told["membership_fixed"].is_string(), "{told}");
    contract.refused(fixed.admin, &change, 409);
}

pub fn destinations(contract: &Contract) {
    let rules: Vec<String> =
        (0..999).map(|n| format!("\"10.1.{}.{} paused\"", n / 250, n % 250)).collect();
    let node = Node::start(&format!("[callbacks]\ndestinations = [{}]\n", rules.join(", ")));
    let to = node.admin;
    let of = |operation: &str, name: &str| contract.example(operation, &[("destination", name)]);
    contract.refused(to, &of("getDestination", "10.0.0.1:8080"), 404);
    contract.expect(to, &of("putDestination", "10.0.0.1:8080"), 200);
    contract.expect(to, &of("putDestination", "10.0.0.1:8080").body("{\"paused\":true}"), 200);
    contract.expect(to, &of("getDestination", "10.0.0.1:8080"), 200);
    contract.expect(to, &of("getDestination", "10.1.0.1"), 200);
    let list = of("listDestinations", "");
    contract.expect(to, &list, 200);
    contract.expect(to, &query(&list, "limit=1&after=10.0.0.1:8080"), 200);
    contract.refused(to, &query(&list, "limit=0"), 400);
    contract.refused(to, &of("putDestination", "10.0.0.1:8080").body("{\"x\":1}"), 400);
    contract.refused(to, &of("putDestination", "10.0.0.2"), 409);
    contract.expect(to, &of("deleteDestination", "10.0.0.1:8080"), 200);
    contract.refused(to, &of("deleteDestination", "10.0.0.1:8080"), 404);
    for operation in ["getDestination", "deleteDestination"] {
        contract.refused(to, &of(operation, "a%20b"), 400);
    }
}

/// Creates a timer at the clients' port. Returns its id.
pub fn create(node: &Node, document: &str) -> String {
    let ask = Ask::new("POST", "/timers").body(document);
    let mut client = super::wire::connect(node.address);
    let answer = super::wire::exchange(&mut client, ask.text().as_bytes(), false);
    assert_eq!(answer.status, 200, "{answer:?}");
    id_of(&answer.location())
}

pub fn timers(contract: &Contract) {
    let node = Node::start("");
    let to = node.admin;
    let of = |operation: &str, own: &[(&str, &str)]| contract.example(operation, own);
    for document in documents() {
        let id = create(&node, &document);
        contract.expect(to, &of("getTimer", &[("id", &id)]), 200);
    }
    let id = create(&node, &documents()[0]);
    let act = |id: &str, action: &str| of("actOnTimer", &[("id", id), ("action", action)]);
    contract.expect(to, &act(&id, "pause"), 200);
    contract.expect(to, &of("getTimer", &[("id", &id)]), 200);
    contract.refused(to, &act(&id, "run-now"), 409);
    contract.expect(to, &act(&id, "resume"), 200);
    contract.refused(to, &act(&id, "stop"), 404);
    contract.refused(to, &act(UNKNOWN, "pause"), 404);
    contract.expect(to, &of("deleteTimer", &[("id", &id)]), 200);
    for operation in ["getTimer", "deleteTimer", "actOnTimer"] {
        contract.refused(to, &of(operation, &[("id", "none")]), 404);
        contract.refused(to, &of(operation, &[("id", "%ff")]), 400);
    }
    contract.refused(to, &of("getTimer", &[("id", UNKNOWN)]), 404);
    named(contract, &node);
    let list = of("listTimers", &[]);
    contract.expect(to, &list, 200);
    let page = contract.expect(to, &query(&list, "limit=1"), 200).json();
    let cursor = page["cursor"].as_str().expect("there are more");
    contract.expect(to, &query(&list, &format!("limit=1&cursor={cursor}")), 200);
    contract.refused(to, &query(&list, "limit=0"), 400);
    contract.expect(to, &of("countTimers", &[]), 200);
    contract.expect(to, &query(&of("countTimers", &[]), "histogram=false"), 200);
    contract.refused(to, &query(&of("countTimers", &[]), "histogram=x"), 400);
}

fn named(contract: &Contract, node: &Node) {
    let to = node.admin;
    let put = Ask::new("PUT", "/timers/by-name/a%2Fb").body(&documents()[0]);
    let mut client = super::wire::connect(node.address);
    let made = super::wire::exchange(&mut client, put.text().as_bytes(), false);
    assert_eq!(made.status, 200, "{made:?}");
    let of = |operation: &str, name: &str, action: &str| {
        contract.example(operation, &[("name", name), ("action", action)])
    };
    contract.expect(to, &of("getNamedTimer", "a%2Fb", ""), 200);
    contract.expect(to, &of("actOnNamedTimer", "a%2Fb", "pause"), 200);
    contract.refused(to, &of("actOnNamedTimer", "a%2Fb", "run-now"), 409);
    contract.refused(to, &of("actOnNamedTimer", "nobody", "pause"), 404);
    contract.refused(to, &of("getNamedTimer", "nobody", ""), 404);
    contract.expect(to, &of("deleteNamedTimer", "a%2Fb", ""), 200);
    for operation in ["getNamedTimer", "deleteNamedTimer", "actOnNamedTimer"] {
        contract.refused(to, &of(operation, "%ff", "pause"), 400);
    }
}

pub fn letters_and_jobs(contract: &Contract) {
    let node = Node::start("");
    let to = node.admin;
    let ids = [(); 2].map(|()| create(&node, &hopeless()));
    let of = |operation: &str| contract.example(operation, &[]);
    let letter = |operation: &str, id: &str| contract.example(operation, &[("id", id)]);
    for id in &ids {
        until("a dead letter", PATIENCE, || {
            (contract.ask(to, &letter("getDeadLetter", id)).status == 200).then_some(())
        });
    }
    let host = contract.example("getDestination", &[("destination", "127.0.0.1:9")]);
    until("a destination that fails", PATIENCE, || {
        let told = contract.expect(to, &host, 200).json();
        told["failing"].is_object().then_some(())
    });
    contract.expect(to, &of("listDestinations"), 200);
    contract.expect(to, &of("listDeadLetters"), 200);
    contract.expect(to, &letter("replayDeadLetter", &ids[0]), 200);
    contract.expect(to, &letter("deleteDeadLetter", &ids[1]), 200);
    contract.expect(to, &query(&of("replayDeadLetters"), "limit=1"), 200);
    contract.expect(to, &of("deleteDeadLetters"), 200);
    for operation in ["getDeadLetter", "replayDeadLetter", "deleteDeadLetter"] {
        contract.refused(to, &letter(operation, UNKNOWN), 404);
        contract.refused(to, &letter(operation, "none"), 404);
        contract.refused(to, &letter(operation, "%ff"), 400);
    }
    for operation in ["listDeadLetters", "replayDeadLetters", "deleteDeadLetters"] {
        contract.refused(to, &query(&of(operation), "state=armed"), 400);
    }
    create(&node, &documents()[0]);
    let job = contract.expect(to, &query(&of("deleteTimers"), "tag=CALL"), 202).location();
    let of_job = |operation: &str, job: &str| contract.example(operation, &[("job", job)]);
    until("the job to end", PATIENCE, || {
        let told = contract.expect(to, &of_job("getJob", &id_of(&job)), 200).json();
        (told["state"] == "done").then_some(())
    });
    contract.expect(to, &of("listJobs"), 200);
    contract.expect(to, &of_job("stopJob", &id_of(&job)), 200);
    contract.refused(to, &of("deleteTimers"), 400);
    for operation in ["getJob", "stopJob"] {
        contract.refused(to, &of_job(operation, "00000000000000aa"), 404);
        contract.refused(to, &of_job(operation, "x"), 404);
    }
}
