//! Lists of all timers by pages, beside pops: how long a list takes, what it costs the node, and
//! how late pops are without and with it.
//!
//! The node is filled by a bulk request. Then timers pop at a steady rate, first alone, then beside
//! connections that list everything again and again.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use chronos::cli::progress::Progress;
use chronos::ring::pin_to_core;
use memchr::memmem;
use serde::Serialize;

use crate::child::{Child, free_address};
use crate::command::{self, Job};
use crate::flags::ListFlags;
use crate::machine::Machine;
use crate::report::{Percentiles, grouped, median};
use crate::scenario::accuracy;
use crate::server_cpu;

/// A short document: a timer of 28 hours at a host that nobody calls.
const LINE: &str = concat!(
    r#"{"timing":{"interval":99999},"#,
    r#""callback":{"http":{"uri":"http://127.0.0.1:9/call/17","opaque":"leg"}}}"#,
    "\n"
);
/// A token, and the file that names it by its SHA-256.
const TOKEN: &str = "hello";
const TOKENS: &str =
    "load client 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\n";
const PATIENCE: Duration = Duration::from_secs(60);
/// What stands once for each timer of a page.
const MARK: &[u8] = b"\"due-in-ms\":";
/// What stands before the cursor of the next page.
const CURSOR: &[u8] = b",\"cursor\":\"";

/// The report on lists beside pops.
#[derive(Clone, Debug, Serialize)]
pub struct ListReport {
    /// The machine of the run.
    pub machine: Machine,
    /// Timers of the list that do not pop.
    pub timers: u32,
    /// Timers on a page.
    pub limit: u32,
    /// Connections that list.
    pub connections: u32,
    /// Lists that were complete while timers popped.
    pub lists: usize,
    /// The median time of a list, in seconds.
    pub list_s: f64,
    /// The median time of a page, in milliseconds, and the longest.
    pub page_ms: f64,
    pub page_ms_max: f64,
    /// Timers listed per second, by all connections together.
    pub per_second: f64,
    /// CPU time of the node for a listed timer, in microseconds: that beyond what pops alone take.
    pub cpu_us: f64,
    /// Cores that the node kept busy with pops alone, and with lists beside them.
    pub busy_cores: [f64; 2],
    /// Lateness of pops in microseconds, alone and beside lists.
    pub lateness_us: [Percentiles; 2],
}

/// What one connection has listed.
#[derive(Default)]
struct Listed {
    timers: u64,
    lists: Vec<f64>,
    pages: Vec<f64>,
}

/// Measures. Error: the node does not start or end, or refuses a request.
pub fn run(flags: &ListFlags) -> Result<ListReport> {
    let address = free_address()?;
    let binary = match &flags.node_binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("chronos"),
    };
    let tokens = std::env::temp_dir().join(format!("chronos-tokens-{}", std::process::id()));
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tokens)?;
    file.write_all(TOKENS.as_bytes())?;
    let mut command = Command::new(binary);
    command.args(["--listen", &address.to_string(), "--cores", &flags.server_cores]);
    command.args(["--admin", "off"]).env("CHRONOS_AUTH_TOKENS_FILE", &tokens);
    command.env("CHRONOS_NODE_PREFAULT_BYTES", (1_u64 << 30).to_string());
    let mut node = Child::start(command)?;
    node.await_ready(address)?;
    let _ = std::fs::remove_file(&tokens);
    fill(address, u64::from(flags.timers))?;
    let (alone, alone_s, alone_ns) = pops(flags, address, node.pid())?;
    let is_over = AtomicBool::new(false);
    let (beside, beside_s, beside_ns, listed) = std::thread::scope(|scope| {
        let listers: Vec<_> = (0..flags.connections)
            .map(|_| scope.spawn(|| list_until((address, flags), &is_over)))
            .collect();
        let pops = pops(flags, address, node.pid());
        is_over.store(true, Ordering::Relaxed);
        let mut all = Listed::default();
        for lister in listers {
            let Ok(listed) = lister.join() else { bail!("a client panicked") };
            let listed = listed?;
            all.timers += listed.timers;
            all.lists.extend(listed.lists);
            all.pages.extend(listed.pages);
        }
        let (lateness, s, ns) = pops?;
        Ok((lateness, s, ns, all))
    })?;
    node.stop()?;
    ensure!(!listed.lists.is_empty(), "no list was complete in {} s", flags.duration_s);
    let busy_cores = [alone_ns / alone_s / 1e9, beside_ns / beside_s / 1e9];
    let extra_us = (busy_cores[1] - busy_cores[0]) * beside_s * 1e6;
    Ok(ListReport {
        machine: Machine::read(),
        timers: flags.timers,
        limit: flags.limit,
        connections: flags.connections,
        lists: listed.lists.len(),
        list_s: median(&listed.lists),
        page_ms: median(&listed.pages) * 1e3,
        page_ms_max: listed.pages.iter().copied().fold(0.0, f64::max) * 1e3,
        per_second: listed.timers as f64 / beside_s,
        cpu_us: extra_us / listed.timers as f64,
        busy_cores,
        lateness_us: [alone, beside],
    })
}

