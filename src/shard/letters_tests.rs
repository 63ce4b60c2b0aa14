//! Dead letters, in a node alone and in a cluster.

use crate::base::ids::TimerId;
use crate::base::time::WallMs;
use crate::shard::Shard;
use crate::shard::effects::{Answer, CallbackOutcome, Event, Outbox, Refusal, Request, TimerView};
use crate::shard::harness_tests::{Cluster, FROM, START_MS, target};
use crate::shard::records::{Record, State};
use crate::wire::attributes::{Attributes, RetryPolicy};
use crate::wire::dead_letter::{Failure, GivenUp, LetterUse, Replay};

/// Two attempts, a second apart, within 100 s.
const POLICY: RetryPolicy = RetryPolicy {
    max_attempts: 2,
    max_age_ms: 100_000,
    initial_ms: 1_000,
    max_ms: 50_000,
    multiplier_milli: 1_000,
    jitter_milli: 0,
};

fn with_policy() -> Attributes<'static> {
    Attributes { retry: Some(POLICY), ..Attributes::default() }
}

fn with_uri() -> Attributes<'static> {
    Attributes { dead_letter_uri: Some("http://letters:9000/dead"), ..with_policy() }
}

/// Nodes that have long been up, and whose callbacks fail.
fn failing(count: usize) -> Cluster {
    let mut cluster = Cluster::new(count, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    if count > 1 {
        cluster.run_until(10);
    }
    cluster
}

/// The dead letters that a node holds.
fn letters(shard: &Shard) -> Vec<Record> {
    let slots = shard.records.occupied_from(crate::base::ids::Slot(0));
    let records = slots.map(|slot| *shard.records.get(slot));
    records.filter(|record| record.state == State::Parked).collect()
}

fn ids(cluster: &mut Cluster, node: usize) -> Vec<TimerId> {
    let mut ids: Vec<_> = letters(cluster.shard(node)).iter().map(|record| record.id).collect();
    ids.sort();
    ids
}

fn shown(cluster: &mut Cluster, node: usize, id: TimerId) -> TimerView {
    match cluster.ask(node, Request::Letter(target(id, 1), LetterUse::Show, None)) {
        Answer::Found(view) => *view,
        other => panic!("{other:?}"),
    }
}

/// The number of the pop of a letter, and whether the letter is on its way to its URI.
fn letter_of(cluster: &mut Cluster, id: TimerId) -> (u64, bool) {
    let shard = cluster.shard(0);
    let record = *shard.records.get(shard.find(id).expect("it is held"));
    let content = shard.records.content_of(&record);
    let letter = content.attributes().letter.expect("a letter");
    (letter.sequence, letter.is_on_its_way)
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done { .. })
}

#[test]
fn the_last_pop_of_a_timer_becomes_a_letter_under_its_id() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(60_000);
    assert_eq!(cluster.pops.len(), 2);
    assert_eq!(ids(&mut cluster, 0), [id]);
    let view = shown(&mut cluster, 0, id);
    let letter = Attributes::read(&view.attributes).expect("good").letter.expect("a letter");
    assert_eq!((letter.reason, letter.attempts, letter.sequence), (GivenUp::Attempts, 2, 1));
    assert_eq!(letter.given_up_ms, START_MS + 2_000);
    assert_eq!((view.uri.as_str(), &*view.opaque), ("http://host:80/pop", &b"opaque"[..]));
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.given_up, counters.letters, counters.letters_kept), (1, 1, 1));
    cluster.audit();
}

#[test]
fn a_pop_of_a_repeating_timer_becomes_a_letter_of_its_own_and_the_timer_goes_on() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (10, 30), 1, &with_policy());
    cluster.pass_to(25_000);
    assert_eq!(cluster.shard(0).counters().letters, 2);
    assert!(!ids(&mut cluster, 0).contains(&id), "the timer has a pop left");
    cluster.pass_to(60_000);
    let ids = ids(&mut cluster, 0);
    assert_eq!(ids.len(), 3);
    assert!(ids.contains(&id), "the last pop leaves the timer's own");
    let mut sequences: Vec<u64> = ids
        .into_iter()
        .map(|id| {
            let view = shown(&mut cluster, 0, id);
            Attributes::read(&view.attributes).expect("good").letter.expect("one").sequence
        })
        .collect();
    sequences.sort_unstable();
    assert_eq!(sequences, [1, 2, 3]);
    cluster.audit();
}

