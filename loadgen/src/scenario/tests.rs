//! Runs whole scenarios against small servers: the real client, sink and ledger, and faults that
//! must be found.

use std::sync::atomic::AtomicBool;

use super::faulty_node::{self, Fault};
use super::setup::{Sample, cpu_per_pop};
use crate::command::{Job, command, job};
use crate::reference::Reference;
use crate::report::Report;
use crate::server::ServerThread;
use crate::sink::{Sink, SinkMode};

fn try_run(line: &str) -> anyhow::Result<Report> {
    let line = format!("chronos-loadgen {line}");
    let matches = command().try_get_matches_from(line.split_whitespace()).unwrap();
    let Ok(Job::Scenario(scenario, flags)) = job(&matches) else { panic!("{line}") };
    scenario.run(&flags)
}

fn run(line: &str) -> Report {
    try_run(line).unwrap()
}

/// Runs a scenario that creates timers ahead. A slow machine gets a longer lead.
fn run_ahead(line: &str) -> Report {
    let mut lead_ms = 500;
    loop {
        match try_run(&format!("{line} --lead-ms {lead_ms}")) {
            Ok(report) => return report,
            Err(error) if error.to_string().contains("--lead-ms") && lead_ms < 30_000 => {
                lead_ms *= 3;
            }
            Err(error) => panic!("{error:#}"),
        }
    }
}

fn reference() -> ServerThread<Reference> {
    ServerThread::start("127.0.0.1:0".parse().unwrap(), None, Reference).unwrap()
}

fn accuracy(fault: Fault) -> Report {
    let node = faulty_node::start(fault);
    run(&format!(
        "accuracy --target {node} --rate 100 --warm-up-s 0 --duration-s 0.6 --interval-ms 400 \
         --connections 4 --drain-s 5 --pops-each 2"
    ))
}

#[test]
fn a_good_node_passes() {
    let report = accuracy(Fault::None);
    assert!(report.passed, "{}", report.text());
    let pops = report.pops.unwrap();
    assert_eq!((pops.owed, pops.arrived), (120, 120));
    assert_eq!(pops.lateness_us.count, 120);
    // By the times at which they were meant to be sent: an answer may come after the measured time.
    assert_eq!(report.requests.unwrap().latency_us.count, 60);
}

#[test]
fn each_fault_is_found_and_counted() {
    // Timers 3, 13, 23, 33, 43 and 53 of sixty are faulty.
    let pops = |fault| {
        let report = accuracy(fault);
        assert!(!report.passed, "{}", report.text());
        let pops = report.pops.unwrap();
        (pops.early, pops.lost, pops.doubled)
    };
    assert_eq!(pops(Fault::Early), (12, 0, 0));
    assert_eq!(pops(Fault::Lost), (0, 12, 0));
    assert_eq!(pops(Fault::Doubled), (0, 0, 12));
}

#[test]
fn retries_of_what_the_sink_refuses_are_no_doubled_pops() {
    let node = faulty_node::start(Fault::Retried);
    let accuracy = |mode: &str| {
        run(&format!(
            "accuracy --target {node} --rate 100 --warm-up-s 0 --duration-s 0.6 --interval-ms 400 \
             --connections 4 --drain-s 5 --pops-each 2 --sink-mode {mode}"
        ))
    };
    let report = accuracy("status:503");
    assert!(report.passed, "{}", report.text());
    let pops = report.pops.unwrap();
    assert_eq!((pops.arrived, pops.retried, pops.doubled), (120, 12, 0));
    let report = accuracy("ok");
    assert!(!report.passed, "a callback that was taken and comes again");
    let pops = report.pops.unwrap();
    assert_eq!((pops.arrived, pops.retried, pops.doubled), (120, 0, 12));
}

#[test]
fn refused_and_broken_requests_are_failures_by_kind() {
    let report = accuracy(Fault::Refused);
    let requests = report.requests.unwrap();
    assert_eq!(requests.failures["status 503"], 6);
    assert_eq!(requests.latency_us.count, 54);
    assert!(!report.passed);
    let report = accuracy(Fault::Closed);
    let requests = report.requests.unwrap();
    // Every request in flight on the closed connection fails with it, and the connection is made
    // again.
    assert!(requests.failures["closed"] + requests.failures.get("reset").unwrap_or(&0) >= 1);
    assert!(requests.reconnects >= 1 && requests.answered >= 20, "{requests:?}");
}

#[test]
fn timers_due_together_all_arrive() {
    let node = faulty_node::start(Fault::None);
    let report = run_ahead(&format!("pops --target {node} --timers 200 --drain-s 30"));
    assert!(report.passed, "{}", report.text());
    assert_eq!(report.pops.unwrap().arrived, 200);
    let report = run_ahead(&format!(
        "herd --target {node} --timers 200 --rate 200 --drain-s 30 --duration-s 30"
    ));
    assert!(report.passed, "{}", report.text());
    assert_eq!(report.pops.unwrap().arrived, 200);
    let requests = report.requests.unwrap();
    // Requests run for two seconds before the herd, and then until the last pop. A busy machine
    // makes fewer than 200 a second.
    assert!(requests.latency_us.count >= 100, "{requests:?}");
    assert!(requests.latency_us_during.unwrap().count < requests.latency_us.count);
}

