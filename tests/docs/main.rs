//! The documents against the program: links, names of files, configuration keys and their defaults,
//! flags, reasons of errors, examples of timers, citations of the contract, pairs that are tried,
//! promises with their tests, length of lines. What a document says and the program does not is found here.

use std::collections::BTreeSet;
use std::path::Path;

use chronos::base::time::WallMs;
use chronos::control::config::keys::KEYS;
use chronos::control::config::load::parse_config;
use chronos::shard::effects::Refusal;
use chronos::timer::admission::admit;
use chronos::wire::callback_uri::AuthorityMemory;
use chronos::wire::destination::parse_rule;
use chronos::wire::problem::{Kind, member_of};
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use kit::documents::{Program, commands, documents, expect_none, files_below, read, unknown_flags};

mod citations;
mod lines;
mod messages;
mod pairs;
mod pictures;
mod promises;
mod where_decided;

const CHRONOS: Program = Program { name: "chronos", binary: env!("CARGO_BIN_EXE_chronos") };

fn exists(name: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).exists()
}

/// All Rust sources below a folder.
fn sources_below(folder: &str) -> String {
    let files = files_below(folder).into_iter().filter(|name| name.ends_with(".rs"));
    files.map(|name| read(&name)).collect()
}

/// Texts between backticks, outside blocks of code.
fn quoted(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in document.lines().filter(|line| !line.starts_with("    ")) {
        found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    found
}

/// The word by which a link leads to a heading: letters in lower case, digits and hyphens; blanks
/// are hyphens.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Whether a document has a heading that a link names behind its `#`.
fn has_heading(document: &str, wanted: &str) -> bool {
    document.lines().any(|line| line.starts_with('#') && anchor(line) == wanted)
}

/// Targets of links that stay in the project and name nothing there, no file or no heading; paths in
/// backticks likewise.
fn dead_references(name: &str, document: &str) -> Vec<String> {
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for link in document.split("](").skip(1) {
        let target = link.split(')').next().unwrap_or_default();
        let file = target.split('#').next().unwrap_or_default();
        let is_outside = target.contains("://") || file.is_empty();
        let path = folder.join(file);
        if !is_outside && !exists(path.to_str().expect("plain")) {
            findings.push(format!("{name}: link to {target}"));
        }
        let Some((file, heading)) = target.split_once('#') else { continue };
        let path = path.to_str().expect("plain");
        let page = match file {
            "" => Some(document.to_owned()),
            _ => (!is_outside && file.ends_with(".md") && exists(path)).then(|| read(path)),
        };
        if page.is_some_and(|page| !has_heading(&page, heading)) {
            findings.push(format!("{name}: no heading for the link to {target}"));
        }
    }
    for text in quoted(document) {
        let is_path = ["src/", "tests/", "benches/", "loadgen/", "docs/", "tuning/", ".ci/"]
            .iter()
            .any(|room| text.starts_with(room) && !text.contains([' ', '<', '*']));
        if is_path && !exists(&text) {
            findings.push(format!("{name}: no file {text}"));
        }
    }
    findings
}

/// Words such as `limits.timers_max` whose section exists and whose key does not.
fn unknown_keys(name: &str, document: &str) -> Vec<String> {
    let sections: BTreeSet<&str> = KEYS.iter().map(|key| key.section).collect();
    let mut findings = Vec::new();
    for text in quoted(document) {
        let Some((section, key)) = text.split_once('.') else { continue };
        let is_word = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let is_known = KEYS.iter().any(|known| known.section == section && known.name == key);
        // `log.rs` is a file.
        if sections.contains(section) && is_word && key != "rs" && !is_known {
            findings.push(format!("{name}: no key {text}"));
        }
    }
    findings
}

/// Rules of destinations in blocks of code: bodies of orders, and lists of the configuration.
fn example_rules(document: &str) -> Vec<Result<(), String>> {
    let told = |error: &dyn std::fmt::Display, line: &str| format!("{line}: {error}");
    let check = |line: &str| {
        if line.starts_with("{\"max-in-flight\"") {
            let parsed = parse_rule(&mut line.as_bytes().to_vec(), &mut JsonScratch::default());
            return Some(parsed.map(drop).map_err(|error| told(&error, line)));
        }
        line.starts_with("destinations = [").then(|| {
            let text = format!("[callbacks]\n{line}\n");
            parse_config(&text, "example").map(drop).map_err(|error| told(&error, line))
        })
    };
    document.lines().filter_map(|line| line.strip_prefix("    ")).filter_map(check).collect()
}

/// Rows `| `section.key` | default | ... |` whose default is not that of the reference file.
fn wrong_defaults(document: &str, reference: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for row in document.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Some((section, key)) = cells[1].trim_matches('`').split_once('.') else { continue };
        if !KEYS.iter().any(|known| known.section == section && known.name == key) {
            continue;
        }
        let block = reference.split(&format!("\n[{section}]\n")).nth(1).expect("a section of it");
        let line = block.lines().find_map(|line| line.strip_prefix(&format!("#{key} = ")));
        let default = line.expect("every key stands in it").replace('_', " ");
        if cells[2] != default {
            findings.push(format!("{section}.{key}: {} in the document, {default}", cells[2]));
        }
    }
    findings
}

