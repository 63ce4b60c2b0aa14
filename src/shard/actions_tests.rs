//! What clients pause, resume and run, on one node and on several.

use proptest::prelude::*;

use crate::base::ids::TimerId;
use crate::cluster::detector::Liveness;
use crate::shard::Shard;
use crate::shard::effects::{
    Answer, CallbackOutcome, Condition, Conditional, Dialect, Event, Outbox, Refusal, Request,
    Ticket,
};
use crate::shard::harness_tests::{Cluster, definition, target};
use crate::shard::records::{Record, State};
use crate::timer::definition::encode_with_attributes;
use crate::timer::version::{StateKey, Version};
use crate::wire::attributes::{Attributes, CronTiming, RetryPolicy};
use crate::wire::timer_action::TimerAction::{self, Pause, Resume, RunNow};

fn ask(cluster: &mut Cluster, node: usize, id: TimerId, action: TimerAction) -> Answer {
    ask_if(cluster, node, id, (action, Condition::Present))
}

fn ask_if(
    cluster: &mut Cluster,
    node: usize,
    id: TimerId,
    (action, condition): (TimerAction, Condition),
) -> Answer {
    let (target, action, definition) = (target(id, 2), Some(action), None);
    cluster.ask(node, Request::Conditional(Conditional { target, condition, definition, action }))
}

fn version(answer: &Answer) -> Version {
    match answer {
        Answer::Identified(done) => done.version,
        other => panic!("{other:?}"),
    }
}

/// Does something with a timer that it changes. Returns its version.
fn act(cluster: &mut Cluster, node: usize, id: TimerId, action: TimerAction) -> Version {
    version(&ask(cluster, node, id, action))
}

fn state(cluster: &mut Cluster, node: usize, id: TimerId) -> State {
    let shard = cluster.shard(node);
    let slot = shard.find(id).expect("held");
    shard.records.get(slot).state
}

/// When each pop of a node alone begins and its number, up to `until_ms`.
fn pops(cluster: &mut Cluster, until_ms: u64) -> Vec<(u64, u64)> {
    let (mut found, first) = (Vec::new(), cluster.pops.len());
    for ms in cluster.passed_ms() + 1..=until_ms {
        cluster.pass_to(ms);
        let new = cluster.pops[first + found.len()..].iter().map(|pop| (ms, pop.2));
        found.extend(new);
    }
    found
}

#[test]
fn a_paused_timer_pops_when_it_is_resumed() {
    for count in [1, 2, 3] {
        for at in 0..count {
            let mut cluster = Cluster::new(count, true);
            let id = cluster.create(0, (10, 10), 2);
            cluster.run_until(5);
            let first = act(&mut cluster, at, id, Pause);
            assert_eq!(act(&mut cluster, at, id, Pause), first, "nothing changes");
            for node in cluster.holders(id) {
                assert_eq!(state(&mut cluster, node, id), State::Paused);
            }
            assert_eq!(ask(&mut cluster, at, id, RunNow), Answer::Refused(Refusal::Paused));
            cluster.run_until(400);
            assert_eq!(cluster.pops, [], "{count} nodes");
            cluster.audit();
            let other = (at + 1) % count;
            let second = act(&mut cluster, other, id, Resume);
            assert!(second > first);
            assert_eq!(act(&mut cluster, other, id, Resume), second, "nothing changes");
            cluster.run_until(402);
            let seen: Vec<(u64, u64)> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
            assert_eq!(seen, [(400, 1)], "{count} nodes");
            cluster.run_until(440);
            assert_eq!(cluster.pops.len(), 1);
            assert_eq!(ask(&mut cluster, other, id, Pause), Answer::Refused(Refusal::NoTimer));
            cluster.audit();
        }
    }
}

