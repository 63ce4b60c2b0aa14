//! Tokens of clients: made by `chronos token new`, shown with each request, read again on SIGHUP.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use kit::children;
use tempfile::TempDir;

use super::harness::{Answer, Node, far_document, until};

/// A folder with a file of tokens, and a node that reads it.
struct Guarded {
    folder: TempDir,
    node: Node,
    client: String,
    reader: String,
}

pub fn new_token(file: &Path, name: &str, role: &str) -> String {
    let made = token_command(&["--name", name, "--role", role], Some(file));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(made.stdout).expect("text");
    assert!(token.starts_with("chr_"), "{token}");
    token.trim_end().to_owned()
}

pub fn token_command(words: &[&str], file: Option<&Path>) -> Output {
    let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
    command.args(["token", "new"]).args(words);
    if let Some(file) = file {
        command.arg("--file").arg(file);
    }
    command.output().expect("the binary runs")
}

impl Guarded {
    fn start() -> Guarded {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let client = new_token(&file, "billing", "client");
        let reader = new_token(&file, "audit", "reader");
        let node = Node::start(2, &format!("[auth]\ntokens_file = {file:?}\n"));
        Guarded { folder, node, client, reader }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn ask(&self, method: &str, path: &str, authorization: Option<&str>) -> Answer {
        let mut client = self.node.client();
        client.send(text(method, path, authorization));
        client.answer()
    }
}

pub fn text(method: &str, path: &str, authorization: Option<&str>) -> String {
    let body = if method == "POST" || method == "PUT" { far_document() } else { String::new() };
    let shown = authorization.map(|value| format!("Authorization: {value}\r\n"));
    format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\n{}Content-Length: {}\r\n\r\n{body}",
        shown.unwrap_or_default(),
        body.len()
    )
}

fn challenge(answer: &Answer) -> &str {
    answer.header("WWW-Authenticate").expect("how to do it right")
}

#[test]
fn each_role_may_do_its_own() {
    let guarded = Guarded::start();
    let client = format!("Bearer {}", guarded.client);
    let reader = format!("bearer {}", guarded.reader);
    let made = guarded.ask("POST", "/timers", Some(&client));
    assert_eq!(made.status, 200);
    let path = made.header("Location").expect("a Location").to_owned();
    let path = path.split_once("/timers").map(|(_, id)| format!("/timers{id}")).expect("a path");
    assert_eq!(guarded.ask("GET", &path, Some(&reader)).status, 200);
    for (method, path) in [("POST", "/timers"), ("PUT", &*path), ("DELETE", &*path)] {
        let refused = guarded.ask(method, path, Some(&reader));
        refused.assert_refusal(403, "Authorization", "a reader that writes");
        assert!(challenge(&refused).contains("insufficient_scope"));
    }
    let short = &client[..client.len() - 1];
    let hash = std::fs::read_to_string(guarded.file()).expect("there");
    let hash = hash.split_whitespace().nth(2).expect("a hash").to_owned();
    for wrong in [None, Some(short), Some("Basic abc"), Some(&*format!("Bearer {hash}"))] {
        for (method, path) in [("GET", &*path), ("POST", "/timers"), ("GET", "/nonsense")] {
            let refused = guarded.ask(method, path, wrong);
            refused.assert_refusal(401, "Authorization", "nobody");
            assert!(challenge(&refused).starts_with("Bearer"));
            assert!(refused.says_close());
        }
    }
    assert_eq!(guarded.ask("GET", "/ping", None).status, 200, "who asks whether it is there");
    assert_eq!(guarded.ask("GET", &path, Some(&client)).status, 200, "nothing has changed");
    let twice = format!("{client}\r\nAuthorization: {client}");
    assert_eq!(guarded.ask("GET", &path, Some(&twice)).status, 400);
    until("they are counted", || {
        let of = |name: &str| guarded.node.metric(&format!("chronos_requests_{name}_total"));
        let counts = (of("without_token"), of("of_unknown_token"), of("beyond_role"));
        (counts == (6.0, 6.0, 3.0)).then_some(())
    });
}

