//! The configuration as an operator meets it: the binary with files, variables and flags, its words
//! and exit codes.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use kit::children;
use kit::children::Tied;
use tempfile::NamedTempFile;

/// Runs the binary without any `CHRONOS_` variable but those given.
fn chronos(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(arguments).stdin(Stdio::null()).env_clear();
    command.envs(variables.iter().copied()).output_tied().expect("the binary runs")
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("a plain path")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Standard error of a run that must end with `code` and print nothing else.
fn failure(output: &Output, code: i32) -> String {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(text(&output.stdout), "");
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

/// Standard output of a run that must succeed.
fn success(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_good_file_passes_the_check() {
    let good = file("[node]\ncores = [0]\n[limits]\ntimers_max = 1_000\n");
    let output = chronos(&["--config", path(&good), "--check-config"], &[]);
    assert!(success(&output).starts_with("configuration ok"));
    assert_eq!(text(&output.stderr), "");
    success(&chronos(&["--check-config"], &[]));
}

#[test]
fn every_problem_of_a_bad_file_is_told_with_its_line() {
    let bad = file("[limits]\ntimer_max = 5\nbody_bytes_max = 'big'\n\n[nodes]\n");
    let errors = failure(&chronos(&["--config", path(&bad), "--check-config"], &[]), 2);
    let expected = [
        format!(
            "error: {}:2: unknown key \"timer_max\" in [limits]; did you mean timers_max?",
            path(&bad)
        ),
        format!("error: {}:3: [limits] body_bytes_max: expected a whole number", path(&bad)),
        format!("error: {}:5: unknown section \"nodes\"; did you mean node?", path(&bad)),
    ];
    assert_eq!(errors.lines().count(), expected.len(), "{errors}");
    for (line, expected) in errors.lines().zip(&expected) {
        assert!(line.starts_with(expected.as_str()), "{line}\n{expected}");
    }
    // Serving refuses the same file in the same words, before anything is started.
    assert_eq!(failure(&chronos(&["--config", path(&bad)], &[]), 2), errors);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = failure(&chronos(&["--config", "/nonexistent/c.toml"], &[]), 2);
    assert!(missing.contains("/nonexistent/c.toml: cannot be read: No such file"), "{missing}");
    let directory = failure(&chronos(&["--config", "/", "--check-config"], &[]), 2);
    assert!(directory.contains("/: cannot be read"), "{directory}");
    let endless = failure(&chronos(&["--config", "/dev/zero", "--check-config"], &[]), 2);
    assert!(endless.contains("/dev/zero: cannot be read: it is no file"), "{endless}");
    let long = file(&"#\n".repeat(1 << 20));
    let long = failure(&chronos(&["--config", path(&long), "--check-config"], &[]), 2);
    assert!(long.contains("larger than 1048576 bytes"), "{long}");
    let mut latin = NamedTempFile::new().expect("a temporary file");
    latin.write_all(b"[node]\n# caf\xe9\n").expect("written");
    let errors = failure(&chronos(&["--config", path(&latin), "--check-config"], &[]), 2);
    assert!(errors.contains("byte 12 is not UTF-8"), "{errors}");
    let syntax = file("[node\n");
    let errors = failure(&chronos(&["--config", path(&syntax), "--check-config"], &[]), 2);
    assert!(errors.contains(":1: not valid TOML: "), "{errors}");
}

#[test]
fn the_printed_configuration_tells_origins_and_reads_back() {
    let from = file("[node]\nspin_us = 60\ninstance_id = 3\n\n[log]\nlevel = \"debug\"\n");
    let arguments =
        ["--config", path(&from), "--listen", "127.0.0.1:0", "--admin", "off", "--print-config"];
    let variables = [("CHRONOS_NODE_INSTANCE_ID", "4"), ("CHRONOS_LOG_LEVEL", "trace")];
    let printed = success(&chronos(&arguments, &variables));
    for (setting, origin) in [
        ("listen = \"127.0.0.1:0\"", "flag --listen"),
        ("spin_us = 60", &format!("{}:2", path(&from))),
        ("instance_id = 4", "environment CHRONOS_NODE_INSTANCE_ID"),
        ("level = \"trace\"", "environment CHRONOS_LOG_LEVEL"),
        ("enabled = false", "flag --admin"),
        ("pin = true", "default"),
    ] {
        // Two sections may have a key of the same name.
        let origin = format!("  # {origin}");
        let is_it = |line: &str| line.starts_with(setting) && line.ends_with(&origin);
        assert!(printed.lines().any(is_it), "{setting}{origin} not in\n{printed}");
    }
    let again = file(&printed);
    let reprinted = success(&chronos(&["--config", path(&again), "--print-config"], &[]));
    let settings = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split("  #").next().unwrap_or("").trim_end().to_string()).collect()
    };
    assert_eq!(settings(&reprinted), settings(&printed));
}

#[test]
fn the_environment_can_name_the_file_and_bad_variables_are_refused() {
    let from = file("[node]\nspin_us = 61\n");
    let printed = success(&chronos(&["--print-config"], &[("CHRONOS_CONFIG", path(&from))]));
    assert!(printed.contains("spin_us = 61"), "{printed}");
    let bad = [("CHRONOS_LIMITS_TIMERS_MAX", "many")];
    let errors = failure(&chronos(&["--check-config"], &bad), 2);
    let told =
        "environment CHRONOS_LIMITS_TIMERS_MAX: [limits] timers_max: expected a whole number";
    assert!(errors.contains(told), "{errors}");
    assert!(errors.contains("found \"many\""), "{errors}");
    let misspelt = [("CHRONOS_LIMITS_TIMER_MAX", "1")];
    let errors = failure(&chronos(&["--check-config"], &misspelt), 2);
    assert!(errors.contains("did you mean CHRONOS_LIMITS_TIMERS_MAX?"), "{errors}");
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    let not_utf8 = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
    command.arg("--check-config").env_clear().env("CHRONOS_CLUSTER_LOCALHOST", not_utf8);
    let errors = failure(&command.output_tied().expect("the binary runs"), 2);
    assert!(errors.contains("environment CHRONOS_CLUSTER_LOCALHOST"), "{errors}");
    let of_an_orchestrator = [("CHRONOS_PORT", "tcp://10.0.0.1:7253")];
    let output = chronos(&["--check-config"], &of_an_orchestrator);
    success(&output);
    assert!(text(&output.stderr).starts_with("warning: "), "{}", text(&output.stderr));
}

#[test]
fn bad_flags_end_with_two_and_a_remedy() {
    for (arguments, told) in [
        (&["--cores", "0,x"][..], "flag --cores: [node] cores: expected \"all\", a list"),
        (&["--cores", "3-1"], "found \"3-1\""),
        (&["--cores", "1,0-2"], "names core 1 twice"),
        (&["--cores", "0", "--no-pin"], "leave one of them out"),
        (&["--shards", "2"], "add --no-pin"),
        (&["--shards", "257", "--no-pin"], "from 0 to 256"),
        (&["--listen", "localhost:1"], "expected an IP address and port"),
        (&["--admin", "127.0.0.1:7253"], "take the same port"),
        (&["--log-level", "loud"], "one of \"error\""),
        (&["--listne", "x"], "a similar argument exists: '--listen'"),
        (&["serve"], "unrecognized subcommand"),
        (&["--listen", "[::1]:1", "demo"], "cannot be used with"),
    ] {
        let errors = failure(&chronos(arguments, &[]), 2);
        assert!(errors.contains(told), "{arguments:?}: {errors}");
    }
}

#[test]
fn an_address_in_use_ends_with_one_and_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let errors = failure(&chronos(&["--listen", "127.0.0.1:0", "--admin", &address], &[]), 1);
    assert!(errors.contains(&format!("cannot listen on {address} for the admin API")), "{errors}");
    assert!(errors.contains("--admin off"), "{errors}");
}