#[test]
fn times_that_come_after_a_pause_are_kept_and_one_of_those_before_is_made_up_for() {
    let mut cluster = Cluster::new(1, true);
    let id = cluster.create(0, (10, 60), 1);
    assert_eq!(pops(&mut cluster, 12_000), [(10_000, 1)]);
    act(&mut cluster, 0, id, Pause);
    assert_eq!(pops(&mut cluster, 15_000), []);
    act(&mut cluster, 0, id, Resume);
    assert_eq!(pops(&mut cluster, 22_000), [(20_000, 2)], "a pause without a time");
    act(&mut cluster, 0, id, Pause);
    assert_eq!(pops(&mut cluster, 45_500), []);
    act(&mut cluster, 0, id, Resume);
    assert_eq!(pops(&mut cluster, 70_000), [(45_501, 4), (50_000, 5), (60_000, 6)]);
    let id = cluster.create(0, (10, 60), 1);
    act(&mut cluster, 0, id, Pause);
    assert_eq!(pops(&mut cluster, 500_000), []);
    act(&mut cluster, 0, id, Resume);
    assert_eq!(pops(&mut cluster, 600_000), [(500_001, 6)], "it has ended meanwhile");
    cluster.audit();
}

#[test]
fn a_timer_that_is_run_makes_its_next_pop_and_keeps_the_later_ones() {
    let mut cluster = Cluster::new(1, true);
    let id = cluster.create(0, (10, 40), 1);
    assert_eq!(pops(&mut cluster, 12_000), [(10_000, 1)]);
    act(&mut cluster, 0, id, RunNow);
    act(&mut cluster, 0, id, RunNow);
    assert_eq!(pops(&mut cluster, 13_000), [(12_001, 2)], "no pop was made between");
    act(&mut cluster, 0, id, RunNow);
    assert_eq!(pops(&mut cluster, 60_000), [(13_001, 3), (40_000, 4)]);
    let id = cluster.create(0, (10, 10), 1);
    let before = act(&mut cluster, 0, id, RunNow);
    let unmet = ask_if(&mut cluster, 0, id, (RunNow, Condition::Version(Version(before.0 - 1))));
    assert_eq!(unmet, Answer::Refused(Refusal::Unmet));
    assert_eq!(pops(&mut cluster, 80_000), [(60_001, 1)]);
    assert!(cluster.holders(id).is_empty());
    // In a window a timer starts later than now.
    let spread = Attributes { window_ms: Some(50_000), ..Attributes::default() };
    let id = cluster.create_with(0, (10, 10), 1, &spread);
    act(&mut cluster, 0, id, RunNow);
    assert_eq!(pops(&mut cluster, 160_000), [(80_001, 1)]);
    cluster.audit();
}

/// What is told of the version before, how far it is, and how far the timer is then.
#[test]
fn a_pop_of_the_version_before_counts_for_the_one_that_an_action_made() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (10, 100), 2);
    let paused = act(&mut cluster, 0, id, Pause);
    let resumed = act(&mut cluster, 0, id, Resume);
    let now = cluster.now();
    let shard = cluster.shard(0);
    let slot = shard.find(id).expect("held");
    for (version, sequence, is_news, then) in
        [(paused, 0, false, 0), (resumed, 1, false, 0), (paused, 2, true, 2), (paused, 1, false, 2)]
    {
        let (told, mut outbox) = (StateKey { version, sequence }, Outbox::default());
        let case = (version, sequence);
        assert_eq!(shard.takes_earlier_pops(now, slot, told, &mut outbox), is_news, "{case:?}");
        assert_eq!(shard.records.get(slot).sequence, then, "{case:?}");
        assert_eq!(outbox.to_peers.len(), usize::from(is_news), "others are told: {case:?}");
    }
}

#[test]
fn one_of_two_runs_of_one_version_wins_on_every_node() {
    for at in 0..3 {
        let mut cluster = Cluster::new(3, true);
        let id = cluster.create(0, (50, 100), 2);
        cluster.run_until(1);
        let paused = act(&mut cluster, at, id, Pause);
        let resumed = ask_if(&mut cluster, at, id, (Resume, Condition::Version(paused)));
        let run = (RunNow, Condition::Version(version(&resumed)));
        let first = ask_if(&mut cluster, at, id, run);
        assert!(matches!(first, Answer::Identified(_)), "{first:?}");
        let second = ask_if(&mut cluster, (at + 1) % 3, id, run);
        assert_eq!(second, Answer::Refused(Refusal::Unmet));
        cluster.run_until(120);
        let seen: Vec<(u64, u64)> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
        assert_eq!(seen, [(1, 1), (100, 2)]);
        cluster.audit();
    }
}

