//! The files of the contract as documents: they are whole, their examples are what their schemas
//! say, and the pages for people show what the schemas say.

use std::collections::BTreeSet;

use kit::documents::{expect_none, read};
use serde_json::{Value, json};

use super::contract::{Contract, FILES, METHODS, items, load, members, resolve, validator};
use super::reasons::{Reasons, listed};
use super::wire::{Answer, Ask};

/// Calls `look` with every object of a document and the path to it.
fn walk(value: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            look(path, value);
            members.iter().for_each(|(name, one)| walk(one, &format!("{path}/{name}"), look));
        }
        Value::Array(items) => {
            for (place, one) in items.iter().enumerate() {
                walk(one, &format!("{path}/{place}"), look);
            }
        }
        _ => {}
    }
}

/// What is wrong with both files.
fn mistakes(root: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    walk(root, "", &mut |path, object| {
        if let Some(target) = object.get("$ref").and_then(Value::as_str)
            && root.pointer(target.trim_start_matches('#')).is_none()
        {
            findings.push(format!("{path}: {target} leads nowhere"));
        }
    });
    if !findings.is_empty() {
        return findings;
    }
    for file in FILES {
        findings.extend(mistakes_of(root, file));
    }
    walk(root, "", &mut |path, object| findings.extend(wrong_examples(root, path, object)));
    findings
}

/// What is wrong with the operations of a file.
fn mistakes_of(root: &Value, file: &'static str) -> Vec<String> {
    let mut findings = Vec::new();
    let document = &root["docs"][file];
    if document["openapi"] != "3.1.0" {
        findings.push(format!("{file}: no OpenAPI 3.1"));
    }
    let tags = items(&document["tags"]).iter().map(|tag| tag["name"].clone());
    let tags: Vec<Value> = tags.collect();
    let mut ids = BTreeSet::new();
    for (path, item) in members(&document["paths"]) {
        for (name, operation) in members(item) {
            if name == "parameters" {
                continue;
            }
            let id = operation["operationId"].as_str().unwrap_or_default();
            let place = format!("{file}: {name} {path}");
            if !METHODS.contains(&&**name) {
                findings.push(format!("{place}: no method"));
            }
            if id.is_empty() || !ids.insert(id.to_owned()) {
                findings.push(format!("{place}: operationId {id:?} comes twice, or not at all"));
            }
            if !items(&operation["tags"]).iter().all(|tag| tags.contains(tag)) {
                findings.push(format!("{place}: a tag that nobody describes"));
            }
            let all = items(&operation["parameters"]).iter().chain(items(&item["parameters"]));
            let all: Vec<&Value> = all.map(|one| resolve(root, one)).collect();
            let in_path = all.iter().filter(|one| one["in"] == "path");
            let named: BTreeSet<&str> = in_path.filter_map(|one| one["name"].as_str()).collect();
            let braced = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
            if braced.collect::<BTreeSet<&str>>() != named {
                findings.push(format!("{place}: other parameters than the path has"));
            }
            for (status, response) in members(&operation["responses"]) {
                if resolve(root, response)["description"].as_str().is_none_or(str::is_empty) {
                    findings.push(format!("{place}: {status} without a description"));
                }
            }
        }
    }
    findings
}

