//! Pages put together from parts that come in any order, late, or not at all.

use std::collections::BTreeSet;

use super::*;
use crate::base::ids::{NodeHash, TimerId};
use crate::base::ranked::{Replicas, Sites};
use crate::base::time::{MonoNs, TICK_NS, WallMs};
use crate::cluster::view::Membership;
use crate::timer::definition::encode_content;
use crate::wire::peer_message::{CopyBody, Standing};
use crate::wire::timer_list::{ListedState, begin_part, end_part, write_listed};

const OWN: ShardIndex = ShardIndex(0);
const FROM: Requester = Requester { shard: OWN, connection: 3, generation: 4, request: 5 };

fn at(ms: u64) -> Now {
    Now { mono: MonoNs(ms * TICK_NS), wall: WallMs(ms) }
}

fn view() -> View {
    let membership = Membership {
        localhost: "a".into(),
        nodes: vec!["a".into(), "b".into(), "c".into()],
        ..Membership::default()
    };
    View::build(None, &membership).expect("a good configuration")
}

fn query(text: &str) -> ListQuery {
    ListQuery::read(text, WallMs(0)).expect("good")
}

/// The timers of a node, as a shard would tell them.
#[derive(Clone, Default)]
struct Shard {
    /// Ids, sequences, whether the shard is of the first rank.
    timers: Vec<(u64, u64, bool)>,
    shards: u16,
    opaque_bytes: usize,
    departures: u32,
}

impl Shard {
    fn of(ids: impl IntoIterator<Item = u64>) -> Self {
        Self {
            timers: ids.into_iter().map(|id| (id, 0, true)).collect(),
            shards: 1,
            opaque_bytes: 1,
            departures: 0,
        }
    }

    fn part(&self, ask: &[u8], part_max: usize) -> Reply {
        let ask = ListAsk::decode(ask).expect("a question");
        let mut timers: Vec<_> = self.timers.clone();
        timers.retain(|timer| Place::of(TimerId(timer.0)) >= ask.from);
        timers.sort_by_key(|timer| Place::of(TimerId(timer.0)));
        let count = timers.len().min(usize::from(ask.limit)).min(part_max);
        let mut bytes = Vec::new();
        begin_part(&mut bytes);
        let mut content = Vec::new();
        encode_content("/x", &[], &vec![b'o'; self.opaque_bytes], &mut content);
        for (id, sequence, is_first) in &timers[..count] {
            let replicas: Replicas = [NodeHash(1)].into_iter().collect();
            let standing = Standing {
                id: TimerId(*id),
                version: 1,
                sequence: *sequence,
                actives: 1,
                list_digest: replicas.digest(),
            };
            let copy = TimerCopy {
                standing,
                is_write: false,
                replicas,
                factor: 1,
                sites: Sites::new(),
                start_ms: 10,
                interval_ms: 1,
                repeat_for_ms: 1_000,
                body: Some(CopyBody { authority: "h:1", content: &content }),
            };
            let state = if *is_first { ListedState::InFlight } else { ListedState::Armed };
            let listed = ListedCopy { state, is_first: *is_first, due_in_ms: 100, copy };
            write_listed(&listed, &mut bytes);
        }
        let is_done = count == timers.len();
        let until = timers.get(count).map_or(ask.from, |timer| Place::of(TimerId(timer.0)));
        let (shards, departures) = (self.shards, self.departures);
        let head = PartHead { is_done, is_starved: false, shards, departures, until };
        end_part(&mut bytes, &head);
        Reply::at_once(FROM, Answer::Internal(Box::new(Internal::ListPart(Some(bytes.into())))))
    }
}

/// A core with two shards, and another node.
struct World {
    lists: Lists,
    view: View,
    own: Vec<Shard>,
    others: Vec<Shard>,
    now_ms: u64,
    part_max: usize,
    /// Whether the other node answers.
    is_silent: bool,
    /// The most questions under way at one time.
    asked: usize,
}

impl World {
    fn new(own: Vec<Shard>, others: Vec<Shard>) -> Self {
        let mut world = Self {
            lists: Lists::default(),
            view: view(),
            own,
            others,
            now_ms: 1_000,
            part_max: usize::MAX,
            is_silent: false,
            asked: 0,
        };
        let shards = world.others.len() as u16;
        world.others.iter_mut().for_each(|shard| shard.shards = shards);
        world
    }

