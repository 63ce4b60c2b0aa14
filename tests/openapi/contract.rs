//! The contract: docs/openapi as data, and what it says of an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use kit::documents::read;
use serde_json::{Map, Value, json};
use yaml_rust2::{Yaml, YamlLoader};

use super::reasons::Reasons;
use super::wire::{Answer, Ask, connect, exchange};

/// The two files. A reference leads from the second to the first.
pub const FILES: [&str; 2] = ["public.yaml", "admin.yaml"];
/// Methods that a path item may have.
pub const METHODS: [&str; 7] = ["get", "put", "post", "delete", "patch", "options", "head"];
/// Headers of HTTP itself, which describe a connection, a body or a moment.
const FRAMING: [&str; 7] = [
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "date",
    "cache-control",
    "x-content-type-options",
];

/// An operation of a file.
#[derive(Clone, Debug)]
pub struct Operation {
    pub id: String,
    pub method: String,
    /// The path with its parameters in braces.
    pub path: String,
    /// The object of the file.
    pub value: Value,
    /// Its parameters, and those of its path, resolved.
    pub parameters: Vec<Value>,
}

/// A file of the contract, and what answers have shown of it.
pub struct Contract {
    pub file: &'static str,
    /// Both files below `docs`, with references that lead there.
    root: Arc<Value>,
    pub operations: Vec<Operation>,
    /// `None`: reasons of this file are not listed.
    reasons: Option<Reasons>,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
    seen: Mutex<BTreeSet<String>>,
    findings: Mutex<BTreeSet<String>>,
}

/// Both files as one document, with references that lead into it.
pub fn load() -> Value {
    let mut docs = Map::new();
    for file in FILES {
        let text = read(&format!("docs/openapi/{file}"));
        docs.insert(file.to_owned(), parse(file, &text));
    }
    json!({ "docs": docs })
}

fn parse(file: &str, text: &str) -> Value {
    let mut documents = YamlLoader::load_from_str(text).unwrap_or_else(|e| panic!("{file}: {e}"));
    assert_eq!(documents.len(), 1, "{file}");
    let mut value = json_of(&documents.remove(0));
    lead_into(file, &mut value);
    value
}

fn json_of(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Real(text) => text.parse::<f64>().expect("a number").into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Boolean(is) => (*is).into(),
        Yaml::Array(items) => items.iter().map(json_of).collect(),
        Yaml::Hash(members) => {
            let member = |(key, value): (&Yaml, &Yaml)| {
                let key = key.as_str().unwrap_or_else(|| panic!("{key:?}: expected a text"));
                (key.to_owned(), json_of(value))
            };
            Value::Object(members.iter().map(member).collect())
        }
        Yaml::Null => Value::Null,
        other => panic!("{other:?}: expected what JSON has"),
    }
}

/// Makes references absolute: `#/docs/<file>/...`.
fn lead_into(file: &str, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| lead_into(file, item)),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(target) if name == "$ref" => {
                        let (of, pointer) = target.split_once('#').expect("a place in a file");
                        let of = if of.is_empty() { file } else { of };
                        *target = format!("#/docs/{of}{pointer}");
                    }
                    other => lead_into(file, other),
                }
            }
        }
        _ => {}
    }
}

/// What a reference leads to, and the value itself if it is none.
pub fn resolve<'v>(root: &'v Value, value: &'v Value) -> &'v Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(target) => {
            let found = root.pointer(&target[1..]);
            resolve(root, found.unwrap_or_else(|| panic!("{target} leads nowhere")))
        }
        None => value,
    }
}

/// A validator of a schema that stands in the document.
pub fn validator(root: &Value, schema: &Value) -> Result<Validator, String> {
    let whole = json!({ "docs": root["docs"], "allOf": [schema] });
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options.build(&whole).map_err(|error| error.to_string())
}

