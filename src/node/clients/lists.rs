//! What clients and nodes ask of all timers: lists of timers and of dead letters, numbers, the page
//! of timers that a node is to hold; and jobs that delete timers.

// Reads the wall clock: told 3.

use crate::base::jobs::digest;
use crate::base::time::Now;
use crate::core::Core;
use crate::core::internal_api::PageHead;
use crate::core::jobs::JOB_PAGE;
use crate::core::lists::ListAsked;
use crate::shard::effects::Requester;
use crate::wire::dead_letter::LetterUse;
use crate::wire::jobs::JobsAsk;
use crate::wire::list_query::{ListQuery, is_of_nodes, read_count_query};
use crate::wire::request_head::Method;
use crate::wire::timer_path::TimerPath;

use crate::node::clients::answers::Persistence;
use crate::node::clients::caller::Caller;
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::{NODES_ONLY, Served, Service};

/// Why nobody deletes many timers at once who cannot show a token.
const DELETES_NEED_TOKENS: &str = "jobs delete any timer, so they need a token, and this node has \
    none configured: set auth.tokens_file, or ask the admin listener";
/// Why nobody gets a list who cannot show a token.
const NEEDS_TOKENS: &str = "lists show every timer, so they need a token, and this node has none \
    configured: set auth.tokens_file, or ask the admin listener";

/// A request for the collection, its numbers, or jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paged {
    /// A node asks which timers it is to hold.
    OfNode(PageHead),
    /// A client asks for a list, with this query, and with a token of a name with this digest.
    List(Box<str>, u64),
    /// A client asks for numbers, with this query.
    Count(Box<str>),
    /// A client asks for a list of dead letters, with this query, and wants this done with them.
    /// The list counts for the token of a name with this digest.
    Letters(LetterUse, Box<str>, u64),
    /// A client orders a job, with this query, and with the token of this name.
    Delete(Box<str>, Box<str>),
    /// A client asks for jobs, or orders one to stop.
    Jobs(JobsAsk),
}

impl Paged {
    /// What the head of such a request asks for; `None`: it is another request. `token` is the name
    /// of the request's token, or empty.
    pub fn of(
        line: &RequestLine,
        query: Option<&str>,
        head: &[u8],
        token: &str,
    ) -> Option<Box<Self>> {
        let is_paged = match line.method {
            Method::Get | Method::Delete => true,
            Method::Post => line.path == TimerPath::Replays,
            _ => false,
        };
        if !is_paged {
            return None;
        }
        let (query, by) = (query.unwrap_or(""), || digest(token));
        let paged = match (line.method, line.path) {
            (Method::Get, TimerPath::Collection) if is_of_nodes(query) => {
                Self::OfNode(PageHead::of(query, head))
            }
            (Method::Get, TimerPath::Collection) => Self::List(query.into(), by()),
            (Method::Get, TimerPath::Count) => Self::Count(query.into()),
            (Method::Get, TimerPath::DeadLetters) => {
                Self::Letters(LetterUse::Show, query.into(), by())
            }
            (Method::Delete, TimerPath::DeadLetters) => {
                Self::Letters(LetterUse::Delete, query.into(), by())
            }
            (Method::Post, TimerPath::Replays) => {
                Self::Letters(LetterUse::Replay, query.into(), by())
            }
            (Method::Delete, TimerPath::Collection) => Self::Delete(query.into(), token.into()),
            (Method::Get, TimerPath::Jobs) => Self::Jobs(JobsAsk { job: None, is_stop: false }),
            (Method::Get | Method::Delete, TimerPath::Job(id)) => {
                let is_stop = line.method == Method::Delete;
                Self::Jobs(JobsAsk { job: Some(id), is_stop })
            }
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
        if let Paged::Delete(..) = paged
            && let Some(quota) = caller.quota
            && self.is_beyond_rate(now, quota, persistence, out)
        {
            self.written += 1;
            return Served::Written;
        }
        let read = match paged {
            Paged::OfNode(head) => {
                return self.page((now, core), (from, caller), head, persistence, out);
            }
            Paged::List(query, by) => {
                ListQuery::read(query, now.wall).map(|query| ListAsked::Page(query, *by))
            }
            Paged::Count(query) => {
                read_count_query(query).map(|has_spans| ListAsked::Count { has_spans })
            }
            Paged::Letters(wanted, query, by) => ListQuery::read_letters(query, *wanted, now.wall)
                .map(|query| ListAsked::Page(query, *by)),
            Paged::Delete(query, token) => ListQuery::read_delete(query, JOB_PAGE, now.wall)
                .map(|query| ListAsked::Delete(query, token.clone())),
            Paged::Jobs(ask) => Ok(ListAsked::Jobs(*ask)),
        };
        let needs =
            if matches!(paged, Paged::Delete(..)) { DELETES_NEED_TOKENS } else { NEEDS_TOKENS };
        let asked = self.may_list(caller, needs);
        let asked = asked.and_then(|()| match caller.addressed {
            Some(Err(reason)) => Err((400, reason.clone())),
            _ => read.map_err(|error| (400, error.to_string())),
        });
        let begun = asked.map(|asked| core.list(now, from, asked));
        let served = self.settle(begun, persistence, out);
        self.written += u64::from(served == Served::Written);
        served
    }

    /// Whether the caller may see all timers. That its token may has been looked at before.
    fn may_list(&self, caller: Caller<'_>, needs: &str) -> Result<(), (u16, String)> {
        if caller.is_node {
            return Err((403, NODES_ONLY.to_owned()));
        }
        match self.tokens {
            Some(_) => Ok(()),
            None => Err((403, needs.to_owned())),
        }
    }
}
