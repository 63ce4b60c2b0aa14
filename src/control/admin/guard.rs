//! Which requests the admin API takes. It refuses requests that a web page makes its visitor's
//! browser send, callbacks, and, if there are tokens
//! (`auth.tokens_file`), orders without the token of an operator. Over TLS, which a network of
//! others may reach, all that is asked for needs a token then, but the page of the console, which
//! has no data, and the question what a token is good for.
//!
//! A page can lead its own name to the address of a node and ask under that name (DNS rebinding).
//! So a request must name an address, or a name that no page can own: a name without a dot belongs
//! to nobody on the internet. A form can send a body, but no header of its choice. So an order must
//! carry [`ORDER_HEADER`].
//!
//! A callback has the headers that its client chose, and comes from wherever a node is: also a node
//! of another deployment. So what a callback always carries (`wire::callback_headers`) is refused
//! here, whatever is asked for.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::console;
use super::listener::Seen;
use crate::control::cluster::desk::ClusterDesk;
use crate::node::clients::tokens::{Role, Tokens, bearer};
use crate::wire::callback_headers::is_of_callback;
use crate::wire::request_head::FRAGMENT;

/// The header that an order must carry, with any value.
pub(crate) const ORDER_HEADER: &str = "X-Chronos-Order";

/// The path that tells what a token is good for.
pub(crate) const ACCESS_PATH: &str = "/access";

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// It looks at what everybody may see.
    Open,
    /// It looks at figures.
    Look,
    /// It changes something.
    Order,
}

impl Purpose {
    fn of(request: &Request) -> Self {
        match request.uri().path() {
            _ if !request.method().is_safe() => Purpose::Order,
            console::PATH | ACCESS_PATH => Purpose::Open,
            _ => Purpose::Look,
        }
    }
}

/// The tokens that are valid now. The holders of a clone share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTokens(Arc<RwLock<Option<Arc<Tokens>>>>);

impl SharedTokens {
    /// Sets the tokens. `None`: nobody needs one.
    pub(crate) fn set(&self, tokens: Option<Arc<Tokens>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    fn get(&self) -> Option<Arc<Tokens>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns why a request is not taken that needs a token.
    fn refusal(&self, is_order: bool, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        let tokens = self.get()?;
        match role_in(&tokens, headers) {
            Some(Role::Operator) => None,
            Some(_) if !is_order => None,
            Some(role) => {
                let text =
                    format!("an order needs the token of an operator, got one of a {role}\n");
                Some((StatusCode::FORBIDDEN, text))
            }
            None => {
                let needs = match is_order {
                    true => "an order needs the token of an operator",
                    false => "over TLS each request needs a token, of any role to look",
                };
                let text = format!(
                    "{needs} (auth.tokens_file); set CHRONOS_TOKEN to it where you type the \
                     command\n"
                );
                Some((StatusCode::UNAUTHORIZED, text))
            }
        }
    }
}

/// The role of the token that a request shows.
fn role_in(tokens: &Tokens, headers: &HeaderMap) -> Option<Role> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))?;
    tokens.role_of(shown)
}

/// The names under which clients may ask for the admin API, beside addresses, and the tokens.
#[derive(Clone)]
pub(crate) struct RequestGuard {
    names: Vec<String>,
    /// Whether who only looks needs a token, too.
    looks_need_tokens: bool,
    cluster: Arc<ClusterDesk>,
    tokens: SharedTokens,
}

impl RequestGuard {
    /// Takes the names of `[admin] hosts` and adds this machine's own name.
    pub(crate) fn new(hosts: &[String], cluster: Arc<ClusterDesk>, tokens: SharedTokens) -> Self {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let names = hosts.iter().map(String::as_str).chain([own.trim()]);
        let names = names.filter(|name| !name.is_empty()).map(|name| host_of(name).to_owned());
        Self { names: names.collect(), looks_need_tokens: false, cluster, tokens }
    }

    /// The guard of requests over TLS: they need a token even to look.
    pub(crate) fn over_tls(&self) -> Self {
        Self { looks_need_tokens: true, ..self.clone() }
    }