/// Examples beside a schema that are not what it says.
fn wrong_examples(root: &Value, path: &str, object: &Value) -> Vec<String> {
    let Some(schema) = object.get("schema").or_else(|| object.get("x-line")) else {
        return Vec::new();
    };
    let validator = match validator(root, schema) {
        Ok(validator) => validator,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let more = members(&object["examples"]).map(|(_, one)| &resolve(root, one)["value"]);
    let examples: Vec<&Value> = object.get("example").into_iter().chain(more).collect();
    let is_media = path.contains("/content/");
    if is_media && examples.is_empty() {
        return vec![format!("{path}: no example")];
    }
    let errors = examples.iter().flat_map(|example| validator.iter_errors(example));
    errors.map(|error| format!("{path}: an example, {error}")).collect()
}

#[test]
fn the_files_are_whole_and_their_examples_are_what_they_say() {
    expect_none(&mistakes(&load()));
}

#[test]
fn mistakes_are_found() {
    let plant = |change: fn(&mut Value)| {
        let mut root = load();
        change(&mut root["docs"]["public.yaml"]);
        mistakes(&root).len()
    };
    assert_eq!(plant(|_| {}), 0, "nothing is planted");
    let dead = |doc: &mut Value| {
        let nobody = json!({"$ref": "#/docs/public.yaml/components/responses/Nobody"});
        doc["paths"]["/ping"]["get"]["responses"]["200"] = nobody;
    };
    assert!(plant(dead) > 0, "a reference that leads nowhere");
    let twice = |doc: &mut Value| doc["paths"]["/ping"]["get"]["operationId"] = "getTimer".into();
    assert!(plant(twice) > 0, "an operationId that comes twice");
    let lazy =
        |doc: &mut Value| doc["components"]["examples"]["Job"]["value"]["state"] = "lazy".into();
    assert!(plant(lazy) > 0, "an example that is not what its schema says");
    let elsewhere =
        |doc: &mut Value| doc["components"]["headers"]["Location"]["example"] = "/x".into();
    assert!(plant(elsewhere) > 0, "the same of a header");
    let unnamed = |doc: &mut Value| doc["paths"]["/jobs/{job}"]["parameters"] = json!([]);
    assert!(plant(unnamed) > 0, "a parameter that nobody tells of");
}

#[test]
fn an_answer_that_is_not_as_documented_is_found() {
    let contract = Contract::of(load(), "public.yaml");
    let ask = Ask::new("GET", "/jobs");
    let answer = |status: u16, header: (&str, &str), body: &str| {
        let typed = ("Content-Type".to_owned(), "application/json".to_owned());
        let headers = vec![typed, (header.0.to_owned(), header.1.to_owned())];
        Answer { status, headers, body: body.as_bytes().to_vec() }
    };
    let usual = ("Content-Length", "11");
    assert_eq!(contract.judged(&ask, &answer(200, usual, "{\"jobs\":[]}")), Ok(()));
    for (status, header, body) in [
        (200, usual, "{\"jobs\":[],\"more\":1}"),
        (200, usual, "{\"jobs\":[{\"id\":\"x\"}]}"),
        (200, usual, "[]"),
        (200, usual, "{"),
        (201, usual, "{\"jobs\":[]}"),
        (200, ("X-Secret", "1"), "{\"jobs\":[]}"),
        (404, usual, "{\"jobs\":[]}"),
    ] {
        let judged = contract.judged(&ask, &answer(status, header, body));
        assert!(judged.is_err(), "{status} {header:?} {body}");
    }
    let refusal = |reason: &str, text: &str| Answer {
        status: 403,
        headers: vec![
            ("Content-Type".to_owned(), "text/plain".to_owned()),
            ("Reason".to_owned(), reason.to_owned()),
        ],
        body: text.as_bytes().to_vec(),
    };
    let told = "lists show every timer, so they need a token, and this node has none configured: \
                set auth.tokens_file, or ask the admin listener";
    assert_eq!(contract.judged(&ask, &refusal(told, told)), Ok(()));
    assert!(contract.judged(&ask, &refusal("because", "because")).is_err(), "no such reason");
    assert!(contract.judged(&ask, &refusal(told, "another")).is_err(), "two reasons");
    assert!(contract.unseen().len() > 100, "what nobody has asked for is not shown");
}

#[test]
fn reasons_are_those_of_the_page_for_people() {
    let root = load();
    let told = Reasons::of(&root["docs"]["public.yaml"]["x-reasons"]);
    let page = listed(&read("docs/api.md"));
    assert!(page.len() > 120, "{}", page.len());
    assert_eq!(told.all(), page);
    let contract = Contract::of(root, "public.yaml");
    let groups = told.groups();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for operation in &contract.operations {
        for group in items(&operation.value["x-line-reasons"]) {
            used.insert(group.as_str().expect("a name"));
        }
        for group in items(&operation.value["x-reasons"]) {
            let group = group.as_str().expect("a name");
            let status = groups.get(group).unwrap_or_else(|| panic!("no group {group}"));
            let responses = &operation.value["responses"];
            assert!(responses.get(status.to_string()).is_some(), "{}: {group}", operation.id);
            used.insert(group);
        }
    }
    // Of a method that no operation has, and of copies that nodes send.
    used.extend(["method", "node-version"]);
    assert_eq!(groups.keys().copied().collect::<BTreeSet<&str>>(), used);
}

/// What a block of JSON in a page is: how it begins, and the schema.
const SHOWN: [(&str, &str, &str); 16] = [
    ("{\"timing\"", "public.yaml", "TimerDocument"),
    ("{\"timers\":[", "public.yaml", "TimerPage"),
    ("{\"timers\":31", "public.yaml", "Counts"),
    ("{\"jobs\":", "public.yaml", "Jobs"),
    ("{\"location\":", "public.yaml", "LineResult"),
    ("{\"status\":", "public.yaml", "LineResult"),
    ("{\"type\":\"urn", "public.yaml", "Problem"),
    ("{\"id\":\"687", "public.yaml", "Report"),
    ("{\"callback\":{\"http\":{\"opaque\"", "public.yaml", "Timer"),
    ("{\"callback\":{\"http\":{\"uri\"", "public.yaml", "TimerDocument"),
    ("{\"callback\": {\"http\": {\"opaque\"", "", ""),
    ("{\"first\":", "", ""),
    ("{\"destination\":", "admin.yaml", "Destination"),
    ("{\"max-in-flight\"", "admin.yaml", "Rule"),
    ("{\"paused\"", "admin.yaml", "Rule"),
    ("{\"tag\":\"CALL\"", "admin.yaml", "Tag"),
];

/// The blocks of JSON of a page, and the bodies of its commands.
fn shown(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for flag in ["-d '", "--data '"] {
        let bodies = page.split(flag).skip(1).map(|rest| rest.split('\'').next());
        found.extend(bodies.flatten().map(|body| body.replace("\n", "")));
    }
    let lines: Vec<&str> = page.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if !line.starts_with("    {\"") {
            continue;
        }
        let mut text = String::new();
        for line in lines[number..].iter().take_while(|line| line.starts_with("    ")) {
            text.push_str(line.trim());
            if serde_json::from_str::<Value>(&text).is_ok() {
                break;
            }
        }
        found.push(text);
    }
    found
}

#[test]
fn what_the_pages_for_people_show_is_what_the_schemas_say() {
    let contract = Contract::of(load(), "public.yaml");
    let mut count = 0;
    for page in ["README.md", "docs/api.md", "docs/operations.md"] {
        for text in shown(&read(page)) {
            let known = SHOWN.iter().find(|known| text.starts_with(known.0));
            let (_, file, name) = known.unwrap_or_else(|| panic!("{page}: what is {text}?"));
            // A document that refuses is shown with its refusal.
            if name.is_empty() || text.contains("\"interval\":-1") {
                continue;
            }
            let value: Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let schema = json!({"$ref": format!("#/docs/{file}/components/schemas/{name}")});
            let judged = contract.validate(&schema, &value);
            judged.unwrap_or_else(|error| panic!("{page}: {text}: {error}"));
            count += 1;
        }
    }
    assert!(count > 25, "{count} documents are found");
}
