//! Lists that come page by page, gathered until there are as many items as are wanted.

use serde_json::{Value, json};

use super::service::{Door, Failure, Service, query};
use crate::control::http_client::HttpRequest;

/// Most items of a page.
const PAGE_MAX: usize = 1_000;
/// Most items of a list, so that a list fits into memory.
pub(super) const ITEMS_MAX: u64 = 100_000;

/// What the pages of a list had.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) items: Vec<Value>,
    /// Sentences about nodes that could not be asked, each once.
    pub(super) incomplete: Vec<String>,
    /// Whether the list goes on.
    pub(super) has_more: bool,
}

impl Gathered {
    /// Takes the sentences of a page.
    pub(super) fn note_incomplete(&mut self, page: &Value) {
        for sentence in page["incomplete"].as_array().into_iter().flatten() {
            let sentence = sentence.as_str().unwrap_or("a node was not asked").to_owned();
            if !self.incomplete.contains(&sentence) {
                self.incomplete.push(sentence);
            }
        }
    }

    /// The document that `--json` prints.
    pub(super) fn document(self, member: &str) -> Value {
        json!({
            member: self.items, "incomplete": self.incomplete, "has-more": self.has_more,
        })
    }
}

/// Asks for pages of `path` until there are `limit` items, which stand in `member` of each page.
pub(super) fn gather(
    service: &Service,
    door: Door,
    (path, member): (&str, &str),
    filter: &[(&str, Option<String>)],
    limit: usize,
) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    let mut cursor: Option<String> = None;
    loop {
        let wanted = (limit - gathered.items.len()).min(PAGE_MAX).to_string();
        let mut parameters = filter.to_vec();
        parameters.extend([("limit", Some(wanted)), ("cursor", cursor.clone())]);
        let path = format!("{path}?{}", query(&parameters));
        let reply = service.ask(door, HttpRequest::bare("GET", &path))?;
        let mut page = reply.having(member)?;
        gathered.note_incomplete(&page);
        let had = gathered.items.len();
        if let Some(Value::Array(items)) = page.get_mut(member).map(Value::take) {
            gathered.items.extend(items);
        }
        let has_grown = gathered.items.len() > had;
        cursor = next_cursor(&page, cursor.filter(|_| !has_grown))?;
        gathered.has_more = cursor.is_some();
        if cursor.is_none() || gathered.items.len() >= limit {
            gathered.items.truncate(limit);
            return Ok(gathered);
        }
    }
}

/// The cursor of a page. Error: it is the one that the page was asked for with, and so the list
/// would never end.
pub(super) fn next_cursor(page: &Value, before: Option<String>) -> Result<Option<String>, Failure> {
    let cursor = page["cursor"].as_str().map(str::to_owned);
    match cursor.is_some() && cursor == before {
        true => Err(Failure::Unanswered(
            "the node gives out the same cursor twice: expected the next one; ask another node"
                .into(),
        )),
        false => Ok(cursor),
    }
}
