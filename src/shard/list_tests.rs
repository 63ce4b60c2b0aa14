//! Lists of one shard while its timers come, pop and go, and of a cluster whose nodes all tell of
//! what they hold.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::ids::TimerId;
use crate::base::time::WallMs;
use crate::cluster::detector::Liveness;
use crate::shard::effects::{Answer, CallbackOutcome, Condition, Conditional, Internal, Request};
use crate::shard::harness_tests::{Cluster, START_MS, definition};
use crate::shard::parts::list::WINDOW_MIN;
use crate::timer::definition::encode_with_attributes;
use crate::timer::naming::id_of_name;
use crate::wire::attributes::{Attributes, RetryPolicy};
use crate::wire::dead_letter::GivenUp;
use crate::wire::jobs::{JobReport, JobState, JobsPart};
use crate::wire::list_query::OwnedFilter;
use crate::wire::timer_action::TimerAction;
use crate::wire::timer_list::{LIST_LIMIT_MAX, read_listed, read_part};

const ALL: ListAsk<'_> =
    ListAsk { walk: 1, from: Place(0), limit: LIST_LIMIT_MAX, filter: Filter::ALL };

/// A timer of a list: its id, its state, whether it is told by the first rank, when it is due.
type Told = (TimerId, ListedState, bool, i64);

fn part(cluster: &mut Cluster, node: usize, ask: &ListAsk<'_>) -> (PartHead, Vec<Told>) {
    let mut bytes = Vec::new();
    ask.encode(&mut bytes);
    let Answer::Internal(answer) = cluster.ask(node, Request::List(&bytes)) else {
        panic!("a part is asked for")
    };
    let Internal::ListPart(Some(part)) = *answer else { panic!("{answer:?}") };
    let mut part = &part[..];
    let head = read_part(&mut part).expect("a part");
    let mut told = Vec::new();
    while !part.is_empty() {
        let listed = read_listed(&mut part).expect("a timer");
        told.push((listed.copy.standing.id, listed.state, listed.is_first, listed.due_in_ms));
    }
    assert!(told.iter().map(|told| Place::of(told.0)).is_sorted(), "in the order of places");
    (head, told)
}

/// All timers of a list of one node, and how many questions it took.
fn all_of(cluster: &mut Cluster, node: usize, ask: ListAsk<'_>) -> (Vec<Told>, u64) {
    let (mut ask, mut all, mut asked) = (ask, Vec::new(), 0);
    loop {
        let (head, told) = part(cluster, node, &ask);
        all.extend(told);
        asked += 1;
        if head.is_done {
            return (all, asked);
        }
        ask.from = head.until;
        if head.is_starved {
            cluster.now_ms += 1;
        }
        assert!(asked < 100_000, "it does not end: {head:?} {}", all.len());
    }
}

fn ids(told: &[Told]) -> BTreeSet<TimerId> {
    let ids: BTreeSet<_> = told.iter().map(|told| told.0).collect();
    assert_eq!(ids.len(), told.len(), "each once");
    ids
}

#[test]
fn all_timers_are_told_over_several_windows_with_bounded_work() {
    let mut cluster = Cluster::new(1, true);
    let count = WINDOW_MIN as u64 + 5_000;
    let made: BTreeSet<_> = (1..=count).map(TimerId).collect();
    for id in &made {
        cluster.put(0, *id, (1_000, 1_000), 1);
    }
    let before = cluster.shard(0).counters.list_looks;
    let began_ms = cluster.now_ms;
    let (told, _) = all_of(&mut cluster, 0, ALL);
    assert_eq!(ids(&told), made);
    assert_eq!(cluster.shard(0).counters.listed, count);
    let looks = cluster.shard(0).counters.list_looks - before;
    // Two walks, a sort, and what each timer costs.
    assert!(looks < count * u64::from(LOOKS_PER_TIMER + 4), "{looks} looks");
    let ticks = cluster.now_ms - began_ms;
    assert!(ticks >= looks / 50_000 - 2, "{looks} looks in {ticks} ticks");
    let (first, _) = all_of(&mut cluster, 0, ListAsk { walk: 2, limit: 7, ..ALL });
    let ids = |told: &[Told]| told.iter().map(|told| told.0).collect::<Vec<_>>();
    assert!(ids(&first) == ids(&told), "the order is the same, whatever the limit");
}

