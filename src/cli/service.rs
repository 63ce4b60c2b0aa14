//! How commands ask a node: at the clients' port, or at the admin API where lists are asked for
//! without a token. One exchange a connection, bounded in time and bytes.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::admin_client::{AdminClient, AdminError, AdminRequest, TlsFlags, needed, strange};
use super::shown::clean;
use super::token::authorization;
use crate::control::http_client::{HttpAnswer, HttpError, HttpRequest, is_over_tls, place_in};

/// Longest time of one exchange: a core ends a page of a list within 2 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer in bytes: a page has 1 MiB of timers, and its last timer may be of 256 KiB, each
/// byte of it six characters.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The port of the admin API where nothing else is said.
const ADMIN_PORT: u16 = 7254;

/// What all commands on timers have in common.
#[derive(Clone, Debug, Args)]
pub(super) struct ServiceFlags {
    /// The node to ask, over TLS with https:// before it
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:7253")]
    #[arg(value_parser = address)]
    server: String,

    /// The admin API to ask for lists, counts and jobs [default: with CHRONOS_TOKEN --server itself
    /// is asked, otherwise port 7254 of its host]
    #[arg(long, global = true, value_name = "HOST:PORT", value_parser = address)]
    admin: Option<String>,

    #[command(flatten)]
    tls: TlsFlags,

    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// What all commands on the admin API of a node have in common.
#[derive(Clone, Debug, Args)]
pub(super) struct OperatorFlags {
    /// The admin API of the node, over TLS with https:// before it
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:7254")]
    #[arg(value_parser = address)]
    pub(super) admin: String,

    #[command(flatten)]
    pub(super) tls: TlsFlags,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Reads `host:port`, with `http://` or `https://` before it.
pub(super) fn address(text: &str) -> Result<String, String> {
    let place = place_in(text);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    match place.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && is_port(port) => {
            Ok(text.to_owned())
        }
        _ => Err("expected host:port, or https://host:port, such as 127.0.0.1:7253".into()),
    }
}

/// Where something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// The port of clients.
    Clients,
    /// The admin API.
    Operators,
}

/// An answer with a status of success.
#[derive(Debug)]
pub(super) struct Reply {
    address: String,
    status: u16,
    /// The JSON of the body; null where there is none.
    pub(super) document: Value,
    /// The path of the timer.
    pub(super) location: Option<String>,
    /// The version of the timer.
    pub(super) version: Option<String>,
}

impl Reply {
    /// Returns a member that each such answer of a node has.
    pub(super) fn needed(&self, member: &str) -> Result<&Value, Failure> {
        let found = needed(&self.address, self.status, &self.document, member);
        found.map_err(|error| Failure::Unanswered(error.to_string()))
    }

    /// Returns the document, which has this member if a node answers.
    pub(super) fn having(self, member: &str) -> Result<Value, Failure> {
        self.needed(member)?;
        Ok(self.document)
    }

    /// Returns the path of the timer, which each such answer of a node has.
    pub(super) fn needed_location(&self) -> Result<&str, Failure> {
        let told = || Failure::Unanswered(strange(&self.address, self.status, "Location"));
        self.location.as_deref().ok_or_else(told)
    }
}

/// Why there is no such answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The node refused.
    #[error("{address} refuses: {text} (status {status})")]
    Refused { address: String, status: u16, text: String },
    /// There was no answer in time. The text says what to do.
    #[error("{0}")]
    Late(String),
    /// Nobody answered, or nobody was asked. The text says what to do.
    #[error("{0}")]
    Unanswered(String),
}

impl Failure {
    /// Whether the node has no such thing.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Failure::Refused { status: 404, .. })
    }
}

/// A node, and how it is asked.
#[derive(Debug)]
pub(super) struct Service {
    client: AdminClient,
    server: String,
    admin: Option<String>,
}

impl Service {
    /// Reads the files of the flags. Error: one of them cannot be used.
    pub(super) fn new(flags: &ServiceFlags) -> Result<Self, String> {
        let client = AdminClient::new(&flags.tls)?;
        Ok(Self { client, server: flags.server.clone(), admin: flags.admin.clone() })
    }

    /// The admin API at this address alone.
    pub(super) fn of_operators(client: &AdminClient, admin: &str) -> Self {
        Self { client: client.clone(), server: String::new(), admin: Some(admin.to_owned()) }
    }

