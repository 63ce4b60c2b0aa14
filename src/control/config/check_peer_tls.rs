//! Checks across the keys of TLS between nodes.

use super::peer_tls::{PeerTlsConfig, PeerTlsMode};
use super::settings::Config;
use crate::cluster::view::Membership;

/// Whether all that goes between the nodes of the cluster goes over TLS, so that nothing of it
/// needs the plain listener to be open without, and nobody is a node who has no certificate.
pub(super) fn peers_use_tls(config: &Config) -> bool {
    config.peer_tls.mode == PeerTlsMode::Required
}

/// Whether nobody is taken for a node who has not proven to be one. A secret that is not required,
/// and TLS that is one of two ways, prove nothing.
pub(super) fn proves_nodes(config: &Config) -> bool {
    let asks_for_secret = !config.secret_file.is_empty() && !config.node.guard.accepts_unproven;
    asks_for_secret || peers_use_tls(config)
}

/// Adds a text for each pair of values that are valid alone and contradict each other.
pub(super) fn check(config: &Config, conflicts: &mut Vec<String>) {
    check_plain_clients(config, conflicts);
    let PeerTlsConfig { mode, ca, .. } = &config.peer_tls;
    let (cert, key) = config.peer_tls.own_files(&config.tls);
    if *mode == PeerTlsMode::Off {
        return;
    }
    for (name, path) in [("tls_cert", cert), ("tls_key", key), ("tls_ca", ca)] {
        if path.is_empty() {
            conflicts.push(format!(
                "{} needs {}; make a certificate of each node, and an authority: chronos cluster \
                 certs",
                config.describe("cluster", "tls"),
                config.describe("cluster", name)
            ));
        }
    }
}

/// Where clients are served over TLS alone, nothing else may come in the clear.
fn check_plain_clients(config: &Config, conflicts: &mut Vec<String>) {
    if config.node.plain_clients || !config.node.serves_timers {
        return;
    }
    if !config.has_tls() {
        conflicts.push(format!(
            "{}: no client could connect; set [tls] cert and [tls] key",
            config.describe("node", "plain_clients")
        ));
    }
    if needs_peer_tls(config) {
        conflicts.push(format!(
            "{} and {}: other nodes would connect to [node] listen in the clear; set it to \
             \"required\"",
            config.describe("node", "plain_clients"),
            config.describe("cluster", "tls")
        ));
    }
}

/// Whether nodes would have to connect where nothing is taken in the clear, and may do so.
pub(super) fn needs_peer_tls(config: &Config) -> bool {
    let may_be_plain = match config.peer_tls.mode {
        PeerTlsMode::Off => has_others(&config.membership),
        PeerTlsMode::AcceptBoth => true,
        PeerTlsMode::Required => false,
    };
    !config.node.plain_clients && may_be_plain
}

/// Whether there are other nodes, here or at other sites.
pub(super) fn has_others(members: &Membership) -> bool {
    let Membership { localhost, nodes, joining, leaving, remote_sites, .. } = members;
    let mut all = nodes.iter().chain(joining).chain(leaving);
    all.any(|node| node != localhost) || !remote_sites.is_empty()
}