#[test]
fn a_part_costs_no_more_than_its_share() {
    let mut cluster = Cluster::new(1, true);
    for id in 1..=30_000 {
        cluster.put(0, TimerId(id), (1_000, 1_000), 1);
    }
    let filter = Filter { host: Some("nowhere"), ..Filter::ALL };
    let mut all = 0;
    for walk in 0..10 {
        let before = cluster.shard(0).counters.list_looks;
        part(&mut cluster, 0, &ListAsk { walk, filter, ..ALL });
        let looks = cluster.shard(0).counters.list_looks - before;
        assert!(looks <= u64::from(LOOKS_PER_PART), "{looks}");
        all += looks;
    }
    assert!(all <= 50_000, "{all} looks in one tick, whoever asks");
}

#[test]
fn a_timer_that_is_there_all_the_time_is_told_once() {
    let mut cluster = Cluster::new(1, true);
    let stay: BTreeSet<_> = (1..=500).map(TimerId).collect();
    let target = crate::shard::harness_tests::target;
    (1..=1_000).for_each(|id| cluster.put(0, TimerId(id), (1, 100_000), 1));
    let (mut ask, mut told) = (ListAsk { limit: 9, ..ALL }, Vec::new());
    for step in 0.. {
        let (head, more) = part(&mut cluster, 0, &ask);
        told.extend(more);
        if head.is_done {
            break;
        }
        ask.from = head.until;
        // Timers pop, so that their due times change; others end, and new ones come.
        cluster.pass_to(step * 20);
        let gone = TimerId(501 + step * 3);
        cluster.ask(0, Request::Delete(target(gone, 1)));
        cluster.put(0, TimerId(5_000 + step), (1, 100_000), 1);
        // What is written anew keeps its place.
        cluster.put(0, TimerId(1 + step % 500), (2, 100_000), 1);
    }
    assert!(ids(&told).is_superset(&stay));
}

#[test]
fn a_timer_that_moves_here_between_two_pages_is_told() {
    let mut cluster = Cluster::new(1, true);
    let stay: BTreeSet<_> = (1..=100).map(TimerId).collect();
    stay.iter().for_each(|id| cluster.put(0, *id, (1_000, 1_000), 1));
    let (head, mut told) = part(&mut cluster, 0, &ListAsk { limit: 20, ..ALL });
    // They come into fresh slots and into one that another timer had.
    let gone = told[0].0;
    cluster.ask(0, Request::Delete(crate::shard::harness_tests::target(gone, 1)));
    let come: BTreeSet<_> = (201..=300).map(TimerId).collect();
    come.iter().for_each(|id| cluster.put(0, *id, (1_000, 1_000), 1));
    told.extend(all_of(&mut cluster, 0, ListAsk { from: head.until, ..ALL }).0);
    let told = ids(&told);
    let behind = come.iter().filter(|id| Place::of(**id) >= head.until);
    assert!(told.is_superset(&stay) && behind.clone().count() > 10);
    assert!(behind.clone().all(|id| told.contains(id)));
    // More of them come than a shard takes note of.
    let from = ListAsk { from: head.until, ..ALL };
    (301..=18_000).for_each(|id| cluster.put(0, TimerId(id), (1_000, 1_000), 1));
    let all = ids(&all_of(&mut cluster, 0, from).0);
    let behind = (201..=18_000).map(TimerId).filter(|id| Place::of(*id) >= head.until);
    assert!(behind.into_iter().all(|id| all.contains(&id)));
}

#[test]
fn a_timer_that_was_created_before_the_list_began_is_in_it() {
    let mut cluster = Cluster::new(1, true);
    for id in 1..=100 {
        cluster.put(0, TimerId(id), (1_000, 1_000), 1);
        let (told, _) = all_of(&mut cluster, 0, ListAsk { walk: id, ..ALL });
        assert_eq!(told.len() as u64, id);
    }
}

