//! Counts what a node computes for one operation: instructions, conditional branches, mispredictions
//! and misses of the caches, by valgrind's callgrind. The kernel is left out. A count repeats within
//! some in a thousand, however busy the machine is.
//!
//! ```text
//! cargo bench --bench instructions                 all operations, compared with the table
//! cargo bench --bench instructions -- --write      ... and written into the table
//! cargo bench --bench instructions -- create       operations whose name begins so
//! ```
//!
//! Needs valgrind. The node is real, and so are its ring and its sockets.

mod node;
mod operations;
mod table;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use node::Counts;
use operations::{OPERATIONS, Operation};
use table::Table;

/// Operations that are counted at the same time.
const AT_ONE_TIME: usize = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let is_writing = words.iter().any(|word| word == "--write");
    let asked: Vec<_> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let is_asked = |operation: &&Operation| {
        asked.is_empty() || asked.iter().any(|word| operation.name.starts_with(word.as_str()))
    };
    let operations: Vec<&Operation> = OPERATIONS.iter().filter(is_asked).collect();
    let mut table = Table::read();
    println!("{}", Counts::HEADINGS);
    let counted = count_all(&operations);
    let mut is_within = true;
    for (operation, counts) in operations.iter().zip(&counted) {
        let limit = table.limit(operation.name);
        println!("{}{}", counts.line(operation.name), table::verdict(counts.instructions, limit));
        is_within &= limit.is_none_or(|limit| table::is_within(counts.instructions, limit));
        table.set(operation.name, counts.instructions);
    }
    if is_writing {
        table.write();
        return ExitCode::SUCCESS;
    }
    let (word, passed) = if is_within { ("ok", counted.len()) } else { ("FAILED", 0) };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored",
        counted.len() - passed
    );
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn count_all(operations: &[&Operation]) -> Vec<Counts> {
    let next = AtomicUsize::new(0);
    let counted: Mutex<Vec<Option<Counts>>> = Mutex::new(vec![None; operations.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONE_TIME {
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
