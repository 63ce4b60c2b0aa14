//! The INI files of an existing deployment of the original service (docs/compat/timer-service.md
//! §2): what each of their keys means among the keys of Chronos, and the defaults of such a
//! deployment. A key of Chronos that the original has no word for is taken under its Chronos name,
//! in any of the files.

// May panic: expectations 4.
// Why it does not: configured 4.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::error::{CONFIG_BYTES_MAX, Origin, Problem};
use super::ini::{IniEntry, parse_ini};
use super::keys::{KEYS, find};
use super::loader::Loader;
use super::settings::Config;
use super::suggest;
use super::value::{Mismatch, Value, ValueKind, quote};
use crate::cluster::view::local_site_of;

/// Port of the original service.
const PORT: u16 = 7253;
/// Where the original finds the machine's SNMP daemon: the default of net-snmp.
const AGENTX_SOCKET: &str = "/var/agentx/master";

/// What a key of the original means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// One key of Chronos: section and name.
    Key(&'static str, &'static str),
    /// One item of a list of Chronos: section and name. A repeated key adds an item.
    Item(&'static str, &'static str),
    /// Another site, as `name=address`: an item of `[sites] remote`.
    Site,
    /// The address that clients connect to, without its port.
    BindAddress,
    /// The port of the address that clients connect to.
    BindPort,
    /// A log level from 0 to 5.
    Level,
    /// The key has no effect: the engine has no threads to count, no throttle and no DNS client of
    /// its own.
    Nothing,
}

/// Every key of the original, of any of its versions: section, name, meaning.
const MEANINGS: [(&str, &str, Meaning); 26] = [
    ("http", "bind-address", Meaning::BindAddress),
    ("http", "bind-port", Meaning::BindPort),
    ("http", "threads", Meaning::Nothing),
    ("http", "gr_threads", Meaning::Nothing),
    ("cluster", "localhost", Meaning::Key("cluster", "localhost")),
    ("cluster", "node", Meaning::Item("cluster", "nodes")),
    ("cluster", "joining", Meaning::Item("cluster", "joining")),
    ("cluster", "leaving", Meaning::Item("cluster", "leaving")),
    ("cluster", "admin_address", Meaning::Item("cluster", "admin_addresses")),
    ("identity", "instance_id", Meaning::Key("node", "instance_id")),
    ("identity", "deployment_id", Meaning::Key("node", "deployment_id")),
    ("logging", "folder", Meaning::Key("log", "folder")),
    ("logging", "level", Meaning::Level),
    ("sites", "local_site", Meaning::Key("sites", "local")),
    ("sites", "remote_site", Meaning::Site),
    ("sites", "replicate_timers_across_sites", Meaning::Key("sites", "replicate_across")),
    ("throttling", "target_latency", Meaning::Nothing),
    ("throttling", "max_tokens", Meaning::Nothing),
    ("throttling", "initial_token_rate", Meaning::Nothing),
    ("throttling", "min_token_rate", Meaning::Nothing),
    ("throttling", "max_token_rate", Meaning::Nothing),
    ("dns", "servers", Meaning::Nothing),
    ("dns", "timeout", Meaning::Nothing),
    ("dns", "port", Meaning::Nothing),
    ("exceptions", "max_ttl", Meaning::Nothing),
    ("alarms", "enabled", Meaning::Nothing),
];

/// Returns the defaults of the original: all addresses, a cluster of 127.0.0.1:7253 alone, no admin
/// API, callbacks without headers that receivers of the original do not know.
pub(crate) fn defaults() -> Config {
    let mut config = Config::default();
    config.node.listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    config.membership.localhost = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).to_string();
    config.admin.enabled = false;
    config.admin.agentx_socket = AGENTX_SOCKET.into();
    config.node.callbacks.timer_headers = false;
    config.is_drop_in = true;
    config
}

/// Enables the admin API if its address is configured. In existing deployments several nodes share
/// a machine, and none of them expects a second port, so the admin API is off by default.
pub(crate) fn open_admin_if_asked(config: &mut Config) {
    let is_set = |name| *config.origin("admin", name) != Origin::Default;
    if is_set("listen") && !is_set("enabled") {
        config.admin.enabled = true;
    }
}

