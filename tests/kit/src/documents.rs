//! The documents of the project: where they are, and which commands they tell the reader to type.

use std::path::Path;
use std::process::Command;

/// The programs of the project, as commands name them.
const PROGRAMS: [&str; 2] = ["chronos", "chronos-loadgen"];

/// A program with the binary that was built for the suite.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the program in commands.
    pub name: &'static str,
    /// The path of the binary.
    pub binary: &'static str,
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR"));
    kit.ancestors().nth(2).expect("the kit lies in tests/kit")
}

/// Returns the text of a file of the repository. Panics if it cannot be read.
pub fn read(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the names of all files at or below a place, each from the root of the repository, in
/// order.
pub fn files_below(place: &str) -> Vec<String> {
    let path = root().join(place);
    if path.is_file() {
        return vec![place.to_owned()];
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{place}: {error}")) {
        let name = entry.expect("an entry").file_name().into_string().expect("plain");
        if name != "target" {
            found.extend(files_below(&format!("{place}/{name}")));
        }
    }
    found.sort();
    found
}

/// Returns the names of all documents of the project. Tests compare each of them with the programs.
pub fn documents() -> Vec<String> {
    let places = ["README.md", "ARCHITECTURE.md", "docs", "tuning"];
    let files = places.iter().flat_map(|place| files_below(place));
    let found: Vec<String> = files.filter(|name| name.ends_with(".md")).collect();
    assert!(found.len() > 10, "{found:?}");
    found
}

/// Fails with the findings, if there are any.
pub fn expect_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Returns the lines of code blocks that call a program of the project, joined with their
/// continuation lines.
pub fn commands(document: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in document.lines() {
        let code = line.strip_prefix("    ").map(|line| line.trim_start_matches("$ ").trim());
        let Some(code) = code.or(goes_on.then_some(line.trim())) else { continue };
        if goes_on {
            let last = found.last_mut().expect("a command that goes on");
            last.push(' ');
            last.push_str(code.trim_end_matches('\\'));
        } else if code.split_whitespace().any(|word| program_of(word).is_some()) {
            found.push(code.trim_end_matches('\\').to_owned());
        } else {
            continue;
        }
        goes_on = code.ends_with('\\');
    }
    found
}

/// Returns the flags that commands in a document give to `program`, and that its help does not
/// name.
pub fn unknown_flags(name: &str, document: &str, program: Program) -> Vec<String> {
    let mut findings = Vec::new();
    for command in commands(document) {
        let command = command.split(" # ").next().unwrap_or_default().trim();
        let words: Vec<&str> = command.split_whitespace().collect();
        // Of `taskset -c 0 chronos --x` and `cargo run -- demo`, the last program and the words
        // behind it count.
        let at = words.iter().rposition(|word| program_of(word).is_some());
        let at = at.expect("a command names a program");
        if program_of(words[at]) != Some(program.name) {
            continue;
        }
        let after = &words[at + 1..];
        // Of `chronos cluster join NODE`, the words `cluster join` are commands.
        let mut known = 0;
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        let is_word = |word: &str| !word.starts_with('-') && word.bytes().all(is_letter);
        while after.get(known).is_some_and(|word| is_word(word))
            && help(program, &after[..=known]).is_some()
        {
            known += 1;
        }
        let help = help(program, &after[..known]).expect("every program has help");
        let flags = after.iter().filter(|word| word.starts_with("--"));
        for flag in flags.map(|word| word.split('=').next().unwrap_or_default()) {
            let is_known = help.split(|c: char| c.is_whitespace() || c == ',').any(|w| w == flag);
            if !is_known {
                findings.push(format!("{name}: `{command}`: no {flag}"));
            }
        }
    }
    findings
}

/// Returns the program that a word of a command names.
fn program_of(word: &str) -> Option<&'static str> {
    let last = word.rsplit('/').next();
    PROGRAMS.into_iter().find(|name| last == Some(*name))
}

fn help(program: Program, subcommands: &[&str]) -> Option<String> {
    let output = Command::new(program.binary).args(subcommands).arg("--help").env_clear().output();
    let output = output.expect("the program runs");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    // Examples may be of other commands.
    let flags = help.split("\nExamples:").next().unwrap_or_default().to_owned();
    output.status.success().then_some(flags)
}
