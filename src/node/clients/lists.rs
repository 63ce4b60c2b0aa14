//! What clients and nodes ask for in pages: lists of timers and of dead letters, numbers, and the
//! page of timers that a node is to hold.

use crate::base::time::Now;
use crate::core::Core;
use crate::core::internal_api::PageHead;
use crate::core::lists::ListAsked;
use crate::shard::effects::Requester;
use crate::wire::dead_letter::LetterUse;
use crate::wire::list_query::{ListQuery, is_of_nodes, read_count_query};
use crate::wire::request_head::Method;
use crate::wire::timer_path::TimerPath;

use crate::node::clients::answers::Persistence;
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::{Caller, NODES_ONLY, Served, Service};

/// Why nobody gets a list who cannot show a token.
const NEEDS_TOKENS: &str = "lists show every timer, so they need a token, and this node has none \
    configured: set auth.tokens_file, or ask the admin listener";

/// A GET of the collection, or of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paged {
    /// A node asks which timers it is to hold.
    OfNode(PageHead),
    /// A client asks for a list, with this query.
    List(Box<str>),
    /// A client asks for numbers, with this query.
    Count(Box<str>),
    /// A client asks for a list of dead letters, with this query, and wants this done with them.
    Letters(LetterUse, Box<str>),
}

impl Paged {
    /// What the head of such a GET asks for; `None`: it is another request.
    pub fn of(line: &RequestLine, query: Option<&str>, head: &[u8]) -> Option<Box<Self>> {
        let is_create = line.method == Method::Post && line.path == TimerPath::Collection;
        if is_create {
            return None;
        }
        let query = query.unwrap_or("");
        let paged = match (line.path, line.method) {
            (TimerPath::Collection, Method::Get) if is_of_nodes(query) => {
                Self::OfNode(PageHead::of(query, head))
            }
            (TimerPath::Collection, Method::Get) => Self::List(query.into()),
            (TimerPath::Count, Method::Get) => Self::Count(query.into()),
            (TimerPath::DeadLetters, Method::Get) => Self::Letters(LetterUse::Show, query.into()),
            (TimerPath::DeadLetters, Method::Delete) => {
                Self::Letters(LetterUse::Delete, query.into())
            }
            (TimerPath::Replays, Method::Post) => Self::Letters(LetterUse::Replay, query.into()),
            _ => return None,
        };
        Some(Box::new(paged))
    }
}

impl Service {
    /// Takes such a GET. Appends to `out` as [`Service::serve`] does.
    pub fn paged(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        paged: &Paged,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Served {
        let read = match paged {
            Paged::OfNode(head) => {
                return self.page((now, core), (from, caller), head, persistence, out);
            }
            Paged::List(query) => ListQuery::read(query, now.wall).map(ListAsked::Page),
            Paged::Count(query) => {
                read_count_query(query).map(|has_spans| ListAsked::Count { has_spans })
            }
            Paged::Letters(wanted, query) => {
                ListQuery::read_letters(query, *wanted, now.wall).map(ListAsked::Page)
            }
        };
        let asked = self.may_list(caller);
        let asked = asked.and_then(|()| read.map_err(|error| (400, error.to_string())));
        let begun = asked.map(|asked| core.list(now, from, asked));
        let served = self.settle(begun, persistence, out);
        self.written += u64::from(served == Served::Written);
        served
    }

    /// Whether the caller may see all timers. That its token may has been looked at before.
    fn may_list(&self, caller: Caller<'_>) -> Result<(), (u16, String)> {
        if caller.is_node {
            return Err((403, NODES_ONLY.to_owned()));
        }
        match self.tokens {
            Some(_) => Ok(()),
            None => Err((403, NEEDS_TOKENS.to_owned())),
        }
    }
}
