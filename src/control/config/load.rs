//! The configuration is put together here: defaults, then one TOML file, then the INI files of an
//! existing deployment, then the environment, then flags. A later source wins over an earlier one,
//! and every value remembers its origin. Values go in through the table of keys only. This file
//! reads no file and no environment: text and variables come in as arguments, so that [`load`] can
//! be fuzzed.

// May panic: expectations 2, indices 1.
// Why it does not: configured 3.

use toml::de::{DeTable, DeValue};

use super::check;
use super::check_peer_tls::peers_use_tls;
use super::drop_in;
use super::error::{CONFIG_BYTES_MAX, ConfigError, Origin, Problem};
use super::identity;
use super::keys::{KEYS, SECTIONS, find};
use super::loader::{Loader, PROBLEMS_MAX};
use super::settings::{ADMIN_PORT_OF_TIMESTAMPS, Config};
use super::suggest::{unknown_key, unknown_section, unknown_variable};
use super::value::{Value, quote};
use crate::cluster::view::View;

/// The sources that the configuration is made from, besides the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Name and text of the TOML configuration file.
    pub file: Option<(String, String)>,
    /// Names and texts of the INI files of an existing deployment. `None`: this is no such
    /// deployment, and its defaults do not apply.
    pub ini: Option<Vec<(String, String)>>,
    /// Variables of the environment. Variables that do not begin with `CHRONOS_` are ignored.
    pub environment: Vec<(String, String)>,
    /// Flags that set keys: the key's section and name, and the text that the operator gave.
    pub flags: Vec<((&'static str, &'static str), String)>,
    /// Whether timestamps are served and timers are not (`chronos timestamp serve`).
    pub timestamps_alone: bool,
}

/// A configuration that may be used, and the warnings about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration. All checks across keys have passed.
    pub config: Config,
    /// What the operator should hear although the configuration is valid, one sentence each.
    pub warnings: Vec<String>,
}

/// Reads the text of a configuration file alone: no environment, no flags. Accepts any text without
/// panicking.
pub fn parse_config(text: &str, source_name: &str) -> Result<Config, ConfigError> {
    let file = Some((source_name.to_string(), text.to_string()));
    load(&Sources { file, ..Sources::default() }).map(|loaded| loaded.config)
}

/// Puts the configuration together: default < file < environment < flags. Then runs the checks
/// across keys.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let is_drop_in = sources.ini.is_some();
    let mut config = if is_drop_in { drop_in::defaults() } else { Config::default() };
    if sources.timestamps_alone {
        config.admin.listen.set_port(ADMIN_PORT_OF_TIMESTAMPS);
    }
    let mut loader = Loader::new(config);
    if let Some((name, text)) = &sources.file {
        loader.read_file(name, text);
    }
    if let Some(files) = &sources.ini {
        drop_in::read(&mut loader, files);
    }
    let mut environment = sources.environment.clone();
    environment.sort();
    for (variable, text) in &environment {
        loader.read_variable(variable, text);
    }
    for ((section, name), text) in &sources.flags {
        let key = find(section, name).expect("flags name keys of the table");
        // A flag of `chronos timestamp serve` has the name of its key.
        let own = || format!("--{}", key.name.replace('_', "-"));
        let flag = key.flag.map_or_else(own, str::to_string);
        loader.put_read(key, key.kind.read_text(text), Origin::Flag(flag));
    }
    if is_drop_in {
        drop_in::open_admin_if_asked(&mut loader.config);
        drop_in::leave_out_local_site(&mut loader.config);
    }
    if sources.timestamps_alone {
        let key = find("timestamp", "enabled").expect("a key of the table");
        let origin = Origin::Flag("chronos timestamp serve".into());
        loader.put_read(key, Ok(Value::Boolean(true)), origin);
        loader.config.node.serves_timers = false;
    }
    loader.finish()
}

