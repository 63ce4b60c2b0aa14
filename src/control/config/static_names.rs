//! The file of names of the original service (`--dns-config-file`, docs/compat/timer-service.md
//! §2): which name is looked up in the place of another one, and which names have addresses.
//!
//! A file that cannot be read or is no such document changes nothing. An entry that makes no sense
//! is left out, and the others are taken.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::Value;

use super::error::CONFIG_BYTES_MAX;
use super::regular_file;
use super::value::quote;
use crate::node::resolver::statics::StaticNames;

/// Most sentences about one file. One more counts those that were left out.
const TOLD_MAX: usize = 8;

/// Where the names come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticNamesFile {
    /// The file; empty: there is none.
    pub path: String,
    /// Whether the operator named the file. A file that nobody named need not exist.
    pub is_named: bool,
}

impl StaticNamesFile {
    /// Reads the file. `None`: the names stay as they are. Adds what the operator should hear.
    pub(super) fn read(&self, told: &mut Vec<String>) -> Option<StaticNames> {
        let file = &self.path;
        let bytes = match regular_file::read(Path::new(file), CONFIG_BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound && !self.is_named => return None,
            Err(error) => {
                told.push(format!("{file}: cannot be read: {error}; the names stay as they are"));
                return None;
            }
            Ok(bytes) => bytes,
        };
        match parse(&bytes) {
            Ok((names, mut wrong)) => {
                let left_out = wrong.len().saturating_sub(TOLD_MAX);
                wrong.truncate(TOLD_MAX);
                told.extend(wrong.iter().map(|wrong| format!("{file}: {wrong} (ignored)")));
                if left_out > 0 {
                    told.push(format!("{file}: {left_out} further entries are ignored"));
                }
                Some(names)
            }
            Err(reason) => {
                told.push(format!("{file}: {reason}; the names stay as they are"));
                None
            }
        }
    }
}

/// Returns the names, and what is wrong with single entries.
fn parse(bytes: &[u8]) -> Result<(StaticNames, Vec<String>), String> {
    let document: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("not valid JSON: {error}"))?;
    let Some(hosts) = document.get("hostnames").and_then(Value::as_array) else {
        return Err("expected an object with an array \"hostnames\"".into());
    };
    let (mut names, mut wrong) = (StaticNames::default(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for (number, host) in hosts.iter().enumerate() {
        let name = host.get("name").and_then(Value::as_str).filter(|name| is_name(name));
        let records = host.get("records").and_then(Value::as_array);
        let Some((name, records)) = name.zip(records) else {
            wrong
                .push(format!("hostnames[{number}]: expected a \"name\" and an array \"records\""));
            continue;
        };
        if !seen.insert(name) {
            wrong.push(format!("hostnames[{number}]: {} stands twice", quote(name)));
            continue;
        }
        let (mut has_target, mut has_addresses) = (false, false);
        for record in records {
            let taken = match record.get("rrtype").and_then(Value::as_str) {
                Some("CNAME") if !has_target => {
                    has_target = true;
                    take_target(&mut names, name, record)
                }
                Some("A") if !has_addresses => {
                    has_addresses = true;
                    take_addresses(&mut names, name, record)
                }
                Some("CNAME" | "A") => Err("one record of each type counts"),
                _ => Err("expected \"rrtype\": \"CNAME\" or \"A\""),
            };
            if let Err(reason) = taken {
                wrong.push(format!("{}: {reason}", quote(name)));
            }
        }
    }
    Ok((names, wrong))
}

fn take_target(names: &mut StaticNames, name: &str, record: &Value) -> Result<(), &'static str> {
    let target = record.get("target").and_then(Value::as_str).filter(|target| is_name(target));
    names.set_target(name, target.ok_or("expected a \"target\" that is a host name")?);
    Ok(())
}

fn take_addresses(names: &mut StaticNames, name: &str, record: &Value) -> Result<(), &'static str> {
    const EXPECTED: &str = "expected \"targets\": an array of IPv4 addresses";
    let targets = record.get("targets").and_then(Value::as_array).ok_or(EXPECTED)?;
    let address = |target: &Value| -> Option<IpAddr> {
        Some(IpAddr::V4(target.as_str()?.parse::<Ipv4Addr>().ok()?))
    };
    let addresses: Option<Vec<IpAddr>> = targets.iter().map(address).collect();
    let addresses = addresses.filter(|addresses| !addresses.is_empty()).ok_or(EXPECTED)?;
    names.set_addresses(name, addresses);
    Ok(())
}

/// Whether the system's resolver may be asked for the text.
fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<StaticNames>, Vec<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dns.json");
        std::fs::write(&path, text).expect("written");
        let file = StaticNamesFile { path: path.display().to_string(), is_named: true };
        let mut told = Vec::new();
        (file.read(&mut told), told)
    }

    #[test]
    fn files_as_deployments_have_them() {
        let mut expected = StaticNames::default();
        assert_eq!(read("{\n  \"hostnames\": [\n  ]\n}"), (Some(expected.clone()), vec![]));
        expected.set_target("sprout.example", "sprout.site1.example");
        expected.set_addresses("ralf.example", vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
        let text = r#"{"comment": "not read", "hostnames": [
            {"name": "sprout.example",
             "records": [{"rrtype": "CNAME", "target": "sprout.site1.example"}]},
            {"name": "ralf.example",
             "records": [{"rrtype": "A", "targets": ["10.0.0.1", "10.0.0.2"]}]}]}"#;
        assert_eq!(read(text), (Some(expected), vec![]));
    }

    #[test]
    fn what_makes_no_sense_is_left_out_and_told() {
        let entries = [
            r#"{"records": []}"#,
            r#"{"name": "a.example"}"#,
            r#"{"name": "b.example", "records": [{"rrtype": "SRV", "target": "x"}]}"#,
            r#"{"name": "c.example", "records": [{"rrtype": "CNAME", "target": ""}]}"#,
            r#"{"name": "d.example", "records": [{"rrtype": "A", "targets": ["::1"]}]}"#,
            r#"{"name": "e.example", "records": [{"rrtype": "CNAME", "target": "one"},
                {"rrtype": "CNAME", "target": "two"}]}"#,
            r#"{"name": "e.example", "records": [{"rrtype": "CNAME", "target": "three"}]}"#,
        ];
        let (names, told) = read(&format!("{{\"hostnames\": [{}]}}", entries.join(",")));
        let mut expected = StaticNames::default();
        expected.set_target("e.example", "one");
        assert_eq!(names, Some(expected));
        assert_eq!(told.len(), 7, "{told:?}");
        let many = vec!["0"; 100].join(",");
        assert_eq!(read(&format!("{{\"hostnames\": [{many}]}}")).1.len(), TOLD_MAX + 1);
    }

    #[test]
    fn what_is_no_such_file_changes_nothing() {
        for text in ["", "{", "[]", "{}", r#"{"hostnames": {}}"#] {
            let (names, told) = read(text);
            assert!(names.is_none() && told.len() == 1, "{text}: {told:?}");
        }
        let absent = |is_named| {
            let mut told = Vec::new();
            let file = StaticNamesFile { path: "/no/such/file".into(), is_named };
            (file.read(&mut told), told.len())
        };
        assert_eq!((absent(true), absent(false)), ((None, 1), (None, 0)));
    }
}