    /// Where lists, counts, jobs and dead letters are asked for: the clients' port answers them to
    /// holders of tokens alone.
    pub(super) fn door_of_lists(&self) -> Door {
        match self.admin.is_none() && authorization().is_some() {
            true => Door::Clients,
            false => Door::Operators,
        }
    }

    /// Sends a request and returns the answer if its status is one of success.
    pub(super) fn ask(&self, door: Door, asked: HttpRequest<'_>) -> Result<Reply, Failure> {
        let address = match door {
            Door::Clients => self.server.clone(),
            Door::Operators => self.admin_address()?,
        };
        let request = AdminRequest {
            method: asked.method,
            path: asked.path,
            body: "",
            patience: PATIENCE,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let is_client = door == Door::Clients;
        let sent = self.client.send(&address, request, asked.body, asked.headers, is_client);
        reply_of(&address, is_client, sent)
    }

    fn admin_address(&self) -> Result<String, Failure> {
        if let Some(admin) = &self.admin {
            return Ok(admin.clone());
        }
        if is_over_tls(&self.server) {
            return Err(Failure::Unanswered(format!(
                "lists of {} need a token or the admin API: set CHRONOS_TOKEN, or name --admin \
                 https://HOST:PORT",
                clean(&self.server)
            )));
        }
        let place = place_in(&self.server);
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        Ok(format!("{host}:{ADMIN_PORT}"))
    }
}

/// Reads an answer of any status.
fn reply_of(
    address: &str,
    is_client: bool,
    sent: Result<HttpAnswer, AdminError>,
) -> Result<Reply, Failure> {
    let address = clean(address);
    let flag = if is_client { "--server" } else { "--admin" };
    let unanswered = |error: String| Failure::Unanswered(error);
    let answer = match sent {
        Ok(answer) => answer,
        Err(AdminError::NotSent(text)) => return Err(unanswered(text)),
        Err(AdminError::Http(error @ HttpError::Io(_))) => {
            return Err(unanswered(format!(
                "{address} does not answer: {error}. Expected a node there: start it, or name \
                 another with {flag} HOST:PORT"
            )));
        }
        Err(error @ AdminError::Http(HttpError::Late(_))) => {
            return Err(Failure::Late(format!("{address} gives no answer: {error}")));
        }
        Err(error) => return Err(unanswered(format!("{address} gives no answer: {error}"))),
    };
    if !(200..300).contains(&answer.status) {
        let body = String::from_utf8_lossy(&answer.body);
        let text = match body.trim() {
            "" => answer.header("reason").unwrap_or("no reason given"),
            text => text,
        };
        let mut text = clean(text).into_owned();
        if let (false, Some(remedy)) =
            (text.contains("CHRONOS_TOKEN"), remedy(answer.status, &text))
        {
            text += remedy;
        }
        return Err(Failure::Refused { address: address.into(), status: answer.status, text });
    }
    let document = match answer.body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&answer.body).map_err(|error| {
            unanswered(format!("{address}: expected JSON, got something else: {error}"))
        })?,
    };
    let header = |name: &str| answer.header(name).map(str::to_owned);
    let (location, version) = (header("location"), header("etag"));
    Ok(Reply { address: address.into(), status: answer.status, document, location, version })
}

/// What to do about a refusal for want of a token.
fn remedy(status: u16, text: &str) -> Option<&'static str> {
    match status {
        401 => Some("; set CHRONOS_TOKEN to the token"),
        // The node knows no tokens.
        403 if text.contains("none configured") => {
            Some("; here: unset CHRONOS_TOKEN, or name the admin API with --admin")
        }
        403 if text.contains("token") => Some("; set CHRONOS_TOKEN to a token that may do this"),
        _ => None,
    }
}

/// Returns a text as a part of a path or query.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Returns the parameters that are given as a query, without its question mark.
pub(super) fn query(parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    given.map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["127.0.0.1:7253", "https://a.example:1", "[::1]:7253", "http://a:7253/"] {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for bad in ["", "a", ":1", "a:0", "a:65536", "a:x", "ftp://a:1", "a/b:1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_stands_in_a_query_is_encoded() {
        let value = |text: &str| Some(text.to_owned());
        let parameters = [("tag", value("a b&c=/ü")), ("host", None), ("limit", value("7"))];
        assert_eq!(query(&parameters), "tag=a%20b%26c%3D%2F%C3%BC&limit=7");
    }
}
