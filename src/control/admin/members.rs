//! `/cluster/members`: how each member sees the cluster. The node asks the admin listeners of the
//! others (`cluster.admin_addresses`), once for all who ask within 2 s.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::answers::json_line;
use super::node_view::NodeView;
use crate::control::http_client::{HttpClient, HttpRequest, is_over_tls};
use crate::control::tags::board::Members;

/// Longest wait for a member. A member that does not answer is shown so.
const MEMBER_WAIT: Duration = Duration::from_millis(1_500);
/// Longest answer of a member: 128 members take some 20 KiB.
const MEMBER_BYTES_MAX: usize = 1 << 20;
/// How long what the others have said is told to whoever asks next.
const KEPT: Duration = Duration::from_secs(2);

/// What the others have said.
#[derive(Debug, Default)]
struct Said {
    at: Option<Instant>,
    /// The token with which they were asked. Who shows another one asks again.
    token: Option<String>,
    answers: Vec<Value>,
}

/// The others, and what they have said.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberBoard {
    members: Arc<std::sync::OnceLock<Members>>,
    said: Arc<Mutex<Said>>,
}

impl MemberBoard {
    /// Sets which members are asked. Only the first call counts.
    pub(super) fn set_members(&self, members: Members) {
        // A second list would be a second owner of the configuration.
        let _ = self.members.set(members);
    }

    async fn answers(&self, token: Option<String>) -> Vec<Value> {
        let Some(members) = self.members.get() else { return Vec::new() };
        // Who comes while the others are asked waits here for the same answers.
        let mut said = self.said.lock().await;
        let is_new = said.at.is_some_and(|at| at.elapsed() < KEPT);
        if !is_new || said.token != token {
            said.answers = ask(members, token.as_deref()).await;
            said.at = Some(Instant::now());
            said.token = token;
        }
        said.answers.clone()
    }
}

/// Answers the views of all members, this node's first.
pub(super) async fn members(
    State(board): State<MemberBoard>,
    State(view): State<NodeView>,
    headers: HeaderMap,
) -> Response {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let others = board.answers(token.map(str::to_owned)).await;
    let own = view.cluster.render(&view.meters);
    let own = json!({ "address": null, "view": own });
    let views: Vec<Value> = std::iter::once(own).chain(others).collect();
    json_line(&json!({ "views": views }))
}

/// Asks all members at the same time.
async fn ask(members: &Members, token: Option<&str>) -> Vec<Value> {
    let mut asked = JoinSet::new();
    let connector = members.connector.get();
    for address in members.addresses.clone() {
        let token = token.filter(|_| is_over_tls(&address)).map(str::to_owned);
        let connector = connector.clone();
        asked.spawn(async move {
            let mut client = HttpClient::new(&address, MEMBER_WAIT, MEMBER_BYTES_MAX);
            if let Some(connector) = connector {
                client = client.with(connector);
            }
            let headers: Vec<_> = token.iter().map(|t| ("Authorization", t.as_str())).collect();
            let request = HttpRequest { headers: &headers, ..HttpRequest::get("/cluster") };
            let answer = client.ask(request).await.and_then(|answer| answer.document::<Value>());
            let told = match answer {
                Ok(view) => json!({ "address": address, "view": view }),
                Err(error) => json!({ "address": address, "error": error.to_string() }),
            };
            (address, told)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    answers.into_iter().map(|(_, told)| told).collect()
}
