//! `chronos timer`: what clients do with timers, from the command line.

mod document;
mod list;
mod target;
mod watch;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::document::{DocumentFlags, writable};
use self::list::{CountFlags, FilterFlags, ListFlags};
use self::target::{TargetFlags, bare, send};
use self::watch::WatchFlags;
use super::ending::{Ending, NotDone, end};
use super::exit::EXIT_USAGE;
use super::service::{Reply, Service, ServiceFlags, encoded};
use super::shown::{clean, lines_of};
use super::terminal::failed;

const EXAMPLES: &str = "\
Examples:
  chronos timer create --interval 5m --uri http://127.0.0.1:9000/pop --opaque hello
  chronos timer create --name report --cron '0 9 * * MON-FRI' --time-zone Europe/London \\
      --uri http://127.0.0.1:9000/pop --opaque x
  echo '{\"timing\":{\"interval\":5},...}' | chronos timer create --file -
  chronos timer get --name report
  chronos timer update --name report --cron '0 8 * * MON-FRI'
  chronos timer list --tag CALL --due-before 1h --limit 20
  chronos timer run-now --name report
  chronos timer watch --name report --for 60
  chronos timer delete 687ebc01f9400001-2-0000801000840080
  chronos timer delete --tag CALL                a job: see chronos jobs
  chronos timer count --json

create prints the id alone. A timer is named by that id, or by the name that it was created under.
CHRONOS_TOKEN has the token where one is needed; it goes over TLS (--server https://...) or to this
machine only. Without it, lists and counts are asked for at the admin API.

Exit codes:
    0  done
    1  refused, not there, or no answer; watch: given up, or still there at the end
    2  wrong command line";

/// Create, show, list, change, delete and watch timers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TimerFlags {
    #[command(subcommand)]
    command: TimerCommand,

    #[command(flatten)]
    service: ServiceFlags,
}

/// The commands of `chronos timer`.
#[derive(Debug, Subcommand)]
enum TimerCommand {
    /// Create a timer and print its id
    Create(Box<CreateFlags>),
    /// Show a timer
    Get(TargetFlags),
    /// List timers
    List(ListFlags),
    /// Count timers by state, due time, tag and host
    Count(CountFlags),
    /// Change what flags name; its time begins anew
    Update(Box<UpdateFlags>),
    /// Delete a timer, or in a job all that filters name
    Delete(DeleteFlags),
    /// Let a timer not pop until it is resumed
    Pause(TargetFlags),
    /// Let a paused timer pop again
    Resume(TargetFlags),
    /// Make the next pop at once
    RunNow(TargetFlags),
    /// Tell what happens to a timer until it is over
    Watch(WatchFlags),
}

#[derive(Debug, Args)]
struct CreateFlags {
    #[command(flatten)]
    document: DocumentFlags,

    /// A name of your own, one timer in the whole cluster; replaces the timer under it
    #[arg(long)]
    name: Option<String>,

    /// With --name: fail if there is a timer under it
    #[arg(long, requires = "name")]
    only_new: bool,

    /// Create the timer once, however often this is typed within 24 hours
    #[arg(long, value_name = "KEY", conflicts_with = "name")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
struct UpdateFlags {
    #[command(flatten)]
    target: TargetFlags,

    #[command(flatten)]
    document: DocumentFlags,
}

#[derive(Debug, Args)]
struct DeleteFlags {
    #[command(flatten)]
    target: TargetFlags,