#[test]
fn the_reference_file_is_the_generated_one() {
    let checked_in = include_str!("../../tuning/reference.toml");
    let generated = success(&chronos(&["--print-reference-config"], &[]));
    assert!(
        checked_in == generated,
        "tuning/reference.toml is stale: run `chronos --print-reference-config > \
         tuning/reference.toml`"
    );
    // Every key active at its default changes nothing but the origins.
    let active: Vec<&str> = checked_in
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .collect();
    let active = file(&active.join("\n"));
    let printed = success(&chronos(&["--config", path(&active), "--print-config"], &[]));
    let defaults = success(&chronos(&["--print-config"], &[]));
    let origin = format!("# {}:", path(&active));
    for (line, default) in printed.lines().zip(defaults.lines()).skip(1) {
        let setting = |line: &str| line.split("  #").next().map(|s| s.trim_end().to_string());
        assert_eq!(setting(line), setting(default));
        assert!(!line.contains(" = ") || line.contains(&origin), "{line} is not in the file");
    }
    assert_eq!(printed.lines().count(), defaults.lines().count());
}

#[test]
fn help_and_version_teach() {
    let help = success(&chronos(&["--help"], &[]));
    for word in
        ["Examples:", "Exit codes:", "chronos demo", "--print-config", "CHRONOS_LIMITS", "--daemon"]
    {
        assert!(help.contains(word), "{word} not in\n{help}");
    }
    let version = success(&chronos(&["--version"], &[]));
    assert_eq!(version, format!("chronos {}\n", chronos::base::version::VERSION));
}

