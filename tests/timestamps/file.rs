//! One server and its file.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use kit::children;
use kit::children::Tied;
use kit::runner::Story;
use tempfile::TempDir;

use super::checker::Checker;
use super::processes::until;
use super::servers::{START, Server};

pub const STORIES: &[Story] = &[
    ("values_go_on_after_every_kind_of_restart", values_go_on_after_every_restart),
    ("a_file_that_cannot_be_written_stops_timestamps", a_file_that_cannot_be_written),
    ("a_full_disk_stops_timestamps_until_there_is_room", a_full_disk),
    ("bounds_are_stored_while_files_are_short", few_files),
    ("a_server_does_not_start_on_a_file_that_it_cannot_trust", files_that_cannot_be_trusted),
];

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("chronos-ts-").tempdir().expect("room")
}

/// Runs the binary to its end. Returns the exit code and the output.
fn chronos(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    let output =
        command.args(arguments).env_remove("CHRONOS_CONFIG").output_tied().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

fn init(file: &Path) -> String {
    let file = file.to_str().expect("a plain path").to_owned();
    assert_eq!(chronos(&["timestamp", "init", "--file", &file]).0, Some(0));
    file
}

fn values_go_on_after_every_restart() {
    let folder = folder();
    let file = init(&folder.path().join("new").join("timestamp"));
    let mut server = Server::new(folder.path(), "log", &["--file", &file]);
    server.start();
    let mut checker = Checker::of(&[server.address]);
    for round in 0..6 {
        checker.await_reply(Instant::now(), START);
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
            // No more is asserted, because the stop may cut off an answer.
            assert!(stored(&file) > checker.highest(), "it is above what clients have");
        }
        server.start();
    }
    checker.await_reply(Instant::now(), START);
    checker.settle();
    server.stop();
    assert_eq!(stored(&file), checker.highest() + 1, "what is left of the window is given back");
    checker.finish();
}

/// Returns the bound that a file keeps.
fn stored(file: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("the file");
    text.lines().nth(1).expect("a bound").parse().expect("a number")
}

fn a_file_that_cannot_be_written() {
    let folder = folder();
    let own = folder.path().join("own");
    let file = init(&own.join("timestamp"));
    let mut server = Server::new(folder.path(), "log", &["--file", &file, "--window-ms", "500"]);
    server.start();
    let checker = Checker::of(&[server.address]);
    checker.await_reply(Instant::now(), START);
    let away = folder.path().join("away");
    std::fs::rename(&own, &away).expect("renamed");
    until("timestamps to stop", START, || {
        let status = server.status()?;
        (status["serving"] == false && status["role"] == "suspended").then_some(())
    });
    let stopped = Instant::now();
    assert!(server.count("store_errors") >= 1);
    is_logged(&mut server, "no timestamp is handed out until that works");
    std::fs::rename(&away, &own).expect("renamed back");
    // Another store is tried every second.
    checker.await_reply(stopped, START);
    checker.finish();
}

/// Waits until the log says something: a thread of its own writes it.
fn is_logged(server: &mut Server, words: &str) {
    until(words, START, || server.process().logged().contains(words).then_some(()));
}

/// Runs a server on a file system of 16 pages, which only that server sees. The file system ends
/// with the process.
fn a_full_disk() {
    let may_mount = children::command("unshare").args(["-m", "true"]).output_tied();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        kit::runner::cannot_run("mounting takes the rights of root");
    }
    let folder = folder();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let binary = env!("CARGO_BIN_EXE_chronos");
    let file = disk.join("timestamp");
    let script = format!(
        "mount -t tmpfs -o size=64k none '{0}' && '{binary}' timestamp init --file '{1}' && exec \
         '{binary}' \"$@\"",
        disk.display(),
        file.display()
    );
    let file = file.to_str().expect("a plain path");
    let arguments = ["--file", file, "--window-ms", "500"];
    let starter = ["unshare", "-m", "sh", "-c", &script, "sh"];
    let mut server = Server::new(folder.path(), "log", &arguments).started_by(&starter);
    server.start();
    let checker = Checker::of(&[server.address]);
    checker.await_reply(Instant::now(), START);
    // The disk as the server sees it.
    let inside = format!("/proc/{}/root{}", server.process().pid(), disk.display());
    let filler = Path::new(&inside).join("filler");
    // Writes as much as fits.
    let full = std::fs::write(&filler, vec![0; 1 << 20]).expect_err("it is small");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    until("timestamps to stop", START, || (server.status()?["serving"] == false).then_some(()));
    let stopped = Instant::now();
    is_logged(&mut server, "No space left on device");
    std::fs::remove_file(&filler).expect("there");
    checker.await_reply(stopped, START);
    checker.finish();
}

