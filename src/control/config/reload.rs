//! Reads the configuration again while the node runs (SIGHUP). What takes effect: the members, the
//! sites, where callbacks may go and how much is asked there, TLS between nodes, and the contents
//! of the files of secrets, of tokens and of TLS.
//! Every other key waits for a restart. A configuration with an error changes nothing.

use std::sync::Arc;

use tracing::{error, info, warn};

use super::check::open_listeners;
use super::check_peer_tls::{has_others, needs_peer_tls};
use super::error::Origin;
use super::files::ConfigFiles;
use super::keys::KEYS;
use super::load::Loaded;
use super::named_files::read_static_names;
use super::settings::Config;
use super::tls::TlsConfig;
use super::watch::Watch;
use crate::base::destinations::Rule as DestinationRule;
use crate::cluster::view::View;
use crate::node::callbacks::policy::Rules;
use crate::node::commands::Command;

/// Reads the configuration of a running node again.
#[derive(Debug)]
pub(crate) struct Reloader {
    files: ConfigFiles,
    /// The configuration that the node runs with.
    config: Config,
    /// Whether the node has opened its port for plain clients and nodes.
    has_port: bool,
    /// The view that the cores were given last.
    view: Arc<View>,
    /// The files that the configuration names.
    watch: Watch,
    /// What the cores are to be told of what has changed.
    commands: Vec<Command>,
    /// What may be asked of callback servers, if that has changed.
    destinations: Option<Vec<(String, DestinationRule)>>,
}

impl Reloader {
    /// Makes the reloader of a node that was started with `config` from `files` and has this view.
    pub(crate) fn new(files: ConfigFiles, config: Config, view: Arc<View>) -> Self {
        let watch = Watch::new(&config);
        let has_port = config.opens_listen();
        Self { files, config, has_port, view, watch, commands: Vec::new(), destinations: None }
    }

    /// Returns the view that the cores were given last.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Returns the configuration that the node runs with.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns what the cores are to be told since the last call, but the members.
    pub(crate) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Returns what may be asked of callback servers, if that has changed since the last call.
    pub(crate) fn take_destinations(&mut self) -> Option<Vec<(String, DestinationRule)>> {
        self.destinations.take()
    }

    /// Takes files that the configuration names and that have changed since the last call. The
    /// configuration itself is not read.
    pub(crate) fn look_at_files(&mut self) {
        let (all, told) = self.watch.look(&self.config);
        for read in all {
            self.take_files(read);
        }
        for warning in told {
            warn!("{warning}");
        }
    }

    /// Reads the file of names again (SIGUSR2).
    pub(crate) fn read_names(&mut self) {
        if self.config.static_names_file.path.is_empty() {
            info!("there is no file of names; it belongs to files of the original service");
            return;
        }
        let (mut read, mut told) = (self.config.clone(), Vec::new());
        // An error is impossible: what is wrong is told.
        let _ = read_static_names(&mut read, &mut told);
        told.iter().for_each(|warning| warn!("{warning}"));
        self.read_static_names(&read);
        info!(count = self.config.node.static_names.len(), "names that lead elsewhere are read");
    }

    /// Reads the files again. Returns
    ///
    /// - `Ok(Some(view))`: the members or sites differ; the caller gives the view to all cores,
    /// - `Ok(None)`: the members and sites are the same,
    /// - `Err(reason)`: nothing has changed. The reason is logged.
    pub(crate) fn reload(&mut self) -> Result<Option<Arc<View>>, String> {
        let result = self.read();
        if let Err(reason) = &result {
            for line in reason.lines() {
                error!("not reloaded: {line}");
            }
        }
        result
    }

    fn read(&mut self) -> Result<Option<Arc<View>>, String> {
        if self.files.is_empty() {
            return Err(
                "there is no file to read again; start with --config or with the INI files \
                        of the original service"
                    .into(),
            );
        }
        let Loaded { config, warnings } = self.files.load().map_err(|error| error.to_string())?;
        for warning in warnings {
            warn!("{warning}");
        }
        self.check_what_would_be_open(&config)?;
        self.check_who_could_connect(&config)?;
        for key in changed(&self.config, &config) {
            warn!("{key}: changed; it takes effect at the next start");
        }
        if config.membership == self.config.membership {
            info!("reloaded: the members are the same");
            self.read_rest(config);
            return Ok(None);
        }
        let view = View::build(Some(&self.view), &config.membership);
        let view = Arc::new(view.map_err(|error| error.to_string())?);
        if view.has_left() && !self.view.has_left() {
            warn!(
                "the lists name no member any more: this node has left its cluster, and refuses \
                 requests until it is stopped, restarted, or added to a cluster"
            );
        }
        self.view = view;
        self.config.membership.clone_from(&config.membership);
        self.read_rest(config);
        announce(&self.config);
        Ok(Some(self.view.clone()))
    }
}

