//! The admin API: `/healthz`, `/readyz`, `/metrics`, `/status`, `/statistics/tags`, `/cluster`,
//! what the console asks for, and the console, on a listener of its own. A connection carries one
//! request. The head must be there within 3 s, and the connection ends within 10 s. So a client can
//! hold neither memory nor the control thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRef, Path, Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use tokio::net::TcpListener;

use super::alarm_board::{self, AlarmBoard};
use super::answers::{NOT_ALLOWED, json_text};
use super::doors::AdminDoors;
use super::facts::{self, Facts, SharedConfiguration};
use super::guard::{ACCESS_PATH, RequestGuard, SharedTokens, guard};
use super::listener::{AdminListener, Seen, SharedAcceptor, Times};
use super::members::{self, MemberBoard};
use super::metrics_text::Format;
use super::node_view::{NodeState, NodeView};
use super::overview::{self, DueBoard};
use super::problems::as_problem;
use super::process::{self, ProcessUse};
use super::{console, destinations, metrics, one_timer, status, timers};
use crate::control::cluster::desk::OrderError;
use crate::control::recovery_progress::{progress, takes_no_writes};
use crate::control::tags::board::{Members, TagBoard};

/// A client sends its request as soon as it is connected, and a scrape takes milliseconds. A client
/// that needs longer is stuck or hostile.
const TIMES: Times = Times { head: Duration::from_secs(3), life: Duration::from_secs(10) };
/// Bytes of a request's body. The longest body lists 128 members twice, each with a name of at most
/// 255 bytes.
const BODY_BYTES_MAX: usize = 128 << 10;

const NOT_FOUND: &str = "the admin API has / (the console), /healthz, /readyz, /metrics, /status, \
     /overview, /alarms, /config, /journal, /timestamp, /access, /cluster[/members], \
     /destinations[/<HOST>], /timers[/count], /timers/<ID>[/<ACTION>], \
     /timers/by-name/<NAME>[/<ACTION>], /jobs[/<ID>], /dead-letters[/<ID>], \
     /statistics/tags[/<TAG>]\n";

/// What the handlers read.
#[derive(Clone)]
pub(crate) struct AdminState {
    view: NodeView,
    facts: Arc<Facts>,
    configuration: SharedConfiguration,
    alarms: AlarmBoard,
    due: DueBoard,
    members: MemberBoard,
    process: fn(Instant) -> ProcessUse,
    tags: Arc<TagBoard>,
    guard: Arc<RequestGuard>,
}

impl FromRef<AdminState> for NodeView {
    fn from_ref(state: &AdminState) -> Self {
        state.view.clone()
    }
}

impl FromRef<AdminState> for Arc<Facts> {
    fn from_ref(state: &AdminState) -> Self {
        Arc::clone(&state.facts)
    }
}

impl FromRef<AdminState> for SharedConfiguration {
    fn from_ref(state: &AdminState) -> Self {
        state.configuration.clone()
    }
}

impl FromRef<AdminState> for AlarmBoard {
    fn from_ref(state: &AdminState) -> Self {
        state.alarms.clone()
    }
}

impl FromRef<AdminState> for DueBoard {
    fn from_ref(state: &AdminState) -> Self {
        state.due.clone()
    }
}

impl FromRef<AdminState> for MemberBoard {
    fn from_ref(state: &AdminState) -> Self {
        state.members.clone()
    }
}

impl AdminState {
    /// The state of a running node; `tags_max` is `limits.tags_max`, `hosts` is `[admin] hosts`.
    /// `tokens` are those of `[auth] tokens_file`.
    pub(crate) fn of(
        view: NodeView,
        tags_max: u32,
        hosts: &[String],
        tokens: SharedTokens,
    ) -> Self {
        let tags = Arc::new(TagBoard::new(Arc::clone(&view.meters), tags_max));
        let guard = Arc::new(RequestGuard::new(hosts, Arc::clone(&view.cluster), tokens));
        Self {
            view,
            facts: Arc::default(),
            configuration: SharedConfiguration::default(),
            alarms: AlarmBoard::default(),
            due: DueBoard::default(),
            members: MemberBoard::default(),
            process: process::read,
            tags,
            guard,
        }
    }

