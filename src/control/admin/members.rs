//! `/cluster/members`: how each member sees the cluster. The node asks the admin listeners of the
//! others (`cluster.admin_addresses`), once for all who ask within 2 s with the same token. Who
//! shows another token waits for nobody else.

use std::sync::{Arc, Mutex as Lock, PoisonError};
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

/// Tokens whose answers are kept. With one more the token that was shown longest ago is forgotten,
/// and its answers with it.
const TOKENS_MAX: usize = 16;

/// What the others have said to one token.
#[derive(Debug, Default)]
struct Said {
    at: Option<Instant>,
    answers: Vec<Value>,
}

/// A place for what is said to one token. Who asks holds it, whether it is forgotten or not.
type Place = Arc<Mutex<Said>>;

/// A place for each token, the one that was shown last behind all others.
type Places = Vec<(Option<String>, Place)>;

/// The others, and what they have said.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberBoard {
    members: Arc<std::sync::OnceLock<Members>>,
    said: Arc<Lock<Places>>,
}

impl MemberBoard {
    /// Sets which members are asked. Only the first call counts.
    pub(super) fn set_members(&self, members: Members) {
        // A second list would be a second owner of the configuration.
        let _ = self.members.set(members);
    }

    async fn answers(&self, token: Option<String>) -> Vec<Value> {
        let Some(members) = self.members.get() else { return Vec::new() };
        // In the clear no token is shown to the others, so all who ask get the same answers.
        let token = token.filter(|_| members.addresses.iter().any(|at| is_over_tls(at)));
        let place = self.place_of(token.clone());
        // Who comes while the others are asked waits here for the same answers.
        let mut said = place.lock().await;
        if said.at.is_none_or(|at| at.elapsed() >= KEPT) {
            said.answers = ask(members, token.as_deref()).await;
            said.at = Some(Instant::now());
        }
        said.answers.clone()
    }

    fn place_of(&self, token: Option<String>) -> Place {
        // Nothing that holds the lock can fail.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let known = said.iter().position(|(shown, _)| *shown == token);
        let place = known.map_or_else(Place::default, |at| said.remove(at).1);
        if said.len() >= TOKENS_MAX {
            said.remove(0);
        }
        said.push((token, place.clone()));
        place
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
        let (connector, names) = (connector.clone(), members.names.clone());
        asked.spawn(async move {
            let mut client = HttpClient::new(&address, MEMBER_WAIT, MEMBER_BYTES_MAX).named(names);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn board(address: &str) -> MemberBoard {
        let board = MemberBoard::default();
        let addresses = vec![address.to_owned()];
        board.set_members(Members { addresses, ..Members::default() });
        board
    }

    fn token(at: usize) -> Option<String> {
        Some(format!("Bearer {at}"))
    }

    #[test]
    fn each_of_the_last_tokens_has_a_place_of_its_own() {
        let board = board("https://127.0.0.1:1");
        let places: Vec<Place> = (0..TOKENS_MAX).map(|at| board.place_of(token(at))).collect();
        let is_kept = |at: usize| Arc::ptr_eq(&places[at], &board.place_of(token(at)));
        assert!((0..TOKENS_MAX).all(is_kept));
        board.place_of(None);
        assert_eq!(board.said.lock().expect("no test panics with it").len(), TOKENS_MAX);
        assert!((1..TOKENS_MAX).all(is_kept), "the first was shown longest ago");
        assert!(!is_kept(0));
    }

    #[tokio::test]
    async fn who_shows_another_token_does_not_wait() {
        let board = board("https://127.0.0.1:1");
        let place = board.place_of(token(1));
        let first = place.lock().await;
        assert_eq!(board.answers(token(2)).await.len(), 1);
        let waits = board.answers(token(1));
        assert!(tokio::time::timeout(Duration::from_millis(20), waits).await.is_err());
        drop(first);
        assert_eq!(board.answers(token(1)).await.len(), 1);
    }

    #[tokio::test]
    async fn in_the_clear_all_tokens_get_the_same_answers() {
        let board = board("127.0.0.1:1");
        for at in 0..3 {
            assert_eq!(board.answers(token(at)).await.len(), 1);
        }
        assert_eq!(board.said.lock().expect("no test panics with it").len(), 1);
    }
}