/// Connections to all listeners of a server that may open few files leave those that a bound takes.
fn few_files() {
    let folder = folder();
    let file = init(&folder.path().join("timestamp"));
    let binary = env!("CARGO_BIN_EXE_chronos");
    let starter = ["sh", "-c", "ulimit -n 80; exec \"$@\"", "sh", binary];
    let arguments = ["--file", &*file, "--window-ms", "200"];
    let mut server = Server::new(folder.path(), "log", &arguments).started_by(&starter);
    server.start();
    let checker = Checker::of(&[server.address]);
    checker.await_reply(Instant::now(), START);
    let flood: Vec<_> = [server.address, server.admin]
        .map(|address| (0..200).map(move |_| TcpStream::connect(address).expect("it listens")))
        .into_iter()
        .flatten()
        .collect();
    // Of a crowd that comes at once the server takes more for a moment, and closes them.
    let pid = server.process().pid();
    until("files to be free", START, || (children::open_files(pid) < 70).then_some(()));
    let failed = server.count("store_errors");
    for _ in 0..5 {
        let bound = stored(&file);
        until("a value above the bound", START, || (checker.highest() > bound).then_some(()));
    }
    assert_eq!(server.count("store_errors"), failed, "{}", server.process().logged());
    drop(flood);
    server.stop();
    checker.finish();
}

fn files_that_cannot_be_trusted() {
    let folder = folder();
    let path = folder.path().join("timestamp");
    let serve = |file: &str| {
        let tail = "--no-pin --shards 1 --listen 127.0.0.1:0 --admin off --file";
        let mut arguments = vec!["timestamp", "serve"];
        arguments.extend(tail.split(' '));
        arguments.push(file);
        chronos(&arguments)
    };
    let name = path.to_str().expect("a plain path");
    let (code, said) = serve(name);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("chronos timestamp init --file"), "{said}");
    assert!(!path.exists(), "a server never makes the file");

    init(&path);
    let (code, said) = chronos(&["timestamp", "init", "--file", name]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is there already and keeps the bound"), "{said}");

    let mut first = Server::new(folder.path(), "log", &["--file", name]);
    first.start();
    let (code, said) = serve(name);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is in use: another server"), "{said}");
    first.stop();

    let whole = std::fs::read(&path).expect("the file");
    for (damaged, told) in [
        (&whole[..whole.len() - 1], "is damaged"),
        (&[], "is damaged: it is empty"),
        (b"chronos-timestamp 2\n7\n", "format version 2"),
    ] {
        std::fs::write(&path, damaged).expect("written");
        let (code, said) = serve(name);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(told), "{said}");
        assert_eq!(std::fs::read(&path).expect("the file"), damaged, "it is left as it is");
    }

    // The file is lost, and made anew above what was handed out. A bound that leaves no room is
    // refused.
    std::fs::remove_file(&path).expect("there");
    let above = u64::try_from(Duration::from_secs(4_000_000_000).as_millis()).expect("fits") << 18;
    let above = above.to_string();
    let last = "9223372036854775807";
    let (code, said) = chronos(&["timestamp", "init", "--file", name, "--above", last]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("timestamps end in the year 3084"), "{said}");
    let (code, said) = chronos(&["timestamp", "init", "--file", name, "--above", &above]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("ahead of the clock"), "{said}");
}