impl Reloader {
    /// Takes what else may change while a node runs.
    fn read_rest(&mut self, read: Config) {
        self.read_rules(&read);
        self.read_destinations(&read);
        self.take_files(read);
    }

    /// Takes the contents of files.
    fn take_files(&mut self, read: Config) {
        self.read_secrets(&read);
        self.read_tokens(&read);
        self.read_signer(&read);
        self.read_static_names(&read);
        self.read_connector(&read);
        self.read_peer_tls(&read);
        self.read_acceptor(read);
    }

    fn read_rules(&mut self, read: &Config) {
        if self.config.node.rules != read.node.rules {
            self.config.node.rules.clone_from(&read.node.rules);
            self.commands.push(Command::Rules(Arc::new(read.node.rules.clone())));
            let Rules { allow, deny } = &read.node.rules;
            let (allow, deny) = (allow.len(), deny.len());
            info!(allow, deny, "reloaded: the rules of where callbacks may go have changed");
        }
    }

    fn read_destinations(&mut self, read: &Config) {
        if self.config.destinations != read.destinations {
            self.config.destinations.clone_from(&read.destinations);
            self.destinations = Some(read.destinations.clone());
            let count = read.destinations.len();
            info!(count, "reloaded: what may be asked of callback servers has changed");
        }
    }

    /// Refuses a change at once of what TLS asks of clients while what makes up for it waits for a
    /// restart.
    fn check_what_would_be_open(&self, read: &Config) -> Result<(), String> {
        let mut mixed = self.config.clone();
        mixed.tls.client_auth = read.tls.client_auth;
        mixed.peer_tls.clone_from(&read.peer_tls);
        match open_listeners(&mixed).into_iter().find(|open| !open.is_meant) {
            Some(open) => Err(format!(
                "{}, until a restart takes the other changes; restart the node",
                open.risk
            )),
            None => Ok(()),
        }
    }

    /// Refuses members that could not connect to this node before a restart: where clients are
    /// served over TLS alone, the port for nodes is opened or not at the start.
    fn check_who_could_connect(&self, read: &Config) -> Result<(), String> {
        let mut mixed = self.config.clone();
        mixed.peer_tls.clone_from(&read.peer_tls);
        mixed.membership.clone_from(&read.membership);
        let is_closed = !self.has_port && has_others(&mixed.membership);
        match mixed.node.serves_timers && (is_closed || needs_peer_tls(&mixed)) {
            true => Err(format!(
                "{}: other nodes could not connect to this one until a restart takes the other \
                 changes; restart the node with [cluster] tls = \"required\"",
                self.config.describe("node", "plain_clients")
            )),
            false => Ok(()),
        }
    }

    /// Takes how nodes talk over TLS with each other.
    fn read_peer_tls(&mut self, read: &Config) {
        let running = &mut self.config.node.peer_tls;
        if *running == read.node.peer_tls {
            return;
        }
        running.clone_from(&read.node.peer_tls);
        self.config.peer_tls.clone_from(&read.peer_tls);
        self.commands.push(Command::PeerTls(running.clone()));
        let tls = self.config.describe("cluster", "tls");
        info!("reloaded: further connections between nodes: {tls}, with what its files say now");
    }

    /// Takes the tokens of the file that the node was started with.
    fn read_tokens(&mut self, read: &Config) {
        let (running, tokens) = (&mut self.config.node.tokens, &read.node.tokens);
        let is_same_file = self.config.tokens_file == read.tokens_file;
        if let Some(tokens) =
            tokens.as_ref().filter(|_| is_same_file && *running != read.node.tokens)
        {
            // What the names use goes on: their timers and connections are still there.
            let tokens = match running {
                Some(former) => Arc::new(tokens.going_on_from(former)),
                None => Arc::clone(tokens),
            };
            *running = Some(Arc::clone(&tokens));
            self.commands.push(Command::Tokens(Arc::clone(&tokens)));
            info!(count = tokens.count(), "reloaded: the tokens of clients have changed");
        }
    }