#[test]
fn a_pause_holds_when_the_node_that_would_pop_dies_and_returns() {
    let mut cluster = Cluster::new(3, true);
    let id = cluster.create(0, (10, 10), 2);
    let first = cluster.list(id)[0];
    act(&mut cluster, 0, id, Pause);
    cluster.kill(first);
    cluster.run_until(60);
    cluster.return_empty(first);
    cluster.run_until(120);
    assert_eq!(cluster.pops, []);
    let at = (first + 1) % 3;
    act(&mut cluster, at, id, Resume);
    cluster.run_until(125);
    assert_eq!(cluster.pops.iter().map(|pop| pop.2).collect::<Vec<_>>(), [1]);
    cluster.audit();
}

#[test]
fn a_callback_that_runs_while_its_timer_is_paused_counts_if_it_is_taken() {
    for (outcome, after) in [(CallbackOutcome::Delivered, 2), (CallbackOutcome::Rejected, 1)] {
        let mut cluster = Cluster::new(2, true);
        let id = cluster.create(0, (10, 20), 2);
        let first = cluster.list(id)[0];
        cluster.hung = Some(first);
        cluster.run_until(11);
        assert_eq!(cluster.pops.len(), 1);
        act(&mut cluster, 1 - first, id, Pause);
        cluster.answer_callbacks(outcome);
        cluster.run_until(18);
        assert_eq!(cluster.pops.len(), 1, "its retries wait");
        act(&mut cluster, 1 - first, id, Resume);
        cluster.run_until(30);
        assert_eq!(cluster.pops[1].2, after);
        assert_eq!(cluster.pops.last().map(|pop| pop.2), Some(2));
        assert!(cluster.holders(id).is_empty());
        cluster.audit();
    }
}

#[test]
fn a_timer_whose_server_wants_no_more_ends_whatever_a_client_did_meanwhile() {
    let policy = Some(RetryPolicy::default());
    let cases: [(&[TimerAction], _, _); 6] = [
        (&[Pause], policy, true),
        (&[Pause, Resume], policy, true),
        (&[RunNow], policy, true),
        (&[Pause, Resume, Pause], policy, true),
        (&[Pause], None, false),
        (&[], policy, true),
    ];
    for (actions, retry, ends) in cases {
        let mut cluster = Cluster::new(3, true);
        let attributes = Attributes { retry, ..Attributes::default() };
        let id = cluster.create_with(0, (10, 100), 2, &attributes);
        let first = cluster.list(id)[0];
        cluster.hung = Some(first);
        cluster.run_until(11);
        assert_eq!(cluster.pops.len(), 1);
        for (at, action) in actions.iter().enumerate() {
            act(&mut cluster, (first + 1 + at) % 3, id, *action);
        }
        // Of a pop that a resume has let begin again there are two callbacks.
        cluster.answer_callbacks(CallbackOutcome::Gone);
        cluster.audit();
        assert_eq!(cluster.holders(id).is_empty(), ends, "{actions:?} {retry:?}");
        let resumed = ask(&mut cluster, first, id, Resume);
        assert_eq!(resumed == Answer::Refused(Refusal::NoTimer), ends, "{resumed:?}");
        let made = cluster.pops.len();
        cluster.run_until(120);
        assert_eq!(cluster.pops.len() == made, ends, "{actions:?}: {:?}", cluster.pops);
        let gone = (0..3).map(|node| cluster.shard(node).counters().gone).sum::<u64>();
        assert_eq!(gone, u64::from(ends), "{actions:?}");
        cluster.audit();
    }
}