/// A body is not waited for, and nothing behind it is served.
#[test]
fn who_is_refused_is_refused_at_the_head() {
    let guarded = Guarded::start();
    let mut client = guarded.node.client();
    client.send("POST /timers HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!(client.answer().status, 401);
    client.end();
    let mut client = guarded.node.client();
    let good = format!("Bearer {}", guarded.client);
    client.send(text("POST", "/timers", Some(&good)) + &text("POST", "/timers", None));
    client.send(text("POST", "/timers", Some(&good)));
    assert_eq!((client.answer().status, client.answer().status), (200, 401));
    client.end();
    guarded.node.await_metric("chronos_creates_total", 1.0);
}

#[test]
fn tokens_are_replaced_while_connections_stand() {
    let guarded = Guarded::start();
    let file = guarded.file();
    let first = format!("Bearer {}", guarded.client);
    let second = format!("Bearer {}", new_token(&file, "billing", "client"));
    let third = token_command(&["--name", "billing", "--role", "client"], Some(&file));
    assert!(String::from_utf8_lossy(&third.stderr).contains("at most two tokens of one name"));
    assert_eq!((third.status.code(), third.stdout.len()), (Some(1), 0));
    let mut standing = guarded.node.client();
    standing.send(text("POST", "/timers", Some(&first)));
    assert_eq!(standing.answer().status, 200);
    let is_taken = |token: &str| guarded.ask("POST", "/timers", Some(token)).status == 200;
    let stranger = new_token(&file.with_extension("other"), "billing", "client");
    assert!(!is_taken(&format!("Bearer {stranger}")), "a token of another file");
    guarded.node.signal("HUP");
    until("both are valid", || is_taken(&second).then_some(()));
    assert!(is_taken(&first));

    let lines = std::fs::read_to_string(&file).expect("there");
    std::fs::write(&file, lines.clone() + "billing admin 00\n").expect("written");
    guarded.node.signal("HUP");
    until("the mistake is told", || guarded.node.logged().contains("line 4").then_some(()));
    assert!(is_taken(&first) && is_taken(&second), "a mistake changes nothing");

    let kept: Vec<&str> = lines.lines().skip(1).collect();
    std::fs::write(&file, kept.join("\n")).expect("written");
    guarded.node.signal("HUP");
    until("the first is refused", || (!is_taken(&first)).then_some(()));
    assert!(is_taken(&second));
    standing.send(text("POST", "/timers", Some(&first)));
    assert_eq!(standing.answer().status, 401, "on a connection that stood");
}

#[test]
fn a_file_that_others_may_read_is_refused_and_no_token_is_shown_anywhere() {
    let guarded = Guarded::start();
    let client = format!("Bearer {}", guarded.client);
    assert_eq!(guarded.ask("POST", "/timers", Some(&client)).status, 200);
    assert_eq!(guarded.ask("POST", "/timers", Some(&client[..30])).status, 401);
    let mut admin = super::harness::Client::connect(guarded.node.admin);
    admin.send("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let status = admin.answer();
    let config = |file: &Path| {
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        let variable = ("CHRONOS_AUTH_TOKENS_FILE", file);
        command.arg("--print-config").env(variable.0, variable.1).output().expect("it runs")
    };
    let printed = config(&guarded.file());
    assert!(printed.status.success());
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("tokens_file"));
    for (place, shown) in [
        ("the log", &*guarded.node.logged()),
        ("/status", status.text()),
        ("--print-config", &printed),
    ] {
        assert!(!shown.contains(&guarded.client[4..20]), "{place}: {shown}");
    }
    children::command("chmod").arg("644").arg(guarded.file()).status().expect("it runs");
    let refused = config(&guarded.file());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("[auth] tokens_file") && told.contains("chmod 600"), "{told}");
}

/// Orders to the admin API need an operator's token; who only looks needs none.
#[test]
fn orders_need_the_token_of_an_operator() {
    let guarded = Guarded::start();
    let operator = new_token(&guarded.file(), "ops", "operator");
    let order = |token: Option<&str>| {
        let mut command = children::command(env!("CARGO_BIN_EXE_chronos"));
        command.args(["cluster", "resync", "--admin", &guarded.node.admin.to_string()]);
        command.env_remove("CHRONOS_TOKEN").envs(token.map(|token| ("CHRONOS_TOKEN", token)));
        let output = command.output().expect("the binary runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_taken, told) = order(None);
    assert!(!is_taken && told.contains("the token of an operator"), "{told}");
    assert!(!order(Some(&guarded.client)).0, "a client's");
    let stranger = new_token(&guarded.file().with_extension("other"), "ops", "operator");
    assert!(!order(Some(&stranger)).0, "an operator's of another file");
    guarded.node.signal("HUP");
    until("the operator is known", || order(Some(&operator)).0.then_some(()));
    let mut admin = super::harness::Client::connect(guarded.node.admin);
    admin.send("GET /cluster HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(admin.answer().status, 200);
}

/// A pipe in place of the file would be read for ever, and a file that others may read would not be
/// taken by a node.
#[test]
fn a_file_that_no_node_would_take_gets_no_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    let words = ["--name", "x", "--role", "client"];
    let refusal = |told: &str| {
        let output = token_command(&words, Some(&file));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(told), "{said}");
        assert_eq!(output.stdout, b"", "no token is shown");
    };
    assert!(children::command("mkfifo").arg(&file).status().expect("it runs").success());
    refusal("it is no file");
    std::fs::remove_file(&file).expect("there");
    std::fs::write(&file, "").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("its own");
    refusal("chmod 600");
    assert_eq!(std::fs::read(&file).expect("there"), b"");
}
