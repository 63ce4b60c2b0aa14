//! Whether a request may be made: what its token is good for.

use std::fmt;
use std::sync::Arc;

use crate::base::quota::{CountedConnection, Quota};
use crate::node::clients::caller::Caller;
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::Service;
use crate::node::clients::tokens::{Grant, Role, Tokens, bearer};
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::timer_path::TimerPath;

/// The token that a client showed last on its connection. A client shows the same one with each
/// request, and to compare it costs less than to hash it.
#[derive(Debug)]
pub struct Access {
    authorization: Vec<u8>,
    name: Arc<str>,
    role: Role,
    /// What the token's name may use; `None`: it has no limits.
    quota: Option<Arc<Quota>>,
    /// This connection among those of the name, if these are limited.
    counted: Option<CountedConnection>,
    /// The tokens that were valid then.
    tokens: Arc<Tokens>,
}

impl Access {
    /// The token's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the token's name may use; `None`: it has no limits.
    pub fn quota(&self) -> Option<&Quota> {
        self.quota.as_deref()
    }

    /// Whether this is the same token, by the same tokens. Takes the same time for all tokens of a
    /// length.
    fn is_same(&self, tokens: &Arc<Tokens>, authorization: &[u8]) -> bool {
        let pairs = self.authorization.iter().zip(authorization);
        Arc::ptr_eq(&self.tokens, tokens)
            && self.authorization.len() == authorization.len()
            && pairs.fold(0, |all, (one, other)| all | (one ^ other)) == 0
    }
}

/// Why a request is not taken.
#[derive(Clone, Debug)]
pub enum Refused {
    /// It has no token.
    Missing,
    /// Its token is not known.
    Unknown,
    /// The token's role may not make it.
    Forbidden(Role),
    /// The token's name has as many connections as it may.
    Connections(Arc<Quota>),
}

impl Refused {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Refused::Missing | Refused::Unknown => 401,
            Refused::Forbidden(_) => 403,
            Refused::Connections(_) => 429,
        }
    }

    /// A further header line of the answer (RFC 6750 section 3); empty: none.
    pub fn header(&self) -> &'static str {
        match self {
            Refused::Missing => "WWW-Authenticate: Bearer\r\n",
            Refused::Unknown => "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n",
            Refused::Forbidden(_) => "WWW-Authenticate: Bearer error=\"insufficient_scope\"\r\n",
            Refused::Connections(_) => "",
        }
    }
}

/// Says the reason, without anything of the token.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Missing => f.write_str(
                "Authorization: missing, expected `Bearer` and a token of this node's \
                 auth.tokens_file",
            ),
            Refused::Unknown => f.write_str(
                "Authorization: expected a token of this node's auth.tokens_file, got another one",
            ),
            Refused::Forbidden(role) => write!(
                f,
                "Authorization: expected a token whose role may do this, got one of a {role}"
            ),
            Refused::Connections(quota) => write!(
                f,
                "the token {} has all its {} connections to this node; use those, or ask for more \
                 (connections= in auth.tokens_file)",
                quota.name,
                quota.limits.connections.unwrap_or(0)
            ),
        }
    }
}

/// Whether a request may be made. `access` is what the connection remembers. Other sites that have
/// proven who they are, by the cluster's secret or a certificate of its authority, need no token.
pub fn authorize(
    access: &mut Option<Box<Access>>,
    service: &mut Service,
    caller: Caller<'_>,
    line: &RequestLine,
    head: &RequestHead<'_>,
) -> Result<(), Refused> {
    let Some(tokens) = &service.tokens else { return Ok(()) };
    let needs_none = matches!(line.path, TimerPath::Ping | TimerPath::Compare(_));
    if caller.is_proven || caller.is_certified || needs_none {
        return Ok(());
    }
    let judged = judge(access, tokens, head.authorization);
    let judged = judged.and_then(|role| match role.may(line.method, &line.path) {
        true => Ok(()),
        false => Err(Refused::Forbidden(role)),
    });
    match &judged {
        Ok(()) => {}
        Err(Refused::Missing) => service.denied.missing += 1,
        Err(Refused::Unknown) => service.denied.unknown += 1,
        Err(Refused::Forbidden(_)) => service.denied.forbidden += 1,
        Err(Refused::Connections(_)) => service.denied.connections += 1,
    }
    judged
}

/// Whether a request that is still being taken may go on, after tokens have changed: a bulk request
/// may last for hours. Cost without a change: a comparison.
pub fn renew(access: &mut Option<Box<Access>>, service: &mut Service) -> Result<(), Refused> {
    let Some(tokens) = &service.tokens else { return Ok(()) };
    let known = access.as_ref().map(|known| (Arc::ptr_eq(&known.tokens, tokens), known));
    let shown = match known {
        Some((true, _)) => return Ok(()),
        Some((false, known)) => Some(known.authorization.clone()),
        None => None,
    };
    let role = judge(access, tokens, shown.as_deref())?;
    let may = role.may(Method::Post, &TimerPath::Bulk);
    if may { Ok(()) } else { Err(Refused::Forbidden(role)) }
}

fn judge(
    access: &mut Option<Box<Access>>,
    tokens: &Arc<Tokens>,
    authorization: Option<&[u8]>,
) -> Result<Role, Refused> {
    let authorization = authorization.ok_or(Refused::Missing)?;
    if let Some(known) = access.as_ref().filter(|known| known.is_same(tokens, authorization)) {
        return Ok(known.role);
    }
    let token = bearer(authorization).ok_or(Refused::Missing)?;
    let Grant { name, role, quota } = tokens.grant_of(token).ok_or(Refused::Unknown)?.clone();
    let former = access.take().and_then(|former| former.counted);
    let counted = count(former, quota.as_ref())?;
    let (authorization, tokens) = (authorization.to_vec(), Arc::clone(tokens));
    *access = Some(Box::new(Access { authorization, name, role, quota, counted, tokens }));
    Ok(role)
}

/// Counts a connection among those of a name, if these are limited. A connection that counts there
/// already, as `former` tells, goes on, even if the limit is lower now.
fn count(
    former: Option<CountedConnection>,
    quota: Option<&Arc<Quota>>,
) -> Result<Option<CountedConnection>, Refused> {
    let limited = quota.filter(|quota| quota.limits.connections.is_some());
    let Some(quota) = limited else { return Ok(None) };
    match former.filter(|former| former.is_of(quota)) {
        Some(former) => Ok(Some(former)),
        None => quota.connect().map(Some).ok_or_else(|| Refused::Connections(Arc::clone(quota))),
    }
}
