//! Checks across the keys of `[tls]`, and with the addresses of the other sections.

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
    check_ports(config, conflicts);
}

fn check_ports(config: &Config, conflicts: &mut Vec<String>) {
    let own = config.tls.address(config.node.listen).filter(|_| config.node.serves_timers);
    let Some(own) = own else { return };
    let others = [
        ("node", config.node.listen, true),
        ("admin", config.admin.listen, config.admin.enabled),
        ("timestamp", config.timestamp.served.listen, config.timestamp.enabled),
    ];
    for (section, other, is_open) in others {
        let overlap =
            own.ip() == other.ip() || own.ip().is_unspecified() || other.ip().is_unspecified();
        if is_open && own.port() != 0 && own.port() == other.port() && overlap {
            conflicts.push(format!(
                "clients over TLS connect to {own} and {} takes the same port; set [node] \
                 listen_tls to another",
                config.describe(section, "listen")
            ));
        }
    }
}
