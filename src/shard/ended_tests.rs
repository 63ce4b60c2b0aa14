//! What a timer has to be, and what the others have to say, for it to have ended while this node
//! was away.

use std::sync::Arc;

use super::super::effects::{Dialect, Event};
use super::super::harness_tests::Cluster;
use super::super::parts::returned::Return;
use super::super::records::State;
use super::*;
use crate::base::limits::ClusterLimits;
use crate::base::time::WallMs;
use crate::cluster::detector::Liveness;
use crate::cluster::view::{Membership, View};

const ID: TimerId = TimerId(7);

fn set(peers: &[PeerIndex]) -> PeerSet {
    peers.iter().fold(PeerSet::EMPTY, |set, peer| set.with(*peer))
}

/// A node that has come back with a timer of two of three nodes. The other holder, and the node
/// that is none.
struct Away {
    cluster: Cluster,
    own: usize,
    others: [usize; 2],
}

impl Away {
    /// Whatever can be told is on the side of an end, and by a millisecond.
    fn new() -> Self {
        let (cluster, own, second) = Cluster::with_timer_of_two(ID);
        let third = (0..3).find(|node| ![own, second].contains(node)).expect("of three");
        let mut away = Self { cluster, own, others: [second, third] };
        let skew_ms = ClusterLimits::default().clock_skew_max_ms;
        let wrote_ms = away.record().version.wall().0;
        let lived_ms = ClusterLimits::default().suspect_after_ms + HEARD_MS + skew_ms + 1;
        away.returns(WallMs(wrote_ms + lived_ms), WallMs(wrote_ms - skew_ms - 1));
        away
    }

    fn returns(&mut self, seen_at: WallMs, complete_since: WallMs) {
        let peers = self.peers();
        let peers_of_shard = &mut self.shard().peers;
        peers.iter().for_each(|peer| peers_of_shard.note_complete(*peer, Some(complete_since)));
        let (lacking, told) = (PeerSet::EMPTY, Default::default());
        self.shard().returned = Some(Return { seen_at, lacking, told });
    }

    fn shard(&mut self) -> &mut Shard {
        self.cluster.shard(self.own)
    }

    /// The other holder, and the node that holds nothing, as this node knows them.
    fn peers(&self) -> [PeerIndex; 2] {
        self.others.map(|node| self.cluster.peer(self.own, node).expect("a member"))
    }

    fn record(&mut self) -> Record {
        let shard = self.shard();
        *shard.records.get(shard.find(ID).expect("it is held"))
    }

    fn may_have_ended(&mut self) -> bool {
        let record = self.record();
        self.shard().may_have_ended(&record)
    }

    fn believe(&mut self, peer: PeerIndex, liveness: Liveness, dialect: Dialect) {
        let event = Event::Peer { peer, liveness, dialect, has_gaps: false };
        self.cluster.handle(self.own, event);
    }

    /// The other holder has forgotten the timer.
    fn forget_at_other(&mut self) {
        let shard = self.cluster.shard(self.others[0]);
        let (tick, slot) = (shard.turns.at, shard.find(ID).expect("it is held"));
        shard.records.forget(tick, slot);
    }

    /// A question about the timer, of which the other holder has said that it does not hold it.
    fn ask(&mut self, fetches: u8, denied: PeerSet) {
        let key = self.record().key();
        let question = Question { fetches, denied, ..Question::new(key, PeerSet::EMPTY, Tick(0)) };
        self.shard().questions.open.insert(ID.0, question);
    }

    fn question(&mut self) -> Option<Question> {
        self.shard().questions.open.get(&ID.0).copied()
    }
}

