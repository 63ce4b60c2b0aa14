//! What a running node says of itself and its peers: its alarms, in words.

use serde_json::Value;

use super::check::Check;
use crate::cli::admin_client::AdminClient;
use crate::cli::cluster;
use crate::cli::service::{Door, Service};
use crate::cli::shown::clean;
use crate::control::http_client::HttpRequest;

/// What to do about a node that does not tell its state.
const REMEDY: &str = "see whether the node runs, what its log says, and whether --admin, --ca and \
                      the token are those of its admin API";

/// Asks a node, and whether each member answers.
pub(super) fn checks(client: &AdminClient, admin: &str) -> Vec<Check> {
    let service = Service::of_operators(client, admin);
    let what = format!("node {}", clean(admin));
    let status = service.ask(Door::Operators, HttpRequest::bare("GET", "/status"));
    let status = match status.and_then(|reply| reply.having("state")) {
        Ok(status) => status,
        Err(error) => return vec![Check::fail(what, error.to_string(), REMEDY)],
    };
    let state = status["state"].as_str().unwrap_or("unknown");
    let told = format!("{}, version {}", clean(state), clean(text(&status["version"])));
    let mut checks = vec![match state {
        "serving" => Check::ok(&what, told),
        "left" => Check::warn(
            &what,
            format!("{told}: it was taken out of its cluster and refuses requests"),
            "stop it, or add it with chronos cluster join",
        ),
        _ => Check::fail(&what, told, "look at its log"),
    }];
    let told = service.ask(Door::Operators, HttpRequest::bare("GET", "/alarms"));
    match told.and_then(|reply| reply.having("alarms")) {
        Ok(document) => checks.extend(alarms(&what, &document)),
        Err(error) => {
            let found = format!("its alarms are not known: {error}");
            checks.push(Check::warn(
                &what,
                found,
                "a node of an older version has none: update it",
            ));
        }
    }
    if let Some(error) = status["cluster"]["reload_error"]["text"].as_str() {
        let found = format!("the last reload failed: {}", clean(error));
        checks.push(Check::fail(&what, found, "repair the file, then kill -HUP"));
    }
    checks.extend(members(client, admin));
    checks
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

/// The alarms of a document of /alarms; one line if there is none.
fn alarms(what: &str, document: &Value) -> Vec<Check> {
    let rung: Vec<Check> = document["alarms"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|alarm| {
            let word = |name: &str| clean(alarm[name].as_str().unwrap_or_default()).into_owned();
            let seconds = alarm["seconds"].as_u64().unwrap_or(0);
            let found = format!("{} (for {seconds} s): {}", word("what"), word("effect"));
            match alarm["severity"].as_str() {
                Some("warning") => Check::warn(what, found, word("remedy")),
                _ => Check::fail(what, found, word("remedy")),
            }
        })
        .collect();
    match rung.is_empty() {
        true => vec![Check::ok(what, "no alarm")],
        false => rung,
    }
}

fn members(client: &AdminClient, admin: &str) -> Vec<Check> {
    match cluster::members(client, admin) {
        Err(error) => vec![Check::fail("members", clean(&error), "start them")],
        Ok(members) if members.missing.is_empty() => {
            let count = members.answering.len();
            vec![Check::ok("members", format!("all answer ({count})"))]
        }
        Ok(members) => {
            let remedy = "start it, or set [cluster] admin_addresses";
            let missing = members.missing.iter();
            missing.map(|told| Check::fail("members", clean(told), remedy)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;
    use serde_json::json;

    #[test]
    fn what_rings_is_told_with_its_remedy() {
        let alarm = json!({ "severity": "critical", "what": "w\u{1b}", "effect": "e",
                            "remedy": "r", "seconds": 3 });
        let mild = json!({ "severity": "warning", "what": "w", "remedy": "r" });
        let rung = alarms("node", &json!({ "alarms": [alarm, mild] }));
        let verdicts: Vec<Verdict> = rung.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fail, Verdict::Warn]);
        assert_eq!((&*rung[0].found, &*rung[0].remedy), ("w\\u{1b} (for 3 s): e", "r"));
        assert_eq!(alarms("node", &json!({}))[0].verdict, Verdict::Ok);
    }
}