#[test]
fn a_cluster_is_checked_and_told() {
    let good = "[node]\nlisten = '127.0.0.11:7253'\n[cluster]\nnodes = ['127.0.0.11:7253', \
                '127.0.0.12:7253']\njoining = ['c']\nadmin_addresses = ['127.0.0.11:7254']\n\
                [sites]\nlocal = 'x'\nremote = ['y=10.2.0.1']\nreplicate_across = true\n";
    let from = file(good);
    let printed = success(&chronos(&["--config", path(&from), "--print-config"], &[]));
    for setting in [
        "localhost = \"127.0.0.11:7253\"",
        "nodes = [\"127.0.0.11:7253\", \"127.0.0.12:7253\"]",
        "remote = [\"y=10.2.0.1\"]",
        "replicate_across = true",
        "acknowledge = \"replicas\"",
    ] {
        assert!(printed.contains(setting), "{setting} not in\n{printed}");
    }
    let derived = printed.lines().find(|line| line.starts_with("instance_id = "));
    assert!(derived.is_some_and(|line| line.ends_with("# from the node's name")), "{printed}");
    let listed = [("CHRONOS_CLUSTER_JOINING", "d, e:1")];
    let printed = success(&chronos(&["--config", path(&from), "--print-config"], &listed));
    assert!(printed.contains("joining = [\"d\", \"e:1\"]"), "{printed}");
    for (bad, told) in [
        ("nodes = ['b:1']", "no list has that address; add it"),
        ("nodes = ['a', 'a']\nlocalhost = 'a'", "listed twice"),
        ("nodes = 'a b'", "[cluster] nodes: expected a list of at most 128 addresses"),
        ("nodes = [1]", "[cluster] nodes: expected a list"),
        ("acknowledge = 'all'", "one of \"replicas\", \"first\""),
        ("suspect_after_ms = 250", "would be suspected between two signs of life"),
    ] {
        let bad = file(&format!("[cluster]\n{bad}\n"));
        // Serving refuses what the check refuses.
        for arguments in
            [&["--config", path(&bad), "--check-config"][..], &["--config", path(&bad)]]
        {
            let errors = failure(&chronos(arguments, &[]), 2);
            assert!(errors.contains(told), "{told} not in {errors}");
        }
    }
}

#[test]
fn the_secret_file_is_checked_and_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    let mode = |mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&secret, permissions).expect("its own file");
    };
    std::fs::write(&secret, "hidden-0123456789abcdef0123456789abcdef\n").expect("written");
    let at = secret.to_str().expect("a plain path");
    let variables = [("CHRONOS_CLUSTER_SECRET_FILE", at)];
    mode(0o600);
    let shown = success(&chronos(&["--print-config"], &variables));
    assert!(shown.contains(&format!("secret_file = \"{at}\"")), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
    success(&chronos(&["--check-config"], &variables));
    mode(0o644);
    for flags in [&["--check-config"][..], &["--print-config"], &[]] {
        let errors = failure(&chronos(flags, &variables), 2);
        assert!(errors.contains("[cluster] secret_file"), "{errors}");
        assert!(errors.contains(&format!("type: chmod 600 {at}")), "{errors}");
        assert!(!errors.contains("hidden"), "{errors}");
    }
    mode(0o600);
    std::fs::write(&secret, "hidden\n").expect("written");
    let errors = failure(&chronos(&["--check-config"], &variables), 2);
    assert!(errors.contains("line 1: expected a secret of 32 to 1024 bytes"), "{errors}");
    assert!(!errors.contains("hidden"), "{errors}");
}

/// systemd's own judgement of what a broken process could do. 0 is nothing, 10 is everything.
#[test]
fn units_expose_little() {
    for unit in ["chronos.service", "chronos-original.service"] {
        let path = format!("{}/tuning/{unit}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("a unit");
        assert!(text.contains("UMask=0077") && text.contains("LimitCORE=0"), "{unit}");
        let mut command = children::command("systemd-analyze");
        command.args(["security", "--no-pager", "--offline=true", "--threshold=20", &path]);
        match command.output() {
            Ok(judged) => {
                let told = String::from_utf8_lossy(&judged.stdout).into_owned();
                assert!(judged.status.success(), "{unit}: more than 2.0: {told}");
            }
            Err(error) => println!("not judged: systemd-analyze: {error}"),
        }
    }
}