#[test]
fn states_and_due_times_are_those_of_the_moment() {
    let mut cluster = Cluster::new(1, true);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    cluster.put(0, TimerId(1), (5, 5), 1);
    cluster.put(0, TimerId(2), (500, 500), 1);
    let (told, _) = all_of(&mut cluster, 0, ALL);
    let of = |told: &[Told], id| *told.iter().find(|told| told.0 == TimerId(id)).expect("told");
    assert_eq!(of(&told, 1), (TimerId(1), ListedState::Armed, true, 5_000));
    cluster.run_until(6);
    let (told, _) = all_of(&mut cluster, 0, ListAsk { walk: 2, ..ALL });
    assert_eq!(of(&told, 1), (TimerId(1), ListedState::BackingOff, true, -1_000));
    assert_eq!(of(&told, 2), (TimerId(2), ListedState::Armed, true, 494_000));
    let mut walk = 10;
    let mut listed = |cluster: &mut Cluster, filter| {
        walk += 1;
        ids(&all_of(cluster, 0, ListAsk { walk, filter, ..ALL }).0)
    };
    let (one, two) = ([TimerId(1)].into(), [TimerId(2)].into());
    let states = |state: ListedState| Filter { states: state.bit(), ..Filter::ALL };
    assert_eq!(listed(&mut cluster, states(ListedState::BackingOff)), one);
    assert_eq!(listed(&mut cluster, states(ListedState::Armed)), two);
    let at = |ms: u64| Some(WallMs(START_MS + ms));
    let due = |due_after, due_before| Filter { due_after, due_before, ..Filter::ALL };
    assert_eq!(listed(&mut cluster, due(None, at(5_001))), one);
    assert_eq!(listed(&mut cluster, due(None, at(5_000))), BTreeSet::new());
    assert_eq!(listed(&mut cluster, due(at(5_000), at(500_000))), one);
    assert_eq!(listed(&mut cluster, due(at(5_001), None)), two);
    assert_eq!(listed(&mut cluster, Filter { tag: Some("CALL"), ..Filter::ALL }).len(), 2);
    assert_eq!(listed(&mut cluster, Filter { tag: Some("call"), ..Filter::ALL }).len(), 0);
    assert_eq!(listed(&mut cluster, Filter { name_prefix: Some("a"), ..Filter::ALL }).len(), 0);
    assert_eq!(listed(&mut cluster, Filter { host: Some("HOST"), ..Filter::ALL }).len(), 2);
    assert_eq!(listed(&mut cluster, Filter { host: Some("host:80"), ..Filter::ALL }).len(), 2);
    assert_eq!(listed(&mut cluster, Filter { host: Some("host:8"), ..Filter::ALL }).len(), 0);
}

/// How often each timer is told by a first rank, over all nodes.
fn firsts(cluster: &mut Cluster, filter: Filter<'_>, walk: u64) -> BTreeMap<TimerId, usize> {
    let mut firsts = BTreeMap::new();
    for node in 0..cluster.nodes.len() {
        if cluster.nodes[node].shard.is_some() {
            let (told, _) = all_of(cluster, node, ListAsk { walk, filter, ..ALL });
            for (id, _, is_first, _) in told {
                *firsts.entry(id).or_default() += usize::from(is_first);
            }
        }
    }
    firsts
}

#[test]
fn one_holder_that_lives_is_the_first() {
    let mut cluster = Cluster::new(4, true);
    let made: Vec<_> = (0..60).map(|node| cluster.create(node % 4, (100, 100), 2)).collect();
    for (walk, filter) in
        [(1, Filter::ALL), (2, Filter { states: ListedState::Armed.bit(), ..Filter::ALL })]
    {
        let told = firsts(&mut cluster, filter, walk);
        assert_eq!(told.len(), made.len());
        assert!(told.values().all(|firsts| *firsts == 1), "{told:?}");
    }
    cluster.kill(2);
    for at in [0, 1, 3] {
        cluster.believe(at, 2, Liveness::Dead);
    }
    let told = firsts(&mut cluster, Filter::ALL, 3);
    assert_eq!(told.len(), made.len(), "another node holds each");
    assert!(told.values().all(|firsts| *firsts == 1), "{told:?}");
}

