//! What is asked about, which peers are asked, and what an answer ends; what counts as an absence.

use super::super::effects::{Dialect, Event};
use super::super::harness_tests::Cluster;
use super::super::parts::turns::HOLD_MS;
use super::super::records::Placement;
use super::*;
use crate::base::ids::SiteHash;
use crate::base::limits::{CallbackLimits, ClusterLimits};
use crate::cluster::detector::Liveness;
use crate::timer::version::StateKey;
use crate::wire::peer_message::PeerResult;

const ID: TimerId = TimerId(7);

fn cluster() -> (Cluster, usize, usize) {
    Cluster::with_timer_of_two(ID)
}

fn held(shard: &Shard) -> (Slot, Record) {
    let slot = shard.find(ID).expect("it is held");
    (slot, *shard.records.get(slot))
}

fn only(peer: PeerIndex) -> PeerSet {
    PeerSet::EMPTY.with(peer)
}

/// Another key than that of the record.
fn other_key(record: &Record) -> StateKey {
    StateKey { sequence: record.sequence + 1, ..record.key() }
}

/// A core was away if it has not ticked for longer than half of what a suspicion takes and for
/// longer than two heartbeats.
#[test]
fn an_absence_is_told_from_a_pause_by_its_length() {
    for (suspect_after_ms, heartbeat_ms, away_ms, is_away, is_long, is_held) in [
        (1_000, 250, 500, false, false, false),
        (1_000, 250, 501, true, false, false),
        (1_000, 250, 1_000, true, false, false),
        (1_000, 250, 1_001, true, false, true),
        (1_000, 250, 2_999, true, false, true),
        (1_000, 250, 3_000, true, true, true),
        (2_000, 250, 1_000, false, false, false),
        (2_000, 250, 1_001, true, false, false),
        (1_000, 400, 800, false, false, false),
        (1_000, 400, 801, true, false, false),
    ] {
        let (mut cluster, first, _) = cluster();
        let shard = cluster.shard(first);
        let limits = &mut shard.config.cluster;
        (limits.suspect_after_ms, limits.heartbeat_ms) = (suspect_after_ms, heartbeat_ms);
        shard.turns.at = shard.turns.ticked_at + away_ms;
        shard.notice_absence();
        let (questions, case) = (&shard.questions, (suspect_after_ms, heartbeat_ms, away_ms));
        assert_eq!(questions.walk.is_some(), is_away, "{case:?}");
        assert_eq!(questions.life, u8::from(is_long), "{case:?}");
        let until = if is_held { shard.turns.at + HOLD_MS } else { Tick(0) };
        assert_eq!((shard.turns.held_until, questions.fresh_until), (until, until), "{case:?}");
    }
}

#[test]
fn an_absence_is_noticed_once_and_by_a_node_with_peers() {
    let (mut cluster, first, _) = cluster();
    let shard = cluster.shard(first);
    for (away_ms, is_noticed) in [(2_000, true), (2_001, false)] {
        shard.questions.walk = None;
        shard.turns.at = shard.turns.ticked_at + away_ms;
        shard.notice_absence();
        assert_eq!(shard.questions.walk.is_some(), is_noticed, "{away_ms}");
    }
    let mut alone = Cluster::new(1, true);
    let shard = alone.shard(0);
    shard.turns.at = shard.turns.ticked_at + 60_000;
    shard.notice_absence();
    assert!(shard.questions.walk.is_none());
}

#[test]
fn of_two_with_two_lists_the_node_of_the_lower_hash_goes_on() {
    let (mut cluster, first, second) = cluster();
    for (own, other) in [(first, second), (second, first)] {
        let asker = cluster.peer(own, other).expect("a member");
        let shard = cluster.shard(own);
        let (slot, record) = held(shard);
        let question = Question::new(record.key(), PeerSet::EMPTY, Tick(0));
        let question = Question { is_due: true, ..question };
        let same = shard.standing_of(&record);
        let elsewhere = Standing { list_digest: !same.list_digest, ..same };
        let is_lower = shard.peers.own_hash() < shard.peers.view.hash_of(asker);
        for (standing, goes_on) in [(same, own == first), (elsewhere, is_lower)] {
            shard.questions.open.insert(ID.0, question);
            assert_eq!(shard.is_on_it(slot, Some(asker), (&standing, false)), goes_on);
            let waiting = if goes_on { PeerSet::EMPTY } else { only(asker) };
            assert_eq!(shard.questions.open[&ID.0].waiting, waiting);
        }
    }
}

