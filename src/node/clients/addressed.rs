//! Requests that name their timer by a name or by a key of their own, and the conditions on which
//! their writes depend. Such a request keeps what its head says of this until its body is there.

use crate::shard::effects::{Condition, Conditional, Request, Target};
use crate::timer::definition::Definition;
use crate::timer::naming::{Identity, digest_of, id_of_key, id_of_name};
use crate::timer::version::Version;
use crate::wire::conditions::{Conditions, Precondition, has_precondition, read_conditions};
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::timer_action::TimerAction;
use crate::wire::timer_name::{before_action, name_in};
use crate::wire::timer_path::{PublicId, TimerPath};

use crate::node::clients::job_answers::CONDITION_WITH_FILTERS;
use crate::node::clients::request_line::RequestLine;

const ABSENT_DELETE: &str = "If-None-Match: expected with PUT, got it with DELETE";
const MATCH_CREATE: &str = "If-Match: expected with PUT, DELETE or an action, got it with a create";
const ABSENT_ACTION: &str = "If-None-Match: expected with PUT, got it with POST";
const BY_ID: &str = "If-Match, If-None-Match: expected at /timers/by-name/<name>, got one of them \
                     at /timers/<id>: write the timer by its name, or leave the header out";

/// Most characters of a path that are told.
const SHOWN_CHARS_MAX: usize = 48;

/// A timer as a request names it that has no id, or that does something with it.
#[derive(Debug)]
pub struct Addressed {
    target: Target,
    condition: Option<Condition>,
    /// `None`: the request has a key or an id.
    name: Option<Box<str>>,
    /// What is done with the timer; `None`: it is written, read or deleted.
    action: Option<TimerAction>,
}

impl Addressed {
    /// What a head says. `scope` is the name of the request's token, or empty. `None`: the request
    /// names its timer by an id, or is a create without a key. `Err` is the reason to refuse it
    /// with.
    #[inline]
    pub fn of(
        line: &RequestLine,
        head: &RequestHead<'_>,
        bytes: &[u8],
        scope: &str,
    ) -> Option<Box<Result<Self, String>>> {
        match line.path {
            TimerPath::Named => Some(Box::new(Self::named(line.method, head.path, bytes))),
            TimerPath::Collection if head.has_conditions && line.method == Method::Post => {
                Self::keyed(bytes, scope).map(Box::new)
            }
            TimerPath::Collection if head.has_conditions && line.method == Method::Delete => {
                let has_one = has_precondition(bytes);
                has_one.then(|| Box::new(Err(CONDITION_WITH_FILTERS.to_owned())))
            }
            TimerPath::Action(named, action) => {
                Some(Box::new(Self::acted(bytes, action).map(|timer| {
                    let (id, factor, filter) = (named.id, named.factor, named.filter);
                    Self { target: Target { id, factor, filter }, ..timer }
                })))
            }
            TimerPath::NamedAction(action) => {
                let name = name_in(before_action(head.path)).map_err(|error| error.to_string());
                Some(Box::new(name.and_then(|name| {
                    let target = target_of(id_of_name(&name));
                    Ok(Self { target, name: Some(name.into()), ..Self::acted(bytes, action)? })
                })))
            }
            TimerPath::Timer(_) if head.has_conditions => {
                by_id(line.method, bytes).map(|told| Box::new(Err(told)))
            }
            TimerPath::Unknown => no_id(line.method, head.path).map(|told| Box::new(Err(told))),
            _ => None,
        }
    }

    #[cold]
    fn acted(head: &[u8], action: TimerAction) -> Result<Self, String> {
        let conditions = read_conditions(head).map_err(|error| error.to_string())?;
        let condition = match conditions.precondition {
            Some(Precondition::Absent) => return Err(ABSENT_ACTION.to_owned()),
            precondition => precondition.map(condition_of),
        };
        let target = target_of(crate::base::ids::TimerId(0));
        Ok(Self { target, condition, name: None, action: Some(action) })
    }

