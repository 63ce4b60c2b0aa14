//! Checks across keys: values that are valid alone and contradict each other. Each conflict names
//! every value that takes part, its origin, and the way out.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::check_admin;
use super::check_peer_tls::{self, proves_nodes};
use super::check_timestamp;
use super::check_tls;
use super::error::Problem;
use super::peer_tls::PeerTlsMode;
use super::settings::Config;
use crate::tls::acceptor::ClientAuth;
use crate::wire::peer_frame::OPAQUE_TOLD_BYTES_MAX;

/// Returns every conflict of a configuration whose single values are valid.
pub(super) fn check(config: &Config) -> Vec<Problem> {
    let mut conflicts = Vec::new();
    check_cores(config, &mut conflicts);
    check_limits(config, &mut conflicts);
    check_addresses(config, &mut conflicts);
    let open = open_listeners(config).into_iter().filter(|open| !open.is_meant);
    conflicts.extend(open.map(OpenListener::conflict));
    check_cluster(config, &mut conflicts);
    check_timestamp::check(config, &mut conflicts);
    check_tls::check(config, &mut conflicts);
    check_admin::check(config, &mut conflicts);
    check_peer_tls::check(config, &mut conflicts);
    conflicts.into_iter().map(Problem::Conflict).collect()
}

fn check_cores(config: &Config, conflicts: &mut Vec<String>) {
    let cores = || config.describe("node", "cores");
    let shards = || config.describe("node", "shards");
    let pin = || config.describe("node", "pin");
    if let Some(named) = &config.node.cores {
        let mut seen = HashSet::new();
        if let Some(twice) = named.iter().find(|core| !seen.insert(**core)) {
            conflicts.push(format!("[node] cores names core {twice} twice; name each core once"));
        }
        if config.node.shards.is_some() {
            conflicts.push(format!(
                "{} and {} exclude each other: cores gives one shard per core; leave one of them \
                 out",
                cores(),
                shards()
            ));
        } else if !config.node.pin {
            conflicts.push(format!(
                "{} needs pinning, but {}; leave one of them out, or use shards for unpinned \
                 shards",
                cores(),
                pin()
            ));
        }
    }
    if config.node.shards.is_some() && config.node.pin {
        conflicts.push(format!(
            "{} needs {}; add --no-pin, or choose cores instead",
            shards(),
            "[node] pin = false"
        ));
    }
}

fn check_limits(config: &Config, conflicts: &mut Vec<String>) {
    let limits = &config.node.limits;
    if limits.opaque_bytes_max > limits.body_bytes_max {
        conflicts.push(format!(
            "{} is above {}: opaque data is part of the body; lower the first or raise the second",
            config.describe("limits", "opaque_bytes_max"),
            config.describe("limits", "body_bytes_max")
        ));
    }
    let largest_request = u64::from(limits.body_bytes_max) + u64::from(limits.header_bytes_max);
    if limits.partial_bytes_per_core_max < largest_request {
        conflicts.push(format!(
            "{} is below the largest request of {largest_request} bytes ({} + {}), which could \
             never be received; \
             raise it",
            config.describe("limits", "partial_bytes_per_core_max"),
            config.describe("limits", "body_bytes_max"),
            config.describe("limits", "header_bytes_max")
        ));
    }
    let is_told = !config.membership.nodes.is_empty() || config.node.journal.directory().is_some();
    if limits.opaque_bytes_max > OPAQUE_TOLD_BYTES_MAX && is_told {
        conflicts.push(format!(
            "{} is above {OPAQUE_TOLD_BYTES_MAX} bytes, the most that is told between the nodes of \
             a cluster and written to a journal; lower it",
            config.describe("limits", "opaque_bytes_max")
        ));
    }
    let callbacks = &config.node.callbacks;
    if callbacks.retry_first_ms > callbacks.retry_max_ms {
        conflicts.push(format!(
            "{} is above {}; lower the first or raise the second",
            config.describe("callbacks", "retry_first_ms"),
            config.describe("callbacks", "retry_max_ms")
        ));
    }
}