#[test]
fn a_410_that_comes_after_its_pop_was_made_again_and_taken_ends_the_timer() {
    for is_replaced in [false, true] {
        let mut cluster = Cluster::new(3, true);
        let retry = Some(RetryPolicy::default());
        let attributes = Attributes { retry, ..Attributes::default() };
        let id = cluster.create_with(0, (10, 100), 2, &attributes);
        let first = cluster.list(id)[0];
        cluster.hung = Some(first);
        cluster.run_until(11);
        let (node, late) = cluster.hanging.pop().expect("a callback under way");
        if is_replaced {
            let (mut encoded, mut content) = (Vec::new(), Vec::new());
            attributes.write(&mut encoded);
            encode_with_attributes("/pop", &[], (&encoded, b"opaque"), &mut content);
            let definition = definition((10, 100), 2, &content);
            cluster.ask(first, Request::Update(target(id, 2), definition));
        }
        act(&mut cluster, first, id, Pause);
        act(&mut cluster, (first + 1) % 3, id, Resume);
        cluster.hung = None;
        cluster.run_until(35);
        assert!(cluster.pops.len() > 1, "the pop was made again");
        let counted = cluster.shard(first).counters().outdated;
        let (ticket, outcome) = (late, CallbackOutcome::Gone);
        cluster.handle(node, Event::CallbackFinished { ticket, outcome });
        assert_eq!(cluster.holders(id).is_empty(), !is_replaced);
        let outdated = cluster.shard(first).counters().outdated - counted;
        assert_eq!(outdated, u64::from(is_replaced));
        cluster.audit();
    }
}

/// What was written anew meanwhile is another timer to its server.
#[test]
fn a_410_to_a_timer_that_was_replaced_and_paused_since_ends_nothing() {
    let mut cluster = Cluster::new(2, true);
    let attributes = Attributes { retry: Some(RetryPolicy::default()), ..Attributes::default() };
    let id = cluster.create_with(0, (10, 100), 2, &attributes);
    let first = cluster.list(id)[0];
    cluster.hung = Some(first);
    cluster.run_until(11);
    cluster.put(1 - first, id, (20, 20), 2);
    act(&mut cluster, 1 - first, id, Pause);
    cluster.answer_callbacks(CallbackOutcome::Gone);
    assert_eq!(cluster.holders(id).len(), 2);
    assert_eq!(state(&mut cluster, first, id), State::Paused);
    cluster.audit();
}

#[test]
fn a_pop_under_way_is_not_made_twice_by_a_run() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (10, 20), 2);
    let first = cluster.list(id)[0];
    cluster.hung = Some(first);
    cluster.run_until(11);
    act(&mut cluster, 1 - first, id, RunNow);
    assert_eq!(state(&mut cluster, first, id), State::InFlight);
    cluster.answer_callbacks(CallbackOutcome::Delivered);
    cluster.run_until(30);
    let seen: Vec<(u64, u64)> = cluster.pops.iter().map(|pop| (pop.0, pop.2)).collect();
    assert_eq!(seen, [(10, 1), (20, 2)]);
    cluster.audit();
}

#[test]
fn the_last_pop_of_a_timer_that_was_run_leaves_a_dead_letter_on_all_nodes() {
    let mut cluster = Cluster::new(2, true);
    cluster.outcome = |_, sequence| match sequence {
        1 => CallbackOutcome::Delivered,
        _ => CallbackOutcome::Rejected,
    };
    let retry = Some(RetryPolicy { max_attempts: 2, ..RetryPolicy::default() });
    let attributes = Attributes { retry, ..Attributes::default() };
    let id = cluster.create_with(0, (10, 20), 2, &attributes);
    act(&mut cluster, 0, id, RunNow);
    cluster.run_until(40);
    assert_eq!([0, 1].map(|node| state(&mut cluster, node, id)), [State::Parked; 2]);
    cluster.audit();
}

