//! Lists and numbers of timers for operators: `GET /timers` and `GET /timers/count`, as holders of
//! tokens get them on the clients' port. A core puts each answer together; its JSON is written
//! here, off the cores.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::node_view::NodeView;
use crate::core::lists::ListAsked;
use crate::node::clients::document::write_document;
use crate::node::clients::list_answers::{write_count, write_list};
use crate::node::list_orders::Ordered;
use crate::ring;
use crate::shard::effects::{Answer, Internal};
use crate::wire::list_query::{ListQuery, ListQueryError, read_count_query};

/// Answers a page of a list.
pub(super) async fn list(State(view): State<NodeView>, uri: Uri) -> Response {
    let query = ListQuery::read(uri.query().unwrap_or(""), ring::now().wall);
    answer(&view, query.map(ListAsked::Page)).await
}

/// Answers numbers of timers.
pub(super) async fn count(State(view): State<NodeView>, uri: Uri) -> Response {
    let query = read_count_query(uri.query().unwrap_or(""));
    answer(&view, query.map(|has_spans| ListAsked::Count { has_spans })).await
}

async fn answer(view: &NodeView, asked: Result<ListAsked, ListQueryError>) -> Response {
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let mut body = Vec::new();
    match view.list(Ordered::List(asked)).await {
        Some(Answer::Internal(internal)) => match *internal {
            Internal::List(page) => write_list(&page, write_document, &mut body),
            Internal::Count(count) => write_count(&count, &mut body),
            _ => {}
        },
        Some(Answer::Refused(refusal)) => {
            return refused(Some(refusal.to_string()));
        }
        _ => {}
    }
    if body.is_empty() {
        return refused(None);
    }
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Answers that the cores did not do what was asked.
pub(super) fn refused(reason: Option<String>) -> Response {
    let reason = reason.unwrap_or_else(|| "the cores do not answer; retry in a moment".to_owned());
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}