    /// Returns why a request is not taken, as status and text. Returns `None` when the request may
    /// pass.
    fn refusal(&self, purpose: Purpose, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        if headers.contains_key(ORIGIN) && !self.is_from_own_page(headers) {
            let text = "pages of others are not served here; open the console at / of this node\n";
            return Some((StatusCode::FORBIDDEN, text.into()));
        }
        if let Some(name) = headers.keys().find(|name| is_of_callback(name.as_str())) {
            let text = format!("callbacks are not served here, and {name} says that this is one\n");
            return Some((StatusCode::FORBIDDEN, text));
        }
        for host in headers.get_all(HOST) {
            let host = host.to_str().unwrap_or("?");
            if !self.knows(host_of(host)) {
                let text = format!(
                    "Host: {host} is no name of this node; use its address, or add the name to \
                     [admin] hosts\n"
                );
                return Some((StatusCode::MISDIRECTED_REQUEST, text));
            }
        }
        let is_order = purpose == Purpose::Order;
        let has_order = headers.contains_key(ORDER_HEADER);
        if is_order && !has_order {
            let text = format!("an order needs the header {ORDER_HEADER}: 1\n");
            return Some((StatusCode::FORBIDDEN, text));
        }
        let needs_token = is_order || self.looks_need_tokens && purpose == Purpose::Look;
        if needs_token { self.tokens.refusal(is_order, headers) } else { None }
    }

    /// Whether the page that asks is one of this listener: the console. Its origin is the name
    /// under which this request came, and [`RequestGuard::knows`] judges that name.
    fn is_from_own_page(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter().map(HeaderValue::as_bytes);
        let mut hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let scheme: &[u8] = if self.looks_need_tokens { b"https://" } else { b"http://" };
        origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    }

    /// What whoever shows these headers may do.
    pub(crate) fn access(&self, headers: &HeaderMap) -> Value {
        let tokens = self.tokens.get();
        let role = tokens.as_ref().and_then(|tokens| role_in(tokens, headers));
        json!({
            "needs-token-to-look": tokens.is_some() && self.looks_need_tokens,
            "needs-token-for-orders": tokens.is_some(),
            "role": role.map(|role| role.to_string()),
            "may-look": tokens.is_none() || !self.looks_need_tokens || role.is_some(),
            "may-order": tokens.is_none() || role == Some(Role::Operator),
        })
    }

    fn knows(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_address = bare.parse::<Ipv4Addr>().is_ok() || bare.parse::<Ipv6Addr>().is_ok();
        let is_named = |name: &str| host_of(name).eq_ignore_ascii_case(host);
        is_address
            || !host.contains('.')
            || self.names.iter().any(|name| is_named(name))
            || self.cluster.names().iter().any(|name| is_named(name))
    }
}

/// Returns the host of `host`, `host:port` or `[address]:port`, or of that behind `https://`.
fn host_of(text: &str) -> &str {
    let text = text.strip_prefix("https://").unwrap_or(text);
    match text.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        _ => text,
    }
}