    fn peer(&self) -> PeerIndex {
        self.view.node_named("b").expect("a member")
    }

    fn begin(&mut self, query: ListQuery) -> Result<(), Refusal> {
        self.begin_by(7, query)
    }

    fn begin_by(&mut self, by: u64, query: ListQuery) -> Result<(), Refusal> {
        let peer = self.peer();
        let others = (!self.others.is_empty()).then_some((peer, Ok(())));
        let shards = ShardCount::new(self.own.len() as u16);
        let of = (&self.view, others.into_iter());
        self.lists.begin(at(self.now_ms), (7, shards), of, (FROM, by), query)
    }

    /// Asks and answers, a millisecond each, until the page is there.
    fn page(&mut self, query: ListQuery) -> ListPage {
        self.begin(query).expect("room");
        for _ in 0..5_000 {
            let (mut orders, mut replies) = (Vec::new(), Vec::new());
            let now = at(self.now_ms);
            self.lists.tick(now, (OWN, &self.view), &mut orders, &mut replies);
            self.asked += orders.len();
            // The last question is answered first.
            for order in orders.into_iter().rev() {
                let answer = match order.whom {
                    Whom::Shard(shard) => {
                        Some(self.own[usize::from(shard.0)].part(&order.ask, self.part_max))
                    }
                    Whom::Peer(..) if self.is_silent => None,
                    Whom::Peer(_, shard) => {
                        Some(self.others[usize::from(shard)].part(&order.ask, self.part_max))
                    }
                };
                if let Some(Reply { answer, .. }) = answer {
                    let reply = Reply::at_once(order.from, answer);
                    replies.extend(self.lists.take(now, &self.view, reply));
                }
            }
            assert!(replies.len() <= 1, "one page was asked for");
            if let Some(Reply { to, answer, .. }) = replies.pop() {
                assert_eq!(to, FROM);
                assert!(self.lists.is_empty());
                let Answer::Internal(page) = answer else { panic!("{answer:?}") };
                let Internal::List(page) = *page else { panic!("{page:?}") };
                return page;
            }
            assert!(self.lists.next_wake().is_some_and(|wake| wake.0 <= self.now_ms + 2_000));
            self.now_ms += 1;
        }
        panic!("no page")
    }

    fn all(&mut self, text: &str) -> Vec<u64> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.page(query(&format!("{text}{cursor}")));
            assert!(page.incomplete.is_empty());
            all.extend(ids(&page));
            let Some(next) = page.cursor else { return all };
            cursor = format!("&cursor={next}");
        }
    }
}

fn ids(page: &ListPage) -> Vec<u64> {
    page.timers.iter().map(|timer| timer.view.id.0).collect()
}

#[test]
fn streams_of_all_shards_are_merged_and_doubles_dropped() {
    let own = vec![Shard::of(0..40), Shard::of(40..45)];
    let others = vec![Shard::of(20..60), Shard::of((60..90).chain(0..10)), Shard::of([])];
    for (limit, part_max) in [(1, 9), (3, 1), (10, 4), (89, 1_000), (90, 7), (1_000, 1_000)] {
        let mut world = World::new(own.clone(), others.clone());
        world.part_max = part_max;
        let all = world.all(&format!("limit={limit}"));
        assert!(all.iter().map(|id| Place::of(TimerId(*id))).is_sorted());
        let unique: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!((all.len(), unique), (90, (0..90).collect()), "{limit} {part_max}");
    }
}

#[test]
fn the_newest_state_is_shown_and_of_equal_states_the_first_ranks() {
    let told =
        |sequence, is_first| Shard { timers: vec![(5, sequence, is_first)], ..Shard::of([]) };
    for (own, other, sequence, state) in [
        (told(3, true), told(4, false), 4, ListedState::Armed),
        (told(4, false), told(3, true), 4, ListedState::Armed),
        (told(4, false), told(4, true), 4, ListedState::InFlight),
        (told(4, true), told(4, false), 4, ListedState::InFlight),
    ] {
        let page = World::new(vec![own], vec![other]).page(query(""));
        let [timer] = &page.timers[..] else { panic!("{page:?}") };
        assert_eq!((timer.view.sequence, timer.state), (sequence, state));
    }
}