/// Pieces of reasons in the tables of errors that no source says.
fn unsaid_reasons(document: &str, sources: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for row in document.lines() {
        let Some(cells) = row.strip_prefix("| ").filter(|row| row.as_bytes()[0].is_ascii_digit())
        else {
            continue;
        };
        let Some((_, reasons)) = cells.split_once(" | `") else { continue };
        let reasons = reasons.trim_end_matches(" |").trim_matches('`');
        for reason in reasons.split("`, `") {
            for piece in reason.split(['{', '}']).step_by(2).filter(|piece| piece.len() > 3) {
                if !sources.contains(piece) {
                    findings.push(format!("no source says `{piece}`"));
                }
            }
        }
    }
    findings
}

/// All sources of the rooms that answer clients, string continuations joined.
fn answering_sources() -> String {
    let mut all = String::new();
    for room in ["wire", "timer", "shard", "node"] {
        all += &sources_below(&format!("src/{room}"));
    }
    let mut parts = all.split("\\\n");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| joined.push_str(part.trim_start()));
    joined
}

/// Timers in the documents: what stands between `-d '` and `'`, and the blocks that begin with
/// `{"timing"`.
fn example_timers(document: &str) -> Vec<String> {
    let mut found: Vec<String> = document
        .split("-d '")
        .skip(1)
        .map(|rest| rest.split('\'').next().unwrap_or_default().replace("\\\n", ""))
        .collect();
    let lines: Vec<&str> = document.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if line.starts_with("    {\"timing\"") {
            found.push(
                lines[number..].iter().take_while(|line| !line.is_empty()).copied().collect(),
            );
        }
    }
    found
}

