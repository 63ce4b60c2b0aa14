//! Checks across the keys of `[tls]`, and with the addresses of the other sections.

use std::net::SocketAddr;

use super::callback_tls;
use super::error::Origin;
use super::settings::Config;
use crate::tls::acceptor::ClientAuth;

/// Adds a text for each pair of values that are valid alone and contradict each other.
pub(crate) fn check(config: &Config, conflicts: &mut Vec<String>) {
    let tls = &config.tls;
    let told = |name| config.describe("tls", name);
    if tls.cert.is_empty() != tls.key.is_empty() {
        conflicts.push(format!(
            "{} and {}: a certificate and its key belong together; set both, or none for no TLS",
            told("cert"),
            told("key")
        ));
    }
    if tls.client_auth != ClientAuth::Off && tls.client_ca.is_empty() {
        conflicts.push(format!(
            "{} needs authorities to check certificates with; set [tls] client_ca",
            told("client_auth")
        ));
    }
    if tls.client_auth == ClientAuth::Off && !tls.client_ca.is_empty() {
        conflicts.push(format!(
            "{} is used by nobody as {}; set client_auth to \"optional\" or \"required\", or leave \
             client_ca out",
            told("client_ca"),
            told("client_auth")
        ));
    }
    let is_used = *config.origin("node", "listen_tls") != Origin::Default && tls.listen.is_some();
    if is_used && tls.cert.is_empty() {
        conflicts.push(format!(
            "{} needs a certificate; set [tls] cert and [tls] key",
            config.describe("node", "listen_tls")
        ));
    }
    callback_tls::check(&config.callback_tls, conflicts);
    let timers = config.tls.address(config.node.listen).filter(|_| config.node.serves_timers);
    let timestamps = config.timestamp.served.listen_tls;
    let timestamps = timestamps.filter(|_| config.timestamp.enabled && config.has_tls());
    if let Some(own) = timers {
        let told = format!("clients over TLS connect to {own}");
        check_port(config, (own, &told, "[node]"), timestamps, conflicts);
    }
    if let Some(own) = timestamps {
        let told = config.describe("timestamp", "listen_tls");
        check_port(config, (own, &told, "[timestamp]"), None, conflicts);
    }
}

/// Checks that nobody else listens where clients connect over TLS. `other`: another such listener,
/// of timestamps.
fn check_port(
    config: &Config,
    (own, told, section): (SocketAddr, &str, &str),
    other: Option<SocketAddr>,
    conflicts: &mut Vec<String>,
) {
    let timestamps = config.timestamp.served.listen.filter(|_| config.timestamp.enabled);
    let others = [
        ("node", "listen", Some(config.node.listen).filter(|_| config.opens_listen())),
        ("admin", "listen", Some(config.admin.listen).filter(|_| config.admin.enabled)),
        ("timestamp", "listen", timestamps),
        ("timestamp", "listen_tls", other),
    ];
    for (other_section, name, other) in others {
        let overlaps = |other: SocketAddr| {
            let is_any = own.ip().is_unspecified() || other.ip().is_unspecified();
            own.port() != 0 && own.port() == other.port() && (own.ip() == other.ip() || is_any)
        };
        if other.is_some_and(overlaps) {
            conflicts.push(format!(
                "{told} and {} takes the same port; set {section} listen_tls to another",
                config.describe(other_section, name)
            ));
        }
    }
}
