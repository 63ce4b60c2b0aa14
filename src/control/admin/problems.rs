//! Errors of the admin API as `application/problem+json`, for those who accept it.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::wire::accept::accepts;
use crate::wire::problem::{Kind, PROBLEM_TYPE, write_problem};

/// Most bytes of an error's text. A longer text is left out of the problem.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Serves a request. Makes an error a problem if the request accepts it.
pub(crate) async fn as_problem(request: Request, next: Next) -> Response {
    let is_wanted = wants_problem(request.headers());
    let response = next.run(request).await;
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if is_wanted && is_error { problem_of(response).await } else { response }
}

fn wants_problem(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(ACCEPT).iter();
    values.any(|value| accepts(value.as_bytes(), PROBLEM_TYPE.as_bytes()))
}

/// The same answer with its text in a problem. Errors of the HTTP library have no text.
async fn problem_of(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let status = parts.status;
    let text = to_bytes(body, TEXT_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let detail = match text.trim() {
        "" => status.canonical_reason().unwrap_or("no reason is known"),
        text => text,
    };
    let mut problem = Vec::new();
    write_problem(Kind::of(status.as_u16(), detail), status.as_u16(), detail, &mut problem);
    problem.push(b'\n');
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
    Response::from_parts(parts, Body::from(problem))
}
