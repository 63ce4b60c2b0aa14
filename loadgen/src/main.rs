//! `chronos-loadgen`: load, a callback sink and a reference for timer services, on the same ring as
//! the node.
//!
//! - `client` sends requests and matches answers; `creator` and `sessions` say what to send.
//! - `sink` judges pops by the `ledger`.
//! - `scenario` runs client and sink together; `report`, `html` and `chart` show the results.
//! - `ratio` compares node and reference.
//! - `cluster` starts whole clusters and measures them.
//! - `timestamps` asks for timestamps.
//! - `ordinary` is a client on epoll; `against` compares servers with it, and `journal` servers
//!   that keep what they are sent on a disk.
//! - `bulk` compares creates of a line each with creates of a request each.
//! - `lists` lists all timers of a node while others pop.
//! - `handshakes` begins many handshakes of TLS at once.

#![forbid(unsafe_code)]

mod against;
mod arrival;
mod bulk;
mod chart;
mod child;
mod client;
mod clock;
mod cluster;
mod command;
mod creator;
mod flags;
mod frames;
mod handshakes;
mod histogram;
mod html;
mod interrupt;
mod journal;
mod ledger;
mod leftover;
mod lists;
mod machine;
mod ordinary;
mod output;
mod over_time;
mod random;
mod ratio;
mod recorder;
mod reference;
mod report;
mod request;
mod scenario;
mod server;
mod server_cpu;
mod sessions;
mod sink;
mod timestamps;
mod token;
mod workload;

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use command::Job;
use flags::{BulkFlags, ListFlags, ReferenceFlags, ScenarioFlags, SinkFlags};
use scenario::kind::Scenario;

/// The same allocator as the node's, so that allocations take steady time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = match command::command().try_get_matches() {
        Ok(matches) => matches,
        // Help that cannot be written is a failure, which the parser's own way does not see.
        Err(error) if !error.use_stderr() => return output::help(&error),
        Err(error) => error.exit(),
    };
    let job = command::job(&matches).unwrap_or_else(|error| error.exit());
    if job.is_json() {
        chronos::cli::progress::silence();
    }
    match run(job) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::tell(&format!("chronos-loadgen: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the job. Returns false if the run shows a problem.
fn run(job: Job) -> Result<bool> {
    match job {
        Job::Scenario(scenario, flags) => run_scenario(scenario, flags),
        Job::Sink(flags) => run_sink(&flags).map(|()| true),
        Job::Reference(flags) => run_reference(&flags).map(|()| true),
        Job::Ratio(flags) => {
            let report = ratio::run(&flags)?;
            output::show(flags.json, &report, || report.text())?;
            Ok(true)
        }
        Job::Against(flags) => {
            let report = against::run(&flags)?;
            output::show(flags.json, &report, || report.text())?;
            Ok(true)
        }
        Job::Journal(flags) => {
            let report = journal::run(&flags)?;
            output::show(flags.json, &report, || report.text())?;
            Ok(true)
        }
        Job::Bulk(flags) => run_bulk(&flags).map(|()| true),
        Job::List(flags) => run_list(&flags).map(|()| true),
        Job::Completions(flags) => Ok(flags.run(command::command()) == 0),
        Job::Man(flags) => Ok(flags.run(command::command()) == 0),
        Job::Handshakes(flags) => {
            let report = handshakes::run(&flags)?;
            output::show(flags.json, &report, || report.text())?;
            Ok(report.passed())
        }
        Job::Timestamps(flags) => {
            if let Some(report) = timestamps::run(&flags)? {
                output::show(flags.json, &report, || report.text())?;
            }
            Ok(true)
        }
        Job::Cluster(flags) => {
            let report = cluster::run(&flags)?;
            output::show(flags.json, &report, || report.text())?;
            Ok(report.passed)
        }
    }
}

fn run_list(flags: &ListFlags) -> Result<()> {
    let report = lists::run(flags)?;
    output::show(flags.json, &report, || report.text())?;
    Ok(())
}

fn run_scenario(scenario: Scenario, mut flags: ScenarioFlags) -> Result<bool> {
    token::settle(&mut flags)?;
    let checked = flags.server_pid.map_or(Ok(()), |pid| server_cpu::check(pid, flags.target));
    if let Err(reason) = checked {
        command::command().error(clap::error::ErrorKind::ValueValidation, reason).exit();
    }
    let unwritten = |path: &Path| format!("cannot write {}", path.display());
    // What cannot be done at the end is not begun.
    if let Some(path) = &flags.html {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| unwritten(path))?;
    }
    if flags.delete {
        leftover::check(&flags)?;
    }
    interrupt::watch(&flags)?;
    let report = scenario.run(&flags)?;
    if let Some(path) = &flags.html {
        std::fs::write(path, html::page(&report)).with_context(|| unwritten(path))?;
    }
    output::show(flags.json, &report, || report.text())?;
    Ok(report.passed)
}

fn run_bulk(flags: &BulkFlags) -> Result<()> {
    let report = bulk::run(flags)?;
    output::show(flags.json, &report, || report.text())?;
    Ok(())
}

fn run_sink(flags: &SinkFlags) -> Result<()> {
    chronos::ring::raise_open_files_limit();
    let sink = sink::Sink::new(flags.sink_mode, None);
    let counter = sink.counter();
    let sink = sink.start(flags.sink_listen, flags.sink_core)?;
    let begin =
        format!("callback sink at http://{}/, answers: {}\n", sink.address, flags.sink_mode);
    let mut is_read = output::print(&begin)?;
    let mut seen = 0;
    while is_read {
        std::thread::sleep(Duration::from_secs(1));
        let now = counter.load(Ordering::Relaxed);
        if now != seen {
            let (all, last) = (report::grouped(now), now - seen);
            is_read = output::print(&format!("{all} callbacks, {last} in the last second\n"))?;
        }
        seen = now;
    }
    Ok(())
}

fn run_reference(flags: &ReferenceFlags) -> Result<()> {
    chronos::ring::raise_open_files_limit();
    let stop = Arc::new(AtomicBool::new(false));
    if flags.until_stdin_ends {
        std::thread::spawn(move || {
            // The process that started this one holds the other end, which ends with that process.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    match (flags.listen, flags.call_back) {
        (Some(listen), _) => {
            let ready = |address| {
                // Who does not read the address does not need it.
                let _ = output::print(&format!("reference at http://{address}/\n"));
            };
            server::run(listen, flags.core, reference::Reference, &stop, ready)?;
            Ok(())
        }
        (None, Some(sink)) => reference::call_back(sink, flags.connections, flags.core),
        (None, None) => unreachable!("clap asks for one of both"),
    }
}
