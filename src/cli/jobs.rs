//! `chronos jobs`: the jobs that delete many timers.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::ending::{Ending, NotDone, end};
use super::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use super::progress::{Progress, silence};
use super::service::{Service, ServiceFlags, encoded};
use super::shown::{clean, lines_of, table, word_of};
use super::terminal::fail;
use crate::control::http_client::HttpRequest;

/// Pause between two looks at a job.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  chronos timer delete --tag CALL        begins a job
  chronos jobs list
  chronos jobs show 3f1c9a5e07d2b846
  chronos jobs wait 3f1c9a5e07d2b846
  chronos jobs stop 3f1c9a5e07d2b846     what is deleted stays deleted

CHRONOS_TOKEN has the token where one is needed; without it the admin API is asked.

Exit codes:
    0  done
    1  refused, not there, or no answer; wait: the job was stopped, or left timers
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
    },
    /// Let a job begin no further delete
    Stop {
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &JobsFlags) -> u8 {
    let service = match Service::new(&flags.service) {
        Ok(service) => service,
        Err(reason) => return fail(&reason, EXIT_USAGE),
    };
    if flags.service.json {
        silence();
    }
    let result = match &flags.command {
        JobsCommand::List => list(&service),
        JobsCommand::Show { id } => one(&service, "GET", id),
        JobsCommand::Wait { id } => wait(&service, id),
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

/// Looks at a job until it has ended.
fn wait(service: &Service, id: &str) -> Result<Ending, NotDone> {
    let path = path_of(id);
    let progress = Progress::begin("deleting timers");
    loop {
        let asked = HttpRequest::bare("GET", &path);
        let job = service.ask(service.door_of_lists(), asked)?.having("state")?;
        if job["state"] != "running" {
            let is_whole = job["state"] == "done" && job["failed"] == 0 && job["complete"] == true;
            let code = if is_whole { EXIT_OK } else { EXIT_FAILURE };
            return Ok(Ending { code, ..Ending::done(lines_of(&job), job) });
        }
        // Nobody knows how many timers there are before all were looked at.
        let [seen, deleted] = ["seen", "deleted"].map(|name| job[name].as_u64().unwrap_or(0));
        progress.show(0, 0, &format!("{deleted} deleted, {seen} found"));
        std::thread::sleep(LOOK_EVERY);
    }
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