#[test]
fn a_calendar_goes_on_behind_a_pause() {
    let mut cluster = Cluster::new(1, true);
    let wall_ms = cluster.wall_ms(0);
    let due_ms = (wall_ms / 10_000 + 1) * 10_000;
    let cron = CronTiming {
        expression: "*/10 * * * * *",
        zone: "UTC",
        due_ms,
        done: 0,
        catch_up_ms: 60_000,
        end_ms: None,
    };
    let wait_ms = due_ms - wall_ms;
    let attributes = Attributes { cron: Some(cron), ..Attributes::default() };
    let id = cluster.create_ms(0, wait_ms, 1, &attributes);
    assert_eq!(pops(&mut cluster, wait_ms + 1_000), [(wait_ms, 1)]);
    act(&mut cluster, 0, id, Pause);
    assert_eq!(pops(&mut cluster, wait_ms + 35_000), []);
    act(&mut cluster, 0, id, Resume);
    let at = |ms: u64| wait_ms + ms;
    let seen = pops(&mut cluster, at(52_000));
    let close = |ms: u64, expected: u64| ms.abs_diff(at(expected)) <= 2;
    assert!(seen.len() == 3 && close(seen[0].0, 35_001), "{seen:?}");
    assert!(close(seen[1].0, 40_000) && close(seen[2].0, 50_000), "{seen:?}");
    act(&mut cluster, 0, id, RunNow);
    let seen = pops(&mut cluster, at(75_000));
    assert!(seen.len() == 3 && close(seen[0].0, 52_001), "{seen:?}");
    assert!(close(seen[1].0, 60_000) && close(seen[2].0, 70_000), "all times come: {seen:?}");
    cluster.audit();
}

#[test]
fn a_member_of_the_original_service_cannot_hold_what_was_paused() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (10, 10), 1);
    let peer = cluster.peer(0, 1).expect("a member");
    let (liveness, dialect) = (Liveness::Alive, Dialect::Http);
    cluster.handle(0, Event::Peer { peer, liveness, dialect, has_gaps: false });
    for action in TimerAction::ALL {
        assert_eq!(ask(&mut cluster, 0, id, action), Answer::Refused(Refusal::Original));
    }
}

#[test]
fn what_ends_or_replaces_a_paused_timer_does_so() {
    let mut cluster = Cluster::new(3, true);
    let id = cluster.create(0, (10, 10), 2);
    act(&mut cluster, 1, id, Pause);
    cluster.put(2, id, (5, 5), 2);
    cluster.run_until(8);
    assert_eq!(cluster.pops.len(), 1, "it was replaced by one that is not paused");
    let id = cluster.create(0, (10, 10), 2);
    act(&mut cluster, 1, id, Pause);
    let deleted = cluster.ask(2, Request::Delete(target(id, 2)));
    assert!(matches!(deleted, Answer::Done { .. }));
    assert!(cluster.holders(id).is_empty());
    assert_eq!(ask(&mut cluster, 0, id, Resume), Answer::Refused(Refusal::NoTimer));
    cluster.audit();
}

/// What a timer that starts at 0 is to do, by the rules of docs/api.md alone.
struct Expected {
    interval_ms: u64,
    pops: u64,
    done: u64,
    is_paused: bool,
    is_forced: bool,
}

impl Expected {
    /// The pop of this millisecond, if there is one.
    fn pop(&mut self, ms: u64) -> Option<u64> {
        let is_due = self.is_forced || ms >= self.interval_ms * (self.done + 1);
        if self.is_paused || self.done == self.pops || !is_due {
            return None;
        }
        (self.done, self.is_forced) = (self.done + 1, false);
        Some(self.done)
    }

