//! Requests of `chronos cluster` to admin APIs: one per connection, bounded in time and bytes.

use std::time::Duration;

use serde_json::Value;

use crate::cli::runtime::block_on;
use crate::cli::token::authorization;
use crate::control::admin::guard::ORDER_HEADER;
use crate::control::http_client::{HttpClient, HttpError, HttpRequest};

/// Longest time of one request. A node answers within milliseconds unless its machine is lost.
const REQUEST_TIME: Duration = Duration::from_secs(3);
/// Longest answer, in bytes: 128 members with names of at most 255 bytes, each three times, are 150
/// KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Sends a request to `host:port` and returns the JSON document of an answer 200. Takes at most 3
/// s.
pub(super) fn request(
    admin: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, HttpError> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let token = authorization();
    let mut headers = vec![("Content-Type", "application/json")];
    if method != "GET" {
        headers.push((ORDER_HEADER, "1"));
        headers.extend(token.as_deref().map(|token| ("Authorization", token)));
    }
    let request = HttpRequest { method, path, headers: &headers, body: body.as_bytes() };
    let mut client = HttpClient::new(admin, REQUEST_TIME, ANSWER_BYTES_MAX);
    block_on(async { client.ask(request).await?.document() })?
}
