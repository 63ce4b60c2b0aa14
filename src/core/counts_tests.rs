//! Numbers put together from shards that need many questions, or do not answer.

use super::*;
use crate::base::time::{MonoNs, TICK_NS, WallMs};
use crate::cluster::view::Membership;

const OWN: ShardIndex = ShardIndex(0);
const FROM: Requester = Requester { shard: OWN, connection: 3, generation: 4, request: 5 };

fn at(ms: u64) -> Now {
    Now { mono: MonoNs(ms * TICK_NS), wall: WallMs(ms) }
}

fn view() -> View {
    let membership = Membership {
        localhost: "a".into(),
        nodes: vec!["a".into(), "b".into()],
        ..Membership::default()
    };
    View::build(None, &membership).expect("a good configuration")
}

fn numbers(timers: u64) -> Numbers {
    Numbers { states: [timers, 0, 0, 0, 0, 0], ..Numbers::default() }
}

/// Asks until the answer is there. `answer` says what a shard answers to its nth question, from 0;
/// an outer `None`: nothing.
fn count(
    can_be_asked: Result<(), &'static str>,
    answer: impl Fn(Whom, usize) -> Option<Option<Vec<u8>>>,
) -> (ListCount, u64) {
    let (mut counts, view) = (Counts::default(), view());
    let peer = view.node_named("b").expect("a member");
    let of = (&view, [(peer, can_be_asked)].into_iter());
    counts.begin(at(1_000), (7, ShardCount::new(2)), of, FROM, true).expect("room");
    let mut asked: Vec<Whom> = Vec::new();
    for ms in 1_000..9_000 {
        let (mut orders, mut replies) = (Vec::new(), Vec::new());
        counts.tick(at(ms), (OWN, &view), &mut orders, &mut replies);
        for Order { whom, from, ask } in orders {
            assert!(CountAsk::decode(&ask).is_ok_and(|ask| ask.has_spans));
            let nth = asked.iter().filter(|of| **of == whom).count();
            asked.push(whom);
            if let Some(part) = answer(whom, nth) {
                let part = Internal::ListPart(part.map(Into::into));
                let reply = Reply::at_once(from, Answer::Internal(Box::new(part)));
                replies.extend(counts.take(at(ms), &view, reply));
            }
        }
        if let Some(Reply { to, answer, .. }) = replies.pop() {
            assert!(to == FROM && counts.is_empty() && replies.is_empty());
            let Answer::Internal(answer) = answer else { panic!("{answer:?}") };
            let Internal::Count(count) = *answer else { panic!("{answer:?}") };
            return (count, ms - 1_000);
        }
        assert!(counts.next_wake().is_some_and(|wake| wake.0 <= ms + PEER_MS));
    }
    panic!("no answer")
}

fn part(shards: u16, numbers: Option<Numbers>) -> Option<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    CountPart { shards, is_starved: true, numbers }.encode(&mut bytes);
    Some(Some(bytes))
}

#[test]
fn every_shard_of_every_node_is_asked_until_it_has_its_numbers() {
    let (count, _) = count(Ok(()), |whom, nth| match whom {
        Whom::Shard(ShardIndex(shard)) => {
            part(2, (nth > usize::from(shard)).then(|| numbers(1 + u64::from(shard))))
        }
        Whom::Peer(_, shard) => part(3, (nth == 4).then(|| numbers(10 * (1 + u64::from(shard))))),
    });
    assert_eq!((count.numbers, count.incomplete), (numbers(1 + 2 + 10 + 20 + 30), vec![]));
    assert!(count.has_spans);
}

#[test]
fn who_does_not_answer_is_left_out_and_named() {
    let own = |whom| match whom {
        Whom::Shard(_) => Some(part(2, Some(numbers(5)))),
        Whom::Peer(..) => None,
    };
    type Case = (Option<Option<Vec<u8>>>, &'static str, u64);
    let cases: [Case; 3] = [
        (None, "b: no answer within a second;", 1_000),
        (Some(None), "b: down, or of a version that knows no lists;", 0),
        (Some(Some(vec![9])), "b: its answer makes no sense;", 0),
    ];
    for (answer, sentence, after_ms) in cases {
        let (count, ms) = count(Ok(()), |whom, _| own(whom).unwrap_or_else(|| answer.clone()));
        assert_eq!((count.numbers.states[0], ms), (10, after_ms), "{sentence}");
        assert!(count.incomplete[0].starts_with(sentence), "{:?}", count.incomplete);
        assert_eq!(count.incomplete.len(), 1);
    }
    let (left_out, _) = count(Err("not reached"), |whom, _| own(whom).expect("own shards alone"));
    assert!(left_out.incomplete[0].starts_with("b: not reached;"));
    let (late, ms) = count(Ok(()), |whom, _| match whom {
        Whom::Shard(ShardIndex(1)) => part(2, None),
        _ => part(1, Some(numbers(5))),
    });
    assert_eq!((late.numbers.states[0], ms), (10, COUNT_MS));
    let sentence = "shard 1 of this node: so many timers that counting takes too long";
    assert_eq!(late.incomplete, [sentence]);
}
