//! What a request's head asks for.

use crate::core::peers::site_members;
use crate::node::clients::answers::{ErrorForm, Persistence};
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::site_question::SiteQuestion;
use crate::wire::timer_path::{TimerPath, parse_path};

/// What the server keeps of a request's head when the bytes of the head are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLine {
    /// The method of the request; of HEAD, which `persistence` tells, GET.
    pub method: Method,
    /// What the path names.
    pub path: TimerPath,
    /// How the connection goes on after the answer, and the form of an error.
    pub persistence: Persistence,
    /// How many timestamps are asked for; 0 if the query cannot be understood.
    pub count: u32,
    /// Whether another site asks for the members of this site.
    pub asks_members: bool,
    /// Whether a document that the client would be warned of is refused.
    pub is_strict: bool,
    /// Whether the request says that it is a callback.
    pub is_callback: bool,
}

impl RequestLine {
    /// Takes from a head what the rest of the request needs.
    pub fn of(head: &RequestHead<'_>) -> Self {
        let RequestHead { keep_alive, is_http10, accepts_problem, .. } = *head;
        // What GET answers HEAD answers without its body.
        let (method, is_head) = match head.method {
            Method::Head => (Method::Get, true),
            method => (method, false),
        };
        let path = match parse_path(head.path) {
            TimerPath::Ping => {
                let question = head.query.and_then(SiteQuestion::parse);
                question.map_or(TimerPath::Ping, TimerPath::Compare)
            }
            // The only thing to POST below a timer is one of its actions.
            TimerPath::Timer(_) if method == Method::Post && has_more(head.path) => {
                TimerPath::Unknown
            }
            path => path,
        };
        let is_of_name = matches!(path, TimerPath::Named | TimerPath::NamedAction(_));
        let errors = ErrorForm::of(accepts_problem, is_of_name);
        let persistence = Persistence { keep_alive, is_http10, errors, is_head };
        let count = match head.query {
            Some(query) if path == TimerPath::Timestamps => count_in(query),
            _ => 1,
        };
        let asks_members = path == TimerPath::Ping && head.query == Some(site_members::QUERY);
        let is_strict = head.query.is_some_and(asks_strictness);
        let is_callback = head.is_callback;
        Self { method, path, persistence, count, asks_members, is_strict, is_callback }
    }

    /// Returns whether nodes make such requests.
    pub fn is_for_nodes(&self) -> bool {
        match self.path {
            TimerPath::Timer(_) => self.method == Method::Put,
            TimerPath::References | TimerPath::Ping | TimerPath::Compare(_) => true,
            TimerPath::Unknown => true,
            TimerPath::Collection | TimerPath::Named | TimerPath::Bulk => false,
            TimerPath::Count | TimerPath::Timestamps => false,
            TimerPath::DeadLetters | TimerPath::DeadLetter(_) => false,
            TimerPath::Replays | TimerPath::Replay(_) => false,
            TimerPath::Jobs | TimerPath::Job(_) => false,
            TimerPath::Action(..) | TimerPath::NamedAction(_) => false,
        }
    }

    /// The methods that the path has, for an answer to another one.
    pub fn allowed(&self) -> &'static str {
        match self.path {
            TimerPath::Collection => "GET, HEAD, POST, DELETE",
            TimerPath::Timer(_) | TimerPath::Named => "GET, HEAD, PUT, DELETE",
            TimerPath::DeadLetters | TimerPath::DeadLetter(_) | TimerPath::Job(_) => {
                "GET, HEAD, DELETE"
            }
            TimerPath::References => "DELETE",
            TimerPath::Count | TimerPath::Jobs | TimerPath::Ping | TimerPath::Unknown => {
                "GET, HEAD"
            }
            TimerPath::Compare(_) => "GET",
            TimerPath::Bulk | TimerPath::Timestamps => "POST",
            TimerPath::Action(..) | TimerPath::NamedAction(_) => "POST",
            TimerPath::Replays | TimerPath::Replay(_) => "POST",
        }
    }

    /// Returns whether the body is one of timers, a line each.
    pub fn is_bulk(&self) -> bool {
        self.path == TimerPath::Bulk && self.method == Method::Post
    }

    /// Returns whether the answer may be long: a timer, or a page of timers.
    pub fn is_read(&self) -> bool {
        let has_content = matches!(
            self.path,
            TimerPath::Timer(_)
                | TimerPath::Named
                | TimerPath::Collection
                | TimerPath::Count
                | TimerPath::Jobs
        );
        self.method == Method::Get && has_content
    }
}

/// Whether something stands below the path of a timer.
#[cold]
fn has_more(path: &str) -> bool {
    path.trim_end_matches('/').bytes().filter(|&byte| byte == b'/').count() > 2
}

/// Whether a query has `strict`. Any value but `false` counts: who writes `strict=1` means it.
fn asks_strictness(query: &str) -> bool {
    query.split('&').any(|part| match part.split_once('=') {
        Some((name, value)) => name == "strict" && value != "false",
        None => part == "strict",
    })
}

/// Returns the number in `count=n`, or 0 for any other query.
fn count_in(query: &str) -> u32 {
    let count = query.strip_prefix("count=").filter(|count| !count.starts_with('+'));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}