#[test]
fn a_silent_node_is_left_out_and_named() {
    let mut world = World::new(vec![Shard::of(0..5)], vec![Shard::of(3..9)]);
    world.is_silent = true;
    let began_ms = world.now_ms;
    let page = world.page(query(""));
    assert_eq!(ids(&page).into_iter().collect::<BTreeSet<_>>(), (0..5).collect());
    assert!(page.incomplete[0].starts_with("b: no answer within a second;"), "{page:?}");
    assert_eq!((page.incomplete.len(), page.cursor), (1, None));
    assert!((PEER_MS..PEER_MS + 5).contains(&(world.now_ms - began_ms)));
}

#[test]
fn nodes_that_cannot_be_asked_are_named() {
    let mut lists = Lists::default();
    let view = view();
    let peer = view.node_named("c").expect("a member");
    let of = (&view, [(peer, Err("not reached"))].into_iter());
    lists.begin(at(1), (1, ShardCount::new(1)), of, (FROM, 7), query("")).expect("room");
    let (mut orders, mut replies) = (Vec::new(), Vec::new());
    lists.tick(at(1), (OWN, &view), &mut orders, &mut replies);
    let order = orders.pop().expect("the own shard is asked");
    let Reply { answer, .. } = Shard::of([1]).part(&order.ask, 10);
    let whole = lists.take(at(1), &view, Reply::at_once(order.from, answer)).expect("the page");
    let Answer::Internal(page) = whole.answer else { panic!("{whole:?}") };
    let Internal::List(page) = *page else { panic!("{page:?}") };
    assert_eq!(page.incomplete, ["c: not reached; timers that no other node holds are missing"]);
}

#[test]
fn nonsense_of_a_node_costs_that_node_alone() {
    for nonsense in [
        Some(vec![]),
        Some(vec![9; 15]),
        Some(vec![0; 15]),
        Some([&[0, 1, 0, 0, 0, 0, 0][..], &[0xff; 8], &[7; 9]].concat()),
        None,
    ] {
        let mut world = World::new(vec![Shard::of(0..5)], vec![Shard::of(3..9)]);
        world.begin(query("limit=2")).expect("room");
        let (mut orders, mut replies) = (Vec::new(), Vec::new());
        let now = at(world.now_ms);
        world.lists.tick(now, (OWN, &world.view), &mut orders, &mut replies);
        let mut pages = Vec::new();
        for order in orders {
            let answer = match order.whom {
                Whom::Shard(_) => world.own[0].part(&order.ask, 10).answer,
                Whom::Peer(..) => {
                    let part = nonsense.clone().map(Into::into);
                    Answer::Internal(Box::new(Internal::ListPart(part)))
                }
            };
            let reply = Reply::at_once(order.from, answer);
            pages.extend(world.lists.take(now, &world.view, reply.clone()));
            // A second answer finds nothing to change.
            assert!(world.lists.take(now, &world.view, reply).is_none());
        }
        let Some(Answer::Internal(page)) = pages.pop().map(|page| page.answer) else {
            panic!("{nonsense:?}")
        };
        let Internal::List(page) = *page else { panic!("{page:?}") };
        assert_eq!((page.timers.len(), page.incomplete.len()), (2, 1), "{nonsense:?}");
    }
}

#[test]
fn large_timers_end_a_page() {
    let large = Shard { opaque_bytes: 400_000, ..Shard::of(0..10) };
    let mut world = World::new(vec![large.clone()], vec![large]);
    world.part_max = 2;
    let page = world.page(query("limit=10"));
    assert_eq!(page.timers.len(), 3, "1.2 MB");
    assert_eq!(world.all("limit=10").len(), 10);
    // Nothing is asked for that has no room in the page.
    for (opaque_bytes, limit, part_max, asked) in [(400_000, 10, 1, 3), (1, 3, 3, 1)] {
        let shard = Shard { opaque_bytes, ..Shard::of(0..10) };
        let mut world = World::new(vec![shard], vec![]);
        world.part_max = part_max;
        let page = world.page(query(&format!("limit={limit}")));
        assert_eq!((page.timers.len(), world.asked), (3, asked), "{opaque_bytes}");
    }
}