fn check_addresses(config: &Config, conflicts: &mut Vec<String>) {
    let (clients, admin) = (config.node.listen, config.admin.listen);
    let overlap = clients.ip() == admin.ip()
        || (clients.ip().is_unspecified() || admin.ip().is_unspecified());
    let are_open = config.admin.enabled && config.opens_listen();
    if are_open && clients.port() != 0 && clients.port() == admin.port() && overlap {
        conflicts.push(format!(
            "{} and {} take the same port; give one of them another port, or switch the admin API \
             off with --admin off",
            config.describe("node", "listen"),
            config.describe("admin", "listen")
        ));
    }
}

/// A listener that is open to a network and asks nobody who they are.
pub(super) struct OpenListener {
    /// What whoever reaches it may do.
    pub risk: String,
    /// How to do without.
    remedy: &'static str,
    /// Whether the operator said so, or the original does the same.
    pub is_meant: bool,
}

impl OpenListener {
    fn conflict(self) -> String {
        let Self { risk, remedy, .. } = self;
        format!(
            "{risk}; {remedy}, listen on 127.0.0.1, or add --insecure-open if the network is \
                 yours alone"
        )
    }
}

/// The listeners that are open to a network and ask nobody who they are.
pub(super) fn open_listeners(config: &Config) -> Vec<OpenListener> {
    let Config { node, tls, admin, timestamp, .. } = config;
    let is_open = |listen: SocketAddr| !listen.ip().to_canonical().is_loopback();
    // Where strangers are taken for nodes, they need no token.
    let takes_strangers = node.accept_strangers && !proves_nodes(config);
    let asks_for_tokens = !config.tokens_file.is_empty() && !takes_strangers;
    let asks_for_certificates = tls.client_auth == ClientAuth::Required;
    let over_tls = tls.address(node.listen).filter(|_| !asks_for_certificates);
    let mut open = Vec::new();
    let clients =
        [("listen", Some(node.listen).filter(|_| node.plain_clients)), ("listen_tls", over_tls)];
    for (name, listen) in clients.into_iter().filter(|_| node.serves_timers && !asks_for_tokens) {
        if listen.is_some_and(is_open) {
            let key = config.describe("node", name);
            let risk = format!("{key}: whoever gets there may create, read and delete timers");
            let remedy = match takes_strangers {
                true => {
                    "set [auth] tokens_file (chronos token new), and ask nodes for a proof: \
                     [cluster] secret_file with secret_required = true, or tls = \"required\""
                }
                false => "set [auth] tokens_file (chronos token new)",
            };
            // The original asks nobody, and listens to all.
            let is_meant = config.insecure_open || config.is_drop_in && name == "listen";
            open.push(OpenListener { risk, remedy, is_meant });
        }
    }
    if admin.enabled && is_open(admin.listen) {
        let key = config.describe("admin", "listen");
        let risk = format!("{key}: whoever gets there may give orders to the node");
        let (remedy, is_meant) = ("serve it at [admin] listen_tls", config.insecure_open);
        open.push(OpenListener { risk, remedy, is_meant });
    }
    let asks = !config.tokens_file.is_empty() || asks_for_certificates;
    if admin.listen_tls.is_some_and(is_open) && !asks {
        let key = config.describe("admin", "listen_tls");
        let risk = format!("{key}: whoever gets there may give orders to the node");
        let remedy = "set [auth] tokens_file (chronos token new)";
        open.push(OpenListener { risk, remedy, is_meant: config.insecure_open });
    }
    let over_tls = timestamp.served.listen_tls.filter(|_| !asks_for_certificates);
    let clients = [
        ("listen", timestamp.served.listen, "as Thrift asks nobody"),
        ("listen_tls", over_tls, "as [tls] client_auth asks nobody for a certificate"),
    ];
    for (name, listen, why) in clients.into_iter().filter(|_| timestamp.enabled) {
        if listen.is_some_and(is_open) {
            let key = config.describe("timestamp", name);
            let risk = format!("{key}: whoever gets there gets timestamps, {why}");
            let remedy = "ask for certificates (listen_tls with [tls] client_auth = \"required\", \
                          and listen = \"off\"), keep others away by a firewall";
            open.push(OpenListener { risk, remedy, is_meant: config.insecure_open });
        }
    }
    open
}

