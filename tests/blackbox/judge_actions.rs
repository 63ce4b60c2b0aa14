//! What the judge asks of pauses: of single timers by their clients, of a callback server by
//! operators.

use super::history::{
    Act, History, MS, Ns, Outcome, Pop, RulePause, SECOND, Timer, TimerNumber, Wish, Write,
};
use super::judge::{LOST_AFTER, SLACK, Violation, is_calm, is_tainted, stalled, was_frozen_with};
use super::judge_sites::{apart, known_from};

/// How long after the answer to an order the other nodes follow a rule, when nothing fails.
const TOLD: Ns = 2 * SECOND;

/// Returns the latest moment at which the only pop of a write is due, whatever was done with the
/// timer meanwhile. `None`: it need not come.
pub fn due_at_last(history: &History, timer: &Timer, index: usize) -> Option<Ns> {
    let write = &timer.writes[index];
    let (_, mut due) = write.due(1, &history.clock)?;
    let mut is_paused = false;
    for action in timer.actions_on(index) {
        if action.outcome != Outcome::Acknowledged {
            return None;
        }
        match action.act {
            Act::Pause => is_paused = true,
            Act::Resume => {
                is_paused = false;
                due = due.max(action.ended);
            }
            Act::RunNow => due = action.ended,
        }
    }
    if let Wish::Timer { is_ruled: true, .. } = write.wish {
        due = let_go_at_last(history, due);
    }
    (!is_paused).then_some(due)
}

/// Returns until when a pop that is due at a moment may wait for rules. "What a site that dies was
/// at is made by the next site within 30 s of its declared death."
fn let_go_at_last(history: &History, mut due: Ns) -> Ns {
    let pauses = history.rule_pauses.iter().map(|pause| (pause.from, pause.until));
    let mut waits: Vec<_> = pauses.chain(apart(history)).collect();
    waits.sort_unstable();
    for (from, until) in waits {
        let may_have_waited = due + LOST_AFTER >= from && due <= until;
        due = if may_have_waited { until } else { due };
    }
    due
}

/// Reports whether somebody did something with the timer around this moment. "If the timer is
/// resumed before that callback has ended, the pop may be made twice."
pub fn was_near(timer: &Timer, index: usize, at: Ns) -> bool {
    let mut actions = timer.actions_on(index);
    actions.any(|action| action.sent <= at + 2 * SECOND && at <= action.ended + 2 * SECOND)
}

/// "After the answer to a pause no node begins a callback of the timer."
pub fn pauses_are_kept(history: &History, number: TimerNumber, found: &mut Vec<Violation>) {
    let timer = &history.timers[number];
    for (place, pause) in timer.actions.iter().enumerate() {
        let is_pause = pause.act == Act::Pause && pause.outcome == Outcome::Acknowledged;
        let index = pause.write;
        let is_open = timer
            .actions_on(index)
            .any(|action| action.sent < pause.sent && action.outcome != Outcome::Acknowledged);
        if !is_pause || is_open || is_tainted(timer, index) {
            continue;
        }
        let later = timer.actions[place + 1..].iter().filter(|action| action.may_be_done());
        let mut ends = later.filter(|action| action.act != Act::Pause);
        let until = ends.next().map_or(Ns::MAX, |action| action.sent);
        let until = until.min(timer.replaced_from(index).unwrap_or(Ns::MAX));
        let is_of_it = |pop: &&Pop| pop.timer == number && pop.write == index && pop.at < until;
        for pop in history.pops.iter().filter(is_of_it) {
            let grace = SLACK + stalled(history, pause.ended, pop.at);
            let write = &timer.writes[index];
            if pop.at > known_from(history, pause.ended) + grace
                && !was_frozen_with(history, write, pop)
            {
                let late_ms = (pop.at - pause.ended) / MS;
                let what = format!("{pop:?} came {late_ms} ms after a pause was acknowledged");
                let (rule, timer, at) = ("a paused timer does not pop", Some(number), pop.at);
                found.push(Violation { rule, timer, at, what });
            }
        }
    }
}

/// "A rule of a site holds for the pops that this site makes, and no other site makes these while
/// the site lives."
pub fn rules_are_kept(history: &History, found: &mut Vec<Violation>) {
    let is_ruled = |pop: &&Pop| {
        let timer = history.timers.get(pop.timer);
        let write = timer.and_then(|timer| timer.writes.get(pop.write));
        write.is_some_and(|write| matches!(write.wish, Wish::Timer { is_ruled: true, .. }))
    };
    let site = |write: &Write| history.layout.site(write.via);
    for pop in history.pops.iter().filter(is_ruled) {
        let writes = &history.timers[pop.timer].writes;
        // The site that took a timer first makes its pops.
        let is_first = |pause: &RulePause| writes.iter().all(|write| site(write) == pause.site);
        let holds = |pause: &&RulePause| pause.site == pop.site || is_first(pause);
        for pause in history.rule_pauses.iter().filter(holds) {
            let grace = TOLD + stalled(history, pause.acknowledged, pop.at);
            let is_inside = pop.at > pause.acknowledged + grace && pop.at < pause.released;
            if is_inside && is_calm(history, pause.from, pop.at) {
                let after_ms = (pop.at - pause.acknowledged) / MS;
                let what = format!("{pop:?} came {after_ms} ms after its server was paused");
                let rule = "no callback begins at a paused server";
                found.push(Violation { rule, timer: Some(pop.timer), at: pop.at, what });
            }
        }
    }
}
