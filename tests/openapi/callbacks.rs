//! What the node sends to callback servers, against the callbacks of the contract.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kit::callbacks::{Callback, Reaction, serve};
use kit::children;
use kit::until::{PATIENCE, until};
use serde_json::{Value, json};

use super::contract::{Contract, items, load, members, resolve};
use super::node::{Node, Tokens};
use super::wire::Ask;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// Headers of HTTP itself.
const FRAMING: [&str; 4] = ["host", "content-type", "content-length", "date"];
/// The paths at the server, and the callback that goes there.
const PLACES: [(&str, &str); 4] = [
    ("/pop", "{$request.body#/callback/http/uri}"),
    ("/letter", "{$request.body#/callback/dead-letter/uri}"),
    ("/done", "{$request.body#/callback/on-success}"),
    ("/failed", "{$request.body#/callback/on-failure}"),
];

/// Judges a callback. Returns the headers that it has shown.
fn judge(contract: &Contract, root: &Value, callback: &Callback) -> BTreeSet<String> {
    let place = PLACES.iter().find(|place| callback.path.starts_with(place.0));
    let place = place.unwrap_or_else(|| panic!("who called {}?", callback.path)).1;
    let told = &root["docs"]["public.yaml"]["components"]["callbacks"]["Pop"][place]["post"];
    let parameters: Vec<&Value> =
        items(&told["parameters"]).iter().map(|one| resolve(root, one)).collect();
    let mut shown = BTreeSet::new();
    let lines = callback.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    for (name, value) in lines {
        let is_named = |one: &&&Value| {
            one["name"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(name))
        };
        let Some(parameter) = parameters.iter().find(is_named) else {
            let is_known = FRAMING.contains(&&*name.to_lowercase());
            assert!(is_known, "{place} does not tell of {name}: {}", callback.head);
            continue;
        };
        let value = value.parse::<i64>().map_or_else(|_| value.into(), Value::from);
        let judged = contract.validate(&parameter["schema"], &value);
        judged.unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
        shown.insert(format!("{place} {}", name.to_lowercase()));
    }
    for parameter in parameters.iter().filter(|one| one["required"] == true) {
        let name = parameter["name"].as_str().expect("a name").to_lowercase();
        assert!(shown.contains(&format!("{place} {name}")), "{place} lacks {name}");
    }
    let content = &told["requestBody"]["content"];
    if let Some(media) = content.get("application/json") {
        let body = serde_json::from_slice(&callback.body).expect("JSON");
        contract.validate(&media["schema"], &body).unwrap_or_else(|e| panic!("{place}: {e}"));
    }
    shown
}

/// All headers of all callbacks.
fn told(root: &Value) -> BTreeSet<String> {
    let callbacks = &root["docs"]["public.yaml"]["components"]["callbacks"]["Pop"];
    let names = members(callbacks).flat_map(|(place, told)| {
        let parameters = items(&told["post"]["parameters"]).iter();
        parameters.map(move |one| {
            let name = resolve(root, one)["name"].as_str().expect("a name").to_lowercase();
            format!("{place} {name}")
        })
    });
    names.collect()
}

fn timer(uri: impl Fn(&str) -> String, pop: &str, letter: Option<&str>) -> String {
    let mut callback = json!({
        "http": {"uri": uri(pop), "opaque": "any text"},
        "retry": {"max-attempts": 1},
        "on-success": uri("/done"), "on-failure": uri("/failed"),
    });
    if let Some(letter) = letter {
        callback["dead-letter"] = json!({"uri": uri(letter)});
    }
    json!({"timing": {"interval": 0}, "callback": callback}).to_string()
}

#[test]
fn callbacks_are_what_the_contract_says() {
    let root = load();
    let contract = Contract::of(root.clone(), "public.yaml");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let anywhere = "127.0.0.1:0".parse().expect("an address");
    let (address, _) = serve(anywhere, move |callback| {
        all.lock().expect("nobody panics with it").push(callback.clone());
        Reaction::Status(if callback.path == "/pop/fails" { 500 } else { 200 })
    });
    let tokens = Tokens::make();
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = folder.path().join("secrets");
    std::fs::write(&secrets, SECRET).expect("written");
    let closed = children::command("chmod").arg("600").arg(&secrets).status();
    assert!(closed.expect("it runs").success());
    let config = format!("[callbacks]\nsigning_secrets_file = {secrets:?}\n{}", tokens.config());
    let node = Node::start(&config);
    let uri = |path: &str| format!("http://{address}{path}");
    let create = contract.example("createTimer", &[]).with(&tokens.client);
    let made = |pop: &str, letter: Option<&str>| {
        let document = timer(uri, pop, letter);
        contract.expect(node.address, &create.clone().body(&document), 200).location()
    };
    made("/pop/good", None);
    made("/pop/fails", Some("/letter"));
    let lost = made("/pop/fails", None).replace("/timers/", "/dead-letters/");
    until("a dead letter", PATIENCE, || {
        let ask = Ask::new("GET", &lost).with(&tokens.client);
        (contract.ask(node.address, &ask).status == 200).then_some(())
    });
    let replay = Ask::new("POST", &format!("{lost}/replay")).with(&tokens.client);
    contract.expect(node.address, &replay, 200);
    let mut shown = BTreeSet::new();
    until("all kinds of callbacks", PATIENCE, || {
        let callbacks = std::mem::take(&mut *seen.lock().expect("nobody panics with it"));
        callbacks.iter().for_each(|one| shown.extend(judge(&contract, &root, one)));
        (shown == told(&root)).then_some(())
    });
    kit::documents::expect_none(&contract.findings());
}
