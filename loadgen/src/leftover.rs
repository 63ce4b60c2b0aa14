//! Timers that a run leaves in the node: how many, how to delete them, and `--delete`, which does.
//!
//! The timers are found by the host of their callbacks, which is part of each create. So a create
//! costs the node the same whether somebody deletes the timers afterwards or not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use chronos::cli::progress::Progress;
use serde_json::Value;

use crate::flags::ScenarioFlags;
use crate::report::{Left, Report, grouped};

/// The port of the admin API where nothing else is said.
const ADMIN_PORT: u16 = 7254;
/// The port of clients where nothing else is said.
const PORT: u16 = 7253;
/// How long the node may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a job may delete nothing before nobody waits for it any more.
const STANDSTILL: Duration = Duration::from_secs(30);
/// How often a job is asked for.
const LOOK: Duration = Duration::from_millis(100);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Tells in the report of the timers that are left in the node, and deletes them with --delete.
/// `whose` is where their callbacks go.
pub fn tell(report: &mut Report, flags: &ScenarioFlags, timers: u64, whose: SocketAddr) {
    if timers == 0 {
        return;
    }
    let mut left = Left { timers, host: whose.to_string(), deleted: None };
    let command = command_text(flags, &left.host);
    let count = grouped(timers);
    if flags.delete {
        match delete(flags, &left) {
            Ok(Deleted { deleted, failed: 0, is_complete: true }) => {
                let (deleted_text, host) = (grouped(deleted), &left.host);
                report.notes.push(format!(
                    "{deleted_text} timers with callbacks to {host} were deleted; this run had \
                     left {count}"
                ));
                left.deleted = Some(deleted);
            }
            Ok(Deleted { deleted, failed, is_complete }) => {
                let nodes = if is_complete { "" } else { ", and a node could not be asked" };
                report.problem(format!(
                    "of {count} timers {deleted} were deleted and {failed} could not be{nodes}; \
                     again: {command}"
                ));
                left.deleted = Some(deleted);
            }
            Err(error) => report.problem(format!(
                "{count} timers are left in the node at {}, for they could not be deleted: \
                 {error:#}; to delete them: {command}",
                flags.target
            )),
        }
    } else {
        report.notes.push(format!(
            "{count} timers are left in the node at {}, with callbacks to {}. Delete them: \
             {command} (all that go there, of other runs, too), or run with --delete",
            flags.target, left.host
        ));
    }
    report.left = Some(left);
}

/// The command that deletes them. Where the place of the admin API is not known, it names the flag
/// with a word for the address.
pub fn command_text(flags: &ScenarioFlags, host: &str) -> String {
    let mut text = format!("chronos timer delete --host {host}");
    if flags.target.to_string() != crate::flags::TARGET {
        text += &format!(" --server {}", flags.target);
    }
    if let Some(admin) = flags.admin {
        text += &format!(" --admin {admin}");
    } else if flags.token.is_none() && flags.target.port() != PORT {
        // A node at another port has its admin API at another port, too, if nobody is at this one.
        let usual = SocketAddr::new(flags.target.ip(), ADMIN_PORT);
        if TcpStream::connect_timeout(&usual, LOOK).is_err() {
            text += " --admin HOST:PORT";
        }
    }
    text
}

/// Checks before a run that --delete can order its job afterwards. Error: what to do.
pub fn check(flags: &ScenarioFlags) -> Result<()> {
    let asked = Door::of(flags).ask("GET", "/jobs");
    asked.map(|_| ()).context("--delete could not delete the timers at the end")
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Deleted {
    deleted: u64,
    failed: u64,
    is_complete: bool,
}

/// Orders the job that deletes the timers, and waits for its end.
fn delete(flags: &ScenarioFlags, left: &Left) -> Result<Deleted> {
    let door = Door::of(flags);
    let host = left.host.replace('[', "%5B").replace(']', "%5D");
    let job = door.ask("DELETE", &format!("/timers?host={host}"))?;
    let id = job["id"].as_str().context("the answer names no job")?.to_owned();
    ensure!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "`{id}` is no id of a job");
    let progress = Progress::begin("deleting timers");
    let (mut last, mut moved_at) = (0, Instant::now());
    loop {
        let job = door.ask("GET", &format!("/jobs/{id}"))?;
        let number = |name: &str| job[name].as_u64().unwrap_or(0);
        let (deleted, failed) = (number("deleted"), number("failed"));
        if job["state"] != "running" {
            ensure!(job["state"] == "done", "the job {id} was stopped");
            return Ok(Deleted { deleted, failed, is_complete: job["complete"] != false });
        }
        progress.show(deleted, left.timers, &format!("{} deleted", grouped(deleted)));
        if number("seen") + deleted > last {
            (last, moved_at) = (number("seen") + deleted, Instant::now());
        } else if moved_at.elapsed() > STANDSTILL {
            bail!("the job {id} goes on and has deleted nothing for {STANDSTILL:?}");
        }
        std::thread::sleep(LOOK);
    }
}

/// Where the job is ordered: the clients' port takes the order from a holder of a token alone.
struct Door<'a> {
    address: SocketAddr,
    token: Option<&'a str>,
}