impl Loader {
    fn read_file(&mut self, name: &str, text: &str) {
        if text.len() > CONFIG_BYTES_MAX {
            return self.problems.push(Problem::TooLarge { file: name.to_string() });
        }
        let lines = Lines { name, text };
        let table = match DeTable::parse(text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let origin = lines.origin(error.span().map_or(text.len(), |span| span.start));
                let reason = error.message().replace('\n', ", ");
                return self.put(Problem::Syntax { origin, language: "TOML", reason });
            }
        };
        // The parsed table is sorted by name. Problems are told in the order of lines.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (section, value) in entries {
            let origin = lines.origin(section.span().start);
            match value.get_ref() {
                DeValue::Table(keys) if SECTIONS.iter().any(|s| s.name == section.get_ref()) => {
                    self.read_section(section.get_ref(), keys, &lines);
                }
                value => self.put(unknown_section(origin, section.get_ref(), value)),
            }
            if self.problems.len() >= PROBLEMS_MAX {
                return;
            }
        }
    }

    fn read_section(&mut self, section: &str, keys: &DeTable<'_>, lines: &Lines<'_>) {
        let mut entries: Vec<_> = keys.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let origin = lines.origin(name.span().start);
            match find(section, name.get_ref()) {
                Some(key) => self.put_read(key, key.kind.read_toml(value.get_ref()), origin),
                None => self.put(unknown_key(origin, section, name.get_ref())),
            }
            if self.problems.len() >= PROBLEMS_MAX {
                return;
            }
        }
    }

    fn read_variable(&mut self, variable: &str, text: &str) {
        let Some(rest) = variable.strip_prefix("CHRONOS_") else { return };
        let origin = Origin::Environment(variable.to_string());
        if let Some(key) = KEYS.iter().find(|key| key.variable() == variable) {
            return self.put_read(key, key.kind.read_text(text), origin);
        }
        // `CHRONOS_CONFIG` names the file. An orchestrator gives every container variables named
        // after services, such as CHRONOS_PORT or CHRONOS_ADMIN_SERVICE_HOST: an unknown name
        // cannot be an error, but it is never silent.
        if variable == "CHRONOS_CONFIG" {
            return;
        }
        let is_of_a_service = rest.ends_with("SERVICE_HOST")
            || rest.contains("SERVICE_PORT")
            || rest.ends_with("PORT")
            || rest.contains("PORT_");
        let has_section =
            SECTIONS.iter().any(|s| rest.to_ascii_lowercase().starts_with(&format!("{}_", s.name)));
        let remedy = unknown_variable(rest);
        let name = quote(variable);
        let problem = Problem::Unknown { origin, what: "variable", name, remedy };
        if has_section && !is_of_a_service {
            self.put(problem);
        } else {
            self.warn(format!("{problem} (ignored)"));
        }
    }

    fn finish(mut self) -> Result<Loaded, ConfigError> {
        if self.config.membership.localhost.is_empty() {
            self.config.membership.localhost = self.config.node.listen.to_string();
        }
        if self.problems.is_empty() {
            self.problems = check::check(&self.config);
        }
        let view = match View::build(None, &self.config.membership) {
            Ok(view) if self.problems.is_empty() => view,
            Ok(_) => return Err(ConfigError { problems: self.problems }),
            Err(error) => {
                self.put(Problem::Conflict(format!("[cluster] and [sites]: {error}")));
                return Err(ConfigError { problems: self.problems });
            }
        };
        self.config.node.name = self.config.membership.localhost.clone();
        self.config.node.membership = Some(self.config.membership.clone());
        let timestamp = &self.config.timestamp;
        self.config.node.timestamp = timestamp.enabled.then(|| timestamp.served.clone());
        self.warn_of_secret();
        self.warn_of_addresses(&view);
        check::open_listeners(&self.config).into_iter().for_each(|open| self.warn(open.risk));
        self.identify(&view);
        if self.warnings_left_out > 0 {
            self.warnings.push(format!("{} further warnings", self.warnings_left_out));
        }
        Ok(Loaded { config: self.config, warnings: self.warnings })
    }

    /// Warns of a secret that keeps nobody out.
    fn warn_of_secret(&mut self) {
        let config = &self.config;
        let has_file = !config.secret_file.is_empty();
        let is_meant = *config.origin("cluster", "secret_required") != Origin::Default;
        let told = config.describe("cluster", "secret_required");
        match (has_file, config.node.guard.accepts_unproven) {
            (true, true) => self.warn(format!(
                "{told}: nodes are taken that do not prove that they know the secret; set it to \
                 true when all nodes have the file"
            )),
            (false, false) if is_meant => self.warn(format!(
                "{told}: nobody is asked for a secret, as there is none; set [cluster] secret_file"
            )),
            _ => {}
        }
    }

    /// Warns where clients need tokens and other nodes are believed for their addresses.
    fn warn_of_addresses(&mut self, view: &View) {
        let config = &self.config;
        let is_alone = view.connected_nodes().union(view.connected_sites()).is_empty();
        let proves_nodes = !config.secret_file.is_empty() || peers_use_tls(config);
        if !is_alone && !config.tokens_file.is_empty() && !proves_nodes {
            let told = config.describe("auth", "tokens_file");
            self.warn(format!(
                "{told}: clients need a token, but whoever sends from an address of a node is \
                 believed to be one and needs none; set [cluster] secret_file or tls"
            ));
        }
    }

    /// Fills in the ids of the node where none is set. Only nodes that are not alone get them:
    /// nodes in a cluster, and nodes that have a name, because others may join them while they run.
    fn identify(&mut self, view: &View) {
        let is_set = |section, name| *self.config.origin(section, name) != Origin::Default;
        let is_alone = view.connected_nodes().union(view.connected_sites()).is_empty();
        let stays_alone = is_alone && !is_set("cluster", "localhost");
        if stays_alone || is_set("node", "instance_id") {
            return;
        }
        let deployment = is_set("node", "deployment_id").then_some(self.config.node.deployment_id);
        let identity = identity::derive(view, deployment);
        self.config.node.instance_id = identity.instance_id;
        self.config.node.deployment_id = identity.deployment_id;
        for name in ["instance_id", "deployment_id"] {
            if *self.config.origin("node", name) == Origin::Default {
                self.config.set_origin(("node", name), Origin::OwnName);
            }
        }
        if let Some(warning) = identity.warning {
            self.warn(warning);
        }
    }
}