#[test]
fn only_timers_that_ask_for_it_leave_letters_unless_all_do() {
    let mut cluster = failing(1);
    cluster.create(0, (1, 1), 1);
    cluster.pass_to(80_000);
    assert_eq!(cluster.shard(0).counters().given_up, 1);
    assert_eq!(cluster.shard(0).counters().letters, 0);
    let mut cluster = failing(1);
    cluster.shard(0).config.callbacks.dead_letters.plain = true;
    let id = cluster.create(0, (1, 1), 1);
    cluster.create(0, (100, 1_000), 1);
    cluster.pass_to(280_000);
    assert_eq!(ids(&mut cluster, 0), [id], "pops of a repeating timer without a policy are not");
    let view = shown(&mut cluster, 0, id);
    let letter = Attributes::read(&view.attributes).expect("good").letter.expect("one");
    assert_eq!(letter.reason, GivenUp::Age);
    assert_eq!(view.tags, [("CALL".to_owned(), 3)]);
    let mut cluster = failing(1);
    cluster.shard(0).config.callbacks.dead_letters.per_core_max = 0;
    cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(10_000);
    assert_eq!((cluster.shard(0).counters().given_up, cluster.shard(0).counters().letters), (1, 0));
}

#[test]
fn gone_is_no_letter_and_denied_is_one() {
    let mut cluster = failing(1);
    cluster.outcome = |_, _| CallbackOutcome::Gone;
    cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(10_000);
    assert_eq!(cluster.shard(0).counters().letters, 0);
    cluster.outcome = |_, _| CallbackOutcome::Denied;
    let id = cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(20_000);
    let view = shown(&mut cluster, 0, id);
    let letter = Attributes::read(&view.attributes).expect("good").letter.expect("one");
    assert_eq!(letter.reason, GivenUp::Denied);
}

#[test]
fn what_the_server_said_last_stands_in_the_letter() {
    let mut cluster = failing(1);
    cluster.hung = Some(0);
    let id = cluster.create_with(0, (1, 1), 1, &with_policy());
    for (until_ms, status, said) in [(1_500, 500, "first"), (4_000, 418, "a teapot")] {
        cluster.pass_to(until_ms);
        let (_, ticket) = cluster.hanging[0];
        cluster.shard(0).note_answer(&ticket, status, said.as_bytes());
        cluster.answer_callbacks(CallbackOutcome::Rejected);
        cluster.hung = Some(0);
    }
    let view = shown(&mut cluster, 0, id);
    let letter = Attributes::read(&view.attributes).expect("good").letter.expect("one");
    assert_eq!((letter.status, letter.answer), (Some(418), &b"a teapot"[..]));
}

#[test]
fn a_replay_keeps_the_number_and_counts_and_fails_into_a_letter_again() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (5, 10), 1, &with_policy());
    cluster.pass_to(20_000);
    let second = id;
    let first = ids(&mut cluster, 0).into_iter().find(|other| *other != id).expect("another");
    cluster.pops.clear();
    for count in 1..=2 {
        let answer = cluster.ask(0, Request::Letter(target(second, 1), LetterUse::Replay, None));
        assert!(is_done(&answer), "{answer:?}");
        let slot = cluster.shard(0).find(second).expect("held");
        let shard = cluster.shard(0);
        let record = *shard.records.get(slot);
        assert_eq!(record.state, State::Armed);
        let content = shard.records.content_of(&record);
        let replay = content.attributes().replay;
        assert_eq!(replay, Some(Replay { count, sequence: 2 }), "the number of the pop");
        let now_ms = cluster.now_ms - START_MS;
        cluster.pass_to(now_ms + 5_000);
        assert_eq!(cluster.pops.len(), 2 * count as usize, "its policy counts anew");
        let view = shown(&mut cluster, 0, second);
        let letter = Attributes::read(&view.attributes).expect("good").letter.expect("one");
        assert_eq!(letter.sequence, 2);
    }
    cluster.outcome = |_, _| CallbackOutcome::Delivered;
    assert!(is_done(&cluster.ask(0, Request::Letter(target(first, 1), LetterUse::Replay, None))));
    let now_ms = cluster.now_ms - START_MS;
    cluster.pass_to(now_ms + 1_000);
    assert_eq!(ids(&mut cluster, 0), [second]);
    let answer = cluster.ask(0, Request::Letter(target(first, 1), LetterUse::Replay, None));
    assert_eq!(answer, Answer::NotFound, "it was delivered");
    cluster.audit();
}

