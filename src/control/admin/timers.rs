//! Lists of timers for operators: `GET /timers`, as tokens get it on the clients' port. A core puts
//! each page together; its JSON is written here, off the cores.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::node_view::NodeView;
use crate::node::clients::document::write_document;
use crate::node::clients::list_answers::write_list;
use crate::ring;
use crate::shard::effects::{Answer, Internal};
use crate::wire::list_query::ListQuery;

/// Answers a page of a list.
pub(super) async fn list(State(view): State<NodeView>, uri: Uri) -> Response {
    let query = match ListQuery::read(uri.query().unwrap_or(""), ring::now().wall) {
        Ok(query) => query,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let refused = match view.list(query).await {
        Some(Answer::Internal(internal)) => match *internal {
            Internal::List(page) => {
                let mut body = Vec::new();
                write_list(&page, write_document, &mut body);
                return ([(CONTENT_TYPE, "application/json")], body).into_response();
            }
            _ => None,
        },
        Some(Answer::Refused(refusal)) => Some(refusal.to_string()),
        _ => None,
    };
    let reason = refused.unwrap_or_else(|| "the cores do not answer; retry in a moment".to_owned());
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}