#[test]
fn isolation_judges_both_sides_of_the_hang() {
    let node = faulty_node::start(Fault::None);
    let report = run_ahead(&format!(
        "isolation --target {node} --timers 50 --rate 100 --interval-ms 200 --warm-up-s 0 \
         --duration-s 2 --drain-s 5"
    ));
    let pops = report.pops.as_ref().unwrap();
    assert_eq!((pops.arrived, pops.lost, pops.early, pops.doubled), (200, 0, 0, 0));
    let during = pops.lateness_us_during.unwrap();
    assert_eq!(pops.lateness_us.count + during.count, 200);
    assert!((1..200).contains(&during.count), "{during:?}");
    // How far p99 moves depends on this machine. That the hung host was called does not.
    assert!(report.problems.iter().all(|text| text.starts_with("p99 moved")), "{}", report.text());
}

#[test]
fn closed_and_open_loop_against_the_reference() {
    let server = reference();
    let target = server.address;
    let report = run(&format!(
        "post --target {target} --connections 8 --pipeline 4 --warm-up-s 0.1 --duration-s 0.5 \
         --server-pid {}",
        std::process::id()
    ));
    assert!(report.passed, "{}", report.text());
    assert!(report.server.cpu_us_per_request.unwrap() > 0.0);
    let report = run(&format!("post --target {target} --rate 1000 --warm-up-s 0 --duration-s 0.5"));
    assert!(report.passed, "{}", report.text());
    let requests = report.requests.unwrap();
    assert_eq!(requests.latency_us.count, 500, "every intended request is accounted for");
    let report = run(&format!("churn --target {target} --timers 100 --duration-s 0.3"));
    assert!(report.passed, "{}", report.text());
    let operations = report.requests.unwrap().latency_us_by_operation;
    assert_eq!(operations.keys().copied().collect::<Vec<_>>(), ["create", "delete", "update"]);
    let report = run(&format!("ralf --target {target} --timers 100 --rate 2000 --duration-s 0.3"));
    assert!(report.passed, "{}", report.text());
    let report = run(&format!("fill --target {target} --timers 5000"));
    assert_eq!(report.requests.unwrap().answered, 5000);
    server.stop().unwrap();
}

#[test]
fn a_stall_shows_in_every_request_it_delays() {
    // The sink answers nothing, so the open loop must account for every request that it meant to
    // send.
    let sink = Sink::new(SinkMode::Hang, None);
    let server = sink.start("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let report = run(&format!(
        "post --target {} --rate 1000 --connections 2 --pipeline 8 --warm-up-s 0 --duration-s 0.5 \
         --drain-s 0.2",
        server.address
    ));
    let requests = report.requests.unwrap();
    assert_eq!(requests.latency_us.count, 500);
    assert_eq!((requests.failures["timeout"], requests.failures["unsent"]), (16, 484));
    assert!(requests.latency_us.max >= 500_000.0 && requests.latency_us.p50 >= 300_000.0);
    assert!(!report.passed);
    server.stop().unwrap();
}

#[test]
fn nobody_there_is_an_error_that_says_so() {
    let address = crate::child::free_address().unwrap();
    let line = format!("chronos-loadgen post --target {address} --duration-s 1");
    let matches = command().try_get_matches_from(line.split_whitespace()).unwrap();
    let Ok(Job::Scenario(scenario, flags)) = job(&matches) else { panic!() };
    let error = scenario.run(&flags).unwrap_err().to_string();
    assert!(error.contains("does the server listen there"), "{error}");
}

#[test]
fn a_slow_sink_answers_late_and_in_order() {
    let sink = Sink::new(SinkMode::SlowMs(50), None);
    let server = sink.start("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let report = run(&format!(
        "post --target {} --connections 2 --pipeline 3 --warm-up-s 0 --duration-s 0.3",
        server.address
    ));
    assert!(report.passed, "{}", report.text());
    assert!(report.requests.unwrap().latency_us.p50 >= 50_000.0);
    server.stop().unwrap();
}

#[test]
fn a_server_stops_when_told() {
    let stop = AtomicBool::new(true);
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut heard = None;
    crate::server::run(listen, None, Reference, &stop, |address| heard = Some(address)).unwrap();
    assert!(heard.unwrap().port() > 0);
}

#[test]
fn cpu_per_pop_leaves_out_the_idle_ends() {
    let sample = |ms: u64, cpu_ms: u64, distinct| Sample {
        ns: ms * 1_000_000,
        cpu_ns: Some(cpu_ms * 1_000_000),
        distinct,
    };
    let samples = [
        sample(0, 5, 0),
        sample(20, 6, 1000),
        sample(40, 16, 3000),
        sample(60, 26, 5000),
        sample(80, 27, 5100),
    ];
    // From 20 to 60 ms: 20 ms CPU for 4000 pops.
    assert_eq!(cpu_per_pop(&samples), Some((5.0, 0.5)));
    assert_eq!(cpu_per_pop(&samples[..1]), None);
    assert_eq!(cpu_per_pop(&[]), None);
}
