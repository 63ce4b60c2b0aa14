//! What the configuration says that operators look at: limits, the journal, and every key with its
//! value and where the value comes from (`/config`).

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answers::{json_line, json_text};
use super::node_view::NodeView;
use super::status::histogram_of_all;
use crate::control::config::keys::{KEYS, SECTIONS};
use crate::control::config::settings::Config;
use crate::control::shared::Shared;
use crate::journal::writer::Sizes;
use crate::node::meters::{CoreMeters, Meter};

/// What the node was started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub timers_max: u64,
    pub store_bytes_max: u64,
    /// The data directory and the mode of the journal; `None`: there is none.
    pub journal: Option<(String, String)>,
}

/// The document of `/config`, made when the configuration is read.
pub(crate) type SharedConfiguration = Shared<Value>;

impl Facts {
    pub(crate) fn of(config: &Config) -> Self {
        let node = &config.node;
        let directory = node.journal.directory();
        Self {
            timers_max: node.limits.timers_max,
            store_bytes_max: node.limits.store_bytes_max,
            journal: directory.map(|directory| {
                (directory.display().to_string(), format!("{:?}", node.journal.mode).to_lowercase())
            }),
        }
    }
}

/// Renders every key. Secrets that stand where the name of their file belongs are not shown.
pub(crate) fn configuration(config: &Config) -> Value {
    let defaults = Config::default();
    let sections: Vec<Value> = SECTIONS
        .iter()
        .map(|section| {
            let keys = KEYS.iter().filter(|key| key.section == section.name);
            let keys: Vec<Value> = keys
                .map(|key| {
                    let (value, default) = ((key.get)(config), (key.get)(&defaults));
                    json!({
                        "name": key.name,
                        "value": value.to_string(),
                        "default": default.to_string(),
                        "origin": config.origin(key.section, key.name).to_string(),
                        "help": key.help,
                    })
                })
                .collect();
            json!({ "name": section.name, "help": section.help, "keys": keys })
        })
        .collect();
    json!({ "version": env!("CARGO_PKG_VERSION"), "sections": sections })
}

/// Answers the effective configuration.
pub(super) async fn config(State(configuration): State<SharedConfiguration>) -> Response {
    json_text(&configuration.get())
}

/// Answers how the journal is: its size, what of it is live, and how long the disk takes.
pub(super) async fn journal(
    State(view): State<NodeView>,
    State(facts): State<Arc<Facts>>,
) -> Response {
    let meters = &view.meters;
    let sum = |of: fn(&CoreMeters) -> &Meter| meters.iter().map(|core| of(core).get()).sum::<u64>();
    let Some((directory, mode)) = &facts.journal else {
        return json_line(&json!({ "mode": "off" }));
    };
    json_line(&json!({
        "mode": mode,
        "directory": directory,
        "segments": sum(|core| &core.journal_segments),
        "segment_bytes": Sizes::PRODUCTION.segment_bytes(),
        "live_bytes": sum(|core| &core.journal_live_bytes),
        "written_bytes": sum(|core| &core.journal_written_bytes),
        "writes": sum(|core| &core.journal_writes),
        "entries": sum(|core| &core.journal_entries),
        "lag": sum(|core| &core.journal_lag),
        "waiting": sum(|core| &core.journal_waiting),
        "is_full": sum(|core| &core.journal_full) > 0,
        "is_stalled": sum(|core| &core.journal_stalled) > 0,
        "is_away": sum(|core| &core.journal_away) > 0,
        "stalls": sum(|core| &core.journal_stalls),
        "damaged": sum(|core| &core.journal_damaged),
        "is_recovering": sum(|core| &core.journal_recovering) > 0,
        "recovered_bytes": sum(|core| &core.journal_recovered_bytes),
        "recovery_bytes": sum(|core| &core.journal_recovery_bytes),
        "recovered_timers": sum(|core| &core.journal_recovered_timers),
        "sync": histogram_of_all(meters, |core| &core.journal_sync),
    }))
}

/// Answers how timestamps are: who is master, until when, and how far they are from the clock.
pub(super) async fn timestamp(State(view): State<NodeView>) -> Response {
    match &view.timestamps {
        Some(board) => json_line(&board.render(crate::ring::now())),
        None => json_line(&json!({ "role": "off" })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_told_with_its_origin() {
        let told = configuration(&Config::default());
        let sections = told["sections"].as_array().expect("a list");
        let keys = sections.iter().flat_map(|section| section["keys"].as_array());
        assert_eq!(keys.flatten().count(), KEYS.len());
        let node =
            &sections.iter().find(|section| section["name"] == "node").expect("there")["keys"];
        assert_eq!(node[0]["name"], "listen");
        assert_eq!(node[0]["origin"], "default");
        assert_eq!(node[0]["value"], node[0]["default"]);
    }
}