#[test]
fn a_page_that_takes_long_ends_where_it_is() {
    // One timer a millisecond: the page of 1 000 would take longer with so many nodes.
    let mut world = World::new(vec![Shard::of(0..5_000)], vec![]);
    world.part_max = 1;
    let page = world.page(query("limit=1000"));
    assert!(page.timers.len() == 1_000 && page.cursor.is_some());
    world.now_ms += 10;
    world.own[0].timers.truncate(0);
    let began_ms = world.now_ms;
    world.own.push(Shard::of([1]));
    world.begin(query("limit=3")).expect("room");
    let (mut orders, mut replies) = (Vec::new(), Vec::new());
    let now = at(began_ms + PAGE_MS);
    world.lists.tick(at(began_ms), (OWN, &world.view), &mut orders, &mut replies);
    world.lists.tick(now, (OWN, &world.view), &mut orders, &mut replies);
    let Some(Answer::Internal(page)) = replies.pop().map(|reply| reply.answer) else {
        panic!("a page without an answer of any shard")
    };
    let Internal::List(page) = *page else { panic!("{page:?}") };
    assert!(page.timers.is_empty() && page.cursor.is_some(), "{page:?}");
    // Its answers come too late.
    for order in orders {
        let Reply { answer, .. } = Shard::of([1]).part(&order.ask, 10);
        assert!(world.lists.take(now, &world.view, Reply::at_once(order.from, answer)).is_none());
    }
}

#[test]
fn a_core_puts_so_many_pages_together_at_a_time() {
    let mut world = World::new(vec![Shard::of(0..5)], vec![]);
    assert!(world.lists.is_empty());
    for number in 0..LISTINGS_MAX as u64 {
        world.begin_by(number % 2, query("")).expect("room");
        assert!(!world.lists.is_empty());
    }
    assert_eq!(world.begin(query("")), Err(Refusal::ListsFull));
    assert_eq!(world.begin_by(0, query("")), Err(Refusal::ListsOfNameFull));
}

#[test]
fn a_node_with_more_shards_than_before_is_asked_for_all_of_them() {
    let own = vec![Shard::of(0..5)];
    let mut world = World::new(own.clone(), vec![Shard::of(5..8), Shard::of(8..11)]);
    assert_eq!(world.all("").len(), 11);
    let asked = world.asked;
    assert_eq!(world.all("").len(), 11);
    assert!(world.asked - asked <= 3, "the number of shards is remembered");
    world.others = (0..3).map(|shard| Shard { shards: 3, ..Shard::of([20 + shard]) }).collect();
    assert_eq!(world.all("").len(), 8);
}

#[test]
fn a_page_begins_again_when_timers_have_moved_meanwhile() {
    let mut world = World::new(vec![Shard::of(0..40)], vec![Shard::of(40..80)]);
    world.part_max = 30;
    world.begin(query("limit=100")).expect("room");
    let mut page = None;
    for round in 0..100 {
        let (mut orders, mut replies) = (Vec::new(), Vec::new());
        let now = at(world.now_ms + round);
        world.lists.tick(now, (OWN, &world.view), &mut orders, &mut replies);
        for order in orders {
            let shard = match order.whom {
                Whom::Shard(_) => &mut world.own[0],
                Whom::Peer(..) => &mut world.others[0],
            };
            let Reply { answer, .. } = shard.part(&order.ask, world.part_max);
            replies.extend(world.lists.take(now, &world.view, Reply::at_once(order.from, answer)));
        }
        if round == 0 {
            // What the other node has not told moves here, behind what this node has told.
            let others = std::mem::take(&mut world.others[0].timers);
            world.others[0].departures += others.len() as u32;
            world.own[0].timers.extend(others);
        }
        page = page.or(replies.pop());
    }
    let Some(Answer::Internal(page)) = page.map(|page| page.answer) else { panic!("no page") };
    let Internal::List(page) = *page else { panic!("{page:?}") };
    assert_eq!(ids(&page).into_iter().collect::<BTreeSet<_>>(), (0..80).collect());
}

#[test]
fn a_question_asks_for_a_share_and_some_more_in_a_walk_of_the_page() {
    let mut world = World::new(vec![Shard::of([]); 4], vec![]);
    (0..2).for_each(|_| world.begin(query("limit=100")).expect("room"));
    let (mut orders, mut replies) = (Vec::new(), Vec::new());
    world.lists.tick(at(world.now_ms), (OWN, &world.view), &mut orders, &mut replies);
    let asks = orders.iter().map(|order| ListAsk::decode(&order.ask).expect("a question"));
    let (limits, walks): (Vec<u16>, BTreeSet<u64>) = asks.map(|ask| (ask.limit, ask.walk)).unzip();
    assert_eq!(limits, [25 + 6 + 8; 8]);
    assert_eq!(walks.len(), 2);
}