#[test]
fn a_letter_is_deleted_replaced_or_shown_and_a_timer_is_none() {
    let mut cluster = failing(1);
    let letter = cluster.create_with(0, (1, 1), 1, &with_policy());
    let timer = cluster.create_with(0, (1_000, 1_000), 1, &with_policy());
    cluster.pass_to(10_000);
    for wanted in [LetterUse::Show, LetterUse::Replay, LetterUse::Delete] {
        let answer = cluster.ask(0, Request::Letter(target(timer, 1), wanted, None));
        assert_eq!(answer, Answer::NotFound, "{wanted:?}");
    }
    assert_eq!(cluster.holders(timer), [0]);
    assert_eq!(cluster.ask(0, Request::Read(target(letter, 1))), Answer::NotFound, "it is over");
    assert!(is_done(&cluster.ask(0, Request::Letter(target(letter, 1), LetterUse::Delete, None))));
    assert!(cluster.holders(letter).is_empty());
    // A client may use the id again.
    let letter = cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(20_000);
    cluster.put(0, letter, (1_000, 1_000), 1);
    assert!(ids(&mut cluster, 0).is_empty());
    cluster.pass_to(20_001);
    assert_eq!(cluster.shard(0).counters().letter_bytes, 0);
    cluster.audit();
}

#[test]
fn letters_leave_by_age_number_and_bytes_the_oldest_first() {
    let mut cluster = failing(1);
    cluster.shard(0).config.callbacks.dead_letters.keep_ms = 30_000;
    cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(31_000);
    assert_eq!(cluster.shard(0).counters().letters, 1);
    cluster.pass_to(32_100);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.letters, counters.letters_too_old), (0, 1));
    cluster.shard(0).config.callbacks.dead_letters.per_core_max = 3;
    let made: Vec<_> =
        (1..=5).map(|second| cluster.create_with(0, (second, second), 1, &with_policy())).collect();
    cluster.pass_to(42_000);
    let sorted = |made: &[TimerId]| {
        let mut made = made.to_vec();
        made.sort();
        made
    };
    assert_eq!(ids(&mut cluster, 0), sorted(&made[2..]));
    assert_eq!(cluster.shard(0).counters().letters_pushed_out, 2);
    let bytes = cluster.shard(0).counters().letter_bytes;
    cluster.shard(0).config.callbacks.dead_letters.bytes_per_core_max = bytes - 1;
    cluster.pass_to(42_010);
    assert_eq!(ids(&mut cluster, 0), sorted(&made[3..]));
    assert_eq!(cluster.shard(0).counters().letters_pushed_out, 3);
    cluster.audit();
}

#[test]
fn without_room_the_pop_is_given_up_and_counted() {
    let mut cluster = failing(1);
    cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.shard(0).records.set_bytes_max(0);
    cluster.pass_to(10_000);
    let counters = *cluster.shard(0).counters();
    assert_eq!((counters.letters, counters.letters_without_room), (0, 1));
    assert_eq!(counters.given_up, 1);
    cluster.audit();
}

#[test]
fn a_letter_goes_to_its_uri_and_is_kept_if_that_fails() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (1, 1), 1, &with_uri());
    cluster.pass_to(2_500);
    let slot = cluster.shard(0).find(id).expect("held");
    let shard = cluster.shard(0);
    let record = *shard.records.get(slot);
    assert_eq!(shard.records.authority_of(&record), "letters:9000");
    let content = shard.records.content_of(&record);
    assert_eq!((content.target, content.opaque), (&b"/dead"[..], &b"opaque"[..]));
    assert!(content.attributes().letter.expect("one").is_on_its_way);
    assert_eq!((shard.counters().letters_sent, shard.counters().letters), (1, 0));
    cluster.pass_to(10_000);
    assert_eq!(cluster.pops.len(), 4, "its policy holds for the letter, too");
    let view = shown(&mut cluster, 0, id);
    assert_eq!(view.uri, "http://host:80/pop", "a replay goes there");
    let attributes = Attributes::read(&view.attributes).expect("good");
    assert_eq!(attributes.dead_letter_uri, Some("http://letters:9000/dead"));
    let letter = attributes.letter.expect("one");
    assert!(letter.uri_failed && !letter.is_on_its_way);
    assert_eq!((letter.reason, letter.sequence), (GivenUp::Attempts, 1));
    let keep_ms = cluster.shard(0).config.callbacks.dead_letters.keep_ms;
    let is_of_second = letter.until_ms > letter.given_up_ms + keep_ms;
    assert!(is_of_second, "it is kept from when its URI failed");
    // The server of the letters says that it is gone.
    cluster.outcome = |_, sequence| match sequence {
        1 => CallbackOutcome::Gone,
        _ => CallbackOutcome::Rejected,
    };
    let gone = cluster.create_with(0, (1, 1), 1, &Attributes { retry: Some(POLICY), ..with_uri() });
    cluster.pass_to(30_000);
    assert!(cluster.holders(gone).is_empty(), "the first server said so");
    cluster.audit();
}

