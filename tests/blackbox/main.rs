//! A black-box checker. It knows the public API, the operator's commands and docs/guarantees.md,
//! and nothing of the code. `cargo test --test blackbox -- --help` tells how to run it for longer.
//!
//! A run cannot be replayed to the millisecond: its seed draws the requests and faults, and real
//! processes carry them out. So a violation is printed with the whole history of its timer.

mod client;
mod disk;
mod faults;
mod history;
mod judge;
mod judge_actions;
mod judge_checks;
mod judge_letters;
mod judge_sites;
mod network;
mod nodes;
mod operator;
mod options;
mod run;
mod sink;
mod site_faults;
mod workload;
mod worlds;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

use options::Options;

const CHECKS: &str = "every_rule_finds_what_breaks_it";
const RUN: &str = "promises_are_kept_under_random_faults";

fn main() -> ExitCode {
    let options = Options::from_arguments();
    let names: Vec<&str> = [CHECKS, RUN].into_iter().filter(|name| options.wants(name)).collect();
    if options.list {
        names.iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", names.len());
    let began = Instant::now();
    let mut failed = 0;
    for name in &names {
        let passed = match *name {
            CHECKS => catch_unwind(judge_checks::run).is_ok(),
            _ => {
                let seeds = options.seed..options.seed + options.seeds;
                let kept: Vec<bool> = seeds.map(|seed| run::run(&options, seed)).collect();
                kept.iter().all(|is_kept| *is_kept)
            }
        };
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        names.len() - failed,
        2 - names.len(),
        began.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(failed > 0))
}
