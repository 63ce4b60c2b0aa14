//! An ensemble of three servers of `ZooKeeper`, of which some die or freeze. A follower that is cut
//! off from its leader goes on answering pings, and a leader that was frozen believes for a moment
//! that it still leads. No master may live on such an answer.
//!
//! Now and then servers that were frozen do not elect a leader by themselves: they take connections
//! and answer nothing for more than half a minute. They are then started anew, as an operator would
//! do. The assertion stays: when the ensemble answers, timestamps are handed out.

use std::thread::sleep;
use std::time::{Duration, Instant};

use kit::runner::Story;

use super::checker::Checker;
use super::processes::until;
use super::servers::{START, Servers};
use super::zookeeper::Ensemble;

pub const STORIES: &[Story] = &[
    ("the_leader_of_an_ensemble_is_killed", leader_is_killed),
    ("servers_of_an_ensemble_freeze", servers_freeze),
];

const TICK_MS: u64 = 200;
const SESSION_MS: u64 = 2_000;
/// How long an ensemble may take to elect a leader by itself. An election usually takes a second.
const TERMS: Duration = Duration::from_secs(45);

fn leader_is_killed() {
    let mut ensemble = Ensemble::start(TICK_MS);
    let servers = Servers::start(2, &ensemble.quorum(), SESSION_MS);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), START);
    for round in 1..=3 {
        let leader = ensemble.leader();
        let begin = Instant::now();
        ensemble.all[leader].kill();
        // From here on a window that was stored before is of no use.
        sleep(Duration::from_millis(SESSION_MS));
        await_reply(&checker, &mut ensemble, &[leader]);
        let gap = checker.longest_gap(begin);
        println!("leader {round} killed: no answer for {} ms", gap.as_millis());
        ensemble.all[leader].run();
    }
    println!("{} replies", checker.finish());
}

fn servers_freeze() {
    let mut ensemble = Ensemble::start(TICK_MS);
    let servers = Servers::start(2, &ensemble.quorum(), SESSION_MS);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), START);
    // The frozen places are counted from the leader's.
    for frozen in [&[0][..], &[1], &[1, 2], &[0, 1], &[0, 1, 2]] {
        let leader = ensemble.leader();
        let begin = Instant::now();
        let signal = |ensemble: &mut Ensemble, name: &str| {
            for place in frozen {
                ensemble.all[(leader + place) % 3].process().signal(name);
            }
        };
        signal(&mut ensemble, "STOP");
        sleep(Duration::from_millis(SESSION_MS * 2));
        if frozen.len() == 1 {
            await_reply(&checker, &mut ensemble, &[(leader + frozen[0]) % 3]);
        }
        signal(&mut ensemble, "CONT");
        await_reply(&checker, &mut ensemble, &[]);
        let gap = checker.longest_gap(begin);
        println!("leader + {frozen:?} frozen: no answer for {} ms", gap.as_millis());
    }
    println!("{} replies", checker.finish());
}

/// Waits for a reply from now on. `away` are servers of the ensemble that do not run.
fn await_reply(checker: &Checker, ensemble: &mut Ensemble, away: &[usize]) {
    let begin = Instant::now();
    let is_there = || checker.got().iter().rev().take(64).any(|one| one.at > begin);
    let is_over = || is_there() || begin.elapsed() > TERMS;
    until("a reply, or long enough", TERMS * 2, || is_over().then_some(()));
    if !is_there() && !ensemble.serves() {
        println!("the ensemble does not come to terms and is started anew: {}", ensemble.told());
        ensemble.start_anew(away);
    }
    checker.await_reply(begin, START);
}