/// The members of an object, none if it is none.
pub fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Contract {
    pub fn of(root: Value, file: &'static str) -> Contract {
        let document = &root["docs"][file];
        let mut operations = Vec::new();
        for (path, item) in members(&document["paths"]) {
            for method in METHODS.iter().filter(|method| item.get(**method).is_some()) {
                let value = item[*method].clone();
                let own = items(&value["parameters"]).iter();
                let all = own.chain(items(&item["parameters"]));
                let parameters = all.map(|one| resolve(&root, one).clone()).collect();
                let id = value["operationId"].as_str().expect("a name").to_owned();
                let (method, path) = (method.to_string(), path.clone());
                operations.push(Operation { id, method, path, value, parameters });
            }
        }
        let reasons = document.get("x-reasons").map(Reasons::of);
        let (validators, seen, findings) = Default::default();
        let root = Arc::new(root);
        Contract { file, root, operations, reasons, validators, seen, findings }
    }

    pub fn operation(&self, id: &str) -> &Operation {
        let found = self.operations.iter().find(|operation| operation.id == id);
        found.unwrap_or_else(|| panic!("{}: no operation {id}", self.file))
    }

    /// The example of an operation as a request. `own` has values of parameters of the path.
    pub fn example(&self, id: &str, own: &[(&str, &str)]) -> Ask {
        let operation = self.operation(id);
        let mut target = operation.path.clone();
        let mut headers = String::new();
        for parameter in &operation.parameters {
            let name = parameter["name"].as_str().expect("a name");
            let given = own.iter().find(|one| one.0 == name).map(|one| one.1.to_owned());
            let text = parameter["example"].as_str().map(str::to_owned);
            let value = || given.or(text).unwrap_or_else(|| panic!("{id}: no example of {name}"));
            match parameter["in"].as_str() {
                Some("path") => target = target.replace(&format!("{{{name}}}"), &value()),
                Some("header") if parameter["required"] == true => {
                    headers.push_str(&format!("{name}: {}\r\n", value()));
                }
                _ => {}
            }
        }
        let body = resolve(&self.root, &operation.value["requestBody"]);
        let body = members(&body["content"]).next().map(|(_, media)| match &media["example"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let (method, body) = (operation.method.to_uppercase(), body.unwrap_or_default());
        Ask { method, target, headers, body }
    }

    /// Asks a node, and judges its answer.
    pub fn ask(&self, to: std::net::SocketAddr, ask: &Ask) -> Answer {
        self.ask_in(to, ask, ask.text().as_bytes())
    }

    /// Does the same with other bytes for the request.
    pub fn ask_in(&self, to: std::net::SocketAddr, ask: &Ask, bytes: &[u8]) -> Answer {
        let answer = exchange(&mut connect(to), bytes, ask.method == "HEAD");
        self.judge(ask, &answer);
        answer
    }

    /// Asks and expects this status.
    pub fn expect(&self, to: std::net::SocketAddr, ask: &Ask, status: u16) -> Answer {
        let answer = self.ask(to, ask);
        if answer.status != status {
            self.note(format!("{} {}: {status} expected: {answer:?}", ask.method, ask.target));
        }
        answer
    }

    /// Expects this status twice: with the error as text, and as a problem.
    pub fn refused(&self, to: std::net::SocketAddr, ask: &Ask, status: u16) {
        self.expect(to, ask, status);
        self.expect(to, &ask.clone().with("Accept: application/problem+json"), status);
    }

    /// Takes an answer into account.
    pub fn judge(&self, ask: &Ask, answer: &Answer) {
        if let Err(finding) = self.judged(ask, answer) {
            self.note(format!("{} {}: {finding}: {answer:?}", ask.method, ask.target));
        }
    }

    pub fn note(&self, finding: String) {
        let finding = finding.chars().take(1_200).collect();
        self.findings.lock().expect("nobody panics with it").insert(finding);
    }

    /// All that was found so far.
    pub fn findings(&self) -> Vec<String> {
        self.findings.lock().expect("nobody panics with it").iter().cloned().collect()
    }

    /// Judges an answer: it is documented, and as documented.
    pub fn judged(&self, ask: &Ask, answer: &Answer) -> Result<(), String> {
        let path = ask.target.split('?').next().unwrap_or_default();
        let method = ask.method.to_lowercase();
        let is_head = method == "head";
        let asked = if is_head { "get" } else { &*method };
        let on_path: Vec<&Operation> = self.best_on(path);
        let operation = on_path.iter().find(|one| one.method == asked).copied();
        let status = answer.status;
        let (name, response) = match operation {
            Some(operation) => {
                let responses = &operation.value["responses"];
                let known = responses.get(status.to_string());
                let known = known.ok_or_else(|| format!("{} has no {status}", operation.id))?;
                (operation.id.as_str(), known)
            }
            None => {
                let name = match status {
                    404 if on_path.is_empty() => "NotFound",
                    405 if !on_path.is_empty() => "MethodNotAllowed",
                    // Who may not ask at all is not told what is there.
                    401 => "Unauthorized",
                    403 => "Forbidden",
                    _ => return Err("no operation".to_owned()),
                };
                (name, &self.root["docs"][self.file]["components"]["responses"][name])
            }
        };
        let response = resolve(&self.root, response);
        self.judge_headers(name, status, response, answer)?;
        if is_head {
            return if answer.body.is_empty() { Ok(()) } else { Err("HEAD has a body".into()) };
        }
        self.judge_body(name, status, response, answer)?;
        self.judge_reason(operation, answer)
    }

    /// The operations of the path that fits best: of two that fit, the one with fewer parameters.
    fn best_on(&self, path: &str) -> Vec<&Operation> {
        let fits = |operation: &&Operation| {
            let (own, asked) = (operation.path.split('/'), path.split('/'));
            let is_alike = own.clone().count() == asked.clone().count();
            is_alike && own.zip(asked).all(|(own, asked)| own.starts_with('{') || own == asked)
        };
        let parameters = |operation: &Operation| operation.path.matches('{').count();
        let fitting: Vec<&Operation> = self.operations.iter().filter(fits).collect();
        let least = fitting.iter().map(|one| parameters(one)).min();
        fitting.into_iter().filter(|one| Some(parameters(one)) == least).collect()
    }

    fn judge_headers(
        &self,
        name: &str,
        status: u16,
        response: &Value,
        answer: &Answer,
    ) -> Result<(), String> {
        let told = &response["headers"];
        for (header, _) in &answer.headers {
            let is_known = members(told).any(|(known, _)| known.eq_ignore_ascii_case(header));
            if !is_known && !FRAMING.contains(&&*header.to_lowercase()) {
                return Err(format!("{name} {status} does not tell of the header {header}"));
            }
        }
        for (header, told) in members(told) {
            let told = resolve(&self.root, told);
            let Some(value) = answer.header(header) else {
                match told["required"] == true {
                    true => return Err(format!("{name} {status} lacks the header {header}")),
                    false => continue,
                }
            };
            let number = value.parse::<i64>().map(Value::from);
            let as_text = self.validate(&told["schema"], &value.into());
            if as_text.is_err() && number.is_ok() {
                self.validate(&told["schema"], &number.unwrap_or_default())?;
            } else {
                as_text.map_err(|error| format!("{header}: {error}"))?;
            }
            self.saw(format!("header {header} {status}"));
        }
        Ok(())
    }

    fn judge_body(
        &self,
        name: &str,
        status: u16,
        response: &Value,
        answer: &Answer,
    ) -> Result<(), String> {
        let content = &response["content"];
        let told = answer.header("Content-Type").unwrap_or_default();
        let media_type = told.split(';').next().unwrap_or_default();
        if content.is_null() {
            self.saw(format!("{name} {status} -"));
            return if answer.body.is_empty() { Ok(()) } else { Err("a body".to_owned()) };
        }
        let media = content.get(media_type);
        let media = media.ok_or_else(|| format!("{name} {status} has no {media_type:?}"))?;
        self.saw(format!("{name} {status} {media_type}"));
        let text = String::from_utf8(answer.body.clone()).map_err(|error| error.to_string())?;
        if let Some(line_schema) = media.get("x-line") {
            for line in text.lines() {
                let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
                self.validate(line_schema, &value)?;
                if let (Some(reasons), Some(reason)) = (&self.reasons, value["reason"].as_str()) {
                    let status = value["status"].as_u64().unwrap_or_default() as u16;
                    reasons.judge(None, status, reason)?;
                }
            }
        }
        let value = match media_type.ends_with("json") && media.get("x-line").is_none() {
            true => serde_json::from_str(&text).map_err(|error| error.to_string())?,
            false => Value::String(text),
        };
        if media_type == "application/problem+json" && value["status"] != status {
            return Err("the problem tells another status".to_owned());
        }
        self.validate(&media["schema"], &value)
    }

    /// Whether the reason is one that the operation tells of, where reasons are listed.
    fn judge_reason(&self, operation: Option<&Operation>, answer: &Answer) -> Result<(), String> {
        let Some(reasons) = &self.reasons else { return Ok(()) };
        let Some(reason) = answer.header("Reason") else { return Ok(()) };
        let told = match answer.header("Content-Type") {
            Some("application/problem+json") => {
                answer.json()["detail"].as_str().unwrap_or_default().to_owned()
            }
            _ => answer.text(),
        };
        if told != reason {
            return Err("header and body tell two reasons".to_owned());
        }
        let groups = operation.map(|one| items(&one.value["x-reasons"]));
        reasons.judge(groups, answer.status, reason)
    }

    /// Whether a value is what a schema of the document says.
    pub fn validate(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let mut known = self.validators.lock().expect("nobody panics with it");
        let found = known.entry(schema.to_string()).or_insert_with(|| {
            Arc::new(validator(&self.root, schema).unwrap_or_else(|e| panic!("{schema}: {e}")))
        });
        let validator = Arc::clone(found);
        drop(known);
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("at `{}`: {error}", error.instance_path()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    fn saw(&self, what: String) {
        self.seen.lock().expect("nobody panics with it").insert(what);
    }

    /// What is documented and no answer has shown.
    pub fn unseen(&self) -> Vec<String> {
        let mut told = BTreeSet::new();
        for operation in &self.operations {
            for (status, response) in members(&operation.value["responses"]) {
                if operation.value["x-shown-by"].get(status).is_some() {
                    continue;
                }
                let response = resolve(&self.root, response);
                let types: Vec<&String> = members(&response["content"]).map(|one| one.0).collect();
                let none = types.is_empty().then_some("-");
                for media_type in types.into_iter().map(String::as_str).chain(none) {
                    told.insert(format!("{} {status} {media_type}", operation.id));
                }
                for (header, value) in members(&response["headers"]) {
                    if resolve(&self.root, value).get("x-shown-by").is_none() {
                        told.insert(format!("header {header} {status}"));
                    }
                }
            }
        }
        for name in ["NotFound", "MethodNotAllowed"] {
            let status = if name == "NotFound" { 404 } else { 405 };
            for media_type in ["text/plain", "application/problem+json"] {
                told.insert(format!("{name} {status} {media_type}"));
            }
        }
        let seen = self.seen.lock().expect("nobody panics with it");
        told.difference(&seen).map(|one| format!("nothing has shown: {one}")).collect()
    }

    /// Names of tests of other suites that show what no request of this suite does.
    pub fn shown_elsewhere(&self) -> Vec<String> {
        let mut names = Vec::new();
        let responses = self.operations.iter().map(|one| &one.value["x-shown-by"]);
        names.extend(responses.flat_map(members).map(|(_, name)| name.clone()));
        let headers = &self.root["docs"][self.file]["components"]["headers"];
        names.extend(members(headers).filter_map(|(_, one)| one.get("x-shown-by").cloned()));
        names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
    }
}
