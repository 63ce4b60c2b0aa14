//! An ensemble of three servers of `ZooKeeper`, of which some die or freeze: a follower that is cut
//! off from its leader goes on answering pings, and a leader that was frozen believes for a moment
//! that it still leads. No master may live on such an answer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::checker::Checker;
use super::runner::Story;
use super::servers::Servers;
use super::zookeeper::Ensemble;

pub const STORIES: &[Story] = &[
    ("the_leader_of_an_ensemble_is_killed", leader_is_killed),
    ("servers_of_an_ensemble_freeze", servers_freeze),
];

const TICK_MS: u64 = 200;
const SESSION_MS: u64 = 2_000;

fn leader_is_killed() {
    let mut ensemble = Ensemble::start(TICK_MS);
    let patience = Ensemble::election_max(TICK_MS);
    let servers = Servers::start(2, &ensemble.quorum(), SESSION_MS);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), patience);
    for round in 1..=3 {
        let leader = ensemble.leader();
        let begin = Instant::now();
        ensemble.all[leader].kill();
        // From here on what was stored before is of no use.
        sleep(Duration::from_millis(SESSION_MS));
        checker.await_reply(Instant::now(), patience);
        let gap = checker.longest_gap(begin);
        println!("leader {round} killed: no answer for {} ms", gap.as_millis());
        ensemble.all[leader].run();
    }
    println!("{} replies", checker.finish());
}

fn servers_freeze() {
    let mut ensemble = Ensemble::start(TICK_MS);
    let patience = Ensemble::election_max(TICK_MS);
    let servers = Servers::start(2, &ensemble.quorum(), SESSION_MS);
    let checker = Checker::of(&servers.addresses());
    checker.await_reply(Instant::now(), patience);
    // Places behind the leader's.
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
            checker.await_reply(Instant::now(), patience);
        }
        signal(&mut ensemble, "CONT");
        checker.await_reply(Instant::now(), patience);
        let gap = checker.longest_gap(begin);
        println!("leader + {frozen:?} frozen: no answer for {} ms", gap.as_millis());
    }
    println!("{} replies", checker.finish());
}