fn check_cluster(config: &Config, conflicts: &mut Vec<String>) {
    check_sites(config, conflicts);
    let limits = &config.node.cluster;
    let mut below = |low: (&str, u64), high: (&str, u64), reason: &str| {
        if low.1 >= high.1 {
            conflicts.push(format!(
                "{} is not below {}: {reason}; lower the first or raise the second",
                config.describe("cluster", low.0),
                config.describe("cluster", high.0)
            ));
        }
    };
    let heartbeat = ("heartbeat_ms", limits.heartbeat_ms);
    let suspect = ("suspect_after_ms", limits.suspect_after_ms);
    let dead = ("dead_after_ms", limits.dead_after_ms);
    below(heartbeat, suspect, "a peer that is well would be suspected between two signs of life");
    below(suspect, dead, "a peer is suspected before it is declared dead");
    if limits.link_window_bytes > limits.link_bytes_max {
        conflicts.push(format!(
            "{} is above {}: what is under way is kept; lower the first or raise the second",
            config.describe("cluster", "link_window_bytes"),
            config.describe("cluster", "link_bytes_max")
        ));
    }
}

/// Nodes of other sites show no token. Where tokens are asked for, they must prove who they are in
/// another way.
fn check_sites(config: &Config, conflicts: &mut Vec<String>) {
    let has_proof = !config.secret_file.is_empty() || config.peer_tls.mode != PeerTlsMode::Off;
    if config.membership.remote_sites.is_empty() || config.tokens_file.is_empty() || has_proof {
        return;
    }
    conflicts.push(format!(
        "{} and {}: nodes of other sites show no token, so sites would take nothing from each \
         other; let all nodes of all sites prove who they are, by one [cluster] secret_file \
         or by [cluster] tls",
        config.describe("sites", "remote"),
        config.describe("auth", "tokens_file")
    ));
}

#[cfg(test)]
mod tests {
    use crate::control::config::load::{Sources, load, parse_config};

    /// Returns the text of the only conflict in a configuration.
    fn conflict(text: &str) -> String {
        let error = parse_config(text, "c.toml").expect_err(text);
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(error.problems[0].code(), "conflict");
        error.to_string()
    }

    #[test]
    fn cores_shards_and_pinning_go_together_or_say_why_not() {
        assert!(conflict("[node]\ncores = [0, 1, 0]").contains("names core 0 twice"));
        assert!(conflict("[node]\nshards = 4").contains("[node] shards = 4 (c.toml:2)"));
        assert!(conflict("[node]\ncores = [0]\npin = false").contains("needs pinning"));
        let both = conflict("[node]\ncores = [0]\nshards = 2\npin = false");
        assert!(both.contains("exclude each other"), "{both}");
        assert!(parse_config("[node]\nshards = 16\npin = false", "c.toml").is_ok());
        assert!(parse_config("[node]\ncores = [1, 0]", "c.toml").is_ok());
        assert!(parse_config("[node]\npin = false", "c.toml").is_ok());
    }

    #[test]
    fn sites_prove_who_they_are_where_tokens_are_asked_for() {
        let sites = "[auth]\ntokens_file = '/t'\n[sites]\nremote = ['site2=10.0.0.9:1']\n";
        let refused = conflict(sites);
        assert!(refused.contains("[sites] remote") && refused.contains("secret_file"), "{refused}");
        let secret = format!("{sites}[cluster]\nsecret_file = '/s'");
        assert!(parse_config(&secret, "c.toml").is_ok());
        assert!(parse_config(&sites.replace("tokens_file = '/t'", ""), "c.toml").is_ok());
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        let opaque = conflict("[limits]\nopaque_bytes_max = 2_000_000");
        assert!(opaque.contains("body_bytes_max = 1_048_576 (default)"), "{opaque}");
        let body = "[limits]\nbody_bytes_max = 8_000_000\nopaque_bytes_max";
        assert!(parse_config(&format!("{body} = 7_000_000"), "c.toml").is_ok());
        let nodes = "[cluster]\nlocalhost = 'a:1'\nnodes = ['a:1', 'b:1']\n";
        let told = conflict(&format!("{nodes}{body} = 2_097_152"));
        assert!(told.contains("the most that is told between the nodes"), "{told}");
        assert!(parse_config(&format!("{nodes}{body} = 1_900_000"), "c.toml").is_ok());
        assert!(conflict("[limits]\npartial_bytes_per_core_max = 70_000").contains("1064960"));
        assert!(conflict("[callbacks]\nretry_first_ms = 6_000").contains("retry_max_ms = 5_000"));
    }

