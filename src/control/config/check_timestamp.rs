//! Checks across the keys of `[timestamp]`, and with the addresses of the other sections.

use super::error::Origin;
use super::settings::Config;
use super::timestamp::{Authentication, Coordination, split_address};

/// Adds a text for each pair of values that are valid alone and contradict each other.
pub(crate) fn check(config: &Config, conflicts: &mut Vec<String>) {
    if !config.timestamp.enabled {
        return;
    }
    check_listeners(config, conflicts);
    check_ports(config, conflicts);
    if config.timestamp.coordination == Coordination::ZooKeeper {
        check_addresses(config, conflicts);
        check_authentication(config, conflicts);
        check_times(config, conflicts);
        return;
    }
    if config.timestamp.file.is_empty() {
        conflicts.push("[timestamp] file is empty; name the file that keeps the bound".into());
    }
    check_others(config, conflicts);
}

/// Members with a file each would hand out the same timestamps, and do not know of each other.
fn check_others(config: &Config, conflicts: &mut Vec<String>) {
    let members = &config.membership;
    let lists = [&members.nodes, &members.joining, &members.leaving];
    let mut others = lists.into_iter().flatten().filter(|name| **name != members.localhost);
    if !config.node.serves_timers {
        return;
    }
    if let Some(other) = others.next() {
        conflicts.push(format!(
            "{} in a cluster ({other} is a member) with {}: members with a file each hand out the \
             same timestamps; set coordination = \"zookeeper\" on all of them, or leave \
             [timestamp] enabled out and run one server of timestamps alone (chronos timestamp \
             serve)",
            config.describe("timestamp", "enabled"),
            config.describe("timestamp", "coordination"),
        ));
    }
}

fn check_listeners(config: &Config, conflicts: &mut Vec<String>) {
    let served = &config.timestamp.served;
    let is_set = *config.origin("timestamp", "listen_tls") != Origin::Default;
    if served.listen.is_none() && served.listen_tls.is_none() {
        conflicts.push(format!(
            "{} and {}: no client could connect; set one of them",
            config.describe("timestamp", "listen"),
            config.describe("timestamp", "listen_tls")
        ));
    }
    if is_set && served.listen_tls.is_some() && !config.has_tls() {
        conflicts.push(format!(
            "{} needs a certificate; set [tls] cert and [tls] key",
            config.describe("timestamp", "listen_tls")
        ));
    }
}

fn check_ports(config: &Config, conflicts: &mut Vec<String>) {
    let Some(own) = config.timestamp.served.listen else { return };
    let others = [
        ("node", config.node.listen, config.opens_listen()),
        ("admin", config.admin.listen, config.admin.enabled),
    ];
    for (section, other, is_open) in others {
        let overlap =
            own.ip() == other.ip() || own.ip().is_unspecified() || other.ip().is_unspecified();
        if is_open && own.port() != 0 && own.port() == other.port() && overlap {
            conflicts.push(format!(
                "{} and {} take the same port; give one of them another port",
                config.describe("timestamp", "listen"),
                config.describe(section, "listen")
            ));
        }
    }
}

fn check_addresses(config: &Config, conflicts: &mut Vec<String>) {
    let settings = &config.timestamp;
    if let Err(reason) = settings.host_port() {
        let from = match (settings.advertise.as_str(), settings.served.listen) {
            ("", Some(_)) => "listen",
            ("", None) => "listen_tls",
            _ => "advertise",
        };
        conflicts.push(format!(
            "{} cannot be told to clients: {reason}; set [timestamp] advertise to the host:port \
             under which they reach this server",
            config.describe("timestamp", from)
        ));
    }
    if let Some(problem) = quorum_problem(&settings.zookeeper_quorum) {
        conflicts.push(format!(
            "{}: {problem}; write \"host:2181,host:2181\", with /folder at the end if all lies in \
             one",
            config.describe("timestamp", "zookeeper_quorum")
        ));
    }
    if !is_node_name(&settings.zookeeper_cluster) {
        conflicts.push(format!(
            "{} cannot name a node of ZooKeeper; use letters, digits and hyphens",
            config.describe("timestamp", "zookeeper_cluster")
        ));
    }
}