#[test]
fn a_peer_asks_the_shard_that_it_names() {
    let mut cluster = Cluster::new(2, true);
    let id = cluster.create(0, (100, 100), 2);
    let mut ask = Vec::new();
    ALL.encode(&mut ask);
    let now = cluster.now();
    let mut tell = |shard, ask: &[u8]| {
        use crate::wire::peer_message::PeerMessage;
        let mut bytes = Vec::new();
        PeerMessage::List { shard, ask }.encode(&mut bytes);
        crate::shard::harness_tests::tell(cluster.shard(0), now, None, &bytes).0
    };
    use crate::wire::peer_message::{PeerRefusal, PeerResult, decode_result};
    let found = tell(0, &ask);
    let Ok(PeerResult::Found(mut part)) = decode_result(&mut &found[..]) else {
        panic!("a part: {found:?}")
    };
    assert!(read_part(&mut part).expect("a part").is_done);
    assert_eq!(read_listed(&mut part).expect("a timer").copy.standing.id, id);
    assert_eq!(decode_result(&mut &tell(1, &ask)[..]), Ok(PeerResult::NotFound));
    let malformed = Ok(PeerResult::Refused(PeerRefusal::Malformed));
    assert_eq!(decode_result(&mut &tell(0, &ask[..ask.len() - 1])[..]), malformed);
}

#[test]
fn hosts_are_named_with_or_without_their_ports() {
    for (authority, host, is_it) in [
        ("a.example:80", "a.example", true),
        ("a.example:80", "A.Example:80", true),
        ("a.example", "a.example:80", false),
        ("[::1]:80", "[::1]", true),
        ("[::1]", "[::1]", true),
        ("[::1]", "[:", false),
        ("a.example:80", "a.example:8", false),
        ("a.example", "example", false),
    ] {
        assert_eq!(is_at(authority, host), is_it, "{authority} {host}");
    }
}

#[test]
fn only_letters_are_told_by_all_holders_where_states_are_asked_for() {
    let mut cluster = Cluster::new(2, true);
    cluster.run_until(10);
    cluster.outcome = |_, _| CallbackOutcome::Rejected;
    let policy = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let attributes = Attributes { retry: Some(policy), ..Attributes::default() };
    let letter = cluster.create_with(0, (1, 1), 2, &attributes);
    let armed = cluster.create(0, (500, 500), 2);
    cluster.run_until(40);
    let told = |cluster: &mut Cluster, walk, filter| {
        let of = |node| all_of(cluster, node, ListAsk { walk, filter, ..ALL }).0;
        let told: Vec<_> = [0, 1].map(of).concat();
        told.into_iter().map(|told| told.0).collect::<Vec<_>>()
    };
    let of = |states: ListedState| Filter { states: states.bit(), ..Filter::ALL };
    assert_eq!(told(&mut cluster, 1, of(ListedState::Parked)), [letter; 2]);
    assert_eq!(told(&mut cluster, 2, of(ListedState::Armed)), [armed], "the first rank knows");
    assert_eq!(told(&mut cluster, 3, Filter::ALL), [armed; 2], "states are not asked for");
    let given_up = |reason| Filter { reason: Some(reason), ..of(ListedState::Parked) };
    assert_eq!(told(&mut cluster, 4, given_up(GivenUp::Attempts)), [letter; 2]);
    assert_eq!(told(&mut cluster, 5, given_up(GivenUp::Age)), []);
}