    /// Takes the signing secrets of the file that the node was started with.
    fn read_signer(&mut self, read: &Config) {
        let running = &mut self.config.node.signer;
        let is_same_file = self.config.signing_secrets_file == read.signing_secrets_file;
        if !is_same_file || *running == read.node.signer {
            return;
        }
        running.clone_from(&read.node.signer);
        self.commands.extend(running.clone().map(Command::Signer));
        let count = running.as_ref().map_or(0, |signer| signer.count());
        info!(count, "reloaded: the secrets that callbacks are signed with have changed");
    }

    /// Takes which names lead elsewhere.
    fn read_static_names(&mut self, read: &Config) {
        let running = &mut self.config.node.static_names;
        if *running != read.node.static_names {
            *running = Arc::clone(&read.node.static_names);
            self.commands.push(Command::StaticNames(Arc::clone(running)));
            info!(count = running.len(), "reloaded: other names lead elsewhere");
        }
    }

    /// Takes whom callbacks over TLS believe, and what they show.
    fn read_connector(&mut self, read: &Config) {
        self.config.callback_tls.clone_from(&read.callback_tls);
        if self.config.node.connector != read.node.connector {
            self.config.node.connector.clone_from(&read.node.connector);
            self.commands.push(Command::Connector(read.node.connector.clone()));
            info!("reloaded: further callbacks over TLS use the new authorities and certificate");
        }
    }

    /// Takes the secrets of the file that the node was started with. A change of the file's name
    /// waits for a restart, as does the first secret of a node without one.
    fn read_secrets(&mut self, read: &Config) {
        let (running, read_secrets) = (&mut self.config.node.guard, &read.node.guard.secrets);
        let is_same_file = self.config.secret_file == read.secret_file;
        if !is_same_file || running.secrets == *read_secrets {
            return;
        }
        running.secrets.clone_from(read_secrets);
        self.commands.extend(read_secrets.clone().map(Command::Secrets));
        let count = read_secrets.as_ref().map_or(0, |secrets| secrets.count());
        info!(count, "reloaded: the cluster's secrets have changed; connections that stand stay");
    }
}