/// An original cannot be asked. It tells its copies while this core holds its pops back.
#[test]
fn what_an_original_holds_too_waits_until_its_copies_must_have_come() {
    for (left_ms, waits) in [(2, true), (1, true), (0, false)] {
        let (mut cluster, first, second) = cluster();
        let peer = cluster.peer(first, second).expect("a member");
        let (liveness, dialect) = (Liveness::Alive, Dialect::Http);
        cluster.handle(first, Event::Peer { peer, liveness, dialect, has_gaps: false });
        let third = (0..3).find(|node| ![first, second].contains(node)).expect("three nodes");
        cluster.believe(first, third, Liveness::Dead);
        let shard = cluster.shard(first);
        let (slot, record) = held(shard);
        shard.records.take_out(slot);
        shard.questions.walk = Some(Slot(0));
        let tick = record.due();
        shard.turns.held_until = tick + left_ms;
        assert_eq!(shard.waits_for_others(tick, slot, &mut Outbox::default()), waits, "{left_ms}");
    }
}

/// A rank that comes first goes on with what is due with it. No rank waits for one that has begun.
#[test]
fn only_a_pop_that_is_due_or_runs_is_waited_for() {
    let (mut cluster, first, second) = cluster();
    let asker = cluster.peer(first, second).expect("a member");
    let shard = cluster.shard(first);
    let (slot, record) = held(shard);
    let standing = shard.standing_of(&record);
    assert!(!shard.is_on_it(slot, Some(asker), (&standing, false)), "nothing is due");
    for is_due in [false, true] {
        let question = Question::new(record.key(), PeerSet::EMPTY, Tick(0));
        shard.questions.open.insert(ID.0, Question { is_due, ..question });
        assert_eq!(shard.is_on_it(slot, Some(asker), (&standing, false)), is_due);
    }
    assert!(!shard.is_on_it(slot, None, (&standing, false)), "of nobody known");
    shard.records.transition(slot, Next::InFlight);
    assert!(shard.is_on_it(slot, None, (&standing, false)));
}

/// A core hears of an overdue timer from a rank that comes before it, and asks that rank.
#[test]
fn an_earlier_rank_that_tells_of_an_overdue_timer_is_asked_about_it() {
    for (is_later, early_ms, open, is_asked) in [
        (true, 0, DUE_MAX - 1, true),
        (true, 0, DUE_MAX, false),
        (true, 1, 0, false),
        (false, 0, 0, false),
    ] {
        let (mut cluster, first, second) = cluster();
        let (own, other) = if is_later { (second, first) } else { (first, second) };
        let asker = cluster.peer(own, other).expect("a member");
        let shard = cluster.shard(own);
        let (slot, record) = held(shard);
        shard.turns.at = Tick(record.schedule().due(1).0 - early_ms);
        let others = Question::new(record.key(), PeerSet::EMPTY, Tick(0));
        shard.questions.open = (1_000..1_000 + open as u64).map(|id| (id, others)).collect();
        let standing = shard.standing_of(&record);
        assert!(!shard.is_on_it(slot, Some(asker), (&standing, false)));
        let opened = shard.questions.open.get(&ID.0);
        let opened = opened.map(|question| (question.waiting, question.told, question.since));
        let expected = (only(asker), only(asker), shard.turns.at);
        assert_eq!(opened, is_asked.then_some(expected), "{is_later} {early_ms} {open}");
    }
}

/// An answer to an earlier question does not tell what the rank does now.
#[test]
fn an_answer_that_was_under_way_when_its_rank_went_on_does_not_count() {
    for was_asked in [false, true] {
        let (mut cluster, first, second) = cluster();
        let (now, asker) = (cluster.now(), cluster.peer(second, first).expect("a member"));
        let shard = cluster.shard(second);
        let (slot, record) = held(shard);
        let asked = if was_asked { only(asker) } else { PeerSet::EMPTY };
        let question = Question::new(record.key(), PeerSet::EMPTY, Tick(0));
        shard.questions.open.insert(ID.0, Question { asked, is_due: true, ..question });
        let standing = shard.standing_of(&record);
        assert!(!shard.is_on_it(slot, Some(asker), (&standing, false)));
        let question = shard.questions.open[&ID.0];
        assert_eq!((question.outdated, question.waiting), (asked, only(asker)));
        let life = shard.questions.life;
        shard.question_result(
            now,
            asker,
            (ID, life),
            Some(PeerResult::Held),
            &mut Outbox::default(),
        );
        let waiting = if was_asked { only(asker) } else { PeerSet::EMPTY };
        assert_eq!(shard.questions.open[&ID.0].waiting, waiting);
        assert!(shard.questions.open[&ID.0].outdated.is_empty(), "the next one counts");
        shard.question_result(
            now,
            asker,
            (ID, life),
            Some(PeerResult::Held),
            &mut Outbox::default(),
        );
        assert!(shard.questions.open[&ID.0].waiting.is_empty());
    }
}

