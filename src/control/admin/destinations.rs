//! `/destinations`: how much callback servers may be asked, and how they are.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::node_view::NodeView;
use crate::control::destinations::desk::Unanswered;

/// A page of all destinations.
pub(super) async fn all(State(view): State<NodeView>, uri: Uri) -> Response {
    answer(view.destinations.all(uri.query().unwrap_or("")).await)
}

/// One destination.
pub(super) async fn one(State(view): State<NodeView>, Path(name): Path<String>) -> Response {
    answer(view.destinations.one(&name).await)
}

/// Sets the rule of a destination. When this is answered, the cores of this node keep it.
pub(super) async fn put(
    State(view): State<NodeView>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    match view.destinations.put(&name, &body).await {
        Ok(()) => {
            view.refresh().await;
            answer(view.destinations.one(&name).await)
        }
        Err(unanswered) => answer(Err(unanswered)),
    }
}

/// Takes the order for a destination back. Answers the rule that holds then.
pub(super) async fn delete(State(view): State<NodeView>, Path(name): Path<String>) -> Response {
    match view.destinations.delete(&name).await {
        Ok(()) => {
            view.refresh().await;
            answer(view.destinations.now(&name).await)
        }
        Err(unanswered) => answer(Err(unanswered)),
    }
}

fn answer(result: Result<Value, Unanswered>) -> Response {
    match result {
        Ok(document) => {
            ([(CONTENT_TYPE, "application/json")], format!("{document:#}\n")).into_response()
        }
        Err((status, told)) => (status, format!("{told}\n")).into_response(),
    }
}
