//! `chronos timer list` and `count`, and the job that deletes what filters name.

use std::io::IsTerminal;

use clap::Args;
use serde_json::Value;

use crate::cli::ending::{Ending, NotDone};
use crate::cli::pages::{ITEMS_MAX, gather};
use crate::cli::service::{Service, query};
use crate::cli::shown::{clean, cut, lines_on, table, word_of};
use crate::cli::timer::document::duration;
use crate::control::http_client::HttpRequest;

/// Which timers.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct FilterFlags {
    /// With this statistics tag
    #[arg(long)]
    tag: Option<String>,

    /// With this host of the callback URI, with or without its port
    #[arg(long)]
    host: Option<String>,

    /// Whose name begins so
    #[arg(long, value_name = "PREFIX")]
    name_prefix: Option<String>,

    /// Whose next pop is due before: a duration from now, or a time as 2026-12-01T09:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    due_before: Option<String>,

    /// Whose next pop is due then or later
    #[arg(long, value_name = "WHEN", value_parser = when)]
    due_after: Option<String>,
}

impl FilterFlags {
    pub(super) fn is_empty(&self) -> bool {
        self.parameters().iter().all(|(_, value)| value.is_none())
    }

    fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("tag", self.tag.clone()),
            ("host", self.host.clone()),
            ("name-prefix", self.name_prefix.clone()),
            ("due-before", self.due_before.clone()),
            ("due-after", self.due_after.clone()),
        ]
    }
}

/// Reads a duration from now, or a time, which the node judges.
fn when(text: &str) -> Result<String, String> {
    if text.contains('T') && !text.starts_with('P') {
        return Ok(text.to_owned());
    }
    duration(text).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[derive(Debug, Args)]
pub(super) struct ListFlags {
    #[command(flatten)]
    filter: FilterFlags,

    /// In this state: armed, ready, in-flight, backing-off, handed-over, paused or dead-letter
    #[arg(long)]
    state: Option<String>,

    /// Most timers to show
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=ITEMS_MAX))]
    limit: u64,
}

#[derive(Debug, Args)]
pub(super) struct CountFlags {
    /// Leave out when pops are due, which takes a walk over all timers
    #[arg(long)]
    no_histogram: bool,
}

/// Lists timers.
pub(super) fn list(service: &Service, flags: &ListFlags) -> Result<Ending, NotDone> {
    let mut parameters = flags.filter.parameters();
    parameters.push(("state", flags.state.clone()));
    let door = service.door_of_lists();
    let limit = usize::try_from(flags.limit).unwrap_or(usize::MAX);
    let found = gather(service, door, ("/timers", "timers"), &parameters, limit)?;
    let mut rows = vec![["ID", "STATE", "DUE", "NAME", "URI"].map(str::to_owned).to_vec()];
    let is_terminal = std::io::stdout().is_terminal();
    rows.extend(found.items.iter().map(|timer| row_of(timer, is_terminal)));
    let mut notes: Vec<String> =
        found.incomplete.iter().map(|told| format!("incomplete: {}", clean(told))).collect();
    if found.has_more {
        notes.push(format!("there are more: raise --limit above {limit}, or filter"));
    }
    let text = if found.items.is_empty() { "no timers\n".into() } else { table(&rows) };
    Ok(Ending { notes, ..Ending::done(text, found.document("timers")) })
}

fn row_of(timer: &Value, is_terminal: bool) -> Vec<String> {
    let location = timer["location"].as_str().unwrap_or("-");
    let id = location.strip_prefix("/timers/").unwrap_or(location);
    let name = cut(word_of(&timer["name"]), is_terminal);
    let [state, due, uri] =
        [&timer["state"], &timer["due-at"], &timer["callback"]["http"]["uri"]].map(word_of);
    vec![clean(id).into_owned(), state, due, name, uri]
}

/// Counts timers.
pub(super) fn count(service: &Service, flags: &CountFlags) -> Result<Ending, NotDone> {
    let path = match flags.no_histogram {
        true => "/timers/count?histogram=false",
        false => "/timers/count",
    };
    let document = service.ask(service.door_of_lists(), HttpRequest::bare("GET", path))?;
    let document = document.having("timers")?;
    let text = lines_on(std::io::stdout().is_terminal(), &document);
    Ok(Ending::done(text, document))
}

/// Orders the job that deletes the timers of a filter.
pub(super) fn delete(service: &Service, filter: &FilterFlags) -> Result<Ending, NotDone> {
    let path = format!("/timers?{}", query(&filter.parameters()));
    let reply = service.ask(service.door_of_lists(), HttpRequest::bare("DELETE", &path))?;
    let id = word_of(reply.needed("id")?);
    let text = format!("job {id} deletes them: chronos jobs wait {id}\n");
    Ok(Ending::done(text, reply.document))
}