#[test]
fn an_answer_ends_the_waiting_unless_it_says_that_more_is_to_be_told() {
    for (life, result, is_answered) in [
        (0, Some(PeerResult::Held), true),
        (0, Some(PeerResult::Wanted), true),
        (0, Some(PeerResult::Otherwise), true),
        (0, Some(PeerResult::Ahead), false),
        (0, None, false),
        (1, Some(PeerResult::Held), false),
    ] {
        let (mut cluster, first, second) = cluster();
        let (now, asked) = (cluster.now(), cluster.peer(first, second).expect("a member"));
        let shard = cluster.shard(first);
        let (_, record) = held(shard);
        let question = Question::new(record.key(), only(asked), Tick(0));
        shard.questions.open.insert(ID.0, Question { asked: only(asked), ..question });
        shard.question_result(now, asked, (ID, life), result, &mut Outbox::default());
        let open = shard.questions.open.get(&ID.0);
        assert_eq!(open.is_none(), is_answered, "{life} {result:?}");
        if let Some(question) = open {
            assert_eq!(question.asked.is_empty(), life == 0, "it is asked again");
        }
    }
}

/// A timer that is due and waits for nothing else is looked at in this tick.
#[test]
fn the_last_answer_brings_a_timer_up_that_is_due() {
    let [armed, failed, left]: [fn(Tick) -> Next; 3] =
        [Next::Armed, Next::BackingOff, Next::HandedOver];
    for (is_due, is_same, next, early_ms, comes_up) in [
        (true, true, armed, 0, true),
        (true, true, failed, 0, true),
        (true, true, left, 0, false),
        (true, true, armed, 1, false),
        (true, false, armed, 0, false),
        (false, true, armed, 0, false),
    ] {
        let (mut cluster, first, _) = cluster();
        let shard = cluster.shard(first);
        let (slot, record) = held(shard);
        let tick = Tick(record.schedule().due(1).0 - early_ms);
        let later = tick + 5_000;
        shard.records.transition(slot, next(later));
        let key = if is_same { record.key() } else { other_key(&record) };
        let question = Question { is_due, ..Question::new(key, PeerSet::EMPTY, Tick(0)) };
        shard.questions.open.insert(ID.0, question);
        shard.question_answered(tick, ID);
        let case = (is_due, is_same, next(later), early_ms);
        let at = if comes_up { tick } else { later };
        assert_eq!(shard.records.filed_at(slot), at, "{case:?}");
        assert_eq!(shard.questions.open.contains_key(&ID.0), is_due, "{case:?}");
    }
}

/// A question from before an absence is asked anew, and a timer that is due stays so.
#[test]
fn after_an_absence_all_that_may_know_more_are_asked() {
    for (former, is_due, absences) in [
        (None, false, 0),
        (Some((true, true)), true, 1),
        (Some((true, false)), false, 1),
        (Some((false, true)), false, 1),
    ] {
        let (mut cluster, first, _) = cluster();
        let tick = cluster.now().mono.tick_floor();
        let shard = cluster.shard(first);
        let (slot, record) = held(shard);
        if let Some((is_due, is_same)) = former {
            let key = if is_same { record.key() } else { other_key(&record) };
            let question = Question::new(key, PeerSet::EMPTY, Tick(0));
            let question = Question { is_due, absences: 1, ..question };
            shard.questions.open.insert(ID.0, question);
        }
        let mut outbox = Outbox::default();
        shard.ask_about(tick, slot, &mut outbox);
        let question = shard.questions.open[&ID.0];
        assert_eq!((question.is_due, question.absences), (is_due, absences), "{former:?}");
        assert!(question.is_unheard && question.since == tick && question.key == record.key());
        // The third node may have stood in.
        let others = shard.peers.not_dead().without(shard.peers.own());
        assert_eq!((question.waiting, question.asked), (others, others));
        let told = outbox.to_peers.iter().map(|message| message.peer);
        assert_eq!(told.fold(PeerSet::EMPTY, PeerSet::with), others);
    }
}

