//! The shell in which the blocks of a page are typed.
//!
//! Its network, processes, mounts and users are its own (`unshare` of util-linux): ports of loopback
//! are free, `pidof` finds nobody else's node, `/var/lib` is empty, and all ends with the shell. It
//! runs in a folder that looks like the root of the repository after `cargo build --release`; there,
//! `cargo` is a script that knows the binaries.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use kit::children::{SETPRIV, Tied, command};
use kit::documents::root;
use kit::runner::cannot_run;

use super::pages::{Block, Kind};

/// The new namespaces, and what ends with them.
const OWN: [&str; 8] =
    ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"];
/// Longest time for a page, in seconds: some wait in loops of their own.
const PAGE_S: &str = "600";
/// Looks for a port that is to be open, ten a second.
const LOOKS: u32 = 600;
/// Pages, and folders of pages, whose blocks are one script: who reads them types everything in
/// order into one terminal, so nothing ends between two sections.
const ONE_SCRIPT: [&str; 3] = ["README.md", "docs/start/", "docs/how-to/"];

/// Whether the blocks of a page are one script.
pub fn is_one_script(page: &str) -> bool {
    ONE_SCRIPT.iter().any(|place| page.starts_with(place))
}

/// Runs the blocks of a page; fails with what was typed and said if one of them does.
pub fn run(page: &str, blocks: &[Block]) {
    if !may_unshare() {
        cannot_run("no namespaces: `unshare --user --net --pid` is refused, so no command is run");
    }
    let folder = tempfile::Builder::new().prefix("chronos-docs-").tempdir_in(scratch());
    let folder = folder.expect("room");
    prepare(folder.path());
    for block in blocks {
        if let Kind::File(name) = &block.kind {
            let text = block.lines.join("\n") + "\n";
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
    }
    let script = script(page, blocks);
    let file = folder.path().join("script");
    std::fs::write(&file, script).expect("a file");
    let mut shell = command("timeout");
    shell.args(["--kill-after=5", PAGE_S]).args(SETPRIV).args(OWN);
    shell.args(["--mount-proc", "bash"]).arg(&file);
    shell.current_dir(folder.path()).env("HOME", folder.path());
    let path = std::env::var("PATH").unwrap_or_default();
    let own = folder.path().display();
    shell.env("PATH", format!("{own}/bin:{own}/target/release:{path}"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CHRONOS_")) {
        shell.env_remove(name);
    }
    shell.stdin(Stdio::null());
    let output = shell.output_tied().expect("unshare runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{page}: {}\n{said}", output.status);
    compare(blocks, folder.path());
}

fn may_unshare() -> bool {
    let mut unshare = command(OWN[0]);
    unshare.args(&OWN[1..]).args(["--mount-proc", "ip", "link", "set", "lo", "up"]);
    unshare.output_tied().is_ok_and(|output| output.status.success())
}

fn scratch() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&path).expect("a folder of the build");
    path
}

/// Links to everything at the root, and the binaries where a release build has them.
fn prepare(folder: &Path) {
    // An answer that says no is a failure: `curl` ends with an error only if it is told to.
    std::fs::write(folder.join(".curlrc"), "fail-with-body\n").expect("a file");
    for entry in std::fs::read_dir(root()).expect("the root") {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        if name != "target" {
            symlink(entry.path(), folder.join(name)).expect("a link");
        }
    }
    let release = folder.join("target/release");
    std::fs::create_dir_all(&release).expect("a folder");
    let chronos = Path::new(env!("CARGO_BIN_EXE_chronos"));
    let loadgen = chronos.with_file_name("chronos-loadgen");
    assert!(loadgen.exists(), "type `cargo build` first: there is no {}", loadgen.display());
    for binary in [chronos, &loadgen] {
        let name = binary.file_name().expect("a file");
        symlink(binary, release.join(name)).expect("a link");
    }
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let cargo = "#!/bin/sh\ncase \"$*\" in\n'build --release') ;;\n'run --release -- '*) shift 3; \
                 exec target/release/chronos \"$@\" ;;\n*) echo \"cargo $*: not known here\" >&2; \
                 exit 1 ;;\nesac\n";
    std::fs::write(bin.join("cargo"), cargo).expect("a script");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("cargo"), executable).expect("its own file");
}

