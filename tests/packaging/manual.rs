//! Manual pages and completions.

use std::fs;

use crate::{CHRONOS, chronos, other};

pub fn pages_have_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("plain");
    chronos(&["man", "--out", path]);
    assert!(chronos(&["man"]).contains(".SH NAME"));
    let (mut pages, mut flags) = (0, 0);
    for entry in fs::read_dir(folder.path()).expect("readable") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("plain");
        let page = fs::read_to_string(entry.path()).expect("text");
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}");
        let help = chronos(&help_of(&name));
        // Examples may be of other commands.
        let flags_told = help.split("\nExamples:").next().unwrap_or_default();
        for line in flags_told.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
            let flag = line.split([' ', ',', '=']).find(|word| word.starts_with("--"));
            let Some(flag) = flag else { continue };
            let wanted = flag.replace('-', "\\-");
            assert!(page.contains(&wanted), "{name} does not tell {flag}");
            flags += 1;
        }
        pages += 1;
    }
    assert!(pages >= 10 && flags >= 50, "{pages} pages, {flags} flags");
}

/// The command that tells what the page of this name is about.
fn help_of(page: &str) -> Vec<&str> {
    /// Commands whose names have a hyphen.
    const HYPHENATED: [&str; 2] = ["dead-letters", "run-now"];
    let mut rest = page.trim_end_matches(".1").trim_start_matches("chronos");
    let mut words = Vec::new();
    while let Some(behind) = rest.strip_prefix('-') {
        let known = HYPHENATED.into_iter().find(|name| behind.starts_with(name));
        let word = known.or_else(|| behind.split('-').next()).unwrap_or_default();
        rest = &behind[word.len()..];
        words.push(word);
    }
    words.push("--help");
    words
}

pub fn completions_are_scripts() {
    let folder = tempfile::tempdir().expect("a folder");
    let loadgen = std::path::Path::new(CHRONOS).with_file_name("chronos-loadgen");
    assert!(loadgen.exists(), "type `cargo build` first: there is no {}", loadgen.display());
    for shell in ["bash", "zsh", "fish"] {
        let scripts = [
            chronos(&["completions", shell]),
            other(loadgen.to_str().expect("plain"), &["completions", shell]).unwrap_or_default(),
        ];
        for (script, known) in scripts.iter().zip(["cluster", "accuracy"]) {
            if script.is_empty() {
                continue;
            }
            assert!(script.contains(known), "{shell}: {known}");
            let file = folder.path().join(shell);
            fs::write(&file, script).expect("a file");
            other(shell, &["-n", file.to_str().expect("plain")]);
        }
    }
    let file = folder.path().join("bash");
    fs::write(&file, chronos(&["completions", "bash"])).expect("a file");
    // What a shell completes behind `chronos cluster le`.
    let script = format!(
        "source {}; COMP_WORDS=(chronos cluster le); COMP_CWORD=2; _chronos chronos le cluster; \
         echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    let said = other("bash", &["-c", &script]).expect("bash is there");
    assert_eq!(said.trim(), "leave");
}
