//! `chronos jobs`: the jobs that delete many timers.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::ending::{Ending, NotDone, end};
use super::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use super::lasting::seconds_in;
use super::progress::{Progress, say, silence};
use super::service::{Failure, Service, ServiceFlags, encoded};
use super::shown::{clean, lines_of, table, word_of};
use super::terminal::failed;
use crate::control::http_client::HttpRequest;

/// Pause between two looks at a job.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before the next look where the node did not answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a node may be silent before who waits for a job gives up.
const SILENCE_MAX: Duration = Duration::from_secs(300);

const EXAMPLES: &str = "\
Examples:
  chronos timer delete --tag CALL        begins a job
  chronos jobs list
  chronos jobs show 3f1c9a5e07d2b846
  chronos jobs wait 3f1c9a5e07d2b846 --timeout 1h
  chronos jobs stop 3f1c9a5e07d2b846     what is deleted stays deleted

wait asks a node that falls silent again, for 5 minutes.
CHRONOS_TOKEN has the token where one is needed; without it the admin API is asked.

Exit codes:
    0  done
    1  refused, not there, or no answer; wait: the job was stopped, left timers, or still runs
    2  wrong command line";

/// See jobs that delete many timers, wait for one, stop one
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct JobsFlags {
    #[command(subcommand)]
    command: JobsCommand,

    #[command(flatten)]
    service: ServiceFlags,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// List the jobs of all nodes
    List,
    /// Show how far a job is
    Show {
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Wait until a job has ended, and show how far it is
    Wait {
        #[arg(value_name = "ID")]
        id: String,

        /// Give up waiting after this long; the job goes on
        #[arg(long, value_name = "DURATION", value_parser = seconds)]
        timeout: Option<f64>,
    },
    /// Let a job begin no further delete
    Stop {
        #[arg(value_name = "ID")]
        id: String,
    },
}

fn seconds(text: &str) -> Result<f64, String> {
    seconds_in(text, &(0.1..=31_536_000.0))
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &JobsFlags) -> u8 {
    let service = match Service::new(&flags.service) {
        Ok(service) => service,
        Err(reason) => return failed(flags.service.json, &reason, EXIT_USAGE),
    };
    if flags.service.json {
        silence();
    }
    let result = match &flags.command {
        JobsCommand::List => list(&service),
        JobsCommand::Show { id } => one(&service, "GET", id),
        JobsCommand::Wait { id, timeout } => {
            wait(&service, id, timeout.map(Duration::from_secs_f64))
        }
        JobsCommand::Stop { id } => one(&service, "DELETE", id),
    };
    end(flags.service.json, result)
}

fn list(service: &Service) -> Result<Ending, NotDone> {
    let document =
        service.ask(service.door_of_lists(), HttpRequest::bare("GET", "/jobs"))?.having("jobs")?;
    let head = ["ID", "STATE", "SEEN", "DELETED", "FAILED", "STARTED", "FILTER"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(document["jobs"].as_array().into_iter().flatten().map(row_of));
    let text = if rows.len() == 1 { "no jobs\n".into() } else { table(&rows) };
    let missing = document["incomplete"].as_array().into_iter().flatten();
    let notes = missing.map(|told| format!("incomplete: {}", word_of(told))).collect();
    Ok(Ending { notes, ..Ending::done(text, document) })
}

fn row_of(job: &Value) -> Vec<String> {
    let cells = ["id", "state", "seen", "deleted", "failed", "started"].map(|name| &job[name]);
    let filter = clean(&job["filter"].to_string()).into_owned();
    cells.map(word_of).into_iter().chain([filter]).collect()
}

/// Looks at a job until it has ended, for `timeout` at most.
fn wait(service: &Service, id: &str, timeout: Option<Duration>) -> Result<Ending, NotDone> {
    let path = path_of(id);
    let begun = Instant::now();
    let progress = Progress::begin("deleting timers");
    let mut watch = Watch::new(begun);
    loop {
        let asked = HttpRequest::bare("GET", &path);
        let looked = service.ask(service.door_of_lists(), asked);
        let pause = match looked.and_then(|reply| reply.having("state")) {
            Ok(job) if job["state"] != "running" => return Ok(ended(job)),
            Ok(job) => {
                watch.answered(Instant::now());
                // Nobody knows how many timers there are before all were looked at.
                let [seen, deleted] = ["seen", "deleted"].map(|name| job[name].as_u64());
                let [seen, deleted] = [seen, deleted].map(Option::unwrap_or_default);
                progress.show(0, 0, &format!("{deleted} deleted, {seen} found"));
                LOOK_EVERY
            }
            Err(error) => {
                if let Some(line) = watch.failed(error, Instant::now())? {
                    say(&line);
                }
                AGAIN_AFTER
            }
        };
        let left = timeout.map_or(pause, |timeout| timeout.saturating_sub(begun.elapsed()));
        if left.is_zero() {
            let seconds = begun.elapsed().as_secs();
            let told = format!("job {id} still runs after {seconds} s: wait again, or stop it");
            return Err(NotDone::Other(told));
        }
        std::thread::sleep(pause.min(left));
    }
}

/// What is known of a node that is asked again and again.
struct Watch {
    /// When it answered last, or was asked first.
    since: Instant,
    has_answered: bool,
    is_told: bool,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self { since: now, has_answered: false, is_told: false }
    }

    fn answered(&mut self, now: Instant) {
        *self = Self { since: now, has_answered: true, is_told: false };
    }

    /// Returns a line about a failure after which the node is asked again, once for all that follow
    /// each other. Error: asking again is of no use.
    fn failed(&mut self, error: Failure, now: Instant) -> Result<Option<String>, Failure> {
        let is_passing = match &error {
            Failure::Refused { status, .. } => *status >= 500 || *status == 429,
            Failure::Late(_) => true,
            // Where nobody has ever answered, the address may be wrong.
            Failure::Unanswered(_) => self.has_answered,
        };
        if !is_passing || now.saturating_duration_since(self.since) >= SILENCE_MAX {
            return Err(error);
        }
        let is_news = !std::mem::replace(&mut self.is_told, true);
        Ok(is_news.then(|| format!("asking again: {error}")))
    }
}

/// The end of a job that does not run any more.
fn ended(job: Value) -> Ending {
    let mut notes = Vec::new();
    if job["state"] == "stopped" {
        notes.push("the job was stopped: timers that it had not reached are still there".into());
    }
    if let Some(failed @ 1..) = job["failed"].as_u64() {
        notes.push(format!("{failed} timers could not be deleted: order it again"));
    }
    if job["complete"] == false {
        notes.push("nodes could not be asked for their timers: order it again".into());
    }
    let is_whole = job["state"] == "done" && job["failed"] == 0 && job["complete"] == true;
    let code = if is_whole { EXIT_OK } else { EXIT_FAILURE };
    Ending { code, notes, ..Ending::done(lines_of(&job), job) }
}

fn path_of(id: &str) -> String {
    format!("/jobs/{}", encoded(id.strip_prefix("/jobs/").unwrap_or(id)))
}

fn one(service: &Service, method: &str, id: &str) -> Result<Ending, NotDone> {
    let path = path_of(id);
    let reply = service.ask(service.door_of_lists(), HttpRequest::bare(method, &path))?;
    let document = reply.having("state")?;
    Ok(Ending::done(lines_of(&document), document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_that_falls_silent_is_asked_again_and_told_of_once() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let late = || Failure::Late("slow".into());
        let gone = || Failure::Unanswered("gone".into());
        let refused = |status| {
            let (address, text) = ("a:1".to_owned(), "busy".to_owned());
            Failure::Refused { address, status, text }
        };
        let mut watch = Watch::new(begun);
        assert!(watch.failed(gone(), at(1)).is_err(), "nobody has ever answered there");
        let told = watch.failed(late(), at(10)).expect("it may answer yet");
        assert_eq!(told.as_deref(), Some("asking again: slow"));
        watch.answered(at(20));
        for (passing, is_told) in [(gone(), true), (late(), false), (refused(503), false)] {
            let told = watch.failed(passing, at(60)).expect("it goes on");
            assert_eq!(told.is_some(), is_told);
        }
        assert!(watch.failed(refused(429), at(60)).is_ok());
        for status in [401, 403, 404] {
            assert!(watch.failed(refused(status), at(60)).is_err(), "{status}");
        }
        assert!(watch.failed(gone(), at(319)).is_ok());
        assert!(watch.failed(gone(), at(320)).is_err(), "5 minutes of silence");
    }

    #[test]
    fn a_job_that_left_timers_says_so() {
        let job = |state: &str, failed: u64, complete: bool| {
            ended(json!({ "state": state, "failed": failed, "complete": complete }))
        };
        let done = job("done", 0, true);
        assert_eq!((done.code, done.notes.len()), (EXIT_OK, 0));
        let stopped = job("stopped", 0, true);
        assert_eq!(stopped.code, EXIT_FAILURE);
        assert!(stopped.notes[0].starts_with("the job was stopped"), "{stopped:?}");
        let left = job("done", 3, false);
        assert_eq!((left.code, left.notes.len()), (EXIT_FAILURE, 2));
    }
}