    /// The same with what is shown of the configuration, and of alarms.
    pub(crate) fn with(
        self,
        facts: Facts,
        configuration: SharedConfiguration,
        alarms: AlarmBoard,
    ) -> Self {
        Self { facts: Arc::new(facts), configuration, alarms, ..self }
    }

    /// Sets which members are asked for `/statistics/tags?scope=cluster` and `/cluster/members`.
    /// Until this is called, the former is answered 501.
    pub(crate) fn set_members(&self, members: Members) {
        self.members.set_members(members.clone());
        self.tags.set_members(members);
    }
}

/// Serves until the future is dropped. Must run inside the control thread's runtime. `acceptor`:
/// what connections over TLS are accepted with; `most`: how many connections each door holds.
pub(crate) async fn serve(
    doors: AdminDoors,
    (acceptor, most): (Option<SharedAcceptor>, usize),
    state: AdminState,
) {
    let AdminDoors { plain, secure } = doors;
    let tags = Arc::clone(&state.tags);
    let over_tls = AdminState { guard: Arc::new(state.guard.over_tls()), ..state.clone() };
    let serve = |listener: Option<TcpListener>, acceptor, state| async move {
        let Some(listener) = listener else { return };
        let listener = AdminListener::new(listener, acceptor, TIMES, most);
        // Ends only on a listener's error, and this listener has none: it retries.
        let router = router(state).into_make_service_with_connect_info::<Seen>();
        let _ = axum::serve(listener, router).await;
    };
    let secure = secure.filter(|_| acceptor.is_some());
    tokio::join!(serve(plain, None, state), serve(secure, acceptor, over_tls), tags.listen());
}

fn router(state: AdminState) -> Router {
    Router::new()
        .route(console::PATH, get(console::page))
        .route(ACCESS_PATH, get(access))
        .route("/overview", get(overview::overview))
        .route("/alarms", get(alarm_board::alarms))
        .route("/config", get(facts::config))
        .route("/journal", get(facts::journal))
        .route("/timestamp", get(facts::timestamp))
        .route("/cluster/members", get(members::members))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/status", get(status_json))
        .route("/cluster", get(cluster_json))
        .route("/cluster/reload", post(cluster_reload))
        .route("/cluster/resync", post(cluster_resync))
        .route("/cluster/membership", put(cluster_membership))
        .route("/cluster/sites", put(cluster_sites))
        .route("/cluster/sites/probe", post(probe_site))
        .route("/backup", post(backup).get(last_backup))
        .route("/destinations", get(destinations::all))
        .route(
            "/destinations/{*name}",
            get(destinations::one).put(destinations::put).delete(destinations::delete),
        )
        .route("/statistics/tags", get(all_tags))
        .route("/statistics/tags/{*tag}", get(one_tag))
        .route("/timers", get(timers::list).delete(timers::delete))
        .route("/timers/count", get(timers::count))
        .route("/dead-letters", get(timers::letters).delete(timers::delete_all))
        .route("/dead-letters/replay", post(timers::replay_all))
        .route("/dead-letters/{id}", get(timers::letter).delete(timers::delete_letter))
        .route("/dead-letters/{id}/replay", post(timers::replay))
        .route("/jobs", get(timers::jobs))
        .route("/jobs/{id}", get(timers::job).delete(timers::stop_job))
        .route("/timers/{id}", get(one_timer::show).delete(one_timer::delete))
        .route("/timers/{id}/{action}", post(one_timer::act))
        .route(
            "/timers/by-name/{*name}",
            get(one_timer::show_named)
                .delete(one_timer::delete_named)
                .post(one_timer::act_named)
                .fallback(one_timer::other),
        )
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, NOT_ALLOWED))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        // Inside of the guard, so that what it refuses wakes no core.
        .layer(from_fn_with_state(state.clone(), after_refresh))
        .fallback(async || (StatusCode::NOT_FOUND, NOT_FOUND))
        .layer(from_fn_with_state(Arc::clone(&state.guard), guard))
        .layer(from_fn(as_problem))
        .layer(map_response(close_after))
        .with_state(state)
}