#[test]
fn a_timer_has_ended_only_if_all_that_could_hold_it_lived_and_were_complete() {
    type Change = fn(&mut Away, [PeerIndex; 2]);
    let changes: [(&str, bool, Change); 15] = [
        ("", true, |_, _| {}),
        ("began without a journal", false, |away, _| away.shard().returned = None),
        ("lived too short after the write", false, |away, _| {
            let returned = away.shard().returned.as_mut().expect("it is one");
            returned.seen_at = WallMs(returned.seen_at.0 - 1);
        }),
        ("a clock may be that far off", false, |away, [_, third]| {
            let since = away.shard().peers.complete_since(third).expect("told");
            away.shard().peers.note_complete(third, Some(WallMs(since.0 + 1)));
        }),
        ("has not told since when", false, |away, [second, _]| {
            away.shard().peers.note_complete(second, None);
        }),
        ("may have missed it", false, |away, [second, _]| {
            away.shard().returned.as_mut().expect("it is one").lacking = set(&[second]);
        }),
        ("a node off the list may have", true, |away, [_, third]| {
            away.shard().returned.as_mut().expect("it is one").lacking = set(&[third]);
        }),
        ("was told of", false, |away, _| {
            away.shard().returned.as_mut().expect("it is one").told.insert(ID.0);
        }),
        ("another one was", true, |away, _| {
            away.shard().returned.as_mut().expect("it is one").told.insert(ID.0 + 1);
        }),
        ("the first replica answers", false, |away, _| {
            away.shard().config.cluster.acknowledge = Acknowledge::First;
        }),
        ("is suspected", false, |away, [_, third]| {
            away.believe(third, Liveness::Suspect, Dialect::Frames);
        }),
        ("is dead", false, |away, [second, _]| {
            away.believe(second, Liveness::Dead, Dialect::Frames);
        }),
        ("is an original", false, |away, [_, third]| {
            away.believe(third, Liveness::Alive, Dialect::Http);
        }),
        ("sees other members", false, |away, [_, third]| {
            away.shard().peers.other_view = set(&[third]);
        }),
        ("members change", false, |away, _| {
            let names = &away.cluster.names;
            let membership = Membership {
                localhost: names[away.own].clone(),
                nodes: vec![names[away.own].clone(), names[away.others[0]].clone()],
                leaving: vec![names[away.others[1]].clone()],
                ..Membership::default()
            };
            let former = away.shard().peers.view.clone();
            let view = View::build(Some(&former), &membership).expect("a good configuration");
            away.shard().peers.view = Arc::new(view);
        }),
    ];
    for (why, may, change) in changes {
        let mut away = Away::new();
        let peers = away.peers();
        change(&mut away, peers);
        assert_eq!(away.may_have_ended(), may, "{why}");
    }
    let mut away = Away::new();
    let ended = Record { state: State::Tombstone, ..away.record() };
    assert!(!away.shard().may_have_ended(&ended), "a tombstone");
}

/// How often the others were asked, who denied, whether somebody holds the timer; and what follows.
#[test]
fn each_other_node_is_asked_twice_before_a_timer_ends() {
    #[derive(PartialEq, Debug)]
    enum Then {
        Ask(u8),
        Ends,
        Stays,
    }
    let nobody: &[usize] = &[];
    for (fetches, denied, is_known, then) in [
        (0, &[0][..], false, Then::Ask(1)),
        (0, &[0, 1], false, Then::Ask(1)),
        (0, &[0], true, Then::Stays),
        (0, nobody, false, Then::Stays),
        (1, &[0, 1], false, Then::Ask(2)),
        (1, &[0], false, Then::Stays),
        (1, nobody, false, Then::Stays),
        (2, &[0, 1], false, Then::Ends),
        (2, &[1], false, Then::Stays),
    ] {
        let mut away = Away::new();
        let peers = away.peers();
        let denied: Vec<PeerIndex> = denied.iter().map(|at| peers[*at]).collect();
        away.ask(fetches, set(&denied));
        away.shard().questions.open.get_mut(&ID.0).expect("asked").is_known = is_known;
        away.shard().all_have_answered(Tick(9), ID);
        let found = match (away.question(), away.shard().find(ID)) {
            (Some(question), Some(_)) => {
                assert_eq!((question.waiting, question.since), (set(&peers), Tick(9)));
                assert!(question.denied.is_empty(), "they are asked anew");
                Then::Ask(question.fetches)
            }
            (None, Some(_)) => Then::Stays,
            (_, None) => Then::Ends,
        };
        let case = (fetches, denied, is_known);
        assert_eq!(found, then, "{case:?}");
        let ended = u64::from(then == Then::Ends);
        assert_eq!(away.shard().counters.ended_away, ended, "{case:?}");
        assert!(then != Then::Ends || away.question().is_none());
    }
}