#[test]
fn timers_are_listed_by_the_beginning_of_their_names() {
    let mut cluster = Cluster::new(1, true);
    for name in ["order-1", "order-2", "other"] {
        let (mut encoded, mut named) = (Vec::new(), Vec::new());
        Attributes { name: Some(name), ..Attributes::default() }.write(&mut encoded);
        encode_with_attributes("/pop", &[], (&encoded, b"x"), &mut named);
        let target = crate::shard::harness_tests::target(id_of_name(name), 1);
        cluster.ask(0, Request::Update(target, definition((500, 500), 1, &named)));
    }
    cluster.create(0, (500, 500), 1);
    for (walk, prefix, count) in [(1, "order-", 2), (2, "o", 3), (3, "x", 0)] {
        let filter = Filter { name_prefix: Some(prefix), ..Filter::ALL };
        let (told, _) = all_of(&mut cluster, 0, ListAsk { walk, filter, ..ALL });
        assert_eq!(told.len(), count, "{prefix}");
    }
}

#[test]
fn the_jobs_of_a_core_are_told_to_whoever_asks() {
    let mut cluster = Cluster::new(1, true);
    let report = JobReport {
        id: 77,
        state: JobState::Running,
        is_incomplete: false,
        seen: 1,
        deleted: 2,
        failed: 3,
        began: WallMs(4),
        ended: None,
        owner: "a".into(),
        filter: OwnedFilter::copy(&Filter::ALL),
    };
    assert!(cluster.shard(0).jobs.begin(report.clone()));
    for (job, jobs) in [(None, vec![report.clone()]), (Some(77), vec![report]), (Some(78), vec![])]
    {
        let mut bytes = Vec::new();
        JobsAsk { job, is_stop: false }.encode(&mut bytes);
        let Answer::Internal(answer) = cluster.ask(0, Request::List(&bytes)) else {
            panic!("a part is asked for")
        };
        let Internal::ListPart(Some(part)) = *answer else { panic!("{answer:?}") };
        let mut wanted = Vec::new();
        JobsPart { shards: 1, jobs }.encode(&mut wanted);
        assert_eq!(part[..], wanted, "{job:?}");
    }
}

#[test]
fn a_paused_timer_is_told_as_if_it_were_not_and_one_that_is_run_as_due() {
    let mut cluster = Cluster::new(1, true);
    let id = TimerId(1);
    cluster.put(0, id, (500, 500), 1);
    let mut walk = 0;
    let mut told = |cluster: &mut Cluster, action| {
        let (target, definition) = (crate::shard::harness_tests::target(id, 1), None);
        let condition = Condition::Present;
        let action = Conditional { target, condition, definition, action: Some(action) };
        cluster.ask(0, Request::Conditional(action));
        walk += 1;
        let (told, _) = all_of(cluster, 0, ListAsk { walk, ..ALL });
        (told[0].1, told[0].3)
    };
    assert_eq!(told(&mut cluster, TimerAction::Pause), (ListedState::Paused, 500_000));
    cluster.run_until(3);
    assert_eq!(told(&mut cluster, TimerAction::Resume), (ListedState::Armed, 497_000));
    let (state, due_in_ms) = told(&mut cluster, TimerAction::RunNow);
    assert!(state == ListedState::Armed && (0..=1).contains(&due_in_ms), "{due_in_ms}");
}

#[test]
fn a_timer_is_found_where_it_is_if_another_has_taken_its_slot() {
    let mut cluster = Cluster::new(1, true);
    let (id, other, gone) = (TimerId(1), TimerId(2), TimerId(3));
    cluster.put(0, id, (500, 500), 1);
    cluster.put(0, other, (500, 500), 1);
    let now = cluster.now();
    let shard = cluster.shard(0);
    let taken = shard.find(other).expect("it is held");
    let (mut part, mut nothing) = (Vec::new(), Vec::new());
    assert!(shard.write_part(now, &Filter::ALL, (Place::of(id), taken), &mut part));
    assert_eq!(read_listed(&mut &part[..]).expect("a timer").copy.standing.id, id);
    assert!(!shard.write_part(now, &Filter::ALL, (Place::of(gone), taken), &mut nothing));
    assert!(nothing.is_empty());
}