/// Has the cores publish their figures before a request is served.
async fn after_refresh(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    state.view.refresh().await;
    next.run(request).await
}

/// Makes an answer the last one of its connection, and forbids caches to keep it.
async fn close_after(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // What clients wrote is in many answers, and is not to be taken for a page.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Answers 200 while no core has failed. A supervisor restarts the node on any other answer.
async fn healthz(State(state): State<AdminState>) -> Response {
    match state.view.state() {
        NodeState::Failed => {
            (StatusCode::SERVICE_UNAVAILABLE, "a core has failed; see the log\n").into_response()
        }
        _ => "ok\n".into_response(),
    }
}

/// Answers 200 while requests are served. A load balancer routes by this answer.
async fn readyz(State(state): State<AdminState>) -> Response {
    let reading = progress(&state.view.meters);
    match state.view.state() {
        NodeState::Serving if reading.is_some() => {
            let told = reading.map(|progress| progress.text() + "\n").unwrap_or_default();
            (StatusCode::SERVICE_UNAVAILABLE, told).into_response()
        }
        NodeState::Left => (StatusCode::SERVICE_UNAVAILABLE, "left its cluster\n").into_response(),
        NodeState::Serving => match state.view.meters.iter().find_map(takes_no_writes) {
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
            None => "ready\n".into_response(),
        },
        other => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", other.name())).into_response(),
    }
}

/// Answers what whoever asks may do.
async fn access(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    json_text(&state.guard.access(&headers))
}

async fn metrics_text(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    let format = Format::wanted(headers.get_all(ACCEPT).iter().map(HeaderValue::as_bytes));
    let tags = state.tags.report();
    match metrics::render(&state.view, (state.process)(state.view.started), tags) {
        Ok(text) => ([(CONTENT_TYPE, format.media_type())], format.of(text)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn status_json(State(state): State<AdminState>, uri: Uri) -> Response {
    let process = (state.process)(state.view.started);
    match uri.query() {
        None | Some("") => json_text(&status::render_short(&state.view, process)),
        Some("all" | "all=true") => json_text(&status::render(&state.view, process)),
        Some(_) => {
            let told = "query: expected all or nothing, got something else\n";
            (StatusCode::BAD_REQUEST, told).into_response()
        }
    }
}

async fn cluster_json(State(state): State<AdminState>) -> Response {
    json_text(&state.view.cluster.render(&state.view.meters))
}

/// Reads the configuration again, as SIGHUP does, and answers whether the reload succeeded.
async fn cluster_reload(State(state): State<AdminState>) -> Response {
    ordered(&state, state.view.cluster.reload())
}

/// Compares all timers with the other members, as SIGUSR1 does.
async fn cluster_resync(State(state): State<AdminState>) -> Response {
    state.view.cluster.resynchronise();
    ordered(&state, Ok(()))
}

async fn cluster_membership(State(state): State<AdminState>, body: Bytes) -> Response {
    ordered(&state, state.view.cluster.change(&body))
}

async fn cluster_sites(State(state): State<AdminState>, body: Bytes) -> Response {
    ordered(&state, state.view.cluster.change_sites(&body))
}

/// Asks a site that is to be added what it says to this node.
async fn probe_site(State(state): State<AdminState>, body: Bytes) -> Response {
    match state.view.cluster.probe(&body) {
        Ok((probe, site)) => json_text(&probe.ask(site).await),
        Err(error) => refused(&error),
    }
}

/// What a backup is asked for with.
#[derive(serde::Deserialize)]
struct BackupOrder {
    /// An absolute path on the node's machine.
    directory: std::path::PathBuf,
}

/// Begins to copy the journal while the node runs.
async fn backup(State(state): State<AdminState>, body: Bytes) -> Response {
    let order: BackupOrder = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => {
            let told = format!("expected {{\"directory\": \"/absolute/path\"}}: {error}\n");
            return (StatusCode::BAD_REQUEST, told).into_response();
        }
    };
    match state.view.back_up(order.directory).await {
        Ok(()) => (StatusCode::ACCEPTED, last_backup(State(state)).await).into_response(),
        Err(error) => (StatusCode::CONFLICT, format!("{error}\n")).into_response(),
    }
}

/// Tells how far the last backup is.
async fn last_backup(State(state): State<AdminState>) -> Response {
    match state.view.backup_board.document() {
        Some(document) => json_text(&document),
        None => {
            let told = "no backup was asked for since this node started\n";
            (StatusCode::NOT_FOUND, told).into_response()
        }
    }
}

/// Answers an order: with the cluster as it is now, or with the reason of the refusal.
fn ordered(state: &AdminState, result: Result<(), OrderError>) -> Response {
    match result {
        Ok(()) => json_text(&state.view.cluster.render(&state.view.meters)),
        Err(error) => refused(&error),
    }
}

fn refused(error: &OrderError) -> Response {
    let status = match error {
        OrderError::Wrong(_) => StatusCode::BAD_REQUEST,
        OrderError::Refused(_) => StatusCode::CONFLICT,
    };
    (status, format!("{error}\n")).into_response()
}

/// Answers every statistics tag of this node, or with `?scope=cluster` of all members.
async fn all_tags(State(state): State<AdminState>, uri: Uri, headers: HeaderMap) -> Response {
    tags_answer(&state, None, (&uri, &headers)).await
}

/// Answers one statistics tag, which stands percent-encoded in the path. A tag that was never seen
/// is 0.
async fn one_tag(
    State(state): State<AdminState>,
    Path(tag): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    tags_answer(&state, Some(&tag), (&uri, &headers)).await
}

async fn tags_answer(
    state: &AdminState,
    tag: Option<&str>,
    (uri, headers): (&Uri, &HeaderMap),
) -> Response {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let others = state.view.cluster.other_members();
    match state.tags.document(tag, (uri.query().unwrap_or(""), others), token).await {
        Ok(document) => {
            ([(CONTENT_TYPE, "application/json")], format!("{document:#}\n")).into_response()
        }
        Err((status, reason)) => (status, format!("{reason}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::{Membership, View};
    use crate::control::cluster::desk::ClusterDesk;
    use crate::shard::tag_counts::{TagCounts, TagGroup};
    use crate::wire::timer_json::Tag;
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    /// Serves a view on a free port, on a thread of its own. Returns the address.
    fn served(view: NodeView, times: Times) -> SocketAddr {
        let (tell, hear) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
                tell.send(listener.local_addr().expect("bound")).expect("the test waits");
                let process = |_| ProcessUse::default();
                let state = AdminState {
                    process,
                    ..AdminState::of(view, 1_000, &[], SharedTokens::default())
                };
                let listener = AdminListener::new(listener, None, times, 64);
                let router = router(state).into_make_service_with_connect_info::<Seen>();
                let _ = axum::serve(listener, router).await;
            });
        });
        hear.recv().expect("the server starts")
    }

    /// Sends `request` and returns everything that the server sends until it closes.
    fn answer(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = std::net::TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(request).expect("writes");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get_path(address: SocketAddr, path: &str) -> String {
        answer(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
    }

    #[test]
    fn health_and_readiness_follow_the_node() {
        let view = NodeView::with_meters(vec![], 1);
        let address = served(view.clone(), TIMES);
        let of = |path| get_path(address, path)[9..12].to_string();
        assert_eq!((of("/healthz").as_str(), of("/readyz").as_str()), ("200", "200"));
        let two = Membership {
            localhost: "a".into(),
            nodes: vec!["a".into(), "b".into()],
            ..Membership::default()
        };
        let none = Membership { nodes: vec![], ..two.clone() };
        let member = View::build(None, &two).expect("two members");
        let left = Arc::new(View::build(Some(&member), &none).expect("none any more"));
        let mut without = view.clone();
        without.cluster = Arc::new(ClusterDesk::of(left, None));
        let alone = served(without, TIMES);
        assert!(get_path(alone, "/readyz").ends_with("left its cluster\n"));
        assert_eq!(&get_path(alone, "/healthz")[9..12], "200");
        for (is_refused, status) in [(1, "503"), (0, "200"), (1, "503")] {
            view.meters[0].writes_refused.set(is_refused);
            assert_eq!((of("/healthz").as_str(), of("/readyz").as_str()), ("200", status));
        }
        assert!(get_path(address, "/readyz").contains("takes no writes"));
        view.meters[0].writes_refused.set(0);
        let meters = &view.meters[0];
        for gauge in [&meters.journal_away, &meters.journal_full, &meters.journal_stalled] {
            assert_eq!(of("/readyz"), "200");
            gauge.set(1);
            assert!(get_path(address, "/readyz").contains("503") && of("/healthz") == "200");
            gauge.set(0);
        }
        view.set_state(NodeState::Stopping);
        assert_eq!((of("/healthz").as_str(), of("/readyz").as_str()), ("200", "503"));
        assert!(get_path(address, "/readyz").ends_with("stopping\n"));
        view.set_state(NodeState::Failed);
        assert_eq!((of("/healthz").as_str(), of("/readyz").as_str()), ("503", "503"));
    }

    #[test]
    fn every_answer_ends_its_connection() {
        let address = served(NodeView::with_meters(vec![], 2), TIMES);
        let twice =
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(answer(address, twice).matches("HTTP/1.1 200").count(), 1);
        let metrics = get_path(address, "/metrics");
        assert!(metrics.contains("text/plain; version=0.0.4"), "{metrics}");
        let asked =
            "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";
        let metrics = answer(address, asked.as_bytes());
        assert!(metrics.contains("openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
        let status = get_path(address, "/status?all");
        let body = status.split_once("\r\n\r\n").expect("a head").1;
        let document: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(document["per_core"][1]["shard"], 1);
        assert!(status.contains("\r\nx-content-type-options: nosniff\r\n"), "{status}");
        let post =
            answer(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nX-Chronos-Order: 1\r\n\r\n");
        assert!(post.starts_with("HTTP/1.1 405"), "{post}");
        let form = answer(address, b"POST /cluster/reload HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(form.starts_with("HTTP/1.1 403"), "{form}");
        let callback = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Sequence-Number: 1\r\n\r\n";
        let callback = answer(address, callback);
        assert!(callback.starts_with("HTTP/1.1 403"), "{callback}");
        let cut = get_path(address, "/timers/by-name/invoice#1");
        assert!(cut.starts_with("HTTP/1.1 400") && cut.contains("%23"), "{cut}");
        let rebound = answer(address, b"GET /cluster HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
        assert!(get_path(address, "/nothing").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn errors_are_problems_for_those_who_accept_them() {
        let address = served(NodeView::with_meters(vec![], 1), TIMES);
        let asked = |line: &str, accept: &str| {
            let request = format!("{line} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
            answer(address, request.as_bytes())
        };
        let problem = |line: &str| {
            let answer = asked(line, "text/plain, application/problem+json;q=0.5");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains("content-type: application/problem+json"), "{head}");
            assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
            let problem: serde_json::Value = serde_json::from_str(body).expect("JSON");
            assert_eq!(problem["status"], head[9..12].parse::<u16>().expect("a status"));
            (problem["type"].clone(), problem["detail"].as_str().expect("text").to_owned())
        };
        assert_eq!(
            problem("GET /nothing"),
            ("urn:chronos:error:no-path".into(), NOT_FOUND.trim().into())
        );
        assert_eq!(problem("POST /cluster/reload").0, "urn:chronos:error:forbidden");
        assert_eq!(problem("GET /statistics/tags?scope=x").0, "urn:chronos:error:request");
        let method = "GET /cluster/reload";
        assert_eq!(
            problem(method),
            ("urn:chronos:error:method".into(), NOT_ALLOWED.trim_end().into())
        );
        assert!(asked(method, "*/*").contains("\r\nallow: POST"), "its other headers stay");
        for accept in ["*/*", "application/problem+json;q=0", "application/json"] {
            let plain = asked("GET /nothing", accept);
            assert!(
                plain.contains("content-type: text/plain") && plain.ends_with(NOT_FOUND),
                "{plain}"
            );
        }
        assert!(asked("GET /healthz", "application/problem+json").ends_with("ok\n"));
    }

    #[test]
    fn tags_are_told_by_name() {
        let view = NodeView::with_meters(vec![], 2);
        let address = served(view.clone(), TIMES);
        let body = |path: &str| {
            let answer = get_path(address, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let body = answer.split_once("\r\n\r\n").expect("a head").1;
            serde_json::from_str::<serde_json::Value>(body).expect("JSON")
        };
        assert_eq!(body("/statistics/tags")["tags"], serde_json::json!({}));
        for (shard, kinds) in [(0, &["CALL"][..]), (1, &["CALL", "a/b c"])] {
            let mut counts = TagCounts::new(8, 1);
            let tags: Vec<_> = kinds.iter().map(|kind| Tag { kind, count: 3 }).collect();
            counts.enter(TagGroup(0), &tags, crate::ring::now().mono.tick_floor(), || true);
            assert!(!view.meters[shard].tags.tell(&mut counts));
        }
        assert_eq!(body("/statistics/tags")["tags"]["CALL"]["current"], 6);
        let one = body("/statistics/tags/a%2Fb%20c");
        assert_eq!((&one["tag"], &one["current"]), (&"a/b c".into(), &3.into()));
        assert_eq!(body("/statistics/tags/a/b%20c")["current"], 3);
        let never = body("/statistics/tags/never?scope=node");
        assert_eq!((&never["current"], &never["scope"]), (&0.into(), &"node".into()));
        assert_eq!(never["current_5_minutes"]["high"], 0);
        assert!(get_path(address, "/metrics").contains("chronos_tag_current{tag=\"CALL\"} 6"));
        assert!(get_path(address, "/statistics/tags?scope=world").starts_with("HTTP/1.1 400"));
        let alone = get_path(address, "/statistics/tags?scope=cluster");
        assert!(alone.starts_with("HTTP/1.1 501"), "{alone}");
    }

    #[test]
    fn garbage_and_silence_hold_up_nobody() {
        // No connection reaches its time limit while this test runs.
        let hour = Duration::from_secs(3_600);
        let address = served(NodeView::with_meters(vec![], 1), Times { head: hour, life: hour });
        let silent: Vec<_> = (0..200)
            .map(|_| {
                let mut stream = std::net::TcpStream::connect(address).expect("connects");
                stream.write_all(b"GET /metrics HT").expect("writes");
                stream
            })
            .collect();
        assert!(get_path(address, "/healthz").starts_with("HTTP/1.1 200"));
        drop(silent);
        let short = Duration::from_millis(100);
        let impatient = served(NodeView::with_meters(vec![], 1), Times { head: short, life: hour });
        assert_eq!(answer(impatient, b"GET /healthz HTTP/1.1\r\nHost: x\r\n"), "", "cut off");
        let garbage = answer(address, &[0xff; 4096]);
        assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"), "{garbage}");
        let mut endless = b"GET / HTTP/1.1\r\n".to_vec();
        endless.extend((0..200).flat_map(|i| format!("h{i}: x\r\n").into_bytes()));
        endless.extend(b"\r\n");
        assert!(answer(address, &endless).starts_with("HTTP/1.1 431"));
        assert!(get_path(address, "/healthz").starts_with("HTTP/1.1 200"));
    }
}
