//! The forms of answers of the admin API.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// The text of 405.
pub(super) const NOT_ALLOWED: &str =
    "method not allowed here; the header Allow has those that are\n";

/// A document as people read it.
pub(super) fn json_text(document: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], format!("{document:#}\n")).into_response()
}

/// A document in one line, for what is asked for often.
pub(super) fn json_line(document: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], format!("{document}\n")).into_response()
}