    #[cold]
    fn named(method: Method, path: &str, head: &[u8]) -> Result<Self, String> {
        let name = name_in(path).map_err(|error| error.to_string())?;
        let conditions = match method {
            Method::Put | Method::Delete => {
                read_conditions(head).map_err(|error| error.to_string())?
            }
            _ => Conditions::default(),
        };
        let condition = match conditions.precondition {
            Some(Precondition::Absent) if method == Method::Delete => {
                return Err(ABSENT_DELETE.to_owned());
            }
            precondition => precondition.map(condition_of),
        };
        Ok(Self {
            target: target_of(id_of_name(&name)),
            condition,
            name: Some(name.into()),
            action: None,
        })
    }

    #[cold]
    fn keyed(head: &[u8], scope: &str) -> Option<Result<Self, String>> {
        let key = match read_conditions(head) {
            Err(error) => return Some(Err(error.to_string())),
            Ok(Conditions { key: Some(key), .. }) => key,
            // A create without a key makes a timer that nothing can be known of.
            Ok(Conditions { precondition, .. }) => {
                return precondition.map(|precondition| match precondition {
                    Precondition::Absent => Err(ABSENT_ACTION.to_owned()),
                    Precondition::Present | Precondition::Version(_) => {
                        Err(MATCH_CREATE.to_owned())
                    }
                });
            }
        };
        let target = target_of(id_of_key(scope, key));
        Some(Ok(Self { target, condition: Some(Condition::Once), name: None, action: None }))
    }

    /// What the timer remembers of how it was named. `body` is the body of the request as it came.
    pub fn identity(&self, body: &[u8]) -> Identity<'_> {
        let once = self.condition == Some(Condition::Once);
        Identity { name: self.name.as_deref(), once: once.then(|| digest_of(body)) }
    }

    /// What a GET asks of the timer, or a DELETE.
    pub fn asked(&self, method: Method) -> Request<'static> {
        match method {
            Method::Get => Request::Read(self.target),
            _ => self.write(None),
        }
    }

    /// The write of a timer; without a definition its end.
    pub fn write<'a>(&self, definition: Option<Definition<'a>>) -> Request<'a> {
        let target = self.target;
        if let Some(action) = self.action {
            let (condition, definition) = (self.condition.unwrap_or(Condition::Present), None);
            let action = Some(action);
            return Request::Conditional(Conditional { target, condition, definition, action });
        }
        match (self.condition, definition) {
            (Some(condition), definition) => {
                let action = None;
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            (None, Some(definition)) => Request::Update(target, definition),
            (None, None) => Request::Delete(target),
        }
    }
}

/// Why a write by an id is refused: it is made whatever the timer is, and the client asks that it
/// is not.
#[cold]
fn by_id(method: Method, head: &[u8]) -> Option<String> {
    let is_write = matches!(method, Method::Put | Method::Delete);
    (is_write && has_precondition(head)).then(|| BY_ID.to_owned())
}

/// Why a path below `/timers/` names no timer, and what would.
#[cold]
fn no_id(method: Method, path: &str) -> Option<String> {
    let text = path.strip_prefix("/timers/").filter(|text| !text.is_empty())?;
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let remedy = match method {
        Method::Put => "POST /timers makes an id; a name of your own goes to PUT",
        _ => "ids are in the Location of answers; a timer with a name is at",
    };
    Some(format!("{shown} is not the id of a timer: {remedy} /timers/by-name/{shown}"))
}

fn condition_of(precondition: Precondition) -> Condition {
    match precondition {
        Precondition::Absent => Condition::Absent,
        Precondition::Present => Condition::Present,
        Precondition::Version(version) => Condition::Version(Version(version)),
    }
}

/// Which timer a document is of; none is named by a POST.
#[derive(Clone, Copy, Default)]
pub struct Aim<'a> {
    /// The timer that the path has.
    pub target: Option<PublicId>,
    /// The name or the key that the request has.
    pub addressed: Option<&'a Addressed>,
    /// What of it stands in the timer.
    pub identity: Identity<'a>,
    /// Whether a document that the client would be warned of is refused.
    pub is_strict: bool,
}

fn target_of(id: crate::base::ids::TimerId) -> Target {
    Target { id, factor: None, filter: None }
}
