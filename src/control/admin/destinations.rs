//! `/destinations`: how much callback servers may be asked, and how they are.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::api::{AdminState, json_text};
use crate::control::destinations::desk::Unanswered;

/// A page of all destinations.
pub(super) async fn all(State(state): State<AdminState>, uri: Uri) -> Response {
    answer(state.view.destinations.all(uri.query().unwrap_or("")).await)
}

/// One destination.
pub(super) async fn one(State(state): State<AdminState>, Path(name): Path<String>) -> Response {
    answer(state.view.destinations.one(&name).await)
}

/// Sets the rule of a destination. When this is answered, the cores of this node keep it.
pub(super) async fn put(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    match state.view.destinations.put(&name, &body) {
        Ok(()) => {
            state.view.refresh().await;
            answer(state.view.destinations.one(&name).await)
        }
        Err(unanswered) => answer(Err(unanswered)),
    }
}

/// Takes the order for a destination back. Answers the rule that holds then.
pub(super) async fn delete(State(state): State<AdminState>, Path(name): Path<String>) -> Response {
    match state.view.destinations.delete(&name) {
        Ok(()) => {
            state.view.refresh().await;
            answer(state.view.destinations.now(&name).await)
        }
        Err(unanswered) => answer(Err(unanswered)),
    }
}

fn answer(result: Result<Value, Unanswered>) -> Response {
    match result {
        Ok(document) => json_text(&document),
        Err((status, told)) => (status, format!("{told}\n")).into_response(),
    }
}