impl Reloader {
    /// Takes certificate, key and authorities. A listener opens or closes only at a start.
    fn read_acceptor(&mut self, read: Config) {
        let running = self.config.node.tls.as_mut();
        let Some((running, new)) = running.zip(read.node.tls) else { return };
        self.config.tls = TlsConfig {
            listen: self.config.tls.listen,
            handshake_timeout_ms: self.config.tls.handshake_timeout_ms,
            ..read.tls
        };
        if running.acceptor != new.acceptor {
            running.acceptor = Arc::new(new.acceptor.following(&running.acceptor));
            self.commands.push(Command::Acceptor(Arc::clone(&running.acceptor)));
            info!("reloaded: further connections over TLS get the new certificate");
        }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(",")
}

/// Logs the members.
pub(crate) fn announce(config: &Config) {
    let members = &config.membership;
    info!(
        localhost = members.localhost,
        nodes = listed(members.nodes.iter()),
        joining = listed(members.joining.iter()),
        leaving = listed(members.leaving.iter()),
        site = members.local_site,
        remote_sites = listed(members.remote_sites.iter().map(|(name, _)| name)),
        "the cluster has {} nodes, {} joining, {} leaving",
        members.nodes.len(),
        members.joining.len(),
        members.leaving.len()
    );
}

/// Returns the keys that differ and that a reload does not take: all keys but the members, the
/// sites, where callbacks may go, TLS between nodes, and the files of TLS.
fn changed(running: &Config, read: &Config) -> Vec<String> {
    // The members are compared as a whole elsewhere. Their keys would be told here by mistake.
    let members = ["localhost", "nodes", "joining", "leaving"];
    let of_callbacks = ["allow", "deny", "destinations", "ca", "client_cert", "client_key"];
    let files = ["cert", "key", "client_ca", "client_auth"];
    let peer_tls = ["tls", "tls_cert", "tls_key", "tls_ca"];
    let has_tls = running.node.tls.is_some() && read.node.tls.is_some();
    KEYS.iter()
        .filter(|key| !(has_tls && key.section == "tls" && files.contains(&key.name)))
        .filter(|key| key.section != "sites")
        .filter(|key| !(key.section == "callbacks" && of_callbacks.contains(&key.name)))
        .filter(|key| key.section != "cluster" || !peer_tls.contains(&key.name))
        .filter(|key| key.section != "cluster" || !members.contains(&key.name))
        // A value that was made from the node's name changes only at a start.
        .filter(|key| !matches!(read.origin(key.section, key.name), Origin::OwnName))
        .filter(|key| (key.get)(running) != (key.get)(read))
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::files::IniFiles;
    use crate::node::clients::tokens::{Role, line_of};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn begin(folder: &Path, cluster: &str) -> Reloader {
        let path = folder.join("cluster");
        std::fs::write(&path, cluster).expect("written");
        let absent = Some(folder.join("absent"));
        let ini =
            IniFiles { local: absent.clone(), cluster: Some(path), shared: absent, names: None };
        let mut files = ConfigFiles::new(None, Some(&ini), Vec::new(), Vec::new());
        let config = files.load().expect("a cluster").config;
        let view = View::build(None, &config.membership).expect("a cluster");
        Reloader::new(files, config, Arc::new(view))
    }

    #[test]
    fn members_change_and_mistakes_change_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cluster");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        let mut reloader = begin(folder.path(), "[cluster]\nlocalhost = a\nnode = a\n");
        assert_eq!(reloader.reload().expect("the same").map(|_| ()), None);
        write("[cluster]\nlocalhost = a\nnode = a\njoining = b\n");
        let view = reloader.reload().expect("fine").expect("another");
        assert!(view.is_changing() && view.node_named("b").is_some());
        for (text, told) in [
            ("[cluster]\nlocalhost = a\nnode a\n", "cluster:3: not valid INI"),
            ("[cluster]\nlocalhost = c\nnode = c\n", "restart it to give it another address"),
            ("[cluster]\nlocalhost = a\nnode = b\n", "no list has that address"),
        ] {
            write(text);
            let error = reloader.reload().expect_err(text);
            assert!(error.contains(told), "{error}");
            assert!(Arc::ptr_eq(reloader.view(), &view));
        }
        write("[cluster]\nlocalhost = a\nnode = a\nnode = b\n");
        let later = reloader.reload().expect("fine").expect("another");
        assert_eq!(later.node_named("b"), view.node_named("b"), "peers keep their numbers");
    }

