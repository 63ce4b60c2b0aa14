//! The table of keys against the settings: every field has its key, every key its field.

use super::keys::{KEYS, SECTIONS};
use super::settings::Config;
use super::value::{Value, ValueKind};
use crate::base::limits::{CallbackLimits, ClusterLimits, DeadLetterLimits, Limits};

/// Returns the field names in the `Debug` text of a plain struct.
fn fields(debug: &str) -> Vec<String> {
    let lines = debug.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(name, _)| name.trim().to_string()).collect()
}

#[test]
fn every_limit_has_a_key_and_every_key_a_limit() {
    let of = |section| -> Vec<String> {
        KEYS.iter().filter(|k| k.section == section).map(|k| k.name.to_string()).collect()
    };
    assert_eq!(of("limits"), fields(&format!("{:#?}", Limits::default())));
    let letters = fields(&format!("{:#?}", DeadLetterLimits::default()));
    assert_eq!(of("dead_letters"), letters);
    let mut callbacks = fields(&format!("{:#?}", CallbackLimits::default()));
    // As many as there are files for: that is no key.
    callbacks.retain(|name| name != "places_per_core_max");
    callbacks.retain(|name| name != "dead_letters" && !letters.contains(name));
    callbacks.extend(
        ["allow", "deny", "destinations", "ca", "client_cert", "client_key"]
            .into_iter()
            .chain(["signing_secrets_file"])
            .map(str::to_owned),
    );
    assert_eq!(of("callbacks"), callbacks);
    let cluster = of("cluster");
    let first = cluster.iter().position(|name| name == "heartbeat_ms").expect("a limit");
    let limits = fields(&format!("{:#?}", ClusterLimits::default()));
    assert_eq!(cluster[first..][..limits.len()], limits);
}

#[test]
fn bounds_and_defaults_of_every_key_reach_its_own_field() {
    let defaults = Config::default();
    for key in &KEYS {
        let default = (key.get)(&defaults);
        let ValueKind::Integer { min, max, .. } = key.kind else { continue };
        assert!((min..=max).contains(&default.integer()), "{key}: default out of range");
        for number in [min, max] {
            let mut config = Config::default();
            (key.set)(&mut config, &Value::Integer(number));
            assert_eq!((key.get)(&config), Value::Integer(number), "{key}");
            for other in KEYS.iter().filter(|other| other.variable() != key.variable()) {
                assert_eq!((other.get)(&config), (other.get)(&defaults), "{key} moved {other}");
            }
        }
    }
}

#[test]
fn names_are_unique_and_sections_known() {
    for (index, key) in KEYS.iter().enumerate() {
        assert!(SECTIONS.iter().any(|section| section.name == key.section), "{key}");
        let twin = KEYS[..index].iter().find(|other| other.variable() == key.variable());
        assert!(twin.is_none(), "{key} stands in the table twice");
        assert!(key.help.ends_with('.'), "{key}: help is not a sentence");
    }
}