/// Turns byte offsets of a file into line numbers.
struct Lines<'a> {
    name: &'a str,
    text: &'a str,
}

impl Lines<'_> {
    /// Returns file and line of a byte offset. Costs a scan of the text before `offset`. It is
    /// called once per key of the table and once per problem told: some hundred scans of 1 MiB.
    fn origin(&self, offset: usize) -> Origin {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        Origin::File { name: self.name.to_string(), line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of a configuration's only problem.
    fn problem(text: &str) -> String {
        let error = parse_config(text, "c.toml").expect_err(text);
        assert_eq!(error.problems.len(), 1, "{error}");
        error.to_string()
    }

    fn variables(pairs: &[(&str, &str)]) -> Sources {
        let environment = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Sources { environment, ..Sources::default() }
    }

    #[test]
    fn timestamps_alone_leave_a_node_its_admin_port() {
        let port = |toml: &str, timestamps_alone: bool| {
            let file = Some(("c.toml".to_owned(), toml.to_owned()));
            let sources = Sources { file, timestamps_alone, ..Sources::default() };
            load(&sources).expect("fine").config.admin.listen.port()
        };
        assert_eq!((port("", false), port("", true)), (7254, 7354));
        assert_eq!(port("[admin]\nlisten = '127.0.0.1:7254'", true), 7254, "as it is said");
    }

    #[test]
    fn unknown_names_are_told_with_line_and_nearest_known_name() {
        for (text, told) in [
            ("\n[limit]\n", "c.toml:2: unknown section \"limit\"; did you mean limits?"),
            (
                "[limits]\n\ntimer_max = 1",
                "c.toml:3: unknown key \"timer_max\" in [limits]; did you mean timers_max?",
            ),
            ("[node]\ntimers_max = 1", "did you mean [limits] timers_max?"),
            (
                "listen = '[::1]:1'",
                "did you mean [node] listen or [timestamp] listen or [admin] listen?",
            ),
            ("[admin]\nenabeld = true", "did you mean enabled?"),
            ("[log]\nqqq = 1", "[log] knows level, format, folder"),
            ("node = 3", "write [node] on a line of its own"),
            ("[[node]]", "unknown section \"node\""),
            ("zzzzz = 3", "tuning/reference.toml lists every one"),
        ] {
            assert!(problem(text).contains(told), "{}", problem(text));
        }
    }

    #[test]
    fn wrong_values_are_told_with_what_was_expected_and_found() {
        for (text, expected, found) in [
            ("[limits]\ntimers_max = 0", "from 1 to 4_000_000_000 (timers)", "found 0"),
            ("[limits]\ntimers_max = -0x1", "not valid TOML", ""),
            ("[limits]\ntimers_max = 1.5", "a whole number", "found 1.5"),
            ("[limits]\ntimers_max = '1'", "a whole number", "found \"1\""),
            ("[limits]\ntimers_max = 99999999999999999999", "a whole number", "found 9999999999"),
            ("[node]\nlisten = 'localhost'", "an IP address and port", "found \"localhost\""),
            ("[node]\npin = 1", "true or false", "found 1"),
            ("[node]\ncores = []", "a list such as [0, 1]", "found a list of 0 items"),
            ("[node]\ncores = [0, 'x']", "a list such as [0, 1]", "found a list of 2 items"),
            ("[log]\nlevel = 'loud'", "one of \"error\", \"warn\"", "found \"loud\""),
            ("[log.level]\n", "one of \"error\"", "found a table"),
        ] {
            let told = problem(text);
            assert!(told.contains(expected) && told.contains(found), "{told}");
            assert!(told.starts_with("c.toml:"), "{told}");
        }
    }

    #[test]
    fn later_sources_win_and_are_remembered() {
        let mut sources =
            variables(&[("CHRONOS_NODE_SPIN_US", "2"), ("CHRONOS_LOG_LEVEL", "warn")]);
        sources.file = Some(("f.toml".into(), "node.spin_us = 1\nnode.instance_id = 0x7".into()));
        sources.flags = vec![(("log", "level"), "error".into())];
        let config = load(&sources).expect("valid").config;
        assert_eq!(config.node.instance_id, 7);
        assert_eq!(config.node.spin_us, 2);
        assert_eq!(config.log.level, "error");
        assert_eq!(config.node.name, config.node.listen.to_string());
        assert_eq!(config.describe("node", "instance_id"), "[node] instance_id = 7 (f.toml:2)");
        assert!(config.describe("node", "spin_us").contains("environment CHRONOS_NODE_SPIN_US"));
        assert!(config.describe("log", "level").contains("flag --log-level"));
        assert!(config.describe("node", "pin").contains("(default)"));
    }

    #[test]
    fn unknown_variables_are_errors_unless_an_orchestrator_may_have_set_them() {
        let error = load(&variables(&[("CHRONOS_LIMITS_TIMER_MAX", "5")])).expect_err("misspelt");
        assert!(error.to_string().contains("did you mean CHRONOS_LIMITS_TIMERS_MAX?"), "{error}");
        let names = ["CHRONOS_PORT", "CHRONOS_ADMIN_SERVICE_HOST", "CHRONOS_NODE_PORT_7253_TCP"];
        for name in names {
            let loaded = load(&variables(&[(name, "tcp://10.0.0.1:7253")])).expect(name);
            assert_eq!(loaded.warnings.len(), 1, "{name}");
        }
        let quiet = load(&variables(&[("CHRONOS_CONFIG", "f"), ("HOME", "/")])).expect("fine");
        assert_eq!(quiet.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_secret_that_keeps_nobody_out_is_told_of() {
        let warnings = |text: &str| {
            let file = Some(("c.toml".into(), format!("[cluster]\n{text}")));
            let loaded = load(&Sources { file, ..Sources::default() }).expect(text);
            assert_eq!(loaded.config.node.guard.secrets, None, "files are not read here");
            (loaded.warnings.join(" "), loaded.config.node.guard.accepts_unproven)
        };
        let file = "secret_file = '/etc/chronos/cluster.secret'\n";
        assert_eq!(warnings(file), (String::new(), false));
        assert_eq!(warnings(""), (String::new(), false));
        assert_eq!(warnings("secret_required = false"), (String::new(), true));
        let (soft, accepts_unproven) = warnings(&format!("{file}secret_required = false"));
        assert!(accepts_unproven && soft.contains("false (c.toml:3): nodes are taken"), "{soft}");
        let (absent, _) = warnings("secret_required = true");
        assert!(absent.contains("set [cluster] secret_file"), "{absent}");
    }

    #[test]
    fn tokens_beside_nodes_that_prove_nothing_are_told_of() {
        let warnings = |text: &str| {
            let file = Some(("c.toml".into(), format!("auth.tokens_file = 't'\n{text}")));
            load(&Sources { file, ..Sources::default() }).expect(text).warnings.join(" ")
        };
        let nodes = "[cluster]\nlocalhost = 'a:1'\nnodes = ['a:1', 'b:1']\n";
        let told = warnings(nodes);
        assert!(
            told.contains("[auth] tokens_file = \"t\" (c.toml:1): clients need a token"),
            "{told}"
        );
        assert!(told.contains("set [cluster] secret_file or tls"), "{told}");
        let files = "tls_ca = 'a'\ntls_cert = 'c'\ntls_key = 'k'\n";
        let site = "[sites]\nlocal = 'x'\nremote = ['y=c:1']\n[cluster]\n";
        let site = warnings(&format!("{site}{files}tls = 'accept-both'"));
        assert!(site.contains("is believed to be one"), "a site is a node as well: {site}");
        let mixed = warnings(&format!("{nodes}{files}tls = 'accept-both'"));
        assert!(mixed.contains("is believed to be one"), "{mixed}");
        for proof in [format!("{files}tls = 'required'"), "secret_file = 's'".into()] {
            assert_eq!(warnings(&format!("{nodes}{proof}")), "", "{proof}");
        }
        assert_eq!(warnings(""), "", "a node that is alone believes nobody");
    }

    #[test]
    fn hostile_texts_end_in_bounded_errors() {
        let many_keys: String = (0..60_000).map(|i| format!("k{i} = {i}\n")).collect();
        let many_sections: String = (0..60_000).map(|i| format!("[s{i}]\n")).collect();
        let hostile = [
            "x".repeat(CONFIG_BYTES_MAX + 1),
            "x".repeat(CONFIG_BYTES_MAX),
            "[".repeat(100_000),
            format!("[node]\ncores = {}", "[".repeat(100_000)),
            format!("[node]\ncores = {}", "{a=".repeat(100_000)),
            format!("{} = 1", ["a"; 100_000].join(".")),
            format!("[node]\ncores = [{}]", "0,".repeat(400_000)),
            format!("[cluster]\nlocalhost = '{}'", "n".repeat(1_000_000)),
            format!("[cluster]\nnodes = [{}]", "'n',".repeat(200_000)),
            format!("[node]\n\"{}\" = 1", "n".repeat(1_000_000)),
            many_keys,
            many_sections,
            "[node]\n\"a\\u0000\\u001b[31m\" = 1".into(),
            "\u{feff}[nod\u{0}e]".into(),
        ];
        for text in &hostile {
            let error = parse_config(text, "c.toml").expect_err("hostile");
            assert!((1..=PROBLEMS_MAX).contains(&error.problems.len()));
            let told = error.to_string();
            assert!(told.len() < 8_000, "{} bytes for {:.40}", told.len(), text);
            assert!(!told.contains('\u{1b}'), "{told:?}");
        }
    }
}
