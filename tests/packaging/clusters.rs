//! Starts what the manifests describe, without a container runtime: each node as a process with the
//! arguments, variables, volumes and address of its container. The nodes have a network of their
//! own, where loopback has all the addresses, and folders of their own in the places of volumes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use kit::children::{SETPRIV, Tied, command};
use kit::runner::cannot_run;
use serde_json::Value;

use crate::yaml::{document_of, documents_of, list, members, text, texts};
use crate::{CHRONOS, chronos, compose, kubernetes};

/// New namespaces, and what ends with them. Root needs none of users, and keeps its right to lock
/// memory: rings of three nodes and a receiver may be more than another user may lock.
const OWN: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// Longest time for a cluster to come up and pop, in seconds.
const LIMIT_S: &str = "120";

/// A container as far as a process can be one.
#[derive(Default)]
struct Container {
    ip: String,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    /// Folder on this machine, place in the container, whether it is only read.
    volumes: Vec<(String, String, bool)>,
    /// A script that runs before, if there is one.
    before: Option<String>,
}

/// A text as one word of a shell.
fn word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl Container {
    /// The script that becomes the node.
    fn script(&self) -> String {
        let mut script = String::from("set -eu\n");
        for (folder, place, is_read) in &self.volumes {
            let (folder, place) = (word(folder), word(place));
            writeln!(script, "mkdir -p {folder} {place}\nmount --bind {folder} {place}")
                .expect("memory");
            if *is_read {
                writeln!(script, "mount -o remount,bind,ro {place}").expect("memory");
            }
        }
        if let Some(before) = &self.before {
            writeln!(script, "/bin/sh -ec {}", word(before)).expect("memory");
        }
        write!(script, "exec env -i").expect("memory");
        for (name, value) in &self.variables {
            write!(script, " {}", word(&format!("{name}={value}"))).expect("memory");
        }
        write!(script, " {}", word(CHRONOS)).expect("memory");
        for argument in &self.arguments {
            write!(script, " {}", word(argument)).expect("memory");
        }
        script + "\n"
    }
}

pub fn compose_forms_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let document = document_of(compose::FILE);
    let network = text(&document["networks"]["cluster"]["ipam"]["config"][0], "subnet").to_owned();
    let containers = compose::nodes(&document).into_iter().map(|(name, node)| {
        let ip = text(node, "networks/cluster/ipv4_address").to_owned();
        assert_eq!(ip.rsplit_once('.').map(|ip| ip.0), network.rsplit_once('.').map(|net| net.0));
        let variables = members(node, "environment").iter();
        let as_text = |value: &Value| value.as_str().expect("a text").to_owned();
        let volumes = texts(node, "volumes").into_iter().map(|volume| {
            let (volume, place) = volume.split_once(':').expect("a volume and its place");
            (place_of(folder.path(), &format!("{name}-{volume}")), place.to_owned(), false)
        });
        Container {
            ip,
            variables: variables.map(|(name, value)| (name.clone(), as_text(value))).collect(),
            arguments: texts(node, "command").into_iter().map(str::to_owned).collect(),
            volumes: volumes.collect(),
            before: None,
        }
    });
    run(folder.path(), &containers.collect::<Vec<_>>(), "", None);
}

fn place_of(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("plain").to_owned()
}

pub fn kubernetes_forms_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let documents = documents_of(kubernetes::FILE);
    let set = kubernetes::the(&documents, "StatefulSet");
    let map = kubernetes::the(&documents, "ConfigMap");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    for (name, content) in members(map, "data") {
        let file = folder.path().join("config").join(name);
        fs::write(file, content.as_str().expect("text")).expect("a file");
    }
    // The secret that an operator makes (docs/packages.md).
    let secret = folder.path().join("secret");
    fs::create_dir(&secret).expect("a folder");
    fs::write(secret.join("cluster.secret"), "a secret of thirty-two bytes or so\n")
        .expect("a file");
    let tokens = place_of(&secret, "tokens");
    let token = chronos(&["token", "new", "--name", "test", "--role", "client", "--file", &tokens]);
    let replicas = set["spec"]["replicas"].as_u64().expect("a number");
    let service = text(set, "spec/serviceName");
    let mut hosts = String::from("127.0.0.1 localhost\n");
    let containers = (0..replicas).map(|ordinal| {
        let name = format!("{}-{ordinal}", text(set, "metadata/name"));
        let ip = format!("10.42.0.{}", 11 + ordinal);
        writeln!(hosts, "{ip} {name}.{service}").expect("memory");
        pod(folder.path(), set, &name, ordinal, ip)
    });
    let containers: Vec<Container> = containers.collect();
    run(folder.path(), &containers, &hosts, Some(token.trim()));
}

