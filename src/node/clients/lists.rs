//! What clients and nodes ask for in pages: lists of timers and of dead letters, and the page of
//! timers that a node is to hold.

use crate::base::time::Now;
use crate::core::Core;
use crate::core::internal_api::PageHead;
use crate::shard::effects::Requester;
use crate::wire::dead_letter::LetterUse;
use crate::wire::list_query::{ListQuery, is_of_nodes};
use crate::wire::request_head::Method;
use crate::wire::timer_path::TimerPath;

use crate::node::clients::answers::Persistence;
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::{Caller, NODES_ONLY, Served, Service};

/// Why nobody gets a list who cannot show a token.
const NEEDS_TOKENS: &str = "lists show every timer, so they need a token, and this node has none \
    configured: set auth.tokens_file, or ask the admin listener";

/// A GET of the collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paged {
    /// A node asks which timers it is to hold.
    OfNode(PageHead),
    /// A client asks for a list, with this query.
    List(Box<str>),
    /// A client asks for a list of dead letters, with this query, and wants this done with them.
    Letters(LetterUse, Box<str>),
}

impl Paged {
    /// What the head of a GET of the collection asks for; `None`: it is another request.
    pub fn of(line: &RequestLine, query: Option<&str>, head: &[u8]) -> Option<Box<Self>> {
        let query = query.unwrap_or("");
        let letters = |wanted| Some(Box::new(Self::Letters(wanted, query.into())));
        match (line.path, line.method) {
            (TimerPath::Collection, Method::Get) => {}
            (TimerPath::DeadLetters, Method::Get) => return letters(LetterUse::Show),
            (TimerPath::DeadLetters, Method::Delete) => return letters(LetterUse::Delete),
            (TimerPath::Replays, Method::Post) => return letters(LetterUse::Replay),
            _ => return None,
        }
        Some(Box::new(match is_of_nodes(query) {
            true => Self::OfNode(PageHead::of(query, head)),
            false => Self::List(query.into()),
        }))
    }
}

impl Service {
    /// Takes a GET of the collection. Appends to `out` as [`Service::serve`] does.
    pub fn paged(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        paged: &Paged,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Served {
        let query = match paged {
            Paged::OfNode(head) => {
                return self.page((now, core), (from, caller), head, persistence, out);
            }
            Paged::List(query) => ListQuery::read(query, now.wall),
            Paged::Letters(wanted, query) => ListQuery::read_letters(query, *wanted, now.wall),
        };
        let begun =
            self.may_list(caller).and_then(|()| query.map_err(|error| (400, error.to_string())));
        let begun = begun.map(|query| core.list(now, from, query));
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