#[test]
fn a_letter_of_a_replay_goes_to_its_uri_with_the_number_of_its_pop() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (5, 10), 1, &with_uri());
    cluster.pass_to(20_000);
    assert_eq!(letter_of(&mut cluster, id), (2, false));
    assert!(is_done(&cluster.ask(0, Request::Letter(target(id, 1), LetterUse::Replay, None))));
    cluster.pass_to(21_500);
    assert_eq!(letter_of(&mut cluster, id), (2, true));
}

#[test]
fn a_letter_that_its_uri_takes_is_not_kept() {
    let mut cluster = failing(1);
    cluster.hung = Some(0);
    let id = cluster.create_with(0, (1, 1), 1, &with_uri());
    for until_ms in [1_100, 2_200] {
        cluster.pass_to(until_ms);
        cluster.answer_callbacks(CallbackOutcome::Rejected);
        cluster.hung = Some(0);
    }
    cluster.pass_to(3_000);
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    assert!(cluster.holders(id).is_empty());
    assert_eq!(cluster.shard(0).counters().letters, 0);
    // None is kept here, and the URI is told all the same.
    cluster.shard(0).config.callbacks.dead_letters.per_core_max = 0;
    cluster.hung = None;
    cluster.create_with(0, (1, 1), 1, &with_uri());
    cluster.pass_to(20_000);
    assert_eq!(cluster.shard(0).counters().letters_sent, 2);
    assert_eq!(cluster.shard(0).counters().letters, 0);
}

#[test]
fn all_holders_have_the_letter_and_it_survives_the_one_that_gave_up() {
    let mut cluster = failing(3);
    let one_shot = cluster.create_with(0, (1, 1), 2, &with_policy());
    let repeating = cluster.create_with(1, (10, 20), 2, &with_policy());
    cluster.run_until(60);
    let all: Vec<Vec<TimerId>> = (0..3).map(|node| ids(&mut cluster, node)).collect();
    let held = |id: TimerId| all.iter().filter(|ids| ids.contains(&id)).count();
    assert_eq!((held(one_shot), held(repeating)), (2, 2), "{all:?}");
    assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 6, "three letters: {all:?}");
    let kept: u64 = (0..3).map(|node| cluster.shard(node).counters().letters_kept).sum();
    assert_eq!(kept, 3);
    let first = cluster.list(one_shot)[0];
    cluster.kill(first);
    cluster.run_until(80);
    let other = (0..3).find(|node| *node != first).expect("another");
    let view = shown(&mut cluster, other, one_shot);
    assert!(Attributes::read(&view.attributes).expect("good").letter.is_some());
    cluster.return_empty(first);
    cluster.run_until(120);
    assert!(ids(&mut cluster, first).contains(&one_shot), "the returned node has it again");
    cluster.audit();
}

#[test]
fn any_node_tries_again_and_deletes_what_others_hold() {
    for wanted in [LetterUse::Replay, LetterUse::Delete] {
        let mut cluster = failing(3);
        let id = cluster.create_with(0, (1, 1), 1, &with_policy());
        cluster.run_until(30);
        let holder = cluster.holders(id)[0];
        let other = (holder + 1) % 3;
        cluster.outcome = |_, _| CallbackOutcome::Delivered;
        cluster.pops.clear();
        assert!(is_done(&cluster.ask(other, Request::Letter(target(id, 1), wanted, None))));
        cluster.run_until(40);
        assert!(cluster.holders(id).is_empty(), "{wanted:?}");
        assert_eq!(cluster.pops.len(), usize::from(wanted == LetterUse::Replay));
        let answer = cluster.ask(other, Request::Letter(target(id, 1), wanted, None));
        assert_eq!(answer, Answer::NotFound);
        cluster.audit();
    }
}

/// What nodes answer that are asked for the same before any of them has heard of another.
fn asked_at_once(cluster: &mut Cluster, nodes: &[usize], request: Request<'_>) -> Vec<Answer> {
    let outboxes: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (now, mut outbox) = (cluster.now_of(*node), Outbox::default());
            cluster.shard(*node).handle(now, Event::Request { from: FROM, request }, &mut outbox);
            (*node, outbox)
        })
        .collect();
    outboxes.into_iter().for_each(|(node, outbox)| cluster.deliver(node, outbox));
    std::mem::take(&mut cluster.answers)
}