#[test]
fn a_timer_that_has_gone_on_since_it_was_asked_about_stays() {
    for change in [true, false] {
        let mut away = Away::new();
        let peers = away.peers();
        away.ask(2, set(&peers));
        if change {
            let question = away.shard().questions.open.get_mut(&ID.0).expect("asked");
            question.key.sequence += 1;
        } else {
            away.shard().returned = None;
        }
        away.shard().all_have_answered(Tick(9), ID);
        assert!(away.shard().find(ID).is_some() && away.question().is_none());
        assert_eq!(away.shard().counters.ended_away, 0);
    }
}

#[test]
fn an_answer_to_a_fetch_counts_if_it_is_one_to_this_question() {
    let mut away = Away::new();
    let [second, third] = away.peers();
    let life = away.shard().questions.life;
    let waiting = |away: &mut Away, asked: &[PeerIndex], fetches| {
        away.ask(fetches, PeerSet::EMPTY);
        let question = away.shard().questions.open.get_mut(&ID.0).expect("asked");
        (question.waiting, question.asked) = (set(&[second, third]), set(asked));
    };
    let parts = |away: &mut Away| {
        let question = away.question().expect("open");
        (question.waiting, question.asked, question.denied)
    };
    let both = set(&[second, third]);
    let not_found = || Some(PeerResult::NotFound);
    for (fetches, life, result, left) in [
        (1, life, not_found(), (set(&[third]), set(&[third]), set(&[second]))),
        (1, life, Some(PeerResult::Busy), (set(&[third]), set(&[third]), PeerSet::EMPTY)),
        (1, life, None, (both, set(&[third]), PeerSet::EMPTY)),
        (1, life + 1, not_found(), (both, both, PeerSet::EMPTY)),
        (0, life, not_found(), (both, both, PeerSet::EMPTY)),
    ] {
        waiting(&mut away, &[second, third], fetches);
        away.shard().fetch_for_end(Tick(9), second, (ID, life), result);
        assert_eq!(parts(&mut away), left, "{fetches} {life}");
    }
    // The last answer goes on with the question.
    waiting(&mut away, &[second, third], 1);
    away.shard().fetch_for_end(Tick(9), second, (ID, life), not_found());
    away.shard().fetch_for_end(Tick(9), third, (ID, life), not_found());
    assert_eq!(away.question().expect("open").fetches, 2);
}

#[test]
fn a_timer_that_is_told_of_while_nothing_is_asked_makes_all_stay() {
    let mut away = Away::new();
    away.ask(0, PeerSet::EMPTY);
    away.shard().note_told(TimerId(9));
    let told = |away: &mut Away| away.shard().returned.as_ref().map(|it| it.told.len());
    assert_eq!(told(&mut away), Some(1));
    let returned = away.shard().returned.as_mut().expect("it is one");
    returned.told = (0..TOLD_MAX as u64 - 1).collect();
    away.shard().note_told(TimerId(u64::MAX));
    assert_eq!(told(&mut away), Some(TOLD_MAX));
    away.shard().note_told(TimerId(u64::MAX));
    assert_eq!(told(&mut away), None, "there is no room to remember more");

    let mut away = Away::new();
    away.shard().note_told(TimerId(9));
    assert_eq!(told(&mut away), None, "all has been asked about");
}

#[test]
fn what_no_other_node_holds_after_an_absence_is_forgotten_and_does_not_pop() {
    for (is_forgotten, pops) in [(true, 0), (false, 1)] {
        let mut away = Away::new();
        if is_forgotten {
            away.forget_at_other();
        }
        away.cluster.skip_to(20_000);
        away.cluster.run_until(30);
        assert_eq!(away.shard().find(ID).is_none(), is_forgotten);
        assert_eq!(away.shard().counters.ended_away, u64::from(is_forgotten));
        assert_eq!(away.cluster.pops.len(), pops);
        away.cluster.audit();
    }
}

#[test]
fn what_one_other_node_alone_was_to_hold_stays() {
    let mut away = Away::new();
    let [second, _] = away.peers();
    let shard = away.shard();
    let only = [shard.peers.view.hash_of(second)].into_iter().collect();
    let placement = shard.placement(only, Default::default(), 2);
    let slot = shard.find(ID).expect("it is held");
    shard.place(slot, &placement);
    assert!(!away.may_have_ended());
}
