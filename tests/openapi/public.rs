//! One timer after another, as clients write, read, pause and delete it.

use kit::until::{PATIENCE, until};
use serde_json::{Value, json};

use super::contract::Contract;
use super::node::{Node, Tokens};
use super::original;
use super::public_many::query;
use super::wire::Ask;

pub const UNKNOWN: &str = "0004d9f548100000-2-0000000000000001";

/// A timer with all that may be said, but for when.
fn furnished() -> Value {
    json!({
        "callback": {
            "http": {"uri": "http://127.0.0.1:9/x", "opaque-base64": "AAEC/w==", "method": "PUT",
                     "content-type": "image/png", "headers": {"X-Tenant": "blue"}},
            "retry": {"max-attempts": 3, "max-age": "PT24H", "initial": "PT1S", "multiplier": 1.5,
                      "max": "PT1H", "jitter": 0.25},
            "timeout": "PT15S",
            "dead-letter": {"uri": "https://127.0.0.1:9/dead"},
            "on-success": "http://127.0.0.1:9/done", "on-failure": "http://127.0.0.1:9/failed",
        },
        "reliability": {"replication-factor": 2},
        "statistics": {"tag-info": [{"type": "CALL", "count": 3}]},
    })
}

/// Documents of every kind.
pub fn documents() -> Vec<String> {
    let timings = [
        json!({"interval": 3600.5, "repeat-for": "PT2H"}),
        json!({"interval": "PT1H", "window": "PT5M"}),
        json!({"at": "2099-12-01T09:00:00+01:00"}),
        json!({"cron": "0 0 9 * * MON-FRI", "time-zone": "Europe/London", "catch-up-window": 60,
               "end-at": "2099-12-31T23:59:59Z"}),
        json!({"cron": "@daily"}),
    ];
    let with = |timing: &Value| {
        let mut document = furnished();
        document["timing"] = timing.clone();
        document.to_string()
    };
    timings.iter().map(with).collect()
}