    /// Whether the action changes the timer; `None`: it is refused.
    fn act(&mut self, ms: u64, action: TimerAction) -> Option<bool> {
        let was_paused = self.is_paused;
        let come = (ms / self.interval_ms).min(self.pops);
        match action {
            _ if self.done == self.pops => return None,
            Pause => self.is_paused = true,
            RunNow if was_paused => return None,
            RunNow => self.is_forced = true,
            Resume if !was_paused => {}
            Resume => {
                self.is_paused = false;
                if come > self.done {
                    (self.done, self.is_forced) = (come - 1, true);
                }
            }
        }
        Some(action == RunNow || was_paused != self.is_paused)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_timer_does_what_its_rules_say(
        interval_ms in 20..400_u64,
        pops in 1..8_u64,
        actions in proptest::collection::vec((1..500_u64, 0..3_usize), 1..12),
        is_spread in any::<bool>(),
    ) {
        let mut cluster = Cluster::new(1, true);
        // A window of 0 changes nothing but the way in which the timer is stored.
        let window_ms = is_spread.then_some(0);
        let attributes = Attributes { window_ms, ..Attributes::default() };
        let id = cluster.create_lasting(0, (interval_ms, interval_ms * pops), 1, &attributes);
        let (is_paused, is_forced) = (false, false);
        let mut expected = Expected { interval_ms, pops, done: 0, is_paused, is_forced };
        let (mut seen, mut last) = (Vec::new(), None);
        let mut pass = |cluster: &mut Cluster, expected: &mut Expected, until_ms: u64| {
            for ms in cluster.passed_ms() + 1..=until_ms {
                cluster.pass_to(ms);
                seen.extend(expected.pop(ms));
                let made: Vec<u64> = cluster.pops.iter().map(|pop| pop.2).collect();
                prop_assert_eq!(&made, &seen, "at {} ms", ms);
            }
            Ok(())
        };
        let mut at_ms = 0;
        for (gap_ms, action) in actions {
            at_ms += gap_ms;
            pass(&mut cluster, &mut expected, at_ms)?;
            let action = TimerAction::ALL[action];
            let answer = ask(&mut cluster, 0, id, action);
            match expected.act(at_ms, action) {
                None => prop_assert!(matches!(answer, Answer::Refused(_)), "{:?}", answer),
                Some(is_changed) => {
                    let made = version(&answer);
                    let is_new = last.is_none_or(|last| made > last);
                    prop_assert_eq!(is_new, is_changed || last.is_none());
                    last = Some(made);
                }
            }
            cluster.audit();
        }
        if expected.is_paused {
            ask(&mut cluster, 0, id, Resume);
            expected.act(at_ms, Resume);
        }
        pass(&mut cluster, &mut expected, at_ms + interval_ms * (pops + 2))?;
        prop_assert!(cluster.holders(id).is_empty());
        cluster.audit();
    }
}

#[test]
fn the_callback_of_another_timer_ends_nothing() {
    for (is_other, sequence) in [(true, 0), (false, 1)] {
        let mut cluster = Cluster::new(1, true);
        let id = cluster.create(0, (10, 100), 1);
        cluster.hung = Some(0);
        cluster.run_until(11);
        let (_, ticket) = cluster.hanging.pop().expect("a callback under way");
        act(&mut cluster, 0, id, Pause);
        let other = TimerId(id.0 ^ u64::from(is_other));
        let (ticket, outcome) = (Ticket { id: other, ..ticket }, CallbackOutcome::Delivered);
        cluster.handle(0, Event::CallbackFinished { ticket, outcome });
        let shard = cluster.shard(0);
        let record = *shard.records.get(shard.find(id).expect("it is held"));
        assert_eq!(record.sequence, sequence, "{is_other}");
    }
}

#[test]
fn an_action_that_was_judged_without_a_pop_is_behind_where_the_pop_is_known() {
    let mut cluster = Cluster::new(1, true);
    let [acted, plain] = [(); 2].map(|()| cluster.create(0, (10, 100), 1));
    act(&mut cluster, 0, acted, Pause);
    let shard = cluster.shard(0);
    for (id, is_acted) in [(acted, true), (plain, false)] {
        let record = *shard.records.get(shard.find(id).expect("held"));
        let mut room = Vec::new();
        let copy = shard.copy_of(&record, &mut room);
        let popped = Record { sequence: record.sequence + 1, ..record };
        let other = Version(record.version.0 - 1);
        for (held, seen, is_behind) in [
            (&popped, record.version, is_acted),
            (&popped, other, false),
            (&record, record.version, false),
        ] {
            let found = Shard::is_behind(held, seen, &copy);
            assert_eq!(found, is_behind, "{is_acted} {seen:?} {}", held.sequence);
        }
    }
}