/// There is no peer to ask. A timer that is due stays open until it is looked at.
#[test]
fn what_nobody_else_can_know_is_not_asked_about() {
    for (is_due, stays) in [(false, false), (true, true)] {
        let (mut cluster, first, second) = cluster();
        (0..3).filter(|node| *node != first).for_each(|node| {
            cluster.believe(first, node, Liveness::Dead);
        });
        assert_ne!(first, second);
        let tick = cluster.now().mono.tick_floor();
        let shard = cluster.shard(first);
        let (slot, record) = held(shard);
        let question = Question::new(record.key(), PeerSet::EMPTY, Tick(0));
        shard.questions.open.insert(ID.0, Question { is_due, ..question });
        let mut outbox = Outbox::default();
        shard.ask_about(tick, slot, &mut outbox);
        assert_eq!(shard.questions.open.contains_key(&ID.0), stays);
        assert!(outbox.to_peers.is_empty());
    }
}

/// The peers that have not answered are asked again, while the timer is in the state that was asked
/// about.
#[test]
fn what_is_open_is_asked_again_or_closed() {
    for (is_same, is_unheard, is_due, is_waiting, open) in [
        (true, false, false, true, Some(false)),
        (true, true, true, true, Some(true)),
        (true, false, false, false, None),
        (true, false, true, false, Some(true)),
        (false, true, true, true, Some(false)),
        (false, false, true, true, None),
    ] {
        let (mut cluster, first, second) = cluster();
        let asked = cluster.peer(first, second).expect("a member");
        let tick = cluster.now().mono.tick_floor();
        let shard = cluster.shard(first);
        let (_, record) = held(shard);
        let key = if is_same { record.key() } else { other_key(&record) };
        let waiting = if is_waiting { only(asked) } else { PeerSet::EMPTY };
        let question = Question { is_unheard, is_due, ..Question::new(key, waiting, tick) };
        shard.questions.open.insert(ID.0, question);
        shard.questions.look = Some(0);
        let mut outbox = Outbox::default();
        shard.ask_again(tick, &mut outbox);
        let case = (is_same, is_unheard, is_due, is_waiting);
        let found = shard.questions.open.get(&ID.0);
        assert_eq!(found.map(|question| question.is_due), open, "{case:?}");
        assert!(found.is_none_or(|question| question.key == record.key()), "{case:?}");
        let told = match open {
            Some(_) if is_waiting && is_same => 1,
            // A new question goes to the third node, too, which may have stood in.
            Some(_) if is_waiting => 2,
            _ => 0,
        };
        assert_eq!(outbox.to_peers.len(), told, "{case:?}");
        assert_eq!(shard.questions.look, None, "all have been looked at");
        shard.questions.look = Some(0);
        shard.ask_again(tick, &mut outbox);
        assert_eq!(outbox.to_peers.len(), told, "an answer is under way");
    }
}

#[test]
fn what_is_open_is_looked_at_in_portions_and_closed_when_its_timer_has_gone() {
    let (mut cluster, first, _) = cluster();
    let shard = cluster.shard(first);
    let (_, record) = held(shard);
    let question = Question::new(record.key(), PeerSet::EMPTY, Tick(0));
    let ids = 1_000..1_000 + LOOKS_PER_TICK as u64 + 4;
    shard.questions.open = ids.clone().map(|id| (id, question)).collect();
    shard.questions.look = Some(0);
    shard.ask_again(Tick(1), &mut Outbox::default());
    let left: Vec<u64> = shard.questions.open.keys().copied().collect();
    assert_eq!(left, (ids.end - 4..ids.end).collect::<Vec<_>>());
    assert_eq!(shard.questions.look, Some(ids.end - 4));
    shard.ask_again(Tick(2), &mut Outbox::default());
    assert!(shard.questions.open.is_empty() && shard.questions.look.is_none());
}