pub fn one_timer(contract: &Contract) {
    let node = Node::start("");
    let to = node.address;
    let create = contract.example("createTimer", &[]);
    let id = id_of(&contract.expect(to, &create, 200).location());
    for document in documents() {
        let location = contract.expect(to, &create.clone().body(&document), 200).location();
        contract.expect(to, &Ask::new("GET", &location), 200);
    }
    contract.refused(to, &create.clone().body(r#"{"timing":{"interval":-1}}"#), 400);
    let of = |operation: &str, id: &str| contract.example(operation, &[("id", id)]);
    contract.expect(to, &of("putTimer", &id), 200);
    contract.refused(to, &of("putTimer", &id).body("[]"), 400);
    contract.expect(to, &of("getTimer", &id), 200);
    contract.refused(to, &of("getTimer", UNKNOWN), 404);
    let act =
        |action: &str, id: &str| contract.example("actOnTimer", &[("id", id), ("action", action)]);
    contract.refused(to, &act("pause", UNKNOWN), 404);
    contract.expect(to, &act("pause", &id), 200);
    contract.expect(to, &of("getTimer", &id), 200);
    contract.refused(to, &act("run-now", &id), 409);
    contract.refused(to, &act("resume", &id).with("If-Match: \"0000000000000001\""), 412);
    contract.refused(to, &act("resume", &id).with("If-None-Match: *"), 400);
    contract.expect(to, &act("resume", &id), 200);
    contract.expect(to, &act("run-now", &id), 200);
    for operation in ["putTimer", "deleteTimer"] {
        for condition in ["If-Match: *", "If-None-Match: *"] {
            contract.refused(to, &of(operation, &id).with(condition), 400);
        }
    }
    contract.expect(to, &of("deleteTimer", &id), 200);
    for operation in ["getTimer", "putTimer", "deleteTimer", "actOnTimer"] {
        contract.refused(to, &of(operation, "none"), 404);
    }
    contract.expect(to, &contract.example("ping", &[]), 200);
}

/// Documents that are taken with a warning, and refused by who is strict.
pub fn warnings(contract: &Contract) {
    let to = &Node::start("");
    let to = to.address;
    let [bulk, post] = ["createTimers", "createTimer"].map(|of| contract.example(of, &[]));
    let unknown = post.body.replace("repeat-for", "repeat_for");
    let never = post.body.replace("600", "1");
    for document in [unknown, never] {
        assert_ne!(document, post.body);
        for operation in ["createTimer", "putTimer", "putNamedTimer"] {
            let ask = contract.example(operation, &[]).body(&document);
            let answer = contract.expect(to, &ask, 200);
            assert!(answer.header("Chronos-Warning").is_some(), "{operation}: {answer:?}");
            contract.expect(to, &query(&ask, "strict=false"), 200);
            for strict in ["strict", "strict=true"] {
                contract.refused(to, &query(&ask, strict), 400);
            }
        }
        let bulk = bulk.clone().body(&document);
        let taken = contract.expect(to, &bulk, 200).json();
        assert!(taken["warning"].is_string(), "{taken}");
        let refused = contract.expect(to, &query(&bulk, "strict=true"), 200).json();
        assert_eq!(refused["status"], 400, "{refused}");
    }
}

/// What GET answers HEAD answers, without the body.
pub fn heads(contract: &Contract) {
    let tokens = Tokens::make();
    let node = Node::start(&tokens.config());
    let to = node.address;
    let named = contract.example("putNamedTimer", &[]).with(&tokens.client);
    let made = contract.expect(to, &named, 200);
    let id = id_of(&made.location());
    for operation in contract.operations.iter().filter(|one| one.method == "get") {
        let get = contract.example(&operation.id, &[("id", &id)]).with(&tokens.reader);
        let head = Ask { method: "HEAD".into(), ..get.clone() };
        let [get, head] = [get, head].map(|ask| {
            let answer = contract.ask(to, &ask);
            // How long ago something was takes more digits from time to time.
            let names = answer.headers.into_iter().map(|(name, _)| name);
            (answer.status, names.collect::<Vec<String>>())
        });
        assert_eq!(get, head, "{}", operation.id);
    }
}

pub fn names(contract: &Contract) {
    let node = Node::start("");
    let to = node.address;
    let of = |operation: &str, name: &str| contract.example(operation, &[("name", name)]);
    let (put, get) = (of("putNamedTimer", "a%2Fb"), of("getNamedTimer", "a%2Fb"));
    contract.refused(to, &get, 404);
    let tag = contract.expect(to, &put.clone().with("If-None-Match: *"), 200);
    let tag = tag.header("ETag").expect("a version").to_owned();
    contract.refused(to, &put.clone().with("If-None-Match: *"), 412);
    contract.expect(to, &put.clone().with(&format!("If-Match: {tag}")), 200);
    contract.expect(to, &get, 200);
    let act = |action: &str, name: &str| {
        contract.example("actOnNamedTimer", &[("name", name), ("action", action)])
    };
    contract.refused(to, &act("pause", "nobody"), 404);
    contract.expect(to, &act("pause", "a%2Fb"), 200);
    contract.refused(to, &act("run-now", "a%2Fb"), 409);
    contract.refused(to, &act("resume", "a%2Fb").with(&format!("If-Match: {tag}")), 412);
    contract.expect(to, &act("resume", "a%2Fb"), 200);
    let delete = of("deleteNamedTimer", "a%2Fb");
    contract.refused(to, &delete.clone().with(&format!("If-Match: {tag}")), 412);
    contract.refused(to, &delete.clone().with("If-None-Match: *"), 400);
    contract.expect(to, &delete.clone().with("If-Match: *"), 200);
    contract.expect(to, &delete, 200);
    for operation in ["putNamedTimer", "getNamedTimer", "deleteNamedTimer", "actOnNamedTimer"] {
        for name in ["%ff", "a%2"] {
            contract.refused(to, &of(operation, name), 400);
        }
    }
}

pub fn keys_and_hosts(contract: &Contract) {
    let node = Node::start("[callbacks]\ndeny = [\"10.66.0.0/16\"]\n");
    let to = node.address;
    let create = contract.example("createTimer", &[]);
    let keyed = create.clone().with("Idempotency-Key: order-17");
    let first = contract.expect(to, &keyed, 200);
    assert_eq!(contract.expect(to, &keyed, 200).location(), first.location());
    contract.expect(to, &Ask::new("GET", &first.location()), 200);
    let other = create.body.replace("any text", "other text");
    contract.refused(to, &keyed.clone().body(&other), 422);
    contract.refused(to, &create.clone().with("Idempotency-Key: "), 400);
    for condition in ["If-Match: *", "If-None-Match: *"] {
        contract.refused(to, &create.clone().with(condition), 400);
    }
    let denied = create.body.replace("10.0.0.1", "10.66.0.1");
    let long = create.body.replace("any text", &"x".repeat(300_000));
    for operation in ["createTimer", "putTimer", "putNamedTimer"] {
        let ask = contract.example(operation, &[]);
        contract.refused(to, &ask.clone().body(&denied), 403);
        contract.refused(to, &ask.clone().body(&long), 413);
    }
}

/// Returns the id in a path.
pub fn id_of(location: &str) -> String {
    location.rsplit('/').next().expect("a path").to_owned()
}

/// While a node of the original service is a member, what it cannot hold is refused.
pub fn an_original_is_a_member(contract: &Contract) {
    let port = kit::ports::free_port(&["127.0.0.1".parse().expect("an address")]);
    let theirs = kit::ports::free_port(&["127.0.0.2".parse().expect("an address")]);
    let [ours, theirs] = [format!("127.0.0.1:{port}"), format!("127.0.0.2:{theirs}")];
    original::start(theirs.parse().expect("an address"));
    let node = Node::start_at(
        &ours,
        &format!("[cluster]\nlocalhost = {ours:?}\nnodes = [{ours:?}, {theirs:?}]\n"),
    );
    let to = node.address;
    let document = documents().remove(2);
    let create = contract.example("createTimer", &[]).body(&document);
    until("the original to be known", PATIENCE, || {
        (contract.ask(to, &create).status == 409).then_some(())
    });
    for operation in ["createTimer", "putTimer", "putNamedTimer"] {
        contract.refused(to, &contract.example(operation, &[]).body(&document), 409);
    }
    for operation in ["actOnTimer", "actOnNamedTimer"] {
        contract.refused(to, &contract.example(operation, &[]), 409);
    }
}

pub fn timestamps(contract: &Contract) {
    let take = contract.example("takeTimestamps", &[]);
    contract.refused(Node::start("").address, &take, 404);
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(&super::node::timestamps(folder.path()));
    let to = node.address;
    until("the first timestamp", PATIENCE, || {
        (contract.ask(to, &take).status == 200).then_some(())
    });
    let many = Ask { target: "/timestamps?count=100".into(), ..take.clone() };
    let document = contract.expect(to, &many, 200).json();
    assert_eq!(document["count"], 100);
    for query in ["count=0", "count=262145", "x=1"] {
        contract.refused(to, &Ask { target: format!("/timestamps?{query}"), ..take.clone() }, 400);
    }
}