    #[test]
    fn admin_and_clients_never_share_a_port() {
        assert!(conflict("[admin]\nlisten = \"127.0.0.1:7253\"").contains("--admin off"));
        let open = "auth.insecure_open = true\n[node]\nlisten = \"0.0.0.0:7254\"";
        assert!(conflict(open).contains("same port"));
        assert!(parse_config(&format!("{open}\n[admin]\nenabled = false"), "c.toml").is_ok());
        let free = "[node]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"";
        assert!(parse_config(free, "c.toml").is_ok());
    }

    #[test]
    fn a_listener_that_asks_nobody_is_open_to_no_network_unless_it_is_meant() {
        let open = [
            ("[node]\nlisten = \"10.0.0.1:7253\"\n", "chronos token new"),
            ("[node]\nlisten = \"[::]:7253\"\n", "chronos token new"),
            ("[admin]\nlisten = \"0.0.0.0:7254\"\n", "[admin] listen_tls"),
            ("[timestamp]\nenabled = true\nlisten = \"10.0.0.1:7911\"\n", "a firewall"),
        ];
        for (text, remedy) in open {
            let told = conflict(text);
            assert!(told.contains(remedy) && told.contains("--insecure-open"), "{told}");
            let file = Some(("c.toml".to_owned(), format!("auth.insecure_open = true\n{text}")));
            let sources = Sources { file, ..Sources::default() };
            let warnings = load(&sources).expect("it is meant").warnings;
            assert!(
                warnings.iter().any(|told| told.contains("whoever gets there")),
                "{warnings:?}"
            );
        }
        let strangers = "auth.tokens_file = \"t\"\ncluster.accept_strangers = true\n\
                         [node]\nlisten = \"10.0.0.1:7253\"";
        assert!(conflict(strangers).contains("[cluster] secret_file with secret_required = true"));
        // What is asked for and not required asks nobody.
        let secret = "cluster.secret_file = \"s\"\n";
        let soft = format!("{secret}cluster.secret_required = false\n");
        let files = "cluster.tls_cert = \"c\"\ncluster.tls_key = \"k\"\ncluster.tls_ca = \"a\"\n";
        let both = format!("{files}cluster.tls = \"accept-both\"\n");
        for asks_nobody in [&soft, &both, &format!("{soft}{both}")] {
            let told = conflict(&format!("{asks_nobody}{strangers}"));
            assert!(told.contains("whoever gets there may create"), "{asks_nobody}: {told}");
        }
        assert!(parse_config(&format!("{secret}{strangers}"), "c.toml").is_ok());
        let with_tls = "cluster.tls = \"required\"\ncluster.tls_cert = \"c\"\n\
                        cluster.tls_key = \"k\"\ncluster.tls_ca = \"a\"\n";
        assert!(parse_config(&format!("{with_tls}{strangers}"), "c.toml").is_ok());
        let required = "[tls]\ncert = 'c'\nkey = 'k'\nclient_ca = 'a'\nclient_auth = 'required'\n\
                        [timestamp]\nenabled = true\nlisten_tls = '10.0.0.1:7912'";
        assert!(parse_config(required, "c.toml").is_ok());
        let optional = conflict(&required.replace("'required'", "'optional'"));
        assert!(optional.contains("client_auth asks nobody"), "{optional}");
        for text in [
            "auth.tokens_file = \"t\"\n[node]\nlisten = \"10.0.0.1:7253\"",
            "[node]\nlisten = \"127.9.9.9:7253\"",
            "[node]\nlisten = \"[::1]:7253\"",
            "[node]\nlisten = \"[::ffff:127.0.0.1]:7253\"",
            "[timestamp]\nlisten = \"0.0.0.0:7911\"",
            "[admin]\nlisten = \"0.0.0.0:7254\"\nenabled = false",
        ] {
            let file = Some(("c.toml".to_owned(), text.to_owned()));
            let loaded = load(&Sources { file, ..Sources::default() }).expect(text);
            assert_eq!(loaded.warnings, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn tls_between_nodes_needs_its_files() {
        let told = conflict("[cluster]\ntls = 'accept-both'\ntls_ca = 'a'\ntls_cert = 'c'");
        assert!(told.contains("[cluster] tls_key") && told.contains("cluster certs"), "{told}");
        let own = "[tls]\ncert = 'c'\nkey = 'k'\n[cluster]\ntls = 'required'\n";
        assert!(parse_config(&format!("{own}tls_ca = 'a'"), "c.toml").is_ok());
        assert!(conflict(own).contains("[cluster] tls_ca"));
        assert!(parse_config("[cluster]\ntls = 'off'", "c.toml").is_ok());
    }

    #[test]
    fn a_node_without_plain_clients_needs_tls_for_all_who_connect() {
        let off = "[node]\nplain_clients = false\n";
        let bare = conflict(off);
        assert!(bare.contains("[node] plain_clients = false (c.toml:2)"), "{bare}");
        assert!(bare.contains("set [tls] cert and [tls] key"), "{bare}");
        let tls = format!("{off}[tls]\ncert = 'c'\nkey = 'k'\n");
        let config = parse_config(&tls, "c.toml").expect("fine");
        assert!(!config.node.plain_clients && !config.opens_listen());
        let nodes = "[cluster]\nlocalhost = 'a:1'\nnodes = ['a:1', 'b:1']\ntls_ca = 'a'\n";
        let site = "[cluster]\nlocalhost = 'a:1'\ntls_ca = 'a'\n";
        let sites = "\n[sites]\nremote = ['site2=b:1']";
        for text in [nodes.to_owned(), format!("{site}{sites}")] {
            let told = conflict(&format!("{tls}{text}"));
            assert!(told.contains("[cluster] tls = \"off\" (default)"), "{told}");
            assert!(told.contains("set it to \"required\""), "{told}");
        }
        for (text, sites) in [(nodes, ""), (site, sites)] {
            let mixed = conflict(&format!("{tls}{text}tls = 'accept-both'\n{sites}"));
            assert!(mixed.contains("set it to \"required\""), "{mixed}");
            let all = format!("{tls}{text}tls = 'required'\n{sites}");
            assert!(parse_config(&all, "c.toml").is_ok_and(|config| config.opens_listen()));
        }
        let far = "[tls]\ncert = 'c'\nkey = 'k'\nclient_ca = 'a'\nclient_auth = 'required'\n\
                   [node]\nlisten = '10.0.0.1:7253'\n";
        assert!(conflict(far).contains("[node] listen ="));
        assert!(parse_config(&format!("{far}plain_clients = false"), "c.toml").is_ok());
        // A port that nobody opens may be that of TLS.
        let one = format!("{tls}[node.x]\n").replace("[node.x]\n", "");
        let one = one.replace(off, &format!("{off}listen_tls = '127.0.0.1:7253'\n"));
        assert!(parse_config(&one, "c.toml").is_ok());
        let word = parse_config("[node]\nlisten = 'off'", "c.toml").expect_err("no address");
        assert!(word.to_string().contains("plain_clients = false"), "{word}");
    }

    #[test]
    fn silence_grows_from_heartbeat_to_death() {
        assert!(conflict("[cluster]\nheartbeat_ms = 1_000").contains("would be suspected"));
        let dead = conflict("[cluster]\ndead_after_ms = 1_000");
        assert!(dead.contains("[cluster] suspect_after_ms = 1_000 (default)"), "{dead}");
        assert!(conflict("[cluster]\nlink_bytes_max = 65_536").contains("link_window_bytes"));
    }

    #[test]
    fn members_that_are_no_cluster_are_refused() {
        let stranger = conflict("[cluster]\nlocalhost = 'a:1'\nnodes = ['b:1']");
        assert!(stranger.contains("no list has that address"), "{stranger}");
        assert!(conflict("[cluster]\nnodes = ['127.0.0.1:7253', 'b', 'b']").contains("twice"));
        assert!(conflict("[sites]\nremote = ['site1=b']").contains("named twice"));
        let good = "[cluster]\nlocalhost = 'a:1'\nnodes = ['a:1', 'b:1']\n[sites]\n\
                    local = 'x'\nremote = ['y=c:1']\nreplicate_across = true";
        let membership = parse_config(good, "c.toml").expect("fine").node.membership;
        let membership = membership.expect("always one");
        assert_eq!(membership.remote_sites, [("y".to_owned(), "c:1".to_owned())]);
        assert!(membership.replicate_across_sites);
    }
}