fn check_authentication(config: &Config, conflicts: &mut Vec<String>) {
    let settings = &config.timestamp;
    let is_used = settings.zookeeper_auth != Authentication::None;
    let (user, file) = (&settings.zookeeper_user, &settings.zookeeper_password_file);
    if is_used && (user.is_empty() || file.is_empty()) {
        conflicts.push(format!(
            "{} needs a user and a password; set [timestamp] zookeeper_user and \
             zookeeper_password_file",
            config.describe("timestamp", "zookeeper_auth")
        ));
    }
    if !is_used && !user.is_empty() {
        conflicts.push(format!(
            "{} and {}: nothing would be protected; set zookeeper_auth to \"digest\" or \
             \"sasl-digest\", or leave the user out",
            config.describe("timestamp", "zookeeper_user"),
            config.describe("timestamp", "zookeeper_auth")
        ));
    }
    if is_used && user.contains(':') {
        conflicts.push(format!(
            "{} has a colon, which ends the name of a user in ZooKeeper; choose another user",
            config.describe("timestamp", "zookeeper_user")
        ));
    }
}

fn check_times(config: &Config, conflicts: &mut Vec<String>) {
    let settings = &config.timestamp;
    if settings.window_ms < settings.session_timeout_ms {
        conflicts.push(format!(
            "{} is below {}: what is stored would be used up before a master whose ZooKeeper does \
             not answer has to give way; raise the first or lower the second",
            config.describe("timestamp", "window_ms"),
            config.describe("timestamp", "session_timeout_ms")
        ));
    }
}

/// Returns what is wrong with a list of `ZooKeeper` servers; `None` for a valid list.
fn quorum_problem(quorum: &str) -> Option<&'static str> {
    let (servers, folder) = match quorum.split_once('/') {
        Some((servers, folder)) => (servers, Some(folder)),
        None => (quorum, None),
    };
    let is_bad = |server: &str| {
        let named = if server.contains(':') { server.to_owned() } else { format!("{server}:2181") };
        // Whether "_" is allowed in a host name is left to the resolver.
        split_address(&named.replace('_', "-")).is_err()
    };
    if servers.split(',').any(is_bad) {
        return Some("it is no list of host:port");
    }
    let is_bad_name = |name: &str| !is_node_name(name);
    match folder {
        Some(folder) if folder.split('/').any(is_bad_name) => Some("its folder is no path"),
        _ => None,
    }
}

/// Reports whether a text can name a node of `ZooKeeper`.
fn is_node_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(is_fine)
}

#[cfg(test)]
mod tests {
    use crate::control::config::load::parse_config;
    use crate::control::config::timestamp::address_of;

    const ZOOKEEPER: &str = "auth.insecure_open = true\n\
                             [timestamp]\nenabled = true\ncoordination = \"zookeeper\"\n";

    fn conflict(text: &str) -> String {
        let error = parse_config(text, "c.toml").expect_err(text);
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(error.problems[0].code(), "conflict");
        error.to_string()
    }

    #[test]
    fn addresses_that_others_cannot_reach_are_refused() {
        for (line, reason) in [
            ("listen = \"0.0.0.0:7911\"", "every address of this machine"),
            ("listen = \"[::]:7911\"", "every address of this machine"),
            ("listen = \"127.0.0.1:0\"", "any port"),
            ("advertise = \"0.0.0.0:7911\"", "every address of this machine"),
            ("advertise = \"a_b:7911\"", "readers split it at \"_\""),
            ("advertise = \"host\"", "no port"),
            ("advertise = \"host:x\"", "no number"),
            ("advertise = \"ho/st:1\"", "neither a name nor an address"),
            ("advertise = \"::1:7911\"", "neither a name nor an address"),
        ] {
            let told = conflict(&format!("{ZOOKEEPER}{line}"));
            assert!(told.contains(reason) && told.contains("set [timestamp] advertise"), "{told}");
        }
        let fine = format!("{ZOOKEEPER}listen = \"0.0.0.0:7911\"\nadvertise = \"ts1.lan:7911\"");
        let config = parse_config(&fine, "c.toml").expect("fine");
        assert_eq!(config.timestamp.host_port(), Ok("ts1.lan_7911".into()));
        assert_eq!(config.node.timestamp.expect("served").listen.map(|at| at.port()), Some(7911));
        let six = format!("{ZOOKEEPER}listen = \"[::1]:7911\"");
        let config = parse_config(&six, "c.toml").expect("fine");
        assert_eq!(config.timestamp.host_port(), Ok("::1_7911".into()));
        assert_eq!(address_of("::1_7911"), "[::1]:7911");
        assert_eq!(address_of("a_1"), "a:1");
        assert_eq!(address_of("?"), "?");
    }

