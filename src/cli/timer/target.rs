//! One timer: how it is named on the command line, and asked for.

use clap::Args;

use crate::cli::ending::NotDone;
use crate::cli::service::{Door, Failure, Reply, Service, encoded};
use crate::control::http_client::HttpRequest;

/// Which timer.
#[derive(Clone, Debug, Args)]
#[group(required = false, multiple = true)]
pub(super) struct TargetFlags {
    /// The id, or the path /timers/ID
    #[arg(value_name = "ID", conflicts_with = "name")]
    pub(super) id: Option<String>,

    /// The name that the timer was created under
    #[arg(long)]
    pub(super) name: Option<String>,

    /// Only if this is its version, as get shows it; update and delete need --name for this
    #[arg(long, value_name = "VERSION")]
    if_match: Option<String>,
}

impl TargetFlags {
    /// The path, behind which an action may stand.
    pub(super) fn path(&self) -> Result<String, NotDone> {
        match (&self.id, &self.name) {
            (None, Some(name)) => Ok(format!("/timers/by-name/{}", encoded(name))),
            (Some(id), None) => Ok(format!("/timers/{}", encoded(bare(id)))),
            _ => Err(NotDone::Usage("expected the ID of a timer, or --name NAME".into())),
        }
    }

    /// The condition that the request has.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        self.if_match.iter().map(|version| ("If-Match", quoted(version))).collect()
    }
}

/// The id without the path before it.
pub(super) fn bare(id: &str) -> &str {
    id.strip_prefix("/timers/").unwrap_or(id)
}

/// A version as it stands in a header.
fn quoted(version: &str) -> String {
    match version == "*" || version.starts_with('"') {
        true => version.to_owned(),
        false => format!("\"{version}\""),
    }
}

/// Sends a request about a timer to the port of clients.
pub(super) fn send(
    service: &Service,
    (method, path): (&str, &str),
    headers: &[(&'static str, String)],
    body: &[u8],
) -> Result<Reply, Failure> {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    service.ask(Door::Clients, HttpRequest { method, path, headers: &headers, body })
}