/// A pod of the set, as the kubelet would make it.
fn pod(folder: &Path, set: &Value, name: &str, ordinal: u64, ip: String) -> Container {
    let spec = set.pointer("/spec/template/spec").expect("a pod");
    let container = &list(spec, "containers")[0];
    let field = |path: &str| match path {
        "metadata.name" => name.to_owned(),
        "status.podIP" => ip.clone(),
        "metadata.labels['apps.kubernetes.io/pod-index']" => ordinal.to_string(),
        _ => panic!("{path} is not known here"),
    };
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut variables = Vec::new();
    for variable in list(container, "env") {
        let mut value = match variable.pointer("/valueFrom/fieldRef/fieldPath") {
            Some(path) => field(path.as_str().expect("a text")),
            None => text(variable, "value").to_owned(),
        };
        for (name, known) in &known {
            value = value.replace(&format!("$({name})"), known);
        }
        assert!(!value.contains("$("), "{value}: the variable comes later or never");
        known.insert(text(variable, "name").to_owned(), value.clone());
        variables.push((text(variable, "name").to_owned(), value));
    }
    let volumes = list(container, "volumeMounts").iter().map(|mount| {
        let volume = text(mount, "name");
        let place = match volume {
            "config" | "secret" => place_of(folder, volume),
            _ => place_of(folder, &format!("{name}-{volume}")),
        };
        (place, text(mount, "mountPath").to_owned(), mount["readOnly"] == true)
    });
    let before = &list(spec, "initContainers")[0];
    assert_eq!(texts(before, "command"), ["/bin/sh", "-ec"]);
    assert_eq!(before["volumeMounts"], container["volumeMounts"]);
    Container {
        ip: ip.clone(),
        variables,
        arguments: texts(container, "args").into_iter().map(str::to_owned).collect(),
        volumes: volumes.collect(),
        before: Some(texts(before, "args")[0].to_owned()),
    }
}

/// Starts the containers; waits until each node sees all others alive; creates a timer at the first
/// and waits for its pop.
fn run(folder: &Path, containers: &[Container], hosts: &str, token: Option<&str>) {
    let loadgen = Path::new(CHRONOS).with_file_name("chronos-loadgen");
    assert!(loadgen.exists(), "type `cargo build` first: there is no {}", loadgen.display());
    let mut script = String::from("set -eu\nmount -t tmpfs none /var/lib\nip link set lo up\n");
    if !hosts.is_empty() {
        fs::write(folder.join("hosts"), hosts).expect("a file");
        script.push_str("mount --bind hosts /etc/hosts\n");
    }
    for (number, one) in containers.iter().enumerate() {
        fs::write(folder.join(format!("node{number}")), one.script()).expect("a file");
        writeln!(script, "ip address add {}/32 dev lo", one.ip).expect("memory");
        writeln!(
            script,
            "unshare --mount sh node{number} 2>log{number} &\nalive=\"${{alive-}} $!\""
        )
        .expect("memory");
    }
    // A receiver at an address that is no node's.
    script.push_str("ip address add 10.254.0.1/32 dev lo\n");
    let loadgen = word(loadgen.to_str().expect("plain"));
    writeln!(script, "{loadgen} sink --sink-listen 10.254.0.1:9000 >pops &").expect("memory");
    for one in containers {
        let status = format!("{} cluster status --admin {}:7254", word(CHRONOS), one.ip);
        writeln!(script, "until {status} >status 2>&1; do kill -0 $alive; sleep 0.2; done")
            .expect("memory");
    }
    let authorization = token.map(|token| format!("-H 'Authorization: Bearer {token}'"));
    let authorization = authorization.unwrap_or_default();
    let callback = r#"{"http":{"uri":"http://10.254.0.1:9000/","opaque":"x"}}"#;
    let timer = format!(r#"{{"timing":{{"interval":0.1}},"callback":{callback}}}"#);
    let create = format!("http://{}:7253/timers -d '{timer}'", containers[0].ip);
    if token.is_some() {
        // Without a token nobody creates a timer.
        writeln!(script, "[ \"$(curl -s -o /dev/null -w '%{{http_code}}' {create})\" = 401 ]")
            .expect("memory");
    }
    writeln!(script, "curl -s -f {authorization} {create}").expect("memory");
    script.push_str("until grep -q '^1 callback' pops; do sleep 0.1; done\necho popped\n");
    fs::write(folder.join("script"), script).expect("a file");

    let mut shell = command("timeout");
    shell.args(["--kill-after=5", LIMIT_S]).args(SETPRIV).args(unshare());
    shell.args(["sh", "script"]);
    shell.current_dir(folder).stdin(Stdio::null());
    if !may_unshare() {
        cannot_run("no namespaces: `unshare --user --net --mount --pid` is refused");
    }
    let output = shell.output_tied().expect("unshare runs");
    let mut said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    for file in (0..containers.len()).map(|number| format!("log{number}")).chain(["status".into()])
    {
        said += &fs::read_to_string(folder.join(file)).unwrap_or_default();
    }
    if said.contains("Not enough memory may be locked") {
        cannot_run("too little memory may be locked here: raise `ulimit -l`");
    }
    assert!(output.status.success() && said.contains("popped"), "{}\n{said}", output.status);
}

fn unshare() -> Vec<&'static str> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let users: &[&str] = if is_root { &[] } else { &["--user", "--map-root-user"] };
    [&["unshare"], users, OWN.as_slice()].concat()
}

fn may_unshare() -> bool {
    let words = unshare();
    let mut unshare = command(words[0]);
    unshare.args(&words[1..]).args(["ip", "link", "set", "lo", "up"]);
    unshare.output_tied().is_ok_and(|output| output.status.success())
}