/// Once in a tick. Peers that have not answered are asked every 50 ms.
#[test]
fn asking_goes_on_once_in_a_tick() {
    let (mut cluster, first, second) = cluster();
    let asked = cluster.peer(first, second).expect("a member");
    let now = cluster.now();
    let tick = now.mono.tick_floor();
    let shard = cluster.shard(first);
    let (_, record) = held(shard);
    for (walked_ago_ms, looked_ago_ms, walks, looks) in [
        (0, 1_000, false, false),
        (1, ASK_AGAIN_MS - 1, true, false),
        (1, ASK_AGAIN_MS, true, true),
    ] {
        let question = Question::new(record.key(), only(asked), tick);
        shard.questions.open = [(ID.0, question)].into_iter().collect();
        shard.questions.walk = Some(Slot(1_000));
        shard.questions.walked_at = Tick(tick.0 - walked_ago_ms);
        shard.questions.looked_at = Tick(tick.0 - looked_ago_ms);
        let mut outbox = Outbox::default();
        shard.ask_on(now, &mut outbox);
        assert_eq!(shard.questions.walk.is_none(), walks, "{walked_ago_ms}");
        assert_eq!(outbox.to_peers.len(), usize::from(looks), "{looked_ago_ms}");
        assert_eq!(shard.questions.looked_at == tick, looks);
    }
}

#[test]
fn a_holder_that_is_told_whole_copies_cannot_be_asked() {
    for dialect in [Dialect::Frames, Dialect::Http] {
        for is_holder in [true, false] {
            let (mut cluster, first, second) = cluster();
            let third = (0..3).find(|node| ![first, second].contains(node)).expect("of three");
            let about = if is_holder { second } else { third };
            let (peer, liveness) = (cluster.peer(first, about).expect("one"), Liveness::Alive);
            cluster.handle(first, Event::Peer { peer, liveness, dialect, has_gaps: false });
            let shard = cluster.shard(first);
            let (_, record) = held(shard);
            let is_one = is_holder && dialect == Dialect::Http;
            assert_eq!(shard.has_holder_of_copies(&record), is_one, "{dialect:?} {is_holder}");
        }
    }
}

/// A timer of `factor` of three nodes, due after 10 s, and its nodes by rank.
fn cluster_of(factor: u8) -> (Cluster, Vec<usize>) {
    let mut cluster = Cluster::new(3, true);
    cluster.put(0, ID, (10, 10), factor);
    let list = cluster.list(ID);
    (cluster, list)
}

fn record(shard: &Shard) -> Record {
    *shard.records.get(shard.find(ID).expect("it is held"))
}

#[test]
fn a_pop_may_be_anothers_before_it_is_due_and_when_the_next_ranks_turn_has_come() {
    for (factor, rank, after_due_ms, is_anothers) in [
        (2, 0, 0, false),
        (2, 0, RANK_DELAY_MS - 1, false),
        (2, 0, RANK_DELAY_MS, true),
        (2, 1, 0, true),
        (2, 1, RANK_DELAY_MS, true),
        (1, 0, RANK_DELAY_MS, false),
    ] {
        let (mut cluster, list) = cluster_of(factor);
        let shard = cluster.shard(list[rank]);
        let record = record(shard);
        let tick = record.schedule().due(1) + after_due_ms;
        let is_told = shard.may_be_anothers(tick, &record);
        assert_eq!(is_told, is_anothers, "{factor} {rank} {after_due_ms}");
    }
    let (mut cluster, list) = cluster_of(2);
    let shard = cluster.shard(list[0]);
    let record = record(shard);
    let before = Tick(record.schedule().due(1).0 - 1);
    assert!(shard.may_be_anothers(before, &record), "it is not due: others told it earlier");
}