/// Takes this node's own site out of the other sites: deployments give all sites one list.
pub(crate) fn leave_out_local_site(config: &mut Config) {
    let own = local_site_of(&config.membership).to_owned();
    config.membership.remote_sites.retain(|(name, _)| *name != own);
}

/// Reads the files in their order. The first file that has a key decides it, as in the original:
/// lists of several files are not joined. Within a file a repeated key is a list, or keeps its
/// first value.
pub(crate) fn read(loader: &mut Loader, files: &[(String, String)]) {
    let mut found = Collected::default();
    for (name, text) in files {
        if text.len() > CONFIG_BYTES_MAX {
            loader.put(Problem::TooLarge { file: name.clone() });
            continue;
        }
        match parse_ini(text) {
            Ok(entries) => entries.iter().for_each(|entry| found.take(loader, name, entry)),
            Err(error) => loader.put(Problem::Syntax {
                origin: Origin::File { name: name.clone(), line: error.line },
                language: "INI",
                reason: error.reason.into(),
            }),
        }
    }
    found.finish(loader);
}

/// What the files say. An address made of two keys, and lists, go into the configuration after the
/// last line.
#[derive(Default)]
struct Collected {
    address: Option<(IpAddr, Origin)>,
    port: Option<(u16, Origin)>,
    lists: Vec<List>,
    singles: Vec<((&'static str, &'static str), Origin)>,
}

struct List {
    key: (&'static str, &'static str),
    items: Vec<String>,
    origin: Origin,
    /// The file that has the list.
    file: String,
    /// Another file with the list, of which the operator has been told.
    ignored: Option<String>,
}

impl Collected {
    fn take(&mut self, loader: &mut Loader, file: &str, entry: &IniEntry<'_>) {
        let origin = Origin::File { name: file.to_owned(), line: entry.line };
        let is_it =
            |known: &&(&str, &str, Meaning)| known.0 == entry.section && known.1 == entry.name;
        let Some(&(section, name, meaning)) = MEANINGS.iter().find(is_it) else {
            return match find(entry.section, entry.name) {
                Some(key) => self.put((key.section, key.name), loader, entry, origin),
                None => loader.warn(unknown(entry, &origin)),
            };
        };
        match meaning {
            Meaning::Key(section, name) => self.put((section, name), loader, entry, origin),
            Meaning::Item(section, name) => {
                let item = entry.value.to_owned();
                self.add((section, name), loader, (file, entry, item), origin);
            }
            Meaning::Site => match site_of(entry.value) {
                Some(site) => self.add(("sites", "remote"), loader, (file, entry, site), origin),
                None => loader.warn(format!(
                    "{origin}: [sites] remote_site: expected name=address, found {}; no such site \
                     is reached",
                    quote(entry.value)
                )),
            },
            Meaning::Nothing => {}
            Meaning::BindAddress | Meaning::BindPort | Meaning::Level => {
                if self.is_first(loader, (section, name), (entry, &origin)) {
                    self.put_special(loader, meaning, entry.value, origin);
                }
            }
        }
    }

    fn put(
        &mut self,
        named: (&'static str, &'static str),
        loader: &mut Loader,
        entry: &IniEntry<'_>,
        origin: Origin,
    ) {
        if self.is_first(loader, named, (entry, &origin)) {
            let key = find(named.0, named.1).expect("meanings are keys of the table");
            let value = match key.kind {
                ValueKind::Boolean => boolean(entry.value),
                _ => entry.value,
            };
            loader.put_read(key, key.kind.read_text(value), origin);
        }
    }