impl Door<'_> {
    fn of(flags: &ScenarioFlags) -> Door<'_> {
        let token = flags.token.as_deref();
        let address = match (flags.admin, token) {
            (Some(admin), _) => admin,
            (None, Some(_)) => flags.target,
            (None, None) => SocketAddr::new(flags.target.ip(), ADMIN_PORT),
        };
        Door { address, token }
    }

    /// One exchange on a connection of its own. Error: no answer, or no status of success.
    fn ask(&self, method: &str, path: &str) -> Result<Value> {
        let address = self.address;
        let whom = || format!("{address} does not answer {method} {path}");
        let mut stream = TcpStream::connect_timeout(&address, ANSWER).with_context(|| {
            format!("nobody listens at {address}: name the node's admin API with --admin")
        })?;
        stream.set_read_timeout(Some(ANSWER))?;
        let token = self.token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        // One write: in pieces, a server may answer before it has all of them.
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-Chronos-Order: 1\r\n{token}\
             Connection: close\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).with_context(whom)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).with_context(whom)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").with_context(whom)?;
        let status: u16 =
            head.split_whitespace().nth(1).and_then(|word| word.parse().ok()).with_context(whom)?;
        ensure!(
            (200..300).contains(&status),
            "{address} refuses {method} {path}: {} (status {status})",
            body.trim()
        );
        // A body in chunks has its one JSON document on a line of its own.
        let document = body.lines().find(|line| line.starts_with('{')).with_context(whom)?;
        serde_json::from_str(document).with_context(whom)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::command::{Job, command, job};

    fn flags(line: &str) -> ScenarioFlags {
        let matches = command().try_get_matches_from(line.split_whitespace()).unwrap();
        let Ok(Job::Scenario(_, flags)) = job(&matches) else { panic!("{line}") };
        flags
    }

    /// A node that gives these answers, one a connection. Returns what it was asked.
    fn node(
        answers: &'static [&'static str],
    ) -> (SocketAddr, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 1024];
                let length = stream.read(&mut bytes).unwrap();
                asked.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
                stream.write_all(format!("{head}{answer}\n").as_bytes()).unwrap();
            }
            asked
        });
        (address, thread)
    }

    fn nobody() -> SocketAddr {
        crate::scenario::setup::nobody()
    }

    #[test]
    fn what_is_left_is_told_with_the_command_that_deletes_it() {
        let mut report = Report::new("post");
        tell(&mut report, &flags("x post"), 1_234_567, nobody());
        let text = report.text();
        assert!(report.passed && text.contains("1 234 567 timers are left"), "{text}");
        assert!(text.contains("chronos timer delete --host 127.0.0.1:9 ("), "{text}");
        assert_eq!(report.left.unwrap().deleted, None);
        let line = "x post --target 127.0.0.2:7253 --admin 127.0.0.2:1";
        let text = command_text(&flags(line), "[::1]:9");
        let expected = "--host [::1]:9 --server 127.0.0.2:7253 --admin 127.0.0.2:1";
        assert_eq!(text, format!("chronos timer delete {expected}"));
        // Nobody listens at the usual port of this address.
        let text = command_text(&flags("x post --target 127.0.0.99:5"), "[::1]:9");
        assert!(text.ends_with("--server 127.0.0.99:5 --admin HOST:PORT"), "{text}");
        let mut report = Report::new("post");
        tell(&mut report, &flags("x post"), 0, nobody());
        assert!(report.notes.is_empty() && report.left.is_none());
    }

    #[test]
    fn delete_orders_a_job_and_waits_for_it() {
        let (admin, asked) = node(&[
            r#"{"id":"3f1c","state":"running"}"#,
            r#"{"id":"3f1c","state":"running","seen":5,"deleted":3,"failed":0}"#,
            r#"{"id":"3f1c","state":"done","seen":7,"deleted":7,"failed":0,"complete":true}"#,
        ]);
        let mut report = Report::new("post");
        tell(&mut report, &flags(&format!("x post --delete --admin {admin}")), 5, nobody());
        assert!(report.passed, "{}", report.text());
        assert_eq!(report.left.unwrap().deleted, Some(7));
        let asked = asked.join().unwrap();
        assert!(asked[0].starts_with("DELETE /timers?host=127.0.0.1:9 HTTP/1.1\r\n"), "{asked:?}");
        assert!(asked[0].contains("X-Chronos-Order: 1\r\n"));
        assert!(asked[2].starts_with("GET /jobs/3f1c HTTP/1.1\r\n"), "{asked:?}");
    }

    #[test]
    fn what_could_not_be_deleted_fails_the_run() {
        let partly = r#"{"id":"a","state":"done","deleted":3,"failed":2,"complete":true}"#;
        let (admin, _) = node(Box::leak(Box::new([r#"{"id":"a"}"#, partly])));
        let mut report = Report::new("post");
        tell(&mut report, &flags(&format!("x post --delete --admin {admin}")), 5, nobody());
        assert!(!report.passed && report.problems[0].contains("2 could not be"));

        let nowhere = crate::child::free_address().unwrap();
        let mut report = Report::new("post");
        tell(&mut report, &flags(&format!("x post --delete --admin {nowhere}")), 5, nobody());
        assert!(report.problems[0].contains("--admin"), "{:?}", report.problems);
    }

    #[test]
    fn a_token_opens_the_clients_port() {
        let flags = flags("x post --token abc --target 127.0.0.1:5");
        assert_eq!(Door::of(&flags).address, "127.0.0.1:5".parse().unwrap());
        let flags = self::flags("x post --target 127.0.0.1:5");
        assert_eq!(Door::of(&flags).address, "127.0.0.1:7254".parse().unwrap());
    }
}
