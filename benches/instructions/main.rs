//! Counts what a node's core computes for one operation: instructions, and if wanted conditional
//! branches, mispredictions and misses of the caches, by valgrind's callgrind. The kernel is left
//! out. A count repeats within about one in a hundred, however busy the machine is.
//!
//! ```text
//! cargo bench --bench instructions                       all operations, compared with the table
//! cargo bench --bench instructions -- --write            ... and written into the table
//! cargo bench --bench instructions -- create             operations whose name begins so
//! cargo bench --bench instructions -- --test-threads=1   one operation at a time
//! cargo bench --bench instructions -- --caches           branches and misses of the caches as well
//! ```
//!
//! `tests/run` does the same with the build of its simulators (docs/performance.md,
//! "Instructions"). Needs valgrind. The node is real, and so are its ring and its sockets.

mod node;
mod operations;
mod pair;
mod table;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use node::Counts;
use operations::{OPERATIONS, Operation};
use table::{Outcome, Table};

/// Operations that are counted at the same time, if the command line says nothing.
const AT_ONE_TIME: usize = 2;
/// How often an operation is counted before it is too dear or too cheap, or before it is written
/// into the table. Ids are made by chance, so pages of the index differ in how full they are: a
/// count may come out 1 to 2 % above others. On a busy machine one may come out far below: a core
/// that gets no time for a while finds more requests at once.
const TIMES: usize = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let has = |flag| words.iter().any(|word| word == flag);
    let asked: Vec<_> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let is_asked = |operation: &&Operation| {
        asked.is_empty() || asked.iter().any(|word| operation.name.starts_with(word.as_str()))
    };
    let operations: Vec<&Operation> = OPERATIONS.iter().filter(is_asked).collect();
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("CANNOT RUN HERE: there is no valgrind: apt-get install -y valgrind");
        return result(0, 0, operations.len(), has("--write"));
    }
    if has("--caches") {
        node::WITH_CACHES.get_or_init(|| ());
    }
    let at_one_time = if has("--test-threads=1") { 1 } else { AT_ONE_TIME };
    let compiler = table::compiler_of(&node::binary());
    let mut table = Table::read();
    println!("{}", Counts::headings());
    if has("--write") {
        write(&mut table, &compiler, &operations, at_one_time);
        return ExitCode::SUCCESS;
    }
    let judge = |operation: &Operation, counts: Counts| {
        table.compare(operation.name, &compiler, counts.instructions)
    };
    let mut counted = count_all(&operations, at_one_time);
    for _ in 1..TIMES {
        let is_wrong = |at: &usize| judge(operations[*at], counted[*at]).0 == Outcome::Failed;
        let wrong: Vec<usize> = (0..operations.len()).filter(is_wrong).collect();
        let again: Vec<_> = wrong.iter().map(|at| operations[*at]).collect();
        for (at, counts) in wrong.into_iter().zip(count_all(&again, at_one_time)) {
            let is_right = judge(operations[at], counts).0 != Outcome::Failed;
            counted[at] = if is_right { counts } else { counted[at].min(counts) };
        }
    }
    let mut outcomes = Vec::new();
    for (operation, counts) in operations.iter().zip(counted) {
        let (outcome, told) = judge(operation, counts);
        println!("{}  {told}", counts.line(operation.name));
        outcomes.push(outcome);
    }
    let [passed, failed, left_out] = [Outcome::Passed, Outcome::Failed, Outcome::NotCompared]
        .map(|wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count());
    result(passed, failed, left_out, failed > 0)
}

/// Writes the middle one of several counts of each operation into the table.
fn write(table: &mut Table, compiler: &str, operations: &[&Operation], at_one_time: usize) {
    let times: Vec<_> = (0..TIMES).map(|_| count_all(operations, at_one_time)).collect();
    for (at, operation) in operations.iter().enumerate() {
        let mut counts: Vec<Counts> = times.iter().map(|counted| counted[at]).collect();
        counts.sort();
        println!("{}", counts[TIMES / 2].line(operation.name));
        table.set(operation.name, compiler, counts[TIMES / 2].instructions);
    }
    table.write();
}

/// Prints the totals in the words of the standard test runner.
fn result(passed: usize, failed: usize, left_out: usize, is_wrong: bool) -> ExitCode {
    let word = if is_wrong { "FAILED" } else { "ok" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; {left_out} ignored");
    if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn count_all(operations: &[&Operation], at_one_time: usize) -> Vec<Counts> {
    let next = AtomicUsize::new(0);
    let counted: Mutex<Vec<Option<Counts>>> = Mutex::new(vec![None; operations.len()]);
    std::thread::scope(|scope| {
        for _ in 0..at_one_time {
            scope.spawn(|| {
                while let Some(operation) = operations.get(next.fetch_add(1, Relaxed)) {
                    let at = operations.iter().position(|one| one.name == operation.name);
                    let counts = operation.count();
                    let mut counted = counted.lock().expect("no holder panics");
                    counted[at.expect("one of them")] = Some(counts);
                }
            });
        }
    });
    let counted = counted.into_inner().expect("no holder panics");
    counted.into_iter().map(|counts| counts.expect("each was counted")).collect()
}
