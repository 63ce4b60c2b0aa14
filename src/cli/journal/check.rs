//! `chronos journal check`: reads everything and tells what is wrong.

use serde_json::{Value, json};

use super::ledger::{Ledger, Totals};
use super::place::Place;
use super::survey::{Finding, ShardRead, Survey, ToolError, printable, survey};
use crate::cli::exit::EXIT_FAILURE;
use crate::cli::terminal::{fail, print};

/// Runs the command; returns the exit code.
pub(super) fn run(place: &Place) -> Result<u8, ToolError> {
    let mut ledger = Ledger::default();
    let survey = survey(&place.open()?, &mut ledger)?;
    let (findings, totals) = (survey.findings(), ledger.totals());
    let is_damaged = findings.iter().any(Finding::is_damage);
    let printed = match place.json {
        true => format!("{:#}\n", document(&survey, &findings, totals)),
        false => text(&survey, &findings, totals),
    };
    let code = print(&printed);
    if !is_damaged {
        return Ok(code);
    }
    let damages = findings.iter().filter(|finding| finding.is_damage()).count();
    let places = if damages == 1 { "1 place is" } else { &format!("{damages} places are") };
    Ok(fail(&format!("{places} damaged. {}", survey.remedy()), EXIT_FAILURE))
}

fn text(survey: &Survey, findings: &[Finding], totals: Totals) -> String {
    let mut text = heading(survey);
    for ShardRead { generation, directory, report } in &survey.shards {
        let pages: u64 = report.segments.iter().map(|read| read.report.pages).sum();
        text += &format!(
            "{} shard {}: {} segments, {pages} pages, {} entries\n",
            generation.name(),
            directory.shard,
            report.segments.len(),
            report.counts.sum()
        );
    }
    let Totals { timers, tombstones, .. } = totals;
    text += &format!("{timers} timers, {tombstones} that ended\n");
    for finding in findings {
        let word = if finding.is_damage() { "damage" } else { "torn" };
        text += &format!("{word}: {finding}\n");
    }
    if !findings.iter().any(Finding::is_damage) {
        text += "ok: all that was written can be read\n";
    }
    text
}

/// The line that says whose directory it is.
pub(super) fn heading(survey: &Survey) -> String {
    let identity = &survey.identity;
    let journal = identity.journal.0;
    let node = printable(&identity.node);
    format!("{}: node {node}, journal {journal:016x}\n", survey.path)
}

fn document(survey: &Survey, findings: &[Finding], totals: Totals) -> Value {
    let is_damaged = findings.iter().any(Finding::is_damage);
    let shard = |ShardRead { generation, directory, report }: &ShardRead| {
        json!({
            "generation": generation.name(),
            "shard": directory.shard,
            "segments": report.segments.len(),
            "pages": report.segments.iter().map(|read| read.report.pages).sum::<u64>(),
            "entries": report.counts.sum(),
        })
    };
    let list = |is_damage| -> Vec<Value> {
        let wanted = findings.iter().filter(|finding| finding.is_damage() == is_damage);
        wanted.map(Finding::document).collect()
    };
    json!({
        "outcome": if is_damaged { "damaged" } else { "ok" },
        "data_dir": survey.path,
        "node": survey.identity.node,
        "journal": format!("{:016x}", survey.identity.journal.0),
        "shards": survey.shards.iter().map(shard).collect::<Vec<_>>(),
        "timers": totals.timers,
        "ended": totals.tombstones,
        "torn": list(false),
        "damage": list(true),
        "remedy": is_damaged.then(|| survey.remedy()),
    })
}
