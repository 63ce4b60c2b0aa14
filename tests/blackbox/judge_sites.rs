//! What the judge asks of several sites. What one site was told the others know after a round trip
//! at rest, or when a fault is over: "until then the other sites answer reads and pop as before".

use super::history::{Act, Action, Fault, History, Kind, Ns, SECOND, Timer, Write};
use super::judge::stalled;

/// How long after the answer to a write the other sites may not know it, when nothing fails.
const TALK: Ns = 2 * SECOND;
/// Kinds of faults of which each site may know only its own part.
const BETWEEN_SITES: [Kind; 5] =
    [Kind::Cut, Kind::KillSite, Kind::EmptySite, Kind::FreezeSite, Kind::KillAll];

/// Returns from when on all sites know what one of them knew at this moment.
pub fn known_from(history: &History, at: Ns) -> Ns {
    if !history.layout.has_sites() {
        return at;
    }
    let mut known = at + TALK;
    loop {
        let overlaps = |fault: &&Fault| fault.from <= known && known < over(fault);
        let Some(fault) = history.faults.iter().find(overlaps) else {
            return known.saturating_add(stalled(history, at, known));
        };
        known = over(fault);
    }
}

/// When all sites know what was done during a fault.
fn over(fault: &Fault) -> Ns {
    fault.settled.max(fault.until).saturating_add(TALK)
}

/// Returns from when on the site of a node knows a write.
pub fn known_at(history: &History, via: usize, write: &Write) -> Ns {
    match history.layout.site(via) == history.layout.site(write.via) {
        true => write.ended,
        false => known_from(history, write.ended),
    }
}

/// "Sites are cut from each other: each pop once in each site, until they have told each other".
/// Reports whether the sites may not have known of each other's pops between two moments.
pub fn were_apart(history: &History, from: Ns, until: Ns) -> bool {
    apart(history).any(|(begin, end)| begin <= until && from < end)
}

/// Returns the times in which sites may not have known of each other.
pub fn apart(history: &History) -> impl Iterator<Item = (Ns, Ns)> {
    let are_apart =
        |fault: &&Fault| BETWEEN_SITES.contains(&fault.kind) && history.layout.has_sites();
    history.faults.iter().filter(are_apart).map(|fault| (fault.from, over(fault)))
}

/// Reports whether the site of a node has come back with nothing: it knows what others have told it
/// since.
pub fn is_emptied(history: &History, via: usize, at: Ns) -> bool {
    let site = |node| history.layout.site(node);
    let mut faults = history.faults.iter().filter(|fault| fault.kind == Kind::EmptySite);
    faults.any(|fault| site(fault.node) == site(via) && fault.from <= at && at < over(fault))
}

/// "An action is a write of the definition that its site knows": reports whether a client did
/// something with a timer through a site that did not know this write yet.
pub fn was_undone(history: &History, timer: &Timer, index: usize) -> bool {
    let is_behind = |act: &Action| act.sent < known_at(history, act.via, &timer.writes[index]);
    timer.actions_on(index).any(is_behind)
}

/// Returns when a client first ran what a write made because the site that it asked did not know the
/// next write yet.
pub fn run_elsewhere(history: &History, timer: &Timer, index: usize) -> Ns {
    let runs = timer.actions.iter().filter(|action| action.act == Act::RunNow);
    let is_behind = |write: usize, via: usize, sent: Ns| {
        let later = timer.writes.iter().take(write + 1).skip(index + 1);
        later.into_iter().any(|later| sent < known_at(history, via, later))
    };
    let elsewhere = runs.filter(|run| run.write > index && is_behind(run.write, run.via, run.sent));
    elsewhere.map(|run| run.sent).min().unwrap_or(Ns::MAX)
}