/// Lets a request pass, or answers it with the refusal.
pub(crate) async fn guard(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let seen = request.extensions().get::<ConnectInfo<Seen>>();
    if seen.is_some_and(|ConnectInfo(seen)| seen.has_fragment()) {
        return (StatusCode::BAD_REQUEST, format!("{FRAGMENT}\n")).into_response();
    }
    match guard.refusal(Purpose::of(&request), request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::{Membership, View};

    fn guard_of() -> RequestGuard {
        let membership = Membership {
            localhost: "10.0.0.1:7253".into(),
            nodes: vec!["10.0.0.1:7253".into(), "node-2.example:7253".into()],
            ..Membership::default()
        };
        let view = View::build(None, &membership).expect("a good configuration");
        let cluster = Arc::new(ClusterDesk::of(Arc::new(view), None));
        RequestGuard::new(&["chronos.example".into()], cluster, SharedTokens::default())
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, value.parse().expect("a value"));
        }
        map
    }

    #[test]
    fn hosts_that_a_page_could_have_are_refused() {
        let guard = guard_of();
        let is_taken =
            |host: &str| guard.refusal(Purpose::Look, &headers(&[("host", host)])).is_none();
        for host in [
            "127.0.0.1",
            "10.9.9.9:7254",
            "[::1]:7254",
            "[fd00::1]",
            "localhost:7254",
            "LocalHost",
            "chronos-0:7254",
            "Chronos.Example:7254",
            "node-2.example",
        ] {
            assert!(is_taken(host), "{host}");
        }
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
        assert!(is_taken(own.trim()));
        for host in ["evil.example", "evil.example:7254", "127.0.0.1.evil.example", "a.b", "1.2.3"]
        {
            let (status, text) =
                guard.refusal(Purpose::Look, &headers(&[("host", host)])).expect("refused");
            assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
            assert!(text.contains(host) && text.contains("[admin] hosts"), "{text}");
        }
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(guard.refusal(Purpose::Look, &two).is_some());
        assert!(guard.refusal(Purpose::Look, &headers(&[])).is_none(), "HTTP/1.0 has none");
    }

    #[test]
    fn orders_need_the_token_of_an_operator_if_there_are_tokens() {
        let guard = guard_of();
        let file = ["client", "operator"].map(|role| {
            let role = Role::WORDS.into_iter().find(|(word, _)| *word == role).expect("a role").1;
            crate::node::clients::tokens::line_of("x", role, &format!("token of {role}"))
        });
        let tokens = Tokens::parse(file.join("\n").as_bytes()).expect("two tokens");
        guard.tokens.set(Some(Arc::new(tokens)));
        let status = |is_order, token: Option<&str>| {
            let purpose = if is_order { Purpose::Order } else { Purpose::Look };
            let mut lines = vec![("host", "127.0.0.1:7254"), ("x-chronos-order", "1")];
            let shown = token.map(|token| format!("Bearer token of {token}"));
            lines.extend(shown.as_ref().map(|shown| ("authorization", shown.as_str())));
            guard.refusal(purpose, &headers(&lines)).map(|(status, _)| status.as_u16())
        };
        assert_eq!(status(true, Some("operator")), None);
        assert_eq!(status(true, Some("client")), Some(403));
        assert_eq!((status(true, Some("nobody")), status(true, None)), (Some(401), Some(401)));
        assert_eq!(status(false, None), None, "who only looks needs none");
        guard.tokens.set(None);
        assert_eq!(status(true, None), None);
    }

    #[test]
    fn over_tls_who_only_looks_needs_a_token_of_any_role() {
        let guard = guard_of().over_tls();
        let status = |token: Option<&str>| {
            let mut lines = vec![("host", "127.0.0.1:7255")];
            lines.extend(token.map(|shown| ("authorization", shown)));
            guard.refusal(Purpose::Look, &headers(&lines)).map(|(status, _)| status.as_u16())
        };
        assert_eq!(status(None), None, "there are no tokens");
        let line = crate::node::clients::tokens::line_of("x", Role::Reader, "reads");
        let tokens = Tokens::parse(line.as_bytes()).expect("a token");
        guard.tokens.set(Some(Arc::new(tokens)));
        assert_eq!(status(Some("Bearer reads")), None);
        assert_eq!((status(None), status(Some("Bearer other"))), (Some(401), Some(401)));
        assert!(guard.refusal(Purpose::Open, &headers(&[("host", "10.0.0.1")])).is_none());
        let access = |token| guard.access(&headers(&[("authorization", token)]));
        assert_eq!(access("Bearer reads")["role"], "reader");
        assert_eq!(access("Bearer reads")["may-look"], true);
        assert_eq!(access("Bearer reads")["may-order"], false);
        assert_eq!(access("Bearer other")["may-look"], false);
    }

    #[test]
    fn pages_are_refused_and_orders_need_their_header() {
        let guard = guard_of();
        let status = |is_order, lines: &[(&'static str, &str)]| {
            let purpose = if is_order { Purpose::Order } else { Purpose::Look };
            guard.refusal(purpose, &headers(lines)).map(|(status, _)| status.as_u16())
        };
        let own = ("host", "127.0.0.1:7254");
        for other in ["http://127.0.0.1:7253", "https://127.0.0.1:7254", "http://evil.example"] {
            assert_eq!(status(false, &[own, ("origin", other)]), Some(403), "{other}");
        }
        let console = ("origin", "http://127.0.0.1:7254");
        assert_eq!(status(false, &[own, console]), None);
        assert_eq!(status(false, &[own, console, console]), Some(403));
        assert_eq!(status(false, &[own, own, console]), Some(403));
        assert_eq!(status(true, &[own, console, ("x-chronos-order", "1")]), None);
        let rebound = [("host", "evil.example:7254"), ("origin", "http://evil.example:7254")];
        assert_eq!(status(false, &rebound), Some(421));
        assert_eq!(status(false, &[own, ("origin", "null")]), Some(403));
        assert_eq!(status(true, &[own]), Some(403));
        assert_eq!(status(true, &[own, ("content-type", "application/json")]), Some(403));
        assert_eq!(status(true, &[own, ("x-chronos-order", "1")]), None);
        let page = [own, ("x-chronos-order", "1"), ("origin", "http://evil.example")];
        assert_eq!(status(true, &page), Some(403));
        for name in ["x-timer-id", "x-sequence-number", "webhook-id", "x-dead-letter-reason"] {
            let callback = [own, ("x-chronos-order", "1"), (name, "1")];
            assert_eq!(status(true, &callback), Some(403), "{name}");
            assert_eq!(status(false, &[own, (name, "1")]), Some(403), "{name}");
        }
    }
}