#[test]
fn of_nodes_that_are_asked_at_the_same_time_one_uses_the_letter() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let cases = [LetterUse::Replay, LetterUse::Delete]
        .into_iter()
        .flat_map(|wanted| orders.map(|nodes| (wanted, nodes)));
    for ((wanted, nodes), factor) in cases.flat_map(|case| [1, 2, 3].map(|factor| (case, factor))) {
        let mut cluster = failing(3);
        let id = cluster.create_with(0, (1, 1), factor, &with_policy());
        cluster.run_until(30);
        cluster.outcome = |_, _| CallbackOutcome::Delivered;
        cluster.pops.clear();
        let asked = Request::Letter(target(id, factor), wanted, None);
        let answers = asked_at_once(&mut cluster, &nodes, asked);
        let case = format!("{wanted:?} {nodes:?} {factor}: {answers:?}");
        assert_eq!(answers.len(), 3, "{case}");
        assert_eq!(answers.iter().filter(|answer| is_done(answer)).count(), 1, "{case}");
        let is_none =
            |it: &&Answer| matches!(it, Answer::NotFound | Answer::Refused(Refusal::NoTimer));
        assert_eq!(answers.iter().filter(is_none).count(), 2, "{case}");
        cluster.run_until(40);
        assert!(cluster.holders(id).is_empty(), "{case}");
        assert_eq!(cluster.pops.len(), usize::from(wanted == LetterUse::Replay), "{case}");
        let counted = |cluster: &mut Cluster, node| {
            let counters = cluster.shard(node).counters();
            counters.letters_replayed + counters.letters_deleted
        };
        assert_eq!((0..3).map(|node| counted(&mut cluster, node)).sum::<u64>(), 1, "{case}");
        cluster.audit();
    }
}

#[test]
fn a_letter_that_came_again_is_not_the_one_that_was_listed() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (1, 1), 1, &with_policy());
    cluster.pass_to(10_000);
    let listed = shown(&mut cluster, 0, id).version;
    let replay = |version| Request::Letter(target(id, 1), LetterUse::Replay, Some(version));
    assert!(is_done(&cluster.ask(0, replay(listed))));
    cluster.pass_to(20_000);
    let again = shown(&mut cluster, 0, id).version;
    assert!(again > listed, "it failed");
    assert_eq!(cluster.ask(0, replay(listed)), Answer::NotFound);
    assert!(is_done(&cluster.ask(0, replay(again))));
}

#[test]
fn what_a_client_wrote_meanwhile_wins_over_the_letter_and_the_end() {
    for outcome in [CallbackOutcome::Rejected, CallbackOutcome::Gone] {
        let mut cluster = failing(3);
        let id = cluster.create_with(0, (1, 1), 3, &with_policy());
        let first = cluster.list(id)[0];
        let others: Vec<usize> = (0..3).filter(|node| *node != first).collect();
        cluster.hung = Some(first);
        cluster.run_until(12);
        cluster.answer_callbacks(CallbackOutcome::Rejected);
        cluster.hung = Some(first);
        cluster.run_until(13);
        // The first rank is cut off, and a client writes the timer anew elsewhere.
        others.iter().for_each(|other| cluster.cut(first, *other, true));
        cluster.put(others[0], id, (1_000, 1_000), 3);
        cluster.run_until(20);
        cluster.answer_callbacks(outcome);
        cluster.run_until(25);
        others.iter().for_each(|other| cluster.cut(first, *other, false));
        cluster.run_until(60);
        assert_eq!(cluster.holders(id).len(), 3, "{outcome:?}");
        assert!((0..3).all(|node| ids(&mut cluster, node).is_empty()), "{outcome:?}");
        cluster.audit();
    }
}

#[test]
fn versions_of_letters_lie_just_above_those_of_their_timers() {
    let mut cluster = failing(1);
    let id = cluster.create_with(0, (1, 1), 1, &with_policy());
    let before = cluster.shard(0).held(id).expect("held").version;
    cluster.pass_to(10_000);
    let after = cluster.shard(0).held(id).expect("held").version;
    assert!(after > before);
    assert_eq!(after.wall(), WallMs(START_MS));
}

#[test]
fn a_letter_tells_how_the_last_attempt_failed() {
    for failure in [Failure::Unreachable, Failure::TimedOut, Failure::Status] {
        let mut cluster = failing(1);
        cluster.outcome = match failure {
            Failure::Unreachable => |_, _| CallbackOutcome::Unreachable,
            Failure::TimedOut => |_, _| CallbackOutcome::TimedOut,
            _ => |_, _| CallbackOutcome::Rejected,
        };
        let id = cluster.create_with(0, (1, 1), 1, &with_policy());
        cluster.pass_to(20_000);
        let view = shown(&mut cluster, 0, id);
        let letter = Attributes::read(&view.attributes).expect("good").letter.expect("one");
        assert_eq!(letter.failure, failure);
    }
}