    #[test]
    fn other_keys_are_told_to_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut reloader = begin(folder.path(), "[cluster]\nlocalhost = a\nnode = a\n");
        let before = reloader.config.clone();
        let text = "[cluster]\nlocalhost = a\nnode = a\nnode = b\npromotion = no\n";
        std::fs::write(folder.path().join("cluster"), text).expect("written");
        let config = reloader.files.load().expect("fine").config;
        assert_eq!(changed(&before, &config), ["[cluster] promotion"]);
    }

    #[test]
    fn secrets_are_read_again_and_never_taken_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        let write = |lines: &str, mode: u32| {
            std::fs::write(&secret, lines).expect("written");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&secret, permissions).expect("its own file");
        };
        let (one, two) =
            ("the first secret of this cluster, ok", "the second secret of this one ok");
        write(one, 0o600);
        let with = |file: &Path| {
            format!("[cluster]\nlocalhost = a\nnode = a\nsecret_file = {}\n", file.display())
        };
        let mut reloader = begin(folder.path(), &with(&secret));
        let count = |reloader: &mut Reloader| {
            let told = reloader.take_commands();
            told.into_iter().find_map(|command| match command {
                Command::Secrets(secrets) => Some(secrets.count()),
                _ => None,
            })
        };
        assert!(reloader.reload().is_ok() && count(&mut reloader).is_none(), "the same");
        write(&format!("{one}\n{two}"), 0o600);
        assert!(reloader.reload().is_ok());
        assert_eq!((count(&mut reloader), count(&mut reloader)), (Some(2), None));
        for (lines, mode) in [(two, 0o640), ("", 0o600), ("short", 0o600)] {
            write(lines, mode);
            let error = reloader.reload().expect_err(lines);
            assert!(error.contains("secret_file") && !error.contains(two), "{error}");
            assert_eq!(count(&mut reloader), None);
        }
        // A secret file of another name waits for the next start.
        let other = folder.path().join("other");
        write(two, 0o600);
        std::fs::rename(&secret, &other).expect("renamed");
        std::fs::write(folder.path().join("cluster"), with(&other)).expect("written");
        assert!(reloader.reload().is_ok() && count(&mut reloader).is_none());
        std::fs::write(folder.path().join("cluster"), "[cluster]\nlocalhost = a\nnode = a\n")
            .expect("written");
        assert!(reloader.reload().is_ok() && count(&mut reloader).is_none());
    }

    /// Certificates are no longer asked for at once, tokens only after a restart: in between the
    /// listener would be open.
    #[test]
    fn what_would_be_open_until_a_restart_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            std::fs::write(path(name), text).expect("written");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path(name), mode).expect("its own file");
        };
        let key = rcgen::KeyPair::generate().expect("randomness");
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]);
        let certificate = parameters.expect("a name").self_signed(&key).expect("its own");
        write("cert", &certificate.pem());
        write("key", &key.serialize_pem());
        write("tokens", &line_of("ops", Role::Operator, "a token"));
        let asks = format!("client_auth = 'required'\nclient_ca = {:?}", path("cert"));
        let tokens = format!("auth.tokens_file = {:?}", path("tokens"));
        for listener in ["node.listen_tls = '10.0.0.1:7443'", "admin.listen_tls = '10.0.0.1:7255'"]
        {
            let config = |tls: &str, rest: &str| {
                let (cert, key) = (path("cert"), path("key"));
                format!("{listener}\n{rest}\n[tls]\ncert = {cert:?}\nkey = {key:?}\n{tls}")
            };
            write("toml", &config(&asks, ""));
            let mut files = ConfigFiles::new(Some(&path("toml")), None, Vec::new(), Vec::new());
            let running = files.load().expect("fine").config;
            let mut reloader = Reloader::new(files, running, Arc::new(View::alone("a")));
            write("toml", &config("", &tokens));
            let told = reloader.reload().expect_err("open until a restart");
            assert!(told.contains("until a restart") && told.contains("listen_tls"), "{told}");
            assert!(reloader.take_commands().is_empty(), "nothing has changed");
            // The other order is fine: tokens first, and after a restart no certificates.
            write("toml", &config(&asks, &tokens));
            assert!(reloader.reload().is_ok());
        }
    }

    /// A node that has no port for other nodes cannot get others before a restart.
    #[test]
    fn members_that_could_not_connect_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let key = rcgen::KeyPair::generate().expect("randomness");
        let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]);
        let certificate = parameters.expect("a name").self_signed(&key).expect("its own");
        std::fs::write(path("cert"), certificate.pem()).expect("written");
        std::fs::write(path("key"), key.serialize_pem()).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path("key"), mode).expect("its own file");
        let config = |plain: &str, rest: &str| {
            let (cert, key) = (path("cert"), path("key"));
            let text = format!(
                "node.plain_clients = {plain}\n[tls]\ncert = {cert:?}\nkey = {key:?}\n\
                 [cluster]\nlocalhost = '127.0.0.1:7253'\n{rest}"
            );
            std::fs::write(path("toml"), text).expect("written");
        };
        config("false", "");
        let mut files = ConfigFiles::new(Some(&path("toml")), None, Vec::new(), Vec::new());
        let running = files.load().expect("fine").config;
        let view = View::build(None, &running.membership).expect("alone");
        let mut reloader = Reloader::new(files, running, Arc::new(view));
        assert!(reloader.reload().is_ok(), "nothing has changed");
        let others = "nodes = ['127.0.0.1:7253', '127.0.0.2:7253']\n";
        let tls = format!("{others}tls = 'required'\ntls_ca = {:?}\n", path("cert"));
        for (plain, rest) in [("true", others), ("false", &tls)] {
            config(plain, rest);
            let told = reloader.reload().expect_err("a restart is needed");
            assert!(told.contains("[node] plain_clients = false"), "{told}");
            assert!(told.contains("until a restart"), "{told}");
            assert!(reloader.take_commands().is_empty(), "nothing has changed");
        }
        config("true", "");
        assert!(reloader.reload().is_ok(), "it waits for a restart, and nobody is kept out");
    }

    #[test]
    fn without_files_there_is_nothing_to_read() {
        let config = Config::default();
        let view = Arc::new(View::alone("a"));
        let mut reloader = Reloader::new(ConfigFiles::default(), config, view);
        assert!(reloader.reload().is_err_and(|reason| reason.contains("no file to read again")));
    }
}