/// Lets timers pop. Returns their lateness, how long it took in seconds, and the CPU time of the
/// node in nanoseconds.
fn pops(flags: &ListFlags, address: SocketAddr, pid: u32) -> Result<(Percentiles, f64, f64)> {
    let line = format!(
        "x accuracy --target {address} --rate {} --duration-s {} --token {TOKEN} --core {} \
         --sink-core {}",
        flags.pops, flags.duration_s, flags.core, flags.core
    );
    let matches = command::command().try_get_matches_from(line.split(' '))?;
    let Job::Scenario(_, scenario) = command::job(&matches)? else { bail!("it is a scenario") };
    let cpu_ns = || server_cpu::cpu_ns(pid).context("the node has ended");
    let (begun, before) = (Instant::now(), cpu_ns()?);
    let report = accuracy::run(&scenario)?;
    let cpu_ns = cpu_ns()?.saturating_sub(before);
    let pops = report.pops.context("accuracy tells of pops")?;
    Ok((pops.lateness_us, begun.elapsed().as_secs_f64(), cpu_ns as f64))
}

/// Creates the timers of the list.
fn fill(address: SocketAddr, timers: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address).context("cannot connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reads = BufReader::new(stream.try_clone()?);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<u64> {
            let (mut created, mut line) = (0, Vec::new());
            let progress = Progress::begin("creating timers");
            while created < timers {
                if created % 1_000 == 0 {
                    progress.show(created, timers, &format!("{created} created"));
                }
                line.clear();
                ensure!(reads.read_until(b'\n', &mut line)? > 0, "the node has closed");
                created += u64::from(line.starts_with(b"{\"location\""));
            }
            Ok(created)
        });
        let length = timers * LINE.len() as u64;
        write!(
            stream,
            "POST /timers/bulk HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: {length}\r\n\r\n"
        )?;
        let batch = LINE.repeat(1_000);
        for sent in (0..timers).step_by(1_000) {
            let lines = (timers - sent).min(1_000) as usize;
            stream.write_all(&batch.as_bytes()[..lines * LINE.len()])?;
        }
        match reader.join() {
            Ok(read) => read.map(|_| ()),
            Err(_) => bail!("a client panicked"),
        }
    })
}

/// Lists everything again and again.
fn list_until((address, flags): (SocketAddr, &ListFlags), is_over: &AtomicBool) -> Result<Listed> {
    pin_to_core(flags.core).context("the client's core")?;
    let mut stream = TcpStream::connect(address).context("cannot connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reads = BufReader::with_capacity(256 << 10, stream.try_clone()?);
    let mut listed = Listed::default();
    while !is_over.load(Ordering::Relaxed) {
        let (mut cursor, begun) = (String::new(), Instant::now());
        let mut timers = 0;
        loop {
            let at = Instant::now();
            write!(
                stream,
                "GET /timers?limit={}{cursor} HTTP/1.1\r\nHost: a\r\n\
                 Authorization: Bearer {TOKEN}\r\n\r\n",
                flags.limit
            )?;
            let page = answer(&mut reads)?;
            listed.pages.push(at.elapsed().as_secs_f64());
            timers += memmem::find_iter(&page, MARK).count() as u64;
            match cursor_in(&page) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
            if is_over.load(Ordering::Relaxed) {
                listed.timers += timers;
                return Ok(listed);
            }
        }
        ensure!(timers >= u64::from(flags.timers), "a list has only {timers} timers");
        listed.timers += timers;
        listed.lists.push(begun.elapsed().as_secs_f64());
    }
    Ok(listed)
}

/// The body of the next answer.
fn answer(reads: &mut impl BufRead) -> Result<Vec<u8>> {
    let (mut length, mut line) = (0, String::new());
    let mut status = String::new();
    loop {
        line.clear();
        ensure!(reads.read_line(&mut line)? > 0, "the node has closed");
        if status.is_empty() {
            status = line.trim_end().to_owned();
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("Content-Length") {
            length = value.trim().parse()?;
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reads.read_exact(&mut body)?;
    ensure!(status.starts_with("HTTP/1.1 200"), "{status}");
    Ok(body)
}

fn cursor_in(page: &[u8]) -> Option<String> {
    // It stands behind the timers.
    let tail = &page[page.len().saturating_sub(200)..];
    let at = tail.windows(CURSOR.len()).rposition(|bytes| bytes == CURSOR)?;
    let cursor = tail[at + CURSOR.len()..].split(|byte| *byte == b'"').next()?;
    String::from_utf8(cursor.to_vec()).ok()
}

impl ListReport {
    /// The report as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} timers in pages of {}, {} connections: {} lists, median {:.2} s ({} timers/s), \
             {:.3} us of CPU a timer; page {:.2} ms, at most {:.1} ms",
            grouped(self.timers.into()),
            self.limit,
            self.connections,
            self.lists,
            self.list_s,
            grouped(self.per_second as u64),
            self.cpu_us,
            self.page_ms,
            self.page_ms_max,
        );
        for (what, of, cores) in [
            ("pops alone", &self.lateness_us[0], self.busy_cores[0]),
            ("with lists", &self.lateness_us[1], self.busy_cores[1]),
        ] {
            let _ = writeln!(
                text,
                "{what}: {} pops, late by {:.0} us p50, {:.0} us p99, {:.0} us p99.9, {:.0} us \
                 max; {cores:.2} cores busy",
                grouped(of.count),
                of.p50,
                of.p99,
                of.p99_9,
                of.max,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_of_a_page_is_found() {
        let page = b"{\"timers\":[{\"due-in-ms\":5}],\"cursor\":\"c0ffee\"}";
        assert_eq!(cursor_in(page).as_deref(), Some("c0ffee"));
        assert_eq!(cursor_in(b"{\"timers\":[]}"), None);
    }

    #[test]
    fn an_answer_that_is_an_error_ends_the_run() {
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(answer(&mut &good[..]).unwrap(), b"hi");
        let bad = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
        assert!(answer(&mut &bad[..]).unwrap_err().to_string().contains("503"));
        assert!(answer(&mut &good[..9]).is_err());
    }
}
