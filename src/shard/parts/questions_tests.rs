//! When the asking goes on.

use super::*;
use crate::timer::version::Version;

#[test]
fn the_walk_pauses_while_as_much_as_allowed_is_asked_about() {
    let key = StateKey { version: Version(1), sequence: 0 };
    let (walked_at, looked_at) = (Tick(70), Tick(60));
    let walk = Some(Slot(0));
    let mut questions = Questions { walk, walked_at, looked_at, ..Questions::default() };
    for id in 0..ASKED_MAX as u64 {
        assert_eq!(questions.next_wake(), Some(Tick(71)), "{id}");
        questions.open.insert(id, Question::new(key, PeerSet::EMPTY, Tick(0)));
    }
    assert_eq!(questions.next_wake(), Some(looked_at + ASK_AGAIN_MS));
    questions.walk = None;
    assert_eq!(questions.next_wake(), Some(looked_at + ASK_AGAIN_MS));
    questions.look = Some(5);
    assert_eq!(questions.next_wake(), Some(Tick(71)), "the others are still to be looked at");
    questions.open.clear();
    assert_eq!(questions.next_wake(), None, "all have been answered meanwhile");
}

#[test]
fn a_peer_that_knows_more_is_asked_again_ever_more_seldom() {
    let (peer, other) = (PeerIndex(1), PeerIndex(2));
    let only = |peer| PeerSet::EMPTY.with(peer);
    let key = StateKey { version: Version(7), sequence: 0 };
    let mut question = Question::new(key, only(peer).with(other), Tick(0));
    question.asked = only(other);
    let mut tick = Tick(1_000);
    for pause_ms in [50, 100, 200, 400, 400] {
        question.note_ahead(tick, peer);
        assert_eq!(question.not_asked(tick + (pause_ms - 1)), only(peer).with(other));
        assert_eq!(question.not_asked(tick + pause_ms), only(other));
        tick = tick + pause_ms;
    }
}

#[test]
fn after_a_short_absence_sites_are_asked_only_while_a_long_one_is_asked_about() {
    let mut questions = Questions::default();
    let mut asks_sites = |tick, patient_until, is_idle| {
        if is_idle {
            questions.walk = None;
        }
        questions.was_away(Tick(tick), patient_until);
        questions.asks_sites
    };
    assert!(!asks_sites(10, None, true));
    assert!(asks_sites(20, Some(Tick(30)), true));
    assert!(asks_sites(40, None, false), "not all of it has been asked yet");
    assert!(!asks_sites(50, None, true));
}

#[test]
fn of_each_site_the_last_answer_since_an_absence_counts() {
    let [one, other, silent] = [1, 2, 3].map(PeerIndex);
    let mut questions = Questions::default();
    questions.was_away(Tick(5), None);
    for (site, tick) in [(one, 10), (other, 20), (one, 30)] {
        questions.note_said(site, Tick(tick));
    }
    let said = |questions: &Questions| [one, other, silent].map(|it| questions.said_at(it).0);
    assert_eq!((said(&questions), questions.said.len()), ([30, 20, 5], 2));
    questions.was_away(Tick(40), None);
    assert_eq!(said(&questions), [40; 3]);
}
