//! Every block of commands in the documents runs as it is written, or says why it does not.
//!
//! A block of code is one of commands if its first line begins with one. Words for this suite stand
//! before a block in comments of Markdown, which no reader sees:
//!
//! - `<!-- not run: REASON -->`: the block needs what no gate has;
//! - `<!-- keeps running: ADDRESS -->`: the block's last command goes on until the section ends;
//!   the next block is typed when somebody listens there;
//! - `<!-- keeps running: WORDS -->`: the same, when the command has said these words;
//! - `<!-- printed -->`: the block is what the commands before it print, but for ids of timers;
//! - `<!-- file: NAME -->`: the block is a file of this name.
//!
//! The blocks of README.md, of docs/start and of docs/how-to are one script, page by page: nothing
//! ends between two sections. What goes on there has `&` behind it, for the reader as for this
//! suite.
//!
//! What a page takes for granted, such as the machines of a cluster, a script with the name of the
//! page makes, in this folder.
//!
//! The blocks of a page run in order, in one shell, in namespaces of their own: their ports and
//! files are nobody else's, and nothing of them outlives the page.

mod pages;
mod shell;

use std::time::Instant;

use kit::documents::{documents, expect_none, read};
use kit::runner::{self, Story};

use pages::{Block, Kind, blocks};

const STORIES: &[Story] = &[
    ("every_block_of_commands_runs_or_says_why_not", every_block_runs_or_says_why_not),
    ("commands_run_as_they_are_written", commands_run_as_they_are_written),
];

fn main() -> std::process::ExitCode {
    runner::run(STORIES)
}

/// The blocks of every page.
fn all_pages() -> Vec<(String, Vec<Block>)> {
    documents().into_iter().map(|name| (name.clone(), blocks(&name, &read(&name)))).collect()
}

fn every_block_runs_or_says_why_not() {
    let pages = all_pages();
    let all = || pages.iter().flat_map(|(_, blocks)| blocks);
    let findings: Vec<String> = all().filter_map(Block::mistake).collect();
    expect_none(&findings);
    let count = |is_it: fn(&&Block) -> bool| all().filter(is_it).count();
    let commands = count(|block| block.is_of_commands());
    let run = count(|block| block.kind.is_run());
    let left_out = count(|block| matches!(block.kind, Kind::NotRun(_)));
    assert_eq!(run + left_out, commands, "each is one or the other");
    assert!(run >= 10, "{run} blocks");
    let kept = all().filter(|block| matches!(block.kind, Kind::KeepsRunning(_)));
    let kept = kept.filter(|block| shell::is_one_script(&block.page));
    let findings: Vec<String> = kept
        .map(|block| format!("{}:{}: one terminal: end the line with &", block.page, block.line))
        .collect();
    expect_none(&findings);
    println!("{commands} blocks of commands: {run} run, {left_out} not run");
    for (name, blocks) in &pages {
        for block in blocks {
            if let Kind::NotRun(reason) = &block.kind {
                println!("  {name}:{}: not run: {reason}", block.line);
            }
        }
    }
}

fn commands_run_as_they_are_written() {
    for (name, blocks) in all_pages() {
        let run = blocks.iter().filter(|block| block.kind.is_run()).count();
        if run > 0 {
            let begun = Instant::now();
            shell::run(&name, &blocks);
            println!("{name}: {run} blocks ran in {:.1} s", begun.elapsed().as_secs_f64());
        }
    }
}