/// Which peer is asked, what is believed of it, and until when it is waited for.
#[test]
fn an_answer_is_waited_for_as_long_as_is_said() {
    let (mut cluster, list) = cluster_of(2);
    let own = list[0];
    let asked = cluster.peer(own, list[1]).expect("a member");
    let waiting = PeerSet::EMPTY.with(asked);
    let since = cluster.now().mono.tick_floor();
    let (limits, callbacks) = (ClusterLimits::default(), CallbackLimits::default());
    let key = record(cluster.shard(own)).key();
    let question = Question::new(key, waiting, since);
    let told = Question { told: waiting, ..question };
    let unheard = Question { is_unheard: true, ..question };
    let starved = Question { absences: ABSENCES_MAX, ..question };
    let patient_until = since + 7_000;
    let suspect_ms = limits.suspect_after_ms;
    let unheard_ms = limits.dead_after_ms + BEYOND_DEATH_MS;
    for (liveness, started_at, question, patience_ms) in [
        (Liveness::Alive, Tick(0), question, callbacks.timeout_ms + suspect_ms),
        (Liveness::Suspect, Tick(0), question, 0),
        (Liveness::Suspect, since, question, suspect_ms),
        (Liveness::Suspect, Tick(0), told, suspect_ms),
        (Liveness::Dead, since, question, 0),
        (Liveness::Alive, Tick(0), unheard, unheard_ms),
        (Liveness::Suspect, Tick(0), unheard, unheard_ms),
        (Liveness::Dead, Tick(0), unheard, 0),
        (Liveness::Alive, Tick(0), starved, 0),
    ] {
        cluster.believe(own, list[1], liveness);
        let shard = cluster.shard(own);
        shard.note_listening(asked, false);
        shard.questions.patient_until = patient_until;
        shard.questions.started_at = started_at;
        let record = record(shard);
        let is_answered =
            |after_ms: u64| shard.is_answered(since + after_ms, &record, &mut question.clone());
        assert!(is_answered(patience_ms), "{liveness:?} {question:?}");
        let is_early = patience_ms > 0 && is_answered(patience_ms - 1);
        assert!(!is_early, "{liveness:?} {question:?}");
        if liveness == Liveness::Dead && question.is_unheard {
            // Its machine takes dials.
            shard.note_listening(asked, true);
            let waits = |after_ms: u64| {
                !shard.is_answered(since + after_ms, &record, &mut question.clone())
            };
            assert_eq!((waits(6_999), waits(7_000)), (true, false));
        }
    }
}

/// How many pops are done, by how much the turn of this rank is over, what the other rank has said,
/// and for how long it is waited for.
#[test]
fn a_silent_rank_does_not_delay_each_pop_of_a_timer() {
    let (mut cluster, list) = cluster_of(2);
    let own = list[1];
    let other = cluster.peer(own, list[0]).expect("a member");
    cluster.believe(own, list[0], Liveness::Alive);
    let shard = cluster.shard(own);
    shard.questions.started_at = Tick(0);
    let held = record(shard);
    let full_ms = CallbackLimits::default().timeout_ms + ClusterLimits::default().suspect_after_ms;
    let (told, ahead) = (only(other), 50);
    for (interval_ms, sequence, over_ms, (told, pause_ms), waits_ms) in [
        (400, 0, 0, (PeerSet::EMPTY, 0), full_ms),
        (400, 0, full_ms, (PeerSet::EMPTY, 0), full_ms),
        (400, 1, 0, (PeerSet::EMPTY, 0), full_ms),
        (400, 1, full_ms - 300, (PeerSet::EMPTY, 0), 300),
        (400, 1, full_ms - 100, (PeerSet::EMPTY, 0), 200),
        (400, 1, full_ms, (told, 0), full_ms),
        (400, 1, full_ms, (PeerSet::EMPTY, ahead), full_ms),
        (60_000, 1, full_ms, (PeerSet::EMPTY, 0), full_ms),
    ] {
        let record = Record { interval_ms, sequence, ..held };
        let since = shard.records.pops_at(&record) + over_ms;
        let question =
            Question { told, pause_ms, ..Question::new(record.key(), only(other), since) };
        let is_answered =
            |after_ms: u64| shard.is_answered(since + after_ms, &record, &mut question.clone());
        let case = (interval_ms, sequence, over_ms, told, pause_ms);
        assert!(is_answered(waits_ms) && !is_answered(waits_ms - 1), "{case:?}");
    }
}

#[test]
fn the_ranks_of_a_site_behind_others_wait_for_these_one_longer_than_the_other() {
    let (limits, callbacks) = (ClusterLimits::default(), CallbackLimits::default());
    let first_ms = callbacks.timeout_ms + limits.suspect_after_ms;
    for (rank, patience_ms) in [(0, first_ms), (1, first_ms + RANK_DELAY_MS)] {
        let (mut cluster, list) = cluster_of(2);
        let shard = cluster.shard(list[rank]);
        let slot = shard.find(ID).expect("it is held");
        let placement = *shard.records.placement_of(shard.records.get(slot));
        let sites = [1, 2].map(SiteHash).into_iter().collect();
        shard.place(slot, &Placement { sites, sites_ahead: 1, ..placement });
        let record = record(shard);
        let question = Question::new(record.key(), PeerSet::EMPTY, Tick(5));
        assert_eq!(shard.waits_until(&record, &question), Tick(5) + patience_ms, "{rank}");
    }
}
