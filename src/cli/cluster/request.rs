//! Requests of `chronos cluster` to admin APIs: one per connection, bounded in time and bytes.

use std::time::Duration;

use serde_json::Value;

use super::context::Context;
use crate::cli::admin_client::{AdminError, AdminRequest};

/// Longest time of one request. A node answers within milliseconds unless its machine is lost.
const REQUEST_TIME: Duration = Duration::from_secs(3);
/// Longest answer, in bytes: 128 members with names of at most 255 bytes, each three times, are 150
/// KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

impl Context {
    /// Sends a request to `host:port` or `https://host:port` and returns the JSON document of an
    /// answer 200. Takes at most 3 s.
    pub(super) fn request(
        &self,
        admin: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AdminError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let (patience, answer_bytes_max) = (REQUEST_TIME, ANSWER_BYTES_MAX);
        let request = AdminRequest { method, path, body: &body, patience, answer_bytes_max };
        self.client.ask(admin, request)
    }
}