    #[test]
    fn what_zookeeper_could_not_read_is_refused() {
        for (line, reason) in [
            ("zookeeper_quorum = \"\"", "no list of host:port"),
            ("zookeeper_quorum = \"a:1,,b:2\"", "no list of host:port"),
            ("zookeeper_quorum = \"a:1 b:2\"", "no list of host:port"),
            ("zookeeper_quorum = \"a:1/x/\"", "folder is no path"),
            ("zookeeper_cluster = \"a/b\"", "cannot name a node"),
            ("zookeeper_cluster = \"..\"", "cannot name a node"),
            ("window_ms = 2_000", "session_timeout_ms = 3_000 (default)"),
            ("zookeeper_auth = \"digest\"", "needs a user"),
            ("zookeeper_user = \"x\"", "nothing would be protected"),
        ] {
            let told = conflict(&format!("{ZOOKEEPER}{line}"));
            assert!(told.contains(reason), "{told}");
        }
        for line in ["a:1,b", "z_1:2181,[::1]:2181", "a/one/two"] {
            let text = format!("{ZOOKEEPER}zookeeper_quorum = \"{line}\"");
            assert!(parse_config(&text, "c.toml").is_ok(), "{line}");
        }
    }

    #[test]
    fn clients_over_tls_need_a_certificate_and_a_port_of_their_own() {
        let on = "[timestamp]\nenabled = true\n";
        let tls = "[tls]\ncert = 'c'\nkey = 'k'\n";
        let both = format!("{tls}{on}listen_tls = '127.0.0.1:7912'\n");
        let config = parse_config(&format!("{both}listen = 'off'"), "c.toml").expect("fine");
        let served = config.node.timestamp.clone().expect("served");
        assert_eq!((served.listen, served.listen_tls.map(|at| at.port())), (None, Some(7912)));
        assert_eq!(config.timestamp.host_port(), Ok("127.0.0.1_7912".into()));
        assert!(parse_config(&both, "c.toml").is_ok());
        assert!(conflict(&format!("{on}listen = 'off'")).contains("no client could connect"));
        let bare = conflict(&format!("{on}listen_tls = '127.0.0.1:7912'"));
        assert!(bare.contains("[timestamp] listen_tls") && bare.contains("[tls] cert"), "{bare}");
        for (port, told) in [
            (7911, "[timestamp] listen = "),
            (7253, "[node] listen = "),
            (7254, "[admin] listen = "),
            (7443, "clients over TLS connect to 127.0.0.1:7443"),
        ] {
            let same = conflict(&format!(
                "{tls}{on}listen_tls = '0.0.0.0:{port}'\n\
                                          [auth]\ninsecure_open = true"
            ));
            assert!(same.contains(told) && same.contains("same port"), "{same}");
        }
        let error = parse_config(&format!("{on}listen = 'of'"), "c.toml").expect_err("no address");
        assert!(error.to_string().contains("or \"off\""), "{error}");
    }

    #[test]
    fn members_with_a_file_each_are_refused() {
        let on = "auth.insecure_open = true\n[timestamp]\nenabled = true\n";
        let of = |nodes: &str| format!("{on}[cluster]\nlocalhost = \"a:1\"\n{nodes}\n");
        for others in ["nodes = [\"a:1\", \"b:1\"]", "nodes = [\"a:1\"]\njoining = [\"b:1\"]"] {
            let told = conflict(&of(others));
            assert!(told.contains("b:1 is a member") && told.contains("zookeeper"), "{told}");
        }
        assert!(parse_config(&of("nodes = [\"a:1\"]"), "c.toml").is_ok(), "it is alone");
        let kept = of("nodes = [\"a:1\", \"b:1\"]").replace("enabled = true", "enabled = false");
        assert!(parse_config(&kept, "c.toml").is_ok());
    }

    #[test]
    fn ports_are_not_shared_and_nothing_is_checked_that_is_off() {
        let on = "auth.insecure_open = true\n[timestamp]\nenabled = true\n";
        assert!(conflict(&format!("{on}listen = \"0.0.0.0:7253\"")).contains("same port"));
        assert!(conflict(&format!("{on}listen = \"127.0.0.1:7254\"")).contains("[admin] listen"));
        assert!(conflict(&format!("{on}file = \"\"")).contains("keeps the bound"));
        let off = "[timestamp]\nlisten = \"0.0.0.0:7253\"\nadvertise = \"_\"";
        let config = parse_config(off, "c.toml").expect("fine");
        assert_eq!(config.node.timestamp, None);
    }
}
