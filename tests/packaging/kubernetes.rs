//! The manifests of Kubernetes: what one names, another has.

use kit::documents::{read, root};
use serde_json::Value;

use crate::chronos;
use crate::yaml::{document_of, documents_of, list, members, text, texts};

pub const FILE: &str = "packaging/kubernetes/chronos.yaml";

const VERSIONS: [(&str, &str); 7] = [
    ("ServiceAccount", "v1"),
    ("ConfigMap", "v1"),
    ("Service", "v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("NetworkPolicy", "networking.k8s.io/v1"),
    ("StatefulSet", "apps/v1"),
    ("Kustomization", "kustomize.config.k8s.io/v1beta1"),
];

/// The objects of a kind.
pub fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    documents.iter().filter(|one| text(one, "kind") == kind).collect()
}

/// The one object of a kind.
pub fn the<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(documents, kind);
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

fn names(documents: &[Value], kind: &str) -> Vec<String> {
    of_kind(documents, kind).iter().map(|one| text(one, "metadata/name").to_owned()).collect()
}

/// Whether all labels of a selector are among these.
fn selects(selector: &Value, labels: &Value) -> bool {
    let selector = selector.as_object().expect("labels");
    !selector.is_empty() && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

pub fn references() {
    let documents = documents_of(FILE);
    for one in &documents {
        let version = VERSIONS.iter().find(|known| known.0 == text(one, "kind"));
        assert_eq!(version.map(|known| known.1), Some(text(one, "apiVersion")), "{one}");
        let name = text(one, "metadata/name");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
    }
    let set = the(&documents, "StatefulSet");
    let labels = set.pointer("/spec/template/metadata/labels").expect("labels");
    let selectors =
        ["Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"].map(|kind| {
            let place = match kind {
                "Service" => "/spec/selector",
                "NetworkPolicy" => "/spec/podSelector/matchLabels",
                _ => "/spec/selector/matchLabels",
            };
            let found = of_kind(&documents, kind);
            assert!(!found.is_empty(), "{kind}");
            found.iter().all(|one| selects(one.pointer(place).expect("a selector"), labels))
        });
    assert_eq!(selectors, [true; 4], "each selects the pods");
    let pod = set.pointer("/spec/template/spec").expect("a pod");
    let accounts = names(&documents, "ServiceAccount");
    assert!(accounts.contains(&text(pod, "serviceAccountName").to_owned()));
    let headless = of_kind(&documents, "Service");
    let headless = headless.iter().find(|one| one["spec"]["clusterIP"] == "None");
    let headless = headless.expect("a headless service");
    assert_eq!(text(headless, "metadata/name"), text(set, "spec/serviceName"));
    assert_eq!(headless["spec"]["publishNotReadyAddresses"], true);
    pods_have_what_they_mount(&documents, set, pod);
    let budget = the(&documents, "PodDisruptionBudget");
    assert_eq!(budget["spec"]["maxUnavailable"], 1, "two replicas hold a timer");
    let kustomization = document_of("packaging/kubernetes/kustomization.yaml");
    for file in texts(&kustomization, "resources") {
        assert!(root().join("packaging/kubernetes").join(file).exists(), "{file}");
    }
}

fn pods_have_what_they_mount(documents: &[Value], set: &Value, pod: &Value) {
    let claims =
        list(set, "spec/volumeClaimTemplates").iter().map(|one| text(one, "metadata/name"));
    let volumes: Vec<&str> =
        list(pod, "volumes").iter().map(|one| text(one, "name")).chain(claims).collect();
    for volume in list(pod, "volumes") {
        if let Some(map) = volume.get("configMap") {
            assert!(names(documents, "ConfigMap").contains(&text(map, "name").to_owned()));
        }
    }
    let container = &list(pod, "containers")[0];
    let version = read("Cargo.toml");
    let version = version.lines().find_map(|line| line.strip_prefix("version = \"")).expect("one");
    for one in list(pod, "containers").iter().chain(list(pod, "initContainers")) {
        for mount in list(one, "volumeMounts") {
            assert!(volumes.contains(&text(mount, "name")), "{mount}");
        }
        assert_eq!(text(one, "image"), format!("chronos:{}", version.trim_end_matches('"')));
    }
    let ports: Vec<&str> = list(container, "ports").iter().map(|one| text(one, "name")).collect();
    for (probe, path) in
        [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]
    {
        assert_eq!(text(container, &format!("{probe}/httpGet/path")), path);
        assert!(ports.contains(&text(container, &format!("{probe}/httpGet/port"))), "{probe}");
    }
}

pub fn rights() {
    let documents = documents_of(FILE);
    let pod = the(&documents, "StatefulSet").pointer("/spec/template/spec").expect("a pod");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert!(pod["securityContext"]["runAsUser"].as_u64().is_some_and(|id| id >= 1000));
    assert_eq!(text(pod, "securityContext/seccompProfile/type"), "Localhost");
    for one in list(pod, "containers").iter().chain(list(pod, "initContainers")) {
        let context = members(one, "securityContext");
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(texts(one, "securityContext/capabilities/drop"), ["ALL"]);
        assert!(one.pointer("/resources/limits/memory").is_some(), "{one}");
    }
    let policy = the(&documents, "NetworkPolicy");
    for rule in list(policy, "spec/ingress") {
        assert!(
            !list(rule, "from").is_empty() && !list(rule, "ports").is_empty(),
            "open to all: {rule}"
        );
    }
    assert!(pod["terminationGracePeriodSeconds"].as_u64().is_some_and(|seconds| seconds >= 15));
}

pub fn variables_are_keys() {
    let reference = chronos(&["--print-reference-config"]);
    let documents = documents_of(FILE);
    let pod = the(&documents, "StatefulSet").pointer("/spec/template/spec").expect("a pod");
    let of_pod =
        list(&list(pod, "containers")[0], "env").iter().map(|one| text(one, "name").to_owned());
    let compose = document_of(crate::compose::FILE);
    let of_compose = crate::compose::nodes(&compose).into_iter();
    let of_compose = of_compose.flat_map(|node| members(node.1, "environment").keys().cloned());
    let mut count = 0;
    for name in of_pod.chain(of_compose).filter(|name| name.starts_with("CHRONOS_")) {
        let is_known = [",", "."].iter().any(|end| reference.contains(&format!(" {name}{end}")));
        assert!(is_known, "{name} is no key");
        count += 1;
    }
    assert!(count > 15, "{count}");
}
