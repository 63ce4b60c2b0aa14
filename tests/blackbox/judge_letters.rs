//! What the judge asks of dead letters.

use super::history::{
    Handling, History, LetterUse, MS, Ns, Outcome, Pop, SECOND, Timer, TimerNumber,
};
use super::judge::{LOST_AFTER, Violation, is_calm, is_tainted, was_under_way};
use super::judge_sites::{known_from, were_apart};

/// How long after the only attempt at its pop a dead letter is there, when nothing fails.
const KEPT: Ns = 5 * SECOND;

/// What is known of the dead letter of one write.
struct Letter<'a> {
    history: &'a History,
    number: TimerNumber,
    timer: &'a Timer,
    index: usize,
}

/// "A pop that is given up is kept as a dead letter, on all nodes that hold its timer." "Of clients
/// that replay or delete the same dead letter one does so."
pub fn letters_are_kept(history: &History, number: TimerNumber, found: &mut Vec<Violation>) {
    let timer = &history.timers[number];
    for (place, handling) in timer.letters.iter().enumerate() {
        let index = handling.write;
        let letter = Letter { history, number, timer, index };
        let is_known = timer.writes[index].acknowledged().is_some() && !is_tainted(timer, index);
        if !is_known || handling.ended > timer.replaced_from(index).unwrap_or(Ns::MAX) {
            continue;
        }
        let before = &timer.letters[..place];
        let wrong = match handling.handling {
            Handling::Look | Handling::Delete => letter.wrong_in(handling, before),
            Handling::Replay => {
                letter.wrong_in(handling, before).or_else(|| letter.wrong_in_replay(handling))
            }
        };
        if let Some((rule, what)) = wrong {
            let what = format!("{:?} through node {}: {what}", handling.handling, handling.via);
            found.push(Violation { rule, timer: Some(number), at: handling.ended, what });
        }
    }
}

impl Letter<'_> {
    fn callbacks(&self) -> impl Iterator<Item = &Pop> {
        let (number, index) = (self.number, self.index);
        self.history.pops.iter().filter(move |pop| pop.timer == number && pop.write == index)
    }

    /// Judges the answer to a request by those before it.
    fn wrong_in(
        &self,
        request: &LetterUse,
        before: &[LetterUse],
    ) -> Option<(&'static str, String)> {
        let mut ends = before.iter().filter(|one| {
            let is_none = matches!(one.outcome, Outcome::NotSent | Outcome::Refused(404, _));
            one.write == self.index && one.handling != Handling::Look && !is_none
        });
        let attempts = self.callbacks().filter(|pop| pop.replay == 0 && pop.at < request.sent);
        match (&request.outcome, ends.next()) {
            (Outcome::Acknowledged, Some(end)) if end.outcome == Outcome::Acknowledged => {
                let is_known = known_from(self.history, end.ended) <= request.sent;
                let is_over = end.handling == Handling::Delete || self.was_replayed(request);
                let is_over = is_over && is_known;
                let what = || format!("200 after {:?} at node {}", end.handling, end.via);
                is_over.then(|| ("a dead letter is used once", what()))
            }
            (Outcome::Refused(404, _), None) => {
                let last = attempts.map(|pop| pop.at).max()?;
                let (is_calm, is_quiet) = (
                    is_calm(self.history, last, request.ended),
                    is_calm(self.history, request.sent, request.ended),
                );
                let patience = if is_calm { KEPT } else { LOST_AFTER };
                let is_late = request.sent > known_from(self.history, last) + patience && is_quiet;
                let what = || format!("404, {} ms after its attempt", (request.sent - last) / MS);
                is_late.then(|| ("a dead letter is kept", what()))
            }
            _ => None,
        }
    }

    /// Reports whether a replay was delivered well before a request, so that the dead letter is no
    /// more.
    fn was_replayed(&self, request: &LetterUse) -> bool {
        self.callbacks().any(|pop| pop.replay > 0 && pop.at + KEPT <= request.sent)
    }

    /// Judges the pops of a replay that was answered 200.
    fn wrong_in_replay(&self, replay: &LetterUse) -> Option<(&'static str, String)> {
        if replay.outcome != Outcome::Acknowledged {
            return None;
        }
        let is_its = |pop: &&Pop| pop.replay > 0 && pop.at >= replay.sent;
        let pops: Vec<_> = self.callbacks().filter(is_its).collect();
        let until = self.timer.replaced_from(self.index).unwrap_or(Ns::MAX).min(self.history.ended);
        if pops.is_empty() {
            let is_lost = until > replay.ended + LOST_AFTER && !self.is_of_earlier_write(replay);
            return is_lost.then(|| ("a replay is made", "it was never made".to_owned()));
        }
        let write = &self.timer.writes[self.index];
        let is_excused = !is_calm(self.history, replay.sent, pops[pops.len() - 1].at)
            || were_apart(self.history, replay.sent, pops[pops.len() - 1].at)
            || pops.iter().any(|pop| was_under_way(self.history, write, pop));
        let what = || format!("{} callbacks of one replay", pops.len());
        (pops.len() > 1 && !is_excused).then(|| ("a replay is made once", what()))
    }

    /// Reports whether a site that may not have heard of the write has replayed the dead letter of
    /// an earlier one, which is what it knows.
    fn is_of_earlier_write(&self, replay: &LetterUse) -> bool {
        let write = &self.timer.writes[self.index];
        let site = |node| self.history.layout.site(node);
        let is_its = |pop: &Pop| {
            let is_earlier = pop.timer == self.number && pop.write < self.index;
            is_earlier && pop.replay > 0 && pop.at >= replay.sent && pop.site == site(replay.via)
        };
        site(write.via) != site(replay.via)
            && were_apart(self.history, write.sent, replay.ended)
            && self.history.pops.iter().any(is_its)
    }
}
