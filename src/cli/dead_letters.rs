//! `chronos dead-letters`: pops that were given up.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ending::{Ending, NotDone, end};
use super::exit::{EXIT_FAILURE, EXIT_USAGE};
use super::pages::{Gathered, ITEMS_MAX, gather, next_cursor};
use super::service::{Service, ServiceFlags, encoded, query};
use super::shown::{clean, lines_of, table, word_of};
use super::terminal::failed;
use crate::control::http_client::HttpRequest;

const EXAMPLES: &str = "\
Examples:
  chronos dead-letters list --reason attempts --limit 20
  chronos dead-letters show 687ebc01f9400001-2-0000801000840080
  chronos dead-letters replay 687ebc01f9400001-2-0000801000840080
  chronos dead-letters replay --host 10.0.0.1:8080     when the server is well again
  chronos dead-letters delete --all --json

CHRONOS_TOKEN has the token where one is needed; without it the admin API is asked.

Exit codes:
    0  done
    1  refused, not there, or no answer; replay: some of them could not be replayed
    2  wrong command line";

/// Look at pops that were given up, try them again, delete them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DeadLettersFlags {
    #[command(subcommand)]
    command: LettersCommand,

    #[command(flatten)]
    service: ServiceFlags,
}

#[derive(Debug, Subcommand)]
enum LettersCommand {
    /// List dead letters
    List {
        #[command(flatten)]
        filter: LetterFilter,

        /// Most dead letters to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=ITEMS_MAX))]
        limit: u64,
    },
    /// Show one
    Show {
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Try pops again
    Replay(UseFlags),
    /// Delete dead letters
    Delete(UseFlags),
}

#[derive(Clone, Debug, Args)]
struct LetterFilter {
    /// With this statistics tag
    #[arg(long)]
    tag: Option<String>,

    /// With this host of the callback URI, with or without its port
    #[arg(long)]
    host: Option<String>,

    /// attempts, age or denied
    #[arg(long)]
    reason: Option<String>,
}

impl LetterFilter {
    fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("tag", self.tag.clone()),
            ("host", self.host.clone()),
            ("reason", self.reason.clone()),
        ]
    }
}

/// Which dead letters.
#[derive(Debug, Args)]
struct UseFlags {
    #[arg(value_name = "ID", conflicts_with_all = ["tag", "host", "reason", "all"])]
    id: Option<String>,

    #[command(flatten)]
    filter: LetterFilter,

    /// All of them
    #[arg(long, conflicts_with_all = ["tag", "host", "reason"])]
    all: bool,
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &DeadLettersFlags) -> u8 {
    let service = match Service::new(&flags.service) {
        Ok(service) => service,
        Err(reason) => return failed(flags.service.json, &reason, EXIT_USAGE),
    };
    let result = match &flags.command {
        LettersCommand::List { filter, limit } => list(&service, filter, *limit),
        LettersCommand::Show { id } => show(&service, id),
        LettersCommand::Replay(which) => put_to_use(&service, which, Use::Replay),
        LettersCommand::Delete(which) => put_to_use(&service, which, Use::Delete),
    };
    end(flags.service.json, result)
}

fn path_of(id: &str) -> String {
    let bare = ["/timers/", "/dead-letters/"].iter().find_map(|before| id.strip_prefix(before));
    format!("/dead-letters/{}", encoded(bare.unwrap_or(id)))
}

fn list(service: &Service, filter: &LetterFilter, limit: u64) -> Result<Ending, NotDone> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let place = ("/dead-letters", "dead-letters");
    let found = gather(service, service.door_of_lists(), place, &filter.parameters(), limit)?;
    let head = ["ID", "GIVEN UP", "REASON", "ATTEMPTS", "STATUS", "URI"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(found.items.iter().map(row_of));
    let text = if found.items.is_empty() { "no dead letters\n".into() } else { table(&rows) };
    let mut notes = incomplete(&found);
    if found.has_more {
        notes.push(format!("there are more: raise --limit above {limit}, or filter"));
    }
    Ok(Ending { notes, ..Ending::done(text, found.document("dead-letters")) })
}

fn incomplete(found: &Gathered) -> Vec<String> {
    found.incomplete.iter().map(|told| format!("incomplete: {}", clean(told))).collect()
}

fn row_of(letter: &Value) -> Vec<String> {
    let known = &letter["dead-letter"];
    let location = letter["location"].as_str().unwrap_or("-");
    let id = location.rsplit('/').next().unwrap_or(location);
    let cells = [
        &known["given-up-at"],
        &known["reason"],
        &known["attempts"],
        &known["status"],
        &letter["callback"]["http"]["uri"],
    ];
    [clean(id).into_owned()].into_iter().chain(cells.map(word_of)).collect()
}

fn show(service: &Service, id: &str) -> Result<Ending, NotDone> {
    let reply = service.ask(service.door_of_lists(), HttpRequest::bare("GET", &path_of(id)))?;
    let document = reply.having("dead-letter")?;
    Ok(Ending::done(lines_of(&document), document))
}

/// What is done with dead letters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Replay,
    Delete,
}

impl Use {
    fn word(self) -> &'static str {
        match self {
            Use::Replay => "replayed",
            Use::Delete => "deleted",
        }
    }
}

fn put_to_use(service: &Service, which: &UseFlags, wanted: Use) -> Result<Ending, NotDone> {
    let (door, word) = (service.door_of_lists(), wanted.word());
    if let Some(id) = &which.id {
        let (method, path) = match wanted {
            Use::Replay => ("POST", path_of(id) + "/replay"),
            Use::Delete => ("DELETE", path_of(id)),
        };
        service.ask(door, HttpRequest::bare(method, &path))?.needed_location()?;
        let document = json!({ word: 1, "refused": 0, "incomplete": [] });
        return Ok(Ending::done(format!("{word}\n"), document));
    }
    let filter = which.filter.parameters();
    if !which.all && filter.iter().all(|(_, value)| value.is_none()) {
        let told = "expected an ID, a filter such as --host, or --all";
        return Err(NotDone::Usage(told.into()));
    }
    let (method, path) = match wanted {
        Use::Replay => ("POST", "/dead-letters/replay"),
        Use::Delete => ("DELETE", "/dead-letters"),
    };
    let (mut done, mut refused) = (0_u64, 0_u64);
    let mut cursor: Option<String> = None;
    let mut told = Gathered::default();
    loop {
        let mut parameters = filter.clone();
        parameters.extend([("limit", Some("1000".to_owned())), ("cursor", cursor.clone())]);
        let path = format!("{path}?{}", query(&parameters));
        let page = service.ask(door, HttpRequest::bare(method, &path)).map_err(|error| {
            NotDone::Other(format!("{error}. Before that {done} were {word}; type it again"))
        })?;
        page.needed(word)?;
        let number = |name: &str| page.document[name].as_u64().unwrap_or(0);
        done = done.saturating_add(number(word));
        refused = refused.saturating_add(number("refused"));
        told.note_incomplete(&page.document);
        cursor = next_cursor(&page.document, cursor)?;
        if cursor.is_none() {
            break;
        }
    }
    let mut notes = incomplete(&told);
    if refused > 0 {
        notes.push(format!("{refused} were refused: type it again"));
    }
    let document = json!({ word: done, "refused": refused, "incomplete": told.incomplete });
    let code = if refused > 0 { EXIT_FAILURE } else { 0 };
    Ok(Ending { notes, code, ..Ending::done(format!("{done} {word}\n"), document) })
}