    #[command(flatten)]
    filter: FilterFlags,
}

/// Runs one of the commands; returns the exit code.
pub(super) fn run(flags: &TimerFlags) -> u8 {
    let service = match Service::new(&flags.service) {
        Ok(service) => service,
        Err(reason) => return failed(flags.service.json, &reason, EXIT_USAGE),
    };
    let result = match &flags.command {
        TimerCommand::Create(flags) => create(&service, flags),
        TimerCommand::Get(target) => get(&service, target),
        TimerCommand::List(flags) => list::list(&service, flags),
        TimerCommand::Count(flags) => list::count(&service, flags),
        TimerCommand::Update(flags) => update(&service, flags),
        TimerCommand::Delete(flags) => delete(&service, flags),
        TimerCommand::Pause(target) => act(&service, target, "pause", "paused"),
        TimerCommand::Resume(target) => act(&service, target, "resume", "resumed"),
        TimerCommand::RunNow(target) => act(&service, target, "run-now", "run"),
        TimerCommand::Watch(watched) => watch::watch(&service, watched, flags.service.json),
    };
    end(flags.service.json, result)
}

/// Tells of a timer that was written: its id as text, and more as JSON.
fn written(what: &str, reply: &Reply, text: impl FnOnce(&str) -> String) -> Ending {
    let location = reply.location.as_deref().unwrap_or_default();
    let id = bare(location);
    let version = reply.version.as_deref().map(|version| version.trim_matches('"'));
    let document = json!({ "outcome": what, "id": id, "location": location, "version": version });
    Ending::done(text(&clean(id)), document)
}

fn create(service: &Service, flags: &CreateFlags) -> Result<Ending, NotDone> {
    let document = &flags.document;
    if document.file.is_none() && !document.says_something() {
        let told = "expected when and where: --interval, --at or --cron, with --uri and --opaque; \
                    or --file FILE";
        return Err(NotDone::Usage(told.into()));
    }
    let mut base = json!({});
    if document.file.is_none() {
        base = json!({ "callback": { "http": { "opaque": "" } } });
    }
    let body = document.bytes(base).map_err(NotDone::Usage)?;
    let mut headers = Vec::new();
    headers.extend(flags.only_new.then(|| ("If-None-Match", "*".to_owned())));
    headers.extend(flags.idempotency_key.clone().map(|key| ("Idempotency-Key", key)));
    let (method, path) = match &flags.name {
        Some(name) => ("PUT", format!("/timers/by-name/{}", encoded(name))),
        None => ("POST", "/timers".to_owned()),
    };
    let reply = send(service, (method, &path), &headers, &body)?;
    reply.needed_location()?;
    Ok(written("created", &reply, |id| format!("{id}\n")))
}

fn get(service: &Service, target: &TargetFlags) -> Result<Ending, NotDone> {
    let reply = send(service, ("GET", &target.path()?), &[], &[])?;
    reply.needed("timing")?;
    let mut document = reply.document;
    if let (Some(version), Value::Object(members)) = (reply.version, &mut document) {
        members.insert("version".into(), version.trim_matches('"').into());
    }
    let mut shown = document.clone();
    if let (Some(due), Value::Object(members)) = (watch::due_of(&document), &mut shown) {
        members.insert("due".into(), due.into());
    }
    Ok(Ending::done(lines_of(&shown), document))
}

fn update(service: &Service, flags: &UpdateFlags) -> Result<Ending, NotDone> {
    let path = flags.target.path()?;
    let mut headers = flags.target.headers();
    let mut base = json!({});
    if flags.document.file.is_none() {
        if !flags.document.says_something() {
            return Err(NotDone::Usage("expected a flag that says what to change".into()));
        }
        let found = send(service, ("GET", &path), &[], &[])?;
        found.needed("timing")?;
        // Who writes meanwhile is not overwritten, where the timer has a name: writes by an id take
        // no condition.
        let has_name = flags.target.name.is_some();
        if let (true, true, Some(version)) = (has_name, headers.is_empty(), found.version) {
            headers.push(("If-Match", version));
        }
        base = writable(found.document);
    }
    let body = flags.document.bytes(base).map_err(NotDone::Usage)?;
    let reply = send(service, ("PUT", &path), &headers, &body)?;
    reply.needed_location()?;
    Ok(written("updated", &reply, |id| format!("{id}\n")))
}

fn delete(service: &Service, flags: &DeleteFlags) -> Result<Ending, NotDone> {
    let is_filtered = !flags.filter.is_empty();
    match (flags.target.path(), is_filtered) {
        (Ok(_), true) => {
            let told = "expected the ID or --name of one timer, or filters; got both";
            Err(NotDone::Usage(told.into()))
        }
        (Ok(path), false) => {
            let headers = flags.target.headers();
            let reply = send(service, ("DELETE", &path), &headers, &[])?;
            Ok(written("deleted", &reply, |id| format!("{id} is not there any more\n")))
        }
        (Err(_), true) if !flags.target.headers().is_empty() => {
            let told = "--if-match: expected with --name, got it with filters: a job deletes \
                        timers of any version";
            Err(NotDone::Usage(told.into()))
        }
        (Err(_), true) => list::delete(service, &flags.filter),
        (Err(_), false) => {
            let told = "expected the ID of a timer, --name NAME, or filters such as --tag";
            Err(NotDone::Usage(told.into()))
        }
    }
}

fn act(
    service: &Service,
    target: &TargetFlags,
    action: &str,
    what: &str,
) -> Result<Ending, NotDone> {
    let path = format!("{}/{action}", target.path()?);
    let reply = send(service, ("POST", &path), &target.headers(), &[])?;
    Ok(written(what, &reply, |id| format!("{id} is {what}\n")))
}