fn accept(example: &str) -> Result<(), String> {
    let (mut scratch, mut content) = (JsonScratch::default(), Vec::new());
    let mut body = example.as_bytes().to_vec();
    let document = parse_timer(&mut body, &mut scratch).map_err(|error| error.to_string())?;
    let authorities = &mut AuthorityMemory::default();
    admit(&document, (None, 1 << 20, WallMs(1_800_000_000_000)), authorities, &mut content)
        .map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn references_lead_somewhere() {
    for name in documents() {
        expect_none(&dead_references(&name, &read(&name)));
    }
    assert_eq!(
        dead_references("docs/a.md", "[x](gone.md) [y](metrics.md#alarms-first) `src/gone.rs`")
            .len(),
        2
    );
    assert_eq!(dead_references("a.md", "[x](https://a/b) `src/lib.rs` `src/<room>`").len(), 0);
    assert_eq!(dead_references("a.md", "# A, b\n[x](#a-b) [y](#b) [z](docs/api.md#a)").len(), 2);
}

/// Tests, stories and planted bugs that a table of docs/testing.md names and nobody has.
#[test]
fn tests_in_the_documents_exist() {
    let sources = sources_below("src") + &sources_below("tests");
    let document = read("docs/testing.md");
    let rows: String = document.lines().filter(|line| line.starts_with("| ")).collect();
    let is_name = |word: &String| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names: BTreeSet<String> = quoted(&rows).into_iter().filter(is_name).collect();
    assert!(names.len() > 30, "{names:?}");
    let is_there = |name: &str| {
        let forms = [format!("fn {name}()"), format!("\"{name}\""), format!(" {name} = ")];
        forms.iter().any(|form| sources.contains(form))
    };
    let findings: Vec<String> = names.into_iter().filter(|name| !is_there(name)).collect();
    expect_none(&findings);
}

#[test]
fn keys_and_defaults_are_those_of_the_program() {
    let reference = read("tuning/reference.toml");
    for name in documents() {
        expect_none(&unknown_keys(&name, &read(&name)));
        expect_none(&wrong_defaults(&read(&name), &reference));
    }
    assert_eq!(unknown_keys("a", "`limits.timer_max` `limits.timers_max` `log.rs`").len(), 1);
    assert_eq!(wrong_defaults("| `limits.idle_timeout_ms` | 20 001 | x |", &reference).len(), 1);
    let limits = KEYS.iter().filter(|key| ["limits", "callbacks"].contains(&key.section));
    let api = read("docs/api.md");
    for key in limits.filter(|key| key.name != "turn_budget_us") {
        let row = format!("| `{}.{}` | ", key.section, key.name);
        assert!(api.contains(&row), "docs/api.md has no row for {key}");
    }
}

#[test]
fn commands_use_flags_that_exist() {
    let mut count = 0;
    for name in documents() {
        expect_none(&unknown_flags(&name, &read(&name), CHRONOS));
        count += commands(&read(&name)).len();
    }
    assert!(count > 10, "{count} commands are found");
    assert_eq!(unknown_flags("a", "    chronos --port 1\n", CHRONOS).len(), 1);
    assert_eq!(unknown_flags("a", "    x/chronos --cores 0 --no-pin\n", CHRONOS).len(), 0);
    assert_eq!(
        unknown_flags("a", "    chronos cluster leave a --dead --admin b\n", CHRONOS).len(),
        0
    );
    assert_eq!(unknown_flags("a", "    chronos cluster join a --dead\n", CHRONOS).len(), 1);
}

#[test]
fn reasons_of_errors_are_said_by_the_program() {
    let (api, sources) = (read("docs/api.md"), answering_sources());
    expect_none(&unsaid_reasons(&api, &sources));
    assert_eq!(unsaid_reasons("| 400 | `body: hollow, got {}` |", &sources).len(), 1);
    let refusals = [
        Refusal::TimersFull,
        Refusal::BytesFull,
        Refusal::HostQueueFull,
        Refusal::IdsExhausted,
        Refusal::NoReplica,
        Refusal::NoRoom,
        Refusal::NotTaken,
        Refusal::Unanswered,
        Refusal::Contended,
        Refusal::WritesFull,
        Refusal::Twin,
        Refusal::Clock,
        Refusal::HasLeft,
        Refusal::Joining,
        Refusal::ListsFull,
        Refusal::ListsOfNameFull,
        Refusal::JobsFull,
        Refusal::CoreBusy,
    ];
    for refusal in refusals {
        assert!(api.contains(&format!("| 503 | `{refusal}` |")), "docs/api.md lacks: {refusal}");
    }
}

#[test]
fn kinds_of_errors_and_members_are_those_of_the_program() {
    let api = read("docs/api.md");
    let (_, table) = api.split_once("behind `urn:chronos:error:`").expect("the table of kinds");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
    let told: BTreeSet<String> = cells.flat_map(quoted).collect();
    let known = Kind::ALL.iter().map(|kind| kind.words().0.to_owned()).collect();
    assert_eq!(told, known);
    let members = api.split("| member | type and range |").nth(1).expect("the table of members");
    let rows = members.lines().skip(2).take_while(|row| row.starts_with("| `"));
    let members: Vec<String> = rows.map(|row| quoted(row).remove(0)).collect();
    assert!(members.len() > 6, "{members:?}");
    for member in members {
        let reason = format!("{member}: expected something else");
        assert_eq!(member_of(&reason), Some(&*member), "src/wire/problem.rs does not know it");
    }
}

#[test]
fn timers_in_the_documents_are_accepted() {
    let mut count = 0;
    let start = files_below("docs/start").into_iter().filter(|name| name.ends_with(".md"));
    let pages = ["README.md", "docs/api.md", "docs/operations.md"].map(str::to_owned);
    for name in pages.into_iter().chain(start) {
        for example in example_timers(&read(&name)) {
            count += 1;
            accept(&example).unwrap_or_else(|reason| panic!("{name}: {example}: {reason}"));
        }
    }
    assert!(count >= 3, "{count} timers are found");
    assert!(accept(r#"{"timing":{"interval":-1},"callback":{}}"#).is_err());
}

#[test]
fn rules_in_the_documents_are_accepted() {
    let all = example_rules(&read("docs/api.md"));
    assert_eq!(all.len(), 2, "a body and a list");
    expect_none(&all.into_iter().filter_map(Result::err).collect::<Vec<_>>());
    let wrong = "    {\"max-in-flight\": 0}\n    destinations = [\"a rate-per-second=0\"]\n";
    assert!(example_rules(wrong).iter().all(Result::is_err));
}

#[test]
fn the_readme_names_the_commands_that_continuous_integration_runs() {
    let readme = read("README.md");
    assert!(readme.contains("\n    cargo run --release -- demo\n"), "the demo");
    assert!(readme.contains("\n    tests/run\n"), "the tests");
    assert!(read(".ci/run").ends_with("\nexec tests/run\n"));
}

#[test]
fn the_architecture_names_every_room() {
    let architecture = read("ARCHITECTURE.md");
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("src")
    {
        let entry = entry.expect("an entry of it");
        let room = entry.file_name().into_string().expect("plain");
        if entry.path().is_dir() {
            assert!(architecture.contains(&format!("    {room}/ ")), "no word about {room}");
        }
    }
}
