//! Documents of YAML as values of JSON, with the merges (`<<: *name`) of Compose done.

use kit::documents::read;
use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// The documents of a file of the repository. Panics with the place of a mistake.
pub fn documents_of(name: &str) -> Vec<Value> {
    let found = YamlLoader::load_from_str(&read(name));
    let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
    found.iter().map(|document| value(name, document)).collect()
}

/// The one document of a file.
pub fn document_of(name: &str) -> Value {
    let mut found = documents_of(name);
    assert_eq!(found.len(), 1, "{name}");
    found.remove(0)
}

fn value(name: &str, yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(is) => (*is).into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(text) => text.parse::<f64>().expect("a number").into(),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Array(list) => list.iter().map(|each| value(name, each)).collect(),
        Yaml::Hash(members) => {
            let mut object = Map::new();
            for (key, member) in members {
                let key = key.as_str().unwrap_or_else(|| panic!("{name}: a key: {key:?}"));
                let member = value(name, member);
                if key == "<<" {
                    let merged = member.as_object().expect("an object is merged").clone();
                    merged.into_iter().for_each(|(key, member)| {
                        object.entry(key).or_insert(member);
                    });
                } else {
                    object.insert(key.to_owned(), member);
                }
            }
            Value::Object(object)
        }
        Yaml::Alias(_) | Yaml::BadValue => panic!("{name}: {yaml:?}"),
    }
}

/// The text at a path of members, such as `metadata/name`.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let found = value.pointer(&format!("/{path}"));
    found.and_then(Value::as_str).unwrap_or_else(|| panic!("no text {path} in {value}"))
}

/// The list at a path of members. One that is not there is empty.
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    let found = value.pointer(&format!("/{path}")).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub fn texts<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    let text = |each: &'a Value| each.as_str().unwrap_or_else(|| panic!("{path}: {each}"));
    list(value, path).iter().map(text).collect()
}

/// The members of the object at a path.
pub fn members<'a>(value: &'a Value, path: &str) -> &'a Map<String, Value> {
    let found = value.pointer(&format!("/{path}")).and_then(Value::as_object);
    found.unwrap_or_else(|| panic!("no object {path} in {value}"))
}