/// What makes the things that a page takes for granted, if it does.
fn setup(page: &str) -> Option<String> {
    let name = Path::new(page).with_extension("sh");
    let name = name.file_name().expect("a page is a file");
    std::fs::read_to_string(root().join("tests/docs_commands").join(name)).ok()
}

/// All blocks that run, each with its output in a file of its number.
fn script(page: &str, blocks: &[Block]) -> String {
    let mut text = String::from(
        "set -eE -o pipefail\n\
         exec 9>&2\n\
         mount -t tmpfs none /var/lib && ip link set lo up\n\
         block=none\n\
         failed() { echo \"block at line $block: \\`$2\\` ended with $1:\"; cat \"said$block\"; } >&9\n\
         trap 'failed $? \"$BASH_COMMAND\"' ERR\n\
         await() {\n\
         \x20   for look in $(seq $LOOKS); do\n\
         \x20       if [[ $1 =~ ^[0-9.]+:[0-9]+$ ]]; then\n\
         \x20           if (exec 3<>\"/dev/tcp/${1/://}\") 2>/dev/null; then return 0; fi\n\
         \x20       elif grep -qF \"$1\" \"said$block\"; then return 0; fi\n\
         \x20       kill -0 \"$2\" || return 1\n\
         \x20       sleep 0.1\n\
         \x20   done\n\
         \x20   return 1\n\
         }\n\
         end_section() {\n\
         \x20   local own\n\
         \x20   for own in $(jobs -p); do kill \"$own\" || true; done\n\
         \x20   wait\n\
         }\n",
    );
    writeln!(text, "LOOKS={LOOKS}").expect("memory");
    let mut section = None;
    for block in blocks.iter().filter(|block| block.kind.is_run()) {
        // The whole of a page that is one script counts as one section.
        let own = if is_one_script(page) { 0 } else { block.section };
        if section.replace(own) != Some(own) {
            text.push_str("end_section\n");
            text.push_str(&setup(page).unwrap_or_default());
        }
        let number = block.line;
        writeln!(text, "block={number}").expect("memory");
        let mut lines = block.lines.clone();
        let last = match block.kind {
            Kind::KeepsRunning(_) => lines.pop(),
            _ => None,
        };
        writeln!(text, "{{\n{}\n:\n}} >said{number} 2>&1", lines.join("\n")).expect("memory");
        if let (Some(last), Kind::KeepsRunning(ready)) = (last, &block.kind) {
            writeln!(text, "{last} >>said{number} 2>&1 &\nawait '{ready}' $!").expect("memory");
        }
    }
    text.push_str("end_section\n");
    text
}

/// Holds the output that a page shows against the output of the block before.
fn compare(blocks: &[Block], folder: &Path) {
    let said = |block: &Block| {
        std::fs::read_to_string(folder.join(format!("said{}", block.line))).expect("it ran")
    };
    let mut before: Option<&Block> = None;
    for block in blocks {
        if block.kind.is_run() {
            before = Some(block);
        }
        if block.kind != Kind::Printed {
            continue;
        }
        let before = before.expect("commands stand before what they print");
        let (shown, said) = (masked(&block.lines.join("\n")), masked(&said(before)));
        let place = format!("{}:{}", block.page, block.line);
        assert!(said.contains(&shown), "{place} shows\n{shown}\nand it says\n{said}");
    }
}

/// Without carriage returns, with the same hexadecimal digits in every id, and with one separator.
fn masked(text: &str) -> String {
    let is_id =
        |word: &str| word.len() > 30 && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.trim_end_matches('\r').split(['/', '"']).collect();
        words.iter().map(|word| if is_id(word) { "ID" } else { word }).collect::<Vec<_>>().join("/")
    });
    lines.collect::<Vec<_>>().join("\n")
}
