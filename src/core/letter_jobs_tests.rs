//! Pages whose letters are used one after the other.

use super::*;
use crate::base::ids::TimerId;
use crate::base::time::WallMs;
use crate::journal::Position;
use crate::shard::effects::TimerView;
use crate::wire::timer_list::ListedState;

const OWN: ShardIndex = ShardIndex(3);
const CLIENT: Requester = Requester { shard: OWN, connection: 4, generation: 5, request: 6 };

fn page(ids: impl IntoIterator<Item = u64>, letters: Option<LetterUse>) -> Reply {
    let listed = |id| ListedTimer {
        view: TimerView {
            id: TimerId(id),
            factor: 2,
            filter: 9,
            interval_ms: 0,
            repeat_for_ms: 0,
            age_ms: 0,
            version: Version(100 + id),
            sequence: 0,
            uri: String::new(),
            opaque: Box::default(),
            attributes: Box::default(),
            tags: vec![],
        },
        state: ListedState::Parked,
        due_in_ms: 1,
    };
    let timers: Vec<_> = ids.into_iter().map(listed).collect();
    let (cursor, incomplete, at) = (Some("next".to_owned()), vec![], WallMs(1));
    let page = ListPage { timers, cursor, incomplete, at, bytes: 0, letters, used: 0, refused: 0 };
    Reply::at_once(CLIENT, Answer::Internal(Box::new(Internal::List(page))))
}

fn list(reply: &Reply) -> &ListPage {
    let Answer::Internal(internal) = &reply.answer else { panic!("{reply:?}") };
    let Internal::List(page) = &**internal else { panic!("{reply:?}") };
    page
}

#[test]
fn what_asks_for_no_use_of_letters_is_answered_as_it_is() {
    let mut jobs = LetterJobs::default();
    for (ids, letters) in [
        (vec![1, 2], None),
        (vec![1, 2], Some(LetterUse::Show)),
        (vec![], Some(LetterUse::Replay)),
        (vec![], Some(LetterUse::Delete)),
    ] {
        let count = ids.len();
        let reply = jobs.begin(OWN, page(ids, letters)).expect("answered at once");
        assert_eq!((reply.to, list(&reply).timers.len()), (CLIENT, count), "{letters:?}");
        assert!(!jobs.has_orders());
    }
    for answer in
        [Answer::Refused(Refusal::ListsFull), Answer::Internal(Box::new(Internal::ListPart(None)))]
    {
        let reply = Reply { to: CLIENT, answer: answer.clone(), after: Position(7) };
        let told = jobs.begin(OWN, reply).expect("answered at once");
        assert_eq!(format!("{:?}", told.answer), format!("{answer:?}"));
        assert_eq!((told.to, told.after), (CLIENT, Position(7)));
    }
}

#[test]
fn each_letter_of_a_page_is_used_and_the_last_answer_tells_of_all() {
    for wanted in [LetterUse::Replay, LetterUse::Delete] {
        let mut jobs = LetterJobs::default();
        assert!(jobs.begin(OWN, page(1..=5, Some(wanted))).is_none());
        assert!(jobs.has_orders());
        let orders = jobs.take_orders();
        assert!(!jobs.has_orders() && orders.len() == 5);
        for (order, id) in orders.iter().zip(1..) {
            let Target { id: named, factor, filter } = order.target;
            assert_eq!((named, factor, filter), (TimerId(id), Some(2), Some(9)));
            assert_eq!((order.version, order.wanted), (Version(100 + id), wanted));
        }
        let done = Answer::Done { id: TimerId(1), factor: 2, filter: 9 };
        let answers = [
            done.clone(),
            Answer::NotFound,
            Answer::Refused(Refusal::NoTimer),
            Answer::Refused(Refusal::NoReplica),
        ];
        for (order, answer) in orders.iter().zip(answers) {
            assert!(jobs.take(&Reply::at_once(order.from, answer)).is_none());
        }
        let last = Reply { to: orders[4].from, answer: done, after: Position(3) };
        let told = jobs.take(&last).expect("it was the last one");
        assert_eq!((told.to, told.after), (CLIENT, Position(3)));
        let page = list(&told);
        assert_eq!((page.used, page.refused, page.timers.len()), (2, 1, 0));
        assert_eq!(page.cursor.as_deref(), Some("next"));
        assert!(jobs.take(&last).is_none(), "the page is answered");
    }
}
