//! The unit, configuration and scripts of packages.

use kit::documents::{files_below, read, root};

use crate::{chronos, other};

/// The units of packages, with the packages' path of the program.
pub fn unit_is_that_of_tuning() {
    let build = read("packaging/build");
    let folder = tempfile::tempdir().expect("a folder");
    for unit in ["chronos.service", "chronos-original.service"] {
        // No package takes a unit as it is in tuning/, where it names /usr/local/bin.
        assert!(!build.contains(&format!("tuning/{unit}")), "{unit} goes into packages as it is");
        let said = other("sh", &["packaging/unit", unit]).expect("sh is there");
        let known = |text: &str, wanted: &str| text.lines().filter(|line| *line == wanted).count();
        for line in read(&format!("tuning/{unit}")).lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with("CPUAffinity=") {
                continue;
            }
            let line = line.replace("/usr/local/bin/", "/usr/bin/");
            assert!(known(&said, &line) > 0, "{unit} of packages lacks: {line}");
        }
        assert!(!said.contains("CPUAffinity=1") || said.contains("# One pinned"), "{said}");
        assert!(!said.contains("/usr/local"), "{said}");
        let file = folder.path().join(unit);
        std::fs::write(&file, said).expect("a file");
        let path = file.to_str().expect("plain");
        let threshold = "--threshold=20";
        other("systemd-analyze", &["security", "--no-pager", "--offline=true", threshold, path]);
    }
    let usual = other("sh", &["packaging/unit"]).expect("sh is there");
    assert_eq!(usual, other("sh", &["packaging/unit", "chronos.service"]).expect("sh is there"));
}

pub fn configuration_is_safe() {
    let path = root().join("packaging/chronos.toml");
    let path = path.to_str().expect("plain");
    assert!(chronos(&["--config", path, "--check-config"]).contains("configuration ok"));
    let effective = chronos(&["--config", path, "--print-config"]);
    for line in [
        "listen = \"127.0.0.1:7253\"",
        "listen = \"127.0.0.1:7254\"",
        "data_dir = \"/var/lib/chronos\"",
        "mode = \"sync\"",
        "insecure_open = false",
    ] {
        assert!(effective.contains(line), "{line} is not in\n{effective}");
    }
}

pub fn scripts_are_scripts() {
    let debian = ["postinst", "postrm"].map(|name| format!("packaging/debian/{name}"));
    let scripts = files_below("packaging/rpm").into_iter().chain(debian);
    let mut count = 0;
    for script in scripts.chain(["packaging/unit".to_owned()]) {
        other("sh", &["-n", &script]).expect("sh is there");
        count += 1;
    }
    for script in ["packaging/build", "packaging/test", "packaging/test-deb"] {
        other("bash", &["-n", script]).expect("bash is there");
        other("shellcheck", &["--severity=warning", script]);
        count += 1;
    }
    assert_eq!(count, 10);
}