    /// Adds an item to a list, unless an earlier file has the list.
    fn add(
        &mut self,
        key: (&'static str, &'static str),
        loader: &mut Loader,
        (file, entry, item): (&str, &IniEntry<'_>, String),
        origin: Origin,
    ) {
        if item.is_empty() {
            let IniEntry { section, name, .. } = entry;
            return loader.warn(format!("{origin}: [{section}] {name} is empty (ignored)"));
        }
        let list = self.lists.iter_mut().find(|list| list.key == key);
        let Some(list) = list else {
            let (items, file) = (vec![item], file.to_owned());
            return self.lists.push(List { key, items, origin, file, ignored: None });
        };
        if list.file == file {
            list.items.push(item);
        } else if list.ignored.as_deref() != Some(file) {
            list.ignored = Some(file.to_owned());
            loader.warn(already(entry, &origin, &list.origin));
        }
    }

    /// Reports whether this is the first value of a key. A later value of the same key has no
    /// effect, and a warning says so.
    fn is_first(
        &mut self,
        loader: &mut Loader,
        key: (&'static str, &'static str),
        (entry, origin): (&IniEntry<'_>, &Origin),
    ) -> bool {
        if let Some((_, first)) = self.singles.iter().find(|(known, _)| *known == key) {
            loader.warn(already(entry, origin, first));
            return false;
        }
        self.singles.push((key, origin.clone()));
        true
    }

    fn put_special(&mut self, loader: &mut Loader, meaning: Meaning, text: &str, origin: Origin) {
        let refuse = |key: &str, expected: &str| Problem::Value {
            origin: origin.clone(),
            key: key.into(),
            expected: expected.into(),
            found: quote(text),
        };
        match meaning {
            Meaning::BindAddress => {
                let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                match bare.unwrap_or(text).parse() {
                    Ok(address) => self.address = Some((address, origin)),
                    Err(_) => loader.put(refuse(
                        "[http] bind-address",
                        "an IP address such as 0.0.0.0 or 10.0.0.1",
                    )),
                }
            }
            Meaning::BindPort => match text.parse() {
                Ok(port) => self.port = Some((port, origin)),
                Err(_) => loader.put(refuse("[http] bind-port", "a whole number from 0 to 65535")),
            },
            _ => match level_of(text) {
                Some(level) => {
                    let key = find("log", "level").expect("a key of the table");
                    loader.put_read(key, Ok(Value::Text(level.into())), origin);
                }
                None => loader.put(refuse("[logging] level", "a whole number from 0 to 5")),
            },
        }
    }

    fn finish(self, loader: &mut Loader) {
        let former = loader.config.node.listen;
        let ip = self.address.as_ref().map_or(former.ip(), |(ip, _)| *ip);
        let port = self.port.as_ref().map_or(former.port(), |(port, _)| *port);
        if let Some(origin) = self.address.map(|(_, o)| o).or(self.port.map(|(_, o)| o)) {
            let listen = find("node", "listen").expect("a key of the table");
            loader.put_read(listen, Ok(Value::Address(SocketAddr::new(ip, port))), origin);
        }
        // If the files have one of the three lists, they describe the whole cluster: the lists of a
        // TOML file are dropped.
        let members = ["nodes", "joining", "leaving"];
        if self.lists.iter().any(|list| members.contains(&list.key.1)) {
            let membership = &mut loader.config.membership;
            membership.nodes.clear();
            membership.joining.clear();
            membership.leaving.clear();
        }
        for List { key: (section, name), items, origin, .. } in self.lists {
            let key = find(section, name).expect("meanings are keys of the table");
            let read = key.kind.read_texts(items).map_err(|mismatch| Mismatch {
                expected: format!("{}, one in each line", mismatch.expected),
                ..mismatch
            });
            loader.put_read(key, read, origin);
        }
    }
}

/// Returns `name=address`, if the original reads the text so.
fn site_of(text: &str) -> Option<String> {
    let mut halves = text.split('=').filter(|half| !half.is_empty());
    let (name, address) = (halves.next()?, halves.next()?);
    halves.next().is_none().then(|| format!("{name}={address}"))
}

/// The original's words for true and false, in either case; nothing at all means true.
fn boolean(text: &str) -> &str {
    match text.to_ascii_lowercase().as_str() {
        "" | "yes" | "on" | "1" | "true" => "true",
        "no" | "off" | "0" | "false" => "false",
        _ => text,
    }
}

/// Returns the log level of Chronos for a level of the original (0 errors to 5 debug,
/// docs/compat/timer-service.md §2). The original takes a level beyond these for the nearest.
fn level_of(text: &str) -> Option<&'static str> {
    match text.parse::<i32>().ok()? {
        ..=0 => Some("error"),
        1 => Some("warn"),
        2 | 3 => Some("info"),
        4.. => Some("debug"),
    }
}

fn already(entry: &IniEntry<'_>, origin: &Origin, first: &Origin) -> String {
    let IniEntry { section, name, .. } = entry;
    format!("{origin}: [{section}] {name} is set at {first} already (ignored)")
}

fn unknown(entry: &IniEntry<'_>, origin: &Origin) -> String {
    let of_section = |section: &str| {
        let theirs = MEANINGS.iter().filter(move |(known, ..)| *known == section);
        let ours = KEYS.iter().filter(|key| key.section == section).map(|key| key.name);
        theirs.map(|(_, name, _)| *name).chain(ours).collect::<Vec<_>>()
    };
    let known = of_section(entry.section);
    let near = match known.is_empty() {
        true => suggest::nearest(entry.section, MEANINGS.iter().map(|(section, ..)| *section)),
        false => suggest::nearest(entry.name, known.into_iter()),
    };
    let remedy = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let name = quote(entry.name);
    // Names of sections are printable, and may be long.
    format!("{origin}: unknown key {name} in [{:.60}]{remedy} (ignored)", entry.section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::error::ConfigError;
    use crate::control::config::load::{Loaded, Sources, load};

    fn drop_in(files: &[&str]) -> Result<Loaded, ConfigError> {
        let named = files.iter().enumerate().map(|(n, text)| (format!("{n}.conf"), (*text).into()));
        load(&Sources { ini: Some(named.collect()), ..Sources::default() })
    }

    fn problem(text: &str) -> String {
        drop_in(&[text]).expect_err(text).to_string()
    }

    #[test]
    fn no_files_mean_the_defaults_of_the_original() {
        let Loaded { config, warnings } = drop_in(&[]).expect("defaults");
        assert_eq!(config.node.listen.to_string(), "0.0.0.0:7253");
        assert_eq!(config.node.name, "127.0.0.1:7253");
        assert!(!config.admin.enabled);
        assert_eq!((config.node.instance_id, config.node.deployment_id), (0, 0));
        assert_eq!(config.log.folder, "/var/log/chronos");
        assert_eq!(config.log.level, "info");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("whoever gets there may create"), "as the original's");
    }

    #[test]
    fn only_the_port_for_clients_is_open_as_the_originals() {
        let with = |section: &str| {
            let file = Some(("c.toml".to_owned(), section.to_owned()));
            load(&Sources { file, ini: Some(Vec::new()), ..Sources::default() })
        };
        assert!(with("").is_ok());
        let told = with("[admin]\nlisten = \"0.0.0.0:7254\"").expect_err("orders").to_string();
        assert!(told.contains("[admin] listen") && told.contains("--insecure-open"), "{told}");
    }

    #[test]
    fn every_key_of_the_original_is_known() {
        for (section, name, meaning) in MEANINGS {
            match meaning {
                Meaning::Key(section, name) | Meaning::Item(section, name) => {
                    assert!(find(section, name).is_some(), "[{section}] {name}");
                }
                _ => {}
            }
            // A key of the original never hides a key of Chronos that means something else.
            let ours = find(section, name).map(|key| (key.section, key.name));
            if let (Some(ours), Meaning::Key(section, name) | Meaning::Item(section, name)) =
                (ours, meaning)
            {
                assert_eq!(ours, (section, name));
            }
        }
        let all = "[http]\nbind-address = ::1\nbind-port = 80\nthreads = 50\ngr_threads = 50\n\
                   [identity]\ninstance_id = 127\ndeployment_id = 7\n\
                   [logging]\nfolder = /tmp\nlevel = 5\n\
                   [throttling]\ntarget_latency = 500000\nmax_tokens = 1000\n\
                   initial_token_rate = 500\nmin_token_rate = 10\nmax_token_rate = 0\n\
                   [dns]\nservers = 127.0.0.1\nservers = 127.0.0.2\ntimeout = 200\nport = 53\n\
                   [exceptions]\nmax_ttl = 600\n[alarms]\nenabled = true\n";
        let cluster = "[cluster]\nlocalhost = a\nnode = a\nnode = b:2\njoining = c\nleaving = d\n";
        let shared = "[sites]\nlocal_site = x\nremote_site = y=e:1\nremote_site = z=f\n\
                      replicate_timers_across_sites = true\n";
        let Loaded { config, warnings } = drop_in(&[all, cluster, shared]).expect("fine");
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(config.node.listen.to_string(), "[::1]:80");
        assert_eq!((config.node.instance_id, config.node.deployment_id), (127, 7));
        assert_eq!((config.log.level.as_str(), config.log.folder.as_str()), ("debug", "/tmp"));
        let membership = config.node.membership.expect("always one");
        assert_eq!(membership.localhost, "a");
        assert_eq!(membership.nodes, ["a", "b:2"]);
        assert_eq!(
            (&membership.joining[..], &membership.leaving[..]),
            (&["c".to_owned()][..], &["d".to_owned()][..])
        );
        assert_eq!(membership.local_site, "x");
        assert_eq!(membership.remote_sites.len(), 2);
        assert!(membership.replicate_across_sites);
    }

    #[test]
    fn keys_of_ours_are_taken_in_any_file() {
        let local = "[cluster]\npromotion = false\nacknowledge = first\n\
                     [admin]\nlisten = 127.0.0.1:9\n[limits]\ntimers_max = 5\n";
        let config = drop_in(&[local]).expect("fine").config;
        assert!(config.admin.enabled && !config.node.cluster.promotion);
        assert_eq!(config.node.limits.timers_max, 5);
        let off = "[admin]\nlisten = 127.0.0.1:9\nenabled = no\n";
        assert!(!drop_in(&[off]).expect("fine").config.admin.enabled);
    }

    #[test]
    fn toml_stands_beside_and_the_files_win() {
        let toml = "[cluster]\npromotion = false\nnodes = ['x', 'y']\nlocalhost = 'x'\n\
                    [admin]\nlisten = '127.0.0.1:9'\n[node]\nlisten = '1.2.3.4:5'\n";
        let ini = "[http]\nbind-port = 6\n[cluster]\nlocalhost = a\njoining = a\n";
        let sources = Sources {
            file: Some(("c.toml".into(), toml.into())),
            ini: Some(vec![("c.conf".into(), ini.into())]),
            ..Sources::default()
        };
        let config = load(&sources).expect("fine").config;
        assert_eq!(config.node.listen.to_string(), "1.2.3.4:6");
        assert!(config.admin.enabled && !config.node.cluster.promotion);
        let membership = config.node.membership.expect("always one");
        assert_eq!((membership.nodes.len(), membership.joining.len()), (0, 1));
    }

    #[test]
    fn what_is_unknown_or_twice_is_told_and_ignored() {
        let text = "[http]\nbind-adress = 1.2.3.4\nbind-port = 1\nbind-port = 2\n\
                    [clutser]\nnode = a\n[cluster]\nnodes_max = 3\nx = 1\n";
        let Loaded { config, warnings } = drop_in(&[text]).expect("warnings only");
        assert_eq!(config.node.listen.port(), 1);
        assert_eq!(warnings.len(), 6, "{warnings:?}");
        assert!(warnings[0].contains("0.conf:2: unknown key \"bind-adress\" in [http]"));
        assert!(warnings[0].contains("did you mean bind-address?"), "{warnings:?}");
        assert!(warnings[1].contains("0.conf:4: [http] bind-port is set at 0.conf:3 already"));
        assert!(warnings[2].contains("did you mean cluster?"), "{warnings:?}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_line() {
        for (text, told) in [
            ("[http]\nbind-address = localhost", "0.conf:2: [http] bind-address: expected an IP"),
            ("[http]\nbind-port = 65536", "0.conf:2: [http] bind-port: expected a whole number"),
            ("[logging]\nlevel = info", "0.conf:2: [logging] level: expected a whole number"),
            ("[identity]\ninstance_id = 128", "0.conf:2: [node] instance_id: expected a whole"),
            ("[cluster]\nnode = a b", "found \"a b\""),
            ("[cluster]\n\nnode a", "0.conf:3: not valid INI: expected key = value"),
            ("[cluster]\nnode = a", "no list has that address"),
        ] {
            assert!(problem(text).contains(told), "{}", problem(text));
        }
    }

    #[test]
    fn the_first_file_that_has_a_key_decides_and_lists_are_not_joined() {
        let cluster = "[cluster]\nlocalhost = a\nnode = a\nnode = b\n";
        let local = "[cluster]\nlocalhost = z\nnode = z\nnode = y\nleaving = c\n\
                     [exceptions]\nmax_ttl = 1\n[sites]\nlocal_site = one\n";
        let shared = "[sites]\nlocal_site = two\nremote_site = three=e\n[cluster]\nnode = x\n";
        let Loaded { config, warnings } = drop_in(&[cluster, local, shared]).expect("fine");
        let membership = config.node.membership.expect("always one");
        assert_eq!((&*membership.localhost, &*membership.local_site), ("a", "one"));
        assert_eq!(membership.nodes, ["a", "b"]);
        assert_eq!(membership.leaving, ["c"]);
        assert_eq!(membership.remote_sites.len(), 1);
        let told: Vec<&str> = warnings.iter().map(|told| told.split(':').next().unwrap()).collect();
        assert_eq!(told.iter().filter(|file| **file == "1.conf").count(), 2, "{warnings:?}");
        assert_eq!(told.iter().filter(|file| **file == "2.conf").count(), 2, "{warnings:?}");
        assert!(warnings[1].contains("[cluster] node is set at 0.conf:3 already"), "{warnings:?}");
    }

    #[test]
    fn one_list_of_sites_serves_all_sites() {
        let list = "remote_site = one=one.example\nremote_site = two=two.example\n";
        for (own, other) in [("one", "two"), ("two", "one")] {
            let text = format!("[sites]\nlocal_site = {own}\n{list}");
            let membership = drop_in(&[&text]).expect("fine").config.node.membership;
            let sites = membership.expect("always one").remote_sites;
            assert_eq!(sites, [(other.to_owned(), format!("{other}.example"))]);
        }
        let text = "[sites]\nremote_site = site1=a\nremote_site = site2=b\n";
        let membership = drop_in(&[text]).expect("fine").config.node.membership;
        let sites = membership.expect("always one").remote_sites;
        assert_eq!(sites, [("site2".to_owned(), "b".to_owned())], "site1 is the default");
        for wrong in ["two", "two=", "=two", "two=a=b", "="] {
            let text = format!("[sites]\nremote_site = {wrong}\nremote_site = x=y\n");
            let Loaded { config, warnings } = drop_in(&[&text]).expect(wrong);
            let sites = config.node.membership.expect("always one").remote_sites;
            assert_eq!(sites, [("x".to_owned(), "y".to_owned())], "{wrong}");
            assert!(warnings[0].contains("0.conf:2: [sites] remote_site: expected name=address"));
        }
    }

    #[test]
    fn words_are_read_as_the_original_reads_them() {
        for (text, replicates) in
            [("True", true), ("YES", true), ("", true), ("0", false), ("Off", false)]
        {
            let text = format!("[sites]\nreplicate_timers_across_sites = {text}\n");
            let config = drop_in(&[&text]).expect(&text).config;
            let membership = config.node.membership.expect("always one");
            assert_eq!(membership.replicate_across_sites, replicates, "{text}");
        }
        for (text, level) in [("-1", "error"), ("0", "error"), ("3", "info"), ("9", "debug")] {
            let config = drop_in(&[&format!("[logging]\nlevel = {text}\n")]).expect(text).config;
            assert_eq!(config.log.level, level, "{text}");
        }
        let text = "[cluster]\nnode = a\nlocalhost = a\njoining =\n[no such]\nbind adress = 1\n";
        let Loaded { config, warnings } = drop_in(&[text]).expect("warnings only");
        assert!(config.node.membership.expect("always one").joining.is_empty());
        assert!(warnings[0].contains("[cluster] joining is empty"), "{warnings:?}");
        assert!(warnings[1].contains("unknown key \"bind adress\" in [no such]"), "{warnings:?}");
    }

    #[test]
    fn nodes_without_identity_differ() {
        let of = |own: &str| {
            let text = format!("[cluster]\nlocalhost = {own}\nnode = a\nnode = b\n");
            drop_in(&[&text]).expect("a cluster").config.node
        };
        let bits = |own| (of(own).instance_id, of(own).deployment_id);
        assert_ne!(bits("a"), bits("b"));
        // Other nodes may join a node that has a name.
        let alone = drop_in(&["[cluster]\nlocalhost = a\n"]).expect("alone").config.node;
        assert_eq!((alone.instance_id, alone.deployment_id), bits("a"));
    }
}
