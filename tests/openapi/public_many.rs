//! Many timers: bulk, lists, counts, jobs, dead letters.

use kit::until::{PATIENCE, until};
use serde_json::json;

use super::contract::Contract;
use super::node::{Node, Tokens};
use super::public::{UNKNOWN, documents, id_of};
use super::wire::Ask;

/// The same request with this query.
pub fn query(ask: &Ask, query: &str) -> Ask {
    Ask { target: format!("{}?{query}", ask.target), ..ask.clone() }
}

pub fn bulk(contract: &Contract) {
    let node = Node::start("[limits]\nbody_bytes_max = 4096\nopaque_bytes_max = 1000\n");
    let to = node.address;
    let bulk = contract.example("createTimers", &[]);
    contract.expect(to, &bulk, 200);
    let lines = format!(
        "{}{{\"timing\":{{\"interval\":-1}}}}\n\n[]\n{}\n{}",
        bulk.body,
        "x".repeat(5_000),
        documents().join("\n")
    );
    let answer = contract.expect(to, &bulk.clone().body(&lines), 200);
    assert_eq!(answer.text().lines().count(), 10, "{answer:?}");
    // A body that breaks off: its last line says so.
    let text = bulk.text().replace("Content-Length: ", "Content-Length: 9");
    let mut stream = super::wire::connect(to);
    std::io::Write::write_all(&mut stream, text.as_bytes()).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    let answer = super::wire::exchange(&mut stream, b"", false);
    contract.judge(&bulk, &answer);
    assert!(answer.text().contains("\"status\":400"), "{answer:?}");
    let old = bulk.text().replacen("HTTP/1.1", "HTTP/1.0", 1);
    assert_eq!(contract.ask_in(to, &bulk, old.as_bytes()).status, 505);
}

pub fn lists_and_jobs(contract: &Contract) {
    let tokens = Tokens::make();
    let node = Node::start(&tokens.config());
    let to = node.address;
    let of = |operation: &str| contract.example(operation, &[]).with(&tokens.client);
    for document in documents() {
        contract.expect(to, &of("createTimer").body(&document), 200);
    }
    contract.expect(to, &of("putNamedTimer"), 200);
    let act = contract.example("actOnNamedTimer", &[]).with(&tokens.client);
    contract.expect(to, &act, 200);
    let list = of("listTimers");
    contract.expect(to, &list, 200);
    let page = contract.expect(to, &query(&list, "limit=2"), 200).json();
    let cursor = page["cursor"].as_str().expect("there are more");
    contract.expect(to, &query(&list, &format!("limit=2&cursor={cursor}")), 200);
    contract.expect(to, &query(&list, "tag=CALL&state=armed&due-before=P1D&due-after=0"), 200);
    for wrong in ["limit=0", "limits=1", "state=x", "cursor=x", "tag=", "tag=a&tag=a"] {
        contract.refused(to, &query(&list, wrong), 400);
    }
    let count = of("countTimers");
    for asked in ["histogram=true", "histogram=false"] {
        contract.expect(to, &query(&count, asked), 200);
    }
    contract.refused(to, &query(&count, "histogram=x"), 400);
    let delete = of("deleteTimers");
    contract.refused(to, &delete, 400);
    contract.refused(to, &query(&delete, "all=true"), 400);
    let job = contract.expect(to, &query(&delete, "tag=CALL&due-before=P1D"), 202).location();
    contract.expect(to, &of("listJobs"), 200);
    let of_job = |operation: &str, job: &str| {
        contract.example(operation, &[("job", job)]).with(&tokens.client)
    };
    let job = id_of(&job);
    until("the job to end", PATIENCE, || {
        let told = contract.expect(to, &of_job("getJob", &job), 200).json();
        (told["state"] == "done").then_some(())
    });
    contract.expect(to, &of_job("stopJob", &job), 200);
    for operation in ["getJob", "stopJob"] {
        contract.refused(to, &of_job(operation, "00000000000000aa"), 404);
        contract.refused(to, &of_job(operation, "x"), 404);
    }
}

/// A timer that is given up at once: nobody listens where it goes.
pub fn hopeless() -> String {
    json!({
        "timing": {"interval": 0},
        "callback": {
            "http": {"uri": "http://127.0.0.1:9/x", "opaque": "any text"},
            "retry": {"max-attempts": 1},
        },
        "statistics": {"tag-info": [{"type": "LOST"}]},
    })
    .to_string()
}

pub fn dead_letters(contract: &Contract) {
    let tokens = Tokens::make();
    let node = Node::start(&tokens.config());
    let to = node.address;
    let of = |operation: &str| contract.example(operation, &[]).with(&tokens.client);
    let create = of("createTimer").body(&hopeless());
    let id = id_of(&contract.expect(to, &create, 200).location());
    contract.expect(to, &create.clone().with("Idempotency-Key: lost"), 200);
    let letter =
        |operation: &str, id: &str| contract.example(operation, &[("id", id)]).with(&tokens.client);
    let await_letter = |id: &str| {
        until("a dead letter", PATIENCE, || {
            (contract.ask(to, &letter("getDeadLetter", id)).status == 200).then_some(())
        });
    };
    await_letter(&id);
    let list = of("listDeadLetters");
    let page = until("both", PATIENCE, || {
        let page = contract.expect(to, &query(&list, "tag=LOST&reason=attempts"), 200).json();
        (page["dead-letters"].as_array().map(Vec::len) == Some(2)).then_some(page)
    });
    for one in page["dead-letters"].as_array().expect("a list") {
        let id = id_of(one["location"].as_str().expect("text"));
        contract.expect(to, &letter("getDeadLetter", &id), 200);
    }
    contract.expect(to, &query(&of("listTimers"), "state=dead-letter"), 200);
    contract.expect(to, &query(&list, "limit=1"), 200);
    contract.expect(to, &letter("replayDeadLetter", &id), 200);
    await_letter(&id);
    contract.expect(to, &letter("deleteDeadLetter", &id), 200);
    contract.expect(to, &query(&of("replayDeadLetters"), "limit=1"), 200);
    contract.expect(to, &of("deleteDeadLetters"), 200);
    for operation in ["getDeadLetter", "replayDeadLetter", "deleteDeadLetter"] {
        contract.refused(to, &letter(operation, UNKNOWN), 404);
        contract.refused(to, &letter(operation, "none"), 404);
    }
    for operation in ["listDeadLetters", "replayDeadLetters", "deleteDeadLetters"] {
        contract.refused(to, &query(&of(operation), "state=armed"), 400);
    }
}