/// A page of all shards of two other nodes: "b" with one shard, "c" with two.
#[test]
fn how_many_shards_one_node_has_says_nothing_of_another() {
    let (view, mut lists) = (view(), Lists::default());
    let [b, c] = ["b", "c"].map(|name| view.node_named(name).expect("a member"));
    let of = (&view, [(b, Ok(())), (c, Ok(()))].into_iter());
    lists.begin(at(1), (1, ShardCount::new(1)), of, (FROM, 7), query("")).expect("room");
    let shards = [(b, 0, Shard::of([1])), (c, 0, Shard::of([2])), (c, 1, Shard::of([3]))];
    let (mut orders, mut pages) = (Vec::new(), Vec::new());
    for round in 1..5 {
        lists.tick(at(round), (OWN, &view), &mut orders, &mut pages);
        // "c" is answered before "b".
        for order in orders.drain(..).rev() {
            let shard = match order.whom {
                Whom::Shard(_) => Shard::of([0]),
                Whom::Peer(of, shard) => {
                    let it = shards.iter().find(|it| (it.0, it.1) == (of, shard));
                    let shards = if of == c { 2 } else { 1 };
                    Shard { shards, ..it.expect("a shard that is there").2.clone() }
                }
            };
            let Reply { answer, .. } = shard.part(&order.ask, 10);
            pages.extend(lists.take(at(round), &view, Reply::at_once(order.from, answer)));
        }
    }
    let Some(Answer::Internal(page)) = pages.pop().map(|page| page.answer) else { panic!("none") };
    let Internal::List(page) = *page else { panic!("{page:?}") };
    assert_eq!(ids(&page).into_iter().collect::<BTreeSet<_>>(), (0..4).collect());
}

#[test]
fn a_part_that_goes_back_is_refused() {
    let (view, mut lists) = (view(), Lists::default());
    let peer = view.node_named("b").expect("a member");
    let cursor = Cursor { from: Place(1_000), walk: 1, began: WallMs(0) };
    let cursor = query("").write_cursor(&cursor);
    for (is_done, is_refused) in [(false, true), (true, false)] {
        let of = (&view, [(peer, Ok(()))].into_iter());
        let query = query(&format!("cursor={cursor}"));
        lists.begin(at(1), (1, ShardCount::new(1)), of, (FROM, 7), query).expect("room");
        let (mut orders, mut pages) = (Vec::new(), Vec::new());
        lists.tick(at(1), (OWN, &view), &mut orders, &mut pages);
        for order in orders {
            let mut bytes = Vec::new();
            begin_part(&mut bytes);
            let is_done = is_done || matches!(order.whom, Whom::Shard(_));
            let (shards, departures, until) = (1, 0, Place(999));
            let head = PartHead { is_done, is_starved: false, shards, departures, until };
            end_part(&mut bytes, &head);
            let part = Answer::Internal(Box::new(Internal::ListPart(Some(bytes.into()))));
            pages.extend(lists.take(at(1), &view, Reply::at_once(order.from, part)));
        }
        let Some(Answer::Internal(page)) = pages.pop().map(|page| page.answer) else {
            panic!("no page")
        };
        let Internal::List(page) = *page else { panic!("{page:?}") };
        assert_eq!(page.incomplete.len(), usize::from(is_refused), "{page:?}");
    }
}

#[test]
fn a_page_is_begun_again_so_often_and_no_more() {
    // Each question finds that timers have left since the one before.
    let mut world = World::new(vec![Shard::of(0..40)], vec![]);
    world.part_max = 10;
    world.begin(query("limit=40")).expect("room");
    let (mut firsts, mut pages) = (0, Vec::new());
    for round in 0..100 {
        let mut orders = Vec::new();
        let now = at(world.now_ms + round);
        world.lists.tick(now, (OWN, &world.view), &mut orders, &mut pages);
        for order in orders {
            let ask = ListAsk::decode(&order.ask).expect("a question");
            firsts += u32::from(ask.from == Place(0));
            world.own[0].departures += 1;
            let Reply { answer, .. } = world.own[0].part(&order.ask, world.part_max);
            pages.extend(world.lists.take(now, &world.view, Reply::at_once(order.from, answer)));
        }
    }
    assert_eq!((pages.len(), firsts), (1, 1 + RESTARTS_MAX));
}
