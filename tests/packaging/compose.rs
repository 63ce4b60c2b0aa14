//! The compose file.

use std::path::Path;

use kit::documents::root;
use serde_json::Value;

use crate::yaml::{document_of, list, members, text, texts};

pub const FILE: &str = "packaging/docker/compose.yaml";
const FOLDER: &str = "packaging/docker";

/// The services that are nodes, with their names.
pub fn nodes(document: &Value) -> Vec<(&str, &Value)> {
    let all = members(document, "services").iter().map(|(name, one)| (name.as_str(), one));
    all.filter(|(_, service)| text(service, "image") == "chronos").collect()
}

pub fn rights() {
    let document = document_of(FILE);
    let nodes = nodes(&document);
    assert_eq!(nodes.len(), 3);
    for (name, node) in nodes {
        assert_eq!(node["read_only"], true, "{name}");
        assert_eq!(texts(node, "cap_drop"), ["ALL"], "{name}");
        let user = text(node, "user").split(':').next().and_then(|id| id.parse::<u32>().ok());
        assert!(user.is_some_and(|id| id >= 1000), "{name}");
        let options = texts(node, "security_opt");
        assert!(options.contains(&"no-new-privileges:true"), "{name}");
        let profile = options.iter().find_map(|one| one.strip_prefix("seccomp:"));
        let profile = root().join(FOLDER).join(profile.expect("a seccomp profile"));
        let profile = std::fs::read_to_string(profile).expect("the profile is there");
        assert!(profile.contains("io_uring_setup"), "{name}");
        assert_eq!(text(node, "stop_grace_period"), "15s", "{name}: time for an orderly stop");
        for limit in ["nofile", "memlock", "core"] {
            assert!(node["ulimits"].get(limit).is_some(), "{name}: {limit}");
        }
    }
    for (name, service) in members(&document, "services") {
        let image = text(service, "image");
        let is_fixed = image.contains(':') && !image.ends_with(":latest");
        assert!(is_fixed || service.get("build").is_some(), "{name}: {image} is of no version");
        for port in texts(service, "ports") {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port} is open to the network");
        }
    }
}

pub fn references() {
    let document = document_of(FILE);
    let volumes = members(&document, "volumes");
    for (name, service) in members(&document, "services") {
        for volume in texts(service, "volumes") {
            let place = volume.split(':').next().expect("a word");
            let is_there = match place.starts_with('.') {
                true => Path::new(&root().join(FOLDER).join(place)).exists(),
                false => volumes.contains_key(place),
            };
            assert!(is_there, "{name}: {place}");
        }
        if let Some(build) = service.get("build") {
            let context = root().join(FOLDER).join(text(build, "context"));
            assert!(context.join(text(build, "dockerfile")).exists(), "{name}");
            assert!(context.join("Cargo.toml").exists(), "{name}");
        }
    }
    // Each node is asked for its figures.
    let prometheus = document_of("packaging/docker/prometheus.yml");
    let job = &list(&prometheus, "scrape_configs")[0];
    assert_eq!(text(job, "job_name"), "chronos", "the alarms ask for this job");
    let mut targets = texts(&list(job, "static_configs")[0], "targets");
    let environment = |node: &Value| text(node, "environment/CHRONOS_ADMIN_LISTEN").to_owned();
    let mut admins: Vec<String> = nodes(&document).iter().map(|node| environment(node.1)).collect();
    targets.sort_unstable();
    admins.sort_unstable();
    assert_eq!(targets, admins);
    assert_eq!(texts(&prometheus, "rule_files"), ["/etc/prometheus/chronos.rules.yml"]);
}
